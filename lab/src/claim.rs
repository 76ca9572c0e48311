//! Claims about the shape of an experiment's results, and their verdicts.
//!
//! Invariants: pure; a claim fails only if the figures contradict it. If rounds scatter too much, or a figure could
//! not be measured, the claim stays open with a reason. A difference holds only if the whole confidence interval shows
//! it.

use serde::Serialize;

use crate::statistics::Spread;

/// Verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Holds,
    Fails,
    Open,
}

/// A claim with its verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Claim {
    /// The claim, in words.
    pub(crate) claim: String,
    /// The measured figures, or the reason why it is open.
    pub(crate) measured: String,
    pub(crate) verdict: Verdict,
}

impl Claim {
    /// A claim that one measurement decides.
    pub(crate) fn judged(claim: &str, measured: String, holds: bool) -> Self {
        let verdict = if holds { Verdict::Holds } else { Verdict::Fails };
        Self { claim: claim.to_owned(), measured, verdict }
    }

    /// A claim that cannot be judged here.
    pub(crate) fn open(claim: &str, why: &str) -> Self {
        Self { claim: claim.to_owned(), measured: why.to_owned(), verdict: Verdict::Open }
    }

    /// Claims that the median is at most `limit`: fails only if the lower confidence bound is above it.
    pub(crate) fn at_most(claim: &str, spread: &Spread, limit: f64, unit: Unit) -> Self {
        Self::bounded(claim, spread, unit, spread.median <= limit, spread.low > limit)
    }

    /// Claims that the median is at least `limit`: fails only if the upper confidence bound is below it.
    pub(crate) fn at_least(claim: &str, spread: &Spread, limit: f64, unit: Unit) -> Self {
        Self::bounded(claim, spread, unit, spread.median >= limit, spread.high < limit)
    }

    /// Claims that the median is above `limit`: holds only if the lower confidence bound is above it, and fails only if
    /// the upper one is below it. An interval with the limit in it shows no difference.
    pub(crate) fn above(claim: &str, spread: &Spread, limit: f64, unit: Unit) -> Self {
        Self::bounded(claim, spread, unit, spread.low > limit, spread.high < limit)
    }

    fn bounded(claim: &str, spread: &Spread, unit: Unit, holds: bool, fails: bool) -> Self {
        if spread.rounds == 0 {
            return Self::open(claim, "nothing was measured");
        }
        let measured = unit.told(spread);
        match (holds, fails) {
            (true, _) => Self::judged(claim, measured, true),
            (false, true) => Self::judged(claim, measured, false),
            (false, false) => {
                Self::open(claim, &format!("{measured}: the rounds scatter too much to tell"))
            }
        }
    }

    /// One line of text.
    pub(crate) fn line(&self) -> String {
        let verdict = match self.verdict {
            Verdict::Holds => "holds",
            Verdict::Fails => "FAILS",
            Verdict::Open => "open",
        };
        format!("{verdict:<6} {}: {}", self.claim, self.measured)
    }
}

/// Unit of a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    Percent,
    Times,
}

impl Unit {
    fn text(self, value: f64) -> String {
        match self {
            Self::Percent => format!("{:.1} %", value * 100.0),
            Self::Times => format!("{value:.2}x"),
        }
    }

    /// A median with its confidence interval.
    pub(crate) fn told(self, spread: &Spread) -> String {
        format!(
            "{} (median of {} rounds; {} to {} at {:.0} % confidence)",
            self.text(spread.median),
            spread.rounds,
            self.text(spread.low),
            self.text(spread.high),
            spread.confidence * 100.0
        )
    }
}

/// A sentence about the failed claims; `None` if none failed.
pub(crate) fn failure(claims: &[Claim]) -> Option<String> {
    let failed: Vec<String> = claims
        .iter()
        .filter(|claim| claim.verdict == Verdict::Fails)
        .map(|claim| format!("{}, but measured was {}", claim.claim, claim.measured))
        .collect();
    (!failed.is_empty()).then(|| format!("the shape does not hold: {}", failed.join("; ")))
}

/// True if throughput grows with the number of partitions: at each step by at least the square root of the factor
/// by which the partitions grow. Twice the partitions must give 1.4 times as much: the rest is limited by the
/// machine, which all share, and by clients that wait for one partition while another is idle.
pub(crate) fn grows(partitions: &[u32], rates: &[f64]) -> bool {
    let mut pairs = partitions.windows(2).zip(rates.windows(2));
    let min_growth = |more: &[u32]| (f64::from(more[1]) / f64::from(more[0])).sqrt();
    rates.len() > 1
        && rates.len() == partitions.len()
        && pairs.all(|(counts, rate)| rate[1] >= min_growth(counts) * rate[0] && rate[1] > 0.0)
}

/// True if all values are within this factor of the smallest.
pub(crate) fn is_flat(values: &[f64], factor: f64) -> bool {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    !values.is_empty() && least > 0.0 && most <= factor * least
}

/// Rates as a list.
pub(crate) fn list(values: &[f64]) -> String {
    let texts: Vec<String> = values.iter().map(|value| format!("{value:.0}")).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(values: &[f64]) -> Spread {
        Spread::of(values)
    }

    #[test]
    fn a_claim_fails_only_when_its_whole_interval_contradicts_it() {
        let loss = |values: &[f64]| Claim::at_most("loss", &spread(values), 0.05, Unit::Percent);
        assert_eq!(loss(&[0.01, 0.02, 0.20, 0.03, 0.04]).verdict, Verdict::Holds);
        let open = loss(&[0.01, 0.02, 0.20, 0.09, 0.08]);
        assert_eq!(open.verdict, Verdict::Open);
        assert!(open.measured.contains("scatter") && open.measured.contains("8.0 %"), "{open:?}");
        assert_eq!(loss(&[0.06, 0.07, 0.20, 0.09, 0.08]).verdict, Verdict::Fails);
        assert_eq!(loss(&[]).verdict, Verdict::Open);
        let price = |values: &[f64]| Claim::at_least("price", &spread(values), 1.5, Unit::Times);
        assert_eq!(price(&[2.0, 2.1, 1.0]).verdict, Verdict::Holds);
        assert_eq!(price(&[1.0, 1.1, 1.2]).verdict, Verdict::Fails);
        assert_eq!(price(&[1.0, 1.1, 1.6]).verdict, Verdict::Open);
    }

    #[test]
    fn a_difference_holds_only_when_its_whole_interval_shows_it() {
        let ratio = |values: &[f64]| Claim::above("faster", &spread(values), 1.0, Unit::Times);
        assert_eq!(ratio(&[1.1, 1.2, 1.3, 1.2, 1.1]).verdict, Verdict::Holds);
        assert_eq!(ratio(&[0.9, 0.8, 0.7, 0.8, 0.9]).verdict, Verdict::Fails);
        // The median is above the limit, and one of five rounds is not.
        let open = ratio(&[1.1, 1.2, 0.9, 1.2, 1.1]);
        assert_eq!(open.verdict, Verdict::Open);
        assert!(open.measured.contains("1.10x") && open.measured.contains("0.90x"), "{open:?}");
        // No difference at all, and a bound on the limit.
        assert_eq!(ratio(&[1.0; 5]).verdict, Verdict::Open);
        assert_eq!(ratio(&[1.0, 1.2, 1.3, 1.2, 1.1]).verdict, Verdict::Open);
        assert_eq!(ratio(&[]).verdict, Verdict::Open);
    }

    #[test]
    fn what_fails_is_said_in_one_sentence_and_what_is_open_is_not() {
        let claims = [
            Claim::judged("it grows", "1, 2".to_owned(), true),
            Claim::open("it is quick", "nobody looked"),
        ];
        assert_eq!(failure(&claims), None);
        let wrong = Claim::judged("it is flat", "1, 9".to_owned(), false);
        assert_eq!(wrong.line(), "FAILS  it is flat: 1, 9");
        let sentence = failure(&[wrong]).unwrap();
        assert_eq!(sentence, "the shape does not hold: it is flat, but measured was 1, 9");
    }

    #[test]
    fn shapes_are_told_apart() {
        assert!(grows(&[1, 2, 4], &[100.0, 190.0, 370.0]));
        assert!(!grows(&[1, 2, 4], &[100.0, 190.0, 200.0]));
        assert!(grows(&[1, 8], &[100.0, 300.0]) && !grows(&[1, 8], &[100.0, 250.0]));
        assert!(!grows(&[1, 2], &[0.0, 0.0]) && !grows(&[1], &[100.0]));
        assert!(is_flat(&[100.0, 90.0, 110.0], 1.5) && !is_flat(&[100.0, 60.0], 1.5));
        assert!(!is_flat(&[], 1.5) && !is_flat(&[0.0, 0.0], 1.5));
    }
}

//! Claims about key designs, judged by runs on a cluster (`--claims`): the same assertions as the virtual cluster's
//! tests (`lab/hotspot/tests/hotspot/claims.rs`), on real nodes.
//!
//! Invariants: pure; a run is judged only by its own measurements, and claims that they do not decide are open.

use partita_hotspot::metrics::{Second, Summary};

use super::watch::Reshaped;
use crate::claim::Claim;

/// Maximum seconds from the begin of the load to a verdict.
const VERDICT_S: u64 = 20;
/// Maximum seconds from the verdict to relief, which is checked once a second.
const RELIEF_S: u64 = 2;
/// Maximum seconds from the verdict until a table that repartitions itself serves its demand.
const CURED_S: u64 = 60;
/// Maximum share of useless splits under static load.
const IN_VAIN_SHARE: f64 = 0.001;
/// Seconds over which the served rate is averaged: INSERTs of many rows arrive unevenly.
const SERVED_OVER_S: usize = 10;
/// Maximum load of a leading node, relative to the mean, when the cluster is balanced.
const NODE_MAX: f64 = 1.25;

/// Purpose of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shows {
    /// A moving hotspot in one partition; the store only reports it.
    OneHotspot,
    /// The same, remedied by a repartition.
    Cure,
    /// A static load: splits help.
    StaticLoad,
    /// Days and nights.
    Days,
    /// Many lukewarm partitions led by one node.
    LukewarmNode,
}

/// The data of a run that claims are judged by.
pub(super) struct Judged<'a> {
    pub(super) name: &'a str,
    pub(super) shows: Shows,
    pub(super) summary: &'a Summary,
    pub(super) seconds: &'a [Second],
    /// Seconds at which it was split by load.
    pub(super) splits_at: &'a [u64],
    pub(super) reshaped: &'a [Reshaped],
    /// Result of the recommended statement, if there was one.
    pub(super) advice_ran: Option<&'a Result<String, String>>,
}

fn seconds(second: Option<u64>) -> String {
    second.map_or_else(|| "never".to_owned(), |second| format!("after {second} s"))
}

/// Claims of a run.
pub(super) fn claims(judged: &Judged<'_>) -> Vec<Claim> {
    match judged.shows {
        Shows::OneHotspot => one_hotspot(judged),
        Shows::Cure => vec![cure(judged)],
        Shows::StaticLoad => static_load(judged),
        Shows::Days => vec![no_flaps(judged), in_vain(judged)],
        Shows::LukewarmNode => lukewarm(judged),
    }
}

fn one_hotspot(judged: &Judged<'_>) -> Vec<Claim> {
    let Judged { name, summary, advice_ran, .. } = judged;
    let ran = match advice_ran {
        Some(Ok(ddl)) => (format!("the store accepted: {ddl}"), true),
        Some(Err(error)) => (error.clone(), false),
        None => ("no statement was recommended".to_owned(), false),
    };
    let splits = summary.load_splits_after_moving;
    vec![
        Claim::judged(
            &format!("{name}: one partition at a time takes all rows (N_eff at most 1.05)"),
            format!("N_eff {:.3}", summary.n_eff),
            summary.n_eff <= 1.05,
        ),
        Claim::judged(
            &format!("{name}: the store gives a verdict within {VERDICT_S} s"),
            format!("{} ({})", seconds(summary.t_verdict_s), classes(summary)),
            summary.t_verdict_s.is_some_and(|second| second <= VERDICT_S),
        ),
        Claim::judged(
            &format!("{name}: no split by load follows"),
            format!("{splits} splits"),
            splits == 0,
        ),
        Claim::judged(&format!("{name}: the recommended statement runs unchanged"), ran.0, ran.1),
    ]
}

fn classes(summary: &Summary) -> String {
    let names: Vec<&str> = summary.verdicts.keys().map(|class| class.name()).collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

/// Second from which 95 % of the demand was served: in the seconds right after it, and in all that remained.
fn served_from(seconds: &[Second]) -> Option<u64> {
    let enough = |seconds: &[Second]| {
        let sum = |value: fn(&Second) -> f64| seconds.iter().map(value).sum::<f64>();
        sum(|second| second.served) >= 0.95 * sum(|second| second.offered)
    };
    let mut windows = seconds.windows(SERVED_OVER_S).enumerate();
    let stable = windows.find(|(index, window)| enough(window) && enough(&seconds[*index..]));
    stable.map(|(_, window)| window[0].second)
}

fn cure(judged: &Judged<'_>) -> Claim {
    let Judged { name, summary, .. } = judged;
    let claim = format!(
        "{name}: from {CURED_S} s after the verdict at the latest, 95 % of the demand is served"
    );
    let Some(verdict) = summary.t_verdict_s else {
        return Claim::judged(&claim, "there was no verdict".to_owned(), false);
    };
    let served = served_from(judged.seconds);
    let measured = format!(
        "verdict after {verdict} s, new rows repartitioned {}, 95 % served {}, {:.1} % at the end",
        seconds(summary.rekeyed.map(|(second, _)| second)),
        seconds(served),
        summary.served_share * 100.0
    );
    Claim::judged(&claim, measured, served.is_some_and(|second| second <= verdict + CURED_S))
}

fn static_load(judged: &Judged<'_>) -> Vec<Claim> {
    let Judged { name, summary, .. } = judged;
    let served = Claim::judged(
        &format!("{name}: a load above the limit of one partition is served at the end"),
        format!("{:.1} %", summary.served_share * 100.0),
        summary.served_share >= 0.95,
    );
    vec![relief(judged), served, in_vain(judged), stall(judged)]
}

/// Claims that soon after the verdict the first split is made and another node leads the new partition.
fn relief(judged: &Judged<'_>) -> Claim {
    let claim = format!(
        "{}: within {RELIEF_S} s of the verdict the partition is split and another node leads the new one",
        judged.name
    );
    let Some(cut) = judged.splits_at.first() else {
        return Claim::open(&claim, "no split was needed");
    };
    // A split made before the verdict was observed was decided together with it.
    let earlier_verdict = judged.summary.t_verdict_s.filter(|verdict| verdict < cut);
    let waited = earlier_verdict.map_or(0.0, |verdict| as_seconds(cut - verdict));
    let by_load = judged.reshaped.iter().filter(|event| event.is_by_load());
    let handed: Vec<f64> = by_load.filter_map(|event| event.relief_ms).collect();
    let Some(first) = handed.first() else {
        return Claim::open(&claim, "no new partition got a leader on another node");
    };
    let total = waited + first / 1e3;
    let most = handed.iter().copied().fold(0.0, f64::max);
    let measured = format!(
        "{total:.1} s: {waited:.0} s until the order, {first:.0} ms after it; at most {most:.0} ms in {} splits",
        handed.len()
    );
    Claim::judged(&claim, measured, total <= as_seconds(RELIEF_S))
}

#[expect(clippy::cast_precision_loss, reason = "seconds of a run")]
fn as_seconds(seconds: u64) -> f64 {
    seconds as f64
}

/// Claims a maximum share of useless ones among the judged splits by load.
fn in_vain(judged: &Judged<'_>) -> Claim {
    let claim =
        format!("{}: at most {:.1} % of splits are in vain", judged.name, IN_VAIN_SHARE * 100.0);
    let by_load = judged.reshaped.iter().filter(|event| event.is_by_load());
    let judgements: Vec<bool> = by_load.clone().filter_map(|event| event.in_vain).collect();
    if judgements.is_empty() {
        return Claim::open(&claim, &format!("none of {} is judged yet", by_load.count()));
    }
    let vain = judgements.iter().filter(|vain| **vain).count();
    let shares: Vec<String> = by_load
        .clone()
        .filter_map(|event| event.actual_share)
        .map(|share| format!("{:.0} %", share * 100.0))
        .collect();
    let measured = format!(
        "{vain} of {} judged ({} in all); shares of the busier sides: {}",
        judgements.len(),
        by_load.count(),
        shares.join(", ")
    );
    #[expect(clippy::cast_precision_loss, reason = "splits of a few minutes")]
    let holds = vain as f64 <= IN_VAIN_SHARE * judgements.len() as f64;
    Claim::judged(&claim, measured, holds)
}

/// Claims a limit on the write stall of splits; also reports the longest total time from an order.
fn stall(judged: &Judged<'_>) -> Claim {
    let claim = format!("{}: no split stalls writes for 50 ms", judged.name);
    let mut stalls: Vec<f64> = judged.reshaped.iter().filter_map(|event| event.stall_ms).collect();
    stalls.sort_unstable_by(f64::total_cmp);
    let Some(most) = stalls.last() else { return Claim::open(&claim, "there was no split") };
    let middle = stalls[stalls.len() / 2];
    let took = judged.reshaped.iter().filter_map(|event| event.took_ms).fold(0.0, f64::max);
    let measured = format!(
        "{} splits, median {middle:.0} ms, maximum {most:.0} ms; at most {took:.0} ms from the order",
        stalls.len()
    );
    Claim::judged(&claim, measured, *most < 50.0)
}

fn no_flaps(judged: &Judged<'_>) -> Claim {
    let cut: Vec<&str> = judged
        .reshaped
        .iter()
        .filter(|event| !event.is_merge)
        .map(|event| event.key.as_str())
        .collect();
    let merges = judged.reshaped.iter().filter(|event| event.is_merge);
    let flaps = merges.clone().filter(|event| cut.contains(&event.key.as_str())).count();
    Claim::judged(
        &format!("{}: no merge undoes a split", judged.name),
        format!("{flaps} of {} splits, {} merges in total", cut.len(), merges.count()),
        flaps == 0,
    )
}

fn lukewarm(judged: &Judged<'_>) -> Vec<Claim> {
    let Judged { name, summary, .. } = judged;
    let initial = judged.seconds.first().map_or(0.0, |second| second.node_max_over_mean);
    let hot = match summary.t_detect_s {
        Some(second) => format!("one was hot after {second} s"),
        None => "none was hot".to_owned(),
    };
    let moved =
        format!("{initial:.2} times at the start, {:.2} at the end", summary.node_max_over_mean);
    let cuts = summary.last.splits_load;
    vec![
        Claim::judged(
            &format!(
                "{name}: leaders move until no node has more than {NODE_MAX} times the mean load"
            ),
            moved,
            initial > NODE_MAX && summary.node_max_over_mean <= NODE_MAX,
        ),
        Claim::judged(
            &format!("{name}: no partition is hot, and none is split"),
            format!("{hot}, {cuts} splits"),
            summary.t_detect_s.is_none() && cuts == 0,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use partita_proto::history::Cause;
    use partita_proto::load::ShownReason;

    use super::*;
    use crate::claim::Verdict;

    fn verdicts(judged: &Judged<'_>) -> Vec<Verdict> {
        claims(judged).iter().map(|claim| claim.verdict).collect()
    }

    fn summary() -> Summary {
        Summary::of_seconds(&[], partita_hotspot::metrics::Told::default())
    }

    fn judged<'a>(shows: Shows, summary: &'a Summary, reshaped: &'a [Reshaped]) -> Judged<'a> {
        Judged {
            name: "it",
            shows,
            summary,
            seconds: &[],
            splits_at: &[12],
            reshaped,
            advice_ran: None,
        }
    }

    fn cut(key: &str, in_vain: Option<bool>, stall_ms: f64) -> Reshaped {
        Reshaped {
            is_merge: false,
            why: ShownReason { cause: Some(Cause::Load), note: String::new() },
            key: key.to_owned(),
            in_vain,
            actual_share: in_vain.map(|vain| if vain { 0.95 } else { 0.52 }),
            stall_ms: Some(stall_ms),
            took_ms: Some(300.0),
            relief_ms: Some(700.0),
        }
    }

    use Verdict::{Fails, Holds, Open};

    #[test]
    fn a_hotspot_is_to_be_one_named_soon_left_alone_and_told_what_helps() {
        let ran = Ok("ALTER TABLE t".to_owned());
        let good = Summary { n_eff: 1.01, t_verdict_s: Some(12), ..summary() };
        let run = judged(Shows::OneHotspot, &good, &[]);
        assert_eq!(
            verdicts(&Judged { advice_ran: Some(&ran), ..run }),
            [Holds, Holds, Holds, Holds]
        );
        let refused = Err("no such column".to_owned());
        let bad =
            Summary { n_eff: 2.0, t_verdict_s: Some(21), load_splits_after_moving: 1, ..summary() };
        let run = Judged { advice_ran: Some(&refused), ..judged(Shows::OneHotspot, &bad, &[]) };
        assert_eq!(verdicts(&run), [Fails, Fails, Fails, Fails]);
        let silent = summary();
        assert_eq!(verdicts(&judged(Shows::OneHotspot, &silent, &[]))[1], Fails);
    }

    /// Seconds in which these numbers of 100 rows were served.
    fn served(rows: &[f64]) -> Vec<Second> {
        let second = |(number, served): (u64, &f64)| Second {
            second: number,
            offered: 100.0,
            served: *served,
            ..Second::default()
        };
        (1..).zip(rows).map(second).collect()
    }

    #[test]
    fn a_cure_is_judged_from_the_verdict_on_and_by_what_stays() {
        let lumps = [[90.0, 101.0]; 60].concat();
        let late = [vec![30.0; 60], lumps.clone()].concat();
        let too_late = [vec![30.0; 80], lumps.clone()].concat();
        let relapse = [lumps.clone(), vec![30.0; 60]].concat();
        let summary = Summary { t_verdict_s: Some(2), ..summary() };
        for (rows, verdict) in
            [(lumps, Holds), (late, Holds), (too_late, Fails), (relapse, Fails), (vec![], Fails)]
        {
            let seconds = served(&rows);
            let judged = Judged { seconds: &seconds, ..judged(Shows::Cure, &summary, &[]) };
            assert_eq!(verdicts(&judged), [verdict], "{:?}", claims(&judged));
        }
        let silent = Summary { t_verdict_s: None, ..summary };
        assert_eq!(verdicts(&judged(Shows::Cure, &silent, &[])), [Fails]);
    }

    #[test]
    fn cuts_of_a_load_that_stays_are_judged_by_what_their_children_got() {
        let good = Summary { t_verdict_s: Some(11), served_share: 0.99, ..summary() };
        let cuts = [cut("a", Some(false), 10.0), cut("b", None, 20.0)];
        assert_eq!(verdicts(&judged(Shows::StaticLoad, &good, &cuts)), [Holds; 4]);
        let cuts = [cut("a", Some(true), 10.0), cut("b", Some(false), 60.0)];
        let late = Summary { t_verdict_s: Some(8), served_share: 0.5, ..summary() };
        assert_eq!(verdicts(&judged(Shows::StaticLoad, &late, &cuts)), [Fails; 4]);
        let unseen = Judged { splits_at: &[9], ..judged(Shows::StaticLoad, &good, &cuts) };
        assert_eq!(verdicts(&unseen)[0], Holds, "it was cut before its verdict was seen");
        let slow = [Reshaped { relief_ms: Some(2_100.0), ..cut("a", Some(false), 10.0) }];
        assert_eq!(verdicts(&Judged { reshaped: &slow, ..unseen })[0], Fails);
        let stayed = [Reshaped { relief_ms: None, ..cut("a", Some(false), 10.0) }];
        assert_eq!(verdicts(&judged(Shows::StaticLoad, &good, &stayed))[0], Open);
        let none = Judged { splits_at: &[], ..judged(Shows::StaticLoad, &good, &[]) };
        assert_eq!(verdicts(&none), [Open, Holds, Open, Open]);
    }

    #[test]
    fn what_was_cut_and_merged_again_is_a_flap_and_another_merge_is_none() {
        let merge = |key: &str| Reshaped { is_merge: true, in_vain: None, ..cut(key, None, 1.0) };
        let summary = summary();
        let days = |events: &[Reshaped]| verdicts(&judged(Shows::Days, &summary, events))[0];
        assert_eq!(days(&[cut("a", None, 1.0), merge("b")]), Holds);
        assert_eq!(days(&[cut("a", None, 1.0), merge("a")]), Fails);
        assert_eq!(days(&[]), Holds);
    }

    #[test]
    fn a_lukewarm_node_is_relieved_by_its_leaders_alone() {
        let seconds = |node_max_over_mean| [Second { node_max_over_mean, ..Second::default() }];
        let moved = Summary { node_max_over_mean: 1.1, ..summary() };
        let (skewed, even) = (seconds(3.0), seconds(1.0));
        let node = judged(Shows::LukewarmNode, &moved, &[]);
        assert_eq!(verdicts(&Judged { seconds: &skewed, ..node }), [Holds, Holds]);
        let node = judged(Shows::LukewarmNode, &moved, &[]);
        assert_eq!(verdicts(&Judged { seconds: &even, ..node }), [Fails, Holds], "it never was");
        let mut cut = Summary { node_max_over_mean: 2.0, t_detect_s: Some(9), ..summary() };
        cut.last.splits_load = 1;
        let node = judged(Shows::LukewarmNode, &cut, &[]);
        assert_eq!(verdicts(&Judged { seconds: &skewed, ..node }), [Fails, Fails]);
    }
}

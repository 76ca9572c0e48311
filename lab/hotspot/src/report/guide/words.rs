//! Sentences of a guide about runs.
//!
//! Invariants: pure; a sentence appears only if the run's own figures support it, with figures of the run. A class
//! that the detector did not name is never mentioned.

use super::super::shown::Shown;
use super::Guided;
use crate::metrics::{Second, Summary};
use crate::workload::Design;

/// Text about all runs.
pub(super) const WRITTEN: &str = "Every run has tables of its own, and all runs of a workload are given the same rows at the same times: what differs is the key, and with it where rows lie.";
/// Explanation of the figures.
pub(super) const FIGURES: &str = "**served** is what was done of what was asked for. **N_eff** says over how many equally busy partitions the load would be as concentrated as it is: 1 where one bears it all, as many as there are where all bear the same. **busiest** is the share of the busiest partition. Latency counts from when a statement was due, not from when it was sent: where the store is behind, waiting is part of it. **verdict** is what the store itself said of its busiest partition.";
/// Explanation of the last picture.
pub(super) const TRADE_OFF: &str = "Further up more partitions take part in writing; further to the right more of them have to be asked for the rows of one. Up and to the left is where a key should be.";

/// Share of its partitions from which a table's load counts as even.
const EVEN: f64 = 0.9;
/// Maximum N_eff at which one partition does all the work.
const ONE: f64 = 1.5;
/// Served share from which all demand counts as served, apart from chance.
const ALL: f64 = 0.99;
const NEARLY_ALL: f64 = 0.95;
/// Served share above which earlier requests must have waited.
const MORE: f64 = 1.02;
/// Latency counts as grown if the last fifth of a run has this multiple of the fifth before, and more than a
/// second.
const GROWS: f64 = 1.15;
const GROWS_MS: f64 = 1_000.0;

/// Distribution of load over partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spread {
    /// There is one partition only.
    Alone,
    /// One of several has nearly all load.
    One,
    Even,
    Uneven,
}

#[expect(clippy::cast_precision_loss, reason = "partitions of a table")]
fn spread(summary: &Summary) -> Spread {
    match summary.partitions {
        0 | 1 => Spread::Alone,
        _ if summary.n_eff <= ONE => Spread::One,
        all if summary.n_eff >= EVEN * all as f64 => Spread::Even,
        _ => Spread::Uneven,
    }
}

/// Explanation of a class.
fn meaning(class: &str) -> &'static str {
    match class {
        "MOVING_RIGHT" => {
            "each new key is above those before, so that wherever the table is cut, all that is new lies on one side"
        }
        "MOVING_LEFT" => {
            "each new key is below those before, so that wherever the table is cut, all that is new lies on one side"
        }
        "HOT_KEY" => "one key has most of the load, and no cut divides a key",
        "STATIC_RANGE" => "the load lies where it lay before, so that a cut divides it",
        "MULTI_TAIL" => {
            "many series grow, each at its own end, so that a cut between them divides the load"
        }
        "SWEEP" => "writers pass through the keys in order, and will be elsewhere soon",
        "SCAN_BOUND" => "reads of whole ranges are what keeps it busy",
        "UNSPLITTABLE" => "no cut was found that would divide the load",
        _ => "nothing more is known of it",
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        count => format!("{count} times"),
    }
}

/// Instructions for reading the pictures, with examples among these runs.
pub(super) fn legend(runs: &[Guided<'_>]) -> Vec<String> {
    let names = |wanted: &dyn Fn(&Shown) -> bool| {
        let named = runs.iter().filter(|run| !run.shown.pictures.is_empty() && wanted(run.shown));
        named
            .map(|run| format!("[{0}](#{1})", run.shown.name, anchor(&run.shown.name)))
            .collect::<Vec<_>>()
    };
    let said =
        |class: &'static str| move |shown: &Shown| shown.summary.verdicts.contains_key(class);
    let even = |shown: &Shown| spread(&shown.summary) == Spread::Even;
    let marked = |shown: &Shown| {
        let last = &shown.summary.last;
        last.splits_load
            + last.splits_isolate
            + last.splits_size
            + last.merges
            + last.moves
            + last.transfers
            > 0
    };
    // What every picture has in common.
    let mut lines = vec![
        "Time runs from left to right. Keys ascend from the bottom to the top: a point of the picture is a range of keys at a moment. Thin level lines are where partitions begin; the bars to the right are what each partition did at the end, and which node led it.".to_owned(),
        "The more a colour stands out from the ground, the more was written to those keys: dark on a light page, bright on a dark one. The scale below a picture says what the strongest colour stands for.".to_owned(),
    ];
    // Each shape with the runs in which it can be seen; a shape without a run is left out.
    let shapes = [
        (
            names(&said("MOVING_RIGHT")),
            "**A line that climbs** is a key that only grows. At any moment all that comes lies in one place, which one partition has, and a moment later just above it. Cutting the table leaves the whole line on one side of the cut.",
        ),
        (
            names(&said("MOVING_LEFT")),
            "**A line that falls** is a key that only shrinks: the same, at the lower end.",
        ),
        (
            names(&said("HOT_KEY")),
            "**A thin level line** that stands out from everything else is one key, or a few, with most of the load. A cut moves it into another partition and divides nothing.",
        ),
        (
            names(&even),
            "**Stripes over the whole height, about as strong everywhere**, are a load that lies everywhere alike, and stays there: at any moment each partition has its part of it. The grain in them is that of samples: a fainter stripe is keys of which few were among those that were looked at.",
        ),
        (
            names(&|shown: &Shown| shown.summary.verdict().is_some()),
            "**A frame with a word in it** is where, and from when on, the store said what it makes of the load.",
        ),
        (
            names(&marked),
            "**Small signs** are what the store did about it: a diamond where it cut a partition, a square where it put two together, an arrow where a replica moved, a triangle where another node took the lead.",
        ),
    ];
    for (names, text) in shapes {
        if !names.is_empty() {
            lines.push(format!("{text} To be seen in {}.", names.join(", ")));
        }
    }
    lines
}

/// Anchor of a heading, as code hosts generate it.
fn anchor(name: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || ['-', '_', ' '].contains(c);
    name.to_lowercase().chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Reason why a design spreads rows evenly.
fn because(design: Option<Design>, rekeyed: bool) -> &'static str {
    match design {
        Some(Design::UidTs) => {
            "whose row it is leads the key, and there are so many of them, none much busier than the next, that each range of them writes as much as another"
        }
        Some(Design::HashUid) => "a hash of whose row it is deals them out over the partitions",
        Some(Design::HashAll) => "a hash of the whole key deals out every single row",
        Some(Design::TsUidAuto) if rekeyed => {
            "new rows are dealt out by a hash of whose they are, though the time still leads the key of the rows from before"
        }
        _ => "no range of keys is written more than another",
    }
}

/// Description of a run's pictures.
pub(super) fn seen(shown: &Shown, design: Option<Design>) -> Vec<String> {
    let summary = &shown.summary;
    let (class, spread) = (summary.verdict(), spread(summary));
    let mut lines = Vec::new();
    // What moves, or stands out.
    match (class, summary.rekeyed) {
        (Some(class @ ("MOVING_RIGHT" | "MOVING_LEFT")), rekeyed) => {
            let (moves, end) =
                if class == "MOVING_RIGHT" { ("climbs", "highest") } else { ("falls", "lowest") };
            let until = match rekeyed {
                Some((at, _)) => {
                    format!(" until {at} s after the begin, when new rows went elsewhere,")
                }
                None if spread == Spread::One => " from the first second to the last".to_owned(),
                None => String::new(),
            };
            lines.push(format!(
                "The line that {moves}{until} is what is newest: it has the {end} keys, and so one partition takes all of it."
            ));
        }
        (Some("HOT_KEY"), _) => {
            lines.push("What stands out is one key, whose rows no cut divides.".to_owned());
        }
        _ => {}
    }
    // A repartition, then the distribution.
    if let Some((_, buckets)) = summary.rekeyed {
        let second =
            if shown.pictures.len() > 1 { "The second picture is" } else { "From then on it is" };
        lines.push(format!(
            "{second} of where new rows went: {buckets} partitions, each with a range of a hash."
        ));
    }
    if spread == Spread::Even {
        lines.push(format!(
            "The stripes are even because {}.",
            because(design, summary.rekeyed.is_some())
        ));
    }
    if spread == Spread::Uneven && class.is_none() {
        lines.push("The stronger stripes are keys that are written more than others.".to_owned());
    }
    lines
}

/// Mean of the median latencies in a fifth of a run.
#[expect(clippy::cast_precision_loss, reason = "seconds of a run")]
fn fifth_p50(seconds: &[Second], fifth: usize) -> f64 {
    let of = &seconds[seconds.len() * fifth / 5..seconds.len() * (fifth + 1) / 5];
    of.iter().map(|second| second.p50_ms).sum::<f64>() / of.len().max(1) as f64
}

fn grows(seconds: &[Second]) -> bool {
    let (before, last) = (fifth_p50(seconds, 3), fifth_p50(seconds, 4));
    last > GROWS_MS && last > GROWS * before
}

fn served(summary: &Summary) -> String {
    let (share, rows) = (summary.served_share, summary.served_rows);
    let rejected = match summary.last.rejected {
        0 => String::new(),
        _ => " Some statements were turned away, and sent again.".to_owned(),
    };
    let said = match share {
        MORE.. => format!(
            "{} of what was asked for was served at the end, {rows:.0} a second: what had waited came through as well.",
            percent(share)
        ),
        ALL.. => format!("All that was asked for was served, {rows:.0} a second."),
        NEARLY_ALL.. => {
            format!("{} of what was asked for was served, {rows:.0} a second.", percent(share))
        }
        _ => format!(
            "Only {} of what was asked for was served, {rows:.0} a second; the rest waits, and goes on waiting.",
            percent(share)
        ),
    };
    said + &rejected
}

fn bears(summary: &Summary) -> String {
    let (n_eff, all) = (summary.n_eff, summary.partitions);
    let busiest = percent(summary.max_share);
    match spread(summary) {
        Spread::Alone => "The table has one partition, which bears all there is.".to_owned(),
        Spread::One => format!(
            "One of {all} partitions does the work: the busiest has {busiest} of it, N_eff is {n_eff:.1}. The others, and the nodes that lead them, look on."
        ),
        Spread::Even => format!(
            "All {all} partitions work: N_eff is {n_eff:.1}, and the busiest has {busiest}."
        ),
        Spread::Uneven => format!(
            "N_eff is {n_eff:.1} of {all} partitions, and the busiest has {busiest} of the load."
        ),
    }
}

fn waits(shown: &Shown) -> String {
    let summary = &shown.summary;
    let measured = if summary.latency == "measured" { "" } else { " (estimated)" };
    let grows = if grows(&shown.seconds) { ", and growing by the second" } else { "" };
    format!(
        "Half of the statements of the last fifth were answered within {:.0} ms{grows}, 99 of 100 within {:.0} ms{measured}.",
        summary.p50_ms, summary.p99_ms
    )
}

fn said(summary: &Summary) -> String {
    let hot = summary.t_detect_s.map(|at| format!("After {at} s a partition was hot"));
    match (hot, summary.verdict(), summary.t_verdict_s) {
        (Some(hot), Some(class), Some(at)) => {
            format!("{hot}, and after {at} s the store said why, {class}: {}.", meaning(class))
        }
        (None, Some(class), Some(at)) => {
            format!("After {at} s the store said {class}: {}.", meaning(class))
        }
        (Some(hot), ..) => format!("{hot}; why, the store did not say."),
        (None, ..) => "No partition was hot, and the store had nothing to say.".to_owned(),
    }
}

fn cuts(summary: &Summary) -> Option<String> {
    let last = &summary.last;
    let count = last.splits_load + last.splits_isolate;
    let moving = ["MOVING_RIGHT", "MOVING_LEFT"];
    if count > 0 {
        let vain = match last.splits_in_vain {
            0 => "none of them in vain".to_owned(),
            vain => format!("{vain} of them in vain"),
        };
        return Some(format!("It was cut {} because of load, {vain}.", times(count)));
    }
    let useless = summary.verdicts.keys().any(|class| moving.contains(class));
    useless.then(|| "It was not cut because of load: that would have divided nothing.".to_owned())
}

/// Description of a run's figures.
pub(super) fn found(shown: &Shown, entity: Option<&str>) -> Vec<String> {
    let summary = &shown.summary;
    let mut lines = vec![served(summary), bears(summary), waits(shown), said(summary)];
    lines.extend(cuts(summary));
    if let Some((at, partitions)) = summary.rekeyed {
        lines.push(format!(
            "After {at} s the store placed new rows by hash, over {partitions} partitions, without being asked. Nothing was copied: rows from before are read where they are."
        ));
    }
    if let Some(fan_out) = &summary.fan_out {
        let whose = entity
            .map_or_else(|| "one's rows".to_owned(), |name| format!("the rows of one `{name}`"));
        let before =
            if summary.rekeyed.is_some() { ", counting those with rows from before" } else { "" };
        lines.push(format!(
            "A query for {whose} asks {:.1} partitions{before}; one for the last five minutes of all {:.1}.",
            fan_out.mean[0], fan_out.mean[1]
        ));
    }
    lines
}

/// Comparison of the runs.
pub(super) fn sums(runs: &[Guided<'_>]) -> Vec<String> {
    let list = |wanted: &dyn Fn(&Summary) -> bool| {
        let named = runs.iter().filter(|run| wanted(&run.shown.summary));
        named.map(|run| format!("`{}`", run.shown.name)).collect::<Vec<_>>().join(", ")
    };
    let mut lines = Vec::new();
    // Which runs kept up, and which did by a repartition.
    let behind = list(&|own| own.served_share < NEARLY_ALL);
    if !behind.is_empty() {
        lines.push(format!("Behind what was asked for: {behind}."));
    }
    let kept = list(&|own| own.served_share >= NEARLY_ALL);
    if !kept.is_empty() {
        lines.push(format!("Kept up with it: {kept}."));
    }
    let cured = list(&|own| own.rekeyed.is_some() && own.served_share >= NEARLY_ALL);
    if !cured.is_empty() {
        lines.push(format!("Cured itself on the way: {cured}."));
    }
    // Of the runs that kept up, the ones with the cheapest reads.
    let reads = |own: &Summary| own.fan_out.as_ref().map(|fan_out| fan_out.mean[0]);
    let able =
        runs.iter().map(|run| &run.shown.summary).filter(|own| own.served_share >= NEARLY_ALL);
    let cheapest = able.filter_map(reads).fold(f64::INFINITY, f64::min);
    if cheapest.is_finite() {
        let best = list(&|own| {
            own.served_share >= NEARLY_ALL
                && reads(own).is_some_and(|reads| reads < cheapest + 0.05)
        });
        lines.push(format!(
            "Of those that kept up, the rows of one are cheapest to read in {best}: {cheapest:.1} {} asked.",
            if cheapest < 1.05 { "partition is" } else { "partitions are" }
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::metrics::Told;

    fn summary(n_eff: f64, partitions: usize, served_share: f64) -> Summary {
        let own =
            Summary::of_seconds(&[], Told { policy: "ours", measured: true, ..Told::default() });
        Summary { n_eff, partitions, served_share, ..own }
    }

    fn shown(summary: Summary) -> Shown {
        Shown {
            name: "one".to_owned(),
            about: String::new(),
            seconds: Vec::new(),
            summary,
            pictures: vec![[String::new(), String::new()]],
            findings: Vec::new(),
            advice: Vec::new(),
            note: String::new(),
        }
    }

    fn with_verdict(own: Summary, class: &'static str) -> Summary {
        Summary {
            verdicts: BTreeMap::from([(class, 1)]),
            t_verdict_s: Some(12),
            t_detect_s: Some(9),
            ..own
        }
    }

    #[test]
    fn load_is_called_what_its_n_eff_says() {
        let spreads = [(1.0, 1), (1.0, 8), (1.5, 8), (4.0, 8), (7.2, 8), (8.0, 8), (1.6, 2)]
            .map(|(n_eff, partitions)| spread(&summary(n_eff, partitions, 1.0)));
        use Spread::{Alone, Even, One, Uneven};
        assert_eq!(spreads, [Alone, One, One, Uneven, Even, Even, Uneven]);
        assert!(bears(&summary(1.0, 8, 0.3)).starts_with("One of 8 partitions"));
        assert!(bears(&summary(8.0, 8, 0.3)).starts_with("All 8 partitions work: N_eff is 8.0"));
    }

    #[test]
    fn what_was_served_is_told_as_it_was() {
        let told = |share| served(&summary(1.0, 8, share));
        assert!(
            told(0.333).starts_with("Only 33 % of what was asked for was served"),
            "{}",
            told(0.333)
        );
        assert!(told(0.96).starts_with("96 % of"), "{}", told(0.96));
        assert!(told(1.0).starts_with("All that was asked for"), "{}", told(1.0));
        assert!(
            told(1.5).starts_with("150 % of") && told(1.5).contains("had waited"),
            "{}",
            told(1.5)
        );
    }

    #[test]
    fn only_the_class_that_was_named_is_named() {
        let classes = ["MOVING_RIGHT", "MOVING_LEFT", "HOT_KEY", "SWEEP", "UNSPLITTABLE"];
        for class in classes {
            let own = shown(with_verdict(summary(1.0, 8, 0.3), class));
            let all =
                [seen(&own, Some(Design::TsUid)), found(&own, Some("userid"))].concat().join(" ");
            assert!(all.contains(&format!("after 12 s the store said why, {class}: ")), "{all}");
            for other in classes.iter().filter(|other| **other != class) {
                assert!(!all.contains(other), "{class}: {all}");
            }
            assert_eq!(all.contains("The line that climbs"), class == "MOVING_RIGHT", "{all}");
            assert_eq!(all.contains("The line that falls"), class == "MOVING_LEFT", "{all}");
            assert_eq!(all.contains("divided nothing"), class.starts_with("MOVING"), "{all}");
        }
        let calm = shown(summary(8.0, 8, 1.0));
        let all = [seen(&calm, Some(Design::HashUid)), found(&calm, None)].concat().join(" ");
        assert!(
            all.contains("No partition was hot") && all.contains("a hash of whose row"),
            "{all}"
        );
        assert!(!all.contains("line"), "{all}");
    }

    #[test]
    fn a_cure_is_told_only_where_there_was_one() {
        let ill = shown(with_verdict(summary(1.0, 8, 0.3), "MOVING_RIGHT"));
        let well = with_verdict(summary(6.0, 6, 1.2), "MOVING_RIGHT");
        let mut well = shown(Summary { rekeyed: Some((44, 6)), ..well });
        well.pictures.push([String::new(), String::new()]);
        let told = |own: &Shown| seen(own, Some(Design::TsUidAuto)).join(" ");
        assert!(told(&ill).contains("climbs from the first second to the last"), "{}", told(&ill));
        assert!(!told(&ill).contains("second picture"), "{}", told(&ill));
        assert!(told(&well).contains("climbs until 44 s after the begin"), "{}", told(&well));
        assert!(told(&well).contains("The second picture is of where new rows went: 6 partitions"));
        assert!(told(&well).contains("even because new rows are dealt out"), "{}", told(&well));
        let guided = |shown| Guided { shown, slug: "a", design: None, entity: None, created: &[] };
        let all = sums(&[guided(&ill), guided(&well)]).join(" ");
        assert!(all.contains("Cured itself on the way: `one`."), "{all}");
        assert!(!sums(&[guided(&ill)]).join(" ").contains("Cured"));
    }

    #[test]
    fn latency_grows_where_the_end_is_worse_than_what_came_before_it() {
        let seconds = |p50: fn(u32) -> f64| -> Vec<Second> {
            let of = |at| Second { p50_ms: p50(at), ..Second::default() };
            (0..60).map(of).collect()
        };
        assert!(grows(&seconds(|at| f64::from(at) * 600.0)));
        assert!(!grows(&seconds(|_| 30_000.0)));
        assert!(!grows(&seconds(f64::from)), "a few milliseconds more are nothing");
        assert!(!grows(&seconds(|at| 60_000.0 - f64::from(at) * 900.0)));
        assert!(!grows(&[]));
    }

    #[test]
    fn headings_have_the_anchors_that_code_hosts_give_them() {
        assert_eq!(anchor("ts-uid"), "ts-uid");
        assert_eq!(anchor("W4:home ts-uid"), "w4home-ts-uid");
    }
}

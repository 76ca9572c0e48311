//! Sentences of a guide about runs.
//!
//! Invariants: pure; a sentence appears only if the run's own figures support it, with figures of the run. A class
//! that the detector did not name is never mentioned.

use partita_load::Class;

use super::super::shown::Shown;
use super::Guided;
use crate::metrics::{Second, Summary};
use crate::workload::Design;

/// Text about all runs.
pub(super) const WRITTEN: &str = "Every run has tables of its own, and all runs of a workload get the same rows at the same times; only the key differs, and with it the placement of the rows.";
/// Explanation of the figures.
pub(super) const FIGURES: &str = "**served** is the served share of the demand. **N_eff** is the effective number of partitions: that many equally busy partitions would have the same concentration of load (1 if one partition has all of it, the number of partitions if all have the same). **busiest** is the share of the busiest partition. Latency counts from the time at which a statement was due, not from when it was sent, so it includes waiting for a store that is behind. **verdict** is the store's own verdict on its busiest partition.";
/// Explanation of the last picture.
pub(super) const TRADE_OFF: &str = "Further up, more partitions take part in writing; further to the right, a read of one entity touches more partitions. The best keys are at the upper left.";

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
        count if summary.n_eff >= EVEN * count as f64 => Spread::Even,
        _ => Spread::Uneven,
    }
}

/// Explanation of a class.
fn meaning(class: Class) -> &'static str {
    match class {
        Class::MovingRight => {
            "each new key is above all earlier ones, so wherever the table is split, all new rows are on one side"
        }
        Class::MovingLeft => {
            "each new key is below all earlier ones, so wherever the table is split, all new rows are on one side"
        }
        Class::HotKey => "one key has most of the load, and no split divides a key",
        Class::StaticRange => "the load stays where it is, so a split divides it",
        Class::MultiTail => {
            "many series grow, each at its own end, so a split between them divides the load"
        }
        Class::MovingWithin => {
            "new keys go between two existing ones and move on there, so a split helps only until they have passed it"
        }
        Class::Rotating => {
            "a few keys have all load at a time, and others soon after, so a split divides nothing for long"
        }
        Class::Sweep => "writers pass through the keys in order and will soon be elsewhere",
        Class::ScanBound => "reads of whole ranges keep it busy",
        Class::Unsplittable => "no split was found that would divide the load",
        Class::ReadHot => "a few keys have most of the reads, and no split divides them",
        Class::Unknown => "nothing more is known about it",
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
    let names = |matches: &dyn Fn(&Shown) -> bool| {
        let matching =
            runs.iter().filter(|run| !run.shown.pictures.is_empty() && matches(run.shown));
        matching
            .map(|run| format!("[{0}](#{1})", run.shown.name, anchor(&run.shown.name)))
            .collect::<Vec<_>>()
    };
    let has_class = |class: Class| move |run: &Shown| run.summary.verdicts.contains_key(&class);
    let even = |run: &Shown| spread(&run.summary) == Spread::Even;
    let marked = |run: &Shown| {
        let last = &run.summary.last;
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
        "Time runs from left to right, and keys ascend from the bottom to the top: a point of the picture is a range of keys at a moment. Thin horizontal lines are the starts of partitions; the bars to the right show the load of each partition at the end, and the node of its leader.".to_owned(),
        "The more a colour stands out from the background, the more was written to those keys: dark on a light page, bright on a dark one. The scale below a picture gives the meaning of the strongest colour.".to_owned(),
    ];
    // Each shape with the runs in which it can be seen; a shape without a run is left out.
    let shapes = [
        (
            names(&has_class(Class::MovingRight)),
            "**A line that climbs** is a key that only grows: at any moment all new rows are in one place, in one partition, and a moment later just above it. A split leaves the whole line on one side.",
        ),
        (
            names(&has_class(Class::MovingLeft)),
            "**A line that falls** is a key that only shrinks: the same at the lower end.",
        ),
        (
            names(&has_class(Class::HotKey)),
            "**A thin horizontal line** that stands out from everything else is one key, or a few, with most of the load. A split moves it into another partition and divides nothing.",
        ),
        (
            names(&even),
            "**Stripes over the whole height, about as strong everywhere**, are an even load that stays even: at any moment each partition has its share of it. The grain comes from sampling: fainter stripes are keys with few samples.",
        ),
        (
            names(&|run: &Shown| run.summary.verdict().is_some()),
            "**A frame with a word in it** is a verdict of the store, with its keys, its time and its class.",
        ),
        (
            names(&marked),
            "**Small signs** are actions of the store: a diamond for a split, a square for a merge, an arrow for a move of a replica, a triangle for a transfer of a leader.",
        ),
    ];
    for (names, text) in shapes {
        if !names.is_empty() {
            lines.push(format!("{text} Examples: {}.", names.join(", ")));
        }
    }
    lines
}

/// Anchor of a heading, as code hosts generate it.
fn anchor(name: &str) -> String {
    let is_kept = |c: &char| c.is_alphanumeric() || ['-', '_', ' '].contains(c);
    name.to_lowercase().chars().filter(is_kept).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Reason why a design spreads rows evenly.
fn because(design: Option<Design>, rekeyed: bool) -> &'static str {
    match design {
        Some(Design::UidTs) => {
            "the key begins with the entity, and there are many entities of similar activity, so each range of them has about the same load"
        }
        Some(Design::HashUid) => "a hash of the entity distributes the rows over the partitions",
        Some(Design::HashAll) => "a hash of the whole key distributes every row",
        Some(Design::TsUidAuto) if rekeyed => {
            "new rows are placed by a hash of the entity, although the key of earlier rows begins with the time"
        }
        _ => "no range of keys gets more writes than another",
    }
}

/// Description of a run's pictures.
pub(super) fn seen(run: &Shown, design: Option<Design>) -> Vec<String> {
    let summary = &run.summary;
    let (class, spread) = (summary.verdict(), spread(summary));
    let mut lines = Vec::new();
    // What moves, or stands out.
    match (class, summary.rekeyed) {
        (Some(class @ (Class::MovingRight | Class::MovingLeft)), rekeyed) => {
            let (moves, end) = match class {
                Class::MovingRight => ("climbs", "highest"),
                _ => ("falls", "lowest"),
            };
            let period = match rekeyed {
                Some((second, _)) => {
                    format!(
                        " until {second} s after the start, when new rows were placed elsewhere,"
                    )
                }
                None if spread == Spread::One => " from the first second to the last".to_owned(),
                None => String::new(),
            };
            lines.push(format!(
                "The line that {moves}{period} is the newest rows: they have the {end} keys, so one partition takes all of them."
            ));
        }
        (Some(Class::HotKey), _) => {
            lines.push("The line that stands out is one key, which no split divides.".to_owned());
        }
        _ => {}
    }
    // A repartition, then the distribution.
    if let Some((_, buckets)) = summary.rekeyed {
        let second = if run.pictures.len() > 1 {
            "The second picture shows"
        } else {
            "From then on it shows"
        };
        lines.push(format!(
            "{second} the new placement: {buckets} partitions, each with a range of hash values."
        ));
    }
    if spread == Spread::Even {
        lines.push(format!(
            "The stripes are even because {}.",
            because(design, summary.rekeyed.is_some())
        ));
    }
    if spread == Spread::Uneven && class.is_none() {
        lines.push("Stronger stripes are keys with more writes than others.".to_owned());
    }
    lines
}

/// Mean of the median latencies in a fifth of a run.
#[expect(clippy::cast_precision_loss, reason = "seconds of a run")]
fn fifth_p50(seconds: &[Second], fifth: usize) -> f64 {
    let part = &seconds[seconds.len() * fifth / 5..seconds.len() * (fifth + 1) / 5];
    part.iter().map(|second| second.p50_ms).sum::<f64>() / part.len().max(1) as f64
}

fn grows(seconds: &[Second]) -> bool {
    let (previous, last) = (fifth_p50(seconds, 3), fifth_p50(seconds, 4));
    last > GROWS_MS && last > GROWS * previous
}

fn served(summary: &Summary) -> String {
    let (share, rows) = (summary.served_share, summary.served_rows);
    let rejected = match summary.last.rejected {
        0 => String::new(),
        _ => " Some statements were rejected and retried.".to_owned(),
    };
    let sentence = match share {
        MORE.. => format!(
            "{} of the demand was served at the end, {rows:.0} rows/s, including rows that had waited.",
            percent(share)
        ),
        ALL.. => format!("The whole demand was served, {rows:.0} rows/s."),
        NEARLY_ALL.. => {
            format!("{} of the demand was served, {rows:.0} rows/s.", percent(share))
        }
        _ => format!(
            "Only {} of the demand was served, {rows:.0} rows/s; the rest keeps waiting.",
            percent(share)
        ),
    };
    sentence + &rejected
}

fn bears(summary: &Summary) -> String {
    let (n_eff, count) = (summary.n_eff, summary.partitions);
    let busiest = percent(summary.max_share);
    match spread(summary) {
        Spread::Alone => "The table has one partition, which has the whole load.".to_owned(),
        Spread::One => format!(
            "One of {count} partitions does the work: the busiest has {busiest} of the load, N_eff is {n_eff:.1}. The others and their leaders are idle."
        ),
        Spread::Even => format!(
            "All {count} partitions work: N_eff is {n_eff:.1}, and the busiest has {busiest}."
        ),
        Spread::Uneven => format!(
            "N_eff is {n_eff:.1} of {count} partitions, and the busiest has {busiest} of the load."
        ),
    }
}

fn waits(run: &Shown) -> String {
    let summary = &run.summary;
    let measured = if summary.latency == "measured" { "" } else { " (estimated)" };
    let grows = if grows(&run.seconds) { " (rising)" } else { "" };
    format!(
        "Half of the statements in the last fifth were answered within {:.0} ms{grows}, 99 % within {:.0} ms{measured}.",
        summary.p50_ms, summary.p99_ms
    )
}

fn said(summary: &Summary) -> String {
    let hot = summary.t_detect_s.map(|second| format!("After {second} s a partition was hot"));
    match (hot, summary.verdict(), summary.t_verdict_s) {
        (Some(hot), Some(class), Some(second)) => {
            format!("{hot}; after {second} s the verdict was {class}: {}.", meaning(class))
        }
        (None, Some(class), Some(second)) => {
            format!("After {second} s the verdict was {class}: {}.", meaning(class))
        }
        (Some(hot), ..) => format!("{hot}, and the store gave no verdict."),
        (None, ..) => "No partition was hot, and the store gave no verdict.".to_owned(),
    }
}

fn cuts(summary: &Summary) -> Option<String> {
    let last = &summary.last;
    let count = last.splits_load + last.splits_isolate;
    if count > 0 {
        let vain = match last.splits_in_vain {
            0 => "none of them in vain".to_owned(),
            vain => format!("{vain} of them in vain"),
        };
        return Some(format!("It was split {} by load, {vain}.", times(count)));
    }
    let useless = summary.verdicts.keys().any(|class| class.is_moving());
    useless.then(|| {
        "It was not split by load, because no split would have divided the load.".to_owned()
    })
}

/// Description of a run's figures.
pub(super) fn found(run: &Shown, entity: Option<&str>) -> Vec<String> {
    let summary = &run.summary;
    let mut lines = vec![served(summary), bears(summary), waits(run), said(summary)];
    lines.extend(cuts(summary));
    if let Some((second, partitions)) = summary.rekeyed {
        lines.push(format!(
            "After {second} s the store placed new rows by hash in {partitions} partitions by itself. Nothing was copied; existing rows are read where they are."
        ));
    }
    if let Some(fan_out) = &summary.fan_out {
        let whose = entity.map_or_else(
            || "the rows of one entity".to_owned(),
            |name| format!("the rows of one `{name}`"),
        );
        let remark =
            if summary.rekeyed.is_some() { ", including those with earlier rows" } else { "" };
        lines.push(format!(
            "A query for {whose} touches {:.1} partitions{remark}; one for the last five minutes touches {:.1}.",
            fan_out.mean[0], fan_out.mean[1]
        ));
    }
    lines
}

/// Comparison of the runs.
pub(super) fn sums(runs: &[Guided<'_>]) -> Vec<String> {
    let list = |matches: &dyn Fn(&Summary) -> bool| {
        let matching = runs.iter().filter(|run| matches(&run.shown.summary));
        matching.map(|run| format!("`{}`", run.shown.name)).collect::<Vec<_>>().join(", ")
    };
    let mut lines = Vec::new();
    // Which runs kept up, and which did by a repartition.
    let late = list(&|summary| summary.served_share < NEARLY_ALL);
    if !late.is_empty() {
        lines.push(format!("Fell behind: {late}."));
    }
    let on_time = list(&|summary| summary.served_share >= NEARLY_ALL);
    if !on_time.is_empty() {
        lines.push(format!("Kept up: {on_time}."));
    }
    let cured = list(&|summary| summary.rekeyed.is_some() && summary.served_share >= NEARLY_ALL);
    if !cured.is_empty() {
        lines.push(format!("Repartitioned itself: {cured}."));
    }
    // Of the runs that kept up, the ones with the cheapest reads.
    let reads = |summary: &Summary| summary.fan_out.as_ref().map(|fan_out| fan_out.mean[0]);
    let able = runs
        .iter()
        .map(|run| &run.shown.summary)
        .filter(|summary| summary.served_share >= NEARLY_ALL);
    let cheapest = able.filter_map(reads).fold(f64::INFINITY, f64::min);
    if cheapest.is_finite() {
        let best = list(&|summary| {
            summary.served_share >= NEARLY_ALL
                && reads(summary).is_some_and(|reads| reads < cheapest + 0.05)
        });
        lines.push(format!(
            "Of those that kept up, reads of one entity are cheapest in {best}: {cheapest:.1} {} touched.",
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
        let empty =
            Summary::of_seconds(&[], Told { policy: "ours", measured: true, ..Told::default() });
        Summary { n_eff, partitions, served_share, ..empty }
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

    fn with_verdict(summary: Summary, class: Class) -> Summary {
        Summary {
            verdicts: BTreeMap::from([(class, 1)]),
            t_verdict_s: Some(12),
            t_detect_s: Some(9),
            ..summary
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
        let text = |share| served(&summary(1.0, 8, share));
        assert!(text(0.333).starts_with("Only 33 % of the demand was served"), "{}", text(0.333));
        assert!(text(0.96).starts_with("96 % of"), "{}", text(0.96));
        assert!(text(1.0).starts_with("The whole demand"), "{}", text(1.0));
        assert!(
            text(1.5).starts_with("150 % of") && text(1.5).contains("had waited"),
            "{}",
            text(1.5)
        );
    }

    #[test]
    fn only_the_class_that_was_named_is_named() {
        let classes = [
            Class::MovingRight,
            Class::MovingLeft,
            Class::HotKey,
            Class::Sweep,
            Class::Unsplittable,
        ];
        for class in classes {
            let run = shown(with_verdict(summary(1.0, 8, 0.3), class));
            let text =
                [seen(&run, Some(Design::TsUid)), found(&run, Some("userid"))].concat().join(" ");
            assert!(text.contains(&format!("after 12 s the verdict was {class}: ")), "{text}");
            for absent in classes.iter().filter(|absent| **absent != class) {
                assert!(!text.contains(absent.name()), "{class}: {text}");
            }
            assert_eq!(
                text.contains("The line that climbs"),
                class == Class::MovingRight,
                "{text}"
            );
            assert_eq!(text.contains("The line that falls"), class == Class::MovingLeft, "{text}");
            assert_eq!(text.contains("would have divided"), class.is_moving(), "{text}");
        }
        let calm = shown(summary(8.0, 8, 1.0));
        let text = [seen(&calm, Some(Design::HashUid)), found(&calm, None)].concat().join(" ");
        assert!(
            text.contains("No partition was hot") && text.contains("a hash of the entity"),
            "{text}"
        );
        assert!(!text.contains("line"), "{text}");
    }

    #[test]
    fn a_cure_is_told_only_where_there_was_one() {
        let ill = shown(with_verdict(summary(1.0, 8, 0.3), Class::MovingRight));
        let well = with_verdict(summary(6.0, 6, 1.2), Class::MovingRight);
        let mut well = shown(Summary { rekeyed: Some((44, 6)), ..well });
        well.pictures.push([String::new(), String::new()]);
        let text = |run: &Shown| seen(run, Some(Design::TsUidAuto)).join(" ");
        assert!(text(&ill).contains("climbs from the first second to the last"), "{}", text(&ill));
        assert!(!text(&ill).contains("second picture"), "{}", text(&ill));
        assert!(text(&well).contains("climbs until 44 s after the start"), "{}", text(&well));
        assert!(text(&well).contains("The second picture shows the new placement: 6 partitions"));
        assert!(
            text(&well).contains("even because new rows are placed by a hash"),
            "{}",
            text(&well)
        );
        let guided =
            |run| Guided { shown: run, slug: "a", design: None, entity: None, created: &[] };
        let text = sums(&[guided(&ill), guided(&well)]).join(" ");
        assert!(text.contains("Repartitioned itself: `one`."), "{text}");
        assert!(!sums(&[guided(&ill)]).join(" ").contains("Repartitioned"));
    }

    #[test]
    fn latency_grows_where_the_end_is_worse_than_what_came_before_it() {
        let seconds = |p50: fn(u32) -> f64| -> Vec<Second> {
            let second = |index| Second { p50_ms: p50(index), ..Second::default() };
            (0..60).map(second).collect()
        };
        assert!(grows(&seconds(|index| f64::from(index) * 600.0)));
        assert!(!grows(&seconds(|_| 30_000.0)));
        assert!(!grows(&seconds(f64::from)), "a few milliseconds more are nothing");
        assert!(!grows(&seconds(|index| 60_000.0 - f64::from(index) * 900.0)));
        assert!(!grows(&[]));
    }

    #[test]
    fn headings_have_the_anchors_that_code_hosts_give_them() {
        assert_eq!(anchor("ts-uid"), "ts-uid");
        assert_eq!(anchor("W4:home ts-uid"), "w4home-ts-uid");
    }
}

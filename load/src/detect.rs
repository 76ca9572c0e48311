//! The verdict on a hot partition: whether a cut would help, and if not, the reason.
//!
//! ```text
//!   sketch ──▶ a window (20 s, longer if that one is not steady) ──▶ features ──▶ the first rule that holds
//! ```
//!
//! 1. Scans that contain even the best cut are half of the load: [`Class::ScanBound`].
//! 2. One instant bears half of the load, and instants come and go: moving.
//! 3. A few keys bear the load of a second, and others that of another one, in no order: [`Class::Rotating`].
//! 4. A cut divides the load, later too: [`Class::StaticRange`], or [`Class::MultiTail`] if keys grow behind it.
//! 5. One key or one series bears half of the load, all along: [`Class::HotKey`]; or [`Class::MovingWithin`] if it is a
//!    shorter part of the key, behind which keys grow.
//! 6. Most keys lie above (below) all before: [`Class::MovingRight`] ([`Class::MovingLeft`]).
//! 7. Half of the load goes to one gap between the keys before, and will not have passed the known keys in ten minutes:
//!    [`Class::MovingWithin`].
//! 8. The load wanders: moving if a good part of it lies beyond all before, otherwise [`Class::Sweep`].
//! 9. What is left: a cut of little gain, scans across every useful cut ([`Class::ScanBound`] again), or
//!    [`Class::Unsplittable`].
//!
//! Invariants: pure. A cut is given for [`Class::StaticRange`] and [`Class::MultiTail`] only. No cut falls inside a
//! series unless that series alone is hot, nor inside an instant, nor inside what is to be kept together.
//!
//! Differences from the first design of these rules, each required by a stream of the matrix:
//! - A load with more than half appends must divide better than others: appended keys go to one side for ever, so 70 %
//!   appends and 30 % backfill are classified correctly, instead of wavering.
//! - A hot key must be hot in both halves: with coarse timestamps every instant is hot in its turn.
//! - A window that is not steady is not judged; longer ones are tried, up to a minute. That covers every period that
//!   has two repetitions in a minute, whether the operations come in bursts or evenly (where only keys tell).
//! - In a load that wanders, a cut may have fair shares in both halves by accident: its sides take turns (a sweep), or
//!   half of the writers lag by as much as the window is long and will cross it. Both are looked for.
//! - A share that drifts is extrapolated over the minute to come (see `features.rs`).
//! - What wanders need not have a clear direction: half of a sweep may lie in each half of the window.
//! - Where keys are appended, a cut is proposed after 40 s only, if its sides do not grow at each other's cost: blocks of
//!   keys that writers take at a time look like places that stay.

use crate::features::{Candidate, Features, HOT_SHARE, Motion, Options};
use crate::front::{KnownEdges, Thirds};
use crate::rows::{Row, Top, rows_of};
use crate::sample::Sketch;
use crate::spots::Spots;
use crate::verdict::{Class, Cut, Evidence, Verdict};

/// Windows in seconds that are tried when the requested one is not steady: their halves are multiples of each whole
/// period up to 12 s, and of 15, 18, 20, 24 and 30 s.
const LONGER_WINDOWS_S: [u32; 7] = [20, 24, 30, 36, 40, 48, 60];
/// Minimum length of a window, seconds.
const WINDOW_MIN_S: u32 = 10;
/// Minimum samples of a half; with fewer it is starved.
const SAMPLES_MIN: u32 = 50;
/// Requested length of the window, seconds.
pub const WINDOW_S: u32 = 20;
/// Maximum share of the larger side of a worthwhile cut.
pub const SHARE_MAX: f64 = 0.70;
/// The same where most keys are appended, because that side will only grow.
const SHARE_MAX_APPENDING: f64 = 0.65;
/// Maximum share of the larger side of a cut that helps a little.
pub const SHARE_MAX_LOW_GAIN: f64 = 0.80;
/// Minimum share of scans across every cut for [`Class::ScanBound`].
const CONTAINED_MIN: f64 = 0.5;
/// Share of appends that counts as most.
const APPEND_MOST: f64 = 0.5;
/// Share of appends that suffices to name the direction of a load that wanders.
const APPEND_SOME: f64 = 0.2;
/// Share of appends from which keys are seen to be appended: batches of some hundred rows of one user each are above all
/// others by chance, and stay below.
const APPEND_SHOWN: f64 = 0.05;
/// Share of appends up to which a load may rotate: of two groups of writers, one of which lags, each second has either
/// group in front.
const APPEND_ROTATING_MAX: f64 = 0.3;
/// Time over which samples must reach before a cut is proposed where keys are appended, seconds; also the longer window
/// in which a load must be seen to grow inside the keys.
const LONG_LOOK_S: u32 = 40;
/// Minimum growth of one side of a cut, beyond chance, from the oldest third of the samples to the newest one.
const GROWTH_MIN: f64 = 0.15;
/// Minimum share of the newest third of the samples beyond all of the oldest one, for a load that moves on where one side
/// of a cut grows ...
const LEAD_MIN: f64 = 0.3;
/// ... and where the load wanders.
const LEAD_MOST: f64 = 0.5;
/// Minimum share of the newer half in one gap between keys of the older half, for a load that grows inside the keys ...
const FRONT_MIN: f64 = 0.5;
/// ... and the minimum time until it has passed all known keys, seconds: what passes sooner is a sweep.
const LASTS_S: f64 = 600.0;
/// AUC above which keys clearly move up; below one minus this they clearly move down.
const AUC_MOVING: f64 = 0.8;
/// AUC above which keys tend to move up.
const AUC_RISING: f64 = 0.6;
/// Minimum samples of a new instant beyond all others: the samples of two seconds are that many. By chance about five
/// samples of a minute lie there (one in each as many as there have been), and hardly ever this many.
const NEW_INSTANT_SAMPLES: usize = 16;
/// Share above which a value counts as common to all rows, and does not stand out.
const CONSTANT_SHARE: f64 = 0.98;

/// Result of judging one window.
enum Finding {
    /// Longer windows would give the same verdict.
    Sure(Verdict),
    /// The verdict, unless a longer window is steady.
    Unsteady(Verdict),
}

/// All samples that there are, with their motion as a whole.
struct Ring<'r, 's> {
    rows: &'r [Row<'s>],
    /// The second after the last.
    end: u64,
    span_s: u32,
    /// The lowest and the highest key that the partition is known to hold.
    edges: KnownEdges<'s>,
    thirds: Thirds<'r, 's>,
    /// Share of the newest third above (below) all of the oldest one.
    lead: (f64, f64),
    spots: Spots,
}

impl<'s> Ring<'_, 's> {
    /// The features of the newest `window_s` seconds.
    fn features(&self, window_s: u32, options: &Options) -> Features<'s> {
        let start = self.rows.partition_point(|row| row.second + u64::from(window_s) < self.end);
        let middle = self.end.saturating_sub(u64::from(window_s / 2));
        Features::of(&self.rows[start..], middle, window_s, options, self.edges)
    }

    fn is_long(&self) -> bool {
        self.span_s >= LONG_LOOK_S
    }

    /// True if the load grows inside the known keys, and will not have passed them soon.
    fn grows_inside(&self, features: &Features<'_>, options: &Options) -> bool {
        let appends = features.append_high.max(features.append_low);
        let lasts = features.front.passes_in_s.is_none_or(|passes_in_s| passes_in_s >= LASTS_S);
        self.edges.is_some()
            && features.front.share >= FRONT_MIN
            && appends < append_min(options)
            && lasts
    }
}

/// Judges the newest `window_s` seconds of a sketch, or more of them if those are not steady. `prefix_ends` returns the
/// ends of the columns of a key, or of as many of them as a scan's bound has.
#[must_use]
pub fn classify(
    sketch: &Sketch,
    window_s: u32,
    prefix_ends: &dyn Fn(&[u8]) -> Vec<usize>,
    options: &Options,
) -> Verdict {
    let rows = rows_of(sketch, prefix_ends);
    let (Some(first), Some(last)) = (sketch.ticks.first(), sketch.ticks.last()) else {
        return unknown(Evidence::default());
    };
    let end = last.second + 1;
    let span_s = u32::try_from(end - first.second).unwrap_or(u32::MAX);
    let wanted_s = window_s.min(span_s) / 2 * 2;
    if wanted_s < WINDOW_MIN_S {
        return unknown(Evidence { window_s: wanted_s, ..Evidence::default() });
    }
    let thirds = Thirds::of(&rows, end);
    let ring = Ring {
        rows: &rows,
        end,
        span_s,
        edges: sketch.edges.as_ref().map(|(low, high)| (&**low, &**high)),
        lead: thirds.lead(),
        thirds,
        spots: Spots::of(&rows),
    };
    let longer =
        LONGER_WINDOWS_S.into_iter().filter(|longer| (window_s + 1..=span_s).contains(longer));
    let mut fallback: Option<Verdict> = None;
    for window_s in std::iter::once(wanted_s).chain(longer) {
        match judge(&ring, window_s, options) {
            Finding::Sure(verdict) => return verdict,
            // The shortest window with a verdict shows best how the load wanders.
            Finding::Unsteady(verdict) => {
                if fallback.as_ref().is_none_or(|earlier| earlier.class == Class::Unknown) {
                    fallback = Some(verdict);
                }
            }
        }
    }
    fallback.unwrap_or_else(|| unknown(Evidence::default()))
}

fn unknown(evidence: Evidence) -> Verdict {
    plainly(Class::Unknown, evidence)
}

/// A verdict without a cut and without a key.
fn plainly(class: Class, evidence: Evidence) -> Verdict {
    Verdict { class, cut: None, divisions: Vec::new(), hot_key: None, evidence }
}

/// Applies the rules, in order.
fn judge(ring: &Ring<'_, '_>, window_s: u32, options: &Options) -> Finding {
    let features = ring.features(window_s, options);
    let evidence = Evidence {
        lead: ring.lead.0,
        concentration: ring.spots.concentration,
        ..features.evidence()
    };
    let plain = |class| plainly(class, evidence.clone());
    if features.samples.0 < SAMPLES_MIN || features.samples.1 < SAMPLES_MIN {
        return Finding::Unsteady(plain(Class::Unknown));
    }
    if evidence.contained >= CONTAINED_MIN {
        return Finding::Sure(plain(Class::ScanBound));
    }
    if let Some(finding) = hot_instant(ring.rows, &features, options) {
        return finding.map_or_else(
            || Finding::Unsteady(plain(Class::Unknown)),
            |class| Finding::Sure(plain(class)),
        );
    }
    let appends = features.append_high.max(features.append_low);
    if appends < APPEND_ROTATING_MAX && ring.spots.rotate {
        return Finding::Sure(plain(Class::Rotating));
    }
    if appends < APPEND_ROTATING_MAX && ring.spots.may_rotate {
        return Finding::Unsteady(plain(Class::Unknown));
    }
    let share_max = if appends > APPEND_MOST { SHARE_MAX_APPENDING } else { SHARE_MAX };
    let top_key = features.tops.last().map_or(0.0, |top| top.lasting);
    let divides = |best: &&Candidate<'_>, limit: f64| {
        best.predicted.max(best.new.larger()) <= limit && top_key < HOT_SHARE
    };
    if let Some(best) = features.best.as_ref().filter(|best| divides(best, share_max)) {
        return proposed(ring, &features, best, &evidence);
    }
    if let Some(top) = hot_key(&features, options) {
        let evidence = Evidence { hot_share: top.share, ..evidence };
        let is_moving = features
            .moving_prefix
            .is_some_and(|depth| features.tops[depth - 1].prefix == top.prefix);
        return Finding::Sure(if is_moving {
            plainly(Class::MovingWithin, evidence)
        } else {
            let hot_key = Some(top.prefix.into());
            Verdict { hot_key, ..plainly(Class::HotKey, evidence) }
        });
    }
    if features.append_high > APPEND_MOST {
        return Finding::Sure(plain(Class::MovingRight));
    }
    if features.append_low > APPEND_MOST {
        return Finding::Sure(plain(Class::MovingLeft));
    }
    if ring.grows_inside(&features, options) {
        let grows_in = |window_s| ring.grows_inside(&ring.features(window_s, options), options);
        return if ring.is_long() && [WINDOW_S, LONG_LOOK_S].into_iter().all(grows_in) {
            Finding::Sure(plain(Class::MovingWithin))
        } else {
            Finding::Unsteady(plain(Class::Unknown))
        };
    }
    if features.motion > Motion::Steady || !(1.0 - AUC_MOVING..=AUC_MOVING).contains(&features.auc)
    {
        return Finding::Unsteady(plain(wandering(ring, &features, options)));
    }
    match features.best.as_ref().filter(|best| divides(best, SHARE_MAX_LOW_GAIN)) {
        Some(best) => proposed(ring, &features, best, &evidence),
        // For scans of nearly everything the best cut lies at their edge, where few of them cross it, and all are on
        // one side.
        None if features.contained_most >= CONTAINED_MIN => {
            let evidence = Evidence { contained: features.contained_most, ..evidence };
            Finding::Sure(plainly(Class::ScanBound, evidence))
        }
        None => Finding::Sure(plain(Class::Unsplittable)),
    }
}

/// The verdict that a cut helps, after a longer look where keys are appended: whoever takes keys in blocks, or one after
/// the other in several places, leaves every cut behind, but not within half a minute.
fn proposed(
    ring: &Ring<'_, '_>,
    features: &Features<'_>,
    best: &Candidate<'_>,
    evidence: &Evidence,
) -> Finding {
    if features.append_high.max(features.append_low) < APPEND_SHOWN {
        return Finding::Sure(divided(features, best, evidence));
    }
    let plain = |class| plainly(class, evidence.clone());
    if !ring.is_long() {
        return Finding::Unsteady(plain(Class::Unknown));
    }
    let growth = ring.thirds.growth(best.key);
    if growth.sure.abs() < GROWTH_MIN || growth.predicted <= SHARE_MAX {
        return Finding::Sure(divided(features, best, evidence));
    }
    let (lead, class) = if growth.sure > 0.0 {
        (ring.lead.0, Class::MovingRight)
    } else {
        (ring.lead.1, Class::MovingLeft)
    };
    Finding::Sure(plain(if lead >= LEAD_MIN { class } else { Class::Unsplittable }))
}

/// Rule 2: one instant has half of the load. `Some(None)`: it cannot be decided yet if it stays hot.
#[expect(clippy::option_option, reason = "whether the rule holds, and what it then says")]
fn hot_instant(
    rows: &[Row<'_>],
    features: &Features<'_>,
    options: &Options,
) -> Option<Option<Class>> {
    let depth = options.time_column? + 1;
    let instant = features.tops.get(depth - 1)?;
    // The columns before the time must not explain it: rows of one hot series may share their instant, too.
    let earlier_share =
        depth.checked_sub(2).map_or(CONSTANT_SHARE, |index| features.tops[index].share);
    if instant.lasting < HOT_SHARE || earlier_share < CONSTANT_SHARE {
        return None;
    }
    // Look at all samples: the instant began within them, or has been there for longer.
    let count = |test: fn(&Row<'_>) -> bool| rows.iter().filter(|row| test(row)).count();
    let (above_count, below_count) = (count(|row| row.above), count(|row| row.below));
    let span = rows.last()?.second + 1 - rows.first()?.second;
    if above_count.max(below_count) >= NEW_INSTANT_SAMPLES {
        Some(Some(if above_count >= below_count { Class::MovingRight } else { Class::MovingLeft }))
    } else if span < u64::from(LONGER_WINDOWS_S[LONGER_WINDOWS_S.len() - 1]) {
        Some(None)
    } else {
        None
    }
}

/// The verdict that a cut helps.
fn divided(features: &Features<'_>, best: &Candidate<'_>, evidence: &Evidence) -> Verdict {
    let grows = !(1.0 - AUC_MOVING..=AUC_MOVING).contains(&features.tail);
    Verdict {
        class: if grows { Class::MultiTail } else { Class::StaticRange },
        cut: Some(Cut {
            key: best.key.into(),
            larger_share: best.predicted.max(best.new.larger()).clamp(0.5, 1.0),
        }),
        divisions: features.divisions.clone(),
        hot_key: None,
        evidence: evidence.clone(),
    }
}

/// The key, the series, or else the shortest part of a key, that has had half of the load all along.
fn hot_key<'f, 's>(features: &'f Features<'s>, options: &Options) -> Option<&'f Top<'s>> {
    let columns = features.columns;
    let whole = features.tops.last().filter(|top| top.lasting >= HOT_SHARE);
    let series_depth = columns.saturating_sub(1);
    let first_depth = options.placement + 1;
    // A part that includes the time is an instant, not a series.
    let last_depth = options.time_column.map_or(series_depth, |column| column.min(series_depth));
    let standing_out = (first_depth..=last_depth).rev().find_map(|depth| {
        let top = &features.tops[depth - 1];
        let stands_out = depth == series_depth || top.share < CONSTANT_SHARE;
        (top.lasting >= HOT_SHARE && stands_out).then_some(top)
    });
    whole.or(standing_out)
}

/// Share of appends that suffices to name the direction of a load that wanders. If time comes first, and is coarse, few
/// keys are above all others: the first ones of each instant.
fn append_min(options: &Options) -> f64 {
    let is_time_first = options.time_column == Some(options.placement);
    if is_time_first { 1.0 - CONSTANT_SHARE } else { APPEND_SOME }
}

/// Class of a load that lies elsewhere in the newer half than in the older one.
fn wandering(ring: &Ring<'_, '_>, features: &Features<'_>, options: &Options) -> Class {
    let append_min = append_min(options);
    if features.append_high >= append_min && features.auc > AUC_RISING {
        return Class::MovingRight;
    }
    if features.append_low >= append_min && features.auc < 1.0 - AUC_RISING {
        return Class::MovingLeft;
    }
    // Writers that take keys in blocks append little at a time, and have left all earlier keys behind in the end.
    if features.append_high.max(features.append_low) < APPEND_SHOWN {
        return Class::Sweep;
    }
    match ring.lead {
        _ if !ring.is_long() => Class::Unknown,
        (right, _) if right >= LEAD_MOST => Class::MovingRight,
        (_, left) if left >= LEAD_MOST => Class::MovingLeft,
        _ => Class::Sweep,
    }
}

/// The verdict on reads, from that on the keys that they read. What no cut helps is a hot read: a hash of new rows does
/// not divide it. The hot key stays, and so do cuts, sweeps and scans.
#[must_use]
pub fn of_reads(verdict: Verdict) -> Verdict {
    let is_hot = match verdict.class {
        Class::HotKey | Class::Unsplittable | Class::ReadHot => true,
        class => class.is_spread_by_hash(),
    };
    let class = if is_hot { Class::ReadHot } else { verdict.class };
    let evidence = Evidence { reads: true, ..verdict.evidence };
    Verdict { class, evidence, ..verdict }
}

/// The confirmed verdict after the newest of several (oldest first): the newest one of a class that at least two of the
/// last three windows have, or [`Class::Unknown`] with the newest evidence. Windows that are judged more often than
/// every few seconds share their samples, and agree by chance.
#[must_use]
pub fn confirm(recent: &[Verdict]) -> Verdict {
    let last = &recent[recent.len().saturating_sub(3)..];
    // For the decision only the benefit of a cut counts; the motion of keys behind it is a matter of name. So is the
    // reason why reads are hot.
    let action = |verdict: &Verdict| match verdict.class {
        Class::MultiTail => Class::StaticRange,
        Class::HotKey if verdict.evidence.reads => Class::ReadHot,
        class => class,
    };
    let holds = |verdict: &&Verdict| {
        let same = last.iter().filter(|candidate| action(candidate) == action(verdict));
        verdict.class != Class::Unknown && same.count() >= 2
    };
    let newest = || last.last().map_or_else(Evidence::default, |verdict| verdict.evidence.clone());
    last.iter().rev().find(holds).cloned().unwrap_or_else(|| unknown(newest()))
}

//! Decides about splits and their keys: two rules, by load and by size.
//!
//! By load a partition is split only when it was hot in 8 of the last 10 seconds *and* the detector knows a cut that
//! divides the load of samples from which it was not chosen. A load that moves or rotates, a sweep, scans, hot reads and a
//! key with almost all of the load are never split by load, however hot: it would not help, and be repeated for ever.
//!
//! A partition that is offered more than it can serve is cut into as many parts as that needs, all decided together.
//!
//! Invariants: pure functions of small views. Cooldowns, backoff and budgets are left to the scheduler.

use crate::action::{At, SplitWhy};
use crate::advice::buckets_for;
use crate::facts::Tail;
use crate::offered::{capacity, offered};
use crate::plan::Plan;
use crate::verdict::{Class, Verdict};
use crate::window::Rates;

/// Minimum hot seconds of the last 10: one slow second is no load, and TiKV's ten in a row miss a load that pauses.
pub(crate) const HOT_SECONDS_MIN: u32 = 8;
/// Maximum predicted share of the larger part for a good cut, judged on later samples.
pub(crate) const SHARE_GOOD: f64 = 0.70;
/// Maximum predicted share for a cut when the lane is nearly full: little gain is better than none.
pub(crate) const SHARE_POOR: f64 = 0.80;
/// Rho from which a lane is nearly full.
pub(crate) const RHO_FULL: f64 = 0.75;
/// Maximum share of a key to be isolated: above it the other keys are not worth a partition. The same limit as for "in
/// vain".
pub(crate) const KEY_ALONE: f64 = 0.90;

/// Number of parts of a single cut.
const HALVES: usize = 2;
/// A partition is cut at once into as many parts at most as there are buckets on so many nodes: eight. Each has a lane of
/// its own, on however few nodes; what is too much is merged again.
const NODES_WORTH: usize = 4;

/// Progress of the isolation of a hot key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// Not begun.
    #[default]
    None,
    /// The keys before the hot one were split off; those behind it come next.
    Before(Box<[u8]>),
    /// The key is alone, or as alone as cuts can make it.
    Done,
}

/// Input of the rule by load.
#[derive(Clone, Debug)]
pub(crate) struct LoadView<'a> {
    /// The table's option.
    pub(crate) by_load: bool,
    /// Number of hot seconds among the last ten.
    pub(crate) hot_seconds: u32,
    /// Busy share of the lane, or of a core that reads; half-life of 10 s.
    pub(crate) rho: f64,
    /// True if the load of the table rotates over its partitions.
    pub(crate) rotates: bool,
    /// The detector's verdict.
    pub(crate) verdict: Option<&'a Verdict>,
    /// Progress of isolating a hot key here.
    pub(crate) isolation: &'a Isolation,
    /// Cuts that were decided with an earlier one.
    pub(crate) plan: &'a Plan,
    /// Number of parts that the load needs.
    pub(crate) parts: usize,
    /// True if new rows will be placed by a hash that spreads the load of the verdict.
    pub(crate) spreads: bool,
    /// Number of the table's partitions, with splits in progress ...
    pub(crate) partitions: usize,
    /// ... and their maximum.
    pub(crate) partitions_max: usize,
}

/// A decision to split.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ruling {
    pub(crate) at: At,
    pub(crate) why: SplitWhy,
    pub(crate) predicted_share: Option<f64>,
    /// This cut and those that were decided together with it; empty for a cut alone.
    pub(crate) plan: Plan,
}

/// Reason why a partition is not split by load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoSplit {
    /// The table does not split by load.
    Off,
    /// The partition is not hot, or not for long enough.
    NotHot,
    /// The table has its maximum number of partitions.
    TooMany,
    /// There is no verdict yet.
    NoVerdict,
    /// No cut helps a load of this class.
    Class(Class),
    /// The best cut divides too little.
    LowGain,
    /// The hot key is isolated already, or has so much load that separating the others does not help.
    KeyAlone,
}

/// Decides about a split by load; the error says why there is none.
pub(crate) fn by_load(view: &LoadView<'_>) -> Result<Ruling, NoSplit> {
    if !view.by_load {
        return Err(NoSplit::Off);
    }
    if view.partitions >= view.partitions_max {
        return Err(NoSplit::TooMany);
    }
    // The second cut around a hot key follows from the first, whatever is hot meanwhile.
    if let Isolation::Before(key) = view.isolation {
        let next_key = after_prefix(key).ok_or(NoSplit::KeyAlone)?;
        let predicted_share = view.verdict.map(|verdict| verdict.evidence.top_key.max(0.5));
        return Ok(Ruling {
            at: At::Key(next_key),
            why: SplitWhy::IsolateKey,
            predicted_share,
            plan: Plan::default(),
        });
    }
    // So do those of a plan.
    if let Some(ruling) = planned(view.plan) {
        return Ok(ruling);
    }
    if view.rotates {
        return Err(NoSplit::Class(Class::Rotating));
    }
    if view.hot_seconds < HOT_SECONDS_MIN {
        return Err(NoSplit::NotHot);
    }
    let verdict = view.verdict.ok_or(NoSplit::NoVerdict)?;
    match verdict.class {
        Class::Unknown => Err(NoSplit::NoVerdict),
        Class::MovingRight
        | Class::MovingLeft
        | Class::MovingWithin
        | Class::Rotating
        | Class::Sweep
        | Class::ScanBound
        | Class::ReadHot => Err(NoSplit::Class(verdict.class)),
        // Alone in its partition, a part of the key that is to be divided would only be judged once more.
        Class::HotKey if view.spreads => Err(NoSplit::Class(Class::HotKey)),
        Class::HotKey => isolate(verdict, view.isolation),
        Class::StaticRange | Class::MultiTail | Class::Unsplittable => {
            let cut = verdict.cut.as_ref().ok_or(NoSplit::Class(verdict.class))?;
            let share = cut.larger_share;
            if share <= SHARE_GOOD || (share <= SHARE_POOR && view.rho >= RHO_FULL) {
                let parts =
                    view.parts.min((view.partitions_max - view.partitions).saturating_add(1));
                let parts = if verdict.evidence.reads { HALVES } else { parts };
                Ok(planned(&Plan::of(&verdict.divisions, parts)).unwrap_or_else(|| Ruling {
                    at: At::Key(cut.key.clone()),
                    why: SplitWhy::Load,
                    predicted_share: Some(share),
                    plan: Plan::default(),
                }))
            } else {
                Err(NoSplit::LowGain)
            }
        }
    }
}

/// Decision for the cut that comes next in a plan.
fn planned(plan: &Plan) -> Option<Ruling> {
    let (key, right_share) = plan.next_cut()?;
    Some(Ruling {
        at: At::Key(key.into()),
        why: SplitWhy::Load,
        predicted_share: Some(right_share.max(1.0 - right_share)),
        plan: plan.clone(),
    })
}

/// Number of parts into which a hot partition is cut at once: two if it serves what it is offered, otherwise as many as
/// carry that.
pub(crate) fn parts_needed(rates: &Rates) -> usize {
    let rates = settled(rates);
    let (capacity, rows_per_s) = (capacity([&rates]), offered(&rates).rows_per_s);
    let is_overloaded = capacity.is_measured && rows_per_s > capacity.rows_per_s;
    if rates.hot_seconds < HOT_SECONDS_MIN || !is_overloaded {
        return HALVES;
    }
    let parts = buckets_for(rows_per_s, capacity.rows_per_s, NODES_WORTH);
    usize::try_from(parts).unwrap_or(HALVES).max(HALVES)
}

/// The rates that a hot partition will have if nothing changes. Averages begin at zero and rise together for half a
/// minute, in which a full lane looks like a busy one.
fn settled(rates: &Rates) -> Rates {
    let risen = risen_share(rates);
    let share = |value: f64| (value / risen).min(1.0);
    Rates {
        rho_10: share(rates.rho_10),
        write_rows: rates.write_rows / risen,
        write_batches: rates.write_batches / risen,
        turned_away: share(rates.turned_away),
        held_back: share(rates.held_back),
        ..*rates
    }
}

/// Share of their final values that the averages of 10 s of a hot partition have reached, if it was idle before. The
/// average of 60 s, which rises more slowly, tells since when. One for a partition that was busy before.
fn risen_share(rates: &Rates) -> f64 {
    /// Half-lives of the averages, seconds.
    const HALF_LIVES_S: [f64; 2] = [10.0, 60.0];
    let shares =
        |seconds: f64| HALF_LIVES_S.map(|half_life_s| 1.0 - (-seconds / half_life_s).exp2());
    let ratio = rates.rho_60 / rates.rho_10.max(f64::MIN_POSITIVE);
    // The ratio of both grows with time. A partition is hot for several seconds before anything is decided.
    let (mut low_s, mut high_s) = (f64::from(HOT_SECONDS_MIN), 600.0);
    for _ in 0..32 {
        let middle_s = f64::midpoint(low_s, high_s);
        let [share_10, share_60] = shares(middle_s);
        if share_60 < ratio * share_10 {
            low_s = middle_s;
        } else {
            high_s = middle_s;
        }
    }
    shares(low_s)[0]
}

fn isolate(verdict: &Verdict, isolation: &Isolation) -> Result<Ruling, NoSplit> {
    let evidence = &verdict.evidence;
    let share = evidence
        .top_prefix
        .iter()
        .copied()
        .filter(|share| *share >= 0.5)
        .fold(evidence.top_key, f64::max);
    match &verdict.hot_key {
        Some(key) if *isolation == Isolation::None && share <= KEY_ALONE => Ok(Ruling {
            at: At::Key(key.clone()),
            why: SplitWhy::IsolateKey,
            predicted_share: Some(share.max(0.5)),
            plan: Plan::default(),
        }),
        _ => Err(NoSplit::KeyAlone),
    }
}

/// The smallest key above all that begin with `prefix`; `None` when there is no such key.
pub(crate) fn after_prefix(prefix: &[u8]) -> Option<Box<[u8]>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xFF)?;
    let mut next = prefix[..=last].to_vec();
    next[last] += 1;
    Some(next.into())
}

/// Input of the rule by size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SizeView {
    /// The table's option.
    pub(crate) by_size: bool,
    /// Size of the partition in bytes ...
    pub(crate) size_bytes: u64,
    /// ... and the size at which it is split.
    pub(crate) partition_bytes: u64,
    /// End at which the table grows by its schema.
    pub(crate) tail: Tail,
    /// True for the table's first partition in key order.
    pub(crate) first: bool,
    /// True for the table's last partition in key order.
    pub(crate) last: bool,
    /// Class of the detector's verdict, if there is one.
    pub(crate) class: Option<Class>,
    /// Number of the table's partitions, with splits in progress ...
    pub(crate) partitions: usize,
    /// ... and their maximum.
    pub(crate) partitions_max: usize,
}

/// Decides about a split by size. A partition that grows at an edge is split there, so that its full part never changes
/// again and the split costs no rewrite; any other in the middle.
pub(crate) fn by_size(view: &SizeView) -> Option<Ruling> {
    let large = view.by_size && view.size_bytes >= view.partition_bytes.max(1);
    if !large || view.partitions >= view.partitions_max {
        return None;
    }
    let grows_right =
        view.class == Some(Class::MovingRight) || (view.tail == Tail::Right && view.last);
    let grows_left =
        view.class == Some(Class::MovingLeft) || (view.tail == Tail::Left && view.first);
    let (position, why) = match (grows_right, grows_left) {
        (true, _) => (At::HighWater, SplitWhy::RightEdge),
        (false, true) => (At::LowWater, SplitWhy::LeftEdge),
        (false, false) => (At::Middle, SplitWhy::Size),
    };
    Some(Ruling { at: position, why, predicted_share: None, plan: Plan::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{Cut, Evidence};

    #[test]
    fn a_prefix_of_greatest_bytes_has_nothing_behind_it() {
        assert_eq!(after_prefix(&[0xFF, 0xFF]), None);
        assert_eq!(after_prefix(&[]), None);
        assert_eq!(after_prefix(&[1, 2]), Some(Box::from([1, 3])));
    }

    #[test]
    fn no_partition_of_a_table_that_rotates_is_split_by_load() {
        let verdict = Verdict {
            class: Class::StaticRange,
            cut: Some(Cut { key: Box::from([1]), larger_share: 0.5 }),
            divisions: Vec::new(),
            hot_key: None,
            evidence: Evidence::default(),
        };
        let plan = Plan::default();
        let view = |rotates| LoadView {
            by_load: true,
            hot_seconds: 10,
            rho: 0.9,
            rotates,
            verdict: Some(&verdict),
            isolation: &Isolation::None,
            plan: &plan,
            parts: 2,
            spreads: false,
            partitions: 1,
            partitions_max: 10,
        };
        assert!(by_load(&view(false)).is_ok());
        assert_eq!(by_load(&view(true)), Err(NoSplit::Class(Class::Rotating)));
    }

    #[test]
    fn only_a_partition_that_cannot_serve_its_load_is_cut_into_more_than_two() {
        let busy = Rates {
            write_rows: 600.0,
            write_batches: 600.0,
            rho_10: 0.6,
            rho_60: 0.6,
            queue_depth: 1,
            hot_seconds: 10,
            ..Rates::default()
        };
        assert_eq!(parts_needed(&busy), 2);
        // Its averages have only begun to rise, but it was full all the time, and clients wait.
        let full =
            Rates { write_rows: 128.0, rho_10: 0.426, rho_60: 0.0883, hot_seconds: 8, ..busy };
        assert_eq!(parts_needed(&full), 8);
        assert_eq!(parts_needed(&Rates { hot_seconds: 7, ..full }), 2);
        assert_eq!(parts_needed(&Rates { queue_depth: 0, ..full }), 2);
        let half_full = Rates { rho_10: 0.255, rho_60: 0.053, ..full };
        assert_eq!(parts_needed(&half_full), 2);
        // Refused requests are offered, too.
        assert_eq!(parts_needed(&Rates { queue_depth: 0, turned_away: 0.7, ..busy }), 5);
        let refusing = Rates { queue_depth: 0, turned_away: 0.255, ..full };
        assert_eq!(parts_needed(&refusing), 7, "0.6 of all, once the averages have risen");
        assert_eq!(parts_needed(&Rates::default()), 2);
    }

    #[test]
    fn large_partitions_are_cut_where_they_grow() {
        let base = SizeView {
            by_size: true,
            size_bytes: 100,
            partition_bytes: 100,
            tail: Tail::None,
            first: false,
            last: false,
            class: None,
            partitions: 1,
            partitions_max: 10,
        };
        let at = |view: SizeView| by_size(&view).map(|ruling| ruling.at);
        assert_eq!(at(base), Some(At::Middle));
        assert_eq!(at(SizeView { tail: Tail::Right, ..base }), Some(At::Middle));
        assert_eq!(at(SizeView { tail: Tail::Right, last: true, ..base }), Some(At::HighWater));
        assert_eq!(at(SizeView { tail: Tail::Left, first: true, ..base }), Some(At::LowWater));
        assert_eq!(at(SizeView { class: Some(Class::MovingRight), ..base }), Some(At::HighWater));
        assert_eq!(at(SizeView { class: Some(Class::MovingLeft), ..base }), Some(At::LowWater));
        assert_eq!(at(SizeView { size_bytes: 99, ..base }), None);
        assert_eq!(at(SizeView { by_size: false, ..base }), None);
        assert_eq!(at(SizeView { partitions: 10, ..base }), None);
    }
}

//! Decides when two neighbours are merged: when both have been cold and small for long.
//!
//! Hysteresis keeps a split and a merge from undoing each other: a partition split at rho 0.50 is merged below 0.20 *in
//! sum*, by the greatest second of five minutes rather than an average, and after an hour (or what the table's owner says)
//! in which neither was that busy alone; a split by load stays for an hour; and when load splits again what was merged
//! within a day, that hour becomes four, then sixteen, then a day. A load that comes and goes every hour therefore keeps
//! its partitions.
//!
//! Invariants: pure functions of small views.

use crate::window::{WARM_RHO, seconds};

/// Maximum sum of both maxima of rho over five minutes; splits begin at 0.50 (YDB: 0.7 of the threshold).
pub(crate) const RHO_SUM_MAX: f64 = WARM_RHO;
/// Maximum sum of both sizes, as a share of the size to split at (YDB: one half).
pub(crate) const SIZE_SUM_SHARE: f64 = 0.5;
/// Time for which a split by load is not merged (TiKV and YDB: 1 h).
pub(crate) const AFTER_LOAD_SPLIT_MS: u64 = 60 * 60 * 1_000;
/// Maximum to which that time grows by repetition.
pub(crate) const AFTER_LOAD_SPLIT_MAX_MS: u64 = 24 * 60 * 60 * 1_000;
/// A split within this time after a merge shows that the merge came too soon.
pub(crate) const REGRET_MS: u64 = 24 * 60 * 60 * 1_000;
/// Maximum age of a partition's last report; without reports it may be anything but cold.
pub(crate) const SEEN_WITHIN_S: u32 = 60;

/// State of one of the two partitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Side {
    /// Greatest 1-second rho of five minutes, writes and reads.
    pub(crate) rho_max: f64,
    pub(crate) size_bytes: u64,
    /// Last time at which it was warm, milliseconds; at least that of its birth.
    pub(crate) quiet_since_ms: u64,
    /// Second of the last report.
    pub(crate) seen_s: u32,
    /// True if an action holds it, or it is being watched after a split.
    pub(crate) busy: bool,
    /// Time before which it must not be merged, milliseconds: pinned by hand, split by load, or tried in vain.
    pub(crate) not_before_ms: u64,
    pub(crate) key_epoch: u16,
}

/// State of the table, as far as the rule needs it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TableView {
    /// True if partitions split and merge automatically.
    pub(crate) automatic: bool,
    pub(crate) partitions: usize,
    pub(crate) partitions_min: usize,
    pub(crate) partition_bytes: u64,
    /// Time for which both must have been quiet, milliseconds.
    pub(crate) merge_after_ms: u64,
    /// True while a merge is in progress; one at a time.
    pub(crate) merging: bool,
}

/// True if these neighbours are to be merged now.
pub(crate) fn may_merge(
    now_ms: u64,
    table: &TableView,
    left_side: &Side,
    right_side: &Side,
) -> bool {
    let settled = |side: &Side| {
        !side.busy
            && now_ms >= side.not_before_ms
            && now_ms >= side.quiet_since_ms.saturating_add(table.merge_after_ms)
            && seconds(now_ms).saturating_sub(side.seen_s) <= SEEN_WITHIN_S
    };
    let size = left_side.size_bytes.saturating_add(right_side.size_bytes) as f64;
    table.automatic
        && !table.merging
        && table.partitions > table.partitions_min.max(1)
        && left_side.key_epoch == right_side.key_epoch
        && settled(left_side)
        && settled(right_side)
        && left_side.rho_max + right_side.rho_max < RHO_SUM_MAX
        && size < table.partition_bytes as f64 * SIZE_SUM_SHARE
}

/// Time for which the children of a split by load must not be merged: four times as long as last time if the split
/// partition had been merged within a day, so that a daily tide is learnt in three days.
pub(crate) fn hold_after_split(now_ms: u64, merged_ms: Option<u64>, last_hold_ms: u64) -> u64 {
    match merged_ms {
        Some(merged_ms) if now_ms.saturating_sub(merged_ms) < REGRET_MS => {
            (last_hold_ms.max(AFTER_LOAD_SPLIT_MS) * 4).min(AFTER_LOAD_SPLIT_MAX_MS)
        }
        _ => AFTER_LOAD_SPLIT_MS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::MERGE_AFTER_MS;

    const NOW: u64 = 100 * 60 * 60 * 1_000;

    fn cold() -> Side {
        Side {
            rho_max: 0.05,
            size_bytes: 10,
            quiet_since_ms: NOW - MERGE_AFTER_MS,
            seen_s: seconds(NOW),
            busy: false,
            not_before_ms: 0,
            key_epoch: 0,
        }
    }

    fn table() -> TableView {
        TableView {
            automatic: true,
            partitions: 3,
            partitions_min: 2,
            partition_bytes: 100,
            merge_after_ms: MERGE_AFTER_MS,
            merging: false,
        }
    }

    #[test]
    fn cold_small_old_neighbours_are_joined() {
        assert!(may_merge(NOW, &table(), &cold(), &cold()));
        // Sooner where the table's owner says so.
        let soon = TableView { merge_after_ms: 60_000, ..table() };
        let young = Side { quiet_since_ms: NOW - 60_000, ..cold() };
        assert!(may_merge(NOW, &soon, &young, &young));
    }

    #[test]
    fn each_guard_alone_keeps_them_apart() {
        let refused = |side: Side| {
            assert!(!may_merge(NOW, &table(), &side, &cold()), "left {side:?}");
            assert!(!may_merge(NOW, &table(), &cold(), &side), "right {side:?}");
        };
        refused(Side { rho_max: 0.15, ..cold() });
        refused(Side { size_bytes: 40, ..cold() });
        refused(Side { quiet_since_ms: NOW - MERGE_AFTER_MS + 1, ..cold() });
        refused(Side { seen_s: cold().seen_s - 61, ..cold() });
        refused(Side { busy: true, ..cold() });
        refused(Side { not_before_ms: NOW + 1, ..cold() });
        refused(Side { key_epoch: 1, ..cold() });
        for table in [
            TableView { automatic: false, ..table() },
            TableView { partitions: 2, ..table() },
            TableView { partitions: 1, partitions_min: 0, ..table() },
            TableView { merging: true, ..table() },
            TableView { merge_after_ms: MERGE_AFTER_MS + 1, ..table() },
        ] {
            assert!(!may_merge(NOW, &table, &cold(), &cold()), "{table:?}");
        }
    }

    #[test]
    fn regret_makes_the_hold_longer_up_to_a_day() {
        assert_eq!(hold_after_split(NOW, None, 0), AFTER_LOAD_SPLIT_MS);
        assert_eq!(
            hold_after_split(NOW, Some(NOW - REGRET_MS), AFTER_LOAD_SPLIT_MS),
            AFTER_LOAD_SPLIT_MS
        );
        let mut hold = AFTER_LOAD_SPLIT_MS;
        for hours in [4, 16, 24, 24] {
            hold = hold_after_split(NOW, Some(NOW - 1), hold);
            assert_eq!(hold, hours * AFTER_LOAD_SPLIT_MS);
        }
    }
}

//! Whether to join two neighbours: when both are cold and small, and have been for long.
//!
//! Hysteresis keeps a split and a merge from undoing each other: what was cut at rho 0.50 is joined below 0.20 *in
//! sum*, by the greatest second of five minutes rather than an average; what load has cut stays cut for an hour; and
//! when load cuts again what was joined within a day, that hour becomes four, then sixteen, then a day. A load that
//! comes and goes every day or every hour therefore meets its partitions again instead of making them anew.
//!
//! Invariants: pure functions of small views.

/// Sum of both maxima of rho over five minutes must stay below; splits begin at 0.50 (YDB: 0.7 of the threshold).
pub(crate) const RHO_SUM_MAX: f64 = 0.20;
/// Sum of both sizes against the size to split at (YDB: one half).
pub(crate) const SIZE_SUM_SHARE: f64 = 0.5;
/// How old both must be, whatever made them (YDB: 10 min).
pub(crate) const AGE_MIN_MS: u64 = 10 * 60 * 1_000;
/// How long what load has cut stays cut (TiKV and YDB: 1 h).
pub(crate) const AFTER_LOAD_SPLIT_MS: u64 = 60 * 60 * 1_000;
/// The most that this grows to by repetition.
pub(crate) const AFTER_LOAD_SPLIT_MAX_MS: u64 = 24 * 60 * 60 * 1_000;
/// What was joined and is cut again within this time was joined too soon.
pub(crate) const REGRET_MS: u64 = 24 * 60 * 60 * 1_000;
/// A partition that was not heard of for so long may be anything but cold.
pub(crate) const SEEN_WITHIN_S: u32 = 60;

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Side {
    /// Greatest 1-second rho of five minutes, writes and reads.
    pub(crate) rho_max: f64,
    pub(crate) size_bytes: u64,
    pub(crate) born_ms: u64,
    /// Second of the last report.
    pub(crate) seen_s: u32,
    /// Something is being done to it, or it is being watched after a split.
    pub(crate) busy: bool,
    /// Not before, milliseconds: pinned by hand, cut by load, or tried in vain.
    pub(crate) not_before_ms: u64,
    pub(crate) key_epoch: u16,
}

/// What the rule knows of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TableView {
    /// Whether partitions come and go by themselves at all.
    pub(crate) automatic: bool,
    pub(crate) partitions: usize,
    pub(crate) partitions_min: usize,
    pub(crate) partition_bytes: u64,
    /// One merge at a time.
    pub(crate) merging: bool,
}

/// Whether these neighbours are to be joined now.
pub(crate) fn may_merge(now_ms: u64, table: &TableView, left: &Side, right: &Side) -> bool {
    let settled = |side: &Side| {
        !side.busy
            && now_ms >= side.not_before_ms
            && now_ms >= side.born_ms.saturating_add(AGE_MIN_MS)
            && crate::window::seconds(now_ms).saturating_sub(side.seen_s) <= SEEN_WITHIN_S
    };
    let size = left.size_bytes.saturating_add(right.size_bytes) as f64;
    table.automatic
        && !table.merging
        && table.partitions > table.partitions_min.max(1)
        && left.key_epoch == right.key_epoch
        && settled(left)
        && settled(right)
        && left.rho_max + right.rho_max < RHO_SUM_MAX
        && size < table.partition_bytes as f64 * SIZE_SUM_SHARE
}

/// How long the children of a split by load must not be merged: four times as long as last time when what is cut had
/// been joined within a day, so that a daily tide is learnt in three days.
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

    const NOW: u64 = 100 * 60 * 60 * 1_000;

    fn cold() -> Side {
        Side {
            rho_max: 0.05,
            size_bytes: 10,
            born_ms: NOW - AGE_MIN_MS,
            seen_s: crate::window::seconds(NOW),
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
            merging: false,
        }
    }

    #[test]
    fn cold_small_old_neighbours_are_joined() {
        assert!(may_merge(NOW, &table(), &cold(), &cold()));
    }

    #[test]
    fn each_guard_alone_keeps_them_apart() {
        let refused = |side: Side| {
            assert!(!may_merge(NOW, &table(), &side, &cold()), "left {side:?}");
            assert!(!may_merge(NOW, &table(), &cold(), &side), "right {side:?}");
        };
        refused(Side { rho_max: 0.15, ..cold() });
        refused(Side { size_bytes: 40, ..cold() });
        refused(Side { born_ms: NOW - AGE_MIN_MS + 1, ..cold() });
        refused(Side { seen_s: cold().seen_s - 61, ..cold() });
        refused(Side { busy: true, ..cold() });
        refused(Side { not_before_ms: NOW + 1, ..cold() });
        refused(Side { key_epoch: 1, ..cold() });
        for table in [
            TableView { automatic: false, ..table() },
            TableView { partitions: 2, ..table() },
            TableView { partitions: 1, partitions_min: 0, ..table() },
            TableView { merging: true, ..table() },
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

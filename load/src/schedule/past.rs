//! History of a partition that was changed; most have none.
//!
//! Invariants: a record is without effect once it is [`Past::over`], and is then dropped; both parts of a split inherit
//! the history of splits and merges, so that a descent cannot escape its backoff by splitting.

use crate::feedback::back_off_ms;
use crate::merge::{AFTER_LOAD_SPLIT_MS, REGRET_MS};
use crate::plan::Plan;
use crate::split::Isolation;

/// Time after any split for which its parts are not split: the detector needs a window of their own load.
pub(super) const SPLIT_REST_MS: u64 = 30_000;
/// Time until a partition without any place to split (one key, one series) is tried again.
pub(super) const NO_PLACE_MS: u64 = 60 * 60_000;
/// Time until a failed split is tried again.
pub(super) const SPLIT_RETRY_MS: u64 = 60_000;
/// Time for which a moved partition stays.
pub(super) const MOVE_REST_MS: u64 = 30_000;
/// Period in which a partition is moved at most twice: a third time would be thrashing.
pub(super) const THRASH_MS: u64 = 10 * 60_000;
/// Time until a failed merge is tried again.
pub(super) const MERGE_RETRY_MS: u64 = 10 * 60_000;
/// Time after a failed merge before its table merges any other partitions: the same obstacle may affect them.
pub(super) const TABLE_MERGE_RETRY_MS: u64 = 60_000;

/// History of one partition. All times are milliseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Past {
    pub(super) split_ready_ms: u64,
    /// Number of consecutive splits in vain, in its descent.
    pub(super) in_vain: u8,
    pub(super) isolation: Isolation,
    /// Cuts that were decided with an earlier one.
    pub(super) plan: Plan,
    pub(super) move_ready_ms: u64,
    /// Times of the last move and of the one before.
    moved_ms: [Option<u64>; 2],
    pub(super) merge_ready_ms: u64,
    /// Time for which the last split by load prevented merges.
    pub(super) hold_ms: u64,
    pub(super) merged_ms: Option<u64>,
}

impl Past {
    /// The history that a part of a split begins with.
    pub(super) fn inherited(&self) -> Self {
        let isolation = match self.isolation {
            Isolation::Done => Isolation::Done,
            Isolation::None | Isolation::Before(_) => Isolation::None,
        };
        let plan = Plan::default();
        Self { isolation, plan, move_ready_ms: 0, moved_ms: [None, None], ..self.clone() }
    }

    /// Copies the moves of another history.
    pub(super) fn keep_moves(&mut self, source: &Self) {
        (self.move_ready_ms, self.moved_ms) = (source.move_ready_ms, source.moved_ms);
    }

    /// True if the partition may be moved now.
    pub(super) fn may_move(&self, now_ms: u64) -> bool {
        let lately = |time_ms: &Option<u64>| {
            time_ms.is_some_and(|time_ms| now_ms.saturating_sub(time_ms) < THRASH_MS)
        };
        now_ms >= self.move_ready_ms && !self.moved_ms.iter().all(lately)
    }

    pub(super) fn moved(&mut self, now_ms: u64) {
        self.moved_ms = [Some(now_ms), self.moved_ms[0]];
        self.move_ready_ms = now_ms + MOVE_REST_MS;
    }

    /// Records a split in vain. Returns the backoff of the descent, milliseconds.
    pub(super) fn was_in_vain(&mut self, now_ms: u64) -> u64 {
        self.in_vain = self.in_vain.saturating_add(1);
        let rest_ms = back_off_ms(self.in_vain);
        self.split_ready_ms = self.split_ready_ms.max(now_ms + rest_ms);
        rest_ms
    }

    /// Combines the histories of two merged partitions: the more cautious value of each field.
    pub(super) fn join(&mut self, neighbour: &Self) {
        self.split_ready_ms = self.split_ready_ms.max(neighbour.split_ready_ms);
        self.in_vain = self.in_vain.max(neighbour.in_vain);
        self.hold_ms = self.hold_ms.max(neighbour.hold_ms);
        self.isolation = Isolation::None;
        self.plan = Plan::default();
    }

    /// True if the record no longer matters.
    pub(super) fn over(&self, now_ms: u64) -> bool {
        let is_past = |time_ms: Option<u64>, after_ms: u64| {
            time_ms.is_none_or(|time_ms| now_ms >= time_ms + after_ms)
        };
        // The backoff itself is remembered for as long again, and at least an hour: a descent that tries again right
        // after it must not begin at one minute.
        let in_vain_over = self.in_vain == 0 || now_ms >= self.split_ready_ms + AFTER_LOAD_SPLIT_MS;
        now_ms >= self.split_ready_ms
            && in_vain_over
            && matches!(self.isolation, Isolation::None)
            && self.plan.is_over(now_ms)
            && now_ms >= self.move_ready_ms
            && is_past(self.moved_ms[0], THRASH_MS)
            && now_ms >= self.merge_ready_ms
            && is_past(self.merged_ms, REGRET_MS)
            // A hold that has grown must still be known to the merge that it delayed.
            && (self.hold_ms <= AFTER_LOAD_SPLIT_MS || now_ms >= self.merge_ready_ms + REGRET_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_moves_at_most_twice_in_ten_minutes() {
        let mut past = Past::default();
        let mut moves = Vec::new();
        for second in 0..7_200_u64 {
            if past.may_move(second * 1_000) {
                past.moved(second * 1_000);
                moves.push(second);
            }
        }
        for at in 2..moves.len() {
            assert!(moves[at] - moves[at - 2] >= 600, "{moves:?}");
        }
        assert!(moves.len() >= 20, "{moves:?}");
    }

    #[test]
    fn back_off_is_inherited_and_outlives_itself() {
        let mut past = Past::default();
        assert_eq!(past.was_in_vain(0), 60_000);
        assert_eq!(past.was_in_vain(60_000), 120_000);
        let child = past.inherited();
        assert_eq!((child.in_vain, child.split_ready_ms), (2, 180_000));
        assert!(!child.over(180_000));
        assert!(child.over(180_000 + AFTER_LOAD_SPLIT_MS));
    }

    #[test]
    fn nothing_is_over_at_once() {
        assert!(Past::default().over(0));
        let mut past = Past::default();
        past.moved(5);
        assert!(!past.over(5 + MOVE_REST_MS));
        assert!(past.over(5 + THRASH_MS));
    }
}

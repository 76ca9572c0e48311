//! Times for which writes were held up because their partition was split, merged, or led by another node.
//!
//! The one who waits measures it: from the first request until the write has taken effect, whatever happened between. Meta
//! adds it to the record of the split or merge.
//!
//! Invariant: bounded by [`STALLS_MAX`] between two reports; of writes that end together, the longest is kept.

use std::time::Duration;

use parking_lot::Mutex;
use partita_proto::blame::{STALLS_MAX, Stall};
use partita_proto::id::PartitionId;
use tokio::time::Instant;

/// Writes of one partition that end within this time were held up by the same change.
const SAME_CHANGE: Duration = Duration::from_millis(250);

/// A write that was held up.
#[derive(Clone, Copy, Debug)]
struct Felt {
    partition: PartitionId,
    time: Duration,
    end: Instant,
}

/// Stalls since the last report.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    felt: Mutex<Vec<Felt>>,
}

impl Stalls {
    /// Records that a write to a partition ended now and was held up; `time`: its whole duration.
    pub(crate) fn felt(&self, partition: PartitionId, time: Duration) {
        let end = Instant::now();
        let mut felt = self.felt.lock();
        let is_same = |felt: &&mut Felt| {
            felt.partition == partition && end.saturating_duration_since(felt.end) <= SAME_CHANGE
        };
        if let Some(same) = felt.iter_mut().rev().find(is_same) {
            same.time = same.time.max(time);
            return;
        }
        if felt.len() < STALLS_MAX {
            felt.push(Felt { partition, time, end });
        }
    }

    /// Removes and returns the stalls since the last call.
    pub(crate) fn take(&self) -> Vec<Stall> {
        let asked_at = Instant::now();
        let felt = std::mem::take(&mut *self.felt.lock());
        let stall = |felt: Felt| Stall {
            partition: felt.partition,
            time: felt.time,
            ago: asked_at.saturating_duration_since(felt.end),
        };
        felt.into_iter().map(stall).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn of_writes_that_end_together_the_longest_is_told_and_of_others_each() {
        let stalls = Stalls::default();
        let milliseconds = Duration::from_millis;
        stalls.felt(PartitionId(1), milliseconds(9));
        stalls.felt(PartitionId(1), milliseconds(12));
        stalls.felt(PartitionId(2), milliseconds(3));
        tokio::time::advance(Duration::from_secs(1)).await;
        stalls.felt(PartitionId(1), milliseconds(5));
        tokio::time::advance(Duration::from_secs(2)).await;
        let told: Vec<(u64, u128, u128)> = stalls
            .take()
            .iter()
            .map(|stall| (stall.partition.0, stall.time.as_millis(), stall.ago.as_millis()))
            .collect();
        assert_eq!(told, [(1, 12, 3_000), (2, 3, 3_000), (1, 5, 2_000)]);
        assert!(stalls.take().is_empty());
        for partition in 0..1_000 {
            stalls.felt(PartitionId(partition), milliseconds(1));
        }
        assert_eq!(stalls.take().len(), STALLS_MAX);
    }
}

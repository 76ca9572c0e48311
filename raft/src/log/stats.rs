//! Counters of the log: volume, number and duration of syncs.

use std::time::Duration;

/// Figures of a node's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Files that are part of the log.
    pub segments: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Bytes of recent entries held in memory.
    pub cached_bytes: u64,
    /// Bytes written since the log was opened.
    pub appended_bytes: u64,
    /// Entries written since the log was opened.
    pub appended_entries: u64,
    /// Syncs since the log was opened: one serves all operations that waited for it.
    pub syncs: u64,
    /// Median duration of a sync, its write included (within 25 percent).
    pub sync_p50: Duration,
    /// 99th percentile of the duration of a sync, its write included (within 25 percent).
    pub sync_p99: Duration,
    /// Longest duration of a sync, its write included.
    pub sync_max: Duration,
    /// True if the log waits for disk space.
    pub disk_full: bool,
}

/// Buckets of the histogram per factor of two.
const STEPS: usize = 4;
/// Buckets from one microsecond to over an hour.
const BUCKETS: usize = 32 * STEPS;

#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) appended_bytes: u64,
    pub(crate) appended_entries: u64,
    syncs: u64,
    sync_max: Duration,
    buckets: [u64; BUCKETS],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            appended_bytes: 0,
            appended_entries: 0,
            syncs: 0,
            sync_max: Duration::ZERO,
            buckets: [0; BUCKETS],
        }
    }
}

impl Counters {
    pub(crate) fn synced(&mut self, took: Duration) {
        self.syncs += 1;
        self.sync_max = self.sync_max.max(took);
        self.buckets[bucket(took)] += 1;
    }

    pub(crate) fn summary(
        &self,
        segments: u64,
        bytes: u64,
        cached_bytes: u64,
        disk_full: bool,
    ) -> LogStats {
        LogStats {
            segments,
            bytes,
            cached_bytes,
            appended_bytes: self.appended_bytes,
            appended_entries: self.appended_entries,
            syncs: self.syncs,
            sync_p50: self.quantile(50),
            sync_p99: self.quantile(99),
            sync_max: self.sync_max,
            disk_full,
        }
    }

    fn quantile(&self, percent: u64) -> Duration {
        let rank = (self.syncs * percent).div_ceil(100);
        let mut total = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            total += count;
            if total >= rank && total > 0 {
                return upper_bound(bucket).min(self.sync_max);
            }
        }
        Duration::ZERO
    }
}

fn bucket(took: Duration) -> usize {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
    let power = micros.ilog2() as usize;
    // The two bits below the highest one say in which quarter of the power of two it lies.
    let quarter = if power >= 2 { (micros >> (power - 2)) & 3 } else { 0 };
    (power * STEPS + usize::try_from(quarter).unwrap_or(0)).min(BUCKETS - 1)
}

fn upper_bound(bucket: usize) -> Duration {
    let (power, quarter) = (bucket / STEPS, (bucket % STEPS) as u64);
    let base = 1_u64 << power;
    Duration::from_micros(base + base * (quarter + 1) / STEPS as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_within_a_quarter() {
        let mut counters = Counters::default();
        for micros in 1..=1000 {
            counters.synced(Duration::from_micros(micros));
        }
        let stats = counters.summary(0, 0, 0, false);
        let (p50, p99) = (stats.sync_p50.as_micros(), stats.sync_p99.as_micros());
        assert!((500..=625).contains(&p50), "{p50}");
        assert!((990..=1000).contains(&p99), "{p99}");
        assert_eq!(stats.sync_max, Duration::from_millis(1));
    }
}

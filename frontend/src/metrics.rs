//! Metrics of a frontend: statements, rows, retries and latencies.
//!
//! Counters only grow while the process lives. Latencies are histograms in microseconds, one for each kind of
//! operation, with three significant digits up to an hour.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;

/// Maximum recorded latency; longer ones count as this one.
const LATENCY_MAX_US: u64 = 3_600_000_000;

/// A counter that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Increases the counter.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Latencies of one kind of operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Number of operations.
    pub count: u64,
    /// Median in microseconds.
    pub p50_us: u64,
    /// 90th percentile in microseconds.
    pub p90_us: u64,
    /// 99th percentile in microseconds.
    pub p99_us: u64,
    /// 99.9th percentile in microseconds.
    pub p999_us: u64,
    /// Maximum in microseconds.
    pub max_us: u64,
    /// Sum in microseconds.
    pub sum_us: u64,
}

#[derive(Debug)]
struct Timing {
    histogram: Histogram<u64>,
    sum_us: u64,
}

/// Counters and latencies, shared by all sessions and doors.
#[derive(Debug, Default)]
pub struct FrontendMetrics {
    /// Rows acknowledged by the leaders, without deletes.
    pub rows_written: Counter,
    /// Keys deleted.
    pub rows_deleted: Counter,
    /// Bytes of rows sent, without retries.
    pub bytes_written: Counter,
    /// Writes to a single partition.
    pub single_partition_writes: Counter,
    /// Small writes that were sent together with others.
    pub joined_writes: Counter,
    /// Rows of such requests that were not sent, because a later row of the same key replaced them.
    pub replaced_rows: Counter,
    /// Writes to several partitions.
    pub multi_partition_writes: Counter,
    /// Write requests sent again, for any reason.
    pub write_retries: Counter,
    /// Writes that were held up because their partition was split, merged, or led by another node.
    pub write_stalls: Counter,
    /// Time of these writes in microseconds.
    pub write_stall_us: Counter,
    /// Writes that failed after all retries.
    pub write_failures: Counter,
    /// Rows with a key column above the soft limit.
    pub long_keys: Counter,
    /// Rows above the soft limit of their size.
    pub large_rows: Counter,
    /// Rows returned to clients.
    pub rows_returned: Counter,
    /// Rows decoded by scans.
    pub rows_scanned: Counter,
    /// Bytes decoded by scans.
    pub bytes_scanned: Counter,
    /// Queries that read one partition.
    pub single_partition_queries: Counter,
    /// Queries that read several partitions.
    pub multi_partition_queries: Counter,
    /// Partition scans started again at another replica.
    pub scan_retries: Counter,
    /// Partition scans that leaders answered.
    pub scans_by_leaders: Counter,
    /// Partition scans that followers answered.
    pub scans_by_followers: Counter,
    /// Rows sent to materialized copies, those that another frontend had sent already included.
    pub copy_rows_shipped: Counter,
    /// Runs of a worker that ships changes of a partition to a materialized copy.
    pub copy_drains: Counter,
    /// Writes that waited for materialized copies.
    pub copy_waits: Counter,
    /// Time of these waits in microseconds.
    pub copy_wait_us: Counter,
    /// Materialized copies that this frontend found lost.
    pub copies_lost: Counter,
    /// Scans planned over a materialized copy in place of its source.
    pub copy_reads: Counter,
    /// Sessions opened since the start, of all doors.
    pub sessions_opened: Counter,
    /// Sessions closed since the start; the difference is the number of open ones.
    pub sessions_closed: Counter,
    latencies: Mutex<BTreeMap<&'static str, Timing>>,
    errors: Mutex<BTreeMap<String, u64>>,
}

impl FrontendMetrics {
    /// Records the latency of an operation; `kind` is a statement's tag or a door's name.
    pub fn took(&self, kind: &'static str, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).min(LATENCY_MAX_US);
        let mut latencies = self.latencies.lock();
        let timing = latencies.entry(kind).or_insert_with(|| Timing {
            histogram: Histogram::new_with_bounds(1, LATENCY_MAX_US, 3)
                .expect("1 and an hour are valid bounds"),
            sum_us: 0,
        });
        timing.histogram.saturating_record(us);
        timing.sum_us = timing.sum_us.saturating_add(us);
    }

    /// Counts a failed statement.
    pub fn failed(&self, sqlstate: &str) {
        let mut errors = self.errors.lock();
        match errors.get_mut(sqlstate) {
            Some(count) => *count += 1,
            None => {
                errors.insert(sqlstate.to_owned(), 1);
            }
        }
    }

    /// All counters by name.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("rows_written", self.rows_written.get()),
            ("rows_deleted", self.rows_deleted.get()),
            ("bytes_written", self.bytes_written.get()),
            ("single_partition_writes", self.single_partition_writes.get()),
            ("joined_writes", self.joined_writes.get()),
            ("replaced_rows", self.replaced_rows.get()),
            ("multi_partition_writes", self.multi_partition_writes.get()),
            ("write_retries", self.write_retries.get()),
            ("write_stalls", self.write_stalls.get()),
            ("write_stall_us", self.write_stall_us.get()),
            ("write_failures", self.write_failures.get()),
            ("long_keys", self.long_keys.get()),
            ("large_rows", self.large_rows.get()),
            ("rows_returned", self.rows_returned.get()),
            ("rows_scanned", self.rows_scanned.get()),
            ("bytes_scanned", self.bytes_scanned.get()),
            ("single_partition_queries", self.single_partition_queries.get()),
            ("multi_partition_queries", self.multi_partition_queries.get()),
            ("scan_retries", self.scan_retries.get()),
            ("scans_by_leaders", self.scans_by_leaders.get()),
            ("scans_by_followers", self.scans_by_followers.get()),
            ("copy_rows_shipped", self.copy_rows_shipped.get()),
            ("copy_drains", self.copy_drains.get()),
            ("copy_waits", self.copy_waits.get()),
            ("copy_wait_us", self.copy_wait_us.get()),
            ("copies_lost", self.copies_lost.get()),
            ("copy_reads", self.copy_reads.get()),
            ("sessions_opened", self.sessions_opened.get()),
            ("sessions_closed", self.sessions_closed.get()),
        ]
    }

    /// Latencies by kind of operation.
    pub fn latencies(&self) -> Vec<(&'static str, Latency)> {
        let latencies = self.latencies.lock();
        latencies
            .iter()
            .map(|(kind, timing)| {
                let quantile_us = |quantile| timing.histogram.value_at_quantile(quantile);
                let latency = Latency {
                    count: timing.histogram.len(),
                    p50_us: quantile_us(0.5),
                    p90_us: quantile_us(0.9),
                    p99_us: quantile_us(0.99),
                    p999_us: quantile_us(0.999),
                    max_us: timing.histogram.max(),
                    sum_us: timing.sum_us,
                };
                (*kind, latency)
            })
            .collect()
    }

    /// Failed statements by SQLSTATE.
    pub fn errors(&self) -> Vec<(String, u64)> {
        self.errors.lock().iter().map(|(state, count)| (state.clone(), *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_kept_by_kind() {
        let metrics = FrontendMetrics::default();
        metrics.took("SELECT", Duration::from_micros(100));
        metrics.took("SELECT", Duration::from_secs(10_000));
        metrics.took("INSERT", Duration::from_micros(5));
        let latencies = metrics.latencies();
        assert_eq!(
            latencies.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(),
            ["INSERT", "SELECT"]
        );
        assert_eq!(latencies[1].1.count, 2);
        assert_eq!(latencies[0].1.max_us, 5);
        metrics.failed("42601");
        metrics.failed("42601");
        assert_eq!(metrics.errors(), [("42601".to_owned(), 2)]);
    }
}

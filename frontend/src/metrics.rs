//! What a frontend counts: statements, rows, retries and how long things took.
//!
//! Counters only grow while the process lives. Latencies are histograms of microseconds, one for
//! each kind of operation, with three significant digits up to an hour.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;

/// The longest latency that is told apart from longer ones.
const LATENCY_MAX_US: u64 = 3_600_000_000;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How long operations of one kind took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// How many there were.
    pub count: u64,
    /// Half took at most so many microseconds.
    pub p50_us: u64,
    /// 90 of 100 took at most so many microseconds.
    pub p90_us: u64,
    /// 99 of 100 took at most so many microseconds.
    pub p99_us: u64,
    /// 999 of 1000 took at most so many microseconds.
    pub p999_us: u64,
    /// The longest took so many microseconds.
    pub max_us: u64,
    /// All together took so many microseconds.
    pub sum_us: u64,
}

#[derive(Debug)]
struct Timing {
    histogram: Histogram<u64>,
    sum_us: u64,
}

/// What a frontend counts.
#[derive(Debug, Default)]
pub struct FrontendMetrics {
    /// Rows acknowledged by the leaders, deletes not counted.
    pub rows_written: Counter,
    /// Keys deleted.
    pub rows_deleted: Counter,
    /// Bytes of the rows sent, retries not counted.
    pub bytes_written: Counter,
    /// Writes that one partition took whole.
    pub single_partition_writes: Counter,
    /// Small writes that went to their partition together with others.
    pub joined_writes: Counter,
    /// Writes that were cut over several partitions.
    pub multi_partition_writes: Counter,
    /// Write requests sent again, for any reason.
    pub write_retries: Counter,
    /// Writes that failed in the end.
    pub write_failures: Counter,
    /// Rows whose key has a column longer than is good for it.
    pub long_keys: Counter,
    /// Rows returned to clients.
    pub rows_returned: Counter,
    /// Rows decoded by scans.
    pub rows_scanned: Counter,
    /// Bytes decoded by scans.
    pub bytes_scanned: Counter,
    /// Queries that asked one partition only.
    pub single_partition_queries: Counter,
    /// Queries that asked several partitions.
    pub multi_partition_queries: Counter,
    /// Partition scans started again elsewhere.
    pub scan_retries: Counter,
    /// Sessions opened.
    pub sessions_opened: Counter,
    /// Sessions closed.
    pub sessions_closed: Counter,
    latencies: Mutex<BTreeMap<&'static str, Timing>>,
    errors: Mutex<BTreeMap<String, u64>>,
}

impl FrontendMetrics {
    /// Records how long an operation of a kind took; `kind` is a statement's tag or a door's word.
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

    /// Counts a statement that failed.
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
            ("multi_partition_writes", self.multi_partition_writes.get()),
            ("write_retries", self.write_retries.get()),
            ("write_failures", self.write_failures.get()),
            ("long_keys", self.long_keys.get()),
            ("rows_returned", self.rows_returned.get()),
            ("rows_scanned", self.rows_scanned.get()),
            ("bytes_scanned", self.bytes_scanned.get()),
            ("single_partition_queries", self.single_partition_queries.get()),
            ("multi_partition_queries", self.multi_partition_queries.get()),
            ("scan_retries", self.scan_retries.get()),
            ("sessions_opened", self.sessions_opened.get()),
            ("sessions_closed", self.sessions_closed.get()),
        ]
    }

    /// How long operations took, by kind.
    pub fn latencies(&self) -> Vec<(&'static str, Latency)> {
        let latencies = self.latencies.lock();
        latencies
            .iter()
            .map(|(kind, timing)| {
                let at = |quantile| timing.histogram.value_at_quantile(quantile);
                let latency = Latency {
                    count: timing.histogram.len(),
                    p50_us: at(0.5),
                    p90_us: at(0.9),
                    p99_us: at(0.99),
                    p999_us: at(0.999),
                    max_us: timing.histogram.max(),
                    sum_us: timing.sum_us,
                };
                (*kind, latency)
            })
            .collect()
    }

    /// Statements that failed, by SQLSTATE.
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

//! Load history of partitions: one value per minute for a day, and one per ten minutes for two weeks.
//!
//! Invariants: spans are whole minutes (or ten minutes) of the clock and ascend; a span has rows only for partitions
//! that had load in it; the newest [`ROWS_MAX`] rows of each resolution are kept.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use partita_load::Class;
use partita_proto::id::{NodeId, PartitionId, TableId};
use partita_proto::load::{Instant, LoadHistory, Rates};

/// Maximum rows of each resolution: about 150 bytes each.
const ROWS_MAX: usize = 200_000;
/// Retention of each resolution.
const DAY_MS: u64 = 24 * 3_600_000;
const FORTNIGHT_MS: u64 = 14 * DAY_MS;
/// Span lengths.
const MINUTE_MS: u64 = 60_000;
const TEN_MINUTES_MS: u64 = 600_000;

/// Current load of one partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Now {
    pub(crate) table: TableId,
    pub(crate) leader: Option<NodeId>,
    pub(crate) busy: f64,
    pub(crate) rates: Rates,
    pub(crate) size_bytes: u64,
    /// Class of the verdict, if there is one.
    pub(crate) class: Option<Class>,
}

/// The history, in two resolutions.
#[derive(Debug, Default)]
pub(crate) struct History {
    minutes: Series,
    tens: Series,
}

/// The history in one resolution.
#[derive(Debug, Default)]
struct Series {
    /// Number of the span in progress.
    span: u64,
    /// Sums of the span in progress.
    open: BTreeMap<PartitionId, Sum>,
    rows: VecDeque<LoadHistory>,
}

/// Load of a partition in the span in progress, as a mean over the whole span.
#[derive(Debug, Default)]
struct Sum {
    /// The newest load.
    last: Now,
    busy: f64,
    busy_max: f64,
    rates: Rates,
}

impl History {
    /// Adds the current load of the partitions; to be called about once a second.
    pub(crate) fn note(&mut self, now_ms: u64, partitions: &[(PartitionId, Now)]) {
        self.minutes.note(now_ms, MINUTE_MS, DAY_MS, partitions);
        self.tens.note(now_ms, TEN_MINUTES_MS, FORTNIGHT_MS, partitions);
    }

    /// All complete spans: minutes, and spans of ten minutes.
    pub(super) fn rows(&self) -> (Vec<LoadHistory>, Vec<LoadHistory>) {
        let rows = |series: &Series| series.rows.iter().cloned().collect();
        (rows(&self.minutes), rows(&self.tens))
    }

    /// Begins with complete spans of an earlier process, by time.
    pub(super) fn restore(&mut self, minutes: Vec<LoadHistory>, tens: Vec<LoadHistory>) {
        (self.minutes.rows, self.tens.rows) = (minutes.into(), tens.into());
    }

    /// Spans that began at or after a time: minutes, and ten-minute spans from before the oldest minute.
    pub(crate) fn since(&self, since_ms: u64, table: Option<TableId>) -> Vec<LoadHistory> {
        let minutes_from = self.minutes.rows.front().map_or(u64::MAX, |row| row.at.0);
        let selected = |row: &&LoadHistory| {
            row.at.0 >= since_ms && table.is_none_or(|table| table == row.table)
        };
        let old = self.tens.rows.iter().filter(selected);
        let old = old.filter(|row| row.at.0 + TEN_MINUTES_MS <= minutes_from);
        old.chain(self.minutes.rows.iter().filter(selected)).cloned().collect()
    }
}

impl Series {
    fn note(&mut self, now_ms: u64, span_ms: u64, kept_ms: u64, partitions: &[(PartitionId, Now)]) {
        let span = now_ms / span_ms;
        if span > self.span {
            self.close(span_ms);
            self.span = span;
            let oldest_ms = now_ms.saturating_sub(kept_ms);
            while self.rows.front().is_some_and(|row| row.at.0 < oldest_ms)
                || self.rows.len() > ROWS_MAX
            {
                self.rows.pop_front();
            }
        }
        let seconds = (span_ms / 1_000) as f64;
        for (partition, load) in partitions {
            let sum = self.open.entry(*partition).or_default();
            sum.busy += load.busy / seconds;
            sum.busy_max = sum.busy_max.max(load.busy);
            add(&mut sum.rates, &load.rates, seconds);
            sum.last = load.clone();
        }
    }

    fn close(&mut self, span_ms: u64) {
        let start = Instant(self.span * span_ms);
        for (partition, sum) in std::mem::take(&mut self.open) {
            let Sum { last, busy, busy_max, rates } = sum;
            self.rows.push_back(LoadHistory {
                at: start,
                span: Duration::from_millis(span_ms),
                table: last.table,
                partition,
                leader: last.leader,
                busy,
                busy_max,
                rates,
                size_bytes: last.size_bytes,
                class: last.class,
            });
        }
    }
}

fn add(sum: &mut Rates, rates: &Rates, seconds: f64) {
    sum.write_rows += rates.write_rows / seconds;
    sum.write_bytes += rates.write_bytes / seconds;
    sum.read_rows += rates.read_rows / seconds;
    sum.point_reads += rates.point_reads / seconds;
    sum.scans += rates.scans / seconds;
    sum.rejected += rates.rejected / seconds;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(busy: f64) -> Now {
        let rates = Rates { write_rows: busy * 100.0, ..Rates::default() };
        Now { table: TableId(1), busy, rates, class: Some(Class::Sweep), ..Now::default() }
    }

    #[test]
    fn a_minute_is_the_mean_of_its_seconds() {
        let mut history = History::default();
        let start = 600_000 * 1_000;
        for second in 0..121 {
            let now = if second < 60 { busy(0.5) } else { busy(1.0) };
            history.note(start + second * 1_000, &[(PartitionId(3), now)]);
        }
        let rows = history.since(0, Some(TableId(1)));
        let shown: Vec<_> = rows.iter().map(|row| (row.at.0, (row.busy * 100.0).round())).collect();
        assert_eq!(shown, [(start, 50.0), (start + 60_000, 100.0)]);
        assert!((rows[0].rates.write_rows - 50.0).abs() < 1e-6);
        assert!(history.since(start + 1, None).len() == 1);
        assert!(history.since(0, Some(TableId(2))).is_empty());
    }

    #[test]
    fn older_times_are_told_in_spans_of_ten_minutes() {
        let mut history = History::default();
        let start = 600_000 * 1_000;
        for minute in 0..(26 * 60) {
            history.note(start + minute * 60_000, &[(PartitionId(3), busy(1.0))]);
        }
        let rows = history.since(0, None);
        let tens = rows.iter().filter(|row| row.span == Duration::from_secs(600)).count();
        assert!((10..=13).contains(&tens), "{tens}");
        assert!(rows.windows(2).all(|pair| pair[0].at < pair[1].at), "by time, without overlap");
        assert!(rows.len() <= 24 * 60 + 13, "{}", rows.len());
    }
}

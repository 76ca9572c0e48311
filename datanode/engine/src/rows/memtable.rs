//! Rows that are in the log but not yet in files.
//!
//! A memtable is an immutable list of sorted runs, oldest first; a write makes a new list that shares the old runs.
//! Runs are merged as they accumulate, eight of about one size into one of the next size, so that a row of a single-row
//! insert is copied a handful of times and readers and flushes never face a hundred thousand runs.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::Result;
use crate::rows::layout::Layout;
use crate::rows::run::Run;

/// Number of neighbouring runs of one size that are merged into one.
const MERGE_RUNS: usize = 8;
/// Maximum rows of a merged run: a larger merge would delay the log, and reads would gain little.
const MERGE_ROWS_MAX: usize = 128 * 1024;

/// A position in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogPosition {
    /// Index of the last entry.
    pub(crate) index: u64,
    /// The owner's mark for that entry.
    pub(crate) mark: Bytes,
}

/// Sorted runs, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memtable {
    pub(crate) runs: Vec<Arc<Run>>,
    pub(crate) bytes: u64,
    pub(crate) rows: u64,
    /// Time at which the first rows arrived.
    pub(crate) since_ms: Option<i64>,
}

impl Memtable {
    /// The memtable with one more run.
    pub(crate) fn with(&self, layout: &Layout, run: Run, now_ms: i64) -> Result<Self> {
        let mut runs = self.runs.clone();
        if run.rows() > 0 {
            runs.push(Arc::new(run));
        }
        while let Some(start) = due(&runs.iter().map(|run| run.rows()).collect::<Vec<_>>()) {
            let merged = Run::merged(layout, &runs[start..])?;
            runs.truncate(start);
            runs.push(Arc::new(merged));
        }
        let since_ms = self.since_ms.or_else(|| (!runs.is_empty()).then_some(now_ms));
        Ok(Self::of(runs, since_ms))
    }

    /// The same rows under another key codec.
    pub(crate) fn rekeyed(&self, layout: &Layout) -> Result<Self> {
        let runs = self.runs.iter().map(|run| run.rekeyed(layout).map(Arc::new));
        Ok(Self::of(runs.collect::<Result<_>>()?, self.since_ms))
    }

    fn of(runs: Vec<Arc<Run>>, since_ms: Option<i64>) -> Self {
        let bytes = runs.iter().map(|run| run.bytes).sum();
        let rows = runs.iter().map(|run| run.rows() as u64).sum();
        Self { runs, bytes, rows, since_ms }
    }
}

/// A memtable that takes no more rows and waits to be written to files.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) number: u64,
    pub(crate) memtable: Memtable,
    /// Position of the last entry that is in the memtable or before it.
    pub(crate) position: LogPosition,
    /// The owner's state as of that entry.
    pub(crate) state: Bytes,
}

/// Position of the first of the last runs that are due to be merged, given the rows of each run.
fn due(rows: &[usize]) -> Option<usize> {
    let tier = |rows: usize| rows.max(1).ilog2() / MERGE_RUNS.ilog2();
    let newest = tier(*rows.last()?);
    let mut start = rows.len();
    let mut total = 0;
    while start > 0 && tier(rows[start - 1]) <= newest && total + rows[start - 1] <= MERGE_ROWS_MAX
    {
        start -= 1;
        total += rows[start];
    }
    (rows.len() - start >= MERGE_RUNS).then_some(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_rows_become_few_runs_and_are_copied_few_times() {
        let (mut runs, mut copied) = (Vec::new(), 0);
        for _ in 0..100_000 {
            runs.extend([1_usize]);
            while let Some(from) = due(&runs) {
                let total: usize = runs[from..].iter().sum();
                copied += total;
                runs.truncate(from);
                runs.push(total);
            }
        }
        assert!(runs.len() <= 48, "{} runs", runs.len());
        assert!(copied <= 7 * 100_000, "{copied} rows copied");
        assert_eq!(runs.iter().sum::<usize>(), 100_000);
    }

    #[test]
    fn large_runs_are_left_alone() {
        assert_eq!(due(&[40_000; 20]), None);
        assert_eq!(due(&[]), None);
        assert_eq!(due(&[3; 7]), None);
        assert_eq!(due(&[100_000, 3, 3, 3, 3, 3, 3, 3, 3]), Some(1));
    }
}

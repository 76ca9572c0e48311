//! Load on a cluster: operations as they arrive, and the statements made of them.
//!
//! ```text
//!   law and seed, or a trace ─▶ Offer ─▶ (when, what, key) ─▶ Batcher ─▶ INSERTs of many rows, SELECTs of one operation
//! ```
//!
//! Invariants: the load does not depend on the cluster's reaction; statements come in the order in which they are
//! due; a row waits at most a second for others; every row is in one statement, together with its copies in other
//! tables.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use partita_hotspot::workload::{Kind, Op, Row, SECOND_US, SqlTable, Stream, TableLoad};

use super::recorded;

/// Maximum time, in microseconds, for which a row waits for others in its INSERT.
const WAIT_US: u64 = SECOND_US;

/// Source of a run's operations.
#[derive(Clone, Debug)]
pub(super) enum Offer {
    /// Drawn from a table's load, with a seed.
    Drawn { load: Box<TableLoad>, seed: u64 },
    /// Read from a trace, whose operations per second are known.
    Recorded { path: PathBuf, offered: Vec<u64> },
}

impl Offer {
    /// Passes the operations of the first seconds to `take`, until it breaks.
    ///
    /// # Errors
    /// If a trace cannot be read.
    pub(super) fn each(
        &self,
        seconds: u64,
        mut take: impl FnMut(u64, Kind, &Op) -> ControlFlow<()>,
    ) -> anyhow::Result<()> {
        let mut take_within = |at_us: u64, kind: Kind, op: &Op| {
            if at_us < seconds.saturating_mul(SECOND_US) {
                take(at_us, kind, op)
            } else {
                ControlFlow::Break(())
            }
        };
        match self {
            Self::Recorded { path, .. } => recorded::each(path, take_within),
            Self::Drawn { load, seed } => {
                let (mut stream, mut op) = (Stream::new(&load.sources, *seed), Op::default());
                while let Some((at_us, kind)) = stream.next(&mut op) {
                    if take_within(at_us, kind, &op).is_break() {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    /// The same with another seed; a trace stays the same.
    pub(super) fn with_seed(&self, seed: u64) -> Self {
        match self {
            Self::Drawn { load, .. } => Self::Drawn { load: load.clone(), seed },
            Self::Recorded { .. } => self.clone(),
        }
    }

    /// Operations due in a second; the first is 1.
    #[expect(clippy::cast_precision_loss, reason = "operations of a second")]
    pub(super) fn offered(&self, second: u64) -> f64 {
        let elapsed_s = second.saturating_sub(1);
        match self {
            Self::Drawn { load, .. } => load.offered(elapsed_s * SECOND_US),
            Self::Recorded { offered, .. } => {
                let index = usize::try_from(elapsed_s).unwrap_or(usize::MAX);
                offered.get(index).copied().unwrap_or(0) as f64
            }
        }
    }
}

/// A statement, its rows, and the time when it is due.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) text: String,
    /// Rows that it writes; 0 for a read.
    pub(super) rows: u64,
    pub(super) due: Duration,
}

/// Makes statements of operations.
pub(super) struct Batcher<'a> {
    /// The operations are the first table's; the others get the same rows.
    tables: &'a [SqlTable],
    size: usize,
    waiting: Vec<Row>,
    /// Operations that cannot be expressed as a statement.
    pub(super) unsaid: u64,
}

/// The statement that writes rows into all tables.
pub(super) fn insert(tables: &[SqlTable], rows: &[Row]) -> String {
    tables.iter().map(|table| table.insert(rows)).collect::<Vec<_>>().join("; ")
}

impl<'a> Batcher<'a> {
    /// Makes statements for these tables, with INSERTs of up to `size` rows.
    pub(super) fn new(tables: &'a [SqlTable], size: usize) -> Self {
        Self { tables, size, waiting: Vec::with_capacity(size), unsaid: 0 }
    }

    /// Adds an operation; returns the statements that are due by now, in order.
    pub(super) fn take(&mut self, at_us: u64, kind: Kind, op: &Op) -> [Option<Batch>; 2] {
        let late = self.waiting.first().map(|row| row.at_us + WAIT_US);
        let waited = late.filter(|late| *late <= at_us).map(|late| self.flush(late));
        if kind == Kind::Write {
            let Some(row) = self.tables.first().and_then(|table| table.row(at_us, op)) else {
                self.unsaid += 1;
                return [waited, None];
            };
            self.waiting.push(row);
            let full = self.waiting.len() == self.size;
            return [waited, full.then(|| self.flush(at_us))];
        }
        let Some(text) = self.tables.first().and_then(|table| table.read(op)) else {
            self.unsaid += 1;
            return [waited, None];
        };
        [waited, Some(Batch { text, rows: 0, due: Duration::from_micros(at_us) })]
    }

    fn flush(&mut self, due_us: u64) -> Batch {
        let (text, rows) = (insert(self.tables, &self.waiting), self.waiting.len() as u64);
        self.waiting.clear();
        Batch { text, rows, due: Duration::from_micros(due_us) }
    }
}

#[cfg(test)]
mod tests {
    use partita_hotspot::workload::{Design, Knobs, find};

    use super::*;

    fn loads(name: &str) -> Vec<TableLoad> {
        find(name).unwrap().tables(&Knobs { records: 1_000, ..Knobs::of(Design::UidTs, 200.0) })
    }

    fn tables(name: &str) -> Vec<SqlTable> {
        let names = ["a", "b"];
        loads(name).iter().zip(names).map(|(load, name)| SqlTable::of(load, name, 0)).collect()
    }

    fn record(key: u64) -> Op {
        Op { key: key.to_be_bytes().to_vec(), end: None }
    }

    fn batches(name: &str, size: usize, seconds: u64) -> Vec<Batch> {
        let (tables, mut batches) = (tables(name), Vec::new());
        let mut batcher = Batcher::new(&tables, size);
        let offer = Offer::Drawn { load: Box::new(loads(name).remove(0)), seed: 3 };
        let take = |at_us, kind, op: &Op| {
            batches.extend(batcher.take(at_us, kind, op).into_iter().flatten());
            ControlFlow::Continue(())
        };
        offer.each(seconds, take).unwrap();
        assert_eq!(batcher.unsaid, 0, "{name}");
        batches
    }

    #[test]
    fn a_statement_is_due_when_its_last_row_arrives() {
        let tables = tables("W6:sequential");
        let mut batcher = Batcher::new(&tables, 2);
        assert_eq!(batcher.take(5, Kind::Write, &record(1)), [None, None]);
        let [None, Some(batch)] = batcher.take(9, Kind::Write, &record(2)) else { panic!("full") };
        assert_eq!((batch.rows, batch.due), (2, Duration::from_micros(9)));
        assert!(batch.text.starts_with("INSERT INTO a (\"key\", field) VALUES (1, '"));
    }

    #[test]
    fn a_row_does_not_wait_for_others_that_do_not_come() {
        let tables = tables("W6:latest");
        let mut batcher = Batcher::new(&tables, 100);
        assert_eq!(batcher.take(5, Kind::Write, &record(1)), [None, None]);
        let [Some(waited), Some(read)] = batcher.take(2 * WAIT_US, Kind::Read, &record(1)) else {
            panic!("the row, then the read")
        };
        assert_eq!((waited.rows, waited.due), (1, Duration::from_micros(5 + WAIT_US)));
        assert_eq!((read.rows, read.due), (0, Duration::from_micros(2 * WAIT_US)));
        assert_eq!(batcher.take(2 * WAIT_US, Kind::Write, &Op::default()), [None, None]);
        assert_eq!(batcher.unsaid, 1, "what is no key of the table is counted");
    }

    #[test]
    fn statements_come_in_the_order_in_which_they_are_due_and_repeat() {
        for name in ["W1", "W6", "W6:scans", "W10:flash", "W12", "W15"] {
            let statements = batches(name, 7, 20);
            assert!(statements.is_sorted_by_key(|batch| batch.due), "{name}");
            assert!(!statements.is_empty() && statements == batches(name, 7, 20), "{name}");
        }
    }

    #[test]
    fn an_index_gets_every_row_with_the_table_that_it_is_of() {
        let batches = batches("W14", 10, 2);
        assert!(!batches.is_empty());
        for batch in batches {
            let (index, table) = batch.text.split_once("; INSERT INTO b ").expect("two statements");
            let values = |text: &str| text.split_once(" VALUES ").unwrap().1.to_owned();
            assert_eq!(values(index), values(table));
            assert_eq!(batch.rows, 10, "each row counts once");
        }
    }

    #[test]
    fn what_is_offered_follows_the_rate() {
        let offer = Offer::Drawn { load: Box::new(loads("W10:flash").remove(0)), seed: 1 };
        assert_eq!((offer.offered(1), offer.offered(140)), (10.0, 200.0));
        let offer = Offer::Recorded { path: PathBuf::new(), offered: vec![4, 9] };
        assert_eq!([1, 2, 3].map(|second| offer.offered(second)), [4.0, 9.0, 0.0]);
    }
}

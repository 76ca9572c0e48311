//! The first rows of a scan in order of time: tells what cannot be among them, so that it is not read.
//!
//! ```text
//!   units, those with the first times in front ── rows ──┬── times of the first rows so far
//!        ▲                                               └── rows that may be among the first
//!        └── skipped, or restricted in time, by the last of these times
//! ```
//!
//! Invariants:
//! - the time of a row that the scan returns is recorded once, and of no other row;
//! - a row is left out only if the wanted number of recorded times come before its own.

use std::collections::BinaryHeap;

use arrow::array::{Array, BooleanArray};
use arrow::compute::filter_record_batch;
use arrow::datatypes::Schema;
use arrow::record_batch::RecordBatch;
use parking_lot::Mutex;
use partita_proto::domain::{Domain, Domains};
use partita_proto::rule::Comparison;
use partita_proto::service::FirstByTime;
use partita_proto::value::Value;

use crate::error::Result;
use crate::read::plan::Unit;
use crate::rows::layout::{Layout, TimeColumn};
use crate::rows::run::ticks;

/// Maximum number of recorded times; a scan for more rows reads all.
const ROWS_MAX: usize = 100_000;

/// Times of the first rows that a scan has returned, shared by its streams. A rank is a tick, or its complement if the
/// newest rows come first: in order of their ranks, rows are in the wanted order.
pub(crate) struct Nearest {
    time: TimeColumn,
    request: FirstByTime,
    /// Ranks of the first rows so far, the last of them on top.
    ranks: Mutex<BinaryHeap<i64>>,
}

impl Nearest {
    /// For the wanted rows of a scan of some columns; `None` if all rows are to be read.
    pub(crate) fn new(
        request: Option<FirstByTime>,
        layout: &Layout,
        columns: &Schema,
    ) -> Option<Self> {
        let request = request.filter(|request| (1..=ROWS_MAX).contains(&request.rows))?;
        let time = layout.time.clone()?;
        columns.index_of(&time.name).ok()?;
        Some(Self { time, request, ranks: Mutex::new(BinaryHeap::new()) })
    }

    /// The same without any recorded time, for a look at rows before they are returned.
    pub(crate) fn anew(&self) -> Self {
        let (time, request) = (self.time.clone(), self.request);
        Self { time, request, ranks: Mutex::new(BinaryHeap::new()) }
    }

    /// Name of the time index.
    pub(crate) fn time_name(&self) -> &str {
        &self.time.name
    }

    /// Returns true if as many times are recorded as rows are wanted.
    pub(crate) fn is_full(&self) -> bool {
        self.last_rank().is_some()
    }

    /// Records the times of some rows.
    pub(crate) fn see(&self, rows: &RecordBatch) -> Result<()> {
        let ticks = ticks(rows, &self.time)?;
        if ticks.null_count() == 0 {
            self.record(ticks.values());
        }
        Ok(())
    }

    /// Sorts units so that those with the first times are read first. Of units of one file, whose times are not known
    /// separately, those with the last keys come first if the newest rows do: their rows may be the newest.
    pub(crate) fn sort(&self, units: &mut [Unit]) {
        if self.request.descending {
            units.reverse();
        }
        units.sort_by_key(|unit| self.first_rank(unit.time()));
    }

    /// Returns true if rows with times within a span, or of unknown times, may be among the first.
    pub(crate) fn may_have(&self, span: Option<(i64, i64)>) -> bool {
        self.last_rank().is_none_or(|last| self.first_rank(span) <= last)
    }

    /// The domains, restricted to times of rows that may be among the first.
    pub(crate) fn restricted(&self, domains: &Domains) -> Domains {
        let mut domains = domains.clone();
        if let Some(last) = self.last_rank() {
            let comparison = match self.request.descending {
                true => Comparison::GreaterOrEqual,
                false => Comparison::LessOrEqual,
            };
            // The complement of a complement is the tick again.
            let tick = Value::Timestamp(self.rank(last));
            domains.restrict(&self.time.name, Domain::compare(comparison, tick));
        }
        domains
    }

    /// Records the times of rows that are about to be returned, and leaves out those that are not among the first.
    pub(crate) fn reduced(&self, rows: RecordBatch) -> Result<RecordBatch> {
        let ticks = ticks(&rows, &self.time)?;
        if ticks.null_count() > 0 {
            return Ok(rows);
        }
        self.record(ticks.values());
        let Some(last) = self.last_rank() else { return Ok(rows) };
        let may_be_first = ticks.values().iter().map(|tick| Some(self.rank(*tick) <= last));
        let mask: BooleanArray = may_be_first.collect();
        if mask.true_count() == mask.len() {
            return Ok(rows);
        }
        Ok(filter_record_batch(&rows, &mask)?)
    }

    fn record(&self, ticks: &[i64]) {
        let mut ranks = self.ranks.lock();
        for tick in ticks {
            let rank = self.rank(*tick);
            if ranks.len() < self.request.rows {
                ranks.push(rank);
            } else if let Some(mut last) = ranks.peek_mut()
                && rank < *last
            {
                *last = rank;
            }
        }
    }

    fn rank(&self, tick: i64) -> i64 {
        if self.request.descending { !tick } else { tick }
    }

    /// Rank of the first time of a span; of an unknown span the lowest one.
    fn first_rank(&self, span: Option<(i64, i64)>) -> i64 {
        let tick = |(first, last)| if self.request.descending { last } else { first };
        span.map_or(i64::MIN, |span| self.rank(tick(span)))
    }

    /// Rank of the last of the first rows, if as many as are wanted are recorded.
    fn last_rank(&self) -> Option<i64> {
        let ranks = self.ranks.lock();
        if ranks.len() < self.request.rows { None } else { ranks.peek().copied() }
    }
}

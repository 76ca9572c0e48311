//! Descriptions of a scan: what it reads, the operators that run at its partitions, and what it knows of its columns.
//!
//! Optimizer rules change a scan by its description; the scan names none of the rules.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use partita_advice::FilterClass;
use partita_proto::catalog::Table;
use partita_proto::domain::Domains;
use partita_proto::id::ColumnId;
use partita_proto::probe::Probe;
use partita_proto::service::{FirstByTime, KeyOrder, ReadFrom};

use super::row_filter::RowFilter;

/// Description of a scan.
#[derive(Clone, Debug)]
pub(crate) struct ScanSpec {
    pub(crate) table: Arc<Table>,
    /// The table that the statement names, if the scan reads a copy in its place.
    pub(crate) in_place_of: Option<Arc<Table>>,
    /// Columns of the scan, by SQL name.
    pub(crate) schema: SchemaRef,
    /// Columns of the requests, by storage name: the same, or one that only counts rows if the scan has none. The
    /// columns that only the row filter needs follow.
    pub(crate) columns: SchemaRef,
    /// Domains of the filters, and of the row predicate.
    pub(crate) domains: Domains,
    /// Tests of the filters for indexes, beside the domains.
    pub(crate) probes: Vec<Probe>,
    /// Columns that the filters test, without those of the row predicate.
    pub(crate) filters: Vec<(ColumnId, FilterClass)>,
    /// Filter of the rows that may be read; `None`: all of them.
    pub(crate) row_filter: Option<RowFilter>,
    /// Partitions that may hold rows of the domains, as positions in the table's map.
    pub(crate) touched: Vec<usize>,
    pub(crate) limit: Option<usize>,
    /// Number of outputs of the plan.
    pub(crate) outputs: usize,
    /// Number of streams of each partition.
    pub(crate) streams: usize,
    /// Estimated rows of the partitions; `None` without an estimate, and with a row filter: the figure counts the rows
    /// of others.
    pub(crate) rows: Option<usize>,
    /// True if only the newest row of each series is needed.
    pub(crate) newest_only: bool,
    /// Replicas that may be read.
    pub(crate) reading: Reading,
    /// If set, only these rows of each partition are needed.
    pub(crate) first_by_time: Option<FirstByTime>,
    /// Order of the rows of each output, if any; each partition has one stream then.
    pub(crate) order: Option<ScanOrder>,
    /// Operators pushed down to the partitions, if any.
    pub(crate) at_data: Option<AtData>,
}

impl ScanSpec {
    /// The table that the statement names.
    pub(crate) fn named(&self) -> &Arc<Table> {
        self.in_place_of.as_ref().unwrap_or(&self.table)
    }

    /// Limit of the requests. A row filter drops rows after them, so with one they have no limit.
    pub(crate) fn request_limit(&self) -> Option<usize> {
        self.limit.filter(|_| self.row_filter.is_none())
    }

    /// Replicas that may answer. `is_picked`: a follower is asked, because there are many reads.
    pub(super) fn read_from(&self, is_picked: bool) -> ReadFrom {
        let staleness_max = self.reading.staleness_max;
        if !is_picked && staleness_max.is_zero() {
            return ReadFrom::Leader;
        }
        ReadFrom::AnyReplica { staleness_max, schema: self.table.schema.version }
    }

    /// Order of the requests' rows, if any.
    pub(super) fn key_order(&self) -> Option<KeyOrder> {
        self.order.as_ref().map(|order| order.keys)
    }

    /// Columns of the rows that the scan returns.
    pub(super) fn output_schema(&self) -> SchemaRef {
        match &self.at_data {
            Some(at_data) => at_data.chain.schema(),
            None => Arc::clone(&self.schema),
        }
    }
}

/// Planner extension of a statement: replicas that its scans may read, and how old their rows may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Writes that were acknowledged longer ago than this are seen; zero: all acknowledged writes. With a bound, any
    /// replica may answer.
    pub(crate) staleness_max: Duration,
    /// True if followers are asked where a partition is read much.
    pub(crate) at_followers: bool,
    /// True if cells of wide tables are read that are garbage and not yet removed.
    pub(crate) uncollected: bool,
}

impl Reading {
    /// The same without a bound on the age of rows: all acknowledged writes are seen.
    pub(crate) fn linearizable(self) -> Self {
        Self { staleness_max: Duration::ZERO, ..self }
    }
}

impl Default for Reading {
    fn default() -> Self {
        Self { staleness_max: Duration::ZERO, at_followers: true, uncollected: false }
    }
}

/// Order of the rows of each output of a scan.
#[derive(Clone, Debug)]
pub(crate) struct ScanOrder {
    /// The order as columns of the scan.
    pub(crate) ordering: LexOrdering,
    /// The same order as one of keys.
    pub(crate) keys: KeyOrder,
    /// The partitions of each output, as positions among those that are touched, in the order in which they are read.
    pub(super) outputs: Vec<Vec<usize>>,
}

/// Operators that run at the partitions of a scan.
#[derive(Clone, Debug)]
pub(crate) struct AtData {
    /// Encoded form for the nodes.
    pub(crate) bytes: Bytes,
    /// The operators over the scan, as if they ran here.
    pub(crate) chain: Arc<dyn ExecutionPlan>,
    /// Memory pool and disk for partitions whose node cannot run the operators.
    pub(crate) runtime: Arc<RuntimeEnv>,
}

impl fmt::Display for AtData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut plan = &self.chain;
        // The chain ends at the scan, which has no input.
        while let [input] = plan.children()[..] {
            let operator = displayable(plan.as_ref()).one_line().to_string();
            write!(f, "{separator}{}", operator.trim_end())?;
            separator = " <- ";
            plan = input;
        }
        Ok(())
    }
}

/// Knowledge about a column within one series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Within {
    /// All rows have the same value.
    Same,
    /// The time index.
    Time,
    Other,
}

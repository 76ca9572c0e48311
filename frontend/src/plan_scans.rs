//! The scans of a plan: their cost, the number of partitions that they read, a common moment of opening, and notes
//! about what they read for the figures of statements and indexes.
//!
//! Columns of sorts and joins are found by name: one that several scans below have is left out.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::Arc;

use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use partita_advice::FilterClass;
use partita_proto::catalog::Table;
use partita_proto::domain::Domain;
use partita_proto::id::{ColumnId, PartitionId, TableId};
use partita_proto::schema::{Column, ColumnType};
use partita_proto::service::{IndexKey, IndexUse};
use partita_proto::value::Value;

use crate::error::SqlError;
use crate::near_end::NearEndExec;
use crate::reads::Reads;
use crate::scan::{PartitionScanExec, ScanSpec, Usage};

/// Cost of all scans of a plan so far.
pub(crate) fn usage(plan: &Arc<dyn ExecutionPlan>) -> Usage {
    let mut usage = Usage::default();
    for scan in scans(plan, NearEndExec::read) {
        usage.add(&as_scan(&scan).map(PartitionScanExec::usage).unwrap_or_default());
    }
    usage
}

/// Table of each scan of a plan, and the number of partitions that it reads.
pub(crate) fn fan_out(plan: &Arc<dyn ExecutionPlan>) -> Vec<(TableId, u64)> {
    let scans = scans(plan, NearEndExec::read);
    let table_and_parts = |scan: &PartitionScanExec| {
        let spec = scan.spec();
        (spec.table.id, spec.touched.len() as u64)
    };
    scans.iter().filter_map(|scan| as_scan(scan).map(table_and_parts)).collect()
}

/// Partitions that each scan of a plan reads, and the number of rows that it has read in them; the number is zero with a
/// row predicate, as in [`usage`].
pub(crate) fn touched(plan: &Arc<dyn ExecutionPlan>) -> Vec<(Vec<PartitionId>, u64)> {
    let scans = scans(plan, NearEndExec::read);
    let partitions_and_rows = |scan: &PartitionScanExec| {
        let spec = scan.spec();
        let routes = spec.table.partitions.routes();
        let touched = spec.touched.iter().filter_map(|position| routes.get(*position));
        (touched.map(|route| route.partition).collect(), scan.usage().rows_scanned)
    };
    scans.iter().filter_map(|scan| as_scan(scan).map(partitions_and_rows)).collect()
}

/// Record of one scan of a statement. With a row predicate it has the table and the columns only: other figures would
/// count the rows of others.
#[derive(Clone, Debug)]
pub(crate) struct ScanNote {
    pub(crate) table: Arc<Table>,
    /// False with a row predicate.
    pub(crate) is_measured: bool,
    /// Columns that the filters test.
    pub(crate) filters: Vec<(ColumnId, FilterClass)>,
    /// Columns that are read.
    pub(crate) columns: Vec<ColumnId>,
    /// Columns that rows are sorted by.
    pub(crate) sorts: Vec<ColumnId>,
    /// Tables that this one is joined with, and the names of the columns that are equal and have one name in both.
    pub(crate) joins: Vec<(Arc<Table>, Vec<String>)>,
    /// Time of the oldest row asked for, in milliseconds since 1970; `None`: rows of any age.
    pub(crate) oldest_ms: Option<i64>,
    /// Rows that the filters directly above have left.
    pub(crate) rows_returned: u64,
    pub(crate) indexes: BTreeMap<IndexKey, IndexUse>,
}

impl ScanNote {
    fn new(scan: &PartitionScanExec, filtered_rows: Option<u64>) -> Self {
        let spec = scan.spec();
        let schema = &spec.table.schema;
        let columns = spec.schema.fields().iter().filter_map(|field| schema.column(field.name()));
        let is_measured = spec.row_filter.is_none();
        let returned = || filtered_rows.unwrap_or_else(|| scan.rows_returned());
        let time_index = schema.time_index();
        Self {
            table: Arc::clone(spec.named()),
            is_measured,
            filters: if is_measured { spec.filters.clone() } else { Vec::new() },
            columns: columns.map(|column| column.id).collect(),
            sorts: ordered_columns(spec),
            joins: Vec::new(),
            oldest_ms: scan
                .time_domain()
                .filter(|_| is_measured)
                .zip(time_index)
                .and_then(|(domain, column)| first_ms(domain, column)),
            rows_returned: if is_measured { returned() } else { 0 },
            indexes: scan.index_use(),
        }
    }
}

/// The columns by which a scan orders its rows, so that no operator sorts them.
fn ordered_columns(spec: &ScanSpec) -> Vec<ColumnId> {
    let keys = spec.order.iter().flat_map(|order| order.ordering.iter());
    let names = keys.filter_map(|key| key.expr.downcast_ref::<PhysicalColumn>());
    names.filter_map(|column| Some(spec.table.schema.column(column.name())?.id)).collect()
}

/// The least time in a domain of a time index, in milliseconds.
fn first_ms(domain: &Domain, time_index: &Column) -> Option<i64> {
    let ColumnType::Timestamp(unit, _) = time_index.column_type else { return None };
    match &domain.intervals().first()?.low {
        Bound::Included(Value::Timestamp(ticks)) | Bound::Excluded(Value::Timestamp(ticks)) => {
            let ms = i128::from(*ticks) * 1_000 / i128::from(unit.per_second());
            i64::try_from(ms).ok()
        }
        _ => None,
    }
}

/// Notes about all scans of a plan so far.
pub(crate) fn notes(plan: &Arc<dyn ExecutionPlan>) -> Vec<ScanNote> {
    let nodes = nodes(plan);
    let mut notes = BTreeMap::new();
    for (position, node) in nodes.iter().enumerate() {
        if let Some(scan) = as_scan(&node.plan) {
            notes.insert(position, ScanNote::new(scan, node.filtered_rows));
        }
    }
    for (position, node) in nodes.iter().enumerate() {
        if let Some(sort) = node.plan.downcast_ref::<SortExec>() {
            for key in sort.expr() {
                if let Some((scan, column)) = column_of(&notes, position..node.end, &key.expr) {
                    add_sort(&mut notes, scan, column);
                }
            }
        }
        if let Some(join) = node.plan.downcast_ref::<HashJoinExec>() {
            // The inputs follow each other.
            let middle = nodes.get(position + 1).map_or(node.end, |input| input.end);
            for (left_expr, right_expr) in join.on() {
                let first = column_of(&notes, position + 1..middle, left_expr);
                let second = column_of(&notes, middle..node.end, right_expr);
                if let Some((first, second)) = first.zip(second) {
                    add_join(&mut notes, first, second);
                }
            }
        }
    }
    notes.into_values().collect()
}

/// Notes by the position of their scan in the plan.
type NotesByPosition = BTreeMap<usize, ScanNote>;

/// The column of a scan that an expression names, if only one scan among some nodes has it.
fn column_of(
    notes: &NotesByPosition,
    nodes: Range<usize>,
    expr: &Arc<dyn PhysicalExpr>,
) -> Option<(usize, ColumnId)> {
    let name = expr.downcast_ref::<PhysicalColumn>()?.name();
    let mut candidates = notes.range(nodes).filter_map(|(position, note)| {
        let column = note.table.schema.column(name)?;
        note.columns.contains(&column.id).then_some((*position, column.id))
    });
    let first = candidates.next()?;
    candidates.next().is_none().then_some(first)
}

fn add_sort(notes: &mut NotesByPosition, scan: usize, column: ColumnId) {
    if let Some(note) = notes.get_mut(&scan)
        && !note.sorts.contains(&column)
    {
        note.sorts.push(column);
    }
}

/// Adds the join of a scan with another one, and the name of their columns if it is the same.
fn add_join(
    notes: &mut NotesByPosition,
    (scan, column): (usize, ColumnId),
    (joined_scan, joined_column): (usize, ColumnId),
) {
    let name = |scan: usize, column: ColumnId| {
        let columns = &notes.get(&scan)?.table.schema.columns;
        let column = columns.iter().find(|candidate| candidate.id == column)?;
        Some(column.name.clone())
    };
    let common_name = name(scan, column)
        .filter(|common| name(joined_scan, joined_column).is_some_and(|joined| joined == *common));
    let Some(joined) = notes.get(&joined_scan).map(|note| Arc::clone(&note.table)) else { return };
    let Some(note) = notes.get_mut(&scan) else { return };
    match note.joins.iter_mut().find(|(table, _)| table.id == joined.id) {
        Some((_, names)) => names.extend(common_name),
        None => note.joins.push((joined, common_name.into_iter().collect())),
    }
}

/// An operator of a plan.
struct Node {
    plan: Arc<dyn ExecutionPlan>,
    /// Position after the last operator below it.
    end: usize,
    /// Rows that are left of those of the operator, by a filter with nothing but operators that pass rows on between.
    filtered_rows: Option<u64>,
}

/// The operators of a plan, each before those below it.
fn nodes(plan: &Arc<dyn ExecutionPlan>) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    let mut parents = Vec::new();
    let mut stack: Vec<(Arc<dyn ExecutionPlan>, Option<usize>, Option<u64>)> =
        vec![(Arc::clone(plan), None, None)];
    while let Some((plan, parent, filtered_rows)) = stack.pop() {
        let position = nodes.len();
        let of_inputs = match plan.name() {
            _ if plan.downcast_ref::<FilterExec>().is_some() => {
                let own_rows = plan.metrics().and_then(|metrics| metrics.output_rows());
                filtered_rows.or(own_rows.map(|rows| rows as u64))
            }
            "ProjectionExec" | "RepartitionExec" | "CoalescePartitionsExec" | "CooperativeExec" => {
                filtered_rows
            }
            _ => None,
        };
        let inputs: Vec<Arc<dyn ExecutionPlan>> = match plan.downcast_ref::<NearEndExec>() {
            Some(near) => near.read().iter().map(Arc::clone).collect(),
            None => plan.children().into_iter().map(Arc::clone).collect(),
        };
        stack.extend(inputs.into_iter().rev().map(|input| (input, Some(position), of_inputs)));
        nodes.push(Node { plan, end: position + 1, filtered_rows });
        parents.push(parent);
    }
    for position in (0..nodes.len()).rev() {
        if let Some(parent) = parents[position] {
            nodes[parent].end = nodes[parent].end.max(nodes[position].end);
        }
    }
    nodes
}

/// Opens all scans of a table and of its copies in a plan, so that they do not see later writes. Notes in `reads` what was
/// read of the table.
pub(crate) async fn pin_scans(
    plan: &Arc<dyn ExecutionPlan>,
    table: &Table,
    reads: Option<&Reads>,
) -> Result<(), SqlError> {
    for scan in scans(plan, NearEndExec::spans) {
        let Some(scan) = as_scan(&scan) else { continue };
        // A copy gets the rows that are written to its source.
        let read = &scan.spec().table;
        let is_copy = read.copy.as_ref().is_some_and(|copy| copy.source == table.id);
        if read.id == table.id || is_copy {
            scan.pin(reads.filter(|_| !is_copy)).await?;
        }
    }
    Ok(())
}

fn as_scan(plan: &Arc<dyn ExecutionPlan>) -> Option<&PartitionScanExec> {
    plan.downcast_ref()
}

/// Scans of a plan; `spans` chooses those below an operator that reads by spans of time.
fn scans(
    plan: &Arc<dyn ExecutionPlan>,
    spans: impl Fn(&NearEndExec) -> &[Arc<dyn ExecutionPlan>],
) -> Vec<Arc<dyn ExecutionPlan>> {
    let mut leaves = Vec::new();
    let mut stack = vec![Arc::clone(plan)];
    while let Some(plan) = stack.pop() {
        match plan.downcast_ref::<NearEndExec>() {
            Some(near) => stack.extend(spans(near).iter().map(Arc::clone)),
            None => stack.extend(plan.children().into_iter().map(Arc::clone)),
        }
        if as_scan(&plan).is_some() {
            leaves.push(plan);
        }
    }
    leaves
}

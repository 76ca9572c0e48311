//! Scans in an order: which order of columns the keys of a table give, which partitions follow each other in it, and
//! rows that are sorted here because their node did not do so.
//!
//! ```text
//!   range:        p0, p1, p2 ── one output
//!   hash, rules:  p0 ── output  ┐
//!                 p1, p2 ── ..  ┴── merged above; the rows of each output have one placement
//! ```
//!
//! A key begins with the placement, so the rows of a partition are in the order of the key's columns only if they have
//! one placement: a rule, or the bucket of values that a predicate binds. Partitions of one placement follow each other.
//!
//! Invariants:
//! - a column of which a predicate allows one value orders nothing. Floats do: two zeros are equal, and apart in keys;
//! - keys have NULL first, or last if they descend. At the other end a node can put NULLs of the first column that orders
//!   anything; then a partition that may have any is an output of its own, as its rows do not follow those of another one;
//! - after all columns of a unique key, further columns order nothing.

use std::fmt;
use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use partita_proto::catalog::Table;
use partita_proto::domain::{Domain, Domains};
use partita_proto::id::ColumnId;
use partita_proto::key::{KeyCodec, only_placement};
use partita_proto::placement::Placement;
use partita_proto::range::KeyRange;
use partita_proto::schema::{Column, ColumnType, TableSchema};
use partita_proto::service::KeyOrder;

use super::spec::{ScanOrder, ScanSpec};
use crate::error::SqlError;

type Rows = BoxStream<'static, Result<RecordBatch, DataFusionError>>;

/// The order of keys that orders rows by some columns of their table; `None` if neither does.
pub(super) fn key_order(
    schema: &TableSchema,
    domains: &Domains,
    columns: &[(ColumnId, SortOptions)],
) -> Option<KeyOrder> {
    let mut key = schema.key_columns().filter(|column| !is_bound(column, domains));
    let mut order: Option<KeyOrder> = None;
    for (id, options) in columns {
        if is_bound(schema.column_by_id(*id)?, domains) {
            continue;
        }
        let Some(column) = key.next() else {
            if schema.options.append_mode {
                return None;
            }
            break;
        };
        if column.id != *id || is_float(column) {
            return None;
        }
        let domain = domains.get(&column.storage_name);
        let may_be_null = column.nullable && domain.is_none_or(Domain::allows_null);
        let nulls_apart = may_be_null && options.nulls_first == options.descending;
        // Keys may be in descending order of a column, which has no NULL.
        let descending = options.descending != schema.descends(*id);
        match order {
            None => order = Some(KeyOrder { descending, nulls_apart }),
            Some(order) if nulls_apart || order.descending != descending => return None,
            Some(_) => {}
        }
    }
    order
}

/// Returns true if a column has one value in all rows of some domains. Of floats it is not known: zeros are equal, and
/// apart in keys.
fn is_bound(column: &Column, domains: &Domains) -> bool {
    let points = domains.get(&column.storage_name).and_then(|domain| domain.as_points(1));
    !is_float(column) && points.is_some_and(|points| points.len() == 1)
}

/// The first column of the key that orders anything.
fn first_unbound<'a>(schema: &'a TableSchema, domains: &Domains) -> Option<&'a Column> {
    schema.key_columns().find(|column| !is_bound(column, domains))
}

fn is_float(column: &Column) -> bool {
    matches!(column.column_type, ColumnType::Float32 | ColumnType::Float64)
}

/// The outputs of a scan in an order of keys: partitions that follow each other, as positions in `touched`; those that
/// overlap `null_ranges` follow none. `None` if the rows of a partition have several placements.
fn outputs(
    table: &Table,
    touched: &[usize],
    ranges: &[KeyRange],
    null_ranges: &[KeyRange],
    order: KeyOrder,
) -> Option<Vec<Vec<usize>>> {
    let placed = !matches!(table.placement, Placement::Range);
    let routes = table.partitions.routes();
    // Each output with its placement, and true if other partitions may follow.
    let mut outputs: Vec<(Option<u16>, bool, Vec<usize>)> = Vec::new();
    for (position, route) in touched.iter().enumerate() {
        let keys = &routes[*route].keys;
        let placement = match placed {
            true => Some(only_placement(keys, ranges)?),
            false => None,
        };
        let joins = !null_ranges.iter().any(|range| range.overlaps(keys));
        match outputs.last_mut() {
            Some((last, true, output)) if joins && *last == placement => output.push(position),
            _ => outputs.push((placement, joins, vec![position])),
        }
    }
    let in_order = |(_, _, mut output): (Option<u16>, bool, Vec<usize>)| {
        if order.descending {
            output.reverse();
        }
        output
    };
    Some(outputs.into_iter().map(in_order).collect())
}

/// A scan in an order of its columns, of which the first `fetch` rows are needed; `None` if keys do not give that order,
/// or the scan leaves out rows already.
///
/// # Errors
/// Fails if the table's key is not valid.
pub(super) fn in_order(
    spec: &ScanSpec,
    sort: &LexOrdering,
    fetch: Option<usize>,
) -> Result<Option<ScanSpec>, SqlError> {
    let table = &spec.table;
    if spec.newest_only
        || spec.first_by_time.is_some()
        || spec.at_data.is_some()
        || spec.limit.is_some()
        || spec.order.is_some()
    {
        return Ok(None);
    }
    let column_of = |key: &PhysicalSortExpr| {
        let position = key.expr.downcast_ref::<PhysicalColumn>()?.index();
        let column = table.schema.column(spec.schema.fields().get(position)?.name())?;
        Some((column.id, key.options))
    };
    let columns: Option<Vec<(ColumnId, SortOptions)>> = sort.iter().map(column_of).collect();
    let keys = columns.and_then(|columns| key_order(&table.schema, &spec.domains, &columns));
    let Some(keys) = keys else { return Ok(None) };
    let codec = KeyCodec::new(&table.schema, &table.placement)?;
    let ranges = codec.key_ranges(&table.schema, &table.placement, &spec.domains);
    let null_ranges = match first_unbound(&table.schema, &spec.domains).filter(|_| keys.nulls_apart)
    {
        Some(column) => {
            let mut domains = spec.domains.clone();
            domains.restrict(&column.storage_name, Domain::null_only());
            codec.key_ranges(&table.schema, &table.placement, &domains)
        }
        None => Vec::new(),
    };
    let outputs = outputs(table, &spec.touched, &ranges, &null_ranges, keys);
    let Some(outputs) = outputs else { return Ok(None) };
    Ok(Some(ScanSpec {
        limit: fetch,
        outputs: outputs.len(),
        streams: 1,
        order: Some(ScanOrder { ordering: sort.clone(), keys, outputs }),
        ..spec.clone()
    }))
}

/// Rows of a partition that are read once.
struct Unsorted {
    schema: SchemaRef,
    rows: Mutex<Option<Rows>>,
}

impl fmt::Debug for Unsorted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unsorted")
    }
}

impl PartitionStream for Unsorted {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = self.rows.lock().take().unwrap_or_else(|| futures::stream::empty().boxed());
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), rows))
    }
}

/// Sorts rows of a partition, with the memory of the statement: a node returns them in another order if it has another
/// version, or would have to merge too much.
pub(super) fn sorted(
    rows: Rows,
    spec: &ScanSpec,
    order: &ScanOrder,
    context: &Arc<TaskContext>,
) -> Result<Rows, DataFusionError> {
    let schema = spec.output_schema();
    let rows = Unsorted { schema: Arc::clone(&schema), rows: Mutex::new(Some(rows)) };
    let no_order: [LexOrdering; 0] = [];
    let source =
        StreamingTableExec::try_new(schema, vec![Arc::new(rows)], None, no_order, false, None)?;
    let sort = SortExec::new(order.ordering.clone(), Arc::new(source)).with_fetch(spec.limit);
    Ok(sort.execute(0, Arc::clone(context))?.boxed())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use partita_proto::id::SchemaVersion;
    use partita_proto::rule::Comparison;
    use partita_proto::schema::{Semantic, TableOptions, Unit};
    use partita_proto::value::Value;

    use super::*;

    fn column(id: u32, name: &str, column_type: ColumnType, nullable: bool) -> Column {
        Column {
            id: ColumnId(id),
            name: name.to_owned(),
            storage_name: name.to_owned(),
            column_type,
            nullable,
            semantic: Semantic::Tag,
            default: None,
            generated: None,
            missing: None,
            length: None,
            json: None,
            indexes: Vec::new(),
            comment: None,
        }
    }

    /// Key (`a`, `n`, `f`, `t`), of which `n` may be NULL and `f` is a float, and a field `v`.
    fn schema(append_mode: bool) -> TableSchema {
        let time = ColumnType::Timestamp(Unit::Millisecond, false);
        TableSchema {
            version: SchemaVersion(1),
            columns: vec![
                column(1, "a", ColumnType::String, false),
                column(2, "n", ColumnType::Int64, true),
                column(3, "f", ColumnType::Float64, false),
                column(4, "t", time, false),
                column(5, "v", ColumnType::Int64, true),
            ],
            key: (1..=4).map(ColumnId).collect(),
            options: TableOptions { append_mode, ..TableOptions::default() },
            next_column: ColumnId(6),
            schema_on_write: false,
            checks: Vec::new(),
            view: None,
        }
    }

    /// The order for a text such as `a, n DESC NULLS LAST`, where the first columns have these domains.
    fn order(sort: &str, domains: &[(&str, Domain)], append_mode: bool) -> Option<KeyOrder> {
        let schema = schema(append_mode);
        let mut by_name = Domains::default();
        for (name, domain) in domains {
            by_name.restrict(name, domain.clone());
        }
        let columns = sort.split(", ").map(|key| {
            let descending = key.contains(" DESC");
            let nulls_first = match key.split_once(" NULLS ") {
                Some((_, place)) => place == "FIRST",
                // As in SQL: NULL is the largest value.
                None => descending,
            };
            let name = key.split(' ').next().unwrap();
            (schema.column(name).unwrap().id, SortOptions { descending, nulls_first })
        });
        key_order(&schema, &by_name, &columns.collect::<Vec<_>>())
    }

    fn point(value: i64) -> Domain {
        Domain::point(Value::Int(value))
    }

    #[test]
    fn keys_order_their_first_columns() {
        let (ascending, descending) = (Some(KeyOrder::ASCENDING), Some(KeyOrder::DESCENDING));
        assert_eq!(order("a", &[], false), ascending);
        assert_eq!(order("a DESC", &[], true), descending);
        assert_eq!(order("a DESC NULLS LAST", &[], false), descending);
        for other in ["n NULLS FIRST", "v", "t", "a, t", "a, n DESC NULLS LAST", "a, v"] {
            assert_eq!(order(other, &[], false), None, "{other}");
        }
    }

    #[test]
    fn null_comes_first_in_keys() {
        let (ascending, descending) = (Some(KeyOrder::ASCENDING), Some(KeyOrder::DESCENDING));
        assert_eq!(order("a, n NULLS FIRST", &[], false), ascending);
        assert_eq!(order("a DESC, n DESC NULLS LAST", &[], false), descending);
        assert_eq!(order("a, n", &[], false), None);
        assert_eq!(order("a DESC, n DESC", &[], false), None);
        // Those of the first column that orders anything may be put at the other end.
        let bound = [("a", Domain::point(Value::String("x".to_owned())))];
        for (sort, descending, nulls_apart) in [
            ("n", false, true),
            ("n NULLS FIRST", false, false),
            ("a, n DESC", true, true),
            ("n DESC NULLS LAST", true, false),
        ] {
            assert_eq!(order(sort, &bound, false), Some(KeyOrder { descending, nulls_apart }));
        }
        let some = [("n", Domain::compare(Comparison::Greater, Value::Int(3)))];
        assert_eq!(order("a, n", &some, false), ascending);
        assert_eq!(order("a DESC, n DESC", &some, false), descending);
    }

    #[test]
    fn columns_of_one_value_order_nothing() {
        let bound = [("a", Domain::point(Value::String("x".to_owned()))), ("v", point(1))];
        assert_eq!(order("n NULLS FIRST", &bound, false), Some(KeyOrder::ASCENDING));
        assert_eq!(
            order("a DESC, v DESC, n NULLS FIRST", &bound, false),
            Some(KeyOrder::ASCENDING)
        );
        assert_eq!(order("a", &bound, false), None, "nothing is to be ordered");
        // Zeros of both signs are equal, and have different keys.
        let zero = [
            ("a", Domain::point(Value::String("x".to_owned()))),
            ("n", point(1)),
            ("f", Domain::point(Value::Float(0.0))),
        ];
        assert_eq!(order("t", &zero, false), None);
        assert_eq!(order("f", &zero, false), None);
    }

    #[test]
    fn columns_behind_a_unique_key_order_nothing() {
        let mut schema = schema(false);
        schema.key.retain(|id| *id == ColumnId(1) || *id == ColumnId(4));
        let options = SortOptions { descending: true, nulls_first: true };
        let columns = [1, 4, 5].map(|id| (ColumnId(id), options));
        let domains = Domains::default();
        assert_eq!(key_order(&schema, &domains, &columns), Some(KeyOrder::DESCENDING));
        schema.options.append_mode = true;
        assert_eq!(key_order(&schema, &domains, &columns), None);
        assert_eq!(key_order(&schema, &domains, &columns[..2]), Some(KeyOrder::DESCENDING));
    }

    #[test]
    fn rows_of_a_partition_have_one_placement_or_several() {
        let range = |start: &[u8], end: Option<&[u8]>| KeyRange {
            start: Bytes::copy_from_slice(start),
            end: end.map(Bytes::copy_from_slice),
        };
        let first_half = range(&[], Some(&[0, 2]));
        let rule = range(&[0, 1], Some(&[0, 2]));
        assert_eq!(only_placement(&first_half, std::slice::from_ref(&rule)), Some(1));
        assert_eq!(only_placement(&first_half, &[range(&[0, 0], Some(&[0, 3]))]), None);
        assert_eq!(only_placement(&first_half, &[range(&[0, 1, 7], Some(&[0, 1, 9]))]), Some(1));
        assert_eq!(only_placement(&first_half, &[range(&[0, 0, 7], Some(&[0, 0, 9])), rule]), None);
        assert_eq!(only_placement(&range(&[0, 5], None), &[KeyRange::all()]), None);
        assert_eq!(only_placement(&first_half, &[range(&[0, 7], Some(&[0, 8]))]), None);
    }
}

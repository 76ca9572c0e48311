//! Rows of a wide table, by queries for spans of its keys.
//!
//! ```text
//!   spans ── up to 64 of them ──▶ SELECT .. WHERE key ranges AND cells ORDER BY key ── batches of cells ──▶ rows
//! ```
//!
//! The queries run one after another, as the reader needs rows. Names in their text come from the catalog; values are
//! parameters. A row is put together as a whole, however large it is, so its memory counts as that of queries does.

use std::collections::VecDeque;
use std::fmt::Write;
use std::ops::Bound;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use datafusion::common::ScalarValue;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::{StreamExt, TryStreamExt, stream};
use partita_bigtable::filter::Narrowing;
use partita_bigtable::rows::KeySpan;
use partita_bigtable::{Cell, Row, RowStream, Scan};
use partita_frontend::sql::identifier::quote;
use partita_frontend::{Output, Session, SqlError};
use partita_proto::catalog::Table;
use partita_proto::schema::ColumnType;
use partita_proto::size::batch_bytes;
use tonic::Status;

use super::keys::KeyRange;
use crate::flight::status_of;

/// Spans that one query reads.
const SPANS_MAX: usize = 64;
/// Bytes of a cell in memory beside its qualifier and value, about.
const CELL_BYTES: usize = 192;
/// Type of the cells' timestamps in statements.
const TIME: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// A query and the values of its parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Query {
    pub(super) text: String,
    pub(super) values: Vec<ScalarValue>,
}

impl Query {
    /// Appends a parameter.
    fn value(&mut self, value: ScalarValue) {
        self.values.push(value);
        // Writing to a string cannot fail.
        let _ = write!(self.text, "${}", self.values.len());
    }

    /// Appends a comparison of a column with a parameter.
    fn compare(&mut self, column: &str, operator: &str, value: ScalarValue) {
        let _ = write!(self.text, "{column} {operator} ");
        self.value(value);
    }

    /// Appends the condition that a key lies in one of some ranges. Those of one key are a list: it costs less than as
    /// many ranges, and a table that is placed by hash reads the partitions of the keys only.
    fn ranges(&mut self, column: &str, ranges: &[KeyRange]) {
        let mut separator = "";
        self.text.push('(');
        let keys: Vec<&ScalarValue> = ranges.iter().filter_map(KeyRange::key).collect();
        if !keys.is_empty() {
            let _ = write!(self.text, "{column} IN (");
            for (index, key) in keys.into_iter().enumerate() {
                if index > 0 {
                    self.text.push_str(", ");
                }
                self.value(key.clone());
            }
            self.text.push(')');
            separator = " OR ";
        }
        for range in ranges.iter().filter(|range| range.key().is_none()) {
            self.text.push_str(separator);
            self.range(column, range);
            separator = " OR ";
        }
        self.text.push(')');
    }

    fn range(&mut self, column: &str, range: &KeyRange) {
        match (&range.start, &range.end) {
            (None, None) => self.text.push_str("TRUE"),
            (Some(start), None) => self.compare(column, ">=", start.clone()),
            (None, Some(end)) => self.compare(column, "<", end.clone()),
            (Some(start), Some(end)) => {
                self.compare(column, ">=", start.clone());
                self.text.push_str(" AND ");
                self.compare(column, "<", end.clone());
            }
        }
    }

    /// Runs the query.
    ///
    /// # Errors
    /// Those of the statement.
    pub(super) async fn run(&self, session: &Arc<Session>) -> Result<Output, SqlError> {
        let mut statements = session.parse(&self.text).await?;
        let (Some(statement), true) = (statements.pop(), statements.is_empty()) else {
            return Err(SqlError::internal("a query is not one statement"));
        };
        let types: Vec<_> = self.values.iter().map(|value| Some(value.data_type())).collect();
        let prepared = session.prepare(statement, &types).await?;
        session.run_prepared(&prepared, self.values.clone()).await
    }
}

/// Names of a wide table, quoted for statements.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// Table, with its database.
    pub(super) table: String,
    /// Row key, family, qualifier, timestamp and value.
    pub(super) columns: [String; 5],
    /// Type of row keys.
    key_type: ColumnType,
}

impl Names {
    /// The names of a table.
    ///
    /// # Errors
    /// When it is not a wide one.
    pub(super) fn of(table: &Table) -> Result<Self, SqlError> {
        let broken = || SqlError::internal("a wide table does not have five columns");
        let columns: Vec<String> =
            table.schema.columns.iter().map(|column| quote(&column.name).into_owned()).collect();
        Ok(Self {
            table: format!("{}.{}", quote(&table.database), quote(&table.name)),
            columns: columns.try_into().map_err(|_| broken())?,
            key_type: table.schema.columns.first().ok_or_else(broken)?.column_type,
        })
    }

    /// The ranges of the row keys of spans, without those that no key lies in.
    fn ranges(&self, spans: &[KeySpan]) -> Vec<KeyRange> {
        spans.iter().filter_map(|span| KeyRange::of(span, self.key_type)).collect()
    }

    /// The DELETE of the rows of a span; `None` if no key lies in it.
    pub(super) fn deletion(&self, span: &KeySpan) -> Option<Query> {
        let range = KeyRange::of(span, self.key_type)?;
        let text = format!("DELETE FROM {} WHERE ", self.table);
        let mut query = Query { text, values: Vec::new() };
        query.range(&self.columns[0], &range);
        Some(query)
    }

    /// The queries of a scan, in their order.
    pub(super) fn queries(&self, scan: &Scan) -> Vec<Query> {
        let [key, family, qualifier, time, value] = &self.columns;
        let mut queries = Vec::new();
        for ranges in self.ranges(&scan.spans).chunks(SPANS_MAX) {
            let columns = format!("{key}, {family}, {qualifier}, {time}, {value}");
            let text = format!("SELECT {columns} FROM {} WHERE ", self.table);
            let mut query = Query { text, values: Vec::new() };
            query.ranges(key, ranges);
            narrow(&mut query, &scan.narrowing, [family, qualifier, time]);
            let order = if scan.is_reversed { " DESC" } else { "" };
            let _ =
                write!(query.text, " ORDER BY {key}{order}, {family}, {qualifier}, {time} DESC");
            queries.push(query);
        }
        if scan.is_reversed {
            queries.reverse();
        }
        queries
    }
}

/// Appends the conditions of the cells that are needed.
fn narrow(query: &mut Query, narrowing: &Narrowing, [family, qualifier, time]: [&str; 3]) {
    let mut conditions: Vec<(&str, &str, ScalarValue)> = Vec::new();
    if let Some(name) = &narrowing.family {
        conditions.push((family, "=", ScalarValue::Utf8View(Some(name.clone()))));
    }
    let bytes = |bytes: &Bytes| ScalarValue::BinaryView(Some(bytes.to_vec()));
    match &narrowing.qualifiers.start {
        Bound::Included(start) => conditions.push((qualifier, ">=", bytes(start))),
        Bound::Excluded(start) => conditions.push((qualifier, ">", bytes(start))),
        Bound::Unbounded => {}
    }
    match &narrowing.qualifiers.end {
        Bound::Included(end) => conditions.push((qualifier, "<=", bytes(end))),
        Bound::Excluded(end) => conditions.push((qualifier, "<", bytes(end))),
        Bound::Unbounded => {}
    }
    let moment = |micros| ScalarValue::TimestampMicrosecond(Some(micros), None);
    if narrowing.times.start_us > i64::MIN {
        conditions.push((time, ">=", moment(narrowing.times.start_us)));
    }
    if let Some(end) = narrowing.times.end_us {
        conditions.push((time, "<", moment(end)));
    }
    for (column, operator, value) in conditions {
        query.text.push_str(" AND ");
        query.compare(column, operator, value);
    }
}

/// Rows of queries that run one after another. Their memory is claimed by a reservation.
pub(super) fn rows(
    session: Arc<Session>,
    queries: Vec<Query>,
    memory: MemoryReservation,
) -> RowStream {
    let assembler = Assembler { rows: Vec::new(), row: None, family: None, bytes: 0, memory };
    let cursor = Cursor { session, queries: queries.into(), batches: None, assembler };
    stream::try_unfold(cursor, Cursor::next).boxed()
}

struct Cursor {
    session: Arc<Session>,
    queries: VecDeque<Query>,
    /// Cells of the query that runs.
    batches: Option<partita_frontend::RowStream>,
    assembler: Assembler,
}

impl Cursor {
    async fn next(mut self) -> Result<Option<(Vec<Row>, Self)>, Status> {
        self.assembler.release();
        loop {
            let rows = std::mem::take(&mut self.assembler.rows);
            if !rows.is_empty() {
                return Ok(Some((rows, self)));
            }
            let status = |error: SqlError| status_of(&error);
            if let Some(batches) = &mut self.batches {
                match batches.try_next().await.map_err(status)? {
                    Some(batch) => self.assembler.push(&batch).map_err(status)?,
                    None => {
                        self.batches = None;
                        self.assembler.end();
                    }
                }
                continue;
            }
            let Some(query) = self.queries.pop_front() else { return Ok(None) };
            match query.run(&self.session).await.map_err(status)? {
                Output::Rows { stream, .. } => self.batches = Some(stream),
                _ => return Err(Status::internal("a query has no rows")),
            }
        }
    }
}

/// Puts cells together to rows.
struct Assembler {
    /// Rows that are complete.
    rows: Vec<Row>,
    /// Row whose cells come.
    row: Option<Row>,
    /// Family of the last cell.
    family: Option<Arc<str>>,
    /// Bytes of the row whose cells come.
    bytes: usize,
    /// Memory of all rows that were put together since the last release.
    memory: MemoryReservation,
}

impl Assembler {
    /// Releases the memory of complete rows, which were read.
    fn release(&mut self) {
        self.memory.resize(self.bytes);
    }

    /// Takes cells in the order of their rows.
    fn push(&mut self, batch: &RecordBatch) -> Result<(), SqlError> {
        // Before the cells are copied; a batch is small.
        self.memory.try_grow(batch_bytes(batch) + batch.num_rows() * CELL_BYTES)?;
        let column = |index: usize, data_type: &DataType| cast(batch.column(index), data_type);
        let (keys, families) = (column(0, &DataType::BinaryView)?, column(1, &DataType::Utf8View)?);
        let qualifiers = column(2, &DataType::BinaryView)?;
        let (times, values) = (column(3, &TIME)?, column(4, &DataType::BinaryView)?);
        let (keys, families) = (keys.as_binary_view(), families.as_string_view());
        let (qualifiers, values) = (qualifiers.as_binary_view(), values.as_binary_view());
        let times = times.as_primitive::<TimestampMicrosecondType>();
        for index in 0..batch.num_rows() {
            let key = keys.value(index);
            if self.row.as_ref().is_none_or(|row| row.key != key) {
                self.end();
                self.row = Some(Row { key: Bytes::copy_from_slice(key), cells: Vec::new() });
            }
            let name = families.value(index);
            let family = match &self.family {
                Some(family) if **family == *name => Arc::clone(family),
                _ => Arc::from(name),
            };
            self.family = Some(Arc::clone(&family));
            let cell = Cell {
                family,
                qualifier: Bytes::copy_from_slice(qualifiers.value(index)),
                timestamp_us: times.value(index),
                value: Bytes::copy_from_slice(values.value(index)),
                label: None,
            };
            if let Some(row) = &mut self.row {
                self.bytes += cell.bytes() + CELL_BYTES;
                row.cells.push(cell);
            }
        }
        Ok(())
    }

    /// Completes the last row.
    fn end(&mut self) {
        self.rows.extend(self.row.take());
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, BinaryViewArray, StringViewArray, TimestampMicrosecondArray};
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};
    use partita_bigtable::filter::{ByteRange, TimeRange};

    use super::*;

    fn names() -> Names {
        let columns = ["k", "f", "q", "t", "v"].map(|name| format!("\"{name}\""));
        Names { table: "\"d\".\"w\"".to_owned(), columns, key_type: ColumnType::Binary }
    }

    fn span(start: &str, end: Option<&str>) -> KeySpan {
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        KeySpan { start: bytes(start), end: end.map(bytes) }
    }

    fn scan(spans: Vec<KeySpan>) -> Scan {
        Scan { spans, narrowing: Narrowing::none(), is_reversed: false, rows_max: None }
    }

    #[test]
    fn spans_and_cells_become_conditions_of_the_key() {
        let narrowing = Narrowing {
            family: Some("stats".to_owned()),
            qualifiers: ByteRange {
                start: Bound::Excluded(Bytes::from_static(b"a")),
                end: Bound::Included(Bytes::from_static(b"b")),
            },
            times: TimeRange { start_us: 5, end_us: Some(9) },
            ..Narrowing::none()
        };
        let spans = vec![span("", Some("b")), span("c", Some("d")), span("e", None)];
        let queries = names().queries(&Scan { narrowing, ..scan(spans) });
        let [query] = queries.as_slice() else { panic!("{queries:?}") };
        assert_eq!(
            query.text,
            "SELECT \"k\", \"f\", \"q\", \"t\", \"v\" FROM \"d\".\"w\" WHERE \
             (\"k\" < $1 OR \"k\" >= $2 AND \"k\" < $3 OR \"k\" >= $4) \
             AND \"f\" = $5 AND \"q\" > $6 AND \"q\" <= $7 AND \"t\" >= $8 AND \"t\" < $9 \
             ORDER BY \"k\", \"f\", \"q\", \"t\" DESC"
        );
        assert_eq!(query.values[1], ScalarValue::BinaryView(Some(b"c".to_vec())));
        assert_eq!(query.values[8], ScalarValue::TimestampMicrosecond(Some(9), None));
    }

    #[test]
    fn single_keys_are_a_list_beside_the_ranges() {
        let spans = vec![KeySpan::key(b"a"), span("b", Some("c")), KeySpan::key(b"d")];
        let queries = names().queries(&scan(spans));
        let condition = "WHERE (\"k\" IN ($1, $2) OR \"k\" >= $3 AND \"k\" < $4) ORDER BY";
        assert!(queries[0].text.contains(condition), "{}", queries[0].text);
        let key = |text: &str| ScalarValue::BinaryView(Some(text.as_bytes().to_vec()));
        assert_eq!(queries[0].values, [key("a"), key("d"), key("b"), key("c")]);
        let queries = names().queries(&scan(vec![KeySpan::key(b"a")]));
        assert!(queries[0].text.contains("WHERE (\"k\" IN ($1)) ORDER BY"), "{}", queries[0].text);
    }

    #[test]
    fn many_spans_are_read_by_several_queries_in_the_order_of_the_scan() {
        let spans: Vec<KeySpan> =
            (100..230).map(|key| KeySpan::key(key.to_string().as_bytes())).collect();
        let first = |queries: &[Query]| -> Vec<ScalarValue> {
            queries.iter().map(|query| query.values[0].clone()).collect()
        };
        let key = |text: &str| ScalarValue::BinaryView(Some(text.as_bytes().to_vec()));
        let queries = names().queries(&scan(spans.clone()));
        assert_eq!(first(&queries), [key("100"), key("164"), key("228")]);
        let queries = names().queries(&Scan { is_reversed: true, ..scan(spans) });
        assert_eq!(first(&queries), [key("228"), key("164"), key("100")]);
        assert!(queries[0].text.contains("ORDER BY \"k\" DESC, "), "{}", queries[0].text);
        let whole = names().queries(&scan(vec![KeySpan::all()]));
        assert!(whole[0].text.contains("WHERE (TRUE) ORDER BY"), "{}", whole[0].text);
        assert!(names().queries(&scan(Vec::new())).is_empty());
    }

    #[test]
    fn cells_of_batches_become_whole_rows() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(4_096));
        let memory = MemoryConsumer::new("rows").register(&pool);
        let mut assembler =
            Assembler { rows: Vec::new(), row: None, family: None, bytes: 0, memory };
        let mut push = |cells: &[(&str, &str, i64)]| {
            let keys = BinaryViewArray::from_iter_values(cells.iter().map(|cell| cell.0));
            let families = StringViewArray::from_iter_values(cells.iter().map(|_| "f"));
            let qualifiers = BinaryViewArray::from_iter_values(cells.iter().map(|cell| cell.1));
            let times =
                TimestampMicrosecondArray::from_iter_values(cells.iter().map(|cell| cell.2));
            let columns: [(&str, ArrayRef); 5] = [
                ("k", Arc::new(keys.clone())),
                ("f", Arc::new(families)),
                ("q", Arc::new(qualifiers)),
                ("t", Arc::new(times)),
                ("v", Arc::new(keys)),
            ];
            assembler.push(&RecordBatch::try_from_iter(columns).unwrap()).unwrap();
            assembler.rows.len()
        };
        assert_eq!(push(&[("a", "p", 2), ("a", "p", 1)]), 0);
        assert_eq!(push(&[("a", "q", 1), ("b", "p", 1), ("c", "p", 1)]), 2);
        assembler.end();
        let rows: Vec<(Bytes, usize)> =
            assembler.rows.iter().map(|row| (row.key.clone(), row.cells.len())).collect();
        let key = |text: &'static str| Bytes::from_static(text.as_bytes());
        assert_eq!(rows, [(key("a"), 3), (key("b"), 1), (key("c"), 1)]);
        let cell = &assembler.rows[0].cells[2];
        assert_eq!((&*cell.family, &cell.qualifier[..], cell.timestamp_us), ("f", &b"q"[..], 1));
        let claimed = pool.reserved();
        assert!(claimed > 5 * CELL_BYTES);
        assembler.release();
        assert_eq!(pool.reserved(), 0);
    }
}

//! Reads the cells of a row that a request depends on.
//!
//! | request | cells |
//! |---|---|
//! | checks | all, garbage included, with values |
//! | deletes | all, garbage included, without values |
//! | additions to cells of aggregates | those that they name |
//! | appends and increments | the newest of each column that they name |
//!
//! Whatever is read, a write takes effect only if no cell of the row was written since. Several parts of a row may be read at
//! different moments: the condition is that of the first of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Schema, TimestampMicrosecondType};
use arrow::record_batch::RecordBatch;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::StreamExt;
use partita_proto::Error;
use partita_proto::catalog::Table;
use partita_proto::domain::{Domain, Domains};
use partita_proto::schema::{Column, ColumnType, TableSchema};
use partita_proto::service::{KeyOrder, ReadFrom, ScanRequest};
use partita_proto::size::batch_bytes;
use partita_proto::value::Value;
use partita_proto::wide::{CellKey, KEY_COLUMNS, ReadModify, RowMutation};

use crate::error::SqlError;
use crate::frontend::Frontend;
use crate::ingest::plan::TablePlan;
use crate::reads::Reads;

/// Forms in which a request has the cells of a row: those stored, those that queries return, and those of filters.
const FORMS: usize = 3;
/// Bytes of a cell in each form beside those of its parts, about.
const CELL_BYTES: usize = 160;
/// Columns of which the newest cell is read by a scan for each; of more, all cells are read by one.
const SINGLE_COLUMNS_MAX: usize = 8;
/// Families, qualifiers or timestamps that restrict a scan; more do not.
const POINTS_MAX: usize = 1_024;

/// Cells of a row, with their values.
pub type Cells = BTreeMap<CellKey, Vec<u8>>;

/// Cells of a row that a request depends on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted(Vec<Part>);

/// Cells of a row that one scan reads: those in all of the sets, of which an empty one restricts nothing. Others may come
/// too.
#[derive(Debug, Default, PartialEq, Eq)]
struct Part {
    families: BTreeSet<String>,
    qualifiers: BTreeSet<Vec<u8>>,
    timestamps: BTreeSet<i64>,
    /// Number of the cells that are needed, in the order of the key: newest first in a column.
    limit: Option<usize>,
    has_values: bool,
    has_garbage: bool,
}

impl Wanted {
    /// All cells, garbage included.
    pub(super) fn all() -> Self {
        Self(vec![Part { has_values: true, has_garbage: true, ..Part::default() }])
    }

    /// The cells on which mutations depend.
    pub(super) fn by_mutations(request: &RowMutation) -> Self {
        let keys = Part { has_garbage: true, ..Part::default() };
        let mut parts: Vec<Part> = request.deletes().then_some(keys).into_iter().collect();
        let added = request.added();
        if !added.is_empty() {
            let mut part = Part { has_values: true, ..Part::default() };
            for CellKey { family, qualifier, timestamp } in added {
                part.families.insert(family);
                part.qualifiers.insert(qualifier);
                part.timestamps.insert(timestamp);
            }
            // Behind the part without values, whose cells it replaces.
            parts.push(part);
        }
        Self(parts)
    }

    /// The cells on which appends and increments depend: the newest that queries return of each column.
    pub(super) fn by_rules(request: &ReadModify) -> Self {
        let columns: BTreeSet<(&str, &[u8])> =
            request.rules.iter().map(|rule| rule.column()).collect();
        let is_single = columns.len() <= SINGLE_COLUMNS_MAX;
        let limit = is_single.then_some(1);
        let mut parts = Vec::new();
        for (family, qualifier) in columns {
            if parts.is_empty() || is_single {
                parts.push(Part { limit, has_values: true, ..Part::default() });
            }
            if let Some(part) = parts.last_mut() {
                part.families.insert(family.to_owned());
                part.qualifiers.insert(qualifier.to_vec());
            }
        }
        Self(parts)
    }
}

impl Part {
    /// Domains of the cells, beside that of their row key.
    fn restrict(&self, schema: &TableSchema, domains: &mut Domains) {
        let families = self.families.iter().map(|family| Value::String(family.clone()));
        let qualifiers = self.qualifiers.iter().map(|qualifier| Value::Binary(qualifier.clone()));
        let timestamps = self.timestamps.iter().map(|timestamp| Value::Timestamp(*timestamp));
        let sets: [Vec<Value>; KEY_COLUMNS - 1] =
            [families.collect(), qualifiers.collect(), timestamps.collect()];
        for (column, set) in schema.key_columns().skip(1).zip(sets) {
            if (1..=POINTS_MAX).contains(&set.len()) {
                domains.restrict(&column.storage_name, Domain::points(set));
            }
        }
    }
}

/// Cells of a row that are stored.
pub(super) struct Stored {
    pub(super) cells: Cells,
    /// Memory of the cells.
    pub(super) memory: MemoryReservation,
}

impl Stored {
    /// Adds cells of a batch with the columns of a wide table, by position, with values or without.
    fn add(&mut self, batch: &RecordBatch) -> Result<(), SqlError> {
        self.memory.try_grow(FORMS * (batch_bytes(batch) + batch.num_rows() * CELL_BYTES))?;
        Ok(keep(&mut self.cells, batch)?)
    }
}

impl Frontend {
    /// The wanted cells of a row, noted as read. The inner error is that of a catalog that is out of date.
    pub(super) async fn read_row(
        &self,
        (table, plan): (&Arc<Table>, &Arc<TablePlan>),
        row_key: &[u8],
        selection: &Wanted,
        reads: &Reads,
    ) -> Result<Result<Stored, Error>, SqlError> {
        let Some(key_column) = table.schema.key_columns().next() else {
            return Ok(Err(Error::StaleSchema { table: table.id }));
        };
        let mut domains = Domains::default();
        let point = Domain::point(row_key_value(key_column, row_key)?);
        domains.restrict(&key_column.storage_name, point);
        let memory = self.claim_memory("wide row");
        let mut row = Stored { cells: Cells::new(), memory };
        for part in &selection.0 {
            let read = self.read_part((table, plan), (part, &domains), reads, &mut row);
            if let Err(stale) = Box::pin(read).await? {
                return Ok(Err(stale));
            }
        }
        Ok(Ok(row))
    }

    /// Adds a part of the row in some domains.
    async fn read_part(
        &self,
        (table, plan): (&Arc<Table>, &Arc<TablePlan>),
        (part, row_domains): (&Part, &Domains),
        reads: &Reads,
        row: &mut Stored,
    ) -> Result<Result<(), Error>, SqlError> {
        let schema = &table.schema;
        let ranges = plan.codec.key_ranges(schema, &table.placement, row_domains);
        let mut domains = row_domains.clone();
        part.restrict(schema, &mut domains);
        let count = if part.has_values { schema.columns.len() } else { KEY_COLUMNS };
        let fields = schema.columns.iter().take(count).map(Column::storage_field);
        let columns = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        // All cells of a row are in one partition.
        let routes = table.partitions.routes().iter();
        for route in routes.filter(|route| ranges.iter().any(|range| range.overlaps(&route.keys))) {
            let request = ScanRequest {
                partition: route.partition,
                epoch: route.epoch,
                columns: Arc::clone(&columns),
                domains: domains.clone(),
                // A node that returns another order returns all cells.
                limit: part.limit,
                parallelism: 1,
                newest_only: false,
                probes: Vec::new(),
                read_from: ReadFrom::Leader,
                first_by_time: None,
                order: part.limit.map(|_| KeyOrder::ASCENDING),
                for_update: true,
                uncollected: part.has_garbage,
            };
            let reply = match self.scan_leader(route, &request).await {
                Err(error) if is_stale(&error) => return Ok(Err(error)),
                reply => reply?,
            };
            reads.note(route.partition, route.epoch, reply.index);
            for mut stream in reply.streams {
                while let Some(batch) = stream.next().await {
                    match batch {
                        Err(error) if is_stale(&error) => return Ok(Err(error)),
                        batch => row.add(&batch?)?,
                    }
                }
            }
        }
        Ok(Ok(()))
    }
}

/// A row key as a value of its column.
pub(super) fn row_key_value(column: &Column, row_key: &[u8]) -> Result<Value, Error> {
    if column.column_type != ColumnType::String {
        return Ok(Value::Binary(row_key.to_vec()));
    }
    let text = String::from_utf8(row_key.to_vec());
    text.map(Value::String).map_err(|_| {
        Error::InvalidInput(format!("the row keys are strings, and {row_key:?} is not UTF-8"))
    })
}

/// True for the refusal of a partition that the catalog describes otherwise by now.
pub(super) fn is_stale(error: &Error) -> bool {
    matches!(error, Error::StaleRoute { .. } | Error::StaleSchema { .. })
}

/// Keeps cells of a batch, which may lack their values.
fn keep(cells: &mut Cells, batch: &RecordBatch) -> Result<(), Error> {
    let times = batch.columns().get(KEY_COLUMNS - 1);
    let times = times.and_then(|times| times.as_primitive_opt::<TimestampMicrosecondType>());
    let times = times.ok_or_else(|| Error::Internal("cells without timestamps".to_owned()))?;
    for row in 0..batch.num_rows() {
        let family = String::from_utf8(bytes(batch, 1, row).to_vec());
        let family =
            family.map_err(|_| Error::Corrupted("a column family is not UTF-8".to_owned()))?;
        let qualifier = bytes(batch, 2, row).to_vec();
        let key = CellKey { family, qualifier, timestamp: times.value(row) };
        cells.insert(key, bytes(batch, KEY_COLUMNS, row).to_vec());
    }
    Ok(())
}

/// Bytes of a text or binary value; none of NULL, or of a column that the batch lacks.
fn bytes(batch: &RecordBatch, column: usize, row: usize) -> &[u8] {
    let Some(column) = batch.columns().get(column).filter(|column| column.is_valid(row)) else {
        return &[];
    };
    match (column.as_string_view_opt(), column.as_binary_view_opt()) {
        (Some(texts), _) => texts.value(row).as_bytes(),
        (None, Some(bytes)) => bytes.value(row),
        (None, None) => &[],
    }
}

#[cfg(test)]
mod tests {
    use partita_proto::wide::{CellMutation, ReadModifyRule};

    use super::*;

    fn increment(family: &str, qualifier: &str) -> ReadModifyRule {
        let (family, qualifier) = (family.to_owned(), qualifier.as_bytes().to_vec());
        ReadModifyRule::Increment { family, qualifier, amount: 1 }
    }

    fn add(qualifier: &str, timestamp: i64) -> CellMutation {
        let (family, qualifier) = ("n".to_owned(), qualifier.as_bytes().to_vec());
        CellMutation::AddToCell { family, qualifier, timestamp, number: 1 }
    }

    #[test]
    fn increments_read_the_newest_cell_of_each_column() {
        let parts_of = |rules| Wanted::by_rules(&ReadModify { row_key: b"r".to_vec(), rules }).0;
        let newest = |family: &str, qualifier: &str| Part {
            families: BTreeSet::from([family.to_owned()]),
            qualifiers: BTreeSet::from([qualifier.as_bytes().to_vec()]),
            limit: Some(1),
            has_values: true,
            ..Part::default()
        };
        let rules = vec![increment("g", "a"), increment("f", "b"), increment("g", "a")];
        assert_eq!(parts_of(rules), [newest("f", "b"), newest("g", "a")]);
        let many = (0..=SINGLE_COLUMNS_MAX).map(|number| increment("f", &number.to_string()));
        let parts = parts_of(many.collect());
        assert_eq!((parts.len(), parts[0].limit), (1, None));
        assert_eq!(parts[0].qualifiers.len(), SINGLE_COLUMNS_MAX + 1);
    }

    #[test]
    fn mutations_read_what_they_add_to_and_every_key_if_they_delete() {
        let parts_of =
            |mutations| Wanted::by_mutations(&RowMutation { row_key: b"r".to_vec(), mutations }).0;
        let values = || Part {
            families: BTreeSet::from(["n".to_owned()]),
            qualifiers: BTreeSet::from([b"a".to_vec(), b"b".to_vec()]),
            timestamps: BTreeSet::from([1, 2]),
            has_values: true,
            ..Part::default()
        };
        let keys = || Part { has_garbage: true, ..Part::default() };
        assert_eq!(parts_of(vec![add("a", 1), add("b", 2)]), [values()]);
        let deletion = || CellMutation::DeleteFromRow;
        assert_eq!(parts_of(vec![deletion()]), [keys()]);
        assert_eq!(parts_of(vec![add("b", 2), deletion(), add("a", 1)]), [keys(), values()]);
        assert_eq!(Wanted::all().0, [Part { has_values: true, ..keys() }]);
    }
}

//! Storage layout of a table's schema: names of internal columns, the key codec, the fold policy, the time index. Made
//! once for every schema version.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, UInt8Array, UInt32Array, new_null_array};
use arrow::compute::{CastOptions, cast_with_options, take};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use partita_proto::array::array_of;
use partita_proto::domain::{Domain, Domains};
use partita_proto::key::{KeyCodec, PLACEMENT_COLUMN};
use partita_proto::range::KeyRange;
use partita_proto::rule::Comparison;
use partita_proto::schema::{ColumnType, MergeMode, Unit};
use partita_proto::service::PartitionSpec;
use partita_proto::value::Value;

use crate::error::{EngineError, Result};
use crate::index::Indexed;
use crate::parquet::spans::from_file;
use crate::rows::fold::{PUT, Policy};

/// Index of the log entry that wrote a row: UInt64, never NULL.
pub(crate) const SEQ_COLUMN: &str = "__seq";
/// Operation of a row, one of [`crate::rows::fold`]'s: UInt8, never NULL. Left out if all rows are puts.
pub(crate) const OP_COLUMN: &str = "__op";

/// Bytes of the time index's cell in a key: a NULL marker, and 64 bits.
const TIME_CELL_BYTES: usize = 9;

/// The time index.
#[derive(Clone, Debug)]
pub(crate) struct TimeColumn {
    pub(crate) name: String,
    pub(crate) unit: Unit,
}

/// A partition's configuration, and all that is derived from it.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) config: Arc<PartitionSpec>,
    pub(crate) codec: KeyCodec,
    /// Range of the partition's keys.
    pub(crate) range: KeyRange,
    pub(crate) policy: Policy,
    pub(crate) time: Option<TimeColumn>,
    /// All stored columns except the internal ones at the end: the placement, if any, then the table's.
    pub(crate) columns: SchemaRef,
    /// Indexes of the columns, with the storage names of these.
    pub(crate) indexes: Vec<(String, Indexed)>,
    /// Defaults of added columns, by storage name: the value, in one row, of the column in rows from before it was
    /// added. A column without an entry is NULL there.
    missing: BTreeMap<String, ArrayRef>,
}

impl Layout {
    /// # Errors
    /// When schema, placement and range do not fit together.
    pub(crate) fn new(config: Arc<PartitionSpec>) -> Result<Self> {
        let schema = &config.schema;
        let codec = KeyCodec::new(schema, &config.placement)?;
        let range = codec.range(&config.range)?;
        let policy = match (schema.options.append_mode, schema.options.merge_mode) {
            (true, _) => Policy::Append,
            (false, MergeMode::LastRow) => Policy::LastRow,
            (false, MergeMode::LastNonNull) => Policy::LastNonNull,
        };
        let time = schema.time_index().and_then(|column| match column.column_type {
            ColumnType::Timestamp(unit, _) => {
                Some(TimeColumn { name: column.storage_name.clone(), unit })
            }
            _ => None,
        });
        let placement =
            codec.placed().then(|| Field::new(PLACEMENT_COLUMN, DataType::UInt16, true));
        let fields = schema.columns.iter().map(partita_proto::schema::Column::storage_field);
        let columns =
            Arc::new(Schema::new(placement.into_iter().chain(fields).collect::<Vec<_>>()));
        let mut missing = BTreeMap::new();
        for column in &schema.columns {
            if let Some(value) = &column.missing {
                let value = array_of(column.column_type, std::slice::from_ref(value))?;
                missing.insert(column.storage_name.clone(), value);
            }
        }
        let indexes = schema.columns.iter().flat_map(|column| {
            column.indexes.iter().map(move |index| {
                let index = Indexed { column: column.id, options: index.options };
                (column.storage_name.clone(), index)
            })
        });
        let indexes = indexes.collect();
        Ok(Self { codec, range, policy, time, columns, indexes, missing, config })
    }

    /// True if a stored column belongs to the key; the placement does.
    pub(crate) fn is_key(&self, name: &str) -> bool {
        name == PLACEMENT_COLUMN || self.codec.key_columns().iter().any(|key| key == name)
    }

    /// Names of the columns from which a key is encoded.
    pub(crate) fn key_names(&self) -> impl Iterator<Item = &str> {
        let placement = self.codec.placed().then_some(PLACEMENT_COLUMN);
        placement.into_iter().chain(self.codec.key_columns().iter().map(String::as_str))
    }

    /// The field of a stored or internal column; `None` if there is no such column (any more).
    pub(crate) fn field(&self, name: &str) -> Option<FieldRef> {
        match name {
            SEQ_COLUMN => Some(Arc::new(Field::new(SEQ_COLUMN, DataType::UInt64, false))),
            OP_COLUMN => Some(Arc::new(Field::new(OP_COLUMN, DataType::UInt8, false))),
            _ => {
                let index = self.columns.index_of(name).ok()?;
                Some(Arc::clone(&self.columns.fields()[index]))
            }
        }
    }

    /// The schema of files: all columns, then sequence, then, with `with_op`, operation.
    pub(crate) fn file_schema(&self, with_op: bool) -> SchemaRef {
        let internal = [Some(SEQ_COLUMN), with_op.then_some(OP_COLUMN)];
        let internal = internal.into_iter().flatten().filter_map(|name| self.field(name));
        let fields = self.columns.fields().iter().cloned().chain(internal);
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// The time index and the domain of its values that have not expired; `None` without a `ttl` or a time index.
    /// Pruning by it is not enough: every row must be tested, because files mix expired rows with others.
    pub(crate) fn alive(&self, now_ms: i64) -> Option<(&str, Domain)> {
        let time = self.time.as_ref()?;
        let oldest = oldest(now_ms, self.config.schema.options.ttl?, time.unit);
        Some((&time.name, Domain::compare(Comparison::GreaterOrEqual, Value::Timestamp(oldest))))
    }

    /// The oldest tick that has not expired.
    pub(crate) fn oldest_tick(&self, now_ms: i64) -> Option<i64> {
        Some(oldest(now_ms, self.config.schema.options.ttl?, self.time.as_ref()?.unit))
    }

    /// Bytes of the time index at the end of every key, if it is the key's last column.
    pub(crate) fn time_tail(&self) -> Option<usize> {
        let (time, last) = (self.time.as_ref()?, self.codec.key_columns().last()?);
        (time.name == *last).then_some(TIME_CELL_BYTES)
    }

    /// The part of the domains that may be applied before versions are merged.
    pub(crate) fn key_domains(&self, domains: &Domains) -> Domains {
        domains.only(|name| self.is_key(name))
    }

    /// Value, in one row, of a column in rows from before it was added; `None`: NULL.
    pub(crate) fn missing(&self, name: &str) -> Option<&ArrayRef> {
        self.missing.get(name)
    }

    /// The batch with exactly the fields of `schema`, found by name. A missing column gets the default with which it
    /// was added, or NULL; a missing operation is a put.
    pub(crate) fn adapt(&self, batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
        if batch.schema_ref() == schema {
            return Ok(batch.clone());
        }
        let rows = batch.num_rows();
        let columns = schema.fields().iter().map(|field| self.adapt_column(batch, field));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
    }

    fn adapt_column(&self, batch: &RecordBatch, field: &Field) -> Result<ArrayRef> {
        let rows = batch.num_rows();
        if let Some(column) = batch.column_by_name(field.name()) {
            return cast_column(column, field);
        }
        if field.name() == OP_COLUMN {
            return Ok(Arc::new(UInt8Array::from_value(PUT, rows)));
        }
        match self.missing(field.name()) {
            Some(value) => {
                let first = UInt32Array::from_value(0, rows);
                cast_column(&take(value, &first, None)?, field)
            }
            None => Ok(new_null_array(field.data_type(), rows)),
        }
    }
}

/// The values of a column in the type of a field.
///
/// # Errors
/// When a value is none of that type.
pub(crate) fn cast_column(column: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    if column.data_type() == field.data_type() {
        return Ok(Arc::clone(column));
    }
    if let Some(intervals) = from_file(column, field.data_type()) {
        return Ok(intervals);
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(column, field.data_type(), &options).map_err(|error| {
        EngineError::InvalidInput(format!(
            "column \"{}\" has type {}, which is not {}: {error}",
            field.name(),
            column.data_type(),
            field.data_type()
        ))
    })
}

fn oldest(now_ms: i64, ttl: Duration, unit: Unit) -> i64 {
    let ttl_ms = i128::try_from(ttl.as_millis()).unwrap_or(i128::MAX);
    let oldest_ms = i128::from(now_ms).saturating_sub(ttl_ms);
    let ticks = oldest_ms.saturating_mul(i128::from(unit.per_second())).div_euclid(1000);
    i64::try_from(ticks).unwrap_or(if ticks < 0 { i64::MIN } else { i64::MAX })
}

//! Table schemas: columns and their semantics, key and options.
//!
//! Invariants (checked by [`TableSchema::validate`]):
//! - column names and column ids are unique; names are 1 to [`NAME_BYTES_MAX`] bytes long;
//! - JSON columns are texts of any length, and not part of the key, and neither are arrays and intervals;
//! - at most one time index; it is a timestamp and NOT NULL;
//! - the key names existing columns, each once, and ends with the time index when the table has one and its owner has
//!   not placed it elsewhere;
//! - names of CHECK constraints are unique and valid;
//! - the hidden column [`ROW_COLUMN`] is the whole key of its table;
//! - index names are unique and valid; a column has at most one index of each kind, and it fits the column's type;
//! - an append-mode table has no merge mode other than the default;
//! - a wide table has the columns and the key of wide tables ([`crate::wide`]);
//! - a view has no key, and is in append mode: its rows may be equal.
//!
//! A column's `storage_name` is its name in files, logs and memtables. It never changes, and the name of a dropped
//! column is never reused, so that old files cannot bring dropped values back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, IntervalUnit, Schema, SchemaRef, TimeUnit};
use serde::{Deserialize, Serialize};

pub use crate::element::Element;
use crate::error::Error;
use crate::id::{ColumnId, SchemaVersion};
use crate::index::Index;
pub use crate::json::JsonType;
pub use crate::partitioning::{
    HotspotRemedy, PARTITION_SIZE_MB, PARTITIONS_MAX, Partitioning, TABLE_PARTITIONS_MAX,
};
use crate::stored_view::ViewDefinition;
use crate::value::Value;
use crate::wide::{KEY_COLUMNS, Wide};

/// Maximum bytes of the name of a database, table, column or index.
pub const NAME_BYTES_MAX: usize = 128;
/// Maximum columns of a table.
pub const COLUMNS_MAX: usize = 1000;
/// Maximum columns of a key.
pub const KEY_COLUMNS_MAX: usize = 32;
/// Arrow's type of UUIDs; no other value has it.
pub const UUID: DataType = DataType::FixedSizeBinary(16);

/// Type of a column. Inside, rows always have the Arrow type of it: strings and bytes are views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ColumnType {
    /// BOOLEAN.
    Bool,
    /// TINYINT.
    Int8,
    /// SMALLINT.
    Int16,
    /// INT.
    Int32,
    /// BIGINT.
    Int64,
    /// TINYINT UNSIGNED.
    UInt8,
    /// SMALLINT UNSIGNED.
    UInt16,
    /// INT UNSIGNED.
    UInt32,
    /// BIGINT UNSIGNED.
    UInt64,
    /// REAL.
    Float32,
    /// DOUBLE.
    Float64,
    /// DECIMAL(precision, scale), precision up to 38.
    Decimal(u8, i8),
    /// STRING: UTF-8 text of any length.
    String,
    /// BINARY: bytes of any length.
    Binary,
    /// DATE: days, without a time zone.
    Date,
    /// TIMESTAMP at a unit, without (false) or with (true) a time zone, which is UTC.
    Timestamp(Unit, bool),
    /// UUID: 16 bytes.
    Uuid,
    /// TIME: microseconds since midnight, without a time zone.
    Time,
    /// INTERVAL: months, days and nanoseconds. Of fields only.
    Interval,
    /// `type[]`: any number of elements of a type, each of which may be NULL. Of fields only.
    Array(Element),
}

/// Unit of a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Unit {
    /// TIMESTAMP(0).
    Second,
    /// TIMESTAMP(3).
    Millisecond,
    /// TIMESTAMP(6).
    Microsecond,
    /// TIMESTAMP(9).
    Nanosecond,
}

impl Unit {
    /// Ticks of this unit in one second.
    pub const fn per_second(self) -> i64 {
        match self {
            Self::Second => 1,
            Self::Millisecond => 1_000,
            Self::Microsecond => 1_000_000,
            Self::Nanosecond => 1_000_000_000,
        }
    }

    /// Digits after the second, as in TIMESTAMP(n).
    pub const fn digits(self) -> u8 {
        match self {
            Self::Second => 0,
            Self::Millisecond => 3,
            Self::Microsecond => 6,
            Self::Nanosecond => 9,
        }
    }

    /// Arrow's unit.
    pub const fn arrow(self) -> TimeUnit {
        match self {
            Self::Second => TimeUnit::Second,
            Self::Millisecond => TimeUnit::Millisecond,
            Self::Microsecond => TimeUnit::Microsecond,
            Self::Nanosecond => TimeUnit::Nanosecond,
        }
    }
}

impl From<TimeUnit> for Unit {
    fn from(unit: TimeUnit) -> Self {
        match unit {
            TimeUnit::Second => Self::Second,
            TimeUnit::Millisecond => Self::Millisecond,
            TimeUnit::Microsecond => Self::Microsecond,
            TimeUnit::Nanosecond => Self::Nanosecond,
        }
    }
}

impl ColumnType {
    /// The Arrow type of the type's columns.
    pub fn arrow(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int8 => DataType::Int8,
            Self::Int16 => DataType::Int16,
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::UInt8 => DataType::UInt8,
            Self::UInt16 => DataType::UInt16,
            Self::UInt32 => DataType::UInt32,
            Self::UInt64 => DataType::UInt64,
            Self::Float32 => DataType::Float32,
            Self::Float64 => DataType::Float64,
            Self::Decimal(precision, scale) => DataType::Decimal128(precision, scale),
            Self::String => DataType::Utf8View,
            Self::Binary => DataType::BinaryView,
            Self::Date => DataType::Date32,
            Self::Timestamp(unit, utc) => {
                DataType::Timestamp(unit.arrow(), utc.then(|| Arc::from("UTC")))
            }
            Self::Uuid => UUID,
            Self::Time => DataType::Time64(TimeUnit::Microsecond),
            Self::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Self::Array(element) => element.list(),
        }
    }

    /// The column type that stores values of an Arrow type, if there is one.
    pub fn from_arrow(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Boolean => Self::Bool,
            DataType::Int8 => Self::Int8,
            DataType::Int16 => Self::Int16,
            DataType::Int32 => Self::Int32,
            DataType::Int64 => Self::Int64,
            DataType::UInt8 => Self::UInt8,
            DataType::UInt16 => Self::UInt16,
            DataType::UInt32 => Self::UInt32,
            DataType::UInt64 => Self::UInt64,
            DataType::Float16 | DataType::Float32 => Self::Float32,
            DataType::Float64 => Self::Float64,
            DataType::Decimal128(precision, scale) => Self::Decimal(*precision, *scale),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::String,
            &UUID => Self::Uuid,
            DataType::Time64(TimeUnit::Microsecond) => Self::Time,
            DataType::Interval(IntervalUnit::MonthDayNano) => Self::Interval,
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => Self::Binary,
            DataType::Date32 | DataType::Date64 => Self::Date,
            DataType::Timestamp(unit, zone) => Self::Timestamp(Unit::from(*unit), zone.is_some()),
            DataType::Dictionary(_, values) => return Self::from_arrow(values),
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                Self::Array(Element::of(Self::from_arrow(item.data_type())?)?)
            }
            _ => return None,
        })
    }

    /// Name in SQL; SHOW CREATE TABLE prints it and the parser reads it back.
    pub fn sql(self) -> String {
        match self {
            Self::Bool => "BOOLEAN".to_owned(),
            Self::Int8 => "TINYINT".to_owned(),
            Self::Int16 => "SMALLINT".to_owned(),
            Self::Int32 => "INT".to_owned(),
            Self::Int64 => "BIGINT".to_owned(),
            Self::UInt8 => "TINYINT UNSIGNED".to_owned(),
            Self::UInt16 => "SMALLINT UNSIGNED".to_owned(),
            Self::UInt32 => "INT UNSIGNED".to_owned(),
            Self::UInt64 => "BIGINT UNSIGNED".to_owned(),
            Self::Float32 => "REAL".to_owned(),
            Self::Float64 => "DOUBLE".to_owned(),
            Self::Decimal(precision, scale) => format!("DECIMAL({precision}, {scale})"),
            Self::String => "STRING".to_owned(),
            Self::Binary => "BINARY".to_owned(),
            Self::Date => "DATE".to_owned(),
            Self::Timestamp(unit, false) => format!("TIMESTAMP({})", unit.digits()),
            Self::Timestamp(unit, true) => format!("TIMESTAMP({}) WITH TIME ZONE", unit.digits()),
            Self::Uuid => "UUID".to_owned(),
            Self::Time => "TIME".to_owned(),
            Self::Interval => "INTERVAL".to_owned(),
            Self::Array(element) => format!("{}[]", element.column_type().sql()),
        }
    }

    /// True for a type that no [`Value`] is of, so that keys, indexes, placements and bounds have none of it.
    pub fn is_of_fields_only(self) -> bool {
        matches!(self, Self::Array(_) | Self::Interval)
    }

    /// True for a timestamp, which may be a time index.
    pub fn is_timestamp(self) -> bool {
        matches!(self, Self::Timestamp(..))
    }
}

/// Role of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Semantic {
    /// Part of the key (but not the time index).
    Tag,
    /// A measured value.
    Field,
    /// Time of the row; part of the key.
    TimeIndex,
}

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Column id, unique in the table for ever.
    pub id: ColumnId,
    /// Name in SQL.
    pub name: String,
    /// Name in files, logs and memtables; never changes.
    pub storage_name: String,
    /// Type of the values.
    pub column_type: ColumnType,
    /// True if the column may be NULL.
    pub nullable: bool,
    /// Tag, field or time index.
    pub semantic: Semantic,
    /// SQL text of the default; `None`: NULL.
    pub default: Option<String>,
    /// SQL text of a generated column's expression; such a column accepts no values in writes.
    pub generated: Option<String>,
    /// Value in rows written before the column was added; `None`: NULL. Fixed when the column is added: a later change
    /// of [`Column::default`] affects later rows only. Fields only, because older rows have NULL in their keys.
    #[serde(default)]
    pub missing: Option<Value>,
    /// Maximum number of characters of a text; `None`: no limit.
    #[serde(default)]
    pub length: Option<TextLength>,
    /// The texts are JSON or JSONB; `None`: any texts, or values of another type.
    #[serde(default)]
    pub json: Option<JsonType>,
    /// Indexes, at most one of each kind.
    #[serde(default)]
    pub indexes: Vec<Index>,
    /// Owner's comment.
    pub comment: Option<String>,
}

/// The characters that a text column takes: `VARCHAR(n)` or `CHAR(n)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TextLength {
    /// Maximum number of characters.
    pub characters: u32,
    /// CHAR(n): blanks at the end of a text are not part of it.
    pub fixed: bool,
}

impl TextLength {
    /// The type in SQL; what SHOW CREATE TABLE prints and the parser reads back.
    pub fn sql(self) -> String {
        format!("{}({})", if self.fixed { "CHAR" } else { "VARCHAR" }, self.characters)
    }

    /// PostgreSQL's name of the type.
    pub fn postgres(self) -> String {
        let name = if self.fixed { "character" } else { "character varying" };
        format!("{name}({})", self.characters)
    }
}

impl Column {
    /// The name of its type in SQL.
    pub fn type_sql(&self) -> String {
        match (self.length, self.json) {
            (Some(length), _) => length.sql(),
            (None, Some(json)) => json.sql().to_owned(),
            (None, None) => self.column_type.sql(),
        }
    }

    /// The column as an Arrow field under its SQL name.
    pub fn field(&self) -> Field {
        let field = Field::new(&self.name, self.column_type.arrow(), self.nullable);
        match self.json {
            Some(json) => json.marked(field),
            None => field,
        }
    }

    /// The column as an Arrow field under its storage name. Always nullable: files of an older
    /// schema have no such column, and tombstones have no fields.
    pub fn storage_field(&self) -> Field {
        Field::new(&self.storage_name, self.column_type.arrow(), true)
    }
}

/// Rule by which versions of one key become one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MergeMode {
    /// The newest row replaces older ones as a whole.
    #[default]
    LastRow,
    /// Each field keeps its newest value that is not NULL.
    LastNonNull,
}

impl MergeMode {
    /// Value in `WITH ('merge_mode' = ...)`.
    pub const fn sql(self) -> &'static str {
        match self {
            Self::LastRow => "last_row",
            Self::LastNonNull => "last_non_null",
        }
    }
}

/// Options of a table, set with `WITH (...)`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableOptions {
    /// True to keep every row, without deduplication; DELETE is refused.
    pub append_mode: bool,
    /// Rule for versions of one key; unused in append mode.
    pub merge_mode: MergeMode,
    /// Age of the time index at which rows expire; `None`: never.
    pub ttl: Option<Duration>,
    /// Width of the time windows of files; `None`: chosen from the data.
    pub time_window: Option<Duration>,
    /// Owner's comment.
    pub comment: Option<String>,
    /// Number of replicas of each partition; `None`: the cluster's default.
    pub replication_factor: Option<u32>,
    /// Rules for automatic splits and merges.
    #[serde(default)]
    pub partitioning: Partitioning,
    /// Rules of the advisor that are silent about the table: ids in upper case, sorted.
    #[serde(default)]
    pub advice_off: Vec<String>,
    /// Thresholds of the advisor for the table: each `name=value`, by name.
    #[serde(default)]
    pub advice_thresholds: Vec<String>,
    /// Families and limits of a wide table; `None`: a table of rows.
    #[serde(default)]
    pub wide: Option<Wide>,
}

/// A CHECK constraint. A row passes when the condition is true or NULL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Name, unique in the table.
    pub name: String,
    /// SQL text of the condition.
    pub expression: String,
}

/// Name of the column that is the key of a table without a key of its own: 16 bytes of each row, in the order in which
/// frontends write rows. Nobody names or sees it; rows are placed by its hash, so that none of the partitions takes all
/// new ones.
pub const ROW_COLUMN: &str = "__row";

impl Column {
    /// The key of a table without a key of its own.
    #[must_use]
    pub fn of_rows(id: ColumnId) -> Self {
        Self {
            id,
            name: ROW_COLUMN.to_owned(),
            storage_name: ROW_COLUMN.to_owned(),
            column_type: ColumnType::Binary,
            nullable: false,
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

    /// True if nobody sees the column.
    pub fn is_hidden(&self) -> bool {
        self.name == ROW_COLUMN
    }
}

/// A table's columns, key and options at one version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSchema {
    /// Version; grows with every change.
    pub version: SchemaVersion,
    /// Columns, in SQL's order.
    pub columns: Vec<Column>,
    /// The sort key, most significant first: primary key columns, then the time index unless its owner has placed it
    /// elsewhere. Empty only for a table with neither, which is append-mode.
    pub key: Vec<ColumnId>,
    /// Options of the table.
    pub options: TableOptions,
    /// Id of the next new column.
    pub next_column: ColumnId,
    /// If true, rows with unknown columns add them (line protocol); if false, they fail (SQL's default).
    pub schema_on_write: bool,
    /// CHECK constraints: conditions that no written row fails.
    #[serde(default)]
    pub checks: Vec<Check>,
    /// Query of a view, which has no rows of its own; `None`: a table.
    #[serde(default)]
    pub view: Option<ViewDefinition>,
}

impl TableSchema {
    /// The column with a SQL name, by exact match; a hidden one has none.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.shown().find(|column| column.name == name)
    }

    /// The columns that clients see, in SQL's order.
    pub fn shown(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| !column.is_hidden())
    }

    /// True if rows have a hidden key, so that equal rows are kept.
    pub fn is_keyless(&self) -> bool {
        self.key_columns().any(Column::is_hidden)
    }

    /// The position of the column with a SQL name, by exact match, hidden or not.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// The column with an id.
    pub fn column_by_id(&self, id: ColumnId) -> Option<&Column> {
        self.columns.iter().find(|column| column.id == id)
    }

    /// The key's columns, most significant first.
    pub fn key_columns(&self) -> impl Iterator<Item = &Column> {
        self.key.iter().filter_map(|id| self.column_by_id(*id))
    }

    /// True if the column is part of the key.
    pub fn is_key(&self, id: ColumnId) -> bool {
        self.key.contains(&id)
    }

    /// True if keys are in descending order of the column: the timestamps of a wide table's cells.
    pub fn descends(&self, id: ColumnId) -> bool {
        self.options.wide.is_some()
            && self.key.get(KEY_COLUMNS - 1) == Some(&id)
            && self.column_by_id(id).is_some_and(|column| column.column_type.is_timestamp())
    }

    /// The time index, if the table has one.
    pub fn time_index(&self) -> Option<&Column> {
        self.columns.iter().find(|column| column.semantic == Semantic::TimeIndex)
    }

    /// The columns that clients see, under their SQL names.
    pub fn shown_arrow(&self) -> SchemaRef {
        Arc::new(Schema::new(self.shown().map(Column::field).collect::<Vec<_>>()))
    }

    /// The columns under their SQL names, hidden ones included.
    pub fn arrow(&self) -> SchemaRef {
        Arc::new(Schema::new(self.columns.iter().map(Column::field).collect::<Vec<_>>()))
    }

    /// The columns under their storage names, all nullable, in SQL's order.
    pub fn storage(&self) -> SchemaRef {
        Arc::new(Schema::new(self.columns.iter().map(Column::storage_field).collect::<Vec<_>>()))
    }

    /// Checks the invariants of this module.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] that names the first violation.
    pub fn validate(&self) -> Result<(), Error> {
        let invalid = |message: String| Err(Error::InvalidInput(message));
        if self.columns.is_empty() {
            return invalid("a table needs at least one column".to_owned());
        }
        if self.columns.len() > COLUMNS_MAX {
            return invalid(format!(
                "{} columns exceed the limit of {COLUMNS_MAX}",
                self.columns.len()
            ));
        }
        // Columns: valid and unique names.
        let mut names = BTreeSet::new();
        let mut storage_names = BTreeSet::new();
        for column in &self.columns {
            validate_name("column", &column.name)?;
            if column.is_hidden() {
                if self.key != [column.id] || *column != Column::of_rows(column.id) {
                    return invalid(format!(
                        "column \"{ROW_COLUMN}\" is the key of tables without a key of their own, \
                         and of no others"
                    ));
                }
            } else if column.name.starts_with("__") {
                return invalid(format!(
                    "column \"{}\" starts with two underscores, which are for internal columns",
                    column.name
                ));
            }
            if !names.insert(column.name.as_str())
                || !storage_names.insert(column.storage_name.as_str())
            {
                return invalid(format!("column \"{}\" specified more than once", column.name));
            }
        }
        self.validate_indexes()?;
        self.validate_plain_fields()?;
        let mut constraints = BTreeSet::new();
        for check in &self.checks {
            validate_name("constraint", &check.name)?;
            if !constraints.insert(check.name.as_str()) {
                return invalid(format!("constraint \"{}\" specified more than once", check.name));
            }
        }
        // The time index.
        let time_indexes: Vec<_> =
            self.columns.iter().filter(|c| c.semantic == Semantic::TimeIndex).collect();
        if let [first, second, ..] = time_indexes.as_slice() {
            return invalid(format!(
                "a table has one TIME INDEX, but \"{}\" and \"{}\" both are",
                first.name, second.name
            ));
        }
        if let Some(column) = time_indexes.first() {
            if !column.column_type.is_timestamp() {
                return invalid(format!(
                    "TIME INDEX \"{}\" must be a TIMESTAMP, not {}",
                    column.name,
                    column.column_type.sql()
                ));
            }
            if column.nullable || !self.is_key(column.id) {
                return invalid(format!(
                    "TIME INDEX \"{}\" must be NOT NULL and part of the key",
                    column.name
                ));
            }
        }
        // The key.
        if self.key.len() > KEY_COLUMNS_MAX {
            return invalid(format!(
                "{} key columns exceed the limit of {KEY_COLUMNS_MAX}",
                self.key.len()
            ));
        }
        let mut key_ids = BTreeSet::new();
        for id in &self.key {
            let Some(column) = self.column_by_id(*id) else {
                return invalid(format!("the key names column {id}, which does not exist"));
            };
            if !key_ids.insert(*id) {
                return invalid(format!("key column \"{}\" specified more than once", column.name));
            }
        }
        // Options that exclude each other.
        if self.key.is_empty() && !self.options.append_mode {
            return invalid(
                "a table needs a key, of its own or hidden, or 'append_mode' = 'true'".to_owned(),
            );
        }
        if self.options.append_mode && self.options.merge_mode != MergeMode::LastRow {
            return invalid(
                "'merge_mode' cannot be set on a table with 'append_mode' = 'true'".to_owned(),
            );
        }
        if self.options.ttl.is_some() && self.time_index().is_none() {
            return invalid("'ttl' needs a TIME INDEX".to_owned());
        }
        if self.view.is_some() && !(self.key.is_empty() && self.options.append_mode) {
            return invalid("a view has no key".to_owned());
        }
        self.options.wide.as_ref().map_or(Ok(()), |wide| wide.check(self))
    }

    /// Checks columns of types that have no place in keys.
    fn validate_plain_fields(&self) -> Result<(), Error> {
        for column in &self.columns {
            if column.column_type.is_of_fields_only() && self.is_key(column.id) {
                return Err(Error::InvalidInput(format!(
                    "key column \"{}\" cannot be of type {}",
                    column.name,
                    column.column_type.sql()
                )));
            }
            let Some(json) = column.json else { continue };
            let (name, json_type) = (&column.name, json.postgres());
            if column.column_type != ColumnType::String || column.length.is_some() {
                let message = format!("column \"{name}\" of type {json_type} has other values");
                return Err(Error::InvalidInput(message));
            }
            if self.is_key(column.id) {
                let message = format!("key column \"{name}\" cannot be of type {json_type}");
                return Err(Error::InvalidInput(message));
            }
        }
        Ok(())
    }

    fn validate_indexes(&self) -> Result<(), Error> {
        let mut names = BTreeSet::new();
        for column in &self.columns {
            let mut kinds = BTreeSet::new();
            for index in &column.indexes {
                validate_name("index", &index.name)?;
                if !names.insert(index.name.as_str()) {
                    let message = format!("index \"{}\" specified more than once", index.name);
                    return Err(Error::InvalidInput(message));
                }
                index.options.check(&column.name, column.column_type)?;
                let kind = index.options.kind();
                if !kinds.insert(kind) {
                    return Err(Error::InvalidInput(format!(
                        "column \"{}\" has more than one {} index",
                        column.name,
                        kind.method()
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Checks the name of a database, table, column or index.
///
/// # Errors
/// [`Error::InvalidInput`] when it is empty, longer than [`NAME_BYTES_MAX`] bytes, or holds a control character.
pub fn validate_name(kind: &str, name: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Err(Error::InvalidInput(format!("the {kind} name may not be empty")));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::InvalidInput(format!(
            "{kind} name of {} bytes exceeds the limit of {NAME_BYTES_MAX}",
            name.len()
        )));
    }
    if name.chars().any(char::is_control) {
        return Err(Error::InvalidInput(format!("{kind} name {name:?} holds a control character")));
    }
    Ok(())
}

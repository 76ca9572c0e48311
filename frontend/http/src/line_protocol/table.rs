//! The rows of one measurement, collected in columns.
//!
//! Invariants:
//! - a row is stored completely or not at all: the whole line is checked before any of it is stored;
//! - a column is as long as the last row with a value in it; shorter ones end in NULLs;
//! - tags are stored once for each series; rows only refer to their series.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanBuilder, Float64Builder, Int64Builder, StringViewBuilder,
    TimestampNanosecondArray, UInt32Array, UInt64Builder,
};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use hashbrown::HashMap;
use partita_proto::catalog::Table;
use partita_proto::schema::{ColumnType, Semantic, Unit};

use super::scan::{Value, unescape_string};

/// The types that a field can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldType {
    Float,
    Integer,
    Unsigned,
    Boolean,
    String,
}

impl FieldType {
    pub(super) fn of(value: Value<'_>) -> Self {
        match value {
            Value::Float(_) => Self::Float,
            Value::Integer(_) => Self::Integer,
            Value::Unsigned(_) => Self::Unsigned,
            Value::Boolean(_) => Self::Boolean,
            Value::String(..) => Self::String,
        }
    }

    pub(super) fn column_type(self) -> ColumnType {
        match self {
            Self::Float => ColumnType::Float64,
            Self::Integer => ColumnType::Int64,
            Self::Unsigned => ColumnType::UInt64,
            Self::Boolean => ColumnType::Bool,
            Self::String => ColumnType::String,
        }
    }

    /// The type of lines that a column has; `None` for types that only SQL has.
    pub(super) fn of_column(column_type: ColumnType) -> Option<Self> {
        let types = [Self::Float, Self::Integer, Self::Unsigned, Self::Boolean, Self::String];
        types.into_iter().find(|candidate| candidate.column_type() == column_type)
    }

    /// Name of the type in messages about explicit schemas.
    pub(super) fn schema_name(self) -> &'static str {
        match self {
            Self::Float => "Float",
            Self::Integer => "Integer",
            Self::Unsigned => "Unsigned",
            Self::Boolean => "Boolean",
            Self::String => "String",
        }
    }

    /// InfluxDB's name of the type, which its clients search for in messages.
    pub(super) fn influx(self) -> &'static str {
        match self {
            Self::Float => "iox::column_type::field::float",
            Self::Integer => "iox::column_type::field::integer",
            Self::Unsigned => "iox::column_type::field::uinteger",
            Self::Boolean => "iox::column_type::field::boolean",
            Self::String => "iox::column_type::field::string",
        }
    }
}

enum Values {
    Float(Float64Builder),
    Integer(Int64Builder),
    Unsigned(UInt64Builder),
    Boolean(BooleanBuilder),
    String(StringViewBuilder),
}

impl Values {
    fn new(field_type: FieldType) -> Self {
        match field_type {
            FieldType::Float => Self::Float(Float64Builder::new()),
            FieldType::Integer => Self::Integer(Int64Builder::new()),
            FieldType::Unsigned => Self::Unsigned(UInt64Builder::new()),
            FieldType::Boolean => Self::Boolean(BooleanBuilder::new()),
            FieldType::String => Self::String(StringViewBuilder::new()),
        }
    }

    fn append_nulls(&mut self, count: usize) {
        match self {
            Self::Float(values) => values.append_nulls(count),
            Self::Integer(values) => values.append_nulls(count),
            Self::Unsigned(values) => values.append_nulls(count),
            Self::Boolean(values) => values.append_nulls(count),
            Self::String(values) => (0..count).for_each(|_| values.append_null()),
        }
    }

    fn append(&mut self, value: Value<'_>, scratch: &mut String) {
        match (self, value) {
            (Self::Float(values), Value::Float(value)) => values.append_value(value),
            (Self::Integer(values), Value::Integer(value)) => values.append_value(value),
            (Self::Unsigned(values), Value::Unsigned(value)) => values.append_value(value),
            (Self::Boolean(values), Value::Boolean(value)) => values.append_value(value),
            (Self::String(values), Value::String(value, false)) => values.append_value(value),
            (Self::String(values), Value::String(value, true)) => {
                values.append_value(unescape_string(value, scratch));
            }
            _ => unreachable!("a line's types are checked before it is stored"),
        }
    }

    fn finish(mut self) -> ArrayRef {
        match &mut self {
            Self::Float(values) => Arc::new(values.finish()),
            Self::Integer(values) => Arc::new(values.finish()),
            Self::Unsigned(values) => Arc::new(values.finish()),
            Self::Boolean(values) => Arc::new(values.finish()),
            Self::String(values) => Arc::new(values.finish()),
        }
    }
}

/// A field's column.
pub(super) struct FieldColumn<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) field_type: FieldType,
    /// The type of the table's column, when that exists and is narrower.
    pub(super) narrow: Option<ColumnType>,
    /// True if the table does not have the column yet.
    pub(super) new: bool,
    /// Spelling of the key in lines.
    pub(super) raw: &'a str,
    /// True if the key may be predicted; a key with a comma is read with more care.
    pub(super) predictable: bool,
    /// The last reading that named it, by the reader's count.
    pub(super) named_by: u64,
    length: usize,
    values: Values,
}

impl<'a> FieldColumn<'a> {
    pub(super) fn new(
        name: Cow<'a, str>,
        raw: &'a str,
        field_type: FieldType,
        table_type: Option<ColumnType>,
    ) -> Self {
        Self {
            name,
            field_type,
            narrow: table_type.filter(|table_type| *table_type != field_type.column_type()),
            new: table_type.is_none(),
            raw,
            predictable: !raw.contains(','),
            named_by: 0,
            length: 0,
            values: Values::new(field_type),
        }
    }

    pub(super) fn append(&mut self, row: usize, value: Value<'_>, scratch: &mut String) {
        if row > self.length {
            self.values.append_nulls(row - self.length);
        }
        self.values.append(value, scratch);
        self.length = row + 1;
    }
}

/// A tag's values, one for each series.
pub(super) struct TagColumn<'a> {
    pub(super) name: Cow<'a, str>,
    /// True if lines spell the name as it is, without escapes.
    predictable: bool,
    /// True if the table does not have the column yet.
    pub(super) new: bool,
    length: usize,
    values: StringViewBuilder,
}

impl<'a> TagColumn<'a> {
    pub(super) fn new(name: Cow<'a, str>, new: bool) -> Self {
        let predictable = !name.contains([',', '=', ' ', '\\']);
        Self { name, predictable, new, length: 0, values: StringViewBuilder::new() }
    }

    pub(super) fn append(&mut self, series: usize, value: &str) {
        (self.length..series).for_each(|_| self.values.append_null());
        self.values.append_value(value);
        self.length = series + 1;
    }
}

/// The rows of one measurement.
pub(super) struct Rows<'a> {
    pub(super) name: Cow<'a, str>,
    /// The table, if it exists.
    pub(super) table: Option<Arc<Table>>,
    pub(super) tags: Vec<TagColumn<'a>>,
    pub(super) tag_by_name: HashMap<Cow<'a, str>, usize>,
    /// The columns of the last new series' tags, in its order: most series are like the previous one.
    pub(super) tag_layout: Vec<usize>,
    pub(super) fields: Vec<FieldColumn<'a>>,
    pub(super) field_by_name: HashMap<Cow<'a, str>, usize>,
    /// The columns of the last line's fields, in its order: most lines are like the previous one.
    pub(super) layout: Vec<usize>,
    /// Number of columns of the table with the new ones, the time included.
    pub(super) column_count: usize,
    pub(super) series_count: usize,
    pub(super) series: Vec<u32>,
    pub(super) times: Vec<i64>,
    /// Position of the first row's line.
    pub(super) first_start: usize,
    /// Columns that every line must have: NOT NULL, without a default.
    pub(super) required: Vec<String>,
    /// The oldest time inside the retention, in nanoseconds.
    pub(super) oldest: i64,
}

/// A measurement's rows as a batch.
#[derive(Clone, Debug)]
pub struct TableRows {
    /// The measurement, which is the table's name.
    pub name: String,
    /// The table that the rows were read for, if it existed.
    pub table: Option<Arc<Table>>,
    /// Tags that the table lacks, by name.
    pub new_tags: Vec<String>,
    /// Fields that the table lacks, by name.
    pub new_fields: Vec<(String, ColumnType)>,
    /// Tags by name, the time, fields by name; under their SQL names.
    pub batch: RecordBatch,
    /// Line number of the first row, from 1.
    pub first_line: usize,
    /// The beginning of that line.
    pub first_original: String,
}

impl<'a> Rows<'a> {
    pub(super) fn new(name: Cow<'a, str>, table: Option<Arc<Table>>) -> Self {
        let column_count = table.as_ref().map_or(1, |table| table.schema.columns.len());
        let required = table.iter().flat_map(|table| &table.schema.columns).filter(|column| {
            !column.nullable
                && column.default.is_none()
                && column.generated.is_none()
                && column.semantic != Semantic::TimeIndex
        });
        let required = required.map(|column| column.name.clone()).collect();
        Self {
            name,
            table,
            tags: Vec::new(),
            tag_by_name: HashMap::new(),
            tag_layout: Vec::new(),
            fields: Vec::new(),
            field_by_name: HashMap::new(),
            layout: Vec::new(),
            column_count,
            series_count: 0,
            series: Vec::new(),
            times: Vec::new(),
            first_start: 0,
            required,
            oldest: i64::MIN,
        }
    }

    /// The name of a tag of the last new series, as spelled in lines; `None` if it has several spellings.
    pub(super) fn expected_tag(&self, position: usize) -> Option<&str> {
        let tag = &self.tags[*self.tag_layout.get(position)?];
        tag.predictable.then_some(tag.name.as_ref())
    }

    /// Returns true if these tags have the names of the last new series' tags, in its order. Then they need no further
    /// checks.
    pub(super) fn tags_expected(&self, tags: &[(Cow<'_, str>, Cow<'_, str>)]) -> bool {
        let expected = self.tag_layout.iter().map(|index| &self.tags[*index].name);
        !tags.is_empty() && tags.iter().map(|(name, _)| name).eq(expected)
    }

    /// The name and type of the column for the timestamps.
    fn time(&self, default: &'a str) -> (String, ColumnType) {
        self.table.as_ref().and_then(|table| table.schema.time_index()).map_or_else(
            || (default.to_owned(), ColumnType::Timestamp(Unit::Nanosecond, false)),
            |column| (column.name.clone(), column.column_type),
        )
    }

    /// The collected rows as a batch.
    pub(super) fn finish(mut self, default_time: &'a str) -> Result<TableRows, ArrowError> {
        let (time_name, time_type) = self.time(default_time);
        let rows = self.times.len();
        self.tags.sort_by(|a, b| a.name.cmp(&b.name));
        self.fields.sort_by(|a, b| a.name.cmp(&b.name));
        let (mut new_tags, mut new_fields) = (Vec::new(), Vec::new());
        let (mut columns, mut arrays) = (Vec::new(), Vec::<ArrayRef>::new());
        // If every row has a series of its own, series are numbered like rows.
        let one_row_each = self.series_count == rows;
        let series = UInt32Array::from(self.series);
        for mut tag in self.tags {
            if tag.new {
                new_tags.push(tag.name.to_string());
            }
            (tag.length..self.series_count).for_each(|_| tag.values.append_null());
            columns.push(Field::new(tag.name, DataType::Utf8View, true));
            let values = tag.values.finish();
            arrays.push(if one_row_each {
                Arc::new(values)
            } else {
                take(&values, &series, None)?
            });
        }
        columns.push(Field::new(time_name, time_type.arrow(), false));
        arrays.push(times(self.times, time_type)?);
        for mut field in self.fields {
            let field_type = field.narrow.unwrap_or(field.field_type.column_type());
            if field.new {
                new_fields.push((field.name.to_string(), field_type));
            }
            field.values.append_nulls(rows - field.length);
            let mut array = field.values.finish();
            if field.narrow.is_some() {
                array = cast(&array, &field_type.arrow())?;
            }
            columns.push(Field::new(field.name, field_type.arrow(), true));
            arrays.push(array);
        }
        Ok(TableRows {
            name: self.name.into_owned(),
            table: self.table,
            new_tags,
            new_fields,
            batch: RecordBatch::try_new(Arc::new(Schema::new(columns)), arrays)?,
            first_line: 0,
            first_original: String::new(),
        })
    }
}

/// Nanoseconds as a column of the table's type, truncated to its unit.
fn times(nanoseconds: Vec<i64>, time_type: ColumnType) -> Result<ArrayRef, ArrowError> {
    let unit = match time_type {
        ColumnType::Timestamp(unit, _) => unit,
        _ => Unit::Nanosecond,
    };
    let per_tick = Unit::Nanosecond.per_second() / unit.per_second();
    let ticks: Vec<i64> = if per_tick == 1 {
        nanoseconds
    } else {
        nanoseconds.into_iter().map(|time| time.div_euclid(per_tick)).collect()
    };
    let data = TimestampNanosecondArray::from(ticks).into_data();
    let data = data.into_builder().data_type(match time_type.arrow() {
        timestamp @ DataType::Timestamp(..) => timestamp,
        _ => DataType::Timestamp(TimeUnit::Nanosecond, None),
    });
    Ok(arrow::array::make_array(data.build()?))
}

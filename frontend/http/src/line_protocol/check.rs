//! Checks of a line against its table: names, types, limits.
//!
//! A measurement's table is the one in the catalog, plus the additions of earlier lines. A line must not:
//! - name a tag or a field twice, give both the same name, or use `time` or the time index's name;
//! - have a value of another type than its column (narrower columns, made by SQL, accept values that fit);
//! - have a column that a table made by SQL lacks, or omit one that must not be NULL;
//! - have a time outside the table's retention;
//! - take the table over its limit of columns.

use std::borrow::Cow;

use partita_proto::schema::{
    Column, ColumnType, KEY_COLUMNS_MAX, Semantic, TableSchema, validate_name,
};

use super::line::FieldScan;
use super::reject::Kind;
use super::scan::Value;
use super::table::{FieldType, Rows};

/// The name that no tag or field may have, whatever the name of the time index.
const TIME: &str = "time";
const INFLUX_TAG: &str = "iox::column_type::tag";
const INFLUX_TIMESTAMP: &str = "iox::column_type::timestamp";

/// The reason to reject a well-formed line.
pub(super) type Refusal = (Kind, String);

fn schema<T>(message: String) -> Result<T, Refusal> {
    Err((Kind::Schema, message))
}

/// The limits and names that a request's lines are checked against.
pub(super) struct Limits<'a> {
    pub(super) time_column: &'a str,
    pub(super) columns_max: usize,
    pub(super) string_bytes_max: usize,
    /// True if the database has an explicit schema: measurements and columns were made ahead.
    pub(super) explicit: bool,
}

fn conflict<T>(name: &str, expected: &str, got: &str) -> Result<T, Refusal> {
    schema(format!("invalid column type for column '{name}', expected {expected}, got {got}"))
}

/// A value of another type than the explicit schema has, in InfluxDB's words.
fn mismatch<T>(name: &str, expected: Option<FieldType>, got: FieldType) -> Result<T, Refusal> {
    let expected = expected.map_or("another type", FieldType::schema_name);
    schema(format!(
        "field type mismatch with schema: field type for '{name}' got {} but expected {expected}",
        got.schema_name()
    ))
}

fn check_name(rows: &Rows<'_>, limits: &Limits<'_>, kind: &str, name: &str) -> Result<(), Refusal> {
    let time_index = rows.table.as_ref().and_then(|table| table.schema.time_index());
    let time_column = time_index.map_or(limits.time_column, |column| column.name.as_str());
    if name == TIME || name == time_column {
        return schema(format!(
            "'{name}' is the name of the time column and cannot be a {kind}; the time is given at the end \
             of a line"
        ));
    }
    if name.starts_with("__") {
        return schema(format!("{kind} '{name}' must not start with two underscores"));
    }
    validate_name("column", name).map_err(|error| (Kind::Schema, error.to_string()))
}

/// The table's column with a name; an error if the table has none and accepts no new ones.
fn column_of<'r>(
    rows: &'r Rows<'_>,
    limits: &Limits<'_>,
    (kind, name): (&str, &str),
) -> Result<Option<&'r Column>, Refusal> {
    let Some(table) = &rows.table else { return Ok(None) };
    match table.schema.column(name) {
        Some(column) => Ok(Some(column)),
        None if table.schema.schema_on_write => Ok(None),
        None if limits.explicit => schema(format!(
            "{kind} '{name}' of measurement \"{}\" not allowed by schema",
            table.name
        )),
        None => schema(format!(
            "table \"{}\" has no column \"{name}\" and does not accept new columns; add it with \
             ALTER TABLE",
            table.name
        )),
    }
}

/// InfluxDB's name of a column's type, or SQL's if InfluxDB has none.
fn type_name(column: &Column) -> String {
    match (column.semantic, column.column_type) {
        (Semantic::TimeIndex, _) => INFLUX_TIMESTAMP.to_owned(),
        (Semantic::Tag, ColumnType::String) => INFLUX_TAG.to_owned(),
        (_, ColumnType::Float64) => FieldType::Float.influx().to_owned(),
        (_, ColumnType::Int64) => FieldType::Integer.influx().to_owned(),
        (_, ColumnType::UInt64) => FieldType::Unsigned.influx().to_owned(),
        (_, ColumnType::Bool) => FieldType::Boolean.influx().to_owned(),
        (_, ColumnType::String) => FieldType::String.influx().to_owned(),
        (_, column_type) => column_type.sql(),
    }
}

/// Checks that a table can be written by line protocol at all.
pub(super) fn check_table(rows: &Rows<'_>, limits: &Limits<'_>) -> Result<(), Refusal> {
    match &rows.table {
        None if limits.explicit => {
            schema(format!("measurement \"{}\" not allowed by schema", rows.name))
        }
        None => match validate_name("table", &rows.name) {
            Ok(()) => Ok(()),
            Err(error) => schema(error.to_string()),
        },
        Some(table) if table.schema.time_index().is_none() => schema(format!(
            "table \"{}\" has no TIME INDEX, which line protocol requires",
            table.name
        )),
        Some(_) => Ok(()),
    }
}

/// Checks that a line's time is inside the retention of its table.
pub(super) fn check_time(rows: &Rows<'_>, time: i64) -> Result<(), Refusal> {
    if time >= rows.oldest {
        return Ok(());
    }
    Err((
        Kind::Retention,
        format!(
            "the time {time} is outside the retention of table \"{}\", which begins at {}",
            rows.name, rows.oldest
        ),
    ))
}

/// Checks the tags of a new series. Returns the number of columns that they add.
pub(super) fn check_tags(
    rows: &Rows<'_>,
    limits: &Limits<'_>,
    tags: &[(Cow<'_, str>, Cow<'_, str>)],
) -> Result<usize, Refusal> {
    // The key ends with the time index. Checked before anything that is quadratic in the tags.
    if tags.len() >= KEY_COLUMNS_MAX {
        return schema(format!(
            "{} tags exceed the limit of {} key columns",
            tags.len(),
            KEY_COLUMNS_MAX - 1
        ));
    }
    let mut added = 0;
    for (index, (name, _)) in tags.iter().enumerate() {
        if tags[..index].iter().any(|(earlier, _)| earlier == name) {
            return schema(format!("tag '{name}' is specified more than once"));
        }
        if rows.tag_by_name.contains_key(name) {
            continue;
        }
        check_name(rows, limits, "tag", name)?;
        if let Some(&field) = rows.field_by_name.get(name) {
            return conflict(name, rows.fields[field].field_type.influx(), INFLUX_TAG);
        }
        match column_of(rows, limits, ("tag", name))? {
            None => added += 1,
            Some(column) if column.generated.is_some() => return generated(name),
            Some(column)
                if column.semantic == Semantic::Tag && column.column_type == ColumnType::String => {
            }
            Some(column) => return conflict(name, &type_name(column), INFLUX_TAG),
        }
    }
    let key = rows.table.as_ref().map_or(1, |table| table.schema.key.len());
    let known_new = rows.tags.iter().filter(|tag| tag.new).count();
    if key + known_new + added > KEY_COLUMNS_MAX {
        return schema(format!(
            "the tags would take the key over its limit of {KEY_COLUMNS_MAX} columns"
        ));
    }
    Ok(added)
}

fn generated<T>(name: &str) -> Result<T, Refusal> {
    schema(format!("column '{name}' is generated and cannot be written"))
}

/// Checks a field that is new in this request. Returns the type of the table's column, if it has one.
pub(super) fn check_new_field(
    rows: &Rows<'_>,
    limits: &Limits<'_>,
    field: &FieldScan<'_>,
    tags: &[(Cow<'_, str>, Cow<'_, str>)],
) -> Result<Option<ColumnType>, Refusal> {
    let name = field.name.as_ref();
    let got = FieldType::of(field.value);
    check_name(rows, limits, "field", name)?;
    if tags.iter().any(|(tag, _)| tag == name) {
        return schema(format!("a tag and a field are both named '{name}'"));
    }
    if rows.tag_by_name.contains_key(name) {
        return conflict(name, INFLUX_TAG, got.influx());
    }
    let Some(column) = column_of(rows, limits, ("field", name))? else { return Ok(None) };
    if column.generated.is_some() {
        return generated(name);
    }
    // A key column of another type than string cannot be a tag of line protocol; it is written as a field.
    let string_tag = column.semantic == Semantic::Tag && column.column_type == ColumnType::String;
    if limits.explicit && column.semantic == Semantic::Field && !takes(column.column_type, got) {
        return mismatch(name, FieldType::of_column(column.column_type), got);
    }
    if string_tag || !takes(column.column_type, got) {
        return conflict(name, &type_name(column), got.influx());
    }
    Ok(Some(column.column_type))
}

/// Returns true if a column accepts values of a field's type, as long as they fit.
fn takes(column_type: ColumnType, field_type: FieldType) -> bool {
    use ColumnType as C;
    match field_type {
        FieldType::Float => matches!(column_type, C::Float32 | C::Float64),
        FieldType::Integer => matches!(column_type, C::Int8 | C::Int16 | C::Int32 | C::Int64),
        FieldType::Unsigned => {
            matches!(column_type, C::UInt8 | C::UInt16 | C::UInt32 | C::UInt64)
        }
        FieldType::Boolean => column_type == C::Bool,
        FieldType::String => column_type == C::String,
    }
}

/// Checks a value against its column's type and the limit of strings.
pub(super) fn check_value(
    limits: &Limits<'_>,
    name: &str,
    expected: FieldType,
    narrow: Option<ColumnType>,
    value: Value<'_>,
) -> Result<(), Refusal> {
    let got = FieldType::of(value);
    if got != expected && limits.explicit {
        return mismatch(name, Some(expected), got);
    }
    if got != expected {
        return conflict(name, expected.influx(), got.influx());
    }
    match (value, narrow) {
        (Value::String(text, _), _) if text.len() > limits.string_bytes_max => schema(format!(
            "the value of field '{name}' has {} bytes, the limit is {}",
            text.len(),
            limits.string_bytes_max
        )),
        (_, Some(column_type)) if !fits(column_type, value) => {
            schema(format!("the value of field '{name}' is out of range for {}", column_type.sql()))
        }
        _ => Ok(()),
    }
}

fn fits(column_type: ColumnType, value: Value<'_>) -> bool {
    match (column_type, value) {
        (ColumnType::Int8, Value::Integer(value)) => i8::try_from(value).is_ok(),
        (ColumnType::Int16, Value::Integer(value)) => i16::try_from(value).is_ok(),
        (ColumnType::Int32, Value::Integer(value)) => i32::try_from(value).is_ok(),
        (ColumnType::UInt8, Value::Unsigned(value)) => u8::try_from(value).is_ok(),
        (ColumnType::UInt16, Value::Unsigned(value)) => u16::try_from(value).is_ok(),
        (ColumnType::UInt32, Value::Unsigned(value)) => u32::try_from(value).is_ok(),
        (ColumnType::Float32, Value::Float(value)) => value.abs() <= f64::from(f32::MAX),
        _ => true,
    }
}

/// Checks that the table can have this number of columns more.
pub(super) fn check_column_count(
    rows: &Rows<'_>,
    limits: &Limits<'_>,
    added: usize,
) -> Result<(), Refusal> {
    if added > 0 && rows.column_count + added > limits.columns_max {
        return Err((
            Kind::ColumnLimit,
            format!(
                "Update to schema would exceed number of columns per table limit of {} columns",
                limits.columns_max
            ),
        ));
    }
    Ok(())
}

/// Checks that a line has all columns that the table requires.
pub(super) fn check_required(
    rows: &Rows<'_>,
    is_named: impl Fn(&str) -> bool,
) -> Result<(), Refusal> {
    match rows.required.iter().find(|name| !is_named(name)) {
        Some(name) => schema(format!(
            "column '{name}' of table \"{}\" must not be NULL, but is missing in the line",
            rows.name
        )),
        None => Ok(()),
    }
}

/// Returns true if rows that were read for one schema can be written with another.
pub(super) fn still_fits(schema: &TableSchema, rows: &super::table::TableRows) -> bool {
    let batch_schema = rows.batch.schema();
    batch_schema.fields().iter().all(|field| {
        schema.column(field.name()).is_some_and(|column| {
            let new_tag = rows.new_tags.iter().any(|tag| tag == field.name());
            let new_field = rows.new_fields.iter().any(|(new, _)| new == field.name());
            column.column_type.arrow() == *field.data_type()
                && column.generated.is_none()
                && (!new_tag || column.semantic == Semantic::Tag)
                && (!new_field || column.semantic == Semantic::Field)
        })
    })
}

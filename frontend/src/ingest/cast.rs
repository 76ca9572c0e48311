//! Assignment: converts columns of any suitable type to the types of the table.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, new_null_array};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::{
    DataType, FieldRef, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use datafusion::error::DataFusionError;
use partita_proto::lists::gathered;
use partita_proto::schema::{Column, ColumnType, UUID};
use partita_proto::time_of_day::DAY_MICROS;
use partita_worker::casts::rounded;
use partita_worker::interval_text::intervals_of;
use partita_worker::{lists_of, nearest_floats, times_of, uuids_of};

use super::length::fitting;
use crate::error::{DATATYPE_MISMATCH, SqlError};

/// A value that does not fit is an error, not NULL.
const STRICT: CastOptions<'static> =
    CastOptions { safe: false, format_options: arrow::util::display::FormatOptions::new() };

/// Converts values to a column's type and checks the length of texts ([`fitting`]).
///
/// # Errors
/// Fails if the types are not assignable, or a value does not fit.
pub(crate) fn assign(array: &ArrayRef, column: &Column) -> Result<ArrayRef, SqlError> {
    let values = converted(array, column)?;
    check_times(&values, column)?;
    fitting(values, column)
}

/// Converts values to a column's type: integers for timestamps are ticks, texts are parsed, fractions are rounded to
/// the nearest integer, digits finer than a timestamp's unit are truncated. A value out of range is an error that
/// names the column.
///
/// # Errors
/// Fails if the types are not assignable, or a value does not fit.
fn converted(array: &ArrayRef, column: &Column) -> Result<ArrayRef, SqlError> {
    let target = column.column_type.arrow();
    let source = array.data_type();
    if *source == target {
        return Ok(Arc::clone(array));
    }
    if *source == DataType::Null {
        return Ok(new_null_array(&target, array.len()));
    }
    if !may_assign(source, &target) {
        return Err(SqlError::new(
            DATATYPE_MISMATCH,
            format!(
                "column \"{}\" is of type {} but expression is of type {source}",
                column.name,
                column.column_type.sql()
            ),
        ));
    }
    let with_column = |error: DataFusionError| {
        let error = SqlError::from(error);
        SqlError { message: format!("column \"{}\": {}", column.name, error.message), ..error }
    };
    let cast = |array: &ArrayRef, data_type: &DataType| {
        cast_with_options(array, data_type, &STRICT).map_err(|error| with_column(error.into()))
    };
    match (source, &target) {
        // The ticks of a time are UTC in every zone, never local time.
        (DataType::Timestamp(unit, Some(_)), DataType::Timestamp(..)) => {
            let utc = with_zone(array, *unit, None);
            if *utc.data_type() == target { Ok(utc) } else { cast(&utc, &target) }
        }
        (_, &UUID) => uuids_of(array).map_err(with_column),
        (_, DataType::Interval(_)) => intervals_of(array).map_err(with_column),
        (_, DataType::List(item)) => match element_of(source) {
            None => lists_of(array, item).map_err(with_column),
            Some(_) => arrays(array, item, column),
        },
        // A dictionary of texts too.
        (
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Dictionary(..),
            target,
        ) if is_time(target) => times_of(array).map_err(with_column),
        (_, target) if target.is_integer() => cast(&rounded(array, target)?, target),
        (DataType::Decimal128(..), DataType::Float64 | DataType::Float32) => {
            Ok(nearest_floats(array, target == DataType::Float64)?)
        }
        _ => cast(array, &target),
    }
}

/// The arrays with each element converted to the type of the column's elements.
fn arrays(array: &ArrayRef, item: &FieldRef, column: &Column) -> Result<ArrayRef, SqlError> {
    let ColumnType::Array(element) = column.column_type else { return Ok(Arc::clone(array)) };
    let lists = match array.data_type() {
        DataType::LargeList(source) | DataType::FixedSizeList(source, _) => {
            cast_with_options(array, &DataType::List(Arc::clone(source)), &STRICT)?
        }
        _ => Arc::clone(array),
    };
    // Elements of rows that are not written must not fail.
    let lists = gathered(lists.as_list::<i32>())?;
    let lists = lists.as_list::<i32>();
    let elements = Column { column_type: element.column_type(), ..column.clone() };
    let values = converted(lists.values(), &elements)?;
    let (offsets, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, nulls)?))
}

/// Type of the elements of an array; `None` for other types.
fn element_of(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            Some(item.data_type())
        }
        _ => None,
    }
}

/// Checks that times of day are less than a day.
fn check_times(values: &ArrayRef, column: &Column) -> Result<(), SqlError> {
    if !is_time(values.data_type()) {
        return Ok(());
    }
    let times = values.as_primitive::<Time64MicrosecondType>();
    if times.iter().flatten().all(|micros| (0..DAY_MICROS).contains(&micros)) {
        return Ok(());
    }
    Err(SqlError::new("22008", format!("column \"{}\": time out of range", column.name)))
}

fn is_time(target: &DataType) -> bool {
    matches!(target, DataType::Time64(TimeUnit::Microsecond))
}

fn may_assign(source: &DataType, target: &DataType) -> bool {
    if let DataType::Dictionary(_, values) = source {
        return may_assign(values, target);
    }
    let sensible = match target {
        DataType::Timestamp(..) => {
            source.is_integer()
                || matches!(
                    source,
                    DataType::Timestamp(..)
                        | DataType::Date32
                        | DataType::Date64
                        | DataType::Utf8
                        | DataType::LargeUtf8
                        | DataType::Utf8View
                )
        }
        DataType::Boolean => !source.is_temporal() && !source.is_floating(),
        DataType::Utf8View => !source.is_nested(),
        _ if target.is_numeric() => !source.is_temporal(),
        &UUID => return source.is_string(),
        DataType::Interval(_) => {
            return source.is_string()
                || matches!(source, DataType::Interval(_) | DataType::Duration(_));
        }
        // Arrow would make an array of a single value.
        DataType::List(item) => {
            return match element_of(source) {
                None => source.is_string(),
                Some(DataType::Null) => true,
                Some(element) => {
                    element == item.data_type() || may_assign(element, item.data_type())
                }
            };
        }
        DataType::Time64(_) => {
            source.is_string()
                || matches!(
                    source,
                    DataType::Time32(_) | DataType::Time64(_) | DataType::Timestamp(..)
                )
        }
        _ => true,
    };
    sensible && can_cast_types(source, target)
}

fn with_zone(array: &ArrayRef, unit: TimeUnit, zone: Option<Arc<str>>) -> ArrayRef {
    match unit {
        TimeUnit::Second => {
            Arc::new(array.as_primitive::<TimestampSecondType>().clone().with_timezone_opt(zone))
        }
        TimeUnit::Millisecond => Arc::new(
            array.as_primitive::<TimestampMillisecondType>().clone().with_timezone_opt(zone),
        ),
        TimeUnit::Microsecond => Arc::new(
            array.as_primitive::<TimestampMicrosecondType>().clone().with_timezone_opt(zone),
        ),
        TimeUnit::Nanosecond => Arc::new(
            array.as_primitive::<TimestampNanosecondType>().clone().with_timezone_opt(zone),
        ),
    }
}

//! Assignment of columns: values of any type that fits, as values of the table's.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, new_null_array};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::{
    DataType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use partita_proto::schema::Column;
use partita_worker::casts::rounded;
use partita_worker::nearest_floats;

use super::length::fitting;
use crate::error::{DATATYPE_MISMATCH, SqlError};

/// An error, not NULL, for a value that does not fit.
const STRICT: CastOptions<'static> =
    CastOptions { safe: false, format_options: arrow::util::display::FormatOptions::new() };

/// The values as values of a column, texts no longer than it takes ([`fitting`]).
///
/// # Errors
/// When the types do not fit at all, or a value does not.
pub(crate) fn assign(array: &ArrayRef, column: &Column) -> Result<ArrayRef, SqlError> {
    fitting(converted(array, column)?, column)
}

/// The values as values of a column's type: integers into timestamps are ticks, texts are parsed,
/// numbers with a fraction become the nearest integer, fractions of timestamps finer than the column's
/// are cut off, and what is out of range is an error that names the column.
///
/// # Errors
/// When the types do not fit at all, or a value does not.
fn converted(array: &ArrayRef, column: &Column) -> Result<ArrayRef, SqlError> {
    let to = column.column_type.arrow();
    let from = array.data_type();
    if *from == to {
        return Ok(Arc::clone(array));
    }
    if *from == DataType::Null {
        return Ok(new_null_array(&to, array.len()));
    }
    if !may_assign(from, &to) {
        return Err(SqlError::new(
            DATATYPE_MISMATCH,
            format!(
                "column \"{}\" is of type {} but expression is of type {from}",
                column.name,
                column.column_type.sql()
            ),
        ));
    }
    let cast = |array: &ArrayRef, to: &DataType| {
        cast_with_options(array, to, &STRICT).map_err(|error| {
            let error = SqlError::from(error);
            SqlError { message: format!("column \"{}\": {}", column.name, error.message), ..error }
        })
    };
    match (from, &to) {
        // Ticks are UTC whatever the zone is called: never its wall clock's.
        (DataType::Timestamp(unit, Some(_)), DataType::Timestamp(..)) => {
            let utc = with_zone(array, *unit, None);
            if *utc.data_type() == to { Ok(utc) } else { cast(&utc, &to) }
        }
        (_, to) if to.is_integer() => cast(&rounded(array, to)?, to),
        (DataType::Decimal128(..), DataType::Float64 | DataType::Float32) => {
            Ok(nearest_floats(array, to == DataType::Float64)?)
        }
        _ => cast(array, &to),
    }
}

fn may_assign(from: &DataType, to: &DataType) -> bool {
    if let DataType::Dictionary(_, values) = from {
        return may_assign(values, to);
    }
    let sensible = match to {
        DataType::Timestamp(..) => {
            from.is_integer()
                || matches!(
                    from,
                    DataType::Timestamp(..)
                        | DataType::Date32
                        | DataType::Date64
                        | DataType::Utf8
                        | DataType::LargeUtf8
                        | DataType::Utf8View
                )
        }
        DataType::Boolean => !from.is_temporal() && !from.is_floating(),
        DataType::Utf8View => !from.is_nested(),
        _ if to.is_numeric() => !from.is_temporal(),
        _ => true,
    };
    sensible && can_cast_types(from, to)
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

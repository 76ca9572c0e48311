//! Values of queries and of clients, ready to be assigned to columns.

use std::sync::Arc;

use arrow::array::ArrayRef;
use partita_proto::schema::{Column, ColumnType};
use partita_worker::{Zone, bytes_of, cast_texts, zoned};

use crate::error::SqlError;

/// Columns of a batch; texts for BINARY columns are decoded.
fn with_bytes(values: &[ArrayRef], columns: &[&Column]) -> Result<Vec<ArrayRef>, SqlError> {
    let read = |(values, column): (&ArrayRef, &&Column)| {
        if column.column_type != ColumnType::Binary || !values.data_type().is_string() {
            return Ok(Arc::clone(values));
        }
        bytes_of(values).map_err(|error| {
            let error = SqlError::from(error);
            SqlError { message: format!("column \"{}\": {}", column.name, error.message), ..error }
        })
    };
    values.iter().zip(columns).map(read).collect()
}

/// Columns of a batch, ready for assignment: texts for BINARY columns are decoded, and local times of the session's
/// zone become instants for columns WITH TIME ZONE.
pub(super) fn assignable(
    values: &[ArrayRef],
    columns: &[&Column],
    zone: Zone,
) -> Result<Vec<ArrayRef>, SqlError> {
    let values = with_bytes(values, columns)?;
    let instants = |(values, column): (&ArrayRef, &&Column)| match column.column_type {
        ColumnType::Timestamp(_, true) if !zone.is_utc() => zoned::as_instants(values, zone),
        ColumnType::String if !values.data_type().is_nested() => Ok(cast_texts(values, zone)?),
        _ => Ok(Arc::clone(values)),
    };
    values.iter().zip(columns).map(instants).collect()
}

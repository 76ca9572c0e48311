//! Values of queries and of clients, ready to be assigned to columns.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray};
use arrow::datatypes::Field;
use partita_proto::lists::gathered;
use partita_proto::schema::{Column, ColumnType, Element};
use partita_worker::{Zone, bytes_of, cast_texts, lists_of, zoned};

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
        ColumnType::Array(Element::Timestamp(_, true)) if !zone.is_utc() => {
            arrays_of_instants(values, zone)
        }
        ColumnType::String if !values.data_type().is_nested() => Ok(cast_texts(values, zone)?),
        _ => Ok(Arc::clone(values)),
    };
    values.iter().zip(columns).map(instants).collect()
}

/// Arrays whose local times of the session's zone, and texts, are instants.
fn arrays_of_instants(values: &ArrayRef, zone: Zone) -> Result<ArrayRef, SqlError> {
    let lists = if values.data_type().is_string() {
        lists_of(values, &Arc::new(Element::String.field()))?
    } else {
        Arc::clone(values)
    };
    let Some(lists) = lists.as_list_opt::<i32>() else { return Ok(lists) };
    // Elements of other rows must not fail.
    let lists = gathered(lists)?;
    let lists = lists.as_list::<i32>();
    let instants = zoned::as_instants(lists.values(), zone)?;
    let item = Arc::new(Field::new_list_field(instants.data_type().clone(), true));
    let (offsets, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
    Ok(Arc::new(ListArray::try_new(item, offsets, instants, nulls)?))
}

#[cfg(test)]
mod tests {
    use arrow::array::StringViewArray;
    use arrow::compute::cast;
    use arrow::datatypes::TimestampMicrosecondType;
    use partita_proto::schema::Unit;

    use super::*;

    #[test]
    fn local_times_in_arrays_are_instants_of_the_zone() {
        let zone = Zone::named("Europe/Berlin").unwrap();
        let texts: ArrayRef =
            Arc::new(StringViewArray::from(vec![Some("{2024-01-01 01:00:00,NULL}"), None]));
        let arrays = arrays_of_instants(&texts, zone).unwrap();
        let arrays = arrays.as_list::<i32>();
        assert!(arrays.is_null(1));
        let target = ColumnType::Timestamp(Unit::Microsecond, true).arrow();
        let times = cast(&arrays.value(0), &target).unwrap();
        let times = times.as_primitive::<TimestampMicrosecondType>();
        assert_eq!(times.value(0), 1_704_067_200_000_000);
        assert!(times.is_null(1));
    }
}

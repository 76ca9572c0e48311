//! Values that clients bind to the parameters of statements, and counts of affected rows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use futures::StreamExt;
use partita_frontend::{Output, SqlError};
use tonic::Status;

use super::status::{arrow_status, status_of};

/// The values of the parameters, one row for each row of a client's batch.
pub(crate) fn values(
    batch: &RecordBatch,
    types: &[DataType],
) -> Result<Vec<Vec<ScalarValue>>, Status> {
    // One column for each parameter.
    if batch.num_columns() != types.len() {
        return Err(Status::invalid_argument(format!(
            "{} parameters are bound, but the statement has {}",
            batch.num_columns(),
            types.len()
        )));
    }
    // Columns are cast as a whole, where the parameter's type is known.
    let columns = batch
        .columns()
        .iter()
        .zip(types)
        .map(|(column, target)| match target {
            DataType::Null => in_utc(column),
            _ => cast(&in_utc(column)?, target),
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(arrow_status)?;
    // Transposed into the rows that executions take.
    (0..batch.num_rows())
        .map(|row| {
            columns
                .iter()
                .map(|column| {
                    ScalarValue::try_from_array(column.as_ref() as &dyn Array, row)
                        .map_err(|error| status_of(&error.into()))
                })
                .collect()
        })
        .collect()
}

/// The same instants in UTC. Arrow panics where the local time in another zone lies beyond its calendar.
fn in_utc(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match column.data_type() {
        DataType::Timestamp(unit, Some(_)) => {
            cast(column, &DataType::Timestamp(*unit, Some("UTC".into())))
        }
        _ => Ok(Arc::clone(column)),
    }
}

/// Affected rows as Flight SQL counts them: -1 when the number is unknown.
fn affected(outputs: &[Output]) -> i64 {
    let mut total = -1_i64;
    for output in outputs {
        if let Output::Done { rows: Some(rows), .. } = output {
            total = total.max(0).saturating_add(i64::try_from(*rows).unwrap_or(i64::MAX));
        }
    }
    total
}

/// Fetches the rows of all outputs to their end. Returns the number of affected rows.
pub(crate) async fn finish(outputs: Vec<Output>) -> Result<i64, SqlError> {
    let count = affected(&outputs);
    for output in outputs {
        if let Output::Rows { mut stream, .. } = output {
            while stream.next().await.transpose()?.is_some() {}
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use arrow::array::TimestampMicrosecondArray;

    use super::*;

    /// Microseconds of the last second that Arrow's calendar has, in the year 262142.
    const LAST: i64 = 8_210_266_876_799_000_000;

    #[test]
    fn times_at_the_end_of_the_calendar_are_bound_in_any_zone() {
        // The last hour of the calendar in UTC is already beyond it farther east.
        let times = TimestampMicrosecondArray::from(vec![LAST]).with_timezone("+14:00");
        let batch = RecordBatch::try_from_iter([("a", Arc::new(times) as ArrayRef)]).unwrap();
        for target in [DataType::Date32, DataType::Null, DataType::Utf8] {
            let bound = values(&batch, std::slice::from_ref(&target)).unwrap();
            assert!(!bound[0][0].is_null(), "{target}");
        }
    }
}

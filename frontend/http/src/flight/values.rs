//! What clients bind to the parameters of statements, and what those answer in numbers.

use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use futures::StreamExt;
use partita_frontend::{Output, SqlError};
use tonic::Status;

use super::status::{arrow_status, status_of};

/// Values of the parameters, a row of them for each row of a client's batch.
pub(crate) fn values(
    batch: &RecordBatch,
    types: &[DataType],
) -> Result<Vec<Vec<ScalarValue>>, Status> {
    if batch.num_columns() != types.len() {
        return Err(Status::invalid_argument(format!(
            "{} parameters were bound, the statement has {}",
            batch.num_columns(),
            types.len()
        )));
    }
    let columns = batch
        .columns()
        .iter()
        .zip(types)
        .map(|(column, wanted)| match wanted {
            DataType::Null => Ok(Arc::clone(column)),
            _ => cast(column, wanted),
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(arrow_status)?;
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

/// Rows affected, as Flight SQL counts them: -1 when nobody knows.
fn affected(outputs: &[Output]) -> i64 {
    let mut total = -1_i64;
    for output in outputs {
        if let Output::Done { rows: Some(rows), .. } = output {
            total = total.max(0).saturating_add(i64::try_from(*rows).unwrap_or(i64::MAX));
        }
    }
    total
}

/// Runs what is left of outputs that have rows.
pub(crate) async fn finish(outputs: Vec<Output>) -> Result<i64, SqlError> {
    let count = affected(&outputs);
    for output in outputs {
        if let Output::Rows { mut stream, .. } = output {
            while stream.next().await.transpose()?.is_some() {}
        }
    }
    Ok(count)
}

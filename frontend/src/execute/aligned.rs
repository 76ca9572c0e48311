//! The times and keys of tables whose rows a query aligns (`RANGE .. ALIGN ..`).
//!
//! For a stored table they are its time index and its primary key. For a subquery or a view, the time is its only
//! timestamp column, and the query must list the keys.

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::execution::SessionState;
use datafusion::sql::planner::object_name_to_table_reference;
use datafusion::sql::sqlparser::ast::TableFactor;
use partita_proto::schema::{Column, TableSchema};
use partita_sql::aligned::{Source, TimeAndKeys};

use crate::error::{INVALID_PARAMETER_VALUE, SqlError};
use crate::table::PartitionedTable;

/// The time and the keys of an aligned table; `None` if the source is not a table or view of the catalog.
pub(super) async fn of_named(
    state: &SessionState,
    source: &Source,
) -> Result<Option<TimeAndKeys>, SqlError> {
    let TableFactor::Table { name, args: None, .. } = &source.relation else { return Ok(None) };
    let reference = object_name_to_table_reference(name.clone(), true)?;
    let Ok(schema) = state.schema_for_ref(reference.clone()) else { return Ok(None) };
    let Some(table) = schema.table(reference.table()).await? else { return Ok(None) };
    match table.downcast_ref::<PartitionedTable>() {
        Some(stored) => of_table(&stored.table().schema).map(Some),
        None => of_rows(&table.schema(), source).map(Some),
    }
}

fn of_table(schema: &TableSchema) -> Result<TimeAndKeys, SqlError> {
    let is_time = |column: &Column| matches!(column.field().data_type(), DataType::Timestamp(..));
    let time = match schema.time_index() {
        Some(column) => column.name.clone(),
        None => {
            let times = schema.shown().filter(|column| is_time(column));
            only(times.map(|column| column.name.clone()).collect())?
        }
    };
    let keys = schema.key_columns().filter(|column| !column.is_hidden() && column.name != time);
    let keys = keys.map(|column| column.name.clone()).collect();
    Ok(TimeAndKeys { time, keys })
}

/// The time column of a subquery or a view.
pub(super) fn of_rows(schema: &SchemaRef, source: &Source) -> Result<TimeAndKeys, SqlError> {
    if source.needs_keys {
        let message = format!("ALIGN needs BY: {} has no primary key", source.relation);
        return Err(SqlError::new(INVALID_PARAMETER_VALUE, message)
            .with_hint("BY () makes one group of all rows"));
    }
    let is_time = |data_type: &DataType| matches!(data_type, DataType::Timestamp(..));
    let times = schema.fields().iter().filter(|field| is_time(field.data_type()));
    let time = only(times.map(|field| field.name().clone()).collect())?;
    Ok(TimeAndKeys { time, keys: Vec::new() })
}

/// The only column that can be the time.
fn only(mut times: Vec<String>) -> Result<String, SqlError> {
    match (times.pop(), times.is_empty()) {
        (Some(time), true) => Ok(time),
        _ => {
            let message =
                "ALIGN needs a table with a time index, or with one column that is a timestamp";
            Err(SqlError::new(INVALID_PARAMETER_VALUE, message))
        }
    }
}

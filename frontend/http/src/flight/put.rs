//! Bulk rows: record batches of a client straight into a table.
//!
//! A batch and the messages that it came in have a claim on the memory for bodies until the batch is written.
//!
//! Batches are written in the order of arrival, so that of two rows with one key the later wins; for an append-mode
//! table, which keeps both, [`APPENDS_AT_ONCE`] batches are written at a time. Each batch is durable when it is
//! acknowledged; when one fails, the earlier ones stay. The right to write is checked for each batch, so that a long
//! stream ends soon after the right was revoked.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::Schema;
use arrow::record_batch::RecordBatch;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::sql::server::PeekableFlightDataStream;
use arrow_flight::sql::{CommandStatementIngest, TableExistsOption, TableNotExistOption};
use arrow_flight::{FlightData, PutResult};
use futures::{Stream, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use partita_frontend::SqlError;
use partita_proto::access::{Action, Identity};
use partita_proto::catalog::Table;
use partita_proto::id::{ColumnId, RoleId, SchemaVersion};
use partita_proto::placement::Placement;
use partita_proto::schema::{Column, ColumnType, Semantic, TableOptions, TableSchema};
use partita_proto::service::{Ddl, NewTable};
use tonic::Status;

use super::metadata::CATALOG;
use super::status::{status_of, stream_status};
use super::{Answers, ipc};
use crate::call_memory::{CallMemory, Claim};
use crate::door::Door;
use crate::write_rights::{insert_permit, need_of, rows_permit};

/// Batches of an append-mode table that are written at the same time.
const APPENDS_AT_ONCE: usize = 4;

/// A batch with the claims for its messages.
pub(crate) type ClaimedBatch = (RecordBatch, Vec<Claim>);

/// The batches of a client's stream.
pub(crate) struct Batches {
    decoded: FlightRecordBatchStream,
    /// Claims for the messages since the last batch.
    claims: Arc<Mutex<Vec<Claim>>>,
}

impl Batches {
    /// The batches of a stream, whose messages are checked first ([`ipc`]); `memory`: that of the call.
    pub(crate) fn new(stream: PeekableFlightDataStream, memory: Option<Arc<CallMemory>>) -> Self {
        let claims = Arc::new(Mutex::new(Vec::new()));
        let messages = Messages {
            stream,
            check: ipc::Check::default(),
            memory,
            claims: Arc::clone(&claims),
            dictionaries: HashMap::new(),
        };
        let checked = futures::stream::try_unfold(messages, |mut messages| async move {
            Ok::<_, FlightError>(messages.next().await?.map(|data| (data, messages)))
        });
        Self { decoded: FlightRecordBatchStream::new_from_flight_data(checked), claims }
    }

    /// The next batch; `None` at the end.
    ///
    /// # Errors
    /// When a message is malformed, or other requests occupy the memory for too long.
    pub(crate) async fn next(&mut self) -> Result<Option<ClaimedBatch>, FlightError> {
        let Some(batch) = self.decoded.next().await.transpose()? else { return Ok(None) };
        Ok(Some((batch, std::mem::take(&mut *self.claims.lock()))))
    }

    /// The remaining batches.
    fn into_stream(self) -> impl Stream<Item = Result<ClaimedBatch, FlightError>> + Send + 'static {
        futures::stream::try_unfold(self, |mut batches| async move {
            Ok::<_, FlightError>(batches.next().await?.map(|batch| (batch, batches)))
        })
    }
}

/// The messages of a client's stream.
struct Messages {
    stream: PeekableFlightDataStream,
    check: ipc::Check,
    /// `None` for a call that claims nothing.
    memory: Option<Arc<CallMemory>>,
    claims: Arc<Mutex<Vec<Claim>>>,
    /// Claims for the dictionaries that later batches may use, by id.
    dictionaries: HashMap<i64, Claim>,
}

impl Messages {
    /// The next message, which is well-formed, with a claim for it and the arrays that are made of it.
    async fn next(&mut self) -> Result<Option<FlightData>, FlightError> {
        let data = self.stream.next().await.transpose().map_err(tonic_error)?;
        let Some(data) = data else { return Ok(None) };
        let checked = self.check.admit(data);
        let data = checked.map_err(|error| FlightError::DecodeError(error.to_string()))?;
        if let Some(memory) = &self.memory {
            let bytes = data.data_header.len() + data.data_body.len() + data.app_metadata.len();
            let claim = memory.decoded(bytes.saturating_add(self.check.inflated())).await;
            let claim = claim.map_err(tonic_error)?;
            match self.check.dictionary_id() {
                Some(id) => drop(self.dictionaries.insert(id, claim)),
                None => self.claims.lock().push(claim),
            }
        }
        Ok(Some(data))
    }
}

fn tonic_error(status: Status) -> FlightError {
    FlightError::Tonic(Box::new(status))
}

/// Writes batches; the result for each is the number of its rows.
fn write(
    door: Arc<Door>,
    identity: Identity,
    table: Arc<Table>,
    batches: impl Stream<Item = Result<ClaimedBatch, FlightError>> + Send + 'static,
) -> impl Stream<Item = Result<u64, Status>> + Send + 'static {
    let at_once = if table.schema.options.append_mode { APPENDS_AT_ONCE } else { 1 };
    batches
        .map(move |batch| {
            let (door, table) = (Arc::clone(&door), Arc::clone(&table));
            async move {
                let (batch, _claims) = batch.map_err(stream_status)?;
                if batch.num_rows() == 0 {
                    return Ok(0);
                }
                let permit = insert_permit(&door.frontend, identity, &table).map_err(sql_status)?;
                let ingested = door.frontend.ingest(&permit, &table, batch).await;
                let rows = ingested.map_err(sql_status)?;
                door.metrics.flight_rows(rows);
                Ok(rows)
            }
        })
        .buffered(at_once)
}

/// Writes rows to the table of a path: `[database, table]` or `[table]`. The response to each batch is the number of
/// its rows in digits.
///
/// # Errors
/// When the path is malformed, or the table does not exist or may not be written to.
pub(crate) fn put_path(
    door: &Arc<Door>,
    identity: Identity,
    database: &str,
    path: &[String],
    batches: Batches,
) -> Result<Answers<PutResult>, Status> {
    let (database, name) = match path {
        [table] => (database, table),
        [database, table] => (database.as_str(), table),
        [catalog, database, table] if catalog == CATALOG => (database.as_str(), table),
        _ => {
            return Err(Status::invalid_argument(
                "rows need a descriptor with the path [database, table] or [table]",
            ));
        }
    };
    let catalog = door.frontend.viewer(identity).catalog();
    let table = catalog.table(database, name).ok_or_else(|| no_table(database, name))?;
    // Refused before the first batch, and checked again with each.
    let _permit = insert_permit(&door.frontend, identity, table).map_err(sql_status)?;
    let counts = write(Arc::clone(door), identity, Arc::clone(table), batches.into_stream());
    Ok(Box::pin(counts.map_ok(|rows| PutResult { app_metadata: rows.to_string().into() })))
}

fn sql_status(error: SqlError) -> Status {
    status_of(&error)
}

fn no_table(database: &str, name: &str) -> Status {
    Status::not_found(format!("table \"{name}\" does not exist in database \"{database}\""))
}

/// ADBC's bulk ingest: creates the table if requested, and writes all batches. Returns the number of rows.
///
/// # Errors
/// When the table exists and should not, or the reverse; when a batch does not fit.
pub(crate) async fn ingest(
    door: &Arc<Door>,
    identity: Identity,
    database: &str,
    command: &CommandStatementIngest,
    mut batches: Batches,
) -> Result<i64, Status> {
    if command.temporary {
        return Err(Status::unimplemented("temporary tables are not supported"));
    }
    if command.transaction_id.as_ref().is_some_and(|id| !id.is_empty()) {
        return Err(Status::unimplemented("ingesting within a transaction is not supported"));
    }
    if command.catalog.as_deref().is_some_and(|name| !name.is_empty() && name != CATALOG) {
        return Err(Status::not_found("the only catalog is \"partita\""));
    }
    let database = command.schema.as_deref().filter(|name| !name.is_empty()).unwrap_or(database);
    // The schema comes first; the table may be created from it before there are rows.
    let first = batches.next().await.map_err(stream_status)?;
    let Some(schema) = batches.decoded.schema().cloned() else {
        return Err(Status::invalid_argument("the stream has no schema"));
    };
    let table = target(door, identity, database, command, &schema).await?;
    let all_batches = futures::stream::iter(first.map(Ok)).chain(batches.into_stream());
    let mut counts = std::pin::pin!(write(Arc::clone(door), identity, table, all_batches));
    let mut rows = 0_i64;
    while let Some(count) = counts.try_next().await? {
        rows = rows.saturating_add(i64::try_from(count).unwrap_or(i64::MAX));
    }
    Ok(rows)
}

/// The table for the rows, created or replaced as requested.
async fn target(
    door: &Door,
    identity: Identity,
    database: &str,
    command: &CommandStatementIngest,
    schema: &Schema,
) -> Result<Arc<Table>, Status> {
    let name = command.table.as_str();
    let frontend = &door.frontend;
    let options = command.table_definition_options.unwrap_or_default();
    // A table that exists for the identity is used, refused or replaced.
    let existing = frontend.viewer(identity).catalog().table(database, name).cloned();
    match existing {
        Some(table) => match options.if_exists() {
            TableExistsOption::Append | TableExistsOption::Unspecified => {
                let _permit = insert_permit(frontend, identity, &table).map_err(sql_status)?;
                return Ok(table);
            }
            TableExistsOption::Fail => {
                return Err(Status::already_exists(format!("table \"{name}\" already exists")));
            }
            TableExistsOption::Replace => {
                let drop = Ddl::DropTable {
                    database: database.to_owned(),
                    name: name.to_owned(),
                    if_exists: true,
                    cascade: false,
                };
                let need = need_of(frontend, Action::Own, &table).map_err(sql_status)?;
                let permit = frontend.authorize(&identity, &[need]).map_err(sql_status)?;
                frontend.change(&permit, drop).await.map_err(sql_status)?;
            }
        },
        None if options.if_not_exist() != TableNotExistOption::Create => {
            return Err(no_table(database, name));
        }
        None => {}
    }
    // Otherwise it is created from the schema of the stream.
    let permit = rows_permit(frontend, identity, (database, name), false).map_err(sql_status)?;
    let create = Ddl::CreateTable {
        table: Box::new(new_table(database, name, permit.role(), schema)?),
        if_not_exists: false,
    };
    frontend.change(&permit, create).await.map_err(sql_status)?;
    frontend.catalog().table(database, name).cloned().ok_or_else(|| no_table(database, name))
}

/// A table with a client's schema. The schema has no key, so all rows are kept.
fn new_table(
    database: &str,
    name: &str,
    owner: RoleId,
    schema: &Schema,
) -> Result<NewTable, Status> {
    // Every field becomes a nullable or NOT NULL column, in order.
    let mut columns = Vec::with_capacity(schema.fields().len());
    let mut next = 1;
    for field in schema.fields() {
        let column_type = ColumnType::from_arrow(field.data_type()).ok_or_else(|| {
            Status::invalid_argument(format!(
                "column \"{}\" has the unsupported type {}",
                field.name(),
                field.data_type()
            ))
        })?;
        columns.push(Column {
            id: ColumnId(next),
            name: field.name().clone(),
            storage_name: field.name().clone(),
            column_type,
            nullable: field.is_nullable(),
            semantic: Semantic::Field,
            default: None,
            generated: None,
            missing: None,
            length: None,
            json: None,
            indexes: Vec::new(),
            comment: None,
        });
        next += 1;
    }
    // Without a key, rows are only appended.
    Ok(NewTable {
        database: database.to_owned(),
        name: name.to_owned(),
        schema: TableSchema {
            version: SchemaVersion(1),
            columns,
            key: Vec::new(),
            options: TableOptions { append_mode: true, ..TableOptions::default() },
            next_column: ColumnId(next),
            schema_on_write: false,
            checks: Vec::new(),
            view: None,
        },
        placement: Placement::Range,
        cuts: Vec::new(),
        owner,
        copy_of: None,
        rekeys: false,
        sequences: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};
    use partita_proto::id::BOOTSTRAP_ROLE;

    use super::*;

    #[test]
    fn a_table_made_of_a_schema_keeps_all_rows() {
        let schema = Schema::new(vec![
            Field::new("a", DataType::Utf8, true),
            Field::new("b", DataType::Int64, false),
        ]);
        let table = new_table("public", "t", BOOTSTRAP_ROLE, &schema).unwrap();
        table.schema.validate().unwrap();
        assert!(table.schema.options.append_mode);
        let odd = Schema::new(vec![Field::new("a", DataType::Null, true)]);
        assert!(
            new_table("public", "t", BOOTSTRAP_ROLE, &odd).unwrap_err().message().contains("Null")
        );
    }
}

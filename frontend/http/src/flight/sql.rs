//! The commands of Flight SQL.
//!
//! A query is prepared when its FlightInfo is requested, so that errors come early, its schema is known and it is
//! planned once; its ticket refers to the prepared statement, and has its text in case that was dropped. A statement
//! without rows has a FlightInfo without a schema, and runs when its ticket is redeemed.
//!
//! Transactions are not supported; requests for them are refused.
//!
//! Invariant: a call uses the sessions, statements and catalog of its own identity only.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::server::{FlightSqlService, PeekableFlightDataStream};
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult, Any, CommandGetCatalogs, CommandGetDbSchemas,
    CommandGetPrimaryKeys, CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables,
    CommandPreparedStatementQuery, CommandPreparedStatementUpdate, CommandStatementIngest,
    CommandStatementQuery, CommandStatementUpdate, DoPutPreparedStatementResult, ProstMessageExt,
    SqlInfo, TicketStatementQuery,
};
use arrow_flight::{
    FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, HandshakeRequest, HandshakeResponse,
    PutResult, Ticket,
};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use partita_frontend::{Session, SqlError};
use partita_proto::access::Identity;
use partita_proto::catalog::Catalog;
use prost::Message;
use serde::{Deserialize, Serialize};
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status, Streaming};

use super::encode::{messages, outer_schema, parameter_schema, rows_schema, schema_bytes};
use super::prepared::{Binding, Statement, Statements};
use super::run::{respond, run_all};
use super::status::{arrow_status, status_of, stream_status};
use super::values::{finish, values};
use super::{Answers, database_of, identity_of, metadata, put};
use crate::call_memory::CallMemory;
use crate::door::Door;
use crate::query::rows_of;
use crate::sign_in::sign;
use crate::signed_login::Purpose;

/// Maximum rows of values that a client may bind to a query; an update takes any number, batch by batch.
const BOUND_ROWS_MAX: usize = 10_000;

/// The Flight SQL service.
pub(crate) struct SqlFlight {
    door: Arc<Door>,
    statements: Statements,
}

/// The ticket of a query, as JSON.
#[derive(Deserialize, Serialize)]
struct QueryTicket {
    database: String,
    sql: String,
    /// Handle of the prepared statement.
    prepared: Option<Vec<u8>>,
}

fn sql_status(error: SqlError) -> Status {
    status_of(&error)
}

fn no_transactions(id: Option<&Bytes>) -> Result<(), Status> {
    if id.is_some_and(|id| !id.is_empty()) {
        return Err(Status::unimplemented("transactions are not supported"));
    }
    Ok(())
}

fn forgotten() -> Status {
    Status::not_found("the prepared statement no longer exists; prepare it again")
}

fn too_large() -> Status {
    Status::resource_exhausted(
        "the text or the values of the prepared statement exceed the memory for prepared statements",
    )
}

/// The batches of a call.
fn batches_of(request: Request<PeekableFlightDataStream>) -> put::Batches {
    let memory = CallMemory::of(&request);
    put::Batches::new(request.into_inner(), memory)
}

impl SqlFlight {
    pub(crate) fn new(door: Arc<Door>) -> Self {
        let statements =
            Statements::new(door.options.prepared_max, door.options.prepared_bytes_max);
        Self { door, statements }
    }

    fn session<T>(&self, request: &Request<T>) -> Result<Arc<Session>, Status> {
        let database = database_of(request.metadata());
        self.door.session(identity_of(request)?, database, "flight-sql").map_err(sql_status)
    }

    /// The catalog of a call's identity.
    fn catalog<T>(&self, request: &Request<T>) -> Result<Arc<Catalog>, Status> {
        Ok(self.door.frontend.viewer(identity_of(request)?).catalog())
    }

    /// Prepares a text with one statement.
    async fn prepare(
        &self,
        owner: Identity,
        session: Arc<Session>,
        sql: &str,
    ) -> Result<Statement, SqlError> {
        let mut statements = session.parse(sql).await?;
        let (Some(statement), true) = (statements.pop(), statements.is_empty()) else {
            return Err(SqlError::syntax("exactly one statement can be prepared"));
        };
        let prepared = session.prepare(statement, &[]).await?;
        Ok(Statement { owner, session, prepared, text_bytes: sql.len(), bound: Arc::default() })
    }

    /// The statement of a call's identity.
    fn statement<T>(&self, request: &Request<T>, handle: &[u8]) -> Result<Statement, Status> {
        self.statements.get(&identity_of(request)?, handle).ok_or_else(forgotten)
    }

    /// Runs a statement once for each row of bound values; the response has the rows of all runs.
    async fn run_bound(
        &self,
        statement: Statement,
    ) -> Result<Response<Answers<FlightData>>, Status> {
        let Statement { session, prepared, bound, .. } = statement;
        let mut sets = bound.iter().cloned();
        let first = session.run_prepared(&prepared, sets.next().unwrap_or_default()).await;
        if bound.len() <= 1 {
            return respond(session, first);
        }
        let (schema, rows) = first.and_then(rows_of).map_err(sql_status)?;
        let remaining_rows = {
            let session = Arc::clone(&session);
            let sets: Vec<_> = sets.collect();
            futures::stream::iter(sets).then(move |values| {
                let (session, prepared) = (Arc::clone(&session), Arc::clone(&prepared));
                async move {
                    let output = session.run_prepared(&prepared, values).await?;
                    Ok::<_, SqlError>(rows_of(output)?.1)
                }
            })
        };
        let rows = Box::pin(rows.chain(remaining_rows.try_flatten()));
        Ok(Response::new(messages(rows_schema(&schema), rows, Some(session))))
    }

    /// A FlightInfo with one ticket, which this server redeems.
    fn info(
        descriptor: FlightDescriptor,
        ticket: Bytes,
        schema: Option<&Schema>,
    ) -> Result<Response<FlightInfo>, Status> {
        let endpoint = FlightEndpoint::new().with_ticket(Ticket::new(ticket));
        let mut info = FlightInfo::new().with_endpoint(endpoint).with_descriptor(descriptor);
        if let Some(schema) = schema {
            info = info.try_with_schema(schema).map_err(arrow_status)?;
        }
        Ok(Response::new(info))
    }

    /// A FlightInfo whose ticket is the command itself.
    fn command_info(
        request: Request<FlightDescriptor>,
        command: &impl ProstMessageExt,
        schema: &Schema,
    ) -> Result<Response<FlightInfo>, Status> {
        let ticket = Bytes::from(command.as_any().encode_to_vec());
        Self::info(request.into_inner(), ticket, Some(schema))
    }
}

/// One batch as the response to a DoGet.
fn one<E: Into<Status>>(
    batch: Result<RecordBatch, E>,
) -> Result<Response<Answers<FlightData>>, Status> {
    let batch = batch.map_err(Into::into)?;
    let schema = batch.schema();
    let rows = Box::pin(futures::stream::iter([Ok(batch)]));
    Ok(Response::new(messages(outer_schema(&schema), rows, None)))
}

#[tonic::async_trait]
impl FlightSqlService for SqlFlight {
    type FlightService = Self;

    async fn do_handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Answers<HandshakeResponse>>, Status> {
        let identity = identity_of(&request)?;
        let token = sign(&self.door, Purpose::Flight, &identity).ok_or_else(|| {
            Status::unavailable("the roles of the cluster are not known yet; try again")
        })?;
        let mut requests = request.into_inner();
        let first = requests.message().await?.unwrap_or_default();
        let answer =
            HandshakeResponse { protocol_version: first.protocol_version, payload: first.payload };
        let answers: Answers<HandshakeResponse> = Box::pin(futures::stream::iter([Ok(answer)]));
        let mut response = Response::new(answers);
        // Clients that sign in with a password send this token with further calls.
        let mut token = MetadataValue::try_from(format!("Bearer {token}"))
            .map_err(|error| Status::internal(error.to_string()))?;
        token.set_sensitive(true);
        response.metadata_mut().insert("authorization", token);
        Ok(response)
    }

    async fn get_flight_info_statement(
        &self,
        query: CommandStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        no_transactions(query.transaction_id.as_ref())?;
        let owner = identity_of(&request)?;
        let session = self.session(&request)?;
        let database = session.database();
        let statements = session.parse(&query.query).await.map_err(sql_status)?;
        let mut ticket = QueryTicket { database, sql: query.query, prepared: None };
        let mut schema = None;
        // Several statements, or one without rows, run when the ticket is redeemed.
        if let [partita_frontend::Statement::Query(_)] = statements.as_slice() {
            let statement = self.prepare(owner, session, &ticket.sql).await.map_err(sql_status)?;
            schema = statement.prepared.schema.as_ref().map(|schema| rows_schema(schema));
            // A statement that is too large to be stored is prepared again from its text.
            ticket.prepared = self.statements.add(statement).map(|handle| handle.to_vec());
        }
        let handle = serde_json::to_vec(&ticket)
            .map_err(|error| Status::internal(format!("cannot encode the ticket: {error}")))?;
        let ticket = TicketStatementQuery { statement_handle: handle.into() };
        let ticket = Bytes::from(ticket.as_any().encode_to_vec());
        Self::info(request.into_inner(), ticket, schema.as_deref())
    }

    async fn do_get_statement(
        &self,
        ticket: TicketStatementQuery,
        request: Request<Ticket>,
    ) -> Result<Response<Answers<FlightData>>, Status> {
        let identity = identity_of(&request)?;
        let ticket: QueryTicket = serde_json::from_slice(&ticket.statement_handle)
            .map_err(|_| Status::invalid_argument("invalid ticket"))?;
        let prepared = ticket.prepared.as_ref().and_then(|handle| {
            let statement = self.statements.get(&identity, handle);
            self.statements.remove(&identity, handle);
            statement
        });
        if let Some(statement) = prepared {
            return self.run_bound(statement).await;
        }
        let session =
            self.door.session(identity, &ticket.database, "flight-sql").map_err(sql_status)?;
        let output = run_all(&session, &ticket.sql).await;
        respond(session, output)
    }

    async fn get_flight_info_prepared_statement(
        &self,
        command: CommandPreparedStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let statement = self.statement(&request, &command.prepared_statement_handle)?;
        let schema = statement.prepared.schema.as_ref().map(|schema| rows_schema(schema));
        let ticket = Bytes::from(command.as_any().encode_to_vec());
        Self::info(request.into_inner(), ticket, schema.as_deref())
    }

    async fn do_get_prepared_statement(
        &self,
        command: CommandPreparedStatementQuery,
        request: Request<Ticket>,
    ) -> Result<Response<Answers<FlightData>>, Status> {
        let statement = self.statement(&request, &command.prepared_statement_handle)?;
        self.run_bound(statement).await
    }

    async fn do_action_create_prepared_statement(
        &self,
        query: ActionCreatePreparedStatementRequest,
        request: Request<arrow_flight::Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        no_transactions(query.transaction_id.as_ref())?;
        let owner = identity_of(&request)?;
        let session = self.session(&request)?;
        let statement = self.prepare(owner, session, &query.query).await.map_err(sql_status)?;
        let dataset_schema = match &statement.prepared.schema {
            Some(schema) => schema_bytes(&rows_schema(schema)).map_err(arrow_status)?,
            None => Bytes::new(),
        };
        let parameters = parameter_schema(&statement.prepared.parameter_types);
        Ok(ActionCreatePreparedStatementResult {
            dataset_schema,
            parameter_schema: schema_bytes(&parameters).map_err(arrow_status)?,
            prepared_statement_handle: self.statements.add(statement).ok_or_else(too_large)?,
        })
    }

    async fn do_action_close_prepared_statement(
        &self,
        query: ActionClosePreparedStatementRequest,
        request: Request<arrow_flight::Action>,
    ) -> Result<(), Status> {
        self.statements.remove(&identity_of(&request)?, &query.prepared_statement_handle);
        Ok(())
    }

    async fn do_put_prepared_statement_query(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<DoPutPreparedStatementResult, Status> {
        let handle = query.prepared_statement_handle;
        let identity = identity_of(&request)?;
        let statement = self.statement(&request, &handle)?;
        let mut batches = batches_of(request);
        // The values keep the memory of their messages until they are bound.
        let (mut bound, mut all_claims) = (Vec::new(), Vec::new());
        while let Some((batch, claims)) = batches.next().await.map_err(stream_status)? {
            all_claims.extend(claims);
            if bound.len() + batch.num_rows() > BOUND_ROWS_MAX {
                return Err(Status::resource_exhausted(format!(
                    "a query can have at most {BOUND_ROWS_MAX} rows of parameters"
                )));
            }
            bound.extend(values(&batch, &statement.prepared.parameter_types)?);
        }
        match self.statements.bind(&identity, &handle, bound) {
            Binding::Bound => {}
            Binding::TooLarge => return Err(too_large()),
            Binding::Unknown => return Err(forgotten()),
        }
        drop(all_claims);
        Ok(DoPutPreparedStatementResult { prepared_statement_handle: Some(handle) })
    }

    async fn do_put_prepared_statement_update(
        &self,
        query: CommandPreparedStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let Statement { session, prepared, .. } =
            self.statement(&request, &query.prepared_statement_handle)?;
        let mut batches = batches_of(request);
        let (mut count, mut has_rows) = (-1_i64, false);
        while let Some((batch, _claims)) = batches.next().await.map_err(stream_status)? {
            if batch.num_rows() == 0 || batch.num_columns() == 0 {
                continue;
            }
            has_rows = true;
            let rows = values(&batch, &prepared.parameter_types)?;
            let outputs = session.run_prepared_many(&prepared, rows).await.map_err(sql_status)?;
            let affected = finish(outputs).await.map_err(sql_status)?;
            if affected >= 0 {
                count = count.max(0).saturating_add(affected);
            }
        }
        if !has_rows {
            let output = session.run_prepared(&prepared, Vec::new()).await.map_err(sql_status)?;
            count = finish(vec![output]).await.map_err(sql_status)?;
        }
        Ok(count)
    }

    async fn do_put_statement_update(
        &self,
        command: CommandStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        no_transactions(command.transaction_id.as_ref())?;
        let session = self.session(&request)?;
        let outputs = session.execute(&command.query).await.map_err(sql_status)?;
        finish(outputs).await.map_err(sql_status)
    }

    async fn do_put_statement_ingest(
        &self,
        command: CommandStatementIngest,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let identity = identity_of(&request)?;
        let database = database_of(request.metadata()).to_owned();
        put::ingest(&self.door, identity, &database, &command, batches_of(request)).await
    }

    async fn do_put_fallback(
        &self,
        mut request: Request<PeekableFlightDataStream>,
        command: Any,
    ) -> Result<Response<<Self as FlightService>::DoPutStream>, Status> {
        if !command.type_url.is_empty() {
            return Err(Status::unimplemented(format!(
                "DoPut of {} is not supported",
                command.type_url
            )));
        }
        let first = request.get_mut().peek().await;
        let path = match first {
            Some(Ok(first)) => {
                first.flight_descriptor.as_ref().map(|descriptor| descriptor.path.clone())
            }
            Some(Err(status)) => return Err(status.clone()),
            None => None,
        };
        let database = database_of(request.metadata()).to_owned();
        let path = path.unwrap_or_default();
        let identity = identity_of(&request)?;
        let answers: Answers<PutResult> =
            put::put_path(&self.door, identity, &database, &path, batches_of(request))?;
        Ok(Response::new(answers))
    }

    async fn get_flight_info_catalogs(
        &self,
        query: CommandGetCatalogs,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        Self::command_info(request, &query, &query.into_builder().schema())
    }

    async fn do_get_catalogs(
        &self,
        _query: CommandGetCatalogs,
        _request: Request<Ticket>,
    ) -> Result<Response<Answers<FlightData>>, Status> {
        one(metadata::catalogs())
    }

    async fn get_flight_info_schemas(
        &self,
        query: CommandGetDbSchemas,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        Self::command_info(request, &query, &query.clone().into_builder().schema())
    }

    async fn do_get_schemas(
        &self,
        query: CommandGetDbSchemas,
        request: Request<Ticket>,
    ) -> Result<Response<Answers<FlightData>>, Status> {
        one(metadata::databases(self.catalog(&request)?.as_ref(), query))
    }

    async fn get_flight_info_tables(
        &self,
        query: CommandGetTables,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        Self::command_info(request, &query, &query.clone().into_builder().schema())
    }

    async fn do_get_tables(
        &self,
        query: CommandGetTables,
        request: Request<Ticket>,
    ) -> Result<Response<Answers<FlightData>>, Status> {
        one(metadata::tables(self.catalog(&request)?.as_ref(), query))
    }

    async fn get_flight_info_table_types(
        &self,
        query: CommandGetTableTypes,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        Self::command_info(request, &query, &query.into_builder().schema())
    }

    async fn do_get_table_types(
        &self,
        _query: CommandGetTableTypes,
        _request: Request<Ticket>,
    ) -> Result<Response<Answers<FlightData>>, Status> {
        one(metadata::table_types())
    }

    async fn get_flight_info_sql_info(
        &self,
        query: CommandGetSqlInfo,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let info = metadata::sql_info().map_err(arrow_status)?;
        Self::command_info(request, &query, &query.clone().into_builder(info).schema())
    }

    async fn do_get_sql_info(
        &self,
        query: CommandGetSqlInfo,
        _request: Request<Ticket>,
    ) -> Result<Response<Answers<FlightData>>, Status> {
        let info = metadata::sql_info().map_err(arrow_status)?;
        one(query.into_builder(info).build())
    }

    async fn get_flight_info_primary_keys(
        &self,
        query: CommandGetPrimaryKeys,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        Self::command_info(request, &query, &metadata::primary_keys_schema())
    }

    async fn do_get_primary_keys(
        &self,
        query: CommandGetPrimaryKeys,
        request: Request<Ticket>,
    ) -> Result<Response<Answers<FlightData>>, Status> {
        let database = database_of(request.metadata());
        let keys = metadata::primary_keys(self.catalog(&request)?.as_ref(), database, &query);
        one(keys.map_err(arrow_status))
    }

    async fn register_sql_info(&self, _id: i32, _result: &SqlInfo) {}
}

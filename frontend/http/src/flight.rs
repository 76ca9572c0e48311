//! Arrow Flight: InfluxDB 3's queries, Flight SQL, and bulk rows.
//!
//! ```text
//!   DoGet   ticket {"database":..,"sql_query":..}   InfluxDB 3's clients     run.rs
//!           Flight SQL's commands                   ADBC, JDBC               sql.rs, metadata.rs
//!   DoPut   path [database, table] or [table]       rows of a table          put.rs
//!           Flight SQL's commands                   updates, bulk ingest     sql.rs, put.rs
//! ```
//!
//! The database is that of the ticket, the path or the command, or else of the `database` header, or else the default.
//! There are no sessions across calls except for prepared statements (`prepared.rs`), which belong to the identity that
//! prepared them. The middleware authenticates every call, a handshake too: its response has a bearer token for further
//! calls, so that a client need not send a password with each.

mod encode;
mod ipc;
mod metadata;
mod prepared;
mod put;
mod run;
mod sql;
mod status;
mod values;

use std::pin::Pin;
use std::sync::Arc;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use futures::Stream;
use partita_proto::access::Identity;
use partita_proto::catalog::DEFAULT_DATABASE;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use crate::caller::Caller;
use crate::door::Door;
use sql::SqlFlight;

pub(crate) use status::status_of;

/// A stream of responses.
pub(crate) type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send + 'static>>;

/// Headers that may name the database, in order of precedence.
const DATABASE_HEADERS: [&str; 3] = ["database", "bucket", "x-greptime-db-name"];

/// The database in a call's headers, or the default.
pub(crate) fn database_of(headers: &MetadataMap) -> &str {
    DATABASE_HEADERS
        .iter()
        .find_map(|name| headers.get(*name)?.to_str().ok().filter(|value| !value.is_empty()))
        .unwrap_or(DEFAULT_DATABASE)
}

/// The identity of a call.
///
/// # Errors
/// When the call did not pass the middleware.
pub(crate) fn identity_of<T>(request: &Request<T>) -> Result<Identity, Status> {
    let caller = request.extensions().get::<Caller>();
    let missing = || Status::unauthenticated("authentication is required");
    caller.map(|caller| caller.identity).ok_or_else(missing)
}

/// The Flight service of both client families.
pub(crate) struct Flight {
    door: Arc<Door>,
    sql: SqlFlight,
}

impl Flight {
    pub(crate) fn new(door: Arc<Door>) -> Self {
        Self { sql: SqlFlight::new(Arc::clone(&door)), door }
    }
}

/// Returns true if bytes are a JSON object; Flight SQL's commands never begin like one.
fn is_json(bytes: &[u8]) -> bool {
    bytes.first() == Some(&b'{')
}

#[tonic::async_trait]
impl FlightService for Flight {
    type HandshakeStream = Answers<HandshakeResponse>;
    type ListFlightsStream = Answers<FlightInfo>;
    type DoGetStream = Answers<FlightData>;
    type DoPutStream = Answers<PutResult>;
    type DoActionStream = Answers<arrow_flight::Result>;
    type ListActionsStream = Answers<ActionType>;
    type DoExchangeStream = Answers<FlightData>;

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        FlightService::handshake(&self.sql, request).await
    }

    async fn list_flights(
        &self,
        _: Request<Criteria>,
    ) -> Result<Response<Self::ListFlightsStream>, Status> {
        Err(Status::unimplemented("ListFlights is not supported; use Flight SQL's GetTables"))
    }

    async fn get_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        if is_json(&request.get_ref().cmd) {
            let descriptor = request.into_inner();
            let ticket = Ticket::new(descriptor.cmd.clone());
            let info = FlightInfo::new()
                .with_endpoint(FlightEndpoint::new().with_ticket(ticket))
                .with_descriptor(descriptor);
            return Ok(Response::new(info));
        }
        FlightService::get_flight_info(&self.sql, request).await
    }

    async fn poll_flight_info(
        &self,
        _: Request<FlightDescriptor>,
    ) -> Result<Response<PollInfo>, Status> {
        Err(Status::unimplemented("PollFlightInfo is not supported; use GetFlightInfo"))
    }

    async fn get_schema(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<SchemaResult>, Status> {
        let info = FlightService::get_flight_info(&self.sql, request).await?.into_inner();
        Ok(Response::new(SchemaResult { schema: info.schema }))
    }

    async fn do_get(
        &self,
        request: Request<Ticket>,
    ) -> Result<Response<Self::DoGetStream>, Status> {
        if is_json(&request.get_ref().ticket) {
            let identity = identity_of(&request)?;
            let database = database_of(request.metadata()).to_owned();
            return run::json_ticket(&self.door, identity, &database, &request.get_ref().ticket)
                .await;
        }
        FlightService::do_get(&self.sql, request).await
    }

    async fn do_put(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoPutStream>, Status> {
        FlightService::do_put(&self.sql, request).await
    }

    async fn do_action(
        &self,
        request: Request<Action>,
    ) -> Result<Response<Self::DoActionStream>, Status> {
        FlightService::do_action(&self.sql, request).await
    }

    async fn list_actions(
        &self,
        request: Request<Empty>,
    ) -> Result<Response<Self::ListActionsStream>, Status> {
        FlightService::list_actions(&self.sql, request).await
    }

    async fn do_exchange(
        &self,
        _: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        Err(Status::unimplemented("DoExchange is not supported"))
    }
}

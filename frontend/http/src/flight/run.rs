//! Runs the statements of Flight clients.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_flight::FlightData;
use partita_frontend::{Output, Session, SqlError};
use partita_proto::access::Identity;
use serde::Deserialize;
use serde_json::Value;
use tonic::{Response, Status};

use super::Answers;
use super::encode::{messages, rows_schema};
use super::status::status_of;
use crate::door::Door;
use crate::query::rows_of;
use crate::sql_parameters::run_with;

/// The ticket of InfluxDB 3's clients.
#[derive(Debug, Deserialize)]
struct JsonTicket {
    #[serde(alias = "namespace_name")]
    database: Option<String>,
    sql_query: String,
    #[serde(default)]
    query_type: Option<String>,
    #[serde(default)]
    params: Option<BTreeMap<String, Value>>,
}

/// Handles a DoGet with a ticket of InfluxDB 3.
pub(crate) async fn json_ticket(
    door: &Door,
    identity: Identity,
    database: &str,
    ticket: &[u8],
) -> Result<Response<Answers<FlightData>>, Status> {
    let ticket: JsonTicket = serde_json::from_slice(ticket).map_err(|error| {
        Status::invalid_argument(format!(
            "the ticket is not {{\"database\", \"sql_query\", \"query_type\"}}: {error}"
        ))
    })?;
    match ticket.query_type.as_deref() {
        None | Some("" | "sql") => {}
        Some(query_type) => {
            return Err(Status::unimplemented(format!(
                "query type \"{query_type}\" is not supported; use \"sql\""
            )));
        }
    }
    let database = ticket.database.as_deref().filter(|name| !name.is_empty()).unwrap_or(database);
    let session = door.session(identity, database, "flight").map_err(|error| status_of(&error))?;
    let values = ticket.params.unwrap_or_default();
    let output = if values.is_empty() {
        run_all(&session, &ticket.sql_query).await
    } else {
        run_with(&session, &ticket.sql_query, &values).await
    };
    respond(session, output)
}

/// Runs the statements of a text; returns the output of the last one.
///
/// # Errors
/// That of the first statement that fails.
pub(crate) async fn run_all(session: &Arc<Session>, sql: &str) -> Result<Output, SqlError> {
    let mut outputs = session.execute(sql).await?;
    outputs.pop().ok_or_else(|| SqlError::syntax("there is no statement"))
}

/// An output as the response to a DoGet.
///
/// # Errors
/// That of the statement.
pub(crate) fn respond(
    session: Arc<Session>,
    output: Result<Output, SqlError>,
) -> Result<Response<Answers<FlightData>>, Status> {
    let (schema, rows) = output.and_then(rows_of).map_err(|error| status_of(&error))?;
    Ok(Response::new(messages(rows_schema(&schema), rows, Some(session))))
}

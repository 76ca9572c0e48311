//! Runs statements for Flight clients.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_flight::FlightData;
use partita_frontend::{Output, Session, SqlError};
use serde::Deserialize;
use serde_json::Value;
use tonic::{Response, Status};

use super::Answers;
use super::encode::messages;
use super::status::status_of;
use crate::door::Door;
use crate::query::rows_of;
use crate::sql_parameters::run_with;

/// The ticket that InfluxDB 3's clients send.
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

/// Answers a DoGet with InfluxDB 3's ticket.
pub(crate) async fn json_ticket(
    door: &Door,
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
        Some(other) => {
            return Err(Status::unimplemented(format!(
                "query type \"{other}\" is not supported, \"sql\" is"
            )));
        }
    }
    let database = ticket.database.as_deref().filter(|name| !name.is_empty()).unwrap_or(database);
    let session = door.session(database, "flight").map_err(|error| status_of(&error))?;
    let values = ticket.params.unwrap_or_default();
    let output = if values.is_empty() {
        run_all(&session, &ticket.sql_query).await
    } else {
        run_with(&session, &ticket.sql_query, &values).await
    };
    respond(session, output)
}

/// Runs the statements of a text; the last one's output counts.
///
/// # Errors
/// The first failing statement's.
pub(crate) async fn run_all(session: &Arc<Session>, sql: &str) -> Result<Output, SqlError> {
    let mut outputs = session.execute(sql).await?;
    outputs.pop().ok_or_else(|| SqlError::syntax("there is no statement"))
}

/// An output as the answer of a DoGet.
///
/// # Errors
/// The statement's.
pub(crate) fn respond(
    session: Arc<Session>,
    output: Result<Output, SqlError>,
) -> Result<Response<Answers<FlightData>>, Status> {
    let (schema, rows) = output.and_then(rows_of).map_err(|error| status_of(&error))?;
    Ok(Response::new(messages(&schema, rows, Some(session))))
}

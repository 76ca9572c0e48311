//! A connection to a server that speaks PostgreSQL's protocol.

use anyhow::Context;
use tokio_postgres::{Client, Config, NoTls};

use super::Failure;

/// SQLSTATEs that say "later": too many connections, a limit reached, not ready, serialization.
const RETRYABLE: [&str; 4] = ["53300", "53400", "57P03", "40001"];

/// Connects to what a connection string names; to `database` when that names none.
///
/// # Errors
/// When the string is none, or nobody answers.
pub(crate) async fn connect(address: &str, database: &str) -> anyhow::Result<Client> {
    let mut config: Config =
        address.parse().with_context(|| format!("\"{address}\" is no connection string"))?;
    if config.get_dbname().is_none() {
        config.dbname(database);
    }
    if config.get_application_name().is_none() {
        config.application_name("partita lab");
    }
    let (client, connection) =
        config.connect(NoTls).await.with_context(|| format!("cannot connect to \"{address}\""))?;
    tokio::spawn(async move {
        // The client's own calls fail with the same error.
        connection.await.ok();
    });
    Ok(client)
}

/// What an error means for the request.
pub(crate) fn failure(error: &tokio_postgres::Error) -> Failure {
    let Some(said) = error.as_db_error() else {
        return Failure::lost(super::http::causes(error));
    };
    let state = said.code().code();
    let mut message = format!("{} (SQLSTATE {state})", said.message());
    if let Some(detail) = said.detail() {
        message.push_str("; ");
        message.push_str(detail);
    }
    Failure { message, retryable: RETRYABLE.contains(&state), lost: false }
}

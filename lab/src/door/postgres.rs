//! A connection to a server that speaks PostgreSQL's protocol.

use anyhow::Context;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use super::Failure;

/// SQLSTATEs that allow a retry: too many connections, a limit reached, not ready, serialization.
const RETRYABLE: [&str; 4] = ["53300", "53400", "57P03", "40001"];

/// Connection string for `host:port`.
///
/// # Errors
/// If `address` is not `host:port`.
pub(crate) fn connection(address: &str) -> anyhow::Result<String> {
    let parts = address.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
    let (host, port) = parts.with_context(|| format!("{address} is not HOST:PORT"))?;
    Ok(format!(
        "host={} port={port} user=partita connect_timeout=10",
        host.trim_matches(['[', ']'])
    ))
}

/// Connects with a connection string; to `database` if the string names none.
///
/// # Errors
/// If the string is invalid, or the server cannot be reached.
pub(crate) async fn connect(address: &str, database: &str) -> anyhow::Result<Client> {
    let mut config: Config =
        address.parse().with_context(|| format!("\"{address}\" is not a connection string"))?;
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

/// Classifies an error of a request.
pub(crate) fn failure(error: &tokio_postgres::Error) -> Failure {
    let Some(db_error) = error.as_db_error() else {
        return Failure::lost(super::http::causes(error));
    };
    let state = db_error.code().code();
    let mut message = format!("{} (SQLSTATE {state})", db_error.message());
    if let Some(detail) = db_error.detail() {
        message.push_str("; ");
        message.push_str(detail);
    }
    Failure { message, retryable: RETRYABLE.contains(&state), lost: false }
}

/// Rows of a query, as text.
pub(crate) type Cells = Vec<Vec<Option<String>>>;

/// Result of a query.
///
/// # Errors
/// If it fails.
pub(crate) async fn rows(client: &Client, sql: &str) -> Result<Cells, tokio_postgres::Error> {
    let messages = client.simple_query(sql).await?;
    let row = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect())
        }
        _ => None,
    };
    Ok(messages.iter().filter_map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_becomes_a_connection_string() {
        let string = connection("127.0.0.1:4003").unwrap();
        assert_eq!(string, "host=127.0.0.1 port=4003 user=partita connect_timeout=10");
        assert!(connection("[::1]:4003").unwrap().starts_with("host=::1 "));
        assert!(connection("localhost").is_err());
    }
}

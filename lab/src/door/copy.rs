//! COPY FROM STDIN: one statement per batch, so that each batch is acknowledged and durable by itself.

use bytes::Bytes;
use futures::SinkExt;
use tokio_postgres::Client;

use super::Failure;
use super::postgres::failure;
use crate::encode::columns;

/// Maximum bytes of one message.
const MESSAGE_BYTES: usize = 256 << 10;

/// A connection that copies into one table.
pub(crate) struct CopyDoor {
    client: Client,
    statement: String,
}

impl CopyDoor {
    /// Copies into a table; the name must be quoted as needed.
    pub(crate) fn new(client: Client, table: &str, binary: bool) -> Self {
        let columns = columns().collect::<Vec<_>>().join(", ");
        let format = if binary { " WITH (FORMAT binary)" } else { "" };
        let statement = format!("COPY {table} ({columns}) FROM STDIN{format}");
        Self { client, statement }
    }

    /// Copies a batch; returns the number of rows.
    ///
    /// # Errors
    /// If the server refuses it or is gone.
    pub(crate) async fn send(&self, batch: &Bytes) -> Result<u64, Failure> {
        copy(&self.client, &self.statement, batch).await
    }
}

/// Runs a COPY FROM STDIN with a batch; returns the number of rows.
///
/// # Errors
/// If the server refuses it or is gone.
pub(crate) async fn copy(client: &Client, statement: &str, batch: &Bytes) -> Result<u64, Failure> {
    let sink = client.copy_in(statement).await.map_err(|error| failure(&error))?;
    let mut sink = std::pin::pin!(sink);
    let mut rest = batch.clone();
    while !rest.is_empty() {
        let message = rest.split_to(rest.len().min(MESSAGE_BYTES));
        sink.send(message).await.map_err(|error| failure(&error))?;
    }
    sink.finish().await.map_err(|error| failure(&error))
}

//! Arrow Flight DoPut: one stream per connection; each batch is answered with its number of rows.

use std::pin::Pin;

use arrow::error::ArrowError;
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow::record_batch::RecordBatch;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{FlightData, FlightDescriptor, PutResult, SchemaAsIpc};
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use super::Failure;
use super::http::causes;
use crate::encode::arrow::schema;

/// Maximum size of a message; the server accepts up to 64 MiB.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

type Answers = Pin<Box<dyn Stream<Item = Result<PutResult, tonic::Status>> + Send>>;

/// A stream into one table; opened when needed, and again after an error.
pub(crate) struct FlightDoor {
    client: FlightServiceClient<Channel>,
    path: Vec<String>,
    open: Option<(mpsc::Sender<FlightData>, Answers)>,
}

impl FlightDoor {
    /// A door to `http://host:port` for the table with this path.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub(crate) async fn connect(base: &str, path: Vec<String>) -> Result<Self, Failure> {
        let endpoint = Endpoint::from_shared(base.to_owned())
            .map_err(|error| Failure::refused(causes(&error)))?;
        let channel =
            endpoint.tcp_nodelay(true).connect().await.map_err(|error| {
                Failure::lost(format!("cannot reach {base}: {}", causes(&error)))
            })?;
        let client = FlightServiceClient::new(channel).max_encoding_message_size(MESSAGE_BYTES_MAX);
        Ok(Self { client, path, open: None })
    }

    /// Sends a batch; returns the number of rows that the server acknowledged.
    ///
    /// # Errors
    /// If the server refuses it or is gone.
    pub(crate) async fn send(&mut self, batch: &FlightData) -> Result<u64, Failure> {
        let result = self.exchange(batch).await;
        if result.is_err() {
            self.open = None;
        }
        result
    }

    async fn exchange(&mut self, batch: &FlightData) -> Result<u64, Failure> {
        if self.open.is_none() {
            let (sender, receiver) = mpsc::channel(2);
            let closed = |_| Failure::lost("the stream is closed");
            sender.send(flight_head(self.path.clone())).await.map_err(closed)?;
            // Sent before the call: the server may answer only after it has seen the first batch.
            sender.send(batch.clone()).await.map_err(closed)?;
            let answers = self.client.do_put(ReceiverStream::new(receiver)).await;
            let answers = answers.map_err(|status| failure(&status))?.into_inner();
            self.open = Some((sender, Box::pin(answers)));
        } else if let Some((sender, _)) = &self.open {
            let outcome = sender.send(batch.clone()).await;
            outcome.map_err(|_| Failure::lost("the stream is closed"))?;
        }
        let Some((_, answers)) = &mut self.open else {
            return Err(Failure::lost("the stream is closed"));
        };
        match answers.next().await {
            Some(Ok(result)) => {
                Ok(String::from_utf8_lossy(&result.app_metadata).parse().unwrap_or(0))
            }
            Some(Err(status)) => Err(failure(&status)),
            None => Err(Failure::lost("the server ended the stream")),
        }
    }
}

/// An error with a SQLSTATE comes from the server; without one, `Unavailable` is the client library's error for a
/// broken connection.
fn failure(status: &tonic::Status) -> Failure {
    let code = status.code();
    let from_server = status.metadata().contains_key("sqlstate");
    Failure {
        message: format!("{code:?}: {}", status.message()),
        retryable: code == Code::Unavailable && from_server,
        lost: !from_server && matches!(code, Code::Unavailable | Code::Unknown | Code::Cancelled),
    }
}

/// First message of a stream: the table's path and the schema.
fn flight_head(path: Vec<String>) -> FlightData {
    let schema = schema();
    FlightData::from(SchemaAsIpc::new(&schema, &IpcWriteOptions::default()))
        .with_descriptor(FlightDescriptor::new_path(path))
}

/// A record batch as one message. It has no dictionaries, so no other message precedes it.
///
/// # Errors
/// If Arrow cannot encode it.
pub(crate) fn flight_message(batch: &RecordBatch) -> Result<FlightData, ArrowError> {
    let (_, encoded) = IpcDataGenerator::default().encode(
        batch,
        &mut DictionaryTracker::new(false),
        &IpcWriteOptions::default(),
        &mut IpcWriteContext::default(),
    )?;
    Ok(encoded.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{Generator, Spec, hosts};
    use crate::encode::arrow::Batches;

    #[test]
    fn messages_tell_all_rows() {
        let spec = Spec {
            hosts: 13,
            start_ns: 0,
            interval: std::time::Duration::from_secs(10),
            rows: 13 * 40,
            seed: 5,
        };
        let rows = Generator::new(spec.clone()).next(usize::MAX).unwrap();
        let batch = Batches::new(&hosts(&spec)).of(rows).unwrap();
        let head = flight_head(vec!["public".into(), "cpu".into()]);
        let message = flight_message(&batch).unwrap();
        let back = arrow_flight::utils::flight_data_to_batches(&[head, message]).unwrap();
        assert_eq!(back, [batch]);
    }
}

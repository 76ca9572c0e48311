//! COPY: rows in, batch by batch as they arrive, and rows out.
//!
//! COPY FROM STDIN is not one transaction: batches take effect as they arrive. When a later row is refused, the error's
//! detail has the number of rows that are stored.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{Sink, SinkExt, StreamExt};
use partita_frontend::sql::copy::{CopyDecoder, CopyEncoder};
use partita_frontend::sql::statement::CopyFormat;
use partita_frontend::{CopyIn, CopyLog, CopyOut, SqlError, with_stored_rows};
use partita_proto::catalog::Table;
use pgwire::api::ClientInfo;
use pgwire::api::copy::CopyHandler;
use pgwire::api::results::{CopyResponse, Tag};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::copy::{CopyData, CopyDone, CopyFail, CopyOutResponse};

use crate::connection::Connection;
use crate::error::{protocol, to_wire};

/// The trailer of the binary format: a row of -1 columns.
const BINARY_TRAILER: [u8; 2] = [0xff, 0xff];

/// A running COPY FROM STDIN.
pub(crate) struct CopyInProgress {
    table: Arc<Table>,
    decoder: CopyDecoder,
    rows: u64,
    log: CopyLog,
}

impl CopyInProgress {
    /// Prepares for rows; returns the response that requests them from the client.
    pub(crate) fn start(copy: CopyIn) -> PgWireResult<(Self, CopyResponse)> {
        let columns = copy.columns.len();
        let format = i8::from(copy.format == CopyFormat::Binary);
        let decoder =
            CopyDecoder::new(&copy.table, &copy.columns, copy.format, &copy.options, copy.zone);
        let decoder = match decoder {
            Ok(decoder) => decoder,
            Err(error) => {
                copy.log.end(Some(&error));
                return Err(to_wire(error));
            }
        };
        let response = CopyResponse::new(format, columns, futures::stream::empty());
        Ok((Self { table: copy.table, decoder, rows: 0, log: copy.log }, response))
    }

    /// Ends the COPY with an error, with the number of stored rows in its detail.
    fn failed(self, error: SqlError) -> PgWireError {
        self.log.end(Some(&error));
        to_wire(with_stored_rows(error, self.rows))
    }
}

/// Sends a query's rows, one message for each; returns their number.
pub(crate) async fn send_out<C>(client: &mut C, copy: CopyOut) -> PgWireResult<u64>
where
    C: Sink<PgWireBackendMessage> + Unpin + Send,
    C::Error: Debug,
    PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
{
    let CopyOut { schema, mut stream, format, options, zone } = copy;
    let columns = i16::try_from(schema.fields().len())
        .map_err(|_| protocol("54011", "a result has more than 32767 columns"))?;
    let mut encoder = CopyEncoder::new(&schema, format, &options, zone).map_err(to_wire)?;
    let code = i8::from(format == CopyFormat::Binary);
    let formats = vec![i16::from(code); schema.fields().len()];
    let response = CopyOutResponse::new(code, columns, formats);
    client.feed(PgWireBackendMessage::CopyOutResponse(response)).await?;
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        let batch = batch.map_err(to_wire)?;
        for line in encoder.encode(&batch).map_err(to_wire)? {
            client.feed(PgWireBackendMessage::CopyData(CopyData::new(line))).await?;
            rows += 1;
        }
    }
    let trailer = (format == CopyFormat::Binary).then(|| Bytes::from_static(&BINARY_TRAILER));
    for end in encoder.finish().into_iter().chain(trailer) {
        client.feed(PgWireBackendMessage::CopyData(CopyData::new(end))).await?;
    }
    client.feed(PgWireBackendMessage::CopyDone(CopyDone::new())).await?;
    Ok(rows)
}

impl Connection {
    async fn take(&self, data: &[u8]) -> PgWireResult<()> {
        let mut copy = self.copy.lock().await;
        let Some(mut running) = copy.take() else {
            return Err(protocol("08P01", "unexpected COPY data: no COPY is running"));
        };
        let result = match running.decoder.push(data) {
            Ok(batches) => store(self, &mut running, batches).await,
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => *copy = Some(running),
            Err(error) => return Err(running.failed(error)),
        }
        Ok(())
    }
}

async fn store(
    connection: &Connection,
    copy: &mut CopyInProgress,
    batches: Vec<arrow::record_batch::RecordBatch>,
) -> Result<(), SqlError> {
    for batch in batches {
        // A right may be revoked while rows arrive.
        let permit = connection.check_insert(&copy.table)?;
        let cause = copy.log.cause();
        let rows = connection.frontend().ingest_for(&permit, &copy.table, batch, cause).await?;
        copy.rows += rows;
        copy.log.stored(rows);
    }
    Ok(())
}

#[async_trait]
impl CopyHandler for Connection {
    async fn on_copy_data<C>(&self, _client: &mut C, data: CopyData) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        self.take(&data.data).await
    }

    async fn on_copy_done<C>(&self, client: &mut C, _done: CopyDone) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let Some(mut copy) = self.copy.lock().await.take() else {
            return Err(protocol("08P01", "unexpected end of COPY: no COPY is running"));
        };
        let result = match copy.decoder.finish() {
            Ok(batches) => store(self, &mut copy, batches).await,
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            return Err(copy.failed(error));
        }
        copy.log.end(None);
        let rows = usize::try_from(copy.rows).unwrap_or(usize::MAX);
        let tag = Tag::new("COPY").with_rows(rows);
        client.send(PgWireBackendMessage::CommandComplete(tag.into())).await?;
        Ok(())
    }

    async fn on_copy_fail<C>(&self, _client: &mut C, fail: CopyFail) -> PgWireError
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let error = SqlError::new("57014", format!("COPY from stdin failed: {}", fail.message));
        match self.copy.lock().await.take() {
            Some(copy) => copy.failed(error),
            None => to_wire(with_stored_rows(error, 0)),
        }
    }
}

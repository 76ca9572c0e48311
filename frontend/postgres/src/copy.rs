//! COPY: rows in as they come, batch by batch, and rows out.
//!
//! COPY FROM STDIN is not one transaction: batches take effect as they arrive. When a later row is
//! refused, the error's detail says how many rows before it are stored.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use futures::{Sink, SinkExt, StreamExt};
use partita_frontend::sql::copy::{CopyDecoder, CopyEncoder};
use partita_frontend::sql::statement::CopyFormat;
use partita_frontend::{CopyIn, CopyOut, SqlError};
use partita_proto::catalog::Table;
use pgwire::api::ClientInfo;
use pgwire::api::copy::CopyHandler;
use pgwire::api::results::{CopyResponse, Tag};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::copy::{CopyData, CopyDone, CopyFail};

use crate::connection::Connection;
use crate::error::{protocol, to_wire};

/// A COPY FROM STDIN whose rows are coming.
pub(crate) struct CopyInProgress {
    table: Arc<Table>,
    decoder: CopyDecoder,
    rows: u64,
}

impl CopyInProgress {
    /// Prepares to take rows; what the client is told to send.
    pub(crate) fn start(copy: CopyIn) -> PgWireResult<(Self, CopyResponse)> {
        let columns = copy.columns.len();
        let format = i8::from(copy.format == CopyFormat::Binary);
        let decoder = CopyDecoder::new(&copy.table, &copy.columns, copy.format, &copy.options)
            .map_err(to_wire)?;
        let response = CopyResponse::new(0, columns, futures::stream::empty());
        Ok((
            Self { table: copy.table, decoder, rows: 0 },
            CopyResponse { format, ..response },
        ))
    }
}

/// The response that sends a query's rows.
pub(crate) fn out(copy: CopyOut) -> PgWireResult<CopyResponse> {
    let columns = copy.schema.fields().len();
    let format = i8::from(copy.format == CopyFormat::Binary);
    let mut encoder =
        CopyEncoder::new(&copy.schema, copy.format, &copy.options).map_err(to_wire)?;
    let rows = copy.stream.map(move |batch| {
        let batch = batch.map_err(to_wire)?;
        let lines = encoder.encode(&batch).map_err(to_wire)?;
        Ok::<_, PgWireError>(lines)
    });
    // One message a row, so that clients that count messages count rows.
    let messages = rows.flat_map(|lines| {
        let messages: Vec<PgWireResult<CopyData>> = match lines {
            Ok(lines) => lines.into_iter().map(|line| Ok(CopyData::new(line))).collect(),
            Err(error) => vec![Err(error)],
        };
        futures::stream::iter(messages)
    });
    // The response appends the binary format's trailer by itself.
    Ok(CopyResponse::new(format, columns, messages))
}

impl Connection {
    async fn take(&self, data: &[u8]) -> PgWireResult<()> {
        let mut copy = self.copy.lock().await;
        let Some(running) = copy.as_mut() else {
            return Err(protocol("08P01", "rows came outside of COPY"));
        };
        let result = match running.decoder.push(data) {
            Ok(batches) => store(self, running, batches).await,
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            let rows = running.rows;
            *copy = None;
            return Err(to_wire(said_how_far(error, rows)));
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
        copy.rows += connection.frontend.ingest(&copy.table, batch).await?;
    }
    Ok(())
}

fn said_how_far(error: SqlError, rows: u64) -> SqlError {
    let detail = format!("{rows} rows before it are stored");
    match &error.detail {
        Some(already) => {
            let both = format!("{already}; {detail}");
            error.with_detail(both)
        }
        None => error.with_detail(detail),
    }
}

#[async_trait]
impl CopyHandler for Connection {
    async fn on_copy_data<C>(&self, _client: &mut C, data: CopyData) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let _running = self.running();
        self.take(&data.data).await
    }

    async fn on_copy_done<C>(&self, client: &mut C, _done: CopyDone) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let _running = self.running();
        let Some(mut copy) = self.copy.lock().await.take() else {
            return Err(protocol("08P01", "the end of COPY came outside of one"));
        };
        let result = match copy.decoder.finish() {
            Ok(batches) => store(self, &mut copy, batches).await,
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            return Err(to_wire(said_how_far(error, copy.rows)));
        }
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
        let rows = self.copy.lock().await.take().map_or(0, |copy| copy.rows);
        let error =
            SqlError::new("57014", format!("COPY from stdin failed: {}", fail.message));
        to_wire(said_how_far(error, rows))
    }
}

//! Cursors: DECLARE starts a query, FETCH reads some of its rows.
//!
//! A cursor holds its query's stream, not its rows. A FETCH takes the stream out of the session while it reads, and
//! puts it back at its end, so that no two FETCHes read it at the same time.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::common::ScalarValue;
use futures::StreamExt;
use parking_lot::Mutex;
use partita_proto::id::TableId;
use partita_sql::statement::{Declare, Fetch};

use super::query::{Source, Target};
use crate::error::SqlError;
use crate::output::{Output, RowStream};
use crate::session::Session;

/// Maximum open cursors of a session.
const CURSORS_MAX: usize = 64;

/// An open cursor.
pub(crate) struct Cursor {
    schema: SchemaRef,
    /// True if the cursor outlives its transaction.
    hold: bool,
    /// Tables that its query reads.
    tables: Vec<TableId>,
    rows: Arc<Mutex<Option<Rows>>>,
}

impl Cursor {
    /// Columns of the cursor's rows.
    pub(super) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Rows of a cursor that are not fetched yet.
struct Rows {
    /// The unread part of a batch.
    rest: Option<RecordBatch>,
    stream: RowStream,
}

impl Session {
    pub(super) async fn declare(
        &self,
        declare: &Declare,
        parameters: Option<&[ScalarValue]>,
    ) -> Result<Output, SqlError> {
        if !declare.hold && !self.in_transaction() {
            let message = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(SqlError::new("25P01", message).with_hint("use DECLARE ... WITH HOLD"));
        }
        // Check before the query starts.
        {
            let cursors = self.cursors.lock();
            if cursors.contains_key(&declare.name) {
                let message = format!("cursor \"{}\" already exists", declare.name);
                return Err(SqlError::new("42P03", message));
            }
            if cursors.len() >= CURSORS_MAX {
                let message = format!("a session can have at most {CURSORS_MAX} open cursors");
                return Err(SqlError::new("54000", message));
            }
        }
        // The query starts now; its rows wait in the stream.
        let statement = &declare.query.statement;
        let source = match parameters {
            Some(parameters) => Source::WithParameters(statement, parameters),
            None => Source::Statement(statement),
        };
        let running = self.start(&source, Target::default()).await?;
        let cursor = Cursor {
            schema: running.schema,
            hold: declare.hold,
            tables: running.tables,
            rows: Arc::new(Mutex::new(Some(Rows { rest: None, stream: running.stream }))),
        };
        self.cursors.lock().insert(declare.name.clone(), cursor);
        Ok(Output::done("DECLARE CURSOR"))
    }

    pub(super) async fn fetch(&self, fetch: &Fetch) -> Result<Output, SqlError> {
        let (schema, slot, tables) = {
            let cursors = self.cursors.lock();
            let cursor = cursors.get(&fetch.name).ok_or_else(|| no_cursor(&fetch.name))?;
            (Arc::clone(&cursor.schema), Arc::clone(&cursor.rows), cursor.tables.clone())
        };
        // The right may have been revoked since DECLARE.
        self.viewer().check_reads(tables.into_iter())?;
        let Some(rows) = slot.lock().take() else {
            return Err(SqlError::new(
                "55006",
                format!("cursor \"{}\" is in use, or its last FETCH was interrupted", fetch.name),
            ));
        };
        let fetched = take(rows, slot, fetch.count.unwrap_or(u64::MAX));
        if !fetch.only_move {
            return Ok(Output::Rows { schema, stream: Box::pin(fetched) });
        }
        let mut fetched = Box::pin(fetched);
        let mut moved = 0;
        while let Some(batch) = fetched.next().await {
            moved += batch?.num_rows() as u64;
        }
        Ok(Output::affected("MOVE", moved))
    }

    pub(super) fn close(&self, name: Option<&str>, tag: &'static str) -> Result<Output, SqlError> {
        let mut cursors = self.cursors.lock();
        match name {
            None => cursors.clear(),
            Some(name) => {
                cursors.remove(name).ok_or_else(|| no_cursor(name))?;
            }
        }
        Ok(Output::done(tag))
    }

    /// Closes the cursors that end with their transaction.
    pub(super) fn close_transient_cursors(&self) {
        self.cursors.lock().retain(|_, cursor| cursor.hold);
    }
}

fn no_cursor(name: &str) -> SqlError {
    SqlError::new("34000", format!("cursor \"{name}\" does not exist"))
}

/// Stream of at most `count` rows; unread rows go back to the slot.
fn take(
    rows: Rows,
    slot: Arc<Mutex<Option<Rows>>>,
    count: u64,
) -> impl futures::Stream<Item = Result<RecordBatch, SqlError>> + Send {
    struct Taking {
        rows: Option<Rows>,
        slot: Arc<Mutex<Option<Rows>>>,
        remaining: u64,
    }
    // The drop also covers a FETCH that is dropped before its end: unread rows return to the slot.
    impl Drop for Taking {
        fn drop(&mut self) {
            if let Some(rows) = self.rows.take() {
                *self.slot.lock() = Some(rows);
            }
        }
    }
    let taking = Taking { rows: Some(rows), slot, remaining: count };
    futures::stream::try_unfold(taking, |mut taking| async move {
        if taking.remaining == 0 {
            return Ok(None);
        }
        let Some(rows) = taking.rows.as_mut() else { return Ok(None) };
        let batch = match rows.rest.take() {
            Some(rest) => rest,
            None => match rows.stream.next().await.transpose()? {
                Some(batch) => batch,
                None => return Ok(None),
            },
        };
        let count = usize::try_from(taking.remaining).unwrap_or(usize::MAX).min(batch.num_rows());
        if count < batch.num_rows() {
            rows.rest = Some(batch.slice(count, batch.num_rows() - count));
        }
        taking.remaining -= count as u64;
        Ok(Some((batch.slice(0, count), taking)))
    })
}

//! Cursors: DECLARE starts a query, FETCH reads some of its rows.
//!
//! A cursor holds its query's stream, not its rows. A FETCH takes the stream out of the session while it reads, and
//! puts it back at its end, so that no two FETCHes read it at the same time. A SCROLL cursor keeps the rows that were
//! read (`scrolled.rs`).

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::common::ScalarValue;
use futures::StreamExt;
use parking_lot::Mutex;
use partita_proto::id::TableId;
use partita_sql::statement::{Declare, Direction, Fetch};

use super::query::{Source, Target};
use super::scrolled::Scrolled;
use crate::error::SqlError;
use crate::held::Listed;
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
    rows: Slot,
    /// Its row of `pg_cursors`.
    _listed: Listed,
}

/// Rows of a cursor; `None` while a FETCH reads them.
#[derive(Clone)]
enum Slot {
    Forward(Arc<Mutex<Option<Rows>>>),
    Scroll(Arc<Mutex<Option<Scrolled<RowStream>>>>),
}

/// The rows of a SCROLL cursor during a FETCH, after which they go back to the slot.
struct Scrolling {
    rows: Option<Scrolled<RowStream>>,
    slot: Arc<Mutex<Option<Scrolled<RowStream>>>>,
}

impl Drop for Scrolling {
    fn drop(&mut self) {
        if let Some(rows) = self.rows.take() {
            *self.slot.lock() = Some(rows);
        }
    }
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
        let rows = if declare.scroll {
            let runtime = self.frontend().context().runtime_env();
            Slot::Scroll(Arc::new(Mutex::new(Some(Scrolled::new(
                running.stream,
                &runtime.memory_pool,
            )))))
        } else {
            Slot::Forward(Arc::new(Mutex::new(Some(Rows { rest: None, stream: running.stream }))))
        };
        let (name, text) = (&declare.name, &declare.query.text);
        let cursor = Cursor {
            schema: running.schema,
            hold: declare.hold,
            tables: running.tables,
            rows,
            _listed: self.viewer().held().list_cursor(name, text, declare.hold, declare.scroll),
        };
        self.cursors.lock().insert(declare.name.clone(), cursor);
        Ok(Output::done("DECLARE CURSOR"))
    }

    pub(super) async fn fetch(&self, fetch: &Fetch) -> Result<Output, SqlError> {
        let (schema, slot, tables) = {
            let cursors = self.cursors.lock();
            let cursor = cursors.get(&fetch.name).ok_or_else(|| no_cursor(&fetch.name))?;
            (Arc::clone(&cursor.schema), cursor.rows.clone(), cursor.tables.clone())
        };
        // The right may have been revoked since DECLARE.
        self.viewer().check_reads(tables.into_iter())?;
        let slot = match slot {
            Slot::Forward(slot) => slot,
            Slot::Scroll(slot) => {
                let rows = slot.lock().take().ok_or_else(|| in_use(&fetch.name))?;
                let mut scrolling = Scrolling { rows: Some(rows), slot };
                let Some(rows) = &mut scrolling.rows else { return Err(in_use(&fetch.name)) };
                let fetched = Box::pin(rows.fetch(fetch.direction)).await?;
                if fetch.only_move {
                    let moved: u64 = fetched.iter().map(|batch| batch.num_rows() as u64).sum();
                    return Ok(Output::affected("MOVE", moved));
                }
                let stream = Box::pin(futures::stream::iter(fetched.into_iter().map(Ok)));
                return Ok(Output::Rows { schema, stream });
            }
        };
        let Direction::Forward(count) = fetch.direction else {
            let error = SqlError::new("55000", "cursor can only scan forward");
            return Err(error.with_hint("Declare it with SCROLL option to enable backward scan."));
        };
        let rows = slot.lock().take().ok_or_else(|| in_use(&fetch.name))?;
        let fetched = take(rows, slot, count.unwrap_or(u64::MAX));
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

fn in_use(name: &str) -> SqlError {
    let message = format!("cursor \"{name}\" is in use, or its last FETCH was interrupted");
    SqlError::new("55006", message)
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

//! Results of statements: rows, a command tag, or a request for rows.

use std::pin::Pin;
use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use futures::Stream;
use partita_proto::access::{Action, Need, Permit};
use partita_proto::catalog::Table;
use partita_sql::Notice;
use partita_sql::statement::{CopyFormat, CopyOptions};
use partita_worker::Zone;

use crate::access::viewer::Viewer;
use crate::error::SqlError;
use crate::execute::CopyLog;

/// A stream of result rows.
pub type RowStream = Pin<Box<dyn Stream<Item = Result<RecordBatch, SqlError>> + Send>>;

/// `COPY ... FROM STDIN`: the door decodes the client's rows by `format` into columns of these names and passes them
/// to [`crate::Frontend::ingest`].
pub struct CopyIn {
    /// Target table.
    pub table: Arc<Table>,
    /// Columns of each row, in order, without generated ones.
    pub columns: Vec<String>,
    /// Form of the rows.
    pub format: CopyFormat,
    /// Delimiter, quote and the rest.
    pub options: CopyOptions,
    /// Time zone of times without an offset.
    pub zone: Zone,
    /// Records the end of the statement.
    pub log: CopyLog,
    pub(crate) viewer: Arc<Viewer>,
}

impl CopyIn {
    /// Permit for the next rows. It is asked for again and again, because a COPY may outlive the right.
    ///
    /// # Errors
    /// Fails if the identity may no longer write to the table, or is no longer valid.
    pub fn permit(&self) -> Result<Permit, SqlError> {
        self.viewer.check(&[Need::new(Action::Insert, self.viewer.object(&self.table)?)])
    }
}

/// `COPY ... TO STDOUT`: the door encodes the rows.
pub struct CopyOut {
    /// Columns of the rows.
    pub schema: SchemaRef,
    /// The rows; dropping the stream ends the statement.
    pub stream: RowStream,
    /// Form of the rows.
    pub format: CopyFormat,
    /// Delimiter, quote and the rest.
    pub options: CopyOptions,
    /// Time zone of times in the output.
    pub zone: Zone,
}

/// Result of a statement.
pub enum Output {
    /// Rows of a query.
    Rows {
        /// Columns of every batch. PostgreSQL's clients may see other names: [`partita_sql::shown_names::shown_name`].
        schema: SchemaRef,
        /// The rows; dropping the stream ends the statement.
        stream: RowStream,
    },
    /// The statement is complete.
    Done {
        /// PostgreSQL's command tag: `INSERT 0 3`, `CREATE TABLE`, `SET`.
        tag: String,
        /// Rows affected, for statements that count them.
        rows: Option<u64>,
        /// Notices and warnings for the client.
        notices: Vec<Notice>,
    },
    /// `COPY ... FROM STDIN`: the client sends rows.
    CopyIn(CopyIn),
    /// `COPY ... TO STDOUT`.
    CopyOut(CopyOut),
}

impl Output {
    /// Completion with a tag only.
    pub fn done(tag: impl Into<String>) -> Self {
        Self::Done { tag: tag.into(), rows: None, notices: Vec::new() }
    }

    /// Completion with notices.
    pub fn done_with(tag: impl Into<String>, notices: Vec<Notice>) -> Self {
        Self::Done { tag: tag.into(), rows: None, notices }
    }

    /// Completion with a row count; `verb` is `INSERT 0`, `DELETE`, `COPY`.
    pub fn affected(verb: &str, rows: u64) -> Self {
        Self::Done { tag: format!("{verb} {rows}"), rows: Some(rows), notices: Vec::new() }
    }

    /// Rows of a batch in memory.
    pub fn batch(batch: RecordBatch) -> Self {
        let schema = batch.schema();
        Self::Rows { schema, stream: Box::pin(futures::stream::iter([Ok(batch)])) }
    }

    /// A small table of text, for SHOW and DESCRIBE.
    ///
    /// # Errors
    /// Fails if a row has more or fewer cells than there are columns.
    pub fn text(columns: &[&str], rows: &[Vec<Option<String>>]) -> Result<Self, SqlError> {
        if let Some(row) = rows.iter().find(|row| row.len() != columns.len()) {
            return Err(SqlError::internal(format!(
                "a row of {} cells for {} columns",
                row.len(),
                columns.len()
            )));
        }
        let arrays: Vec<ArrayRef> = (0..columns.len())
            .map(|column| {
                Arc::new(rows.iter().map(|row| row[column].as_deref()).collect::<StringViewArray>())
                    as ArrayRef
            })
            .collect();
        Ok(Self::batch(RecordBatch::try_new(text_schema(columns), arrays)?))
    }
}

/// Adds the number of rows that a COPY has stored to the error that ended it.
#[must_use]
pub fn with_stored_rows(error: SqlError, rows: u64) -> SqlError {
    let stored = format!("{rows} rows before the error are stored");
    let detail = match &error.detail {
        Some(detail) => format!("{detail}; {stored}"),
        None => stored,
    };
    error.with_detail(detail)
}

/// Columns of [`Output::text`].
pub(crate) fn text_schema(columns: &[&str]) -> SchemaRef {
    let fields = columns.iter().map(|name| Field::new(*name, DataType::Utf8View, true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

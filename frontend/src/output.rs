//! What a statement gives back: rows, a tag, or an invitation to send rows.

use std::pin::Pin;
use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use futures::Stream;
use partita_proto::catalog::Table;
use partita_worker::Zone;

use crate::error::SqlError;
use crate::execute::CopyLog;
use crate::sql::statement::{CopyFormat, CopyOptions};

/// A stream of result rows.
pub type RowStream = Pin<Box<dyn Stream<Item = Result<RecordBatch, SqlError>> + Send>>;

/// How much a notice matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Good to know.
    Notice,
    /// Probably not what was meant.
    Warning,
}

impl Severity {
    /// PostgreSQL's word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Notice => "NOTICE",
            Self::Warning => "WARNING",
        }
    }
}

/// Something to tell the user of a statement that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// How much it matters.
    pub severity: Severity,
    /// Its SQLSTATE: "00000" of a notice, "01000" of a warning.
    pub code: String,
    /// What to tell.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Notice {
    /// Good to know.
    #[expect(clippy::self_named_constructors, reason = "PostgreSQL's word for the lesser one")]
    pub fn notice(message: impl Into<String>) -> Self {
        let (severity, code) = (Severity::Notice, "00000".to_owned());
        Self { severity, code, message: message.into(), hint: None }
    }

    /// Probably not what was meant.
    pub fn warning(message: impl Into<String>) -> Self {
        let (severity, code) = (Severity::Warning, "01000".to_owned());
        Self { severity, code, message: message.into(), hint: None }
    }

    /// The same with what to do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Rows are to follow: the door decodes them as `format` says into columns of these names and gives
/// them to [`crate::Frontend::ingest`].
pub struct CopyIn {
    /// Where the rows go.
    pub table: Arc<Table>,
    /// The columns that each row brings, in order; never a generated one.
    pub columns: Vec<String>,
    /// Text, CSV or binary.
    pub format: CopyFormat,
    /// Delimiter, quote and the rest.
    pub options: CopyOptions,
    /// Where times without an offset are.
    pub zone: Zone,
    /// Writes down how it ended.
    pub log: CopyLog,
}

/// Rows are to be written in a COPY format: the door encodes them.
pub struct CopyOut {
    /// The rows' columns.
    pub schema: SchemaRef,
    /// The rows.
    pub stream: RowStream,
    /// Text, CSV or binary.
    pub format: CopyFormat,
    /// Delimiter, quote and the rest.
    pub options: CopyOptions,
    /// What times with a zone are written in.
    pub zone: Zone,
}

/// What a statement gives back.
pub enum Output {
    /// Rows.
    Rows {
        /// Their columns; every batch has them. (What clients of PostgreSQL are to call them may be another name:
        /// [`crate::sql::shown_names::shown_name`].)
        schema: SchemaRef,
        /// The rows. Dropping it ends the statement.
        stream: RowStream,
    },
    /// It is done.
    Done {
        /// PostgreSQL's command tag: `INSERT 0 3`, `CREATE TABLE`, `SET`.
        tag: String,
        /// Rows affected, for statements that count them.
        rows: Option<u64>,
        /// Things to tell.
        notices: Vec<Notice>,
    },
    /// `COPY ... FROM STDIN`: rows are to follow.
    CopyIn(CopyIn),
    /// `COPY ... TO STDOUT`.
    CopyOut(CopyOut),
}

impl Output {
    /// A statement that only succeeded.
    pub fn done(tag: impl Into<String>) -> Self {
        Self::Done { tag: tag.into(), rows: None, notices: Vec::new() }
    }

    /// A statement that succeeded, with things to tell.
    pub fn done_with(tag: impl Into<String>, notices: Vec<Notice>) -> Self {
        Self::Done { tag: tag.into(), rows: None, notices }
    }

    /// A statement that affected rows; `verb` is `INSERT 0`, `DELETE`, `COPY`.
    pub fn affected(verb: &str, rows: u64) -> Self {
        Self::Done { tag: format!("{verb} {rows}"), rows: Some(rows), notices: Vec::new() }
    }

    /// Rows that are already there.
    pub fn batch(batch: RecordBatch) -> Self {
        let schema = batch.schema();
        Self::Rows { schema, stream: Box::pin(futures::stream::iter([Ok(batch)])) }
    }

    /// A small table of text, for SHOW and DESCRIBE.
    ///
    /// # Errors
    /// When a row has more or fewer cells than there are columns.
    pub fn text(columns: &[&str], rows: &[Vec<Option<String>>]) -> Result<Self, SqlError> {
        if let Some(row) = rows.iter().find(|row| row.len() != columns.len()) {
            return Err(SqlError::internal(format!(
                "a row of {} cells for {} columns",
                row.len(),
                columns.len()
            )));
        }
        let fields: Vec<_> =
            columns.iter().map(|name| Field::new(*name, DataType::Utf8View, true)).collect();
        let arrays: Vec<ArrayRef> = (0..columns.len())
            .map(|at| {
                Arc::new(rows.iter().map(|row| row[at].as_deref()).collect::<StringViewArray>())
                    as ArrayRef
            })
            .collect();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?;
        Ok(Self::batch(batch))
    }
}

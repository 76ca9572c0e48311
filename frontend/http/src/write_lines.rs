//! Writes a text of line protocol: parse, create what is missing, ingest.
//!
//! A long text is parsed on a blocking thread. Rows of different tables are written concurrently. A wrong line does not
//! keep the others from being stored, unless the writer requested all or nothing; in any case the response lists the
//! lines that were not stored, with the reasons.

use std::sync::Arc;

use axum::http::StatusCode;
use futures::StreamExt;
use partita_frontend::SqlError;
use partita_proto::catalog::Catalog;

use crate::door::{BodyShare, Door, now_ns};
use crate::error::{ApiError, status_of, text_of};
use crate::hints::Hints;
use crate::line_protocol::{
    Kind, Lines, Precision, REJECTIONS_MAX, ReadOptions, Rejection, TableRows, read,
};
use crate::schema_on_write::{Outcome, check_database_name, make_database, make_table};

/// Maximum bytes of a text that is parsed on the thread that received it, in a fraction of a millisecond.
const READ_INLINE_BYTES_MAX: usize = 64 << 10;
/// Maximum tables of one request that are created or written at the same time.
const TABLES_AT_ONCE: usize = 8;
/// Maximum attempts to parse a text whose tables change meanwhile.
const READINGS_MAX: usize = 8;

/// Parameters of a write.
pub(crate) struct LineWrite {
    pub(crate) database: String,
    pub(crate) precision: Precision,
    pub(crate) accept_partial: bool,
    pub(crate) hints: Hints,
}

/// Lines that were not stored.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(crate) stored: usize,
    pub(crate) rejected: usize,
    /// The first rejections.
    pub(crate) rejections: Vec<Rejection>,
}

impl Partial {
    /// 422 when every line was rejected for too many columns, as in InfluxDB 3.
    pub(crate) fn status(&self) -> StatusCode {
        let limit = |rejection: &Rejection| rejection.kind == Kind::ColumnLimit;
        if self.stored == 0 && self.rejections.iter().all(limit) {
            StatusCode::UNPROCESSABLE_ENTITY
        } else {
            StatusCode::BAD_REQUEST
        }
    }
}

/// The reason why not all lines were stored.
#[derive(Debug)]
pub(crate) enum WriteFailure {
    /// The request as a whole failed; the rows of some tables may be stored.
    Request(ApiError),
    /// Some lines, possibly all, are wrong.
    Lines(Partial),
}

impl From<ApiError> for WriteFailure {
    fn from(error: ApiError) -> Self {
        Self::Request(error)
    }
}

impl From<SqlError> for WriteFailure {
    fn from(error: SqlError) -> Self {
        Self::Request(error.into())
    }
}

/// Writes lines; `share` is the body's claim on memory. Returns their number, which means that all were stored.
///
/// # Errors
/// When not all of them were stored.
pub(crate) async fn write_lines(
    door: &Door,
    write: &LineWrite,
    body: Vec<u8>,
    share: BodyShare,
) -> Result<usize, WriteFailure> {
    let outcome = write_all(door, write, body).await;
    drop(share);
    match &outcome {
        Ok(stored) => door.metrics.lines(*stored, 0),
        Err(WriteFailure::Lines(partial)) => door.metrics.lines(partial.stored, partial.rejected),
        Err(WriteFailure::Request(_)) => {}
    }
    outcome
}

async fn write_all(door: &Door, write: &LineWrite, body: Vec<u8>) -> Result<usize, WriteFailure> {
    check_database_name(&write.database).map_err(ApiError::bad_request)?;
    let text = String::from_utf8(body).map_err(|error| {
        ApiError::bad_request(format!(
            "the body is not UTF-8: invalid byte at offset {}",
            error.utf8_error().valid_up_to()
        ))
    })?;
    let text = Arc::new(text);
    for _ in 0..READINGS_MAX {
        let lines = read_lines(door, write, &text, door.frontend.catalog()).await?;
        let nothing = lines.rejected > 0 && !write.accept_partial;
        if nothing || (lines.accepted == 0 && lines.rejected > 0) {
            return Err(WriteFailure::Lines(Partial {
                stored: 0,
                rejected: lines.rejected,
                rejections: lines.rejections,
            }));
        }
        if lines.accepted == 0 {
            return Ok(0);
        }
        make_database(&door.frontend, &write.database).await?;
        if let Some(tables) = make_tables(door, write, &lines.tables).await? {
            return ingest(door, tables, lines).await;
        }
    }
    Err(ApiError::busy("the tables keep changing; try again").into())
}

async fn read_lines(
    door: &Door,
    write: &LineWrite,
    text: &Arc<String>,
    catalog: Arc<Catalog>,
) -> Result<Lines, WriteFailure> {
    let inline = text.len() <= READ_INLINE_BYTES_MAX;
    let text = Arc::clone(text);
    let (database, time_column) = (write.database.clone(), write.hints.time_column.clone());
    let precision = write.precision;
    let columns_max = door.options.line_columns_max;
    let string_bytes_max = door.options.line_string_bytes_max;
    let work = move || {
        let options = ReadOptions {
            catalog: &catalog,
            database: &database,
            precision,
            now: now_ns(),
            time_column: &time_column,
            columns_max,
            string_bytes_max,
        };
        read(&text, &options)
    };
    let lines = if inline {
        work()
    } else {
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| ApiError::internal(format!("parsing lines failed: {error}")))?
    };
    lines.map_err(|error| SqlError::from(error).into())
}

/// Creates or extends all tables for their rows. `None`: the text must be parsed again.
async fn make_tables(
    door: &Door,
    write: &LineWrite,
    tables: &[TableRows],
) -> Result<Option<Vec<Arc<partita_proto::catalog::Table>>>, SqlError> {
    let making: Vec<_> = tables
        .iter()
        .map(|rows| make_table(&door.frontend, &write.database, &write.hints, rows))
        .collect();
    let mut outcomes = std::pin::pin!(futures::stream::iter(making).buffered(TABLES_AT_ONCE));
    let mut ready = Vec::with_capacity(tables.len());
    while let Some(outcome) = outcomes.next().await {
        match outcome? {
            Outcome::Ready(table) => ready.push(table),
            Outcome::Changed => return Ok(None),
        }
    }
    Ok(Some(ready))
}

async fn ingest(
    door: &Door,
    tables: Vec<Arc<partita_proto::catalog::Table>>,
    lines: Lines,
) -> Result<usize, WriteFailure> {
    let Lines { tables: rows, mut rejected, mut rejections, .. } = lines;
    let results = futures::stream::iter(tables.into_iter().zip(rows))
        .map(|(table, rows)| async move {
            let result = door.frontend.ingest(&table, rows.batch.clone()).await;
            (rows, result)
        })
        .buffer_unordered(TABLES_AT_ONCE);
    let mut results = std::pin::pin!(results);
    let mut stored = 0;
    let mut failure: Option<SqlError> = None;
    while let Some((rows, result)) = results.next().await {
        let count = rows.batch.num_rows();
        match result {
            Ok(_) => stored += count,
            Err(mut error) if status_of(&error) != StatusCode::BAD_REQUEST => {
                error.message = format!("table \"{}\": {}", rows.name, error.message);
                failure.get_or_insert(error);
            }
            // The rows of this table are wrong together; those of other tables are not.
            Err(error) => {
                rejected += count;
                if rejections.len() < REJECTIONS_MAX {
                    rejections.push(Rejection {
                        line: rows.first_line,
                        kind: Kind::Schema,
                        message: format!("table \"{}\": {}", rows.name, text_of(&error)),
                        original: rows.first_original,
                    });
                }
            }
        }
    }
    if let Some(error) = failure {
        return Err(error.into());
    }
    if rejected > 0 {
        return Err(WriteFailure::Lines(Partial { stored, rejected, rejections }));
    }
    Ok(stored)
}

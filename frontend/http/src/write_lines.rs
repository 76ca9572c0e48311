//! Writes a text of line protocol: parse, create what is missing, ingest.
//!
//! A long text is parsed on a blocking thread. Rows of different tables are written concurrently. A wrong line does not
//! keep the others from being stored, unless the writer requested all or nothing; in any case the response lists the
//! lines that were not stored, with the reasons. Tables that the writer may not write to are taken out before any row is
//! sent ([`crate::write_rights`]); the lines of the others are stored.

use std::sync::Arc;

use arrow::compute::filter_record_batch;
use axum::http::StatusCode;
use futures::StreamExt;
use partita_frontend::SqlError;
use partita_frontend::rejected_points::RejectedPoint;
use partita_proto::access::{Identity, Permit};
use partita_proto::catalog::{Catalog, Table};

use crate::door::{BodyShare, Door, now_ns};
use crate::error::{ApiError, status_of, text_of};
use crate::hints::Hints;
use crate::line_protocol::{
    Kind, Lines, Precision, REJECTIONS_MAX, ReadOptions, Rejection, TableRows, read,
};
use crate::schema_on_write::{Outcome, check_database_name, make_database, make_table};
use crate::write_rights::{database_permit, has_ended, insert_permit, rows_permit};

/// SQLSTATE of too many series.
const PROGRAM_LIMIT_EXCEEDED: &str = "54000";
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
    /// True if some lines would have created more series than allowed.
    pub(crate) over_limit: bool,
}

impl Partial {
    /// 429 when there would be too many series, as in InfluxDB Cloud. 422 when every line was rejected for too many
    /// columns, as in InfluxDB 3, or for a time outside the retention, as in InfluxDB 2.
    pub(crate) fn status(&self) -> StatusCode {
        let limit = |rejection: &Rejection| rejection.kind == Kind::ColumnLimit;
        if self.over_limit {
            StatusCode::TOO_MANY_REQUESTS
        } else if self.expired() || (self.stored == 0 && self.rejections.iter().all(limit)) {
            StatusCode::UNPROCESSABLE_ENTITY
        } else {
            StatusCode::BAD_REQUEST
        }
    }

    /// True if no line was stored, each for a time outside the retention.
    pub(crate) fn expired(&self) -> bool {
        let is_old = |rejection: &Rejection| rejection.kind == Kind::Retention;
        self.stored == 0 && !self.rejections.is_empty() && self.rejections.iter().all(is_old)
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
    identity: Identity,
    write: &LineWrite,
    body: Vec<u8>,
    share: BodyShare,
) -> Result<usize, WriteFailure> {
    let outcome = write_all(door, identity, write, body).await;
    drop(share);
    match &outcome {
        Ok(stored) => door.metrics.lines(*stored, 0),
        Err(WriteFailure::Lines(partial)) => {
            door.metrics.lines(partial.stored, partial.rejected);
            keep(door, identity, &write.database, &partial.rejections);
        }
        Err(WriteFailure::Request(_)) => {}
    }
    outcome
}

/// Keeps rejected lines for `sys.rejected_points`.
fn keep(door: &Door, identity: Identity, database: &str, rejections: &[Rejection]) {
    let time_ms = now_ns() / 1_000_000;
    let database_id = door.frontend.catalog().databases.get(database).map(|database| database.id);
    let point = |rejection: &Rejection| RejectedPoint {
        time_ms,
        database: database.to_owned(),
        database_id,
        identity,
        line_number: u64::try_from(rejection.line).unwrap_or(u64::MAX),
        reason: rejection.kind.name(),
        message: rejection.message.clone(),
        line: rejection.original.clone(),
    };
    door.frontend.rejected_points().add(rejections.iter().map(point));
}

async fn write_all(
    door: &Door,
    identity: Identity,
    write: &LineWrite,
    body: Vec<u8>,
) -> Result<usize, WriteFailure> {
    let creation = database_permit(&door.frontend, identity, &write.database)?;
    // SQL and the API of buckets make databases with other names too.
    if creation.is_some() {
        check_database_name(&write.database).map_err(ApiError::bad_request)?;
    }
    // Lines are checked against tables that the writer sees: errors tell nothing about the columns of others.
    let viewer = door.frontend.viewer(identity);
    let text = String::from_utf8(body).map_err(|error| {
        ApiError::bad_request(format!(
            "the body is not UTF-8: invalid byte at offset {}",
            error.utf8_error().valid_up_to()
        ))
    })?;
    let text = Arc::new(text);
    for _ in 0..READINGS_MAX {
        let mut lines = read_lines(door, write, &text, viewer.catalog()).await?;
        let nothing = lines.rejected > 0 && !write.accept_partial;
        if nothing || (lines.accepted == 0 && lines.rejected > 0) {
            return Err(WriteFailure::Lines(Partial {
                stored: 0,
                rejected: lines.rejected,
                rejections: lines.rejections,
                over_limit: false,
            }));
        }
        if lines.accepted == 0 {
            return Ok(0);
        }
        if let Some(permit) = &creation {
            make_database(&door.frontend, permit, &write.database).await?;
        }
        let permits = admit(door, identity, write, &mut lines)?;
        if let Some(results) = make_tables(door, write, &lines.tables, &permits).await? {
            let tables = existing_tables(write, &mut lines, results)?;
            return ingest(door, identity, write, tables, lines).await;
        }
    }
    Err(ApiError::busy("the tables keep changing; try again").into())
}

/// Takes the tables out that the writer may not write to, and rejects their lines. Returns the permits for the others.
///
/// # Errors
/// When that leaves nothing to store, or the writer wants all or nothing.
fn admit(
    door: &Door,
    identity: Identity,
    write: &LineWrite,
    lines: &mut Lines,
) -> Result<Vec<Permit>, WriteFailure> {
    let mut permits = Vec::with_capacity(lines.tables.len());
    let mut admitted = Vec::with_capacity(lines.tables.len());
    let mut denial = None;
    for rows in std::mem::take(&mut lines.tables) {
        let extends = !rows.new_tags.is_empty() || !rows.new_fields.is_empty();
        let target = (write.database.as_str(), rows.name.as_str());
        match rows_permit(&door.frontend, identity, target, extends) {
            Ok(permit) => {
                permits.push(permit);
                admitted.push(rows);
            }
            Err(error) if has_ended(&error) => return Err(error.into()),
            Err(error) => {
                let count = rows.batch.num_rows();
                lines.accepted = lines.accepted.saturating_sub(count);
                lines.rejected += count;
                reject(&mut lines.rejections, rows, Kind::Denied, &error);
                denial.get_or_insert(error);
            }
        }
    }
    lines.tables = admitted;
    let Some(denial) = denial else { return Ok(permits) };
    let is_denied = |rejection: &Rejection| rejection.kind == Kind::Denied;
    if !write.accept_partial || (permits.is_empty() && lines.rejections.iter().all(is_denied)) {
        return Err(denial.into());
    }
    if permits.is_empty() {
        return Err(WriteFailure::Lines(Partial {
            stored: 0,
            rejected: lines.rejected,
            rejections: std::mem::take(&mut lines.rejections),
            over_limit: false,
        }));
    }
    Ok(permits)
}

/// Adds the rejection of all rows of a table, unless there are too many.
fn reject(rejections: &mut Vec<Rejection>, rows: TableRows, kind: Kind, error: &SqlError) {
    if rejections.len() < REJECTIONS_MAX {
        rejections.push(Rejection {
            line: rows.first_line,
            kind,
            message: format!("table \"{}\": {}", rows.name, text_of(error)),
            original: rows.first_original,
        });
    }
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

/// Table of each part of the rows, or the reason why it cannot be made or extended.
type TableResults = Vec<Result<Arc<Table>, SqlError>>;

/// Creates or extends all tables for their rows. `None`: the text must be parsed again.
///
/// # Errors
/// Those that are not the writer's fault.
async fn make_tables(
    door: &Door,
    write: &LineWrite,
    tables: &[TableRows],
    permits: &[Permit],
) -> Result<Option<TableResults>, SqlError> {
    let making: Vec<_> = tables
        .iter()
        .zip(permits)
        .map(|(rows, permit)| {
            make_table(&door.frontend, permit, &write.database, &write.hints, rows)
        })
        .collect();
    let mut outcomes = std::pin::pin!(futures::stream::iter(making).buffered(TABLES_AT_ONCE));
    let mut results = Vec::with_capacity(tables.len());
    while let Some(outcome) = outcomes.next().await {
        match outcome {
            Ok(Outcome::Ready(table)) => results.push(Ok(table)),
            Ok(Outcome::Changed) => return Ok(None),
            // One table too many in the database, for example; other tables of the request exist.
            Err(error) if status_of(&error) == StatusCode::BAD_REQUEST => results.push(Err(error)),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(results))
}

/// Takes the tables out that could not be made, and rejects their lines. Returns the others.
///
/// # Errors
/// When that leaves nothing to store, or the writer wants all or nothing.
fn existing_tables(
    write: &LineWrite,
    lines: &mut Lines,
    results: TableResults,
) -> Result<Vec<Arc<Table>>, WriteFailure> {
    let mut tables = Vec::with_capacity(results.len());
    let mut remaining = Vec::with_capacity(results.len());
    let mut failure = None;
    for (rows, result) in std::mem::take(&mut lines.tables).into_iter().zip(results) {
        match result {
            Ok(table) => {
                tables.push(table);
                remaining.push(rows);
            }
            Err(error) => {
                let count = rows.batch.num_rows();
                lines.accepted = lines.accepted.saturating_sub(count);
                lines.rejected += count;
                reject(&mut lines.rejections, rows, Kind::Schema, &error);
                failure.get_or_insert(error);
            }
        }
    }
    lines.tables = remaining;
    match failure {
        Some(failure) if tables.is_empty() || !write.accept_partial => Err(failure.into()),
        _ => Ok(tables),
    }
}

/// Result of the rows of one table.
#[derive(Default)]
struct Ingested {
    stored: usize,
    /// Rows that would have created too many series, and the message about them.
    refused: usize,
    message: String,
}

/// Writes the rows of a table, without those that would create too many series; with those, nothing of a request that
/// wants all or nothing.
async fn ingest_rows(
    door: &Door,
    identity: Identity,
    write: &LineWrite,
    table: &Arc<Table>,
    rows: &TableRows,
) -> Result<Ingested, SqlError> {
    // A table that was just created has a permit of its own, and rights may have changed meanwhile.
    let permit = insert_permit(&door.frontend, identity, table)?;
    let count = rows.batch.num_rows();
    let Some(over) = door.frontend.admit_series(table, &rows.batch).await? else {
        door.frontend.ingest(&permit, table, rows.batch.clone()).await?;
        return Ok(Ingested { stored: count, ..Ingested::default() });
    };
    if !write.accept_partial || over.refused == count {
        return Ok(Ingested { stored: 0, refused: count, message: over.message });
    }
    let admitted = filter_record_batch(&rows.batch, &over.admitted)?;
    let stored = admitted.num_rows();
    door.frontend.ingest(&permit, table, admitted).await?;
    Ok(Ingested { stored, refused: over.refused, message: over.message })
}

async fn ingest(
    door: &Door,
    identity: Identity,
    write: &LineWrite,
    tables: Vec<Arc<Table>>,
    lines: Lines,
) -> Result<usize, WriteFailure> {
    let Lines { tables: rows, mut rejected, mut rejections, .. } = lines;
    let results = futures::stream::iter(tables.into_iter().zip(rows))
        .map(|(table, rows)| async move {
            let result = ingest_rows(door, identity, write, &table, &rows).await;
            (rows, result)
        })
        .buffer_unordered(TABLES_AT_ONCE);
    let mut results = std::pin::pin!(results);
    let (mut stored, mut over_limit) = (0, false);
    let mut failure: Option<SqlError> = None;
    while let Some((rows, result)) = results.next().await {
        let count = rows.batch.num_rows();
        match result {
            Ok(ingested) => {
                stored += ingested.stored;
                if ingested.refused > 0 {
                    over_limit = true;
                    rejected += ingested.refused;
                    let error = SqlError::new(PROGRAM_LIMIT_EXCEEDED, ingested.message);
                    reject(&mut rejections, rows, Kind::SeriesLimit, &error);
                }
            }
            // The rows of this table are wrong together; those of other tables are not.
            Err(error) if status_of(&error) == StatusCode::BAD_REQUEST => {
                rejected += count;
                reject(&mut rejections, rows, Kind::Schema, &error);
            }
            Err(error) if status_of(&error) == StatusCode::FORBIDDEN => {
                rejected += count;
                reject(&mut rejections, rows, Kind::Denied, &error);
            }
            Err(mut error) => {
                error.message = format!("table \"{}\": {}", rows.name, error.message);
                failure.get_or_insert(error);
            }
        }
    }
    if let Some(error) = failure {
        return Err(error.into());
    }
    if rejected > 0 {
        return Err(WriteFailure::Lines(Partial { stored, rejected, rejections, over_limit }));
    }
    Ok(stored)
}

//! GreptimeDB's SQL endpoint: `GET` and `POST /v1/sql`.
//!
//! `sql` (which may hold several statements), `db` and `format` come from the query string, a form or a JSON object;
//! `params`, an object of named parameters, is an extension. Formats: `greptimedb_v1` (the default), `influxdb_v1`,
//! `csv`, `csvWithNames`, `table`, `arrow`, `null`; all but the first two return only the rows of the last statement.
//! GET may only read.
//!
//! The rows of the last statement stream. Those of earlier ones are collected, up to [`COLLECTED_BYTES_MAX`].

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use partita_frontend::{Output, Session, SqlError};
use partita_proto::catalog::DEFAULT_DATABASE;
use serde_json::json;

use crate::caller::Caller;
use crate::door::Door;
use crate::error::{ApiError, greptime_code, status_of, text_of};
use crate::format::{
    Csv, CsvNames, Encoded, Encoder, GreptimeRows, InfluxV1Rows, IpcStream, Pretty, body_of,
    first_batch,
};
use crate::parameters::header;
use crate::query::{QueryRequest, check_reads, query_request, rows_of};
use crate::sql_parameters::run_with;

/// Maximum bytes of the rows of all statements but the last.
const COLLECTED_BYTES_MAX: usize = 16 << 20;
const ERROR_CODE: HeaderName = HeaderName::from_static("x-greptime-err-code");
const FORMAT: HeaderName = HeaderName::from_static("x-greptime-format");

/// The formats of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Greptime,
    InfluxV1,
    Csv,
    CsvWithNames,
    Table,
    Arrow,
    Null,
}

impl Format {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "greptimedb_v1" => Self::Greptime,
            "influxdb_v1" => Self::InfluxV1,
            "csv" => Self::Csv,
            "csvWithNames" | "csvwithnames" => Self::CsvWithNames,
            "table" => Self::Table,
            "arrow" => Self::Arrow,
            "null" => Self::Null,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Greptime => "greptimedb_v1",
            Self::InfluxV1 => "influxdb_v1",
            Self::Csv => "csv",
            Self::CsvWithNames => "csvWithNames",
            Self::Table => "table",
            Self::Arrow => "arrow",
            Self::Null => "null",
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Greptime | Self::InfluxV1 => "application/json",
            Self::Csv | Self::CsvWithNames => "text/csv",
            Self::Table | Self::Null => "text/plain; charset=utf-8",
            Self::Arrow => "application/vnd.apache.arrow.stream",
        }
    }

    fn encoder(self) -> Box<dyn Encoder> {
        match self {
            Self::Greptime => Box::new(GreptimeRows::default()),
            Self::InfluxV1 => Box::new(InfluxV1Rows::default()),
            Self::Csv => Box::new(Csv(CsvNames::None)),
            Self::CsvWithNames => Box::new(Csv(CsvNames::Names)),
            Self::Table | Self::Null => Box::new(Pretty::default()),
            Self::Arrow => Box::new(IpcStream::default()),
        }
    }

    /// The name of the array of all statements' results, in the formats that have one.
    fn outer(self) -> Option<&'static str> {
        match self {
            Self::Greptime => Some("output"),
            Self::InfluxV1 => Some("results"),
            _ => None,
        }
    }
}

/// `GET` and `POST /v1/sql`.
pub(crate) async fn sql(
    State(door): State<Arc<Door>>,
    Extension(caller): Extension<Caller>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let began = Instant::now();
    let query = match query_request(&door, &uri, &headers, body).await {
        Ok(query) => query,
        Err(error) => return request_failed(&error, began),
    };
    match answer(&door, &caller, &method, &headers, &query, began).await {
        Ok(response) => response,
        Err(Failure::Request(error)) => request_failed(&error, began),
        Err(Failure::Sql(error)) => sql_failed(&error, began),
    }
}

enum Failure {
    Request(ApiError),
    Sql(SqlError),
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

fn request_failed(error: &ApiError, began: Instant) -> Response {
    error.respond_with(&json!({
        "code": 1004,
        "error": error.message,
        "execution_time_ms": milliseconds(began),
    }))
}

fn sql_failed(error: &SqlError, began: Instant) -> Response {
    let code = greptime_code(error);
    let body = json!({
        "code": code,
        "error": text_of(error),
        "sqlstate": error.sqlstate,
        "execution_time_ms": milliseconds(began),
    });
    let mut response = ApiError::new(status_of(error), "").respond_with(&body);
    response.headers_mut().insert(ERROR_CODE, HeaderValue::from(code));
    response
}

fn milliseconds(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

async fn answer(
    door: &Door,
    caller: &Caller,
    method: &Method,
    headers: &HeaderMap,
    query: &QueryRequest,
    began: Instant,
) -> Result<Response, Failure> {
    let bad = |message: String| Failure::Request(ApiError::bad_request(message));
    let parameters = &query.parameters;
    let sql = parameters.get("sql").ok_or_else(|| bad("missing parameter 'sql'".to_owned()))?;
    let format = match parameters.get("format") {
        None => Format::Greptime,
        Some(name) => Format::named(name).ok_or_else(|| {
            bad(format!(
                "unknown format \"{name}\"; use greptimedb_v1, influxdb_v1, csv, csvWithNames, \
                 table, arrow or null"
            ))
        })?,
    };
    let database = parameters
        .get("db")
        .or_else(|| header(headers, "x-greptime-db-name"))
        // GreptimeDB's clients may prefix the catalog.
        .map(|name| name.strip_prefix("greptime-").unwrap_or(name))
        .unwrap_or(DEFAULT_DATABASE);
    let session = door.session(caller.identity, database, "http")?;
    let statements = session.parse(sql).await?;
    if *method != Method::POST {
        check_reads(&statements).map_err(Failure::Request)?;
    }
    if !query.values.is_empty() {
        let output = run_with(&session, sql, &query.values).await?;
        return last(session, output, Vec::new(), format, began).await;
    }
    let mut earlier = Vec::new();
    for (index, statement) in statements.iter().enumerate() {
        let output = session.run(statement).await?;
        if index + 1 == statements.len() {
            return last(session, output, earlier, format, began).await;
        }
        collect(output, format, &mut earlier).await?;
    }
    Err(SqlError::syntax("there is no statement").into())
}

/// The result of a statement without rows.
fn affected(format: Format, rows: Option<u64>) -> Option<String> {
    match format {
        Format::Greptime => Some(json!({ "affectedrows": rows.unwrap_or(0) }).to_string()),
        Format::InfluxV1 => Some(json!({ "series": [] }).to_string()),
        _ => None,
    }
}

/// Runs a statement that is not the last one to its end, and keeps its result if the format has a place for it.
async fn collect(output: Output, format: Format, results: &mut Vec<u8>) -> Result<(), SqlError> {
    // Results are kept up to a bound, so that memory is.
    let keep = format.outer().is_some();
    let mut add = |bytes: &[u8]| {
        results.extend_from_slice(bytes);
        if results.len() > COLLECTED_BYTES_MAX {
            return Err(SqlError::new(
                "54000",
                "too many rows in a statement that is not the last one; send \
                 it by itself",
            ));
        }
        Ok(())
    };
    // A statement without rows has a result of its own.
    if let Output::Done { rows, .. } = &output {
        return match affected(format, *rows) {
            Some(text) => add(format!("{text},").as_bytes()),
            None => Ok(()),
        };
    }
    // Rows are fetched in any case: the statement must run to its end.
    let (schema, mut stream) = rows_of(output)?;
    let mut encoder = format.encoder();
    if keep {
        add(&encoder.begin(&schema)?)?;
    }
    while let Some(batch) = stream.next().await.transpose()? {
        if keep {
            add(&encoder.rows(&batch)?)?;
        }
    }
    if keep {
        add(&encoder.end()?)?;
        add(b",")?;
    }
    Ok(())
}

/// The response, once the last statement has produced its first rows.
async fn last(
    session: Arc<Session>,
    output: Output,
    earlier: Vec<u8>,
    format: Format,
    began: Instant,
) -> Result<Response, Failure> {
    let mut prefix = Vec::new();
    if let Some(outer) = format.outer() {
        prefix.extend(format!("{{\"{outer}\":[").bytes());
        prefix.extend(earlier);
    }
    let suffix = move || format!("],\"execution_time_ms\":{}}}", milliseconds(began)).into_bytes();
    let body = match output {
        Output::Done { rows, .. } if affected(format, rows).is_some() => {
            prefix.extend(affected(format, rows).unwrap_or_default().bytes());
            prefix.extend(suffix());
            Body::from(prefix)
        }
        Output::Done { rows, .. } => Body::from(format!("{}\n", rows.unwrap_or(0))),
        output => {
            let (schema, mut rest) = rows_of(output)?;
            if format == Format::Null {
                let mut rows = 0;
                while let Some(batch) = rest.next().await.transpose()? {
                    rows += batch.num_rows();
                }
                Body::from(format!("{rows} rows in set\n"))
            } else {
                let first = first_batch(&mut rest).await?;
                let wrapped = format.outer().is_some();
                body_of(Encoded {
                    schema,
                    first,
                    rest,
                    encoder: format.encoder(),
                    before: prefix,
                    behind: Box::new(move || {
                        // The session lives until its rows have been sent.
                        drop(session);
                        if wrapped { suffix() } else { Vec::new() }
                    }),
                })
            }
        }
    };
    let content_type = HeaderValue::from_static(format.content_type());
    let format = HeaderValue::from_static(format.name());
    Ok((StatusCode::OK, [(CONTENT_TYPE, content_type), (FORMAT, format)], body).into_response())
}

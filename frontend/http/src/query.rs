//! InfluxDB 3's SQL endpoint: `GET` and `POST /api/v3/query_sql`.
//!
//! Parameters `db`, `q`, `format` and `params` come from the query string, a form or a JSON object. Formats: `json`,
//! `jsonl`, `csv`, `parquet`, `pretty`; the default is that of the Accept header, or else JSON. GET may only read. A
//! statement without rows returns one row with its tag and the number of affected rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewArray, UInt64Array};
use arrow::record_batch::RecordBatch;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::response::Response;
use partita_frontend::{Output, Session, SqlError, Statement};
use serde_json::Value;

use crate::body;
use crate::caller::Caller;
use crate::door::Door;
use crate::error::{ApiError, Dialect};
use crate::format::{
    Csv, CsvNames, Encoded, Encoder, JsonArray, JsonLines, Parquet, Pretty, body_of, first_batch,
};
use crate::parameters::{Parameters, content_type, header};
use crate::sql_parameters::run_with;

/// The formats of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Json,
    JsonLines,
    Csv,
    Parquet,
    Pretty,
}

impl Format {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "json" => Self::Json,
            "jsonl" | "json_lines" => Self::JsonLines,
            "csv" => Self::Csv,
            "parquet" => Self::Parquet,
            "pretty" => Self::Pretty,
            _ => return None,
        })
    }

    /// The first known type of an Accept header; JSON when it accepts anything.
    fn accepted(accept: &str) -> Option<Self> {
        accept.split(',').find_map(|kind| {
            Some(match kind.split(';').next().unwrap_or_default().trim() {
                "application/json" | "*/*" | "application/*" | "" => Self::Json,
                "application/jsonl" | "application/x-ndjson" => Self::JsonLines,
                "text/csv" => Self::Csv,
                "application/vnd.apache.parquet" => Self::Parquet,
                "text/plain" => Self::Pretty,
                _ => return None,
            })
        })
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::JsonLines => "application/jsonl",
            Self::Csv => "text/csv",
            Self::Parquet => "application/vnd.apache.parquet",
            Self::Pretty => "text/plain; charset=utf-8",
        }
    }

    fn encoder(self) -> Box<dyn Encoder> {
        match self {
            Self::Json => Box::new(JsonArray::default()),
            Self::JsonLines => Box::new(JsonLines),
            Self::Csv => Box::new(Csv(CsvNames::Names)),
            Self::Parquet => Box::new(Parquet::default()),
            Self::Pretty => Box::new(Pretty::default()),
        }
    }
}

/// `GET` and `POST /api/v3/query_sql`.
pub(crate) async fn query_sql(
    State(door): State<Arc<Door>>,
    Extension(caller): Extension<Caller>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match answer(&door, &caller, &method, &uri, &headers, body).await {
        Ok(response) => response,
        Err(error) => error.respond(Dialect::InfluxV3),
    }
}

/// The parameters of a query, and the values of the statement's parameters.
pub(crate) struct QueryRequest {
    pub(crate) parameters: Parameters,
    pub(crate) values: BTreeMap<String, Value>,
}

/// Reads the parameters of a query from the URL and the body.
///
/// # Errors
/// When the body cannot be read, or is neither a form nor a JSON object.
pub(crate) async fn query_request(
    door: &Door,
    uri: &Uri,
    headers: &HeaderMap,
    body: Body,
) -> Result<QueryRequest, ApiError> {
    let mut parameters = Parameters::of(uri);
    let mut values = BTreeMap::new();
    let body = body::take(door, headers, body).await?;
    match content_type(headers).as_str() {
        "application/json" if !body.bytes.is_empty() => {
            let object: BTreeMap<String, Value> =
                serde_json::from_slice(&body.bytes).map_err(|error| {
                    ApiError::bad_request(format!("the body is not a JSON object: {error}"))
                })?;
            for (name, value) in object {
                match value {
                    Value::Null => {}
                    Value::String(text) => parameters.set(&name, text),
                    Value::Object(object) if name == "params" => values.extend(object),
                    value => parameters.set(&name, value.to_string()),
                }
            }
        }
        _ => parameters.add(&body.bytes),
    }
    if let Some(params) = parameters.get("params") {
        let object: BTreeMap<String, Value> = serde_json::from_str(params).map_err(|error| {
            ApiError::bad_request(format!("params is not a JSON object: {error}"))
        })?;
        values.extend(object);
    }
    Ok(QueryRequest { parameters, values })
}

async fn answer(
    door: &Door,
    caller: &Caller,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let QueryRequest { parameters, values } = query_request(door, uri, headers, body).await?;
    let missing = |name| ApiError::bad_request(format!("missing parameter '{name}'"));
    let database = parameters.get("db").ok_or_else(|| missing("db"))?;
    let sql = parameters
        .get("q")
        .or(parameters.get("query_str"))
        .or(parameters.get("query"))
        .ok_or_else(|| missing("q"))?;
    let format = match parameters.get("format") {
        Some(name) => Format::named(name).ok_or_else(|| {
            ApiError::bad_request(format!(
                "unknown format \"{name}\"; use json, jsonl, csv, parquet or pretty"
            ))
        })?,
        None => header(headers, ACCEPT.as_str()).and_then(Format::accepted).unwrap_or(Format::Json),
    };
    let session = door.session(caller.identity, database, "http")?;
    let output = run(&session, sql, &values, *method != Method::POST).await?;
    respond(session, output, format).await
}

/// Runs statements; the output of the last one is the response.
async fn run(
    session: &Arc<Session>,
    sql: &str,
    values: &BTreeMap<String, Value>,
    only_reads: bool,
) -> Result<Output, ApiError> {
    if only_reads {
        check_reads(&session.parse(sql).await?)?;
    }
    if !values.is_empty() {
        return Ok(run_with(session, sql, values).await?);
    }
    let mut outputs = session.execute(sql).await?;
    Ok(outputs.pop().ok_or_else(|| SqlError::syntax("there is no statement"))?)
}

/// Refuses statements that a GET request must not run: pages link to it, and caches and prefetchers send it at will.
///
/// # Errors
/// 405 for a statement that does more than read.
pub(crate) fn check_reads(statements: &[Statement]) -> Result<(), ApiError> {
    let Some(statement) = statements.iter().find(|statement| !statement.reads()) else {
        return Ok(());
    };
    let message = format!("{} requires a POST request; GET may only read", statement.tag());
    Err(ApiError { allow: Some("POST"), ..ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message) })
}

async fn respond(
    session: Arc<Session>,
    output: Output,
    format: Format,
) -> Result<Response, ApiError> {
    let (schema, mut rest) = rows_of(output)?;
    let first = first_batch(&mut rest).await?;
    let body = body_of(Encoded {
        schema,
        first,
        rest,
        encoder: format.encoder(),
        before: Vec::new(),
        behind: Box::new(move || {
            // The session lives until its rows have been sent.
            drop(session);
            Vec::new()
        }),
    });
    let mut response = Response::new(body);
    let content_type = HeaderValue::from_static(format.content_type());
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    Ok(response)
}

/// An output's rows; for a statement without rows, one row with its tag and the number of affected rows.
///
/// # Errors
/// For COPY, which HTTP cannot transfer.
pub(crate) fn rows_of(
    output: Output,
) -> Result<(arrow::datatypes::SchemaRef, partita_frontend::RowStream), SqlError> {
    let output = match output {
        Output::Done { tag, rows, .. } => {
            let tag: ArrayRef = Arc::new(StringViewArray::from_iter_values([tag]));
            let rows: ArrayRef = Arc::new(UInt64Array::from(vec![rows]));
            Output::batch(RecordBatch::try_from_iter_with_nullable([
                ("status", tag, false),
                ("rows_affected", rows, true),
            ])?)
        }
        rows => rows,
    };
    match output {
        Output::Rows { schema, stream } => Ok((schema, stream)),
        _ => Err(SqlError::unsupported("COPY over HTTP").with_hint(
            "use a PostgreSQL client for COPY, line protocol or Arrow Flight for bulk rows",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_header_chooses_when_nothing_else_does() {
        assert_eq!(Format::accepted("text/csv;q=0.9, */*"), Some(Format::Csv));
        assert_eq!(Format::accepted("text/html,*/*"), Some(Format::Json));
        assert_eq!(Format::accepted("image/png"), None);
        assert_eq!(Format::named("jsonl"), Some(Format::JsonLines));
        assert_eq!(Format::named("xml"), None);
    }
}

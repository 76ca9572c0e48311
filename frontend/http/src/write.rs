//! The endpoints for line protocol.
//!
//! | path | clients | default precision | response to wrong lines |
//! |---|---|---|---|
//! | `/api/v2/write` | InfluxDB 2, and 3 by default | ns | 400 `code`, `message`, `line` |
//! | `/write` | InfluxDB 1 | ns | 400 `error` |
//! | `/api/v3/write_lp` | InfluxDB 3 | auto | 400 `error`, `data` |
//!
//! When all lines are outside the retention of their tables, the status is 422, with InfluxDB 2's text where it has one.
//!
//! Each stores the good lines of a text with bad ones, unless `accept_partial=false` is set. A successful response
//! always means that the rows are durable; `no_sync` is accepted and changes nothing. `org`, `orgID` and `consistency`
//! are accepted and ignored.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::body;
use crate::caller::Caller;
use crate::door::Door;
use crate::error::{ApiError, Dialect};
use crate::hints::Hints;
use crate::line_protocol::{Precision, Rejection};
use crate::manage::bucket_named;
use crate::parameters::Parameters;
use crate::write_lines::{LineWrite, Partial, WriteFailure, write_lines};

/// Maximum number of rejected lines in a message for InfluxDB 2.
const LISTED_MAX: usize = 100;

/// `POST /api/v2/write`.
pub(crate) async fn v2(
    State(door): State<Arc<Door>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let parameters = Parameters::of(&uri);
    // GreptimeDB's clients send `db` here.
    let bucket = parameters.get("bucket").or(parameters.get("db")).map(retention_policy_free);
    let Some(database) = bucket else {
        return ApiError::bad_request("bucket is required").respond(Dialect::InfluxV2);
    };
    let database = bucket_named(&door.frontend.viewer(caller.identity).catalog(), database);
    respond(&door, &caller, Dialect::InfluxV2, database, &parameters, &headers, body).await
}

/// `POST /write`.
pub(crate) async fn v1(
    State(door): State<Arc<Door>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let parameters = Parameters::of(&uri);
    let Some(database) = parameters.get("db") else {
        return ApiError::bad_request("database is required").respond(Dialect::InfluxV1);
    };
    let database = v1_database(database, parameters.get("rp"));
    respond(&door, &caller, Dialect::InfluxV1, database, &parameters, &headers, body).await
}

/// `POST /api/v3/write_lp`.
pub(crate) async fn v3(
    State(door): State<Arc<Door>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let parameters = Parameters::of(&uri);
    let Some(database) = parameters.get("db") else {
        return ApiError::bad_request("missing query parameter 'db'").respond(Dialect::InfluxV3);
    };
    respond(&door, &caller, Dialect::InfluxV3, database.to_owned(), &parameters, &headers, body)
        .await
}

/// InfluxDB 1's database and retention policy as one name; default policies are left out.
pub(crate) fn v1_database(database: &str, policy: Option<&str>) -> String {
    match policy {
        None | Some("autogen" | "default") => database.to_owned(),
        Some(policy) => format!("{database}/{policy}"),
    }
}

/// The database of a bucket in the form `db/rp` of InfluxDB 1's clients.
fn retention_policy_free(bucket: &str) -> String {
    let name = bucket.strip_suffix("/autogen").or_else(|| bucket.strip_suffix("/default"));
    name.unwrap_or(bucket).to_owned()
}

async fn respond(
    door: &Door,
    caller: &Caller,
    dialect: Dialect,
    database: String,
    parameters: &Parameters,
    headers: &HeaderMap,
    body: Body,
) -> Response {
    let write = match line_write(door, dialect, database, parameters, headers) {
        Ok(write) => write,
        Err(message) => return ApiError::bad_request(message).respond(dialect),
    };
    let received = match body::take(door, headers, body).await {
        Ok(received) => received,
        Err(error) => return error.respond(dialect),
    };
    match write_lines(door, caller.identity, &write, received.bytes, received.share).await {
        Ok(_) => StatusCode::NO_CONTENT.into_response(),
        Err(WriteFailure::Request(error)) => error.respond(dialect),
        Err(WriteFailure::Lines(partial)) => rejected(dialect, write.accept_partial, &partial),
    }
}

fn line_write(
    door: &Door,
    dialect: Dialect,
    database: String,
    parameters: &Parameters,
    headers: &HeaderMap,
) -> Result<LineWrite, String> {
    let precision = match (parameters.get("precision"), dialect) {
        (Some(text), _) => text.parse::<Precision>().map_err(|error| error.to_string())?,
        (None, Dialect::InfluxV3) => Precision::Auto,
        (None, _) => Precision::Nanosecond,
    };
    // Parsed only to report typing errors; rows are always durable when they are acknowledged.
    parameters.flag("no_sync", false)?;
    Ok(LineWrite {
        database,
        precision,
        accept_partial: parameters.flag("accept_partial", true)?,
        hints: Hints::of(headers, &door.options.time_column)?,
    })
}

/// The response when some lines were not stored.
fn rejected(dialect: Dialect, accept_partial: bool, partial: &Partial) -> Response {
    let status = partial.status();
    let first = partial.rejections.first();
    let body = match dialect {
        Dialect::InfluxV1 if partial.expired() => json!({ "error": beyond_retention(partial) }),
        Dialect::InfluxV2 if partial.expired() => json!({
            "code": crate::error::v2_code(status),
            "message": format!("failure writing points to database: {}", beyond_retention(partial)),
        }),
        Dialect::InfluxV1 => {
            let why = first.map(one_line).unwrap_or_default();
            json!({ "error": format!("partial write: {why} dropped={}", partial.rejected) })
        }
        Dialect::InfluxV2 => json!({
            "code": crate::error::v2_code(status),
            "message": listing(partial),
            "line": first.map(|rejection| rejection.line),
        }),
        Dialect::InfluxV3 if accept_partial => json!({
            "error": "partial write of line protocol occurred",
            "data": partial.rejections.iter().map(v3_data).collect::<Vec<_>>(),
        }),
        Dialect::InfluxV3 => json!({
            "error": "line protocol parsing error",
            "data": first.map(v3_data),
        }),
    };
    (status, Json(body)).into_response()
}

/// InfluxDB's text for lines outside the retention.
fn beyond_retention(partial: &Partial) -> String {
    format!("partial write: points beyond retention policy dropped={}", partial.rejected)
}

fn v3_data(rejection: &Rejection) -> serde_json::Value {
    json!({
        "error_message": rejection.message,
        "line_number": rejection.line,
        "original_line": rejection.original,
    })
}

fn one_line(rejection: &Rejection) -> String {
    format!("line {}: {}", rejection.line, rejection.message)
}

/// The rejected lines, one for each line of text.
fn listing(partial: &Partial) -> String {
    let total = partial.stored + partial.rejected;
    let mut text = if partial.stored == 0 {
        format!("no line was stored, {} rejected:", partial.rejected)
    } else {
        format!(
            "partial write of line protocol occurred, {} of {total} lines were rejected:",
            partial.rejected
        )
    };
    let listed = partial.rejections.len().min(LISTED_MAX);
    for rejection in &partial.rejections[..listed] {
        text.push('\n');
        text.push_str(&one_line(rejection));
    }
    if partial.rejected > listed {
        text.push_str(&format!("\nand {} more", partial.rejected - listed));
    }
    text
}

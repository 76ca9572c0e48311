//! Whether the server is there and what it is: `/ping`, `/health`, `/ready`, `/status`.
//!
//! InfluxDB's clients ask for these before they trust a server, so names and forms are theirs. None of
//! them needs to be authenticated.

use std::sync::Arc;

use arrow::temporal_conversions::timestamp_ns_to_datetime;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::door::Door;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const VERSION_HEADER: HeaderName = HeaderName::from_static("x-influxdb-version");
const BUILD_HEADER: HeaderName = HeaderName::from_static("x-influxdb-build");

/// `GET` and `HEAD /ping`.
pub(crate) async fn ping() -> Response {
    (StatusCode::NO_CONTENT, version_headers()).into_response()
}

fn version_headers() -> [(HeaderName, HeaderValue); 2] {
    [
        (VERSION_HEADER, HeaderValue::from_static(VERSION)),
        (BUILD_HEADER, HeaderValue::from_static("Partita")),
    ]
}

/// `GET /health`.
pub(crate) async fn health() -> Response {
    let body = json!({
        "name": "influxdb",
        "message": "ready for queries and writes",
        "status": "pass",
        "checks": [],
        "version": VERSION,
        "commit": "",
    });
    (version_headers(), Json(body)).into_response()
}

/// `GET /ready`.
pub(crate) async fn ready(State(door): State<Arc<Door>>) -> Response {
    let up = format!("{:?}", door.started.elapsed());
    Json(json!({ "status": "ready", "started": started(&door), "up": up })).into_response()
}

/// `GET /v1/health`.
pub(crate) async fn greptime_health() -> Response {
    Json(json!({})).into_response()
}

/// `GET /status`.
pub(crate) async fn status(State(door): State<Arc<Door>>) -> Response {
    let catalog = door.frontend.catalog();
    let tables = catalog.tables.values().map(|tables| tables.len()).sum::<usize>();
    Json(json!({
        "name": "Partita",
        "version": VERSION,
        "node": door.frontend.options().node.0,
        "started": started(&door),
        "up_seconds": door.started.elapsed().as_secs(),
        "catalog_version": catalog.version,
        "databases": catalog.databases.len(),
        "tables": tables,
    }))
    .into_response()
}

/// When the server started, as RFC 3339 has it.
fn started(door: &Door) -> Option<String> {
    timestamp_ns_to_datetime(door.started_ns).map(|moment| format!("{moment:?}Z"))
}

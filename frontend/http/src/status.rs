//! State and version of the server: `/ping`, `/health`, `/ready`, `/status`.
//!
//! InfluxDB's clients request these before they trust a server, so names and forms are InfluxDB's. All but `/status` are
//! open to everybody, but the reasons why a part is out of service are for callers with an identity.

use std::sync::Arc;

use arrow::temporal_conversions::timestamp_ns_to_datetime;
use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use partita_proto::health::Ailment;
use serde_json::json;

use crate::caller::Caller;
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

/// `GET /health`: 503 while a part of the process is out of service, with the parts and the reasons.
pub(crate) async fn health(State(door): State<Arc<Door>>, request: Request) -> Response {
    let ailments = told(&door, &request);
    let (code, status, message) = match ailments.first() {
        None => (StatusCode::OK, "pass", "ready for queries and writes".to_owned()),
        Some(first) => (StatusCode::SERVICE_UNAVAILABLE, "fail", message(first)),
    };
    let body = json!({
        "name": "influxdb",
        "message": message,
        "status": status,
        "checks": checks(&ailments),
        "version": VERSION,
        "commit": "",
    });
    (code, version_headers(), Json(body)).into_response()
}

/// The parts that are out of service, with their reasons if the caller may know them.
fn told(door: &Door, request: &Request) -> Vec<Ailment> {
    let mut ailments = door.options.health.ailments();
    if request.extensions().get::<Caller>().is_none() {
        ailments.iter_mut().for_each(|ailment| ailment.reason.clear());
    }
    ailments
}

fn message(ailment: &Ailment) -> String {
    match ailment.reason.is_empty() {
        true => format!("{} is out of service", ailment.part),
        false => ailment.to_string(),
    }
}

/// The parts that are out of service, in the form of InfluxDB's checks.
fn checks(ailments: &[Ailment]) -> Vec<serde_json::Value> {
    let check = |Ailment { part, reason }: &Ailment| match reason.is_empty() {
        true => json!({ "name": part, "status": "fail" }),
        false => json!({ "name": part, "status": "fail", "message": reason }),
    };
    ailments.iter().map(check).collect()
}

/// `GET /ready`: 503 while a part of the process is out of service.
pub(crate) async fn ready(State(door): State<Arc<Door>>, request: Request) -> Response {
    let up = format!("{:?}", door.started.elapsed());
    let ailments = told(&door, &request);
    let (code, status) = match ailments.is_empty() {
        true => (StatusCode::OK, "ready"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready"),
    };
    let checks = checks(&ailments);
    let body = json!({ "status": status, "started": started(&door), "up": up, "checks": checks });
    (code, Json(body)).into_response()
}

/// `GET /v1/health`.
pub(crate) async fn greptime_health(State(door): State<Arc<Door>>, request: Request) -> Response {
    let ailments = told(&door, &request);
    match ailments.is_empty() {
        true => Json(json!({})).into_response(),
        false => {
            let body = json!({ "checks": checks(&ailments) });
            (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
        }
    }
}

/// `GET /status`; counts what the caller may see.
pub(crate) async fn status(
    State(door): State<Arc<Door>>,
    Extension(caller): Extension<Caller>,
) -> Response {
    let catalog = door.frontend.viewer(caller.identity).catalog();
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

/// The start time of the server in RFC 3339.
fn started(door: &Door) -> Option<String> {
    timestamp_ns_to_datetime(door.started_ns).map(|moment| format!("{moment:?}Z"))
}

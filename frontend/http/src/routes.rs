//! Maps paths to handlers.
//!
//! Before the path is matched, [`crate::guard`] decides whether the request is admitted; responses to pages of allowed
//! origins have CORS headers, and OPTIONS is answered with 204. No response may be shown or run within another origin's
//! page. Unknown paths give 404 and known ones with another method 405, both with JSON. `Authorization` headers are
//! accepted and ignored: this server does not authenticate clients yet, and therefore listens only on loopback by
//! default.

use std::sync::Arc;
use std::time::Instant;

use arrow_flight::flight_service_server::FlightServiceServer;
use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, ALLOW, CONTENT_SECURITY_POLICY, ORIGIN, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tonic::codec::CompressionEncoding;
use tonic::service::Routes;

use crate::door::Door;
use crate::error::{ApiError, Dialect};
use crate::flight::Flight;
use crate::guard::Admitted;
use crate::{heatmap, metrics, query, sql_api, status, write};

/// Maximum size of a Flight message, in either direction.
const FLIGHT_MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The methods of all paths together.
const METHODS: &str = "GET, POST, OPTIONS, HEAD";
/// Headers of every response, which keep it from being framed, run as a script, or embedded in another origin's page.
const COMMON_HEADERS: [(HeaderName, &str); 3] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (CONTENT_SECURITY_POLICY, "frame-ancestors 'none'"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The paths of HTTP and gRPC.
pub(crate) fn routes(door: &Arc<Door>) -> Router {
    let http = Router::new()
        .route("/api/v2/write", post(write::v2))
        .route("/write", post(write::v1))
        .route("/api/v3/write_lp", post(write::v3))
        .route("/v1/influxdb/write", post(write::v1))
        .route("/v1/influxdb/api/v2/write", post(write::v2))
        .route("/api/v3/query_sql", get(query::query_sql).post(query::query_sql))
        .route("/v1/sql", get(sql_api::sql).post(sql_api::sql))
        .route("/ping", get(status::ping).post(status::ping))
        .route("/v1/influxdb/ping", get(status::ping))
        .route("/health", get(status::health))
        .route("/v1/influxdb/health", get(status::health))
        .route("/ready", get(status::ready))
        .route("/v1/health", get(status::greptime_health))
        .route("/status", get(status::status))
        .route("/metrics", get(metrics::metrics))
        .route("/heatmap", get(heatmap::page))
        .route("/v1/tables.json", get(heatmap::tables))
        .route("/v1/heatmap.json", get(heatmap::json))
        .route("/v1/heatmap.svg", get(heatmap::svg))
        .route("/v1/heatmap.png", get(heatmap::png))
        .with_state(Arc::clone(door));
    let flight = FlightServiceServer::new(Flight::new(Arc::clone(door)))
        .max_decoding_message_size(FLIGHT_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(FLIGHT_MESSAGE_BYTES_MAX)
        .accept_compressed(CompressionEncoding::Gzip);
    // tonic's own fallback is left out: unknown paths are handled by the one below.
    let grpc = Routes::from(Router::new()).add_service(flight).into_axum_router();
    http.merge(grpc)
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .layer(from_fn_with_state(Arc::clone(door), count_request))
}

async fn not_found(uri: Uri) -> Response {
    ApiError::new(StatusCode::NOT_FOUND, format!("path not found: {}", uri.path()))
        .respond(dialect_of(&uri))
}

async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    let message = format!("method {method} is not allowed for {}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message).respond(dialect_of(&uri))
}

fn dialect_of(uri: &Uri) -> Dialect {
    if uri.path().starts_with("/api/v2/") { Dialect::InfluxV2 } else { Dialect::InfluxV3 }
}

/// Counts a request, and adds the headers of every response.
async fn count_request(State(door): State<Arc<Door>>, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    // Paths as written above, so that clients cannot create metrics by inventing paths.
    let path = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "unknown".to_owned(), |path| path.as_str().to_owned());
    let began = Instant::now();
    let mut counted = Counted::begin(&door);
    let mut response = admit(&door, request, next).await;
    counted.over = true;
    let method = match method {
        Method::GET | Method::POST | Method::HEAD | Method::OPTIONS => method.to_string(),
        _ => "other".to_owned(),
    };
    door.metrics.end(&path, &method, response.status().as_u16(), began.elapsed());
    for (name, value) in COMMON_HEADERS {
        // The page of the heatmap has a policy of its own.
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Handles a request, if it is admitted.
async fn admit(door: &Door, request: Request, next: Next) -> Response {
    let guard = &door.options.guard;
    let admitted =
        guard.admit(request.version(), request.method(), request.uri(), request.headers());
    let allowed = match admitted {
        Ok(Admitted::Own) => None,
        // The guard compared it as text; the header is echoed unchanged.
        Ok(Admitted::Allowed(_)) => request.headers().get(ORIGIN).cloned(),
        Err(error) => {
            tracing::debug!(message = error.message, "refused a request");
            return error.respond(dialect_of(request.uri()));
        }
    };
    let mut response = if request.method() == Method::OPTIONS {
        (StatusCode::NO_CONTENT, [(ALLOW, METHODS)], Body::empty()).into_response()
    } else {
        next.run(request).await
    };
    if let Some(origin) = allowed {
        allow(response.headers_mut(), origin);
    }
    response
}

/// A request in flight; counted as abandoned when it is dropped before its response.
struct Counted<'a> {
    door: &'a Door,
    over: bool,
}

impl<'a> Counted<'a> {
    fn begin(door: &'a Door) -> Self {
        door.metrics.begin();
        Self { door, over: false }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.door.metrics.abandoned();
        }
    }
}

/// Adds the headers that allow pages of this origin to read the response, and list what they may send.
fn allow(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(VARY, HeaderValue::from_name(ORIGIN));
    let mut set = |name, value| headers.insert(name, HeaderValue::from_static(value));
    set(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    set(
        ACCESS_CONTROL_ALLOW_HEADERS,
        "Accept, Authorization, Content-Encoding, Content-Type, User-Agent, X-Requested-With",
    );
    set(ACCESS_CONTROL_MAX_AGE, "86400");
}

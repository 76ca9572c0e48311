//! The table of routes, and the router that is built from it.
//!
//! ```text
//!   guard ─▶ path and method, of the table ─▶ authenticate: what the route needs ─▶ handler
//! ```
//!
//! Before the path is matched, [`crate::guard`] decides whether the request is admitted; responses to pages of allowed
//! origins have CORS headers, and OPTIONS is answered with 204. No response may be shown or run within another origin's
//! page. Unknown paths give 404 and known ones with another method 405, both with JSON; unknown methods of gRPC are
//! UNIMPLEMENTED.
//!
//! Invariant: a path has a handler only if [`ROUTES`] names it, with what it needs; [`crate::sign_in`] stands before
//! every handler.

use std::sync::Arc;
use std::time::Instant;

use arrow_flight::flight_service_server::FlightServiceServer;
use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::handler::Handler;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, ALLOW, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ORIGIN, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on, on_service};
use partita_frontend::access::peer;
use partita_proto::access::Door as DoorKind;
use serde_json::json;
use tonic::Status;
use tonic::codec::CompressionEncoding;
use tower::ServiceExt;

use crate::activity::Activity;
use crate::call_memory::claim_memory;
use crate::caller::Peer;
use crate::door::Door;
use crate::error::{ApiError, Dialect};
use crate::flight::Flight;
use crate::guard::Admitted;
use crate::sign_in::authenticate;
use crate::unread::Unread;
use crate::{
    bigtable, grpc_message, heatmap, manage, metrics, pages, query, sql_api, status, write,
};

/// Maximum size of a Flight message, in either direction.
const FLIGHT_MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Beginning of the content types of gRPC.
const GRPC_CONTENT_TYPE: &[u8] = b"application/grpc";
/// The methods of all paths together.
const METHODS: &str = "GET, POST, PUT, PATCH, DELETE, OPTIONS, HEAD";
/// Headers of every response, which keep it from being framed, run as a script, or embedded in another origin's page.
const COMMON_HEADERS: [(HeaderName, &str); 3] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (CONTENT_SECURITY_POLICY, "frame-ancestors 'none'"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Right that a route needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// None, and no identity: anybody may know the response.
    Open,
    /// An identity; the response has what it may see.
    Identity,
    /// MONITOR on the cluster, unless [`crate::HttpOptions::metrics_open`] is set.
    Metrics,
    /// An identity; its session checks each statement.
    Statement,
    /// An identity; each table of the lines is checked before its rows are written.
    Lines,
    /// An identity; the call's command decides, as for a statement or for the rows of a table.
    Call,
    /// An identity; the handler checks a right on each object that it changes, and lists what is visible.
    Objects,
}

/// Form in which a route's clients authenticate and are told errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    InfluxV1,
    InfluxV2,
    InfluxV3,
    Greptime,
    /// gRPC: Arrow Flight, and Bigtable's API.
    Flight,
    /// A page: a browser is led to the login.
    Page,
    /// Data that a page's script fetches.
    PageData,
}

impl Form {
    /// Dialect of errors.
    pub(crate) fn dialect(self) -> Dialect {
        match self {
            Self::InfluxV1 => Dialect::InfluxV1,
            Self::InfluxV2 => Dialect::InfluxV2,
            Self::InfluxV3 | Self::Greptime | Self::Flight | Self::Page | Self::PageData => {
                Dialect::InfluxV3
            }
        }
    }

    /// An error that no handler has told.
    pub(crate) fn respond(self, error: &ApiError) -> Response {
        if self != Self::Greptime {
            return error.respond(self.dialect());
        }
        let code = match error.status {
            StatusCode::UNAUTHORIZED => 7002,
            StatusCode::FORBIDDEN => 7006,
            _ => 1004,
        };
        let body = json!({ "code": code, "error": error.message, "execution_time_ms": 0 });
        error.respond_with(&body)
    }

    /// Value of WWW-Authenticate.
    pub(crate) fn challenge(self) -> &'static str {
        match self {
            Self::InfluxV1 | Self::Greptime => "Basic realm=\"partita\"",
            Self::InfluxV2 => "Token realm=\"partita\"",
            Self::InfluxV3 | Self::Flight | Self::Page | Self::PageData => {
                "Bearer realm=\"partita\""
            }
        }
    }

    /// True if the parameters `u` and `p` authenticate.
    pub(crate) fn takes_parameters(self) -> bool {
        self == Self::InfluxV1
    }

    /// True if the cookie of a web session authenticates.
    pub(crate) fn takes_cookies(self) -> bool {
        matches!(self, Self::Page | Self::PageData)
    }

    /// Protocol, for identities and logs.
    pub(crate) fn door(self) -> DoorKind {
        if self == Self::Flight { DoorKind::Flight } else { DoorKind::Http }
    }
}

/// Handler of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    WriteV1,
    WriteV2,
    WriteV3,
    QuerySql,
    Sql,
    Ping,
    Health,
    Ready,
    GreptimeHealth,
    Status,
    Metrics,
    LoginForm,
    Login,
    Logout,
    Heatmap,
    Tables,
    HeatmapJson,
    HeatmapSvg,
    HeatmapPng,
    SetupAllowed,
    SetUp,
    Orgs,
    CreateOrg,
    Org,
    ChangeOrg,
    DropOrg,
    Buckets,
    CreateBucket,
    Bucket,
    ChangeBucket,
    DropBucket,
    Schemas,
    CreateSchema,
    Schema,
    ChangeSchema,
    Authorizations,
    CreateAuthorization,
    Authorization,
    ChangeAuthorization,
    DropAuthorization,
    Delete,
    Databases,
    CreateDatabase,
    ChangeDatabase,
    DropDatabase,
    CreateTable,
    DropTable,
    CreateToken,
    CreateAdminToken,
    DropToken,
    Flight,
    BigtableData,
    BigtableAdmin,
}

/// A path with the methods that have one handler.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) path: &'static str,
    /// GET includes HEAD.
    pub(crate) methods: &'static [&'static str],
    pub(crate) endpoint: Endpoint,
    pub(crate) needs: Needs,
    pub(crate) form: Form,
}

const GET: &[&str] = &["GET"];
const POST: &[&str] = &["POST"];
const BOTH: &[&str] = &["GET", "POST"];
const PUT: &[&str] = &["PUT"];
const PATCH: &[&str] = &["PATCH"];
const DELETE: &[&str] = &["DELETE"];

const fn route(
    path: &'static str,
    methods: &'static [&'static str],
    endpoint: Endpoint,
    needs: Needs,
    form: Form,
) -> Route {
    Route { path, methods, endpoint, needs, form }
}

const fn flight(path: &'static str) -> Route {
    route(path, POST, Endpoint::Flight, Needs::Call, Form::Flight)
}

const fn bigtable(path: &'static str) -> Route {
    route(path, POST, Endpoint::BigtableData, Needs::Call, Form::Flight)
}

const fn bigtable_admin(path: &'static str) -> Route {
    route(path, POST, Endpoint::BigtableAdmin, Needs::Call, Form::Flight)
}

/// All routes of HTTP and gRPC.
pub(crate) static ROUTES: &[Route] = &[
    // Line protocol.
    route("/api/v2/write", POST, Endpoint::WriteV2, Needs::Lines, Form::InfluxV2),
    route("/write", POST, Endpoint::WriteV1, Needs::Lines, Form::InfluxV1),
    route("/api/v3/write_lp", POST, Endpoint::WriteV3, Needs::Lines, Form::InfluxV3),
    route("/v1/influxdb/write", POST, Endpoint::WriteV1, Needs::Lines, Form::InfluxV1),
    route("/v1/influxdb/api/v2/write", POST, Endpoint::WriteV2, Needs::Lines, Form::InfluxV2),
    // SQL.
    route("/api/v3/query_sql", BOTH, Endpoint::QuerySql, Needs::Statement, Form::InfluxV3),
    route("/v1/sql", BOTH, Endpoint::Sql, Needs::Statement, Form::Greptime),
    // State.
    route("/ping", BOTH, Endpoint::Ping, Needs::Open, Form::InfluxV1),
    route("/v1/influxdb/ping", GET, Endpoint::Ping, Needs::Open, Form::InfluxV1),
    route("/health", GET, Endpoint::Health, Needs::Open, Form::InfluxV2),
    route("/v1/influxdb/health", GET, Endpoint::Health, Needs::Open, Form::InfluxV2),
    route("/ready", GET, Endpoint::Ready, Needs::Open, Form::InfluxV2),
    route("/v1/health", GET, Endpoint::GreptimeHealth, Needs::Open, Form::Greptime),
    route("/status", GET, Endpoint::Status, Needs::Identity, Form::InfluxV3),
    route("/metrics", GET, Endpoint::Metrics, Needs::Metrics, Form::PageData),
    // Pages.
    route("/login", GET, Endpoint::LoginForm, Needs::Open, Form::Page),
    route("/login", POST, Endpoint::Login, Needs::Open, Form::Page),
    route("/logout", POST, Endpoint::Logout, Needs::Identity, Form::Page),
    route("/heatmap", GET, Endpoint::Heatmap, Needs::Identity, Form::Page),
    route("/v1/tables.json", GET, Endpoint::Tables, Needs::Identity, Form::PageData),
    route("/v1/heatmap.json", GET, Endpoint::HeatmapJson, Needs::Identity, Form::PageData),
    route("/v1/heatmap.svg", GET, Endpoint::HeatmapSvg, Needs::Identity, Form::PageData),
    route("/v1/heatmap.png", GET, Endpoint::HeatmapPng, Needs::Identity, Form::PageData),
    // Organisations, buckets and tokens.
    route("/api/v2/setup", GET, Endpoint::SetupAllowed, Needs::Open, Form::InfluxV2),
    route("/api/v2/setup", POST, Endpoint::SetUp, Needs::Open, Form::InfluxV2),
    route("/api/v2/orgs", GET, Endpoint::Orgs, Needs::Objects, Form::InfluxV2),
    route("/api/v2/orgs", POST, Endpoint::CreateOrg, Needs::Objects, Form::InfluxV2),
    route("/api/v2/orgs/{id}", GET, Endpoint::Org, Needs::Objects, Form::InfluxV2),
    route("/api/v2/orgs/{id}", PATCH, Endpoint::ChangeOrg, Needs::Objects, Form::InfluxV2),
    route("/api/v2/orgs/{id}", DELETE, Endpoint::DropOrg, Needs::Objects, Form::InfluxV2),
    route("/api/v2/buckets", GET, Endpoint::Buckets, Needs::Objects, Form::InfluxV2),
    route("/api/v2/buckets", POST, Endpoint::CreateBucket, Needs::Objects, Form::InfluxV2),
    route(
        "/api/v2/buckets/{id}/schema/measurements",
        GET,
        Endpoint::Schemas,
        Needs::Objects,
        Form::InfluxV2,
    ),
    route(
        "/api/v2/buckets/{id}/schema/measurements",
        POST,
        Endpoint::CreateSchema,
        Needs::Objects,
        Form::InfluxV2,
    ),
    route(
        "/api/v2/buckets/{id}/schema/measurements/{measurement}",
        GET,
        Endpoint::Schema,
        Needs::Objects,
        Form::InfluxV2,
    ),
    route(
        "/api/v2/buckets/{id}/schema/measurements/{measurement}",
        PATCH,
        Endpoint::ChangeSchema,
        Needs::Objects,
        Form::InfluxV2,
    ),
    route("/api/v2/delete", POST, Endpoint::Delete, Needs::Objects, Form::InfluxV2),
    route("/api/v2/buckets/{id}", GET, Endpoint::Bucket, Needs::Objects, Form::InfluxV2),
    route("/api/v2/buckets/{id}", PATCH, Endpoint::ChangeBucket, Needs::Objects, Form::InfluxV2),
    route("/api/v2/buckets/{id}", DELETE, Endpoint::DropBucket, Needs::Objects, Form::InfluxV2),
    route("/api/v2/authorizations", GET, Endpoint::Authorizations, Needs::Objects, Form::InfluxV2),
    route(
        "/api/v2/authorizations",
        POST,
        Endpoint::CreateAuthorization,
        Needs::Objects,
        Form::InfluxV2,
    ),
    route(
        "/api/v2/authorizations/{id}",
        GET,
        Endpoint::Authorization,
        Needs::Objects,
        Form::InfluxV2,
    ),
    route(
        "/api/v2/authorizations/{id}",
        PATCH,
        Endpoint::ChangeAuthorization,
        Needs::Objects,
        Form::InfluxV2,
    ),
    route(
        "/api/v2/authorizations/{id}",
        DELETE,
        Endpoint::DropAuthorization,
        Needs::Objects,
        Form::InfluxV2,
    ),
    route("/api/v3/configure/database", GET, Endpoint::Databases, Needs::Objects, Form::InfluxV3),
    route(
        "/api/v3/configure/database",
        POST,
        Endpoint::CreateDatabase,
        Needs::Objects,
        Form::InfluxV3,
    ),
    route(
        "/api/v3/configure/database",
        PUT,
        Endpoint::ChangeDatabase,
        Needs::Objects,
        Form::InfluxV3,
    ),
    route("/api/v3/configure/table", POST, Endpoint::CreateTable, Needs::Objects, Form::InfluxV3),
    route("/api/v3/configure/table", DELETE, Endpoint::DropTable, Needs::Objects, Form::InfluxV3),
    route(
        "/api/v3/configure/database",
        DELETE,
        Endpoint::DropDatabase,
        Needs::Objects,
        Form::InfluxV3,
    ),
    route("/api/v3/configure/token", POST, Endpoint::CreateToken, Needs::Objects, Form::InfluxV3),
    route(
        "/api/v3/configure/token/admin",
        POST,
        Endpoint::CreateAdminToken,
        Needs::Objects,
        Form::InfluxV3,
    ),
    route("/api/v3/configure/token", DELETE, Endpoint::DropToken, Needs::Objects, Form::InfluxV3),
    // Arrow Flight.
    flight("/arrow.flight.protocol.FlightService/Handshake"),
    flight("/arrow.flight.protocol.FlightService/ListFlights"),
    flight("/arrow.flight.protocol.FlightService/GetFlightInfo"),
    flight("/arrow.flight.protocol.FlightService/PollFlightInfo"),
    flight("/arrow.flight.protocol.FlightService/GetSchema"),
    flight("/arrow.flight.protocol.FlightService/DoGet"),
    flight("/arrow.flight.protocol.FlightService/DoPut"),
    flight("/arrow.flight.protocol.FlightService/DoExchange"),
    flight("/arrow.flight.protocol.FlightService/DoAction"),
    flight("/arrow.flight.protocol.FlightService/ListActions"),
    // Bigtable.
    bigtable("/google.bigtable.v2.Bigtable/ReadRows"),
    bigtable("/google.bigtable.v2.Bigtable/SampleRowKeys"),
    bigtable("/google.bigtable.v2.Bigtable/MutateRow"),
    bigtable("/google.bigtable.v2.Bigtable/MutateRows"),
    bigtable("/google.bigtable.v2.Bigtable/CheckAndMutateRow"),
    bigtable("/google.bigtable.v2.Bigtable/PingAndWarm"),
    bigtable("/google.bigtable.v2.Bigtable/ReadModifyWriteRow"),
    bigtable_admin("/google.bigtable.admin.v2.BigtableTableAdmin/CreateTable"),
    bigtable_admin("/google.bigtable.admin.v2.BigtableTableAdmin/ListTables"),
    bigtable_admin("/google.bigtable.admin.v2.BigtableTableAdmin/GetTable"),
    bigtable_admin("/google.bigtable.admin.v2.BigtableTableAdmin/DeleteTable"),
    bigtable_admin("/google.bigtable.admin.v2.BigtableTableAdmin/ModifyColumnFamilies"),
    bigtable_admin("/google.bigtable.admin.v2.BigtableTableAdmin/DropRowRange"),
    bigtable_admin("/google.bigtable.admin.v2.BigtableTableAdmin/GenerateConsistencyToken"),
    bigtable_admin("/google.bigtable.admin.v2.BigtableTableAdmin/CheckConsistency"),
];

/// A handler for the methods of a route.
fn with<T: 'static>(route: &Route, handler: impl Handler<T, Arc<Door>>) -> MethodRouter<Arc<Door>> {
    on(filter(route), handler)
}

fn filter(route: &Route) -> MethodFilter {
    let filters = route.methods.iter().map(|method| match *method {
        "GET" => MethodFilter::GET,
        "PUT" => MethodFilter::PUT,
        "PATCH" => MethodFilter::PATCH,
        "DELETE" => MethodFilter::DELETE,
        _ => MethodFilter::POST,
    });
    filters.reduce(MethodFilter::or).unwrap_or(MethodFilter::POST)
}

/// The router of all [`ROUTES`], and of nothing else.
pub(crate) fn routes(door: &Arc<Door>) -> Router {
    let grpc = FlightServiceServer::new(Flight::new(Arc::clone(door)))
        .max_decoding_message_size(FLIGHT_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(FLIGHT_MESSAGE_BYTES_MAX)
        .accept_compressed(CompressionEncoding::Gzip);
    let grpc = ServiceExt::<Request>::map_response(grpc, grpc_message::shorten);
    let data = bigtable::data_server(door);
    let data = ServiceExt::<Request>::map_request(data, bigtable::with_caller);
    let data = ServiceExt::<Request>::map_response(data, grpc_message::shorten);
    let admin = bigtable::admin_server(door);
    let admin = ServiceExt::<Request>::map_request(admin, bigtable::with_caller);
    let admin = ServiceExt::<Request>::map_response(admin, grpc_message::shorten);
    let claims = |bytes_max: usize| from_fn_with_state((Arc::clone(door), bytes_max), claim_memory);
    let flight_claims = claims(FLIGHT_MESSAGE_BYTES_MAX);
    let bigtable_claims = claims(bigtable::REQUEST_BYTES_MAX);
    let mut router = Router::new();
    for route in ROUTES {
        let handlers = match route.endpoint {
            Endpoint::WriteV1 => with(route, write::v1),
            Endpoint::WriteV2 => with(route, write::v2),
            Endpoint::WriteV3 => with(route, write::v3),
            Endpoint::QuerySql => with(route, query::query_sql),
            Endpoint::Sql => with(route, sql_api::sql),
            Endpoint::Ping => with(route, status::ping),
            Endpoint::Health => with(route, status::health),
            Endpoint::Ready => with(route, status::ready),
            Endpoint::GreptimeHealth => with(route, status::greptime_health),
            Endpoint::Status => with(route, status::status),
            Endpoint::Metrics => with(route, metrics::metrics),
            Endpoint::LoginForm => with(route, pages::form),
            Endpoint::Login => with(route, pages::login),
            Endpoint::Logout => with(route, pages::logout),
            Endpoint::Heatmap => with(route, heatmap::page),
            Endpoint::Tables => with(route, heatmap::tables),
            Endpoint::HeatmapJson => with(route, heatmap::json),
            Endpoint::HeatmapSvg => with(route, heatmap::svg),
            Endpoint::HeatmapPng => with(route, heatmap::png),
            Endpoint::SetupAllowed => with(route, manage::setup_allowed),
            Endpoint::SetUp => with(route, manage::set_up),
            Endpoint::Orgs => with(route, manage::orgs),
            Endpoint::CreateOrg => with(route, manage::create_org),
            Endpoint::Org => with(route, manage::org),
            Endpoint::ChangeOrg => with(route, manage::change_org),
            Endpoint::DropOrg => with(route, manage::drop_org),
            Endpoint::Buckets => with(route, manage::buckets),
            Endpoint::CreateBucket => with(route, manage::create_bucket),
            Endpoint::Bucket => with(route, manage::bucket),
            Endpoint::ChangeBucket => with(route, manage::change_bucket),
            Endpoint::DropBucket => with(route, manage::drop_bucket),
            Endpoint::Schemas => with(route, manage::schemas),
            Endpoint::CreateSchema => with(route, manage::create_schema),
            Endpoint::Schema => with(route, manage::schema),
            Endpoint::ChangeSchema => with(route, manage::change_schema),
            Endpoint::Authorizations => with(route, manage::authorizations),
            Endpoint::CreateAuthorization => with(route, manage::create_authorization),
            Endpoint::Authorization => with(route, manage::authorization),
            Endpoint::ChangeAuthorization => with(route, manage::change_authorization),
            Endpoint::DropAuthorization => with(route, manage::drop_authorization),
            Endpoint::Delete => with(route, manage::delete),
            Endpoint::Databases => with(route, manage::databases),
            Endpoint::CreateDatabase => with(route, manage::create_database),
            Endpoint::ChangeDatabase => with(route, manage::change_database),
            Endpoint::DropDatabase => with(route, manage::drop_database),
            Endpoint::CreateTable => with(route, manage::create_table),
            Endpoint::DropTable => with(route, manage::drop_table),
            Endpoint::CreateToken => with(route, manage::create_token),
            Endpoint::CreateAdminToken => with(route, manage::create_admin_token),
            Endpoint::DropToken => with(route, manage::drop_token),
            Endpoint::Flight => {
                on_service(filter(route), grpc.clone()).layer(flight_claims.clone())
            }
            Endpoint::BigtableData => {
                on_service(filter(route), data.clone()).layer(bigtable_claims.clone())
            }
            Endpoint::BigtableAdmin => {
                on_service(filter(route), admin.clone()).layer(bigtable_claims.clone())
            }
        };
        let state = (Arc::clone(door), route);
        router = router.route(route.path, handlers.layer(from_fn_with_state(state, authenticate)));
    }
    router
        .with_state(Arc::clone(door))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .layer(from_fn_with_state(Arc::clone(door), count_request))
}

async fn not_found(uri: Uri, headers: HeaderMap) -> Response {
    let content_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    if content_type.starts_with(GRPC_CONTENT_TYPE) {
        // Clients of gRPC take a 404 for a wrong address.
        return Status::unimplemented("the method is not supported").into_http();
    }
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
    let _in_flight = request.extensions().get::<Arc<Activity>>().map(Activity::begin);
    let (request, unread) = Unread::of(request);
    let mut response = admit(&door, request, next).await;
    unread.drain(&mut response).await;
    counted.over = true;
    let method = match method {
        Method::GET
        | Method::POST
        | Method::PUT
        | Method::PATCH
        | Method::DELETE
        | Method::HEAD
        | Method::OPTIONS => method.to_string(),
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
        let client = request.extensions().get::<Peer>().copied().unwrap_or_default();
        peer::within(client.address, next.run(request)).await
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
        "Accept, Authorization, Content-Encoding, Content-Type, User-Agent, X-Partita-Csrf, X-Requested-With",
    );
    set(ACCESS_CONTROL_MAX_AGE, "86400");
}

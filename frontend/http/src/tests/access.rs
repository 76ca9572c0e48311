//! Who may use which route: every route for every kind of client, cookies and their tokens, tables that may not be
//! written to, and Flight.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, StringArray};
use arrow::record_batch::RecordBatch;
use arrow_flight::FlightDescriptor;
use arrow_flight::client::FlightClient;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::sql::client::FlightSqlServiceClient;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use bytes::Bytes;
use futures::TryStreamExt;
use partita_frontend::FrontendOptions;
use partita_frontend::access::authenticator::verifier_of;
use partita_frontend::fake::Fake;
use partita_heatmap::{History, Key, Metric, PartitionLoad as Drawn, Report, Shares, View};
use partita_proto::access::{
    Access, Action, Actions, Grant, GrantEntry, Grantee, Mode, Org, Permission, Profile, Role,
    Scope, Target, Token, Verifier,
};
use partita_proto::catalog::Catalog;
use partita_proto::health::{Ailment, Health};
use partita_proto::id::{BOOTSTRAP_ROLE, OrgId, RoleId, TokenId};
use partita_proto::load::PartitionLoad;
use partita_tls::rustls::crypto::ring;
use partita_tls::rustls::pki_types::pem::PemObject;
use partita_tls::rustls::pki_types::{CertificateDer, ServerName};
use partita_tls::rustls::{ALL_VERSIONS, ClientConfig, RootCertStore};
use partita_tls::tokio_rustls::TlsConnector;
use partita_tls::{DoorFiles, Reloading, Role as TlsRole, TlsOptions, issue};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Api, PATIENCE, Server};
use crate::HttpOptions;
use crate::caller::Peer;
use crate::door::Door;
use crate::guard::RUNS_STATEMENTS;
use crate::routes::{Endpoint, Form, Needs, ROUTES, Route, routes};

const READER: RoleId = RoleId(1_000);
const STRANGER: RoleId = RoleId(1_001);
const WRITER: RoleId = RoleId(1_002);
const ROOT_PASSWORD: &str = "root-secret";
const READER_PASSWORD: &str = "reader-secret";

/// Verifier of every token: HTTP and Flight find tokens by their hashes.
static TOKEN_VERIFIER: LazyLock<Verifier> = LazyLock::new(|| verifier_of("unused").unwrap());

/// An address that no other attempt had: failures of one do not limit the others.
fn peer() -> Peer {
    static NEXT: AtomicU32 = AtomicU32::new(0x0a00_0001);
    let address = IpAddr::V4(Ipv4Addr::from(NEXT.fetch_add(1, Ordering::Relaxed)));
    Peer { address, tls: false }
}

fn token(access: &mut Access, number: u64, owner: RoleId, text: &str, expires_ms: Option<i64>) {
    access.put_token(Token {
        id: TokenId::new(number).unwrap(),
        sha256: Sha256::digest(text.as_bytes()).into(),
        verifier: TOKEN_VERIFIER.clone(),
        description: String::new(),
        owner,
        org: None,
        created_ms: 0,
        expires_ms,
        enabled: true,
        permissions: vec![Permission { mode: Mode::Both, scope: Scope::Everything }],
    });
}

fn grant(access: &mut Access, target: Target, role: RoleId, actions: &[Action]) {
    let mut grant =
        access.grant(target).map_or_else(|| Grant::new(target), |grant| grant.as_ref().clone());
    let entry = GrantEntry {
        grantee: Grantee::Role(role),
        actions: Actions::of(actions),
        grantable: Actions::NONE,
        grantor: BOOTSTRAP_ROLE,
    };
    grant.grant(BOOTSTRAP_ROLE, entry).unwrap();
    access.put_grant(grant);
}

/// Gives the cluster passwords, roles and tokens: a reader of database b, a writer of its table home, and a stranger
/// who may do everything with the rows of database c.
fn secure(access: &mut Access, catalog: &Catalog) {
    access.secrets.cookies = [7; 32];
    let root = access.role(BOOTSTRAP_ROLE).unwrap().as_ref().clone();
    let verifier = Some(verifier_of(ROOT_PASSWORD).unwrap());
    access.put_role(Role { verifier, secret_version: 1, ..root });
    for (id, name) in [(READER, "reader"), (STRANGER, "stranger"), (WRITER, "writer")] {
        let verifier = (id == READER).then(|| verifier_of(READER_PASSWORD).unwrap());
        access.put_role(Role { login: true, verifier, ..Role::new(id, name) });
    }
    let b = Target::Database(catalog.databases["b"].id);
    let c = Target::Database(catalog.databases["c"].id);
    let home = Target::Table(catalog.table("b", "home").unwrap().id);
    grant(access, b, READER, &[Action::Select]);
    grant(access, c, STRANGER, &[Action::Select, Action::Insert, Action::Create]);
    grant(access, home, WRITER, &[Action::Insert]);
    token(access, 1, BOOTSTRAP_ROLE, "root-token", None);
    token(access, 2, BOOTSTRAP_ROLE, "old-token", Some(1));
    token(access, 3, READER, "reader-token", None);
    token(access, 4, STRANGER, "stranger-token", None);
    token(access, 5, WRITER, "writer-token", None);
}

/// Databases b and c with tables, and clients of every kind.
async fn secured() -> Api {
    secured_with(HttpOptions::default()).await
}

async fn secured_with(options: HttpOptions) -> Api {
    let fake = Fake::new(1);
    let door = Door::new(fake.frontend(FrontendOptions::default()).unwrap(), options);
    let api = Api { app: routes(&door), fake };
    fill(&api).await;
    let catalog = api.fake.catalog();
    api.fake.edit_access(|access| secure(access, &catalog));
    let view = View {
        table: "home".to_owned(),
        metric: Metric::WriteRows,
        from: 1_800_000_000 - 60,
        to: 1_800_000_000,
        columns_max: 60,
        rows_max: 8,
        keys: None,
        capacity: None,
    };
    let load = Drawn {
        id: 1,
        leader: Some(1),
        start: Key::from([]),
        end: None,
        rates: [500.0, 0.0, 0.0, 0.9],
        writes: Shares::default(),
        reads: Shares::default(),
    };
    let mut history = History::default();
    history.push(&Report { from: view.from, seconds: 60, partitions: vec![load] });
    let drawn = history.view(&view, |_| String::new());
    *api.fake.heatmap.lock() = Bytes::from(serde_json::to_vec(&drawn).unwrap());
    // Until the frontend has seen it.
    let deadline = Instant::now() + PATIENCE;
    while door.frontend.access().role(READER).is_none() {
        assert!(Instant::now() < deadline, "the roles do not arrive");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    api
}

async fn fill(api: &Api) {
    for (database, lines) in
        [("b", "home,room=k t=1 1\nsecret,room=k t=1 1\n"), ("c", "other t=1 1\n")]
    {
        let (status, body) = api.post(&format!("/api/v2/write?bucket={database}"), lines).await;
        assert_eq!(status, StatusCode::NO_CONTENT, "{body}");
    }
}

impl Api {
    /// Sends a request from an address of its own.
    async fn send_as(
        &self,
        method: &str,
        uri: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> (u16, HeaderMap, String) {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(body.into()).unwrap();
        request.extensions_mut().insert(peer());
        let (status, headers, body) = self.send(request).await;
        (status.as_u16(), headers, String::from_utf8_lossy(&body).into_owned())
    }
}

/// Kinds of clients, with their tokens.
const CLIENTS: [(&str, Option<&str>); 6] = [
    ("nobody", None),
    ("wrong secret", Some("Token nonsense")),
    ("expired token", Some("Bearer old-token")),
    ("reader", Some("Bearer reader-token")),
    ("stranger", Some("Token stranger-token")),
    ("superuser", Some("Token root-token")),
];

/// The statuses of a client without a valid identity, the reader, the stranger and the superuser.
fn statuses(route: &Route) -> [u16; 4] {
    match route.endpoint {
        Endpoint::WriteV1 | Endpoint::WriteV2 | Endpoint::WriteV3 => [401, 403, 404, 204],
        Endpoint::QuerySql | Endpoint::Sql => [401, 200, 404, 200],
        Endpoint::Ping => [204; 4],
        Endpoint::Health | Endpoint::Ready | Endpoint::GreptimeHealth => [200; 4],
        Endpoint::Status | Endpoint::Tables => [401, 200, 200, 200],
        Endpoint::Metrics => [401, 403, 403, 200],
        Endpoint::LoginForm => [200; 4],
        // None of them has a form of the server.
        Endpoint::Login => [403; 4],
        Endpoint::Logout => [303; 4],
        Endpoint::Heatmap => [303, 200, 200, 200],
        Endpoint::HeatmapJson | Endpoint::HeatmapSvg | Endpoint::HeatmapPng => [401, 200, 404, 200],
        // Of HTTP; gRPC has statuses of its own.
        Endpoint::Flight | Endpoint::BigtableData | Endpoint::BigtableAdmin => [200; 4],
        Endpoint::SetupAllowed => [200; 4],
        // It was done.
        Endpoint::SetUp => [422; 4],
        Endpoint::Orgs | Endpoint::Buckets | Endpoint::Authorizations | Endpoint::Databases => {
            [401, 200, 200, 200]
        }
        Endpoint::CreateOrg | Endpoint::CreateBucket => [401, 403, 403, 201],
        Endpoint::Org | Endpoint::ChangeOrg => [401, 404, 404, 200],
        Endpoint::DropOrg | Endpoint::DropAuthorization => [401, 404, 404, 204],
        Endpoint::Bucket | Endpoint::Schemas | Endpoint::Schema => [401, 200, 404, 200],
        Endpoint::ChangeBucket | Endpoint::ChangeSchema => [401, 403, 404, 200],
        Endpoint::DropBucket | Endpoint::Delete => [401, 403, 404, 204],
        Endpoint::CreateSchema => [401, 403, 404, 201],
        // Everybody may make tokens with a part of the own rights.
        Endpoint::CreateAuthorization => [401, 201, 201, 201],
        Endpoint::Authorization | Endpoint::ChangeAuthorization => [401, 404, 404, 200],
        Endpoint::CreateDatabase => [401, 403, 403, 200],
        Endpoint::ChangeDatabase
        | Endpoint::DropDatabase
        | Endpoint::CreateTable
        | Endpoint::DropTable => [401, 403, 404, 200],
        // The superuser sees that others have used the name.
        Endpoint::CreateToken | Endpoint::CreateAdminToken => [401, 201, 201, 409],
        Endpoint::DropToken => [401, 404, 404, 404],
    }
}

/// An organisation of the table of routes.
const ORG: &str = "00000000000000aa";
/// The columns of the measurement m of database e.
const COLUMNS: &str =
    r#"[{"name":"time","type":"timestamp"},{"name":"v","type":"field","dataType":"float"}]"#;

/// Body of a request.
fn body_of(route: &Route) -> Vec<u8> {
    let text = match route.endpoint {
        Endpoint::WriteV1 | Endpoint::WriteV2 | Endpoint::WriteV3 => {
            "home,room=k t=1 1\n".to_owned()
        }
        // An empty message.
        _ if route.form == Form::Flight => "\0\0\0\0\0".to_owned(),
        Endpoint::CreateOrg => json!({"name": "acme"}).to_string(),
        Endpoint::ChangeOrg => json!({"name": "renamed"}).to_string(),
        Endpoint::CreateBucket => json!({"name": "made by buckets"}).to_string(),
        Endpoint::ChangeBucket => {
            json!({"retentionRules": [{"type": "expire", "everySeconds": 3600}]}).to_string()
        }
        Endpoint::CreateSchema => format!("{{\"name\":\"n\",\"columns\":{COLUMNS}}}"),
        Endpoint::ChangeSchema => format!("{{\"columns\":{COLUMNS}}}"),
        Endpoint::CreateAuthorization => {
            json!({"permissions": [{"action": "read", "resource": {"type": "buckets"}}]})
                .to_string()
        }
        Endpoint::ChangeAuthorization => json!({"status": "inactive"}).to_string(),
        Endpoint::Delete => {
            let (start, stop) = ("1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z");
            json!({"start": start, "stop": stop}).to_string()
        }
        Endpoint::CreateDatabase => json!({"db": "made"}).to_string(),
        Endpoint::ChangeDatabase => json!({"db": "e", "retention_period": "1d"}).to_string(),
        Endpoint::CreateTable => {
            let fields = json!([{"name": "v", "type": "float64"}]);
            json!({"db": "e", "table": "t", "tags": ["a"], "fields": fields}).to_string()
        }
        Endpoint::CreateToken => {
            let permission =
                json!({"resource_type": "db", "resource_names": ["*"], "actions": ["read"]});
            json!({"token_name": "some", "permissions": [permission]}).to_string()
        }
        _ => String::new(),
    };
    text.into_bytes()
}

/// Makes what the table of routes names: an organisation, and databases d and e, which the reader may read. Returns the
/// ids of the databases and of the measurement in e.
async fn named_objects(api: &Api) -> [String; 3] {
    let root = [("authorization", "Token root-token")];
    let id = OrgId::new(0xaa).unwrap();
    let org = Org { id, name: "old".to_owned(), series_max: None, profile: Profile::default() };
    api.fake.edit_access(|access| access.put_org(org));
    for name in ["d", "e"] {
        let body =
            json!({"name": name, "schemaType": if name == "e" { "explicit" } else { "implicit" }});
        let (status, _, body) =
            api.send_as("POST", "/api/v2/buckets", &root, body.to_string()).await;
        assert_eq!(status, 201, "{body}");
    }
    let catalog = api.fake.catalog();
    let ids = ["d", "e"].map(|name| catalog.databases[name].id);
    let [d, e] = ids.map(|id| format!("{:016x}", id.0));
    let schemas = format!("/api/v2/buckets/{e}/schema/measurements");
    let body = format!("{{\"name\":\"m\",\"columns\":{COLUMNS}}}");
    let (status, _, body) = api.send_as("POST", &schemas, &root, body).await;
    assert_eq!(status, 201, "{body}");
    let schema: Value = serde_json::from_str(&body).unwrap();
    api.fake.edit_access(|access| {
        for id in ids {
            grant(access, Target::Database(id), READER, &[Action::Select]);
        }
    });
    // The frontend follows the catalog, and a write waits for it.
    let reader = [("authorization", "Token reader-token")];
    let deadline = Instant::now() + PATIENCE;
    while api.send_as("GET", &schemas, &reader, Body::empty()).await.0 != 200 {
        assert!(Instant::now() < deadline, "the grants do not arrive");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    [d, e, schema["id"].as_str().unwrap().to_owned()]
}

fn address_of(route: &Route, [d, e, measurement]: &[String; 3]) -> String {
    let id: &str = match route.endpoint {
        Endpoint::Bucket | Endpoint::ChangeBucket | Endpoint::DropBucket => d,
        Endpoint::Org | Endpoint::ChangeOrg | Endpoint::DropOrg => ORG,
        // The writer's token.
        Endpoint::Authorization | Endpoint::ChangeAuthorization | Endpoint::DropAuthorization => {
            "0000000000000005"
        }
        _ => e,
    };
    let path = route.path.replace("{id}", id).replace("{measurement}", measurement);
    let query = match route.endpoint {
        Endpoint::Delete => "?bucket=b",
        Endpoint::DropDatabase => "?db=e",
        Endpoint::DropTable => "?db=e&table=m",
        Endpoint::DropToken => "?token_name=no",
        Endpoint::WriteV1 | Endpoint::WriteV2 | Endpoint::WriteV3 => "?bucket=b&db=b&precision=ns",
        Endpoint::QuerySql => "?db=b&q=SELECT+count(*)+FROM+home",
        Endpoint::Sql => "?db=b&sql=SELECT+count(*)+FROM+home",
        Endpoint::HeatmapJson | Endpoint::HeatmapSvg | Endpoint::HeatmapPng => "?table=b.home",
        _ => "",
    };
    format!("{path}{query}")
}

#[tokio::test]
async fn every_route_is_for_those_that_the_table_names() {
    let api = secured().await;
    let ids = named_objects(&api).await;
    for route in ROUTES {
        for method in route.methods {
            for (position, (client, header)) in CLIENTS.into_iter().enumerate() {
                let mut headers: Vec<_> =
                    header.map(|header| ("authorization", header)).into_iter().collect();
                let body = body_of(route);
                if route.form == Form::Flight {
                    headers.push(("content-type", "application/grpc"));
                }
                let address = address_of(route, &ids);
                let (status, answer, body) = api.send_as(method, &address, &headers, body).await;
                let context = format!("{method} {address} for {client}: {body}");
                assert_eq!(status, statuses(route)[position.saturating_sub(2)], "{context}");
                let is_known = position > 2;
                if status == 401 {
                    let challenge = answer["www-authenticate"].to_str().unwrap();
                    assert_eq!(challenge, route.form.challenge(), "{context}");
                    assert!(!body.contains("nonsense") && !body.contains("old-token"), "{context}");
                }
                if route.form == Form::Flight {
                    let code = answer.get("grpc-status").map(|code| code.to_str().unwrap());
                    assert_eq!(code == Some("16"), !is_known, "{context}");
                }
                if route.form == Form::Page && route.needs != Needs::Open && !is_known {
                    let location = answer["location"].to_str().unwrap();
                    assert!(location.starts_with("/login?next=%2F"), "{context}: {location}");
                }
            }
        }
    }
}

#[test]
fn links_of_other_sites_lead_to_no_route_that_runs_statements() {
    let mut paths: Vec<_> = ROUTES
        .iter()
        .filter(|route| route.needs == Needs::Statement && route.methods.contains(&"GET"))
        .map(|route| route.path)
        .collect();
    let mut guarded = RUNS_STATEMENTS.to_vec();
    paths.sort_unstable();
    guarded.sort_unstable();
    assert_eq!(paths, guarded);
}

#[tokio::test]
async fn each_dialect_refuses_in_its_own_form() {
    let api = secured().await;
    let ask = async |uri: &str| {
        let (status, _, body) = api.send_as("POST", uri, &[], "m v=1").await;
        assert_eq!(status, 401, "{uri}");
        serde_json::from_str::<Value>(&body).unwrap()
    };
    let message = "authentication is required";
    assert_eq!(ask("/write?db=b").await, json!({"error": message}));
    let v2 = json!({"code": "unauthorized", "message": message});
    assert_eq!(ask("/api/v2/write?bucket=b").await, v2);
    let v3 = json!({"error": "the request was not authenticated"});
    assert_eq!(ask("/api/v3/write_lp?db=b").await, v3);
    assert_eq!(ask("/v1/sql?sql=SELECT+1").await["code"], 7002);
    // A header that cannot be read has no secret that could be wrong.
    for uri in ["/write?db=b", "/api/v2/write?bucket=b", "/api/v3/write_lp?db=b", "/v1/sql"] {
        for header in ["Digest x", "Basic !"] {
            let headers = [("authorization", header)];
            let (status, _, body) = api.send_as("POST", uri, &headers, "m v=1").await;
            assert_eq!(status, 400, "{uri}");
            assert!(body.contains("the Authorization header is malformed"), "{uri}: {body}");
        }
    }
}

#[tokio::test]
async fn passwords_come_as_basic_or_as_parameters_and_are_never_shown() {
    let api = secured().await;
    let write = async |uri: &str, headers: &[(&str, &str)]| {
        api.send_as("POST", uri, headers, "home,room=k t=1 1\n").await
    };
    let right = format!("/write?db=b&u=partita&p={ROOT_PASSWORD}");
    assert_eq!(write(&right, &[]).await.0, 204);
    // The text of a token is a password too, whatever the user.
    assert_eq!(write("/write?db=b&u=x&p=root-token", &[]).await.0, 204);
    let header = format!("Token partita:{ROOT_PASSWORD}");
    assert_eq!(write("/api/v2/write?bucket=b", &[("authorization", &header)]).await.0, 204);
    // partita:root-secret
    let basic = ("authorization", "Basic cGFydGl0YTpyb290LXNlY3JldA==");
    assert_eq!(write("/write?db=b", &[basic]).await.0, 204);
    for user in ["partita", "nobody"] {
        let (status, _, body) = write(&format!("/write?db=b&u={user}&p=guessed"), &[]).await;
        assert_eq!(status, 401);
        assert_eq!(body, r#"{"error":"authentication failed"}"#, "{user}");
    }
    // Only InfluxDB 1's clients send them so.
    assert_eq!(write("/api/v3/write_lp?db=b&u=x&p=root-token", &[]).await.0, 401);
}

#[tokio::test]
async fn guesses_are_limited() {
    let api = secured().await;
    let address = peer();
    for attempt in 0..5 {
        let mut request = Request::get("/status")
            .header("authorization", "Bearer guess")
            .body(Body::empty())
            .unwrap();
        request.extensions_mut().insert(address);
        let (status, ..) = api.send(request).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{attempt}");
    }
    let locked = async || {
        let mut request = Request::get("/status")
            .header("authorization", "Bearer guess")
            .body(Body::empty())
            .unwrap();
        request.extensions_mut().insert(address);
        let (status, headers, _) = api.send(request).await;
        (status, headers.contains_key("retry-after"))
    };
    // One waits, and the other is not admitted.
    let answers = tokio::join!(locked(), locked());
    let limited = (StatusCode::TOO_MANY_REQUESTS, true);
    assert!(answers.0 == limited || answers.1 == limited, "{answers:?}");
    let right = [("authorization", "Bearer reader-token")];
    assert_eq!(api.send_as("GET", "/status", &right, Body::empty()).await.0, 200);
}

/// A process whose log has failed.
#[derive(Debug)]
struct Ill;

impl Health for Ill {
    fn ailments(&self) -> Vec<Ailment> {
        vec![Ailment::new("log", "the disk is broken")]
    }
}

#[tokio::test]
async fn reasons_are_for_callers_with_an_identity() {
    let api = secured_with(HttpOptions { health: Arc::new(Ill), ..HttpOptions::default() }).await;
    let nobody: &[(&str, &str)] = &[];
    let reader: &[(&str, &str)] = &[("authorization", "Bearer reader-token")];
    for path in ["/health", "/ready", "/v1/health"] {
        for (headers, is_told) in [(nobody, false), (reader, true)] {
            let (status, _, body) = api.send_as("GET", path, headers, Body::empty()).await;
            assert_eq!((status, body.contains("broken")), (503, is_told), "{path}: {body}");
            assert!(body.contains("log"), "{path}: {body}");
        }
    }
}

#[tokio::test]
async fn metrics_are_open_by_an_option() {
    let options = HttpOptions { metrics_open: true, ..HttpOptions::default() };
    let api = secured_with(options).await;
    let (status, _, text) = api.send_as("GET", "/metrics", &[], Body::empty()).await;
    assert_eq!((status, text.contains("table_neff")), (200, false), "{text}");
    let root = [("authorization", "Bearer root-token")];
    let (status, _, text) = api.send_as("GET", "/metrics", &root, Body::empty()).await;
    assert_eq!((status, text.contains("table_neff")), (200, true), "{text}");
    assert_eq!(api.send_as("GET", "/status", &[], Body::empty()).await.0, 401);
}

/// The text between two others.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let start = text.find(before).unwrap_or_else(|| panic!("no {before} in {text}")) + before.len();
    &text[start..start + text[start..].find(after).unwrap()]
}

/// The name and text of a cookie that a response sets.
fn set_cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut cookies = headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap());
    cookies.find(|cookie| cookie.starts_with(&format!("{name}="))).map(str::to_owned)
}

/// Signs in through the form; returns the response.
async fn sign_in(api: &Api, user: &str, password: &str) -> (u16, HeaderMap, String) {
    let (status, headers, page) =
        api.send_as("GET", "/login?next=%2Fheatmap", &[], Body::empty()).await;
    assert_eq!(status, 200);
    let cookie = set_cookie(&headers, "partita_login").unwrap();
    let csrf = between(&page, "name=\"csrf\" value=\"", "\"");
    let form = format!("user={user}&password={password}&csrf={csrf}&next=%2Fheatmap");
    let headers = [
        ("cookie", cookie.split(';').next().unwrap()),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    api.send_as("POST", "/login", &headers, form).await
}

#[tokio::test]
async fn a_page_is_shown_after_the_login_and_until_the_logout() {
    let api = secured().await;
    let (status, headers, _) = sign_in(&api, "reader", "wrong").await;
    assert_eq!((status, set_cookie(&headers, "partita_session")), (401, None));
    let (status, headers, _) = sign_in(&api, "reader", READER_PASSWORD).await;
    assert_eq!((status, headers["location"].to_str().unwrap()), (303, "/heatmap"));
    let cookie = set_cookie(&headers, "partita_session").unwrap();
    assert!(cookie.ends_with("; HttpOnly; SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();

    let with = [("cookie", cookie.as_str())];
    let (status, _, page) = api.send_as("GET", "/heatmap", &with, Body::empty()).await;
    assert_eq!(status, 200);
    let table = "/v1/heatmap.json?table=b.home";
    assert_eq!(api.send_as("GET", table, &with, Body::empty()).await.0, 200);
    // For pages only.
    let sql = "/v1/sql?db=b&sql=SELECT+1";
    assert_eq!(api.send_as("GET", sql, &with, Body::empty()).await.0, 401);

    let csrf = between(&page, "name=\"csrf\" value=\"", "\"");
    let form = ("content-type", "application/x-www-form-urlencoded");
    for wrong in ["", "csrf=", "csrf=AAAA"] {
        let (status, ..) = api.send_as("POST", "/logout", &[with[0], form], wrong).await;
        assert_eq!(status, 403, "{wrong}");
    }
    let header = ("x-partita-csrf", csrf);
    assert_eq!(api.send_as("POST", "/logout", &[with[0], header], Body::empty()).await.0, 303);
    let (status, headers, _) =
        api.send_as("POST", "/logout", &[with[0], form], format!("csrf={csrf}")).await;
    let ended = set_cookie(&headers, "partita_session").unwrap();
    assert_eq!(status, 303);
    assert!(ended.starts_with("partita_session=; Path=/; Max-Age=0;"), "{ended}");

    // A changed password ends the sessions that began with the old one.
    api.fake.edit_access(|access| {
        let role = access.role(READER).unwrap().as_ref().clone();
        access.put_role(Role { secret_version: role.secret_version + 1, ..role });
    });
    let deadline = Instant::now() + PATIENCE;
    while api.send_as("GET", "/heatmap", &with, Body::empty()).await.0 != 303 {
        assert!(Instant::now() < deadline, "the session goes on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn forged_cookies_and_forms_are_refused() {
    let api = secured().await;
    let (_, headers, _) = sign_in(&api, "reader", READER_PASSWORD).await;
    let cookie = set_cookie(&headers, "partita_session").unwrap();
    let cookie = cookie.split(';').next().unwrap();
    let text = cookie.strip_prefix("partita_session=").unwrap();
    let mut changed = text.as_bytes().to_vec();
    changed[10] = if changed[10] == b'A' { b'B' } else { b'A' };
    let changed = String::from_utf8(changed).unwrap();
    for forged in ["", "v1.", "root-token", &text[..text.len() - 5], &changed] {
        let header = format!("partita_session={forged}");
        let with = [("cookie", header.as_str())];
        let (status, ..) = api.send_as("GET", "/heatmap", &with, Body::empty()).await;
        assert_eq!(status, 303, "{forged}");
        let (status, ..) = api.send_as("GET", "/v1/tables.json", &with, Body::empty()).await;
        assert_eq!(status, 401, "{forged}");
    }
    // A cookie is no bearer token.
    let bearer = format!("Bearer {text}");
    let with = [("authorization", bearer.as_str())];
    assert_eq!(api.send_as("GET", "/heatmap", &with, Body::empty()).await.0, 303);
    // A form that another site made has no cookie of ours.
    let form = format!("user=reader&password={READER_PASSWORD}&csrf=AAAA&next=%2Fheatmap");
    let kind = ("content-type", "application/x-www-form-urlencoded");
    let (status, headers, _) = api.send_as("POST", "/login", &[kind], form).await;
    assert_eq!((status, set_cookie(&headers, "partita_session")), (403, None));
}

#[tokio::test]
async fn cookies_are_for_tls_only_where_there_is_tls() {
    let api = secured().await;
    let mut request = Request::get("/login").body(Body::empty()).unwrap();
    request.extensions_mut().insert(Peer { tls: true, ..peer() });
    let (_, headers, _) = api.send(request).await;
    assert!(set_cookie(&headers, "partita_login").unwrap().ends_with("; Secure"));
}

#[tokio::test]
async fn lines_of_other_tables_are_rejected_and_the_rest_is_stored() {
    let api = secured().await;
    let writer = [("authorization", "Token writer-token")];
    let write = async |lines: &str| {
        let (status, _, body) =
            api.send_as("POST", "/api/v2/write?bucket=b", &writer, lines.to_owned()).await;
        (status, serde_json::from_str::<Value>(&body).unwrap_or_default())
    };
    assert_eq!(write("home,room=k t=2 2\n").await.0, 204);
    let (status, body) = write("home,room=k t=3 3\nsecret,room=k t=1 2\nmissing t=1 1\n").await;
    assert_eq!((status, &body["line"]), (400, &json!(2)));
    let listed = body["message"].as_str().unwrap();
    assert!(listed.contains("2 of 3 lines were rejected"), "{listed}");
    // A table that exists and may not be seen is as one that does not exist.
    let (_, hidden) = write("secret,room=k t=1 2\n").await;
    let (status, missing) = write("missing,room=k t=1 2\n").await;
    assert_eq!((status, &hidden), (403, &missing));
    // Nor do its types show.
    assert_eq!(write("secret,room=k t=\"text\" 2\n").await.1, missing);
    // A new column needs more than INSERT.
    assert_eq!(write("home,room=k,floor=1 t=2 2\n").await.0, 403);
    let all_or_nothing = "/api/v3/write_lp?db=b&precision=ns&accept_partial=false";
    let lines = "home,room=k t=9 9\nsecret,room=k t=1 2\n";
    assert_eq!(api.send_as("POST", all_or_nothing, &writer, lines).await.0, 403);
    let root = [("authorization", "Token root-token")];
    let count = "/v1/sql?db=b&format=csv&sql=SELECT+count(*)+FROM+home";
    assert_eq!(api.send_as("GET", count, &root, Body::empty()).await.2.trim(), "3");
}

#[tokio::test]
async fn the_audit_has_the_clients_of_requests_and_their_addresses() {
    let api = secured().await;
    let write = async |header: &str| {
        let headers = [("authorization", header)];
        api.send_as("POST", "/api/v2/write?bucket=c", &headers, "fresh t=1 1\n").await.0
    };
    assert_eq!(write("Token stranger-token").await, 204);
    for _ in 0..3 {
        assert_eq!(write("Bearer old-token").await, 401);
    }
    assert_eq!(write("Token root-token").await, 204);
    let root = [("authorization", "Token root-token")];
    let count = async |condition: &str| {
        let sql = format!(
            "SELECT sum(count) FROM sys.audit WHERE door = 'http' AND peer LIKE '10.%' AND {condition}"
        );
        let sql: String = form_urlencoded::byte_serialize(sql.as_bytes()).collect();
        let uri = format!("/v1/sql?format=csv&sql={sql}");
        api.send_as("GET", &uri, &root, Body::empty()).await.2.trim().to_owned()
    };
    let table = "action = 'CREATE TABLE' AND object = 'table fresh' AND database = 'c'";
    let stranger = "\"user\" = 'stranger' AND token_id = '0000000000000004'";
    assert_eq!(count(&format!("{table} AND {stranger}")).await, "1");
    let sign_in = "action = 'SIGN IN' AND outcome = 'done'";
    assert_eq!(count(&format!("{sign_in} AND {stranger}")).await, "1");
    let expired = "action = 'SIGN IN' AND outcome = 'failed' AND token_id = '0000000000000002'";
    assert_eq!(count(expired).await, "3");
}

#[tokio::test]
async fn figures_are_shown_of_tables_that_may_be_read() {
    let api = secured().await;
    let ask = async |uri: &str, token: &str| {
        let header = format!("Bearer {token}");
        api.send_as("GET", uri, &[("authorization", &header)], Body::empty()).await
    };
    let address = "/v1/heatmap.json?table=b.home";
    assert_eq!(ask(address, "reader-token").await.0, 200);
    // The writer sees the name, and no figures.
    assert_eq!(ask(address, "writer-token").await.0, 403);
    let hidden = ask("/v1/heatmap.json?table=b.secret", "writer-token").await;
    let missing = ask("/v1/heatmap.json?table=b.nothing", "writer-token").await;
    assert_eq!((hidden.0, hidden.2.replace("secret", "nothing")), (404, missing.2));
    let catalog = api.fake.catalog();
    let loads = ["home", "secret"].map(|name| {
        let table = catalog.table("b", name).unwrap();
        PartitionLoad {
            table: table.id,
            partition: table.partitions.routes()[0].partition,
            ..PartitionLoad::default()
        }
    });
    api.fake.load.lock().partitions = loads.to_vec();
    let names = async |token: &str| {
        let (status, _, body) = ask("/v1/tables.json", token).await;
        assert_eq!(status, 200);
        let list: Value = serde_json::from_str(&body).unwrap();
        list["tables"].as_array().unwrap().len()
    };
    assert_eq!(names("root-token").await, 2);
    assert_eq!(names("reader-token").await, 2);
    assert_eq!(names("writer-token").await, 0);
    assert_eq!(names("stranger-token").await, 0);
    let (_, _, state) = ask("/status", "stranger-token").await;
    assert_eq!(serde_json::from_str::<Value>(&state).unwrap()["tables"], 1);
}

#[tokio::test]
async fn flight_authenticates_each_call_and_statements_belong_to_their_identity() {
    let server = Server::start(HttpOptions::default()).await;
    let mut open = FlightSqlServiceClient::new(server.channel().await);
    for sql in [
        "CREATE DATABASE b",
        "CREATE DATABASE c",
        "CREATE TABLE b.home (host STRING PRIMARY KEY, v DOUBLE)",
        "INSERT INTO b.home VALUES ('a', 1)",
    ] {
        open.execute_update(sql.to_owned(), None).await.unwrap();
    }
    let catalog = server.fake.catalog();
    server.fake.edit_access(|access| secure(access, &catalog));
    let deadline = Instant::now() + PATIENCE;
    while open.execute("SELECT 1".to_owned(), None).await.is_ok() {
        assert!(Instant::now() < deadline, "the cluster stays open");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let client = async |token: &str| {
        let mut client = FlightSqlServiceClient::new(server.channel().await);
        client.set_token(token.to_owned());
        client
    };
    let error = open.execute("SELECT 1".to_owned(), None).await.unwrap_err();
    assert!(error.to_string().contains("authentication is required"), "{error}");
    let mut expired = client("old-token").await;
    assert!(expired.execute("SELECT 1".to_owned(), None).await.is_err());

    // A password once, then the token of the handshake.
    let mut reader = FlightSqlServiceClient::new(server.channel().await);
    reader.handshake("reader", READER_PASSWORD).await.unwrap();
    reader.set_header("database", "b");
    let mut prepared = reader.prepare("SELECT v FROM b.home".to_owned(), None).await.unwrap();
    let info = prepared.execute().await.unwrap();
    let ticket = info.endpoint[0].ticket.clone().unwrap();
    let rows: Vec<RecordBatch> =
        reader.do_get(ticket.clone()).await.unwrap().try_collect().await.unwrap();
    assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);

    // The handle is worth nothing to another, superusers included.
    for token in ["stranger-token", "root-token"] {
        let mut other = client(token).await;
        let error = other.do_get(ticket.clone()).await.map(drop).unwrap_err();
        assert!(error.to_string().contains("no longer exists"), "{token}: {error}");
    }
    let mut stranger = client("stranger-token").await;
    stranger.set_header("database", "c");
    let error = stranger.execute("SELECT v FROM b.home".to_owned(), None).await.unwrap_err();
    let missing = stranger.execute("SELECT v FROM b.nope".to_owned(), None).await.unwrap_err();
    assert_eq!(error.to_string().replace("home", "nope"), missing.to_string());
    let update = "DELETE FROM b.home".to_owned();
    let error = reader.execute_update(update, None).await.unwrap_err();
    assert!(error.to_string().contains("permission denied"), "{error}");

    let mut flight = FlightClient::new(server.channel().await);
    flight.add_header("authorization", "Bearer reader-token").unwrap();
    let hosts: ArrayRef = Arc::new(StringArray::from(vec!["b"]));
    let batch = RecordBatch::try_from_iter([("host", hosts)]).unwrap();
    let path = FlightDescriptor::new_path(vec!["b".to_owned(), "home".to_owned()]);
    let rows = FlightDataEncoderBuilder::new()
        .with_flight_descriptor(Some(path))
        .build(futures::stream::iter([Ok(batch)]));
    let refused = match flight.do_put(rows).await {
        Ok(answers) => answers.try_collect::<Vec<_>>().await.unwrap_err(),
        Err(error) => error,
    };
    assert!(refused.to_string().contains("permission denied"), "{refused}");
    drop((open, expired, reader, prepared, stranger, flight));
    server.stop().await;
}

/// Options of a port with a certificate for this host, and a client's trust in it.
fn encrypted(dir: &std::path::Path, host: &str) -> (HttpOptions, RootCertStore) {
    issue::init(dir).unwrap();
    let request = issue::Request {
        role: TlsRole::Frontend,
        name: "frontend1".to_owned(),
        hosts: vec![host.to_owned()],
        days: 30,
    };
    let member = issue::issue(dir, &request).unwrap();
    let files = DoorFiles {
        certificate: member.join("cert.pem"),
        key: member.join("key.pem"),
        client_authorities: None,
    };
    let options = TlsOptions { tls12: true, alpn: crate::alpn() };
    let tls = Reloading::new(
        move || partita_tls::Door::load(&files),
        move |door: &partita_tls::Door| door.server_config(&options),
    );
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(dir.join("ca.pem")).unwrap() {
        roots.add(certificate.unwrap()).unwrap();
    }
    (HttpOptions { tls: Some(Arc::new(tls.unwrap())), ..HttpOptions::default() }, roots)
}

#[tokio::test]
async fn a_port_with_a_certificate_speaks_tls_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (options, roots) = encrypted(dir.path(), "db.example.com");
    let server = Server::start(options).await;
    let ping = b"GET /ping HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    // The beginning of HTTP/2, with an empty SETTINGS frame.
    let begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    for protocol in [None, Some("http/1.1"), Some("h2")] {
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(ALL_VERSIONS)
            .unwrap()
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = protocol.iter().map(|name| name.as_bytes().to_vec()).collect();
        let connector = TlsConnector::from(Arc::new(config));
        let name = ServerName::try_from("db.example.com").unwrap();
        let mut stream = connector.connect(name, server.connect().await).await.unwrap();
        let chosen = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        assert_eq!(chosen.as_deref(), protocol.map(str::as_bytes));
        let is_http2 = protocol == Some("h2");
        let sent: &[u8] = if is_http2 { begin } else { ping };
        stream.write_all(sent).await.unwrap();
        stream.flush().await.unwrap();
        let mut answer = [0; 9];
        stream.read_exact(&mut answer).await.unwrap();
        if is_http2 {
            assert_eq!(answer[3], 4, "a SETTINGS frame: {answer:?}");
        } else {
            assert_eq!(&answer, b"HTTP/1.1 ");
        }
    }
    let mut plain = server.connect().await;
    plain.write_all(ping).await.unwrap();
    let mut answer = Vec::new();
    // A reset is a refusal too.
    drop(plain.read_to_end(&mut answer).await);
    assert!(!answer.starts_with(b"HTTP/"), "{}", String::from_utf8_lossy(&answer));
    server.stop().await;
}

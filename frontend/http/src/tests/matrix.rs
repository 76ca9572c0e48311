//! Each route for each kind of identity of a cluster with two organisations, and the calls of Flight SQL.
//!
//! The tables are written by hand; a route that they lack fails a test.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, StringArray};
use arrow::record_batch::RecordBatch;
use arrow_flight::FlightDescriptor;
use arrow_flight::client::FlightClient;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::sql::CommandGetTables;
use arrow_flight::sql::client::FlightSqlServiceClient;
use axum::body::Body;
use axum::http::Request;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::TryStreamExt;
use partita_frontend::access::authenticator::verifier_of;
use partita_frontend::fake::Fake;
use partita_frontend::{Frontend, FrontendOptions, SessionOptions};
use partita_heatmap::{History, Key, Metric, PartitionLoad as Drawn, Report, Shares, View};
use partita_proto::access::{
    Access, Membership, Mode, Org, Permission, Profile, Role, RowPredicate, Scope, Term, Token,
    Verifier,
};
use partita_proto::id::{BOOTSTRAP_ROLE, DatabaseId, OrgId, RoleId, TokenId};
use partita_proto::value::Value as Literal;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tonic::transport::Channel;

use super::{Api, PATIENCE, Server};
use crate::HttpOptions;
use crate::caller::Peer;
use crate::door::Door;
use crate::routes::{Endpoint, Form, Needs, ROUTES, Route, routes};

const ACME: u64 = 0xaa;
const ZULU: u64 = 0xbb;
const ACME_BOSS: RoleId = RoleId(2_001);
const ACME_STAFF: RoleId = RoleId(2_002);
const ACME_MEMBER: RoleId = RoleId(2_003);
const ZULU_BOSS: RoleId = RoleId(2_101);
const MEMBER_PASSWORD: &str = "secret-of-the-member";

/// Verifier of every token: HTTP and Flight find tokens by their hashes.
static TOKEN_VERIFIER: LazyLock<Verifier> = LazyLock::new(|| verifier_of("unused").unwrap());
/// Verifier of the member and of the superuser.
static VERIFIER: LazyLock<Verifier> = LazyLock::new(|| verifier_of(MEMBER_PASSWORD).unwrap());

/// Kind of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// No credentials.
    Nobody,
    /// A token that does not exist.
    Wrong,
    /// Token with all rights of `acme_boss` that has expired.
    Expired,
    /// Token of `acme_boss` that reads the databases of `acme`.
    Read,
    /// Token of `acme_boss` that reads their rows with the tag `room=k`.
    Rows,
    /// Token of `acme_boss` that writes to them.
    Write,
    /// Token with all rights of `acme_boss`, who owns them.
    Whole,
    /// Token with all rights of `zulu_boss`.
    Foreign,
    /// Role of `acme` with a password, in a group that reads the databases of `acme`.
    Member,
    /// Token with all rights of the superuser.
    Superuser,
}

/// All kinds of clients. The first three have the first column of the tables in common.
const WHO: [Who; 10] = [
    Who::Nobody,
    Who::Wrong,
    Who::Expired,
    Who::Read,
    Who::Rows,
    Who::Write,
    Who::Whole,
    Who::Foreign,
    Who::Member,
    Who::Superuser,
];

impl Who {
    /// Number and text of the token.
    fn token(self) -> Option<(u64, &'static str)> {
        match self {
            Self::Nobody | Self::Member => None,
            Self::Wrong => Some((0, "nonsense")),
            Self::Expired => Some((1, "expired-token")),
            Self::Read => Some((2, "read-token")),
            Self::Rows => Some((3, "rows-token")),
            Self::Write => Some((4, "write-token")),
            Self::Whole => Some((5, "whole-token")),
            Self::Foreign => Some((6, "foreign-token")),
            Self::Superuser => Some((7, "root-token")),
        }
    }

    fn header(self) -> Option<String> {
        match self.token() {
            Some((_, text)) => Some(format!("Bearer {text}")),
            None if self == Self::Member => {
                let pair = format!("acme_member:{MEMBER_PASSWORD}");
                Some(format!("Basic {}", STANDARD.encode(pair)))
            }
            None => None,
        }
    }

    fn owner(self) -> RoleId {
        match self {
            Self::Foreign => ZULU_BOSS,
            Self::Superuser => BOOTSTRAP_ROLE,
            _ => ACME_BOSS,
        }
    }

    fn org(self) -> Option<OrgId> {
        match self {
            Self::Foreign => OrgId::new(ZULU),
            Self::Superuser => None,
            _ => OrgId::new(ACME),
        }
    }

    fn permissions(self, databases: &[DatabaseId]) -> Vec<Permission> {
        let of_each = |mode, rows: Option<RowPredicate>| {
            let scope = |id: &DatabaseId| Scope::Bucket { database: *id, rows: rows.clone() };
            databases.iter().map(|id| Permission { mode, scope: scope(id) }).collect()
        };
        match self {
            Self::Read => of_each(Mode::Read, None),
            Self::Rows => {
                let values = vec![Literal::String("k".to_owned())];
                let term = Term { column: "room".to_owned(), values };
                of_each(Mode::Read, Some(RowPredicate::new(vec![term]).unwrap()))
            }
            Self::Write => of_each(Mode::Write, None),
            _ => vec![Permission { mode: Mode::Both, scope: Scope::Everything }],
        }
    }

    /// Name that no response to this client contains, unless the request does.
    fn secret(self) -> Option<&'static str> {
        match self {
            Self::Superuser => None,
            Self::Foreign => Some("acme"),
            _ => Some("zulu"),
        }
    }
}

/// Roles and organisations; everything is open still.
fn put_roles(access: &mut Access) {
    let org = |number| OrgId::new(number).unwrap();
    for (number, name) in [(ACME, "acme"), (ZULU, "zulu")] {
        let (name, profile) = (name.to_owned(), Profile::default());
        access.put_org(Org { id: org(number), name, series_max: None, profile });
    }
    let of_staff = vec![Membership { role: ACME_STAFF, admin_option: false, inherit: true }];
    for (id, name, number, login, member_of) in [
        (ACME_BOSS, "acme_boss", ACME, true, Vec::new()),
        (ACME_STAFF, "acme_staff", ACME, false, Vec::new()),
        (ACME_MEMBER, "acme_member", ACME, true, of_staff),
        (ZULU_BOSS, "zulu_boss", ZULU, true, Vec::new()),
    ] {
        access.put_role(Role { login, org: Some(org(number)), member_of, ..Role::new(id, name) });
    }
}

/// Passwords and tokens, which close the cluster.
fn secure(access: &mut Access, databases: &[DatabaseId]) {
    access.secrets.cookies = [7; 32];
    for id in [BOOTSTRAP_ROLE, ACME_MEMBER] {
        let role = access.role(id).unwrap().as_ref().clone();
        let verifier = Some(VERIFIER.clone());
        access.put_role(Role { verifier, secret_version: 1, ..role });
    }
    for who in WHO {
        let Some((number, text)) = who.token() else { continue };
        let Some(id) = TokenId::new(number) else { continue };
        access.put_token(Token {
            id,
            sha256: Sha256::digest(text.as_bytes()).into(),
            verifier: TOKEN_VERIFIER.clone(),
            description: format!("{who:?}"),
            owner: who.owner(),
            org: who.org(),
            created_ms: 0,
            expires_ms: (who == Who::Expired).then_some(1),
            enabled: true,
            permissions: who.permissions(databases),
        });
    }
}

/// Waits until the frontend follows the catalog.
async fn until(holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "the catalog does not arrive");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Gives the databases to their owners, and makes the clients.
async fn close(fake: &Fake, frontend: &Arc<Frontend>, of_acme: &[&str]) {
    fake.edit_access(put_roles);
    until(|| frontend.access().role(ZULU_BOSS).is_some()).await;
    let session = frontend.session(SessionOptions::default());
    for name in of_acme {
        for sql in [
            format!("ALTER DATABASE {name} OWNER TO acme_boss"),
            format!("GRANT SELECT ON DATABASE {name} TO acme_staff"),
        ] {
            session.execute(&sql).await.unwrap();
        }
    }
    session.execute("ALTER DATABASE zulu OWNER TO zulu_boss").await.unwrap();
    let catalog = fake.catalog();
    let ids: Vec<DatabaseId> = of_acme.iter().map(|name| catalog.databases[*name].id).collect();
    fake.edit_access(|access| secure(access, &ids));
    until(|| !frontend.authenticator().is_open()).await;
}

/// A drawing of the load of the table home.
fn drawn() -> Bytes {
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
    Bytes::from(serde_json::to_vec(&history.view(&view, |_| String::new())).unwrap())
}

/// The cluster: database `acme` with two tables, `acme_d`, and `acme_e` with the schema of the measurement m; and `zulu`.
struct World {
    api: Api,
    /// Ids of `acme_d`, of `acme_e` and of the measurement.
    ids: [String; 3],
}

const DATABASES: [&str; 3] = ["acme", "acme_d", "acme_e"];
/// The columns of the measurement m.
const COLUMNS: &str =
    r#"[{"name":"time","type":"timestamp"},{"name":"v","type":"field","dataType":"float"}]"#;

async fn world() -> World {
    let fake = Fake::new(1);
    let door =
        Door::new(fake.frontend(FrontendOptions::default()).unwrap(), HttpOptions::default());
    let api = Api { app: routes(&door), fake };
    for (bucket, lines) in
        [("acme", "home,room=k t=1 1\nhome,room=l t=2 1\n"), ("zulu", "other t=1 1\n")]
    {
        let (status, body) = api.post(&format!("/api/v2/write?bucket={bucket}"), lines).await;
        assert_eq!(status.as_u16(), 204, "{body}");
    }
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let make = async |uri: &str, body: Value| {
        let (status, body) = api.post(uri, &body.to_string()).await;
        assert_eq!(status.as_u16(), 201, "{body}");
        text(&body["id"])
    };
    let buckets = "/api/v2/buckets";
    let d = make(buckets, json!({"name": "acme_d"})).await;
    let e = make(buckets, json!({"name": "acme_e", "schemaType": "explicit"})).await;
    let columns: Value = serde_json::from_str(COLUMNS).unwrap();
    let schemas = format!("{buckets}/{e}/schema/measurements");
    let measurement = make(&schemas, json!({"name": "m", "columns": columns})).await;
    close(&api.fake, &door.frontend, &DATABASES).await;
    *api.fake.heatmap.lock() = drawn();
    World { api, ids: [d, e, measurement] }
}

/// Status of each client. Nobody, a wrong token and an expired one have the first column in common; then come the token
/// that reads, the one for rows, the one that writes, the one with all rights of the owner, the one of another
/// organisation, the member, and the superuser.
const MATRIX: &[(&str, &str)] = &[
    ("POST /api/v2/write", "401 403 403 204 204 404 403 204"),
    ("POST /write", "401 403 403 204 204 404 403 204"),
    ("POST /api/v3/write_lp", "401 403 403 204 204 404 403 204"),
    ("POST /v1/influxdb/write", "401 403 403 204 204 404 403 204"),
    ("POST /v1/influxdb/api/v2/write", "401 403 403 204 204 404 403 204"),
    ("GET /api/v3/query_sql", "401 200 200 403 200 404 200 200"),
    ("POST /api/v3/query_sql", "401 200 200 403 200 404 200 200"),
    ("GET /v1/sql", "401 200 200 403 200 404 200 200"),
    ("POST /v1/sql", "401 200 200 403 200 404 200 200"),
    ("GET /ping", "204 204 204 204 204 204 204 204"),
    ("POST /ping", "204 204 204 204 204 204 204 204"),
    ("GET /v1/influxdb/ping", "204 204 204 204 204 204 204 204"),
    ("GET /health", "200 200 200 200 200 200 200 200"),
    ("GET /v1/influxdb/health", "200 200 200 200 200 200 200 200"),
    ("GET /ready", "200 200 200 200 200 200 200 200"),
    ("GET /v1/health", "200 200 200 200 200 200 200 200"),
    ("GET /status", "401 200 200 200 200 200 200 200"),
    ("GET /metrics", "401 403 403 403 403 403 403 200"),
    ("GET /login", "200 200 200 200 200 200 200 200"),
    // None of them has a form of the server.
    ("POST /login", "403 403 403 403 403 403 403 403"),
    ("POST /logout", "303 303 303 303 303 303 303 303"),
    ("GET /heatmap", "303 200 200 200 200 200 200 200"),
    ("GET /v1/tables.json", "401 200 200 200 200 200 200 200"),
    ("GET /v1/heatmap.json", "401 200 403 403 200 404 200 200"),
    ("GET /v1/heatmap.svg", "401 200 403 403 200 404 200 200"),
    ("GET /v1/heatmap.png", "401 200 403 403 200 404 200 200"),
    ("GET /api/v2/setup", "200 200 200 200 200 200 200 200"),
    // It was done.
    ("POST /api/v2/setup", "422 422 422 422 422 422 422 422"),
    ("GET /api/v2/orgs", "401 200 200 200 200 200 200 200"),
    ("POST /api/v2/orgs", "401 403 403 403 403 403 403 201"),
    ("GET /api/v2/orgs/{id}", "401 200 200 200 200 404 200 200"),
    ("PATCH /api/v2/orgs/{id}", "401 403 403 403 403 404 403 200"),
    ("DELETE /api/v2/orgs/{id}", "401 403 403 403 403 404 403 204"),
    ("GET /api/v2/buckets", "401 200 200 200 200 200 200 200"),
    ("POST /api/v2/buckets", "401 403 403 403 403 403 403 201"),
    ("GET /api/v2/buckets/{id}", "401 200 200 200 200 404 200 200"),
    ("PATCH /api/v2/buckets/{id}", "401 403 403 403 200 404 403 200"),
    ("DELETE /api/v2/buckets/{id}", "401 403 403 403 204 404 403 204"),
    ("GET /api/v2/buckets/{id}/schema/measurements", "401 200 200 200 200 404 200 200"),
    // Who writes makes tables.
    ("POST /api/v2/buckets/{id}/schema/measurements", "401 403 403 201 201 404 403 201"),
    // The table has no tag by which its rows could be chosen.
    (
        "GET /api/v2/buckets/{id}/schema/measurements/{measurement}",
        "401 200 404 200 200 404 200 200",
    ),
    (
        "PATCH /api/v2/buckets/{id}/schema/measurements/{measurement}",
        "401 403 404 403 200 404 403 200",
    ),
    // A token that may use a part of its owner's rights makes and manages none.
    ("GET /api/v2/authorizations", "401 200 200 200 200 200 200 200"),
    ("POST /api/v2/authorizations", "401 403 403 403 201 201 201 201"),
    ("GET /api/v2/authorizations/{id}", "401 404 404 404 200 404 404 200"),
    ("PATCH /api/v2/authorizations/{id}", "401 404 404 404 200 404 404 200"),
    ("DELETE /api/v2/authorizations/{id}", "401 404 404 404 204 404 404 204"),
    ("POST /api/v2/delete", "401 403 403 204 204 404 403 204"),
    ("GET /api/v3/configure/database", "401 200 200 200 200 200 200 200"),
    ("POST /api/v3/configure/database", "401 403 403 403 403 403 403 200"),
    ("PUT /api/v3/configure/database", "401 403 403 403 200 404 403 200"),
    ("DELETE /api/v3/configure/database", "401 403 403 403 200 404 403 200"),
    ("POST /api/v3/configure/table", "401 403 403 200 200 404 403 200"),
    ("DELETE /api/v3/configure/table", "401 403 404 403 200 404 403 200"),
    ("POST /api/v3/configure/token", "401 403 403 403 201 201 201 201"),
    ("POST /api/v3/configure/token/admin", "401 403 403 403 201 201 201 201"),
    ("DELETE /api/v3/configure/token", "401 404 404 404 200 404 404 200"),
];

/// Column of a client in [`MATRIX`].
fn column(position: usize) -> usize {
    position.saturating_sub(2)
}

/// Statuses of a route; 200 for gRPC, which has statuses of its own.
fn expected(name: &str, route: &Route) -> [u16; 8] {
    if route.form == Form::Flight {
        return [200; 8];
    }
    let found = MATRIX.iter().find(|(listed, _)| *listed == name);
    let (_, statuses) = found.unwrap_or_else(|| panic!("{name} is not in the table"));
    let statuses: Vec<u16> = statuses.split(' ').map(|status| status.parse().unwrap()).collect();
    statuses.try_into().unwrap()
}

fn body_of(route: &Route) -> String {
    let columns: Value = serde_json::from_str(COLUMNS).unwrap();
    let read_all = json!([{"action": "read", "resource": {"type": "buckets"}}]);
    let body = match route.endpoint {
        Endpoint::WriteV1 | Endpoint::WriteV2 | Endpoint::WriteV3 => {
            return "home,room=k t=1 1\n".to_owned();
        }
        // An empty message.
        _ if route.form == Form::Flight => return "\0\0\0\0\0".to_owned(),
        Endpoint::CreateOrg => json!({"name": "fresh"}),
        Endpoint::ChangeOrg => json!({"name": "renamed"}),
        Endpoint::CreateBucket => json!({"name": "fresh"}),
        Endpoint::ChangeBucket => {
            json!({"retentionRules": [{"type": "expire", "everySeconds": 3600}]})
        }
        Endpoint::CreateSchema => json!({"name": "n", "columns": columns}),
        Endpoint::ChangeSchema => json!({"columns": columns}),
        Endpoint::CreateAuthorization => json!({"permissions": read_all}),
        Endpoint::ChangeAuthorization => json!({"status": "inactive"}),
        Endpoint::Delete => {
            json!({"start": "1970-01-01T00:00:00Z", "stop": "1970-01-02T00:00:00Z"})
        }
        Endpoint::CreateDatabase => json!({"db": "fresh"}),
        Endpoint::ChangeDatabase => json!({"db": "acme_e", "retention_period": "1d"}),
        Endpoint::CreateTable => {
            let fields = json!([{"name": "v", "type": "float64"}]);
            json!({"db": "acme_e", "table": "t", "tags": ["a"], "fields": fields})
        }
        Endpoint::CreateToken => {
            let permission =
                json!({"resource_type": "db", "resource_names": ["*"], "actions": ["read"]});
            json!({"token_name": "fresh", "permissions": [permission]})
        }
        _ => return String::new(),
    };
    body.to_string()
}

fn address_of(route: &Route, [d, e, measurement]: &[String; 3]) -> String {
    let id: &str = match route.endpoint {
        Endpoint::Bucket | Endpoint::ChangeBucket | Endpoint::DropBucket => d,
        Endpoint::Org | Endpoint::ChangeOrg | Endpoint::DropOrg => "00000000000000aa",
        // The token that reads.
        Endpoint::Authorization | Endpoint::ChangeAuthorization | Endpoint::DropAuthorization => {
            "0000000000000002"
        }
        _ => e,
    };
    let path = route.path.replace("{id}", id).replace("{measurement}", measurement);
    let query = match route.endpoint {
        Endpoint::Delete => "?bucket=acme",
        Endpoint::DropDatabase => "?db=acme_e",
        Endpoint::DropTable => "?db=acme_e&table=m",
        Endpoint::DropToken => "?token_name=Read",
        Endpoint::WriteV1 | Endpoint::WriteV2 | Endpoint::WriteV3 => {
            "?bucket=acme&db=acme&precision=ns"
        }
        Endpoint::QuerySql => "?db=acme&q=SELECT+count(*)+FROM+home",
        Endpoint::Sql => "?db=acme&sql=SELECT+count(*)+FROM+home",
        Endpoint::HeatmapJson | Endpoint::HeatmapSvg | Endpoint::HeatmapPng => "?table=acme.home",
        _ => "",
    };
    format!("{path}{query}")
}

impl Api {
    /// Sends a request of a client from an address that no other request had; returns the status and the text.
    async fn ask(
        &self,
        who: Who,
        (method, uri): (&str, &str),
        headers: &[(&str, &str)],
        body: String,
    ) -> (u16, String) {
        static NEXT: AtomicU32 = AtomicU32::new(0x0b00_0001);
        let address = IpAddr::V4(Ipv4Addr::from(NEXT.fetch_add(1, Ordering::Relaxed)));
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(header) = who.header() {
            request = request.header("authorization", header);
        }
        let mut request = request.body(Body::from(body)).unwrap();
        request.extensions_mut().insert(Peer { address, tls: false });
        let (status, _, body) = self.send(request).await;
        (status.as_u16(), String::from_utf8_lossy(&body).into_owned())
    }
}

#[tokio::test]
async fn each_route_is_for_those_of_the_table() {
    let mut world = world().await;
    let mut wrong = Vec::new();
    for route in ROUTES {
        for method in route.methods {
            let name = format!("{method} {}", route.path);
            let statuses = expected(&name, route);
            for (position, who) in WHO.into_iter().enumerate() {
                let grpc = [("content-type", "application/grpc")];
                let is_grpc = route.form == Form::Flight;
                let headers: &[(&str, &str)] = if is_grpc { &grpc } else { &[] };
                let (address, body) = (address_of(route, &world.ids), body_of(route));
                let answer =
                    world.api.ask(who, (*method, address.as_str()), headers, body.clone()).await;
                let (status, text) = answer;
                if status != statuses[column(position)] {
                    let expected = statuses[column(position)];
                    wrong.push(format!(
                        "{expected} expected, {status} found: {name} {who:?} {text}"
                    ));
                }
                if let Some(secret) = who.secret() {
                    let is_named = format!("{address}{body}").contains(secret);
                    assert!(is_named || !text.contains(secret), "{name} for {who:?}: {text}");
                }
                if (200..300).contains(&status) && route.needs == Needs::Objects && *method != "GET"
                {
                    world = self::world().await;
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_route_is_in_the_table() {
    let routes = ROUTES.iter().filter(|route| route.form != Form::Flight);
    let existing: BTreeSet<String> = routes
        .flat_map(|route| route.methods.iter().map(|method| format!("{method} {}", route.path)))
        .collect();
    let listed: BTreeSet<String> = MATRIX.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(listed, existing);
    assert_eq!(listed.len(), MATRIX.len());
}

#[tokio::test]
async fn lines_create_only_what_their_client_may_create() {
    // Into a new table of the own database, a new column, a database of another organisation, and a new one.
    let cases = [
        ("acme", "fresh t=1 1\n", "401 403 403 204 204 404 403 204"),
        ("acme", "home,room=k fresh=1 1\n", "401 403 403 204 204 404 403 204"),
        ("zulu", "other t=1 1\n", "401 404 404 404 404 204 404 204"),
        ("nowhere", "other t=1 1\n", "401 404 404 404 404 404 404 204"),
    ];
    let mut world = world().await;
    for (bucket, lines, statuses) in cases {
        for (position, who) in WHO.into_iter().enumerate() {
            let uri = format!("/api/v2/write?bucket={bucket}&precision=ns");
            let answer = world.api.ask(who, ("POST", uri.as_str()), &[], lines.to_owned()).await;
            let expected: u16 = statuses.split(' ').nth(column(position)).unwrap().parse().unwrap();
            assert_eq!(answer.0, expected, "{bucket} {lines} for {who:?}: {}", answer.1);
            if answer.0 == 204 {
                world = self::world().await;
            }
        }
    }
}

/// The calls of Flight SQL and Flight, with a letter for each of [`WHO`]: A: allowed, D: denied, H: as if the object did
/// not exist, U: unauthenticated, -: not called, because attempts that fail are limited.
const CALLS: [(&str, &str); 5] = [
    ("query", "UUUAADAHAA"),
    ("update", "U--DDAAHDA"),
    ("prepared", "U--AADAHAA"),
    ("tables", "U--AAAAAAA"),
    ("put", "U--DDAAHDA"),
];

/// Table whose rows the calls read and write.
const TABLE: &str = "acme.home";

/// Calls Flight as a client; returns the text of the error.
async fn call(channel: Channel, who: Who, name: &str) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let mut client = FlightSqlServiceClient::new(channel.clone());
    if let Some(header) = who.header() {
        client.set_header("authorization", header);
    }
    client.set_header("database", if who == Who::Foreign { "zulu" } else { "acme" });
    let query = format!("SELECT host FROM {TABLE}");
    let info = match name {
        "update" => {
            let update = format!("INSERT INTO {TABLE} VALUES ('b', 'k')");
            let changed = client.execute_update(update, None).await;
            return changed.map(drop).map_err(|error| text(&error));
        }
        "put" => {
            let mut client = FlightClient::new(channel);
            if let Some(header) = who.header() {
                client.add_header("authorization", &header).unwrap();
            }
            return put(&mut client).await;
        }
        "prepared" => {
            let prepared = client.prepare(query, None).await;
            let mut prepared = prepared.map_err(|error| text(&error))?;
            prepared.execute().await
        }
        "tables" => client.get_tables(CommandGetTables::default()).await,
        _ => client.execute(query, None).await,
    };
    let ticket = info.map_err(|error| text(&error))?.endpoint[0].ticket.clone().unwrap();
    let rows = client.do_get(ticket).await.map_err(|error| text(&error))?;
    let rows: Vec<RecordBatch> = rows.try_collect().await.map_err(|error| text(&error))?;
    let shown = format!("{rows:?}");
    if let Some(secret) = who.secret() {
        assert!(!shown.contains(secret), "{name} for {who:?}: {shown}");
    }
    Ok(())
}

/// Writes a row of the table with DoPut.
async fn put(client: &mut FlightClient) -> Result<(), String> {
    let column = |text: &str| -> ArrayRef { Arc::new(StringArray::from(vec![text])) };
    let batch = RecordBatch::try_from_iter([("host", column("b")), ("room", column("k"))]).unwrap();
    let path = TABLE.split('.').map(str::to_owned).collect();
    let rows = FlightDataEncoderBuilder::new()
        .with_flight_descriptor(Some(FlightDescriptor::new_path(path)))
        .build(futures::stream::iter([Ok(batch)]));
    let answers = client.do_put(rows).await.map_err(|error| error.to_string())?;
    answers.try_collect::<Vec<_>>().await.map(drop).map_err(|error| error.to_string())
}

#[tokio::test]
async fn each_call_of_flight_is_for_those_of_the_table() {
    let server = Server::start(HttpOptions::default()).await;
    let mut open = FlightSqlServiceClient::new(server.channel().await);
    for sql in [
        "CREATE DATABASE acme",
        "CREATE DATABASE zulu",
        "CREATE TABLE acme.home (host STRING, room STRING, PRIMARY KEY (host, room))",
        "CREATE TABLE zulu.zulu_t (host STRING PRIMARY KEY)",
        "INSERT INTO acme.home VALUES ('a', 'k')",
    ] {
        open.execute_update(sql.to_owned(), None).await.unwrap();
    }
    let frontend = server.fake.frontend(FrontendOptions::default()).unwrap();
    close(&server.fake, &frontend, &["acme"]).await;
    let deadline = Instant::now() + PATIENCE;
    while open.execute("SELECT 1".to_owned(), None).await.is_ok() {
        assert!(Instant::now() < deadline, "the cluster stays open");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let channel = server.channel().await;
    let mut wrong = Vec::new();
    for (name, letters) in CALLS {
        for (who, letter) in WHO.into_iter().zip(letters.chars()) {
            if letter == '-' {
                continue;
            }
            let result = call(channel.clone(), who, name).await;
            let found = match &result {
                Ok(()) => 'A',
                Err(text) if text.to_lowercase().contains("authenticat") => 'U',
                Err(text) if text.contains("permission denied") => 'D',
                Err(text) if text.contains("does not exist") => 'H',
                Err(_) => '?',
            };
            if found != letter {
                wrong.push(format!("{letter} expected, {found} found: {name} {who:?} {result:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    drop((open, channel));
    server.stop().await;
}

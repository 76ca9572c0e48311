//! The doors over services in memory: through the routes, and through a socket where it matters.

mod access;
mod bigtable;
mod heatmap;
mod manage;
mod matrix;
mod memory;

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, StringArray};
use arrow::datatypes::Int64Type;
use arrow::record_batch::RecordBatch;
use arrow_flight::FlightDescriptor;
use arrow_flight::Ticket;
use arrow_flight::client::FlightClient;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::sql::client::FlightSqlServiceClient;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use bytes::{BufMut, BytesMut};
use futures::TryStreamExt;
use partita_bigtable::api::data::ReadRowsRequest;
use partita_frontend::FrontendOptions;
use partita_frontend::fake::Fake;
use partita_proto::Error;
use partita_proto::access::{Org, Profile, Role};
use partita_proto::id::{BOOTSTRAP_ROLE, OrgId};
use prost::Message;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use tower::ServiceExt;

use crate::door::Door;
use crate::routes::routes;
use crate::{HttpOptions, serve};

/// How long a test waits for what must come, on machines that are slow and busy.
const PATIENCE: Duration = Duration::from_secs(30);

struct Api {
    fake: Arc<Fake>,
    app: Router,
}

impl Api {
    fn new() -> Self {
        Self::with_patience(PATIENCE)
    }

    /// One whose writes are tried for so long.
    fn with_patience(write_timeout: Duration) -> Self {
        let fake = Fake::new(2);
        let options = FrontendOptions { write_timeout, ..FrontendOptions::default() };
        let door = Door::new(fake.frontend(options).unwrap(), HttpOptions::default());
        Self { app: routes(&door), fake }
    }

    async fn send(&self, request: Request<Body>) -> (StatusCode, axum::http::HeaderMap, Vec<u8>) {
        let response = self.app.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        (head.status, head.headers, body.to_vec())
    }

    async fn post(&self, uri: &str, body: &str) -> (StatusCode, Value) {
        let request = Request::post(uri).body(Body::from(body.to_owned())).unwrap();
        let (status, _, body) = self.send(request).await;
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn get(&self, uri: &str) -> (StatusCode, Value) {
        let (status, _, body) = self.send(Request::get(uri).body(Body::empty()).unwrap()).await;
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn query(&self, database: &str, sql: &str) -> Value {
        let body = json!({ "db": database, "q": sql }).to_string();
        let request = Request::post("/api/v3/query_sql")
            .header("content-type", "application/json")
            .body(Body::from(body))
            .unwrap();
        let (status, _, body) = self.send(request).await;
        assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }
}

#[tokio::test]
async fn a_first_write_makes_the_database_the_table_and_its_columns() {
    let api = Api::new();
    let (status, _) = api.post("/api/v2/write?bucket=b", "home,room=k t=1,n=2i 1\n").await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    // The same point again: fields merge.
    let (status, _) = api.post("/api/v3/write_lp?db=b&precision=ns", "home,room=k n=9i 1\n").await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    let (status, _) = api.post("/write?db=b", "home,room=k,floor=1 t=2 2\n").await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    let rows = api.query("b", "SELECT room, floor, n, t FROM home ORDER BY time").await;
    let old = json!({"room": "k", "n": 9, "t": 1.0});
    assert_eq!(rows, json!([old, {"room": "k", "floor": "1", "t": 2.0}]));
}

#[tokio::test]
async fn each_dialect_tells_of_wrong_lines_in_its_own_form() {
    let api = Api::new();
    let lines = "m v=1 1\nm v=x 2\n";
    let (status, body) = api.post("/api/v2/write?bucket=b", lines).await;
    assert_eq!(
        (status, &body["code"], &body["line"]),
        (StatusCode::BAD_REQUEST, &json!("invalid"), &json!(2))
    );
    let (_, body) = api.post("/write?db=b", lines).await;
    assert!(body["error"].as_str().unwrap().ends_with("dropped=1"), "{body}");
    let (_, body) = api.post("/api/v3/write_lp?db=b", lines).await;
    assert_eq!(body["data"][0]["original_line"], "m v=x 2");
    let (_, body) =
        api.post("/api/v3/write_lp?db=b&accept_partial=false", "m v=5 9\nm v=x\n").await;
    assert_eq!(body["error"], "line protocol parsing error");
    assert_eq!(body["data"]["line_number"], 2);
    // v2 and v1 stored the line at 1, v3 told its unit by its size: a second after 1970.
    assert_eq!(api.query("b", "SELECT count(*) AS n FROM m").await, json!([{"n": 2}]));
}

#[tokio::test]
async fn writes_entirely_outside_the_retention_are_unprocessable() {
    let api = Api::new();
    let create = "sql=CREATE DATABASE b WITH ('ttl'='1h')";
    assert_eq!(api.post("/v1/sql", create).await.0, StatusCode::OK);
    let (status, body) = api.post("/api/v2/write?bucket=b", "m v=1 1\nm v=1 2\n").await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(body["code"], "unprocessable entity");
    let message = "failure writing points to database: partial write: points beyond retention \
                   policy dropped=2";
    assert_eq!(body["message"], message);
    let (status, body) = api.post("/write?db=b", "m v=1 1\n").await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(body["error"], "partial write: points beyond retention policy dropped=1");
    let (status, body) = api.post("/api/v3/write_lp?db=b&precision=ns", "m v=1 1\n").await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(body["data"][0]["line_number"], 1);
    // No table was made. Beside a line of now, the others are rejected like any wrong line.
    let (status, body) = api.post("/api/v2/write?bucket=b", "m v=1 1\nm v=2\n").await;
    assert_eq!((status, &body["line"]), (StatusCode::BAD_REQUEST, &json!(1)));
    assert_eq!(api.query("b", "SELECT count(*) AS n FROM m").await, json!([{"n": 1}]));
    let forever = "sql=ALTER DATABASE b UNSET 'ttl'";
    assert_eq!(api.post("/v1/sql", forever).await.0, StatusCode::OK);
    assert_eq!(api.post("/api/v2/write?bucket=b", "m v=1 1\n").await.0, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn new_series_beyond_the_limit_are_refused_and_existing_ones_go_on() {
    let api = Api::new();
    api.fake.edit_access(|access| {
        let id = OrgId::new(1).unwrap();
        let (name, profile) = ("acme".to_owned(), Profile::Free);
        access.put_org(Org { id, name, series_max: Some(25), profile });
        let owner = access.role(BOOTSTRAP_ROLE).unwrap().as_ref().clone();
        access.put_role(Role { org: Some(id), ..owner });
    });
    let line = |customer: u32, device: u32, time: u32| {
        format!("iot,customer_id=c{customer},device_id=d{device} v=1 {time}\n")
    };
    let write = "/api/v2/write?bucket=b";
    let lines: String = (0..25).map(|n| line(n / 5, n % 5, 1)).collect();
    assert_eq!(api.post(write, &lines).await.0, StatusCode::NO_CONTENT);
    // A sixth customer is refused, while another line of the same text goes on.
    let mixed = format!("{}{}", line(6, 0, 2), line(0, 0, 2));
    let request = Request::post(write).body(Body::from(mixed)).unwrap();
    let (status, headers, body) = api.send(request).await;
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (status, &body["code"]),
        (StatusCode::TOO_MANY_REQUESTS, &json!("too many requests"))
    );
    assert!(!headers.contains_key("retry-after"));
    assert!(body["message"].as_str().unwrap().contains("limit of 25 series"), "{body}");
    assert_eq!(api.query("b", "SELECT count(*) AS n FROM iot").await, json!([{"n": 26}]));
    // All or nothing.
    let mixed = format!("{}{}", line(6, 0, 3), line(0, 0, 3));
    let (status, _) = api.post(&format!("{write}&accept_partial=false"), &mixed).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(api.query("b", "SELECT count(*) AS n FROM iot").await, json!([{"n": 26}]));
    // Another frontend does not know the series, and looks for them.
    let frontend = api.fake.frontend(FrontendOptions::default()).unwrap();
    let door = Door::new(frontend, HttpOptions::default());
    let other = Api { app: routes(&door), fake: Arc::clone(&api.fake) };
    assert_eq!(other.post(write, &line(4, 4, 4)).await.0, StatusCode::NO_CONTENT);
    assert_eq!(other.post(write, &line(7, 0, 4)).await.0, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn what_is_asked_wrongly_is_told() {
    let api = Api::new();
    let (status, body) = api.post("/api/v2/write", "m v=1").await;
    assert_eq!((status, &body["message"]), (StatusCode::BAD_REQUEST, &json!("bucket is required")));
    let (status, _) = api.post("/api/v2/write?bucket=a%20b", "m v=1").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let (status, _) = api.post("/write?db=b&precision=x", "m v=1").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(api.get("/query?q=x").await.0, StatusCode::NOT_FOUND);
    assert_eq!(api.get("/api/v2/write").await.0, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(api.get("/api/v3/query_sql?db=nope&q=SELECT+1").await.0, StatusCode::NOT_FOUND);
    let (status, body) = api.get("/v1/sql?sql=SELECT+*+FROM+nope").await;
    assert_eq!((status, &body["code"]), (StatusCode::BAD_REQUEST, &json!(4001)));
    let request = Request::options("/anything").body(Body::empty()).unwrap();
    let (status, headers, _) = api.send(request).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert!(!headers.contains_key("access-control-allow-origin"), "no page asked, none is allowed");
}

#[tokio::test]
async fn a_method_of_grpc_that_does_not_exist_is_unimplemented() {
    let api = Api::new();
    let request = Request::post("/google.bigtable.v2.Bigtable/ExecuteQuery")
        .header("content-type", "application/grpc")
        .body(Body::empty())
        .unwrap();
    let (status, headers, _) = api.send(request).await;
    assert_eq!((status, headers["grpc-status"].to_str().unwrap()), (StatusCode::OK, "12"));
    assert_eq!(headers["content-type"], "application/grpc");
}

#[tokio::test]
async fn a_status_that_quotes_a_long_text_fits_into_headers() {
    let api = Api::new();
    let name = "t".repeat(20_000);
    let message = ReadRowsRequest {
        table_name: format!("projects/p/instances/i/tables/{name}/"),
        ..ReadRowsRequest::default()
    };
    let mut body = BytesMut::new();
    body.put_u8(0);
    body.put_u32(u32::try_from(message.encoded_len()).unwrap());
    message.encode(&mut body).unwrap();
    let request = Request::post("/google.bigtable.v2.Bigtable/ReadRows")
        .header("content-type", "application/grpc")
        .body(Body::from(body.freeze()))
        .unwrap();
    let (_, headers, _) = api.send(request).await;
    assert_eq!(headers["grpc-status"], "3");
    let message = headers["grpc-message"].to_str().unwrap();
    assert!(message.contains("/tables/ttt") && message.len() < 5_000, "{}", message.len());
}

#[tokio::test]
async fn a_get_request_changes_nothing() {
    let api = Api::new();
    let create = "CREATE TABLE t (ts TIMESTAMP(3) TIME INDEX, v BIGINT)";
    assert_eq!(api.post("/v1/sql", &format!("sql={create}")).await.0, StatusCode::OK);
    for sql in [
        "DROP TABLE t",
        "DELETE FROM t",
        "TRUNCATE t",
        "INSERT INTO t VALUES (1, 1)",
        "ALTER TABLE t ADD COLUMN w BIGINT",
        "CREATE DATABASE d",
        "ADMIN flush_table('t')",
        "EXPLAIN ANALYZE INSERT INTO t VALUES (1, 1)",
        "SELECT 1; DROP TABLE t",
        "PREPARE p AS SELECT 1; EXECUTE p",
        "BEGIN",
        "SET statement_timeout = 0",
    ] {
        let query: String = form_urlencoded::byte_serialize(sql.as_bytes()).collect();
        for uri in [
            format!("/v1/sql?sql={query}"),
            format!("/v1/sql?sql={query}&params=%7B%22a%22:1%7D"),
            format!("/api/v3/query_sql?db=public&q={query}"),
        ] {
            for method in ["GET", "HEAD"] {
                let request = Request::builder().method(method).uri(&uri);
                let (status, headers, _) = api.send(request.body(Body::empty()).unwrap()).await;
                assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{method} {sql}");
                assert_eq!(headers["allow"], "POST", "{sql}");
            }
        }
    }
    assert_eq!(api.query("public", "SELECT count(*) AS n FROM t").await, json!([{"n": 0}]));
    let (status, body) = api.get("/v1/sql?sql=EXPLAIN+SELECT+1").await;
    assert_eq!(status, StatusCode::OK, "{body}");
}

#[tokio::test]
async fn pages_of_other_origins_reach_no_path() {
    let fake = Fake::new(1);
    let guard = crate::Guard::new(&[], &["https://board.example".to_owned()]).unwrap();
    let options = HttpOptions { guard, ..HttpOptions::default() };
    let door = Door::new(fake.frontend(FrontendOptions::default()).unwrap(), options);
    let api = Api { app: routes(&door), fake };
    let flight = "/arrow.flight.protocol.FlightService/DoGet";
    for path in ["/v1/sql?sql=SELECT+1", "/write?db=b", "/metrics", "/heatmap", "/no", flight] {
        for method in ["GET", "POST", "OPTIONS"] {
            let request =
                || Request::builder().method(method).uri(path).header("host", "[::1]:4000");
            let foreign = request().header("origin", "http://evil.example");
            let (status, headers, _) = api.send(foreign.body(Body::empty()).unwrap()).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{method} {path}");
            assert!(!headers.contains_key("access-control-allow-origin"));
            let image = request().header("sec-fetch-site", "cross-site");
            let (status, ..) = api.send(image.body(Body::empty()).unwrap()).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{method} {path}");
            let rebound =
                Request::builder().method(method).uri(path).header("host", "evil.example");
            let (status, ..) = api.send(rebound.body(Body::empty()).unwrap()).await;
            assert_eq!(status, StatusCode::MISDIRECTED_REQUEST, "{method} {path}");
        }
    }
    let allowed = Request::options("/v1/sql").header("origin", "https://board.example");
    let (status, headers, _) = api.send(allowed.body(Body::empty()).unwrap()).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert_eq!(headers["access-control-allow-origin"], "https://board.example");
    assert_eq!(headers["vary"], "origin");
    let own = Request::get("/v1/sql?sql=SELECT+1").header("host", "localhost:4000");
    let own = own.header("origin", "http://localhost:4000").body(Body::empty()).unwrap();
    let (status, headers, _) = api.send(own).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(headers["content-security-policy"], "frame-ancestors 'none'");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_are_promised_and_not_sent_keep_nobody_waiting() {
    let fake = Fake::new(1);
    let options = HttpOptions { in_flight_bytes_max: 64 << 20, ..HttpOptions::default() };
    let door = Door::new(fake.frontend(FrontendOptions::default()).unwrap(), options);
    let api = Api { app: routes(&door), fake };
    let mut promised = Vec::new();
    for _ in 0..40 {
        let body = Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
        let request = Request::post("/write?db=b").header("content-length", 30 << 20);
        let app = api.app.clone();
        let request = request.body(body).unwrap();
        promised.push(tokio::spawn(async move { app.oneshot(request).await }));
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let honest = tokio::time::timeout(Duration::from_secs(20), api.post("/write?db=b", "m v=1 1"));
    assert_eq!(honest.await.expect("served beside them").0, StatusCode::NO_CONTENT);
    promised.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn failures_of_the_store_are_not_the_writers_fault() {
    let api = Api::with_patience(Duration::from_millis(300));
    api.post("/api/v2/write?bucket=b", "m v=1 1").await;
    let fail_with = |error: Error| {
        api.fake.write_errors.lock().extend(vec![error; 1_000]);
    };
    fail_with(Error::Overloaded("partition 1 has too much to do".to_owned()));
    let request = Request::post("/api/v2/write?bucket=b").body(Body::from("m v=2 2")).unwrap();
    let (status, headers, body) = api.send(request).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{}", String::from_utf8_lossy(&body));
    assert!(headers.contains_key("retry-after"));
    api.fake.write_errors.lock().clear();
    fail_with(Error::Internal("broken".to_owned()));
    assert_eq!(api.post("/write?db=b", "m v=2 2").await.0, StatusCode::INTERNAL_SERVER_ERROR);
    api.fake.write_errors.lock().clear();
    assert_eq!(api.query("b", "SELECT count(*) AS n FROM m").await, json!([{"n": 1}]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_that_bring_the_same_names_at_once_all_succeed() {
    let api = Arc::new(Api::new());
    let writers = (0..24).map(|writer| {
        let api = Arc::clone(&api);
        tokio::spawn(async move {
            let line =
                format!("m,t{}=x,w=w{writer} f{}=1,shared=1 {writer}\n", writer % 3, writer % 5);
            api.post("/api/v2/write?bucket=b", &line).await
        })
    });
    for answer in futures::future::join_all(writers).await {
        let (status, body) = answer.unwrap();
        assert_eq!(status, StatusCode::NO_CONTENT, "{body}");
    }
    let rows = api.query("b", "SELECT count(*) AS n, count(shared) AS s FROM m").await;
    assert_eq!(rows, json!([{"n": 24, "s": 24}]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_types_brought_at_once_one_wins_and_the_other_is_told() {
    for _ in 0..10 {
        let api = Arc::new(Api::new());
        let write = |line: &'static str| {
            let api = Arc::clone(&api);
            tokio::spawn(async move { api.post("/api/v2/write?bucket=b", line).await })
        };
        let (float, integer) = tokio::join!(write("m v=1 1"), write("m v=1i 2"));
        let answers = [float.unwrap(), integer.unwrap()];
        let refused: Vec<_> =
            answers.iter().filter(|(status, _)| *status != StatusCode::NO_CONTENT).collect();
        assert_eq!(refused.len(), 1, "{answers:?}");
        assert!(refused[0].1["message"].as_str().unwrap().contains("invalid column type"));
        assert_eq!(api.query("b", "SELECT count(*) AS n FROM m").await, json!([{"n": 1}]));
    }
}

#[tokio::test]
async fn parameters_stay_values() {
    let api = Api::new();
    api.post("/api/v2/write?bucket=b", "m,host=a v=1 1\nm,host=b v=2 2").await;
    let ask = |params: Value| {
        let body = json!({"db": "b", "q": "SELECT v FROM m WHERE host = $h", "params": params});
        Request::post("/api/v3/query_sql")
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .unwrap()
    };
    let (_, _, body) = api.send(ask(json!({"h": "a"}))).await;
    assert_eq!(body, br#"[{"v":1.0}]"#);
    let (_, _, body) = api.send(ask(json!({"h": "a' OR '1'='1"}))).await;
    assert_eq!(body, b"[]");
    let (status, _, _) = api.send(ask(json!({"other": 1}))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn metrics_count_what_happened() {
    let api = Api::new();
    api.post("/api/v2/write?bucket=b", "m v=1 1\nm v=x 2").await;
    api.get("/no/such/path").await;
    let (_, _, text) = api.send(Request::get("/metrics").body(Body::empty()).unwrap()).await;
    let text = String::from_utf8(text).unwrap();
    for wanted in [
        "partita_line_protocol_lines_total{outcome=\"stored\"} 1\n",
        "partita_line_protocol_lines_total{outcome=\"rejected\"} 1\n",
        "partita_http_requests_total{path=\"/api/v2/write\",method=\"POST\",status=\"400\"} 1\n",
        "partita_http_requests_total{path=\"unknown\",method=\"GET\",status=\"404\"} 1\n",
        "partita_tables 1\n",
        "partita_frontend_rows_written_total 1\n",
    ] {
        assert!(text.contains(wanted), "{wanted} is not in\n{text}");
    }
}

/// The server on a port of its own.
struct Server {
    fake: Arc<Fake>,
    address: std::net::SocketAddr,
    stop: CancellationToken,
    served: JoinHandle<std::io::Result<()>>,
}

impl Server {
    async fn start(options: HttpOptions) -> Self {
        let fake = Fake::new(1);
        let frontend = fake.frontend(FrontendOptions::default()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let served = tokio::spawn(Box::pin(serve(listener, frontend, options, stop.clone())));
        Self { fake, address, stop, served }
    }

    async fn stop(self) {
        self.stop.cancel();
        let served = tokio::time::timeout(PATIENCE, self.served).await;
        served.expect("the server stops").unwrap().unwrap();
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        endpoint.connect().await.unwrap()
    }
}

async fn answer_of(mut socket: TcpStream) -> String {
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE, socket.read_to_end(&mut answer))
        .await
        .expect("the connection ends")
        .unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_response_before_the_body_leaves_the_connection_to_the_next_request() {
    let server = Server::start(HttpOptions::default()).await;
    let ping = b"GET /ping HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let mut socket = server.connect().await;
    let head = b"PATCH /api/v2/orgs/ffffffffffffffff HTTP/1.1\r\nhost: localhost\r\n\
                 content-length: 2\r\n\r\n";
    socket.write_all(head).await.unwrap();
    // The server has seen the head by the time at which another client has its response.
    let mut other = server.connect().await;
    other.write_all(ping).await.unwrap();
    assert!(answer_of(other).await.starts_with("HTTP/1.1 204"));
    socket.write_all(b"{}").await.unwrap();
    socket.write_all(ping).await.unwrap();
    let answers = answer_of(socket).await;
    assert!(answers.starts_with("HTTP/1.1 404") && answers.contains("HTTP/1.1 204"), "{answers}");
    server.stop().await;
}

#[tokio::test]
async fn a_request_in_flight_is_finished_before_the_server_stops() {
    let server = Server::start(HttpOptions::default()).await;
    let mut socket = server.connect().await;
    let head = "POST /api/v2/write?bucket=b HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n\
                content-length: 8\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    let idle = server.connect().await;
    // Said by a server that has begun to read the body.
    let mut said = [0; 25];
    socket.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"HTTP/1.1 100 Continue\r\n\r\n");
    socket.write_all(b"m v=").await.unwrap();
    let fake = Arc::clone(&server.fake);
    server.stop.cancel();
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(server.address).await.is_ok() {
        assert!(Instant::now() < deadline, "new connections are taken");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    socket.write_all(b"1 15").await.unwrap();
    assert!(answer_of(socket).await.starts_with("HTTP/1.1 204"));
    server.stop().await;
    drop(idle);
    assert_eq!(fake.rows("b", "m"), [1]);
}

#[tokio::test]
async fn a_connection_too_many_and_one_that_says_nothing_are_closed() {
    let options = HttpOptions {
        connections_max: 1,
        header_timeout: Duration::from_secs(3),
        ..HttpOptions::default()
    };
    let server = Server::start(options).await;
    let silent = server.connect().await;
    let refused = answer_of(server.connect().await).await;
    assert!(
        refused.starts_with("HTTP/1.1 503") && refused.ends_with("connections\"}"),
        "{refused}"
    );
    assert_eq!(answer_of(silent).await, "");
    // Its place is free again, a moment later.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut socket = server.connect().await;
        let ping = b"GET /ping HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        socket.write_all(ping).await.unwrap();
        // Who is turned away is not read, and the connection may end with a reset.
        let mut answer = Vec::new();
        drop(socket.read_to_end(&mut answer).await);
        if answer.starts_with(b"HTTP/1.1 204") {
            break;
        }
        assert!(Instant::now() < deadline, "{}", String::from_utf8_lossy(&answer));
    }
    server.stop().await;
}

#[tokio::test]
async fn bodies_that_are_too_large_or_too_slow_are_refused() {
    let options = HttpOptions {
        body_bytes_max: 100,
        body_timeout: Duration::from_secs(2),
        ..HttpOptions::default()
    };
    let server = Server::start(options).await;
    let ask = async |head: &str| {
        let mut socket = server.connect().await;
        let head =
            format!("POST /write?db=b HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{head}");
        socket.write_all(head.as_bytes()).await.unwrap();
        answer_of(socket).await
    };
    assert!(ask("content-length: 101\r\n\r\n").await.starts_with("HTTP/1.1 413"));
    let chunk = format!("transfer-encoding: chunked\r\n\r\nc8\r\n{}\r\n", "x".repeat(200));
    assert!(ask(&chunk).await.starts_with("HTTP/1.1 413"));
    assert!(ask("content-length: 50\r\n\r\nm v=1").await.starts_with("HTTP/1.1 408"));
    server.stop().await;
}

#[tokio::test]
async fn rows_of_flight_sql_have_the_schema_of_their_info() {
    let server = Server::start(HttpOptions::default()).await;
    let mut sql = FlightSqlServiceClient::new(server.channel().await);
    for statement in [
        "CREATE TABLE a (id BIGINT NOT NULL PRIMARY KEY, v BIGINT NOT NULL)",
        "CREATE TABLE b (id BIGINT NOT NULL PRIMARY KEY, v BIGINT NOT NULL)",
        "INSERT INTO a VALUES (1, 1)",
        "INSERT INTO b VALUES (1, 5)",
    ] {
        sql.execute_update(statement.to_owned(), None).await.unwrap();
    }
    for query in [
        "SELECT id, v FROM a",
        // The optimizer knows more of these than the plan that was prepared.
        "SELECT current_user",
        "SELECT upper('a') AS u, nullif(1, 2) AS n",
        "SELECT b.v FROM a LEFT JOIN b ON a.id = b.id WHERE b.v > 1",
    ] {
        let info = sql.execute(query.to_owned(), None).await.unwrap();
        let ticket = info.endpoint[0].ticket.clone().unwrap();
        let schema = info.try_decode_schema().unwrap();
        let batches: Vec<RecordBatch> =
            sql.do_get(ticket).await.unwrap().try_collect().await.unwrap();
        assert_eq!(*batches[0].schema(), schema, "{query}");
    }
    drop(sql);
    server.stop().await;
}

#[tokio::test]
async fn flight_shares_the_port() {
    let server = Server::start(HttpOptions::default()).await;
    let mut sql = FlightSqlServiceClient::new(server.channel().await);
    let create = "CREATE TABLE t (host STRING PRIMARY KEY, v DOUBLE)";
    sql.execute_update(create.to_owned(), None).await.unwrap();

    let hosts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let values: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0]));
    let batch = RecordBatch::try_from_iter([("host", hosts), ("v", values)]).unwrap();
    let path = FlightDescriptor::new_path(vec!["public".to_owned(), "t".to_owned()]);
    let rows = futures::stream::iter([Ok(batch.clone()), Ok(batch.slice(0, 1))]);
    let rows = FlightDataEncoderBuilder::new().with_flight_descriptor(Some(path)).build(rows);
    let mut flight = FlightClient::new(server.channel().await);
    let answers: Vec<_> = flight.do_put(rows).await.unwrap().try_collect().await.unwrap();
    let counts: Vec<_> = answers.iter().map(|answer| &answer.app_metadata[..]).collect();
    assert_eq!(counts, [b"2", b"1"]);

    let ticket = json!({"database": "public", "sql_query": "SELECT count(*) AS n FROM t",
        "query_type": "sql"});
    let ticket = Ticket::new(ticket.to_string());
    let batches: Vec<_> = flight.do_get(ticket).await.unwrap().try_collect().await.unwrap();
    assert_eq!(batches[0].column(0).as_primitive::<Int64Type>().value(0), 2);

    let mut prepared =
        sql.prepare("SELECT v FROM t WHERE host = $1".to_owned(), None).await.unwrap();
    let host: ArrayRef = Arc::new(StringArray::from(vec!["b"]));
    prepared.set_parameters(RecordBatch::try_from_iter([("$1", host)]).unwrap()).unwrap();
    let info = prepared.execute().await.unwrap();
    let ticket = info.endpoint[0].ticket.clone().unwrap();
    let batches: Vec<_> = sql.do_get(ticket).await.unwrap().try_collect().await.unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
    prepared.close().await.unwrap();

    let error = sql.execute("SELECT * FROM nope".to_owned(), None).await.unwrap_err();
    assert!(error.to_string().contains("nope"), "{error}");
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let odd = RecordBatch::try_from_iter([("nope", numbers)]).unwrap();
    let path = FlightDescriptor::new_path(vec!["t".to_owned()]);
    let rows = FlightDataEncoderBuilder::new()
        .with_flight_descriptor(Some(path))
        .build(futures::stream::iter([Ok(odd)]));
    let refused = flight.do_put(rows).await.unwrap().try_collect::<Vec<_>>().await.unwrap_err();
    assert!(refused.to_string().contains("nope"), "{refused}");
    drop((sql, flight));
    server.stop().await;
}

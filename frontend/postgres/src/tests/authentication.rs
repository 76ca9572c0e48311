//! Sign-ins as clients see them: passwords, TLS, channel binding, certificates, and sessions that end.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use partita_frontend::access::authenticator::verifier_of;
use partita_proto::access::{Access, Mode, Permission, Role, Scope, Secrets, Token};
use partita_proto::id::{BOOTSTRAP_ROLE, RoleId};
use partita_tls::issue::{Request, init, issue};
use partita_tls::rustls::pki_types::pem::PemObject;
use partita_tls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use partita_tls::rustls::{ClientConfig, RootCertStore, crypto};
use partita_tls::tokio_rustls::TlsConnector;
use partita_tls::tokio_rustls::client::TlsStream;
use partita_tls::{Door as Files, DoorFiles, Reloading, Role as Process, end_point_hash};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Config;
use tokio_postgres::config::{self, SslMode, SslNegotiation};
use tokio_postgres::tls::{self, TlsConnect};

use super::*;
use crate::PostgresTls;

const ANN: RoleId = RoleId(5);
const HOST: &str = "db.example.com";
const TOKEN: &str = "00000000000000ab";

fn role(id: RoleId, name: &str, password: &str) -> Role {
    let mut role = Role::new(id, name);
    role.login = true;
    role.verifier = Some(verifier_of(password).unwrap());
    role.secret_version = 1;
    role
}

/// A cluster with a password of its superuser, `ann` with "secret", and a token of `ann` with the text "text".
fn close(door: &Door) {
    door.fake.edit_access(|access| {
        let version = access.version;
        *access = Access::bootstrap("partita", Secrets::default());
        access.version = version;
        access.put_role(Role { superuser: true, ..role(BOOTSTRAP_ROLE, "partita", "first") });
        access.put_role(role(ANN, "ann", "secret"));
        access.put_role(Role { valid_until_ms: Some(1), ..role(RoleId(6), "past", "secret") });
        access.put_role(Role { login: false, ..role(RoleId(7), "group", "secret") });
        access.put_token(Token {
            id: TOKEN.parse().unwrap(),
            sha256: [1; 32],
            verifier: verifier_of("text").unwrap(),
            description: String::new(),
            owner: ANN,
            org: None,
            created_ms: 0,
            expires_ms: None,
            enabled: true,
            permissions: vec![Permission { mode: Mode::Read, scope: Scope::AllBuckets }],
        });
    });
}

fn config(user: &str, password: &str) -> Config {
    let mut config = Config::new();
    config.user(user).password(password).dbname("public").ssl_mode(SslMode::Disable);
    config
}

async fn connect(door: &Door, config: &Config, tls: Tls) -> Result<Client, tokio_postgres::Error> {
    let socket = TcpStream::connect(("127.0.0.1", door.port)).await.unwrap();
    let (client, connection) = config.connect_raw(socket, tls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn enter(door: &Door, user: &str, password: &str) -> Result<Client, tokio_postgres::Error> {
    let socket = TcpStream::connect(("127.0.0.1", door.port)).await.unwrap();
    let (client, connection) = config(user, password).connect_raw(socket, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// A parameter that the server reports at the start of a session.
async fn parameter(door: &Door, config: &Config, name: &str) -> String {
    let socket = TcpStream::connect(("127.0.0.1", door.port)).await.unwrap();
    let (_client, connection) = config.connect_raw(socket, NoTls).await.unwrap();
    connection.parameter(name).unwrap_or_default().to_owned()
}

async fn current_user(client: &Client) -> String {
    client.query_one("SELECT current_user", &[]).await.unwrap().get(0)
}

fn refusal(result: Result<Client, tokio_postgres::Error>) -> (String, String) {
    let error = result.expect_err("refused");
    let error = error.as_db_error().unwrap_or_else(|| panic!("{error}"));
    (error.code().code().to_owned(), error.message().to_owned())
}

/// Certificates of a door, and of a client whose common name is `ann`.
struct Certificates {
    dir: TempDir,
    server: PathBuf,
    client: PathBuf,
}

impl Certificates {
    fn issue() -> Self {
        let dir = tempfile::tempdir().unwrap();
        init(dir.path()).unwrap();
        let issue = |role, name: &str, hosts: &[&str]| {
            let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
            let request = Request { role, name: name.to_owned(), hosts, days: 30 };
            issue(dir.path(), &request).unwrap()
        };
        let server = issue(Process::Frontend, "frontend1", &[HOST]);
        let client = issue(Process::Admin, "ann", &[]);
        Self { dir, server, client }
    }

    /// Options of a door with the certificate, which knows the authority of the client.
    fn options(&self) -> PostgresOptions {
        let files = DoorFiles {
            certificate: self.server.join("cert.pem"),
            key: self.server.join("key.pem"),
            client_authorities: Some(self.dir.path().join("ca.pem")),
        };
        let tls = Reloading::new(move || Files::load(&files), PostgresTls::new).unwrap();
        PostgresOptions {
            tls: Some(Arc::new(tls)),
            require_tls: true,
            ..PostgresOptions::default()
        }
    }

    /// A client that verifies the server, with a certificate of its own or without one.
    fn client(&self, member: Option<&Path>, alpn: &[&str]) -> Tls {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.dir.path().join("ca.pem")) {
            roots.add(certificate).unwrap();
        }
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match member {
            Some(dir) => {
                let key = std::fs::read(dir.join("key.pem")).unwrap();
                let key = PrivateKeyDer::from_pem_slice(&key).unwrap();
                builder.with_client_auth_cert(certificates(&dir.join("cert.pem")), key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let server = certificates(&self.server.join("cert.pem"));
        let hash = end_point_hash(&server[0]).unwrap();
        Tls { connector: TlsConnector::from(Arc::new(config)), hash: Some(hash) }
    }
}

fn certificates(path: &Path) -> Vec<CertificateDer<'static>> {
    let bytes = std::fs::read(path).unwrap();
    CertificateDer::pem_slice_iter(&bytes).collect::<Result<_, _>>().unwrap()
}

/// TLS of the client, with the hash of the certificate that it believes the server to have.
#[derive(Clone)]
struct Tls {
    connector: TlsConnector,
    hash: Option<Vec<u8>>,
}

struct Bound {
    stream: TlsStream<TcpStream>,
    hash: Option<Vec<u8>>,
}

impl TlsConnect<TcpStream> for Tls {
    type Stream = Bound;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Bound>> + Send>>;

    fn connect(self, stream: TcpStream) -> Self::Future {
        Box::pin(async move {
            let host = ServerName::try_from(HOST).unwrap();
            let stream = self.connector.connect(host, stream).await?;
            Ok(Bound { stream, hash: self.hash })
        })
    }
}

impl tls::TlsStream for Bound {
    fn channel_binding(&self) -> tls::ChannelBinding {
        match &self.hash {
            Some(hash) => tls::ChannelBinding::tls_server_end_point(hash.clone()),
            None => tls::ChannelBinding::none(),
        }
    }
}

impl AsyncRead for Bound {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Bound {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn an_open_cluster_asks_for_nothing() {
    let door = Door::open(8).await;
    let client = door.connect().await;
    assert_eq!(current_user(&client).await, "partita");
}

#[tokio::test]
async fn a_password_or_the_text_of_a_token_gives_a_session() {
    let door = Door::open(8).await;
    close(&door);
    assert_eq!(current_user(&enter(&door, "ann", "secret").await.unwrap()).await, "ann");
    assert_eq!(current_user(&enter(&door, TOKEN, "text").await.unwrap()).await, "ann");
    for (user, password, is_superuser) in [("partita", "first", "on"), ("ann", "secret", "off")] {
        let reported =
            async |name: &'static str| parameter(&door, &config(user, password), name).await;
        assert_eq!(reported("is_superuser").await, is_superuser);
        assert_eq!(reported("session_authorization").await, user);
    }
}

#[tokio::test]
async fn everything_wrong_is_refused_with_the_same_error() {
    let door = Door::open(8).await;
    close(&door);
    let cases =
        [("ann", "wrong"), ("nobody", "x"), ("past", "secret"), ("group", "secret"), (TOKEN, "x")];
    for (user, password) in cases {
        let expected = format!("password authentication failed for user \"{user}\"");
        assert_eq!(refusal(enter(&door, user, password).await), ("28P01".to_owned(), expected));
    }
}

#[tokio::test]
async fn sign_ins_and_changes_are_recorded_with_the_address() {
    let door = Door::open(8).await;
    close(&door);
    refusal(enter(&door, "ann", "wrong").await);
    refusal(enter(&door, "a secret in the wrong place", "wrong").await);
    let client = enter(&door, "partita", "first").await.unwrap();
    client.batch_execute("CREATE DATABASE d").await.unwrap();
    let entries = door.frontend.audit().entries();
    let found: Vec<String> = entries
        .iter()
        .map(|entry| {
            let user = entry.user.as_deref().unwrap_or("-");
            let peer = entry.peer.map(|peer| peer.to_string()).unwrap_or_default();
            let (door, outcome) = (entry.door.name(), entry.outcome.name());
            format!("{user} {} {outcome} {door} {peer}", entry.action)
        })
        .collect();
    for expected in [
        "ann SIGN IN failed postgres 127.0.0.1",
        "- SIGN IN failed postgres 127.0.0.1",
        "partita SIGN IN done postgres 127.0.0.1",
        "partita CREATE DATABASE done postgres 127.0.0.1",
    ] {
        assert!(found.iter().any(|line| line == expected), "{expected}: {found:#?}");
    }
    assert!(!format!("{entries:?}").contains("wrong place"));
}

#[tokio::test]
async fn failures_are_delayed_and_then_refused() {
    let door = Door::open(32).await;
    close(&door);
    // Five attempts are free, the sixth waits for five seconds, and the others are refused.
    let attempts = (0..7).map(|_| enter(&door, "ann", "wrong"));
    let refused = futures::future::join_all(attempts).await.into_iter().map(refusal);
    let limited = refused.filter(|(_, message)| message.starts_with("too many")).count();
    assert_eq!(limited, 1);
}

#[tokio::test]
async fn the_settings_of_a_role_come_before_those_of_the_client() {
    let door = Door::open(8).await;
    close(&door);
    door.fake.edit_access(|access| {
        let mut ann = role(ANN, "ann", "secret");
        ann.settings.insert("statement_timeout".to_owned(), "7s".to_owned());
        ann.settings.insert("application_name".to_owned(), "reports".to_owned());
        ann.settings.insert("no_such_setting".to_owned(), "x".to_owned());
        access.put_role(ann);
    });
    let client = enter(&door, "ann", "secret").await.unwrap();
    let application = parameter(&door, &config("ann", "secret"), "application_name").await;
    assert_eq!(application, "reports");
    let row = client.query_one("SHOW statement_timeout", &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), "7s");
    let mut options = config("ann", "secret");
    options.options("-c statement_timeout=9s");
    let socket = TcpStream::connect(("127.0.0.1", door.port)).await.unwrap();
    let (client, connection) = options.connect_raw(socket, NoTls).await.unwrap();
    tokio::spawn(connection);
    let row = client.query_one("SHOW statement_timeout", &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), "9s");
    // They are the defaults of the session.
    for reset in ["RESET statement_timeout", "RESET ALL", "DISCARD ALL"] {
        client.batch_execute("SET statement_timeout = '3s'").await.unwrap();
        client.batch_execute(reset).await.unwrap();
        let row = client.query_one("SHOW statement_timeout", &[]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), "9s", "{reset}");
    }
}

#[tokio::test]
async fn a_session_without_tls_is_refused_where_it_is_required() {
    let files = Certificates::issue();
    let door = Door::open_with(files.options()).await;
    close(&door);
    for password in ["secret", "wrong"] {
        let (code, message) = refusal(enter(&door, "ann", password).await);
        assert_eq!(
            (code.as_str(), message.as_str()),
            ("28000", "connection refused: no encryption")
        );
    }
}

#[tokio::test]
async fn a_channel_is_bound_to_the_certificate_of_the_server() {
    let files = Certificates::issue();
    let door = Door::open_with(files.options()).await;
    close(&door);
    let tls = files.client(None, &[]);
    let mut config = config("ann", "secret");
    config.ssl_mode(SslMode::Require).channel_binding(config::ChannelBinding::Require);
    let client = connect(&door, &config, tls.clone()).await.unwrap();
    assert_eq!(current_user(&client).await, "ann");
    // A man in the middle has another certificate.
    let other = Tls { hash: Some(vec![9; 32]), ..tls.clone() };
    assert_eq!(refusal(connect(&door, &config, other).await).0, "28000");
    // A client that does not know of channel binding gets a session, unless it requires it.
    let unbound = Tls { hash: None, ..tls };
    assert!(connect(&door, &config, unbound.clone()).await.is_err());
    config.channel_binding(config::ChannelBinding::Prefer);
    assert!(connect(&door, &config, unbound).await.is_ok());
}

#[tokio::test]
async fn a_removed_offer_of_channel_binding_is_noticed() {
    let files = Certificates::issue();
    let door = Door::open_with(files.options()).await;
    close(&door);
    let tls = files.client(None, &["postgresql"]);
    let socket = TcpStream::connect(("127.0.0.1", door.port)).await.unwrap();
    let mut stream = tls.connect(socket).await.unwrap().stream;
    stream.write_all(&startup("ann")).await.unwrap();
    stream.flush().await.unwrap();
    let (kind, body) = next_of(&mut stream).await;
    assert_eq!((kind, &body[..4]), (b'R', [0, 0, 0, 10].as_slice()));
    assert!(body[4..].starts_with(b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0"), "{body:?}");
    // The client supports channel binding, and was told that the server does not.
    let first = b"y,,n=,r=abcdefgh";
    let mut response = b"SCRAM-SHA-256\0".to_vec();
    response.extend(u32::try_from(first.len()).unwrap().to_be_bytes());
    response.extend(first);
    stream.write_all(&message(b'p', &response)).await.unwrap();
    stream.flush().await.unwrap();
    let (kind, body) = next_of(&mut stream).await;
    assert_eq!((kind, sqlstate(&body).as_str()), (b'E', "28000"));
}

#[tokio::test]
async fn a_direct_handshake_needs_the_name_of_the_protocol() {
    let files = Certificates::issue();
    let door = Door::open_with(files.options()).await;
    close(&door);
    let mut config = config("ann", "secret");
    config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
    let client = connect(&door, &config, files.client(None, &["postgresql"])).await.unwrap();
    assert_eq!(current_user(&client).await, "ann");
    assert!(connect(&door, &config, files.client(None, &[])).await.is_err());
    assert!(connect(&door, &config, files.client(None, &["http/1.1"])).await.is_err());
}

#[tokio::test]
async fn a_certificate_replaces_the_password_of_its_name_if_the_option_is_on() {
    let files = Certificates::issue();
    for is_on in [true, false] {
        let options = PostgresOptions { client_certificates: is_on, ..files.options() };
        let door = Door::open_with(options).await;
        close(&door);
        let certified = files.client(Some(&files.client), &[]);
        let mut config = Config::new();
        config.user("ann").dbname("public").ssl_mode(SslMode::Require);
        assert_eq!(connect(&door, &config, certified.clone()).await.is_ok(), is_on);
        // The certificate of another name, and none.
        config.user("partita");
        assert!(connect(&door, &config, certified.clone()).await.is_err());
        config.user("ann");
        assert!(connect(&door, &config, files.client(None, &[])).await.is_err());
        // A password is as good as without a certificate.
        config.user("partita").password("first");
        assert!(connect(&door, &config, certified).await.is_ok());
    }
}

#[tokio::test]
async fn a_session_ends_within_a_second_of_its_identity() {
    let door = Door::open(8).await;
    close(&door);
    let (idle, busy) = (
        enter(&door, "ann", "secret").await.unwrap(),
        enter(&door, "ann", "secret").await.unwrap(),
    );
    let other = enter(&door, "partita", "first").await.unwrap();
    let sleep = tokio::spawn(async move { busy.batch_execute("SELECT pg_sleep(600)").await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    door.fake.edit_access(|access| access.drop_role(ANN));
    let began = Instant::now();
    let error = sleep.await.unwrap().unwrap_err();
    assert_eq!(state(&error), "28000");
    while !idle.is_closed() {
        assert!(began.elapsed() < PATIENCE, "the idle session is still open");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(current_user(&other).await, "partita");
}

#[tokio::test]
async fn a_copy_ends_when_its_right_does() {
    let door = Door::open(8).await;
    let client = door.connect().await;
    client.batch_execute(EVENTS).await.unwrap();
    close(&door);
    let boss = |superuser| Role { superuser, ..role(RoleId(8), "boss", "secret") };
    door.fake.edit_access(|access| access.put_role(boss(true)));
    let client = enter(&door, "boss", "secret").await.unwrap();
    let sink = client.copy_in("COPY events (host, ts, n) FROM STDIN").await.unwrap();
    let mut sink = Box::pin(sink);
    sink.send(bytes::Bytes::from_static(b"a\t2024-01-01\t1\n")).await.unwrap();
    // The session stays, because the role may log in as before.
    door.fake.edit_access(|access| access.put_role(boss(false)));
    let error = sink.as_mut().finish().await.unwrap_err();
    assert!(["42501", "42P01"].contains(&state(&error)), "{error}");
    assert!(client.batch_execute("SELECT 1").await.is_ok());
}

#[tokio::test]
async fn hostile_bytes_before_the_session_end_only_their_connection() {
    let files = Certificates::issue();
    let options = PostgresOptions { require_tls: false, ..files.options() };
    let door = Door::open_with(options).await;
    close(&door);
    let ssl_request = [0, 0, 0, 8, 4, 210, 22, 47];
    let long = [b"p".as_slice(), &60_000_u32.to_be_bytes()].concat();
    let attempts: [Vec<u8>; 7] = [
        vec![0xff; 64],
        // Clear text behind the request for TLS is no message.
        [ssl_request.as_slice(), &startup("ann")].concat(),
        // A handshake that is none.
        b"\x16\x03\x01\x00\x05hello".to_vec(),
        [startup("ann"), long].concat(),
        // A password in clear text, a statement in place of a response, another startup message.
        [startup("ann"), message(b'p', b"secret\0")].concat(),
        [startup("ann"), message(b'Q', b"SELECT 1\0")].concat(),
        [startup("ann"), startup("ann")].concat(),
    ];
    for bytes in attempts {
        let mut socket = TcpStream::connect(("127.0.0.1", door.port)).await.unwrap();
        socket.write_all(&bytes).await.unwrap();
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut answer)).await;
        // The server hangs up, perhaps with bytes unread.
        drop(read.expect("the connection ends"));
        let is_ok = |window: &[u8]| window == b"R\0\0\0\x08\0\0\0\0";
        assert!(!answer.windows(9).any(is_ok), "{bytes:?} gave a session");
    }
    assert!(enter(&door, "ann", "secret").await.is_ok());
}

fn startup(user: &str) -> Vec<u8> {
    let parameters =
        [b"\0\x03\0\0user\0".as_slice(), user.as_bytes(), b"\0database\0public\0\0"].concat();
    let length = u32::try_from(parameters.len() + 4).unwrap();
    [length.to_be_bytes().as_slice(), &parameters].concat()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [[kind].as_slice(), &length.to_be_bytes(), body].concat()
}

async fn next_of(stream: &mut (impl AsyncRead + Unpin)) -> (u8, Vec<u8>) {
    let kind = stream.read_u8().await.unwrap();
    let length = stream.read_u32().await.unwrap();
    let mut body = vec![0; length as usize - 4];
    stream.read_exact(&mut body).await.unwrap();
    (kind, body)
}

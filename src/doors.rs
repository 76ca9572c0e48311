//! Listeners of a frontend ("doors"): their addresses and options, and the draining of requests when the process
//! stops.
//!
//! Beyond loopback a door has TLS, and the superuser a password, unless `--insecure` is given.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use partita_frontend::audit::{AuditOptions, ENTRIES_MAX};
use partita_frontend::{Frontend, FrontendOptions};
use partita_http::{Guard, HttpOptions};
use partita_postgres::{PostgresOptions, PostgresTls};
use partita_proto::health::Health;
use partita_proto::id::NodeId;
use partita_tls::rustls::ServerConfig;
use partita_tls::{Door, DoorFiles, RELOAD_INTERVAL, Reloading, TlsOptions};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::certificates;
use crate::files_limit::Connections;
use crate::memory;
use crate::outlet;
use crate::password::First;

/// Default memory for queries before they spill, in MiB.
const QUERY_MEMORY_MB: usize = 512;
/// Connections that the system queues for a door until they are accepted.
const BACKLOG: u32 = 1024;
/// Maximum time for requests in flight to end at shutdown.
const DRAIN: Duration = Duration::from_secs(10);

/// Options of every process with a frontend.
#[derive(clap::Args)]
// Flattened into the options of several roles: the groups would have the same name.
#[group(skip)]
pub(crate) struct Options {
    /// Address of HTTP and Arrow Flight (line protocol, SQL over HTTP, metrics).
    #[arg(long, env = "PARTITA_HTTP", default_value = "127.0.0.1:4000")]
    http: SocketAddr,
    /// Address of the PostgreSQL protocol.
    #[arg(long, env = "PARTITA_POSTGRES", default_value = "127.0.0.1:4003")]
    postgres: SocketAddr,
    /// Listen beyond loopback without TLS or without a password.
    #[arg(long, env = "PARTITA_INSECURE")]
    insecure: bool,
    #[command(flatten)]
    pub(crate) certificates: certificates::Options,
    #[command(flatten)]
    pub(crate) outlet: outlet::Options,
    /// Certificate of the server for clients, followed by those above it; by default cert.pem in --certs. Changed files
    /// are used without a restart.
    #[arg(long, env = "PARTITA_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert; by default key.pem in --certs.
    #[arg(long, env = "PARTITA_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Authorities of client certificates: a PostgreSQL client with a certificate for its user needs no password.
    #[arg(long, env = "PARTITA_TLS_CLIENT_CA", value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
    /// Refuse PostgreSQL connections without TLS; always so beyond loopback, unless --insecure is given.
    #[arg(long, env = "PARTITA_REQUIRE_TLS")]
    require_tls: bool,
    /// Serve /metrics to everybody, without the series that name tables.
    #[arg(long, env = "PARTITA_METRICS_OPEN")]
    metrics_open: bool,
    /// File with the first password of the superuser, or its SCRAM-SHA-256 verifier; a password that exists stays.
    /// Without it, the first start beyond loopback makes a password and prints it on standard error.
    #[arg(long, env = "PARTITA_INITIAL_PASSWORD_FILE", value_name = "FILE")]
    initial_password_file: Option<PathBuf>,
    /// Host name by which HTTP clients call this server; IP addresses and localhost are always accepted, * accepts
    /// every name.
    #[arg(long, env = "PARTITA_HTTP_HOST", value_name = "NAME", value_delimiter = ',')]
    http_host: Vec<String>,
    /// Origin, scheme://host:port, whose web pages may use HTTP; others are refused.
    #[arg(long, env = "PARTITA_HTTP_ORIGIN", value_name = "ORIGIN", value_delimiter = ',')]
    http_origin: Vec<String>,
    /// Maximum PostgreSQL connections, within the limit of open files.
    #[arg(long, env = "PARTITA_MAX_CONNECTIONS", value_name = "CONNECTIONS")]
    max_connections: Option<usize>,
    /// MiB of memory for queries; larger ones spill to disk.
    #[arg(long, env = "PARTITA_QUERY_MEMORY_MB", default_value_t = QUERY_MEMORY_MB)]
    query_memory_mb: usize,
    /// MiB of resident memory above which statements are interrupted and refused; 0: 80 % of the machine's memory.
    #[arg(long, env = "PARTITA_MEMORY_LIMIT_MB", default_value_t = 0)]
    memory_limit_mb: u64,
    /// Seconds after which a statement is cancelled; 0: never. Sessions may SET statement_timeout.
    #[arg(long, env = "PARTITA_STATEMENT_TIMEOUT_S", default_value_t = 0)]
    statement_timeout_s: u64,
    /// Directory below which COPY may read and write files of this server, by superusers and administrators; without it
    /// COPY uses no files.
    #[arg(long, env = "PARTITA_COPY_DIRECTORY", value_name = "DIRECTORY")]
    copy_directory: Option<PathBuf>,
    /// Record every statement in the audit, not only changes, orders, sign-ins and what was refused.
    #[arg(long, env = "PARTITA_AUDIT_STATEMENTS")]
    audit_statements: bool,
    /// Maximum entries of sys.audit; 0: log lines only.
    #[arg(long, env = "PARTITA_AUDIT_ENTRIES", default_value_t = ENTRIES_MAX)]
    audit_entries: usize,
}

impl Options {
    /// Options of the frontend.
    pub(crate) fn frontend(&self, node: NodeId, spill_dir: PathBuf) -> FrontendOptions {
        FrontendOptions {
            node,
            query_memory_bytes: self.query_memory_mb << 20,
            statement_timeout: (self.statement_timeout_s > 0)
                .then(|| Duration::from_secs(self.statement_timeout_s)),
            spill_dir: Some(spill_dir),
            copy_directory: self.copy_directory.clone(),
            audit: AuditOptions {
                statements: self.audit_statements,
                entries_max: self.audit_entries,
                ..AuditOptions::default()
            },
            ..FrontendOptions::default()
        }
    }

    /// Binds the addresses before anything is opened: a second server on the same ports ends here. Also returns the
    /// first password of the superuser.
    ///
    /// # Errors
    /// If an address is in use, or reachable from other machines without TLS and without `--insecure`, or a file cannot
    /// be used.
    pub(crate) fn take(&self) -> anyhow::Result<(Doors, First)> {
        let exposed =
            [self.http, self.postgres].into_iter().find(|address| !address.ip().is_loopback());
        let tls = self.tls_files()?.map(Tls::new).transpose()?;
        if let Some(address) = exposed
            && tls.is_none()
            && !self.insecure
        {
            bail!(
                "{address} is reachable from other machines, and without TLS passwords and rows can be read on the \
                 way; use --tls-cert and --tls-key, or --certs, or --insecure to allow this"
            );
        }
        if self.require_tls && tls.is_none() {
            bail!("--require-tls needs --tls-cert and --tls-key, or --certs");
        }
        let is_guarded = exposed.is_some() && !self.insecure;
        if let Some(directory) = &self.copy_directory
            && !directory.is_dir()
        {
            bail!("{} of --copy-directory is not a directory", directory.display());
        }
        let password = First::of(self.initial_password_file.as_deref(), is_guarded)?;
        let guard = Guard::new(&self.http_host, &self.http_origin).map_err(anyhow::Error::msg)?;
        let memory_limit = match self.memory_limit_mb {
            0 => memory::default_limit(),
            megabytes => megabytes << 20,
        };
        let doors = Doors {
            memory_limit,
            guard,
            tls,
            require_tls: self.require_tls || is_guarded,
            client_certificates: self.tls_client_ca.is_some(),
            metrics_open: self.metrics_open,
            max_connections: self.max_connections,
            http: take(self.http).with_context(|| taken(self.http, "--http"))?,
            postgres: take(self.postgres).with_context(|| taken(self.postgres, "--postgres"))?,
        };
        Ok((doors, password))
    }

    /// Files of the certificate for clients: their own, or those for links.
    fn tls_files(&self) -> anyhow::Result<Option<DoorFiles>> {
        let client_authorities = self.tls_client_ca.clone();
        if let (Some(certificate), Some(key)) = (self.tls_cert.clone(), self.tls_key.clone()) {
            return Ok(Some(DoorFiles { certificate, key, client_authorities }));
        }
        match self.certificates.files()? {
            Some(files) => Ok(Some(DoorFiles {
                certificate: files.certificate,
                key: files.key,
                client_authorities,
            })),
            None if client_authorities.is_some() => {
                bail!("--tls-client-ca needs --tls-cert and --tls-key, or --certs")
            }
            None => Ok(None),
        }
    }
}

/// TLS of the doors, which follows its files.
struct Tls {
    http: Arc<Reloading<Arc<ServerConfig>>>,
    postgres: Arc<Reloading<PostgresTls>>,
}

impl Tls {
    fn new(files: DoorFiles) -> anyhow::Result<Self> {
        let postgres_files = files.clone();
        let options = TlsOptions { tls12: true, alpn: partita_http::alpn() };
        let http = Reloading::new(
            move || Door::load(&files),
            move |door: &Door| door.server_config(&options),
        );
        let http = http.context("cannot use the certificate for clients")?;
        let postgres = Reloading::new(move || Door::load(&postgres_files), PostgresTls::new)
            .context("cannot use the certificate for clients")?;
        Ok(Self { http: Arc::new(http), postgres: Arc::new(postgres) })
    }

    /// Uses changed files in tasks, until `stop`.
    fn follow(&self, stop: &CancellationToken) {
        let ticks = || {
            let mut ticks = interval(RELOAD_INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        };
        tokio::spawn(Arc::clone(&self.http).follow(ticks(), stop.clone()));
        tokio::spawn(Arc::clone(&self.postgres).follow(ticks(), stop.clone()));
    }
}

/// Sockets that are bound but do not listen yet: clients are refused at once, instead of waiting for an unknown time.
pub(crate) struct Doors {
    /// Limit of resident memory, in bytes.
    memory_limit: u64,
    guard: Guard,
    tls: Option<Tls>,
    require_tls: bool,
    client_certificates: bool,
    metrics_open: bool,
    max_connections: Option<usize>,
    http: TcpSocket,
    postgres: TcpSocket,
}

impl Doors {
    /// Starts to listen and serve, and prints the addresses on standard output.
    ///
    /// # Errors
    /// If another process has begun to listen there, or the addresses cannot be determined.
    pub(crate) fn open(
        self,
        frontend: &Arc<Frontend>,
        health: Arc<dyn Health>,
    ) -> anyhow::Result<OpenDoors> {
        // Both doors listen before either is announced.
        let (http, postgres) = (self.http.local_addr()?, self.postgres.local_addr()?);
        let http_door = self.http.listen(BACKLOG).with_context(|| taken(http, "--http"))?;
        let postgres_door =
            self.postgres.listen(BACKLOG).with_context(|| taken(postgres, "--postgres"))?;
        announce(http_door.local_addr()?, postgres_door.local_addr()?, self.tls.is_some());
        if frontend.authenticator().is_open() {
            let notice = open_notice(http, postgres);
            if http.ip().is_loopback() && postgres.ip().is_loopback() {
                tracing::info!("{notice}");
            } else {
                tracing::warn!("{notice}");
            }
        }
        let connections = Connections::allowed();
        let http_options = HttpOptions {
            connections_max: connections.http,
            guard: self.guard,
            health,
            tls: self.tls.as_ref().map(|tls| Arc::clone(&tls.http)),
            metrics_open: self.metrics_open,
            ..HttpOptions::default()
        };
        // Storage keeps half of the files: an option may lower the number of connections, not raise it.
        let most = self.max_connections.unwrap_or(connections.postgres);
        let postgres_options = PostgresOptions {
            max_connections: most.min(connections.postgres),
            tls: self.tls.as_ref().map(|tls| Arc::clone(&tls.postgres)),
            require_tls: self.require_tls,
            client_certificates: self.client_certificates,
            ..PostgresOptions::default()
        };
        // Memory is watched as long as statements can arrive.
        let stop = CancellationToken::new();
        memory::keep_below(self.memory_limit, frontend, stop.clone())
            .context("cannot start the thread that watches memory")?;
        if let Some(tls) = &self.tls {
            tls.follow(&stop);
        }
        let (http_stop, postgres_stop) = (stop.clone(), stop.clone());
        let (http, postgres) = (Arc::clone(frontend), Arc::clone(frontend));
        let serving = tokio::spawn(async move {
            let (http, postgres) = tokio::join!(
                partita_http::serve(http_door, http, http_options, http_stop),
                partita_postgres::serve(postgres_door, postgres, postgres_options, postgres_stop),
            );
            http.context("the HTTP door failed")?;
            postgres.context("the PostgreSQL door failed")
        });
        Ok(OpenDoors { serving, stop })
    }
}

/// Doors that serve requests.
pub(crate) struct OpenDoors {
    serving: JoinHandle<anyhow::Result<()>>,
    stop: CancellationToken,
}

impl OpenDoors {
    /// Refuses new requests, and waits for those in flight, for at most `DRAIN`.
    ///
    /// # Errors
    /// If a door had failed.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        self.stop.cancel();
        match tokio::time::timeout(DRAIN, self.serving).await {
            Ok(Ok(served)) => served,
            Ok(Err(error)) => {
                tracing::error!(%error, "a door failed");
                Ok(())
            }
            Err(_) => {
                tracing::warn!("requests in flight did not end within {DRAIN:?}");
                Ok(())
            }
        }
    }
}

/// Binds an address and listens.
///
/// # Errors
/// If it is in use; the error names the option for another address.
pub(crate) async fn listen(address: SocketAddr, option: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| taken(address, option))
}

/// Binds an address without listening yet.
fn take(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // As for every listener: a restarted server need not wait for connections of the previous process.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn taken(address: SocketAddr, option: &str) -> String {
    format!(
        "cannot listen on {address}; is another server running there? use {option} to choose another address"
    )
}

/// Text for the log while the superuser has no password.
fn open_notice(http: SocketAddr, postgres: SocketAddr) -> String {
    let is_local = http.ip().is_loopback() && postgres.ip().is_loopback();
    let place = if is_local { "on this machine" } else { "that reaches these ports" };
    format!(
        "every client {place} is the superuser \"partita\" until a password is set: ALTER ROLE partita PASSWORD '...'"
    )
}

/// Prints the addresses for the person or test that started the process.
fn announce(http: SocketAddr, postgres: SocketAddr, has_tls: bool) {
    let (version, ip, port) = (env!("CARGO_PKG_VERSION"), postgres.ip(), postgres.port());
    let scheme = if has_tls { "https" } else { "http" };
    let text = format!(
        "partita {version} is ready\n  postgres  psql -h {ip} -p {port} -U partita public\n  \
         load      {scheme}://{http}/heatmap\n  http      {scheme}://{http}\n"
    );
    // A closed standard output does not stop the server.
    let mut stdout = std::io::stdout().lock();
    if stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_err() {
        tracing::info!("standard output is closed");
    }
}

/// Waits for SIGTERM or SIGINT.
///
/// # Errors
/// If the signal handlers cannot be installed.
pub(crate) async fn signalled() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use partita_tls::Role;

    use super::*;
    use crate::certificates::tests::issued;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        doors: Options,
    }

    fn options(arguments: &[&str]) -> Options {
        let ports = ["test", "--http", "127.0.0.1:0", "--postgres", "127.0.0.1:0"];
        let arguments = ports.iter().chain(arguments);
        Command::try_parse_from(arguments).unwrap_or_else(|error| panic!("{error}")).doors
    }

    /// Options of which one address is reachable from other machines.
    fn options_beyond(flag: &str) -> Options {
        let mut options = options(&[]);
        let exposed = SocketAddr::from(([0, 0, 0, 0], 0));
        match flag {
            "--http" => options.http = exposed,
            _ => options.postgres = exposed,
        }
        options
    }

    fn refusal(options: &Options) -> String {
        format!("{:#}", options.take().err().expect("the doors must not open"))
    }

    #[tokio::test]
    async fn doors_beyond_loopback_need_tls_or_insecure() {
        assert!(options(&[]).take().is_ok());
        for flag in ["--http", "--postgres"] {
            let text = refusal(&options_beyond(flag));
            assert!(text.contains("--tls-cert") && text.contains("--insecure"), "{text}");
        }
        let mut allowed = options_beyond("--http");
        allowed.insecure = true;
        let (doors, password) = allowed.take().unwrap();
        assert!(!doors.require_tls);
        assert!(matches!(password, First::None));
    }

    #[tokio::test]
    async fn doors_with_tls_beyond_loopback_make_a_password_and_require_tls() {
        let dir = tempfile::tempdir().unwrap();
        let mut guarded = options_beyond("--postgres");
        guarded.certificates = issued(dir.path(), Role::Frontend);
        let (doors, password) = guarded.take().unwrap();
        assert!(doors.require_tls && doors.tls.is_some());
        assert!(matches!(password, First::Made));
        let file = dir.path().join("password");
        std::fs::write(&file, "secret\n").unwrap();
        guarded.initial_password_file = Some(file);
        let (_, password) = guarded.take().unwrap();
        assert!(matches!(password, First::Given(_)));
    }

    #[tokio::test]
    async fn options_of_tls_without_a_certificate_are_refused() {
        for arguments in [&["--require-tls"][..], &["--tls-client-ca", "ca.pem"][..]] {
            let text = refusal(&options(arguments));
            assert!(text.contains("needs --tls-cert and --tls-key"), "{text}");
        }
        let half = ["test", "--tls-cert", "cert.pem"];
        assert!(Command::try_parse_from(half).is_err());
    }

    #[tokio::test]
    async fn the_directory_of_copy_must_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let present = dir.path().to_str().unwrap();
        let allowed = options(&["--copy-directory", present]);
        assert!(allowed.take().is_ok());
        let node = allowed.frontend(NodeId(1), PathBuf::new());
        assert_eq!(node.copy_directory.as_deref(), Some(dir.path()));
        let missing = dir.path().join("missing");
        let text = refusal(&options(&["--copy-directory", missing.to_str().unwrap()]));
        assert!(text.contains("--copy-directory"), "{text}");
    }

    #[test]
    fn the_notice_of_an_open_server_says_who_is_meant() {
        let local: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let exposed: SocketAddr = "0.0.0.0:1".parse().unwrap();
        assert!(open_notice(local, local).contains("on this machine is the superuser \"partita\""));
        assert!(open_notice(local, exposed).contains("that reaches these ports"));
    }
}

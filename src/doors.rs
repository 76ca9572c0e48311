//! Listeners of a frontend ("doors"): their addresses and options, and the draining of requests when the process
//! stops.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use partita_frontend::{Frontend, FrontendOptions};
use partita_http::{Guard, HttpOptions};
use partita_postgres::PostgresOptions;
use partita_proto::health::Health;
use partita_proto::id::NodeId;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::files_limit::Connections;
use crate::memory;

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
    /// Listen beyond loopback although there is no authentication.
    #[arg(long, env = "PARTITA_INSECURE")]
    insecure: bool,
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
            ..FrontendOptions::default()
        }
    }

    /// Binds the addresses before anything is opened: a second server on the same ports ends here.
    ///
    /// # Errors
    /// If an address is in use, or reachable from other machines without `--insecure`.
    pub(crate) fn take(&self) -> anyhow::Result<Doors> {
        for address in [self.http, self.postgres] {
            if !address.ip().is_loopback() && !self.insecure {
                bail!(
                    "{address} is reachable from other machines, and clients are not authenticated; \
                     use --insecure to allow this"
                );
            }
        }
        let guard = Guard::new(&self.http_host, &self.http_origin).map_err(anyhow::Error::msg)?;
        let memory_limit = match self.memory_limit_mb {
            0 => memory::default_limit(),
            megabytes => megabytes << 20,
        };
        Ok(Doors {
            memory_limit,
            guard,
            max_connections: self.max_connections,
            http: take(self.http).with_context(|| taken(self.http, "--http"))?,
            postgres: take(self.postgres).with_context(|| taken(self.postgres, "--postgres"))?,
        })
    }
}

/// Sockets that are bound but do not listen yet: clients are refused at once, instead of waiting for an unknown time.
pub(crate) struct Doors {
    /// Limit of resident memory, in bytes.
    memory_limit: u64,
    guard: Guard,
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
        announce(http_door.local_addr()?, postgres_door.local_addr()?);
        let connections = Connections::allowed();
        let http_options = HttpOptions {
            connections_max: connections.http,
            guard: self.guard,
            health,
            ..HttpOptions::default()
        };
        // Storage keeps half of the files: an option may lower the number of connections, not raise it.
        let most = self.max_connections.unwrap_or(connections.postgres);
        let postgres_options = PostgresOptions {
            max_connections: most.min(connections.postgres),
            ..PostgresOptions::default()
        };
        // Memory is watched as long as statements can arrive.
        let stop = CancellationToken::new();
        memory::keep_below(self.memory_limit, frontend, stop.clone())
            .context("cannot start the thread that watches memory")?;
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

/// Prints the addresses for the person or test that started the process.
fn announce(http: SocketAddr, postgres: SocketAddr) {
    let (version, ip, port) = (env!("CARGO_PKG_VERSION"), postgres.ip(), postgres.port());
    let text = format!(
        "partita {version} is ready\n  postgres  psql -h {ip} -p {port} -U partita public\n  \
         load      http://{http}/heatmap\n  http      http://{http}\n"
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

//! Every role in one process: meta, one datanode, one frontend with its doors.
//!
//! The roles are those of a cluster; here they call each other through the same traits directly.
//! Start: log, meta, datanode (its replicas from its own disk, then what meta says it lacks),
//! frontend, doors. Stop, at SIGTERM or SIGINT: doors (requests in flight end first), datanode
//! (memtables are flushed), meta, log.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use partita_datanode::{Datanode, EngineOptions, NodeOptions};
use partita_frontend::{Frontend, FrontendOptions};
use partita_http::HttpOptions;
use partita_meta::{Meta, MetaOptions};
use partita_postgres::PostgresOptions;
use partita_proto::error::Error;
use partita_proto::id::NodeId;
use partita_proto::service::{DataNodes, DataService};
use partita_raft::{Host, HostOptions};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::clock::SystemClock;
use crate::data_dir;

/// The only node there is.
const NODE: NodeId = NodeId(1);
/// Memory for queries before they spill, in MiB.
const QUERY_MEMORY_MB: usize = 512;
/// Memory for rows that are not in files yet, in MiB.
const MEMTABLE_MB: u64 = 192;
/// Bytes of log after which memtables are flushed so that it can be reclaimed, in MiB.
const LOG_MB: u64 = 1024;
/// How long requests in flight may take to end at shutdown.
const DRAIN: Duration = Duration::from_secs(10);

/// Options of `partita standalone`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where the data is kept; created when it does not exist.
    #[arg(long, env = "PARTITA_DATA_DIR", default_value = "partita-data")]
    data_dir: PathBuf,
    /// Address of HTTP and Arrow Flight (line protocol, SQL over HTTP, metrics).
    #[arg(long, env = "PARTITA_HTTP", default_value = "127.0.0.1:4000")]
    http: SocketAddr,
    /// Address of the PostgreSQL protocol.
    #[arg(long, env = "PARTITA_POSTGRES", default_value = "127.0.0.1:4003")]
    postgres: SocketAddr,
    /// Listen beyond loopback although nobody is asked who they are.
    #[arg(long)]
    insecure: bool,
    /// MiB of memory for queries; larger ones spill to disk.
    #[arg(long, default_value_t = QUERY_MEMORY_MB)]
    query_memory_mb: usize,
    /// MiB of memory for rows that are not in files yet.
    #[arg(long, default_value_t = MEMTABLE_MB)]
    memtable_mb: u64,
    /// MiB of log kept before memtables are flushed to reclaim it.
    #[arg(long, default_value_t = LOG_MB)]
    log_mb: u64,
    /// Seconds after which a statement is cancelled; 0: never. Sessions may SET statement_timeout.
    #[arg(long, default_value_t = 0)]
    statement_timeout_s: u64,
}

/// The one node, as meta and the frontend look for it.
#[derive(Default)]
struct OneNode {
    service: std::sync::OnceLock<Arc<dyn DataService>>,
}

impl DataNodes for OneNode {
    fn node(&self, node: NodeId) -> Result<Arc<dyn DataService>, Error> {
        match self.service.get() {
            Some(service) if node == NODE => Ok(Arc::clone(service)),
            _ => Err(Error::Unavailable(format!("node {node} is not running"))),
        }
    }

    fn all(&self) -> Vec<NodeId> {
        vec![NODE]
    }
}

/// Runs until a signal says stop.
///
/// # Errors
/// When it cannot start, or could not stop cleanly.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    for address in [options.http, options.postgres] {
        if !address.ip().is_loopback() && !options.insecure {
            bail!(
                "{address} can be reached from other machines and nobody would be asked who they are; \
                 say --insecure if that is what you want"
            );
        }
    }
    data_dir::prepare(&options.data_dir)?;
    // Taken before anything is opened: a second server on the same ports ends here.
    let http = listen(options.http, "--http").await?;
    let postgres = listen(options.postgres, "--postgres").await?;

    let roles = Roles::start(&options).await?;
    let stop = CancellationToken::new();
    let doors = tokio::spawn({
        let stop = stop.clone();
        let frontend = Arc::clone(&roles.frontend);
        let http_address = http.local_addr()?;
        let postgres_address = postgres.local_addr()?;
        async move {
            announce(http_address, postgres_address);
            tokio::join!(
                partita_http::serve(
                    http,
                    Arc::clone(&frontend),
                    HttpOptions::default(),
                    stop.clone()
                ),
                partita_postgres::serve(postgres, frontend, PostgresOptions::default(), stop),
            )
        }
    });

    signalled().await?;
    info!("stopping: finishing requests, flushing memtables");
    stop.cancel();
    match tokio::time::timeout(DRAIN, doors).await {
        Ok(Ok((http, postgres))) => {
            http.context("the HTTP door failed")?;
            postgres.context("the PostgreSQL door failed")?;
        }
        Ok(Err(error)) => tracing::error!(%error, "a door failed"),
        Err(_) => tracing::warn!("requests in flight did not end within {DRAIN:?}"),
    }
    roles.stop().await?;
    info!("stopped");
    Ok(())
}

/// The roles, running.
struct Roles {
    host: Arc<Host>,
    meta: Arc<Meta>,
    datanode: Arc<Datanode>,
    frontend: Arc<Frontend>,
    scheduler: tokio::task::JoinHandle<()>,
    stop: CancellationToken,
}

impl Roles {
    async fn start(options: &Options) -> anyhow::Result<Self> {
        let dir = &options.data_dir;
        let host = Host::open(HostOptions {
            log_budget_bytes: options.log_mb << 20,
            ..HostOptions::new(dir.join("log"), NODE)
        })
        .await
        .context("cannot open the log")?;
        let nodes = Arc::new(OneNode::default());
        let as_nodes: Arc<dyn DataNodes> = Arc::<OneNode>::clone(&nodes);
        let meta = Meta::open(
            MetaOptions { dir: dir.join("meta") },
            Arc::clone(&host),
            Arc::clone(&as_nodes),
        )
        .await
        .context("cannot open the catalog")?;
        let datanode = Datanode::open(
            NodeOptions {
                node: NODE,
                dir: dir.clone(),
                memtables_bytes_max: options.memtable_mb << 20,
                engine: EngineOptions::default(),
            },
            Arc::clone(&host),
            Arc::new(SystemClock),
        )
        .await
        .context("cannot open the partitions")?;
        let service: Arc<dyn DataService> = Arc::<Datanode>::clone(&datanode);
        if nodes.service.set(service).is_err() {
            bail!("the datanode was started twice");
        }
        for spec in meta.partitions_of(NODE) {
            let partition = spec.partition;
            datanode
                .open_partition(spec)
                .await
                .with_context(|| format!("cannot open partition {partition}"))?;
        }
        let stop = CancellationToken::new();
        let scheduler = tokio::spawn({
            let (meta, stop) = (Arc::clone(&meta), stop.clone());
            async move { meta.run(stop).await }
        });
        let frontend = Frontend::new(
            FrontendOptions {
                node: NODE,
                query_memory_bytes: options.query_memory_mb << 20,
                statement_timeout: (options.statement_timeout_s > 0)
                    .then(|| Duration::from_secs(options.statement_timeout_s)),
                spill_dir: Some(dir.join("spill")),
                ..FrontendOptions::default()
            },
            Arc::<Meta>::clone(&meta),
            as_nodes,
        )?;
        Ok(Self { host, meta, datanode, frontend, scheduler, stop })
    }

    async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        if let Err(error) = self.scheduler.await {
            tracing::error!(%error, "meta's scheduler failed");
        }
        let datanode = self.datanode.shutdown().await.context("stopping the datanode");
        let meta = self.meta.shutdown().await.context("stopping meta");
        let log = self.host.shutdown().await.context("closing the log");
        datanode.and(meta).and(log)
    }
}

async fn listen(address: SocketAddr, option: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}; is another server running there? choose another address with {option}")
    })
}

#[expect(
    clippy::print_stdout,
    reason = "tells the person, or the test, who started it where it is"
)]
fn announce(http: SocketAddr, postgres: SocketAddr) {
    println!("partita {} is ready", env!("CARGO_PKG_VERSION"));
    println!("  postgres  psql -h {} -p {} -U partita public", postgres.ip(), postgres.port());
    println!("  http      http://{http}");
}

/// Waits for SIGTERM or SIGINT.
async fn signalled() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

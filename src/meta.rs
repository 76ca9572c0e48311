//! `partita meta`: a member of the group that keeps the catalog.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use partita_meta::{Meta, MetaOptions, StoreOpening, TABLES_PER_DATABASE};
use partita_proto::id::{NodeId, ReplicaId};
use partita_proto::service::{ClusterService, DataNodes};
use partita_raft::transport::grpc::{Addresses, Grpc, Service};
use partita_raft::{Host, HostOptions, RaftError};
use partita_rpc::{Directory, MetaServer};
use partita_tls::Links;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tracing::{error, info};

use crate::clock::SystemClock;
use crate::data_dir::{self, Role};
use crate::faults;
use crate::generation;
use crate::health;
use crate::peers;
use crate::rejoin;
use crate::switch::Switch;

/// Bytes of log after which the applied catalog is made durable, so that the log can be reclaimed.
const LOG_BYTES: u64 = 64 << 20;
/// Bytes of one segment: an entry is a change of the catalog.
const SEGMENT_BYTES: u64 = 16 << 20;

/// Options of `partita meta`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Directory for the data; created if it does not exist.
    #[arg(long, env = "PARTITA_DATA_DIR", default_value = "partita-meta")]
    data_dir: PathBuf,
    /// Number of this member among --peers.
    #[arg(long, env = "PARTITA_NODE")]
    node: u64,
    /// All members, including this one: `1=host:port,2=host:port,3=host:port`. The same for all; the first start
    /// fixes the members, addresses may change.
    #[arg(long, env = "PARTITA_PEERS", value_delimiter = ',', value_parser = peer, required = true)]
    peers: Vec<(u64, String)>,
    #[command(flatten)]
    listen: peers::Options,
    /// Replicas of each partition of a table without 'replication_factor'.
    #[arg(long, env = "PARTITA_REPLICATION_FACTOR", default_value_t = 3)]
    replication_factor: u32,
    /// Maximum tables of a database, including those created by line protocol.
    #[arg(long, env = "PARTITA_TABLES_PER_DATABASE", default_value_t = TABLES_PER_DATABASE)]
    tables_per_database: u32,
    /// `off`: no table is cut ahead of peaks that come every day, whatever its option 'forecast' says. The same for all
    /// members.
    #[arg(long, env = "PARTITA_FORECAST", value_enum, default_value_t = Switch::On)]
    forecast: Switch,
    /// This member lost its data for good and starts with an empty data directory: it rejoins the group, which must
    /// have a majority without it. Never for a new group.
    #[arg(long, env = "PARTITA_REJOIN")]
    rejoin: bool,
    /// Seconds without a heartbeat of a datanode after which its replicas are recreated on others.
    #[arg(long, env = "PARTITA_REPAIR_AFTER_S", default_value_t = 300)]
    repair_after_s: u64,
}

fn peer(text: &str) -> Result<(u64, String), String> {
    let (node, address) = text.split_once('=').ok_or("a peer is NUMBER=HOST:PORT")?;
    let node = node.trim().parse().map_err(|_| format!("{node} is not a number"))?;
    Ok((node, address.trim().to_owned()))
}

/// Runs until a signal stops it.
///
/// # Errors
/// If it cannot start, or did not stop cleanly.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let peers: BTreeMap<NodeId, String> =
        options.peers.iter().map(|(node, address)| (NodeId(*node), address.clone())).collect();
    let node = NodeId(options.node);
    if peers.len() != options.peers.len() || !peers.contains_key(&node) {
        bail!("--peers must name every member once, node {node} among them");
    }
    if options.replication_factor == 0 {
        bail!("--replication-factor must be at least 1");
    }
    // The data directory, and a readmission that was interrupted.
    data_dir::prepare(&options.data_dir, Role::Meta)?;
    let mut rejoins = rejoin::resume(&options.data_dir)? || options.rejoin;
    let links = options.listen.certificates.links(Some(partita_tls::Role::Meta))?;
    let listener = options.listen.listen(&links).await?;
    // A damaged member of a larger group is readmitted with an empty directory.
    let (host, meta) = loop {
        match open(&options, node, &peers, (rejoins, &links)).await? {
            Ok(opened) => break opened,
            Err(damage) if peers.len() == 1 => return Err(damage),
            Err(damage) => {
                error!(error = format!("{damage:#}"), "this member's data cannot be used");
                rejoin::until_others_lead(&links, node, &peers).await?;
                rejoin::begin(&options.data_dir)?;
                rejoins = true;
            }
        }
    };
    // Serve the other members before the group works, so that it finds a majority.
    let stop = CancellationToken::new();
    let service: Arc<dyn ClusterService> = Arc::<Meta>::clone(&meta);
    let routes = Routes::new(MetaServer::server(service, stop.clone()))
        .add_service(Service::server(Arc::clone(&host)));
    let address = listener.local_addr()?;
    let health =
        health::Parts { host: Arc::clone(&host), meta: Some(Arc::clone(&meta)), datanode: None };
    let served = peers::start(listener, links, routes, Arc::new(health), stop.clone());
    let work = tokio::spawn({
        let (meta, stop) = (Arc::clone(&meta), stop.clone());
        async move { Box::pin(meta.run(stop)).await }
    });
    peers::announce(&format!("meta {node} is ready on {address}"));
    let refused = tokio::select! {
        ended = faults::signalled_or_failed(&meta) => {
            ended?;
            None
        }
        reason = meta.refused() => Some(reason),
    };
    // Stop serving first, then write the catalog, then close the log.
    info!("stopping");
    stop.cancel();
    for task in [work, served] {
        if let Err(error) = task.await {
            tracing::error!(%error, "a task failed");
        }
    }
    let meta = meta.shutdown().await.context("stopping meta");
    let log = host.shutdown().await.context("closing the log");
    info!("stopped");
    match refused {
        Some(reason) => bail!("meta's group refused this member: {reason}"),
        None => meta.and(log),
    }
}

/// Opens the log and the catalog. The inner error means that they are damaged; nothing is open then.
async fn open(
    options: &Options,
    node: NodeId,
    peers: &BTreeMap<NodeId, String>,
    (rejoins, links): (bool, &Links),
) -> anyhow::Result<anyhow::Result<(Arc<Host>, Arc<Meta>)>> {
    // Members are found by their configured addresses.
    let identity = data_dir::identity(&options.data_dir)?;
    let addresses: Addresses = {
        let peers = peers.clone();
        Arc::new(move |node| peers.get(&node).cloned())
    };
    let host_options = HostOptions {
        log_budget_bytes: LOG_BYTES,
        segment_bytes: SEGMENT_BYTES,
        identity,
        on_log_failure: faults::end_on_log_failure(),
        on_panic: faults::end_on_panic(),
        ..HostOptions::new(options.data_dir.join("log"), node)
    };
    let meta_dir = options.data_dir.join("meta");
    let store = StoreOpening::begin(&meta_dir);
    // Damage is reported to the caller; every other failure ends the start.
    let host = match Host::open_linked(host_options, Grpc::new(links.clone(), addresses)).await {
        Ok(host) => host,
        Err(error @ RaftError::Corrupted(_)) => {
            store.abandon().await;
            return Ok(Err(anyhow::Error::new(error).context("cannot open the log")));
        }
        Err(error) => return Err(error).context("cannot open the log"),
    };
    // Addresses of datanodes come from the catalog.
    let nodes = watch::Sender::default();
    let directory: Arc<dyn DataNodes> = Arc::new(Directory::new(links.clone(), nodes.subscribe()));
    let meta_options = MetaOptions {
        members: peers.keys().map(|node| (ReplicaId(node.0), *node)).collect(),
        replication_factor: options.replication_factor,
        tables_per_database: options.tables_per_database,
        load_dir: Some(options.data_dir.join("meta").join("load")),
        forecast: options.forecast.is_on(),
        repair_after: Duration::from_secs(options.repair_after_s),
        nodes,
        identity,
        rejoins,
        incarnation: data_dir::random(),
        secrets: data_dir::random_secrets()?,
        generations: Some(Arc::new(generation::open(&options.data_dir)?)),
        ..MetaOptions::alone(meta_dir, Arc::new(SystemClock))
    };
    match Meta::open_begun(store, meta_options, Arc::clone(&host), directory).await {
        Ok(meta) => Ok(Ok((host, meta))),
        Err(error) => {
            let damaged = error.is_damage();
            let error = anyhow::Error::new(error).context("cannot open the catalog");
            if damaged {
                host.shutdown().await.context("closing the log")?;
                return Ok(Err(error));
            }
            Err(error)
        }
    }
}

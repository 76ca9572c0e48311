//! `partita datanode`: a node that holds replicas.
//!
//! Start: listen, get a number from meta (once), have meta record a generation of the data directory, open the log
//! and the files on disk, serve, send heartbeats. A node starts only if meta has a leader, because only meta knows
//! whether the directory is an older copy. Stop: transfer leadership, flush, end. A node that was removed from the
//! cluster learns that from meta's answer to a heartbeat, and stops in the same way; its files stay on its disk.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use partita_datanode::generation::{Age, GenerationKeeper};
use partita_datanode::{Datanode, NodeOptions};
use partita_proto::error::Error;
use partita_proto::generation::{RENEW_INTERVAL, Renewal};
use partita_proto::id::{NodeId, PartitionId};
use partita_proto::label::Labels;
use partita_proto::member::Registration;
use partita_proto::service::{ClusterService, DataService, MetaService};
use partita_raft::transport::grpc::{Grpc, Service};
use partita_raft::{Host, HostOptions};
use partita_rpc::{DataServer, MetaClient};
use partita_worker::lanes::{LaneOptions, Lanes};
use partita_worker::{MEMORY_BYTES, Worker};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tracing::{info, warn};

use crate::address_book;
use crate::clock::SystemClock;
use crate::data_dir::{self, Role};
use crate::doors;
use crate::faults;
use crate::generation;
use crate::health;
use crate::heart;
use crate::peers;
use crate::storage;

/// Pause before meta is asked for a number again.
const REGISTER_PAUSE: Duration = Duration::from_millis(500);
/// Maximum time to transfer leadership before the node stops anyway.
const HAND_OVER_WAIT: Duration = Duration::from_secs(8);

/// Options of `partita datanode`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Directory for the data; created if it does not exist.
    #[arg(long, env = "PARTITA_DATA_DIR", default_value = "partita-data")]
    data_dir: PathBuf,
    /// Addresses of meta's members.
    #[arg(long, env = "PARTITA_META", value_delimiter = ',', required = true)]
    meta: Vec<String>,
    #[command(flatten)]
    listen: peers::Options,
    /// Address, `host:port`, by which others reach this node. Default: the address it listens on.
    #[arg(long, env = "PARTITA_ADVERTISE")]
    advertise: Option<String>,
    /// Number for this node; by default the next free one.
    #[arg(long, env = "PARTITA_NODE")]
    node: Option<u64>,
    /// Label of the node, NAME=VALUE, may be repeated; replicas are spread over the values of `zone`. Labels of a
    /// later start replace these.
    #[arg(
        long = "label",
        env = "PARTITA_LABELS",
        value_delimiter = ',',
        value_name = "NAME=VALUE"
    )]
    labels: Vec<String>,
    #[command(flatten)]
    storage: storage::Options,
}

/// Runs until a signal stops it.
///
/// # Errors
/// If it cannot start, or did not stop cleanly.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let dir = &options.data_dir;
    let labels: Labels = options.labels.join(",").parse().context("--label")?;
    data_dir::prepare(dir, Role::Datanode)?;
    let identity = data_dir::identity(dir)?;
    // The address is bound first: meta must know where the node listens.
    let links = options.listen.certificates.links(Some(partita_tls::Role::Datanode))?;
    let listener = options.listen.listen(&links).await?;
    let listening = listener.local_addr()?;
    let address = options.advertise.clone().unwrap_or_else(|| listening.to_string());
    let stop = CancellationToken::new();
    let meta = MetaClient::connect_without_access(&links, options.meta.clone(), stop.clone());
    let configured = options.node.map(NodeId);
    let mut me = Registration { identity, node: configured, address, labels };
    let node = tokio::select! {
        node = number(dir, &me, meta.as_ref()) => node?,
        signal = doors::signalled() => return signal,
    };
    me.node = Some(node);
    // Meta compares the generation of the directory with the recorded one: the directory may be an older copy.
    let mut keeper = GenerationKeeper::new(
        generation::open(dir)?,
        (node, identity),
        Arc::new(data_dir::random),
        RENEW_INTERVAL,
    );
    let renew = |renewal: Renewal| meta.renew(renewal);
    let accepted = options.storage.accepted();
    let accepted: Vec<_> = accepted.iter().map(|group| PartitionId(group.0)).collect();
    let age = tokio::select! {
        age = keeper.confirm(&accepted, renew) => age.context("meta refused this node")?,
        signal = doors::signalled() => return signal,
    };
    let (older, only_copies) = match age {
        Age::Current { alone: only_copies } => (None, only_copies),
        Age::Older { recorded, alone: only_copies } => (Some(recorded), only_copies),
        Age::Unknown => (None, Vec::new()),
    };
    // The log and the partitions; of an older copy, only those that no other node has are used.
    let addresses = address_book::open(dir, meta.members(), stop.clone())?;
    let is_older = older.is_some();
    let transport = Grpc::new(links.clone(), addresses);
    let (host, datanode) = open(&options, node, transport, (is_older, only_copies)).await?;
    if let Some(recorded) = older {
        tokio::select! {
            begun = keeper.begin_anew(recorded, renew) => begun.context("meta refused this node")?,
            signal = doors::signalled() => return signal,
        }
    }
    // Serve: data, fragments of queries, links between groups, and the health check.
    let service: Arc<dyn DataService> = Arc::<Datanode>::clone(&datanode);
    let lanes = Lanes::new(LaneOptions::default(), &Handle::current());
    let worker = Worker::new(Arc::clone(&service), MEMORY_BYTES, lanes)?;
    let routes = Routes::new(DataServer::with_fragments(node, Arc::clone(&service), worker))
        .add_service(Service::server(Arc::clone(&host)));
    // Peers are served until the groups have stopped, because the transfer of leadership needs them.
    let (served, silent) = (CancellationToken::new(), CancellationToken::new());
    let health = health::Parts {
        host: Arc::clone(&host),
        meta: None,
        datanode: Some(Arc::clone(&datanode)),
    };
    let serving = peers::start(listener, links, routes, Arc::new(health), served.clone());
    let mut heart = tokio::spawn(heart::beat(
        node,
        me,
        Arc::clone(&meta) as _,
        Arc::clone(&datanode),
        Some(keeper),
        silent.clone(),
    ));
    peers::announce(&format!("datanode {node} is ready on {listening}"));
    // Run until a signal, or until meta refuses a heartbeat.
    let refused = tokio::select! {
        signal = doors::signalled() => {
            signal?;
            None
        }
        ended = &mut heart => Some(ended),
    };
    info!("stopping: transferring leaders, flushing memtables");
    if tokio::time::timeout(HAND_OVER_WAIT, datanode.hand_over()).await.is_err() {
        warn!("not all leaders were transferred");
    }
    // Heartbeats end first, then the partitions, then the connections of peers, then the log.
    silent.cancel();
    let stopped = datanode.shutdown().await.context("stopping the datanode");
    served.cancel();
    let beaten = match refused {
        Some(ended) => ended,
        None => heart.await,
    };
    let beaten = match beaten {
        Ok(beaten) => beaten.context("meta no longer accepts this node"),
        Err(error) => Err(error).context("the heartbeat failed"),
    };
    if let Err(error) = serving.await {
        tracing::error!(%error, "a task failed");
    }
    let log = host.shutdown().await.context("closing the log");
    stop.cancel();
    info!("stopped");
    stopped.and(log).and(beaten)
}

/// Opens the node's log and partitions. `is_older`: the directory is an older copy; `only_copies`: partitions that may
/// be used in spite of that, because no other node has them.
async fn open(
    options: &Options,
    node: NodeId,
    transport: Arc<Grpc>,
    (is_older, only_copies): (bool, Vec<PartitionId>),
) -> anyhow::Result<(Arc<Host>, Arc<Datanode>)> {
    let dir = &options.data_dir;
    // The log first: partitions replay it.
    let host_options = HostOptions {
        log_budget_bytes: options.storage.log_bytes(),
        on_log_failure: faults::end_on_log_failure(),
        on_panic: faults::end_on_panic(),
        accepted: options.storage.accepted(),
        ..HostOptions::new(dir.join("log"), node)
    };
    let host = Host::open_linked(host_options, transport).await.context("cannot open the log")?;
    let datanode = Datanode::open(
        NodeOptions {
            node,
            dir: dir.clone(),
            memtables_bytes_max: options.storage.memtable_bytes(),
            engine: options.storage.engine(),
            put_aside: true,
            older: is_older,
            accepted: only_copies.into_iter().collect(),
            trash_keep: options.storage.trash_keep(),
            partition_rows_per_s: options.storage.partition_rows_per_s(),
        },
        Arc::clone(&host),
        Arc::new(SystemClock),
    )
    .await
    .context("cannot open the partitions")?;
    Ok((host, datanode))
}

/// This node's number: the stored one, or a new one from meta, for which it waits.
async fn number(
    dir: &std::path::Path,
    me: &Registration,
    meta: &MetaClient,
) -> anyhow::Result<NodeId> {
    // A directory keeps its number; an option can only confirm it.
    let stored = data_dir::node(dir)?;
    if let Some(stored) = stored {
        if let Some(configured) = me.node.filter(|configured| *configured != stored) {
            anyhow::bail!(
                "the data directory {} belongs to node {stored}, not to node {configured}",
                dir.display()
            );
        }
        return Ok(stored);
    }
    // Refusals are final; everything else is retried, and logged once per cause.
    let mut last_error = String::new();
    loop {
        match meta.register(me.clone()).await {
            Ok(node) => {
                data_dir::keep_node(dir, node)?;
                return Ok(node);
            }
            Err(
                error @ (Error::InvalidInput(_)
                | Error::Unsupported(_)
                | Error::NotAllowed(_)
                | Error::Unauthenticated(_)),
            ) => {
                return Err(error).context("meta refused this node");
            }
            Err(error) => {
                let text = error.to_string();
                if text != last_error {
                    warn!(%error, "waiting for meta to give this node a number");
                    last_error = text;
                }
            }
        }
        tokio::time::sleep(REGISTER_PAUSE).await;
    }
}

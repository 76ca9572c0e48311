//! All roles in one process: meta, one datanode, one frontend with its doors.
//!
//! The roles are those of a cluster; here they call each other through the same traits directly.
//! Start: log, meta, datanode (its replicas come from its own disk and log; one that meta records and neither has
//! is an error, and is not recreated), frontend, doors. Stop, at SIGTERM or SIGINT: doors (requests in flight end
//! first), datanode (memtables are flushed), meta, log.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use partita_datanode::{Datanode, NodeOptions};
use partita_frontend::Frontend;
use partita_meta::{Meta, MetaOptions, StoreOpening, TABLES_PER_DATABASE};
use partita_proto::error::Error;
use partita_proto::id::NodeId;
use partita_proto::label::Labels;
use partita_proto::member::Registration;
use partita_proto::service::{ClusterService, DataNodes, DataService, FragmentService};
use partita_raft::{Host, HostOptions};
use partita_worker::lanes::{LaneOptions, Lanes};
use partita_worker::{MEMORY_BYTES, Worker};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::clock::SystemClock;
use crate::data_dir::{self, Role};
use crate::doors;
use crate::faults;
use crate::health;
use crate::heart;
use crate::password;
use crate::storage;
use crate::switch::Switch;

/// Number of the only node.
const NODE: NodeId = NodeId(1);

/// Options of `partita standalone`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Directory for the data; created if it does not exist.
    #[arg(long, env = "PARTITA_DATA_DIR", default_value = "partita-data")]
    data_dir: PathBuf,
    /// Maximum tables of a database, including those created by line protocol.
    #[arg(long, env = "PARTITA_TABLES_PER_DATABASE", default_value_t = TABLES_PER_DATABASE)]
    tables_per_database: u32,
    /// `off`: no table is cut ahead of peaks that come every day, whatever its option 'forecast' says.
    #[arg(long, env = "PARTITA_FORECAST", value_enum, default_value_t = Switch::On)]
    forecast: Switch,
    #[command(flatten)]
    doors: doors::Options,
    #[command(flatten)]
    storage: storage::Options,
}

/// Directory of the only node, for meta and the frontend.
#[derive(Default)]
struct OneNode {
    service: std::sync::OnceLock<Arc<dyn DataService>>,
    worker: std::sync::OnceLock<Arc<Worker>>,
}

impl DataNodes for OneNode {
    fn node(&self, node: NodeId) -> Result<Arc<dyn DataService>, Error> {
        match self.service.get() {
            Some(service) if node == NODE => Ok(Arc::clone(service)),
            _ => Err(Error::Unavailable(format!("node {node} is not running"))),
        }
    }

    fn fragments(&self, node: NodeId) -> Result<Arc<dyn FragmentService>, Error> {
        match self.worker.get() {
            Some(worker) if node == NODE => Ok(Arc::<Worker>::clone(worker)),
            _ => Err(Error::Unavailable(format!("node {node} is not running"))),
        }
    }

    fn all(&self) -> Vec<NodeId> {
        vec![NODE]
    }
}

/// Runs until a signal stops it.
///
/// # Errors
/// If it cannot start, or did not stop cleanly.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    data_dir::prepare(&options.data_dir, Role::Standalone)?;
    let (doors, password) = options.doors.take()?;
    let roles = Roles::start(&options).await?;
    // Before any client is served.
    let prepared = async {
        password::until_superuser(&*roles.meta).await?;
        password.set(&*roles.meta).await
    };
    tokio::select! {
        prepared = prepared => prepared?,
        stopped = faults::signalled_or_failed(&roles.meta) => {
            stopped?;
            return roles.stop().await;
        }
    }
    let doors = doors.open(&roles.frontend, Arc::new(roles.health()))?;
    faults::signalled_or_failed(&roles.meta).await?;
    info!("stopping: finishing requests, flushing memtables");
    doors.close().await?;
    roles.stop().await?;
    info!("stopped");
    Ok(())
}

/// The running roles of the process.
struct Roles {
    host: Arc<Host>,
    meta: Arc<Meta>,
    datanode: Arc<Datanode>,
    frontend: Arc<Frontend>,
    tasks: Vec<JoinHandle<()>>,
    stop: CancellationToken,
}

impl Roles {
    async fn start(options: &Options) -> anyhow::Result<Self> {
        let dir = &options.data_dir;
        let identity = data_dir::identity(dir)?;
        // The log comes first: meta and the datanode replay it. The catalog's store needs none of it.
        let store = StoreOpening::begin(&dir.join("meta"));
        let host = Host::open(HostOptions {
            log_budget_bytes: options.storage.log_bytes(),
            on_log_failure: faults::end_on_log_failure(),
            on_panic: faults::end_on_panic(),
            accepted: options.storage.accepted(),
            ..HostOptions::new(dir.join("log"), NODE)
        })
        .await
        .context("cannot open the log")?;
        // Meta calls the datanode, which is opened after it: until then the directory is empty.
        let nodes = Arc::new(OneNode::default());
        let as_nodes: Arc<dyn DataNodes> = Arc::<OneNode>::clone(&nodes);
        let meta = Meta::open_begun(
            store,
            MetaOptions {
                identity,
                incarnation: data_dir::random(),
                secrets: data_dir::random_secrets()?,
                tables_per_database: options.tables_per_database,
                load_dir: Some(dir.join("meta").join("load")),
                forecast: options.forecast.is_on(),
                ..MetaOptions::alone(dir.join("meta"), Arc::new(SystemClock))
            },
            Arc::clone(&host),
            Arc::clone(&as_nodes),
        )
        .await
        .context("cannot open the catalog");
        let meta = meta.map_err(|error| match storage::hint(&host.damaged()) {
            Some(hint) => anyhow!("{error:#}\nHINT: {hint}"),
            None => error,
        })?;
        let datanode = Datanode::open(
            NodeOptions {
                node: NODE,
                dir: dir.clone(),
                memtables_bytes_max: options.storage.memtable_bytes(),
                engine: options.storage.engine(),
                put_aside: false,
                // No other process could know a later generation.
                older: false,
                accepted: BTreeSet::new(),
                trash_keep: options.storage.trash_keep(),
                partition_rows_per_s: options.storage.partition_rows_per_s(),
            },
            Arc::clone(&host),
            Arc::new(SystemClock),
        )
        .await
        .context("cannot open the partitions")?;
        if let Some(hint) = storage::hint(&host.damaged()) {
            warn!(hint, "the log is damaged, and some partitions are not served");
        }
        // Fill the directory, then wait until the groups of all partitions have leaders.
        let service: Arc<dyn DataService> = Arc::<Datanode>::clone(&datanode);
        let lanes = Lanes::new(LaneOptions::default(), &Handle::current());
        let worker = Worker::new(Arc::clone(&service), MEMORY_BYTES, lanes)?;
        if nodes.service.set(service).is_err() || nodes.worker.set(worker).is_err() {
            bail!("the datanode was started twice");
        }
        let partitions = meta.partitions_of(NODE).into_iter().map(|spec| spec.partition).collect();
        datanode
            .until_led(partitions)
            .await
            .context("cannot open the partitions of the catalog")?;
        // Register the node, then start meta's work and the heartbeats.
        let (address, labels) = (String::new(), Labels::default());
        let me = Registration { identity, node: Some(NODE), address, labels };
        meta.register(me.clone()).await.context("cannot register the node")?;
        let stop = CancellationToken::new();
        let scheduler = tokio::spawn({
            let (meta, stop) = (Arc::clone(&meta), stop.clone());
            async move { Box::pin(meta.run(stop)).await }
        });
        let beating = heart::beat(
            NODE,
            me,
            Arc::<Meta>::clone(&meta),
            Arc::clone(&datanode),
            None,
            stop.clone(),
        );
        let heart = tokio::spawn(async move {
            // Meta does not remove the node of its own process.
            if let Err(error) = beating.await {
                tracing::error!(%error, "meta no longer accepts this node");
            }
        });
        let frontend = Frontend::new(
            options.doors.frontend(NODE, dir.join("spill")),
            Arc::<Meta>::clone(&meta),
            as_nodes,
        )?;
        let outlet = options.doors.outlet.open()?;
        let runner = tokio::spawn(Arc::clone(&frontend).run_tasks(outlet, stop.clone()));
        let copies = tokio::spawn(Arc::clone(&frontend).run_copies(stop.clone()));
        let teller = tokio::spawn(Arc::clone(&frontend).tell_causes(stop.clone()));
        let tasks = vec![scheduler, heart, runner, copies, teller];
        Ok(Self { host, meta, datanode, frontend, tasks, stop })
    }

    /// The parts that may fail, for the health check.
    fn health(&self) -> health::Parts {
        health::Parts {
            host: Arc::clone(&self.host),
            meta: Some(Arc::clone(&self.meta)),
            datanode: Some(Arc::clone(&self.datanode)),
        }
    }

    async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a background task failed");
            }
        }
        self.frontend.remove_spilled();
        let datanode = self.datanode.shutdown().await.context("stopping the datanode");
        let meta = self.meta.shutdown().await.context("stopping meta");
        let log = self.host.shutdown().await.context("closing the log");
        datanode.and(meta).and(log)
    }
}

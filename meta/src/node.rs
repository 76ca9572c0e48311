//! Meta in a process: opens, runs and stops it.
//!
//! On disk, below its directory: `state/`, the applied catalog. Its log is in the node's shared log,
//! under group 0. A catalog that cannot be read is set aside and made anew from the log, if that
//! still begins at the beginning.
//!
//! Start, in this order: the host, meta (the catalog can be read then), the datanode with the
//! replicas on its disk, and at last [`Meta::run`], which sends what is still to be ordered. A
//! change waits for that.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use partita_proto::error::Error;
use partita_proto::id::{META_GROUP, NodeId, ReplicaId};
use partita_proto::service::{DataNodes, PartitionSpec};
use partita_raft::{Group, Host, RaftError, Start};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::command::decode_reply;
use crate::error::MetaError;
use crate::machine::CatalogMachine;
use crate::plan;
use crate::progress::Progress;
use crate::scheduler::{Patience, Scheduler};
use crate::sled_store::SledStore;
use crate::store::StateStore;
use crate::transition::{Command, Reply};

/// Where the applied catalog is, below meta's directory.
const STATE: &str = "state";
/// Meta's only replica; those of partitions have other numbers.
const REPLICA: ReplicaId = ReplicaId(1);

/// What meta is opened with.
#[derive(Clone, Debug)]
pub struct MetaOptions {
    /// Its directory.
    pub dir: PathBuf,
}

/// The catalog's keeper in this process.
pub struct Meta {
    pub(crate) core: Arc<Core>,
}

/// What meta's parts share.
pub(crate) struct Core {
    pub(crate) host: Arc<Host>,
    pub(crate) group: Arc<Group>,
    pub(crate) machine: Arc<CatalogMachine>,
    pub(crate) nodes: Arc<dyn DataNodes>,
    pub(crate) progress: Progress,
    pub(crate) patience: Patience,
    /// No more orders are sent.
    pub(crate) stopping: CancellationToken,
}

impl Meta {
    /// Opens the catalog, or begins one. When it returns, everything that was acknowledged is in
    /// [`partita_proto::service::MetaService::catalog`].
    ///
    /// # Errors
    /// [`MetaError::Corrupted`] when catalog and log cannot be trusted or do not belong together,
    /// [`MetaError::Incompatible`], [`MetaError::Io`], and those of the group.
    pub async fn open(
        options: MetaOptions,
        host: Arc<Host>,
        nodes: Arc<dyn DataNodes>,
    ) -> Result<Arc<Self>, MetaError> {
        Self::open_patient(options, host, nodes, Patience::default()).await
    }

    pub(crate) async fn open_patient(
        options: MetaOptions,
        host: Arc<Host>,
        nodes: Arc<dyn DataNodes>,
        patience: Patience,
    ) -> Result<Arc<Self>, MetaError> {
        let in_log = known_replica(&host).is_some();
        let dir = options.dir.join(STATE);
        let opened = tokio::task::spawn_blocking(move || open_machine(&dir, in_log));
        let opened = opened.await.map_err(|error| {
            MetaError::Corrupted(format!("reading it was interrupted: {error}"))
        })??;
        Self::start(opened, host, nodes, patience).await
    }

    /// Starts the group over an opened catalog.
    pub(crate) async fn start(
        opened: Opened,
        host: Arc<Host>,
        nodes: Arc<dyn DataNodes>,
        patience: Patience,
    ) -> Result<Arc<Self>, MetaError> {
        let (replica, start) = match known_replica(&host) {
            Some(replica) => (replica, Start::Restart),
            None if opened.machine.has_applied() => {
                return Err(MetaError::Corrupted(
                    "the log does not know meta's group; the log directory belongs to the catalog \
                     and must be kept with it"
                        .to_owned(),
                ));
            }
            None => (REPLICA, Start::Create { members: BTreeMap::from([(REPLICA, host.node())]) }),
        };
        let machine = Arc::new(opened.machine);
        let started = host.start_group(META_GROUP, replica, Arc::clone(&machine) as _, start).await;
        let group = started.map_err(|error| match opened.set_aside {
            Some(damage) => MetaError::Corrupted(format!("{damage}; from the log: {error}")),
            None => MetaError::Raft(error),
        })?;
        group.read_barrier().await?;
        let (progress, stopping) = (Progress::new(), CancellationToken::new());
        let core = Core { host, group, machine, nodes, progress, patience, stopping };
        Ok(Arc::new(Self { core: Arc::new(core) }))
    }

    /// Sends orders to nodes until told to stop. Changes wait for it; it is run once.
    pub async fn run(&self, stop: CancellationToken) {
        Scheduler::new(Arc::clone(&self.core)).run(stop).await;
    }

    /// The replicas that a node is to hold, of tables that are in use.
    pub fn partitions_of(&self, node: NodeId) -> Vec<PartitionSpec> {
        plan::partitions_of(&self.core.machine.state(), node)
    }

    /// Makes everything durable and stops the group. [`Meta::run`] has to have ended.
    ///
    /// # Errors
    /// When the catalog could not be made durable; nothing is lost then, the log has it.
    pub async fn shutdown(&self) -> Result<(), MetaError> {
        self.core.stopping.cancel();
        let synced = self.core.sync().await;
        let stopped = self.core.group.shutdown().await;
        synced?;
        Ok(stopped?)
    }
}

impl Core {
    /// Puts a command into the log and applies it.
    pub(crate) async fn propose(&self, command: &Command) -> Result<Reply, Error> {
        let applied = self.group.propose(command.encode()).await.map_err(raft_error)?;
        decode_reply(applied.reply)
    }

    /// Makes what is applied durable, and gives up the log before it.
    pub(crate) async fn sync(&self) -> Result<(), MetaError> {
        let machine = Arc::clone(&self.machine);
        let synced = tokio::task::spawn_blocking(move || machine.sync());
        synced.await.map_err(|error| {
            MetaError::io("syncing the catalog", std::io::Error::other(error))
        })??;
        Ok(self.group.flushed().await?)
    }
}

/// Meta's replica in a node's log, if it is there.
fn known_replica(host: &Host) -> Option<ReplicaId> {
    let known = host.known_groups().into_iter().find(|(group, _)| *group == META_GROUP);
    known.map(|(_, replica)| replica)
}

/// An opened catalog.
pub(crate) struct Opened {
    pub(crate) machine: CatalogMachine,
    /// Why a damaged one was set aside for it.
    pub(crate) set_aside: Option<String>,
}

fn open_machine(dir: &Path, in_log: bool) -> Result<Opened, MetaError> {
    match open_store(dir) {
        Ok(machine) => Ok(Opened { machine, set_aside: None }),
        Err(MetaError::Corrupted(damage)) if in_log => {
            let aside = set_aside(dir)?;
            let damage = format!("{damage}; it is now in {}", aside.display());
            warn!(%damage, "the catalog is made anew from the log");
            Ok(Opened { machine: open_store(dir)?, set_aside: Some(damage) })
        }
        Err(error) => Err(error),
    }
}

fn open_store(dir: &Path) -> Result<CatalogMachine, MetaError> {
    let store: Arc<dyn StateStore> = Arc::new(SledStore::open(dir)?);
    CatalogMachine::open(store)
}

/// Renames a directory, so that somebody can look at it.
fn set_aside(dir: &Path) -> Result<PathBuf, MetaError> {
    let free = (1..).map(|number| dir.with_extension(format!("damaged-{number}")));
    let Some(aside) = free.take(1000).find(|path| !path.exists()) else {
        return Err(MetaError::Corrupted(format!("{} is damaged, again", dir.display())));
    };
    std::fs::rename(dir, &aside)
        .map_err(|error| MetaError::io(format!("renaming {}", dir.display()), error))?;
    Ok(aside)
}

/// What a failure of meta's group means to whoever wanted a change.
pub(crate) fn raft_error(error: RaftError) -> Error {
    match error {
        RaftError::NotLeader { leader: Some((_, node)) } => {
            Error::Unavailable(format!("meta is led by node {node}"))
        }
        RaftError::NotLeader { leader: None } => {
            Error::Unavailable("meta has no leader at the moment".to_owned())
        }
        RaftError::Unavailable(why) => Error::Unavailable(why),
        RaftError::OutcomeUnknown(why) => {
            Error::Timeout(format!("{why}; the change may or may not take effect"))
        }
        RaftError::DiskFull(why) => Error::DiskFull(why),
        RaftError::InvalidInput(why) => Error::InvalidInput(why),
        RaftError::Corrupted(why) => Error::Corrupted(why),
        RaftError::Stopped { .. } | RaftError::Io { .. } | RaftError::Incompatible(_) => {
            Error::Internal(format!("meta: {error}"))
        }
    }
}

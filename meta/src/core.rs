//! State that meta's parts share, its options, and the way to change the catalog: through the group's log.
//!
//! Invariant: the parts know [`Core`] and not each other, except where one begins the other; `node.rs` makes them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use partita_proto::access::Secrets;
use partita_proto::clock::Clock;
use partita_proto::error::Error;
use partita_proto::generation::{Generations, RENEW_INTERVAL};
use partita_proto::id::{META_GROUP, NodeId, PartitionId, ReplicaId};
use partita_proto::member::Members;
use partita_proto::schema::TableOptions;
use partita_proto::service::DataNodes;
use partita_raft::{Group, Host, RaftError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cluster::Presence;
use crate::command::decode_reply;
use crate::error::MetaError;
use crate::leadership::OwnLeadership;
use crate::load::{Keeper, LoadFiles};
use crate::machine::CatalogMachine;
use crate::membership::MetaPeers;
use crate::patience::Patience;
use crate::progress::Progress;
use crate::reshape::Reshapes;
use crate::transition::{Command, Reply};

/// Default limit of tables per database. A program that creates tables under wrong names, such as with a number in
/// them, then gets an error, instead of a huge catalog on every node.
pub const TABLES_PER_DATABASE: u32 = 500;

/// Options of [`crate::Meta::open`].
#[derive(Clone)]
pub struct MetaOptions {
    /// Meta's directory.
    pub dir: PathBuf,
    /// Members of the group and their nodes, the same for all members; empty: this one alone. Used at the first
    /// start only.
    pub members: BTreeMap<ReplicaId, NodeId>,
    /// Default number of replicas of a partition, if the table does not set it.
    pub replication_factor: u32,
    /// Maximum tables of a database; further ones are refused.
    pub tables_per_database: u32,
    /// Time without a heartbeat after which a node's replicas are recreated elsewhere.
    pub repair_after: Duration,
    /// Receives the members of the cluster whenever they change.
    pub nodes: watch::Sender<Arc<Members>>,
    /// Source of the timestamps of events.
    pub clock: Arc<dyn Clock>,
    /// Random number of the data directory, by which the other members know it; 0: none.
    pub identity: u64,
    /// True if this member lost its data and is to rejoin its group as a new member. Ignored once it has rejoined.
    pub rejoins: bool,
    /// Random number of this start of the process, from which leaderships' nonces are made.
    pub incarnation: u64,
    /// Generations of the data directory, by which the others notice an older copy of it; `None`: none.
    pub generations: Option<Arc<Generations>>,
    /// Random keys for a cluster that has none yet, from the system's source of randomness.
    pub secrets: Secrets,
    /// Maximum age of a generation; then the next one is made.
    pub renew_every: Duration,
    /// Directory for what is known of load, so that it outlives a restart; `None`: nothing is kept.
    pub load_dir: Option<PathBuf>,
    /// True if partitions are cut and placed ahead of peaks that come every day, where tables allow it.
    pub forecast: bool,
}

impl fmt::Debug for MetaOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dir, members, replication_factor, repair_after, .. } = self;
        f.debug_struct("MetaOptions")
            .field("dir", dir)
            .field("members", members)
            .field("replication_factor", replication_factor)
            .field("repair_after", repair_after)
            .finish_non_exhaustive()
    }
}

impl MetaOptions {
    /// Options of a cluster of one process: one member, and one replica of each partition. Its keys are not random:
    /// everybody except tests sets [`MetaOptions::secrets`].
    #[must_use]
    pub fn alone(dir: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        Self {
            dir: dir.into(),
            members: BTreeMap::new(),
            replication_factor: 1,
            tables_per_database: TABLES_PER_DATABASE,
            repair_after: Duration::from_secs(300),
            nodes: watch::Sender::default(),
            clock,
            identity: 0,
            rejoins: false,
            incarnation: 0,
            generations: None,
            secrets: Secrets::default(),
            renew_every: RENEW_INTERVAL,
            load_dir: None,
            forecast: true,
        }
    }

    /// Number of replicas for the partitions of a table with these options.
    pub(crate) fn replicas_of(&self, options: &TableOptions) -> usize {
        options.replication_factor.unwrap_or(self.replication_factor).max(1) as usize
    }
}

/// State shared by meta's parts.
pub(crate) struct Core {
    pub(crate) host: Arc<Host>,
    pub(crate) group: Arc<Group>,
    /// The other members of the group, by their greetings.
    pub(crate) peers: Arc<MetaPeers>,
    pub(crate) machine: Arc<CatalogMachine>,
    pub(crate) nodes: Arc<dyn DataNodes>,
    pub(crate) options: MetaOptions,
    /// Latest reports of nodes, while this process leads.
    pub(crate) presence: Presence,
    /// Load of partitions; used for decisions while this process leads.
    pub(crate) load: Mutex<Keeper>,
    /// Files in which the load outlives a restart, if it does.
    pub(crate) load_files: Option<Arc<LoadFiles>>,
    /// The nodes, as published to subscribers.
    pub(crate) members: watch::Sender<Arc<Members>>,
    /// True while this process leads and has applied everything that was acknowledged.
    pub(crate) leads: watch::Sender<bool>,
    pub(crate) leadership: OwnLeadership,
    pub(crate) progress: Progress,
    pub(crate) reshapes: Arc<Reshapes>,
    pub(crate) patience: Patience,
    /// Cancelled when no more orders are to be sent.
    pub(crate) stopping: CancellationToken,
}

impl Core {
    /// Appends a command to the log; returns when it is applied.
    pub(crate) async fn propose(&self, command: &Command) -> Result<Reply, Error> {
        if !self.machine.has_room() {
            return Err(Error::DiskFull(
                "meta's disk is nearly full: changes of tables are refused; rows can still be read and written"
                    .to_owned(),
            ));
        }
        self.propose_anyway(command).await
    }

    /// As [`Core::propose`], but also on a nearly full disk: for commands that others cannot work without.
    pub(crate) async fn propose_anyway(&self, command: &Command) -> Result<Reply, Error> {
        let applied = self.group.propose(command.encode()).await.map_err(raft_error)?;
        decode_reply(applied.reply)
    }

    /// Makes the applied catalog durable, and releases the log before it.
    pub(crate) async fn sync(&self) -> Result<(), MetaError> {
        let machine = Arc::clone(&self.machine);
        let synced = partita_proto::blocking::spawn(move || machine.sync());
        synced.await.map_err(|error| {
            MetaError::io("syncing the catalog", std::io::Error::other(error))
        })??;
        Ok(self.group.flushed().await?)
    }
}

/// Error for the client of a change that meta's group did not carry out.
pub(crate) fn raft_error(error: RaftError) -> Error {
    match error {
        RaftError::NotLeader { leader } => Error::NotLeader {
            partition: PartitionId(META_GROUP.0),
            leader: leader.map(|(_, node)| node),
        },
        RaftError::Unavailable(why) => Error::Unavailable(why),
        RaftError::OutcomeUnknown(why) => {
            Error::Timeout(format!("{why}; the change may or may not take effect"))
        }
        RaftError::DiskFull(why) => Error::DiskFull(why),
        RaftError::InvalidInput(why) => Error::InvalidInput(why),
        RaftError::Corrupted(why) => Error::Corrupted(why),
        // This member ends or has failed: other members can tell whether the change is in the log.
        RaftError::Stopped { .. } => {
            Error::Timeout(format!("meta: {error}; the change may or may not take effect"))
        }
        RaftError::Io { .. } => Error::Storage(format!("meta: {error}")),
        RaftError::Incompatible(_) => Error::Internal(format!("meta: {error}")),
    }
}

//! What the services say to each other, as traits.
//!
//! In one process a service is called through these directly; across processes a client of the same
//! trait speaks gRPC. Callers cannot tell the difference, so there is one code path.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;
use tokio::sync::watch;

use crate::catalog::Catalog;
use crate::catalog_history::CatalogHistory;
use crate::domain::Domains;
use crate::error::Error;
use crate::generation::{Renewal, Renewed};
use crate::id::{Epoch, NodeId, PartitionId, ReplicaId, TableId};
use crate::load::{HeatmapRequest, LoadReport, LoadRequest};
use crate::member::{Heartbeat, Members, MetaMember, MetaStanding, Registration};
use crate::placement::Placement;
use crate::range::{Bound, TypedRange};
use crate::reshape::{Reshape, Reshaped};
use crate::schema::{Column, TableOptions, TableSchema};

/// Identity of a write: the same one sent again takes effect once. Rows that are sent again in several requests, because
/// the partition they were sent to was cut, have an identity for each of these, and their earlier one with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    /// A random number of the client (one a frontend process).
    pub client: u64,
    /// Grows with each request of the client, whichever partition it is for: what was forgotten is known by the last of
    /// it.
    pub sequence: u64,
}

/// What the rows of a write do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteKind {
    /// Insert, or update by key.
    Put,
    /// Delete the keys.
    Delete,
}

/// Rows for one partition.
#[derive(Clone, Debug)]
pub struct WriteRequest {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch of the sender's route.
    pub epoch: Epoch,
    /// Its identity.
    pub id: RequestId,
    /// Identities under which these rows were sent before together with others: if one of those took effect, these rows
    /// did.
    pub earlier: Vec<RequestId>,
    /// Put or delete.
    pub kind: WriteKind,
    /// Columns by storage name: all key columns, and for a put any of the others (an absent one is
    /// NULL). For a delete the key columns only. Every row lies in the partition's range.
    pub rows: RecordBatch,
}

/// A write that has taken effect: on a quorum's disks and applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteReply {
    /// The Raft index it took effect at.
    pub index: u64,
}

/// What to read from one partition.
#[derive(Clone, Debug)]
pub struct ScanRequest {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch of the sender's route.
    pub epoch: Epoch,
    /// The columns to return, by storage name, with the types they have now; one that the
    /// partition's files do not have is NULL.
    pub columns: SchemaRef,
    /// Rows outside these are not wanted. A row that satisfies them is returned; rows that do not
    /// may be returned too (the caller filters again), unless they are versions that lost.
    /// By storage name.
    pub domains: Domains,
    /// At most this many rows are wanted, when no filter remains above.
    pub limit: Option<usize>,
    /// Into how many streams the work may be split.
    pub parallelism: usize,
    /// Of the rows in the domains whose keys differ in the time index only, all but the newest may be
    /// left out. Every row that is returned is still a row of the table, and comes once.
    pub newest_only: bool,
}

/// A part of a query that is to run where a partition's rows are.
#[derive(Clone, Debug)]
pub struct FragmentRequest {
    /// The rows that it runs over.
    pub scan: ScanRequest,
    /// What it does with them, in a form that only those who make and run it know; of one version of
    /// the program.
    pub fragment: Bytes,
}

/// A stream of rows.
pub type RowStream = Pin<Box<dyn Stream<Item = Result<RecordBatch, Error>> + Send>>;

/// What a scan read so far; shared by its streams, final when they have ended.
#[derive(Debug, Default)]
pub struct ScanStats {
    /// Rows decoded from files and memtables, before merging and filtering.
    pub rows_scanned: std::sync::atomic::AtomicU64,
    /// Bytes of the columns decoded.
    pub bytes_scanned: std::sync::atomic::AtomicU64,
    /// Files opened.
    pub files_read: std::sync::atomic::AtomicU64,
    /// Files skipped by range, time or statistics.
    pub files_pruned: std::sync::atomic::AtomicU64,
    /// Row groups skipped by statistics.
    pub row_groups_pruned: std::sync::atomic::AtomicU64,
}

/// Rows of one partition at one moment, in one to `parallelism` streams.
pub struct ScanReply {
    /// Every row is in exactly one of them.
    pub streams: Vec<RowStream>,
    /// Whether each stream is in key order.
    pub sorted: bool,
    /// Counters.
    pub stats: Arc<ScanStats>,
}

/// What a node is told of a replica it is to hold.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionSpec {
    /// The partition.
    pub partition: PartitionId,
    /// Its table.
    pub table: TableId,
    /// Its routing version.
    pub epoch: Epoch,
    /// The replica on the node that is told.
    pub replica: ReplicaId,
    /// All replicas and the nodes they are on.
    pub members: BTreeMap<ReplicaId, NodeId>,
    /// What it owns.
    pub range: TypedRange,
    /// How rows are placed.
    pub placement: Placement,
    /// Columns, key and options.
    pub schema: Arc<TableSchema>,
    /// Whether the group runs already: the replica begins empty and gets everything from its leader.
    /// Otherwise all members begin together.
    pub join: bool,
}

/// One replica as its node sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplicaStatus {
    /// The partition.
    pub partition: PartitionId,
    /// The table.
    pub table: TableId,
    /// The replica.
    pub replica: ReplicaId,
    /// Whether it leads.
    pub leader: bool,
    /// The node that leads, as far as the replica knows.
    pub leader_node: Option<NodeId>,
    /// The group's term.
    pub term: u64,
    /// The replicas that decide, as far as the replica knows.
    pub voters: BTreeSet<ReplicaId>,
    /// The replicas that only learn, as far as the replica knows.
    pub learners: BTreeSet<ReplicaId>,
    /// Its routing version.
    pub epoch: Epoch,
    /// Rows in files and memtables, versions and tombstones included.
    pub rows: u64,
    /// Bytes in files.
    pub file_bytes: u64,
    /// Files.
    pub files: u64,
    /// Bytes in memtables.
    pub memtable_bytes: u64,
    /// Rows written since the replica was opened.
    pub rows_written: u64,
    /// Bytes written since the replica was opened.
    pub bytes_written: u64,
    /// Write requests since the replica was opened.
    pub writes: u64,
    /// Scans since the replica was opened.
    pub scans: u64,
    /// Rows decoded by scans since the replica was opened.
    pub rows_scanned: u64,
    /// Writes refused because a bound was reached.
    pub rejected: u64,
    /// The highest Raft index applied.
    pub applied: u64,
    /// The highest Raft index that is in files.
    pub flushed: u64,
    /// Why the replica stopped, if it did.
    pub failure: Option<String>,
}

/// A node that holds replicas.
#[async_trait]
pub trait DataService: Send + Sync {
    /// Writes rows; answers when a quorum has them on disk and the leader has applied them.
    async fn write(&self, request: WriteRequest) -> Result<WriteReply, Error>;

    /// Reads rows, linearizably: everything acknowledged before the call is seen.
    async fn scan(&self, request: ScanRequest) -> Result<ScanReply, Error>;

    /// Takes note of the catalog that the orders which follow come from, before the first of them. `None`: they do not
    /// say.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when the node has followed a catalog that this one does not continue: nothing of what
    /// it orders may be done.
    async fn recognize(&self, catalog: Option<&CatalogHistory>) -> Result<(), Error> {
        let _any = catalog;
        Ok(())
    }

    /// Creates or opens a replica. Idempotent.
    async fn open_partition(&self, spec: PartitionSpec) -> Result<(), Error>;

    /// Removes the replica that the node holds of a partition, and its data, if it is this one.
    /// Idempotent.
    async fn drop_partition(&self, partition: PartitionId, replica: ReplicaId)
    -> Result<(), Error>;

    /// Makes these replicas the voters of a partition's group, adding and removing members as it
    /// takes. To be sent to the leader. Idempotent; an order that ended early is sent again.
    ///
    /// # Errors
    /// [`Error::Unavailable`] while a new replica catches up; [`Error::NotLeader`] also when leadership
    /// was handed over because the leader is to go: the new leader does the rest.
    async fn reconfigure(
        &self,
        partition: PartitionId,
        voters: BTreeMap<ReplicaId, NodeId>,
    ) -> Result<(), Error>;

    /// Hands the leadership of a partition to its replica on another node. To be sent to the leader.
    async fn transfer_leader(&self, partition: PartitionId, to: NodeId) -> Result<(), Error>;

    /// Changes what a partition owns, through its log. To be sent to the leader. Idempotent: one that took
    /// effect before is answered as then.
    ///
    /// # Errors
    /// [`Error::StaleRoute`] when the partition is at another epoch for another reason,
    /// [`Error::InvalidInput`] when the order does not fit what the partition is (its range, its members),
    /// [`Error::Unavailable`] when that may pass.
    async fn reshape(&self, order: Reshape) -> Result<Reshaped, Error>;

    /// The key at which about half of a partition's rows lie below, cut after the fewest columns that
    /// separate; `None` when no key leaves rows on both sides.
    async fn middle_key(&self, partition: PartitionId) -> Result<Option<Bound>, Error>;

    /// Removes all rows of a partition. Idempotent per `id`.
    async fn truncate_partition(&self, partition: PartitionId, id: RequestId) -> Result<(), Error>;

    /// Gives a partition a newer schema, through its log. Idempotent.
    async fn alter_partition(
        &self,
        partition: PartitionId,
        schema: Arc<TableSchema>,
    ) -> Result<(), Error>;

    /// Writes the memtable to files.
    async fn flush_partition(&self, partition: PartitionId) -> Result<(), Error>;

    /// Merges all files of each time window into one.
    async fn compact_partition(&self, partition: PartitionId) -> Result<(), Error>;

    /// All replicas of the node.
    async fn status(&self) -> Result<Vec<ReplicaStatus>, Error>;
}

/// Runs parts of queries over the rows of a node.
#[async_trait]
pub trait FragmentService: Send + Sync {
    /// Scans, and answers with what the fragment makes of each of the scan's streams. Dropping the
    /// streams stops the work.
    ///
    /// # Errors
    /// Those of [`DataService::scan`]; [`Error::Unsupported`] when the fragment is of another version
    /// or uses what is not known here, and the scan alone may still be had; in the streams
    /// [`Error::Query`] when it fails on the rows.
    async fn run(&self, request: FragmentRequest) -> Result<ScanReply, Error>;
}

/// Finds a node's service.
pub trait DataNodes: Send + Sync {
    /// What runs parts of queries over a node's rows.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there is no such thing, otherwise as [`DataNodes::node`].
    fn fragments(&self, node: NodeId) -> Result<Arc<dyn FragmentService>, Error> {
        Err(Error::Unsupported(format!("running a part of a query at node {node}")))
    }

    /// Whether rows come from other processes.
    fn remote(&self) -> bool {
        false
    }

    /// The service of a node.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the node is not known or not reachable.
    fn node(&self, node: NodeId) -> Result<Arc<dyn DataService>, Error>;

    /// The service of a node for one that gives it orders, which bear the past of the catalog that they follow from.
    ///
    /// # Errors
    /// As [`DataNodes::node`].
    fn ordering(
        &self,
        node: NodeId,
        catalog: &CatalogHistory,
    ) -> Result<Arc<dyn DataService>, Error> {
        let _same_process = catalog;
        self.node(node)
    }

    /// All nodes that are known.
    fn all(&self) -> Vec<NodeId>;
}

/// A table to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct NewTable {
    /// The database.
    pub database: String,
    /// The name.
    pub name: String,
    /// Columns, key and options; version 1.
    pub schema: TableSchema,
    /// How rows are placed.
    pub placement: Placement,
    /// Where the key space is cut from the beginning; ascending. One more partition than cuts.
    pub cuts: Vec<Bound>,
}

/// A change of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum TableChange {
    /// Adds columns (ids and storage names are given by meta). A tag is added to the key, before the
    /// time index, and is NULL in older rows.
    AddColumns {
        /// The columns.
        columns: Vec<Column>,
        /// Leave out those that exist with the same type and meaning, rather than fail.
        if_not_exists: bool,
    },
    /// Drops a field.
    DropColumn(String),
    /// Renames a column.
    RenameColumn {
        /// From.
        from: String,
        /// To.
        to: String,
    },
    /// Sets or drops a column's default.
    SetDefault {
        /// The column.
        column: String,
        /// SQL text, or none.
        default: Option<String>,
    },
    /// Replaces the options.
    SetOptions(TableOptions),
    /// Renames the table.
    Rename(String),
    /// Places the rows that are written from now on otherwise. Those that are there stay where they are, in a table
    /// of their own that is read along ([`crate::catalog::Table::former`]). For tables that keep every row
    /// (`append_mode`): two versions of a row could lie in both.
    Repartition {
        /// How rows are placed.
        placement: Placement,
        /// Where the key space is cut; ascending. One more partition than cuts.
        cuts: Vec<Bound>,
    },
}

/// A change of the catalog.
#[derive(Clone, Debug, PartialEq)]
pub enum Ddl {
    /// CREATE DATABASE.
    CreateDatabase {
        /// The name.
        name: String,
        /// No error when it exists.
        if_not_exists: bool,
        /// The `ttl` that its tables inherit.
        ttl: Option<Duration>,
    },
    /// ALTER DATABASE ... SET 'ttl'.
    AlterDatabase {
        /// The name.
        name: String,
        /// The `ttl` that its tables inherit.
        ttl: Option<Duration>,
    },
    /// DROP DATABASE, with all its tables.
    DropDatabase {
        /// The name.
        name: String,
        /// No error when it does not exist.
        if_exists: bool,
    },
    /// CREATE TABLE.
    CreateTable {
        /// The table.
        table: Box<NewTable>,
        /// No error when it exists.
        if_not_exists: bool,
    },
    /// DROP TABLE.
    DropTable {
        /// The database.
        database: String,
        /// The name.
        name: String,
        /// No error when it does not exist.
        if_exists: bool,
    },
    /// TRUNCATE TABLE.
    TruncateTable {
        /// The database.
        database: String,
        /// The name.
        name: String,
    },
    /// ALTER TABLE.
    AlterTable {
        /// The database.
        database: String,
        /// The name.
        name: String,
        /// What changes.
        change: TableChange,
    },
}

/// What an operator wants of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminOrder {
    /// Moves everything off a node and puts nothing on it, or ends that.
    Drain {
        /// The node.
        node: NodeId,
        /// Whether to begin or to end.
        on: bool,
    },
    /// Moves the replica of a partition from one node to another.
    MoveReplica {
        /// The partition.
        partition: PartitionId,
        /// The node that has it.
        from: NodeId,
        /// The node that gets it.
        to: NodeId,
    },
    /// Hands the leadership of a partition to its replica on a node.
    TransferLeader {
        /// The partition.
        partition: PartitionId,
        /// The node.
        to: NodeId,
    },
    /// Cuts a partition in two.
    SplitPartition {
        /// The partition.
        partition: PartitionId,
        /// The first key of the right half; `None`: in the middle of its rows.
        at: Option<Bound>,
    },
    /// Makes one partition of two neighbours.
    MergePartitions {
        /// The one that stays.
        left: PartitionId,
        /// The one that goes.
        right: PartitionId,
    },
    /// Takes a node that has nothing any more out of the cluster, for good.
    RemoveNode {
        /// The node.
        node: NodeId,
    },
}

/// The catalog's keeper.
#[async_trait]
pub trait MetaService: Send + Sync {
    /// The catalog as it changes. What [`MetaService::change`] answered is in it by then.
    fn catalog(&self) -> watch::Receiver<Arc<Catalog>>;

    /// Changes the catalog; answers when the change is durable, has reached the nodes it concerns and
    /// is visible in [`MetaService::catalog`]. Returns whether anything changed.
    async fn change(&self, ddl: Ddl) -> Result<bool, Error>;

    /// The nodes as they come, go and are heard of.
    fn members(&self) -> watch::Receiver<Arc<Members>>;

    /// The members of meta's own group, each asked for itself. One that does not answer is listed all the same.
    async fn metas(&self) -> Vec<MetaMember>;

    /// Takes an operator's order; answers when it is recorded. What follows from it takes its time,
    /// except a change of leader, which is carried out.
    async fn administer(&self, order: AdminOrder) -> Result<(), Error>;

    /// How busy everything is, as far as the nodes have said. What is young, or whose leader is silent, is not in it.
    async fn load(&self, request: LoadRequest) -> Result<LoadReport, Error>;

    /// The picture of a table's load over keys and time, as the JSON that every renderer of it takes. A table that bore no
    /// load lately has an empty one.
    async fn heatmap(&self, request: HeatmapRequest) -> Result<Bytes, Error>;
}

/// A change that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Whether it changed anything.
    pub changed: bool,
    /// The version of the catalog that shows it.
    pub version: u64,
}

/// What meta is to the processes of a cluster. Only the member of meta's group that leads it does any
/// of this but [`ClusterService::standing`]; the others say [`Error::NotLeader`], with partition 0.
#[async_trait]
pub trait ClusterService: MetaService {
    /// Whether this one leads, and its catalog has everything that was ever acknowledged.
    fn leads(&self) -> watch::Receiver<bool>;

    /// How this member of meta's group is. It answers whether it leads or not.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there is no member behind the service.
    fn standing(&self) -> Result<MetaStanding, Error>;

    /// As [`MetaService::change`], for a caller that may not get the answer and ask again: the same
    /// identity is the same change, and gets the same answer.
    async fn change_once(&self, id: RequestId, ddl: Ddl) -> Result<Changed, Error>;

    /// Makes a node known, or known at another address or with other labels. The same identity gets the same number.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for one that was removed: it has to begin with a new data directory.
    async fn register(&self, registration: Registration) -> Result<NodeId, Error>;

    /// Records a generation of a registered node's data directory, unless that is an older copy of it.
    ///
    /// # Errors
    /// As [`ClusterService::heartbeat`]; [`Error::Unsupported`] for a meta of an earlier version.
    async fn renew(&self, renewal: Renewal) -> Result<Renewed, Error>;

    /// Takes what a node says of itself.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a node that is not registered under this identity; [`Error::InvalidInput`] for one that
    /// was removed: it has to begin with a new data directory, and for one over whose data directory, or a copy of it,
    /// another process has started.
    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<(), Error>;
}

//! The interfaces between services, as traits.
//!
//! Within one process a service is called directly through its trait; across processes a client of the same trait uses
//! gRPC. Callers cannot tell the difference, so there is one code path.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::access::AccessChange;
use crate::blame::BlameReport;
use crate::cardinality::SeriesSketch;
use crate::catalog::Catalog;
use crate::catalog_history::CatalogHistory;
use crate::domain::Domains;
use crate::error::Error;
use crate::generation::{Renewal, Renewed};
use crate::id::{
    DatabaseId, Epoch, NodeId, PartitionId, ReplicaId, RoleId, SchemaVersion, TableId,
};
use crate::index::{Index, IndexKind};
use crate::load::{HeatmapRequest, LoadReport, LoadRequest};
use crate::materialized::{CaptureOrder, Changes, ChangesRequest, CopyChange, CopyState, Ship};
use crate::measure::PartitionMeasures;
use crate::member::{Heartbeat, Members, MetaMember, MetaStanding, Registration};
use crate::placement::Placement;
use crate::probe::Probe;
use crate::range::{Bound, TypedRange};
use crate::reshape::{Reshape, Reshaped};
use crate::schema::{Check, Column, ColumnType, TableOptions, TableSchema, TextLength};
use crate::sequence::{SequenceChange, TableSequence};
use crate::stored_view::ViewDefinition;
use crate::task::TaskChange;
use crate::wide::FamilyChange;

/// Identity of a write: repeated under the same identity, it takes effect once. Rows that are sent again in several
/// requests, because their partition was split meanwhile, have a new identity for each of these, together with the
/// earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    /// Random number of the client (a frontend process is one client).
    pub client: u64,
    /// Sequence number; grows with each request of the client to any partition, so a partition can tell from the last
    /// forgotten one which others it may have forgotten.
    pub sequence: u64,
}

/// Effect of a write's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteKind {
    /// Insert, or update by key.
    Put,
    /// Delete the keys.
    Delete,
}

/// Column of a conditional put, after its other columns: true for each row whose key is deleted. Boolean, without NULLs;
/// left out if no key is deleted.
pub const REMOVED_COLUMN: &str = "__removed";

/// Condition of a write: it takes effect as a whole if the partition has not written any of its keys since the sender
/// read them, and otherwise not at all.
///
/// A partition knows the keys of its newest writes only, and only since the first scan for an update. It also refuses
/// what it cannot decide. A refusal is final: repeated with the same condition, the write is refused again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Condition {
    /// Epoch of the partition when the keys were read.
    pub epoch: Epoch,
    /// Raft index up to which the sender saw all writes.
    pub index: u64,
    /// Random number of a statement that writes many rows: the partition does not keep the keys of its writes one by
    /// one. They count as a write of every key for all other statements, and of none for this one.
    pub bulk: Option<u64>,
    /// Version of the schema by which the rows were read. A row that replaces a whole one would lose the columns of a
    /// later version.
    pub schema: SchemaVersion,
    /// True if no cell of a wide table's rows may have been written, whether it is among the keys or not.
    pub by_row: bool,
}

/// Rows for one partition.
#[derive(Clone, Debug)]
pub struct WriteRequest {
    /// Partition that holds the rows.
    pub partition: PartitionId,
    /// The epoch of the sender's route.
    pub epoch: Epoch,
    /// Identity of the write.
    pub id: RequestId,
    /// Identities under which these rows were sent before, together with others: if one of those requests took effect,
    /// these rows did.
    pub earlier: Vec<RequestId>,
    /// Effect of the rows.
    pub kind: WriteKind,
    /// Columns by storage name: all key columns, and for a put any of the others (an absent one is
    /// NULL). For a delete the key columns only. Every row lies in the partition's range.
    pub rows: RecordBatch,
    /// Origin of the rows, for a partition of a copy: they take effect by their position, not by the request's
    /// identity.
    pub ship: Option<Ship>,
    /// Condition without which the rows have no effect. The rows of a conditional put replace whole rows, also where
    /// fields keep their newest value, and may have the [`REMOVED_COLUMN`].
    pub condition: Option<Condition>,
}

/// Result of a write that has taken effect: on a quorum's disks, and applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteReply {
    /// The Raft index at which it took effect.
    pub index: u64,
    /// Copies that lack the rows: the write must not be acknowledged to a client before they have them or are lost.
    pub owed: Vec<TableId>,
}

/// Replicas that may answer a scan, and the age that its rows may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadFrom {
    /// The leader; every other replica names it in [`Error::NotLeader`]. All acknowledged writes are seen.
    #[default]
    Leader,
    /// The leader or a follower, whichever the caller reaches.
    AnyReplica {
        /// Writes that were acknowledged longer ago than this when the request arrives are seen. With zero, the scan is
        /// as linearizable as one at the leader.
        staleness_max: Duration,
        /// Schema version of the sender's catalog. A replica with an earlier one answers as with zero.
        schema: SchemaVersion,
    },
}

/// Request to read one partition.
#[derive(Clone, Debug)]
pub struct ScanRequest {
    /// Partition to read.
    pub partition: PartitionId,
    /// The epoch of the sender's route.
    pub epoch: Epoch,
    /// The columns to return, by storage name, with the types they have now; one that the
    /// partition's files do not have is NULL.
    pub columns: SchemaRef,
    /// Domains of the wanted rows, by storage name. Every row that satisfies them is returned; others may be returned
    /// too (the caller filters again), unless they are superseded versions.
    pub domains: Domains,
    /// Maximum number of rows needed, when no filter remains above.
    pub limit: Option<usize>,
    /// Maximum number of streams into which the work may be split.
    pub parallelism: usize,
    /// If true, of the rows in the domains whose keys differ in the time index only, all but the newest may be left
    /// out. Every row returned is still a row of the table, and is returned once.
    pub newest_only: bool,
    /// Tests that every wanted row passes, beside the domains, for indexes: rows that fail one may be left out, unless
    /// an older version of their key would appear in their place. Over the network, probes beyond
    /// [`PROBE_DEPTH_MAX`](crate::probe::PROBE_DEPTH_MAX) and [`PROBE_NODES_MAX`](crate::probe::PROBE_NODES_MAX) are
    /// left out.
    pub probes: Vec<Probe>,
    /// Replicas that may answer.
    pub read_from: ReadFrom,
    /// If set, rows may be left out that are not among these; not together with `limit`.
    pub first_by_time: Option<FirstByTime>,
    /// If set, one stream of rows in order of their keys is wanted. A node that has another order cheaper returns it, as
    /// the reply says.
    pub order: Option<KeyOrder>,
    /// True if the rows are read to be written under a [`Condition`]: the partition keeps the keys of its writes from
    /// before the scan on.
    pub for_update: bool,
    /// True if cells of a wide table are wanted that are garbage and not yet removed.
    pub uncollected: bool,
}

/// Order of rows by their keys, in which NULL comes before all values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyOrder {
    /// True if rows come from the last key on.
    pub descending: bool,
    /// True if NULLs come at the other end: those of the first column of the key that the domains do not bind to one
    /// value.
    pub nulls_apart: bool,
}

impl KeyOrder {
    /// From the first key on.
    pub const ASCENDING: Self = Self { descending: false, nulls_apart: false };
    /// From the last key on.
    pub const DESCENDING: Self = Self { descending: true, nulls_apart: false };
}

/// The first rows of a scan in order of the time index, with all rows of the same time as the last of them. Rows that
/// are not in the domains do not count. The time index must be one of the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstByTime {
    /// Number of rows.
    pub rows: usize,
    /// True if the newest rows come first.
    pub descending: bool,
}

/// A part of a query that runs on the node with a partition's rows.
#[derive(Clone, Debug)]
pub struct FragmentRequest {
    /// The scan that supplies its rows.
    pub scan: ScanRequest,
    /// Encoded operations on the rows. Only the code that makes and runs fragments knows the form, which belongs to one
    /// version of the program.
    pub fragment: Bytes,
}

/// Batches of rows, in the scan's columns; an error ends the stream.
pub type RowStream = Pin<Box<dyn Stream<Item = Result<RecordBatch, Error>> + Send>>;

/// An index, in counters of scans: storage name of its column, and kind.
pub type IndexKey = (String, IndexKind);

/// Rows about which an index was asked, and those that it excluded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexUse {
    /// Rows of the row groups about which the index was asked.
    pub examined: u64,
    /// Rows of them that cannot be wanted, by its answer.
    pub skipped: u64,
}

impl IndexUse {
    /// Adds the rows of another use.
    pub fn add(&mut self, other: &Self) {
        self.examined += other.examined;
        self.skipped += other.skipped;
    }
}

/// Counters of a scan; shared by its streams, final when they have ended.
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
    /// Use of each index.
    pub indexes: Mutex<BTreeMap<IndexKey, IndexUse>>,
    /// 1 if a replica that does not lead has answered, otherwise 0.
    pub by_followers: std::sync::atomic::AtomicU64,
    /// Thousandths of a core that the replica's reads and writes took lately, when the scan began.
    pub busy_millicores: std::sync::atomic::AtomicU64,
    /// Those of them that the reads took.
    pub read_millicores: std::sync::atomic::AtomicU64,
}

/// Rows of one partition at one moment, in one to `parallelism` streams.
pub struct ScanReply {
    /// The streams; every row is in exactly one of them.
    pub streams: Vec<RowStream>,
    /// Order of each stream; `None`: none. One that was requested comes in one stream.
    pub order: Option<KeyOrder>,
    /// Counters of the scan.
    pub stats: Arc<ScanStats>,
    /// Raft index up to which the rows include all writes; 0 from a node of an earlier version.
    pub index: u64,
}

/// Specification of a replica that a node is to hold.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionSpec {
    /// Partition of the replica.
    pub partition: PartitionId,
    /// Table of the partition.
    pub table: TableId,
    /// Epoch (routing version) of the partition.
    pub epoch: Epoch,
    /// Replica id on this node.
    pub replica: ReplicaId,
    /// All replicas and their nodes.
    pub members: BTreeMap<ReplicaId, NodeId>,
    /// Range of the partition.
    pub range: TypedRange,
    /// Placement of rows.
    pub placement: Placement,
    /// Columns, key and options.
    pub schema: Arc<TableSchema>,
    /// True if the group runs already: the replica begins empty and receives everything from its leader. Otherwise all
    /// members begin together.
    pub join: bool,
}

/// State of one replica, as its node reports it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplicaStatus {
    /// Partition of the replica.
    pub partition: PartitionId,
    /// Table of the partition.
    pub table: TableId,
    /// Replica id.
    pub replica: ReplicaId,
    /// True if the replica leads.
    pub leader: bool,
    /// The leader's node, as far as the replica knows.
    pub leader_node: Option<NodeId>,
    /// The group's term.
    pub term: u64,
    /// The voters, as far as the replica knows.
    pub voters: BTreeSet<ReplicaId>,
    /// The learners, as far as the replica knows.
    pub learners: BTreeSet<ReplicaId>,
    /// Epoch (routing version) of the partition.
    pub epoch: Epoch,
    /// Rows in files and memtables, versions and tombstones included.
    pub rows: u64,
    /// Bytes in files.
    pub file_bytes: u64,
    /// Number of files.
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
    /// The highest Raft index whose rows are in files.
    pub flushed: u64,
    /// Reason why the replica has stopped, if it has.
    pub failure: Option<String>,
    /// Sketch of the partition's series; only from leaders, and only in [`DataService::series_status`].
    pub series: Option<Arc<SeriesSketch>>,
    /// Measures of the partition's rows and indexes; only from leaders, and only in [`DataService::measured_status`].
    pub measures: Option<Arc<PartitionMeasures>>,
}

/// A node that holds replicas.
#[async_trait]
pub trait DataService: Send + Sync {
    /// Writes rows; returns when a quorum has them on disk and the leader has applied them.
    ///
    /// # Errors
    /// [`Error::Changed`] when a condition does not hold; the rows have no effect then. [`Error::NeverTaken`] of a closed
    /// partition that neither took the write before nor will; no other error says that of earlier attempts.
    async fn write(&self, request: WriteRequest) -> Result<WriteReply, Error>;

    /// Reads rows, linearizably: every write acknowledged before the call is seen, or every one that
    /// [`ReadFrom::AnyReplica`] asks for.
    ///
    /// # Errors
    /// [`Error::NotLeader`], or [`Error::Unavailable`] of a replica that cannot tell in time if it has all of these
    /// writes: the leader, or another replica, may answer.
    async fn scan(&self, request: ScanRequest) -> Result<ScanReply, Error>;

    /// Announces the catalog of the orders that follow, before the first of them. `None`: the sender does not name it.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when the node has followed a catalog that this one does not continue: then none of its
    /// orders may be carried out.
    async fn recognize(&self, catalog: Option<&CatalogHistory>) -> Result<(), Error> {
        let _any = catalog;
        Ok(())
    }

    /// Creates or opens a replica. Idempotent.
    async fn open_partition(&self, spec: PartitionSpec) -> Result<(), Error>;

    /// Removes the node's replica of a partition, and its data, if it has this id. Idempotent.
    async fn drop_partition(&self, partition: PartitionId, replica: ReplicaId)
    -> Result<(), Error>;

    /// Makes these replicas the voters of a partition's group, and adds and removes members as needed. Sent to the
    /// leader. Idempotent; an order that ended early is sent again.
    ///
    /// # Errors
    /// [`Error::Unavailable`] while a new replica catches up; [`Error::NotLeader`] also when the leader has handed
    /// leadership over because it is to leave: the new leader continues.
    async fn reconfigure(
        &self,
        partition: PartitionId,
        voters: BTreeMap<ReplicaId, NodeId>,
    ) -> Result<(), Error>;

    /// Hands the leadership of a partition to its replica on another node. Sent to the leader.
    async fn transfer_leader(&self, partition: PartitionId, node: NodeId) -> Result<(), Error>;

    /// Changes a partition's range, through its log. Sent to the leader. Idempotent: an order that took effect before
    /// gets the same answer.
    ///
    /// # Errors
    /// [`Error::StaleRoute`] when the partition is at another epoch for another reason, [`Error::InvalidInput`] when
    /// the order does not fit the partition's state (its range, its members), [`Error::Unavailable`] when that may
    /// pass.
    async fn reshape(&self, order: Reshape) -> Result<Reshaped, Error>;

    /// The key below which about half of a partition's rows lie, with as few columns as separate them; `None` when no
    /// key leaves rows on both sides.
    async fn middle_key(&self, partition: PartitionId) -> Result<Option<Bound>, Error>;

    /// Changes the capture of a partition's changes for a copy, through its log. Sent to the leader. Returns the Raft
    /// index of the change. Idempotent.
    ///
    /// # Errors
    /// As [`DataService::write`]; [`Error::NotFound`] for [`Sync`](crate::materialized::Capture::Sync),
    /// [`Shipped`](crate::materialized::Capture::Shipped) and [`Close`](crate::materialized::Capture::Close) without a
    /// capture; [`Error::Unsupported`] for a node of an earlier version.
    async fn capture(
        &self,
        partition: PartitionId,
        epoch: Epoch,
        order: CaptureOrder,
    ) -> Result<u64, Error> {
        let _unused = (partition, epoch, order);
        Err(no_copies())
    }

    /// The captured changes of a partition after an index, linearizably. Sent to the leader.
    ///
    /// # Errors
    /// As [`DataService::scan`]; [`Error::NotFound`] of a "capture" when there is none for the copy; [`Error::Gap`]
    /// when changes after the index are no longer known; [`Error::Unsupported`] for a node of an earlier version.
    async fn changes(&self, request: ChangesRequest) -> Result<Changes, Error> {
        let _unused = request;
        Err(no_copies())
    }

    /// Rows at the moment when the capture for a copy began, in key order and in one stream, with the Raft index up to
    /// which they include all changes. Sent to the leader, once for each capture.
    ///
    /// # Errors
    /// As [`DataService::changes`].
    async fn fill(&self, copy: TableId, scan: ScanRequest) -> Result<(u64, ScanReply), Error> {
        let _unused = (copy, scan);
        Err(no_copies())
    }

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

    /// Status of all replicas of the node.
    async fn status(&self) -> Result<Vec<ReplicaStatus>, Error>;

    /// As [`DataService::status`], with sketches of the series of the partitions that the node leads. A node of an
    /// earlier version, or one that cannot read its files, leaves them out.
    async fn series_status(&self) -> Result<Vec<ReplicaStatus>, Error> {
        self.status().await
    }

    /// As [`DataService::status`], with measures of the partitions that the node leads. A node of an earlier version,
    /// or one that cannot read its files, leaves them out.
    async fn measured_status(&self) -> Result<Vec<ReplicaStatus>, Error> {
        self.status().await
    }
}

fn no_copies() -> Error {
    Error::Unsupported("materialized copies".to_owned())
}

/// Runs parts of queries over the rows of a node.
#[async_trait]
pub trait FragmentService: Send + Sync {
    /// Scans, and returns the fragment's result for each of the scan's streams. Dropping the streams stops the work.
    ///
    /// # Errors
    /// Those of [`DataService::scan`]; [`Error::Unsupported`] when the fragment belongs to another version or uses
    /// unknown functions, while a plain scan may still succeed; in the streams [`Error::Query`] when it fails on the
    /// rows.
    async fn run(&self, request: FragmentRequest) -> Result<ScanReply, Error>;
}

/// Directory of the nodes' services.
pub trait DataNodes: Send + Sync {
    /// Service that runs parts of queries over a node's rows.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if there is no such service, otherwise as [`DataNodes::node`].
    fn fragments(&self, node: NodeId) -> Result<Arc<dyn FragmentService>, Error> {
        Err(Error::Unsupported(format!("running a part of a query at node {node}")))
    }

    /// True if rows come from other processes.
    fn remote(&self) -> bool {
        false
    }

    /// The service of a node.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the node is not known or not reachable.
    fn node(&self, node: NodeId) -> Result<Arc<dyn DataService>, Error>;

    /// The service of a node for orders, which carry the history of the catalog on which they are based.
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

    /// All known nodes.
    fn all(&self) -> Vec<NodeId>;
}

/// A table to be created.
#[derive(Clone, Debug, PartialEq)]
pub struct NewTable {
    /// Database name.
    pub database: String,
    /// Table name.
    pub name: String,
    /// Columns, key and options; version 1.
    pub schema: TableSchema,
    /// Placement of rows.
    pub placement: Placement,
    /// Initial cuts of the key space, ascending. The table gets one more partition than cuts.
    pub cuts: Vec<Bound>,
    /// Role that owns the table.
    pub owner: RoleId,
    /// Table of which it is to be a materialized copy: its columns and options are then those of that table.
    pub copy_of: Option<TableId>,
    /// True if the copy is to take the place of that table when it is in step.
    pub rekeys: bool,
    /// Sequences of its columns, which come and go with the table.
    pub sequences: Vec<TableSequence>,
}

/// Content of an ALTER TABLE.
#[derive(Clone, Debug, PartialEq)]
pub enum TableChange {
    /// Adds columns (meta assigns ids and storage names). A tag is added to the key, before the time index, and is NULL
    /// in older rows.
    AddColumns {
        /// The columns to add.
        columns: Vec<Column>,
        /// True to skip columns that exist with the same type and meaning, instead of failing.
        if_not_exists: bool,
    },
    /// Drops a field.
    DropColumn(String),
    /// Gives a column another name; its storage name stays.
    RenameColumn {
        /// Present name.
        from: String,
        /// New name.
        to: String,
    },
    /// Gives a column a type of which all stored values are values; see [`crate::retype`].
    SetType {
        /// Column name.
        column: String,
        /// New type.
        column_type: ColumnType,
        /// New maximum length of texts; `None`: no limit.
        length: Option<TextLength>,
    },
    /// Lets a field, by name, be NULL.
    DropNotNull(String),
    /// Sets or drops a column's default.
    SetDefault {
        /// Column name.
        column: String,
        /// SQL text of the default; `None` to drop it.
        default: Option<String>,
    },
    /// Replaces the options.
    SetOptions(Box<TableOptions>),
    /// Changes the options that differ between two states; the others stay as they are when the change is decided
    /// ([`TableOptions::merged`]).
    ChangeOptions {
        /// The options as the sender read them.
        base: Box<TableOptions>,
        /// The options as the sender wants them.
        next: Box<TableOptions>,
    },
    /// Changes the column families of a wide table, in this order, as they are when the change is decided.
    ChangeFamilies(Vec<FamilyChange>),
    /// Renames the table.
    Rename(String),
    /// Gives the table the name, the owner and the sequences of another one of its database, which is dropped by that.
    /// Frontends of earlier versions send it; a re-keying loses no late row.
    TakePlace(TableId),
    /// Changes the placement of rows written from now on. Existing rows stay in a former table, which queries include
    /// ([`crate::catalog::Table::former`]). For tables that keep every row (`append_mode`): otherwise two versions of a
    /// row could lie in both.
    Repartition {
        /// New placement of rows.
        placement: Placement,
        /// Cuts of the key space, ascending. One more partition than cuts.
        cuts: Vec<Bound>,
    },
    /// Adds an index, or replaces the one of its kind.
    SetIndex {
        /// Column name.
        column: String,
        /// Name, kind and options of the index.
        index: Index,
        /// True to keep an index of the kind that exists.
        if_not_exists: bool,
    },
    /// Drops a column's index of a kind.
    DropIndex {
        /// Column name.
        column: String,
        /// Kind of the index.
        kind: IndexKind,
    },
    /// Replaces the query of a view. Its columns stay; more may follow them.
    SetView {
        /// All columns of the view.
        columns: Vec<Column>,
        /// The new query.
        definition: Box<ViewDefinition>,
    },
    /// Moves a column in SQL's order, in which `SELECT *` and INSERT without names have the columns.
    MoveColumn {
        /// Column name.
        column: String,
        /// Column before it; `None`: it becomes the first one.
        after: Option<String>,
    },
    /// Adds a CHECK constraint, which later rows have to pass.
    AddCheck(Check),
    /// Drops a CHECK constraint, by name.
    DropCheck(String),
    /// Sets or removes the comment of a column.
    SetComment {
        /// Column name.
        column: String,
        /// The text; `None` to remove it.
        comment: Option<String>,
    },
}

/// A change of the catalog.
#[derive(Clone, Debug, PartialEq)]
pub enum Ddl {
    /// CREATE DATABASE; visible at once.
    CreateDatabase {
        /// Database name.
        name: String,
        /// True to succeed when it exists.
        if_not_exists: bool,
        /// Default `ttl` of its tables.
        ttl: Option<Duration>,
        /// Role that owns the database.
        owner: RoleId,
    },
    /// ALTER DATABASE ... SET 'ttl'.
    AlterDatabase {
        /// Database name.
        name: String,
        /// Default `ttl` of its tables.
        ttl: Option<Duration>,
    },
    /// COMMENT ON DATABASE.
    CommentDatabase {
        /// Database name.
        name: String,
        /// The text; `None` to remove it.
        comment: Option<String>,
    },
    /// Gives a database without tables an explicit schema, for good.
    MakeExplicit {
        /// Database name.
        name: String,
    },
    /// DROP DATABASE, with all its tables.
    DropDatabase {
        /// Database name.
        name: String,
        /// True to succeed when it does not exist.
        if_exists: bool,
    },
    /// CREATE TABLE, with its first partitions.
    CreateTable {
        /// The table to create.
        table: Box<NewTable>,
        /// True to succeed when it exists.
        if_not_exists: bool,
    },
    /// DROP TABLE, with its former table.
    DropTable {
        /// Database name.
        database: String,
        /// Table name.
        name: String,
        /// True to succeed when it does not exist.
        if_exists: bool,
        /// True to drop its materialized copies too; otherwise it must have none.
        cascade: bool,
    },
    /// TRUNCATE TABLE: removes all rows.
    TruncateTable {
        /// Database name.
        database: String,
        /// Table name.
        name: String,
    },
    /// ALTER TABLE, one change at a time.
    AlterTable {
        /// Database name.
        database: String,
        /// Table name.
        name: String,
        /// The change of the table.
        change: TableChange,
    },
    /// A change of roles, grants, tokens or organisations; visible at once.
    Access(Box<AccessChange>),
    /// A change of tasks, or a step of a run; visible at once. False if a step does not fit what is recorded.
    Task(Box<TaskChange>),
    /// A change of a sequence, or the next block of one; visible at once. False if a block was asked for by another
    /// counter than the recorded one.
    Sequence(Box<SequenceChange>),
    /// A change about a materialized copy; visible at once. False if it does not fit what is recorded.
    Copy(CopyChange),
    /// A change by name of an object that was checked. Refused as one of an object that does not exist if the name
    /// belongs to another object when the change takes effect.
    Checked(Box<CheckedDdl>),
}

impl Ddl {
    /// The change of an object that was checked: its name means this object only.
    #[must_use]
    pub fn checked(self, object: NamedObject) -> Self {
        Self::Checked(Box::new(CheckedDdl { object, ddl: self.into_body() }))
    }

    /// The change itself, without the object that was checked for it.
    #[must_use]
    pub fn body(&self) -> &Self {
        match self {
            Self::Checked(checked) => checked.ddl.body(),
            ddl => ddl,
        }
    }

    /// As [`Ddl::body`], by value.
    #[must_use]
    pub fn into_body(self) -> Self {
        match self {
            Self::Checked(checked) => checked.ddl.into_body(),
            ddl => ddl,
        }
    }

    /// True if an object that does not exist is no error.
    #[must_use]
    pub fn allows_missing(&self) -> bool {
        matches!(
            self.body(),
            Self::DropDatabase { if_exists: true, .. } | Self::DropTable { if_exists: true, .. }
        )
    }
}

/// Object that a change names: the database or table that is changed, or the database of a new table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedObject {
    /// Database that is changed, or that of a new table.
    Database(DatabaseId),
    /// Table that is changed.
    Table(TableId),
}

/// A change by name, with the object that was checked under this name. Between the check and the change another client
/// may drop the object and give its name to another one.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedDdl {
    /// Object that was checked.
    pub object: NamedObject,
    /// The change; not itself a [`Ddl::Checked`].
    pub ddl: Ddl,
}

/// An operator's order to the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminOrder {
    /// Begins or ends draining a node: all its replicas move to other nodes, and it gets no new ones.
    Drain {
        /// Node to drain or not.
        node: NodeId,
        /// True to begin, false to end.
        on: bool,
    },
    /// Moves the replica of a partition from one node to another.
    MoveReplica {
        /// Partition whose replica moves.
        partition: PartitionId,
        /// Node that has the replica.
        from: NodeId,
        /// Node that gets the replica.
        to: NodeId,
    },
    /// Hands the leadership of a partition to its replica on a node.
    TransferLeader {
        /// Partition whose leader changes.
        partition: PartitionId,
        /// Node of the new leader.
        to: NodeId,
    },
    /// Splits a partition in two.
    SplitPartition {
        /// Partition to split.
        partition: PartitionId,
        /// First key of the right half; `None`: the middle of its rows.
        at: Option<Bound>,
    },
    /// Merges two neighbouring partitions.
    MergePartitions {
        /// The partition that remains.
        left: PartitionId,
        /// The partition that is removed.
        right: PartitionId,
    },
    /// Removes a node without replicas from the cluster, for good.
    RemoveNode {
        /// Node to remove.
        node: NodeId,
    },
}

/// The service that keeps the catalog.
#[async_trait]
pub trait MetaService: Send + Sync {
    /// Watches the catalog. It includes every change for which [`MetaService::change`] has returned.
    fn catalog(&self) -> watch::Receiver<Arc<Catalog>>;

    /// Changes the catalog; returns when the change is durable, has reached the nodes concerned and is visible in
    /// [`MetaService::catalog`]. True if anything changed.
    async fn change(&self, ddl: Ddl) -> Result<bool, Error>;

    /// Watches the nodes and their liveness.
    fn members(&self) -> watch::Receiver<Arc<Members>>;

    /// The members of meta's own group, each as it answers for itself. A member that does not answer is listed too.
    async fn metas(&self) -> Vec<MetaMember>;

    /// Records an operator's order; returns when it is recorded. It is carried out in the background, except a change
    /// of leader, which is complete on return.
    async fn administer(&self, order: AdminOrder) -> Result<(), Error>;

    /// Load of partitions and nodes, from the nodes' reports. Partitions that are new, or whose leaders are silent, are
    /// left out.
    async fn load(&self, request: LoadRequest) -> Result<LoadReport, Error>;

    /// The heatmap of a table's load over keys and time, as JSON in the form that all renderers read. Empty for a table
    /// without recent load.
    async fn heatmap(&self, request: HeatmapRequest) -> Result<Bytes, Error>;

    /// State of each of these copies, linearizably: every change recorded before the call is seen. `None`: no such copy
    /// is recorded, or it is being dropped. One that is still being made is filling.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Timeout`] when no meta leads; [`Error::Unsupported`] for a meta of an earlier
    /// version.
    async fn confirm(&self, copies: Vec<TableId>) -> Result<Vec<Option<CopyState>>, Error> {
        let _unused = copies;
        Err(no_copies())
    }

    /// Takes samples of what a process's statements write and read. They are kept for about a minute, to name the
    /// causes of hot partitions; nothing else depends on them.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for a report that exceeds a bound of [`crate::blame`]; [`Error::Unsupported`] from a
    /// meta of an earlier version.
    async fn blame(&self, report: BlameReport) -> Result<(), Error> {
        let _unheard = report;
        Err(Error::Unsupported("a report of causes".to_owned()))
    }
}

/// Result of a change of the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// True if anything changed.
    pub changed: bool,
    /// Version of the catalog that includes the change.
    pub version: u64,
}

/// Meta's interface to the processes of a cluster. Except [`ClusterService::standing`], only the leader of meta's group
/// answers these calls; other members return [`Error::NotLeader`], with partition 0.
#[async_trait]
pub trait ClusterService: MetaService {
    /// Watches whether this member leads, with every acknowledged change in its catalog.
    fn leads(&self) -> watch::Receiver<bool>;

    /// State of this member of meta's group. Answered by leaders and followers.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if no member is behind the service.
    fn standing(&self) -> Result<MetaStanding, Error>;

    /// As [`MetaService::change`], for a caller that may miss the answer and repeat the call: the same identity is the
    /// same change, and gets the same answer.
    async fn change_once(&self, id: RequestId, ddl: Ddl) -> Result<Changed, Error>;

    /// Registers a node, or its new address or labels. The same identity gets the same number.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for a removed node: it has to begin with a new data directory.
    async fn register(&self, registration: Registration) -> Result<NodeId, Error>;

    /// Records a generation of a registered node's data directory, unless the directory is an older copy.
    ///
    /// # Errors
    /// As [`ClusterService::heartbeat`]; [`Error::Unsupported`] for a meta of an earlier version.
    async fn renew(&self, renewal: Renewal) -> Result<Renewed, Error>;

    /// Accepts a node's report.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a node that is not registered under this identity; [`Error::InvalidInput`] for one that
    /// was removed: it has to begin with a new data directory, and for one over whose data directory, or a copy of it,
    /// another process has started.
    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<(), Error>;
}

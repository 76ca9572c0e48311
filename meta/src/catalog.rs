//! Meta's catalog: databases, tables and partitions by id, with the work still to be done on them.
//!
//! ```text
//!   Creating ──finish──▶ Ready ──change──▶ Altering ──finish──▶ Ready
//!      │ abort             │ drop             │ drop
//!      └──────────────▶ Dropping ◀────────────┘      ──finish──▶ gone
//! ```
//!
//! A partition's replicas change on their own, while its table is in use:
//!
//! ```text
//!   replicas A B C ──move──▶ target A B D ──created──▶ target A B D, D exists
//!                                                        │ └──(the group has taken it over) moved──▶ replicas A B D
//!                                                        └──renumber (D was lost)──▶ target A B E
//! ```
//!
//! Splits and merges change a partition's range, see [`crate::reshape`].
//!
//! A [`State`] only changes by [`Edit`]s, which [`crate::transition`] decides; the same edits go to
//! the store. Invariants (checked by [`State::check`] when a catalog is loaded, and in tests):
//! - ids are below the counters that allocate them, so no id is ever given twice;
//! - a name belongs to at most one database, and within a database to at most one table that is not
//!   being dropped;
//! - the partitions of a table tile its key space, in order, and each has one table;
//! - a replica's number belongs to one partition and one node for ever, and two replicas of a partition are never
//!   on one node;
//! - a group hears of a new replica only after its creation is recorded, and from then on no order creates the replica
//!   under its number: the group may count on its entries and votes;
//! - a node's number belongs to one identity, also after the node was removed, and nothing that is in use lies on a
//!   node that was removed;
//! - only tables that are ready or being altered are published, and copies that are being made anew;
//! - owners, grants, memberships and tokens name roles, objects and organisations that exist;
//! - a copy has a source in its database that is visible and no copy itself, and the source's key columns in some order,
//!   unless it is retired and has only the partitions that the source had before it was re-keyed;
//! - every task has one record of its definition and one of its progress, and a name of its own in a database that exists;
//! - no sequence has the name of a table of its database, and one of a column goes with it.

mod check;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use partita_proto::access::{
    Access, Arrival, Grant, Org, Role, Secrets, Target as GrantTarget, Token,
};
use partita_proto::catalog::DEFAULT_DATABASE;
use partita_proto::catalog_history::{CatalogHistory, Leadership};
use partita_proto::generation::Generation;
use partita_proto::id::{
    BOOTSTRAP_ROLE, DatabaseId, Epoch, NodeId, OrgId, PartitionId, ReplicaId, RoleId, SequenceId,
    TableId, TaskId, TokenId,
};
use partita_proto::label::Labels;
use partita_proto::materialized::{CopyOf, CopyState};
use partita_proto::placement::Placement;
use partita_proto::range::TypedRange;
use partita_proto::schema::TableSchema;
use partita_proto::sequence::Sequence;
use partita_proto::service::RequestId;
use partita_proto::task::{Task, TaskEntry, TaskState};

use crate::reshape::Reshaping;

/// The catalog version at which a table entered its current phase. A result of work planned for one step is ignored
/// at another step, so a late answer never finishes the wrong work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Step(pub(crate) u64);

/// Work in progress on a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Replicas are being opened; the table is not visible yet.
    Creating,
    /// No work in progress.
    Ready,
    /// The nodes are getting orders for a change; until it is done, the old state stays published.
    Altering(Work),
    /// Replicas are being removed; the table is not visible any more, and its name is free.
    Dropping,
}

/// Change that a table's partitions are ordered to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A new schema, published when all partitions have it.
    Schema(Arc<TableSchema>),
    /// Removal of all rows.
    Truncate,
    /// A new epoch for the partitions of the former table, so that they refuse requests with an older map, which
    /// would read the former table without this one. Until all have it, rows are written to the former table.
    Succeed,
}

/// A database as recorded in the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DatabaseRecord {
    pub(crate) id: DatabaseId,
    pub(crate) name: String,
    pub(crate) ttl: Option<Duration>,
    /// Owning role.
    pub(crate) owner: RoleId,
    /// True if line protocol creates neither tables nor columns.
    pub(crate) explicit: bool,
    /// Owner's comment.
    pub(crate) comment: Option<String>,
}

/// A table as recorded in the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableRecord {
    pub(crate) id: TableId,
    pub(crate) database: DatabaseId,
    pub(crate) name: String,
    pub(crate) phase: Phase,
    pub(crate) step: Step,
    /// The published schema.
    pub(crate) schema: Arc<TableSchema>,
    pub(crate) placement: Placement,
    /// Storage names of dropped columns, never used again.
    pub(crate) dropped_names: BTreeSet<String>,
    /// The `ttl` in the latest order to the nodes, carried out or not: the table's own or its database's. If it
    /// differs from the wanted `ttl`, the table is altered.
    pub(crate) ordered_ttl: Option<Duration>,
    /// In ascending order of their ranges.
    pub(crate) partitions: Vec<PartitionId>,
    /// The former table, whose rows count as this table's: they were written before the placement changed. While
    /// this table is being created, the table that it will succeed.
    pub(crate) former: Option<TableId>,
    /// The table that succeeds this one; set once the partitions of the successor exist.
    pub(crate) succeeded_by: Option<TableId>,
    /// Owning role.
    pub(crate) owner: RoleId,
    /// Source and state, if the table is a copy.
    pub(crate) copy: Option<Arc<CopyOf>>,
}

impl TableRecord {
    /// True if the table's partitions exist, and frontends see it.
    pub(crate) fn is_visible(&self) -> bool {
        matches!(self.phase, Phase::Ready | Phase::Altering(_))
    }

    /// True if frontends see the table. They see a copy also while it is made anew, since they knew it before; nobody
    /// takes it to fill it before its partitions exist.
    pub(crate) fn is_published(&self) -> bool {
        let is_renewed = self.copy.as_ref().is_some_and(|copy| copy.fills > 1);
        self.is_visible() || (self.phase == Phase::Creating && is_renewed)
    }

    /// True if the table is a copy that takes the place of its source, or has done so.
    pub(crate) fn is_rekeying(&self) -> bool {
        self.copy.as_ref().is_some_and(|copy| copy.is_rekeying())
    }

    /// True if the table has the former partitions of one that was re-keyed.
    pub(crate) fn is_retired(&self) -> bool {
        self.copy.as_ref().is_some_and(|copy| copy.state == CopyState::Retired)
    }

    /// True if the table holds its name.
    pub(crate) fn is_named(&self) -> bool {
        self.phase != Phase::Dropping
    }

    /// True if nodes have to get orders about the table.
    pub(crate) fn is_pending(&self) -> bool {
        self.phase != Phase::Ready
    }
}

/// A partition as recorded in the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionRecord {
    pub(crate) id: PartitionId,
    pub(crate) table: TableId,
    pub(crate) range: TypedRange,
    pub(crate) epoch: Epoch,
    /// Recorded members of the Raft group.
    pub(crate) replicas: BTreeMap<ReplicaId, NodeId>,
    /// Wanted members of the group, while a change is under way.
    pub(crate) target: Option<Target>,
    /// The split or merge under way.
    pub(crate) reshaping: Option<Reshaping>,
    /// Node that led the partition when it was split off, where clients look for its leader first.
    pub(crate) first_leader: Option<NodeId>,
    /// Time at which an operator chose the partition's first key, in CREATE TABLE or by a split: milliseconds since 1970,
    /// 0 if unknown. `None`: chosen automatically, or recorded by an earlier version.
    pub(crate) cut_by_hand_ms: Option<i64>,
}

impl PartitionRecord {
    /// All replicas that may exist: the recorded and the wanted ones.
    pub(crate) fn all_replicas(&self) -> BTreeMap<ReplicaId, NodeId> {
        let target = self.target.iter().flat_map(|target| &target.replicas);
        self.replicas.iter().chain(target).map(|(replica, node)| (*replica, *node)).collect()
    }

    /// Replicas of a target that are not recorded members of the group.
    pub(crate) fn new_replicas<'a>(
        &'a self,
        target: &'a Target,
    ) -> impl Iterator<Item = (ReplicaId, NodeId)> + 'a {
        let replicas = target.replicas.iter().map(|(replica, node)| (*replica, *node));
        replicas.filter(|(replica, _)| !self.replicas.contains_key(replica))
    }
}

/// The replicas that a partition is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) replicas: BTreeMap<ReplicaId, NodeId>,
    /// Catalog version that set the target.
    pub(crate) step: Step,
    /// New replicas that were created.
    pub(crate) created: BTreeSet<ReplicaId>,
}

/// A node that holds replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeRecord {
    pub(crate) id: NodeId,
    /// Random number of the node's data directory.
    pub(crate) identity: u64,
    pub(crate) address: String,
    /// All replicas and leaders are to leave the node.
    pub(crate) draining: bool,
    /// Labels that the operator gave the node, such as its zone.
    pub(crate) labels: Labels,
    /// Newest generation of the data directory; `None`: not reported yet.
    pub(crate) generation: Option<Generation>,
}

/// The data directory of a member of meta's own group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetaRecord {
    /// Random number of the data directory.
    pub(crate) identity: u64,
    /// Newest generation; `None`: not reported yet.
    pub(crate) generation: Option<Generation>,
}

/// A change that came with a request id, and the steps that it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remembered {
    pub(crate) id: RequestId,
    pub(crate) steps: Vec<(TableId, Step)>,
}

/// Maximum remembered changes: many times the number requested within the minute in which a client repeats a request.
pub(crate) const REMEMBERED_MAX: u64 = 8192;

/// The catalog version, and the next id of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Grows with every change.
    pub(crate) version: u64,
    pub(crate) database: DatabaseId,
    pub(crate) table: TableId,
    pub(crate) partition: PartitionId,
    pub(crate) replica: ReplicaId,
    pub(crate) node: NodeId,
    /// Number of changes with a request id so far.
    pub(crate) remembered: u64,
    pub(crate) role: RoleId,
    /// Version at which roles, grants, organisations or tokens changed last.
    pub(crate) access: u64,
    pub(crate) task: TaskId,
    pub(crate) sequence: SequenceId,
}

/// One record that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    Counters(Counters),
    Database(Arc<DatabaseRecord>),
    DatabaseGone(DatabaseId),
    Table(Arc<TableRecord>),
    TableGone(TableId),
    Partition(Arc<PartitionRecord>),
    PartitionGone(PartitionId),
    Node(Arc<NodeRecord>),
    NodeGone(NodeId),
    /// A removed node, and the identity that it had.
    Removed(NodeId, u64),
    /// The cluster's random number; set once.
    Cluster(u64),
    /// A leadership of meta's group.
    Leadership(Leadership),
    /// A leadership that is no longer remembered, by the version that recorded it.
    LeadershipGone(u64),
    /// A member of meta's own group, and its data directory.
    Meta(NodeId, MetaRecord),
    Role(Arc<Role>),
    RoleGone(RoleId),
    /// The grants on an object; never without an entry.
    Grant(Arc<Grant>),
    GrantGone(GrantTarget),
    Org(Arc<Org>),
    OrgGone(OrgId),
    Token(Arc<Token>),
    TokenGone(TokenId),
    /// Random keys of the cluster; set once.
    Secrets(Secrets),
    Task(Arc<Task>),
    TaskGone(TaskId),
    TaskState(Arc<TaskState>),
    TaskStateGone(TaskId),
    Sequence(Arc<Sequence>),
    SequenceGone(SequenceId),
    /// Remembers a change in this place, instead of the one that was there.
    Remember(u64, Arc<Remembered>),
}

impl Edit {
    /// True if the record is one of those that say who may do what.
    pub(crate) fn is_access(&self) -> bool {
        matches!(
            self,
            Self::Role(_)
                | Self::RoleGone(_)
                | Self::Grant(_)
                | Self::GrantGone(_)
                | Self::Org(_)
                | Self::OrgGone(_)
                | Self::Token(_)
                | Self::TokenGone(_)
                | Self::Secrets(_)
        )
    }

    /// Applies an edit of roles, grants, organisations, tokens or secrets; others change nothing.
    pub(crate) fn apply_access(&self, access: &mut Access) {
        match self {
            Self::Role(role) => access.put_role(Arc::clone(role)),
            Self::RoleGone(id) => access.drop_role(*id),
            Self::Grant(grant) => access.put_grant(Grant::clone(grant)),
            Self::GrantGone(target) => access.drop_grant(*target),
            Self::Org(org) => access.put_org(Org::clone(org)),
            Self::OrgGone(id) => access.drop_org(*id),
            Self::Token(token) => access.put_token(Arc::clone(token)),
            Self::TokenGone(id) => access.drop_token(*id),
            Self::Secrets(secrets) => access.secrets = *secrets,
            _ => {}
        }
    }
}

/// Everything meta knows. Cheap to clone: records are shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    counters: Counters,
    databases: BTreeMap<DatabaseId, Arc<DatabaseRecord>>,
    tables: BTreeMap<TableId, Arc<TableRecord>>,
    partitions: BTreeMap<PartitionId, Arc<PartitionRecord>>,
    nodes: BTreeMap<NodeId, Arc<NodeRecord>>,
    /// The identities of nodes that were removed: neither they nor their numbers come back.
    removed: BTreeMap<NodeId, u64>,
    /// The cluster's random number; 0: not made yet.
    cluster: u64,
    /// The newest leaderships of meta's group, by the version that recorded each.
    leaderships: BTreeMap<u64, Leadership>,
    /// The members of meta's own group whose data directories are known.
    metas: BTreeMap<NodeId, MetaRecord>,
    remembered: BTreeMap<u64, Arc<Remembered>>,
    /// Roles, grants, organisations and tokens; none before the first leader has made the superuser.
    access: Access,
    tasks: BTreeMap<TaskId, Arc<Task>>,
    task_states: BTreeMap<TaskId, Arc<TaskState>>,
    sequences: BTreeMap<SequenceId, Arc<Sequence>>,
    // Derived from the above.
    database_names: BTreeMap<String, DatabaseId>,
    table_names: BTreeMap<DatabaseId, BTreeMap<String, TableId>>,
    pending: BTreeSet<TableId>,
    moving: BTreeSet<PartitionId>,
    reshaping: BTreeSet<PartitionId>,
    remembered_at: BTreeMap<RequestId, u64>,
}

impl State {
    /// An empty catalog at version 0.
    pub(crate) fn empty() -> Self {
        // Partitions start at 1 because group 0 is meta's. An id of 0 is never given, so that a forgotten field is
        // never taken for an id. Replica 1 is meta's own.
        let counters = Counters {
            version: 0,
            database: DatabaseId(1),
            table: TableId(1),
            partition: PartitionId(1),
            replica: ReplicaId(2),
            node: NodeId(1),
            remembered: 0,
            // Role 0 is the bootstrap superuser.
            role: RoleId(1),
            access: 0,
            task: TaskId(1),
            sequence: SequenceId(1),
        };
        Self {
            counters,
            databases: BTreeMap::new(),
            tables: BTreeMap::new(),
            partitions: BTreeMap::new(),
            nodes: BTreeMap::new(),
            removed: BTreeMap::new(),
            cluster: 0,
            leaderships: BTreeMap::new(),
            metas: BTreeMap::new(),
            remembered: BTreeMap::new(),
            access: Access::default(),
            tasks: BTreeMap::new(),
            task_states: BTreeMap::new(),
            sequences: BTreeMap::new(),
            database_names: BTreeMap::new(),
            table_names: BTreeMap::new(),
            pending: BTreeSet::new(),
            moving: BTreeSet::new(),
            reshaping: BTreeSet::new(),
            remembered_at: BTreeMap::new(),
        }
    }

    /// Edits that make a new catalog: the default database.
    pub(crate) fn first_edits() -> Vec<Edit> {
        let mut counters = Self::empty().counters;
        let public = DatabaseRecord {
            id: counters.database,
            name: DEFAULT_DATABASE.to_owned(),
            ttl: None,
            owner: BOOTSTRAP_ROLE,
            explicit: false,
            comment: None,
        };
        counters.version = 1;
        counters.database = DatabaseId(public.id.0 + 1);
        vec![Edit::Counters(counters), Edit::Database(Arc::new(public))]
    }

    /// Applies edits that are already decided; refuses nothing.
    pub(crate) fn apply(&mut self, edits: &[Edit]) {
        for edit in edits {
            // Records are replaced as a whole; the derived indexes follow each of them.
            match edit {
                Edit::Counters(counters) => {
                    self.counters = *counters;
                    self.access.version = counters.access;
                }
                Edit::Database(record) => {
                    self.forget_database(record.id);
                    self.database_names.insert(record.name.clone(), record.id);
                    self.databases.insert(record.id, Arc::clone(record));
                }
                Edit::DatabaseGone(id) => self.forget_database(*id),
                Edit::Table(record) => {
                    self.forget_table(record.id);
                    if record.is_named() {
                        let names = self.table_names.entry(record.database).or_default();
                        names.insert(record.name.clone(), record.id);
                    }
                    if record.is_pending() {
                        self.pending.insert(record.id);
                    }
                    self.tables.insert(record.id, Arc::clone(record));
                }
                Edit::TableGone(id) => self.forget_table(*id),
                Edit::Partition(record) => {
                    keep(&mut self.moving, record.id, record.target.is_some());
                    keep(&mut self.reshaping, record.id, record.reshaping.is_some());
                    self.partitions.insert(record.id, Arc::clone(record));
                }
                Edit::PartitionGone(id) => {
                    self.moving.remove(id);
                    self.reshaping.remove(id);
                    self.partitions.remove(id);
                }
                Edit::Node(record) => drop(self.nodes.insert(record.id, Arc::clone(record))),
                Edit::NodeGone(id) => drop(self.nodes.remove(id)),
                Edit::Removed(id, identity) => drop(self.removed.insert(*id, *identity)),
                Edit::Cluster(cluster) => self.cluster = *cluster,
                Edit::Leadership(leadership) => {
                    self.leaderships.insert(leadership.first, *leadership);
                }
                Edit::LeadershipGone(first) => drop(self.leaderships.remove(first)),
                Edit::Meta(node, record) => drop(self.metas.insert(*node, *record)),
                Edit::Remember(place, remembered) => {
                    let previous = self.remembered.insert(*place, Arc::clone(remembered));
                    if let Some(previous) = previous {
                        self.remembered_at.remove(&previous.id);
                    }
                    self.remembered_at.insert(remembered.id, *place);
                }
                Edit::Task(task) => drop(self.tasks.insert(task.id, Arc::clone(task))),
                Edit::TaskGone(id) => drop(self.tasks.remove(id)),
                Edit::TaskState(state) => {
                    self.task_states.insert(state.task, Arc::clone(state));
                }
                Edit::TaskStateGone(id) => drop(self.task_states.remove(id)),
                Edit::Sequence(sequence) => {
                    self.sequences.insert(sequence.id, Arc::clone(sequence));
                }
                Edit::SequenceGone(id) => drop(self.sequences.remove(id)),
                Edit::Role(_)
                | Edit::RoleGone(_)
                | Edit::Grant(_)
                | Edit::GrantGone(_)
                | Edit::Org(_)
                | Edit::OrgGone(_)
                | Edit::Token(_)
                | Edit::TokenGone(_)
                | Edit::Secrets(_) => edit.apply_access(&mut self.access),
            }
        }
    }

    fn forget_database(&mut self, id: DatabaseId) {
        if let Some(old) = self.databases.remove(&id) {
            self.database_names.remove(&old.name);
        }
    }

    fn forget_table(&mut self, id: TableId) {
        self.pending.remove(&id);
        let Some(old) = self.tables.remove(&id) else { return };
        // The name may belong to a newer table by now, if this one was being dropped.
        if let Some(names) = self.table_names.get_mut(&old.database) {
            if names.get(&old.name) == Some(&id) {
                names.remove(&old.name);
            }
            if names.is_empty() {
                self.table_names.remove(&old.database);
            }
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    pub(crate) fn version(&self) -> u64 {
        self.counters.version
    }

    pub(crate) fn databases(&self) -> impl Iterator<Item = &Arc<DatabaseRecord>> {
        self.databases.values()
    }

    pub(crate) fn database(&self, id: DatabaseId) -> Option<&Arc<DatabaseRecord>> {
        self.databases.get(&id)
    }

    pub(crate) fn database_named(&self, name: &str) -> Option<&Arc<DatabaseRecord>> {
        self.databases.get(self.database_names.get(name)?)
    }

    /// All tables, including those being dropped.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<TableRecord>> {
        self.tables.values()
    }

    pub(crate) fn table_count(&self) -> usize {
        self.tables.len()
    }

    pub(crate) fn table(&self, id: TableId) -> Option<&Arc<TableRecord>> {
        self.tables.get(&id)
    }

    /// The table that holds a name; never one that is being dropped.
    pub(crate) fn table_named(
        &self,
        database: DatabaseId,
        name: &str,
    ) -> Option<&Arc<TableRecord>> {
        self.tables.get(self.table_names.get(&database)?.get(name)?)
    }

    /// The tables of a database that hold a name.
    pub(crate) fn tables_of(
        &self,
        database: DatabaseId,
    ) -> impl Iterator<Item = &Arc<TableRecord>> {
        let names = self.table_names.get(&database);
        names.into_iter().flat_map(BTreeMap::values).filter_map(|id| self.tables.get(id))
    }

    /// The copies of a table; never one that is being dropped, or that is retired.
    pub(crate) fn copies_of(&self, source: TableId) -> impl Iterator<Item = &Arc<TableRecord>> {
        self.dependents_of(source).filter(|table| !table.is_retired())
    }

    /// The copies of a table, and those that are retired; never one that is being dropped.
    pub(crate) fn dependents_of(&self, source: TableId) -> impl Iterator<Item = &Arc<TableRecord>> {
        let is_copy = move |table: &&Arc<TableRecord>| {
            table.is_named() && table.copy.as_ref().is_some_and(|copy| copy.source == source)
        };
        self.tables.values().filter(is_copy)
    }

    /// State of a copy; `None` if there is none with this id, or it is being dropped.
    pub(crate) fn copy_state(&self, id: TableId) -> Option<CopyState> {
        let record = self.tables.get(&id).filter(|table| table.is_named())?;
        record.copy.as_ref().map(|copy| copy.state)
    }

    /// Tables about which nodes have to get orders.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &Arc<TableRecord>> {
        self.pending.iter().filter_map(|id| self.tables.get(id))
    }

    pub(crate) fn partitions(&self) -> impl Iterator<Item = &Arc<PartitionRecord>> {
        self.partitions.values()
    }

    pub(crate) fn partition(&self, id: PartitionId) -> Option<&Arc<PartitionRecord>> {
        self.partitions.get(&id)
    }

    /// Partitions whose replicas are being changed.
    pub(crate) fn moving(&self) -> impl Iterator<Item = &Arc<PartitionRecord>> {
        self.moving.iter().filter_map(|id| self.partitions.get(id))
    }

    /// Partitions that are in a split or a merge.
    pub(crate) fn reshaping(&self) -> impl Iterator<Item = &Arc<PartitionRecord>> {
        self.reshaping.iter().filter_map(|id| self.partitions.get(id))
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Arc<NodeRecord>> {
        self.nodes.values()
    }

    pub(crate) fn node(&self, id: NodeId) -> Option<&Arc<NodeRecord>> {
        self.nodes.get(&id)
    }

    pub(crate) fn node_of(&self, identity: u64) -> Option<&Arc<NodeRecord>> {
        self.nodes.values().find(|node| node.identity == identity)
    }

    /// Nodes that were removed, and the identities that they had.
    pub(crate) fn removed(&self) -> impl Iterator<Item = (NodeId, u64)> {
        self.removed.iter().map(|(node, identity)| (*node, *identity))
    }

    /// True if a node with this number existed and was removed.
    pub(crate) fn is_removed(&self, node: NodeId) -> bool {
        self.removed.contains_key(&node)
    }

    /// Number of the removed node that had this identity.
    pub(crate) fn removed_of(&self, identity: u64) -> Option<NodeId> {
        self.removed().find(|(_, candidate)| *candidate == identity).map(|(node, _)| node)
    }

    /// The cluster's random number; 0 before its first leader has made it.
    pub(crate) fn cluster(&self) -> u64 {
        self.cluster
    }

    /// The newest leaderships of meta's group, oldest first.
    pub(crate) fn leaderships(&self) -> impl DoubleEndedIterator<Item = &Leadership> {
        self.leaderships.values()
    }

    /// History of the catalog that each order to a node carries; `None` before the first leadership is recorded.
    pub(crate) fn history(&self) -> Option<CatalogHistory> {
        let leaderships: Vec<Leadership> = self.leaderships().copied().collect();
        let complete = self.cluster != 0 && !leaderships.is_empty();
        let version = self.version();
        complete.then_some(CatalogHistory { cluster: self.cluster, version, leaderships })
    }

    /// The members of meta's group whose data directories are known, and their identities.
    pub(crate) fn metas(&self) -> impl Iterator<Item = (NodeId, u64)> {
        self.metas.iter().map(|(node, record)| (*node, record.identity))
    }

    /// The data directory of a member of meta's group, if it is known.
    pub(crate) fn meta(&self, node: NodeId) -> Option<&MetaRecord> {
        self.metas.get(&node)
    }

    /// The identity of the data directory of a member of meta's group, if it is known.
    pub(crate) fn meta_identity(&self, node: NodeId) -> Option<u64> {
        self.meta(node).map(|record| record.identity)
    }

    /// True if the partition's only replica is on this node, now and after a change of replicas that is in progress.
    pub(crate) fn is_alone(&self, partition: PartitionId, node: NodeId) -> bool {
        let record = self.partitions.get(&partition);
        record.is_some_and(|record| record.all_replicas().values().eq([&node]))
    }

    /// Result of an earlier change with this request id.
    pub(crate) fn remembered(&self, id: RequestId) -> Option<&Arc<Remembered>> {
        self.remembered.get(self.remembered_at.get(&id)?)
    }

    /// Roles, grants, organisations and tokens.
    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// Lets everybody who needs roles or tokens wait until a loader delivers them.
    pub(crate) fn await_identities(&mut self) -> Arrival {
        self.access.await_identities()
    }

    /// All tasks.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = &Arc<Task>> {
        self.tasks.values()
    }

    /// Progress of all tasks.
    pub(crate) fn task_states(&self) -> impl Iterator<Item = &Arc<TaskState>> {
        self.task_states.values()
    }

    /// A task with its progress.
    pub(crate) fn task(&self, id: TaskId) -> Option<TaskEntry> {
        let task = Arc::clone(self.tasks.get(&id)?);
        let state = Arc::clone(self.task_states.get(&id)?);
        Some(TaskEntry { task, state })
    }

    /// All sequences.
    pub(crate) fn sequences(&self) -> impl Iterator<Item = &Arc<Sequence>> {
        self.sequences.values()
    }

    /// A sequence with its counter.
    pub(crate) fn sequence(&self, id: SequenceId) -> Option<&Arc<Sequence>> {
        self.sequences.get(&id)
    }

    /// True if a sequence of the database has the name.
    pub(crate) fn is_sequence(&self, database: DatabaseId, name: &str) -> bool {
        self.sequences().any(|sequence| sequence.database == database && sequence.name == name)
    }

    /// True if a role can own an object. The bootstrap superuser can before it is recorded: entries of earlier
    /// versions name no owner.
    pub(crate) fn may_own(&self, role: RoleId) -> bool {
        role == BOOTSTRAP_ROLE || self.access.role(role).is_some()
    }

    /// The whole catalog, as edits of an empty state.
    pub(crate) fn all_edits(&self) -> Vec<Edit> {
        let mut edits = vec![Edit::Counters(self.counters)];
        edits.extend(self.databases.values().cloned().map(Edit::Database));
        edits.extend(self.tables.values().cloned().map(Edit::Table));
        edits.extend(self.partitions.values().cloned().map(Edit::Partition));
        edits.extend(self.nodes.values().cloned().map(Edit::Node));
        edits.extend(self.removed().map(|(node, identity)| Edit::Removed(node, identity)));
        if self.cluster != 0 {
            edits.push(Edit::Cluster(self.cluster));
        }
        edits.extend(self.leaderships().copied().map(Edit::Leadership));
        edits.extend(self.metas.iter().map(|(node, record)| Edit::Meta(*node, *record)));
        if self.access.role(BOOTSTRAP_ROLE).is_some() {
            edits.push(Edit::Secrets(self.access.secrets));
        }
        edits.extend(self.access.roles().values().cloned().map(Edit::Role));
        edits.extend(self.access.grants().cloned().map(Edit::Grant));
        edits.extend(self.access.orgs().cloned().map(Edit::Org));
        edits.extend(self.access.tokens().cloned().map(Edit::Token));
        edits.extend(self.tasks.values().cloned().map(Edit::Task));
        edits.extend(self.task_states.values().cloned().map(Edit::TaskState));
        edits.extend(self.sequences.values().cloned().map(Edit::Sequence));
        let remembered = self.remembered.iter();
        edits.extend(remembered.map(|(place, change)| Edit::Remember(*place, Arc::clone(change))));
        edits
    }

    /// A table's partitions in the order of their ranges.
    pub(crate) fn partitions_of(
        &self,
        table: &TableRecord,
    ) -> impl Iterator<Item = &Arc<PartitionRecord>> {
        table.partitions.iter().filter_map(|id| self.partitions.get(id))
    }

    /// Effective `ttl` of a table with this schema in a database: the table's own, or the database's if the table
    /// has a time index.
    pub(crate) fn ttl(&self, database: DatabaseId, schema: &TableSchema) -> Option<Duration> {
        let inherited = || {
            schema.time_index()?;
            self.database(database)?.ttl
        };
        schema.options.ttl.or_else(inherited)
    }
}

/// Adds an id to a set if it is to be present, or removes it.
fn keep(ids: &mut BTreeSet<PartitionId>, id: PartitionId, present: bool) {
    if present {
        ids.insert(id);
    } else {
        ids.remove(&id);
    }
}

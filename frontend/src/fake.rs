//! Services in memory, for tests of the frontend and its doors: no log, no files, no threads.
//!
//! [`Fake`] is meta and all nodes at once. Rows are kept as one-row batches by key, which is slow and obviously
//! correct. Tests inject faults by queueing errors, and can split a partition while a statement runs.

mod access;
mod conditions;
mod copies;
mod replicas;
mod reshape;
mod sequences;
mod tasks;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, RecordBatchOptions, new_null_array};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use partita_lanes::{LaneOptions, Lanes};
use partita_proto::Error;
use partita_proto::access::{Access, Secrets};
use partita_proto::array::array_of;
use partita_proto::blame::BlameReport;
use partita_proto::cardinality::SeriesSketch;
use partita_proto::catalog::{Catalog, DEFAULT_DATABASE, Database, Table};
use partita_proto::domain::Domains;
use partita_proto::id::{
    BOOTSTRAP_ROLE, ColumnId, DatabaseId, Epoch, NodeId, PartitionId, ReplicaId, RoleId, TableId,
};
use partita_proto::index::{Index, IndexKind};
use partita_proto::key::KeyCodec;
use partita_proto::load::{HeatmapRequest, LoadReport, LoadRequest};
use partita_proto::materialized::{CaptureOrder, Changes, ChangesRequest, CopyState};
use partita_proto::measure::{IndexBuild, PartitionMeasures};
use partita_proto::member::{Member, Members, MetaMember, MetaStanding};
use partita_proto::range::Bound;
use partita_proto::reshape::{Reshape, Reshaped};
use partita_proto::route::{PartitionMap, Route};
use partita_proto::schema::{Column, MergeMode, Semantic, TableOptions, TableSchema};
use partita_proto::service::{
    AdminOrder, CheckedDdl, DataNodes, DataService, Ddl, FirstByTime, FragmentRequest,
    FragmentService, IndexUse, KeyOrder, MetaService, NamedObject, NewTable, PartitionSpec,
    ReadFrom, ReplicaStatus, RequestId, ScanReply, ScanRequest, ScanStats, TableChange, WriteKind,
    WriteReply, WriteRequest,
};
use partita_proto::value::Value;
use partita_proto::wide::FamilyChange;
use partita_worker::{MEMORY_BYTES, Worker};
use tokio::runtime::Handle;
use tokio::sync::{RwLock, watch};

use self::copies::{Captures, copies_of, drop_table};
use crate::error::SqlError;
use crate::frontend::{Frontend, FrontendOptions};

/// Versions of one row, oldest first; more than one only in append mode.
type Versions = Vec<RecordBatch>;

struct Partition {
    table: Arc<Table>,
    codec: KeyCodec,
    epoch: Epoch,
    rows: BTreeMap<Vec<u8>, Versions>,
    /// Index of the last write of each key.
    written: HashMap<Vec<u8>, u64>,
    /// Indexes of the writes, by identity.
    seen: HashMap<RequestId, u64>,
    /// Index of the last entry.
    writes: u64,
    captures: Captures,
    scans: u64,
}

/// Meta and the nodes of a cluster, in memory.
pub struct Fake {
    catalog: watch::Sender<Arc<Catalog>>,
    /// Held while the catalog is read, changed and published: changes are serialized, as in meta's log.
    changing: Mutex<()>,
    partitions: Mutex<HashMap<PartitionId, Partition>>,
    next: AtomicU64,
    nodes: u64,
    /// Acknowledges writes without keeping their rows, for benchmarks of the path before.
    pub forgets: AtomicBool,
    /// Writes wait while a test holds the write lock.
    pub writes: Arc<RwLock<()>>,
    /// Errors of the next writes, before they take effect.
    pub write_errors: Mutex<VecDeque<Error>>,
    /// Errors of the next writes, after they took effect.
    pub late_write_errors: Mutex<VecDeque<Error>>,
    /// Partitions whose answers to writes are lost, after these took effect.
    pub unanswered: Mutex<BTreeSet<PartitionId>>,
    /// Errors of the next scans.
    pub scan_errors: Mutex<VecDeque<Error>>,
    /// Replicas that each scan was for, in order of arrival.
    pub read_from: Mutex<Vec<ReadFrom>>,
    /// Thousandths of a core that nodes report for reads.
    pub read_millicores: AtomicU64,
    /// Nodes do not know that scans may have an order.
    pub ignores_orders: AtomicBool,
    /// Errors of the next fragments, before they run.
    pub fragment_errors: Mutex<VecDeque<Error>>,
    /// Errors of the next fragments, in place of the rows of their last stream.
    pub late_fragment_errors: Mutex<VecDeque<Error>>,
    /// Errors of the next flushes and compactions.
    pub maintenance_errors: Mutex<VecDeque<Error>>,
    /// Partitions that were flushed or compacted, in order.
    pub maintained: Mutex<Vec<PartitionId>>,
    /// Number of fragments that ran at nodes.
    pub fragments: AtomicU64,
    /// Threads of fragments; started by the first one.
    lanes: OnceLock<Arc<Lanes>>,
    /// Partition, identity and row count of all writes, in order of arrival.
    pub requests: Mutex<Vec<(PartitionId, RequestId, usize)>>,
    /// Operator orders, in order of arrival.
    pub orders: Mutex<Vec<AdminOrder>>,
    /// Meta's answer to load requests.
    pub load: Mutex<LoadReport>,
    /// Meta's answer to heatmap requests; the requests are kept in `pictures`.
    pub heatmap: Mutex<Bytes>,
    /// Heatmap requests, in order of arrival.
    pub pictures: Mutex<Vec<HeatmapRequest>>,
    /// Number of confirmations of copies that meta gave.
    pub confirmations: AtomicU64,
    /// Meta answers neither confirmations nor changes about copies.
    pub is_meta_silent: AtomicBool,
    /// Reports of who writes and reads, in order of arrival.
    pub causes: Mutex<Vec<BlameReport>>,
    /// Nodes that were asked for their status, in order of arrival.
    pub statuses: Mutex<Vec<NodeId>>,
    members: watch::Sender<Arc<Members>>,
}

impl std::fmt::Debug for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fake")
    }
}

impl Fake {
    /// A cluster of `nodes` nodes (at least one) with the default database, no table, and the bootstrap superuser without a
    /// password.
    pub fn new(nodes: u64) -> Arc<Self> {
        // Ids of tables and partitions start at 10; the default database has id 1.
        let access = Arc::new(Access::bootstrap("partita", Secrets::default()));
        let mut catalog = Catalog { version: 1, access, ..Catalog::default() };
        add_database(&mut catalog, DEFAULT_DATABASE, DatabaseId(1), BOOTSTRAP_ROLE);
        let nodes = nodes.max(1);
        let member = |node| {
            let member =
                Member { address: format!("node{node}:4010"), live: true, ..Member::default() };
            (NodeId(node), member)
        };
        Arc::new(Self {
            catalog: watch::Sender::new(Arc::new(catalog)),
            changing: Mutex::new(()),
            partitions: Mutex::new(HashMap::new()),
            next: AtomicU64::new(10),
            nodes,
            forgets: AtomicBool::new(false),
            writes: Arc::default(),
            write_errors: Mutex::new(VecDeque::new()),
            late_write_errors: Mutex::new(VecDeque::new()),
            unanswered: Mutex::default(),
            scan_errors: Mutex::new(VecDeque::new()),
            read_from: Mutex::default(),
            read_millicores: AtomicU64::new(0),
            ignores_orders: AtomicBool::new(false),
            fragment_errors: Mutex::default(),
            late_fragment_errors: Mutex::default(),
            maintenance_errors: Mutex::default(),
            maintained: Mutex::default(),
            fragments: AtomicU64::new(0),
            lanes: OnceLock::new(),
            requests: Mutex::new(Vec::new()),
            orders: Mutex::new(Vec::new()),
            load: Mutex::new(LoadReport::default()),
            heatmap: Mutex::default(),
            pictures: Mutex::default(),
            confirmations: AtomicU64::new(0),
            is_meta_silent: AtomicBool::new(false),
            causes: Mutex::default(),
            statuses: Mutex::default(),
            members: watch::Sender::new(Arc::new((1..=nodes).map(member).collect())),
        })
    }

    fn maintain(&self, partition: PartitionId) -> Result<(), Error> {
        if let Some(error) = self.maintenance_errors.lock().pop_front() {
            return Err(error);
        }
        self.maintained.lock().push(partition);
        Ok(())
    }

    /// The current catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.borrow())
    }

    /// A frontend over this cluster.
    ///
    /// # Errors
    /// As [`Frontend::new`].
    pub fn frontend(self: &Arc<Self>, options: FrontendOptions) -> Result<Arc<Frontend>, SqlError> {
        let meta: Arc<dyn MetaService> = Arc::new(FakeMeta(Arc::clone(self)));
        let nodes: Arc<dyn DataNodes> = Arc::new(FakeNodes(Arc::clone(self)));
        Frontend::new(options, meta, nodes)
    }

    /// Stops the heartbeats of all nodes.
    pub fn silence(&self) {
        self.members.send_modify(|members| {
            for member in Arc::make_mut(members).values_mut() {
                member.live = false;
            }
        });
    }

    /// Number of rows in each partition of a table, in the order of their ranges.
    pub fn rows(&self, database: &str, table: &str) -> Vec<usize> {
        let catalog = Arc::clone(&self.catalog.borrow());
        let Some(table) = catalog.table(database, table) else { return Vec::new() };
        let partitions = self.partitions.lock();
        let count = |route: &Route| {
            let rows = partitions.get(&route.partition).map(|p| &p.rows);
            rows.map_or(0, |rows| rows.values().map(Vec::len).sum())
        };
        table.partitions.routes().iter().map(count).collect()
    }

    fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn publish(&self, mut catalog: Catalog) {
        catalog.version += 1;
        self.catalog.send_replace(Arc::new(catalog));
    }

    fn create_table(&self, catalog: &mut Catalog, new: NewTable) -> Result<(), Error> {
        new.schema.validate()?;
        let database = catalog.databases.get(&new.database);
        let database = database.ok_or_else(|| none("database", &new.database))?;
        if database.explicit && new.schema.schema_on_write {
            let message = format!("measurement \"{}\" not allowed by schema", new.name);
            return Err(Error::InvalidInput(message));
        }
        let codec = KeyCodec::new(&new.schema, &new.placement)?;
        let sequences = new.sequences;
        let ids = std::iter::repeat_with(|| PartitionId(self.next_id()));
        let map = match &new.schema.view {
            Some(_) => PartitionMap::none(),
            None => PartitionMap::from_cuts(&codec, &new.cuts, ids, Epoch(1))?,
        };
        // Partitions are assigned to nodes round-robin, with one replica each.
        let mut routes = map.routes().to_vec();
        for (number, route) in (0_u64..).zip(&mut routes) {
            let node = NodeId(number % self.nodes + 1);
            route.replicas.insert(ReplicaId(self.next_id()), node);
            route.leader = Some(node);
        }
        let table = Table {
            id: TableId(u32::try_from(self.next_id()).unwrap_or(u32::MAX)),
            database: new.database,
            name: new.name,
            schema: Arc::new(new.schema),
            placement: new.placement,
            partitions: Arc::new(match routes.is_empty() {
                true => map,
                false => PartitionMap::new(routes)?,
            }),
            former: None,
            succeeded_by: None,
            copy: new.copy_of.map(|source| copies::new_copy(source, new.rekeys)),
            owner: new.owner,
        };
        // A table that is created again starts with empty partitions.
        for route in table.partitions.routes() {
            self.partitions.lock().insert(
                route.partition,
                Partition {
                    table: Arc::new(table.clone()),
                    codec: codec.clone(),
                    epoch: route.epoch,
                    rows: BTreeMap::new(),
                    written: HashMap::new(),
                    seen: HashMap::new(),
                    writes: 0,
                    captures: Captures::default(),
                    scans: 0,
                },
            );
        }
        self.create_sequences(catalog, &table, sequences)?;
        put_table(catalog, table);
        Ok(())
    }

    fn alter_table(
        &self,
        catalog: &mut Catalog,
        table: &Table,
        change: TableChange,
    ) -> Result<bool, Error> {
        let mut schema = table.schema.as_ref().clone();
        let mut changed = table.clone();
        // The catalog changes at once; meta would wait for the nodes.
        match change {
            TableChange::AddColumns { columns, if_not_exists } => {
                if !add_columns(&mut schema, columns, if_not_exists)? {
                    return Ok(false);
                }
            }
            TableChange::DropColumn(name) => schema.columns.retain(|column| column.name != name),
            TableChange::RenameColumn { from: old_name, to: new_name } => {
                let matching = schema.columns.iter_mut().filter(|c| c.name == old_name);
                matching.for_each(|c| c.name.clone_from(&new_name));
            }
            TableChange::SetType { column, column_type, length } => {
                let matching = schema.columns.iter_mut().filter(|c| c.name == column);
                matching.for_each(|c| (c.column_type, c.length) = (column_type, length));
            }
            TableChange::DropNotNull(name) => {
                let matching = schema.columns.iter_mut().filter(|c| c.name == name);
                matching.for_each(|c| c.nullable = true);
            }
            TableChange::SetDefault { column, default } => {
                let matching = schema.columns.iter_mut().filter(|c| c.name == column);
                matching.for_each(|c| c.default.clone_from(&default));
            }
            TableChange::SetIndex { column, index, if_not_exists } => {
                if !set_index(&mut schema, &column, index, if_not_exists)? {
                    return Ok(false);
                }
            }
            TableChange::DropIndex { column, kind } => {
                let indexes = indexes_of(&mut schema, &column)?;
                let position = indexes.iter().position(|index| index.options.kind() == kind);
                let name = format!("{column} ({})", kind.method());
                indexes.remove(position.ok_or_else(|| none("index", &name))?);
            }
            TableChange::SetOptions(options) => set_options(&mut schema, *options)?,
            TableChange::ChangeOptions { base, next } => change_options(&mut schema, &base, &next)?,
            TableChange::ChangeFamilies(changes) => change_families(&mut schema, &changes)?,
            TableChange::SetView { columns, definition } => {
                schema.columns = columns;
                schema.view = Some(*definition);
            }
            TableChange::MoveColumn { column, after: predecessor } => {
                move_column(&mut schema, &column, predecessor.as_deref())?;
            }
            TableChange::AddCheck(check) => schema.checks.push(check),
            TableChange::DropCheck(name) => schema.checks.retain(|check| check.name != name),
            TableChange::SetComment { column, comment } => {
                let matching = schema.columns.iter_mut().filter(|c| c.name == column);
                matching.for_each(|c| c.comment.clone_from(&comment));
            }
            TableChange::Repartition { placement, cuts } => {
                let new = NewTable {
                    database: table.database.clone(),
                    name: table.name.clone(),
                    schema,
                    placement,
                    cuts,
                    owner: table.owner,
                    copy_of: None,
                    rekeys: false,
                    sequences: Vec::new(),
                };
                let former = Table { name: format!("{}$former", table.name), ..changed };
                self.create_table(catalog, new)?;
                let tables = catalog.tables.entry(table.database.clone()).or_default();
                if let Some(successor) = tables.get_mut(&table.name) {
                    Arc::make_mut(successor).former = Some(former.id);
                }
                put_table(catalog, former);
                return Ok(true);
            }
            TableChange::TakePlace(replaced) => {
                let replaced = catalog.table_by_id(replaced).map(Arc::clone);
                let replaced = replaced.ok_or_else(|| none("table", &table.name))?;
                let tables = catalog.tables.entry(table.database.clone()).or_default();
                tables.remove(&table.name);
                changed.name.clone_from(&replaced.name);
                changed.owner = replaced.owner;
            }
            TableChange::Rename(name) => {
                catalog.tables.entry(table.database.clone()).or_default().remove(&table.name);
                changed.name = name;
            }
        }
        schema.version.0 += 1;
        schema.validate()?;
        changed.schema = Arc::new(schema);
        let codec = KeyCodec::new(&changed.schema, &changed.placement)?;
        for route in changed.partitions.routes() {
            if let Some(partition) = self.partitions.lock().get_mut(&route.partition) {
                partition.table = Arc::new(changed.clone());
                partition.codec = codec.clone();
            }
        }
        put_table(catalog, changed);
        Ok(true)
    }

    fn change(&self, ddl: Ddl) -> Result<bool, Error> {
        let _one_at_a_time = self.changing.lock();
        let mut catalog = self.catalog.borrow().as_ref().clone();
        let find = |catalog: &Catalog, database: &str, name: &str| {
            catalog.table(database, name).map(Arc::clone).ok_or_else(|| none("table", name))
        };
        if let Ddl::Checked(checked) = &ddl
            && let Err(error) = check_object(&catalog, checked)
        {
            return if ddl.allows_missing() { Ok(false) } else { Err(error) };
        }
        // Each change is applied to a copy of the catalog, which is published only if it succeeds.
        let changed = match ddl.into_body() {
            Ddl::CreateDatabase { name, if_not_exists, ttl, owner } => {
                if catalog.databases.contains_key(&name) {
                    if !if_not_exists {
                        return Err(Error::AlreadyExists { kind: "database", name });
                    }
                    return Ok(false);
                }
                let id = DatabaseId(u32::try_from(self.next_id()).unwrap_or(u32::MAX));
                add_database(&mut catalog, &name, id, owner);
                if let Some(database) = catalog.databases.get_mut(&name) {
                    Arc::make_mut(database).ttl = ttl;
                }
                true
            }
            Ddl::AlterDatabase { name, ttl } => {
                Arc::make_mut(
                    catalog.databases.get_mut(&name).ok_or_else(|| none("database", &name))?,
                )
                .ttl = ttl;
                true
            }
            Ddl::CommentDatabase { name, comment } => {
                let database = catalog.databases.get_mut(&name);
                let database = Arc::make_mut(database.ok_or_else(|| none("database", &name))?);
                database.comment = comment;
                true
            }
            Ddl::MakeExplicit { name } => {
                let database = catalog.databases.get_mut(&name);
                let database = Arc::make_mut(database.ok_or_else(|| none("database", &name))?);
                !std::mem::replace(&mut database.explicit, true)
            }
            Ddl::DropDatabase { name, if_exists } => {
                catalog.tables.remove(&name);
                match (catalog.databases.remove(&name), if_exists) {
                    (Some(_), _) => true,
                    (None, true) => false,
                    (None, false) => return Err(none("database", &name)),
                }
            }
            Ddl::CreateTable { table, if_not_exists } => {
                if catalog.table(&table.database, &table.name).is_some() {
                    if !if_not_exists {
                        return Err(Error::AlreadyExists { kind: "table", name: table.name });
                    }
                    return Ok(false);
                }
                self.create_table(&mut catalog, *table)?;
                true
            }
            Ddl::DropTable { database, name, if_exists, cascade } => {
                match find(&catalog, &database, &name) {
                    Ok(table) => drop_table(&mut catalog, &table, cascade)?,
                    Err(_) if if_exists => false,
                    Err(error) => return Err(error),
                }
            }
            Ddl::TruncateTable { database, name } => {
                let table = find(&catalog, &database, &name)?;
                for route in table.partitions.routes() {
                    if let Some(partition) = self.partitions.lock().get_mut(&route.partition) {
                        partition.rows.clear();
                        partition.written.clear();
                        partition.captures = Captures::default();
                    }
                }
                for copy in copies_of(&catalog, &table) {
                    self.renew_copy(&mut catalog, &copy, None)?;
                }
                true
            }
            Ddl::AlterTable { database, name, change } => {
                let table = find(&catalog, &database, &name)?;
                let is_rename = matches!(change, TableChange::Rename(_));
                let copies = if is_rename { Vec::new() } else { copies_of(&catalog, &table) };
                for copy in copies {
                    self.alter_table(&mut catalog, &copy, change.clone())?;
                }
                self.alter_table(&mut catalog, &table, change)?
            }
            Ddl::Access(change) => self.change_access(&mut catalog, *change)?,
            Ddl::Task(change) => self.change_tasks(&mut catalog, *change)?,
            Ddl::Sequence(change) => self.change_sequences(&mut catalog, *change)?,
            Ddl::Copy(change) => self.change_copy(&mut catalog, change)?,
            Ddl::Checked(_) => return Err(internal("a checked change in another")),
        };
        self.publish(catalog);
        Ok(changed)
    }

    fn write(&self, node: NodeId, request: WriteRequest) -> Result<WriteReply, Error> {
        if self.forgets.load(Ordering::Relaxed) {
            return Ok(WriteReply { index: 1, owed: Vec::new() });
        }
        let entry = (request.partition, request.id, request.rows.num_rows());
        self.requests.lock().push(entry);
        if let Some(error) = self.write_errors.lock().pop_front() {
            return Err(error);
        }
        self.check_leader(node, request.partition)?;
        let mut partitions = self.partitions.lock();
        let partition = partitions
            .get_mut(&request.partition)
            .ok_or_else(|| none("partition", &request.partition.to_string()))?;
        // A closed partition tells which writes it took.
        let is_known = partition.seen.contains_key(&request.id)
            || request.earlier.iter().any(|id| partition.seen.contains_key(id));
        if partition.captures.is_closed() && !is_known {
            return Err(Error::NeverTaken { partition: request.partition });
        }
        partition.check_epoch(request.partition, request.epoch)?;
        let reply = match &request.ship {
            Some(ship) => partition.take(ship, request.kind, &request.rows)?,
            None => partition.write(&request)?,
        };
        if self.unanswered.lock().contains(&request.partition) {
            return Err(Error::Unavailable("the answer is lost".to_owned()));
        }
        match self.late_write_errors.lock().pop_front() {
            Some(error) => Err(error),
            None => Ok(reply),
        }
    }

    fn check_leader(&self, node: NodeId, partition: PartitionId) -> Result<(), Error> {
        let catalog = self.catalog.borrow();
        let mut tables = catalog.tables.values().flat_map(BTreeMap::values);
        let leader = tables.find_map(|table| table.partitions.route(partition)?.leader);
        match leader {
            Some(leader) if leader != node => {
                Err(Error::NotLeader { partition, leader: Some(leader) })
            }
            _ => Ok(()),
        }
    }

    /// `fills`: for a copy, which may read a closed partition.
    fn scan(&self, node: NodeId, request: &ScanRequest, fills: bool) -> Result<ScanReply, Error> {
        if let Some(error) = self.scan_errors.lock().pop_front() {
            return Err(error);
        }
        self.read_from.lock().push(request.read_from);
        let stats = Arc::new(ScanStats::default());
        if let Err(refusal) = self.check_leader(node, request.partition) {
            if request.read_from == ReadFrom::Leader {
                return Err(refusal);
            }
            stats.by_followers.store(1, Ordering::Relaxed);
        }
        for millicores in [&stats.busy_millicores, &stats.read_millicores] {
            millicores.store(self.read_millicores.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let mut partitions = self.partitions.lock();
        let partition = partitions
            .get_mut(&request.partition)
            .ok_or_else(|| none("partition", &request.partition.to_string()))?;
        partition.check_epoch(request.partition, request.epoch)?;
        if partition.captures.is_closed() && !fills {
            return Err(Error::StaleSchema { table: partition.table.id });
        }
        partition.scans += 1;
        if request.for_update {
            // As the entry with which a partition begins to track keys: no entry has index 0.
            partition.writes = partition.writes.max(1);
        }
        let mut batches = Vec::new();
        for row in partition.rows.values().flatten() {
            stats.rows_scanned.fetch_add(1, Ordering::Relaxed);
            let schema = &partition.table.schema;
            let whole = project(row, schema, &schema.storage())?;
            let filtered = match request.domains.mask(&whole)? {
                Some(mask) => filter_record_batch(&whole, &mask).map_err(internal)?,
                None => whole,
            };
            if filtered.num_rows() > 0 {
                batches.push(project(&filtered, schema, &request.columns)?);
            }
        }
        let skipped = stats.rows_scanned.load(Ordering::Relaxed) - batches.len() as u64;
        count_indexes(&stats, &partition.table.schema, request, skipped);
        if let Some(first) = request.first_by_time {
            keep_first(&mut batches, &partition.table.schema, first)?;
        }
        let requested_order =
            request.order.filter(|_| !self.ignores_orders.load(Ordering::Relaxed));
        let order = requested_order.unwrap_or(KeyOrder::ASCENDING);
        if order.nulls_apart {
            nulls_last(&mut batches, &partition.table.schema, &request.domains);
        }
        if order.descending {
            batches.reverse();
        }
        batches.truncate(request.limit.unwrap_or(usize::MAX));
        let bytes: usize = batches.iter().map(RecordBatch::get_array_memory_size).sum();
        stats.bytes_scanned.fetch_add(bytes as u64, Ordering::Relaxed);
        // Streams get consecutive runs of rows, so that each is in key order.
        let parallelism = if request.order.is_some() { 1 } else { request.parallelism.max(1) };
        let per_stream = batches.len().div_ceil(parallelism).max(1);
        let streams = batches
            .chunks(per_stream)
            .map(|rows| {
                let joined = concat_batches(&request.columns, rows).map_err(internal);
                Box::pin(futures::stream::iter([joined])) as _
            })
            .collect();
        let index = partition.writes;
        Ok(ScanReply { streams, order: Some(order), stats, index })
    }
}

impl Partition {
    fn check_epoch(&self, partition: PartitionId, requested: Epoch) -> Result<(), Error> {
        if requested == self.epoch {
            return Ok(());
        }
        Err(Error::StaleRoute { partition, requested, current: self.epoch })
    }

    /// Applies a write, once however often it is sent.
    fn write(&mut self, request: &WriteRequest) -> Result<WriteReply, Error> {
        let mut ids = request.earlier.iter().chain([&request.id]);
        let first = ids.find_map(|id| self.seen.get(id).copied());
        let index = match first {
            Some(index) => index,
            None => {
                if !self.admits(request)? {
                    return Err(Error::Changed { partition: request.partition });
                }
                self.writes += 1;
                self.seen.insert(request.id, self.writes);
                for (kind, rows) in self.effects(request)? {
                    self.apply(kind, &rows)?;
                    self.captures.push(self.writes, kind, &rows);
                }
                self.writes
            }
        };
        Ok(WriteReply { index, owed: self.captures.owed(index) })
    }

    /// Measures of the rows. There are no files, so every index is complete.
    fn measures(&self) -> Result<PartitionMeasures, Error> {
        let schema = &self.table.schema;
        let columns = schema.storage();
        let rows = self.rows.values().flatten().map(|row| project(row, schema, &columns));
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        let mut measures = PartitionMeasures::default();
        let rows = concat_batches(&columns, &rows).map_err(internal)?;
        measures.measures.add_rows(schema, &rows)?;
        for column in &schema.columns {
            let kinds = column.indexes.iter().map(|index| index.options.kind());
            measures.indexes.extend(kinds.map(|kind| IndexBuild {
                column: column.id,
                kind,
                files: 0,
                files_done: 0,
                bytes: 0,
            }));
        }
        Ok(measures)
    }

    fn apply(&mut self, kind: WriteKind, rows: &RecordBatch) -> Result<(), Error> {
        let schema = &self.table.schema;
        // A column outside of the schema means that the writer's schema is newer or older.
        for field in rows.schema_ref().fields() {
            let is_known = field.name() == partita_proto::key::PLACEMENT_COLUMN
                || schema.columns.iter().any(|column| column.storage_name == *field.name());
            if !is_known {
                return Err(Error::StaleSchema { table: self.table.id });
            }
        }
        let keys = self.codec.encode(rows)?;
        for (position, key) in keys.iter().enumerate() {
            let row = rows.slice(position, 1);
            self.written.insert(key.to_vec(), self.writes);
            match kind {
                WriteKind::Delete => {
                    self.rows.remove(key);
                }
                WriteKind::Put if schema.options.append_mode => {
                    self.rows.entry(key.to_vec()).or_default().push(row);
                }
                WriteKind::Put => {
                    let merged = match (schema.options.merge_mode, self.rows.get(key)) {
                        (MergeMode::LastNonNull, Some(versions)) => {
                            merge(schema, &versions[0], &row)?
                        }
                        _ => row,
                    };
                    self.rows.insert(key.to_vec(), vec![merged]);
                }
            }
        }
        Ok(())
    }
}

/// The newer row; its NULLs are filled with the older row's values.
fn merge(
    schema: &TableSchema,
    older: &RecordBatch,
    newer: &RecordBatch,
) -> Result<RecordBatch, Error> {
    let storage = schema.storage();
    let (older, newer) = (project(older, schema, &storage)?, project(newer, schema, &storage)?);
    let columns = older.columns().iter().zip(newer.columns());
    let columns = columns
        .map(|(older, newer)| Arc::clone(if newer.is_null(0) { older } else { newer }))
        .collect();
    RecordBatch::try_new(storage, columns).map_err(internal)
}

/// A projection of rows; a column that they lack has the value that existing rows had when it was added.
fn project(
    rows: &RecordBatch,
    schema: &TableSchema,
    columns: &SchemaRef,
) -> Result<RecordBatch, Error> {
    let mut arrays: Vec<ArrayRef> = Vec::new();
    for field in columns.fields() {
        if let Some(array) = rows.column_by_name(field.name()) {
            arrays.push(Arc::clone(array));
            continue;
        }
        let added = schema.columns.iter().find(|column| column.storage_name == *field.name());
        arrays.push(match added.and_then(|column| Some((column, column.missing.clone()?))) {
            Some((column, value)) => array_of(column.column_type, &vec![value; rows.num_rows()])?,
            None => new_null_array(field.data_type(), rows.num_rows()),
        });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(columns), arrays, &options).map_err(internal)
}

fn internal(error: impl std::fmt::Display) -> Error {
    Error::Internal(error.to_string())
}

fn none(kind: &'static str, name: &str) -> Error {
    Error::NotFound { kind, name: name.to_owned() }
}

/// Checks that the name in a change belongs to the object that was checked, as meta does.
fn check_object(catalog: &Catalog, checked: &CheckedDdl) -> Result<(), Error> {
    let (kind, name, object) = match checked.ddl.body() {
        Ddl::CreateDatabase { .. }
        | Ddl::Access(_)
        | Ddl::Task(_)
        | Ddl::Sequence(_)
        | Ddl::Copy(_)
        | Ddl::Checked(_) => return Ok(()),
        Ddl::AlterDatabase { name, .. }
        | Ddl::MakeExplicit { name }
        | Ddl::CommentDatabase { name, .. }
        | Ddl::DropDatabase { name, .. } => ("database", name, catalog.databases.get(name)),
        Ddl::CreateTable { table, .. } => {
            ("database", &table.database, catalog.databases.get(&table.database))
        }
        Ddl::DropTable { database, name, .. }
        | Ddl::TruncateTable { database, name }
        | Ddl::AlterTable { database, name, .. } => {
            let is_checked = |id| checked.object == NamedObject::Table(id);
            let holder = catalog.table(database, name);
            let same =
                holder.filter(|table| is_checked(table.id) || table.former.is_some_and(is_checked));
            return if same.is_some() { Ok(()) } else { Err(none("table", name)) };
        }
    };
    let object = object.map(|database| NamedObject::Database(database.id));
    if object == Some(checked.object) { Ok(()) } else { Err(none(kind, name)) }
}

/// Adds columns to a schema; `false` when all of them are there.
fn add_columns(
    schema: &mut TableSchema,
    columns: Vec<Column>,
    if_not_exists: bool,
) -> Result<bool, Error> {
    let count = schema.columns.len();
    for mut column in columns {
        if schema.column(&column.name).is_some() {
            if if_not_exists {
                continue;
            }
            return Err(Error::AlreadyExists { kind: "column", name: column.name });
        }
        column.id = schema.next_column;
        column.storage_name = format!("{}_{}", column.name, column.id);
        schema.next_column = ColumnId(column.id.0 + 1);
        if column.semantic == Semantic::Tag {
            let last_is_time = schema.time_index().map(|c| c.id) == schema.key.last().copied();
            let position = schema.key.len() - usize::from(last_is_time);
            schema.key.insert(position, column.id);
        }
        schema.columns.push(column);
    }
    Ok(schema.columns.len() > count)
}

fn change_families(schema: &mut TableSchema, changes: &[FamilyChange]) -> Result<(), Error> {
    let wide = schema.options.wide.as_ref().ok_or_else(|| none("column family", ""))?;
    schema.options.wide = Some(wide.changed(changes, schema.version.next())?);
    Ok(())
}

fn change_options(
    schema: &mut TableSchema,
    base: &TableOptions,
    next: &TableOptions,
) -> Result<(), Error> {
    let options = schema.options.merged(base, next);
    set_options(schema, options)
}

fn set_options(schema: &mut TableSchema, mut options: TableOptions) -> Result<(), Error> {
    if let (Some(present), Some(wide)) = (&schema.options.wide, &mut options.wide) {
        *wide = present.replaced(wide, schema.version.next())?;
    }
    schema.options = options;
    Ok(())
}

/// Moves a column behind another one, or to the first place.
fn move_column(
    schema: &mut TableSchema,
    column: &str,
    predecessor: Option<&str>,
) -> Result<(), Error> {
    let position = |name: &str| {
        let position = schema.columns.iter().position(|column| column.name == name);
        position.ok_or_else(|| none("column", name))
    };
    let old_position = position(column)?;
    let previous = predecessor.map(position).transpose()?;
    let moved = schema.columns.remove(old_position);
    let target = previous.map_or(0, |place| place + usize::from(place < old_position));
    schema.columns.insert(target, moved);
    Ok(())
}

fn indexes_of<'a>(schema: &'a mut TableSchema, column: &str) -> Result<&'a mut Vec<Index>, Error> {
    let column_of_name = schema.columns.iter_mut().find(|candidate| candidate.name == column);
    column_of_name.map(|column| &mut column.indexes).ok_or_else(|| none("column", column))
}

/// Adds or replaces an index; false if nothing changes.
fn set_index(
    schema: &mut TableSchema,
    column: &str,
    index: Index,
    if_not_exists: bool,
) -> Result<bool, Error> {
    let indexes = indexes_of(schema, column)?;
    let kind = index.options.kind();
    match indexes.iter_mut().find(|present| present.options.kind() == kind) {
        Some(present) if if_not_exists || *present == index => return Ok(false),
        Some(present) => *present = index,
        None => indexes.push(index),
    }
    Ok(true)
}

/// Moves rows, one in each batch, behind the others if the first column of the key that is not bound is NULL.
fn nulls_last(rows: &mut [RecordBatch], schema: &TableSchema, domains: &Domains) {
    let is_bound = |name: &str| {
        let points = domains.get(name).and_then(|domain| domain.as_points(1));
        points.is_some_and(|points| points.len() == 1)
    };
    let column = schema.key_columns().find(|column| !is_bound(&column.storage_name));
    let name = column.map(|column| column.storage_name.as_str());
    let is_null = |row: &RecordBatch| {
        let column = name.and_then(|name| row.column_by_name(name));
        column.is_some_and(|column| column.is_null(0))
    };
    rows.sort_by_key(is_null);
}

/// Keeps the rows, one in each batch, that are among the first by time.
fn keep_first(
    rows: &mut Vec<RecordBatch>,
    schema: &TableSchema,
    first: FirstByTime,
) -> Result<(), Error> {
    let Some(time) = schema.time_index() else { return Ok(()) };
    let tick = |row: &RecordBatch| match row.column_by_name(&time.storage_name) {
        Some(column) => Value::from_array(column.as_ref(), 0),
        None => Ok(Value::Null),
    };
    let ticks = rows.iter().map(tick).collect::<Result<Vec<_>, Error>>()?;
    let mut order = ticks.clone();
    order.sort();
    if first.descending {
        order.reverse();
    }
    let Some(last) = order.get(first.rows.saturating_sub(1)) else { return Ok(()) };
    let is_first = |tick: &Value| if first.descending { tick >= last } else { tick <= last };
    let mut ticks = ticks.iter();
    rows.retain(|_| ticks.next().is_some_and(is_first));
    Ok(())
}

/// Counts the indexes that a node would ask about its rows: those that may answer what the request restricts.
fn count_indexes(stats: &ScanStats, schema: &TableSchema, request: &ScanRequest, skipped: u64) {
    let examined = stats.rows_scanned.load(Ordering::Relaxed);
    for column in &schema.columns {
        let name = column.storage_name.as_str();
        let restricted = request.domains.get(name).is_some();
        let probed = request.probes.iter().any(|probe| probe.columns().contains(name));
        for index in &column.indexes {
            let kind = index.options.kind();
            let is_asked = match kind {
                IndexKind::Inverted => restricted || probed,
                IndexKind::Skipping => restricted,
                IndexKind::Fulltext => probed,
            };
            if is_asked {
                let used = IndexUse { examined, skipped };
                stats.indexes.lock().entry((name.to_owned(), kind)).or_default().add(&used);
            }
        }
    }
}

fn add_database(catalog: &mut Catalog, name: &str, id: DatabaseId, owner: RoleId) {
    let database =
        Database { id, name: name.to_owned(), ttl: None, owner, explicit: false, comment: None };
    catalog.databases.insert(name.to_owned(), Arc::new(database));
}

fn put_table(catalog: &mut Catalog, table: Table) {
    let tables = catalog.tables.entry(table.database.clone()).or_default();
    tables.insert(table.name.clone(), Arc::new(table));
}

struct FakeMeta(Arc<Fake>);

#[async_trait]
impl MetaService for FakeMeta {
    fn catalog(&self) -> watch::Receiver<Arc<Catalog>> {
        self.0.catalog.subscribe()
    }

    async fn change(&self, ddl: Ddl) -> Result<bool, Error> {
        if matches!(ddl, Ddl::Copy(_)) {
            self.0.check_meta()?;
        }
        self.0.change(ddl)
    }

    async fn confirm(&self, copies: Vec<TableId>) -> Result<Vec<Option<CopyState>>, Error> {
        self.0.check_meta()?;
        self.0.confirmations.fetch_add(1, Ordering::Relaxed);
        let catalog = self.0.catalog();
        let state = |copy: TableId| Some(catalog.table_by_id(copy)?.copy.as_ref()?.state);
        Ok(copies.into_iter().map(state).collect())
    }

    fn members(&self) -> watch::Receiver<Arc<Members>> {
        self.0.members.subscribe()
    }

    async fn load(&self, request: LoadRequest) -> Result<LoadReport, Error> {
        let mut report = self.0.load.lock().clone();
        let matches = |id| request.table.is_none_or(|table| table == id);
        report.partitions.retain(|partition| matches(partition.table));
        report.history.retain(|span| {
            matches(span.table) && request.history_since.is_some_and(|start| span.at >= start)
        });
        if !request.samples {
            report.partitions.iter_mut().for_each(|partition| partition.samples.clear());
        }
        Ok(report)
    }

    async fn heatmap(&self, request: HeatmapRequest) -> Result<Bytes, Error> {
        self.0.pictures.lock().push(request);
        Ok(self.0.heatmap.lock().clone())
    }

    async fn blame(&self, report: BlameReport) -> Result<(), Error> {
        self.0.causes.lock().push(report);
        Ok(())
    }

    async fn metas(&self) -> Vec<MetaMember> {
        let standing = MetaStanding {
            node: NodeId(1),
            leads: true,
            leader: Some(NodeId(1)),
            term: 3,
            applied: 7,
        };
        vec![
            MetaMember { address: "meta1:4020".to_owned(), standing: Some(standing) },
            MetaMember { address: "meta2:4020".to_owned(), standing: None },
        ]
    }

    async fn administer(&self, order: AdminOrder) -> Result<(), Error> {
        let result = self.0.reshape(&order);
        self.0.orders.lock().push(order);
        result
    }
}

struct FakeNodes(Arc<Fake>);

impl DataNodes for FakeNodes {
    fn node(&self, node: NodeId) -> Result<Arc<dyn DataService>, Error> {
        if !(1..=self.0.nodes).contains(&node.0) {
            return Err(Error::Unavailable(format!("node {node} is not known")));
        }
        Ok(Arc::new(FakeNode(Arc::clone(&self.0), node)))
    }

    fn fragments(&self, node: NodeId) -> Result<Arc<dyn FragmentService>, Error> {
        let lanes = || Lanes::new(LaneOptions::default(), &Handle::current());
        let lanes = Arc::clone(self.0.lanes.get_or_init(lanes));
        let worker = Worker::new(self.node(node)?, MEMORY_BYTES, lanes)?;
        Ok(Arc::new(FakeWorker(Arc::clone(&self.0), worker)))
    }

    fn remote(&self) -> bool {
        true
    }

    fn all(&self) -> Vec<NodeId> {
        (1..=self.0.nodes).map(NodeId).collect()
    }
}

/// Runs fragments as nodes do, and injects the queued errors.
struct FakeWorker(Arc<Fake>, Arc<Worker>);

#[async_trait]
impl FragmentService for FakeWorker {
    async fn run(&self, request: FragmentRequest) -> Result<ScanReply, Error> {
        if let Some(error) = self.0.fragment_errors.lock().pop_front() {
            return Err(error);
        }
        self.0.fragments.fetch_add(1, Ordering::Relaxed);
        let mut reply = self.1.run(request).await?;
        if let Some(error) = self.0.late_fragment_errors.lock().pop_front() {
            // The other streams stay intact.
            let failed = Box::pin(futures::stream::iter([Err(error)]));
            match reply.streams.last_mut() {
                Some(last) => *last = failed,
                None => reply.streams.push(failed),
            }
        }
        Ok(reply)
    }
}

struct FakeNode(Arc<Fake>, NodeId);

#[async_trait]
impl DataService for FakeNode {
    async fn write(&self, request: WriteRequest) -> Result<WriteReply, Error> {
        let _allowed = self.0.writes.read().await;
        self.0.write(self.1, request)
    }

    async fn scan(&self, request: ScanRequest) -> Result<ScanReply, Error> {
        self.0.scan(self.1, &request, false)
    }

    async fn capture(
        &self,
        partition: PartitionId,
        epoch: Epoch,
        order: CaptureOrder,
    ) -> Result<u64, Error> {
        self.0.capture(self.1, partition, epoch, order)
    }

    async fn changes(&self, request: ChangesRequest) -> Result<Changes, Error> {
        self.0.changes(self.1, &request)
    }

    async fn fill(&self, copy: TableId, scan: ScanRequest) -> Result<(u64, ScanReply), Error> {
        let index = self.0.filled(copy, scan.partition)?;
        Ok((index, self.0.scan(self.1, &scan, true)?))
    }

    async fn open_partition(&self, _: PartitionSpec) -> Result<(), Error> {
        Ok(())
    }

    async fn drop_partition(&self, partition: PartitionId, _: ReplicaId) -> Result<(), Error> {
        self.0.partitions.lock().remove(&partition);
        Ok(())
    }

    async fn reconfigure(
        &self,
        _: PartitionId,
        _: BTreeMap<ReplicaId, NodeId>,
    ) -> Result<(), Error> {
        Ok(())
    }

    async fn transfer_leader(&self, _: PartitionId, _: NodeId) -> Result<(), Error> {
        Ok(())
    }

    async fn reshape(&self, _: Reshape) -> Result<Reshaped, Error> {
        Err(Error::Unsupported("reshaping a fake".to_owned()))
    }

    async fn middle_key(&self, _: PartitionId) -> Result<Option<Bound>, Error> {
        Ok(None)
    }

    async fn truncate_partition(&self, partition: PartitionId, _: RequestId) -> Result<(), Error> {
        if let Some(partition) = self.0.partitions.lock().get_mut(&partition) {
            partition.rows.clear();
        }
        Ok(())
    }

    async fn alter_partition(&self, _: PartitionId, _: Arc<TableSchema>) -> Result<(), Error> {
        Ok(())
    }

    async fn flush_partition(&self, partition: PartitionId) -> Result<(), Error> {
        self.0.maintain(partition)
    }

    async fn compact_partition(&self, partition: PartitionId) -> Result<(), Error> {
        self.0.maintain(partition)
    }

    async fn status(&self) -> Result<Vec<ReplicaStatus>, Error> {
        self.0.statuses.lock().push(self.1);
        let catalog = Arc::clone(&self.0.catalog.borrow());
        let partitions = self.0.partitions.lock();
        let mut statuses = Vec::new();
        // Each node reports the partitions that it leads; the fake has no other replicas.
        for table in catalog.tables.values().flat_map(BTreeMap::values) {
            for route in table.partitions.routes().iter().filter(|r| r.leader == Some(self.1)) {
                let Some(partition) = partitions.get(&route.partition) else { continue };
                let rows = partition.rows.values().map(Vec::len).sum::<usize>() as u64;
                statuses.push(ReplicaStatus {
                    partition: route.partition,
                    table: table.id,
                    replica: route.replicas.keys().next().copied().unwrap_or_default(),
                    leader: true,
                    leader_node: route.leader,
                    term: 1,
                    voters: route.replicas.keys().copied().collect(),
                    learners: BTreeSet::new(),
                    epoch: route.epoch,
                    rows,
                    file_bytes: 0,
                    files: 0,
                    memtable_bytes: 0,
                    rows_written: rows,
                    bytes_written: 0,
                    writes: partition.writes,
                    scans: partition.scans,
                    rows_scanned: 0,
                    rejected: 0,
                    applied: partition.writes,
                    flushed: 0,
                    failure: None,
                    series: None,
                    measures: None,
                });
            }
        }
        Ok(statuses)
    }

    async fn series_status(&self) -> Result<Vec<ReplicaStatus>, Error> {
        let mut statuses = self.status().await?;
        let partitions = self.0.partitions.lock();
        for status in &mut statuses {
            let Some(partition) = partitions.get(&status.partition) else { continue };
            let mut sketch = SeriesSketch::default();
            for rows in partition.rows.values().flatten() {
                sketch.add_rows(&partition.table.schema, rows)?;
            }
            status.series = Some(Arc::new(sketch));
        }
        Ok(statuses)
    }

    async fn measured_status(&self) -> Result<Vec<ReplicaStatus>, Error> {
        let mut statuses = self.status().await?;
        let partitions = self.0.partitions.lock();
        for status in &mut statuses {
            let Some(partition) = partitions.get(&status.partition) else { continue };
            status.measures = Some(Arc::new(partition.measures()?));
        }
        Ok(statuses)
    }
}

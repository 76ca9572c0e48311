//! Nodes that only remember what they were told, and fail on request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use partita_proto::error::Error;
use partita_proto::id::{NodeId, PartitionId, ReplicaId};
use partita_proto::member::Heartbeat;
use partita_proto::schema::TableSchema;
use partita_proto::service::{
    DataNodes, DataService, PartitionSpec, ReplicaStatus, RequestId, ScanReply, ScanRequest,
    WriteReply, WriteRequest,
};

/// What a node was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Open,
    Drop,
    Alter,
    Truncate,
    Reconfigure,
    Transfer,
}

/// A replica on a node.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) spec: PartitionSpec,
    pub(super) schema: Arc<TableSchema>,
    pub(super) truncated: Vec<RequestId>,
}

#[derive(Default)]
struct Behaviour {
    /// For orders of a kind: how many more fail, and how.
    failures: BTreeMap<Kind, (usize, Error)>,
    delay: Duration,
}

/// Which node leads each partition, as its group would have decided.
type Leaders = Arc<Mutex<BTreeMap<PartitionId, NodeId>>>;

/// One node.
#[derive(Default)]
pub(super) struct FakeNode {
    id: NodeId,
    leaders: Leaders,
    /// Neither says anything nor can be reached.
    silent: AtomicBool,
    pub(super) held: Mutex<BTreeMap<PartitionId, Held>>,
    pub(super) told: Mutex<Vec<(Kind, PartitionId)>>,
    /// Orders that came while one of another kind was under way for the partition.
    pub(super) mixed: Mutex<Vec<PartitionId>>,
    under_way: Mutex<Vec<(PartitionId, Kind)>>,
    behaviour: Mutex<Behaviour>,
}

impl FakeNode {
    async fn obey(&self, kind: Kind, partition: PartitionId) -> Result<(), Error> {
        self.told.lock().push((kind, partition));
        if self.under_way.lock().iter().any(|(at, other)| *at == partition && *other != kind) {
            self.mixed.lock().push(partition);
        }
        self.under_way.lock().push((partition, kind));
        let delay = self.behaviour.lock().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        self.under_way.lock().retain(|order| *order != (partition, kind));
        let mut behaviour = self.behaviour.lock();
        match behaviour.failures.get_mut(&kind) {
            Some((left, error)) if *left > 0 => {
                *left -= 1;
                Err(error.clone())
            }
            _ => Ok(()),
        }
    }

    /// The next orders of a kind fail.
    pub(super) fn fail(&self, kind: Kind, times: usize, error: Error) {
        self.behaviour.lock().failures.insert(kind, (times, error));
    }

    /// It falls silent, or speaks again. What it holds it keeps.
    pub(super) fn silence(&self, silent: bool) {
        self.silent.store(silent, Ordering::SeqCst);
    }

    fn is_silent(&self) -> bool {
        self.silent.load(Ordering::SeqCst)
    }

    fn held(&self, partition: PartitionId, change: impl FnOnce(&mut Held)) -> Result<(), Error> {
        let mut held = self.held.lock();
        let name = partition.to_string();
        let replica =
            held.get_mut(&partition).ok_or(Error::NotFound { kind: "partition", name })?;
        change(replica);
        Ok(())
    }

    fn count(&self, kind: Kind) -> usize {
        self.told.lock().iter().filter(|(told, _)| *told == kind).count()
    }
}

#[async_trait]
impl DataService for FakeNode {
    async fn open_partition(&self, spec: PartitionSpec) -> Result<(), Error> {
        self.obey(Kind::Open, spec.partition).await?;
        let schema = Arc::clone(&spec.schema);
        let first = spec.members.values().min().copied().unwrap_or(self.id);
        self.leaders.lock().entry(spec.partition).or_insert(first);
        let held = Held { spec, schema, truncated: Vec::new() };
        self.held.lock().entry(held.spec.partition).or_insert(held);
        Ok(())
    }

    async fn drop_partition(
        &self,
        partition: PartitionId,
        replica: ReplicaId,
    ) -> Result<(), Error> {
        self.obey(Kind::Drop, partition).await?;
        let mut held = self.held.lock();
        if held.get(&partition).is_some_and(|held| held.spec.replica == replica) {
            held.remove(&partition);
        }
        Ok(())
    }

    async fn reconfigure(
        &self,
        partition: PartitionId,
        voters: BTreeMap<ReplicaId, NodeId>,
    ) -> Result<(), Error> {
        self.obey(Kind::Reconfigure, partition).await?;
        if let Some(first) = voters.values().min() {
            let mut leaders = self.leaders.lock();
            let leader = leaders.entry(partition).or_insert(*first);
            if !voters.values().any(|node| node == leader) {
                *leader = *first;
            }
        }
        self.held(partition, |held| held.spec.members = voters)
    }

    async fn transfer_leader(&self, partition: PartitionId, to: NodeId) -> Result<(), Error> {
        self.obey(Kind::Transfer, partition).await?;
        self.leaders.lock().insert(partition, to);
        self.held(partition, |_| {})
    }

    async fn truncate_partition(&self, partition: PartitionId, id: RequestId) -> Result<(), Error> {
        self.obey(Kind::Truncate, partition).await?;
        self.held(partition, |held| {
            if !held.truncated.contains(&id) {
                held.truncated.push(id);
            }
        })
    }

    async fn alter_partition(
        &self,
        partition: PartitionId,
        schema: Arc<TableSchema>,
    ) -> Result<(), Error> {
        self.obey(Kind::Alter, partition).await?;
        self.held(partition, |held| {
            if schema.version > held.schema.version {
                held.schema = schema;
            }
        })
    }

    async fn write(&self, _: WriteRequest) -> Result<WriteReply, Error> {
        Err(Error::Unsupported("writing".to_owned()))
    }

    async fn scan(&self, _: ScanRequest) -> Result<ScanReply, Error> {
        Err(Error::Unsupported("scanning".to_owned()))
    }

    async fn flush_partition(&self, _: PartitionId) -> Result<(), Error> {
        Ok(())
    }

    async fn compact_partition(&self, _: PartitionId) -> Result<(), Error> {
        Ok(())
    }

    async fn status(&self) -> Result<Vec<ReplicaStatus>, Error> {
        Ok(self.replicas())
    }
}

impl FakeNode {
    /// What it says of its replicas.
    fn replicas(&self) -> Vec<ReplicaStatus> {
        let leaders = self.leaders.lock();
        let of = |(partition, held): (&PartitionId, &Held)| {
            let leader_node = leaders.get(partition).copied();
            ReplicaStatus {
                partition: *partition,
                table: held.spec.table,
                replica: held.spec.replica,
                leader: leader_node == Some(self.id),
                leader_node,
                term: 1,
                voters: held.spec.members.keys().copied().collect(),
                learners: BTreeSet::new(),
                epoch: held.spec.epoch,
                rows: 0,
                file_bytes: 0,
                files: 0,
                memtable_bytes: 0,
                rows_written: 0,
                bytes_written: 0,
                writes: 0,
                scans: 0,
                rows_scanned: 0,
                rejected: 0,
                applied: 1,
                flushed: 1,
                failure: None,
            }
        };
        self.held.lock().iter().map(of).collect()
    }

    /// Whether it holds a partition.
    pub(super) fn holds(&self, partition: PartitionId) -> bool {
        self.held.lock().contains_key(&partition)
    }
}

/// All nodes.
pub(super) struct FakeNodes {
    nodes: BTreeMap<NodeId, Arc<FakeNode>>,
}

impl FakeNodes {
    pub(super) fn new(count: u64) -> Arc<Self> {
        let leaders = Leaders::default();
        let node = |id| FakeNode { id, leaders: Arc::clone(&leaders), ..FakeNode::default() };
        let nodes = (1..=count).map(NodeId).map(|id| (id, Arc::new(node(id)))).collect();
        Arc::new(Self { nodes })
    }

    /// Whether a node leads a partition.
    pub(super) fn leads(&self, node: u64, partition: PartitionId) -> bool {
        self.one(node).leaders.lock().get(&partition) == Some(&NodeId(node))
    }

    /// What the nodes that are not silent say of themselves.
    pub(super) fn heartbeats(&self) -> Vec<Heartbeat> {
        let speaking = self.nodes.values().filter(|node| !node.is_silent());
        let heartbeat = |node: &Arc<FakeNode>| Heartbeat {
            node: node.id,
            identity: node.id.0,
            address: format!("node{}", node.id),
            replicas: node.replicas(),
        };
        speaking.map(heartbeat).collect()
    }

    pub(super) fn one(&self, node: u64) -> &Arc<FakeNode> {
        &self.nodes[&NodeId(node)]
    }

    /// The next orders of a kind fail on all nodes.
    pub(super) fn fail(&self, kind: Kind, times: usize, error: Error) {
        for node in self.nodes.values() {
            node.fail(kind, times, error.clone());
        }
    }

    /// No order fails any more.
    pub(super) fn heal(&self) {
        for node in self.nodes.values() {
            node.behaviour.lock().failures.clear();
        }
    }

    pub(super) fn delay(&self, delay: Duration) {
        for node in self.nodes.values() {
            node.behaviour.lock().delay = delay;
        }
    }

    pub(super) fn count(&self, kind: Kind) -> usize {
        self.nodes.values().map(|node| node.count(kind)).sum()
    }

    pub(super) fn held(&self) -> BTreeMap<PartitionId, Held> {
        self.nodes.values().flat_map(|node| node.held.lock().clone()).collect()
    }
}

impl DataNodes for FakeNodes {
    fn node(&self, node: NodeId) -> Result<Arc<dyn DataService>, Error> {
        match self.nodes.get(&node) {
            Some(silent) if silent.is_silent() => {
                Err(Error::Unavailable(format!("node {node} is silent")))
            }
            Some(node) => Ok(Arc::clone(node) as Arc<dyn DataService>),
            None => Err(Error::Unavailable(format!("node {node} is not known"))),
        }
    }

    fn all(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }
}

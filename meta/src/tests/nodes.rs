//! Nodes that only record orders, and fail on request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use partita_proto::error::Error;
use partita_proto::generation::Claim;
use partita_proto::id::{NodeId, PartitionId, ReplicaId};
use partita_proto::label::Labels;
use partita_proto::member::Heartbeat;
use partita_proto::range::Bound;
use partita_proto::reshape::{Reshape, Reshaped};
use partita_proto::schema::TableSchema;
use partita_proto::service::{
    DataNodes, DataService, PartitionSpec, ReplicaStatus, RequestId, ScanReply, ScanRequest,
    WriteReply, WriteRequest,
};

use super::groups::{FakeGroup, FakeGroups};

/// An order that a node received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Open,
    Drop,
    Alter,
    Truncate,
    Reconfigure,
    Transfer,
    Flush,
    Split,
    Freeze,
    Absorb,
}

/// A replica on a node.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) spec: PartitionSpec,
    pub(super) schema: Arc<TableSchema>,
    pub(super) truncated: Vec<RequestId>,
    /// Index up to which the replica has applied its group's log.
    pub(super) applied: usize,
    /// Index up to which the replica has flushed.
    pub(super) flushed: u64,
    pub(super) failure: Option<String>,
}

#[derive(Default)]
struct Behaviour {
    /// For each kind of order, the number of orders that still fail, and their error.
    failures: BTreeMap<Kind, (usize, Error)>,
    /// For each kind of order, the number of orders that are still carried out without an answer.
    lost: BTreeMap<Kind, usize>,
    delay: Duration,
}

/// The groups of all partitions, shared by all nodes.
type Groups = Arc<Mutex<FakeGroups>>;

/// A fake node that carries out meta's orders.
#[derive(Default)]
pub(super) struct FakeNode {
    id: NodeId,
    all: Weak<FakeNodes>,
    pub(super) groups: Groups,
    /// Sends no heartbeats and cannot be reached.
    silent: AtomicBool,
    /// Applies no entries of the groups.
    lagging: AtomicBool,
    pub(super) held: Mutex<BTreeMap<PartitionId, Held>>,
    pub(super) labels: Mutex<Labels>,
    pub(super) told: Mutex<Vec<(Kind, PartitionId)>>,
    /// Orders that arrived while one of another kind was in progress for the partition.
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

    /// Makes the next orders of a kind fail.
    pub(super) fn fail(&self, kind: Kind, times: usize, error: Error) {
        self.behaviour.lock().failures.insert(kind, (times, error));
    }

    /// Disconnects or reconnects the node. It keeps its replicas.
    pub(super) fn silence(&self, silent: bool) {
        self.silent.store(silent, Ordering::SeqCst);
    }

    /// Makes the node stop applying entries of its groups, or catch up.
    pub(super) fn lag(&self, lagging: bool) {
        self.lagging.store(lagging, Ordering::SeqCst);
    }

    /// Makes the next orders of a kind lose their answers after they are carried out.
    pub(super) fn lose_answers(&self, kind: Kind, times: usize) {
        self.behaviour.lock().lost.insert(kind, times);
    }

    /// Applies the entries of the groups, unless the node lags.
    fn catch_up(&self) {
        if !self.lagging.load(Ordering::SeqCst) {
            self.groups.lock().catch_up(self.id, &mut self.held.lock());
        }
    }

    /// The answer to an order that was carried out, unless it gets lost.
    fn answer<T>(&self, kind: Kind, answer: T) -> Result<T, Error> {
        match self.behaviour.lock().lost.get_mut(&kind) {
            Some(left) if *left > 0 => {
                *left -= 1;
                Err(Error::Timeout("the answer was lost".to_owned()))
            }
            _ => Ok(answer),
        }
    }

    /// True if a node has a replica.
    fn is_at(&self, node: NodeId, partition: PartitionId, replica: ReplicaId) -> bool {
        let all = self.all.upgrade();
        let node = all.and_then(|all| all.nodes.get(&node).map(Arc::clone));
        let held = |node: Arc<Self>| node.held.lock().get(&partition).map(|held| held.spec.replica);
        node.and_then(held) == Some(replica)
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
        if let Some(other) = self.held.lock().get(&spec.partition)
            && other.spec.replica != spec.replica
        {
            let why = format!("{} is here as {}", spec.partition, other.spec.replica);
            return Err(Error::Unavailable(why));
        }
        let schema = Arc::clone(&spec.schema);
        let first = spec.members.values().min().copied().unwrap_or(self.id);
        let mut groups = self.groups.lock();
        groups.leaders.entry(spec.partition).or_insert(first);
        let group = groups.groups.entry(spec.partition);
        let group = group.or_insert_with(|| FakeGroup::new(spec.epoch, spec.range.clone()));
        // A joining replica gets everything from its leader.
        let (epoch, range) = (group.epoch, group.range.clone());
        let spec = PartitionSpec { epoch, range, ..spec };
        let applied = group.log.len();
        let flushed = group.log.last().map_or(1, |(_, at)| at.index);
        let truncated = Vec::new();
        let held = Held { spec, schema, truncated, applied, flushed, failure: None };
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
        let there =
            voters.iter().filter(|(replica, node)| self.is_at(**node, partition, **replica));
        if 2 * there.count() <= voters.len() {
            return Err(Error::Timeout(format!("the new members of {partition} do not agree")));
        }
        if let Some(first) = voters.values().min() {
            let mut groups = self.groups.lock();
            groups.voters.insert(partition, voters.values().copied().collect());
            let leader = groups.leaders.entry(partition).or_insert(*first);
            if !voters.values().any(|node| node == leader) {
                *leader = *first;
            }
        }
        self.held(partition, |held| held.spec.members = voters)
    }

    async fn transfer_leader(&self, partition: PartitionId, to: NodeId) -> Result<(), Error> {
        self.obey(Kind::Transfer, partition).await?;
        self.held(partition, |_| {})?;
        let all = self.all.upgrade();
        let able = all.and_then(|all| Some(all.nodes.get(&to)?.holds(partition)));
        let mut groups = self.groups.lock();
        // A late order may name a node that has left the group, or has not joined it yet.
        let votes = groups.voters.get(&partition).is_none_or(|voters| voters.contains(&to));
        if !votes || able != Some(true) {
            return Err(Error::Unavailable(format!("node {to} does not vote in {partition}")));
        }
        groups.leaders.insert(partition, to);
        Ok(())
    }

    async fn reshape(&self, order: Reshape) -> Result<Reshaped, Error> {
        let kind = match order {
            Reshape::Split(_) => Kind::Split,
            Reshape::Freeze(_) => Kind::Freeze,
            Reshape::Absorb(_) => Kind::Absorb,
        };
        let partition = order.partition();
        self.obey(kind, partition).await?;
        let mut held = None;
        self.held(partition, |found| held = Some(found.clone()))?;
        let held = held.ok_or_else(|| Error::Internal("found and lost".to_owned()))?;
        let reshaped = {
            let mut groups = self.groups.lock();
            let leader = groups.leaders.get(&partition).copied();
            if leader != Some(self.id) {
                return Err(Error::NotLeader { partition, leader });
            }
            groups.reshape(&order, &held, self.id)?
        };
        // The leader has applied the entry before it answers.
        self.groups.lock().catch_up(self.id, &mut self.held.lock());
        self.answer(kind, reshaped)
    }

    async fn middle_key(&self, partition: PartitionId) -> Result<Option<Bound>, Error> {
        self.held(partition, |_| {})?;
        let groups = self.groups.lock();
        let leader = groups.leaders.get(&partition).copied();
        if leader != Some(self.id) {
            return Err(Error::NotLeader { partition, leader });
        }
        Ok(groups.middles.get(&partition).cloned())
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

    async fn flush_partition(&self, partition: PartitionId) -> Result<(), Error> {
        self.obey(Kind::Flush, partition).await?;
        self.catch_up();
        self.held(partition, |_| {})
    }

    async fn compact_partition(&self, _: PartitionId) -> Result<(), Error> {
        Ok(())
    }

    async fn status(&self) -> Result<Vec<ReplicaStatus>, Error> {
        self.catch_up();
        Ok(self.replicas())
    }
}

impl FakeNode {
    /// Status of the node's replicas.
    fn replicas(&self) -> Vec<ReplicaStatus> {
        self.catch_up();
        let groups = self.groups.lock();
        let of = |(partition, held): (&PartitionId, &Held)| {
            let leader_node = groups.leaders.get(partition).copied();
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
                applied: held.flushed,
                flushed: held.flushed,
                failure: held.failure.clone(),
                series: None,
                measures: None,
            }
        };
        self.held.lock().iter().map(of).collect()
    }

    /// True if the node holds a partition.
    pub(super) fn holds(&self, partition: PartitionId) -> bool {
        self.held.lock().contains_key(&partition)
    }
}

/// All fake nodes.
pub(super) struct FakeNodes {
    nodes: BTreeMap<NodeId, Arc<FakeNode>>,
}

impl FakeNodes {
    pub(super) fn new(count: u64) -> Arc<Self> {
        let groups = Groups::default();
        Arc::new_cyclic(|all| {
            let node = |id| {
                let (all, groups) = (Weak::clone(all), Arc::clone(&groups));
                FakeNode { id, all, groups, ..FakeNode::default() }
            };
            let nodes = (1..=count).map(NodeId).map(|id| (id, Arc::new(node(id)))).collect();
            Self { nodes }
        })
    }

    /// True if a node leads a partition.
    pub(super) fn leads(&self, node: u64, partition: PartitionId) -> bool {
        self.one(node).groups.lock().leaders.get(&partition) == Some(&NodeId(node))
    }

    /// Heartbeats of the nodes that are not silent.
    pub(super) fn heartbeats(&self) -> Vec<Heartbeat> {
        let speaking = self.nodes.values().filter(|node| !node.is_silent());
        let heartbeat = |node: &Arc<FakeNode>| Heartbeat {
            node: node.id,
            identity: node.id.0,
            address: format!("node{}", node.id),
            replicas: node.replicas(),
            loads: Vec::new(),
            labels: node.labels.lock().clone(),
            cpu_ms: None,
            claim: Claim::default(),
            follower_reads: Vec::new(),
            names_leader: true,
        };
        speaking.map(heartbeat).collect()
    }

    pub(super) fn one(&self, node: u64) -> &Arc<FakeNode> {
        &self.nodes[&NodeId(node)]
    }

    /// Makes the next orders of a kind fail on all nodes.
    pub(super) fn fail(&self, kind: Kind, times: usize, error: Error) {
        for node in self.nodes.values() {
            node.fail(kind, times, error.clone());
        }
    }

    /// Makes the next orders of a kind lose their answers on all nodes.
    pub(super) fn lose_answers(&self, kind: Kind, times: usize) {
        for node in self.nodes.values() {
            node.lose_answers(kind, times);
        }
    }

    /// State of a partition's group.
    pub(super) fn group(&self, partition: PartitionId) -> Option<FakeGroup> {
        let node = self.nodes.values().next()?;
        node.groups.lock().groups.get(&partition).cloned()
    }

    /// Sets the middle key of a partition, as its leader will report it.
    pub(super) fn set_middle(&self, partition: PartitionId, key: Bound) {
        for node in self.nodes.values().take(1) {
            node.groups.lock().middles.insert(partition, key.clone());
        }
    }

    /// Ends all failures of orders.
    pub(super) fn heal(&self) {
        for node in self.nodes.values() {
            let mut behaviour = node.behaviour.lock();
            behaviour.failures.clear();
            behaviour.lost.clear();
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

//! Some nodes in one process, over simulated disks and a network that can be told to misbehave.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{Mutex, MutexGuard};

use super::groups::options;
use super::recorder::Recorder;
use crate::log::simulated::SimulatedDisk;
use crate::transport::memory::MemoryNetwork;
use crate::{Group, GroupId, Host, HostOptions, NodeId, RaftError, ReplicaId, Start};

/// Maximum time that a test waits for an expected event. Elections take up to 2.4 s, and machines that run tests are
/// slow.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Elections are a matter of time: clusters take turns, so that each has the machine.
static TURN: Mutex<()> = Mutex::const_new(());

/// Waits until no other cluster runs in this process.
pub(super) async fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().await
}

/// One node.
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) host: Arc<Host>,
    pub(super) disk: SimulatedDisk,
    machines: BTreeMap<GroupId, Arc<Recorder>>,
}

impl Node {
    pub(super) fn group(&self, group: GroupId) -> Arc<Group> {
        self.host.group(group).unwrap()
    }

    pub(super) fn machine(&self, group: GroupId) -> &Arc<Recorder> {
        &self.machines[&group]
    }
}

/// Some nodes.
pub(super) struct Cluster {
    pub(super) network: Arc<MemoryNetwork>,
    pub(super) nodes: Vec<Node>,
    _turn: MutexGuard<'static, ()>,
}

/// The replica of a group on a node: a number that tells both.
pub(super) fn replica(group: GroupId, node: NodeId) -> ReplicaId {
    ReplicaId(group.0 * 10 + node.0)
}

async fn open(network: &Arc<MemoryNetwork>, id: NodeId, disk: &SimulatedDisk) -> Arc<Host> {
    let options = HostOptions {
        node: id,
        snapshot_bytes_per_second: 2 << 20,
        segment_bytes: 256 << 10,
        // From the half of it on, the log is given up.
        log_budget_bytes: 2 << 20,
        ..options(Path::new("/simulated"))
    };
    let transport = network.transport(id);
    let host = Host::open_on(Arc::new(disk.clone()), &options, transport).await.unwrap();
    network.attach(&host);
    host
}

impl Cluster {
    pub(super) async fn new(nodes: u64, seed: u64) -> Self {
        let turn = turn().await;
        let network = MemoryNetwork::new(seed);
        let mut cluster = Self { network, nodes: Vec::new(), _turn: turn };
        for id in (1..=nodes).map(NodeId) {
            let disk = SimulatedDisk::default();
            let host = open(&cluster.network, id, &disk).await;
            cluster.nodes.push(Node { id, host, disk, machines: BTreeMap::new() });
        }
        cluster
    }

    /// Three nodes with one group over all of them.
    pub(super) async fn of_three(group: GroupId, seed: u64) -> Self {
        let mut cluster = Self::new(3, seed).await;
        cluster.create(group, &[0, 1, 2]).await;
        cluster
    }

    pub(super) async fn create(&mut self, group: GroupId, on: &[usize]) {
        let ids = on.iter().map(|node| self.nodes[*node].id);
        let members: BTreeMap<_, _> = ids.map(|id| (replica(group, id), id)).collect();
        for node in on {
            let start = Start::Create { members: members.clone() };
            self.start(*node, group, Recorder::new(), start).await;
        }
    }

    pub(super) async fn start(
        &mut self,
        node: usize,
        group: GroupId,
        machine: Arc<Recorder>,
        start: Start,
    ) {
        let node = &mut self.nodes[node];
        node.machines.insert(group, Arc::clone(&machine));
        node.host.start_group(group, replica(group, node.id), machine, start).await.unwrap();
    }

    /// Ends a node as a power cut would: what was not synced may be lost.
    pub(super) async fn kill(&mut self, node: usize, keep: impl FnMut() -> bool) {
        let node = &mut self.nodes[node];
        node.disk.cut();
        node.host.shutdown().await.ok();
        node.disk = node.disk.survivor(keep);
    }

    /// Gives a node that was killed what another replica has on disk.
    pub(super) fn copy_files(&mut self, group: GroupId, from: usize, to: usize) {
        let machine = self.nodes[from].machine(group).restarted();
        self.nodes[to].machines.insert(group, machine);
    }

    /// Gives a node that was killed, or is to start a group, this machine.
    pub(super) fn give_machine(&mut self, node: usize, group: GroupId, machine: Arc<Recorder>) {
        self.nodes[node].machines.insert(group, machine);
    }

    /// Starts a node that was killed, with all the groups in its log.
    pub(super) async fn restart(&mut self, node: usize) {
        let network = Arc::clone(&self.network);
        let known = {
            let node = &mut self.nodes[node];
            node.host = open(&network, node.id, &node.disk).await;
            node.host.known_groups()
        };
        for (group, _) in known {
            let machine = self.nodes[node].machine(group).restarted();
            self.start(node, group, machine, Start::Restart).await;
        }
    }

    /// The node whose replica leads, once there is one that can serve reads.
    pub(super) async fn leader(&self, group: GroupId) -> usize {
        self.leader_among(group, &(0..self.nodes.len()).collect::<Vec<_>>()).await
    }

    pub(super) async fn leader_among(&self, group: GroupId, nodes: &[usize]) -> usize {
        let deadline = Instant::now() + PATIENCE;
        loop {
            for at in nodes {
                if let Some(here) = self.nodes[*at].host.group(group)
                    && here.status().is_leader
                    && here.read_barrier().await.is_ok()
                {
                    return *at;
                }
            }
            assert!(Instant::now() < deadline, "no leader: {:?}", self.statuses(group));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Runs a request on the leader, and after an election on the new leader, until it succeeds.
    pub(super) async fn at_leader<T>(
        &self,
        group: GroupId,
        ask: impl AsyncFn(Arc<Group>) -> Result<T, RaftError>,
    ) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let leader = self.leader(group).await;
            match ask(self.nodes[leader].group(group)).await {
                Ok(done) => return done,
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
            assert!(Instant::now() < deadline, "never done: {:?}", self.statuses(group));
        }
    }

    /// Proposes to the leader, until it succeeds.
    pub(super) async fn propose(&self, group: GroupId, row: &Bytes) {
        self.propose_among(group, row, &(0..self.nodes.len()).collect::<Vec<_>>()).await;
    }

    /// Proposes a row to the leader among these nodes, until it succeeds. The row is stored only once: if the outcome
    /// of a proposal is unknown, the leader's machine is searched for the row before it is proposed again. (Clients'
    /// requests have ids for this purpose.)
    pub(super) async fn propose_among(&self, group: GroupId, row: &Bytes, nodes: &[usize]) {
        let deadline = Instant::now() + PATIENCE;
        let mut unknown = false;
        loop {
            let leader = self.leader_among(group, nodes).await;
            // The leader can serve reads, so it has applied every accepted entry.
            if unknown && self.nodes[leader].machine(group).contains(row) {
                return;
            }
            match self.nodes[leader].group(group).propose(row.clone()).await {
                Ok(_) => return,
                Err(error) => {
                    assert!(error.is_retryable(), "{error}");
                    unknown |= matches!(error, RaftError::OutcomeUnknown(_));
                }
            }
            assert!(Instant::now() < deadline, "never taken: {:?}", self.statuses(group));
        }
    }

    /// Makes a node's replica lead, and waits until it serves.
    pub(super) async fn hand_over(&self, group: GroupId, to: usize) {
        let deadline = Instant::now() + PATIENCE;
        let wanted = replica(group, self.nodes[to].id);
        loop {
            let leader = self.leader(group).await;
            if leader == to {
                return;
            }
            if let Err(error) = self.nodes[leader].group(group).transfer_leadership(wanted).await {
                assert!(error.is_retryable(), "{error}");
            }
            assert!(Instant::now() < deadline, "it never leads: {:?}", self.statuses(group));
        }
    }

    /// Makes a node's machine durable, and tells the group.
    pub(super) async fn flush(&self, group: GroupId, node: usize) {
        let deadline = Instant::now() + PATIENCE;
        self.nodes[node].machine(group).flush();
        // It may be busy with an election.
        while let Err(error) = self.nodes[node].group(group).flushed().await {
            assert!(error.is_retryable() && Instant::now() < deadline, "{error}");
        }
    }

    /// Waits until these nodes have applied as much as the leader.
    pub(super) async fn converge(&self, group: GroupId, nodes: &[usize]) {
        let leader = self.leader_among(group, nodes).await;
        let goal = self.nodes[leader].machine(group).applied();
        let applied = |at: &usize| self.nodes[*at].machine(group).applied();
        let behind = || format!("{goal:?} is not applied everywhere: {:?}", self.statuses(group));
        self.until(|| nodes.iter().all(|at| applied(at) >= goal), behind).await;
    }

    pub(super) async fn until(&self, done: impl Fn() -> bool, why: impl Fn() -> String) {
        let deadline = Instant::now() + PATIENCE;
        while !done() {
            assert!(Instant::now() < deadline, "{}", why());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(super) fn statuses(&self, group: GroupId) -> Vec<Option<crate::GroupStatus>> {
        self.nodes.iter().map(|node| Some(node.host.group(group)?.status())).collect()
    }

    pub(super) async fn shutdown(self) {
        for node in self.nodes {
            node.host.shutdown().await.unwrap();
        }
    }
}

/// True if a refused read or command can be tried again.
pub(super) fn passing(error: &RaftError) -> bool {
    error.is_retryable()
}

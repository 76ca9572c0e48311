//! Some nodes in one process, and requests to their leader, for tests.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use partita_proto::service::ReplicaStatus;
use partita_raft::transport::memory::MemoryNetwork;
use partita_raft::{Group, GroupId};

use super::table::Table;
use super::*;

/// Maximum time that a test waits for an expected event. Elections take up to 2.4 s, and machines that run tests are
/// slow.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// Rows of one write that fills the log: some dozens of such writes are half of its budget.
pub(super) const MANY_ROWS: i64 = 1500;

/// Elections are a matter of time: clusters take turns, so that each has the machine.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A node that can be ended and started again.
pub(super) struct Member {
    pub(super) dir: tempfile::TempDir,
    id: NodeId,
    running: Option<(Arc<Host>, Arc<Datanode>)>,
}

pub(super) struct Cluster {
    network: Arc<MemoryNetwork>,
    members: Vec<Member>,
    /// True if the next nodes to start find that their directories are older copies.
    pub(super) older: bool,
    _turn: tokio::sync::MutexGuard<'static, ()>,
}

/// Replicas with the ids of their nodes.
pub(super) fn replicas(of: &[u64]) -> BTreeMap<ReplicaId, NodeId> {
    of.iter().map(|id| (ReplicaId(*id), NodeId(*id))).collect()
}

pub(super) fn numbers(of: &[u64]) -> BTreeSet<ReplicaId> {
    of.iter().copied().map(ReplicaId).collect()
}

/// A row that does not compress.
pub(super) fn row(number: i64) -> (i64, i64) {
    (number, number.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed()).rotate_left(23))
}

impl Cluster {
    pub(super) async fn new(nodes: u64, seed: u64) -> Self {
        let turn = TURN.lock().await;
        let network = MemoryNetwork::new(seed);
        let mut cluster = Self { network, members: Vec::new(), older: false, _turn: turn };
        for id in 1..=nodes {
            let dir = tempfile::tempdir().unwrap();
            cluster.members.push(Member { dir, id: NodeId(id), running: None });
            cluster.start(id).await;
        }
        cluster
    }

    /// Nodes; the first three hold replicas that began together.
    pub(super) async fn of_three(nodes: u64, seed: u64, append_mode: bool) -> Self {
        let cluster = Self::new(nodes, seed).await;
        for id in 1..=3 {
            cluster.open(id, &[1, 2, 3], append_mode, false).await.unwrap();
        }
        cluster
    }

    pub(super) async fn open(
        &self,
        id: u64,
        members: &[u64],
        append_mode: bool,
        join: bool,
    ) -> Result<(), Error> {
        let (replica, members) = (ReplicaId(id), replicas(members));
        let spec = PartitionSpec { replica, members, join, ..spec(append_mode) };
        self.node(id).open_partition(spec).await
    }

    pub(super) async fn start(&mut self, id: u64) {
        self.try_start(id).await.unwrap();
    }

    pub(super) async fn try_start(&mut self, id: u64) -> Result<(), Error> {
        let (network, older) = (Arc::clone(&self.network), self.older);
        let member = self.member(id);
        let options = HostOptions {
            segment_bytes: 256 << 10,
            // From the half of it on, the log is given up.
            log_budget_bytes: 2 << 20,
            snapshot_bytes_per_second: 16 << 20,
            ..HostOptions::new(member.dir.path().join("log"), member.id)
        };
        let host = Host::open_linked(options, network.transport(member.id)).await.unwrap();
        network.attach(&host);
        let options = NodeOptions {
            node: member.id,
            dir: member.dir.path().to_owned(),
            memtables_bytes_max: 1 << 20,
            engine: EngineOptions::default(),
            put_aside: true,
            older,
            accepted: BTreeSet::new(),
            trash_keep: Duration::from_secs(3600),
            partition_rows_per_s: None,
        };
        match Datanode::open(options, Arc::clone(&host), Arc::new(StoppedClock)).await {
            Ok(node) => member.running = Some((host, node)),
            Err(error) => {
                host.shutdown().await.unwrap();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Ends a node abruptly.
    pub(super) async fn kill(&mut self, id: u64) {
        let (host, node) = self.member(id).running.take().unwrap();
        node.abandon().await;
        host.shutdown().await.unwrap();
    }

    pub(super) fn member(&mut self, id: u64) -> &mut Member {
        self.members.iter_mut().find(|member| member.id == NodeId(id)).unwrap()
    }

    pub(super) fn running(&self, id: u64) -> Option<&(Arc<Host>, Arc<Datanode>)> {
        self.members.iter().find(|member| member.id == NodeId(id))?.running.as_ref()
    }

    pub(super) fn node(&self, id: u64) -> &Arc<Datanode> {
        &self.running(id).unwrap().1
    }

    pub(super) fn group(&self, id: u64) -> Arc<Group> {
        self.running(id).unwrap().0.group(GroupId::from(PARTITION)).unwrap()
    }

    /// All running nodes that are not shown as removed from the group.
    pub(super) fn nodes(&self) -> Vec<u64> {
        self.members.iter().filter(|m| m.running.is_some()).map(|m| m.id.0).collect()
    }

    pub(super) async fn status_of(&self, id: u64, partition: PartitionId) -> Option<ReplicaStatus> {
        let all = self.node(id).status().await.unwrap();
        all.into_iter().find(|status| status.partition == partition)
    }

    pub(super) async fn status(&self, id: u64) -> ReplicaStatus {
        self.status_of(id, PARTITION).await.unwrap()
    }

    /// Asks one node after the other until one succeeds.
    pub(super) async fn anywhere<T>(
        &self,
        what: &str,
        ask: impl AsyncFn(u64, Arc<Datanode>) -> Result<T, Error>,
    ) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut last = None;
        while Instant::now() < deadline {
            for id in self.nodes() {
                match ask(id, Arc::clone(self.node(id))).await {
                    Ok(done) => return done,
                    Err(Error::NotFound { .. }) => {}
                    Err(error) => {
                        assert!(error.is_retryable(), "{what}: {error}");
                        last = Some(error);
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{what}: never done, at last {last:?}");
    }

    pub(super) async fn write(&self, sequence: u64, rows: &[(i64, i64)]) -> u64 {
        self.anywhere("a write", async |_, node| write(&node, sequence, rows).await).await
    }

    pub(super) async fn rows(&self) -> Vec<(i64, i64)> {
        self.anywhere("a scan", async |_, node| rows(&node).await).await
    }

    /// The node that leads, once it can serve.
    pub(super) async fn leader(&self) -> u64 {
        self.anywhere("a leader", async |id, node| rows(&node).await.map(|_| id)).await
    }

    /// The node that leads a partition of a table, once it can serve.
    pub(super) async fn leader_of(&self, partition: PartitionId, table: &Table) -> u64 {
        let target = table.route(partition).target();
        self.anywhere("a leader", async |id, node| rows_of(&node, target).await.map(|_| id)).await
    }

    pub(super) async fn reconfigure(&self, voters: &[u64]) {
        let wanted = replicas(voters);
        let ask = async |_, node: Arc<Datanode>| node.reconfigure(PARTITION, wanted.clone()).await;
        self.anywhere("a change of members", ask).await;
        let leader = self.leader().await;
        let status = self.status(leader).await;
        assert_eq!((status.voters, status.learners), (numbers(voters), BTreeSet::new()));
    }

    /// Makes a node's replica lead, and waits until it serves.
    pub(super) async fn lead(&self, to: u64) {
        let ask = async |_, node: Arc<Datanode>| node.transfer_leader(PARTITION, NodeId(to)).await;
        let deadline = Instant::now() + PATIENCE;
        // On a busy machine another may be elected right after.
        while self.leader().await != to {
            assert!(Instant::now() < deadline, "node {to} never leads");
            self.anywhere("a change of the leader", ask).await;
        }
    }

    /// All rows, as read by a node after it has become the leader.
    pub(super) async fn rows_at(&self, id: u64) -> Vec<(i64, i64)> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.lead(id).await;
            match rows(self.node(id)).await {
                Ok(rows) => return rows,
                Err(error) => assert!(error.is_retryable() && Instant::now() < deadline, "{error}"),
            }
        }
    }

    /// Makes a node flush its replica of the partition.
    pub(super) async fn flush(&self, id: u64) {
        let deadline = Instant::now() + PATIENCE;
        // The group may be busy with an election.
        while let Err(error) = self.node(id).flush_partition(PARTITION).await {
            assert!(error.is_retryable() && Instant::now() < deadline, "{error}");
        }
    }

    pub(super) async fn until(&self, what: &str, done: impl AsyncFn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done().await {
            assert!(Instant::now() < deadline, "{what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until these replicas have applied as much as the leader.
    pub(super) async fn converge(&self, nodes: &[u64]) {
        let goal = self.status(self.leader().await).await.applied;
        let applied = async || {
            let mut all = true;
            for id in nodes {
                all &= self.status(*id).await.applied >= goal;
            }
            all
        };
        self.until("not all replicas have applied everything", applied).await;
    }

    /// Waits until a node lacks the beginning of the log: it got files instead, and may report its log later.
    pub(super) async fn until_purged(&self, id: u64) {
        let purged = async || self.group(id).status().purged > Some(5);
        self.until("it got the log, not files", purged).await;
    }

    /// Writes and flushes until none of these nodes has the beginning of the log any more; answers with
    /// the number of rows, of writes from 1 on.
    pub(super) async fn outgrow_the_log(&self, nodes: &[u64]) -> i64 {
        let mut writes = 0;
        while !nodes.iter().all(|id| self.group(*id).status().purged > Some(5)) {
            for _ in 0..5 {
                let rows: Vec<_> =
                    (writes * MANY_ROWS..(writes + 1) * MANY_ROWS).map(row).collect();
                writes += 1;
                self.write(writes.cast_unsigned(), &rows).await;
            }
            for id in nodes {
                self.flush(*id).await;
            }
            assert!(writes < 1000, "the log is never given up");
        }
        writes * MANY_ROWS
    }

    pub(super) async fn stop(self) {
        // Their directories stay until they have stopped.
        for (host, node) in self.members.iter().filter_map(|member| member.running.as_ref()) {
            node.shutdown().await.unwrap();
            host.shutdown().await.unwrap();
        }
    }
}

pub(super) fn others(of: u64) -> Vec<u64> {
    (1..=3).filter(|id| *id != of).collect()
}

pub(super) fn rows_to(end: i64) -> Vec<(i64, i64)> {
    (0..end).map(row).collect()
}

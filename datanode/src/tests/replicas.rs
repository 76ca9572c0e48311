//! Some nodes in one process: replicas that follow, lead, come and go.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use partita_proto::service::ReplicaStatus;
use partita_raft::transport::memory::MemoryNetwork;
use partita_raft::{Group, GroupId};

use super::table::Table;
use super::*;

/// How long a test waits for what must come. Elections take up to 2.4 s, and machines that run tests are slow.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Rows of one write that is to fill the log: of these some dozens are half of its budget.
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
    _turn: tokio::sync::MutexGuard<'static, ()>,
}

/// Replicas have the numbers of their nodes.
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
        let mut cluster = Self { network, members: Vec::new(), _turn: turn };
        for id in 1..=nodes {
            let dir = tempfile::tempdir().unwrap();
            cluster.members.push(Member { dir, id: NodeId(id), running: None });
            cluster.start(id).await;
        }
        cluster
    }

    /// Nodes of which the first three hold replicas that began together.
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
        let network = Arc::clone(&self.network);
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
            partition_rows_per_s: None,
        };
        let node =
            Datanode::open(options, Arc::clone(&host), Arc::new(StoppedClock)).await.unwrap();
        member.running = Some((host, node));
    }

    /// Ends a node without a word.
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

    /// All that run, and are not shown as removed from the group.
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

    /// Asks one node after the other until one does it.
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

    /// All rows, as a node reads them that is made the leader.
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

    /// Has a node write its part of the partition to files.
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

    /// Waits until a node has no beginning of the log: it got files instead, and what it says of its log may come later.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_written_at_a_leader_are_read_at_the_next_one() {
    let mut cluster = Cluster::of_three(3, 1, false).await;
    cluster.write(1, &rows_to(10)).await;
    cluster.converge(&[1, 2, 3]).await;
    // Whoever asks a follower learns whom to ask: right after an election, a moment later.
    let told = async |id: u64, first: u64| {
        let leader = Some(NodeId(first));
        let refusal = Error::NotLeader { partition: PARTITION, leader };
        let node = cluster.node(id);
        // If it leads meanwhile, this changes nothing.
        let again = write(node, 1, &rows_to(10)).await;
        let changed = node.reconfigure(PARTITION, replicas(&[1, 2, 3])).await;
        let status = cluster.status(id).await;
        again == Err(refusal.clone())
            && rows(node).await == Err(refusal.clone())
            && changed == Err(refusal)
            && (status.leader, status.leader_node, status.voters.len()) == (false, leader, 3)
    };
    let all_told = async || {
        let first = cluster.leader().await;
        let [one, other] = [others(first)[0], others(first)[1]];
        told(one, first).await && told(other, first).await
    };
    cluster.until("followers do not tell who leads", all_told).await;
    for id in 1..=3 {
        cluster.flush(id).await;
        let status = cluster.status(id).await;
        assert!(status.files > 0 && status.flushed > 0, "every replica has its own files");
    }
    let first = cluster.leader().await;
    cluster.write(2, &[row(10), row(11)]).await;
    cluster.kill(first).await;
    let second = cluster.leader().await;
    assert_ne!(first, second);
    assert_eq!(cluster.rows().await, rows_to(12));
    cluster.write(3, &[row(12)]).await;
    cluster.start(first).await;
    cluster.converge(&[1, 2, 3]).await;
    assert_eq!(cluster.rows_at(first).await, rows_to(13));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_was_away_gets_files_and_then_leads_with_rows_and_requests() {
    let mut cluster = Cluster::of_three(3, 2, true).await;
    cluster.write(10_000, &[(-1, -1)]).await;
    cluster.converge(&[1, 2, 3]).await;
    let away = others(cluster.leader().await)[0];
    cluster.kill(away).await;
    let end = cluster.outgrow_the_log(&others(away)).await;
    // Some that are in no file.
    let last = cluster.write(20_000, &[row(end)]).await;
    cluster.start(away).await;
    cluster.converge(&[1, 2, 3]).await;
    cluster.until_purged(away).await;
    let expected: Vec<_> = std::iter::once((-1, -1)).chain(rows_to(end + 1)).collect();
    assert_eq!(cluster.rows_at(away).await, expected);
    // What it never saw as a write, it knows as a request: of files, and of the log.
    let (resent, again) =
        (cluster.write(1, &rows_to(MANY_ROWS)).await, cluster.write(20_000, &[row(end)]).await);
    assert!(resent < last);
    assert_eq!(again, last);
    assert_eq!(cluster.rows().await, expected);
    // It survives a crash right after, and a restart.
    cluster.kill(away).await;
    cluster.start(away).await;
    cluster.write(1, &rows_to(MANY_ROWS)).await;
    cluster.converge(&[1, 2, 3]).await;
    assert_eq!(cluster.rows_at(away).await, expected);
    cluster.stop().await;
}

/// Writes one row after the other until told to stop; every one is acknowledged.
async fn keep_writing(cluster: &Cluster, from: i64, stop: &AtomicBool, written: &AtomicU64) {
    let mut number = from;
    while !stop.load(Ordering::Acquire) {
        cluster.write(number.cast_unsigned() + 1_000_000, &[row(number)]).await;
        number += 1;
        written.store(number.cast_unsigned(), Ordering::Release);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fourth_replica_takes_the_place_of_the_leader_under_writes() {
    let cluster = Cluster::of_three(4, 3, true).await;
    let end = cluster.outgrow_the_log(&[1, 2, 3]).await;
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let change = async {
        let leaving = cluster.leader().await;
        let mut wanted = others(leaving);
        wanted.push(4);
        cluster.open(4, &wanted, true, true).await.unwrap();
        cluster.open(4, &wanted, true, true).await.unwrap();
        cluster.reconfigure(&wanted).await;
        cluster.reconfigure(&wanted).await;
        cluster.node(leaving).drop_partition(PARTITION, ReplicaId(leaving)).await.unwrap();
        let so_far = written.load(Ordering::Acquire);
        cluster.until("writes go on", async || written.load(Ordering::Acquire) > so_far + 20).await;
        stop.store(true, Ordering::Release);
        wanted
    };
    let (wanted, ()) = tokio::join!(change, keep_writing(&cluster, end, &stop, &written));
    let written = written.load(Ordering::Acquire).cast_signed();
    cluster.until_purged(4).await;
    cluster.converge(&wanted).await;
    for id in wanted {
        assert_eq!(cluster.rows_at(id).await, rows_to(written), "on node {id}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_replica_becomes_three_and_another_one_is_left() {
    let mut cluster = Cluster::new(3, 4).await;
    cluster.open(1, &[1], false, false).await.unwrap();
    cluster.write(1, &rows_to(10)).await;
    // In a group of one this gives up the log, so that those who join get files.
    cluster.node(1).flush_partition(PARTITION).await.unwrap();
    cluster.write(2, &[row(10)]).await;
    let refused = cluster.node(1).reconfigure(PARTITION, replicas(&[1, 2])).await.unwrap_err();
    assert!(refused.to_string().contains("replica 2 of partition 7 catches up"), "{refused}");
    assert!(refused.is_retryable());
    assert_eq!(cluster.status(1).await.learners, numbers(&[2]));
    for id in [2, 3] {
        cluster.open(id, &[1, 2, 3], false, true).await.unwrap();
    }
    cluster.reconfigure(&[1, 2, 3]).await;
    cluster.converge(&[1, 2, 3]).await;
    for id in [2, 3] {
        assert!(cluster.status(id).await.files > 0, "it got files");
    }
    cluster.write(3, &[row(11)]).await;
    cluster.reconfigure(&[3]).await;
    for id in [1, 2] {
        cluster.node(id).drop_partition(PARTITION, ReplicaId(id)).await.unwrap();
        assert!(cluster.node(id).status().await.unwrap().is_empty());
    }
    cluster.write(4, &[row(12)]).await;
    assert_eq!(rows(cluster.node(3)).await.unwrap(), rows_to(13));
    cluster.kill(3).await;
    cluster.start(3).await;
    assert_eq!(cluster.rows().await, rows_to(13));
    cluster.write(5, &[row(13)]).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_joined_and_has_got_nothing_yet_may_be_restarted() {
    let mut cluster = Cluster::new(2, 5).await;
    cluster.open(1, &[1], false, false).await.unwrap();
    cluster.write(1, &rows_to(5)).await;
    cluster.open(2, &[1, 2], false, true).await.unwrap();
    cluster.kill(2).await;
    cluster.start(2).await;
    cluster.open(2, &[1, 2], false, true).await.unwrap();
    cluster.reconfigure(&[1, 2]).await;
    assert_eq!(cluster.rows_at(2).await, rows_to(5));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_about_another_replica_of_the_partition_change_nothing() {
    let cluster = Cluster::new(1, 6).await;
    cluster.open(1, &[1], false, false).await.unwrap();
    cluster.write(1, &rows_to(5)).await;
    cluster.node(1).drop_partition(PARTITION, ReplicaId(9)).await.unwrap();
    let other = PartitionSpec { replica: ReplicaId(9), join: true, ..spec(false) };
    let refused = cluster.node(1).open_partition(other).await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable(_)), "{refused}");
    cluster.open(1, &[1], false, false).await.unwrap();
    assert_eq!(cluster.rows().await, rows_to(5));
    cluster.node(1).transfer_leader(PARTITION, NodeId(1)).await.unwrap();
    let nobody = cluster.node(1).transfer_leader(PARTITION, NodeId(2)).await;
    assert!(matches!(nobody, Err(Error::InvalidInput(_))), "{nobody:?}");
    let nobody = cluster.node(1).reconfigure(PARTITION, BTreeMap::new()).await;
    assert!(matches!(nobody, Err(Error::InvalidInput(_))), "{nobody:?}");
    cluster.stop().await;
}

/// Changes a byte in the middle of every file with this ending below a directory; how many there are.
fn damage(dir: &Path, ending: &str) -> usize {
    let mut damaged = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            damaged += damage(&path, ending);
        } else if path.extension().is_some_and(|extension| extension == ending) {
            let mut bytes = std::fs::read(&path).unwrap();
            let middle = bytes.len() / 3;
            bytes[middle] ^= 0x55;
            std::fs::write(&path, bytes).unwrap();
            damaged += 1;
        }
    }
    damaged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_finds_its_files_damaged_leaves_reading_to_the_others() {
    let mut cluster = Cluster::of_three(3, 8, false).await;
    let all = rows_to(MANY_ROWS);
    cluster.write(1, &all).await;
    let leader = cluster.leader().await;
    cluster.converge(&[1, 2, 3]).await;
    for id in 1..=3 {
        cluster.flush(id).await;
    }
    let dir = cluster.member(leader).dir.path().join("partitions");
    assert!(damage(&dir, "parquet") > 0);
    // What is damaged is said, not served; then another one serves.
    cluster
        .until("the leader never gave way", async || {
            let found = rows(cluster.node(leader)).await;
            let failed = cluster.status(leader).await.failure.is_some();
            match found {
                // It has the rows in memory still.
                Ok(rows) => assert_eq!(rows, all),
                Err(Error::Corrupted(_)) => {}
                Err(error) if failed => {
                    let gave_way = matches!(error, Error::Unavailable(_) | Error::NotLeader { .. });
                    assert!(gave_way, "{error}");
                    return true;
                }
                // On a busy machine another was elected, but only who reads finds damage.
                Err(error) => {
                    assert!(error.is_retryable(), "{error}");
                    cluster
                        .anywhere("a change of the leader", async |_, node: Arc<Datanode>| {
                            node.transfer_leader(PARTITION, NodeId(leader)).await
                        })
                        .await;
                }
            }
            false
        })
        .await;
    assert_eq!(cluster.rows().await, all);
    assert_ne!(cluster.leader().await, leader);
    assert!(cluster.status(leader).await.failure.is_some());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_damaged_at_the_start_is_put_aside_and_made_anew() {
    let mut cluster = Cluster::of_three(3, 9, false).await;
    cluster.write(1, &rows_to(50)).await;
    cluster.leader().await;
    cluster.converge(&[1, 2, 3]).await;
    cluster.flush(2).await;
    cluster.kill(2).await;
    let dir = cluster.member(2).dir.path().join("partitions");
    assert!(damage(&dir.join(PARTITION.to_string()).join("manifest"), "checkpoint") > 0);
    cluster.start(2).await;
    assert!(cluster.node(2).status().await.unwrap().is_empty(), "it is not served");
    assert!(dir.join(format!("{PARTITION}.damaged-1")).exists(), "it is there to be looked at");
    // Another replica on the same node takes its place.
    let members = BTreeMap::from([
        (ReplicaId(1), NodeId(1)),
        (ReplicaId(3), NodeId(3)),
        (ReplicaId(22), NodeId(2)),
    ]);
    let spec = PartitionSpec {
        replica: ReplicaId(22),
        members: members.clone(),
        join: true,
        ..spec(false)
    };
    cluster.node(2).open_partition(spec).await.unwrap();
    let ask = async |_, node: Arc<Datanode>| node.reconfigure(PARTITION, members.clone()).await;
    cluster.anywhere("a change of members", ask).await;
    assert_eq!(cluster.rows_at(2).await, rows_to(50));
    cluster.stop().await;
}

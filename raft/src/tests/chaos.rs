//! Three nodes under writes and reads while links break, nodes are cut off, lose their power and come back.
//!
//! What happens follows from a seed, though not when: disks and elections take their real time. A failure prints the
//! seed. More of them: `RAFT_SEEDS=100-200 cargo test -p partita-raft chaos`.
//!
//! Invariants that are checked:
//! - every command that was acknowledged is in every replica, once, in one order;
//! - a command that was refused is in none;
//! - a read sees all that was acknowledged, or seen by another read, before it began.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::cluster::{Cluster, Node, replica};
use super::recorder::Recorder;
use crate::transport::memory::Faults;
use crate::{Group, GroupId, RaftError};

const GROUP: GroupId = GroupId(7);
const STEPS: u64 = 16;
const WRITERS: u64 = 4;

/// Numbers that follow from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.next(to - from))
    }

    fn node(&mut self) -> usize {
        usize::try_from(self.next(3)).unwrap()
    }
}

/// Prints the seed when the test fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the seed was {0}: RAFT_SEEDS={0}-{0}", self.0);
        }
    }
}

/// History of requests, as the clients know it.
#[derive(Default)]
struct History {
    acknowledged: BTreeSet<Bytes>,
    refused: BTreeSet<Bytes>,
    /// The longest log that a read has seen.
    seen: usize,
    /// Reads that succeeded.
    reads: usize,
}

/// The nodes as clients find them, and what they have learned.
struct Clients {
    nodes: Mutex<Vec<(Arc<Group>, Arc<Recorder>)>>,
    history: Mutex<History>,
}

impl Clients {
    fn find(&self, cluster: &Cluster) {
        let nodes = cluster
            .nodes
            .iter()
            .filter_map(|node| Some((node.host.group(GROUP)?, Arc::clone(node.machine(GROUP)))));
        *self.nodes.lock() = nodes.collect();
    }

    fn any(&self, random: &mut Random) -> (Arc<Group>, Arc<Recorder>) {
        let nodes = self.nodes.lock();
        // Mostly the node that claims to lead.
        let leads = nodes.iter().find(|(group, _)| group.status().is_leader);
        match leads {
            Some(leads) if random.next(10) > 0 => leads.clone(),
            _ => nodes[random.node() % nodes.len()].clone(),
        }
    }

    async fn write(self: Arc<Self>, mut random: Random, stop: watch::Receiver<bool>, writer: u64) {
        for number in 0.. {
            if *stop.borrow() {
                return;
            }
            let (group, _) = self.any(&mut random);
            // Large enough that the log fills, and what was flushed is given up: who lags gets snapshots.
            let mut row = format!("{writer}:{number}:").into_bytes();
            row.resize(5000, b'.');
            let row = Bytes::from(row);
            // A client that waits for an answer gives up sooner than the group does.
            let proposed = tokio::time::timeout(Duration::from_secs(1), group.propose(row.clone()));
            match proposed.await {
                Ok(Ok(_)) => {
                    self.history.lock().acknowledged.insert(row);
                }
                Ok(Err(
                    RaftError::NotLeader { .. }
                    | RaftError::Unavailable(_)
                    | RaftError::DiskFull(_),
                )) => {
                    self.history.lock().refused.insert(row);
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                // The outcome is unknown.
                Ok(Err(_)) | Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    }

    async fn read(self: Arc<Self>, mut random: Random, stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            let (group, machine) = self.any(&mut random);
            let (before, seen) = {
                let history = self.history.lock();
                (history.acknowledged.clone(), history.seen)
            };
            let barrier = tokio::time::timeout(Duration::from_secs(1), group.read_barrier());
            if let Ok(Ok(())) = barrier.await {
                let rows = machine.rows();
                let present: BTreeSet<&Bytes> = rows.iter().collect();
                let missing: Vec<_> = before.iter().filter(|row| !present.contains(row)).collect();
                assert!(
                    missing.is_empty(),
                    "a read misses {} rows: {:?}",
                    missing.len(),
                    group.status()
                );
                assert!(
                    rows.len() >= seen,
                    "{} rows after {seen}: {:?}",
                    rows.len(),
                    group.status()
                );
                let mut history = self.history.lock();
                history.seen = history.seen.max(rows.len());
                history.reads += 1;
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    }

    /// Writes that were acknowledged, and reads that succeeded.
    fn done(&self) -> (usize, usize) {
        let history = self.history.lock();
        (history.acknowledged.len(), history.reads)
    }
}

/// Flushes a node, so that replicas that lag may need its files instead of its log.
async fn flush(node: &Node) {
    node.machine(GROUP).flush();
    // May fail: its group may be busy with an election.
    node.group(GROUP).flushed().await.ok();
}

/// One thing that goes wrong, or right again.
async fn happen(cluster: &mut Cluster, clients: &Clients, random: &mut Random, what: u64) {
    let node = random.node();
    match what {
        0 => cluster.network.heal(),
        1 => cluster.network.isolate(cluster.nodes[node].id),
        2 => {
            let other = (node + 1) % 3;
            cluster.network.cut(cluster.nodes[node].id, cluster.nodes[other].id);
        }
        3 => {
            let delay_max = random.millis(1, 20);
            cluster.network.set_faults(Faults { delay_max, breaks: 5000, silences: 1000 });
        }
        4 => cluster.network.set_faults(Faults::default()),
        5 | 6 => {
            let mut coin = Random(random.next(u64::MAX));
            cluster.kill(node, || coin.next(2) == 0).await;
            clients.find(cluster);
            tokio::time::sleep(random.millis(5, 1500)).await;
            for other in (0..3).filter(|other| *other != node) {
                flush(&cluster.nodes[other]).await;
            }
            tokio::time::sleep(random.millis(5, 1500)).await;
            cluster.restart(node).await;
        }
        7 | 8 => {
            // Gone and back before it is noticed: the moment in which leases go wrong.
            let leader = cluster.nodes.iter().position(|node| node.group(GROUP).status().is_leader);
            let node = leader.unwrap_or(node);
            let mut coin = Random(random.next(u64::MAX));
            cluster.kill(node, || coin.next(2) == 0).await;
            clients.find(cluster);
            tokio::time::sleep(random.millis(5, 120)).await;
            cluster.restart(node).await;
        }
        10 | 11 => {
            for node in &cluster.nodes {
                flush(node).await;
            }
        }
        _ => {
            let to = replica(GROUP, cluster.nodes[node].id);
            for node in &cluster.nodes {
                let group = node.group(GROUP);
                if group.status().is_leader {
                    // May fail: the other may be gone.
                    group.transfer_leadership(to).await.ok();
                }
            }
        }
    }
    clients.find(cluster);
}

async fn run(seed: u64) {
    let _seed = Seed(seed);
    let mut random = Random(seed);
    let mut cluster = Cluster::of_three(GROUP, seed).await;
    cluster.leader(GROUP).await;
    let clients = Arc::new(Clients { nodes: Mutex::default(), history: Mutex::default() });
    clients.find(&cluster);
    let stop = watch::Sender::new(false);
    let seeds: Vec<_> = (0..WRITERS + 2).map(|_| Random(random.next(u64::MAX))).collect();
    let mut tasks = Vec::new();
    for (number, random) in (0..).zip(seeds) {
        let clients = Arc::clone(&clients);
        if number < WRITERS {
            tasks.push(tokio::spawn(clients.write(random, stop.subscribe(), number)));
        } else {
            tasks.push(tokio::spawn(clients.read(random, stop.subscribe())));
        }
    }
    for _ in 0..STEPS {
        tokio::time::sleep(random.millis(50, 700)).await;
        let what = random.next(12);
        happen(&mut cluster, &clients, &mut random, what).await;
    }
    cluster.network.heal();
    cluster.network.set_faults(Faults::default());
    // It works again, whatever happened.
    let (writes, reads) = clients.done();
    let goes_on = || {
        let now = clients.done();
        // A reader that found something wrong has ended.
        now.0 > writes + 20 && now.1 > reads + 2 || tasks.iter().any(|task| task.is_finished())
    };
    cluster.until(goes_on, || format!("it does not go on: {:?}", cluster.statuses(GROUP))).await;
    stop.send_replace(true);
    for task in tasks {
        task.await.unwrap();
    }
    cluster.converge(GROUP, &[0, 1, 2]).await;
    let rows = cluster.nodes[0].machine(GROUP).rows();
    for node in &cluster.nodes {
        assert!(node.machine(GROUP).rows() == rows, "node {} has another order", node.id);
    }
    let present: BTreeSet<&Bytes> = rows.iter().collect();
    assert_eq!(present.len(), rows.len(), "a row is there twice");
    let history = std::mem::take(&mut *clients.history.lock());
    assert!(history.acknowledged.len() > 20, "{} writes", history.acknowledged.len());
    for row in &history.acknowledged {
        assert!(present.contains(row), "{:?} was acknowledged and is lost", &row[..9]);
    }
    for row in &history.refused {
        assert!(!present.contains(row), "{:?} was refused and is there", &row[..9]);
    }
    let snapshots = || {
        let installed =
            |node: &Node| node.machine(GROUP).installed.load(std::sync::atomic::Ordering::Relaxed);
        cluster.nodes.iter().map(installed).sum::<u64>()
    };
    println!(
        "seed {seed}: {} acknowledged, {} refused, {} in the log, {} snapshots",
        history.acknowledged.len(),
        history.refused.len(),
        rows.len(),
        snapshots()
    );
    cluster.shutdown().await;
}

fn seeds() -> std::ops::RangeInclusive<u64> {
    let Ok(asked) = std::env::var("RAFT_SEEDS") else { return 1..=3 };
    let (from, to) = asked.split_once('-').expect("RAFT_SEEDS is like 100-200");
    from.parse().unwrap()..=to.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chaos_loses_doubles_and_hides_nothing() {
    for seed in seeds() {
        run(seed).await;
    }
}

//! Reads at followers: no read is stale, whoever answers it, while leaders die, nodes stand still and a partition is cut.
//!
//! Each key is a register with one writer, whose values only grow. So a history is linearizable if every read returns at
//! least what was acknowledged, or read by anybody, before it began, and no more than was sent before it ended. A key of
//! which a write failed gets no other write: the failed one may take effect at any later time.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::harness::{Cluster, Entrance, PATIENCE, number, rows};
use super::{NEVER_LOST, leading_node};

const KEYS: usize = 400;
const WRITERS: usize = 2;
/// Readers of each frontend. Their scans in flight are many, to the frontend.
const READERS: usize = 12;
const MAX_STALENESS: Duration = Duration::from_millis(1500);

/// What is known of one key.
#[derive(Default)]
struct Register {
    sent: AtomicI64,
    /// Largest value that any read has returned.
    seen: AtomicI64,
    /// Acknowledged values, with the times of their acknowledgement.
    acknowledged: Mutex<Vec<(Instant, i64)>>,
}

impl Register {
    /// The largest value that was acknowledged before a time.
    fn acknowledged_before(&self, time: Instant) -> i64 {
        let acknowledged = self.acknowledged.lock().unwrap();
        acknowledged.iter().rev().find(|(at, _)| *at <= time).map_or(0, |(_, value)| *value)
    }
}

struct History {
    registers: Vec<Register>,
    /// Keys from 0 to here have been written.
    used: AtomicUsize,
    stale: Mutex<Vec<String>>,
    reads: AtomicU64,
    bounded_reads: AtomicU64,
    /// Bounded reads that returned less than was acknowledged when they began.
    older: AtomicU64,
    stop: AtomicBool,
}

impl History {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            registers: (0..KEYS).map(|_| Register::default()).collect(),
            used: AtomicUsize::new(0),
            stale: Mutex::default(),
            reads: AtomicU64::new(0),
            bounded_reads: AtomicU64::new(0),
            older: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        })
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Writes growing values to a few keys, others once one of their writes has failed.
    async fn write(self: Arc<Self>, client: Client) {
        let next = || self.used.fetch_add(1, Ordering::SeqCst);
        let mut keys: Vec<usize> = (0..4).map(|_| next()).collect();
        let mut value = 0;
        while !self.is_over() {
            value += 1;
            for key in &mut keys {
                let Some(register) = self.registers.get(*key) else { return };
                register.sent.store(value, Ordering::SeqCst);
                let sql = format!("INSERT INTO spot VALUES ({key}, {value})");
                match client.batch_execute(&sql).await {
                    Ok(()) => register.acknowledged.lock().unwrap().push((Instant::now(), value)),
                    Err(_) => *key = next(),
                }
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    }

    /// Reads one key after another.
    async fn read(self: Arc<Self>, client: Client, reader: usize, bound: Duration) {
        if !bound.is_zero() {
            let bounded = format!(
                "SET read_consistency = bounded; SET max_staleness = '{}ms'",
                bound.as_millis()
            );
            client.batch_execute(&bounded).await.unwrap();
        }
        let statement = client.prepare("SELECT v FROM spot WHERE k = $1").await.unwrap();
        let mut turn = reader * 7;
        while !self.is_over() {
            turn += 1;
            // The newest keys are those that are written.
            let used = self.used.load(Ordering::SeqCst).clamp(1, KEYS);
            let key = used.saturating_sub(1 + turn % 16);
            let register = &self.registers[key];
            let seen = register.seen.load(Ordering::SeqCst);
            let begun = Instant::now();
            let newest = register.acknowledged_before(begun).max(seen);
            let least = match bound.is_zero() {
                true => newest,
                false => begun.checked_sub(bound).map_or(0, |at| register.acknowledged_before(at)),
            };
            let id = i64::try_from(key).unwrap();
            let Ok(found) = client.query(&statement, &[&id]).await else {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            let value = found.first().map_or(0, |row| row.get::<_, i64>(0));
            let most = register.sent.load(Ordering::SeqCst);
            if value < least || value > most || found.len() > 1 {
                let count = found.len();
                let text =
                    format!("key {key}: {value} ({count} rows) of {least} to {most}, {bound:?}");
                self.stale.lock().unwrap().push(text);
            }
            if bound.is_zero() {
                register.seen.fetch_max(value, Ordering::SeqCst);
                self.reads.fetch_add(1, Ordering::SeqCst);
            } else {
                self.bounded_reads.fetch_add(1, Ordering::SeqCst);
                self.older.fetch_add(u64::from(value < newest), Ordering::SeqCst);
            }
        }
    }

    fn counts(&self) -> (u64, u64) {
        (self.reads.load(Ordering::SeqCst), self.bounded_reads.load(Ordering::SeqCst))
    }

    fn check(&self, when: &str) {
        let stale = self.stale.lock().unwrap();
        assert!(
            stale.is_empty(),
            "{when}: {} reads: {:#?}",
            stale.len(),
            &stale[..stale.len().min(5)]
        );
    }
}

/// Waits until so many more reads of both kinds have been answered.
async fn until_more(cluster: &Cluster, history: &History, reads: u64, when: &str) {
    let (linearizable, bounded) = history.counts();
    cluster
        .until(when, async || {
            let counts = history.counts();
            counts.0 >= linearizable + reads && counts.1 >= bounded + reads / 10
        })
        .await;
    history.check(when);
}

/// Scans that followers have answered for all frontends.
async fn by_followers(clients: &[Client]) -> u64 {
    let sql = "SELECT value FROM sys.counters WHERE name = 'scans_by_followers'";
    let mut sum = 0;
    for client in clients {
        sum += number(&rows(client, sql).await.unwrap()[0], 0);
    }
    sum
}

async fn reader(entrance: &Entrance) -> Client {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match entrance.connect().await {
            Ok(client) => return client,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_is_stale_whoever_answers_while_leaders_die_and_nodes_stand_still() {
    let mut cluster = Cluster::start(NEVER_LOST).await;
    let clients = [cluster.connect(0).await, cluster.connect(1).await];
    clients[0]
        .batch_execute("CREATE TABLE spot (k BIGINT, v BIGINT, PRIMARY KEY (k))")
        .await
        .unwrap();
    cluster.until_in_order(&clients[0], 3).await;
    cluster.until_done(&clients[1], "SELECT * FROM spot").await;

    let history = History::new();
    let mut tasks: Vec<JoinHandle<()>> = Vec::new();
    for number in 0..WRITERS {
        let client = cluster.connect(number % 2).await;
        tasks.push(tokio::spawn(Arc::clone(&history).write(client)));
    }
    for number in 0..2 * READERS {
        // One of each frontend's readers accepts rows of a bounded age.
        let bound = if number / 2 == 0 { MAX_STALENESS } else { Duration::ZERO };
        let client = reader(&cluster.entrance(number % 2)).await;
        tasks.push(tokio::spawn(Arc::clone(&history).read(client, number, bound)));
    }
    until_more(&cluster, &history, 500, "reads of three replicas").await;
    cluster.until("followers answer", async || by_followers(&clients).await >= 100).await;

    let leader = format!("datanode{}", leading_node(&cluster, &clients[0], "spot").await);
    cluster.kill(&leader);
    until_more(&cluster, &history, 500, "after the leader was killed").await;
    cluster.start_again(&leader);
    cluster.until_ready(&leader).await;
    until_more(&cluster, &history, 300, "after it has come back").await;

    // A leader that stands still is replaced, and knows nothing of it when it goes on; a follower lags.
    for role in ["leader", "follower"] {
        let node = leading_node(&cluster, &clients[0], "spot").await;
        let node = if role == "leader" { node } else { node % 3 + 1 };
        let name = format!("datanode{node}");
        cluster.signal(&name, "STOP");
        tokio::time::sleep(Duration::from_secs(5)).await;
        until_more(&cluster, &history, 100, "while a node stands still").await;
        cluster.signal(&name, "CONT");
        until_more(&cluster, &history, 300, "after it goes on").await;
    }

    // Both halves of a partition that is cut are read at once.
    let before = by_followers(&clients).await;
    let middle = history.used.load(Ordering::SeqCst).saturating_sub(4);
    let split = format!("ALTER TABLE spot SPLIT AT (({middle}))");
    let partitions = "SELECT count(*) FROM sys.partitions WHERE \"table\" = 'spot'";
    cluster
        .until("the partition is cut", async || {
            // It may be under way, or done without an answer.
            drop(clients[0].batch_execute(&split).await);
            number(&cluster.query(&clients[0], partitions).await[0], 0) >= 2
        })
        .await;
    until_more(&cluster, &history, 500, "after a split").await;
    cluster
        .until("followers answer again", async || by_followers(&clients).await >= before + 50)
        .await;

    history.stop.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    history.check("at the end");
    let (reads, bounded) = history.counts();
    let used = history.used.load(Ordering::SeqCst);
    assert!(used < KEYS, "the writers ran out of keys: {}", cluster.logs());
    println!(
        "{reads} reads and {bounded} bounded ones, {} of these of older rows; {} by followers; {used} keys",
        history.older.load(Ordering::SeqCst),
        by_followers(&clients).await
    );
}

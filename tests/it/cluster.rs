//! A cluster of real processes that is broken in the ways clusters break: what was acknowledged is
//! there, once, and what can be done meanwhile is done.

mod at_data;
mod copies;
mod copies_of_tables;
mod design;
mod disks;
mod experiment;
mod followers;
mod harness;
mod hotspot;
mod keyed;
mod nodes;
mod orphans;
mod placed;
mod rekeyed;
mod rotated;
mod rounds;
mod sequences;
mod splits;
mod stalls;
mod strangers;
mod updated;
mod wide;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_postgres::Client;

use self::harness::{Cluster, PATIENCE, number, rows};
use crate::server::{failure, one};

/// Seconds after which nothing is lost for the tests that do not want it.
const NEVER_LOST: u64 = 3600;

/// Nothing that one node does keeps writes waiting for longer: some seconds, on a machine that has time.
const OUTAGE_MAX: Duration = Duration::from_secs(30);

/// A table with a key, and one whose rows are all kept; both of three partitions.
const TABLES: &str = "CREATE TABLE keyed (id BIGINT, v BIGINT, PRIMARY KEY (id)) \
                      PARTITION BY HASH (id) PARTITIONS 3; \
                      CREATE TABLE appended (ts TIMESTAMP(3) TIME INDEX, id BIGINT, pad STRING) \
                      PARTITION BY HASH (id) PARTITIONS 3 WITH ('append_mode' = 'true')";

/// Writers of their own numbers, and what they were told is written.
struct Load {
    keyed: Arc<Mutex<BTreeSet<i64>>>,
    appended: Arc<Mutex<BTreeSet<i64>>>,
    /// The longest time in which nothing was acknowledged.
    longest: Arc<Mutex<Duration>>,
    refused: Arc<Mutex<Vec<String>>>,
    next: Arc<AtomicI64>,
    stop: Arc<AtomicBool>,
    writers: Vec<JoinHandle<()>>,
}

impl Load {
    fn new() -> Self {
        Self {
            keyed: Arc::default(),
            appended: Arc::default(),
            longest: Arc::default(),
            refused: Arc::default(),
            next: Arc::new(AtomicI64::new(0)),
            stop: Arc::default(),
            writers: Vec::new(),
        }
    }

    /// Two writers, one for each table and frontend.
    async fn start(cluster: &Cluster) -> Self {
        let mut load = Self::new();
        let clients = [cluster.connect(0).await, cluster.connect(1).await];
        for (client, table) in clients.into_iter().zip(["keyed", "appended"]) {
            let acked = Arc::clone(if table == "keyed" { &load.keyed } else { &load.appended });
            let (longest, refused) = (Arc::clone(&load.longest), Arc::clone(&load.refused));
            let (next, stop) = (Arc::clone(&load.next), Arc::clone(&load.stop));
            load.writers.push(tokio::spawn(async move {
                let mut last = Instant::now();
                while !stop.load(Ordering::SeqCst) {
                    let first = next.fetch_add(10, Ordering::SeqCst);
                    match write(&client, table, first..first + 10).await {
                        Ok(()) => {
                            acked.lock().unwrap().extend(first..first + 10);
                            let mut longest = longest.lock().unwrap();
                            *longest = (*longest).max(last.elapsed());
                            last = Instant::now();
                        }
                        // Nobody knows about these; they are not sent again.
                        Err(error) => refused.lock().unwrap().push(error),
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }));
        }
        load
    }

    fn acknowledged(&self) -> usize {
        self.keyed.lock().unwrap().len() + self.appended.lock().unwrap().len()
    }

    /// Waits until as many more rows of both tables are acknowledged.
    async fn until_more(&self, cluster: &Cluster, rows: usize) {
        let count = |acked: &Mutex<BTreeSet<i64>>| acked.lock().unwrap().len();
        let goals = [count(&self.keyed) + rows, count(&self.appended) + rows];
        cluster
            .until("rows are taken", async || {
                count(&self.keyed) >= goals[0] && count(&self.appended) >= goals[1]
            })
            .await;
    }

    async fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for writer in self.writers.drain(..) {
            writer.await.unwrap();
        }
    }

    /// Every acknowledged row is there, and no row is there twice.
    async fn verify(&self, cluster: &Cluster, client: &Client) {
        for (table, acked) in [("keyed", &self.keyed), ("appended", &self.appended)] {
            let acked = acked.lock().unwrap().clone();
            let found = ids(cluster, client, table).await;
            let distinct: BTreeSet<i64> = found.iter().copied().collect();
            let refused = self.refused.lock().unwrap().clone();
            let context = || format!("refused: {refused:?}\n{}", cluster.logs());
            assert_eq!(found.len(), distinct.len(), "{table} has rows twice\n{}", context());
            let lost: Vec<_> = acked.difference(&distinct).take(10).collect();
            assert!(lost.is_empty(), "{table} lost {lost:?} of {}\n{}", acked.len(), context());
        }
    }
}

/// Rows of these numbers into a table; what it was refused with.
async fn write(client: &Client, table: &str, ids: std::ops::Range<i64>) -> Result<(), String> {
    let values: Vec<_> = ids
        .map(|id| match table {
            "keyed" => format!("({id}, {id})"),
            _ => format!("({id}, {id}, 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx')"),
        })
        .collect();
    let sql = format!("INSERT INTO {table} VALUES {}", values.join(", "));
    client.batch_execute(&sql).await.map_err(|error| match error.as_db_error() {
        Some(error) => format!("{} {}", error.code().code(), error.message()),
        None => error.to_string(),
    })
}

/// The numbers of all rows of a table.
async fn ids(cluster: &Cluster, client: &Client, table: &str) -> Vec<i64> {
    let found = cluster.query(client, &format!("SELECT id FROM {table}")).await;
    found.iter().map(|row| number(row, 0).try_into().unwrap()).collect()
}

async fn ids_of(cluster: &Cluster, client: &Client, table: &str) -> BTreeSet<i64> {
    ids(cluster, client, table).await.into_iter().collect()
}

/// How many rows there are, as text.
async fn count(cluster: &Cluster, client: &Client, of: &str) -> String {
    let found = cluster.query(client, &format!("SELECT count(*) FROM {of}")).await;
    number(&found[0], 0).to_string()
}

/// The datanode that leads a partition of a table, once one does.
async fn leading_node(cluster: &Cluster, client: &Client, table: &str) -> u64 {
    let sql = format!(
        "SELECT node FROM sys.replicas WHERE \"table\" = '{table}' AND role = 'leader' LIMIT 1"
    );
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(row) = cluster.query(client, &sql).await.first() {
            return number(row, 0);
        }
        assert!(Instant::now() < deadline, "nobody leads a partition of {table}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_has_three_replicas_and_each_frontend_sees_what_the_other_writes() {
    let cluster = Cluster::start(NEVER_LOST).await;
    let (first, second) = (cluster.connect(0).await, cluster.connect(1).await);
    first.batch_execute(TABLES).await.unwrap();
    cluster.until_in_order(&first, 3).await;
    for table in ["keyed", "appended"] {
        cluster
            .until("each partition has three replicas", async || {
                cluster.replicas(&first, table).await.len() == 9
            })
            .await;
    }
    cluster.until_done(&second, "SELECT * FROM keyed").await;
    for round in 0..5 {
        write(&first, "keyed", round * 20..round * 20 + 10).await.unwrap();
        assert_eq!(
            one(&second, "SELECT count(*) FROM keyed").await,
            format!("{}", round * 20 + 10)
        );
        write(&second, "keyed", round * 20 + 10..round * 20 + 20).await.unwrap();
        assert_eq!(one(&first, "SELECT count(*) FROM keyed").await, format!("{}", round * 20 + 20));
    }
    let nodes = cluster.until_well(&["admin", "--connect", &cluster.door(1), "-p", "nodes"]).await;
    for id in 1..=3 {
        let name = format!("datanode{id}");
        let line = nodes.lines().find(|line| line.contains(&cluster.peer(&name)));
        assert!(line.is_some_and(|line| line.starts_with(&id.to_string())), "{nodes}");
    }
    let metas = cluster.until_well(&["admin", "--connect", &cluster.door(1), "-p", "metas"]).await;
    for name in ["meta1", "meta2", "meta3"] {
        assert!(metas.contains(&cluster.peer(name)), "{metas}");
    }
    for (metas, expected) in [("answers", "3"), ("leads AND leader = meta", "1")] {
        let of = format!("sys.metas WHERE {metas}");
        cluster
            .until("the metas agree", async || count(&cluster, &first, &of).await == expected)
            .await;
    }
    for name in ["meta1", "meta2", "meta3", "datanode1", "datanode2", "datanode3"] {
        cluster.until_well(&["health", "--connect", &cluster.peer(name)]).await;
    }
    let nobody = format!("127.0.0.1:{}", 9);
    assert!(!cluster.tool(&["health", "--connect", &nobody]).0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_row_is_lost_or_doubled_when_a_datanode_is_killed_under_load() {
    let mut cluster = Cluster::start(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    client.batch_execute(TABLES).await.unwrap();
    let mut load = Load::start(&cluster).await;
    for _ in 0..2 {
        load.until_more(&cluster, 200).await;
        let victim = format!("datanode{}", leading_node(&cluster, &client, "appended").await);
        cluster.kill(&victim);
        load.until_more(&cluster, 200).await;
        cluster.start_again(&victim);
    }
    load.until_more(&cluster, 200).await;
    load.end().await;
    let longest = *load.longest.lock().unwrap();
    eprintln!("{} rows; nothing was taken for {longest:?}", load.acknowledged());
    assert!(longest < OUTAGE_MAX, "nothing was taken for {longest:?}");
    load.verify(&cluster, &client).await;
    cluster.until_in_order(&client, 3).await;
    load.verify(&cluster, &cluster.connect(1).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_can_be_used_without_metas_leader_and_changed_when_there_is_another() {
    let mut cluster = Cluster::start(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    client.batch_execute(TABLES).await.unwrap();
    write(&client, "keyed", 0..100).await.unwrap();
    let leader = cluster.leading_meta().await;
    cluster.kill(&leader);
    for round in 1..=5 {
        assert_eq!(one(&client, "SELECT count(*) FROM keyed").await, format!("{}", round * 100));
        write(&client, "keyed", round * 100..round * 100 + 100).await.unwrap();
    }
    // Asked for again when its outcome is not known.
    let create =
        |name: &str| format!("CREATE TABLE IF NOT EXISTS {name} (id BIGINT, PRIMARY KEY (id))");
    let took = cluster.until_done(&client, &create("u")).await;
    eprintln!("tables can be made again after {took:?}");
    let second = cluster.leading_meta().await;
    assert_ne!(second, leader);
    cluster.until_done(&client, "INSERT INTO u VALUES (1)").await;
    cluster.start_again(&leader);
    cluster.until_ready(&leader).await;
    // It is of use: without the second there is a majority because of it.
    cluster.kill(&second);
    cluster.until_done(&client, &create("v")).await;
    let other = cluster.connect(1).await;
    cluster.until_done(&other, "INSERT INTO v VALUES (1)").await;
    assert_eq!(count(&cluster, &other, "keyed").await, "600");
    assert_eq!(count(&cluster, &other, "u").await, "1");
    assert_eq!(failure(&client, "CREATE TABLE u (id BIGINT, PRIMARY KEY (id))").await.0, "42P07");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_everything_is_killed_at_once_all_rows_are_there_after_the_start() {
    let mut cluster = Cluster::start(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    client.batch_execute(TABLES).await.unwrap();
    let mut load = Load::start(&cluster).await;
    load.until_more(&cluster, 300).await;
    for name in cluster.names() {
        cluster.kill(&name);
    }
    load.end().await;
    for name in cluster.names() {
        cluster.start_again(&name);
    }
    let client = cluster.connect(0).await;
    cluster.until_in_order(&client, 3).await;
    load.verify(&cluster, &client).await;
    cluster.until_live(3).await;
    write(&client, "keyed", 1_000_000..1_000_100).await.unwrap();
    client.batch_execute("CREATE TABLE u (id BIGINT, PRIMARY KEY (id))").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_two_of_three_datanodes_gone_writes_fail_and_can_be_tried_again() {
    let mut cluster = Cluster::start(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    client.batch_execute(TABLES).await.unwrap();
    write(&client, "keyed", 0..100).await.unwrap();
    cluster.kill("datanode2");
    cluster.kill("datanode3");
    let error = client.batch_execute("INSERT INTO keyed VALUES (1000, 1)").await.unwrap_err();
    let error = error.as_db_error().unwrap_or_else(|| panic!("{error}")).clone();
    let code = error.code().code();
    assert!(["57P03", "40001"].contains(&code), "{error:?}");
    let text = format!("{} {}", error.message(), error.detail().unwrap_or_default());
    assert!(text.contains("partition"), "{error:?}");
    eprintln!("{code}: {} / {:?} / {:?}", error.message(), error.detail(), error.hint());
    cluster.start_again("datanode3");
    cluster.until_done(&client, "INSERT INTO keyed VALUES (1000, 2)").await;
    write(&client, "keyed", 100..200).await.unwrap();
    let expected: BTreeSet<i64> = (0..200).chain([1000]).collect();
    assert_eq!(ids_of(&cluster, &client, "keyed").await, expected);
    cluster.start_again("datanode2");
    cluster.until_in_order(&client, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_datanode_that_stands_still_holds_writes_up_for_seconds_and_loses_nothing() {
    let cluster = Cluster::start(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    client.batch_execute(TABLES).await.unwrap();
    let mut load = Load::start(&cluster).await;
    load.until_more(&cluster, 200).await;
    let victim = format!("datanode{}", leading_node(&cluster, &client, "keyed").await);
    cluster.signal(&victim, "STOP");
    let stopped = Instant::now();
    load.until_more(&cluster, 200).await;
    let took = stopped.elapsed();
    cluster.signal(&victim, "CONT");
    load.until_more(&cluster, 200).await;
    load.end().await;
    let longest = *load.longest.lock().unwrap();
    eprintln!("writes went on after {took:?}; nothing was taken for {longest:?}");
    assert!(longest < OUTAGE_MAX, "nothing was taken for {longest:?}");
    cluster.until_in_order(&client, 3).await;
    load.verify(&cluster, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_and_leaders_go_where_operators_want_them_and_rows_stay() {
    let mut cluster = Cluster::start(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    client.batch_execute(TABLES).await.unwrap();
    let mut load = Load::start(&cluster).await;
    load.until_more(&cluster, 100).await;
    cluster.add_datanode(4).await;
    cluster.until_live(4).await;

    cluster.until_done(&client, "ADMIN drain_node(1)").await;
    let on = async |node: u64| {
        count(&cluster, &client, &format!("sys.replicas WHERE node = {node}")).await
    };
    cluster.until("node 1 is empty", async || on(1).await == "0").await;
    cluster.until("node 4 has all", async || on(4).await == "6").await;
    load.until_more(&cluster, 100).await;
    cluster.until_done(&client, "ADMIN undrain_node(1)").await;
    // Some of what it had comes back: the nodes are filled evenly.
    cluster.until("node 1 has some", async || on(1).await == "4").await;

    let all = async || cluster.replicas(&client, "keyed").await.len() == 9;
    cluster.until("all replicas are there", all).await;
    let before = cluster.replicas(&client, "keyed").await;
    let partition = before[0].0;
    let has = |all: &[(u64, u64)], node: u64| all.contains(&(partition, node));
    let from = (1..=4).find(|node| has(&before, *node)).unwrap();
    let to = (1..=4).find(|node| !has(&before, *node)).unwrap();
    let order = format!("ADMIN move_replica({partition}, {from}, {to})");
    cluster.until_done(&client, &order).await;
    cluster
        .until("the replica is there", async || {
            let now = cluster.replicas(&client, "keyed").await;
            has(&now, to)
        })
        .await;
    cluster.until_done(&client, &format!("ADMIN transfer_leader({partition}, {to})")).await;
    let leader =
        format!("SELECT node FROM sys.replicas WHERE partition = {partition} AND role = 'leader'");
    cluster
        .until("it leads", async || {
            rows(&client, &leader).await.is_ok_and(|rows| rows.iter().any(|r| number(r, 0) == to))
        })
        .await;

    for (factor, replicas) in [(1, 3), (3, 9)] {
        let sql = format!("ALTER TABLE appended SET ('replication_factor' = '{factor}')");
        cluster.until_done(&client, &sql).await;
        cluster
            .until("there are as many replicas", async || {
                cluster.replicas(&client, "appended").await.len() == replicas
            })
            .await;
        load.until_more(&cluster, 50).await;
    }
    load.end().await;
    cluster.until_in_order(&client, 3).await;
    load.verify(&cluster, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_data_directory_that_was_wiped_comes_back_as_another_node_and_partitions_get_whole() {
    let mut cluster = Cluster::start(15).await;
    let client = cluster.connect(0).await;
    client.batch_execute(TABLES).await.unwrap();
    let mut load = Load::start(&cluster).await;
    load.until_more(&cluster, 200).await;
    cluster.kill("datanode2");
    cluster.wipe("datanode2");
    cluster.start_again("datanode2");
    cluster.until_ready("datanode2").await;
    cluster
        .until("the new node has the replicas", async || {
            cluster.replicas(&client, "keyed").await.iter().filter(|(_, node)| *node == 4).count()
                == 3
        })
        .await;
    load.until_more(&cluster, 50).await;
    load.end().await;
    cluster.until_in_order(&client, 3).await;
    // What was made anew is what is read when the others are gone.
    load.verify(&cluster, &client).await;
    let dead = "SELECT node FROM sys.nodes WHERE NOT live";
    cluster
        .until("all but the one that was wiped live", async || {
            let dead = cluster.query(&client, dead).await;
            dead.iter().map(|row| number(row, 0)).collect::<Vec<_>>() == [2]
        })
        .await;
    cluster.kill("datanode1");
    let found = async || rows(&client, "SELECT id FROM keyed").await.map(|rows| rows.len());
    let acked = load.keyed.lock().unwrap().len();
    cluster.until("rows can be read", async || found().await.is_ok_and(|n| n >= acked)).await;
    load.verify(&cluster, &client).await;
}

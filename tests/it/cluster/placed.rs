//! Rows of tables are placed otherwise while they are written and read, nodes are killed, and a frontend is cut off from
//! meta: whoever gets an answer gets all rows.
//!
//! `PARTITA_PLACED` says how many tables there are to be, `PARTITA_SEED` repeats who is killed when.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_postgres::Client;

use super::NEVER_LOST;
use super::harness::{Cluster, number, rows};
use super::splits::{Work, from_environment, seeded};

/// Ways to some addresses that can be cut, all at once.
struct Ways {
    open: watch::Sender<bool>,
    addresses: Vec<String>,
}

impl Ways {
    async fn to(addresses: &str) -> Self {
        let mut ways = Self { open: watch::Sender::new(true), addresses: Vec::new() };
        for to in addresses.split(',') {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            ways.addresses.push(listener.local_addr().unwrap().to_string());
            tokio::spawn(lead(listener, to.to_owned(), ways.open.subscribe()));
        }
        ways
    }
}

/// Leads whoever comes to an address, as long as the way is open.
async fn lead(listener: TcpListener, to: String, open: watch::Receiver<bool>) {
    while let Ok((mut from, _)) = listener.accept().await {
        let (to, mut open) = (to.clone(), open.clone());
        tokio::spawn(async move {
            if !*open.borrow_and_update() {
                return;
            }
            let Ok(mut there) = TcpStream::connect(&to).await else { return };
            tokio::select! {
                _ = copy_bidirectional(&mut from, &mut there) => {}
                _ = open.wait_for(|open| !open) => {}
            }
        });
    }
}

async fn place(client: &Client, table: &str) -> Result<(), tokio_postgres::Error> {
    let sql = format!("ALTER TABLE {table} PARTITION BY HASH (id) PARTITIONS 4");
    client.batch_execute(&sql).await
}

fn create(table: &str) -> String {
    format!(
        "CREATE TABLE {table} (id BIGINT, ts TIMESTAMP(3), v BIGINT, PRIMARY KEY (id, ts), TIME INDEX (ts)) \
         SPLIT AT ((500000)) WITH ('append_mode' = 'true', 'auto_partitioning_by_load' = 'disabled')"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frontend_that_is_cut_off_from_meta_gives_no_answer_that_lacks_rows_placed_otherwise() {
    let mut cluster = Cluster::start(NEVER_LOST).await;
    let ways = Ways::to(cluster.metas()).await;
    let number_of = cluster.add_frontend(&ways.addresses.join(","));
    let (client, apart) = (cluster.connect(0).await, cluster.connect(number_of).await);
    client.batch_execute(&create("t")).await.unwrap();
    cluster.until_in_order(&client, 3).await;
    client.batch_execute("INSERT INTO t VALUES (1, 1000, 1), (900000, 1000, 1)").await.unwrap();
    let count = "SELECT count(*) FROM t";
    let all = |found: u64| {
        async move |client: &Client| {
            rows(client, count).await.is_ok_and(|rows| number(&rows[0], 0) == found)
        }
    };
    cluster.until("the third frontend knows the table", async || all(2)(&apart).await).await;
    ways.open.send_replace(false);
    // What it knows it goes on answering from.
    let found = cluster.query(&apart, count).await;
    assert_eq!(number(&found[0], 0), 2);
    apart.batch_execute("INSERT INTO t VALUES (2, 1000, 1)").await.unwrap();
    place(&client, "t").await.unwrap();
    client.batch_execute("INSERT INTO t VALUES (3, 1000, 1), (900001, 1000, 1)").await.unwrap();
    assert_eq!(number(&cluster.query(&client, count).await[0], 0), 5);
    // One of them is in the old partitions only, and one in none of them.
    for asked in [count, "SELECT count(*) FROM t WHERE id = 1", "SELECT v FROM t WHERE id = 3"] {
        apart.batch_execute("SET statement_timeout = '3s'").await.unwrap();
        let answer = rows(&apart, asked).await;
        assert!(answer.is_err(), "{asked} gave {answer:?} to whom is cut off");
    }
    ways.open.send_replace(true);
    cluster.until("it learns of the rest", async || all(5)(&apart).await).await;
    apart.batch_execute("INSERT INTO t VALUES (4, 1000, 1)").await.unwrap();
    assert_eq!(number(&cluster.query(&client, count).await[0], 0), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_is_ever_wrong_while_rows_are_placed_otherwise_and_datanodes_are_killed() {
    let (tables, mut random) = (from_environment("PARTITA_PLACED", 4), seeded());
    let mut cluster = Cluster::start(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    let mut reads = 0;
    for round in 0..tables.div_ceil(2) {
        let names = [format!("first{round}"), format!("second{round}")];
        for name in &names {
            client.batch_execute(&create(name)).await.unwrap();
        }
        cluster.until_in_order(&client, 3).await;
        let work = Work::new([(&names[0], true), (&names[1], true)]);
        let mut clients = Vec::new();
        // Rows are written through one frontend and read through the other.
        for frontend in [0, 1, 1, 0] {
            clients.push(cluster.connect(frontend).await);
        }
        let tasks = work.begin(clients.try_into().ok().unwrap());
        for name in &names {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let victim = format!("datanode{}", 1 + random.below(3));
            let placed = cluster.connect(1).await;
            let changed = async {
                // A node that is away may keep it from being done in time; then it goes on without whoever asked.
                let sql =
                    format!("SELECT count(*) FROM sys.tables WHERE \"table\" = '{name}$former'");
                while rows(&placed, &sql).await.map_or(0, |found| number(&found[0], 0)) == 0 {
                    if let Err(error) = place(&placed, name).await {
                        eprintln!("{name}: {error:?}");
                        tokio::time::sleep(Duration::from_millis(200)).await;
                    }
                }
            };
            let kill = async {
                tokio::time::sleep(Duration::from_millis(random.below(300))).await;
                cluster.kill(&victim);
                tokio::time::sleep(Duration::from_millis(200 + random.below(2000))).await;
                cluster.start_again(&victim);
            };
            tokio::join!(changed, kill);
            work.check(|| cluster.logs());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        work.end(tasks).await;
        cluster.until_in_order(&client, 3).await;
        work.check(|| cluster.logs());
        for frontend in 0..2 {
            work.verify(&cluster.connect(frontend).await).await;
        }
        reads += work.reads.load(Ordering::SeqCst);
    }
    eprintln!("{reads} reads");
    assert!(reads > 10 * tables, "{reads} reads");
}

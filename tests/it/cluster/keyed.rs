//! Tables without a key that get one while they are written, and processes are killed: no acknowledged row is lost, and
//! none is there twice.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::harness::{Cluster, Entrance, PATIENCE, number};
use super::{NEVER_LOST, leading_node};

const WRITERS: u64 = 3;
/// Pause between two rows of a writer, and before a statement is sent again.
const PAUSE: Duration = Duration::from_millis(5);

/// Numbers of the rows that were acknowledged, and of those that may or may not be there.
#[derive(Default)]
struct Sent {
    acknowledged: BTreeSet<u64>,
    open: BTreeSet<u64>,
}

/// Inserts rows with numbers of its own until it is told to stop.
async fn write(
    entrance: Entrance,
    table: String,
    writer: u64,
    sent: Arc<Mutex<Sent>>,
    stop: Arc<AtomicBool>,
) {
    let mut number = writer;
    let mut client: Option<Client> = None;
    while !stop.load(Ordering::SeqCst) {
        let connected: &Client = match &mut client {
            Some(client) => client,
            None => match entrance.connect().await {
                Ok(connected) => client.insert(connected),
                Err(_) => {
                    tokio::time::sleep(PAUSE * 10).await;
                    continue;
                }
            },
        };
        number += WRITERS;
        let sql = format!("INSERT INTO {table} VALUES ({number}, 'row {number}')");
        let outcome = connected.batch_execute(&sql).await;
        let is_closed = connected.is_closed();
        {
            let mut sent = sent.lock().unwrap();
            match outcome {
                Ok(()) => sent.acknowledged.insert(number),
                Err(_) => sent.open.insert(number),
            };
        }
        if is_closed {
            client = None;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Gives a table its key, however often that takes.
async fn add_key(cluster: &Cluster, table: &str) {
    let deadline = Instant::now() + PATIENCE * 3;
    let sql = format!("ALTER TABLE {table} ADD PRIMARY KEY (id)");
    loop {
        let failure = match cluster.entrance(0).connect().await {
            Ok(client) => match client.batch_execute(&sql).await {
                Ok(()) => return,
                Err(error) => error.as_db_error().map_or(error.to_string(), ToString::to_string),
            },
            Err(error) => error.to_string(),
        };
        // An answer that was lost.
        if failure.contains("multiple primary keys") {
            return;
        }
        assert!(Instant::now() < deadline, "{sql}: {failure}\n{}", cluster.logs());
        tokio::time::sleep(PAUSE * 20).await;
    }
}

/// Checks that a table has each acknowledged row once, and no row that nobody sent.
async fn verify(cluster: &Cluster, client: &Client, table: &str, sent: &Mutex<Sent>) {
    let found = cluster.query(client, &format!("SELECT id FROM {table}")).await;
    let numbers: Vec<u64> = found.iter().map(|row| number(row, 0)).collect();
    let distinct: BTreeSet<u64> = numbers.iter().copied().collect();
    assert_eq!(distinct.len(), numbers.len(), "rows are there twice\n{}", cluster.logs());
    let sent = sent.lock().unwrap();
    let lost: Vec<_> = sent.acknowledged.difference(&distinct).collect();
    assert!(lost.is_empty(), "{lost:?} of {table} were lost\n{}", cluster.logs());
    let is_sent = |number: &u64| sent.acknowledged.contains(number) || sent.open.contains(number);
    assert!(distinct.iter().all(is_sent), "{table} has rows that nobody sent");
    eprintln!("{table}: {} rows acknowledged, {} open", sent.acknowledged.len(), sent.open.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_gets_its_first_key_and_loses_no_row_that_is_written_meanwhile() {
    let mut cluster = Cluster::start(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    for victim in ["none", "datanode", "frontend", "meta"] {
        let table = format!("notes_{victim}");
        client
            .batch_execute(&format!("CREATE TABLE {table} (id BIGINT, note STRING)"))
            .await
            .unwrap();
        cluster.until_in_order(&client, 3).await;
        let (sent, stop) = (Arc::<Mutex<Sent>>::default(), Arc::<AtomicBool>::default());
        let writers: Vec<JoinHandle<()>> = (0..WRITERS)
            .map(|writer| {
                let entrance = cluster.entrance(usize::try_from(writer % 2).unwrap());
                let shared = (Arc::clone(&sent), Arc::clone(&stop));
                tokio::spawn(write(entrance, table.clone(), writer, shared.0, shared.1))
            })
            .collect();
        cluster
            .until("rows are written", async || sent.lock().unwrap().acknowledged.len() > 100)
            .await;
        let name = match victim {
            "datanode" => {
                Some(format!("datanode{}", leading_node(&cluster, &client, &table).await))
            }
            "frontend" => Some("frontend2".to_owned()),
            "meta" => Some(cluster.leading_meta().await),
            _ => None,
        };
        if let Some(name) = &name {
            cluster.kill(name);
        }
        add_key(&cluster, &table).await;
        if let Some(name) = &name {
            cluster.start_again(name);
            if victim != "frontend" {
                cluster.until_ready(name).await;
            }
        }
        let before = sent.lock().unwrap().acknowledged.len();
        cluster
            .until("rows are written to the table with the key", async || {
                sent.lock().unwrap().acknowledged.len() > before + 50
            })
            .await;
        stop.store(true, Ordering::SeqCst);
        for writer in writers {
            writer.await.unwrap();
        }
        verify(&cluster, &client, &table, &sent).await;
    }
}

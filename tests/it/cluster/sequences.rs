//! Numbers of a sequence that many clients of several frontends get while processes are killed: none comes twice.
//!
//! A client keeps the numbers that it was told; of a statement whose answer was lost it keeps none. So a number that two
//! clients have was given twice.
//!
//! `PARTITA_NUMBERS` says how many statements each client sends.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::NEVER_LOST;
use super::harness::{Cluster, Entrance, PATIENCE, number, rows};

const WRITERS: usize = 32;
/// Time before a statement that failed is sent again.
const PAUSE: Duration = Duration::from_millis(20);

fn statements() -> usize {
    let text = std::env::var("PARTITA_NUMBERS").ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(100)
}

/// Gets the number of a new row, and another one.
async fn take(client: &Client, writer: usize) -> Result<[u64; 2], tokio_postgres::Error> {
    let insert = format!("INSERT INTO numbered (writer) VALUES ({writer}) RETURNING id");
    let inserted = rows(client, &insert).await?;
    let drawn = rows(client, "SELECT nextval('numbered_id_seq')").await?;
    Ok([number(&inserted[0], 0), number(&drawn[0], 0)])
}

/// Takes numbers, whatever happens to the cluster.
async fn take_all(entrance: Entrance, writer: usize, times: usize) -> Vec<u64> {
    let mut client = None;
    let mut taken = Vec::new();
    for _ in 0..times {
        let started = Instant::now();
        loop {
            let connected: &Client = match &mut client {
                Some(client) => client,
                None => match entrance.connect().await {
                    Ok(connected) => client.insert(connected),
                    Err(error) => {
                        assert!(started.elapsed() < PATIENCE, "{error}");
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                },
            };
            match take(connected, writer).await {
                Ok(numbers) => {
                    taken.extend(numbers);
                    break;
                }
                Err(error) => {
                    assert!(started.elapsed() < PATIENCE, "{error:?}");
                    if connected.is_closed() {
                        client = None;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
    taken
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_number_comes_twice_while_frontends_metas_and_datanodes_are_killed() {
    let times = statements();
    let mut cluster = Cluster::start(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    let create = "CREATE TABLE numbered (id BIGSERIAL PRIMARY KEY, writer INT) \
                  PARTITION BY HASH (id) PARTITIONS 4";
    client.batch_execute(create).await.unwrap();
    drop(client);
    let writers: Vec<JoinHandle<Vec<u64>>> = (0..WRITERS)
        .map(|writer| tokio::spawn(take_all(cluster.entrance(writer % 2), writer, times)))
        .collect();
    for round in 0..2 {
        let leading = cluster.leading_meta().await;
        for name in ["frontend2", leading.as_str(), "datanode1", "frontend1"] {
            tokio::time::sleep(Duration::from_millis(500 + 200 * round)).await;
            cluster.kill(name);
            tokio::time::sleep(Duration::from_secs(1)).await;
            cluster.start_again(name);
        }
    }
    let mut seen = BTreeSet::new();
    for writer in writers {
        for number in writer.await.unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs())) {
            assert!(seen.insert(number), "{number} was given twice");
        }
    }
    assert_eq!(seen.len(), 2 * times * WRITERS);
    // No row replaced another one: each has a number of its own.
    let client = cluster.connect(0).await;
    let found = cluster.query(&client, "SELECT count(*) FROM numbered").await;
    assert!(number(&found[0], 0) >= (times * WRITERS) as u64);
}

//! Counters that many clients add to while partitions are split and processes are killed: each addition counts once.
//!
//! A client that was not told whether its statement took effect sends it again with a condition under which it takes
//! effect once. So in the end the counters are exactly what was added.
//!
//! `PARTITA_UPDATES` says how often each client adds.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::NEVER_LOST;
use super::harness::{Cluster, Entrance, PATIENCE, number, rows};
use crate::server::Server;

const WRITERS: usize = 32;
/// Few counters, so that writers meet.
const COUNTERS: usize = 3;
/// Time before a statement that failed is sent again.
const PAUSE: Duration = Duration::from_millis(20);

fn additions() -> usize {
    let text = std::env::var("PARTITA_UPDATES").ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(20)
}

/// The table: a counter, and for each writer the number of its last addition.
fn create() -> String {
    let columns: Vec<String> =
        (0..WRITERS).map(|writer| format!("w{writer} INT DEFAULT 0")).collect();
    format!(
        "CREATE TABLE counters (id INT PRIMARY KEY, n INT, {}) \
         WITH ('auto_partitioning_by_load' = 'disabled'); \
         INSERT INTO counters (id, n) VALUES (0, 0), (1, 0), (2, 0)",
        columns.join(", ")
    )
}

/// Adds one to a counter, unless that addition took effect before.
async fn add(client: &Client, writer: usize, addition: usize) -> Result<(), tokio_postgres::Error> {
    let id = (writer + addition) % COUNTERS;
    let sql = format!(
        "UPDATE counters SET n = n + 1, w{writer} = {addition} \
         WHERE id = {id} AND w{writer} < {addition}"
    );
    let started = Instant::now();
    loop {
        match client.execute(sql.as_str(), &[]).await {
            Ok(count) => {
                assert!(count <= 1, "{count} rows have one key");
                return Ok(());
            }
            // On a machine that is busy with other tests a writer may wait for its turn for too long: nothing is changed then.
            Err(error)
                if error.code() == Some(&SqlState::T_R_SERIALIZATION_FAILURE)
                    && started.elapsed() < PATIENCE => {}
            Err(error) => return Err(error),
        }
    }
}

/// Adds so often to a cluster, whatever happens to it.
async fn add_to_cluster(entrance: Entrance, writer: usize, times: usize) {
    let mut client = None;
    for addition in 1..=times {
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
            match add(connected, writer, addition).await {
                Ok(()) => break,
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
}

/// Adds so often, or until the process is killed.
async fn add_to_process(client: Client, writer: usize, times: usize) {
    for addition in 1..=times {
        if let Err(error) = add(&client, writer, addition).await {
            // The connection is closed a moment after its statements have failed.
            tokio::time::sleep(PAUSE).await;
            assert!(client.is_closed(), "{error:?}");
            return;
        }
    }
}

/// Checks the counters after every writer has added so often.
async fn verify(client: &Client, times: usize) {
    let found = rows(client, "SELECT sum(n), count(*) FROM counters").await.unwrap();
    let found = (number(&found[0], 0), number(&found[0], 1));
    assert_eq!(found, ((times * WRITERS) as u64, COUNTERS as u64));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_of_many_writers_are_exact_while_partitions_are_split_and_datanodes_are_killed() {
    let times = additions();
    let mut cluster = Cluster::start(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    client.batch_execute(&create()).await.unwrap();
    cluster.until_in_order(&client, 3).await;
    let writers: Vec<JoinHandle<()>> = (0..WRITERS)
        .map(|writer| tokio::spawn(add_to_cluster(cluster.entrance(writer % 2), writer, times)))
        .collect();
    for (node, boundary) in [(1, Some(2)), (2, Some(1)), (3, None)] {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if let Some(boundary) = boundary {
            let sql = format!("ALTER TABLE counters SPLIT AT (({boundary}))");
            cluster.until_done(&client, &sql).await;
        }
        let name = format!("datanode{node}");
        cluster.kill(&name);
        tokio::time::sleep(Duration::from_secs(2)).await;
        cluster.start_again(&name);
    }
    for writer in writers {
        writer.await.unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
    }
    verify(&client, times).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more: tests/run --long"]
async fn counters_of_many_writers_are_exact_though_their_process_is_killed_again_and_again() {
    const KILLS: usize = 3;
    let times = additions() * KILLS;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    for round in 0..=KILLS {
        let server = Server::start(&data);
        if round == 0 {
            server.connect().await.batch_execute(&create()).await.unwrap();
        }
        // Writers begin anew: what took effect before does not count again.
        let mut writers = Vec::new();
        for writer in 0..WRITERS {
            let client = server.connect().await;
            writers.push(tokio::spawn(add_to_process(client, writer, times)));
        }
        if round < KILLS {
            tokio::time::sleep(Duration::from_secs(1)).await;
            server.kill();
        }
        for writer in writers {
            writer.await.unwrap();
        }
    }
    let server = Server::start(&data);
    verify(&server.connect().await, times).await;
}

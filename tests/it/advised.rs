//! The advice against a hot partition, as a server prints it, followed while writers go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::server::{Server, one};

const WRITERS: usize = 8;
/// How long a verdict may take: a partition is hot after 8 of 10 seconds.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long writers go on after the statements.
const AFTER: Duration = Duration::from_secs(2);

/// Keys that were acknowledged.
type Acknowledged = Vec<i64>;

/// Writers, each with a connection, that insert one row a statement behind all others.
async fn writers(
    server: &Server,
    table: &'static str,
    stop: &Arc<AtomicBool>,
) -> JoinSet<Acknowledged> {
    let next = Arc::new(AtomicI64::new(1));
    let mut tasks = JoinSet::new();
    for writer in 0..WRITERS {
        let client = server.connect().await;
        let (next, stop) = (Arc::clone(&next), Arc::clone(stop));
        tasks.spawn(async move {
            let mut acknowledged = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let key = next.fetch_add(1, Ordering::Relaxed);
                let sql = format!("INSERT INTO {table} VALUES ({key}, {writer}, 0.5)");
                match client.batch_execute(&sql).await {
                    Ok(()) => acknowledged.push(key),
                    // A write may fail, such as one at its deadline; it is not counted.
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
            acknowledged
        });
    }
    tasks
}

/// The first column of a query's rows.
async fn column(client: &Client, sql: &str) -> Vec<String> {
    let rows = client.simple_query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let row = |message: SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    };
    rows.into_iter().filter_map(row).collect()
}

/// What `sys.hot_partitions` advises of a table, once it does.
async fn advice(client: &Client, table: &str) -> String {
    let sql = format!(
        "SELECT advice FROM sys.hot_partitions WHERE \"table\" = '{table}' AND verdict = 'MOVING_RIGHT'"
    );
    let started = Instant::now();
    loop {
        if let Some(advice) = column(client, &sql).await.pop() {
            return advice;
        }
        assert!(started.elapsed() < PATIENCE, "nothing is said of {table}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The keys of a table, in order.
async fn keys(client: &Client, rows: &str) -> Vec<i64> {
    let sql = format!("SELECT CAST(ts AS BIGINT) FROM ({rows}) AS r ORDER BY 1");
    column(client, &sql).await.iter().map(|key| key.parse().unwrap()).collect()
}

/// Makes a table whose rows come in the order of its key, follows what is advised of it beside its writers, and counts.
async fn follow(server: &Server, table: &'static str, options: &str) -> String {
    let client = server.connect().await;
    let made = format!(
        "CREATE TABLE {table} (ts TIMESTAMP(3) TIME INDEX, userid BIGINT, v DOUBLE, PRIMARY KEY (ts, userid)) \
         WITH ({options})"
    );
    client.batch_execute(&made).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let tasks = writers(server, table, &stop).await;
    let advice = advice(&client, table).await;
    client.batch_execute(&advice).await.unwrap_or_else(|error| panic!("{advice}: {error:?}"));
    tokio::time::sleep(AFTER).await;
    let rekeying = format!(
        "SELECT state FROM sys.rekeyings WHERE \"table\" = '{table}' AND state <> 'retired'"
    );
    let started = Instant::now();
    while !column(&client, &rekeying).await.is_empty() {
        assert!(started.elapsed() < PATIENCE, "{table} is not re-keyed");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut acknowledged: Vec<i64> = tasks.join_all().await.into_iter().flatten().collect();
    acknowledged.sort_unstable();
    assert!(acknowledged.len() > 100, "{table}: {} rows", acknowledged.len());
    let kept = keys(&client, &format!("SELECT ts FROM {table}")).await;
    assert!(kept.is_sorted_by(|a, b| a < b), "a row is in {table} twice");
    let lost: Vec<_> = acknowledged.iter().filter(|key| kept.binary_search(key).is_err()).collect();
    assert!(lost.is_empty(), "{table}: {lost:?} of {}", acknowledged.len());
    advice
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_go_on_while_the_advice_of_a_server_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    // A partition takes few rows a second, so that eight writers keep it busy.
    let server = Server::try_start(&dir.path().join("data"), &["--partition-rate", "150"])
        .unwrap_or_else(|log| panic!("the server did not start:\n{log}"));
    let (appended, last_row, last_non_null) = tokio::join!(
        follow(&server, "appended", "'append_mode' = 'true'"),
        follow(&server, "last_row", "'merge_mode' = 'last_row'"),
        follow(&server, "last_non_null", "'merge_mode' = 'last_non_null'"),
    );
    let starts = |advice: &str, begins: &[&str]| begins.iter().any(|it| advice.starts_with(it));
    let placed = ["ALTER TABLE appended PARTITION BY HASH", "ALTER TABLE appended PRIMARY KEY"];
    assert!(starts(&appended, &placed), "{appended}");
    for (advice, table) in [(last_row, "last_row"), (last_non_null, "last_non_null")] {
        let begins = [
            format!("ALTER TABLE {table} PRIMARY KEY ("),
            format!("ALTER TABLE {table} PARTITION BY HASH ("),
            format!("ALTER TABLE {table} SPLIT AT ("),
        ];
        assert!(begins.iter().any(|begin| advice.starts_with(begin)), "{advice}");
        assert!(!advice.contains("RENAME") && !advice.contains("DROP"), "{advice}");
    }
    if appended.starts_with("ALTER TABLE appended PARTITION") {
        let client = server.connect().await;
        let partitions = "SELECT count(*) > 1 FROM sys.partitions WHERE \"table\" = 'appended'";
        assert_eq!(one(&client, partitions).await, "t");
    }
    assert!(server.stop());
}

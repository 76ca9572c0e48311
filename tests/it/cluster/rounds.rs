//! Rounds of an UPDATE, an INSERT ... ON CONFLICT and a number of a sequence by many clients of two frontends, while
//! partitions are split and merged and processes of every role are killed: in the end all counters are exact.
//!
//! A statement without an answer is sent again, under a condition by which it takes effect once; of a sequence a client
//! keeps the numbers that it was told.
//!
//! `PARTITA_ROUNDS` says how many rounds all clients make together.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::NEVER_LOST;
use super::harness::{Cluster, Entrance, PATIENCE, Row, number, rows};

const WRITERS: usize = 32;
/// Number of counters: fewer than writers, so that these meet, and no divisor of their number.
const COUNTERS: usize = 7;
/// Time before a statement that failed is sent again.
const PAUSE: Duration = Duration::from_millis(20);

/// A client that sends a statement until it is answered.
struct Writer {
    entrance: Entrance,
    client: Option<Client>,
    /// Statements that were sent and not answered.
    unanswered: usize,
}

impl Writer {
    /// The rows of a statement.
    async fn answer(&mut self, sql: &str) -> Vec<Row> {
        let started = Instant::now();
        loop {
            let error = match self.client.take() {
                None => match self.entrance.connect().await {
                    Ok(client) => {
                        self.client = Some(client);
                        continue;
                    }
                    Err(error) => error,
                },
                Some(client) => {
                    let answer = rows(&client, sql).await;
                    if !client.is_closed() {
                        self.client = Some(client);
                    }
                    match answer {
                        Ok(rows) => return rows,
                        Err(error) => {
                            self.unanswered += 1;
                            error
                        }
                    }
                }
            };
            assert!(started.elapsed() < PATIENCE, "{sql}: {error:?}");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn rounds() -> usize {
    let text = std::env::var("PARTITA_ROUNDS").ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(10_000)
}

/// The tables of counters, with the last round of each writer in each row, and one whose keys are numbers of a sequence.
fn create() -> String {
    let columns: Vec<String> =
        (0..WRITERS).map(|writer| format!("w{writer} INT DEFAULT 0")).collect();
    let columns = columns.join(", ");
    let counters: Vec<String> = (0..COUNTERS).map(|id| format!("({id}, 0)")).collect();
    let by_hand = "WITH ('auto_partitioning_by_load' = 'disabled')";
    format!(
        "CREATE TABLE updated (id INT PRIMARY KEY, n INT, {columns}) {by_hand}; \
         CREATE TABLE upserted (id INT PRIMARY KEY, n INT, {columns}) {by_hand}; \
         CREATE TABLE numbered (id BIGSERIAL PRIMARY KEY, writer INT) \
         PARTITION BY HASH (id) PARTITIONS 4; \
         INSERT INTO updated (id, n) VALUES {}",
        counters.join(", ")
    )
}

/// Counter of a round.
fn counter(round: usize) -> usize {
    round % COUNTERS
}

/// The rounds of a writer; they begin with 1.
fn rounds_of(writer: usize, total: usize) -> impl Iterator<Item = usize> {
    (1..=total).filter(move |round| round % WRITERS == writer)
}

/// Makes the rounds of a writer; returns its numbers and how many statements it repeated.
async fn work(mut me: Writer, writer: usize, total: usize) -> (Vec<u64>, usize) {
    let mut numbers = Vec::new();
    for round in rounds_of(writer, total) {
        let (id, last) = (counter(round), format!("w{writer}"));
        let update = format!(
            "UPDATE updated SET n = n + 1, {last} = {round} WHERE id = {id} AND {last} < {round}"
        );
        me.answer(&update).await;
        let upsert = format!(
            "INSERT INTO upserted AS u (id, n, {last}) VALUES ({id}, 1, {round}) ON CONFLICT (id) \
             DO UPDATE SET n = u.n + 1, {last} = {round} WHERE u.{last} < {round}"
        );
        me.answer(&upsert).await;
        let insert = format!("INSERT INTO numbered (writer) VALUES ({writer}) RETURNING id");
        let inserted = me.answer(&insert).await;
        numbers.push(number(&inserted[0], 0));
    }
    (numbers, me.unanswered)
}

/// Splits both tables of counters, or merges the first two partitions of each; how many of these statements succeeded.
async fn reshape(cluster: &Cluster, turn: usize) -> usize {
    let client = cluster.connect(turn % 2).await;
    let mut done = 0;
    for table in ["updated", "upserted"] {
        let sql = if turn.is_multiple_of(2) {
            let boundary = 1 + turn / 2 % (COUNTERS - 1);
            format!("ALTER TABLE {table} SPLIT AT (({boundary}))")
        } else {
            let partitions = format!(
                "SELECT start_key, partition FROM sys.partitions WHERE \"table\" = '{table}'"
            );
            let mut found = rows(&client, &partitions).await.unwrap_or_default();
            found.sort_by_key(|row| row[0].clone().unwrap_or_default());
            if found.len() < 2 {
                continue;
            }
            let [left, right] = [0, 1].map(|place| number(&found[place], 1));
            format!("ALTER TABLE {table} MERGE PARTITIONS ({left}, {right})")
        };
        // It fails where the boundary is there already, and when its process has just been killed.
        match client.batch_execute(&sql).await {
            Ok(()) => done += 1,
            Err(error) => eprintln!("{sql}: {error}"),
        }
    }
    done
}

/// Checks the counters of a table: each has the number of its rounds, and each writer its last round.
async fn verify(cluster: &Cluster, client: &Client, table: &str, total: usize) {
    let columns: Vec<String> = (0..WRITERS).map(|writer| format!("w{writer}")).collect();
    let sql = format!("SELECT id, n, {} FROM {table} ORDER BY id", columns.join(", "));
    let mut expected = vec![vec![0; 2 + WRITERS]; COUNTERS];
    for (id, row) in expected.iter_mut().enumerate() {
        row[0] = id as u64;
    }
    for round in 1..=total {
        let row = &mut expected[counter(round)];
        row[1] += 1;
        row[2 + round % WRITERS] = round as u64;
    }
    let found = cluster.query(client, &sql).await;
    let found: Vec<Vec<u64>> = found
        .iter()
        .map(|row| (0..row.len()).map(|column| number(row, column)).collect())
        .collect();
    assert_eq!(found, expected, "{table}\n{}", cluster.logs());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more: tests/run --long"]
async fn counters_are_exact_after_ten_thousand_rounds_of_32_writers_with_kills_and_splits() {
    let total = rounds();
    let mut cluster = Cluster::start(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    client.batch_execute(&create()).await.unwrap();
    cluster.until_in_order(&client, 3).await;
    drop(client);
    let writers: Vec<JoinHandle<(Vec<u64>, usize)>> = (0..WRITERS)
        .map(|writer| {
            let entrance = cluster.entrance(writer % 2);
            let me = Writer { entrance, client: None, unanswered: 0 };
            tokio::spawn(work(me, writer, total))
        })
        .collect();
    let (mut turns, mut reshapes) = (0, 0);
    while !writers.iter().all(JoinHandle::is_finished) {
        reshapes += reshape(&cluster, turns).await;
        let victim = match turns % 6 {
            3 => cluster.leading_meta().await,
            4 => "frontend1".to_owned(),
            5 => "frontend2".to_owned(),
            node => format!("datanode{}", node + 1),
        };
        cluster.kill(&victim);
        tokio::time::sleep(Duration::from_secs(1)).await;
        cluster.start_again(&victim);
        cluster.until_ready(&victim).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        turns += 1;
    }
    let mut given = BTreeMap::new();
    let mut repeated = 0;
    for (writer, work) in writers.into_iter().enumerate() {
        let (numbers, unanswered) =
            work.await.unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
        repeated += unanswered;
        for number in numbers {
            let former = given.insert(number, writer as u64);
            assert!(former.is_none(), "{number} was given to {former:?} and to {writer}");
        }
    }
    assert_eq!(given.len(), total);
    let client = cluster.connect(0).await;
    for table in ["updated", "upserted"] {
        verify(&cluster, &client, table, total).await;
    }
    // Every number has the row of the writer that was told it; the others are of statements without an answer.
    let found = cluster.query(&client, "SELECT id, writer FROM numbered").await;
    let stored: BTreeMap<u64, u64> =
        found.iter().map(|row| (number(row, 0), number(row, 1))).collect();
    assert_eq!(stored.len(), found.len(), "a number has two rows");
    for (number, writer) in &given {
        assert_eq!(stored.get(number), Some(writer), "number {number}");
    }
    assert!(stored.len() <= total + repeated, "{} rows of {total} rounds", stored.len());
    eprintln!("{total} rounds, {turns} kills, {reshapes} splits and merges, {repeated} repeated");
    assert!(turns > 1 && reshapes > 0, "{turns} kills, {reshapes} splits and merges");
}

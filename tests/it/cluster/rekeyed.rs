//! Tables that get another key again and again while they are written and read, and frontends, datanodes and metas are
//! killed: every read sees the last acknowledged write of its row, and in the end each acknowledged row is there once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::harness::{Cluster, Entrance, PATIENCE, Row, number, rows};
use super::{NEVER_LOST, count, leading_node};

/// Names of the tables, and their options.
const TABLES: [(&str, &str); 3] = [
    ("last_row", "'merge_mode' = 'last_row'"),
    ("last_non_null", "'merge_mode' = 'last_non_null'"),
    ("appended", "'append_mode' = 'true'"),
];
/// Layouts of round after round.
const LAYOUTS: [&str; 3] = [
    "PRIMARY KEY (week, id) SPLIT AT ((3), (6))",
    "PRIMARY KEY (id, week) PARTITION BY HASH (id) PARTITIONS 3",
    "PRIMARY KEY (week, id) PARTITION BY HASH (week, id) PARTITIONS 2",
];
const IDS: i64 = 200;
const WRITERS: i64 = 2;

/// Values of a row, if it exists.
type Values = Option<[Option<i64>; 2]>;

#[derive(Default)]
struct State {
    /// Numbers of the acknowledged rows of `appended`.
    appended: Vec<u64>,
    writes: u64,
    reads: u64,
    wrong: Vec<String>,
    /// The longest time of an acknowledged write since it was reset.
    longest: Duration,
}

/// Rows of one writer as it knows them; those that a failed statement was about are not looked at again.
#[derive(Default)]
struct Rows {
    known: BTreeMap<i64, Values>,
    open: Vec<i64>,
}

struct Load {
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(cluster: &Cluster) -> Self {
        let (state, stop) = (Arc::<Mutex<State>>::default(), Arc::<AtomicBool>::default());
        let mut tasks = Vec::new();
        for writer in 0..WRITERS {
            let doors = || {
                let first = usize::try_from(writer).unwrap();
                [cluster.entrance(first), cluster.entrance(1 - first)]
            };
            let shared = || (Arc::clone(&state), Arc::clone(&stop));
            for table in ["last_row", "last_non_null"] {
                let (state, stop) = shared();
                tasks.push(tokio::spawn(write_keyed(doors(), (table, writer), state, stop)));
            }
            let (state, stop) = shared();
            tasks.push(tokio::spawn(write_appended(doors(), writer, state, stop)));
        }
        Self { state, stop, tasks }
    }

    /// Waits until more was written and read, all of it right.
    async fn goes_on(&self, cluster: &Cluster) {
        let progress = || {
            let state = self.state.lock().unwrap();
            [state.writes, state.reads, state.appended.len() as u64]
        };
        let before = progress();
        cluster
            .until("rows are written and read", async || {
                let now = progress();
                [100, 20, 20].iter().enumerate().all(|(at, more)| now[at] >= before[at] + more)
            })
            .await;
        let wrong = self.state.lock().unwrap().wrong.clone();
        assert!(wrong.is_empty(), "{wrong:#?}\n{}", cluster.logs());
    }

    async fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for task in self.tasks.drain(..) {
            task.await.unwrap();
        }
    }
}

/// A connection, as soon as it can be had; `None` when the load is to stop.
async fn connect(entrance: &Entrance, stop: &AtomicBool) -> Option<Client> {
    while !stop.load(Ordering::SeqCst) {
        if let Ok(client) = entrance.connect().await {
            return Some(client);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    None
}

/// The statement of a step about a row, and the row after it.
fn step(table: &str, number: i64, id: i64, before: Values) -> (String, Values) {
    let week = id % 10;
    if number % 9 == 0 {
        return (format!("DELETE FROM {table} WHERE id = {id} AND week = {week}"), None);
    }
    if number % 6 == 0 {
        let sql =
            format!("UPDATE {table} SET a = coalesce(a, 0) + 1 WHERE id = {id} AND week = {week}");
        return (sql, before.map(|[a, b]| [Some(a.unwrap_or_default() + 1), b]));
    }
    let merges = table == "last_non_null";
    let insert = |columns: &str, values: String| {
        format!("INSERT INTO {table} (id, week, {columns}) VALUES ({id}, {week}, {values})")
    };
    let [a, b] = before.filter(|_| merges).unwrap_or_default();
    match number % 2 {
        0 if merges => (insert("a", number.to_string()), Some([Some(number), b])),
        _ if merges => (insert("b", number.to_string()), Some([a, Some(number)])),
        0 => {
            (insert("a, b", format!("{number}, {}", -number)), Some([Some(number), Some(-number)]))
        }
        _ => (insert("a", number.to_string()), Some([Some(number), None])),
    }
}

/// Writes, updates and deletes rows of its own by one frontend, and reads each third by the other one.
async fn write_keyed(
    [door, other_door]: [Entrance; 2],
    (table, writer): (&'static str, i64),
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
) {
    let (mut of_writer, mut number) = (Rows::default(), 0);
    while let Some(client) = connect(&door, &stop).await {
        let Some(reader) = connect(&other_door, &stop).await else { return };
        while !stop.load(Ordering::SeqCst) && !client.is_closed() && !reader.is_closed() {
            number += 1;
            let id = (number * 7 % (IDS / WRITERS)) * WRITERS + writer;
            tokio::time::sleep(Duration::from_millis(2)).await;
            if of_writer.open.contains(&id) {
                continue;
            }
            let before = of_writer.known.get(&id).copied().flatten();
            let (sql, after) = step(table, number, id, before);
            let began = Instant::now();
            if client.batch_execute(&sql).await.is_err() {
                of_writer.open.push(id);
                continue;
            }
            of_writer.known.insert(id, after);
            {
                let mut state = state.lock().unwrap();
                state.writes += 1;
                state.longest = state.longest.max(began.elapsed());
            }
            if number % 3 == 0 {
                read(&reader, table, (id, after), &state).await;
            }
        }
    }
}

/// Reads a row that nobody writes meanwhile.
async fn read(client: &Client, table: &str, (id, expected): (i64, Values), state: &Mutex<State>) {
    let sql = format!("SELECT a, b FROM {table} WHERE id = {id} AND week = {}", id % 10);
    // In a time without a leader a query may fail; it must not answer anything else.
    let Ok(found) = rows(client, &sql).await else { return };
    let value = |row: &Row, at: usize| row[at].as_ref().map(|text| text.parse::<i64>().unwrap());
    let found: Vec<_> = found.iter().map(|row| [value(row, 0), value(row, 1)]).collect();
    let expected: Vec<_> = expected.into_iter().collect();
    let mut state = state.lock().unwrap();
    state.reads += 1;
    if found != expected {
        state.wrong.push(format!("row {id} of {table} is {found:?}, not {expected:?}"));
    }
}

/// Adds rows, each of which is sent once.
async fn write_appended(
    [door, _]: [Entrance; 2],
    writer: i64,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
) {
    let mut number = writer;
    while let Some(client) = connect(&door, &stop).await {
        while !stop.load(Ordering::SeqCst) && !client.is_closed() {
            number += WRITERS;
            let (id, week) = (number * 7919 % 1000, number % 10);
            let sql = format!("INSERT INTO appended (id, week, a) VALUES ({id}, {week}, {number})");
            if client.batch_execute(&sql).await.is_ok() {
                state.lock().unwrap().appended.push(number.unsigned_abs());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Begins to re-key each table.
async fn begin(cluster: &Cluster, client: &Client, layout: &str) {
    for (table, _) in TABLES {
        let deadline = Instant::now() + PATIENCE;
        let sql = format!("ALTER TABLE {table} {layout}");
        while let Err(error) = client.batch_execute(&sql).await {
            let text = error.as_db_error().map_or(error.to_string(), ToString::to_string);
            // An answer that was lost.
            if text.contains("is already being re-keyed") || text.contains("the new key is that") {
                break;
            }
            assert!(Instant::now() < deadline, "{sql}: {text}\n{}", cluster.logs());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Waits until no table is being re-keyed.
async fn until_switched(cluster: &Cluster, client: &Client) {
    let deadline = Instant::now() + PATIENCE * 3;
    let sql = "SELECT \"table\", state, fills, reason FROM sys.rekeyings WHERE state <> 'retired'";
    loop {
        let found = cluster.query(client, sql).await;
        if found.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{found:?}\n{}", cluster.logs());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_get_another_key_while_they_are_written_and_processes_are_killed() {
    let mut cluster = Cluster::start(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    for (table, options) in TABLES {
        let sql = format!(
            "CREATE TABLE {table} (id BIGINT, week BIGINT, a BIGINT, b BIGINT, PRIMARY KEY (id, week)) \
             SPLIT AT ((100)) WITH ({options}, 'auto_partitioning_by_load' = 'disabled')"
        );
        client.batch_execute(&sql).await.unwrap();
    }
    let mut load = Load::start(&cluster);
    load.goes_on(&cluster).await;

    // One that is given up, if it is not over before, and one that nothing disturbs.
    begin(&cluster, &client, LAYOUTS[0]).await;
    for (table, _) in TABLES {
        client.batch_execute(&format!("ALTER TABLE {table} CANCEL REKEYING")).await.ok();
    }
    until_switched(&cluster, &client).await;
    load.goes_on(&cluster).await;
    load.state.lock().unwrap().longest = Duration::ZERO;
    begin(&cluster, &client, LAYOUTS[1]).await;
    until_switched(&cluster, &client).await;
    let longest = load.state.lock().unwrap().longest;
    eprintln!("the longest write beside a switch took {longest:?}");
    load.goes_on(&cluster).await;
    for (table, _) in TABLES {
        let partitions = format!("sys.partitions WHERE \"table\" = '{table}'");
        assert_eq!(count(&cluster, &client, &partitions).await, "3", "{table}");
    }

    // Something dies at another moment of each of the next ones.
    for (round, victim) in
        ["datanode", "frontend", "meta", "datanode", "frontend"].iter().enumerate()
    {
        let client = cluster.connect(0).await;
        begin(&cluster, &client, LAYOUTS[round % LAYOUTS.len()]).await;
        let delay = 150 * u64::try_from(round).unwrap();
        tokio::time::sleep(Duration::from_millis(delay)).await;
        let name = match *victim {
            "datanode" => format!("datanode{}", leading_node(&cluster, &client, "last_row").await),
            "meta" => cluster.leading_meta().await,
            // The other one than that of this client.
            _ => "frontend2".to_owned(),
        };
        cluster.kill(&name);
        tokio::time::sleep(Duration::from_millis(500)).await;
        cluster.start_again(&name);
        if *victim != "frontend" {
            cluster.until_ready(&name).await;
        }
        until_switched(&cluster, &client).await;
        load.goes_on(&cluster).await;
    }
    load.end().await;

    let client = cluster.connect(0).await;
    cluster.until_in_order(&client, 3).await;
    let (acknowledged, writes, reads) = {
        let state = load.state.lock().unwrap();
        assert!(state.wrong.is_empty(), "{:#?}\n{}", state.wrong, cluster.logs());
        (state.appended.clone(), state.writes, state.reads)
    };
    let found = cluster.query(&client, "SELECT a FROM appended").await;
    let mut numbers: Vec<u64> = found.iter().map(|row| number(row, 0)).collect();
    numbers.sort_unstable();
    let count = numbers.len();
    numbers.dedup();
    assert_eq!(numbers.len(), count, "rows are there twice\n{}", cluster.logs());
    let lost: Vec<_> =
        acknowledged.iter().filter(|number| numbers.binary_search(number).is_err()).collect();
    assert!(lost.is_empty(), "{lost:?} were lost\n{}", cluster.logs());
    eprintln!("{writes} writes, {reads} reads, {} rows appended", acknowledged.len());
}

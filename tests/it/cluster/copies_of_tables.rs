//! Materialized copies while tables are written and read, partitions of tables and copies are split, leaders move, and
//! datanodes and frontends are killed: a query never lacks a row that was acknowledged before it, and in the end a copy
//! has the rows of its table, each once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::harness::{Cluster, Entrance, PATIENCE, Row, number, rows};
use super::{NEVER_LOST, count, leading_node};

const TABLES: &str = "CREATE TABLE keyed (id BIGINT, week BIGINT, v BIGINT, PRIMARY KEY (id, week)) \
                      WITH ('auto_partitioning_by_load' = 'disabled'); \
                      CREATE TABLE appended (id BIGINT, ts TIMESTAMP(3), v BIGINT, PRIMARY KEY (id, ts), \
                      TIME INDEX (ts)) \
                      WITH ('append_mode' = 'true', 'auto_partitioning_by_load' = 'disabled')";
const COPIES: [(&str, &str, &str); 2] = [
    ("by_week", "keyed", "CREATE MATERIALIZED COPY by_week OF keyed PRIMARY KEY (week, id)"),
    ("by_time", "appended", "CREATE MATERIALIZED COPY by_time OF appended PRIMARY KEY (ts, id)"),
];
/// Ids of the table of one version a row lie below this.
const IDS: i64 = 1000;
const WEEKS: i64 = 10;
/// Rows of one statement.
const ROWS: i64 = 10;

/// What is known of a row of `keyed`: the newest version that was acknowledged (`None`: its deletion), and the newest
/// that was sent.
#[derive(Clone, Copy, Debug)]
struct Known {
    acknowledged: Option<i64>,
    sent: i64,
    /// False once a statement about the row has failed: whether it took effect is open.
    certain: bool,
}

#[derive(Default)]
struct State {
    /// Rows by id; the week is that of the id.
    keyed: BTreeMap<i64, Known>,
    /// Numbers of the acknowledged rows of `appended`.
    appended: Vec<i64>,
    wrong: Vec<String>,
    reads: u64,
}

/// Writers of both tables, and a reader by week.
struct Load {
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

fn week(id: i64) -> i64 {
    id % WEEKS
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

impl Load {
    fn start(cluster: &Cluster) -> Self {
        let (state, stop) = (Arc::<Mutex<State>>::default(), Arc::<AtomicBool>::default());
        let mut tasks = Vec::new();
        for writer in 0..2 {
            let entrance = cluster.entrance(usize::try_from(writer).unwrap());
            let shared = || (entrance.clone(), Arc::clone(&state), Arc::clone(&stop));
            let (door, known, end) = shared();
            tasks.push(tokio::spawn(write_keyed(door, writer, known, end)));
            let (door, known, end) = shared();
            tasks.push(tokio::spawn(write_appended(door, writer, known, end)));
            let (door, known, end) = shared();
            tasks.push(tokio::spawn(read_weeks(door, known, end)));
        }
        Self { state, stop, tasks }
    }

    fn progress(&self) -> [u64; 3] {
        let state = self.state.lock().unwrap();
        let versions = state.keyed.values().filter_map(|known| known.acknowledged).max();
        let newest = u64::try_from(versions.unwrap_or_default()).unwrap();
        [newest, state.appended.len() as u64, state.reads]
    }

    /// Waits until more was written and read.
    async fn goes_on(&self, cluster: &Cluster) {
        let before = self.progress();
        let more = [20, 50, 5];
        cluster
            .until("rows are written and read", async || {
                let now = self.progress();
                (0..3).all(|at| now[at] >= before[at] + more[at])
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

/// Puts new versions of rows, and deletes some now and then. Each writer has ids of its own.
async fn write_keyed(
    entrance: Entrance,
    writer: i64,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
) {
    let mut round = 0;
    while let Some(client) = connect(&entrance, &stop).await {
        while !stop.load(Ordering::SeqCst) && !client.is_closed() {
            round += 1;
            let ids: Vec<i64> =
                (0..ROWS).map(|step| ((round * ROWS + step) * 7 * 2 + writer) % IDS).collect();
            let deletes = round % 7 == 0;
            let ids = if deletes { ids[..2].to_vec() } else { ids };
            {
                let mut state = state.lock().unwrap();
                for id in &ids {
                    let new = Known { acknowledged: None, sent: 0, certain: true };
                    state.keyed.entry(*id).or_insert(new).sent = round;
                }
            }
            let sql = match deletes {
                true => {
                    let keys = ids.iter().map(|id| format!("(id = {id} AND week = {})", week(*id)));
                    format!("DELETE FROM keyed WHERE {}", keys.collect::<Vec<_>>().join(" OR "))
                }
                false => {
                    let values = ids.iter().map(|id| format!("({id}, {}, {round})", week(*id)));
                    format!("INSERT INTO keyed VALUES {}", values.collect::<Vec<_>>().join(", "))
                }
            };
            let done = client.batch_execute(&sql).await.is_ok();
            {
                let mut state = state.lock().unwrap();
                for id in &ids {
                    let known = state.keyed.get_mut(id).unwrap();
                    known.certain &= done;
                    known.acknowledged = (!deletes).then_some(round);
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Adds rows, each of which is sent once.
async fn write_appended(
    entrance: Entrance,
    writer: i64,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
) {
    let mut next = writer;
    while let Some(client) = connect(&entrance, &stop).await {
        while !stop.load(Ordering::SeqCst) && !client.is_closed() {
            let numbers: Vec<i64> = (0..ROWS).map(|step| next + step * 2).collect();
            next += ROWS * 2;
            let values =
                numbers.iter().map(|n| format!("({}, {}, {n})", n * 7919 % 10_007, n * 10));
            let sql =
                format!("INSERT INTO appended VALUES {}", values.collect::<Vec<_>>().join(", "));
            if client.batch_execute(&sql).await.is_ok() {
                state.lock().unwrap().appended.extend(numbers);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Reads the rows of one week after the other, which a copy answers if it is in step.
async fn read_weeks(entrance: Entrance, state: Arc<Mutex<State>>, stop: Arc<AtomicBool>) {
    let mut next = 0;
    while let Some(client) = connect(&entrance, &stop).await {
        while !stop.load(Ordering::SeqCst) && !client.is_closed() {
            next = (next + 1) % WEEKS;
            let of_week = |state: &State| -> BTreeMap<i64, Known> {
                let known = state.keyed.iter().filter(|(id, _)| week(**id) == next);
                known.map(|(id, known)| (*id, *known)).collect()
            };
            let before = of_week(&state.lock().unwrap());
            let sql = format!("SELECT id, v FROM keyed WHERE week = {next}");
            // In a time without a leader a query may fail; it must not answer anything else.
            if let Ok(found) = rows(&client, &sql).await {
                let mut state = state.lock().unwrap();
                let after = of_week(&state);
                state.reads += 1;
                if let Some(wrong) = compare(&found, &before, &after) {
                    state.wrong.push(format!("week {next}: {wrong}"));
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn pair(row: &Row) -> (i64, i64) {
    (number(row, 0).try_into().unwrap(), number(row, 1).try_into().unwrap())
}

/// What is wrong with the rows of a week, given what was known before and after the query.
fn compare(
    found: &[Row],
    before: &BTreeMap<i64, Known>,
    after: &BTreeMap<i64, Known>,
) -> Option<String> {
    let versions: BTreeMap<i64, i64> = found.iter().map(pair).collect();
    if versions.len() != found.len() {
        return Some(format!("a row is there twice: {found:?}"));
    }
    for (id, known) in before {
        // Rows that somebody wrote meanwhile may be of either version.
        let is_still = after.get(id).is_some_and(|after| after.sent == known.sent);
        let is_settled = known.certain && known.acknowledged.is_none_or(|v| v == known.sent);
        let was_deleted = known.acknowledged.is_none();
        if !(is_still && is_settled) || after[id].acknowledged != known.acknowledged {
            continue;
        }
        let version = versions.get(id).copied();
        if was_deleted && known.sent % 7 != 0 {
            // Sent, and not acknowledged yet.
            continue;
        }
        if version != known.acknowledged {
            return Some(format!("{id} is {version:?}, but {known:?} was acknowledged"));
        }
    }
    let unknown = versions.iter().find(|(id, v)| after.get(*id).is_none_or(|k| k.sent < **v));
    unknown.map(|row| format!("{row:?} was never sent"))
}

/// Splits a partition of a table in the middle of its rows, until one more is there.
async fn split(cluster: &Cluster, client: &Client, table: &str) {
    let partitions = format!("sys.partitions WHERE \"table\" = '{table}'");
    let before = count(cluster, client, &partitions).await;
    let deadline = Instant::now() + PATIENCE;
    while count(cluster, client, &partitions).await == before {
        let sql = format!("SELECT min(partition) FROM {partitions}");
        let partition = number(&cluster.query(client, &sql).await[0], 0);
        let split = format!("ADMIN split_partition({partition})");
        let said = client.batch_execute(&split).await.err().map(|error| format!("{error:?}"));
        assert!(Instant::now() < deadline, "{table} is not split: {said:?}\n{}", cluster.logs());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until every copy is in step with its table.
async fn until_in_step(cluster: &Cluster, client: &Client) {
    let deadline = Instant::now() + PATIENCE * 2;
    let sql = "SELECT copy, state, fills, reason FROM sys.copies ORDER BY copy";
    loop {
        let found = cluster.query(client, sql).await;
        let is_in_step = |row: &Row| row[1].as_deref() == Some("in step");
        if found.len() == COPIES.len() && found.iter().all(is_in_step) {
            eprintln!("copies: {found:?}");
            return;
        }
        assert!(Instant::now() < deadline, "copies: {found:?}\n{}", cluster.logs());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Compares each copy with its table. A copy with more partitions than its table is read only where it is named.
async fn verify(cluster: &Cluster, client: &Client) {
    for (copy, source, _) in COPIES {
        for table in [source, copy] {
            let sql = format!("EXPLAIN SELECT * FROM {table}");
            let plan = cluster.query(client, &sql).await;
            assert!(!format!("{plan:?}").contains("copy="), "{plan:?}");
        }
        for (left, right) in [(source, copy), (copy, source)] {
            let sql = format!("SELECT * FROM {left} EXCEPT ALL SELECT * FROM {right}");
            let found = cluster.query(client, &sql).await;
            let some: Vec<_> = found.iter().take(10).collect();
            let logs = || cluster.logs();
            assert!(found.is_empty(), "{} rows of {left} only: {some:?}\n{}", found.len(), logs());
        }
    }
}

/// Kills the datanode that leads a partition of a table, and starts it again once rows are taken without it.
async fn kill_leader(cluster: &mut Cluster, client: &Client, load: &Load, table: &str) {
    let name = format!("datanode{}", leading_node(cluster, client, table).await);
    cluster.kill(&name);
    load.goes_on(cluster).await;
    cluster.start_again(&name);
    cluster.until_ready(&name).await;
}

/// Makes another replica of a table's first partition lead.
async fn move_leader(cluster: &Cluster, client: &Client, table: &str) {
    let sql = format!(
        "SELECT partition, node FROM sys.replicas WHERE \"table\" = '{table}' \
         AND role = 'follower' ORDER BY partition, node LIMIT 1"
    );
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(row) = cluster.query(client, &sql).await.first() {
            let order = format!("ADMIN transfer_leader({}, {})", number(row, 0), number(row, 1));
            if client.batch_execute(&order).await.is_ok() {
                return;
            }
        }
        assert!(Instant::now() < deadline, "no leader moves\n{}", cluster.logs());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_have_the_rows_of_their_tables_whatever_is_killed_and_split_meanwhile() {
    let mut cluster = Cluster::start(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    client.batch_execute(TABLES).await.unwrap();
    let mut load = Load::start(&cluster);
    // The copies are filled while their tables are written.
    cluster
        .until("rows are written", async || load.progress()[1] > 100 && load.progress()[0] > 20)
        .await;
    for (_, _, create) in COPIES {
        cluster.until_done(&client, create).await;
    }
    load.goes_on(&cluster).await;
    until_in_step(&cluster, &client).await;
    load.goes_on(&cluster).await;

    split(&cluster, &client, "keyed").await;
    split(&cluster, &client, "by_week").await;
    split(&cluster, &client, "appended").await;
    split(&cluster, &client, "by_time").await;
    load.goes_on(&cluster).await;
    for table in ["keyed", "by_week", "by_time"] {
        kill_leader(&mut cluster, &client, &load, table).await;
        load.goes_on(&cluster).await;
    }
    cluster.kill("frontend2");
    tokio::time::sleep(Duration::from_millis(500)).await;
    cluster.start_again("frontend2");
    load.goes_on(&cluster).await;
    move_leader(&cluster, &client, "keyed").await;
    move_leader(&cluster, &client, "by_week").await;
    load.goes_on(&cluster).await;
    // More partitions than the tables, which are then read themselves.
    split(&cluster, &client, "by_week").await;
    split(&cluster, &client, "by_time").await;
    load.goes_on(&cluster).await;
    load.end().await;

    cluster.until_in_order(&client, 3).await;
    until_in_step(&cluster, &client).await;
    for (copy, source, _) in COPIES {
        let of = |table: &str| format!("sys.partitions WHERE \"table\" = '{table}'");
        while number_of(&cluster, &client, &of(copy)).await
            <= number_of(&cluster, &client, &of(source)).await
        {
            // A copy that was filled anew may have fewer.
            split(&cluster, &client, copy).await;
        }
    }
    until_in_step(&cluster, &client).await;
    verify(&cluster, &client).await;
    let (acknowledged, reads) = {
        let state = load.state.lock().unwrap();
        assert!(state.wrong.is_empty(), "{:#?}\n{}", state.wrong, cluster.logs());
        (state.appended.clone(), state.reads)
    };
    for table in ["appended", "by_time"] {
        let found = cluster.query(&client, &format!("SELECT v FROM {table}")).await;
        let mut numbers: Vec<u64> = found.iter().map(|row| number(row, 0)).collect();
        numbers.sort_unstable();
        let count = numbers.len();
        numbers.dedup();
        assert_eq!(numbers.len(), count, "{table} has rows twice\n{}", cluster.logs());
        let lost = acknowledged
            .iter()
            .filter(|number| numbers.binary_search(&number.unsigned_abs()).is_err());
        let lost: Vec<_> = lost.take(10).collect();
        assert!(lost.is_empty(), "{table} lost {lost:?}\n{}", cluster.logs());
    }
    eprintln!("{} rows of one table, {reads} reads", acknowledged.len());
}

async fn number_of(cluster: &Cluster, client: &Client, table: &str) -> u64 {
    count(cluster, client, table).await.parse().unwrap()
}

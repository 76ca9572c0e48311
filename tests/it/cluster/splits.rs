//! Partitions are cut and merged again and again while rows are written and read and nodes are killed: every read gives
//! all that was acknowledged before it, nothing that was not sent, and no row twice.
//!
//! Rows are never changed, so that count, sum and checksum of a table only grow: whatever a query gives lies between what
//! was acknowledged when it began and what had been sent when it ended, and is not less than what an earlier one gave.
//!
//! `PARTITA_RESHAPES` says how many splits and merges there are to be, `PARTITA_SEED` repeats where they are.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_postgres::Client;

use super::NEVER_LOST;
use super::harness::{Cluster, PATIENCE, number, rows};
use crate::kill::Random;
use crate::server::Server;

/// Keys lie below this. Prime, so that a factor gives them out in an order that knows no neighbours.
const KEYS: i64 = 1_000_003;
/// Rows of one INSERT.
const ROWS: i64 = 10;
/// A table is not cut into more partitions than this.
const PARTITIONS_MAX: usize = 8;
const TABLES: [&str; 2] = ["keyed", "appended"];
const WORKED: [(&str, bool); 2] = [(TABLES[0], false), (TABLES[1], true)];

const CREATE: &str = "CREATE TABLE keyed (id BIGINT, v BIGINT, PRIMARY KEY (id)) \
                      WITH ('auto_partitioning_by_load' = 'disabled'); \
                      CREATE TABLE appended (id BIGINT, ts TIMESTAMP(3), v BIGINT, PRIMARY KEY (id, ts), \
                      TIME INDEX (ts)) \
                      WITH ('append_mode' = 'true', 'auto_partitioning_by_load' = 'disabled')";

/// Count, sum and checksum of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Total([i64; 3]);

impl Total {
    fn add(&mut self, (id, v): (i64, i64)) {
        self.0 = [self.0[0] + 1, self.0[1] + v, self.0[2] + id % 9973 * v];
    }

    /// No part of it is more than another's.
    fn within(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).all(|(mine, others)| *mine <= others)
    }

    async fn of(client: &Client, table: &str) -> Result<Self, tokio_postgres::Error> {
        let sql = format!("SELECT count(*), sum(v), sum(id % 9973 * v) FROM {table}");
        let found = rows(client, &sql).await?;
        let cell = |at: usize| found[0][at].as_deref().map_or(0, |text| text.parse().unwrap());
        Ok(Self([cell(0), cell(1), cell(2)]))
    }
}

/// What is known of a table's rows.
#[derive(Default)]
struct Tally {
    sent: BTreeMap<i64, i64>,
    acknowledged: BTreeMap<i64, i64>,
    sent_total: Total,
    acknowledged_total: Total,
    /// What the last query gave.
    seen: Total,
}

/// What the tasks of a test share.
pub(super) struct Work {
    /// The tables, and whether they keep every row under a time.
    tables: [(String, bool); 2],
    tallies: [Mutex<Tally>; 2],
    next: AtomicU64,
    pub(super) reads: AtomicU64,
    stop: AtomicBool,
    wrong: Mutex<Vec<String>>,
}

impl Work {
    pub(super) fn new(tables: [(&str, bool); 2]) -> Arc<Self> {
        Arc::new(Self {
            tables: tables.map(|(name, appends)| (name.to_owned(), appends)),
            tallies: Default::default(),
            next: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            wrong: Mutex::default(),
        })
    }

    /// Ends the tasks.
    pub(super) async fn end(&self, tasks: Vec<tokio::task::JoinHandle<()>>) {
        self.stop.store(true, Ordering::SeqCst);
        for task in tasks {
            task.await.unwrap();
        }
    }

    fn is_over(&self, client: &Client) -> bool {
        self.stop.load(Ordering::SeqCst) || client.is_closed()
    }

    /// Inserts rows that nobody else inserts, and notes which of them were acknowledged.
    async fn write(self: Arc<Self>, client: Client, table: usize) {
        while !self.is_over(&client) {
            let first = i64::try_from(self.next.fetch_add(1, Ordering::SeqCst)).unwrap() * ROWS;
            let batch: Vec<(i64, i64)> =
                (first..first + ROWS).map(|n| (n * 7919 % KEYS, n % 997 + 1)).collect();
            {
                let mut tally = self.tallies[table].lock().unwrap();
                tally.sent.extend(batch.iter().copied());
                batch.iter().for_each(|row| tally.sent_total.add(*row));
            }
            let (name, appends) = &self.tables[table];
            let values = batch.iter().map(|(id, v)| match appends {
                false => format!("({id}, {v})"),
                true => format!("({id}, {}, {v})", v * 1000),
            });
            let values = values.collect::<Vec<_>>().join(", ");
            let sql = format!("INSERT INTO {name} VALUES {values}");
            // What fails may be there or not; it is not sent again.
            if client.batch_execute(&sql).await.is_ok() {
                let mut tally = self.tallies[table].lock().unwrap();
                tally.acknowledged.extend(batch.iter().copied());
                batch.iter().for_each(|row| tally.acknowledged_total.add(*row));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Looks at all rows of a table, again and again.
    async fn read(self: Arc<Self>, client: Client, table: usize) {
        while !self.is_over(&client) {
            let (before, seen) = {
                let tally = self.tallies[table].lock().unwrap();
                (tally.acknowledged_total, tally.seen)
            };
            // Within a node's death a query may fail; what it must not do is to give something else.
            let name = &self.tables[table].0;
            if let Ok(found) = Total::of(&client, name).await {
                let mut tally = self.tallies[table].lock().unwrap();
                let after = tally.sent_total;
                if !(before.within(&found) && found.within(&after) && seen.within(&found)) {
                    let what = format!(
                        "{name}: {found:?}; acknowledged were {before:?}, seen {seen:?}, sent {after:?}"
                    );
                    self.wrong.lock().unwrap().push(what);
                }
                tally.seen = found;
                self.reads.fetch_add(1, Ordering::SeqCst);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// All rows, one by one, when nobody writes any more.
    pub(super) async fn verify(&self, client: &Client) {
        for ((table, _), tally) in self.tables.iter().zip(&self.tallies) {
            let (sent, acknowledged) = {
                let tally = tally.lock().unwrap();
                (tally.sent.clone(), tally.acknowledged.clone())
            };
            let mut found = BTreeMap::new();
            let mut total = Total::default();
            for row in rows(client, &format!("SELECT id, v FROM {table}")).await.unwrap() {
                let row =
                    (number(&row, 0).try_into().unwrap(), number(&row, 1).try_into().unwrap());
                assert_eq!(found.insert(row.0, row.1), None, "{table} has {} twice", row.0);
                assert_eq!(sent.get(&row.0), Some(&row.1), "{table} has {row:?}");
                total.add(row);
            }
            let lost: Vec<_> =
                acknowledged.keys().filter(|id| !found.contains_key(*id)).take(10).collect();
            assert!(lost.is_empty(), "{table} lost {lost:?} of {}", acknowledged.len());
            assert_eq!(Total::of(client, table).await.unwrap(), total, "{table}");
            assert!(!acknowledged.is_empty(), "nothing was written into {table}");
        }
    }

    pub(super) fn check(&self, logs: impl FnOnce() -> String) {
        let wrong = self.wrong.lock().unwrap();
        assert!(wrong.is_empty(), "{} reads were wrong: {:#?}\n{}", wrong.len(), *wrong, logs());
    }

    /// A writer and a reader of each table, over these connections: the writers, then the readers.
    pub(super) fn begin(
        self: &Arc<Self>,
        clients: [Client; 4],
    ) -> Vec<tokio::task::JoinHandle<()>> {
        let [first, second, third, fourth] = clients;
        vec![
            tokio::spawn(Arc::clone(self).write(first, 0)),
            tokio::spawn(Arc::clone(self).write(second, 1)),
            tokio::spawn(Arc::clone(self).read(third, 0)),
            tokio::spawn(Arc::clone(self).read(fourth, 1)),
        ]
    }
}

/// The partitions of a table by their keys: number and where they begin.
async fn partitions(
    client: &Client,
    table: &str,
) -> Result<Vec<(i64, u64)>, tokio_postgres::Error> {
    let sql =
        format!("SELECT partition, start_key FROM sys.partitions WHERE \"table\" = '{table}'");
    let start = |text: &str| text.trim_matches(['(', ')']).split(',').next()?.trim().parse().ok();
    let found = rows(client, &sql).await?;
    let mut found: Vec<(i64, u64)> = found
        .iter()
        .map(|row| (row[1].as_deref().and_then(start).unwrap_or(0), number(row, 0)))
        .collect();
    found.sort_unstable();
    Ok(found)
}

/// Cuts or merges partitions of one table, somewhere; says whether that was done.
async fn reshape(client: &Client, random: &mut Random) -> Result<(), tokio_postgres::Error> {
    let table = TABLES[usize::try_from(random.below(2)).unwrap()];
    let found = partitions(client, table).await?;
    let at = usize::try_from(random.below(found.len() as u64)).unwrap();
    let pieces = u64::try_from(found.len()).unwrap();
    let splits = random.below(PARTITIONS_MAX as u64) >= pieces || found.len() == 1;
    let sql = match (splits, random.below(3)) {
        (true, 0) => format!("ADMIN split_partition({})", found[at].1),
        (true, 1) => {
            let end = found.get(at + 1).map_or(KEYS, |next| next.0);
            let width = u64::try_from(end - found[at].0 - 2).unwrap();
            let key = found[at].0 + 1 + i64::try_from(random.below(width)).unwrap();
            format!("ALTER TABLE {table} SPLIT AT (({key}))")
        }
        (true, _) => format!("ALTER TABLE {table} SPLIT PARTITION {}", found[at].1),
        (false, form) => {
            let left = at.min(found.len() - 2);
            let (left, right) = (found[left].1, found[left + 1].1);
            match form {
                0 => format!("ADMIN merge_partitions({left}, {right})"),
                _ => format!("ALTER TABLE {table} MERGE PARTITIONS ({left}, {right})"),
            }
        }
    };
    client.batch_execute(&sql).await
}

/// What the splits and merges took, as the server remembers them.
async fn figures(client: &Client) -> String {
    let sql = "SELECT kind, stall_ms, took_ms FROM sys.split_events WHERE outcome = 'done'";
    let mut by_kind: BTreeMap<String, [Vec<f64>; 2]> = BTreeMap::new();
    for row in rows(client, sql).await.unwrap() {
        let cell = |at: usize| row[at].as_deref().and_then(|text| text.parse().ok()).unwrap_or(0.0);
        let of = by_kind.entry(row[0].clone().unwrap_or_default()).or_default();
        of[0].push(cell(1));
        of[1].push(cell(2));
    }
    let mut said = String::new();
    for (kind, mut of) in by_kind {
        for (what, values) in ["stall_ms", "took_ms"].iter().zip(&mut of) {
            values.sort_by(f64::total_cmp);
            let part =
                |percent: usize| values[(values.len() * percent / 100).min(values.len() - 1)];
            said += &format!(
                "{} of kind {kind}: {what} median {:.1}, p99 {:.1}, most {:.1}\n",
                values.len(),
                part(50),
                part(99),
                part(100)
            );
        }
    }
    said
}

pub(super) fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

pub(super) fn seeded() -> Random {
    let seed = from_environment("PARTITA_SEED", 0x5eed_0007);
    eprintln!("repeat with PARTITA_SEED={seed}");
    Random(seed)
}

/// How many changes there are to be; those that fail because a node is down do not count.
async fn reshapes(work: &Work, client: &Client, random: &mut Random, goal: u64) -> u64 {
    let (mut done, deadline) = (0, tokio::time::Instant::now() + PATIENCE * 10);
    while done < goal && !client.is_closed() && tokio::time::Instant::now() < deadline {
        match reshape(client, random).await {
            Ok(()) => done += 1,
            Err(error) => {
                let said = error.as_db_error().map_or(error.to_string(), ToString::to_string);
                let broken = said.contains("internal error") || said.contains("corrupted");
                if broken {
                    work.wrong.lock().unwrap().push(said);
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_is_ever_wrong_while_partitions_are_cut_and_merged_and_datanodes_are_killed() {
    const BETWEEN_KILLS: u64 = 5;
    let (goal, mut random) = (from_environment("PARTITA_RESHAPES", 20), seeded());
    let mut cluster = Cluster::start(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    client.batch_execute(CREATE).await.unwrap();
    cluster.until_in_order(&client, 3).await;
    let work = Work::new(WORKED);
    let mut clients = Vec::new();
    for frontend in [0, 1, 1, 0] {
        clients.push(cluster.connect(frontend).await);
    }
    let tasks = work.begin(clients.try_into().ok().unwrap());
    let mut done = 0;
    while done < goal {
        let next = BETWEEN_KILLS.min(goal - done);
        let name = format!("datanode{}", 1 + random.below(3));
        // It dies while partitions are cut, and comes back while they are.
        let mut own = Random(random.below(u64::MAX - 1) + 1);
        let changes = reshapes(&work, &client, &mut own, next);
        let kill = async {
            tokio::time::sleep(Duration::from_millis(random.below(2000))).await;
            cluster.kill(&name);
            tokio::time::sleep(Duration::from_millis(200 + random.below(2000))).await;
            cluster.start_again(&name);
        };
        let (made, ()) = tokio::join!(changes, kill);
        work.check(|| cluster.logs());
        assert_eq!(made, next, "partitions are not cut and merged any more\n{}", cluster.logs());
        done += made;
    }
    work.end(tasks).await;
    cluster.until_in_order(&client, 3).await;
    work.check(|| cluster.logs());
    work.verify(&client).await;
    let reads = work.reads.load(Ordering::SeqCst);
    assert!(reads >= goal, "{reads} reads");
    eprintln!("{done} changes, {reads} reads\n{}", figures(&client).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_keeps_every_row_while_its_partitions_are_cut_and_merged_and_it_is_killed() {
    const ROUNDS: u64 = 3;
    let (goal, mut random) = (from_environment("PARTITA_RESHAPES", 24), seeded());
    let mut dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let work = Work::new(WORKED);
    for round in 0..ROUNDS {
        let server = Server::try_start(&data, &["--memtable-mb", "1"]).unwrap();
        let client = server.connect().await;
        if round == 0 {
            client.batch_execute(CREATE).await.unwrap();
        }
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(server.connect().await);
        }
        let tasks = work.begin(clients.try_into().ok().unwrap());
        let made = reshapes(&work, &client, &mut random, goal / ROUNDS).await;
        assert_eq!(made, goal / ROUNDS, "not cut and merged any more\n{}", server.log());
        eprintln!("{made} changes\n{}", figures(&client).await);
        // In the middle of one, as often as not.
        let mut own = Random(random.below(u64::MAX - 1) + 1);
        let last = reshapes(&work, &client, &mut own, 1);
        let kill = async {
            tokio::time::sleep(Duration::from_millis(random.below(100))).await;
            server.kill();
        };
        let (_, ()) = tokio::join!(last, kill);
        for task in tasks {
            task.await.unwrap();
        }
        work.check(|| {
            // Whether rows are gone or only not read can be found out from what lies there.
            dir.disable_cleanup(true);
            format!("round {round}; what is stored is kept: {}", data.display())
        });
    }
    let server = Server::start(&data);
    let client = server.connect().await;
    work.verify(&client).await;
}

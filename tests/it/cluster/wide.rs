//! Rows of a wide table that many clients of Bigtable's API change while partitions are split and merged and processes are
//! killed: each increment and append that was answered counts once, one without an answer once or not at all, a checked
//! change exactly once however often it is sent, and no reader sees a part of a change.
//!
//! `PARTITA_WIDE_CHANGES` says how many increments, and as many checked changes, the long test makes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use partita_bigtable::api::data;
use partita_bigtable::api::data::mutation::Mutation;
use partita_bigtable::api::data::read_modify_write_rule::Rule;
use partita_bigtable::api::data::row_filter::Filter;
use tokio::task::JoinHandle;
use tokio_postgres::Client;
use tonic::client::Grpc;
use tonic::codec::Codec;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use super::NEVER_LOST;
use super::harness::{Cluster, Entrance, PATIENCE, number, rows};

const TABLE: &str = "projects/p/instances/public/tables/w";
/// Beginnings of the keys of rows, on both sides of the boundaries at which the table is cut.
const PLACES: [&str; 4] = ["a", "h", "p", "x"];
const BOUNDARIES: [&str; 3] = ["m", "c", "r"];
const WRITERS: usize = 6;
const PAUSE: Duration = Duration::from_millis(10);
/// Time after which the table is not split any more before the next kill.
const SPLIT_WITHIN: Duration = Duration::from_secs(10);

/// Changes of one row that were answered, and those that were not.
#[derive(Default)]
struct Counted {
    increments: u64,
    open_increments: u64,
    appended: Vec<String>,
    open_appended: Vec<String>,
    checked: u64,
}

type Books = Arc<Mutex<BTreeMap<String, Counted>>>;

/// Sends one request.
async fn call<Q, A>(channel: &Channel, method: &'static str, message: Q) -> Result<A, Status>
where
    Q: Send + Sync + 'static,
    A: Send + Sync + 'static,
    ProstCodec<Q, A>: Codec<Encode = Q, Decode = A>,
{
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let codec = ProstCodec::<Q, A>::default();
    let reply = grpc.unary(Request::new(message), PathAndQuery::from_static(method), codec).await;
    reply.map(tonic::Response::into_inner)
}

/// Changes the newest cell of the column `q` of a family.
async fn read_modify(
    channel: &Channel,
    row: &str,
    family: &str,
    rule: Rule,
) -> Result<data::ReadModifyWriteRowResponse, Status> {
    let rule = data::ReadModifyWriteRule {
        family_name: family.to_owned(),
        column_qualifier: b"q".to_vec().into(),
        rule: Some(rule),
    };
    let request = data::ReadModifyWriteRowRequest {
        table_name: TABLE.to_owned(),
        row_key: row.as_bytes().to_vec().into(),
        rules: vec![rule],
        ..Default::default()
    };
    call(channel, "/google.bigtable.v2.Bigtable/ReadModifyWriteRow", request).await
}

/// A cell to set; -1 is the time of the server.
fn set(family: &str, qualifier: &str, timestamp_micros: i64) -> data::Mutation {
    let cell = data::mutation::SetCell {
        family_name: family.to_owned(),
        column_qualifier: qualifier.as_bytes().to_vec().into(),
        timestamp_micros,
        value: b"1".to_vec().into(),
    };
    data::Mutation { mutation: Some(Mutation::SetCell(cell)) }
}

/// Sets both halves of a pair.
async fn set_pair(channel: &Channel, row: &str, number: usize) -> Result<(), Status> {
    let time = i64::try_from(number).unwrap() * 1_000;
    let request = data::MutateRowRequest {
        table_name: TABLE.to_owned(),
        row_key: row.as_bytes().to_vec().into(),
        mutations: vec![set("pair", "left", time), set("pair", "right", time)],
        ..Default::default()
    };
    let method = "/google.bigtable.v2.Bigtable/MutateRow";
    call::<_, data::MutateRowResponse>(channel, method, request).await.map(drop)
}

/// Sets a cell with a name of its own unless it is there, as often as that takes.
async fn set_checked(channel: &Channel, row: &str, name: &str) {
    let mut failures = 0;
    loop {
        let filter = Filter::ColumnQualifierRegexFilter(name.as_bytes().to_vec().into());
        let request = data::CheckAndMutateRowRequest {
            table_name: TABLE.to_owned(),
            row_key: row.as_bytes().to_vec().into(),
            predicate_filter: Some(data::RowFilter { filter: Some(filter) }),
            false_mutations: vec![set("checked", name, -1)],
            ..Default::default()
        };
        let method = "/google.bigtable.v2.Bigtable/CheckAndMutateRow";
        match call::<_, data::CheckAndMutateRowResponse>(channel, method, request).await {
            Ok(_) => return,
            Err(status) => {
                failures += 1;
                assert!(failures < 500, "{status}");
                tokio::time::sleep(PAUSE * 10).await;
            }
        }
    }
}

/// Changes rows in each of the ways until it is told to stop.
async fn write(
    channel: Channel,
    writer: usize,
    keys: Arc<Vec<String>>,
    books: Books,
    stop: Arc<AtomicBool>,
) {
    let mut number = writer;
    while !stop.load(Ordering::SeqCst) {
        number += WRITERS;
        let row = &keys[number / WRITERS % keys.len()];
        let name = format!("c{number}");
        let increment = read_modify(&channel, row, "sum", Rule::IncrementAmount(1)).await;
        let token = format!("{number};").into_bytes();
        let append = read_modify(&channel, row, "text", Rule::AppendValue(token.into())).await;
        set_checked(&channel, row, &name).await;
        // It may fail: then both halves are there, or none.
        set_pair(&channel, row, number).await.ok();
        {
            let mut books = books.lock().unwrap();
            let counted = books.entry(row.clone()).or_default();
            match increment {
                Ok(_) => counted.increments += 1,
                Err(_) => counted.open_increments += 1,
            }
            match append {
                Ok(_) => counted.appended.push(number.to_string()),
                Err(_) => counted.open_appended.push(number.to_string()),
            }
            counted.checked += 1;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Looks for pairs of which one half is there, until it is told to stop.
async fn read(entrance: Entrance, keys: Arc<Vec<String>>, stop: Arc<AtomicBool>) -> u64 {
    let mut looks = 0;
    while !stop.load(Ordering::SeqCst) {
        tokio::time::sleep(PAUSE).await;
        let Ok(client) = entrance.connect().await else { continue };
        for row in keys.iter().cycle() {
            if stop.load(Ordering::SeqCst) {
                break;
            }
            let sql = format!(
                "SELECT cell_ts FROM w WHERE row_key = '{row}' AND family = 'pair' \
                 GROUP BY cell_ts HAVING count(*) <> 2"
            );
            // A node that was killed a moment ago.
            let Ok(halves) = rows(&client, &sql).await else { break };
            assert!(halves.is_empty(), "row {row} was seen in part: {halves:?}");
            looks += 1;
            tokio::time::sleep(PAUSE).await;
        }
    }
    looks
}

/// The newest value of a family of a row.
async fn newest(cluster: &Cluster, client: &Client, row: &str, family: &str) -> String {
    let sql = format!(
        "SELECT encode(value, 'hex') FROM w WHERE row_key = '{row}' AND family = '{family}' \
         ORDER BY cell_ts DESC LIMIT 1"
    );
    let found = cluster.query(client, &sql).await;
    found[0][0].clone().unwrap()
}

/// Checks one row against what was answered.
async fn verify(cluster: &Cluster, client: &Client, row: &str, counted: &Counted) {
    let sum = u64::from_str_radix(&newest(cluster, client, row, "sum").await, 16).unwrap();
    let most = counted.increments + counted.open_increments;
    assert!((counted.increments..=most).contains(&sum), "row {row}: {sum} of {most}");

    let hex = newest(cluster, client, row, "text").await;
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
    let text = String::from_utf8(bytes).unwrap();
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for token in text.split_terminator(';') {
        *seen.entry(token).or_default() += 1;
    }
    assert!(seen.values().all(|times| *times == 1), "row {row}: {seen:?}");
    let lost: Vec<_> =
        counted.appended.iter().filter(|token| !seen.contains_key(token.as_str())).collect();
    assert!(lost.is_empty(), "{lost:?} of row {row} were lost");
    let is_sent = |token: &str| {
        counted.appended.iter().chain(&counted.open_appended).any(|sent| sent == token)
    };
    assert!(seen.keys().all(|token| is_sent(token)), "row {row}: {seen:?}");

    let sql = format!("SELECT count(*) FROM w WHERE row_key = '{row}' AND family = 'checked'");
    let checked = number(&cluster.query(client, &sql).await[0], 0);
    assert_eq!(checked, counted.checked, "checked changes of row {row}");
    eprintln!("row {row}: {sum} increments, {} appends, {checked} checked", seen.len());
}

/// Merges the first two partitions of the table.
async fn merge(cluster: &Cluster, client: &Client) {
    let sql = "SELECT start_key, partition FROM sys.partitions WHERE \"table\" = 'w'";
    let mut found = cluster.query(client, sql).await;
    found.sort_by_key(|row| row[0].clone().unwrap_or_default());
    if found.len() < 2 {
        return;
    }
    let [left, right] = [0, 1].map(|place| number(&found[place], 1));
    let sql = format!("ALTER TABLE w MERGE PARTITIONS ({left}, {right})");
    // It may have been merged by an attempt whose answer was lost.
    client.batch_execute(&sql).await.ok();
}

/// Splits the table, kills a process, starts it again, and merges partitions.
async fn disturb(cluster: &mut Cluster, client: &Client, boundary: &str, victim: &str) {
    tokio::time::sleep(Duration::from_secs(1)).await;
    let sql = format!("ALTER TABLE w SPLIT AT (('{boundary}'))");
    let started = Instant::now();
    // In vain where a merge that failed has left the boundary.
    while client.batch_execute(&sql).await.is_err() && started.elapsed() < SPLIT_WITHIN {
        tokio::time::sleep(PAUSE * 10).await;
    }
    cluster.kill(victim);
    tokio::time::sleep(Duration::from_secs(2)).await;
    cluster.start_again(victim);
    cluster.until_ready(victim).await;
    merge(cluster, client).await;
}

/// Changes rows through three splits and kills, and on until so many changes of each kind were made.
async fn change_rows(changes: u64, rows_of_place: usize) {
    let mut cluster = Cluster::start(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    let create = "CREATE TABLE w WIDE (ROW KEY STRING) FAMILIES (sum, text, checked, pair) \
                  WITH ('auto_partitioning_by_load' = 'disabled')";
    client.batch_execute(create).await.unwrap();
    cluster.until_in_order(&client, 3).await;
    let mut channels = Vec::new();
    for frontend in 0..2 {
        let address = cluster.http(frontend).await;
        channels.push(Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy());
    }
    let (books, stop) = (Books::default(), Arc::<AtomicBool>::default());
    let rows_at =
        |place: &&str| (0..rows_of_place).map(|row| format!("{place}{row}")).collect::<Vec<_>>();
    let keys: Vec<Vec<String>> = PLACES.iter().map(rows_at).collect();
    let keys = Arc::new(keys.concat());
    let writers: Vec<JoinHandle<()>> = (0..WRITERS)
        .map(|writer| {
            let channel = channels[writer % channels.len()].clone();
            let (books, stop) = (Arc::clone(&books), Arc::clone(&stop));
            tokio::spawn(write(channel, writer, Arc::clone(&keys), books, stop))
        })
        .collect();
    let reader = tokio::spawn(read(cluster.entrance(0), Arc::clone(&keys), Arc::clone(&stop)));
    let inside = "ALTER TABLE w SPLIT AT (('h0', 'sum'))";
    assert!(client.batch_execute(inside).await.is_err(), "a row was cut in two");
    let made = || books.lock().unwrap().values().map(|counted| counted.checked).sum::<u64>();
    let deadline = Instant::now() + PATIENCE * 30;
    for turn in 0.. {
        let boundary = BOUNDARIES[turn % BOUNDARIES.len()];
        let victim = match turn % 4 {
            3 => cluster.leading_meta().await,
            node => format!("datanode{}", node + 1),
        };
        disturb(&mut cluster, &client, boundary, &victim).await;
        if turn + 1 >= BOUNDARIES.len() && made() >= changes {
            break;
        }
        let is_late = Instant::now() > deadline;
        assert!(!is_late, "{} changes in {turn} turns\n{}", made(), cluster.logs());
    }
    stop.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.unwrap();
    }
    assert!(reader.await.unwrap() > 0, "nobody has looked");
    let books = std::mem::take(&mut *books.lock().unwrap());
    assert_eq!(books.len(), keys.len());
    for (row, counted) in &books {
        verify(&cluster, &client, row, counted).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_wide_rows_count_once_while_partitions_change_and_datanodes_are_killed() {
    change_rows(0, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more: tests/run --long"]
async fn ten_thousand_changes_of_wide_rows_count_once_while_processes_are_killed() {
    let changes = std::env::var("PARTITA_WIDE_CHANGES").ok();
    let changes = changes.and_then(|text| text.parse().ok()).unwrap_or(10_000);
    // A row keeps all versions of its cells, so that more changes need more rows.
    change_rows(changes, 16).await;
}

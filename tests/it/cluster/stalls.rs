//! For how long a split holds writers up, as they feel it and as the server reports it.
//!
//! Partitions are cut one after the other where clients write at that moment, so that writes of both halves meet each cut.
//!
//! `PARTITA_CUTS` says how many cuts there are to be, `PARTITA_STALL_MS` how long writes may wait at 99 of 100 of them: a
//! release build on a machine that has time keeps to 15. Without it only a stall of seconds fails, which nothing explains.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio_postgres::Client;

use super::NEVER_LOST;
use super::harness::{Cluster, rows};
use super::splits::from_environment;

/// Distance of cuts; clients write at most half of it beside the next one.
const STEP: i64 = 1_000;
const WRITERS: usize = 8;
/// Pause after a cut: what was held up by it has ended by then.
const PAUSE: Duration = Duration::from_millis(300);
/// Frontends report every five seconds.
const REPORTED_AFTER: Duration = Duration::from_secs(7);
/// Stalls of less than so many times what nearly all other writes take may be of something else.
const FELT_TIMES: f64 = 2.0;

/// Writes with their begin and duration.
type Writes = Arc<Mutex<Vec<(Instant, Duration)>>>;

/// Writes one row after the other beside the next cut.
async fn write(
    client: Client,
    number: usize,
    next: Arc<AtomicI64>,
    stop: Arc<AtomicBool>,
    writes: Writes,
) {
    let mut count = i64::try_from(number).unwrap();
    while !stop.load(Ordering::Relaxed) {
        count += 7;
        let id = next.load(Ordering::Relaxed) - STEP / 2 + count * 37 % STEP;
        let began = Instant::now();
        let sql = format!("INSERT INTO stalled VALUES ({id}, {count})");
        client.batch_execute(&sql).await.unwrap();
        writes.lock().unwrap().push((began, began.elapsed()));
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// The value below which a share of all lies.
fn quantile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more: tests/run --long"]
async fn writers_hardly_feel_a_split_and_the_server_reports_what_they_felt() {
    let cuts = i64::try_from(from_environment("PARTITA_CUTS", 20)).unwrap();
    // Without a limit the machine may be busy with anything else, too.
    let is_measured = std::env::var_os("PARTITA_STALL_MS").is_some();
    let limit_ms = from_environment("PARTITA_STALL_MS", 2_000) as f64;
    let apart_max = if is_measured { 0.2 } else { 0.7 };
    let cluster = Cluster::start(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    let create = "CREATE TABLE stalled (id BIGINT, v BIGINT, PRIMARY KEY (id)) \
                  WITH ('auto_partitioning_by_load' = 'disabled')";
    client.batch_execute(create).await.unwrap();
    cluster.until_in_order(&client, 3).await;
    let (next, stop) = (Arc::new(AtomicI64::new(STEP)), Arc::<AtomicBool>::default());
    let writes = Writes::default();
    let mut writers = Vec::new();
    for number in 0..WRITERS {
        let (next, stop, writes) = (Arc::clone(&next), Arc::clone(&stop), Arc::clone(&writes));
        let client = cluster.connect(number % 2).await;
        writers.push(tokio::spawn(write(client, number, next, stop, writes)));
    }
    let (mut felt, mut usual): (Vec<(i64, f64)>, Vec<f64>) = Default::default();
    for cut in 1..=cuts {
        let key = cut * STEP;
        next.store(key, Ordering::Relaxed);
        tokio::time::sleep(PAUSE).await;
        let began = Instant::now();
        let sql = format!("ALTER TABLE stalled SPLIT AT (({key}))");
        client.batch_execute(&sql).await.unwrap();
        tokio::time::sleep(PAUSE).await;
        // Writes that were under way at any moment since the order, and those before.
        let writes = std::mem::take(&mut *writes.lock().unwrap());
        let (during, before): (Vec<_>, Vec<_>) =
            writes.iter().partition(|(begin, time)| *begin + *time >= began);
        usual.extend(before.iter().map(|(_, time)| milliseconds(*time)));
        let longest = during.iter().map(|(_, time)| *time).max();
        felt.push((key, milliseconds(longest.expect("clients write all the time"))));
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    tokio::time::sleep(REPORTED_AFTER).await;
    let sql =
        "SELECT key, stall_ms FROM sys.split_events WHERE kind = 'split' AND outcome = 'done'";
    let reported: Vec<(i64, f64)> = rows(&client, sql)
        .await
        .unwrap()
        .iter()
        .filter_map(|row| {
            let key = row[0].as_deref()?.trim_matches(['(', ')']).parse().ok()?;
            Some((key, row[1].as_deref()?.parse().ok()?))
        })
        .collect();
    let of = |key: i64| reported.iter().find(|(cut, _)| *cut == key).map(|(_, stall)| *stall);
    let stalls: Vec<f64> = felt.iter().map(|(_, stall)| *stall).collect();
    let told: Vec<f64> = felt.iter().filter_map(|(key, _)| of(*key)).collect();
    assert_eq!(told.len(), felt.len(), "splits are missing: {reported:?}");
    eprintln!(
        "{cuts} cuts: felt median {:.1} ms, p99 {:.1}, most {:.1}; reported median {:.1}, p99 {:.1}, most {:.1}",
        quantile(&stalls, 50),
        quantile(&stalls, 99),
        quantile(&stalls, 100),
        quantile(&told, 50),
        quantile(&told, 99),
        quantile(&told, 100)
    );
    assert!(quantile(&stalls, 99) <= limit_ms, "{felt:?}\n{}", cluster.logs());
    // A client measures its own connection, too, and may have felt something else than the split.
    let long_ms = FELT_TIMES * quantile(&usual, 99);
    let long: Vec<&(i64, f64)> = felt.iter().filter(|(_, stall)| *stall >= long_ms).collect();
    let agrees = |(key, stall): &&&(i64, f64)| {
        of(*key).is_some_and(|told| (told - stall).abs() <= apart_max * stall + 2.0)
    };
    let agreeing = long.iter().filter(agrees).count();
    assert!(agreeing * 10 >= long.len() * 8, "{long:?} were reported as {reported:?}");
}

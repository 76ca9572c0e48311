//! `kill -9` under load, again and again: nothing acknowledged is lost, nothing is doubled.
//!
//! Three writers insert rows of their own numbers: single rows into a table with a key, batches into
//! an append-mode table, line protocol into a table that is made on the way. A row counts as
//! acknowledged once its statement has returned. After every kill the server starts over the same
//! directory, and all acknowledged rows are looked for. Rows that were in flight may be there or not,
//! but each at most once.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::server::{Server, http, one};

/// Kills in one run.
const KILLS: u64 = 50;
/// Rows that are acknowledged before each, at least and on the whole.
const ROWS_EACH: u64 = 21;

/// A small generator of its own, so that a seed repeats the moments of the kills.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[derive(Default)]
struct Acked {
    keyed: Mutex<BTreeSet<i64>>,
    appended: Mutex<BTreeSet<i64>>,
    lines: Mutex<BTreeSet<i64>>,
}

impl Acked {
    fn rows(&self) -> usize {
        let of = |rows: &Mutex<BTreeSet<i64>>| rows.lock().unwrap().len();
        of(&self.keyed) + of(&self.appended) + of(&self.lines)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_row_is_lost_or_doubled_when_the_server_is_killed_again_and_again() {
    let seed: u64 = std::env::var("PARTITA_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(0x5eed_0001);
    eprintln!("repeat with PARTITA_SEED={seed}");
    let mut random = Random(seed);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let acked = Arc::new(Acked::default());
    let next = Arc::new(AtomicI64::new(0));

    let server = Server::try_start(&data, &["--memtable-mb", "1"]).unwrap();
    let client = server.connect().await;
    client
        .batch_execute(
            "CREATE TABLE keyed (id BIGINT, v BIGINT, PRIMARY KEY (id)) PARTITION BY HASH (id) PARTITIONS 3;
             CREATE TABLE appended (ts TIMESTAMP(3) TIME INDEX, id BIGINT, pad STRING) WITH ('append_mode' = 'true')",
        )
        .await
        .unwrap();
    let mut server = Some(server);
    for round in 0..KILLS {
        let running = server.take().unwrap();
        let stop = Arc::new(AtomicU64::new(0));
        let writers = [
            tokio::spawn(insert_keyed(&running, &acked, &next, &stop).await),
            tokio::spawn(insert_appended(&running, &acked, &next, &stop).await),
        ];
        let lines = tokio::spawn(write_lines(
            running.http,
            Arc::clone(&acked),
            Arc::clone(&next),
            Arc::clone(&stop),
        ));
        // Some rows in each round, however slow the machine is.
        let goal = usize::try_from(ROWS_EACH * (round + 1)).unwrap();
        let deadline = Instant::now() + Duration::from_secs(120);
        while acked.rows() < goal {
            assert!(Instant::now() < deadline, "no rows are taken:\n{}", running.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(20 + random.below(400))).await;
        running.kill();
        stop.store(1, Ordering::SeqCst);
        for writer in writers {
            writer.await.unwrap();
        }
        lines.await.unwrap();

        let again = Server::try_start(&data, &["--memtable-mb", "1"])
            .unwrap_or_else(|log| panic!("round {round}: did not start again:\n{log}"));
        verify(&again, &acked, round).await;
        server = Some(again);
    }
    let total = acked.rows();
    eprintln!("{KILLS} kills, {total} acknowledged rows, all there once");
    assert!(total > 1_000, "the load was too small to mean anything: {total} rows");
    assert!(server.take().unwrap().stop(), "the last server did not stop cleanly");
}

async fn insert_keyed(
    server: &Server,
    acked: &Arc<Acked>,
    next: &Arc<AtomicI64>,
    stop: &Arc<AtomicU64>,
) -> impl Future<Output = ()> + Send + 'static {
    let client = server.connect().await;
    let (acked, next, stop) = (Arc::clone(acked), Arc::clone(next), Arc::clone(stop));
    async move {
        while stop.load(Ordering::SeqCst) == 0 {
            let id = next.fetch_add(1, Ordering::SeqCst);
            if client
                .batch_execute(&format!("INSERT INTO keyed VALUES ({id}, {id})"))
                .await
                .is_err()
            {
                return;
            }
            acked.keyed.lock().unwrap().insert(id);
        }
    }
}

async fn insert_appended(
    server: &Server,
    acked: &Arc<Acked>,
    next: &Arc<AtomicI64>,
    stop: &Arc<AtomicU64>,
) -> impl Future<Output = ()> + Send + 'static {
    let client = server.connect().await;
    let (acked, next, stop) = (Arc::clone(acked), Arc::clone(next), Arc::clone(stop));
    async move {
        let pad = "x".repeat(200);
        while stop.load(Ordering::SeqCst) == 0 {
            let first = next.fetch_add(50, Ordering::SeqCst);
            let rows: Vec<_> =
                (first..first + 50).map(|id| format!("({id}, {id}, '{pad}')")).collect();
            let sql = format!("INSERT INTO appended (ts, id, pad) VALUES {}", rows.join(", "));
            if client.batch_execute(&sql).await.is_err() {
                return;
            }
            acked.appended.lock().unwrap().extend(first..first + 50);
        }
    }
}

async fn write_lines(
    address: std::net::SocketAddr,
    acked: Arc<Acked>,
    next: Arc<AtomicI64>,
    stop: Arc<AtomicU64>,
) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let Ok(mut stream) = tokio::net::TcpStream::connect(address).await else { return };
    while stop.load(Ordering::SeqCst) == 0 {
        let first = next.fetch_add(20, Ordering::SeqCst);
        let body: String =
            (first..first + 20).map(|id| format!("lines,t=a id={id}i {id}\n")).collect();
        let request = format!(
            "POST /api/v2/write?bucket=public HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(request.as_bytes()).await.is_err() {
            return;
        }
        let mut head = vec![0; 4096];
        match stream.read(&mut head).await {
            Ok(read) if head[..read].starts_with(b"HTTP/1.1 204") => {
                acked.lines.lock().unwrap().extend(first..first + 20);
            }
            _ => return,
        }
    }
}

async fn verify(server: &Server, acked: &Acked, round: u64) {
    let client = server.connect().await;
    for (table, rows) in
        [("keyed", &acked.keyed), ("appended", &acked.appended), ("lines", &acked.lines)]
    {
        let rows = rows.lock().unwrap().clone();
        if rows.is_empty() {
            continue;
        }
        let found = client
            .query(&format!("SELECT id FROM {table}"), &[])
            .await
            .unwrap_or_else(|error| panic!("round {round}: {error}\n{}", server.log()));
        let ids: Vec<i64> = found.iter().map(|row| row.get(0)).collect();
        let distinct: BTreeSet<i64> = ids.iter().copied().collect();
        assert_eq!(
            ids.len(),
            distinct.len(),
            "round {round}: {table} has doubled rows\n{}",
            server.log()
        );
        let lost: Vec<_> = rows.difference(&distinct).take(5).collect();
        assert!(lost.is_empty(), "round {round}: {table} lost {lost:?}\n{}", server.log());
        let counted = one(&client, &format!("SELECT count(*) FROM {table}")).await;
        assert_eq!(counted, ids.len().to_string(), "round {round}: {table}");
    }
    // The door that wrote them answers too.
    let (status, _) = http(server.http, "GET", "/health", b"").await;
    assert_eq!(status, 200);
}

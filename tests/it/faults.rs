//! Disks that fail: calls of the C library end with an error, as `faults.c` makes them do.
//!
//! A log that fails ends its process with an exit code of its own, and nothing acknowledged is lost. The files of one
//! partition that fail stop that partition, which health checks name, and nothing else.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::server::{Server, failure, http, one};

/// What a process ends with when its log has failed.
pub(crate) const EXIT_IO_ERROR: i32 = 74;
/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(30);
/// Errors of the operating system: an error of the device, and too many open files.
const EIO: i32 = 5;
const EMFILE: i32 = 24;

/// The library that makes calls fail, and the file that says which.
pub(crate) struct Faults {
    library: PathBuf,
    orders: PathBuf,
}

impl Faults {
    /// Compiles the library into a directory.
    pub(crate) fn new(dir: &Path) -> Self {
        let library = dir.join("faults.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/faults.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl");
        assert!(compiler.status().expect("cc can be run").success(), "faults.c does not compile");
        Self { library, orders: dir.join("orders") }
    }

    /// Environment of a process whose calls are to fail.
    pub(crate) fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", self.library.clone()), ("PARTITA_FAULTS", self.orders.clone())]
    }

    /// From now on calls of that name fail with that error, for files whose paths contain `part`.
    pub(crate) fn order(&self, call: &str, error: i32, part: &str) {
        // Whole or not at all: it is read all the time.
        let new = self.orders.with_extension("new");
        std::fs::write(&new, format!("{call} {error} {part}\n")).unwrap();
        std::fs::rename(new, &self.orders).unwrap();
    }

    /// Nothing fails any more.
    fn relent(&self) {
        std::fs::remove_file(&self.orders).unwrap();
    }

    fn standalone(&self, data: &Path) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_partita"));
        command.args(["standalone", "--http", "127.0.0.1:0", "--postgres", "127.0.0.1:0"]);
        command.arg("--data-dir").arg(data).envs(self.environment());
        let log = data.with_extension("log");
        Server::spawn(command, &log).unwrap_or_else(|log| panic!("it did not start:\n{log}"))
    }
}

const TABLE: &str = "CREATE TABLE t (id BIGINT, PRIMARY KEY (id))";

async fn insert(client: &tokio_postgres::Client, id: i64) -> Result<(), tokio_postgres::Error> {
    client.batch_execute(&format!("INSERT INTO t VALUES ({id})")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_cannot_be_written_or_synced_ends_the_process_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let faults = Faults::new(dir.path());
    let data = dir.path().join("data");
    let mut acknowledged = 0;
    for call in ["fdatasync", "pwrite"] {
        let mut server = faults.standalone(&data);
        let client = server.connect().await;
        if acknowledged == 0 {
            client.batch_execute(TABLE).await.unwrap();
        }
        for _ in 0..20 {
            insert(&client, acknowledged).await.unwrap();
            acknowledged += 1;
        }
        faults.order(call, EIO, "/log/0");
        assert!(insert(&client, -1).await.is_err(), "{call}: it was acknowledged");
        assert_eq!(server.ended(PATIENCE), Some(EXIT_IO_ERROR), "{call}:\n{}", server.log());
        assert!(server.log().contains("the log has failed"), "{}", server.log());
        faults.relent();
    }
    let server = faults.standalone(&data);
    let client = server.connect().await;
    assert_eq!(
        one(&client, "SELECT count(*) FROM t WHERE id >= 0").await,
        acknowledged.to_string(),
        "{}",
        server.log()
    );
    insert(&client, acknowledged).await.unwrap();
    assert_eq!(http(server.http, "GET", "/ready", b"").await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_one_partition_that_fail_stop_that_partition_and_health_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let faults = Faults::new(dir.path());
    let server = faults.standalone(&dir.path().join("data"));
    let client = server.connect().await;
    client.batch_execute(TABLE).await.unwrap();
    client.batch_execute("CREATE TABLE other (id BIGINT, PRIMARY KEY (id))").await.unwrap();
    let partition = one(&client, "SELECT partition FROM sys.replicas WHERE \"table\" = 't'").await;
    insert(&client, 1).await.unwrap();
    assert_eq!(http(server.http, "GET", "/health", b"").await.0, 200);
    // The manifest: afterwards nobody knows what it says.
    faults.order("fsync", EIO, &format!("/partitions/{partition}/manifest"));
    assert!(client.batch_execute("ADMIN flush_table('t')").await.is_err());
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (status, body) = http(server.http, "GET", "/health", b"").await;
        if status == 503 {
            assert!(body.contains(&format!("partition {partition}")), "{body}");
            break;
        }
        assert!(Instant::now() < deadline, "health says well:\n{}", server.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (status, body) = http(server.http, "GET", "/ready", b"").await;
    assert_eq!(status, 503, "{body}");
    assert_eq!(failure(&client, "INSERT INTO t VALUES (2)").await.0, "58030", "{}", server.log());
    client.batch_execute("INSERT INTO other VALUES (1)").await.unwrap();
    assert_eq!(one(&client, "SELECT count(*) FROM other").await, "1");
    // A start looks at what is really there.
    faults.relent();
    server.kill();
    let server = faults.standalone(&dir.path().join("data"));
    let client = server.connect().await;
    assert_eq!(one(&client, "SELECT count(*) FROM t").await, "1");
    assert_eq!(http(server.http, "GET", "/health", b"").await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_sockets_than_files_leave_the_log_alone() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let binary = env!("CARGO_BIN_EXE_partita");
    let script = format!(
        "ulimit -n 256 && exec {binary} standalone --data-dir {} --http 127.0.0.1:0 --postgres 127.0.0.1:0",
        data.display()
    );
    let mut command = Command::new("sh");
    command.arg("-c").arg(script);
    let server = Server::spawn(command, &dir.path().join("server.log"))
        .unwrap_or_else(|log| panic!("it did not start:\n{log}"));
    let client = server.connect().await;
    client.batch_execute(TABLE).await.unwrap();
    let mut sockets = Vec::new();
    for _ in 0..150 {
        for address in [server.http, server.postgres] {
            sockets.extend(tokio::net::TcpStream::connect(address).await);
        }
    }
    for id in 0..50 {
        insert(&client, id).await.unwrap_or_else(|error| panic!("{error}\n{}", server.log()));
    }
    client.batch_execute("ADMIN flush_table('t')").await.unwrap();
    assert_eq!(one(&client, "SELECT count(*) FROM t").await, "50");
    drop(sockets);
    assert!(!server.log().contains("os error 24"), "{}", server.log());
    assert!(server.stop(), "it did not stop cleanly");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_record_of_one_partition_is_named_and_the_others_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Server::start(&data);
    let client = server.connect().await;
    client.batch_execute(TABLE).await.unwrap();
    client
        .batch_execute("CREATE TABLE other (id BIGINT, name STRING, PRIMARY KEY (id))")
        .await
        .unwrap();
    let partition =
        one(&client, "SELECT partition FROM sys.replicas WHERE \"table\" = 'other'").await;
    insert(&client, 1).await.unwrap();
    let word = "a word that is found again";
    client.batch_execute(&format!("INSERT INTO other VALUES (1, '{word}')")).await.unwrap();
    server.kill();
    // The last record of the log, which one would take for one that was never written whole.
    let segment = data.join("log/0000000001.log");
    let mut bytes = std::fs::read(&segment).unwrap();
    let place = bytes.windows(word.len()).rposition(|found| found == word.as_bytes()).unwrap();
    bytes[place..place + 2].copy_from_slice(b"xy");
    std::fs::write(&segment, bytes).unwrap();
    let server = Server::start(&data);
    let client = server.connect().await;
    assert_eq!(one(&client, "SELECT count(*) FROM t").await, "1");
    insert(&client, 2).await.unwrap();
    assert_eq!(failure(&client, "SELECT * FROM other").await.0, "XX001");
    let (status, body) = http(server.http, "GET", "/health", b"").await;
    assert!(status == 503 && body.contains(&format!("partition {partition}")), "{status} {body}");
    assert!(server.stop(), "it did not stop cleanly");
    // Somebody accepts that the row is gone.
    let server = Server::try_start(&data, &["--accept-damage", &partition])
        .unwrap_or_else(|log| panic!("it did not start:\n{log}"));
    let client = server.connect().await;
    assert_eq!(one(&client, "SELECT count(*) FROM other").await, "0", "{}", server.log());
    client.batch_execute("INSERT INTO other VALUES (2, 'more')").await.unwrap();
    assert_eq!(http(server.http, "GET", "/health", b"").await.0, 200);
    assert!(server.stop(), "it did not stop cleanly");
    let server = Server::start(&data);
    let client = server.connect().await;
    assert_eq!(one(&client, "SELECT count(*) FROM other").await, "1", "{}", server.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_partition_holds_up_none_of_its_neighbours() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Server::start(&data);
    let client = server.connect().await;
    client
        .batch_execute(
            "CREATE TABLE t (id BIGINT, PRIMARY KEY (id)) PARTITION BY RANGE (id) SPLIT AT ((100), (200))",
        )
        .await
        .unwrap();
    client.batch_execute("INSERT INTO t VALUES (1), (150), (250)").await.unwrap();
    client.batch_execute("ADMIN flush_table('t')").await.unwrap();
    let left = one(&client, "SELECT min(partition) FROM sys.replicas WHERE \"table\" = 't'").await;
    assert!(server.stop(), "it did not stop cleanly");
    let files = data.join("partitions").join(&left).join("files");
    for entry in std::fs::read_dir(files).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let footer = bytes.len() - 20;
        bytes[footer] ^= 4;
        std::fs::write(&path, bytes).unwrap();
    }
    // The damaged partition and its idle neighbours are served from now on; none is merged while their age is unknown.
    let server = Server::start(&data);
    let client = server.connect().await;
    client.batch_execute("SET statement_timeout = '10s'").await.unwrap();
    for id in 0..25 {
        client
            .batch_execute(&format!("INSERT INTO t VALUES ({})", 151 + id))
            .await
            .unwrap_or_else(|error| panic!("{error}\n{}", server.log()));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(one(&client, "SELECT count(*) FROM t WHERE id >= 100").await, "27");
    assert_eq!(failure(&client, "SELECT * FROM t WHERE id < 100").await.0, "XX001");
    let (status, body) = http(server.http, "GET", "/health", b"").await;
    assert!(status == 503 && body.contains(&format!("partition {left}")), "{body}");
    assert!(server.stop(), "it did not stop cleanly");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_header_that_cannot_be_read_stops_no_group_whose_entries_go_on_behind_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Server::start(&data);
    let client = server.connect().await;
    client.batch_execute(TABLE).await.unwrap();
    client
        .batch_execute("CREATE TABLE other (id BIGINT, name STRING, PRIMARY KEY (id))")
        .await
        .unwrap();
    let partition =
        one(&client, "SELECT partition FROM sys.replicas WHERE \"table\" = 'other'").await;
    let word = "a word that is found again";
    insert(&client, 1).await.unwrap();
    for table in ["t", "other"] {
        // A replica that has nothing in files does not know that it is alone.
        client.batch_execute(&format!("ADMIN flush_table('{table}')")).await.unwrap();
    }
    client.batch_execute(&format!("INSERT INTO other VALUES (1, '{word}')")).await.unwrap();
    insert(&client, 2).await.unwrap();
    // The catalog's log goes on as well.
    client.batch_execute("CREATE TABLE third (id BIGINT, PRIMARY KEY (id))").await.unwrap();
    server.kill();
    let segment = data.join("log/0000000001.log");
    let mut bytes = std::fs::read(&segment).unwrap();
    let place = bytes.windows(word.len()).rposition(|found| found == word.as_bytes()).unwrap();
    let header = record_at(&bytes, place);
    bytes[header + 16..header + 32].fill(0x5a);
    std::fs::write(&segment, bytes).unwrap();
    let server = Server::start(&data);
    let client = server.connect().await;
    assert_eq!(one(&client, "SELECT count(*) FROM t").await, "2", "{}", server.log());
    assert_eq!(failure(&client, "SELECT * FROM other").await.0, "XX001");
    assert!(server.log().contains(&format!("--accept-damage {partition}")), "{}", server.log());
    client.batch_execute("INSERT INTO third VALUES (1)").await.unwrap();
}

/// Where the record begins that a place of a segment lies in: 56 bytes of header with the payload's length, the payload,
/// and zeros up to a multiple of 8.
fn record_at(segment: &[u8], place: usize) -> usize {
    let mut start = 0;
    loop {
        let length = u32::from_le_bytes(segment[start + 4..start + 8].try_into().unwrap());
        let next = (start + 56 + length as usize).next_multiple_of(8);
        if next > place {
            return start;
        }
        start = next;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_the_log_cannot_open_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let faults = Faults::new(dir.path());
    let server = faults.standalone(&dir.path().join("data"));
    let client = server.connect().await;
    client.batch_execute(TABLE).await.unwrap();
    faults.order("open", EMFILE, "/log/");
    for id in 0..20 {
        insert(&client, id).await.unwrap_or_else(|error| panic!("{error}\n{}", server.log()));
    }
    faults.relent();
    assert_eq!(one(&client, "SELECT count(*) FROM t").await, "20");
    assert!(server.stop(), "it did not stop cleanly");
}

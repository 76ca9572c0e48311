//! Starting and stopping: what a person sees when something is in the way.

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use crate::server::{Server, http, one};

#[tokio::test]
async fn rows_and_tables_survive_a_clean_stop() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Server::start(&data);
    let client = server.connect().await;
    client
        .batch_execute(
            "CREATE TABLE t (host STRING, ts TIMESTAMP(3) TIME INDEX, v DOUBLE, PRIMARY KEY (host));
             INSERT INTO t VALUES ('a', '2026-01-01 00:00:00', 1.5), ('b', '2026-01-01 00:00:01', NULL)",
        )
        .await
        .unwrap();
    assert!(server.stop(), "did not stop cleanly");
    let server = Server::start(&data);
    let client = server.connect().await;
    assert_eq!(one(&client, "SELECT count(*) FROM t").await, "2");
    assert_eq!(one(&client, "SELECT v FROM t WHERE host = 'a'").await, "1.5");
}

#[tokio::test]
async fn starts_leave_no_directories_of_spilled_queries_behind() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let directories = || {
        let entries = std::fs::read_dir(data.join("spill")).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
    };
    for _ in 0..2 {
        let server = Server::start(&data);
        assert_eq!(directories(), 1, "that of the process that runs");
        server.kill();
    }
    let server = Server::start(&data);
    // The new directory is used.
    let client = server.connect().await;
    assert_eq!(one(&client, "SELECT count(*) FROM generate_series(1, 10)").await, "10");
    assert_eq!(directories(), 1);
    assert!(server.stop(), "did not stop cleanly");
    assert_eq!(directories(), 0);
}

/// The greatest rate in the picture of table `t` before a second.
async fn greatest_rate(server: &Server, before_s: u64) -> f64 {
    let (_, body) = http(server.http, "GET", "/v1/heatmap.json?table=t", b"").await;
    let picture: Value = serde_json::from_str(&body).unwrap_or_default();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let times: Vec<u64> = list(&picture["times"]).iter().filter_map(Value::as_u64).collect();
    let rows = list(&picture["cells"]);
    let cells = rows.iter().flat_map(|row| list(row).into_iter().zip(&times));
    let early = cells.filter(|(_, time)| **time < before_s);
    early.filter_map(|(cell, _)| cell.as_f64()).fold(0.0, f64::max)
}

#[tokio::test]
async fn pictures_of_load_survive_a_clean_stop() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Server::start(&data);
    let client = server.connect().await;
    client.batch_execute("CREATE TABLE t (id BIGINT PRIMARY KEY)").await.unwrap();
    let start = Instant::now();
    while greatest_rate(&server, u64::MAX).await == 0.0 {
        assert!(start.elapsed() < Duration::from_secs(60), "the picture has no rows");
        let insert = "INSERT INTO t SELECT n FROM generate_series(0, 999) AS s(n)";
        client.batch_execute(insert).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(server.stop(), "did not stop cleanly");
    let stopped = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    assert!(data.join("meta").join("load").join("history.load").exists());
    let server = Server::start(&data);
    // Nothing has been written since.
    let start = Instant::now();
    while greatest_rate(&server, stopped.as_secs()).await == 0.0 {
        assert!(start.elapsed() < Duration::from_secs(30), "the picture has forgotten the rows");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn a_taken_port_is_said_by_its_number_and_option() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let log = Server::try_start(&dir.path().join("data"), &["--http", &address]).err().unwrap();
    assert!(log.contains(&address) && log.contains("--http"), "{log}");
}

#[test]
fn a_frontend_refuses_who_comes_before_it_has_heard_of_meta_and_says_what_it_waits_for() {
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (meta, http, postgres) = (free().to_string(), free().to_string(), free());
    let mut frontend = Command::new(env!("CARGO_BIN_EXE_partita"))
        .args(["frontend", "--meta", &meta, "--http", &http])
        .args(["--postgres", &postgres.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = BufReader::new(frontend.stderr.take().unwrap());
    let waits = log.lines().map_while(Result::ok).find(|line| line.contains("waiting for meta"));
    let refused = TcpStream::connect(postgres);
    frontend.kill().unwrap();
    frontend.wait().unwrap();
    assert!(waits.is_some_and(|line| line.contains(&meta)));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_directory_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let _server = Server::start(&data);
    let log = Server::try_start(&data, &[]).err().expect("two servers over one directory");
    assert!(log.contains("in use") || log.contains("lock"), "{log}");
}

#[tokio::test]
async fn a_partition_that_is_gone_from_the_disk_is_missed_and_whole_when_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Server::start(&data);
    let client = server.connect().await;
    let made = "CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (1)";
    client.batch_execute(made).await.unwrap();
    let partition = one(&client, "SELECT partition FROM sys.partitions").await;
    // Its row is in the log only.
    server.kill();
    let (place, elsewhere) = (data.join("partitions").join(&partition), dir.path().join("away"));
    std::fs::rename(&place, &elsewhere).unwrap();
    let log = Server::try_start(&data, &[]).err().expect("a server without its rows");
    let named = format!("partition {partition} is in the log, but its files are missing");
    assert!(log.contains(&named), "{log}");
    // As the place where a disk should be mounted: the partition is not served, the others are.
    std::fs::create_dir(&place).unwrap();
    let server = Server::start(&data);
    let client = server.connect().await;
    for sql in ["SELECT count(*) FROM t", "INSERT INTO t VALUES (2)"] {
        let error = client.batch_execute(sql).await.unwrap_err();
        let error = error.as_db_error().expect("an error of the server").message().to_owned();
        assert!(error.contains(&format!("partition {partition} ")), "{sql}: {error}");
    }
    let other = "CREATE TABLE other (id BIGINT PRIMARY KEY); INSERT INTO other VALUES (1)";
    client.batch_execute(other).await.unwrap();
    server.kill();
    std::fs::remove_dir(&place).unwrap();
    std::fs::rename(&elsewhere, &place).unwrap();
    let server = Server::start(&data);
    let client = server.connect().await;
    assert_eq!(one(&client, "SELECT count(*) FROM t").await, "1");
    assert_eq!(one(&client, "SELECT count(*) FROM other").await, "1");
    assert!(server.stop(), "did not stop cleanly");
    // It is given up where that is said.
    std::fs::rename(&place, &elsewhere).unwrap();
    std::fs::create_dir(data.join("partitions").join(format!("{partition}.dropped"))).unwrap();
    let log = Server::try_start(&data, &[]).err().expect("a server without its rows");
    let named = format!("partition \"{partition} (neither on this disk nor in a log)\"");
    assert!(log.contains(&named), "{log}");
}

#[test]
fn a_directory_of_another_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("PARTITA"), "format 99\n").unwrap();
    let log = Server::try_start(&data, &[]).err().unwrap();
    assert!(log.contains("format 99"), "{log}");
}

#[test]
fn an_unwritable_directory_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let log = Server::try_start(&file.join("data"), &[]).err().unwrap();
    assert!(log.contains("cannot create the data directory"), "{log}");
}

#[test]
fn listening_beyond_loopback_needs_to_be_said() {
    let dir = tempfile::tempdir().unwrap();
    let log = Server::try_start(&dir.path().join("data"), &["--http", "0.0.0.0:0"]).err().unwrap();
    assert!(log.contains("--insecure"), "{log}");
}

#[tokio::test]
async fn what_show_create_table_prints_makes_the_same_table() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"));
    let client = server.connect().await;
    let tables = [
        "CREATE TABLE t (message STRING NULL FULLTEXT INDEX WITH(analyzer = 'English'), ts TIMESTAMP(9) NOT NULL, \
         TIME INDEX (ts),) with ('append_mode'='true')",
        "CREATE TABLE t (a INT INVERTED INDEX SKIPPING INDEX WITH (granularity = 1000, name = 'Of a'), b STRING, \
         ts TIMESTAMP(3) TIME INDEX, FULLTEXT INDEX (b) WITH (backend = 'inverted'), PRIMARY KEY (b))",
        "CREATE TABLE t (h BIGINT UNSIGNED GENERATED ALWAYS AS (hash64(userid)) STORED, userid BIGINT NOT NULL, \
         ts TIMESTAMP(3) DEFAULT now() TIME INDEX, \"odd Name\" DECIMAL(10, 2) DEFAULT 1.50, PRIMARY KEY (h, userid, ts)) \
         PARTITION BY RANGE (h) SPLIT AT ((5), (9223372036854775808)) WITH ('ttl' = '7d', 'merge_mode' = 'last_non_null')",
        "CREATE TABLE t (a INT, b STRING, ts TIMESTAMP(6) TIME INDEX, PRIMARY KEY (a, b)) PARTITION ON COLUMNS (a, b) \
         (a < 10 AND b < 'm', a < 10 AND b >= 'm', a >= 10)",
        "CREATE TABLE t (a INT, ts TIMESTAMP(0) TIME INDEX, PRIMARY KEY (a)) PARTITION BY HASH (a) PARTITIONS 5",
    ];
    for sql in tables {
        client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        let shown = second(&client, "SHOW CREATE TABLE t").await;
        client.batch_execute("DROP TABLE t").await.unwrap();
        client.batch_execute(&shown).await.unwrap_or_else(|error| panic!("{shown}: {error:?}"));
        assert_eq!(second(&client, "SHOW CREATE TABLE t").await, shown);
        client.batch_execute("DROP TABLE t").await.unwrap();
    }
}

/// The second column of a query's only row.
async fn second(client: &tokio_postgres::Client, sql: &str) -> String {
    let rows = client.simple_query(sql).await.unwrap();
    rows.iter()
        .find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(1).map(str::to_owned),
            _ => None,
        })
        .expect("a row of two columns")
}

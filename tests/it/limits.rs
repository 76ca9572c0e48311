//! What happens at the bounds: a full disk, a request that never ends, two writers at once.

use std::process::Command;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::server::{Server, failure, http, one};

/// A server whose data directory is a file system of a few hundred MiB, in a mount name space of its
/// own, so that no privilege is needed.
fn start_on_small_disk(dir: &std::path::Path, mebibytes: u32) -> Result<Server, String> {
    let mount = dir.join("small");
    std::fs::create_dir_all(&mount).unwrap();
    let script = format!(
        "mount -t tmpfs -o size={mebibytes}m tmpfs {mount} && \
         exec {binary} standalone --data-dir {mount}/data --http 127.0.0.1:0 --postgres 127.0.0.1:0 \
         --memtable-mb 8 --log-mb 128",
        mount = mount.display(),
        binary = env!("CARGO_BIN_EXE_partita"),
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "--", "sh", "-c"]).arg(script);
    Server::spawn(command, &dir.join("small.log"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_writes_clearly_and_loses_nothing_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_on_small_disk(dir.path(), 300).unwrap_or_else(|log| panic!("{log}"));
    let client = server.connect().await;
    client
        .batch_execute(
            "CREATE TABLE t (ts TIMESTAMP(3) TIME INDEX, id BIGINT, pad STRING) WITH ('append_mode' = 'true')",
        )
        .await
        .unwrap();
    let mut acknowledged = 0i64;
    let mut refused = None;
    // Text that does not compress, so that 300 MiB are full soon.
    let mut state = 88_172_645_463_325_252u64;
    let mut noise = || {
        let mut text = String::with_capacity(16_384);
        while text.len() < 16_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            text.push_str(&format!("{state:016x}"));
        }
        text
    };
    for _ in 0..3_000 {
        let rows: Vec<_> = (acknowledged..acknowledged + 20)
            .map(|id| format!("({id}, {id}, '{}')", noise()))
            .collect();
        let sql = format!("INSERT INTO t (ts, id, pad) VALUES {}", rows.join(", "));
        let sent = tokio::time::timeout(Duration::from_secs(60), client.batch_execute(&sql)).await;
        match sent.expect("a write on a full disk must be answered") {
            Ok(()) => acknowledged += 20,
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    let refused = refused.expect("300 MiB took more than 900 MB");
    let said = refused.as_db_error().unwrap_or_else(|| panic!("{refused}\n{}", server.log()));
    assert!(
        said.code().code() == "53100" || said.code().code() == "53400",
        "SQLSTATE {} {}",
        said.code().code(),
        said.message()
    );
    // Reads go on, and everything acknowledged is there.
    let client = server.connect().await;
    let found: i64 =
        one(&client, &format!("SELECT count(DISTINCT id) FROM t WHERE id < {acknowledged}"))
            .await
            .parse()
            .unwrap();
    assert_eq!(found, acknowledged, "{}", server.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_stops_in_the_middle_stores_nothing_and_harms_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"));
    let mut stream = tokio::net::TcpStream::connect(server.http).await.unwrap();
    stream
        .write_all(b"POST /api/v2/write?bucket=public HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nhalf,t=a v=1 1\n")
        .await
        .unwrap();
    drop(stream);
    let mut stream = tokio::net::TcpStream::connect(server.postgres).await.unwrap();
    stream.write_all(&[0, 0, 0, 80, 0, 3]).await.unwrap();
    drop(stream);
    let mut stream = tokio::net::TcpStream::connect(server.postgres).await.unwrap();
    stream.write_all(&[0xff; 64]).await.unwrap();
    let mut answer = Vec::new();
    // It may answer with an error or just close; it must not hang on to the connection for ever.
    drop(
        tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut answer))
            .await
            .unwrap(),
    );
    let (status, _) =
        http(server.http, "POST", "/api/v2/write?bucket=public", b"whole,t=a v=1 1\n").await;
    assert_eq!(status, 204, "{}", server.log());
    let client = server.connect().await;
    assert_eq!(one(&client, "SELECT count(*) FROM whole").await, "1");
    assert_eq!(failure(&client, "SELECT * FROM half").await.0, "42P01");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_writers_of_the_same_keys_leave_one_whole_row_for_each() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"));
    let client = server.connect().await;
    client
        .batch_execute("CREATE TABLE t (id BIGINT, a BIGINT, b BIGINT, PRIMARY KEY (id))")
        .await
        .unwrap();
    let writers: Vec<_> = (0..2i64)
        .map(|writer| {
            let connect = server.try_connect("public");
            async move {
                let client = connect.await.unwrap();
                for round in 0..50i64 {
                    let rows: Vec<_> = (0..20)
                        .map(|id| format!("({id}, {v}, {v})", v = round * 2 + writer))
                        .collect();
                    client
                        .batch_execute(&format!("INSERT INTO t VALUES {}", rows.join(", ")))
                        .await
                        .unwrap();
                }
            }
        })
        .collect();
    futures::future::join_all(writers).await;
    assert_eq!(one(&client, "SELECT count(*) FROM t").await, "20");
    assert_eq!(one(&client, "SELECT count(*) FROM t WHERE a <> b").await, "0");
    assert_eq!(one(&client, "SELECT count(*) FROM t WHERE a < 98").await, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_that_bring_a_table_and_its_columns_at_once_lose_no_row() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"));
    let writers = (0..24).map(|writer| {
        let address = server.http;
        tokio::spawn(async move {
            let line =
                format!("m,t{}=x,w=w{writer} f{}=1,shared=1 {writer}\n", writer % 3, writer % 5);
            http(address, "POST", "/api/v2/write?bucket=fresh", line.as_bytes()).await
        })
    });
    for answer in futures::future::join_all(writers).await {
        let (status, body) = answer.unwrap();
        assert_eq!(status, 204, "{body}\n{}", server.log());
    }
    let client = server.try_connect("fresh").await.unwrap();
    assert_eq!(one(&client, "SELECT count(*) FROM m").await, "24");
    assert_eq!(one(&client, "SELECT count(shared) FROM m").await, "24");
    assert_eq!(one(&client, "SELECT count(DISTINCT w) FROM m WHERE t0 = 'x'").await, "8");
}

//! Data directories of former builds, which must open for ever (or until `PARTITA` in them says another version).
//!
//! `former/NAME.tar.gz` is the directory of a server that was killed outright after it had run `former/NAME.make.sql`
//! with holes in place of the zeros (`fallocate -d`, `tar -S`).
//! `former/NAME.sql` holds queries, `former/NAME.expected` their answers by that server. A build that changes a durable
//! form adds a directory of the build before.

use std::path::Path;
use std::process::Command;

use tokio_postgres::{Client, SimpleQueryMessage};

use crate::server::{Server, one};

/// Rows of some queries as psql prints them: values divided by bars, NULL as nothing.
async fn answers(client: &Client, sql: &str) -> String {
    let mut text = String::new();
    for message in client.simple_query(sql).await.expect("the queries are answered") {
        if let SimpleQueryMessage::Row(row) = message {
            let values: Vec<&str> =
                (0..row.len()).map(|n| row.get(n).unwrap_or_default()).collect();
            text.push_str(&values.join("|"));
            text.push('\n');
        }
    }
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_data_directory_of_a_former_build_opens() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/former");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let (queries, expected) = (read("2026-11.sql"), read("2026-11.expected"));
    let dir = tempfile::tempdir().unwrap();
    let archive = folder.join("2026-11.tar.gz");
    let unpacked = Command::new("tar").arg("-xzf").arg(archive).current_dir(dir.path()).status();
    assert!(unpacked.expect("tar can be run").success());
    let data = dir.path().join("data");

    let server = Server::start(&data);
    let client = server.connect().await;
    assert_eq!(answers(&client, &queries).await, expected);

    // It is a directory like any other: rows are written, partitions are cut and merged, files are written anew.
    client
        .batch_execute(
            "INSERT INTO ranges (k, ts, v) VALUES (1001, '2024-01-02', 2);
             DELETE FROM ranges WHERE k = 1001;
             ALTER TABLE ranges SPLIT AT ((50));
             ADMIN flush_table('rules')",
        )
        .await
        .unwrap();
    assert_eq!(answers(&client, &queries).await, expected);
    assert!(server.stop());
    let server = Server::start(&data);
    let client = server.connect().await;
    assert_eq!(answers(&client, &queries).await, expected);
    let parts = "SELECT count(*) FROM sys.partitions WHERE \"table\" = 'ranges'";
    assert_eq!(one(&client, parts).await, "5");
    assert!(server.stop());
}

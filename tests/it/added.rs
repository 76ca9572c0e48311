//! A column that is added with a default, through files, splits, merges and a crash.

use tokio_postgres::{Client, SimpleQueryMessage};

use crate::server::{Server, one};

/// Figures of `t` that any row with a wrong value of `b` or `s` changes: 400 rows are from before the columns.
async fn check(client: &Client, when: &str) {
    for run_at_data in ["off", "always"] {
        client.batch_execute(&format!("SET run_at_data = {run_at_data}")).await.unwrap();
        for (sql, expected) in [
            ("SELECT count(*) FROM t", "410"),
            ("SELECT sum(b) FROM t", "2880"),
            ("SELECT count(*) FROM t WHERE b = 7", "400"),
            ("SELECT count(*) FROM t WHERE b > 7", "10"),
            ("SELECT count(*) FROM t WHERE b IS NULL", "0"),
            ("SELECT count(*) FROM t WHERE s = 'old'", "400"),
            ("SELECT count(DISTINCT s) FROM t", "2"),
            ("SELECT max(k) FROM t WHERE b = 7 AND s = 'old'", "399"),
            ("SELECT count(DISTINCT at) FROM t WHERE at < now()", "11"),
        ] {
            assert_eq!(one(client, sql).await, expected, "{when}, at data {run_at_data}: {sql}");
        }
    }
}

/// Partitions of `t`, in the order of their ranges.
async fn partitions(client: &Client) -> Vec<String> {
    let sql =
        "SELECT partition FROM sys.partitions WHERE \"table\" = 't' ORDER BY start_key NULLS FIRST";
    let mut found = Vec::new();
    for message in client.simple_query(sql).await.unwrap() {
        if let SimpleQueryMessage::Row(row) = message {
            found.push(row.get(0).unwrap().to_owned());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_added_default_stays_through_splits_merges_and_crashes() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Server::start(&data);
    let client = server.connect().await;
    client
        .batch_execute(
            "CREATE TABLE t (k BIGINT, a BIGINT, PRIMARY KEY (k)) WITH (
                 AUTO_PARTITIONING_BY_LOAD = DISABLED, AUTO_PARTITIONING_BY_SIZE = DISABLED);
             INSERT INTO t SELECT n, n FROM generate_series(0, 199) AS g(n);
             ADMIN flush_table('t');
             INSERT INTO t SELECT n, n FROM generate_series(200, 399) AS g(n);
             ALTER TABLE t ADD COLUMN b BIGINT DEFAULT 7, ADD COLUMN s STRING NOT NULL DEFAULT 'old',
                 ADD COLUMN at TIMESTAMP(3) DEFAULT now();
             ALTER TABLE t ALTER COLUMN b SET DEFAULT 8, ALTER COLUMN s SET DEFAULT 'new'",
        )
        .await
        .unwrap();
    for k in 400..410 {
        let at = format!("2024-01-01 00:00:{:02}", k - 400);
        client
            .batch_execute(&format!("INSERT INTO t (k, a, at) VALUES ({k}, {k}, '{at}')"))
            .await
            .unwrap();
    }
    check(&client, "in memory").await;
    server.kill();
    let server = Server::start(&data);
    let client = server.connect().await;
    check(&client, "after a crash").await;
    client.batch_execute("ALTER TABLE t SPLIT AT ((100), (300))").await.unwrap();
    check(&client, "split").await;
    server.kill();
    let server = Server::start(&data);
    let client = server.connect().await;
    check(&client, "split, after a crash").await;
    let parts = partitions(&client).await;
    assert_eq!(parts.len(), 3);
    let merge = format!("ALTER TABLE t MERGE PARTITIONS ({}, {})", parts[0], parts[1]);
    client.batch_execute(&merge).await.unwrap();
    check(&client, "merged").await;
    client.batch_execute("ADMIN flush_table('t')").await.unwrap();
    check(&client, "flushed").await;
    client.batch_execute("ADMIN compact_table('t')").await.unwrap();
    check(&client, "compacted").await;
    assert!(server.stop());
    let server = Server::start(&data);
    check(&server.connect().await, "opened again").await;
}

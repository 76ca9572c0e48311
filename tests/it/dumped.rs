//! `partita dump` and `partita load`: what is dumped of one database comes back in another one.

use std::path::Path;
use std::process::{Command, Output};

use tokio_postgres::{Client, SimpleQueryMessage};

use crate::server::Server;

const SETUP: &str = "
    CREATE TABLE plain (k INT PRIMARY KEY, s STRING, d DECIMAL(20, 3), at TIMESTAMP(6), b BOOLEAN, f DOUBLE);
    INSERT INTO plain VALUES (1, 'a,\"b\"', 1234567890123.456, '2026-01-02 03:04:05.000006', true, 0.5),
        (2, '', NULL, NULL, false, 'NaN'), (3, NULL, -1, NULL, NULL, NULL);
    CREATE TABLE \"Odd name/x\" (k STRING PRIMARY KEY, \"A b\" INT, twice INT GENERATED ALWAYS AS (\"A b\" * 2) STORED);
    INSERT INTO \"Odd name/x\" (k, \"A b\") VALUES ('x', 21);
    CREATE SEQUENCE counter START WITH 10 INCREMENT BY 5;
    CREATE TABLE counted (id BIGINT DEFAULT nextval('counter') PRIMARY KEY, v INT);
    INSERT INTO counted (v) VALUES (1), (2);
    CREATE VIEW z AS SELECT k FROM plain;
    CREATE VIEW a AS SELECT k FROM z;
    CREATE DATABASE second;
    CREATE DATABASE third";

fn partita(server: &Server, command: &str, path: &Path, rest: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_partita"))
        .arg(command)
        .arg(path)
        .args(["--postgres", &server.postgres.to_string(), "--http", &server.http.to_string()])
        .args(rest)
        .output()
        .unwrap()
}

fn succeed(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

async fn lines(client: &Client, query: &str) -> Vec<String> {
    let messages = client.simple_query(query).await.unwrap();
    let rows = messages.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            let cell = |column: usize| row.get(column).unwrap_or("NULL").to_owned();
            Some((0..row.len()).map(cell).collect::<Vec<_>>().join("|"))
        }
        _ => None,
    });
    rows.collect()
}

#[tokio::test]
async fn a_database_comes_back_from_its_dump_in_each_format() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"));
    let client = server.connect().await;
    client.batch_execute(SETUP).await.unwrap();
    for (format, database) in [("csv", "second"), ("ndjson", "third")] {
        let dump = dir.path().join(format);
        succeed(&partita(&server, "dump", &dump, &["--format", format]));
        succeed(&partita(&server, "load", &dump, &["--database", database]));
        for table in ["plain", "\"Odd name/x\"", "counted", "a"] {
            let query_of = |database: &str| format!("SELECT * FROM {database}.{table} ORDER BY 1");
            let before = lines(&client, &query_of("public")).await;
            assert!(!before.is_empty(), "{table}");
            assert_eq!(lines(&client, &query_of(database)).await, before, "{format}: {table}");
        }
    }
    // The rows alone, once more, replace themselves.
    let dump = dir.path().join("parquet");
    succeed(&partita(&server, "dump", &dump, &["--format", "parquet", "--table", "plain"]));
    client.batch_execute("DELETE FROM second.plain").await.unwrap();
    for _ in 0..2 {
        succeed(&partita(&server, "load", &dump, &["--database", "second", "--data-only"]));
        assert_eq!(lines(&client, "SELECT count(*) FROM second.plain").await, ["3"]);
    }
    let repeated = partita(&server, "dump", &dump, &[]);
    assert!(String::from_utf8_lossy(&repeated.stderr).contains("exists"));
}

#[tokio::test]
async fn an_error_of_a_file_has_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"));
    let client = server.connect().await;
    client.batch_execute("CREATE TABLE t (k INT PRIMARY KEY, v INT)").await.unwrap();
    let csv = dir.path().join("t.csv");
    std::fs::write(&csv, "k,v\n1,1\n2,x\n").unwrap();
    let output = partita(&server, "load", &csv, &["--table", "t"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("COPY t, line 3, column v"), "{text}");
    let ndjson = dir.path().join("t.ndjson");
    std::fs::write(&ndjson, "\n{\"v\": 1, \"k\": 1}\n{\"k\": 2, \"v\": \"x\"}\n").unwrap();
    let output = partita(&server, "load", &ndjson, &["--table", "t"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("COPY t, line 3, column v"), "{text}");
}

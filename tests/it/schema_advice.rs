//! Mistakes in schemas, as a server and the commands find them, and the statements that they advise, run.

use std::process::Command;

use crate::server::{Server, failure, one};

/// Runs a command of the binary; exit code and output.
fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_partita")).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), text + &String::from_utf8_lossy(&output.stderr))
}

#[tokio::test]
async fn the_statements_that_are_advised_can_be_run() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(&data.path().join("data"));
    let client = server.connect().await;
    // Numbers kept as text, a reserved word, and a time index with an index.
    client
        .batch_execute(
            "CREATE TABLE home (room STRING NOT NULL, ts TIMESTAMP TIME INDEX SKIPPING INDEX, temp STRING, \"order\" STRING, \
             PRIMARY KEY (room))",
        )
        .await
        .unwrap();
    let rows: Vec<String> = (0..200)
        .map(|number| {
            let (minute, second) = (number / 60, number % 60);
            format!(
                "('kitchen', '2021-01-01 00:{minute:02}:{second:02}', '{}.5', 'x y')",
                number % 40
            )
        })
        .collect();
    client.batch_execute(&format!("INSERT INTO home VALUES {}", rows.join(", "))).await.unwrap();
    let found = "SELECT string_agg(rule, ' ' ORDER BY rule) FROM sys.advice WHERE starts_with(object, 'public.home')";
    assert_eq!(one(&client, found).await, "A05 A10 A20");
    assert_eq!(one(&client, "SELECT source FROM sys.advice WHERE rule = 'A20'").await, "declared");
    // The command tells the same, and fails when it is to.
    let address = server.postgres.to_string();
    let (code, text) = run(&["advise", "home", "--connect", &address, "--fail-on", "warning"]);
    assert_eq!(code, Some(3), "{text}");
    assert!(
        text.contains("A05 public.home.temp") && text.contains("CAST(temp AS DOUBLE)"),
        "{text}"
    );
    let (code, text) = run(&["advise", "--connect", &address, "--fail-on", "error", "--json"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("\"numeric_share\": 1.0"), "{text}");
    // A table that does not exist is an error, and no table without findings.
    for wrong in ["nothing", "public.nothing", "a.b.c"] {
        let (code, text) = run(&["advise", wrong, "--connect", &address, "--fail-on", "info"]);
        assert_eq!(code, Some(1), "{wrong}: {text}");
        assert!(text.contains("does not exist"), "{wrong}: {text}");
    }
    let (code, text) = run(&["advise", "public.home", "--connect", &address]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("A05 public.home.temp"), "{text}");
    let (code, text) = run(&["advise", "public.home", "--hot", "--connect", &address]);
    assert_eq!(code, Some(0), "{text}");
    // Each advice is followed.
    for rule in ["A20", "A10", "A05"] {
        let ddl = one(&client, &format!("SELECT ddl FROM sys.advice WHERE rule = '{rule}'")).await;
        client.batch_execute(&ddl).await.unwrap_or_else(|error| panic!("{ddl}: {error:?}"));
    }
    // Another type needs another table; no statement touches the rows.
    let objects = "SELECT string_agg(object, ' ' ORDER BY object) FROM sys.advice";
    assert_eq!(one(&client, objects).await, "public.home.temp");
    assert_eq!(one(&client, "SELECT count(*) FROM home").await, "200");
    assert_eq!(one(&client, "SELECT count(*) FROM home_new").await, "0");
    // Nobody writes here, so the rows can be copied as the comment says, and the tables exchanged.
    let last = "SELECT column_name FROM information_schema.columns WHERE table_name = 'home' AND ordinal_position = 4";
    let last = one(&client, last).await;
    let copy = format!(
        "INSERT INTO home_new (room, ts, temp, {last}) SELECT room, ts, CAST(temp AS DOUBLE), {last} FROM home"
    );
    for sql in [
        copy.as_str(),
        "ALTER TABLE home RENAME TO home_before",
        "ALTER TABLE home_new RENAME TO home",
    ] {
        client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }
    let others =
        "SELECT count(*) FROM sys.advice WHERE NOT starts_with(object, 'public.home_before')";
    assert_eq!(one(&client, others).await, "0");
    assert_eq!(one(&client, "SELECT sum(temp) FROM home").await, "4000");
    let applied = "SELECT string_agg(rule, ' ' ORDER BY rule) FROM sys.advice_history";
    assert_eq!(one(&client, applied).await, "A05 A10 A20");
    // Questions about partitions.
    assert_eq!(one(&client, "ADVISE PARTITIONS FOR home RATE 1").await, "1");
    assert_eq!(failure(&client, "ADVISE PARTITION BY (nothing) FOR home").await.0, "42703");
    assert_eq!(failure(&client, "ADVISE TABLE home WITH (apples = 1)").await.0, "22023");
}

#[test]
fn a_schema_is_linted_without_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let schema = folder.path().join("schema.sql");
    let path = schema.to_str().unwrap();
    std::fs::write(
        &schema,
        "CREATE TABLE http_logs (access_time TIMESTAMP TIME INDEX, application STRING NOT NULL, http_method STRING, \
         PRIMARY KEY (application)) WITH ('append_mode' = 'true')",
    )
    .unwrap();
    let (code, text) = run(&["lint", path, "--fail-on", "info"]);
    assert_eq!(code, Some(0), "{text}");
    std::fs::write(
        &schema,
        "CREATE TABLE t (level DOUBLE NOT NULL, ts TIMESTAMP TIME INDEX, PRIMARY KEY (level))",
    )
    .unwrap();
    let (code, text) = run(&["lint", path, "--fail-on", "warning"]);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.starts_with("warning A17 public.t.level"), "{text}");
    let (code, text) = run(&["lint", path, "--fail-on", "error", "--json"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("\"A17\""), "{text}");
    let (code, _) = run(&["lint", "/nowhere/schema.sql"]);
    assert_eq!(code, Some(1));
}

//! `partita sql` as a process, driven by pipes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::server::Server;

/// What a run of the client gave: exit code, output, errors.
type Finished = (Option<i32>, String, String);

/// Runs the client, with text at its standard input.
fn sql(server: &Server, options: &[&str], input: &str) -> Finished {
    let mut child = Command::new(env!("CARGO_BIN_EXE_partita"))
        .args(["sql", "--server", &server.postgres.to_string()])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A client that ends early does not read all.
    stdin.write_all(input.as_bytes()).ok();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Runs the client, which must succeed; its output.
fn succeed(server: &Server, options: &[&str], input: &str) -> String {
    let (code, output, errors) = sql(server, options, input);
    assert_eq!(code, Some(0), "{options:?} {input}: {errors}");
    output
}

#[test]
fn scripts_are_split_printed_and_ended_as_psql_does() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"));
    let input = "CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT); -- a; comment\n\
                 INSERT INTO t VALUES (1, 'a;b'),\n(2, NULL);\n\
                 COPY t FROM STDIN;\n3\tc\n\\.\n\
                 SELECT * FROM t ORDER BY id\n";
    assert_eq!(succeed(&server, &["--plain"], input), "1\ta;b\n2\tNULL\n3\tc\n");

    let query = "SELECT * FROM t ORDER BY id LIMIT 2";
    for (options, output) in [
        (vec!["--csv"], "id,name\n1,a;b\n2,\n"),
        (vec!["--json"], "[\n{\"id\": 1, \"name\": \"a;b\"},\n{\"id\": 2, \"name\": null}\n]\n"),
        (vec!["--no-align"], "id|name\n1|a;b\n2|\n(2 rows)\n"),
        (vec!["--no-align", "--tuples-only"], "1|a;b\n2|\n"),
        (vec!["--no-align", "--expanded"], "id|1\nname|a;b\n\nid|2\nname|\n"),
    ] {
        let options = [&options[..], &["-c", query]].concat();
        assert_eq!(succeed(&server, &options, ""), output, "{options:?}");
    }

    // Errors of scripts and commands, and their exit codes.
    let script = "SELECT nothing;\nSELECT 1;\n";
    let (code, output, errors) = sql(&server, &["--plain"], script);
    assert_eq!((code, output.as_str()), (Some(0), "1\n"), "{errors}");
    assert!(errors.contains("42703"), "{errors}");
    let (code, output, _) = sql(&server, &["--plain", "--set", "ON_ERROR_STOP=1"], script);
    assert_eq!((code, output.as_str()), (Some(3), ""));
    assert_eq!(sql(&server, &["-c", "SELECT nothing"], "").0, Some(1));
    assert_eq!(sql(&server, &["-f", "/nowhere.sql"], "").0, Some(1));
    let (_, _, errors) = sql(&server, &[], "SELECT 1\n  FROM FROM t;\n");
    assert!(errors.contains("\nLINE 2:   FROM FROM t\n"), "{errors}");
    assert!(server.stop());
}

#[test]
fn the_database_is_listed_and_described() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"));
    let tables = "CREATE TABLE events (host TEXT, ts TIMESTAMP(3) TIME INDEX, n BIGINT DEFAULT 7 CHECK (n > 0), \
                  PRIMARY KEY (host)); CREATE VIEW recent AS SELECT host, n FROM events; CREATE SEQUENCE tally";
    succeed(&server, &["-c", tables], "");
    for (command, parts) in [
        ("\\d", vec!["events", "recent", "tally", "view", "sequence"]),
        ("\\dt", vec!["public", "events", "table"]),
        ("\\dt+ ev*", vec!["events", "Size", "Description"]),
        ("\\dv", vec!["recent"]),
        ("\\ds", vec!["tally"]),
        ("\\di", vec!["events_pkey"]),
        ("\\dn", vec!["public"]),
        ("\\du", vec!["partita", "Superuser"]),
        ("\\l", vec!["public"]),
        ("\\d events", vec!["host", "not null", "7", "\"events_pkey\" PRIMARY KEY", "CHECK"]),
        ("\\d+ events", vec!["Partitions:", "CREATE TABLE"]),
        ("\\d+ recent", vec!["View \"public.recent\"", "SELECT"]),
        ("\\d tally", vec!["Sequence \"public.tally\"", "Increment"]),
        ("\\h copy", vec!["FROM STDIN"]),
        ("\\?", vec!["\\timing"]),
    ] {
        let output = succeed(&server, &["-c", command], "");
        for part in parts {
            assert!(output.contains(part), "{command}: no {part} in\n{output}");
        }
    }
    succeed(&server, &["-c", "\\df"], "");
    let (code, _, errors) = sql(&server, &["-c", "\\d nothing"], "");
    assert_eq!(code, Some(1));
    assert!(errors.contains("Did not find any relation"), "{errors}");
    assert!(server.stop());
}

#[test]
fn a_script_without_a_server_ends_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"));
    let address = server.postgres.to_string();
    server.kill();
    let output = Command::new(env!("CARGO_BIN_EXE_partita"))
        .args(["sql", "--server", &address, "-c", "SELECT 1"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn an_interrupt_cancels_the_statement_at_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_partita"))
        .args(["sql", "--server", &server.postgres.to_string(), "--plain"])
        .args(["-c", "SELECT * FROM generate_series(1, 100000000000)"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "1\n");
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
    // The client prints what it has until the server answers.
    std::io::copy(&mut stdout, &mut std::io::sink()).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{errors}");
    assert!(errors.contains("57014"), "{errors}");
    assert!(server.stop());
}

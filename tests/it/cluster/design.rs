//! The lab's demonstrations of designs: two of them with few rows, and the statements of all.
//!
//! So few rows say nothing of what is faster. What is asserted is what cannot be otherwise: the guides' own figures, equal
//! answers, and that every figure is there.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::harness::turn;
use crate::server::Server;

/// The question of crypto that counts cells.
const NULLS: &str = "cells, and nulls";

/// Runs `lab design`; what it printed.
async fn design(options: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_partita"));
    command.args(["lab", "design"]).args(options);
    let done = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(&done.stderr));
    said
}

fn list<'a>(part: &'a Value, name: &str) -> &'a Vec<Value> {
    part[name].as_array().unwrap_or_else(|| panic!("{name} in {part:#}"))
}

/// How a design answered a question.
fn asked<'a>(part: &'a Value, question: &str, design: &str) -> &'a Value {
    let is_it = |asked: &&Value| asked["question"] == question && asked["design"] == design;
    let found = list(part, "questions").iter().find(is_it);
    found.unwrap_or_else(|| panic!("{question}, {design} in {part:#}"))
}

fn check_report(out: &Path, said: &str) {
    let read = |name: &str| std::fs::read_to_string(out.join(name)).expect(name);
    let report: Value = serde_json::from_str(&read("report.json")).unwrap();
    let [home, crypto] = [0, 1].map(|index| report["demonstrations"][index].clone());
    assert_eq!((&home["name"], &crypto["name"]), (&"home".into(), &"crypto".into()));
    for part in [&home, &crypto] {
        for loaded in list(part, "loaded") {
            for figure in ["rows", "disk_bytes", "memory_bytes", "memory_peak_bytes", "partitions"]
            {
                assert!(loaded[figure].as_u64() > Some(0), "{figure} in {loaded:#}");
            }
        }
        // Counts may be known without reading a row.
        let is_count = |asked: &&Value| asked["question"] == NULLS;
        for asked in list(part, "questions").iter().filter(|asked| !is_count(asked)) {
            assert!(asked["rows_read"].as_u64() > Some(0), "{asked:#}");
            assert!(asked["bytes_read"].as_u64() > Some(0), "{asked:#}");
            assert!(asked["median_ms"].as_f64() > Some(0.0), "{asked:#}");
            assert_eq!(list(asked, "rounds_ms").len(), 2, "{asked:#}");
            assert_eq!(asked["partitions_touched"], asked["partitions_total"], "{asked:#}");
        }
        for claim in list(part, "claims") {
            let verdict = claim["verdict"].as_str().unwrap();
            assert!(["holds", "fails", "open"].contains(&verdict), "{claim:#}");
        }
    }
    // The guides' rows.
    for (question, design) in [("one sensor, LIKE", "one tag"), ("one sensor, ~", "three tags")] {
        let answer = asked(&home, question, design);
        assert_eq!((&answer["answer_rows"], &answer["first"][1]), (&1.into(), &"72.1".into()));
    }
    let nulls = asked(&crypto, NULLS, "sparse");
    assert_eq!((&nulls["first"][0], &nulls["first"][1]), (&"3200".into(), &"1400".into()));
    assert_eq!(list(&crypto, "claims")[0]["verdict"], "holds");
    let page = read("report.html");
    for text in ["<svg", "prefers-color-scheme:dark", "CREATE TABLE crypto_quotes", "rows read"] {
        assert!(page.contains(text), "{text}");
    }
    assert!(!page.contains("href=") && !page.contains("src="), "the page needs nothing else");
    assert!(said.contains("home: ") && said.contains("crypto: "), "{said}");
    assert!(said.contains("report.html"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more: tests/run --long"]
async fn designs_have_the_same_answers_and_each_figure_is_reported() {
    let _turn = turn().await;
    let dir = tempfile::tempdir().unwrap();
    let (data, out) = (dir.path().join("data"), dir.path().join("out"));
    let [data_dir, out_dir] = [&data, &out].map(|path| path.display().to_string());
    let folders = ["--data-dir", &data_dir, "--out", &out_dir];
    let few = ["home", "crypto", "--rows", "400", "--runs", "2", "--warmup", "1"];
    let said = design(&[&few[..], &folders].concat()).await;
    check_report(&out, &said);
    assert!(std::fs::read_dir(&data).unwrap().next().is_none(), "the servers' data is gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_statements_of_all_demonstrations_can_be_run_as_they_are_shown() {
    let _turn = turn().await;
    assert!(design(&["--list"]).await.lines().count() == 11, "ten demonstrations and a header");
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"));
    let client = server.connect().await;
    let text = design(&["--show", "--rows", "1000"]).await;
    let statements: Vec<&str> = text.lines().filter(|line| !line.starts_with("--")).collect();
    assert!(statements.len() > 100, "{text}");
    for statement in statements {
        let outcome = client.simple_query(statement).await;
        assert!(outcome.is_ok(), "{outcome:?}: {statement}");
    }
}

//! The lab's demonstration, short: the same rows under two keys, on a cluster that it starts itself.

use std::process::Command;

use serde_json::Value;

use super::harness::turn;

/// Rows a second that a partition takes, few enough for a machine that does other things besides.
const PARTITION_RATE: &str = "150";
const ROWS_PER_S: &str = "450";
const SECONDS: &str = "12";

fn number(of: &Value, path: &str) -> f64 {
    of.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {of:#}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lab_shows_one_busy_partition_under_time_first_and_eight_under_a_hash() {
    let _turn = turn().await;
    let dir = tempfile::tempdir().unwrap();
    let (data, out) = (dir.path().join("data"), dir.path().join("out"));
    std::fs::create_dir(&data).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_partita"));
    command.args(["lab", "hotspot", "--design", "ts-uid,hash-all", "--seconds", SECONDS]);
    command.args(["--partition-rate", PARTITION_RATE, "--rate", ROWS_PER_S, "--batch", "45"]);
    command.args(["--connections", "12", "--users", "1000"]);
    command.arg("--data-dir").arg(&data).arg("--out").arg(&out);
    let done = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let (said, told) =
        (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{said}\n{told}");

    let read = |name: &str| std::fs::read_to_string(out.join(name)).expect(name);
    let report: Value = serde_json::from_str(&read("report.json")).unwrap();
    let [time, hash] = [0, 1].map(|at| report["runs"][at].clone());
    assert_eq!(number(&report, "/bound_rows_per_s"), 150.0);
    assert!(number(&time, "/summary/n_eff") <= 1.05, "{time:#}");
    assert!(number(&time, "/summary/max_share") >= 0.95, "{time:#}");
    assert!(number(&hash, "/summary/n_eff") >= 7.0, "{hash:#}");
    // One partition takes a third of what is written; eight could take more than all, on a machine that bears it.
    let (least, most) =
        (number(&time, "/summary/served_rows"), number(&hash, "/summary/served_rows"));
    assert!(most >= 1.4 * least, "{least} and {most}: {hash:#}");
    assert!(number(&time, "/summary/served_rows") <= 1.25 * 150.0, "{time:#}");
    // A user's rows are everywhere in both.
    for run in [&time, &hash] {
        assert_eq!(number(run, "/summary/fan_out/mean/0"), 8.0, "{run:#}");
        assert_eq!(run["summary"]["latency"], "measured");
        let (real, twin) = (number(run, "/summary/n_eff"), number(run, "/virtual_summary/n_eff"));
        assert!((twin / real - 1.0).abs() <= 0.1, "N_eff {real} and {twin}");
    }
    let page = read("report.html");
    for part in ["<svg", "Real and virtual", "Not yet", "prefers-color-scheme:dark"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("href=") && !page.contains("src="), "the page needs nothing else");
    assert_eq!(read("ts-uid.jsonl").lines().count(), 12);
    assert!(said.contains("hash-all") && told.contains("12/12 s"), "{said}\n{told}");
    assert!(std::fs::read_dir(&data).unwrap().next().is_none(), "the cluster's data is gone");
}

//! The lab's demonstration, short: the same rows under two keys, on a cluster that it starts itself; another workload of
//! the catalogue, recorded there and played again on a server that runs.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::task::JoinSet;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::harness::turn;
use crate::server::{Server, one};

/// Rows a second that a partition takes, few enough for a machine that does other things besides.
const PARTITION_RATE: &str = "150";
const ROWS_PER_S: &str = "450";
const SECONDS: &str = "12";

fn number(of: &Value, path: &str) -> f64 {
    of.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {of:#}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more: tests/run --long"]
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
    for part in ["<svg", "Real and virtual", "Leaders and cores", "prefers-color-scheme:dark"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("href=") && !page.contains("src="), "the page needs nothing else");
    assert_eq!(read("ts-uid.jsonl").lines().count(), 12);
    assert!(said.contains("hash-all") && told.contains("12/12 s"), "{said}\n{told}");
    assert!(std::fs::read_dir(&data).unwrap().next().is_none(), "the cluster's data is gone");
}

/// Runs `lab hotspot`; its report, and what it said.
async fn lab(options: &[&str], out: &Path) -> (Value, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_partita"));
    command.args(["lab", "hotspot"]).args(options).arg("--out").arg(out);
    if !options.contains(&"--batch") {
        command.args(["--batch", "20", "--connections", "6"]);
    }
    let done = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let said = [done.stdout, done.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(done.status.success(), "{said}");
    let report = std::fs::read_to_string(out.join("report.json")).unwrap();
    (serde_json::from_str(&report).unwrap(), said)
}

/// Operations that were asked for, by second.
fn offered(out: &Path, file: &str) -> Vec<f64> {
    let lines = std::fs::read_to_string(out.join(file)).unwrap();
    let second = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    lines.lines().map(|line| number(&second(line), "/offered")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more: tests/run --long"]
async fn a_workload_of_the_catalogue_runs_is_recorded_and_runs_again_elsewhere() {
    let _turn = turn().await;
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("data")).unwrap();
    let (data, trace) = (at("data").display().to_string(), at("trace").display().to_string());

    let run = ["--workload", "W6:ordered", "--seconds", "6", "--rate", "40", "--records", "400"];
    let (report, said) =
        lab(&[&run[..], &["--record", &trace, "--data-dir", &data]].concat(), &at("one")).await;
    let of = &report["runs"][0];
    assert_eq!((&of["name"], &of["workload"]), (&"W6:ordered".into(), &"W6:ordered".into()));
    assert_eq!((&of["design"], &of["virtual_summary"]), (&Value::Null, &Value::Null));
    assert_eq!(number(&report, "/bound_rows_per_s"), 150.0, "less where something reads");
    let lacking = of["not_yet"].to_string();
    assert!(lacking.contains("Reads do not pass"), "{lacking}");
    assert!(report["not_yet"].to_string().contains("W6:ordered: Reads do not pass"), "{report:#}");
    let note = of["note"].as_str().unwrap();
    assert!(note.contains("the table has 400. "), "every record was there, no other came: {note}");
    assert!(!note.contains(" 0 reads were answered") && note.contains("PRIMARY KEY"), "{note}");
    assert_eq!(offered(&at("one"), "w6-ordered.jsonl"), [40.0; 6]);
    assert!(said.contains("operations are recorded in"), "{said}");
    assert!(std::fs::read_dir(at("data")).unwrap().next().is_none(), "the cluster's data is gone");

    let server = Server::start(&at("server"));
    let (postgres, http) = (server.postgres.to_string(), server.http.to_string());
    let again = ["--replay", &trace, "--connect", &postgres, "--http", &http];
    let (report, _) = lab(&again, &at("two")).await;
    assert_eq!(report["runs"][0]["name"], "W6:ordered");
    assert_eq!((number(&report, "/seconds"), &report["embedded"]), (6.0, &Value::Bool(false)));
    // What was drawn then, and not a rate: about as many, never quite as many each second.
    let asked = offered(&at("two"), "w6-ordered.jsonl");
    let all: f64 = asked.iter().sum();
    assert!((140.0..340.0).contains(&all) && asked != [40.0; 6], "{asked:?}");
    let client = server.connect().await;
    let stored = one(&client, "SELECT count(*) FROM lab_hotspot_w6_ordered").await;
    assert_eq!(stored, "400", "the recorded run's table is made, loaded and left where it ran");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute or more: tests/run --long"]
async fn a_table_that_is_left_to_cure_itself_does_so_and_the_guide_shows_how() {
    let _turn = turn().await;
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("data")).unwrap();
    let (data, guide) = (at("data").display().to_string(), at("guide").display().to_string());
    let run = ["--design", "ts-uid-auto", "--seconds", "45", "--partition-rate", PARTITION_RATE];
    // Two partitions' worth.
    let load = ["--rate", "300", "--users", "1000", "--batch", "30", "--connections", "16"];
    let folders = ["--data-dir", &data, "--guide", &guide];
    let (report, said) = lab(&[&run[..], &load, &folders].concat(), &at("out")).await;

    let own = &report["runs"][0];
    assert_eq!((&own["design"], &report["seconds"]), (&"ts-uid-auto".into(), &45.into()));
    let seconds = std::fs::read_to_string(at("out").join("ts-uid-auto.jsonl")).unwrap();
    let seconds: Vec<Value> =
        seconds.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(seconds.len(), 90, "a cure takes its time");
    let (cured, partitions) =
        (number(own, "/summary/rekeyed/0"), number(own, "/summary/rekeyed/1"));
    let verdict = number(own, "/summary/t_verdict_s");
    assert!(verdict + 30.0 <= cured + 3.0 && cured <= 75.0, "{verdict} and {cured}: {own:#}");
    // Until then one partition bore it.
    let before: Vec<f64> = seconds
        .iter()
        .filter(|second| (15.0..cured - 1.0).contains(&number(second, "/second")))
        .map(|second| number(second, "/n_eff"))
        .collect();
    assert!(before.len() >= 10 && before.iter().all(|n_eff| *n_eff <= 1.05), "{before:?}");
    assert!(number(own, "/summary/n_eff") >= 0.8 * partitions && partitions >= 2.0, "{own:#}");
    assert!(number(own, "/summary/served_share") >= 0.95, "{own:#}");
    let last_before = seconds.iter().rfind(|second| number(second, "/second") < cured).unwrap();
    assert_eq!(number(last_before, "/splits_load"), 0.0, "no cut helps what moves");
    // One of those that are new, and all eight from before.
    assert_eq!(number(own, "/summary/fan_out/mean/0"), 9.0, "{own:#}");
    let note = own["note"].as_str().unwrap();
    let stored = note.split(' ').next().unwrap();
    assert!(note.contains(&format!("{stored} rows were acknowledged, the table has {stored}.")));
    assert!(note.contains("'hotspot_remedy' = 'auto'"), "{note}");

    assert!(said.contains("the guide is in"), "{said}");
    let page = std::fs::read_to_string(at("guide").join("README.md")).unwrap();
    for part in ["MOVING_RIGHT", "by itself", "The second picture", "append_mode"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    for name in ["ts-uid-auto", "ts-uid-auto-2", "ts-uid-auto-lines", "trade-off"] {
        for theme in ["light", "dark"] {
            let file = format!("{name}-{theme}.svg");
            let svg = std::fs::read_to_string(at("guide").join(&file)).expect(&file);
            assert!(svg.starts_with("<svg xmlns=") && page.contains(&file), "{file}");
        }
    }
    assert!(!page.contains(&data), "nothing of this machine: {page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_leave_a_node_that_leads_everything() {
    let _turn = turn().await;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().display().to_string();
    // 45 rows/s for each of eight partitions of 150: less than a third of what they take. Each statement goes to all of
    // them, so that a machine has to bear few of these.
    let run = ["--workload", "W13", "--seconds", "30", "--rate", "360", "--data-dir", &data];
    let run =
        [&run[..], &["--partition-rate", PARTITION_RATE, "--batch", "60", "--connections", "6"]]
            .concat();
    let (report, _) = lab(&run, &dir.path().join("out")).await;
    let own = &report["runs"][0];
    let lacking = own["not_yet"].to_string();
    assert!(!lacking.contains("did not begin"), "all leaders were on one node: {lacking}");
    let lines = std::fs::read_to_string(dir.path().join("out/w13.jsonl")).unwrap();
    let loads: Vec<f64> = lines
        .lines()
        .map(|line| number(&serde_json::from_str(line).unwrap(), "/node_max_over_mean"))
        .collect();
    // Three, three and two of eight; a second in which a leader is on its way is another.
    let mut last = loads[loads.len() - 10..].to_vec();
    last.sort_by(f64::total_cmp);
    assert!(last[5] <= 1.3, "{loads:?}");
    assert!(number(own, "/summary/served_share") >= 0.9, "{own:#}");
}

/// Clients that write rows of which nine of ten are of user 7, until they are stopped.
async fn write_one_user(server: &Server, stop: &Arc<AtomicBool>) -> JoinSet<()> {
    let next = Arc::new(AtomicI64::new(1));
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let client = server.connect().await;
        client.batch_execute("SET application_name = 'loader'").await.unwrap();
        let (next, stop) = (Arc::clone(&next), Arc::clone(stop));
        tasks.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let user = if number % 10 == 0 { number } else { 7 };
                let sql = format!("INSERT INTO clicks VALUES ({user}, {number}, 0.5)");
                // A write that is turned away is load, too.
                client.batch_execute(&sql).await.ok();
            }
        });
    }
    tasks
}

/// Runs `partita hot` until it lists the table: load near the limit of a slow machine is hot in one second and not in the next.
async fn list_until_hot(server: &Server, table: &str) {
    let started = Instant::now();
    loop {
        let listed = Command::new(env!("CARGO_BIN_EXE_partita"))
            .args(["hot", "--connect", &server.postgres.to_string()])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        if text.contains(table) {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(120), "{table} is not listed: {text}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The only row of a query, once it has one.
async fn first_row(client: &Client, sql: &str) -> Vec<String> {
    let started = Instant::now();
    loop {
        for message in client.simple_query(sql).await.unwrap() {
            if let SimpleQueryMessage::Row(row) = message {
                let cell = |position: usize| row.get(position).unwrap_or("NULL").to_owned();
                return (0..row.len()).map(cell).collect();
            }
        }
        assert!(started.elapsed() < Duration::from_secs(120), "{sql} has no row");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hot_user_is_named_and_so_is_the_statement_that_writes_it() {
    let _turn = turn().await;
    let dir = tempfile::tempdir().unwrap();
    let server = Server::try_start(&dir.path().join("data"), &["--partition-rate", "150"])
        .unwrap_or_else(|log| panic!("the server did not start:\n{log}"));
    let client = server.connect().await;
    let made = "CREATE TABLE clicks (userid BIGINT, n BIGINT, v DOUBLE, PRIMARY KEY (userid, n))";
    client.batch_execute(made).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let tasks = write_one_user(&server, &stop).await;
    let keys =
        "SELECT key, kind FROM sys.hot_keys WHERE \"table\" = 'clicks' ORDER BY share DESC LIMIT 1";
    let hot_key = first_row(&client, keys).await;
    assert!(hot_key[0].starts_with("(7") && hot_key[1] == "write", "{hot_key:?}");
    let causes = "SELECT statement, statement_kind, \"user\", application, share, kind FROM sys.hot_causes \
                  WHERE \"table\" = 'clicks' ORDER BY share DESC LIMIT 1";
    let cause = first_row(&client, causes).await;
    assert_eq!(cause[..2], ["INSERT INTO clicks VALUES (?)", "INSERT"], "{cause:?}");
    assert_eq!((cause[3].as_str(), cause[5].as_str()), ("loader", "write"), "{cause:?}");
    assert!(cause[4].parse::<f64>().unwrap() > 0.9, "{cause:?}");
    // Keys are sampled at half of the load from which a partition is hot.
    let hot = "SELECT partition FROM sys.hot_partitions WHERE \"table\" = 'clicks'";
    drop(first_row(&client, hot).await);
    list_until_hot(&server, "clicks").await;
    stop.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    assert!(server.stop());
}

/// Clients that write rows all over a table, several times what one partition takes, until they are stopped.
async fn overload(server: &Server, stop: &Arc<AtomicBool>) -> JoinSet<()> {
    /// Keys lie below this prime, and a factor gives them out in an order that knows no neighbours.
    const KEYS: i64 = 1_000_003;
    let next = Arc::new(AtomicI64::new(1));
    let mut tasks = JoinSet::new();
    for _ in 0..12 {
        let client = server.connect().await;
        let (next, stop) = (Arc::clone(&next), Arc::clone(stop));
        tasks.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let id = number * 7_919 % KEYS;
                let sql = format!("INSERT INTO crowded VALUES ({id}, {number})");
                // A write that is turned away is load, too.
                client.batch_execute(&sql).await.ok();
            }
        });
    }
    tasks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "takes a minute or more: tests/run --long"]
async fn an_overloaded_partition_is_in_several_parts_within_seconds() {
    let _turn = turn().await;
    let dir = tempfile::tempdir().unwrap();
    let server = Server::try_start(&dir.path().join("data"), &["--partition-rate", "150"])
        .unwrap_or_else(|log| panic!("the server did not start:\n{log}"));
    let client = server.connect().await;
    let made = "CREATE TABLE crowded (id BIGINT, v BIGINT, PRIMARY KEY (id))";
    client.batch_execute(made).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let tasks = overload(&server, &stop).await;
    let parts = |least: u32| {
        format!(
            "SELECT count(*) FROM sys.partitions WHERE \"table\" = 'crowded' HAVING count(*) >= {least}"
        )
    };
    first_row(&client, &parts(2)).await;
    let first_cut = Instant::now();
    first_row(&client, &parts(6)).await;
    let took = first_cut.elapsed();
    assert!(took <= Duration::from_secs(20), "six parts after {took:?}\n{}", server.log());
    // Each was cut for the same reason, at once.
    let cuts = "SELECT count(*) FROM sys.split_events WHERE \"table\" = 'crowded' AND why NOT LIKE 'load%'";
    assert_eq!(one(&client, cuts).await, "0");
    stop.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    assert!(server.stop());
}

/// Clients that write rows of user 7, one after the other in time, until they are stopped; the numbers of the rows that
/// were acknowledged.
async fn visit(server: &Server, stop: &Arc<AtomicBool>) -> JoinSet<Vec<i64>> {
    let next = Arc::new(AtomicI64::new(1));
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        let client = server.connect().await;
        let (next, stop) = (Arc::clone(&next), Arc::clone(stop));
        tasks.spawn(async move {
            let mut acknowledged = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let sql = format!("INSERT INTO visits VALUES (7, {number}, {number})");
                if client.batch_execute(&sql).await.is_ok() {
                    acknowledged.push(number);
                }
            }
            acknowledged
        });
    }
    tasks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "takes a minute or more: tests/run --long"]
async fn the_rows_of_one_hot_user_are_spread_by_the_table_itself() {
    let _turn = turn().await;
    let dir = tempfile::tempdir().unwrap();
    let server = Server::try_start(&dir.path().join("data"), &["--partition-rate", "150"])
        .unwrap_or_else(|log| panic!("the server did not start:\n{log}"));
    let client = server.connect().await;
    let made = "CREATE TABLE visits (userid BIGINT, n TIMESTAMP(3), v BIGINT, PRIMARY KEY (userid, n), TIME INDEX (n)) \
                WITH ('append_mode' = 'true', 'hotspot_remedy' = 'auto')";
    client.batch_execute(made).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let tasks = visit(&server, &stop).await;
    // The verdict, half a minute, and the change.
    let spread =
        "SELECT count(*) FROM sys.partitions WHERE \"table\" = 'visits' HAVING count(*) > 1";
    first_row(&client, spread).await;
    let created = first_row(&client, "SHOW CREATE TABLE visits").await;
    assert!(created[1].contains("HASH (userid, n)"), "{created:?}");
    // Both buckets take rows of the user.
    tokio::time::sleep(Duration::from_secs(10)).await;
    stop.store(true, Ordering::Relaxed);
    let mut acknowledged: Vec<i64> = tasks.join_all().await.concat();
    acknowledged.sort_unstable();
    let busy = "SELECT count(*) FROM sys.partitions WHERE \"table\" = 'visits' AND row_writes > 0";
    assert_eq!(one(&client, busy).await, "2");
    // The user's rows are read in order, each once.
    let sql = "SELECT v FROM visits WHERE userid = 7 ORDER BY n";
    let read: Vec<i64> =
        client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert!(read.windows(2).all(|pair| pair[0] < pair[1]), "rows are doubled or out of order");
    let lost: Vec<&i64> = acknowledged.iter().filter(|v| read.binary_search(v).is_err()).collect();
    assert!(lost.is_empty(), "{} of {} are lost: {lost:?}", lost.len(), acknowledged.len());
    assert!(server.stop());
}

#[test]
fn the_catalogue_is_listed_with_what_each_workload_shows() {
    let list = Command::new(env!("CARGO_BIN_EXE_partita"))
        .args(["lab", "hotspot", "--list"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&list.stdout).into_owned();
    for workload in partita_hotspot::workload::all() {
        let line = text.lines().find(|line| line.starts_with(workload.name)).expect(workload.name);
        assert!(text.contains(workload.shows()), "{line}");
    }
}

//! Load for users: the tables of `sys`, EXPLAIN HOTSPOT, and errors of overload.

use std::time::Duration;

use partita_load::{Cause as Origin, Class, ReadShape, ShapeBound, Standing};
use partita_proto::Error;
use partita_proto::catalog::Table;
use partita_proto::history::{Cause, ReshapeOutcome};
use partita_proto::id::{Epoch, NodeId, PartitionId};
use partita_proto::load::{
    BalanceEvent, BalanceKind, Busy, Evidence, ForecastEvent, HotCause, HotKey, Instant, KeySample,
    Latency, LoadHistory, LoadReport, NodeLoad, OfferedRows, PartitionLoad, Rates, ShownReason,
    SplitEvent, TableRotation, Verdict,
};
use partita_proto::range::Bound;
use partita_proto::value::Value;

use super::Db;
use crate::{FrontendOptions, SqlError};

/// 2025-10-09T08:53:20Z.
const NOW: Instant = Instant(1_760_000_000_000);

pub(super) fn key(ts: i64, user: i64) -> Bound {
    Bound { placement: None, key: vec![Value::Timestamp(ts), Value::Int(user)] }
}

/// The cause of most writes to a partition.
fn cause(table: &Table, partition: PartitionId) -> HotCause {
    HotCause {
        table: table.id,
        partition,
        read: false,
        key: None,
        cause: Origin {
            statement: "INSERT INTO events VALUES (?)".to_owned(),
            kind: "INSERT".to_owned(),
            user: "app".to_owned(),
            application: "loader".to_owned(),
            client: String::new(),
        },
        share: 0.625,
        samples: 240,
    }
}

/// A peak that is expected on the last partition from now on.
fn forecast(table: &Table) -> ForecastEvent {
    ForecastEvent {
        at: Instant(NOW.0 - 1_800_000),
        table: table.id,
        range: table.partitions.routes()[1].range.clone(),
        from: NOW,
        until: Instant(NOW.0 + 3_600_000),
        expected: 1.5,
        confidence: 0.75,
        days: 6,
        cuts: 3,
        ..ForecastEvent::default()
    }
}

/// A minute of a tail.
fn history(table: &Table, partition: PartitionId) -> LoadHistory {
    LoadHistory {
        at: Instant(NOW.0 - 120_000),
        span: Duration::from_secs(60),
        table: table.id,
        partition,
        leader: Some(NodeId(2)),
        busy: 0.85,
        busy_max: 0.99,
        class: Some(Class::MovingRight),
        ..LoadHistory::default()
    }
}

/// A table with the time first, whose last partition has nearly all rows.
pub(super) async fn hot(options: FrontendOptions) -> Db {
    let db = Db::with(options);
    db.tag(
        "CREATE TABLE events (ts TIMESTAMP(3) TIME INDEX, userid BIGINT, v DOUBLE, PRIMARY KEY (ts, userid)) \
         SPLIT AT ((1000))",
    )
    .await;
    let table = db.frontend.catalog().table("public", "events").cloned().unwrap();
    let routes = table.partitions.routes();
    let load = |at: usize, write_rows: f64| PartitionLoad {
        table: table.id,
        partition: routes[at].partition,
        range: routes[at].range.clone(),
        leader: routes[at].leader,
        epoch: Epoch(1),
        age: Duration::from_secs(90),
        busy: Busy { s10: write_rows / 10_000.0, ..Busy::default() },
        rates: Rates { write_rows, read_rows: 5.0, ..Rates::default() },
        share: write_rows / 10_000.0,
        standing: if write_rows > 5_000.0 { Standing::Hot } else { Standing::Healthy },
        offered: OfferedRows { rows_per_s: write_rows, is_floor: false },
        read_share: 0.5,
        capacity: (10_000.0, true),
        ..PartitionLoad::default()
    };
    let verdict = Verdict {
        class: Class::MovingRight,
        since: Instant(NOW.0 - 30_000),
        evidence: Evidence {
            append_high: 0.97,
            top_prefix: vec![0.01],
            lead: 0.75,
            ..Evidence::default()
        },
        ..Verdict::default()
    };
    let sample = |at: i64| KeySample {
        at: Instant(u64::try_from(at).unwrap()),
        key: key(at, at * 7 % 500),
        weight: 3.0,
        read: false,
    };
    let tail = PartitionLoad {
        verdict: Some(verdict),
        samples: (1_000..3_000).map(sample).collect(),
        write_latency: Some(Latency { p50: 900, p99: 4_000, p999: 9_000, max: 12_000 }),
        ..load(1, 9_000.0)
    };
    let partition = routes[1].partition;
    let node = |node| NodeLoad { node: NodeId(node), cpu_cores: Some(1.5), ..NodeLoad::default() };
    *db.fake.load.lock() = LoadReport {
        at: NOW,
        partitions: vec![load(0, 1_000.0), tail],
        nodes: (1..=3).map(node).collect(),
        splits: vec![SplitEvent {
            at: Instant(NOW.0 - 60_000),
            table: table.id,
            partition: routes[0].partition,
            children: vec![partition],
            key: Some(key(1_000, 0)),
            why: ShownReason { cause: Some(Cause::Load), note: "it is busy".to_owned() },
            predicted_share: Some(0.53),
            actual_share: Some(0.9),
            in_vain: Some(true),
            stall: Some(Duration::from_millis(12)),
            outcome: Some(ReshapeOutcome::Done),
            ..SplitEvent::default()
        }],
        balances: vec![BalanceEvent {
            at: NOW,
            partition,
            kind: BalanceKind::Move,
            from: NodeId(1),
            to: NodeId(3),
            why: "node 1 bears more than its part".to_owned(),
        }],
        hot_keys: vec![HotKey {
            table: table.id,
            partition,
            key: key(2_999, 7),
            share: 0.4,
            per_second: 3_600.0,
            read: false,
        }],
        history: vec![history(&table, partition)],
        hot_causes: vec![cause(&table, partition)],
        rotations: Vec::new(),
        forecasts: vec![forecast(&table)],
    };
    db
}

#[tokio::test]
async fn the_tables_of_load_show_what_meta_says() {
    let db = hot(FrontendOptions::default()).await;
    assert_eq!(
        db.lines(
            "SELECT \"table\", end_key IS NULL, rho_10s, share, write_p99_us, verdict, since, append_high \
             FROM sys.partition_load ORDER BY partition"
        )
        .await,
        [
            "events|false|0.1|0.1|NULL|NULL|NULL|NULL",
            "events|true|0.9|0.9|4000|MOVING_RIGHT|2025-10-09T08:52:50|0.97"
        ]
    );
    assert_eq!(
        db.lines(
            "SELECT standing, reads_rho, read_share, offered_rows_per_s, lead, concentration \
             FROM sys.partition_load ORDER BY partition"
        )
        .await,
        ["healthy|0.0|0.5|1000.0|NULL|NULL", "hot|0.0|0.5|9000.0|0.75|0.0"]
    );
    assert_eq!(
        db.lines(
            "SELECT kind, key, statement, statement_kind, \"user\", application, client, share, samples \
             FROM sys.hot_causes"
        )
        .await,
        ["write|NULL|INSERT INTO events VALUES (?)|INSERT|app|loader|NULL|0.625|240"]
    );
    assert_eq!(
        db.lines(
            "SELECT kind, why, predicted_share, actual_share, in_vain, stall_ms, took_ms, outcome, key \
             FROM sys.split_events"
        )
        .await,
        ["split|load: it is busy|0.53|0.9|true|12.0|NULL|done|('1970-01-01 00:00:01', 0)"]
    );
    assert_eq!(
        db.lines(
            "SELECT \"table\", end_key IS NULL, expected_from, expected_load, confidence, days, action, cuts, \
             actual_load, useful FROM sys.forecasts"
        )
        .await,
        ["events|true|2025-10-09T08:53:20|1.5|0.75|6|cut|3|NULL|NULL"]
    );
    assert_eq!(
        db.lines("SELECT \"table\", kind, from_node, to_node FROM sys.balance_events").await,
        ["events|move|1|3"]
    );
    assert_eq!(db.lines("SELECT kind, share, per_s FROM sys.hot_keys").await, ["write|0.4|3600.0"]);
    assert_eq!(db.one("SELECT sum(cpu_cores) FROM sys.node_load").await, "4.5");
    assert_eq!(
        db.lines("SELECT span_s, leader, rho_max, verdict FROM sys.partition_load_history").await,
        ["60.0|2|0.99|MOVING_RIGHT"]
    );
    assert_eq!(
        db.lines(
            "SELECT \"Rank\", \"CPUCores\", \"IntervalEnd\" FROM sys.top_partitions_one_minute"
        )
        .await,
        ["1|0.85|2025-10-09T08:52:20"]
    );
    assert_eq!(
        db.lines("SELECT \"Path\", \"CPUCores\" FROM sys.partition_stats ORDER BY \"PartIdx\"")
            .await,
        ["public/events|0.1", "public/events|0.9"]
    );
}

#[tokio::test]
async fn balance_says_how_concentrated_writes_and_reads_are() {
    let db = hot(FrontendOptions::default()).await;
    db.rows("SELECT count(*) FROM events").await;
    db.rows("SELECT v FROM events WHERE ts < '1970-01-01 00:00:00.5'").await;
    let shown = db
        .lines(
            "SELECT load, per, bearers, round(max_share, 2), round(n_eff, 2), round(gini, 2), \
             read_fan_out_p50, read_fan_out_p99 FROM sys.table_balance ORDER BY load, per",
        )
        .await;
    // Two partitions on two of three nodes; one query reads both, another one of them.
    assert_eq!(
        shown,
        [
            "read_rows|node|3|0.5|2.0|0.33|1|2",
            "read_rows|partition|2|0.5|2.0|0.0|1|2",
            "write_rows|node|3|0.9|1.22|0.6|1|2",
            "write_rows|partition|2|0.9|1.22|0.4|1|2"
        ]
    );
    let rotates = "SELECT DISTINCT n_eff_second, rotates FROM sys.table_balance";
    assert_eq!(db.lines(rotates).await, ["NULL|false"]);
    let table = db.frontend.catalog().table("public", "events").cloned().unwrap();
    let rotation =
        TableRotation { table: table.id, n_eff_second: 1.25, ..TableRotation::default() };
    db.fake.load.lock().rotations.push(rotation);
    assert_eq!(db.lines(rotates).await, ["1.25|true"]);
}

#[tokio::test]
async fn a_hot_partition_comes_with_its_cure() {
    let db = hot(FrontendOptions::default()).await;
    let rows = db
        .rows(
            "SELECT verdict, meaning, evidence, advice, start_key, causes FROM sys.hot_partitions",
        )
        .await;
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!(row[0], "MOVING_RIGHT");
    assert!(row[1].contains("upper end"), "{}", row[1]);
    let evidence: serde_json::Value = serde_json::from_str(&row[2]).unwrap();
    assert_eq!(evidence["append_high"], 0.97);
    assert!(row[3].contains("userid"), "{}", row[3]);
    assert_eq!(row[4], "('1970-01-01 00:00:01')");
    for said in ["app", "loader", "62 %"] {
        assert!(row[5].contains(said), "{said} in {}", row[5]);
    }
    // What is advised can be run.
    db.tag("INSERT INTO events VALUES (5, 1, 0.5), (1500, 2, 0.5)").await;
    db.tag(&row[3]).await;
    assert_eq!(db.one("SELECT count(*) FROM events").await, "2");
    // It is not advised again while the rows are moved.
    let advice = db.one("SELECT advice FROM sys.hot_partitions").await;
    assert_eq!(advice, "-- the table is being re-keyed, see sys.rekeyings");

    let db = hot(FrontendOptions::default()).await;
    db.tag("ALTER TABLE events SET ('hotspot_remedy' = 'off')").await;
    assert_eq!(db.one("SELECT advice FROM sys.hot_partitions").await, "NULL");
    let items = db.lines("EXPLAIN HOTSPOT events").await;
    assert!(items.iter().all(|line| !line.starts_with("option")), "{items:?}");
}

#[tokio::test]
async fn no_cure_parts_rows_that_a_table_keeps_together() {
    for together in ["1", "2"] {
        let db = hot(FrontendOptions::default()).await;
        db.tag(&format!("ALTER TABLE events SET ('keep_together' = '{together}')")).await;
        let advice = db.one("SELECT advice FROM sys.hot_partitions").await;
        let by_user = ["HASH (userid", "KEY (userid"].iter().any(|by| advice.contains(by));
        assert!(together == "2" || !by_user, "{advice}");
        // The designs beside it keep the same rows together, and all of them can be run.
        let rows = db.rows("EXPLAIN HOTSPOT events").await;
        let options: Vec<_> = rows.iter().filter(|row| row[0].starts_with("option")).collect();
        assert!(!options.is_empty(), "{rows:?}");
        for option in options {
            let by_user = option[1].contains("HASH (userid") || option[1].contains("KEY (userid");
            assert!(together == "2" || !by_user, "{option:?}");
        }
        db.tag("INSERT INTO events VALUES (5, 1, 0.5), (5, 2, 0.5), (1500, 2, 0.5)").await;
        db.tag(&advice).await;
        assert_eq!(db.one("SELECT count(*) FROM events").await, "3");
    }
}

#[tokio::test]
async fn a_cut_is_advised_for_the_partition_that_it_is_of_and_nothing_for_a_former_table() {
    let db = hot(FrontendOptions::default()).await;
    let table = db.frontend.catalog().table("public", "events").cloned().unwrap();
    let [left, right] = [0, 1].map(|at| table.partitions.routes()[at].partition.0);
    let mut report = db.fake.load.lock().clone();
    let advice = |report: &LoadReport, partition, class| {
        db.frontend.advice(&table, report, Some(partition), class).unwrap()
    };
    // Another key would help the whole table, whichever partition it was found of.
    let other_key = advice(&report, left, Class::MovingRight);
    assert!(
        ["ALTER TABLE events PARTITION BY", "ALTER TABLE events PRIMARY KEY"]
            .iter()
            .any(|ddl| other_key.contains(ddl))
    );
    let verdict = report.partitions[1].verdict.clone().unwrap();
    report.partitions[1].verdict = Some(Verdict { class: Class::MultiTail, ..verdict });
    let cut = format!("ALTER TABLE events SPLIT PARTITION {right}");
    assert!(advice(&report, right, Class::MultiTail).starts_with(&cut));
    assert!(!advice(&report, left, Class::MultiTail).contains("ALTER"));

    let db = hot(FrontendOptions::default()).await;
    db.tag("ALTER TABLE events SET ('append_mode' = 'true')").await;
    db.tag("ALTER TABLE events PARTITION BY HASH (userid) PARTITIONS 4").await;
    let former = db.frontend.catalog().table("public", "events$former").cloned().unwrap();
    let report = db.fake.load.lock().clone();
    let advice = db.frontend.advice(&former, &report, None, Class::MovingRight).unwrap();
    assert!(!advice.contains("ALTER") && !advice.contains("CREATE"), "{advice}");
}

#[tokio::test]
async fn explain_hotspot_ranks_designs_by_replayed_keys() {
    let db = hot(FrontendOptions::default()).await;
    let rows = db.rows("EXPLAIN HOTSPOT events").await;
    let value = |item: &str| {
        let row = rows.iter().find(|row| row[0] == item);
        row.unwrap_or_else(|| panic!("{item} in {rows:?}"))[1].clone()
    };
    assert_eq!(value("class"), "MOVING_RIGHT");
    assert_eq!(value("for"), "30 s");
    assert_eq!(value("sampled rows"), "2000");
    assert_eq!(value("capacity of a partition"), "10000 rows/s, measured");
    assert!(value("ceiling now").starts_with("10000 rows/s"), "{}", value("ceiling now"));
    let first = rows.iter().find(|row| row[0] == "option 1").unwrap();
    assert!(first[1].contains("userid") && first[1].contains("; carries the load"), "{first:?}");
    assert!(first[3].parse::<f64>().unwrap() > 1.5, "{first:?}");
    // The table is not in append mode: its rows are moved beside its writers.
    assert!(first[7].starts_with("ALTER TABLE events P"), "{first:?}");
    assert!(!first[7].contains("CREATE") && !first[7].contains("RENAME"), "{first:?}");
    let today = rows.iter().find(|row| row[0].ends_with("(as it is)")).unwrap();
    assert_eq!((today[2].as_str(), today[7].as_str()), ("1.0", "NULL"), "{today:?}");
    assert!(today[1].contains("new rows all go to one partition"), "{today:?}");
    db.tag(&first[7]).await;
    let shown = db.rows("SHOW CREATE TABLE \"events$rekeyed\"").await;
    assert!(shown[0][1].contains("(userid"), "{shown:?}");
}

#[tokio::test]
async fn a_table_that_carries_its_load_is_healthy_and_is_not_listed() {
    let db = hot(FrontendOptions::default()).await;
    for load in &mut db.fake.load.lock().partitions {
        load.standing = Standing::Healthy;
        load.busy.s10 = 0.12;
    }
    assert_eq!(db.one("SELECT count(*) FROM sys.hot_partitions").await, "0");
    assert_eq!(
        db.one("SELECT count(*) FROM sys.partition_load WHERE verdict IS NOT NULL").await,
        "1"
    );
    let lines = db.lines("EXPLAIN HOTSPOT events").await;
    assert!(lines[0].starts_with("state|healthy"), "{lines:?}");
    assert!(lines.iter().all(|line| !line.starts_with("option")), "{lines:?}");
}

#[tokio::test]
async fn the_partition_that_is_busiest_by_reads_comes_first() {
    let db = hot(FrontendOptions::default()).await;
    let (left, right) = {
        let mut report = db.fake.load.lock();
        let load = &mut report.partitions[0];
        load.standing = Standing::Hot;
        load.reads_busy = 1.5;
        load.verdict = Some(Verdict { class: Class::ReadHot, since: NOW, ..Verdict::default() });
        (report.partitions[0].partition.0, report.partitions[1].partition.0)
    };
    assert_eq!(
        db.lines("SELECT partition, verdict, reads_rho, read_share FROM sys.hot_partitions").await,
        [format!("{left}|READ_HOT|1.5|0.5"), format!("{right}|MOVING_RIGHT|0.0|0.5")]
    );
    let rows = db.rows("EXPLAIN HOTSPOT events").await;
    let value = |item: &str| rows.iter().find(|row| row[0] == item).unwrap()[1].clone();
    assert_eq!(value("class"), "READ_HOT");
    assert!(value("partition").starts_with(&format!("{left} ")), "{}", value("partition"));
    // Of a queue that is full, the error names what keeps the partition busy.
    let report = db.fake.load.lock().clone();
    let table = db.frontend.catalog().table("public", "events").cloned().unwrap();
    let error = SqlError::new("53400", "the queue is full");
    let detail = crate::load::overload::explained(error, &table, None, &report).detail.unwrap();
    assert!(
        detail.contains("150 % busy with reads and takes 50 % of the table's reads"),
        "{detail}"
    );
}

#[tokio::test]
async fn a_bound_directly_above_a_text_is_printed_and_makes_the_same_table_again() {
    let db = Db::new();
    db.tag("CREATE TABLE t (k STRING, n BIGINT, PRIMARY KEY (k, n)) SPLIT AT (AFTER ('new'), ('x', 3))")
        .await;
    let shown = db.rows("SHOW CREATE TABLE t").await.remove(0).remove(1);
    assert!(shown.contains("AFTER ('new')") && !shown.contains('\0'), "{shown}");
    db.tag(&shown.replace("CREATE TABLE t ", "CREATE TABLE again ")).await;
    let bounds = async |table: &str| {
        let sql = "SELECT start_key, end_key FROM sys.partitions WHERE \"table\" =";
        db.lines(&format!("{sql} '{table}' ORDER BY partition")).await
    };
    assert_eq!(bounds("again").await, bounds("t").await);
    assert_eq!(
        bounds("t").await,
        ["NULL|AFTER ('new')", "AFTER ('new')|('x', 3)", "('x', 3)|NULL"]
    );
}

#[tokio::test]
async fn a_table_of_which_nothing_is_known_is_explained_by_its_schema() {
    let db = Db::new();
    db.tag("CREATE TABLE t (ts TIMESTAMP TIME INDEX, app STRING)").await;
    let lines = db.lines("EXPLAIN HOTSPOT t").await;
    assert!(lines.iter().any(|line| line.starts_with("class|UNKNOWN")), "{lines:?}");
    let cures = lines.iter().find(|line| line.starts_with("cures")).unwrap();
    assert!(cures.contains("PRIMARY KEY (app, ts)"), "{cures}");
    assert_eq!(db.error("EXPLAIN HOTSPOT nothing").await.sqlstate, "42P01");
}

#[tokio::test]
async fn an_error_of_overload_names_the_partition_its_verdict_and_what_helps() {
    let options =
        FrontendOptions { write_timeout: Duration::from_millis(50), ..FrontendOptions::default() };
    let db = hot(options).await;
    let full = std::iter::repeat_n(Error::Overloaded("the queue is full".to_owned()), 1000);
    db.fake.write_errors.lock().extend(full);
    let error = db.error("INSERT INTO events VALUES (5000, 1, 1)").await;
    assert_eq!((error.sqlstate.as_str(), error.retryable), ("53400", true));
    let detail = error.detail.unwrap();
    for said in ["of table \"events\"", "90 % busy", "MOVING_RIGHT"] {
        assert!(detail.contains(said), "{said} in {detail}");
    }
    let hint = error.hint.unwrap();
    assert!(hint.contains("by hash") && hint.contains("EXPLAIN HOTSPOT events"), "{hint}");
    // A partition without a report gets no explanation.
    let other = Db::with(FrontendOptions {
        write_timeout: Duration::from_millis(50),
        ..FrontendOptions::default()
    });
    other.tag("CREATE TABLE t (a INT PRIMARY KEY)").await;
    let full = std::iter::repeat_n(Error::Overloaded("the queue is full".to_owned()), 1000);
    other.fake.write_errors.lock().extend(full);
    let error = other.error("INSERT INTO t VALUES (1)").await;
    assert!(!error.hint.unwrap().contains("HOTSPOT"));
}

#[tokio::test]
async fn reads_of_a_table_are_known_by_the_key_columns_that_they_bind() {
    let db = hot(FrontendOptions::default()).await;
    let table = db.frontend.catalog().table("public", "events").cloned().unwrap();
    for user in 0..6 {
        db.rows(&format!("SELECT v FROM events WHERE userid = {user}")).await;
    }
    db.rows("SELECT max(v) FROM events WHERE ts >= '2026-01-01'").await;
    db.tag("INSERT INTO events VALUES (5, 1, 0.5)").await;
    db.tag("CREATE TABLE beside (userid BIGINT PRIMARY KEY)").await;
    db.rows("SELECT * FROM beside WHERE userid = 1").await;
    let shapes = db.frontend.statements().read_shapes(&table);
    assert_eq!(shapes.len(), 2);
    let per_s = |column: usize, is_bound: fn(&ShapeBound) -> bool| {
        let is_alike = |shape: &&ReadShape| matches!(shape.bounds.as_slice(), [(at, bound)] if *at == column && is_bound(bound));
        shapes.iter().find(is_alike).unwrap().per_s
    };
    // Six calls, over a minute at least.
    assert_eq!(per_s(1, |bound| matches!(bound, ShapeBound::Value)), 0.1);
    assert_eq!(
        per_s(0, |bound| matches!(bound, ShapeBound::Range(share) if *share == 0.1)),
        1.0 / 60.0
    );
}

//! What each kind of identity sees in each table of `sys` and `information_schema`.
//!
//! The table is written by hand; a table of the system that it lacks fails a test.

use std::collections::BTreeSet;
use std::time::Duration;

use partita_load::{Cause, Class, Standing};
use partita_proto::id::NodeId;
use partita_proto::load::{
    BalanceEvent, BalanceKind, Busy, ForecastEvent, HotCause, HotKey, Instant, LoadHistory,
    LoadReport, NodeLoad, PartitionLoad, Rates, SplitEvent, Verdict,
};
use partita_proto::range::Bound;
use partita_proto::task::{TaskStep, Window};
use partita_proto::value::Value;

use super::Db;
use super::access_world::{WHO, Who, session_of, world};
use crate::catalog::{CATALOG, INFORMATION, SYSTEM};
use crate::rejected_points::RejectedPoint;

/// 2025-10-09T08:53:20Z.
const NOW: Instant = Instant(1_760_000_000_000);
/// Identities of the table: all but the one that has expired.
const VIEWERS: usize = 8;
/// Keys of `acme` that only those know who read all rows of the table, at which it is split and which is hot; and part of
/// the name of a group of `acme_boss`, which its restricted tokens do not know.
const SECRETS: &[&str] = &["770077", "880088", "guild"];

/// User whose statements make partitions hot, in the load report: shown to the superuser only.
const CAUSER: &str = "causer";

/// One letter for each of [`WHO`] but the last: superuser, whole token, read token, token for rows, write token, token of
/// another organisation, member, stranger.
///
/// a: rows that name something of `acme`. z: of `zulu`. b: of both. r: rows that name nothing of either. -: no rows.
const TABLES: &[(&str, &str)] = &[
    ("r-------", "sys.nodes"),
    ("r-------", "sys.metas"),
    ("baa--za-", "sys.replicas"),
    ("baa--za-", "sys.partitions"),
    ("baaaaza-", "sys.tables"),
    ("baa--za-", "sys.copies"),
    ("baa--za-", "sys.rekeyings"),
    ("baa--za-", "sys.series"),
    ("baa--za-", "sys.series_tags"),
    ("baa--za-", "sys.columns"),
    ("baa--za-", "sys.index_builds"),
    // No table of this test is a wide one.
    ("--------", "sys.large_rows"),
    ("baa--za-", "sys.index_usage"),
    // Texts of the statements that the identity ran in this test.
    ("brrrrrrr", "sys.statements"),
    ("baa--za-", "sys.advice"),
    ("--------", "sys.advice_history"),
    // No table of this test has thresholds of its own.
    ("rrrrrrrr", "sys.advice_thresholds"),
    ("baaaazar", "sys.query_log"),
    ("baaaazar", "sys.audit"),
    ("ba--az--", "sys.rejected_points"),
    ("r-------", "sys.counters"),
    // A role without an organisation knows all roles.
    ("baaaazar", "sys.roles"),
    ("ba---za-", "sys.grants"),
    ("ba---z--", "sys.tokens"),
    ("ba---z--", "sys.tasks"),
    ("ba---z--", "sys.task_runs"),
    ("baa--za-", "sys.partition_load"),
    ("baa--za-", "sys.hot_partitions"),
    ("baa--za-", "sys.split_events"),
    ("baa--za-", "sys.forecasts"),
    ("baa--za-", "sys.balance_events"),
    ("baa--za-", "sys.hot_keys"),
    // Statements and clients of others.
    ("b-------", "sys.hot_causes"),
    ("r-------", "sys.node_load"),
    ("baa--za-", "sys.partition_load_history"),
    ("baa--za-", "sys.top_partitions_one_minute"),
    ("baa--za-", "sys.table_balance"),
    ("baa--za-", "sys.partition_stats"),
    ("baaaazar", "information_schema.schemata"),
    ("baaaaza-", "information_schema.tables"),
    ("--------", "information_schema.views"),
    ("baaaaza-", "information_schema.columns"),
    ("baaaaza-", "information_schema.key_column_usage"),
    ("baaaaza-", "information_schema.table_constraints"),
    ("--------", "information_schema.check_constraints"),
    ("baaaaza-", "information_schema.constraint_table_usage"),
    ("baaaaza-", "information_schema.constraint_column_usage"),
    ("--------", "information_schema.referential_constraints"),
    ("--------", "information_schema.sequences"),
    ("baa--za-", "information_schema.partitions"),
    ("baaaaza-", "information_schema.table_privileges"),
    ("baaaaza-", "information_schema.role_table_grants"),
    ("raaaazar", "information_schema.enabled_roles"),
    ("-a----a-", "information_schema.applicable_roles"),
];

/// Load of the tables of both organisations: a hot partition of each, events and a hot key.
fn report(db: &Db) -> LoadReport {
    let catalog = db.frontend.catalog();
    let node = NodeLoad { node: NodeId(1), cpu_cores: Some(1.5), ..NodeLoad::default() };
    let mut report = LoadReport { at: NOW, nodes: vec![node], ..LoadReport::default() };
    for (name, hot) in [("acme", 880_088), ("zulu", 660_066)] {
        let table = catalog.table(name, &format!("{name}_t")).unwrap();
        let routes = table.partitions.routes();
        let partition = routes[1].partition;
        report.partitions.push(PartitionLoad {
            table: table.id,
            partition,
            range: routes[1].range.clone(),
            leader: routes[1].leader,
            busy: Busy { s10: 0.9, ..Busy::default() },
            rates: Rates { write_rows: 9_000.0, ..Rates::default() },
            share: 0.9,
            verdict: Some(Verdict { class: Class::MovingRight, since: NOW, ..Verdict::default() }),
            standing: Standing::Hot,
            ..PartitionLoad::default()
        });
        report.splits.push(SplitEvent {
            at: NOW,
            table: table.id,
            partition: routes[0].partition,
            children: vec![partition],
            ..SplitEvent::default()
        });
        report.forecasts.push(ForecastEvent {
            at: NOW,
            table: table.id,
            range: routes[1].range.clone(),
            expected: 1.5,
            ..ForecastEvent::default()
        });
        report.balances.push(BalanceEvent {
            at: NOW,
            partition,
            kind: BalanceKind::Move,
            from: NodeId(1),
            to: NodeId(3),
            why: "node 1 bears more than its part".to_owned(),
        });
        report.hot_keys.push(HotKey {
            table: table.id,
            partition,
            key: Bound { placement: None, key: vec![Value::Int(hot)] },
            share: 0.4,
            per_second: 3_600.0,
            read: false,
        });
        let hot_key = Bound { placement: None, key: vec![Value::Int(hot)] };
        for key in [None, Some(hot_key)] {
            report.hot_causes.push(HotCause {
                table: table.id,
                partition,
                read: false,
                key,
                cause: Cause {
                    statement: "INSERT INTO t VALUES (?)".to_owned(),
                    kind: "INSERT".to_owned(),
                    user: CAUSER.to_owned(),
                    application: String::new(),
                    client: "192.0.2.7".to_owned(),
                },
                share: 0.9,
                samples: 100,
            });
        }
        report.history.push(LoadHistory {
            at: Instant(NOW.0 - 120_000),
            span: Duration::from_secs(60),
            table: table.id,
            partition,
            leader: routes[1].leader,
            busy: 0.85,
            busy_max: 0.99,
            ..LoadHistory::default()
        });
    }
    report
}

/// Ends a run of each task.
async fn run_tasks(db: &Db) {
    let tasks: Vec<_> = db.frontend.catalog().tasks.values().cloned().collect();
    assert_eq!(tasks.len(), 2);
    for entry in tasks {
        let start_ms = entry.state.done_ms;
        let window = Window { start_ms, stop_ms: start_ms + 1_000 };
        let definition = entry.task.definition;
        let (epoch, runner, skipped, now_ms) = (0, 7, None, window.stop_ms);
        let begin = TaskStep::Begin { epoch, definition, runner, window, skipped, now_ms };
        assert!(db.frontend.record_step(entry.task.id, begin).await.unwrap());
        let end = TaskStep::End { epoch: 1, rows: 5, error: None, now_ms };
        assert!(db.frontend.record_step(entry.task.id, end).await.unwrap());
    }
}

/// The cluster of two organisations, with something in every table of the system.
async fn full_world() -> Db {
    let db = world().await;
    for name in ["acme", "zulu"] {
        let table = format!("{name}.{name}_s");
        let columns = "k STRING PRIMARY KEY, ts TIMESTAMP(3) TIME INDEX, v INT INVERTED INDEX";
        db.tag(&format!("CREATE TABLE {table} ({columns})")).await;
        db.tag(&format!("INSERT INTO {table} VALUES ('x', '2024-01-01', 1)")).await;
        db.tag(&format!("GRANT SELECT ON {table} TO {name}_staff")).await;
        let copy = format!("{name}.{name}_c OF {table} PRIMARY KEY (ts, k)");
        db.tag(&format!("CREATE MATERIALIZED COPY {copy}")).await;
        let layout = "PRIMARY KEY (ts, k) PARTITION BY HASH (k) PARTITIONS 2";
        db.tag(&format!("ALTER TABLE {table} {layout}")).await;
    }
    *db.fake.load.lock() = report(&db);
    run_tasks(&db).await;
    let catalog = db.frontend.catalog();
    let point = |who: Who, database: &str| RejectedPoint {
        time_ms: 0,
        database: database.to_owned(),
        database_id: Some(catalog.databases[database].id),
        identity: session_of(&db, who, "public").session.identity(),
        line_number: 1,
        reason: "syntax",
        message: "a field is missing".to_owned(),
        line: format!("{database}_m"),
    };
    let points = [point(Who::Write, "acme"), point(Who::Foreign, "zulu")];
    db.frontend.rejected_points().add(points);
    db
}

/// The letter of a table's text.
fn letter(text: &str) -> char {
    match (text.contains("acme"), text.contains("zulu")) {
        (true, true) => 'b',
        (true, false) => 'a',
        (false, true) => 'z',
        (false, false) if text.is_empty() => '-',
        (false, false) => 'r',
    }
}

/// Texts that an identity must find in no table of the system.
fn secrets(who: Who) -> &'static [&'static str] {
    match who {
        Who::Rows | Who::Write => SECRETS,
        Who::Read => &["guild"],
        Who::Foreign => &["770077", "880088", "guild", "acme"],
        Who::Stranger => &["770077", "880088"],
        Who::Superuser | Who::Whole | Who::Member | Who::Expired => &[],
    }
}

#[tokio::test]
async fn each_identity_sees_its_own_rows_of_each_table_of_the_system() {
    let db = full_world().await;
    let mut found: Vec<String> = vec![String::new(); TABLES.len()];
    for who in &WHO[..VIEWERS] {
        // Not in a database of the organisations: its name would be in the log of statements.
        let viewer = session_of(&db, *who, "public");
        if *who != Who::Superuser {
            assert_eq!(viewer.error("CREATE ROLE refused").await.sqlstate, "42501", "{who:?}");
        }
        assert_eq!(viewer.one("SELECT 1").await, "1");
        let mut all = String::new();
        for ((_, table), letters) in TABLES.iter().zip(&mut found) {
            let text = viewer.lines(&format!("SELECT * FROM {table}")).await.join("\n");
            letters.push(letter(&text));
            for secret in secrets(*who) {
                assert!(!text.contains(secret), "{table} for {who:?}: {text}");
            }
            let is_of_causes = ["sys.hot_causes", "sys.hot_partitions"].contains(table);
            let is_shown = is_of_causes && *who == Who::Superuser;
            assert_eq!(text.contains(CAUSER), is_shown, "{table} for {who:?}: {text}");
            all.push_str(&text);
        }
        if *who == Who::Whole {
            // What others must not find can be found.
            for secret in SECRETS {
                assert!(all.contains(secret), "{secret}");
            }
        }
    }
    let compared = TABLES.iter().zip(&found);
    let wrong: Vec<_> = compared
        .filter(|((expected, _), found)| expected != found)
        .map(|((expected, table), found)| format!("{expected} expected, {found} found: {table}"))
        .collect();
    assert!(wrong.is_empty(), "{:?}\n{}", &WHO[..VIEWERS], wrong.join("\n"));
}

#[tokio::test]
async fn every_table_of_the_system_is_in_the_table() {
    let db = world().await;
    let catalog = db.frontend.context().catalog(CATALOG).unwrap();
    let names = |schema: &str| -> Vec<String> {
        let tables = catalog.schema(schema).unwrap().table_names();
        tables.iter().map(|table| format!("{schema}.{table}")).collect()
    };
    let existing: BTreeSet<String> = [SYSTEM, INFORMATION].into_iter().flat_map(names).collect();
    let listed: BTreeSet<String> = TABLES.iter().map(|(_, table)| (*table).to_owned()).collect();
    assert_eq!(listed, existing);
    assert_eq!(listed.len(), TABLES.len());
}

#[tokio::test]
async fn the_tables_of_the_system_are_closed_after_the_end_of_an_identity() {
    let db = world().await;
    let expired = session_of(&db, Who::Expired, "acme");
    for (_, table) in TABLES {
        let error = expired.error(&format!("SELECT * FROM {table}")).await;
        assert_eq!(error.sqlstate, "28000", "{table}: {error:?}");
    }
}

#[tokio::test]
async fn the_rank_of_a_partition_tells_nothing_about_others() {
    let db = full_world().await;
    {
        let mut load = db.fake.load.lock();
        let busiest = load.history.iter_mut().find(|span| span.busy > 0.8).unwrap();
        busiest.busy = 0.95;
    }
    let rank = "SELECT DISTINCT \"Rank\" FROM sys.top_partitions_one_minute ORDER BY \"Rank\"";
    assert_eq!(db.lines(rank).await, ["1", "2"]);
    for who in [Who::Whole, Who::Foreign] {
        assert_eq!(session_of(&db, who, "public").lines(rank).await, ["1"], "{who:?}");
    }
}

#[tokio::test]
async fn lines_for_a_dropped_database_are_not_those_of_its_successor() {
    let db = full_world().await;
    let lines = "SELECT line FROM sys.rejected_points ORDER BY line";
    for sql in
        ["DROP DATABASE acme", "CREATE DATABASE acme", "ALTER DATABASE acme OWNER TO zulu_boss"]
    {
        db.tag(sql).await;
    }
    assert_eq!(session_of(&db, Who::Foreign, "public").lines(lines).await, ["zulu_m"]);
    assert_eq!(db.lines(lines).await, ["acme_m", "zulu_m"]);
}

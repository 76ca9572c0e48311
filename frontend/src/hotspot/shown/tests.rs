//! EXPLAIN HOTSPOT and advice of tables that are hot, healthy or unknown.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use partita_load::{Cause, ShapeBound};
use partita_proto::id::{BOOTSTRAP_ROLE, Epoch, NodeId, PartitionId, TableId};
use partita_proto::key::KeyCodec;
use partita_proto::load::{
    Busy, HotCause, Instant, KeySample, NodeLoad, OfferedRows, Rates, Verdict,
};
use partita_proto::range::Bound;
use partita_proto::route::PartitionMap;
use partita_proto::value::Value;
use partita_sql::Statement;

use super::*;
use crate::hotspot::advice;

fn made(sql: &str) -> Table {
    let mut parsed = partita_sql::parse(sql).unwrap();
    let Some(Statement::CreateTable(create)) = parsed.pop() else { panic!("{sql}") };
    let new = create.to_new_table("public").unwrap().0;
    let codec = KeyCodec::new(&new.schema, &new.placement).unwrap();
    let ids = (1..).map(PartitionId);
    let map = PartitionMap::from_cuts(&codec, &new.cuts, ids, Epoch(1)).unwrap();
    Table {
        id: TableId(5),
        database: new.database,
        name: new.name,
        schema: Arc::new(new.schema),
        placement: new.placement,
        partitions: Arc::new(map),
        former: None,
        succeeded_by: None,
        copy: None,
        owner: BOOTSTRAP_ROLE,
    }
}

const EVENTS: &str =
    "CREATE TABLE e (ts TIMESTAMP TIME INDEX, u BIGINT, v DOUBLE, PRIMARY KEY (ts, u))";

/// A table whose only partition takes rows of 1,000 users in turn, in the order of time.
fn growing(standing: Standing, samples: i64) -> LoadReport {
    let sample = |at: i64| KeySample {
        at: Instant(u64::try_from(at).unwrap()),
        key: Bound { placement: None, key: vec![Value::Timestamp(at), Value::Int(at * 7 % 1_000)] },
        weight: 10.0,
        read: false,
    };
    let verdict =
        Verdict { class: Class::MovingRight, since: Instant(1_000), ..Verdict::default() };
    let load = PartitionLoad {
        table: TableId(5),
        partition: PartitionId(1),
        busy: Busy { s10: 0.8, ..Busy::default() },
        rates: Rates { write_rows: 8_000.0, ..Rates::default() },
        share: 1.0,
        standing,
        offered: OfferedRows { rows_per_s: 12_000.0, is_floor: true },
        capacity: (10_000.0, true),
        verdict: Some(verdict),
        samples: (0..samples).map(sample).collect(),
        ..PartitionLoad::default()
    };
    let nodes = (1..=4).map(|node| NodeLoad { node: NodeId(node), ..NodeLoad::default() });
    LoadReport {
        at: Instant(31_000),
        partitions: vec![load],
        nodes: nodes.collect(),
        ..LoadReport::default()
    }
}

/// Items with their values, and the DDL beside them.
fn shown(table: &Table, report: &LoadReport, shapes: &[ReadShape]) -> Vec<[String; 3]> {
    let rows = explain_hotspot(table, report, shapes).unwrap();
    assert_eq!(rows.num_columns(), EXPLAIN_HOTSPOT.len());
    let text = |column: usize, row: usize| {
        let texts = rows.column(column).as_string_view();
        if texts.is_null(row) { String::new() } else { texts.value(row).to_owned() }
    };
    (0..rows.num_rows()).map(|row| [text(0, row), text(1, row), text(7, row)]).collect()
}

fn value<'s>(shown: &'s [[String; 3]], item: &str) -> Option<&'s str> {
    shown.iter().find(|row| row[0] == item).map(|row| row[1].as_str())
}

#[test]
fn a_hot_table_is_explained_with_figures_and_designs() {
    let table = made(EVENTS);
    let mut report = growing(Standing::Hot, 2_000);
    report.partitions[0].rates.rejected = 3.0;
    report.hot_causes.push(HotCause {
        table: TableId(5),
        partition: PartitionId(1),
        read: false,
        key: None,
        cause: Cause {
            statement: String::new(),
            kind: "COPY".to_owned(),
            user: "app".to_owned(),
            application: String::new(),
            client: String::new(),
        },
        share: 0.75,
        samples: 200,
    });
    let by_user = ReadShape { bounds: vec![(1, ShapeBound::Value)], per_s: 40.0, rows: 100.0 };
    let rows = shown(&table, &report, std::slice::from_ref(&by_user));
    let state = "hot: the busiest partition is 80 % busy, and 3.0 requests/s are refused";
    assert_eq!(value(&rows, "state"), Some(state));
    assert_eq!(value(&rows, "class"), Some("MOVING_RIGHT"));
    assert_eq!(value(&rows, "for"), Some("30 s"));
    assert_eq!(value(&rows, "causes"), Some("75 % by COPY of user app"));
    let offered = "at least 12000 rows/s: clients wait";
    assert_eq!(value(&rows, "offered load"), Some(offered));
    assert_eq!(value(&rows, "ceiling now"), Some("10000 rows/s"));
    assert_eq!(value(&rows, "capacity of a partition"), Some("10000 rows/s, measured"));
    assert_eq!(value(&rows, "statements"), Some("1 shape, 40/s"));
    assert!(value(&rows, "partition").unwrap().contains("reads 0 % of a core"));
    let items: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    let place = |item: &str| items.iter().position(|name| *name == item).unwrap();
    let in_order = ["state", "class", "meaning", "partition", "for", "evidence", "offered load"];
    assert!(in_order.map(place).is_sorted(), "{items:?}");
    assert!(place("remedy") < place("option 1"), "{items:?}");
    // Designs have statements that can be run, except for the present one, which carries nothing.
    let options: Vec<_> = rows.iter().filter(|row| row[0].starts_with("option")).collect();
    assert!(options.len() > 3, "{items:?}");
    for option in options {
        assert_eq!(option[2].is_empty(), option[0].ends_with("(as it is)"), "{option:?}");
        let parses = option[2].is_empty() || partita_sql::parse(&option[2]).is_ok();
        assert!(parses, "{option:?}");
    }
}

#[test]
fn a_table_that_is_not_hot_gets_a_word_and_no_advice() {
    let table = made(EVENTS);
    let report = growing(Standing::Healthy, 2_000);
    let rows = shown(&table, &report, &[]);
    let state = "healthy: the busiest partition is 80 % busy, and no request is held back";
    assert_eq!(value(&rows, "state"), Some(state));
    for item in ["remedy", "meaning", "cut"] {
        assert_eq!(value(&rows, item), None, "{rows:?}");
    }
    assert!(rows.iter().all(|row| !row[0].starts_with("option")), "{rows:?}");
    let load = &report.partitions[0];
    let verdict = load.verdict.as_ref().unwrap();
    assert_eq!(advice(&table, &report, load, verdict, &[]), None);
    let idle = shown(&table, &growing(Standing::Idle, 0), &[]);
    assert_eq!(value(&idle, "state"), Some("idle: nothing is written or read"));
    assert!(value(&idle, "note").is_some() && value(&idle, "cures").is_some(), "{idle:?}");
    let unknown = shown(&table, &LoadReport::default(), &[]);
    assert!(value(&unknown, "state").unwrap().starts_with("unknown: "), "{unknown:?}");
    assert!(value(&unknown, "capacity of a partition").unwrap().contains("assumed"));
}

#[test]
fn reads_make_a_partition_the_busiest() {
    let table = made("CREATE TABLE e (u BIGINT PRIMARY KEY, v DOUBLE) SPLIT AT ((10))");
    let load = |partition: u64, reads_busy: f64, standing: Standing| PartitionLoad {
        table: TableId(5),
        partition: PartitionId(partition),
        busy: Busy { s10: 0.3, ..Busy::default() },
        reads_busy,
        read_share: reads_busy / 2.0,
        standing,
        ..PartitionLoad::default()
    };
    let report = LoadReport {
        partitions: vec![load(1, 0.0, Standing::Busy), load(2, 1.92, Standing::Hot)],
        ..LoadReport::default()
    };
    let rows = shown(&table, &report, &[]);
    let partition = value(&rows, "partition").unwrap();
    assert!(
        partition.starts_with("2 (") && partition.contains("96 % of the table's reads"),
        "{partition}"
    );
    assert_eq!(value(&rows, "state"), Some("hot: the busiest partition is 192 % busy"));
}

#[test]
fn advice_is_the_best_design_or_one_that_needs_no_other_table() {
    let asked = |sql: &str, class: Class, samples: i64| {
        let table = made(sql);
        let mut report = growing(Standing::Hot, samples);
        let verdict = Verdict { class, ..Verdict::default() };
        report.partitions[0].verdict = Some(verdict.clone());
        advice(&table, &report, &report.partitions[0], &verdict, &[])
    };
    let log = format!("{EVENTS} WITH ('append_mode' = 'true')");
    let in_place = asked(&log, Class::MovingRight, 2_000).unwrap();
    assert!(in_place.starts_with("ALTER TABLE e PARTITION BY HASH (u) PARTITIONS"), "{in_place}");
    // The new partitions are cut where the users of the sample are: in one of them, all would be hot again.
    for options in ["", " WITH ('merge_mode' = 'last_non_null')"] {
        let rekeyed = asked(&format!("{EVENTS}{options}"), Class::MovingRight, 2_000).unwrap();
        let statement = "ALTER TABLE e PRIMARY KEY (u, ts) SPLIT AT ((";
        assert!(rekeyed.starts_with(statement), "{rekeyed}");
        assert!(partita_sql::parse(&rekeyed).is_ok(), "{rekeyed}");
    }
    // Without samples: by the first column that is no time, and by the whole key if one value of it is hot.
    let blind = |class| asked(&log, class, 0).unwrap();
    assert!(blind(Class::MovingRight).contains("HASH (u) PARTITIONS 16"));
    assert!(blind(Class::HotKey).contains("HASH (ts, u) PARTITIONS 16"));
    assert_eq!(asked(&log, Class::ReadHot, 2_000), None);
    assert_eq!(asked(&log, Class::StaticRange, 2_000).unwrap(), "ALTER TABLE e SPLIT PARTITION 1");
    let off = format!("{EVENTS} WITH ('hotspot_remedy' = 'off')");
    assert_eq!(asked(&off, Class::MovingRight, 2_000), None);
}

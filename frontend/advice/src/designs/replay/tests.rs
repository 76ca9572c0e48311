//! Replays of known streams of keys.

use std::sync::Arc;

use partita_load::{ShapeBound, Standing};
use partita_proto::id::{NodeId, PartitionId};
use partita_proto::load::{Busy, Instant, NodeLoad, OfferedRows, Rates, Verdict};
use partita_proto::value::Value;
use partita_sql::{Rekey, RekeyChange, Statement};

use super::*;
use crate::designs::{Script, clauses, placed, qualified_statements, statements};

fn made(sql: &str) -> Table {
    let mut parsed = partita_sql::parse(sql).unwrap();
    let Some(Statement::CreateTable(create)) = parsed.pop() else { panic!("{sql}") };
    let new = create.to_new_table("public").unwrap().0;
    let codec = KeyCodec::new(&new.schema, &new.placement).unwrap();
    let map = partita_proto::route::PartitionMap::from_cuts(
        &codec,
        &new.cuts,
        (1..).map(PartitionId),
        partita_proto::id::Epoch(1),
    );
    Table {
        id: partita_proto::id::TableId(5),
        database: new.database,
        name: new.name,
        schema: Arc::new(new.schema),
        placement: new.placement,
        partitions: Arc::new(map.unwrap()),
        former: None,
        succeeded_by: None,
        copy: None,
        owner: partita_proto::id::BOOTSTRAP_ROLE,
    }
}

/// Users in turn, one row per millisecond, all in one busy partition.
fn events(rows: i64, users: i64) -> LoadReport {
    let sample = |at: i64| KeySample {
        at: Instant(u64::try_from(at).unwrap()),
        key: Bound { placement: None, key: vec![Value::Timestamp(at), Value::Int(at * 7 % users)] },
        weight: 10.0,
        read: false,
    };
    let load = PartitionLoad {
        table: partita_proto::id::TableId(5),
        partition: PartitionId(1),
        leader: Some(NodeId(1)),
        busy: Busy { s10: 0.8, ..Busy::default() },
        rates: Rates { write_rows: 8_000.0, ..Rates::default() },
        offered: OfferedRows { rows_per_s: 8_000.0, is_floor: false },
        capacity: (10_000.0, true),
        standing: Standing::Hot,
        share: 1.0,
        samples: (0..rows).map(sample).collect(),
        ..PartitionLoad::default()
    };
    let nodes = (1..=4).map(|node| NodeLoad { node: NodeId(node), ..NodeLoad::default() });
    LoadReport { partitions: vec![load], nodes: nodes.collect(), ..LoadReport::default() }
}

const TIME_FIRST: &str =
    "CREATE TABLE e (ts TIMESTAMP TIME INDEX, u BIGINT, v DOUBLE, PRIMARY KEY (ts, u))";

#[test]
fn user_first_beats_time_first_and_is_cut_where_users_are() {
    let table = made(TIME_FIRST);
    let found = replay(&table, &events(2_000, 1_000), &[]);
    assert_eq!(found.sampled, 2_000);
    assert!(found.capacity.1 && (found.capacity.0 - 10_000.0).abs() < 1e-6);
    let today = found.choices.iter().find(|choice| choice.is_today).unwrap();
    assert!(today.effective_partitions < 1.1 && !today.carries, "{today:?}");
    let best = &found.choices[0];
    assert_eq!(best.design, Design::Range { order: vec![1, 0] });
    assert!(best.carries);
    assert!(!found.cuts[0].is_empty());
    for cut in &found.cuts[0] {
        assert!(
            matches!(cut.key.as_slice(), [Value::Int(user)] if (1..1_000).contains(user)),
            "{cut}"
        );
    }
}

#[test]
fn every_design_is_ddl_that_keeps_the_rows_columns_and_touches_no_row() {
    let table = made(TIME_FIRST);
    let found = replay(&table, &events(2_000, 1_000), &[]);
    assert!(found.choices.len() > 3);
    for (choice, cuts) in found.choices.iter().zip(&found.cuts) {
        let Script { sql, is_complete, .. } = statements(&table, &choice.design, cuts).unwrap();
        let mut parsed = partita_sql::parse(&sql).unwrap_or_else(|error| panic!("{error}\n{sql}"));
        parsed.retain(|statement| !matches!(statement, Statement::Empty));
        assert_eq!(parsed.len(), 1, "{sql}");
        if choice.is_today {
            assert!(is_complete && sql.starts_with("ALTER TABLE e SPLIT AT (("), "{sql}");
            continue;
        }
        assert!(is_complete && !sql.contains("--"), "{sql}");
        let new = match &parsed[0] {
            Statement::Rekey(Rekey { change: RekeyChange::Begin(layout), .. }) => {
                layout.to_rekeyed(&table, "e2").unwrap()
            }
            Statement::AlterTable(alter) => {
                let placement = alter.moving_placement(&table, false).unwrap();
                placement.unwrap().to_rekeyed(&table, "e2").unwrap()
            }
            _ => panic!("{sql}"),
        };
        assert!(new.rekeys, "{sql}");
        assert_eq!(new.schema.columns, table.schema.columns, "{sql}");
        assert_eq!(new.schema.key.len(), 2, "{sql}");
        assert_eq!(
            matches!(new.placement, Placement::Hash { .. }),
            matches!(choice.design, Design::Hash { .. })
        );
    }
}

#[test]
fn a_table_without_a_key_gets_no_statement_about_one() {
    let table = made("CREATE TABLE n (a BIGINT, b STRING)");
    assert!(table.schema.is_keyless());
    let hashed = Design::Hash { of: vec![0], buckets: 99, order: vec![0] };
    for design in [Design::Range { order: vec![0] }, hashed] {
        assert_eq!(statements(&table, &design, &[]), None, "{design:?}");
    }
}

#[test]
fn a_table_that_keeps_every_row_is_placed_otherwise_where_it_is() {
    let sql = format!("{TIME_FIRST} WITH ('append_mode' = 'true')");
    let design = |order: Vec<usize>| Design::Hash { of: vec![1], buckets: 8, order };
    let table = made(&sql);
    let of = |table: &Table, order| statements(table, &design(order), &[]).unwrap();
    let forward = of(&table, vec![0, 1]);
    assert_eq!(forward.sql, "ALTER TABLE e PARTITION BY HASH (u) PARTITIONS 8;");
    assert!(forward.is_complete && !forward.moves_rows);
    // With another order of the key, or with versions of rows, it is re-keyed.
    let placed = "PARTITION BY HASH (u) PARTITIONS 8;";
    let rekeyed = [of(&table, vec![1, 0]), of(&made(TIME_FIRST), vec![0, 1])];
    assert_eq!(rekeyed.each_ref().map(|script| script.is_complete), [true, true]);
    assert_eq!(rekeyed.each_ref().map(|script| script.moves_rows), [true, true]);
    let texts = rekeyed.map(|script| script.sql);
    let expected =
        [format!("ALTER TABLE e PRIMARY KEY (u, ts) {placed}"), format!("ALTER TABLE e {placed}")];
    assert_eq!(texts, expected);
    // Rows in a former table need another table.
    let again = Table { former: Some(partita_proto::id::TableId(4)), ..table };
    let script = of(&again, vec![0, 1]);
    assert!(!script.is_complete && script.sql.starts_with("CREATE TABLE e_new"), "{script:?}");
    assert!(!script.sql.contains("INSERT") && !script.sql.contains("RENAME"), "{script:?}");
}

#[test]
fn a_copy_is_only_cut() {
    let copy = partita_proto::materialized::CopyOf {
        state: partita_proto::materialized::CopyState::InStep,
        ..partita_proto::materialized::CopyOf::new(partita_proto::id::TableId(4), None)
    };
    let sql = format!("{TIME_FIRST} WITH ('append_mode' = 'true')");
    let table = Table { copy: Some(Arc::new(copy)), ..made(&sql) };
    let hashed = Design::Hash { of: vec![1], buckets: 8, order: vec![0, 1] };
    let by_user = Design::Range { order: vec![1, 0] };
    for design in [hashed, by_user] {
        assert_eq!(statements(&table, &design, &[]), None);
    }
    let cut = Bound { placement: None, key: vec![Value::Timestamp(5)] };
    let script = statements(&table, &today(&table), &[cut]).unwrap();
    assert!(script.sql.starts_with("ALTER TABLE e SPLIT AT (("), "{script:?}");
}

#[test]
fn ranges_of_the_same_key_are_cut_where_they_are_not_cut_yet() {
    let table = made("CREATE TABLE e (u BIGINT PRIMARY KEY, v DOUBLE) SPLIT AT ((10))");
    let cut = |user: i64| Bound { placement: None, key: vec![Value::Int(user)] };
    let design = Design::Range { order: vec![0] };
    let script = statements(&table, &design, &[cut(10), cut(20), cut(30)]).unwrap();
    assert_eq!(script, Script::complete("ALTER TABLE e SPLIT AT ((20), (30));".to_owned()));
    assert_eq!(statements(&table, &design, &[cut(10)]), None);
    // A table of another database is named with it.
    let other = Table { database: "d".to_owned(), ..table.clone() };
    let texts = [
        statements(&other, &design, &[cut(20)]).unwrap().sql,
        qualified_statements(&table, &design, &[cut(20)]).unwrap().sql,
    ];
    assert_eq!(
        texts,
        ["ALTER TABLE d.e SPLIT AT ((20));", "ALTER TABLE public.e SPLIT AT ((20));"]
    );
    let hashed = Design::Hash { of: vec![0], buckets: 4, order: vec![0] };
    let rekeyed = qualified_statements(&table, &hashed, &[]).unwrap().sql;
    assert_eq!(rekeyed, "ALTER TABLE public.e PARTITION BY HASH (u) PARTITIONS 4;");
}

#[test]
fn clauses_name_a_placement_with_and_without_its_size() {
    let table = made(TIME_FIRST);
    let design = Design::Hash { of: vec![1], buckets: 8, order: vec![1, 0] };
    let with = "PARTITION BY HASH (u) PARTITIONS 8, PRIMARY KEY (u, ts)";
    assert_eq!(clauses(&table, &design), with);
    assert_eq!(placed(&table, &design), "PARTITION BY HASH (u), PRIMARY KEY (u, ts)");
    assert_eq!(placed(&table, &today(&table)), "PRIMARY KEY (ts, u)");
}

#[test]
fn designs_are_sized_by_the_offered_load_and_priced_by_statements() {
    let table = made(TIME_FIRST);
    let mut report = events(2_000, 1_000);
    // 900 rows/s are offered, of which 300 are served.
    report.partitions[0].rates.write_rows = 300.0;
    report.partitions[0].offered = OfferedRows { rows_per_s: 1_200.0, is_floor: true };
    report.partitions[0].capacity = (320.0, true);
    let by_user = ReadShape { bounds: vec![(1, ShapeBound::Value)], per_s: 4.0, rows: 200.0 };
    let found = replay(&table, &report, std::slice::from_ref(&by_user));
    assert_eq!((found.offered, found.capacity), ((1_200.0, true), (320.0, true)));
    assert!(found.choices.iter().all(|choice| choice.needed_partitions == 10));
    let best = &found.choices[0];
    let cost = mean_cost(std::slice::from_ref(&by_user), best).unwrap();
    assert!(cost.partitions < 1.2 && cost.rows < 10.0, "{cost:?} of {best:?}");
    assert_eq!(mean_cost(&[], best), None);
    // A report of an older version has neither.
    report.partitions[0].offered = OfferedRows::default();
    report.partitions[0].capacity = (0.0, false);
    let found = replay(&table, &report, &[]);
    assert_eq!((found.offered, found.capacity), ((300.0, false), (20_000.0, false)));
}

#[test]
fn the_hot_user_of_a_table_is_divided_by_the_columns_after_it() {
    let table =
        made("CREATE TABLE e (u BIGINT, ts TIMESTAMP TIME INDEX, v DOUBLE, PRIMARY KEY (u, ts))");
    let mut report = events(2_000, 1_000);
    let load = &mut report.partitions[0];
    for (number, sample) in load.samples.iter_mut().enumerate() {
        sample.key.key.swap(0, 1);
        if number % 10 > 0 {
            sample.key.key[0] = Value::Int(7);
        }
    }
    load.verdict = Some(Verdict { class: Class::HotKey, ..Verdict::default() });
    let found = replay(&table, &report, &[]);
    let best = &found.choices[0];
    assert!(matches!(&best.design, Design::Hash { of, .. } if *of == [0, 1]), "{best:?}");
    let last = found.choices.last().unwrap();
    assert!(matches!(&last.design, Design::Hash { of, .. } if *of == [0]), "{last:?}");
}

#[test]
fn few_keys_or_none_give_no_designs() {
    let table = made(TIME_FIRST);
    assert!(replay(&table, &LoadReport::default(), &[]).choices.is_empty());
    assert!(replay(&table, &events(1, 1), &[]).choices.is_empty());
}

#[test]
fn a_sample_that_weighs_more_is_replayed_more_often() {
    let mut report = events(100, 10);
    report.partitions[0].samples[7].weight = 1_000.0;
    let loads: Vec<&PartitionLoad> = report.partitions.iter().collect();
    let taken = arrivals(&loads, 2);
    assert_eq!(taken.len(), 100);
    let heavy = taken.iter().filter(|sample| sample.at == Instant(7)).count();
    assert!((49..=52).contains(&heavy), "{heavy}");
    assert!(taken.is_sorted_by_key(|sample| sample.at));
}

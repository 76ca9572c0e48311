//! Replays of known streams of keys.

use std::sync::Arc;

use partita_proto::id::{NodeId, PartitionId};
use partita_proto::load::{Busy, Instant, NodeLoad, Rates};
use partita_proto::value::Value;
use partita_sql::Statement;

use super::*;
use crate::hotspot::ddl;

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
    let found = replay(&table, &events(2_000, 1_000));
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
fn every_design_is_ddl_that_keeps_the_rows_columns() {
    let table = made(TIME_FIRST);
    let found = replay(&table, &events(2_000, 1_000));
    assert!(found.choices.len() > 3);
    for (choice, cuts) in found.choices.iter().zip(&found.cuts) {
        let sql = ddl::statements(&table, &choice.design, cuts).unwrap();
        let mut parsed = partita_sql::parse(&sql).unwrap_or_else(|error| panic!("{error}\n{sql}"));
        parsed.retain(|statement| !matches!(statement, Statement::Empty));
        assert_eq!(parsed.len(), 5, "{sql}");
        let dropped = parsed.iter().any(|statement| matches!(statement, Statement::DropTable(_)));
        assert!(!dropped, "{sql}");
        let Statement::CreateTable(create) = &parsed[0] else { panic!("{sql}") };
        let (new, _) = create.to_new_table("public").unwrap();
        assert_eq!(new.schema.columns, table.schema.columns, "{sql}");
        assert_eq!(new.schema.key.len(), 2, "{sql}");
        assert_eq!(
            matches!(new.placement, Placement::Hash { .. }),
            matches!(choice.design, Design::Hash { .. })
        );
    }
}

#[test]
fn a_table_that_keeps_every_row_is_placed_otherwise_where_it_is() {
    let sql = format!("{TIME_FIRST} WITH ('append_mode' = 'true')");
    let design = |order: Vec<usize>| Design::Hash { of: vec![1], buckets: 8, order };
    let table = made(&sql);
    let of = |table: &Table, order| ddl::statements(table, &design(order), &[]).unwrap();
    assert_eq!(of(&table, vec![0, 1]), "ALTER TABLE e PARTITION BY HASH (u) PARTITIONS 8;");
    // Another order of the key, versions of rows, or rows from before take a copy.
    let again = Table { former: Some(partita_proto::id::TableId(4)), ..table.clone() };
    let copied =
        [of(&table, vec![1, 0]), of(&made(TIME_FIRST), vec![0, 1]), of(&again, vec![0, 1])];
    assert!(copied.iter().all(|sql| sql.contains("INSERT INTO e_new")), "{copied:#?}");
}

#[test]
fn few_keys_or_none_give_no_designs() {
    let table = made(TIME_FIRST);
    assert!(replay(&table, &LoadReport::default()).choices.is_empty());
    assert!(replay(&table, &events(1, 1)).choices.is_empty());
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

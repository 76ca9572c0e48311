//! Statements follow the catalogue: columns in the key's order, splits at the virtual table's keys, and rows that
//! compare like keys.

use std::collections::BTreeSet;

use super::*;
use crate::workload::{Knobs, SECOND_US, Stream, all, find};

const BEGIN: i64 = 1_900_000_000_000_000;

fn loads(name: &str, design: Design) -> Vec<TableLoad> {
    let knobs = Knobs { entities: 500, records: 2_000, hour_s: 30, ..Knobs::of(design, 1_000.0) };
    find(name).unwrap().tables(&knobs)
}

fn table(name: &str, design: Design) -> SqlTable {
    SqlTable::of(&loads(name, design)[0], "t", BEGIN)
}

fn made(name: &str, design: Design) -> String {
    table(name, design).create()
}

/// The first operations of a workload's first table.
fn ops(name: &str, design: Design, count: usize) -> Vec<(u64, crate::workload::Kind, Op)> {
    let loads = loads(name, design);
    let mut stream = Stream::new(&loads[0].sources, 7);
    let mut op = Op::default();
    let mut next = || stream.next(&mut op).map(|(at_us, kind)| (at_us, kind, op.clone()));
    std::iter::from_fn(&mut next).take(count).collect()
}

#[test]
fn user_events_have_the_table_of_each_design() {
    let head = "CREATE TABLE t (ts TIMESTAMP(6) NOT NULL, userid BIGINT NOT NULL, event STRING, TIME INDEX (ts), PRIMARY KEY (";
    let hour = 3_600_000_000;
    let by_time = made("W1", Design::TsUid);
    let cuts: Vec<String> = (1..8).rev().map(|ago| format!("({})", BEGIN - ago * hour)).collect();
    let cuts = cuts.join(", ");
    assert_eq!(by_time, format!("{head}ts, userid)) PARTITION BY RANGE (ts) SPLIT AT ({cuts})"));
    let options = " WITH ('append_mode' = 'true', 'hotspot_remedy' = 'auto')";
    assert_eq!(made("W1", Design::TsUidAuto), format!("{by_time}{options}"));
    let by_user = made("W1", Design::UidTs);
    assert!(by_user.starts_with(&format!("{head}userid, ts)) PARTITION BY RANGE (userid) SPLIT")));
    assert_eq!(by_user.matches("), (").count(), 6, "{by_user}");
    assert_eq!(made("W1", Design::Single), format!("{head}userid, ts))"));
    let hashed =
        |columns: &str| format!("{head}userid, ts)) PARTITION BY HASH ({columns}) PARTITIONS 8");
    assert_eq!(made("W1", Design::HashUid), hashed("userid"));
    assert_eq!(made("W1", Design::HashAll), hashed("ts, userid"));
}

#[test]
fn records_and_other_times_have_tables_too() {
    assert_eq!(
        made("W6:ordered", Design::UidTs),
        "CREATE TABLE t (\"key\" BIGINT NOT NULL, field STRING, PRIMARY KEY (\"key\")) PARTITION BY RANGE (\"key\") SPLIT AT ((250), (500), (750), (1000), (1250), (1500), (1750))"
    );
    // One partition to begin with.
    assert!(made("W11", Design::UidTs).ends_with("PRIMARY KEY (\"key\"))"));
    let hour = made("W9", Design::TsUid);
    let columns = "(ts TIMESTAMP(6) NOT NULL, slot TIMESTAMP(6) NOT NULL, userid BIGINT NOT NULL, event STRING, TIME INDEX (ts), PRIMARY KEY (slot, userid))";
    assert!(hour.contains(columns), "{hour}");
    assert!(hour.contains("PARTITION BY RANGE (slot) SPLIT AT (("), "{hour}");
    let newest = made("W8", Design::TsUid);
    assert!(newest.contains("back BIGINT NOT NULL, userid BIGINT NOT NULL"), "{newest}");
    assert!(newest.contains("PRIMARY KEY (back, userid)) PARTITION BY RANGE (back)"), "{newest}");
    assert!(made("W8", Design::HashAll).ends_with("BY HASH (ts, userid) PARTITIONS 8"));
    // A week is one slot: cuts an hour apart come to one or two, each once.
    assert!(made("W2:week", Design::TsUid).matches("SPLIT AT ((").count() == 1);
}

#[test]
fn a_row_is_at_its_time_and_of_whom_the_key_says() {
    let row = |at_us, id, time| Row { at_us, id, time };
    let events = SqlTable { halved: false, ..table("W1", Design::UidTs) };
    let rows = [row(5, 7, BEGIN_US + 3), row(19_999, 8, BEGIN_US - 4)];
    let expected = format!(
        "INSERT INTO t (ts, userid, event) VALUES ({}, 7, '{TEXT}5'), ({}, 8, '{TEXT}9999')",
        BEGIN + 3,
        BEGIN - 4
    );
    assert_eq!(events.insert(&rows), expected);
    let newest = table("W8", Design::TsUid);
    let back = i64::MAX - (BEGIN + 3);
    let sql = newest.insert(&[row(5, 14, u64::MAX - (BEGIN_US + 3))]);
    assert!(sql.starts_with("INSERT INTO t (ts, back, userid, event) VALUES ("), "{sql}");
    assert!(sql.contains(&format!("({}, {back}, 7, '", BEGIN + 3)), "{sql}");
    let hours = table("W9", Design::TsUid);
    let slot = BEGIN_US / (30 * SECOND_US);
    let sql = hours.insert(&[row(20, 14, slot)]);
    let begins = BEGIN - (BEGIN_US % (30 * SECOND_US)).cast_signed();
    assert!(sql.contains(&format!("({}, {begins}, 7, '", BEGIN + 20)), "{sql}");
    let record = table("W6:ordered", Design::UidTs).insert(&[row(20, 14, 0)]);
    assert!(record.starts_with("INSERT INTO t (\"key\", field) VALUES (14, '"), "{record}");
    assert!((900..1_050).contains(&record.len()), "about a kilobyte: {}", record.len());
}

#[test]
fn rows_compare_as_their_keys_do() {
    for workload in all() {
        for design in Design::ALL {
            let table = table(workload.name, design);
            let hashed = loads(workload.name, design)[0].shape.names[0] == "hash";
            let mut drawn: Vec<(Vec<u8>, [i64; 2])> = ops(workload.name, design, 500)
                .into_iter()
                .filter_map(|(at_us, _, op)| {
                    let row = table.row(at_us, &op)?;
                    let (id, time) = (table.number(row.id), table.time);
                    let values = match time {
                        None => [id, 0],
                        Some((lead, position)) if position < table.id_at => {
                            [table.lead(lead, row.time), id]
                        }
                        Some((lead, _)) => [id, table.lead(lead, row.time)],
                    };
                    // Without its bucket a key compares as the columns do.
                    Some((op.key[if hashed { 2 } else { 0 }..].to_vec(), values))
                })
                .collect();
            drawn.sort();
            let sorted = drawn.is_sorted_by_key(|(_, values)| *values);
            assert!(sorted, "{} {}", workload.name, design.name());
        }
    }
}

#[test]
fn rows_fall_on_the_sides_of_cuts_where_keys_do() {
    for name in ["W1", "W2", "W3:metrics", "W6", "W6:ordered", "W7:range", "W8", "W13"] {
        for design in [Design::TsUid, Design::UidTs] {
            let (load, table) = (loads(name, design).remove(0), table(name, design));
            let first = |key: &[u8]| table.first(columns_of(key, &table.widths)[0]);
            for (_, _, op) in ops(name, design, 300) {
                let virtually = load.cuts.iter().filter(|cut| **cut <= op.key).count();
                let really = load.cuts.iter().filter(|cut| first(cut) <= first(&op.key)).count();
                assert_eq!(virtually, really, "{name} {design:?} {op:?}");
            }
        }
    }
}

#[test]
fn rows_are_a_little_earlier_than_they_arrive_and_repeat_by_the_seed() {
    for design in Design::ALL {
        let table = table("W1", design);
        let rows = || -> Vec<Row> {
            let drawn = ops("W1", design, 2_000);
            drawn.iter().map(|(at_us, _, op)| table.row(*at_us, op).unwrap()).collect()
        };
        let drawn = rows();
        assert_eq!(drawn, rows());
        for row in &drawn {
            let delay = BEGIN + row.at_us.cast_signed() - table.time_of(Lead::Time, row);
            assert!((0..=50_001).contains(&delay), "{design:?} {row:?}");
        }
        let users: BTreeSet<i64> = drawn.iter().map(|row| table.entity_of(row)).collect();
        assert_eq!(users.len() > 1, design != Design::Single, "{design:?}");
        assert!(users.iter().all(|user| *user >= 0));
    }
}

#[test]
fn every_operation_of_every_workload_has_its_statement() {
    for workload in all() {
        for design in Design::ALL {
            let (load, table) = (loads(workload.name, design), table(workload.name, design));
            for (at_us, kind, op) in ops(workload.name, design, 200) {
                if kind == crate::workload::Kind::Write {
                    let row = table.row(at_us, &op).expect(workload.name);
                    // An index has the columns of the table that it is an index of.
                    for mirror in &load[1..] {
                        let statement = SqlTable::of(mirror, "other", BEGIN).insert(&[row]);
                        assert_eq!(statement.replace(" other ", " t "), table.insert(&[row]));
                    }
                } else {
                    assert!(table.read(&op).is_some(), "{} {design:?} {op:?}", workload.name);
                }
            }
        }
    }
}

#[test]
fn reads_ask_for_what_the_operation_reads() {
    let point = |key: u64| Op { key: key.to_be_bytes().to_vec(), end: None };
    let range = |start: u64, end: u64| Op { end: Some(end.to_be_bytes().to_vec()), ..point(start) };
    let records = table("W6:ordered", Design::UidTs);
    let read = |table: &SqlTable, op: &Op| table.read(op).unwrap();
    assert_eq!(read(&records, &point(17)), "SELECT field FROM t WHERE \"key\" = 17");
    let scan = "SELECT count(field) FROM t WHERE \"key\" >= 17 AND \"key\" < 90";
    assert_eq!(read(&records, &range(17, 90)), scan);
    let by_time = table("W15", Design::TsUid);
    let recent = range(BEGIN_US - 9, BEGIN_US);
    let expected = format!(
        "SELECT count(event) FROM t WHERE ts >= to_timestamp_micros({}) AND ts < to_timestamp_micros({BEGIN})",
        BEGIN - 9
    );
    assert_eq!(read(&by_time, &recent), expected);
    let by_user = SqlTable { halved: false, ..table("W15", Design::HashUid) };
    let mut key = vec![0, 9];
    [6, BEGIN_US + 1].iter().for_each(|value: &u64| key.extend(value.to_be_bytes()));
    let expected = format!(
        "SELECT count(event) FROM t WHERE userid = 6 AND ts >= to_timestamp_micros({})",
        BEGIN + 1
    );
    assert_eq!(read(&by_user, &Op { key, end: None }), expected);
    // A key of another table, and a range of buckets.
    assert_eq!(records.read(&Op { key: vec![1, 2], end: None }), None);
    assert_eq!(by_user.read(&range(1, 2)), None);
}

#[test]
fn what_is_read_is_there_before_and_what_is_not_is_not() {
    let prior = |name: &str| SqlTable::prior(&loads(name, Design::UidTs)[0]);
    for name in ["W6", "W6:ordered", "W6:uniform", "W6:latest", "W6:scans"] {
        let ids: BTreeSet<u64> = prior(name).iter().map(|row| row.id).collect();
        assert_eq!((prior(name).len(), ids.len()), (2_000, 2_000), "{name}: each once");
    }
    for name in ["W1", "W6:sequential", "W7", "W11", "W12", "W13", "W15"] {
        assert!(prior(name).is_empty(), "{name}");
    }
    // Consecutive rows are far apart: a batch is distributed over all partitions.
    let ids: Vec<u64> = prior("W6:uniform").iter().take(PLACES).map(|row| row.id).collect();
    assert!(ids.iter().any(|id| *id < 250) && ids.iter().any(|id| *id >= 1_750), "{ids:?}");
}

//! Rules of garbage collection and requests against plain models.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;

use super::*;
use crate::id::{ColumnId, SchemaVersion};
use crate::partitioning::Partitioning;
use crate::schema::TableOptions;

const HOUR: Duration = Duration::from_secs(3600);
const HOUR_US: i64 = 3_600_000_000;

fn schema(wide: Wide) -> TableSchema {
    TableSchema {
        version: SchemaVersion(1),
        columns: columns(ColumnType::String),
        key: (0..4).map(ColumnId).collect(),
        options: TableOptions {
            partitioning: Partitioning { keep_together: 1, ..Partitioning::default() },
            wide: Some(wide),
            ..TableOptions::default()
        },
        next_column: ColumnId(5),
        schema_on_write: false,
        checks: Vec::new(),
        view: None,
    }
}

fn families(names: &[&str]) -> Wide {
    let family = |name: &&str| Family { name: (*name).to_owned(), gc: None, aggregate: None };
    Wide { families: names.iter().map(family).collect(), ..Wide::default() }
}

fn set(family: &str, qualifier: &str, timestamp: i64, value: &str) -> CellMutation {
    CellMutation::SetCell {
        family: family.to_owned(),
        qualifier: qualifier.as_bytes().to_vec(),
        timestamp: Some(timestamp),
        value: value.as_bytes().to_vec(),
    }
}

fn key(family: &str, qualifier: &str, timestamp: i64) -> CellKey {
    CellKey { family: family.to_owned(), qualifier: qualifier.as_bytes().to_vec(), timestamp }
}

/// Families `n`, `low` and `high` of sums, minima and maxima, and `f` of bytes.
fn aggregates() -> Wide {
    let mut wide = families(&["n", "low", "high", "f"]);
    for (family, aggregate) in wide.families.iter_mut().zip(Aggregate::ALL) {
        family.aggregate = Some(aggregate);
    }
    wide
}

fn add(family: &str, qualifier: &str, timestamp: i64, number: i64) -> CellMutation {
    let (family, qualifier) = (family.to_owned(), qualifier.as_bytes().to_vec());
    CellMutation::AddToCell { family, qualifier, timestamp, number }
}

/// Effect of a request on a row of these cells, without values.
fn change_of<'c>(
    request: &RowMutation,
    cells: impl Iterator<Item = &'c CellKey>,
    now_us: i64,
) -> RowChange {
    let cells = cells.map(|key| (key.clone(), Vec::new())).collect();
    request.change(&Wide::default(), (&cells, &BTreeSet::new()), now_us).unwrap()
}

#[test]
fn a_wide_table_has_five_columns_and_keeps_its_rows_together() {
    let valid = schema(families(&["stats", "a-b_c.D9"]));
    valid.validate().unwrap();
    let refused = |change: &dyn Fn(&mut TableSchema)| {
        let mut schema = schema(families(&["stats"]));
        change(&mut schema);
        schema.validate().unwrap_err().to_string()
    };
    assert_eq!(
        refused(&|schema| schema.options.partitioning.keep_together = 0),
        "'keep_together' of a wide table must be 1, so that no row is cut in two"
    );
    assert_eq!(
        refused(&|schema| schema.options.append_mode = true),
        "'append_mode' cannot be set on a wide table"
    );
    assert_eq!(
        refused(&|schema| schema.columns[4].nullable = true),
        "the columns of a wide table must be row_key STRING or BINARY, family STRING, qualifier BINARY, cell_ts \
         TIMESTAMP(6), value BINARY, all NOT NULL, of which the first 4 are the key"
    );
    assert_eq!(
        refused(&|schema| {
            schema.options.partitioning.hotspot_remedy = HotspotRemedy::Auto;
        }),
        "'hotspot_remedy' of a wide table cannot be 'auto': its rows are placed by their keys"
    );
    let with_families = |wide: Wide| refused(&|schema| schema.options.wide = Some(wide.clone()));
    assert_eq!(
        with_families(families(&["a", "b", "a"])),
        "column family \"a\" specified more than once"
    );
    assert_eq!(
        with_families(families(&["a b"])),
        "column family name \"a b\" must consist of letters, digits, \"-\", \"_\" and \".\""
    );
    assert_eq!(
        with_families(families(&["a".repeat(65).as_str()])),
        "a column family name of 65 bytes exceeds the limit of 64 bytes"
    );
    let ruled = |gc| Wide {
        families: vec![Family { name: "f".to_owned(), gc: Some(gc), aggregate: None }],
        ..Wide::default()
    };
    assert_eq!(with_families(ruled(GcRule::MaxVersions(0))), "'max_versions' must be 1 or more");
    assert_eq!(
        with_families(ruled(GcRule::Union(Vec::new()))),
        "a union or intersection of garbage collection rules is empty"
    );
    let nested =
        |depth| (1..depth).fold(GcRule::MaxVersions(1), |rule, _| GcRule::Intersection(vec![rule]));
    schema(ruled(nested(GC_DEPTH_MAX))).validate().unwrap();
    assert!(with_families(ruled(nested(GC_DEPTH_MAX + 1))).contains("nested 20 deep"));
}

#[test]
fn rows_are_placed_by_their_keys_alone() {
    let schema = schema(families(&["stats"]));
    let hash = |columns: &[u32]| Placement::Hash {
        columns: columns.iter().map(|id| ColumnId(*id)).collect(),
    };
    check_placement(&schema, &Placement::Range).unwrap();
    check_placement(&schema, &hash(&[0])).unwrap();
    let error = check_placement(&schema, &hash(&[0, 2])).unwrap_err();
    assert!(error.to_string().contains("by \"row_key\" only"), "{error}");
}

#[test]
fn limits_are_named() {
    let wide = families(&["f"]);
    let check = |row_key: usize, family, qualifier: usize, value| {
        let (row_key, qualifier) = (vec![1; row_key], vec![2; qualifier]);
        wide.check_cell(&row_key, family, &qualifier, value).map_err(|error| error.to_string())
    };
    assert_eq!(check(4096, "f", 16 * 1024, 100 * 1024 * 1024), Ok(()));
    assert_eq!(check(0, "f", 0, 0), Err("a row key must not be empty".to_owned()));
    assert_eq!(
        check(4097, "f", 0, 0),
        Err("a row key of 4097 bytes exceeds the limit of 4096 bytes".to_owned())
    );
    assert_eq!(
        check(1, "f", 16 * 1024 + 1, 0),
        Err("a qualifier of 16385 bytes exceeds the limit of 16384 bytes".to_owned())
    );
    assert_eq!(
        check(1, "f", 0, 100 * 1024 * 1024 + 1),
        Err("a cell of 104857601 bytes exceeds the limit of 104857600 bytes".to_owned())
    );
    assert_eq!(check(1, "g", 0, 0), Err("column family \"g\" does not exist".to_owned()));
}

#[test]
fn rules_collect_what_their_words_say() {
    let (versions, age) = (GcRule::MaxVersions(2), GcRule::MaxAge(HOUR));
    let now = 100 * HOUR_US;
    // Newest first: two cells are young, and two are old.
    let cells = [now, now - HOUR_US, now - HOUR_US - 1, now - 9 * HOUR_US];
    let kept = |rule: &GcRule| {
        let numbered = (1..).zip(cells);
        let kept = numbered.filter(|(number, timestamp)| {
            !rule.collects(Version { number: *number, timestamp: *timestamp }, now)
        });
        kept.map(|(number, _)| number).collect::<Vec<u64>>()
    };
    assert_eq!(kept(&versions), [1, 2]);
    assert_eq!(kept(&age), [1, 2]);
    assert_eq!(kept(&GcRule::MaxVersions(1)), [1]);
    let three = GcRule::MaxVersions(3);
    assert_eq!(kept(&GcRule::Union(vec![three.clone(), age.clone()])), [1, 2]);
    assert_eq!(kept(&GcRule::Intersection(vec![three.clone(), age.clone()])), [1, 2, 3]);
    let nested = GcRule::Union(vec![GcRule::Intersection(vec![versions, age]), three]);
    assert_eq!(kept(&nested), [1, 2]);
    assert!(nested.counts_versions());
    assert!(!GcRule::Union(vec![GcRule::MaxAge(HOUR)]).counts_versions());
}

/// True if a mutation deletes a cell.
fn deletes(mutation: &CellMutation, cell: &CellKey) -> bool {
    match mutation {
        CellMutation::SetCell { .. } | CellMutation::AddToCell { .. } => false,
        CellMutation::DeleteFromColumn { family, qualifier, start, end } => {
            cell.family == *family
                && cell.qualifier == *qualifier
                && start.is_none_or(|start| cell.timestamp >= start)
                && end.is_none_or(|end| cell.timestamp < end)
        }
        CellMutation::DeleteFromFamily { family } => cell.family == *family,
        CellMutation::DeleteFromRow => true,
    }
}

#[test]
fn a_request_with_many_deletions_looks_at_each_cell_once() {
    let there: Vec<CellKey> = (0..100_000).map(|time| key("f", "a", time)).collect();
    let deletion = |time: i64| CellMutation::DeleteFromColumn {
        family: "f".to_owned(),
        qualifier: b"a".to_vec(),
        start: Some(time),
        end: Some(time + 1),
    };
    let both = |time: i64| [set("f", "b", time, ""), deletion(time)];
    let mut mutations: Vec<CellMutation> = (0..50_000).flat_map(both).collect();
    mutations.extend((0..1_000).map(|_| CellMutation::DeleteFromFamily { family: "f".to_owned() }));
    mutations.push(set("f\0", "b", 1, ""));
    let request = RowMutation { row_key: b"r".to_vec(), mutations };
    let change = change_of(&request, there.iter(), 0);
    assert_eq!(change.removed.len(), there.len());
    assert_eq!(change.written.len(), 1, "another family");
}

#[test]
fn later_mutations_of_a_request_see_earlier_ones() {
    let there = [key("f", "a", 1), key("f", "a", 2), key("f", "b", 1), key("g", "a", 1)];
    let change = |mutations: Vec<CellMutation>| {
        let request = RowMutation { row_key: b"r".to_vec(), mutations };
        assert!(request.check(&families(&["f", "g"])).is_ok());
        change_of(&request, there.iter(), 77)
    };
    let column = CellMutation::DeleteFromColumn {
        family: "f".to_owned(),
        qualifier: b"a".to_vec(),
        start: Some(2),
        end: None,
    };
    // Deleted, then written.
    let after = change(vec![column.clone(), set("f", "a", 2, "x")]);
    assert_eq!(after.written, BTreeMap::from([(key("f", "a", 2), b"x".to_vec())]));
    assert!(after.removed.is_empty());
    // Written, then deleted.
    let after = change(vec![set("f", "a", 2, "x"), set("f", "a", 3, "y"), column]);
    assert!(after.written.is_empty());
    assert_eq!(after.removed.iter().collect::<Vec<_>>(), [&there[1]]);
    let after = change(vec![
        CellMutation::DeleteFromFamily { family: "f".to_owned() },
        set("g", "a", 9, ""),
    ]);
    assert_eq!(after.removed.len(), 3);
    let after = change(vec![CellMutation::DeleteFromRow]);
    assert_eq!(after.removed.iter().collect::<Vec<_>>(), there.iter().collect::<Vec<_>>());
}

#[test]
fn cells_without_a_time_get_that_of_the_server_once() {
    let mutation = CellMutation::SetCell {
        family: "f".to_owned(),
        qualifier: Vec::new(),
        timestamp: None,
        value: Vec::new(),
    };
    let request = RowMutation { row_key: b"r".to_vec(), mutations: vec![mutation] };
    assert!(!request.reads());
    let stamped = request.stamped(5);
    assert_eq!(stamped.clone().stamped(6), stamped);
    let change = change_of(&stamped, std::iter::empty(), 7);
    assert_eq!(change.written.keys().next(), Some(&key("f", "", 5)));
}

#[test]
fn garbage_of_a_row_is_that_of_its_columns() {
    let mut wide = families(&["f", "g"]);
    wide.families[0].gc = Some(GcRule::MaxVersions(1));
    let cells = BTreeSet::from([
        key("f", "a", 1),
        key("f", "a", 2),
        key("f", "b", 1),
        key("g", "a", 1),
        key("g", "a", 2),
        key("gone", "a", 1),
    ]);
    let garbage: Vec<&CellKey> = wide.garbage(cells.iter(), 9).into_iter().collect();
    assert_eq!(garbage, [&key("f", "a", 1), &key("gone", "a", 1)]);
}

#[test]
fn numbers_are_combined_in_the_order_of_the_mutations() {
    let number = |number: i64| number.to_be_bytes().to_vec();
    let cells = BTreeMap::from([
        (key("high", "a", 1), number(3)),
        (key("low", "a", 1), number(3)),
        (key("n", "a", 1), number(3)),
        (key("n", "a", 2), number(100)),
    ]);
    let hidden = BTreeSet::from([key("n", "a", 2)]);
    let change = |mutations: Vec<CellMutation>| {
        let request = RowMutation { row_key: b"r".to_vec(), mutations };
        request.check(&aggregates()).unwrap();
        assert!(request.reads());
        request.change(&aggregates(), (&cells, &hidden), 77).unwrap()
    };
    let combined = change(vec![
        add("n", "a", 1, 4),
        add("n", "a", 1, -2),
        add("low", "a", 1, 4),
        add("low", "b", 1, 4),
        add("high", "a", 1, 4),
        set("f", "a", 1, "x"),
    ]);
    let expected = [
        (key("f", "a", 1), b"x".to_vec()),
        (key("high", "a", 1), number(4)),
        (key("low", "a", 1), number(3)),
        (key("low", "b", 1), number(4)),
        (key("n", "a", 1), number(5)),
    ];
    assert_eq!(combined, RowChange { written: BTreeMap::from(expected), removed: BTreeSet::new() });
    // Garbage is not there, and neither is a cell that was deleted before.
    let value = |change: &RowChange, time| change.written.get(&key("n", "a", time)).cloned();
    assert_eq!(value(&change(vec![add("n", "a", 2, 7)]), 2), Some(number(7)));
    let renewed = change(vec![CellMutation::DeleteFromRow, add("n", "a", 1, 7)]);
    assert_eq!(value(&renewed, 1), Some(number(7)));
    assert_eq!(renewed.removed.len(), 3);
    let deleted = change(vec![add("n", "a", 1, 7), CellMutation::DeleteFromRow]);
    assert_eq!((deleted.written.len(), deleted.removed.len()), (0, 4));
}

#[test]
fn cells_of_aggregate_families_are_numbers_that_are_only_added_to() {
    let wide = aggregates();
    let check = |mutation| {
        let request = RowMutation { row_key: b"r".to_vec(), mutations: vec![mutation] };
        request.check(&wide).unwrap_err().to_string()
    };
    assert_eq!(
        check(set("n", "a", 1, "12345678")),
        "column family \"n\" is an aggregate family, to whose cells numbers can be added only"
    );
    assert_eq!(check(add("f", "a", 1, 1)), "column family \"f\" is not an aggregate family");
    assert_eq!(check(add("g", "a", 1, 1)), "column family \"g\" does not exist");
    let rule = ReadModifyRule::Increment { family: "n".to_owned(), qualifier: vec![], amount: 1 };
    let request = ReadModify { row_key: b"r".to_vec(), rules: vec![rule] };
    assert!(request.check(&wide).unwrap_err().to_string().contains("is an aggregate family"));
    wide.check_value("n", 8).unwrap();
    wide.check_value("f", 3).unwrap();
    let error = wide.check_value("n", 3).unwrap_err().to_string();
    assert!(error.ends_with("must be a number of 8 bytes, not 3"), "{error}");
    let cells = BTreeMap::from([(key("n", "a", 1), i64::MAX.to_be_bytes().to_vec())]);
    let request = RowMutation { row_key: b"r".to_vec(), mutations: vec![add("n", "a", 1, 1)] };
    let error = request.change(&wide, (&cells, &BTreeSet::new()), 0).unwrap_err();
    assert_eq!(error.to_string(), "the counter in column \"a\" is out of range");
    assert_eq!(request.added(), BTreeSet::from([key("n", "a", 1)]));
    assert!(!request.deletes());
}

fn increment(amount: i64) -> ReadModifyRule {
    ReadModifyRule::Increment { family: "f".to_owned(), qualifier: b"n".to_vec(), amount }
}

#[test]
fn counters_and_texts_grow_from_the_newest_cell() {
    let append = |value: &str| ReadModifyRule::Append {
        family: "f".to_owned(),
        qualifier: b"t".to_vec(),
        value: value.as_bytes().to_vec(),
    };
    let cells = BTreeMap::from([
        (key("f", "n", 10), 1_i64.to_be_bytes().to_vec()),
        (key("f", "n", 20), 40_i64.to_be_bytes().to_vec()),
        (key("f", "t", 5), b"ab".to_vec()),
        (key("f", "x", 5), b"ab".to_vec()),
    ]);
    let request = |rules: Vec<ReadModifyRule>| ReadModify { row_key: b"r".to_vec(), rules };
    let both = request(vec![increment(1), append("c"), increment(1), append("d")]);
    // The counter's newest cell is of a later time than the server's.
    let written = both.change(&cells, 15).unwrap();
    let expected =
        [(key("f", "n", 20), 42_i64.to_be_bytes().to_vec()), (key("f", "t", 15), b"abcd".to_vec())];
    assert_eq!(written, BTreeMap::from(expected));
    let fresh = request(vec![increment(-7)]).change(&BTreeMap::new(), 15).unwrap();
    assert_eq!(fresh.into_values().next(), Some((-7_i64).to_be_bytes().to_vec()));
    let error = request(vec![increment(i64::MAX)]).change(&cells, 15).unwrap_err();
    assert_eq!(error.to_string(), "the counter in column \"n\" is out of range");
    let no_counter =
        ReadModifyRule::Increment { family: "f".to_owned(), qualifier: b"x".to_vec(), amount: 1 };
    let error = request(vec![no_counter]).change(&cells, 15).unwrap_err();
    assert!(error.to_string().contains("which is not a counter of 8"), "{error}");
}

fn rules() -> impl Strategy<Value = GcRule> {
    let leaf = prop_oneof![
        (1_u32..5).prop_map(GcRule::MaxVersions),
        (1_u64..20).prop_map(|micros| GcRule::MaxAge(Duration::from_micros(micros))),
    ];
    leaf.prop_recursive(3, 8, 3, |rule| {
        prop_oneof![
            vec(rule.clone(), 1..3).prop_map(GcRule::Union),
            vec(rule, 1..3).prop_map(GcRule::Intersection),
        ]
    })
}

/// Garbage by the words of a rule: sets of the timestamps of a column, newest first.
fn garbage(rule: &GcRule, column: &[i64], now: i64) -> BTreeSet<i64> {
    match rule {
        GcRule::MaxVersions(kept) => column.iter().skip(*kept as usize).copied().collect(),
        GcRule::MaxAge(age) => {
            let oldest = now - i64::try_from(age.as_micros()).unwrap();
            column.iter().filter(|timestamp| **timestamp < oldest).copied().collect()
        }
        GcRule::Union(rules) => rules.iter().flat_map(|rule| garbage(rule, column, now)).collect(),
        GcRule::Intersection(rules) => {
            let sets = rules.iter().map(|rule| garbage(rule, column, now));
            sets.reduce(|a, b| a.intersection(&b).copied().collect()).unwrap_or_default()
        }
    }
}

/// The cells of a column that a rule keeps, newest first.
fn kept(rule: &GcRule, column: &[i64], now: i64) -> Vec<i64> {
    let numbered = (1..).zip(column);
    let is_kept = |(number, timestamp): &(u64, &i64)| {
        !rule.collects(Version { number: *number, timestamp: **timestamp }, now)
    };
    numbered.filter(is_kept).map(|(_, timestamp)| *timestamp).collect()
}

proptest! {
    #[test]
    fn rules_collect_the_sets_of_a_plain_model(
        rule in rules(),
        column in btree_set(0_i64..30, 0..12),
        now in 0_i64..40,
    ) {
        let column: Vec<i64> = column.into_iter().rev().collect();
        let garbage = garbage(&rule, &column, now);
        let expected: Vec<i64> =
            column.iter().filter(|cell| !garbage.contains(cell)).copied().collect();
        prop_assert_eq!(kept(&rule, &column, now), expected);
    }

    /// Garbage that was removed for some cells only, or earlier, makes no difference later.
    #[test]
    fn it_does_not_matter_when_garbage_is_removed(
        rule in rules(),
        column in btree_set(0_i64..30, 0..12),
        now in 0_i64..40,
        later in 0_i64..10,
        removed in vec(any::<bool>(), 12),
    ) {
        let column: Vec<i64> = column.into_iter().rev().collect();
        let at_once = kept(&rule, &column, now + later);
        let alive = kept(&rule, &column, now);
        prop_assert!(column.starts_with(&alive), "garbage is the oldest part");
        // Some of the garbage is removed, as by a compaction of some files.
        let rest = column.iter().zip(&removed);
        let rest = rest.filter(|(cell, removed)| alive.contains(cell) || !**removed);
        let rest: Vec<i64> = rest.map(|(cell, _)| *cell).collect();
        prop_assert_eq!(kept(&rule, &rest, now + later), at_once);
    }

    /// Against a map of cells, to which mutations are applied one by one.
    #[test]
    fn a_request_changes_what_its_mutations_change_one_by_one(
        there in btree_map((0_u8..2, 0_u8..3, 0_i64..4), 0_u8..9, 0..12),
        mutations in vec((0_u8..5, 0_u8..2, 0_u8..3, 0_i64..4, 1_i64..3), 1..8),
    ) {
        let key_of = |(family, qualifier, timestamp): (u8, u8, i64)| {
            key(["f", "g"][usize::from(family)], ["a", "b", "c"][usize::from(qualifier)], timestamp)
        };
        let mut cells: BTreeMap<CellKey, Vec<u8>> =
            there.into_iter().map(|(cell, value)| (key_of(cell), vec![value])).collect();
        let mutations = mutations.into_iter().map(|(kind, family, qualifier, from, length)| {
            let CellKey { family, qualifier, .. } = key_of((family, qualifier, 0));
            match kind {
                0 | 1 => CellMutation::SetCell {
                    family,
                    qualifier,
                    timestamp: Some(from),
                    value: vec![100 + kind],
                },
                2 => CellMutation::DeleteFromColumn {
                    family,
                    qualifier,
                    start: Some(from),
                    end: Some(from + length),
                },
                3 => CellMutation::DeleteFromFamily { family },
                _ => CellMutation::DeleteFromRow,
            }
        });
        let request = RowMutation { row_key: b"r".to_vec(), mutations: mutations.collect() };
        let change = change_of(&request, cells.keys(), 0);
        prop_assert!(change.removed.iter().all(|cell| cells.contains_key(cell)));
        let mut changed = cells.clone();
        changed.retain(|cell, _| !change.removed.contains(cell));
        changed.extend(change.written);
        for mutation in &request.mutations {
            match mutation {
                CellMutation::SetCell { family, qualifier, timestamp, value } => {
                    let (family, qualifier) = (family.clone(), qualifier.clone());
                    let timestamp = timestamp.unwrap();
                    cells.insert(CellKey { family, qualifier, timestamp }, value.clone());
                }
                deletion => cells.retain(|cell, _| !deletes(deletion, cell)),
            }
        }
        prop_assert_eq!(changed, cells);
    }
}

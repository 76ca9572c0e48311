//! Placement of rows, and that pruning never excludes a row's placement.

use std::collections::BTreeMap;

use arrow::record_batch::RecordBatch;
use proptest::prelude::*;
use proptest::sample::select;

use super::Placement;
use crate::arbitrary::{batch, nullable, table, table_and_rows};
use crate::domain::{Domain, Domains};
use crate::error::Error;
use crate::hash::{bucket, hash_values};
use crate::id::ColumnId;
use crate::rule::tests::{COMPARISONS, compare, rule};
use crate::rule::{Comparison, Rule, check_cover};
use crate::schema::{ColumnType, TableSchema};
use crate::value::Value;

fn text(value: &str) -> Value {
    Value::String(value.to_owned())
}

fn place(placement: &Placement, schema: &TableSchema, rows: &RecordBatch) -> Vec<u16> {
    placement.place(schema, rows).unwrap().unwrap().values().to_vec()
}

/// Four rules over a device's number and its area.
fn areas() -> (TableSchema, Placement) {
    use Comparison::{Greater, GreaterOrEqual, Less, LessOrEqual};
    let mut schema = table(&[ColumnType::Int32, ColumnType::String]);
    schema.columns[0].name = "device_id".to_owned();
    schema.columns[1].name = "area".to_owned();
    let both = |device, area, name| {
        Rule::And(vec![compare(1, device, Value::Int(100)), compare(2, area, text(name))])
    };
    let rules = vec![
        both(Less, Less, "South"),
        both(Less, GreaterOrEqual, "South"),
        both(GreaterOrEqual, LessOrEqual, "East"),
        both(GreaterOrEqual, Greater, "East"),
    ];
    (schema, Placement::Rules { columns: vec![ColumnId(1), ColumnId(2)], rules })
}

#[test]
fn twelve_rows_are_routed_three_to_each_of_four_rules() {
    let (schema, placement) = areas();
    let Placement::Rules { rules, .. } = &placement else { unreachable!() };
    assert_eq!(check_cover(rules, &schema), Ok(()));
    let rows = [
        (1, "North"),
        (10, "East"),
        (99, "North"),
        (1, "South"),
        (50, "West"),
        (99, "South"),
        (100, "East"),
        (101, "Central"),
        (200, "East"),
        (100, "North"),
        (150, "South"),
        (300, "West"),
    ];
    let rows = rows.map(|(device, area)| vec![Value::Int(device), text(area)]);
    let mut counts: BTreeMap<u16, u32> = BTreeMap::new();
    for placement in place(&placement, &schema, &batch(&schema, &rows)) {
        *counts.entry(placement).or_default() += 1;
    }
    assert_eq!(counts, BTreeMap::from([(0, 3), (1, 3), (2, 3), (3, 3)]));
}

#[test]
fn a_filter_leaves_the_rules_that_can_hold_its_rows() {
    let (schema, placement) = areas();
    let candidates = |device: Domain, area: Domain| {
        let mut domains = Domains::default();
        domains.restrict("a#1", device);
        domains.restrict("b#2", area);
        placement.candidates(&schema, &domains).unwrap()
    };
    assert_eq!(candidates(Domain::all(), Domain::all()), [0, 1, 2, 3]);
    assert_eq!(candidates(Domain::point(Value::Int(7)), Domain::all()), [0, 1]);
    assert_eq!(candidates(Domain::all(), Domain::point(text("North"))), [0, 3]);
    assert_eq!(candidates(Domain::point(Value::Int(7)), Domain::point(text("North"))), [0]);
    assert_eq!(candidates(Domain::null_only(), Domain::null_only()), [0]);
    assert_eq!(candidates(Domain::none(), Domain::all()), [0_u16; 0]);
}

#[test]
fn hash_candidates_are_found_for_finite_sets_only() {
    let schema = table(&[ColumnType::UInt64, ColumnType::String]);
    let placement = Placement::Hash { columns: vec![ColumnId(1), ColumnId(2)] };
    let mut domains = Domains::default();
    domains.restrict("a#1", Domain::points([Value::Int(1), Value::Int(2)]));
    assert_eq!(placement.candidates(&schema, &domains), None);
    domains.restrict("b#2", Domain::points([text("x"), Value::Null]));
    let found = placement.candidates(&schema, &domains).unwrap();
    let mut expected: Vec<u16> = [1, 2]
        .into_iter()
        .flat_map(|a| [text("x"), Value::Null].map(|b| bucket(hash_values(&[Value::UInt(a), b]))))
        .collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    let many = Domain::interval(
        std::ops::Bound::Included(Value::Int(0)),
        std::ops::Bound::Excluded(Value::Int(513)),
    );
    let mut domains = Domains::default();
    domains.restrict("a#1", many);
    domains.restrict("b#2", Domain::points([text("x"), text("y")]));
    assert_eq!(placement.candidates(&schema, &domains), None);
    domains.restrict("a#1", Domain::compare(Comparison::Less, Value::Int(0)));
    assert_eq!(placement.candidates(&schema, &domains), Some(vec![]));
}

#[test]
fn tables_placed_by_range_have_no_placement() {
    let schema = table(&[ColumnType::Int64]);
    let rows = batch(&schema, &[vec![Value::Int(1)]]);
    assert!(Placement::Range.place(&schema, &rows).unwrap().is_none());
    assert_eq!(Placement::Range.candidates(&schema, &Domains::default()), None);
    assert!(Placement::Range.columns().is_empty());
    assert_eq!(Placement::Range.to_sql(&schema, 3), None);
}

#[test]
fn a_row_outside_of_all_rules_is_named() {
    let (schema, Placement::Rules { columns, mut rules }) = areas() else { unreachable!() };
    rules.truncate(2);
    let placement = Placement::Rules { columns, rules };
    let rows = [vec![Value::Int(1), text("x")], vec![Value::Int(100), Value::Null]];
    let error = placement.place(&schema, &batch(&schema, &rows)).unwrap_err();
    let message = "row `device_id=100, area=NULL` satisfies no partition expression";
    assert_eq!(error, Error::InvalidInput(message.to_owned()));
}

#[test]
fn a_placement_is_shown_as_the_clause_that_makes_it() {
    let (schema, placement) = areas();
    assert_eq!(
        placement.to_sql(&schema, 4).unwrap(),
        "PARTITION ON COLUMNS (device_id, area) (\n  \
         device_id < 100 AND area < 'South',\n  \
         device_id < 100 AND area >= 'South',\n  \
         device_id >= 100 AND area <= 'East',\n  \
         device_id >= 100 AND area > 'East'\n)"
    );
    let hash = Placement::Hash { columns: vec![ColumnId(1)] };
    assert_eq!(hash.to_sql(&schema, 8).unwrap(), "PARTITION BY HASH (device_id) PARTITIONS 8");
}

fn restrictions(schema: &TableSchema) -> impl Strategy<Value = Domains> + use<> {
    let columns: Vec<_> = schema
        .columns
        .iter()
        .map(|column| {
            let points = prop::collection::vec(nullable(column.column_type), 1..6)
                .prop_map(|values| Some(Domain::points(values)));
            let range = (select(COMPARISONS.to_vec()), nullable(column.column_type), any::<bool>())
                .prop_map(|(op, value, null)| Some(Domain::compare(op, value).with_null(null)));
            prop_oneof![1 => Just(None), 3 => points, 1 => range]
        })
        .collect();
    let names: Vec<String> = schema.columns.iter().map(|c| c.storage_name.clone()).collect();
    columns.prop_map(move |columns| {
        let mut domains = Domains::default();
        for (name, domain) in names.iter().zip(columns) {
            if let Some(domain) = domain {
                domains.restrict(name, domain);
            }
        }
        domains
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn candidates_hold_every_row_of_the_domains(
        (schema, rows, domains, one) in table_and_rows().prop_flat_map(|(schema, rows)| {
            let (domains, one) = (restrictions(&schema), rule(&schema));
            (Just(schema), Just(rows), domains, one)
        }),
    ) {
        let columns: Vec<ColumnId> = schema.columns.iter().map(|column| column.id).collect();
        let rows = batch(&schema, &rows);
        let wanted = domains.mask(&rows).unwrap();
        let hash = Placement::Hash { columns: columns.clone() };
        // The second takes what the first leaves.
        let rules = Placement::Rules { columns, rules: vec![one, Rule::And(vec![])] };
        for placement in [hash, rules] {
            let placements = place(&placement, &schema, &rows);
            let Some(candidates) = placement.candidates(&schema, &domains) else { continue };
            prop_assert!(candidates.is_sorted());
            for (row, placed) in placements.iter().enumerate() {
                if wanted.as_ref().is_none_or(|wanted| wanted.value(row)) {
                    prop_assert!(candidates.contains(placed));
                }
            }
        }
    }
}

#[test]
fn a_hash_of_the_key_has_all_of_its_columns_unless_rows_are_kept_together() {
    let mut schema = table(&[ColumnType::Int32, ColumnType::String]);
    let key: Vec<ColumnId> = schema.key_columns().map(|column| column.id).collect();
    assert_eq!(Placement::by_key(&schema), Placement::Hash { columns: key.clone() });
    schema.options.partitioning.keep_together = 1;
    assert_eq!(Placement::by_key(&schema), Placement::Hash { columns: key[..1].to_vec() });
}

//! Rules against brute force: masks against the definition, coverage against all values.

use proptest::prelude::*;
use proptest::sample::select;

use super::{Comparison, Rule, check_cover};
use crate::arbitrary::{batch, column_type, nullable, table, table_and_rows, value};
use crate::domain::{Domain, Domains};
use crate::error::Error;
use crate::id::ColumnId;
use crate::schema::{ColumnType, TableSchema};
use crate::value::Value;

pub(crate) const COMPARISONS: [Comparison; 6] = [
    Comparison::Equal,
    Comparison::NotEqual,
    Comparison::Less,
    Comparison::LessOrEqual,
    Comparison::Greater,
    Comparison::GreaterOrEqual,
];

pub(crate) fn compare(column: u32, comparison: Comparison, value: Value) -> Rule {
    Rule::Compare { column: ColumnId(column), comparison, value }
}

fn int(column: u32, comparison: Comparison, value: i64) -> Rule {
    compare(column, comparison, Value::Int(value))
}

fn text(value: &str) -> Value {
    Value::String(value.to_owned())
}

/// Any expression over a table's columns.
pub(crate) fn rule(schema: &TableSchema) -> impl Strategy<Value = Rule> + use<> {
    let columns: Vec<(ColumnId, ColumnType)> =
        schema.columns.iter().map(|column| (column.id, column.column_type)).collect();
    let leaf = select(columns).prop_flat_map(|(column, column_type)| {
        (select(COMPARISONS.to_vec()), value(column_type))
            .prop_map(move |(comparison, value)| Rule::Compare { column, comparison, value })
    });
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Rule::And),
            prop::collection::vec(inner, 0..4).prop_map(Rule::Or),
        ]
    })
}

/// Access to a row's values by column, for the oracle.
fn lookup(row: &[Value]) -> impl Fn(ColumnId) -> Value {
    |id| row[usize::try_from(id.0).unwrap() - 1].clone()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn a_mask_says_what_the_definition_says(
        (schema, rows, rule) in table_and_rows().prop_flat_map(|(schema, rows)| {
            let rule = rule(&schema);
            (Just(schema), Just(rows), rule)
        }),
    ) {
        let mask = rule.mask(&schema, &batch(&schema, &rows)).unwrap();
        prop_assert_eq!(arrow::array::Array::null_count(&mask), 0);
        let found: Vec<bool> = mask.values().iter().collect();
        let expected: Vec<bool> = rows.iter().map(|row| rule.matches(&lookup(row))).collect();
        prop_assert_eq!(found, expected, "{}", rule.to_sql(&schema));
    }

    #[test]
    fn a_rule_that_a_row_of_the_domains_satisfies_may_match(
        (schema, rows, rule, restrictions) in table_and_rows().prop_flat_map(|(schema, rows)| {
            let rule = rule(&schema);
            let restrictions: Vec<_> = schema
                .columns
                .iter()
                .map(|column| (
                    select(COMPARISONS.to_vec()), nullable(column.column_type), any::<bool>(),
                ))
                .collect();
            (Just(schema), Just(rows), rule, restrictions)
        }),
    ) {
        let mut domains = Domains::default();
        for (column, (comparison, value, null)) in schema.columns.iter().zip(restrictions) {
            let domain = Domain::compare(comparison, value).with_null(null);
            domains.restrict(&column.storage_name, domain);
        }
        let rows_of_domains = rows.iter().filter(|row| {
            schema.columns.iter().zip(row.iter()).all(|(column, value)| {
                domains.get(&column.storage_name).is_none_or(|domain| domain.contains(value))
            })
        });
        for row in rows_of_domains {
            prop_assert!(!rule.matches(&lookup(row)) || rule.may_match(&schema, &domains));
        }
    }
}

/// Rules that cover a table by construction: a region is cut in two repeatedly.
fn tree(schema: &TableSchema, cuts: usize) -> impl Strategy<Value = Vec<Rule>> + use<> {
    let columns: Vec<(ColumnId, ColumnType)> =
        schema.columns.iter().map(|column| (column.id, column.column_type)).collect();
    let cut = select(columns).prop_flat_map(|(column, column_type)| {
        let pair = select(vec![
            (Comparison::Less, Comparison::GreaterOrEqual),
            (Comparison::LessOrEqual, Comparison::Greater),
            (Comparison::NotEqual, Comparison::Equal),
        ]);
        (any::<prop::sample::Index>(), pair, value(column_type)).prop_map(
            move |(leaf, (one, other), value)| {
                let rule = |comparison| Rule::Compare { column, comparison, value: value.clone() };
                (leaf, rule(one), rule(other))
            },
        )
    });
    prop::collection::vec(cut, 1..=cuts).prop_map(|cuts| {
        let mut regions: Vec<Vec<Rule>> = vec![Vec::new()];
        for (leaf, one, other) in cuts {
            let position = leaf.index(regions.len());
            let mut region = regions[position].clone();
            regions[position].push(one);
            region.push(other);
            regions.push(region);
        }
        regions.into_iter().map(Rule::And).collect()
    })
}

/// Number of rules that each row satisfies; `rows` are all possible rows.
fn counts(rules: &[Rule], rows: &[Vec<Value>]) -> Vec<usize> {
    rows.iter().map(|row| rules.iter().filter(|r| r.matches(&lookup(row))).count()).collect()
}

fn all_rows(types: &[ColumnType], nullable: bool) -> Vec<Vec<Value>> {
    let mut rows: Vec<Vec<Value>> = vec![Vec::new()];
    for column_type in types {
        let mut values = if nullable { vec![Value::Null] } else { vec![] };
        match column_type {
            ColumnType::Bool => values.extend([Value::Bool(false), Value::Bool(true)]),
            ColumnType::Decimal(1, 0) => values.extend((-9..=9).map(Value::Decimal)),
            ColumnType::Int8 => values.extend((-128..=127).map(Value::Int)),
            other => unreachable!("{other:?} is not small"),
        }
        rows = rows
            .iter()
            .flat_map(|row| values.iter().map(|v| [row.clone(), vec![v.clone()]].concat()))
            .collect();
    }
    rows
}

fn assert_cover(rules: &[Rule], types: &[ColumnType]) -> Result<(), TestCaseError> {
    let mut schema = table(types);
    let nullable = types.len() % 2 == 1;
    schema.columns.iter_mut().for_each(|column| column.nullable = nullable);
    let texts: std::collections::BTreeSet<String> =
        rules.iter().map(|rule| rule.to_sql(&schema)).collect();
    let counts = counts(rules, &all_rows(types, nullable));
    let exact = counts.iter().all(|count| *count == 1);
    let checked = check_cover(rules, &schema);
    if texts.len() < rules.len() {
        // Two that no row satisfies may stand twice in an exact cover, but are not welcome either.
        prop_assert!(checked.unwrap_err().to_string().starts_with("duplicate"));
        return Ok(());
    }
    prop_assert_eq!(checked.is_ok(), exact, "{:?} {:?}", checked, texts);
    if let Err(error) = checked {
        let error = error.to_string();
        prop_assert!(!error.contains("not covered") || counts.contains(&0), "{}", error);
        prop_assert!(!error.contains("both") || counts.iter().any(|n| *n > 1), "{}", error);
    }
    Ok(())
}

/// Two of these, or three with a boolean, are few enough values to try them all.
fn small_types() -> impl Strategy<Value = Vec<ColumnType>> {
    let digit = ColumnType::Decimal(1, 0);
    select(vec![
        vec![ColumnType::Int8],
        vec![ColumnType::Bool],
        vec![digit, ColumnType::Bool],
        vec![ColumnType::Int8, ColumnType::Bool],
        vec![digit, digit],
        vec![digit, ColumnType::Bool, digit],
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_rules_are_checked_like_every_row_would(
        (types, rules) in small_types().prop_flat_map(|types| {
            let rules = prop::collection::vec(rule(&table(&types)), 1..5);
            (Just(types), rules)
        }),
    ) {
        assert_cover(&rules, &types)?;
    }

    #[test]
    fn covering_rules_with_one_changed_are_checked_like_every_row_would(
        (types, mut rules, other) in small_types().prop_flat_map(|types| {
            let rules = tree(&table(&types), 6);
            let other = rule(&table(&types));
            (Just(types), rules, other)
        }),
        change in 0..4_u8,
        position in any::<prop::sample::Index>(),
    ) {
        let position = position.index(rules.len());
        match change {
            0 => {}
            1 if rules.len() > 1 => {
                rules.remove(position);
            }
            2 => rules.push(other),
            _ => rules[position] = other,
        }
        assert_cover(&rules, &types)?;
    }

    #[test]
    fn regions_cut_from_a_table_of_any_types_cover_it(
        (schema, rules) in prop::collection::vec(column_type(), 1..=3).prop_flat_map(|types| {
            let schema = table(&types);
            let rules = tree(&schema, 10);
            (Just(schema), rules)
        }),
    ) {
        // A cut at a cut that was made before leaves a region without rows, twice as it may be.
        match check_cover(&rules, &schema) {
            Err(error) if error.to_string().starts_with("duplicate") => {}
            checked => prop_assert_eq!(checked, Ok(())),
        }
    }
}

fn message(rules: &[Rule], schema: &TableSchema) -> String {
    match check_cover(rules, schema) {
        Err(Error::InvalidInput(message)) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn gaps_and_overlaps_are_named_by_a_row() {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual};
    let schema = table(&[ColumnType::Int64, ColumnType::Int64]);
    assert_eq!(
        message(&[int(1, Less, 10), int(1, Greater, 10)], &schema),
        "checkpoint `a=10` is not covered by any partition expression"
    );
    assert_eq!(
        message(&[int(1, LessOrEqual, 10), int(1, GreaterOrEqual, 10)], &schema),
        "checkpoint `a=10` is covered by both `a <= 10` and `a >= 10`"
    );
    assert_eq!(
        message(&[int(1, Less, 10), int(1, Less, 10), int(1, GreaterOrEqual, 10)], &schema),
        "duplicate partition expression `a < 10`"
    );
    assert_eq!(
        message(&[int(1, GreaterOrEqual, 10)], &schema),
        "checkpoint `a=NULL` is not covered by any partition expression"
    );
    let both = |a, b| Rule::And(vec![a, b]);
    let rules = [
        int(1, Less, 10),
        both(int(1, Equal, 10), int(2, Greater, 5)),
        both(int(1, GreaterOrEqual, 11), int(2, LessOrEqual, 0)),
        both(int(1, GreaterOrEqual, 11), int(2, Greater, 0)),
    ];
    assert_eq!(
        message(&rules, &schema),
        "checkpoint `a=10, b=NULL` is not covered by any partition expression"
    );
    assert!(check_cover(&[int(1, Less, 10), int(1, Greater, 9)], &schema).is_ok());
    assert!(check_cover(&[], &schema).is_err());
    assert!(check_cover(&[int(7, Less, 10)], &schema).is_err());
    assert!(check_cover(&[compare(1, Less, text("x"))], &schema).is_err());
    assert!(check_cover(&[compare(1, Less, Value::Null)], &schema).is_err());
    assert!(check_cover(&[Rule::And(vec![])], &schema).is_ok());
    assert!(check_cover(&[Rule::Or(vec![])], &schema).is_err());
}

#[test]
fn a_gap_depends_on_the_type() {
    use Comparison::{GreaterOrEqual, Less, LessOrEqual};
    let rules = [int(1, LessOrEqual, 9), int(1, GreaterOrEqual, 10)];
    assert!(check_cover(&rules, &table(&[ColumnType::Int32])).is_ok());
    assert!(message(&rules, &table(&[ColumnType::Float64])).contains("not covered"));
    let rules = [compare(1, LessOrEqual, text("a")), compare(1, GreaterOrEqual, text("b"))];
    assert!(message(&rules, &table(&[ColumnType::String])).contains("not covered"));
    // The ends of a type need no rule beyond them.
    let rules = [int(1, Less, 255), int(1, GreaterOrEqual, 255)];
    assert!(check_cover(&rules, &table(&[ColumnType::UInt8])).is_ok());
}

#[test]
fn null_is_asked_for_only_where_the_column_takes_it() {
    let rules = [
        compare(1, Comparison::Equal, Value::Bool(true)),
        compare(1, Comparison::Equal, Value::Bool(false)),
    ];
    let mut schema = table(&[ColumnType::Bool]);
    assert!(message(&rules, &schema).contains("`a=NULL` is not covered"));
    schema.columns[0].nullable = false;
    assert!(check_cover(&rules, &schema).is_ok());
}

#[test]
fn many_rules_are_checked_in_no_time_and_too_many_are_refused() {
    use Comparison::{GreaterOrEqual, Less};
    let schema = table(&[ColumnType::Int64, ColumnType::Int64]);
    let ranges = |column, count: i64| -> Vec<Rule> {
        let range = |n| match n {
            0 => int(column, Less, 10),
            n if n == count - 1 => int(column, GreaterOrEqual, n * 10),
            n => {
                Rule::And(vec![int(column, GreaterOrEqual, n * 10), int(column, Less, n * 10 + 10)])
            }
        };
        (0..count).map(range).collect()
    };
    assert_eq!(check_cover(&ranges(1, 4096), &schema), Ok(()));
    let grid = |count| -> Vec<Rule> {
        let (rows, columns) = (ranges(1, count), ranges(2, count));
        let cell = |row: &Rule, column: &Rule| Rule::And(vec![row.clone(), column.clone()]);
        rows.iter().flat_map(|row| columns.iter().map(move |column| cell(row, column))).collect()
    };
    assert_eq!(check_cover(&grid(64), &schema), Ok(()));
    assert!(message(&grid(120), &schema).contains("too many to check"));
    let mut deep = int(1, Less, 1);
    for _ in 0..100 {
        deep = Rule::And(vec![deep]);
    }
    assert!(message(&[deep], &schema).contains("nested deeper"));
}

#[test]
fn rules_are_shown_as_sql() {
    use Comparison::{Equal, Less, NotEqual};
    let mut schema = table(&[ColumnType::Int64, ColumnType::String, ColumnType::Date]);
    schema.columns[1].name = "Area".to_owned();
    schema.columns[2].name = "order".to_owned();
    let rule = Rule::Or(vec![
        Rule::And(vec![int(1, Less, 1), compare(2, NotEqual, text("it's"))]),
        compare(3, Equal, Value::Date(0)),
    ]);
    let sql = "(a < 1 AND \"Area\" <> 'it''s') OR \"order\" = '1970-01-01'";
    assert_eq!(rule.to_sql(&schema), sql);
    assert_eq!(rule.columns().into_iter().collect::<Vec<_>>(), [1, 2, 3].map(ColumnId));
    assert_eq!(Rule::And(vec![]).to_sql(&schema), "TRUE");
    assert_eq!(Rule::And(vec![int(1, Less, 1)]).to_sql(&schema), "a < 1");
}

#[test]
fn pruning_sees_through_and_and_or() {
    use Comparison::{Equal, GreaterOrEqual, Less};
    let schema = table(&[ColumnType::Int64, ColumnType::Int64]);
    let rule = Rule::And(vec![
        int(1, Less, 10),
        Rule::Or(vec![
            int(2, Equal, 1),
            Rule::And(vec![int(1, GreaterOrEqual, 5), int(2, Equal, 2)]),
        ]),
    ]);
    let may = |a: Domain, b: Domain| {
        let mut domains = Domains::default();
        domains.restrict("a#1", a);
        domains.restrict("b#2", b);
        rule.may_match(&schema, &domains)
    };
    assert!(may(Domain::all(), Domain::all()));
    assert!(!may(Domain::point(Value::Int(10)), Domain::all()));
    assert!(!may(Domain::all(), Domain::point(Value::Int(3))));
    assert!(!may(Domain::point(Value::Int(4)), Domain::point(Value::Int(2))));
    assert!(may(Domain::point(Value::Int(5)), Domain::point(Value::Int(2))));
    // Literals of other kinds are brought to the column's type.
    assert!(!may(Domain::point(text("10")), Domain::all()));
    assert!(may(Domain::null_only(), Domain::point(Value::UInt(1))));
}

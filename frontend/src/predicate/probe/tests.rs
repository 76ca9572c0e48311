//! Probes of SQL, and what they leave out: no row that satisfies the predicate.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, StringViewArray,
};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::prelude::{SessionConfig, SessionContext};
use partita_proto::index::{Analyzer, Backend, Blooms, Fulltext, Index};
use partita_proto::text::contains_term;
use partita_proto::value::Value;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::*;

const INVERTED: IndexOptions = IndexOptions::Inverted;

fn skipping() -> IndexOptions {
    IndexOptions::Skipping(Blooms::default())
}

fn fulltext(case_sensitive: bool) -> IndexOptions {
    let analyzer = Analyzer::English;
    IndexOptions::Fulltext(Fulltext { analyzer, case_sensitive, backend: Backend::Inverted })
}

/// A table with columns `k`, `host`, `msg` and `n`, and indexes of some of them.
fn table(indexes: &[(&str, IndexOptions)]) -> TableSchema {
    let sql = "CREATE TABLE t (k BIGINT PRIMARY KEY, host STRING, msg STRING, n BIGINT)";
    let statement = partita_sql::parse(sql).unwrap().remove(0);
    let partita_sql::Statement::CreateTable(create) = statement else { panic!("{sql}") };
    let mut schema = create.to_new_table("public").unwrap().0.schema;
    for (name, options) in indexes {
        let column = schema.columns.iter_mut().find(|column| column.name == *name).unwrap();
        let name = format!("{name}_{}", options.kind().method());
        column.indexes.push(Index { name, options: *options });
    }
    schema
}

/// Columns of the table.
fn columns() -> Schema {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    Schema::new(vec![
        field("k", DataType::Int64),
        field("host", DataType::Utf8View),
        field("msg", DataType::Utf8View),
        field("n", DataType::Int64),
    ])
}

/// Expressions of SQL over the table, and their values.
struct Planner {
    context: SessionContext,
    schema: DFSchema,
}

impl Planner {
    fn new() -> Self {
        let dialect = ScalarValue::from("postgresql");
        let config = SessionConfig::new().set("datafusion.sql_parser.dialect", &dialect);
        let context = SessionContext::new_with_config(config);
        for function in partita_worker::functions::shared() {
            context.register_udf(function);
        }
        let schema = DFSchema::try_from(columns()).unwrap();
        Self { context, schema }
    }

    fn expr(&self, sql: &str) -> Expr {
        let parsed = self.context.parse_sql_expr(sql, &self.schema);
        parsed.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Rows for which a predicate is true.
    fn mask(&self, expr: &Expr, rows: &RecordBatch) -> Vec<bool> {
        let physical = self.context.create_physical_expr(expr.clone(), &self.schema);
        let physical = physical.unwrap_or_else(|error| panic!("{expr}: {error}"));
        let values = physical.evaluate(rows).unwrap().into_array(rows.num_rows()).unwrap();
        let values: &BooleanArray = values.as_boolean();
        values.iter().map(|value| value == Some(true)).collect()
    }
}

/// Probes of a filter as texts.
fn probes(sql: &str, indexes: &[(&str, IndexOptions)]) -> Vec<String> {
    let schema = table(indexes);
    let expr = Planner::new().expr(sql);
    probes_of([&expr], &schema).iter().map(|probe| shown(probe, &schema)).collect()
}

#[test]
fn patterns_go_to_an_inverted_index() {
    let indexes = [("host", INVERTED)];
    for (sql, expected) in [
        ("host ~ 'a.c'", Some("host ~ 'a.c'")),
        ("host ~* 'a.c'", Some("host ~* 'a.c'")),
        ("host LIKE '%x%'", Some("host LIKE '%x%'")),
        ("host LIKE 'x%y'", Some("host LIKE 'x%y'")),
        ("host LIKE 'x\\%'", Some("host LIKE 'x\\%'")),
        ("host ILIKE 'a_<.%'", Some("host ~* '(?s)^a.<\\..*$'")),
        ("(host ~ 'a.c') IS TRUE", Some("host ~ 'a.c'")),
        ("host ~ 'a.c' OR host = 'b'", Some("(host ~ 'a.c' OR host in ['b', 'b'])")),
        ("host ~ 'a.c' AND length(msg) = 3", Some("host ~ 'a.c'")),
        // Domains say these.
        ("host = 'x'", None),
        ("host LIKE 'x%'", None),
        ("host LIKE 'x'", None),
        ("host LIKE '%'", None),
        ("host = 'a' OR host > 'x'", None),
        // These exclude nothing.
        ("host !~ 'a.c'", None),
        ("host NOT LIKE '%x%'", None),
        ("NOT (host ~ 'a.c')", None),
        ("host ~ msg", None),
        ("host LIKE '%x\\'", None),
        ("upper(host) LIKE '%x%'", None),
        ("host ~ 'a.c' OR length(msg) = 3", None),
        // No index answers these.
        ("msg ~ 'a.c'", None),
        ("matches_term(host, 'a')", None),
    ] {
        let expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
        assert_eq!(probes(sql, &indexes), expected, "{sql}");
    }
    assert!(probes("host ~ 'a.c'", &[("host", skipping())]).is_empty());
    assert!(probes("host ~ 'a.c'", &[("host", fulltext(false))]).is_empty());
    assert!(probes("host ~ 'a.c'", &[]).is_empty());
}

#[test]
fn terms_go_to_a_full_text_index() {
    for (sql, folds, distinguishes) in [
        ("matches_term(msg, 'Disk')", Some("msg @@ 'Disk'"), true),
        ("matches_term(lower(msg), 'disk')", Some("lower(msg) @@ 'disk'"), false),
        ("matches(msg, 'Disk')", Some("lower(msg) @@ 'disk'"), false),
        (
            "matches(msg, 'disk OR \"cpu load\"')",
            Some("(lower(msg) @@ 'disk' OR lower(msg) @@ 'cpu load')"),
            false,
        ),
        ("matches(msg, 'disk NOT full')", Some("lower(msg) @@ 'disk'"), false),
        ("matches(msg, 'NOT full')", None, false),
        ("matches(msg, '(disk')", None, false),
        ("matches_term(msg, host)", None, false),
        ("NOT matches_term(msg, 'disk')", None, false),
        ("msg LIKE '%disk%'", None, false),
    ] {
        let expected: Vec<String> = folds.into_iter().map(str::to_owned).collect();
        assert_eq!(probes(sql, &[("msg", fulltext(false))]), expected, "{sql}");
        // Words in either case are found only by an index that folds them.
        let expected = if distinguishes { expected } else { Vec::new() };
        assert_eq!(probes(sql, &[("msg", fulltext(true))]), expected, "{sql}");
        assert!(probes(sql, &[("msg", skipping())]).is_empty(), "{sql}");
    }
}

#[test]
fn alternatives_need_an_index_of_each_column() {
    let both = [("host", INVERTED), ("n", skipping())];
    let sql = "host = 'a' OR n = 1";
    assert_eq!(probes(sql, &both), ["(host in ['a', 'a'] OR n in [1, 1])"]);
    let sql = "host = 'a' OR n = 1 OR host = 'b'";
    assert_eq!(probes(sql, &both), ["(host in ['a', 'a'] | ['b', 'b'] OR n in [1, 1])"]);
    assert!(probes(sql, &both[..1]).is_empty());
    // A range is nothing for bloom filters.
    assert!(probes("host = 'a' OR n > 1", &both).is_empty());
    // Of a conjunction one part is enough.
    let sql = "(host = 'a' AND k = 3) OR n = 1";
    assert_eq!(probes(sql, &both), ["((host in ['a', 'a'] AND k in [3, 3]) OR n in [1, 1])"]);
    assert!(probes("k = 3 OR n = 1", &both).is_empty());
    // The conjuncts of one filter are probes of their own.
    let sql = "host ~ 'x' AND (host = 'a' OR n = 1) AND n = 2";
    let expected = ["host ~ 'x'", "(host in ['a', 'a'] OR n in [1, 1])"];
    assert_eq!(probes(sql, &both), expected);
}

#[test]
fn requests_stay_within_their_limits() {
    let schema = table(&[("host", INVERTED), ("msg", INVERTED)]);
    let planner = Planner::new();
    // Chains of one operator are flat, however long they are.
    let alternatives: Vec<String> = (0..100).map(|n| format!("host ~ 'a{n}'")).collect();
    let expr = planner.expr(&alternatives.join(" OR "));
    let sent = probes_of([&expr], &schema);
    let [Probe::Any(parts)] = sent.as_slice() else { panic!("{expr}: {sent:?}") };
    assert_eq!(parts.len(), 100);
    // Operators in turn are not.
    let mut deep = planner.expr("host ~ 'a'");
    let more = (planner.expr("msg ~ 'b'"), planner.expr("host ~ 'c'"));
    let nested = |deep: Expr| deep.or(more.0.clone()).and(more.1.clone());
    for _ in 0..4 {
        deep = nested(deep);
    }
    let depth = |expr: &Expr| probes_of([expr], &schema).iter().map(|p| size(p).1).max();
    assert_eq!(depth(&deep), Some(8));
    for _ in 0..8 {
        deep = nested(deep);
    }
    // What is left is the outermost conjunct.
    assert_eq!(depth(&deep), Some(1));
    let filters = vec![expr; PROBE_NODES_MAX / 50];
    assert_eq!(probes_of(&filters, &schema).len(), 1, "repeated filters are one");
}

#[test]
fn filters_are_classified_with_and_without_an_index() {
    let schema = table(&[]);
    let planner = Planner::new();
    let id = |name: &str| schema.column(name).unwrap().id;
    for (sql, expected) in [
        ("n = 1", vec![("n", FilterClass::Point)]),
        ("n IN (1, 2)", vec![("n", FilterClass::Points)]),
        ("n > 1", vec![("n", FilterClass::Range)]),
        ("n IS NULL", vec![("n", FilterClass::Null)]),
        ("n IS NOT NULL", vec![("n", FilterClass::Null)]),
        ("msg LIKE '%x%'", vec![("msg", FilterClass::Pattern)]),
        ("msg ~* 'x'", vec![("msg", FilterClass::Pattern)]),
        ("matches(msg, 'x')", vec![("msg", FilterClass::Terms)]),
        ("host = 'a' OR host = 'b'", vec![("host", FilterClass::Points)]),
        ("length(host) = 3", vec![]),
    ] {
        let expr = planner.expr(sql);
        let classes: Vec<_> = expected.iter().map(|(name, class)| (id(name), *class)).collect();
        assert_eq!(classes_of([&expr], &schema), classes, "{sql}");
        assert_eq!(is_probed(&expr, &schema), !classes.is_empty(), "{sql}");
        assert!(probes_of([&expr], &schema).is_empty(), "{sql}");
    }
}

const TEXTS: [&str; 12] = [
    "",
    "a",
    "b",
    "ab",
    "A b",
    "a_b",
    "a%b",
    "a\\b",
    "error-prone",
    "errors",
    "An Error, a b",
    "äB",
];

/// All combinations of some values.
fn rows() -> RecordBatch {
    let texts: Vec<Option<&str>> = TEXTS.into_iter().map(Some).chain([None]).collect();
    let numbers = [None, Some(-1), Some(0), Some(1), Some(2)];
    let (mut hosts, mut messages, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for host in &texts {
        for message in &texts {
            for number in numbers {
                hosts.push(*host);
                messages.push(*message);
                values.push(number);
            }
        }
    }
    let keys = Int64Array::from_iter_values((0_i64..).take(values.len()));
    let arrays: Vec<ArrayRef> = vec![
        Arc::new(keys),
        Arc::new(StringViewArray::from(hosts)),
        Arc::new(StringViewArray::from(messages)),
        Arc::new(Int64Array::from(values)),
    ];
    RecordBatch::try_new(Arc::new(columns()), arrays).unwrap()
}

/// Rows that pass a probe, by the words of its definition.
fn passes(planner: &Planner, probe: &Probe, rows: &RecordBatch) -> Vec<bool> {
    let join = |parts: &[Probe], of: fn(bool, bool) -> bool, unit: bool| {
        let masks = parts.iter().map(|part| passes(planner, part, rows));
        masks.fold(vec![unit; rows.num_rows()], |sum, mask| {
            sum.into_iter().zip(mask).map(|(a, b)| of(a, b)).collect()
        })
    };
    match probe {
        Probe::All(parts) => join(parts, |a, b| a && b, true),
        Probe::Any(parts) => join(parts, |a, b| a || b, false),
        Probe::Column { column, test } => match test {
            ColumnTest::Within(domain) => {
                let values = rows.column_by_name(column).unwrap();
                let value = |row: usize| match values.data_type() {
                    _ if values.is_null(row) => Value::Null,
                    DataType::Int64 => Value::Int(values.as_primitive::<Int64Type>().value(row)),
                    _ => Value::String(values.as_string_view().value(row).to_owned()),
                };
                (0..rows.num_rows()).map(|row| domain.contains(&value(row))).collect()
            }
            ColumnTest::Like(pattern) => planner
                .mask(&planner.expr(&format!("{column} LIKE {}", quote_string(pattern))), rows),
            ColumnTest::Regex { pattern, case_insensitive } => {
                let op = if *case_insensitive { "~*" } else { "~" };
                planner
                    .mask(&planner.expr(&format!("{column} {op} {}", quote_string(pattern))), rows)
            }
            ColumnTest::Terms { terms, folded } => {
                let values = rows.column_by_name(column).unwrap().as_string_view();
                let has_all = |text: &str| terms.iter().all(|term| contains_term(text, term));
                let has = |text: &str| {
                    if *folded { has_all(&text.to_lowercase()) } else { has_all(text) }
                };
                values.iter().map(|text| text.is_some_and(has)).collect()
            }
        },
    }
}

fn predicate() -> impl Strategy<Value = String> {
    let column = prop_oneof![Just("host"), Just("msg")];
    let text = proptest::sample::select(TEXTS.to_vec()).prop_map(quote_string);
    let like = "[ab%_A]{0,4}".prop_map(|pattern| quote_string(&pattern));
    let regular = proptest::sample::select(vec!["a", "^a.b$", "A", "a|b", "[ab]+", "r.*r", "^$"]);
    let query = proptest::sample::select(vec![
        "a",
        "b",
        "Error",
        "a b",
        "a OR error",
        "a NOT b",
        "-a",
        "\"a b\"",
        "(a OR b) error",
    ]);
    let leaf = prop_oneof![
        (column.clone(), text.clone()).prop_map(|(c, t)| format!("{c} = {t}")),
        (column.clone(), text.clone()).prop_map(|(c, t)| format!("{c} > {t}")),
        (column.clone(), text.clone()).prop_map(|(c, t)| format!("matches_term({c}, {t})")),
        (column.clone(), text).prop_map(|(c, t)| format!("matches_term(lower({c}), {t})")),
        (column.clone(), query).prop_map(|(c, q)| format!("matches({c}, '{q}')")),
        (column.clone(), like.clone()).prop_map(|(c, p)| format!("{c} LIKE {p}")),
        (column.clone(), like).prop_map(|(c, p)| format!("{c} ILIKE {p}")),
        (column.clone(), regular.clone()).prop_map(|(c, p)| format!("{c} ~ '{p}'")),
        (column.clone(), regular).prop_map(|(c, p)| format!("{c} ~* '{p}'")),
        column.prop_map(|c| format!("{c} IS NULL")),
        (-1_i64..3).prop_map(|n| format!("n = {n}")),
        (-1_i64..3).prop_map(|n| format!("n < {n}")),
    ];
    leaf.prop_recursive(3, 10, 2, |inner| {
        prop_oneof![
            2 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} AND {b})")),
            2 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} OR {b})")),
            1 => inner.prop_map(|a| format!("(NOT {a})")),
        ]
    })
}

#[test]
fn no_row_that_satisfies_a_predicate_fails_its_probes() {
    let (planner, rows) = (Planner::new(), rows());
    let options = |name| {
        let kinds = [INVERTED, skipping(), fulltext(false)];
        kinds.map(|kind| (name, kind))
    };
    let mut indexes = [options("host"), options("msg")].concat();
    indexes.push(("n", INVERTED));
    let schema = table(&indexes);
    let mut runner = TestRunner::default();
    let mut sent = 0;
    for _ in 0..96 {
        let sql = predicate().new_tree(&mut runner).unwrap().current();
        let expr = planner.expr(&sql);
        let wanted = planner.mask(&expr, &rows);
        // Those that are not sent must be right too: filters are classified by them.
        let whole = probe(&expr, &schema).into_iter();
        let probes = probes_of([&expr], &schema);
        sent += probes.len();
        for probe in whole.chain(probes) {
            let passing = passes(&planner, &probe, &rows);
            let lost = wanted.iter().zip(&passing).filter(|(wanted, passes)| **wanted && !**passes);
            assert_eq!(lost.count(), 0, "{sql}: {}", shown(&probe, &schema));
        }
    }
    assert!(sent > 10, "only {sent} probes were sent");
}

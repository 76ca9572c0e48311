//! Domains of predicates, compared with DataFusion's evaluation of the same predicates.

use proptest::prelude::*;

use super::Db;

fn literal() -> impl Strategy<Value = (&'static str, String)> {
    prop_oneof![
        (-4_i64..4).prop_map(|v| ("i", v.to_string())),
        (0_u64..4).prop_map(|v| ("u", v.to_string())),
        prop_oneof![Just("-1.5"), Just("0.0"), Just("-0.0"), Just("2.25"), Just("'NaN'::DOUBLE")]
            .prop_map(|v| ("f", v.to_owned())),
        prop_oneof![Just("''"), Just("'a'"), Just("'ab'"), Just("'b'"), Just("'ä'")]
            .prop_map(|v| ("s", v.to_owned())),
        (-3_i64..3).prop_map(|v| ("t", format!("to_timestamp_millis({})", v * 7))),
        (-3_i64..3).prop_map(|v| ("t", format!("to_timestamp_micros({})", v * 6500))),
        (-3_i64..3)
            .prop_map(|v| ("t", format!("(to_timestamp({v}) - INTERVAL '993 milliseconds')"))),
        (-2_i32..3).prop_map(|v| ("d", format!("(DATE '1970-01-01' + INTERVAL '{v} days')::DATE"))),
        (-2_i32..3).prop_map(|v| ("d", format!("to_timestamp({})", v * 43_200))),
        prop_oneof![Just("true"), Just("false")].prop_map(|v| ("b", v.to_owned())),
        prop_oneof![Just("1.5"), Just("-0.25"), Just("1.505")].prop_map(|v| ("m", v.to_owned())),
        prop_oneof![Just("i"), Just("s"), Just("f"), Just("t")]
            .prop_map(|c| (c, "NULL".to_owned())),
    ]
}

fn predicate() -> impl Strategy<Value = String> {
    let op = prop_oneof![
        Just("="),
        Just("<>"),
        Just("<"),
        Just("<="),
        Just(">"),
        Just(">="),
        Just("IS DISTINCT FROM"),
        Just("IS NOT DISTINCT FROM"),
    ];
    let column = || {
        prop_oneof![
            Just("i"),
            Just("u"),
            Just("f"),
            Just("s"),
            Just("t"),
            Just("d"),
            Just("b"),
            Just("m"),
        ]
    };
    let leaf = prop_oneof![
        4 => (literal(), op.clone()).prop_map(|((column, value), op)| format!("{column} {op} {value}")),
        1 => (literal(), op).prop_map(|((column, value), op)| format!("{value} {op} {column}")),
        1 => column().prop_map(|column| format!("{column} IS NULL")),
        1 => column().prop_map(|column| format!("{column} IS NOT NULL")),
        1 => (-4_i64..4, 0_i64..4, any::<bool>()).prop_map(|(low, more, not)| {
            format!("i {}BETWEEN {low} AND {}", if not { "NOT " } else { "" }, low + more)
        }),
        1 => (prop::collection::vec(-4_i64..4, 1..6), any::<bool>(), any::<bool>()).prop_map(
            |(values, not, null)| {
                let mut values: Vec<_> = values.iter().map(ToString::to_string).collect();
                if null {
                    values.push("NULL".to_owned());
                }
                format!("i {}IN ({})", if not { "NOT " } else { "" }, values.join(", "))
            }
        ),
        1 => prop_oneof![Just("a%"), Just("ab"), Just("%b"), Just("a_"), Just("%"), Just("")]
            .prop_map(|pattern| format!("s LIKE '{pattern}'")),
        1 => Just("b".to_owned()),
        1 => Just("NOT b".to_owned()),
        1 => Just("b IS TRUE".to_owned()),
        1 => Just("(i > 0) IS FALSE".to_owned()),
        1 => (-40_i64..40).prop_map(|v| format!("CAST(i AS BIGINT) < {v}")),
        1 => (-4_i64..4).prop_map(|v| format!("i + 1 > {v}")),
    ];
    leaf.prop_recursive(3, 12, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} AND {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} OR {b})")),
            inner.prop_map(|a| format!("NOT ({a})")),
        ]
    })
}

/// Tables whose first key columns have different types, so that every type prunes.
async fn tables() -> Db {
    let db = Db::new();
    let columns = "k INT, i INT, u BIGINT UNSIGNED, f DOUBLE, s STRING, t TIMESTAMP(3), d DATE, \
                   b BOOLEAN, m DECIMAL(10, 2)";
    for (table, key, cuts) in [
        ("by_i", "i, k", "(-2), (0), (1), (3)"),
        ("by_u", "u, k", "(1), (2), (3)"),
        ("by_f", "f, k", "(-1.5), (0), (2.25)"),
        ("by_s", "s, k", "('a'), ('ab'), ('b')"),
        ("by_t", "t, k", "(-14), (0), (7)"),
        ("by_d", "d, k", "('1969-12-31'), ('1970-01-02')"),
        ("by_b", "b, k", "(false), (true)"),
        ("by_m", "m, k", "(-0.25), (1.5)"),
    ] {
        let first = key.split(',').next().unwrap();
        db.tag(&format!(
            "CREATE TABLE {table} ({columns}, PRIMARY KEY ({key})) \
             PARTITION BY RANGE ({first}) SPLIT AT ({cuts})"
        ))
        .await;
    }
    db.tag(&format!(
        "CREATE TABLE by_hash ({columns}, PRIMARY KEY (k, i, s)) PARTITION BY HASH (i, s) PARTITIONS 5"
    ))
    .await;
    let mut rows = Vec::new();
    let pick = |values: &[&str], at: usize| values[at % values.len()].to_owned();
    for k in 0..60_usize {
        rows.push(format!(
            "({k}, {}, {}, {}, {}, {}, {}, {}, {})",
            pick(&["-3", "-1", "0", "1", "2", "3", "NULL"], k),
            pick(&["0", "1", "2", "3", "NULL"], k / 2),
            pick(&["-1.5", "0.0", "-0.0", "2.25", "NULL", "1e300"], k / 3),
            pick(&["''", "'a'", "'ab'", "'abc'", "'b'", "'ä'", "NULL"], k / 2),
            pick(&["-21", "-14", "-7", "0", "1", "7", "13", "14", "NULL"], k),
            pick(&["'1969-12-31'", "'1970-01-01'", "'1970-01-02'", "NULL"], k / 5),
            pick(&["true", "false", "NULL"], k / 7),
            pick(&["1.5", "-0.25", "1.51", "NULL", "0"], k / 4),
        ));
    }
    for table in ["by_i", "by_u", "by_f", "by_s", "by_t", "by_d", "by_b", "by_m", "by_hash"] {
        db.tag(&format!("INSERT INTO {table} VALUES {}", rows.join(", "))).await;
    }
    db
}

#[test]
fn no_row_that_satisfies_a_predicate_is_pruned() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let db = runtime.block_on(tables());
    let config =
        ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    runner
        .run(&predicate(), |predicate| {
            runtime.block_on(async {
                for table in ["by_i", "by_u", "by_f", "by_s", "by_t", "by_d", "by_b", "by_m", "by_hash"] {
                    let pruned = db.try_run(&format!("SELECT k FROM {table} WHERE {predicate} ORDER BY k")).await;
                    // The same predicate as a value, which nothing can push into the scan.
                    let oracle = db
                        .try_run(&format!(
                            "SELECT k FROM (SELECT k, ({predicate}) AS p FROM {table} LIMIT 1000) AS q \
                             WHERE p ORDER BY k"
                        ))
                        .await;
                    match (pruned, oracle) {
                        (Ok(pruned), Ok(oracle)) => {
                            let pruned = super::cells(&super::collect(pruned).await.unwrap());
                            let oracle = super::cells(&super::collect(oracle).await.unwrap());
                            prop_assert_eq!(pruned, oracle, "{} {}", table, predicate);
                        }
                        (Err(a), Err(b)) => prop_assert_eq!(a.sqlstate, b.sqlstate),
                        (a, b) => prop_assert!(
                            false, "{}: {:?} {:?}", predicate, a.err(), b.err()
                        ),
                    }
                }
                Ok(())
            })
        })
        .unwrap();
}

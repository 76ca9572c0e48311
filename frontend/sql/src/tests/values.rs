//! The scanner of VALUES: what it takes, and that planning would give the same.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Int32Type, Int64Type, TimestampMillisecondType};
use datafusion::common::ScalarValue;
use datafusion::prelude::SessionContext;
use partita_proto::schema::TableSchema;
use partita_worker::Zone;
use proptest::prelude::*;

use super::{made, one};
use crate::StatementTime;
use crate::error::SqlError;
use crate::statement::{Insert, Statement};

/// 2024-02-29 12:00:00.123456789.
const NOW: StatementTime = StatementTime { now: 1_709_208_000_123_456_789, zone: Zone::UTC };

const TABLE: &str = "CREATE TABLE t (b BOOLEAN, i1 TINYINT, i2 SMALLINT, i4 INT, i8 BIGINT, \
    u1 UINT8, u2 UINT16, u4 UINT32, u8 UINT64, f4 REAL, f8 DOUBLE, d DECIMAL(20, 4), s STRING, \
    y BYTEA, dt DATE, ts TIMESTAMP(3), tz TIMESTAMP(6) WITH TIME ZONE, \
    t0 TIMESTAMP(0), t9 TIMESTAMP(9), k INT PRIMARY KEY)";

fn schema() -> Arc<TableSchema> {
    made(TABLE).schema
}

fn insert(sql: &str) -> Insert {
    match one(sql).unwrap() {
        Statement::Insert(insert) => insert,
        other => panic!("{other:?}"),
    }
}

fn scan_with(
    sql: &str,
    parameters: Option<&[ScalarValue]>,
) -> Result<Option<RecordBatch>, SqlError> {
    let schema = schema();
    let insert = insert(sql);
    insert.scan(&insert.target(&schema)?, NOW, parameters)
}

fn scan(sql: &str) -> Result<Option<RecordBatch>, SqlError> {
    scan_with(sql, None)
}

/// What one literal becomes in a column: the array of one value; none when it is not simple.
fn value(column: &str, literal: &str) -> Result<Option<ArrayRef>, SqlError> {
    let batch = scan(&format!("INSERT INTO t ({column}) VALUES ({literal})"))?;
    Ok(batch.map(|batch| Arc::clone(batch.column(0))))
}

fn shown(column: &str, literal: &str) -> String {
    let array =
        value(column, literal).unwrap().unwrap_or_else(|| panic!("{literal} is not simple"));
    arrow::util::display::array_value_to_string(&array, 0).unwrap()
}

#[test]
fn literals_become_values() {
    for (column, literal, expected) in [
        ("i4", "5", "5"),
        ("i4", "-5", "-5"),
        ("i4", "+5", "5"),
        ("i4", "- 5", "-5"),
        ("i4", "'12'", "12"),
        ("i4", "' 12 '", "12"),
        ("i4", "5::int", "5"),
        ("i4", "CAST(5 AS BIGINT)", "5"),
        ("i4", "/* x */ 5 -- y\n", "5"),
        ("u8", "18446744073709551615", "18446744073709551615"),
        ("i8", "-9223372036854775808", "-9223372036854775808"),
        ("f8", "1", "1.0"),
        ("f8", "1.5", "1.5"),
        ("f8", ".5", "0.5"),
        ("f8", "5.", "5.0"),
        ("f8", "1e3", "1000.0"),
        ("f8", "-1.5E-3", "-0.0015"),
        ("f8", "'NaN'", "NaN"),
        ("f8", "'-Infinity'", "-inf"),
        ("f4", "0.1", "0.1"),
        ("d", "1.23456", "1.2346"),
        ("d", "7", "7.0000"),
        ("d", "'-0.00005'", "-0.0001"),
        ("s", "'it''s'", "it's"),
        ("s", "''", ""),
        ("s", "E'a\\n\\'b'", "a\n'b"),
        ("s", "5", "5"),
        ("s", "'ü'::text", "ü"),
        ("b", "true", "true"),
        ("b", "'off'", "false"),
        ("y", "X'DEad'", "dead"),
        ("y", "'\\xDEAD'", "dead"),
        ("y", "'ab'", "6162"),
        ("dt", "'2024-02-29'", "2024-02-29"),
        ("dt", "DATE '2024-02-29'", "2024-02-29"),
        ("dt", "current_date", "2024-02-29"),
        ("ts", "1700000000123", "2023-11-14T22:13:20.123"),
        ("ts", "-1", "1969-12-31T23:59:59.999"),
        ("ts", "'2024-02-29 12:00:00.5'", "2024-02-29T12:00:00.500"),
        ("ts", "'2024-02-29T12:00:00Z'", "2024-02-29T12:00:00"),
        ("ts", "'2024-02-29T12:00:00+02:00'", "2024-02-29T10:00:00"),
        ("ts", "'2024-02-29'", "2024-02-29T00:00:00"),
        ("ts", "TIMESTAMP '2024-02-29 12:00:00'", "2024-02-29T12:00:00"),
        ("ts", "'2024-02-29 12:00:00'::timestamp", "2024-02-29T12:00:00"),
        ("ts", "now()", "2024-02-29T12:00:00.123"),
        ("ts", "CURRENT_TIMESTAMP", "2024-02-29T12:00:00.123"),
        ("tz", "'2024-02-29 12:00:00+00'", "2024-02-29T12:00:00Z"),
        ("t0", "'1969-12-31 23:59:59.5'", "1969-12-31T23:59:59"),
        ("t9", "now()", "2024-02-29T12:00:00.123456789"),
    ] {
        assert_eq!(shown(column, literal), expected, "{column} {literal}");
    }
    assert!(value("i4", "NULL").unwrap().unwrap().is_null(0));
    assert!(value("s", "null::text").unwrap().unwrap().is_null(0));
}

#[test]
fn what_only_a_planner_understands_is_left_to_it() {
    for (column, literal) in [
        ("i4", "1 + 1"),
        ("i4", "abs(-1)"),
        ("i4", "1.5"),
        ("i4", "(1)"),
        ("i4", "1::text"),
        ("i4", "'5'::smallint"),
        ("s", "'a' || 'b'"),
        ("s", "'abc'::varchar(2)"),
        ("s", "1.50"),
        ("s", "U&'a'"),
        ("s", "$$a$$"),
        ("s", "E'\\x41'"),
        ("ts", "now() - '5 minute'::interval"),
        ("ts", "1.5"),
        ("ts", "'2024-02-29'::date"),
        ("f8", "'1'::real"),
        ("f8", "1_000"),
        ("i4", "0x1F"),
        ("i4", "CASE WHEN true THEN 1 END"),
        ("s", "X'61'"),
        ("b", "1"),
        ("i4", "ARRAY[1]"),
        ("i4", "1 AS x"),
        ("d", "1.5::decimal(10,1)"),
        ("i4", "--5"),
    ] {
        match value(column, literal) {
            Ok(None) => {}
            // A comment to the end of the line.
            Err(error) if literal == "--5" => assert_eq!(error.sqlstate, "42601"),
            other => panic!("{column} {literal}: {other:?}"),
        }
    }
    let target_schema = schema();
    let statement = insert("INSERT INTO t (i4, s) VALUES (1 + 1, 'a')");
    let target = statement.target(&target_schema).unwrap();
    let query = statement.values_query(&target).unwrap().unwrap();
    assert_eq!(&*query.text, "VALUES (1 + 1, 'a')");
}

#[test]
fn values_that_do_not_fit_are_errors_with_a_place() {
    for (column, literal, sqlstate) in [
        ("i1", "128", "22003"),
        ("i1", "-129", "22003"),
        ("u1", "-1", "22003"),
        ("i8", "9223372036854775808", "22003"),
        ("u8", "18446744073709551616", "22003"),
        ("i4", "99999999999999999999999", "22003"),
        ("i4", "'99999999999'", "22003"),
        ("i4", "'abc'", "22P02"),
        ("i4", "''", "22P02"),
        ("i4", "'1.5'", "22P02"),
        ("f8", "'x'", "22P02"),
        ("f8", "1e999", "22003"),
        ("f4", "1e39", "22003"),
        ("d", "1e30", "22003"),
        ("d", "'x'", "22P02"),
        ("b", "'maybe'", "22P02"),
        ("y", "'\\xZZ'", "22P02"),
        ("y", "X'1'", "22P02"),
        ("dt", "'2024-13-01'", "22007"),
        ("ts", "'yesterday'", "22007"),
        ("ts", "'2024-02-30 00:00:00'", "22007"),
        ("t9", "'3000-01-01 00:00:00'", "22008"),
        ("i4", "$1", "42P02"),
        ("s", "'a", "42601"),
    ] {
        let sql = format!("INSERT INTO t ({column}) VALUES ({literal})");
        let error = scan(&sql).expect_err(&sql);
        assert_eq!(error.sqlstate, sqlstate, "{sql}: {}", error.message);
        let expected = sql.find("VALUES (").unwrap() + "VALUES (".len() + 1;
        assert_eq!(error.position, Some(expected), "{sql}");
    }
}

#[test]
fn rows_are_as_long_as_their_columns() {
    for (sql, sqlstate, says) in [
        ("INSERT INTO t (i4) VALUES (1, 2)", "42601", "more expressions than target columns"),
        ("INSERT INTO t (i4, i8) VALUES (1)", "42601", "more target columns than expressions"),
        ("INSERT INTO t (i4, i8) VALUES (1, 2), (3)", "42601", "same length"),
        ("INSERT INTO t VALUES (true), (true, 1)", "42601", "same length"),
        ("INSERT INTO t (i4) VALUES ()", "42601", "empty"),
        ("INSERT INTO t (i4) VALUES", "42601", "end of input"),
        ("INSERT INTO t (i4, i4) VALUES (1, 2)", "42701", "more than once"),
        ("INSERT INTO t (nope) VALUES (1)", "42703", "\"nope\""),
        ("INSERT INTO t (i4) VALUES (1) ON DUPLICATE KEY UPDATE i4 = 1", "0A000", "ON DUPLICATE"),
    ] {
        let error = scan(sql).expect_err(sql);
        assert_eq!(error.sqlstate, sqlstate, "{sql}");
        assert!(error.message.contains(says), "{sql}: {}", error.message);
    }
    // Without a list a row may end early; commas may trail.
    let batch = scan("INSERT INTO t VALUES (true, 1,), (false, 2),").unwrap().unwrap();
    assert_eq!((batch.num_rows(), batch.num_columns()), (2, 2));
}

#[test]
fn defaults_are_left_out_or_filled_in() {
    let schema = made(
        "CREATE TABLE t (k INT PRIMARY KEY, a INT DEFAULT 7, n INT, ts TIMESTAMP DEFAULT now(), \
         g INT GENERATED ALWAYS AS (k + 1) STORED)",
    )
    .schema;
    let scan = |sql: &str| {
        let insert = insert(sql);
        insert.scan(&insert.target(&schema)?, NOW, None)
    };
    let batch =
        scan("INSERT INTO t VALUES (1, DEFAULT, DEFAULT, DEFAULT, DEFAULT)").unwrap().unwrap();
    assert_eq!(batch.schema().fields().len(), 1);
    let batch =
        scan("INSERT INTO t (k, a, n, ts) VALUES (1, DEFAULT, 1, 0), (2, 5, DEFAULT, DEFAULT)")
            .unwrap()
            .unwrap();
    assert_eq!(batch.column(1).as_primitive::<Int32Type>().values(), &[7, 5]);
    assert!(batch.column(2).is_null(1));
    let times = batch.column(3).as_primitive::<TimestampMillisecondType>();
    assert_eq!(times.values(), &[0, NOW.now / 1_000_000]);
    let error = scan("INSERT INTO t (k, g) VALUES (1, 2)").unwrap_err();
    assert_eq!(error.sqlstate, "428C9");
    let batch = scan("INSERT INTO t DEFAULT VALUES").unwrap().unwrap();
    assert_eq!((batch.num_rows(), batch.num_columns()), (1, 0));
    // A planner knows no DEFAULT, and must not fill in what is generated.
    let refused = |sql: &str| {
        let insert = insert(sql);
        assert!(insert.scan(&insert.target(&schema).unwrap(), NOW, None).unwrap().is_none());
        insert.values_query(&insert.target(&schema).unwrap()).unwrap_err().sqlstate
    };
    assert_eq!(refused("INSERT INTO t (k, a) VALUES (1 + 1, DEFAULT)"), "0A000");
}

#[test]
fn parameters_take_the_types_of_their_columns() {
    let schema = schema();
    let statement =
        insert("INSERT INTO t (i4, s, ts, f8) VALUES ($1, $2, $3, 1.5), ($4, $2, now(), $5::int)");
    let target = statement.target(&schema).unwrap();
    let types = statement.parameter_types(&target).unwrap().unwrap();
    let ms = DataType::Timestamp(arrow::datatypes::TimeUnit::Millisecond, None);
    assert_eq!(
        types,
        [
            Some(DataType::Int32),
            Some(DataType::Utf8View),
            Some(ms),
            Some(DataType::Int32),
            Some(DataType::Int32)
        ]
    );
    let statement = insert("INSERT INTO t (i4, s) VALUES ($2, $4)");
    let target = statement.target(&schema).unwrap();
    let types = statement.parameter_types(&target).unwrap().unwrap();
    assert_eq!(types, [None, Some(DataType::Int32), None, Some(DataType::Utf8View)]);
    let statement = insert("INSERT INTO t (i4) VALUES ($1 + 1)");
    let target = statement.target(&schema).unwrap();
    assert_eq!(statement.parameter_types(&target).unwrap(), None);
}

#[test]
fn parameters_become_values_whatever_their_type() {
    let sql = "INSERT INTO t (i4, s, ts, d, y) VALUES ($1, $2, $3, $4, $5)";
    let parameters = [
        ScalarValue::Int64(Some(5)),
        ScalarValue::Utf8(Some("x".into())),
        ScalarValue::TimestampMicrosecond(Some(-1), Some("+02:00".into())),
        ScalarValue::Utf8(Some("1.5".into())),
        ScalarValue::Binary(Some(vec![1])),
    ];
    let batch = scan_with(sql, Some(&parameters)).unwrap().unwrap();
    let row: Vec<_> = batch
        .columns()
        .iter()
        .map(|column| arrow::util::display::array_value_to_string(column, 0).unwrap())
        .collect();
    assert_eq!(row, ["5", "x", "1969-12-31T23:59:59.999", "1.5000", "01"]);
    let nulls = vec![ScalarValue::Null; 5];
    let batch = scan_with(sql, Some(&nulls)).unwrap().unwrap();
    assert!(batch.columns().iter().all(|column| column.is_null(0)));
    let wrong = [ScalarValue::Int64(Some(1 << 40))];
    let error = scan_with("INSERT INTO t (i4) VALUES ($1)", Some(&wrong)).unwrap_err();
    assert_eq!(error.sqlstate, "22003");
    let error = scan_with("INSERT INTO t (i4) VALUES ($2)", Some(&wrong)).unwrap_err();
    assert_eq!(error.sqlstate, "42P02");
}

#[test]
fn many_sets_of_parameters_make_one_batch() {
    let schema = schema();
    let statement = insert("INSERT INTO t (i8, s) VALUES ($1, 'c')");
    let target = statement.target(&schema).unwrap();
    let sets: Vec<_> = (0..1000).map(|n| vec![ScalarValue::Int64(Some(n))]).collect();
    let batch = statement.scan_many(&target, NOW, sets.iter().map(Vec::as_slice)).unwrap().unwrap();
    assert_eq!(batch.num_rows(), 1000);
    assert_eq!(batch.column(0).as_primitive::<Int64Type>().value(999), 999);
}

/// A column and a literal whose value a plan gives too. (Where the two differ on purpose: decimals
/// are exact here and go through DOUBLE in a plan, `\x` means bytes, floats beyond the range are
/// errors, and finer digits of moments before 1970 are cut towards the past, as in a text without a
/// cast, where a plan's cast between timestamps cuts them towards 1970.)
fn literals() -> impl Strategy<Value = (&'static str, String)> {
    let integer_columns =
        prop::sample::select(vec!["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "ts", "t0"]);
    let small = prop_oneof![any::<i8>().prop_map(i64::from), any::<i64>()];
    let time_columns = || prop::sample::select(vec!["ts", "tz", "t0", "t9"]);
    let moment = (1700..2200_i32, 1..=13_u8, 1..=31_u8, 0..25_u8, 0..60_u8, 0..60_u8, 0..4_u8)
        .prop_map(|(y, m, d, h, mi, s, form)| {
            let zone = ["", "Z", "+02:00", ".25"][usize::from(form)];
            let between = if form % 2 == 0 { 'T' } else { ' ' };
            format!("'{y:04}-{m:02}-{d:02}{between}{h:02}:{mi:02}:{s:02}{zone}'")
        });
    prop_oneof![
        (integer_columns.clone(), small.clone()).prop_map(|(c, v)| (c, v.to_string())),
        (integer_columns, small.clone()).prop_map(|(c, v)| (c, format!("'{v}'"))),
        (prop::sample::select(vec!["f4", "f8"]), small.clone())
            .prop_map(|(c, v)| (c, v.to_string())),
        (prop::sample::select(vec!["f4", "f8"]), -1e30_f64..1e30)
            .prop_map(|(c, v)| (c, format!("{v:?}"))),
        (prop::sample::select(vec!["f4", "f8"]), -1e30_f64..1e30)
            .prop_map(|(c, v)| (c, format!("'{v:?}'"))),
        (-1_000_000_i32..1_000_000).prop_map(|v| ("d", v.to_string())),
        (-1_000_000_i32..1_000_000).prop_map(|v| ("d", format!("{}", f64::from(v) / 4.0))),
        (-1_000_000_i32..1_000_000).prop_map(|v| ("d", format!("'{}'", f64::from(v) / 8.0))),
        "[a-z0-9' ü]{0,8}".prop_map(|v| ("s", format!("'{}'", v.replace('\'', "''")))),
        small.prop_map(|v| ("s", v.to_string())),
        "[a-z0-9 ü]{0,8}".prop_map(|v| ("y", format!("'{v}'"))),
        (time_columns(), moment.clone()).prop_map(|(c, v)| (c, v)),
        (time_columns(), moment.clone())
            .prop_map(|(c, v)| (c, format!("{}::timestamp", v.replace(".25", "")))),
        (time_columns(), moment)
            .prop_map(|(c, v)| (c, format!("TIMESTAMP {}", v.replace(".25", "")))),
        (1700..2200_i32, 1..=13_u8, 1..=31_u8)
            .prop_map(|(y, m, d)| ("dt", format!("'{y:04}-{m:02}-{d:02}'"))),
        prop::sample::select(vec![
            ("b", "true"),
            ("b", "'t'"),
            ("b", "'no'"),
            ("b", "'x'"),
            ("i4", "null"),
            ("s", "NULL::text"),
            ("y", "X'00ff'"),
            ("i4", "5::bigint"),
            ("i2", "'7'::int"),
            ("f8", "1.5::double precision"),
            ("i1", "CAST(300 AS int)"),
            ("s", "E'a\\tb'"),
            ("dt", "DATE '2024-02-29'"),
            ("dt", "'2024-02-29'::date"),
        ])
        .prop_map(|(c, v)| (c, v.to_owned())),
    ]
}

async fn planned(literal: &str, to: &DataType) -> Option<ArrayRef> {
    let context = SessionContext::new();
    let batches = context.sql(&format!("SELECT {literal}")).await.ok()?.collect().await.ok()?;
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(batches.first()?.column(0), to, &options).ok()
}

#[test]
fn scanning_gives_what_planning_gives() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(600));
    let schema = schema();
    let result = runner.run(&literals(), |(column, literal)| {
        let to = schema.column(column).unwrap().column_type.arrow();
        let planned = runtime.block_on(planned(&literal, &to));
        match (value(column, &literal), planned) {
            (Ok(None), _) => {}
            (Ok(Some(scanned)), Some(planned)) => {
                prop_assert_eq!(scanned.to_data(), planned.to_data(), "{} {}", column, literal);
            }
            // Planning casts `'..'::timestamp` to nanoseconds first, which reach from 1677 to 2262.
            (Ok(Some(scanned)), None) => {
                prop_assert!(
                    false,
                    "{column} {literal}: planning fails, scanning gives {scanned:?}"
                );
            }
            (Err(error), planned) => {
                prop_assert!(planned.is_none(), "{column} {literal}: {error}, planned {planned:?}");
            }
        }
        Ok(())
    });
    result.unwrap();
}

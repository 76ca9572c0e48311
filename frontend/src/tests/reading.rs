//! Reads: pruning, plans, and DataFusion's operators over partitions.

use partita_proto::Error;
use partita_proto::id::{Epoch, PartitionId};
use partita_proto::range::Bound;
use partita_proto::value::Value;

use super::Db;

/// The same events with two keys, eight partitions each.
async fn two_keys() -> Db {
    let db = Db::new();
    let cuts = |of: &str| {
        let cuts: Vec<_> = (1..8).map(|n| format!("({})", n * 100)).collect();
        format!("PARTITION BY RANGE ({of}) SPLIT AT ({})", cuts.join(","))
    };
    db.tag(&format!(
        "CREATE TABLE by_time (ts TIMESTAMP(3) TIME INDEX, userid BIGINT, v DOUBLE, \
         PRIMARY KEY (ts, userid)) {}",
        cuts("ts")
    ))
    .await;
    db.tag(&format!(
        "CREATE TABLE by_user (ts TIMESTAMP(3) TIME INDEX, userid BIGINT, v DOUBLE, \
         PRIMARY KEY (userid, ts)) {}",
        cuts("userid")
    ))
    .await;
    let rows: Vec<_> = (0..800).map(|n| format!("({n}, {}, {n}.25)", n * 37 % 800)).collect();
    for table in ["by_time", "by_user"] {
        db.tag(&format!("INSERT INTO {table} VALUES {}", rows.join(","))).await;
        assert_eq!(db.fake.rows("public", table), [100; 8]);
    }
    db
}

#[tokio::test]
async fn a_user_is_one_partition_of_one_key_and_all_of_the_other() {
    let db = two_keys().await;
    for (table, touched, scanned) in [("by_time", 8, 800), ("by_user", 1, 100)] {
        assert_eq!(db.one(&format!("SELECT count(*) FROM {table} WHERE userid = 42")).await, "1");
        let entry = db.logged("SELECT");
        assert_eq!(entry.partitions_touched, touched, "{table}");
        assert_eq!(entry.partitions_total, 8);
        assert_eq!(entry.rows_scanned, scanned);
        assert_eq!(entry.fast_path, touched == 1);
    }
    let plan = db.explain("SELECT * FROM by_user WHERE userid = 42").await;
    assert!(plan.contains("partitions=1/8, fast_path=true"), "{plan}");
    let plan = db.explain("SELECT * FROM by_user WHERE userid BETWEEN 150 AND 250").await;
    assert!(plan.contains("partitions=2/8, fast_path=false"), "{plan}");
    let plan = db.explain("ANALYZE SELECT * FROM by_user WHERE userid >= 600").await;
    assert!(plan.contains("partitions_touched=2"), "{plan}");
    assert!(plan.contains("partitions_total=8"), "{plan}");
    assert!(plan.contains("rows_scanned=200"), "{plan}");
    let plan = db.explain("SELECT * FROM by_user WHERE userid = 1 AND userid = 2").await;
    assert!(!plan.contains("partitions=8/8"), "{plan}");
}

#[tokio::test]
async fn times_prune_as_numbers_texts_and_arithmetic() {
    let db = two_keys().await;
    let touched = async |predicate: &str| {
        let rows = db.one(&format!("SELECT count(*) FROM by_time WHERE {predicate}")).await;
        (rows, db.logged("SELECT").partitions_touched)
    };
    let found = |rows: &str, touched| (rows.to_owned(), touched);
    assert_eq!(touched("ts >= '1970-01-01T00:00:00.600'").await, found("200", 2));
    assert_eq!(touched("ts < '1970-01-01 00:00:00.050'::TIMESTAMP").await, found("50", 1));
    assert_eq!(touched("ts > now() - INTERVAL '5 minutes'").await, found("0", 1));
    assert_eq!(touched("ts = '1970-01-01T00:00:00.123Z'").await, found("1", 1));
    assert_eq!(
        touched("ts >= '1970-01-01T00:00:00.699999999' AND ts < '1970-01-01T00:00:00.700000001'")
            .await,
        found("1", 1)
    );
}

#[tokio::test]
async fn everything_datafusion_has_works_over_partitions() {
    let db = two_keys().await;
    db.tag("CREATE TABLE names (userid BIGINT PRIMARY KEY, name STRING) PARTITION BY HASH (userid) PARTITIONS 3").await;
    db.tag("INSERT INTO names VALUES (1, 'one'), (2, 'two'), (3, 'three'), (5000, 'none')").await;
    let cases: &[(&str, &[&str])] = &[
        (
            "SELECT sum(v), min(userid), max(userid), avg(v) FROM by_user",
            &["319800.0|0|799|399.75"],
        ),
        (
            "SELECT userid % 3 AS k, count(*) FROM by_user GROUP BY k ORDER BY k",
            &["0|267", "1|267", "2|266"],
        ),
        ("SELECT v FROM by_time ORDER BY ts DESC LIMIT 2", &["799.25", "798.25"]),
        ("SELECT count(*) FROM (SELECT * FROM by_user LIMIT 7) AS few", &["7"]),
        (
            "SELECT name, count(*) FROM names JOIN by_user USING (userid) GROUP BY name ORDER BY name",
            &["one|1", "three|1", "two|1"],
        ),
        (
            "SELECT name FROM names n WHERE NOT EXISTS (SELECT 1 FROM by_user u WHERE u.userid = n.userid)",
            &["none"],
        ),
        ("SELECT count(*) FROM names LEFT JOIN by_user USING (userid)", &["4"]),
        ("SELECT count(DISTINCT userid) FROM by_time", &["800"]),
        (
            "SELECT count(*) FROM (SELECT userid FROM by_time UNION ALL SELECT userid FROM names)",
            &["804"],
        ),
        (
            "WITH RECURSIVE c AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM c WHERE n < 5) SELECT sum(n) FROM c",
            &["15"],
        ),
        (
            "SELECT row_number() OVER (ORDER BY userid DESC) AS r, userid FROM names ORDER BY r LIMIT 1",
            &["1|5000"],
        ),
        (
            "SELECT date_trunc('second', ts) AS s, count(*) FROM by_time GROUP BY s",
            &["1970-01-01T00:00:00|800"],
        ),
        (
            "SELECT date_bin(INTERVAL '400 milliseconds', ts) AS b, count(*) FROM by_time GROUP BY b ORDER BY b",
            &["1970-01-01T00:00:00|400", "1970-01-01T00:00:00.400|400"],
        ),
        ("SELECT name FROM names WHERE name LIKE 't%' ORDER BY name", &["three", "two"]),
        ("SELECT (SELECT max(v) FROM by_user) - (SELECT min(v) FROM by_time)", &["799.0"]),
        ("SELECT abs(-1), round(2.5), 7 / 2, 'a' || 'b', upper('x')", &["1|3|3|ab|X"]),
        (
            "SELECT xxh3('a') = xxh3('a'), hash64(1::INT) = hash64(1::BIGINT UNSIGNED)",
            &["true|true"],
        ),
        ("VALUES (1, 'a'), (2, 'b')", &["1|a", "2|b"]),
    ];
    for (sql, expected) in cases {
        assert_eq!(db.lines(sql).await, *expected, "{sql}");
    }
}

#[tokio::test]
async fn errors_have_the_sqlstate_that_clients_expect() {
    let db = two_keys().await;
    for (sql, sqlstate, message) in [
        ("SELECT * FROM nope", "42P01", "relation \"nope\" does not exist"),
        ("SELECT * FROM other.nope", "42P01", "relation \"other.nope\" does not exist"),
        ("SELECT nope FROM by_user", "42703", "column \"nope\" does not exist"),
        ("SELECT 1 / 0", "22012", "division by zero"),
        ("SELECT v / 0, userid / 0 FROM by_user", "22012", "division by zero"),
        ("SELECT nope(1)", "42883", "function nope() does not exist"),
    ] {
        let error = db.error(sql).await;
        assert_eq!((error.sqlstate.as_str(), error.message.as_str()), (sqlstate, message), "{sql}");
    }
    for (sql, sqlstate) in [
        ("SELECT 'x'::INT", "22P02"),
        ("SELECT * FROM by_user WHERE userid = 'x'", "22P02"),
        ("SELEC 1", "42601"),
        ("SELECT 1 FROM WHERE x = 1", "42601"),
        ("SELECT userid, count(*) FROM by_user", "42803"),
        ("SELECT by_user.userid FROM by_user, by_time WHERE userid = 1", "42702"),
        ("CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'", "0A000"),
        ("COPY (SELECT 1) TO '/tmp/x.csv'", "0A000"),
        ("SELECT * FROM '/etc/passwd'", "42P01"),
        ("UPDATE by_user SET nothing = 1", "42703"),
        ("CREATE VIEW w AS SELECT $1::INT", "42P02"),
        ("CREATE FUNCTION f(INT) RETURNS INT RETURN $1", "0A000"),
    ] {
        let error = db.error(sql).await;
        assert_eq!(error.sqlstate, sqlstate, "{sql}: {error:?}");
    }
}

#[tokio::test]
async fn a_scan_finds_partitions_that_moved_or_were_split() {
    let db = two_keys().await;
    db.fake.scan_errors.lock().extend([
        Error::NotLeader { partition: PartitionId(0), leader: None },
        Error::Unavailable("starting".to_owned()),
        Error::StaleRoute { partition: PartitionId(0), requested: Epoch(1), current: Epoch(2) },
    ]);
    let at = Bound { placement: None, key: vec![Value::Int(50)] };
    db.fake.split("public", "by_user", 0, at).unwrap();
    assert_eq!(db.one("SELECT count(*) FROM by_user").await, "800");
    assert!(db.frontend.metrics().scan_retries.get() >= 3);
    assert_eq!(db.fake.rows("public", "by_user").len(), 9);
}

#[tokio::test]
async fn a_prepared_query_follows_splits_and_schema_changes() {
    let db = two_keys().await;
    let statement =
        db.session.parse("SELECT count(*) FROM by_user WHERE userid < $1").await.unwrap();
    let prepared = db.session.prepare(statement[0].clone(), &[]).await.unwrap();
    assert_eq!(prepared.parameter_types, [arrow::datatypes::DataType::Int64]);
    let count = async |limit: i64| {
        let parameters = vec![datafusion::common::ScalarValue::Int64(Some(limit))];
        let output = db.session.run_prepared(&prepared, parameters).await.unwrap();
        super::cells(&super::collect(output).await.unwrap())[0][0].clone()
    };
    assert_eq!(count(150).await, "150");
    assert_eq!(db.logged("SELECT").partitions_touched, 2);
    let at = Bound { placement: None, key: vec![Value::Int(50)] };
    db.fake.split("public", "by_user", 0, at).unwrap();
    assert_eq!(count(20).await, "20");
    assert_eq!(db.logged("SELECT").partitions_touched, 1);
    db.tag("ALTER TABLE by_user ADD COLUMN w INT").await;
    assert_eq!(count(799).await, "799");
}

#[tokio::test]
async fn types_are_not_nested_more_deeply_than_clients_can_read() {
    let db = two_keys().await;
    let arrays = |levels| format!("{}v{}", "ARRAY[".repeat(levels), "]".repeat(levels));
    let nested = |levels| {
        format!(
            "WITH a AS (SELECT {} AS v FROM (SELECT 1 AS v) AS n), b AS (SELECT {} AS v FROM a) \
             SELECT {} AS v FROM b",
            arrays(12),
            arrays(12),
            arrays(levels)
        )
    };
    assert!(db.try_run(&nested(8)).await.is_ok());
    assert_eq!(db.error(&nested(9)).await.sqlstate, "54001");
    assert_eq!(
        db.error(&format!("SELECT count(*) FROM ({}) AS s", nested(9))).await.sqlstate,
        "54001"
    );
}

#[tokio::test]
async fn parameters_do_not_make_a_limit_negative() {
    let db = two_keys().await;
    for (clause, sqlstate) in [("LIMIT $1", "2201W"), ("OFFSET $1", "2201X")] {
        let sql = format!("SELECT userid FROM (SELECT userid FROM by_user {clause}) AS s");
        let statement = db.session.parse(&sql).await.unwrap();
        let prepared = db.session.prepare(statement[0].clone(), &[]).await.unwrap();
        let run = async |count: i64| {
            let parameters = vec![datafusion::common::ScalarValue::Int64(Some(count))];
            db.session.run_prepared(&prepared, parameters).await
        };
        let output = run(2).await.unwrap();
        drop(super::collect(output).await.unwrap());
        let refused = run(-1).await.err().map(|error| error.sqlstate);
        assert_eq!(refused.as_deref(), Some(sqlstate), "{clause}");
    }
}

#[tokio::test]
async fn system_tables_and_information_schema_tell_what_there_is() {
    let db = two_keys().await;
    db.tag("CREATE DATABASE b").await;
    db.tag(
        "CREATE TABLE b.logs (ts TIMESTAMP(9) TIME INDEX, line STRING) WITH ('append_mode'='true')",
    )
    .await;
    let rows = db
        .lines(
            "SELECT partition > 0, node, leader, start_key, end_key, rows FROM sys.partitions \
         WHERE \"table\" = 'by_user' ORDER BY start_key NULLS FIRST LIMIT 2",
        )
        .await;
    assert_eq!(rows, ["true|1|true|NULL|(100)|100", "true|2|true|(100)|(200)|100"]);
    assert_eq!(db.one("SELECT sum(row_writes) FROM sys.partitions").await, "1600");
    let columns = db.lines(
        "SELECT column_name, data_type, udt_name, column_type, is_nullable, semantic_type FROM information_schema.columns \
         WHERE table_name = 'by_user' ORDER BY ordinal_position",
    ).await;
    assert_eq!(
        columns,
        [
            "ts|timestamp without time zone|timestamp|TIMESTAMP(3)|NO|TIMESTAMP",
            "userid|bigint|int8|BIGINT|YES|TAG",
            "v|double precision|float8|DOUBLE|YES|FIELD"
        ]
    );
    let keys = db
        .lines(
            "SELECT constraint_name, column_name FROM information_schema.key_column_usage \
         WHERE table_name = 'by_user' ORDER BY ordinal_position",
        )
        .await;
    assert_eq!(keys, ["by_user_pkey|userid", "by_user_pkey|ts"]);
    assert_eq!(
        db.one("SELECT count(*) FROM information_schema.partitions WHERE table_name = 'by_time'")
            .await,
        "8"
    );
    assert_eq!(db.lines("SHOW DATABASES").await, ["b", "information_schema", "public", "sys"]);
    assert_eq!(db.lines("SHOW TABLES LIKE 'by%'").await, ["by_time", "by_user"]);
    assert_eq!(db.lines("SHOW TABLES FROM b").await, ["logs"]);
    assert_eq!(
        db.lines("DESCRIBE by_user").await,
        [
            "ts|TIMESTAMP(3)|PRI|NO|NULL|TIMESTAMP",
            "userid|BIGINT|PRI|YES|NULL|TAG",
            "v|DOUBLE||YES|NULL|FIELD",
        ]
    );
    assert_eq!(db.lines("SHOW TAG KEYS FROM by_user").await, ["by_user|userid|BIGINT"]);
    assert_eq!(db.rows("SHOW PARTITIONS FROM by_user").await.len(), 8);
    let log = db.lines("SELECT kind, text, rows FROM sys.query_log WHERE kind = 'SELECT' ORDER BY started LIMIT 1").await;
    assert!(log[0].starts_with("SELECT|SELECT partition > 0"), "{log:?}");
    assert_eq!(db.one("SELECT value FROM sys.counters WHERE name = 'rows_written'").await, "1600");
    assert_eq!(db.one("SELECT count(*) FROM sys.tables").await, "3");
    assert_eq!(
        db.lines("SELECT address, meta, answers, leads, leader, term FROM sys.metas ORDER BY 1")
            .await,
        ["meta1:4020|1|true|true|1|3", "meta2:4020|NULL|false|NULL|NULL|NULL"]
    );
    let error = db.error("INSERT INTO sys.partitions VALUES (1)").await;
    assert_eq!(error.sqlstate, "42809");
    assert_eq!(db.error("CREATE DATABASE sys").await.sqlstate, "42939");
}

#[tokio::test]
async fn joins_build_on_the_smaller_side_once_sizes_are_known() {
    let db = two_keys().await;
    db.tag("CREATE TABLE few (userid BIGINT PRIMARY KEY)").await;
    db.tag("INSERT INTO few VALUES (1), (2)").await;
    let sql = "SELECT count(*) FROM by_user JOIN few USING (userid)";
    // The first plan requests the sizes.
    assert_eq!(db.one(sql).await, "2");
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let plan = db.explain(sql).await;
    let (few, many) =
        (plan.rfind("table=public.few").unwrap(), plan.rfind("table=public.by_user").unwrap());
    assert!(few < many, "{plan}");
    assert_eq!(db.one(sql).await, "2");
}

#[tokio::test]
async fn explain_of_writes_shows_how_their_rows_are_found() {
    let db = two_keys().await;
    let plan = db.explain("DELETE FROM by_user WHERE userid = 7").await;
    assert!(plan.contains("partitions=1/8"), "{plan}");
    let plan = db
        .explain("INSERT INTO by_user SELECT * FROM by_time WHERE ts < '1970-01-01T00:00:00.05'")
        .await;
    assert!(plan.contains("table=public.by_time, partitions=1/8"), "{plan}");
    let plan = db.explain("INSERT INTO by_user VALUES (1, 1, 1)").await;
    assert!(plan.contains("Ingest: table=public.by_user"), "{plan}");
    assert_eq!(db.error("EXPLAIN ANALYZE DELETE FROM by_user").await.sqlstate, "0A000");
    assert_eq!(db.one("SELECT count(*) FROM by_user").await, "800");
}

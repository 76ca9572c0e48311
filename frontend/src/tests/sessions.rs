//! Sessions: settings, databases, prepared statements, cursors, cancelling.

use std::sync::Arc;
use std::time::Duration;

use datafusion::common::ScalarValue;
use futures::StreamExt;

use super::{Db, cells, collect};
use crate::{Output, SessionOptions};

async fn numbers() -> Db {
    let db = Db::new();
    db.tag("CREATE TABLE n (k BIGINT PRIMARY KEY, s STRING) PARTITION BY HASH (k) PARTITIONS 3")
        .await;
    let rows: Vec<_> = (0..100).map(|n| format!("({n}, 's{n}')")).collect();
    db.tag(&format!("INSERT INTO n VALUES {}", rows.join(","))).await;
    db
}

/// A query with too many rows to end.
const ENDLESS: &str = "SELECT count(*) FROM generate_series(1, 100000000000) WHERE value % 7 = 9";

#[tokio::test]
async fn databases_are_schemas() {
    let db = numbers().await;
    db.tag("CREATE DATABASE other").await;
    db.tag("CREATE TABLE other.n (k INT PRIMARY KEY)").await;
    db.tag("INSERT INTO other.n VALUES (1)").await;
    assert_eq!(db.one("SELECT count(*) FROM n").await, "100");
    db.tag("USE other").await;
    assert_eq!(db.one("SELECT count(*) FROM n").await, "1");
    assert_eq!(db.one("SELECT current_database()").await, "other");
    assert_eq!(db.one("SELECT count(*) FROM public.n").await, "100");
    db.tag("SET search_path TO public").await;
    assert_eq!(db.one("SELECT current_schema()").await, "public");
    assert_eq!(db.error("USE nope").await.sqlstate, "3F000");
    // Another session is where it was.
    let options = SessionOptions { database: "other".to_owned(), ..SessionOptions::default() };
    let session = db.frontend.session(options);
    assert_eq!(session.database(), "other");
}

#[tokio::test]
async fn names_are_folded_unless_quoted() {
    let db = Db::new();
    db.tag("CREATE TABLE Mixed (Key INT PRIMARY KEY, \"Value\" INT, `Other One` INT)").await;
    db.tag("INSERT INTO MIXED (KEY, \"Value\", \"Other One\") VALUES (1, 2, 3)").await;
    assert_eq!(db.lines("SELECT key, \"Value\", `Other One` FROM mixed").await, ["1|2|3"]);
    assert_eq!(db.error("SELECT Value FROM mixed").await.sqlstate, "42703");
    assert_eq!(db.error("SELECT * FROM \"Mixed\"").await.sqlstate, "42P01");
}

#[tokio::test]
async fn settings_and_what_they_do() {
    let db = numbers().await;
    assert_eq!(db.one("SHOW server_version").await, "15.18");
    assert!(db.one("SELECT version()").await.starts_with("PostgreSQL 15.18 (Partita "));
    assert_eq!(db.tag("SET application_name = 'me'").await, "SET");
    assert_eq!(db.one("SHOW application_name").await, "me");
    assert_eq!(db.tag("SET TIME ZONE 'UTC'").await, "SET");
    assert_eq!(db.error("SET timezone = 'Nowhere'").await.sqlstate, "22023");
    assert_eq!(db.error("SHOW nope").await.sqlstate, "42704");
    assert_eq!(db.error("SET datafusion.catalog.default_catalog = 'x'").await.sqlstate, "55P02");
    db.tag("SET datafusion.execution.batch_size = 100").await;
    assert_eq!(db.one("SHOW datafusion.execution.batch_size").await, "100");
    db.tag("RESET datafusion.execution.batch_size").await;
    assert_eq!(db.one("SHOW datafusion.execution.batch_size").await, "8192");
    let all = db.rows("SHOW ALL").await;
    assert!(all.len() > 20 && all.iter().all(|row| row.len() == 3), "{all:?}");
    assert_eq!(db.tag("RESET ALL").await, "RESET");
    assert_eq!(db.tag("DISCARD ALL").await, "DISCARD ALL");
    assert_eq!(db.one("SELECT current_user").await, "partita");
}

#[tokio::test]
async fn a_statement_that_takes_too_long_ends() {
    let db = numbers().await;
    db.tag("SET statement_timeout = '50ms'").await;
    let error = db.error(ENDLESS).await;
    assert_eq!(error.sqlstate, "57014");
    assert_eq!(error.message, "canceling statement due to statement timeout");
    db.tag("SET statement_timeout = 0").await;
    assert_eq!(db.one("SELECT count(*) FROM n").await, "100");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_statement_is_cancelled() {
    let db = numbers().await;
    let session = Arc::clone(&db.session);
    let running = tokio::spawn(async move { session.execute(ENDLESS).await.map(|_| ()) });
    // A cancel that comes before the statement runs does nothing to it.
    while !running.is_finished() {
        tokio::time::sleep(Duration::from_millis(50)).await;
        db.session.cancel();
    }
    let error = running.await.unwrap().unwrap_err();
    assert_eq!(error.sqlstate, "57014");
    // The session continues, and a cancel without a running statement does not affect the next one.
    db.session.cancel();
    assert_eq!(db.one("SELECT count(*) FROM n").await, "100");
    let entry = db.logged("SELECT");
    assert_eq!(entry.error, None);
}

#[tokio::test]
async fn cancelling_ends_a_stream_that_is_being_read() {
    let db = numbers().await;
    db.tag("SET datafusion.execution.batch_size = 10").await;
    let output = db.try_run("SELECT * FROM generate_series(1, 100000000)").await.unwrap();
    let Output::Rows { mut stream, .. } = output else { panic!("no rows") };
    assert!(stream.next().await.unwrap().is_ok());
    db.session.cancel();
    let mut last = Ok(());
    while let Some(batch) = stream.next().await {
        last = batch.map(|_| ());
    }
    assert_eq!(last.unwrap_err().sqlstate, "57014");
    assert!(db.logged("SELECT").error.as_ref().unwrap().starts_with("57014"));
}

#[tokio::test]
async fn prepared_inserts_take_the_types_of_their_columns() {
    let db = numbers().await;
    let statement = db.session.parse("INSERT INTO n (s, k) VALUES ($2, $1)").await.unwrap();
    let prepared = db.session.prepare(statement[0].clone(), &[]).await.unwrap();
    use arrow::datatypes::DataType;
    assert_eq!(prepared.parameter_types, [DataType::Int64, DataType::Utf8View]);
    assert!(prepared.schema.is_none());
    let row =
        |k: i64| vec![ScalarValue::Int64(Some(k)), ScalarValue::Utf8View(Some(format!("p{k}")))];
    db.session.run_prepared(&prepared, row(1000)).await.unwrap();
    let rows = (1001..1101).map(row).collect();
    let before = db.fake.requests.lock().len();
    let outputs = db.session.run_prepared_many(&prepared, rows).await.unwrap();
    assert!(matches!(&outputs[..], [Output::Done { rows: Some(100), .. }]));
    // One write a partition, not one a row.
    assert!(db.fake.requests.lock().len() <= before + 3);
    assert_eq!(db.one("SELECT count(*) FROM n WHERE s LIKE 'p%'").await, "101");
    let Err(error) = db.session.run_prepared(&prepared, vec![]).await else { panic!("no error") };
    assert_eq!(error.sqlstate, "08P01");
    let statement = db.session.parse("DELETE FROM n WHERE k = $1").await.unwrap();
    let prepared = db.session.prepare(statement[0].clone(), &[]).await.unwrap();
    assert_eq!(prepared.parameter_types, [DataType::Int64]);
    let output =
        db.session.run_prepared(&prepared, vec![ScalarValue::Int64(Some(1000))]).await.unwrap();
    assert!(matches!(output, Output::Done { tag, .. } if tag == "DELETE 1"));
}

#[tokio::test]
async fn prepared_queries_describe_their_rows() {
    let db = numbers().await;
    let sql = "SELECT k, s FROM n WHERE s = $2 OR k = $1 ORDER BY k LIMIT $3";
    let statement = db.session.parse(sql).await.unwrap();
    let prepared = db.session.prepare(statement[0].clone(), &[]).await.unwrap();
    assert_eq!(prepared.parameter_types.len(), 3);
    let schema = prepared.schema.as_ref().unwrap();
    assert_eq!(schema.fields().len(), 2);
    let parameters = vec![
        ScalarValue::Int64(Some(5)),
        ScalarValue::Utf8View(Some("s7".to_owned())),
        ScalarValue::Int64(Some(10)),
    ];
    let output = db.session.run_prepared(&prepared, parameters).await.unwrap();
    assert_eq!(cells(&collect(output).await.unwrap()), [["5", "s5"], ["7", "s7"]]);
}

#[tokio::test]
async fn parameters_have_the_types_that_are_declared_or_said() {
    use arrow::datatypes::{DataType, Field};
    let db = numbers().await;
    let list = |of: DataType| DataType::List(Arc::new(Field::new_list_field(of, true)));
    for (sql, declared, expected, shown) in [
        ("SELECT $1", vec![Some(DataType::Int64)], DataType::Int64, DataType::Int64),
        ("SELECT $1::bigint", vec![], DataType::Int64, DataType::Int64),
        ("SELECT CAST($1 AS DATE)", vec![], DataType::Date32, DataType::Date32),
        ("SELECT k FROM n WHERE s = ANY($1)", vec![], list(DataType::Utf8View), DataType::Int64),
        (
            "SELECT k FROM n WHERE k = ANY($1::bigint[])",
            vec![],
            list(DataType::Int64),
            DataType::Int64,
        ),
    ] {
        let statement = db.session.parse(sql).await.unwrap();
        let prepared = db.session.prepare(statement[0].clone(), &declared).await.unwrap();
        assert_eq!(prepared.parameter_types, [expected], "{sql}");
        let schema = prepared.schema.as_ref().unwrap();
        assert_eq!(schema.field(0).data_type(), &shown, "{sql}");
    }
    let sql = "SELECT k FROM n WHERE s = ANY($1) ORDER BY k";
    let statement = db.session.parse(sql).await.unwrap();
    let prepared = db.session.prepare(statement[0].clone(), &[]).await.unwrap();
    let texts = |texts: &[Option<&str>]| {
        let texts: Vec<_> =
            texts.iter().map(|text| ScalarValue::Utf8View(text.map(str::to_owned))).collect();
        vec![ScalarValue::List(ScalarValue::new_list_nullable(&texts, &DataType::Utf8View))]
    };
    for (given, expected) in
        [(texts(&[Some("s7"), None, Some("s5")]), vec![["5"], ["7"]]), (texts(&[]), vec![])]
    {
        let output = db.session.run_prepared(&prepared, given).await.unwrap();
        assert_eq!(cells(&collect(output).await.unwrap()), expected);
    }
}

#[tokio::test]
async fn cursors_take_parameters() {
    let db = numbers().await;
    db.tag("BEGIN").await;
    let sql = "DECLARE c CURSOR FOR SELECT k FROM n WHERE k < $1 ORDER BY k";
    let statement = db.session.parse(sql).await.unwrap();
    let prepared = db.session.prepare(statement[0].clone(), &[]).await.unwrap();
    assert_eq!(prepared.parameter_types, [arrow::datatypes::DataType::Int64]);
    db.session.run_prepared(&prepared, vec![ScalarValue::Int64(Some(2))]).await.unwrap();
    let first = db.lines("SELECT min(k) FROM n").await;
    assert_eq!(db.lines("FETCH 1 FROM c").await, first);
    db.tag("COMMIT").await;
}

#[tokio::test]
async fn parameters_have_the_types_that_functions_take() {
    use arrow::datatypes::DataType::{Float64, Int32};
    let db = numbers().await;
    for (sql, expected) in [
        ("SELECT pg_sleep($1)", Float64),
        ("SELECT pg_cancel_backend($1)", Int32),
        ("SELECT pg_terminate_backend($1) FROM n WHERE k < 1", Int32),
    ] {
        let statement = db.session.parse(sql).await.unwrap();
        let prepared = db.session.prepare(statement[0].clone(), &[]).await.unwrap();
        assert_eq!(prepared.parameter_types, [expected], "{sql}");
    }
}

#[tokio::test]
async fn read_only_transactions_refuse_writes() {
    let db = numbers().await;
    for begin in ["BEGIN READ ONLY", "START TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY"]
    {
        db.tag(begin).await;
        for sql in ["INSERT INTO n VALUES (1, 'x')", "DELETE FROM n", "TRUNCATE n", "DROP TABLE n"]
        {
            let error = db.error(sql).await;
            assert_eq!(error.sqlstate, "25006", "{sql}: {error:?}");
        }
        assert_eq!(db.one("SHOW transaction_read_only").await, "on");
        db.one("SELECT count(*) FROM n").await;
        db.tag("ROLLBACK").await;
        db.tag("INSERT INTO n VALUES (1, 'x')").await;
    }
    db.tag("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY").await;
    assert_eq!(db.error("INSERT INTO n VALUES (1, 'x')").await.sqlstate, "25006");
    db.tag("BEGIN READ WRITE").await;
    db.tag("INSERT INTO n VALUES (1, 'x')").await;
    db.tag("COMMIT").await;
    assert_eq!(db.error("DELETE FROM n").await.sqlstate, "25006");
    db.tag("SET default_transaction_read_only = off").await;
    db.tag("INSERT INTO n VALUES (1, 'x')").await;
}

#[tokio::test]
async fn an_isolation_level_that_is_not_given_is_said() {
    let db = numbers().await;
    let warned = async |sql: &str| match db.try_run(sql).await.unwrap() {
        Output::Done { notices, .. } => {
            notices.iter().any(|n| n.message.contains("READ COMMITTED"))
        }
        _ => panic!("{sql}: rows"),
    };
    assert!(warned("BEGIN ISOLATION LEVEL SERIALIZABLE").await);
    assert!(!warned("COMMIT").await);
    assert!(
        warned("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ").await
    );
    assert!(!warned("BEGIN ISOLATION LEVEL READ COMMITTED").await);
    assert_eq!(db.one("SHOW transaction_isolation").await, "read committed");
}

#[tokio::test]
async fn set_config_sets_and_current_setting_shows() {
    let db = numbers().await;
    assert_eq!(db.one("SELECT set_config('jit', 'on', false)").await, "on");
    assert_eq!(db.one("SHOW jit").await, "on");
    assert_eq!(db.one("SELECT current_setting('JIT')").await, "on");
    assert_eq!(db.one("SELECT current_setting('no.such', true)").await, "NULL");
    assert_eq!(db.error("SELECT current_setting('nope')").await.sqlstate, "42704");
    assert_eq!(db.error("SELECT set_config('datestyle', 'German', false)").await.sqlstate, "22023");
    db.one("SELECT set_config('timezone', 'Asia/Tokyo', false)").await;
    assert_eq!(
        db.one("SELECT '2024-07-01 00:00+00'::timestamptz::text").await,
        "2024-07-01 09:00:00+09"
    );
    assert_eq!(db.tag("UNLISTEN *").await, "UNLISTEN");
    for (sql, tag) in [("LISTEN jobs", "LISTEN"), ("NOTIFY jobs, 'x'", "NOTIFY")] {
        let Output::Done { notices, .. } = db.try_run(sql).await.unwrap() else { panic!("{sql}") };
        assert_eq!(notices.len(), 1);
        let message = format!("{tag} is accepted, but no notification is delivered");
        assert_eq!(notices[0].message, message);
    }
}

#[tokio::test]
async fn sql_prepares_and_executes_too() {
    let db = numbers().await;
    db.tag("PREPARE one (BIGINT) AS SELECT s FROM n WHERE k = $1").await;
    assert_eq!(db.one("EXECUTE one(42)").await, "s42");
    assert_eq!(db.error("PREPARE one AS SELECT 1").await.sqlstate, "42P05");
    assert_eq!(db.error("EXECUTE two(1)").await.sqlstate, "26000");
    db.tag("DEALLOCATE one").await;
    assert_eq!(db.error("EXECUTE one(1)").await.sqlstate, "26000");
}

#[tokio::test]
async fn cursors_give_rows_in_parts() {
    let db = numbers().await;
    assert_eq!(db.error("DECLARE c CURSOR FOR SELECT k FROM n").await.sqlstate, "25P01");
    db.tag("BEGIN").await;
    db.tag("DECLARE c CURSOR FOR SELECT k FROM n ORDER BY k").await;
    assert_eq!(db.lines("FETCH 2 FROM c").await, ["0", "1"]);
    assert_eq!(db.tag("MOVE 95 FROM c").await, "MOVE 95");
    assert_eq!(db.lines("FETCH ALL FROM c").await, ["97", "98", "99"]);
    assert!(db.lines("FETCH 1 FROM c").await.is_empty());
    db.tag("COMMIT").await;
    assert_eq!(db.error("FETCH 1 FROM c").await.sqlstate, "34000");
    db.tag("DECLARE h CURSOR WITH HOLD FOR SELECT k FROM n ORDER BY k").await;
    assert_eq!(db.lines("FETCH 1 FROM h").await, ["0"]);
    assert_eq!(db.error("FETCH PRIOR FROM h").await.sqlstate, "55000");
    db.tag("CLOSE h").await;
    db.tag("DECLARE s SCROLL CURSOR WITH HOLD FOR SELECT k FROM n ORDER BY k").await;
    assert_eq!(db.lines("FETCH 3 FROM s").await, ["0", "1", "2"]);
    assert_eq!(db.lines("FETCH BACKWARD 2 FROM s").await, ["1", "0"]);
    assert_eq!(db.tag("MOVE ALL FROM s").await, "MOVE 99");
    assert_eq!(db.lines("FETCH PRIOR FROM s").await, ["99"]);
    assert_eq!(db.lines("FETCH ABSOLUTE -2 FROM s").await, ["98"]);
    assert_eq!(db.lines("FETCH FIRST FROM s").await, ["0"]);
    assert!(db.lines("FETCH RELATIVE -1 FROM s").await.is_empty());
    db.tag("CLOSE s").await;
}

#[tokio::test]
async fn transactions_are_accepted() {
    let db = numbers().await;
    assert_eq!(db.tag("BEGIN").await, "BEGIN");
    assert_eq!(db.tag("SAVEPOINT a").await, "SAVEPOINT");
    assert_eq!(db.error("ROLLBACK TO SAVEPOINT a").await.sqlstate, "0A000");
    assert_eq!(db.tag("COMMIT").await, "COMMIT");
}

#[tokio::test]
async fn who_rolls_back_is_told_that_what_was_written_stays() {
    let db = numbers().await;
    let warnings = async |sql: &str| match db.try_run(sql).await.unwrap() {
        Output::Done { notices, .. } => notices.into_iter().map(|one| one.message).collect(),
        _ => Vec::new(),
    };
    db.tag("BEGIN").await;
    db.tag("INSERT INTO n VALUES (1000, 'stays')").await;
    db.error("INSERT INTO n VALUES ('no number', 'x')").await;
    let told: Vec<String> = warnings("ROLLBACK").await;
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("does not undo writes: 1 statement of"), "{told:?}");
    assert_eq!(db.one("SELECT s FROM n WHERE k = 1000").await, "stays");
    db.tag("BEGIN").await;
    db.one("SELECT count(*) FROM n").await;
    assert!(warnings("ROLLBACK").await.is_empty(), "nothing was written");
    db.tag("BEGIN").await;
    db.tag("DELETE FROM n WHERE k = 1000").await;
    assert!(warnings("COMMIT").await.is_empty(), "as asked");
    assert!(warnings("ROLLBACK").await.is_empty(), "there was nothing to roll back");
    db.tag("PREPARE w AS INSERT INTO n VALUES ($1, 'by name')").await;
    db.tag("PREPARE r AS SELECT count(*) FROM n").await;
    for (execute, warned) in [("EXECUTE w (1001)", 1), ("EXECUTE r", 0)] {
        db.tag("BEGIN").await;
        db.try_run(execute).await.unwrap();
        assert_eq!(warnings("ROLLBACK").await.len(), warned, "{execute}");
    }
}

#[tokio::test]
async fn now_is_the_same_instant_in_every_time_zone() {
    let db = numbers().await;
    db.tag("CREATE TABLE z (k INT PRIMARY KEY, at TIMESTAMPTZ)").await;
    db.tag("INSERT INTO z VALUES (1, now()), (2, now() - INTERVAL '40 minutes'), (3, now() + INTERVAL '40 minutes')").await;
    for zone in ["UTC", "Asia/Kolkata", "America/New_York"] {
        db.tag(&format!("SET TIME ZONE '{zone}'")).await;
        for (sql, expected) in [
            ("SELECT count(*) FROM z WHERE at <= now()", "2"),
            ("SELECT count(*) FROM z WHERE at > now() - INTERVAL '20 minutes'", "2"),
            ("SELECT count(*) FROM z WHERE at BETWEEN now() - INTERVAL '1 hour' AND now()", "2"),
            ("SELECT now()::timestamptz <= max(at) FROM z", "true"),
        ] {
            assert_eq!(db.one(sql).await, expected, "{zone}: {sql}");
        }
    }
}

#[tokio::test]
async fn copy_names_the_columns_that_rows_bring() {
    let db = numbers().await;
    match db.try_run("COPY n (s, k) FROM STDIN WITH (FORMAT csv)").await.unwrap() {
        Output::CopyIn(copy) => assert_eq!(copy.columns, ["s", "k"]),
        _ => panic!("no COPY"),
    }
    match db.try_run("COPY n TO STDOUT").await.unwrap() {
        Output::CopyOut(copy) => assert_eq!(copy.schema.fields().len(), 2),
        _ => panic!("no COPY"),
    }
    assert_eq!(db.error("COPY n (nope) FROM STDIN").await.sqlstate, "42703");
}

#[tokio::test]
async fn a_query_that_needs_too_much_memory_says_so() {
    let db = Db::with(crate::FrontendOptions {
        query_memory_bytes: 1 << 20,
        query_parallelism: 2,
        ..crate::FrontendOptions::default()
    });
    let error = db
        .error("SELECT value, count(*) FROM generate_series(1, 5000000) GROUP BY value ORDER BY 1")
        .await;
    assert_eq!(error.sqlstate, "53200", "{error:?}");
}

#[tokio::test]
async fn arrays_that_a_join_repeats_count_as_memory() {
    let pairs = "SELECT count(*) FROM (SELECT array_agg(x) AS l FROM generate_series(1, 50000) AS x(x)) AS a, \
                 generate_series(1, 300) AS q(n) WHERE a.l[q.n % 7 + 1] > 0";
    assert_eq!(Db::new().one(pairs).await, "300");
    let db = Db::with(crate::FrontendOptions {
        query_memory_bytes: 16 << 20,
        ..crate::FrontendOptions::default()
    });
    assert_eq!(db.error(pairs).await.sqlstate, "53200");
    assert_eq!(db.one("SELECT count(*) FROM generate_series(1, 9) AS a(n), generate_series(1, 9) AS b(n) WHERE a.n < b.n").await, "36");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_cancels_and_terminates_others_by_number() {
    let db = Db::new();
    let other = db.frontend.session(SessionOptions::default());
    let (pid, own) = (other.pid(), db.session.pid());
    assert_eq!(db.one("SELECT pg_backend_pid()").await, own.to_string());
    // A cancel ends the statement, and the session goes on.
    let running = {
        let other = Arc::clone(&other);
        tokio::spawn(async move { other.execute(ENDLESS).await.map(drop) })
    };
    let state = async |wanted: &str| loop {
        let rows = db.frontend.activities(db.session.viewer());
        let row = rows.into_iter().find(|row| row.pid == pid).unwrap();
        if row.state == wanted {
            break row;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(state("active").await.query, ENDLESS);
    assert_eq!(db.one(&format!("SELECT pg_cancel_backend({pid})")).await, "true");
    assert_eq!(running.await.unwrap().unwrap_err().sqlstate, "57014");
    state("idle").await;
    assert!(other.execute("SELECT 1").await.is_ok());
    // After its end, nothing runs in it.
    assert_eq!(db.one(&format!("SELECT pg_terminate_backend({pid})")).await, "true");
    assert_eq!(other.terminated().unwrap().sqlstate, "57P01");
    assert_eq!(other.until_terminated().await.sqlstate, "57P01");
    assert!(other.execute("SELECT 1").await.is_err());
    drop(other);
    // A lane may hold the session a little longer.
    while db.one(&format!("SELECT pg_terminate_backend({pid})")).await == "true" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(db.one("SELECT pg_terminate_backend(-1)").await, "false");
    assert_eq!(db.one("SELECT pg_cancel_backend(NULL)").await, "NULL");
    assert!(db.session.terminated().is_none());
}

#[tokio::test]
async fn a_session_shows_its_transaction() {
    let db = Db::new();
    let row = || db.frontend.activities(db.session.viewer()).remove(0);
    db.tag("SET application_name = 'shop'").await;
    db.tag("BEGIN").await;
    assert_eq!((row().state, row().application.as_str()), ("idle in transaction", "shop"));
    assert!(row().transaction_ms.is_some());
    assert_eq!(row().query, "BEGIN");
    db.tag("COMMIT").await;
    assert_eq!((row().state, row().transaction_ms), ("idle", None));
}

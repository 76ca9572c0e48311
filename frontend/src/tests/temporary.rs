//! Temporary tables: of one session, in memory.

use partita_proto::access::Door;

use super::Db;
use crate::{FrontendOptions, Output, SessionOptions};

/// Another session of the same frontend.
fn other_session(db: &Db, options: SessionOptions) -> Db {
    Db {
        fake: std::sync::Arc::clone(&db.fake),
        frontend: std::sync::Arc::clone(&db.frontend),
        session: db.frontend.session(options),
    }
}

#[tokio::test]
async fn rows_are_written_read_and_removed() {
    let db = Db::new();
    db.tag("CREATE TABLE n (k INT PRIMARY KEY, v INT)").await;
    db.tag("INSERT INTO n VALUES (1, 10), (2, 20)").await;
    db.tag("CREATE TEMP TABLE t (k INT, w INT DEFAULT 7)").await;
    assert_eq!(db.tag("INSERT INTO t (k) VALUES (1), (1)").await, "INSERT 0 2");
    assert_eq!(db.tag("INSERT INTO t SELECT k, v FROM n").await, "INSERT 0 2");
    assert_eq!(db.tag("INSERT INTO t SELECT k, w FROM t").await, "INSERT 0 4");
    let joined = "SELECT t.k, count(*), sum(v) FROM t JOIN n ON t.k = n.k GROUP BY t.k ORDER BY 1";
    assert_eq!(db.lines(joined).await, ["1|6|60", "2|2|40"]);
    assert_eq!(db.tag("DELETE FROM t WHERE w = 7").await, "DELETE 4");
    assert_eq!(db.lines("SELECT * FROM t ORDER BY k").await, ["1|10", "1|10", "2|20", "2|20"]);
    assert_eq!(db.error("SELECT __row FROM t").await.sqlstate, "42703");
    db.tag("TRUNCATE t").await;
    assert_eq!(db.one("SELECT count(*) FROM t").await, "0");
    db.tag("DROP TABLE t").await;
    assert_eq!(db.error("SELECT * FROM t").await.sqlstate, "42P01");
}

#[tokio::test]
async fn rows_of_a_key_replace_each_other_and_constraints_hold() {
    let db = Db::new();
    db.tag("CREATE TEMP TABLE t (k INT PRIMARY KEY, v INT CHECK (v > 0))").await;
    for row in 0..100 {
        db.tag(&format!("INSERT INTO t VALUES ({}, {})", row % 10, row + 1)).await;
    }
    db.tag("INSERT INTO t VALUES (1, 1), (1, 2)").await;
    assert_eq!(db.one("SELECT count(*) FROM t").await, "10");
    assert_eq!(
        db.lines("SELECT k, v FROM t WHERE k < 3 ORDER BY k").await,
        ["0|91", "1|2", "2|93"]
    );
    assert_eq!(db.error("INSERT INTO t VALUES (1, 0)").await.sqlstate, "23514");
    assert_eq!(db.tag("DELETE FROM t WHERE k > 1").await, "DELETE 8");
    assert_eq!(db.one("SELECT sum(v) FROM t").await, "93");
}

#[tokio::test]
async fn rows_are_changed_together_or_not_at_all() {
    let db = Db::new();
    db.tag("CREATE TEMP TABLE t (k INT PRIMARY KEY, v INT DEFAULT 7, w INT)").await;
    db.tag("INSERT INTO t SELECT number::int, 1, 2 FROM numbers").await;
    assert_eq!(db.tag("UPDATE t SET v = v + k WHERE k < 3").await, "UPDATE 3");
    assert_eq!(db.lines("SELECT v FROM t WHERE k < 4 ORDER BY k").await, ["1", "2", "3", "1"]);
    // Every key moves onto that of the next row but the last.
    assert_eq!(db.error("UPDATE t SET k = k + 1").await.sqlstate, "23505");
    assert_eq!(db.error("UPDATE t SET v = 1 / (k - 99)").await.sqlstate, "22012");
    assert_eq!(db.one("SELECT sum(k) * 1000 + sum(v) FROM t").await, "4950103");
    assert_eq!(db.tag("UPDATE t SET k = k + 100").await, "UPDATE 100");
    assert_eq!(db.one("SELECT min(k) * 1000 + max(k) FROM t").await, "100199");
    // The former keys are free again, the new ones are not.
    assert_eq!(
        db.tag("INSERT INTO t (k) VALUES (0), (100) ON CONFLICT DO NOTHING").await,
        "INSERT 0 1"
    );
    assert_eq!(db.one("SELECT v FROM t WHERE k = 0").await, "7");
    db.tag("UPSERT INTO t (k, v) VALUES (0, 8), (1, 9)").await;
    db.tag("UPDATE t SET w = 5 WHERE k = 0").await;
    db.tag("UPSERT INTO t (k, v) VALUES (0, 9)").await;
    assert_eq!(db.lines("SELECT * FROM t WHERE k < 2 ORDER BY k").await, ["0|9|5", "1|9|NULL"]);
    let plan = db.lines("EXPLAIN UPDATE t SET v = v + 1 WHERE k < 2").await.join(" ");
    assert!(plan.contains("TableScan") || plan.contains("DataSource"), "{plan}");
    assert_eq!(db.lines("DELETE FROM t WHERE k < 2 RETURNING v").await, ["9", "9"]);
    assert_eq!(db.one("SELECT count(*) FROM t").await, "100");
}

#[tokio::test]
async fn texts_that_were_replaced_take_no_memory() {
    let db = Db::new();
    db.tag("CREATE TEMP TABLE t (k INT PRIMARY KEY, v STRING)").await;
    db.tag("INSERT INTO t VALUES (1, 'a text that stays as it is'), (2, '')").await;
    for round in 0..40 {
        db.tag(&format!("UPDATE t SET v = repeat('{}', 100000) WHERE k = 2", round % 10)).await;
        db.tag(&format!("UPSERT INTO t (k, v) VALUES (3, repeat('{}', 100000))", round % 10)).await;
    }
    assert_eq!(db.one("SELECT sum(length(v)) FROM t").await, "200026");
    let held_bytes = db.session.viewer().temporary().get("public", "t").unwrap().held_bytes();
    assert!(held_bytes < 2_000_000, "{held_bytes}");
}

#[tokio::test]
async fn a_temporary_table_is_that_of_its_session() {
    let db = Db::new();
    db.tag("CREATE TABLE t (a INT)").await;
    db.tag("INSERT INTO t VALUES (1)").await;
    let other = other_session(&db, SessionOptions::default());
    db.tag("PREPARE q AS SELECT a FROM t").await;
    db.tag("CREATE TEMP TABLE t AS SELECT 2 AS a").await;
    assert_eq!(db.one("SELECT a FROM t").await, "2");
    assert_eq!(db.one("EXECUTE q").await, "2");
    assert_eq!(other.one("SELECT a FROM t").await, "1");
    let error = db.error("CREATE TEMP TABLE t (a INT)").await;
    assert_eq!(
        (error.sqlstate.as_str(), error.message.as_str()),
        ("42P07", "relation \"t\" already exists")
    );
    db.tag("CREATE TEMP TABLE IF NOT EXISTS t (a INT)").await;
    // A view is read by others too.
    assert_eq!(db.error("CREATE VIEW v AS SELECT a FROM t").await.sqlstate, "0A000");
    db.tag("DISCARD TEMPORARY").await;
    assert_eq!(db.one("SELECT a FROM t").await, "1");
    assert_eq!(db.one("EXECUTE q").await, "1");
    // The temporary table is dropped first.
    db.tag("SELECT 3 AS a INTO TEMP t").await;
    db.tag("DROP TABLE t").await;
    assert_eq!(db.one("SELECT a FROM t").await, "1");
}

#[tokio::test]
async fn what_temporary_tables_do_not_take_is_refused_by_name() {
    let db = Db::new();
    db.tag("CREATE TEMP TABLE t (k INT PRIMARY KEY, v INT) ON COMMIT PRESERVE ROWS").await;
    for (sql, says) in [
        ("ALTER TABLE t ADD COLUMN w INT", "ALTER TABLE of a temporary table"),
        ("CREATE INDEX ON t USING inverted (v)", "CREATE INDEX of a temporary table"),
        ("CREATE TEMP TABLE u (k SERIAL)", "a counter in a temporary table"),
        (
            "CREATE TEMP TABLE u (k INT PRIMARY KEY) PARTITION BY HASH (k) PARTITIONS 2",
            "partitions",
        ),
        ("CREATE TEMP TABLE u (k INT INVERTED INDEX)", "an index"),
    ] {
        let error = db.error(sql).await;
        assert_eq!(error.sqlstate, "0A000", "{sql}: {error:?}");
        assert!(error.message.contains(says), "{sql}: {error:?}");
    }
    assert_eq!(db.error("CREATE TABLE u (k INT) ON COMMIT DROP").await.sqlstate, "42P16");
    let mut options = SessionOptions::default();
    options.identity.door = Door::Http;
    let request = other_session(&db, options);
    assert_eq!(request.error("CREATE TEMP TABLE u (k INT)").await.sqlstate, "0A000");
}

#[tokio::test]
async fn rows_beyond_the_memory_are_refused_and_those_before_stay() {
    let db = Db::with(FrontendOptions {
        query_memory_bytes: 8 << 20,
        query_parallelism: 1,
        ..FrontendOptions::default()
    });
    db.tag("CREATE TEMP TABLE t (text STRING)").await;
    let insert = format!("INSERT INTO t VALUES ('{}')", "x".repeat(1 << 20));
    let mut stored = 0;
    let error = loop {
        match db.try_run(&insert).await {
            Ok(Output::Done { .. }) => stored += 1,
            Ok(_) => panic!("rows"),
            Err(error) => break error,
        }
        assert!(stored < 100);
    };
    assert_eq!(error.sqlstate, "53200", "{error:?}");
    assert!(stored > 0);
    db.tag("TRUNCATE t").await;
    db.tag(&insert).await;
}

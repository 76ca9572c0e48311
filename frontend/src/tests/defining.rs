//! DDL through the frontend.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array};
use arrow::record_batch::RecordBatch;

use super::Db;
use crate::Output;

#[tokio::test]
async fn tables_are_created_once() {
    let db = Db::new();
    assert_eq!(db.tag("CREATE TABLE t (k INT PRIMARY KEY)").await, "CREATE TABLE");
    let error = db.error("CREATE TABLE t (k INT PRIMARY KEY)").await;
    assert_eq!(
        (error.sqlstate.as_str(), error.message.as_str()),
        ("42P07", "relation \"t\" already exists")
    );
    let Output::Done { notices, .. } =
        db.try_run("CREATE TABLE IF NOT EXISTS t (k INT PRIMARY KEY)").await.unwrap()
    else {
        panic!("rows")
    };
    assert_eq!(notices[0].message, "relation \"t\" already exists, skipping");
    assert_eq!(db.error("CREATE TABLE nope.t (k INT PRIMARY KEY)").await.sqlstate, "3F000");
    assert_eq!(db.tag("DROP TABLE t").await, "DROP TABLE");
    assert_eq!(db.error("DROP TABLE t").await.sqlstate, "42P01");
    assert_eq!(db.tag("DROP TABLE IF EXISTS t").await, "DROP TABLE");
}

#[tokio::test]
async fn expressions_of_columns_are_checked_when_they_are_defined() {
    let db = Db::new();
    for (column, sqlstate) in [
        ("g INT GENERATED ALWAYS AS (nope + 1) STORED", "42703"),
        ("g INT GENERATED ALWAYS AS (nope(k)) STORED", "42883"),
        ("g TIMESTAMP GENERATED ALWAYS AS (now()) STORED", "42P17"),
        ("g DOUBLE GENERATED ALWAYS AS (random()) STORED", "42P17"),
        ("d INT DEFAULT 'x'", "42804"),
        ("d TINYINT DEFAULT 300", "42804"),
    ] {
        let error = db.error(&format!("CREATE TABLE t (k INT PRIMARY KEY, {column})")).await;
        assert_eq!(error.sqlstate, sqlstate, "{column}: {error:?}");
    }
    assert!(db.frontend.catalog().table("public", "t").is_none());
}

#[tokio::test]
async fn tables_change_and_keep_their_rows() {
    let db = Db::new();
    db.tag("CREATE TABLE t (k INT PRIMARY KEY, a INT)").await;
    db.tag("INSERT INTO t VALUES (1, 10)").await;
    db.tag("ALTER TABLE t ADD COLUMN b STRING DEFAULT 'x', ADD COLUMN c INT").await;
    db.tag("INSERT INTO t (k) VALUES (2)").await;
    assert_eq!(db.lines("SELECT * FROM t ORDER BY k").await, ["1|10|x|NULL", "2|NULL|x|NULL"]);
    db.tag("ALTER TABLE t RENAME COLUMN a TO first").await;
    assert_eq!(db.lines("SELECT first FROM t WHERE k = 1").await, ["10"]);
    db.tag("ALTER TABLE t DROP COLUMN c").await;
    assert_eq!(db.error("SELECT c FROM t").await.sqlstate, "42703");
    db.tag("ALTER TABLE t ALTER COLUMN b SET DEFAULT 'y'").await;
    db.tag("INSERT INTO t (k) VALUES (3)").await;
    assert_eq!(db.one("SELECT b FROM t WHERE k = 3").await, "y");
    db.tag("ALTER TABLE t RENAME TO u").await;
    assert_eq!(db.one("SELECT count(*) FROM u").await, "3");
    assert_eq!(db.error("SELECT * FROM t").await.sqlstate, "42P01");
    assert_eq!(db.tag("TRUNCATE u").await, "TRUNCATE TABLE");
    assert_eq!(db.one("SELECT count(*) FROM u").await, "0");
    assert_eq!(db.tag("ADMIN flush_table('u')").await, "ADMIN");
    assert_eq!(db.error("ALTER TABLE u ADD COLUMN z INT DEFAULT 'x'").await.sqlstate, "42804");
    assert_eq!(db.error("ALTER TABLE u ADD COLUMN z INT NOT NULL").await.sqlstate, "0A000");
}

#[tokio::test]
async fn rows_pass_the_constraints_whatever_brings_them() {
    let db = Db::new();
    db.tag("CREATE TABLE t (k INT PRIMARY KEY, v INT CHECK (v > 0))").await;
    let table = db.frontend.catalog().table("public", "t").map(Arc::clone).unwrap();
    let rows = |values: [i32; 2]| {
        let column = |values: [i32; 2]| Arc::new(Int32Array::from(values.to_vec())) as ArrayRef;
        RecordBatch::try_from_iter([("k", column([1, 2])), ("v", column(values))]).unwrap()
    };
    let error = db.frontend.ingest(&db.permit(), &table, rows([1, 0])).await.unwrap_err();
    assert_eq!(
        (error.sqlstate.as_str(), error.message.as_str()),
        ("23514", "new row for relation \"t\" violates check constraint \"t_v_check\"")
    );
    assert_eq!(error.detail.as_deref(), Some("in row 2"));
    assert_eq!(db.frontend.ingest(&db.permit(), &table, rows([1, 2])).await.unwrap(), 2);
    // A constraint that rows fail is not there after the attempt.
    assert_eq!(db.error("ALTER TABLE t ADD CHECK (v > 1)").await.sqlstate, "23514");
    db.tag("INSERT INTO t VALUES (3, 1)").await;
    let sql = db.rows("SHOW CREATE TABLE t").await[0][1].clone();
    assert!(sql.contains("CONSTRAINT t_v_check CHECK (v > 0)"), "{sql}");
    db.tag(&sql.replacen("CREATE TABLE t ", "CREATE TABLE u ", 1)).await;
    assert_eq!(db.error("INSERT INTO u VALUES (3, 0)").await.sqlstate, "23514");
}

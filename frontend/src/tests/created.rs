//! Tables of the rows of queries: CREATE TABLE ... AS and SELECT ... INTO.

use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use partita_proto::Error;
use partita_sql::parser;

use super::Db;
use crate::Output;

async fn numbers() -> Db {
    let db = Db::new();
    db.tag("CREATE TABLE n (k INT PRIMARY KEY, v INT) SPLIT AT ((3))").await;
    db.tag("INSERT INTO n VALUES (1, 10), (2, 20), (3, 30), (4, 40)").await;
    db
}

fn is_there(db: &Db, name: &str) -> bool {
    db.frontend.catalog().table("public", name).is_some()
}

#[tokio::test]
async fn a_table_gets_the_columns_and_rows_of_a_query() {
    let db = numbers().await;
    assert_eq!(db.tag("CREATE TABLE a AS SELECT k, v * 2 AS w FROM n").await, "SELECT 4");
    assert_eq!(db.lines("SELECT k, w FROM a ORDER BY k").await, ["1|20", "2|40", "3|60", "4|80"]);
    assert!(db.frontend.catalog().table("public", "a").unwrap().schema.is_keyless());
    assert_eq!(db.tag("SELECT max(v), 1 INTO b FROM n").await, "SELECT 1");
    assert_eq!(db.lines("SELECT max, \"?column?\" FROM b").await, ["40|1"]);
    let sql = "CREATE TABLE c (k, PRIMARY KEY (k)) PARTITION BY HASH (k) PARTITIONS 4 AS TABLE n";
    assert_eq!(db.tag(sql).await, "SELECT 4");
    let catalog = db.frontend.catalog();
    let table = catalog.table("public", "c").unwrap();
    assert_eq!((table.partitions.routes().len(), table.schema.is_keyless()), (4, false));
    assert_eq!(db.tag("CREATE TABLE d AS TABLE n WITH NO DATA").await, "CREATE TABLE AS");
    assert_eq!(db.one("SELECT count(*) FROM d").await, "0");
    assert_eq!(db.tag("CREATE TABLE IF NOT EXISTS d AS SELECT 1").await, "CREATE TABLE AS");
    assert_eq!(db.one("SELECT count(*) FROM d").await, "0");
}

#[tokio::test]
async fn a_table_that_cannot_be_filled_is_dropped_again() {
    let db = numbers().await;
    let error = db.error("CREATE TABLE a (CHECK (v < 30)) AS SELECT v FROM n").await;
    assert_eq!(error.sqlstate, "23514");
    assert!(error.detail.unwrap().contains("the table was dropped again"));
    assert!(!is_there(&db, "a"));
    db.fake.write_errors.lock().push_back(Error::InvalidInput("a broken row".to_owned()));
    db.error("SELECT k INTO a FROM n").await;
    assert!(!is_there(&db, "a"));
    assert_eq!(db.tag("SELECT k INTO a FROM n").await, "SELECT 4");
}

#[tokio::test]
async fn a_table_goes_with_a_statement_that_is_cancelled() {
    let db = numbers().await;
    // Rows wait for the lock, so the statement does not end by itself.
    let lock = Arc::clone(&db.fake.writes).write_owned().await;
    db.tag("SET statement_timeout = '300ms'").await;
    assert_eq!(db.error("CREATE TABLE a AS TABLE n").await.sqlstate, "57014");
    drop(lock);
    while is_there(&db, "a") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_plan_is_shown_without_making_a_table() {
    let db = numbers().await;
    let plan = db.explain("CREATE TABLE a AS SELECT k FROM n WHERE v > 20").await;
    assert!(plan.contains("v > ") || plan.contains("v@"), "{plan}");
    assert!(!is_there(&db, "a"));
}

#[tokio::test]
async fn a_client_of_the_extended_protocol_may_give_parameters() {
    let db = numbers().await;
    let text = "CREATE TABLE a AS SELECT k, $1 AS w FROM n WHERE v > $2";
    let statement = parser::parse(text).unwrap().remove(0);
    let types = [Some(DataType::Int32), None];
    let prepared = db.session.prepare(statement, &types).await.unwrap();
    assert_eq!(prepared.parameter_types.len(), 2);
    assert!(prepared.schema.is_none());
    let parameters = vec![ScalarValue::Int32(Some(7)), ScalarValue::Int32(Some(20))];
    let output = db.session.run_prepared(&prepared, parameters).await.unwrap();
    let Output::Done { tag, rows, .. } = output else { panic!("rows") };
    assert_eq!((tag.as_str(), rows), ("SELECT 2", Some(2)));
    assert_eq!(db.lines("SELECT k, w FROM a ORDER BY k").await, ["3|7", "4|7"]);
}

#[tokio::test]
async fn a_table_like_another_one_has_sequences_of_its_own() {
    let db = Db::new();
    db.tag("CREATE TABLE u (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, t TEXT)").await;
    db.tag("INSERT INTO u (t) VALUES ('a'), ('b')").await;
    db.tag("CREATE TABLE t (LIKE u INCLUDING ALL)").await;
    db.tag("INSERT INTO t (t) VALUES ('c')").await;
    assert_eq!(db.lines("SELECT id, t FROM t").await, ["1|c"]);
    db.tag("DROP TABLE u").await;
    db.tag("INSERT INTO t (t) VALUES ('d')").await;
    assert_eq!(db.one("SELECT count(*) FROM t").await, "2");
}

#[tokio::test]
async fn unlogged_is_accepted_with_a_notice() {
    let db = Db::new();
    for sql in ["CREATE UNLOGGED TABLE a (k INT)", "SELECT 1 AS k INTO UNLOGGED b"] {
        let Ok(Output::Done { notices, .. }) = db.try_run(sql).await else { panic!("{sql}") };
        let is_told = notices.iter().any(|notice| notice.message.contains("UNLOGGED"));
        assert!(is_told, "{sql}");
    }
}

//! UPDATE: what rows become, and that nobody's update is lost.

use std::sync::Arc;

use partita_proto::range::Bound;
use partita_proto::value::Value;

use super::Db;
use crate::{Output, Session, SessionOptions, SqlError};

async fn stock(clause: &str) -> Db {
    let db = Db::new();
    db.tag(&format!(
        "CREATE TABLE stock (id INT PRIMARY KEY, name VARCHAR(5), n BIGINT DEFAULT 7, \
         price DECIMAL(8, 2), at TIMESTAMP(3)) {clause}"
    ))
    .await;
    db.tag(
        "INSERT INTO stock VALUES (1, 'a', 10, 1.50, '2024-01-01'), (2, 'b', 20, 2.50, NULL), \
         (3, 'c', NULL, 3.50, '2024-01-03')",
    )
    .await;
    db
}

async fn all(db: &Db) -> Vec<String> {
    db.lines("SELECT id, name, n, price FROM stock ORDER BY id").await
}

#[tokio::test]
async fn fields_are_set_and_the_others_kept() {
    let db = stock("PARTITION BY HASH (id) PARTITIONS 3").await;
    assert_eq!(db.tag("UPDATE stock SET n = n + 1 WHERE price < 3").await, "UPDATE 2");
    assert_eq!(all(&db).await, ["1|a|11|1.50", "2|b|21|2.50", "3|c|NULL|3.50"]);
    assert_eq!(
        db.tag("UPDATE stock AS s SET name = 'x', n = DEFAULT WHERE s.id = 3").await,
        "UPDATE 1"
    );
    assert_eq!(
        db.tag("UPDATE public.stock SET (name, price) = (upper(name), price * 2) WHERE id <> 3")
            .await,
        "UPDATE 2"
    );
    assert_eq!(all(&db).await, ["1|A|11|3.00", "2|B|21|5.00", "3|x|7|3.50"]);
    assert_eq!(db.tag("UPDATE stock SET n = NULL").await, "UPDATE 3");
    assert_eq!(db.one("SELECT count(n) FROM stock").await, "0");
    assert_eq!(db.tag("UPDATE stock SET n = 1 WHERE id = 9").await, "UPDATE 0");
    // A new value sees the row as it was.
    db.tag("UPDATE stock SET n = id, name = n::TEXT WHERE id = 1").await;
    assert_eq!(db.one("SELECT n::TEXT || coalesce(name, '-') FROM stock WHERE id = 1").await, "1-");
    assert_eq!(db.one("SELECT at FROM stock WHERE id = 1").await, "2024-01-01T00:00:00");
}

#[tokio::test]
async fn fields_that_keep_their_newest_value_become_null_too() {
    let db = stock("WITH ('merge_mode' = 'last_non_null')").await;
    db.tag("UPDATE stock SET n = NULL, price = price + 1 WHERE id = 1").await;
    assert_eq!(all(&db).await, ["1|a|NULL|2.50", "2|b|20|2.50", "3|c|NULL|3.50"]);
}

#[tokio::test]
async fn other_tables_give_values_and_choose_rows() {
    let db = stock("PARTITION BY HASH (id) PARTITIONS 3").await;
    db.tag("CREATE TABLE orders (k INT PRIMARY KEY, id INT, amount INT)").await;
    db.tag("INSERT INTO orders VALUES (1, 1, 5), (2, 2, 6), (3, 2, 6), (4, 9, 1)").await;
    let update = "UPDATE stock SET n = n - o.amount FROM orders AS o WHERE o.id = stock.id";
    // Two orders of one article: the row changes once, as in PostgreSQL.
    assert_eq!(db.tag(update).await, "UPDATE 2");
    assert_eq!(all(&db).await, ["1|a|5|1.50", "2|b|14|2.50", "3|c|NULL|3.50"]);
    db.tag(
        "UPDATE stock SET n = (SELECT sum(amount) FROM orders o WHERE o.id = stock.id) \
         WHERE id IN (SELECT id FROM orders)",
    )
    .await;
    assert_eq!(all(&db).await, ["1|a|5|1.50", "2|b|12|2.50", "3|c|NULL|3.50"]);
    // The table itself, as it was when the statement began.
    db.tag("UPDATE stock SET n = (SELECT max(n) FROM stock) + id").await;
    assert_eq!(all(&db).await, ["1|a|13|1.50", "2|b|14|2.50", "3|c|15|3.50"]);
}

#[tokio::test]
async fn what_does_not_fit_is_refused_by_postgresql_s_codes() {
    let db = stock("").await;
    db.tag("CREATE TABLE log (ts TIMESTAMP TIME INDEX, v INT) WITH ('append_mode' = 'true')").await;
    db.tag("CREATE TABLE g (id INT PRIMARY KEY, a INT NOT NULL, b INT GENERATED ALWAYS AS (a + 1) STORED)")
        .await;
    db.tag("INSERT INTO g (id, a) VALUES (1, 1)").await;
    for (sql, sqlstate) in [
        ("UPDATE nowhere SET a = 1", "42P01"),
        ("UPDATE stock SET nothing = 1", "42703"),
        ("UPDATE stock SET n = nothing", "42703"),
        ("UPDATE stock SET n = 1, n = 2", "42601"),
        ("UPDATE stock SET n = 'x'", "22P02"),
        ("UPDATE stock SET n = n / 0 WHERE id = 1", "22012"),
        ("UPDATE stock SET name = 'too long'", "22001"),
        ("UPDATE g SET a = NULL", "23502"),
        ("UPDATE g SET b = 1", "428C9"),
        ("UPDATE log SET v = 1", "0A000"),
        ("UPDATE sys.tables SET name = 'x'", "42809"),
    ] {
        let error = db.error(sql).await;
        assert_eq!(error.sqlstate, sqlstate, "{sql}: {error:?}");
    }
    assert_eq!(all(&db).await, ["1|a|10|1.50", "2|b|20|2.50", "3|c|NULL|3.50"]);
    db.tag("UPDATE g SET a = 5, b = DEFAULT").await;
    assert_eq!(db.lines("SELECT a, b FROM g").await, ["5|6"]);
    let read_only = db.error("BEGIN READ ONLY; UPDATE stock SET n = 1").await;
    assert_eq!(read_only.sqlstate, "25006");
}

#[tokio::test]
async fn a_row_moves_with_its_key() {
    for clause in
        ["", "PARTITION BY HASH (id) PARTITIONS 4", "PARTITION BY RANGE (id) SPLIT AT ((3), (10))"]
    {
        let db = stock(clause).await;
        assert_eq!(db.tag("UPDATE stock SET id = id + 10, n = 0 WHERE id < 3").await, "UPDATE 2");
        assert_eq!(all(&db).await, ["3|c|NULL|3.50", "11|a|0|1.50", "12|b|0|2.50"], "{clause}");
        // Some keys stay.
        assert_eq!(
            db.tag("UPDATE stock SET id = CASE WHEN id = 3 THEN 4 ELSE id END, n = 1").await,
            "UPDATE 3"
        );
        assert_eq!(all(&db).await, ["4|c|1|3.50", "11|a|1|1.50", "12|b|1|2.50"], "{clause}");
        let taken = db.error("UPDATE stock SET id = 4 WHERE id = 11").await;
        assert_eq!(taken.sqlstate, "23505", "{taken:?}");
        assert!(taken.message.contains("stock_pkey"), "{taken:?}");
        assert_eq!(taken.detail.unwrap(), "Key (id)=(4) already exists.");
        assert_eq!(db.error("UPDATE stock SET id = 5").await.sqlstate, "23505");
        assert_eq!(db.one("SELECT count(*) FROM stock").await, "3", "{clause}");
    }
}

/// Adds to a counter again and again, each time by one statement.
async fn count(session: Arc<Session>, times: usize) -> Result<(), SqlError> {
    for _ in 0..times {
        let outputs = session.execute("UPDATE counters SET n = n + 1 WHERE id = 1").await?;
        let tags = outputs.iter().map(|output| match output {
            Output::Done { tag, .. } => tag.as_str(),
            _ => "",
        });
        assert_eq!(tags.collect::<Vec<_>>(), ["UPDATE 1"]);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_update_of_many_writers_is_lost_also_when_the_partition_is_split() {
    let db = Db::new();
    db.tag("CREATE TABLE counters (id INT PRIMARY KEY, n INT)").await;
    db.tag("INSERT INTO counters VALUES (0, 0), (1, 0), (2, 0)").await;
    let sessions = (0..32).map(|_| db.frontend.session(SessionOptions::default()));
    let writers: Vec<_> = sessions.map(|session| tokio::spawn(count(session, 5))).collect();
    for key in [2, 1] {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        let bound = Bound { placement: None, key: vec![Value::Int(key)] };
        db.fake.split("public", "counters", 0, bound).unwrap();
    }
    for writer in writers {
        writer.await.unwrap().unwrap();
    }
    assert_eq!(db.lines("SELECT id, n FROM counters ORDER BY id").await, ["0|0", "1|160", "2|0"]);
}

#[tokio::test]
async fn an_update_whose_answer_was_lost_counts_once() {
    let db = Db::new();
    db.tag("CREATE TABLE counters (id INT PRIMARY KEY, n INT)").await;
    db.tag("INSERT INTO counters VALUES (1, 0)").await;
    for _ in 0..3 {
        db.fake
            .late_write_errors
            .lock()
            .push_back(partita_proto::Error::Timeout("no answer".to_owned()));
        assert_eq!(db.tag("UPDATE counters SET n = n + 1").await, "UPDATE 1");
    }
    assert_eq!(db.one("SELECT n FROM counters").await, "3");
}

#[tokio::test]
async fn updates_are_prepared_and_explained() {
    let db = stock("").await;
    db.tag("PREPARE p AS UPDATE stock SET n = $1, name = $2 WHERE id = $3").await;
    assert_eq!(db.tag("EXECUTE p (5, 'z', 2)").await, "UPDATE 1");
    assert_eq!(db.one("SELECT n::TEXT || name FROM stock WHERE id = 2").await, "5z");
    let plan = db.explain("UPDATE stock SET n = 1 WHERE id = 2").await;
    assert!(plan.contains("table=public.stock"), "{plan}");
    assert_eq!(db.error("EXPLAIN ANALYZE UPDATE stock SET n = 1").await.sqlstate, "0A000");
    assert_eq!(db.one("SELECT n FROM stock WHERE id = 2").await, "5");
}

//! ON CONFLICT: what becomes of rows whose key exists, and that clients that insert one key agree on it.

use std::sync::Arc;

use super::{Db, cells, collect};
use crate::{Session, SessionOptions};

#[tokio::test]
async fn existing_rows_stay_or_are_changed() {
    let db = Db::new();
    db.tag("CREATE TABLE t (a INT, b STRING, v INT, PRIMARY KEY (a, b)) PARTITION BY HASH (a) PARTITIONS 3")
        .await;
    let values: Vec<String> =
        (0..150).map(|n| format!("({}, 'x{}', {n})", n / 10, n % 10)).collect();
    let insert = format!("INSERT INTO t VALUES {}", values.join(", "));
    assert_eq!(db.tag(&format!("{insert} ON CONFLICT DO NOTHING")).await, "INSERT 0 150");
    assert_eq!(db.tag(&format!("{insert} ON CONFLICT (b, a) DO NOTHING")).await, "INSERT 0 0");
    let update = "ON CONFLICT (a, b) DO UPDATE SET v = t.v + excluded.v WHERE excluded.v % 2 = 0";
    assert_eq!(db.tag(&format!("{insert} {update}")).await, "INSERT 0 75");
    assert_eq!(db.one("SELECT sum(v) FROM t").await, "16725");
    // A key with NULL is a key.
    db.tag("INSERT INTO t (b, v) VALUES ('n', 1)").await;
    assert_eq!(
        db.tag("INSERT INTO t (b, v) VALUES ('n', 2) ON CONFLICT DO NOTHING").await,
        "INSERT 0 0"
    );
    let sql = "INSERT INTO t (b, v) VALUES ('n', 5) ON CONFLICT (a, b) DO UPDATE SET v = excluded.v RETURNING a, v";
    assert_eq!(db.lines(sql).await, ["NULL|5"]);
    db.tag("PREPARE p AS INSERT INTO t VALUES ($1, $2, $3) ON CONFLICT (a, b) DO UPDATE SET v = t.v + $4").await;
    db.tag("EXECUTE p (1, 'new', 1, 10)").await;
    db.tag("EXECUTE p (1, 'new', 1, 10)").await;
    assert_eq!(db.one("SELECT v FROM t WHERE a = 1 AND b = 'new'").await, "11");
}

#[tokio::test]
async fn tables_that_keep_equal_rows_have_no_conflicts() {
    let db = Db::new();
    db.tag("CREATE TABLE keyless (v INT)").await;
    db.tag("CREATE TABLE log (ts TIMESTAMP(3) TIME INDEX, v INT) WITH ('append_mode' = 'true')")
        .await;
    for (table, column, value) in [("keyless", "v", "1"), ("log", "ts", "1")] {
        let insert = format!("INSERT INTO {table} ({column}) VALUES ({value}), ({value})");
        assert_eq!(db.tag(&format!("{insert} ON CONFLICT DO NOTHING")).await, "INSERT 0 2");
        let named = format!("{insert} ON CONFLICT ({column}) DO NOTHING");
        assert_eq!(db.error(&named).await.sqlstate, "42P10", "{named}");
    }
}

/// Counts in a row that the first client makes.
async fn count(session: Arc<Session>, times: usize) -> usize {
    let mut made = 0;
    for _ in 0..times {
        let sql = "INSERT INTO counters VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = counters.n + 1 RETURNING n";
        let output = session.execute(sql).await.unwrap().pop().unwrap();
        let rows = cells(&collect(output).await.unwrap());
        assert_eq!(rows.len(), 1);
        made += usize::from(rows[0][0] == "1");
    }
    made
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_clients_one_makes_the_row_and_all_count() {
    let db = Db::new();
    db.tag("CREATE TABLE counters (id INT PRIMARY KEY, n INT)").await;
    let sessions = (0..16).map(|_| db.frontend.session(SessionOptions::default()));
    let clients: Vec<_> = sessions.map(|session| tokio::spawn(count(session, 5))).collect();
    let mut made = 0;
    for client in clients {
        made += client.await.unwrap();
    }
    assert_eq!(made, 1);
    assert_eq!(db.one("SELECT n FROM counters").await, "80");
}

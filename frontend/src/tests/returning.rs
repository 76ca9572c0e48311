//! RETURNING: what was written or removed, and that no two statements return one row.

use std::sync::Arc;

use futures::future::join_all;

use super::{Db, cells, collect};
use crate::{Session, SessionOptions};

#[tokio::test]
async fn statements_return_what_they_wrote() {
    let db = Db::new();
    db.tag(
        "CREATE TABLE t (k INT PRIMARY KEY, v INT DEFAULT 5) PARTITION BY HASH (k) PARTITIONS 3",
    )
    .await;
    assert_eq!(db.lines("INSERT INTO t (k) VALUES (1) RETURNING *").await, ["1|5"]);
    assert_eq!(db.lines("INSERT INTO t DEFAULT VALUES RETURNING v").await, ["5"]);
    assert_eq!(db.lines("UPDATE t SET v = v + 1 WHERE k = 1 RETURNING t.v * 2").await, ["12"]);
    assert_eq!(db.lines("DELETE FROM t AS x WHERE x.k = 1 RETURNING x.k, v").await, ["1|6"]);
    assert_eq!(db.lines("SELECT k, v FROM t").await, ["NULL|5"]);
    // A key that is not free: nothing is returned.
    db.tag("INSERT INTO t VALUES (1, 1), (2, 2)").await;
    assert_eq!(db.error("UPDATE t SET k = 2 WHERE k = 1 RETURNING k").await.sqlstate, "23505");
    // An error of RETURNING is found before a prepared statement writes.
    assert_eq!(db.error("PREPARE p AS DELETE FROM t RETURNING nothing").await.sqlstate, "42703");
    db.tag("PREPARE q AS UPDATE t SET v = $1 WHERE k = $2 RETURNING k, v").await;
    assert_eq!(db.lines("EXECUTE q (9, 2)").await, ["2|9"]);
    // Parameters that only RETURNING has.
    db.tag("PREPARE r AS INSERT INTO t VALUES ($1, $2) RETURNING k + $3, v").await;
    assert_eq!(db.lines("EXECUTE r (7, 7, 100)").await, ["107|7"]);
    db.tag("PREPARE s AS DELETE FROM t WHERE k = $1 RETURNING v * $2").await;
    assert_eq!(db.lines("EXECUTE s (7, 2)").await, ["14"]);
}

#[tokio::test]
async fn the_hidden_key_is_not_returned() {
    let db = Db::new();
    db.tag("CREATE TABLE t (v INT)").await;
    assert_eq!(db.lines("INSERT INTO t VALUES (1), (1) RETURNING *").await, ["1", "1"]);
    assert_eq!(db.lines("UPDATE t SET v = 2 RETURNING *").await, ["2", "2"]);
    assert_eq!(db.error("DELETE FROM t RETURNING __row").await.sqlstate, "42703");
    assert_eq!(db.lines("DELETE FROM t RETURNING *").await, ["2", "2"]);
}

/// Takes items from a queue until it is empty.
async fn take_all(session: Arc<Session>) -> Vec<String> {
    let mut taken = Vec::new();
    loop {
        let sql = "DELETE FROM queue WHERE id = (SELECT min(id) FROM queue) RETURNING id";
        let output = session.execute(sql).await.unwrap().pop().unwrap();
        let rows = cells(&collect(output).await.unwrap());
        taken.extend(rows.into_iter().flatten());
        let left = session.execute("SELECT count(*) FROM queue").await.unwrap().pop().unwrap();
        if cells(&collect(left).await.unwrap()) == [["0"]] {
            return taken;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_item_of_a_queue_is_taken_by_one_client() {
    let db = Db::new();
    db.tag("CREATE TABLE queue (id INT PRIMARY KEY)").await;
    let values: Vec<String> = (0..40).map(|id| format!("({id})")).collect();
    db.tag(&format!("INSERT INTO queue VALUES {}", values.join(", "))).await;
    let sessions = (0..8).map(|_| db.frontend.session(SessionOptions::default()));
    let mut taken: Vec<u32> = join_all(sessions.map(take_all))
        .await
        .into_iter()
        .flatten()
        .map(|id| id.parse().unwrap())
        .collect();
    taken.sort_unstable();
    assert_eq!(taken, (0..40).collect::<Vec<_>>());
}

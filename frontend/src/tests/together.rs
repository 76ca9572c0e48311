//! Small writes that are sent together while others are in flight.

use std::sync::Arc;
use std::time::Duration;

use partita_proto::Error;
use partita_proto::range::Bound;
use partita_proto::value::Value;
use tokio::task::JoinHandle;

use super::Db;
use crate::{SessionOptions, SqlError};

/// Number of parts that are sent before the others wait.
const FIRST: usize = 2;

type Running = Vec<JoinHandle<Result<(), SqlError>>>;

/// Starts sessions that each insert a row into a table whose partition does not answer; returns when the first
/// requests are in flight and all other rows wait.
async fn waiting(db: &Db, users: std::ops::Range<u64>) -> Running {
    let count = users.clone().count();
    let mut running = Vec::new();
    for user in users {
        let session = db.frontend.session(SessionOptions::default());
        let sql = format!("INSERT INTO t VALUES ({user}, {user})");
        running.push(tokio::spawn(async move { session.execute(&sql).await.map(drop) }));
    }
    while db.frontend.router().waiting() < count - FIRST {
        tokio::task::yield_now().await;
    }
    running
}

async fn table() -> Db {
    let db = Db::new();
    db.tag("CREATE TABLE t (id BIGINT, v BIGINT, PRIMARY KEY (id)) WITH ('append_mode' = 'true')")
        .await;
    db
}

async fn answers(running: Running) -> Vec<Result<(), SqlError>> {
    let mut answers = Vec::new();
    for one in running {
        answers.push(one.await.unwrap());
    }
    answers
}

async fn ids(db: &Db) -> Vec<u64> {
    let rows = db.rows("SELECT id FROM t ORDER BY id").await;
    rows.iter().map(|row| row[0].parse().unwrap()).collect()
}

#[tokio::test]
async fn what_waits_goes_as_one_request_and_each_is_answered() {
    let db = table().await;
    let pause = Arc::clone(&db.fake.writes).write_owned().await;
    let running = waiting(&db, 0..50).await;
    drop(pause);
    assert!(answers(running).await.iter().all(Result::is_ok));
    assert_eq!(ids(&db).await, (0..50).collect::<Vec<_>>());
    let requests: Vec<usize> = db.fake.requests.lock().iter().map(|(_, _, rows)| *rows).collect();
    assert_eq!(requests, [1, 1, 48]);
    assert_eq!(db.frontend.metrics().joined_writes.get(), 48);
    // A single part is sent alone, and no part is left waiting.
    db.tag("INSERT INTO t VALUES (50, 50)").await;
    assert_eq!(db.frontend.router().waiting(), 0);
    assert_eq!(db.fake.requests.lock().len(), 4);
}

#[tokio::test]
async fn of_rows_of_one_key_that_wait_the_last_one_is_sent_and_each_writer_is_answered() {
    let db = Db::new();
    db.tag("CREATE TABLE t (id BIGINT, v BIGINT, PRIMARY KEY (id))").await;
    let pause = Arc::clone(&db.fake.writes).write_owned().await;
    let mut running = Vec::new();
    for number in 0..50 {
        let session = db.frontend.session(SessionOptions::default());
        let sql = format!("INSERT INTO t VALUES ({}, {number})", number % 2);
        running.push(tokio::spawn(async move { session.execute(&sql).await.map(drop) }));
    }
    while db.frontend.router().waiting() < 50 - FIRST {
        tokio::task::yield_now().await;
    }
    drop(pause);
    assert!(answers(running).await.iter().all(Result::is_ok));
    let requests: Vec<usize> = db.fake.requests.lock().iter().map(|(_, _, rows)| *rows).collect();
    assert_eq!(requests, [1, 1, 2], "two keys");
    let metrics = db.frontend.metrics();
    assert_eq!((metrics.joined_writes.get(), metrics.replaced_rows.get()), (48, 46));
}

#[tokio::test]
async fn what_is_refused_together_is_sent_one_by_one() {
    let db = table().await;
    let pause = Arc::clone(&db.fake.writes).write_owned().await;
    let running = waiting(&db, 0..10).await;
    let refused = || Error::InvalidInput("not these rows".to_owned());
    // Those that went first, those that go together, and one of these.
    db.fake.write_errors.lock().extend((0..4).map(|_| refused()));
    drop(pause);
    let answers = answers(running).await;
    let failed = answers.iter().filter_map(|answer| answer.as_ref().err());
    let failed: Vec<&SqlError> = failed.collect();
    assert_eq!(failed.len(), 3, "{failed:?}");
    assert!(failed.iter().all(|error| error.message.contains("not these rows")));
    let stored = ids(&db).await;
    let acknowledged = (0..10).zip(&answers).filter(|(_, answer)| answer.is_ok());
    assert_eq!(stored, acknowledged.map(|(id, _)| id).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_answer_that_is_lost_is_asked_for_again_under_the_same_identity() {
    let db = table().await;
    let pause = Arc::clone(&db.fake.writes).write_owned().await;
    let running = waiting(&db, 0..10).await;
    let lost = || Error::Unavailable("the answer was lost".to_owned());
    db.fake.late_write_errors.lock().extend((0..3).map(|_| lost()));
    drop(pause);
    assert!(answers(running).await.iter().all(Result::is_ok));
    assert_eq!(ids(&db).await, (0..10).collect::<Vec<_>>());
}

#[tokio::test]
async fn who_goes_away_takes_no_rows_of_others_with_him() {
    let db = table().await;
    let pause = Arc::clone(&db.fake.writes).write_owned().await;
    let mut running = waiting(&db, 0..10).await;
    // One that is on its way, and one that waits.
    running.remove(9).abort();
    running.remove(0).abort();
    while db.fake.requests.lock().is_empty() && db.frontend.router().waiting() > 7 {
        tokio::task::yield_now().await;
    }
    drop(pause);
    assert!(answers(running).await.iter().all(Result::is_ok));
    let stored = ids(&db).await;
    assert!((1..9).all(|id| stored.contains(&id)), "{stored:?}");
    assert!(!stored.contains(&9), "it was never sent: {stored:?}");
    db.tag("INSERT INTO t VALUES (50, 50)").await;
}

#[tokio::test]
async fn those_who_go_away_while_nobody_is_answered_do_not_pile_up() {
    let db = table().await;
    let pause = Arc::clone(&db.fake.writes).write_owned().await;
    // Two requests are in flight, and stay there.
    let first = waiting(&db, 0..FIRST as u64).await;
    while db.frontend.router().waiting() == 0 {
        let session = db.frontend.session(SessionOptions::default());
        let next =
            tokio::spawn(async move { session.execute("INSERT INTO t VALUES (2, 2)").await });
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        next.abort();
    }
    for _ in 0..400 {
        let session = db.frontend.session(SessionOptions::default());
        let next =
            tokio::spawn(async move { session.execute("INSERT INTO t VALUES (3, 3)").await });
        let before = db.frontend.router().waiting();
        while db.frontend.router().waiting() == before {
            tokio::task::yield_now().await;
        }
        next.abort();
        assert!(db.frontend.router().waiting() <= 64);
    }
    drop(pause);
    assert!(answers(first).await.iter().all(Result::is_ok));
    db.tag("INSERT INTO t VALUES (1000, 0)").await;
    assert_eq!(db.frontend.router().waiting(), 0);
}

#[tokio::test]
async fn what_went_together_is_cut_where_its_partition_was_cut_meanwhile() {
    let db = table().await;
    let pause = Arc::clone(&db.fake.writes).write_owned().await;
    let running = waiting(&db, 0..20).await;
    db.fake.split("public", "t", 0, Bound { placement: None, key: vec![Value::Int(7)] }).unwrap();
    drop(pause);
    assert!(answers(running).await.iter().all(Result::is_ok));
    assert_eq!(ids(&db).await, (0..20).collect::<Vec<_>>());
    assert_eq!(db.fake.rows("public", "t"), [7, 13]);
}

/// A table of four partitions, to each of which one row is in flight and held up; two more rows wait for the first.
async fn busy() -> (Db, tokio::sync::OwnedRwLockWriteGuard<()>, Running) {
    let db = Db::new();
    let sql = "CREATE TABLE t (id BIGINT, PRIMARY KEY (id)) PARTITION ON COLUMNS (id) \
               (id < 10, id >= 10 AND id < 20, id >= 20 AND id < 30, id >= 30)";
    db.tag(sql).await;
    let pause = Arc::clone(&db.fake.writes).write_owned().await;
    let mut running = Vec::new();
    for id in [0, 10, 20, 30, 1, 2] {
        let session = db.frontend.session(SessionOptions::default());
        let sql = format!("INSERT INTO t VALUES ({id})");
        running.push(tokio::spawn(async move { session.execute(&sql).await.map(drop) }));
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(db.frontend.router().waiting(), 2, "one request for a partition, not two");
    // The requests are in flight for this time; other parts have a quarter of it to join.
    tokio::time::sleep(Duration::from_millis(40)).await;
    (db, pause, running)
}

fn rows_of_requests(db: &Db) -> Vec<usize> {
    db.fake.requests.lock().iter().map(|(_, _, rows)| *rows).collect()
}

#[tokio::test]
async fn who_was_answered_and_writes_again_goes_with_those_who_waited() {
    let (db, pause, mut running) = busy().await;
    let rest = running.split_off(1);
    drop(pause);
    assert!(answers(running).await.iter().all(Result::is_ok));
    db.tag("INSERT INTO t VALUES (3)").await;
    assert!(answers(rest).await.iter().all(Result::is_ok));
    assert_eq!(rows_of_requests(&db), [1, 1, 1, 1, 3]);
    assert_eq!(ids(&db).await, [0, 1, 2, 3, 10, 20, 30]);
}

#[tokio::test]
async fn who_was_answered_and_does_not_write_again_holds_nobody_up() {
    let (db, pause, running) = busy().await;
    drop(pause);
    assert!(answers(running).await.iter().all(Result::is_ok));
    assert_eq!(rows_of_requests(&db), [1, 1, 1, 1, 2]);
    assert_eq!(db.frontend.router().waiting(), 0);
    db.tag("INSERT INTO t VALUES (4)").await;
    assert_eq!(rows_of_requests(&db), [1, 1, 1, 1, 2, 1], "one that comes alone goes alone");
}

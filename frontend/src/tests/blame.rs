//! Who makes a partition hot: samples on their way to meta, judged by meta's book.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use partita_load::{BlameBook, Cause, PartitionId};
use partita_proto::key::KeyCodec;
use partita_proto::range::Bound;
use partita_proto::value::Value;

use super::Db;
use crate::SessionOptions;

/// Planted causes, half of them reads.
const CASES: usize = 20;
/// Statements of the planted cause, and of each client beside it.
const PLANTED: usize = 120;
const BESIDE: usize = 10;

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A client of the same cluster by its names.
fn client(db: &Db, user: &str, application: &str) -> Db {
    let options = SessionOptions {
        user: user.to_owned(),
        application: application.to_owned(),
        ..SessionOptions::default()
    };
    let session = db.frontend.session(options);
    Db { fake: Arc::clone(&db.fake), frontend: Arc::clone(&db.frontend), session }
}

/// Meta's book of all that the frontend has reported.
async fn book(db: &Db) -> BlameBook {
    db.frontend.blame().tell_once(now_s() + 1).await;
    let mut book = BlameBook::default();
    for report in db.fake.causes.lock().drain(..) {
        book.hear(report.source, report.taken, now_s());
    }
    book
}

/// Causes of the only partition of a table.
async fn causes(db: &Db, read: bool) -> Vec<(Cause, f64)> {
    let table = db.frontend.catalog().table("public", "t").cloned().unwrap();
    let partition = table.partitions.routes()[0].partition;
    book(db).await.causes(PartitionId(partition.0), read, None, now_s())
}

#[tokio::test]
async fn planted_causes_are_named_with_statement_user_and_application() {
    let mut named = 0;
    for case in 0..CASES {
        let db = Db::new();
        db.tag("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT, w BIGINT)").await;
        let read = case % 2 == 1;
        let (user, application) = (format!("user_{case}"), format!("application_{case}"));
        let planted = client(&db, &user, &application);
        let beside = [client(&db, "other", ""), client(&db, "another", "psql")];
        for number in 0..PLANTED {
            let text = match read {
                true => format!("SELECT w FROM t WHERE k = {number}"),
                false => format!("INSERT INTO t (k, w) VALUES ({number}, {case})"),
            };
            drop(planted.rows(&text).await);
            if number % (PLANTED / BESIDE) == 0 {
                for client in &beside {
                    client.tag(&format!("INSERT INTO t VALUES ({number}, 1, 2)")).await;
                    drop(client.rows("SELECT v FROM t WHERE k = 3").await);
                }
            }
        }
        let found = causes(&db, read).await;
        let is_planted = |cause: &Cause| {
            let (kind, text) = match read {
                true => ("SELECT", "SELECTwFROMtWHEREk=?"),
                false => ("INSERT", "INSERTINTOt(k,w)VALUES(?)"),
            };
            (cause.kind.as_str(), cause.statement.replace(' ', "").as_str()) == (kind, text)
                && (cause.user.as_str(), cause.application.as_str())
                    == (user.as_str(), application.as_str())
        };
        match found.first() {
            Some((cause, share)) if is_planted(cause) && *share > 0.7 => named += 1,
            _ => println!("case {case}: {found:?}"),
        }
    }
    assert!(named >= 19, "{named} of {CASES}");
}

#[tokio::test]
async fn the_cause_of_a_hot_key_is_that_of_its_rows_alone() {
    let db = Db::new();
    db.tag("CREATE TABLE t (k BIGINT, n BIGINT, PRIMARY KEY (k, n))").await;
    let (loader, repeater) = (client(&db, "loader", ""), client(&db, "repeater", ""));
    for number in 0..50 {
        loader.tag(&format!("INSERT INTO t VALUES ({}, {number})", 1_000 + number)).await;
        repeater.tag(&format!("INSERT INTO t VALUES (7, {number})")).await;
    }
    repeater.tag("DELETE FROM t WHERE k = 7 AND n < 10").await;
    let table = db.frontend.catalog().table("public", "t").cloned().unwrap();
    let codec = KeyCodec::new(&table.schema, &table.placement).unwrap();
    let prefix = codec.encode_bound(&Bound { placement: None, key: vec![Value::Int(7)] }).unwrap();
    let partition = PartitionId(table.partitions.routes()[0].partition.0);
    let book = book(&db).await;
    let found = book.causes(partition, false, Some(&prefix), now_s());
    let kinds: Vec<_> = found.iter().map(|(cause, _)| (&*cause.user, &*cause.kind)).collect();
    assert_eq!(kinds, [("repeater", "INSERT"), ("repeater", "DELETE")]);
    let all = book.causes(partition, false, None, now_s());
    assert!(all.iter().any(|(cause, _)| cause.user == "loader"), "{all:?}");
}

#[tokio::test]
async fn nothing_is_sent_when_nothing_runs_and_rows_without_statements_have_a_cause() {
    let db = Db::new();
    db.tag("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)").await;
    db.frontend.blame().tell_once(now_s()).await;
    assert!(db.fake.causes.lock().is_empty());
    let table = db.frontend.catalog().table("public", "t").cloned().unwrap();
    let rows = db.batches("SELECT v AS k FROM (VALUES (1), (2)) AS r (v)").await.remove(0);
    for _ in 0..20 {
        db.frontend.ingest(&db.permit(), &table, rows.clone()).await.unwrap();
    }
    let found = causes(&db, false).await;
    let [(cause, share)] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((cause.kind.as_str(), cause.statement.as_str()), ("TASK", ""));
    assert_eq!((cause.user.as_str(), *share), ("partita", 1.0));
}

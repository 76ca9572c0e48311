//! Runs the statements that `sys.hot_partitions` and EXPLAIN HOTSPOT print, beside concurrent writers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use partita_load::Class;
use tokio_util::sync::CancellationToken;

use super::Db;
use super::load::{hot, key};
use crate::{FrontendOptions, SessionOptions};

/// Kind of advice for a class.
#[derive(Clone, Copy, PartialEq)]
enum Advised {
    /// A cut of the partition.
    Cut,
    /// Another placement of the table.
    Placement,
    /// Words, without a statement.
    Words,
}

/// Classes of verdicts.
const CLASSES: [(Class, Advised); 11] = [
    (Class::StaticRange, Advised::Cut),
    (Class::MultiTail, Advised::Cut),
    (Class::HotKey, Advised::Placement),
    (Class::MovingRight, Advised::Placement),
    (Class::MovingLeft, Advised::Placement),
    (Class::MovingWithin, Advised::Placement),
    (Class::Rotating, Advised::Placement),
    (Class::Unsplittable, Advised::Placement),
    (Class::Sweep, Advised::Words),
    (Class::ScanBound, Advised::Words),
    (Class::ReadHot, Advised::Words),
];
/// Options for rows with the same key.
const MODES: [&str; 3] =
    ["'merge_mode' = 'last_row'", "'merge_mode' = 'last_non_null'", "'append_mode' = 'true'"];
const WRITERS: i64 = 8;
/// Time for which writers write before and after the statements.
const BESIDE: Duration = Duration::from_millis(120);

/// A table with a hot partition of this class.
async fn judged(class: Class, mode: &str) -> Db {
    let db = hot(FrontendOptions::default()).await;
    db.tag(&format!("ALTER TABLE events SET ({mode})")).await;
    if let Some(verdict) = &mut db.fake.load.lock().partitions[1].verdict {
        verdict.class = class;
        // Without a key, the middle of the rows is cut.
        verdict.cut = (class == Class::StaticRange).then(|| (key(1_100, 3), 0.5));
    }
    db
}

/// Writers that insert one row a statement until they are stopped; returns the acknowledged keys.
fn writers(db: &Db, stop: &Arc<AtomicBool>) -> tokio::task::JoinSet<Vec<i64>> {
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let session = db.frontend.session(SessionOptions::default());
        let stop = Arc::clone(stop);
        tasks.spawn(async move {
            let mut acknowledged = Vec::new();
            // The second partition begins at 1,000.
            let mut key = 900 + writer;
            while !stop.load(Ordering::Relaxed) {
                let sql = format!("INSERT INTO events VALUES ({key}, {}, 0.5)", key % 7);
                if session.execute(&sql).await.is_ok() {
                    acknowledged.push(key);
                }
                key += WRITERS;
                tokio::task::yield_now().await;
            }
            acknowledged
        });
    }
    tasks
}

/// Keys of rows, in order.
async fn keys(db: &Db, rows: &str) -> Vec<i64> {
    let sql = format!("SELECT CAST(ts AS BIGINT) FROM ({rows}) ORDER BY 1");
    db.lines(&sql).await.iter().map(|line| line.parse().unwrap()).collect()
}

/// Runs printed statements beside writers, which are not stopped: each acknowledged row is there once.
async fn follow(db: &Db, printed: &str, case: &str) {
    for unsafe_words in ["Stop all writers", "DROP ", "RENAME", "INSERT INTO", "TRUNCATE"] {
        assert!(!printed.contains(unsafe_words), "{case}: {printed}");
    }
    let stop = Arc::new(AtomicBool::new(false));
    let tasks = writers(db, &stop);
    let copying = CancellationToken::new();
    tokio::spawn(Arc::clone(&db.frontend).run_copies(copying.clone()));
    tokio::time::sleep(BESIDE).await;
    if let Err(error) = db.try_run(printed).await {
        panic!("{case}: {error:?}");
    }
    // A table that gets another key has it before the writers stop.
    let waiting = "SELECT count(*) FROM sys.rekeyings WHERE state <> 'retired'";
    for _ in 0..1_000 {
        if db.one(waiting).await == "0" {
            break;
        }
        tokio::time::sleep(BESIDE / 12).await;
    }
    assert_eq!(db.one(waiting).await, "0", "{case}");
    tokio::time::sleep(BESIDE).await;
    stop.store(true, Ordering::Relaxed);
    copying.cancel();
    let mut acknowledged: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    acknowledged.sort_unstable();
    assert!(acknowledged.len() > 8, "{case}: {} rows", acknowledged.len());
    let kept = keys(db, "SELECT ts FROM events").await;
    assert!(kept.is_sorted_by(|a, b| a < b), "{case}: a row is there twice");
    let lost: Vec<_> = acknowledged.iter().filter(|key| kept.binary_search(key).is_err()).collect();
    assert!(lost.is_empty(), "{case}: {lost:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_row_is_lost_while_what_is_advised_runs() {
    for ((class, advised), mode) in CLASSES.iter().flat_map(|of| MODES.map(|mode| (of, mode))) {
        let case = format!("{class}, {mode}");
        let db = judged(*class, mode).await;
        let advice = db.one("SELECT advice FROM sys.hot_partitions").await;
        let begins: &[&str] = match advised {
            Advised::Words => {
                assert_eq!(advice, "NULL", "{case}");
                continue;
            }
            Advised::Cut => &["ALTER TABLE events SPLIT PARTITION"],
            Advised::Placement => &[
                "ALTER TABLE events PARTITION BY HASH",
                "ALTER TABLE events SPLIT AT",
                "ALTER TABLE events PRIMARY KEY",
            ],
        };
        assert!(begins.iter().any(|begin| advice.starts_with(begin)), "{case}: {advice}");
        follow(&db, &advice, &case).await;
        if *advised == Advised::Cut {
            let partitions = db.frontend.catalog().table("public", "events").cloned().unwrap();
            assert_eq!(partitions.partitions.routes().len(), 3, "{case}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_row_is_lost_while_a_design_that_is_printed_is_made() {
    let mut cases = 0;
    for ((class, _), mode) in CLASSES.iter().flat_map(|of| MODES.map(|mode| (of, mode))) {
        let printed = |rows: Vec<Vec<String>>| -> Vec<String> {
            let ddl = rows.into_iter().filter_map(|row| row.into_iter().nth(7));
            ddl.filter(|ddl| ddl != "NULL").collect()
        };
        let designs = printed(judged(*class, mode).await.rows("EXPLAIN HOTSPOT events").await);
        assert!(!designs.is_empty(), "{class}, {mode}: {designs:?}");
        // The designs do not depend on the class: each class has the next of them made.
        let ddl = &designs[(cases / MODES.len()) % designs.len()];
        let db = judged(*class, mode).await;
        follow(&db, ddl, &format!("{class}, {mode}, {ddl}")).await;
        cases += 1;
    }
    assert_eq!(cases, CLASSES.len() * MODES.len());
}

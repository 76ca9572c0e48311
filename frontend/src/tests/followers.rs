//! Reads at followers: who is asked, what the requests say, and what is shown of it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use partita_proto::Error;
use partita_proto::service::ReadFrom;

use super::Db;

const COUNT: &str = "SELECT count(*) FROM t";

/// A table of one partition with a replica on each of three nodes, and three rows.
async fn replicated() -> Db {
    let db = Db::new();
    db.tag("CREATE TABLE t (k BIGINT, v BIGINT, ts TIMESTAMP(3) TIME INDEX, PRIMARY KEY (k))")
        .await;
    db.fake.replicate("public", "t").unwrap();
    db.tag("INSERT INTO t VALUES (1, 1, 1000), (2, 2, 2000), (3, 3, 3000)").await;
    db
}

/// Scans that leaders and followers have answered, once there are `total`: they are counted when their streams are
/// dropped, which may be a moment after the last row.
async fn answered(db: &Db, total: u64) -> (u64, u64) {
    let metrics = db.frontend.metrics();
    for _ in 0..2_000 {
        let counts = (metrics.scans_by_leaders.get(), metrics.scans_by_followers.get());
        if counts.0 + counts.1 == total {
            return counts;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("there are never {total} scans: {metrics:?}");
}

#[tokio::test]
async fn followers_are_asked_when_nodes_report_many_reads_and_that_is_shown() {
    let db = replicated().await;
    for _ in 0..20 {
        assert_eq!(db.one(COUNT).await, "3");
    }
    assert_eq!(answered(&db, 20).await, (20, 0));
    db.fake.read_millicores.store(600, Ordering::Relaxed);
    for _ in 0..100 {
        assert_eq!(db.one(COUNT).await, "3");
    }
    let (by_leaders, by_followers) = answered(&db, 120).await;
    assert!(by_followers > 10, "{by_leaders} and {by_followers}");
    let logged = "SELECT sum(partitions_by_followers) FROM sys.query_log WHERE text LIKE '%FROM t'";
    assert_eq!(db.one(logged).await, by_followers.to_string());
    db.tag("SET follower_reads = off").await;
    for _ in 0..40 {
        assert_eq!(db.one(COUNT).await, "3");
    }
    assert_eq!(answered(&db, 160).await, (by_leaders + 40, by_followers));
    db.tag("RESET follower_reads").await;
    // Of some attempts, one is answered by a follower.
    let mut analyzed = String::new();
    for _ in 0..50 {
        analyzed = db.explain(&format!("ANALYZE {COUNT}")).await;
        if analyzed.contains("partitions_by_followers=1") {
            break;
        }
    }
    assert!(analyzed.contains("partitions_by_followers=1"), "{analyzed}");
}

#[tokio::test]
async fn the_leader_is_asked_when_a_follower_fails() {
    let db = replicated().await;
    db.fake.read_millicores.store(600, Ordering::Relaxed);
    for number in 0..40 {
        if number % 4 == 3 {
            db.fake.scan_errors.lock().push_back(Error::Unavailable("lags".to_owned()));
        }
        assert_eq!(db.one(COUNT).await, "3");
    }
    assert!(db.frontend.metrics().scan_retries.get() >= 10);
}

#[tokio::test]
async fn queries_of_a_session_with_a_bound_say_it_and_statements_that_write_do_not() {
    let db = replicated().await;
    db.tag("CREATE TABLE u (k BIGINT, v BIGINT, ts TIMESTAMP(3) TIME INDEX, PRIMARY KEY (k))")
        .await;
    let requests = |db: &Db| std::mem::take(&mut *db.fake.read_from.lock());
    db.one(COUNT).await;
    assert_eq!(requests(&db), [ReadFrom::Leader]);
    db.tag("SET read_consistency = bounded").await;
    db.tag("SET max_staleness = '1500ms'").await;
    assert_eq!(db.one(COUNT).await, "3");
    let [ReadFrom::AnyReplica { staleness_max, schema }] = requests(&db)[..] else { panic!() };
    let catalog = db.fake.catalog();
    let version = catalog.table("public", "t").unwrap().schema.version;
    assert_eq!((staleness_max, schema), (Duration::from_millis(1500), version));
    assert!(db.explain(COUNT).await.contains("max_staleness=1.5s"));
    for statement in [
        "INSERT INTO u SELECT * FROM t",
        "INSERT INTO t SELECT k + 10, v, ts FROM t",
        "DELETE FROM t WHERE v = 2",
        "UPDATE t SET v = v + 1 WHERE k = 1",
        "ALTER TABLE t ADD CHECK (v > 0)",
    ] {
        db.tag(statement).await;
        let requests = requests(&db);
        let is_linearizable = |read_from: &ReadFrom| *read_from == ReadFrom::Leader;
        assert!(!requests.is_empty() && requests.iter().all(is_linearizable), "{statement}");
    }
    db.tag("RESET read_consistency").await;
    assert!(!db.explain(COUNT).await.contains("max_staleness"));
    db.one(COUNT).await;
    assert_eq!(requests(&db), [ReadFrom::Leader]);
}

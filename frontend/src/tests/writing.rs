//! Writes: routing, completion, retries, deletes.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, StringArray};
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;
use partita_proto::Error;
use partita_proto::id::{NodeId, PartitionId};
use partita_proto::range::Bound;
use partita_proto::value::Value;
use tokio_util::sync::CancellationToken;

use super::Db;
use crate::FrontendOptions;
use crate::ingest::plan::TablePlan;

const EVENTS: &str = "CREATE TABLE events (userid BIGINT UNSIGNED, ts TIMESTAMP(3) TIME INDEX, \
                      v DOUBLE, PRIMARY KEY (userid, ts))";

async fn events(clause: &str) -> Db {
    let db = Db::new();
    db.tag(&format!("{EVENTS} {clause}")).await;
    db
}

fn values(users: std::ops::Range<u64>) -> String {
    let rows: Vec<_> = users.map(|user| format!("({user}, {}, {user}.5)", user * 10)).collect();
    rows.join(", ")
}

#[tokio::test]
async fn each_node_is_contacted_once_before_rows_go_there() {
    let db = Db::new();
    let stop = CancellationToken::new();
    let meeting = tokio::spawn(Arc::clone(&db.frontend).meet_nodes(stop.clone()));
    let nodes: Vec<NodeId> = db.frontend.view().members().keys().copied().collect();
    while db.fake.statuses.lock().len() < nodes.len() {
        tokio::task::yield_now().await;
    }
    assert_eq!(*db.fake.statuses.lock(), nodes);
    stop.cancel();
    meeting.await.unwrap();
}

#[tokio::test]
async fn rows_go_to_the_partition_of_their_range() {
    let db = events("PARTITION BY RANGE (userid) SPLIT AT ((10), (20))").await;
    assert_eq!(
        db.tag(&format!("INSERT INTO events VALUES {}", values(5..27))).await,
        "INSERT 0 22"
    );
    assert_eq!(db.fake.rows("public", "events"), [5, 10, 7]);
    let entry = db.logged("INSERT");
    assert_eq!((entry.partitions_touched, entry.partitions_total, entry.rows), (3, 3, 22));
    assert!(!entry.fast_path);
    db.tag("INSERT INTO events VALUES (1, 1, 1)").await;
    assert!(db.logged("INSERT").fast_path);
    let metrics = db.frontend.metrics();
    assert_eq!(metrics.single_partition_writes.get(), 1);
    assert_eq!(metrics.multi_partition_writes.get(), 1);
    assert_eq!(metrics.rows_written.get(), 23);
}

#[tokio::test]
async fn rows_are_hashed_evenly_and_found_again() {
    let db = events("PARTITION BY HASH (userid) PARTITIONS 8").await;
    db.tag(&format!("INSERT INTO events VALUES {}", values(0..800))).await;
    let rows = db.fake.rows("public", "events");
    assert_eq!((rows.len(), rows.iter().sum::<usize>()), (8, 800));
    assert!(rows.iter().all(|rows| (60..140).contains(rows)), "{rows:?}");
    assert_eq!(db.one("SELECT count(*) FROM events").await, "800");
    assert_eq!(db.one("SELECT v FROM events WHERE userid = 77").await, "77.5");
    assert_eq!(db.logged("SELECT").partitions_touched, 1);
}

#[tokio::test]
async fn rows_go_by_rules_on_their_columns() {
    let db = Db::new();
    db.tag(
        "CREATE TABLE sensors (device_id INT, area STRING, ts TIMESTAMP TIME INDEX, v DOUBLE, \
         PRIMARY KEY (device_id, area)) PARTITION ON COLUMNS (device_id, area) ( \
         device_id < 100 AND area < 'South', device_id < 100 AND area >= 'South', \
         device_id >= 100 AND area <= 'East', device_id >= 100 AND area > 'East')",
    )
    .await;
    let mut rows = Vec::new();
    for device in [1, 2, 3, 101, 102, 103] {
        for area in if device < 100 { ["North", "South"] } else { ["East", "West"] } {
            rows.push(format!("({device}, '{area}', {device}, 1)"));
        }
    }
    db.tag(&format!("INSERT INTO sensors VALUES {}", rows.join(","))).await;
    assert_eq!(db.fake.rows("public", "sensors"), [3, 3, 3, 3]);
    db.rows("SELECT * FROM sensors WHERE device_id = 2").await;
    assert_eq!(db.logged("SELECT").partitions_touched, 2);
    db.rows("SELECT * FROM sensors WHERE device_id = 200 AND area = 'West'").await;
    assert_eq!(db.logged("SELECT").partitions_touched, 1);
}

#[tokio::test]
async fn the_same_key_twice_is_one_row_but_not_in_append_mode() {
    let db = events("").await;
    db.tag("INSERT INTO events VALUES (1, 10, 1), (1, 10, 2)").await;
    db.tag("INSERT INTO events VALUES (1, 10, 3)").await;
    assert_eq!(db.rows("SELECT v FROM events").await, [["3.0"]]);
    db.tag("CREATE TABLE logs (ts TIMESTAMP TIME INDEX, line STRING) WITH ('append_mode'='true')")
        .await;
    db.tag("INSERT INTO logs VALUES (1, 'a'), (1, 'a')").await;
    assert_eq!(db.one("SELECT count(*) FROM logs").await, "2");
    let error = db.error("DELETE FROM logs").await;
    assert_eq!(error.sqlstate, "0A000");
    assert_eq!(error.message, "DELETE is not supported on append-mode table \"logs\"");
}

#[tokio::test]
async fn defaults_and_generated_columns_are_filled_in() {
    let db = Db::new();
    db.tag(
        "CREATE TABLE t (h BIGINT UNSIGNED GENERATED ALWAYS AS (hash64(userid)) STORED, \
         userid BIGINT, ts TIMESTAMP(9) DEFAULT CURRENT_TIMESTAMP TIME INDEX, \
         note STRING DEFAULT 'none', n INT NOT NULL DEFAULT 8, PRIMARY KEY (h, userid, ts)) \
         PARTITION BY RANGE (h) SPLIT AT ((2305843009213693952), (4611686018427387904), \
         (6917529027641081856), (9223372036854775808), (11529215046068469760), \
         (13835058055282163712), (16140901064495857664))",
    )
    .await;
    let users: Vec<_> = (0..200).map(|user| format!("({user})")).collect();
    db.tag(&format!("INSERT INTO t (userid) VALUES {}", users.join(","))).await;
    let rows = db.fake.rows("public", "t");
    assert!(rows.len() == 8 && rows.iter().all(|rows| *rows > 5), "{rows:?}");
    let row = db
        .rows(
            "SELECT h = hash64(userid), note, n, ts > now() - INTERVAL '1 minute' \
                       FROM t WHERE userid = 5",
        )
        .await;
    assert_eq!(row, [["true", "none", "8", "true"]]);
    // No filter names h, and yet only one partition of eight is read.
    let entry = db.logged("SELECT");
    assert_eq!((entry.partitions_touched, entry.partitions_total), (1, 8));
    db.rows("SELECT * FROM t WHERE userid IN (1, 2, 3)").await;
    assert!(db.logged("SELECT").partitions_touched <= 3);
    let error = db.error("INSERT INTO t (h, userid) VALUES (1, 1)").await;
    assert_eq!(error.sqlstate, "428C9");
    assert_eq!(db.tag("DELETE FROM t WHERE userid < 100").await, "DELETE 100");
    assert_eq!(db.one("SELECT count(*) FROM t").await, "100");
}

#[tokio::test]
async fn null_where_none_is_taken_is_refused_before_anything_is_sent() {
    let db = events("").await;
    let error = db.error("INSERT INTO events VALUES (1, 1, 1), (2, NULL, 2)").await;
    assert_eq!(error.sqlstate, "23502");
    assert_eq!(
        error.message,
        "null value in column \"ts\" of relation \"events\" violates not-null constraint"
    );
    assert_eq!(db.error("INSERT INTO events (userid) VALUES (1)").await.sqlstate, "23502");
    assert!(db.fake.requests.lock().is_empty());
}

#[tokio::test]
async fn null_keys_are_rows_of_their_own() {
    let db = events("PARTITION BY RANGE (userid) SPLIT AT ((5))").await;
    db.tag("INSERT INTO events VALUES (NULL, 1, 1), (NULL, 1, 2), (3, 1, 3), (7, 1, 4)").await;
    assert_eq!(db.fake.rows("public", "events"), [2, 1]);
    assert_eq!(db.one("SELECT count(*) FROM events WHERE userid < 5").await, "1");
    assert_eq!(db.one("SELECT count(*) FROM events WHERE userid >= 5").await, "1");
    assert_eq!(db.one("SELECT v FROM events WHERE userid IS NULL").await, "2.0");
    assert_eq!(db.logged("SELECT").partitions_touched, 1);
}

#[tokio::test]
async fn columns_are_cast_and_what_does_not_fit_is_named() {
    let db = Db::new();
    db.tag("CREATE TABLE t (k INT PRIMARY KEY, small TINYINT, s STRING, ts TIMESTAMP(3))").await;
    let table = Arc::clone(db.frontend.catalog().table("public", "t").unwrap());
    let batch = |columns: Vec<(&str, ArrayRef)>| RecordBatch::try_from_iter(columns).unwrap();
    let rows = batch(vec![
        ("ts", Arc::new(StringArray::from(vec!["2024-01-02T03:04:05.678Z", "2024-01-02"]))),
        ("k", Arc::new(Int64Array::from(vec![1, 2]))),
        ("s", Arc::new(Int32Array::from(vec![Some(10), None]))),
    ]);
    assert_eq!(db.frontend.ingest(&db.permit(), &table, rows).await.unwrap(), 2);
    assert_eq!(
        db.lines("SELECT * FROM t ORDER BY k").await,
        ["1|NULL|10|2024-01-02T03:04:05.678", "2|NULL|NULL|2024-01-02T00:00:00"]
    );
    let key: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let wide: ArrayRef = Arc::new(Int64Array::from(vec![300]));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    let permit = db.permit();
    let fail =
        async |columns| db.frontend.ingest(&permit, &table, batch(columns)).await.unwrap_err();
    let error = fail(vec![("k", Arc::clone(&key)), ("small", wide)]).await;
    assert_eq!(error.sqlstate, "22003");
    assert!(error.message.starts_with("column \"small\""), "{}", error.message);
    let error = fail(vec![("k", Arc::clone(&key)), ("small", Arc::clone(&text))]).await;
    assert_eq!(error.sqlstate, "22P02");
    let error = fail(vec![("k", Arc::clone(&key)), ("ts", Arc::clone(&text))]).await;
    assert_eq!(error.sqlstate, "22007");
    let error = fail(vec![("k", Arc::clone(&key)), ("nope", Arc::clone(&text))]).await;
    assert_eq!(error.sqlstate, "42703");
    let flags: ArrayRef = Arc::new(arrow::array::BooleanArray::from(vec![true]));
    let error = fail(vec![("k", key), ("ts", flags)]).await;
    assert_eq!(error.sqlstate, "42804");
}

#[tokio::test]
async fn a_key_or_a_row_that_is_too_large_is_refused() {
    let db = Db::new();
    db.tag("CREATE TABLE t (k STRING PRIMARY KEY, v STRING)").await;
    let error = db.error(&format!("INSERT INTO t VALUES ('{}', 'v')", "x".repeat(70_000))).await;
    assert_eq!(error.sqlstate, "54000");
    assert!(error.message.contains("exceeds the limit of 65536 bytes"), "{}", error.message);
    let error = db.error(&format!("INSERT INTO t VALUES ('k', '{}')", "x".repeat(17 << 20))).await;
    assert!(error.message.contains("exceeds the limit of 16777216 bytes"), "{}", error.message);
    db.tag(&format!("INSERT INTO t VALUES ('{}', 'v')", "x".repeat(3000))).await;
    assert_eq!(db.frontend.metrics().long_keys.get(), 1);
    // Large rows are stored, and counted.
    let large = 9_000_000;
    db.tag(&format!("INSERT INTO t VALUES ('k', '{}'), ('l', 'v')", "x".repeat(large))).await;
    assert_eq!(db.frontend.metrics().large_rows.get(), 1);
    assert_eq!(db.one("SELECT length(v) FROM t WHERE k = 'k'").await, large.to_string());
}

#[tokio::test]
async fn a_write_that_is_sent_again_keeps_its_identity() {
    let db = Db::new();
    db.tag("CREATE TABLE logs (ts TIMESTAMP TIME INDEX, n INT) WITH ('append_mode'='true')").await;
    let partition = PartitionId(0);
    db.fake.write_errors.lock().extend([
        Error::Unavailable("starting".to_owned()),
        Error::NotLeader { partition, leader: Some(NodeId(2)) },
        Error::Overloaded("too much".to_owned()),
    ]);
    db.fake.late_write_errors.lock().push_back(Error::Timeout("lost answer".to_owned()));
    db.tag("INSERT INTO logs VALUES (1, 1), (1, 1)").await;
    assert_eq!(db.one("SELECT count(*) FROM logs").await, "2");
    let requests = db.fake.requests.lock().clone();
    assert!(requests.len() >= 5, "{requests:?}");
    assert!(requests.iter().all(|(_, id, _)| *id == requests[0].1));
    assert!(db.frontend.metrics().write_retries.get() >= 4);
}

#[tokio::test]
async fn rows_follow_a_partition_that_was_split() {
    let db = events("").await;
    db.tag(&format!("INSERT INTO events VALUES {}", values(0..10))).await;
    // The split comes while the write is on its way: it meets an epoch that it does not know.
    let table = Arc::clone(db.frontend.catalog().table("public", "events").unwrap());
    let at = Bound { placement: None, key: vec![Value::UInt(5)] };
    db.fake.write_errors.lock().push_back(Error::StaleRoute {
        partition: table.partitions.routes()[0].partition,
        requested: partita_proto::id::Epoch(1),
        current: partita_proto::id::Epoch(2),
    });
    let (fake, session) = (Arc::clone(&db.fake), Arc::clone(&db.session));
    let write = tokio::spawn(async move {
        session.execute(&format!("INSERT INTO events VALUES {}", values(0..20))).await.map(|_| ())
    });
    while fake.requests.lock().len() < 2 {
        tokio::task::yield_now().await;
    }
    fake.split("public", "events", 0, at).unwrap();
    write.await.unwrap().unwrap();
    assert_eq!(db.fake.rows("public", "events"), [5, 15]);
    let requests = db.fake.requests.lock().clone();
    let id = requests[1].1;
    let halves: std::collections::BTreeSet<_> =
        requests[1..].iter().map(|(_, other, _)| *other).filter(|other| *other != id).collect();
    assert_eq!(halves.len(), 2, "each half has an identity of its own");
    assert_eq!(db.one("SELECT count(*) FROM events").await, "20");
}

#[tokio::test]
async fn what_fails_in_one_partition_says_which() {
    let db = events("PARTITION BY RANGE (userid) SPLIT AT ((10))").await;
    db.fake.write_errors.lock().push_back(Error::Corrupted("page 7".to_owned()));
    let error = db.error(&format!("INSERT INTO events VALUES {}", values(5..15))).await;
    assert_eq!(error.sqlstate, "XX001");
    assert!(error.message.starts_with("the write took effect in only 1 of its 2 parts"));
    assert!(error.detail.unwrap().contains("partition "));
    assert_eq!(db.fake.rows("public", "events").iter().sum::<usize>(), 5);
}

#[tokio::test]
async fn an_error_says_if_the_write_may_have_taken_effect() {
    const UNKNOWN: &str = "the write may or may not have taken effect";
    let db = events("").await;
    let insert = "INSERT INTO events VALUES (1, 1, 1)";
    db.fake.write_errors.lock().push_back(Error::InvalidInput("a broken row".to_owned()));
    assert_eq!(db.error(insert).await.hint, None);
    assert_eq!(db.fake.rows("public", "events"), [0]);
    // A node may fail after it has stored the rows.
    for error in [Error::Internal("no reply".to_owned()), Error::Storage("a sync".to_owned())] {
        db.fake.late_write_errors.lock().push_back(error);
        assert_eq!(db.error(insert).await.hint.as_deref(), Some(UNKNOWN));
    }
    assert_eq!(db.fake.rows("public", "events"), [1]);
    // The answer to the first attempt is lost, and the next one is refused.
    db.fake.late_write_errors.lock().push_back(Error::Timeout("no answer".to_owned()));
    let count = db.fake.requests.lock().len();
    let refuse = async {
        while db.fake.requests.lock().len() == count {
            tokio::task::yield_now().await;
        }
        let refusal = Error::LimitReached { message: "full".to_owned(), hint: "Wait.".to_owned() };
        db.fake.write_errors.lock().push_back(refusal);
    };
    let (error, ()) = tokio::join!(db.error(insert), refuse);
    let hint = error.hint.unwrap();
    assert_eq!(hint, format!("Wait; {UNKNOWN}"));
}

#[tokio::test]
async fn a_write_gives_up_in_time_and_says_why() {
    let options = FrontendOptions {
        write_timeout: std::time::Duration::from_millis(50),
        ..FrontendOptions::default()
    };
    let db = Db::with(options);
    db.tag(EVENTS).await;
    let errors = std::iter::repeat_n(Error::Overloaded("memtables are full".to_owned()), 1000);
    db.fake.write_errors.lock().extend(errors);
    let error = db.error("INSERT INTO events VALUES (1, 1, 1)").await;
    assert_eq!((error.sqlstate.as_str(), error.retryable), ("53400", true));
    assert!(error.message.ends_with("memtables are full"), "{}", error.message);
    db.fake.write_errors.lock().clear();
    // A full disk is not waited for.
    db.fake.write_errors.lock().push_back(Error::DiskFull("/data".to_owned()));
    assert_eq!(db.error("INSERT INTO events VALUES (1, 1, 1)").await.sqlstate, "53100");
}

#[tokio::test]
async fn a_partition_without_its_majority_is_told_as_such() {
    let options = FrontendOptions {
        write_timeout: std::time::Duration::from_millis(50),
        ..FrontendOptions::default()
    };
    let db = Db::with(options);
    db.tag(EVENTS).await;
    let nobody = Error::NotLeader { partition: PartitionId(1), leader: None };
    db.fake.write_errors.lock().extend(std::iter::repeat_n(nobody.clone(), 1000));
    let error = db.error("INSERT INTO events VALUES (1, 1, 1)").await;
    assert!(error.message.ends_with("is not the leader"), "{}", error.message);
    db.fake.silence();
    db.fake.write_errors.lock().extend(std::iter::repeat_n(nobody, 1000));
    let error = db.error("INSERT INTO events VALUES (1, 1, 1)").await;
    assert_eq!((error.sqlstate.as_str(), error.retryable), ("57P03", true));
    assert!(error.message.contains("too few replicas of table \"events\""), "{}", error.message);
    assert!(error.message.contains("are available: 0 of "), "{}", error.message);
}

#[tokio::test]
async fn insert_select_reads_the_table_as_it_was() {
    let db = events("PARTITION BY RANGE (userid) SPLIT AT ((100), (200))").await;
    db.tag(&format!("INSERT INTO events VALUES {}", values(0..50))).await;
    let tag = db.tag("INSERT INTO events SELECT userid + 100, ts, v FROM events").await;
    assert_eq!(tag, "INSERT 0 50");
    assert_eq!(db.fake.rows("public", "events"), [50, 50, 0]);
    // Three partitions read, one of three written.
    let entry = db.logged("INSERT");
    assert_eq!((entry.partitions_touched, entry.partitions_total), (4, 6));
    db.tag("CREATE TABLE copy (u BIGINT PRIMARY KEY, s STRING DEFAULT 'd')").await;
    assert_eq!(
        db.tag("INSERT INTO copy (u) SELECT userid FROM events WHERE userid < 5").await,
        "INSERT 0 5"
    );
    assert_eq!(db.rows("SELECT s, count(*) FROM copy GROUP BY s").await, [["d", "5"]]);
    assert_eq!(
        db.tag("INSERT INTO copy SELECT userid FROM events WHERE userid = 7").await,
        "INSERT 0 1"
    );
    let error = db.error("INSERT INTO copy (u, s) SELECT userid FROM events").await;
    assert_eq!(error.sqlstate, "42601");
    assert_eq!(db.tag("INSERT INTO copy VALUES (1 + 1000, upper('x'))").await, "INSERT 0 1");
    assert_eq!(db.one("SELECT s FROM copy WHERE u = 1001").await, "X");
    assert_eq!(db.tag("INSERT INTO copy SELECT 1, 'a' WHERE false").await, "INSERT 0 0");
}

#[tokio::test]
async fn delete_takes_any_predicate_and_counts() {
    let db = events("PARTITION BY HASH (userid) PARTITIONS 4").await;
    db.tag(&format!("INSERT INTO events VALUES {}", values(0..100))).await;
    assert_eq!(db.tag("DELETE FROM events WHERE userid = 3").await, "DELETE 1");
    assert_eq!(db.tag("DELETE FROM events e WHERE e.v > 89.9").await, "DELETE 10");
    assert_eq!(
        db.tag("DELETE FROM events WHERE userid IN (SELECT userid + 1 FROM events WHERE v < 5)")
            .await,
        "DELETE 3"
    );
    assert_eq!(db.one("SELECT count(*) FROM events").await, "86");
    assert_eq!(db.tag("DELETE FROM events").await, "DELETE 86");
    assert_eq!(db.one("SELECT count(*) FROM events").await, "0");
    assert_eq!(db.error("DELETE FROM nope").await.sqlstate, "42P01");
    assert_eq!(db.error("DELETE FROM events WHERE nope = 1").await.sqlstate, "42703");
}

#[tokio::test]
async fn a_schema_that_changed_under_a_write_is_followed() {
    let db = Db::new();
    db.tag("CREATE TABLE t (k INT PRIMARY KEY, a INT, b INT)").await;
    let old = Arc::clone(db.frontend.catalog().table("public", "t").unwrap());
    db.tag("ALTER TABLE t ADD COLUMN c INT DEFAULT 9").await;
    let rows = RecordBatch::try_from_iter([
        ("k", Arc::new(Int32Array::from(vec![1])) as ArrayRef),
        ("a", Arc::new(Int32Array::from(vec![2])) as ArrayRef),
    ])
    .unwrap();
    db.frontend.ingest(&db.permit(), &old, rows).await.unwrap();
    assert_eq!(db.lines("SELECT * FROM t").await, ["1|2|NULL|9"]);
    // Without a default, the column is NULL in new rows; older rows keep the old default.
    db.tag("ALTER TABLE t ALTER COLUMN c DROP DEFAULT").await;
    db.tag("INSERT INTO t (k) VALUES (3)").await;
    assert_eq!(db.lines("SELECT c FROM t WHERE k = 3").await, ["NULL"]);
    // The node knows of a newer schema before the frontend does.
    db.fake.write_errors.lock().push_back(Error::StaleSchema { table: old.id });
    db.tag("INSERT INTO t VALUES (2, 3, 4, 5)").await;
    assert_eq!(db.lines("SELECT * FROM t WHERE k = 2").await, ["2|3|4|5"]);
}

#[tokio::test]
async fn tables_of_line_protocol_need_a_field_in_every_row() {
    let db = Db::new();
    db.tag(
        "CREATE TABLE lp (host STRING, time TIMESTAMP(9) TIME INDEX, a DOUBLE, b DOUBLE, \
         PRIMARY KEY (host)) WITH ('merge_mode'='last_non_null')",
    )
    .await;
    db.tag("INSERT INTO lp (host, time) VALUES ('h', 1)").await;
    db.tag("INSERT INTO lp VALUES ('h', 5, 24, 7)").await;
    db.tag("INSERT INTO lp (host, time, a) VALUES ('h', 5, 15)").await;
    assert_eq!(
        db.lines("SELECT a, b FROM lp WHERE time = to_timestamp_nanos(5)").await,
        ["15.0|7.0"]
    );
}

#[tokio::test]
async fn upsert_keeps_the_columns_that_it_does_not_name() {
    let db = Db::new();
    db.tag("CREATE TABLE whole (k INT PRIMARY KEY, a INT, b INT DEFAULT 7)").await;
    assert_eq!(db.tag("UPSERT INTO whole VALUES (1, 10, 100)").await, "INSERT 0 1");
    for (sql, row) in [
        ("UPSERT INTO whole (k, a) VALUES (1, 11)", "1|11|100"),
        ("UPSERT INTO whole VALUES (1, 12)", "1|12|100"),
        ("UPSERT INTO whole (k, b) SELECT k, a FROM whole", "1|12|12"),
        ("UPSERT INTO whole (b, k, a) VALUES (200, 1, 20)", "1|20|200"),
        ("UPSERT INTO whole (k, a) VALUES (1, 21), (1, 22)", "1|22|200"),
        ("REPLACE INTO whole (k, a) VALUES (1, 30)", "1|30|7"),
        ("UPSERT INTO whole (k, a) VALUES (1, NULL)", "1|NULL|7"),
    ] {
        db.tag(sql).await;
        assert_eq!(db.lines("SELECT * FROM whole").await, [row], "{sql}");
    }
    // A new row has the defaults.
    db.tag("UPSERT INTO whole (k, a) VALUES (2, 5)").await;
    assert_eq!(db.lines("SELECT * FROM whole WHERE k = 2").await, ["2|5|7"]);
    db.tag("CREATE TABLE parts (k INT PRIMARY KEY, a INT, b INT DEFAULT 7) WITH ('merge_mode' = 'last_non_null')")
        .await;
    db.tag("UPSERT INTO parts (k, b) VALUES (1, 1)").await;
    db.tag("UPSERT INTO parts (k, a) VALUES (1, 2)").await;
    assert_eq!(db.lines("SELECT * FROM parts").await, ["1|2|1"]);
    db.tag("CREATE TABLE log (ts TIMESTAMP(3) TIME INDEX, v INT) WITH ('append_mode' = 'true')")
        .await;
    assert_eq!(db.error("UPSERT INTO log VALUES (1, 1)").await.sqlstate, "0A000");
}

#[tokio::test]
async fn a_time_beyond_the_calendar_is_refused() {
    let db = Db::new();
    db.tag("CREATE TABLE t (ts TIMESTAMP(0) TIME INDEX, v INT)").await;
    for sql in [
        "INSERT INTO t VALUES (9223372036854775807, 1)",
        "INSERT INTO t SELECT -9223372036854775808, 1",
    ] {
        assert_eq!(db.error(sql).await.sqlstate, "22008", "{sql}");
    }
    db.tag("INSERT INTO t VALUES ('9999-12-31 23:59:59', 1)").await;
    assert_eq!(db.one("SELECT count(*) FROM t").await, "1");
}

#[tokio::test]
async fn rows_that_were_completed_before_a_type_became_wider_are_completed_again() {
    let db = Db::new();
    db.tag("CREATE TABLE t (k BIGINT PRIMARY KEY, v INT, w INT DEFAULT 7)").await;
    let plan = || {
        let table = db.frontend.catalog().table("public", "t").map(Arc::clone).unwrap();
        TablePlan::new(db.frontend.state(), &table).unwrap()
    };
    let keys: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let values: ArrayRef = Arc::new(Int32Array::from(vec![Some(5), None]));
    let rows = RecordBatch::try_from_iter_with_nullable([("k", keys, true), ("v", values, true)]);
    let narrow = plan().complete(&rows.unwrap()).unwrap().rows;
    db.tag("ALTER TABLE t ALTER COLUMN v TYPE BIGINT").await;
    let wide = plan().complete_again(&narrow, false).unwrap().rows;
    let columns = [&narrow, &wide].map(|rows| Arc::clone(rows.column_by_name("v").unwrap()));
    assert_eq!(columns[0].data_type(), &DataType::Int32);
    assert_eq!(columns[1].data_type(), &DataType::Int64);
    for column in &columns {
        assert_eq!(Value::from_array(column, 0).unwrap(), Value::Int(5));
        assert_eq!(Value::from_array(column, 1).unwrap(), Value::Null);
    }
}

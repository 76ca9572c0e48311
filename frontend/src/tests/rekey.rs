//! Re-keyings: a table gets another key while it is written to, and the orders about that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use partita_proto::Error;
use partita_proto::catalog::Table;
use partita_proto::materialized::CopyState;
use tokio_util::sync::CancellationToken;

use super::Db;
use crate::SessionOptions;

const EVENTS: &str = "CREATE TABLE events (host STRING, week INT, v INT, w INT, PRIMARY KEY (host, week)) \
    SPLIT AT (('h'), ('p'))";
const BY_WEEK: &str = "ALTER TABLE events PRIMARY KEY (week, host) SPLIT AT ((10), (20), (30))";
const SHOWN: &str =
    "SELECT \"table\", rekeyed, state, \"key\", partitions, rows_per_second FROM sys.rekeyings";

/// A table with a few rows, and the work for copies.
struct World {
    db: Db,
    stop: CancellationToken,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl World {
    async fn new(table: &str) -> Self {
        let db = Db::new();
        let stop = CancellationToken::new();
        tokio::spawn(Arc::clone(&db.frontend).run_copies(stop.clone()));
        db.tag(table).await;
        for host in ["a", "k", "x"] {
            let row = |week| format!("('{host}', {week}, {week}, 0)");
            let rows: Vec<_> = (8..34).map(row).collect();
            db.tag(&format!("INSERT INTO events VALUES {}", rows.join(", "))).await;
        }
        Self { db, stop }
    }

    fn table(&self) -> Arc<Table> {
        Arc::clone(self.db.frontend.catalog().table("public", "events").unwrap())
    }

    /// State of the re-keying; `None` if there is none.
    fn state(&self) -> Option<CopyState> {
        let catalog = self.db.frontend.catalog();
        Some(catalog.table("public", "events$rekeyed")?.copy.as_ref()?.state)
    }

    async fn until(&self, state: CopyState) {
        for _ in 0..1_000 {
            if self.state() == Some(state) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the re-keying is {:?}", self.state());
    }
}

#[tokio::test]
async fn a_table_gets_another_key_and_keeps_its_rows_and_its_id() {
    let world = World::new(EVENTS).await;
    let (db, before) = (&world.db, world.table());
    db.tag(BY_WEEK).await;
    world.until(CopyState::Retired).await;
    let after = world.table();
    assert_eq!((after.id, after.partitions.routes().len()), (before.id, 4));
    assert_eq!(db.fake.rows("public", "events"), [6, 30, 30, 12]);
    let plan = db.explain("SELECT host, v FROM events WHERE week = 12").await;
    assert!(plan.contains("partitions=1/4") && !plan.contains("copy="), "{plan}");
    db.tag("INSERT INTO events VALUES ('a', 12, 100, 1), ('new', 12, 1, 1)").await;
    db.tag("DELETE FROM events WHERE week < 12").await;
    let of_week = "SELECT host, v FROM events WHERE week = 12 ORDER BY host";
    assert_eq!(db.lines(of_week).await, ["a|100", "k|12", "new|1", "x|12"]);
    assert_eq!(db.one("SELECT count(*) FROM events").await, "67");
    assert_eq!(db.lines(SHOWN).await, ["events|events$rekeyed|retired|week, host|4|NULL"]);
    let shown = db.rows("SHOW CREATE TABLE events").await;
    assert!(shown[0][1].contains("PRIMARY KEY (week, host)"), "{shown:?}");
    // The former partitions are no copy, and the table may get the next key.
    assert_eq!(db.lines("SELECT copy FROM sys.copies").await, [""; 0]);
    assert_eq!(db.error("SELECT * FROM \"events$rekeyed\"").await.sqlstate, "55000");
    db.tag("ALTER TABLE events PARTITION BY HASH (host) PARTITIONS 2").await;
    let again = "SELECT state FROM sys.rekeyings WHERE rekeyed = 'events$rekeyed2'";
    for _ in 0..1_000 {
        if db.lines(again).await == ["retired"] {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(world.table().partitions.routes().len(), 2);
    assert!(db.frontend.catalog().was_rekeyed(before.id));
    assert_eq!(db.lines(of_week).await, ["a|100", "k|12", "new|1", "x|12"]);
}

#[tokio::test]
async fn a_table_that_was_rekeyed_a_moment_ago_is_read_without_a_bound() {
    let world = World::new(EVENTS).await;
    let (db, count) = (&world.db, "SELECT count(*) FROM events");
    db.tag("SET read_consistency = bounded").await;
    assert!(db.explain(count).await.contains("max_staleness=5s"));
    db.tag(BY_WEEK).await;
    world.until(CopyState::Retired).await;
    // Rows that are old to the table may be new to its partitions.
    assert!(!db.explain(count).await.contains("max_staleness"));
    assert_eq!(db.one(count).await, "78");
}

#[tokio::test]
async fn every_write_during_a_rekeying_takes_effect_once_and_in_order() {
    for options in ["", " WITH ('merge_mode' = 'last_non_null')", " WITH ('append_mode' = 'true')"]
    {
        let world = World::new(&format!("{EVENTS}{options}")).await;
        let (db, is_done) = (&world.db, AtomicBool::new(false));
        let session = db.frontend.session(SessionOptions::default());
        let writes = async {
            let mut last = 0;
            while !is_done.load(Ordering::Relaxed) || last < 5 {
                last += 1;
                // Two partitions of the old layout, and two columns at a time of the wide key.
                let insert = format!(
                    "INSERT INTO events (host, week, v) VALUES ('b', 1, {last}), ('z', 40, {last})"
                );
                session.execute(&insert).await.unwrap();
                if last % 3 == 0 && options.is_empty() {
                    let delete = "DELETE FROM events WHERE host = 'z' AND week = 40";
                    session.execute(delete).await.unwrap();
                }
                if !options.contains("append") {
                    let column = if last % 2 == 0 { "v" } else { "w" };
                    let insert = format!(
                        "INSERT INTO events (host, week, {column}) VALUES ('n', 5, {last})"
                    );
                    session.execute(&insert).await.unwrap();
                    if last % 5 == 0 {
                        session.execute("DELETE FROM events WHERE host = 'n'").await.unwrap();
                    }
                }
                tokio::task::yield_now().await;
            }
            last
        };
        let rekeying = async {
            db.tag(BY_WEEK).await;
            world.until(CopyState::Retired).await;
            is_done.store(true, Ordering::Relaxed);
        };
        let (last, ()) = tokio::join!(writes, rekeying);
        let found = db.lines("SELECT v FROM events WHERE host = 'b' ORDER BY v").await;
        if options.contains("append") {
            let all: Vec<String> = (1..=last).map(|number| number.to_string()).collect();
            assert_eq!(found, all);
        } else {
            assert_eq!(found, [last.to_string()], "{options}");
        }
        let deleted = last % 3 == 0 && options.is_empty();
        let newest = "SELECT max(v) FROM events WHERE host = 'z' AND week = 40";
        let expected = if deleted { String::new() } else { last.to_string() };
        assert_eq!(db.lines(newest).await.concat().replace("NULL", ""), expected, "{options}");
        if !options.contains("append") {
            // A column keeps its value until the row is deleted, or written without it where the last row counts.
            let first = if options.contains("non_null") { last / 5 * 5 + 1 } else { last };
            let value = |is_even: bool| {
                let mut numbers = (first..=last).rev();
                let newest = numbers.find(|number| (number % 2 == 0) == is_even);
                newest.map_or_else(|| "NULL".to_owned(), |number: i32| number.to_string())
            };
            let row = format!("{}|{}", value(true), value(false));
            let expected = if last % 5 == 0 { vec![] } else { vec![row] };
            let found = db.lines("SELECT v, w FROM events WHERE host = 'n'").await;
            assert_eq!(found, expected, "{options}, {last}");
        }
        assert_eq!(world.table().partitions.routes().len(), 4);
    }
}

#[tokio::test]
async fn rows_of_a_log_with_copies_move_to_another_placement() {
    let world = World::new(&format!("{EVENTS} WITH ('append_mode' = 'true')")).await;
    let db = &world.db;
    db.tag("CREATE MATERIALIZED COPY by_week OF events PRIMARY KEY (week, host)").await;
    db.tag("ALTER TABLE events PARTITION BY HASH (host) PARTITIONS 2").await;
    world.until(CopyState::Retired).await;
    assert_eq!(world.table().partitions.routes().len(), 2);
    assert_eq!(db.fake.rows("public", "events").iter().sum::<usize>(), 78);
}

/// The partitions that the table has when it writes know nothing of its reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_update_that_a_switch_overtakes_changes_every_row_once() {
    let hashed = "CREATE TABLE events (host STRING, week INT, v INT, w INT, PRIMARY KEY (host, week)) \
        PARTITION BY HASH (host) PARTITIONS 2";
    let by_hash = "ALTER TABLE events PARTITION BY HASH (week) PARTITIONS 3";
    for (table, layout) in [(EVENTS, BY_WEEK), (hashed, by_hash)] {
        let world = World::new(table).await;
        let db = &world.db;
        let session = db.frontend.session(SessionOptions::default());
        let rekeying = tokio::spawn(async move {
            // The scans of the UPDATE are open by then.
            tokio::time::sleep(Duration::from_millis(200)).await;
            session.execute(layout).await.map(drop)
        });
        let update = "UPDATE events SET v = v + 1 WHERE pg_sleep(0.05) IS NOT NULL";
        assert_eq!(db.tag(update).await, "UPDATE 78", "{layout}");
        rekeying.await.unwrap().unwrap();
        world.until(CopyState::Retired).await;
        assert_eq!(db.one("SELECT sum(v) FROM events").await, "1677", "{layout}");
    }
}

#[tokio::test]
async fn counters_miss_no_statement_while_their_table_is_rekeyed() {
    let world = World::new(EVENTS).await;
    let (db, is_done) = (&world.db, AtomicBool::new(false));
    let session = db.frontend.session(SessionOptions::default());
    let statements = async {
        let mut last = 0;
        while !is_done.load(Ordering::Relaxed) || last < 5 {
            last += 1;
            let upsert = "INSERT INTO events (host, week, v) VALUES ('b', 1, 1) \
                ON CONFLICT (host, week) DO UPDATE SET v = events.v + 1";
            let update = "UPDATE events SET w = w + 1 WHERE host = 'k' AND week = 12";
            for statement in [upsert, update] {
                session.execute(statement).await.unwrap();
            }
            tokio::task::yield_now().await;
        }
        last
    };
    let rekeying = async {
        db.tag(BY_WEEK).await;
        world.until(CopyState::Retired).await;
        is_done.store(true, Ordering::Relaxed);
    };
    let (last, ()) = tokio::join!(statements, rekeying);
    let counts = "SELECT v FROM events WHERE host = 'b' \
        UNION ALL SELECT w FROM events WHERE host = 'k' AND week = 12";
    assert_eq!(db.lines(counts).await, [last.to_string(), last.to_string()]);
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_takes_effect_once_whatever_key_the_table_has_then() {
    let world = World::new(&format!("{EVENTS} WITH ('append_mode' = 'true')")).await;
    let db = &world.db;
    // The rows are stored each time, and the first partitions answer only after the switch.
    let lost = std::iter::repeat_with(|| Error::Unavailable("the answer is lost".to_owned()));
    db.fake.late_write_errors.lock().extend(lost.take(30));
    let session = db.frontend.session(SessionOptions::default());
    let rekeying = async {
        db.tag(BY_WEEK).await;
        world.until(CopyState::Retired).await;
    };
    let write = session.execute("INSERT INTO events VALUES ('b', 1, 777, 0)");
    let (written, ()) = tokio::join!(write, rekeying);
    written.unwrap();
    assert_eq!(db.one("SELECT count(*) FROM events WHERE v = 777").await, "1");
    assert_eq!(db.one("SELECT count(*) FROM events").await, "79");
}

/// Only the closed partition says of earlier attempts that they had no effect.
#[tokio::test]
async fn a_refusal_by_the_schema_does_not_settle_a_write_whose_answer_was_lost() {
    let world = World::new(&format!("{EVENTS} WITH ('append_mode' = 'true')")).await;
    let db = &world.db;
    let former = world.table().partitions.routes()[0].partition;
    db.fake.unanswered.lock().insert(former);
    let session = db.frontend.session(SessionOptions::default());
    let rekeying = async {
        db.tag(BY_WEEK).await;
        world.until(CopyState::Retired).await;
        let refusal = Error::StaleSchema { table: world.table().id };
        db.fake.write_errors.lock().push_back(refusal);
        while !db.fake.write_errors.lock().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        db.fake.unanswered.lock().clear();
    };
    let write = session.execute("INSERT INTO events VALUES ('b', 1, 777, 0)");
    let (written, ()) = tokio::join!(write, rekeying);
    written.unwrap();
    assert!(world.table().partitions.route(former).is_none());
    assert_eq!(db.one("SELECT count(*) FROM events WHERE v = 777").await, "1");
    assert_eq!(db.one("SELECT count(*) FROM events").await, "79");
}

#[tokio::test]
async fn a_rekeying_is_paused_bounded_resumed_and_cancelled() {
    let world = World::new(EVENTS).await;
    let db = &world.db;
    let none = db.error("ALTER TABLE events PAUSE REKEYING").await;
    assert_eq!(
        (none.sqlstate.as_str(), none.message.as_str()),
        ("55000", "table \"events\" is not being re-keyed")
    );
    db.tag(BY_WEEK).await;
    // It may have been switched before the order came.
    if db.try_run("ALTER TABLE events PAUSE REKEYING").await.is_ok() {
        db.tag("ALTER TABLE events THROTTLE REKEYING 5").await;
        assert_eq!(db.lines(SHOWN).await, ["events|events$rekeyed|paused|week, host|4|5"]);
        db.tag("ALTER TABLE events CANCEL REKEYING").await;
        assert_eq!(db.lines(SHOWN).await, [""; 0]);
        assert_eq!(world.table().partitions.routes().len(), 3);
        db.tag(BY_WEEK).await;
    }
    world.until(CopyState::Retired).await;
    assert_eq!(db.error("ALTER TABLE events CANCEL REKEYING").await.sqlstate, "55000");
    assert_eq!(db.one("SELECT count(*) FROM events").await, "78");
    db.tag("ALTER TABLE IF EXISTS nowhere PAUSE REKEYING").await;
}

#[tokio::test]
async fn what_is_written_to_a_table_belongs_to_it_also_while_it_is_rekeyed() {
    let world = World::new(EVENTS).await;
    let db = &world.db;
    db.tag(BY_WEEK).await;
    for sql in
        ["ALTER TABLE events PRIMARY KEY (week)", "ALTER TABLE events PRIMARY KEY (host, week, v)"]
    {
        let error = db.error(sql).await;
        assert_eq!(error.sqlstate, "42P16", "{sql}");
        assert!(error.message.starts_with("the new key must have the key columns"), "{error:?}");
    }
    // A drop takes the re-keying along.
    db.tag("DROP TABLE events").await;
}

//! Materialized copies: how they are filled, kept in step, read and lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use partita_proto::Error;
use partita_proto::catalog::Table;
use partita_proto::materialized::{CopyChange, CopyState};
use partita_proto::service::Ddl;
use tokio_util::sync::CancellationToken;

use super::Db;

const EVENTS: &str = "CREATE TABLE events (host STRING, week INT, v INT, PRIMARY KEY (host, week)) \
    SPLIT AT (('h'), ('p'))";
const BY_WEEK: &str = "CREATE MATERIALIZED COPY by_week OF events PRIMARY KEY (week, host) SPLIT AT ((10), (20), (30))";
/// Three partitions of the source may have such rows, and one of the copy.
const OF_WEEK: &str = "SELECT host, v FROM events WHERE week = 12 ORDER BY host";

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
    /// The table, with a copy that is in step.
    async fn in_step(table: &str) -> Self {
        let db = Db::new();
        let stop = CancellationToken::new();
        tokio::spawn(Arc::clone(&db.frontend).run_copies(stop.clone()));
        db.tag(table).await;
        for host in ["a", "k", "x"] {
            let row = |week| format!("('{host}', {week}, {week})");
            let rows: Vec<_> = (8..34).map(row).collect();
            db.tag(&format!("INSERT INTO events VALUES {}", rows.join(", "))).await;
        }
        db.tag(BY_WEEK).await;
        let world = Self { db, stop };
        world.until(CopyState::InStep).await;
        world
    }

    fn table(&self, name: &str) -> Arc<Table> {
        Arc::clone(self.db.frontend.catalog().table("public", name).unwrap())
    }

    fn state(&self) -> CopyState {
        self.table("by_week").copy.as_ref().unwrap().state
    }

    async fn until(&self, state: CopyState) {
        self.until_true(|world| world.state() == state).await;
    }

    async fn until_true(&self, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..1_000 {
            if is_so(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the copy is {:?}", self.table("by_week").copy);
    }

    /// Checks that the copy has the rows of its source.
    async fn check_same(&self) {
        let of = |name: &str| format!("SELECT * FROM {name} ORDER BY host, week, v");
        assert_eq!(self.db.rows(&of("by_week")).await, self.db.rows(&of("events")).await);
    }
}

#[tokio::test]
async fn a_copy_is_filled_and_gets_every_write_before_its_client_does() {
    let world = World::in_step(EVENTS).await;
    let db = &world.db;
    assert_eq!(db.fake.rows("public", "by_week"), [6, 30, 30, 12]);
    db.tag("INSERT INTO events VALUES ('a', 12, 100), ('new', 12, 1), ('new', 40, 2)").await;
    assert_eq!(db.lines(OF_WEEK).await, ["a|100", "k|12", "new|1", "x|12"]);
    db.tag("DELETE FROM events WHERE week < 12").await;
    assert_eq!(db.fake.rows("public", "by_week"), [0, 25, 30, 13]);
    let both = "SELECT count(*), sum(v) FROM ";
    assert_eq!(
        db.lines(&format!("{both} by_week")).await,
        db.lines(&format!("{both} events")).await
    );
}

#[tokio::test]
async fn rows_that_were_appended_are_in_the_copy_once() {
    let table = format!("{EVENTS} WITH ('append_mode' = 'true')");
    let world = World::in_step(&table).await;
    for _ in 0..3 {
        world.db.tag("INSERT INTO events VALUES ('a', 12, 100), ('b', 12, 100)").await;
    }
    // A resend has no effect, and waits for the copy as the first one did.
    world.db.fake.late_write_errors.lock().push_back(Error::Unavailable("away".to_owned()));
    world.db.tag("INSERT INTO events VALUES ('a', 13, 1)").await;
    world.check_same().await;
    assert_eq!(world.db.one("SELECT count(*) FROM by_week WHERE week = 12").await, "9");
}

#[tokio::test]
async fn the_copy_is_read_where_that_touches_fewer_partitions() {
    let world = World::in_step(EVENTS).await;
    let db = &world.db;
    let plan = db.explain(OF_WEEK).await;
    assert!(plan.contains("table=public.events, copy=by_week, partitions=1/4"), "{plan}");
    let confirmed = db.fake.confirmations.load(Ordering::Relaxed);
    for query in [
        "SELECT * FROM events WHERE host = 'k' AND week = 12",
        "SELECT * FROM events WHERE v = 12 AND host = 'k'",
    ] {
        let plan = db.explain(query).await;
        assert!(!plan.contains("copy=") && plan.contains("partitions=1/3"), "{plan}");
    }
    assert_eq!(db.fake.confirmations.load(Ordering::Relaxed), confirmed, "meta was not asked");
    // Three of three, and four of four: the source is as good.
    assert!(!db.explain("SELECT * FROM events").await.contains("copy="));
    // A statement that writes to the table reads it.
    for statement in [
        "DELETE FROM events WHERE week = 12",
        "INSERT INTO events SELECT host, 50, v FROM events WHERE week = 12",
    ] {
        let plan = db.explain(statement).await;
        assert!(!plan.contains("copy="), "{plan}");
    }
    db.tag("INSERT INTO events SELECT host, week + 1, v FROM by_week WHERE week = 33").await;
    assert_eq!(db.one("SELECT count(*) FROM events WHERE week = 34").await, "3");
    world.check_same().await;
}

#[tokio::test]
async fn without_the_word_of_meta_the_source_is_read() {
    let world = World::in_step(EVENTS).await;
    let db = &world.db;
    db.fake.is_meta_silent.store(true, Ordering::Relaxed);
    assert!(!db.explain(OF_WEEK).await.contains("copy="));
    assert_eq!(db.lines(OF_WEEK).await, ["a|12", "k|12", "x|12"]);
    assert_eq!(db.error("SELECT * FROM by_week").await.sqlstate, "55000");
    // Writes reach the copy without meta.
    db.tag("INSERT INTO events VALUES ('a', 12, 100)").await;
    // A write that the copy lacks is not acknowledged while meta cannot record that.
    db.fake.forget_changes(&world.table("events"));
    let error = db.error("INSERT INTO events VALUES ('a', 12, 101)").await;
    assert_eq!((error.sqlstate.as_str(), error.retryable), ("57P03", true), "{error:?}");
    db.fake.is_meta_silent.store(false, Ordering::Relaxed);
    db.tag("INSERT INTO events VALUES ('a', 12, 102)").await;
    assert_eq!(db.lines(OF_WEEK).await, ["a|102", "k|12", "x|12"]);
}

#[tokio::test]
async fn a_copy_that_lacks_changes_is_lost_and_filled_anew() {
    let world = World::in_step(EVENTS).await;
    let (db, events, first) = (&world.db, world.table("events"), world.table("by_week"));
    db.fake.forget_changes(&events);
    db.tag("INSERT INTO events VALUES ('a', 12, 100), ('k', 12, 100), ('x', 12, 100)").await;
    // Acknowledged, and seen by the next statement.
    assert_eq!(db.lines(OF_WEEK).await, ["a|100", "k|100", "x|100"]);
    let shown = "SELECT state, reason IS NULL, fills FROM sys.copies WHERE copy = 'by_week'";
    assert_eq!(db.lines(shown).await, ["lost|false|1"]);
    assert!(!db.explain(OF_WEEK).await.contains("copy="));
    world.until_true(|world| !world.db.fake.captured(&events).contains_key(&first.id)).await;
    let replace = CopyChange::Replace { copy: first.id, beat: None };
    assert!(db.frontend.change(&db.permit(), Ddl::Copy(replace)).await.unwrap());
    world.until(CopyState::InStep).await;
    assert_ne!(world.table("by_week").id, first.id);
    assert_eq!(db.lines(shown).await, ["in step|false|2"]);
    world.check_same().await;
    assert!(db.explain(OF_WEEK).await.contains("copy=by_week"));
}

#[tokio::test]
async fn partitions_that_are_split_stay_in_step() {
    let world = World::in_step(EVENTS).await;
    let db = &world.db;
    db.tag("INSERT INTO events VALUES ('a', 12, 100)").await;
    db.tag("ALTER TABLE events SPLIT AT (('c'), ('w'))").await;
    db.tag("INSERT INTO events VALUES ('b', 12, 1), ('d', 12, 1), ('x', 12, 1)").await;
    db.tag("ALTER TABLE by_week SPLIT AT ((12, 'd'))").await;
    db.tag("INSERT INTO events VALUES ('b', 12, 2), ('d', 12, 2), ('x', 12, 2)").await;
    assert_eq!(world.state(), CopyState::InStep);
    assert_eq!(db.lines(OF_WEEK).await, ["a|100", "b|2", "d|2", "k|12", "x|2"]);
    world.check_same().await;
}

#[tokio::test]
async fn a_copy_follows_the_definition_of_its_source() {
    let world = World::in_step(EVENTS).await;
    let db = &world.db;
    db.tag("ALTER TABLE events ADD COLUMN w INT DEFAULT 7").await;
    db.tag("INSERT INTO events VALUES ('a', 12, 100, 8)").await;
    db.tag("ALTER TABLE events RENAME COLUMN v TO u").await;
    let rows = "SELECT host, u, w FROM events WHERE week = 12 ORDER BY host";
    assert!(db.explain(rows).await.contains("copy=by_week"));
    assert_eq!(db.lines(rows).await, ["a|100|8", "k|12|7", "x|12|7"]);
    let first = world.table("by_week").id;
    db.tag("TRUNCATE events").await;
    world.until(CopyState::InStep).await;
    assert_ne!(world.table("by_week").id, first);
    assert_eq!(db.one("SELECT count(*) FROM by_week").await, "0");
    db.tag("INSERT INTO events VALUES ('a', 12, 1, 1)").await;
    assert_eq!(db.lines(rows).await, ["a|1|1"]);
    assert_eq!(db.one("SELECT count(*) FROM by_week").await, "1");
}

#[tokio::test]
async fn a_copy_is_changed_by_its_source_only() {
    let world = World::in_step(EVENTS).await;
    let db = &world.db;
    for sql in [
        "INSERT INTO by_week VALUES ('a', 1, 1)",
        "INSERT INTO by_week SELECT * FROM events WHERE false",
        "DELETE FROM by_week",
        "COPY by_week FROM STDIN",
        "TRUNCATE by_week",
        "ALTER TABLE by_week ADD COLUMN x INT",
        "CREATE INDEX i ON by_week USING inverted (v)",
        "CREATE TASK fill SCHEDULE 'every 1h' AS INSERT INTO by_week SELECT * FROM events WHERE $start < $stop",
    ] {
        let error = db.error(sql).await;
        assert_eq!(error.sqlstate, "42809", "{sql}");
        assert_eq!(error.message, "\"by_week\" is a materialized copy", "{sql}");
        let detail = "Rows are written to \"events\", and follow here.";
        assert_eq!(error.detail.as_deref(), Some(detail), "{sql}");
    }
    assert_eq!(db.error("DROP TABLE by_week").await.sqlstate, "42809");
    assert_eq!(db.error("DROP MATERIALIZED COPY events").await.sqlstate, "42809");
    let error = db.error("DROP TABLE events").await;
    assert_eq!(error.sqlstate, "2BP01");
    let detail = "materialized copy \"by_week\" depends on table \"events\"";
    assert_eq!(error.detail.as_deref(), Some(detail));
    let shown = db.rows("SHOW CREATE TABLE by_week").await;
    assert!(shown[0][1].starts_with("CREATE MATERIALIZED COPY by_week OF events"), "{shown:?}");
    db.tag("ALTER TABLE by_week RENAME TO weekly").await;
    assert!(db.explain(OF_WEEK).await.contains("copy=weekly"));
}

#[tokio::test]
async fn captures_end_with_their_copy() {
    let world = World::in_step(EVENTS).await;
    let (db, events) = (&world.db, world.table("events"));
    assert_eq!(db.fake.captured(&events).values().sum::<usize>(), 3);
    assert_eq!(db.tag("DROP MATERIALIZED COPY by_week").await, "DROP MATERIALIZED COPY");
    // A write that is owed to it is acknowledged at once.
    db.tag("INSERT INTO events VALUES ('a', 12, 100)").await;
    for _ in 0..1_000 {
        if db.fake.captured(&events).is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(db.fake.captured(&events).is_empty());
    db.tag("DROP MATERIALIZED COPY IF EXISTS by_week").await;
    db.tag("DROP TABLE events").await;
}

#[tokio::test]
async fn the_rights_on_the_source_are_those_on_the_copy() {
    let world = World::in_step(EVENTS).await;
    let db = &world.db;
    db.tag("CREATE ROLE reader LOGIN").await;
    db.tag("GRANT SELECT ON events TO reader").await;
    db.tag("SET ROLE reader").await;
    assert_eq!(db.one("SELECT count(*) FROM by_week WHERE week = 12").await, "3");
    assert_eq!(db.lines("SELECT copy, state FROM sys.copies").await, ["by_week|in step"]);
    assert_eq!(db.error("DROP MATERIALIZED COPY by_week").await.sqlstate, "42501");
    let other = "CREATE MATERIALIZED COPY c OF events PRIMARY KEY (week, host)";
    assert_eq!(db.error(other).await.sqlstate, "42501");
    db.tag("RESET ROLE").await;
    db.tag("REVOKE SELECT ON events FROM reader").await;
    db.tag("SET ROLE reader").await;
    assert_eq!(db.error("SELECT count(*) FROM by_week").await.sqlstate, "42P01");
    assert_eq!(db.lines("SELECT copy, state FROM sys.copies").await, [""; 0]);
}

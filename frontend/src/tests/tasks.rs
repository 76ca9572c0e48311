//! Tasks: statements about them, and their runs by one and by two frontends.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use partita_proto::access::{Door, Identity};
use partita_proto::task::Remote;
use tokio_util::sync::CancellationToken;

use super::Db;
use crate::{FrontendOptions, Outlet, Output, SessionOptions, SqlError};

const EVERY_SECOND: &str = "CREATE TASK down SCHEDULE 'every 1s' AS \
     INSERT INTO sums SELECT 1, sum(v) FROM t WHERE $start < $stop";

/// Keeps what it is to send; the first request fails.
#[derive(Default)]
struct Letters(Mutex<Vec<(String, String)>>);

#[async_trait]
impl Outlet for Letters {
    async fn send(&self, remote: &Remote, lines: String) -> Result<(), SqlError> {
        let mut letters = self.0.lock();
        letters.push((remote.token.clone().unwrap_or_default(), lines));
        match letters.len() {
            1 => Err(SqlError::new("08006", "the server is away")),
            _ => Ok(()),
        }
    }
}

fn outlet() -> Arc<dyn Outlet> {
    Arc::new(Letters::default())
}

/// A table with two rows, and one for their sum.
async fn world() -> Db {
    let db = Db::new();
    db.tag("CREATE TABLE t (k INT PRIMARY KEY, v INT)").await;
    db.tag("INSERT INTO t VALUES (1, 10), (2, 20)").await;
    db.tag("CREATE TABLE sums (k INT PRIMARY KEY, v BIGINT)").await;
    db
}

/// The same cluster in a session of a role.
fn acting(db: &Db, name: &str) -> Db {
    let access = db.frontend.access();
    let identity = Identity::of_role(access.role_by_name(name).unwrap(), Door::Postgres);
    let options = SessionOptions { identity, ..SessionOptions::default() };
    let session = db.frontend.session(options);
    Db { fake: Arc::clone(&db.fake), frontend: Arc::clone(&db.frontend), session }
}

/// Waits until a query has a result.
async fn until(db: &Db, sql: &str, expected: &str) {
    for _ in 0..600 {
        if db.one(sql).await == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{sql}: {:?}", db.lines("SELECT * FROM sys.task_runs").await);
}

#[tokio::test]
async fn a_task_is_created_altered_shown_and_dropped() {
    let db = world().await;
    assert_eq!(db.tag(EVERY_SECOND).await, "CREATE TASK");
    assert_eq!(db.error(EVERY_SECOND).await.sqlstate, "42710");
    let again = EVERY_SECOND.replace("TASK", "TASK IF NOT EXISTS");
    let Output::Done { notices, .. } = db.try_run(&again).await.unwrap() else { panic!("rows") };
    assert_eq!(notices[0].message, "task \"down\" already exists, skipping");
    assert_eq!(db.tag("ALTER TASK down DISABLE").await, "ALTER TASK");
    assert_eq!(db.tag("ALTER TASK public.down SCHEDULE '@daily offset 1h'").await, "ALTER TASK");
    let statement = "INSERT INTO sums SELECT 1, sum(v) FROM t WHERE $start < $stop";
    let shown = format!("public|down|partita|@daily offset 1h|disabled|{statement}");
    assert_eq!(db.lines("SHOW TASKS").await, [shown]);
    let columns = "SELECT task, owner, schedule, enabled, catch_up, runner FROM sys.tasks";
    assert_eq!(db.lines(columns).await[0], "down|partita|@daily offset 1h|false|10|NULL");
    assert_eq!(db.tag("DROP TASK down").await, "DROP TASK");
    assert_eq!(db.error("DROP TASK down").await.sqlstate, "42704");
    assert_eq!(db.error("ALTER TASK down ENABLE").await.sqlstate, "42704");
    db.tag("DROP TASK IF EXISTS down").await;
    assert_eq!(db.one("SELECT count(*) FROM sys.tasks").await, "0");
}

#[tokio::test]
async fn errors_of_a_statement_are_found_when_the_task_is_created() {
    let db = world().await;
    for (statement, sqlstate) in [
        ("INSERT INTO nowhere SELECT 1, 1", "42P01"),
        ("INSERT INTO sums SELECT 1, 1 FROM nowhere", "42P01"),
        ("INSERT INTO sums SELECT 1, w FROM t", "42703"),
        ("INSERT INTO sums SELECT 1, v FROM t WHERE v > $now", "22023"),
        ("SELECT 1", "0A000"),
    ] {
        let error = db.error(&format!("CREATE TASK x SCHEDULE '@daily' AS {statement}")).await;
        assert_eq!(error.sqlstate, sqlstate, "{statement}: {error:?}");
    }
    let sql = "CREATE TASK nowhere.x SCHEDULE '@daily' AS INSERT INTO sums SELECT 1, 1";
    assert_eq!(db.error(sql).await.sqlstate, "3F000");
}

#[tokio::test]
async fn a_task_is_for_those_with_the_rights_of_its_owner() {
    let db = world().await;
    db.tag(EVERY_SECOND).await;
    for role in ["ada", "eve"] {
        db.tag(&format!("CREATE ROLE {role} LOGIN")).await;
        db.tag(&format!("GRANT SELECT, INSERT ON DATABASE public TO {role}")).await;
    }
    let (ada, eve) = (acting(&db, "ada"), acting(&db, "eve"));
    let own = EVERY_SECOND.replace("down", "own");
    assert_eq!(ada.error(&own).await.sqlstate, "42501");
    db.tag("GRANT TASK ON DATABASE public TO ada").await;
    ada.tag(&own).await;
    for (session, tasks) in [(&db, "2"), (&ada, "1"), (&eve, "0")] {
        assert_eq!(session.one("SELECT count(*) FROM sys.tasks").await, tasks);
        assert_eq!(session.rows("SHOW TASKS").await.len().to_string(), tasks);
    }
    for sql in ["ALTER TASK own DISABLE", "DROP TASK own"] {
        assert_eq!(eve.error(sql).await.sqlstate, "42704");
    }
    eve.tag("DROP TASK IF EXISTS own").await;
    assert_eq!(ada.error("DROP TASK down").await.sqlstate, "42704");
    ada.tag("DROP TASK own").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_runs_with_the_rights_of_its_owner() {
    let db = world().await;
    db.tag("CREATE ROLE ada LOGIN").await;
    db.tag("GRANT SELECT, INSERT, TASK ON DATABASE public TO ada").await;
    acting(&db, "ada").tag(EVERY_SECOND).await;
    let stop = CancellationToken::new();
    let running = tokio::spawn(Arc::clone(&db.frontend).run_tasks(outlet(), stop.clone()));
    let outcomes = "SELECT count(*) > 0 FROM sys.task_runs WHERE outcome";
    until(&db, &format!("{outcomes} = 'succeeded' AND rows = 1"), "true").await;
    assert_eq!(db.one("SELECT v FROM sums").await, "30");
    db.tag("REVOKE SELECT ON DATABASE public FROM ada").await;
    until(&db, &format!("{outcomes} = 'failed' AND error LIKE '42501 %'"), "true").await;
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_frontends_run_each_window_once() {
    let db = world().await;
    db.tag(EVERY_SECOND).await;
    let other = db.fake.frontend(FrontendOptions::default()).unwrap();
    let stop = CancellationToken::new();
    let runners = [Arc::clone(&db.frontend), other];
    let running = runners.map(|frontend| tokio::spawn(frontend.run_tasks(outlet(), stop.clone())));
    until(&db, "SELECT count(*) >= 4 FROM sys.task_runs", "true").await;
    db.tag("ALTER TASK down DISABLE").await;
    until(&db, "SELECT count(*) FROM sys.tasks WHERE runner IS NULL", "1").await;
    let figures = "SELECT count(*) = count(DISTINCT window_start), \
                   count(DISTINCT epoch) = count(*), \
                   max(attempt) = 1 AND min(outcome) = max(outcome) FROM sys.task_runs";
    assert_eq!(db.lines(figures).await, ["true|true|true"]);
    stop.cancel();
    for runner in running {
        runner.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_sends_rows_to_another_server() {
    let db = world().await;
    let sql = "CREATE TASK forward SCHEDULE 'every 1s' INTO URL 'https://cloud:8086/w?u=secret' \
               TOKEN 'secret' MEASUREMENT hot TAGS (k) AS SELECT k, v FROM t WHERE v > 15 AND $start < $stop";
    db.tag("CREATE ROLE ada LOGIN").await;
    db.tag("GRANT SELECT, TASK ON DATABASE public TO ada").await;
    assert_eq!(acting(&db, "ada").error(sql).await.sqlstate, "42501");
    db.tag(sql).await;
    assert_eq!(db.one("SELECT remote FROM sys.tasks").await, "https://cloud:8086");
    let letters = Arc::<Letters>::default();
    let stop = CancellationToken::new();
    let outlet = Arc::<Letters>::clone(&letters);
    let running = tokio::spawn(Arc::clone(&db.frontend).run_tasks(outlet, stop.clone()));
    let outcomes = "SELECT count(*) > 0 FROM sys.task_runs WHERE outcome";
    until(&db, &format!("{outcomes} = 'failed' AND error = '08006 the server is away'"), "true")
        .await;
    until(&db, &format!("{outcomes} = 'succeeded' AND rows = 1"), "true").await;
    stop.cancel();
    running.await.unwrap();
    let (token, lines) = letters.0.lock()[1].clone();
    assert_eq!(token, "secret");
    assert!(lines.starts_with("hot,k=2 v=20i "), "{lines}");
    for table in ["sys.tasks", "sys.task_runs", "sys.query_log"] {
        let shown = db.lines(&format!("SELECT * FROM {table}")).await.join("\n");
        assert!(!shown.contains("secret"), "{table}: {shown}");
    }
}

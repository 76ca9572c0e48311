//! Access: each kind of statement as a superuser, a reader, a writer and a role without any right; and the end of what
//! was revoked.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use partita_proto::access::{
    Access, Action, Actions, Door, Grant, GrantEntry, Grantee, Identity, Membership, Mode, Need,
    Object, Permission, Role, RowPredicate, Scope, Target, Term, Token,
};
use partita_proto::id::{BOOTSTRAP_ROLE, DatabaseId, RoleId, TokenId};
use partita_proto::load::HeatmapRequest;
use partita_proto::value::Value;
use partita_sql::parser;

use super::{Db, cells, collect};
use crate::{Output, Session, SessionOptions, SqlError};

const READER: RoleId = RoleId(1_001);
const WRITER: RoleId = RoleId(1_002);
const NOBODY: RoleId = RoleId(1_003);
/// The default database of the fake.
const PUBLIC: Target = Target::Database(DatabaseId(1));
const VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
    WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
/// Time within which a revoked identity must have ended.
const END_MAX: Duration = Duration::from_secs(5);
/// The source of the statements, by which a new kind is noticed.
const STATEMENTS: &str = include_str!("../../sql/src/statement.rs");

/// Result of a statement for one role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Allowed,
    Denied,
    Hidden,
}

const A: Outcome = Outcome::Allowed;
const D: Outcome = Outcome::Denied;
const H: Outcome = Outcome::Hidden;

/// The last statement of each text, for the superuser, the reader, the writer and the role without rights.
const MATRIX: &[(&str, [Outcome; 4])] = &[
    ("SELECT * FROM t", [A, A, D, H]),
    ("SELECT count(*) FROM t WHERE false", [A, A, D, H]),
    ("SELECT (SELECT max(v) FROM t)", [A, A, D, H]),
    ("SELECT 1 WHERE EXISTS (SELECT 1 FROM t)", [A, A, D, H]),
    ("WITH w AS (SELECT * FROM t) SELECT 1 FROM w", [A, A, D, H]),
    ("SELECT 1 UNION ALL SELECT k FROM public.t", [A, A, D, H]),
    ("SELECT 1", [A, A, A, A]),
    ("EXPLAIN SELECT * FROM t", [A, A, D, H]),
    ("EXPLAIN ANALYZE SELECT * FROM t", [A, A, D, H]),
    ("EXPLAIN INSERT INTO t VALUES (1, 1)", [A, D, A, H]),
    ("EXPLAIN INSERT INTO t SELECT * FROM t", [A, D, D, H]),
    ("EXPLAIN DELETE FROM t", [A, D, D, H]),
    ("EXPLAIN DELETE FROM t WHERE v = 1", [A, D, D, H]),
    ("EXPLAIN HOTSPOT t", [A, A, D, H]),
    ("INSERT INTO t VALUES (1, 1)", [A, D, A, H]),
    ("INSERT INTO t VALUES (1, 1 + 1)", [A, D, A, H]),
    ("INSERT INTO t SELECT k, v FROM t", [A, D, D, H]),
    ("INSERT INTO t SELECT 1, (SELECT max(v) FROM t)", [A, D, D, H]),
    ("DELETE FROM t", [A, D, A, H]),
    ("DELETE FROM t WHERE v = 1", [A, D, D, H]),
    ("UPDATE t SET v = 1", [A, D, A, H]),
    ("UPDATE t SET v = v + 1", [A, D, D, H]),
    ("COPY t FROM STDIN", [A, D, A, H]),
    ("COPY t TO STDOUT", [A, A, D, H]),
    ("COPY (SELECT v FROM t) TO STDOUT", [A, A, D, H]),
    ("CREATE DATABASE d", [A, D, D, D]),
    ("CREATE DATABASE IF NOT EXISTS public", [A, D, D, D]),
    ("ALTER DATABASE public SET ('ttl' = '1d')", [A, D, D, H]),
    ("DROP DATABASE public", [A, D, D, H]),
    ("CREATE TABLE u (k INT PRIMARY KEY)", [A, D, D, H]),
    ("CREATE TABLE u AS SELECT k FROM t", [A, D, D, H]),
    ("ALTER TABLE t ADD COLUMN w INT", [A, D, D, H]),
    ("ALTER TABLE IF EXISTS t RENAME TO u", [A, D, D, A]),
    ("ALTER TABLE t SPLIT AT ((5))", [A, D, D, H]),
    (
        "CREATE MATERIALIZED COPY c OF t PRIMARY KEY (k) PARTITION BY HASH (k) PARTITIONS 2",
        [A, D, D, H],
    ),
    ("ALTER TABLE t PRIMARY KEY (k) PARTITION BY HASH (k) PARTITIONS 2", [A, D, D, H]),
    ("DROP MATERIALIZED COPY IF EXISTS c", [A, A, A, A]),
    ("CREATE VIEW w AS SELECT k FROM t", [A, D, D, H]),
    ("DROP VIEW IF EXISTS w", [A, A, A, A]),
    ("COMMENT ON TABLE t IS 'x'", [A, D, D, H]),
    ("DROP TABLE t", [A, D, D, H]),
    ("DROP TABLE IF EXISTS t", [A, D, D, A]),
    ("TRUNCATE t", [A, D, A, H]),
    ("USE public", [A, A, A, H]),
    ("SHOW DATABASES", [A, A, A, A]),
    ("SHOW TABLES", [A, A, A, H]),
    ("SHOW CREATE TABLE t", [A, A, A, H]),
    ("SHOW PARTITIONS FROM t", [A, A, D, H]),
    ("SHOW SERIES CARDINALITY", [A, A, A, H]),
    ("SHOW SERIES CARDINALITY FROM t", [A, A, D, H]),
    ("SHOW SERIES CARDINALITY EXACT FROM t", [A, A, D, H]),
    ("SHOW application_name", [A, A, A, A]),
    ("SHOW ALL", [A, A, A, A]),
    ("DESCRIBE t", [A, A, A, H]),
    ("SET application_name = 'x'", [A, A, A, A]),
    ("RESET ALL", [A, A, A, A]),
    ("BEGIN", [A, A, A, A]),
    ("PREPARE q AS SELECT * FROM t", [A, A, A, H]),
    ("PREPARE q AS SELECT * FROM t; EXECUTE q", [A, A, D, H]),
    ("PREPARE q AS INSERT INTO t VALUES ($1, $2); EXECUTE q(1, 2)", [A, D, A, H]),
    ("PREPARE q AS DELETE FROM t WHERE k = $1; EXECUTE q(1)", [A, D, D, H]),
    ("DEALLOCATE ALL", [A, A, A, A]),
    ("BEGIN; DECLARE c CURSOR FOR SELECT * FROM t", [A, A, D, H]),
    ("BEGIN; DECLARE c CURSOR FOR SELECT * FROM t; FETCH ALL FROM c", [A, A, D, H]),
    ("CLOSE ALL", [A, A, A, A]),
    ("DISCARD ALL", [A, A, A, A]),
    ("VACUUM t", [A, D, D, H]),
    ("BEGIN; LOCK TABLE t IN ACCESS SHARE MODE", [A, A, D, H]),
    ("ADMIN flush_table('t')", [A, D, D, H]),
    ("ADMIN compact_table('t')", [A, D, D, H]),
    ("ADMIN drain_node(1)", [A, D, D, D]),
    ("LISTEN jobs", [A, A, A, A]),
    ("NOTIFY jobs", [A, A, A, A]),
    ("UNLISTEN *", [A, A, A, A]),
    ("", [A, A, A, A]),
    ("CREATE ROLE fresh", [A, D, D, D]),
    ("SET ROLE NONE", [A, A, A, A]),
    ("CREATE TASK x SCHEDULE '@daily' AS INSERT INTO t SELECT k, v FROM t", [A, D, D, H]),
    ("SHOW TASKS", [A, A, A, A]),
    ("CREATE INDEX i ON t USING skipping (v)", [A, D, D, H]),
    ("DROP INDEX IF EXISTS i ON t", [A, D, D, A]),
    ("CREATE SEQUENCE s", [A, D, D, H]),
    ("ADVISE TABLE t", [A, A, D, H]),
];

fn give(access: &mut Access, target: Target, role: RoleId, actions: &[Action]) {
    let former = access.grant(target).map(|grant| grant.as_ref().clone());
    let mut grant = former.unwrap_or_else(|| Grant::new(target));
    let entry = GrantEntry {
        grantee: Grantee::Role(role),
        actions: Actions::of(actions),
        grantable: Actions::NONE,
        grantor: BOOTSTRAP_ROLE,
    };
    grant.grant(BOOTSTRAP_ROLE, entry).unwrap();
    access.put_grant(grant);
}

fn target(db: &Db) -> Target {
    Target::Table(db.frontend.catalog().table("public", "t").unwrap().id)
}

/// A table with two rows, a role that may read it, one that may write it, and one that may do nothing.
async fn world() -> Db {
    let db = Db::new();
    db.tag("CREATE TABLE t (k INT PRIMARY KEY, v INT)").await;
    db.tag("INSERT INTO t VALUES (1, 10), (2, 20)").await;
    let table = target(&db);
    db.fake.edit_access(|access| {
        for (id, name) in [(READER, "reader"), (WRITER, "writer"), (NOBODY, "nobody")] {
            access.put_role(Role { login: true, ..Role::new(id, name) });
        }
        give(access, table, READER, &[Action::Select]);
        let writes = [Action::Insert, Action::Update, Action::Delete, Action::Truncate];
        give(access, table, WRITER, &writes);
    });
    db
}

fn session_of(db: &Db, identity: Identity) -> Arc<Session> {
    let user = "name of the client".to_owned();
    db.frontend.session(SessionOptions { user, identity, ..SessionOptions::default() })
}

/// The same cluster in a session of a role.
fn acting(db: &Db, role: RoleId) -> Db {
    let access = db.frontend.access();
    let session = session_of(db, Identity::of_role(access.role(role).unwrap(), Door::Postgres));
    Db { fake: Arc::clone(&db.fake), frontend: Arc::clone(&db.frontend), session }
}

/// The same cluster in a session of a token of the superuser.
fn with_token(db: &Db, permission: Permission) -> Db {
    let token = Token {
        id: TokenId::new(7).unwrap(),
        sha256: [7; 32],
        verifier: VERIFIER.parse().unwrap(),
        description: String::new(),
        owner: BOOTSTRAP_ROLE,
        org: None,
        created_ms: 0,
        expires_ms: None,
        enabled: true,
        permissions: vec![permission],
    };
    let identity = Identity::of_token(&token, Door::Http);
    db.fake.edit_access(|access| access.put_token(token));
    let session = session_of(db, identity);
    Db { fake: Arc::clone(&db.fake), frontend: Arc::clone(&db.frontend), session }
}

async fn outcome(db: &Db, sql: &str) -> Outcome {
    let result = match db.try_run(sql).await {
        Ok(output) => collect(output).await.map(drop),
        Err(error) => Err(error),
    };
    match result {
        Ok(()) => A,
        Err(error) => match error.sqlstate.as_str() {
            "42501" => D,
            "42P01" | "3F000" => H,
            _ => panic!("{sql}: {error:?}"),
        },
    }
}

/// Name of a statement's variant.
fn kind(sql: &str) -> String {
    let statement = parser::parse(sql).unwrap().pop().unwrap();
    let text = format!("{statement:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap().to_owned()
}

/// Names of the variants of `Statement`, from its source.
fn kinds() -> BTreeSet<String> {
    let (_, rest) = STATEMENTS.split_once("pub enum Statement {\n").unwrap();
    let (body, _) = rest.split_once("\n}").unwrap();
    let names = body.lines().filter_map(|line| {
        let name = line.strip_prefix("    ")?.split(['(', ',']).next()?;
        name.starts_with(|c: char| c.is_ascii_uppercase()).then(|| name.to_owned())
    });
    names.collect()
}

#[test]
fn every_kind_of_statement_is_in_the_matrix() {
    let covered: BTreeSet<String> = MATRIX.iter().map(|(sql, _)| kind(sql)).collect();
    let kinds = kinds();
    assert!(kinds.len() > 30, "{kinds:?}");
    assert_eq!(kinds.difference(&covered).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[tokio::test]
async fn each_statement_is_allowed_exactly_to_those_who_may() {
    let roles = [BOOTSTRAP_ROLE, READER, WRITER, NOBODY];
    for (sql, expected) in MATRIX {
        let mut outcomes = Vec::new();
        for role in roles {
            let db = world().await;
            outcomes.push(outcome(&acting(&db, role), sql).await);
        }
        assert_eq!(outcomes, expected, "{sql}");
    }
}

#[tokio::test]
async fn a_hidden_table_is_like_one_that_does_not_exist() {
    let db = world().await;
    let nobody = acting(&db, NOBODY);
    for sql in ["SELECT * FROM t", "INSERT INTO t VALUES (1, 1)", "DESCRIBE t", "DROP TABLE t"] {
        let (hidden, missing) =
            (nobody.error(sql).await, nobody.error(&sql.replace(" t", " x")).await);
        let renamed = hidden.message.replace("\"t\"", "\"x\"").replace(".t", ".x");
        assert_eq!((hidden.sqlstate, renamed), (missing.sqlstate, missing.message), "{sql}");
    }
    assert_eq!(nobody.lines("SHOW DATABASES").await, ["information_schema", "sys"]);
    // What is skipped because it is hidden is still there.
    nobody.tag("DROP TABLE IF EXISTS t").await;
    nobody.tag("DROP DATABASE IF EXISTS public").await;
    assert_eq!(db.one("SELECT count(*) FROM t").await, "2");
}

#[tokio::test]
async fn a_table_that_was_not_checked_is_not_dropped() {
    let db = world().await;
    // The names mean other objects than those that the permit is for.
    let permit = db.permit();
    for (sql, expected) in [
        ("DROP TABLE t", Some("42P01")),
        ("DROP TABLE IF EXISTS t", None),
        ("TRUNCATE t", Some("42P01")),
        ("DROP DATABASE public", Some("3F000")),
        ("DROP DATABASE IF EXISTS public", None),
        ("SHOW PARTITIONS FROM t", Some("42501")),
    ] {
        let statement = parser::parse(sql).unwrap().pop().unwrap();
        let result = Box::pin(db.session.dispatch(&statement, &permit)).await;
        let code = result.err().map(|error| error.sqlstate);
        assert_eq!(code.as_deref(), expected, "{sql}");
    }
    assert_eq!(db.one("SELECT count(*) FROM t").await, "2");
}

#[tokio::test]
async fn many_rows_of_a_prepared_insert_are_checked() {
    let db = world().await;
    let reader = acting(&db, READER);
    let statement = parser::parse("INSERT INTO t VALUES (3, 3)").unwrap().pop().unwrap();
    let prepared = reader.session.prepare(statement, &[]).await.unwrap();
    for rows in [1, 2_000] {
        let rows = vec![Vec::new(); rows];
        let result = reader.session.run_prepared_many(&prepared, rows).await;
        assert_eq!(result.err().unwrap().sqlstate, "42501");
    }
    assert_eq!(db.one("SELECT count(*) FROM t").await, "2");
}

#[tokio::test]
async fn a_revoked_right_ends_with_the_next_statement() {
    let db = world().await;
    let reader = acting(&db, READER);
    reader.tag("PREPARE q AS SELECT count(*) FROM t").await;
    assert_eq!(reader.one("EXECUTE q").await, "2");
    reader.tag("BEGIN").await;
    reader.tag("DECLARE c CURSOR FOR SELECT * FROM t").await;
    assert_eq!(reader.rows("FETCH 1 FROM c").await.len(), 1);
    let table = target(&db);
    db.fake.edit_access(|access| access.drop_grant(table));
    assert_eq!(reader.error("EXECUTE q").await.sqlstate, "42P01");
    assert_eq!(reader.error("FETCH 1 FROM c").await.sqlstate, "42P01");
    db.fake.edit_access(|access| give(access, table, READER, &[Action::Select]));
    assert_eq!(reader.one("EXECUTE q").await, "2");
    assert_eq!(reader.rows("FETCH 1 FROM c").await.len(), 1);
}

#[tokio::test]
async fn a_copy_is_checked_for_each_batch() {
    let db = world().await;
    let writer = acting(&db, WRITER);
    let Output::CopyIn(copy) = writer.try_run("COPY t FROM STDIN").await.unwrap() else {
        panic!("no COPY")
    };
    assert_eq!(copy.permit().unwrap().role(), WRITER);
    db.fake.edit_access(|access| access.drop_role(WRITER));
    assert_eq!(copy.permit().unwrap_err().sqlstate, "28000");
}

/// Waits for the end of a session; returns its error.
async fn end_of(session: &Session) -> SqlError {
    tokio::time::timeout(END_MAX, session.until_ended()).await.unwrap()
}

#[tokio::test]
async fn a_dropped_role_ends_its_streams_and_cursors() {
    let db = world().await;
    let reader = acting(&db, READER);
    reader.tag("SET datafusion.execution.batch_size = 10").await;
    let endless = "SELECT * FROM generate_series(1, 100000000000)";
    reader.tag(&format!("DECLARE c CURSOR WITH HOLD FOR {endless}")).await;
    let Output::Rows { mut stream, .. } = reader.try_run(endless).await.unwrap() else {
        panic!("no rows")
    };
    assert!(stream.next().await.unwrap().is_ok());
    assert_eq!(reader.session.ended(), None);
    db.fake.edit_access(|access| access.drop_role(READER));
    let error = end_of(&reader.session).await;
    assert_eq!(error.sqlstate, "28000");
    let mut last = Ok(());
    while let Some(batch) = stream.next().await {
        last = batch.map(drop);
    }
    assert_eq!(last.unwrap_err(), error);
    for sql in ["FETCH 1 FROM c", "SELECT 1", "SELECT * FROM t", "ROLLBACK", ""] {
        assert_eq!(reader.error(sql).await, error, "{sql}");
    }
    // Others go on.
    assert_eq!(db.one("SELECT count(*) FROM t").await, "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_statement_ends_with_its_identity() {
    let db = world().await;
    let reader = acting(&db, READER);
    let session = Arc::clone(&reader.session);
    let sql = "SELECT count(*) FROM generate_series(1, 100000000000) WHERE value % 7 = 9";
    let running = tokio::spawn(async move { session.execute(sql).await.map(drop) });
    tokio::time::sleep(Duration::from_millis(100)).await;
    // Another password ends the sessions that began with the former one.
    db.fake.edit_access(|access| {
        let role = access.role(READER).unwrap().as_ref().clone();
        access.put_role(Role { secret_version: 1, ..role });
    });
    let result = tokio::time::timeout(END_MAX, running).await.unwrap().unwrap();
    assert_eq!(result.unwrap_err().sqlstate, "28000");
}

#[tokio::test]
async fn a_session_that_changes_its_password_goes_on() {
    let db = world().await;
    let (reader, other) = (acting(&db, READER), acting(&db, READER));
    for password in ["'first'", "'second'", "NULL", "NULL"] {
        reader.tag(&format!("ALTER ROLE reader PASSWORD {password}")).await;
        assert_eq!(reader.one("SELECT count(*) FROM t").await, "2");
    }
    assert_eq!(end_of(&other.session).await.sqlstate, "28000");
    // A change by somebody else ends it.
    db.tag("ALTER ROLE reader PASSWORD 'third'").await;
    assert_eq!(end_of(&reader.session).await.sqlstate, "28000");
    // An expectation that did not come true is taken back.
    let viewer = Arc::clone(acting(&db, READER).session.viewer());
    let version = viewer.identity().secret_version;
    drop(viewer.expect_secret());
    assert_eq!(viewer.identity().secret_version, version);
}

#[tokio::test]
async fn the_clock_ends_an_identity_too() {
    let db = world().await;
    let now = crate::access::viewer::now_ms();
    db.fake.edit_access(|access| {
        let role = access.role(READER).unwrap().as_ref().clone();
        access.put_role(Role { valid_until_ms: Some(now + 1_000), ..role });
    });
    let reader = acting(&db, READER);
    assert_eq!(reader.one("SELECT count(*) FROM t").await, "2");
    let error = end_of(&reader.session).await;
    assert!(error.message.contains("expired"), "{error:?}");
}

#[tokio::test]
async fn the_current_role_owns_what_it_creates() {
    let db = world().await;
    db.fake.edit_access(|access| {
        give(access, PUBLIC, WRITER, &[Action::Create]);
        access.put_role(Role { create_db: true, ..Role::new(RoleId(2_000), "makers") });
        let membership = Membership { role: RoleId(2_000), admin_option: false, inherit: false };
        let writer = access.role(WRITER).unwrap().as_ref().clone();
        access.put_role(Role { member_of: vec![membership], ..writer });
    });
    let writer = acting(&db, WRITER);
    writer.tag("CREATE TABLE u (k INT PRIMARY KEY)").await;
    assert_eq!(db.frontend.catalog().table("public", "u").unwrap().owner, WRITER);
    assert_eq!(writer.lines("SELECT session_user, current_user").await, ["writer|writer"]);
    writer.session.viewer().act_as(Some(RoleId(2_000)));
    assert_eq!(writer.lines("SELECT session_user, current_user").await, ["writer|makers"]);
    // The rights of the writer are not those of its current role.
    assert_eq!(writer.error("SELECT * FROM u").await.sqlstate, "42P01");
    writer.tag("CREATE DATABASE made").await;
    assert_eq!(db.frontend.catalog().databases["made"].owner, RoleId(2_000));
    writer.tag("DISCARD ALL").await;
    assert_eq!(writer.one("SELECT current_user").await, "writer");
    writer.tag("DROP TABLE u").await;
}

#[tokio::test]
async fn a_granted_right_is_not_given_on_as_an_attribute() {
    let db = world().await;
    db.fake.edit_access(|access| {
        give(access, Target::Cluster, WRITER, &[Action::CreateRole, Action::Create]);
    });
    let writer = acting(&db, WRITER);
    writer.tag("CREATE ROLE plain").await;
    for attribute in ["CREATEDB", "CREATEROLE"] {
        let error = writer.error(&format!("CREATE ROLE fresh {attribute}")).await;
        assert_eq!(error.sqlstate, "42501", "{attribute}");
    }
}

#[tokio::test]
async fn the_name_of_the_client_is_kept_while_there_is_no_password() {
    let db = world().await;
    let anyone = acting(&db, BOOTSTRAP_ROLE);
    let names = "SELECT session_user, current_user";
    assert_eq!(anyone.lines(names).await, ["name of the client|name of the client"]);
    db.fake.edit_access(|access| {
        let role = access.role(BOOTSTRAP_ROLE).unwrap().as_ref().clone();
        let verifier = Some(VERIFIER.parse().unwrap());
        access.put_role(Role { verifier, secret_version: 1, ..role });
    });
    assert_eq!(acting(&db, BOOTSTRAP_ROLE).lines(names).await, ["partita|partita"]);
    // Whoever began without a password goes.
    assert_eq!(anyone.error("SELECT 1").await.sqlstate, "28000");
}

#[tokio::test]
async fn the_catalog_of_a_superuser_is_not_copied() {
    let db = world().await;
    db.tag("CREATE TABLE hidden (k INT PRIMARY KEY)").await;
    let catalog = db.frontend.catalog();
    assert!(Arc::ptr_eq(&db.session.catalog(), &catalog));
    let (reader, writer) = (acting(&db, READER), acting(&db, READER));
    assert!(!Arc::ptr_eq(&reader.session.catalog(), &catalog));
    // Sessions of one identity share theirs.
    assert!(Arc::ptr_eq(&reader.session.catalog(), &writer.session.catalog()));
}

#[tokio::test]
async fn settings_of_a_role_are_those_of_its_sessions() {
    let db = world().await;
    db.fake.edit_access(|access| {
        let mut role = access.role(READER).unwrap().as_ref().clone();
        for (name, value) in [("statement_timeout", "7s"), ("unknown", "x")] {
            role.settings.insert(name.to_owned(), value.to_owned());
        }
        access.put_role(role);
    });
    let reader = acting(&db, READER);
    assert_eq!(reader.session.statement_timeout(), Some(Duration::from_secs(7)));
    assert_eq!(reader.one("SHOW is_superuser").await, "off");
    assert_eq!(db.one("SHOW is_superuser").await, "on");
}

#[tokio::test]
async fn keys_of_all_rows_are_not_shown_to_a_token_for_some() {
    let db = world().await;
    let term = Term { column: "k".to_owned(), values: vec![Value::Int(1)] };
    let rows = Some(RowPredicate::new(vec![term]).unwrap());
    let scope = Scope::Bucket { database: DatabaseId(1), rows };
    let some = with_token(&db, Permission { mode: Mode::Read, scope });
    assert_eq!(some.lines("SELECT k FROM t").await, ["1"]);
    for sql in ["SHOW PARTITIONS FROM t", "EXPLAIN HOTSPOT t"] {
        assert_eq!(outcome(&some, sql).await, D, "{sql}");
    }
    let catalog = db.frontend.catalog();
    let table = catalog.table("public", "t").unwrap();
    let viewer = some.session.viewer();
    let object = Object::Table {
        database: Arc::clone(&catalog.databases["public"]),
        table: Arc::clone(table),
    };
    let permit = viewer.check(&[Need::new(Action::Select, object)]).unwrap();
    let request = HeatmapRequest { table: table.id, ..HeatmapRequest::default() };
    assert_eq!(db.frontend.heatmap(&permit, request).await.unwrap_err().sqlstate, "42501");
}

#[tokio::test]
async fn a_prepared_query_returns_the_rows_that_its_token_may_read_now() {
    let db = world().await;
    let permission = |value: i64| {
        let term = Term { column: "k".to_owned(), values: vec![Value::Int(value)] };
        let rows = Some(RowPredicate::new(vec![term]).unwrap());
        Permission { mode: Mode::Read, scope: Scope::Bucket { database: DatabaseId(1), rows } }
    };
    let some = with_token(&db, permission(1));
    some.tag("PREPARE q AS SELECT k FROM t").await;
    assert_eq!(some.lines("EXECUTE q").await, ["1"]);
    db.fake.edit_access(|access| {
        let token = access.token(TokenId::new(7).unwrap()).unwrap().as_ref().clone();
        access.put_token(Token { permissions: vec![permission(2)], ..token });
    });
    assert_eq!(some.lines("EXECUTE q").await, ["2"]);
}

#[tokio::test]
async fn a_token_that_writes_may_delete_by_predicate() {
    let db = world().await;
    let scope = Scope::Bucket { database: DatabaseId(1), rows: None };
    let writer = with_token(&db, Permission { mode: Mode::Write, scope });
    assert_eq!(outcome(&writer, "SELECT * FROM t").await, D);
    assert_eq!(writer.tag("DELETE FROM t WHERE k = 1").await, "DELETE 1");
    // Predicates that tell about values, or read something, need SELECT.
    for predicate in ["v = 20", "k IN (SELECT 2)", "k = 2 OR v = 1", "k + 0 = 2", "NOT k = 1"] {
        let sql = format!("DELETE FROM t WHERE {predicate}");
        assert_eq!(outcome(&writer, &sql).await, D, "{sql}");
    }
    assert_eq!(cells(&db.batches("SELECT count(*) FROM t").await), [["1"]]);
    let sql = "DELETE FROM t AS x WHERE (x.k >= -5 AND k IN (1, 2)) AND k BETWEEN 2 AND 3";
    assert_eq!(writer.tag(sql).await, "DELETE 1");
}

#[tokio::test]
async fn boundaries_are_shown_to_those_who_see_all_rows() {
    let db = world().await;
    db.tag("ALTER TABLE t SPLIT AT ((5))").await;
    let table = "SHOW CREATE TABLE t";
    let insert = "EXPLAIN INSERT INTO t VALUES (1, 1)";
    assert!(db.lines(table).await.join("\n").contains("SPLIT AT"));
    assert!(db.lines(insert).await.join("\n").contains("partitions="));
    let writer = acting(&db, WRITER);
    let shown = writer.lines(table).await.join("\n");
    assert!(shown.contains("PRIMARY KEY") && !shown.contains("SPLIT AT"), "{shown}");
    let shown = writer.lines(insert).await.join("\n");
    assert!(shown.contains("Ingest: table=public.t") && !shown.contains("partitions="), "{shown}");
}

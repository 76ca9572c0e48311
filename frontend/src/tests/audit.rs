//! The audit: changes, orders, refusals and statements, with who did them, and who sees the entries.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use partita_proto::access::{Action, Door, Identity, Need, Object};

use super::Db;
use crate::access::peer;
use crate::audit::{AuditOptions, Outcome};
use crate::{FrontendOptions, SessionOptions};

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
/// Passwords that must not be found anywhere.
const PASSWORDS: [&str; 2] = ["Tr0ub4dor", "correct horse"];

/// A table, and a role that may read it.
async fn world() -> Db {
    let db = Db::new();
    db.tag("CREATE TABLE t (k INT PRIMARY KEY, v INT)").await;
    db.tag(&format!("CREATE ROLE ann LOGIN PASSWORD '{}'", PASSWORDS[0])).await;
    db.tag("GRANT SELECT ON t TO ann").await;
    db
}

/// The same cluster in a session of the role `ann`.
fn ann(db: &Db) -> Db {
    let access = db.frontend.access();
    let identity = Identity::of_role(access.role_by_name("ann").unwrap(), Door::Http);
    let session = db.frontend.session(SessionOptions { identity, ..SessionOptions::default() });
    Db { fake: Arc::clone(&db.fake), frontend: Arc::clone(&db.frontend), session }
}

/// Entries of one action: kind, user, object, outcome, SQLSTATE.
async fn of_action(db: &Db, action: &str) -> Vec<String> {
    let columns = "kind, \"user\", object, outcome, sqlstate";
    db.lines(&format!("SELECT {columns} FROM sys.audit WHERE action = '{action}'")).await
}

#[tokio::test]
async fn changes_are_recorded_with_their_author_and_without_secrets() {
    let db = world().await;
    db.tag("CREATE DATABASE d").await;
    db.tag("ALTER TABLE t ADD COLUMN w INT").await;
    db.tag(&format!("ALTER ROLE ann PASSWORD '{}'", PASSWORDS[1])).await;
    db.error("CREATE TABLE t (k INT PRIMARY KEY)").await;
    // Nothing was to be done.
    db.tag("CREATE DATABASE IF NOT EXISTS d").await;
    for (action, expected) in [
        ("CREATE DATABASE", vec!["ddl|partita|database d|done|00000"]),
        (
            "CREATE TABLE",
            vec!["ddl|partita|table t|done|00000", "ddl|partita|table t|failed|42P07"],
        ),
        ("ALTER TABLE", vec!["ddl|partita|table t|done|00000"]),
        ("CREATE ROLE", vec!["access|partita|role ann|done|00000"]),
        ("ALTER ROLE", vec!["access|partita|role ann|done|00000"]),
        ("GRANT", vec!["access|partita|table t|done|00000"]),
    ] {
        assert_eq!(of_action(&db, action).await, expected, "{action}");
    }
    let detail = |action| format!("SELECT detail FROM sys.audit WHERE action = '{action}'");
    assert_eq!(db.one(&detail("ALTER TABLE")).await, "ADD COLUMN w");
    assert_eq!(db.one(&detail("GRANT")).await, "SELECT TO ann");
    assert_eq!(db.one(&detail("ALTER ROLE")).await, "PASSWORD");
    let text = format!("{:?}", db.frontend.audit().entries());
    for password in PASSWORDS {
        assert!(!text.contains(password), "{password}");
    }
    assert!(!text.contains("SCRAM"), "{text}");
}

#[tokio::test]
async fn orders_are_recorded() {
    let db = world().await;
    db.tag("ADMIN drain_node(1)").await;
    db.tag("ADMIN flush_table('t')").await;
    assert_eq!(of_action(&db, "DRAIN NODE").await, ["admin|partita|node 1|done|00000"]);
    assert_eq!(of_action(&db, "FLUSH TABLE").await, ["admin|partita|table t|done|00000"]);
}

#[tokio::test]
async fn refusals_are_counted_and_everybody_sees_their_own() {
    let db = world().await;
    let reader = ann(&db);
    for _ in 0..100 {
        reader.error("DROP TABLE t").await;
    }
    let identity = reader.session.identity();
    let create = [Need::new(Action::Create, Object::Cluster)];
    db.frontend.authorize(&identity, &create).unwrap_err();
    // A table that does not exist is no refusal.
    reader.error("SELECT * FROM missing").await;
    let own = "SELECT action, door, outcome, sqlstate, count FROM sys.audit ORDER BY action, count";
    let expected = [
        "DROP TABLE|http|refused|42501|1",
        "DROP TABLE|http|refused|42501|99",
        "REQUEST|http|refused|42501|1",
    ];
    assert_eq!(reader.lines(own).await, expected);
    let all = "SELECT count(DISTINCT action), sum(count) FROM sys.audit WHERE \"user\" = ";
    assert_eq!(db.lines(&format!("{all}'ann'")).await, ["2|101"]);
    assert_eq!(db.lines(&format!("{all}'partita'")).await, ["3|3"]);
}

#[tokio::test]
async fn statements_are_recorded_by_an_option() {
    let db = world().await;
    db.one("SELECT 1").await;
    assert!(of_action(&db, "SELECT").await.is_empty());

    let audit = AuditOptions { statements: true, ..AuditOptions::default() };
    let db = Db::with(FrontendOptions { audit, ..FrontendOptions::default() });
    db.one("SELECT 1").await;
    db.error("SELECT * FROM missing").await;
    let entries = db.frontend.audit().entries();
    let statements: Vec<_> = entries.iter().filter(|entry| entry.action == "SELECT").collect();
    assert_eq!(statements[0].detail.as_deref(), Some("SELECT 1"));
    assert_eq!(statements[0].database.as_deref(), Some("public"));
    let outcomes: Vec<_> = statements.iter().map(|entry| entry.outcome).collect();
    assert_eq!(outcomes, [Outcome::Done, Outcome::Failed]);
}

#[tokio::test]
async fn an_entry_has_the_address_of_the_client() {
    let db = world().await;
    let session =
        peer::within(PEER, async { db.frontend.session(SessionOptions::default()) }).await;
    // Statements run on other threads, after the address was set.
    session.execute("CREATE DATABASE d").await.unwrap();
    let peers = "SELECT peer, door FROM sys.audit WHERE action = 'CREATE DATABASE'";
    assert_eq!(db.lines(peers).await, [format!("{PEER}|internal")]);
    let other = "SELECT peer FROM sys.audit WHERE action = 'CREATE TABLE'";
    assert_eq!(db.one(other).await, "NULL");
}

#[tokio::test]
async fn the_acting_role_is_named_beside_the_user() {
    let db = world().await;
    db.tag("GRANT CREATE ON CLUSTER TO ann").await;
    db.tag("SET ROLE ann").await;
    db.tag("CREATE DATABASE d").await;
    db.tag("RESET ROLE").await;
    let names = "SELECT \"user\", role FROM sys.audit WHERE action = 'CREATE DATABASE'";
    assert_eq!(db.lines(names).await, ["partita|ann"]);
}

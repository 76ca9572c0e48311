//! Settings of a role (ALTER ROLE .. SET): the defaults of its sessions.

use std::sync::Arc;

use partita_proto::access::{Door, Identity};

use super::Db;
use crate::SessionOptions;

impl Db {
    /// A new session of a role.
    fn session_of(&self, role: &str, application: &str) -> Self {
        let access = Arc::clone(&self.frontend.catalog().access);
        let identity = Identity::of_role(access.role_by_name(role).unwrap(), Door::Postgres);
        let application = application.to_owned();
        let options = SessionOptions { identity, application, ..SessionOptions::default() };
        let (fake, frontend) = (Arc::clone(&self.fake), Arc::clone(&self.frontend));
        let session = frontend.session(options);
        Self { fake, frontend, session }
    }
}

const BATCH: &str = "datafusion.execution.batch_size";

/// A setting, the default of the role, what SHOW returns for it, and another value.
const SETTINGS: &[(&str, &str, &str, &str)] = &[
    ("statement_timeout", "5s", "5s", "7s"),
    ("default_transaction_read_only", "yes", "on", "off"),
    ("timezone", "Europe/Paris", "Europe/Paris", "Asia/Tokyo"),
    ("application_name", "of the role", "of the role", "another"),
    ("read_consistency", "bounded_stale", "bounded", "linearizable"),
    ("run_at_data", "off", "off", "on"),
    ("search_path", "nowhere, d", "d", "public"),
    ("my.own", "1", "1", "2"),
];

async fn world() -> Db {
    let db = Db::new();
    db.tag("CREATE DATABASE d").await;
    db.tag("CREATE ROLE ada LOGIN SUPERUSER").await;
    for (name, default, _, _) in SETTINGS {
        db.tag(&format!("ALTER ROLE ada SET {name} = '{default}'")).await;
    }
    db
}

#[tokio::test]
async fn a_session_begins_with_the_settings_of_its_role() {
    let db = world().await;
    let ada = db.session_of("ada", "");
    for (name, _, shown, _) in SETTINGS {
        assert_eq!(ada.one(&format!("SHOW {name}")).await, *shown, "{name}");
    }
    // The client's own name of the application precedes that of its role.
    let named = db.session_of("ada", "psql");
    for change in ["SET application_name = 'another'", "RESET application_name", "RESET ALL"] {
        named.tag(change).await;
        let expected = if change.starts_with("SET") { "another" } else { "psql" };
        assert_eq!(named.one("SHOW application_name").await, expected, "{change}");
    }
}

#[tokio::test]
async fn the_settings_of_the_client_are_the_defaults_of_its_session() {
    let db = world().await;
    let ada = db.session_of("ada", "");
    let of_client = [("statement_timeout", "9s"), ("my.own", "3"), (BATCH, "77")];
    for (name, value) in of_client {
        ada.session.set_default(name, value).unwrap();
    }
    assert_eq!(ada.session.set_default("nothing", "1").unwrap_err().sqlstate, "42704");
    for reset in ["RESET ALL", "DISCARD ALL", ""] {
        for (name, value) in of_client {
            ada.tag(&format!("SET {name} = '55'")).await;
            let one = format!("RESET {name}");
            ada.tag(if reset.is_empty() { &one } else { reset }).await;
            assert_eq!(ada.one(&format!("SHOW {name}")).await, value, "{name} after {reset}");
        }
    }
    // A default of the role that the client says nothing about stays.
    assert_eq!(ada.one("SHOW timezone").await, "Europe/Paris");
}

#[tokio::test]
async fn a_reset_goes_back_to_the_database_that_the_client_named() {
    let db = world().await;
    let options = SessionOptions { database: "d".to_owned(), ..SessionOptions::default() };
    let (fake, frontend) = (Arc::clone(&db.fake), Arc::clone(&db.frontend));
    let session = frontend.session(options);
    let of_d = Db { fake, frontend, session };
    for reset in ["RESET search_path", "RESET ALL", "DISCARD ALL"] {
        of_d.tag("USE public").await;
        of_d.tag(reset).await;
        assert_eq!(of_d.one("SELECT current_schema()").await, "d", "{reset}");
    }
}

#[tokio::test]
async fn reset_goes_back_to_the_setting_of_the_role() {
    let db = world().await;
    let ada = db.session_of("ada", "");
    for (name, _, shown, other) in SETTINGS {
        for reset in [format!("RESET {name}"), format!("SET {name} TO DEFAULT")] {
            ada.tag(&format!("SET {name} = '{other}'")).await;
            assert_eq!(ada.one(&format!("SHOW {name}")).await, *other);
            ada.tag(&reset).await;
            assert_eq!(ada.one(&format!("SHOW {name}")).await, *shown, "{reset}");
        }
    }
    // What follows from a setting is reset too.
    assert_eq!(ada.one("SELECT current_schema()").await, "d");
    assert_eq!(ada.error("CREATE TABLE t (k INT PRIMARY KEY)").await.sqlstate, "25006");
}

#[tokio::test]
async fn reset_all_goes_back_to_the_settings_of_the_role() {
    let db = world().await;
    let ada = db.session_of("ada", "");
    for reset in ["RESET ALL", "DISCARD ALL"] {
        for (name, _, _, other) in SETTINGS {
            ada.tag(&format!("SET {name} = '{other}'")).await;
        }
        ada.tag(&format!("SET {BATCH} = 78")).await;
        ada.tag(reset).await;
        for (name, _, shown, _) in SETTINGS {
            assert_eq!(ada.one(&format!("SHOW {name}")).await, *shown, "{name} after {reset}");
        }
        assert_eq!(ada.one(&format!("SHOW {BATCH}")).await, "8192");
    }
    // Those of others are the server's.
    db.tag("SET statement_timeout = '7s'").await;
    db.tag("RESET ALL").await;
    assert_eq!(db.one("SHOW statement_timeout").await, "0");
    assert_eq!(db.one("SHOW search_path").await, "public");
}

#[tokio::test]
async fn a_session_keeps_the_defaults_that_it_began_with() {
    let db = world().await;
    let ada = db.session_of("ada", "");
    db.tag("ALTER ROLE ada SET statement_timeout = '6s'").await;
    ada.tag("RESET statement_timeout").await;
    assert_eq!(ada.one("SHOW statement_timeout").await, "5s");
    assert_eq!(db.session_of("ada", "").one("SHOW statement_timeout").await, "6s");
}

//! Changes by name, while the name passes to another object between the check and the change.

use std::sync::Arc;
use std::time::Duration;

use partita_proto::access::{Action, Need, Object, Permit};
use partita_proto::placement::Placement;
use partita_proto::service::{Ddl, NamedObject, NewTable, TableChange};

use super::Db;

impl Db {
    /// A permit for a table or a database that exists.
    fn permit_for(&self, action: Action, object: Object) -> Permit {
        self.session.viewer().check(&[Need::new(action, object)]).unwrap()
    }

    fn table_object(&self, name: &str) -> Object {
        let table = self.frontend.catalog().table("public", name).cloned().unwrap();
        self.session.viewer().object(&table).unwrap()
    }

    fn database_object(&self, name: &str) -> Object {
        Object::Database(Arc::clone(&self.frontend.catalog().databases[name]))
    }

    /// SQLSTATE with which a change is refused.
    async fn refusal(&self, permit: &Permit, ddl: Ddl) -> String {
        self.frontend.change(permit, ddl).await.unwrap_err().sqlstate
    }
}

fn drop_table(name: &str, if_exists: bool) -> Ddl {
    let (database, name) = ("public".to_owned(), name.to_owned());
    Ddl::DropTable { database, name, if_exists, cascade: false }
}

fn changes_of(name: &str) -> Vec<Ddl> {
    let (database, name) = ("public".to_owned(), name.to_owned());
    let change = TableChange::Rename("u".to_owned());
    vec![
        drop_table(&name, false),
        Ddl::TruncateTable { database: database.clone(), name: name.clone() },
        Ddl::AlterTable { database, name, change },
    ]
}

#[tokio::test]
async fn a_permit_is_for_the_table_that_was_checked() {
    let db = Db::new();
    db.tag("CREATE TABLE t (k INT PRIMARY KEY)").await;
    let object = db.table_object("t");
    let Object::Table { table, .. } = &object else { panic!("{object:?}") };
    let former = NamedObject::Table(table.id);
    let permit = db.permit_for(Action::Own, object);
    // Another client's table gets the name.
    db.tag("DROP TABLE t").await;
    db.tag("CREATE TABLE t (k INT PRIMARY KEY)").await;
    db.tag("INSERT INTO t VALUES (7)").await;
    for ddl in changes_of("t") {
        // In the frontend, which knows the newer table, and in meta, if it is created later still.
        assert_eq!(db.refusal(&permit, ddl.clone()).await, "42P01", "{ddl:?}");
        assert_eq!(db.refusal(&permit, ddl.clone().checked(former)).await, "42P01", "{ddl:?}");
    }
    let drop = drop_table("t", true);
    assert!(!db.frontend.change(&permit, drop.clone()).await.unwrap());
    assert!(!db.frontend.change(&permit, drop.clone().checked(former)).await.unwrap());
    assert_eq!(db.one("SELECT k FROM t").await, "7");
    let permit = db.permit_for(Action::Own, db.table_object("t"));
    assert!(db.frontend.change(&permit, drop).await.unwrap());
    assert_eq!(db.error("SELECT k FROM t").await.sqlstate, "42P01");
}

#[tokio::test]
async fn a_permit_is_for_the_database_that_was_checked() {
    let db = Db::new();
    db.tag("CREATE DATABASE d").await;
    let own = db.permit_for(Action::Own, db.database_object("d"));
    let create = db.permit_for(Action::Create, db.database_object("d"));
    db.tag("CREATE TABLE d.t (k INT PRIMARY KEY)").await;
    let schema = db.frontend.catalog().table("d", "t").unwrap().schema.as_ref().clone();
    db.tag("DROP DATABASE d").await;
    db.tag("CREATE DATABASE d").await;
    let name = || "d".to_owned();
    let drop = Ddl::DropDatabase { name: name(), if_exists: false };
    let alter = Ddl::AlterDatabase { name: name(), ttl: Some(Duration::from_secs(86_400)) };
    for ddl in [drop, alter, Ddl::MakeExplicit { name: name() }] {
        assert_eq!(db.refusal(&own, ddl.clone()).await, "3F000", "{ddl:?}");
    }
    let table = NewTable {
        database: name(),
        name: "t".to_owned(),
        schema,
        placement: Placement::Range,
        cuts: Vec::new(),
        owner: create.role(),
        copy_of: None,
        rekeys: false,
        sequences: Vec::new(),
    };
    let new = |if_not_exists| Ddl::CreateTable { table: Box::new(table.clone()), if_not_exists };
    assert_eq!(db.refusal(&create, new(false)).await, "3F000");
    assert_eq!(db.refusal(&create, new(true)).await, "3F000");
    let present = db.permit_for(Action::Create, db.database_object("d"));
    assert!(db.frontend.change(&present, new(false)).await.unwrap());
    // There is nothing left to create.
    assert!(!db.frontend.change(&create, new(true)).await.unwrap());
    assert_eq!(db.refusal(&present, new(false)).await, "42P07");
}

#[tokio::test]
async fn a_new_database_is_for_the_permit_that_created_it() {
    let db = Db::new();
    let permit = db.permit_for(Action::Create, Object::Cluster);
    let (name, owner) = ("d".to_owned(), permit.role());
    let create = Ddl::CreateDatabase { name: name.clone(), if_not_exists: false, ttl: None, owner };
    assert!(db.frontend.change(&permit, create).await.unwrap());
    assert!(db.frontend.change(&permit, Ddl::MakeExplicit { name }).await.unwrap());
    // But what else is done to it needs a check of its own.
    let drop = Ddl::DropDatabase { name: "d".to_owned(), if_exists: false };
    assert_eq!(db.refusal(&permit, drop).await, "3F000");
}

#[tokio::test]
async fn a_statement_of_several_changes_follows_the_name() {
    let db = Db::new();
    db.tag("CREATE TABLE t (k INT PRIMARY KEY)").await;
    db.tag("ALTER TABLE t ADD COLUMN a INT, ADD COLUMN b INT").await;
    db.tag("ALTER TABLE t RENAME TO u").await;
    db.tag("CREATE TABLE t (k INT PRIMARY KEY)").await;
    db.tag("DROP TABLE t, u").await;
    assert!(db.frontend.catalog().table("public", "u").is_none());
}

//! System tables list what their viewer may see: tables and figures, the work of others, roles, rights and tokens.

use std::sync::Arc;

use partita_proto::access::{
    Action, Actions, Door, Grant, GrantEntry, Grantee, Identity, Mode, Permission, Role,
    RowPredicate, Scope, Target, Term, Token,
};
use partita_proto::id::{BOOTSTRAP_ROLE, RoleId, TokenId};
use partita_proto::value::Value;

use super::{Db, cells, collect};
use crate::{Session, SessionOptions};

const READER: RoleId = RoleId(1_001);
const WRITER: RoleId = RoleId(1_002);
const VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
    WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

fn identity(login: RoleId, token: Option<TokenId>) -> Identity {
    Identity { login, acting: None, token, secret_version: 0, org: None, door: Door::Postgres }
}

/// Two tables; a role that reads one, a role that writes to it, and a token of the superuser that reads some rows.
struct World {
    db: Db,
    reader: Arc<Session>,
    writer: Arc<Session>,
    token: Arc<Session>,
}

impl World {
    async fn new() -> Self {
        let db = Db::new();
        for name in ["t", "secret"] {
            db.tag(&format!("CREATE TABLE {name} (k INT PRIMARY KEY, v INT)")).await;
            db.tag(&format!("INSERT INTO {name} VALUES (1, 10), (2, 20)")).await;
        }
        db.one("SELECT count(*) FROM secret").await;
        let catalog = db.frontend.catalog();
        let table = Target::Table(catalog.table("public", "t").unwrap().id);
        let term = Term { column: "k".to_owned(), values: vec![Value::Int(1)] };
        let scope = Scope::Bucket {
            database: catalog.databases["public"].id,
            rows: Some(RowPredicate::new(vec![term]).unwrap()),
        };
        let token = TokenId::new(7).unwrap();
        db.fake.edit_access(|access| {
            let mut grant = Grant::new(table);
            for (id, name, action) in
                [(READER, "reader", Action::Select), (WRITER, "writer", Action::Insert)]
            {
                access.put_role(Role { login: true, ..Role::new(id, name) });
                let entry = GrantEntry {
                    grantee: Grantee::Role(id),
                    actions: Actions::of(&[action]),
                    grantable: Actions::NONE,
                    grantor: BOOTSTRAP_ROLE,
                };
                grant.grant(BOOTSTRAP_ROLE, entry).unwrap();
            }
            access.put_grant(grant);
            access.put_token(Token {
                id: token,
                sha256: [7; 32],
                verifier: VERIFIER.parse().unwrap(),
                description: "sensor".to_owned(),
                owner: BOOTSTRAP_ROLE,
                org: None,
                created_ms: 0,
                expires_ms: None,
                enabled: true,
                permissions: vec![Permission { mode: Mode::Read, scope }],
            });
        });
        let session = |identity| {
            db.frontend.session(SessionOptions { identity, ..SessionOptions::default() })
        };
        let reader = session(identity(READER, None));
        let writer = session(identity(WRITER, None));
        let token = session(identity(BOOTSTRAP_ROLE, Some(token)));
        Self { db, reader, writer, token }
    }
}

async fn lines(session: &Arc<Session>, sql: &str) -> Vec<String> {
    let output = session.execute(sql).await.unwrap().pop().unwrap();
    let rows = cells(&collect(output).await.unwrap());
    rows.into_iter().map(|row| row.join("|")).collect()
}

#[tokio::test]
async fn what_may_not_be_seen_is_not_listed() {
    let world = World::new().await;
    for (session, names) in [
        (&world.reader, vec!["t"]),
        (&world.writer, vec!["t"]),
        (&world.token, vec!["secret", "t"]),
    ] {
        for sql in [
            "SELECT \"table\" FROM sys.tables ORDER BY 1",
            "SELECT table_name FROM information_schema.tables ORDER BY 1",
            "SELECT DISTINCT table_name FROM information_schema.columns ORDER BY 1",
            "SELECT table_name FROM information_schema.table_constraints ORDER BY 1",
            "SELECT DISTINCT table_name FROM information_schema.key_column_usage ORDER BY 1",
            "SELECT table_name FROM information_schema.constraint_table_usage ORDER BY 1",
            "SELECT DISTINCT table_name FROM information_schema.constraint_column_usage ORDER BY 1",
        ] {
            assert_eq!(lines(session, sql).await, names, "{sql}");
        }
    }
}

#[tokio::test]
async fn figures_are_for_those_who_see_all_rows() {
    let world = World::new().await;
    let figures = "SELECT partitions IS NULL, \"rows\" IS NULL, bytes IS NULL \
                   FROM sys.tables WHERE \"table\" = 't'";
    assert_eq!(lines(&world.reader, figures).await, ["false|false|false"]);
    for session in [&world.writer, &world.token] {
        assert_eq!(lines(session, figures).await, ["true|true|true"]);
    }
    for table in ["partitions", "replicas", "partition_stats"] {
        let sql = format!("SELECT count(*) > 0 FROM sys.{table}");
        assert_eq!(lines(&world.db.session, &sql).await, ["true"], "{table}");
        assert_eq!(lines(&world.reader, &sql).await, ["true"], "{table}");
        for session in [&world.writer, &world.token] {
            assert_eq!(lines(session, &sql).await, ["false"], "{table}");
        }
    }
    let bounds = "SELECT DISTINCT table_name FROM information_schema.partitions";
    assert_eq!(lines(&world.reader, bounds).await, ["t"]);
    assert_eq!(lines(&world.token, bounds).await, [""; 0]);
}

#[tokio::test]
async fn the_work_of_others_is_for_those_who_monitor() {
    let world = World::new().await;
    for table in ["nodes", "counters"] {
        let sql = format!("SELECT count(*) > 0 FROM sys.{table}");
        for session in [&world.reader, &world.writer, &world.token] {
            assert_eq!(lines(session, &sql).await, ["false"], "{table}");
        }
    }
    let counters = "SELECT count(*) > 0 FROM sys.counters";
    assert_eq!(lines(&world.db.session, counters).await, ["true"]);
    // The token's owner has run statements, but not with the token.
    let texts = "SELECT text FROM sys.query_log WHERE kind = 'SELECT'";
    let own = ["nodes", "counters"].map(|table| format!("SELECT count(*) > 0 FROM sys.{table}"));
    for session in [&world.reader, &world.token] {
        assert_eq!(lines(session, texts).await, own);
        assert_eq!(lines(session, texts).await, [&own[0], &own[1], texts]);
    }
    assert!(
        lines(&world.db.session, texts).await.contains(&"SELECT count(*) FROM secret".to_owned())
    );
}

#[tokio::test]
async fn roles_rights_and_tokens_are_listed_without_secrets() {
    let world = World::new().await;
    let roles = "SELECT role FROM sys.roles ORDER BY role_id";
    assert_eq!(lines(&world.reader, roles).await, ["partita", "reader", "writer"]);
    // A token with a part of its owner's rights learns nothing of its neighbours.
    assert_eq!(lines(&world.token, roles).await, ["partita"]);
    let grants = "SELECT object, database, \"table\", grantee, grantor, privilege, grantable \
                  FROM sys.grants ORDER BY grantee";
    let all = [
        "table|public|t|reader|partita|SELECT|false",
        "table|public|t|writer|partita|INSERT|false",
    ];
    assert_eq!(lines(&world.db.session, grants).await, all);
    assert_eq!(lines(&world.token, grants).await, [""; 0]);
    let tokens = "SELECT token_id, description, owner, permissions, enabled FROM sys.tokens";
    assert_eq!(
        lines(&world.db.session, tokens).await,
        ["0000000000000007|sensor|partita|read bucket \"public\" where \"k\" = 1|true"]
    );
    for session in [&world.reader, &world.token] {
        assert_eq!(lines(session, tokens).await, [""; 0]);
    }
    for table in ["roles", "tokens", "grants"] {
        let rows = lines(&world.db.session, &format!("SELECT * FROM sys.{table}")).await.join("\n");
        assert!(!rows.contains("SCRAM") && !rows.contains("W22Z"), "{rows}");
    }
}

#[tokio::test]
async fn the_standard_views_of_rights_show_those_of_the_viewer() {
    let world = World::new().await;
    let rights = "SELECT grantor, grantee, table_name, privilege_type, is_grantable \
                  FROM information_schema.table_privileges";
    assert_eq!(lines(&world.reader, rights).await, ["partita|reader|t|SELECT|NO"]);
    let roles = "SELECT role_name FROM information_schema.enabled_roles";
    assert_eq!(lines(&world.reader, roles).await, ["reader"]);
    let owners =
        "SELECT schema_owner FROM information_schema.schemata WHERE schema_name = 'public'";
    assert_eq!(lines(&world.reader, owners).await, ["partita"]);
}

#[tokio::test]
async fn show_grants_shows_what_the_tables_of_rights_show() {
    let world = World::new().await;
    world.db.tag("CREATE ROLE maker").await;
    world.db.tag("GRANT CREATE ON CLUSTER TO maker").await;
    let all = lines(&world.db.session, "SHOW GRANTS").await.join("\n");
    assert!(all.contains("cluster") && all.contains("reader"), "{all}");
    let seen = lines(&world.reader, "SHOW GRANTS").await.join("\n");
    assert!(!seen.contains("cluster") && seen.contains("reader"), "{seen}");
    assert_eq!(lines(&world.token, "SHOW GRANTS").await, [""; 0]);
    let error = world.token.execute("SHOW GRANTS FOR reader").await.err().unwrap();
    assert_eq!(error.sqlstate, "42704");
}

//! Statements by both of PostgreSQL's protocols, and the tables of `pg_catalog`, for each kind of identity of a cluster
//! with two organisations.
//!
//! The tables are written by hand. A table of `pg_catalog` that they lack must name nothing of an organisation.

use partita_frontend::access::authenticator::verifier_of;
use partita_frontend::catalog::CATALOG;
use partita_proto::access::{
    Access, Membership, Mode, Org, Permission, Profile, Role, RowPredicate, Scope, Term, Token,
};
use partita_proto::id::{BOOTSTRAP_ROLE, DatabaseId, OrgId, RoleId, TokenId};
use partita_proto::value::Value;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use super::*;

const ACME: u64 = 0xaa;
const ZULU: u64 = 0xbb;
const ACME_BOSS: RoleId = RoleId(2_001);
const ACME_STAFF: RoleId = RoleId(2_002);
const ACME_MEMBER: RoleId = RoleId(2_003);
const ZULU_BOSS: RoleId = RoleId(2_101);
/// Password of every role, and text of every token.
const SECRET: &str = "secret-of-everybody";

/// Kind of a client that may begin a session: a token, unless it is the member or the superuser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// Token of `acme_boss` that reads the database `acme`.
    Read,
    /// Token of `acme_boss` that reads its rows with `k = 1`.
    Rows,
    /// Token of `acme_boss` that writes to it.
    Write,
    /// Token with all rights of `acme_boss`, who owns it.
    Whole,
    /// Token with all rights of `zulu_boss`.
    Foreign,
    /// Role of `acme`, in a group that reads the database `acme`.
    Member,
    /// The superuser.
    Superuser,
}

/// The columns of the tables.
const WHO: [Who; 7] =
    [Who::Read, Who::Rows, Who::Write, Who::Whole, Who::Foreign, Who::Member, Who::Superuser];
/// Number of a token with all rights of `acme_boss` that has expired.
const EXPIRED: u64 = 9;

impl Who {
    /// Number of the token, owner, organisation and permission.
    fn token(self, acme: DatabaseId) -> Option<(u64, RoleId, u64, Permission)> {
        let bucket =
            |mode, rows| Permission { mode, scope: Scope::Bucket { database: acme, rows } };
        let whole = Permission { mode: Mode::Both, scope: Scope::Everything };
        match self {
            Self::Read => Some((1, ACME_BOSS, ACME, bucket(Mode::Read, None))),
            Self::Rows => {
                let term = Term { column: "k".to_owned(), values: vec![Value::Int(1)] };
                let rows = Some(RowPredicate::new(vec![term]).unwrap());
                Some((2, ACME_BOSS, ACME, bucket(Mode::Read, rows)))
            }
            Self::Write => Some((3, ACME_BOSS, ACME, bucket(Mode::Write, None))),
            Self::Whole => Some((4, ACME_BOSS, ACME, whole)),
            Self::Foreign => Some((5, ZULU_BOSS, ZULU, whole)),
            Self::Member | Self::Superuser => None,
        }
    }

    /// Name by which the client signs in.
    fn user(self) -> String {
        match self {
            Self::Member => "acme_member".to_owned(),
            Self::Superuser => "partita".to_owned(),
            token => {
                let (number, ..) = token.token(DatabaseId(0)).unwrap();
                TokenId::new(number).unwrap().to_string()
            }
        }
    }

    async fn enter(self, door: &Door) -> Client {
        enter(door, &self.user(), Some(SECRET)).await.unwrap()
    }
}

async fn enter(
    door: &Door,
    user: &str,
    password: Option<&str>,
) -> Result<Client, tokio_postgres::Error> {
    let mut config = Config::new();
    config.user(user).dbname("public").ssl_mode(SslMode::Disable);
    if let Some(password) = password {
        config.password(password);
    }
    let socket = TcpStream::connect(("127.0.0.1", door.port)).await.unwrap();
    let (client, connection) = config.connect_raw(socket, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

fn put_roles(access: &mut Access) {
    let org = |number| OrgId::new(number).unwrap();
    for (number, name) in [(ACME, "acme"), (ZULU, "zulu")] {
        let (name, profile) = (name.to_owned(), Profile::default());
        access.put_org(Org { id: org(number), name, series_max: None, profile });
    }
    let of_staff = vec![Membership { role: ACME_STAFF, admin_option: false, inherit: true }];
    for (id, name, number, login, member_of) in [
        (ACME_BOSS, "acme_boss", ACME, true, Vec::new()),
        (ACME_STAFF, "acme_staff", ACME, false, Vec::new()),
        (ACME_MEMBER, "acme_member", ACME, true, of_staff),
        (ZULU_BOSS, "zulu_boss", ZULU, true, Vec::new()),
    ] {
        access.put_role(Role { login, org: Some(org(number)), member_of, ..Role::new(id, name) });
    }
}

/// Passwords and tokens, which close the cluster.
fn secure(access: &mut Access, acme: DatabaseId) {
    let verifier = verifier_of(SECRET).unwrap();
    for id in [BOOTSTRAP_ROLE, ACME_MEMBER] {
        let role = access.role(id).unwrap().as_ref().clone();
        access.put_role(Role { verifier: Some(verifier.clone()), secret_version: 1, ..role });
    }
    let expired = Permission { mode: Mode::Both, scope: Scope::Everything };
    let tokens = WHO.into_iter().filter_map(|who| who.token(acme));
    let tokens: Vec<_> = tokens.chain([(EXPIRED, ACME_BOSS, ACME, expired)]).collect();
    for (number, owner, org, permission) in tokens {
        access.put_token(Token {
            id: TokenId::new(number).unwrap(),
            sha256: [u8::try_from(number).unwrap(); 32],
            verifier: verifier.clone(),
            description: String::new(),
            owner,
            org: OrgId::new(org),
            created_ms: 0,
            expires_ms: (number == EXPIRED).then_some(1),
            enabled: true,
            permissions: vec![permission],
        });
    }
}

/// A door to a cluster with the databases `acme` and `zulu`, each with a table, an index, a default and a comment of its
/// name.
async fn world() -> Door {
    let door = Door::open(64).await;
    let open = door.connect().await;
    for name in ["acme", "zulu"] {
        let columns = format!(
            "k INT PRIMARY KEY, {name}_v INT COMMENT '{name}', {name}_n TEXT DEFAULT '{name}' INVERTED INDEX"
        );
        for sql in [
            format!("CREATE DATABASE {name}"),
            format!("CREATE TABLE {name}.{name}_t ({columns})"),
            format!("INSERT INTO {name}.{name}_t VALUES (1, 10, 'x'), (2, 20, 'x')"),
        ] {
            open.batch_execute(&sql).await.unwrap();
        }
    }
    door.fake.edit_access(put_roles);
    for sql in [
        "ALTER DATABASE acme OWNER TO acme_boss",
        "ALTER DATABASE zulu OWNER TO zulu_boss",
        "GRANT SELECT ON DATABASE acme TO acme_staff",
    ] {
        open.batch_execute(sql).await.unwrap();
    }
    let acme = door.frontend.catalog().databases["acme"].id;
    door.fake.edit_access(|access| secure(access, acme));
    door
}

/// One letter for each of [`WHO`]: A: allowed, D: denied, H: as if the object did not exist.
const STATEMENTS: &[(&str, &str)] = &[
    ("AAAAAAA", "SELECT 1"),
    ("AADAHAA", "SELECT acme_v FROM acme.acme_t"),
    ("AADAHAA", "SELECT 1 WHERE EXISTS (SELECT 1 FROM acme.acme_t)"),
    ("AADAHAA", "EXPLAIN SELECT acme_v FROM acme.acme_t"),
    ("ADDAHAA", "SHOW PARTITIONS FROM acme.acme_t"),
    ("AAAAHAA", "DESCRIBE acme.acme_t"),
    ("AAAAHAA", "SHOW INDEX FROM acme.acme_t"),
    ("DDDAHDA", "CREATE INDEX IF NOT EXISTS acme_i ON acme.acme_t USING skipping (acme_v)"),
    ("DDDAADA", "DROP INDEX IF EXISTS nowhere ON acme.acme_t"),
    ("DDAAHDA", "INSERT INTO acme.acme_t VALUES (3, 3, 'x')"),
    ("DDDAHDA", "INSERT INTO acme.acme_t SELECT 3, 3, max(acme_n) FROM acme.acme_t"),
    ("DDAAHDA", "DELETE FROM acme.acme_t WHERE k = 1"),
    ("DDDAHDA", "DELETE FROM acme.acme_t WHERE acme_v = 20"),
    ("DDAAHDA", "UPDATE acme.acme_t SET acme_v = 1"),
    ("DDDAHDA", "UPDATE acme.acme_t SET acme_v = acme_v + 1 WHERE k = 2"),
    ("DDAAHDA", "CREATE TABLE IF NOT EXISTS acme.fresh (k INT PRIMARY KEY)"),
    ("DDDDDDA", "CREATE DATABASE IF NOT EXISTS fresh"),
    ("DDDAHDA", "ADMIN flush_table('acme.acme_t')"),
    ("AAAAAAA", "SHOW TASKS"),
    ("AAAAAAA", "SHOW TOKENS"),
];

/// The letter of a result.
fn letter<T>(result: &Result<T, tokio_postgres::Error>) -> char {
    match result.as_ref().map_err(state) {
        Ok(_) => 'A',
        Err("42501") => 'D',
        Err("42P01" | "3F000" | "42704") => 'H',
        Err(_) => '?',
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_protocols_allow_what_the_table_allows() {
    let door = world().await;
    let mut found = vec![[String::new(), String::new()]; STATEMENTS.len()];
    for who in WHO {
        let client = who.enter(&door).await;
        for ((_, sql), [simple, extended]) in STATEMENTS.iter().zip(&mut found) {
            simple.push(letter(&client.simple_query(sql).await));
            extended.push(letter(&client.query(*sql, &[]).await));
        }
    }
    let mut wrong = Vec::new();
    for ((expected, sql), protocols) in STATEMENTS.iter().zip(&found) {
        if protocols.iter().any(|letters| letters != expected) {
            wrong.push(format!("{expected} expected, {protocols:?} found: {sql}"));
        }
    }
    assert!(wrong.is_empty(), "{WHO:?}\n{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_are_allowed_to_those_who_may_read_or_write() {
    let door = world().await;
    let (mut to_client, mut to_table) = (String::new(), String::new());
    for who in WHO {
        let client = who.enter(&door).await;
        to_client.push(letter(&client.copy_out("COPY acme.acme_t TO STDOUT").await.map(drop)));
        let sink = client.copy_in::<_, bytes::Bytes>("COPY acme.acme_t FROM STDIN").await;
        to_table.push(letter(&sink.map(drop)));
    }
    assert_eq!((to_client.as_str(), to_table.as_str()), ("AADAHAA", "DDAAHDA"), "{WHO:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_enters_without_a_secret_that_is_valid() {
    let door = world().await;
    assert!(enter(&door, "partita", None).await.is_err());
    let expired = TokenId::new(EXPIRED).unwrap().to_string();
    for (user, password) in [
        ("partita", "wrong"),
        ("acme_member", "wrong"),
        ("nowhere", SECRET),
        // The owner of the tokens has no password.
        ("acme_boss", SECRET),
        // A group.
        ("acme_staff", SECRET),
        (expired.as_str(), SECRET),
    ] {
        let error = enter(&door, user, Some(password)).await.err().unwrap();
        assert!(state(&error).starts_with("28"), "{user}: {error}");
    }
}

/// One letter for each of [`WHO`]: a: rows that name something of `acme`, z: of `zulu`, b: of both, r: rows that name
/// nothing of either, -: no rows.
const TABLES: &[(&str, &str)] = &[
    ("aaaazab", "pg_namespace"),
    ("aaaazab", "pg_class"),
    ("aaaazab", "pg_attribute"),
    ("aaaazab", "pg_attrdef"),
    ("aaaazab", "pg_constraint"),
    ("rrrrrrr", "pg_am"),
    ("rrrrrrr", "pg_index"),
    ("aaaazab", "pg_description"),
    ("aaaazab", "pg_database"),
    ("aaaazab", "pg_roles"),
    ("aaaazab", "pg_authid"),
    ("---r-rr", "pg_auth_members"),
    ("aaaazab", "pg_user"),
    ("aaaazab", "pg_shadow"),
    ("---a-aa", "pg_group"),
    ("-------", "pg_db_role_setting"),
    ("aaaazab", "pg_tables"),
    ("-------", "pg_views"),
    ("-------", "pg_sequences"),
    ("rrrrrrr", "pg_extension"),
    ("aaaazab", "pg_indexes"),
    ("-------", "pg_available_extensions"),
    ("-------", "pg_cursors"),
    ("-------", "pg_locks"),
    ("-------", "pg_policies"),
    ("-------", "pg_prepared_statements"),
    ("-------", "pg_prepared_xacts"),
    ("-------", "pg_rules"),
    // Sessions of the same role and token.
    ("aaaazab", "pg_stat_activity"),
    ("aaaazab", "pg_stat_database"),
    ("aaaazab", "pg_stat_all_indexes"),
    ("aaaazab", "pg_stat_all_tables"),
    ("aaaazab", "pg_stat_user_indexes"),
    ("aaaazab", "pg_stat_user_tables"),
    // The own name.
    ("aaaazar", "pg_settings"),
];

/// The rows of a table as a text.
async fn text_of(client: &Client, table: &str) -> Result<String, tokio_postgres::Error> {
    let messages = client.simple_query(&format!("SELECT * FROM pg_catalog.{table}")).await?;
    let mut text = String::new();
    for message in messages {
        let SimpleQueryMessage::Row(row) = message else { continue };
        for cell in 0..row.len() {
            text.push_str(row.get(cell).unwrap_or_default());
            text.push('|');
        }
        text.push('\n');
    }
    Ok(text)
}

/// The letter of a table's text.
fn mark(text: &str) -> char {
    match (text.contains("acme"), text.contains("zulu")) {
        (true, true) => 'b',
        (true, false) => 'a',
        (false, true) => 'z',
        (false, false) if text.is_empty() => '-',
        (false, false) => 'r',
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_identity_sees_its_own_rows_of_pg_catalog() {
    let door = world().await;
    // The schema is there after the first connection.
    let _first = Who::Superuser.enter(&door).await;
    let _open = [Who::Whole.enter(&door).await, Who::Foreign.enter(&door).await];
    let catalog = door.frontend.context().catalog(CATALOG).unwrap();
    let existing = catalog.schema("pg_catalog").unwrap().table_names();
    assert!(TABLES.iter().all(|(_, table)| existing.iter().any(|name| name == table)));
    let mut found = vec![String::new(); TABLES.len()];
    for who in WHO {
        let client = who.enter(&door).await;
        for ((_, table), letters) in TABLES.iter().zip(&mut found) {
            let text = text_of(&client, table).await;
            letters.push(mark(&text.unwrap_or_else(|error| panic!("{table}: {error:?}"))));
        }
        let is_listed = |name: &&String| TABLES.iter().any(|(_, table)| table == name);
        for name in existing.iter().filter(|name| !is_listed(name)) {
            // Some of the fixed tables have columns that cannot be shown.
            let text = text_of(&client, name).await.unwrap_or_default();
            assert!(matches!(mark(&text), 'r' | '-'), "{name} for {who:?}: {text}");
        }
    }
    let mut wrong = Vec::new();
    for ((expected, table), letters) in TABLES.iter().zip(&found) {
        if letters != expected {
            wrong.push(format!("{expected} expected, {letters} found: {table}"));
        }
    }
    assert!(wrong.is_empty(), "{WHO:?}\n{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_of_pg_catalog_tell_nothing_of_another_organisation() {
    let door = world().await;
    let client = Who::Foreign.enter(&door).await;
    for call in [
        "has_table_privilege('ITEM.ITEM_t', 'SELECT')",
        "has_table_privilege('ITEM_boss', 'zulu.zulu_t', 'SELECT')",
        "has_database_privilege('ITEM', 'CONNECT')",
        "has_schema_privilege('ITEM', 'USAGE')",
        "has_sequence_privilege('ITEM.ITEM_s', 'USAGE')",
        "pg_has_role('ITEM_boss', 'USAGE')",
        "pg_total_relation_size('ITEM.ITEM_t')",
        "pg_database_size('ITEM')",
    ] {
        let answer = async |item: &str| {
            let sql = format!("SELECT {}", call.replace("ITEM", item));
            let text = match client.simple_query(&sql).await {
                Ok(rows) => format!("{rows:?}"),
                Err(error) => format!("{} {error}", state(&error)),
            };
            text.replace(item, "ITEM")
        };
        // The missing name is as long as the hidden one.
        assert_eq!(answer("acme").await, answer("nope").await, "{call}");
    }
}

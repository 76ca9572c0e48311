//! Roles, owners and access lists as psql 15 shows them: the queries of `\du`, `\dp` and `\l`.

use partita_proto::access::{
    Action, Actions, Grant, GrantEntry, Grantee, Membership, Role, Target,
};
use partita_proto::id::{BOOTSTRAP_ROLE, RoleId};
use tokio_postgres::{Client, SimpleQueryMessage};

use super::Door;

const ROLES: &str = "SELECT r.rolname, r.rolsuper, r.rolinherit, r.rolcreaterole, r.rolcreatedb, r.rolcanlogin, \
    r.rolconnlimit, r.rolvaliduntil, ARRAY(SELECT b.rolname FROM pg_catalog.pg_auth_members m \
    JOIN pg_catalog.pg_roles b ON (m.roleid = b.oid) WHERE m.member = r.oid) as memberof, r.rolreplication, \
    r.rolbypassrls FROM pg_catalog.pg_roles r WHERE r.rolname !~ '^pg_' ORDER BY 1";

const PRIVILEGES: &str = "SELECT n.nspname as \"Schema\", c.relname as \"Name\", CASE c.relkind WHEN 'r' THEN 'table' \
    WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'S' THEN 'sequence' WHEN 'f' THEN 'foreign table' \
    WHEN 'p' THEN 'partitioned table' END as \"Type\", \
    pg_catalog.array_to_string(c.relacl, E'\\n') AS \"Access privileges\" \
    FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind IN ('r','v','m','S','f','p') AND n.nspname !~ '^pg_' \
    AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY 1, 2";

const DATABASES: &str = "SELECT d.datname as \"Name\", pg_catalog.pg_get_userbyid(d.datdba) as \"Owner\", \
    pg_catalog.array_to_string(d.datacl, E'\\n') AS \"Access privileges\" FROM pg_catalog.pg_database d ORDER BY 1";

/// The rows of a query, as cells with NULL as an empty text.
async fn rows(client: &Client, sql: &str) -> Vec<Vec<String>> {
    let messages = client.simple_query(sql).await.unwrap();
    let row = |message: SimpleQueryMessage| -> Option<Vec<String>> {
        match message {
            SimpleQueryMessage::Row(row) => Some(
                (0..row.len()).map(|cell| row.get(cell).unwrap_or_default().to_owned()).collect(),
            ),
            _ => None,
        }
    };
    messages.into_iter().filter_map(row).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn psql_shows_roles_owners_and_access_lists() {
    let door = Door::open(10).await;
    let client = door.connect().await;
    client.batch_execute("CREATE TABLE t (k INT PRIMARY KEY)").await.unwrap();
    let table = Target::Table(door.frontend.catalog().table("public", "t").unwrap().id);
    let (staff, ada) = (RoleId(1_001), RoleId(1_002));
    door.fake.edit_access(|access| {
        access.put_role(Role::new(staff, "staff"));
        let member_of = vec![Membership { role: staff, admin_option: false, inherit: true }];
        access.put_role(Role { login: true, member_of, ..Role::new(ada, "ada") });
        let mut grant = Grant::new(table);
        let select = Actions::of(&[Action::Select]);
        let grantee = Grantee::Role(staff);
        let entry =
            GrantEntry { grantee, actions: select, grantable: select, grantor: BOOTSTRAP_ROLE };
        grant.grant(BOOTSTRAP_ROLE, entry).unwrap();
        access.put_grant(grant);
    });
    let roles = rows(&client, ROLES).await;
    let summary: Vec<String> =
        roles.iter().map(|row| [0, 1, 5, 8].map(|cell| row[cell].as_str()).join("|")).collect();
    assert_eq!(summary, ["ada|f|t|{staff}", "partita|t|t|{}", "staff|f|f|{}"]);
    assert_eq!(
        rows(&client, PRIVILEGES).await,
        [["public", "t", "table", "partita=arwdDm/partita\nstaff=r*/partita"]]
    );
    let databases = rows(&client, DATABASES).await;
    assert_eq!(databases, [["public", "partita", ""]]);
    let members = "SELECT count(*) FROM pg_auth_members";
    assert_eq!(rows(&client, members).await, [["1"]]);
    for table in ["pg_authid", "pg_roles"] {
        let hidden = format!("SELECT DISTINCT rolpassword FROM {table}");
        assert_eq!(rows(&client, &hidden).await, [["********"]]);
    }
    for (call, answer) in [
        ("has_table_privilege('staff', 't', 'SELECT')", "t"),
        ("has_table_privilege('ada', 't', 'SELECT')", "t"),
        ("has_table_privilege('ada', 't', 'INSERT')", "f"),
        ("has_table_privilege('t', 'INSERT, DELETE')", "t"),
        ("has_database_privilege('ada', 'public', 'CREATE')", "f"),
        ("has_schema_privilege('public', 'CREATE')", "t"),
        ("pg_has_role('ada', 'staff', 'USAGE')", "t"),
        ("pg_has_role('staff', 'ada', 'MEMBER')", "f"),
    ] {
        assert_eq!(rows(&client, &format!("SELECT {call}")).await, [[answer]], "{call}");
    }
    let missing = client.simple_query("SELECT has_table_privilege('nothing', 'SELECT')").await;
    assert_eq!(missing.unwrap_err().code().unwrap().code(), "42P01");
}

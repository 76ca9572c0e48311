//! Statements about roles, rights, owners and tokens: each form, and refusals that show no password.

use partita_proto::access::{Action, Actions, Mode};
use partita_proto::id::TokenId;
use partita_proto::value::Value;

use super::one;
use crate::access_statement::{
    AccessStatement, CreateRole, CreateToken, GrantObjects, GrantRights, GrantRole, GranteeName,
    MembershipPart, OwnedObject, Privileges, RevokeRights, RevokeRole, RoleChange, RoleName,
    RoleOptions, SetRole, TokenExpiry, TokenScope,
};
use crate::parse;
use crate::statement::{Statement, TableName};

const SELECT: Actions = Actions::of(&[Action::Select]);

#[track_caller]
fn access(sql: &str) -> AccessStatement {
    match one(sql).unwrap() {
        Statement::Access(access) => access,
        statement => panic!("{sql} is {statement:?}"),
    }
}

#[track_caller]
fn refused(sql: &str, sqlstate: &str, part: &str) {
    let error = parse(sql).expect_err(sql);
    assert_eq!(error.sqlstate, sqlstate, "{sql}: {}", error.message);
    assert!(error.message.contains(part), "{sql}: {}", error.message);
}

fn named(name: &str) -> RoleName {
    RoleName::Named(name.to_owned())
}

fn create_role(sql: &str) -> CreateRole {
    match access(sql) {
        AccessStatement::CreateRole(create) => *create,
        statement => panic!("{sql} is {statement:?}"),
    }
}

fn grant(sql: &str) -> GrantRights {
    match access(sql) {
        AccessStatement::Grant(grant) => grant,
        statement => panic!("{sql} is {statement:?}"),
    }
}

fn create_token(sql: &str) -> CreateToken {
    match access(sql) {
        AccessStatement::CreateToken(create) => *create,
        statement => panic!("{sql} is {statement:?}"),
    }
}

#[test]
fn each_statement_has_its_tag() {
    for (sql, tag) in [
        ("CREATE ROLE a", "CREATE ROLE"),
        ("CREATE USER a", "CREATE ROLE"),
        ("CREATE GROUP a", "CREATE ROLE"),
        ("ALTER USER a NOLOGIN", "ALTER ROLE"),
        ("ALTER GROUP a ADD USER b", "GRANT ROLE"),
        ("DROP ROLE IF EXISTS a, b", "DROP ROLE"),
        ("GRANT a TO b", "GRANT ROLE"),
        ("REVOKE a FROM b", "REVOKE ROLE"),
        ("GRANT SELECT ON t TO b", "GRANT"),
        ("REVOKE SELECT ON t FROM b", "REVOKE"),
        ("ALTER TABLE t OWNER TO a", "ALTER TABLE"),
        ("ALTER SCHEMA d OWNER TO a", "ALTER DATABASE"),
        ("ALTER SEQUENCE IF EXISTS d.s OWNER TO a", "ALTER SEQUENCE"),
        ("REASSIGN OWNED BY a TO b", "REASSIGN OWNED"),
        ("DROP OWNED BY a CASCADE", "DROP OWNED"),
        ("CREATE TOKEN WITH (ALL)", "CREATE TOKEN"),
        ("ALTER TOKEN '00000000000000ab' (DISABLED)", "ALTER TOKEN"),
        ("DROP TOKEN '00000000000000ab'", "DROP TOKEN"),
        ("CREATE ORGANISATION a PROFILE free SERIES LIMIT 25", "CREATE ORGANISATION"),
        ("ALTER ORG a RENAME TO b", "ALTER ORGANISATION"),
        ("ALTER ORG a SERIES LIMIT NONE", "ALTER ORGANISATION"),
        ("DROP ORGANIZATION IF EXISTS a", "DROP ORGANISATION"),
        ("SHOW GRANTS FOR a", "SHOW"),
        ("SHOW TOKENS", "SHOW"),
        ("SET ROLE a", "SET"),
        ("RESET ROLE", "RESET"),
    ] {
        let statement = one(sql).unwrap();
        assert_eq!(statement.tag(), tag, "{sql}");
        let is_change = !["SHOW", "SET", "RESET"].contains(&tag);
        assert_eq!(statement.writes(), is_change, "{sql}");
    }
    assert!(one("SHOW GRANTS").unwrap().reads() && !one("DROP ROLE a").unwrap().reads());
}

#[test]
fn roles_take_the_options_of_postgresql() {
    let create = create_role(
        "CREATE ROLE \"A b\" WITH SUPERUSER NOCREATEDB CREATEROLE NOINHERIT LOGIN ADMIN \
         NOREPLICATION NOBYPASSRLS CONNECTION LIMIT -1 ENCRYPTED PASSWORD 'it''s' \
         VALID UNTIL '2030-01-01 00:00:00+00:00' ORGANISATION acme IN ROLE g, h ROLE m ADMIN n, CURRENT_USER",
    );
    assert_eq!(create.name, "A b");
    let options = &create.options;
    let flags = [options.superuser, options.create_role, options.login, options.admin];
    assert_eq!(flags, [Some(true); 4]);
    assert_eq!((options.create_db, options.inherit), (Some(false), Some(false)));
    let password = options.password.as_ref().and_then(Option::as_ref);
    assert_eq!(password.map(crate::access_statement::Password::expose), Some("it's"));
    assert_eq!(options.valid_until_ms, Some(Some(1_893_456_000_000)));
    assert_eq!(options.org, Some(Some("acme".to_owned())));
    assert_eq!(create.in_roles, [named("g"), named("h")]);
    assert_eq!(create.members, [named("m")]);
    assert_eq!(create.admins, [named("n"), RoleName::CurrentUser]);
    assert_eq!(create_role("CREATE ROLE a").options.login, Some(false));
    assert_eq!(create_role("CREATE USER a").options.login, Some(true));
    assert_eq!(create_role("CREATE USER a NOLOGIN").options.login, Some(false));
    let never = create_role("CREATE ROLE a PASSWORD NULL VALID UNTIL 'infinity' ORG NONE").options;
    assert_eq!(
        (never.password, never.valid_until_ms, never.org),
        (Some(None), Some(None), Some(None))
    );
    // ADMIN before an option or at the end is the attribute.
    let both = create_role("CREATE ROLE a ADMIN b ADMIN LOGIN");
    assert_eq!((both.admins, both.options.admin), (vec![named("b")], Some(true)));
    for (sql, sqlstate, part) in [
        ("CREATE ROLE a LOGIN NOLOGIN", "42601", "conflicting or redundant"),
        ("CREATE ROLE a PASSWORD 'x' PASSWORD NULL", "42601", "conflicting or redundant"),
        ("CREATE ROLE a ROLE b ROLE c", "42601", "conflicting or redundant"),
        ("CREATE ROLE a CONNECTION LIMIT 5", "0A000", "CONNECTION LIMIT"),
        ("CREATE ROLE a REPLICATION", "0A000", "REPLICATION"),
        ("CREATE ROLE a UNENCRYPTED PASSWORD 'x'", "0A000", "UNENCRYPTED PASSWORD"),
        ("CREATE ROLE a VALID UNTIL 'soon'", "22007", "invalid time"),
        ("CREATE ROLE a FLY", "42601", "\"FLY\""),
        ("CREATE ROLE", "42601", "a role's name"),
        ("CREATE USER MAPPING FOR a SERVER b", "0A000", "USER MAPPING"),
        ("ALTER ROLE a", "42601", "an option of a role"),
        ("ALTER ROLE ALL SET a.b = 1", "0A000", "ALTER ROLE ALL"),
        ("ALTER ROLE a IN DATABASE d SET a.b = 1", "0A000", "IN DATABASE"),
        ("ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO a", "0A000", "DEFAULT PRIVILEGES"),
        ("DROP ROLE a,", "42601", "a role's name"),
    ] {
        refused(sql, sqlstate, part);
    }
}

#[test]
fn roles_are_changed_one_way_at_a_time() {
    let change = |sql: &str| match access(sql) {
        AccessStatement::AlterRole { role, change } => (role, *change),
        statement => panic!("{sql} is {statement:?}"),
    };
    assert_eq!(
        change("ALTER ROLE a RENAME TO b"),
        (named("a"), RoleChange::Rename("b".to_owned()))
    );
    for (sql, name, value) in [
        ("ALTER ROLE a SET Statement_Timeout TO '5s'", "statement_timeout", Some("5s")),
        ("ALTER ROLE a SET TIME ZONE 'UTC'", "timezone", Some("UTC")),
        ("ALTER ROLE a SET search_path = x, y", "search_path", Some("x, y")),
        ("ALTER ROLE a SET jit TO DEFAULT", "jit", None),
        ("ALTER ROLE a RESET jit", "jit", None),
    ] {
        let value = value.map(str::to_owned);
        let expected = RoleChange::Setting { name: name.to_owned(), value };
        assert_eq!(change(sql), (named("a"), expected), "{sql}");
    }
    assert_eq!(change("ALTER ROLE a RESET ALL").1, RoleChange::ResetAll);
    let current = change("ALTER USER CURRENT_USER SET jit FROM CURRENT");
    assert_eq!(current.0, RoleName::CurrentUser);
    assert_eq!(current.1, RoleChange::SettingFromCurrent("jit".to_owned()));
    let RoleChange::Options(options) = change("ALTER ROLE a PASSWORD 'x'").1 else { panic!() };
    assert!(options.is_password_only());
    assert!(!RoleOptions { login: Some(true), ..options }.is_password_only());
    assert!(!RoleOptions::default().is_password_only());
}

#[test]
fn no_error_shows_a_password() {
    for sql in [
        "CREATE ROLE a PASSWORT 'secret'",
        "CREATE ROLE a PASSWORD \"secret\"",
        "CREATE ROLE a PASSWORD = 'secret'",
        "CREATE ROLE a PASSWORD secret",
        "CREATE ROLE a PASSWORD 'x' 'secret'",
        "ALTER ROLE a 'secret'",
        "ALTER ROLE a ENCRYPTED 'secret'",
        "ALTER ROLE a PASSWORD $$x$$ $$secret$$",
        "ALTER ROLE a PASSWORD E'secret",
        "ALTER ROLE a VALID UNTIL 'secret'",
        "ALTER ROLE a PASSWORD U&'\\secret'",
        "DROP TOKEN 'secret'",
    ] {
        let error = parse(sql).expect_err(sql);
        let shown = format!("{error:?}");
        assert!(!shown.contains("secret"), "{sql}: {shown}");
    }
    let statement = one("CREATE ROLE a PASSWORD 'secret'").unwrap();
    assert!(!format!("{statement:?}").contains("secret"));
    assert_eq!(statement.text(), None);
}

#[test]
fn privileges_belong_to_kinds_of_objects() {
    let tables = grant("GRANT SELECT, insert ON TABLE t, d.u TO a, PUBLIC WITH GRANT OPTION");
    let both = Actions::of(&[Action::Select, Action::Insert]);
    assert_eq!(tables.privileges, Privileges::Listed(both));
    let other = TableName { database: Some("d".to_owned()), name: "u".to_owned() };
    assert_eq!(tables.objects, GrantObjects::Tables(vec![TableName::bare("t"), other]));
    assert_eq!(tables.grantees, [GranteeName::Role(named("a")), GranteeName::Public]);
    assert!(tables.grant_option);
    let all = grant("GRANT ALL PRIVILEGES ON ALL TABLES IN SCHEMA d TO GROUP a GRANTED BY b");
    assert_eq!(all.privileges, Privileges::All);
    assert_eq!(all.objects, GrantObjects::AllTablesIn(vec!["d".to_owned()]));
    assert_eq!((all.grant_option, all.grantor), (false, Some(named("b"))));
    let schema = grant("GRANT USAGE, CREATE ON SCHEMA d TO a");
    let listed = Actions::of(&[Action::Connect, Action::Create]);
    assert_eq!(schema.privileges, Privileges::Listed(listed));
    assert_eq!(schema.objects, GrantObjects::Databases(vec!["d".to_owned()]));
    let cluster = grant("GRANT MONITOR, CREATE ROLE, MANAGE TOKENS ON CLUSTER TO a");
    let listed = Actions::of(&[Action::Monitor, Action::CreateRole, Action::ManageToken]);
    assert_eq!(
        (cluster.privileges, cluster.objects),
        (Privileges::Listed(listed), GrantObjects::Cluster)
    );
    // Words of the grammar are names where no object follows.
    let table = grant("GRANT SELECT ON \"cluster\" TO \"select\"");
    assert_eq!(table.objects, GrantObjects::Tables(vec![TableName::bare("cluster")]));
    let sequences = grant("GRANT USAGE, UPDATE ON SEQUENCE s, d.r TO a");
    let usage = Actions::of(&[Action::Connect, Action::Update]);
    assert_eq!(sequences.privileges, Privileges::Listed(usage));
    let other = TableName { database: Some("d".to_owned()), name: "r".to_owned() };
    assert_eq!(sequences.objects, GrantObjects::Sequences(vec![TableName::bare("s"), other]));
    let all = grant("GRANT ALL ON ALL SEQUENCES IN SCHEMA d TO a");
    assert_eq!(all.objects, GrantObjects::AllSequencesIn(vec!["d".to_owned()]));
    let table = grant("GRANT SELECT ON sequence TO a");
    assert_eq!(table.objects, GrantObjects::Tables(vec![TableName::bare("sequence")]));
    for (sql, sqlstate, part) in [
        ("GRANT CREATE ON t TO a", "0LP01", "invalid privilege type CREATE for table"),
        ("GRANT SELECT ON CLUSTER TO a", "0LP01", "SELECT for cluster"),
        ("GRANT ADMIN ON DATABASE d TO a", "0LP01", "ADMIN for database"),
        ("GRANT OWN ON t TO a", "42601", "unrecognized privilege type \"own\""),
        ("GRANT SELECT, ALL ON t TO a", "42601", "ALL must be the only"),
        ("GRANT REFERENCES ON t TO a", "0A000", "REFERENCES"),
        ("GRANT SELECT ON ALL FUNCTIONS IN SCHEMA d TO a", "0A000", "ALL FUNCTIONS"),
        ("GRANT INSERT ON SEQUENCE s TO a", "0LP01", "invalid privilege type INSERT for sequence"),
        ("GRANT CONNECT ON SEQUENCE s TO a", "0LP01", "CONNECT for sequence"),
        ("GRANT USAGE ON TABLE t TO a", "0LP01", "USAGE for table"),
        ("GRANT SELECT (a), INSERT ON t TO b", "0A000", "columns"),
        ("GRANT SELECT ON t", "42601", "expected TO"),
        ("GRANT SELECT ON t TO a WITH ADMIN OPTION", "42601", "WITH GRANT OPTION"),
        ("GRANT", "42601", "a privilege or a role"),
        ("GRANT , ON t TO a", "42601", "a privilege or a role"),
    ] {
        refused(sql, sqlstate, part);
    }
}

#[test]
fn revocations_say_what_goes_and_what_stays() {
    let AccessStatement::Revoke(revoke) =
        access("REVOKE GRANT OPTION FOR SELECT ON t FROM a GRANTED BY CURRENT_ROLE CASCADE")
    else {
        panic!()
    };
    assert_eq!(
        revoke,
        RevokeRights {
            privileges: Privileges::Listed(SELECT),
            objects: GrantObjects::Tables(vec![TableName::bare("t")]),
            grantees: vec![GranteeName::Role(named("a"))],
            options_only: true,
            cascade: true,
            grantor: Some(RoleName::CurrentUser),
        }
    );
    for (sql, part) in [
        ("REVOKE a FROM b RESTRICT", MembershipPart::Whole),
        ("REVOKE ADMIN OPTION FOR a FROM b", MembershipPart::AdminOption),
        ("REVOKE INHERIT OPTION FOR a FROM b CASCADE", MembershipPart::Inherit),
    ] {
        let AccessStatement::RevokeRole(revoke) = access(sql) else { panic!() };
        let (groups, members) = (vec![named("a")], vec![named("b")]);
        assert_eq!(revoke, RevokeRole { groups, members, part, grantor: None }, "{sql}");
    }
    refused("REVOKE GRANT OPTION FOR a FROM b", "42601", "expected ON");
    refused("REVOKE SELECT ON t TO a", "42601", "expected FROM");
}

#[test]
fn memberships_have_options() {
    let grant = |sql: &str| match access(sql) {
        AccessStatement::GrantRole(grant) => grant,
        statement => panic!("{sql} is {statement:?}"),
    };
    let expected = GrantRole {
        groups: vec![named("a"), named("b")],
        members: vec![named("c")],
        admin_option: false,
        inherit: None,
        grantor: None,
    };
    assert_eq!(grant("GRANT a, b TO c"), expected);
    assert_eq!(
        grant("GRANT a, b TO c WITH ADMIN OPTION, INHERIT FALSE"),
        GrantRole { admin_option: true, inherit: Some(false), ..expected }
    );
    refused("GRANT a TO b WITH SET FALSE", "0A000", "SET FALSE");
    refused("GRANT a b TO c", "42601", "expected ON");
    refused("GRANT a TO b WITH GRANT OPTION", "42601", "ADMIN, INHERIT or SET");
}

#[test]
fn owners_change_alone() {
    let AccessStatement::SetOwner { object, owner } =
        access("ALTER TABLE IF EXISTS ONLY d.t OWNER TO SESSION_USER")
    else {
        panic!()
    };
    let name = TableName { database: Some("d".to_owned()), name: "t".to_owned() };
    assert_eq!(object, OwnedObject::Table { name, if_exists: true });
    assert_eq!(owner, RoleName::SessionUser);
    refused("ALTER TABLE t OWNER TO a, ADD b INT", "42601", "OWNER TO must be the only action");
    refused("ALTER DATABASE d OWNER a", "42601", "expected TO");
    let AccessStatement::ReassignOwned { owners, successor } =
        access("REASSIGN OWNED BY a, b TO c")
    else {
        panic!()
    };
    assert_eq!((owners, successor), (vec![named("a"), named("b")], named("c")));
}

#[test]
fn the_current_role_is_set_and_reset() {
    let set = |sql: &str| match one(sql).unwrap() {
        Statement::SetRole(set) => (set.role, set.is_reset),
        statement => panic!("{sql} is {statement:?}"),
    };
    let role = || Some("a".to_owned());
    for (sql, expected) in [
        ("SET ROLE a", (role(), false)),
        ("SET SESSION ROLE 'a'", (role(), false)),
        ("SET role TO a", (role(), false)),
        ("SET ROLE NONE", (None, false)),
        ("SET ROLE 'none'", (None, false)),
        ("SET ROLE DEFAULT", (None, false)),
        ("SET SESSION AUTHORIZATION DEFAULT", (None, false)),
        ("RESET ROLE", (None, true)),
        ("RESET SESSION AUTHORIZATION", (None, true)),
    ] {
        assert_eq!(set(sql), expected, "{sql}");
    }
    refused("SET LOCAL ROLE a", "0A000", "SET LOCAL ROLE");
    refused("SET SESSION AUTHORIZATION a", "0A000", "SET SESSION AUTHORIZATION");
    let none = SetRole { role: None, is_reset: true };
    assert!(!Statement::SetRole(none).writes());
}

#[test]
fn tokens_name_their_permissions() {
    let token = create_token(
        "CREATE TOKEN 'of a sensor' WITH (READ ON BUCKET d WHERE area = 'A' AND id IN (1, -2), \
         WRITE ON ALL DATABASES, OWNER a, ORG acme, EXPIRES IN '30 days', DISABLED)",
    );
    assert_eq!(token.options.description.as_deref(), Some("of a sensor"));
    assert_eq!(token.options.expires, Some(TokenExpiry::After(2_592_000_000)));
    assert_eq!((token.options.enabled, token.owner), (Some(false), Some(named("a"))));
    assert_eq!(token.org.as_deref(), Some("acme"));
    assert_eq!(token.permissions.len(), 2);
    assert_eq!(token.permissions[0].mode, Mode::Read);
    let TokenScope::Database { name, rows: Some(rows) } = &token.permissions[0].scope else {
        panic!()
    };
    assert_eq!(name, "d");
    assert_eq!(rows.terms()[1].values, [Value::Int(1), Value::Int(-2)]);
    assert_eq!(rows.to_string(), "\"area\" = 'A' AND \"id\" IN (1, -2)");
    let whole = create_token("CREATE TOKEN WITH (ALL, EXPIRES NEVER)");
    assert_eq!(whole.permissions[0].scope, TokenScope::Everything);
    assert_eq!(whole.options.expires, Some(TokenExpiry::Never));
    let both = create_token("CREATE TOKEN WITH (READ WRITE ON DATABASE d)");
    assert_eq!(both.permissions[0].mode, Mode::Both);
    let AccessStatement::DropToken { ids, if_exists } =
        access("DROP TOKEN IF EXISTS '00000000000000ab', '0000000000000001'")
    else {
        panic!()
    };
    let expected = [0xab, 1].map(|number| TokenId::new(number).unwrap());
    assert_eq!((ids.as_slice(), if_exists), (expected.as_slice(), true));
    for (sql, sqlstate, part) in [
        ("CREATE TOKEN", "42601", "expected WITH"),
        ("CREATE TOKEN WITH ()", "42601", "a token needs a permission"),
        ("CREATE TOKEN WITH (DISABLED)", "42601", "a token needs a permission"),
        ("CREATE TOKEN WITH (READ)", "42601", "expected ON"),
        ("CREATE TOKEN WITH (WRITE ON DATABASE d WHERE a = 1)", "22023", "for reads only"),
        ("CREATE TOKEN WITH (READ ON DATABASE d WHERE a = NULL)", "42601", "a literal"),
        ("CREATE TOKEN WITH (READ ON DATABASE d WHERE a IN ())", "22023", "a column and a value"),
        ("CREATE TOKEN WITH (READ ON DATABASE d WHERE a > 1)", "0A000", "= and IN"),
        ("CREATE TOKEN WITH (READ ON DATABASE d WHERE a = 1 OR b = 2)", "0A000", "OR"),
        ("CREATE TOKEN WITH (ALL, EXPIRES IN 'soon')", "22023", "a duration"),
        ("CREATE TOKEN WITH (ALL, ENABLED, DISABLED)", "42601", "conflicting"),
        ("ALTER TOKEN '1' (ENABLED)", "22023", "16 hexadecimal digits"),
        ("ALTER TOKEN '00000000000000ab' ()", "42601", "an option"),
        ("ALTER TOKEN '00000000000000ab' (READ ON ALL DATABASES)", "42601", "\"READ\""),
        ("DROP TOKEN 5", "42601", "16 hexadecimal digits"),
    ] {
        refused(sql, sqlstate, part);
    }
}

#[test]
fn long_lists_of_roles_end() {
    let names = vec!["a"; 2_000].join(", ");
    for sql in [
        format!("DROP ROLE {names}"),
        format!("GRANT {names} TO {names}"),
        format!("GRANT SELECT ON {names} TO {names}"),
        format!("CREATE ROLE x IN ROLE {names}"),
    ] {
        assert!(parse(&sql).is_ok());
    }
}

#[test]
fn organisations_have_limits() {
    let AccessStatement::CreateOrg { name, options } =
        access("CREATE ORG acme SERIES LIMIT 25 PROFILE PAYG")
    else {
        panic!()
    };
    assert_eq!(name, "acme");
    let profile = Some(partita_proto::access::Profile::Payg);
    assert_eq!((options.profile, options.series_max), (profile, Some(Some(25))));
    for sql in [
        "CREATE ORG",
        "CREATE ORG a PROFILE gold",
        "CREATE ORG a SERIES LIMIT",
        "CREATE ORG a PROFILE free PROFILE payg",
        "ALTER ORG a",
        "ALTER ORG a RENAME b",
        "DROP ORG a, b",
    ] {
        assert!(one(sql).is_err(), "{sql}");
    }
}

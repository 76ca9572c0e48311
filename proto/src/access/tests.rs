//! The check against examples, and against a naive model of its rules.

mod model;

use super::*;
use crate::catalog::{Catalog, Database, Table};
use crate::error::Error;
use crate::id::{BOOTSTRAP_ROLE, DatabaseId, Epoch, PartitionId, SequenceId, TableId};
use crate::key::KeyCodec;
use crate::placement::Placement;
use crate::route::PartitionMap;
use crate::samples;
use crate::schema::ColumnType;
use crate::value::Value;

pub(super) const VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
    WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
const NOW: i64 = 1_000;
const ADA: RoleId = RoleId(1);
const BOB: RoleId = RoleId(2);
const READERS: RoleId = RoleId(3);
const SELECT: Actions = Actions::of(&[Action::Select]);

/// A token whose hash is made of its number.
pub(super) fn token(number: u64, owner: u32, permissions: Vec<Permission>) -> Token {
    let mut sha256 = [0; 32];
    sha256[..8].copy_from_slice(&number.to_le_bytes());
    Token {
        id: TokenId::new(number).unwrap(),
        sha256,
        verifier: VERIFIER.parse().unwrap(),
        description: "for tests".to_owned(),
        owner: RoleId(owner),
        org: None,
        created_ms: 1,
        expires_ms: None,
        enabled: true,
        permissions,
    }
}

fn user(id: RoleId, member_of: &[(RoleId, bool)]) -> Role {
    let membership =
        |&(role, inherit): &(RoleId, bool)| Membership { role, admin_option: false, inherit };
    let member_of = member_of.iter().map(membership).collect();
    Role { login: true, member_of, ..Role::new(id, format!("role{id}")) }
}

fn session(login: RoleId) -> Identity {
    let door = Door::Postgres;
    Identity { login, acting: None, token: None, secret_version: 0, org: None, door }
}

fn database(id: u32, owner: RoleId) -> Arc<Database> {
    let (id, name) = (DatabaseId(id), format!("d{id}"));
    Arc::new(Database { id, name, ttl: None, owner, explicit: false, comment: None })
}

/// A table with an integer key column `k0`.
fn table(id: u32, database: u32, owner: RoleId) -> Arc<Table> {
    let schema = samples::schema(&[ColumnType::Int64]);
    let codec = KeyCodec::new(&schema, &Placement::Range).unwrap();
    let ids = [PartitionId(u64::from(id))];
    let partitions = PartitionMap::from_cuts(&codec, &[], ids, Epoch(1)).unwrap();
    Arc::new(Table {
        id: TableId(id),
        database: format!("d{database}"),
        name: format!("t{id}"),
        schema: Arc::new(schema),
        placement: Placement::Range,
        partitions: Arc::new(partitions),
        former: None,
        succeeded_by: None,
        owner,
        copy: None,
    })
}

fn object(database: &Arc<Database>, table: &Arc<Table>) -> Object {
    Object::Table { database: Arc::clone(database), table: Arc::clone(table) }
}

fn catalog(databases: &[Arc<Database>], tables: &[Arc<Table>]) -> Arc<Catalog> {
    let mut catalog = Catalog { version: 5, ..Catalog::default() };
    for database in databases {
        catalog.databases.insert(database.name.clone(), Arc::clone(database));
    }
    for table in tables {
        let of_database = catalog.tables.entry(table.database.clone()).or_default();
        of_database.insert(table.name.clone(), Arc::clone(table));
    }
    Arc::new(catalog)
}

fn grant_to(access: &mut Access, target: Target, grantee: Grantee, actions: Actions) {
    let record = access.grant(target).map(|grant| grant.as_ref().clone());
    let mut record = record.unwrap_or_else(|| Grant::new(target));
    let entry = GrantEntry { grantee, actions, grantable: Actions::NONE, grantor: BOOTSTRAP_ROLE };
    record.grant(BOOTSTRAP_ROLE, entry).unwrap();
    access.put_grant(record);
}

/// Ada is a reader by inherit, Bob by SET ROLE only; readers may read table 1 of database 1.
fn readers() -> Access {
    let mut access = Access::bootstrap("partita", Secrets::default());
    access.put_role(user(ADA, &[(READERS, true)]));
    access.put_role(user(BOB, &[(READERS, false)]));
    access.put_role(Role::new(READERS, "readers"));
    grant_to(&mut access, Target::Table(TableId(1)), Grantee::Role(READERS), SELECT);
    access
}

fn may(access: &Access, who: &Identity, action: Action, object: Object) -> Result<(), String> {
    let permit = check(access, who, NOW, &[Need::new(action, object)]);
    permit.map(drop).map_err(|denied| Error::from(denied).sqlstate().to_owned())
}

fn denied(code: &str) -> Result<(), String> {
    Err(code.to_owned())
}

#[test]
fn rights_are_inherited_and_set_role_takes_them_on() {
    let access = readers();
    let (database, table) = (database(1, BOOTSTRAP_ROLE), table(1, 1, BOOTSTRAP_ROLE));
    let read = |who| may(&access, &who, Action::Select, object(&database, &table));
    assert_eq!(read(session(ADA)), Ok(()));
    assert_eq!(read(session(BOB)), denied("42P01"));
    assert_eq!(read(Identity { acting: Some(READERS), ..session(BOB) }), Ok(()));
    let write = |who| may(&access, &who, Action::Insert, object(&database, &table));
    assert_eq!(write(session(ADA)), denied("42501"));
    assert_eq!(write(session(BOB)), denied("42P01"));
    assert_eq!(write(session(BOOTSTRAP_ROLE)), Ok(()));
    // A group has no login, and Ada is no member of Bob.
    assert_eq!(read(session(READERS)), denied("28000"));
    assert_eq!(read(Identity { acting: Some(BOB), ..session(ADA) }), denied("28000"));
}

#[test]
fn an_owner_has_all_rights_and_the_owner_of_a_database_those_on_its_tables() {
    let access = readers();
    let (database, table) = (database(1, ADA), table(2, 1, BOB));
    for action in [Action::Select, Action::Truncate, Action::Own, Action::Maintain] {
        for owner in [ADA, BOB] {
            assert_eq!(may(&access, &session(owner), action, object(&database, &table)), Ok(()));
        }
    }
    let on_database =
        |who, action| may(&access, &session(who), action, Object::Database(Arc::clone(&database)));
    assert_eq!(on_database(ADA, Action::Create), Ok(()));
    assert_eq!(on_database(ADA, Action::Own), Ok(()));
    assert_eq!(on_database(BOB, Action::Connect), denied("3F000"));
    // Nobody logs in to a table.
    assert_eq!(
        may(&access, &session(ADA), Action::Login, object(&database, &table)),
        denied("42501")
    );
}

#[test]
fn grants_to_public_and_on_a_database_hold_for_everybody_and_its_tables() {
    let mut access = readers();
    let target = Target::Database(DatabaseId(1));
    grant_to(&mut access, target, Grantee::Public, SELECT);
    let (database, table) = (database(1, BOOTSTRAP_ROLE), table(9, 1, BOOTSTRAP_ROLE));
    assert_eq!(may(&access, &session(BOB), Action::Select, object(&database, &table)), Ok(()));
    let connect = Object::Database(Arc::clone(&database));
    assert_eq!(may(&access, &session(BOB), Action::Connect, connect.clone()), Ok(()));
    access.drop_grant(target);
    assert_eq!(may(&access, &session(BOB), Action::Connect, connect), denied("3F000"));
}

#[test]
fn an_identity_ends_when_what_it_was_made_of_changes() {
    let reason = |change: fn(&mut Access), who: Identity| {
        let mut access = readers();
        access.put_token(token(7, 1, vec![]));
        change(&mut access);
        match check(&access, &who, NOW, &[]) {
            Err(Denied::Ended(reason)) => Some(reason),
            other => other.map(|_| None).unwrap(),
        }
    };
    fn change(access: &mut Access, id: RoleId, edit: impl FnOnce(&mut Role)) {
        let mut role = access.role(id).unwrap().as_ref().clone();
        edit(&mut role);
        access.put_role(role);
    }
    fn change_token(access: &mut Access, edit: impl FnOnce(&mut Token)) {
        let mut token = access.token(TokenId::new(7).unwrap()).unwrap().as_ref().clone();
        edit(&mut token);
        access.put_token(token);
    }
    let by_token = Identity { token: TokenId::new(7), secret_version: 99, ..session(ADA) };
    let acting = Identity { acting: Some(READERS), ..session(BOB) };
    for who in [session(ADA), by_token, acting] {
        assert_eq!(reason(|_| {}, who), None);
    }
    let ada = session(ADA);
    assert_eq!(reason(|access| access.drop_role(ADA), ada), Some(EndReason::RoleDropped));
    let no_login = |access: &mut Access| change(access, ADA, |role| role.login = false);
    assert_eq!(reason(no_login, ada), Some(EndReason::LoginRevoked));
    assert_eq!(reason(no_login, by_token), Some(EndReason::LoginRevoked));
    let expired = |access: &mut Access| change(access, ADA, |role| role.valid_until_ms = Some(NOW));
    assert_eq!(reason(expired, ada), Some(EndReason::RoleExpired));
    let later =
        |access: &mut Access| change(access, ADA, |role| role.valid_until_ms = Some(NOW + 1));
    assert_eq!(reason(later, ada), None);
    let password = |access: &mut Access| change(access, ADA, |role| role.secret_version = 1);
    assert_eq!(reason(password, ada), Some(EndReason::SecretChanged));
    assert_eq!(reason(password, by_token), None);
    // The session that changes the password has expected that.
    let expecting = Identity { secret_version: 1, ..ada };
    assert_eq!(reason(password, expecting), None);
    assert_eq!(reason(|_| {}, expecting), None);
    let org = |access: &mut Access| change(access, ADA, |role| role.org = OrgId::new(1));
    assert_eq!(reason(org, ada), Some(EndReason::OrgChanged));
    // The token stays without one.
    assert_eq!(reason(org, by_token), Some(EndReason::OrgChanged));
    let no_member = |access: &mut Access| change(access, BOB, |role| role.member_of.clear());
    assert_eq!(reason(no_member, acting), Some(EndReason::ActingRevoked));

    let dropped = |access: &mut Access| access.drop_token(TokenId::new(7).unwrap());
    assert_eq!(reason(dropped, by_token), Some(EndReason::TokenDropped));
    let given = |access: &mut Access| change_token(access, |token| token.owner = BOB);
    assert_eq!(reason(given, by_token), Some(EndReason::TokenDropped));
    let off = |access: &mut Access| change_token(access, |token| token.enabled = false);
    assert_eq!(reason(off, by_token), Some(EndReason::TokenDisabled));
    let old = |access: &mut Access| change_token(access, |token| token.expires_ms = Some(NOW));
    assert_eq!(reason(old, by_token), Some(EndReason::TokenExpired));
}

#[test]
fn a_token_has_the_rights_that_it_names_and_its_owner_has() {
    let mut access = readers();
    let bucket = |rows| Permission {
        mode: Mode::Read,
        scope: Scope::Bucket { database: DatabaseId(1), rows },
    };
    let term = |column: &str| Term { column: column.to_owned(), values: vec![Value::Int(4)] };
    let rows = RowPredicate::new(vec![term("k0")]).unwrap();
    let elsewhere = RowPredicate::new(vec![term("customer")]).unwrap();
    access.put_token(token(7, 1, vec![bucket(None)]));
    access.put_token(token(8, 0, vec![bucket(Some(rows.clone()))]));
    access.put_token(token(9, 0, vec![bucket(Some(elsewhere))]));
    access.put_token(token(10, 0, vec![Permission { mode: Mode::Both, scope: Scope::Everything }]));
    let by = |number, login| Identity { token: TokenId::new(number), ..session(login) };
    let (database, table) = (database(1, BOOTSTRAP_ROLE), table(1, 1, BOOTSTRAP_ROLE));
    let seen = |who| sight(&access, &who, NOW, &database, &table);

    assert_eq!(seen(by(7, ADA)), Sight::All);
    assert_eq!(seen(by(8, BOOTSTRAP_ROLE)), Sight::Rows(rows.clone()));
    assert_eq!(seen(by(9, BOOTSTRAP_ROLE)), Sight::None);
    assert_eq!(seen(by(10, BOOTSTRAP_ROLE)), Sight::All);
    // Somebody else's token is none of Ada's.
    assert_eq!(seen(by(8, ADA)), Sight::None);

    let need = Need::new(Action::Select, object(&database, &table));
    let permit = check(&access, &by(8, BOOTSTRAP_ROLE), NOW, &[need]).unwrap();
    assert_eq!(permit.rows(TableId(1)), Some(&rows));
    assert_eq!((permit.role(), permit.token()), (BOOTSTRAP_ROLE, TokenId::new(8)));
    assert!(permit.covers(TableId(1), Action::Select));
    assert!(!permit.covers(TableId(1), Action::Own) && !permit.covers(TableId(2), Action::Select));
    assert!(!permit.covers_database(DatabaseId(1), Action::Select));

    // A superuser's token for rows is no superuser's.
    for (action, object) in [
        (Action::Admin, Object::Cluster),
        (Action::Create, Object::Cluster),
        (Action::Monitor, Object::SystemTable("audit".to_owned())),
        (Action::Maintain, Object::Session { role: BOOTSTRAP_ROLE }),
        (Action::Insert, object(&database, &table)),
    ] {
        assert_eq!(may(&access, &by(8, BOOTSTRAP_ROLE), action, object.clone()), denied("42501"));
        assert_eq!(may(&access, &by(10, BOOTSTRAP_ROLE), action, object), Ok(()));
    }
}

#[test]
fn organisations_do_not_see_each_other_whatever_was_granted() {
    let mut access = readers();
    let (ours, theirs) = (OrgId::new(1), OrgId::new(2));
    for (id, name) in [(ours, "ours"), (theirs, "theirs")] {
        let (id, name) = (id.unwrap(), name.to_owned());
        access.put_org(Org { id, name, series_max: None, profile: Profile::Free });
    }
    access.put_role(Role { org: ours, ..user(ADA, &[]) });
    access.put_role(Role { org: theirs, ..user(BOB, &[]) });
    let target = Target::Database(DatabaseId(1));
    grant_to(&mut access, target, Grantee::Public, Actions::DATABASE);
    let (database, table) = (database(1, BOB), table(1, 1, BOB));
    let (ada, bob) =
        (Identity { org: ours, ..session(ADA) }, Identity { org: theirs, ..session(BOB) });
    let root = session(BOOTSTRAP_ROLE);
    assert_eq!(may(&access, &ada, Action::Select, object(&database, &table)), denied("42P01"));
    assert_eq!(may(&access, &bob, Action::Select, object(&database, &table)), Ok(()));
    assert_eq!(may(&access, &root, Action::Select, object(&database, &table)), Ok(()));
    let org = |id: Option<OrgId>| Object::Org { id: id.unwrap(), name: "o".to_owned() };
    assert_eq!(may(&access, &ada, Action::Select, org(ours)), Ok(()));
    assert_eq!(may(&access, &ada, Action::ManageOrg, org(ours)), denied("42501"));
    assert_eq!(may(&access, &ada, Action::Select, org(theirs)), denied("42704"));
    assert_eq!(may(&access, &ada, Action::Select, org(OrgId::new(3))), denied("42704"));
    let role = Object::Role { id: BOB, name: "bob".to_owned() };
    assert_eq!(may(&access, &ada, Action::Select, role), denied("42704"));
}

#[test]
fn a_token_for_an_organisation_has_no_power_over_the_cluster() {
    let mut access = readers();
    let everything = vec![Permission { mode: Mode::Both, scope: Scope::Everything }];
    let org = OrgId::new(1);
    access.put_token(Token { org, ..token(7, 0, everything) });
    let id = TokenId::new(7);
    let who = Identity { token: id, org, ..session(BOOTSTRAP_ROLE) };
    for action in [Action::Admin, Action::Create, Action::ManageOrg] {
        assert_eq!(may(&access, &who, action, Object::Cluster), denied("42501"));
    }
    let (database, table) = (database(1, BOOTSTRAP_ROLE), table(1, 1, BOOTSTRAP_ROLE));
    assert_eq!(may(&access, &who, Action::Select, object(&database, &table)), Ok(()));
}

#[test]
fn power_over_roles_and_tokens_gives_no_more_power() {
    let mut access = readers();
    let administers = |role| Membership { role, admin_option: true, inherit: false };
    let member_of = vec![administers(READERS), administers(BOOTSTRAP_ROLE)];
    access.put_role(Role { create_role: true, member_of, ..user(ADA, &[]) });
    access.put_token(token(7, 0, vec![]));
    access.put_token(token(8, 2, vec![]));
    let manage = Actions::of(&[Action::ManageToken]);
    grant_to(&mut access, Target::Cluster, Grantee::Role(ADA), manage);
    let ada = |action, object| may(&access, &session(ADA), action, object);
    let role = |id: RoleId| Object::Role { id, name: format!("role{id}") };
    assert_eq!(ada(Action::CreateRole, Object::Cluster), Ok(()));
    assert_eq!(ada(Action::CreateRole, role(READERS)), Ok(()));
    assert_eq!(ada(Action::Admin, role(READERS)), Ok(()));
    assert_eq!(ada(Action::Login, role(READERS)), Ok(()));
    assert_eq!(ada(Action::CreateRole, role(BOB)), denied("42501"));
    assert_eq!(ada(Action::Admin, role(BOOTSTRAP_ROLE)), denied("42501"));
    assert_eq!(ada(Action::Maintain, role(BOOTSTRAP_ROLE)), denied("42501"));
    assert_eq!(ada(Action::Maintain, role(ADA)), Ok(()));
    assert_eq!(ada(Action::Login, role(BOB)), denied("42501"));
    assert_eq!(ada(Action::Login, role(RoleId(99))), denied("42704"));
    // New tokens for oneself only; of others, those of superusers stay hidden.
    assert_eq!(ada(Action::ManageToken, role(ADA)), Ok(()));
    assert_eq!(ada(Action::ManageToken, role(BOB)), denied("42501"));
    assert_eq!(ada(Action::ManageToken, Object::Token(TokenId::new(8).unwrap())), Ok(()));
    assert_eq!(ada(Action::ManageToken, Object::Token(TokenId::new(7).unwrap())), denied("42704"));
    // A member makes none for its group; whoever may alter the group does.
    assert_eq!(ada(Action::ManageToken, role(READERS)), Ok(()));
    let member = may(&readers(), &session(ADA), Action::ManageToken, role(READERS));
    assert_eq!(member, denied("42501"));
    let bob = session(BOB);
    let owned = Object::Token(TokenId::new(8).unwrap());
    assert_eq!(may(&access, &bob, Action::ManageToken, owned), Ok(()));
    // Whoever changes the password of a role becomes what it may become.
    let membership = Membership { role: BOOTSTRAP_ROLE, admin_option: false, inherit: false };
    access.put_role(Role { member_of: vec![membership], ..Role::new(READERS, "readers") });
    for action in [Action::CreateRole, Action::Admin, Action::Maintain, Action::ManageToken] {
        assert_eq!(may(&access, &session(ADA), action, role(READERS)), denied("42501"));
    }
}

#[test]
fn attributes_are_not_inherited() {
    let mut access = readers();
    let group = Role { superuser: true, create_db: true, admin: true, ..Role::new(READERS, "g") };
    access.put_role(group);
    let ada = session(ADA);
    assert_eq!(may(&access, &ada, Action::Create, Object::Cluster), denied("42501"));
    assert_eq!(may(&access, &ada, Action::Admin, Object::Cluster), denied("42501"));
    let acting = Identity { acting: Some(READERS), ..ada };
    assert_eq!(may(&access, &acting, Action::Admin, Object::Cluster), Ok(()));
    access.put_role(Role { admin: true, ..user(ADA, &[]) });
    assert_eq!(may(&access, &ada, Action::Monitor, Object::Cluster), Ok(()));
    assert_eq!(may(&access, &ada, Action::Create, Object::Cluster), denied("42501"));
}

#[test]
fn messages_are_those_of_postgresql() {
    let access = readers();
    let (database, table) = (database(1, BOOTSTRAP_ROLE), table(1, 1, BOOTSTRAP_ROLE));
    let message = |who: RoleId, action, object| {
        let denied = check(&access, &session(who), NOW, &[Need::new(action, object)]).unwrap_err();
        Error::from(denied).to_string()
    };
    assert_eq!(
        message(ADA, Action::Insert, object(&database, &table)),
        "permission denied for table t1"
    );
    assert_eq!(message(ADA, Action::Own, object(&database, &table)), "must be owner of table t1");
    assert_eq!(message(BOB, Action::Own, object(&database, &table)), "table \"t1\" does not exist");
    let create = message(ADA, Action::Create, Object::Cluster);
    assert_eq!(create, "permission denied to create database");
    let admin = message(ADA, Action::Admin, Object::Cluster);
    assert_eq!(admin, "permission denied: ADMIN is required");
    assert_eq!(
        message(READERS, Action::Login, Object::Cluster),
        "authentication is no longer valid: the role is not permitted to log in"
    );
}

#[test]
fn only_visible_objects_are_listed() {
    let mut access = readers();
    let former = table(3, 1, BOOTSTRAP_ROLE);
    let mut moved = table(1, 1, BOOTSTRAP_ROLE).as_ref().clone();
    moved.former = Some(former.id);
    let databases = [database(1, BOOTSTRAP_ROLE), database(2, BOOTSTRAP_ROLE)];
    let tables =
        [Arc::new(moved), table(2, 1, BOOTSTRAP_ROLE), former, table(4, 2, BOOTSTRAP_ROLE)];
    let catalog = catalog(&databases, &tables);
    let names = |access: &Access, who: &Identity| {
        let seen = visible(&catalog, access, who, NOW);
        assert_eq!(seen.version, 5);
        let databases: Vec<String> = seen.databases.keys().cloned().collect();
        let tables = seen.tables.values().flat_map(|tables| tables.keys().cloned());
        (databases.join(" "), tables.collect::<Vec<_>>().join(" "))
    };
    let listed = |databases: &str, tables: &str| (databases.to_owned(), tables.to_owned());
    // The former table's rows are rows of table 1.
    assert_eq!(names(&access, &session(ADA)), listed("d1", "t1 t3"));
    assert_eq!(names(&access, &session(BOB)), listed("", ""));
    assert_eq!(names(&access, &session(READERS)), listed("", ""));
    let connect = Actions::of(&[Action::Connect]);
    grant_to(&mut access, Target::Database(DatabaseId(2)), Grantee::Public, connect);
    assert_eq!(names(&access, &session(BOB)), listed("d2", ""));
    // The same catalog when nothing is hidden.
    assert!(Arc::ptr_eq(&visible(&catalog, &access, &session(BOOTSTRAP_ROLE), NOW), &catalog));
    for database in [1, 2] {
        let target = Target::Database(DatabaseId(database));
        grant_to(&mut access, target, Grantee::Public, SELECT);
    }
    assert!(Arc::ptr_eq(&visible(&catalog, &access, &session(BOB), NOW), &catalog));
}

#[test]
fn a_right_to_write_shows_the_name_and_no_row() {
    let mut access = readers();
    let insert = Actions::of(&[Action::Insert]);
    grant_to(&mut access, Target::Table(TableId(1)), Grantee::Role(BOB), insert);
    let (database, table) = (database(1, BOOTSTRAP_ROLE), table(1, 1, BOOTSTRAP_ROLE));
    assert_eq!(sight(&access, &session(BOB), NOW, &database, &table), Sight::Names);
    assert_eq!(sight(&access, &session(ADA), NOW, &database, &table), Sight::All);
}

#[test]
fn grants_are_made_as_the_owner_or_as_a_role_with_the_option() {
    let mut access = readers();
    let mut record = Grant::new(Target::Table(TableId(2)));
    let grantee = Grantee::Role(READERS);
    let entry = GrantEntry { grantee, actions: SELECT, grantable: SELECT, grantor: BOB };
    record.grant(BOB, entry).unwrap();
    access.put_grant(record);
    let (database, table) = (database(1, BOOTSTRAP_ROLE), table(2, 1, BOB));
    let of = |who: RoleId, actions| {
        grantor(&access, &session(who), NOW, &object(&database, &table), actions).ok()
    };
    assert_eq!(of(BOB, Actions::TABLE), Some(BOB));
    assert_eq!(of(BOOTSTRAP_ROLE, Actions::TABLE), Some(BOB));
    assert_eq!(of(ADA, SELECT), Some(READERS));
    assert_eq!(of(ADA, Actions::TABLE), None);
    let cluster = grantor(&access, &session(ADA), NOW, &Object::Cluster, Actions::CLUSTER);
    assert!(matches!(cluster, Err(Denied::NotAllowed { .. })));
}

#[test]
fn an_edit_is_seen_by_no_other_snapshot() {
    let mut access = readers();
    for number in 1..600 {
        access.put_token(token(number, 1, vec![]));
    }
    let before = access.clone();
    let first = TokenId::new(1).unwrap();
    access.drop_token(first);
    access.put_token(Token { owner: BOB, ..token(257, 1, vec![]) });
    access.put_role(Role::new(ADA, "ada"));
    assert!(before.token(first).is_some() && access.token(first).is_none());
    assert!(before.token_by_hash(&token(1, 1, vec![]).sha256).is_some());
    let second = TokenId::new(257).unwrap();
    assert_eq!(
        (before.token(second).unwrap().owner, access.token(second).unwrap().owner),
        (ADA, BOB)
    );
    assert_eq!((before.tokens().count(), access.tokens().count()), (599, 598));
    // Under the new name only.
    assert!(access.role_by_name("role1").is_none() && before.role_by_name("role1").is_some());
    assert_eq!(access.role_by_name("ada").unwrap().id, ADA);
    // A bucket that was not edited is shared.
    let is_shared = |position: usize| {
        let [ours, theirs] = [&before, &access].map(|access| &access.tokens.get().by_hash);
        Arc::ptr_eq(&ours[position], &theirs[position])
    };
    assert!(is_shared(2) && !is_shared(1));
    assert!(!format!("{access:?}").contains("ada"), "{access:?}");
}

#[test]
fn a_sequence_is_used_by_rights_on_it_or_by_those_to_insert() {
    let mut access = readers();
    let (database, table) = (database(1, BOOTSTRAP_ROLE), table(1, 1, BOOTSTRAP_ROLE));
    let sequence = |id: u32, table: Option<&Arc<Table>>| Object::Sequence {
        id: SequenceId(id),
        database: Arc::clone(&database),
        table: table.map(Arc::clone),
        name: format!("s{id}"),
        owner: BOOTSTRAP_ROLE,
    };
    let ada = session(ADA);
    assert_eq!(may(&access, &ada, Action::Connect, sequence(1, None)), denied("42P01"));
    let (target, grantee) = (Target::Sequence(SequenceId(1)), Grantee::Role(READERS));
    grant_to(&mut access, target, grantee, Actions::of(&[Action::Connect]));
    assert_eq!(may(&access, &ada, Action::Connect, sequence(1, None)), Ok(()));
    for action in [Action::Update, Action::Select, Action::Own] {
        assert_eq!(may(&access, &ada, action, sequence(1, None)), denied("42501"));
    }
    assert_eq!(may(&access, &ada, Action::Connect, sequence(2, None)), denied("42P01"));
    // Readers of a table see the numbers of its columns; those who insert use them up.
    assert_eq!(may(&access, &ada, Action::Select, sequence(2, Some(&table))), Ok(()));
    assert_eq!(may(&access, &ada, Action::Connect, sequence(2, Some(&table))), denied("42501"));
    let insert = Actions::of(&[Action::Insert]);
    grant_to(&mut access, Target::Table(TableId(1)), Grantee::Role(ADA), insert);
    assert_eq!(may(&access, &ada, Action::Connect, sequence(2, Some(&table))), Ok(()));
    assert_eq!(may(&access, &ada, Action::Update, sequence(2, Some(&table))), denied("42501"));
}

#[test]
fn an_edit_among_many_copies_little() {
    let mut access = Access::bootstrap("partita", Secrets::default());
    for id in 1..=10_000 {
        access.put_role(Role::new(RoleId(id), format!("r{id}")));
        let grantee = Grantee::Role(RoleId(id));
        grant_to(&mut access, Target::Table(TableId(id)), grantee, SELECT);
    }
    for number in 1..=100_000 {
        access.put_token(token(number, 1, vec![]));
    }
    assert_eq!((access.roles().len(), access.token_count()), (10_001, 100_000));
    assert_eq!(access.role_by_name("r9999").unwrap().id, RoleId(9_999));
    assert_eq!(access.token_by_hash(&token(99_999, 1, vec![]).sha256).unwrap().id.get(), 99_999);
    let names = |a: &Access, b: &Access| {
        let pairs = a.roles.get().by_name.iter().zip(b.roles.get().by_name.iter());
        pairs.filter(|(ours, theirs)| !Arc::ptr_eq(ours, theirs)).count()
    };
    // What is not edited is shared, names of roles included.
    let before = access.clone();
    access.put_role(Role { login: true, ..Role::new(RoleId(7), "r7") });
    grant_to(&mut access, Target::Table(TableId(9_000)), Grantee::Public, SELECT);
    assert_eq!(access.roles().unshared(before.roles()), 1);
    assert_eq!(access.grants.unshared(&before.grants), 1);
    assert_eq!(names(&access, &before), 0);
    assert_eq!(access.roles().unlike(before.roles()).count(), 1);
    assert_eq!(access.grants_unlike(&before).count(), 1);
    assert_eq!(access.tokens_unlike(&before).count(), 0);
    let before = access.clone();
    access.put_role(Role::new(RoleId(7), "renamed"));
    access.drop_role(RoleId(10_000));
    access.drop_grant(Target::Table(TableId(20_000)));
    assert!(names(&access, &before) <= 3);
    assert_eq!(access.roles().unshared(before.roles()), 2);
    assert_eq!(access.grants.unshared(&before.grants), 0);
    assert_eq!(access.role_by_name("renamed").unwrap().id, RoleId(7));
    assert!(access.role_by_name("r7").is_none() && access.role_by_name("r10000").is_none());
}

#[test]
fn a_name_stays_with_the_role_that_got_it_last() {
    let mut access = Access::bootstrap("partita", Secrets::default());
    access.put_role(Role::new(ADA, "ada"));
    // A watcher may hear of the new holder of a name first.
    access.put_role(Role::new(BOB, "ada"));
    access.put_role(Role::new(ADA, "former"));
    assert_eq!(access.role_by_name("ada").unwrap().id, BOB);
    access.drop_role(ADA);
    assert_eq!(access.role_by_name("ada").unwrap().id, BOB);
    assert!(access.role_by_name("former").is_none());
}

#[test]
fn roles_and_tokens_that_are_being_loaded_are_waited_for() {
    let mut loaded = readers();
    loaded.put_token(token(7, 1, vec![]));
    let mut access = loaded.clone();
    let arrival = access.await_identities();
    assert!(format!("{access:?}").contains("roles: None"), "{access:?}");
    // Grants are there at once.
    assert!(access.grant(Target::Table(TableId(1))).is_some());
    let reader = access.clone();
    let looking = std::thread::spawn(move || {
        let hash = token(7, 1, vec![]).sha256;
        (reader.role_by_name("role1").is_some(), reader.token_by_hash(&hash).is_some())
    });
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(!looking.is_finished());
    // A reader of roles does not wait for tokens.
    arrival.deliver_roles(&loaded);
    assert!(access.role(ADA).is_some());
    assert!(!looking.is_finished());
    arrival.deliver_tokens(&loaded);
    assert_eq!(looking.join().unwrap(), (true, true));
    access.until_loaded();
    assert_eq!(access, loaded);
    access.drop_token(TokenId::new(7).unwrap());
    assert_eq!((access.token_count(), loaded.token_count()), (0, 1));
}

#[test]
fn without_what_was_to_be_loaded_nobody_may_do_anything() {
    let mut access = readers();
    drop(access.await_identities());
    access.until_loaded();
    assert_eq!((access.roles().len(), access.token_count()), (0, 0));
    let denial = may(&access, &session(BOOTSTRAP_ROLE), Action::Login, Object::Cluster);
    assert_eq!(denial, denied("28000"));
}

#[test]
fn nobody_may_do_anything_without_roles() {
    let access = Access::default();
    assert_eq!(
        may(&access, &session(BOOTSTRAP_ROLE), Action::Login, Object::Cluster),
        denied("28000")
    );
    assert_eq!(Permit::for_tests(ADA).role(), ADA);
}

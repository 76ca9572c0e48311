//! Roles, grants, tokens and organisations: their changes, their records, and histories of them.

use partita_proto::access::{
    AccessChange, Action, Actions, GrantEntry, Grantee, Membership, Mode, Org, Permission, Profile,
    Revocation, RoleEdit, Scope, Secrets, Target, Token, TokenEdit,
};
use partita_proto::id::{DatabaseId, OrgId, RoleId, TokenId};
use partita_proto::service::{ClusterService, MetaService};
use partita_proto::wire::{Follower, parts_between};
use proptest::prelude::*;
use proptest::sample::select;

use super::changes::{Server, until};
use super::model::hex;
use super::nodes::FakeNodes;
use super::*;
use crate::memory_store::MemoryStore;
use crate::record;
use crate::store::StateStore;

const VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
    WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
const SECRETS: Secrets = Secrets { mock_salts: [0x22; 32], cookies: [0x33; 32] };
const SELECT: Actions = Actions::of(&[Action::Select]);
const PUBLIC: DatabaseId = DatabaseId(1);

fn first() -> Command {
    Command::Bootstrap { superuser: "partita".to_owned(), secrets: SECRETS }
}

/// A catalog with the bootstrap superuser.
pub(super) fn world() -> World {
    let mut world = World::new();
    world.command(&first()).unwrap();
    world
}

pub(super) fn access(change: AccessChange) -> Ddl {
    Ddl::Access(Box::new(change))
}

pub(super) fn create_role(name: &str) -> AccessChange {
    AccessChange::CreateRole {
        name: name.to_owned(),
        edit: RoleEdit { login: Some(true), ..RoleEdit::default() },
        member_of: vec![],
        members: vec![],
    }
}

/// Creates a role that can log in.
pub(super) fn role(world: &mut World, name: &str) -> RoleId {
    world.change(access(create_role(name))).unwrap();
    world.catalog.access.role_by_name(name).unwrap().id
}

pub(super) fn entry(grantor: RoleId, grantee: RoleId) -> GrantEntry {
    let grantee = Grantee::Role(grantee);
    GrantEntry { grantee, actions: SELECT, grantable: Actions::NONE, grantor }
}

pub(super) fn token(id: u64, owner: RoleId, database: DatabaseId) -> Token {
    Token {
        id: TokenId::new(id).unwrap(),
        sha256: [u8::try_from(id).unwrap(); 32],
        verifier: VERIFIER.parse().unwrap(),
        description: "telegraf".to_owned(),
        owner,
        org: None,
        created_ms: 1_000,
        expires_ms: None,
        enabled: true,
        permissions: vec![Permission {
            mode: Mode::Read,
            scope: Scope::Bucket { database, rows: None },
        }],
    }
}

fn org(id: u64, name: &str) -> Org {
    let id = OrgId::new(id).unwrap();
    Org { id, name: name.to_owned(), series_max: None, profile: Profile::Free }
}

/// The SQLSTATE and message of a refusal.
pub(super) fn refused(result: Result<Reply, Error>) -> (String, String) {
    let error = result.unwrap_err();
    (error.sqlstate().to_owned(), error.to_string())
}

#[test]
fn the_first_leader_makes_the_superuser_once() {
    let mut world = World::new();
    let early = world.change(access(create_role("ada")));
    assert!(early.as_ref().is_err_and(Error::is_retryable), "{early:?}");
    assert_eq!(world.catalog.access.roles().len(), 0);
    world.command(&first()).unwrap();
    let access = Arc::clone(&world.catalog.access);
    assert_eq!((access.secrets, access.version), (SECRETS, world.state.version()));
    let superuser = access.role_by_name("partita").unwrap();
    assert!(superuser.id == BOOTSTRAP_ROLE && superuser.can_rescue());
    let secrets = Secrets { cookies: [1; 32], ..SECRETS };
    let again = Command::Bootstrap { superuser: "root".to_owned(), secrets };
    assert_eq!(world.command(&again), Ok(Reply::Unchanged));
    assert_eq!(world.catalog.access, access);
}

#[test]
fn a_role_is_created_altered_and_dropped() {
    let mut world = world();
    let staff = role(&mut world, "staff");
    let ada = role(&mut world, "ada");
    let change = AccessChange::CreateRole {
        name: "readers".to_owned(),
        edit: RoleEdit::default(),
        member_of: vec![Membership { role: staff, admin_option: false, inherit: true }],
        members: vec![(ada, true)],
    };
    world.change(access(change.clone())).unwrap();
    let readers = world.catalog.access.role_by_name("readers").unwrap().id;
    assert_eq!(readers, RoleId(3));
    let expected = [Membership { role: readers, admin_option: true, inherit: true }];
    assert_eq!(world.catalog.access.role(ada).unwrap().member_of, expected);
    let twin = Err(Error::AlreadyExists { kind: "role", name: "readers".to_owned() });
    assert_eq!(world.change(access(change)), twin);
    for name in ["public", "pg_x", ""] {
        invalid(world.change(access(create_role(name))));
    }
    // A password ends the sessions that began with the former one.
    let verifier = Some(Some(VERIFIER.parse().unwrap()));
    let settings = vec![("TimeZone".to_owned(), Some("UTC".to_owned()))];
    let name = Some("lovelace".to_owned());
    let edit = RoleEdit { name, verifier, settings, ..RoleEdit::default() };
    let alter = AccessChange::AlterRole { role: ada, edit };
    world.change(access(alter.clone())).unwrap();
    let altered = Arc::clone(world.catalog.access.role_by_name("lovelace").unwrap());
    assert_eq!((altered.id, altered.secret_version, altered.settings.len()), (ada, 1, 1));
    assert_eq!(world.change(access(alter)), Ok(Reply::Unchanged));
    // With a role its memberships and tokens go, and its number is not given again.
    world.change(access(AccessChange::CreateToken(Box::new(token(1, readers, PUBLIC))))).unwrap();
    world.change(access(AccessChange::DropRole { role: readers })).unwrap();
    assert!(world.catalog.access.role(ada).unwrap().member_of.is_empty());
    assert_eq!(world.catalog.access.tokens().count(), 0);
    assert_eq!(role(&mut world, "readers"), RoleId(4));
    let absent = AccessChange::DropRole { role: readers };
    assert_eq!(refused(world.change(access(absent))).0, "42704");
}

#[test]
fn memberships_have_no_cycle() {
    let mut world = world();
    let (a, b) = (role(&mut world, "a"), role(&mut world, "b"));
    let grant = |group, member, admin_option| {
        access(AccessChange::GrantRole { group, member, admin_option, inherit: true })
    };
    world.change(grant(a, b, true)).unwrap();
    // The admin option stays when the role is granted again without it.
    assert_eq!(world.change(grant(a, b, false)), Ok(Reply::Unchanged));
    assert_eq!(refused(world.change(grant(b, a, false))).0, "0LP01");
    assert_eq!(refused(world.change(grant(a, a, false))).0, "0LP01");
    let closing = AccessChange::CreateRole {
        name: "c".to_owned(),
        edit: RoleEdit::default(),
        member_of: vec![Membership { role: b, admin_option: false, inherit: true }],
        members: vec![(a, false)],
    };
    assert_eq!(refused(world.change(access(closing))).0, "0LP01");
    let revoke = |admin_option_only| {
        access(AccessChange::RevokeRole { group: a, member: b, admin_option_only })
    };
    world.change(revoke(true)).unwrap();
    assert!(!world.catalog.access.role(b).unwrap().member_of[0].admin_option);
    world.change(revoke(false)).unwrap();
    assert_eq!(world.change(revoke(false)), Ok(Reply::Unchanged));
    world.change(grant(b, a, false)).unwrap();
}

#[test]
fn a_superuser_that_can_log_in_stays() {
    let mut world = world();
    let alter = |role, edit| access(AccessChange::AlterRole { role, edit });
    let no_login = RoleEdit { login: Some(false), ..RoleEdit::default() };
    let expires = RoleEdit { valid_until_ms: Some(Some(i64::MAX)), ..RoleEdit::default() };
    for edit in [no_login.clone(), expires] {
        assert_eq!(refused(world.change(alter(BOOTSTRAP_ROLE, edit))).0, "55000");
    }
    let plain = RoleEdit { superuser: Some(false), ..RoleEdit::default() };
    assert_eq!(refused(world.change(alter(BOOTSTRAP_ROLE, plain.clone()))).0, "42501");
    let drop = access(AccessChange::DropRole { role: BOOTSTRAP_ROLE });
    assert_eq!(refused(world.change(drop)).0, "2BP01");
    let root = role(&mut world, "root");
    let promotion = RoleEdit { superuser: Some(true), ..RoleEdit::default() };
    world.change(alter(root, promotion)).unwrap();
    world.change(alter(BOOTSTRAP_ROLE, no_login)).unwrap();
    assert_eq!(refused(world.change(alter(root, plain))).0, "55000");
    let drop = access(AccessChange::DropRole { role: root });
    assert_eq!(refused(world.change(drop)).0, "55000");
}

#[test]
fn the_first_password_is_set_once() {
    let mut world = world();
    let set = access(AccessChange::SetInitialPassword(VERIFIER.parse().unwrap()));
    assert!(matches!(world.change(set.clone()), Ok(Reply::Changed { .. })));
    assert_eq!(world.catalog.access.role(BOOTSTRAP_ROLE).unwrap().secret_version, 1);
    assert_eq!(world.change(set.clone()), Ok(Reply::Unchanged));
    // Nor does one that was removed come back.
    let removal = RoleEdit { verifier: Some(None), ..RoleEdit::default() };
    let alter = AccessChange::AlterRole { role: BOOTSTRAP_ROLE, edit: removal };
    world.change(access(alter)).unwrap();
    assert_eq!(world.change(set), Ok(Reply::Unchanged));
}

#[test]
fn what_depends_on_a_role_keeps_it() {
    let mut world = world();
    let (ada, bob) = (role(&mut world, "ada"), role(&mut world, "bob"));
    let (name, ttl) = ("d".to_owned(), None);
    world.change(Ddl::CreateDatabase { name, if_not_exists: false, ttl, owner: ada }).unwrap();
    world.done(create(NewTable { owner: ada, ..new_table("t") })).unwrap();
    assert_eq!(world.catalog.databases["d"].owner, ada);
    let table = Target::Table(world.table("t").id);
    assert_eq!(world.catalog.table("public", "t").unwrap().owner, ada);
    world.change(access(AccessChange::Grant { target: table, entry: entry(ada, bob) })).unwrap();
    let (code, message) = refused(world.change(access(AccessChange::DropRole { role: ada })));
    assert_eq!(code, "2BP01");
    for dependency in ["owner of database d", "owner of table t", "privileges for table t"] {
        assert!(message.contains(dependency), "{message}");
    }
    let database = Target::Database(world.catalog.databases["d"].id);
    for target in [table, database] {
        let change = AccessChange::SetOwner { target, owner: BOOTSTRAP_ROLE };
        world.change(access(change)).unwrap();
    }
    // The new owner has taken over what the former one granted.
    let grant = world.catalog.access.grant(table).unwrap();
    assert_eq!(grant.entries(), [entry(BOOTSTRAP_ROLE, bob)]);
    world.change(access(AccessChange::DropRole { role: ada })).unwrap();
    let nobody = NewTable { owner: ada, ..new_table("u") };
    assert_eq!(refused(world.change(create(nobody))).0, "42704");
}

#[test]
fn rights_go_with_the_object_that_they_are_on() {
    let mut world = world();
    let ada = role(&mut world, "ada");
    world.change(create_database("d")).unwrap();
    let database = world.catalog.databases["d"].id;
    world.done(create(NewTable { database: "d".to_owned(), ..new_table("t") })).unwrap();
    world.done(create(new_table("u"))).unwrap();
    let inner = world.catalog.table("d", "t").unwrap().id;
    let outer = world.table("u").id;
    let targets = [Target::Database(database), Target::Table(inner), Target::Table(outer)];
    for target in targets.into_iter().chain([Target::Cluster]) {
        let actions = if target == Target::Cluster { Action::Monitor } else { Action::Select };
        let entry = GrantEntry { actions: Actions::of(&[actions]), ..entry(BOOTSTRAP_ROLE, ada) };
        world.change(access(AccessChange::Grant { target, entry })).unwrap();
        assert_eq!(
            world.change(access(AccessChange::Grant { target, entry })),
            Ok(Reply::Unchanged)
        );
    }
    let mut wide = token(1, ada, database);
    wide.permissions.push(Permission { mode: Mode::Write, scope: Scope::AllBuckets });
    for token in [wide, token(2, ada, database), token(3, ada, PUBLIC)] {
        world.change(access(AccessChange::CreateToken(Box::new(token)))).unwrap();
    }
    let drop = Ddl::DropDatabase { name: "d".to_owned(), if_exists: false };
    world.done(drop).unwrap();
    let counts = || -> Vec<usize> {
        let count = |id| {
            let id = TokenId::new(id).unwrap();
            world.catalog.access.token(id).unwrap().permissions.len()
        };
        (1..=3).map(count).collect()
    };
    assert_eq!(counts(), [1, 0, 1]);
    assert_eq!(world.catalog.access.grants().count(), 2);
    world.done(drop_table("u")).unwrap();
    assert_eq!(world.catalog.access.grants().count(), 1);
    let revocation = Revocation {
        grantee: Grantee::Role(ada),
        actions: Actions::ALL,
        grantor: BOOTSTRAP_ROLE,
        options_only: false,
        cascade: false,
    };
    let revoke = access(AccessChange::Revoke { target: Target::Cluster, revocation });
    world.change(revoke.clone()).unwrap();
    assert_eq!(world.catalog.access.grants().count(), 0);
    assert_eq!(world.change(revoke), Ok(Reply::Unchanged));
    let absent = AccessChange::Grant { target: targets[2], entry: entry(BOOTSTRAP_ROLE, ada) };
    assert_eq!(refused(world.change(access(absent))).0, "42P01");
}

#[test]
fn a_successor_has_the_owner_and_the_grants_of_its_former_table() {
    let mut world = world();
    let ada = role(&mut world, "ada");
    let mut new = new_table("t");
    new.schema.options.append_mode = true;
    world.done(create(new)).unwrap();
    let former = world.table("t").id;
    let entry = entry(BOOTSTRAP_ROLE, ada);
    world.change(access(AccessChange::Grant { target: Target::Table(former), entry })).unwrap();
    let placement = Placement::Hash { columns: vec![ColumnId(1)] };
    let cuts = vec![Bound::placed(100)];
    world.change(alter("t", TableChange::Repartition { placement, cuts })).unwrap();
    // The owner changes while the successor is being created.
    let owner = role(&mut world, "bob");
    let target = Target::Table(former);
    world.change(access(AccessChange::SetOwner { target, owner })).unwrap();
    world.settle();
    let successor = world.table("t");
    assert!(successor.id != former && successor.owner == owner);
    for id in [former, successor.id] {
        let grant = world.catalog.access.grant(Target::Table(id)).unwrap();
        assert_eq!(grant.entries()[0].grantor, owner);
    }
}

#[test]
fn a_token_is_created_altered_and_dropped() {
    let mut world = world();
    let ada = role(&mut world, "ada");
    let new = token(7, ada, PUBLIC);
    let make = |token: &Token| access(AccessChange::CreateToken(Box::new(token.clone())));
    world.change(make(&new)).unwrap();
    assert_eq!(refused(world.change(make(&new))).0, "42710");
    let same_text = Token { id: TokenId::new(8).unwrap(), ..new.clone() };
    assert_eq!(refused(world.change(make(&same_text))).0, "42710");
    assert_eq!(refused(world.change(make(&token(8, RoleId(9), PUBLIC)))).0, "42704");
    assert_eq!(refused(world.change(make(&token(8, ada, DatabaseId(9))))).0, "3F000");
    let stranger = Token { org: OrgId::new(5), ..token(8, ada, PUBLIC) };
    assert_eq!(refused(world.change(make(&stranger))).0, "42704");
    invalid(world.change(make(&Token { permissions: vec![], ..token(8, ada, PUBLIC) })));
    let edit = TokenEdit { enabled: Some(false), expires_ms: Some(Some(5)), description: None };
    let alter = access(AccessChange::AlterToken { id: new.id, edit });
    world.change(alter.clone()).unwrap();
    let altered = Arc::clone(world.catalog.access.token_by_hash(&new.sha256).unwrap());
    assert_eq!(*altered, Token { enabled: false, expires_ms: Some(5), ..new.clone() });
    assert_eq!(world.change(alter), Ok(Reply::Unchanged));
    world.change(access(AccessChange::DropToken(new.id))).unwrap();
    assert_eq!(refused(world.change(access(AccessChange::DropToken(new.id)))).0, "42704");
}

#[test]
fn an_organisation_stays_while_something_belongs_to_it() {
    let mut world = world();
    let acme = org(1, "acme");
    world.change(access(AccessChange::CreateOrg(acme.clone()))).unwrap();
    assert_eq!(refused(world.change(access(AccessChange::CreateOrg(acme.clone())))).0, "42710");
    assert_eq!(refused(world.change(access(AccessChange::CreateOrg(org(2, "acme"))))).0, "42710");
    let renamed = Org { name: "apex".to_owned(), ..acme };
    world.change(access(AccessChange::AlterOrg(renamed))).unwrap();
    let ada = role(&mut world, "ada");
    let join = |org| {
        let edit = RoleEdit { org: Some(org), ..RoleEdit::default() };
        access(AccessChange::AlterRole { role: ada, edit })
    };
    assert_eq!(refused(world.change(join(OrgId::new(9)))).0, "42704");
    world.change(join(Some(acme.id))).unwrap();
    let (code, message) = refused(world.change(access(AccessChange::DropOrg(acme.id))));
    assert!(code == "2BP01" && message.contains("role ada"), "{message}");
    world.change(join(None)).unwrap();
    world.change(access(AccessChange::DropOrg(acme.id))).unwrap();
    assert_eq!(world.catalog.access.orgs().count(), 0);
}

#[test]
fn a_change_of_tables_shares_the_access() {
    let mut world = world();
    let before = Arc::clone(&world.catalog.access);
    world.done(create(new_table("t"))).unwrap();
    assert!(Arc::ptr_eq(&before, &world.catalog.access));
    let table = Arc::clone(world.catalog.table("public", "t").unwrap());
    role(&mut world, "ada");
    assert!(Arc::ptr_eq(&table, world.catalog.table("public", "t").unwrap()));
    assert_eq!(world.catalog.access.version, world.catalog.version);
}

#[tokio::test]
async fn roles_survive_a_restart_and_are_watched() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let server = Server::start(dir.path(), &nodes).await;
    // A directory without roles gets the superuser before its meta serves.
    until("it leads", || *server.meta.leads().borrow()).await;
    let mut watch = server.meta.catalog();
    assert!(watch.borrow_and_update().access.role(BOOTSTRAP_ROLE).is_some());
    assert_eq!(server.meta.change(access(create_role("ada"))).await, Ok(true));
    assert!(watch.has_changed().unwrap());
    let ada = watch.borrow_and_update().access.role_by_name("ada").unwrap().id;
    let new = NewTable { owner: ada, ..new_table("t") };
    server.meta.change(create(new)).await.unwrap();
    let change = AccessChange::CreateToken(Box::new(token(1, ada, PUBLIC)));
    server.meta.change(access(change)).await.unwrap();
    let before = Arc::clone(&server.meta.catalog().borrow());
    server.kill().await;
    let server = Server::start(dir.path(), &nodes).await;
    until("it leads", || *server.meta.leads().borrow()).await;
    let catalog = Arc::clone(&server.meta.catalog().borrow());
    assert_eq!(catalog.access, before.access);
    assert_eq!(catalog.table("public", "t").unwrap().owner, ada);
    server.stop().await;
}

fn any_role() -> impl Strategy<Value = RoleId> {
    (0..6_u32).prop_map(RoleId)
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        1 => Just(Target::Cluster),
        2 => (1..4_u32).prop_map(|id| Target::Database(DatabaseId(id))),
        3 => (1..5_u32).prop_map(|id| Target::Table(TableId(id))),
    ]
}

fn edit() -> impl Strategy<Value = RoleEdit> {
    let name = prop::option::of(select(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]));
    let flag = || prop::option::of(any::<bool>());
    let org = prop::option::of(prop::option::of(1..3_u64).prop_map(|id| OrgId::new(id?)));
    (name, flag(), flag(), org).prop_map(|(name, login, superuser, org)| RoleEdit {
        name,
        login,
        superuser,
        org,
        ..RoleEdit::default()
    })
}

fn change() -> impl Strategy<Value = AccessChange> {
    let name = select(vec!["a", "b", "c", "d"]).prop_map(str::to_owned);
    let groups = prop::collection::vec(any_role(), 0..2);
    let members = prop::collection::vec((any_role(), any::<bool>()), 0..2);
    let token_id = || 1..4_u64;
    let grantee = || prop::option::of(any_role());
    let actions = || select(vec![SELECT, Actions::ALL, Actions::of(&[Action::Create])]);
    let entry = (grantee(), actions(), any::<bool>(), any_role());
    prop_oneof![
        4 => (name, edit(), groups, members).prop_map(|(name, edit, groups, members)| {
            let membership = |role| Membership { role, admin_option: true, inherit: true };
            let member_of = groups.into_iter().map(membership).collect();
            AccessChange::CreateRole { name, edit, member_of, members }
        }),
        2 => (any_role(), edit()).prop_map(|(role, edit)| AccessChange::AlterRole { role, edit }),
        2 => any_role().prop_map(|role| AccessChange::DropRole { role }),
        2 => (any_role(), any_role(), any::<bool>()).prop_map(|(group, member, admin_option)| {
            AccessChange::GrantRole { group, member, admin_option, inherit: true }
        }),
        1 => (any_role(), any_role(), any::<bool>()).prop_map(
            |(group, member, admin_option_only)| AccessChange::RevokeRole {
                group,
                member,
                admin_option_only,
            }
        ),
        5 => (target(), entry).prop_map(|(target, (role, actions, option, grantor))| {
            let actions = actions.intersection(target.grantable());
            let grantee = role.map_or(Grantee::Public, Grantee::Role);
            let grantable = if option { actions } else { Actions::NONE };
            let entry = GrantEntry { grantee, actions, grantable, grantor };
            AccessChange::Grant { target, entry }
        }),
        2 => (target(), grantee(), actions(), any_role(), any::<(bool, bool)>()).prop_map(
            |(target, role, actions, grantor, (options_only, cascade))| {
                let grantee = role.map_or(Grantee::Public, Grantee::Role);
                let revocation = Revocation { grantee, actions, grantor, options_only, cascade };
                AccessChange::Revoke { target, revocation }
            }
        ),
        2 => (target(), any_role())
            .prop_map(|(target, owner)| AccessChange::SetOwner { target, owner }),
        3 => (token_id(), any_role(), 1..4_u32).prop_map(|(id, owner, database)| {
            AccessChange::CreateToken(Box::new(token(id, owner, DatabaseId(database))))
        }),
        1 => token_id().prop_map(|id| AccessChange::DropToken(TokenId::new(id).unwrap())),
        1 => (1..3_u64).prop_map(|id| AccessChange::CreateOrg(org(id, "acme"))),
        1 => (1..3_u64).prop_map(|id| AccessChange::AlterOrg(org(id, "apex"))),
        1 => (1..3_u64).prop_map(|id| AccessChange::DropOrg(OrgId::new(id).unwrap())),
    ]
}

fn any_ddl() -> impl Strategy<Value = Ddl> {
    let table_name = || select(vec!["t", "u"]);
    prop_oneof![
        12 => change().prop_map(access),
        1 => any_role().prop_map(|owner| Ddl::CreateDatabase {
            name: "d".to_owned(),
            if_not_exists: false,
            ttl: None,
            owner,
        }),
        1 => Just(Ddl::DropDatabase { name: "d".to_owned(), if_exists: true }),
        2 => (select(vec!["public", "d"]), table_name(), any_role()).prop_map(
            |(database, name, owner)| {
                let mut new = NewTable { database: database.to_owned(), owner, ..new_table(name) };
                new.schema.options.append_mode = true;
                create(new)
            }
        ),
        1 => table_name().prop_map(drop_table),
        1 => (table_name(), 1..200_u16).prop_map(|(name, place)| {
            let placement = Placement::Hash { columns: vec![ColumnId(1)] };
            let cuts = vec![Bound::placed(place)];
            alter(name, TableChange::Repartition { placement, cuts })
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// [`World`] checks the invariants after every change; a watcher, the store and the log lead to the same.
    #[test]
    fn any_history_of_access_keeps_the_invariants(
        steps in prop::collection::vec((any_ddl(), any::<bool>()), 1..60)
    ) {
        let mut world = world();
        let mut follower = Follower::default();
        let mut previous: Option<Catalog> = None;
        let mut ids = BTreeSet::new();
        for (ddl, settles) in steps {
            let before = world.state.clone();
            let earlier_ids: BTreeSet<RoleId> = before.access().roles().keys().copied().collect();
            if let Err(error) = world.change(ddl) {
                prop_assert!(!matches!(error, Error::Internal(_) | Error::Corrupted(_)), "{error}");
                prop_assert_eq!(&world.state, &before);
            }
            if settles {
                world.settle();
            }
            // A number is given to one role only.
            for id in world.state.access().roles().keys().filter(|id| !earlier_ids.contains(id)) {
                prop_assert!(ids.insert(*id), "role {id} came back");
            }
            let mut followed = None;
            for part in parts_between(previous.as_ref(), &world.catalog) {
                followed = follower.take(part).unwrap();
            }
            assert_same(&followed.unwrap(), &world.catalog);
            previous = Some(world.catalog.clone());
        }
        let mut again = World::new();
        for command in &world.commands {
            let _refused = again.command(command).is_err();
        }
        prop_assert_eq!(&again.state, &world.state);
        let store = MemoryStore::default();
        store.commit(&record::changes(&world.state.all_edits()), None).unwrap();
        prop_assert_eq!(&record::state(store.load().unwrap().records).unwrap(), &world.state);
    }
}

/// Data written by earlier versions must stay readable. This test fails when a form changes; then the old bytes
/// belong into a test that reads them.
#[test]
fn entries_and_records_of_access_keep_their_form() {
    let mut forms = vec![format!("bootstrap {}", hex(&first().encode()))];
    let ddl = access(AccessChange::DropRole { role: RoleId(300) });
    let change = Command::Change { ddl, places: vec![], id: None, tables_max: None };
    forms.push(format!("change {}", hex(&change.encode())));
    let mut world = world();
    let ada = role(&mut world, "ada");
    let (name, ttl) = ("d".to_owned(), None);
    world.change(Ddl::CreateDatabase { name, if_not_exists: false, ttl, owner: ada }).unwrap();
    world.done(create(NewTable { owner: ada, ..new_table("t") })).unwrap();
    let database = world.catalog.databases["d"].id;
    let table = world.table("t").id;
    for target in [Target::Database(database), Target::Table(table)] {
        let entry = entry(ada, BOOTSTRAP_ROLE);
        world.change(access(AccessChange::Grant { target, entry })).unwrap();
    }
    let actions = Actions::of(&[Action::Monitor]);
    let entry = GrantEntry { actions, ..entry(BOOTSTRAP_ROLE, ada) };
    world.change(access(AccessChange::Grant { target: Target::Cluster, entry })).unwrap();
    world.change(access(AccessChange::CreateOrg(org(1, "acme")))).unwrap();
    world.change(access(AccessChange::CreateToken(Box::new(token(7, ada, database))))).unwrap();
    let edits = world.state.all_edits();
    let is_kept =
        |edit: &&Edit| edit.is_access() || matches!(edit, Edit::Counters(_) | Edit::Database(_));
    let access_edits: Vec<Edit> = edits.iter().filter(is_kept).cloned().collect();
    let record = |change: crate::store::Change| {
        format!("record {} {}", hex(&change.key), hex(&change.value.unwrap()))
    };
    forms.extend(record::changes(&access_edits).into_iter().map(record));
    let forms = forms.join("\n") + "\n";
    assert_eq!(forms, include_str!("access.golden"), "got:\n{forms}");
    // The owner is the last field of a table; without it, the bytes are those of earlier versions.
    let bytes = |owner| {
        let table = TableRecord { owner, ..TableRecord::clone(&world.table("t")) };
        let mut changes = record::changes(&[Edit::Table(Arc::new(table))]);
        changes.remove(0).value.unwrap()
    };
    let owned = [bytes(BOOTSTRAP_ROLE).as_slice(), &[0x90, 0x01, 1]].concat();
    assert_eq!(bytes(ada), owned);
}

//! Roles, grants, tokens and organisations, there and back, and their bytes, which never change.

use super::*;
use crate::access::{
    Access, AccessChange, Action, Actions, Door, Grant, GrantEntry, Grantee, Identity, Membership,
    Mode, Org, Permission, Profile, Revocation, Role, RoleEdit, RowPredicate, Scope, Secrets,
    Target, Term, Token, TokenEdit,
};
use crate::id::{OrgId, SequenceId, TokenId};

const VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
    WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

fn org_id() -> impl Strategy<Value = Option<OrgId>> {
    any::<u64>().prop_map(OrgId::new)
}

fn role() -> impl Strategy<Value = Role> {
    let membership = (any::<u32>(), any::<(bool, bool)>()).prop_map(|(role, options)| Membership {
        role: RoleId(role),
        admin_option: options.0,
        inherit: options.1,
    });
    let secret = (option::of(Just(VERIFIER)), any::<u64>(), option::of(any::<i64>()));
    let settings = proptest::collection::btree_map(name(), name(), 0..3);
    let lists = (vec(membership, 0..3), settings);
    (any::<u32>(), name(), any::<[bool; 5]>(), org_id(), secret, lists).prop_map(
        |(id, name, attributes, org, secret, lists)| {
            let [login, superuser, create_db, create_role, admin] = attributes;
            Role {
                id: RoleId(id),
                name,
                login,
                superuser,
                create_db,
                create_role,
                admin,
                org,
                verifier: secret.0.map(|text| text.parse().unwrap()),
                secret_version: secret.1,
                valid_until_ms: secret.2,
                member_of: lists.0,
                settings: lists.1,
            }
        },
    )
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        Just(Target::Cluster),
        any::<u32>().prop_map(|id| Target::Database(DatabaseId(id))),
        any::<u32>().prop_map(|id| Target::Table(TableId(id))),
        any::<u32>().prop_map(|id| Target::Sequence(SequenceId(id))),
    ]
}

fn grantee() -> impl Strategy<Value = Grantee> {
    option::of(any::<u32>())
        .prop_map(|role| role.map_or(Grantee::Public, |role| Grantee::Role(RoleId(role))))
}

fn grant() -> impl Strategy<Value = Grant> {
    let entry = (option::of(any::<u32>()), any::<u16>(), any::<u16>(), any::<u32>());
    (target(), vec(entry, 0..4)).prop_map(|(target, entries)| {
        let mut grant = Grant::new(target);
        for (role, actions, grantable, grantor) in entries {
            let grantable = if role.is_some() { grantable } else { 0 };
            let entry = GrantEntry {
                grantee: role.map_or(Grantee::Public, |role| Grantee::Role(RoleId(role))),
                actions: Actions::from_bits(actions).intersection(target.grantable()),
                grantable: Actions::from_bits(grantable),
                grantor: RoleId(grantor),
            };
            grant.grant(entry.grantor, entry).unwrap();
        }
        grant
    })
}

fn org() -> impl Strategy<Value = Org> {
    let profile = proptest::sample::select(Profile::ALL.to_vec());
    (1..=u64::MAX, name(), option::of(any::<u64>()), profile).prop_map(
        |(id, name, series_max, profile)| Org {
            id: OrgId::new(id).unwrap(),
            name,
            series_max,
            profile,
        },
    )
}

fn rows() -> impl Strategy<Value = RowPredicate> {
    let value = any_value().prop_filter("no term has NULL", |value| !value.is_null());
    let term = (name(), vec(value, 1..4)).prop_map(|(column, values)| Term { column, values });
    vec(term, 1..4).prop_map(|terms| RowPredicate::new(terms).unwrap())
}

fn permission() -> impl Strategy<Value = Permission> {
    let mode = prop_oneof![Just(Mode::Read), Just(Mode::Write), Just(Mode::Both)];
    let bucket = (any::<u32>(), option::of(rows()))
        .prop_map(|(database, rows)| Scope::Bucket { database: DatabaseId(database), rows });
    let scope =
        prop_oneof![1 => Just(Scope::Everything), 1 => Just(Scope::AllBuckets), 3 => bucket];
    (mode, scope).prop_map(|(mode, scope)| Permission { mode, scope })
}

fn token() -> impl Strategy<Value = Token> {
    let times = (any::<i64>(), option::of(any::<i64>()), any::<bool>());
    let ids = (1..=u64::MAX, any::<[u8; 32]>(), any::<u32>(), org_id());
    (ids, name(), times, vec(permission(), 0..4)).prop_map(
        |((id, sha256, owner, org), description, times, permissions)| Token {
            id: TokenId::new(id).unwrap(),
            sha256,
            verifier: VERIFIER.parse().unwrap(),
            description,
            owner: RoleId(owner),
            org,
            created_ms: times.0,
            expires_ms: times.1,
            enabled: times.2,
            permissions,
        },
    )
}

fn secrets() -> impl Strategy<Value = Secrets> {
    any::<[[u8; 32]; 2]>().prop_map(|[mock_salts, cookies]| Secrets { mock_salts, cookies })
}

fn access() -> impl Strategy<Value = Access> {
    let records = (vec(role(), 0..3), vec(grant(), 0..3), vec(org(), 0..3), vec(token(), 0..3));
    (any::<u64>(), secrets(), records).prop_map(|(version, secrets, records)| {
        let mut access = Access::new(version, secrets);
        // Meta takes no two roles of one name.
        for (number, role) in records.0.into_iter().enumerate() {
            access.put_role(Role { name: format!("{number}{}", role.name), ..role });
        }
        records.1.into_iter().for_each(|grant| access.put_grant(grant));
        records.2.into_iter().for_each(|org| access.put_org(org));
        records.3.into_iter().for_each(|token| access.put_token(token));
        access
    })
}

fn role_edit() -> impl Strategy<Value = RoleEdit> {
    let flag = || option::of(any::<bool>());
    let flags = (flag(), flag(), flag(), flag(), flag());
    let verifier = option::of(option::of(Just(VERIFIER)));
    let times = option::of(option::of(any::<i64>()));
    let settings = vec((name(), option::of(name())), 0..3);
    (option::of(name()), flags, option::of(org_id()), verifier, times, settings).prop_map(
        |(name, flags, org, verifier, valid_until_ms, settings)| RoleEdit {
            name,
            login: flags.0,
            superuser: flags.1,
            create_db: flags.2,
            create_role: flags.3,
            admin: flags.4,
            org,
            verifier: verifier.map(|text| text.map(|text| text.parse().unwrap())),
            valid_until_ms,
            settings,
        },
    )
}

fn token_edit() -> impl Strategy<Value = TokenEdit> {
    let times = option::of(option::of(any::<i64>()));
    (option::of(name()), option::of(any::<bool>()), times).prop_map(
        |(description, enabled, expires_ms)| TokenEdit { description, enabled, expires_ms },
    )
}

fn revocation() -> impl Strategy<Value = Revocation> {
    (grantee(), any::<u16>(), any::<u32>(), any::<(bool, bool)>()).prop_map(
        |(grantee, actions, grantor, (options_only, cascade))| Revocation {
            grantee,
            actions: Actions::from_bits(actions),
            grantor: RoleId(grantor),
            options_only,
            cascade,
        },
    )
}

fn entry() -> impl Strategy<Value = GrantEntry> {
    (grantee(), any::<u16>(), any::<u16>(), any::<u32>()).prop_map(
        |(grantee, actions, grantable, grantor)| GrantEntry {
            grantee,
            actions: Actions::from_bits(actions),
            grantable: Actions::from_bits(grantable),
            grantor: RoleId(grantor),
        },
    )
}

/// Changes of all kinds.
pub(super) fn change() -> impl Strategy<Value = AccessChange> {
    let id = || any::<u32>().prop_map(RoleId);
    let token_id = || (1..=u64::MAX).prop_map(|id| TokenId::new(id).unwrap());
    let org_id = (1..=u64::MAX).prop_map(|id| OrgId::new(id).unwrap());
    let new = (name(), role_edit(), role(), vec((id(), any::<bool>()), 0..3));
    prop_oneof![
        new.prop_map(|(name, edit, role, members)| AccessChange::CreateRole {
            name,
            edit,
            member_of: role.member_of,
            members,
        }),
        (id(), role_edit()).prop_map(|(role, edit)| AccessChange::AlterRole { role, edit }),
        id().prop_map(|role| AccessChange::DropRole { role }),
        (id(), id(), any::<(bool, bool)>()).prop_map(|(group, member, (admin_option, inherit))| {
            AccessChange::GrantRole { group, member, admin_option, inherit }
        }),
        (id(), id(), any::<bool>()).prop_map(|(group, member, admin_option_only)| {
            AccessChange::RevokeRole { group, member, admin_option_only }
        }),
        (target(), entry()).prop_map(|(target, entry)| AccessChange::Grant { target, entry }),
        (target(), revocation())
            .prop_map(|(target, revocation)| AccessChange::Revoke { target, revocation }),
        (target(), id()).prop_map(|(target, owner)| AccessChange::SetOwner { target, owner }),
        token().prop_map(|token| AccessChange::CreateToken(Box::new(token))),
        (token_id(), token_edit()).prop_map(|(id, edit)| AccessChange::AlterToken { id, edit }),
        token_id().prop_map(AccessChange::DropToken),
        org().prop_map(AccessChange::CreateOrg),
        org().prop_map(AccessChange::AlterOrg),
        org_id.prop_map(AccessChange::DropOrg),
        Just(AccessChange::SetInitialPassword(VERIFIER.parse().unwrap())),
    ]
}

fn identity() -> impl Strategy<Value = Identity> {
    let door =
        proptest::sample::select(vec![Door::Postgres, Door::Http, Door::Flight, Door::Internal]);
    (any::<u32>(), option::of(any::<u32>()), any::<[u64; 3]>(), door).prop_map(
        |(login, acting, [token, secret_version, org], door)| Identity {
            login: RoleId(login),
            acting: acting.map(RoleId),
            token: TokenId::new(token),
            secret_version,
            org: OrgId::new(org),
            door,
        },
    )
}

round_trips! {
    roles_survive: role();
    grants_survive: grant();
    orgs_survive: org();
    row_predicates_survive: rows();
    tokens_survive: token();
    secrets_survive: secrets();
    access_survives: access();
    identities_survive: identity();
    changes_of_access_survive: change();
}

proptest! {
    #[test]
    fn garbage_is_no_access(bytes in vec(any::<u8>(), 0..80)) {
        let bytes = Bytes::from(bytes);
        drop(Access::decode_wire(bytes.clone()));
        drop(Role::decode_wire(bytes.clone()));
        drop(AccessChange::decode_wire(bytes.clone()));
        drop(Token::decode_wire(bytes));
    }
}

/// A role with every field set.
fn full_role() -> Role {
    Role {
        id: RoleId(300),
        name: "ada".to_owned(),
        login: true,
        superuser: true,
        create_db: true,
        create_role: true,
        admin: true,
        org: OrgId::new(0x0102_0304_0506_0708),
        verifier: Some(VERIFIER.parse().unwrap()),
        secret_version: 7,
        valid_until_ms: Some(-2),
        member_of: vec![
            Membership { role: RoleId(0), admin_option: false, inherit: false },
            Membership { role: RoleId(5), admin_option: true, inherit: true },
        ],
        settings: BTreeMap::from([("TimeZone".to_owned(), "UTC".to_owned())]),
    }
}

/// A token with every field set, and a permission of each kind.
pub(super) fn full_token() -> Token {
    let bucket = |rows| Scope::Bucket { database: DatabaseId(4), rows };
    let term = |column: &str, values| Term { column: column.to_owned(), values };
    let rows = RowPredicate::new(vec![
        term("area", vec![Value::String("A".to_owned())]),
        term("id", vec![Value::Int(1), Value::Int(-1)]),
    ]);
    Token {
        id: TokenId::new(0xab).unwrap(),
        sha256: [0x11; 32],
        verifier: VERIFIER.parse().unwrap(),
        description: "telegraf".to_owned(),
        owner: RoleId(300),
        org: OrgId::new(1),
        created_ms: 1_000,
        expires_ms: Some(0),
        enabled: true,
        permissions: vec![
            Permission { mode: Mode::Both, scope: Scope::Everything },
            Permission { mode: Mode::Write, scope: Scope::AllBuckets },
            Permission { mode: Mode::Both, scope: bucket(None) },
            Permission { mode: Mode::Read, scope: bucket(Some(rows.unwrap())) },
        ],
    }
}

fn full_grants() -> [Grant; 4] {
    let owner = RoleId(0);
    let select = Actions::of(&[Action::Select]);
    let targets = [
        Target::Cluster,
        Target::Database(DatabaseId(4)),
        Target::Table(TableId(5)),
        Target::Sequence(SequenceId(6)),
    ];
    targets.map(|target| {
        let actions = target.grantable();
        let grantable = actions.intersection(select);
        let grantee = Grantee::Role(RoleId(300));
        let mut grant = Grant::new(target);
        grant.grant(owner, GrantEntry { grantee, actions, grantable, grantor: owner }).unwrap();
        let (grantee, grantable) = (Grantee::Public, Actions::NONE);
        grant.grant(owner, GrantEntry { grantee, actions, grantable, grantor: owner }).unwrap();
        grant
    })
}

#[test]
fn forms_of_access_never_change() {
    let org = Org {
        id: OrgId::new(1).unwrap(),
        name: "acme".to_owned(),
        series_max: Some(25),
        profile: Profile::Payg,
    };
    let secrets = Secrets { mock_salts: [0x22; 32], cookies: [0x33; 32] };
    let mut access = Access::new(9, secrets);
    access.put_role(Role::bootstrap("partita"));
    access.put_org(org.clone());
    let identity = Identity {
        login: RoleId(300),
        acting: Some(RoleId(0)),
        token: TokenId::new(0xab),
        secret_version: 7,
        org: OrgId::new(1),
        door: Door::Flight,
    };
    let mut forms = String::new();
    let mut line = |name: &str, bytes: Bytes| {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        forms.push_str(&format!("{name} {hex}\n"));
    };
    line("role", full_role().encode_wire());
    for grant in full_grants() {
        line("grant", grant.encode_wire());
    }
    line("organisation", org.encode_wire());
    line("token", full_token().encode_wire());
    line("access", access.encode_wire());
    line("identity", identity.encode_wire());
    for change in full_changes() {
        line("change", change.encode_wire());
    }
    assert_eq!(forms, include_str!("access.golden"), "got:\n{forms}");
}

/// Changes that together have every field set.
fn full_changes() -> [AccessChange; 15] {
    let (group, member) = (RoleId(300), RoleId(5));
    let edit = RoleEdit {
        name: Some("bob".to_owned()),
        login: Some(false),
        superuser: Some(true),
        create_db: Some(true),
        create_role: Some(true),
        admin: Some(true),
        org: Some(None),
        verifier: Some(None),
        valid_until_ms: Some(None),
        settings: vec![("TimeZone".to_owned(), None)],
    };
    let first_edit = RoleEdit {
        org: Some(OrgId::new(1)),
        verifier: Some(Some(VERIFIER.parse().unwrap())),
        valid_until_ms: Some(Some(-2)),
        settings: vec![("TimeZone".to_owned(), Some("UTC".to_owned()))],
        ..RoleEdit::default()
    };
    let target = Target::Table(TableId(5));
    let actions = Actions::of(&[Action::Select]);
    let entry =
        GrantEntry { grantee: Grantee::Role(member), actions, grantable: actions, grantor: group };
    let revocation = Revocation {
        grantee: Grantee::Public,
        actions,
        grantor: group,
        options_only: true,
        cascade: true,
    };
    let id = TokenId::new(0xab).unwrap();
    let (description, enabled) = (Some("x".to_owned()), Some(false));
    let token_edit = TokenEdit { description, enabled, expires_ms: Some(Some(1_000)) };
    let org_id = OrgId::new(1).unwrap();
    let (name, profile) = ("acme".to_owned(), Profile::Payg);
    let org = Org { id: org_id, name, series_max: Some(25), profile };
    let membership = Membership { role: member, admin_option: true, inherit: true };
    let name = "ada".to_owned();
    [
        AccessChange::CreateRole {
            name,
            edit: first_edit,
            member_of: vec![membership],
            members: vec![(RoleId(6), true)],
        },
        AccessChange::AlterRole { role: group, edit },
        AccessChange::DropRole { role: group },
        AccessChange::GrantRole { group, member, admin_option: true, inherit: true },
        AccessChange::RevokeRole { group, member, admin_option_only: true },
        AccessChange::Grant { target, entry },
        AccessChange::Revoke { target, revocation },
        AccessChange::SetOwner { target, owner: group },
        AccessChange::CreateToken(Box::new(full_token())),
        AccessChange::AlterToken { id, edit: token_edit },
        AccessChange::DropToken(id),
        AccessChange::CreateOrg(org.clone()),
        AccessChange::AlterOrg(org),
        AccessChange::DropOrg(org_id),
        AccessChange::SetInitialPassword(VERIFIER.parse().unwrap()),
    ]
}

#[test]
fn a_lost_field_widens_no_right() {
    let corrupted = |result: Result<(), Error>| matches!(result, Err(Error::Corrupted(_)));
    let mut grant = full_grants()[2].to_wire();
    grant.entries[0].grantee = None;
    assert!(corrupted(Grant::from_wire(grant).map(drop)));
    for permission in full_token().permissions {
        let mut message = permission.to_wire();
        message.scope = None;
        assert!(corrupted(Permission::from_wire(message).map(drop)));
        let mut message = permission.to_wire();
        if let Some(pb::token_permission::Scope::Bucket(bucket)) = &mut message.scope {
            bucket.rows = None;
            assert!(corrupted(Permission::from_wire(message).map(drop)));
        }
    }
    let mut token = full_token().to_wire();
    token.sha256.pop();
    assert!(corrupted(Token::from_wire(token).map(drop)));
    let mut token = full_token().to_wire();
    token.id = 0;
    assert!(corrupted(Token::from_wire(token).map(drop)));
    let mut role = full_role().to_wire();
    role.verifier = Some("password".to_owned());
    let timeless =
        pb::RoleEdit { valid_until: Some(pb::Expiry { end: None }), ..Default::default() };
    assert!(corrupted(RoleEdit::from_wire(timeless).map(drop)));
    let refused = Role::from_wire(role).unwrap_err();
    assert!(!refused.to_string().contains("password"), "{refused}");
}

#[test]
fn messages_do_not_show_secrets_either() {
    let mut access = Access::default();
    access.put_role(full_role());
    access.put_token(full_token());
    access.secrets = Secrets { mock_salts: [0x22; 32], cookies: [0x33; 32] };
    let changes = full_changes().map(|change| (change.to_wire(), change));
    let shown = format!("{:?} {changes:?}", access.to_wire());
    let secret = [VERIFIER, "17, 17", "34, 34", "51, 51"];
    assert!(secret.iter().all(|secret| !shown.contains(secret)), "{shown}");
}

//! Roles, grants, tokens and organisations, there and back, and their bytes, which never change.

use super::*;
use crate::access::{
    Access, Action, Actions, Door, Grant, GrantEntry, Grantee, Identity, Membership, Mode, Org,
    Permission, Profile, Role, RowPredicate, Scope, Secrets, Target, Term, Token,
};
use crate::id::{OrgId, TokenId};

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

fn grant() -> impl Strategy<Value = Grant> {
    let target = prop_oneof![
        Just(Target::Cluster),
        any::<u32>().prop_map(|id| Target::Database(DatabaseId(id))),
        any::<u32>().prop_map(|id| Target::Table(TableId(id))),
    ];
    let entry = (option::of(any::<u32>()), any::<u16>(), any::<u16>(), any::<u32>());
    (target, vec(entry, 0..4)).prop_map(|(target, entries)| {
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
}

proptest! {
    #[test]
    fn garbage_is_no_access(bytes in vec(any::<u8>(), 0..80)) {
        let bytes = Bytes::from(bytes);
        drop(Access::decode_wire(bytes.clone()));
        drop(Role::decode_wire(bytes.clone()));
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
fn full_token() -> Token {
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

fn full_grants() -> [Grant; 3] {
    let owner = RoleId(0);
    let select = Actions::of(&[Action::Select]);
    let targets = [Target::Cluster, Target::Database(DatabaseId(4)), Target::Table(TableId(5))];
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
    assert_eq!(forms, include_str!("access.golden"), "got:\n{forms}");
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
    let refused = Role::from_wire(role).unwrap_err();
    assert!(!refused.to_string().contains("password"), "{refused}");
}

#[test]
fn messages_do_not_show_secrets_either() {
    let mut access = Access::default();
    access.put_role(full_role());
    access.put_token(full_token());
    access.secrets = Secrets { mock_salts: [0x22; 32], cookies: [0x33; 32] };
    let shown = format!("{:?}", access.to_wire());
    let secret = [VERIFIER, "17, 17", "34, 34", "51, 51"];
    assert!(secret.iter().all(|secret| !shown.contains(secret)), "{shown}");
}

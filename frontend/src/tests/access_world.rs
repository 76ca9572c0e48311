//! A cluster of two organisations for the tests of rights, and a session for each kind of identity.
//!
//! Organisation `acme` has the database `acme` and its table `acme_t` with the index `acme_i`, which `acme_boss` owns and
//! the group `acme_staff` may read. The same goes for `zulu`. The keys at which the tables are split are marks of rows
//! that only those who read the whole table may know.

use std::sync::Arc;

use partita_proto::access::{
    Access, Door, Identity, Membership, Mode, Org, Permission, Profile, Role, RowPredicate, Scope,
    Term, Token,
};
use partita_proto::id::{BOOTSTRAP_ROLE, DatabaseId, OrgId, RoleId, TokenId};
use partita_proto::value::Value;

use super::Db;
use crate::SessionOptions;

const ACME: u64 = 0xaa;
const ZULU: u64 = 0xbb;
const ACME_BOSS: RoleId = RoleId(2_001);
const ACME_STAFF: RoleId = RoleId(2_002);
const ACME_MEMBER: RoleId = RoleId(2_003);
const ACME_GUILD: RoleId = RoleId(2_004);
const ZULU_BOSS: RoleId = RoleId(2_101);
const ZULU_STAFF: RoleId = RoleId(2_102);
const STRANGER: RoleId = RoleId(2_201);
const VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
    WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

/// Kind of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// The bootstrap superuser.
    Superuser,
    /// Token with all rights of `acme_boss`.
    Whole,
    /// Token of `acme_boss` that reads the database.
    Read,
    /// Token of `acme_boss` that reads the rows with `k = 1` of the database.
    Rows,
    /// Token of `acme_boss` that writes to the database.
    Write,
    /// Token with all rights of `zulu_boss`.
    Foreign,
    /// Role of `acme` in the group `acme_staff`.
    Member,
    /// Role without an organisation and without rights.
    Stranger,
    /// Token with all rights of `acme_boss` that has expired.
    Expired,
}

/// The columns of the matrices.
pub(super) const WHO: [Who; 9] = [
    Who::Superuser,
    Who::Whole,
    Who::Read,
    Who::Rows,
    Who::Write,
    Who::Foreign,
    Who::Member,
    Who::Stranger,
    Who::Expired,
];

impl Who {
    /// Role of the session; for a token, its owner.
    fn login(self) -> RoleId {
        match self {
            Self::Superuser => BOOTSTRAP_ROLE,
            Self::Whole | Self::Read | Self::Rows | Self::Write | Self::Expired => ACME_BOSS,
            Self::Foreign => ZULU_BOSS,
            Self::Member => ACME_MEMBER,
            Self::Stranger => STRANGER,
        }
    }

    /// Number of the token; `None` for a role.
    fn token(self) -> Option<u64> {
        match self {
            Self::Whole => Some(1),
            Self::Read => Some(2),
            Self::Rows => Some(3),
            Self::Write => Some(4),
            Self::Foreign => Some(5),
            Self::Expired => Some(6),
            Self::Superuser | Self::Member | Self::Stranger => None,
        }
    }

    fn permission(self, acme: DatabaseId) -> Permission {
        let bucket =
            |mode, rows| Permission { mode, scope: Scope::Bucket { database: acme, rows } };
        match self {
            Self::Read => bucket(Mode::Read, None),
            Self::Rows => {
                let term = Term { column: "k".to_owned(), values: vec![Value::Int(1)] };
                bucket(Mode::Read, Some(RowPredicate::new(vec![term]).unwrap()))
            }
            Self::Write => bucket(Mode::Write, None),
            Self::Superuser
            | Self::Whole
            | Self::Foreign
            | Self::Member
            | Self::Stranger
            | Self::Expired => Permission { mode: Mode::Both, scope: Scope::Everything },
        }
    }
}

fn put_roles(access: &mut Access) {
    let org = |number| OrgId::new(number).unwrap();
    for (number, name) in [(ACME, "acme"), (ZULU, "zulu")] {
        let (name, profile) = (name.to_owned(), Profile::default());
        access.put_org(Org { id: org(number), name, series_max: None, profile });
    }
    for (id, name, number) in [
        (ACME_STAFF, "acme_staff", ACME),
        (ACME_GUILD, "acme_guild", ACME),
        (ZULU_STAFF, "zulu_staff", ZULU),
    ] {
        access.put_role(Role { org: Some(org(number)), ..Role::new(id, name) });
    }
    let of_group = |role| vec![Membership { role, admin_option: false, inherit: true }];
    for (id, name, number, member_of) in [
        (ACME_BOSS, "acme_boss", Some(ACME), of_group(ACME_GUILD)),
        (ACME_MEMBER, "acme_member", Some(ACME), of_group(ACME_STAFF)),
        (ZULU_BOSS, "zulu_boss", Some(ZULU), Vec::new()),
        (STRANGER, "stranger", None, Vec::new()),
    ] {
        let role = Role::new(id, name);
        access.put_role(Role { login: true, org: number.map(org), member_of, ..role });
    }
}

fn put_tokens(access: &mut Access, acme: DatabaseId) {
    for who in WHO {
        let Some(number) = who.token() else { continue };
        let org = if who == Who::Foreign { ZULU } else { ACME };
        access.put_token(Token {
            id: TokenId::new(number).unwrap(),
            sha256: [u8::try_from(number).unwrap(); 32],
            verifier: VERIFIER.parse().unwrap(),
            description: String::new(),
            owner: who.login(),
            org: OrgId::new(org),
            created_ms: 0,
            expires_ms: (who == Who::Expired).then_some(1),
            enabled: true,
            permissions: vec![who.permission(acme)],
        });
    }
}

/// The cluster, with a session of the superuser.
pub(super) async fn world() -> Db {
    let db = Db::new();
    db.fake.edit_access(put_roles);
    for (name, split) in [("acme", 770_077), ("zulu", 550_055)] {
        let table = format!("{name}.{name}_t");
        for sql in [
            format!("CREATE DATABASE {name}"),
            format!("CREATE TABLE {table} (k INT PRIMARY KEY, v INT) SPLIT AT (({split}))"),
            format!("CREATE INDEX {name}_i ON {table} USING skipping (v)"),
            format!("INSERT INTO {table} VALUES (1, 10), (2, 20)"),
            format!("ALTER TABLE {table} OWNER TO {name}_boss"),
            format!("ALTER DATABASE {name} OWNER TO {name}_boss"),
            format!("GRANT SELECT ON {table} TO {name}_staff"),
        ] {
            db.tag(&sql).await;
        }
    }
    let acme = db.frontend.catalog().databases["acme"].id;
    db.fake.edit_access(|access| put_tokens(access, acme));
    for (who, name) in [(Who::Whole, "acme"), (Who::Foreign, "zulu")] {
        let statement = format!("INSERT INTO {name}_t SELECT k, v FROM {name}_t");
        let sql = format!("CREATE TASK {name}_task SCHEDULE '@daily' AS {statement}");
        session_of(&db, who, name).tag(&sql).await;
    }
    db
}

/// The same cluster in a session of an identity, whose unqualified names are in a database.
pub(super) fn session_of(db: &Db, who: Who, database: &str) -> Db {
    let access = db.frontend.access();
    let identity = match who.token() {
        Some(number) => {
            let token = access.token(TokenId::new(number).unwrap()).unwrap();
            Identity::of_token(token, Door::Http)
        }
        None => Identity::of_role(access.role(who.login()).unwrap(), Door::Postgres),
    };
    let database = database.to_owned();
    let options = SessionOptions { database, identity, ..SessionOptions::default() };
    let session = db.frontend.session(options);
    Db { fake: Arc::clone(&db.fake), frontend: Arc::clone(&db.frontend), session }
}

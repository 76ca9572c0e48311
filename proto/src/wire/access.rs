//! Roles, grants, tokens and organisations.
//!
//! A field whose absence would widen a right (a grantee, a row predicate) is mandatory, in a `oneof`.

use std::collections::BTreeMap;
use std::fmt;

use super::{Wire, all, missing, pb, required};
use crate::access::{
    Access, Actions, Door, Grant, GrantEntry, Grantee, Identity, Membership, Mode, Org, Permission,
    Profile, Role, RowPredicate, Scope, Secrets, Target, Term, Token, Verifier,
};
use crate::error::Error;
use crate::id::{DatabaseId, OrgId, RoleId, SequenceId, TableId, TokenId};

impl fmt::Debug for pb::Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Role").field("id", &self.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for pb::Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("id", &self.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for pb::Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}

/// The number of an optional organisation; 0: none.
pub(super) fn org_number(org: Option<OrgId>) -> u64 {
    org.map_or(0, OrgId::get)
}

/// The error for a value that its type refuses; without the value, which may be a secret.
fn corrupted(error: &Error) -> Error {
    Error::Corrupted(format!("a message is wrong: {error}"))
}

pub(super) fn verifier(text: &str) -> Result<Verifier, Error> {
    text.parse::<Verifier>().map_err(|error| corrupted(&error))
}

fn bytes_of_hash(bytes: Vec<u8>, name: &str) -> Result<[u8; 32], Error> {
    bytes.try_into().map_err(|_| missing(name))
}

pub(super) fn actions(bits: u32) -> Result<Actions, Error> {
    u16::try_from(bits).map(Actions::from_bits).map_err(|_| missing("set of actions"))
}

impl Wire for Membership {
    type Message = pb::Membership;

    fn to_wire(&self) -> pb::Membership {
        pb::Membership { role: self.role.0, admin_option: self.admin_option, inherit: self.inherit }
    }

    fn from_wire(message: pb::Membership) -> Result<Self, Error> {
        Ok(Self {
            role: RoleId(message.role),
            admin_option: message.admin_option,
            inherit: message.inherit,
        })
    }
}

impl Wire for Role {
    type Message = pb::Role;

    fn to_wire(&self) -> pb::Role {
        let setting = |(name, value): (&String, &String)| pb::RoleSetting {
            name: name.clone(),
            value: value.clone(),
        };
        pb::Role {
            id: self.id.0,
            name: self.name.clone(),
            login: self.login,
            superuser: self.superuser,
            create_db: self.create_db,
            create_role: self.create_role,
            admin: self.admin,
            org: org_number(self.org),
            verifier: self.verifier.as_ref().map(|verifier| verifier.expose().to_owned()),
            secret_version: self.secret_version,
            valid_until_ms: self.valid_until_ms,
            member_of: self.member_of.iter().map(Wire::to_wire).collect(),
            settings: self.settings.iter().map(setting).collect(),
        }
    }

    fn from_wire(message: pb::Role) -> Result<Self, Error> {
        let settings = message.settings.into_iter().map(|setting| (setting.name, setting.value));
        Ok(Self {
            id: RoleId(message.id),
            name: message.name,
            login: message.login,
            superuser: message.superuser,
            create_db: message.create_db,
            create_role: message.create_role,
            admin: message.admin,
            org: OrgId::new(message.org),
            verifier: message.verifier.as_deref().map(verifier).transpose()?,
            secret_version: message.secret_version,
            valid_until_ms: message.valid_until_ms,
            member_of: all(message.member_of)?,
            settings: settings.collect::<BTreeMap<_, _>>(),
        })
    }
}

impl Wire for Target {
    type Message = pb::GrantTarget;

    fn to_wire(&self) -> pb::GrantTarget {
        use pb::grant_target::Object;
        let object = match self {
            Self::Cluster => Object::Cluster(true),
            Self::Database(id) => Object::Database(id.0),
            Self::Table(id) => Object::Table(id.0),
            Self::Sequence(id) => Object::Sequence(id.0),
        };
        pb::GrantTarget { object: Some(object) }
    }

    fn from_wire(message: pb::GrantTarget) -> Result<Self, Error> {
        use pb::grant_target::Object;
        Ok(match message.object.ok_or_else(|| missing("object of a grant"))? {
            Object::Cluster(_) => Self::Cluster,
            Object::Database(id) => Self::Database(DatabaseId(id)),
            Object::Table(id) => Self::Table(TableId(id)),
            Object::Sequence(id) => Self::Sequence(SequenceId(id)),
        })
    }
}

impl Wire for GrantEntry {
    type Message = pb::GrantEntry;

    fn to_wire(&self) -> pb::GrantEntry {
        use pb::grant_entry::Grantee as Kind;
        let grantee = match self.grantee {
            Grantee::Public => Kind::Public(true),
            Grantee::Role(role) => Kind::Role(role.0),
        };
        pb::GrantEntry {
            grantee: Some(grantee),
            actions: self.actions.bits().into(),
            grantable: self.grantable.bits().into(),
            grantor: self.grantor.0,
        }
    }

    fn from_wire(message: pb::GrantEntry) -> Result<Self, Error> {
        use pb::grant_entry::Grantee as Kind;
        let grantee = match message.grantee.ok_or_else(|| missing("grantee"))? {
            Kind::Public(_) => Grantee::Public,
            Kind::Role(role) => Grantee::Role(RoleId(role)),
        };
        Ok(Self {
            grantee,
            actions: actions(message.actions)?,
            grantable: actions(message.grantable)?,
            grantor: RoleId(message.grantor),
        })
    }
}

impl Wire for Grant {
    type Message = pb::Grant;

    fn to_wire(&self) -> pb::Grant {
        pb::Grant {
            target: Some(self.target().to_wire()),
            entries: self.entries().iter().map(Wire::to_wire).collect(),
        }
    }

    fn from_wire(message: pb::Grant) -> Result<Self, Error> {
        Self::from_entries(required(message.target, "target")?, all(message.entries)?)
    }
}

impl Wire for Org {
    type Message = pb::Org;

    fn to_wire(&self) -> pb::Org {
        let profile = match self.profile {
            Profile::Unlimited => pb::Profile::Unlimited,
            Profile::Free => pb::Profile::Free,
            Profile::Payg => pb::Profile::Payg,
        };
        pb::Org {
            id: self.id.get(),
            name: self.name.clone(),
            series_max: self.series_max,
            profile: profile.into(),
        }
    }

    fn from_wire(message: pb::Org) -> Result<Self, Error> {
        let profile = match pb::Profile::try_from(message.profile) {
            Ok(pb::Profile::Unlimited) => Profile::Unlimited,
            Ok(pb::Profile::Free) => Profile::Free,
            Ok(pb::Profile::Payg) => Profile::Payg,
            Ok(pb::Profile::Unspecified) | Err(_) => return Err(missing("profile")),
        };
        Ok(Self {
            id: OrgId::new(message.id).ok_or_else(|| missing("organisation id"))?,
            name: message.name,
            series_max: message.series_max,
            profile,
        })
    }
}

impl Wire for Term {
    type Message = pb::Term;

    fn to_wire(&self) -> pb::Term {
        pb::Term {
            column: self.column.clone(),
            values: self.values.iter().map(Wire::to_wire).collect(),
        }
    }

    fn from_wire(message: pb::Term) -> Result<Self, Error> {
        Ok(Self { column: message.column, values: all(message.values)? })
    }
}

impl Wire for RowPredicate {
    type Message = pb::RowPredicate;

    fn to_wire(&self) -> pb::RowPredicate {
        pb::RowPredicate { terms: self.terms().iter().map(Wire::to_wire).collect() }
    }

    fn from_wire(message: pb::RowPredicate) -> Result<Self, Error> {
        Self::new(all(message.terms)?).map_err(|error| corrupted(&error))
    }
}

impl Wire for Permission {
    type Message = pb::TokenPermission;

    fn to_wire(&self) -> pb::TokenPermission {
        use pb::token_bucket::Rows;
        use pb::token_permission::Scope as Kind;
        let mode = match self.mode {
            Mode::Read => pb::TokenMode::Read,
            Mode::Write => pb::TokenMode::Write,
            Mode::Both => pb::TokenMode::Both,
        };
        let scope = match &self.scope {
            Scope::Everything => Kind::Everything(true),
            Scope::AllBuckets => Kind::AllBuckets(true),
            Scope::Bucket { database, rows } => {
                let rows = match rows {
                    None => Rows::Every(true),
                    Some(predicate) => Rows::Matching(predicate.to_wire()),
                };
                Kind::Bucket(pb::TokenBucket { database: database.0, rows: Some(rows) })
            }
        };
        pb::TokenPermission { mode: mode.into(), scope: Some(scope) }
    }

    fn from_wire(message: pb::TokenPermission) -> Result<Self, Error> {
        use pb::token_bucket::Rows;
        use pb::token_permission::Scope as Kind;
        let mode = match pb::TokenMode::try_from(message.mode) {
            Ok(pb::TokenMode::Read) => Mode::Read,
            Ok(pb::TokenMode::Write) => Mode::Write,
            Ok(pb::TokenMode::Both) => Mode::Both,
            Ok(pb::TokenMode::Unspecified) | Err(_) => return Err(missing("mode of a permission")),
        };
        let scope = match message.scope.ok_or_else(|| missing("scope of a permission"))? {
            Kind::Everything(_) => Scope::Everything,
            Kind::AllBuckets(_) => Scope::AllBuckets,
            Kind::Bucket(bucket) => Scope::Bucket {
                database: DatabaseId(bucket.database),
                rows: match bucket.rows.ok_or_else(|| missing("rows of a permission"))? {
                    Rows::Every(_) => None,
                    Rows::Matching(predicate) => Some(RowPredicate::from_wire(predicate)?),
                },
            },
        };
        Ok(Self { mode, scope })
    }
}

impl Wire for Token {
    type Message = pb::Token;

    fn to_wire(&self) -> pb::Token {
        pb::Token {
            id: self.id.get(),
            sha256: self.sha256.to_vec(),
            verifier: self.verifier.expose().to_owned(),
            description: self.description.clone(),
            owner: self.owner.0,
            org: org_number(self.org),
            created_ms: self.created_ms,
            expires_ms: self.expires_ms,
            enabled: self.enabled,
            permissions: self.permissions.iter().map(Wire::to_wire).collect(),
        }
    }

    fn from_wire(message: pb::Token) -> Result<Self, Error> {
        Ok(Self {
            id: TokenId::new(message.id).ok_or_else(|| missing("token id"))?,
            sha256: bytes_of_hash(message.sha256, "hash of a token")?,
            verifier: verifier(&message.verifier)?,
            description: message.description,
            owner: RoleId(message.owner),
            org: OrgId::new(message.org),
            created_ms: message.created_ms,
            expires_ms: message.expires_ms,
            enabled: message.enabled,
            permissions: all(message.permissions)?,
        })
    }
}

impl Wire for Secrets {
    type Message = pb::Secrets;

    fn to_wire(&self) -> pb::Secrets {
        pb::Secrets { mock_salts: self.mock_salts.to_vec(), cookies: self.cookies.to_vec() }
    }

    fn from_wire(message: pb::Secrets) -> Result<Self, Error> {
        Ok(Self {
            mock_salts: bytes_of_hash(message.mock_salts, "key of salts")?,
            cookies: bytes_of_hash(message.cookies, "key of cookies")?,
        })
    }
}

impl Wire for Access {
    type Message = pb::Access;

    fn to_wire(&self) -> pb::Access {
        pb::Access {
            version: self.version,
            secrets: Some(self.secrets.to_wire()),
            roles: self.roles().values().map(|role| role.to_wire()).collect(),
            grants: self.grants().map(|grant| grant.to_wire()).collect(),
            orgs: self.orgs().map(|org| org.to_wire()).collect(),
            tokens: self.tokens().map(|token| token.to_wire()).collect(),
        }
    }

    fn from_wire(message: pb::Access) -> Result<Self, Error> {
        let secrets = required(message.secrets, "secrets")?;
        let mut access = Self::new(message.version, secrets);
        for role in message.roles {
            access.put_role(Role::from_wire(role)?);
        }
        for grant in message.grants {
            access.put_grant(Grant::from_wire(grant)?);
        }
        for org in message.orgs {
            access.put_org(Org::from_wire(org)?);
        }
        for token in message.tokens {
            access.put_token(Token::from_wire(token)?);
        }
        Ok(access)
    }
}

impl Wire for Identity {
    type Message = pb::Identity;

    fn to_wire(&self) -> pb::Identity {
        let door = match self.door {
            Door::Postgres => pb::Door::Postgres,
            Door::Http => pb::Door::Http,
            Door::Flight => pb::Door::Flight,
            Door::Internal => pb::Door::Internal,
        };
        pb::Identity {
            login: self.login.0,
            acting: self.acting.map(|role| role.0),
            token: self.token.map_or(0, TokenId::get),
            secret_version: self.secret_version,
            org: org_number(self.org),
            door: door.into(),
        }
    }

    fn from_wire(message: pb::Identity) -> Result<Self, Error> {
        let door = match pb::Door::try_from(message.door) {
            Ok(pb::Door::Postgres) => Door::Postgres,
            Ok(pb::Door::Http) => Door::Http,
            Ok(pb::Door::Flight) => Door::Flight,
            Ok(pb::Door::Internal) => Door::Internal,
            Ok(pb::Door::Unspecified) | Err(_) => return Err(missing("door")),
        };
        Ok(Self {
            login: RoleId(message.login),
            acting: message.acting.map(RoleId),
            token: TokenId::new(message.token),
            secret_version: message.secret_version,
            org: OrgId::new(message.org),
            door,
        })
    }
}

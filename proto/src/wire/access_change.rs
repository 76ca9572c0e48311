//! Changes of roles, grants, tokens and organisations.

use std::fmt;

use super::access::{actions, org_number, verifier};
use super::{Wire, all, missing, pb, required};
use crate::access::{AccessChange, Grantee, Revocation, RoleEdit, TokenEdit};
use crate::error::Error;
use crate::id::{OrgId, RoleId, TokenId};

impl fmt::Debug for pb::RoleEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoleEdit").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for pb::InitialPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InitialPassword").finish_non_exhaustive()
    }
}

fn expiry(end_ms: Option<i64>) -> pb::Expiry {
    use pb::expiry::End;
    pb::Expiry { end: Some(end_ms.map_or(End::Never(true), End::Ms)) }
}

fn end_ms(message: &pb::Expiry) -> Result<Option<i64>, Error> {
    use pb::expiry::End;
    match message.end.as_ref().ok_or_else(|| missing("end of a time"))? {
        End::Never(_) => Ok(None),
        End::Ms(end_ms) => Ok(Some(*end_ms)),
    }
}

fn token_id(number: u64) -> Result<TokenId, Error> {
    TokenId::new(number).ok_or_else(|| missing("token id"))
}

fn org_id(number: u64) -> Result<OrgId, Error> {
    OrgId::new(number).ok_or_else(|| missing("organisation id"))
}

impl Wire for RoleEdit {
    type Message = pb::RoleEdit;

    fn to_wire(&self) -> pb::RoleEdit {
        let setting = |(name, value): &(String, Option<String>)| pb::SettingEdit {
            name: name.clone(),
            value: value.clone(),
        };
        let verifier_text = self.verifier.as_ref().map(|verifier| {
            verifier.as_ref().map_or_else(String::new, |verifier| verifier.expose().to_owned())
        });
        pb::RoleEdit {
            name: self.name.clone(),
            login: self.login,
            superuser: self.superuser,
            create_db: self.create_db,
            create_role: self.create_role,
            admin: self.admin,
            org: self.org.map(org_number),
            verifier: verifier_text,
            valid_until: self.valid_until_ms.map(expiry),
            settings: self.settings.iter().map(setting).collect(),
        }
    }

    fn from_wire(message: pb::RoleEdit) -> Result<Self, Error> {
        let settings = message.settings.into_iter().map(|setting| (setting.name, setting.value));
        let new_verifier = match message.verifier.as_deref() {
            None => None,
            Some("") => Some(None),
            Some(text) => Some(Some(verifier(text)?)),
        };
        Ok(Self {
            name: message.name,
            login: message.login,
            superuser: message.superuser,
            create_db: message.create_db,
            create_role: message.create_role,
            admin: message.admin,
            org: message.org.map(OrgId::new),
            verifier: new_verifier,
            valid_until_ms: message.valid_until.as_ref().map(end_ms).transpose()?,
            settings: settings.collect(),
        })
    }
}

impl Wire for TokenEdit {
    type Message = pb::TokenEdit;

    fn to_wire(&self) -> pb::TokenEdit {
        pb::TokenEdit {
            description: self.description.clone(),
            enabled: self.enabled,
            expires: self.expires_ms.map(expiry),
        }
    }

    fn from_wire(message: pb::TokenEdit) -> Result<Self, Error> {
        Ok(Self {
            description: message.description,
            enabled: message.enabled,
            expires_ms: message.expires.as_ref().map(end_ms).transpose()?,
        })
    }
}

impl Wire for Revocation {
    type Message = pb::Revocation;

    fn to_wire(&self) -> pb::Revocation {
        use pb::revocation::Grantee as Kind;
        let grantee = match self.grantee {
            Grantee::Public => Kind::Public(true),
            Grantee::Role(role) => Kind::Role(role.0),
        };
        pb::Revocation {
            grantee: Some(grantee),
            actions: self.actions.bits().into(),
            grantor: self.grantor.0,
            options_only: self.options_only,
            cascade: self.cascade,
        }
    }

    fn from_wire(message: pb::Revocation) -> Result<Self, Error> {
        use pb::revocation::Grantee as Kind;
        let grantee = match message.grantee.ok_or_else(|| missing("grantee"))? {
            Kind::Public(_) => Grantee::Public,
            Kind::Role(role) => Grantee::Role(RoleId(role)),
        };
        Ok(Self {
            grantee,
            actions: actions(message.actions)?,
            grantor: RoleId(message.grantor),
            options_only: message.options_only,
            cascade: message.cascade,
        })
    }
}

impl Wire for AccessChange {
    type Message = pb::AccessChange;

    fn to_wire(&self) -> pb::AccessChange {
        use pb::access_change::Kind;
        let kind = match self {
            // Roles.
            Self::CreateRole { name, edit, member_of, members } => {
                let member = |(role, admin_option): &(RoleId, bool)| pb::NewMember {
                    role: role.0,
                    admin_option: *admin_option,
                };
                Kind::CreateRole(pb::CreateRole {
                    name: name.clone(),
                    edit: Some(edit.to_wire()),
                    member_of: member_of.iter().map(Wire::to_wire).collect(),
                    members: members.iter().map(member).collect(),
                })
            }
            Self::AlterRole { role, edit } => {
                Kind::AlterRole(pb::AlterRole { role: role.0, edit: Some(edit.to_wire()) })
            }
            Self::DropRole { role } => Kind::DropRole(role.0),
            Self::GrantRole { group, member, admin_option, inherit } => {
                Kind::GrantRole(pb::GrantRole {
                    group: group.0,
                    member: member.0,
                    admin_option: *admin_option,
                    inherit: *inherit,
                })
            }
            Self::RevokeRole { group, member, admin_option_only } => {
                Kind::RevokeRole(pb::RevokeRole {
                    group: group.0,
                    member: member.0,
                    admin_option_only: *admin_option_only,
                })
            }
            Self::SetInitialPassword(verifier) => {
                let verifier = verifier.expose().to_owned();
                Kind::SetInitialPassword(pb::InitialPassword { verifier })
            }
            // Rights on objects.
            Self::Grant { target, entry } => Kind::Grant(pb::GrantRights {
                target: Some(target.to_wire()),
                entry: Some(entry.to_wire()),
            }),
            Self::Revoke { target, revocation } => Kind::Revoke(pb::RevokeRights {
                target: Some(target.to_wire()),
                revocation: Some(revocation.to_wire()),
            }),
            Self::SetOwner { target, owner } => {
                Kind::SetOwner(pb::SetOwner { target: Some(target.to_wire()), owner: owner.0 })
            }
            // Tokens and organisations.
            Self::CreateToken(token) => Kind::CreateToken(token.to_wire()),
            Self::AlterToken { id, edit } => {
                Kind::AlterToken(pb::AlterToken { id: id.get(), edit: Some(edit.to_wire()) })
            }
            Self::DropToken(id) => Kind::DropToken(id.get()),
            Self::CreateOrg(org) => Kind::CreateOrg(org.to_wire()),
            Self::AlterOrg(org) => Kind::AlterOrg(org.to_wire()),
            Self::DropOrg(id) => Kind::DropOrg(id.get()),
        };
        pb::AccessChange { kind: Some(kind) }
    }

    fn from_wire(message: pb::AccessChange) -> Result<Self, Error> {
        use pb::access_change::Kind;
        Ok(match message.kind.ok_or_else(|| missing("change"))? {
            // Roles.
            Kind::CreateRole(create) => {
                let members = create.members.into_iter();
                let members = members.map(|member| (RoleId(member.role), member.admin_option));
                Self::CreateRole {
                    name: create.name,
                    edit: required(create.edit, "edit")?,
                    member_of: all(create.member_of)?,
                    members: members.collect(),
                }
            }
            Kind::AlterRole(alter) => {
                Self::AlterRole { role: RoleId(alter.role), edit: required(alter.edit, "edit")? }
            }
            Kind::DropRole(role) => Self::DropRole { role: RoleId(role) },
            Kind::GrantRole(grant) => Self::GrantRole {
                group: RoleId(grant.group),
                member: RoleId(grant.member),
                admin_option: grant.admin_option,
                inherit: grant.inherit,
            },
            Kind::RevokeRole(revoke) => Self::RevokeRole {
                group: RoleId(revoke.group),
                member: RoleId(revoke.member),
                admin_option_only: revoke.admin_option_only,
            },
            Kind::SetInitialPassword(password) => {
                Self::SetInitialPassword(verifier(&password.verifier)?)
            }
            // Rights on objects.
            Kind::Grant(grant) => Self::Grant {
                target: required(grant.target, "target")?,
                entry: required(grant.entry, "entry")?,
            },
            Kind::Revoke(revoke) => Self::Revoke {
                target: required(revoke.target, "target")?,
                revocation: required(revoke.revocation, "revocation")?,
            },
            Kind::SetOwner(set) => {
                Self::SetOwner { target: required(set.target, "target")?, owner: RoleId(set.owner) }
            }
            // Tokens and organisations.
            Kind::CreateToken(token) => Self::CreateToken(Box::new(Wire::from_wire(token)?)),
            Kind::AlterToken(alter) => {
                Self::AlterToken { id: token_id(alter.id)?, edit: required(alter.edit, "edit")? }
            }
            Kind::DropToken(id) => Self::DropToken(token_id(id)?),
            Kind::CreateOrg(org) => Self::CreateOrg(Wire::from_wire(org)?),
            Kind::AlterOrg(org) => Self::AlterOrg(Wire::from_wire(org)?),
            Kind::DropOrg(id) => Self::DropOrg(org_id(id)?),
        })
    }
}

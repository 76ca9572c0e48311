//! The fake's changes of roles, grants, tokens and organisations. They are applied without meta's checks: a test that
//! makes a cycle of memberships, or drops a role that owns tables, gets one.

use std::sync::Arc;

use partita_proto::access::{
    Access, AccessChange, Grant, Membership, Role, RoleEdit, Target, Token, TokenEdit,
};
use partita_proto::catalog::Catalog;
use partita_proto::error::Error;
use partita_proto::id::{BOOTSTRAP_ROLE, RoleId};

use super::{Fake, none, put_table};

impl Fake {
    /// Changes roles, grants and tokens directly, and publishes the catalog.
    pub fn edit_access(&self, edit: impl FnOnce(&mut Access)) {
        let _one_at_a_time = self.changing.lock();
        let mut catalog = self.catalog.borrow().as_ref().clone();
        update(&mut catalog, edit);
        self.publish(catalog);
    }

    pub(super) fn change_access(
        &self,
        catalog: &mut Catalog,
        change: AccessChange,
    ) -> Result<bool, Error> {
        match change {
            AccessChange::CreateRole { name, edit, member_of, members } => {
                if catalog.access.role_by_name(&name).is_some() {
                    return Err(Error::AlreadyExists { kind: "role", name });
                }
                let id = RoleId(u32::try_from(self.next_id()).unwrap_or(u32::MAX));
                let mut role = Role { member_of, ..Role::new(id, name) };
                edit_role(&mut role, RoleEdit { name: None, ..edit });
                update(catalog, |access| access.put_role(role));
                for (member, admin_option) in members {
                    join(catalog, member, Membership { role: id, admin_option, inherit: true })?;
                }
            }
            AccessChange::AlterRole { role, edit } => {
                let mut changed = role_of(catalog, role)?;
                edit_role(&mut changed, edit);
                update(catalog, |access| access.put_role(changed));
            }
            AccessChange::DropRole { role } => {
                role_of(catalog, role)?;
                update(catalog, |access| access.drop_role(role));
            }
            AccessChange::GrantRole { group, member, admin_option, inherit } => {
                join(catalog, member, Membership { role: group, admin_option, inherit })?;
            }
            AccessChange::RevokeRole { group, member, admin_option_only } => {
                let mut changed = role_of(catalog, member)?;
                if admin_option_only {
                    let memberships = changed.member_of.iter_mut();
                    memberships
                        .filter(|membership| membership.role == group)
                        .for_each(|membership| membership.admin_option = false);
                } else {
                    changed.member_of.retain(|membership| membership.role != group);
                }
                update(catalog, |access| access.put_role(changed));
            }
            AccessChange::Grant { target, entry } => {
                edit_grant(catalog, target, |grant, owner| grant.grant(owner, entry))?;
            }
            AccessChange::Revoke { target, revocation } => {
                edit_grant(catalog, target, |grant, owner| grant.revoke(owner, revocation))?;
            }
            AccessChange::SetOwner { target, owner } => set_owner(catalog, target, owner)?,
            AccessChange::CreateToken(token) => update(catalog, |access| access.put_token(*token)),
            AccessChange::AlterToken { id, edit } => {
                let token = catalog.access.token(id).map(|token| token.as_ref().clone());
                let mut token = token.ok_or_else(|| none("token", &id.to_string()))?;
                edit_token(&mut token, edit);
                update(catalog, |access| access.put_token(token));
            }
            AccessChange::DropToken(id) => update(catalog, |access| access.drop_token(id)),
            AccessChange::CreateOrg(org) | AccessChange::AlterOrg(org) => {
                update(catalog, |access| access.put_org(org));
            }
            AccessChange::DropOrg(id) => update(catalog, |access| access.drop_org(id)),
            AccessChange::SetInitialPassword(verifier) => {
                let mut role = role_of(catalog, BOOTSTRAP_ROLE)?;
                if role.verifier.is_some() || role.secret_version > 0 {
                    return Ok(false);
                }
                let edit = RoleEdit { verifier: Some(Some(verifier)), ..RoleEdit::default() };
                edit_role(&mut role, edit);
                update(catalog, |access| access.put_role(role));
            }
        }
        Ok(true)
    }
}

/// Changes a copy of the access, which becomes that of the catalog.
fn update(catalog: &mut Catalog, edit: impl FnOnce(&mut Access)) {
    let mut access = catalog.access.as_ref().clone();
    edit(&mut access);
    access.version += 1;
    catalog.access = Arc::new(access);
}

fn role_of(catalog: &Catalog, id: RoleId) -> Result<Role, Error> {
    let role = catalog.access.role(id).map(|role| role.as_ref().clone());
    role.ok_or_else(|| none("role", &id.to_string()))
}

fn join(catalog: &mut Catalog, member: RoleId, membership: Membership) -> Result<(), Error> {
    let mut role = role_of(catalog, member)?;
    role.member_of.retain(|former| former.role != membership.role);
    role.member_of.push(membership);
    update(catalog, |access| access.put_role(role));
    Ok(())
}

fn edit_role(role: &mut Role, edit: RoleEdit) {
    role.name = edit.name.unwrap_or(std::mem::take(&mut role.name));
    role.login = edit.login.unwrap_or(role.login);
    role.superuser = edit.superuser.unwrap_or(role.superuser);
    role.create_db = edit.create_db.unwrap_or(role.create_db);
    role.create_role = edit.create_role.unwrap_or(role.create_role);
    role.admin = edit.admin.unwrap_or(role.admin);
    role.org = edit.org.unwrap_or(role.org);
    role.valid_until_ms = edit.valid_until_ms.unwrap_or(role.valid_until_ms);
    if let Some(verifier) = edit.verifier.filter(|verifier| *verifier != role.verifier) {
        role.verifier = verifier;
        role.secret_version += 1;
    }
    for (name, value) in edit.settings {
        match value {
            Some(value) => drop(role.settings.insert(name, value)),
            None => drop(role.settings.remove(&name)),
        }
    }
}

fn edit_token(token: &mut Token, edit: TokenEdit) {
    if let Some(description) = edit.description {
        token.description = description;
    }
    token.enabled = edit.enabled.unwrap_or(token.enabled);
    token.expires_ms = edit.expires_ms.unwrap_or(token.expires_ms);
}

fn edit_grant(
    catalog: &mut Catalog,
    target: Target,
    edit: impl FnOnce(&mut Grant, RoleId) -> Result<(), Error>,
) -> Result<(), Error> {
    let owner = owner_of(catalog, target)?;
    let grant = catalog.access.grant(target).map(|grant| grant.as_ref().clone());
    let mut grant = grant.unwrap_or_else(|| Grant::new(target));
    edit(&mut grant, owner)?;
    update(catalog, |access| access.put_grant(grant));
    Ok(())
}

fn owner_of(catalog: &Catalog, target: Target) -> Result<RoleId, Error> {
    match target {
        Target::Cluster => Ok(BOOTSTRAP_ROLE),
        Target::Database(id) => {
            let database = catalog.databases.values().find(|database| database.id == id);
            database.map(|database| database.owner).ok_or_else(|| none("database", &id.to_string()))
        }
        Target::Table(id) => {
            let table = catalog.table_by_id(id);
            table.map(|table| table.owner).ok_or_else(|| none("table", &id.to_string()))
        }
        Target::Sequence(id) => {
            let sequence = catalog.sequences.get(&id);
            sequence.map(|sequence| sequence.owner).ok_or_else(|| none("table", &id.to_string()))
        }
    }
}

fn set_owner(catalog: &mut Catalog, target: Target, owner: RoleId) -> Result<(), Error> {
    let former = owner_of(catalog, target)?;
    match target {
        Target::Cluster => return Err(Error::InvalidInput("the cluster has no owner".to_owned())),
        Target::Database(id) => {
            let mut databases = catalog.databases.values_mut();
            if let Some(database) = databases.find(|database| database.id == id) {
                Arc::make_mut(database).owner = owner;
            }
        }
        Target::Table(id) => {
            let table = catalog.table_by_id(id).map(|table| table.as_ref().clone());
            if let Some(table) = table {
                put_table(catalog, partita_proto::catalog::Table { owner, ..table });
            }
        }
        Target::Sequence(id) => {
            if let Some(sequence) = Arc::make_mut(&mut catalog.sequences).get_mut(&id) {
                Arc::make_mut(sequence).owner = owner;
            }
        }
    }
    let grant = catalog.access.grant(target).map(|grant| grant.as_ref().clone());
    if let Some(mut grant) = grant {
        grant.replace_owner(former, owner);
        update(catalog, |access| access.put_grant(grant));
    }
    Ok(())
}

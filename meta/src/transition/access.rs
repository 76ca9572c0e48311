//! Changes of roles, grants, tokens and organisations.
//!
//! Frontends have checked that the client may make them; here they are checked against what exists. A change is made on
//! a copy of the access first, so that rules about all of it (cycles, the last superuser) are checked on the result.

use std::collections::BTreeSet;
use std::sync::Arc;

use partita_proto::access::{
    Access, AccessChange, Grant, GrantEntry, Grantee, Membership, Org, Permission, Revocation,
    Role, RoleEdit, Scope, Secrets, Target, Token, TokenEdit, Verifier, validate_role_name,
};
use partita_proto::error::Error;
use partita_proto::id::{BOOTSTRAP_ROLE, DatabaseId, OrgId, RoleId, SequenceId, TableId, TokenId};
use partita_proto::schema::validate_name;
use partita_proto::sequence::Sequence;

use super::copy::is_copy;
use super::draft::{Draft, Outcome, Reply, absent_role, refusal};
use super::table::shown_name;
use crate::catalog::{DatabaseRecord, Edit, State, TableRecord};

/// Maximum roles, tokens and organisations: every frontend keeps them in memory.
const ROLES_MAX: usize = 100_000;
const TOKENS_MAX: usize = 1_000_000;
const ORGS_MAX: usize = 10_000;
/// Maximum entries of the grants on one object, which are one record.
const ENTRIES_MAX: usize = 10_000;
/// Maximum default settings of a role, and bytes of a setting or of the description of a token.
const SETTINGS_MAX: usize = 128;
const TEXT_BYTES_MAX: usize = 1024;
/// Maximum dependencies that an error names.
const NAMED_MAX: usize = 10;

/// SQLSTATE of a role or organisation that others depend on.
const DEPENDENT_OBJECTS: &str = "2BP01";
/// SQLSTATE of a membership that closes a cycle.
const INVALID_GRANT_OPERATION: &str = "0LP01";
/// SQLSTATE of a change that would leave no superuser.
const NOT_IN_STATE: &str = "55000";

/// Makes the superuser and the random keys of a cluster that has none.
pub(super) fn bootstrap(state: &State, superuser: &str, secrets: Secrets) -> Outcome {
    if state.access().role(BOOTSTRAP_ROLE).is_some() {
        return Outcome::without_edits(Reply::Unchanged);
    }
    let mut draft = Draft::new(state);
    draft.edits.push(Edit::Secrets(secrets));
    draft.edits.push(Edit::Role(Arc::new(Role::bootstrap(superuser))));
    draft.done()
}

pub(super) fn change_access(state: &State, change: &AccessChange) -> Result<Outcome, Error> {
    if state.access().role(BOOTSTRAP_ROLE).is_none() {
        return Err(Error::Unavailable("the superuser is not recorded yet".to_owned()));
    }
    let mut revision = Revision::new(state);
    match change {
        AccessChange::CreateRole { name, edit, member_of, members } => {
            revision.create_role(name, edit, member_of, members)?;
        }
        AccessChange::AlterRole { role, edit } => revision.alter_role(*role, edit)?,
        AccessChange::DropRole { role } => revision.drop_role(*role)?,
        AccessChange::GrantRole { group, member, admin_option, inherit } => {
            let membership =
                Membership { role: *group, admin_option: *admin_option, inherit: *inherit };
            revision.grant_role(*member, membership)?;
        }
        AccessChange::RevokeRole { group, member, admin_option_only } => {
            revision.revoke_role(*group, *member, *admin_option_only)?;
        }
        AccessChange::Grant { target, entry } => revision.grant(*target, *entry)?,
        AccessChange::Revoke { target, revocation } => revision.revoke(*target, *revocation)?,
        AccessChange::SetOwner { target, owner } => revision.set_owner(*target, *owner)?,
        AccessChange::CreateToken(token) => revision.create_token(token)?,
        AccessChange::AlterToken { id, edit } => revision.alter_token(*id, edit)?,
        AccessChange::DropToken(id) => {
            token(&revision.access, *id)?;
            revision.push(Edit::TokenGone(*id));
        }
        AccessChange::CreateOrg(org) => revision.create_org(org)?,
        AccessChange::AlterOrg(org) => revision.alter_org(org)?,
        AccessChange::DropOrg(id) => revision.drop_org(*id)?,
        AccessChange::SetInitialPassword(verifier) => revision.set_initial_password(verifier)?,
    }
    revision.done()
}

/// A change in the making: its edits, and the access with them.
struct Revision<'a> {
    draft: Draft<'a>,
    access: Access,
}

impl<'a> Revision<'a> {
    fn new(state: &'a State) -> Self {
        Self { draft: Draft::new(state), access: state.access().clone() }
    }

    fn push(&mut self, edit: Edit) {
        edit.apply_access(&mut self.access);
        self.draft.edits.push(edit);
    }

    /// Records a role, if it differs from the recorded one.
    fn put_role(&mut self, role: Role) {
        if self.access.role(role.id).is_none_or(|former| **former != role) {
            self.push(Edit::Role(Arc::new(role)));
        }
    }

    /// Records the grants on an object, if they differ from the recorded ones.
    fn put_grant(&mut self, grant: Grant) {
        let former = self.access.grant(grant.target());
        if grant.entries().is_empty() {
            if former.is_some() {
                self.push(Edit::GrantGone(grant.target()));
            }
        } else if former.is_none_or(|former| **former != grant) {
            self.push(Edit::Grant(Arc::new(grant)));
        }
    }

    /// The outcome, if the rest of the access allows it.
    fn done(self) -> Result<Outcome, Error> {
        if self.draft.edits.is_empty() {
            return Ok(Outcome::without_edits(Reply::Unchanged));
        }
        if !self.access.roles().values().any(|role| role.can_rescue()) {
            let message = "cannot leave the cluster without a superuser that can log in";
            return Err(refusal(NOT_IN_STATE, message.to_owned()));
        }
        Ok(self.draft.done())
    }

    fn create_role(
        &mut self,
        name: &str,
        edit: &RoleEdit,
        member_of: &[Membership],
        members: &[(RoleId, bool)],
    ) -> Result<(), Error> {
        self.check_role_name(name)?;
        check_limit(self.access.roles().len(), ROLES_MAX, "roles")?;
        let mut new = Role::new(self.draft.new_role(), name);
        self.apply(&mut new, &RoleEdit { name: None, ..edit.clone() })?;
        for membership in member_of {
            role(&self.access, membership.role)?;
            if new.member_of.iter().any(|former| former.role == membership.role) {
                return Err(Error::InvalidInput("a group is named more than once".to_owned()));
            }
            new.member_of.push(*membership);
        }
        let group = new.id;
        self.put_role(new);
        let distinct: BTreeSet<RoleId> = members.iter().map(|(member, _)| *member).collect();
        if distinct.len() < members.len() {
            return Err(Error::InvalidInput("a member is named more than once".to_owned()));
        }
        for (member, admin_option) in members {
            let membership = Membership { role: group, admin_option: *admin_option, inherit: true };
            self.grant_role(*member, membership)?;
        }
        Ok(())
    }

    fn alter_role(&mut self, id: RoleId, edit: &RoleEdit) -> Result<(), Error> {
        let mut altered = role(&self.access, id)?.clone();
        self.apply(&mut altered, edit)?;
        if id == BOOTSTRAP_ROLE && !altered.superuser {
            return Err(Error::NotAllowed(
                "the bootstrap superuser must have the SUPERUSER attribute".to_owned(),
            ));
        }
        self.put_role(altered);
        Ok(())
    }

    fn check_role_name(&self, name: &str) -> Result<(), Error> {
        validate_role_name(name)?;
        match self.access.role_by_name(name) {
            Some(_) => Err(Error::AlreadyExists { kind: "role", name: name.to_owned() }),
            None => Ok(()),
        }
    }

    /// Applies an edit to a role that is not recorded yet in this form.
    fn apply(&self, role: &mut Role, edit: &RoleEdit) -> Result<(), Error> {
        if let Some(name) = edit.name.as_ref().filter(|name| **name != role.name) {
            self.check_role_name(name)?;
            role.name.clone_from(name);
        }
        role.login = edit.login.unwrap_or(role.login);
        role.superuser = edit.superuser.unwrap_or(role.superuser);
        role.create_db = edit.create_db.unwrap_or(role.create_db);
        role.create_role = edit.create_role.unwrap_or(role.create_role);
        role.admin = edit.admin.unwrap_or(role.admin);
        role.valid_until_ms = edit.valid_until_ms.unwrap_or(role.valid_until_ms);
        if let Some(org) = edit.org {
            check_org(&self.access, org)?;
            role.org = org;
        }
        if let Some(verifier) =
            edit.verifier.as_ref().filter(|verifier| **verifier != role.verifier)
        {
            role.verifier.clone_from(verifier);
            role.secret_version += 1;
        }
        for (name, value) in &edit.settings {
            check_text("name of a setting", name)?;
            match value {
                Some(value) => {
                    check_text("value of a setting", value)?;
                    drop(role.settings.insert(name.clone(), value.clone()));
                }
                None => drop(role.settings.remove(name)),
            }
        }
        check_limit(role.settings.len(), SETTINGS_MAX + 1, "settings of a role")
    }

    fn drop_role(&mut self, id: RoleId) -> Result<(), Error> {
        let name = role(&self.access, id)?.name.clone();
        if id == BOOTSTRAP_ROLE {
            let message =
                format!("cannot drop role \"{name}\" because it is required by the cluster");
            return Err(refusal(DEPENDENT_OBJECTS, message));
        }
        let dependencies = self.dependencies(id);
        if !dependencies.is_empty() {
            return Err(refusal(
                DEPENDENT_OBJECTS,
                format!(
                    "role \"{name}\" cannot be dropped because some objects depend on it: {}",
                    listed(&dependencies)
                ),
            ));
        }
        let is_member =
            |role: &&Arc<Role>| role.member_of.iter().any(|membership| membership.role == id);
        let members: Vec<Role> =
            self.access.roles().values().filter(is_member).map(|role| Role::clone(role)).collect();
        for mut member in members.into_iter().filter(|member| member.id != id) {
            member.member_of.retain(|membership| membership.role != id);
            self.put_role(member);
        }
        let tokens = self.access.tokens().filter(|token| token.owner == id);
        let tokens: Vec<TokenId> = tokens.map(|token| token.id).collect();
        for token in tokens {
            self.push(Edit::TokenGone(token));
        }
        self.push(Edit::RoleGone(id));
        Ok(())
    }

    /// Objects that a role owns, and grants that name it, in words.
    fn dependencies(&self, role: RoleId) -> Vec<String> {
        let state = self.draft.state;
        let databases = state.databases().filter(|database| database.owner == role);
        let databases = databases.map(|database| format!("owner of database {}", database.name));
        let tables = state.tables().filter(|table| table.is_named() && table.owner == role);
        let tables = tables.map(|table| format!("owner of table {}", table_name(state, table)));
        let tasks = state.tasks().filter(|task| task.owner == role);
        let tasks = tasks.map(|task| {
            let database = state.database(task.database).map(|database| database.name.as_str());
            format!("owner of task {}", shown_name(database.unwrap_or("?"), &task.name))
        });
        let grants = self.access.grants().filter(|grant| grant.mentions(role));
        let grants = grants.map(|grant| match grant.target() {
            Target::Cluster => "privileges for the cluster".to_owned(),
            Target::Database(id) => {
                let name = state.database(id).map_or("?", |database| database.name.as_str());
                format!("privileges for database {name}")
            }
            Target::Table(id) => {
                let table = state.table(id).map(|table| table_name(state, table));
                format!("privileges for table {}", table.unwrap_or_default())
            }
            Target::Sequence(id) => {
                let sequence = state.sequence(id).map(|sequence| sequence_label(state, sequence));
                format!("privileges for sequence {}", sequence.unwrap_or_default())
            }
        });
        let sequences = state.sequences().filter(|sequence| sequence.owner == role);
        // A sequence of a column belongs to the owner of the table, who is named already.
        let sequences = sequences.filter(|sequence| sequence.column.is_none());
        let sequences = sequences
            .map(|sequence| format!("owner of sequence {}", sequence_label(state, sequence)));
        databases.chain(tables).chain(tasks).chain(sequences).chain(grants).collect()
    }

    fn grant_role(&mut self, member: RoleId, membership: Membership) -> Result<(), Error> {
        let group_name = role(&self.access, membership.role)?.name.clone();
        let mut altered = role(&self.access, member)?.clone();
        if self.access.would_cycle(member, membership.role) {
            let message = format!("role \"{group_name}\" is a member of role \"{}\"", altered.name);
            return Err(refusal(INVALID_GRANT_OPERATION, message));
        }
        let mut memberships = altered.member_of.iter_mut();
        match memberships.find(|former| former.role == membership.role) {
            Some(former) => {
                former.admin_option |= membership.admin_option;
                former.inherit = membership.inherit;
            }
            None => altered.member_of.push(membership),
        }
        self.put_role(altered);
        Ok(())
    }

    fn revoke_role(
        &mut self,
        group: RoleId,
        member: RoleId,
        admin_option_only: bool,
    ) -> Result<(), Error> {
        role(&self.access, group)?;
        let mut altered = role(&self.access, member)?.clone();
        if admin_option_only {
            let memberships = altered.member_of.iter_mut();
            for membership in memberships.filter(|membership| membership.role == group) {
                membership.admin_option = false;
            }
        } else {
            altered.member_of.retain(|membership| membership.role != group);
        }
        self.put_role(altered);
        Ok(())
    }

    fn set_initial_password(&mut self, verifier: &Verifier) -> Result<(), Error> {
        let superuser = role(&self.access, BOOTSTRAP_ROLE)?;
        // A password that was removed does not come back either.
        if superuser.verifier.is_some() || superuser.secret_version > 0 {
            return Ok(());
        }
        let edit = RoleEdit { verifier: Some(Some(verifier.clone())), ..RoleEdit::default() };
        self.alter_role(BOOTSTRAP_ROLE, &edit)
    }

    /// The grants on an object that exists, and its owner.
    fn grants_on(&self, target: Target) -> Result<(Grant, RoleId), Error> {
        let owner = match target {
            Target::Cluster => BOOTSTRAP_ROLE,
            Target::Database(id) => database(self.draft.state, id)?.owner,
            Target::Table(id) => table(self.draft.state, id)?.owner,
            Target::Sequence(id) => sequence(self.draft.state, id)?.owner,
        };
        let grant = self.access.grant(target).map(|grant| Grant::clone(grant));
        Ok((grant.unwrap_or_else(|| Grant::new(target)), owner))
    }

    fn grant(&mut self, target: Target, entry: GrantEntry) -> Result<(), Error> {
        role(&self.access, entry.grantor)?;
        if let Grantee::Role(grantee) = entry.grantee {
            role(&self.access, grantee)?;
        }
        // Whoever may read a table may read its copies.
        if let Target::Table(id) = target {
            let record = table(self.draft.state, id)?;
            if record.copy.is_some() {
                return Err(is_copy(record));
            }
        }
        let (mut grant, owner) = self.grants_on(target)?;
        grant.grant(owner, entry)?;
        check_limit(grant.entries().len(), ENTRIES_MAX + 1, "grants on an object")?;
        self.put_grant(grant);
        Ok(())
    }

    fn revoke(&mut self, target: Target, revocation: Revocation) -> Result<(), Error> {
        let (mut grant, owner) = self.grants_on(target)?;
        grant.revoke(owner, revocation)?;
        self.put_grant(grant);
        Ok(())
    }

    /// Gives an object another owner. A table's former table and successor, which have the same rows, follow it.
    fn set_owner(&mut self, target: Target, owner: RoleId) -> Result<(), Error> {
        role(&self.access, owner)?;
        let state = self.draft.state;
        match target {
            Target::Cluster => {
                Err(Error::InvalidInput("the owner of the cluster cannot be changed".to_owned()))
            }
            Target::Database(id) => {
                let record = database(state, id)?;
                if record.owner != owner {
                    let altered = DatabaseRecord { owner, ..DatabaseRecord::clone(record) };
                    self.draft.edits.push(Edit::Database(Arc::new(altered)));
                    self.replace_owner(target, record.owner, owner);
                }
                Ok(())
            }
            Target::Table(id) => {
                let record = table(state, id)?;
                // The table itself, its former table and its successor.
                let is_related = |candidate: &&Arc<TableRecord>| {
                    let is_same = candidate.id == id || candidate.former == Some(id);
                    candidate.is_named() && (is_same || record.former == Some(candidate.id))
                };
                let changed = |candidate: &&Arc<TableRecord>| candidate.owner != owner;
                for related in state.tables().filter(is_related).filter(changed) {
                    let altered = TableRecord { owner, ..TableRecord::clone(related) };
                    self.draft.edits.push(Edit::Table(Arc::new(altered)));
                    for former in self.draft.own_sequences_of(related.id, owner) {
                        self.replace_owner(Target::Sequence(former.id), former.owner, owner);
                    }
                    self.replace_owner(Target::Table(related.id), related.owner, owner);
                }
                Ok(())
            }
            Target::Sequence(id) => {
                let former = sequence(state, id)?;
                if former.column.is_some() {
                    let message = "cannot change owner of a sequence that is linked to a table";
                    return Err(refusal(NOT_IN_STATE, message.to_owned()));
                }
                if former.owner != owner {
                    let altered = Sequence { owner, ..former.clone() };
                    self.draft.edits.push(Edit::Sequence(Arc::new(altered)));
                    self.replace_owner(target, former.owner, owner);
                }
                Ok(())
            }
        }
    }

    fn replace_owner(&mut self, target: Target, former: RoleId, owner: RoleId) {
        if let Some(grant) = self.access.grant(target) {
            let mut grant = Grant::clone(grant);
            grant.replace_owner(former, owner);
            self.put_grant(grant);
        }
    }

    fn create_token(&mut self, new: &Token) -> Result<(), Error> {
        new.validate()?;
        check_text("description of a token", &new.description)?;
        role(&self.access, new.owner)?;
        check_org(&self.access, new.org)?;
        let is_known =
            self.access.token(new.id).is_some() || self.access.token_by_hash(&new.sha256).is_some();
        if is_known {
            return Err(Error::AlreadyExists { kind: "token", name: new.id.to_string() });
        }
        for permission in &new.permissions {
            if let Scope::Bucket { database: id, .. } = &permission.scope {
                database(self.draft.state, *id)?;
            }
        }
        check_limit(self.access.token_count(), TOKENS_MAX, "tokens")?;
        self.push(Edit::Token(Arc::new(new.clone())));
        Ok(())
    }

    fn alter_token(&mut self, id: TokenId, edit: &TokenEdit) -> Result<(), Error> {
        let former = token(&self.access, id)?;
        let mut altered = former.clone();
        if let Some(description) = &edit.description {
            check_text("description of a token", description)?;
            altered.description.clone_from(description);
        }
        altered.enabled = edit.enabled.unwrap_or(altered.enabled);
        altered.expires_ms = edit.expires_ms.unwrap_or(altered.expires_ms);
        if altered != *former {
            self.push(Edit::Token(Arc::new(altered)));
        }
        Ok(())
    }

    fn check_org_name(&self, org: &Org) -> Result<(), Error> {
        validate_name("organisation", &org.name)?;
        match self.access.org_by_name(&org.name).filter(|twin| twin.id != org.id) {
            Some(_) => Err(Error::AlreadyExists { kind: "organisation", name: org.name.clone() }),
            None => Ok(()),
        }
    }

    fn create_org(&mut self, new: &Org) -> Result<(), Error> {
        if self.access.org(new.id).is_some() {
            return Err(Error::AlreadyExists { kind: "organisation", name: new.id.to_string() });
        }
        self.check_org_name(new)?;
        check_limit(self.access.orgs().count(), ORGS_MAX, "organisations")?;
        self.push(Edit::Org(Arc::new(new.clone())));
        Ok(())
    }

    fn alter_org(&mut self, altered: &Org) -> Result<(), Error> {
        check_org(&self.access, Some(altered.id))?;
        self.check_org_name(altered)?;
        if self.access.org(altered.id).is_none_or(|former| **former != *altered) {
            self.push(Edit::Org(Arc::new(altered.clone())));
        }
        Ok(())
    }

    fn drop_org(&mut self, id: OrgId) -> Result<(), Error> {
        check_org(&self.access, Some(id))?;
        let roles = self.access.roles().values().filter(|role| role.org == Some(id));
        let tokens = self.access.tokens().filter(|token| token.org == Some(id));
        let members: Vec<String> = roles
            .map(|role| format!("role {}", role.name))
            .chain(tokens.map(|token| format!("token {}", token.id)))
            .collect();
        if !members.is_empty() {
            return Err(refusal(
                DEPENDENT_OBJECTS,
                format!(
                    "organisation {id} cannot be dropped because some objects belong to it: {}",
                    listed(&members)
                ),
            ));
        }
        self.push(Edit::OrgGone(id));
        Ok(())
    }
}

impl Draft<'_> {
    /// Gives the successor of a table the same grants.
    pub(super) fn copy_grants(&mut self, former: TableId, successor: TableId) {
        let Some(grant) = self.state.access().grant(Target::Table(former)) else { return };
        let entries = grant.entries().to_vec();
        if let Ok(copy) = Grant::from_entries(Target::Table(successor), entries) {
            self.edits.push(Edit::Grant(Arc::new(copy)));
        }
    }

    /// Removes the permissions of tokens on a database that goes.
    pub(super) fn drop_permissions(&mut self, id: DatabaseId) {
        let remains = |permission: &Permission| match &permission.scope {
            Scope::Everything | Scope::AllBuckets => true,
            Scope::Bucket { database, .. } => *database != id,
        };
        for token in self.state.access().tokens() {
            // Most tokens have no permission on it, and are not copied.
            if token.permissions.iter().all(remains) {
                continue;
            }
            let mut token = Token::clone(token);
            token.permissions.retain(remains);
            self.edits.push(Edit::Token(Arc::new(token)));
        }
    }
}

fn role(access: &Access, id: RoleId) -> Result<&Role, Error> {
    access.role(id).map(Arc::as_ref).ok_or_else(|| absent_role(id))
}

fn token(access: &Access, id: TokenId) -> Result<&Token, Error> {
    let token = access.token(id).map(Arc::as_ref);
    token.ok_or_else(|| Error::NotFound { kind: "token", name: id.to_string() })
}

fn database(state: &State, id: DatabaseId) -> Result<&DatabaseRecord, Error> {
    let record = state.database(id).map(Arc::as_ref);
    record.ok_or_else(|| Error::NotFound { kind: "database", name: id.to_string() })
}

fn table(state: &State, id: TableId) -> Result<&TableRecord, Error> {
    let record: Option<&TableRecord> = state.table(id).map(Arc::as_ref);
    let record = record.filter(|record| record.is_published());
    record.ok_or_else(|| Error::NotFound { kind: "table", name: id.to_string() })
}

fn sequence(state: &State, id: SequenceId) -> Result<&Sequence, Error> {
    let sequence: Option<&Sequence> = state.sequence(id).map(Arc::as_ref);
    sequence.ok_or_else(|| Error::NotFound { kind: "table", name: id.to_string() })
}

fn sequence_label(state: &State, sequence: &Sequence) -> String {
    let database = state.database(sequence.database);
    let database = database.map_or("?", |database| database.name.as_str());
    shown_name(database, &sequence.name)
}

fn table_name(state: &State, table: &TableRecord) -> String {
    let database = state.database(table.database);
    database.map_or_else(String::new, |database| shown_name(&database.name, &table.name))
}

fn check_org(access: &Access, org: Option<OrgId>) -> Result<(), Error> {
    match org.filter(|org| access.org(*org).is_none()) {
        Some(org) => Err(Error::NotFound { kind: "organisation", name: org.to_string() }),
        None => Ok(()),
    }
}

fn check_text(kind: &str, text: &str) -> Result<(), Error> {
    if text.len() > TEXT_BYTES_MAX || text.contains('\0') {
        return Err(Error::InvalidInput(format!(
            "a {kind} must have at most {TEXT_BYTES_MAX} bytes, none of them 0"
        )));
    }
    Ok(())
}

/// Checks that there may be one more.
fn check_limit(count: usize, limit: usize, kind: &str) -> Result<(), Error> {
    if count < limit {
        return Ok(());
    }
    let message = format!("the limit of the number of {kind} is reached");
    Err(Error::LimitReached { message, hint: format!("Drop {kind} that are not needed.") })
}

/// The first of several names, and the number of others.
fn listed(names: &[String]) -> String {
    let first = names[..names.len().min(NAMED_MAX)].join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => first,
        count => format!("{first} and {count} others"),
    }
}

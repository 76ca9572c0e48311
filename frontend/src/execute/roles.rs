//! Statements about who may do what: they become needs to check and changes for meta.
//!
//! ```text
//!   statement ── names resolved ──▶ Plan { needs, changes, notices, rows }
//!                                     │       └─▶ meta, one after another
//!                                     └─▶ Viewer::check ─▶ Permit
//! ```
//!
//! Invariants:
//! - needs and changes come from one plan, so that nothing is changed that was not checked;
//! - a session that changes its own password goes on, and others of the role end;
//! - a password becomes a verifier here, and the text of a token leaves in the rows of CREATE TOKEN only.

mod attributes;
mod names;
mod orgs;
mod owners;
mod plan;
mod rights;
mod tokens;

use arrow::datatypes::SchemaRef;
use partita_proto::access::{AccessChange, Action, Need, Object};
use partita_proto::service::Ddl;
use partita_sql::access_statement::{AccessStatement, RoleName, SetRole};

use self::names::Names;
use self::plan::{INSUFFICIENT_PRIVILEGE, Plan};
use crate::access::viewer::Viewer;
use crate::error::SqlError;
use crate::output::{Output, text_schema};
use crate::session::Session;

/// Needs of a statement by a client whose unqualified tables are in `database`.
///
/// # Errors
/// When a name is unknown, or the statement is refused for a reason that is no need of an action.
pub(crate) fn needs(
    viewer: &Viewer,
    database: &str,
    statement: &AccessStatement,
) -> Result<Vec<Need>, SqlError> {
    Ok(planned(&Names::new(viewer, database)?, statement, None)?.needs)
}

/// Plans a statement. Without a session it is only checked: verifiers and tokens are not made.
fn planned(
    names: &Names<'_>,
    statement: &AccessStatement,
    session: Option<&Session>,
) -> Result<Plan, SqlError> {
    match statement {
        AccessStatement::CreateRole(create) => {
            attributes::create_role(names, create, session.is_some())
        }
        AccessStatement::AlterRole { role, change } => {
            attributes::alter_role(names, role, change, session)
        }
        AccessStatement::DropRole { names: roles, if_exists } => {
            attributes::drop_roles(names, roles, *if_exists)
        }
        AccessStatement::GrantRole(grant) => rights::grant_roles(names, grant),
        AccessStatement::RevokeRole(revoke) => rights::revoke_roles(names, revoke),
        AccessStatement::Grant(grant) => rights::grant(names, grant),
        AccessStatement::Revoke(revoke) => rights::revoke(names, revoke),
        AccessStatement::SetOwner { object, owner } => owners::set_owner(names, object, owner),
        AccessStatement::ReassignOwned { owners, successor } => {
            owners::reassign(names, owners, successor, session)
        }
        AccessStatement::DropOwned { owners, cascade } => {
            owners::drop_owned(names, owners, *cascade, session)
        }
        AccessStatement::CreateToken(create) => tokens::create(names, create, session.is_some()),
        AccessStatement::AlterToken { id, options } => tokens::alter(names, *id, options),
        AccessStatement::DropToken { ids, if_exists } => tokens::drop(names, ids, *if_exists),
        AccessStatement::CreateOrg { name, options } => {
            orgs::create(names, name, options, session.is_some())
        }
        AccessStatement::AlterOrg { name, options } => orgs::alter(names, name, options),
        AccessStatement::DropOrg { name, if_exists } => orgs::drop(names, name, *if_exists),
        AccessStatement::ShowGrants { role } => rights::show(names, role.as_ref()),
        AccessStatement::ShowTokens => Ok(tokens::show(names)),
    }
}

/// Columns of a statement's rows; `None` for a statement that has none.
pub(super) fn schema_of(statement: &AccessStatement) -> Option<SchemaRef> {
    let columns = match statement {
        AccessStatement::CreateToken(_) => tokens::CREATED,
        AccessStatement::ShowTokens => tokens::SHOWN,
        AccessStatement::ShowGrants { .. } => rights::SHOWN,
        AccessStatement::CreateRole(_)
        | AccessStatement::AlterRole { .. }
        | AccessStatement::DropRole { .. }
        | AccessStatement::GrantRole(_)
        | AccessStatement::RevokeRole(_)
        | AccessStatement::Grant(_)
        | AccessStatement::Revoke(_)
        | AccessStatement::SetOwner { .. }
        | AccessStatement::ReassignOwned { .. }
        | AccessStatement::DropOwned { .. }
        | AccessStatement::AlterToken { .. }
        | AccessStatement::DropToken { .. }
        | AccessStatement::CreateOrg { .. }
        | AccessStatement::AlterOrg { .. }
        | AccessStatement::DropOrg { .. } => return None,
    };
    Some(text_schema(columns))
}

/// True if a change gives another password to the role that the session began as. With the same one, meta changes
/// nothing.
fn changes_own_password(viewer: &Viewer, change: &Ddl) -> bool {
    let Ddl::Access(change) = change else { return false };
    let AccessChange::AlterRole { role, edit } = change.as_ref() else { return false };
    let (identity, access) = (viewer.identity(), viewer.access());
    let former = access.role(identity.login).map(|role| &role.verifier);
    identity.token.is_none()
        && *role == identity.login
        && edit.verifier.as_ref().is_some_and(|verifier| Some(verifier) != former)
}

impl Session {
    /// Runs a statement about who may do what.
    ///
    /// # Errors
    /// When a name is unknown, a right is missing, or meta refuses a change; the detail says whether earlier changes of
    /// the statement took effect.
    pub(super) async fn change_access(
        &self,
        statement: &AccessStatement,
    ) -> Result<Output, SqlError> {
        let database = self.database();
        let plan = planned(&Names::new(self.viewer(), &database)?, statement, Some(self))?;
        let permit = self.viewer().check(&plan.needs)?;
        for (position, change) in plan.changes.into_iter().enumerate() {
            // Dropped when the change fails or is cancelled.
            let secret =
                changes_own_password(self.viewer(), &change).then(|| self.viewer().expect_secret());
            if let Err(error) = self.frontend().change(&permit, change).await {
                let is_partial = position > 0 && error.detail.is_none();
                return Err(match is_partial {
                    true => error.with_detail("Earlier changes of the statement took effect."),
                    false => error,
                });
            }
            if let Some(secret) = secret {
                secret.confirm();
            }
        }
        match plan.rows {
            Some(rows) => Output::text(rows.columns, &rows.cells),
            None => Ok(Output::done_with(statement.tag(), plan.notices)),
        }
    }

    /// Becomes another role, or the one that the session began as.
    ///
    /// # Errors
    /// When the role does not exist, or the session may not become it.
    pub(super) fn set_role(&self, set: &SetRole) -> Result<Output, SqlError> {
        let tag = if set.is_reset { "RESET" } else { "SET" };
        let Some(name) = &set.role else {
            self.viewer().act_as(None);
            return Ok(Output::done(tag));
        };
        let database = self.database();
        let role = Names::new(self.viewer(), &database)?.role(&RoleName::Named(name.clone()))?;
        let object = Object::Role { id: role.id, name: role.name.clone() };
        if let Err(error) = self.viewer().check(&[Need::new(Action::Login, object)]) {
            return Err(match error.sqlstate.as_str() {
                INSUFFICIENT_PRIVILEGE => SqlError::new(
                    INSUFFICIENT_PRIVILEGE,
                    format!("permission denied to set role \"{name}\""),
                ),
                _ => error,
            });
        }
        self.viewer().act_as(Some(role.id));
        Ok(Output::done(tag))
    }
}

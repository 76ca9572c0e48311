//! Names in statements about who may do what, resolved as the client sees them.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use partita_proto::access::{Access, Action, Grantee, Identity, Need, Object, Role};
use partita_proto::catalog::{Catalog, Database, Table};
use partita_proto::id::{OrgId, RoleId};
use partita_sql::access_statement::{GranteeName, RoleName};
use partita_sql::statement::TableName;

use super::plan::INSUFFICIENT_PRIVILEGE;
use crate::access::viewer::Viewer;
use crate::catalog::{INFORMATION, SYSTEM};
use crate::error::{SqlError, UNDEFINED_OBJECT};
use crate::privileges::{sequence_object, shown_sequences, shows_role};
use crate::sequences::sequence_named;

/// Names that a client may use, as of the start of its statement.
pub(super) struct Names<'a> {
    pub(super) viewer: &'a Viewer,
    pub(super) access: Arc<Access>,
    /// Without what the client may not see.
    pub(super) catalog: Arc<Catalog>,
    pub(super) identity: Identity,
    /// Current role.
    pub(super) current: Arc<Role>,
    /// Milliseconds since 1970.
    pub(super) now_ms: i64,
    database: &'a str,
}

impl<'a> Names<'a> {
    /// Names for a client whose unqualified tables are in `database`.
    ///
    /// # Errors
    /// When the client is no longer valid.
    pub(super) fn new(viewer: &'a Viewer, database: &'a str) -> Result<Self, SqlError> {
        // An identity that has ended is told so, before its role is missed.
        let _permit = viewer.check(&[])?;
        let (identity, access) = (viewer.identity(), viewer.access());
        let current = access.role(identity.acting.unwrap_or(identity.login)).map(Arc::clone);
        let current = current.ok_or_else(|| {
            SqlError::new(INSUFFICIENT_PRIVILEGE, "the current role does not exist")
        })?;
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ms = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
        let catalog = viewer.catalog();
        Ok(Self { viewer, access, catalog, identity, current, now_ms, database })
    }

    /// True if the client may do this.
    pub(super) fn may(&self, action: Action, object: Object) -> bool {
        self.viewer.check(&[Need::new(action, object)]).is_ok()
    }

    /// True if the client has the unlimited rights of a superuser.
    pub(super) fn is_superuser(&self) -> bool {
        let token = self.identity.token.and_then(|id| self.access.token(id));
        let is_whole = token.is_none_or(|token| token.is_unrestricted() && token.org.is_none());
        self.current.superuser && is_whole && (self.identity.token.is_none() || token.is_some())
    }

    /// A role by name.
    ///
    /// # Errors
    /// When it does not exist, or the client may not know it.
    pub(super) fn role(&self, name: &RoleName) -> Result<Arc<Role>, SqlError> {
        let name = match name {
            RoleName::CurrentUser => return Ok(Arc::clone(&self.current)),
            RoleName::SessionUser => {
                let role = self.access.role(self.identity.login).map(Arc::clone);
                return role.ok_or_else(|| undefined("SESSION_USER"));
            }
            RoleName::Named(name) => name,
        };
        let role = self.access.role_by_name(name).ok_or_else(|| undefined(name))?;
        if shows_role(self.viewer, role) {
            return Ok(Arc::clone(role));
        }
        Err(undefined(name))
    }

    /// Roles by name, without repetitions.
    ///
    /// # Errors
    /// When one does not exist.
    pub(super) fn roles(&self, names: &[RoleName]) -> Result<Vec<Arc<Role>>, SqlError> {
        let mut roles: Vec<Arc<Role>> = Vec::with_capacity(names.len());
        for name in names {
            let role = self.role(name)?;
            if !roles.iter().any(|entry| entry.id == role.id) {
                roles.push(role);
            }
        }
        Ok(roles)
    }

    /// Receiver of rights.
    ///
    /// # Errors
    /// When the role does not exist.
    pub(super) fn grantee(&self, name: &GranteeName) -> Result<Grantee, SqlError> {
        match name {
            GranteeName::Public => Ok(Grantee::Public),
            GranteeName::Role(name) => Ok(Grantee::Role(self.role(name)?.id)),
        }
    }

    /// Name of a role for the client; `None` if the client may not see it.
    pub(super) fn shown_role(&self, id: RoleId) -> Option<String> {
        let role = self.access.role(id)?;
        shows_role(self.viewer, role).then(|| role.name.clone())
    }

    /// Organisation by name.
    ///
    /// # Errors
    /// When it does not exist for the client.
    pub(super) fn org(&self, name: &str) -> Result<OrgId, SqlError> {
        let missing =
            || SqlError::new(UNDEFINED_OBJECT, format!("organisation \"{name}\" does not exist"));
        let id = self.access.org_by_name(name).ok_or_else(missing)?.id;
        let object = Object::Org { id, name: name.to_owned() };
        if self.may(Action::Select, object) { Ok(id) } else { Err(missing()) }
    }

    /// Database by name.
    ///
    /// # Errors
    /// When it does not exist for the client.
    pub(super) fn database(&self, name: &str) -> Result<Arc<Database>, SqlError> {
        let database = self.catalog.databases.get(name).map(Arc::clone);
        database.ok_or_else(|| match [SYSTEM, INFORMATION].contains(&name) {
            true => SqlError::unsupported(format!("a privilege on schema {name}")),
            false => SqlError::undefined_database(name),
        })
    }

    /// Table by name, with its database.
    ///
    /// # Errors
    /// When it does not exist for the client.
    pub(super) fn table(&self, name: &TableName) -> Result<Object, SqlError> {
        let database = name.database_or(self.database);
        if [SYSTEM, INFORMATION].contains(&database) {
            return Err(SqlError::new(
                "42809",
                format!("\"{database}.{}\" is not a stored table", name.name),
            ));
        }
        let table = self.catalog.table(database, &name.name).map(Arc::clone);
        let database = self.catalog.databases.get(database).map(Arc::clone);
        match (database, table) {
            (Some(database), Some(table)) => Ok(Object::Table { database, table }),
            _ => Err(SqlError::undefined_table(match &name.database {
                Some(database) => format!("{database}.{}", name.name),
                None => name.name.clone(),
            })),
        }
    }

    /// All tables of a database that the client sees, without copies: the rights on their sources are theirs.
    ///
    /// # Errors
    /// When the database does not exist for the client.
    pub(super) fn tables_of(&self, name: &str) -> Result<Vec<Object>, SqlError> {
        let database = self.database(name)?;
        let tables = self.catalog.tables.get(name).into_iter().flat_map(|tables| tables.values());
        let object = |table: &Arc<Table>| Object::Table {
            database: Arc::clone(&database),
            table: Arc::clone(table),
        };
        Ok(tables.filter(|table| table.copy.is_none()).map(object).collect())
    }

    /// Sequence by name.
    ///
    /// # Errors
    /// When it does not exist for the client.
    pub(super) fn sequence(&self, name: &TableName) -> Result<Object, SqlError> {
        let sequence = sequence_named(self.viewer, self.database, name)?;
        sequence_object(&self.catalog, &sequence)
    }

    /// All sequences of a database that the client may do something with.
    ///
    /// # Errors
    /// When the database does not exist for the client.
    pub(super) fn sequences_of(&self, name: &str) -> Result<Vec<Object>, SqlError> {
        self.database(name)?;
        let sequences = shown_sequences(self.viewer);
        let of_database = sequences.iter().filter(|(database, _)| database == name);
        of_database.map(|(_, sequence)| sequence_object(&self.catalog, sequence)).collect()
    }
}

/// The object of needs about a role.
pub(super) fn role_object(role: &Role) -> Object {
    Object::Role { id: role.id, name: role.name.clone() }
}

/// The error of a role that does not exist.
pub(super) fn undefined(name: &str) -> SqlError {
    SqlError::new(UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"))
}

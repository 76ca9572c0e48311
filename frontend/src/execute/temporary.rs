//! CREATE TEMP TABLE, and the statements that temporary tables take.

use std::sync::Arc;

use partita_proto::Error;
use partita_proto::access::{Door, Need, Object, Permit};
use partita_proto::schema::TableOptions;
use partita_sql::Notice;
use partita_sql::statement::{CreateTable, Partitioning, Statement};

use crate::error::SqlError;
use crate::sequences::has_counter;
use crate::session::Session;
use crate::temporary::{TemporaryTable, is_temporary};

/// Refuses statements that temporary tables do not take, by the objects that the statement needs.
pub(super) fn check_temporary(statement: &Statement, needs: &[Need]) -> Result<(), SqlError> {
    let statement = match statement {
        Statement::Explain(explain) => explain.statement.as_ref(),
        statement => statement,
    };
    let takes_temporary = matches!(
        statement,
        Statement::Insert(_)
            | Statement::Delete(_)
            | Statement::Update(_)
            | Statement::CreateTable(_)
            | Statement::CopyFrom(_)
            | Statement::DropTable(_)
            | Statement::Truncate(_)
            | Statement::Lock(_)
            | Statement::Vacuum(_)
    );
    let temporary = needs.iter().find_map(|need| match &need.object {
        Object::Table { table, .. } => is_temporary(table.id).then_some(table),
        _ => None,
    });
    match temporary.filter(|_| !takes_temporary) {
        None => Ok(()),
        Some(table) => {
            let (form, name) = (statement.tag(), &table.name);
            Err(SqlError::unsupported(format!("{form} of a temporary table (\"{name}\")")))
        }
    }
}

impl Session {
    /// True if the session has a temporary table of the name that a statement creates.
    pub(super) fn has_temporary(&self, create: &CreateTable) -> bool {
        let database = self.database();
        let database = create.table.database_or(&database);
        self.viewer().temporary().get(database, &create.table.name).is_some()
    }

    /// Creates a temporary table; `None` if one of its name exists, and may.
    pub(super) fn create_temporary(
        &self,
        create: &CreateTable,
        permit: &Permit,
    ) -> Result<Option<Vec<Notice>>, SqlError> {
        if self.has_temporary(create) {
            if create.if_not_exists {
                return Ok(None);
            }
            let (kind, name) = ("table", create.table.name.clone());
            return Err(Error::AlreadyExists { kind, name }.into());
        }
        let (table, notices) = self.new_temporary(create, permit)?;
        self.viewer().temporary().add(table)?;
        Ok(Some(notices))
    }

    /// Makes a temporary table that has no name yet.
    pub(super) fn new_temporary(
        &self,
        create: &CreateTable,
        permit: &Permit,
    ) -> Result<(Arc<TemporaryTable>, Vec<Notice>), SqlError> {
        if matches!(self.identity().door, Door::Http | Door::Flight) {
            return Err(SqlError::unsupported("a temporary table of a request without a session"));
        }
        let is_plain = matches!(&create.partitioning, Partitioning::Range { columns } if columns.is_empty())
            && create.cuts.is_none()
            && create.uniform.is_none()
            && !create.schema_on_write
            && create.options == TableOptions::default();
        if !is_plain {
            return Err(SqlError::unsupported("partitions and options of a temporary table"));
        }
        let (mut table, _) = create.to_new_table(&self.database())?;
        table.owner = permit.role();
        for column in &table.schema.columns {
            if has_counter(column) {
                let feature = format!("a counter in a temporary table (\"{}\")", column.name);
                return Err(SqlError::unsupported(feature));
            }
            if !column.indexes.is_empty() {
                let feature = format!("an index of a temporary table (\"{}\")", column.name);
                return Err(SqlError::unsupported(feature));
            }
        }
        let frontend = self.frontend();
        let temporary = frontend.temporary().create(frontend.state(), table)?;
        Ok((temporary, create.notices.clone()))
    }
}

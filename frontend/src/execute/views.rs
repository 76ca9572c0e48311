//! CREATE VIEW and DROP VIEW.
//!
//! The columns of a view, and the names that its query reads, are those of the plan of the query (`view_plans.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement as PlannerStatement;
use partita_proto::access::{Action, Permit};
use partita_proto::catalog::Table;
use partita_proto::id::{BOOTSTRAP_ROLE, ColumnId, SchemaVersion};
use partita_proto::placement::Placement;
use partita_proto::schema::{Column, ColumnType, JsonType, Semantic, TableOptions, TableSchema};
use partita_proto::service::{Ddl, NewTable, TableChange};
use partita_proto::stored_view::{RelationName, ViewDefinition};
use partita_sql::shown_names::shown_name;
use partita_sql::statement::{CreateView, DropView, TableName};
use partita_sql::with_shown_names;
use partita_worker::with_bounded_folding;

use super::define::{WRONG_OBJECT_TYPE, exists_already, skipping};
use super::query::plan;
use super::view_plans::{check_size, output_names};
use crate::error::{
    DUPLICATE_COLUMN, PROGRAM_LIMIT_EXCEEDED, SYNTAX_ERROR, SqlError, UNDEFINED_TABLE,
};
use crate::output::Output;
use crate::session::Session;

/// Maximum bytes of the query of a view: the catalog keeps it in memory everywhere.
const QUERY_BYTES_MAX: usize = 256 << 10;

impl Session {
    pub(super) async fn create_view(
        &self,
        create: &CreateView,
        permit: &Permit,
    ) -> Result<Output, SqlError> {
        const TAG: &str = "CREATE VIEW";
        let present = match self.table(&create.name) {
            Err(error) if error.sqlstate == UNDEFINED_TABLE => None,
            result => Some(result?),
        };
        let table = self.new_view(create).await?;
        let (database, name) = (table.database.clone(), table.name.clone());
        let Some(present) = present.filter(|_| create.or_replace) else {
            let if_not_exists = create.if_not_exists;
            let ddl = Ddl::CreateTable { table: Box::new(table), if_not_exists };
            let changed = self.frontend().change(permit, ddl).await?;
            return Ok(exists_already(changed, TAG, &format!("relation \"{name}\"")));
        };
        self.check_covered(&create.name, Action::Own, permit)?;
        if present.schema.view.is_none() {
            return Err(SqlError::new(WRONG_OBJECT_TYPE, format!("\"{name}\" is not a view")));
        }
        let TableSchema { columns, view: Some(definition), .. } = table.schema else {
            return Err(SqlError::internal("a view without a query"));
        };
        let change = TableChange::SetView { columns, definition: Box::new(definition) };
        self.frontend().change(permit, Ddl::AlterTable { database, name, change }).await?;
        Ok(Output::done(TAG))
    }

    /// The view for meta to create.
    async fn new_view(&self, create: &CreateView) -> Result<NewTable, SqlError> {
        let text = &create.query.text;
        if text.len() > QUERY_BYTES_MAX {
            let message = format!("the query of a view has at most {QUERY_BYTES_MAX} bytes");
            return Err(SqlError::new(PROGRAM_LIMIT_EXCEEDED, message));
        }
        let (state, statement) = (self.statement_state(), &create.query.statement);
        let logical = plan(&state, statement.clone()).await?;
        if let Some(parameter) = logical.get_parameter_names()?.into_iter().min() {
            return Err(SqlError::new("42P02", format!("there is no parameter {parameter}")));
        }
        check_size(&create.name.name, &logical)?;
        // Types are known when the plan is analyzed.
        let optimized = with_bounded_folding(|| state.optimize(&logical))?;
        let schema = with_shown_names(statement, Arc::clone(optimized.schema().inner()));
        let sources = output_names(logical.schema());
        if create.columns.len() > sources.len() {
            let message = "CREATE VIEW specifies more column names than columns";
            return Err(SqlError::new(SYNTAX_ERROR, message));
        }
        let mut columns: Vec<Column> = Vec::with_capacity(sources.len());
        for (field, source) in schema.fields().iter().zip(sources) {
            let new_name = create.columns.get(columns.len()).map(String::as_str);
            let name = new_name.unwrap_or_else(|| shown_name(field));
            if columns.iter().any(|column| column.name == name) {
                let message = format!("column \"{name}\" specified more than once");
                return Err(SqlError::new(DUPLICATE_COLUMN, message));
            }
            let column_type = column_type("view", field, name)?;
            let id = column_id(columns.len());
            let json = JsonType::of_field(field);
            columns.push(Column { json, ..new_column(id, name, source, column_type) });
        }
        let database = self.database();
        let view = ViewDefinition {
            query: text.as_ref().to_owned(),
            reads: self.names_in(&state, statement)?,
            database: database.clone(),
        };
        let schema = TableSchema {
            version: SchemaVersion(1),
            next_column: column_id(columns.len()),
            columns,
            key: Vec::new(),
            options: TableOptions { append_mode: true, ..TableOptions::default() },
            schema_on_write: false,
            checks: Vec::new(),
            view: Some(view),
        };
        schema.validate()?;
        Ok(NewTable {
            database: create.name.database_or(&database).to_owned(),
            name: create.name.name.clone(),
            schema,
            placement: Placement::Range,
            cuts: Vec::new(),
            sequences: Vec::new(),
            owner: BOOTSTRAP_ROLE,
            copy_of: None,
            rekeys: false,
        })
    }

    /// The stored tables and views that a query names, sorted.
    fn names_in(
        &self,
        state: &SessionState,
        statement: &PlannerStatement,
    ) -> Result<Vec<RelationName>, SqlError> {
        let (catalog, of_session) = (self.catalog(), self.database());
        let mut names = BTreeSet::new();
        for reference in state.resolve_table_references(statement)? {
            let database = reference.schema().unwrap_or(&of_session);
            if self.viewer().temporary().get(database, reference.table()).is_some() {
                let feature = format!("a view of a temporary table (\"{}\")", reference.table());
                return Err(SqlError::unsupported(feature));
            }
            // The others are tables of the system.
            if let Some(table) = catalog.table(database, reference.table()) {
                let (database, name) = (table.database.clone(), table.name.clone());
                names.insert(RelationName { database, name });
            }
        }
        Ok(names.into_iter().collect())
    }

    pub(super) async fn drop_view(
        &self,
        drop: &DropView,
        permit: &Permit,
    ) -> Result<Output, SqlError> {
        let mut notices = Vec::new();
        // All views are looked up before the first is dropped.
        for name in &drop.names {
            match self.table(name) {
                Err(error) if drop.if_exists && error.sqlstate == UNDEFINED_TABLE => {}
                Err(error) => return Err(error),
                Ok(table) if table.schema.view.is_none() => {
                    let message = format!("\"{}\" is not a view", table.name);
                    let error = SqlError::new(WRONG_OBJECT_TYPE, message);
                    return Err(error.with_hint("Use DROP TABLE to remove a table."));
                }
                Ok(_) if !drop.if_exists => self.check_covered(name, Action::Own, permit)?,
                Ok(_) => {}
            }
        }
        let mut remaining: Vec<&TableName> = drop.names.iter().collect();
        while !remaining.is_empty() {
            let view = remaining.remove(self.next_to_drop(&remaining));
            let (database, name) = self.named(view);
            let holder = self.catalog().table(&database, &name).map(Arc::clone);
            let covered = holder.as_ref().filter(|holder| permit.covers(holder.id, Action::Own));
            if holder.is_some() && covered.is_none() && !drop.if_exists {
                return Err(SqlError::undefined_table(&name));
            }
            if let Some(view) = covered {
                notices.extend(self.dependent_views(view, "view", drop.cascade)?);
            }
            let DropView { if_exists, cascade, .. } = *drop;
            let is_covered = covered.is_some();
            let ddl = Ddl::DropTable { database, name: name.clone(), if_exists, cascade };
            if !is_covered || !self.frontend().change(permit, ddl).await? {
                notices.push(skipping(&format!("view \"{name}\""), "does not exist"));
            }
        }
        Ok(Output::done_with("DROP VIEW", notices))
    }

    /// Position of a view that none of the others reads.
    fn next_to_drop(&self, views: &[&TableName]) -> usize {
        let catalog = self.frontend().catalog();
        let names: Vec<(String, String)> = views.iter().map(|view| self.named(view)).collect();
        let is_free = |(database, name): &(String, String)| {
            let is_named = |view: &Arc<Table>| {
                names
                    .iter()
                    .any(|(database, name)| (database, name) == (&view.database, &view.name))
            };
            !catalog.views_of(database, name).any(is_named)
        };
        names.iter().position(is_free).unwrap_or(0)
    }
}

/// The type of a column of a view or table that a query defines. As in PostgreSQL, NULL alone is a text.
pub(super) fn column_type(
    relation: &str,
    field: &Field,
    name: &str,
) -> Result<ColumnType, SqlError> {
    if *field.data_type() == DataType::Null {
        return Ok(ColumnType::String);
    }
    ColumnType::from_arrow(field.data_type()).ok_or_else(|| {
        let feature = format!("a {relation} with column \"{name}\" of type {}", field.data_type());
        SqlError::unsupported(feature).with_hint("cast it to a type that columns of tables have")
    })
}

fn column_id(position: usize) -> ColumnId {
    ColumnId(u32::try_from(position).unwrap_or(u32::MAX))
}

fn new_column(id: ColumnId, name: &str, source: String, column_type: ColumnType) -> Column {
    Column {
        id,
        name: name.to_owned(),
        storage_name: source,
        column_type,
        nullable: true,
        semantic: Semantic::Field,
        default: None,
        generated: None,
        missing: None,
        length: None,
        json: None,
        indexes: Vec::new(),
        comment: None,
    }
}

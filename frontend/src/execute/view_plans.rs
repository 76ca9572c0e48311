//! Plans of views: what a statement reads that names a view.
//!
//! ```text
//!   CREATE VIEW ─▶ plan of the query ─▶ columns, names that it reads ─▶ meta
//!   SELECT .. FROM view ─▶ names of the view (catalog.rs) ─▶ plan of the query ─▶ columns of the view ─▶ inlined
//! ```
//!
//! The columns of a view are those that its query had when it was made: a wildcard brings no columns that were added
//! later. Types stay too; a value of another type is cast.

use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use datafusion::catalog::CatalogProviderList;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Column as PlanColumn, DFSchema};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast};
use parking_lot::RwLock;
use partita_proto::catalog::Table;
use partita_proto::schema::ColumnType;
use partita_proto::stored_view::ViewDefinition;
use partita_sql::parser;
use partita_sql::statement::Statement;

use super::query::plan;
use crate::catalog::ViewPlanner;
use crate::error::{STATEMENT_TOO_COMPLEX, SqlError};
use crate::session::Session;

/// Maximum tables that the query of a view reads, those of the views in it included. What reads the view repeats them.
const VIEW_SCANS_MAX: usize = 256;

/// Plans the queries of views with the functions and settings of a session.
#[derive(Default)]
pub(crate) struct SessionPlanner(OnceLock<Weak<RwLock<SessionState>>>);

impl SessionPlanner {
    /// Sets the state of the session, once.
    pub(crate) fn begin(&self, state: Weak<RwLock<SessionState>>) {
        // A session has one state, so there is no other one to keep.
        drop(self.0.set(state));
    }
}

#[async_trait]
impl ViewPlanner for SessionPlanner {
    async fn plan(
        &self,
        view: &Table,
        definition: &ViewDefinition,
        names: Arc<dyn CatalogProviderList>,
    ) -> Result<LogicalPlan, SqlError> {
        let shared = self.0.get().and_then(Weak::upgrade);
        let shared =
            shared.ok_or_else(|| SqlError::internal("a view was read without a session"))?;
        let mut state = shared.read().clone();
        state.register_catalog_list(names);
        let options = state.config_mut().options_mut();
        definition.database.clone_into(&mut options.catalog.default_schema);
        let Some(Statement::Query(query)) = parser::parse(&definition.query)?.pop() else {
            return Err(SqlError::internal(format!("view \"{}\" has no query", view.name)));
        };
        let logical = plan(&state, query.statement).await?;
        check_size(&view.name, &logical)?;
        with_columns(view, logical)
    }
}

impl Session {
    /// A planner for a new session, which `SessionPlanner::begin` gives its state.
    pub(crate) fn view_planner() -> Arc<SessionPlanner> {
        Arc::default()
    }
}

/// Names of a query's columns, by which a view finds them again: those of the plan, numbered where they are alike.
pub(super) fn output_names(schema: &DFSchema) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let mut name = field.name().clone();
        let mut number = 2;
        while names.contains(&name) {
            name = format!("{}#{number}", field.name());
            number += 1;
        }
        names.push(name);
    }
    names
}

/// The plan of a view's query, with the columns of the view.
fn with_columns(view: &Table, logical: LogicalPlan) -> Result<LogicalPlan, SqlError> {
    let names = output_names(logical.schema());
    let mut projections = Vec::with_capacity(view.schema.columns.len());
    for column in &view.schema.columns {
        let position = names.iter().position(|name| *name == column.storage_name);
        let position =
            position.ok_or_else(|| SqlError::undefined_column(&column.storage_name, &view.name))?;
        let (qualifier, field) = logical.schema().qualified_field(position);
        let value = Expr::Column(PlanColumn::from((qualifier, field)));
        let keeps_type = ColumnType::from_arrow(field.data_type()) == Some(column.column_type);
        let value = if keeps_type { value } else { cast(value, column.column_type.arrow()) };
        projections.push(value.alias(&column.name));
    }
    Ok(LogicalPlanBuilder::from(logical).project(projections)?.build()?)
}

/// Refuses a query that reads too many tables.
pub(super) fn check_size(view: &str, logical: &LogicalPlan) -> Result<(), SqlError> {
    let mut scans = 0;
    logical.apply_with_subqueries(|node| {
        scans += usize::from(matches!(node, LogicalPlan::TableScan(_)));
        Ok(TreeNodeRecursion::Continue)
    })?;
    if scans > VIEW_SCANS_MAX {
        let message = format!("view \"{view}\" reads more than {VIEW_SCANS_MAX} tables");
        return Err(SqlError::new(STATEMENT_TOO_COMPLEX, message));
    }
    Ok(())
}

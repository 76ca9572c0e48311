//! The catalog for DataFusion: databases appear as its schemas, always in their newest state. Every session has its own,
//! with the databases and tables that its identity sees.
//!
//! The query of a view is planned where its name is looked up, in names of its own: those of its database, all of which
//! are there. What it reads is by the rights of its owner (`Through`).
//!
//! Beside the databases there are `sys` (system tables of the frontend and the nodes) and `information_schema`; a
//! door may add more (`pg_catalog`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array, UInt32Array};
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::datasource::{MemTable, ViewTable};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use parking_lot::RwLock;
use partita_proto::access::{Action, Need, Sight};
use partita_proto::catalog::{Catalog, DEFAULT_DATABASE, Database, Table};
use partita_proto::stored_view::ViewDefinition;
use partita_sql::hidden::{SUPPLIED, WITH_HIDDEN};
use partita_sql::statement::TableName;

use crate::access::viewer::Viewer;
use crate::error::{STATEMENT_TOO_COMPLEX, SqlError};
use crate::information;
use crate::privileges::sequence_object;
use crate::sequences::sequence_named;
use crate::sources::Sources;
use crate::supplied::SuppliedTable;
use crate::system;
use crate::table::{PartitionedTable, Through};
use crate::temporary::{TemporaryProvider, TemporaryTable};
use crate::view::ClusterView;
use crate::virtual_table::VirtualTable;

pub use crate::error::CATALOG;
pub use crate::information::INFORMATION;
pub use crate::system::SYSTEM;

/// Table of the default database that is computed.
const NUMBERS: &str = "numbers";
/// Maximum number of views that read each other, from the statement to a table.
const VIEW_LEVELS_MAX: usize = 16;
/// Schema of PostgreSQL's system catalog; a door registers it.
const POSTGRES: &str = "pg_catalog";

/// Refuses the name of a built-in schema, which would hide the database.
pub(crate) fn check_database_name(name: &str) -> Result<(), SqlError> {
    if [SYSTEM, INFORMATION, POSTGRES].contains(&name) {
        return Err(SqlError::new("42939", format!("the name \"{name}\" is reserved")));
    }
    Ok(())
}

/// Plans the queries of views, as the session would plan them.
#[async_trait]
pub(crate) trait ViewPlanner: Send + Sync {
    /// Plan of the query of `view`, which has the columns of the view. Names are looked up in `names`.
    async fn plan(
        &self,
        view: &Table,
        definition: &ViewDefinition,
        names: Arc<dyn CatalogProviderList>,
    ) -> Result<LogicalPlan, SqlError>;
}

/// The schemas that are the same in every session. There are no databases among them: those need a [`Viewer`].
pub(crate) struct Databases {
    view: Arc<ClusterView>,
    /// State for the expressions of tables: functions, but no catalog.
    state: Arc<SessionState>,
    fixed: RwLock<BTreeMap<String, Arc<dyn SchemaProvider>>>,
}

impl fmt::Debug for Databases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Databases")
    }
}

impl Databases {
    pub(crate) fn new(sources: Sources, state: Arc<SessionState>) -> Self {
        let mut fixed: BTreeMap<String, Arc<dyn SchemaProvider>> = BTreeMap::new();
        fixed.insert(SYSTEM.to_owned(), Arc::new(Fixed(system::tables(&sources))));
        fixed.insert(INFORMATION.to_owned(), Arc::new(Fixed(information::tables(&sources))));
        Self { view: sources.view, state, fixed: RwLock::new(fixed) }
    }

    /// The list of catalogs of a session: one, with these schemas and the databases that the viewer sees.
    pub(crate) fn of_viewer(
        self: &Arc<Self>,
        viewer: &Arc<Viewer>,
        planner: Arc<dyn ViewPlanner>,
    ) -> Arc<dyn CatalogProviderList> {
        let (databases, viewer) = (Arc::clone(self), Arc::clone(viewer));
        Scope { databases, viewer, planner, through: None }.catalogs()
    }
}

impl CatalogProvider for Databases {
    fn schema_names(&self) -> Vec<String> {
        self.fixed.read().keys().cloned().collect()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        self.fixed.read().get(name).map(Arc::clone)
    }

    fn register_schema(
        &self,
        name: &str,
        schema: Arc<dyn SchemaProvider>,
    ) -> Result<Option<Arc<dyn SchemaProvider>>> {
        Ok(self.fixed.write().insert(name.to_owned(), schema))
    }
}

/// DataFusion's list of catalogs, with the one in which the names of a session resolve.
#[derive(Debug)]
struct SessionCatalogs(Arc<dyn CatalogProvider>);

impl CatalogProviderList for SessionCatalogs {
    /// Refused: the catalog is that of the identity, and the only one.
    fn register_catalog(
        &self,
        _: String,
        _: Arc<dyn CatalogProvider>,
    ) -> Option<Arc<dyn CatalogProvider>> {
        None
    }

    fn catalog_names(&self) -> Vec<String> {
        vec![CATALOG.to_owned()]
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        (name == CATALOG).then(|| Arc::clone(&self.0))
    }
}

/// Where names are looked up: in what a session sees, or in what the query of a view may name.
#[derive(Clone)]
struct Scope {
    databases: Arc<Databases>,
    viewer: Arc<Viewer>,
    planner: Arc<dyn ViewPlanner>,
    /// The view, if the names are those of its query.
    through: Option<Through>,
}

impl Scope {
    fn catalogs(self) -> Arc<dyn CatalogProviderList> {
        Arc::new(SessionCatalogs(Arc::new(VisibleDatabases(self))))
    }

    /// The databases and tables that names may mean. A view names what its owner could name when the query was made;
    /// what the owner may not read now is refused with the name.
    fn catalog(&self) -> Arc<Catalog> {
        match self.through {
            Some(_) => self.databases.view.catalog(),
            None => self.viewer.catalog(),
        }
    }

    /// A temporary table of the session. Views do not read them.
    fn temporary(&self, database: &str, name: &str) -> Option<Arc<TemporaryTable>> {
        match self.through {
            Some(_) => None,
            None => self.viewer.temporary().get(database, name),
        }
    }

    /// The part of a table that may be read.
    fn sight(&self, database: &Database, table: &Table) -> Sight {
        match self.through {
            Some(through) => self.viewer.sight_through(through.owner, database, table),
            None => self.viewer.sight(database, table),
        }
    }

    /// A view, by the plan of its query.
    ///
    /// # Errors
    /// 42501 for a view that may not be read, 54001 for one that is too deep, and errors of its query.
    async fn view(
        &self,
        view: &Arc<Table>,
        definition: &ViewDefinition,
    ) -> Result<ViewTable, SqlError> {
        let needs = [Need::new(Action::Select, self.viewer.object(view)?)];
        match self.through {
            Some(through) => drop(self.viewer.check_through(through.owner, &needs)?),
            None => drop(self.viewer.check(&needs)?),
        }
        let depth = self.through.map_or(0, |through| through.depth);
        if depth >= VIEW_LEVELS_MAX {
            let detail = format!("At most {VIEW_LEVELS_MAX} views read each other.");
            let message = format!("view \"{}\" is nested too deeply", view.name);
            return Err(SqlError::new(STATEMENT_TOO_COMPLEX, message).with_detail(detail));
        }
        let through = Through {
            owner: view.owner,
            view: self.through.map_or(view.id, |through| through.view),
            depth: depth + 1,
        };
        let names = Self { through: Some(through), ..self.clone() }.catalogs();
        let plan = self.planner.plan(view, definition, names).await?;
        Ok(ViewTable::new(plan, Some(definition.query.clone())))
    }
}

/// The schemas of one session, or of the query of a view.
struct VisibleDatabases(Scope);

impl fmt::Debug for VisibleDatabases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("VisibleDatabases").field(&self.0.viewer).finish()
    }
}

impl CatalogProvider for VisibleDatabases {
    fn schema_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.0.catalog().databases.keys().cloned().collect();
        names.extend(self.0.databases.schema_names());
        names
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        if let Some(fixed) = self.0.databases.schema(name) {
            return Some(fixed);
        }
        self.0.catalog().databases.contains_key(name).then(|| {
            let (database, scope) = (name.to_owned(), self.0.clone());
            Arc::new(Tables { database, scope }) as Arc<dyn SchemaProvider>
        })
    }
}

/// The visible tables of one database.
struct Tables {
    database: String,
    scope: Scope,
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tables({})", self.database)
    }
}

impl Tables {
    /// A sequence as PostgreSQL shows it: a table of one row. Numbers that frontends hold count as given out. Views read
    /// no sequences.
    fn sequence(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let viewer = self.scope.viewer.as_ref();
        let found = sequence_named(viewer, &self.database, &TableName::bare(name));
        let Some(sequence) = found.ok().filter(|_| self.scope.through.is_none()) else {
            return Ok(None);
        };
        let object = sequence_object(&viewer.catalog(), &sequence)?;
        viewer.check(&[Need::new(Action::Select, object)]).map(drop)?;
        let last_value: ArrayRef = Arc::new(Int64Array::from(vec![sequence.counter.last_value]));
        let log_count: ArrayRef = Arc::new(Int64Array::from(vec![0]));
        let is_called: ArrayRef = Arc::new(BooleanArray::from(vec![sequence.counter.is_called]));
        let row = RecordBatch::try_from_iter([
            ("last_value", last_value),
            ("log_cnt", log_count),
            ("is_called", is_called),
        ])?;
        Ok(Some(Arc::new(MemTable::try_new(row.schema(), vec![vec![row]])?)))
    }
}

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        let catalog = self.scope.catalog();
        catalog.tables.get(&self.database).map(|t| t.keys().cloned().collect()).unwrap_or_default()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let catalog = self.scope.catalog();
        if let Some(name) = name.strip_suffix(SUPPLIED) {
            let columns = match self.scope.temporary(&self.database, name) {
                Some(temporary) => Some(temporary.table().schema.shown_arrow()),
                None => catalog.table(&self.database, name).map(|t| t.schema.shown_arrow()),
            };
            return Ok(columns
                .map(|columns| Arc::new(SuppliedTable::new(columns)) as Arc<dyn TableProvider>));
        }
        let (name, with_hidden) = match name.strip_suffix(WITH_HIDDEN) {
            Some(name) => (name, true),
            None => (name, false),
        };
        if let Some(temporary) = self.scope.temporary(&self.database, name) {
            return Ok(Some(Arc::new(TemporaryProvider::new(temporary, with_hidden))));
        }
        let database = catalog.databases.get(&self.database);
        let Some((database, table)) = database.zip(catalog.table(&self.database, name)) else {
            if let Some(sequence) = self.sequence(name)? {
                return Ok(Some(sequence));
            }
            let is_numbers = self.database == DEFAULT_DATABASE && name == NUMBERS;
            return if is_numbers { numbers().map(Some) } else { Ok(None) };
        };
        if let Some(definition) = &table.schema.view {
            let view = Box::pin(self.scope.view(table, definition)).await?;
            return Ok(Some(Arc::new(view)));
        }
        // SELECT is checked when the plan is complete; here only the rows are restricted.
        let rows = match self.scope.sight(database, table) {
            Sight::Rows(predicate) => Some(predicate),
            Sight::All | Sight::Names | Sight::None => None,
        };
        let (view, state) = (&self.scope.databases.view, &self.scope.databases.state);
        let stored = PartitionedTable::of(&catalog, table, view, state, rows);
        let stored = stored.read_through(self.scope.through);
        Ok(Some(Arc::new(if with_hidden { stored.with_hidden() } else { stored })))
    }

    fn table_exist(&self, name: &str) -> bool {
        let name = name.strip_suffix(WITH_HIDDEN).unwrap_or(name);
        let name = name.strip_suffix(SUPPLIED).unwrap_or(name);
        self.scope.catalog().table(&self.database, name).is_some()
            || self.scope.temporary(&self.database, name).is_some()
    }
}

/// The table `numbers` of GreptimeDB: 0 to 99. A table of that name hides it.
fn numbers() -> Result<Arc<dyn TableProvider>> {
    let numbers: ArrayRef = Arc::new(UInt32Array::from_iter_values(0..100));
    let rows = RecordBatch::try_from_iter([("number", numbers)])?;
    Ok(Arc::new(MemTable::try_new(rows.schema(), vec![vec![rows]])?))
}

/// Built-in virtual tables.
struct Fixed(BTreeMap<&'static str, Arc<VirtualTable>>);

impl fmt::Debug for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

#[async_trait]
impl SchemaProvider for Fixed {
    fn table_names(&self) -> Vec<String> {
        self.0.keys().map(|name| (*name).to_owned()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        Ok(self.0.get(name).map(|table| Arc::clone(table) as Arc<dyn TableProvider>))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

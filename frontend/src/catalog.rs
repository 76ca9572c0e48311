//! The catalog for DataFusion: databases appear as its schemas, always in their newest state. Every session has its own,
//! with the databases and tables that its identity sees.
//!
//! Beside the databases there are `sys` (system tables of the frontend and the nodes) and `information_schema`; a
//! door may add more (`pg_catalog`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use parking_lot::RwLock;
use partita_proto::access::Sight;

use crate::access::viewer::Viewer;
use crate::error::SqlError;
use crate::information;
use crate::sources::Sources;
use crate::system;
use crate::table::PartitionedTable;
use crate::view::ClusterView;
use crate::virtual_table::VirtualTable;

pub use crate::error::CATALOG;
pub use crate::information::INFORMATION;
pub use crate::system::SYSTEM;

/// Schema of PostgreSQL's system catalog; a door registers it.
const POSTGRES: &str = "pg_catalog";

/// Refuses the name of a built-in schema, which would hide the database.
pub(crate) fn check_database_name(name: &str) -> Result<(), SqlError> {
    if [SYSTEM, INFORMATION, POSTGRES].contains(&name) {
        return Err(SqlError::new("42939", format!("the name \"{name}\" is reserved")));
    }
    Ok(())
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
    ) -> Arc<dyn CatalogProviderList> {
        let (databases, viewer) = (Arc::clone(self), Arc::clone(viewer));
        Arc::new(SessionCatalogs(Arc::new(VisibleDatabases { databases, viewer })))
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

/// The schemas of one session.
struct VisibleDatabases {
    databases: Arc<Databases>,
    viewer: Arc<Viewer>,
}

impl fmt::Debug for VisibleDatabases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("VisibleDatabases").field(&self.viewer).finish()
    }
}

impl CatalogProvider for VisibleDatabases {
    fn schema_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.viewer.catalog().databases.keys().cloned().collect();
        names.extend(self.databases.schema_names());
        names
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        if let Some(fixed) = self.databases.schema(name) {
            return Some(fixed);
        }
        self.viewer.catalog().databases.contains_key(name).then(|| {
            Arc::new(Tables {
                database: name.to_owned(),
                databases: Arc::clone(&self.databases),
                viewer: Arc::clone(&self.viewer),
            }) as Arc<dyn SchemaProvider>
        })
    }
}

/// The visible tables of one database.
struct Tables {
    database: String,
    databases: Arc<Databases>,
    viewer: Arc<Viewer>,
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tables({})", self.database)
    }
}

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        let catalog = self.viewer.catalog();
        catalog.tables.get(&self.database).map(|t| t.keys().cloned().collect()).unwrap_or_default()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let catalog = self.viewer.catalog();
        let database = catalog.databases.get(&self.database);
        let Some((database, table)) = database.zip(catalog.table(&self.database, name)) else {
            return Ok(None);
        };
        // SELECT is checked when the plan is complete; here only the rows are restricted.
        let rows = match self.viewer.sight(database, table) {
            Sight::Rows(predicate) => Some(predicate),
            Sight::All | Sight::Names | Sight::None => None,
        };
        let (view, state) = (&self.databases.view, &self.databases.state);
        Ok(Some(Arc::new(PartitionedTable::of(&catalog, table, view, state, rows))))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.viewer.catalog().table(&self.database, name).is_some()
    }
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

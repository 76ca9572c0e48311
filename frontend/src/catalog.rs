//! The catalog for DataFusion: databases appear as its schemas, always in their newest state.
//!
//! Beside the databases there are `sys` (system tables of the frontend and the nodes) and `information_schema`; a
//! door may add more (`pg_catalog`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use parking_lot::RwLock;

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

/// All databases.
pub(crate) struct Databases {
    sources: Sources,
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
        Self { sources, state, fixed: RwLock::new(fixed) }
    }
}

impl CatalogProvider for Databases {
    fn schema_names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.sources.view.catalog().databases.keys().cloned().collect();
        names.extend(self.fixed.read().keys().cloned());
        names
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        if let Some(fixed) = self.fixed.read().get(name) {
            return Some(Arc::clone(fixed));
        }
        self.sources.view.catalog().databases.contains_key(name).then(|| {
            Arc::new(Tables {
                database: name.to_owned(),
                view: Arc::clone(&self.sources.view),
                state: Arc::clone(&self.state),
            }) as Arc<dyn SchemaProvider>
        })
    }

    fn register_schema(
        &self,
        name: &str,
        schema: Arc<dyn SchemaProvider>,
    ) -> Result<Option<Arc<dyn SchemaProvider>>> {
        Ok(self.fixed.write().insert(name.to_owned(), schema))
    }
}

/// The tables of one database.
struct Tables {
    database: String,
    view: Arc<ClusterView>,
    state: Arc<SessionState>,
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tables({})", self.database)
    }
}

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        let catalog = self.view.catalog();
        catalog.tables.get(&self.database).map(|t| t.keys().cloned().collect()).unwrap_or_default()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let catalog = self.view.catalog();
        Ok(catalog.table(&self.database, name).map(|table| {
            Arc::new(PartitionedTable::of(&catalog, table, &self.view, &self.state))
                as Arc<dyn TableProvider>
        }))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.view.catalog().table(&self.database, name).is_some()
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

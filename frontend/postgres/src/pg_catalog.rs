//! The tables and functions by which psql, drivers and ORMs inspect the database.
//!
//! ```text
//!   a query that mentions them ── rewrite.rs ── DataFusion ── Catalog ─┬─ tables.rs, roles.rs, statistics.rs    rows of ours
//!                                                  │                   └─ the library's fixed tables
//!                                                  └─ functions.rs, privileges.rs, sizes.rs    (types, operators)
//! ```
//!
//! Rows and functions show what the session's viewer may see.
//!
//! A query that mentions none of them is not rewritten.

mod arguments;
mod cells;
mod dependencies;
mod dump;
mod functions;
mod objects;
mod privileges;
mod reg_casts;
mod rewrite;
mod roles;
mod sizes;
mod statistics;
mod syntax;
mod tables;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::DataType as SqlType;
use datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;
use datafusion_pg_catalog::pg_catalog::setup_pg_catalog;
use partita_frontend::Frontend;
use partita_frontend::catalog::{CATALOG, INFORMATION, SYSTEM};
use partita_frontend::functions::SessionFunctions;
use pgwire::api::Type;

use self::cells::ComputedTable;
use self::objects::{Fixed, Objects};
use self::sizes::Sizes;

pub(crate) use self::rewrite::parse;
use crate::types::type_name;

/// SQL names of types.
pub(crate) fn type_names(types: &[Type]) -> Vec<String> {
    types.iter().map(|data_type| type_name(data_type, -1)).collect()
}

/// Name of the schema.
const SCHEMA: &str = "pg_catalog";

/// Adds `pg_catalog` to every session of a frontend.
pub(crate) async fn install(frontend: &Arc<Frontend>) -> Result<()> {
    let context = frontend.context();
    let own_types = SessionStateBuilder::new_from_existing(context.state()).type_planner().take();
    setup_pg_catalog(context, CATALOG, EmptyContextProvider).map_err(|error| *error)?;
    // The library has replaced our planner of types.
    let mut state = SessionStateBuilder::new_from_existing(context.state());
    let names: Arc<dyn TypePlanner> = Arc::new(NameTypes);
    let planners = std::iter::once(names).chain(own_types).chain(state.type_planner().take());
    let planners = planners.collect();
    let state = state.with_type_planner(Arc::new(Types(planners))).build();
    *context.state_ref().write() = state;
    // The library registers functions of its own, some of which only share the name with PostgreSQL's.
    for function in partita_frontend::shared_functions() {
        context.register_udf(function);
    }
    let catalog = context
        .catalog(CATALOG)
        .ok_or_else(|| DataFusionError::Internal(format!("there is no catalog {CATALOG}")))?;
    let inherited = catalog
        .schema(SCHEMA)
        .ok_or_else(|| DataFusionError::Internal(format!("there is no schema {SCHEMA}")))?;
    let schemas = vec![SCHEMA, INFORMATION, SYSTEM];
    let fixed = fixed(catalog.as_ref(), &schemas).await?;
    let objects = Arc::new(Objects::new(frontend, fixed, schemas));
    for function in functions::all().into_iter().chain(sizes::all()) {
        context.register_udf(function);
    }
    // Functions that show objects are made for each session, and see what its viewer sees.
    let (of_sessions, sizes) = (Arc::clone(&objects), Sizes::new(&objects));
    let functions = SessionFunctions::new(move |viewer| {
        let mut functions = functions::of_viewer(&of_sessions, viewer);
        functions.extend(sizes::of_viewer(&sizes, viewer));
        functions
    });
    let state = context.state();
    let config = state.config().clone().with_extension(Arc::new(functions));
    let state = SessionStateBuilder::new_from_existing(state).with_config(config).build();
    *context.state_ref().write() = state;
    let tables = tables::all(&objects);
    catalog.register_schema(SCHEMA, Arc::new(PgCatalog { tables, inherited }))?;
    Ok(())
}

/// Planners of types; the first one that knows a type decides.
#[derive(Debug)]
struct Types(Vec<Arc<dyn TypePlanner>>);

impl TypePlanner for Types {
    fn plan_type_field(&self, sql_type: &SqlType) -> Result<Option<FieldRef>> {
        for planner in &self.0 {
            if let Some(field) = planner.plan_type_field(sql_type)? {
                return Ok(Some(field));
            }
        }
        Ok(None)
    }
}

/// PostgreSQL's types of names in its catalog, `name` and `"char"`, which are texts here.
#[derive(Debug)]
struct NameTypes;

impl TypePlanner for NameTypes {
    fn plan_type_field(&self, sql_type: &SqlType) -> Result<Option<FieldRef>> {
        let name = sql_type.to_string();
        let is_name = name.eq_ignore_ascii_case("name") || name == "\"char\"";
        Ok(is_name.then(|| Arc::new(Field::new("", DataType::Utf8, true))))
    }
}

/// The tables of schemas whose tables never change.
async fn fixed(catalog: &dyn CatalogProvider, schemas: &[&'static str]) -> Result<Vec<Fixed>> {
    let mut tables = Vec::new();
    for name in schemas.iter().copied() {
        let Some(schema) = catalog.schema(name) else { continue };
        for table in schema.table_names() {
            let Some(provider) = schema.table(&table).await? else { continue };
            let columns = provider
                .schema()
                .fields()
                .iter()
                .map(|field| (field.name().clone(), field.data_type().clone()))
                .collect();
            tables.push(Fixed { oid: 0, schema: name, name: table, columns });
        }
    }
    Ok(tables)
}

/// `pg_catalog`: our tables, which hide the library's of the same name.
#[derive(Debug)]
struct PgCatalog {
    tables: BTreeMap<&'static str, Arc<ComputedTable>>,
    inherited: Arc<dyn SchemaProvider>,
}

#[async_trait]
impl SchemaProvider for PgCatalog {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.inherited.table_names();
        names.extend(self.tables.keys().map(|name| (*name).to_owned()));
        names.sort_unstable();
        names.dedup();
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match self.tables.get(name) {
            Some(table) => Ok(Some(Arc::clone(table) as Arc<dyn TableProvider>)),
            None => self.inherited.table(name).await,
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.tables.contains_key(name) || self.inherited.table_exist(name)
    }
}

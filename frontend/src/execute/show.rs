//! SHOW and DESCRIBE: the objects of the catalog as small tables of text.

use std::sync::Arc;

use arrow::array::{BooleanArray, StringArray};
use arrow::compute::kernels::comparison::like;
use partita_proto::access::Permit;
use partita_proto::catalog::Table;
use partita_proto::load::{LoadReport, LoadRequest};
use partita_proto::schema::{Column, Semantic};
use partita_proto::stored_view::ViewDefinition;
use partita_sql::index_statement::index_options_sql;
use partita_sql::show::{
    create_copy_sql, create_table_sql, create_table_sql_unplaced, create_view_sql,
};
use partita_sql::statement::{Show, TableName};

use crate::access::viewer::check_all_rows;
use crate::bound_text::bound_text;
use crate::catalog::{INFORMATION, SYSTEM};
use crate::copies::refused::check_stored;
use crate::error::SqlError;
use crate::hotspot::explain_hotspot;
use crate::information::{has_key, key_name, semantic};
use crate::output::Output;
use crate::privileges::sees_all;
use crate::session::Session;
use crate::settings::{DescribedSetting, described_settings};

impl Session {
    pub(super) fn show(&self, show: &Show, permit: &Permit) -> Result<Output, SqlError> {
        match show {
            Show::Databases { like } => {
                // The built-in schemas are listed like databases.
                let catalog = self.catalog();
                let mut names: Vec<String> = catalog.databases.keys().cloned().collect();
                names.extend([INFORMATION, SYSTEM].map(str::to_owned));
                names.sort_unstable();
                one_column("Database", matching(names, like.as_deref())?)
            }
            Show::Tables { database, like, full } => {
                self.show_tables(database.as_deref(), like.as_deref(), *full)
            }
            Show::CreateTable(name) => {
                let table = self.table(name)?;
                if let Some(view) = &table.schema.view {
                    return shown_view(&table, view);
                }
                // Boundaries are keys of rows.
                let is_placed = sees_all(self.viewer(), table.id);
                let catalog = self.frontend().catalog();
                let source = table.copy.as_ref().map(|copy| catalog.table_by_id(copy.source));
                let sql = match source {
                    Some(source) => {
                        let source =
                            source.ok_or_else(|| SqlError::undefined_table(&table.name))?;
                        create_copy_sql(&table, &source.name, is_placed)
                    }
                    None if is_placed => create_table_sql(&table),
                    None => create_table_sql_unplaced(&table),
                };
                let row = vec![Some(table.name.clone()), Some(sql)];
                Output::text(&["Table", "Create Table"], &[row])
            }
            Show::CreateView(name) => {
                let table = self.table(name)?;
                let view = table.schema.view.as_ref().ok_or_else(|| {
                    SqlError::new("42809", format!("\"{}\" is not a view", table.name))
                })?;
                shown_view(&table, view)
            }
            Show::Columns(name) => {
                let table = self.table(name)?;
                let row = |column: &Column| {
                    vec![
                        Some(column.name.clone()),
                        Some(column.type_sql()),
                        Some(yes_or_no(column.nullable)),
                        Some(key_word(&table, column)),
                        shown_default(column),
                    ]
                };
                let rows: Vec<_> = table.schema.shown().map(row).collect();
                Output::text(&["Field", "Type", "Null", "Key", "Default"], &rows)
            }
            Show::Indexes(name) => {
                let table = self.table(name)?;
                Output::text(&INDEX_COLUMNS, &index_rows(&table))
            }
            Show::Partitions(name) => self.show_partitions(name, permit),
            Show::TagKeys(table) => {
                self.show_keys(table.as_ref(), "tagKey", |column| column.semantic == Semantic::Tag)
            }
            Show::FieldKeys(table) => self
                .show_keys(table.as_ref(), "fieldKey", |column| column.semantic == Semantic::Field),
            Show::Measurements { database } => {
                one_column("name", self.table_names(database.as_deref())?)
            }
            Show::Variable(name) => {
                let value = self.show_setting(name)?;
                Output::text(&[name], &[vec![Some(value)]])
            }
            Show::All => {
                let settings = self.all_settings();
                let described = described_settings();
                let description = |name: &str| {
                    let is_named =
                        |setting: &&DescribedSetting| setting.name.eq_ignore_ascii_case(name);
                    let setting = described.iter().find(is_named);
                    setting.map(|setting| setting.description.to_owned())
                };
                let row = |(name, value): (String, String)| {
                    let description = description(&name);
                    vec![Some(name), Some(value), description]
                };
                let rows: Vec<_> = settings.into_iter().map(row).collect();
                Output::text(&["name", "setting", "description"], &rows)
            }
        }
    }

    pub(super) async fn explain_hotspot(
        &self,
        name: &TableName,
        permit: &Permit,
    ) -> Result<Output, SqlError> {
        let table = self.table(name)?;
        check_stored(&table)?;
        check_all_rows(permit, &table)?;
        let request = LoadRequest { table: Some(table.id), samples: true, history_since: None };
        let mut report = self.frontend().loads().ask(request).await?;
        // The work of others.
        if !self.viewer().monitors() {
            let mut reduced = LoadReport::clone(&report);
            reduced.hot_causes.clear();
            report = Arc::new(reduced);
        }
        let shapes = self.frontend().statements().read_shapes(&table);
        Ok(Output::batch(explain_hotspot(&table, &report, &shapes)?))
    }

    fn table_names(&self, database: Option<&str>) -> Result<Vec<String>, SqlError> {
        let of_session = self.database();
        let database = database.unwrap_or(&of_session);
        let catalog = self.catalog();
        if !catalog.databases.contains_key(database) {
            let fixed = self.frontend().context().catalog(crate::catalog::CATALOG);
            let schema = fixed.and_then(|catalog| catalog.schema(database));
            return match schema {
                Some(schema) => Ok(schema.table_names()),
                None => Err(SqlError::undefined_database(database)),
            };
        }
        Ok(catalog.tables.get(database).map(|t| t.keys().cloned().collect()).unwrap_or_default())
    }

    fn show_tables(
        &self,
        database: Option<&str>,
        pattern: Option<&str>,
        full: bool,
    ) -> Result<Output, SqlError> {
        let names = matching(self.table_names(database)?, pattern)?;
        if !full {
            return one_column("Tables", names);
        }
        let catalog = self.catalog();
        let of_session = self.database();
        let tables = catalog.tables.get(database.unwrap_or(&of_session));
        let kind_of = |name: &str| {
            let view = tables.and_then(|tables| tables.get(name)?.schema.view.as_ref());
            (if view.is_some() { "VIEW" } else { "BASE TABLE" }).to_owned()
        };
        let rows: Vec<_> = names
            .into_iter()
            .map(|name| {
                let kind = kind_of(&name);
                vec![Some(name), Some(kind)]
            })
            .collect();
        Output::text(&["Tables", "Table_type"], &rows)
    }

    fn show_partitions(&self, name: &TableName, permit: &Permit) -> Result<Output, SqlError> {
        let table = self.table(name)?;
        check_all_rows(permit, &table)?;
        let row = |route: &partita_proto::route::Route| {
            let leader = self.frontend().view().leaders().first(route);
            vec![
                Some(route.partition.to_string()),
                leader.map(|node| node.to_string()),
                Some(route.epoch.to_string()),
                bound_text(&table, &route.range.start),
                bound_text(&table, &route.range.end),
            ]
        };
        let rows: Vec<_> = table.partitions.routes().iter().map(row).collect();
        Output::text(&["partition", "node", "epoch", "start_key", "end_key"], &rows)
    }

    fn show_keys(
        &self,
        table: Option<&TableName>,
        heading: &str,
        is_shown: impl Fn(&Column) -> bool,
    ) -> Result<Output, SqlError> {
        let tables: Vec<Arc<Table>> = match table {
            Some(name) => vec![self.table(name)?],
            None => {
                let catalog = self.catalog();
                let tables = catalog.tables.get(&self.database());
                tables.map(|tables| tables.values().map(Arc::clone).collect()).unwrap_or_default()
            }
        };
        let mut rows = Vec::new();
        for table in tables {
            for column in table.schema.shown().filter(|column| is_shown(column)) {
                rows.push(vec![
                    Some(table.name.clone()),
                    Some(column.name.clone()),
                    Some(column.type_sql()),
                ]);
            }
        }
        Output::text(&["measurement", heading, "type"], &rows)
    }

    pub(super) fn describe(&self, name: &TableName) -> Result<Output, SqlError> {
        let table = self.table(name)?;
        let row = |column: &Column| {
            vec![
                Some(column.name.clone()),
                Some(column.type_sql()),
                Some(key_word(&table, column)),
                Some(yes_or_no(column.nullable)),
                shown_default(column),
                Some(semantic(column).to_owned()),
            ]
        };
        let rows: Vec<_> = table.schema.shown().map(row).collect();
        Output::text(&["Column", "Type", "Key", "Null", "Default", "Semantic Type"], &rows)
    }
}

/// The result of SHOW CREATE VIEW.
fn shown_view(table: &Table, view: &ViewDefinition) -> Result<Output, SqlError> {
    let row = vec![Some(table.name.clone()), Some(create_view_sql(table, &view.query))];
    Output::text(&["View", "Create View"], &[row])
}

fn one_column(heading: &str, names: Vec<String>) -> Result<Output, SqlError> {
    let rows: Vec<_> = names.into_iter().map(|name| vec![Some(name)]).collect();
    Output::text(&[heading], &rows)
}

/// Columns of SHOW INDEX, with MySQL's names.
const INDEX_COLUMNS: [&str; 7] =
    ["Table", "Non_unique", "Key_name", "Seq_in_index", "Column_name", "Index_type", "Options"];

/// The columns of a table's key, if it is unique, then the indexes in the order of their columns.
fn index_rows(table: &Table) -> Vec<Vec<Option<String>>> {
    let row = |is_unique: bool, name: &str, position: usize, column: &Column, kind: &str| {
        vec![
            Some(table.name.clone()),
            Some((if is_unique { "0" } else { "1" }).to_owned()),
            Some(name.to_owned()),
            Some(position.to_string()),
            Some(column.name.clone()),
            Some(kind.to_owned()),
        ]
    };
    let mut rows = Vec::new();
    let key_columns = table.schema.key_columns().filter(|_| has_key(table));
    for (position, column) in (1..).zip(key_columns) {
        let mut cells = row(true, &key_name(table), position, column, "key");
        cells.push(None);
        rows.push(cells);
    }
    for column in &table.schema.columns {
        for index in &column.indexes {
            let kind = index.options.kind().method();
            let mut cells = row(false, &index.name, 1, column, kind);
            let options = index_options_sql(index, &index.name);
            cells.push(Some(options.trim_start().to_owned()).filter(|text| !text.is_empty()));
            rows.push(cells);
        }
    }
    rows
}

fn yes_or_no(yes: bool) -> String {
    (if yes { "YES" } else { "NO" }).to_owned()
}

fn key_word(table: &Table, column: &Column) -> String {
    (if table.schema.is_key(column.id) { "PRI" } else { "" }).to_owned()
}

fn shown_default(column: &Column) -> Option<String> {
    match &column.generated {
        Some(expression) => Some(format!("GENERATED ALWAYS AS ({expression}) STORED")),
        None => column.default.clone(),
    }
}

fn matching(names: Vec<String>, pattern: Option<&str>) -> Result<Vec<String>, SqlError> {
    let Some(pattern) = pattern else { return Ok(names) };
    let texts = StringArray::from(names.iter().map(String::as_str).collect::<Vec<_>>());
    let matches: BooleanArray = like(&texts, &StringArray::new_scalar(pattern))?;
    let matched = names.into_iter().zip(&matches).filter(|(_, matches)| *matches == Some(true));
    Ok(matched.map(|(name, _)| name).collect())
}

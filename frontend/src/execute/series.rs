//! SHOW SERIES CARDINALITY: as a query of `sys.series`, or with EXACT as one of the tables themselves.
//!
//! Both are checked and run like any other query, so that they show what the client may read: figures from sketches to
//! those who see all rows of a table, exact ones of the rows that the client sees.

use std::sync::Arc;

use partita_proto::catalog::Table;
use partita_proto::schema::{Column, Semantic, TableSchema};
use partita_sql::identifier::{quote, quote_list, quote_string};
use partita_sql::parser;
use partita_sql::statement::{Query, SeriesCardinality, Statement};

use super::executed::Executed;
use crate::error::SqlError;
use crate::session::Session;

/// A query with the columns of an exact answer and no rows.
const NOTHING: &str = "SELECT '' AS measurement, 0 AS series WHERE false";

impl Session {
    pub(super) async fn series_cardinality(
        &self,
        statement: &SeriesCardinality,
    ) -> Result<Executed, SqlError> {
        self.query(&self.series_query(statement)?).await
    }

    /// The query whose rows are shown.
    pub(super) fn series_query(&self, statement: &SeriesCardinality) -> Result<Query, SqlError> {
        let text = match &statement.table {
            Some(name) => {
                let table = self.table(name)?;
                match statement.exact {
                    true => exact_sql(&table),
                    false => sketch_sql(&table.database, Some(&table.name)),
                }
            }
            None => {
                let database = statement.database.clone().unwrap_or_else(|| self.database());
                let catalog = self.catalog();
                if !catalog.databases.contains_key(&database) {
                    return Err(SqlError::undefined_database(&database));
                }
                match statement.exact {
                    true => {
                        let tables = catalog.tables.get(&database);
                        let tables = tables.into_iter().flat_map(|tables| tables.values());
                        all_exact_sql(tables)
                    }
                    false => sketch_sql(&database, None),
                }
            }
        };
        match parser::parse(&text)?.pop() {
            Some(Statement::Query(query)) => Ok(query),
            _ => Err(SqlError::internal("the query of SHOW SERIES CARDINALITY is no query")),
        }
    }
}

/// The query of the figures from sketches.
fn sketch_sql(database: &str, table: Option<&str>) -> String {
    let of_table = table.map(|name| format!(" AND \"table\" = {}", quote_string(name)));
    format!(
        "SELECT \"table\" AS measurement, \"series\", \"tag_sets\", \"estimate\", \
         \"reduced_estimate\", \"dependent_tags\", \"exact\", \"growth_per_hour\" \
         FROM \"sys\".\"series\" WHERE \"database\" = {}{} ORDER BY 1",
        quote_string(database),
        of_table.unwrap_or_default()
    )
}

fn all_exact_sql<'a>(tables: impl Iterator<Item = &'a Arc<Table>>) -> String {
    let timed = tables.filter(|table| table.schema.time_index().is_some());
    let parts: Vec<String> = timed.map(|table| exact_sql(table)).collect();
    if parts.is_empty() { NOTHING.to_owned() } else { parts.join(" UNION ALL ") }
}

/// The query that counts the series of a table by its rows: for each tag set the fields with a value. No rows for a table
/// without a time index.
fn exact_sql(table: &Table) -> String {
    let schema: &TableSchema = &table.schema;
    let source = format!("{}.{}", quote(&table.database), quote(&table.name));
    let measurement = quote_string(&table.name);
    if schema.time_index().is_none() {
        return format!(
            "SELECT {measurement} AS measurement, 0 AS series FROM {source} WHERE false"
        );
    }
    let has_value =
        |column: &Column| format!("CASE WHEN count({}) > 0 THEN 1 ELSE 0 END", quote(&column.name));
    let fields = schema.columns.iter().filter(|column| column.semantic == Semantic::Field);
    let fields: Vec<String> = fields.map(has_value).collect();
    let tags = schema.key_columns().filter(|column| column.semantic != Semantic::TimeIndex);
    let tags: Vec<&str> = tags.map(|column| column.name.as_str()).collect();
    let number = if fields.is_empty() { "0 * count(*)".to_owned() } else { fields.join(" + ") };
    let groups = match tags.is_empty() {
        true => String::new(),
        false => format!(" GROUP BY {}", quote_list(tags)),
    };
    format!(
        "SELECT {measurement} AS measurement, coalesce(sum(n), 0) AS series \
         FROM (SELECT {number} AS n FROM {source}{groups}) AS tag_sets"
    )
}

//! SHOW CREATE TABLE: the statement that creates a table, a materialized copy or a view like a given one.
//!
//! Invariant: the statement parses, and creates a table with the same columns, key, options, placement and partition
//! boundaries (column ids aside, which count from zero again). Boundaries are printed where they differ from those of
//! the partition clause alone, so that the splits of a table are visible.

use std::fmt::Write as _;

use partita_proto::catalog::Table;
use partita_proto::index::default_name;
use partita_proto::placement::Placement;
use partita_proto::range::Bound;
use partita_proto::route::{hash_cuts, rule_cuts};
use partita_proto::schema::{Column, ColumnType, MergeMode, Semantic, TableSchema};
use partita_proto::wide::{ROW_BYTES_MAX, ROW_BYTES_WARN, Wide, columns};

use super::bound_words::bound_sql;
use super::families::families_sql;
use super::identifier::{quote, quote_list, quote_string};
use super::index_statement::index_options_sql;
use super::partitioning;
use super::quantity::{format_duration, format_size};

/// The CREATE TABLE statement for a table.
pub fn create_table_sql(table: &Table) -> String {
    written(table, true)
}

/// The CREATE TABLE statement for a table without its placement and partition boundaries, which hold keys of rows.
pub fn create_table_sql_unplaced(table: &Table) -> String {
    written(table, false)
}

/// The CREATE MATERIALIZED COPY statement for a copy of the table `source`; without its placement and partition boundaries
/// unless `is_placed`.
pub fn create_copy_sql(copy: &Table, source: &str, is_placed: bool) -> String {
    let key: Vec<_> = copy.schema.key_columns().collect();
    let (name, source) = (quote(&copy.name), quote(source));
    let mut sql =
        format!("CREATE MATERIALIZED COPY {name} OF {source}\nPRIMARY KEY ({})", names(&key));
    if is_placed {
        write_division(&mut sql, copy);
    }
    sql
}

/// The CREATE VIEW statement for a view; `query` is its query.
pub fn create_view_sql(view: &Table, query: &str) -> String {
    let columns = quote_list(view.schema.columns.iter().map(|column| column.name.as_str()));
    format!("CREATE VIEW {} ({columns}) AS\n{query}", quote(&view.name))
}

fn write_division(sql: &mut String, table: &Table) {
    let cuts: Vec<&Bound> =
        table.partitions.routes().iter().skip(1).map(|route| &route.range.start).collect();
    write_partitions(sql, &table.schema, &table.placement, &cuts);
}

fn written(table: &Table, is_placed: bool) -> String {
    let schema = table.schema.as_ref();
    let mut items: Vec<String> =
        schema.shown().map(|column| column_sql(&table.name, column)).collect();
    let time_index = schema.time_index();
    // A time index at the end of the key is implied, unless it is the only column of a primary key.
    let mut key: Vec<_> = schema.key_columns().filter(|column| !column.is_hidden()).collect();
    key.pop_if(|last| Some(last.id) == time_index.map(|time| time.id));
    if !key.is_empty() {
        items.push(format!("PRIMARY KEY ({})", names(&key)));
    }
    if let Some(time) = time_index {
        items.push(format!("TIME INDEX ({})", quote(&time.name)));
    }
    items.extend(
        schema
            .checks
            .iter()
            .map(|check| format!("CONSTRAINT {} CHECK ({})", quote(&check.name), check.expression)),
    );
    let wide = wide_sql(&table.name, schema);
    let is_implied = wide.is_some();
    let of_items =
        || format!("CREATE TABLE {} (\n  {}\n)", quote(&table.name), items.join(",\n  "));
    let mut sql = wide.unwrap_or_else(of_items);
    // Rows with a hidden key are placed by it.
    if is_placed && !schema.is_keyless() {
        write_division(&mut sql, table);
    }
    let options = options_of(schema, is_implied);
    if !options.is_empty() {
        let options: Vec<_> = options
            .iter()
            .map(|(key, value)| format!("  {} = {}", quote_string(key), quote_string(value)))
            .collect();
        sql.push_str("\nWITH (\n");
        sql.push_str(&options.join(",\n"));
        sql.push_str("\n)");
    }
    sql
}

fn names(columns: &[&Column]) -> String {
    quote_list(columns.iter().map(|column| column.name.as_str()))
}

fn column_sql(table: &str, column: &Column) -> String {
    let mut sql = format!("{} {}", quote(&column.name), column.type_sql());
    // A time index is NOT NULL by definition, but it is printed for readers.
    sql.push_str(if column.nullable { " NULL" } else { " NOT NULL" });
    if let Some(generated) = &column.generated {
        let _ = write!(sql, " GENERATED ALWAYS AS ({generated}) STORED");
    }
    if let Some(default) = &column.default {
        let _ = write!(sql, " DEFAULT {default}");
    }
    if let Some(comment) = &column.comment {
        let _ = write!(sql, " COMMENT {}", quote_string(comment));
    }
    for index in &column.indexes {
        let kind = index.options.kind();
        let options = index_options_sql(index, &default_name(table, &column.name, kind));
        let _ = write!(sql, " {} INDEX{options}", kind.sql());
    }
    sql
}

/// The beginning of CREATE TABLE for a wide table whose columns are those that its row key implies; `None` for others.
fn wide_sql(name: &str, schema: &TableSchema) -> Option<String> {
    let wide = schema.options.wide.as_ref()?;
    let row_key = schema.columns.first()?.column_type;
    let implied = columns(row_key).into_iter().zip(&schema.columns).map(|(implied, column)| {
        let (id, storage_name) = (column.id, column.storage_name.clone());
        Column { id, storage_name, ..implied }
    });
    if !implied.eq(schema.columns.iter().cloned()) {
        return None;
    }
    let row_key = if row_key == ColumnType::Binary { "BYTES" } else { "STRING" };
    let mut sql = format!("CREATE TABLE {} WIDE (ROW KEY {row_key})", quote(name));
    let _ = write!(sql, "\nFAMILIES ({})", families_sql(&wide.families));
    Some(sql)
}

/// The options of a wide table that differ from the default, as SHOW CREATE TABLE prints them; `is_implied`: the statement
/// says by its form that the table is wide, and which families it has.
fn wide_options(wide: &Wide, is_implied: bool) -> Vec<(&'static str, String)> {
    let mut printed = Vec::new();
    if !is_implied {
        printed.push(("kind", "wide".to_owned()));
        printed.push(("families", families_sql(&wide.families)));
    }
    if wide.row_bytes_warn != ROW_BYTES_WARN {
        printed.push(("row_size_warn", format_size(wide.row_bytes_warn)));
    }
    if wide.row_bytes_max != ROW_BYTES_MAX {
        printed.push(("row_size_max", format_size(wide.row_bytes_max)));
    }
    printed
}

/// The options that differ from the default. `is_implied`: as for [`wide_options`].
fn options_of(schema: &TableSchema, is_implied: bool) -> Vec<(&'static str, String)> {
    let options = &schema.options;
    let mut printed = match &options.wide {
        Some(wide) => wide_options(wide, is_implied),
        None => Vec::new(),
    };
    if options.append_mode {
        printed.push(("append_mode", "true".to_owned()));
    }
    if options.merge_mode != MergeMode::default() {
        printed.push(("merge_mode", options.merge_mode.sql().to_owned()));
    }
    if let Some(ttl) = options.ttl {
        printed.push(("ttl", format_duration(ttl)));
    }
    if let Some(window) = options.time_window {
        printed.push(("time_window", format_duration(window)));
    }
    if let Some(replicas) = options.replication_factor {
        printed.push(("replication_factor", replicas.to_string()));
    }
    let mut partitioning = options.partitioning;
    if options.wide.is_some() {
        // All wide tables keep their rows together.
        partitioning.keep_together = 0;
    }
    printed.extend(partitioning::non_default(&partitioning));
    if schema.schema_on_write {
        printed.push(("schema_on_write", "true".to_owned()));
    }
    if let Some(comment) = &options.comment {
        printed.push(("comment", comment.clone()));
    }
    if !options.advice_off.is_empty() {
        printed.push(("advice_off", options.advice_off.join(", ")));
    }
    if !options.advice_thresholds.is_empty() {
        printed.push(("advice_thresholds", options.advice_thresholds.join(", ")));
    }
    printed
}

fn write_partitions(
    sql: &mut String,
    schema: &TableSchema,
    placement: &Placement,
    cuts: &[&Bound],
) {
    let partitions = cuts.len() + 1;
    let by_itself = match placement {
        Placement::Range => {
            if cuts.is_empty() {
                return;
            }
            let longest = cuts.iter().map(|cut| cut.key.len()).max().unwrap_or(0);
            let columns: Vec<_> = schema.key_columns().take(longest).collect();
            let _ = write!(sql, "\nPARTITION BY RANGE ({})", names(&columns));
            Vec::new()
        }
        Placement::Hash { .. } => hash_cuts(u16::try_from(partitions).unwrap_or(u16::MAX)),
        Placement::Rules { rules, .. } => rule_cuts(rules),
    };
    if let Some(clause) = placement.to_sql(schema, partitions) {
        sql.push('\n');
        sql.push_str(&clause);
    }
    if !cuts.iter().copied().eq(by_itself.iter()) {
        let types: Vec<ColumnType> =
            schema.key_columns().map(|column| column.column_type).collect();
        let cuts: Vec<_> = cuts.iter().map(|cut| format!("  {}", bound_sql(cut, &types))).collect();
        let _ = write!(sql, "\nSPLIT AT (\n{}\n)", cuts.join(",\n"));
    }
}

/// DESCRIBE's name for the semantic of a column.
pub fn semantic_name(semantic: Semantic) -> &'static str {
    match semantic {
        Semantic::Tag => "TAG",
        Semantic::Field => "FIELD",
        Semantic::TimeIndex => "TIMESTAMP",
    }
}

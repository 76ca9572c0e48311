//! SHOW CREATE TABLE: a table as the statement that makes it again.
//!
//! Invariant: what is printed parses, and makes a table of the same columns, key, options, placement
//! and cuts (column ids aside, which count from zero again). Cuts are printed where they are not what
//! the partition clause says anyway, so that a table that has been split shows how.

use std::fmt::Write as _;

use partita_proto::catalog::Table;
use partita_proto::placement::Placement;
use partita_proto::range::Bound;
use partita_proto::route::{hash_cuts, rule_cuts};
use partita_proto::schema::{Column, ColumnType, MergeMode, Semantic, TableSchema};

use super::identifier::{quote, quote_list, quote_string};
use super::options::format_duration;
use super::partitioning;

/// The statement that makes the table.
pub fn create_table_sql(table: &Table) -> String {
    let schema = table.schema.as_ref();
    let mut items: Vec<String> = schema.columns.iter().map(column_sql).collect();
    let time_index = schema.time_index();
    // A time index at the end of the key is there by itself, unless it is alone in a primary key.
    let mut key: Vec<_> = schema.key_columns().collect();
    key.pop_if(|last| Some(last.id) == time_index.map(|time| time.id));
    if !key.is_empty() {
        items.push(format!("PRIMARY KEY ({})", names(&key)));
    }
    if let Some(time) = time_index {
        items.push(format!("TIME INDEX ({})", quote(&time.name)));
    }
    let mut sql = format!("CREATE TABLE {} (\n  {}\n)", quote(&table.name), items.join(",\n  "));
    let cuts: Vec<&Bound> =
        table.partitions.routes().iter().skip(1).map(|route| &route.range.start).collect();
    write_partitions(&mut sql, schema, &table.placement, &cuts);
    let options = options_of(schema);
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

fn column_sql(column: &Column) -> String {
    let mut sql = format!("{} {}", quote(&column.name), column.type_sql());
    // A time index is NOT NULL without saying so, but readers like to see it.
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
    sql
}

/// The options that are not what they are without being said.
fn options_of(schema: &TableSchema) -> Vec<(&'static str, String)> {
    let mut said = Vec::new();
    let options = &schema.options;
    if options.append_mode {
        said.push(("append_mode", "true".to_owned()));
    }
    if options.merge_mode != MergeMode::default() {
        said.push(("merge_mode", options.merge_mode.sql().to_owned()));
    }
    if let Some(ttl) = options.ttl {
        said.push(("ttl", format_duration(ttl)));
    }
    if let Some(window) = options.time_window {
        said.push(("time_window", format_duration(window)));
    }
    if let Some(replicas) = options.replication_factor {
        said.push(("replication_factor", replicas.to_string()));
    }
    said.extend(partitioning::said(&options.partitioning));
    if schema.schema_on_write {
        said.push(("schema_on_write", "true".to_owned()));
    }
    if let Some(comment) = &options.comment {
        said.push(("comment", comment.clone()));
    }
    said
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
        let cuts: Vec<_> = cuts.iter().map(|cut| format!("  {}", tuple(cut, &types))).collect();
        let _ = write!(sql, "\nSPLIT AT (\n{}\n)", cuts.join(",\n"));
    }
}

/// A bound as a tuple of literals, the placement first.
fn tuple(bound: &Bound, types: &[ColumnType]) -> String {
    let placement = bound.placement.map(|placement| placement.to_string());
    let values = bound.key.iter().zip(types).map(|(value, of)| value.display(*of));
    let values: Vec<_> = placement.into_iter().chain(values).collect();
    format!("({})", values.join(", "))
}

/// What DESCRIBE calls a column's meaning.
pub fn semantic_name(semantic: Semantic) -> &'static str {
    match semantic {
        Semantic::Tag => "TAG",
        Semantic::Field => "FIELD",
        Semantic::TimeIndex => "TIMESTAMP",
    }
}

//! The notice of CREATE TABLE about a key that grows at its end: rows arrive in order of time and the key begins with
//! the time, with a number computed from it, or with a counter, so all new rows go to the last partition and splits never help.
//!
//! Invariant: every suggested statement is DDL that this version accepts for that table.

use partita_proto::catalog::Table;
use partita_proto::placement::Placement;
use partita_proto::schema::{Column, ColumnType, TableSchema};

use super::column::columns_of;
use super::identifier::{fold, quote, quote_list};
use super::sequence_statement::sequence_of;
use crate::notice::Notice;

/// Partitions that a suggested hash begins with: a few for each node of a small cluster.
const PARTITIONS: u16 = 16;

/// The kind of value that grows at the end of the key space; `None` if the schema has none.
pub(super) fn grows(schema: &TableSchema, placement: &Placement) -> Option<&'static str> {
    if !matches!(placement, Placement::Range) {
        return None;
    }
    let first = schema.key_columns().next()?;
    match first.column_type {
        ColumnType::Timestamp(..) => Some("timestamp"),
        ColumnType::Date => Some("date"),
        _ if first.default.as_deref().and_then(sequence_of).is_some() => Some("counter"),
        _ if whole_number(first.column_type) && is_of_time(first.generated.as_deref()?, schema) => {
            Some("count of time")
        }
        _ => None,
    }
}

/// The notice for the creator of such a table; `None` for any other.
pub(super) fn notice(table: &str, schema: &TableSchema, placement: &Placement) -> Option<Notice> {
    let kind = grows(schema, placement)?;
    let first = schema.key_columns().next()?;
    let message = format!(
        "the key of table \"{table}\" begins with the {kind} \"{}\": rows come in its order, so all new rows go to \
         the last partition, one leader takes all writes however many nodes there are, and splitting does not help",
        first.name
    );
    Some(Notice::notice(message).with_hint(cures(schema)?))
}

/// The notice for an existing table.
pub fn of_table(table: &Table) -> Option<Notice> {
    notice(&table.name, &table.schema, &table.placement)
}

/// The DDL that spreads new rows, best first.
pub(super) fn cures(schema: &TableSchema) -> Option<String> {
    // A column spreads rows if it has many values that do not grow with time.
    let first = schema.key_columns().next()?;
    let spreads = |column: &&Column| {
        column.id != first.id
            && !column.column_type.is_timestamp()
            && !matches!(
                column.column_type,
                ColumnType::Date | ColumnType::Bool | ColumnType::Float32 | ColumnType::Float64
            )
    };
    // A tag that spreads is best, then a field that becomes part of the key.
    let tag = schema.key_columns().find(spreads);
    let field =
        || schema.columns.iter().find(|column| spreads(column) && !schema.is_key(column.id));
    // Forms of the DDL.
    let key = |leading: &Column| {
        let rest = schema.key_columns().filter(|column| column.id != leading.id);
        let names = [leading].into_iter().chain(rest).map(|column| column.name.as_str());
        format!("PRIMARY KEY ({})", quote_list(names))
    };
    let by_hash = |column: &Column| {
        format!("PARTITION BY HASH ({}) PARTITIONS {PARTITIONS}", quote(&column.name))
    };
    let scattered = format!(
        "{} spreads all rows, but every read by key range reads all partitions",
        by_hash(first)
    );
    // The hint, best suggestion first.
    Some(match (tag, field()) {
        (Some(tag), _) => format!(
            "{} keeps each \"{}\" together; {} also keeps them in order, if there are many of them; {scattered}",
            by_hash(tag),
            tag.name,
            key(tag)
        ),
        (None, Some(field)) => format!(
            "if rows are read by \"{}\": {}, perhaps with {}; {scattered}",
            field.name,
            key(field),
            by_hash(field)
        ),
        (None, None) => scattered,
    })
}

fn whole_number(column_type: ColumnType) -> bool {
    use ColumnType as T;
    matches!(
        column_type,
        T::Int8 | T::Int16 | T::Int32 | T::Int64 | T::UInt8 | T::UInt16 | T::UInt32 | T::UInt64
    )
}

/// Returns true if an expression depends on times only and does not scatter them. It need not grow forever: rows that
/// are written at one time also share an hour of the day.
fn is_of_time(generated: &str, schema: &TableSchema) -> bool {
    let scatters = ["hash", "xxh3", "md5", "sha", "random"];
    let Ok(columns) = columns_of(generated) else { return false };
    let mut columns = columns.iter().peekable();
    columns.peek().is_some()
        && !scatters.iter().any(|function| fold(generated).contains(function))
        && columns.all(|name| {
            let column = schema.column(name).map(|column| column.column_type);
            matches!(column, Some(ColumnType::Timestamp(..) | ColumnType::Date))
        })
}

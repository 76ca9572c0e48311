//! Statements that give a table another key design.
//!
//! Invariant: the new table has the same columns, options and key columns, so that every row keeps its identity; only
//! the order of the key and the placement differ.

use std::sync::Arc;

use partita_load::Design;
use partita_proto::catalog::Table;
use partita_proto::id::{ColumnId, Epoch, PartitionId};
use partita_proto::key::KeyCodec;
use partita_proto::placement::Placement;
use partita_proto::range::Bound;
use partita_proto::route::{PartitionMap, hash_cuts};
use partita_sql::identifier::{quote, quote_list};
use partita_sql::show::create_table_sql;

use crate::bound_text::bound_text;

/// The clauses of a design: `PARTITION BY HASH (u) PARTITIONS 8, PRIMARY KEY (u, ts)`.
pub(crate) fn clauses(table: &Table, design: &Design) -> String {
    let names = |columns: &[usize]| {
        let key: Vec<_> = table.schema.key_columns().collect();
        let names = columns.iter().filter_map(|position| key.get(*position));
        quote_list(names.map(|column| column.name.as_str()))
    };
    match design {
        Design::Range { order } => format!("PRIMARY KEY ({})", names(order)),
        Design::Hash { of: hashed, buckets, order } => format!(
            "PARTITION BY HASH ({}) PARTITIONS {buckets}, PRIMARY KEY ({})",
            names(hashed),
            names(order)
        ),
    }
}

/// Statements that give a table another design, with these cuts for a range design; `None` if the design does not fit
/// the table.
pub(crate) fn statements(table: &Table, design: &Design, cuts: &[Bound]) -> Option<String> {
    let key = &table.schema.key;
    let ids = |columns: &[usize]| -> Option<Vec<ColumnId>> {
        columns.iter().map(|position| key.get(*position).copied()).collect()
    };
    let (order, placement, cuts) = match design {
        Design::Range { order } => (ids(order)?, Placement::Range, cuts.to_vec()),
        Design::Hash { of: hashed, buckets, order } => {
            let cuts = hash_cuts(u16::try_from(*buckets).ok()?);
            (ids(order)?, Placement::Hash { columns: ids(hashed)? }, cuts)
        }
    };
    // A table that only changes its placement needs no copy.
    let forward = table.schema.options.append_mode && table.former.is_none();
    if let Design::Hash { of: hashed, buckets, .. } = design
        && forward
        && order == *key
    {
        let names = ids(hashed)?.into_iter().filter_map(|id| table.schema.column_by_id(id));
        let names = quote_list(names.map(|column| column.name.as_str()));
        let name = quote(&table.name);
        return Some(format!(
            "ALTER TABLE {name} PARTITION BY HASH ({names}) PARTITIONS {buckets};"
        ));
    }
    // Otherwise the rows are copied into a new table with the other key.
    let mut schema = table.schema.as_ref().clone();
    schema.key = order;
    let name = format!("{}_new", table.name);
    let codec = KeyCodec::new(&schema, &placement).ok()?;
    let map = PartitionMap::from_cuts(&codec, &cuts, (1..).map(PartitionId), Epoch(1)).ok()?;
    let new_table = Table {
        name: name.clone(),
        schema: Arc::new(schema),
        placement,
        partitions: Arc::new(map),
        ..table.clone()
    };
    let insertable = table.schema.columns.iter().filter(|column| column.generated.is_none());
    let columns = quote_list(insertable.map(|column| column.name.as_str()));
    Some(copied(table, &create_table_sql(&new_table), &quote(&name), &columns))
}

/// Statements that copy a table's rows into a new table and replace the old one by it.
///
/// A row that is written while its table is copied would be missing in the copy. So the table is renamed first: from
/// then on its writers get errors. A write that had begun before may still be acknowledged; the comparison of counts
/// finds it, or it stays in the renamed table, which no statement here drops.
fn copied(table: &Table, create: &str, new: &str, columns: &str) -> String {
    let old = quote(&table.name);
    let original = format!("{}_before", table.name);
    let original = quote(&original);
    format!(
        "-- Stop all writers of {old} first: the rows are copied, and a row written during the copy would be missing in it.\n\
        -- Between the first RENAME and the last, table {old} does not exist: SQL clients get an error (42P01), and line\n\
        -- protocol would create it again.\n\
         {create};\n\
         ALTER TABLE {old} RENAME TO {original};\n\
         INSERT INTO {new} ({columns}) SELECT {columns} FROM {original};\n\
         -- This fails (22012) if rows were written during the copy. Continue only if it succeeds; otherwise TRUNCATE {new}\n\
         -- and repeat the INSERT.\n\
         SELECT 1 / CASE WHEN (SELECT count(*) FROM {original}) = (SELECT count(*) FROM {new}) THEN 1 ELSE 0 END AS complete;\n\
         ALTER TABLE {new} RENAME TO {old};\n\
         -- {original} keeps the original rows. Drop it when no write from before the RENAME is in progress (30 s)\n\
         -- and {old} has all of its rows."
    )
}

/// Statement that splits a partition, at a bound or in half.
pub(crate) fn split(table: &Table, partition: PartitionId, bound: Option<&Bound>) -> String {
    let bound = bound.and_then(|bound| bound_text(table, bound));
    let clause = bound.map(|bound| format!(" AT {bound}")).unwrap_or_default();
    format!("ALTER TABLE {} SPLIT PARTITION {partition}{clause}", quote(&table.name))
}

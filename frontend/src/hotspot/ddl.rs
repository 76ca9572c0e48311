//! A design of a table's key as the statements that lead to it.
//!
//! Invariant: they make a table of the same columns, options and key columns, so that every row keeps its identity;
//! only the order of the key and the placement differ.

use std::sync::Arc;

use partita_load::Design;
use partita_proto::catalog::Table;
use partita_proto::id::{ColumnId, Epoch, PartitionId};
use partita_proto::key::KeyCodec;
use partita_proto::placement::Placement;
use partita_proto::range::Bound;
use partita_proto::route::{PartitionMap, hash_cuts};

use crate::sql::identifier::{quote, quote_list};
use crate::sql::show::create_table_sql;

/// The clauses that say a design: `PARTITION BY HASH (u) PARTITIONS 8, PRIMARY KEY (u, ts)`.
pub(crate) fn clauses(table: &Table, design: &Design) -> String {
    let names = |columns: &[usize]| {
        let key: Vec<_> = table.schema.key_columns().collect();
        let names = columns.iter().filter_map(|at| key.get(*at));
        quote_list(names.map(|column| column.name.as_str()))
    };
    match design {
        Design::Range { order } => format!("PRIMARY KEY ({})", names(order)),
        Design::Hash { of, buckets, order } => format!(
            "PARTITION BY HASH ({}) PARTITIONS {buckets}, PRIMARY KEY ({})",
            names(of),
            names(order)
        ),
    }
}

/// The statements that place a table's rows by another design, cut at these bounds if it is one by range; `None` when
/// the design is none for this table.
pub(crate) fn statements(table: &Table, design: &Design, cuts: &[Bound]) -> Option<String> {
    let key = &table.schema.key;
    let ids = |columns: &[usize]| -> Option<Vec<ColumnId>> {
        columns.iter().map(|at| key.get(*at).copied()).collect()
    };
    let (order, placement, cuts) = match design {
        Design::Range { order } => (ids(order)?, Placement::Range, cuts.to_vec()),
        Design::Hash { of, buckets, order } => {
            let cuts = hash_cuts(u16::try_from(*buckets).ok()?);
            (ids(order)?, Placement::Hash { columns: ids(of)? }, cuts)
        }
    };
    // Where only the placement differs, nothing has to be copied.
    let forward = table.schema.options.append_mode && table.former.is_none();
    if let Design::Hash { of, buckets, .. } = design
        && forward
        && order == *key
    {
        let names = ids(of)?.into_iter().filter_map(|id| table.schema.column_by_id(id));
        let names = quote_list(names.map(|column| column.name.as_str()));
        let name = quote(&table.name);
        return Some(format!(
            "ALTER TABLE {name} PARTITION BY HASH ({names}) PARTITIONS {buckets};"
        ));
    }
    let mut schema = table.schema.as_ref().clone();
    schema.key = order;
    let name = format!("{}_new", table.name);
    let codec = KeyCodec::new(&schema, &placement).ok()?;
    let map = PartitionMap::from_cuts(&codec, &cuts, (1..).map(PartitionId), Epoch(1)).ok()?;
    let made = Table {
        name: name.clone(),
        schema: Arc::new(schema),
        placement,
        partitions: Arc::new(map),
        ..table.clone()
    };
    let given = table.schema.columns.iter().filter(|column| column.generated.is_none());
    let columns = quote_list(given.map(|column| column.name.as_str()));
    Some(copied(table, &create_table_sql(&made), &quote(&name), &columns))
}

/// The statements that copy a table's rows into another and put that in its place.
///
/// A row that is written while its table is copied would be missing in the copy. So the table gets another name first:
/// from then on its writers get errors, not answers. What is acknowledged nevertheless, by a write that had begun, is
/// found by the comparison, or stays in the table as it was, which no statement here drops.
fn copied(table: &Table, create: &str, new: &str, columns: &str) -> String {
    let old = quote(&table.name);
    let before = format!("{}_before", table.name);
    let before = quote(&before);
    format!(
        "-- Stop all writers of {old} first: the rows are copied, and a row written meanwhile would be missing in the copy.\n\
         -- From the first RENAME to the last there is no table {old}: SQL clients get an error (42P01), while line protocol\n\
         -- would make the table anew.\n\
         {create};\n\
         ALTER TABLE {old} RENAME TO {before};\n\
         INSERT INTO {new} ({columns}) SELECT {columns} FROM {before};\n\
         -- This fails (22012) if rows came meanwhile. Go on only when it succeeds; else TRUNCATE {new} and INSERT again.\n\
         SELECT 1 / CASE WHEN (SELECT count(*) FROM {before}) = (SELECT count(*) FROM {new}) THEN 1 ELSE 0 END AS complete;\n\
         ALTER TABLE {new} RENAME TO {old};\n\
         -- {before} keeps the rows as they were. Drop it when no write that began before the RENAME is under way (30 s)\n\
         -- and it has no row that {old} lacks."
    )
}

/// The statement that cuts a partition.
pub(crate) fn split(table: &Table, partition: PartitionId, at: Option<&Bound>) -> String {
    let at = at.and_then(|at| crate::system::bound_text(table, at));
    let at = at.map(|at| format!(" AT {at}")).unwrap_or_default();
    format!("ALTER TABLE {} SPLIT PARTITION {partition}{at}", quote(&table.name))
}

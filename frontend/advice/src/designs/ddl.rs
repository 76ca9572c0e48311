//! Statements that give a table another key design.
//!
//! A table that gets another key by range is cut at once, where the sampled load is divided: its only partition would be
//! hot as soon as it has its new key.
//!
//! Only what is safe beside writers is printed: a table that keeps every row is placed otherwise where it is, ranges
//! are cut, and otherwise the table is re-keyed. One whose rows lie in two tables, because it was repartitioned, cannot
//! be: then a table of the other design is created beside it, which no statement touches.
//!
//! Invariant: the table has the same columns, options and key columns then, so that every row keeps its identity; only
//! the order of the key and the placement differ.

use std::sync::Arc;

use partita_load::Design;
use partita_proto::catalog::{DEFAULT_DATABASE, Table};
use partita_proto::id::{ColumnId, Epoch, PartitionId};
use partita_proto::key::KeyCodec;
use partita_proto::placement::Placement;
use partita_proto::range::Bound;
use partita_proto::route::{PartitionMap, hash_cuts};
use partita_sql::bound_words::bound_sql;
use partita_sql::identifier::{quote, quote_list};
use partita_sql::show::create_table_sql;

use crate::ddl::Script;

/// The clauses of a design: `PARTITION BY HASH (u) PARTITIONS 8, PRIMARY KEY (u, ts)`.
pub fn clauses(table: &Table, design: &Design) -> String {
    match design {
        Design::Range { order } => format!("PRIMARY KEY ({})", names(table, order)),
        Design::Hash { of: hashed, buckets, order } => format!(
            "PARTITION BY HASH ({}) PARTITIONS {buckets}, PRIMARY KEY ({})",
            names(table, hashed),
            names(table, order)
        ),
    }
}

/// The clauses of a design without its number of partitions, which changes with the load.
pub fn placed(table: &Table, design: &Design) -> String {
    match design {
        Design::Range { .. } => clauses(table, design),
        Design::Hash { of: hashed, order, .. } => format!(
            "PARTITION BY HASH ({}), PRIMARY KEY ({})",
            names(table, hashed),
            names(table, order)
        ),
    }
}

/// Names of key columns, by their numbers in the key.
fn names(table: &Table, columns: &[usize]) -> String {
    let key: Vec<_> = table.schema.key_columns().collect();
    let names = columns.iter().filter_map(|position| key.get(*position));
    quote_list(names.map(|column| column.name.as_str()))
}

/// A bound as SPLIT AT takes it: `(3, 'a')`; `None` at the ends of the key space.
pub fn bound_text(table: &Table, bound: &Bound) -> Option<String> {
    let types: Vec<_> = table.schema.key_columns().map(|column| column.column_type).collect();
    (!bound.is_empty()).then(|| bound_sql(bound, &types))
}

/// Name of a table in statements: with its database, unless it is in the default one.
fn short_name(table: &Table) -> String {
    if table.database == DEFAULT_DATABASE {
        quote(&table.name).into_owned()
    } else {
        full_name(table)
    }
}

/// Name of a table in statements, with its database.
fn full_name(table: &Table) -> String {
    format!("{}.{}", quote(&table.database), quote(&table.name))
}

/// Statements that give a table another design, with these cuts for a range design; `None` if the design does not fit
/// the table, or if it needs no statement. A table of the default database is named without it.
pub fn statements(table: &Table, design: &Design, cuts: &[Bound]) -> Option<Script> {
    named(table, design, cuts, short_name)
}

/// As [`statements`], with the table's database in any case.
pub fn qualified_statements(table: &Table, design: &Design, cuts: &[Bound]) -> Option<Script> {
    named(table, design, cuts, full_name)
}

fn named(
    table: &Table,
    design: &Design,
    cuts: &[Bound],
    name_of: fn(&Table) -> String,
) -> Option<Script> {
    // The key of a table without one has no column that a statement could name.
    if table.schema.is_keyless() {
        return None;
    }
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
    if order == *key {
        // New rows of a table that keeps every row may be placed otherwise.
        let forward =
            table.schema.options.append_mode && table.former.is_none() && table.copy.is_none();
        match design {
            Design::Hash { of: hashed, buckets, .. } if forward => {
                let (name, columns) = (name_of(table), names(table, hashed));
                let sql = format!(
                    "ALTER TABLE {name} PARTITION BY HASH ({columns}) PARTITIONS {buckets};"
                );
                return Some(Script::complete(sql));
            }
            Design::Range { .. } if table.placement == Placement::Range => {
                return split_at(table, &name_of(table), &cuts);
            }
            _ => {}
        }
    }
    // A materialized copy has the rows of its source, and is made with another key as another copy.
    if table.copy.is_some() {
        return None;
    }
    let is_same_key = order == *key;
    if is_same_key && placement == table.placement {
        return None;
    }
    let mut schema = table.schema.as_ref().clone();
    schema.key = order;
    let codec = KeyCodec::new(&schema, &placement).ok()?;
    let map = PartitionMap::from_cuts(&codec, &cuts, (1..).map(PartitionId), Epoch(1)).ok()?;
    let new_table = Table {
        name: format!("{}_new", table.name),
        schema: Arc::new(schema),
        placement,
        partitions: Arc::new(map),
        ..table.clone()
    };
    if table.former.is_none() && table.succeeded_by.is_none() {
        let clauses = rekeyed(&new_table, design, is_same_key);
        return Some(Script::rekeying(format!("ALTER TABLE {} {clauses};", name_of(table))));
    }
    let create = create_table_sql(&new_table);
    let definition = create.strip_prefix(&format!("CREATE TABLE {}", quote(&new_table.name)))?;
    let create = format!("CREATE TABLE {}{definition}", name_of(&new_table));
    Some(Script::beside(&create, &table.name))
}

/// Clauses of ALTER TABLE that lead to the key and the placement of a table.
fn rekeyed(table: &Table, design: &Design, is_same_key: bool) -> String {
    let key = quote_list(table.schema.key_columns().map(|column| column.name.as_str()));
    match design {
        Design::Hash { buckets, .. } => {
            // The design names columns by their numbers in the present key, the placement by their ids.
            let hashed = match &table.placement {
                Placement::Hash { columns } => columns.as_slice(),
                Placement::Range | Placement::Rules { .. } => &[],
            };
            let columns = hashed.iter().filter_map(|id| table.schema.column_by_id(*id));
            let columns = quote_list(columns.map(|column| column.name.as_str()));
            let placed = format!("PARTITION BY HASH ({columns}) PARTITIONS {buckets}");
            if is_same_key { placed } else { format!("PRIMARY KEY ({key}) {placed}") }
        }
        Design::Range { .. } => {
            let starts = table.partitions.routes().iter().skip(1);
            let cuts: Vec<String> =
                starts.filter_map(|route| bound_text(table, &route.range.start)).collect();
            match cuts.is_empty() {
                true => format!("PRIMARY KEY ({key})"),
                false => format!("PRIMARY KEY ({key}) SPLIT AT ({})", cuts.join(", ")),
            }
        }
    }
}

/// Statement that cuts a table at those of some bounds at which it is not cut yet; `None` if there are none.
fn split_at(table: &Table, name: &str, cuts: &[Bound]) -> Option<Script> {
    let routes = table.partitions.routes();
    let is_new = |cut: &&Bound| routes.iter().all(|route| route.range.start != **cut);
    let texts: Vec<String> =
        cuts.iter().filter(is_new).filter_map(|cut| bound_text(table, cut)).collect();
    (!texts.is_empty())
        .then(|| Script::complete(format!("ALTER TABLE {name} SPLIT AT ({});", texts.join(", "))))
}

/// Statement that splits a partition, at a bound or in half.
pub fn split(table: &Table, partition: PartitionId, bound: Option<&Bound>) -> String {
    let bound = bound.and_then(|bound| bound_text(table, bound));
    let clause = bound.map(|bound| format!(" AT {bound}")).unwrap_or_default();
    format!("ALTER TABLE {} SPLIT PARTITION {partition}{clause}", short_name(table))
}

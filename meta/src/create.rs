//! Checks of a new table. Pure; the same verdict on every replica of meta's group.
//!
//! Invariants of a checked table: ids are unique and below `next_column`; storage names equal the names; bounds
//! have their columns' types and ascend strictly; rules cover every row exactly once; a table that keeps one row
//! per key places rows by key columns only (otherwise two versions of a row could lie in two partitions, both
//! visible).

use std::collections::BTreeSet;

use partita_proto::error::Error;
use partita_proto::id::{ColumnId, SchemaVersion};
use partita_proto::key::KeyCodec;
use partita_proto::placement::Placement;
use partita_proto::range::{Bound, TypedRange};
use partita_proto::route::ranges_between;
use partita_proto::rule::check_cover;
use partita_proto::schema::{TABLE_PARTITIONS_MAX, TableOptions, TableSchema, validate_name};
use partita_proto::service::NewTable;
use partita_proto::wide;

/// Maximum partitions of a new table.
pub(crate) const PARTITIONS_MAX: usize = TABLE_PARTITIONS_MAX;

/// Maximum replicas of a partition.
const REPLICAS_MAX: u32 = 9;

/// A table as it will be recorded.
#[derive(Debug)]
pub(crate) struct CheckedTable {
    pub(crate) schema: TableSchema,
    /// One range for each partition, in ascending order; none of a view.
    pub(crate) ranges: Vec<TypedRange>,
}

/// Checks a new table.
///
/// # Errors
/// [`Error::InvalidInput`] that names what is wrong.
pub(crate) fn check_table(table: &NewTable) -> Result<CheckedTable, Error> {
    validate_name("table", &table.name)?;
    let mut schema = table.schema.clone();
    schema.version = SchemaVersion(1);
    check_ids(&schema)?;
    // A view has no partitions, and its storage names are those of its query's columns.
    if schema.view.is_some() {
        schema.validate()?;
        return Ok(CheckedTable { schema, ranges: Vec::new() });
    }
    for column in &mut schema.columns {
        column.storage_name.clone_from(&column.name);
    }
    schema.validate()?;
    check_options(&schema.options, &schema.key)?;
    let ranges = check_partitions(&schema, &table.placement, &table.cuts)?;
    Ok(CheckedTable { schema, ranges })
}

/// Checks placement and cuts; returns the range of each partition.
///
/// # Errors
/// [`Error::InvalidInput`] that names what is wrong.
pub(crate) fn check_partitions(
    schema: &TableSchema,
    placement: &Placement,
    cuts: &[Bound],
) -> Result<Vec<TypedRange>, Error> {
    check_placement(schema, placement)?;
    check_cuts(schema, placement, cuts)
}

/// Checks a table's options against its key.
///
/// # Errors
/// [`Error::InvalidInput`] that names the first invalid option, such as a time of zero or more columns than the key
/// has.
pub(crate) fn check_options(options: &TableOptions, key: &[ColumnId]) -> Result<(), Error> {
    check_ttl(options.ttl)?;
    options.partitioning.check()?;
    options.partitioning.check_key(key.len())?;
    if options.replication_factor.is_some_and(|replicas| !(1..=REPLICAS_MAX).contains(&replicas)) {
        return Err(Error::InvalidInput(format!(
            "'replication_factor' must be between 1 and {REPLICAS_MAX}"
        )));
    }
    if options.time_window.is_some_and(|window| window.is_zero()) {
        return Err(Error::InvalidInput("'time_window' must be longer than zero".to_owned()));
    }
    Ok(())
}

/// Checks a `ttl`: rows are kept for ever by having no `ttl`, and zero would hide every row.
///
/// # Errors
/// [`Error::InvalidInput`] when it is zero.
pub(crate) fn check_ttl(ttl: Option<std::time::Duration>) -> Result<(), Error> {
    if ttl.is_some_and(|ttl| ttl.is_zero()) {
        return Err(Error::InvalidInput("'ttl' must be longer than zero".to_owned()));
    }
    Ok(())
}

fn check_ids(schema: &TableSchema) -> Result<(), Error> {
    let mut ids = BTreeSet::new();
    for column in &schema.columns {
        if !ids.insert(column.id) || column.id >= schema.next_column {
            return Err(Error::InvalidInput(format!(
                "column \"{}\" has id {}, which is given twice or not below the next id {}",
                column.name, column.id, schema.next_column
            )));
        }
    }
    Ok(())
}

fn check_placement(schema: &TableSchema, placement: &Placement) -> Result<(), Error> {
    wide::check_placement(schema, placement)?;
    let columns = match placement {
        Placement::Range => return Ok(()),
        Placement::Hash { columns } | Placement::Rules { columns, .. } => columns,
    };
    if columns.is_empty() {
        return Err(Error::InvalidInput("partitioning needs at least one column".to_owned()));
    }
    check_placement_columns(schema, columns)?;
    if let Placement::Rules { rules, .. } = placement {
        if rules.is_empty() {
            return Err(Error::InvalidInput(
                "partitioning by expressions needs at least one expression".to_owned(),
            ));
        }
        for rule in rules {
            if let Some(stranger) = rule.columns().into_iter().find(|id| !columns.contains(id)) {
                let name = schema.column_by_id(stranger).map_or("?", |column| &column.name);
                return Err(Error::InvalidInput(format!(
                    "partition expression `{}` uses column \"{name}\", which is not one of the \
                     partition columns",
                    rule.to_sql(schema)
                )));
            }
        }
        check_cover(rules, schema)?;
    }
    Ok(())
}

fn check_placement_columns(schema: &TableSchema, columns: &[ColumnId]) -> Result<(), Error> {
    let mut ids = BTreeSet::new();
    for id in columns {
        let column = schema.column_by_id(*id).ok_or_else(|| {
            Error::InvalidInput(format!("partition column {id} does not exist in the table"))
        })?;
        if !ids.insert(*id) {
            return Err(Error::InvalidInput(format!(
                "partition column \"{}\" specified more than once",
                column.name
            )));
        }
        if column.column_type.is_of_fields_only() {
            return Err(Error::InvalidInput(format!(
                "partition column \"{}\" cannot be of type {}",
                column.name,
                column.column_type.sql()
            )));
        }
        if !schema.options.append_mode && !schema.is_key(*id) {
            return Err(Error::InvalidInput(format!(
                "partition column \"{}\" must be part of the PRIMARY KEY, because the table keeps \
                 one row per key; add it to the key or set 'append_mode' = 'true'",
                column.name
            )));
        }
    }
    Ok(())
}

fn check_cuts(
    schema: &TableSchema,
    placement: &Placement,
    cuts: &[Bound],
) -> Result<Vec<TypedRange>, Error> {
    if cuts.len() >= PARTITIONS_MAX {
        return Err(Error::InvalidInput(format!(
            "{} partitions exceed the limit of {PARTITIONS_MAX}",
            cuts.len() + 1
        )));
    }
    for cut in cuts {
        check_place(placement, cut)?;
        schema.options.partitioning.check_cut(cut)?;
    }
    ranges_between(&KeyCodec::new(schema, placement)?, cuts)
}

/// Checks that a bound's placement exists in the table: a partition after the last one would stay empty for ever.
///
/// # Errors
/// [`Error::InvalidInput`] if it does not exist.
pub(crate) fn check_place(placement: &Placement, cut: &Bound) -> Result<(), Error> {
    let places = match placement {
        Placement::Range => 0,
        Placement::Hash { .. } => usize::from(u16::MAX) + 1,
        Placement::Rules { rules, .. } => rules.len(),
    };
    match cut.placement {
        Some(place) if usize::from(place) >= places => Err(Error::InvalidInput(format!(
            "partition bound {cut} has placement {place}, but the table has {places} placements"
        ))),
        None if places > 0 => Err(Error::InvalidInput(format!(
            "partition bound {cut} of a table placed by hash or expressions needs a placement"
        ))),
        Some(_) | None => Ok(()),
    }
}

//! The change of a table whose load is to be spread by a hash.
//!
//! ```text
//!   it keeps every row, and has no copies ──▶ another placement of new rows; no row is moved
//!   any other                             ──▶ a re-keying: a copy that takes its place, in the background
//! ```
//!
//! A re-keying loses and doubles nothing, whatever the table keeps of the rows with one key:
//! - all versions and deletes of a key are in one log, because a placement depends on the key alone. The changes of a
//!   partition that was split off follow those that its parent had made, and partitions with a copy are not merged;
//! - the copy gets them in the order of that log: first the rows as of one entry, then each later change as what it was (a
//!   row, some columns of one, a delete), once by its position. So the last row is the last one there too, a NULL replaces
//!   what it had replaced, and a delete removes what was before it and nothing later. A row that an UPDATE replaces where
//!   columns keep their last value is a delete and a row, in one entry;
//! - a write is acknowledged when the copy has it, or is given up for good; and the copy takes the table's place after the
//!   last change of partitions that take no more.

use partita_load::HashOf;
use partita_proto::error::Error;
use partita_proto::id::TableId;
use partita_proto::placement::Placement;
use partita_proto::route::hash_cuts;
use partita_proto::schema::TableSchema;
use partita_proto::service::{Ddl, NamedObject, NewTable, TableChange};

use crate::catalog::{State, TableRecord};
use crate::create::PARTITIONS_MAX;

/// The change that places rows of a table in so many buckets of a hash.
///
/// # Errors
/// [`Error::NotFound`] if the table is gone; [`Error::Unsupported`] if it has no key by which rows could be placed.
pub(crate) fn spreading(
    state: &State,
    table: TableId,
    (buckets, hash): (u32, HashOf),
) -> Result<Ddl, Error> {
    let missing = || Error::NotFound { kind: "table", name: table.to_string() };
    let record = state.table(table).ok_or_else(missing)?;
    let database = state.database(record.database).ok_or_else(missing)?.name.clone();
    let placement = match hash {
        HashOf::Series => Placement::by_series(&record.schema),
        HashOf::Key => Placement::by_key(&record.schema),
    };
    let most = u16::try_from(PARTITIONS_MAX).unwrap_or(u16::MAX);
    let cuts = hash_cuts(u16::try_from(buckets).unwrap_or(most).clamp(1, most));
    if record.schema.options.append_mode && state.copies_of(table).next().is_none() {
        let change = TableChange::Repartition { placement, cuts };
        let ddl = Ddl::AlterTable { database, name: record.name.clone(), change };
        return Ok(ddl.checked(NamedObject::Table(table)));
    }
    if record.schema.is_keyless() {
        return Err(Error::Unsupported("re-keying a table without a key".to_owned()));
    }
    let new = NewTable {
        database,
        name: rekeyed_name(state, record),
        schema: TableSchema::clone(&record.schema),
        placement,
        cuts,
        owner: record.owner,
        copy_of: Some(table),
        rekeys: true,
        sequences: Vec::new(),
    };
    Ok(Ddl::CreateTable { table: Box::new(new), if_not_exists: false })
}

/// A free name for the table that is to take another one's place.
fn rekeyed_name(state: &State, record: &TableRecord) -> String {
    let is_free = |name: &String| {
        state.table_named(record.database, name).is_none()
            && !state.is_sequence(record.database, name)
    };
    let first = format!("{}$rekeyed", record.name);
    let numbered = (2..).map(|number: u32| format!("{}$rekeyed{number}", record.name));
    std::iter::once(first.clone()).chain(numbered).find(is_free).unwrap_or(first)
}

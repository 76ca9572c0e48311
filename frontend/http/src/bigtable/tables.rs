//! Wide tables of the catalog: created, changed and dropped for Bigtable's clients.
//!
//! | request | rights |
//! |---|---|
//! | list, get | those that let the caller see the table |
//! | create | CREATE on the database; on the cluster, if the database does not exist |
//! | alter, drop | ownership of the table |
//! | drop rows | those of DELETE; of TRUNCATE for all rows |

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use partita_bigtable::rows::KeySpan;
use partita_bigtable::{FamilyChange, KeySample, TableName, WideTable};
use partita_frontend::{Output, SqlError};
use partita_proto::access::{Action, Identity, Need, Object};
use partita_proto::catalog::Table;
use partita_proto::id::{ColumnId, SchemaVersion};
use partita_proto::placement::Placement;
use partita_proto::range::Bound;
use partita_proto::schema::{ColumnType, Partitioning, TableOptions, TableSchema};
use partita_proto::service::{Ddl, NewTable, TableChange};
use partita_proto::value::Value;
use partita_proto::wide::{Family, KEY_COLUMNS, Wide, columns};

use super::changes::permit;
use super::scan::{Names, Query};
use crate::door::Door;
use crate::write_rights::{database_permit, need_of};

/// SQLSTATE of a table of another kind.
const WRONG_OBJECT_TYPE: &str = "42809";

/// A wide table and its families.
pub(super) struct Found {
    pub(super) table: Arc<Table>,
    pub(super) wide: Wide,
}

/// The wide tables of a database that a caller sees.
pub(super) fn list(
    door: &Door,
    caller: Identity,
    database: &str,
) -> Result<Vec<WideTable>, SqlError> {
    let catalog = door.frontend.viewer(caller).catalog();
    if !catalog.databases.contains_key(database) {
        return Err(SqlError::undefined_database(database));
    }
    let tables = catalog.tables.get(database).into_iter().flat_map(|tables| tables.values());
    let wide = |table: &Arc<Table>| {
        let wide = table.schema.options.wide.clone()?;
        Some(WideTable { table: table.name.clone(), wide })
    };
    Ok(tables.filter_map(wide).collect())
}

/// A wide table that a caller sees.
///
/// # Errors
/// When there is none with the name, or it is a table of another kind.
pub(super) fn find(door: &Door, caller: Identity, name: &TableName) -> Result<Found, SqlError> {
    let catalog = door.frontend.viewer(caller).catalog();
    if !catalog.databases.contains_key(&name.instance) {
        return Err(SqlError::undefined_database(&name.instance));
    }
    let table = catalog.table(&name.instance, &name.table).cloned();
    let table = table.ok_or_else(|| SqlError::undefined_table(&name.table))?;
    let wide = table.schema.options.wide.clone().ok_or_else(|| {
        let message = format!("\"{}\" is not a wide table", name.table);
        SqlError::new(WRONG_OBJECT_TYPE, message).with_hint("create it with WIDE, or use SQL")
    })?;
    Ok(Found { table, wide })
}

/// Creates a table whose row keys are bytes, and its database if there is none.
pub(super) async fn create(
    door: &Door,
    caller: Identity,
    name: &TableName,
    families: Vec<Family>,
    cuts: Vec<Bytes>,
) -> Result<(), SqlError> {
    let frontend = &door.frontend;
    if let Some(permit) = database_permit(frontend, caller, &name.instance)? {
        let create = Ddl::CreateDatabase {
            name: name.instance.clone(),
            if_not_exists: true,
            ttl: None,
            owner: permit.role(),
        };
        frontend.change(&permit, create).await?;
    }
    let database = frontend.catalog().databases.get(&name.instance).cloned();
    let database = database.ok_or_else(|| SqlError::undefined_database(&name.instance))?;
    let need = Need::new(Action::Create, Object::Database(database));
    let permit = frontend.authorize(&caller, &[need])?;
    let cut = |key: Bytes| Bound { placement: None, key: vec![Value::Binary(key.into())] };
    let table = NewTable {
        database: name.instance.clone(),
        name: name.table.clone(),
        schema: schema(families),
        placement: Placement::Range,
        cuts: cuts.into_iter().map(cut).collect(),
        owner: permit.role(),
        copy_of: None,
        rekeys: false,
        sequences: Vec::new(),
    };
    table.schema.validate()?;
    let create = Ddl::CreateTable { table: Box::new(table), if_not_exists: false };
    frontend.change(&permit, create).await?;
    Ok(())
}

/// The schema of a wide table whose row keys are bytes.
fn schema(families: Vec<Family>) -> TableSchema {
    let columns = columns(ColumnType::Binary);
    TableSchema {
        version: SchemaVersion(1),
        key: columns.iter().take(KEY_COLUMNS).map(|column| column.id).collect(),
        next_column: ColumnId(columns.iter().map(|column| column.id.0 + 1).max().unwrap_or(0)),
        columns,
        options: TableOptions {
            partitioning: Partitioning { keep_together: 1, ..Partitioning::default() },
            wide: Some(Wide { families, ..Wide::default() }),
            ..TableOptions::default()
        },
        schema_on_write: false,
        checks: Vec::new(),
        view: None,
    }
}

/// Changes families, and then removes the cells of those that were dropped; before that, the cells of families that were
/// dropped earlier and whose removal was interrupted, so that their names are free.
pub(super) async fn alter(
    door: &Door,
    caller: Identity,
    name: &TableName,
    changes: Vec<FamilyChange>,
) -> Result<(), SqlError> {
    let Found { table, .. } = find(door, caller, name)?;
    let permit =
        door.frontend.authorize(&caller, &[need_of(&door.frontend, Action::Own, &table)?])?;
    Box::pin(door.frontend.clear_dropped(&permit, &table)).await?;
    // Meta applies the change to the current families, so concurrent requests do not undo each other.
    let change = Ddl::AlterTable {
        database: table.database.clone(),
        name: table.name.clone(),
        change: TableChange::ChangeFamilies(changes),
    };
    door.frontend.change(&permit, change).await?;
    Box::pin(door.frontend.clear_dropped(&permit, &table)).await
}

/// Drops a table with all its rows.
pub(super) async fn drop_table(
    door: &Door,
    caller: Identity,
    name: &TableName,
) -> Result<(), SqlError> {
    let Found { table, .. } = find(door, caller, name)?;
    let permit =
        door.frontend.authorize(&caller, &[need_of(&door.frontend, Action::Own, &table)?])?;
    let drop_table = Ddl::DropTable {
        database: table.database.clone(),
        name: table.name.clone(),
        if_exists: false,
        cascade: false,
    };
    door.frontend.change(&permit, drop_table).await?;
    Ok(())
}

/// Deletes the rows of a span.
pub(super) async fn drop_rows(
    door: &Door,
    caller: Identity,
    name: &TableName,
    span: &KeySpan,
) -> Result<(), SqlError> {
    let Found { table, .. } = find(door, caller, name)?;
    let names = Names::of(&table)?;
    let query = match *span == KeySpan::all() {
        true => Some(Query { text: format!("TRUNCATE TABLE {}", names.table), values: Vec::new() }),
        false => names.deletion(span),
    };
    match query {
        Some(query) => run(door, caller, &table, &query).await,
        None => Ok(()),
    }
}

/// Runs a statement that has no rows.
async fn run(door: &Door, caller: Identity, table: &Table, query: &Query) -> Result<(), SqlError> {
    let session = door.session(caller, &table.database, super::APPLICATION)?;
    match query.run(&session).await? {
        Output::Done { .. } => Ok(()),
        _ => Err(SqlError::internal("a statement has rows")),
    }
}

/// Starts of the partitions, and the end of the table, with the bytes before them as far as they are known.
pub(super) async fn samples(
    door: &Door,
    caller: Identity,
    name: &TableName,
) -> Result<Vec<KeySample>, SqlError> {
    let Found { table, .. } = find(door, caller, name)?;
    let _permit = permit(door, caller, &table, &[Action::Select])?;
    let report = door.frontend.load().await;
    let loads = report.iter().flat_map(|report| &report.partitions);
    let sizes: HashMap<_, _> = loads.map(|load| (load.partition, load.size_bytes)).collect();
    let mut samples = Vec::new();
    let mut bytes = 0_u64;
    for route in table.partitions.routes() {
        let key = match route.range.start.key.first() {
            Some(Value::Binary(key)) => Bytes::copy_from_slice(key),
            Some(Value::String(key)) => Bytes::copy_from_slice(key.as_bytes()),
            // The beginning, or a bucket of a table that is not placed by ranges of its keys.
            _ => Bytes::new(),
        };
        if !key.is_empty() {
            samples.push(KeySample { key, bytes });
        }
        bytes = bytes.saturating_add(sizes.get(&route.partition).copied().unwrap_or_default());
    }
    samples.push(KeySample { key: Bytes::new(), bytes });
    // Each hash bucket covers the whole range of keys, so the starts are not in one order: only the end remains.
    if table.placement != Placement::Range {
        samples.drain(..samples.len() - 1);
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use partita_proto::wide::GcRule;

    use super::*;

    fn family(name: &str, gc: Option<GcRule>) -> Family {
        Family { name: name.to_owned(), gc, aggregate: None }
    }

    #[test]
    fn a_new_table_is_a_wide_one() {
        let schema = schema(vec![family("f", Some(GcRule::MaxVersions(1)))]);
        schema.validate().unwrap();
        assert_eq!((schema.key.len(), schema.next_column), (KEY_COLUMNS, ColumnId(5)));
    }
}

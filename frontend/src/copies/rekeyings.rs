//! `sys.rekeyings`: the tables that the viewer may read and that get another key.

use std::collections::BTreeMap;

use arrow::record_batch::RecordBatch;
use partita_proto::access::Sight;
use partita_proto::catalog::Table;
use partita_proto::materialized::{CopyOf, CopyState, Rekeying};

use crate::access::viewer::Viewer;
use crate::error::SqlError;
use crate::virtual_table::{Cell, Kind, batch, schema};

/// Columns of `sys.rekeyings`.
pub(crate) const REKEYINGS: &[(&str, Kind)] = &[
    ("database", Kind::Text),
    ("table", Kind::Text),
    ("rekeyed", Kind::Text),
    ("state", Kind::Text),
    ("key", Kind::Text),
    ("placement", Kind::Text),
    ("partitions", Kind::Count),
    ("rows", Kind::Count),
    ("rows_per_second", Kind::Count),
    ("fills", Kind::Count),
    ("reason", Kind::Text),
];

/// Rows of `sys.rekeyings`, from the catalog alone. Rows copied are those that the filler told last.
pub(crate) fn rows(viewer: &Viewer) -> Result<RecordBatch, SqlError> {
    let catalog = viewer.catalog();
    let mut rows = Vec::new();
    for table in catalog.tables.values().flat_map(BTreeMap::values) {
        let Some((copy, rekeying)) = rekeying(table) else { continue };
        let Some(source) = catalog.table_by_id(copy.source) else { continue };
        // Partitions follow from rows, so those who do not see all rows see no figure.
        let is_measured = match viewer.sight_of(source.id) {
            Sight::All => true,
            Sight::Rows(_) => false,
            Sight::Names | Sight::None => continue,
        };
        // A table that was switched has the layout, and the other one the former partitions.
        let rekeyed = if copy.state == CopyState::Retired { source } else { table };
        let key: Vec<&str> =
            rekeyed.schema.key_columns().map(|column| column.name.as_str()).collect();
        let partitions = rekeyed.partitions.routes().len();
        let placement = rekeyed.placement.to_sql(&rekeyed.schema, partitions);
        rows.push(vec![
            table.database.as_str().into(),
            source.name.as_str().into(),
            table.name.as_str().into(),
            state_name(copy, rekeying).into(),
            key.join(", ").into(),
            placement.filter(|_| is_measured).into(),
            Cell::Count(is_measured.then_some(partitions as u64)),
            Cell::Count(is_measured.then_some(rekeying.rows)),
            Cell::Count(Some(rekeying.rows_per_second).filter(|bound| *bound > 0)),
            u64::from(copy.fills).into(),
            copy.reason.clone().into(),
        ]);
    }
    batch(&schema(REKEYINGS), rows)
}

fn rekeying(table: &Table) -> Option<(&CopyOf, Rekeying)> {
    let copy = table.copy.as_deref()?;
    Some((copy, copy.rekeying?))
}

fn state_name(copy: &CopyOf, rekeying: Rekeying) -> &'static str {
    match copy.state {
        CopyState::Filling | CopyState::InStep | CopyState::Lost if rekeying.is_paused => "paused",
        state => state.name(),
    }
}

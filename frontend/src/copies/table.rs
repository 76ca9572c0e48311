//! `sys.copies`: the materialized copies of the tables that the viewer may read.

use std::collections::BTreeMap;

use arrow::record_batch::RecordBatch;
use partita_proto::access::Sight;

use super::Copies;
use crate::access::viewer::Viewer;
use crate::error::SqlError;
use crate::virtual_table::{Cell, Kind, batch, schema};

/// Columns of `sys.copies`.
pub(crate) const COPIES: &[(&str, Kind)] = &[
    ("database", Kind::Text),
    ("table", Kind::Text),
    ("copy", Kind::Text),
    ("state", Kind::Text),
    ("key", Kind::Text),
    ("partitions", Kind::Count),
    ("shipped_partitions", Kind::Count),
    ("fills", Kind::Count),
    ("reason", Kind::Text),
];

/// Rows of `sys.copies`. The state is that of the catalog; how far a copy is filled is known to the frontend that fills it.
pub(crate) fn rows(copies: &Copies, viewer: &Viewer) -> Result<RecordBatch, SqlError> {
    let catalog = viewer.catalog();
    let filled = copies.filled();
    let mut rows = Vec::new();
    for table in catalog.tables.values().flat_map(BTreeMap::values) {
        let Some(copy) = table.copy.as_ref().filter(|copy| !copy.is_rekeying()) else { continue };
        let Some(source) = catalog.table_by_id(copy.source) else { continue };
        // Partitions follow from rows, so those who do not see all rows see no figure.
        let is_measured = match viewer.sight_of(source.id) {
            Sight::All => true,
            Sight::Rows(_) => false,
            Sight::Names | Sight::None => continue,
        };
        let key: Vec<&str> =
            table.schema.key_columns().map(|column| column.name.as_str()).collect();
        let partitions = table.partitions.routes().len() as u64;
        rows.push(vec![
            table.database.as_str().into(),
            source.name.as_str().into(),
            table.name.as_str().into(),
            copy.state.name().into(),
            key.join(", ").into(),
            Cell::Count(is_measured.then_some(partitions)),
            Cell::Count(filled.get(&table.id).copied().filter(|_| is_measured)),
            u64::from(copy.fills).into(),
            copy.reason.clone().into(),
        ]);
    }
    batch(&schema(COPIES), rows)
}

//! `sys.large_rows`: the largest rows of wide tables, by the reports of the partitions' leaders.
//!
//! Sizes are those of the stored cells, uncompressed, garbage included that is not yet removed. The keys are values of rows,
//! so the catalog must have only tables of which the viewer sees all rows.

use std::collections::BTreeMap;

use arrow::record_batch::RecordBatch;
use partita_proto::catalog::{Catalog, Table};
use partita_proto::measure::RowSize;
use partita_proto::value::Value;
use partita_proto::wide::Wide;

use crate::columns::merged;
use crate::error::SqlError;
use crate::statuses::measured_statuses;
use crate::view::ClusterView;
use crate::virtual_table::{Cell, Kind, batch, schema};

/// Columns of `sys.large_rows`.
pub(crate) const LARGE_ROWS: &[(&str, Kind)] = &[
    ("database", Kind::Text),
    ("table", Kind::Text),
    ("row_key", Kind::Text),
    ("bytes", Kind::Count),
    ("cells", Kind::Count),
    ("row_size_warn", Kind::Count),
    ("row_size_max", Kind::Count),
    ("state", Kind::Text),
];

/// Rows of `sys.large_rows` for the wide tables of a catalog: of each table the rows that are reported as large, the
/// largest first.
pub(crate) async fn large_rows(
    view: &ClusterView,
    catalog: &Catalog,
) -> Result<RecordBatch, SqlError> {
    let statuses = measured_statuses(view.nodes().as_ref()).await;
    let mut rows = Vec::new();
    for table in catalog.tables.values().flat_map(BTreeMap::values) {
        let Some(wide) = &table.schema.options.wide else { continue };
        let (report, _) = merged(table, &statuses);
        let is_large = |(_, size): &(&Value, &RowSize)| size.bytes >= wide.row_bytes_warn;
        let mut large: Vec<(&Value, &RowSize)> =
            report.measures.large_rows.iter().filter(is_large).collect();
        large.sort_by_key(|(_, size)| std::cmp::Reverse(size.bytes));
        rows.extend(large.into_iter().map(|(row_key, size)| cells(table, wide, row_key, *size)));
    }
    batch(&schema(LARGE_ROWS), rows)
}

fn cells(table: &Table, wide: &Wide, row_key: &Value, size: RowSize) -> Vec<Cell> {
    let key_text = match row_key {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let state = if size.bytes > wide.row_bytes_max { "full" } else { "large" };
    vec![
        table.database.clone().into(),
        table.name.clone().into(),
        key_text.into(),
        size.bytes.into(),
        size.cells.into(),
        wide.row_bytes_warn.into(),
        wide.row_bytes_max.into(),
        state.into(),
    ]
}

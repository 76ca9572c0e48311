//! Rows of a wide table that take no more cells, because they are larger than the table allows.
//!
//! ```text
//!   footers of files ── largest rows, every few seconds ── those beyond row_size_max ── writes are refused before the log
//! ```
//!
//! What counts is in files: a row may exceed its limit by what a memtable holds. Deletes are never refused, and a row that
//! has become smaller by them takes cells again when compaction has removed what they delete. A repeated write that was
//! taken is no new one: it is answered as the first (`closed.rs`), also if its row has become full meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::record_batch::RecordBatch;
use parking_lot::Mutex;
use partita_engine::Partition;
use partita_proto::error::Error;
use partita_proto::schema::TableSchema;
use partita_proto::service::{REMOVED_COLUMN, WriteKind};
use partita_proto::value::Value;

/// Row keys of full rows, each with the size of its row.
#[derive(Debug, Default)]
pub(crate) struct FullRows(Mutex<Arc<BTreeMap<Value, u64>>>);

impl FullRows {
    /// Looks at the sizes of the rows in files.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn refresh(&self, partition: &Partition) -> Result<(), Error> {
        let config = partition.config();
        let Some(wide) = &config.schema.options.wide else { return Ok(()) };
        let rows = partition.large_rows().await?;
        let full = rows.iter().filter(|(_, size)| size.bytes > wide.row_bytes_max);
        let full = full.map(|(row_key, size)| (row_key.clone(), size.bytes)).collect();
        *self.0.lock() = Arc::new(full);
        Ok(())
    }

    /// Refuses rows that add cells to a full row.
    ///
    /// # Errors
    /// [`Error::LimitReached`] that names the row.
    pub(crate) fn check(
        &self,
        schema: &TableSchema,
        kind: WriteKind,
        rows: &RecordBatch,
    ) -> Result<(), Error> {
        let Some(wide) = &schema.options.wide else { return Ok(()) };
        let full = Arc::clone(&self.0.lock());
        if full.is_empty() || kind == WriteKind::Delete {
            return Ok(());
        }
        let row_key = schema.key_columns().next();
        let row_keys = row_key.and_then(|column| rows.column_by_name(&column.storage_name));
        let Some(row_keys) = row_keys else { return Ok(()) };
        let removed = rows.column_by_name(REMOVED_COLUMN);
        let removed = removed.and_then(|column| column.as_boolean_opt());
        for row in 0..rows.num_rows() {
            if removed.is_some_and(|removed| removed.value(row)) {
                continue;
            }
            let row_key = Value::from_array(row_keys.as_ref(), row)?;
            if let Some(bytes) = full.get(&row_key) {
                return Err(Error::LimitReached {
                    message: format!(
                        "row {row_key} of {bytes} bytes exceeds the limit of {} bytes ('row_size_max')",
                        wide.row_bytes_max
                    ),
                    hint: "Use a smaller time bucket in the row key, or delete cells.".to_owned(),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, BooleanArray, StringViewArray};
    use partita_proto::schema::{ColumnType, TableOptions};
    use partita_proto::wide::{Wide, columns};

    use super::*;
    use crate::tests::schema;

    #[test]
    fn a_full_row_takes_deletes_only() {
        let schema = TableSchema {
            columns: columns(ColumnType::String),
            key: (0..4).map(partita_proto::id::ColumnId).collect(),
            options: TableOptions {
                wide: Some(Wide { row_bytes_max: 100, ..Wide::default() }),
                ..TableOptions::default()
            },
            ..schema(false)
        };
        let full = FullRows::default();
        let row_keys: ArrayRef = Arc::new(StringViewArray::from(vec!["small", "large"]));
        let rows = RecordBatch::try_from_iter([("row_key", Arc::clone(&row_keys))]).unwrap();
        assert_eq!(full.check(&schema, WriteKind::Put, &rows), Ok(()));
        let large = Value::String("large".to_owned());
        *full.0.lock() = Arc::new(BTreeMap::from([(large, 101)]));
        let error = full.check(&schema, WriteKind::Put, &rows).unwrap_err();
        assert_eq!(
            error.to_string(),
            "row 'large' of 101 bytes exceeds the limit of 100 bytes ('row_size_max')"
        );
        assert_eq!(full.check(&schema, WriteKind::Put, &rows.slice(0, 1)), Ok(()));
        assert_eq!(full.check(&schema, WriteKind::Delete, &rows), Ok(()));
        let removed: ArrayRef = Arc::new(BooleanArray::from(vec![false, true]));
        let rows =
            RecordBatch::try_from_iter([("row_key", row_keys), (REMOVED_COLUMN, removed)]).unwrap();
        assert_eq!(full.check(&schema, WriteKind::Put, &rows), Ok(()));
    }
}

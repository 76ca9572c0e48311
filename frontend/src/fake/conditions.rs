//! Writes under conditions: every partition knows the last write of each key.

use arrow::array::AsArray;
use arrow::compute::{filter_record_batch, not};
use arrow::record_batch::RecordBatch;
use partita_proto::Error;
use partita_proto::key::PLACEMENT_COLUMN;
use partita_proto::schema::MergeMode;
use partita_proto::service::{REMOVED_COLUMN, WriteKind, WriteRequest};

use super::{Partition, internal};

impl Partition {
    /// True if a write has no condition, or one that holds.
    pub(super) fn admits(&self, request: &WriteRequest) -> Result<bool, Error> {
        let Some(condition) = &request.condition else { return Ok(true) };
        let keys = self.codec.encode(&request.rows)?;
        let is_older =
            |key: &[u8]| self.written.get(key).is_none_or(|index| *index <= condition.index);
        let is_row_older = |key: &[u8]| {
            let row = self.codec.first_cells(key, 1).unwrap_or(key);
            let mut cells = self.written.iter().filter(|(written, _)| written.starts_with(row));
            cells.all(|(_, index)| *index <= condition.index)
        };
        let by_row = condition.by_row && self.table.schema.options.wide.is_some();
        let is_current =
            condition.epoch == self.epoch && condition.schema >= self.table.schema.version;
        let holds = if by_row { keys.iter().all(is_row_older) } else { keys.iter().all(is_older) };
        Ok(is_current && holds)
    }

    /// Effects of a write, in order.
    pub(super) fn effects(
        &self,
        request: &WriteRequest,
    ) -> Result<Vec<(WriteKind, RecordBatch)>, Error> {
        let mut rows = request.rows.clone();
        if request.condition.is_none() || request.kind == WriteKind::Delete {
            return Ok(vec![(request.kind, rows)]);
        }
        let mut effects = Vec::new();
        if let Ok(column) = rows.schema_ref().index_of(REMOVED_COLUMN) {
            let removed = rows.remove_column(column).as_boolean().clone();
            let removed_rows = filter_record_batch(&rows, &removed).map_err(internal)?;
            effects.push((WriteKind::Delete, self.keys_of(&removed_rows)?));
            let mask = not(&removed).map_err(internal)?;
            rows = filter_record_batch(&rows, &mask).map_err(internal)?;
        }
        if self.table.schema.options.merge_mode == MergeMode::LastNonNull {
            effects.push((WriteKind::Delete, self.keys_of(&rows)?));
        }
        effects.push((WriteKind::Put, rows));
        Ok(effects)
    }

    fn keys_of(&self, rows: &RecordBatch) -> Result<RecordBatch, Error> {
        let is_key = |name: &str| {
            let mut key = self.table.schema.key_columns();
            name == PLACEMENT_COLUMN || key.any(|column| column.storage_name == name)
        };
        let fields = rows.schema_ref().fields().iter().enumerate();
        let positions = fields.filter(|(_, field)| is_key(field.name()));
        let positions: Vec<usize> = positions.map(|(position, _)| position).collect();
        rows.project(&positions).map_err(internal)
    }
}

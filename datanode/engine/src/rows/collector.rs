//! Garbage among the cells of a wide table: cells that the rule of their family collects, and those of families that the
//! table no longer has.
//!
//! Cells come in key order: those of a column one after the other, newest first. So the number of a cell among the versions
//! of its column is counted as it comes, over any number of batches. A deleted cell has no number.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{TimestampMicrosecondType, UInt8Type};
use arrow::record_batch::RecordBatch;
use partita_proto::wide::{GcRule, Version, Wide};

use crate::error::{EngineError, Result};
use crate::rows::fold::DELETE;
use crate::rows::layout::{Layout, OP_COLUMN};

/// Number of columns of the key that name a column of a row: row key, family and qualifier.
const COLUMN_PARTS: usize = 3;

/// Finds garbage in cells that come in key order.
#[derive(Clone, Debug)]
pub(crate) struct Collector {
    wide: Arc<Wide>,
    /// Storage names of row key, family, qualifier and timestamp.
    names: Vec<String>,
    now_us: i64,
    /// Column of the last cell of the batch before.
    last: Option<[Vec<u8>; COLUMN_PARTS]>,
    verdict: Verdict,
    /// Cells of the current column that came already.
    versions: u64,
}

/// Rule for the cells of the current column.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    KeepAll,
    /// The family does not exist.
    DropAll,
    Rule(GcRule),
}

impl Collector {
    /// Collector of what is garbage at a time; `None` if the table is no wide one.
    pub(crate) fn new(layout: &Layout, now_ms: i64) -> Option<Self> {
        let wide = layout.config.schema.options.wide.as_ref()?;
        Some(Self {
            wide: Arc::new(wide.clone()),
            names: layout.codec.key_columns().to_vec(),
            now_us: now_ms.saturating_mul(1000),
            last: None,
            verdict: Verdict::KeepAll,
            versions: 0,
        })
    }

    /// True if a stored column is a part of the name of a cell's column: all versions of a column agree in it.
    pub(crate) fn is_part(&self, name: &str) -> bool {
        self.names.iter().take(COLUMN_PARTS).any(|part| part == name)
    }

    /// True if all versions of a column have to be seen.
    pub(crate) fn counts_versions(&self) -> bool {
        self.wide.counts_versions()
    }

    /// The cells of the next batch that are no garbage.
    ///
    /// # Errors
    /// When the batch lacks a column of the key.
    pub(crate) fn collect(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let mask = self.mask(&batch)?;
        if mask.true_count() == mask.len() {
            return Ok(batch);
        }
        Ok(filter_record_batch(&batch, &mask)?)
    }

    /// True for each cell that is no garbage.
    fn mask(&mut self, batch: &RecordBatch) -> Result<BooleanArray> {
        let parts = [0, 1, 2].map(|part| self.column(batch, part));
        let [row_keys, families, qualifiers] = parts;
        let parts = [row_keys?, families?, qualifiers?];
        let times = self.column(batch, COLUMN_PARTS)?;
        let times = times
            .as_primitive_opt::<TimestampMicrosecondType>()
            .ok_or_else(|| EngineError::Internal("cells have no timestamps".to_owned()))?;
        let ops = batch.column_by_name(OP_COLUMN).map(|ops| ops.as_primitive::<UInt8Type>());
        let mut mask = BooleanBufferBuilder::new(batch.num_rows());
        for row in 0..batch.num_rows() {
            let column = parts.map(|part| bytes(part, row));
            let is_same = match row.checked_sub(1) {
                Some(previous) => parts.map(|part| bytes(part, previous)) == column,
                None => self
                    .last
                    .as_ref()
                    .is_some_and(|last| last.iter().zip(column).all(|(last, part)| last == part)),
            };
            if !is_same {
                self.enter(column[1]);
            }
            if ops.is_some_and(|ops| ops.value(row) == DELETE) {
                mask.append(true);
                continue;
            }
            self.versions += 1;
            let version = Version { number: self.versions, timestamp: times.value(row) };
            mask.append(match &self.verdict {
                Verdict::KeepAll => true,
                Verdict::DropAll => false,
                Verdict::Rule(rule) => !rule.collects(version, self.now_us),
            });
        }
        if let Some(row) = batch.num_rows().checked_sub(1) {
            self.last = Some(parts.map(|part| bytes(part, row).to_vec()));
        }
        Ok(BooleanArray::new(mask.finish(), None))
    }

    /// Begins a column of a family.
    fn enter(&mut self, family: &[u8]) {
        self.versions = 0;
        let family = std::str::from_utf8(family).ok().and_then(|name| self.wide.family(name));
        self.verdict = match family {
            None => Verdict::DropAll,
            Some(family) => match &family.gc {
                None => Verdict::KeepAll,
                Some(rule) => Verdict::Rule(rule.clone()),
            },
        };
    }

    fn column<'b>(&self, batch: &'b RecordBatch, position: usize) -> Result<&'b ArrayRef> {
        let name = self.names.get(position);
        let column = name.and_then(|name| batch.column_by_name(name));
        column.ok_or_else(|| EngineError::Internal("cells lack a column of their key".to_owned()))
    }
}

/// Bytes of a text or binary value; none of NULL.
fn bytes(column: &ArrayRef, row: usize) -> &[u8] {
    if column.is_null(row) {
        return &[];
    }
    match (column.as_string_view_opt(), column.as_binary_view_opt()) {
        (Some(texts), _) => texts.value(row).as_bytes(),
        (None, Some(bytes)) => bytes.value(row),
        (None, None) => &[],
    }
}

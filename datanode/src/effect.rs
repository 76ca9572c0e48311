//! Effect of an entry of writes: which of its parts take effect, and what the engine is given for them.
//!
//! A part that was taken before has no effect. One under a condition takes effect as a whole or not at all, by the keys
//! that were written since its sender read them (`tracked.rs`). In a wide table the row of each cell is a key of its own: a
//! condition of a row holds if no cell of it was written.

use arrow::array::{AsArray, BooleanArray};
use arrow::compute::{concat_batches, filter_record_batch, not};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use partita_engine::{Partition, PartitionConfig};
use partita_proto::key::{KeyCodec, Keys, PLACEMENT_COLUMN};
use partita_proto::schema::MergeMode;
use partita_proto::service::{REMOVED_COLUMN, WriteKind};
use partita_proto::wire::{WriteCommand, WritePart};
use partita_raft::MachineError;

use crate::reply::{PartResult, Refusal};
use crate::requests::{Known, Requests, Shipping};
use crate::rows::Rows;

/// Effect of an entry of writes.
#[derive(Default)]
pub(crate) struct Effect {
    /// Writes for the engine, in order.
    pub(crate) writes: Vec<(WriteKind, RecordBatch)>,
    /// Result of each part.
    pub(crate) results: Vec<PartResult>,
    /// Rows of the parts that take effect.
    pub(crate) rows: u64,
}

/// Effect of an entry without conditions.
pub(crate) fn plain(
    requests: &mut Requests,
    index: u64,
    write: WriteCommand,
) -> Result<Effect, MachineError> {
    let mut batches = Rows::decode(write.rows)?;
    let mut effect = Effect::default();
    // Consecutive parts of one kind are counted before they are cut out: a thousand single-row writes that share a
    // proposal reach the memtable as the one batch they were decoded as.
    let mut fresh: Option<(WriteKind, usize)> = None;
    for part in write.parts {
        let count = part.rows as usize;
        let (is_new, result) = accept(requests, &part, index);
        effect.results.push(result);
        if !is_new {
            effect.writes.extend(batches.take_fresh(fresh.take())?);
            batches.take(count)?;
            continue;
        }
        effect.rows += u64::from(part.rows);
        fresh = match fresh {
            Some((kind, rows_before)) if kind == part.kind => Some((kind, rows_before + count)),
            pending => {
                effect.writes.extend(batches.take_fresh(pending)?);
                Some((part.kind, count))
            }
        };
    }
    effect.writes.extend(batches.take_fresh(fresh)?);
    batches.finish()?;
    Ok(effect)
}

/// Decides whether a part of an entry takes effect, and remembers it; with its result.
fn accept(requests: &mut Requests, part: &WritePart, index: u64) -> (bool, PartResult) {
    // Rows of a source are identified by their position, not by their sender.
    if let Some(ship) = &part.ship {
        return match requests.ship(ship) {
            Shipping::Take => (true, Ok(Some(index))),
            Shipping::Taken => (false, Ok(Some(index))),
            Shipping::Ahead(stored) => (false, Err(Refusal::Ahead(stored))),
        };
    }
    match requests.known(part.id, &part.earlier) {
        Known::New => {
            requests.insert(part.id, index);
            (true, Ok(Some(index)))
        }
        Known::Taken(first) => (false, Ok(Some(first))),
        Known::Perhaps => (false, Ok(None)),
    }
}

/// Effect of an entry in which parts have conditions; the keys of its rows are noted. `is_applied`: the engine has the
/// entry already.
pub(crate) fn decide(
    partition: &Partition,
    requests: &mut Requests,
    index: u64,
    write: WriteCommand,
    is_applied: bool,
) -> Result<Effect, MachineError> {
    let (config, codec) = (partition.config(), partition.codec());
    let mut rows = Rows::decode(write.rows)?;
    let mut effect = Effect::default();
    for part in write.parts {
        let batch = joined(&rows.take(part.rows as usize)?)?;
        let Some(condition) = &part.condition else {
            let (is_new, result) = accept(requests, &part, index);
            effect.results.push(result);
            if let Some(batch) = batch.filter(|_| is_new) {
                if !is_applied {
                    let keys = keys(&codec, &batch)?;
                    requests.wrote(index, &tracked_keys(&config, &codec, &keys)?);
                }
                effect.rows += u64::from(part.rows);
                effect.writes.push((part.kind, batch));
            }
            continue;
        };
        let result = match (requests.known(part.id, &part.earlier), batch) {
            (Known::Taken(first), _) => Ok(Some(first)),
            (Known::Perhaps, _) => Ok(None),
            // Nothing to write: no key can have changed.
            (Known::New, None) => Ok(Some(index)),
            // One that had taken effect would be known.
            (Known::New, Some(_)) if is_applied => Err(Refusal::Changed),
            (Known::New, Some(batch)) => {
                let keys = keys(&codec, &batch)?;
                let current = (config.epoch, config.schema.version);
                let tracked = tracked_keys(&config, &codec, &keys)?;
                let of_rows = condition.by_row.then(|| row_keys(&config, &codec, &keys));
                let of_rows = of_rows.transpose()?;
                let conditional = of_rows.as_ref().unwrap_or(&keys);
                if requests.wrote_if(index, current, condition, (conditional, &tracked)) {
                    requests.insert(part.id, index);
                    effect.rows += u64::from(part.rows);
                    effect.writes.extend(replaced(&config, part.kind, batch).map_err(arrow)?);
                    Ok(Some(index))
                } else {
                    Err(Refusal::Changed)
                }
            }
        };
        effect.results.push(result);
    }
    rows.finish()?;
    Ok(effect)
}

/// The rows of a part in one batch; `None` without rows.
fn joined(batches: &[RecordBatch]) -> Result<Option<RecordBatch>, MachineError> {
    match batches {
        [] => Ok(None),
        [batch] => Ok(Some(batch.clone())),
        [first, ..] => concat_batches(first.schema_ref(), batches).map(Some).map_err(arrow),
    }
}

fn keys(codec: &KeyCodec, batch: &RecordBatch) -> Result<Keys, MachineError> {
    codec.encode(batch).map_err(|error| MachineError(error.to_string()))
}

/// Keys by which conditions of later writes are decided: those of the rows, and in a wide table the rows of the cells.
pub(crate) fn tracked_keys(
    config: &PartitionConfig,
    codec: &KeyCodec,
    keys: &Keys,
) -> Result<Keys, MachineError> {
    if config.schema.options.wide.is_none() {
        return Ok(keys.clone());
    }
    let rows = row_keys(config, codec, keys)?;
    Ok(Keys::from_encoded(keys.iter().chain(rows.iter())))
}

/// The beginnings of cells' keys that name their rows, each once where they follow each other; the keys themselves in a
/// table that is no wide one.
fn row_keys(config: &PartitionConfig, codec: &KeyCodec, keys: &Keys) -> Result<Keys, MachineError> {
    if config.schema.options.wide.is_none() {
        return Ok(keys.clone());
    }
    let rows = keys.iter().map(|key| codec.first_cells(key, 1));
    let rows: Result<Vec<&[u8]>, _> = rows.collect();
    let mut rows = rows.map_err(|error| MachineError(error.to_string()))?;
    rows.dedup();
    Ok(Keys::from_encoded(rows))
}

/// Writes for the engine of a conditional write that takes effect: first the keys that are deleted, then the rows.
/// Where fields keep their newest value, a whole row replaces another one after a delete.
fn replaced(
    config: &PartitionConfig,
    kind: WriteKind,
    batch: RecordBatch,
) -> Result<Vec<(WriteKind, RecordBatch)>, ArrowError> {
    if kind == WriteKind::Delete {
        return Ok(vec![(kind, batch)]);
    }
    let options = &config.schema.options;
    let folds_fields = !options.append_mode && options.merge_mode == MergeMode::LastNonNull;
    let mut rows = batch;
    let mut deleted = Vec::new();
    if let Ok(column) = rows.schema_ref().index_of(REMOVED_COLUMN) {
        let removed: BooleanArray = rows.remove_column(column).as_boolean().clone();
        deleted.push(key_columns(config, &filter_record_batch(&rows, &removed)?)?);
        rows = filter_record_batch(&rows, &not(&removed)?)?;
    }
    if folds_fields {
        deleted.push(key_columns(config, &rows)?);
    }
    let deletes = deleted.into_iter().map(|keys| (WriteKind::Delete, keys));
    let writes = deletes.chain([(WriteKind::Put, rows)]);
    Ok(writes.filter(|(_, rows)| rows.num_rows() > 0).collect())
}

/// The columns from which keys are encoded.
fn key_columns(config: &PartitionConfig, rows: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let is_key = |name: &str| {
        name == PLACEMENT_COLUMN
            || config.schema.key_columns().any(|column| column.storage_name == name)
    };
    let fields = rows.schema_ref().fields().iter().enumerate();
    let positions: Vec<usize> =
        fields.filter(|(_, field)| is_key(field.name())).map(|(position, _)| position).collect();
    rows.project(&positions)
}

fn arrow(error: ArrowError) -> MachineError {
    MachineError(error.to_string())
}

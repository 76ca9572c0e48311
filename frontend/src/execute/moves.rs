//! Rows of an UPDATE whose key changes: each is stored under its new key and removed under the former one.
//!
//! ```text
//!   same partition     one write: new row, former key
//!   other partition    new row ──▶ former key ──▶ done
//!                                      └─ refused: the new row is taken back, if nobody has written it since
//! ```
//!
//! A new key must be free: a row with it is an error (23505), also if the statement would move that row too, as mostly in
//! PostgreSQL. Like every write, a move within one partition is atomic, and one between two partitions is not: a scan
//! between both steps sees the row twice, and after a failure it may be stored under both keys; it is never lost.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, UInt32Array, new_null_array};
use arrow::compute::{concat_batches, filter_record_batch, not, take_record_batch};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;
use futures::StreamExt;
use partita_proto::catalog::Table;
use partita_proto::key::Keys;
use partita_proto::route::Cut;
use partita_proto::service::{REMOVED_COLUMN, WriteKind};
use partita_proto::value::Value;
use partita_sql::identifier::quote;
use partita_sql::parser;
use partita_sql::statement::Statement;
use partita_sql::update_rows::key_condition;

use super::query::{Source, Target};
use super::round::{NAMED_KEYS_MAX, Pass, Round, contended, given_keys, key_values};
use crate::error::SqlError;
use crate::ingest::plan::Completed;
use crate::ingest::size::slices;
use crate::reads::Reads;
use crate::session::Session;

/// Maximum bytes of rows that are moved at once: each partition gets them in one request.
const MOVED_BYTES_MAX: usize = 2 << 20;
/// SQLSTATE of a key that exists.
const UNIQUE_VIOLATION: &str = "23505";
/// Advice after a move between partitions that ended early.
const BOTH_KEYS: &str = "rows that were moved may also be stored under their former keys";

/// Rows to move, by storage name: their keys from before, and as they become.
struct Moved {
    old: RecordBatch,
    new: RecordBatch,
}

impl Moved {
    fn filter(&self, mask: &BooleanArray) -> Result<Self, SqlError> {
        let (old, new) = (&self.old, &self.new);
        Ok(Self { old: filter_record_batch(old, mask)?, new: filter_record_batch(new, mask)? })
    }
}

impl Session {
    /// Writes rows with their new values, some of which have another key now. `old` has the keys from before.
    pub(super) async fn move_rows(
        &self,
        round: &mut Round<'_>,
        old: RecordBatch,
        completed: Completed,
    ) -> Result<(), SqlError> {
        self.frontend().router().count(&round.table, &completed);
        let new = completed.rows;
        let (old_keys, new_keys) = (round.keys(&old)?, round.keys(&new)?);
        let stays: BooleanArray =
            old_keys.iter().zip(new_keys.iter()).map(|(old, new)| Some(old == new)).collect();
        if stays.true_count() > 0 {
            let rows = filter_record_batch(&new, &stays)?;
            self.write_rows(round, Completed::counted(rows)).await?;
        }
        let Moved { old, new } = Moved { old, new }.filter(&not(&stays)?)?;
        let mut start = 0;
        for new in slices(new, MOVED_BYTES_MAX) {
            let old = old.slice(start, new.num_rows());
            start += new.num_rows();
            if new.num_rows() > 0 {
                self.move_some(round, &Moved { old, new }).await?;
            }
        }
        Ok(())
    }

    async fn move_some(&self, round: &mut Round<'_>, moved: &Moved) -> Result<(), SqlError> {
        self.check_unused(round, &moved.new).await?;
        let old_positions = positions(round, &round.keys(&moved.old)?);
        let new_positions = positions(round, &round.keys(&moved.new)?);
        let stays_within: BooleanArray =
            old_positions.iter().zip(&new_positions).map(|(old, new)| Some(old == new)).collect();
        if stays_within.true_count() > 0 {
            self.move_within(round, &moved.filter(&stays_within)?).await?;
        }
        if stays_within.false_count() > 0 {
            let across = moved.filter(&not(&stays_within)?)?;
            self.move_across(round, across).await.map_err(|error| error.with_hint(BOTH_KEYS))?;
        }
        Ok(())
    }

    /// Moves rows within their partitions.
    async fn move_within(&self, round: &mut Round<'_>, moved: &Moved) -> Result<(), SqlError> {
        let reads = Arc::new(round.reads.fork());
        let refused = self.write_if(round, WriteKind::Put, with_removed(moved)?, &reads).await?;
        let mut former = Vec::with_capacity(refused.len());
        for rows in refused {
            let removed = rows.column_by_name(REMOVED_COLUMN);
            let removed = removed.ok_or_else(|| SqlError::internal("moved rows without a mark"))?;
            let old = filter_record_batch(&rows, removed.as_boolean())?;
            round.refuse(&old)?;
            former.push(old);
        }
        let is_done = without(&round.keys(&moved.old)?, &keys_of(round, &former)?);
        round.changed += is_done.true_count() as u64;
        round.keep(&moved.new, &is_done)
    }

    /// Moves rows to other partitions.
    async fn move_across(&self, round: &mut Round<'_>, moved: Moved) -> Result<(), SqlError> {
        // Rows are stored under their new keys first: a failure loses none.
        let puts = Arc::new(round.reads.fork());
        let refused = self.write_if(round, WriteKind::Put, moved.new.clone(), &puts).await?;
        let stored = without(&round.keys(&moved.new)?, &keys_of(round, &refused)?);
        round.refuse(&moved.filter(&not(&stored)?)?.old)?;
        let moved = moved.filter(&stored)?;
        if moved.new.num_rows() == 0 {
            return Ok(());
        }
        let deletes = Arc::new(round.reads.fork());
        let refused = self.write_if(round, WriteKind::Delete, moved.old.clone(), &deletes).await?;
        let removed = without(&round.keys(&moved.old)?, &keys_of(round, &refused)?);
        round.changed += removed.true_count() as u64;
        round.keep(&moved.new, &removed)?;
        if removed.false_count() == 0 {
            return Ok(());
        }
        // Others have changed the rest since it was read, so what was stored is not what it should be.
        let Moved { old, new } = moved.filter(&not(&removed)?)?;
        round.refuse(&old)?;
        let keys = round.key_columns(&new)?;
        let back = Arc::new(puts.after_writes());
        match self.write_if(round, WriteKind::Delete, keys, &back).await?.is_empty() {
            true => Ok(()),
            false => Err(contended(&round.table)),
        }
    }

    /// Writes rows under the conditions of reads; returns those that were refused.
    async fn write_if(
        &self,
        round: &Round<'_>,
        kind: WriteKind,
        rows: RecordBatch,
        reads: &Arc<Reads>,
    ) -> Result<Vec<RecordBatch>, SqlError> {
        self.write_under(round, kind, Completed::counted(rows), reads).await?;
        Ok(reads.take_refused())
    }

    /// Checks that no row has one of the new keys.
    ///
    /// # Errors
    /// 23505 with the key.
    async fn check_unused(&self, round: &Round<'_>, new: &RecordBatch) -> Result<(), SqlError> {
        let keys = round.keys(new)?;
        let mut new_key_set: HashSet<&[u8]> = HashSet::with_capacity(keys.len());
        if let Some(row) = (0..keys.len()).find(|row| !new_key_set.insert(keys.get(*row))) {
            return Err(taken(&round.table, new, row)?);
        }
        let columns = given_keys(&round.table);
        for start in (0..new.num_rows()).step_by(NAMED_KEYS_MAX) {
            let rows = new.slice(start, NAMED_KEYS_MAX.min(new.num_rows() - start));
            let values = key_values(&columns, &rows)?;
            let condition = key_condition(&round.table.name, &columns, &values);
            for existing in self.keys_where(round.pass(), condition.as_deref()).await? {
                let existing = existing.iter().find(|key| new_key_set.contains(key));
                if let Some(key) = existing {
                    let row = keys.iter().position(|new_key| new_key == key);
                    return Err(taken(&round.table, new, row.unwrap_or_default())?);
                }
            }
            // Without a condition all keys were read.
            if condition.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Keys of the rows that satisfy a condition on the key, or of all rows; noted as read.
    pub(super) async fn keys_where(
        &self,
        pass: Pass<'_>,
        condition: Option<&str>,
    ) -> Result<Vec<Keys>, SqlError> {
        let table = pass.table;
        let columns = pass.plan.delete_columns();
        let columns: Vec<_> = columns.iter().map(|name| quote(name)).collect();
        let columns = columns.join(", ");
        let mut text =
            format!("SELECT {columns} FROM {}.{}", quote(&table.database), quote(&table.name));
        if let Some(condition) = condition {
            text.push_str(" WHERE ");
            text.push_str(condition);
        }
        let Some(Statement::Query(query)) = parser::parse(&text)?.pop() else {
            return Err(SqlError::internal("the query of keys is no query"));
        };
        let target = Target {
            pinned: Some(table),
            reads: Some(pass.reads),
            // That a key exists is told by the error, as in PostgreSQL.
            unread: Some(table.id),
            ..Target::default()
        };
        let source = Source::Statement(&query.statement);
        let mut running = Box::pin(self.start(&source, target)).await?;
        let mut keys = Vec::new();
        while let Some(batch) = running.stream.next().await {
            keys.push(pass.keys(&pass.plan.complete_keys(&batch?)?.rows)?);
        }
        Ok(keys)
    }
}

/// Position of the partition of each key.
fn positions(round: &Round<'_>, keys: &Keys) -> Vec<usize> {
    match round.table.partitions.cut(keys) {
        Cut::One(position) => vec![position; keys.len()],
        Cut::Many(parts) => {
            let mut positions = vec![0; keys.len()];
            for (position, rows) in parts {
                rows.values().iter().for_each(|row| positions[*row as usize] = position);
            }
            positions
        }
    }
}

/// True for each key that is not in a set.
fn without(keys: &Keys, set: &HashSet<Box<[u8]>>) -> BooleanArray {
    keys.iter().map(|key| Some(!set.contains(key))).collect()
}

/// Keys of rows that were refused.
fn keys_of(round: &Round<'_>, refused: &[RecordBatch]) -> Result<HashSet<Box<[u8]>>, SqlError> {
    let mut keys = HashSet::new();
    for rows in refused {
        keys.extend(round.keys(rows)?.iter().map(Box::<[u8]>::from));
    }
    Ok(keys)
}

/// The new rows, each before its former key, which is marked as removed.
fn with_removed(moved: &Moved) -> Result<RecordBatch, SqlError> {
    let rows = moved.new.num_rows();
    let removed = |is_removed| Arc::new(BooleanArray::from(vec![is_removed; rows]));
    let mut fields = moved.new.schema_ref().fields().to_vec();
    fields.push(Arc::new(Field::new(REMOVED_COLUMN, DataType::Boolean, false)));
    let schema = Arc::new(Schema::new(fields));
    let mut new = moved.new.columns().to_vec();
    new.push(removed(false));
    let of_old = moved.new.schema_ref().fields().iter().map(|field| {
        let column = moved.old.column_by_name(field.name());
        column.map_or_else(|| new_null_array(field.data_type(), rows), Arc::clone)
    });
    let mut old: Vec<_> = of_old.collect();
    old.push(removed(true));
    let new = RecordBatch::try_new(Arc::clone(&schema), new)?;
    let old = RecordBatch::try_new(Arc::clone(&schema), old)?;
    let rows_of_both = concat_batches(&schema, [&new, &old])?;
    let count = u32::try_from(rows).map_err(|_| SqlError::internal("too many moved rows"))?;
    let order = UInt32Array::from_iter_values((0..count).flat_map(|row| [row, count + row]));
    Ok(take_record_batch(&rows_of_both, &order)?)
}

/// The error of a row whose new key exists.
pub(super) fn taken(table: &Table, new: &RecordBatch, row: usize) -> Result<SqlError, SqlError> {
    let columns: Vec<_> = table.schema.key_columns().collect();
    let values = key_values(&columns, &new.slice(row, 1))?;
    let values = values.into_iter().next().unwrap_or_default();
    let texts: Vec<String> = columns
        .iter()
        .zip(&values)
        .map(|(column, value)| match value {
            Value::String(text) => text.clone(),
            value => value.display(column.column_type).trim_matches('\'').to_owned(),
        })
        .collect();
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    let constraint = format!("{}_pkey", table.name);
    let message = format!("duplicate key value violates unique constraint \"{constraint}\"");
    Ok(SqlError::new(UNIQUE_VIOLATION, message).with_detail(format!(
        "Key ({})=({}) already exists.",
        names.join(", "),
        texts.join(", ")
    )))
}

//! Mutations of the rows of wide tables.
//!
//! ```text
//!   MutateRow(s) ─┬─ rows that only set cells ── batches of up to 4 MiB ──▶ ingest
//!                 └─ rows that delete or add ──── one by one ─────────────▶ Frontend::mutate_row
//!   CheckAndMutateRow, ReadModifyWriteRow ──────────────────────────────▶ the frontend's, for one row
//! ```
//!
//! Invariant: the cells of a row travel in one batch, which is too small to be cut: the row is changed as a whole.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryViewArray, BinaryViewBuilder, StringViewArray, StringViewBuilder,
    TimestampMicrosecondBuilder,
};
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use futures::{StreamExt, stream};
use partita_bigtable::{Cell, Check, Row, TableName};
use partita_frontend::SqlError;
use partita_frontend::wide::Cells;
use partita_proto::access::{Action, Identity, Permit};
use partita_proto::catalog::Table;
use partita_proto::schema::ColumnType;
use partita_proto::wide::{CellKey, CellMutation, ReadModify, RowMutation};
use tonic::Status;

use super::tables::{Found, find};
use crate::door::Door;
use crate::flight::status_of;
use crate::write_rights::need_of;

/// Bytes of the cells of a batch. The frontend cuts larger requests, wherever their rows end.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Bytes of a cell in a batch beside those of its parts, about.
const CELL_BYTES: usize = 64;
/// Rows that are changed one by one at the same time.
const ROWS_AT_ONCE: usize = 16;
/// SQLSTATE of a right that is missing.
const INSUFFICIENT_PRIVILEGE: &str = "42501";
/// SQLSTATE of a request that is too costly.
const PROGRAM_LIMIT_EXCEEDED: &str = "54000";

/// The permit for actions on a table.
///
/// # Errors
/// When an action is not allowed, or is allowed for some rows of the table only.
pub(super) fn permit(
    door: &Door,
    caller: Identity,
    table: &Arc<Table>,
    actions: &[Action],
) -> Result<Permit, SqlError> {
    let needs = actions.iter().map(|action| need_of(&door.frontend, *action, table));
    let needs = needs.collect::<Result<Vec<_>, _>>()?;
    let permit = door.frontend.authorize(&caller, &needs)?;
    if permit.rows(table.id).is_some() {
        let message = format!("permission denied for table {}", table.name);
        let error = SqlError::new(INSUFFICIENT_PRIVILEGE, message);
        return Err(error.with_detail("the token is restricted to some rows of the table"));
    }
    Ok(permit)
}

/// The actions that mutations are.
fn actions<'a>(mutations: impl Iterator<Item = &'a CellMutation>) -> Vec<Action> {
    let (mut inserts, mut deletes) = (false, false);
    for mutation in mutations {
        match mutation {
            CellMutation::SetCell { .. } | CellMutation::AddToCell { .. } => inserts = true,
            CellMutation::DeleteFromColumn { .. }
            | CellMutation::DeleteFromFamily { .. }
            | CellMutation::DeleteFromRow => deletes = true,
        }
    }
    let inserts = inserts.then_some(Action::Insert);
    inserts.into_iter().chain(deletes.then_some(Action::Delete)).collect()
}

/// Changes rows, each as a whole or not at all; the results are in the order of the rows.
pub(super) async fn mutate(
    door: &Door,
    caller: Identity,
    name: &TableName,
    rows: Vec<RowMutation>,
) -> Result<Vec<Result<(), Status>>, SqlError> {
    let Found { table, .. } = find(door, caller, name)?;
    let mutations = rows.iter().flat_map(|row| &row.mutations);
    let permit = permit(door, caller, &table, &actions(mutations))?;
    let mut batches = Batches::new(&table);
    let mut singles = Vec::new();
    let mut results: Vec<Result<(), SqlError>> = Vec::new();
    results.resize_with(rows.len(), || Ok(()));
    for (index, row) in rows.into_iter().enumerate() {
        if let Some(row) = batches.add(index, row) {
            singles.push((index, row));
        }
    }
    for batch in batches.finish() {
        let cells = batch.cells(&table)?;
        match door.frontend.ingest(&permit, &table, cells).await {
            Ok(_) => {}
            // It is not known which of the rows were stored.
            Err(error) if error.retryable => {
                for (index, _) in batch.rows {
                    results[index] = Err(error.clone());
                }
            }
            // One of the rows is at fault: each is tried, and writes the same cells again.
            Err(_) => singles.extend(batch.rows),
        }
    }
    let changes = singles.into_iter().map(|(index, row)| {
        let (permit, table) = (&permit, &table);
        async move { (index, door.frontend.mutate_row(permit, table, row).await) }
    });
    let mut changes = stream::iter(changes).buffer_unordered(ROWS_AT_ONCE);
    while let Some((index, result)) = changes.next().await {
        results[index] = result;
    }
    Ok(results.into_iter().map(|result| result.map_err(|error| status_of(&error))).collect())
}

/// Changes a row depending on the output of a filter. Returns true if the filter outputs any cells of the row.
pub(super) async fn check_and_mutate(
    door: &Door,
    caller: Identity,
    name: &TableName,
    row_key: &Bytes,
    check: Check,
) -> Result<bool, SqlError> {
    let Found { table, .. } = find(door, caller, name)?;
    let branches = [&check.matched, &check.unmatched];
    let mutations = branches.into_iter().flatten().flat_map(|row| &row.mutations);
    let mut actions = actions(mutations);
    actions.push(Action::Select);
    let permit = permit(door, caller, &table, &actions)?;
    let Check { filter, matched, unmatched } = check;
    let mutations = |row: Option<RowMutation>| row.map(|row| row.mutations).unwrap_or_default();
    let branches = (mutations(matched), mutations(unmatched));
    let check = Check { filter, matched: None, unmatched: None };
    let key = row_key.clone();
    let is_matched = move |cells: &Cells| {
        let decided = check.decide(row_of(&key, cells));
        decided
            .map(|(is_matched, _)| is_matched)
            .map_err(|error| SqlError::new(PROGRAM_LIMIT_EXCEEDED, error.to_string()))
    };
    let change = door.frontend.check_and_mutate_row(&permit, &table, row_key, is_matched, branches);
    Box::pin(change).await
}

/// Appends to the newest cells of a row, and increments them. Returns the new ones.
pub(super) async fn read_modify(
    door: &Door,
    caller: Identity,
    name: &TableName,
    request: &ReadModify,
) -> Result<Cells, SqlError> {
    let Found { table, .. } = find(door, caller, name)?;
    let permit = permit(door, caller, &table, &[Action::Select, Action::Insert])?;
    Box::pin(door.frontend.read_modify_row(&permit, &table, request)).await
}

/// The row with some cells, in the order of filters.
fn row_of(key: &Bytes, cells: &Cells) -> Row {
    let cell = |(place, value): (&CellKey, &Vec<u8>)| Cell {
        family: place.family.as_str().into(),
        qualifier: Bytes::copy_from_slice(&place.qualifier),
        timestamp_us: place.timestamp,
        value: Bytes::copy_from_slice(value),
        label: None,
    };
    let mut cells: Vec<Cell> = cells.iter().map(cell).collect();
    cells.sort_by(|first, second| first.position().cmp(&second.position()));
    Row { key: key.clone(), cells }
}

/// Rows that only set cells, with their positions in the request.
#[derive(Default)]
struct Batch {
    rows: Vec<(usize, RowMutation)>,
    bytes: usize,
}

impl Batch {
    /// The cells as rows of the table.
    ///
    /// # Errors
    /// When the table does not have the columns of a wide one.
    fn cells(&self, table: &Table) -> Result<RecordBatch, SqlError> {
        let mut keys: Vec<&[u8]> = Vec::new();
        let mut families = StringViewBuilder::new();
        let mut qualifiers = BinaryViewBuilder::new();
        let mut times = TimestampMicrosecondBuilder::new();
        let mut values = BinaryViewBuilder::new();
        for (_, row) in &self.rows {
            for mutation in &row.mutations {
                // Rows with other mutations, and cells without a timestamp, are not added.
                if let CellMutation::SetCell { family, qualifier, timestamp, value } = mutation
                    && let Some(timestamp) = timestamp
                {
                    keys.push(&row.row_key);
                    families.append_value(family);
                    qualifiers.append_value(qualifier);
                    times.append_value(*timestamp);
                    values.append_value(value);
                }
            }
        }
        let keys: ArrayRef = match are_texts(table) {
            true => {
                let texts =
                    keys.into_iter().map(|key| std::str::from_utf8(key).unwrap_or_default());
                Arc::new(StringViewArray::from_iter_values(texts))
            }
            false => Arc::new(BinaryViewArray::from_iter_values(keys)),
        };
        let columns: [ArrayRef; 5] = [
            keys,
            Arc::new(families.finish()),
            Arc::new(qualifiers.finish()),
            Arc::new(times.finish()),
            Arc::new(values.finish()),
        ];
        let names = table.schema.columns.iter().map(|column| column.name.as_str());
        Ok(RecordBatch::try_from_iter(names.zip(columns))?)
    }
}

/// True if the row keys of a table are texts.
fn are_texts(table: &Table) -> bool {
    table.schema.columns.first().is_some_and(|column| column.column_type == ColumnType::String)
}

/// Collects rows to batches.
struct Batches {
    are_texts: bool,
    full: Vec<Batch>,
    last: Batch,
}

impl Batches {
    fn new(table: &Table) -> Self {
        Self { are_texts: are_texts(table), full: Vec::new(), last: Batch::default() }
    }

    /// Adds a row, or returns it if it must be changed by itself.
    fn add(&mut self, index: usize, row: RowMutation) -> Option<RowMutation> {
        let mut bytes = 0;
        for mutation in &row.mutations {
            let CellMutation::SetCell { family, qualifier, timestamp: Some(_), value } = mutation
            else {
                return Some(row);
            };
            bytes += CELL_BYTES + row.row_key.len() + family.len() + qualifier.len() + value.len();
        }
        let is_text = std::str::from_utf8(&row.row_key).is_ok();
        if bytes > BATCH_BYTES_MAX || (self.are_texts && !is_text) {
            return Some(row);
        }
        if self.last.bytes + bytes > BATCH_BYTES_MAX {
            self.full.push(std::mem::take(&mut self.last));
        }
        self.last.bytes += bytes;
        self.last.rows.push((index, row));
        None
    }

    fn finish(mut self) -> Vec<Batch> {
        if !self.last.rows.is_empty() {
            self.full.push(self.last);
        }
        self.full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(key: &str, bytes: usize) -> RowMutation {
        let mutation = CellMutation::SetCell {
            family: "f".to_owned(),
            qualifier: b"q".to_vec(),
            timestamp: Some(1_000),
            value: vec![0; bytes],
        };
        RowMutation { row_key: key.as_bytes().to_vec(), mutations: vec![mutation] }
    }

    fn batches(are_texts: bool) -> Batches {
        Batches { are_texts, full: Vec::new(), last: Batch::default() }
    }

    #[test]
    fn rows_go_together_as_long_as_their_batch_is_small() {
        let mut rows = batches(false);
        for index in 0..5 {
            assert!(rows.add(index, set("k", 1 << 20)).is_none());
        }
        assert!(rows.add(5, set("k", 5 << 20)).is_some());
        let delete =
            RowMutation { row_key: b"k".to_vec(), mutations: vec![CellMutation::DeleteFromRow] };
        assert_eq!(rows.add(6, delete.clone()), Some(delete));
        let positions: Vec<Vec<usize>> = rows
            .finish()
            .iter()
            .map(|batch| batch.rows.iter().map(|(index, _)| *index).collect())
            .collect();
        assert_eq!(positions, [vec![0, 1, 2], vec![3, 4]]);
        assert!(batches(false).finish().is_empty());
    }

    #[test]
    fn a_key_that_is_no_text_goes_alone_into_a_table_of_texts() {
        let row = || RowMutation { row_key: vec![0xff], ..set("k", 1) };
        assert!(batches(true).add(0, row()).is_some());
        assert!(batches(false).add(0, row()).is_none());
    }

    #[test]
    fn mutations_need_the_rights_of_what_they_do() {
        let of = |mutations: &[CellMutation]| actions(mutations.iter());
        let set = set("k", 1).mutations.remove(0);
        assert_eq!(of(std::slice::from_ref(&set)), [Action::Insert]);
        assert_eq!(of(&[CellMutation::DeleteFromRow]), [Action::Delete]);
        assert_eq!(of(&[CellMutation::DeleteFromRow, set]), [Action::Insert, Action::Delete]);
    }
}

//! Leaves out rows of a request that a later row of the same request replaces.
//!
//! Clients that write one key again and again wait for its partition, and what waits becomes one request. Of a table that
//! keeps the newest row of each key, only the last version of a key in a request is ever read: the earlier ones need not
//! be sent, logged and stored. Each client is still answered when the whole has taken effect, in which its version was
//! replaced at once by one that came at the same time.
//!
//! Invariants: pure; the order of the remaining rows is kept. Rows are left out of one request only, which takes effect as a
//! whole or not at all: of two requests, one may turn out to be a repetition without effect, and the rows that it replaced
//! would be lost.

use std::collections::HashSet;

use arrow::array::UInt32Array;
use arrow::compute::take_record_batch;
use arrow::record_batch::RecordBatch;
use partita_proto::key::KeyCodec;
use partita_proto::schema::{MergeMode, TableOptions};
use partita_proto::service::WriteKind;

use crate::error::SqlError;

/// True if a later row of a table replaces an earlier one of the same key as a whole.
pub(super) fn replaces(options: &TableOptions, kind: WriteKind) -> bool {
    kind == WriteKind::Put && !options.append_mode && options.merge_mode == MergeMode::LastRow
}

/// The last row of each key; `None` if no key occurs twice.
///
/// # Errors
/// If the rows have no key of the table.
pub(super) fn last_rows(
    codec: &KeyCodec,
    rows: &RecordBatch,
) -> Result<Option<RecordBatch>, SqlError> {
    let keys = codec.encode(rows)?;
    let Some(positions) = last_positions(keys.iter()) else { return Ok(None) };
    Ok(Some(take_record_batch(rows, &UInt32Array::from(positions))?))
}

/// Positions of the last occurrence of each key, ascending; `None` if no key occurs twice.
fn last_positions<'k>(
    keys: impl DoubleEndedIterator<Item = &'k [u8]> + ExactSizeIterator,
) -> Option<Vec<u32>> {
    let count = keys.len();
    let mut distinct: HashSet<&[u8]> = HashSet::with_capacity(count);
    let mut positions = Vec::with_capacity(count);
    for (number, key) in keys.rev().enumerate() {
        if distinct.insert(key) {
            positions.push(u32::try_from(count - 1 - number).ok()?);
        }
    }
    positions.reverse();
    (positions.len() < count).then_some(positions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(keys: &[&str]) -> Option<Vec<u32>> {
        last_positions(keys.iter().map(|key| key.as_bytes()))
    }

    #[test]
    fn of_each_key_the_last_row_stays_in_its_order() {
        assert_eq!(positions(&["a", "b", "a", "c", "b"]), Some(vec![2, 3, 4]));
        assert_eq!(positions(&["a", "a", "a"]), Some(vec![2]));
        assert_eq!(positions(&["b", "a"]), None);
        assert_eq!(positions(&[]), None);
    }

    #[test]
    fn only_rows_that_are_replaced_as_a_whole_are_left_out() {
        let table = |append_mode, merge_mode| TableOptions {
            append_mode,
            merge_mode,
            ..TableOptions::default()
        };
        let kept = table(false, MergeMode::LastRow);
        assert!(replaces(&kept, WriteKind::Put));
        assert!(!replaces(&kept, WriteKind::Delete));
        assert!(!replaces(&table(true, MergeMode::LastRow), WriteKind::Put));
        assert!(!replaces(&table(false, MergeMode::LastNonNull), WriteKind::Put));
    }
}

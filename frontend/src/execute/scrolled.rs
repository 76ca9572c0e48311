//! Rows of a SCROLL cursor: they are kept as they are read, so that they can be fetched again in any direction.
//!
//! A position is the number of a row, from 1; it is 0 before the first row, and the number of rows plus one after the
//! last. A fetch moves to a position and returns the rows on its way.
//!
//! Invariants:
//! - the query is read only as far as a fetch needs, and its rows are kept to [`BYTES_MAX`];
//! - kept rows count for the memory of queries, with the buffers that they hold: one that several batches share counts
//!   once, and a batch that is a small part of its buffers is copied, so that it holds no others' rows.

use std::sync::Arc;

use arrow::array::UInt64Array;
use arrow::compute::take_record_batch;
use arrow::record_batch::RecordBatch;
use datafusion::common::utils::memory::{RecordBatchMemoryCounter, get_record_batch_memory_size};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use futures::{Stream, StreamExt};
use partita_proto::size::batch_bytes;
use partita_proto::wire::ipc;
use partita_sql::statement::Direction;

use crate::error::{PROGRAM_LIMIT_EXCEEDED, SqlError};

/// Maximum bytes of the rows that a cursor keeps.
const BYTES_MAX: usize = 64 << 20;
/// A batch is copied if it holds so many times the bytes of its own values.
const WASTE_MAX: usize = 2;
/// Bytes of a column of a batch beside its buffers.
const COLUMN_BYTES: usize = 128;

/// A query's rows, as far as they have been read.
pub(super) struct Scrolled<S> {
    /// The rows that are not read yet; `None` after their end.
    stream: Option<S>,
    /// Error of the rows that are not kept, which no fetch passes over.
    failure: Option<SqlError>,
    batches: Vec<RecordBatch>,
    /// Number of rows in the batches.
    count: u64,
    /// Buffers of the batches, each counted once.
    buffers: RecordBatchMemoryCounter,
    bytes: usize,
    reservation: MemoryReservation,
    position: u64,
}

impl<S: Stream<Item = Result<RecordBatch, SqlError>> + Unpin> Scrolled<S> {
    pub(super) fn new(stream: S, pool: &Arc<dyn MemoryPool>) -> Self {
        Self {
            stream: Some(stream),
            failure: None,
            batches: Vec::new(),
            count: 0,
            buffers: RecordBatchMemoryCounter::new(),
            bytes: 0,
            reservation: MemoryConsumer::new("SCROLL cursor").register(pool),
            position: 0,
        }
    }

    /// Moves the cursor, and returns the rows on its way.
    pub(super) async fn fetch(
        &mut self,
        direction: Direction,
    ) -> Result<Vec<RecordBatch>, SqlError> {
        let position = self.position;
        match direction {
            // The current row again.
            Direction::Forward(Some(0)) | Direction::Backward(Some(0)) => {
                Ok(self.rows(position, position))
            }
            Direction::Forward(count) => {
                let last = count.map_or(u64::MAX, |count| position.saturating_add(count));
                self.read_to(last).await?;
                self.position = last.min(self.count + 1);
                Ok(self.rows(position + 1, last))
            }
            Direction::Backward(count) => {
                let first = count.map_or(0, |count| position.saturating_sub(count));
                self.position = first;
                reversed(self.rows(first, position.saturating_sub(1)))
            }
            // Counted from the end.
            Direction::Absolute(row) if row < 0 => {
                self.read_to(u64::MAX).await?;
                self.go_to((self.count + 1).saturating_sub(row.unsigned_abs())).await
            }
            Direction::Absolute(row) => self.go_to(row.unsigned_abs()).await,
            Direction::Relative(rows) => self.go_to(position.saturating_add_signed(rows)).await,
        }
    }

    /// Moves to a row, or behind the last one.
    async fn go_to(&mut self, row: u64) -> Result<Vec<RecordBatch>, SqlError> {
        self.read_to(row).await?;
        self.position = row.min(self.count + 1);
        Ok(self.rows(self.position, self.position))
    }

    /// Reads until a row is kept, or all rows are.
    async fn read_to(&mut self, row: u64) -> Result<(), SqlError> {
        while self.count < row
            && let Some(stream) = &mut self.stream
        {
            if let Some(error) = &self.failure {
                return Err(error.clone());
            }
            let Some(batch) = stream.next().await else {
                self.stream = None;
                break;
            };
            if let Err(error) = batch.and_then(|batch| self.keep(batch)) {
                self.failure = Some(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }

    fn keep(&mut self, batch: RecordBatch) -> Result<(), SqlError> {
        let batch = own_rows(batch)?;
        let bytes = self.buffers.count_batch(&batch) + COLUMN_BYTES * batch.num_columns();
        if self.bytes + bytes > BYTES_MAX {
            let message =
                format!("a SCROLL cursor can read at most {} MiB of rows", BYTES_MAX >> 20);
            return Err(SqlError::new(PROGRAM_LIMIT_EXCEEDED, message)
                .with_hint("declare the cursor without SCROLL"));
        }
        self.reservation.try_grow(bytes)?;
        self.bytes += bytes;
        self.count += batch.num_rows() as u64;
        self.batches.push(batch);
        Ok(())
    }

    /// The kept rows between two, which are included.
    fn rows(&self, first: u64, last: u64) -> Vec<RecordBatch> {
        let index = |row: u64| usize::try_from(row).unwrap_or(usize::MAX);
        let mut rows = Vec::new();
        // Rows of the batches before.
        let mut passed = 0;
        for batch in &self.batches {
            let end = passed + batch.num_rows() as u64;
            let (low, high) = (first.max(passed + 1), last.min(end));
            if low <= high {
                rows.push(batch.slice(index(low - passed - 1), index(high - low + 1)));
            }
            passed = end;
        }
        rows
    }
}

/// The rows without the buffers of a much larger batch, of which they are a part.
fn own_rows(batch: RecordBatch) -> Result<RecordBatch, SqlError> {
    if get_record_batch_memory_size(&batch) <= WASTE_MAX * batch_bytes(&batch) {
        return Ok(batch);
    }
    let indices = UInt64Array::from_iter_values(0..batch.num_rows() as u64);
    // Texts of a copied column lie in the buffers of the whole one.
    Ok(ipc::compacted(&take_record_batch(&batch, &indices)?)?)
}

/// The same rows from the last to the first.
fn reversed(batches: Vec<RecordBatch>) -> Result<Vec<RecordBatch>, SqlError> {
    let reverse = |batch: &RecordBatch| {
        let indices = UInt64Array::from_iter_values((0..batch.num_rows() as u64).rev());
        take_record_batch(batch, &indices).map_err(SqlError::from)
    };
    batches.iter().rev().map(reverse).collect()
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, AsArray, Int64Array, StringViewArray};
    use arrow::datatypes::Int64Type;
    use datafusion::execution::memory_pool::{GreedyMemoryPool, UnboundedMemoryPool};

    use super::*;

    fn batch(numbers: std::ops::Range<i64>) -> Result<RecordBatch, SqlError> {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
        Ok(RecordBatch::try_from_iter([("n", column)]).unwrap())
    }

    fn values(batches: &[RecordBatch]) -> Vec<i64> {
        let column =
            |batch: &RecordBatch| batch.column(0).as_primitive::<Int64Type>().values().to_vec();
        batches.iter().flat_map(column).collect()
    }

    #[tokio::test]
    async fn rows_are_fetched_in_both_directions_as_by_postgres() {
        use Direction::{Absolute, Backward, Forward, Relative};

        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let stream = futures::stream::iter([batch(1..4), batch(4..4), batch(4..8)]);
        let mut cursor = Scrolled::new(stream, &pool);
        for (direction, expected) in [
            (Backward(Some(1)), vec![]),
            (Forward(Some(0)), vec![]),
            (Forward(Some(2)), vec![1, 2]),
            (Forward(Some(0)), vec![2]),
            (Forward(Some(3)), vec![3, 4, 5]),
            (Backward(Some(2)), vec![4, 3]),
            (Relative(0), vec![3]),
            (Absolute(-1), vec![7]),
            (Forward(Some(1)), vec![]),
            (Backward(Some(1)), vec![7]),
            (Absolute(6), vec![6]),
            (Relative(-2), vec![4]),
            (Backward(None), vec![3, 2, 1]),
            (Absolute(99), vec![]),
            (Backward(Some(2)), vec![7, 6]),
            (Forward(None), vec![7]),
            (Absolute(-99), vec![]),
            (Forward(None), vec![1, 2, 3, 4, 5, 6, 7]),
            (Absolute(0), vec![]),
            (Forward(Some(1)), vec![1]),
        ] {
            let fetched = cursor.fetch(direction).await.unwrap();
            assert_eq!(values(&fetched), expected, "{direction:?}");
        }
    }

    #[tokio::test]
    async fn kept_rows_count_for_the_memory_of_queries() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 10));
        let mut cursor = Scrolled::new(futures::stream::iter([batch(0..1_000)]), &pool);
        for _ in 0..2 {
            let error = cursor.fetch(Direction::Forward(None)).await.unwrap_err();
            assert_eq!(error.sqlstate, "53200");
        }
    }

    #[tokio::test]
    async fn parts_of_a_large_batch_count_with_their_own_bytes() {
        let numbers = batch(0..2_000_000).unwrap();
        let texts = (0..300).map(|number| format!("{number} {}", "x".repeat(100_000)));
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts));
        let texts = RecordBatch::try_from_iter([("v", texts)]).unwrap();
        let tenths = (0..10).map(|part| numbers.slice(part * 200_000, 200_000)).collect();
        let halves = (0..2).map(|part| numbers.slice(part * 1_000_000, 1_000_000)).collect();
        let parts: [(Vec<RecordBatch>, usize, u64); 4] = [
            // Copies of all rows, as much as the whole.
            (tenths, 17 << 20, 2_000_000),
            // Two views of the whole.
            (halves, 17 << 20, 2_000_000),
            (vec![numbers.slice(7, 9), numbers.slice(70, 9)], 1 << 10, 18),
            (vec![texts.slice(7, 1), texts.slice(9, 2)], 1 << 20, 3),
        ];
        for (batches, bytes, count) in parts {
            let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(bytes));
            let stream = futures::stream::iter(batches.clone().into_iter().map(Ok));
            let mut cursor = Scrolled::new(stream, &pool);
            assert_eq!(cursor.fetch(Direction::Forward(None)).await.unwrap(), batches);
            assert_eq!(cursor.count, count);
        }
    }
}

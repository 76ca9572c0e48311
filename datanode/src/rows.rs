//! The rows of one write command, split among the requests that it joins.

use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use partita_proto::service::WriteKind;
use partita_proto::wire::ipc;
use partita_raft::MachineError;

/// The rows of one command, taken part by part.
pub(crate) struct Rows {
    batches: std::collections::VecDeque<RecordBatch>,
}

impl Rows {
    pub(crate) fn decode(rows: Bytes) -> Result<Self, MachineError> {
        let batches = ipc::decode(rows).map_err(|error| MachineError(error.to_string()))?;
        Ok(Self { batches: batches.into() })
    }

    /// The next rows of one kind, if there are any.
    pub(crate) fn take_fresh(
        &mut self,
        fresh: Option<(WriteKind, usize)>,
    ) -> Result<Vec<(WriteKind, RecordBatch)>, MachineError> {
        let Some((kind, rows)) = fresh else { return Ok(Vec::new()) };
        Ok(self.take(rows)?.into_iter().map(|batch| (kind, batch)).collect())
    }

    /// The next `rows` rows, as slices of the decoded batches.
    pub(crate) fn take(&mut self, mut rows: usize) -> Result<Vec<RecordBatch>, MachineError> {
        let mut slices = Vec::with_capacity(1);
        while rows > 0 {
            let Some(batch) = self.batches.pop_front() else {
                return Err(MachineError(
                    "a write command has fewer rows than its parts declare".to_owned(),
                ));
            };
            if batch.num_rows() <= rows {
                rows -= batch.num_rows();
                slices.push(batch);
            } else {
                self.batches.push_front(batch.slice(rows, batch.num_rows() - rows));
                slices.push(batch.slice(0, rows));
                rows = 0;
            }
        }
        Ok(slices)
    }

    pub(crate) fn finish(&self) -> Result<(), MachineError> {
        if self.batches.iter().any(|batch| batch.num_rows() > 0) {
            return Err(MachineError(
                "a write command has more rows than its parts declare".to_owned(),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    fn batch(values: &[i64]) -> RecordBatch {
        let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true)]));
        RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(values.to_vec()))]).unwrap()
    }

    #[test]
    fn parts_take_their_rows_across_batches() {
        let mut rows = Rows { batches: vec![batch(&[1, 2, 3]), batch(&[4, 5])].into() };
        let sizes = |batches: Vec<RecordBatch>| -> Vec<usize> {
            batches.iter().map(RecordBatch::num_rows).collect()
        };
        assert_eq!(sizes(rows.take(2).unwrap()), [2]);
        assert_eq!(sizes(rows.take(2).unwrap()), [1, 1]);
        assert!(rows.finish().is_err());
        assert_eq!(sizes(rows.take(1).unwrap()), [1]);
        rows.finish().unwrap();
        assert!(rows.take(1).is_err());
    }

    #[test]
    fn neighbours_of_one_kind_are_taken_as_one_batch() {
        let mut rows = Rows { batches: vec![batch(&[1, 2, 3, 4])].into() };
        let taken = rows.take_fresh(Some((WriteKind::Put, 3))).unwrap();
        let shape: Vec<_> = taken.iter().map(|(kind, batch)| (*kind, batch.num_rows())).collect();
        assert_eq!(shape, [(WriteKind::Put, 3)]);
        assert!(rows.take_fresh(None).unwrap().is_empty());
        assert_eq!(rows.take_fresh(Some((WriteKind::Delete, 1))).unwrap().len(), 1);
        rows.finish().unwrap();
    }
}

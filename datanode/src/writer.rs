//! Joins the writes that wait for one partition into one proposal.
//!
//! A single sync of the log can then serve many writers. While a proposal is on its way others are
//! collected; a few are in flight at once, so that the log's device and the encoder work side by side.
//!
//! Invariants: the queue, the size of a proposal and the number in flight are bounded; every write
//! taken from the queue is answered, also when the replica stops.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use partita_proto::error::Error;
use partita_proto::id::{Epoch, PartitionId};
use partita_proto::service::{RequestId, WriteKind, WriteReply};
use partita_proto::size::batch_bytes;
use partita_proto::wire::{Command, WriteCommand, WritePart, ipc};
use partita_raft::Group;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::machine::reply_at;
use crate::raft_error;

/// Writes that may wait for one partition.
pub(crate) const QUEUE_MAX: usize = 4_096;
/// Rows bytes after which a proposal is sent without waiting for more.
const PROPOSAL_BYTES_MAX: usize = 4 << 20;
/// Writes that one proposal joins at most.
const PROPOSAL_WRITES_MAX: usize = 4_096;
/// Large proposals of one partition in flight.
const PROPOSALS_IN_FLIGHT: usize = 8;
/// Small ones: one that is on its way and one behind it. What comes meanwhile joins into the next,
/// because a small proposal costs what it costs whether it brings one row or a hundred.
const SMALL_PROPOSALS_IN_FLIGHT: usize = 2;
/// Mean bytes of rows from which proposals are large.
const LARGE_PROPOSAL_BYTES: usize = 128 << 10;
/// Batches below this many rows are copied together; larger ones travel as they are.
const COPY_ROWS_MAX: usize = 512;

/// A write that waits.
pub(crate) struct Waiting {
    pub(crate) id: RequestId,
    pub(crate) epoch: Epoch,
    pub(crate) kind: WriteKind,
    pub(crate) rows: RecordBatch,
    pub(crate) answer: oneshot::Sender<Result<WriteReply, Error>>,
}

/// Takes writes from a queue and proposes them, until the queue closes or `stop` is cancelled.
pub(crate) struct Writer {
    pub(crate) partition: PartitionId,
    pub(crate) group: Arc<Group>,
    pub(crate) queue: mpsc::Receiver<Waiting>,
    pub(crate) stop: CancellationToken,
}

impl Writer {
    /// Runs until stopped; then answers what still waits.
    pub(crate) async fn run(mut self) {
        let mut in_flight = FuturesUnordered::new();
        let mut bytes_in_flight = 0;
        let mut waiting: Vec<Waiting> = Vec::new();
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                Some(bytes) = in_flight.next(), if !in_flight.is_empty() => bytes_in_flight -= bytes,
                received = self.queue.recv_many(&mut waiting, PROPOSAL_WRITES_MAX),
                    if may_propose(in_flight.len(), bytes_in_flight) =>
                {
                    if received == 0 {
                        break;
                    }
                    for (bytes, writes) in join(std::mem::take(&mut waiting)) {
                        bytes_in_flight += bytes;
                        let proposed = propose(self.partition, Arc::clone(&self.group), writes);
                        in_flight.push(async move {
                            proposed.await;
                            bytes
                        });
                    }
                }
            }
        }
        self.queue.close();
        while in_flight.next().await.is_some() {}
        while let Some(write) = self.queue.recv().await {
            answer(write, Err(Error::Unavailable("the node is stopping".to_owned())));
        }
    }
}

/// Whether another proposal may set out beside those in flight.
fn may_propose(proposals: usize, bytes: usize) -> bool {
    let large = bytes >= proposals * LARGE_PROPOSAL_BYTES;
    proposals < if large { PROPOSALS_IN_FLIGHT } else { SMALL_PROPOSALS_IN_FLIGHT }
}

/// Sorts waiting writes into proposals: same columns, same epoch, bounded bytes (told with each);
/// order is kept.
fn join(waiting: Vec<Waiting>) -> Vec<(usize, Vec<Waiting>)> {
    let mut proposals: Vec<(usize, Vec<Waiting>)> = Vec::new();
    for write in waiting {
        let bytes = batch_bytes(&write.rows);
        let fits = proposals.iter_mut().find(|(size, writes)| {
            size + bytes <= PROPOSAL_BYTES_MAX
                && writes[0].epoch == write.epoch
                && writes[0].rows.schema_ref() == write.rows.schema_ref()
        });
        match fits {
            Some((size, writes)) => {
                *size += bytes;
                writes.push(write);
            }
            None => proposals.push((bytes, vec![write])),
        }
    }
    proposals
}

/// Encodes one proposal.
fn encode(writes: &[Waiting]) -> Result<Command, Error> {
    let parts = writes
        .iter()
        .map(|write| {
            let rows = u32::try_from(write.rows.num_rows())
                .map_err(|_| Error::InvalidInput("a write has too many rows".to_owned()))?;
            Ok(WritePart { id: write.id, kind: write.kind, rows })
        })
        .collect::<Result<Vec<_>, Error>>()?;
    let mut batches: Vec<RecordBatch> = Vec::new();
    let mut small: Vec<&RecordBatch> = Vec::new();
    let schema = writes[0].rows.schema();
    let copy = |small: &mut Vec<&RecordBatch>, batches: &mut Vec<RecordBatch>| {
        if !small.is_empty() {
            let joined = arrow::compute::concat_batches(&schema, small.drain(..))
                .map_err(|error| Error::Internal(error.to_string()))?;
            batches.push(joined);
        }
        Ok::<_, Error>(())
    };
    for write in writes {
        if write.rows.num_rows() > COPY_ROWS_MAX {
            copy(&mut small, &mut batches)?;
            batches.push(write.rows.clone());
        } else {
            small.push(&write.rows);
        }
    }
    copy(&mut small, &mut batches)?;
    Ok(Command::Write(WriteCommand { epoch: writes[0].epoch, parts, rows: ipc::encode(&batches)? }))
}

async fn propose(partition: PartitionId, group: Arc<Group>, writes: Vec<Waiting>) {
    let outcome = match encode(&writes) {
        Ok(command) => {
            group.propose(command.encode()).await.map_err(|error| raft_error(partition, error))
        }
        Err(error) => Err(error),
    };
    for (position, write) in writes.into_iter().enumerate() {
        let result = match &outcome {
            Ok(applied) => reply_at(&applied.reply, position)
                .map(|index| WriteReply { index })
                .ok_or_else(|| Error::Internal("a write has no reply".to_owned())),
            Err(error) => Err(error.clone()),
        };
        answer(write, result);
    }
}

fn answer(write: Waiting, result: Result<WriteReply, Error>) {
    // The writer may have given up waiting; then nobody needs the answer.
    drop(write.answer.send(result));
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    fn waiting(column: &str, sequence: u64, values: &[i64]) -> Waiting {
        let schema = Arc::new(Schema::new(vec![Field::new(column, DataType::Int64, true)]));
        let rows = RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(values.to_vec()))]);
        Waiting {
            id: RequestId { client: 1, sequence },
            epoch: Epoch(1),
            kind: WriteKind::Put,
            rows: rows.unwrap(),
            answer: oneshot::channel().0,
        }
    }

    #[test]
    fn writes_of_the_same_columns_share_a_proposal() {
        let writes = vec![waiting("a", 1, &[1]), waiting("b", 2, &[2]), waiting("a", 3, &[3, 4])];
        let joined = join(writes);
        let shape: Vec<Vec<u64>> = joined
            .iter()
            .map(|(_, writes)| writes.iter().map(|write| write.id.sequence).collect())
            .collect();
        assert_eq!(shape, [vec![1, 3], vec![2]]);
        let Command::Write(write) = encode(&joined[0].1).unwrap() else { panic!("not a write") };
        assert_eq!(write.parts.iter().map(|part| part.rows).collect::<Vec<_>>(), [1, 2]);
        let rows: usize = ipc::decode(write.rows).unwrap().iter().map(RecordBatch::num_rows).sum();
        assert_eq!(rows, 3);
    }

    #[test]
    fn small_proposals_wait_for_company_and_large_ones_do_not() {
        assert!(may_propose(0, 0));
        assert!(may_propose(1, 300));
        assert!(!may_propose(2, 600));
        assert!(may_propose(2, 2 * LARGE_PROPOSAL_BYTES));
        assert!(!may_propose(8, 64 << 20));
    }

    #[test]
    fn large_batches_keep_their_place_between_small_ones() {
        let large: Vec<i64> = (0..1000).collect();
        let writes = vec![waiting("a", 1, &[-1]), waiting("a", 2, &large), waiting("a", 3, &[-2])];
        let Command::Write(write) = encode(&writes).unwrap() else { panic!("not a write") };
        let sizes: Vec<_> =
            ipc::decode(write.rows).unwrap().iter().map(RecordBatch::num_rows).collect();
        assert_eq!(sizes, [1, 1000, 1]);
    }
}

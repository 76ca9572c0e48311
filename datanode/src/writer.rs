//! Joins waiting writes of one partition into proposals.
//!
//! A single sync of the log can then serve many writers. While a proposal is in flight, further writes are collected; a
//! few proposals are in flight at once, so that the log's device and the encoder work in parallel.
//!
//! Invariants: the queue, the size of a proposal and the number in flight are bounded; every write taken from the queue
//! is answered, also when the replica stops; with a rate limit, a write waits for its turn and for nothing else; the
//! answer names every copy that lacks the rows and for which writes wait.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use partita_proto::error::Error;
use partita_proto::id::{Epoch, PartitionId, TableId};
use partita_proto::materialized::Ship;
use partita_proto::service::{Condition, RequestId, WriteKind, WriteReply};
use partita_proto::size::batch_bytes;
use partita_proto::wire::{Command, WriteCommand, WritePart, ipc};
use partita_raft::Group;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::closed;
use crate::group_error;
use crate::lane::Lane;
use crate::load::Load;
use crate::reply::{Outcome, PartResult, Refusal};
use crate::requests::Requests;

/// Maximum number of waiting writes of one partition.
pub(crate) const QUEUE_MAX: usize = 4_096;
/// Maximum bytes of rows in one proposal of several writes, if the group's log accepts that much.
const PROPOSAL_BYTES_MAX: usize = 4 << 20;
/// Minimum bytes that a write takes in a command besides its rows; also the bytes of each of its earlier requests.
const WRITE_BYTES: usize = 64;
const REQUEST_BYTES: usize = 32;
/// Maximum number of writes in one proposal.
const PROPOSAL_WRITES_MAX: usize = 4_096;
/// Maximum number of in-flight proposals of one partition when they are large.
const PROPOSALS_IN_FLIGHT: usize = 8;
/// Maximum number of in-flight proposals when they are small: one in flight and one behind it. Further writes join the
/// next one, because a small proposal costs the same whether it carries one row or a hundred.
const SMALL_PROPOSALS_IN_FLIGHT: usize = 2;
/// Mean bytes of rows from which proposals count as large.
const LARGE_PROPOSAL_BYTES: usize = 128 << 10;
/// Batches of at most this many rows are copied together; larger ones are sent as they are.
const COPY_ROWS_MAX: usize = 512;

/// A write that waits to be proposed.
pub(crate) struct Waiting {
    pub(crate) id: RequestId,
    pub(crate) earlier: Vec<RequestId>,
    pub(crate) epoch: Epoch,
    pub(crate) kind: WriteKind,
    pub(crate) rows: RecordBatch,
    pub(crate) ship: Option<Ship>,
    pub(crate) condition: Option<Condition>,
    /// Time at which it began to wait.
    pub(crate) since: Instant,
    pub(crate) answer: oneshot::Sender<Result<WriteReply, Error>>,
}

/// Takes writes from a queue and proposes them, until the queue closes or `stop` is cancelled.
pub(crate) struct Writer {
    pub(crate) partition: PartitionId,
    pub(crate) group: Arc<Group>,
    /// The machine's requests, which tell the copies for which writes wait.
    pub(crate) requests: Arc<Mutex<Requests>>,
    pub(crate) load: Arc<Load>,
    pub(crate) queue: mpsc::Receiver<Waiting>,
    pub(crate) lane: Option<Lane>,
    pub(crate) stop: CancellationToken,
}

impl Writer {
    /// Runs until stopped; then answers all writes that still wait.
    pub(crate) async fn run(mut self) {
        // Half of a command's limit is reserved for the encoding: column names, padding.
        let bytes_max = PROPOSAL_BYTES_MAX.min(self.group.command_bytes_max() / 2);
        let mut in_flight = FuturesUnordered::new();
        let mut bytes_in_flight = 0;
        let mut waiting: Vec<Waiting> = Vec::new();
        // Time since when no further proposal could be sent.
        let mut full: Option<Instant> = None;
        loop {
            if full.is_none() && !may_propose(in_flight.len(), bytes_in_flight) {
                full = Some(Instant::now());
            }
            let closed = self.lane.and_then(|lane| lane.closed(Instant::now()));
            let taken_max = if self.lane.is_some() { 1 } else { PROPOSAL_WRITES_MAX };
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                Some(bytes) = in_flight.next(), if !in_flight.is_empty() => bytes_in_flight -= bytes,
                () = opened(closed), if closed.is_some() => {}
                received = self.queue.recv_many(&mut waiting, taken_max),
                    if closed.is_none() && may_propose(in_flight.len(), bytes_in_flight) =>
                {
                    if received == 0 {
                        break;
                    }
                    self.pass(&mut waiting, full.take());
                    for (bytes, writes) in join(std::mem::take(&mut waiting), bytes_max) {
                        bytes_in_flight += bytes;
                        let (group, load) = (Arc::clone(&self.group), Arc::clone(&self.load));
                        let requests = Arc::clone(&self.requests);
                        let proposed = propose(self.partition, group, requests, load, writes);
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

    /// Counts the lane time of writes that are proposed now; `full`: since when none could be.
    fn pass(&mut self, waiting: &mut Vec<Waiting>, full: Option<Instant>) {
        let Some(first) = waiting.first().map(|write| write.since) else { return };
        let Some(lane) = &mut self.lane else {
            if let Some(full) = full {
                self.load.busy(full.max(first).elapsed());
            }
            return;
        };
        let mut rows = waiting.iter().map(|write| write.rows.num_rows()).sum();
        while !lane.is_enough(rows) {
            let Ok(write) = self.queue.try_recv() else { break };
            rows += write.rows.num_rows();
            waiting.push(write);
        }
        self.load.busy(lane.pass(rows, first));
    }
}

/// Waits until a lane is free.
async fn opened(closed: Option<Instant>) {
    if let Some(free) = closed {
        tokio::time::sleep_until(free).await;
    }
}

/// True if another proposal may be sent beside those in flight.
fn may_propose(proposals: usize, bytes: usize) -> bool {
    let large = bytes >= proposals * LARGE_PROPOSAL_BYTES;
    proposals < if large { PROPOSALS_IN_FLIGHT } else { SMALL_PROPOSALS_IN_FLIGHT }
}

/// Groups waiting writes into proposals: same columns, same epoch, and at most `bytes_max` unless it is a single write.
/// Returns each proposal with its bytes; order is kept. Rows of a source never get into a proposal before one that has
/// rows of the same source.
fn join(waiting: Vec<Waiting>, bytes_max: usize) -> Vec<(usize, Vec<Waiting>)> {
    let mut proposals: Vec<(usize, Vec<Waiting>)> = Vec::new();
    for write in waiting {
        let bytes = batch_bytes(&write.rows) + WRITE_BYTES + REQUEST_BYTES * write.earlier.len();
        let source = write.ship.map(|ship| ship.source);
        let is_of_source =
            |waiting: &Waiting| source.is_some() && waiting.ship.map(|ship| ship.source) == source;
        let earliest = proposals.iter().rposition(|(_, writes)| writes.iter().any(is_of_source));
        let mut candidates = proposals.iter_mut().skip(earliest.unwrap_or_default());
        let fits = candidates.find(|(size, writes)| {
            *size + bytes <= bytes_max
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
    // The parts name each request and its number of rows.
    let parts = writes
        .iter()
        .map(|write| {
            let rows = u32::try_from(write.rows.num_rows())
                .map_err(|_| Error::InvalidInput("a write has too many rows".to_owned()))?;
            let earlier = write.earlier.clone();
            let (ship, condition) = (write.ship, write.condition);
            Ok(WritePart { id: write.id, earlier, kind: write.kind, rows, ship, condition })
        })
        .collect::<Result<Vec<_>, Error>>()?;
    // Small batches are concatenated; a large one ends the run before it and stays as it is. The rows keep the order of
    // the parts.
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

async fn propose(
    partition: PartitionId,
    group: Arc<Group>,
    requests: Arc<Mutex<Requests>>,
    load: Arc<Load>,
    writes: Vec<Waiting>,
) {
    let started = Instant::now();
    let encoded = encode(&writes);
    load.worked(started.elapsed());
    let applied = match encoded {
        Ok(command) => {
            group.propose(command.encode()).await.map_err(|error| group_error(&group, error))
        }
        Err(error) => Err(error),
    };
    // Without an outcome, the entry may still take effect if the partition is opened again.
    let is_applied = applied.is_ok();
    // Each write gets its own result: the index at which it took effect, or why it had none.
    let outcome = applied.and_then(|applied| match Outcome::decode(&applied.reply)? {
        Outcome::At(indexes) => Ok((applied.index, indexes.into_iter().map(Ok).collect())),
        Outcome::Parts(parts) => Ok((applied.index, parts)),
        outcome => Err(outcome.refused(partition, writes[0].epoch)),
    });
    // Read after the entry was applied: copies that begin to wait later get its rows before they are in step.
    let owing = match &outcome {
        Ok(_) => requests.lock().captures().owing(),
        Err(_) => Vec::new(),
    };
    for (position, write) in writes.into_iter().enumerate() {
        let result = match &outcome {
            Ok((entry, parts)) => result(partition, parts.get(position).copied(), *entry, &owing),
            // The entry may have been refused only because the partition was closed meanwhile.
            Err(error) => is_applied
                .then(|| closed::answer(&requests.lock(), partition, write.id, &write.earlier))
                .flatten()
                .unwrap_or_else(|| Err(error.clone())),
        };
        if result.is_ok() {
            load.answered(write.since.elapsed());
        }
        answer(write, result);
    }
}

/// Result of one write of an entry; `owing`: the copies for which writes wait, each with the index up to which it has
/// all rows.
fn result(
    partition: PartitionId,
    part: Option<PartResult>,
    entry: u64,
    owing: &[(TableId, u64)],
) -> Result<WriteReply, Error> {
    let first = match part {
        Some(Ok(Some(first))) => first,
        Some(Ok(None)) => return Err(closed::too_late()),
        Some(Err(Refusal::Ahead(stored))) => return Err(Error::ShipAhead { stored }),
        Some(Err(Refusal::Changed)) => return Err(Error::Changed { partition }),
        None => return Err(Error::Internal("a write has no reply".to_owned())),
    };
    // A write that a former neighbour took has an index of that one's log, which this log may never reach.
    let index = first.min(entry);
    let lacking = owing.iter().filter(|(_, shipped)| *shipped < index);
    let owed: Vec<TableId> = lacking.map(|(copy, _)| *copy).collect();
    Ok(WriteReply { index: if owed.is_empty() { first } else { index }, owed })
}

fn answer(write: Waiting, result: Result<WriteReply, Error>) {
    // The writer may have given up waiting; then the answer is not needed.
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
            earlier: Vec::new(),
            epoch: Epoch(1),
            kind: WriteKind::Put,
            rows: rows.unwrap(),
            ship: None,
            condition: None,
            since: Instant::now(),
            answer: oneshot::channel().0,
        }
    }

    #[test]
    fn writes_of_the_same_columns_share_a_proposal() {
        let writes = vec![waiting("a", 1, &[1]), waiting("b", 2, &[2]), waiting("a", 3, &[3, 4])];
        let joined = join(writes, PROPOSAL_BYTES_MAX);
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
    fn rows_of_a_source_stay_in_order_whatever_their_columns_are() {
        use partita_proto::materialized::Position;
        let ship = |source, from, to| {
            let (from, to) = (Position { index: from, part: 0 }, Position { index: to, part: 0 });
            Some(Ship { source: PartitionId(source), from, to })
        };
        let mut writes = vec![
            waiting("a", 1, &[1]),
            waiting("b", 2, &[2]),
            waiting("a", 3, &[3]),
            waiting("a", 4, &[4]),
        ];
        writes[0].ship = ship(1, 0, 5);
        writes[1].ship = ship(1, 5, 6);
        writes[2].ship = ship(1, 6, 7);
        writes[3].ship = ship(2, 0, 9);
        let joined = join(writes, PROPOSAL_BYTES_MAX);
        let shape: Vec<Vec<u64>> = joined
            .iter()
            .map(|(_, writes)| writes.iter().map(|write| write.id.sequence).collect())
            .collect();
        assert_eq!(shape, [vec![1, 4], vec![2], vec![3]]);
        let Command::Write(write) = encode(&joined[0].1).unwrap() else { panic!("not a write") };
        assert_eq!(write.parts[1].ship, ship(2, 0, 9));
    }

    #[test]
    fn a_write_is_owed_to_the_copies_that_lack_it_also_when_it_was_taken_before() {
        let owing = [(TableId(5), 10), (TableId(6), 20)];
        let result = |part, entry, owing: &[_]| result(PartitionId(3), part, entry, owing);
        let owed = |first, entry| result(Some(Ok(Some(first))), entry, &owing).unwrap();
        assert_eq!(owed(21, 21), WriteReply { index: 21, owed: vec![TableId(5), TableId(6)] });
        assert_eq!(owed(15, 30), WriteReply { index: 15, owed: vec![TableId(5)] });
        assert_eq!(owed(10, 30), WriteReply { index: 10, owed: vec![] });
        // Of a neighbour that was absorbed.
        assert_eq!(owed(999, 15), WriteReply { index: 15, owed: vec![TableId(5)] });
        assert_eq!(owed(999, 8), WriteReply { index: 999, owed: vec![] });
        let stored = partita_proto::materialized::Position { index: 3, part: 1 };
        let ahead = Some(Err(Refusal::Ahead(stored)));
        assert_eq!(result(ahead, 9, &[]), Err(Error::ShipAhead { stored }));
        let changed = Err(Error::Changed { partition: PartitionId(3) });
        assert_eq!(result(Some(Err(Refusal::Changed)), 9, &[]), changed);
        assert!(matches!(result(Some(Ok(None)), 9, &[]), Err(Error::Timeout(_))));
    }

    #[test]
    fn writes_that_are_too_much_for_one_command_of_the_log_are_proposed_one_after_the_other() {
        let values: Vec<i64> = (0..100).collect();
        let mut writes: Vec<_> = (0..20).map(|at| waiting("a", at, &values)).collect();
        let id = RequestId { client: 2, sequence: 0 };
        writes[7].earlier = vec![id; 400];
        let limit = 16_000;
        let joined = join(writes, limit / 2);
        assert_eq!(joined.iter().map(|(_, writes)| writes.len()).sum::<usize>(), 20);
        assert!(joined.len() < 10, "{}", joined.len());
        for (_, writes) in &joined {
            let bytes = encode(writes).unwrap().encode().len();
            assert!(bytes <= limit, "{bytes} of {} writes", writes.len());
        }
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

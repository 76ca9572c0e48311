//! The log of one node: entries, votes and commit marks of all groups, in one sequence of segments.
//!
//! ```text
//!  append, vote, truncate, purge           (any task; per group in order)
//!        |  index changes, entries readable
//!        v
//!  bounded queue ---> writer thread: drain -> one write -> one sync -> complete all
//!                        |                 \
//!                     segments          index: where each entry lies
//!                        ^
//!                     spares <--- preparer thread: writes files before they are needed
//! ```
//!
//! Invariants:
//! - an operation that completes with `Ok` is on disk, and so are all operations queued before it;
//! - after a failed write or sync no operation completes with `Ok` any more, and nothing is retried;
//! - a segment is given up only after every record that makes it superfluous is on disk;
//! - a group's last entry is never given up, unless the group itself is destroyed.

mod checkpoint;
mod damage;
pub(crate) mod disk;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod index;
mod mark;
mod reader;
mod record;
mod recovery;
pub(crate) mod simulated;
mod spares;
mod stats;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use partita_proto::blocking;
use partita_proto::id::{GroupId, ReplicaId};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use self::disk::Disk;
pub(crate) use self::index::Seeded;
use self::index::{Index, Planned};
use self::mark::Marker;
pub(crate) use self::record::{EntryKind, LogEntry, Position, Vote};
use self::record::{HEADER_BYTES, Record};
use self::recovery::Segment;
use self::spares::Spares;
use self::stats::Counters;
pub use self::stats::LogStats;
use self::writer::{Done, Operation, Request, Writer};
use crate::error::RaftError;
use crate::fault::OnFailure;
use crate::planted::{self, Plant};

/// Operations that may wait for the writer. Each group has few under way, so this is reached by thousands of groups.
const QUEUE_LEN: usize = 4096;
/// Bytes of entries that may wait for the writer, in units of [`QUEUE_UNIT`].
const QUEUE_BYTES_MAX: u64 = 64 << 20;
const QUEUE_UNIT: u64 = 1024;
/// The smallest segment that makes sense (in tests).
const SEGMENT_BYTES_MIN: u32 = 4096;

/// Sizes and limits of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogOptions {
    pub(crate) segment_bytes: u32,
    pub(crate) budget_bytes: u64,
    pub(crate) cache_bytes: u64,
}

/// Votes and log positions of one group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupView {
    pub(crate) vote: Option<Vote>,
    pub(crate) purged: Option<Position>,
    pub(crate) committed: Option<Position>,
    pub(crate) last: Option<Position>,
}

/// State shared by the log's users and its writer.
struct Shared {
    disk: Arc<dyn Disk>,
    options: LogOptions,
    state: Mutex<State>,
    spares: Spares,
    marker: Marker,
    pressure: watch::Sender<Vec<GroupId>>,
    on_failure: OnFailure,
}

struct State {
    index: Index,
    segments: BTreeMap<u32, Segment>,
    failed: Option<RaftError>,
    counters: Counters,
}

impl State {
    fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| u64::from(segment.bytes)).sum()
    }
}

/// The log of one node.
pub(crate) struct Log {
    shared: Arc<Shared>,
    queue: Mutex<Option<mpsc::Sender<Request>>>,
    queue_space: Arc<Semaphore>,
    /// Groups whose unreadable entries were replaced when the log was opened.
    given_up: BTreeSet<GroupId>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
    /// Replaces the threads in a simulation, which must not start any.
    task: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl Log {
    /// As [`Log::open_watched`], without a callback on failure.
    #[cfg(test)]
    pub(crate) fn open(disk: Arc<dyn Disk>, options: LogOptions) -> Result<Arc<Self>, RaftError> {
        Self::open_watched(disk, options, OnFailure::default(), &BTreeSet::new())
    }

    /// Reads the log back and starts its threads. Blocks while reading. `on_failure` is called when the log fails;
    /// damage to the groups in `accepted` is given up.
    pub(crate) fn open_watched(
        disk: Arc<dyn Disk>,
        options: LogOptions,
        on_failure: OnFailure,
        accepted: &BTreeSet<GroupId>,
    ) -> Result<Arc<Self>, RaftError> {
        if options.segment_bytes < SEGMENT_BYTES_MIN || !options.segment_bytes.is_multiple_of(4096)
        {
            return Err(RaftError::InvalidInput(format!(
                "a segment of {} bytes: it must be a multiple of 4096",
                options.segment_bytes
            )));
        }
        // Read the log back.
        let recovered = recovery::recover(disk.as_ref(), options.segment_bytes, accepted)?;
        let spares = Spares::new(Arc::clone(&disk), options.segment_bytes, recovered.spares);
        let state = State {
            index: Index::new(recovered.groups, options.cache_bytes),
            segments: recovered.segments,
            failed: None,
            counters: Counters::default(),
        };
        let shared = Arc::new(Shared {
            marker: Marker::new(Arc::clone(&disk)),
            disk,
            options,
            state: Mutex::new(state),
            spares,
            pressure: watch::Sender::new(Vec::new()),
            on_failure,
        });
        // Start the writer. Groups whose damage is accepted get blank entries in place of unreadable ones before these
        // can be read, and superfluous segments are removed.
        let (sender, receiver) = mpsc::channel(QUEUE_LEN);
        let mut writer = Writer::start(Arc::clone(&shared), recovered.active, receiver)?;
        if !recovered.given_up.is_empty() {
            writer.accept(recovered.fillers)?;
        }
        writer.reclaim()?;
        // Start the threads; a simulation has one thread and gets a task instead.
        let preparer = Arc::clone(&shared);
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(run)
                .map_err(|error| RaftError::io("start a thread of the log", error))
        };
        let (threads, task) = if blocking::is_in_place() {
            (Vec::new(), Some(tokio::spawn(writer.run_in_place())))
        } else {
            let threads = vec![
                spawn(
                    "raft-log-spares",
                    Box::new(move || preparer.spares.prepare(&preparer.marker)),
                )?,
                spawn("raft-log", Box::new(move || writer.run()))?,
            ];
            (threads, None)
        };
        let queue_permits =
            usize::try_from(QUEUE_BYTES_MAX / QUEUE_UNIT).unwrap_or(Semaphore::MAX_PERMITS);
        Ok(Arc::new(Self {
            shared,
            queue: Mutex::new(Some(sender)),
            given_up: recovered.given_up,
            queue_space: Arc::new(Semaphore::new(queue_permits)),
            threads: Mutex::new(threads),
            task: Mutex::new(task),
        }))
    }

    /// Groups whose log holds anything beyond their creation. A replica that joined may have voted for its leader, and
    /// received the leader's files, before it has an entry.
    pub(crate) fn groups(&self) -> Vec<(GroupId, ReplicaId)> {
        let state = self.shared.state.lock();
        let has_content = |log: &index::GroupLog| {
            log.last.is_some() || log.vote.is_some() || log.damage.is_some()
        };
        let groups = state.index.groups.iter().filter(|(_, log)| has_content(log));
        groups.map(|(group, log)| (*group, log.replica)).collect()
    }

    /// The replica that the log records for the group, even if the log holds nothing else of it.
    pub(crate) fn replica(&self, group: GroupId) -> Option<ReplicaId> {
        self.shared.state.lock().index.groups.get(&group).map(|log| log.replica)
    }

    /// Description of entries or votes that the group acknowledged and may lack; `None` if its log is whole.
    pub(crate) fn damage(&self, group: GroupId) -> Option<String> {
        self.shared.state.lock().index.groups.get(&group)?.damage.as_ref().map(ToString::to_string)
    }

    /// Distrusts the logs of these groups: they belong to an older copy of the node's data.
    pub(crate) fn distrust(&self, groups: &BTreeSet<GroupId>) {
        let mut state = self.shared.state.lock();
        for (_, log) in state.index.groups.iter_mut().filter(|(group, _)| groups.contains(group)) {
            log.distrusted = true;
        }
    }

    /// True if the log of the group is distrusted.
    pub(crate) fn is_distrusted(&self, group: GroupId) -> bool {
        let state = self.shared.state.lock();
        state.index.groups.get(&group).is_some_and(|log| log.distrusted)
    }

    /// True if the damage of a group cannot have lost anything that matters; `sole_member`: the group has one member.
    pub(crate) fn is_void_damage(&self, group: GroupId, sole_member: bool) -> bool {
        let state = self.shared.state.lock();
        let damage = state.index.groups.get(&group).and_then(|log| log.damage.as_ref());
        damage.is_some_and(|damage| damage.is_void(sole_member))
    }

    /// Treats a damaged group as whole, after the caller has found that it lacks nothing that matters. A later recovery
    /// that reads the damaged place reports it again.
    pub(crate) fn forget_damage(&self, group: GroupId) {
        if let Some(log) = self.shared.state.lock().index.groups.get_mut(&group) {
            log.damage = None;
        }
    }

    /// True if blank entries replaced unreadable ones of the group when the log was opened.
    pub(crate) fn is_given_up(&self, group: GroupId) -> bool {
        self.given_up.contains(&group)
    }

    /// Damaged groups, with a description of what may be missing.
    pub(crate) fn damaged(&self) -> Vec<(GroupId, String)> {
        let state = self.shared.state.lock();
        let groups = state.index.groups.iter();
        let damaged = groups.filter_map(|(group, log)| Some((*group, log.damage.as_ref()?)));
        damaged.map(|(group, damage)| (group, damage.to_string())).collect()
    }

    pub(crate) fn view(&self, group: GroupId) -> Result<GroupView, RaftError> {
        let state = self.shared.state.lock();
        let log = state.index.group(group)?;
        Ok(GroupView {
            vote: log.vote,
            purged: log.purged,
            committed: log.committed,
            last: log.last,
        })
    }

    /// The largest payload of an entry: a quarter of a segment, so that rolling wastes little.
    pub(crate) fn payload_bytes_max(&self) -> usize {
        self.shared.options.segment_bytes as usize / 4 - HEADER_BYTES
    }

    /// Checks that new commands may be accepted; the error says why not. Commands accepted before can still be written.
    pub(crate) fn admit(&self) -> Result<(), RaftError> {
        if let Some(wait) = self.shared.spares.wait() {
            return Err(wait.error());
        }
        let state = self.shared.state.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        let (bytes, budget) = (state.bytes(), self.shared.options.budget_bytes);
        let segment_bytes = u64::from(self.shared.options.segment_bytes);
        // Above the budget groups are asked to flush; above twice the budget that has not helped.
        let limit = budget.saturating_mul(2).max(budget + 2 * segment_bytes);
        let held_bytes = || state.index.held_segments().len() as u64 * segment_bytes;
        if bytes > limit && bytes > limit + held_bytes() {
            return Err(RaftError::Unavailable(format!(
                "the log holds {bytes} bytes, its budget is {budget}; it waits for groups {:?} to flush",
                self.shared.pressure.borrow().iter().map(|group| group.0).collect::<Vec<_>>()
            )));
        }
        Ok(())
    }

    /// The error of the write or sync that has failed; `None` while the log works.
    pub(crate) fn failure(&self) -> Option<RaftError> {
        self.shared.state.lock().failed.clone()
    }

    /// True if the log has reached half its budget: then entries that are kept only for replicas that lag are purged.
    pub(crate) fn is_filling(&self) -> bool {
        self.shared.state.lock().bytes() > self.shared.options.budget_bytes / 2
    }

    /// Groups that keep the log over its budget because they have not flushed.
    pub(crate) fn pressure(&self) -> watch::Receiver<Vec<GroupId>> {
        self.shared.pressure.subscribe()
    }

    pub(crate) fn stats(&self) -> LogStats {
        let disk_full = self.shared.spares.wait().is_some_and(|wait| wait.full);
        let state = self.shared.state.lock();
        let segments = state.segments.len() as u64;
        state.counters.summary(segments, state.bytes(), state.index.cached_bytes(), disk_full)
    }

    /// Creates the group; completes when that is on disk.
    pub(crate) async fn create(&self, group: GroupId, replica: ReplicaId) -> Result<(), RaftError> {
        let room = self.room_for_groups();
        self.durable(move |state| {
            check_room(state, room)?;
            state.index.create(group, replica)?;
            Ok(Operation::control(Record::Create { group, replica: replica.0 }, group))
        })
        .await
    }

    /// Creates the group with this entry as its first; completes when that is on disk.
    pub(crate) async fn seed(
        &self,
        group: GroupId,
        replica: ReplicaId,
        entry: LogEntry,
    ) -> Result<(), RaftError> {
        let room = self.room_for_groups();
        self.durable(move |state| {
            check_room(state, room)?;
            let write = state.index.seed(group, replica, &entry)?;
            Ok(Operation::seed(group, replica.0, write, entry))
        })
        .await
    }

    /// Bytes that the state of all groups may take in a checkpoint.
    fn room_for_groups(&self) -> u64 {
        u64::from(self.shared.options.segment_bytes) / 4
    }

    /// Removes the group; completes when that is on disk.
    pub(crate) async fn destroy(&self, group: GroupId) -> Result<(), RaftError> {
        self.durable(move |state| {
            let released = state.index.destroy(group);
            Ok(Operation::control(Record::Destroy { group }, group).releasing(released))
        })
        .await
    }

    /// Saves a vote; completes when it is on disk.
    pub(crate) async fn save_vote(&self, group: GroupId, vote: Vote) -> Result<(), RaftError> {
        if planted::is(Plant::ForgetVote) {
            return self.shared.state.lock().index.set_vote(group, vote);
        }
        self.durable(move |state| {
            state.index.set_vote(group, vote)?;
            Ok(Operation::control(Record::Vote { group, vote }, group))
        })
        .await
    }

    /// Saves the commit position. It is written with the group's next entries, or with a checkpoint.
    pub(crate) fn save_committed(
        &self,
        group: GroupId,
        committed: Option<Position>,
    ) -> Result<(), RaftError> {
        self.shared.state.lock().index.set_committed(group, committed)
    }

    /// Adds entries. They are readable when this returns; `callback` is called when they are on disk, or when they
    /// never will be.
    pub(crate) async fn append(
        &self,
        group: GroupId,
        entries: Vec<LogEntry>,
        callback: Done,
    ) -> Result<(), RaftError> {
        let max = self.payload_bytes_max();
        let mut bytes = 0;
        for entry in &entries {
            if entry.payload.len() > max {
                return Err(RaftError::InvalidInput(format!(
                    "an entry of {} bytes is over the limit of {max}",
                    entry.payload.len()
                )));
            }
            bytes += entry.stored_bytes() as u64;
        }
        let units =
            u32::try_from(bytes.min(QUEUE_BYTES_MAX).div_ceil(QUEUE_UNIT)).unwrap_or(u32::MAX);
        let space =
            Arc::clone(&self.queue_space).acquire_many_owned(units).await.map_err(|_| closed())?;
        self.enqueue(callback, Some(space), move |state| {
            let write = state.index.append(group, &entries)?;
            Ok(Operation::append(group, write, entries))
        })
        .await
    }

    /// Removes the entries after `last`: in memory at once, on disk before any operation that is queued later.
    pub(crate) async fn truncate(
        &self,
        group: GroupId,
        last: Option<Position>,
    ) -> Result<(), RaftError> {
        self.enqueue(writer::ignore(), None, move |state| {
            let released = state.index.truncate(group, last)?;
            Ok(Operation::control(Record::Truncate { group, last }, group).releasing(released))
        })
        .await
    }

    /// Purges the entries up to `upto`: in memory at once, on disk before any operation that is queued later.
    pub(crate) async fn purge(&self, group: GroupId, upto: Position) -> Result<(), RaftError> {
        self.enqueue(writer::ignore(), None, move |state| {
            let released = state.index.purge(group, upto)?;
            Ok(Operation::control(Record::Purge { group, upto }, group).releasing(released))
        })
        .await
    }

    async fn durable(
        &self,
        prepare: impl FnOnce(&mut State) -> Result<Operation, RaftError> + Send,
    ) -> Result<(), RaftError> {
        let (sender, receiver) = oneshot::channel();
        let callback: Done = Box::new(move |result| {
            // The waiter may have been cancelled; the record is written all the same.
            sender.send(result).ok();
        });
        self.enqueue(callback, None, prepare).await?;
        receiver.await.map_err(|_| closed())?
    }

    /// Changes the index and queues the operation in one step, so that both see all operations in the same order. A
    /// future that is dropped before it completes has changed nothing.
    async fn enqueue(
        &self,
        callback: Done,
        space: Option<tokio::sync::OwnedSemaphorePermit>,
        prepare: impl FnOnce(&mut State) -> Result<Operation, RaftError> + Send,
    ) -> Result<(), RaftError> {
        let sender = self.queue.lock().clone().ok_or_else(closed)?;
        let permit = sender.reserve().await.map_err(|_| closed())?;
        let mut state = self.shared.state.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        let operation = prepare(&mut state)?;
        permit.send(Request { operation, done: callback, _space: space });
        Ok(())
    }

    /// Reads the entries in `[start, end)` that exist: about `bytes_max` bytes, but at least one entry.
    pub(crate) async fn read(
        &self,
        group: GroupId,
        start: u64,
        end: u64,
        bytes_max: u64,
    ) -> Result<Vec<LogEntry>, RaftError> {
        loop {
            let planned = self.shared.state.lock().index.plan(group, start, end, bytes_max)?;
            if planned.iter().all(|item| matches!(item, Planned::Cached(_))) {
                let cached = planned.into_iter().filter_map(|item| match item {
                    Planned::Cached(entry) => Some(entry),
                    Planned::Stored { .. } => None,
                });
                return Ok(cached.collect());
            }
            let shared = Arc::clone(&self.shared);
            let fetched = blocking::spawn(move || shared.fetch(group, planned)).await.map_err(
                |error| RaftError::Unavailable(format!("reading the log was interrupted: {error}")),
            )??;
            if let Some(entries) = fetched {
                return Ok(entries);
            }
            // Entries were moved, purged or truncated during the read, which takes a sync each time: this loop cannot
            // spin.
        }
    }

    /// Waits for the end of the task that replaces the threads, if there is one. Call it after [`Log::close`].
    pub(crate) async fn ended(&self) {
        let task = self.task.lock().take();
        if let Some(task) = task
            && task.await.is_err()
        {
            tracing::error!("the task of the log panicked");
        }
    }

    /// Writes all queued operations, stops the threads and unlocks the directory.
    pub(crate) fn close(&self) {
        drop(self.queue.lock().take());
        self.shared.spares.close();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the log panicked");
            }
        }
        self.shared.disk.release();
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // The threads end by themselves once the queue is closed, unless they wait for disk space.
        self.shared.spares.close();
    }
}

fn check_room(state: &State, room: u64) -> Result<(), RaftError> {
    let groups = state.index.groups.len() as u64;
    if (groups + 1) * checkpoint::GROUP_BYTES_MAX as u64 <= room {
        return Ok(());
    }
    Err(RaftError::InvalidInput(format!(
        "{groups} groups are as many as a log with segments of {} bytes can hold",
        4 * room
    )))
}

fn closed() -> RaftError {
    RaftError::Unavailable("the log is closed".to_owned())
}

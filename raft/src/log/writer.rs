//! The one thread that writes the log.
//!
//! ```text
//! loop: wait for a request, take all others that wait (up to 8 MiB)
//!       encode into one buffer -> write -> sync -> record locations in the index -> complete
//!       give up segments that nothing needs; over budget, move small old tails, or name the groups that must flush
//! ```
//!
//! Invariants:
//! - a record never straddles segments; before the first record of a new segment is written, the old one is sealed
//!   and synced;
//! - completions come in the order of the queue;
//! - a write or sync that fails is not repeated: the error answers everything from then on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use partita_proto::id::GroupId;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::disk::DiskFile;
use super::index::{Location, Planned, Released};
use super::mark::Synced;
use super::record::{HEADER_BYTES, LogEntry, Record, record_bytes};
use super::recovery::{Segment, segment_name};
use super::{Shared, checkpoint, spares};
use crate::error::RaftError;
use crate::planted::{self, Plant};

/// Maximum bytes of a batch, although more requests wait: a disk writes that much in a few milliseconds.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// Maximum bytes of an idle group's entries that are moved to the end of the log to free a segment.
const TAIL_BYTES_MAX: u64 = 4096;

/// Called once, when the operation is on disk or never will be.
pub(crate) type Done = Box<dyn FnOnce(Result<(), RaftError>) + Send>;

/// A [`Done`] that does nothing, for operations without a waiter: if they fail, so does everything after them.
pub(crate) fn ignore() -> Done {
    Box::new(|_| {})
}

/// Records to be written for one group, and the effect on segments once they are durable.
pub(crate) struct Operation {
    group: GroupId,
    records: Vec<Record>,
    /// Id of the write that the entries among the records belong to.
    write: u64,
    released: Released,
}

impl Operation {
    pub(crate) fn control(record: Record, group: GroupId) -> Self {
        Self { group, records: vec![record], write: 0, released: Released::new() }
    }

    pub(crate) fn append(group: GroupId, write: u64, entries: Vec<LogEntry>) -> Self {
        let records = entries.into_iter().map(|entry| Record::Append { group, entry }).collect();
        Self { group, records, write, released: Released::new() }
    }

    pub(crate) fn seed(group: GroupId, replica: u64, write: u64, entry: LogEntry) -> Self {
        let records = vec![Record::Seed { group, replica, entry }];
        Self { group, records, write, released: Released::new() }
    }

    pub(crate) fn releasing(mut self, released: Released) -> Self {
        self.released = released;
        self
    }
}

/// An operation, and the callback that completes it.
pub(crate) struct Request {
    pub(crate) operation: Operation,
    pub(crate) done: Done,
    /// Permit for the operation's bytes in the queue; released when the request is dropped.
    pub(crate) _space: Option<OwnedSemaphorePermit>,
}

/// An entry in the buffer, whose location is recorded in the index once it is on disk.
struct Landing {
    group: GroupId,
    index: u64,
    /// The write that added the entry, or the location it was copied from.
    origin: Origin,
    location: Location,
}

enum Origin {
    Append(u64),
    Copy(Location),
    /// The entry replaces one that cannot be read.
    Fill,
}

struct Active {
    number: u32,
    file: Arc<dyn DiskFile>,
    bytes: u32,
    /// Offset of the next write; everything before it is on disk.
    offset: u32,
}

/// The state of the writer thread.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    queue: mpsc::Receiver<Request>,
    active: Active,
    buffer: Vec<u8>,
    landings: Vec<Landing>,
    released: Vec<Released>,
}

impl Writer {
    /// Continues the log where recovery found its end, or begins one.
    pub(crate) fn start(
        shared: Arc<Shared>,
        active: Option<(u32, u32)>,
        queue: mpsc::Receiver<Request>,
    ) -> Result<Self, RaftError> {
        let (number, offset) = match active {
            Some(end) => end,
            None => (begin(&shared, 1)?, 0),
        };
        let active = {
            let state = shared.state.lock();
            let segment = &state.segments[&number];
            Active { number, file: Arc::clone(&segment.file), bytes: segment.bytes, offset }
        };
        let mut writer = Self {
            shared,
            queue,
            active,
            buffer: Vec::new(),
            landings: Vec::new(),
            released: Vec::new(),
        };
        if offset == 0 {
            writer.put_checkpoint()?;
            writer.flush()?;
        }
        writer.note_synced()?;
        Ok(writer)
    }

    /// Accepts the loss of unreadable entries: writes blank ones in their place, and begins a new segment, whose
    /// checkpoint no longer records the damage.
    pub(crate) fn accept(&mut self, fillers: Vec<(GroupId, LogEntry)>) -> Result<(), RaftError> {
        // The preparing thread does not run yet.
        self.shared.spares.prepare_now();
        for (group, entry) in fillers {
            let index = entry.position.index;
            let location = self.put(&Record::Moved { group, entry })?;
            self.landings.push(Landing { group, index, origin: Origin::Fill, location });
        }
        self.flush()?;
        self.shared.spares.prepare_now();
        self.roll()?;
        self.flush()
    }

    /// Serves the queue until it is closed.
    pub(crate) fn run(mut self) {
        while let Some(first) = self.queue.blocking_recv() {
            let mut bytes = size(&first);
            let mut batch = vec![first];
            while bytes < BATCH_BYTES_MAX
                && let Ok(next) = self.queue.try_recv()
            {
                bytes += size(&next);
                batch.push(next);
            }
            self.serve(batch);
        }
        self.shared.marker.sync();
        self.shared.spares.stop();
    }

    /// As [`Writer::run`], but as a task that also does the work of the preparing thread: for simulations, where one
    /// thread does everything and the disk takes simulated time.
    pub(crate) async fn run_in_place(mut self) {
        while let Some(first) = self.next_in_place().await {
            tokio::time::sleep(self.shared.disk.pause()).await;
            let mut bytes = size(&first);
            let mut batch = vec![first];
            // A batch stays smaller than the segment that is ready.
            while bytes < self.active.bytes as usize / 4
                && let Ok(next) = self.queue.try_recv()
            {
                bytes += size(&next);
                batch.push(next);
            }
            if self.is_acked_unopened(bytes) {
                batch.into_iter().for_each(|request| (request.done)(Ok(())));
                continue;
            }
            // As with threads, a full disk does not delay a batch that fits into this segment.
            while !self.fits(bytes + HEADER_BYTES) && !self.shared.spares.prepare_now() {
                tokio::time::sleep(spares::RETRY_AFTER).await;
            }
            self.serve(batch);
            self.shared.spares.prepare_now();
            self.shared.marker.sync();
        }
        self.shared.marker.sync();
        self.shared.spares.stop();
    }

    /// The next request. While the next file is missing, nothing new may be accepted and no request may come, so this
    /// retries at intervals, as the preparing thread does.
    async fn next_in_place(&mut self) -> Option<Request> {
        while self.shared.spares.wait().is_some() {
            if let Ok(request) = tokio::time::timeout(spares::RETRY_AFTER, self.queue.recv()).await
            {
                return request;
            }
            self.shared.spares.prepare_now();
        }
        self.queue.recv().await
    }

    /// True if a planted bug acknowledges a batch of that size without writing it.
    fn is_acked_unopened(&self, bytes: usize) -> bool {
        planted::is(Plant::AckUnopened)
            && !self.fits(bytes + HEADER_BYTES)
            && !self.shared.spares.prepare_now()
            && self.shared.spares.wait().is_some_and(|wait| !wait.full)
    }

    fn serve(&mut self, batch: Vec<Request>) {
        let failed = self.shared.state.lock().failed.clone();
        let result = match failed {
            Some(error) => Err(error),
            None => self.write(&batch).inspect_err(|error| self.fail(error)),
        };
        for request in batch {
            (request.done)(result.clone());
        }
        if result.is_ok()
            && let Err(error) = self.reclaim()
        {
            self.fail(&error);
        }
    }

    /// Ends all writing, and runs the failure callback before any request is answered.
    fn fail(&self, error: &RaftError) {
        tracing::error!(%error, "the log has failed and accepts nothing more");
        self.shared.state.lock().failed = Some(error.clone());
        // The log was closed while it waited for space: the state on disk is known.
        if !matches!(error, RaftError::DiskFull(_)) && !planted::is(Plant::KeepFailed) {
            self.shared.on_failure.call(error);
        }
    }

    fn write(&mut self, batch: &[Request]) -> Result<(), RaftError> {
        // Put all records into the buffer, and note where entries land, for the index.
        let mut groups = BTreeSet::new();
        for request in batch {
            let operation = &request.operation;
            groups.insert(operation.group);
            for record in &operation.records {
                let location = self.put(record)?;
                if let Record::Append { group, entry } | Record::Seed { group, entry, .. } = record
                {
                    let origin = Origin::Append(operation.write);
                    self.landings.push(Landing {
                        group: *group,
                        index: entry.position.index,
                        origin,
                        location,
                    });
                }
            }
            if !operation.released.is_empty() {
                self.released.push(operation.released.clone());
            }
        }
        // Commit positions are written with the other records of their groups.
        for group in groups {
            let committed = self.shared.state.lock().index.take_committed(group);
            if let Some(upto) = committed {
                self.put(&Record::Committed { group, upto })?;
            }
        }
        self.flush()
    }

    /// Adds a record to the buffer; begins the next segment if the record does not fit into this one.
    fn put(&mut self, record: &Record) -> Result<Location, RaftError> {
        if !self.fits(record.stored_bytes()) {
            self.roll()?;
            if !self.fits(record.stored_bytes()) {
                return Err(RaftError::Corrupted(format!(
                    "a record of {} bytes does not fit into an empty segment",
                    record.stored_bytes()
                )));
            }
        }
        let start = self.buffer.len();
        record.encode(self.active.number, self.active.offset, &mut self.buffer)?;
        let limit = |bytes: usize| u32::try_from(bytes).map_err(|_| too_large(bytes));
        Ok(Location {
            segment: self.active.number,
            offset: self.active.offset + limit(start)?,
            bytes: limit(self.buffer.len() - start)?,
        })
    }

    /// True if a record of that size fits into this segment, together with the seal that must follow it.
    fn fits(&self, bytes: usize) -> bool {
        self.active.offset as usize + self.buffer.len() + bytes + record_bytes(0)
            <= self.active.bytes as usize
    }

    /// Writes and syncs the buffer, and updates the index.
    fn flush(&mut self) -> Result<(), RaftError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let name = segment_name(self.active.number);
        let failed = |action: &str, error| {
            RaftError::io(format!("{action} {}", self.shared.disk.describe(&name)), error)
        };
        // Write and sync: then the buffer is durable.
        let started = Instant::now();
        self.write_buffer()?;
        let appends =
            || self.landings.iter().any(|landing| matches!(landing.origin, Origin::Append(_)));
        if !(planted::is(Plant::SkipSync) && appends()) {
            let synced = self.active.file.sync();
            if !planted::is(Plant::IgnoreSync) {
                synced.map_err(|error| failed("sync", error))?;
            }
        }
        let took = started.elapsed();
        self.active.offset +=
            u32::try_from(self.buffer.len()).map_err(|_| too_large(self.buffer.len()))?;
        self.note_synced()?;

        let mut state = self.shared.state.lock();
        let state = &mut *state;
        state.counters.synced(took);
        state.counters.appended_bytes += self.buffer.len() as u64;
        // Record in the index where the entries lie, and count the live entries per segment. An entry that was
        // truncated or purged meanwhile is not live.
        for landing in self.landings.drain(..) {
            let live = match landing.origin {
                Origin::Append(write) => {
                    state.counters.appended_entries += 1;
                    state.index.stored(landing.group, landing.index, write, landing.location)
                }
                Origin::Fill => state.index.filled(landing.group, landing.index, landing.location),
                Origin::Copy(source) => {
                    let live =
                        state.index.moved(landing.group, landing.index, source, landing.location);
                    if live && let Some(segment) = state.segments.get_mut(&source.segment) {
                        segment.live -= 1;
                    }
                    live
                }
            };
            if live && let Some(segment) = state.segments.get_mut(&landing.location.segment) {
                segment.live += 1;
            }
        }
        for released in self.released.drain(..) {
            for (number, entries) in released {
                if let Some(segment) = state.segments.get_mut(&number) {
                    segment.live -= entries;
                }
            }
        }
        state.index.evict();
        self.buffer.clear();
        Ok(())
    }

    /// Records in the mark that everything before the next write is synced.
    fn note_synced(&self) -> Result<(), RaftError> {
        let synced = Synced { segment: self.active.number, offset: self.active.offset };
        self.shared.marker.begin(synced)?;
        self.shared.marker.note(synced)
    }

    /// Writes the buffer. On file systems that allocate on write there may be no space: then the same bytes are written
    /// to the same place again until there is. The state on disk stays known, because nothing was synced in between.
    fn write_buffer(&self) -> Result<(), RaftError> {
        let spares = &self.shared.spares;
        loop {
            let written = self.active.file.write(&self.buffer, u64::from(self.active.offset));
            let name = || self.shared.disk.describe(&segment_name(self.active.number));
            match written {
                Ok(()) => {
                    spares.note_written();
                    return Ok(());
                }
                Err(error) if spares::is_full(&error) => {
                    spares.wait_to_write(format!("no space to write {}: {error}", name()))?;
                }
                Err(error) => return Err(RaftError::io(format!("write {}", name()), error)),
            }
        }
    }

    /// Continues in a new segment.
    fn roll(&mut self) -> Result<(), RaftError> {
        // First flush what belongs to this segment: the checkpoint of the next one may name only what is on disk.
        self.flush()?;
        let number = self.active.number.checked_add(1).ok_or_else(|| {
            RaftError::InvalidInput("the log has used up all segment numbers".to_owned())
        })?;
        begin(&self.shared, number)?;
        Record::Seal.encode(self.active.number, self.active.offset, &mut self.buffer)?;
        self.flush()?;
        let state = self.shared.state.lock();
        let segment = &state.segments[&number];
        self.active =
            Active { number, file: Arc::clone(&segment.file), bytes: segment.bytes, offset: 0 };
        drop(state);
        self.put_checkpoint()
    }

    fn put_checkpoint(&mut self) -> Result<(), RaftError> {
        let payload = checkpoint::encode(&self.shared.state.lock().index);
        let record = Record::Checkpoint(payload);
        if !self.fits(record.stored_bytes()) {
            return Err(too_large(record.stored_bytes()));
        }
        record.encode(self.active.number, 0, &mut self.buffer)
    }

    /// Gives up segments without live entries; over budget, moves entries until there are some, or reports the groups
    /// that must flush.
    pub(crate) fn reclaim(&mut self) -> Result<(), RaftError> {
        loop {
            self.give_up_dead()?;
            let Some(oldest) = self.oldest_over_budget() else {
                self.report_pressure(Vec::new());
                return Ok(());
            };
            let (movable, pinning) = self.pinned_by(oldest);
            if !pinning.is_empty() {
                // Until these groups flush, moving the others' entries would free nothing.
                self.report_pressure(pinning);
                return Ok(());
            }
            if movable.is_empty() || !self.move_tails(movable)? {
                return Ok(());
            }
        }
    }

    fn give_up_dead(&self) -> Result<(), RaftError> {
        let dead: Vec<(u32, Arc<dyn DiskFile>)> = {
            let mut state = self.shared.state.lock();
            let active = self.active.number;
            let dead = state
                .segments
                .iter()
                // The second last segment stays: the last one's checkpoint, if damaged, follows from it.
                .filter(|(number, segment)| segment.live == 0 && **number + 1 < active);
            let dead: Vec<u32> = dead.map(|(number, _)| *number).collect();
            dead.into_iter()
                .filter_map(|number| Some((number, state.segments.remove(&number)?.file)))
                .collect()
        };
        for (number, file) in dead {
            let name = segment_name(number);
            self.shared.spares.give(&name, number, file).map_err(|error| {
                RaftError::io(format!("give up {}", self.shared.disk.describe(&name)), error)
            })?;
        }
        Ok(())
    }

    /// The oldest segment, if the log is over its budget and that segment is not the one being written.
    fn oldest_over_budget(&self) -> Option<u32> {
        let state = self.shared.state.lock();
        if state.bytes() <= self.shared.options.budget_bytes {
            return None;
        }
        let held_segments = state.index.held_segments();
        let held_bytes = held_segments.len() as u64 * u64::from(self.shared.options.segment_bytes);
        if state.bytes() <= self.shared.options.budget_bytes + held_bytes {
            return None;
        }
        let mut free =
            state.segments.keys().copied().filter(|number| !held_segments.contains(number));
        free.next().filter(|number| *number != self.active.number)
    }

    /// The entries that keep segment `oldest` alive: those that can be moved, and the groups that have too much there.
    fn pinned_by(&self, oldest: u32) -> (Vec<(GroupId, u64, Location)>, Vec<GroupId>) {
        let state = self.shared.state.lock();
        let mut movable = Vec::new();
        let mut pinning = Vec::new();
        for (group, log) in &state.index.groups {
            if log.first_segment() != Some(oldest) || log.is_stuck() {
                continue;
            }
            match log.movable(TAIL_BYTES_MAX) {
                Some(entries) => {
                    movable.extend(
                        entries.into_iter().map(|(index, location)| (*group, index, location)),
                    );
                }
                None => pinning.push(*group),
            }
        }
        (movable, pinning)
    }

    /// Moves entries to the end of the log. Returns `false` if there is no room for them now.
    fn move_tails(&mut self, entries: Vec<(GroupId, u64, Location)>) -> Result<bool, RaftError> {
        let bytes: usize = entries.iter().map(|(_, _, location)| location.bytes as usize).sum();
        // Never waits for space: that would delay the queued operations.
        if !self.fits(bytes + HEADER_BYTES) && !self.shared.spares.is_ready() {
            return Ok(false);
        }
        for (group, index, source) in entries {
            let planned = vec![Planned::Stored { index, location: source }];
            // Purged meanwhile: nothing to move.
            let Some(read) = self.shared.fetch(group, planned)? else { continue };
            for entry in read {
                let location = self.put(&Record::Moved { group, entry })?;
                self.landings.push(Landing {
                    group,
                    index,
                    origin: Origin::Copy(source),
                    location,
                });
            }
        }
        self.flush()?;
        Ok(true)
    }

    fn report_pressure(&self, groups: Vec<GroupId>) {
        self.shared.pressure.send_if_modified(|current| {
            let modified = *current != groups;
            if modified {
                tracing::debug!(groups = groups.len(), "groups that keep the log over its budget");
                *current = groups;
            }
            modified
        });
    }
}

/// Puts a file in place as segment `number`. The name is durable before any record refers to the segment.
fn begin(shared: &Shared, number: u32) -> Result<u32, RaftError> {
    let name = segment_name(number);
    let failed = |error| RaftError::io(format!("begin {}", shared.disk.describe(&name)), error);
    let file = if shared.state.lock().segments.is_empty() && !shared.spares.is_ready() {
        // The very first segment: the preparing thread does not run yet.
        shared.spares.prepare_as(&name)?
    } else {
        shared.spares.take(&name)?
    };
    shared.disk.sync_names().map_err(failed)?;
    shared
        .state
        .lock()
        .segments
        .insert(number, Segment { file, bytes: shared.options.segment_bytes, live: 0 });
    Ok(number)
}

fn size(request: &Request) -> usize {
    request.operation.records.iter().map(Record::stored_bytes).sum()
}

fn too_large(bytes: usize) -> RaftError {
    RaftError::InvalidInput(format!("{bytes} bytes are too many for a segment of the log"))
}

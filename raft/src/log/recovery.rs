//! From the files of a directory to the state of the log.
//!
//! ```text
//! LOG_FORMAT  0000000003.log  0000000004.log  0000000006.log  spare-0000000005.log
//!             ckpt ... seal   ckpt ... seal   ckpt ... end    (any content)
//! ```
//!
//! Segments are read from the oldest on. Each starts with a checkpoint and, if it has a successor, ends with a
//! seal. Numbers may be missing in between: those segments held nothing that was still needed.
//!
//! Invariants:
//! - only the last segment may end without a seal; a bad record anywhere else is an error that names file and offset;
//! - in the last segment a bad record is the end of the log, unless a later record proves that it had been synced;
//! - every entry between what was purged and the end of a group's log must be found, or the log is corrupted.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use partita_proto::id::{GroupId, ReplicaId};

use super::checkpoint;
use super::disk::{Disk, DiskFile};
use super::index::{GroupLog, Location, Seeded};
use super::record::{self, ALIGNMENT, LogEntry, Position, Record, Vote};
use super::spares::Spare;
use crate::error::RaftError;

/// Says which format the directory has.
const FORMAT_FILE: &str = "LOG_FORMAT";
const FORMAT_TEXT: &str = "partita raft log 1\n";
const SPARE_PREFIX: &str = "spare-";
const SUFFIX: &str = ".log";
const UNFINISHED_SUFFIX: &str = ".new";

/// A segment that is part of the log.
pub(crate) struct Segment {
    pub(crate) file: Arc<dyn DiskFile>,
    /// Of the whole file.
    pub(crate) bytes: u32,
    /// Entries in it that are still needed.
    pub(crate) live: u64,
}

/// The log as it was found.
pub(crate) struct Recovered {
    pub(crate) groups: BTreeMap<GroupId, GroupLog>,
    pub(crate) segments: BTreeMap<u32, Segment>,
    /// The segment to go on in, and where. `None`: the log is new.
    pub(crate) active: Option<(u32, u32)>,
    /// Files that can become segments.
    pub(crate) spares: Vec<Spare>,
}

/// The file name of a segment.
pub(crate) fn segment_name(number: u32) -> String {
    format!("{number:010}{SUFFIX}")
}

/// A file name for what used to be, or may become, that segment.
pub(crate) fn spare_name(number: u32) -> String {
    format!("{SPARE_PREFIX}{number:010}{SUFFIX}")
}

/// The name under which a file is prepared until it is whole.
pub(crate) fn unfinished_name() -> String {
    format!("segment{UNFINISHED_SUFFIX}")
}

/// Reads the whole log.
pub(crate) fn recover(disk: &dyn Disk, segment_bytes: u32) -> Result<Recovered, RaftError> {
    let names = disk.names().map_err(|error| RaftError::io("list the log's files", error))?;
    let mut numbers = Vec::new();
    let mut spares = Vec::new();
    for name in &names {
        if let Some(number) = name.strip_suffix(SUFFIX).and_then(|stem| stem.parse::<u32>().ok()) {
            numbers.push(number);
        } else if name.starts_with(SPARE_PREFIX) && name.ends_with(SUFFIX) {
            spares.push(name.clone());
        } else if name.ends_with(UNFINISHED_SUFFIX) {
            disk.remove(name).map_err(|error| failed(disk, "remove", name, error))?;
        } else if name != FORMAT_FILE {
            tracing::warn!(file = %disk.describe(name), "not a file of the log; left alone");
        }
    }
    numbers.sort_unstable();
    check_format(disk, &names, numbers.is_empty())?;
    let spares = keep_fitting(disk, spares, segment_bytes)?;
    let mut recovery =
        Recovery { disk, groups: BTreeMap::new(), segments: BTreeMap::new(), spares };
    let active = recovery.read_segments(&numbers)?;
    recovery.finish(active)
}

fn failed(disk: &dyn Disk, what: &str, name: &str, error: io::Error) -> RaftError {
    RaftError::io(format!("{what} {}", disk.describe(name)), error)
}

/// Checks that the directory is ours and of this format; marks it so if it is new.
fn check_format(disk: &dyn Disk, names: &[String], empty: bool) -> Result<(), RaftError> {
    let at = disk.describe(FORMAT_FILE);
    if names.iter().any(|name| name == FORMAT_FILE) {
        let file =
            disk.open(FORMAT_FILE).map_err(|error| failed(disk, "open", FORMAT_FILE, error))?;
        let bytes = file.bytes().map_err(|error| failed(disk, "read", FORMAT_FILE, error))?;
        let mut text = vec![0; usize::try_from(bytes.min(64)).unwrap_or(64)];
        file.read(&mut text, 0).map_err(|error| failed(disk, "read", FORMAT_FILE, error))?;
        if text == FORMAT_TEXT.as_bytes() {
            return Ok(());
        }
        return Err(RaftError::Incompatible(format!(
            "{at} says {:?}, this version reads and writes {:?}",
            String::from_utf8_lossy(&text).trim_end(),
            FORMAT_TEXT.trim_end()
        )));
    }
    if !empty {
        return Err(RaftError::Incompatible(format!(
            "{at} is missing beside the segments of a log"
        )));
    }
    let unfinished = format!("{FORMAT_FILE}{UNFINISHED_SUFFIX}");
    let write = || -> io::Result<()> {
        let file = disk.create(&unfinished, FORMAT_TEXT.len() as u64)?;
        file.write(FORMAT_TEXT.as_bytes(), 0)?;
        file.sync()?;
        disk.rename(&unfinished, FORMAT_FILE)?;
        disk.sync_names()
    };
    write().map_err(|error| failed(disk, "write", FORMAT_FILE, error))
}

/// Removes spare files of another length: unfinished, or from before the option was changed.
fn keep_fitting(
    disk: &dyn Disk,
    spares: Vec<String>,
    segment_bytes: u32,
) -> Result<Vec<Spare>, RaftError> {
    let mut fitting = Vec::new();
    for name in spares {
        let (file, bytes) = disk
            .open(&name)
            .and_then(|file| file.bytes().map(|bytes| (file, bytes)))
            .map_err(|error| failed(disk, "open", &name, error))?;
        if bytes == u64::from(segment_bytes) {
            fitting.push(Spare { name, file });
        } else {
            disk.remove(&name).map_err(|error| failed(disk, "remove", &name, error))?;
        }
    }
    Ok(fitting)
}

/// A group while the log is read.
struct Replayed {
    replica: ReplicaId,
    vote: Option<Vote>,
    purged: Option<Position>,
    committed: Option<Position>,
    first: u64,
    end: u64,
    /// May have holes until all of the log is read.
    entries: BTreeMap<u64, (Location, Position)>,
}

impl Replayed {
    fn new(replica: ReplicaId) -> Self {
        Self {
            replica,
            vote: None,
            purged: None,
            committed: None,
            first: 0,
            end: 0,
            entries: BTreeMap::new(),
        }
    }

    fn seeded(replica: ReplicaId, entry: &LogEntry, location: Location) -> Self {
        let Seeded { vote, purged } = Seeded::of(entry.position);
        let index = entry.position.index;
        Self {
            vote: Some(vote),
            purged: Some(purged),
            first: index,
            end: index + 1,
            entries: BTreeMap::from([(index, (location, entry.position))]),
            ..Self::new(replica)
        }
    }

    fn cut(&mut self) {
        self.entries.retain(|index, _| (self.first..self.end).contains(index));
    }
}

/// How a segment ends.
enum End {
    Sealed,
    /// At that offset no valid record starts.
    Open(usize),
}

struct Recovery<'a> {
    disk: &'a dyn Disk,
    groups: BTreeMap<GroupId, Replayed>,
    segments: BTreeMap<u32, Segment>,
    spares: Vec<Spare>,
}

impl Recovery<'_> {
    /// Reads all segments; says where to go on.
    fn read_segments(&mut self, numbers: &[u32]) -> Result<Option<(u32, u32)>, RaftError> {
        let mut last: Option<(u32, End, Bytes)> = None;
        for (at, &number) in numbers.iter().enumerate() {
            let name = segment_name(number);
            let (file, data) = self.load(&name)?;
            let bytes = u32::try_from(data.len()).map_err(|_| {
                RaftError::Corrupted(format!(
                    "{} is too long for a segment",
                    self.disk.describe(&name)
                ))
            })?;
            let started = matches!(
                record::decode(&data, 0, number),
                Some(record::Decoded { record: Record::Checkpoint(_), .. })
            );
            if !started {
                return self.end_before(number, &file, &data, last, at + 1 == numbers.len());
            }
            if let Some((before, End::Open(offset), _)) = &last {
                return Err(self.damaged(*before, *offset));
            }
            let end = self.replay(number, &data)?;
            self.segments.insert(number, Segment { file, bytes, live: 0 });
            last = Some((number, end, data));
        }
        match last {
            None => Ok(None),
            Some((number, End::Sealed, _)) => Err(RaftError::Corrupted(format!(
                "{} is sealed, but the segment after it is missing",
                self.disk.describe(&segment_name(number))
            ))),
            Some((number, End::Open(offset), data)) => self.end_at(number, offset, &data).map(Some),
        }
    }

    /// The last file has no checkpoint: its segment was never begun, or its beginning never synced.
    fn end_before(
        &mut self,
        number: u32,
        file: &Arc<dyn DiskFile>,
        data: &Bytes,
        before: Option<(u32, End, Bytes)>,
        is_last: bool,
    ) -> Result<Option<(u32, u32)>, RaftError> {
        if !is_last || proven_after(data, 0, number) {
            return Err(self.damaged(number, 0));
        }
        match before {
            Some((before, End::Open(offset), data)) => {
                // The one before was not sealed yet, so nothing was ever written here.
                let (from, to) = (segment_name(number), spare_name(number));
                self.disk
                    .rename(&from, &to)
                    .map_err(|error| failed(self.disk, "rename", &from, error))?;
                self.spares.push(Spare { name: to, file: Arc::clone(file) });
                self.end_at(before, offset, &data).map(Some)
            }
            Some((_, End::Sealed, _)) | None => {
                let name = segment_name(number);
                erase_claims(file.as_ref(), data, 0, number)
                    .map_err(|error| failed(self.disk, "erase", &name, error))?;
                let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
                self.segments.insert(number, Segment { file: Arc::clone(file), bytes, live: 0 });
                Ok(Some((number, 0)))
            }
        }
    }

    /// The last segment ends at `offset`, unless that can be shown to be damage.
    fn end_at(
        &mut self,
        number: u32,
        offset: usize,
        data: &Bytes,
    ) -> Result<(u32, u32), RaftError> {
        if proven_after(data, offset, number) {
            return Err(self.damaged(number, offset));
        }
        let name = segment_name(number);
        let segment = &self.segments[&number];
        // What was read may have come from a cache that a power cut would empty: make it durable before building
        // on it. What lies behind must not come back to life once the records before it are overwritten.
        erase_claims(segment.file.as_ref(), data, offset, number)
            .and_then(|()| segment.file.sync())
            .map_err(|error| failed(self.disk, "sync", &name, error))?;
        let offset = u32::try_from(offset).map_err(|_| {
            RaftError::Corrupted(format!("{} is too long", self.disk.describe(&name)))
        })?;
        Ok((number, offset))
    }

    fn damaged(&self, number: u32, offset: usize) -> RaftError {
        RaftError::Corrupted(format!(
            "{} has a bad record at offset {offset}, and the log goes on after it",
            self.disk.describe(&segment_name(number))
        ))
    }

    fn load(&self, name: &str) -> Result<(Arc<dyn DiskFile>, Bytes), RaftError> {
        let load = || -> io::Result<(Arc<dyn DiskFile>, Bytes)> {
            let file = self.disk.open(name)?;
            let bytes = usize::try_from(file.bytes()?).map_err(io::Error::other)?;
            let mut data = vec![0; bytes];
            file.read(&mut data, 0)?;
            Ok((file, Bytes::from(data)))
        };
        load().map_err(|error| failed(self.disk, "read", name, error))
    }

    fn replay(&mut self, number: u32, data: &Bytes) -> Result<End, RaftError> {
        let mut offset = 0;
        while let Some(decoded) = record::decode(data, offset, number) {
            if decoded.record == Record::Seal {
                return Ok(End::Sealed);
            }
            let location = Location {
                segment: number,
                offset: u32::try_from(offset).unwrap_or(u32::MAX),
                bytes: u32::try_from(decoded.bytes).unwrap_or(u32::MAX),
            };
            self.apply(decoded.record, location)?;
            offset += decoded.bytes;
        }
        Ok(End::Open(offset))
    }

    /// Records about groups that are gone, or about entries that are, are void: the checkpoint before them may
    /// already know of operations that were queued behind them.
    fn apply(&mut self, record: Record, location: Location) -> Result<(), RaftError> {
        match record {
            Record::Seal => {}
            Record::Checkpoint(payload) => {
                let described = self.disk.describe(&segment_name(location.segment));
                self.apply_checkpoint(&payload, &described)?;
            }
            Record::Create { group, replica } => {
                self.groups.insert(group, Replayed::new(ReplicaId(replica)));
            }
            Record::Destroy { group } => {
                self.groups.remove(&group);
            }
            Record::Append { group, entry } => {
                self.apply_append(group, entry.position, location)?
            }
            Record::Moved { group, entry } => {
                if let Some(log) = self.groups.get_mut(&group)
                    && (log.first..log.end).contains(&entry.position.index)
                {
                    log.entries.insert(entry.position.index, (location, entry.position));
                }
            }
            Record::Truncate { group, last } => {
                if let Some(log) = self.groups.get_mut(&group) {
                    log.end =
                        last.map_or(log.first, |last| (last.index + 1).clamp(log.first, log.end));
                    log.cut();
                }
            }
            Record::Purge { group, upto } => {
                if let Some(log) = self.groups.get_mut(&group)
                    && log.purged < Some(upto)
                {
                    log.purged = Some(upto);
                    log.first = log.first.max(upto.index + 1);
                    log.end = log.end.max(log.first);
                    log.cut();
                }
            }
            Record::Vote { group, vote } => {
                if let Some(log) = self.groups.get_mut(&group) {
                    log.vote = Some(vote);
                }
            }
            Record::Committed { group, upto } => {
                if let Some(log) = self.groups.get_mut(&group) {
                    log.committed = Some(upto);
                }
            }
            Record::Seed { group, replica, entry } => {
                self.groups.insert(group, Replayed::seeded(ReplicaId(replica), &entry, location));
            }
        }
        Ok(())
    }

    fn apply_append(
        &mut self,
        group: GroupId,
        position: Position,
        location: Location,
    ) -> Result<(), RaftError> {
        let Some(log) = self.groups.get_mut(&group) else { return Ok(()) };
        let index = position.index;
        if log.purged.is_some_and(|purged| index <= purged.index) {
            return Ok(());
        }
        if log.end == 0 && log.purged.is_none() {
            log.first = index;
        } else if index > log.end {
            // The checkpoint of this segment knew already that the entries before this one were truncated, and so
            // will be this one. If they were lost instead, the next checkpoint tells.
            return Ok(());
        } else if index < log.end {
            return Err(RaftError::Corrupted(format!(
                "entry {index} of group {group} at offset {} of {} comes after entry {}",
                location.offset,
                self.disk.describe(&segment_name(location.segment)),
                log.end - 1
            )));
        }
        log.end = index + 1;
        log.entries.insert(index, (location, position));
        Ok(())
    }

    fn apply_checkpoint(&mut self, payload: &[u8], described: &str) -> Result<(), RaftError> {
        let states = checkpoint::decode(payload, described)?;
        let mut before = std::mem::take(&mut self.groups);
        for (group, state) in states {
            let entries = before.remove(&group).map(|log| log.entries).unwrap_or_default();
            let mut log = Replayed {
                replica: state.replica,
                vote: state.vote,
                purged: state.purged,
                committed: state.committed,
                first: state.first,
                end: state.end,
                entries,
            };
            log.cut();
            self.groups.insert(group, log);
        }
        Ok(())
    }

    /// Checks that nothing is missing, and counts what each segment still holds.
    fn finish(mut self, active: Option<(u32, u32)>) -> Result<Recovered, RaftError> {
        let mut groups = BTreeMap::new();
        for (group, log) in std::mem::take(&mut self.groups) {
            let mut slots = Vec::with_capacity(log.entries.len());
            for index in log.first..log.end {
                let Some((location, _)) = log.entries.get(&index) else {
                    return Err(RaftError::Corrupted(format!(
                        "entry {index} of group {group} is missing: its log should hold {} to {}",
                        log.first,
                        log.end - 1
                    )));
                };
                if let Some(segment) = self.segments.get_mut(&location.segment) {
                    segment.live += 1;
                }
                slots.push(*location);
            }
            let last =
                log.entries.last_key_value().map(|(_, (_, position))| *position).or(log.purged);
            // What was known to be committed may have reached the disk before the entries did.
            let committed = log.committed.min(last);
            let recovered = GroupLog::recovered(
                log.replica,
                log.vote,
                log.purged,
                committed,
                last,
                log.first,
                slots,
            );
            groups.insert(group, recovered);
        }
        Ok(Recovered { groups, segments: self.segments, active, spares: self.spares })
    }
}

/// Whether a valid record after `offset` shows that everything up to `offset` and beyond had once been synced.
fn proven_after(data: &Bytes, offset: usize, number: u32) -> bool {
    candidates(data, offset, number).any(|at| {
        record::decode(data, at, number).is_some_and(|decoded| decoded.durable as usize > offset)
    })
}

/// Overwrites whatever after `offset` looks like a record of this segment.
fn erase_claims(file: &dyn DiskFile, data: &Bytes, offset: usize, number: u32) -> io::Result<()> {
    let Some(first) = candidates(data, offset, number).next() else { return Ok(()) };
    file.write(&vec![0; data.len() - first], first as u64)?;
    file.sync()
}

fn candidates(data: &Bytes, offset: usize, number: u32) -> impl Iterator<Item = usize> {
    (offset..data.len()).step_by(ALIGNMENT).filter(move |at| record::claims(data, *at, number))
}

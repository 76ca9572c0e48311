//! Reads the files of a directory and rebuilds the state of the log.
//!
//! ```text
//! LOG_FORMAT  0000000003.log  0000000004.log  0000000006.log  spare-0000000005.log
//!             ckpt ... seal   ckpt ... seal   ckpt ... end    (any content)
//! ```
//!
//! Segments are read from the oldest on. Each starts with a checkpoint and, if it has a successor, ends with a
//! seal. Numbers may be missing in between: those segments held nothing that was still needed.
//!
//! A bad record is the end of the log, or damage:
//!
//! ```text
//! a record is bad ── one flipped bit explains it ──────────────── it is written again as it was
//!       ├── not in the last segment, before the mark (`mark.rs`), or synced according to a later record:
//!       │   it had been written whole: damage
//!       │       ├── its header is good ──── its group is known: that group lacks it
//!       │       └── its header is bad ───── any group may lack something, until the next checkpoint
//!       └── otherwise it was never written whole: the log ends here
//! ```
//!
//! Invariants:
//! - only the last segment may end without a seal;
//! - a group that may lack something it acknowledged is marked as damaged. It is not used until it is removed, or an
//!   operator accepts the loss;
//! - every entry between the purged position and the end of a group's log is either found or named as missing.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use partita_proto::id::{GroupId, ReplicaId};

use super::checkpoint;
use super::damage::Damage;
use super::disk::{Disk, DiskFile};
use super::index::{FoundLog, GroupLog, Location, Seeded};
use super::mark::{self, MARK_FILE, Synced};
use super::record::{self, ALIGNMENT, EntryKind, LogEntry, Lost, Position, Record, Vote};
use super::spares::Spare;
use crate::error::RaftError;
use crate::planted::{self, Plant};

/// File that names the format of the directory.
const FORMAT_FILE: &str = "LOG_FORMAT";
const FORMAT_TEXT: &str = "partita raft log 1\n";
const SPARE_PREFIX: &str = "spare-";
const SUFFIX: &str = ".log";
const UNFINISHED_SUFFIX: &str = ".new";

/// A segment that is part of the log.
pub(crate) struct Segment {
    pub(crate) file: Arc<dyn DiskFile>,
    /// Bytes of the whole file.
    pub(crate) bytes: u32,
    /// Number of entries in the segment that are still needed.
    pub(crate) live: u64,
}

/// Result of a recovery.
pub(crate) struct Recovered {
    pub(crate) groups: BTreeMap<GroupId, GroupLog>,
    pub(crate) segments: BTreeMap<u32, Segment>,
    /// The segment to continue, and the offset of its next record; `None` for a new log.
    pub(crate) active: Option<(u32, u32)>,
    /// Files that can become segments.
    pub(crate) spares: Vec<Spare>,
    /// Damaged groups whose damage is accepted.
    pub(crate) given_up: BTreeSet<GroupId>,
    /// Blank entries to be written in place of unreadable ones of the groups given up.
    pub(crate) fillers: Vec<(GroupId, LogEntry)>,
}

/// The file name of a segment.
pub(crate) fn segment_name(number: u32) -> String {
    format!("{number:010}{SUFFIX}")
}

/// File name of a spare file that used to be, or may become, that segment.
pub(crate) fn spare_name(number: u32) -> String {
    format!("{SPARE_PREFIX}{number:010}{SUFFIX}")
}

/// File name of a file that is not yet complete.
pub(crate) fn unfinished_name() -> String {
    format!("segment{UNFINISHED_SUFFIX}")
}

/// Reads the whole log. Damage to the groups in `accepted` is given up.
pub(crate) fn recover(
    disk: &dyn Disk,
    segment_bytes: u32,
    accepted: &BTreeSet<GroupId>,
) -> Result<Recovered, RaftError> {
    let names = disk.names().map_err(|error| RaftError::io("list the log's files", error))?;
    // Sort the names: segments, spare files, unfinished files of a crash (removed), and files of others.
    let mut numbers = Vec::new();
    let mut spares = Vec::new();
    for name in &names {
        if let Some(number) = name.strip_suffix(SUFFIX).and_then(|stem| stem.parse::<u32>().ok()) {
            numbers.push(number);
        } else if name.starts_with(SPARE_PREFIX) && name.ends_with(SUFFIX) {
            spares.push(name.clone());
        } else if name.ends_with(UNFINISHED_SUFFIX) {
            disk.remove(name).map_err(|error| failed(disk, "remove", name, error))?;
        } else if name != FORMAT_FILE && name != MARK_FILE {
            tracing::warn!(file = %disk.describe(name), "not a file of the log; left alone");
        }
    }
    numbers.sort_unstable();
    check_format(disk, &names, numbers.is_empty())?;
    // Replay the segments in order, then look for gaps in each group's log.
    let spares = keep_fitting(disk, spares, segment_bytes)?;
    let synced = mark::read(disk, &names)?;
    let mut recovery = Recovery {
        disk,
        synced,
        groups: BTreeMap::new(),
        loose: BTreeMap::new(),
        unknown: None,
        segments: BTreeMap::new(),
        spares,
    };
    let active = recovery.read_segments(numbers)?;
    recovery.finish(active, accepted)
}

fn failed(disk: &dyn Disk, action: &str, name: &str, error: io::Error) -> RaftError {
    RaftError::io(format!("{action} {}", disk.describe(name)), error)
}

/// Checks that the directory has this log format; a new directory gets the format file.
fn check_format(disk: &dyn Disk, names: &[String], empty: bool) -> Result<(), RaftError> {
    // An existing directory must have exactly this format.
    let path = disk.describe(FORMAT_FILE);
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
            "{path} contains {:?}, but this version requires {:?}",
            String::from_utf8_lossy(&text).trim_end(),
            FORMAT_TEXT.trim_end()
        )));
    }
    if !empty {
        return Err(RaftError::Incompatible(format!(
            "{path} is missing beside the segments of a log"
        )));
    }
    // A new directory gets the format file: complete and synced under another name, then renamed.
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

/// Keeps the spare files of the configured length. Removes the others: unfinished, or from before the option was
/// changed.
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

/// State of a group during replay.
struct Replayed {
    replica: ReplicaId,
    vote: Option<Vote>,
    purged: Option<Position>,
    committed: Option<Position>,
    first: u64,
    end: u64,
    /// Entries found so far; may have gaps until the whole log is read.
    entries: BTreeMap<u64, (Location, Position)>,
    /// Unreadable entries, and their locations.
    lost: BTreeMap<u64, (Location, Position)>,
    /// First damaged place whose records could not be identified; votes or entries of this group may have been there.
    unknown: Option<(u32, u32)>,
    /// Evidence of the entries behind that place.
    behind: Behind,
}

/// Evidence, from the entries behind a damaged place, about entries that may have lain there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Behind {
    /// There are no entries behind it.
    #[default]
    Nothing,
    /// They continue those before it: no entry is missing.
    Follows,
    /// They do not continue them, or other records than entries are missing.
    Gap,
}

impl Behind {
    /// State after the next entry behind the damaged place; `follows`: it continues the last known entry.
    fn next(self, follows: bool) -> Self {
        if self == Self::Gap || !follows { Self::Gap } else { Self::Follows }
    }

    /// State after another damaged place.
    fn again(self) -> Self {
        if self == Self::Gap { Self::Gap } else { Self::Nothing }
    }
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
            lost: BTreeMap::new(),
            unknown: None,
            behind: Behind::Nothing,
        }
    }

    fn seeded(replica: ReplicaId, position: Position, location: Location) -> Self {
        let Seeded { vote, purged } = Seeded::of(position);
        let index = position.index;
        Self {
            vote: Some(vote),
            purged: Some(purged),
            first: index,
            end: index + 1,
            entries: BTreeMap::from([(index, (location, position))]),
            ..Self::new(replica)
        }
    }

    fn cut(&mut self) {
        self.entries.retain(|index, _| (self.first..self.end).contains(index));
        self.lost.retain(|index, _| (self.first..self.end).contains(index));
    }

    /// Records that the entry at that position is unreadable.
    fn lose(&mut self, position: Position, location: Location) {
        if self.entries.remove(&position.index).is_some() {
            self.lost.insert(position.index, (location, position));
        }
    }

    /// Position for the blank entry that replaces a missing one: the position of the missing entry where it is known,
    /// otherwise term and leader of the entry before it.
    fn position_of(&self, index: u64) -> Position {
        let recorded = self.lost.get(&index).map(|(_, position)| *position);
        let previous = self.entries.range(..index).next_back().map(|(_, (_, position))| *position);
        let position = recorded.or(previous).or(self.purged).unwrap_or_default();
        Position { index, ..position }
    }
}

/// End of a segment.
enum End {
    Sealed,
    /// No valid record starts at that offset.
    Open(usize),
}

/// Position of a segment in the log.
#[derive(Clone, Copy)]
struct Place {
    number: u32,
    /// True if the previous segment was read, or this one is the first.
    follows: bool,
    is_last: bool,
}

struct Recovery<'a> {
    disk: &'a dyn Disk,
    /// Mark before which everything had been synced.
    synced: Option<Synced>,
    groups: BTreeMap<GroupId, Replayed>,
    /// Entries of unknown groups: the record that created the group may be lost.
    loose: BTreeMap<GroupId, BTreeMap<u64, (Location, Position)>>,
    /// Place where unidentified records were lost, if no checkpoint has been read since.
    unknown: Option<(u32, u32)>,
    segments: BTreeMap<u32, Segment>,
    spares: Vec<Spare>,
}

/// The file of a next segment of which nothing was ever synced.
struct Unbegun {
    number: u32,
    file: Arc<dyn DiskFile>,
    data: Bytes,
}

impl Recovery<'_> {
    /// Reads all segments; returns the segment to continue, and the offset.
    fn read_segments(&mut self, mut numbers: Vec<u32>) -> Result<Option<(u32, u32)>, RaftError> {
        let unbegun = self.take_unbegun(&mut numbers)?;
        let last = numbers.last().copied();
        if let Some(synced @ Synced { segment, .. }) = self.synced
            && synced != Synced::EVERYTHING
            && last.is_none_or(|last| last < segment)
        {
            return Err(RaftError::Corrupted(format!(
                "{} is missing, but had been written",
                self.disk.describe(&segment_name(segment))
            )));
        }
        let mut end = None;
        let mut previous = 0;
        for number in numbers {
            let name = segment_name(number);
            let (file, data) = self.load(&name)?;
            let bytes = u32::try_from(data.len()).map_err(|_| {
                RaftError::Corrupted(format!(
                    "{} is too long for a segment",
                    self.disk.describe(&name)
                ))
            })?;
            let place =
                Place { number, follows: previous + 1 == number, is_last: Some(number) == last };
            self.segments.insert(number, Segment { file, bytes, live: 0 });
            let (ended, data) = self.replay(place, data)?;
            end = Some((number, ended, data));
            previous = number;
        }
        match (end, unbegun) {
            (None, None) => Ok(None),
            (Some((number, End::Sealed, _)), None) => Err(RaftError::Corrupted(format!(
                "{} is sealed, but the segment after it is missing",
                self.disk.describe(&segment_name(number))
            ))),
            (Some((number, End::Open(offset), data)), unbegun) => {
                if let Some(Unbegun { number, file, .. }) = unbegun {
                    // The previous segment was not sealed yet, so this one holds no record.
                    let (name, spare) = (segment_name(number), spare_name(number));
                    self.disk
                        .rename(&name, &spare)
                        .map_err(|error| failed(self.disk, "rename", &name, error))?;
                    self.spares.push(Spare { name: spare, file });
                }
                self.end_at(number, offset, &data).map(Some)
            }
            (Some((_, End::Sealed, _)) | None, Some(Unbegun { number, file, data })) => {
                erase_claims(file.as_ref(), &data, 0, number)
                    .map_err(|error| failed(self.disk, "erase", &segment_name(number), error))?;
                let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
                self.segments.insert(number, Segment { file, bytes, live: 0 });
                Ok(Some((number, 0)))
            }
        }
    }

    /// Takes the last file from the list if its segment was never begun, or its beginning never synced.
    fn take_unbegun(&self, numbers: &mut Vec<u32>) -> Result<Option<Unbegun>, RaftError> {
        let Some(number) = numbers.last().copied() else { return Ok(None) };
        let (file, data) = self.load(&segment_name(number))?;
        let has_begun = matches!(
            record::decode(&data, 0, number),
            Some(record::Decoded { record: Record::Checkpoint(_), .. })
        ) || self.had_been_synced(&data, 0, number)
            || record::repaired(&data, 0, number).is_some();
        if has_begun {
            return Ok(None);
        }
        numbers.pop();
        Ok(Some(Unbegun { number, file, data }))
    }

    /// True if the record at that place of the last segment had been written whole.
    fn had_been_synced(&self, data: &Bytes, offset: usize, number: u32) -> bool {
        if planted::is(Plant::TrustRot) {
            return false;
        }
        self.synced.is_some_and(|synced| synced.covers(number, offset))
            || proven_after(data, offset, number)
    }

    /// Ends the last segment at `offset`.
    fn end_at(
        &mut self,
        number: u32,
        offset: usize,
        data: &Bytes,
    ) -> Result<(u32, u32), RaftError> {
        let name = segment_name(number);
        let segment = &self.segments[&number];
        // The bytes read may have come from a cache that a power cut would empty: make them durable before building on
        // them. Old records behind the end must not become valid again once the records before them are overwritten.
        erase_claims(segment.file.as_ref(), data, offset, number)
            .and_then(|()| segment.file.sync())
            .map_err(|error| failed(self.disk, "sync", &name, error))?;
        let offset = u32::try_from(offset).map_err(|_| {
            RaftError::Corrupted(format!("{} is too long", self.disk.describe(&name)))
        })?;
        Ok((number, offset))
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

    /// Applies the records of a segment; returns how the segment ends, and its bytes after repairs.
    fn replay(&mut self, place: Place, mut data: Bytes) -> Result<(End, Bytes), RaftError> {
        let number = place.number;
        let mut offset = 0;
        let mut repaired = None;
        loop {
            let location = |bytes: usize| Location {
                segment: number,
                offset: u32::try_from(offset).unwrap_or(u32::MAX),
                bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            };
            if let Some(decoded) = record::decode(&data, offset, number) {
                if decoded.record == Record::Seal {
                    return Ok((End::Sealed, data));
                }
                self.apply(decoded.record, location(decoded.bytes))?;
                offset += decoded.bytes;
            } else if let Some(whole) = record::repaired(&data, offset, number)
                .filter(|_| repaired != Some(offset) && !planted::is(Plant::TrustRot))
            {
                // A record that stays invalid is not repaired a second time.
                repaired = Some(offset);
                data = self.write_again(number, offset, &whole, &data)?;
            } else if place.is_last && !self.had_been_synced(&data, offset, number) {
                return Ok((End::Open(offset), data));
            } else if let Some((lost, bytes)) = record::lost(&data, offset, number) {
                self.lose(lost, location(bytes), place);
                offset += bytes;
            } else {
                let next = candidates(&data, offset + ALIGNMENT, number)
                    .find(|start| record::decode(&data, *start, number).is_some());
                let synced = self.synced.filter(|synced| synced.segment == number);
                let synced = synced.map(|synced| synced.offset as usize);
                match next.or(synced.filter(|synced| *synced > offset)) {
                    Some(next) => {
                        self.lose_unknown(location(next - offset));
                        offset = next;
                    }
                    None if place.is_last => return Ok((End::Open(offset), data)),
                    None => {
                        // The seal is among the lost records.
                        self.lose_unknown(location(data.len().saturating_sub(offset)));
                        return Ok((End::Sealed, data));
                    }
                }
            }
        }
    }

    /// Writes a record back as it was before one of its bits flipped.
    fn write_again(
        &self,
        number: u32,
        offset: usize,
        record: &[u8],
        data: &Bytes,
    ) -> Result<Bytes, RaftError> {
        let name = segment_name(number);
        let described = self.disk.describe(&name);
        tracing::warn!(file = %described, offset, "repaired a flipped bit in a record of the log");
        let file = &self.segments[&number].file;
        file.write(record, offset as u64)
            .and_then(|()| file.sync())
            .map_err(|error| failed(self.disk, "write", &name, error))?;
        let mut repaired = data.to_vec();
        repaired[offset..offset + record.len()].copy_from_slice(record);
        Ok(repaired.into())
    }

    /// Handles a bad record that had been synced, and whose header identifies it.
    fn lose(&mut self, lost: Lost, location: Location, place: Place) {
        let described = self.disk.describe(&segment_name(location.segment));
        tracing::error!(file = %described, offset = location.offset, ?lost, "a record of the log is damaged");
        match lost {
            // A checkpoint follows from the previous segment; the first segment's checkpoint is empty.
            Lost::Checkpoint if place.follows => {}
            Lost::Checkpoint => self.lose_unknown(location),
            Lost::Entry { group, position } => {
                self.apply_append(group, position, location);
                if let Some(log) = self.groups.get_mut(&group) {
                    log.lose(position, location);
                }
            }
            Lost::Moved { group, position } => {
                if let Some(log) = self.groups.get_mut(&group)
                    && (log.first..log.end).contains(&position.index)
                {
                    // The copy's source may still be readable.
                    log.lost.insert(position.index, (location, position));
                }
            }
            Lost::Seed { group, position } => {
                let mut log = Replayed::seeded(ReplicaId(position.leader), position, location);
                log.lose(position, location);
                // The replica id of the group is lost too.
                log.unknown = Some((location.segment, location.offset));
                log.behind = Behind::Gap;
                self.groups.insert(group, log);
            }
        }
    }

    /// Handles bad bytes that had been synced and cannot be identified.
    fn lose_unknown(&mut self, location: Location) {
        let Location { segment, offset, bytes } = location;
        let described = self.disk.describe(&segment_name(segment));
        tracing::error!(file = %described, offset, bytes, "the log is damaged");
        self.unknown.get_or_insert((segment, offset));
        for log in self.groups.values_mut() {
            log.unknown.get_or_insert((segment, offset));
            log.behind = log.behind.again();
        }
    }

    /// Ignores records about removed groups and removed entries: the checkpoint before them may already reflect
    /// operations that were queued behind them.
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
            Record::Append { group, entry } => self.apply_append(group, entry.position, location),
            // A copy counts only while its entry is part of the log.
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
            // Purges only move forward: an older one has no effect.
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
                let seeded = Replayed::seeded(ReplicaId(replica), entry.position, location);
                self.groups.insert(group, seeded);
            }
        }
        Ok(())
    }

    fn apply_append(&mut self, group: GroupId, position: Position, location: Location) {
        let index = position.index;
        let Some(log) = self.groups.get_mut(&group) else {
            if self.unknown.is_some() {
                self.loose.entry(group).or_default().insert(index, (location, position));
            }
            return;
        };
        if log.purged.is_some_and(|purged| index <= purged.index) {
            return;
        }
        if log.unknown.is_some() {
            log.behind = log.behind.next(index == log.end && log.end > 0);
        }
        if log.end == 0 && log.purged.is_none() {
            log.first = index;
        } else if index > log.end && self.unknown.is_none() {
            // The checkpoint of this segment already reflects that the entries before this one were truncated, and this
            // one will be too. If they were lost instead, the next checkpoint shows it.
            return;
        } else if index < log.end {
            // The entries between were truncated, and so were those after this one; that record is lost.
            log.end = index;
            log.cut();
            if self.unknown.is_none() {
                log.unknown.get_or_insert((location.segment, location.offset));
                log.behind = Behind::Gap;
            }
        }
        log.end = index + 1;
        log.entries.insert(index, (location, position));
    }

    fn apply_checkpoint(&mut self, payload: &[u8], described: &str) -> Result<(), RaftError> {
        let states = checkpoint::decode(payload, described)?;
        let mut previous = std::mem::take(&mut self.groups);
        for (group, state) in states {
            let replayed = previous.remove(&group);
            let same_damage = replayed.as_ref().filter(|log| log.unknown == state.damage);
            let evidence = same_damage.map_or(Behind::Nothing, |log| log.behind);
            let (mut entries, lost) =
                replayed.map(|log| (log.entries, log.lost)).unwrap_or_default();
            entries.extend(self.loose.remove(&group).into_iter().flatten());
            let mut log = Replayed {
                replica: state.replica,
                vote: state.vote,
                purged: state.purged,
                committed: state.committed,
                first: state.first,
                end: state.end,
                entries,
                lost,
                unknown: state.damage,
                behind: evidence,
            };
            log.cut();
            self.groups.insert(group, log);
        }
        // A checkpoint names every group, so nothing is unknown any more.
        self.loose.clear();
        self.unknown = None;
        Ok(())
    }

    /// Creates groups for entries whose creating record is among the lost ones.
    fn adopt_loose(&mut self) {
        for (group, entries) in std::mem::take(&mut self.loose) {
            let (Some((first, (_, position))), Some((last, _))) =
                (entries.first_key_value(), entries.last_key_value())
            else {
                continue;
            };
            let (replica, first, end) = (ReplicaId(position.leader), *first, last + 1);
            let unknown = self.unknown;
            let log = Replayed { first, end, entries, unknown, ..Replayed::new(replica) };
            self.groups.insert(group, log);
        }
    }

    /// Finds missing entries, and counts the live entries of each segment.
    fn finish(
        mut self,
        active: Option<(u32, u32)>,
        accepted: &BTreeSet<GroupId>,
    ) -> Result<Recovered, RaftError> {
        self.adopt_loose();
        let mut groups = BTreeMap::new();
        let mut given_up = BTreeSet::new();
        let mut fillers = Vec::new();
        for (group, log) in std::mem::take(&mut self.groups) {
            let mut slots = Vec::new();
            let mut missing = Vec::new();
            for index in log.first..log.end {
                let location = log.entries.get(&index).map(|(location, _)| *location);
                match location.and_then(|location| self.segments.get_mut(&location.segment)) {
                    Some(segment) => segment.live += 1,
                    None => missing.push(log.position_of(index)),
                }
                slots.push(location);
            }
            let last = match log.end > log.first {
                true => {
                    let index = log.end - 1;
                    let position = log.entries.get(&index).map(|(_, position)| *position);
                    Some(position.unwrap_or_else(|| log.position_of(index)))
                }
                false => log.purged,
            };
            // A vote may be among the lost records; the last entry implies one.
            let vote_source = last.filter(|last| {
                log.unknown.is_some() && log.vote.is_none_or(|vote| vote.term < last.term)
            });
            let vote = vote_source.map(seen_vote).or(log.vote);
            let place = log.lost.values().next().map(|(bad, _)| (bad.segment, bad.offset));
            let unknown = log.unknown.is_some();
            let mut damage = (unknown || !missing.is_empty()).then(|| Damage {
                place: log.unknown.or(place),
                missing,
                unknown,
                follows: log.behind == Behind::Follows,
            });
            if let Some(accepted_damage) = damage.take_if(|_| accepted.contains(&group)) {
                tracing::warn!(%group, damage = %accepted_damage, "lost entries of a group are given up, as accepted");
                let blank =
                    |position| LogEntry { position, kind: EntryKind::Blank, payload: Bytes::new() };
                let blanks =
                    accepted_damage.missing.into_iter().map(|position| (group, blank(position)));
                fillers.extend(blanks);
                given_up.insert(group);
            } else if let Some(damage) = &damage {
                tracing::error!(%group, %damage, "a group is not used: it may lack acknowledged entries or votes");
            }
            let recovered = GroupLog::recovered(FoundLog {
                replica: log.replica,
                vote,
                purged: log.purged,
                // The commit position may have reached the disk before the entries did.
                committed: log.committed.min(last),
                last,
                first: log.first,
                slots,
                damage,
            });
            groups.insert(group, recovered);
        }
        let Self { segments, spares, .. } = self;
        Ok(Recovered { groups, segments, active, spares, given_up, fillers })
    }
}

/// The vote that an entry implies: a replica that has the entry has supported the leader that proposed it.
fn seen_vote(last: Position) -> Vote {
    Vote { term: last.term, leader: last.leader, committed: true }
}

/// True if a valid record after `offset` proves that the bytes at `offset` had once been synced.
fn proven_after(data: &Bytes, offset: usize, number: u32) -> bool {
    candidates(data, offset, number).any(|start| {
        record::decode(data, start, number).is_some_and(|decoded| decoded.durable as usize > offset)
    })
}

/// Overwrites everything after `offset` that looks like a record of this segment.
fn erase_claims(file: &dyn DiskFile, data: &Bytes, offset: usize, number: u32) -> io::Result<()> {
    let Some(first) = candidates(data, offset, number).next() else { return Ok(()) };
    file.write(&vec![0; data.len() - first], first as u64)?;
    file.sync()
}

fn candidates(data: &Bytes, offset: usize, number: u32) -> impl Iterator<Item = usize> {
    (offset..data.len())
        .step_by(ALIGNMENT)
        .filter(move |start| record::claims(data, *start, number))
}

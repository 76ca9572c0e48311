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
//! A bad record is the end of the log, or damage:
//!
//! ```text
//! a record is bad ── one flipped bit explains it ──────────────── it is written again as it was
//!       ├── not in the last segment, before the mark (`mark.rs`), or before what a later record says was synced:
//!       │   it had been written whole: damage
//!       │       ├── its header is good ──── what it was about is known: that group lacks it
//!       │       └── its header is bad ───── any group may lack something, until the next checkpoint tells
//!       └── otherwise it was never written whole: the log ends here
//! ```
//!
//! Invariants:
//! - only the last segment may end without a seal;
//! - a group of which something may be missing that it has acknowledged is marked as damaged. It is not used until it is
//!   given up, or somebody accepts what is lost;
//! - every entry between what was purged and the end of a group's log is found, or is named as missing.

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
    /// The groups whose damage is accepted: those of `accepted` that are damaged.
    pub(crate) given_up: BTreeSet<GroupId>,
    /// Blank entries to be written in place of what they lack.
    pub(crate) fillers: Vec<(GroupId, LogEntry)>,
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

/// Reads the whole log. Of the groups in `accepted`, what is damaged is given up.
pub(crate) fn recover(
    disk: &dyn Disk,
    segment_bytes: u32,
    accepted: &BTreeSet<GroupId>,
) -> Result<Recovered, RaftError> {
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
        } else if name != FORMAT_FILE && name != MARK_FILE {
            tracing::warn!(file = %disk.describe(name), "not a file of the log; left alone");
        }
    }
    numbers.sort_unstable();
    check_format(disk, &names, numbers.is_empty())?;
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
    /// Entries that cannot be read any more, and where they lay.
    lost: BTreeMap<u64, (Location, Position)>,
    /// Something else may be missing since that place.
    unknown: Option<(u32, u32)>,
    /// What the entries behind that place show.
    behind: Behind,
}

/// What the entries behind a bad place show of those that may have lain there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Behind {
    /// There are none.
    #[default]
    Nothing,
    /// They follow those before it.
    Follows,
    /// They do not, or more than entries is missing.
    Gap,
}

impl Behind {
    /// With the next entry behind the bad place: whether it follows the last one that is known.
    fn next(self, follows: bool) -> Self {
        if self == Self::Gap || !follows { Self::Gap } else { Self::Follows }
    }

    /// After one more bad place.
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

    /// The entry at that position cannot be read.
    fn lose(&mut self, position: Position, location: Location) {
        if self.entries.remove(&position.index).is_some() {
            self.lost.insert(position.index, (location, position));
        }
    }

    /// The position of an entry that is missing, for a blank one in its place: its own, where that is known, or that of
    /// the entry before it.
    fn position_of(&self, index: u64) -> Position {
        let own = self.lost.get(&index).map(|(_, position)| *position);
        let before = self.entries.range(..index).next_back().map(|(_, (_, position))| *position);
        let position = own.or(before).or(self.purged).unwrap_or_default();
        Position { index, ..position }
    }
}

/// How a segment ends.
enum End {
    Sealed,
    /// At that offset no valid record starts.
    Open(usize),
}

/// Where a segment stands in the log.
#[derive(Clone, Copy)]
struct Place {
    number: u32,
    /// The segment before it was read, or it is the first of all.
    follows: bool,
    is_last: bool,
}

struct Recovery<'a> {
    disk: &'a dyn Disk,
    /// Before that all had been synced.
    synced: Option<Synced>,
    groups: BTreeMap<GroupId, Replayed>,
    /// Entries of groups that are not known, because what made them known may be lost.
    loose: BTreeMap<GroupId, BTreeMap<u64, (Location, Position)>>,
    /// Where something unknown was lost, if no checkpoint has come since.
    unknown: Option<(u32, u32)>,
    segments: BTreeMap<u32, Segment>,
    spares: Vec<Spare>,
}

/// A file that was to become the next segment, and in which nothing of it was ever synced.
struct Unbegun {
    number: u32,
    file: Arc<dyn DiskFile>,
    data: Bytes,
}

impl Recovery<'_> {
    /// Reads all segments; says where to go on.
    fn read_segments(&mut self, mut numbers: Vec<u32>) -> Result<Option<(u32, u32)>, RaftError> {
        let unbegun = self.take_unbegun(&mut numbers)?;
        let last = numbers.last().copied();
        if let Some(synced @ Synced { segment, .. }) = self.synced
            && synced != Synced::EVERYTHING
            && last.is_none_or(|last| last < segment)
        {
            return Err(RaftError::Corrupted(format!(
                "{} is missing, and had been written",
                self.disk.describe(&segment_name(segment))
            )));
        }
        let mut end = None;
        let mut before = 0;
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
                Place { number, follows: before + 1 == number, is_last: Some(number) == last };
            self.segments.insert(number, Segment { file, bytes, live: 0 });
            let (ended, data) = self.replay(place, data)?;
            end = Some((number, ended, data));
            before = number;
        }
        match (end, unbegun) {
            (None, None) => Ok(None),
            (Some((number, End::Sealed, _)), None) => Err(RaftError::Corrupted(format!(
                "{} is sealed, but the segment after it is missing",
                self.disk.describe(&segment_name(number))
            ))),
            (Some((number, End::Open(offset), data)), unbegun) => {
                if let Some(Unbegun { number, file, .. }) = unbegun {
                    // The one before was not sealed yet, so nothing was ever written here.
                    let (from, to) = (segment_name(number), spare_name(number));
                    self.disk
                        .rename(&from, &to)
                        .map_err(|error| failed(self.disk, "rename", &from, error))?;
                    self.spares.push(Spare { name: to, file });
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
        let begun = matches!(
            record::decode(&data, 0, number),
            Some(record::Decoded { record: Record::Checkpoint(_), .. })
        ) || self.had_been_synced(&data, 0, number)
            || record::repaired(&data, 0, number).is_some();
        if begun {
            return Ok(None);
        }
        numbers.pop();
        Ok(Some(Unbegun { number, file, data }))
    }

    /// Whether what lay at that place of the last segment had been written whole.
    fn had_been_synced(&self, data: &Bytes, offset: usize, number: u32) -> bool {
        if planted::is(Plant::TrustRot) {
            return false;
        }
        self.synced.is_some_and(|synced| synced.covers(number, offset))
            || proven_after(data, offset, number)
    }

    /// The last segment ends at `offset`.
    fn end_at(
        &mut self,
        number: u32,
        offset: usize,
        data: &Bytes,
    ) -> Result<(u32, u32), RaftError> {
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

    /// Applies the records of a segment; answers with how it ends, and its bytes as they are now.
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
                // Should it still not be understood, it is not repaired again.
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
                        // Its seal is among what is lost.
                        self.lose_unknown(location(data.len().saturating_sub(offset)));
                        return Ok((End::Sealed, data));
                    }
                }
            }
        }
    }

    /// Puts a record back as it was before a bit of it flipped.
    fn write_again(
        &self,
        number: u32,
        offset: usize,
        record: &[u8],
        data: &Bytes,
    ) -> Result<Bytes, RaftError> {
        let name = segment_name(number);
        let described = self.disk.describe(&name);
        tracing::warn!(file = %described, offset, "a bit of a record had flipped; it is written again as it was");
        let file = &self.segments[&number].file;
        file.write(record, offset as u64)
            .and_then(|()| file.sync())
            .map_err(|error| failed(self.disk, "write", &name, error))?;
        let mut repaired = data.to_vec();
        repaired[offset..offset + record.len()].copy_from_slice(record);
        Ok(repaired.into())
    }

    /// A record that had been synced is bad, and its header says what it was about.
    fn lose(&mut self, lost: Lost, location: Location, place: Place) {
        let described = self.disk.describe(&segment_name(location.segment));
        tracing::error!(file = %described, offset = location.offset, ?lost, "a record of the log is damaged");
        match lost {
            // All that it said follows from the segment before, or nothing was said yet.
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
                    // Where it was copied from may still be there.
                    log.lost.insert(position.index, (location, position));
                }
            }
            Lost::Seed { group, position } => {
                let mut log = Replayed::seeded(ReplicaId(position.leader), position, location);
                log.lose(position, location);
                // As which replica it began is lost too.
                log.unknown = Some((location.segment, location.offset));
                log.behind = Behind::Gap;
                self.groups.insert(group, log);
            }
        }
    }

    /// Something that had been synced is bad, and nobody knows what it was.
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
            Record::Append { group, entry } => self.apply_append(group, entry.position, location),
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
            // The checkpoint of this segment knew already that the entries before this one were truncated, and so
            // will be this one. If they were lost instead, the next checkpoint tells.
            return;
        } else if index < log.end {
            // What came between is lost: the entries after this one were truncated.
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
        let mut before = std::mem::take(&mut self.groups);
        for (group, state) in states {
            let known = before.remove(&group);
            let behind = known.as_ref().filter(|log| log.unknown == state.damage);
            let behind = behind.map_or(Behind::Nothing, |log| log.behind);
            let (mut entries, lost) = known.map(|log| (log.entries, log.lost)).unwrap_or_default();
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
                behind,
            };
            log.cut();
            self.groups.insert(group, log);
        }
        // It says all that was not known.
        self.loose.clear();
        self.unknown = None;
        Ok(())
    }

    /// Makes groups of the entries whose groups were made known by what is lost.
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

    /// Looks for what is missing, and counts what each segment still holds.
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
                    let found = log.entries.get(&index).map(|(_, position)| *position);
                    Some(found.unwrap_or_else(|| log.position_of(index)))
                }
                false => log.purged,
            };
            // A vote may be among what is missing; the last entry shows one.
            let shown = last.filter(|last| {
                log.unknown.is_some() && log.vote.is_none_or(|vote| vote.term < last.term)
            });
            let vote = shown.map(seen_vote).or(log.vote);
            let place = log.lost.values().next().map(|(bad, _)| (bad.segment, bad.offset));
            let unknown = log.unknown.is_some();
            let mut damage = (unknown || !missing.is_empty()).then(|| Damage {
                place: log.unknown.or(place),
                missing,
                unknown,
                follows: log.behind == Behind::Follows,
            });
            if let Some(found) = damage.take_if(|_| accepted.contains(&group)) {
                tracing::warn!(%group, %found, "what is lost of a group is given up, as ordered");
                let blank =
                    |position| LogEntry { position, kind: EntryKind::Blank, payload: Bytes::new() };
                let blanks = found.missing.into_iter().map(|position| (group, blank(position)));
                fillers.extend(blanks);
                given_up.insert(group);
            } else if let Some(damage) = &damage {
                tracing::error!(%group, %damage, "a group is not used: it may lack what it acknowledged");
            }
            let recovered = GroupLog::recovered(FoundLog {
                replica: log.replica,
                vote,
                purged: log.purged,
                // What was known to be committed may have reached the disk before the entries did.
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

/// The vote that an entry shows: whoever has it has supported the leader that proposed it.
fn seen_vote(last: Position) -> Vote {
    Vote { term: last.term, leader: last.leader, committed: true }
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

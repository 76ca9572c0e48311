//! In-memory state of each group's log: where every entry lies, and the recent entries themselves.
//!
//! ```text
//! group 7:  purged 40 | 41 42 43 44 45 46 47 |
//!   slots               s3 s3 s3 s4 s4 p  p     s = stored in that segment, p = queued for the disk
//!   recent                       44 45 46 47    the suffix that needs no read
//! ```
//!
//! Invariants:
//! - the index is ahead of the disk: it changes when an operation is queued, the disk when the writer gets to it;
//! - pending slots form a suffix, and every pending entry is among the recent entries;
//! - entries of one group lie in the segments in the order of their indexes;
//! - a slot only becomes stored through the append that made it (`write` ids are never used again).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use partita_proto::id::{GroupId, ReplicaId};

use super::damage::Damage;
use super::record::{LogEntry, Position, Vote};
use crate::error::RaftError;

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) segment: u32,
    pub(crate) offset: u32,
    /// Bytes of the whole record.
    pub(crate) bytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Pending {
        write: u64,
    },
    Stored(Location),
    /// The entry on disk cannot be read any more.
    Lost,
}

/// Number of live entries that an operation removes from each segment, once the operation is durable.
pub(crate) type Released = BTreeMap<u32, u64>;

/// An entry to be read: in memory, or to be fetched from its location.
#[derive(Clone, Debug)]
pub(crate) enum Planned {
    Cached(LogEntry),
    Stored { index: u64, location: Location },
}

#[derive(Clone, Debug)]
struct Recent {
    entry: LogEntry,
    write: u64,
}

/// Initial state of a group that begins with an entry of another group's log; the entry itself comes separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seeded {
    /// Vote for the replica that the entry's position names, as a quorum would have given it.
    pub(crate) vote: Vote,
    /// Position of the entry before: this log never held it or any earlier one.
    pub(crate) purged: Position,
}

impl Seeded {
    pub(crate) fn of(position: Position) -> Self {
        let Position { term, leader, index } = position;
        Self {
            vote: Vote { term, leader, committed: true },
            purged: Position { index: index.saturating_sub(1), ..position },
        }
    }
}

/// The log of one group as recovery found it.
pub(crate) struct FoundLog {
    pub(crate) replica: ReplicaId,
    pub(crate) vote: Option<Vote>,
    pub(crate) purged: Option<Position>,
    pub(crate) committed: Option<Position>,
    pub(crate) last: Option<Position>,
    pub(crate) first: u64,
    /// Locations of the entries, from `first` on; `None` for an unreadable entry.
    pub(crate) slots: Vec<Option<Location>>,
    pub(crate) damage: Option<Damage>,
}

/// State of one group's log, queued operations included.
#[derive(Clone, Debug)]
pub(crate) struct GroupLog {
    pub(crate) replica: ReplicaId,
    pub(crate) vote: Option<Vote>,
    pub(crate) purged: Option<Position>,
    pub(crate) committed: Option<Position>,
    /// True if `committed` is on disk, or queued to be written.
    committed_queued: bool,
    /// Position of the last entry; without entries, of the last purged one.
    pub(crate) last: Option<Position>,
    /// Index of the first slot.
    first: u64,
    slots: VecDeque<Slot>,
    recent: VecDeque<Recent>,
    /// True while the seed of a seeded group is not yet on disk: until then checkpoints leave the group out.
    pub(crate) unwritten: bool,
    /// Entries or votes that the replica acknowledged and the log may lack.
    pub(crate) damage: Option<Damage>,
    /// True if the log belongs to an older copy of the node's data.
    pub(crate) distrusted: bool,
}

impl GroupLog {
    fn new(replica: ReplicaId) -> Self {
        Self {
            replica,
            vote: None,
            purged: None,
            committed: None,
            committed_queued: true,
            last: None,
            first: 0,
            slots: VecDeque::new(),
            recent: VecDeque::new(),
            unwritten: false,
            damage: None,
            distrusted: false,
        }
    }

    /// True if entries can be neither flushed nor moved: the log is damaged or distrusted.
    pub(crate) fn is_stuck(&self) -> bool {
        self.damage.is_some() || self.distrusted
    }

    /// Builds the log of a group from what recovery found.
    pub(crate) fn recovered(log: FoundLog) -> Self {
        let FoundLog { replica, vote, purged, committed, last, first, slots, damage } = log;
        let slot = |location: Option<Location>| location.map_or(Slot::Lost, Slot::Stored);
        let slots = slots.into_iter().map(slot).collect();
        Self { vote, purged, committed, last, first, slots, damage, ..Self::new(replica) }
    }

    /// Index after the last entry.
    fn end(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    fn slot_at(&mut self, index: u64) -> Option<&mut Slot> {
        let offset = usize::try_from(index.checked_sub(self.first)?).ok()?;
        self.slots.get_mut(offset)
    }

    /// Index of the first entry on disk and index after the last one.
    pub(crate) fn stored_range(&self) -> (u64, u64) {
        let pending =
            self.slots.iter().rev().take_while(|slot| matches!(slot, Slot::Pending { .. })).count();
        (self.first, self.end() - pending as u64)
    }

    /// Segment of the group's first entry, if that entry is on disk.
    pub(crate) fn first_segment(&self) -> Option<u32> {
        match self.slots.front() {
            Some(Slot::Stored(location)) => Some(location.segment),
            Some(Slot::Pending { .. } | Slot::Lost) | None => None,
        }
    }

    /// Entries on disk with their locations, if they are small enough to be moved to the end of the log: a single entry
    /// of any size (a group's last entry is never purged, so nothing else could ever free its segment), or several of
    /// at most `bytes_max` together. `None` otherwise.
    pub(crate) fn movable(&self, bytes_max: u64) -> Option<Vec<(u64, Location)>> {
        let mut bytes = 0;
        let mut entries = Vec::new();
        for (index, slot) in (self.first..).zip(&self.slots) {
            let Slot::Stored(location) = slot else { break };
            bytes += u64::from(location.bytes);
            entries.push((index, *location));
            if entries.len() > 1 && bytes > bytes_max {
                return None;
            }
        }
        Some(entries)
    }
}

/// All groups of the log.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) groups: BTreeMap<GroupId, GroupLog>,
    next_write: u64,
    /// Recent entries of all groups, oldest first; may name entries that no longer exist.
    order: VecDeque<(GroupId, u64, u64)>,
    cached_entries: usize,
    cached_bytes: u64,
    cache_bytes_max: u64,
}

impl Index {
    pub(crate) fn new(groups: BTreeMap<GroupId, GroupLog>, cache_bytes_max: u64) -> Self {
        Self {
            groups,
            next_write: 1,
            order: VecDeque::new(),
            cached_entries: 0,
            cached_bytes: 0,
            cache_bytes_max,
        }
    }

    /// Segments that hold entries of groups whose log is damaged or distrusted.
    pub(crate) fn held_segments(&self) -> BTreeSet<u32> {
        let stuck = self.groups.values().filter(|log| log.is_stuck());
        let slots = stuck.flat_map(|log| &log.slots);
        let segments = slots.filter_map(|slot| match slot {
            Slot::Stored(location) => Some(location.segment),
            Slot::Pending { .. } | Slot::Lost => None,
        });
        segments.collect()
    }

    pub(crate) fn cached_bytes(&self) -> u64 {
        self.cached_bytes
    }

    pub(crate) fn group(&self, group: GroupId) -> Result<&GroupLog, RaftError> {
        self.groups.get(&group).ok_or_else(|| unknown(group))
    }

    fn group_mut(&mut self, group: GroupId) -> Result<&mut GroupLog, RaftError> {
        self.groups.get_mut(&group).ok_or_else(|| unknown(group))
    }

    pub(crate) fn create(&mut self, group: GroupId, replica: ReplicaId) -> Result<(), RaftError> {
        if self.groups.contains_key(&group) {
            return Err(RaftError::InvalidInput(format!("group {group} exists in the log")));
        }
        self.groups.insert(group, GroupLog::new(replica));
        Ok(())
    }

    /// Creates the group with this entry, which is queued to be written; returns the id of the write for
    /// [`Index::stored`].
    pub(crate) fn seed(
        &mut self,
        group: GroupId,
        replica: ReplicaId,
        entry: &LogEntry,
    ) -> Result<u64, RaftError> {
        self.create(group, replica)?;
        let Seeded { vote, purged } = Seeded::of(entry.position);
        let log = self.group_mut(group)?;
        log.vote = Some(vote);
        log.purged = Some(purged);
        log.last = Some(purged);
        log.unwritten = true;
        self.append(group, std::slice::from_ref(entry))
    }

    /// Removes the group. Not an error if it does not exist.
    pub(crate) fn destroy(&mut self, group: GroupId) -> Released {
        let mut released = Released::new();
        if let Some(mut log) = self.groups.remove(&group) {
            let end = log.end();
            self.cut_front(&mut log, end, &mut released);
        }
        self.trim_order();
        released
    }

    pub(crate) fn set_vote(&mut self, group: GroupId, vote: Vote) -> Result<(), RaftError> {
        self.group_mut(group)?.vote = Some(vote);
        Ok(())
    }

    pub(crate) fn set_committed(
        &mut self,
        group: GroupId,
        committed: Option<Position>,
    ) -> Result<(), RaftError> {
        let log = self.group_mut(group)?;
        log.committed = committed;
        log.committed_queued = committed.is_none();
        Ok(())
    }

    /// Commit position to be written with the group's other records; `None` if it is on disk or queued already.
    pub(crate) fn take_committed(&mut self, group: GroupId) -> Option<Position> {
        let log = self.groups.get_mut(&group)?;
        if log.committed_queued {
            return None;
        }
        log.committed_queued = true;
        log.committed
    }

    /// Adds entries that are queued to be written; returns the id of the write for [`Index::stored`].
    pub(crate) fn append(
        &mut self,
        group: GroupId,
        entries: &[LogEntry],
    ) -> Result<u64, RaftError> {
        let write = self.next_write;
        let log = self.groups.get_mut(&group).ok_or_else(|| unknown(group))?;
        // Check all entries before changing anything: a gap leaves the log as it was.
        let mut next = log.last.map(|last| last.index + 1);
        for entry in entries {
            let index = entry.position.index;
            if next.is_some_and(|next| next != index) {
                return Err(RaftError::InvalidInput(format!(
                    "entry {index} does not follow the log of group {group}, which ends at {:?}",
                    log.last
                )));
            }
            next = Some(index + 1);
        }
        // Queued entries are pending until `stored` gives them a location; until then they are read from `recent`.
        self.next_write += 1;
        for entry in entries {
            if log.slots.is_empty() {
                log.first = entry.position.index;
            }
            log.slots.push_back(Slot::Pending { write });
            log.recent.push_back(Recent { entry: entry.clone(), write });
            log.last = Some(entry.position);
            self.order.push_back((group, entry.position.index, write));
            self.cached_entries += 1;
            self.cached_bytes += entry.stored_bytes() as u64;
        }
        self.evict();
        Ok(write)
    }

    /// Removes the entries after `last`.
    pub(crate) fn truncate(
        &mut self,
        group: GroupId,
        last: Option<Position>,
    ) -> Result<Released, RaftError> {
        let log = self.groups.get_mut(&group).ok_or_else(|| unknown(group))?;
        let mut released = Released::new();
        let end = last.map_or(0, |last| last.index + 1).max(log.first);
        if end >= log.end() {
            return Ok(released);
        }
        while log.end() > end {
            if let Some(Slot::Stored(location)) = log.slots.pop_back() {
                *released.entry(location.segment).or_default() += 1;
            }
            if let Some(recent) = log.recent.pop_back() {
                self.cached_entries -= 1;
                self.cached_bytes -= recent.entry.stored_bytes() as u64;
            }
        }
        log.last = if log.slots.is_empty() { log.purged } else { last };
        self.trim_order();
        Ok(released)
    }

    /// Removes the entries up to `upto`.
    pub(crate) fn purge(&mut self, group: GroupId, upto: Position) -> Result<Released, RaftError> {
        let mut log = self.groups.remove(&group).ok_or_else(|| unknown(group))?;
        let mut released = Released::new();
        if log.purged < Some(upto) {
            log.purged = Some(upto);
            self.cut_front(&mut log, upto.index + 1, &mut released);
            if log.slots.is_empty() {
                log.first = upto.index + 1;
            }
            if log.last < Some(upto) {
                log.last = Some(upto);
            }
        }
        self.groups.insert(group, log);
        self.trim_order();
        Ok(released)
    }

    fn cut_front(&mut self, log: &mut GroupLog, end: u64, released: &mut Released) {
        while log.first < end && !log.slots.is_empty() {
            let cached = log.recent.len() == log.slots.len();
            if let Some(Slot::Stored(location)) = log.slots.pop_front() {
                *released.entry(location.segment).or_default() += 1;
            }
            log.first += 1;
            if cached && let Some(recent) = log.recent.pop_front() {
                self.cached_entries -= 1;
                self.cached_bytes -= recent.entry.stored_bytes() as u64;
            }
        }
    }

    /// Records that an entry of that write is on disk. `false` if the entry has been removed since.
    pub(crate) fn stored(
        &mut self,
        group: GroupId,
        index: u64,
        write: u64,
        location: Location,
    ) -> bool {
        let Some(log) = self.groups.get_mut(&group) else { return false };
        let Some(slot) = log.slot_at(index) else { return false };
        if *slot != (Slot::Pending { write }) {
            return false;
        }
        *slot = Slot::Stored(location);
        log.unwritten = false;
        true
    }

    /// Records that an entry was copied to another place. `false` if the entry has been removed since.
    pub(crate) fn moved(
        &mut self,
        group: GroupId,
        index: u64,
        source: Location,
        target: Location,
    ) -> bool {
        let Some(slot) = self.groups.get_mut(&group).and_then(|log| log.slot_at(index)) else {
            return false;
        };
        if *slot != Slot::Stored(source) {
            return false;
        }
        *slot = Slot::Stored(target);
        true
    }

    /// Records that a blank entry has replaced an unreadable one.
    pub(crate) fn filled(&mut self, group: GroupId, index: u64, location: Location) -> bool {
        let Some(log) = self.groups.get_mut(&group) else { return false };
        match log.slot_at(index) {
            Some(slot) if *slot == Slot::Lost => {
                *slot = Slot::Stored(location);
                true
            }
            _ => false,
        }
    }

    /// True if the entry still lies at `location`.
    pub(crate) fn is_at(&self, group: GroupId, index: u64, location: Location) -> bool {
        self.groups.get(&group).is_some_and(|log| {
            index
                .checked_sub(log.first)
                .and_then(|offset| usize::try_from(offset).ok())
                .and_then(|offset| log.slots.get(offset))
                .is_some_and(|slot| *slot == Slot::Stored(location))
        })
    }

    /// The entries in `[start, end)` that exist, in order: about `bytes_max` bytes, but at least one entry.
    pub(crate) fn plan(
        &self,
        group: GroupId,
        start: u64,
        end: u64,
        bytes_max: u64,
    ) -> Result<Vec<Planned>, RaftError> {
        let log = self.group(group)?;
        let start = start.max(log.first);
        let end = end.min(log.end());
        // The suffix from `cached_from` on is in memory; earlier entries must be read from their segments.
        let cached_from = log.end() - log.recent.len() as u64;
        let mut planned = Vec::new();
        let mut bytes = 0;
        for index in start..end {
            let offset = |base: u64| usize::try_from(index - base).unwrap_or(usize::MAX);
            let (item, size) = if index >= cached_from {
                let entry = log.recent[offset(cached_from)].entry.clone();
                let size = entry.stored_bytes() as u64;
                (Planned::Cached(entry), size)
            } else {
                match log.slots[offset(log.first)] {
                    Slot::Stored(location) => {
                        (Planned::Stored { index, location }, u64::from(location.bytes))
                    }
                    Slot::Pending { .. } | Slot::Lost => {
                        return Err(RaftError::Corrupted(format!(
                            "entry {index} of group {group} is neither on disk nor in memory"
                        )));
                    }
                }
            };
            if !planned.is_empty() && bytes + size > bytes_max {
                break;
            }
            bytes += size;
            planned.push(item);
        }
        Ok(planned)
    }

    /// Drops the oldest recent entries until they fit into the cache. Entries that are not yet on disk stay.
    pub(crate) fn evict(&mut self) {
        while self.cached_bytes > self.cache_bytes_max {
            let Some((group, index, write)) = self.order.front().copied() else { return };
            if let Some(log) = self.groups.get_mut(&group)
                && log.recent.front().is_some_and(|front| {
                    front.entry.position.index == index && front.write == write
                })
            {
                if matches!(log.slot_at(index), Some(Slot::Pending { .. })) {
                    return;
                }
                if let Some(recent) = log.recent.pop_front() {
                    self.cached_entries -= 1;
                    self.cached_bytes -= recent.entry.stored_bytes() as u64;
                }
            }
            self.order.pop_front();
        }
    }

    /// Removes dropped entries from `order`, so that it does not grow without bound.
    fn trim_order(&mut self) {
        if self.order.len() < 1024 + 2 * self.cached_entries {
            return;
        }
        let groups = &self.groups;
        self.order.retain(|(group, index, write)| {
            groups.get(group).is_some_and(|log| {
                let cached_from = log.end() - log.recent.len() as u64;
                index
                    .checked_sub(cached_from)
                    .and_then(|offset| usize::try_from(offset).ok())
                    .and_then(|offset| log.recent.get(offset))
                    .is_some_and(|recent| recent.write == *write)
            })
        });
    }
}

fn unknown(group: GroupId) -> RaftError {
    RaftError::InvalidInput(format!("group {group} is not in the log"))
}

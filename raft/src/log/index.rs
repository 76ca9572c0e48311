//! What the log holds of each group, in memory: where every entry lies, and the recent entries themselves.
//!
//! ```text
//! group 7:  purged 40 | 41 42 43 44 45 46 47 |
//!   slots               s3 s3 s3 s4 s4 p  p     s = stored in that segment, p = still on its way to the disk
//!   recent                       44 45 46 47    the suffix that needs no read
//! ```
//!
//! Invariants:
//! - the index is ahead of the disk: it changes when an operation is queued, the disk when the writer gets to it;
//! - pending slots form a suffix, and whatever is pending is among the recent entries;
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
    /// Of the whole record.
    pub(crate) bytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Pending {
        write: u64,
    },
    Stored(Location),
    /// It cannot be read any more.
    Lost,
}

/// How many live entries each segment loses by an operation, once that is durable.
pub(crate) type Released = BTreeMap<u32, u64>;

/// An entry to be read: at hand, or to be fetched.
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

/// What a group that begins with an entry of another group's log has from the start, besides that entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seeded {
    /// The replica follows whoever proposed the entry, as a quorum did.
    pub(crate) vote: Vote,
    /// Nothing before the entry was ever here.
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
    /// Where the entries lie, from the first one on; `None` for what cannot be read.
    pub(crate) slots: Vec<Option<Location>>,
    pub(crate) damage: Option<Damage>,
}

/// The log of one group.
#[derive(Clone, Debug)]
pub(crate) struct GroupLog {
    pub(crate) replica: ReplicaId,
    pub(crate) vote: Option<Vote>,
    pub(crate) purged: Option<Position>,
    pub(crate) committed: Option<Position>,
    /// Whether `committed` is on disk, or on its way there.
    committed_queued: bool,
    /// The last entry, or what was purged last if there is none.
    pub(crate) last: Option<Position>,
    /// Index of the first slot.
    first: u64,
    slots: VecDeque<Slot>,
    recent: VecDeque<Recent>,
    /// It was seeded, and that is not on disk yet: nothing may be said of it before.
    pub(crate) unwritten: bool,
    /// It may lack something that was acknowledged.
    pub(crate) damage: Option<Damage>,
    /// It is of an older copy of the node's data.
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

    /// Whether its entries can be neither flushed nor written again: it is damaged, or not to be trusted.
    pub(crate) fn is_stuck(&self) -> bool {
        self.damage.is_some() || self.distrusted
    }

    /// A group as recovery found it.
    pub(crate) fn recovered(found: FoundLog) -> Self {
        let FoundLog { replica, vote, purged, committed, last, first, slots, damage } = found;
        let slot = |found: Option<Location>| found.map_or(Slot::Lost, Slot::Stored);
        let slots = slots.into_iter().map(slot).collect();
        Self { vote, purged, committed, last, first, slots, damage, ..Self::new(replica) }
    }

    /// Index after the last one present.
    fn end(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    fn slot_at(&mut self, index: u64) -> Option<&mut Slot> {
        let at = usize::try_from(index.checked_sub(self.first)?).ok()?;
        self.slots.get_mut(at)
    }

    /// The first and the last entry that are on disk, and what is known to be committed of them.
    pub(crate) fn stored_range(&self) -> (u64, u64) {
        let pending =
            self.slots.iter().rev().take_while(|slot| matches!(slot, Slot::Pending { .. })).count();
        (self.first, self.end() - pending as u64)
    }

    /// Where the group's first entry lies, if that is on disk.
    pub(crate) fn first_segment(&self) -> Option<u32> {
        match self.slots.front() {
            Some(Slot::Stored(location)) => Some(location.segment),
            Some(Slot::Pending { .. } | Slot::Lost) | None => None,
        }
    }

    /// Entries on disk and their bytes, if these are few enough to be written again: one entry of any size (a
    /// group's last entry is never purged, so nothing else could ever free its segment), or some small ones.
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
    /// Recent entries of all groups, oldest first; may name entries that are gone.
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

    /// The segments that hold entries of groups which are stuck.
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

    /// The group begins with this entry, which is on its way to the disk; the answer names this write to
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

    /// Forgets the group. Not an error if there is none.
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

    /// What is to be written about the group's commit index along with its other records.
    pub(crate) fn take_committed(&mut self, group: GroupId) -> Option<Position> {
        let log = self.groups.get_mut(&group)?;
        if log.committed_queued {
            return None;
        }
        log.committed_queued = true;
        log.committed
    }

    /// Adds entries that are on their way to the disk; the answer names this write to [`Index::stored`].
    pub(crate) fn append(
        &mut self,
        group: GroupId,
        entries: &[LogEntry],
    ) -> Result<u64, RaftError> {
        let write = self.next_write;
        let log = self.groups.get_mut(&group).ok_or_else(|| unknown(group))?;
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

    /// Voids what comes after `last`.
    pub(crate) fn truncate(
        &mut self,
        group: GroupId,
        last: Option<Position>,
    ) -> Result<Released, RaftError> {
        let log = self.groups.get_mut(&group).ok_or_else(|| unknown(group))?;
        let mut released = Released::new();
        let keep_end = last.map_or(0, |last| last.index + 1).max(log.first);
        if keep_end >= log.end() {
            return Ok(released);
        }
        while log.end() > keep_end {
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

    /// Forgets what is not after `upto`.
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

    /// An entry of that write is on disk. `false` if it has been voided meanwhile.
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

    /// An entry has been written again elsewhere. `false` if it has been voided meanwhile.
    pub(crate) fn moved(
        &mut self,
        group: GroupId,
        index: u64,
        from: Location,
        to: Location,
    ) -> bool {
        let Some(slot) = self.groups.get_mut(&group).and_then(|log| log.slot_at(index)) else {
            return false;
        };
        if *slot != Slot::Stored(from) {
            return false;
        }
        *slot = Slot::Stored(to);
        true
    }

    /// A blank entry was written in place of one that cannot be read.
    pub(crate) fn filled(&mut self, group: GroupId, index: u64, to: Location) -> bool {
        let Some(log) = self.groups.get_mut(&group) else { return false };
        match log.slot_at(index) {
            Some(slot) if *slot == Slot::Lost => {
                *slot = Slot::Stored(to);
                true
            }
            _ => false,
        }
    }

    /// Whether the entry still lies there.
    pub(crate) fn is_at(&self, group: GroupId, index: u64, location: Location) -> bool {
        self.groups.get(&group).is_some_and(|log| {
            index
                .checked_sub(log.first)
                .and_then(|at| usize::try_from(at).ok())
                .and_then(|at| log.slots.get(at))
                .is_some_and(|slot| *slot == Slot::Stored(location))
        })
    }

    /// The entries of `[start, end)` that exist, in order, up to about `bytes_max` but at least one.
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
        let cached_from = log.end() - log.recent.len() as u64;
        let mut planned = Vec::new();
        let mut bytes = 0;
        for index in start..end {
            let at = |from: u64| usize::try_from(index - from).unwrap_or(usize::MAX);
            let (item, size) = if index >= cached_from {
                let entry = log.recent[at(cached_from)].entry.clone();
                let size = entry.stored_bytes() as u64;
                (Planned::Cached(entry), size)
            } else {
                match log.slots[at(log.first)] {
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

    /// Drops the oldest recent entries until they fit. What is not on disk yet stays.
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

    /// Keeps the list of recent entries from filling up with names of what is gone.
    fn trim_order(&mut self) {
        if self.order.len() < 1024 + 2 * self.cached_entries {
            return;
        }
        let groups = &self.groups;
        self.order.retain(|(group, index, write)| {
            groups.get(group).is_some_and(|log| {
                let from = log.end() - log.recent.len() as u64;
                index
                    .checked_sub(from)
                    .and_then(|at| usize::try_from(at).ok())
                    .and_then(|at| log.recent.get(at))
                    .is_some_and(|recent| recent.write == *write)
            })
        });
    }
}

fn unknown(group: GroupId) -> RaftError {
    RaftError::InvalidInput(format!("group {group} is not in the log"))
}

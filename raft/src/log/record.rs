//! Encoding of log records.
//!
//! ```text
//!  0 crc32c   u32   of everything after it, payload included
//!  4 length   u32   of the payload
//!  8 segment  u32   the segment's number
//! 12 durable  u32   how much of this segment had been synced when the record was written
//! 16 group    u64
//! 24 index    u64
//! 32 term     u64
//! 40 leader   u64
//! 48 kind     u8
//! 49 flag     u8
//! 50 zero     u16
//! 52 crc32c   u32   of bytes 4 to 52; zero in records of older builds, which did not have it
//! 56 payload, then zeros up to a multiple of 8
//! ```
//! All numbers are little-endian.
//!
//! Invariants:
//! - `segment` is covered by the checksum, so an old record in a recycled file never parses as one of the new segment;
//! - `durable` tells a torn tail from damage: a valid record behind a bad one proves, if its `durable` lies beyond the
//!   bad one, that the bad one had been written whole;
//! - the header has its own checksum, so a record with a bad payload can still be identified.

use std::borrow::Cow;

use bytes::Bytes;
use partita_proto::id::GroupId;

use crate::error::RaftError;

/// Bytes before the payload.
pub(crate) const HEADER_BYTES: usize = 56;
/// Bytes of the replica id that precedes the entry in a seed's payload.
const REPLICA_BYTES: usize = 8;
/// Longest payload that is searched for a flipped bit: 0.2 s of computing checksums.
const REPAIR_BYTES_MAX: usize = 8 << 10;
/// Records start at multiples of this.
pub(crate) const ALIGNMENT: usize = 8;

/// A position in a group's log, which Raft calls a log id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) term: u64,
    /// The replica that led when the entry was proposed.
    pub(crate) leader: u64,
    pub(crate) index: u64,
}

/// A replica's vote: the replica it supports, and whether a quorum supports it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vote {
    pub(crate) term: u64,
    pub(crate) leader: u64,
    pub(crate) committed: bool,
}

/// Content of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// Nothing: a new leader's first entry.
    Blank,
    /// A command for the machine.
    Command,
    /// An encoded membership.
    Membership,
}

/// One entry of a group's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogEntry {
    pub(crate) position: Position,
    pub(crate) kind: EntryKind,
    pub(crate) payload: Bytes,
}

impl LogEntry {
    /// Bytes that the entry takes in a segment.
    pub(crate) fn stored_bytes(&self) -> usize {
        record_bytes(self.payload.len())
    }
}

/// Content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The first record of a segment: the state of all groups.
    Checkpoint(Bytes),
    /// The last record of a segment that has a successor.
    Seal,
    /// The group exists here, as this replica.
    Create { group: GroupId, replica: u64 },
    /// Everything about the group is void.
    Destroy { group: GroupId },
    /// The next entry of the group.
    Append { group: GroupId, entry: LogEntry },
    /// An entry that is already in the log, written again so that its old segment can be reclaimed.
    Moved { group: GroupId, entry: LogEntry },
    /// Entries after this one are void; all of them if `None`.
    Truncate { group: GroupId, last: Option<Position> },
    /// Entries up to this one are no longer needed.
    Purge { group: GroupId, upto: Position },
    /// The replica's vote.
    Vote { group: GroupId, vote: Vote },
    /// Commit position. Written along with other records, never on its own.
    Committed { group: GroupId, upto: Position },
    /// The group exists here, as this replica; everything before this entry is purged; and the replica supports the
    /// leader that the entry names. One record, so that a crash leaves all of it or nothing.
    Seed { group: GroupId, replica: u64, entry: LogEntry },
}

/// Bytes of a record with a payload of `payload` bytes.
pub(crate) fn record_bytes(payload: usize) -> usize {
    (HEADER_BYTES + payload).next_multiple_of(ALIGNMENT)
}

const KIND_CHECKPOINT: u8 = 1;
const KIND_SEAL: u8 = 2;
const KIND_CREATE: u8 = 3;
const KIND_DESTROY: u8 = 4;
const KIND_APPEND: u8 = 5;
const KIND_MOVED: u8 = 6;
const KIND_TRUNCATE: u8 = 7;
const KIND_PURGE: u8 = 8;
const KIND_VOTE: u8 = 9;
const KIND_COMMITTED: u8 = 10;
const KIND_SEED: u8 = 11;

const FLAG_BLANK: u8 = 0;
const FLAG_COMMAND: u8 = 1;
const FLAG_MEMBERSHIP: u8 = 2;

/// The fixed fields, as they are on disk.
struct Header {
    group: u64,
    position: Position,
    kind: u8,
    flag: u8,
}

impl Record {
    /// Bytes that the record takes in a segment.
    pub(crate) fn stored_bytes(&self) -> usize {
        record_bytes(self.payload().len())
    }

    fn payload(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Checkpoint(payload) => Cow::Borrowed(payload),
            Self::Append { entry, .. } | Self::Moved { entry, .. } => Cow::Borrowed(&entry.payload),
            Self::Seed { replica, entry, .. } => {
                Cow::Owned([replica.to_le_bytes().as_slice(), &entry.payload].concat())
            }
            Self::Seal
            | Self::Create { .. }
            | Self::Destroy { .. }
            | Self::Truncate { .. }
            | Self::Purge { .. }
            | Self::Vote { .. }
            | Self::Committed { .. } => Cow::Borrowed(&[]),
        }
    }

    fn header(&self) -> Header {
        let header =
            |kind, group: GroupId, position, flag| Header { group: group.0, position, kind, flag };
        let none = Position::default();
        match self {
            Self::Checkpoint(_) => header(KIND_CHECKPOINT, GroupId(0), none, 0),
            Self::Seal => header(KIND_SEAL, GroupId(0), none, 0),
            Self::Create { group, replica } => {
                header(KIND_CREATE, *group, Position { leader: *replica, ..none }, 0)
            }
            Self::Destroy { group } => header(KIND_DESTROY, *group, none, 0),
            Self::Append { group, entry } => {
                header(KIND_APPEND, *group, entry.position, entry_flag(entry.kind))
            }
            Self::Moved { group, entry } => {
                header(KIND_MOVED, *group, entry.position, entry_flag(entry.kind))
            }
            Self::Truncate { group, last } => {
                header(KIND_TRUNCATE, *group, last.unwrap_or(none), u8::from(last.is_some()))
            }
            Self::Purge { group, upto } => header(KIND_PURGE, *group, *upto, 0),
            Self::Vote { group, vote } => header(
                KIND_VOTE,
                *group,
                Position { term: vote.term, leader: vote.leader, index: 0 },
                u8::from(vote.committed),
            ),
            Self::Committed { group, upto } => header(KIND_COMMITTED, *group, *upto, 0),
            Self::Seed { group, entry, .. } => {
                header(KIND_SEED, *group, entry.position, entry_flag(entry.kind))
            }
        }
    }

    /// Appends the record's bytes to `out`.
    pub(crate) fn encode(
        &self,
        segment: u32,
        durable: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), RaftError> {
        let payload = self.payload();
        let length = u32::try_from(payload.len()).map_err(|_| {
            RaftError::InvalidInput(format!("a record of {} bytes is too large", payload.len()))
        })?;
        let header = self.header();
        let start = out.len();
        out.reserve(record_bytes(payload.len()));
        // The fixed fields; the checksum over everything is filled in at the end.
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&segment.to_le_bytes());
        out.extend_from_slice(&durable.to_le_bytes());
        out.extend_from_slice(&header.group.to_le_bytes());
        out.extend_from_slice(&header.position.index.to_le_bytes());
        out.extend_from_slice(&header.position.term.to_le_bytes());
        out.extend_from_slice(&header.position.leader.to_le_bytes());
        out.extend_from_slice(&[header.kind, header.flag, 0, 0]);
        // The header's own checksum, then the payload, then the checksum of both, and zeros up to the alignment.
        let check = crc32c::crc32c(&out[start + 4..]);
        out.extend_from_slice(&check.to_le_bytes());
        out.extend_from_slice(&payload);
        let crc = crc32c::crc32c(&out[start + 4..]);
        out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
        out.resize(start + record_bytes(payload.len()), 0);
        Ok(())
    }
}

fn entry_flag(kind: EntryKind) -> u8 {
    match kind {
        EntryKind::Blank => FLAG_BLANK,
        EntryKind::Command => FLAG_COMMAND,
        EntryKind::Membership => FLAG_MEMBERSHIP,
    }
}

/// A record that was read back.
pub(crate) struct Decoded {
    pub(crate) record: Record,
    /// Bytes of the record in the segment, padding included.
    pub(crate) bytes: usize,
    /// Bytes of the segment that had been synced when the record was written.
    pub(crate) durable: u32,
}

/// Reads the record at `offset`; `None` if there is no whole and valid one that belongs to `segment`.
pub(crate) fn decode(data: &Bytes, offset: usize, segment: u32) -> Option<Decoded> {
    // The checksum covers `segment`, so a record of the file's former life fails here.
    let rest = data.get(offset..)?;
    if rest.len() < HEADER_BYTES || u32_at(rest, 8) != segment {
        return None;
    }
    let length = u32_at(rest, 4) as usize;
    let end = HEADER_BYTES.checked_add(length)?;
    if rest.len() < end || crc32c::crc32c(&rest[4..end]) != u32_at(rest, 0) {
        return None;
    }
    // The record is intact; a kind or flag that this version does not know still makes it no record.
    let group = GroupId(u64_at(rest, 16));
    let position =
        Position { index: u64_at(rest, 24), term: u64_at(rest, 32), leader: u64_at(rest, 40) };
    let (kind, flag) = (rest[48], rest[49]);
    let payload = || data.slice(offset + HEADER_BYTES..offset + end);
    let entry = |payload: Bytes| {
        let kind = match flag {
            FLAG_BLANK => EntryKind::Blank,
            FLAG_COMMAND => EntryKind::Command,
            FLAG_MEMBERSHIP => EntryKind::Membership,
            _ => return None,
        };
        Some(LogEntry { position, kind, payload })
    };
    let record = match kind {
        KIND_CHECKPOINT => Record::Checkpoint(payload()),
        KIND_SEAL => Record::Seal,
        KIND_CREATE => Record::Create { group, replica: position.leader },
        KIND_DESTROY => Record::Destroy { group },
        KIND_APPEND => Record::Append { group, entry: entry(payload())? },
        KIND_MOVED => Record::Moved { group, entry: entry(payload())? },
        KIND_TRUNCATE => Record::Truncate { group, last: (flag != 0).then_some(position) },
        KIND_PURGE => Record::Purge { group, upto: position },
        KIND_VOTE => Record::Vote {
            group,
            vote: Vote { term: position.term, leader: position.leader, committed: flag != 0 },
        },
        KIND_COMMITTED => Record::Committed { group, upto: position },
        KIND_SEED if length >= REPLICA_BYTES => {
            let mut replica = payload();
            let entry = entry(replica.split_off(REPLICA_BYTES))?;
            Record::Seed { group, replica: u64_at(&replica, 0), entry }
        }
        _ => return None,
    };
    Some(Decoded { record, bytes: record_bytes(length), durable: u32_at(rest, 12) })
}

/// Identity of a record whose header is valid and whose payload is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The state of all groups at the beginning of the segment.
    Checkpoint,
    /// An entry.
    Entry { group: GroupId, position: Position },
    /// A moved entry.
    Moved { group: GroupId, position: Position },
    /// The creation of a group with its first entry.
    Seed { group: GroupId, position: Position },
}

/// Reads the header of the bad record at `offset`: its identity, and its bytes in the segment. `None` if the header
/// fails its checksum.
pub(crate) fn lost(data: &[u8], offset: usize, segment: u32) -> Option<(Lost, usize)> {
    let rest = data.get(offset..)?;
    let header = rest.get(..HEADER_BYTES)?;
    let length = u32_at(header, 4) as usize;
    let fits = HEADER_BYTES.checked_add(length).is_some_and(|end| end <= rest.len());
    if u32_at(header, 8) != segment || !fits || !is_checked(header) {
        return None;
    }
    let group = GroupId(u64_at(header, 16));
    let position = Position {
        index: u64_at(header, 24),
        term: u64_at(header, 32),
        leader: u64_at(header, 40),
    };
    let what = match header[48] {
        KIND_CHECKPOINT => Lost::Checkpoint,
        KIND_APPEND => Lost::Entry { group, position },
        KIND_MOVED => Lost::Moved { group, position },
        KIND_SEED => Lost::Seed { group, position },
        _ => return None,
    };
    Some((what, record_bytes(length)))
}

/// True if the header passes its own checksum.
fn is_checked(header: &[u8]) -> bool {
    u32_at(header, 52) == crc32c::crc32c(&header[4..52])
}

/// Restores the record at `offset`, if flipping a single bit makes it valid; `None` if no single bit does.
///
/// A 32-bit checksum that fits after one of some thousand flips is hardly an accident: the chance is one in a million.
/// A record with a single flipped bit is thus told from one that was never written whole, and is repaired. Payloads
/// longer than `REPAIR_BYTES_MAX` are not searched.
pub(crate) fn repaired(data: &[u8], offset: usize, segment: u32) -> Option<Vec<u8>> {
    let rest = data.get(offset..)?;
    let mut header = rest.get(..HEADER_BYTES)?.to_vec();
    for bit in 0..HEADER_BYTES * 8 {
        header[bit / 8] ^= 1 << (bit % 8);
        if is_whole(&header, rest, segment) {
            return Some(header);
        }
        header[bit / 8] ^= 1 << (bit % 8);
    }
    let length = u32_at(&header, 4) as usize;
    let checked = u32_at(&header, 8) == segment && is_checked(&header);
    if !checked || length > REPAIR_BYTES_MAX {
        return None;
    }
    let mut record = rest.get(..HEADER_BYTES + length)?.to_vec();
    let crc = u32_at(&record, 0);
    for bit in HEADER_BYTES * 8..record.len() * 8 {
        record[bit / 8] ^= 1 << (bit % 8);
        if crc32c::crc32c(&record[4..]) == crc {
            return Some(record);
        }
        record[bit / 8] ^= 1 << (bit % 8);
    }
    None
}

/// True if the header belongs to `segment` and fits the payload in `rest`, which begins where `rest`'s own header does.
fn is_whole(header: &[u8], rest: &[u8], segment: u32) -> bool {
    // Older builds wrote zero here.
    let length = u32_at(header, 4) as usize;
    let old = u32_at(header, 52) == 0 && length <= REPAIR_BYTES_MAX;
    let checked = old || is_checked(header);
    let payload = HEADER_BYTES.checked_add(length).and_then(|end| rest.get(HEADER_BYTES..end));
    u32_at(header, 8) == segment
        && checked
        && payload.is_some_and(|payload| {
            let crc = crc32c::crc32c_append(crc32c::crc32c(&header[4..]), payload);
            crc == u32_at(header, 0)
        })
}

/// True if the bytes at `offset` look like a record of `segment`, whether or not their checksum is right.
pub(crate) fn claims(data: &[u8], offset: usize, segment: u32) -> bool {
    data.get(offset..).is_some_and(|rest| {
        rest.len() >= HEADER_BYTES
            && u32_at(rest, 8) == segment
            && (KIND_CHECKPOINT..=KIND_SEED).contains(&rest[48])
            && u32_at(rest, 4) as usize <= rest.len() - HEADER_BYTES
    })
}

fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]])
}

fn u64_at(data: &[u8], at: usize) -> u64 {
    u64::from(u32_at(data, at)) | u64::from(u32_at(data, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Record> {
        let group = GroupId(7);
        let position = Position { term: 3, leader: 11, index: 42 };
        let entry = |kind, payload: &'static [u8]| LogEntry {
            position,
            kind,
            payload: Bytes::from_static(payload),
        };
        vec![
            Record::Checkpoint(Bytes::from_static(b"all groups")),
            Record::Seal,
            Record::Create { group, replica: 11 },
            Record::Destroy { group },
            Record::Append { group, entry: entry(EntryKind::Command, b"a row") },
            Record::Append { group, entry: entry(EntryKind::Blank, b"") },
            Record::Moved { group, entry: entry(EntryKind::Membership, b"members") },
            Record::Truncate { group, last: Some(position) },
            Record::Truncate { group, last: None },
            Record::Purge { group, upto: position },
            Record::Vote { group, vote: Vote { term: 3, leader: 11, committed: true } },
            Record::Committed { group, upto: position },
            Record::Seed { group, replica: 12, entry: entry(EntryKind::Membership, b"members") },
        ]
    }

    #[test]
    fn every_kind_of_record_comes_back_as_it_went_out() {
        let mut out = Vec::new();
        let records = samples();
        for record in &records {
            record.encode(5, 64, &mut out).unwrap();
        }
        let data = Bytes::from(out);
        let mut offset = 0;
        for record in &records {
            let decoded = decode(&data, offset, 5).unwrap();
            assert_eq!(&decoded.record, record);
            assert_eq!(decoded.durable, 64);
            assert_eq!(decoded.bytes, record.stored_bytes());
            offset += decoded.bytes;
        }
        assert_eq!(offset, data.len());
    }

    /// These bytes are in the logs of users: a line that differs is a mistake, or needs another `LOG_FORMAT`.
    #[test]
    fn records_never_change_their_bytes() {
        let mut lines = String::new();
        for record in samples() {
            let mut bytes = Vec::new();
            record.encode(5, 64, &mut bytes).unwrap();
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            lines.push_str(&format!("{hex}\n"));
        }
        assert_eq!(lines, include_str!("record.golden"), "got:\n{lines}");
    }

    #[test]
    fn a_record_of_another_segment_or_with_any_flipped_bit_does_not_parse() {
        let mut out = Vec::new();
        samples()[4].encode(5, 0, &mut out).unwrap();
        assert!(decode(&Bytes::from(out.clone()), 0, 6).is_none());
        let meant = HEADER_BYTES + 5;
        for bit in 0..meant * 8 {
            let mut damaged = out.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&Bytes::from(damaged), 0, 5).is_none(), "bit {bit}");
        }
    }

    #[test]
    fn the_bytes_of_a_record_are_fixed() {
        // What is on disk must stay readable: this test changes only together with the format number, or where older
        // builds do not look.
        let mut out = Vec::new();
        samples()[4].encode(5, 64, &mut out).unwrap();
        let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex[8..],
            *concat!(
                "05000000",
                "05000000",
                "40000000",
                "0700000000000000",
                "2a00000000000000",
                "0300000000000000",
                "0b00000000000000",
                "05010000",
                "07f4b57e",
                "6120726f77",
                "000000"
            )
        );
    }
}

//! The first record of every segment: the state of all groups, apart from where their entries lie.
//!
//! Invariants:
//! - a checkpoint is authoritative: state that it does not name is void, so a segment between two others can be
//!   reclaimed although it held votes, truncations and purges;
//! - it never names an entry that is not on disk, nor a group whose seed is not.

use std::collections::BTreeMap;

use bytes::Bytes;
use partita_proto::id::{GroupId, ReplicaId};
use prost::Message;

use super::index::Index;
use super::record::{Position, Vote};
use crate::error::RaftError;

/// Upper bound of the encoded state of one group.
pub(crate) const GROUP_BYTES_MAX: usize = 192;

#[derive(Clone, PartialEq, Message)]
struct CheckpointMessage {
    #[prost(message, repeated, tag = "1")]
    groups: Vec<GroupMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct GroupMessage {
    #[prost(uint64, tag = "1")]
    group: u64,
    #[prost(uint64, tag = "2")]
    replica: u64,
    #[prost(message, optional, tag = "3")]
    vote: Option<VoteMessage>,
    #[prost(message, optional, tag = "4")]
    purged: Option<PositionMessage>,
    #[prost(message, optional, tag = "5")]
    committed: Option<PositionMessage>,
    /// Index of the first entry.
    #[prost(uint64, tag = "6")]
    first: u64,
    /// Index after the last entry on disk.
    #[prost(uint64, tag = "7")]
    end: u64,
    /// First damaged place: records of this group written since then may be missing.
    #[prost(message, optional, tag = "8")]
    damage: Option<PlaceMessage>,
}

/// A place in the log: segment number and byte offset.
#[derive(Clone, Copy, PartialEq, Message)]
struct PlaceMessage {
    #[prost(fixed32, tag = "1")]
    segment: u32,
    #[prost(fixed32, tag = "2")]
    offset: u32,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct VoteMessage {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    leader: u64,
    #[prost(bool, tag = "3")]
    committed: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct PositionMessage {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    leader: u64,
    #[prost(uint64, tag = "3")]
    index: u64,
}

impl From<Position> for PositionMessage {
    fn from(position: Position) -> Self {
        Self { term: position.term, leader: position.leader, index: position.index }
    }
}

impl From<PositionMessage> for Position {
    fn from(message: PositionMessage) -> Self {
        Self { term: message.term, leader: message.leader, index: message.index }
    }
}

/// The state of one group at a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupState {
    pub(crate) replica: ReplicaId,
    pub(crate) vote: Option<Vote>,
    pub(crate) purged: Option<Position>,
    pub(crate) committed: Option<Position>,
    /// Indexes of the entries: `[first, end)`.
    pub(crate) first: u64,
    pub(crate) end: u64,
    /// First damaged place, segment and offset: records of this group written from there on may be missing.
    pub(crate) damage: Option<(u32, u32)>,
}

/// Encodes the durable part of the state of all groups.
pub(crate) fn encode(index: &Index) -> Bytes {
    let groups = index
        .groups
        .iter()
        .filter(|(_, log)| !log.unwritten)
        .map(|(group, log)| {
            let (first, end) = log.stored_range();
            GroupMessage {
                group: group.0,
                replica: log.replica.0,
                vote: log.vote.map(|vote| VoteMessage {
                    term: vote.term,
                    leader: vote.leader,
                    committed: vote.committed,
                }),
                purged: log.purged.map(Into::into),
                committed: log.committed.map(Into::into),
                first,
                end,
                // Missing entries need no mark: the next recovery finds them missing again.
                damage: log.damage.as_ref().filter(|damage| damage.unknown).map(|damage| {
                    let (segment, offset) = damage.place.unwrap_or_default();
                    PlaceMessage { segment, offset }
                }),
            }
        })
        .collect();
    CheckpointMessage { groups }.encode_to_vec().into()
}

/// Decodes a checkpoint; `described` names its segment in the error message.
pub(crate) fn decode(
    payload: &[u8],
    described: &str,
) -> Result<BTreeMap<GroupId, GroupState>, RaftError> {
    let message = CheckpointMessage::decode(payload).map_err(|error| {
        RaftError::Corrupted(format!("the checkpoint in {described} does not parse: {error}"))
    })?;
    let groups = message.groups.into_iter().map(|group| {
        let state = GroupState {
            replica: ReplicaId(group.replica),
            vote: group.vote.map(|vote| Vote {
                term: vote.term,
                leader: vote.leader,
                committed: vote.committed,
            }),
            purged: group.purged.map(Into::into),
            committed: group.committed.map(Into::into),
            first: group.first,
            end: group.end,
            damage: group.damage.map(|place| (place.segment, place.offset)),
        };
        (GroupId(group.group), state)
    });
    Ok(groups.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A checkpoint of two groups, one with every field. These bytes are in the logs of users.
    const GOLDEN: &str = "0a300807100b1a060804100c180122070803100b18ac022a070803100b18ad0230ad02389003420a0d0200000015001000000a0408081001";

    #[test]
    fn a_checkpoint_never_changes_its_bytes() {
        let position = PositionMessage { term: 3, leader: 11, index: 300 };
        let full = GroupMessage {
            group: 7,
            replica: 11,
            vote: Some(VoteMessage { term: 4, leader: 12, committed: true }),
            purged: Some(position),
            committed: Some(PositionMessage { index: 301, ..position }),
            first: 301,
            end: 400,
            damage: Some(PlaceMessage { segment: 2, offset: 4096 }),
        };
        let empty = GroupMessage { group: 8, replica: 1, ..GroupMessage::default() };
        let bytes = CheckpointMessage { groups: vec![full, empty] }.encode_to_vec();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN);

        let groups = decode(&bytes, "a test").unwrap();
        let purged = Position { term: 3, leader: 11, index: 300 };
        let state = GroupState {
            replica: ReplicaId(11),
            vote: Some(Vote { term: 4, leader: 12, committed: true }),
            purged: Some(purged),
            committed: Some(Position { index: 301, ..purged }),
            first: 301,
            end: 400,
            damage: Some((2, 4096)),
        };
        assert_eq!(groups[&GroupId(7)], state);
        assert_eq!((groups[&GroupId(8)].vote, groups[&GroupId(8)].end), (None, 0));
    }
}

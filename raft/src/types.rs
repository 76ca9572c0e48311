//! openraft's type parameters, and the translation between its entries, votes and positions and ours.
//!
//! Invariant: everything on disk is encoded here and in `log/`, never by openraft, so that its internals may change
//! between versions without affecting existing data.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use openraft::entry::RaftEntry;
use openraft::impls::leader_id_adv::LeaderId;
use openraft::vote::RaftVote;
use openraft::{EntryPayload, LogId, Membership, StoredMembership};
use partita_proto::id::{NodeId, ReplicaId};
use prost::Message;

use crate::error::RaftError;
use crate::log::{EntryKind, LogEntry, Position, Vote};

openraft::declare_raft_types!(
    /// openraft's type parameters. Its node ids are our replica ids: openraft forbids that an id returns to a group,
    /// and a partition may well return to a node.
    pub(crate) Types:
        D = Command,
        R = Reply,
        NodeId = u64,
        Node = Member,
        Term = u64,
        LeaderId = LeaderId<u64, u64>,
);

pub(crate) type RaftLogId = LogId<LeaderId<u64, u64>>;
pub(crate) type RaftVoteType = openraft::Vote<LeaderId<u64, u64>>;
pub(crate) type RaftEntryType =
    openraft::Entry<LeaderId<u64, u64>, EntryPayload<Command, u64, Member>>;
pub(crate) type RaftMembership = Membership<u64, Member>;
pub(crate) type RaftStoredMembership = StoredMembership<LeaderId<u64, u64>, u64, Member>;

/// A command; its bytes are opaque to this crate.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Command(pub(crate) Bytes);

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A machine's reply to a command; its bytes are opaque to this crate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reply(pub(crate) Bytes);

/// The node that holds a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) node: NodeId,
}

pub(crate) fn position(id: &RaftLogId) -> Position {
    Position { term: id.leader_id.term, leader: id.leader_id.node_id, index: id.index }
}

pub(crate) fn log_id(position: Position) -> RaftLogId {
    LogId::new(LeaderId { term: position.term, node_id: position.leader }, position.index)
}

pub(crate) fn stored_vote(vote: &RaftVoteType) -> Vote {
    let leader = vote.leader_id();
    Vote { term: leader.term, leader: leader.node_id, committed: vote.is_committed() }
}

pub(crate) fn raft_vote(vote: Vote) -> RaftVoteType {
    RaftVoteType::from_leader_id(LeaderId { term: vote.term, node_id: vote.leader }, vote.committed)
}

pub(crate) fn stored_entry(entry: RaftEntryType) -> LogEntry {
    let (kind, payload) = match entry.payload {
        EntryPayload::Blank => (EntryKind::Blank, Bytes::new()),
        EntryPayload::Normal(Command(payload)) => (EntryKind::Command, payload),
        EntryPayload::Membership(membership) => {
            (EntryKind::Membership, encode_membership(&membership))
        }
    };
    LogEntry { position: position(&entry.log_id), kind, payload }
}

pub(crate) fn raft_entry(entry: LogEntry) -> Result<RaftEntryType, RaftError> {
    let payload = match entry.kind {
        EntryKind::Blank => EntryPayload::Blank,
        EntryKind::Command => EntryPayload::Normal(Command(entry.payload)),
        EntryKind::Membership => EntryPayload::Membership(decode_membership(&entry.payload)?),
    };
    Ok(RaftEntryType::new(log_id(entry.position), payload))
}

#[derive(Clone, PartialEq, Message)]
struct MembershipMessage {
    /// One configuration, or two during a change.
    #[prost(message, repeated, tag = "1")]
    configurations: Vec<VotersMessage>,
    /// All members, learners included.
    #[prost(message, repeated, tag = "2")]
    members: Vec<MemberMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct VotersMessage {
    #[prost(uint64, repeated, tag = "1")]
    replicas: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct MemberMessage {
    #[prost(uint64, tag = "1")]
    replica: u64,
    #[prost(uint64, tag = "2")]
    node: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct PositionMessage {
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

#[derive(Clone, PartialEq, Message)]
struct MarkMessage {
    #[prost(message, required, tag = "1")]
    position: PositionMessage,
    #[prost(message, optional, tag = "2")]
    membership_position: Option<PositionMessage>,
    #[prost(bytes = "bytes", tag = "3")]
    membership: Bytes,
}

fn encode_membership(membership: &RaftMembership) -> Bytes {
    let configurations = membership.get_joint_config().iter();
    let message = MembershipMessage {
        configurations: configurations
            .map(|voters| VotersMessage { replicas: voters.iter().copied().collect() })
            .collect(),
        members: membership
            .nodes()
            .map(|(replica, member)| MemberMessage { replica: *replica, node: member.node.0 })
            .collect(),
    };
    message.encode_to_vec().into()
}

fn decode_membership(bytes: &[u8]) -> Result<RaftMembership, RaftError> {
    let message = MembershipMessage::decode(bytes)
        .map_err(|error| RaftError::Corrupted(format!("a membership does not parse: {error}")))?;
    let configurations: Vec<BTreeSet<u64>> = message
        .configurations
        .into_iter()
        .map(|voters| voters.replicas.into_iter().collect())
        .collect();
    let members: BTreeMap<u64, Member> = message
        .members
        .into_iter()
        .map(|member| (member.replica, Member { node: NodeId(member.node) }))
        .collect();
    Membership::new(configurations, members)
        .map_err(|error| RaftError::Corrupted(format!("a membership contradicts itself: {error}")))
}

/// A position in a group's log that a machine keeps with its own files: they contain everything up to it.
///
/// It carries the state that the group needs to continue from there (position and membership) and is opaque otherwise.
/// Cloning is cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    position: Position,
    membership: Arc<RaftStoredMembership>,
}

impl Mark {
    pub(crate) fn new(position: Position, membership: Arc<RaftStoredMembership>) -> Self {
        Self { position, membership }
    }

    /// Index of the last entry that the mark covers.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.position.index
    }

    /// Members of the group as of this mark, with their nodes.
    #[must_use]
    pub fn members(&self) -> BTreeMap<ReplicaId, NodeId> {
        self.membership
            .membership()
            .nodes()
            .map(|(replica, member)| (ReplicaId(*replica), member.node))
            .collect()
    }

    /// Mark of the first entry of a group that continues from this mark: at the same index, with the same members under
    /// other ids, led by the replica on the node `leader`, or on the node of the replica that proposed this mark's entry.
    /// `None` if the group's members, as of this mark, are not exactly one voter on each of these nodes, or the leader is
    /// not one of them.
    ///
    /// Any member may lead. A replica answers nothing in the new group before it has this state on disk, so the group is as
    /// if all members had voted for this leader in this term, and then had taken its first entry and stopped: a state that
    /// elections and restarts lead to. All derive it from the same entry, and it is written once, so no other replica
    /// leads in this term; a candidate starts from this state and takes a higher term. A replica that is made empty
    /// instead has no members, so it does not stand, and votes for logs that contain this entry only.
    #[must_use]
    pub fn child(
        &self,
        replicas: &BTreeMap<NodeId, ReplicaId>,
        leader: Option<NodeId>,
    ) -> Option<Self> {
        let membership = self.membership.membership();
        let members = self.members();
        let settled = membership.get_joint_config().len() == 1
            && membership.voter_ids().count() == members.len()
            && members.values().collect::<BTreeSet<_>>().len() == members.len()
            && members.values().collect::<BTreeSet<_>>() == replicas.keys().collect();
        let leader = match leader {
            Some(node) => node,
            None => *members.get(&ReplicaId(self.position.leader))?,
        };
        let leader = replicas.get(&leader)?;
        let distinct: BTreeSet<u64> = replicas.values().map(|replica| replica.0).collect();
        if !settled || distinct.len() != replicas.len() {
            return None;
        }
        let nodes: BTreeMap<u64, Member> =
            replicas.iter().map(|(node, replica)| (replica.0, Member { node: *node })).collect();
        let membership = Membership::new(vec![distinct], nodes).ok()?;
        let position = Position { leader: leader.0, ..self.position };
        let membership = StoredMembership::new(Some(log_id(position)), membership);
        Some(Self { position, membership: Arc::new(membership) })
    }

    /// The first entry of a group that begins at this mark.
    pub(crate) fn seed(&self) -> LogEntry {
        LogEntry {
            position: self.position,
            kind: EntryKind::Membership,
            payload: encode_membership(self.membership.membership()),
        }
    }

    /// Encodes the mark, to be kept with the state that it describes.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let message = MarkMessage {
            position: self.position.into(),
            membership_position: self.membership.log_id().as_ref().map(|id| position(id).into()),
            membership: encode_membership(self.membership.membership()),
        };
        message.encode_to_vec().into()
    }

    /// Decodes a mark encoded by [`Mark::to_bytes`].
    ///
    /// # Errors
    /// [`RaftError::Corrupted`] if the bytes are no mark.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RaftError> {
        let message = MarkMessage::decode(bytes)
            .map_err(|error| RaftError::Corrupted(format!("a mark does not parse: {error}")))?;
        let membership = decode_membership(&message.membership)?;
        let membership_id = message.membership_position.map(|position| log_id(position.into()));
        Ok(Self {
            position: message.position.into(),
            membership: Arc::new(StoredMembership::new(membership_id, membership)),
        })
    }

    pub(crate) fn position(&self) -> Position {
        self.position
    }

    pub(crate) fn membership(&self) -> &RaftStoredMembership {
        &self.membership
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_comes_back_from_its_bytes() {
        let members =
            BTreeMap::from([(3, Member { node: NodeId(30) }), (4, Member { node: NodeId(40) })]);
        let membership = Membership::new(vec![BTreeSet::from([3])], members).unwrap();
        let at = Position { term: 2, leader: 3, index: 9 };
        let stored = Arc::new(StoredMembership::new(Some(log_id(at)), membership));
        let mark = Mark::new(Position { index: 12, ..at }, stored);
        let bytes = mark.to_bytes();
        // Kept beside the files of every partition: the bytes never change.
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "0a0608021003180c12060802100318091a110a030a010312040803101e120408041028");
        let back = Mark::from_bytes(&bytes).unwrap();
        assert_eq!(back, mark);
        assert_eq!(back.index(), 12);
        assert_eq!(back.members()[&ReplicaId(4)], NodeId(40));
        assert!(Mark::from_bytes(b"\xff\xff").is_err());
    }

    #[test]
    fn a_childs_mark_has_the_same_place_and_its_own_members_or_is_refused() {
        let on = |pairs: &[(u64, u64)]| -> BTreeMap<u64, Member> {
            pairs.iter().map(|(replica, node)| (*replica, Member { node: NodeId(*node) })).collect()
        };
        let at = Position { term: 2, leader: 3, index: 9 };
        let mark_of = |voters: Vec<BTreeSet<u64>>, members: BTreeMap<u64, Member>| {
            let membership = Membership::new(voters, members).unwrap();
            let stored = StoredMembership::new(Some(log_id(at)), membership);
            Mark::new(Position { index: 12, ..at }, Arc::new(stored))
        };
        let wanted = BTreeMap::from([(NodeId(30), ReplicaId(5)), (NodeId(40), ReplicaId(6))]);
        let both = BTreeSet::from([3, 4]);
        let mark = mark_of(vec![both.clone()], on(&[(3, 30), (4, 40)]));
        let child = mark.child(&wanted, None).unwrap();
        assert_eq!(child.position(), Position { term: 2, leader: 5, index: 12 });
        let expected = BTreeMap::from([(ReplicaId(5), NodeId(30)), (ReplicaId(6), NodeId(40))]);
        assert_eq!(child.members(), expected);
        let led = mark.child(&wanted, Some(NodeId(40))).unwrap();
        assert_eq!(led.position(), Position { term: 2, leader: 6, index: 12 });
        assert_eq!(led.members(), expected);
        assert!(mark.child(&wanted, Some(NodeId(50))).is_none(), "no member");
        assert_eq!(raft_entry(child.seed()).unwrap().log_id, log_id(child.position()));
        for (voters, members) in [
            (vec![BTreeSet::from([3])], on(&[(3, 30), (4, 40)])),
            (vec![both.clone(), BTreeSet::from([3])], on(&[(3, 30), (4, 40)])),
            (vec![both], on(&[(3, 30), (4, 41)])),
            (vec![BTreeSet::from([4])], on(&[(4, 40)])),
            (vec![BTreeSet::from([3, 4, 7])], on(&[(3, 30), (4, 40), (7, 70)])),
        ] {
            assert!(mark_of(voters.clone(), members).child(&wanted, None).is_none(), "{voters:?}");
        }
    }

    #[test]
    fn entries_of_every_kind_come_back() {
        let at = Position { term: 2, leader: 3, index: 9 };
        let membership = Membership::new_with_defaults(vec![BTreeSet::from([3])], []);
        for payload in [
            EntryPayload::Blank,
            EntryPayload::Normal(Command(Bytes::from_static(b"rows"))),
            EntryPayload::Membership(membership),
        ] {
            let entry = RaftEntryType::new(log_id(at), payload);
            assert_eq!(raft_entry(stored_entry(entry.clone())).unwrap(), entry);
        }
    }
}

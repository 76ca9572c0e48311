//! The requests that a partition has accepted recently, so that a repeated one takes effect once: writes, and the last
//! order that changed its range; whether the partition is frozen; the partitions that were split off from it; the
//! captures of its changes for copies (`capture.rs`); the keys of the newest writes, while conditions are in use
//! (`tracked.rs`); and, if it is a partition of a copy, the rows that it took.
//!
//! Part of the replicated state: every replica sees the same requests in the same order. It is saved with each sealed
//! memtable and read back at start.
//!
//! A partition cannot remember every request. For each client it keeps the highest sequence number that it has
//! forgotten: a client numbers its requests, so one that is not remembered and lies below may have been accepted or
//! not. It is refused. The number of remembered requests therefore decides how late a repeated request still gets its
//! answer, and never whether it takes effect twice.
//!
//! Invariants:
//! - the newest [`REQUESTS_MAX`] write requests are remembered, and at most twice as many; the oldest are forgotten
//!   first;
//! - a request that takes effect was never accepted before, as long as no more than [`CLIENTS_MAX`] clients are active;
//! - the rows of each source partition are taken in the order of their positions, each once.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::OnceLock;

use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use partita_engine::Origin;
use partita_proto::id::{Epoch, NodeId, PartitionId, ReplicaId, SchemaVersion, TableId};
use partita_proto::key::Keys;
use partita_proto::materialized::{Capture, CaptureOrder, Position, Ship};
use partita_proto::range::TypedRange;
use partita_proto::reshape::{Freeze, Reshape, Split};
use partita_proto::service::{Condition, PartitionSpec, RequestId, WriteKind};
use partita_proto::wire::Wire;
use partita_raft::planted::{self, Plant};
use prost::Message;

use crate::capture::{Captures, StoredCapture, Tail};
use crate::tracked::{StoredTracked, Tracked};

/// Minimum number of requests that a partition remembers. A frontend gives up on a write after half a minute; at 2,000
/// writes a second that is 60,000. About 3 MiB of memory when full.
pub const REQUESTS_MAX: usize = 65_536;
/// Maximum number of requests: after absorbing its neighbour a partition keeps the requests of both, so that no client
/// loses its answer, and shrinks to the normal number with later requests.
const JOINED_MAX: usize = 2 * REQUESTS_MAX;
/// Maximum number of clients whose forgotten requests are tracked; a frontend is one client.
const CLIENTS_MAX: usize = 1024;
/// Maximum number of remembered splits: more than a replica misses while it lags behind. About 200 bytes each.
const CHILDREN_MAX: usize = 64;

/// Status of an incoming request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// The request, or one of which it is a part, took effect at this index.
    Taken(u64),
    /// The request was never accepted.
    New,
    /// The request may have been accepted and forgotten.
    Perhaps,
}

/// Status of incoming rows of a source partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shipping {
    /// The rows were never taken, and take effect now.
    Take,
    /// All of the rows were taken before.
    Taken,
    /// The rows up to this position were taken before, and those after it were not.
    Ahead(Position),
}

/// The remembered requests of one partition.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    /// Requests in order of acceptance, with the index at which each took effect.
    order: VecDeque<(RequestId, u64)>,
    index_of: HashMap<RequestId, u64>,
    forgotten: Forgotten,
    /// Cached encoding of the requests: a split encodes them three times while writes wait.
    listed: OnceLock<Bytes>,
    frozen: bool,
    /// The last order that changed the partition's range, and its index.
    last: Option<(Reshape, u64)>,
    /// The newest partitions that were split off, oldest first.
    children: Vec<Child>,
    captures: Captures,
    /// Position up to which the rows of each source partition were taken.
    ships: BTreeMap<PartitionId, Position>,
    /// True if the partition takes no rows of a source any more: its table took the place of that source.
    detached: bool,
    /// Index of the last entry that changed rows; 0 if none did since this is recorded.
    last_change: u64,
    /// Keys of the newest writes; `None` while no conditions are in use.
    tracked: Option<Tracked>,
}

/// A partition that was split off. Each replica of the parent makes the child's replica on its node by applying the
/// split; one that installs a state from after the split makes it empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Child {
    /// The order.
    pub(crate) split: Split,
    /// Index of the order in the parent's log.
    pub(crate) index: u64,
    /// Range of the child.
    pub(crate) range: TypedRange,
    /// Replicas of the parent at the split, by node.
    pub(crate) parents: BTreeMap<NodeId, ReplicaId>,
}

impl Child {
    /// The parent and the index of the split.
    pub(crate) fn origin(&self) -> Origin {
        Origin { parent: self.split.partition, index: self.index }
    }

    /// The child's replica that a replica of the parent makes; `None` if it was no member at the split.
    fn made_by(&self, parent: ReplicaId) -> Option<ReplicaId> {
        let mut parents = self.parents.iter();
        let (node, _) = parents.find(|(_, replica)| **replica == parent)?;
        self.split.replicas.get(node).copied()
    }

    /// Specification of a replica that begins empty. `parent`: specification of the parent after the split.
    pub(crate) fn empty(&self, replica: ReplicaId, parent: &PartitionSpec) -> PartitionSpec {
        let members = self.split.replicas.iter().map(|(node, replica)| (*replica, *node));
        PartitionSpec {
            partition: self.split.child,
            epoch: self.split.epoch.next(),
            replica,
            members: members.collect(),
            range: self.range.clone(),
            join: true,
            ..PartitionSpec::clone(parent)
        }
    }

    fn stored(&self) -> StoredChild {
        StoredChild {
            split: Reshape::Split(self.split.clone()).encode_wire(),
            index: self.index,
            range: self.range.encode_wire(),
            parents: self.parents.iter().map(|(node, replica)| (node.0, replica.0)).collect(),
        }
    }

    fn from_stored(stored: StoredChild) -> Option<Self> {
        let Reshape::Split(split) = Reshape::decode_wire(stored.split).ok()? else { return None };
        let parents = stored.parents.into_iter();
        Some(Self {
            split,
            index: stored.index,
            range: TypedRange::decode_wire(stored.range).ok()?,
            parents: parents.map(|(node, replica)| (NodeId(node), ReplicaId(replica))).collect(),
        })
    }
}

/// For each client its forgotten request with the highest sequence number. The client whose request was forgotten last
/// comes last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Forgotten(Vec<RequestId>);

impl Forgotten {
    fn add(&mut self, id: RequestId) {
        // Active clients are at the end.
        let position = self.0.iter().rposition(|request| request.client == id.client);
        let previous = position.map(|position| self.0.remove(position).sequence);
        self.0.push(RequestId { sequence: previous.unwrap_or_default().max(id.sequence), ..id });
        if self.0.len() > CLIENTS_MAX {
            self.0.remove(0);
        }
    }

    fn reaches(&self, id: RequestId) -> bool {
        let last = self.0.iter().rfind(|request| request.client == id.client);
        last.is_some_and(|last| id.sequence <= last.sequence)
    }
}

/// The stored form: three parallel lists, oldest first. Sequences and indexes are differences to the previous value, so
/// that most take one byte.
#[derive(Clone, PartialEq, Message)]
struct Stored {
    #[prost(fixed64, repeated, tag = "1")]
    clients: Vec<u64>,
    #[prost(uint32, repeated, tag = "2")]
    client: Vec<u32>,
    #[prost(sint64, repeated, tag = "3")]
    sequence: Vec<i64>,
    #[prost(sint64, repeated, tag = "4")]
    index: Vec<i64>,
    #[prost(bool, tag = "5")]
    frozen: bool,
    /// A [`Reshape`].
    #[prost(bytes = "bytes", optional, tag = "6")]
    last: Option<Bytes>,
    #[prost(uint64, tag = "7")]
    last_index: u64,
    /// Two parallel lists: the last forgotten request of each client.
    #[prost(fixed64, repeated, tag = "8")]
    forgotten_clients: Vec<u64>,
    #[prost(uint64, repeated, tag = "9")]
    forgotten_sequences: Vec<u64>,
    #[prost(message, repeated, tag = "10")]
    children: Vec<StoredChild>,
    #[prost(message, repeated, tag = "11")]
    captures: Vec<StoredCapture>,
    #[prost(message, repeated, tag = "12")]
    ships: Vec<StoredShip>,
    #[prost(uint64, tag = "13")]
    last_change: u64,
    #[prost(bool, tag = "14")]
    detached: bool,
    #[prost(message, optional, tag = "15")]
    tracked: Option<StoredTracked>,
}

/// The stored form of the position up to which the rows of a source partition were taken.
#[derive(Clone, PartialEq, Message)]
struct StoredShip {
    #[prost(uint64, tag = "1")]
    source: u64,
    #[prost(uint64, tag = "2")]
    index: u64,
    #[prost(uint64, tag = "3")]
    part: u64,
}

/// The stored form of a [`Child`].
#[derive(Clone, PartialEq, Message)]
struct StoredChild {
    /// A [`Reshape`].
    #[prost(bytes = "bytes", tag = "1")]
    split: Bytes,
    #[prost(uint64, tag = "2")]
    index: u64,
    /// A [`TypedRange`].
    #[prost(bytes = "bytes", tag = "3")]
    range: Bytes,
    #[prost(btree_map = "uint64, uint64", tag = "4")]
    parents: BTreeMap<u64, u64>,
}

impl Requests {
    /// Status of a request. `earlier`: identities under which parts of it may have been sent before, together with
    /// others.
    pub fn known(&self, id: RequestId, earlier: &[RequestId]) -> Known {
        if planted::is(Plant::ForgetWrites) {
            return Known::New;
        }
        let mut ids = std::iter::once(&id).chain(earlier);
        if let Some(index) = ids.clone().find_map(|id| self.index_of.get(id)) {
            return Known::Taken(*index);
        }
        if ids.any(|id| self.forgotten.reaches(*id)) { Known::Perhaps } else { Known::New }
    }

    /// Remembers that a request took effect at an index.
    pub fn insert(&mut self, id: RequestId, index: u64) {
        self.listed.take();
        if let Entry::Vacant(new) = self.index_of.entry(id) {
            new.insert(index);
            self.order.push_back((id, index));
        }
        // Forget one request for each new one; two while a neighbour's requests are kept too.
        for _ in 0..2 {
            if self.order.len() > REQUESTS_MAX
                && let Some((oldest, _)) = self.order.pop_front()
            {
                self.index_of.remove(&oldest);
                self.forgotten.add(oldest);
            }
        }
    }

    /// True if the partition refuses writes and reads, because a neighbour is to absorb it.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// The index at which an order took effect, if it is the last one that did.
    pub fn reshaped_by(&self, order: &Reshape) -> Option<u64> {
        self.last.as_ref().filter(|(last, _)| last.is_same(order)).map(|(_, index)| *index)
    }

    /// Records that an order took effect at an index.
    pub fn record_reshape(&mut self, order: &Reshape, index: u64) {
        self.frozen = freezes(order);
        self.last = Some((order.clone(), index));
        // Conditions name the epoch before.
        self.tracked = None;
    }

    /// True if the keys of writes are kept.
    pub(crate) fn tracks(&self) -> bool {
        self.tracked.is_some()
    }

    /// Keeps the keys of the writes after an entry, if that has not begun before.
    pub(crate) fn track(&mut self, index: u64) {
        self.tracked.get_or_insert_with(|| Tracked::since(index)).used();
    }

    /// Notes that the form of keys has changed, or all rows are gone.
    pub(crate) fn forget_keys(&mut self, index: u64) {
        if self.tracked.is_some() {
            self.tracked = Some(Tracked::since(index));
        }
    }

    /// Notes the keys of rows that an entry wrote without a condition.
    pub(crate) fn wrote(&mut self, index: u64, keys: &Keys) {
        let Some(tracked) = &mut self.tracked else { return };
        tracked.plain(index, keys.iter());
        if !tracked.is_used() {
            self.tracked = None;
        }
    }

    /// True if a condition of a write holds for some keys; then notes the keys of its rows. `epoch` and `schema` are
    /// those of the partition.
    pub(crate) fn wrote_if(
        &mut self,
        index: u64,
        (epoch, schema): (Epoch, SchemaVersion),
        condition: &Condition,
        (conditional, keys): (&Keys, &Keys),
    ) -> bool {
        let Some(tracked) = &mut self.tracked else { return false };
        tracked.used();
        let is_current = condition.epoch == epoch && condition.schema >= schema;
        let holds = planted::is(Plant::LoseUpdates)
            || is_current && tracked.holds(condition, conditional.iter());
        if holds {
            tracked.conditional(index, condition, keys.iter());
        }
        holds
    }

    /// Records that a partition was split off.
    pub(crate) fn add_child(&mut self, child: Child) {
        self.children.retain(|known| known.split.child != child.split.child);
        self.children.push(child);
        let surplus = self.children.len().saturating_sub(CHILDREN_MAX);
        self.children.drain(..surplus);
    }

    /// Children that a replica of this partition never splits off, because it has applied the log up to `applied` and
    /// installs this state instead of the rest; each with the child's replica that it would have made.
    pub(crate) fn skipped(&self, replica: ReplicaId, applied: u64) -> Vec<(Child, ReplicaId)> {
        let later = self.children.iter().filter(|child| child.index > applied);
        later.filter_map(|child| Some((child.clone(), child.made_by(replica)?))).collect()
    }

    /// Takes no rows of a source from now on: those that may still come were taken before.
    fn detach(&mut self) {
        self.ships.clear();
        self.detached = true;
    }

    /// Decides whether rows of a source partition take effect, and remembers that they did.
    pub(crate) fn ship(&mut self, ship: &Ship) -> Shipping {
        if self.detached {
            return Shipping::Taken;
        }
        let stored = self.ships.entry(ship.source).or_default();
        if *stored >= ship.to {
            Shipping::Taken
        } else if *stored <= ship.from {
            *stored = ship.to;
            Shipping::Take
        } else {
            Shipping::Ahead(*stored)
        }
    }

    /// The captures of the partition's changes.
    pub(crate) fn captures(&self) -> &Captures {
        &self.captures
    }

    /// Index of the last entry that changed rows.
    pub(crate) fn last_change(&self) -> u64 {
        self.last_change
    }

    /// True if copies depend on the positions of this partition's changes, or this partition depends on the positions
    /// of a source's changes. Then it cannot be merged with a neighbour.
    pub(crate) fn is_bound(&self) -> bool {
        !self.captures.is_empty() || !self.ships.is_empty()
    }

    /// True if the partition's current rows and its later changes are all that the copy needs: the capture began in
    /// this partition, none of its changes are in the copy, and no rows have left the partition since.
    pub(crate) fn may_fill(&self, copy: TableId) -> bool {
        self.captures.get(copy).is_some_and(|capture| {
            let is_new = capture.begin > 0 && !capture.sync && capture.shipped() == 0;
            is_new && self.children.iter().all(|child| child.index < capture.begin)
        })
    }

    /// Notes the rows of an entry that took effect.
    pub(crate) fn change(
        &mut self,
        tail: &mut Tail,
        index: u64,
        writes: &[(WriteKind, RecordBatch)],
    ) {
        if writes.iter().all(|(_, rows)| rows.num_rows() == 0) {
            return;
        }
        self.last_change = index;
        if !self.captures.is_empty() {
            tail.push(index, writes);
        }
    }

    /// Notes that all rows were removed, with which all captures end, and what was taken counts no longer.
    pub(crate) fn truncate(&mut self, tail: &mut Tail, index: u64) {
        self.last_change = index;
        self.forget_keys(index);
        self.captures = Captures::default();
        if !self.ships.is_empty() {
            self.detach();
        }
        self.captures.trim(tail);
    }

    /// Applies an order about a capture from the log; false if it needs one that does not exist.
    pub(crate) fn capture(&mut self, tail: &mut Tail, order: CaptureOrder, index: u64) -> bool {
        if order.capture == Capture::Detach {
            self.detach();
            return true;
        }
        if self.captures.is_empty() {
            // Nothing was kept until now.
            tail.reopen(index, self.last_change);
        }
        let applied = self.captures.apply(order, index);
        self.captures.trim(tail);
        applied
    }

    /// Notes that a copy has all changes up to an index, before the log has it; false without a capture for the copy.
    pub(crate) fn report(&mut self, tail: &mut Tail, copy: TableId, shipped: u64) -> bool {
        let reported = self.captures.report(copy, shipped);
        self.captures.trim(tail);
        reported
    }

    fn stored_children(&self) -> Vec<StoredChild> {
        self.children.iter().map(Child::stored).collect()
    }

    fn stored_ships(&self) -> Vec<StoredShip> {
        let stored = |(source, position): (&PartitionId, &Position)| StoredShip {
            source: source.0,
            index: position.index,
            part: position.part,
        };
        self.ships.iter().map(stored).collect()
    }

    /// The stored form of everything besides the requests and the last order.
    fn stored_rest(&self) -> Stored {
        Stored {
            children: self.stored_children(),
            captures: self.captures.stored(),
            ships: self.stored_ships(),
            last_change: self.last_change,
            detached: self.detached,
            ..Stored::default()
        }
    }

    /// Remembers the write requests of another partition too. It is unknown which of two partitions' requests are
    /// older, so the two lists are interleaved, from the newest request of each to the oldest.
    pub fn join(&mut self, neighbour: &Self) {
        let newest = |requests: &Self| -> Vec<(RequestId, u64)> {
            requests.order.iter().rev().copied().collect()
        };
        let (local, remote) = (newest(self), newest(neighbour));
        let longest = local.len().max(remote.len());
        (self.order, self.index_of, self.listed) = <_>::default();
        self.detached |= neighbour.detached;
        neighbour.forgotten.0.iter().for_each(|id| self.forgotten.add(*id));
        for (id, index) in (0..longest)
            .flat_map(|position| local.get(position).into_iter().chain(remote.get(position)))
        {
            if self.index_of.contains_key(id) {
                continue;
            }
            if self.order.len() < JOINED_MAX {
                self.order.push_front((*id, *index));
                self.index_of.insert(*id, *index);
            } else {
                self.forgotten.add(*id);
            }
        }
    }

    /// Number of remembered requests.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// True if no request is remembered.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Encodes the requests.
    pub fn encode(&self) -> Bytes {
        let (last, last_index) = match &self.last {
            Some((order, index)) => (Some(order.encode_wire()), *index),
            None => (None, 0),
        };
        let frozen = self.frozen;
        let tracked = self.tracked.as_ref().map(Tracked::stored);
        self.encode_onto(Stored { frozen, last, last_index, tracked, ..self.stored_rest() })
    }

    /// Encodes the requests as they will be once an order has taken effect at an index.
    pub fn encode_after(&self, order: &Reshape, index: u64) -> Bytes {
        let (frozen, last) = (freezes(order), Some(order.encode_wire()));
        self.encode_onto(Stored { frozen, last, last_index: index, ..self.stored_rest() })
    }

    /// Encodes the state for a partition that is split off from `parent` by the entry of this index: all write requests
    /// and rows that were taken, and the captures, whose changes follow the parent's.
    pub fn encode_for_child(&self, parent: PartitionId, index: u64) -> Bytes {
        let captures = self.captures.of_child(parent, index).stored();
        let (ships, detached) = (self.stored_ships(), self.detached);
        self.encode_onto(Stored { captures, ships, detached, ..Stored::default() })
    }

    /// Encodes the write requests, then `rest`: a decoder merges concatenated protobuf messages into one.
    fn encode_onto(&self, rest: Stored) -> Bytes {
        let listed = self.listed.get_or_init(|| self.encode_list());
        let mut encoded = Vec::with_capacity(listed.len() + rest.encoded_len());
        encoded.extend_from_slice(listed);
        encoded.extend(rest.encode_to_vec());
        encoded.into()
    }

    fn encode_list(&self) -> Bytes {
        let mut stored = Stored::default();
        let mut clients: HashMap<u64, u32> = HashMap::new();
        // Most requests come from the same client as the previous one, which saves a look-up.
        let mut previous = None;
        let (mut previous_sequence, mut previous_index) = (0i64, 0i64);
        for (id, index) in &self.order {
            // Position of the client in `stored.clients`.
            let position = match previous {
                Some((previous_client, position)) if previous_client == id.client => position,
                _ => {
                    let next = u32::try_from(clients.len()).unwrap_or(u32::MAX);
                    *clients.entry(id.client).or_insert_with(|| {
                        stored.clients.push(id.client);
                        next
                    })
                }
            };
            previous = Some((id.client, position));
            stored.client.push(position);
            let sequence = id.sequence.cast_signed();
            stored.sequence.push(sequence.wrapping_sub(previous_sequence));
            previous_sequence = sequence;
            let index = index.cast_signed();
            stored.index.push(index.wrapping_sub(previous_index));
            previous_index = index;
        }
        stored.forgotten_clients = self.forgotten.0.iter().map(|id| id.client).collect();
        stored.forgotten_sequences = self.forgotten.0.iter().map(|id| id.sequence).collect();
        stored.encode_to_vec().into()
    }

    /// Decodes the requests; `None` if the bytes are invalid.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let stored = Stored::decode(bytes).ok()?;
        let same = |length: usize, expected: usize| (length == expected).then_some(());
        same(stored.client.len(), stored.sequence.len())?;
        same(stored.client.len(), stored.index.len())?;
        same(stored.forgotten_clients.len(), stored.forgotten_sequences.len())?;
        let forgotten = stored.forgotten_clients.iter().zip(&stored.forgotten_sequences);
        let forgotten = forgotten.map(|(client, sequence)| (*client, *sequence));
        let forgotten = forgotten.map(|(client, sequence)| RequestId { client, sequence });
        let forgotten = Forgotten(forgotten.collect());
        let last = stored.last.map(Reshape::decode_wire).transpose().ok()?;
        let last = last.map(|order| (order, stored.last_index));
        let children =
            stored.children.into_iter().map(Child::from_stored).collect::<Option<Vec<_>>>()?;
        let ship = |ship: StoredShip| {
            (PartitionId(ship.source), Position { index: ship.index, part: ship.part })
        };
        let mut requests = Self {
            forgotten,
            frozen: stored.frozen,
            last,
            children,
            captures: Captures::from_stored(stored.captures),
            ships: stored.ships.into_iter().map(ship).collect(),
            last_change: stored.last_change,
            detached: stored.detached,
            tracked: match stored.tracked {
                Some(tracked) => Some(Tracked::from_stored(tracked)?),
                None => None,
            },
            ..Self::default()
        };
        let (mut sequence, mut index) = (0i64, 0i64);
        for ((client, delta), step) in stored.client.iter().zip(&stored.sequence).zip(&stored.index)
        {
            sequence = sequence.wrapping_add(*delta);
            index = index.wrapping_add(*step);
            let client = *stored.clients.get(usize::try_from(*client).ok()?)?;
            let id = RequestId { client, sequence: sequence.cast_unsigned() };
            requests.order.push_back((id, index.cast_unsigned()));
            requests.index_of.insert(id, index.cast_unsigned());
        }
        Some(requests)
    }
}

/// True if the order freezes the partition.
fn freezes(order: &Reshape) -> bool {
    matches!(order, Reshape::Freeze(Freeze { on: true, .. }))
}

#[cfg(test)]
mod tests {
    use partita_proto::range::Bound;

    use super::*;

    fn id(client: u64, sequence: u64) -> RequestId {
        RequestId { client, sequence }
    }

    const MOST: u64 = REQUESTS_MAX as u64;

    /// The requests of a partition that accepted these sequence numbers of one client, at indexes from 100 on.
    fn of(client: u64, sequences: std::ops::Range<u64>) -> Requests {
        let mut requests = Requests::default();
        sequences.for_each(|sequence| requests.insert(id(client, sequence), sequence + 100));
        requests
    }

    /// Kept beside the files of every partition: the bytes never change.
    #[test]
    fn requests_never_change_their_bytes() {
        let mut requests = Requests::default();
        for (client, sequence, index) in [(0x0102_0304_0506_0708, 300, 10), (2, 1, 12), (2, 9, 40)]
        {
            requests.insert(id(client, sequence), index);
        }
        requests.forgotten.add(id(3, 77));
        let freeze = Freeze { partition: PartitionId(7), epoch: Epoch(2), on: true };
        requests.record_reshape(&Reshape::Freeze(freeze), 41);
        let hex = |bytes: Bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(
            hex(requests.encode()),
            "0a100807060504030201020000000000000012030001011a05d804d504102203140438420803000000000000004a014d2801320812060807100218013829"
        );
        assert_eq!(
            hex(requests.encode_for_child(PartitionId(7), 42)),
            "0a100807060504030201020000000000000012030001011a05d804d504102203140438420803000000000000004a014d"
        );
        assert_eq!(Requests::decode(&requests.encode()).unwrap().encode(), requests.encode());
    }

    #[test]
    fn conditions_are_decided_by_the_keys_since_the_first_scan_for_an_update() {
        let one = |key: &str| Keys::from_encoded([key]);
        let schema = SchemaVersion(4);
        let read_at =
            |index| Condition { epoch: Epoch(2), index, bulk: None, schema, by_row: false };
        let now = (Epoch(2), schema);
        let mut requests = Requests::default();
        assert!(
            !requests.wrote_if(5, now, &read_at(4), (&one("a"), &one("a"))),
            "nothing is tracked"
        );
        requests.track(6);
        requests.wrote(7, &one("a"));
        assert!(!requests.wrote_if(8, now, &read_at(6), (&one("a"), &one("a"))));
        assert!(requests.wrote_if(8, now, &read_at(6), (&one("b"), &one("b"))));
        assert!(
            !requests.wrote_if(9, now, &read_at(7), (&one("b"), &one("b"))),
            "written by entry 8"
        );
        let split = (Epoch(3), schema);
        assert!(
            !requests.wrote_if(9, split, &read_at(8), (&one("c"), &one("c"))),
            "of an earlier range"
        );
        let altered = (Epoch(2), schema.next());
        assert!(
            !requests.wrote_if(9, altered, &read_at(8), (&one("c"), &one("c"))),
            "lacks a column"
        );
        let mut restarted = Requests::decode(&requests.encode()).unwrap();
        assert!(!restarted.wrote_if(9, now, &read_at(7), (&one("b"), &one("b"))));
        assert!(restarted.wrote_if(9, now, &read_at(8), (&one("b"), &one("b"))));
        // A scan for an update does not begin anew.
        requests.track(10);
        assert!(requests.wrote_if(11, now, &read_at(8), (&one("b"), &one("b"))));
        requests.forget_keys(12);
        assert!(!requests.wrote_if(13, now, &read_at(11), (&one("d"), &one("d"))));
        assert!(requests.wrote_if(13, now, &read_at(12), (&one("d"), &one("d"))));
    }

    #[test]
    fn a_change_of_the_range_ends_tracking_in_both_halves() {
        let mut requests = Requests::default();
        requests.track(1);
        let order = Reshape::Split(child(8, 20).split);
        let parent = Requests::decode(&requests.encode_after(&order, 20)).unwrap();
        let half = requests.encode_for_child(PartitionId(7), 20);
        assert!(!parent.tracks() && !Requests::decode(&half).unwrap().tracks());
        assert!(requests.tracks());
        requests.record_reshape(&order, 20);
        assert!(!requests.tracks());
    }

    /// A split of partition 7 at an index, on nodes 1 and 2, of its replicas 71 and 72.
    fn child(partition: u64, index: u64) -> Child {
        let nodes = [1, 2];
        let child = PartitionId(partition);
        let replicas = nodes.map(|node| (NodeId(node), ReplicaId(partition * 10 + node)));
        let at = Bound::default();
        let split = Split {
            partition: PartitionId(7),
            epoch: Epoch(2),
            at,
            child,
            replicas: BTreeMap::from(replicas),
            leader: None,
        };
        let parents = BTreeMap::from(nodes.map(|node| (NodeId(node), ReplicaId(70 + node))));
        Child { split, index, range: TypedRange::default(), parents }
    }

    #[test]
    fn a_replica_makes_the_children_that_its_next_state_skips() {
        let mut requests = Requests::default();
        requests.add_child(child(8, 20));
        requests.add_child(child(9, 30));
        let skipped = |replica, applied| -> Vec<(u64, u64)> {
            let skipped = requests.skipped(ReplicaId(replica), applied).into_iter();
            skipped.map(|(child, replica)| (child.split.child.0, replica.0)).collect()
        };
        assert_eq!(skipped(71, 19), [(8, 81), (9, 91)]);
        assert_eq!(skipped(72, 20), [(9, 92)]);
        assert_eq!(skipped(71, 30), []);
        // A replica that came later, on whichever node: those at the split may have made theirs.
        assert_eq!(skipped(73, 0), []);
    }

    #[test]
    fn children_are_remembered_with_the_requests_and_not_by_themselves() {
        let mut requests = Requests::default();
        requests.insert(id(1, 5), 10);
        let count = CHILDREN_MAX as u64 + 3;
        for number in 0..count {
            requests.add_child(child(100 + number, number));
        }
        requests.add_child(child(100 + count - 1, count - 1));
        let order = Reshape::Split(child(100, 0).split);
        requests.record_reshape(&order, 0);
        assert_eq!(requests.children.len(), CHILDREN_MAX);
        assert_eq!(requests.children[0], child(103, 3));
        let again = Requests::decode(&requests.encode()).unwrap();
        assert_eq!(again.children, requests.children);
        assert_eq!(requests.encode_after(&order, 0), requests.encode());
        let of_child = Requests::decode(&requests.encode_for_child(PartitionId(7), 42)).unwrap();
        assert_eq!(of_child.children, []);
        // A partition that absorbs its neighbour keeps its own: replicas of the neighbour miss nothing any more.
        let mut owner = Requests::default();
        owner.add_child(child(50, 5));
        owner.join(&requests);
        assert_eq!(owner.children, [child(50, 5)]);
    }

    /// Kept beside the files of every partition: the bytes never change.
    #[test]
    fn children_never_change_their_bytes() {
        let mut requests = Requests::default();
        requests.add_child(child(8, 20));
        let stored = requests.encode();
        let hex: String = stored.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "522c0a160a14080710021a0020082a04085110012a040852100210141a040a001200220408011047220408021048"
        );
        assert_eq!(Requests::decode(&stored).unwrap().children, [child(8, 20)]);
    }

    /// Kept beside the files of every partition: the bytes never change.
    #[test]
    fn captures_and_taken_rows_never_change_their_bytes() {
        let mut requests = Requests::default();
        let mut tail = Tail::new(0, 0, 1 << 20);
        let copy = TableId(5);
        for (capture, index) in
            [(Capture::Begin, 10), (Capture::Sync, 11), (Capture::Shipped(12), 13)]
        {
            assert!(requests.capture(&mut tail, CaptureOrder { copy, capture }, index));
        }
        // Not of the log.
        assert!(requests.report(&mut tail, copy, 14));
        let position = Position { index: 300, part: 2 };
        let ship = Ship { source: PartitionId(3), from: Position::default(), to: position };
        assert_eq!(requests.ship(&ship), Shipping::Take);
        requests.last_change = 15;
        let hex = |bytes: Bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let stored = requests.encode();
        assert_eq!(hex(stored.clone()), "5a080805100a180c20016207080310ac021802680f");
        let again = Requests::decode(&stored).unwrap();
        assert_eq!(again.encode(), stored);
        assert_eq!((again.captures().owing(), again.last_change()), (vec![(copy, 12)], 15));
        let of_child = requests.encode_for_child(PartitionId(7), 42);
        assert_eq!(hex(of_child.clone()), "5a08080520012807302a6207080310ac021802");
        let mut child = Requests::decode(&of_child).unwrap();
        let capture = *child.captures().get(copy).unwrap();
        assert_eq!((capture.begin, capture.floor(), capture.sync), (0, 0, true));
        assert_eq!(capture.parent(), Some((PartitionId(7), 42)));
        assert_eq!((child.last_change(), child.ship(&ship)), (0, Shipping::Taken));
    }

    #[test]
    fn a_partition_that_was_one_of_a_copy_takes_no_late_rows_and_may_be_merged() {
        let (mut requests, mut tail) = (Requests::default(), Tail::new(0, 0, 1 << 20));
        let to = Position { index: 4, part: 1 };
        let ship = Ship { source: PartitionId(1), from: Position::default(), to };
        assert_eq!(requests.ship(&ship), Shipping::Take);
        assert!(requests.is_bound());
        let order = CaptureOrder { copy: TableId(5), capture: Capture::Detach };
        assert!(requests.capture(&mut tail, order, 9));
        let mut again = Requests::decode(&requests.encode()).unwrap();
        let mut child = Requests::decode(&again.encode_for_child(PartitionId(7), 12)).unwrap();
        for requests in [&mut requests, &mut again, &mut child] {
            assert!(!requests.is_bound());
            assert_eq!(requests.ship(&ship), Shipping::Taken);
        }
    }

    #[test]
    fn rows_of_a_source_are_taken_once_and_in_order() {
        let mut requests = Requests::default();
        let at = |index, part| Position { index, part };
        let mut ship = |source, from, to| {
            let source = PartitionId(source);
            requests.ship(&Ship { source, from, to })
        };
        assert_eq!(ship(1, at(0, 0), at(5, 2)), Shipping::Take);
        assert_eq!(ship(1, at(0, 0), at(5, 2)), Shipping::Taken);
        assert_eq!(ship(1, at(0, 0), at(4, 9)), Shipping::Taken);
        assert_eq!(ship(1, at(5, 1), at(6, 1)), Shipping::Ahead(at(5, 2)));
        assert_eq!(ship(2, at(3, 0), at(4, 0)), Shipping::Take, "of another source");
        assert_eq!(ship(1, at(5, 2), at(6, 1)), Shipping::Take);
        assert_eq!(ship(1, at(9, 0), at(9, 1)), Shipping::Take, "those between are of others");
        assert_eq!(ship(1, at(6, 1), at(9, 1)), Shipping::Taken);
    }

    #[test]
    fn a_copy_is_filled_from_where_its_capture_began_and_only_then() {
        let mut tail = Tail::new(0, 0, 1 << 20);
        let copy = TableId(5);
        let begun = |requests: &mut Requests, tail: &mut Tail, index| {
            let order = CaptureOrder { copy, capture: Capture::Begin };
            assert!(requests.capture(tail, order, index));
        };
        let mut requests = Requests::default();
        assert!(!requests.may_fill(copy));
        requests.add_child(child(8, 20));
        begun(&mut requests, &mut tail, 21);
        assert!(requests.may_fill(copy));
        let inherited = requests.encode_for_child(PartitionId(7), 30);
        assert!(!Requests::decode(&inherited).unwrap().may_fill(copy), "with its parent");
        let mut shipped = requests.clone();
        assert!(shipped.report(&mut tail, copy, 21));
        assert!(!shipped.may_fill(copy));
        // Rows have left with the child.
        requests.add_child(child(9, 30));
        assert!(!requests.may_fill(copy));
        requests.truncate(&mut tail, 31);
        assert!(!requests.is_bound());
        begun(&mut requests, &mut tail, 32);
        assert!(requests.may_fill(copy) && requests.is_bound());
    }

    #[test]
    fn a_remembered_request_gives_the_index_it_took_effect_at() {
        let mut requests = Requests::default();
        requests.insert(id(1, 5), 10);
        assert_eq!(requests.known(id(1, 5), &[]), Known::Taken(10));
        assert_eq!(requests.known(id(1, 6), &[id(1, 5)]), Known::Taken(10));
        assert_eq!(requests.known(id(2, 5), &[id(1, 6)]), Known::New);
    }

    #[test]
    fn the_oldest_requests_are_forgotten_first_and_are_not_taken_for_new_ones() {
        let mut requests = of(1, 0..MOST);
        assert_eq!(requests.known(id(1, 0), &[]), Known::Taken(100));
        // A client's number may be anything, and so may be where it begins to count.
        requests.insert(id(u64::MAX, 7), 5);
        assert_eq!(requests.len(), REQUESTS_MAX);
        assert_eq!(requests.known(id(1, 0), &[]), Known::Perhaps);
        assert_eq!(requests.known(id(1, 1), &[]), Known::Taken(101));
        assert_eq!(requests.known(id(1, MOST), &[]), Known::New);
        assert_eq!(
            requests.known(id(2, 0), &[]),
            Known::New,
            "nothing of this client was forgotten"
        );
        assert_eq!(requests.known(id(1, MOST), &[id(1, 0)]), Known::Perhaps, "a part of it");
        assert_eq!(requests.known(id(1, MOST), &[id(1, 0), id(1, 1)]), Known::Taken(101));
        let again = Requests::decode(&requests.encode()).unwrap();
        assert_eq!(again.known(id(1, 0), &[]), Known::Perhaps);
        let child = Requests::decode(&requests.encode_for_child(PartitionId(7), 42)).unwrap();
        assert_eq!(child.known(id(1, 0), &[]), Known::Perhaps);
    }

    #[test]
    fn how_far_it_was_forgotten_is_known_of_the_clients_that_were_at_work_last() {
        let mut forgotten = Forgotten::default();
        for client in 0..=CLIENTS_MAX as u64 {
            forgotten.add(id(client, 9));
            forgotten.add(id(0, client));
        }
        assert_eq!(forgotten.0.len(), CLIENTS_MAX);
        assert!(!forgotten.reaches(id(1, 0)));
        assert!(forgotten.reaches(id(2, 9)) && !forgotten.reaches(id(2, 10)));
        assert!(forgotten.reaches(id(0, CLIENTS_MAX as u64)));
        forgotten.add(id(0, 1));
        assert!(forgotten.reaches(id(0, CLIENTS_MAX as u64)), "it never goes back");
    }

    #[test]
    fn the_last_order_is_remembered_with_what_came_of_it_and_not_by_a_child() {
        let freeze =
            |on| Reshape::Freeze(Freeze { partition: PartitionId(7), epoch: Epoch(2), on });
        let mut requests = Requests::default();
        requests.insert(id(1, 5), 10);
        let stored = requests.encode_after(&freeze(true), 11);
        requests.record_reshape(&freeze(true), 11);
        assert_eq!(requests.encode(), stored);
        let mut again = Requests::decode(&requests.encode()).unwrap();
        assert_eq!(again.reshaped_by(&freeze(true)), Some(11));
        assert_eq!(again.reshaped_by(&freeze(false)), None);
        assert!(again.is_frozen());
        let child = Requests::decode(&again.encode_for_child(PartitionId(7), 42)).unwrap();
        again.record_reshape(&freeze(false), 12);
        assert_eq!((again.is_frozen(), again.reshaped_by(&freeze(true))), (false, None));
        assert_eq!((child.is_frozen(), child.reshaped_by(&freeze(true))), (false, None));
        assert_eq!(child.known(id(1, 5), &[]), Known::Taken(10));
    }

    #[test]
    fn two_partitions_that_become_one_remember_what_each_would_have_remembered_alone() {
        let mut both = of(1, 0..MOST);
        both.join(&of(2, 0..MOST));
        assert_eq!(both.len(), 2 * REQUESTS_MAX);
        for (sequence, client) in (0..MOST).flat_map(|sequence| [(sequence, 1), (sequence, 2)]) {
            assert_eq!(both.known(id(client, sequence), &[]), Known::Taken(100 + sequence));
        }
        // Decoded requests behave in the same way.
        let mut again = Requests::decode(&both.encode()).unwrap();
        for taken in 1..=MOST {
            let next = id(3, taken);
            both.insert(next, taken);
            again.insert(next, taken);
            for client in [1, 2] {
                assert_eq!(both.known(id(client, taken - 1), &[]), Known::Perhaps);
                if taken < MOST {
                    assert_eq!(both.known(id(client, taken), &[]), Known::Taken(100 + taken));
                }
            }
        }
        assert_eq!(both.len(), REQUESTS_MAX);
        assert_eq!((&both.order, &both.forgotten), (&again.order, &again.forgotten));
    }

    #[test]
    fn what_both_of_two_partitions_took_is_one_request_when_they_become_one() {
        let mut both = of(1, 0..3);
        both.join(&of(1, 0..5));
        assert_eq!(both.len(), 5);
        assert_eq!(both.known(id(1, 4), &[]), Known::Taken(104));
    }

    #[test]
    fn partitions_that_become_one_at_once_forget_no_request_without_knowing_it() {
        let mut all = of(1, 0..MOST);
        for client in 2..=4 {
            all.join(&of(client, 0..MOST));
            assert_eq!(all.len(), 2 * REQUESTS_MAX);
        }
        let mut joined = of(5, 0..MOST + 10);
        all.join(&joined);
        joined.join(&all);
        for requests in [all, joined] {
            for (client, count) in [(1, MOST), (2, MOST), (3, MOST), (4, MOST), (5, MOST + 10)] {
                for sequence in 0..count {
                    assert_ne!(requests.known(id(client, sequence), &[]), Known::New);
                }
                let last = requests.known(id(client, count - 1), &[]);
                assert_eq!(last, Known::Taken(99 + count));
                assert_eq!(requests.known(id(client, count), &[]), Known::New);
            }
        }
    }

    #[test]
    fn the_stored_form_gives_back_what_was_remembered_in_order() {
        let mut requests = Requests::default();
        for (client, sequence, index) in
            [(u64::MAX, 3, 7), (2, u64::MAX, 8), (u64::MAX, 4, 8), (2, 0, u64::MAX)]
        {
            requests.insert(id(client, sequence), index);
        }
        let again = Requests::decode(&requests.encode()).unwrap();
        assert_eq!(again.order, requests.order);
        assert_eq!(again.index_of, requests.index_of);
        assert!(Requests::decode(&[0xff; 7]).is_none());
    }

    #[test]
    fn the_stored_form_is_that_of_now_whenever_somebody_has_asked_before() {
        let mut requests = of(1, 0..3);
        let before = requests.encode();
        assert_eq!(requests.encode(), before);
        requests.insert(id(2, 7), 200);
        let again = Requests::decode(&requests.encode()).unwrap();
        assert_eq!((again.len(), again.known(id(2, 7), &[])), (4, Known::Taken(200)));
        requests.join(&of(3, 0..2));
        let joined = Requests::decode(&requests.encode_for_child(PartitionId(7), 42)).unwrap();
        assert_eq!((joined.len(), joined.known(id(3, 1), &[])), (6, Known::Taken(101)));
        assert_eq!(joined.order, requests.order);
    }
}

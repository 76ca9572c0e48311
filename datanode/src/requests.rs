//! The requests that a partition has accepted recently, so that a repeated one takes effect once: writes, and the last
//! order that changed its range; and whether the partition is frozen.
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
//! - a request that takes effect was never accepted before, as long as no more than [`CLIENTS_MAX`] clients are active.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::OnceLock;

use bytes::Bytes;
use partita_proto::reshape::{Freeze, Reshape};
use partita_proto::service::RequestId;
use partita_proto::wire::Wire;
use prost::Message;

/// Minimum number of requests that a partition remembers. A frontend gives up on a write after half a minute; at 2,000
/// writes a second that is 60,000. About 3 MiB of memory when full.
pub const REQUESTS_MAX: usize = 65_536;
/// Maximum number of requests: after absorbing its neighbour a partition keeps the requests of both, so that no client
/// loses its answer, and shrinks to the normal number with later requests.
const JOINED_MAX: usize = 2 * REQUESTS_MAX;
/// Maximum number of clients whose forgotten requests are tracked; a frontend is one client.
const CLIENTS_MAX: usize = 1024;

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
}

/// For each client its forgotten request with the highest sequence number. The client whose request was forgotten last
/// comes last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Forgotten(Vec<RequestId>);

impl Forgotten {
    fn add(&mut self, id: RequestId) {
        // Active clients are at the end.
        let known = self.0.iter().rposition(|other| other.client == id.client);
        let before = known.map(|at| self.0.remove(at).sequence);
        self.0.push(RequestId { sequence: before.unwrap_or_default().max(id.sequence), ..id });
        if self.0.len() > CLIENTS_MAX {
            self.0.remove(0);
        }
    }

    fn reaches(&self, id: RequestId) -> bool {
        let last = self.0.iter().rfind(|other| other.client == id.client);
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
}

impl Requests {
    /// Status of a request. `earlier`: identities under which parts of it may have been sent before, together with
    /// others.
    pub fn known(&self, id: RequestId, earlier: &[RequestId]) -> Known {
        let mut all = std::iter::once(&id).chain(earlier);
        if let Some(index) = all.clone().find_map(|id| self.index_of.get(id)) {
            return Known::Taken(*index);
        }
        if all.any(|id| self.forgotten.reaches(*id)) { Known::Perhaps } else { Known::New }
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
        self.last.as_ref().filter(|(last, _)| last == order).map(|(_, index)| *index)
    }

    /// Records that an order took effect at an index.
    pub fn took(&mut self, order: &Reshape, index: u64) {
        self.frozen = freezes(order);
        self.last = Some((order.clone(), index));
    }

    /// Remembers the write requests of another partition too. The order between the two partitions' requests is
    /// unknown, so they are interleaved by the number of later requests of each.
    pub fn join(&mut self, other: &Self) {
        let newest =
            |of: &Self| -> Vec<(RequestId, u64)> { of.order.iter().rev().copied().collect() };
        let (own, theirs) = (newest(self), newest(other));
        let most = own.len().max(theirs.len());
        (self.order, self.index_of, self.listed) = <_>::default();
        other.forgotten.0.iter().for_each(|id| self.forgotten.add(*id));
        for (id, index) in (0..most).flat_map(|at| own.get(at).into_iter().chain(theirs.get(at))) {
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
        self.encode_onto(Stored { frozen: self.frozen, last, last_index, ..Stored::default() })
    }

    /// Encodes the requests as they will be once an order has taken effect at an index.
    pub fn encode_after(&self, order: &Reshape, index: u64) -> Bytes {
        let (frozen, last) = (freezes(order), Some(order.encode_wire()));
        self.encode_onto(Stored { frozen, last, last_index: index, ..Stored::default() })
    }

    /// Encodes the state for a partition that is split off: all write requests, and nothing else.
    pub fn encode_for_child(&self) -> Bytes {
        self.encode_onto(Stored::default())
    }

    /// Encodes the write requests, followed by `rest`: concatenated parts of a message are one message.
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
        // Most requests have the client of the previous one.
        let mut before = None;
        let (mut sequence, mut index) = (0i64, 0i64);
        for (id, at) in &self.order {
            let client = match before {
                Some((same, client)) if same == id.client => client,
                _ => {
                    let next = u32::try_from(clients.len()).unwrap_or(u32::MAX);
                    *clients.entry(id.client).or_insert_with(|| {
                        stored.clients.push(id.client);
                        next
                    })
                }
            };
            before = Some((id.client, client));
            stored.client.push(client);
            let this = id.sequence.cast_signed();
            stored.sequence.push(this.wrapping_sub(sequence));
            sequence = this;
            let at = at.cast_signed();
            stored.index.push(at.wrapping_sub(index));
            index = at;
        }
        stored.forgotten_clients = self.forgotten.0.iter().map(|id| id.client).collect();
        stored.forgotten_sequences = self.forgotten.0.iter().map(|id| id.sequence).collect();
        stored.encode_to_vec().into()
    }

    /// Decodes the requests; `None` if the bytes are invalid.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let stored = Stored::decode(bytes).ok()?;
        let same = |one: usize, other: usize| (one == other).then_some(());
        same(stored.client.len(), stored.sequence.len())?;
        same(stored.client.len(), stored.index.len())?;
        same(stored.forgotten_clients.len(), stored.forgotten_sequences.len())?;
        let forgotten = stored.forgotten_clients.iter().zip(&stored.forgotten_sequences);
        let forgotten = forgotten.map(|(client, sequence)| (*client, *sequence));
        let forgotten = forgotten.map(|(client, sequence)| RequestId { client, sequence });
        let forgotten = Forgotten(forgotten.collect());
        let last = stored.last.map(Reshape::decode_wire).transpose().ok()?;
        let last = last.map(|order| (order, stored.last_index));
        let mut requests = Self { forgotten, frozen: stored.frozen, last, ..Self::default() };
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
    use partita_proto::id::{Epoch, PartitionId};

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
        requests.took(&Reshape::Freeze(freeze), 41);
        let hex = |bytes: Bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(
            hex(requests.encode()),
            "0a100807060504030201020000000000000012030001011a05d804d504102203140438420803000000000000004a014d2801320812060807100218013829"
        );
        assert_eq!(
            hex(requests.encode_for_child()),
            "0a100807060504030201020000000000000012030001011a05d804d504102203140438420803000000000000004a014d"
        );
        assert_eq!(Requests::decode(&requests.encode()).unwrap().encode(), requests.encode());
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
        let child = Requests::decode(&requests.encode_for_child()).unwrap();
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
        use partita_proto::id::{Epoch, PartitionId};
        let freeze =
            |on| Reshape::Freeze(Freeze { partition: PartitionId(7), epoch: Epoch(2), on });
        let mut requests = Requests::default();
        requests.insert(id(1, 5), 10);
        let stored = requests.encode_after(&freeze(true), 11);
        requests.took(&freeze(true), 11);
        assert_eq!(requests.encode(), stored);
        let mut again = Requests::decode(&requests.encode()).unwrap();
        assert_eq!(again.reshaped_by(&freeze(true)), Some(11));
        assert_eq!(again.reshaped_by(&freeze(false)), None);
        assert!(again.is_frozen());
        let child = Requests::decode(&again.encode_for_child()).unwrap();
        again.took(&freeze(false), 12);
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
        let joined = Requests::decode(&requests.encode_for_child()).unwrap();
        assert_eq!((joined.len(), joined.known(id(3, 1), &[])), (6, Known::Taken(101)));
        assert_eq!(joined.order, requests.order);
    }
}

//! Which write requests a partition has taken lately, so that one that is sent again takes effect once.
//!
//! Part of the replicated state: every replica sees the same requests in the same order. It is saved
//! with each sealed memtable and read back at start.
//!
//! Invariants:
//! - at most [`REQUESTS_MAX`] requests are remembered; the oldest go first;
//! - a request is remembered if and only if its entry was applied and it is among the newest.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use partita_proto::service::RequestId;
use prost::Message;

/// Requests remembered per partition. A frontend gives up on a write after half a minute; at 2,000
/// proposals a second that is 60,000 requests. About 3 MiB of memory when full.
pub const REQUESTS_MAX: usize = 65_536;

/// The remembered requests of one partition.
#[derive(Debug, Default)]
pub struct Requests {
    order: VecDeque<RequestId>,
    index_of: HashMap<RequestId, u64>,
}

/// The stored form: three parallel lists, oldest first. Sequences and indexes are differences to the
/// value before, so that most take one byte.
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
}

impl Requests {
    /// The index at which a request took effect, if it is remembered.
    pub fn get(&self, id: RequestId) -> Option<u64> {
        self.index_of.get(&id).copied()
    }

    /// Remembers that a request took effect at an index.
    pub fn insert(&mut self, id: RequestId, index: u64) {
        if self.index_of.insert(id, index).is_none() {
            self.order.push_back(id);
        }
        while self.order.len() > REQUESTS_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.index_of.remove(&oldest);
            }
        }
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The stored form.
    pub fn encode(&self) -> Bytes {
        let mut stored = Stored::default();
        let mut clients: HashMap<u64, u32> = HashMap::new();
        let (mut sequence, mut index) = (0i64, 0i64);
        for id in &self.order {
            let next = u32::try_from(clients.len()).unwrap_or(u32::MAX);
            let client = *clients.entry(id.client).or_insert_with(|| {
                stored.clients.push(id.client);
                next
            });
            stored.client.push(client);
            let this = id.sequence.cast_signed();
            stored.sequence.push(this.wrapping_sub(sequence));
            sequence = this;
            let at = self.index_of.get(id).copied().unwrap_or_default().cast_signed();
            stored.index.push(at.wrapping_sub(index));
            index = at;
        }
        stored.encode_to_vec().into()
    }

    /// Reads the stored form; `None` when it is not one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let stored = Stored::decode(bytes).ok()?;
        if stored.client.len() != stored.sequence.len() || stored.client.len() != stored.index.len()
        {
            return None;
        }
        let mut requests = Self::default();
        let (mut sequence, mut index) = (0i64, 0i64);
        for ((client, delta), step) in stored.client.iter().zip(&stored.sequence).zip(&stored.index)
        {
            sequence = sequence.wrapping_add(*delta);
            index = index.wrapping_add(*step);
            let client = *stored.clients.get(usize::try_from(*client).ok()?)?;
            requests.insert(
                RequestId { client, sequence: sequence.cast_unsigned() },
                index.cast_unsigned(),
            );
        }
        Some(requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(client: u64, sequence: u64) -> RequestId {
        RequestId { client, sequence }
    }

    #[test]
    fn a_remembered_request_gives_the_index_it_took_effect_at() {
        let mut requests = Requests::default();
        requests.insert(id(1, 5), 10);
        assert_eq!(requests.get(id(1, 5)), Some(10));
        assert_eq!(requests.get(id(2, 5)), None);
    }

    #[test]
    fn the_oldest_requests_are_forgotten_first() {
        let mut requests = Requests::default();
        for sequence in 0..=REQUESTS_MAX as u64 {
            requests.insert(id(1, sequence), sequence);
        }
        assert_eq!(requests.len(), REQUESTS_MAX);
        assert_eq!(requests.get(id(1, 0)), None);
        assert_eq!(requests.get(id(1, 1)), Some(1));
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
}

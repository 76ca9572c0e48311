//! Ordered maps of which snapshots share what an edit leaves alone.
//!
//! ```text
//!   snapshot ──▶ ids 0..256, ids 256..512, ids 512..768
//!                    │           │
//!   edited   ──▶     └── shared ─┘         ids 512..768, copied
//! ```
//!
//! Ids are given in order, so chunks are full except for what was dropped. An edit copies one chunk and the map of
//! chunks; two snapshots are compared by the chunks that they do not share.
//!
//! Invariant: no chunk is empty, so equal maps have equal chunks.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::RoleId;

/// Ids of a chunk, as a power of two.
const CHUNK_BITS: u32 = 8;

/// Number of the chunk of an id, for keys of several kinds: those of a lower kind come first.
pub(super) fn chunk_of(kind: u8, id: u32) -> u64 {
    (u64::from(kind) << 32) | u64::from(id >> CHUNK_BITS)
}

/// A key that knows its chunk.
pub trait Chunked: Ord + Clone {
    /// Number of the chunk; it does not decrease with the key.
    fn chunk(&self) -> u64;
}

impl Chunked for RoleId {
    fn chunk(&self) -> u64 {
        chunk_of(0, self.0)
    }
}

type Chunk<K, T> = BTreeMap<K, Arc<T>>;

/// An ordered map whose clones share chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunks<K, T> {
    chunks: Arc<BTreeMap<u64, Arc<Chunk<K, T>>>>,
}

impl<K, T> Default for Chunks<K, T> {
    fn default() -> Self {
        Self { chunks: Arc::default() }
    }
}

impl<K: Chunked, T> Chunks<K, T> {
    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&Arc<T>> {
        self.chunks.get(&key.chunk())?.get(key)
    }

    /// True if there is a value of the key.
    #[must_use]
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.chunks.values().map(|chunk| chunk.len()).sum()
    }

    /// True if there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// All keys, ascending.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.chunks.values().flat_map(|chunk| chunk.keys())
    }

    /// All values, by key.
    pub fn values(&self) -> impl Iterator<Item = &Arc<T>> {
        self.chunks.values().flat_map(|chunk| chunk.values())
    }

    /// Adds a value, or replaces that of the key.
    pub(super) fn insert(&mut self, key: K, value: Arc<T>) {
        let chunk = Arc::make_mut(&mut self.chunks).entry(key.chunk()).or_default();
        Arc::make_mut(chunk).insert(key, value);
    }

    /// Removes the value of a key.
    pub(super) fn remove(&mut self, key: &K) -> Option<Arc<T>> {
        // Without a value, nothing must be copied.
        if !self.contains_key(key) {
            return None;
        }
        let number = key.chunk();
        let chunks = Arc::make_mut(&mut self.chunks);
        let chunk = Arc::make_mut(chunks.get_mut(&number)?);
        let removed = chunk.remove(key);
        if chunk.is_empty() {
            chunks.remove(&number);
        }
        removed
    }
}

impl<K: Chunked, T: PartialEq> Chunks<K, T> {
    /// Values that another map lacks, or has otherwise, by key. Chunks that both share are skipped.
    pub(crate) fn unlike<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a Arc<T>> {
        self.chunks.iter().flat_map(move |(number, ours)| {
            let theirs = other.chunks.get(number);
            let is_shared = theirs.is_some_and(|theirs| Arc::ptr_eq(theirs, ours));
            let entries = (!is_shared).then_some(ours).into_iter().flat_map(|chunk| chunk.iter());
            let unlike = entries.filter(move |(key, value)| {
                let twin = theirs.and_then(|theirs| theirs.get(*key));
                twin.is_none_or(|twin| !Arc::ptr_eq(twin, value) && twin != *value)
            });
            unlike.map(|(_, value)| value)
        })
    }

    /// Number of chunks that another map does not share.
    #[cfg(test)]
    pub(super) fn unshared(&self, other: &Self) -> usize {
        let unshared = self.chunks.iter().filter(|(number, ours)| {
            !other.chunks.get(*number).is_some_and(|theirs| Arc::ptr_eq(theirs, ours))
        });
        unshared.count()
    }
}

impl<K: Chunked, T> FromIterator<(K, Arc<T>)> for Chunks<K, T> {
    fn from_iter<I: IntoIterator<Item = (K, Arc<T>)>>(entries: I) -> Self {
        let mut chunks = Self::default();
        for (key, value) in entries {
            chunks.insert(key, value);
        }
        chunks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(ids: std::ops::Range<u32>) -> Chunks<RoleId, u32> {
        ids.map(|id| (RoleId(id), Arc::new(id))).collect()
    }

    #[test]
    fn keys_stay_in_order_over_all_chunks() {
        let map: Chunks<RoleId, u32> =
            (0..1_000).rev().map(|id| (RoleId(id), Arc::new(id))).collect();
        assert_eq!(map, numbers(0..1_000));
        assert_eq!(map.len(), 1_000);
        assert!(map.values().map(|value| **value).eq(0..1_000));
        assert!(map.keys().map(|key| key.0).eq(0..1_000));
        assert_eq!(map.get(&RoleId(999)).map(|value| **value), Some(999));
        assert!(!map.contains_key(&RoleId(1_000)));
    }

    #[test]
    fn an_edit_copies_one_chunk() {
        let before = numbers(0..10_000);
        let mut after = before.clone();
        after.insert(RoleId(700), Arc::new(0));
        assert_eq!(after.remove(&RoleId(20_000)), None);
        assert_eq!(after.unshared(&before), 1);
        assert_eq!(
            (**before.get(&RoleId(700)).unwrap(), **after.get(&RoleId(700)).unwrap()),
            (700, 0)
        );
        assert_eq!(after.remove(&RoleId(9_999)).as_deref(), Some(&9_999));
        assert_eq!(after.unshared(&before), 2);
        assert_eq!((before.len(), after.len()), (10_000, 9_999));
        let unlike = |a: &Chunks<RoleId, u32>, b: &Chunks<RoleId, u32>| -> Vec<u32> {
            a.unlike(b).map(|value| **value).collect()
        };
        assert_eq!(unlike(&after, &before), [0]);
        assert_eq!(unlike(&before, &after), [700, 9_999]);
        // Chunks of equal values are equal, shared or not.
        assert!(unlike(&before, &numbers(0..10_000)).is_empty());
        assert_eq!(unlike(&before, &Chunks::default()).len(), 10_000);
    }

    #[test]
    fn no_empty_chunk_remains() {
        let mut map = numbers(0..300);
        for id in 256..300 {
            map.remove(&RoleId(id));
        }
        assert_eq!(map, numbers(0..256));
        for id in 0..256 {
            map.remove(&RoleId(id));
        }
        assert!(map.is_empty());
        assert_eq!(map, Chunks::default());
    }
}

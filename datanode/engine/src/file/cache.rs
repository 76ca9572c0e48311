//! An in-memory cache with a bound on bytes; evicts the least recently used entry first.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use parking_lot::Mutex;

/// Uses in the order beyond twice the number of entries, before outdated ones are removed.
const ORDER_SLACK: usize = 64;

/// The cache. Use and eviction take the same time however many entries there are.
#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    bytes_max: u64,
    entries: Mutex<Entries<K, V>>,
}

#[derive(Debug)]
struct Entries<K, V> {
    by_key: HashMap<K, Entry<V>>,
    /// Uses with their keys, the oldest first; only the last use of a key counts.
    order: VecDeque<(u64, K)>,
    bytes: u64,
    uses: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    bytes: u64,
    used: u64,
}

impl<K: Copy + Eq + Hash, V: Clone> Recent<K, V> {
    pub(crate) fn new(bytes_max: u64) -> Self {
        let (by_key, order) = (HashMap::new(), VecDeque::new());
        let entries = Entries { by_key, order, bytes: 0, uses: 0 };
        Self { bytes_max, entries: Mutex::new(entries) }
    }

    /// Maximum bytes of all values.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// The value of a key; marks it as used.
    pub(crate) fn get(&self, key: K) -> Option<V> {
        let mut entries = self.entries.lock();
        let used = entries.uses + 1;
        let entry = entries.by_key.get_mut(&key)?;
        entry.used = used;
        let value = entry.value.clone();
        entries.add_use(key);
        Some(value)
    }

    /// Inserts a value of `bytes` bytes, replacing an earlier value of the key.
    pub(crate) fn insert(&self, key: K, value: V, bytes: u64) {
        let mut entries = self.entries.lock();
        entries.remove(&key);
        if bytes > self.bytes_max {
            return;
        }
        let used = entries.uses + 1;
        entries.by_key.insert(key, Entry { value, bytes, used });
        entries.bytes += bytes;
        entries.add_use(key);
        while entries.bytes > self.bytes_max {
            let Some((used, oldest)) = entries.order.pop_front() else { return };
            if entries.is_last_use(used, &oldest) {
                entries.remove(&oldest);
            }
        }
    }

    /// Removes a key.
    pub(crate) fn remove(&self, key: K) {
        self.entries.lock().remove(&key);
    }
}

impl<K: Copy + Eq + Hash, V> Entries<K, V> {
    /// Adds the use of a key, whose entry has its number already.
    fn add_use(&mut self, key: K) {
        self.uses += 1;
        self.order.push_back((self.uses, key));
        if self.order.len() > 2 * self.by_key.len() + ORDER_SLACK {
            let mut order = std::mem::take(&mut self.order);
            order.retain(|(used, key)| self.is_last_use(*used, key));
            self.order = order;
        }
    }

    /// True if a key has not been used later.
    fn is_last_use(&self, used: u64, key: &K) -> bool {
        self.by_key.get(key).is_some_and(|entry| entry.used == used)
    }

    fn remove(&mut self, key: &K) {
        if let Some(entry) = self.by_key.remove(key) {
            self.bytes -= entry.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_least_recently_used_entries_are_evicted(
            steps in vec((0..12_u8, 0..5_u64, any::<bool>()), 0..400),
        ) {
            let cache = Recent::new(10);
            // Keys with their bytes, the least recently used first.
            let mut expected: Vec<(u8, u64)> = Vec::new();
            for (key, bytes, is_read) in steps {
                let position = expected.iter().position(|(other, _)| *other == key);
                let previous = position.map(|position| expected.remove(position));
                if is_read {
                    prop_assert_eq!(cache.get(key), previous.map(|(_, bytes)| bytes));
                    expected.extend(previous);
                    continue;
                }
                cache.insert(key, bytes, bytes);
                expected.push((key, bytes));
                while expected.iter().map(|(_, bytes)| bytes).sum::<u64>() > 10 {
                    expected.remove(0);
                }
            }
            let entries = cache.entries.lock();
            prop_assert_eq!(entries.by_key.len(), expected.len());
            prop_assert!(expected.iter().all(|(key, _)| entries.by_key.contains_key(key)));
            prop_assert!(entries.order.len() <= 2 * expected.len() + ORDER_SLACK + 24);
        }
    }

    #[test]
    fn what_was_used_last_stays_within_the_bound() {
        let cache = Recent::new(10);
        for key in 1..=3 {
            cache.insert(key, key, 3);
        }
        assert_eq!(cache.get(1), Some(1));
        cache.insert(4, 4, 3);
        assert!(cache.get(2).is_none(), "it was used the longest ago");
        assert!([1, 3, 4].iter().all(|key| cache.get(*key).is_some()));
        cache.insert(5, 5, 11);
        assert!([1, 3, 4].iter().all(|key| cache.get(*key).is_some()), "it would not fit");
        assert!(cache.get(5).is_none());
        cache.insert(5, 5, 10);
        assert!((1..5).all(|key| cache.get(key).is_none()), "nothing fits beside it");
        assert_eq!(cache.get(5), Some(5));
        cache.insert(6, 6, 10);
        cache.insert(6, 7, 9);
        assert_eq!(cache.get(6), Some(7));
        cache.remove(6);
        assert!(cache.get(6).is_none());
    }
}

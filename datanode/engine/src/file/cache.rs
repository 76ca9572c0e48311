//! An in-memory cache with a bound on bytes; evicts the least recently used entry first.

use std::collections::HashMap;
use std::hash::Hash;

use parking_lot::Mutex;

/// The cache. Eviction examines all entries: made for some thousands of them.
#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    bytes_max: u64,
    entries: Mutex<Entries<K, V>>,
}

#[derive(Debug)]
struct Entries<K, V> {
    by_key: HashMap<K, Entry<V>>,
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
        let entries = Entries { by_key: HashMap::new(), bytes: 0, uses: 0 };
        Self { bytes_max, entries: Mutex::new(entries) }
    }

    /// Maximum bytes of all values.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// The value of a key; marks it as used.
    pub(crate) fn get(&self, key: K) -> Option<V> {
        let mut entries = self.entries.lock();
        entries.uses += 1;
        let tick = entries.uses;
        let entry = entries.by_key.get_mut(&key)?;
        entry.used = tick;
        Some(entry.value.clone())
    }

    /// Inserts a value of `bytes` bytes, replacing an earlier value of the key.
    pub(crate) fn insert(&self, key: K, value: V, bytes: u64) {
        let mut entries = self.entries.lock();
        entries.remove(&key);
        if bytes > self.bytes_max {
            return;
        }
        entries.uses += 1;
        let used = entries.uses;
        entries.by_key.insert(key, Entry { value, bytes, used });
        entries.bytes += bytes;
        while entries.bytes > self.bytes_max {
            let oldest = entries.by_key.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(key, _)| *key) else { return };
            entries.remove(&oldest);
        }
    }

    /// Removes a key.
    pub(crate) fn remove(&self, key: K) {
        self.entries.lock().remove(&key);
    }
}

impl<K: Eq + Hash, V> Entries<K, V> {
    fn remove(&mut self, key: &K) {
        if let Some(entry) = self.by_key.remove(key) {
            self.bytes -= entry.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

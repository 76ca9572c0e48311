//! Distinct keys of the rows that an index is being built of, each with a number in the order of its first occurrence.
//!
//! A hash proposes, a comparison decides: keys have one number only if their bytes are equal. A key that was added last
//! is found without hashing, since equal values come in runs.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Distinct keys.
pub(crate) struct Dictionary {
    /// The keys' bytes, one after another.
    arena: Vec<u8>,
    keys: Vec<Key>,
    by_hash: HashTable<usize>,
    last: Option<usize>,
    seed: u64,
}

#[derive(Clone, Copy)]
struct Key {
    start: usize,
    end: usize,
    hash: u64,
}

impl Default for Dictionary {
    fn default() -> Self {
        Self {
            arena: Vec::new(),
            keys: Vec::new(),
            by_hash: HashTable::new(),
            last: None,
            // Nobody can choose keys with one hash.
            seed: RandomState::new().hash_one(0_u64),
        }
    }
}

impl Dictionary {
    /// The number of a key, which is added if it is new.
    pub(crate) fn number(&mut self, key: &[u8]) -> usize {
        if let Some(last) = self.last
            && self.key(last) == key
        {
            return last;
        }
        let hash = xxh3_64_with_seed(key, self.seed);
        let present = self.by_hash.find(hash, |number| self.key(*number) == key).copied();
        let number = present.unwrap_or_else(|| self.add(key, hash));
        self.last = Some(number);
        number
    }

    fn add(&mut self, key: &[u8], hash: u64) -> usize {
        let (number, start) = (self.keys.len(), self.arena.len());
        self.arena.extend_from_slice(key);
        self.keys.push(Key { start, end: self.arena.len(), hash });
        self.by_hash.insert_unique(hash, number, |number| self.keys[*number].hash);
        number
    }

    /// The key with a number.
    pub(crate) fn key(&self, number: usize) -> &[u8] {
        let Key { start, end, .. } = self.keys[number];
        &self.arena[start..end]
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Bytes in memory, approximately.
    pub(crate) fn bytes(&self) -> usize {
        self.arena.len() + self.keys.len() * size_of::<Key>() + self.by_hash.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn equal_keys_have_one_number(keys in vec("[ab]{0,3}", 0..200)) {
            let mut dictionary = Dictionary::default();
            let mut distinct: Vec<String> = Vec::new();
            for key in keys {
                let expected = distinct.iter().position(|other| *other == key);
                let expected = expected.unwrap_or(distinct.len());
                prop_assert_eq!(dictionary.number(key.as_bytes()), expected);
                if expected == distinct.len() {
                    distinct.push(key);
                }
            }
            prop_assert_eq!(dictionary.len(), distinct.len());
            for (number, key) in distinct.iter().enumerate() {
                prop_assert_eq!(dictionary.key(number), key.as_bytes());
            }
        }
    }
}

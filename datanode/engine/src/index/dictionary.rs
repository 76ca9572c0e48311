//! Distinct keys of the rows that an index is being built of, each with a number in the order of its first occurrence.
//!
//! A hash proposes, a comparison decides: keys have one number only if their bytes are equal. A key that was added last
//! is found without hashing, since equal values come in runs.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Distinct keys.
pub(crate) struct Dictionary {
    /// The keys' bytes, one after another: fewer than 4 GiB, because builders of indexes give up long before.
    arena: Vec<u8>,
    /// End of each key in the arena.
    ends: Vec<u32>,
    by_hash: HashTable<Slot>,
    last: Option<usize>,
    seed: u64,
}

/// A key in the table, with the place of its bytes, so that it is compared without a look at other lists.
#[derive(Clone, Copy)]
struct Slot {
    number: u32,
    start: u32,
    end: u32,
}

impl Slot {
    fn key<'a>(&self, arena: &'a [u8]) -> &'a [u8] {
        &arena[self.start as usize..self.end as usize]
    }
}

impl Default for Dictionary {
    fn default() -> Self {
        Self {
            arena: Vec::new(),
            ends: Vec::new(),
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
        let present = self.by_hash.find(hash, |slot| slot.key(&self.arena) == key);
        let number = match present {
            Some(slot) => slot.number as usize,
            None => self.add(key, hash),
        };
        self.last = Some(number);
        number
    }

    fn add(&mut self, key: &[u8], hash: u64) -> usize {
        let number = self.ends.len();
        let place = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let start = place(self.arena.len());
        self.arena.extend_from_slice(key);
        let end = place(self.arena.len());
        self.ends.push(end);
        let (arena, seed) = (&self.arena, self.seed);
        let slot = Slot { number: place(number), start, end };
        self.by_hash.insert_unique(hash, slot, |slot| xxh3_64_with_seed(slot.key(arena), seed));
        number
    }

    /// The key with a number.
    pub(crate) fn key(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).map_or(0, |previous| self.ends[previous]);
        &self.arena[start as usize..self.ends[number] as usize]
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes in memory, approximately.
    pub(crate) fn bytes(&self) -> usize {
        self.arena.len() + self.ends.len() * size_of::<u32>() + self.by_hash.allocation_size()
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

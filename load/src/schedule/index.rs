//! Finds a partition's slot by its number, in a table that stores slots only.
//!
//! A map from number to slot takes 17 bytes or more for each of a million partitions; the slot contains the number
//! already. Here a cell is 4 bytes, found by the number's hash, and the slot in it tells if it is the right one.
//!
//! Invariants: open addressing with linear probing, at most three quarters full; between a number's home cell and the
//! cell that holds it there is no empty one (removal moves later ones back). Never iterated.

use crate::facts::PartitionId;

const EMPTY: u32 = u32::MAX;
const CELLS_MIN: usize = 64;

/// Hash index of slots. Callers pass the number of a slot as `id_of`.
#[derive(Debug, Default)]
pub(super) struct Index {
    cells: Vec<u32>,
    count: usize,
}

/// The finishing step of splitmix64: every bit of the input changes half of the output's.
pub(super) fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

impl Index {
    /// The slot of a number.
    pub(super) fn get(&self, id: PartitionId, id_of: impl Fn(u32) -> PartitionId) -> Option<u32> {
        if self.cells.is_empty() {
            return None;
        }
        let mut position = self.home(id);
        loop {
            match self.cells[position] {
                EMPTY => return None,
                slot if id_of(slot) == id => return Some(slot),
                _ => position = self.after(position),
            }
        }
    }

    /// Adds a number that is not in the index yet.
    pub(super) fn insert(
        &mut self,
        id: PartitionId,
        slot: u32,
        id_of: impl Fn(u32) -> PartitionId,
    ) {
        if (self.count + 1) * 4 > self.cells.len() * 3 {
            let cells = (self.cells.len() * 2).max(CELLS_MIN);
            let old = std::mem::replace(&mut self.cells, vec![EMPTY; cells]);
            for slot in old.into_iter().filter(|slot| *slot != EMPTY) {
                self.put(id_of(slot), slot);
            }
        }
        self.put(id, slot);
        self.count += 1;
    }

    /// Removes a number, if it is in the index.
    pub(super) fn remove(&mut self, id: PartitionId, id_of: impl Fn(u32) -> PartitionId) {
        let Some(slot) = self.get(id, &id_of) else { return };
        let mut hole = self.home(id);
        while self.cells[hole] != slot {
            hole = self.after(hole);
        }
        let mut position = self.after(hole);
        while self.cells[position] != EMPTY {
            // An entry behind the hole moves into it unless its home cell lies between the two.
            let home = self.home(id_of(self.cells[position]));
            let mask = self.cells.len() - 1;
            if position.wrapping_sub(home) & mask >= position.wrapping_sub(hole) & mask {
                self.cells[hole] = self.cells[position];
                hole = position;
            }
            position = self.after(position);
        }
        self.cells[hole] = EMPTY;
        self.count -= 1;
    }

    fn put(&mut self, id: PartitionId, slot: u32) {
        let mut position = self.home(id);
        while self.cells[position] != EMPTY {
            position = self.after(position);
        }
        self.cells[position] = slot;
    }

    fn home(&self, id: PartitionId) -> usize {
        let low = mix(id.0) & (self.cells.len() as u64 - 1);
        usize::try_from(low).unwrap_or(0)
    }

    fn after(&self, position: usize) -> usize {
        (position + 1) & (self.cells.len() - 1)
    }

    /// Allocated bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.cells.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_finds_what_a_map_finds() {
        let mut index = Index::default();
        let mut slots: Vec<PartitionId> = Vec::new();
        let mut model: BTreeMap<u64, u32> = BTreeMap::new();
        let mut seed = 3;
        for round in 0..20_000_u64 {
            seed = mix(seed + round);
            let id = PartitionId(seed % 700);
            let id_of = |slot: u32| slots[slot as usize];
            assert_eq!(index.get(id, id_of), model.get(&id.0).copied());
            if model.remove(&id.0).is_some() {
                index.remove(id, id_of);
            } else {
                let slot = u32::try_from(slots.len()).unwrap();
                slots.push(id);
                index.insert(id, slot, |slot| slots[slot as usize]);
                model.insert(id.0, slot);
            }
        }
        for (id, slot) in &model {
            assert_eq!(index.get(PartitionId(*id), |slot| slots[slot as usize]), Some(*slot));
        }
        assert_eq!(index.count, model.len());
    }
}

//! A uniform sample of a stream of unknown length (Li's Algorithm L).
//!
//! Invariants: after `n` operations each of them is in the sample with probability `min(1, size / n)`; an operation
//! that is not taken costs one comparison and one addition, because the next one to take is known beforehand. Slots are
//! reused, so a steady stream allocates nothing.

use crate::random::{Random, whole};

/// A sampled operation.
#[derive(Clone, Debug, Default)]
pub struct Slot {
    /// Number of the operation within its tick.
    pub arrival: u64,
    /// The key, or the start of the range.
    pub key: Vec<u8>,
    /// The end of the range, if it is a range; empty for "to the end".
    pub end: Option<Vec<u8>>,
}

/// The choice of a sample: which operations of a stream are taken, and the place of each.
#[derive(Clone, Debug)]
pub(crate) struct Lots {
    size: usize,
    used: usize,
    /// Number of operations offered.
    count: u64,
    /// Number of the next operation to take.
    next: u64,
    /// Algorithm L's W: distributed as the largest of `size` uniform keys, to the power of the rounds so far.
    threshold: f64,
}

/// An operation that is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lot {
    /// Number of the operation within the stream ...
    pub(crate) arrival: u64,
    /// ... and among those that are being offered.
    pub(crate) number: u64,
    /// Place in the sample, below its size; the one after the last, or one whose operation is replaced.
    pub(crate) place: usize,
}

impl Lots {
    /// The choice of at most `size` operations.
    pub(crate) fn new(size: usize) -> Self {
        Self { size, used: 0, count: 0, next: 0, threshold: 1.0 }
    }

    /// Number of operations offered.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Number of operations in the sample.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Begins anew.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.size);
    }

    /// Offers `operations` operations; `take` is called for those that are taken, in order.
    #[inline]
    pub(crate) fn offer(&mut self, operations: u64, random: &mut Random, take: impl FnMut(Lot)) {
        let end = self.count + operations;
        if self.next < end {
            self.accept(end, random, take);
        }
        self.count = end;
    }

    #[cold]
    fn accept(&mut self, end: u64, random: &mut Random, mut take: impl FnMut(Lot)) {
        while self.next < end {
            let place = if self.used < self.size {
                self.used += 1;
                self.used - 1
            } else {
                random.index(self.size)
            };
            take(Lot { arrival: self.next, number: self.next - self.count, place });
            self.next += 1;
            if self.used == self.size {
                self.next = self.next.saturating_add(self.skip(random));
            }
        }
    }

    /// Number of operations to skip before the next one to take.
    fn skip(&mut self, random: &mut Random) -> u64 {
        // 1 - unit() is above 0, so its logarithm is finite.
        self.threshold *= ((1.0 - random.unit()).ln() / self.size as f64).exp();
        whole((1.0 - random.unit()).ln() / (1.0 - self.threshold).ln())
    }
}

/// A sample of at most `size` operations.
#[derive(Clone, Debug)]
pub struct Reservoir {
    lots: Lots,
    slots: Vec<Slot>,
}

impl Reservoir {
    /// An empty sample of at most `size` operations.
    #[must_use]
    pub fn new(size: usize) -> Self {
        Self { lots: Lots::new(size), slots: Vec::new() }
    }

    /// Number of operations offered since the last [`Self::clear`].
    #[must_use]
    pub fn count(&self) -> u64 {
        self.lots.count()
    }

    /// Discards all operations, and keeps the memory.
    pub fn clear(&mut self) {
        self.lots.clear();
    }

    /// Offers `operations` operations; `take` copies the one with the given number into a slot.
    #[inline]
    pub fn offer(
        &mut self,
        operations: u64,
        random: &mut Random,
        mut take: impl FnMut(u64, &mut Slot),
    ) {
        let slots = &mut self.slots;
        self.lots.offer(operations, random, |lot| {
            if slots.len() <= lot.place {
                slots.push(Slot::default());
            }
            let slot = &mut slots[lot.place];
            slot.arrival = lot.arrival;
            take(lot.number, slot);
        });
    }

    /// The sample, in order of arrival.
    #[must_use]
    pub fn in_order(&self) -> Vec<&Slot> {
        let mut slots: Vec<&Slot> = self.slots[..self.lots.used()].iter().collect();
        slots.sort_unstable_by_key(|slot| slot.arrival);
        slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_in_the_stream_is_taken_equally_often() {
        let mut tenths = [0_u32; 10];
        for seed in 0..400 {
            let mut random = Random::new(seed);
            let mut reservoir = Reservoir::new(32);
            // Batches of uneven size must not matter.
            let (mut sent, mut step) = (0, 1);
            while sent < 10_000 {
                let batch = step.min(10_000 - sent);
                reservoir.offer(batch, &mut random, |_, _| ());
                sent += batch;
                step = step % 977 + 131;
            }
            let slots = reservoir.in_order();
            assert_eq!(slots.len(), 32);
            for slot in slots {
                tenths[usize::try_from(slot.arrival / 1_000).unwrap()] += 1;
            }
        }
        // 1,280 each; six standard deviations are 204.
        assert!(tenths.iter().all(|&count| (1_076..=1_484).contains(&count)), "{tenths:?}");
    }

    #[test]
    fn a_short_stream_is_kept_whole_and_in_order() {
        let mut random = Random::new(5);
        let mut reservoir = Reservoir::new(4);
        for key in [b"c", b"a", b"b"] {
            reservoir.offer(1, &mut random, |_, slot| slot.key = key.to_vec());
        }
        let keys: Vec<_> = reservoir.in_order().iter().map(|slot| slot.key.clone()).collect();
        assert_eq!(keys, [b"c".to_vec(), b"a".to_vec(), b"b".to_vec()]);
    }
}

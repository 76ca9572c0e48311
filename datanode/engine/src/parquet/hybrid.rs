//! Encodes small numbers as Parquet encodes levels and dictionary indices: runs of one number, and bit-packed groups of
//! eight, in sequence (`RLE/bit-packed hybrid`).
//!
//! Numbers are passed as runs. The cost is per run; numbers that do not repeat cost their packing, and the output is no
//! larger than the packed numbers. Invariant: every packed run except the last has whole groups of eight; the last one
//! is padded with zeros, which readers skip because the count of numbers is stored elsewhere.

/// Fewer equal numbers than this are packed.
const GROUP: usize = 8;
/// Maximum numbers in a packed run: its header is one byte then, and some readers expect no more.
const PACKED_MAX: usize = 63 * GROUP;

/// Encoder for one page's numbers.
pub(crate) struct Hybrid {
    bits: u32,
    output: Vec<u8>,
    /// Numbers that are not yet in a run of either kind and will be packed; fewer than [`PACKED_MAX`].
    packed: Vec<u32>,
    /// The last number, and its number of repetitions.
    last: (u32, usize),
}

/// Number of bits that numbers up to `max` need.
pub(crate) fn bits_of(max: u32) -> u32 {
    u32::BITS - max.leading_zeros()
}

impl Hybrid {
    /// Creates an encoder that appends to `output`; each number takes `bits` bits.
    pub(crate) fn new(bits: u32, output: Vec<u8>) -> Self {
        Self { bits, output, packed: Vec::new(), last: (0, 0) }
    }

    /// Appends a number `count` times. It must fit the bits.
    pub(crate) fn push(&mut self, number: u32, count: usize) {
        debug_assert!(bits_of(number) <= self.bits, "{number} has more than {} bits", self.bits);
        if self.last.0 == number {
            self.last.1 += count;
        } else {
            self.end_run();
            self.last = (number, count);
        }
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.end_run();
        let padded = self.packed.len().next_multiple_of(GROUP);
        self.packed.resize(padded, 0);
        self.end_packed();
        self.output
    }

    fn end_run(&mut self) {
        let (number, mut count) = self.last;
        // A packed run has whole groups: its last group is filled up first.
        let room = self.packed.len().next_multiple_of(GROUP) - self.packed.len();
        self.pack(number, count.min(room));
        count -= count.min(room);
        if count >= GROUP {
            self.end_packed();
            self.varint(count << 1);
            let bytes = number.to_le_bytes();
            self.output.extend_from_slice(&bytes[..self.bits.div_ceil(8) as usize]);
        } else {
            self.pack(number, count);
        }
    }

    /// Adds numbers to be packed; fewer than a group at a time.
    fn pack(&mut self, number: u32, count: usize) {
        self.packed.resize(self.packed.len() + count, number);
        if self.packed.len() >= PACKED_MAX {
            let rest = self.packed.split_off(PACKED_MAX);
            self.end_packed();
            self.packed = rest;
        }
    }

    /// Writes whole groups as a packed run.
    fn end_packed(&mut self) {
        if self.packed.is_empty() {
            return;
        }
        debug_assert!(self.packed.len().is_multiple_of(GROUP), "a packed run is whole groups");
        self.varint(((self.packed.len() / GROUP) << 1) | 1);
        let (mut word, mut filled) = (0_u64, 0);
        for number in self.packed.drain(..) {
            word |= u64::from(number) << filled;
            filled += self.bits;
            if filled >= u32::BITS {
                self.output.extend_from_slice(&word.to_le_bytes()[..4]);
                word >>= u32::BITS;
                filled -= u32::BITS;
            }
        }
        self.output.extend_from_slice(&word.to_le_bytes()[..filled.div_ceil(8) as usize]);
    }

    fn varint(&mut self, mut number: usize) {
        loop {
            let [low, ..] = number.to_le_bytes();
            number >>= 7;
            if number == 0 {
                self.output.push(low & 0x7F);
                return;
            }
            self.output.push(low | 0x80);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Decodes by the format's description, number by number and bit by bit.
    fn decode(bits: u32, mut bytes: &[u8], count: usize) -> Vec<u32> {
        let mut numbers = Vec::new();
        while numbers.len() < count {
            let (mut header, mut shift) = (0_usize, 0);
            loop {
                header |= usize::from(bytes[0] & 0x7F) << shift;
                shift += 7;
                let more = bytes[0] & 0x80 != 0;
                bytes = &bytes[1..];
                if !more {
                    break;
                }
            }
            if header & 1 == 0 {
                let width = bits.div_ceil(8) as usize;
                let number =
                    bytes[..width].iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
                numbers.extend(std::iter::repeat_n(number, header >> 1));
                bytes = &bytes[width..];
            } else {
                let groups = header >> 1;
                assert!((1..=63).contains(&groups), "{groups} groups");
                let bit = |at: usize| u32::from(bytes[at / 8] >> (at % 8) & 1);
                let width = bits as usize;
                numbers.extend((0..groups * 8).map(|number| {
                    (0..width).fold(0, |sum, at| sum | bit(number * width + at) << at)
                }));
                bytes = &bytes[groups * width..];
            }
        }
        assert!(bytes.is_empty(), "bytes behind the last run");
        assert!(numbers.len() - count < 8, "only the last group is padded");
        assert!(numbers[count..].iter().all(|number| *number == 0));
        numbers.truncate(count);
        numbers
    }

    fn encode(bits: u32, runs: &[(u32, usize)]) -> Vec<u8> {
        let mut hybrid = Hybrid::new(bits, Vec::new());
        runs.iter().for_each(|(number, count)| hybrid.push(*number, *count));
        hybrid.finish()
    }

    proptest! {
        #[test]
        fn numbers_come_back_whatever_their_runs(
            (bits, runs) in (0_u32..=20).prop_flat_map(|bits| {
                let number = 0..1_u32 << bits;
                let count = prop_oneof![4 => 0_usize..3, 2 => 3_usize..20, 1 => 20_usize..1000];
                (Just(bits), prop::collection::vec((number, count), 0..300))
            })
        ) {
            let numbers: Vec<u32> =
                runs.iter().flat_map(|(number, count)| std::iter::repeat_n(*number, *count)).collect();
            let bytes = encode(bits, &runs);
            prop_assert_eq!(decode(bits, &bytes, numbers.len()), numbers);
        }
    }

    #[test]
    fn one_number_is_one_run_and_distinct_ones_are_packed() {
        assert_eq!(encode(3, &[(5, 700), (5, 300)]), [0xD0, 0x0F, 5]);
        // The example of the format's description.
        let runs: Vec<_> = (0..8).map(|number| (number, 1)).collect();
        assert_eq!(encode(3, &runs), [3, 0b1000_1000, 0b1100_0110, 0b1111_1010]);
        assert_eq!(encode(1, &[]), [0; 0]);
        assert_eq!(encode(0, &[(0, 9)]), [18]);
    }

    #[test]
    fn a_repeat_fills_up_the_group_before_it() {
        assert_eq!(encode(1, &[(1, 3), (0, 13)]), [3, 0b111, 16, 0]);
        assert_eq!(encode(1, &[(1, 3), (0, 12)]), [5, 0b111, 0]);
    }

    #[test]
    fn bits_are_as_many_as_the_largest_number_needs() {
        assert_eq!([0, 1, 2, 3, 4, 255, 256].map(bits_of), [0, 1, 2, 2, 3, 8, 9]);
    }
}

//! Ascending rows of a row group by their gaps, in few bits: for keys whose rows are scattered.
//!
//! ```text
//!   list:  count, then for each row the number of rows between it and the one before: its quotient by 2^b, then its
//!          remainder in b bits
//!   count: n zeros, a one, and the n lower bits of the count, which has n + 1 bits (Elias's gamma code)
//!   quotient: as many zeros, then a one
//!   b:     follows from the mean gap, so it is not stored
//!   bits:  from the lowest of each byte; the last byte is filled up with zeros
//! ```
//!
//! This is Golomb's code with Rice's restriction to powers of two (S. W. Golomb, Run-length encodings, 1966). Rows that
//! are scattered evenly take hardly more bits than they must.

/// Bits of a word that [`Reader::peek`] returns at any position.
const PEEKED_BITS: u32 = 56;

/// Appends the list of some ascending rows, at least one, of a row group with `total` rows.
pub(crate) fn encode(rows: &[u32], total: u32, bytes: &mut Vec<u8>) {
    let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
    let mut writer = Writer { bytes, word: 0, length: 0 };
    let count_bits = count.max(1).ilog2();
    writer.zeros(count_bits);
    writer.push(1, 1);
    writer.push(lower(count.into(), count_bits), count_bits);
    let (bits, mut next) = (remainder_bits(count, total), 0_u32);
    for row in rows {
        let gap = *row - next;
        writer.zeros(gap >> bits);
        writer.push((lower(gap.into(), bits) << 1) | 1, bits + 1);
        next = *row + 1;
    }
    writer.finish();
}

/// The rows of the list at the beginning of some bytes; `None` if there is none of a row group with `total` rows.
pub(crate) fn decode(bytes: &[u8], total: u32) -> Option<Vec<u32>> {
    let mut reader = Reader { bytes, position: 0 };
    let count_bits = reader.zeros(u64::from(u32::BITS - 1))?;
    let count_bits = u32::try_from(count_bits).ok()?;
    let count = u32::try_from((1 << count_bits) | reader.take(count_bits)?).ok()?;
    // Each row takes a bit at least.
    if count > total || u64::from(count) > 8 * bytes.len() as u64 {
        return None;
    }
    let bits = remainder_bits(count, total);
    let mut rows = Vec::with_capacity(count as usize);
    let mut next = 0_u64;
    for _ in 0..count {
        let quotient = reader.zeros(u64::from(total >> bits))?;
        let row = next + ((quotient << bits) | reader.take(bits)?);
        if row >= u64::from(total) {
            return None;
        }
        rows.push(u32::try_from(row).ok()?);
        next = row + 1;
    }
    Some(rows)
}

/// Bits of a remainder that make lists of `count` rows short: of about 0.7 of the mean gap.
fn remainder_bits(count: u32, total: u32) -> u32 {
    let mean = u64::from(total / count.max(1));
    (mean * 7 / 10).max(1).ilog2()
}

/// The lower bits of a word, fewer than 64.
fn lower(word: u64, bits: u32) -> u64 {
    word & ((1 << bits) - 1)
}

/// Appends bits.
struct Writer<'a> {
    bytes: &'a mut Vec<u8>,
    /// Bits that do not fill a byte yet.
    word: u64,
    length: u32,
}

impl Writer<'_> {
    /// Appends at most 32 bits.
    fn push(&mut self, bits: u64, count: u32) {
        self.word |= bits << self.length;
        self.length += count;
        while self.length >= u8::BITS {
            self.bytes.push(self.word.to_le_bytes()[0]);
            self.word >>= u8::BITS;
            self.length -= u8::BITS;
        }
    }

    fn zeros(&mut self, mut count: u32) {
        while count > 0 {
            let step = count.min(u32::BITS);
            self.push(0, step);
            count -= step;
        }
    }

    fn finish(self) {
        if self.length > 0 {
            self.bytes.push(self.word.to_le_bytes()[0]);
        }
    }
}

/// Reads bits.
struct Reader<'a> {
    bytes: &'a [u8],
    /// Position in bits.
    position: usize,
}

impl Reader<'_> {
    /// The next [`PEEKED_BITS`] bits; behind the end there are zeros.
    fn peek(&self) -> u64 {
        let rest = self.bytes.get(self.position / 8..).unwrap_or_default();
        let word = match rest.first_chunk() {
            Some(word) => u64::from_le_bytes(*word),
            None => {
                let mut word = [0; size_of::<u64>()];
                word[..rest.len()].copy_from_slice(rest);
                u64::from_le_bytes(word)
            }
        };
        lower(word >> (self.position % 8), PEEKED_BITS)
    }

    /// Number of zeros before the next one, which is skipped, too; `None` if there are more than `max`.
    fn zeros(&mut self, max: u64) -> Option<u64> {
        let mut zeros = 0;
        loop {
            let word = self.peek();
            let is_end = word != 0;
            let more = if is_end { word.trailing_zeros() } else { PEEKED_BITS };
            zeros += u64::from(more);
            self.position += more as usize + usize::from(is_end);
            if zeros > max || self.is_beyond() {
                return None;
            }
            if is_end {
                return Some(zeros);
            }
        }
    }

    /// The next bits, at most 32; `None` if there are fewer.
    fn take(&mut self, count: u32) -> Option<u64> {
        let bits = lower(self.peek(), count);
        self.position += count as usize;
        (!self.is_beyond()).then_some(bits)
    }

    fn is_beyond(&self) -> bool {
        self.position > 8 * self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;

    fn encoded(rows: &[u32], total: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(rows, total, &mut bytes);
        bytes
    }

    #[test]
    fn lists_have_these_bits() {
        // A count of two as 010, and two gaps of 0; a count of one as 1, and a gap of 2 as 01 and 0.
        assert_eq!(encoded(&[0, 1], 4), [0b1_1010]);
        assert_eq!(encoded(&[2], 4), [0b0101]);
    }

    #[test]
    fn the_first_and_the_last_row_of_a_large_group_come_back() {
        for rows in [vec![0], vec![u32::MAX - 1], vec![0, u32::MAX - 1]] {
            assert_eq!(decode(&encoded(&rows, u32::MAX), u32::MAX), Some(rows));
        }
        let last: Vec<u32> = (130_000..131_072).collect();
        assert_eq!(decode(&encoded(&last, 131_072), 131_072), Some(last));
    }

    #[test]
    fn scattered_rows_take_few_bits() {
        // Every thousandth row, moved a little: about eleven bits of remainder and quotient each.
        let rows: Vec<u32> = (0..131).map(|row| row * 1_000 + row * 37 % 500).collect();
        let length = encoded(&rows, 131_072).len();
        assert!(length < 131 * 13 / 8, "{length} bytes");
    }

    proptest! {
        #[test]
        fn rows_come_back(
            rows in prop_oneof![
                btree_set(0..2_000_u32, 1..60),
                btree_set(0..20_u32, 1..20),
                (0..1_000_u32, 1..200_u32).prop_map(|(first, count)| (first..first + count).collect::<BTreeSet<u32>>()),
            ],
            behind in 1..100_000_u32,
            other in vec(any::<u8>(), 0..9),
        ) {
            let rows: Vec<u32> = rows.into_iter().collect();
            let total = rows.last().unwrap() + behind;
            let mut bytes = encoded(&rows, total);
            let length = bytes.len();
            bytes.extend(&other);
            prop_assert_eq!(decode(&bytes, total), Some(rows));
            prop_assert_eq!(decode(&bytes[..length - 1], total), None);
        }

        #[test]
        fn other_bytes_are_refused_or_rows(bytes in vec(any::<u8>(), 0..40), total in any::<u32>()) {
            if let Some(rows) = decode(&bytes, total) {
                prop_assert!(rows.is_sorted_by(|a, b| a < b));
                prop_assert!(rows.iter().all(|row| *row < total));
            }
        }
    }
}

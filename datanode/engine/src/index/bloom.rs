//! Bloom filters of the blocks of rows of a row group: of their values, or of the tokens of their texts.
//!
//! ```text
//!   body, little-endian:  rows u32, rows of a block u32, blocks
//!   block:                flags u8 (1: has NULL, 2: may have any value), length u32, filter
//!   filter:               Parquet's split block bloom filter with its header; empty if no row has a value
//! ```
//!
//! Blocks count from the first row of the group.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use bytes::{Buf, Bytes};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parquet::bloom_filter::Sbbf;
use partita_proto::index::Blooms;
use roaring::RoaringBitmap;
use xxhash_rust::xxh64::xxh64;

use crate::error::EngineError;
use crate::sizes::ROW_GROUP_ROWS;

/// The block has a row with NULL.
const HAS_NULL: u8 = 1;
/// The block has too many bytes of values for a filter.
const MAY_HAVE_ANY: u8 = 2;
/// Bytes in front of the blocks.
const HEADER_BYTES: usize = 8;
/// Bytes in front of a filter.
const BLOCK_HEADER_BYTES: usize = 5;
/// Maximum bytes of the hashes of a block in progress.
const BYTES_MAX: usize = 256 * 1024 * 1024;
/// Factors by which Parquet's filters choose the bit of each word.
const SALT: [u32; 8] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

/// Decoded filters of a row group.
#[derive(Debug)]
pub(crate) struct Filters {
    rows: u32,
    granularity: u32,
    blocks: Vec<Block>,
}

#[derive(Debug)]
struct Block {
    has_null: bool,
    values: Values,
}

/// Knowledge of the values of a block.
#[derive(Debug)]
enum Values {
    Absent,
    Filter(Sbbf),
    Unknown,
}

impl Filters {
    /// Decodes a body. `Err`: why it is none.
    pub(crate) fn decode(body: &Bytes) -> Result<Self, String> {
        let short = || "bloom filters are too short".to_owned();
        let mut rest = body.clone();
        if rest.len() < HEADER_BYTES {
            return Err(short());
        }
        let (rows, granularity) = (rest.get_u32_le(), rest.get_u32_le());
        if granularity == 0 {
            return Err("bloom filters of blocks without rows".to_owned());
        }
        let mut blocks = Vec::new();
        for _ in 0..rows.div_ceil(granularity) {
            if rest.len() < BLOCK_HEADER_BYTES {
                return Err(short());
            }
            let (flags, length) = (rest.get_u8(), rest.get_u32_le() as usize);
            if rest.len() < length {
                return Err(short());
            }
            let filter = rest.split_to(length);
            let values = match (flags & MAY_HAVE_ANY != 0, filter.is_empty()) {
                (true, _) => Values::Unknown,
                (false, true) => Values::Absent,
                (false, false) => Values::Filter(decoded(&filter)?),
            };
            blocks.push(Block { has_null: flags & HAS_NULL != 0, values });
        }
        if !rest.is_empty() {
            return Err("bloom filters are followed by other bytes".to_owned());
        }
        Ok(Self { rows, granularity, blocks })
    }

    /// Rows of the blocks that may hold one of the keys, or, with `null`, have NULL.
    pub(crate) fn any_of(&self, keys: &[Vec<u8>], null: bool) -> RoaringBitmap {
        self.rows_where(|block| {
            (null && block.has_null) || keys.iter().any(|key| block.may_hold(key))
        })
    }

    /// Rows of the blocks that may hold every key.
    pub(crate) fn all_of(&self, keys: &[Vec<u8>]) -> RoaringBitmap {
        self.rows_where(|block| keys.iter().all(|key| block.may_hold(key)))
    }

    /// Approximate bytes in memory.
    pub(crate) fn bytes(&self) -> u64 {
        let filter = |block: &Block| match &block.values {
            Values::Filter(filter) => 32 * filter.num_blocks(),
            Values::Absent | Values::Unknown => 0,
        };
        let filters: usize = self.blocks.iter().map(filter).sum();
        (size_of::<Self>() + self.blocks.len() * size_of::<Block>() + filters) as u64
    }

    fn rows_where(&self, passes: impl Fn(&Block) -> bool) -> RoaringBitmap {
        let mut rows = RoaringBitmap::new();
        for (number, block) in (0..).zip(&self.blocks) {
            if passes(block) {
                let start = self.granularity.saturating_mul(number);
                rows.insert_range(start..start.saturating_add(self.granularity).min(self.rows));
            }
        }
        rows
    }
}

impl Block {
    fn may_hold(&self, key: &[u8]) -> bool {
        match &self.values {
            Values::Absent => false,
            Values::Filter(filter) => filter.check(key),
            Values::Unknown => true,
        }
    }
}

fn decoded(bytes: &[u8]) -> Result<Sbbf, String> {
    let filter = Sbbf::from_bytes(bytes)
        .map_err(|error| format!("a bloom filter does not decode: {error}"))?;
    // A check of a filter without bits would panic.
    if filter.num_blocks() == 0 {
        return Err("a bloom filter is empty".to_owned());
    }
    Ok(filter)
}

/// Distinct hashes of keys. A filter knows its keys by nothing else, so keys with one hash count as one.
struct Hashes {
    table: HashTable<u64>,
    /// Hash of the last key: equal values come in runs.
    last: Option<u64>,
    /// Nobody can choose keys whose hashes share a place in the table.
    seeds: [u64; 2],
}

impl Default for Hashes {
    fn default() -> Self {
        let random = RandomState::new();
        let seeds = [0, 1].map(|seed: u64| random.hash_one(seed));
        Self { table: HashTable::new(), last: None, seeds }
    }
}

impl Hashes {
    /// Adds the hash of a key.
    fn add(&mut self, key: &[u8]) {
        let hash = xxh64(key, 0);
        if self.last.replace(hash) == Some(hash) {
            return;
        }
        let seeds = self.seeds;
        let entry = self.table.entry(
            place(hash, seeds),
            |other| *other == hash,
            |other| place(*other, seeds),
        );
        if let Entry::Vacant(entry) = entry {
            entry.insert(hash);
        }
    }

    /// Removes all; memory is kept for the next block.
    fn clear(&mut self) {
        self.table.clear();
        self.last = None;
    }

    /// Bytes in memory, approximately.
    fn bytes(&self) -> usize {
        self.table.allocation_size()
    }

    /// The filter of the keys; `None` without a key.
    fn filter(&self, false_positives: f64) -> crate::error::Result<Option<Sbbf>> {
        if self.table.is_empty() {
            return Ok(None);
        }
        let count = self.table.len() as u64;
        let sized = Sbbf::new_with_ndv_fpp(count, false_positives).map_err(internal)?;
        let mut blocks = vec![[0_u32; 8]; sized.num_blocks()];
        for hash in &self.table {
            set_bits(&mut blocks, *hash);
        }
        let mut bits = Vec::with_capacity(size_of_val(blocks.as_slice()));
        blocks.iter().flatten().for_each(|word| bits.extend(word.to_le_bytes()));
        Ok(Some(Sbbf::new(&bits)))
    }
}

/// Place of a hash in a table.
#[expect(clippy::cast_possible_truncation, reason = "halves of it are what is wanted")]
fn place(hash: u64, [first, second]: [u64; 2]) -> u64 {
    let product = u128::from(hash ^ first) * u128::from(second | 1);
    product as u64 ^ (product >> 64) as u64
}

/// Sets the bits of a key's hash in the blocks of a filter, as Parquet's format defines them.
#[expect(clippy::cast_possible_truncation, reason = "the upper half chooses the block")]
fn set_bits(blocks: &mut [[u32; 8]], hash: u64) {
    let block = ((hash >> 32) * blocks.len() as u64) >> 32;
    let lower = hash as u32;
    for (word, salt) in blocks[block as usize].iter_mut().zip(SALT) {
        *word |= 1 << (lower.wrapping_mul(salt) >> 27);
    }
}

/// Filters of the row group in progress; holds the hashes of the current block's keys. Rows are added in ascending
/// order.
pub(crate) struct BlockKeys {
    granularity: u32,
    /// Probability that a filter claims a value that it does not have.
    false_positives: f64,
    /// Number of the current block.
    block: u32,
    keys: Hashes,
    has_null: bool,
    is_full: bool,
    /// Blocks that have ended, encoded.
    ended: Vec<u8>,
}

impl BlockKeys {
    pub(crate) fn new(options: Blooms) -> Self {
        // The small row groups of unit tests have blocks as large ones do.
        let largest = u32::try_from(ROW_GROUP_ROWS).unwrap_or(u32::MAX);
        Self {
            granularity: options.granularity.clamp(1, largest),
            // Half: the block that holds a value counts among those that are not excluded.
            false_positives: f64::from(options.false_positives_ppm) / 2_000_000.0,
            block: 0,
            keys: Hashes::default(),
            has_null: false,
            is_full: false,
            ended: Vec::new(),
        }
    }

    /// Adds a key of a row, or NULL. A row may have several keys.
    ///
    /// # Errors
    /// [`EngineError::Internal`].
    pub(crate) fn add(&mut self, row: u32, key: Option<&[u8]>) -> crate::error::Result<()> {
        self.add_below(BYTES_MAX, row, key)
    }

    fn add_below(
        &mut self,
        bytes_max: usize,
        row: u32,
        key: Option<&[u8]>,
    ) -> crate::error::Result<()> {
        self.end_blocks(row / self.granularity)?;
        match key {
            None => self.has_null = true,
            Some(_) if self.is_full => {}
            Some(key) => {
                self.keys.add(key);
                if self.keys.bytes() > bytes_max {
                    self.is_full = true;
                    self.keys = Hashes::default();
                }
            }
        }
        Ok(())
    }

    /// Approximate bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.keys.bytes() + self.ended.len()
    }

    /// The body of the filters of a row group with `rows` rows. Leaves it empty.
    ///
    /// # Errors
    /// [`EngineError::Internal`].
    pub(crate) fn finish(&mut self, rows: u32) -> crate::error::Result<Vec<u8>> {
        self.end_blocks(rows.div_ceil(self.granularity))?;
        self.block = 0;
        let blocks = std::mem::take(&mut self.ended);
        let mut body = Vec::with_capacity(HEADER_BYTES + blocks.len());
        body.extend(rows.to_le_bytes());
        body.extend(self.granularity.to_le_bytes());
        body.extend(blocks);
        Ok(body)
    }

    /// Ends all blocks before one.
    fn end_blocks(&mut self, next: u32) -> crate::error::Result<()> {
        while self.block < next {
            self.block += 1;
            let has_null = std::mem::take(&mut self.has_null);
            let is_full = std::mem::take(&mut self.is_full);
            let mut filter = Vec::new();
            if let Some(bits) = self.keys.filter(self.false_positives)? {
                bits.write(&mut filter).map_err(internal)?;
            }
            self.keys.clear();
            let flags = if has_null { HAS_NULL } else { 0 };
            self.ended.push(flags | if is_full { MAY_HAVE_ANY } else { 0 });
            self.ended.extend(u32::try_from(filter.len()).map_err(internal)?.to_le_bytes());
            self.ended.extend(filter);
        }
        Ok(())
    }
}

fn internal(error: impl fmt::Display) -> EngineError {
    EngineError::Internal(format!("building a bloom filter: {error}"))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const OPTIONS: Blooms = Blooms { granularity: 4, false_positives_ppm: 10_000 };

    fn built(values: &[Option<&str>], options: Blooms) -> Bytes {
        let mut keys = BlockKeys::new(options);
        for (row, value) in (0..).zip(values) {
            keys.add(row, value.map(str::as_bytes)).unwrap();
        }
        keys.finish(u32::try_from(values.len()).unwrap()).unwrap().into()
    }

    fn rows(bitmap: &RoaringBitmap) -> Vec<u32> {
        bitmap.iter().collect()
    }

    #[test]
    fn blocks_that_may_hold_a_value_are_found() {
        let values = [
            [Some("a"), Some("b"), Some("a"), None],
            [None, None, None, None],
            [Some("c"), Some("a"), Some("c"), Some("c")],
        ];
        let body = built(&values.concat()[..11], OPTIONS);
        let filters = Filters::decode(&body).unwrap();
        let any_of = |keys: &[&str], null| {
            let keys: Vec<_> = keys.iter().map(|key| key.as_bytes().to_vec()).collect();
            rows(&filters.any_of(&keys, null))
        };
        assert_eq!(any_of(&["a"], false), [0, 1, 2, 3, 8, 9, 10]);
        assert_eq!(any_of(&["b"], false), [0, 1, 2, 3]);
        assert_eq!(any_of(&["b"], true), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(any_of(&["b", "c"], false), [0, 1, 2, 3, 8, 9, 10]);
        assert!(any_of(&[], false).is_empty());
        let pair = [b"a".to_vec(), b"c".to_vec()];
        assert_eq!(rows(&filters.all_of(&pair)), [8, 9, 10]);
        assert!(filters.bytes() >= 64);
    }

    #[test]
    fn a_block_of_too_many_bytes_may_hold_anything() {
        let mut keys = BlockKeys::new(OPTIONS);
        keys.add(0, Some(b"a")).unwrap();
        for row in 4..8 {
            keys.add_below(0, row, Some(b"b")).unwrap();
        }
        keys.add(8, Some(b"c")).unwrap();
        let filters = Filters::decode(&keys.finish(9).unwrap().into()).unwrap();
        assert_eq!(rows(&filters.any_of(&[b"a".to_vec()], false)), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(rows(&filters.any_of(&[b"c".to_vec()], false)), [4, 5, 6, 7, 8]);
        // The builder begins anew.
        let filters = Filters::decode(&keys.finish(0).unwrap().into()).unwrap();
        assert!(filters.any_of(&[b"a".to_vec()], true).is_empty());
    }

    /// Files of users have these bytes: others are a mistake, or need another index kind.
    #[test]
    fn filters_never_change_their_bytes() {
        let options = Blooms { granularity: 2, ..OPTIONS };
        let body = built(&[Some("a"), None], options);
        let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
        // Rows, rows of a block; flags and length; header of Parquet; a bit of each word.
        let header = "0200000002000000012f00000015401c1c00001c1c00001c1c000000";
        let words = "0000040000000200020000000010000000000200000000010000000800000080";
        assert_eq!(hex, format!("{header}{words}"));
    }

    #[test]
    fn filters_are_those_of_the_parquet_crate() {
        for count in [1, 2, 100, 5_000] {
            let texts: Vec<String> = (0..count).map(|number| format!("value {number}")).collect();
            let mut hashes = Hashes::default();
            let mut expected = Sbbf::new_with_ndv_fpp(count, 0.005).unwrap();
            for text in texts.iter().chain(&texts) {
                hashes.add(text.as_bytes());
                expected.insert(text.as_str());
            }
            let bytes = |filter: &Sbbf| {
                let mut bytes = Vec::new();
                filter.write(&mut bytes).unwrap();
                bytes
            };
            let filter = hashes.filter(0.005).unwrap().unwrap();
            assert_eq!(bytes(&filter), bytes(&expected), "{count} values");
            hashes.clear();
            assert!(hashes.filter(0.005).unwrap().is_none());
        }
    }

    #[test]
    fn few_blocks_are_claimed_wrongly() {
        let options = Blooms { granularity: 16, ..OPTIONS };
        let texts: Vec<String> = (0..16_000).map(|number| format!("value {number}")).collect();
        let values: Vec<Option<&str>> = texts.iter().map(|text| Some(text.as_str())).collect();
        let filters = Filters::decode(&built(&values, options)).unwrap();
        let claimed: u64 = (0..1_000)
            .map(|number| filters.any_of(&[format!("other {number}").into_bytes()], false).len())
            .sum();
        // Of a million blocks of 16 rows each, one in a hundred at most.
        assert!(claimed / 16 <= 10_000, "{} blocks", claimed / 16);
    }

    #[test]
    fn bodies_that_are_cut_are_refused() {
        let body = built(&[Some("a"), None, Some("b"), None, None, Some("c")], OPTIONS);
        for end in 0..body.len() {
            assert!(Filters::decode(&body.slice(..end)).is_err(), "{end} bytes");
        }
        let longer = [&body[..], &[0]].concat();
        assert!(Filters::decode(&longer.into()).is_err());
    }

    proptest! {
        #[test]
        fn no_row_with_a_value_is_missed(
            values in vec(proptest::option::of("[a-e]{0,2}"), 1..60), granularity in 0..20_u32,
        ) {
            let texts: Vec<Option<&str>> = values.iter().map(Option::as_deref).collect();
            let options = Blooms { granularity, ..OPTIONS };
            let filters = Filters::decode(&built(&texts, options)).unwrap();
            for (row, text) in (0..).zip(&texts) {
                let keys: Vec<Vec<u8>> = text.iter().map(|text| text.as_bytes().to_vec()).collect();
                prop_assert!(filters.any_of(&keys, text.is_none()).contains(row));
                prop_assert!(filters.all_of(&keys).contains(row));
            }
        }

        #[test]
        fn other_bytes_are_refused_or_answered(
            random in vec(any::<u8>(), 0..80),
            flips in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let ask = |body: Vec<u8>| {
                if let Ok(filters) = Filters::decode(&body.into()) {
                    filters.any_of(&[b"a".to_vec()], true);
                    filters.all_of(&[b"a".to_vec()]);
                }
            };
            ask(random);
            let body = built(&[Some("a"), Some("b"), None, Some("a"), Some("c")], OPTIONS);
            let mut changed = body.to_vec();
            for (position, byte) in flips {
                let position = position.index(changed.len());
                changed[position] = byte;
            }
            ask(changed);
        }
    }
}

//! Inverted index of a row group: a dictionary of its distinct values, and for each the rows that have it. Also the
//! dictionary of terms of a full-text index, where a row has several.
//!
//! ```text
//!   body, little-endian:  rows u32 with a flag, three lengths u32, dictionary, postings, rows with NULL
//!   dictionary:           finite state transducer (fst): key -> place, which ascends with the key
//!   place:                twice an offset in the postings: of a list of gaps (`gaps.rs`); one more: of a bitmap
//!   bitmap:               RoaringBitmap's portable form
//!   former form:          without the flag; a place is the offset of a bitmap, or 1 << 40 | row for a key of one row
//! ```

use std::fmt;
use std::ops::Bound;

use bytes::{Buf, Bytes};
use fst::{IntoStreamer, Streamer};
use partita_proto::domain::{Domain, Interval};
use regex::Regex;
use roaring::RoaringBitmap;

use crate::error::EngineError;
use crate::index::dictionary::Dictionary;
use crate::index::gaps;
use crate::index::value::push;

/// Flag beside the number of rows: places are in the present form.
const PRESENT_FORM: u32 = 1 << 31;
/// Flag of a place that is a row, in the former form.
const ONE_ROW: u64 = 1 << 40;
/// Bytes of a bitmap of one container beside its rows, about.
const BITMAP_HEADER_BYTES: usize = 16;
/// Maximum bytes of the rows of a bitmap's container.
const CONTAINER_BYTES_MAX: usize = 8192;
/// Bytes in front of a body's parts.
const HEADER_BYTES: usize = 16;
/// Maximum bytes of an index in progress. A row group beyond it, of very long values, has none.
const BYTES_MAX: usize = 256 * 1024 * 1024;

/// A decoded index.
pub(crate) struct Inverted {
    rows: u32,
    /// True if places are in the former form.
    is_former: bool,
    values: fst::Map<Bytes>,
    postings: Bytes,
    nulls: RoaringBitmap,
}

impl fmt::Debug for Inverted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Inverted");
        debug.field("rows", &self.rows).field("values", &self.values.len()).finish_non_exhaustive()
    }
}

impl Inverted {
    /// Decodes a body, of which it keeps parts. `Err`: why it is none.
    pub(crate) fn decode(body: Bytes) -> Result<Self, String> {
        let mut rest = body;
        if rest.len() < HEADER_BYTES {
            return Err("an index is too short".to_owned());
        }
        let word = rest.get_u32_le();
        let (rows, is_former) = (word & !PRESENT_FORM, word & PRESENT_FORM == 0);
        let lengths = [rest.get_u32_le(), rest.get_u32_le(), rest.get_u32_le()];
        if lengths.iter().map(|length| u64::from(*length)).sum::<u64>() != rest.len() as u64 {
            return Err("the parts of an index have other lengths".to_owned());
        }
        let [values, postings, nulls] = lengths.map(|length| rest.split_to(length as usize));
        let values = fst::Map::new(values).map_err(|error| dictionary_error(&error))?;
        // A dictionary that is not one may make its reader panic.
        values.as_fst().verify().map_err(|error| dictionary_error(&error))?;
        let nulls = bitmap(&nulls, rows)?;
        Ok(Self { rows, is_former, values, postings, nulls })
    }

    /// Rows with a value of the domain, which is in the column's own type.
    pub(crate) fn within(&self, domain: &Domain) -> Result<RoaringBitmap, String> {
        let mut rows = match domain.allows_null() {
            true => self.nulls.clone(),
            false => RoaringBitmap::new(),
        };
        for interval in domain.intervals() {
            self.add_interval(interval, &mut rows)?;
        }
        Ok(rows)
    }

    fn add_interval(&self, interval: &Interval, rows: &mut RoaringBitmap) -> Result<(), String> {
        let mut bytes = Vec::new();
        match (&interval.low, &interval.high) {
            (Bound::Unbounded, Bound::Unbounded) => {
                let mut group = RoaringBitmap::new();
                group.insert_range(0..self.rows);
                *rows |= group - &self.nulls;
                return Ok(());
            }
            (Bound::Included(low), Bound::Included(high)) if low == high => {
                push(low, &mut bytes);
                return match self.values.get(&bytes) {
                    Some(place) => self.add(place, rows),
                    None => Ok(()),
                };
            }
            _ => {}
        }
        let range = self.values.range();
        let range = match &interval.low {
            Bound::Unbounded => range,
            Bound::Included(low) => {
                push(low, &mut bytes);
                range.ge(&bytes)
            }
            Bound::Excluded(low) => {
                push(low, &mut bytes);
                range.gt(&bytes)
            }
        };
        bytes.clear();
        let range = match &interval.high {
            Bound::Unbounded => range,
            Bound::Included(high) => {
                push(high, &mut bytes);
                range.le(&bytes)
            }
            Bound::Excluded(high) => {
                push(high, &mut bytes);
                range.lt(&bytes)
            }
        };
        let mut stream = range.into_stream();
        while let Some((_, place)) = stream.next() {
            self.add(place, rows)?;
        }
        Ok(())
    }

    /// Rows with a text that matches the pattern.
    pub(crate) fn matching(&self, pattern: &Regex) -> Result<RoaringBitmap, String> {
        let mut rows = RoaringBitmap::new();
        let mut stream = self.values.stream();
        while let Some((key, place)) = stream.next() {
            if std::str::from_utf8(key).is_ok_and(|text| pattern.is_match(text)) {
                self.add(place, &mut rows)?;
            }
        }
        Ok(rows)
    }

    /// Rows with a key; `None` if no row has it.
    pub(crate) fn of_key(&self, key: &[u8]) -> Result<Option<RoaringBitmap>, String> {
        let Some(place) = self.values.get(key) else { return Ok(None) };
        let mut rows = RoaringBitmap::new();
        self.add(place, &mut rows)?;
        Ok(Some(rows))
    }

    /// Approximate bytes in memory.
    pub(crate) fn bytes(&self) -> u64 {
        let parts =
            self.values.as_fst().size() + self.postings.len() + self.nulls.serialized_size();
        (size_of::<Self>() + parts) as u64
    }

    /// Adds the rows of a place in the dictionary.
    fn add(&self, place: u64, rows: &mut RoaringBitmap) -> Result<(), String> {
        let wrong = || "a dictionary points beyond its postings".to_owned();
        if self.is_former && place & ONE_ROW != 0 {
            let row = u32::try_from(place ^ ONE_ROW).ok().filter(|row| *row < self.rows);
            rows.insert(row.ok_or_else(wrong)?);
            return Ok(());
        }
        let (offset, is_bitmap) = match self.is_former {
            true => (place, true),
            false => (place >> 1, place & 1 != 0),
        };
        let posting = usize::try_from(offset).ok().and_then(|offset| self.postings.get(offset..));
        let posting = posting.ok_or_else(wrong)?;
        if is_bitmap {
            *rows |= bitmap(posting, self.rows)?;
        } else {
            let list = gaps::decode(posting, self.rows)
                .ok_or_else(|| "a list of rows of an index does not decode".to_owned())?;
            rows.extend(list);
        }
        Ok(())
    }
}

/// Reads the bitmap at the beginning of some bytes, of a row group with `rows` rows.
fn bitmap(bytes: &[u8], rows: u32) -> Result<RoaringBitmap, String> {
    let bitmap = RoaringBitmap::deserialize_from(bytes)
        .map_err(|error| format!("a bitmap of an index does not decode: {error}"))?;
    match bitmap.max() {
        Some(last) if last >= rows => Err("a bitmap of an index has rows beyond its group".into()),
        _ => Ok(bitmap),
    }
}

fn dictionary_error(error: &fst::Error) -> String {
    format!("the dictionary of an index does not decode: {error}")
}

fn internal(error: impl fmt::Display) -> EngineError {
    EngineError::Internal(format!("building an index: {error}"))
}

/// Rows by the distinct keys of the row group in progress. Rows are added in ascending order.
#[derive(Default)]
pub(crate) struct Postings {
    dictionary: Dictionary,
    /// For each key: number of its rows, and the last one.
    rows: Vec<(u32, u32)>,
    /// Numbers of keys with their rows, in order of rows.
    pairs: Vec<(u32, u32)>,
    nulls: RoaringBitmap,
    /// True if it has exceeded its limit, and is given up.
    is_full: bool,
}

impl Postings {
    /// Adds a key of a row. A row may have several keys, and the same one several times.
    pub(crate) fn add(&mut self, row: u32, key: &[u8]) {
        self.add_below(BYTES_MAX, row, key);
    }

    fn add_below(&mut self, bytes_max: usize, row: u32, key: &[u8]) {
        if self.is_full {
            return;
        }
        let number = self.dictionary.number(key);
        match self.rows.get_mut(number) {
            Some((_, last)) if *last == row => return,
            Some((count, last)) => (*count, *last) = (*count + 1, row),
            None => self.rows.push((1, row)),
        }
        // So many keys exceed the limit.
        self.pairs.push((u32::try_from(number).unwrap_or(u32::MAX), row));
        if self.bytes() > bytes_max {
            *self = Self { is_full: true, ..Self::default() };
        }
    }

    /// Adds a row with NULL.
    pub(crate) fn add_null(&mut self, row: u32) {
        if !self.is_full {
            self.nulls.insert(row);
        }
    }

    /// Approximate bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let pair = size_of::<(u32, u32)>();
        self.dictionary.bytes() + (self.rows.len() + self.pairs.len()) * pair
    }

    /// The body of the index of a row group with `rows` rows; empty if its keys exceed the limit. Leaves it empty.
    ///
    /// # Errors
    /// [`EngineError::Internal`].
    pub(crate) fn finish(&mut self, rows: u32) -> crate::error::Result<Vec<u8>> {
        let Self { dictionary, rows: counts, pairs, mut nulls, is_full } = std::mem::take(self);
        if is_full {
            return Ok(Vec::new());
        }
        if rows >= PRESENT_FORM {
            return Err(internal(format!("{rows} rows in a group")));
        }
        let grouped = Grouped::new(&counts, &pairs);
        let mut order: Vec<usize> = (0..dictionary.len()).collect();
        order.sort_unstable_by(|a, b| dictionary.key(*a).cmp(dictionary.key(*b)));
        let (mut values, mut postings) = (fst::MapBuilder::memory(), Vec::new());
        for number in order {
            let place = push_rows(grouped.of(number), rows, &mut postings)?;
            values.insert(dictionary.key(number), place).map_err(internal)?;
        }
        let values = values.into_inner().map_err(internal)?;
        let mut null_bytes = Vec::new();
        nulls.optimize();
        nulls.serialize_into(&mut null_bytes).map_err(internal)?;
        let parts = [values, postings, null_bytes];
        let mut body = Vec::with_capacity(HEADER_BYTES + parts.iter().map(Vec::len).sum::<usize>());
        body.extend((rows | PRESENT_FORM).to_le_bytes());
        for part in &parts {
            body.extend(u32::try_from(part.len()).map_err(internal)?.to_le_bytes());
        }
        parts.iter().for_each(|part| body.extend_from_slice(part));
        Ok(body)
    }
}

/// Appends the rows of a key, of a group with `total` rows, in the shorter form; returns their place.
fn push_rows(rows: &[u32], total: u32, postings: &mut Vec<u8>) -> crate::error::Result<u64> {
    let start = postings.len();
    gaps::encode(rows, total, postings);
    let length = postings.len() - start;
    let runs = 1 + rows.windows(2).filter(|pair| pair[1] - pair[0] != 1).count();
    let bitmap_bytes = (2 * rows.len()).min(4 * runs).min(CONTAINER_BYTES_MAX);
    if length > BITMAP_HEADER_BYTES + bitmap_bytes {
        let mut bitmap = RoaringBitmap::from_sorted_iter(rows.iter().copied()).map_err(internal)?;
        bitmap.optimize();
        if bitmap.serialized_size() < length {
            postings.truncate(start);
            bitmap.serialize_into(postings).map_err(internal)?;
            return Ok(2 * start as u64 + 1);
        }
    }
    Ok(2 * start as u64)
}

/// Rows grouped by the numbers of their keys.
struct Grouped {
    rows: Vec<u32>,
    /// End of the rows of each key.
    ends: Vec<usize>,
}

impl Grouped {
    fn new(counts: &[(u32, u32)], pairs: &[(u32, u32)]) -> Self {
        // Starts at first; each moves to the end as its rows are put in.
        let mut ends = Vec::with_capacity(counts.len());
        let mut total = 0;
        for (count, _) in counts {
            ends.push(total);
            total += *count as usize;
        }
        let mut rows = vec![0; total];
        for (number, row) in pairs {
            let end = &mut ends[*number as usize];
            rows[*end] = *row;
            *end += 1;
        }
        Self { rows, ends }
    }

    fn of(&self, number: usize) -> &[u32] {
        let start = number.checked_sub(1).map_or(0, |previous| self.ends[previous]);
        &self.rows[start..self.ends[number]]
    }
}

#[cfg(test)]
mod tests {
    use partita_proto::value::Value;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn built(values: &[Option<&str>]) -> Bytes {
        let mut postings = Postings::default();
        for (row, value) in (0..).zip(values) {
            match value {
                Some(value) => postings.add(row, value.as_bytes()),
                None => postings.add_null(row),
            }
        }
        postings.finish(u32::try_from(values.len()).unwrap()).unwrap().into()
    }

    fn text(value: &str) -> Value {
        Value::String(value.to_owned())
    }

    fn rows(bitmap: &RoaringBitmap) -> Vec<u32> {
        bitmap.iter().collect()
    }

    #[test]
    fn rows_are_found_by_value() {
        let values = [Some("b"), None, Some("a"), Some("b"), Some(""), None, Some("ba")];
        let index = Inverted::decode(built(&values)).unwrap();
        let within = |domain: &Domain| rows(&index.within(domain).unwrap());
        assert_eq!(within(&Domain::point(text("b"))), [0, 3]);
        assert_eq!(within(&Domain::point(text(""))), [4]);
        assert!(within(&Domain::point(text("x"))).is_empty());
        assert_eq!(within(&Domain::null_only()), [1, 5]);
        assert_eq!(within(&Domain::not_null()), [0, 2, 3, 4, 6]);
        assert_eq!(within(&Domain::all()), [0, 1, 2, 3, 4, 5, 6]);
        assert!(within(&Domain::none()).is_empty());
        let from_b = Domain::interval(Bound::Included(text("b")), Bound::Unbounded);
        assert_eq!(within(&from_b), [0, 3, 6]);
        let between = Domain::interval(Bound::Excluded(text("")), Bound::Excluded(text("b")));
        assert_eq!(within(&between), [2]);
        let pattern = Regex::new("^b.?$").unwrap();
        assert_eq!(rows(&index.matching(&pattern).unwrap()), [0, 3, 6]);
        assert_eq!(index.of_key(b"ba").unwrap().as_ref().map(rows), Some(vec![6]));
        assert_eq!(index.of_key(b"bb").unwrap(), None);
        assert!(index.bytes() > 50);
    }

    #[test]
    fn a_row_may_have_several_keys_and_one_of_them_twice() {
        let mut postings = Postings::default();
        for (row, key) in [(0, "a"), (0, "b"), (0, "a"), (1, "b"), (3, "a")] {
            postings.add(row, key.as_bytes());
        }
        let index = Inverted::decode(postings.finish(4).unwrap().into()).unwrap();
        assert_eq!(index.of_key(b"a").unwrap().as_ref().map(rows), Some(vec![0, 3]));
        assert_eq!(index.of_key(b"b").unwrap().as_ref().map(rows), Some(vec![0, 1]));
        // The builder begins anew.
        let index = Inverted::decode(postings.finish(0).unwrap().into()).unwrap();
        assert_eq!(index.of_key(b"a").unwrap(), None);
    }

    #[test]
    fn a_group_of_too_many_bytes_has_no_index_and_the_next_one_has() {
        let mut postings = Postings::default();
        for row in 0..1_000 {
            postings.add_below(4_096, row, row.to_string().as_bytes());
        }
        postings.add_null(1_000);
        assert!(postings.bytes() < 4_096);
        assert!(postings.finish(1_001).unwrap().is_empty());
        postings.add(0, b"a");
        let index = Inverted::decode(postings.finish(1).unwrap().into()).unwrap();
        assert_eq!(index.of_key(b"a").unwrap().as_ref().map(rows), Some(vec![0]));
    }

    #[test]
    fn bodies_that_are_cut_are_refused() {
        let body = built(&[Some("a"), Some("b"), Some("a"), None]);
        for end in 0..body.len() {
            assert!(Inverted::decode(body.slice(..end)).is_err(), "{end} bytes");
        }
        let mut fewer = body.to_vec();
        fewer[0] = 3;
        assert!(Inverted::decode(fewer.into()).is_err(), "a row of NULL is beyond the group");
    }

    /// Files of users have these bytes: others are a mistake, or need another index kind.
    #[test]
    fn indexes_never_change_their_bytes() {
        let body = built(&[Some("a"), Some("a"), Some("b"), None]);
        let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
        let header = "040000802c0000000200000012000000";
        // Version and type; the outputs, targets and inputs of two transitions; number of keys, root, checksum.
        let keys = "030000000000000000000000000000000200000062611102";
        let end = "02000000000000001700000000000000d7e3da0f";
        let (lists, nulls) = ("1a05", "3a3000000100000000000000100000000300");
        assert_eq!(hex, format!("{header}{keys}{end}{lists}{nulls}"));
    }

    #[test]
    fn the_former_form_is_read() {
        let header = "04000000360000001400000012000000";
        let keys = "03000000000000000000000000000000020000000001000000000000000062611602";
        let end = "02000000000000002100000000000000bf1191da";
        let (rows_of_a, nulls) =
            ("3a30000001000000000001001000000000000100", "3a3000000100000000000000100000000300");
        let hex = format!("{header}{keys}{end}{rows_of_a}{nulls}");
        let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        let body: Vec<u8> = digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
        let index = Inverted::decode(body.into()).unwrap();
        assert_eq!(index.of_key(b"a").unwrap().as_ref().map(rows), Some(vec![0, 1]));
        assert_eq!(index.of_key(b"b").unwrap().as_ref().map(rows), Some(vec![2]));
        assert_eq!(rows(&index.within(&Domain::null_only()).unwrap()), [3]);
    }

    #[test]
    fn rows_of_all_shapes_come_back() {
        // Scattered, in runs, alone, nearly all.
        let value = |row: u32| match row % 5_000 {
            0..100 => "run",
            100 => "rare",
            _ if (row * 7_919).is_multiple_of(1_009) => "scattered",
            _ if row == 77_777 => "alone",
            _ => "all",
        };
        let values: Vec<Option<&str>> = (0..100_000).map(|row| Some(value(row))).collect();
        let body = built(&values);
        assert!(body.len() < 20_000, "{} bytes", body.len());
        let index = Inverted::decode(body).unwrap();
        for key in ["run", "rare", "scattered", "alone", "all"] {
            let expected: Vec<u32> = (0..100_000).filter(|row| value(*row) == key).collect();
            assert!(!expected.is_empty());
            assert_eq!(rows(&index.of_key(key.as_bytes()).unwrap().unwrap()), expected, "{key}");
        }
    }

    #[test]
    fn many_rows_of_one_value_take_few_bytes() {
        let body = built(&vec![Some("same"); 100_000]);
        assert!(body.len() < 200, "{} bytes", body.len());
        let index = Inverted::decode(body).unwrap();
        assert_eq!(index.of_key(b"same").unwrap().unwrap().len(), 100_000);
    }

    proptest! {
        #[test]
        fn every_domain_is_answered_exactly(
            values in vec(proptest::option::of("[ab]{0,2}"), 0..60),
            low in "[ab]{0,2}", high in "[ab]{0,2}", null in any::<bool>(), kinds in 0..9_u8,
        ) {
            let bound = |kind: u8, value: &str| match kind {
                0 => Bound::Unbounded,
                1 => Bound::Included(text(value)),
                _ => Bound::Excluded(text(value)),
            };
            let domain = Domain::interval(bound(kinds % 3, &low), bound(kinds / 3, &high));
            let domain = domain.with_null(null);
            let texts: Vec<Option<&str>> = values.iter().map(Option::as_deref).collect();
            let index = Inverted::decode(built(&texts)).unwrap();
            let expected: Vec<u32> = (0..)
                .zip(&texts)
                .filter(|(_, value)| domain.contains(&value.map_or(Value::Null, text)))
                .map(|(row, _)| row)
                .collect();
            prop_assert_eq!(rows(&index.within(&domain).unwrap()), expected);
        }

        #[test]
        fn other_bytes_are_refused_or_answered(
            random in vec(any::<u8>(), 0..80),
            flips in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let ask = |body: Vec<u8>| {
                if let Ok(index) = Inverted::decode(body.into()) {
                    drop(index.within(&Domain::not_null()));
                    drop(index.matching(&Regex::new("a").unwrap()));
                    drop(index.of_key(b"a"));
                }
            };
            ask(random);
            let mut body = built(&[Some("a"), Some("b"), Some("a"), None]).to_vec();
            for (position, byte) in flips {
                let position = position.index(body.len());
                body[position] = byte;
            }
            ask(body);
        }
    }
}

//! Measures of one column.
//!
//! The time goes into hashes, so a value that equals the one of the row before is not hashed: in the order of the key
//! tags hardly ever change. The bounds of numbers come from Arrow's kernels.

use arrow::array::{
    Array, ArrowNativeTypeOp, ArrowNumericType, AsArray, BooleanArray, FixedSizeBinaryArray,
    GenericByteViewArray, PrimitiveArray, make_comparator,
};
use arrow::compute::{SortOptions, max, max_boolean, min, min_boolean};
use arrow::datatypes::{
    BinaryViewType, ByteViewType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, StringViewType, Time64MicrosecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};

use super::lengths::{BUCKETS, bucket, quantile};
use super::sample::{Recent, Sampled, add_sampled, counted, hash_bytes, hash_word};
use crate::array::arrow_error;
use crate::cardinality::Distinct;
use crate::error::Error;
use crate::lists::row_bytes;
use crate::neighbour::widen;
use crate::schema::{ColumnType, Unit};
use crate::uuid::UUID_BYTES;
use crate::value::Value;

/// Bits that select a register of the distinct values: a standard error of 1.6 %, in at most 4 KiB.
pub(crate) const DISTINCT_PRECISION: u32 = 12;
/// Bytes of an interval.
const INTERVAL_BYTES: usize = 16;
/// Maximum bytes of a text in a sample.
const SAMPLED_BYTES_MAX: usize = 128;
/// Maximum bytes of a text that is a bound.
const BOUND_BYTES_MAX: usize = 64;

/// Measures of the values of one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnMeasures {
    /// Values that are not NULL.
    pub values: u64,
    /// Rows with NULL in the column.
    pub nulls: u64,
    /// Distinct values, without NULL: exact up to 512, then with a standard error of 1.6 %.
    pub distinct: Distinct,
    /// Bytes of the values, uncompressed.
    pub bytes: u64,
    /// Texts and bytes: number of values by the number of bits of their length in bytes, 33 buckets. Empty for other
    /// types, and without values.
    pub lengths: Vec<u64>,
    /// Length of the longest text in bytes; 0 for other types.
    pub length_max: u64,
    /// The [`SAMPLE_MAX`](super::SAMPLE_MAX) distinct values with the smallest hashes, in the order of these; texts are
    /// cut at 128 bytes.
    pub sample: Vec<Sampled>,
    /// Smallest value; a text is cut at 64 bytes.
    pub min: Option<Value>,
    /// Largest value; a text is cut at 64 bytes, so that it may lie below the largest one.
    pub max: Option<Value>,
    /// Rows of `compared` whose value is at least the one of the row that was written before.
    pub ascending: u64,
    /// Rows of a sample that were compared with the row of the sample that was written before.
    pub compared: u64,
}

impl Default for ColumnMeasures {
    fn default() -> Self {
        Self {
            values: 0,
            nulls: 0,
            distinct: Distinct::new(DISTINCT_PRECISION),
            bytes: 0,
            lengths: Vec::new(),
            length_max: 0,
            sample: Vec::new(),
            min: None,
            max: None,
            ascending: 0,
            compared: 0,
        }
    }
}

impl ColumnMeasures {
    /// Share of NULLs in all rows; 0 without rows.
    pub fn null_share(&self) -> f64 {
        share(self.nulls, self.values.saturating_add(self.nulls))
    }

    /// The length in bytes that a share of the texts does not exceed, rounded up to one less than a power of two or to
    /// the longest; 0 for other types.
    pub fn length_quantile(&self, share: f64) -> u64 {
        quantile(&self.lengths, share, self.length_max)
    }

    /// Mean length of the values in bytes; 0 without values.
    pub fn mean_length(&self) -> f64 {
        share(self.bytes, self.values)
    }

    /// Share of the sampled texts that are a number or a Boolean; 0 without texts.
    pub fn numeric_share(&self) -> f64 {
        let texts = self.sample.iter().filter_map(|sampled| match &sampled.value {
            Value::String(text) => Some(text.trim()),
            _ => None,
        });
        let (mut total, mut numeric) = (0, 0);
        for text in texts {
            total += 1;
            numeric += u64::from(is_numeric(text));
        }
        share(numeric, total)
    }

    /// Adds values in the Arrow form of their type. Sets `starts` of each row whose value differs from that of the row
    /// before, as far as it has a place for the row.
    pub(crate) fn add(&mut self, column_type: ColumnType, array: &dyn Array, starts: &mut [bool]) {
        let nulls = array.null_count();
        self.nulls += nulls as u64;
        self.values += (array.len() - nulls) as u64;
        match column_type {
            ColumnType::Bool => self.add_flags(array.as_boolean(), starts),
            ColumnType::Int8 => self.add_signed::<Int8Type>(array, Value::Int, starts),
            ColumnType::Int16 => self.add_signed::<Int16Type>(array, Value::Int, starts),
            ColumnType::Int32 => self.add_signed::<Int32Type>(array, Value::Int, starts),
            ColumnType::Int64 => self.add_signed::<Int64Type>(array, Value::Int, starts),
            ColumnType::UInt8 => self.add_unsigned::<UInt8Type>(array, starts),
            ColumnType::UInt16 => self.add_unsigned::<UInt16Type>(array, starts),
            ColumnType::UInt32 => self.add_unsigned::<UInt32Type>(array, starts),
            ColumnType::UInt64 => self.add_unsigned::<UInt64Type>(array, starts),
            ColumnType::Float32 => self.add_numbers::<Float32Type>(
                array.as_primitive(),
                &Form {
                    plain: plain_f32,
                    hash: |number: f32| hash_word(u64::from(number.to_bits())),
                    value: |number: f32| Value::Float(widen(number)),
                },
                starts,
            ),
            ColumnType::Float64 => self.add_numbers::<Float64Type>(
                array.as_primitive(),
                &Form {
                    plain: plain_f64,
                    hash: |number: f64| hash_word(number.to_bits()),
                    value: Value::Float,
                },
                starts,
            ),
            ColumnType::Decimal(..) => self.add_numbers::<Decimal128Type>(
                array.as_primitive(),
                &Form {
                    plain: |number: i128| number,
                    hash: |number: i128| hash_bytes(&number.to_le_bytes()),
                    value: Value::Decimal,
                },
                starts,
            ),
            ColumnType::String => self.add_texts(array.as_byte_view::<StringViewType>(), starts),
            ColumnType::Binary => self.add_texts(array.as_byte_view::<BinaryViewType>(), starts),
            ColumnType::Date => self.add_signed::<Date32Type>(array, date, starts),
            ColumnType::Timestamp(unit, _) => self.add_times(unit, array, starts),
            ColumnType::Time => {
                self.add_signed::<Time64MicrosecondType>(array, Value::Int, starts);
            }
            ColumnType::Uuid => self.add_uuids(array.as_fixed_size_binary(), starts),
            ColumnType::Array(_) => {
                let bytes = row_bytes(array.as_list::<i32>()).into_iter().sum::<usize>();
                self.add_bytes(bytes, array.len(), starts);
            }
            ColumnType::Interval => {
                let bytes = (array.len() - nulls) * INTERVAL_BYTES;
                self.add_bytes(bytes, array.len(), starts);
            }
        }
    }

    fn add_times(&mut self, unit: Unit, array: &dyn Array, starts: &mut [bool]) {
        let value = Value::Timestamp;
        match unit {
            Unit::Second => self.add_signed::<TimestampSecondType>(array, value, starts),
            Unit::Millisecond => self.add_signed::<TimestampMillisecondType>(array, value, starts),
            Unit::Microsecond => self.add_signed::<TimestampMicrosecondType>(array, value, starts),
            Unit::Nanosecond => self.add_signed::<TimestampNanosecondType>(array, value, starts),
        }
    }

    fn add_signed<T>(&mut self, array: &dyn Array, value: fn(i64) -> Value, starts: &mut [bool])
    where
        T: ArrowNumericType,
        T::Native: Into<i64>,
    {
        let form = Form {
            plain: |number: T::Native| number,
            hash: |number: T::Native| {
                let wide: i64 = number.into();
                hash_word(wide.cast_unsigned())
            },
            value: |number: T::Native| value(number.into()),
        };
        self.add_numbers::<T>(array.as_primitive(), &form, starts);
    }

    fn add_unsigned<T>(&mut self, array: &dyn Array, starts: &mut [bool])
    where
        T: ArrowNumericType,
        T::Native: Into<u64>,
    {
        let form = Form {
            plain: |number: T::Native| number,
            hash: |number: T::Native| hash_word(number.into()),
            value: |number: T::Native| Value::UInt(number.into()),
        };
        self.add_numbers::<T>(array.as_primitive(), &form, starts);
    }

    fn add_numbers<T: ArrowNumericType>(
        &mut self,
        array: &PrimitiveArray<T>,
        form: &Form<
            impl Fn(T::Native) -> T::Native,
            impl Fn(T::Native) -> u64,
            impl Fn(T::Native) -> Value,
        >,
        starts: &mut [bool],
    ) {
        let mut recent = Recent::default();
        let mut previous = None;
        for (row, number) in array.values().iter().enumerate() {
            let current = array.is_valid(row).then_some(*number);
            if row > 0 && is_same(previous, current) {
                continue;
            }
            previous = current;
            mark(starts, row);
            if let Some(number) = current {
                let plain = (form.plain)(number);
                self.note(&mut recent, (form.hash)(plain), || (form.value)(plain));
            }
        }
        let count = array.len() - array.null_count();
        self.bytes += (count * size_of::<T::Native>()) as u64;
        self.widen(min(array).map(&form.value), max(array).map(&form.value));
    }

    fn add_flags(&mut self, array: &BooleanArray, starts: &mut [bool]) {
        let mut recent = Recent::default();
        let mut previous = None;
        for row in 0..array.len() {
            let current = array.is_valid(row).then(|| array.value(row));
            if row > 0 && current == previous {
                continue;
            }
            previous = current;
            mark(starts, row);
            if let Some(flag) = current {
                self.note(&mut recent, hash_word(u64::from(flag)), || Value::Bool(flag));
            }
        }
        self.bytes += (array.len() - array.null_count()) as u64;
        self.widen(min_boolean(array).map(Value::Bool), max_boolean(array).map(Value::Bool));
    }

    fn add_uuids(&mut self, array: &FixedSizeBinaryArray, starts: &mut [bool]) {
        let mut recent = Recent::default();
        let mut previous = None;
        let (mut low, mut high): (Option<&[u8]>, Option<&[u8]>) = (None, None);
        for row in 0..array.len() {
            let current = array.is_valid(row).then(|| array.value(row));
            if row > 0 && current == previous {
                continue;
            }
            previous = current;
            mark(starts, row);
            if let Some(bytes) = current {
                self.note(&mut recent, hash_bytes(bytes), || Value::Binary(bytes.to_vec()));
                low = Some(low.map_or(bytes, |low| low.min(bytes)));
                high = Some(high.map_or(bytes, |high| high.max(bytes)));
            }
        }
        self.bytes += ((array.len() - array.null_count()) * UUID_BYTES) as u64;
        let value = |bytes: &[u8]| Value::Binary(bytes.to_vec());
        self.widen(low.map(value), high.map(value));
    }

    /// Arrays and intervals have bytes, but no bounds, no sample and no distinct values: no value stands for one.
    fn add_bytes(&mut self, bytes: usize, rows: usize, starts: &mut [bool]) {
        self.bytes += bytes as u64;
        starts.iter_mut().take(rows).for_each(|start| *start = true);
    }

    fn add_texts<T: ByteViewType>(&mut self, array: &GenericByteViewArray<T>, starts: &mut [bool]) {
        if array.null_count() < array.len() {
            self.lengths.resize(BUCKETS, 0);
        }
        let mut recent = Recent::default();
        let mut was_valid = false;
        let (mut low, mut high): (Option<&[u8]>, Option<&[u8]>) = (None, None);
        for (row, length) in array.lengths().enumerate() {
            let is_valid = array.is_valid(row);
            if is_valid {
                self.bytes += u64::from(length);
                self.lengths[bucket(length)] += 1;
                self.length_max = self.length_max.max(u64::from(length));
            }
            let is_repeated =
                row > 0 && is_valid == was_valid && (!is_valid || is_equal(array, row - 1, row));
            if is_repeated {
                continue;
            }
            was_valid = is_valid;
            mark(starts, row);
            if is_valid {
                let bytes: &[u8] = array.value(row).as_ref();
                self.note(&mut recent, hash_bytes(bytes), || {
                    text::<T>(cut::<T>(bytes, SAMPLED_BYTES_MAX))
                });
                // Bounds are compared as they are kept, so that they do not depend on the order of merges.
                let bound = cut::<T>(bytes, BOUND_BYTES_MAX);
                low = Some(low.map_or(bound, |low| low.min(bound)));
                high = Some(high.map_or(bound, |high| high.max(bound)));
            }
        }
        self.widen(low.map(text::<T>), high.map(text::<T>));
    }

    /// Counts and samples a value, unless it was seen before.
    fn note(&mut self, recent: &mut Recent, hash: u64, value: impl FnOnce() -> Value) {
        if recent.is_new(hash) {
            self.distinct.add(counted(hash));
            add_sampled(&mut self.sample, hash, value);
        }
    }

    /// Moves the bounds apart as far as necessary.
    fn widen(&mut self, low: Option<Value>, high: Option<Value>) {
        if let Some(low) = low
            && self.min.as_ref().is_none_or(|min| low < *min)
        {
            self.min = Some(low);
        }
        if let Some(high) = high
            && self.max.as_ref().is_none_or(|max| high > *max)
        {
            self.max = Some(high);
        }
    }

    /// Compares the values of pairs of rows, the earlier one first.
    ///
    /// # Errors
    /// [`Error::Internal`] for a type that has no order.
    pub(crate) fn compare(
        &mut self,
        array: &dyn Array,
        pairs: &[(usize, usize)],
    ) -> Result<(), Error> {
        if pairs.is_empty() {
            return Ok(());
        }
        let compare = make_comparator(array, array, SortOptions::default())
            .map_err(|error| arrow_error(&error))?;
        for (earlier, later) in pairs {
            if array.is_valid(*earlier) && array.is_valid(*later) {
                self.compared += 1;
                self.ascending += u64::from(compare(*later, *earlier).is_ge());
            }
        }
        Ok(())
    }

    /// Adds the values of other measures of the column.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.values = self.values.saturating_add(other.values);
        self.nulls = self.nulls.saturating_add(other.nulls);
        self.distinct.merge(&other.distinct);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.lengths.resize(self.lengths.len().max(other.lengths.len()), 0);
        for (count, added) in self.lengths.iter_mut().zip(&other.lengths) {
            *count = count.saturating_add(*added);
        }
        self.length_max = self.length_max.max(other.length_max);
        for sampled in &other.sample {
            add_sampled(&mut self.sample, sampled.hash, || sampled.value.clone());
        }
        self.widen(other.min.clone(), other.max.clone());
        self.ascending = self.ascending.saturating_add(other.ascending);
        self.compared = self.compared.saturating_add(other.compared);
    }

    /// Approximate bytes of the measures in messages.
    pub(crate) fn size_bytes(&self) -> usize {
        const FIGURES_BYTES: usize = 64;
        const SAMPLED_BYTES: usize = 16;
        let bytes = |value: &Value| match value {
            Value::String(text) => SAMPLED_BYTES + text.len(),
            Value::Binary(bytes) => SAMPLED_BYTES + bytes.len(),
            _ => SAMPLED_BYTES,
        };
        let sample: usize = self.sample.iter().map(|sampled| bytes(&sampled.value)).sum();
        let bounds: usize = self.min.iter().chain(&self.max).map(bytes).sum();
        FIGURES_BYTES + self.distinct.size_bytes() + 2 * self.lengths.len() + sample + bounds
    }
}

/// The forms of a number: `plain` is one for all numbers that count as equal.
struct Form<P, H, V> {
    plain: P,
    hash: H,
    value: V,
}

fn mark(starts: &mut [bool], row: usize) {
    if let Some(start) = starts.get_mut(row) {
        *start = true;
    }
}

fn is_same<N: ArrowNativeTypeOp>(previous: Option<N>, current: Option<N>) -> bool {
    match (previous, current) {
        (Some(previous), Some(current)) => previous.is_eq(current),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// True if the values of two rows, neither of them NULL, are equal.
fn is_equal<T: ByteViewType>(array: &GenericByteViewArray<T>, row: usize, next: usize) -> bool {
    let difference = array.views()[row] ^ array.views()[next];
    // The lower half of a view has the length and the first bytes: mostly they decide.
    if difference == 0 || (difference << 64) != 0 {
        return difference == 0;
    }
    let value: &[u8] = array.value(row).as_ref();
    let following: &[u8] = array.value(next).as_ref();
    value == following
}

/// The beginning of a text or of bytes; a text is cut between two characters.
fn cut<T: ByteViewType>(bytes: &[u8], bytes_max: usize) -> &[u8] {
    if bytes.len() <= bytes_max {
        return bytes;
    }
    let mut end = bytes_max;
    // Bytes of UTF-8 that continue a character begin with the bits 10.
    while T::IS_UTF8 && end > 0 && bytes[end] & 0xC0 == 0x80 {
        end -= 1;
    }
    &bytes[..end]
}

fn text<T: ByteViewType>(bytes: &[u8]) -> Value {
    if T::IS_UTF8 {
        Value::String(String::from_utf8_lossy(bytes).into_owned())
    } else {
        Value::Binary(bytes.to_vec())
    }
}

fn date(days: i64) -> Value {
    Value::Date(i32::try_from(days).unwrap_or(i32::MAX))
}

/// One number for both zeros, and one for all NaNs.
fn plain_f64(number: f64) -> f64 {
    if number.is_nan() {
        f64::NAN
    } else if number == 0.0 {
        0.0
    } else {
        number
    }
}

/// As [`plain_f64`].
fn plain_f32(number: f32) -> f32 {
    if number.is_nan() {
        f32::NAN
    } else if number == 0.0 {
        0.0
    } else {
        number
    }
}

/// True for the text of an integer, of another finite number, or of a Boolean.
fn is_numeric(text: &str) -> bool {
    text.parse::<i64>().is_ok()
        || text.parse::<f64>().is_ok_and(f64::is_finite)
        || text.eq_ignore_ascii_case("true")
        || text.eq_ignore_ascii_case("false")
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use arrow::array::{BinaryViewArray, Float64Array, Int64Array, StringViewArray};

    use super::*;

    fn texts(values: &[Option<&str>]) -> ColumnMeasures {
        let mut measures = ColumnMeasures::default();
        let array: StringViewArray = values.iter().copied().collect();
        measures.add(ColumnType::String, &array, &mut []);
        measures
    }

    fn sampled(measures: &ColumnMeasures) -> Vec<Value> {
        let mut values: Vec<Value> =
            measures.sample.iter().map(|sampled| sampled.value.clone()).collect();
        values.sort();
        values
    }

    fn string(text: &str) -> Value {
        Value::String(text.to_owned())
    }

    #[test]
    fn texts_are_measured() {
        let long = "x".repeat(100);
        let longer = format!("{long}y");
        let values =
            [Some("b"), Some("b"), None, Some(""), Some(longer.as_str()), Some(long.as_str())];
        let measures = texts(&values);
        assert_eq!((measures.values, measures.nulls), (5, 1));
        assert_eq!(measures.distinct.count(), 4);
        assert_eq!((measures.bytes, measures.length_max), (203, 101));
        assert_eq!((measures.length_quantile(0.5), measures.length_quantile(0.95)), (1, 101));
        assert_eq!(measures.min, Some(string("")));
        assert_eq!(measures.max, Some(string(&"x".repeat(64))));
        assert_eq!(sampled(&measures), [string(""), string("b"), string(&long), string(&longer)]);
        assert!((measures.null_share() - 1.0 / 6.0).abs() < 1e-9);
        assert!((measures.mean_length() - 40.6).abs() < 1e-9);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        let text = format!("{}é{}", "a".repeat(63), "é".repeat(40));
        let measures = texts(&[Some(&text)]);
        assert_eq!(measures.max, Some(string(&"a".repeat(63))));
        let cut = format!("{}{}", "a".repeat(63), "é".repeat(32));
        assert_eq!(measures.sample[0].value, string(&cut), "127 bytes");
        let mut measures = ColumnMeasures::default();
        let array = BinaryViewArray::from_iter_values([[0x80_u8; 200]]);
        measures.add(ColumnType::Binary, &array, &mut []);
        assert_eq!(measures.max, Some(Value::Binary(vec![0x80; 64])));
        assert_eq!(measures.sample[0].value, Value::Binary(vec![0x80; 128]));
    }

    #[test]
    fn rows_at_which_a_value_changes_are_marked() {
        let mut starts = [false; 7];
        let array: StringViewArray = [
            Some("a text of more than twelve bytes"),
            Some("a text of more than twelve bytes"),
            Some("a text of more than twelve bites"),
            None,
            None,
            Some("b"),
            Some("b"),
        ]
        .into_iter()
        .collect();
        ColumnMeasures::default().add(ColumnType::String, &array, &mut starts);
        assert_eq!(starts, [true, false, true, true, false, true, false]);
        let mut starts = [false; 4];
        let array = Int64Array::from(vec![Some(1), Some(1), None, Some(1)]);
        ColumnMeasures::default().add(ColumnType::Int64, &array, &mut starts);
        assert_eq!(starts, [true, false, true, true]);
        let mut starts = [false; 4];
        let array = BooleanArray::from(vec![Some(true), None, None, Some(false)]);
        ColumnMeasures::default().add(ColumnType::Bool, &array, &mut starts);
        assert_eq!(starts, [true, true, false, true]);
    }

    #[test]
    fn zeros_and_nans_count_once() {
        let mut measures = ColumnMeasures::default();
        let array = Float64Array::from(vec![0.0, -0.0, f64::NAN, -f64::NAN, 1.5]);
        measures.add(ColumnType::Float64, &array, &mut []);
        assert_eq!(measures.distinct.count(), 3);
        assert_eq!(measures.bytes, 40);
        assert_eq!(measures.min, Some(Value::Float(-f64::NAN)), "the least in total order");
        assert_eq!(measures.max, Some(Value::Float(f64::NAN)));
        let expected = [Value::Float(0.0), Value::Float(1.5), Value::Float(f64::NAN)];
        assert_eq!(sampled(&measures), expected);
    }

    #[test]
    fn distinct_values_are_estimated_within_three_percent() {
        for count in [9_000_i64, 20_000] {
            let mut numbers = ColumnMeasures::default();
            let array = Int64Array::from_iter_values((0..count).chain(0..count));
            numbers.add(ColumnType::Int64, &array, &mut []);
            let mut words = ColumnMeasures::default();
            let array: StringViewArray =
                (0..count).map(|number| Some(format!("user-{number}"))).collect();
            words.add(ColumnType::String, &array, &mut []);
            for measures in [numbers, words] {
                let estimate = i64::try_from(measures.distinct.count()).unwrap();
                assert!((estimate - count).abs() * 100 <= count * 3, "{estimate} for {count}");
            }
        }
    }

    #[test]
    fn numbers_in_texts_are_recognised() {
        let all = ["1", "-2", "3.5", "1e9", "true", "FALSE", " 7 "].map(Some);
        assert!((texts(&all).numeric_share() - 1.0).abs() < 1e-9);
        let half = ["1", "2", "a", "NaN", "inf", "2024-01-01", "3", "4"].map(Some);
        assert!((texts(&half).numeric_share() - 0.5).abs() < 1e-9);
        assert!(ColumnMeasures::default().numeric_share().abs() < 1e-9);
    }

    #[test]
    fn values_are_compared_in_the_order_of_the_pairs() {
        let mut measures = ColumnMeasures::default();
        let array = Int64Array::from(vec![Some(1), Some(2), Some(2), None, Some(0)]);
        measures.compare(&array, &[(0, 1), (1, 2), (2, 3), (2, 4)]).unwrap();
        assert_eq!((measures.ascending, measures.compared), (2, 3));
    }
}

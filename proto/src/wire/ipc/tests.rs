//! Rows there and back, whatever they were cut from; and bytes that nobody wrote.

use arrow::array::{
    DictionaryArray, Int64Array, IntervalMonthDayNanoArray, ListArray, StringArray, StringViewArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{Int32Type, IntervalMonthDayNano};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::arbitrary;
use crate::array::array_of;
use crate::samples;
use crate::value::Value;

/// A batch of a few columns of any types, perhaps a slice of a larger one.
fn batch() -> impl Strategy<Value = RecordBatch> {
    (vec(arbitrary::column_type(), 0..5), 0..40_usize).prop_flat_map(|(types, rows)| {
        let columns: Vec<_> =
            types.iter().map(|column_type| vec(samples::value(*column_type), rows)).collect();
        (Just(types), columns, 0..=rows, 0..=rows).prop_map(move |(types, columns, a, b)| {
            let fields: Vec<Field> = types
                .iter()
                .enumerate()
                .map(|(i, t)| Field::new(format!("c{i}"), t.arrow(), true))
                .collect();
            let arrays =
                types.iter().zip(&columns).map(|(t, values)| array_of(*t, values).unwrap());
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let schema = Arc::new(Schema::new(fields));
            let whole = RecordBatch::try_new_with_options(schema, arrays.collect(), &options);
            whole.unwrap().slice(a.min(b), a.abs_diff(b))
        })
    })
}

/// The bytes at an address that is `shift` beyond a multiple of 64.
fn shifted(bytes: &[u8], shift: usize) -> Bytes {
    let room = vec![0; bytes.len() + 128];
    let start = room.as_ptr().align_offset(64) + shift;
    let mut room = room;
    room[start..start + bytes.len()].copy_from_slice(bytes);
    Bytes::from(room).slice(start..start + bytes.len())
}

#[test]
fn a_compacted_batch_has_no_bytes_of_rows_that_are_gone() {
    let texts = (0..100).map(|number| format!("{number} {}", "x".repeat(1_000)));
    let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts));
    let whole = RecordBatch::try_from_iter([("v", texts)]).unwrap();
    let one = whole.slice(7, 1);
    let compact = compacted(&one).unwrap();
    assert_eq!(compact, one);
    let stored: usize =
        compact.column(0).as_string_view().data_buffers().iter().map(Buffer::len).sum();
    assert_eq!(stored, 1_002);
}

proptest! {
    #[test]
    fn rows_survive_at_any_address(batch in batch(), more in 0..3_usize, shift in 0..64_usize) {
        let batches: Vec<RecordBatch> =
            (0..=more).map(|i| batch.slice(0, batch.num_rows() / (i + 1))).collect();
        let bytes = encode(&batches).unwrap();
        prop_assert_eq!(&decode(shifted(&bytes, shift)).unwrap(), &batches);
    }

    #[test]
    fn a_stream_cut_short_anywhere_is_corrupted(batch in batch(), at in any::<prop::sample::Index>()) {
        let bytes = encode(&[batch]).unwrap();
        let cut = bytes.slice(..at.index(bytes.len()));
        prop_assert!(matches!(decode(cut), Err(Error::Corrupted(_))));
    }

    #[test]
    fn changed_bytes_are_an_error_or_other_rows_but_never_a_panic(
        batch in batch(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = encode(&[batch]).unwrap().to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(batches) = decode(bytes.into()) {
            // Whatever they are, they can be used.
            for batch in batches {
                drop(format!("{:?}", batch.slice(0, batch.num_rows().min(50))));
            }
        }
    }

    #[test]
    fn garbage_never_panics(bytes in vec(any::<u8>(), 0..100)) {
        prop_assert!(decode(bytes.into()).is_err());
    }
}

/// Every byte of a small stream, set to the values that break lengths and offsets.
#[test]
fn no_single_byte_makes_decoding_panic() {
    let columns: Vec<(String, ArrayRef)> = [
        (ColumnType::Int64, Value::Int(5)),
        (ColumnType::String, Value::String("longer than a view holds".to_owned())),
        (ColumnType::Bool, Value::Null),
        (ColumnType::Decimal(38, 2), Value::Decimal(7)),
    ]
    .into_iter()
    .map(|(t, value)| (t.sql(), array_of(t, &[value]).unwrap()))
    .collect();
    let bytes = encode(&[RecordBatch::try_from_iter(columns).unwrap()]).unwrap();
    for at in 0..bytes.len() {
        for value in [0, 1, 2, 8, 16, 0x7F, 0x80, 0xFE, 0xFF] {
            let mut changed = bytes.to_vec();
            changed[at] = value;
            if let Ok(batches) = decode(changed.into()) {
                drop(format!("{batches:?}"));
            }
        }
    }
}

/// Every bit of a stream of one column and three rows, of each type: lengths that are off by little
/// are what single values of the test above, and random ones, seldom hit.
#[test]
fn no_flipped_bit_makes_decoding_panic() {
    let unit = Unit::Millisecond;
    let columns = [
        (ColumnType::Bool, Value::Bool(true)),
        (ColumnType::Int8, Value::Int(5)),
        (ColumnType::Int64, Value::Int(5)),
        (ColumnType::UInt16, Value::UInt(5)),
        (ColumnType::Float32, Value::Float(0.5)),
        (ColumnType::Decimal(38, 2), Value::Decimal(7)),
        (ColumnType::String, Value::String("longer than a view holds".to_owned())),
        (ColumnType::Binary, Value::Binary(vec![7; 20])),
        (ColumnType::Date, Value::Date(7)),
        (ColumnType::Uuid, Value::Binary(vec![7; 16])),
        (ColumnType::Time, Value::Int(7)),
        (ColumnType::Timestamp(unit, true), Value::Timestamp(7)),
    ];
    for (column_type, value) in columns {
        let column = array_of(column_type, &[value.clone(), Value::Null, value]).unwrap();
        let batch = RecordBatch::try_from_iter([("c", column)]).unwrap();
        let bytes = encode(&[batch]).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            if let Ok(batches) = decode(changed.into()) {
                drop(format!("{batches:?}"));
            }
        }
    }
}

/// Arrays and intervals of three rows, the second NULL.
fn arrays() -> RecordBatch {
    let offsets = || OffsetBuffer::from_lengths([2, 0, 1]);
    let nulls = || Some(NullBuffer::from(vec![true, false, true]));
    let lists = |element: Element, values: &[Value]| -> ArrayRef {
        let values = array_of(element.column_type(), values).unwrap();
        Arc::new(ListArray::new(Arc::new(element.field()), offsets(), values, nulls()))
    };
    let text = Value::String("longer than a view holds".to_owned());
    let flag = Value::Bool(true);
    let spans = IntervalMonthDayNanoArray::from(vec![
        Some(IntervalMonthDayNano { months: 1, days: -2, nanoseconds: 3 }),
        None,
        Some(IntervalMonthDayNano { months: i32::MIN, days: i32::MAX, nanoseconds: i64::MAX }),
    ]);
    RecordBatch::try_from_iter_with_nullable([
        ("s", Arc::new(spans) as ArrayRef, true),
        ("n", lists(Element::Int32, &[Value::Int(5), Value::Null, Value::Int(7)]), true),
        ("t", lists(Element::String, &[text.clone(), Value::Null, text]), true),
        ("b", lists(Element::Bool, &[flag.clone(), flag, Value::Null]), true),
        (
            "i",
            array_of(ColumnType::Int64, &[Value::Int(1), Value::Null, Value::Int(2)]).unwrap(),
            true,
        ),
    ])
    .unwrap()
}

#[test]
fn arrays_survive_as_slices_too() {
    let whole = arrays();
    for (offset, length) in [(0, 3), (1, 2), (2, 1), (0, 1), (1, 0)] {
        let slice = whole.slice(offset, length);
        let bytes = encode(std::slice::from_ref(&slice)).unwrap();
        assert_eq!(decode(bytes).unwrap(), [slice], "{length} rows from {offset}");
    }
    // Another form of lists becomes the one that tables have.
    let large = cast_with_options(
        whole.column(2),
        &DataType::new_large_list(DataType::Utf8, true),
        &CastOptions::default(),
    );
    let batch = RecordBatch::try_from_iter_with_nullable([("t", large.unwrap(), true)]).unwrap();
    let decoded = decode(encode(&[batch]).unwrap()).unwrap();
    assert_eq!(decoded[0].column(0), whole.column(2));
}

#[test]
fn no_flipped_bit_of_arrays_makes_decoding_panic() {
    let bytes = encode(&[arrays()]).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.to_vec();
        changed[bit / 8] ^= 1 << (bit % 8);
        if let Ok(batches) = decode(changed.into()) {
            drop(format!("{batches:?}"));
        }
    }
}

fn strings(values: &[&str]) -> RecordBatch {
    let column: ArrayRef = Arc::new(StringViewArray::from_iter_values(values));
    RecordBatch::try_from_iter([("s", column)]).unwrap()
}

#[test]
fn a_slice_of_strings_does_not_carry_the_others() {
    let values: Vec<String> = (0..1000).map(|i| format!("a string of some length {i}")).collect();
    let whole = strings(&values.iter().map(String::as_str).collect::<Vec<_>>());
    let one = whole.slice(500, 1);
    let bytes = encode(std::slice::from_ref(&one)).unwrap();
    assert!(bytes.len() < 1000, "{}", bytes.len());
    assert_eq!(decode(bytes).unwrap(), [one]);
    // Views that share their bytes are not multiplied either.
    let shared = arrow::compute::take_record_batch(
        &strings(&[&values[0]]),
        &arrow::array::UInt32Array::from(vec![0; 1000]),
    )
    .unwrap();
    let bytes = encode(std::slice::from_ref(&shared)).unwrap();
    assert!(bytes.len() < 1000 * 18, "{}", bytes.len());
    assert_eq!(decode(bytes).unwrap(), [shared]);
}

#[test]
fn long_strings_are_read_where_they_lie() {
    let value = "x".repeat(100_000);
    let bytes = shifted(&encode(&[strings(&[&value])]).unwrap(), 3);
    let batches = decode(bytes.clone()).unwrap();
    let views = batches[0].column(0).as_string_view();
    let within = bytes.as_ptr_range();
    assert!(within.contains(&views.value(0).as_ptr()));
}

#[test]
fn numbers_are_read_where_they_lie_when_that_is_aligned() {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
    let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
    let bytes = shifted(&encode(&[batch]).unwrap(), 0);
    let batches = decode(bytes.clone()).unwrap();
    let values = batches[0].column(0).as_primitive::<arrow::datatypes::Int64Type>().values();
    let within = bytes.as_ptr_range();
    assert!(within.contains(&values.inner().as_ptr()));
}

#[test]
fn other_layouts_arrive_as_the_one_of_their_type() {
    let plain = StringArray::from(vec!["a", "b", "a"]);
    let dictionary: DictionaryArray<Int32Type> = plain.iter().collect();
    let batch = RecordBatch::try_from_iter([
        ("p", Arc::new(plain) as ArrayRef),
        ("d", Arc::new(dictionary) as ArrayRef),
    ]);
    let batches = decode(encode(&[batch.unwrap()]).unwrap()).unwrap();
    for column in batches[0].columns() {
        let values: Vec<_> = column.as_string_view().iter().flatten().collect();
        assert_eq!(values, ["a", "b", "a"]);
    }
}

#[test]
fn what_is_not_rows_of_a_table_is_refused() {
    assert!(matches!(encode(&[]), Err(Error::InvalidInput(_))));
    let nulls: ArrayRef = Arc::new(arrow::array::NullArray::new(1));
    let error = encode(&[RecordBatch::try_from_iter([("n", nulls)]).unwrap()]).unwrap_err();
    assert_eq!(error.to_string(), "column \"n\" has type Null, which tables do not have");
    let other: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let other = RecordBatch::try_from_iter([("s", other)]).unwrap();
    assert!(matches!(encode(&[strings(&["a"]), other]), Err(Error::InvalidInput(_))));
}

/// One row of a typical table; the bound is what was measured plus a tenth.
#[test]
fn one_row_of_ten_columns_stays_small() {
    let time = ColumnType::Timestamp(Unit::Millisecond, false);
    let mut columns = vec![
        ("ts", array_of(time, &[Value::Timestamp(1_700_000_000_000)]).unwrap()),
        ("host", array_of(ColumnType::String, &[Value::String("host-17".to_owned())]).unwrap()),
        ("region", array_of(ColumnType::String, &[Value::String("eu-west-1".to_owned())]).unwrap()),
    ];
    for name in ["user", "system", "idle", "nice", "iowait", "irq", "steal"] {
        let float = ColumnType::Float64;
        columns.push((name, array_of(float, &[Value::Float(0.5)]).unwrap()));
    }
    let bytes = encode(&[RecordBatch::try_from_iter(columns).unwrap()]).unwrap();
    assert!(bytes.len() < 1400, "{}", bytes.len());
}

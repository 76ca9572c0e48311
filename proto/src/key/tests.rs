//! Keys against their values, which define the expected result.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray, UInt16Array};
use arrow::compute::{cast, concat_batches, take_record_batch};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;
use proptest::prelude::*;

use super::*;
use crate::arbitrary;
use crate::array::array_of;
use crate::domain::{Domain, Domains};
use crate::id::ColumnId;
use crate::samples;
use crate::schema::TableOptions;
use crate::value::Value;
use crate::wide::Wide;

fn codec(types: &[ColumnType], placed: bool) -> KeyCodec {
    KeyCodec::new(&samples::schema(types), &samples::placement(placed)).unwrap()
}

fn encode(types: &[ColumnType], placed: bool, rows: &[Bound]) -> Keys {
    codec(types, placed).encode(&samples::batch(&samples::schema(types), placed, rows)).unwrap()
}

fn order(a: &Bound, b: &Bound) -> Ordering {
    (a.placement, &a.key).cmp(&(b.placement, &b.key))
}

fn prefix(bound: &Bound, columns: usize) -> Bound {
    Bound { placement: bound.placement, key: bound.key[..columns].to_vec() }
}

/// Encoding in order gives what encoding and sorting give.
fn check_sorted(codec: &KeyCodec, batch: &RecordBatch) -> Result<(), TestCaseError> {
    let keys = codec.encode(batch).unwrap();
    let indices = keys.sort_indices();
    let (sorted, order) = codec.encode_sorted(batch).unwrap();
    prop_assert_eq!(&sorted, &keys.take(&indices).unwrap());
    prop_assert_eq!(order.is_none(), keys.is_sorted());
    prop_assert_eq!(order.unwrap_or_else(|| indices.clone()), indices);
    Ok(())
}

proptest! {
    #[test]
    fn keys_compare_like_the_tuples_they_encode(
        (types, placed, rows) in samples::keyed_rows(any::<bool>(), 2..12),
    ) {
        let keys = encode(&types, placed, &rows);
        prop_assert_eq!(keys.len(), rows.len());
        for (i, a) in rows.iter().enumerate() {
            for (j, b) in rows.iter().enumerate() {
                prop_assert_eq!(keys.get(i).cmp(keys.get(j)), order(a, b), "{} and {}", a, b);
            }
        }
    }

    #[test]
    fn bounds_encode_like_rows_and_decode_to_themselves(
        (types, placed, rows) in samples::keyed_rows(any::<bool>(), 1..8),
    ) {
        let codec = codec(&types, placed);
        let keys = encode(&types, placed, &rows);
        for (row, bound) in rows.iter().enumerate() {
            let key = keys.get(row);
            let encoded = codec.encode_bound(bound).unwrap();
            prop_assert_eq!(encoded.as_ref(), key);
            prop_assert_eq!(&codec.decode(key).unwrap(), bound);
            prop_assert!(codec.value(key, types.len()).is_err());
            for columns in 0..types.len() {
                prop_assert_eq!(&codec.value(key, columns).unwrap(), &bound.key[columns]);
                let cut = codec.encode_bound(&prefix(bound, columns)).unwrap();
                prop_assert!(codec.value(&cut, columns).is_err(), "it ends before");
                let prefix = prefix(bound, columns);
                let encoded = codec.encode_bound(&prefix).unwrap();
                if columns > 0 || !placed {
                    prop_assert_eq!(codec.first_cells(key, columns).unwrap(), encoded.as_ref());
                }
                prop_assert!(key.starts_with(&encoded));
                prop_assert_eq!(codec.decode(&encoded).unwrap(), prefix);
            }
        }
    }

    #[test]
    fn cells_end_where_the_prefixes_of_a_bound_do(
        (types, placed, rows) in samples::keyed_rows(any::<bool>(), 1..4),
    ) {
        let codec = codec(&types, placed);
        for bound in &rows {
            let key = codec.encode_bound(bound).unwrap();
            let from = usize::from(!placed);
            let ends: Vec<usize> = (from..=types.len())
                .map(|columns| codec.encode_bound(&prefix(bound, columns)).unwrap().len())
                .collect();
            prop_assert_eq!(codec.cell_ends(&key), ends);
        }
    }

    #[test]
    fn the_keys_below_a_prefix_and_its_successor_are_those_of_its_rows(
        (types, placed, rows) in samples::keyed_rows(any::<bool>(), 2..10),
        columns in 0..4_usize,
    ) {
        let codec = codec(&types, placed);
        let keys = encode(&types, placed, &rows);
        let prefix = prefix(&rows[0], columns.min(types.len()));
        let start = codec.encode_bound(&prefix).unwrap();
        let range = KeyRange { end: KeyCodec::successor(&start), start };
        for (row, bound) in rows.iter().enumerate() {
            let begins = bound.placement == prefix.placement && bound.key.starts_with(&prefix.key);
            prop_assert_eq!(range.contains(keys.get(row)), begins, "{} and {}", bound, prefix);
        }
    }

    #[test]
    fn no_bytes_make_decoding_panic(
        (types, placed, rows) in samples::keyed_rows(any::<bool>(), 1..2),
        garbage in proptest::collection::vec(any::<u8>(), 0..60),
        at in any::<proptest::sample::Index>(),
        flip in 1..=255_u8,
    ) {
        let codec = codec(&types, placed);
        let check = |bytes: &[u8]| -> Result<(), TestCaseError> {
            // What decodes is what these bytes encode: two keys never decode to one.
            if let Ok(bound) = codec.decode(bytes)
                && let Ok(encoded) = codec.encode_bound(&bound)
            {
                prop_assert_eq!(encoded.as_ref(), bytes);
            }
            Ok(())
        };
        check(&garbage)?;
        let key = codec.encode_bound(&rows[0]).unwrap();
        for end in 0..key.len() {
            check(&key[..end])?;
        }
        let mut flipped = key.to_vec();
        let at = at.index(flipped.len());
        flipped[at] ^= flip;
        check(&flipped)?;
        flipped.extend_from_slice(&garbage);
        check(&flipped)?;
    }

    #[test]
    fn sorting_is_stable_and_equal_to_sorting_tuples(
        (types, placed, rows) in samples::keyed_rows(any::<bool>(), 0..40),
    ) {
        let keys = encode(&types, placed, &rows);
        let mut expected: Vec<usize> = (0..rows.len()).collect();
        expected.sort_by(|a, b| order(&rows[*a], &rows[*b]));
        let indices = keys.sort_indices();
        let sorted: Vec<usize> = indices.values().iter().map(|row| *row as usize).collect();
        prop_assert_eq!(sorted, expected);
        let sorted = keys.take(&indices).unwrap();
        prop_assert!(sorted.is_sorted());
        let half = rows.len() / 2;
        let parts = [0..half, half..half, half..rows.len()].map(|part| (&sorted, part));
        prop_assert_eq!(&Keys::gather(parts.into_iter()).unwrap(), &sorted);
        let schema = samples::schema(&types);
        check_sorted(&codec(&types, placed), &samples::batch(&schema, placed, &rows))?;
        for key in keys.iter() {
            let below = sorted.iter().filter(|other| *other < key).count();
            prop_assert_eq!(sorted.lower_bound(key), below);
        }
    }

    #[test]
    fn rows_that_share_series_have_the_keys_that_they_have_alone(
        (types, placed, rows) in rows_of_few_series(),
    ) {
        let codec = codec(&types, placed);
        let batch = samples::batch(&samples::schema(&types), placed, &rows);
        let keys = codec.encode(&batch).unwrap();
        let (series, columns) = (codec.inner.series.as_ref().unwrap(), codec.columns(&batch).unwrap());
        let parts = series.parts(codec.placement(&batch).unwrap(), &columns, Share::Anywhere).unwrap();
        prop_assert!(parts.is_some(), "rows are many and series few");
        let alone: Vec<_> = (0..rows.len())
            .map(|row| codec.encode(&batch.slice(row, 1)).unwrap().get(0).to_vec())
            .collect();
        prop_assert_eq!(keys.iter().collect::<Vec<_>>(), alone.iter().collect::<Vec<_>>());
        check_sorted(&codec, &batch)?;
        // A part of a batch is one like any other.
        let part = codec.encode(&batch.slice(3, 90)).unwrap();
        prop_assert_eq!(&part, &keys.slice(3..93));
        // Where the rows of a series follow each other they are taken as they come, also when it comes again.
        let indices = keys.sort_indices();
        let (ordered, sorted) = (take_record_batch(&batch, &indices).unwrap(), keys.take(&indices).unwrap());
        prop_assert_eq!(&codec.encode_ordered(&ordered).unwrap(), &sorted);
        let twice = concat_batches(&batch.schema(), [&ordered, &ordered]).unwrap();
        let keys = codec.encode_ordered(&twice).unwrap();
        prop_assert_eq!(&keys.slice(0..rows.len()), &sorted);
        prop_assert_eq!(&keys.slice(rows.len()..2 * rows.len()), &sorted);
        check_sorted(&codec, &ordered)?;
        check_sorted(&codec, &twice)?;
        // In any other order they are right as well.
        prop_assert_eq!(&codec.encode_ordered(&batch).unwrap(), &codec.encode(&batch).unwrap());
    }

    #[test]
    fn no_key_is_longer_than_its_bound(
        (types, placed, rows) in samples::keyed_rows(any::<bool>(), 0..40),
    ) {
        let codec = codec(&types, placed);
        let batch = samples::batch(&samples::schema(&types), placed, &rows);
        let longest = codec.encode(&batch).unwrap().iter().map(<[u8]>::len).max().unwrap_or(0);
        if let Some(bound) = codec.length_bound(&batch) {
            prop_assert!(longest <= bound, "{} > {}", longest, bound);
        }
    }

    #[test]
    fn every_row_of_the_domains_lies_in_their_key_ranges(
        (types, rows, domains) in domains_and_rows(),
        hashed in any::<bool>(),
    ) {
        let schema = samples::schema(&types);
        let placement = samples::placement(hashed);
        let codec = KeyCodec::new(&schema, &placement).unwrap();
        let ranges = codec.key_ranges(&schema, &placement, &domains);
        prop_assert!(ranges.len() <= KEY_RANGES_MAX);
        for pair in ranges.windows(2) {
            prop_assert!(pair[0].end.as_ref().is_some_and(|end| *end < pair[1].start));
        }
        prop_assert!(ranges.iter().all(|range| !range.is_empty()));
        let plain = samples::batch(&schema, false, &rows);
        let placed = with_placement(&schema, &placement, plain);
        let keys = codec.encode(&placed).unwrap();
        for (row, bound) in rows.iter().enumerate() {
            let wanted = (0..).zip(&bound.key).all(|(column, value)| {
                domains.get(&format!("k{column}")).is_none_or(|domain| domain.contains(value))
            });
            let found = ranges.iter().any(|range| range.contains(keys.get(row)));
            prop_assert!(found || !wanted, "{} of {:?} is not in {:?}", bound, domains, ranges);
        }
    }
}

/// A wide table: its keys are in descending order of the cells' timestamps.
fn wide_schema() -> TableSchema {
    TableSchema {
        columns: crate::wide::columns(ColumnType::String),
        key: (0..4).map(ColumnId).collect(),
        options: TableOptions { wide: Some(Wide::default()), ..TableOptions::default() },
        ..samples::schema(&[ColumnType::String])
    }
}

fn cells_of(schema: &TableSchema, bounds: &[Bound]) -> RecordBatch {
    let key = schema.key_columns().enumerate().map(|(position, column)| {
        let values: Vec<Value> = bounds.iter().map(|bound| bound.key[position].clone()).collect();
        (column.storage_name.as_str(), array_of(column.column_type, &values).unwrap())
    });
    RecordBatch::try_from_iter(key).unwrap()
}

/// Cells of few columns, with times of which some are far apart.
fn wide_bounds() -> impl Strategy<Value = Vec<Bound>> {
    let time = prop_oneof![-3_i64..3, Just(i64::MIN), Just(i64::MAX)];
    let cell = ("[ab]{0,9}", "[fg]", proptest::collection::vec(0..3_u8, 0..2), time);
    let bound = cell.prop_map(|(row_key, family, qualifier, timestamp)| Bound {
        placement: None,
        key: vec![
            Value::String(row_key),
            Value::String(family),
            Value::Binary(qualifier),
            Value::Timestamp(timestamp),
        ],
    });
    proptest::collection::vec(bound, 2..90)
}

proptest! {
    #[test]
    fn keys_of_cells_descend_by_time_and_bounds_encode_alike(bounds in wide_bounds()) {
        let schema = wide_schema();
        let codec = KeyCodec::new(&schema, &Placement::Range).unwrap();
        let batch = cells_of(&schema, &bounds);
        let keys = codec.encode(&batch).unwrap();
        check_sorted(&codec, &batch)?;
        let newest_first = |bound: &Bound| {
            let time = bound.key[3].clone();
            (bound.key[..3].to_vec(), std::cmp::Reverse(time))
        };
        for (row, bound) in bounds.iter().enumerate() {
            let encoded = codec.encode_bound(bound).unwrap();
            prop_assert_eq!(encoded.as_ref(), keys.get(row));
            prop_assert_eq!(&codec.decode(keys.get(row)).unwrap(), bound);
            prop_assert_eq!(&codec.value(keys.get(row), 3).unwrap(), &bound.key[3]);
            prop_assert_eq!(codec.cell_ends(keys.get(row)).len(), 4);
            let order = newest_first(&bounds[0]).cmp(&newest_first(bound));
            prop_assert_eq!(keys.get(0).cmp(keys.get(row)), order);
        }
    }

    #[test]
    fn cells_of_a_time_range_lie_in_its_key_ranges(
        bounds in wide_bounds(),
        time in samples::domain(crate::wide::CELL_TS_TYPE),
    ) {
        let schema = wide_schema();
        let codec = KeyCodec::new(&schema, &Placement::Range).unwrap();
        let keys = codec.encode(&cells_of(&schema, &bounds)).unwrap();
        let mut domains = Domains::default();
        for (position, column) in schema.key_columns().take(3).enumerate() {
            let value = bounds[0].key[position].clone();
            domains.restrict(&column.storage_name, Domain::point(value));
        }
        domains.restrict(crate::wide::CELL_TS_COLUMN, time.clone());
        let ranges = codec.key_ranges(&schema, &Placement::Range, &domains);
        for (row, bound) in bounds.iter().enumerate() {
            let wanted = bound.key[..3] == bounds[0].key[..3] && time.contains(&bound.key[3]);
            let found = ranges.iter().any(|range| range.contains(keys.get(row)));
            prop_assert_eq!(found, wanted, "{} of {:?}", bound, ranges);
        }
    }
}

/// A hundred rows and more of at most twenty series: text among other columns, then one of a fixed width.
fn rows_of_few_series() -> impl Strategy<Value = (Vec<ColumnType>, bool, Vec<Bound>)> {
    let fixed = arbitrary::column_type()
        .prop_filter("a fixed width", |of| {
            !matches!(
                of,
                ColumnType::String
                    | ColumnType::Binary
                    | ColumnType::Decimal(..)
                    | ColumnType::Uuid
                    | ColumnType::Bool
            )
        })
        .boxed();
    let series = proptest::collection::vec(fixed.clone(), 0..3);
    (series, fixed, any::<bool>(), any::<bool>())
        .prop_flat_map(|(mut types, last, text_first, placed)| {
            types.insert(if text_first { 0 } else { types.len() }, ColumnType::String);
            types.push(last);
            let bound = samples::bound(&types, placed);
            let pool = proptest::collection::vec(bound, 1..20);
            let picks = proptest::collection::vec(any::<[proptest::sample::Index; 2]>(), 100..200);
            (Just(types), Just(placed), pool, picks)
        })
        .prop_map(|(types, placed, pool, picks)| {
            let row = |[series, last]: &[proptest::sample::Index; 2]| {
                let mut row = series.get::<Bound>(&pool).clone();
                row.key.pop();
                row.key.extend(last.get::<Bound>(&pool).key.last().cloned());
                row
            };
            (types, placed, picks.iter().map(row).collect())
        })
}

/// Rows of which many lie in the domains of their key's columns.
fn domains_and_rows() -> impl Strategy<Value = (Vec<ColumnType>, Vec<Bound>, Domains)> {
    proptest::collection::vec(arbitrary::column_type(), 1..4).prop_flat_map(|types| {
        let rows = proptest::collection::vec(samples::bound(&types, false), 1..20);
        let domains: Vec<_> = types
            .iter()
            .map(|column_type| proptest::option::weighted(0.8, samples::domain(*column_type)))
            .collect();
        (Just(types), rows, domains).prop_map(|(types, rows, chosen)| {
            let mut domains = Domains::default();
            for (column, domain) in chosen.into_iter().enumerate() {
                if let Some(domain) = domain {
                    domains.restrict(&format!("k{column}"), domain);
                }
            }
            (types, rows, domains)
        })
    })
}

fn with_placement(schema: &TableSchema, placement: &Placement, rows: RecordBatch) -> RecordBatch {
    let Some(placements) = placement.place(schema, &rows).unwrap() else { return rows };
    let mut fields = vec![Arc::new(Field::new(PLACEMENT_COLUMN, DataType::UInt16, false))];
    fields.extend(rows.schema().fields().iter().cloned());
    let mut columns: Vec<ArrayRef> = vec![Arc::new(placements)];
    columns.extend(rows.columns().iter().cloned());
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

fn text(value: &str) -> Value {
    Value::String(value.to_owned())
}

fn domains(of: &[(&str, Domain)]) -> Domains {
    let mut domains = Domains::default();
    of.iter().for_each(|(column, domain)| domains.restrict(column, domain.clone()));
    domains
}

#[test]
fn a_key_column_that_the_batch_lacks_is_null() {
    let types = [ColumnType::String, ColumnType::Int64];
    let codec = codec(&types, false);
    let rows = [Bound { placement: None, key: vec![text("a"), Value::Null] }];
    let whole = samples::batch(&samples::schema(&types), false, &rows);
    let without = whole.project(&[0]).unwrap();
    assert_eq!(codec.encode(&whole).unwrap(), codec.encode(&without).unwrap());
}

#[test]
fn another_layout_of_the_same_type_encodes_alike_and_another_type_is_refused() {
    let codec = codec(&[ColumnType::String], false);
    let plain: ArrayRef = Arc::new(StringArray::from(vec![Some("b"), None, Some("a")]));
    let dictionary = DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into());
    let encode = |data_type: &DataType| {
        let column = cast(&plain, data_type).unwrap();
        codec.encode(&RecordBatch::try_from_iter([("k0", column)]).unwrap())
    };
    let expected = encode(&DataType::Utf8View).unwrap();
    for layout in [DataType::Utf8, DataType::LargeUtf8, dictionary] {
        assert_eq!(encode(&layout).unwrap(), expected);
    }
    let error = encode(&DataType::Binary).unwrap_err();
    assert_eq!(error.to_string(), "key column \"k0\" has type Binary, expected STRING");
}

#[test]
fn a_placed_table_needs_a_placement_without_null() {
    let codec = codec(&[ColumnType::Int64], true);
    let rows = [Bound { placement: None, key: vec![Value::Int(1)] }];
    let batch = samples::batch(&samples::schema(&[ColumnType::Int64]), false, &rows);
    assert!(matches!(codec.encode(&batch), Err(Error::InvalidInput(_))));
    let nulls: ArrayRef = Arc::new(UInt16Array::from(vec![None]));
    let batch = RecordBatch::try_from_iter([(PLACEMENT_COLUMN, nulls)]).unwrap();
    assert!(matches!(codec.encode(&batch), Err(Error::InvalidInput(_))));
}

#[test]
fn every_row_of_a_table_without_a_key_has_the_empty_key() {
    let field: ArrayRef = Arc::new(StringArray::from(vec!["x", "y"]));
    let rows = RecordBatch::try_from_iter([("f", field)]).unwrap();
    let keys = codec(&[], false).encode(&rows).unwrap();
    assert_eq!(keys.iter().collect::<Vec<_>>(), [b"", b""]);
    assert_eq!(codec(&[], false).decode(b"").unwrap(), Bound::default());
}

#[test]
fn bounds_take_literals_of_other_types_and_refuse_what_does_not_fit() {
    let types = [ColumnType::UInt8, ColumnType::Timestamp(crate::schema::Unit::Second, false)];
    let codec = codec(&types, false);
    let loose = Bound { placement: None, key: vec![Value::Int(7), text("1970-01-01 00:01:00")] };
    let exact = Bound { placement: None, key: vec![Value::UInt(7), Value::Timestamp(60)] };
    assert_eq!(codec.encode_bound(&loose).unwrap(), codec.encode_bound(&exact).unwrap());
    assert_eq!(codec.coerce_bound(&loose).unwrap().as_ref(), &exact);
    for wrong in [
        Bound { placement: None, key: vec![Value::Int(300)] },
        Bound { placement: None, key: vec![Value::Null; 3] },
        Bound { placement: Some(1), key: vec![] },
    ] {
        assert!(matches!(codec.encode_bound(&wrong), Err(Error::InvalidInput(_))), "{wrong}");
    }
    let unplaced = Bound { placement: None, key: vec![Value::Int(1)] };
    assert!(self::codec(&types, true).encode_bound(&unplaced).is_err());
}

#[test]
fn the_successor_skips_bytes_that_cannot_grow() {
    assert_eq!(KeyCodec::successor(&[1, 2]).as_deref(), Some(&[1, 3][..]));
    assert_eq!(KeyCodec::successor(&[1, 255, 255]).as_deref(), Some(&[2][..]));
    assert_eq!(KeyCodec::successor(&[255, 255]), None);
    assert_eq!(KeyCodec::successor(&[]), None);
}

#[test]
fn a_bound_means_the_same_after_a_column_was_added_to_the_key() {
    let (old, new) = (
        [ColumnType::String, ColumnType::Int64],
        [ColumnType::String, ColumnType::String, ColumnType::Int64],
    );
    let bound = |key: Vec<Value>| Bound { placement: None, key };
    let cuts = [bound(vec![text("b")]), bound(vec![text("b"), Value::Int(5)])];
    for host in ["a", "b", "c"] {
        for time in [4, 5, 6] {
            let row = bound(vec![text(host), Value::Int(time)]);
            for cut in &cuts {
                let before = codec(&old, false);
                let after = codec(&new, false);
                assert_eq!(
                    before.encode_bound(&row).unwrap() < before.encode_bound(cut).unwrap(),
                    after.encode_bound(&row.clone().with_key_column(1)).unwrap()
                        < after.encode_bound(&cut.clone().with_key_column(1)).unwrap(),
                );
            }
        }
    }
}

#[test]
fn a_point_and_an_interval_make_one_range() {
    let schema = samples::schema(&[ColumnType::String, ColumnType::Int64]);
    let codec = KeyCodec::new(&schema, &Placement::Range).unwrap();
    let interval = Domain::interval(
        std::ops::Bound::Included(Value::Int(5)),
        std::ops::Bound::Excluded(Value::Int(9)),
    );
    let wanted = domains(&[("k0", Domain::point(text("a"))), ("k1", interval)]);
    let ranges = codec.key_ranges(&schema, &Placement::Range, &wanted);
    assert_eq!(ranges.len(), 1);
    let contains = |host: Value, time: Value| {
        let key = codec.encode_bound(&Bound { placement: None, key: vec![host, time] }).unwrap();
        ranges[0].contains(&key)
    };
    for (time, inside) in [(4, false), (5, true), (8, true), (9, false)] {
        assert_eq!(contains(text("a"), Value::Int(time)), inside, "{time}");
    }
    assert!(!contains(text("b"), Value::Int(6)) && !contains(text("a"), Value::Null));
}

#[test]
fn only_leading_columns_narrow_the_key_space() {
    let schema = samples::schema(&[ColumnType::String, ColumnType::Int64]);
    let codec = KeyCodec::new(&schema, &Placement::Range).unwrap();
    let ranges = |wanted: &Domains| codec.key_ranges(&schema, &Placement::Range, wanted);
    assert_eq!(ranges(&Domains::default()), [KeyRange::all()]);
    assert_eq!(ranges(&domains(&[("k1", Domain::point(Value::Int(1)))])), [KeyRange::all()]);
    assert_eq!(ranges(&domains(&[("k0", Domain::none())])), []);
    // A literal that no row can equal.
    assert_eq!(
        ranges(&domains(&[("k1", Domain::all()), ("k0", Domain::point(text("a")))])).len(),
        1
    );
    let small = samples::schema(&[ColumnType::Int8]);
    let codec = KeyCodec::new(&small, &Placement::Range).unwrap();
    let impossible = domains(&[("k0", Domain::point(Value::Int(300)))]);
    assert_eq!(codec.key_ranges(&small, &Placement::Range, &impossible), []);
}

#[test]
fn too_many_points_are_widened_to_a_bounded_number_of_ranges() {
    let schema = samples::schema(&[ColumnType::Int64, ColumnType::String]);
    let codec = KeyCodec::new(&schema, &Placement::Range).unwrap();
    let points: Vec<Value> = (0..5000).map(|i| Value::Int(i * 10)).collect();
    let wanted =
        domains(&[("k0", Domain::points(points.clone())), ("k1", Domain::point(text("x")))]);
    let ranges = codec.key_ranges(&schema, &Placement::Range, &wanted);
    assert!(
        ranges.len() <= KEY_RANGES_MAX && ranges.len() > KEY_RANGES_MAX / 2,
        "{}",
        ranges.len()
    );
    for point in points {
        let key = vec![point, text("x")];
        let key = codec.encode_bound(&Bound { placement: None, key }).unwrap();
        assert!(ranges.iter().any(|range| range.contains(&key)));
    }
}

#[test]
fn a_bound_hash_column_leaves_one_bucket() {
    let schema = samples::schema(&[ColumnType::Int64, ColumnType::Int64]);
    let placement = Placement::Hash { columns: vec![ColumnId(0)] };
    let codec = KeyCodec::new(&schema, &placement).unwrap();
    let wanted = domains(&[("k0", Domain::point(Value::Int(17)))]);
    let ranges = codec.key_ranges(&schema, &placement, &wanted);
    assert_eq!(ranges.len(), 1);
    let bound = codec.decode(&ranges[0].start).unwrap();
    assert_eq!(bound.key, [Value::Int(17)]);
    let unbound = domains(&[("k1", Domain::point(Value::Int(17)))]);
    assert_eq!(codec.key_ranges(&schema, &placement, &unbound), [KeyRange::all()]);
}

#[test]
fn floats_of_32_bits_survive_bit_by_bit() {
    let codec = codec(&[ColumnType::Float32], false);
    for bits in [0x7F80_0001_u32, 0xFF80_0001, 0x7FC0_0000, 0xFFFF_FFFF, 0x8000_0000, 1] {
        let column: ArrayRef =
            Arc::new(arrow::array::Float32Array::from(vec![f32::from_bits(bits)]));
        let keys = codec.encode(&RecordBatch::try_from_iter([("k0", column)]).unwrap()).unwrap();
        let bound = codec.decode(keys.get(0)).unwrap();
        assert_eq!(codec.encode_bound(&bound).unwrap().as_ref(), keys.get(0), "{bits:x}");
    }
}

//! Domains against brute force: every operation is compared with its effect on single values.

use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, NullArray, StringArray, StringDictionaryBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int32Type, Schema};
use arrow::record_batch::RecordBatch;
use proptest::prelude::*;
use proptest::sample::select;

use super::{Domain, Domains, Interval};
use crate::arbitrary::{TYPES, batch, column_type, nullable, table, value};
use crate::array::array_of;
use crate::rule::Comparison;
use crate::schema::{ColumnType, Unit};
use crate::value::Value;

const COMPARISONS: [Comparison; 6] = [
    Comparison::Equal,
    Comparison::NotEqual,
    Comparison::Less,
    Comparison::LessOrEqual,
    Comparison::Greater,
    Comparison::GreaterOrEqual,
];

/// Construction of a domain, from which the expected result for a value can be computed without the domain.
#[derive(Clone, Debug)]
enum Made {
    Null,
    NotNull,
    Compare(Comparison, Value),
    Points(Vec<Value>),
    Between(Bound<Value>, Bound<Value>),
    And(Box<Made>, Box<Made>),
    Or(Box<Made>, Box<Made>),
    Not(Box<Made>),
}

impl Made {
    fn domain(&self) -> Domain {
        match self {
            Self::Null => Domain::null_only(),
            Self::NotNull => Domain::not_null(),
            Self::Compare(comparison, value) => Domain::compare(*comparison, value.clone()),
            Self::Points(values) => Domain::points(values.clone()),
            Self::Between(low, high) => Domain::interval(low.clone(), high.clone()),
            Self::And(a, b) => a.domain().intersect(&b.domain()),
            Self::Or(a, b) => a.domain().union(&b.domain()),
            Self::Not(a) => a.domain().complement_not_null(),
        }
    }

    fn holds(&self, value: &Value) -> bool {
        let equal = |a: &Value, b: &Value| match (a, b) {
            (Value::Float(a), Value::Float(b)) if a == b => true,
            _ => a == b,
        };
        match self {
            Self::Null => value.is_null(),
            Self::NotNull => !value.is_null(),
            Self::Compare(comparison, literal) => sql(value, *comparison, literal),
            Self::Points(values) => values.iter().any(|point| equal(point, value)),
            Self::Between(low, high) => {
                !value.is_null()
                    && match low {
                        Bound::Unbounded => true,
                        Bound::Included(low) => low <= value,
                        Bound::Excluded(low) => low < value,
                    }
                    && match high {
                        Bound::Unbounded => true,
                        Bound::Included(high) => value <= high,
                        Bound::Excluded(high) => value < high,
                    }
            }
            Self::And(a, b) => a.holds(value) && b.holds(value),
            Self::Or(a, b) => a.holds(value) || b.holds(value),
            Self::Not(a) => !value.is_null() && !a.holds(value),
        }
    }
}

/// `value comparison literal` as SQL has it: never true of NULL, and the zeros are one value.
fn sql(value: &Value, comparison: Comparison, literal: &Value) -> bool {
    if value.is_null() || literal.is_null() {
        return false;
    }
    let order = match (value, literal) {
        (Value::Float(a), Value::Float(b)) if a == b => std::cmp::Ordering::Equal,
        (a, b) => a.cmp(b),
    };
    match comparison {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
    }
}

fn made(column_type: ColumnType) -> impl Strategy<Value = Made> {
    let bound = || {
        prop_oneof![
            1 => Just(Bound::Unbounded),
            3 => value(column_type).prop_map(Bound::Included),
            3 => value(column_type).prop_map(Bound::Excluded),
        ]
    };
    let leaf = prop_oneof![
        1 => Just(Made::Null),
        1 => Just(Made::NotNull),
        6 => (select(COMPARISONS.to_vec()), nullable(column_type))
            .prop_map(|(comparison, value)| Made::Compare(comparison, value)),
        3 => prop::collection::vec(nullable(column_type), 0..20).prop_map(Made::Points),
        3 => (bound(), bound()).prop_map(|(low, high)| Made::Between(low, high)),
    ];
    leaf.prop_recursive(4, 16, 2, |inner| {
        let pair = || (inner.clone(), inner.clone());
        prop_oneof![
            pair().prop_map(|(a, b)| Made::And(Box::new(a), Box::new(b))),
            pair().prop_map(|(a, b)| Made::Or(Box::new(a), Box::new(b))),
            inner.clone().prop_map(|a| Made::Not(Box::new(a))),
        ]
    })
}

fn made_and_values() -> impl Strategy<Value = (ColumnType, Made, Vec<Value>)> {
    column_type().prop_flat_map(|column_type| {
        let values = prop::collection::vec(nullable(column_type), 1..40);
        (Just(column_type), made(column_type), values)
    })
}

fn holds(mask: &BooleanArray) -> Vec<bool> {
    assert_eq!(mask.null_count(), 0);
    mask.values().iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn a_domain_holds_what_its_making_says((column_type, made, values) in made_and_values()) {
        let domain = made.domain();
        let typed = domain.typed(column_type).unwrap();
        for value in &values {
            prop_assert_eq!(domain.contains(value), made.holds(value), "{} of {}", value, domain);
            prop_assert_eq!(typed.contains(value), made.holds(value), "{} of {}", value, typed);
        }
        for domain in [&domain, &typed] {
            prop_assert!(domain.intervals().iter().all(|interval| !interval.is_empty()));
            for pair in domain.intervals().windows(2) {
                prop_assert!(!super::meets(&pair[0].high, &pair[1].low), "{}", domain);
            }
        }
    }

    #[test]
    fn a_mask_says_of_each_row_what_the_domain_says_of_its_value(
        (column_type, made, values) in made_and_values(),
    ) {
        let domain = made.domain();
        let expected: Vec<bool> = values.iter().map(|value| made.holds(value)).collect();
        let array = array_of(column_type, &values).unwrap();
        prop_assert_eq!(holds(&domain.mask(array.as_ref()).unwrap()), expected.as_slice());
        // A slice has its rows behind an offset.
        let tail = array.slice(1, array.len() - 1);
        prop_assert_eq!(&holds(&domain.mask(tail.as_ref()).unwrap()), &expected[1..]);
        let coded = DataType::Dictionary(Box::new(DataType::Int32), Box::new(column_type.arrow()));
        if let Ok(coded) = cast(&array, &coded) {
            prop_assert_eq!(holds(&domain.mask(coded.as_ref()).unwrap()), expected);
        }
    }

    #[test]
    fn statistics_never_exclude_a_value_that_is_there(
        (_, made, values) in made_and_values(),
    ) {
        let domain = made.domain();
        let null = values.iter().any(Value::is_null);
        let counted = |value: &&Value| match value {
            Value::Null => false,
            Value::Float(v) => !v.is_nan(),
            _ => true,
        };
        let (min, max) = (values.iter().filter(counted).min(), values.iter().filter(counted).max());
        let any = values.iter().any(|value| made.holds(value));
        prop_assert!(!any || domain.may_contain(min, max, null));
        prop_assert!(!any || domain.may_contain(None, max, null));
        prop_assert!(!any || domain.may_contain(min, None, true));
    }

    #[test]
    fn points_are_all_that_a_domain_holds(
        (column_type, made) in select(vec![ColumnType::Bool, ColumnType::Int8, ColumnType::UInt8])
            .prop_flat_map(|column_type| (Just(column_type), made(column_type))),
        max in 0..300_usize,
    ) {
        let mut every = vec![Value::Null];
        match column_type {
            ColumnType::Bool => every.extend([Value::Bool(false), Value::Bool(true)]),
            ColumnType::Int8 => every.extend((-128..=127).map(Value::Int)),
            _ => every.extend((0..=255).map(Value::UInt)),
        }
        every.retain(|value| made.holds(value));
        let found = made.domain().points_of(column_type, max).unwrap();
        prop_assert_eq!(found, (every.len() <= max).then_some(every));
        if let Some(points) = made.domain().as_points(max) {
            prop_assert_eq!(Domain::points(points), made.domain());
        }
    }

    #[test]
    fn literals_of_other_kinds_compare_by_their_number(
        column_type in select(vec![
            ColumnType::Int8, ColumnType::UInt8, ColumnType::Int32, ColumnType::UInt64,
            ColumnType::Float32, ColumnType::Float64, ColumnType::Decimal(5, 2),
        ]),
        halves in -600..600_i64,
        comparison in select(COMPARISONS.to_vec()),
        form in 0..3_u8,
        seed in prop::collection::vec(-300..300_i64, 1..20),
    ) {
        // Numbers of halves: exact in every form and compared as integers.
        let literal = match form {
            0 if halves % 2 == 0 => Value::Int(halves / 2),
            1 => Value::String(format!("{}.{}", if halves < 0 { format!("-{}", -halves / 2) }
                else { (halves / 2).to_string() }, if halves % 2 == 0 { "0" } else { "5" })),
            _ => Value::Float(f64::from(i32::try_from(halves).unwrap()) / 2.0),
        };
        let (values, doubled): (Vec<Value>, Vec<i64>) = seed
            .iter()
            .filter_map(|n| Some((Value::Int(*n).coerce(column_type).ok()?, n * 2)))
            .unzip();
        let domain = Domain::compare(comparison, literal);
        let array = array_of(column_type, &values).unwrap();
        let expected: Vec<bool> = doubled
            .iter()
            .map(|n| sql(&Value::Int(*n), comparison, &Value::Int(halves)))
            .collect();
        prop_assert_eq!(holds(&domain.mask(array.as_ref()).unwrap()), expected, "{}", domain);
    }

    #[test]
    fn several_columns_are_a_conjunction(
        (types, one, two, rows) in (column_type(), column_type()).prop_flat_map(|(a, b)| (
            Just([a, b]), made(a), made(b), prop::collection::vec((nullable(a), nullable(b)), 1..20),
        )),
    ) {
        let schema = table(&types);
        let rows: Vec<Vec<Value>> = rows.into_iter().map(|(a, b)| vec![a, b]).collect();
        let mut domains = Domains::default();
        prop_assert!(domains.mask(&batch(&schema, &rows)).unwrap().is_none());
        domains.restrict("a#1", one.domain());
        domains.restrict("b#2", two.domain());
        domains.restrict("absent", Domain::null_only());
        let mask = domains.mask(&batch(&schema, &rows)).unwrap();
        let expected: Vec<bool> =
            rows.iter().map(|row| one.holds(&row[0]) && two.holds(&row[1])).collect();
        prop_assert_eq!(mask.map_or_else(|| vec![true; rows.len()], |m| holds(&m)), expected);
        domains.restrict("absent", Domain::not_null());
        prop_assert!(domains.is_none());
        prop_assert_eq!(domains.mask(&batch(&schema, &rows)).unwrap().unwrap().true_count(), 0);
        prop_assert!(!domains.only(|column| column == "a#1").iter().any(|(name, _)| name != "a#1"));
    }
}

#[test]
fn the_plain_sets_are_what_they_say() {
    assert!(Domain::all().is_all() && Domain::all().allows_null());
    assert!(Domain::none().is_none());
    assert!(!Domain::not_null().is_all() && !Domain::null_only().is_none());
    assert_eq!(Domain::not_null().union(&Domain::null_only()), Domain::all());
    assert_eq!(Domain::all().complement_not_null(), Domain::none());
    assert_eq!(Domain::none().complement_not_null(), Domain::not_null());
    assert_eq!(Domain::compare(Comparison::NotEqual, Value::Null), Domain::none());
    assert_eq!(Domain::point(Value::Null), Domain::null_only());
    assert_eq!(Domain::points([]), Domain::none());
}

#[test]
fn intervals_that_touch_become_one() {
    let below = Domain::compare(Comparison::Less, Value::Int(3));
    let above = Domain::compare(Comparison::GreaterOrEqual, Value::Int(3));
    assert_eq!(below.union(&above), Domain::not_null());
    let above = Domain::compare(Comparison::Greater, Value::Int(3));
    assert_eq!(below.union(&above).intervals().len(), 2);
    assert_eq!(below.union(&above).to_string(), "(.., 3) | (3, ..)");
}

#[test]
fn a_type_may_leave_nothing_between_two_bounds() {
    let between = |low, high| Domain::interval(Bound::Excluded(low), Bound::Excluded(high));
    let integers = between(Value::Int(9), Value::Int(10));
    assert!(!integers.is_none());
    assert!(integers.typed(ColumnType::Int64).unwrap().is_none());
    assert!(!integers.typed(ColumnType::Float64).unwrap().is_none());
    let text = between(Value::String("a".to_owned()), Value::String("a\0".to_owned()));
    assert!(text.typed(ColumnType::String).unwrap().is_none());
    // 1.0 and 2.0 are neighbours only in an integer column.
    let apart = Domain::points([Value::Int(1), Value::Int(2)]).typed(ColumnType::Int8).unwrap();
    let joined =
        Interval { low: Bound::Included(Value::Int(1)), high: Bound::Included(Value::Int(2)) };
    assert_eq!(apart.intervals(), [joined]);
}

#[test]
fn both_zeros_equal_zero() {
    let zeros = [Value::Float(-0.0), Value::Float(0.0)];
    for literal in [Value::Float(0.0), Value::Float(-0.0), Value::Int(0)] {
        for column_type in [ColumnType::Float32, ColumnType::Float64] {
            let array = array_of(column_type, &zeros).unwrap();
            for comparison in COMPARISONS {
                let mask = Domain::compare(comparison, literal.clone()).mask(array.as_ref());
                let equal = sql(&Value::Int(0), comparison, &Value::Int(0));
                assert_eq!(holds(&mask.unwrap()), [equal, equal], "{comparison:?} {literal}");
            }
        }
    }
    assert_eq!(Domain::point(Value::Float(0.0)).as_points(2).unwrap(), zeros);
}

#[test]
fn values_that_do_not_compare_leave_more_in() {
    let number = Domain::compare(Comparison::Less, Value::Int(3));
    let text = Domain::compare(Comparison::Greater, Value::String("b".to_owned()));
    assert_eq!(number.intersect(&text), number);
    assert_eq!(number.union(&text), Domain::not_null());
    assert!(text.contains(&Value::Int(7)));
    assert!(text.may_contain(Some(&Value::Int(1)), Some(&Value::Int(2)), false));
    let array = array_of(ColumnType::Int64, &[Value::Int(1)]).unwrap();
    assert!(text.mask(array.as_ref()).is_err());
    // Bare ticks compare with timestamps.
    let ticks = Domain::compare(Comparison::GreaterOrEqual, Value::Int(5));
    let before = Domain::compare(Comparison::Less, Value::Timestamp(6));
    let both = ticks.intersect(&before);
    let second = ColumnType::Timestamp(Unit::Second, false);
    assert_eq!(both.points_of(second, 9).unwrap(), Some(vec![Value::Timestamp(5)]));
}

#[test]
fn a_range_outside_of_the_type_is_all_or_nothing() {
    let big = Value::Int(300);
    let array = array_of(ColumnType::Int8, &[Value::Int(127), Value::Null]).unwrap();
    let mask =
        |comparison| holds(&Domain::compare(comparison, big.clone()).mask(array.as_ref()).unwrap());
    assert_eq!(mask(Comparison::Less), [true, false]);
    assert_eq!(mask(Comparison::NotEqual), [true, false]);
    assert_eq!(mask(Comparison::Equal), [false, false]);
    assert_eq!(mask(Comparison::GreaterOrEqual), [false, false]);
}

#[test]
fn a_real_is_compared_with_the_number_that_was_written() {
    // The REAL nearest to 0.1 is greater than the DOUBLE 0.1.
    let array = array_of(ColumnType::Float32, &[Value::Float(f64::from(0.1_f32))]).unwrap();
    let mask = |comparison| {
        let domain = Domain::compare(comparison, Value::Float(0.1));
        holds(&domain.mask(array.as_ref()).unwrap())[0]
    };
    assert!(mask(Comparison::Greater) && mask(Comparison::GreaterOrEqual));
    assert!(mask(Comparison::NotEqual) && !mask(Comparison::Equal));
    assert!(!mask(Comparison::Less) && !mask(Comparison::LessOrEqual));
}

#[test]
fn columns_may_come_in_other_arrow_types() {
    let domain = Domain::points(["b", "d"].map(|text| Value::String(text.to_owned())));
    let text = StringArray::from(vec![Some("a"), Some("b"), None]);
    assert_eq!(holds(&domain.mask(&text).unwrap()), [false, true, false]);
    let mut builder = StringDictionaryBuilder::<Int32Type>::new();
    builder.extend([Some("d"), None, Some("c"), Some("d")]);
    let coded = builder.finish();
    assert_eq!(holds(&domain.mask(&coded).unwrap()), [true, false, false, true]);
    let with_null = domain.clone().with_null(true);
    assert_eq!(holds(&with_null.mask(&coded).unwrap()), [true, true, false, true]);
    let nothing = NullArray::new(2);
    assert_eq!(holds(&with_null.mask(&nothing).unwrap()), [true, true]);
    assert_eq!(holds(&domain.mask(&nothing).unwrap()), [false, false]);
    let list = DataType::new_list(DataType::Int32, true);
    let list = arrow::array::new_null_array(&list, 1);
    assert!(domain.mask(list.as_ref()).is_err());
}

#[test]
fn a_column_that_the_batch_lacks_is_null() {
    let schema = Arc::new(Schema::new(vec![Field::new("x", DataType::Int64, true)]));
    let column: ArrayRef = array_of(ColumnType::Int64, &[Value::Int(1)]).unwrap();
    let rows = RecordBatch::try_new(schema, vec![column]).unwrap();
    let mut domains = Domains::default();
    domains.restrict("y", Domain::not_null());
    assert_eq!(holds(&domains.mask(&rows).unwrap().unwrap()), [false]);
    let mut domains = Domains::default();
    domains.restrict("y", Domain::null_only());
    assert!(domains.mask(&rows).unwrap().is_none_or(|mask| mask.true_count() == 1));
    domains.restrict("x", Domain::all());
    assert_eq!(domains.iter().count(), 1);
}

#[test]
fn float_statistics_leave_room_for_nan() {
    let (min, max) = (Value::Float(1.0), Value::Float(2.0));
    let may = |domain: Domain| domain.may_contain(Some(&min), Some(&max), false);
    assert!(may(Domain::compare(Comparison::Greater, Value::Float(5.0))));
    assert!(may(Domain::point(Value::Float(f64::NAN))));
    assert!(!may(Domain::point(Value::Float(5.0))));
    let range =
        Domain::interval(Bound::Included(Value::Float(3.0)), Bound::Included(Value::Float(9.0)));
    assert!(!may(range));
}

#[test]
fn every_type_is_tested() {
    // A new type has to be added to the random ones: this match does not compile without it.
    for column_type in TYPES {
        match column_type {
            ColumnType::Bool
            | ColumnType::Int8
            | ColumnType::Int16
            | ColumnType::Int32
            | ColumnType::Int64
            | ColumnType::UInt8
            | ColumnType::UInt16
            | ColumnType::UInt32
            | ColumnType::UInt64
            | ColumnType::Float32
            | ColumnType::Float64
            | ColumnType::Decimal(..)
            | ColumnType::String
            | ColumnType::Binary
            | ColumnType::Date
            | ColumnType::Timestamp(..)
            | ColumnType::Uuid
            | ColumnType::Time => {}
            ColumnType::Array(_) | ColumnType::Interval => unreachable!("they have no values"),
        }
    }
}

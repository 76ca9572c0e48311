//! Filters beside a plain model of them, the examples of the API's comments, and filters that are not valid.

use std::cmp::Reverse;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::{Filter, Narrowing};
use crate::api::data::column_range::{EndQualifier, StartQualifier};
use crate::api::data::row_filter::{Chain, Condition, Filter as Kind, Interleave};
use crate::api::data::value_range::{EndValue, StartValue};
use crate::api::data::{ColumnRange, RowFilter, TimestampRange, ValueBitmask, ValueRange};
use crate::cell::{Cell, Row};

fn filter(kind: Kind) -> RowFilter {
    RowFilter { filter: Some(kind) }
}

fn chain(filters: Vec<RowFilter>) -> RowFilter {
    filter(Kind::Chain(Chain { filters }))
}

fn interleave(filters: Vec<RowFilter>) -> RowFilter {
    filter(Kind::Interleave(Interleave { filters }))
}

fn condition(
    predicate: RowFilter,
    matched: Option<RowFilter>,
    unmatched: Option<RowFilter>,
) -> RowFilter {
    filter(Kind::Condition(Box::new(Condition {
        predicate_filter: Some(Box::new(predicate)),
        true_filter: matched.map(Box::new),
        false_filter: unmatched.map(Box::new),
    })))
}

fn cell(family: &str, qualifier: &str, timestamp_us: i64, value: &str) -> Cell {
    Cell {
        family: family.into(),
        qualifier: Bytes::copy_from_slice(qualifier.as_bytes()),
        timestamp_us,
        value: Bytes::copy_from_slice(value.as_bytes()),
        label: None,
    }
}

/// Cells as `family:qualifier@timestamp=value[label]`.
fn shown(cells: &[Cell]) -> Vec<String> {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let shown = |cell: &Cell| {
        let label = cell.label.as_ref().map(|label| format!("[{label}]")).unwrap_or_default();
        let (qualifier, value) = (text(&cell.qualifier), text(&cell.value));
        format!("{}:{qualifier}@{}={value}{label}", cell.family, cell.timestamp_us)
    };
    cells.iter().map(shown).collect()
}

fn applied(filter: &RowFilter, cells: Vec<Cell>) -> Vec<String> {
    let row = Row { key: Bytes::from_static(b"r1"), cells };
    shown(&Filter::new(filter, 7).unwrap().apply(row).unwrap().cells)
}

#[test]
fn a_sink_is_not_filtered_by_what_follows_it() {
    let label = filter(Kind::ApplyLabelTransformer("foo".to_owned()));
    let tree = chain(vec![
        filter(Kind::FamilyNameRegexFilter("A".to_owned())),
        interleave(vec![
            filter(Kind::PassAllFilter(true)),
            chain(vec![label, filter(Kind::Sink(true))]),
        ]),
        filter(Kind::ColumnQualifierRegexFilter(Bytes::from_static(b"B"))),
    ]);
    let cells = vec![cell("A", "A", 1, "w"), cell("A", "B", 2, "x"), cell("B", "B", 4, "z")];
    assert_eq!(applied(&tree, cells), ["A:A@1=w[foo]", "A:B@2=x", "A:B@2=x[foo]"]);
}

#[test]
fn interleaved_outputs_are_merged_with_their_duplicates() {
    let value = |text: &'static [u8]| filter(Kind::ValueRegexFilter(Bytes::from_static(text)));
    let tree = interleave(vec![value(b"x|z"), value(b"z|a|x"), filter(Kind::BlockAllFilter(true))]);
    let cells = vec![
        cell("far", "bar", 7, "a"),
        cell("far", "blah", 5, "x"),
        cell("foo", "bar", 10, "z"),
        cell("foo", "bar", 9, "q"),
    ];
    let expected = ["far:bar@7=a", "far:blah@5=x", "far:blah@5=x", "foo:bar@10=z", "foo:bar@10=z"];
    assert_eq!(applied(&tree, cells), expected);
}

#[test]
fn the_newest_cells_of_each_column_are_counted_apart() {
    let cells = vec![
        cell("f", "bar", 10, "1"),
        cell("f", "bar", 9, "2"),
        cell("f", "bar", 8, "3"),
        cell("f", "bar2", 7, "4"),
        cell("g", "bar2", 6, "5"),
    ];
    let columns = filter(Kind::CellsPerColumnLimitFilter(2));
    let expected = ["f:bar@10=1", "f:bar@9=2", "f:bar2@7=4", "g:bar2@6=5"];
    assert_eq!(applied(&columns, cells.clone()), expected);
    let offset = filter(Kind::CellsPerRowOffsetFilter(3));
    assert_eq!(applied(&offset, cells.clone()), ["f:bar2@7=4", "g:bar2@6=5"]);
    let offset = filter(Kind::CellsPerRowOffsetFilter(9));
    assert!(applied(&offset, cells.clone()).is_empty());
    let limit = filter(Kind::CellsPerRowLimitFilter(1));
    assert_eq!(applied(&limit, cells), ["f:bar@10=1"]);
}

#[test]
fn interleaves_in_a_chain_do_not_multiply_cells_without_end() {
    let twice = || {
        let pass = || filter(Kind::PassAllFilter(true));
        interleave(vec![pass(), pass()])
    };
    let chain_of = |length: usize| chain((0..length).map(|_| twice()).collect());
    let row = || Row { key: Bytes::from_static(b"r"), cells: vec![cell("f", "q", 1, "v")] };
    let apply = |tree: &RowFilter| Filter::new(tree, 0).unwrap().apply(row());
    assert_eq!(apply(&chain_of(10)).unwrap().cells.len(), 1 << 10);
    let error = apply(&chain_of(60)).unwrap_err();
    assert_eq!(error.to_string(), "the filter copies more than 1048584 cells of one row");
}

#[test]
fn the_patterns_of_a_filter_share_a_bound() {
    let large = || filter(Kind::ValueRegexFilter(Bytes::from_static(b"(a{1000}){20}")));
    Filter::new(&large(), 0).unwrap();
    let many = chain((0..200).map(|_| large()).collect());
    let error = Filter::new(&many, 0).unwrap_err();
    assert!(error.to_string().ends_with("the pattern is too large"), "{error}");
    let small = || filter(Kind::ValueRegexFilter(Bytes::from_static(b"a.*[0-9]{3}")));
    Filter::new(&chain((0..200).map(|_| small()).collect()), 0).unwrap();
}

#[test]
fn a_sample_takes_about_its_share_of_the_rows_and_the_same_ones_again() {
    let sample = Filter::new(&filter(Kind::RowSampleFilter(0.25)), 3).unwrap();
    let other = Filter::new(&filter(Kind::RowSampleFilter(0.25)), 4).unwrap();
    let row = |number: u32| Row {
        key: Bytes::from(number.to_be_bytes().to_vec()),
        cells: vec![cell("f", "q", 1, "v")],
    };
    let taken = |filter: &Filter| -> Vec<u32> {
        let is_taken = |number: &u32| !filter.apply(row(*number)).unwrap().cells.is_empty();
        (0..4_000).filter(is_taken).collect()
    };
    let first = taken(&sample);
    assert!((850..1_150).contains(&first.len()), "{}", first.len());
    assert_eq!(first, taken(&sample));
    assert_ne!(first, taken(&other));
}

#[test]
fn what_is_not_valid_is_refused_with_its_reason() {
    let pass = || filter(Kind::PassAllFilter(true));
    let label = |text: &str| filter(Kind::ApplyLabelTransformer(text.to_owned()));
    let mut deep = pass();
    for _ in 0..21 {
        deep = chain(vec![deep]);
    }
    let range =
        |start, end| TimestampRange { start_timestamp_micros: start, end_timestamp_micros: end };
    let cases = [
        (RowFilter { filter: None }, "empty"),
        (chain(vec![]), "no filters"),
        (interleave(vec![]), "no filters"),
        (chain(vec![RowFilter { filter: None }]), "empty"),
        (filter(Kind::PassAllFilter(false)), "pass_all_filter must be true"),
        (filter(Kind::BlockAllFilter(false)), "block_all_filter must be true"),
        (filter(Kind::Sink(false)), "sink must be true"),
        (filter(Kind::StripValueTransformer(false)), "must be true"),
        (condition(filter(Kind::Sink(true)), Some(pass()), None), "within a condition"),
        (condition(pass(), None, None), "neither"),
        (filter(Kind::Condition(Box::default())), "no predicate_filter"),
        (filter(Kind::RowSampleFilter(0.0)), "greater than 0"),
        (filter(Kind::RowSampleFilter(1.0)), "less than 1"),
        (filter(Kind::RowSampleFilter(f64::NAN)), "greater than 0"),
        (filter(Kind::RowKeyRegexFilter(Bytes::from_static(b"("))), "missing closing )"),
        (filter(Kind::FamilyNameRegexFilter("a:b".to_owned())), "colon"),
        (filter(Kind::CellsPerRowLimitFilter(-1)), "must not be negative"),
        (filter(Kind::CellsPerRowOffsetFilter(-1)), "must not be negative"),
        (filter(Kind::CellsPerColumnLimitFilter(-1)), "must not be negative"),
        (filter(Kind::TimestampRangeFilter(range(-1, 0))), "must not be negative"),
        (filter(Kind::TimestampRangeFilter(range(5, 4))), "before it starts"),
        (filter(Kind::ColumnRangeFilter(ColumnRange::default())), "no family_name"),
        (label(""), "label"),
        (label("Upper"), "label"),
        (label("sixteen-letters-"), "label"),
        (chain(vec![label("a"), label("b")]), "more than one label"),
        (chain(vec![label("a"), interleave(vec![pass(), label("b")])]), "more than one label"),
        (deep, "deeper than 20"),
        (filter(Kind::ValueRegexFilter(Bytes::from(vec![b'a'; 20_480]))), "exceed the maximum"),
    ];
    for (filter, reason) in cases {
        let error = Filter::new(&filter, 0).unwrap_err().to_string();
        assert!(error.starts_with("invalid filter: ") && error.contains(reason), "{error}");
    }
    let two = interleave(vec![label("a"), label("b")]);
    assert_eq!(applied(&two, vec![cell("f", "q", 1, "v")]), ["f:q@1=v[a]", "f:q@1=v[b]"]);
}

#[test]
fn a_scan_is_narrowed_up_to_the_first_filter_that_sees_other_cells() {
    let narrowing = |filters| Filter::new(&chain(filters), 0).unwrap().narrowing();
    let family = || filter(Kind::FamilyNameRegexFilter("stats".to_owned()));
    let key = filter(Kind::RowKeyRegexFilter(Bytes::from_static(b"phone#.*")));
    let limit = |count| filter(Kind::CellsPerColumnLimitFilter(count));
    let narrowed = narrowing(vec![key, family(), limit(2), limit(1)]);
    let expected = Narrowing {
        key_prefix: Bytes::from_static(b"phone#"),
        family: Some("stats".to_owned()),
        versions: Some(2),
        ..Narrowing::none()
    };
    assert_eq!(narrowed, expected);
    let first = filter(Kind::CellsPerRowLimitFilter(1));
    assert_eq!(narrowing(vec![first, family()]), Narrowing::none());
    let value = filter(Kind::ValueRegexFilter(Bytes::from_static(b"v")));
    assert_eq!(narrowing(vec![value, limit(1)]), Narrowing::none());
}

/// Patterns, which the model matches without regular expressions.
const PATTERNS: [&str; 5] = ["a", ".*", "[ax]", "\\C", "a|b"];

fn plainly_matches(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        b"a" => text == b"a",
        b".*" => !text.contains(&b'\n'),
        b"[ax]" => text == b"a" || text == b"x",
        b"\\C" => text.len() == 1,
        _ => text == b"a" || text == b"b",
    }
}

/// Places of the cells in order; equal ones stay in the order in which they came.
fn sorted(cells: Vec<Cell>) -> Vec<Cell> {
    let mut places: Vec<usize> = (0..cells.len()).collect();
    let place = |index: usize| {
        let cell = &cells[index];
        (cell.family.to_string(), cell.qualifier.to_vec(), Reverse(cell.timestamp_us), index)
    };
    places.sort_by_key(|index| place(*index));
    places.into_iter().map(|index| cells[index].clone()).collect()
}

/// The comments of the API, word by word: each filter looks at all cells of its input.
fn plainly(filter: &RowFilter, key: &[u8], cells: &[Cell], sunk: &mut Vec<Cell>) -> Vec<Cell> {
    let those = |keeps: &dyn Fn(usize, &Cell) -> bool| -> Vec<Cell> {
        let pairs = cells.iter().enumerate().filter(|(index, cell)| keeps(*index, cell));
        pairs.map(|(_, cell)| cell.clone()).collect()
    };
    let number = |count: i32| usize::try_from(count).unwrap();
    match filter.filter.as_ref().unwrap() {
        Kind::Chain(chain) => chain
            .filters
            .iter()
            .fold(cells.to_vec(), |cells, filter| plainly(filter, key, &cells, sunk)),
        Kind::Interleave(interleave) => {
            let outputs = interleave.filters.iter();
            sorted(outputs.flat_map(|filter| plainly(filter, key, cells, sunk)).collect())
        }
        Kind::Condition(condition) => {
            let predicate = condition.predicate_filter.as_ref().unwrap();
            let branch = match plainly(predicate, key, cells, sunk).is_empty() {
                true => &condition.false_filter,
                false => &condition.true_filter,
            };
            branch.as_ref().map(|filter| plainly(filter, key, cells, sunk)).unwrap_or_default()
        }
        Kind::Sink(_) => {
            sunk.extend_from_slice(cells);
            Vec::new()
        }
        Kind::BlockAllFilter(_) => Vec::new(),
        Kind::RowKeyRegexFilter(pattern) => those(&|_, _| plainly_matches(pattern, key)),
        Kind::FamilyNameRegexFilter(pattern) => {
            those(&|_, cell| plainly_matches(pattern.as_bytes(), cell.family.as_bytes()))
        }
        Kind::ColumnQualifierRegexFilter(pattern) => {
            those(&|_, cell| plainly_matches(pattern, &cell.qualifier))
        }
        Kind::ValueRegexFilter(pattern) => those(&|_, cell| plainly_matches(pattern, &cell.value)),
        Kind::ColumnRangeFilter(range) => those(&|_, cell| {
            let starts = match range.start_qualifier.as_ref().unwrap() {
                StartQualifier::StartQualifierClosed(start) => cell.qualifier >= start,
                StartQualifier::StartQualifierOpen(start) => cell.qualifier > start,
            };
            let ends = match range.end_qualifier.as_ref().unwrap() {
                EndQualifier::EndQualifierClosed(end) => cell.qualifier <= end,
                EndQualifier::EndQualifierOpen(end) => cell.qualifier < end,
            };
            *cell.family == *range.family_name && starts && ends
        }),
        Kind::ValueRangeFilter(range) => those(&|_, cell| {
            let starts = match range.start_value.as_ref().unwrap() {
                StartValue::StartValueClosed(start) => cell.value >= start,
                StartValue::StartValueOpen(start) => cell.value > start,
            };
            let ends = match range.end_value.as_ref().unwrap() {
                EndValue::EndValueClosed(end) => cell.value <= end,
                EndValue::EndValueOpen(end) => cell.value < end,
            };
            starts && ends
        }),
        Kind::TimestampRangeFilter(range) => those(&|_, cell| {
            cell.timestamp_us >= range.start_timestamp_micros
                && (range.end_timestamp_micros == 0
                    || cell.timestamp_us < range.end_timestamp_micros)
        }),
        Kind::ValueBitmaskFilter(bitmask) => those(&|_, cell| {
            let bits =
                |index: usize| cell.value[index] & bitmask.mask[index] == bitmask.mask[index];
            cell.value.len() == bitmask.mask.len() && (0..cell.value.len()).all(bits)
        }),
        Kind::CellsPerRowOffsetFilter(count) => those(&|index, _| index >= number(*count)),
        Kind::CellsPerRowLimitFilter(count) => those(&|index, _| index < number(*count)),
        Kind::CellsPerColumnLimitFilter(count) => those(&|index, cell| {
            let is_newer =
                |newer: &&Cell| newer.family == cell.family && newer.qualifier == cell.qualifier;
            cells[..index].iter().filter(is_newer).count() < number(*count)
        }),
        Kind::StripValueTransformer(_) => {
            let strip = |cell: &Cell| Cell { value: Bytes::new(), ..cell.clone() };
            cells.iter().map(strip).collect()
        }
        Kind::ApplyLabelTransformer(label) => {
            let label: Arc<str> = label.as_str().into();
            let labelled = |cell: &Cell| Cell { label: Some(Arc::clone(&label)), ..cell.clone() };
            cells.iter().map(labelled).collect()
        }
        Kind::PassAllFilter(_) | Kind::RowSampleFilter(_) => cells.to_vec(),
    }
}

fn pattern() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(PATTERNS.to_vec())
}

fn bytes_of(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

/// A range of one-letter texts, from the first to the second.
fn letters() -> impl Strategy<Value = (Bytes, Bytes)> {
    ("[abxy]", "[abxy]").prop_map(|(first, second)| {
        let (start, end) = if first <= second { (first, second) } else { (second, first) };
        (Bytes::from(start), Bytes::from(end))
    })
}

fn leaf() -> impl Strategy<Value = RowFilter> {
    let qualifiers = (letters(), any::<bool>()).prop_map(|((start, end), is_closed)| {
        let (start_qualifier, end_qualifier) = match is_closed {
            true => {
                (StartQualifier::StartQualifierClosed(start), EndQualifier::EndQualifierClosed(end))
            }
            false => {
                (StartQualifier::StartQualifierOpen(start), EndQualifier::EndQualifierOpen(end))
            }
        };
        Kind::ColumnRangeFilter(ColumnRange {
            family_name: "a".to_owned(),
            start_qualifier: Some(start_qualifier),
            end_qualifier: Some(end_qualifier),
        })
    });
    let values = (letters(), any::<bool>()).prop_map(|((start, end), is_closed)| {
        let (start_value, end_value) = match is_closed {
            true => (StartValue::StartValueClosed(start), EndValue::EndValueClosed(end)),
            false => (StartValue::StartValueOpen(start), EndValue::EndValueOpen(end)),
        };
        Kind::ValueRangeFilter(ValueRange {
            start_value: Some(start_value),
            end_value: Some(end_value),
        })
    });
    let times = (0..5_i64, 0..5_i64).prop_map(|(first, second)| {
        // An end of 0 is no end.
        let (start, end) =
            if second == 0 { (first, 0) } else { (first.min(second), first.max(second)) };
        Kind::TimestampRangeFilter(TimestampRange {
            start_timestamp_micros: start * 1_000,
            end_timestamp_micros: end * 1_000,
        })
    });
    let plain = proptest::sample::select(vec![
        Kind::PassAllFilter(true),
        Kind::BlockAllFilter(true),
        Kind::Sink(true),
        Kind::StripValueTransformer(true),
        Kind::ApplyLabelTransformer("one".to_owned()),
        Kind::ValueBitmaskFilter(ValueBitmask { mask: Bytes::from_static(b"a") }),
    ]);
    let kinds = prop_oneof![
        plain,
        qualifiers,
        values,
        times,
        pattern().prop_map(|text| Kind::RowKeyRegexFilter(bytes_of(text))),
        pattern().prop_map(|text| Kind::FamilyNameRegexFilter(text.to_owned())),
        pattern().prop_map(|text| Kind::ColumnQualifierRegexFilter(bytes_of(text))),
        pattern().prop_map(|text| Kind::ValueRegexFilter(bytes_of(text))),
        (0..6_i32).prop_map(Kind::CellsPerRowOffsetFilter),
        (0..6_i32).prop_map(Kind::CellsPerRowLimitFilter),
        (0..3_i32).prop_map(Kind::CellsPerColumnLimitFilter),
    ];
    kinds.prop_map(filter)
}

fn tree() -> impl Strategy<Value = RowFilter> {
    leaf().prop_recursive(4, 24, 4, |inner| {
        let few = || proptest::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            few().prop_map(chain),
            few().prop_map(interleave),
            (inner.clone(), proptest::option::of(inner.clone()), inner).prop_map(
                |(predicate, matched, unmatched)| condition(predicate, matched, Some(unmatched))
            ),
        ]
    })
}

/// Cells of a row in their order, without duplicates.
fn cells() -> impl Strategy<Value = Vec<Cell>> {
    let place = ("[ab]", "[abxy]?", 1..5_i64);
    proptest::collection::btree_map(place, "[abx\n]{0,2}", 0..24).prop_map(|values| {
        let cells = values.into_iter().map(|((family, qualifier, time), value)| {
            cell(&family, &qualifier, time * 1_000, &value)
        });
        sorted(cells.collect())
    })
}

/// The cells that a scan with a narrowing reads.
fn narrowed(narrowing: &Narrowing, cells: Vec<Cell>) -> Vec<Cell> {
    let is_within = |cell: &Cell| {
        narrowing.has_column(&cell.family, &cell.qualifier)
            && narrowing.times.contains(cell.timestamp_us)
    };
    let within: Vec<Cell> = cells.into_iter().filter(is_within).collect();
    let newer = |index: usize| {
        let is_same = |cell: &&Cell| {
            cell.family == within[index].family && cell.qualifier == within[index].qualifier
        };
        within[..index].iter().filter(is_same).count()
    };
    let most = narrowing.versions.unwrap_or(usize::MAX);
    (0..within.len())
        .filter(|index| newer(*index) < most)
        .map(|index| within[index].clone())
        .collect()
}

proptest! {
    #[test]
    fn a_filter_leaves_what_the_model_leaves(tree in tree(), cells in cells(), key in "[abx]") {
        // Trees with two labels in a chain, or a sink in a condition, are not valid.
        let Ok(filter) = Filter::new(&tree, 0) else { return Ok(()) };
        let mut sunk = Vec::new();
        let mut expected = plainly(&tree, key.as_bytes(), &cells, &mut sunk);
        expected.append(&mut sunk);
        let row = Row { key: Bytes::from(key), cells };
        prop_assert_eq!(shown(&filter.apply(row).unwrap().cells), shown(&sorted(expected)));
    }

    #[test]
    fn a_narrowed_scan_has_all_that_a_filter_needs(tree in tree(), cells in cells(), key in "[abx]") {
        let Ok(filter) = Filter::new(&tree, 0) else { return Ok(()) };
        let narrowing = filter.narrowing();
        let whole = Row { key: Bytes::from(key), cells };
        let read = match whole.key.starts_with(&narrowing.key_prefix) {
            true => narrowed(&narrowing, whole.cells.clone()),
            false => Vec::new(),
        };
        let part = Row { key: whole.key.clone(), cells: read };
        let (whole, part) = (filter.apply(whole).unwrap(), filter.apply(part).unwrap());
        prop_assert_eq!(shown(&whole.cells), shown(&part.cells));
    }
}

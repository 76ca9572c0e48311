//! Reading by index: an index answers what a scan of all rows answers, and fewer rows are read.

use std::sync::Arc;

use partita_proto::index::{
    Analyzer, Backend, Blooms, Fulltext, Index, IndexKind, IndexOptions, default_name,
};
use partita_proto::key::KeyCodec;
use partita_proto::probe::{ColumnTest, Probe};
use partita_proto::rule::Comparison;
use partita_proto::schema::TableSchema;
use partita_proto::service::{IndexUse, ScanStats};
use partita_proto::text::contains_term;
use proptest::prelude::*;
use regex::RegexBuilder;

use super::split::split;
use super::*;
use crate::read::candidates::CANDIDATES_MAX;

const ALL: [&str; 4] = ["host", "ts", "a", "b"];

/// Gives a column these indexes and no others, by a new version of the schema.
fn set_indexes(fixture: &mut Fixture, name: &str, options: &[IndexOptions]) {
    let mut schema = TableSchema::clone(&fixture.partition.config().schema);
    schema.version = SchemaVersion(schema.version.0 + 1);
    let column = schema.columns.iter_mut().find(|column| column.name == name).unwrap();
    let index = |options: &IndexOptions| Index {
        name: default_name("t", name, options.kind()),
        options: *options,
    };
    column.indexes = options.iter().map(index).collect();
    fixture.index += 1;
    let index = fixture.index;
    fixture.partition.apply_schema(index, mark(index), Arc::new(schema)).unwrap();
}

fn skipping(granularity: u32) -> IndexOptions {
    IndexOptions::Skipping(Blooms { granularity, ..Blooms::default() })
}

fn row(millis: i64, a: i64, b: &str) -> Row {
    vec![text("h"), ts(millis), int(a), text(b)]
}

/// A permutation of 0 to 99: neither row groups nor pages exclude values by their bounds.
fn mixed(number: i64) -> i64 {
    number * 37 % 100
}

fn mixed_rows() -> Vec<Row> {
    (0..100).map(|number| row(number, mixed(number), "x")).collect()
}

fn rows_scanned(stats: &ScanStats) -> u64 {
    stats.rows_scanned.load(Ordering::Relaxed)
}

fn use_of(stats: &ScanStats, column: &str, kind: IndexKind) -> Option<IndexUse> {
    stats.indexes.lock().get(&(column.to_owned(), kind)).copied()
}

/// A probe of one column, by its name.
fn probe(fixture: &Fixture, name: &str, test: ColumnTest) -> Probe {
    let schema = Arc::clone(&fixture.partition.config().schema);
    Probe::Column { column: schema.column(name).unwrap().storage_name.clone(), test }
}

fn terms(terms: &[&str], folded: bool) -> ColumnTest {
    ColumnTest::Terms { terms: terms.iter().map(|term| (*term).to_owned()).collect(), folded }
}

async fn probed(fixture: &Fixture, probes: Vec<Probe>) -> Collected {
    let scan = Scan { probes, ..fixture.scan(&ALL, &[]) };
    collect(&fixture.partition, scan).await.unwrap()
}

#[tokio::test]
async fn only_rows_that_an_index_names_are_read() {
    for options in [append(), last_row()] {
        for (index, rows_max) in [(IndexOptions::Inverted, 1), (skipping(1), 10)] {
            let mut fixture = Fixture::series(options.clone()).await;
            set_indexes(&mut fixture, "a", &[index]);
            fixture.put(&ALL, &mixed_rows());
            fixture.flush().await.unwrap();
            let scan = fixture.scan(&ALL, &[("a", Domain::point(int(7)))]);
            let found = collect(&fixture.partition, scan).await.unwrap();
            assert_eq!(found.rows, [row(11, 7, "x")]);
            let scanned = rows_scanned(&found.stats);
            assert!((1..=rows_max).contains(&scanned), "{index:?}: {scanned} rows");
            let IndexUse { examined, skipped } = use_of(&found.stats, "a_3", index.kind()).unwrap();
            assert!(examined - skipped >= scanned && examined <= 100, "{examined}, {skipped}");
            // The second time its segments come from memory.
            let again = fixture.read_where(&ALL, &[("a", Domain::point(int(7)))]).await.unwrap();
            assert_eq!(again, found.rows);
        }
    }
}

#[tokio::test]
async fn a_column_whose_domain_an_index_decides_is_not_read() {
    let mut fixture = Fixture::series(append()).await;
    set_indexes(&mut fixture, "a", &[IndexOptions::Inverted]);
    fixture.put(&ALL, &mixed_rows());
    fixture.flush().await.unwrap();
    let domain = || [("a", Domain::point(int(7)))];
    // The first time the segments are read.
    assert_eq!(fixture.read_where(&["b"], &domain()).await.unwrap(), [vec![text("x")]]);
    let without = collect(&fixture.partition, fixture.scan(&["b"], &domain())).await.unwrap();
    let with = collect(&fixture.partition, fixture.scan(&["b", "a"], &domain())).await.unwrap();
    assert_eq!(without.rows, [vec![text("x")]]);
    assert_eq!(with.rows, [vec![text("x"), int(7)]]);
    let bytes = |found: &Collected| found.stats.bytes_scanned.load(Ordering::Relaxed);
    assert!(bytes(&without) < bytes(&with), "{} of {} bytes", bytes(&without), bytes(&with));
    assert_eq!(rows_scanned(&without.stats), 1);
}

#[tokio::test]
async fn a_domain_that_an_index_answers_by_blocks_is_applied_to_rows() {
    for options in [append(), last_row()] {
        let mut fixture = Fixture::series(options).await;
        set_indexes(&mut fixture, "a", &[skipping(8)]);
        set_indexes(&mut fixture, "b", &[IndexOptions::Inverted]);
        let rows: Vec<Row> = (0..100)
            .map(|number| row(number, mixed(number), &format!("b{}", number % 3)))
            .collect();
        fixture.put(&ALL, &rows);
        fixture.flush().await.unwrap();
        for number in 0..100 {
            for b in ["b0", "b1", "b2"] {
                let domains =
                    [("a", Domain::point(int(mixed(number)))), ("b", Domain::point(text(b)))];
                let found = fixture.read_where(&["ts"], &domains).await.unwrap();
                let is_there = b == format!("b{}", number % 3);
                assert_eq!(found.len(), usize::from(is_there), "row {number}, {b}");
            }
        }
    }
}

#[tokio::test]
async fn rows_are_counted_before_they_are_filtered() {
    let mut fixture = Fixture::series(append()).await;
    fixture.put(&ALL, &mixed_rows());
    let domain = || [("a", Domain::point(int(7))), ("b", Domain::point(text("x")))];
    let in_memory = collect(&fixture.partition, fixture.scan(&["a"], &domain())).await.unwrap();
    assert_eq!((in_memory.rows.len(), rows_scanned(&in_memory.stats)), (1, 100));
    fixture.flush().await.unwrap();
    let in_file = collect(&fixture.partition, fixture.scan(&["a"], &domain())).await.unwrap();
    assert_eq!(in_file.rows, in_memory.rows);
    // Pages of at most four rows, of which the bounds exclude some; each row counts once, with one filter or two.
    assert!((3..=100).contains(&rows_scanned(&in_file.stats)), "{:?}", in_file.stats);
}

#[tokio::test]
async fn an_overwritten_version_does_not_come_back() {
    for options in [last_row(), last_non_null()] {
        for in_memory in [false, true] {
            let mut fixture = Fixture::series(options.clone()).await;
            set_indexes(&mut fixture, "a", &[IndexOptions::Inverted, skipping(2)]);
            fixture.put(&ALL, &mixed_rows());
            fixture.flush().await.unwrap();
            let even = (0..100).filter(|number| number % 2 == 0);
            let newer: Vec<Row> = even.map(|number| row(number, 1000 + number, "y")).collect();
            fixture.put(&ALL, &newer);
            fixture.write(WriteKind::Delete, &ALL[..2], &[vec![text("h"), ts(3)]]);
            if !in_memory {
                fixture.flush().await.unwrap();
            }
            let (mut queries, mut scanned) = (0, 0);
            for number in (0..100).filter(|number| *number != 3) {
                let (old, new) = (mixed(number), 1000 + number);
                let kept = if number % 2 == 0 { new } else { old };
                for value in [old, new] {
                    let scan = fixture.scan(&ALL, &[("a", Domain::point(int(value)))]);
                    let found = collect(&fixture.partition, scan).await.unwrap();
                    let b = if kept == new { "y" } else { "x" };
                    let expected = if value == kept { vec![row(number, kept, b)] } else { vec![] };
                    assert_eq!(found.rows, expected, "a = {value}");
                    queries += 1;
                    scanned += rows_scanned(&found.stats);
                }
            }
            // For each the key of the candidate and a page of each source, and once where the series of a file end.
            assert!(scanned <= 15 * queries, "{scanned} rows for {queries} queries");
            let deleted = [("a", Domain::point(int(mixed(3))))];
            assert!(fixture.read_where(&ALL, &deleted).await.unwrap().is_empty());
        }
    }
}

#[tokio::test]
async fn candidates_are_read_by_number_in_their_file_and_by_key_in_others() {
    for options in [last_row(), last_non_null()] {
        let mut fixture = Fixture::series(options).await;
        set_indexes(&mut fixture, "a", &[IndexOptions::Inverted]);
        fixture.put(&ALL, &mixed_rows());
        fixture.flush().await.unwrap();
        // Row 11 had a 7; row 12 has one from now on, in another file, and row 13 in memory.
        fixture.put(&ALL, &[row(11, 500, "y"), row(12, 7, "y")]);
        fixture.flush().await.unwrap();
        fixture.put(&ALL, &[row(13, 7, "z"), row(200, 7, "z")]);
        let scan = fixture.scan(&ALL, &[("a", Domain::point(int(7)))]);
        let found = collect(&fixture.partition, scan).await.unwrap();
        assert_eq!(found.rows, [row(12, 7, "y"), row(13, 7, "z"), row(200, 7, "z")]);
        let old = [("a", Domain::point(int(mixed(12))))];
        assert!(fixture.read_where(&ALL, &old).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn versions_may_pass_the_tests_of_two_fields_each_for_itself() {
    for (options, merges) in [(last_row(), false), (last_non_null(), true)] {
        let mut fixture = Fixture::series(options).await;
        set_indexes(&mut fixture, "a", &[IndexOptions::Inverted]);
        set_indexes(&mut fixture, "b", &[IndexOptions::Inverted]);
        let keys = || (0..40).map(|number| (number, vec![text("h"), ts(number)]));
        let a = keys().map(|(number, key)| [key, vec![int(number % 8)]].concat());
        fixture.put(&ALL[..3], &a.collect::<Vec<_>>());
        fixture.flush().await.unwrap();
        let b = keys().map(|(number, key)| [key, vec![text(&format!("b{}", number % 5))]].concat());
        fixture.put(&["host", "ts", "b"], &b.collect::<Vec<_>>());
        fixture.flush().await.unwrap();
        let domains = [("a", Domain::point(int(5))), ("b", Domain::point(text("b3")))];
        let found = fixture.read_where(&ALL, &domains).await.unwrap();
        // 13 is 5 by 8 and 3 by 5.
        assert_eq!(found, if merges { vec![row(13, 5, "b3")] } else { vec![] });
        let within =
            |name: &str, domain: &Domain| probe(&fixture, name, ColumnTest::Within(domain.clone()));
        let both = Probe::All(domains.iter().map(|(name, domain)| within(name, domain)).collect());
        let found = probed(&fixture, vec![both]).await.rows;
        assert_eq!(found.contains(&row(13, 5, "b3")), merges);
    }
}

#[tokio::test]
async fn with_too_many_candidates_all_rows_are_read() {
    let mut fixture = Fixture::series(last_row()).await;
    set_indexes(&mut fixture, "a", &[IndexOptions::Inverted]);
    let count = i64::try_from(CANDIDATES_MAX).unwrap() + 36;
    let rows = |b: &str| (0..count).map(|number| row(number, 5, b)).collect::<Vec<_>>();
    for b in ["x", "y"] {
        fixture.put(&ALL, &rows(b));
        fixture.flush().await.unwrap();
    }
    let found = fixture.read_where(&ALL, &[("a", Domain::point(int(5)))]).await.unwrap();
    assert_eq!(found, rows("y"));
}

#[tokio::test]
async fn a_file_without_the_index_is_read_beside_one_that_has_it() {
    for options in [append(), last_row(), last_non_null()] {
        let mut fixture = Fixture::series(options.clone()).await;
        fixture.put(&ALL, &mixed_rows());
        fixture.flush().await.unwrap();
        set_indexes(&mut fixture, "a", &[IndexOptions::Inverted]);
        fixture.put(&ALL, &[row(11, 8, "y"), row(50, 7, "y"), row(200, 7, "y")]);
        fixture.flush().await.unwrap();
        let mut expected = vec![row(50, 7, "y"), row(200, 7, "y")];
        if options.append_mode {
            expected.push(row(11, 7, "x"));
        }
        expected.sort();
        let seven = || [("a", Domain::point(int(7)))];
        assert_eq!(fixture.read_where(&ALL, &seven()).await.unwrap(), expected);
        // Files are written again when the flushes have been some time ago.
        fixture.clock.0.store(60_000, Ordering::Relaxed);
        while fixture.partition.compact(false).await.unwrap() {}
        assert!(!fixture.partition.wants_compaction());
        let found = collect(&fixture.partition, fixture.scan(&ALL, &seven())).await.unwrap();
        assert_eq!(found.rows, expected);
        let use_of_index = use_of(&found.stats, "a_3", IndexKind::Inverted).unwrap();
        assert!(use_of_index.skipped > 0, "{use_of_index:?}");
    }
}

#[tokio::test]
async fn an_index_that_the_table_no_longer_has_is_not_asked() {
    let mut fixture = Fixture::series(append()).await;
    set_indexes(&mut fixture, "a", &[IndexOptions::Inverted]);
    fixture.put(&ALL, &mixed_rows());
    fixture.flush().await.unwrap();
    set_indexes(&mut fixture, "a", &[skipping(1)]);
    let scan = fixture.scan(&ALL, &[("a", Domain::point(int(7)))]);
    let found = collect(&fixture.partition, scan).await.unwrap();
    assert_eq!(found.rows, [row(11, 7, "x")]);
    assert!(found.stats.indexes.lock().is_empty(), "{:?}", found.stats);
}

#[tokio::test]
async fn patterns_and_words_are_found_by_index() {
    let fulltext = |backend, case_sensitive| {
        IndexOptions::Fulltext(Fulltext { analyzer: Analyzer::English, case_sensitive, backend })
    };
    let blooms = Blooms { granularity: 1, ..Blooms::default() };
    for backend in [Backend::Inverted, Backend::Bloom(blooms)] {
        let mut fixture = Fixture::series(append()).await;
        set_indexes(&mut fixture, "b", &[IndexOptions::Inverted, fulltext(backend, false)]);
        let line = |number: i64| match number {
            20 => "Disk full on /var".to_owned(),
            40 => "disk failure".to_owned(),
            60 => "the discs are fine".to_owned(),
            _ => format!("all is well with line number{number}"),
        };
        let rows: Vec<Row> = (0..100).map(|number| row(number, number, &line(number))).collect();
        fixture.put(&ALL, &rows);
        fixture.flush().await.unwrap();
        let regex = |pattern: &str, case_insensitive| ColumnTest::Regex {
            pattern: pattern.to_owned(),
            case_insensitive,
        };
        let like = |pattern: &str| ColumnTest::Like(pattern.to_owned());
        for (test, kind, expected) in [
            (like("%isk f%"), IndexKind::Inverted, vec![20, 40]),
            (like("_isk full%"), IndexKind::Inverted, vec![20]),
            (regex("dis[ck]s", false), IndexKind::Inverted, vec![60]),
            (regex("^disk", true), IndexKind::Inverted, vec![20, 40]),
            (terms(&["disk"], true), IndexKind::Fulltext, vec![20, 40]),
            (terms(&["disk"], false), IndexKind::Fulltext, vec![40]),
            (terms(&["full", "disk"], true), IndexKind::Fulltext, vec![20]),
        ] {
            let probes = vec![probe(&fixture, "b", test.clone())];
            let found = probed(&fixture, probes).await;
            for number in &expected {
                let missing = !found.rows.contains(&row(*number, *number, &line(*number)));
                assert!(!missing, "{test:?}: {:?}", found.rows);
            }
            // Bloom filters are wrong now and then, and words of either case are one in this index.
            assert!(found.rows.len() <= expected.len() + 10, "{test:?}: {}", found.rows.len());
            let use_of_index = use_of(&found.stats, "b_4", kind).unwrap();
            assert_eq!(use_of_index.examined, 100, "{test:?}");
            assert!(use_of_index.skipped >= 80, "{test:?}: {use_of_index:?}");
        }
        // A disjunction over two columns, one of which has no index, cannot be told.
        let a = probe(&fixture, "a", ColumnTest::Within(Domain::point(int(3))));
        let either = Probe::Any(vec![a, probe(&fixture, "b", like("%isk%"))]);
        assert_eq!(probed(&fixture, vec![either]).await.rows, rows);
    }
}

#[tokio::test]
async fn damage_to_a_segment_is_an_error_that_names_the_file() {
    let mut fixture = Fixture::series(append()).await;
    set_indexes(&mut fixture, "a", &[IndexOptions::Inverted]);
    fixture.put(&ALL, &mixed_rows());
    fixture.flush().await.unwrap();
    let version = fixture.partition.version();
    let handle = Arc::clone(&version.files.values().next().unwrap().handle);
    let footer = fixture.partition.footers.of(&fixture.store, &handle).await.unwrap();
    let (offset, length) = footer.indexes().indexes[0].segments[0];
    assert!(length > 0);
    let path: &str = handle.path.as_ref();
    let file = fixture.directory.path().join(path);
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[usize::try_from(offset).unwrap()] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let refused = fixture.read_where(&ALL, &[("a", Domain::point(int(7)))]).await;
    let Err(partita_proto::Error::Corrupted(message)) = &refused else { panic!("{refused:?}") };
    assert!(message.contains(path), "{message}");
}

const HOUR: i64 = 3_600_000;
/// Types of fields.
const TYPES: [ColumnType; 19] = [
    ColumnType::Bool,
    ColumnType::Int8,
    ColumnType::Int16,
    ColumnType::Int32,
    ColumnType::Int64,
    ColumnType::UInt8,
    ColumnType::UInt16,
    ColumnType::UInt32,
    ColumnType::UInt64,
    ColumnType::Float32,
    ColumnType::Float64,
    ColumnType::Decimal(5, 2),
    ColumnType::String,
    ColumnType::String,
    ColumnType::Binary,
    ColumnType::Date,
    ColumnType::Uuid,
    ColumnType::Time,
    MILLIS,
];
const TEXTS: [&str; 12] = [
    "",
    "short",
    "Error: disk full",
    "error123 on disk 7",
    "errors-in system",
    "50% of a_b",
    "磁盘已满 disk",
    "two\nlines of an error",
    "DISK",
    "a longer text about the disks of a host, which goes on for more than what bounds of pages keep of a text",
    "a longer text about the disks of a host, which goes on for more than what bounds of pages keep of a text!",
    "Ünïcödé Ärger",
];
const LIKES: [&str; 8] =
    ["%disk%", "_hort", "error%", "%\\%%", "%a\\_b", "a longer%!", "", "%\nlines%"];
const PATTERNS: [&str; 7] = ["^err", "dis[kx]s?", "^$", "磁", "\\bdisk\\b", "(", "l+"];
const TERMS: [&str; 7] = ["disk", "error", "disk full", "磁盘", "ärger", "", "50%"];

/// A table: the policy's number, whether the key has a second tag, types and indexes of its fields.
#[derive(Clone, Debug)]
struct Shape {
    policy: usize,
    site: bool,
    types: Vec<ColumnType>,
    /// Column, kind and variant.
    indexes: Vec<(u8, u8, u8)>,
}

type Key = (u8, u8);
/// For each field, a number for its value, and one that decides whether it is NULL.
type Cells = Vec<(u8, u8)>;

#[derive(Clone, Debug)]
enum Step {
    /// Rows with NULL in so many of ten cells, and a bit for each field that is written.
    Put(Vec<(Key, Cells)>, u8, u8),
    Delete(Vec<Key>),
    Flush,
    Compact(bool),
    CompactSome([u8; 3]),
    Reopen,
    SetIndex(u8, u8, u8),
    DropIndex(u8, u8),
    /// A field of some type, with the number of its value in older rows.
    AddField(u8, Option<u8>),
    Truncate,
    /// At a key of so many columns; the test goes on with the right half or the left one.
    Split(Key, u8, bool),
}

#[derive(Clone, Debug)]
enum DomainOf {
    Points(Vec<u8>),
    Compare(u8, u8),
    Between(u8, u8),
    Null,
    NotNull,
    PointOrNull(u8),
}

#[derive(Clone, Debug)]
enum TestOf {
    Within(DomainOf),
    Like(u8),
    Regex(u8, bool),
    Terms(Vec<u8>, bool),
}

#[derive(Clone, Debug)]
enum Tree {
    Leaf(u8, TestOf),
    All(Vec<Tree>),
    Any(Vec<Tree>),
}

/// Predicates of a scan.
#[derive(Clone, Debug)]
struct Asked {
    domains: Vec<(u8, DomainOf)>,
    probes: Vec<Tree>,
    parallelism: usize,
}

fn value_of(column_type: ColumnType, number: u8) -> Value {
    let small = number % 7;
    match column_type {
        ColumnType::Bool => Value::Bool(number.is_multiple_of(2)),
        ColumnType::Int8 | ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64 => {
            int(i64::from(small) - 3)
        }
        ColumnType::UInt8 | ColumnType::UInt16 | ColumnType::UInt32 | ColumnType::UInt64 => {
            Value::UInt(u64::from(small))
        }
        ColumnType::Float32 | ColumnType::Float64 => {
            let values = [-0.0, 0.0, 1.5, -2.5, f64::INFINITY, f64::NAN, 3.0];
            Value::Float(values[usize::from(small)])
        }
        ColumnType::Decimal(..) => Value::Decimal(i128::from(small) - 3),
        ColumnType::String => text(TEXTS[usize::from(number) % TEXTS.len()]),
        ColumnType::Binary => Value::Binary(vec![small, 0]),
        ColumnType::Date => Value::Date(i32::from(small) - 3),
        ColumnType::Uuid => Value::Binary(vec![small; 16]),
        ColumnType::Time => int(i64::from(small)),
        ColumnType::Timestamp(..) => ts(i64::from(small) - 3),
        ColumnType::Array(_) | ColumnType::Interval => unreachable!("they have no indexes"),
    }
}

/// Values of a column: of the key from few, so that keys repeat.
fn value_in(column: &Column, number: u8) -> Value {
    match column.semantic {
        Semantic::Tag if number.is_multiple_of(5) => Value::Null,
        Semantic::Tag if column.column_type == ColumnType::String => {
            text(&format!("host {}", number % 5))
        }
        Semantic::Tag => int(i64::from(number % 3)),
        Semantic::TimeIndex => {
            let number = i64::from(number % 24);
            ts(if number < 20 { number * HOUR / 8 } else { (number - 22) * 8000 * HOUR })
        }
        Semantic::Field => value_of(column.column_type, number),
    }
}

fn domain_of(column: &Column, domain: &DomainOf) -> Domain {
    let value = |number: u8| value_in(column, number);
    match domain {
        DomainOf::Points(numbers) => Domain::points(numbers.iter().map(|number| value(*number))),
        DomainOf::Compare(comparison, number) => {
            let comparison = [
                Comparison::Equal,
                Comparison::NotEqual,
                Comparison::Less,
                Comparison::LessOrEqual,
                Comparison::Greater,
                Comparison::GreaterOrEqual,
            ][usize::from(*comparison) % 6];
            Domain::compare(comparison, value(*number))
        }
        DomainOf::Between(low, high) => {
            let low = Domain::compare(Comparison::GreaterOrEqual, value(*low));
            low.intersect(&Domain::compare(Comparison::LessOrEqual, value(*high)))
        }
        DomainOf::Null => Domain::null_only(),
        DomainOf::NotNull => Domain::not_null(),
        DomainOf::PointOrNull(number) => Domain::point(value(*number)).with_null(true),
    }
}

fn probe_of(schema: &TableSchema, tree: &Tree) -> Probe {
    let parts = |parts: &[Tree]| parts.iter().map(|part| probe_of(schema, part)).collect();
    let (column, test) = match tree {
        Tree::All(trees) => return Probe::All(parts(trees)),
        Tree::Any(trees) => return Probe::Any(parts(trees)),
        Tree::Leaf(column, test) => (usize::from(*column), test),
    };
    // Tests of texts go to a column of texts; there is one in the key.
    let is_text = !matches!(test, TestOf::Within(_));
    let columns: Vec<&Column> = schema
        .columns
        .iter()
        .filter(|column| !is_text || column.column_type == ColumnType::String)
        .collect();
    let column = columns[column % columns.len()];
    let test = match test {
        TestOf::Within(domain) => ColumnTest::Within(domain_of(column, domain)),
        TestOf::Like(number) => {
            ColumnTest::Like(LIKES[usize::from(*number) % LIKES.len()].to_owned())
        }
        TestOf::Regex(number, case_insensitive) => ColumnTest::Regex {
            pattern: PATTERNS[usize::from(*number) % PATTERNS.len()].to_owned(),
            case_insensitive: *case_insensitive,
        },
        TestOf::Terms(numbers, folded) => ColumnTest::Terms {
            terms: numbers
                .iter()
                .map(|number| TERMS[usize::from(*number) % TERMS.len()].to_owned())
                .collect(),
            folded: *folded,
        },
    };
    Probe::Column { column: column.storage_name.clone(), test }
}

/// LIKE, character by character.
fn is_like(pattern: &[char], text: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['%', rest @ ..] => (0..=text.len()).any(|start| is_like(rest, &text[start..])),
        ['_', rest @ ..] => !text.is_empty() && is_like(rest, &text[1..]),
        ['\\', literal, rest @ ..] | [literal, rest @ ..] => {
            text.first() == Some(literal) && is_like(rest, &text[1..])
        }
    }
}

fn passes(schema: &TableSchema, probe: &Probe, row: &Row) -> bool {
    let (column, test) = match probe {
        Probe::All(parts) => return parts.iter().all(|part| passes(schema, part, row)),
        Probe::Any(parts) => return parts.iter().any(|part| passes(schema, part, row)),
        Probe::Column { column, test } => (column, test),
    };
    let position = schema.columns.iter().position(|other| other.storage_name == *column).unwrap();
    let value = &row[position];
    if let ColumnTest::Within(domain) = test {
        return domain.contains(value);
    }
    let Value::String(text) = value else { return false };
    match test {
        ColumnTest::Within(domain) => domain.contains(value),
        ColumnTest::Like(pattern) => {
            let characters = |text: &str| text.chars().collect::<Vec<_>>();
            is_like(&characters(pattern), &characters(text))
        }
        ColumnTest::Regex { pattern, case_insensitive } => {
            // An invalid pattern is the caller's error: it selects nothing here.
            let regex = RegexBuilder::new(pattern).case_insensitive(*case_insensitive).build();
            regex.is_ok_and(|regex| regex.is_match(text))
        }
        ColumnTest::Terms { terms, folded } => {
            let text = if *folded { text.to_lowercase() } else { text.clone() };
            terms.iter().all(|term| contains_term(&text, term))
        }
    }
}

fn index_of(column: &Column, kind: u8, variant: u8) -> Index {
    let granularity = 1 + u32::from(variant % 6);
    let false_positives_ppm = if variant.is_multiple_of(2) { 10_000 } else { 400_000 };
    let blooms = Blooms { granularity, false_positives_ppm };
    let is_text = column.column_type == ColumnType::String;
    let options = match kind % 3 {
        0 => IndexOptions::Inverted,
        1 if is_text => IndexOptions::Fulltext(Fulltext {
            analyzer: if variant % 5 < 2 { Analyzer::English } else { Analyzer::Chinese },
            case_sensitive: variant.is_multiple_of(3),
            backend: if variant % 4 < 2 { Backend::Bloom(blooms) } else { Backend::Inverted },
        }),
        _ => IndexOptions::Skipping(blooms),
    };
    Index { name: default_name("t", &column.name, options.kind()), options }
}

fn set_index(schema: &mut TableSchema, column: u8, kind: u8, variant: u8) {
    let count = schema.columns.len();
    let column = &mut schema.columns[usize::from(column) % count];
    let index = index_of(column, kind, variant);
    column.indexes.retain(|other| other.options.kind() != index.options.kind());
    column.indexes.push(index);
}

fn schema_of(shape: &Shape) -> TableSchema {
    let options = [append(), last_row(), last_non_null()][shape.policy].clone();
    let mut schema = series_schema(options);
    schema.columns.truncate(2);
    if shape.site {
        schema.columns.push(column(3, "site", ColumnType::Int64, Semantic::Tag));
        schema.key.insert(1, ColumnId(3));
    }
    for (id, column_type) in (4..).zip(&shape.types) {
        schema.columns.push(column(id, &format!("f{id}"), *column_type, Semantic::Field));
    }
    schema.next_column = ColumnId(20);
    for (column, kind, variant) in &shape.indexes {
        set_index(&mut schema, *column, *kind, *variant);
    }
    schema
}

struct Test {
    fixture: Fixture,
    folds: bool,
}

impl Test {
    async fn new(shape: &Shape) -> Self {
        let mut fixture = Fixture::new(config(schema_of(shape), Placement::Range)).await;
        fixture.options.compaction_runs = 2;
        fixture.options.compaction_runs_busy = 3;
        fixture.options.file_bytes_target = 1;
        fixture.reopen().await;
        Self { fixture, folds: shape.policy > 0 }
    }

    fn schema(&self) -> Arc<TableSchema> {
        Arc::clone(&self.fixture.partition.config().schema)
    }

    /// Columns of the key, in the order of the key.
    fn key_columns(&self) -> Vec<Column> {
        let schema = self.schema();
        schema.key.iter().map(|id| schema.column_by_id(*id).unwrap().clone()).collect()
    }

    fn key(&self, (host, tick): Key) -> Vec<Value> {
        let number = |column: &Column| match column.semantic {
            Semantic::TimeIndex => tick,
            Semantic::Tag | Semantic::Field => host,
        };
        self.key_columns().iter().map(|column| value_in(column, number(column))).collect()
    }

    fn encoded(&self, key: &[Value]) -> Bytes {
        let columns = self.key_columns();
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let rows = self.fixture.rows(&names, &[key.to_vec()]);
        let config = self.fixture.partition.config();
        let codec = KeyCodec::new(&config.schema, &config.placement).unwrap();
        Bytes::copy_from_slice(codec.encode(&rows).unwrap().get(0))
    }

    fn owns(&self, key: &[Value]) -> bool {
        self.fixture.partition.version().layout.range.contains(&self.encoded(key))
    }

    fn put(&mut self, rows: &[(Key, Cells)], nulls: u8, given: u8) {
        let schema = self.schema();
        let is_field = |column: &&Column| column.semantic == Semantic::Field;
        let fields = schema.columns.iter().filter(is_field).enumerate();
        let fields: Vec<(usize, &Column)> =
            fields.filter(|(number, _)| (given >> (number % 8)) & 1 == 1).collect();
        let keys = self.key_columns();
        let key_names = keys.iter().map(|column| column.name.as_str());
        let names: Vec<&str> =
            key_names.chain(fields.iter().map(|(_, column)| column.name.as_str())).collect();
        let mut values = Vec::new();
        for (key, cells) in rows {
            let mut row = self.key(*key);
            if !self.owns(&row) {
                continue;
            }
            row.extend(fields.iter().map(|(number, column)| {
                let (value, dice) = cells[number % cells.len()];
                if dice % 10 < nulls { Value::Null } else { value_in(column, value) }
            }));
            values.push(row);
        }
        if !values.is_empty() {
            self.fixture.put(&names, &values);
        }
    }

    fn delete(&mut self, keys: &[Key]) {
        let keys: Vec<Row> = keys.iter().map(|key| self.key(*key)).collect();
        let keys: Vec<Row> = keys.into_iter().filter(|key| self.owns(key)).collect();
        let columns = self.key_columns();
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        if self.folds && !keys.is_empty() {
            self.fixture.write(WriteKind::Delete, &names, &keys);
        }
    }

    fn alter(&mut self, change: impl FnOnce(&mut TableSchema)) {
        let mut schema = TableSchema::clone(&self.schema());
        schema.version = SchemaVersion(schema.version.0 + 1);
        change(&mut schema);
        self.fixture.index += 1;
        let index = self.fixture.index;
        self.fixture.partition.apply_schema(index, mark(index), Arc::new(schema)).unwrap();
    }

    fn add_field(&mut self, column_type: u8, value: Option<u8>) {
        let column_type = TYPES[usize::from(column_type) % TYPES.len()];
        self.alter(|schema| {
            let ColumnId(id) = schema.next_column;
            let added = column(id, &format!("f{id}"), column_type, Semantic::Field);
            let missing = value.map(|number| value_of(column_type, number));
            schema.columns.push(Column { missing, ..added });
            schema.next_column = ColumnId(id + 1);
        });
    }

    async fn split(&mut self, key: Key, columns: u8, keep_right: bool) {
        let layout = Arc::clone(&self.fixture.partition.version().layout);
        let mut cut = layout.codec.decode(&self.encoded(&self.key(key))).unwrap();
        cut.key.truncate(usize::from(columns).max(1));
        let encoded = layout.codec.encode_bound(&cut).unwrap();
        if !layout.range.contains(&encoded) || layout.range.start >= encoded {
            return;
        }
        self.fixture.flush().await.unwrap();
        self.fixture.index += 1;
        let index = self.fixture.index;
        let root = Path::from(format!("partitions/child-{index}"));
        split(&self.fixture, &root, &cut, index).await.unwrap();
        if keep_right {
            let clock: Arc<dyn Clock> = Arc::<TestClock>::clone(&self.fixture.clock);
            let (store, options) = (Arc::clone(&self.fixture.store), self.fixture.options.clone());
            let child = Partition::open(store, root.clone(), options, clock).await.unwrap();
            self.fixture.partition = child;
            self.fixture.root = root;
        }
    }

    async fn step(&mut self, step: &Step) {
        match step {
            Step::Put(rows, nulls, given) => self.put(rows, *nulls, *given),
            Step::Delete(keys) => self.delete(keys),
            Step::Flush => {
                self.fixture.flush().await.unwrap();
            }
            Step::Compact(everything) => {
                self.fixture.partition.compact(*everything).await.unwrap();
            }
            Step::CompactSome(choice) => {
                let choice = choice.map(usize::from);
                self.fixture.partition.compact_some(choice).await.unwrap();
            }
            Step::Reopen => {
                let schema = self.schema();
                self.fixture.flush().await.unwrap();
                self.fixture.reopen().await;
                assert_eq!(self.schema(), schema);
            }
            Step::SetIndex(column, kind, variant) => {
                self.alter(|schema| set_index(schema, *column, *kind, *variant));
            }
            Step::DropIndex(column, kind) => self.alter(|schema| {
                let count = schema.columns.len();
                let kind = IndexKind::ALL[usize::from(*kind) % 3];
                let column = &mut schema.columns[usize::from(*column) % count];
                column.indexes.retain(|index| index.options.kind() != kind);
            }),
            Step::AddField(column_type, value) if self.schema().columns.len() < 8 => {
                self.add_field(*column_type, *value);
            }
            Step::AddField(..) => {}
            Step::Truncate => {
                self.fixture.index += 1;
                let index = self.fixture.index;
                self.fixture.partition.apply_truncate(index, mark(index)).unwrap();
            }
            Step::Split(key, columns, keep_right) => self.split(*key, *columns, *keep_right).await,
        }
    }

    /// A scan with predicates returns all rows that satisfy them, as a scan of everything says, and each once.
    async fn check(&self, asked: &Asked) {
        let schema = self.schema();
        let names: Vec<&str> = schema.columns.iter().map(|column| column.name.as_str()).collect();
        let domains: Vec<(usize, Domain)> = asked
            .domains
            .iter()
            .map(|(column, domain)| {
                let position = usize::from(*column) % names.len();
                (position, domain_of(&schema.columns[position], domain))
            })
            .collect();
        let probes: Vec<Probe> = asked.probes.iter().map(|tree| probe_of(&schema, tree)).collect();
        let in_domains =
            |row: &Row| domains.iter().all(|(position, domain)| domain.contains(&row[*position]));
        let is_wanted =
            |row: &Row| in_domains(row) && probes.iter().all(|probe| passes(&schema, probe, row));
        let mut expected = self.fixture.read(&names).await;
        expected.retain(is_wanted);
        let named: Vec<(&str, Domain)> =
            domains.iter().map(|(position, domain)| (names[*position], domain.clone())).collect();
        let scan = Scan {
            probes: probes.clone(),
            parallelism: asked.parallelism,
            ..self.fixture.scan(&names, &named)
        };
        let mut found = collect(&self.fixture.partition, scan).await.unwrap().rows;
        assert!(found.iter().all(in_domains), "domains {named:?} are applied exactly");
        found.retain(is_wanted);
        assert_eq!(found, expected, "domains {named:?}, probes {probes:?}");
    }
}

fn domain() -> impl Strategy<Value = DomainOf> {
    prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..4).prop_map(DomainOf::Points),
        4 => any::<(u8, u8)>().prop_map(|(comparison, number)| DomainOf::Compare(comparison, number)),
        2 => any::<(u8, u8)>().prop_map(|(low, high)| DomainOf::Between(low, high)),
        1 => Just(DomainOf::Null),
        1 => Just(DomainOf::NotNull),
        1 => any::<u8>().prop_map(DomainOf::PointOrNull),
    ]
}

fn tree() -> impl Strategy<Value = Tree> {
    let test = prop_oneof![
        2 => domain().prop_map(TestOf::Within),
        1 => any::<u8>().prop_map(TestOf::Like),
        1 => any::<(u8, bool)>().prop_map(|(number, fold)| TestOf::Regex(number, fold)),
        1 => (prop::collection::vec(any::<u8>(), 1..3), any::<bool>())
            .prop_map(|(numbers, folded)| TestOf::Terms(numbers, folded)),
    ];
    let leaf = (any::<u8>(), test).prop_map(|(column, test)| Tree::Leaf(column, test));
    leaf.prop_recursive(2, 8, 3, |inner| {
        let parts = prop::collection::vec(inner, 1..4);
        prop_oneof![parts.clone().prop_map(Tree::All), parts.prop_map(Tree::Any)]
    })
}

fn asked() -> impl Strategy<Value = Asked> {
    let domains = prop::collection::vec((any::<u8>(), domain()), 0..3);
    let probes = prop::collection::vec(tree(), 0..3);
    (domains, probes, 1_usize..4).prop_map(|(domains, probes, parallelism)| Asked {
        domains,
        probes,
        parallelism,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let key = || prop_oneof![any::<Key>(), (1_u8..3, 0_u8..2)];
    let cells = || prop::collection::vec(any::<(u8, u8)>(), 4);
    let rows = move || prop::collection::vec((key(), cells()), 1..40);
    prop_oneof![
        10 => (rows(), 0_u8..10, prop_oneof![Just(u8::MAX), any::<u8>()])
            .prop_map(|(rows, nulls, given)| Step::Put(rows, nulls, given)),
        3 => prop::collection::vec(key(), 1..8).prop_map(Step::Delete),
        8 => Just(Step::Flush),
        2 => any::<bool>().prop_map(Step::Compact),
        2 => any::<[u8; 3]>().prop_map(Step::CompactSome),
        1 => Just(Step::Reopen),
        3 => any::<(u8, u8, u8)>()
            .prop_map(|(column, kind, variant)| Step::SetIndex(column, kind, variant)),
        1 => any::<(u8, u8)>().prop_map(|(column, kind)| Step::DropIndex(column, kind)),
        1 => any::<(u8, Option<u8>)>().prop_map(|(ty, value)| Step::AddField(ty, value)),
        1 => Just(Step::Truncate),
        2 => (key(), 0_u8..4, any::<bool>())
            .prop_map(|(key, columns, right)| Step::Split(key, columns, right)),
    ]
}

fn shape() -> impl Strategy<Value = Shape> {
    let types = prop::collection::vec(prop::sample::select(TYPES.to_vec()), 2..5);
    let indexes = prop::collection::vec(any::<(u8, u8, u8)>(), 1..8);
    (0_usize..3, any::<bool>(), types, indexes).prop_map(|(policy, site, types, indexes)| Shape {
        policy,
        site,
        types,
        indexes,
    })
}

fn run(shape: &Shape, steps: &[(Step, Vec<Asked>)]) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let mut test = Test::new(shape).await;
        for (step, questions) in steps {
            test.step(step).await;
            for asked in questions {
                test.check(asked).await;
            }
        }
        test.fixture.partition.verify().await.unwrap();
    });
}

/// Number of tables: few unless `PARTITA_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("PARTITA_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(96)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        max_shrink_iters: 500,
        ..ProptestConfig::default()
    })]

    #[test]
    fn an_index_answers_what_a_scan_of_all_rows_answers(
        shape in shape(),
        steps in prop::collection::vec((step(), prop::collection::vec(asked(), 1..4)), 1..30),
    ) {
        run(&shape, &steps);
    }
}

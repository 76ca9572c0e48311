//! Files with indexes: written with them, and written again for new ones.

use partita_proto::index::{Analyzer, Backend, Blooms, Fulltext, Index, IndexOptions};
use partita_proto::range::Bound;

use super::split::split;
use super::*;
use crate::file::blocks::read_through;
use crate::file::{FileEntry, FileId};
use crate::index::directory::{Directory, Listed};
use crate::index::{Question, Segment};
use crate::sizes::INDEXES_KEY;

const NAMES: [&str; 4] = ["host", "ts", "a", "b"];

const BLOOMS: Blooms = Blooms { granularity: 4, false_positives_ppm: 10_000 };

fn fulltext(backend: Backend) -> IndexOptions {
    IndexOptions::Fulltext(Fulltext { analyzer: Analyzer::English, case_sensitive: false, backend })
}

/// Applies a schema with these indexes and no others.
fn set_indexes(partition: &Partition, index: u64, indexes: &[(&str, IndexOptions)]) {
    let mut schema = TableSchema::clone(&partition.config().schema);
    schema.version = SchemaVersion(schema.version.0 + 1);
    for column in &mut schema.columns {
        let of_column = indexes.iter().filter(|(name, _)| *name == column.name);
        let named = of_column.map(|(name, options)| Index {
            name: format!("t_{name}_{}", options.kind().method()),
            options: *options,
        });
        column.indexes = named.collect();
    }
    partition.apply_schema(index, mark(index), Arc::new(schema)).unwrap();
}

fn change_indexes(fixture: &mut Fixture, indexes: &[(&str, IndexOptions)]) {
    fixture.index += 1;
    set_indexes(&fixture.partition, fixture.index, indexes);
}

fn rows(numbers: std::ops::Range<i64>) -> Vec<Row> {
    let row = |n: i64| {
        let b = if n % 7 == 0 { Value::Null } else { text(&format!("Disk {} full", n % 5)) };
        vec![text(&format!("h{}", n % 3)), ts(n), int(n), b]
    };
    let mut rows: Vec<Row> = numbers.map(row).collect();
    rows.sort();
    rows
}

/// Run and indexes of each file, in order of runs.
fn described(partition: &Partition) -> Vec<(u64, Vec<(ColumnId, IndexOptions)>)> {
    let version = partition.version();
    let describe = |entry: &FileEntry| {
        let indexed = &entry.meta().indexed;
        let indexes: Vec<_> = indexed.iter().map(|index| (index.column, index.options)).collect();
        (entry.meta().run, indexes)
    };
    let mut files: Vec<_> = version.files.values().map(describe).collect();
    files.sort_by_key(|(run, _)| *run);
    files
}

/// Files that lack an index of the schema.
fn lacking(partition: &Partition) -> Vec<FileId> {
    let version = partition.version();
    let files = version.files.values().map(FileEntry::meta);
    files.filter(|meta| meta.lacks_index(&version.layout.indexes)).map(|meta| meta.id).collect()
}

fn at(fixture: &Fixture, now_ms: i64) {
    fixture.clock.0.store(now_ms, Ordering::Relaxed);
}

/// The directory in the footer of a file, and all its segments by index and row group.
async fn segments(fixture: &Fixture, entry: &FileEntry) -> (Directory, Vec<Vec<Segment>>) {
    let footer = fixture.partition.footers.of(&fixture.store, &entry.handle).await.unwrap();
    let entries = footer.metadata.metadata().file_metadata().key_value_metadata().unwrap();
    let text = entries.iter().find(|entry| entry.key == INDEXES_KEY).unwrap().value.clone();
    let directory = Directory::of_text(&text.unwrap()).unwrap();
    let mut decoded = Vec::new();
    for Listed { index, segments } in &directory.indexes {
        let mut groups = Vec::new();
        for (offset, length) in segments {
            let range = *offset..*offset + u64::from(*length);
            let bytes = read_through(&fixture.store, &entry.handle, &footer, range).await.unwrap();
            groups.push(Segment::decode(&bytes, &index.options).unwrap());
        }
        decoded.push(groups);
    }
    (directory, decoded)
}

/// Number of rows that may pass, in all row groups.
fn count(groups: &[Segment], question: Question<'_>) -> u64 {
    groups.iter().map(|segment| segment.rows(&question).unwrap().unwrap().len()).sum()
}

#[tokio::test]
async fn a_file_has_a_segment_of_each_index_behind_each_row_group() {
    let wanted = [
        ("host", IndexOptions::Inverted),
        ("a", IndexOptions::Skipping(BLOOMS)),
        ("b", fulltext(Backend::Inverted)),
    ];
    for compacted in [false, true] {
        let mut fixture = Fixture::series(last_row()).await;
        change_indexes(&mut fixture, &wanted);
        fixture.put(&NAMES, &rows(0..60));
        fixture.write(WriteKind::Delete, &["host", "ts"], &[vec![text("x"), ts(1)]]);
        fixture.flush().await.unwrap();
        if compacted {
            fixture.put(&NAMES, &rows(50..70));
            fixture.flush().await.unwrap();
            fixture.partition.compact(true).await.unwrap();
        }
        let total: i64 = if compacted { 70 } else { 60 };
        let (mut of_host, mut blocks, mut with_term, mut groups) = (0, 0, 0, 0);
        let version = fixture.partition.version();
        for entry in version.files.values() {
            let (directory, decoded) = segments(&fixture, entry).await;
            assert_eq!(entry.meta().index_bytes, directory.bytes());
            let listed: Vec<_> = directory.indexes.iter().map(|listed| &listed.index).collect();
            assert_eq!(listed, entry.meta().indexed.iter().collect::<Vec<_>>());
            assert_eq!(listed.len(), wanted.len());
            assert!(decoded.iter().all(|groups| groups.len() == entry.row_groups()));
            groups += entry.row_groups();
            let host = Domain::point(text("h1"));
            of_host += count(&decoded[0], Question::Within(&host));
            let number = Domain::point(int(20));
            blocks += count(&decoded[1], Question::Within(&number));
            let terms = ["disk".to_owned()];
            with_term += count(&decoded[2], Question::Terms { terms: &terms, folded: true });
        }
        assert!(groups > 2, "{groups} row groups");
        assert!((1..20).contains(&blocks), "{blocks} rows, of one block or two");
        let expected = rows(0..total);
        let is_host = |row: &&Row| row[0] == text("h1");
        assert_eq!(of_host, expected.iter().filter(is_host).count() as u64);
        assert_eq!(with_term, expected.iter().filter(|row| row[3] != Value::Null).count() as u64);
        drop(version);
        assert_eq!(fixture.read(&NAMES).await, expected);
        fixture.partition.verify().await.unwrap();
        // The manifest knows the indexes without a look at the files.
        let before = described(&fixture.partition);
        fixture.reopen().await;
        assert_eq!(described(&fixture.partition), before);
        assert_eq!(fixture.read(&NAMES).await, expected);
    }
}

#[tokio::test]
async fn a_new_index_comes_into_existing_files_one_by_one() {
    let mut fixture = Fixture::series(last_row()).await;
    for part in 0..3 {
        fixture.put(&NAMES, &rows(part * 20..part * 20 + 30));
        fixture.flush().await.unwrap();
    }
    at(&fixture, 60_000);
    assert!(!fixture.partition.wants_compaction());
    let runs: Vec<u64> = described(&fixture.partition).iter().map(|(run, _)| *run).collect();
    let expected = rows(0..70);
    for options in [
        IndexOptions::Inverted,
        IndexOptions::Skipping(BLOOMS),
        IndexOptions::Skipping(Blooms { granularity: 8, ..BLOOMS }),
        fulltext(Backend::Bloom(BLOOMS)),
    ] {
        change_indexes(&mut fixture, &[("b", options)]);
        for remaining in [3, 2, 1] {
            assert_eq!(lacking(&fixture.partition).len(), remaining);
            assert!(fixture.partition.wants_compaction());
            assert!(fixture.partition.compact(false).await.unwrap());
            assert_eq!(fixture.read(&NAMES).await, expected);
        }
        assert!(lacking(&fixture.partition).is_empty());
        assert!(!fixture.partition.wants_compaction());
        assert!(!fixture.partition.compact(false).await.unwrap());
        let indexed = vec![(ColumnId(4), options)];
        let files: Vec<_> = runs.iter().map(|run| (*run, indexed.clone())).collect();
        assert_eq!(described(&fixture.partition), files, "each file keeps its run");
        fixture.partition.verify().await.unwrap();
    }
    // A dropped index makes no work of its own; it leaves when files are written for another reason.
    change_indexes(&mut fixture, &[]);
    assert!(!fixture.partition.wants_compaction());
    fixture.partition.compact(true).await.unwrap();
    assert!(described(&fixture.partition).iter().all(|(_, indexed)| indexed.is_empty()));
    assert_eq!(fixture.read(&NAMES).await, expected);
}

#[tokio::test]
async fn files_are_not_written_again_for_an_index_while_writes_are_fast() {
    let mut fixture = Fixture::series(append()).await;
    for part in 0..2 {
        at(&fixture, part * 5_000);
        fixture.put(&NAMES, &rows(0..20));
        fixture.flush().await.unwrap();
    }
    change_indexes(&mut fixture, &[("a", IndexOptions::Inverted)]);
    assert!(!fixture.partition.wants_compaction());
    at(&fixture, 30_000);
    assert!(fixture.partition.wants_compaction());
    // A request to merge everything is carried out in any case.
    at(&fixture, 5_000);
    assert!(fixture.partition.compact(true).await.unwrap());
    assert!(lacking(&fixture.partition).is_empty());
    assert!(!fixture.partition.compact(true).await.unwrap());
}

#[tokio::test]
async fn the_halves_of_a_split_share_files_with_their_indexes() {
    let mut fixture = Fixture::series(last_row()).await;
    let wanted = [("a", IndexOptions::Inverted), ("b", fulltext(Backend::Bloom(BLOOMS)))];
    change_indexes(&mut fixture, &wanted);
    fixture.put(&NAMES, &rows(0..60));
    fixture.flush().await.unwrap();
    let (root, cut) = (Path::from("partitions/8"), vec![text("h1"), ts(30)]);
    let cut = Bound { placement: None, key: cut };
    split(&fixture, &root, &cut, 3).await.unwrap();
    let clock: Arc<dyn Clock> = Arc::<TestClock>::clone(&fixture.clock);
    let options = fixture.options.clone();
    let child = Partition::open(Arc::clone(&fixture.store), root, options, clock).await.unwrap();
    let has_indexes = |partition: &Partition| {
        let files = described(partition);
        !files.is_empty() && files.iter().all(|(_, indexed)| indexed.len() == wanted.len())
    };
    for partition in [&fixture.partition, &child] {
        assert!(has_indexes(partition));
        assert!(lacking(partition).is_empty());
        // Files that reach beyond the range are written again, once it has been stable for a while.
        at(&fixture, 0);
        assert!(!partition.wants_compaction());
        at(&fixture, 60_000);
        while partition.compact(false).await.unwrap() {}
        assert!(has_indexes(partition));
        assert!(!partition.wants_compaction());
        partition.verify().await.unwrap();
    }
    // An index that is declared after the split comes into each half by itself.
    set_indexes(&child, 4, &[("host", IndexOptions::Inverted)]);
    assert!(!lacking(&child).is_empty());
    while child.compact(false).await.unwrap() {}
    assert!(lacking(&child).is_empty());
    assert!(has_indexes(&fixture.partition));
    let left = fixture.read(&NAMES).await;
    let right = collect(&child, fixture.scan(&NAMES, &[])).await.unwrap().rows;
    assert_eq!([left, right].concat(), rows(0..60));
}

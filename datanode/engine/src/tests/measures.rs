//! Measures of a partition: of memtables and files, before and after the rows are written anew.

use std::fs;

use partita_proto::index::{Blooms, Index, IndexKind, IndexOptions};
use partita_proto::measure::{
    DELETED, IndexBuild, Intervals, OPERATION_COLUMN, PartitionMeasures, SEQUENCE_COLUMN,
    TableMeasures,
};

use super::failure::files;
use super::*;
use crate::rows::fold::DELETE;
use crate::rows::layout::{OP_COLUMN, SEQ_COLUMN};

const ALL: [&str; 4] = ["host", "ts", "a", "b"];

/// Rows of three hosts, some of them without a number or a text.
fn rows(numbers: std::ops::Range<i64>) -> Vec<Row> {
    let row = |number: i64| {
        let a = if number % 4 == 0 { Value::Null } else { int(number) };
        let b = if number % 3 == 0 { Value::Null } else { text(&format!("text {}", number % 7)) };
        vec![text(&format!("host{}", number % 3)), ts(number), a, b]
    };
    numbers.map(row).collect()
}

async fn measured(fixture: &Fixture) -> PartitionMeasures {
    fixture.partition.measures().await.unwrap().as_ref().clone()
}

/// The measures without the figures that depend on how the rows are cut into batches.
fn of_rows(mut measures: TableMeasures) -> TableMeasures {
    measures.intervals = Intervals::default();
    measures.split_rows = 0;
    for column in measures.columns.values_mut() {
        (column.ascending, column.compared) = (0, 0);
    }
    measures
}

/// Applies a schema of a later version.
fn change(fixture: &mut Fixture, change: impl FnOnce(&mut TableSchema)) {
    let mut schema = TableSchema::clone(&fixture.partition.config().schema);
    schema.version = SchemaVersion(schema.version.0 + 1);
    change(&mut schema);
    fixture.index += 1;
    let index = fixture.index;
    fixture.partition.apply_schema(index, mark(index), Arc::new(schema)).unwrap();
}

#[test]
fn stored_rows_have_the_columns_that_measures_look_for() {
    assert_eq!((OPERATION_COLUMN, DELETED, SEQUENCE_COLUMN), (OP_COLUMN, DELETE, SEQ_COLUMN));
}

#[tokio::test]
async fn measures_of_files_are_those_of_their_rows() {
    let mut fixture = Fixture::series(append()).await;
    let mut direct = TableMeasures::default();
    let batch = fixture.rows(&ALL, &rows(0..60));
    direct.add_rows(&fixture.partition.config().schema, &batch).unwrap();
    let direct = of_rows(direct);
    assert_eq!((direct.rows, direct.columns.len(), direct.shapes.len()), (60, 4, 4));

    for part in 0..3 {
        fixture.put(&ALL, &rows(part * 20..part * 20 + 20));
    }
    let in_memory = measured(&fixture).await;
    assert_eq!(of_rows(in_memory.measures), direct, "in memtables");
    assert!(in_memory.column_bytes.is_empty(), "nothing is in files");
    fixture.flush().await.unwrap();
    assert_eq!(of_rows(measured(&fixture).await.measures), direct, "in a file");
    fixture.reopen().await;
    let in_files = measured(&fixture).await;
    assert_eq!(of_rows(in_files.measures.clone()), direct, "after a restart");
    let columns: Vec<u32> = in_files.column_bytes.keys().map(|column| column.0).collect();
    assert_eq!(columns, [1, 2, 3, 4]);
    assert!(in_files.column_bytes.values().all(|bytes| *bytes > 0));
    assert!(in_files.measures.intervals.count() > 0);
}

#[tokio::test]
async fn reports_are_made_once_until_the_partition_changes() {
    let mut fixture = Fixture::series(append()).await;
    fixture.put(&ALL, &rows(0..20));
    let (measures, sketch) = (
        fixture.partition.measures().await.unwrap(),
        fixture.partition.series_sketch().await.unwrap(),
    );
    let again = fixture.partition.measures().await.unwrap();
    assert!(Arc::ptr_eq(&measures, &again));
    assert!(Arc::ptr_eq(&sketch, &fixture.partition.series_sketch().await.unwrap()));
    // Another row, then another file, then another schema.
    fixture.put(&ALL, &rows(20..21));
    let added = fixture.partition.measures().await.unwrap();
    assert_eq!((again.measures.rows, added.measures.rows), (20, 21));
    assert!(!Arc::ptr_eq(&sketch, &fixture.partition.series_sketch().await.unwrap()));
    fixture.flush().await.unwrap();
    let in_file = fixture.partition.measures().await.unwrap();
    assert!(added.column_bytes.is_empty() && !in_file.column_bytes.is_empty());
    assert!(Arc::ptr_eq(&in_file, &fixture.partition.measures().await.unwrap()));
    change(&mut fixture, |_| {});
    assert!(!Arc::ptr_eq(&in_file, &fixture.partition.measures().await.unwrap()));
}

#[tokio::test]
async fn measures_of_several_files_and_memtables_merge() {
    let mut fixture = Fixture::series(append()).await;
    for part in 0..3 {
        fixture.put(&ALL, &rows(part * 20..part * 20 + 20));
        if part < 2 {
            fixture.flush().await.unwrap();
        }
    }
    let merged = of_rows(measured(&fixture).await.measures);
    assert_eq!((merged.rows, merged.unmeasured), (60, 0));
    fixture.flush().await.unwrap();
    assert_eq!(of_rows(measured(&fixture).await.measures), merged, "after a flush");
    assert!(fixture.partition.compact(true).await.unwrap());
    assert_eq!(fixture.partition.stats().files, 1);
    assert_eq!(of_rows(measured(&fixture).await.measures), merged, "after compaction");
}

#[tokio::test]
async fn deletes_are_counted_apart_until_they_are_carried_out() {
    async fn counts(fixture: &Fixture) -> (u64, u64, u64) {
        let measures = measured(fixture).await.measures;
        (measures.rows, measures.deletes, measures.columns[&ColumnId(3)].nulls)
    }
    let mut fixture = Fixture::series(last_row()).await;
    fixture.put(&ALL, &rows(1..3));
    fixture.flush().await.unwrap();
    fixture.write(WriteKind::Delete, &["host", "ts"], &[vec![text("host1"), ts(1)]]);
    assert_eq!(counts(&fixture).await, (2, 1, 0), "in a memtable");
    fixture.flush().await.unwrap();
    assert_eq!(counts(&fixture).await, (2, 1, 0), "in a file");
    fixture.partition.compact(true).await.unwrap();
    assert_eq!(counts(&fixture).await, (1, 0, 0));
}

#[tokio::test]
async fn versions_that_merges_fold_are_counted() {
    for (options, folded) in [(last_row(), 4), (last_non_null(), 4), (append(), 0)] {
        let mut fixture = Fixture::series(options).await;
        for _ in 0..3 {
            fixture.put(&ALL, &rows(0..2));
            fixture.flush().await.unwrap();
        }
        assert_eq!(measured(&fixture).await.folded, 0);
        fixture.partition.compact(true).await.unwrap();
        assert_eq!(measured(&fixture).await.folded, folded);
    }
}

#[tokio::test]
async fn values_are_compared_in_the_order_in_which_they_were_written() {
    let mut fixture = Fixture::series(append()).await;
    for number in 0..16 {
        let host = text(&format!("host{:02}", number * 7 % 16));
        fixture.put(&ALL[..3], &[vec![host, ts(number), int(100 - number)]]);
    }
    fixture.flush().await.unwrap();
    let columns = measured(&fixture).await.measures.columns;
    let (time, number) = (&columns[&ColumnId(2)], &columns[&ColumnId(3)]);
    assert!(time.compared > 0, "rows of different entries were compared");
    assert_eq!((time.ascending, time.compared), (number.compared, number.compared));
    assert_eq!(number.ascending, 0);
}

#[tokio::test]
async fn rows_from_before_a_column_was_added_are_measured_with_its_default() {
    let mut fixture = Fixture::series(last_row()).await;
    fixture.put(&ALL, &rows(0..5));
    change(&mut fixture, |schema| {
        let column = column(5, "c", ColumnType::Int64, Semantic::Field);
        schema.columns.push(Column { missing: Some(int(7)), nullable: false, ..column });
        schema.next_column = ColumnId(6);
    });
    let in_memory = of_rows(measured(&fixture).await.measures);
    let added = &in_memory.columns[&ColumnId(5)];
    assert_eq!((added.values, added.nulls, added.distinct.count()), (5, 0, 1));
    assert_eq!(added.max, Some(int(7)));
    fixture.flush().await.unwrap();
    assert_eq!(of_rows(measured(&fixture).await.measures), in_memory);
}

#[tokio::test]
async fn a_damaged_file_counts_as_one_without_measures() {
    let mut fixture = Fixture::series(append()).await;
    fixture.put(&ALL, &rows(0..5));
    fixture.flush().await.unwrap();
    let written = files(&fixture, "files");
    let [file] = written.as_slice() else { panic!("one file was written") };
    let mut bytes = fs::read(file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(file, &bytes).unwrap();
    fixture.reopen().await;
    fixture.put(&ALL, &rows(5..7));
    let report = measured(&fixture).await;
    assert_eq!((report.measures.rows, report.measures.unmeasured), (2, 1));
    assert!(report.column_bytes.is_empty());
}

#[tokio::test]
async fn an_index_is_built_when_all_files_have_it() {
    let mut fixture = Fixture::series(append()).await;
    fixture.put(&ALL, &rows(0..5));
    fixture.flush().await.unwrap();
    assert!(measured(&fixture).await.indexes.is_empty());
    let options = IndexOptions::Skipping(Blooms::default());
    change(&mut fixture, |schema| {
        schema.columns[3].indexes.push(Index { name: "i".to_owned(), options });
    });
    let build = IndexBuild {
        column: ColumnId(4),
        kind: IndexKind::Skipping,
        files: 1,
        files_done: 0,
        bytes: 0,
    };
    assert_eq!(measured(&fixture).await.indexes, [build]);
    assert!(fixture.partition.compact(true).await.unwrap());
    let indexes = measured(&fixture).await.indexes;
    let [built] = indexes.as_slice() else { panic!("one index is declared") };
    assert_eq!((built.files, built.files_done), (1, 1));
    assert!(built.bytes > 0);
    // The same kind with other options is another index.
    change(&mut fixture, |schema| {
        let options = Blooms { granularity: 3, ..Blooms::default() };
        schema.columns[3].indexes[0].options = IndexOptions::Skipping(options);
    });
    let indexes = measured(&fixture).await.indexes;
    let [replaced] = indexes.as_slice() else { panic!("one index is declared") };
    assert_eq!((replaced.files, replaced.files_done), (1, 0));
    change(&mut fixture, |schema| schema.columns[3].indexes.clear());
    assert!(measured(&fixture).await.indexes.is_empty());
}

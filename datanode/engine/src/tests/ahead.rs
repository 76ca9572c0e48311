//! Blocks that are read ahead of the row groups that need them.

use partita_proto::index::{Index, IndexOptions};

use super::failure::FailingStore;
use super::*;
use crate::file::FileEntry;

const NAMES: [&str; 4] = ["host", "ts", "a", "b"];
const ROWS: i64 = 165;
/// Each value of `a` is in one of so many rows: once in a row group, or twice.
const DISTINCT: i64 = 15;

/// A text of 8,000 digits that are as good as random.
fn long(number: i64) -> String {
    let mut state = number.cast_unsigned();
    let digits = (0..500).map(|_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{state:016x}")
    });
    digits.collect()
}

fn row(number: i64) -> Row {
    vec![text("h"), ts(number), int(number % DISTINCT * 2), text(&long(number))]
}

#[tokio::test]
async fn blocks_of_a_few_rows_of_several_row_groups_are_read_in_one_go() {
    let directory = tempfile::tempdir().unwrap();
    let store = FailingStore::new(directory.path());
    let as_store: Arc<dyn ObjectStore> = Arc::<FailingStore>::clone(&store);
    let mut schema = series_schema(append());
    schema.columns[2].indexes =
        vec![Index { name: "t_a_inverted".to_owned(), options: IndexOptions::Inverted }];
    let config = config(schema, Placement::Range);
    let mut fixture = Fixture::over(directory, as_store, config, EngineOptions::default()).await;
    let rows: Vec<Row> = (0..ROWS).map(row).collect();
    fixture.put(&NAMES, &rows);
    fixture.flush().await.unwrap();
    let version = fixture.partition.version();
    let groups: usize = version.files.values().map(FileEntry::row_groups).sum();
    assert!(groups >= 8, "{groups} row groups");
    // A value between two others is in no row, but the segments of the index are read.
    let absent = fixture.read_where(&["b"], &[("a", Domain::point(int(15)))]).await.unwrap();
    assert!(absent.is_empty());
    let before = store.reads.load(Ordering::Relaxed);
    let found = fixture.read_where(&["ts", "b"], &[("a", Domain::point(int(14)))]).await.unwrap();
    let expected: Vec<Row> = (0..ROWS)
        .filter(|number| number % DISTINCT == 7)
        .map(|number| vec![ts(number), text(&long(number))])
        .collect();
    assert_eq!(found, expected);
    let reads = store.reads.load(Ordering::Relaxed) - before;
    assert!((1..=groups / 2).contains(&reads), "{reads} reads for {groups} row groups");
    // The second time all blocks come from memory.
    let again = fixture.read_where(&["ts", "b"], &[("a", Domain::point(int(14)))]).await.unwrap();
    assert_eq!(again, expected);
    assert_eq!(store.reads.load(Ordering::Relaxed) - before, reads);
}

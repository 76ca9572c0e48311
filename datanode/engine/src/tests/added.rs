//! Columns that are added with a value for the rows that are there.

use super::split::split;
use super::*;
use partita_proto::range::Bound;

const OLD: [&str; 4] = ["host", "ts", "a", "b"];
const NEW: [&str; 5] = ["host", "ts", "a", "c", "d"];

/// `c` (BIGINT, 7 in older rows) and `d` (STRING, NULL in older rows) join the others.
fn add_columns(fixture: &mut Fixture) {
    let mut schema = TableSchema::clone(&fixture.partition.config().schema);
    schema.version = SchemaVersion(2);
    let c = column(5, "c", ColumnType::Int64, Semantic::Field);
    schema.columns.push(Column { missing: Some(int(7)), nullable: false, ..c });
    schema.columns.push(column(6, "d", ColumnType::String, Semantic::Field));
    schema.next_column = ColumnId(7);
    fixture.index += 1;
    let index = fixture.index;
    fixture.partition.apply_schema(index, mark(index), Arc::new(schema)).unwrap();
}

fn old_row(host: &str, at: i64) -> Row {
    vec![text(host), ts(at), int(at), text("x")]
}

fn row(host: &str, at: i64, c: i64) -> Row {
    vec![text(host), ts(at), int(at), int(c), Value::Null]
}

/// Rows from before the columns in a file (h, 0..4) and in the memtable (i, 0..4), and some from afterwards, one of
/// which takes the place of (h, 1).
async fn fixture(options: TableOptions) -> (Fixture, Vec<Row>) {
    let mut fixture = Fixture::series(options.clone()).await;
    fixture.put(&OLD, &(0..4).map(|n| old_row("h", n)).collect::<Vec<_>>());
    fixture.flush().await.unwrap();
    fixture.put(&OLD, &(0..4).map(|n| old_row("i", n)).collect::<Vec<_>>());
    add_columns(&mut fixture);
    fixture.put(&NEW, &[row("h", 1, 8), row("h", 9, 9), row("i", 9, 7)]);
    let mut expected: Vec<Row> = ["h", "i"]
        .iter()
        .flat_map(|host| (0..4).map(move |n| row(host, n, 7)))
        .chain([row("h", 1, 8), row("h", 9, 9), row("i", 9, 7)])
        .filter(|found| options.append_mode || *found != row("h", 1, 7))
        .collect();
    expected.sort();
    (fixture, expected)
}

async fn check(fixture: &Fixture, expected: &[Row], when: &str) {
    assert_eq!(fixture.read(&NEW).await, expected, "{when}");
    let domains = [
        ("equal", Domain::points([int(7)])),
        ("another", Domain::points([int(8), int(9)])),
        ("not null", Domain::not_null()),
        ("null", Domain::points([Value::Null])),
    ];
    for (name, domain) in domains {
        let inside: Vec<Row> =
            expected.iter().filter(|row| domain.contains(&row[3])).cloned().collect();
        let found = fixture.read_where(&NEW, &[("c", domain)]).await.unwrap();
        assert_eq!(found, inside, "{when}, c is {name}");
    }
    let only = fixture.read(&["c"]).await;
    let mut values: Vec<Row> = expected.iter().map(|row| vec![row[3].clone()]).collect();
    values.sort();
    assert_eq!(only, values, "{when}, c alone");
}

#[tokio::test]
async fn rows_from_before_a_column_have_the_value_that_it_was_added_with() {
    for options in [last_row(), last_non_null(), append()] {
        let (mut fixture, expected) = fixture(options).await;
        check(&fixture, &expected, "in memory and in a file").await;
        fixture.flush().await.unwrap();
        check(&fixture, &expected, "in files").await;
        fixture.reopen().await;
        check(&fixture, &expected, "opened again").await;
        fixture.partition.compact(true).await.unwrap();
        check(&fixture, &expected, "compacted").await;
    }
}

#[tokio::test]
async fn both_halves_of_a_partition_have_it() {
    let (fixture, expected) = fixture(last_row()).await;
    fixture.flush().await.unwrap();
    let cut = Bound { placement: None, key: vec![text("i")] };
    let root = Path::from("partitions/8");
    split(&fixture, &root, &cut, fixture.index + 1).await.unwrap();
    let (left, right): (Vec<Row>, Vec<Row>) =
        expected.into_iter().partition(|row| row[0] == text("h"));
    check(&fixture, &left, "the left half").await;
    let clock: Arc<dyn Clock> = Arc::<TestClock>::clone(&fixture.clock);
    let (store, options) = (Arc::clone(&fixture.store), fixture.options.clone());
    let child = Partition::open(store, root, options, clock).await.unwrap();
    let found = collect(&child, fixture.scan(&NEW, &[("c", Domain::points([int(7)]))])).await;
    assert_eq!(found.unwrap().rows, right);
}

#[tokio::test]
async fn a_version_that_does_not_set_it_keeps_it_where_fields_merge() {
    let mut fixture = Fixture::series(last_non_null()).await;
    fixture.put(&OLD, &[old_row("h", 0), old_row("h", 1), old_row("h", 2)]);
    fixture.flush().await.unwrap();
    add_columns(&mut fixture);
    let unset = |at: i64| vec![text("h"), ts(at), int(10 + at), Value::Null];
    let names = ["host", "ts", "a", "c"];
    fixture.put(&names, &[unset(0)]);
    fixture.write(WriteKind::Delete, &["host", "ts"], &[vec![text("h"), ts(1)]]);
    fixture.put(&names, &[unset(1)]);
    let expected: Vec<Row> = vec![
        vec![text("h"), ts(0), int(10), int(7)],
        // Nothing comes back from behind a delete.
        vec![text("h"), ts(1), int(11), Value::Null],
        vec![text("h"), ts(2), int(2), int(7)],
    ];
    assert_eq!(fixture.read(&names).await, expected);
    fixture.flush().await.unwrap();
    assert_eq!(fixture.read(&names).await, expected);
    fixture.partition.compact(true).await.unwrap();
    assert_eq!(fixture.read(&names).await, expected);
    // Of the newest rows alone as of all.
    let scan = Scan { newest_only: true, ..fixture.scan(&names, &[]) };
    let newest = collect(&fixture.partition, scan).await.unwrap().rows;
    assert!(newest.contains(&expected[2]), "{newest:?}");
}

#[tokio::test]
async fn the_newest_row_of_a_series_has_it() {
    let mut fixture = Fixture::series(last_row()).await;
    fixture.put(&OLD, &(0..4).map(|n| old_row("h", n)).collect::<Vec<_>>());
    fixture.flush().await.unwrap();
    fixture.put(&OLD, &(0..4).map(|n| old_row("i", n)).collect::<Vec<_>>());
    add_columns(&mut fixture);
    // Twice: ends of series are kept from the second time on.
    for _ in 0..3 {
        let scan = Scan { newest_only: true, ..fixture.scan(&NEW, &[]) };
        let newest = collect(&fixture.partition, scan).await.unwrap().rows;
        assert!(newest.contains(&row("h", 3, 7)), "{newest:?}");
        assert!(newest.contains(&row("i", 3, 7)), "{newest:?}");
        let domains = [("c", Domain::points([int(8)]))];
        let scan = Scan { newest_only: true, ..fixture.scan(&NEW, &domains) };
        assert_eq!(collect(&fixture.partition, scan).await.unwrap().rows, Vec::<Row>::new());
    }
}

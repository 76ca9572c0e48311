//! Requests that change one row of a wide table.

use std::sync::{Arc, Mutex};

use partita_proto::wide::{CellMutation, ReadModify, ReadModifyRule, RowMutation};

use super::*;
use crate::wide::Cells;

const TABLE: &str =
    "CREATE TABLE w WIDE (ROW KEY STRING) FAMILIES (f, g) PARTITION BY HASH (row_key) PARTITIONS 4";

async fn wide() -> Db {
    let db = Db::new();
    db.tag(TABLE).await;
    db
}

fn table(db: &Db) -> Arc<partita_proto::catalog::Table> {
    Arc::clone(db.frontend.catalog().table("public", "w").unwrap())
}

fn set(family: &str, qualifier: &str, timestamp: i64, value: &str) -> CellMutation {
    CellMutation::SetCell {
        family: family.to_owned(),
        qualifier: qualifier.as_bytes().to_vec(),
        timestamp: Some(timestamp),
        value: value.as_bytes().to_vec(),
    }
}

fn from_column(family: &str, qualifier: &str, range: [Option<i64>; 2]) -> CellMutation {
    let [start, end] = range;
    let (family, qualifier) = (family.to_owned(), qualifier.as_bytes().to_vec());
    CellMutation::DeleteFromColumn { family, qualifier, start, end }
}

async fn mutate(db: &Db, row_key: &str, mutations: Vec<CellMutation>) -> Result<(), SqlError> {
    let request = RowMutation { row_key: row_key.as_bytes().to_vec(), mutations };
    db.frontend.mutate_row(&db.permit(), &table(db), request).await
}

/// The cells of a row, each as `family:qualifier@timestamp=value`.
async fn cells_of(db: &Db, row_key: &str) -> Vec<String> {
    let seen = Arc::new(Mutex::new(Cells::new()));
    let copy = Arc::clone(&seen);
    let predicate = move |cells: &Cells| {
        copy.lock().unwrap().clone_from(cells);
        Ok(true)
    };
    let nothing = (Vec::new(), Vec::new());
    let (permit, table) = (db.permit(), table(db));
    let row_key = row_key.as_bytes();
    let checked =
        db.frontend.check_and_mutate_row(&permit, &table, row_key, predicate, nothing).await;
    assert!(checked.unwrap());
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let cells = std::mem::take(&mut *seen.lock().unwrap());
    let cell = |(key, value): (partita_proto::wide::CellKey, Vec<u8>)| {
        let (qualifier, value) = (text(&key.qualifier), text(&value));
        format!("{}:{qualifier}@{}={value}", key.family, key.timestamp)
    };
    cells.into_iter().map(cell).collect()
}

#[tokio::test]
async fn several_cells_of_a_row_are_set_and_deleted_at_once() {
    let db = wide().await;
    mutate(&db, "r", vec![set("f", "a", 1, "x"), set("f", "a", 2, "y"), set("g", "b", 1, "z")])
        .await
        .unwrap();
    mutate(&db, "other", vec![set("f", "a", 1, "x")]).await.unwrap();
    assert_eq!(cells_of(&db, "r").await, ["f:a@1=x", "f:a@2=y", "g:b@1=z"]);
    assert_eq!(db.one("SELECT count(*) FROM w WHERE row_key = 'r'").await, "3");
    let range = from_column("f", "a", [Some(2), None]);
    mutate(&db, "r", vec![range, set("f", "c", 5, "new")]).await.unwrap();
    assert_eq!(cells_of(&db, "r").await, ["f:a@1=x", "f:c@5=new", "g:b@1=z"]);
    let family = CellMutation::DeleteFromFamily { family: "f".to_owned() };
    mutate(&db, "r", vec![family]).await.unwrap();
    assert_eq!(cells_of(&db, "r").await, ["g:b@1=z"]);
    mutate(&db, "r", vec![CellMutation::DeleteFromRow, set("g", "b", 9, "after")]).await.unwrap();
    assert_eq!(cells_of(&db, "r").await, ["g:b@9=after"]);
    assert_eq!(cells_of(&db, "other").await, ["f:a@1=x"]);
}

#[tokio::test]
async fn a_request_that_does_not_fit_changes_nothing() {
    let db = wide().await;
    let error = mutate(&db, "r", vec![set("f", "a", 1, "x"), set("h", "a", 1, "x")]).await;
    assert_eq!(error.unwrap_err().message, "column family \"h\" does not exist");
    let error = mutate(&db, "", vec![set("f", "a", 1, "x")]).await.unwrap_err();
    assert_eq!(error.message, "a row key must not be empty");
    let large = "v".repeat(5 << 20);
    let error = mutate(&db, "r", vec![set("f", "a", 1, &large), set("f", "b", 1, &large)]).await;
    assert_eq!(error.unwrap_err().sqlstate, "54000");
    assert_eq!(db.one("SELECT count(*) FROM w").await, "0");
    let error =
        db.try_run("INSERT INTO w (row_key, family, qualifier, value) VALUES ('r', 'h', 'q', 'v')");
    let Err(error) = error.await else { panic!("a family that does not exist") };
    assert_eq!(error.sqlstate, "42704");
    db.tag("CREATE TABLE t (a INT PRIMARY KEY)").await;
    let plain = Arc::clone(db.frontend.catalog().table("public", "t").unwrap());
    let request = RowMutation { row_key: b"r".to_vec(), mutations: vec![set("f", "a", 1, "x")] };
    let error = db.frontend.mutate_row(&db.permit(), &plain, request).await.unwrap_err();
    assert_eq!(error.sqlstate, "42809");
}

#[tokio::test]
async fn a_cell_beyond_the_calendar_is_refused_by_every_request() {
    let db = wide().await;
    let late = || set("f", "a", i64::MAX - i64::MAX % 1_000, "x");
    let error = mutate(&db, "r", vec![late()]).await.unwrap_err();
    assert_eq!(error.sqlstate, "22008");
    let error = mutate(&db, "r", vec![CellMutation::DeleteFromRow, late()]).await.unwrap_err();
    assert_eq!(error.sqlstate, "22008");
    let has_cells = |cells: &Cells| Ok(!cells.is_empty());
    let (permit, table, lists) = (db.permit(), table(&db), (Vec::new(), vec![late()]));
    let held = db.frontend.check_and_mutate_row(&permit, &table, b"r", has_cells, lists).await;
    assert_eq!(held.unwrap_err().sqlstate, "22008");
    assert_eq!(db.one("SELECT count(*) FROM w").await, "0");
}

#[tokio::test]
async fn a_check_decides_between_two_lists() {
    let db = wide().await;
    let has_cells = |cells: &Cells| Ok(!cells.is_empty());
    for (expected, cells) in [(false, "f:a@1=first"), (true, "f:a@1=second")] {
        let lists = (vec![set("f", "a", 1, "second")], vec![set("f", "a", 1, "first")]);
        let (permit, table) = (db.permit(), table(&db));
        let is_met =
            db.frontend.check_and_mutate_row(&permit, &table, b"r", has_cells, lists).await;
        assert_eq!(is_met.unwrap(), expected);
        assert_eq!(cells_of(&db, "r").await, [cells]);
    }
}

#[tokio::test]
async fn a_large_row_is_decided_on_threads_of_statements() {
    let db = wide().await;
    let many = (0..2_000).map(|time| set("f", "a", time, "x"));
    mutate(&db, "large", many.collect()).await.unwrap();
    mutate(&db, "small", vec![set("f", "a", 1, "x")]).await.unwrap();
    for (row_key, in_lane) in [("large", true), ("small", false)] {
        let predicate = move |cells: &Cells| {
            assert_eq!(cells.len() > 1, in_lane);
            Ok(std::thread::current().name() == Some("lane"))
        };
        let (permit, table, nothing) = (db.permit(), table(&db), (Vec::new(), Vec::new()));
        let row_key = row_key.as_bytes();
        let is_met =
            db.frontend.check_and_mutate_row(&permit, &table, row_key, predicate, nothing).await;
        assert_eq!(is_met.unwrap(), in_lane);
    }
    // Nothing is claimed any more.
    assert_eq!(db.frontend.state().runtime_env().memory_pool.reserved(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn increments_by_many_clients_are_all_counted() {
    let db = Arc::new(wide().await);
    let tasks = (0..8).map(|_| {
        let db = Arc::clone(&db);
        tokio::spawn(async move {
            let rule = ReadModifyRule::Increment {
                family: "f".to_owned(),
                qualifier: b"n".to_vec(),
                amount: 1,
            };
            let request = ReadModify { row_key: b"counter".to_vec(), rules: vec![rule] };
            let (permit, table) = (db.permit(), table(&db));
            for _ in 0..25 {
                let written = db.frontend.read_modify_row(&permit, &table, &request).await;
                assert_eq!(written.unwrap().len(), 1);
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let rule =
        ReadModifyRule::Increment { family: "f".to_owned(), qualifier: b"n".to_vec(), amount: 0 };
    let request = ReadModify { row_key: b"counter".to_vec(), rules: vec![rule] };
    let counter = db.frontend.read_modify_row(&db.permit(), &table(&db), &request).await.unwrap();
    assert!(counter.keys().all(|cell| cell.timestamp % 1_000 == 0), "{counter:?}");
    let value = counter.into_values().next().unwrap();
    assert_eq!(i64::from_be_bytes(value.try_into().unwrap()), 200);
}

fn add(qualifier: &str, timestamp: i64, number: i64) -> CellMutation {
    let (family, qualifier) = ("n".to_owned(), qualifier.as_bytes().to_vec());
    CellMutation::AddToCell { family, qualifier, timestamp, number }
}

async fn with_sums() -> Db {
    let db = Db::new();
    db.tag("CREATE TABLE w WIDE (ROW KEY STRING) FAMILIES (f, n AGGREGATE SUM)").await;
    db
}

const SUM: &str =
    "SELECT encode(value, 'hex') FROM w WHERE family = 'n' AND encode(qualifier, 'escape') = 'a'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn additions_by_many_clients_are_all_counted_with_what_else_they_write() {
    let db = Arc::new(with_sums().await);
    let tasks = (0..8).map(|client| {
        let db = Arc::clone(&db);
        tokio::spawn(async move {
            for round in 0..25 {
                let entry = set("f", &format!("{client}#{round}"), 1, "x");
                let mutations = vec![add("a", 1_000, 3), entry, add("a", 1_000, -1)];
                mutate(&db, "r", mutations).await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(db.one(SUM).await, "0000000000000190");
    assert_eq!(db.one("SELECT count(*) FROM w WHERE family = 'f'").await, "200");
    assert_eq!(db.one("SELECT count(*) FROM w").await, "201");
}

#[tokio::test]
async fn numbers_are_added_to_the_cell_of_their_time() {
    let db = with_sums().await;
    mutate(&db, "r", vec![add("a", 1_000, 1), add("a", 2_000, 5), add("b", 1_000, 7)])
        .await
        .unwrap();
    mutate(&db, "r", vec![add("a", 1_000, 1), set("f", "q", 1, "x")]).await.unwrap();
    let early = format!("{SUM} AND cell_ts < '1970-01-01 00:00:00.002'");
    assert_eq!(db.one(&early).await, "0000000000000002");
    assert_eq!(db.one("SELECT count(*) FROM w").await, "4");
    // What was deleted before does not count, also in the same request.
    mutate(&db, "r", vec![CellMutation::DeleteFromRow, add("a", 1_000, 9)]).await.unwrap();
    assert_eq!(db.one(SUM).await, "0000000000000009");
    assert_eq!(db.one("SELECT count(*) FROM w").await, "1");
    let deletion = from_column("n", "a", [Some(5_000), None]);
    mutate(&db, "r", vec![add("a", 1_000, 1), deletion, add("a", 1_000, 1)]).await.unwrap();
    assert_eq!(db.one(SUM).await, "000000000000000b");
    // Checked changes add, too.
    let (permit, table) = (db.permit(), table(&db));
    let lists = (vec![add("a", 1_000, 1)], Vec::new());
    let has_cells = |cells: &Cells| Ok(!cells.is_empty());
    let held = db.frontend.check_and_mutate_row(&permit, &table, b"r", has_cells, lists).await;
    assert!(held.unwrap());
    assert_eq!(db.one(SUM).await, "000000000000000c");
}

#[tokio::test]
async fn cells_of_an_aggregate_family_are_numbers() {
    let db = with_sums().await;
    let error = mutate(&db, "r", vec![set("n", "a", 1, "12345678")]).await.unwrap_err();
    assert_eq!(error.sqlstate, "22023");
    let insert = |value: &str| {
        format!(
            "INSERT INTO w (row_key, family, qualifier, cell_ts, value) \
             VALUES ('r', 'n', 'a', '1970-01-01 00:00:00.001', {value})"
        )
    };
    let Err(error) = db.try_run(&insert("X'01'")).await else { panic!("no number") };
    assert_eq!(error.sqlstate, "22023");
    db.tag(&insert("X'7FFFFFFFFFFFFFFE'")).await;
    mutate(&db, "r", vec![add("a", 1_000, 1)]).await.unwrap();
    assert_eq!(db.one(SUM).await, "7fffffffffffffff");
    let error = mutate(&db, "r", vec![set("f", "q", 1, "x"), add("a", 1_000, 1)]).await;
    assert_eq!(error.unwrap_err().message, "the counter in column \"a\" is out of range");
    assert_eq!(db.one("SELECT count(*) FROM w").await, "1");
}

#[tokio::test]
async fn an_increment_starts_from_the_newest_of_many_cells_of_each_column() {
    let db = wide().await;
    let number = |number: i64| String::from_utf8(number.to_be_bytes().to_vec()).unwrap();
    let columns: Vec<String> = (0..12).map(|column| format!("c{column:02}")).collect();
    for column in &columns {
        let versions = (0..50).map(|time| set("f", column, time, &number(time)));
        mutate(&db, "r", versions.collect()).await.unwrap();
    }
    // Columns that are read by themselves, and more that are read together.
    for count in [2, columns.len()] {
        let rules = columns.iter().take(count).map(|column| ReadModifyRule::Increment {
            family: "f".to_owned(),
            qualifier: column.as_bytes().to_vec(),
            amount: 10,
        });
        let request = ReadModify { row_key: b"r".to_vec(), rules: rules.collect() };
        let written = db.frontend.read_modify_row(&db.permit(), &table(&db), &request).await;
        let written: Vec<i64> = written
            .unwrap()
            .into_values()
            .map(|value| i64::from_be_bytes(value.try_into().unwrap()))
            .collect();
        let expected: Vec<i64> =
            (0..count).map(|column| if count > 2 && column < 2 { 69 } else { 59 }).collect();
        assert_eq!(written, expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_and_a_plain_write_of_another_cell_do_not_pass_each_other() {
    let db = wide().await;
    mutate(&db, "r", vec![set("f", "a", 1, "x")]).await.unwrap();
    // A cell is written between the first read of the request and its write: the request is decided anew.
    let rounds = Arc::new(Mutex::new(Vec::new()));
    let (frontend, permit, wide) = (Arc::clone(&db.frontend), db.permit(), table(&db));
    let shared = Arc::clone(&rounds);
    let predicate = move |cells: &Cells| {
        let mut rounds = shared.lock().unwrap();
        rounds.push(cells.len());
        if rounds.len() == 1 {
            let (frontend, permit, table) =
                (Arc::clone(&frontend), permit.clone(), Arc::clone(&wide));
            let late =
                RowMutation { row_key: b"r".to_vec(), mutations: vec![set("g", "late", 1, "")] };
            let writer = std::thread::spawn(move || {
                let runtime = tokio::runtime::Runtime::new().unwrap();
                runtime
                    .block_on(async { frontend.mutate_row(&permit, &table, late).await.unwrap() });
            });
            writer.join().unwrap();
        }
        Ok(cells.len() == 1)
    };
    let lists = (vec![set("f", "b", 1, "alone")], vec![set("f", "b", 1, "not alone")]);
    let (permit, table) = (db.permit(), table(&db));
    let is_met = db.frontend.check_and_mutate_row(&permit, &table, b"r", predicate, lists).await;
    assert!(!is_met.unwrap());
    assert_eq!(*rounds.lock().unwrap(), [1, 2]);
    assert_eq!(cells_of(&db, "r").await, ["f:a@1=x", "f:b@1=not alone", "g:late@1="]);
}

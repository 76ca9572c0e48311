//! Tables without a key: rows are told apart by a hidden column.

use std::collections::BTreeSet;

use partita_proto::Error;
use partita_proto::materialized::CopyState;

use super::Db;
use crate::SessionOptions;

async fn notes() -> Db {
    let db = Db::new();
    db.tag("CREATE TABLE notes (text STRING, n INT)").await;
    db
}

#[tokio::test]
async fn equal_rows_are_kept_changed_and_removed() {
    let db = notes().await;
    db.tag("INSERT INTO notes VALUES ('a', 1), ('a', 1), ('b', 2)").await;
    db.tag("INSERT INTO notes (text) VALUES ('a')").await;
    assert_eq!(
        db.lines("SELECT * FROM notes ORDER BY text, n").await,
        ["a|1", "a|1", "a|NULL", "b|2"]
    );
    assert_eq!(db.tag("UPDATE notes SET n = n + 1 WHERE text = 'a'").await, "UPDATE 3");
    assert_eq!(db.tag("UPDATE public.notes AS x SET text = 'c' WHERE x.n = 2").await, "UPDATE 3");
    assert_eq!(db.tag("DELETE FROM notes WHERE text = 'c' AND n IS NOT NULL").await, "DELETE 3");
    assert_eq!(db.lines("TABLE notes").await, ["a|NULL"]);
    assert_eq!(db.tag("DELETE FROM notes").await, "DELETE 1");
    assert_eq!(db.one("SELECT count(*) FROM notes").await, "0");
}

#[tokio::test]
async fn a_row_that_is_sent_again_is_stored_once() {
    let db = notes().await;
    for _ in 0..3 {
        db.fake.late_write_errors.lock().push_back(Error::Timeout("no answer".to_owned()));
        db.tag("INSERT INTO notes VALUES ('a', 1)").await;
    }
    assert_eq!(db.one("SELECT count(*) FROM notes").await, "3");
}

#[tokio::test]
async fn the_key_is_hidden_wherever_columns_are_shown() {
    let db = notes().await;
    db.tag("INSERT INTO notes VALUES ('a', 1)").await;
    for sql in [
        "SELECT __row FROM notes",
        "SELECT notes.__row FROM notes",
        "INSERT INTO notes (__row) VALUES ('a')",
        "UPDATE notes SET __row = 'a'",
        "UPDATE notes SET text = 'x' WHERE notes.__row IS NOT NULL",
        "UPDATE notes SET text = encode(__row, 'hex')",
        "DELETE FROM notes WHERE nothing = 1",
        "DELETE FROM notes WHERE \"__row\" IS NOT NULL",
    ] {
        assert_eq!(db.error(sql).await.sqlstate, "42703", "{sql}");
    }
    for sql in [
        "SHOW COLUMNS FROM notes",
        "DESCRIBE notes",
        "SHOW TAG KEYS FROM notes",
        "SHOW INDEX FROM notes",
        "SHOW CREATE TABLE notes",
        "SELECT * FROM information_schema.columns WHERE table_name = 'notes'",
        "SELECT * FROM information_schema.key_column_usage",
    ] {
        let lines = db.lines(sql).await;
        assert!(lines.iter().all(|line| !line.contains("__row")), "{sql}: {lines:?}");
    }
    for sql in ["UPDATE notes SET n = 2 WHERE n = 1", "DELETE FROM notes WHERE n = 1"] {
        let plan = db.explain(sql).await;
        assert!(plan.chars().all(|letter| letter == '\n' || !letter.is_control()), "{plan:?}");
    }
    let created = db.lines("SHOW CREATE TABLE notes").await.join("\n");
    let again = created.replace("notes|CREATE TABLE notes", "CREATE TABLE again");
    assert_eq!(db.tag(&again).await, "CREATE TABLE");
    db.tag("INSERT INTO again SELECT * FROM notes").await;
    assert_eq!(db.lines("SELECT * FROM again").await, ["a|1"]);
}

#[tokio::test]
async fn rows_that_follow_each_other_are_spread() {
    let db = notes().await;
    let values: Vec<String> = (0..200).map(|n| format!("('a', {n})")).collect();
    db.tag(&format!("INSERT INTO notes VALUES {}", values.join(", "))).await;
    let table = db.frontend.catalog();
    let table = table.table("public", "notes").unwrap();
    assert!(table.schema.is_keyless());
    let order: BTreeSet<String> = db.lines("SELECT n FROM notes").await.into_iter().collect();
    assert_eq!(order.len(), 200);
    // In the order of the key, which begins with a hash of each row's number.
    let stored = db.lines("SELECT n FROM notes").await;
    assert!(!stored.iter().map(|n| n.parse::<u32>().unwrap()).is_sorted());
}

#[tokio::test]
async fn a_key_is_added_when_rows_allow_it() {
    let db = notes().await;
    db.tag("INSERT INTO notes VALUES ('a', 1), ('a', 1), ('b', 2)").await;
    let error = db.error("ALTER TABLE notes ADD PRIMARY KEY (text, n)").await;
    assert_eq!(error.sqlstate, "23505");
    assert_eq!(db.one("SELECT count(*) FROM notes").await, "3");
    assert_eq!(db.frontend.catalog().tables["public"].len(), 1);
    let before = db.frontend.catalog().table("public", "notes").unwrap().id;
    db.tag("DELETE FROM notes WHERE text = 'a'").await;
    assert_eq!(db.tag("ALTER TABLE notes ADD PRIMARY KEY (text)").await, "ALTER TABLE");
    db.tag("INSERT INTO notes VALUES ('b', 3), ('c', 4)").await;
    assert_eq!(db.lines("SELECT * FROM notes ORDER BY text").await, ["b|3", "c|4"]);
    let catalog = db.frontend.catalog();
    let after = catalog.table("public", "notes").unwrap();
    assert!(!after.schema.is_keyless() && after.schema.columns.len() == 2);
    assert_eq!(after.id, before, "rights go by the id");
    // Its former partitions tell for a while which writes they took.
    let retired = catalog.table("public", "notes$rekeyed").and_then(|table| table.copy.clone());
    assert_eq!(retired.map(|copy| copy.state), Some(CopyState::Retired));
    assert_eq!(db.error("ALTER TABLE notes ADD PRIMARY KEY (n)").await.sqlstate, "42P16");
}

#[tokio::test]
async fn a_null_refuses_a_key_and_leaves_the_table_as_it_was() {
    let db = notes().await;
    db.tag("INSERT INTO notes VALUES ('a', 1), (NULL, 2)").await;
    let error = db.error("ALTER TABLE notes ADD PRIMARY KEY (text)").await;
    assert_eq!(error.sqlstate, "23502");
    assert!(error.message.contains("\"text\" of relation \"notes\""), "{}", error.message);
    db.tag("INSERT INTO notes VALUES ('c', 3)").await;
    assert_eq!(db.one("SELECT count(*) FROM notes").await, "3");
    assert_eq!(db.frontend.catalog().tables["public"].len(), 1);
}

#[tokio::test]
async fn rows_that_are_written_while_a_key_is_added_are_there_or_refused() {
    let db = notes().await;
    let session = db.frontend.session(SessionOptions::default());
    let writer = tokio::spawn(async move {
        let mut acknowledged = 0;
        for n in 0..200 {
            let row = format!("INSERT INTO notes VALUES ('row {n}', {n})");
            match session.execute(&row).await {
                Ok(_) => acknowledged += 1,
                Err(error) => assert_eq!(error.sqlstate, "40001", "{error}"),
            }
            tokio::task::yield_now().await;
        }
        acknowledged
    });
    tokio::task::yield_now().await;
    db.tag("ALTER TABLE notes ADD PRIMARY KEY (text)").await;
    let acknowledged: u32 = writer.await.unwrap();
    assert_eq!(db.one("SELECT count(*) FROM notes").await, acknowledged.to_string());
}

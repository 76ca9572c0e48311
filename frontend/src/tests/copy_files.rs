//! COPY with files of the server.

use std::path::Path;

use super::Db;
use crate::FrontendOptions;

const TABLE: &str = "CREATE TABLE t (k INT PRIMARY KEY, s STRING, n INT NOT NULL CHECK (n > 0))";

fn db(directory: &Path) -> Db {
    let copy_directory = Some(directory.to_owned());
    Db::with(FrontendOptions { copy_directory, ..FrontendOptions::default() })
}

#[tokio::test]
async fn rows_come_back_from_files_of_each_format() {
    let directory = tempfile::tempdir().unwrap();
    let db = db(directory.path());
    db.tag(TABLE).await;
    db.tag("INSERT INTO t VALUES (1, 'a', 1), (2, NULL, 2), (3, '', 3)").await;
    let before = db.lines("SELECT * FROM t ORDER BY k").await;
    for format in ["text", "csv", "binary", "ndjson", "parquet"] {
        assert_eq!(db.tag(&format!("COPY t TO 'rows' (FORMAT {format})")).await, "COPY 3");
        db.tag("DELETE FROM t").await;
        let copy = format!("COPY t FROM 'rows' (FORMAT {format})");
        assert_eq!(db.tag(&copy).await, "COPY 3", "{format}");
        assert_eq!(db.lines("SELECT * FROM t ORDER BY k").await, before, "{format}");
    }
    let names: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

#[tokio::test]
async fn arrays_and_intervals_come_back_from_files() {
    let directory = tempfile::tempdir().unwrap();
    let db = db(directory.path());
    db.tag(
        "CREATE TABLE a (k INT PRIMARY KEY, n INT[], s STRING[], d DATE[], u UUID[], \
         t TIMESTAMP(6) WITH TIME ZONE[])",
    )
    .await;
    db.tag(
        "INSERT INTO a VALUES (1, '{1,NULL}', '{a,\"b c\",NULL}', '{2024-02-29}', \
         '{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}', '{2024-01-01 00:00:00+00}'), \
         (2, NULL, '{}', NULL, '{}', '{NULL}')",
    )
    .await;
    db.tag("CREATE TABLE i (k INT PRIMARY KEY, v INTERVAL)").await;
    db.tag("INSERT INTO i VALUES (1, '1 year -2 days 00:00:00.5'), (2, NULL)").await;
    let arrays = db.lines("SELECT * FROM a ORDER BY k").await;
    let intervals = db.lines("SELECT * FROM i ORDER BY k").await;
    for format in ["text", "csv", "binary", "ndjson", "parquet"] {
        for (table, before) in [("a", &arrays), ("i", &intervals)] {
            let copy = format!("COPY {table} TO 'rows' (FORMAT {format})");
            if (table, format) == ("i", "parquet") {
                assert_eq!(db.error(&copy).await.sqlstate, "0A000");
                continue;
            }
            assert_eq!(db.tag(&copy).await, "COPY 2");
            db.tag(&format!("DELETE FROM {table}")).await;
            let copy = format!("COPY {table} FROM 'rows' (FORMAT {format})");
            assert_eq!(db.tag(&copy).await, "COPY 2", "{format}");
            let after = db.lines(&format!("SELECT * FROM {table} ORDER BY k")).await;
            assert_eq!(&after, before, "{format}");
        }
    }
}

#[tokio::test]
async fn columns_of_parquet_are_found_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let db = db(directory.path());
    db.tag(TABLE).await;
    let query = "SELECT 5 AS n, 'x' AS s, 1 AS k, 7 AS other";
    assert_eq!(db.tag(&format!("COPY ({query}) TO 'rows' (FORMAT parquet)")).await, "COPY 1");
    let error = db.error("COPY t FROM 'rows' (FORMAT parquet)").await;
    assert_eq!(error.sqlstate, "42703");
    assert!(error.message.contains("other"), "{error:?}");
    assert_eq!(db.tag("COPY t (k, n) FROM 'rows' (FORMAT parquet)").await, "COPY 1");
    assert_eq!(db.lines("SELECT * FROM t").await, ["1|NULL|5"]);
    let error = db.error("COPY t (k, s, n) FROM 'missing' (FORMAT parquet)").await;
    assert_eq!(error.sqlstate, "58P01");
    std::fs::write(directory.path().join("text"), "no Parquet").unwrap();
    assert_eq!(db.error("COPY t FROM 'text' (FORMAT parquet)").await.sqlstate, "22P04");
}

#[tokio::test]
async fn the_first_wrong_row_of_a_file_is_named_and_those_before_it_are_stored() {
    let directory = tempfile::tempdir().unwrap();
    let db = db(directory.path());
    db.tag(TABLE).await;
    let rows = |bad: &str| -> String {
        (1..=100).map(|k| if k == 78 { bad.to_owned() } else { format!("{k},x,{k}\n") }).collect()
    };
    let file = directory.path().join("rows");
    // Values that the format does not have: the line and column.
    std::fs::write(&file, rows("78,x,many\n")).unwrap();
    let error = db.error("COPY t FROM 'rows' (FORMAT csv)").await;
    assert_eq!(error.sqlstate, "22P02");
    let detail = error.detail.unwrap();
    assert!(detail.starts_with("COPY t, line 78, column n"), "{detail}");
    assert!(detail.ends_with("77 rows before the error are stored"), "{detail}");
    assert_eq!(db.one("SELECT count(*) FROM t").await, "77");
    // Rows that the table does not take: the row.
    for (bad, sqlstate) in [("78,x,0\n", "23514"), ("78,x,\n", "23502")] {
        db.tag("DELETE FROM t").await;
        std::fs::write(&file, rows(bad)).unwrap();
        let error = db.error("COPY t FROM 'rows' (FORMAT csv)").await;
        assert_eq!(error.sqlstate, sqlstate);
        let detail = error.detail.unwrap();
        assert!(detail.contains("COPY t, row 78"), "{detail}");
        assert!(detail.ends_with("77 rows before the error are stored"), "{detail}");
        assert_eq!(db.one("SELECT count(*) FROM t").await, "77");
        assert_eq!(db.one("SELECT max(k) FROM t").await, "77");
    }
}

#[tokio::test]
async fn a_query_that_fails_leaves_the_former_file() {
    let directory = tempfile::tempdir().unwrap();
    let db = db(directory.path());
    db.tag("COPY (SELECT 1) TO 'rows'").await;
    assert_eq!(
        db.error("COPY (SELECT 1 / (x - 1) FROM (VALUES (1)) v (x)) TO 'rows'").await.sqlstate,
        "22012"
    );
    assert_eq!(std::fs::read_to_string(directory.path().join("rows")).unwrap(), "1\n");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn files_need_a_directory() {
    let db = Db::new();
    db.tag(TABLE).await;
    for statement in ["COPY t FROM 'f'", "COPY t TO '/tmp/f'"] {
        let error = db.error(statement).await;
        assert_eq!(error.sqlstate, "0A000");
        assert!(error.hint.unwrap().contains("--copy-directory"));
    }
}

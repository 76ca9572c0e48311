//! The number of series, by sketches and by rows.

use super::Db;

/// InfluxDB's example of a dependent tag: each value of `tag1` comes with one of `tag2`.
async fn dependent() -> Db {
    let db = Db::new();
    db.tag(
        "CREATE TABLE measurement1 (tag1 STRING, tag2 STRING, ts TIMESTAMP(3) TIME INDEX, \
         field1 BIGINT, field2 DOUBLE, field3 STRING, PRIMARY KEY (tag1, tag2)) \
         PARTITION BY RANGE (tag1) SPLIT AT (('tagvalue2'))",
    )
    .await;
    db.tag(
        "INSERT INTO measurement1 VALUES \
         ('tagvalue1', 'tagvalue3', 1, 1, 1, 'a'), ('tagvalue2', 'tagvalue4', 2, 2, 2, 'b'), \
         ('tagvalue1', 'tagvalue3', 3, 1, 1, 'a'), ('tagvalue2', 'tagvalue4', 4, 2, 2, 'b')",
    )
    .await;
    db
}

#[tokio::test]
async fn the_worst_case_is_twelve_and_six_series_exist() {
    let db = dependent().await;
    let sql = "SELECT series, tag_sets, fields, estimate, reduced_estimate, dependent_tags, exact, \
               unknown_files, unknown_partitions FROM sys.series";
    let expected = ["6", "2", "3", "12", "6", "tag2 <- tag1", "true", "0", "0"];
    assert_eq!(db.rows(sql).await, [expected]);
    let sql = "SELECT tag, distinct_values, depends_on FROM sys.series_tags ORDER BY tag";
    assert_eq!(db.rows(sql).await, [["tag1", "2", "NULL"], ["tag2", "2", "tag1"]]);
}

#[tokio::test]
async fn show_series_cardinality_counts_by_sketches_or_by_rows() {
    let db = dependent().await;
    db.tag("CREATE TABLE plain (k BIGINT PRIMARY KEY)").await;
    db.tag("CREATE TABLE untagged (ts TIMESTAMP(3) TIME INDEX, v BIGINT, w BIGINT)").await;
    db.tag("INSERT INTO untagged VALUES (1, 1, NULL)").await;
    let shown = db.rows("SHOW SERIES CARDINALITY").await;
    let shown: Vec<_> = shown.iter().map(|row| row[..4].to_vec()).collect();
    assert_eq!(shown, [["measurement1", "6", "2", "12"], ["untagged", "1", "1", "1"]]);
    let mut exact = db.rows("SHOW SERIES CARDINALITY EXACT ON public").await;
    exact.sort();
    assert_eq!(exact, [["measurement1", "6"], ["untagged", "1"]]);
    let exact = db.rows("SHOW SERIES EXACT CARDINALITY FROM measurement1").await;
    assert_eq!(exact, [["measurement1", "6"]]);
    assert!(db.rows("SHOW SERIES CARDINALITY EXACT FROM plain").await.is_empty());
    assert_eq!(db.error("SHOW SERIES CARDINALITY FROM nowhere").await.sqlstate, "42P01");
    assert_eq!(db.error("SHOW SERIES CARDINALITY ON nowhere").await.sqlstate, "3F000");
}

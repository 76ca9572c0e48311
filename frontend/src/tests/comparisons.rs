//! Comparisons with literals that a column's type cannot hold.

use super::Db;

async fn db() -> Db {
    let db = Db::new();
    let table = "CREATE TABLE t (k INT, ts TIMESTAMP(3) TIME INDEX, d DECIMAL(6, 2), big DECIMAL(38, 2), PRIMARY KEY (k))";
    assert_eq!(db.tag(table).await, "CREATE TABLE");
    db.tag("INSERT INTO t VALUES (1, '2024-01-01 00:00:00.123', 1.50, 99999999999999999999999999999999999.99), \
         (2, '2024-01-01 00:00:00.124', -1.50, 0.01), (3, '2024-01-01 00:00:01', NULL, NULL)")
        .await;
    db
}

#[tokio::test]
async fn a_finer_literal_is_not_cut() {
    let db = db().await;
    let at = "'2024-01-01 00:00:00.1239'";
    for literal in [at.to_owned(), format!("TIMESTAMP {at}"), format!("{at}::TIMESTAMP(6)")] {
        for (predicate, keys) in [
            (format!("ts < {literal}"), "1"),
            (format!("ts <= {literal}"), "1"),
            (format!("ts > {literal}"), "2 3"),
            (format!("{literal} <= ts"), "2 3"),
            (format!("ts >= {literal}"), "2 3"),
            (format!("ts = {literal}"), ""),
            (format!("ts <> {literal}"), "1 2 3"),
            (format!("NOT (ts = {literal})"), "1 2 3"),
            (format!("ts IS NOT DISTINCT FROM {literal}"), ""),
            (format!("ts IS DISTINCT FROM {literal}"), "1 2 3"),
            (format!("ts IN ({literal}, '2024-01-01 00:00:01')"), "3"),
            (format!("ts NOT IN ({literal}, '2024-01-01 00:00:01')"), "1 2"),
            (format!("ts IN ({literal})"), ""),
            (format!("ts NOT IN ({literal})"), "1 2 3"),
            (format!("ts BETWEEN {literal} AND '2024-01-01 00:00:00.124'"), "2"),
            (format!("ts BETWEEN '2024-01-01' AND {literal}"), "1"),
            (format!("ts NOT BETWEEN {literal} AND '2024-01-01 00:00:00.9999'"), "1 3"),
            (format!("ts > {literal}::TIMESTAMP + INTERVAL '800 milliseconds'"), "3"),
            (
                format!("k > 1 AND EXISTS (SELECT 1 FROM (VALUES ({literal})) v(x) WHERE x < ts)"),
                "2 3",
            ),
        ] {
            let rows = db.lines(&format!("SELECT k FROM t WHERE {predicate} ORDER BY k")).await;
            assert_eq!(rows.join(" "), keys, "{predicate}");
        }
    }
}

#[tokio::test]
async fn a_delete_by_a_finer_literal_takes_no_other_row() {
    let db = db().await;
    for predicate in
        ["ts = '2024-01-01 00:00:00.1239'", "ts IN ('2024-01-01 00:00:00.1231')", "d = 1.501"]
    {
        assert_eq!(db.tag(&format!("DELETE FROM t WHERE {predicate}")).await, "DELETE 0");
    }
    assert_eq!(db.tag("DELETE FROM t WHERE ts < '2024-01-01 00:00:00.1239'").await, "DELETE 1");
}

#[tokio::test]
async fn a_join_compares_the_finer_unit() {
    let db = db().await;
    db.tag("CREATE TABLE fine (k INT, ts TIMESTAMP(9) TIME INDEX, PRIMARY KEY (k))").await;
    db.tag(
        "INSERT INTO fine VALUES (1, '2024-01-01 00:00:00.1239'), (2, '2024-01-01 00:00:00.124')",
    )
    .await;
    let equal = "SELECT t.k FROM t JOIN fine ON t.ts = fine.ts";
    assert_eq!(db.lines(equal).await, ["2"]);
    let known =
        "SELECT t.k FROM t JOIN fine ON t.ts = fine.ts WHERE fine.ts = '2024-01-01 00:00:00.1239'";
    assert_eq!(db.lines(known).await.len(), 0);
    let moved = "SELECT k FROM (SELECT k, ts, TIMESTAMP '2024-01-01 00:00:00.1239' AS x FROM t) WHERE ts = x";
    assert_eq!(db.lines(moved).await.len(), 0);
}

#[tokio::test]
async fn a_comparison_of_null_stays_null() {
    let db = db().await;
    let sql = "SELECT k, d = 1.501::DECIMAL(4, 3), d < 1.501::DECIMAL(4, 3), d NOT IN (1.501::DECIMAL(4, 3)) FROM t ORDER BY k";
    assert_eq!(db.lines(sql).await, ["1|false|true|true", "2|false|true|true", "3|NULL|NULL|NULL"]);
}

#[tokio::test]
async fn numbers_are_compared_exactly() {
    let db = db().await;
    for (predicate, keys) in [
        ("k < 2.5::DECIMAL(2, 1)", "1 2"),
        ("k = 2.5::DECIMAL(2, 1)", ""),
        ("k >= 2.000::DECIMAL(4, 3)", "2 3"),
        ("k < 3000000000", "1 2 3"),
        ("k > -3000000000.5::DECIMAL(20, 1)", "1 2 3"),
        ("d > 1.4999::DECIMAL(10, 4)", "1"),
        ("d BETWEEN -1.5001::DECIMAL(10, 4) AND 1.4999::DECIMAL(10, 4)", "2"),
        ("big > 0.00001::DECIMAL(38, 5)", "1 2"),
        ("big < 0.01000001::DECIMAL(38, 8)", "2"),
    ] {
        let rows = db.lines(&format!("SELECT k FROM t WHERE {predicate} ORDER BY k")).await;
        assert_eq!(rows.join(" "), keys, "{predicate}");
    }
}

#[tokio::test]
async fn a_finer_literal_still_prunes_the_scan() {
    let db = db().await;
    let plan = db.explain("SELECT k FROM t WHERE ts < '2024-01-01 00:00:00.1239'").await;
    assert!(!plan.contains("FilterExec"), "{plan}");
}

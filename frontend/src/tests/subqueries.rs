//! Subqueries in predicates: EXISTS, IN, ANY and ALL have PostgreSQL's results.

use super::Db;

async fn db() -> Db {
    let db = Db::new();
    for sql in [
        "CREATE TABLE o (x INT NOT NULL, PRIMARY KEY (x))",
        "CREATE TABLE i (id INT NOT NULL, n INT, z INT, PRIMARY KEY (id))",
        "CREATE TABLE a (a INT, PRIMARY KEY (a))",
        "CREATE TABLE b (b INT, PRIMARY KEY (b))",
        "INSERT INTO o VALUES (1), (2)",
        "INSERT INTO i VALUES (1, NULL, 5), (3, 1, 100)",
        "INSERT INTO a VALUES (1), (2), (3)",
        "INSERT INTO b VALUES (2)",
    ] {
        db.tag(sql).await;
    }
    db
}

async fn check(cases: &[(&str, &str)]) {
    let db = db().await;
    for (sql, rows) in cases {
        let mut lines = db.lines(sql).await;
        lines.sort();
        assert_eq!(lines.join(" "), *rows, "{sql}");
    }
}

#[tokio::test]
async fn not_in_with_null_is_not_known() {
    check(&[
        ("SELECT x FROM o WHERE x NOT IN (SELECT n FROM i)", ""),
        ("SELECT x FROM o WHERE x NOT IN (SELECT n FROM i WHERE n IS NOT NULL)", "2"),
        ("SELECT x FROM o WHERE CAST(NULL AS INT) NOT IN (SELECT id FROM i)", ""),
        ("SELECT x FROM o WHERE CAST(NULL AS INT) NOT IN (SELECT id FROM i WHERE id > 9)", "1 2"),
        ("SELECT x FROM o WHERE NULLIF(1, 1) NOT IN (SELECT id FROM i)", ""),
        ("SELECT x FROM o WHERE (x NOT IN (SELECT n FROM i)) IS NULL", "2"),
        ("SELECT x FROM o WHERE (x IN (SELECT n FROM i)) IS NULL", "2"),
        ("SELECT x FROM o WHERE x IN (SELECT n FROM i)", "1"),
        ("SELECT 'q' WHERE 1 NOT IN (SELECT * FROM (VALUES (3), (NULL)) v(y))", ""),
        ("SELECT x FROM o WHERE x NOT IN (SELECT n FROM i WHERE z > x * 40)", "2"),
        ("SELECT x FROM o WHERE x NOT IN (SELECT n FROM i WHERE z < x)", "1 2"),
        ("SELECT x FROM o t WHERE x NOT IN (SELECT n FROM i u WHERE u.id = t.x)", "2"),
        ("SELECT x FROM o WHERE x > 1 OR x NOT IN (SELECT n FROM i)", "2"),
        ("SELECT x FROM o WHERE NOT (x IN (SELECT n FROM i) OR x > 5)", ""),
    ])
    .await;
}

#[tokio::test]
async fn an_aggregate_without_groups_has_a_row() {
    check(&[
        ("SELECT a FROM a WHERE EXISTS (SELECT count(*) FROM b WHERE a = b)", "1 2 3"),
        ("SELECT a FROM a WHERE NOT EXISTS (SELECT count(*) FROM b WHERE a = b)", ""),
        ("SELECT a FROM a WHERE 0 IN (SELECT count(*) FROM b WHERE a = b)", "1 3"),
        ("SELECT a FROM a WHERE 0 NOT IN (SELECT count(*) FROM b WHERE a = b)", "2"),
        ("SELECT a FROM a WHERE 0 = ANY (SELECT count(*) FROM b WHERE a = b)", "1 3"),
        ("SELECT a FROM a WHERE a = ALL (SELECT max(b) FROM b WHERE a = b)", "2"),
        ("SELECT a FROM a WHERE EXISTS (SELECT b FROM b WHERE a = b GROUP BY b)", "2"),
        ("SELECT a FROM a WHERE EXISTS (SELECT count(*) FROM b HAVING count(*) > 5)", ""),
    ])
    .await;
}

#[tokio::test]
async fn an_offset_of_a_subquery_counts() {
    check(&[
        ("SELECT a FROM a WHERE EXISTS (SELECT * FROM b WHERE b = a OFFSET 1)", ""),
        ("SELECT a FROM a WHERE NOT EXISTS (SELECT * FROM b WHERE b = a OFFSET 1)", "1 2 3"),
        ("SELECT a FROM a WHERE EXISTS (SELECT * FROM b WHERE b = a LIMIT 1)", "2"),
        ("SELECT a FROM a WHERE EXISTS (SELECT * FROM b WHERE b = a LIMIT 0)", ""),
        ("SELECT a FROM a WHERE EXISTS (SELECT * FROM b WHERE b < a OFFSET 0)", "3"),
        ("SELECT a FROM a WHERE a IN (SELECT b FROM b ORDER BY b LIMIT 1)", "2"),
        ("SELECT a FROM a WHERE a IN (SELECT b FROM b OFFSET 1)", ""),
        ("SELECT a FROM a WHERE a IN (SELECT b FROM b WHERE b <= a LIMIT 1)", "2"),
        (
            "SELECT a FROM a WHERE EXISTS (SELECT count(*) FROM b WHERE b = a HAVING count(*) = 0)",
            "1 3",
        ),
    ])
    .await;
}

#[tokio::test]
async fn columns_of_one_name_are_told_apart() {
    check(&[
        ("SELECT a FROM a WHERE a > ALL (SELECT a FROM a WHERE a < 2)", "2 3"),
        ("SELECT a FROM a WHERE a >= ALL (SELECT a FROM a)", "3"),
        ("SELECT a FROM a WHERE a < ANY (SELECT a FROM a)", "1 2"),
        ("SELECT a FROM a WHERE a <> ALL (SELECT a FROM a WHERE a = 1)", "2 3"),
        ("SELECT a FROM a WHERE a = ANY (SELECT a FROM a WHERE a = 1)", "1"),
        ("SELECT a FROM a WHERE a NOT IN (SELECT a FROM a WHERE a = 1)", "2 3"),
        ("SELECT a FROM a WHERE (a NOT IN (SELECT a FROM a WHERE a = 1)) IS TRUE", "2 3"),
    ])
    .await;
}

#[tokio::test]
async fn a_row_of_null_is_not_known() {
    let db = Db::new();
    db.tag("CREATE TABLE t (k INT, a INT, PRIMARY KEY (k))").await;
    db.tag("INSERT INTO t VALUES (1, 1), (2, NULL), (3, 3)").await;
    for (sql, rows) in [
        ("SELECT k FROM t WHERE NOT ((k, a) = (2, 5))", "1 3"),
        ("SELECT k FROM t WHERE (k, a) NOT IN ((2, 5))", "1 3"),
        ("SELECT k FROM t WHERE (k, a) < (2, 5)", "1"),
        ("SELECT k, (k, a) = (2, 5) FROM t WHERE k = 2", "2|NULL"),
        ("SELECT k FROM t WHERE a IS DISTINCT FROM 3 AND k > 1", "2"),
        ("SELECT k FROM t WHERE a IS NOT DISTINCT FROM 3 OR k = 1", "1 3"),
    ] {
        let mut lines = db.lines(sql).await;
        lines.sort();
        assert_eq!(lines.join(" "), rows, "{sql}");
    }
}

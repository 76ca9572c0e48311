//! Set operations and their duplicates.

use super::Db;

#[tokio::test]
async fn all_keeps_as_many_rows_as_there_are() {
    let db = Db::new();
    let t = "SELECT v FROM (VALUES (1), (2), (1), (2), (NULL), (NULL)) t(v)";
    let u = "SELECT w FROM (VALUES (2), (3), (NULL)) u(w)";
    for (sql, rows) in [
        (format!("{t} EXCEPT ALL {u}"), "1 1 2 NULL"),
        (format!("{t} INTERSECT ALL {u}"), "2 NULL"),
        (format!("{t} EXCEPT {u}"), "1"),
        (format!("{t} INTERSECT {u}"), "2 NULL"),
        (format!("{t} EXCEPT ALL {t}"), ""),
        (format!("{t} INTERSECT ALL {t}"), "1 1 2 2 NULL NULL"),
        (format!("SELECT v FROM ({t} EXCEPT ALL {u}) WHERE v > 1"), "2"),
        (format!("SELECT count(*) FROM ({t} UNION ALL {u})"), "9"),
        (
            "SELECT a, b FROM (VALUES (1, 'x'), (1, 'x'), (1, 'y')) t(a, b) EXCEPT ALL SELECT 1, 'x'".to_owned(),
            "1|x 1|y",
        ),
        // Either of two equal rows may remain.
        ("SELECT x = INTERVAL '1 day' FROM ((SELECT INTERVAL '1 day' AS x UNION ALL SELECT INTERVAL '24 hours') EXCEPT ALL SELECT INTERVAL '1 day') y".to_owned(), "true"),
    ] {
        let mut lines = db.lines(&sql).await;
        lines.sort();
        assert_eq!(lines.join(" "), rows, "{sql}");
    }
}

#[tokio::test]
async fn distinct_rows_are_counted_after_they_are_distinct() {
    let db = Db::new();
    let sorted = "WITH s(x) AS (VALUES (0), (1), (2) ORDER BY 1 LIMIT 3), \
         t AS (SELECT * FROM s UNION ALL SELECT * FROM s UNION ALL SELECT * FROM s) \
         SELECT DISTINCT x FROM t ORDER BY x LIMIT 3";
    assert_eq!(db.lines(sorted).await, ["0", "1", "2"]);
    let counted =
        sorted.replace("SELECT DISTINCT x FROM t", "SELECT x, count(*) FROM t GROUP BY x");
    assert_eq!(db.lines(&counted).await, ["0|3", "1|3", "2|3"]);
    db.tag("CREATE TABLE t (k INT, v INT, PRIMARY KEY (k, v)) SPLIT AT ((2), (4))").await;
    db.tag("INSERT INTO t VALUES (1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1), (4, 1), (4, 2), (5, 1)").await;
    assert_eq!(db.lines("SELECT DISTINCT k FROM t ORDER BY k LIMIT 3").await, ["1", "2", "3"]);
    assert_eq!(db.lines("SELECT DISTINCT k FROM t ORDER BY k DESC LIMIT 2").await, ["5", "4"]);
    let sums = "SELECT k, sum(v) OVER (ORDER BY k, v ROWS BETWEEN CURRENT ROW AND 3 FOLLOWING) FROM t ORDER BY k, v LIMIT 2";
    assert_eq!(db.lines(sums).await, ["1|7", "1|8"]);
    let windowed = "SELECT DISTINCT env, count(*) OVER (PARTITION BY env) FROM (VALUES ('a'), ('b')) t(env) LIMIT 30";
    let mut lines = db.lines(windowed).await;
    lines.sort();
    assert_eq!(lines, ["a|1", "b|1"]);
}

#[tokio::test]
async fn derived_tables_without_a_name_keep_their_levels() {
    let db = Db::new();
    db.tag("CREATE TABLE t (b INT, PRIMARY KEY (b))").await;
    db.tag("INSERT INTO t VALUES (1)").await;
    for (sql, value) in [
        ("SELECT b FROM (SELECT b + 1 AS b FROM (SELECT b + 1 AS b FROM t))", "3"),
        (
            "SELECT b FROM (SELECT b * 2 AS b FROM (SELECT b + 1 AS b FROM (SELECT b + 1 AS b FROM t)))",
            "6",
        ),
        (
            "SELECT b + 1 AS b FROM (SELECT b + 1 AS b FROM (SELECT b + 1 AS b FROM t)) WHERE b = 3",
            "4",
        ),
        ("SELECT max(b) FROM (SELECT b + 1 AS b FROM (SELECT b + 1 AS b FROM t))", "3"),
        ("SELECT b FROM (SELECT b + 1 AS b FROM (SELECT count(*) AS b FROM t))", "2"),
        ("SELECT x.b FROM (SELECT b + 1 AS b FROM (SELECT b + 1 AS b FROM t)) x", "3"),
    ] {
        assert_eq!(db.one(sql).await, value, "{sql}");
    }
}

#[tokio::test]
async fn windows_pass_over_null() {
    let db = Db::new();
    let t = "(VALUES (1, 10), (2, NULL), (3, NULL), (4, 40)) t(k, v)";
    for (call, values) in [
        ("lag(v) IGNORE NULLS OVER (ORDER BY k)", "NULL 10 10 10"),
        ("lead(v) IGNORE NULLS OVER (ORDER BY k)", "40 40 40 NULL"),
        ("lag(v, 1) OVER (ORDER BY k)", "NULL 10 NULL NULL"),
        ("lag(v, 2) IGNORE NULLS OVER (ORDER BY k)", "NULL NULL NULL NULL"),
        ("lag(v, 1, 7) IGNORE NULLS OVER (ORDER BY k)", "7 10 10 10"),
        ("lead(v, 2) IGNORE NULLS OVER (ORDER BY k)", "NULL NULL NULL NULL"),
        ("lag(v, 0) IGNORE NULLS OVER (ORDER BY k)", "10 NULL NULL 40"),
        ("last_value(v) IGNORE NULLS OVER (ORDER BY k)", "10 10 10 40"),
    ] {
        let rows = db.rows(&format!("SELECT k, {call} FROM {t} ORDER BY k")).await;
        let found: Vec<_> = rows.iter().map(|row| row[1].as_str()).collect();
        assert_eq!(found.join(" "), values, "{call}");
    }
}

#[tokio::test]
async fn merged_columns_take_the_value_of_the_side_that_has_one() {
    let db = Db::new();
    db.tag("CREATE TABLE l (k INT, a INT, PRIMARY KEY (k))").await;
    db.tag("CREATE TABLE r (k INT, b INT, PRIMARY KEY (k))").await;
    db.tag("INSERT INTO l VALUES (1, 10), (2, 20)").await;
    db.tag("INSERT INTO r VALUES (2, 200), (3, 300)").await;
    for (sql, rows) in [
        ("SELECT k FROM l RIGHT JOIN r USING (k)", "2 3"),
        ("SELECT k FROM l FULL JOIN r USING (k)", "1 2 3"),
        ("SELECT * FROM l LEFT JOIN r USING (k)", "1|10|NULL 2|20|200"),
        ("SELECT * FROM l JOIN r USING (k)", "2|20|200"),
        ("SELECT * FROM l NATURAL JOIN r", "2|20|200"),
        ("SELECT b FROM l FULL JOIN r USING (k) ORDER BY k DESC LIMIT 1", "300"),
        ("SELECT x.k FROM (SELECT * FROM l FULL JOIN r USING (k)) x WHERE x.b = 300", "3"),
        ("SELECT k FROM l LEFT JOIN r USING (k)", "1 2"),
        ("SELECT * FROM l FULL JOIN r USING (k)", "1|10|NULL 2|20|200 3|NULL|300"),
        ("SELECT * FROM l RIGHT JOIN r USING (k)", "2|20|200 3|NULL|300"),
        ("SELECT k FROM l FULL JOIN r USING (k) WHERE k = 3", "3"),
        ("SELECT count(*) FROM l FULL JOIN r USING (k) WHERE k > 1", "2"),
        ("SELECT k, count(*) FROM l FULL JOIN r USING (k) GROUP BY k", "1|1 2|1 3|1"),
        ("SELECT l.k, r.k FROM l FULL JOIN r USING (k)", "1|NULL 2|2 NULL|3"),
        ("SELECT k FROM l NATURAL FULL JOIN r", "1 2 3"),
        ("SELECT k FROM l FULL JOIN r USING (k) FULL JOIN r x USING (k)", "1 2 3"),
        ("SELECT * FROM l NATURAL JOIN r JOIN r x USING (k) WHERE k = 2", "2|20|200|200"),
    ] {
        let mut lines = db.lines(sql).await;
        lines.sort();
        assert_eq!(lines.join(" "), rows, "{sql}");
    }
    let unknown = "SELECT * FROM l NATURAL JOIN unnest(ARRAY[1, 2])";
    assert_eq!(db.error(unknown).await.sqlstate, "0A000");
}

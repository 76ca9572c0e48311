//! Intervals are compared by their length in every place.

use super::Db;

#[tokio::test]
async fn intervals_compare_by_their_length() {
    let db = Db::new();
    for (expression, value) in [
        ("now() - TIMESTAMP '2020-01-01' < INTERVAL '1 day'", "false"),
        ("INTERVAL '25 hours' > INTERVAL '1 day'", "true"),
        ("INTERVAL '1 day' = INTERVAL '24 hours'", "true"),
        ("INTERVAL '1 month' = INTERVAL '30 days'", "true"),
        ("INTERVAL '2 months' > INTERVAL '70 days'", "false"),
        ("INTERVAL '1 day' IS NOT DISTINCT FROM INTERVAL '24 hours'", "true"),
        ("INTERVAL '36 hours' BETWEEN INTERVAL '1 day' AND INTERVAL '2 days'", "true"),
        ("INTERVAL '24 hours' IN (INTERVAL '1 day', INTERVAL '2 days')", "true"),
        ("CASE INTERVAL '24 hours' WHEN INTERVAL '1 day' THEN 'a' ELSE 'b' END", "a"),
        ("NULLIF(INTERVAL '24 hours', INTERVAL '1 day') IS NULL", "true"),
        ("INTERVAL '1 day' < NULL", "NULL"),
        ("INTERVAL '24 hours' IN (SELECT i FROM (VALUES (INTERVAL '1 day')) v(i))", "true"),
        ("-INTERVAL '1 day 2 hours' = INTERVAL '-26 hours'", "true"),
        ("TIMESTAMP '2024-01-10' + -INTERVAL '1 day 2 hours'", "2024-01-08T22:00:00"),
    ] {
        let sql = if expression.contains("IN (SELECT") {
            format!("SELECT true WHERE {expression}")
        } else {
            format!("SELECT {expression}")
        };
        assert_eq!(db.one(&sql).await, value, "{expression}");
    }
}

const ROWS: &str = "(VALUES (1, INTERVAL '40 hours'), (2, INTERVAL '1 day'), (3, INTERVAL '24 hours'), (4, NULL)) t(k, i)";

#[tokio::test]
async fn operators_compare_intervals_by_their_length() {
    let db = Db::new();
    for (sql, rows) in [
        (
            format!("SELECT max(i) = INTERVAL '40 hours', min(i) = INTERVAL '1 day' FROM {ROWS}"),
            "true|true",
        ),
        (format!("SELECT max(i) FILTER (WHERE k > 1) = INTERVAL '1 day' FROM {ROWS}"), "true"),
        (format!("SELECT max(i) IS NULL FROM {ROWS} WHERE k = 4"), "true"),
        (format!("SELECT k FROM {ROWS} ORDER BY i DESC NULLS LAST, k"), "1 2 3 4"),
        (format!("SELECT k FROM {ROWS} ORDER BY i, k LIMIT 2"), "2 3"),
        (format!("SELECT count(*) FROM {ROWS} GROUP BY i ORDER BY i"), "2 1 1"),
        (format!("SELECT count(DISTINCT i) FROM {ROWS}"), "2"),
        (format!("SELECT count(*) FROM (SELECT DISTINCT i FROM {ROWS})"), "3"),
        (
            format!("SELECT i FROM {ROWS} WHERE k = 1 GROUP BY i HAVING i > INTERVAL '1 day'"),
            "40 hours",
        ),
        (
            format!(
                "SELECT a.k, b.k FROM {ROWS} JOIN {} ON a.i = b.i WHERE a.k < b.k",
                ROWS.replace("t(", "b(")
            )
            .replace(" t(k, i) JOIN", " a(k, i) JOIN"),
            "2|3",
        ),
        (format!("SELECT k, rank() OVER (ORDER BY i) FROM {ROWS} ORDER BY k"), "1|3 2|1 3|1 4|4"),
        (
            format!("SELECT k, count(*) OVER (PARTITION BY i) FROM {ROWS} ORDER BY k"),
            "1|1 2|2 3|2 4|1",
        ),
        (format!("SELECT last_value(k ORDER BY i NULLS FIRST) FROM {ROWS}"), "1"),
        (
            format!(
                "SELECT greatest(i, INTERVAL '30 hours') > INTERVAL '1 day' FROM {ROWS} ORDER BY k"
            ),
            "true true true true",
        ),
        (
            format!(
                "SELECT least(NULL, i, INTERVAL '30 hours') = INTERVAL '1 day' FROM {ROWS} ORDER BY k"
            ),
            "false true true false",
        ),
        (
            format!("SELECT max(i) OVER () = INTERVAL '40 hours' FROM {ROWS} WHERE k < 3"),
            "true true",
        ),
        (
            format!(
                "SELECT min(i) OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) = INTERVAL '1 day' \
                 FROM {ROWS} ORDER BY k"
            ),
            "false true true true",
        ),
        (
            "SELECT k, rank() OVER (ORDER BY TIMESTAMP '2024-01-01' - t) FROM (VALUES \
                 (1, TIMESTAMP '2023-01-01'), (2, TIMESTAMP '2023-05-01')) v(k, t) ORDER BY k"
                .to_owned(),
            "1|2 2|1",
        ),
        (
            "SELECT count(*) FROM (SELECT INTERVAL '1 day' AS i UNION SELECT INTERVAL '24 hours')"
                .to_owned(),
            "1",
        ),
        (
            "SELECT count(*) FROM (SELECT INTERVAL '1 day' AS i EXCEPT SELECT INTERVAL '24 hours')"
                .to_owned(),
            "0",
        ),
    ] {
        assert_eq!(db.lines(&sql).await.join(" "), rows, "{sql}");
    }
    for refused in [
        format!("SELECT i FROM {ROWS} GROUP BY ROLLUP (i)"),
        format!("SELECT sum(DISTINCT i) FROM {ROWS}"),
    ] {
        assert_eq!(db.error(&refused).await.sqlstate, "0A000", "{refused}");
    }
}

#[tokio::test]
async fn a_delete_by_age_takes_what_is_old() {
    let db = Db::new();
    db.tag("CREATE TABLE t (k INT, ts TIMESTAMP(3) TIME INDEX, PRIMARY KEY (k))").await;
    db.tag("INSERT INTO t VALUES (1, '2020-02-23'), (2, '2020-06-01')").await;
    assert_eq!(db.tag("INSERT INTO t SELECT 3, now()").await, "INSERT 0 1");
    let near = "SELECT k FROM t WHERE ts - TIMESTAMP '2020-01-01' < INTERVAL '60 days'";
    assert_eq!(db.lines(near).await, ["1"]);
    assert_eq!(db.tag("DELETE FROM t WHERE now() - ts < INTERVAL '1 day'").await, "DELETE 1");
    assert_eq!(db.tag("DELETE FROM t WHERE now() - ts > INTERVAL '1 month'").await, "DELETE 2");
}

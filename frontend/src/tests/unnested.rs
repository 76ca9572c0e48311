//! Subqueries as values, and subqueries correlated by other conditions than `=`.

use super::Db;

const T: &str = "(VALUES (1, 10), (2, 20), (3, NULL)) t(k, x)";
const U: &str = "(VALUES (2, 200), (2, 201), (3, 300), (4, NULL)) u(k, y)";

async fn lines(sql: &str) -> Vec<String> {
    Db::new()
        .lines(&sql.replace("FROM t", &format!("FROM {T}")).replace("FROM u", &format!("FROM {U}")))
        .await
}

#[tokio::test]
async fn a_subquery_is_a_value_of_three() {
    for (value, rows) in [
        ("EXISTS (SELECT 1 FROM u WHERE u.k > t.k + 1)", "true true false"),
        ("EXISTS (SELECT 1 FROM u WHERE u.y = 300)", "true true true"),
        ("NOT EXISTS (SELECT 1 FROM u WHERE false)", "true true true"),
        ("k IN (SELECT u.k FROM u)", "false true true"),
        ("x IN (SELECT u.y FROM u)", "NULL NULL NULL"),
        ("x NOT IN (SELECT u.k FROM u)", "true true NULL"),
        ("x IN (SELECT u.k FROM u WHERE u.k > 9)", "false false false"),
        ("k IN (SELECT u.k FROM u WHERE u.k > t.k)", "false false false"),
        ("k < ANY (SELECT u.k FROM u WHERE u.k <> t.k)", "true true true"),
        ("k > ALL (SELECT u.k FROM u)", "false false false"),
        ("k >= ALL (SELECT u.k FROM u WHERE u.k <= t.k)", "true true true"),
    ] {
        let sql = format!("SELECT {value} AS v FROM t ORDER BY k");
        let plain = lines(&sql).await;
        assert_eq!(plain.join(" "), rows, "{sql}");
    }
}

#[tokio::test]
async fn a_subquery_has_one_value_for_each_row() {
    for (value, rows) in [
        ("(SELECT max(y) FROM u WHERE u.k < t.k)", "NULL NULL 201"),
        ("(SELECT count(*) FROM u WHERE u.k < t.k)", "0 0 2"),
        ("(SELECT count(y) + 1 FROM u WHERE u.k >= t.k)", "4 4 2"),
        ("(SELECT y FROM u WHERE u.k >= t.k ORDER BY u.k, y DESC LIMIT 1)", "201 201 300"),
        (
            "(SELECT y FROM u WHERE u.k >= t.k ORDER BY u.k, y DESC LIMIT 1 OFFSET 1)",
            "200 200 NULL",
        ),
        ("(SELECT y FROM u WHERE u.k = t.k AND u.k > 2)", "NULL NULL 300"),
        ("(SELECT sum(y) FROM (SELECT DISTINCT y FROM u WHERE u.k <= t.k) AS d)", "NULL 401 701"),
        ("(SELECT t.k + 1)", "2 3 4"),
    ] {
        let sql = format!("SELECT {value} AS v FROM t ORDER BY k");
        assert_eq!(lines(&sql).await.join(" "), rows, "{sql}");
    }
}

#[tokio::test]
async fn filters_and_aggregates_have_subqueries_too() {
    for (sql, rows) in [
        ("SELECT k FROM t WHERE (SELECT count(*) FROM u WHERE u.k > t.k) > 2 ORDER BY k", "1"),
        (
            "SELECT k FROM t WHERE k IN (SELECT u.k FROM u WHERE u.k >= t.k ORDER BY u.k LIMIT 1) ORDER BY k",
            "2 3",
        ),
        ("SELECT sum(CASE WHEN k IN (SELECT u.k FROM u) THEN 1 ELSE 0 END) FROM t", "2"),
        ("SELECT count(*) FILTER (WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k)) FROM t", "2"),
        ("SELECT k FROM t ORDER BY k NOT IN (SELECT u.k FROM u), k DESC", "3 2 1"),
        (
            "SELECT x IS NULL FROM t GROUP BY x HAVING EXISTS (SELECT 1 FROM u WHERE u.k * 10 = t.x)",
            "false",
        ),
        (
            "SELECT k, l.y FROM t, LATERAL (SELECT y FROM u WHERE u.k > t.k ORDER BY y LIMIT 1) l ORDER BY k",
            "1|200 2|300 3|NULL",
        ),
    ] {
        assert_eq!(lines(sql).await.join(" "), rows, "{sql}");
    }
}

#[tokio::test]
async fn arrays_of_columns_have_a_row_for_each_element() {
    const A: &str = "(SELECT 1 AS k, ARRAY[5, 6] AS a, ARRAY['x', 'y', 'z'] AS b UNION ALL SELECT 2, ARRAY[7], ARRAY['v'] \
                     UNION ALL SELECT 2, ARRAY[7], ARRAY['v'] UNION ALL SELECT 3, NULL, NULL) AS t";
    for (sql, rows) in [
        ("SELECT k, x FROM t, unnest(t.a) AS x ORDER BY k, x", "1|5 1|6 2|7 2|7"),
        (
            "SELECT k, u.x, u.n FROM t CROSS JOIN LATERAL unnest(a) WITH ORDINALITY AS u (x, n) ORDER BY k, n",
            "1|5|1 1|6|2 2|7|1 2|7|1",
        ),
        (
            "SELECT k, x, y, n FROM t, unnest(a, b) WITH ORDINALITY AS u (x, y, n) WHERE k = 1 ORDER BY n",
            "1|5|x|1 1|6|y|2 1|NULL|z|3",
        ),
        ("SELECT k, x FROM t JOIN unnest(t.a) AS u (x) ON u.x > t.k + 4 ORDER BY k", "1|6 2|7 2|7"),
        (
            "SELECT k, (SELECT sum(v * n) FROM unnest(t.a) WITH ORDINALITY AS u (v, n)) FROM t ORDER BY k",
            "1|17 2|7 2|7 3|NULL",
        ),
        ("SELECT k FROM t WHERE EXISTS (SELECT 1 FROM unnest(t.a) AS u (x) WHERE u.x = 6)", "1"),
        // Computed arrays, and series.
        (
            "SELECT k, x FROM t, unnest(array_append(t.a, 9)) AS x WHERE k = 1 ORDER BY x",
            "1|5 1|6 1|9",
        ),
        (
            "SELECT k, x, n FROM t, unnest(ARRAY[k, k * 10]) WITH ORDINALITY AS u (x, n) WHERE k = 1 ORDER BY n",
            "1|1|1 1|10|2",
        ),
        (
            "SELECT k, n FROM t, generate_series(1, t.k) AS n WHERE k > 1 ORDER BY k, n",
            "2|1 2|1 2|2 2|2 3|1 3|2 3|3",
        ),
    ] {
        let sql = sql.replace("FROM t", &format!("FROM {A}"));
        assert_eq!(Db::new().lines(&sql).await.join(" "), rows, "{sql}");
    }
}

#[tokio::test]
async fn more_rows_than_one_are_an_error() {
    let db = Db::new();
    let sql = format!("SELECT (SELECT y FROM {U} WHERE u.k > t.k) FROM {T}");
    assert_eq!(db.error(&sql).await.sqlstate, "21000");
}

#[tokio::test]
async fn subqueries_name_columns_of_queries_two_and_three_further_out() {
    const V: &str = "(VALUES (1, 2, 7), (2, 2, 8), (3, 4, 9)) v(k, m, z)";
    for (sql, rows) in [
        (
            "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE EXISTS \
             (SELECT 1 FROM v WHERE v.k = t.k AND v.m = u.k)) ORDER BY k",
            "1 2 3",
        ),
        (
            "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND NOT EXISTS \
             (SELECT 1 FROM v WHERE v.m = t.k AND v.k = u.k)) ORDER BY k",
            "3",
        ),
        (
            "SELECT k FROM t WHERE k IN (SELECT u.k FROM u WHERE u.k IN (SELECT v.m FROM v WHERE v.k = t.k)) \
             ORDER BY k",
            "2",
        ),
        (
            "SELECT (SELECT count(*) FROM u WHERE u.k IN (SELECT v.m FROM v WHERE v.k <= t.k)) AS n FROM t ORDER BY k",
            "2 2 3",
        ),
        (
            "SELECT (SELECT max(u.y) FROM u WHERE u.k = (SELECT max(v.m) FROM v WHERE v.k < t.k + u.k)) AS n \
             FROM t ORDER BY k",
            "201 NULL NULL",
        ),
        (
            "SELECT (SELECT sum((SELECT max(v.z) FROM v WHERE v.k <= t.k AND v.m <= u.k)) FROM u WHERE u.k > t.k) AS n \
             FROM t ORDER BY k",
            "28 16 9",
        ),
        (
            "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE EXISTS (SELECT 1 FROM v WHERE v.m = u.k AND EXISTS \
             (SELECT 1 FROM u w WHERE w.k = t.k AND w.k >= v.k))) ORDER BY k",
            "2 3",
        ),
        (
            "SELECT k FROM t WHERE (SELECT count(*) FROM u WHERE (SELECT count(*) FROM v WHERE v.k = t.k) = 1) = 4 \
             ORDER BY k",
            "1 2 3",
        ),
    ] {
        let text = sql.replace("FROM v", &format!("FROM {V}"));
        let text = text.replace("FROM u w", "FROM (SELECT u.k FROM u) AS w");
        assert_eq!(lines(&text).await.join(" "), rows, "{sql}");
    }
}

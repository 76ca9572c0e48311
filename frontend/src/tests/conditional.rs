//! Expressions are evaluated only where their condition holds.

use super::Db;

#[tokio::test]
async fn conditions_guard_divisions_and_casts() {
    let db = Db::new();
    db.tag("CREATE TABLE t (x INT, y INT, s STRING, PRIMARY KEY (x)) PARTITION BY HASH (x) PARTITIONS 2").await;
    db.tag("INSERT INTO t VALUES (1, 1, '1'), (2, 0, 'a'), (3, NULL, NULL)").await;
    for mode in ["off", "on", "always"] {
        db.tag(&format!("SET run_at_data = {mode}")).await;
        for (sql, rows) in [
            ("SELECT x FROM t WHERE CASE WHEN y = 0 THEN false ELSE x / y = 1 END", "1"),
            ("SELECT x FROM t WHERE y = 0 OR x / y = 1 ORDER BY x", "1 2"),
            ("SELECT x FROM t WHERE x / y = 1 AND y <> 0", "1"),
            ("SELECT x FROM t WHERE y <> 0 AND x % y = 0 AND x / y > 0", "1"),
            ("SELECT y <> 0 AND x / y = 1 FROM t ORDER BY x", "true false NULL"),
            ("SELECT y = 0 OR x / y = 1 FROM t ORDER BY x", "true true NULL"),
            ("SELECT NOT (y = 0 OR x / y = 2) FROM t ORDER BY x", "true false NULL"),
            ("SELECT x FROM t WHERE s <> 'a' AND s::INT = 1", "1"),
            ("SELECT sum(x / y) FILTER (WHERE y <> 0) FROM t", "1"),
            ("SELECT count(*) FILTER (WHERE y = 0 OR x / y = 1) FROM t", "2"),
            ("SELECT sum(CASE WHEN y <> 0 THEN x / y ELSE 10 END) FROM t", "21"),
            ("SELECT a.x FROM t a JOIN t b ON a.x = b.x AND b.y <> 0 AND a.x / b.y = 1", "1"),
            (
                "SELECT coalesce(NULLIF(y, 0), 7), x / coalesce(NULLIF(y, 0), 1) FROM t ORDER BY x",
                "1|1 7|2 7|3",
            ),
        ] {
            assert_eq!(db.lines(sql).await.join(" "), rows, "{mode}: {sql}");
        }
    }
}

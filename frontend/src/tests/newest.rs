//! Queries that need only the newest row of each series.

use super::Db;

async fn cpu() -> Db {
    let db = Db::new();
    db.tag(
        "CREATE TABLE cpu (host STRING, region STRING, ts TIMESTAMP(3) TIME INDEX, usage DOUBLE, \
         PRIMARY KEY (host, region))",
    )
    .await;
    let rows: Vec<_> =
        (0..60).map(|n| format!("('h{}', 'r{}', {n}, {n}.5)", n % 4, n % 2)).collect();
    db.tag(&format!("INSERT INTO cpu VALUES {}", rows.join(","))).await;
    db
}

#[tokio::test]
async fn what_the_newest_rows_decide_is_asked_of_them_only() {
    let db = cpu().await;
    for (sql, expected) in [
        (
            "SELECT DISTINCT ON (host) * FROM cpu ORDER BY host, ts DESC",
            "h0|r0|1970-01-01T00:00:00.056|56.5",
        ),
        (
            "SELECT DISTINCT ON (region) region, host, usage FROM cpu ORDER BY region, ts DESC",
            "r0|h2|58.5",
        ),
        ("SELECT host, max(ts) FROM cpu GROUP BY host ORDER BY host", "h0|1970-01-01T00:00:00.056"),
        ("SELECT max(ts) FROM cpu", "1970-01-01T00:00:00.059"),
        (
            "SELECT upper(region) AS r, last_value(usage ORDER BY ts) FROM cpu GROUP BY r ORDER BY r",
            "R0|58.5",
        ),
        (
            "SELECT host, first_value(usage ORDER BY region, ts DESC), min(region) FROM cpu \
             GROUP BY host ORDER BY host",
            "h0|56.5|r0",
        ),
        ("SELECT DISTINCT host FROM cpu ORDER BY host DESC", "h3"),
        ("SELECT count(DISTINCT host) FROM cpu", "4"),
        ("SELECT max(ts) FROM cpu WHERE host = 'h1' OR region = 'r0'", "1970-01-01T00:00:00.058"),
        (
            "SELECT max(ts) FROM cpu WHERE ts >= '1970-01-01T00:00:00.057' AND host < 'h3'",
            "1970-01-01T00:00:00.058",
        ),
        ("SELECT host FROM cpu WHERE '1970-01-01T00:00:00.058' < ts GROUP BY host", "h3"),
    ] {
        let plan = db.explain(sql).await;
        assert!(plan.contains("newest_only=true"), "{sql}\n{plan}");
        assert_eq!(db.lines(sql).await[0], expected, "{sql}");
    }
}

#[tokio::test]
async fn what_other_rows_may_decide_is_asked_of_all() {
    let db = cpu().await;
    db.tag(
        "CREATE TABLE events (host STRING, ts TIMESTAMP(3) TIME INDEX, v BIGINT, PRIMARY KEY (host)) \
         WITH ('append_mode' = 'true')",
    )
    .await;
    db.tag(
        "CREATE TABLE by_time (ts TIMESTAMP(3) TIME INDEX, host STRING, PRIMARY KEY (ts, host))",
    )
    .await;
    for sql in [
        "SELECT host, max(usage) FROM cpu GROUP BY host",
        "SELECT host, min(ts) FROM cpu GROUP BY host",
        "SELECT host, max(ts), count(*) FROM cpu GROUP BY host",
        "SELECT host, last_value(usage ORDER BY ts DESC) FROM cpu GROUP BY host",
        "SELECT host, last_value(usage ORDER BY usage, ts) FROM cpu GROUP BY host",
        "SELECT host, last_value(usage) IGNORE NULLS FROM cpu GROUP BY host",
        "SELECT host, last_value(usage ORDER BY ts) FILTER (WHERE usage > 3) FROM cpu GROUP BY host",
        "SELECT date_trunc('second', ts) AS s, max(ts) FROM cpu GROUP BY s",
        "SELECT DISTINCT ON (host) * FROM cpu WHERE usage < 9 ORDER BY host, ts DESC",
        "SELECT DISTINCT ON (host) * FROM cpu WHERE ts < '1970-01-01T00:00:00.057' ORDER BY host, ts DESC",
        "SELECT DISTINCT ON (host) * FROM cpu ORDER BY host, ts",
        "SELECT DISTINCT ON (host) * FROM (SELECT * FROM cpu LIMIT 3) AS few ORDER BY host, ts DESC",
        "SELECT max(ts) FROM cpu WHERE random() < 2",
        "SELECT max(ts) FROM cpu a JOIN cpu b USING (ts)",
        "SELECT host, ts FROM cpu",
        "SELECT host, max(ts) FROM events GROUP BY host",
        "SELECT max(ts) FROM by_time",
    ] {
        let plan = db.explain(sql).await;
        assert!(!plan.contains("newest_only"), "{sql}\n{plan}");
    }
}

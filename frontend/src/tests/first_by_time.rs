//! Queries of the first rows by time: which scans are restricted to them, and that results are the same.

use super::Db;

/// Clauses of three placements of one table.
const PLACEMENTS: [&str; 3] = [
    "PARTITION BY RANGE (host) SPLIT AT (('h2'))",
    "PARTITION BY HASH (host) PARTITIONS 4",
    "PARTITION ON COLUMNS (host) (host < 'h2', host >= 'h2')",
];

/// Two rows at each of five hundred times, of four hosts.
async fn cpu(placement: &str, options: &str) -> Db {
    let db = Db::new();
    db.tag(&format!(
        "CREATE TABLE cpu (host STRING, ts TIMESTAMP(3) TIME INDEX, usage BIGINT, PRIMARY KEY (host)) \
         {placement} {options}"
    ))
    .await;
    let row = |n: i64| {
        let seconds = n / 2;
        let time = format!("2026-01-01T00:{:02}:{:02}", seconds / 60, seconds % 60);
        format!("('h{}', '{time}', {})", n % 4, n * 7 % 101)
    };
    let rows: Vec<_> = (0..1_000).map(row).collect();
    db.tag(&format!("INSERT INTO cpu VALUES {}", rows.join(","))).await;
    db
}

#[tokio::test]
async fn the_first_rows_are_the_same_for_every_placement() {
    for placement in PLACEMENTS {
        for options in ["", "WITH ('append_mode' = 'true')"] {
            let db = cpu(placement, options).await;
            for (sql, rows, shown) in [
                ("SELECT * FROM cpu ORDER BY ts, host", 5, "5 ASC"),
                ("SELECT host, ts FROM cpu ORDER BY ts DESC, host", 3, "3 DESC"),
                (
                    "SELECT ts AS t, host FROM cpu WHERE host > 'h1' ORDER BY t DESC, host",
                    4,
                    "4 DESC",
                ),
                ("SELECT * FROM cpu WHERE usage < 5 ORDER BY ts DESC, host", 3, "3 DESC"),
                ("SELECT * FROM cpu ORDER BY ts DESC, usage, host", 2_000, "2000 DESC"),
            ] {
                let mut all = db.lines(sql).await;
                all.truncate(rows);
                let sql = format!("{sql} LIMIT {rows}");
                assert_eq!(db.lines(&sql).await, all, "{sql} {placement}");
                let plan = db.explain(&sql).await;
                assert!(plan.contains(&format!("first_by_time={shown}")), "{sql}\n{plan}");
            }
            let page = "SELECT host, ts FROM cpu ORDER BY ts DESC, host LIMIT 3 OFFSET 2";
            assert!(db.explain(page).await.contains("first_by_time=5 DESC"));
            assert_eq!(db.lines(page).await.len(), 3);
        }
    }
}

#[tokio::test]
async fn other_queries_read_all_rows() {
    let db = cpu(PLACEMENTS[1], "").await;
    for sql in [
        "SELECT * FROM cpu ORDER BY ts",
        "SELECT * FROM cpu ORDER BY host, ts LIMIT 3",
        "SELECT * FROM cpu ORDER BY ts + INTERVAL '1 hour' LIMIT 3",
        // Rows that the filter drops would count.
        "SELECT * FROM cpu WHERE usage % 7 = 1 ORDER BY ts LIMIT 3",
        "SELECT ts, max(usage) FROM cpu GROUP BY ts ORDER BY ts LIMIT 3",
        "SELECT a.ts FROM cpu a JOIN cpu b USING (ts) ORDER BY a.ts LIMIT 3",
        "SELECT ts, row_number() OVER (ORDER BY usage) AS n FROM cpu ORDER BY ts LIMIT 3",
        "SELECT * FROM cpu ORDER BY ts LIMIT 20000",
    ] {
        let plan = db.explain(sql).await;
        assert!(!plan.contains("first_by_time"), "{sql}\n{plan}");
    }
}

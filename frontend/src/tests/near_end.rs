//! Queries that read near an end of time first: which do, and that results are the same.

use proptest::prelude::*;

use super::Db;

/// A row every ten seconds of 2026-01-01 until 05:33:10, of four hosts, and one row of the year before.
async fn cpu() -> Db {
    let db = Db::new();
    db.tag(
        "CREATE TABLE cpu (host STRING, ts TIMESTAMP(3) TIME INDEX, usage BIGINT, PRIMARY KEY (host)) \
         PARTITION BY RANGE (host) SPLIT AT (('h2'))",
    )
    .await;
    let row = |n: i64| {
        let at = format!("2026-01-01T{:02}:{:02}:{:02}", n / 360, n / 6 % 60, n % 6 * 10);
        format!("('h{}', '{at}', {})", n % 4, n * 7 % 101)
    };
    let rows: Vec<_> = (0..2_000).map(row).collect();
    db.tag(&format!("INSERT INTO cpu VALUES ('h1', '2025-06-01', 7), {}", rows.join(","))).await;
    db
}

impl Db {
    /// Rows that the nodes returned for a query.
    async fn bytes_of(&self, sql: &str) -> u64 {
        self.rows(sql).await;
        self.logged("SELECT").bytes_scanned
    }
}

/// Checks that the first rows of a query are the same without its limit.
async fn same(db: &Db, sql: &str, rows: usize) {
    let mut all = db.lines(sql).await;
    all.truncate(rows);
    let first = db.lines(&format!("{sql} LIMIT {rows}")).await;
    assert_eq!(first, all, "{sql} LIMIT {rows}");
}

#[tokio::test]
async fn the_first_buckets_are_read_near_their_end() {
    let db = cpu().await;
    for (sql, rows, most) in [
        (
            "SELECT date_trunc('minute', ts) AS m, max(usage) FROM cpu WHERE ts < '2026-01-01T05:00:00' \
             GROUP BY m ORDER BY m DESC",
            5,
            30,
        ),
        (
            "SELECT date_bin(INTERVAL '2 minutes', ts) AS b, host, count(*) FROM cpu \
             WHERE ts <= '2026-01-01T05:00:00' AND ts >= '2025-01-01' GROUP BY b, host \
             ORDER BY b DESC, host",
            6,
            80,
        ),
        (
            "SELECT date_trunc('minute', ts) + INTERVAL '1 hour', s FROM (SELECT ts, sum(usage) AS s \
             FROM cpu WHERE ts >= '2026-01-01T01:00:00' GROUP BY ts ORDER BY ts LIMIT 3) AS few \
             ORDER BY 1, s",
            9,
            10,
        ),
        ("SELECT * FROM cpu WHERE ts < '2026-01-01T05:00:00' ORDER BY ts DESC, usage", 4, 6),
        ("SELECT ts, usage FROM cpu WHERE ts >= '2026-01-01T02:00:00' ORDER BY ts, host", 5, 6),
        (
            "SELECT DISTINCT date_trunc('hour', ts) AS h FROM cpu WHERE ts < '2026-01-01T05:20:00' \
             ORDER BY h DESC",
            2,
            // Of an hour that has begun and two before.
            900,
        ),
    ] {
        same(&db, sql, rows).await;
        let sql = format!("{sql} LIMIT {rows}");
        let plan = db.explain(&sql).await;
        assert!(plan.contains("NearEndExec"), "{sql}\n{plan}");
        // Each row is as large as the next one.
        let row = db.bytes_of("SELECT * FROM cpu").await / 2_001;
        let read = db.bytes_of(&sql).await / row;
        assert!((1..=most).contains(&read), "{sql}: {read} rows\n{plan}");
    }
}

#[tokio::test]
async fn what_is_not_near_is_read_as_well() {
    let db = cpu().await;
    for (sql, rows) in [
        // Nothing lies before now.
        ("SELECT * FROM cpu ORDER BY ts DESC", 3),
        ("SELECT date_trunc('day', ts) AS d, count(*) FROM cpu GROUP BY d ORDER BY d DESC", 2),
        // More buckets than there are.
        (
            "SELECT ts::date AS d, count(*) FROM cpu WHERE ts < '2027-01-01' GROUP BY d ORDER BY d DESC",
            9,
        ),
        // Few rows are left of each bucket.
        (
            "SELECT date_trunc('minute', ts) AS m, count(*) FROM cpu WHERE usage = 100 AND \
             ts < '2026-01-02' GROUP BY m HAVING count(*) > 1 ORDER BY m DESC",
            3,
        ),
    ] {
        same(&db, sql, rows).await;
        let plan = db.explain(&format!("{sql} LIMIT {rows}")).await;
        assert!(plan.contains("NearEndExec"), "{sql}\n{plan}");
    }
}

#[tokio::test]
async fn moments_before_nanoseconds_have_steps() {
    let db = cpu().await;
    db.tag("INSERT INTO cpu VALUES ('h3', '1500-01-01', 1), ('h3', '1501-01-01', 2)").await;
    for order in ["DESC", "DESC NULLS LAST", "ASC NULLS FIRST", "ASC"] {
        let sql = format!(
            "SELECT date_bin(INTERVAL '1 minute', ts) AS b, count(*) FROM cpu \
             WHERE ts < '2026-01-01T05:00:00' GROUP BY b ORDER BY b {order}"
        );
        same(&db, &sql, 3).await;
    }
    let sql = "SELECT date_bin(INTERVAL '1 minute', ts) AS b, count(*) FROM cpu \
               WHERE ts < '2026-01-01T05:00:00' GROUP BY b ORDER BY b";
    let latest = ["2026-01-01T04:59:00|6", "2026-01-01T04:58:00|6"];
    assert_eq!(db.lines(&format!("{sql} DESC LIMIT 2")).await, latest);
    let first = ["1500-01-01T00:00:00|1", "1501-01-01T00:00:00|1"];
    assert_eq!(db.lines(&format!("{sql} LIMIT 2")).await, first);
}

#[tokio::test]
async fn other_orders_are_left_alone() {
    let db = cpu().await;
    for sql in [
        "SELECT host, max(ts) AS m FROM cpu GROUP BY host ORDER BY m DESC LIMIT 2",
        "SELECT date_trunc('minute', ts) AS m, max(usage) AS u FROM cpu GROUP BY m ORDER BY u DESC LIMIT 5",
        "SELECT date_trunc('minute', ts) AS m FROM cpu GROUP BY m ORDER BY m",
        "SELECT date_part('hour', ts) AS h, count(*) FROM cpu GROUP BY h ORDER BY h DESC LIMIT 3",
        "SELECT * FROM cpu ORDER BY ts LIMIT 3",
        "SELECT * FROM cpu WHERE ts < '2026-01-01' AND ts > '2025-12-31T23:59:00' ORDER BY ts DESC LIMIT 3",
        "SELECT * FROM cpu ORDER BY host, ts DESC LIMIT 3",
        "SELECT * FROM cpu ORDER BY ts::timestamp(0) DESC LIMIT 3",
        "SELECT date_trunc('hour', date_bin(INTERVAL '7 minutes', ts)) AS m, count(*) FROM cpu \
         WHERE ts < '2026-01-01T05:00:00' GROUP BY m ORDER BY m DESC LIMIT 1",
        "SELECT a.ts FROM cpu a JOIN cpu b USING (ts) ORDER BY a.ts DESC LIMIT 3",
        "SELECT ts, row_number() OVER (ORDER BY usage) AS n FROM cpu ORDER BY ts DESC LIMIT 3",
        "SELECT date_trunc('hour', ts) AS h, count(*) FROM cpu GROUP BY ROLLUP (h) ORDER BY h DESC LIMIT 3",
    ] {
        let plan = db.explain(sql).await;
        assert!(!plan.contains("NearEndExec"), "{sql}\n{plan}");
    }
}

#[tokio::test]
async fn a_statement_that_writes_to_its_own_table_sees_what_was_there() {
    let db = cpu().await;
    let sql = "INSERT INTO cpu SELECT host, ts + INTERVAL '1 second', usage FROM cpu \
               WHERE ts < '2026-01-01T05:00:00' ORDER BY ts DESC LIMIT 3";
    db.tag(sql).await;
    assert_eq!(db.one("SELECT count(*) FROM cpu").await, "2004");
}

/// A query that may be read near an end, without its limit.
fn query() -> impl Strategy<Value = String> {
    let step = prop_oneof![
        Just("ts"),
        Just("date_trunc('minute', ts)"),
        Just("date_trunc('hour', ts)"),
        Just("date_bin(INTERVAL '7 minutes', ts)"),
        Just("date_bin(INTERVAL '90 seconds', ts, TIMESTAMP '2026-01-01T00:00:20')"),
        Just("ts::date"),
    ];
    let bound = (0_i64..20_000)
        .prop_map(|s| format!("'2026-01-01T00:00:00'::timestamp + INTERVAL '{s} seconds'"));
    let wheres = prop_oneof![
        bound.clone().prop_map(|at| format!("ts < {at}")),
        bound.clone().prop_map(|at| format!("ts >= {at} AND host <> 'h1'")),
        (bound.clone(), bound).prop_map(|(from, to)| format!("ts >= {from} AND ts <= {to}")),
        Just("usage > 90".to_owned()),
    ];
    let direction = prop_oneof![Just("ASC"), Just("DESC"), Just("DESC NULLS LAST")];
    (step, wheres, direction, any::<bool>()).prop_map(|(step, wheres, direction, by_host)| {
        let host = if by_host { ", host" } else { "" };
        format!(
            "SELECT {step} AS b{host}, count(*), sum(usage) FROM cpu WHERE {wheres} GROUP BY b{host} \
             ORDER BY b {direction}{host}"
        )
    })
}

#[test]
fn any_such_query_gives_what_all_rows_give() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let db = runtime.block_on(cpu());
    let config = ProptestConfig { cases: 150, ..ProptestConfig::default() };
    proptest!(config, |(sql in query(), rows in 1_usize..40)| {
        runtime.block_on(same(&db, &sql, rows));
    });
}

//! Queries in the order of keys: which need no sort, and that results are those of a sort.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use partita_proto::range::Bound;
use partita_proto::value::Value;
use proptest::prelude::*;

use super::Db;

/// Placements of a table of events, in partitions that hold an order of keys each, or not.
const PLACEMENTS: [&str; 4] = [
    "",
    "PARTITION BY RANGE (a, n) SPLIT AT (('k'), ('k', 3), ('p'))",
    "PARTITION BY HASH (a) PARTITIONS 4",
    "PARTITION ON COLUMNS (a) (a < 'k', a >= 'k' AND a < 'p', a >= 'p')",
];
const OPTIONS: [&str; 2] = ["", "WITH ('append_mode' = 'true')"];

/// Rows of five values of `a`, three of `n` and ten times; some come twice.
async fn events(placement: &str, options: &str) -> Db {
    let db = Db::new();
    db.tag(&format!(
        "CREATE TABLE e (a STRING NOT NULL, n BIGINT, ts TIMESTAMP(3) TIME INDEX, v BIGINT NOT NULL, \
         PRIMARY KEY (a, n)) {placement} {options}"
    ))
    .await;
    let mut rows = Vec::new();
    for place in 0..150 {
        let a = ["b", "f", "k", "m", "q"][place % 5];
        let n = ["NULL", "2", "3"][place / 5 % 3];
        let second = place * 7 % 10;
        rows.push(format!("('{a}', {n}, '2026-01-01T00:00:0{second}', {place})"));
    }
    rows.push(rows[4].clone());
    db.tag(&format!("INSERT INTO e VALUES {}", rows.join(","))).await;
    db
}

#[tokio::test]
async fn orders_of_keys_need_no_sort() {
    // By range, by hash, by rules: operators in the place of a sort.
    let (merge, sort, nothing) = ("SortPreservingMergeExec", "SortExec", "");
    for (order, expected) in [
        ("ORDER BY a", [nothing, nothing, sort, merge]),
        ("ORDER BY a DESC", [nothing, nothing, sort, merge]),
        ("ORDER BY a LIMIT 3", [nothing, nothing, sort, merge]),
        ("ORDER BY a DESC, n DESC NULLS LAST, ts DESC LIMIT 3", [nothing, nothing, sort, merge]),
        ("WHERE n > 1 ORDER BY a, n, ts", [nothing, nothing, sort, merge]),
        ("WHERE a = 'm' AND n = 2 ORDER BY ts DESC LIMIT 1", [nothing; 4]),
        ("WHERE a = 'm' ORDER BY n NULLS FIRST, ts LIMIT 1", [nothing; 4]),
        ("WHERE a >= 'm' ORDER BY a, n NULLS FIRST", [nothing, nothing, sort, merge]),
        // NULLs of the first column that orders anything come at the other end; no partition follows one with NULLs.
        ("WHERE a = 'm' ORDER BY n, ts", [nothing; 4]),
        ("WHERE a = 'k' ORDER BY n DESC, ts DESC LIMIT 2", [nothing, merge, nothing, nothing]),
        ("WHERE a IN ('k') AND ts > '2026-01-01' ORDER BY n", [nothing, merge, nothing, nothing]),
        // Not orders of keys.
        ("ORDER BY a, n", [sort; 4]),
        ("ORDER BY a, n NULLS FIRST, ts DESC", [sort; 4]),
        ("ORDER BY ts LIMIT 3", [sort; 4]),
        ("WHERE n = 2 ORDER BY ts", [sort; 4]),
        ("ORDER BY upper(a)", [sort; 4]),
        ("WHERE v % 3 = 1 ORDER BY a", [sort; 4]),
    ] {
        for (placement, operator) in PLACEMENTS.iter().zip(expected) {
            let db = events(placement, "").await;
            let plan = db.explain(&format!("SELECT * FROM e {order}")).await;
            let found = [merge, sort].into_iter().find(|name| plan.contains(name));
            let is_in_order = plan.contains("key_order=");
            assert_eq!(is_in_order, operator != sort, "{order} {placement}\n{plan}");
            if is_in_order {
                assert_eq!(found.unwrap_or(nothing), operator, "{order} {placement}\n{plan}");
            }
        }
    }
}

#[tokio::test]
async fn no_partition_returns_more_rows_than_are_needed() {
    for placement in [PLACEMENTS[0], PLACEMENTS[1], PLACEMENTS[3]] {
        let db = events(placement, "").await;
        let sql = "SELECT * FROM e ORDER BY a DESC, n DESC NULLS LAST, ts DESC LIMIT 2";
        let plan = db.explain(sql).await;
        assert!(plan.contains("key_order=DESC, fetch=2"), "{plan}");
        let rows = db.lines(sql).await;
        assert_eq!(rows.len(), 2);
        let whole = db.lines("SELECT * FROM e").await.len() as u64;
        let row = {
            db.rows("SELECT * FROM e").await;
            db.logged("SELECT").bytes_scanned / whole
        };
        db.rows(sql).await;
        // Two of each partition at most.
        let read = db.logged("SELECT").bytes_scanned / row;
        assert!(read <= 8, "{read} rows of {whole}");
    }
}

/// A query in some order, and the same query with a filter that keeps all rows, so that it is sorted.
fn query() -> impl Strategy<Value = (String, String)> {
    let direction = prop_oneof![Just(""), Just(" DESC")];
    let nulls = prop_oneof![Just(""), Just(" NULLS FIRST"), Just(" NULLS LAST")];
    let key = (prop_oneof![Just("a"), Just("n"), Just("ts"), Just("v")], direction.clone(), nulls)
        .prop_map(|(column, direction, nulls)| format!("{column}{direction}{nulls}"));
    // Half of the orders are those of keys, with their beginning left out where it is bound.
    let of_keys = (direction, 0_usize..3, any::<bool>()).prop_map(|(direction, skip, apart)| {
        let nulls = match (apart, direction.is_empty()) {
            (true, _) => "",
            (false, true) => " NULLS FIRST",
            (false, false) => " NULLS LAST",
        };
        let keys = ["a", "n", "ts"].map(|column| format!("{column}{direction}{nulls}"));
        keys[skip..].to_vec()
    });
    let keys = prop_oneof![of_keys, prop::collection::vec(key, 1..4)];
    let filter = prop_oneof![
        Just("TRUE"),
        Just("a = 'm'"),
        Just("a = 'k'"),
        Just("a = 'm' AND n = 3"),
        Just("a > 'f'"),
        Just("a IN ('b', 'q')"),
        Just("n IS NULL"),
        Just("n >= 2 AND a <= 'm'"),
        Just("ts >= '2026-01-01T00:00:04'"),
        Just("v < 60"),
    ];
    let limit = prop_oneof![
        Just(String::new()),
        (0_usize..30).prop_map(|rows| format!(" LIMIT {rows}")),
        (0_usize..9, 0_usize..9).prop_map(|(rows, skip)| format!(" LIMIT {rows} OFFSET {skip}")),
    ];
    (keys, filter, limit).prop_map(|(mut keys, filter, limit)| {
        let column = |key: &String| key.split(' ').next().map(str::to_owned);
        let mut columns = BTreeSet::new();
        keys.retain(|key| columns.insert(column(key)));
        // Only the sort keys are selected: rows that are equal in them may come in any order.
        let columns: Vec<&str> =
            keys.iter().map(|key| key.split(' ').next().unwrap_or_default()).collect();
        let (columns, keys) = (columns.join(", "), keys.join(", "));
        let query =
            |filter: &str| format!("SELECT {columns} FROM e WHERE {filter} ORDER BY {keys}{limit}");
        (query(filter), query(&format!("{filter} AND v % 7 < 7")))
    })
}

#[test]
fn every_order_gives_what_a_sort_gives() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut dbs = Vec::new();
    for placement in PLACEMENTS {
        for options in OPTIONS {
            dbs.push((placement, options, runtime.block_on(events(placement, options))));
        }
    }
    let config = ProptestConfig { cases: 150, ..ProptestConfig::default() };
    proptest!(config, |((in_order, sorted) in query())| {
        for (placement, options, db) in &dbs {
            let (found, expected) =
                runtime.block_on(async { (db.lines(&in_order).await, db.lines(&sorted).await) });
            prop_assert_eq!(found, expected, "{} {} {}", in_order, placement, options);
        }
    });
}

#[tokio::test]
async fn partitions_in_another_order_are_sorted_here() {
    for placement in [PLACEMENTS[1], PLACEMENTS[3]] {
        let db = events(placement, "").await;
        let queries = [
            "SELECT a, n, ts FROM e ORDER BY a DESC, n DESC NULLS LAST, ts DESC",
            "SELECT a, n, ts FROM e ORDER BY a DESC, n DESC NULLS LAST, ts DESC LIMIT 7",
            "SELECT a, n, ts FROM e WHERE a = 'm' AND n = 2 ORDER BY ts DESC LIMIT 1",
            "SELECT a, n, ts FROM e WHERE a = 'k' ORDER BY n, ts LIMIT 7",
        ];
        let mut expected = Vec::new();
        for sql in queries {
            expected.push(db.lines(sql).await);
        }
        // As nodes of a version that does not know of orders do.
        db.fake.ignores_orders.store(true, Ordering::Relaxed);
        for (sql, rows) in queries.into_iter().zip(expected) {
            assert_eq!(db.lines(sql).await, rows, "{sql} {placement}");
        }
    }
}

#[tokio::test]
async fn halves_of_partitions_that_are_split_meanwhile_follow_each_other() {
    for direction in ["ASC NULLS FIRST", "DESC NULLS LAST"] {
        for limit in ["", "LIMIT 1000"] {
            let db = events(PLACEMENTS[1], "").await;
            let keys = ["a", "n", "ts"].map(|column| format!("{column} {direction}")).join(", ");
            let sql = format!("SELECT a, n, ts FROM e ORDER BY {keys} {limit}");
            let expected = db.rows(&sql).await;
            let output = db.try_run(&sql).await.unwrap();
            let text = |text: &str| Value::String(text.to_owned());
            let bounds = [
                vec![text("q"), Value::Int(3)],
                vec![text("m"), Value::Int(2)],
                vec![text("k"), Value::Int(2)],
                vec![text("c")],
            ];
            // From the last partition on, so that the others keep their positions.
            for (position, key) in (0..4).rev().zip(bounds) {
                let bound = Bound { placement: None, key };
                db.fake.split("public", "e", position, bound).unwrap();
            }
            let rows = super::cells(&super::collect(output).await.unwrap());
            assert_eq!(rows, expected, "{sql}");
            assert_eq!(db.rows(&sql).await, expected, "{sql}");
        }
    }
}

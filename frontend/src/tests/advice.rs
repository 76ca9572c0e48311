//! The advisor as clients see it: `sys.advice`, its thresholds, and many tables.

use std::time::Instant;

use super::Db;

/// Tables of a database, as many as it may have.
const TABLES: usize = 500;

#[tokio::test]
async fn advice_about_five_hundred_tables_is_answered() {
    let db = Db::new();
    for number in 0..TABLES {
        db.tag(&format!(
            "CREATE TABLE cpu_{number} (host STRING NOT NULL, ts TIMESTAMP(3) TIME INDEX, \"order\" DOUBLE, \
             PRIMARY KEY (host))"
        ))
        .await;
    }
    let started = Instant::now();
    let shown = db.lines("SELECT rule, count(*) FROM sys.advice GROUP BY rule ORDER BY rule").await;
    println!("sys.advice of {TABLES} tables: {} ms", started.elapsed().as_millis());
    // A column of a hard name in each, and tables that differ in a number only.
    assert_eq!(shown, ["A08|1".to_owned(), format!("A10|{TABLES}")]);
    // What a look computes again, of facts and of findings.
    let computed = || db.frontend.sources().advisor.computed();
    assert_eq!(computed(), (TABLES as u64, TABLES as u64));
    let started = Instant::now();
    let shown =
        db.lines("SELECT rule, object FROM sys.advice WHERE object LIKE '%cpu_499.%'").await;
    println!("again: {} ms", started.elapsed().as_millis());
    assert_eq!(shown, ["A10|public.cpu_499.order"]);
    assert_eq!(db.lines("ADVISE TABLE cpu_7").await.len(), 1);
    assert_eq!(computed(), (TABLES as u64, TABLES as u64), "nothing has changed");
    // One table has another row, and one another definition.
    db.tag("INSERT INTO cpu_7 VALUES ('a', 1, 2)").await;
    db.tag("ALTER TABLE cpu_8 ADD COLUMN \"select\" DOUBLE").await;
    let of_table = "SELECT object FROM sys.advice WHERE object LIKE '%.cpu_8.%' ORDER BY object";
    let shown = db.lines(of_table).await;
    assert_eq!(shown, ["public.cpu_8.order", "public.cpu_8.select"]);
    assert_eq!(computed(), (TABLES as u64 + 2, TABLES as u64 + 2));
    db.tag("DROP TABLE cpu_8").await;
    assert!(db.lines(of_table).await.is_empty());
    assert_eq!(computed(), (TABLES as u64 + 2, TABLES as u64 + 2));
}

#[tokio::test]
async fn thresholds_of_a_table_are_checked_and_shown() {
    let db = Db::new();
    let rules = "SELECT string_agg(rule, ',' ORDER BY rule) FROM sys.advice";
    db.tag(
        "CREATE TABLE t (a INT NOT NULL, b INT NOT NULL, ts TIMESTAMP(3) TIME INDEX, PRIMARY KEY (a, b)) \
         WITH ('advice_thresholds' = 'many_tags=1')",
    )
    .await;
    assert_eq!(db.one(rules).await, "A02");
    assert_eq!(db.lines("ADVISE TABLE t").await.len(), 1);
    assert!(db.lines("ADVISE TABLE t WITH (many_tags = 2)").await.is_empty());
    let own = "SELECT \"table\", name, value, default_value, min_value, max_value > 1e9, rules FROM sys.advice_thresholds \
               WHERE \"table\" IS NOT NULL";
    assert_eq!(db.lines(own).await, ["t|many_tags|1.0|5.0|0.0|true|A02"]);
    let all = "SELECT count(*) > 50, count(DISTINCT name) = count(*) FROM sys.advice_thresholds WHERE \"table\" IS NULL";
    assert_eq!(db.lines(all).await, ["true|true"]);
    for (setting, message) in [
        ("apples=1", "threshold \"apples\" does not exist"),
        ("sparse_table=2", "threshold \"sparse_table\" must be between 0 and 1"),
    ] {
        for sql in [
            format!("ALTER TABLE t SET ('advice_thresholds' = '{setting}')"),
            format!("CREATE TABLE u (k INT PRIMARY KEY) WITH ('advice_thresholds' = '{setting}')"),
        ] {
            let error = db.error(&sql).await;
            assert_eq!(
                (error.sqlstate.as_str(), error.message.as_str()),
                ("22023", message),
                "{sql}"
            );
        }
    }
    db.tag("ALTER TABLE t UNSET 'advice_thresholds'").await;
    assert_eq!(db.one(rules).await, "NULL");
    assert!(db.lines(own).await.is_empty());
}

#[tokio::test]
async fn boundaries_divide_the_rows_of_a_table() {
    let db = Db::new();
    db.tag(
        "CREATE TABLE users (userid BIGINT, ts TIMESTAMP(3) TIME INDEX, host STRING, PRIMARY KEY (userid, ts)) \
         SPLIT AT ((10), (20), (30))",
    )
    .await;
    let advise = "ADVISE PARTITION BY (userid) FOR users";
    assert_eq!(db.error(advise).await.sqlstate, "55000");
    let insert = "INSERT INTO users (userid, ts, host) SELECT";
    db.tag(&format!("{insert} n, n, 'h' || (n % 3) FROM generate_series(0, 999) AS s(n)")).await;
    let ddl = "ALTER TABLE public.users SPLIT AT ((250), (500), (750));";
    assert_eq!(db.lines(advise).await, [format!("4|250, 500, 750|{ddl}")]);
    // Rows of one value are not divided.
    db.tag(&format!("{insert} 7, n, NULL FROM generate_series(1000, 1999) AS s(n)")).await;
    let ddl = "ALTER TABLE public.users SPLIT AT ((8), (500));";
    assert_eq!(db.lines(advise).await, [format!("3|8, 500|{ddl}")]);
    // Other columns than the first one of the key cannot be cut.
    let shown = db.lines("ADVISE PARTITION BY (host) FOR users").await;
    assert_eq!(shown, ["3|'h1', 'h2'|NULL"]);
    assert_eq!(db.error("ADVISE PARTITION BY (nothing) FOR users").await.sqlstate, "42703");
}

#[tokio::test]
async fn only_rules_that_exist_are_switched_off() {
    let db = Db::new();
    db.tag("CREATE TABLE t (k INT PRIMARY KEY) WITH ('advice_off' = 'A01')").await;
    for sql in [
        "CREATE TABLE u (k INT PRIMARY KEY) WITH ('advice_off' = 'A01, A41')",
        "ALTER TABLE t SET ('advice_off' = 'A40, A41')",
    ] {
        let error = db.error(sql).await;
        let (code, message) = (error.sqlstate.as_str(), error.message.as_str());
        assert_eq!((code, message), ("22023", "rule \"A41\" does not exist"), "{sql}");
    }
    db.tag("ALTER TABLE t SET ('advice_off' = 'a40')").await;
}

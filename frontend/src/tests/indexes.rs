//! Indexes as statements see them: which are asked, what EXPLAIN and the logs show, and that results do not depend on
//! them.

use std::collections::BTreeSet;

use partita_advice::FilterClass;
use serde_json::{Value, json};

use super::Db;

/// Four lines of logs, with an index of each kind.
async fn logs() -> Db {
    let db = Db::new();
    db.tag(
        "CREATE TABLE logs (k INT PRIMARY KEY, host STRING INVERTED INDEX, msg STRING FULLTEXT INDEX, \
         n INT SKIPPING INDEX)",
    )
    .await;
    db.tag(
        "INSERT INTO logs VALUES (1, 'abc', 'error-prone', 1), (2, 'b', 'three errors', 2), \
         (3, 'c', 'system failure', 2), (4, NULL, 'system-failure: Error', NULL)",
    )
    .await;
    db
}

#[tokio::test]
async fn the_query_log_names_the_indexes_that_were_asked() {
    let db = logs().await;
    for (condition, rows, index_used, skipped) in [
        ("k = 1", "1", None, 0),
        ("host = 'b'", "2", Some("inverted"), 3),
        ("host ~ 'a.c'", "1", Some("inverted"), 0),
        // A domain excludes NULL.
        ("host LIKE '%c'", "1,3", Some("inverted"), 1),
        ("n = 2", "2,3", Some("skipping"), 2),
        ("matches_term(msg, 'error')", "1", Some("fulltext"), 0),
        ("msg @@ 'error'", "1", Some("fulltext"), 0),
        ("matches(msg, 'error OR \"system failure\"')", "1,3,4", Some("fulltext"), 0),
        ("host = 'b' OR host ~ 'a.c'", "1,2", Some("inverted"), 0),
        ("host = 'abc' AND msg @@ 'error'", "1", Some("inverted,fulltext"), 6),
        ("NOT matches_term(msg, 'error')", "2,3,4", None, 0),
    ] {
        let lines = db.lines(&format!("SELECT k FROM logs WHERE {condition} ORDER BY k")).await;
        assert_eq!(lines.join(","), rows, "{condition}");
        let entry = db.logged("SELECT");
        assert_eq!(entry.index_used, index_used, "{condition}");
        assert_eq!(entry.index_rows_skipped, skipped, "{condition}");
        let kinds = index_used.map_or(0, |kinds| kinds.split(',').count() as u64);
        assert_eq!(entry.index_rows_examined, 4 * kinds, "{condition}");
    }
    let shown = "SELECT index_used, index_rows_examined, index_rows_skipped FROM sys.query_log \
                 WHERE text LIKE '%host = ''b'' ORDER%'";
    assert_eq!(db.lines(shown).await, ["inverted|4|3"]);
}

#[tokio::test]
async fn explain_shows_probes_and_explain_analyze_the_use_of_indexes() {
    let db = logs().await;
    let sql = "SELECT k FROM logs WHERE host ~ 'a.c' AND msg @@ 'error' AND n = 1";
    let plan = db.explain(sql).await;
    let (_, probes) = plan.split_once("probes=[").unwrap();
    // The pattern is that of the regex crate, in which a point matches newlines by this flag only.
    assert!(probes.contains("(?s)a.c'") && probes.contains("msg @@ 'error'"), "{plan}");
    let analyzed = db.explain(&format!("ANALYZE {sql}")).await;
    for metric in [
        "index_rows_examined=12",
        "index_rows_skipped=9",
        "index_used_inverted=1",
        "index_used_skipping=1",
        "index_used_fulltext=1",
    ] {
        assert!(analyzed.contains(metric), "{metric}: {analyzed}");
    }
    // Long ones are cut, and what no index answers is not sent.
    let long = "x".repeat(1_000);
    let plan = db.explain(&format!("SELECT k FROM logs WHERE host ~ 'y.{long}'")).await;
    assert!(plan.contains("(?s)y.xxx") && plan.contains("xx..]"), "{plan}");
    let plan = db.explain("SELECT k FROM logs WHERE msg LIKE '%error%'").await;
    assert!(!plan.contains("probes="), "{plan}");
    let analyzed = db.explain("ANALYZE SELECT k FROM logs WHERE k = 1").await;
    assert!(!analyzed.contains("index_used"), "{analyzed}");
}

#[tokio::test]
async fn words_are_found_with_and_without_an_index() {
    let db = logs().await;
    db.tag("CREATE TABLE plain (k INT PRIMARY KEY, host STRING, msg STRING, n INT)").await;
    db.tag("INSERT INTO plain SELECT * FROM logs").await;
    for (condition, rows) in [
        ("msg @@ 'error'", "1"),
        ("msg @@ 'errors'", "2"),
        ("msg @@ 'system failure'", "3"),
        ("msg @@ 'system-failure'", "4"),
        ("lower(msg) @@ 'error'", "1,4"),
        ("matches(msg, 'system NOT error')", "3"),
        ("matches(msg, '-system')", "1,2"),
        ("matches(msg, NULL)", ""),
        ("matches(host, 'abc') OR msg ~* 'THREE'", "1,2"),
    ] {
        for table in ["logs", "plain"] {
            let sql = format!("SELECT k FROM {table} WHERE {condition} ORDER BY k");
            assert_eq!(db.lines(&sql).await.join(","), rows, "{sql}");
        }
    }
    for query in ["(system", "\"system", ""] {
        let error = db.error(&format!("SELECT k FROM logs WHERE matches(msg, '{query}')")).await;
        assert_eq!(error.sqlstate, "42601", "{query}: {error:?}");
    }
    assert_eq!(db.error("SELECT matches_term(1, 'a')").await.sqlstate, "42883");
}

#[tokio::test]
async fn statements_are_counted_by_their_shape() {
    let db = logs().await;
    for host in ["abc", "b"] {
        db.rows(&format!("SELECT k FROM logs WHERE host ~ '{host}.*' AND n > 0")).await;
    }
    let shown = "SELECT kind, tables, calls, errors, rows_examined, rows_returned, partitions_touched, \
                 index_used, filters, columns, ms_total >= ms_max, last_seen >= first_seen \
                 FROM sys.statements WHERE text = 'SELECT k FROM logs WHERE host ~ ? AND n > ?'";
    let rows = db.rows(shown).await;
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!(row[..2], ["SELECT", "[\"public.logs\"]"]);
    // The fake counts rows before it applies domains; `b.*` is found in two of them.
    assert_eq!(row[2..8], ["2", "0", "8", "3", "2", "inverted,skipping"]);
    let filters: Value = serde_json::from_str(&row[8]).unwrap();
    let filter = |column: &str, class: &str| json!({ "table": "public.logs", "column": column, "class": class });
    assert_eq!(filters, json!([filter("host", "pattern"), filter("n", "range")]));
    let columns: Value = serde_json::from_str(&row[9]).unwrap();
    let columns: Vec<&str> = columns.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(columns.contains(&"public.logs.k") && columns.contains(&"public.logs.host"));
    assert_eq!(row[10..], ["true", "true"]);
    let inserted = db.lines("SELECT text, calls FROM sys.statements WHERE kind = 'INSERT'").await;
    assert_eq!(inserted, ["INSERT INTO logs VALUES (?)|1"]);
    db.error("SELECT k FROM logs WHERE matches(msg, '(')").await;
    let failed = "SELECT calls, errors FROM sys.statements WHERE text LIKE '%matches(msg%'";
    assert_eq!(db.lines(failed).await, ["1|1"]);
}

#[tokio::test]
async fn filters_sorts_and_joins_are_known_without_an_index() {
    let db = logs().await;
    db.tag("CREATE TABLE hosts (host STRING PRIMARY KEY, site STRING)").await;
    db.tag("INSERT INTO hosts VALUES ('abc', 'north'), ('b', 'south')").await;
    let sql = "SELECT k, site FROM logs JOIN hosts USING (host) WHERE site LIKE '%th' ORDER BY n";
    assert_eq!(db.lines(sql).await, ["1|north", "2|south"]);
    let shapes = db.frontend.statements().shapes();
    let shape = shapes.iter().find(|shape| shape.text.contains(" JOIN ")).unwrap();
    assert_eq!(shape.tables, ["public.logs", "public.hosts"]);
    let patterns = shape.filters.iter().filter(|filter| filter.class == FilterClass::Pattern);
    let patterns: Vec<_> = patterns.map(|f| (f.table.as_str(), f.column.as_str())).collect();
    assert_eq!(patterns, [("public.hosts", "site")]);
    let sort = ("public.logs".to_owned(), "n".to_owned());
    assert_eq!(shape.sorts, [sort]);
    let [join] = shape.joins.as_slice() else { panic!("{:?}", shape.joins) };
    // Either table may be the left one.
    let tables = BTreeSet::from([join.left.as_str(), join.right.as_str()]);
    assert_eq!(tables, BTreeSet::from(["public.hosts", "public.logs"]));
    assert_eq!(join.on, ["host"]);
    // Columns of different names are not listed.
    db.rows("SELECT n FROM logs JOIN hosts ON msg = site").await;
    let shapes = db.frontend.statements().shapes();
    let shape = shapes.iter().find(|shape| shape.text.contains("ON msg = site")).unwrap();
    assert!(matches!(shape.joins.as_slice(), [join] if join.on.is_empty()), "{:?}", shape.joins);
}

#[tokio::test]
async fn the_use_of_each_index_is_counted() {
    let db = logs().await;
    for condition in ["k > 0", "host = 'b'", "k > 1"] {
        db.rows(&format!("SELECT n FROM logs WHERE {condition}")).await;
    }
    let shown = "SELECT \"column\", \"index\", kind, scans, rows_examined, rows_skipped, queries_since, \
                 last_used IS NULL, bytes FROM sys.index_usage ORDER BY \"column\"";
    let expected = [
        "host|logs_host_inverted|inverted|1|4|3|1|false|0",
        "msg|logs_msg_fulltext|fulltext|0|0|0|3|true|0",
        "n|logs_n_skipping|skipping|0|0|0|3|true|0",
    ];
    assert_eq!(db.lines(shown).await, expected);
    let table = db.frontend.catalog().table("public", "logs").unwrap().id;
    assert_eq!(db.frontend.index_usage().of(table).len(), 3);
    db.tag("DROP TABLE logs").await;
    assert!(db.lines(shown).await.is_empty());
    assert!(db.frontend.index_usage().of(table).is_empty());
}

//! Queries of which a part runs at the datanodes: the answers are those of plain scans, also while
//! partitions are cut and their leaders die.

use std::time::Duration;

use tokio_postgres::Client;

use super::harness::{Cluster, Row, number, rows};
use super::{NEVER_LOST, leading_node};
use crate::server::one;

const TABLE: &str = "CREATE TABLE t (k BIGINT, h STRING, ts TIMESTAMP(3) TIME INDEX, n INT, v DOUBLE, \
                     PRIMARY KEY (k, h)) PARTITION BY RANGE (k) SPLIT AT ((10000), (20000))";
const ROWS: &str = "INSERT INTO t SELECT value, 'h' || (value % 13), to_timestamp_millis(value), \
                    CASE WHEN value % 10 = 0 THEN NULL ELSE value % 101 END, value * 0.25 \
                    FROM generate_series(0, 29999) AS t(value)";
const QUERIES: [&str; 6] = [
    "SELECT h, count(*), count(n), sum(n), avg(v) FROM t GROUP BY h",
    "SELECT count(*), min(v), max(ts) FROM t WHERE n > 50",
    "SELECT k, v FROM t WHERE h = 'h3' ORDER BY v DESC LIMIT 7",
    "SELECT DISTINCT n FROM t",
    "SELECT date_trunc('second', ts), upper(h), stddev(n) IS NULL FROM t WHERE k % 1000 = 3 GROUP BY 1, 2",
    "SELECT count(*) FROM t AS a JOIN t AS b ON a.k = b.k + 1 WHERE a.n = 5 AND b.n = 4",
];

async fn answer(client: &Client, mode: &str, sql: &str) -> Result<Vec<Row>, tokio_postgres::Error> {
    client.batch_execute(&format!("SET run_at_data = {mode}")).await?;
    let mut found = rows(client, sql).await?;
    found.sort();
    Ok(found)
}

/// That all queries have the same answers with and without.
async fn same(client: &Client, when: &str) -> Vec<Vec<Row>> {
    let mut all = Vec::new();
    for sql in QUERIES {
        let plain = answer(client, "off", sql).await.unwrap();
        for mode in ["on", "always"] {
            let found = answer(client, mode, sql).await.unwrap();
            assert_eq!(found, plain, "{when}, {mode}: {sql}");
        }
        all.push(plain);
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_at_the_data_has_the_answers_of_plain_scans_through_splits_and_the_death_of_leaders()
 {
    let mut cluster = Cluster::start(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    client.batch_execute(TABLE).await.unwrap();
    cluster.until_in_order(&client, 3).await;
    client.batch_execute(ROWS).await.unwrap();
    let right = same(&client, "in memtables").await;
    client.batch_execute("ADMIN flush_table('t')").await.unwrap();
    assert_eq!(same(&client, "in files").await, right);

    client.batch_execute("SET run_at_data = on").await.unwrap();
    // Of how many rows there are is heard after a while.
    let at_data = async || {
        let plan = rows(&client, &format!("EXPLAIN {}", QUERIES[0])).await.unwrap();
        plan.iter().flatten().flatten().any(|text| text.contains("AtDataExec: AggregateExec"))
    };
    cluster.until("the aggregate is at the data", at_data).await;
    let plan = rows(&client, &format!("EXPLAIN ANALYZE {}", QUERIES[0])).await.unwrap();
    let text: String = plan.iter().flatten().flatten().map(String::as_str).collect();
    let line = text.lines().find(|line| line.contains("AtDataExec: AggregateExec")).expect(&text);
    assert!(line.contains("rows_scanned=30.00 K") || line.contains("rows_scanned=30000"), "{line}");

    // Cut under the queries of another frontend, whose routes are old then.
    let other = cluster.connect(1).await;
    same(&other, "from the other frontend").await;
    for at in [3_000, 13_000, 27_000] {
        let split = format!("ALTER TABLE t SPLIT AT (({at}))");
        let (cut, found) =
            tokio::join!(client.batch_execute(&split), answer(&other, "on", QUERIES[0]),);
        cut.unwrap();
        assert_eq!(found.unwrap(), right[0], "while cut at {at}");
        assert_eq!(same(&other, "after a cut").await, right);
    }

    // A leader dies while queries run: each is right, or says what it lost; never half an answer.
    let name = format!("datanode{}", leading_node(&cluster, &client, "t").await);
    let running = tokio::spawn(async move {
        let (mut answers, mut failures) = (Vec::new(), Vec::new());
        for round in 0..60 {
            match answer(&other, "on", QUERIES[round % 4]).await {
                Ok(found) => answers.push((round % 4, found)),
                Err(error) => failures.push(error),
            }
        }
        (other, answers, failures)
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    cluster.kill(&name);
    let (other, answers, failures) = running.await.unwrap();
    for (at, found) in &answers {
        assert_eq!(*found, right[*at], "{}", QUERIES[*at]);
    }
    assert!(answers.len() > failures.len(), "{failures:?}\n{}", cluster.logs());
    for error in &failures {
        let code = error.as_db_error().map(|error| error.code().code().to_owned());
        let known = matches!(code.as_deref(), Some("57P03" | "40001" | "57014"));
        assert!(known, "{error:?}\n{}", cluster.logs());
    }
    cluster.until_done(&other, QUERIES[0]).await;
    assert_eq!(same(&other, "without a node").await, right);
    cluster.start_again(&name);
    cluster.until_in_order(&client, 3).await;
    assert_eq!(same(&client, "with all nodes again").await, right);
    assert_eq!(one(&client, "SELECT count(*) FROM t").await, "30000");
    let partitions =
        rows(&client, "SELECT count(*) FROM sys.partitions WHERE \"table\" = 't'").await;
    assert_eq!(number(&partitions.unwrap()[0], 0), 6);
}

//! Execution of fragments over the streams of a scan.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::physical_plan::ExecutionPlan;
use futures::StreamExt;
use partita_proto::Error;
use partita_proto::service::{RowStream, ScanReply};

use super::{encoded, reply, rows, schema, stream};
use crate::fragment::Fragment;

/// Rows that a fragment returns for each stream, as lines.
async fn run(sql: &str, streams: Vec<RowStream>) -> Vec<Result<Vec<String>, Error>> {
    run_with(sql, streams, Arc::default()).await
}

async fn run_with(
    sql: &str,
    streams: Vec<RowStream>,
    runtime: Arc<RuntimeEnv>,
) -> Vec<Result<Vec<String>, Error>> {
    let fragment = Fragment::decode(&encoded(sql).await.unwrap(), 2).unwrap();
    let reply = begun(fragment, streams, runtime).unwrap();
    let mut results = Vec::new();
    for mut rows in reply.streams {
        let mut lines = Ok(Vec::new());
        while let Some(batch) = rows.next().await {
            match (batch, &mut lines) {
                (Ok(batch), Ok(lines)) => {
                    let options = FormatOptions::new().with_null("NULL");
                    let columns: Vec<_> = batch
                        .columns()
                        .iter()
                        .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap())
                        .collect();
                    lines.extend((0..batch.num_rows()).map(|row| {
                        let cells = columns.iter().map(|column| column.value(row).to_string());
                        cells.collect::<Vec<_>>().join("|")
                    }));
                }
                (Err(error), lines) => *lines = Err(error),
                (Ok(_), Err(_)) => panic!("rows after an error"),
            }
        }
        if let Ok(lines) = &mut lines {
            lines.sort();
        }
        results.push(lines);
    }
    results
}

fn begun(
    fragment: Fragment,
    streams: Vec<RowStream>,
    runtime: Arc<RuntimeEnv>,
) -> Result<ScanReply, Error> {
    let columns = columns(&fragment);
    fragment.run(reply(streams), &columns, runtime)
}

/// Storage columns that a scan for a fragment reads.
fn columns(fragment: &Fragment) -> SchemaRef {
    let table = schema("");
    let read = fragment.leaf.schema();
    let names = read.fields().iter().map(|field| table.index_of(field.name()).unwrap());
    let positions: Vec<usize> = names.collect();
    Arc::new(schema("stored_").project(&positions).unwrap())
}

#[tokio::test]
async fn each_stream_has_its_own_partial_results() {
    let streams = || {
        vec![
            stream(vec![
                rows(&[("a", Some(1), 0.5), ("b", Some(2), 1.5)]),
                rows(&[("a", None, 9.0)]),
            ]),
            stream(vec![rows(&[("a", Some(10), 2.0)])]),
            // More streams than the fragment has: chained to the first.
            stream(vec![rows(&[("c", Some(5), 2.0)])]),
        ]
    };
    let results = run("SELECT host, count(*), sum(n) FROM t GROUP BY host", streams()).await;
    let first = ["a|2|1", "b|1|2", "c|1|5"].map(str::to_owned).to_vec();
    assert_eq!(results, [Ok(first), Ok(vec!["a|1|10".to_owned()])]);
    let results = run("SELECT n FROM t ORDER BY n DESC NULLS LAST LIMIT 1", streams()).await;
    // The streams share a filter of rows that cannot be among the first any more.
    assert_eq!(results[1], Ok(vec!["10".to_owned()]));
    assert!([Ok(vec!["5".to_owned()]), Ok(Vec::new())].contains(&results[0]), "{results:?}");
    let results = run("SELECT host, v FROM t WHERE v > 1.8 LIMIT 3", streams()).await;
    assert_eq!(
        results,
        [Ok(vec!["a|9.0".to_owned(), "c|2.0".to_owned()]), Ok(vec!["a|2.0".to_owned()])]
    );
    assert_eq!(run("SELECT count(*) FROM t", Vec::new()).await, []);
}

#[tokio::test]
async fn errors_are_what_they_would_be_at_the_frontend() {
    let sql = "SELECT 1 / n FROM t";
    let results = run(sql, vec![stream(vec![rows(&[("a", Some(0), 0.0)])])]).await;
    let [Err(Error::Query { sqlstate, message, .. })] = &results[..] else { panic!("{results:?}") };
    assert_eq!((sqlstate.as_str(), message.as_str()), ("22012", "division by zero"));
    let lost = || Error::Corrupted("file 7".to_owned());
    let broken: RowStream = Box::pin(futures::stream::iter([Err(lost())]));
    assert_eq!(
        run("SELECT host, count(*) FROM t GROUP BY host", vec![broken]).await,
        [Err(lost())]
    );
}

#[tokio::test]
async fn memory_is_bounded_and_what_needs_more_says_so() {
    let many: Vec<_> = (0..20_000).map(|n| ("some host with a long name", Some(n), 0.0)).collect();
    let memory = |bytes| {
        let pool = Arc::new(GreedyMemoryPool::new(bytes));
        RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc().unwrap()
    };
    let sql = "SELECT * FROM t ORDER BY n DESC LIMIT 20000";
    let batches = many.chunks(1_000).map(rows).collect();
    let results = run_with(sql, vec![stream(batches)], memory(1 << 20)).await;
    let [Err(Error::Query { sqlstate, hint: Some(hint), .. })] = &results[..] else {
        panic!("{results:?}")
    };
    assert_eq!(sqlstate, "53200");
    assert!(hint.contains("run_at_data"), "{hint}");
    // Groups are emitted early instead, several times each, and the final aggregate combines them.
    let sql = "SELECT n, count(*) FROM t GROUP BY n";
    let batches = many.chunks(1_000).map(rows).collect();
    let results = run_with(sql, vec![stream(batches)], memory(256 << 10)).await;
    let counted: u64 = match &results[..] {
        [Ok(lines)] => {
            lines.iter().map(|line| line.split('|').nth(1).unwrap().parse::<u64>().unwrap()).sum()
        }
        results => panic!("{results:?}"),
    };
    assert_eq!(counted, 20_000);
}

#[tokio::test]
async fn dropping_the_streams_ends_the_work() {
    let guard = Arc::new(());
    let guard_of_rows = Arc::clone(&guard);
    let endless = futures::stream::repeat_with(move || {
        let _held = &guard_of_rows;
        Ok(rows(&[("a", Some(1), 1.0)]))
    });
    let fragment =
        Fragment::decode(&encoded("SELECT host, count(*) FROM t GROUP BY host").await.unwrap(), 1)
            .unwrap();
    let reply = begun(fragment, vec![Box::pin(endless)], Arc::default()).unwrap();
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!(Arc::strong_count(&guard), 2);
    drop(reply);
    while Arc::strong_count(&guard) > 1 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_scan_of_other_columns_is_refused() {
    let bytes = encoded("SELECT v + 1 FROM t").await.unwrap();
    let fragment = Fragment::decode(&bytes, 1).unwrap();
    let texts = Arc::new(schema("stored_").project(&[0]).unwrap());
    let error = fragment.run(reply(Vec::new()), &texts, Arc::default()).err();
    assert!(matches!(error, Some(Error::InvalidInput(_))), "{error:?}");
}

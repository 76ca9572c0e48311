//! How long requests take; to be looked at, not to pass:
//! `cargo test -p partita-rpc --release -- --ignored --nocapture measure`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use partita_proto::service::{DataService, RowStream, ScanReply};
use tokio_util::task::AbortOnDropHandle;

use super::{FakeNode, client, rows, scan_request, write_request};
use crate::DataClient;

const SPAN: Duration = Duration::from_secs(3);

fn tell(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let (middle, worst) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!("{what}: {} of them, p50 {middle:?}, p99 {worst:?}", times.len());
}

/// Small writes, one after another.
async fn small_writes(what: &str, client: &DataClient) {
    let request = write_request(rows(0..1, 10));
    let mut times = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < SPAN {
        let one = Instant::now();
        client.write(request.clone()).await.unwrap();
        times.push(one.elapsed());
    }
    tell(what, times);
}

/// Scans of one row, one after another.
async fn small_scans(what: &str, client: &DataClient, node: &FakeNode) {
    let mut times = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < SPAN {
        let one = Instant::now();
        let stream: RowStream = stream::iter([Ok(rows(0..1, 10))]).boxed();
        let streams = vec![stream];
        node.scans.lock().push_back(ScanReply { streams, sorted: true, stats: Arc::default() });
        let answer = client.scan(scan_request()).await.unwrap();
        for mut stream in answer.streams {
            while stream.next().await.is_some() {}
        }
        times.push(one.elapsed());
    }
    tell(what, times);
}

#[ignore = "measures"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn measure_small_requests_alone_and_beside_large_ones() {
    let node = Arc::new(FakeNode::default());
    node.measured.store(true, Ordering::Relaxed);
    let served = node.serve().await;
    let client = Arc::new(client(&served));
    small_writes("small writes alone", &client).await;
    small_scans("small scans alone", &client, &node).await;

    let bytes = Arc::new(AtomicUsize::new(0));
    let large = |_| {
        let (client, bytes) = (Arc::clone(&client), Arc::clone(&bytes));
        let request = write_request(rows(0..8, 1 << 20));
        AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                client.write(request.clone()).await.unwrap();
                bytes.fetch_add(8 << 20, Ordering::Relaxed);
            }
        }))
    };
    let load: Vec<_> = (0..4).map(large).collect();
    small_writes("small writes beside four large ones", &client).await;
    println!("  and {} MiB of those", bytes.swap(0, Ordering::Relaxed) >> 20);
    small_scans("small scans beside four large writes", &client, &node).await;
    drop(load);

    let batches = stream::repeat(rows(0..8192, 100)).take(1000).map(Ok).boxed();
    node.scans.lock().push_back(ScanReply {
        streams: vec![batches],
        sorted: true,
        stats: Arc::default(),
    });
    let begun = Instant::now();
    let mut answer = client.scan(scan_request()).await.unwrap();
    let mut count = 0;
    while let Some(batch) = answer.streams[0].next().await {
        count += batch.unwrap().num_rows();
    }
    println!("a scan of {count} rows of 124 bytes: {:?}", begun.elapsed());
}

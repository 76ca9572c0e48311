//! One node's disk fails or forgets: the other replicas go on, and the node is as good as before without a person.

use std::path::Path;
use std::time::{Duration, Instant};

use super::harness::{Cluster, PATIENCE};
use super::{NEVER_LOST, TABLES};
use crate::faults::{EXIT_IO_ERROR, Faults};
use crate::server::one;

/// What one node's disk does keeps writes waiting for no longer, on a machine that does other things besides.
const OUTAGE_MAX: Duration = Duration::from_secs(20);
const EIO: i32 = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_log_fails_ends_and_the_others_lead_its_partitions() {
    let dir = tempfile::tempdir().unwrap();
    let faults = Faults::new(dir.path());
    let mut cluster = Cluster::start(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    cluster.until_done(&client, TABLES).await;
    cluster.until_in_order(&client, 3).await;
    let name = "datanode2";
    cluster.kill(name);
    cluster.set_environment(name, &faults.environment());
    cluster.start_again(name);
    cluster.until_ready(name).await;
    cluster.until_in_order(&client, 3).await;
    faults.order("fdatasync", EIO, "/log/0");
    let began = Instant::now();
    for id in 0..30 {
        cluster.until_done(&client, &format!("INSERT INTO keyed VALUES ({id}, {id})")).await;
    }
    assert!(began.elapsed() < OUTAGE_MAX, "writes waited for {:?}", began.elapsed());
    let (status, log) = cluster.until_exit(name).await;
    assert_eq!(status.code(), Some(EXIT_IO_ERROR), "{log}");
    cluster.set_environment(name, &[]);
    cluster.start_again(name);
    cluster.until_ready(name).await;
    cluster.until_in_order(&client, 3).await;
    assert_eq!(one(&client, "SELECT count(*) FROM keyed").await, "30");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_with_bad_records_is_made_good_by_the_other_replicas() {
    let mut cluster = Cluster::start(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    cluster.until_done(&client, TABLES).await;
    cluster.until_in_order(&client, 3).await;
    for id in 0..60 {
        cluster.until_done(&client, &format!("INSERT INTO keyed VALUES ({id}, {id})")).await;
    }
    let name = "datanode3";
    cluster.kill(name);
    spoil_end(&cluster.data(name).join("log/0000000001.log"));
    cluster.start_again(name);
    cluster.until_ready(name).await;
    let began = Instant::now();
    for id in 60..90 {
        cluster.until_done(&client, &format!("INSERT INTO keyed VALUES ({id}, {id})")).await;
    }
    assert!(began.elapsed() < OUTAGE_MAX, "writes waited for {:?}", began.elapsed());
    cluster.until_in_order(&client, 3).await;
    assert!(began.elapsed() < PATIENCE);
    assert_eq!(one(&client, "SELECT count(*) FROM keyed").await, "90");
    assert!(cluster.logs().contains("a damaged replica was put aside"), "{}", cluster.logs());
}

/// Makes bytes bad near the end of a segment, where records are.
fn spoil_end(segment: &Path) {
    let mut bytes = std::fs::read(segment).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    for place in [used - 40, used - 39, used - 300, used - 299] {
        bytes[place] = !bytes[place];
    }
    std::fs::write(segment, bytes).unwrap();
}

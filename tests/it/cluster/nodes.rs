//! Nodes that say in which zone they are, and nodes that go for good.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::Client;

use super::harness::{Cluster, rows};
use super::{Load, NEVER_LOST, TABLES};
use crate::server::{failure, one};

/// The nodes of each partition of both tables.
async fn places(cluster: &Cluster, client: &Client) -> BTreeMap<u64, BTreeSet<u64>> {
    let mut places: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for table in ["keyed", "appended"] {
        for (partition, node) in cluster.replicas(client, table).await {
            places.entry(partition).or_default().insert(node);
        }
    }
    places
}

/// Whether every partition has a replica on nodes 3 and 4, and one on one of these, which are in one zone.
fn apart(places: &BTreeMap<u64, BTreeSet<u64>>, zone: &[u64]) -> bool {
    let good = |nodes: &BTreeSet<u64>| {
        let here = zone.iter().filter(|node| nodes.contains(node)).count();
        nodes.len() == 3 && nodes.contains(&3) && nodes.contains(&4) && here == 1
    };
    places.len() == 6 && places.values().all(good)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_drained_removed_and_refused_while_replicas_stay_in_different_zones() {
    let labels = ["zone=a,rack=r1", "zone=a", "zone=b", "zone=c"];
    let mut cluster = Cluster::start_in(NEVER_LOST, &labels).await;
    let client = cluster.connect(0).await;
    let (well, shown) = cluster.tool(&["admin", "--connect", &cluster.door(1), "-p", "nodes"]);
    assert!(well && shown.contains("rack=r1,zone=a") && shown.contains("zone=c"), "{shown}");
    client.batch_execute(TABLES).await.unwrap();
    cluster.until_in_order(&client, 3).await;
    let found = places(&cluster, &client).await;
    assert!(apart(&found, &[1, 2]), "{found:?}");
    let mut load = Load::start(&cluster).await;
    load.until_more(&cluster, 100).await;

    let (code, why) = failure(&client, "ADMIN remove_node(1)").await;
    assert!(code == "22023" && why.contains("ADMIN drain_node(1)"), "{code} {why}");
    let (well, said) = cluster.tool(&["admin", "--connect", &cluster.door(0), "drain", "1"]);
    assert!(well, "{said}");
    // Its last replica goes to the other node of its zone, and then it may go.
    cluster.until_done(&client, "ADMIN remove_node(1)").await;
    let of_catalog = "SELECT count(*) FROM sys.replicas WHERE node = 1";
    cluster.until("node 1 has nothing", async || one(&client, of_catalog).await == "0").await;
    assert_eq!(one(&client, "SELECT count(*) FROM sys.nodes WHERE node = 1").await, "0");
    let found = places(&cluster, &client).await;
    assert!(apart(&found, &[2]), "{found:?}");
    load.until_more(&cluster, 100).await;

    // The process is told, and so is one that begins with its directory; that stays as it is.
    let told = "this data directory belongs to node 1, which was removed";
    let (well, log) = cluster.until_ended("datanode1").await;
    assert!(!well && log.contains(told), "{log}");
    let directory = cluster.data("datanode1");
    let marked = std::fs::read(directory.join("NODE")).unwrap();
    cluster.start_again("datanode1");
    let (well, log) = cluster.until_ended("datanode1").await;
    assert!(!well && log.contains(told), "{log}");
    assert_eq!(std::fs::read(directory.join("NODE")).unwrap(), marked);
    assert!(directory.join("log").exists());

    // With a new one it is another node, and gets its share of what is in its zone.
    cluster.wipe("datanode1");
    cluster.start_again("datanode1");
    cluster.until_ready("datanode1").await;
    cluster.until_live(4).await;
    let fifth = rows(&client, "SELECT labels FROM sys.nodes WHERE node = 5").await.unwrap();
    assert_eq!(fifth, [[Some("rack=r1,zone=a".to_owned())]]);
    cluster
        .until("node 5 has its share", async || {
            let found = places(&cluster, &client).await;
            let here = found.values().filter(|nodes| nodes.contains(&5)).count();
            here == 3 && apart(&found, &[2, 5])
        })
        .await;
    load.until_more(&cluster, 100).await;
    load.end().await;
    cluster.until_in_order(&client, 3).await;
    load.verify(&cluster, &client).await;
}

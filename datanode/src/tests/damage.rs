//! A node whose only replicas are damaged, and the catalogs that may order it to drop them.

use partita_proto::catalog_history::{CatalogHistory, Leadership};
use partita_proto::range::Bound;
use partita_proto::reshape::{Absorb, Freeze, Reshape, Split};

use super::table::bound;
use super::*;

const SECOND: PartitionId = PartitionId(8);
const OTHER: PartitionId = PartitionId(9);

async fn open(running: &Running, partition: PartitionId) {
    running.node.open_partition(PartitionSpec { partition, ..spec(false) }).await.unwrap();
}

async fn put(running: &Running, partition: PartitionId, sequence: u64, rows: &[(i64, i64)]) {
    write_to(&running.node, (partition, Epoch(1)), sequence, rows).await.unwrap();
}

async fn read(running: &Running, partition: PartitionId) -> Result<Vec<(i64, i64)>, Error> {
    rows_of(&running.node, (partition, Epoch(1))).await
}

/// Files of a partition below a directory of its own, by name.
fn files(dir: &Path, partition: PartitionId, below: &str) -> Vec<std::path::PathBuf> {
    let dir = dir.join("partitions").join(partition.to_string()).join(below);
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    files
}

fn corrupted<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Corrupted(what)) => what,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_a_damaged_file_and_a_damaged_manifest_serves_everything_else() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    for partition in [PARTITION, SECOND, OTHER] {
        open(&running, partition).await;
        put(&running, partition, 1, &[(1, 1)]).await;
        running.node.flush_partition(partition).await.unwrap();
        put(&running, partition, 2, &[(200, 2)]).await;
        running.node.flush_partition(partition).await.unwrap();
    }
    running.stop().await;
    let file = files(dir.path(), PARTITION, "files").remove(0);
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    for object in files(dir.path(), SECOND, "manifest") {
        std::fs::write(object, "nothing that a manifest says").unwrap();
    }

    let running = Running::start(dir.path()).await;
    running.node.until_led(vec![PARTITION, SECOND, OTHER]).await.unwrap();
    assert_eq!(read(&running, OTHER).await.unwrap(), [(1, 1), (200, 2)]);
    let name = file.file_name().unwrap().to_str().unwrap();
    let what = corrupted(read(&running, PARTITION).await);
    assert!(what.contains(name) && what.contains("of partition 7"), "{what}");
    let what = corrupted(read(&running, SECOND).await);
    assert!(what.contains("partition 8 is not served"), "{what}");
    corrupted(write_to(&running.node, (SECOND, Epoch(1)), 3, &[(3, 3)]).await);
    let status = running.node.status().await.unwrap();
    let failure = |partition| {
        let status = status.iter().find(|status| status.partition == partition).unwrap();
        assert_eq!(status.replica, ReplicaId(1), "nobody takes it for another replica");
        status.failure.clone()
    };
    assert!(failure(PARTITION).unwrap().contains(name));
    assert!(failure(SECOND).is_some());
    assert_eq!(failure(OTHER), None);
    // The partition with the damaged file takes rows, and keeps them over a restart; it is not cut.
    put(&running, PARTITION, 3, &[(300, 3)]).await;
    running.node.flush_partition(PARTITION).await.unwrap();
    running.node.compact_partition(PARTITION).await.unwrap();
    running.stop().await;
    let running = Running::start(dir.path()).await;
    corrupted(read(&running, PARTITION).await);
    // Once the file is back, everything is.
    running.stop().await;
    std::fs::write(&file, &whole).unwrap();
    let running = Running::start(dir.path()).await;
    assert_eq!(read(&running, PARTITION).await.unwrap(), [(1, 1), (200, 2), (300, 3)]);
    // What cannot be mended is dropped and made again.
    running.node.drop_partition(SECOND, ReplicaId(1)).await.unwrap();
    open(&running, SECOND).await;
    assert_eq!(read(&running, SECOND).await.unwrap(), []);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_replica_of_an_older_copy_is_refused_until_it_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    for partition in [PARTITION, SECOND] {
        open(&running, partition).await;
        put(&running, partition, 1, &[(1, 1)]).await;
    }
    running.stop().await;
    let running = Running::start_aged(dir.path(), true, &[]).await;
    for partition in [PARTITION, SECOND] {
        assert!(corrupted(read(&running, partition).await).contains("older copy"));
    }
    // Replicas created from now on are intact.
    open(&running, OTHER).await;
    put(&running, OTHER, 1, &[(3, 3)]).await;
    running.stop().await;
    let running = Running::start_aged(dir.path(), false, &[SECOND, OTHER]).await;
    running.node.until_led(vec![PARTITION, SECOND, OTHER]).await.unwrap();
    corrupted(read(&running, PARTITION).await);
    assert_eq!(read(&running, SECOND).await.unwrap(), [(1, 1)]);
    assert_eq!(read(&running, OTHER).await.unwrap(), [(3, 3)]);
    running.stop().await;
    // For one start is for good.
    let running = Running::start(dir.path()).await;
    assert_eq!(read(&running, SECOND).await.unwrap(), [(1, 1)]);
    running.stop().await;
    // A list that cannot be read may have had any of them.
    std::fs::write(dir.path().join("OLDER"), "7").unwrap();
    let running = Running::start(dir.path()).await;
    corrupted(read(&running, SECOND).await);
    corrupted(read(&running, OTHER).await);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_was_to_be_taken_over_by_a_damaged_one_is_given_free() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    open(&running, PARTITION).await;
    put(&running, PARTITION, 1, &[(1, 1), (50, 2)]).await;
    let replicas = BTreeMap::from([(NodeId(1), ReplicaId(1))]);
    let split = Split {
        partition: PARTITION,
        epoch: Epoch(1),
        at: bound(30),
        child: SECOND,
        replicas,
        leader: None,
    };
    running.node.reshape(Reshape::Split(split)).await.unwrap();
    running.node.until_led(vec![SECOND]).await.unwrap();
    let freeze =
        |partition, epoch, on| Reshape::Freeze(Freeze { partition, epoch: Epoch(epoch), on });
    let order = freeze(SECOND, 2, true);
    let frozen = running.node.reshape(order.clone()).await.unwrap();
    running.stop().await;
    for file in files(dir.path(), PARTITION, "files") {
        // The other half has the same bytes under another name.
        std::fs::remove_file(file).unwrap();
    }

    let running = Running::start(dir.path()).await;
    running.node.until_led(vec![PARTITION, SECOND]).await.unwrap();
    assert_eq!(running.node.reshape(order).await.unwrap().index, frozen.index);
    let absorb = Reshape::Absorb(Absorb {
        partition: PARTITION,
        epoch: Epoch(2),
        right: SECOND,
        frozen: frozen.index,
        end: Bound::default(),
    });
    corrupted(running.node.reshape(absorb.clone()).await);
    running.node.reshape(freeze(PARTITION, 2, false)).await.unwrap();
    let late = running.node.reshape(absorb).await;
    assert!(matches!(late, Err(Error::StaleRoute { current: Epoch(3), .. })), "{late:?}");
    running.node.reshape(freeze(SECOND, 3, false)).await.unwrap();
    // A damaged partition is neither frozen nor split.
    corrupted(running.node.reshape(freeze(PARTITION, 3, true)).await);
    write_to(&running.node, (SECOND, Epoch(4)), 2, &[(60, 3)]).await.unwrap();
    let rows = rows_of(&running.node, (SECOND, Epoch(4))).await.unwrap();
    assert_eq!(rows, [(50, 2), (60, 3)]);
    running.stop().await;
}

fn history(version: u64, leaderships: &[(u64, u64)]) -> CatalogHistory {
    let leadership =
        |(first, nonce): &(u64, u64)| Leadership { first: *first, term: 1, nonce: *nonce };
    CatalogHistory {
        cluster: 5,
        version,
        leaderships: leaderships.iter().map(leadership).collect(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_takes_orders_from_no_catalog_that_lacks_what_it_has_followed() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    // As long as it has followed none, orders without a catalog are accepted.
    running.node.recognize(None).await.unwrap();
    running.node.recognize(Some(&history(9, &[(2, 11)]))).await.unwrap();
    open(&running, PARTITION).await;
    running.stop().await;
    let running = Running::start(dir.path()).await;
    let refused = async |catalog: Option<&CatalogHistory>| {
        let refused = running.node.recognize(catalog).await;
        assert!(matches!(refused, Err(Error::InvalidInput(_))), "{catalog:?}: {refused:?}");
    };
    refused(None).await;
    refused(Some(&history(8, &[(2, 12)]))).await;
    refused(Some(&history(400, &[(2, 11), (5, 12)]))).await;
    refused(Some(&CatalogHistory { cluster: 6, ..history(400, &[(2, 11)]) })).await;
    running.node.recognize(Some(&history(9, &[(2, 11)]))).await.unwrap();
    running.node.recognize(Some(&history(40, &[(2, 11), (10, 12)]))).await.unwrap();
    // An order that comes late of the leadership before.
    refused(Some(&history(9, &[(2, 11)]))).await;
    running.stop().await;
}

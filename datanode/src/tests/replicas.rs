//! Replicas that follow, lead, come and go.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::cluster::{Cluster, MANY_ROWS, numbers, others, replicas, row, rows_to};
use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_written_at_a_leader_are_read_at_the_next_one() {
    let mut cluster = Cluster::of_three(3, 1, false).await;
    cluster.write(1, &rows_to(10)).await;
    cluster.converge(&[1, 2, 3]).await;
    // A follower names the leader: right after an election, a moment later.
    let told = async |id: u64, first: u64| {
        let leader = Some(NodeId(first));
        let refusal = Error::NotLeader { partition: PARTITION, leader };
        let node = cluster.node(id);
        // If it leads meanwhile, this changes nothing.
        let again = write(node, 1, &rows_to(10)).await;
        let changed = node.reconfigure(PARTITION, replicas(&[1, 2, 3])).await;
        let status = cluster.status(id).await;
        again == Err(refusal.clone())
            && rows(node).await == Err(refusal.clone())
            && changed == Err(refusal)
            && (status.leader, status.leader_node, status.voters.len()) == (false, leader, 3)
    };
    let all_told = async || {
        let first = cluster.leader().await;
        let [one, other] = [others(first)[0], others(first)[1]];
        told(one, first).await && told(other, first).await
    };
    cluster.until("followers do not tell who leads", all_told).await;
    for id in 1..=3 {
        cluster.flush(id).await;
        let status = cluster.status(id).await;
        assert!(status.files > 0 && status.flushed > 0, "every replica has its own files");
    }
    let first = cluster.leader().await;
    cluster.write(2, &[row(10), row(11)]).await;
    cluster.kill(first).await;
    let second = cluster.leader().await;
    assert_ne!(first, second);
    assert_eq!(cluster.rows().await, rows_to(12));
    cluster.write(3, &[row(12)]).await;
    cluster.start(first).await;
    cluster.converge(&[1, 2, 3]).await;
    assert_eq!(cluster.rows_at(first).await, rows_to(13));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_was_away_gets_files_and_then_leads_with_rows_and_requests() {
    let mut cluster = Cluster::of_three(3, 2, true).await;
    cluster.write(10_000, &[(-1, -1)]).await;
    cluster.converge(&[1, 2, 3]).await;
    let away = others(cluster.leader().await)[0];
    cluster.kill(away).await;
    let end = cluster.outgrow_the_log(&others(away)).await;
    // Some that are in no file.
    let last = cluster.write(20_000, &[row(end)]).await;
    cluster.start(away).await;
    cluster.converge(&[1, 2, 3]).await;
    cluster.until_purged(away).await;
    let expected: Vec<_> = std::iter::once((-1, -1)).chain(rows_to(end + 1)).collect();
    assert_eq!(cluster.rows_at(away).await, expected);
    // What it never saw as a write, it knows as a request: of files, and of the log.
    let (resent, again) =
        (cluster.write(1, &rows_to(MANY_ROWS)).await, cluster.write(20_000, &[row(end)]).await);
    assert!(resent < last);
    assert_eq!(again, last);
    assert_eq!(cluster.rows().await, expected);
    // It survives a crash right after, and a restart.
    cluster.kill(away).await;
    cluster.start(away).await;
    cluster.write(1, &rows_to(MANY_ROWS)).await;
    cluster.converge(&[1, 2, 3]).await;
    assert_eq!(cluster.rows_at(away).await, expected);
    cluster.stop().await;
}

/// Writes one row after the other until stopped; every one is acknowledged.
async fn keep_writing(cluster: &Cluster, from: i64, stop: &AtomicBool, written: &AtomicU64) {
    let mut number = from;
    while !stop.load(Ordering::Acquire) {
        cluster.write(number.cast_unsigned() + 1_000_000, &[row(number)]).await;
        number += 1;
        written.store(number.cast_unsigned(), Ordering::Release);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fourth_replica_takes_the_place_of_the_leader_under_writes() {
    let cluster = Cluster::of_three(4, 3, true).await;
    let end = cluster.outgrow_the_log(&[1, 2, 3]).await;
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let change = async {
        let leaving = cluster.leader().await;
        let mut wanted = others(leaving);
        wanted.push(4);
        cluster.open(4, &wanted, true, true).await.unwrap();
        cluster.open(4, &wanted, true, true).await.unwrap();
        cluster.reconfigure(&wanted).await;
        cluster.reconfigure(&wanted).await;
        cluster.node(leaving).drop_partition(PARTITION, ReplicaId(leaving)).await.unwrap();
        let so_far = written.load(Ordering::Acquire);
        cluster.until("writes go on", async || written.load(Ordering::Acquire) > so_far + 20).await;
        stop.store(true, Ordering::Release);
        wanted
    };
    let (wanted, ()) = tokio::join!(change, keep_writing(&cluster, end, &stop, &written));
    let written = written.load(Ordering::Acquire).cast_signed();
    cluster.until_purged(4).await;
    cluster.converge(&wanted).await;
    for id in wanted {
        assert_eq!(cluster.rows_at(id).await, rows_to(written), "on node {id}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_replica_becomes_three_and_another_one_is_left() {
    let mut cluster = Cluster::new(3, 4).await;
    cluster.open(1, &[1], false, false).await.unwrap();
    cluster.write(1, &rows_to(10)).await;
    // In a group of one this gives up the log, so that those who join get files.
    cluster.node(1).flush_partition(PARTITION).await.unwrap();
    cluster.write(2, &[row(10)]).await;
    let refused = cluster.node(1).reconfigure(PARTITION, replicas(&[1, 2])).await.unwrap_err();
    assert!(
        refused.to_string().contains("replica 2 of partition 7 is still catching up"),
        "{refused}"
    );
    assert!(refused.is_retryable());
    assert_eq!(cluster.status(1).await.learners, numbers(&[2]));
    for id in [2, 3] {
        cluster.open(id, &[1, 2, 3], false, true).await.unwrap();
    }
    cluster.reconfigure(&[1, 2, 3]).await;
    cluster.converge(&[1, 2, 3]).await;
    for id in [2, 3] {
        assert!(cluster.status(id).await.files > 0, "it got files");
    }
    cluster.write(3, &[row(11)]).await;
    cluster.reconfigure(&[3]).await;
    for id in [1, 2] {
        cluster.node(id).drop_partition(PARTITION, ReplicaId(id)).await.unwrap();
        assert!(cluster.node(id).status().await.unwrap().is_empty());
    }
    cluster.write(4, &[row(12)]).await;
    assert_eq!(rows(cluster.node(3)).await.unwrap(), rows_to(13));
    cluster.kill(3).await;
    cluster.start(3).await;
    assert_eq!(cluster.rows().await, rows_to(13));
    cluster.write(5, &[row(13)]).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_joined_and_has_got_nothing_yet_may_be_restarted() {
    let mut cluster = Cluster::new(2, 5).await;
    cluster.open(1, &[1], false, false).await.unwrap();
    cluster.write(1, &rows_to(5)).await;
    cluster.open(2, &[1, 2], false, true).await.unwrap();
    cluster.kill(2).await;
    cluster.start(2).await;
    cluster.open(2, &[1, 2], false, true).await.unwrap();
    cluster.reconfigure(&[1, 2]).await;
    assert_eq!(cluster.rows_at(2).await, rows_to(5));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_about_another_replica_of_the_partition_change_nothing() {
    let cluster = Cluster::new(1, 6).await;
    cluster.open(1, &[1], false, false).await.unwrap();
    cluster.write(1, &rows_to(5)).await;
    cluster.node(1).drop_partition(PARTITION, ReplicaId(9)).await.unwrap();
    let other = PartitionSpec { replica: ReplicaId(9), join: true, ..spec(false) };
    let refused = cluster.node(1).open_partition(other).await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable(_)), "{refused}");
    cluster.open(1, &[1], false, false).await.unwrap();
    assert_eq!(cluster.rows().await, rows_to(5));
    cluster.node(1).transfer_leader(PARTITION, NodeId(1)).await.unwrap();
    let nobody = cluster.node(1).transfer_leader(PARTITION, NodeId(2)).await;
    assert!(matches!(nobody, Err(Error::InvalidInput(_))), "{nobody:?}");
    let nobody = cluster.node(1).reconfigure(PARTITION, BTreeMap::new()).await;
    assert!(matches!(nobody, Err(Error::InvalidInput(_))), "{nobody:?}");
    cluster.stop().await;
}

/// Changes a byte in the middle of every file with this ending below a directory; returns the number of files.
fn damage(dir: &Path, ending: &str) -> usize {
    let mut damaged = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            damaged += damage(&path, ending);
        } else if path.extension().is_some_and(|extension| extension == ending) {
            let mut bytes = std::fs::read(&path).unwrap();
            let middle = bytes.len() / 3;
            bytes[middle] ^= 0x55;
            std::fs::write(&path, bytes).unwrap();
            damaged += 1;
        }
    }
    damaged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_finds_its_files_damaged_leaves_reading_to_the_others() {
    let mut cluster = Cluster::of_three(3, 8, false).await;
    let all = rows_to(MANY_ROWS);
    cluster.write(1, &all).await;
    let leader = cluster.leader().await;
    cluster.converge(&[1, 2, 3]).await;
    for id in 1..=3 {
        cluster.flush(id).await;
    }
    let dir = cluster.member(leader).dir.path().join("partitions");
    assert!(damage(&dir, "parquet") > 0);
    // Damage is never the answer of a read while others have the rows: it is to be tried again, and another one serves.
    cluster
        .until("the leader never gave way", async || {
            let found = rows(cluster.node(leader)).await;
            let failed = cluster.status(leader).await.failure.is_some();
            match found {
                // It has the rows in memory still.
                Ok(rows) => assert_eq!(rows, all),
                Err(error) if failed => {
                    let gave_way = matches!(error, Error::Unavailable(_) | Error::NotLeader { .. });
                    assert!(gave_way, "{error}");
                    return true;
                }
                // On a busy machine another was elected, but only who reads finds damage.
                Err(error) => {
                    assert!(error.is_retryable(), "{error}");
                    cluster
                        .anywhere("a change of the leader", async |_, node: Arc<Datanode>| {
                            node.transfer_leader(PARTITION, NodeId(leader)).await
                        })
                        .await;
                }
            }
            false
        })
        .await;
    assert_eq!(cluster.rows().await, all);
    assert_ne!(cluster.leader().await, leader);
    assert!(cluster.status(leader).await.failure.is_some());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_damaged_at_the_start_is_put_aside_and_made_anew() {
    let mut cluster = Cluster::of_three(3, 9, false).await;
    cluster.write(1, &rows_to(50)).await;
    cluster.leader().await;
    cluster.converge(&[1, 2, 3]).await;
    cluster.flush(2).await;
    cluster.kill(2).await;
    let dir = cluster.member(2).dir.path().join("partitions");
    assert!(damage(&dir.join(PARTITION.to_string()).join("manifest"), "checkpoint") > 0);
    cluster.start(2).await;
    assert!(cluster.node(2).status().await.unwrap().is_empty(), "it is not served");
    assert!(dir.join(format!("{PARTITION}.damaged-1")).exists(), "it is there to be looked at");
    // The order that created it comes again: it has voted, and would not know.
    for _ in 0..2 {
        let again = cluster.open(2, &[1, 2, 3], false, false).await.unwrap_err();
        assert!(matches!(again, Error::Unavailable(_)), "{again}");
        cluster.kill(2).await;
        cluster.start(2).await;
    }
    // Another replica on the same node takes its place.
    let members = BTreeMap::from([
        (ReplicaId(1), NodeId(1)),
        (ReplicaId(3), NodeId(3)),
        (ReplicaId(22), NodeId(2)),
    ]);
    let spec = PartitionSpec {
        replica: ReplicaId(22),
        members: members.clone(),
        join: true,
        ..spec(false)
    };
    cluster.node(2).open_partition(spec).await.unwrap();
    let ask = async |_, node: Arc<Datanode>| node.reconfigure(PARTITION, members.clone()).await;
    cluster.anywhere("a change of members", ask).await;
    assert_eq!(cluster.rows_at(2).await, rows_to(50));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_any_of_its_files_does_not_start_and_forgets_nothing() {
    let mut cluster = Cluster::of_three(3, 10, false).await;
    cluster.write(1, &rows_to(50)).await;
    cluster.converge(&[1, 2, 3]).await;
    cluster.kill(2).await;
    let dir = cluster.member(2).dir.path().to_owned();
    std::fs::rename(dir.join("partitions"), dir.join("elsewhere")).unwrap();
    let refused = cluster.try_start(2).await.unwrap_err();
    assert!(refused.to_string().contains("is a disk not mounted?"), "{refused}");
    std::fs::remove_dir(dir.join("partitions")).unwrap();
    std::fs::rename(dir.join("elsewhere"), dir.join("partitions")).unwrap();
    cluster.start(2).await;
    cluster.converge(&[1, 2, 3]).await;
    assert_eq!(cluster.rows_at(2).await, rows_to(50));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_of_an_older_copy_are_refused_until_they_are_dropped_and_made_anew() {
    let mut cluster = Cluster::of_three(3, 11, false).await;
    cluster.write(1, &rows_to(50)).await;
    cluster.converge(&[1, 2, 3]).await;
    // Flushed rows go to the trash.
    cluster.flush(2).await;
    cluster.kill(2).await;
    cluster.older = true;
    cluster.start(2).await;
    cluster.older = false;
    let refused = async |cluster: &Cluster| {
        let status = cluster.node(2).status().await.unwrap().remove(0);
        assert_eq!((status.partition, status.replica), (PARTITION, ReplicaId(2)));
        assert!(status.failure.unwrap().contains("older copy"));
        let named = cluster.node(2).ailments().remove(0).to_string();
        assert!(named.contains("partition 7") && named.contains("--accept-damage 7"), "{named}");
        let error = rows(cluster.node(2)).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "others are to be asked: {error}");
    };
    refused(&cluster).await;
    // Also when the directory is not older any more.
    cluster.kill(2).await;
    cluster.start(2).await;
    refused(&cluster).await;
    let again = cluster.open(2, &[1, 2, 3], false, true).await.unwrap_err();
    assert!(matches!(again, Error::Corrupted(_)), "nothing takes its place: {again}");
    cluster.reconfigure(&[1, 3]).await;
    cluster.node(2).drop_partition(PARTITION, ReplicaId(2)).await.unwrap();
    assert!(cluster.node(2).status().await.unwrap().is_empty());
    assert!(cluster.node(2).ailments().is_empty());
    let trash = cluster.member(2).dir.path().join("trash");
    assert_eq!(std::fs::read_dir(trash).unwrap().count(), 1, "it is there to be looked at");
    let members = BTreeMap::from([
        (ReplicaId(1), NodeId(1)),
        (ReplicaId(3), NodeId(3)),
        (ReplicaId(22), NodeId(2)),
    ]);
    let replica = ReplicaId(22);
    let spec = PartitionSpec { replica, members: members.clone(), join: true, ..spec(false) };
    cluster.node(2).open_partition(spec).await.unwrap();
    let ask = async |_, node: Arc<Datanode>| node.reconfigure(PARTITION, members.clone()).await;
    cluster.anywhere("a change of members", ask).await;
    cluster.kill(2).await;
    cluster.start(2).await;
    assert_eq!(cluster.rows_at(2).await, rows_to(50));
    cluster.stop().await;
}

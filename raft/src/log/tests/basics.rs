//! Entries, votes and marks are read back as they were written, before and after a restart.

use super::*;
use crate::log::Vote;

const A: GroupId = GroupId(1);
const B: GroupId = GroupId(2);

#[tokio::test]
async fn entries_can_be_read_before_they_are_on_disk() {
    let disk = SimulatedDisk::default();
    let log = with_group(&disk, A).await;
    let done = submit(&log, A, entries(1, 0, 10)).await.unwrap();
    assert_eq!(all(&log, A).await, entries(1, 0, 10));
    done.await.unwrap().unwrap();
    log.close();
}

#[tokio::test]
async fn a_restart_keeps_everything_of_every_group() {
    let disk = SimulatedDisk::default();
    let log = with_group(&disk, A).await;
    log.create(B, ReplicaId(20)).await.unwrap();
    let vote = Vote { term: 3, leader: 20, committed: true };
    log.save_vote(B, vote).await.unwrap();
    for index in 0..500 {
        append(&log, A, entries(1, index, index + 1)).await.unwrap();
    }
    append(&log, B, entries(3, 0, 20)).await.unwrap();
    log.truncate(B, Some(entry(3, 9, "").position)).await.unwrap();
    append(&log, B, entries(4, 10, 12)).await.unwrap();
    log.purge(A, entry(1, 99, "").position).await.unwrap();
    log.save_committed(B, Some(entry(4, 10, "").position)).unwrap();
    append(&log, B, entries(4, 12, 13)).await.unwrap();
    log.close();

    let log = open(&disk).unwrap();
    assert_eq!(log.groups(), [(A, ReplicaId(10)), (B, ReplicaId(20))]);
    assert_eq!(all(&log, A).await, entries(1, 100, 500));
    let mut expected = entries(3, 0, 10);
    expected.extend(entries(4, 10, 13));
    assert_eq!(all(&log, B).await, expected);
    let view = log.view(B).unwrap();
    assert_eq!(view.vote, Some(vote));
    assert_eq!(view.committed, Some(entry(4, 10, "").position));
    assert_eq!(view.last, Some(entry(4, 12, "").position));
    assert_eq!(log.view(A).unwrap().purged, Some(entry(1, 99, "").position));
    // And it goes on where it was.
    append(&log, A, entries(1, 500, 501)).await.unwrap();
    log.close();
    let log = open(&disk).unwrap();
    assert_eq!(all(&log, A).await, entries(1, 100, 501));
    log.close();
}

#[tokio::test]
async fn what_is_known_to_be_committed_never_passes_the_log() {
    let disk = SimulatedDisk::default();
    let log = with_group(&disk, A).await;
    append(&log, A, entries(1, 0, 5)).await.unwrap();
    // A follower may hear of a commit before the entries reach its own disk.
    log.save_committed(A, Some(entry(1, 100, "").position)).unwrap();
    append(&log, A, entries(1, 5, 6)).await.unwrap();
    log.close();
    let log = open(&disk).unwrap();
    assert_eq!(log.view(A).unwrap().committed, Some(entry(1, 5, "").position));
    log.close();
}

#[tokio::test]
async fn a_gap_is_refused_and_changes_nothing() {
    let disk = SimulatedDisk::default();
    let log = with_group(&disk, A).await;
    append(&log, A, entries(1, 0, 5)).await.unwrap();
    assert!(append(&log, A, entries(1, 6, 7)).await.is_err());
    assert!(append(&log, B, entries(1, 0, 1)).await.is_err(), "no such group");
    append(&log, A, entries(1, 5, 6)).await.unwrap();
    assert_eq!(all(&log, A).await, entries(1, 0, 6));
    log.close();
}

#[tokio::test]
async fn reads_come_in_portions_of_the_size_asked_for() {
    let disk = SimulatedDisk::default();
    let log = with_group(&disk, A).await;
    let large: Vec<_> = (0..40).map(|index| entry(1, index, vec![7; 1000])).collect();
    append(&log, A, large.clone()).await.unwrap();
    let read = log.read(A, 0, 40, 5000).await.unwrap();
    assert_eq!(read, large[..4]);
    assert_eq!(log.read(A, 10, 40, 1).await.unwrap(), large[10..11], "at least one");
    assert_eq!(log.read(A, 38, 100, u64::MAX).await.unwrap(), large[38..]);
    assert!(log.stats().cached_bytes <= 2048 + 1100, "{:?}", log.stats());
    log.close();
}

#[tokio::test]
async fn entries_over_a_quarter_of_a_segment_are_refused() {
    let disk = SimulatedDisk::default();
    let log = with_group(&disk, A).await;
    let max = log.payload_bytes_max();
    let error = append(&log, A, vec![entry(1, 0, vec![0; max + 1])]).await.unwrap_err();
    assert!(matches!(error, RaftError::InvalidInput(_)), "{error}");
    append(&log, A, vec![entry(1, 0, vec![0; max])]).await.unwrap();
    log.close();
}

#[tokio::test]
async fn a_closed_log_says_so() {
    let disk = SimulatedDisk::default();
    let log = with_group(&disk, A).await;
    log.close();
    assert!(matches!(append(&log, A, entries(1, 0, 1)).await, Err(RaftError::Unavailable(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_writers_share_one_sync() {
    let disk = SimulatedDisk::default();
    let options = LogOptions { segment_bytes: 4 * SEGMENT, ..options() };
    let log = Log::open(Arc::new(disk.clone()), options).unwrap();
    for group in 0..64 {
        log.create(GroupId(group), ReplicaId(group)).await.unwrap();
    }
    let before = disk.syncs();
    let mut waiting = Vec::new();
    for index in 0..20 {
        for group in 0..64 {
            waiting.push(submit(&log, GroupId(group), entries(1, index, index + 1)).await.unwrap());
        }
    }
    for done in waiting {
        done.await.unwrap().unwrap();
    }
    let syncs = disk.syncs() - before;
    assert!(syncs < 64 * 20 / 2, "{syncs} syncs");
    assert_eq!(log.stats().appended_entries, 64 * 20);
    log.close();
}

//! The log gives space back, asks for what it needs, and survives when there is none.

use std::time::Duration;

use super::*;
use crate::log::disk::Disk;
use crate::log::mark;

const A: GroupId = GroupId(1);
const IDLE: GroupId = GroupId(2);
/// Maximum time that a test waits for an expected event.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until the next file is ready, or is known not to be: the thread that prepares it may be late, and a write
/// that needs the file then waits instead of being refused.
async fn prepared(log: &Log) {
    let next = async {
        while !log.shared.spares.is_ready() && log.shared.spares.wait().is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, next).await.unwrap();
}

fn small() -> LogOptions {
    LogOptions { budget_bytes: 4 * u64::from(SEGMENT), ..options() }
}

#[tokio::test]
async fn purging_as_one_writes_keeps_the_space_bounded() {
    let disk = SimulatedDisk::default();
    let log = with_group(&disk, A).await;
    for index in 0..3000 {
        append(&log, A, vec![entry(1, index, vec![1; 400])]).await.unwrap();
        if index % 20 == 19 {
            log.purge(A, entry(1, index - 1, "").position).await.unwrap();
        }
        assert!(disk.used() <= 8 * u64::from(SEGMENT), "{} bytes at {index}", disk.used());
    }
    log.close();
    let log = open(&disk).unwrap();
    assert_eq!(all(&log, A).await.len(), 1);
    log.close();
}

#[tokio::test]
async fn the_tail_of_an_idle_group_does_not_hold_the_log() {
    let disk = SimulatedDisk::default();
    let log = Log::open(Arc::new(disk.clone()), small()).unwrap();
    log.create(A, ReplicaId(1)).await.unwrap();
    log.create(IDLE, ReplicaId(2)).await.unwrap();
    // One large entry, and nothing more ever after.
    append(&log, IDLE, vec![entry(1, 0, vec![9; 4000])]).await.unwrap();
    for index in 0..1000 {
        append(&log, A, vec![entry(1, index, vec![1; 400])]).await.unwrap();
        if index % 20 == 19 {
            log.purge(A, entry(1, index - 1, "").position).await.unwrap();
        }
    }
    assert!(log.stats().bytes <= small().budget_bytes + u64::from(SEGMENT), "{:?}", log.stats());
    assert_eq!(all(&log, IDLE).await, [entry(1, 0, vec![9; 4000])]);
    log.close();
    let log = open(&disk).unwrap();
    assert_eq!(all(&log, IDLE).await, [entry(1, 0, vec![9; 4000])]);
    append(&log, IDLE, entries(1, 1, 2)).await.unwrap();
    log.close();
    let log = open(&disk).unwrap();
    assert_eq!(all(&log, IDLE).await.len(), 2);
    log.close();
}

#[tokio::test]
async fn a_group_that_does_not_flush_is_named_and_then_writes_are_refused() {
    let disk = SimulatedDisk::default();
    let log = Log::open(Arc::new(disk.clone()), small()).unwrap();
    let pressure = log.pressure();
    log.create(A, ReplicaId(1)).await.unwrap();
    let mut index = 0;
    while log.admit().is_ok() {
        append(&log, A, vec![entry(1, index, vec![1; 400])]).await.unwrap();
        index += 1;
        assert!(index < 1000, "never refused: {:?}", log.stats());
    }
    assert_eq!(*pressure.borrow(), [A]);
    let error = log.admit().unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert!(error.to_string().contains("waits for groups [1] to flush"), "{error}");
    log.purge(A, entry(1, index - 2, "").position).await.unwrap();
    append(&log, A, vec![entry(1, index, "more")]).await.unwrap();
    // The callbacks run before the segments are given up.
    tokio::time::timeout(PATIENCE, async {
        while log.admit().is_err() || !pressure.borrow().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .unwrap();
    log.close();
}

#[tokio::test]
async fn a_full_disk_is_found_before_anything_is_accepted_and_the_log_goes_on_when_space_returns() {
    let disk = SimulatedDisk::default();
    let log = with_group(&disk, A).await;
    disk.set_space(Some(disk.used() + 2 * u64::from(SEGMENT)));
    let mut index = 0;
    let error = loop {
        match log.admit() {
            Ok(()) => append(&log, A, vec![entry(1, index, vec![1; 400])]).await.unwrap(),
            Err(error) => break error,
        }
        index += 1;
        prepared(&log).await;
        assert!(index < 1000, "never refused");
    };
    assert!(matches!(error, RaftError::DiskFull(_)), "{error}");
    assert!(error.is_retryable());
    assert!(log.stats().disk_full);
    // What was admitted before still finds room: a vote, and a quarter of a segment of entries.
    log.save_vote(A, crate::log::Vote { term: 2, leader: 1, committed: false }).await.unwrap();
    for _ in 0..8 {
        append(&log, A, vec![entry(1, index, vec![1; 400])]).await.unwrap();
        index += 1;
    }
    disk.set_space(None);
    tokio::time::timeout(PATIENCE, async {
        while log.admit().is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    for _ in 0..200 {
        append(&log, A, vec![entry(1, index, vec![1; 400])]).await.unwrap();
        index += 1;
    }
    log.close();
    let log = open(&disk).unwrap();
    assert_eq!(all(&log, A).await.len() as u64, index);
    log.close();
}

#[tokio::test]
async fn a_process_without_files_to_open_goes_on_when_it_may_open_some_again() {
    let disk = SimulatedDisk::default();
    let log = with_group(&disk, A).await;
    disk.set_out_of_files(true);
    let mut index = 0;
    let error = loop {
        match log.admit() {
            Ok(()) => append(&log, A, vec![entry(1, index, vec![1; 400])]).await.unwrap(),
            Err(error) => break error,
        }
        index += 1;
        prepared(&log).await;
        assert!(index < 1000, "never refused");
    };
    assert!(matches!(error, RaftError::Unavailable(_)), "{error}");
    assert!(error.to_string().contains("no file can be opened"), "{error}");
    disk.set_out_of_files(false);
    tokio::time::timeout(PATIENCE, async {
        while log.admit().is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    for _ in 0..200 {
        append(&log, A, vec![entry(1, index, vec![1; 400])]).await.unwrap();
        index += 1;
    }
    assert!(log.failure().is_none());
    log.close();
    let log = open(&disk).unwrap();
    assert_eq!(all(&log, A).await.len() as u64, index);
    log.close();
}

#[tokio::test]
async fn a_log_whose_mark_cannot_be_made_for_lack_of_files_goes_on_and_makes_it_later() {
    let marked = |disk: &SimulatedDisk| mark::read(disk, &disk.names().unwrap()).unwrap();
    let disk = SimulatedDisk::default();
    let log = with_group(&disk, A).await;
    append(&log, A, entries(1, 0, 1)).await.unwrap();
    log.close();
    let earlier = marked(&disk);
    assert!(earlier.is_some());
    // No space for the mark when the log is opened, and no file can be opened once there is space.
    disk.set_space(Some(disk.used()));
    let log = open(&disk).unwrap();
    disk.set_out_of_files(true);
    disk.set_space(None);
    append(&log, A, entries(1, 1, 3)).await.unwrap();
    assert!(log.failure().is_none());
    assert!(disk.files_refused() > 0);
    disk.set_out_of_files(false);
    assert_eq!(marked(&disk), earlier);
    append(&log, A, entries(1, 3, 4)).await.unwrap();
    assert!(marked(&disk) > earlier);
    log.close();
    let log = open(&disk).unwrap();
    assert_eq!(all(&log, A).await, entries(1, 0, 4));
    log.close();
}

#[tokio::test]
async fn a_write_that_finds_no_space_in_a_file_that_is_there_waits_for_it() {
    let disk = SimulatedDisk::default();
    let log = with_group(&disk, A).await;
    disk.set_unwritable(true);
    let done = submit(&log, A, entries(1, 0, 3)).await.unwrap();
    tokio::time::timeout(PATIENCE, async {
        while log.admit().is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .unwrap();
    assert!(matches!(log.admit(), Err(RaftError::DiskFull(_))));
    disk.set_unwritable(false);
    tokio::time::timeout(PATIENCE, done).await.unwrap().unwrap().unwrap();
    assert!(log.admit().is_ok() && log.failure().is_none());
    log.close();
    let log = open(&disk).unwrap();
    assert_eq!(all(&log, A).await, entries(1, 0, 3));
    log.close();
}

#[tokio::test]
async fn writes_that_wait_for_space_end_with_an_error_when_the_log_is_closed() {
    let disk = SimulatedDisk::default();
    let log = with_group(&disk, A).await;
    disk.set_space(Some(disk.used()));
    // Nobody asks for admission here: the last one must wait for a segment that cannot be had.
    let mut waiting = Vec::new();
    for index in 0..200 {
        waiting.push(submit(&log, A, vec![entry(1, index, vec![1; 400])]).await.unwrap());
    }
    tokio::task::spawn_blocking({
        let log = Arc::clone(&log);
        move || log.close()
    })
    .await
    .unwrap();
    let mut kept = 0;
    for done in waiting {
        match done.await.unwrap() {
            Ok(()) => kept += 1,
            Err(error) => assert!(matches!(error, RaftError::DiskFull(_)), "{error}"),
        }
    }
    disk.set_space(None);
    let log = open(&disk).unwrap();
    assert!(all(&log, A).await.len() >= kept);
    log.close();
}

#[test]
fn a_log_on_one_thread_has_its_next_file_soon_after_there_is_space() {
    // On a thread of its own, because other tests must not work in place.
    let simulation = std::thread::spawn(|| {
        partita_proto::blocking::stay_in_place();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let disk = SimulatedDisk::default();
            let log = with_group(&disk, A).await;
            disk.set_space(Some(disk.used()));
            let mut index = 0;
            while log.admit().is_ok() {
                append(&log, A, vec![entry(1, index, vec![1; 400])]).await.unwrap();
                index += 1;
            }
            disk.set_space(None);
            // No request comes meanwhile: none is accepted.
            let admitted = tokio::time::timeout(PATIENCE, async {
                while log.admit().is_err() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            });
            admitted.await.unwrap();
            append(&log, A, vec![entry(1, index, "")]).await.unwrap();
            log.close();
        });
    });
    simulation.join().unwrap();
}

#[tokio::test]
async fn a_new_log_on_a_full_disk_says_so() {
    let disk = SimulatedDisk::default();
    disk.set_space(Some(100));
    let error = open(&disk).err().unwrap();
    assert!(matches!(error, RaftError::DiskFull(_)), "{error}");
}

#[tokio::test]
async fn a_log_that_cannot_hold_more_groups_says_so() {
    let disk = SimulatedDisk::default();
    let log = open(&disk).unwrap();
    let mut made = 0;
    let error = loop {
        match log.create(GroupId(made), ReplicaId(u64::MAX)).await {
            Ok(()) => made += 1,
            Err(error) => break error,
        }
    };
    assert!(made >= 10, "{made}");
    assert!(matches!(error, RaftError::InvalidInput(_)), "{error}");
    log.close();
}

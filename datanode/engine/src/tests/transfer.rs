//! A replica's files and state travel to another replica of the same partition.

use std::fs;
use std::ops::Range;

use super::failure::{FailingStore, failing, files};
use super::*;
use crate::{Arrival, Pinned};

const NAMES: [&str; 3] = ["host", "ts", "a"];
const LEADER: ReplicaId = ReplicaId(2);

fn rows(numbers: Range<i64>) -> Vec<Row> {
    numbers.map(|n| vec![text("h"), ts(n), int(n)]).collect()
}

async fn pin(partition: &Partition) -> Pinned {
    partition.pin().await.unwrap().unwrap()
}

async fn receive(
    to: &Arc<Partition>,
    from: ReplicaId,
    pinned: &Pinned,
) -> Result<Arrival, EngineError> {
    to.receive(from, &pinned.state(), &pinned.files()).await
}

/// Sends the missing bytes in pieces of some size, at most so many of them. True if all were sent.
pub(super) async fn send(
    pinned: &Pinned,
    arrival: &mut Arrival,
    piece: usize,
    pieces_max: usize,
) -> Result<bool, EngineError> {
    let mut sent = 0;
    for (at, (_, bytes)) in pinned.files().iter().enumerate() {
        let mut offset = arrival.have()[at];
        while offset < *bytes {
            if sent == pieces_max {
                return Ok(false);
            }
            sent += 1;
            let next = piece.min(usize::try_from(bytes - offset).unwrap());
            let data = pinned.read(at, offset, next).await?;
            arrival.write(at, offset, &data).await?;
            offset += next as u64;
        }
    }
    Ok(true)
}

pub(super) async fn transfer(
    from: &Partition,
    to: &Arc<Partition>,
    piece: usize,
) -> Result<(), EngineError> {
    let pinned = pin(from).await;
    let mut arrival = receive(to, LEADER, &pinned).await?;
    assert!(send(&pinned, &mut arrival, piece, usize::MAX).await?);
    arrival.install().await
}

/// A replica with three files that overlap, and rows that are in none.
async fn leader() -> Fixture {
    let mut leader = Fixture::series(last_row()).await;
    for part in 0..3 {
        leader.put(&NAMES, &rows(part * 10..part * 10 + 15));
        leader.flush().await.unwrap();
    }
    leader.put(&NAMES, &rows(100..110));
    leader
}

/// A replica that has applied less, and other rows: it can be told from the leader.
async fn follower(fixture: &mut Fixture) {
    for part in 0..2 {
        fixture.put(&NAMES, &[vec![text("old"), ts(part), int(part)]]);
        fixture.flush().await.unwrap();
    }
    fixture.put(&NAMES, &[vec![text("old"), ts(9), int(9)]]);
}

fn old_rows() -> Vec<Row> {
    [0, 1, 9].map(|n| vec![text("old"), ts(n), int(n)]).into()
}

#[tokio::test]
async fn a_replica_takes_over_files_mark_and_state_of_another_and_goes_on_from_there() {
    let leader = leader().await;
    let mut to = Fixture::series(last_row()).await;
    follower(&mut to).await;
    let scan = to.scan(&NAMES, &[]);
    let open = to.partition.scan(scan).unwrap();
    transfer(&leader.partition, &to.partition, 100).await.unwrap();
    assert_eq!(to.read(&NAMES).await, rows(0..35), "what was in no file comes from the log");
    assert_eq!(to.partition.durable_mark(), Some((3, mark(3))));
    assert_eq!(to.partition.state(), Bytes::from("state 3"));
    assert_eq!(to.partition.applied(), 3);
    assert_eq!(to.partition.stats().memtable_rows, 0);
    let mut before = Vec::new();
    for stream in open.streams {
        let batches: Vec<RecordBatch> = stream.try_collect().await.unwrap();
        before.extend(batches.iter().flat_map(rows_of));
    }
    before.sort();
    assert_eq!(before, old_rows(), "a scan that was open sees what it saw");
    // The log continues.
    to.index = 3;
    to.put(&NAMES, &rows(100..110));
    to.flush().await.unwrap();
    assert_eq!(to.read(&NAMES).await, leader.read(&NAMES).await);
    to.partition.compact(true).await.unwrap();
    to.partition.verify().await.unwrap();
    assert_eq!(files(&to, "files").len(), to.partition.version().files.len(), "old files are gone");
    to.reopen().await;
    assert_eq!(to.read(&NAMES).await, leader.read(&NAMES).await);
    assert_eq!(to.partition.durable_mark(), Some((4, mark(4))));
}

#[tokio::test]
async fn what_makes_a_replica_itself_does_not_travel_and_the_schema_does() {
    let mut from = Fixture::series(last_row()).await;
    from.put(&NAMES, &rows(0..5));
    let mut schema = TableSchema::clone(&from.partition.config().schema);
    schema.version = SchemaVersion(2);
    schema.columns.push(column(5, "c", ColumnType::Int64, Semantic::Field));
    schema.next_column = ColumnId(6);
    from.index += 1;
    from.partition.apply_schema(from.index, mark(from.index), Arc::new(schema)).unwrap();
    from.put(&["host", "ts", "c"], &[vec![text("h"), ts(9), int(9)]]);
    from.flush().await.unwrap();
    let own = PartitionConfig {
        replica: ReplicaId(9),
        members: BTreeMap::new(),
        join: true,
        ..config(series_schema(last_row()), Placement::Range)
    };
    let mut to = Fixture::new(own).await;
    transfer(&from.partition, &to.partition, 1000).await.unwrap();
    for _ in 0..2 {
        let config = to.partition.config();
        assert_eq!((config.replica, config.join, config.members.len()), (ReplicaId(9), false, 0));
        assert_eq!(config.schema.version, SchemaVersion(2));
        assert_eq!(to.read(&["ts", "c"]).await, from.read(&["ts", "c"]).await);
        to.reopen().await;
    }
}

#[tokio::test]
async fn files_that_a_truncation_hides_travel_until_the_manifest_forgets_them() {
    let mut from = leader().await;
    from.index += 1;
    from.partition.apply_truncate(from.index, mark(from.index)).unwrap();
    let mut to = Fixture::series(last_row()).await;
    transfer(&from.partition, &to.partition, 1000).await.unwrap();
    assert_eq!(to.read(&NAMES).await, rows(0..35), "as of the mark they are there");
    to.partition.apply_truncate(from.index, mark(from.index)).unwrap();
    assert!(to.read(&NAMES).await.is_empty());
    from.flush().await.unwrap();
    assert!(pin(&from.partition).await.files().is_empty());
    transfer(&from.partition, &to.partition, 1000).await.unwrap();
    assert!(to.read(&NAMES).await.is_empty());
    to.reopen().await;
    assert!(to.read(&NAMES).await.is_empty());
    assert!(files(&to, "files").is_empty());
}

#[tokio::test]
async fn pinned_files_outlive_a_compaction_and_their_names_are_not_given_again() {
    let leader = leader().await;
    let pinned = pin(&leader.partition).await;
    leader.partition.compact(true).await.unwrap();
    let mut to = Fixture::series(last_row()).await;
    let mut arrival = receive(&to.partition, LEADER, &pinned).await.unwrap();
    assert!(send(&pinned, &mut arrival, 777, usize::MAX).await.unwrap());
    let later = pin(&leader.partition).await;
    for (name, _) in later.files() {
        assert!(!pinned.files().iter().any(|(other, _)| *other == name));
    }
    drop(pinned);
    arrival.install().await.unwrap();
    to.reopen().await;
    assert_eq!(to.read(&NAMES).await, rows(0..35));
    leader.partition.compact(false).await.unwrap();
    let named = leader.partition.version().files.len();
    assert_eq!(files(&leader, "files").len(), named, "unpinned, they are removed");
}

#[tokio::test]
async fn a_transfer_that_ended_early_goes_on_from_what_arrived() {
    let leader = leader().await;
    let mut to = Fixture::series(last_row()).await;
    follower(&mut to).await;
    let own = files(&to, "files").len();
    let pinned = pin(&leader.partition).await;
    let total: u64 = pinned.files().iter().map(|(_, bytes)| bytes).sum();
    let mut arrived = 0;
    loop {
        let mut arrival = receive(&to.partition, LEADER, &pinned).await.unwrap();
        let have: u64 = arrival.have().iter().sum();
        assert_eq!(have, arrived, "nothing is sent twice");
        let all = send(&pinned, &mut arrival, 501, 3).await.unwrap();
        arrived = arrival.have().iter().sum();
        if all {
            break;
        }
    }
    assert_eq!(arrived, total);
    assert_eq!(files(&to, "files").len(), own + 3);
    // A later state: its new file has to be sent, the others are here.
    leader.flush().await.unwrap();
    let later = pin(&leader.partition).await;
    let mut arrival = receive(&to.partition, LEADER, &later).await.unwrap();
    assert_eq!(arrival.have().iter().sum::<u64>(), total);
    let early = receive(&to.partition, LEADER, &later).await.unwrap().install().await;
    assert!(matches!(early, Err(EngineError::InvalidInput(_))), "{early:?}");
    assert_eq!(to.read(&NAMES).await, old_rows());
    assert!(send(&later, &mut arrival, 501, usize::MAX).await.unwrap());
    drop(arrival);
    // Another replica's files are others, whatever their names.
    let arrival = receive(&to.partition, ReplicaId(3), &later).await.unwrap();
    assert_eq!(arrival.have(), [0; 4]);
    assert_eq!(files(&to, "files").len(), own, "those of the first are gone");
    drop(arrival);
    // Files that are no longer needed are deleted.
    let mut arrival = receive(&to.partition, LEADER, &later).await.unwrap();
    assert!(send(&later, &mut arrival, 5000, usize::MAX).await.unwrap());
    drop(arrival);
    leader.partition.compact(true).await.unwrap();
    let merged = pin(&leader.partition).await;
    let mut arrival = receive(&to.partition, LEADER, &merged).await.unwrap();
    assert_eq!((arrival.have(), files(&to, "files").len()), (vec![0], own));
    assert!(send(&merged, &mut arrival, 5000, usize::MAX).await.unwrap());
    arrival.install().await.unwrap();
    assert_eq!(to.read(&NAMES).await, leader.read(&NAMES).await);
    to.reopen().await;
    assert_eq!(to.read(&NAMES).await, leader.read(&NAMES).await);
}

#[tokio::test]
async fn what_arrived_before_a_restart_is_removed() {
    let leader = leader().await;
    let mut to = Fixture::series(last_row()).await;
    follower(&mut to).await;
    let own = files(&to, "files").len();
    let pinned = pin(&leader.partition).await;
    let mut arrival = receive(&to.partition, LEADER, &pinned).await.unwrap();
    let (_, first) = pinned.files()[0].clone();
    let pieces = usize::try_from(first.div_ceil(1000) + 1).unwrap();
    assert!(!send(&pinned, &mut arrival, 1000, pieces).await.unwrap());
    assert_eq!(files(&to, "files").len(), own + 1);
    drop(arrival);
    to.reopen().await;
    assert_eq!(files(&to, "files").len(), own);
    let arrival = receive(&to.partition, LEADER, &pinned).await.unwrap();
    assert_eq!(arrival.have(), [0, 0, 0]);
}

#[tokio::test]
async fn what_nobody_goes_on_sending_is_removed_after_a_while() {
    let leader = leader().await;
    let to = Fixture::series(last_row()).await;
    let pinned = pin(&leader.partition).await;
    let mut arrival = receive(&to.partition, LEADER, &pinned).await.unwrap();
    assert!(send(&pinned, &mut arrival, 1000, usize::MAX).await.unwrap());
    to.clock.0.store(3_600_000, Ordering::Relaxed);
    to.partition.expire().await.unwrap();
    drop(arrival);
    to.clock.0.store(4_000_000, Ordering::Relaxed);
    to.partition.expire().await.unwrap();
    assert_eq!(files(&to, "files").len(), 3);
    to.clock.0.store(4_300_000, Ordering::Relaxed);
    to.partition.expire().await.unwrap();
    assert!(files(&to, "files").is_empty());
}

#[tokio::test]
async fn a_piece_that_is_not_what_was_written_is_never_installed() {
    let leader = leader().await;
    let mut to = Fixture::series(last_row()).await;
    follower(&mut to).await;
    let own = files(&to, "files").len();
    let pinned = pin(&leader.partition).await;
    let (_, bytes) = pinned.files()[0].clone();
    let good = pinned.read(0, 0, usize::try_from(bytes).unwrap()).await.unwrap();
    for at in (0..good.len()).step_by(97) {
        let mut bad = good.to_vec();
        bad[at] ^= 0x20;
        let mut arrival = receive(&to.partition, LEADER, &pinned).await.unwrap();
        let (head, tail) = bad.split_at(good.len() / 2);
        arrival.write(0, 0, head).await.unwrap();
        let error = arrival.write(0, head.len() as u64, tail).await.unwrap_err();
        assert!(matches!(error, EngineError::Corrupted(_)), "{error:?}");
        assert_eq!(arrival.have()[0], 0, "it has to be sent again");
        let again = arrival.write(0, 0, &good).await;
        assert!(matches!(again, Err(EngineError::InvalidInput(_))), "not in this transfer");
        let installed = arrival.install().await;
        assert!(matches!(installed, Err(EngineError::InvalidInput(_))), "{installed:?}");
    }
    assert_eq!(files(&to, "files").len(), own);
    assert_eq!(to.read(&NAMES).await, old_rows());
    transfer(&leader.partition, &to.partition, 4096).await.unwrap();
    assert_eq!(to.read(&NAMES).await, rows(0..35));
}

#[tokio::test]
async fn pieces_that_are_not_the_next_ones_and_states_that_do_not_fit_are_refused() {
    let leader = leader().await;
    let to = Fixture::series(last_row()).await;
    let pinned = pin(&leader.partition).await;
    let mut arrival = receive(&to.partition, LEADER, &pinned).await.unwrap();
    let (_, bytes) = pinned.files()[0].clone();
    let whole = pinned.read(0, 0, usize::try_from(bytes).unwrap()).await.unwrap();
    arrival.write(0, 0, &whole[..100]).await.unwrap();
    for (file, offset, data) in
        [(0, 99, &whole[..1]), (0, 101, &whole[..1]), (0, 100, &whole[..]), (7, 0, &whole[..1])]
    {
        let refused = arrival.write(file, offset, data).await;
        assert!(matches!(refused, Err(EngineError::InvalidInput(_))), "{refused:?}");
    }
    arrival.write(0, 100, &whole[100..]).await.unwrap();
    let state = pinned.state();
    for at in (0..state.len()).step_by(13) {
        let mut bad = state.to_vec();
        bad[at] ^= 1;
        let refused = to.partition.receive(LEADER, &bad, &pinned.files()).await;
        assert!(matches!(refused, Err(EngineError::Corrupted(_))), "byte {at}");
    }
    let mut renamed = pinned.files();
    renamed[0].0.push('x');
    let refused = to.partition.receive(LEADER, &state, &renamed).await;
    assert!(matches!(refused, Err(EngineError::InvalidInput(_))), "other files");
    let other = PartitionConfig {
        partition: PartitionId(8),
        ..config(series_schema(last_row()), Placement::Range)
    };
    let other = Fixture::new(other).await;
    let refused = receive(&other.partition, LEADER, &pinned).await;
    assert!(matches!(refused, Err(EngineError::InvalidInput(_))), "another partition");
    assert!(to.partition.pin().await.unwrap().is_none(), "nothing is durable");
}

#[tokio::test]
async fn a_state_does_not_go_back_behind_what_was_applied() {
    let leader = leader().await;
    let mut to = Fixture::series(last_row()).await;
    for number in 0..4 {
        to.put(&NAMES, &[vec![text("own"), ts(number), int(number)]]);
    }
    let refused = transfer(&leader.partition, &to.partition, 1000).await;
    assert!(matches!(refused, Err(EngineError::InvalidInput(_))), "{refused:?}");
    assert_eq!(to.read(&NAMES).await.len(), 4);
    assert!(files(&to, "files").is_empty());
}

#[tokio::test]
async fn damaged_files_are_not_sent() {
    let leader = leader().await;
    let file = files(&leader, "files").swap_remove(0);
    let good = fs::read(&file).unwrap();
    for at in (0..good.len()).step_by(31).chain([good.len() - 1]) {
        let mut bad = good.clone();
        bad[at] ^= 0x08;
        fs::write(&file, &bad).unwrap();
        let pinned = pin(&leader.partition).await;
        let mut failed = false;
        for offset in (0..good.len()).step_by(1000) {
            let bytes = 1000.min(good.len() - offset);
            match pinned.read(0, offset as u64, bytes).await {
                Ok(data) => assert_eq!(data, good[offset..offset + bytes]),
                Err(EngineError::Corrupted(_)) => failed = true,
                Err(error) => panic!("{error:?}"),
            }
        }
        assert!(failed, "byte {at}");
    }
}

#[tokio::test]
async fn a_crash_at_any_step_of_a_transfer_leaves_the_old_state_or_the_new_one() {
    let leader = leader().await;
    let mut completed = false;
    for budget in 0.. {
        let (mut to, store): (Fixture, Arc<FailingStore>) = failing().await;
        follower(&mut to).await;
        store.budget.store(budget, Ordering::Relaxed);
        let installed = transfer(&leader.partition, &to.partition, 3000).await;
        to.reopen().await;
        let found = to.read(&NAMES).await;
        match to.partition.durable_mark().unwrap() {
            (2, _) => assert_eq!(found, old_rows()[..2]),
            (3, found_mark) => assert_eq!((found, found_mark), (rows(0..35), mark(3))),
            (other, _) => panic!("durable index {other}"),
        }
        let (index, _) = to.partition.durable_mark().unwrap();
        assert!(installed.is_err() || index == 3, "what an installation has answered is durable");
        let named = to.partition.version().files.len();
        assert_eq!(files(&to, "files").len(), named, "no orphans after open");
        to.partition.verify().await.unwrap();
        // Whatever came of it, it can be done again.
        if index == 2 {
            transfer(&leader.partition, &to.partition, 3000).await.unwrap();
        }
        assert_eq!(to.read(&NAMES).await, rows(0..35));
        // Old files that cannot be removed do not make an installation fail.
        if installed.is_ok() && budget > 20 {
            completed = true;
            break;
        }
    }
    assert!(completed);
}

#[tokio::test]
async fn a_full_disk_fails_the_transfer_and_changes_nothing() {
    let leader = leader().await;
    for budget in 0..4 {
        let (mut to, store) = failing().await;
        follower(&mut to).await;
        store.full.store(true, Ordering::Relaxed);
        store.budget.store(budget, Ordering::Relaxed);
        let failed = transfer(&leader.partition, &to.partition, 3000).await;
        assert!(matches!(failed, Err(EngineError::DiskFull(_))), "{failed:?}");
        assert_eq!(to.read(&NAMES).await, old_rows());
        store.budget.store(usize::MAX, Ordering::Relaxed);
        transfer(&leader.partition, &to.partition, 3000).await.unwrap();
        assert_eq!(to.read(&NAMES).await, rows(0..35));
        to.reopen().await;
        assert_eq!(to.read(&NAMES).await, rows(0..35));
        assert_eq!(files(&to, "files").len(), 3);
    }
}

/// An installation may come at any moment of a flush or a compaction; nothing of the old state comes
/// back, now or after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_installation_during_a_flush_or_a_compaction_replaces_everything() {
    let leader = leader().await;
    let pinned = pin(&leader.partition).await;
    for pause in 0..40 {
        let mut to = Fixture::series(last_row()).await;
        follower(&mut to).await;
        // One more entry than the leader's mark would be more than it may replace.
        to.partition.seal(|| Bytes::from_static(b"old"));
        let mut arrival = receive(&to.partition, LEADER, &pinned).await.unwrap();
        assert!(send(&pinned, &mut arrival, 5000, usize::MAX).await.unwrap());
        let partition = Arc::clone(&to.partition);
        let maintain = tokio::spawn(async move {
            let flushed = partition.flush().await?;
            partition.compact(true).await?;
            partition.expire().await?;
            Ok::<_, EngineError>(flushed)
        });
        tokio::time::sleep(std::time::Duration::from_micros(300 * pause)).await;
        arrival.install().await.unwrap();
        assert_eq!(to.read(&NAMES).await, rows(0..35), "after {pause} pauses");
        maintain.await.unwrap().unwrap();
        assert_eq!(to.read(&NAMES).await, rows(0..35));
        assert_eq!(to.partition.durable_mark(), Some((3, mark(3))));
        assert_eq!(to.partition.state(), Bytes::from("state 3"));
        assert!(!to.flush().await.unwrap(), "nothing is left to be flushed");
        to.partition.compact(true).await.unwrap();
        let named = to.partition.version().files.len();
        assert_eq!(files(&to, "files").len(), named, "nothing is left of the old state");
        to.reopen().await;
        assert_eq!(to.read(&NAMES).await, rows(0..35));
        assert_eq!(to.partition.durable_mark(), Some((3, mark(3))));
    }
}

#[tokio::test]
async fn rows_of_a_moment_are_read_later_and_a_state_takes_effect_with_that_of_its_owner() {
    let leader = leader().await;
    let mut to = Fixture::series(last_row()).await;
    follower(&mut to).await;
    let source = to.partition.pinned_scan();
    assert_eq!(source.applied(), to.partition.applied());
    let pinned = pin(&leader.partition).await;
    let mut arrival = receive(&to.partition, LEADER, &pinned).await.unwrap();
    assert!(send(&pinned, &mut arrival, 100, usize::MAX).await.unwrap());
    let mut seen = None;
    let installed = arrival.install_with(|switch| {
        let rows = to.partition.stats().memtable_rows;
        switch.take_effect()?;
        seen = Some((rows, to.partition.stats().memtable_rows));
        Ok(())
    });
    installed.await.unwrap();
    assert_eq!(seen, Some((1, 0)));
    assert_eq!(to.read(&NAMES).await, rows(0..35));
    let mut found = Vec::new();
    for stream in source.scan(to.scan(&NAMES, &[])).unwrap().streams {
        let batches: Vec<RecordBatch> = stream.try_collect().await.unwrap();
        found.extend(batches.iter().flat_map(rows_of));
    }
    found.sort();
    assert_eq!(found, old_rows());
}

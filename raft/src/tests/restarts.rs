//! Restarts, clean and not: acknowledged commands are there afterwards, and reads wait until they are.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::calm::{ensure, undisturbed};
use super::cluster::PATIENCE;
use super::groups::{GROUP, REPLICA, alone, create, options, simulated};
use super::recorder::Recorder;
use crate::log::simulated::SimulatedDisk;
use crate::transport::Nowhere;
use crate::{Group, GroupId, Host, HostOptions, RaftError, Start};

async fn restart(host: &Host, machine: &Recorder) -> (Arc<Recorder>, Arc<Group>) {
    let machine = machine.restarted();
    let group =
        host.start_group(GROUP, REPLICA, Arc::clone(&machine) as _, Start::Restart).await.unwrap();
    (machine, group)
}

fn row(number: usize) -> Bytes {
    Bytes::from(format!("row {number}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_restart_applies_what_was_not_flushed_and_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::open(options(dir.path())).await.unwrap();
    let machine = Recorder::new();
    let group = create(&host, &machine).await;
    for number in 0..50 {
        group.propose(row(number)).await.unwrap();
        if number == 30 {
            machine.flush();
            group.flushed().await.unwrap();
        }
    }
    let term = group.status().term;
    host.shutdown().await.unwrap();

    let host = Host::open(options(dir.path())).await.unwrap();
    let (machine, group) = restart(&host, &machine).await;
    group.read_barrier().await.unwrap();
    assert_eq!(machine.rows(), (0..50).map(row).collect::<Vec<_>>());
    assert!(group.status().term > term, "it leads by a new election");
    group.propose(row(50)).await.unwrap();
    host.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_of_one_leads_within_moments_of_a_restart() {
    undisturbed(async |_| {
        let disk = SimulatedDisk::default();
        let host = simulated(&disk).await.unwrap();
        let machine = Recorder::new();
        create(&host, &machine).await;
        host.shutdown().await.unwrap();
        let host = simulated(&disk.copy()).await.unwrap();
        let begun = Instant::now();
        let (_, group) = restart(&host, &machine).await;
        let took = begun.elapsed();
        assert!(group.status().is_leader);
        host.shutdown().await.unwrap();
        // Far below an election timeout, however slow the machine that runs the tests.
        ensure(took < Duration::from_millis(800), || format!("it led after {took:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bounced_leader_serves_no_read_before_it_has_caught_up() {
    let mut disk = SimulatedDisk::default();
    let mut machine = Recorder::new();
    let mut acknowledged = 0;
    for round in 0..12 {
        let host = simulated(&disk).await.unwrap();
        let group = if round == 0 {
            create(&host, &machine).await
        } else {
            let (restarted, group) = restart(&host, &machine).await;
            machine = restarted;
            group
        };
        // The first thing after the bounce is a read.
        group.read_barrier().await.unwrap();
        for number in 0..acknowledged {
            assert!(
                machine.contains(&row(number)),
                "row {number} of {acknowledged} is missing in round {round}"
            );
        }
        let writers: Vec<_> = (acknowledged..acknowledged + 40)
            .map(|number| {
                let group = Arc::clone(&group);
                tokio::spawn(async move { group.propose(row(number)).await })
            })
            .collect();
        if round % 3 == 1 {
            machine.flush();
            group.flushed().await.unwrap();
        }
        for writer in writers {
            writer.await.unwrap().unwrap();
        }
        acknowledged += 40;
        // The process is gone at once; what it had written but not synced is not counted on.
        disk.cut();
        disk = disk.survivor(|| false);
        drop(group);
        host.shutdown().await.ok();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_under_load_loses_nothing_that_was_acknowledged() {
    for operations in [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89] {
        let disk = SimulatedDisk::default();
        let host = simulated(&disk).await.unwrap();
        let machine = Recorder::new();
        let group = create(&host, &machine).await;
        disk.cut_after(operations);
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let group = Arc::clone(&group);
                tokio::spawn(async move {
                    let mut kept = Vec::new();
                    for number in 0..200 {
                        let row = row(writer * 1000 + number);
                        match group.propose(row.clone()).await {
                            Ok(_) => kept.push(row),
                            Err(error) => {
                                assert!(matches!(error, RaftError::Stopped { .. }), "{error}");
                                break;
                            }
                        }
                    }
                    kept
                })
            })
            .collect();
        let mut acknowledged = Vec::new();
        for writer in writers {
            acknowledged.extend(writer.await.unwrap());
        }
        host.shutdown().await.ok();
        let mut coin = operations;
        let survivor = disk.survivor(|| {
            coin = coin.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            coin >> 63 == 1
        });
        let host = simulated(&survivor).await.unwrap();
        let (machine, group) = restart(&host, &machine).await;
        group.read_barrier().await.unwrap();
        for row in &acknowledged {
            assert!(
                machine.contains(row),
                "{row:?} is lost with a cut after {operations} operations"
            );
        }
        host.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_creation_that_was_cut_short_can_be_done_again() {
    for operations in 0..12 {
        let disk = SimulatedDisk::default();
        let host = simulated(&disk).await.unwrap();
        disk.cut_after(operations);
        let result = host.start_group(GROUP, REPLICA, Recorder::new(), alone(REPLICA)).await;
        let begun = result.is_ok();
        disk.cut();
        host.shutdown().await.ok();
        let host = simulated(&disk.survivor(|| false)).await.unwrap();
        let machine = Recorder::new();
        let start = if host.known_groups().is_empty() {
            assert!(!begun, "a group that was created is known");
            alone(REPLICA)
        } else {
            Start::Restart
        };
        let group =
            host.start_group(GROUP, REPLICA, Arc::clone(&machine) as _, start).await.unwrap();
        group.propose(row(1)).await.unwrap();
        assert_eq!(machine.rows(), [row(1)]);
        host.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_do_not_fit_the_log_are_refused() {
    let disk = SimulatedDisk::default();
    let host = simulated(&disk).await.unwrap();
    let machine = Recorder::new();
    let group = create(&host, &machine).await;
    for number in 0..20 {
        group.propose(row(number)).await.unwrap();
    }
    let early = machine.restarted();
    machine.flush();
    group.flushed().await.unwrap();
    host.shutdown().await.unwrap();

    // The replica's files are gone, but the log was given up in trust of them.
    let host = simulated(&disk.copy()).await.unwrap();
    let error = host.start_group(GROUP, REPLICA, early, Start::Restart).await.err().unwrap();
    assert!(matches!(error, RaftError::Corrupted(_)), "{error}");
    let error = host
        .start_group(GROUP, crate::ReplicaId(9), machine.restarted(), Start::Restart)
        .await
        .err()
        .unwrap();
    assert!(error.to_string().contains("as replica 70, not as replica 9"), "{error}");
    restart(&host, &machine).await;
    host.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_proposals_until_space_returns() {
    let disk = SimulatedDisk::default();
    let options = HostOptions { segment_bytes: 64 << 10, ..options(Path::new("/simulated")) };
    let host = Host::open_on(Arc::new(disk.clone()), &options, Arc::new(Nowhere)).await.unwrap();
    let machine = Recorder::new();
    let group = create(&host, &machine).await;
    disk.set_space(Some(disk.used() + (128 << 10)));
    let mut written = Vec::new();
    let error = loop {
        let row = Bytes::from(vec![u8::try_from(written.len() % 251).unwrap(); 4000]);
        match group.propose(row.clone()).await {
            Ok(_) => written.push(row),
            Err(error) => break error,
        }
        assert!(written.len() < 200, "never refused");
    };
    assert!(matches!(error, RaftError::DiskFull(_)), "{error}");
    assert!(group.status().is_leader, "the group is not stopped by it");
    group.read_barrier().await.unwrap();
    disk.set_space(None);
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = group.propose(row(1)).await {
        assert!(matches!(error, RaftError::DiskFull(_)), "{error}");
        assert!(Instant::now() < deadline, "still refused");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    written.push(row(1));
    assert_eq!(machine.rows(), written);
    host.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushing_on_pressure_keeps_the_log_within_bounds() {
    let disk = SimulatedDisk::default();
    let options = HostOptions {
        segment_bytes: 64 << 10,
        log_budget_bytes: 256 << 10,
        ..options(Path::new("/simulated"))
    };
    let host = Host::open_on(Arc::new(disk.clone()), &options, Arc::new(Nowhere)).await.unwrap();
    let machine = Recorder::new();
    let group = create(&host, &machine).await;
    let mut pressure = host.pressure();
    let flusher = tokio::spawn({
        let (machine, group) = (Arc::clone(&machine), Arc::clone(&group));
        async move {
            while pressure.changed().await.is_ok() {
                if pressure.borrow_and_update().contains(&GROUP) {
                    machine.flush();
                    group.flushed().await.unwrap();
                }
            }
        }
    });
    for number in 0..1000_usize {
        let row = Bytes::from(vec![u8::try_from(number % 251).unwrap(); 2000]);
        while let Err(error) = group.propose(row.clone()).await {
            assert!(error.is_retryable(), "{error}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(host.log_stats().bytes <= 2 * (256 << 10), "{:?}", host.log_stats());
    }
    flusher.abort();
    host.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_of_an_older_copy_does_not_start_and_holds_nobody_else_up() {
    const OTHER: GroupId = GroupId(99);
    let options = HostOptions {
        segment_bytes: 64 << 10,
        log_budget_bytes: 256 << 10,
        ..options(Path::new("/simulated"))
    };
    let disk = SimulatedDisk::default();
    let open =
        async || Host::open_on(Arc::new(disk.clone()), &options, Arc::new(Nowhere)).await.unwrap();
    let host = open().await;
    let machine = Recorder::new();
    create(&host, &machine).await.propose(row(1)).await.unwrap();
    host.shutdown().await.unwrap();

    let host = open().await;
    host.distrust(&BTreeSet::from([GROUP]));
    let known = machine.restarted();
    let refused = host.start_group(GROUP, REPLICA, known as _, Start::Restart).await.err().unwrap();
    assert!(
        matches!(&refused, RaftError::Corrupted(why) if why.contains("older copy")),
        "{refused}"
    );
    assert_eq!(host.known_groups(), [(GROUP, REPLICA)], "it is there to be asked for");
    // What it has in the log cannot be flushed, and the others go on all the same.
    let machine = Recorder::new();
    let members = Start::Create { members: [(REPLICA, host.node())].into() };
    let other = host.start_group(OTHER, REPLICA, Arc::clone(&machine) as _, members).await.unwrap();
    for _ in 0..1000 {
        let row = Bytes::from(vec![7; 2000]);
        while let Err(error) = other.propose(row.clone()).await {
            assert!(error.is_retryable(), "{error}");
            machine.flush();
            other.flushed().await.unwrap();
        }
        if host.pressure().borrow().contains(&OTHER) {
            machine.flush();
            other.flushed().await.unwrap();
        }
        assert!(host.log_stats().bytes <= 3 * (256 << 10), "{:?}", host.log_stats());
    }
    host.destroy_group(GROUP).await.unwrap();
    assert_eq!(host.known_groups(), [(OTHER, REPLICA)]);
    create(&host, &Recorder::new()).await;
    host.shutdown().await.unwrap();
}

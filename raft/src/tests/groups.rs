//! One node, groups of one member: writes, flushes, many writers, destroying, failing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::cluster::PATIENCE;
use super::recorder::Recorder;
use crate::log::simulated::SimulatedDisk;
use crate::settings::HEARTBEAT_MS;
use crate::transport::Nowhere;
use crate::{Group, GroupId, Host, HostOptions, NodeId, OnFailure, RaftError, ReplicaId, Start};

pub(super) const NODE: NodeId = NodeId(1);
pub(super) const GROUP: GroupId = GroupId(7);
pub(super) const REPLICA: ReplicaId = ReplicaId(70);

pub(super) fn options(dir: &Path) -> HostOptions {
    HostOptions {
        log_budget_bytes: 8 << 20,
        cache_bytes: 1 << 20,
        segment_bytes: 1 << 20,
        ..HostOptions::new(dir, NODE)
    }
}

pub(super) fn alone(replica: ReplicaId) -> Start {
    Start::Create { members: BTreeMap::from([(replica, NODE)]) }
}

pub(super) async fn create(host: &Host, machine: &Arc<Recorder>) -> Arc<Group> {
    let machine = Arc::clone(machine);
    host.start_group(GROUP, REPLICA, machine, alone(REPLICA)).await.unwrap()
}

pub(super) async fn simulated(disk: &SimulatedDisk) -> Result<Arc<Host>, RaftError> {
    let options = options(Path::new("/simulated"));
    Host::open_on(Arc::new(disk.clone()), &options, Arc::new(Nowhere)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_of_one_leads_at_once_and_answers_with_the_machines_reply() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::open(options(dir.path())).await.unwrap();
    let machine = Recorder::new();
    let group = create(&host, &machine).await;
    // It has no clock, by which it would come to lead later.
    let status = group.status();
    assert!(status.is_leader, "{status:?}");
    assert_eq!(status.leader, Some((REPLICA, NODE)));
    let applied = group.propose(Bytes::from_static(b"a row")).await.unwrap();
    assert_eq!(applied.reply, format!("{}:5", applied.index));
    group.read_barrier().await.unwrap();
    assert_eq!(machine.rows(), ["a row"]);
    assert_eq!(host.known_groups(), [(GROUP, REPLICA)]);
    host.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_gives_up_the_log_but_for_one_entry() {
    let disk = SimulatedDisk::default();
    let host = simulated(&disk).await.unwrap();
    let machine = Recorder::new();
    let group = create(&host, &machine).await;
    for row in 0..100 {
        group.propose(Bytes::from(format!("row {row}"))).await.unwrap();
    }
    group.flushed().await.unwrap();
    assert_eq!(group.status().purged, None, "nothing is flushed yet");
    machine.flush();
    group.flushed().await.unwrap();
    let status = group.status();
    assert_eq!(status.flushed, status.last_index);
    assert_eq!(status.purged, status.last_index.map(|last| last - 1));
    // And again: the mark moves on.
    group.propose(Bytes::from_static(b"more")).await.unwrap();
    machine.flush();
    group.flushed().await.unwrap();
    let status = group.status();
    assert_eq!(status.purged, status.last_index.map(|last| last - 1));
    host.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_share_syncs() {
    let disk = SimulatedDisk::default();
    let host = simulated(&disk).await.unwrap();
    let machine = Recorder::new();
    let group = create(&host, &machine).await;
    let before = disk.syncs();
    let writers: Vec<_> = (0..64)
        .map(|writer| {
            let group = Arc::clone(&group);
            tokio::spawn(async move {
                for row in 0..50 {
                    group.propose(Bytes::from(format!("{writer}:{row}"))).await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let rows = machine.rows();
    assert_eq!(rows.len(), 64 * 50);
    for writer in 0..64 {
        let prefix = format!("{writer}:");
        let of_writer: Vec<_> =
            rows.iter().filter(|row| row.starts_with(prefix.as_bytes())).collect();
        let expected: Vec<_> = (0..50).map(|row| Bytes::from(format!("{writer}:{row}"))).collect();
        assert!(of_writer.into_iter().eq(&expected), "writer {writer} sees its own order");
    }
    let syncs = disk.syncs() - before;
    assert!(syncs < 64 * 50 / 4, "{syncs} syncs for {} writes", 64 * 50);
    host.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_destroyed_group_is_gone_and_can_be_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::open(options(dir.path())).await.unwrap();
    let machine = Recorder::new();
    let group = create(&host, &machine).await;
    group.propose(Bytes::from_static(b"old")).await.unwrap();
    host.destroy_group(GROUP).await.unwrap();
    assert!(host.known_groups().is_empty());
    let error = group.propose(Bytes::from_static(b"late")).await.unwrap_err();
    assert!(matches!(error, RaftError::Stopped { group: GROUP, .. }), "{error}");

    let machine = Recorder::new();
    let other = ReplicaId(71);
    let group =
        host.start_group(GROUP, other, Arc::clone(&machine) as _, alone(other)).await.unwrap();
    group.propose(Bytes::from_static(b"new")).await.unwrap();
    host.shutdown().await.unwrap();

    let host = Host::open(options(dir.path())).await.unwrap();
    assert_eq!(host.known_groups(), [(GROUP, other)]);
    let machine = machine.restarted();
    let group =
        host.start_group(GROUP, other, Arc::clone(&machine) as _, Start::Restart).await.unwrap();
    group.read_barrier().await.unwrap();
    assert_eq!(machine.rows(), ["new"]);
    host.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_machine_stops_its_group_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::open(options(dir.path())).await.unwrap();
    let (machine, other_machine) = (Recorder::new(), Recorder::new());
    let group = create(&host, &machine).await;
    let (other_id, other_replica) = (GroupId(8), ReplicaId(80));
    let other = host
        .start_group(other_id, other_replica, Arc::clone(&other_machine) as _, alone(other_replica))
        .await
        .unwrap();
    machine.failing.store(true, Ordering::Relaxed);
    let error = group.propose(Bytes::from_static(b"x")).await.unwrap_err();
    assert!(error.to_string().contains("the file system is on fire"), "{error}");
    assert!(!error.is_retryable());
    let error = group.read_barrier().await.unwrap_err();
    assert!(error.to_string().contains("the file system is on fire"), "{error}");
    assert!(group.status().stopped.is_some());
    other.propose(Bytes::from_static(b"y")).await.unwrap();
    host.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_panics_stops_its_group_and_no_process() {
    let dir = tempfile::tempdir().unwrap();
    let (sender, told) = std::sync::mpsc::channel();
    let on_panic = OnFailure::new(move |error| sender.send(error.to_string()).unwrap());
    let host = Host::open(HostOptions { on_panic, ..options(dir.path()) }).await.unwrap();
    let machine = Recorder::new();
    let group = create(&host, &machine).await;
    machine.panicking.store(true, Ordering::Relaxed);
    let error = group.propose(Bytes::from_static(b"x")).await.unwrap_err();
    assert!(error.to_string().contains("the machine panicked"), "{error}");
    assert!(!error.is_retryable());
    assert!(group.status().stopped.unwrap().contains("the machine panicked"));
    host.shutdown().await.unwrap();
    assert!(told.try_recv().is_err(), "its files may be at fault: nobody else is to suffer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_panics_is_told_once_and_leads_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (sender, told) = std::sync::mpsc::channel();
    let on_panic = OnFailure::new(move |error| sender.send(error.to_string()).unwrap());
    let host = Host::open(HostOptions { on_panic, ..options(dir.path()) }).await.unwrap();
    let group = create(&host, &Recorder::new()).await;
    let (other_id, other_replica) = (GroupId(8), ReplicaId(80));
    let other = host
        .start_group(other_id, other_replica, Recorder::new(), alone(other_replica))
        .await
        .unwrap();
    assert_eq!(group.status().stopped, None);
    assert!(group.status().is_leader);
    group.raft().with_raft_state(|_| -> () { panic!("planted") }).await.unwrap_err();
    let deadline = Instant::now() + PATIENCE;
    let first = loop {
        if let Ok(told) = told.try_recv() {
            break told;
        }
        assert!(Instant::now() < deadline, "nobody was told");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(first.contains("panicked"), "{first}");
    let status = group.status();
    assert!(status.stopped.unwrap().contains("panicked"));
    assert!(!status.is_leader, "its last word was that it leads");
    assert!(group.propose(Bytes::from_static(b"x")).await.is_err());
    // Several looks later it was told no second time, and the others go on.
    tokio::time::sleep(Duration::from_millis(4 * HEARTBEAT_MS)).await;
    assert!(told.try_recv().is_err(), "told twice");
    other.propose(Bytes::from_static(b"y")).await.unwrap();
    host.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_sync_ends_everything_and_is_never_tried_again() {
    let disk = SimulatedDisk::default();
    let (sender, failures) = std::sync::mpsc::channel();
    let options = HostOptions {
        on_log_failure: OnFailure::new(move |error| sender.send(error.to_string()).unwrap()),
        ..options(Path::new("/simulated"))
    };
    let host = Host::open_simulated(&disk, &options, Arc::new(Nowhere)).await.unwrap();
    let machine = Recorder::new();
    let group = create(&host, &machine).await;
    group.propose(Bytes::from_static(b"kept")).await.unwrap();
    assert!(host.log_failure().is_none());
    disk.break_syncs();
    let error = group.propose(Bytes::from_static(b"lost")).await.unwrap_err();
    assert!(matches!(error, RaftError::Stopped { .. }), "{error}");
    assert!(error.to_string().contains("the disk is broken"), "{error}");
    // The process is told before anybody is answered.
    let failure = failures.try_recv().unwrap();
    assert!(failure.contains("the disk is broken"), "{failure}");
    assert!(matches!(host.log_failure(), Some(RaftError::Io { .. })));
    let other = ReplicaId(80);
    let error =
        host.start_group(GroupId(8), other, Recorder::new(), alone(other)).await.err().unwrap();
    assert!(error.to_string().contains("the disk is broken"), "{error}");
    assert_eq!(machine.rows(), ["kept"]);
    assert!(failures.try_recv().is_err(), "it was told twice");
    host.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_is_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::open(options(dir.path())).await.unwrap();
    let second = Host::open(options(dir.path())).await.err().unwrap();
    assert!(second.to_string().contains("in use by another process"), "{second}");
    let group = create(&host, &Recorder::new()).await;

    let error =
        group.propose(Bytes::from(vec![0; group.command_bytes_max() + 1])).await.unwrap_err();
    assert!(error.to_string().contains("over the limit"), "{error}");
    group.propose(Bytes::from(vec![0; group.command_bytes_max()])).await.unwrap();

    let refused = async |group, replica, start| {
        host.start_group(group, replica, Recorder::new(), start).await.err().unwrap().to_string()
    };
    assert!(refused(GROUP, REPLICA, alone(REPLICA)).await.contains("runs already"));
    assert!(refused(GroupId(9), REPLICA, Start::Restart).await.contains("not in the log"));
    assert!(
        refused(GroupId(9), ReplicaId(90), alone(REPLICA)).await.contains("not among the members")
    );
    host.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_whose_other_members_are_away_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::open(options(dir.path())).await.unwrap();
    let members = BTreeMap::from([(REPLICA, NODE), (ReplicaId(71), NodeId(2))]);
    let group =
        host.start_group(GROUP, REPLICA, Recorder::new(), Start::Create { members }).await.unwrap();
    let error = group.propose(Bytes::from_static(b"x")).await.unwrap_err();
    assert!(matches!(error, RaftError::NotLeader { leader: None }), "{error}");
    assert!(error.is_retryable());
    host.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_groups_start_write_and_stop() {
    let disk = SimulatedDisk::default();
    let host = simulated(&disk).await.unwrap();
    let tasks: Vec<_> = (1..=300)
        .map(|id| {
            let host = Arc::clone(&host);
            tokio::spawn(async move {
                let replica = ReplicaId(id);
                let machine = Recorder::new();
                let group =
                    host.start_group(GroupId(id), replica, machine, alone(replica)).await.unwrap();
                group.propose(Bytes::from(format!("of {id}"))).await.unwrap();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    // Idle groups of one member sync nothing and write nothing.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let before = disk.syncs();
        tokio::time::sleep(Duration::from_millis(500)).await;
        if disk.syncs() == before {
            break;
        }
        // What they had begun before may still have been under way.
        assert!(Instant::now() < deadline, "it syncs and syncs");
    }
    host.shutdown().await.unwrap();
    let host = simulated(&disk.copy()).await.unwrap();
    assert_eq!(host.known_groups().len(), 300);
    host.shutdown().await.unwrap();
}

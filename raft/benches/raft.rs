//! The log: an entry of a group of one, from its proposal until it is applied.
//!
//! `append CPU` counts CPU, all threads together: checksum, copy, system calls, and the group's own work. `append time`
//! counts what the proposer waits for. Both are done on the disk that the temporary folder lies on, where each append
//! ends with a sync, and, where there is one, in `/dev/shm`, where a sync does nothing: the difference is the device.

use std::cell::RefCell;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use criterion::Criterion;
use criterion::measurement::Measurement;
use parking_lot::Mutex;
use partita_bench::sample::{BATCH_ROWS, HOSTS, Sample};
use partita_bench::{cpu, stage, wall};
use partita_proto::wire::ipc;
use partita_raft::{
    Committed, Group, GroupId, Host, HostOptions, Machine, MachineError, Mark, NodeId, ReplicaId,
    Start,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A file system in memory.
const MEMORY: &str = "/dev/shm";
/// The log is kept this small, so that it has room in the memory of a container, too.
const LOG_BYTES: u64 = 32 << 20;
/// A quarter of it is the longest entry: enough for a batch.
const SEGMENT_BYTES: u64 = 8 << 20;
/// Appends between two purges of the log: some 9 MB of batches.
const PURGE_EVERY: u64 = 8;
/// Proposals in flight at the same time, as from one connection with several batches in flight.
const TOGETHER: usize = 4;
/// Maximum time until a group of one leads.
const ELECTION: Duration = Duration::from_secs(10);

/// A machine that keeps only its mark, and reports it as durable.
#[derive(Default)]
struct Nothing {
    last: Mutex<Option<Mark>>,
}

#[async_trait]
impl Machine for Nothing {
    fn durable_mark(&self) -> Option<Mark> {
        self.last.lock().clone()
    }

    async fn apply(&self, entries: Vec<Committed>) -> Result<Vec<Bytes>, MachineError> {
        *self.last.lock() = entries.last().map(|entry| entry.mark.clone());
        let commands = entries.iter().filter(|entry| entry.payload.is_some());
        Ok(commands.map(|_| Bytes::new()).collect())
    }
}

/// A log in a folder of its own, with one group.
struct Log {
    runtime: Runtime,
    host: Arc<Host>,
    group: Arc<Group>,
    appended: u64,
    _folder: TempDir,
}

impl Log {
    fn open(parent: &Path) -> Self {
        let folder = tempfile::tempdir_in(parent).expect("a temporary folder");
        let runtime = Runtime::new().expect("a runtime");
        let (host, group) = runtime.block_on(async {
            let options = HostOptions {
                log_budget_bytes: LOG_BYTES,
                segment_bytes: SEGMENT_BYTES,
                ..HostOptions::new(folder.path(), NodeId(1))
            };
            let host = Host::open(options).await.expect("an empty log");
            let members = [(ReplicaId(1), NodeId(1))].into();
            let start = Start::Create { members };
            let machine = Arc::new(Nothing::default());
            host.start_group(GroupId(1), ReplicaId(1), machine, start).await.expect("a new group");
            let group = host.group(GroupId(1)).expect("it was started");
            let leads = async {
                while !group.status().is_leader {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(ELECTION, leads).await.expect("a group of one leads itself");
            (host, group)
        });
        Self { runtime, host, group, appended: 0, _folder: folder }
    }

    /// Purges the log after every [`PURGE_EVERY`] appends. Not measured: a partition purges after a flush.
    fn make_room(&mut self) {
        if self.appended >= PURGE_EVERY {
            self.runtime.block_on(self.group.flushed()).expect("the log can be purged");
            self.appended = 0;
        }
    }

    /// Appends payloads side by side.
    fn append(&mut self, payloads: Vec<Bytes>) {
        self.appended += payloads.len() as u64;
        self.runtime.block_on(async {
            let proposed = payloads.into_iter().map(|payload| self.group.propose(payload));
            for applied in futures::future::join_all(proposed).await {
                black_box(applied.expect("the log takes it"));
            }
        });
    }

    fn close(self) {
        self.runtime.block_on(self.host.shutdown()).expect("the log ends in order");
    }
}

fn main() {
    let mut criterion = cpu();
    append(&mut criterion, "append CPU");
    criterion.final_summary();
    let mut criterion = wall();
    append(&mut criterion, "append time");
    criterion.final_summary();
}

fn append<M: Measurement + 'static>(criterion: &mut Criterion<M>, group: &str) {
    let batch = Sample::new(HOSTS).batch();
    let large = ipc::encode(std::slice::from_ref(&batch)).expect("types of tables");
    let small = ipc::encode(&[batch.slice(0, 1)]).expect("types of tables");
    let disk = std::env::temp_dir();
    let folders = [("synced", disk.as_path()), ("not synced", Path::new(MEMORY))];
    for (sync, folder) in folders.into_iter().filter(|(_, folder)| folder.is_dir()) {
        let log = RefCell::new(Log::open(folder));
        for (size, payload, rows) in [("batch", &large, BATCH_ROWS), ("row", &small, 1)] {
            let payloads = || {
                log.borrow_mut().make_room();
                vec![payload.clone(); TOGETHER]
            };
            let name = format!("{size}, {sync}");
            stage(criterion, (group, &name), rows * TOGETHER, payloads, |payloads| {
                log.borrow_mut().append(payloads);
            });
        }
        log.into_inner().close();
    }
}

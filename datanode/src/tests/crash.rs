//! Crashes of a node at every step of a split or a merge: afterwards there are one or two partitions, with all rows. Disks
//! that are slow.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::path::Path as Place;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use partita_proto::reshape::{Absorb, Freeze, Reshape, Split};
use partita_raft::SimulatedDisk;
use partita_raft::transport::memory::MemoryNetwork;
use tokio::sync::RwLock;

use super::table::bound;
use super::*;
use crate::files::{Files, Found, LocalFiles};

const CHILD: PartitionId = PartitionId(8);
/// Errors of the operating system: ENOSPC and EMFILE.
const NO_SPACE: i32 = 28;
const TOO_MANY_FILES: i32 = 24;

/// Files whose store fails after a number of changes.
struct FailingFiles {
    inner: LocalFiles,
    budget: Arc<AtomicUsize>,
    copies: Arc<RwLock<()>>,
    writes: Arc<RwLock<()>>,
    refusal: Arc<AtomicI32>,
}

#[derive(Debug)]
struct FailingStore {
    inner: Arc<dyn ObjectStore>,
    budget: Arc<AtomicUsize>,
    /// No file gets a second name while this is locked for writing.
    copies: Arc<RwLock<()>>,
    /// No file is written while this is locked for writing.
    writes: Arc<RwLock<()>>,
    /// Error of the operating system with which no file gets a second name; 0: none.
    refusal: Arc<AtomicI32>,
}

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::NotFound { .. })
}

fn spend(budget: &AtomicUsize) -> object_store::Result<()> {
    let less = |left: usize| if left == usize::MAX { Some(left) } else { left.checked_sub(1) };
    if budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
        return Ok(());
    }
    let source = Box::new(std::io::Error::other("cut off"));
    Err(object_store::Error::Generic { store: "failing", source })
}

impl Files for FailingFiles {
    fn store(&self) -> Arc<dyn ObjectStore> {
        Arc::new(FailingStore {
            inner: self.inner.store(),
            budget: Arc::clone(&self.budget),
            copies: Arc::clone(&self.copies),
            writes: Arc::clone(&self.writes),
            refusal: Arc::clone(&self.refusal),
        })
    }

    fn partitions(&self) -> Result<Found, Error> {
        self.inner.partitions()
    }

    fn begin_removal(&self, partition: PartitionId) -> Result<(), Error> {
        spend(&self.budget).map_err(|error| Error::Unavailable(error.to_string()))?;
        self.inner.begin_removal(partition)
    }

    fn remove(&self, partition: PartitionId) -> Result<(), Error> {
        spend(&self.budget).map_err(|error| Error::Unavailable(error.to_string()))?;
        self.inner.remove(partition)
    }

    fn discard(&self, partition: PartitionId, now_ms: i64) -> Result<(), Error> {
        spend(&self.budget).map_err(|error| Error::Unavailable(error.to_string()))?;
        self.inner.discard(partition, now_ms)
    }

    fn put_aside(&self, partition: PartitionId) -> Result<String, Error> {
        self.inner.put_aside(partition)
    }

    fn followed(&self) -> Result<Option<String>, Error> {
        self.inner.followed()
    }

    fn keep_followed(&self, text: &str) -> Result<(), Error> {
        spend(&self.budget).map_err(|error| Error::Unavailable(error.to_string()))?;
        self.inner.keep_followed(text)
    }

    fn older(&self) -> Result<Option<String>, Error> {
        self.inner.older()
    }

    fn keep_older(&self, text: &str) -> Result<(), Error> {
        self.inner.keep_older(text)
    }

    fn aside(&self) -> Result<Option<String>, Error> {
        self.inner.aside()
    }

    fn keep_aside(&self, text: &str) -> Result<(), Error> {
        self.inner.keep_aside(text)
    }
}

impl fmt::Display for FailingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failing {}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for FailingStore {
    async fn put_opts(
        &self,
        location: &Place,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        let _allowed = self.writes.read().await;
        spend(&self.budget)?;
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Place,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        let _allowed = self.writes.read().await;
        spend(&self.budget)?;
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(
        &self,
        location: &Place,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(
        &self,
        location: &Place,
        ranges: &[Range<u64>],
    ) -> object_store::Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Place>>,
    ) -> BoxStream<'static, object_store::Result<Place>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Place>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(
        &self,
        prefix: Option<&Place>,
    ) -> object_store::Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(
        &self,
        from: &Place,
        to: &Place,
        options: CopyOptions,
    ) -> object_store::Result<()> {
        let _allowed = self.copies.read().await;
        let refusal = self.refusal.load(Ordering::Relaxed);
        if refusal != 0 {
            let source = Box::new(std::io::Error::from_raw_os_error(refusal));
            return Err(object_store::Error::Generic { store: "failing", source });
        }
        spend(&self.budget)?;
        self.inner.copy_opts(from, to, options).await
    }
}

/// One node over a log that loses its power and files that fail.
struct Fragile {
    dir: tempfile::TempDir,
    disk: SimulatedDisk,
    budget: Arc<AtomicUsize>,
    copies: Arc<RwLock<()>>,
    writes: Arc<RwLock<()>>,
    refusal: Arc<AtomicI32>,
    host: Arc<Host>,
    node: Arc<Datanode>,
}

impl Fragile {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::open(dir, SimulatedDisk::default()).await
    }

    async fn open(dir: tempfile::TempDir, disk: SimulatedDisk) -> Self {
        let network = MemoryNetwork::new(1);
        let options =
            HostOptions { segment_bytes: 256 << 10, ..HostOptions::new("/simulated", NodeId(1)) };
        let host = Host::open_simulated(&disk, &options, network.transport(NodeId(1))).await;
        let host = host.unwrap();
        let budget = Arc::new(AtomicUsize::new(usize::MAX));
        let inner = LocalFiles::open(dir.path()).unwrap();
        let (copies, writes, refusal) = (Arc::default(), Arc::default(), Arc::default());
        let files = FailingFiles {
            inner,
            budget: Arc::clone(&budget),
            copies: Arc::clone(&copies),
            writes: Arc::clone(&writes),
            refusal: Arc::clone(&refusal),
        };
        let options = NodeOptions {
            node: NodeId(1),
            dir: dir.path().to_owned(),
            memtables_bytes_max: 1 << 20,
            engine: EngineOptions::default(),
            put_aside: false,
            older: false,
            accepted: BTreeSet::new(),
            trash_keep: std::time::Duration::from_secs(3600),
            partition_rows_per_s: None,
        };
        let clock = Arc::new(StoppedClock);
        let node =
            Datanode::open_over(options, Arc::clone(&host), clock, Arc::new(files)).await.unwrap();
        Self { dir, disk, budget, copies, writes, refusal, host, node }
    }

    /// Crashes, and starts again from the disks.
    async fn again(self) -> Self {
        let Self { dir, disk, host, node, .. } = self;
        disk.cut();
        node.abandon().await;
        host.shutdown().await.ok();
        drop((node, host));
        Self::open(dir, disk.survivor(|| false)).await
    }

    async fn filled(&self) {
        self.node.open_partition(spec(true)).await.unwrap();
        for part in 0..3_i64 {
            let rows: Vec<_> = (part * 10..part * 10 + 20).map(|id| (id, part)).collect();
            write(&self.node, part.cast_unsigned(), &rows).await.unwrap();
            if part < 2 {
                self.node.flush_partition(PARTITION).await.unwrap();
            }
        }
    }

    fn order() -> Split {
        Split {
            partition: PARTITION,
            epoch: Epoch(1),
            at: bound(25),
            child: CHILD,
            replicas: BTreeMap::from([(NodeId(1), ReplicaId(80))]),
            leader: None,
        }
    }

    async fn split(&self) -> Result<(), Error> {
        self.node.reshape(Reshape::Split(Self::order())).await.map(drop)
    }

    /// Splits the partition, and waits until that is durable.
    async fn split_for_good(&self) -> Result<(), Error> {
        self.split().await?;
        // Nothing is flushed before the cut is recorded, nor after that failed.
        self.node.flush_partition(PARTITION).await
    }

    /// Splits the partition, and freezes the right half.
    async fn frozen(&self) -> Absorb {
        self.filled().await;
        self.split().await.unwrap();
        let freeze = Freeze { partition: CHILD, epoch: Epoch(2), on: true };
        let frozen = loop {
            match self.node.reshape(Reshape::Freeze(freeze.clone())).await {
                Ok(done) => break done.index,
                Err(error) => assert!(error.is_retryable() || is_missing(&error), "{error}"),
            }
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        };
        let (partition, end) = (PARTITION, partita_proto::range::Bound::default());
        Absorb { partition, epoch: Epoch(2), right: CHILD, frozen, end }
    }

    /// Merges the halves if they are not merged yet, and checks the rows.
    async fn check_merged(&self, order: &Absorb) {
        self.node.reshape(Reshape::Absorb(order.clone())).await.unwrap();
        let parts =
            (0..3_i64).flat_map(|part| (part * 10..part * 10 + 20).map(move |id| (id, part)));
        let mut expected: Vec<(i64, i64)> = parts.collect();
        expected.sort_unstable();
        let one = (PARTITION, Epoch(3));
        write_to(&self.node, one, 1, &[(10, 1)]).await.unwrap();
        // It takes more, this once and not again.
        expected.push((99, 99));
        write_to(&self.node, one, 77, &[(99, 99)]).await.unwrap();
        write_to(&self.node, one, 77, &[(99, 99)]).await.unwrap();
        assert_eq!(rows_of(&self.node, one).await.unwrap(), expected);
    }

    /// Splits the partition if it is not split yet, and checks the rows of both halves, and that both accept more.
    async fn check(&self) {
        self.split().await.unwrap();
        let all = async |target| {
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
            loop {
                match rows_of(&self.node, target).await {
                    Ok(rows) => return rows,
                    Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
                }
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
        };
        let (parent, child) = ((PARTITION, Epoch(2)), (CHILD, Epoch(2)));
        let expected = |range: Range<i64>| {
            let parts =
                (0..3_i64).flat_map(|part| (part * 10..part * 10 + 20).map(move |id| (id, part)));
            let mut rows: Vec<(i64, i64)> = parts.filter(|(id, _)| range.contains(id)).collect();
            rows.sort_unstable();
            rows
        };
        assert_eq!(all(parent).await, expected(0..25));
        assert_eq!(all(child).await, expected(25..100));
        // Earlier requests are known in both.
        write_to(&self.node, parent, 1, &[(10, 1)]).await.unwrap();
        write_to(&self.node, child, 1, &[(25, 1)]).await.unwrap();
        assert_eq!(all(parent).await, expected(0..25));
        assert_eq!(all(child).await, expected(25..100));
        assert!(write_to(&self.node, child, 77, &[(99, 99)]).await.unwrap() > 0);
        assert_eq!(all(child).await.last(), Some(&(99, 99)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_fails_at_any_step_of_a_split_leaves_all_rows_to_the_next_start() {
    let mut completed = false;
    for budget in 0..100 {
        let node = Fragile::new().await;
        node.filled().await;
        node.budget.store(budget, Ordering::Relaxed);
        completed = node.split_for_good().await.is_ok();
        let node = node.again().await;
        node.check().await;
        node.again().await.node.abandon().await;
        if completed {
            assert!(budget > 5, "there are steps");
            break;
        }
    }
    assert!(completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_partition_waits_for_a_slow_disk_and_its_newest_rows_are_in_the_trash() {
    let fragile = Fragile::new().await;
    fragile.node.open_partition(spec(true)).await.unwrap();
    write(&fragile.node, 1, &[(1, 1), (2, 2)]).await.unwrap();
    let slow = Arc::clone(&fragile.writes).write_owned().await;
    let node = Arc::clone(&fragile.node);
    let dropped = tokio::spawn(async move { node.drop_partition(PARTITION, ReplicaId(1)).await });
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert!(!dropped.is_finished());
    drop(slow);
    dropped.await.unwrap().unwrap();
    let mut kept = std::fs::read_dir(fragile.dir.path().join("trash")).unwrap();
    let kept = kept.next().unwrap().unwrap().path();
    let files = std::fs::read_dir(kept.join("files")).unwrap().map(|file| file.unwrap().path());
    let with_rows = files.filter(|file| file.extension().is_some_and(|kind| kind == "parquet"));
    assert_eq!(with_rows.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_takes_writes_while_what_was_cut_off_from_it_is_made() {
    let node = Fragile::new().await;
    node.filled().await;
    let held = Arc::clone(&node.copies).write_owned().await;
    node.split().await.unwrap();
    let parent = (PARTITION, Epoch(2));
    // One that it knows passes its log too, and changes no row.
    write_to(&node.node, parent, 1, &[(10, 1)]).await.unwrap();
    assert_eq!(rows_of(&node.node, parent).await.unwrap().len(), 40);
    assert!(is_missing(&rows_of(&node.node, (CHILD, Epoch(2))).await.unwrap_err()));
    drop(held);
    node.check().await;
    let node = node.again().await;
    assert_eq!(node.node.status().await.unwrap().len(), 2);
    node.node.abandon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_made_yet_when_the_node_died_is_waited_for_and_has_all_its_rows() {
    let node = Fragile::new().await;
    node.filled().await;
    let held = Arc::clone(&node.copies).write_owned().await;
    // After this the caller knows that the child exists.
    node.split().await.unwrap();
    // What makes the child ends with an error.
    node.budget.store(0, Ordering::Relaxed);
    drop(held);
    let node = node.again().await;
    node.node.until_led(vec![CHILD, PARTITION]).await.unwrap();
    let child = (CHILD, Epoch(2));
    assert_eq!(rows_of(&node.node, child).await.unwrap().len(), 20);
    node.check().await;
    node.again().await.node.abandon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_no_log_brings_is_missed_and_not_made_anew() {
    let node = Fragile::new().await;
    node.filled().await;
    let node = node.again().await;
    node.node.until_led(vec![PARTITION]).await.unwrap();
    let missed = node.node.until_led(vec![CHILD, PARTITION]).await.unwrap_err();
    assert!(is_missing(&missed), "{missed}");
    assert_eq!(node.node.status().await.unwrap().len(), 1);
    node.node.abandon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_cut_off_and_waits_for_space_keeps_no_partition_from_being_dropped() {
    let node = Fragile::new().await;
    node.filled().await;
    let other = PartitionId(20);
    let others = PartitionSpec { partition: other, ..spec(true) };
    node.node.open_partition(others).await.unwrap();
    node.refusal.store(NO_SPACE, Ordering::Relaxed);
    node.split().await.unwrap();
    let parent = (PARTITION, Epoch(2));
    write_to(&node.node, parent, 1, &[(10, 1)]).await.unwrap();
    // Its own order is to come again; it holds back no others.
    let child = node.node.drop_partition(CHILD, ReplicaId(80)).await.unwrap_err();
    assert!(
        matches!(&child, Error::Unavailable(why) if why.contains("waiting for disk space")),
        "{child}"
    );
    node.node.drop_partition(other, ReplicaId(1)).await.unwrap();
    // What waits goes with its parent.
    node.node.drop_partition(PARTITION, ReplicaId(1)).await.unwrap();
    node.node.drop_partition(CHILD, ReplicaId(80)).await.unwrap();
    assert_eq!(node.node.status().await.unwrap().len(), 0);
    let node = node.again().await;
    assert_eq!(node.node.status().await.unwrap().len(), 0);
    node.node.abandon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waited_for_space_or_files_is_cut_off_when_there_are_some() {
    for refusal in [NO_SPACE, TOO_MANY_FILES] {
        let node = Fragile::new().await;
        node.filled().await;
        node.refusal.store(refusal, Ordering::Relaxed);
        node.split().await.unwrap();
        assert!(is_missing(&rows_of(&node.node, (CHILD, Epoch(2))).await.unwrap_err()));
        node.refusal.store(0, Ordering::Relaxed);
        node.check().await;
        node.again().await.node.abandon().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_of_the_log_at_any_step_of_a_split_leaves_all_rows_to_the_next_start() {
    let mut completed = false;
    for operations in 0..60 {
        let node = Fragile::new().await;
        node.filled().await;
        node.disk.cut_after(operations);
        completed = tokio::time::timeout(std::time::Duration::from_secs(5), node.split_for_good())
            .await
            .is_ok_and(|split| split.is_ok());
        let node = node.again().await;
        node.check().await;
        // And with a start in between that was not needed.
        let node = node.again().await;
        assert_eq!(node.node.status().await.unwrap().len(), 2);
        node.node.abandon().await;
        if completed {
            break;
        }
    }
    assert!(completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_fails_at_any_step_of_a_merge_leaves_all_rows_to_the_next_start() {
    let mut completed = false;
    for budget in 0..100 {
        let node = Fragile::new().await;
        let order = node.frozen().await;
        node.budget.store(budget, Ordering::Relaxed);
        completed = node.node.reshape(Reshape::Absorb(order.clone())).await.is_ok();
        let node = node.again().await;
        node.check_merged(&order).await;
        let replica = ReplicaId(80);
        node.node.drop_partition(CHILD, replica).await.unwrap();
        let node = node.again().await;
        node.check_merged(&order).await;
        node.node.abandon().await;
        if completed {
            assert!(budget > 2, "there are steps");
            break;
        }
    }
    assert!(completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_of_the_log_at_any_step_of_a_merge_leaves_all_rows_to_the_next_start() {
    let mut completed = false;
    for operations in 0..60 {
        let node = Fragile::new().await;
        let order = node.frozen().await;
        node.disk.cut_after(operations);
        let merge = node.node.reshape(Reshape::Absorb(order.clone()));
        completed = tokio::time::timeout(std::time::Duration::from_secs(5), merge)
            .await
            .is_ok_and(|merge| merge.is_ok());
        let node = node.again().await;
        node.check_merged(&order).await;
        node.node.abandon().await;
        if completed {
            break;
        }
    }
    assert!(completed);
}

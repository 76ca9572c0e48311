//! A partition whose store fails, returns wrong bytes or becomes unreachable.

use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    PutMultipartOptions, PutOptions, PutPayload, PutResult,
};

use super::*;

/// A store that fails after a number of changes.
#[derive(Debug)]
pub(super) struct FailingStore {
    inner: LocalStore,
    /// Changes that still succeed.
    pub(super) budget: AtomicUsize,
    /// True if failures report a full disk.
    pub(super) full: AtomicBool,
    /// Only changes of the manifest count and fail.
    only_manifest: AtomicBool,
    /// Reads of ranges of files.
    pub(super) reads: AtomicUsize,
}

impl FailingStore {
    pub(super) fn new(directory: &std::path::Path) -> Arc<Self> {
        Arc::new(Self {
            inner: LocalStore::open(directory).unwrap(),
            budget: AtomicUsize::new(usize::MAX),
            full: AtomicBool::new(false),
            only_manifest: AtomicBool::new(false),
            reads: AtomicUsize::new(0),
        })
    }

    fn spend(&self, location: &Path) -> object_store::Result<()> {
        if self.only_manifest.load(Ordering::Relaxed) && !location.as_ref().contains("manifest") {
            return Ok(());
        }
        let less = |budget: usize| match budget {
            usize::MAX => Some(usize::MAX),
            budget => budget.checked_sub(1),
        };
        if self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
            return Ok(());
        }
        let kind = match self.full.load(Ordering::Relaxed) {
            true => std::io::ErrorKind::StorageFull,
            false => std::io::ErrorKind::Other,
        };
        let source = Box::new(std::io::Error::from(kind));
        Err(object_store::Error::Generic { store: "failing", source })
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
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        self.spend(location)?;
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.spend(location)?;
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(
        &self,
        location: &Path,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(
        &self,
        location: &Path,
        ranges: &[Range<u64>],
    ) -> object_store::Result<Vec<Bytes>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        if self.spend(&Path::from("any")).is_err() {
            let source = Box::new(std::io::Error::other("cut off"));
            let error = object_store::Error::Generic { store: "failing", source };
            return Box::pin(futures::stream::iter([Err(error)]));
        }
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(
        &self,
        from: &Path,
        to: &Path,
        options: CopyOptions,
    ) -> object_store::Result<()> {
        self.spend(to)?;
        self.inner.copy_opts(from, to, options).await
    }
}

pub(super) async fn failing() -> (Fixture, Arc<FailingStore>) {
    let directory = tempfile::tempdir().unwrap();
    let store = FailingStore::new(directory.path());
    let as_store: Arc<dyn ObjectStore> = Arc::<FailingStore>::clone(&store);
    let config = config(series_schema(last_row()), Placement::Range);
    let fixture = Fixture::over(directory, as_store, config, EngineOptions::default()).await;
    (fixture, store)
}

const NAMES: [&str; 3] = ["host", "ts", "a"];

fn rows(numbers: Range<i64>) -> Vec<Row> {
    numbers.map(|n| vec![text("h"), ts(n), int(n)]).collect()
}

pub(super) fn files(fixture: &Fixture, of: &str) -> Vec<PathBuf> {
    let directory = fixture.directory.path().join("partitions/7").join(of);
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[tokio::test]
async fn a_full_disk_fails_the_flush_and_loses_nothing() {
    for only_manifest in [false, true] {
        let (mut fixture, store) = failing().await;
        fixture.put(&NAMES, &rows(0..40));
        store.full.store(true, Ordering::Relaxed);
        store.only_manifest.store(only_manifest, Ordering::Relaxed);
        store.budget.store(0, Ordering::Relaxed);
        for _ in 0..2 {
            let error = fixture.flush().await.unwrap_err();
            assert!(matches!(error, EngineError::DiskFull(_)), "{error:?}");
            assert_eq!(fixture.read(&NAMES).await, rows(0..40));
            assert_eq!(fixture.partition.durable_mark(), None);
        }
        fixture.put(&NAMES, &rows(40..50));
        store.budget.store(usize::MAX, Ordering::Relaxed);
        assert!(fixture.flush().await.unwrap());
        assert_eq!(fixture.partition.durable_mark(), Some((2, mark(2))));
        assert_eq!(files(&fixture, "files").len(), 1, "nothing is left of the failed ones");
        fixture.reopen().await;
        assert_eq!(fixture.read(&NAMES).await, rows(0..50));
    }
}

#[tokio::test]
async fn an_edit_that_may_or_may_not_be_stored_stops_the_partition() {
    let (mut fixture, store) = failing().await;
    fixture.put(&NAMES, &rows(0..40));
    store.only_manifest.store(true, Ordering::Relaxed);
    store.budget.store(0, Ordering::Relaxed);
    let error = fixture.flush().await.unwrap_err();
    assert!(matches!(error, EngineError::Storage(_)), "{error:?}");
    store.budget.store(usize::MAX, Ordering::Relaxed);
    assert!(matches!(fixture.flush().await, Err(EngineError::Stopped(_))));
    let rows = fixture.rows(&NAMES, &rows(0..1));
    assert!(matches!(fixture.apply(&[(WriteKind::Put, rows)]), Err(EngineError::Stopped(_))));
    fixture.reopen().await;
    assert_eq!(fixture.partition.durable_mark(), None);
    assert!(files(&fixture, "files").is_empty(), "orphans are removed at open");
}

#[tokio::test]
async fn a_crash_at_any_step_of_flush_and_compaction_leaves_the_state_before_or_after() {
    let mut completed = false;
    for budget in 0.. {
        let (mut fixture, store) = failing().await;
        for part in 0..3 {
            fixture.put(&NAMES, &rows(part * 10..part * 10 + 15));
            fixture.flush().await.unwrap();
        }
        fixture.put(&NAMES, &rows(45..60));
        store.budget.store(budget, Ordering::Relaxed);
        let flushed = fixture.flush().await.is_ok();
        let compacted = fixture.partition.compact(true).await.is_ok();
        fixture.reopen().await;
        let found = fixture.read(&NAMES).await;
        let before = rows(0..35);
        let after: Vec<Row> = before.iter().cloned().chain(rows(45..60)).collect();
        let (index, _) = fixture.partition.durable_mark().unwrap();
        match index {
            3 => assert_eq!(found, before),
            4 => assert_eq!(found, after),
            other => panic!("durable index {other}"),
        }
        assert!(!flushed || index == 4, "what a flush has answered is durable");
        let named = fixture.partition.version().files.len();
        assert_eq!(files(&fixture, "files").len(), named, "no orphans after open");
        fixture.partition.verify().await.unwrap();
        if flushed && compacted {
            completed = true;
            break;
        }
    }
    assert!(completed);
}

#[tokio::test]
async fn whatever_byte_of_a_file_changes_no_row_of_it_is_served() {
    let mut fixture = Fixture::series(last_row()).await;
    fixture.put(&NAMES, &rows(0..60));
    fixture.flush().await.unwrap();
    let file = files(&fixture, "files").pop().unwrap();
    let good = fs::read(&file).unwrap();
    for at in (0..good.len()).step_by(7).chain([good.len() - 1]) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        fs::write(&file, &bad).unwrap();
        fixture.reopen().await;
        let error = fixture.read_where(&NAMES, &[]).await.unwrap_err();
        let partita_proto::Error::Corrupted(message) = &error else { panic!("{error:?}") };
        assert!(message.contains(".parquet"), "it names the file: {message}");
        let verified = fixture.partition.verify().await;
        assert!(matches!(verified, Err(EngineError::Corrupted(_))), "{verified:?}");
        let compacted = fixture.partition.compact(true).await;
        assert!(matches!(compacted, Ok(false) | Err(EngineError::Corrupted(_))));
    }
    fs::write(&file, &good).unwrap();
    fixture.reopen().await;
    assert_eq!(fixture.read(&NAMES).await, rows(0..60));
}

#[tokio::test]
async fn a_file_that_is_short_or_missing_is_named_at_the_opening_and_the_others_are_served() {
    let mut fixture = Fixture::series(last_row()).await;
    let host = |name: &str, n: i64| vec![text(name), ts(n), int(n)];
    let rows_of = |name: &str| -> Vec<Row> { (0..60).map(|n| host(name, n)).collect() };
    fixture.put(&NAMES, &rows_of("a"));
    fixture.flush().await.unwrap();
    let file = files(&fixture, "files").pop().unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    let good = fs::read(&file).unwrap();
    fixture.put(&NAMES, &rows_of("b"));
    fixture.flush().await.unwrap();
    let of = |host: &str| [("host", Domain::points([text(host)]))];
    for short in [true, false] {
        match short {
            true => fs::write(&file, &good[..good.len() - 1]).unwrap(),
            false => fs::remove_file(&file).unwrap(),
        }
        fixture.reopen().await;
        let damage = fixture.partition.damage();
        assert_eq!(damage.len(), 1);
        assert!(damage[0].contains(name) && damage[0].contains("of partition"), "{damage:?}");
        let refused = Err(partita_proto::Error::Corrupted(damage[0].clone()));
        assert_eq!(fixture.read_where(&NAMES, &[]).await, refused);
        assert_eq!(fixture.read_where(&NAMES, &of("a")).await, refused);
        assert_eq!(fixture.read_where(&NAMES, &of("b")).await.unwrap(), rows_of("b"));
        assert!(matches!(fixture.partition.verify().await, Err(EngineError::Corrupted(_))));
        // Nothing is merged with it, and nothing else is wrong with the partition.
        assert_eq!(fixture.partition.compact(true).await, Ok(false));
    }
    fs::write(&file, &good).unwrap();
    fixture.reopen().await;
    assert_eq!(
        (fixture.partition.damage(), fixture.partition.verify().await),
        (Vec::new(), Ok(()))
    );
}

#[tokio::test]
async fn whatever_byte_of_the_manifest_changes_the_partition_does_not_open() {
    let mut fixture = Fixture::series(last_row()).await;
    for part in 0..3 {
        fixture.put(&NAMES, &rows(part..part + 1));
        fixture.flush().await.unwrap();
    }
    let objects = files(&fixture, "manifest");
    assert_eq!(objects.len(), 4, "a checkpoint and three edits");
    let open = || {
        let clock: Arc<dyn Clock> = Arc::<TestClock>::clone(&fixture.clock);
        Partition::open(Arc::clone(&fixture.store), root(), EngineOptions::default(), clock)
    };
    for object in &objects {
        let good = fs::read(object).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x04;
            fs::write(object, &bad).unwrap();
            assert!(matches!(open().await, Err(EngineError::Corrupted(_))), "byte {at}");
        }
        fs::write(object, &good).unwrap();
    }
    open().await.unwrap();
    fs::remove_file(&objects[2]).unwrap();
    assert!(matches!(open().await, Err(EngineError::Corrupted(_))), "an edit is missing");
}

#[tokio::test]
async fn checkpoints_keep_the_manifest_short() {
    let mut fixture = Fixture::series(last_row()).await;
    for n in 0..150 {
        fixture.put(&NAMES, &rows(n..n + 1));
        fixture.flush().await.unwrap();
        if n % 4 == 3 {
            fixture.partition.compact(false).await.unwrap();
        }
    }
    assert!(files(&fixture, "manifest").len() <= 65);
    fixture.reopen().await;
    assert_eq!(fixture.read(&NAMES).await, rows(0..150));
}

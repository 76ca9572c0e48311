//! The files of a datanode in memory: they survive a crash like files on disk.
//!
//! Invariants:
//! - an acknowledged put survives a crash as a whole; a put in progress survives as a whole or not at all;
//! - an object that was put lazily or copied is lost in a crash unless a later put named it ([`After`]): a real
//!   disk may keep it, and crashes of objects that were put durably cover that case;
//! - after the power is off nothing changes, and nothing is answered.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use partita_datanode::{After, Files, Found, Lazy};
use partita_proto::error::Error as ServiceError;
use partita_proto::id::PartitionId;

/// Suffix of the name of a partition whose removal has begun.
const DROPPED: &str = ".dropped";

#[derive(Clone, Copy, Debug, Default)]
struct State {
    off: bool,
    full: bool,
    /// No file can be opened or created.
    out_of_files: bool,
    pause: Duration,
}

/// The files of one life of a node, over the storage that all its lives share.
#[derive(Clone, Debug)]
pub(crate) struct SimFiles {
    kept: Arc<InMemory>,
    /// Objects that a crash loses.
    lazy: Arc<Mutex<BTreeSet<Path>>>,
    state: Arc<Mutex<State>>,
    /// The catalog history that the node follows, as text.
    followed: Arc<Mutex<Option<String>>>,
    /// The replicas of an older copy, as text.
    older: Arc<Mutex<Option<String>>>,
    /// The replicas that were put aside, as text.
    aside: Arc<Mutex<Option<String>>>,
}

impl SimFiles {
    pub(crate) fn new() -> Self {
        Self {
            kept: Arc::new(InMemory::new()),
            lazy: Arc::default(),
            state: Arc::default(),
            followed: Arc::default(),
            older: Arc::default(),
            aside: Arc::default(),
        }
    }

    /// A copy of all files at this moment.
    pub(crate) fn copy(&self) -> Self {
        Self {
            kept: Arc::new(self.kept.fork()),
            lazy: Arc::default(),
            state: Arc::default(),
            followed: Arc::new(Mutex::new(self.followed.lock().clone())),
            older: Arc::new(Mutex::new(self.older.lock().clone())),
            aside: Arc::new(Mutex::new(self.aside.lock().clone())),
        }
    }

    /// Turns the power off: all further operations fail.
    pub(crate) fn cut(&self) {
        self.state.lock().off = true;
    }

    /// The files that the next life finds: without the objects that the crash loses.
    pub(crate) fn survivor(&self) -> Self {
        let lost: Vec<_> = std::mem::take(&mut *self.lazy.lock()).into_iter().map(Ok).collect();
        let removed = self.kept.delete_stream(futures::stream::iter(lost).boxed());
        // A store in memory answers at once. Some of the objects may have been deleted already.
        let removed = removed.map(drop).collect::<()>().now_or_never();
        assert!(removed.is_some(), "the removal waits");
        Self {
            kept: Arc::clone(&self.kept),
            lazy: Arc::default(),
            state: Arc::default(),
            followed: Arc::new(Mutex::new(self.followed.lock().clone())),
            older: Arc::new(Mutex::new(self.older.lock().clone())),
            aside: Arc::new(Mutex::new(self.aside.lock().clone())),
        }
    }

    /// Damages one Parquet file of a node that is down: it ends half-way, or is gone. `draw` returns a random number
    /// below its argument. Returns the file's path; `None` if there is no file.
    pub(crate) fn damage(&self, mut draw: impl FnMut(u64) -> u64) -> Option<Path> {
        // A store in memory answers at once.
        let listed = self.kept.list(None).try_collect::<Vec<_>>().now_or_never()?.ok()?;
        let mut paths: Vec<Path> = listed.into_iter().map(|object| object.location).collect();
        paths.retain(|path| path.extension() == Some("parquet"));
        paths.sort();
        let count = u64::try_from(paths.len()).ok().filter(|count| *count > 0)?;
        let path = paths.get(usize::try_from(draw(count)).ok()?)?.clone();
        let is_gone = draw(2) == 0;
        let harm = async {
            if is_gone {
                return self.kept.delete(&path).await;
            }
            let whole = self.kept.get(&path).await?.bytes().await?;
            let half = whole.slice(..whole.len() / 2);
            self.kept.put(&path, PutPayload::from(half)).await.map(drop)
        };
        harm.now_or_never()?.ok()?;
        Some(path)
    }

    /// Version of the catalog that the node follows; `None` if it has followed none.
    pub(crate) fn followed_version(&self) -> Option<u64> {
        let followed = self.followed.lock();
        let line = followed.as_deref()?.lines().find_map(|line| line.strip_prefix("version "));
        line?.parse().ok()
    }

    /// Sets whether all opens and creations of files fail for lack of file descriptors.
    pub(crate) fn set_out_of_files(&self, out_of_files: bool) {
        self.state.lock().out_of_files = out_of_files;
    }

    /// Sets whether all puts fail for lack of space.
    pub(crate) fn set_full(&self, full: bool) {
        self.state.lock().full = full;
    }

    /// Sets the delay of every put.
    pub(crate) fn set_pause(&self, pause: Duration) {
        self.state.lock().pause = pause;
    }

    fn check(&self) -> Result<()> {
        if self.state.lock().off { Err(failed("the power is off".into())) } else { Ok(()) }
    }

    fn check_files(&self) -> Result<()> {
        self.check()?;
        match self.state.lock().out_of_files {
            // EMFILE.
            true => Err(failed(std::io::Error::from_raw_os_error(24).into())),
            false => Ok(()),
        }
    }

    fn remove_below(&self, root: &Path) -> std::result::Result<(), ServiceError> {
        let removed = async {
            let listed: Vec<_> = self.kept.list(Some(root)).try_collect().await?;
            let places =
                futures::stream::iter(listed.into_iter().map(|object| Ok(object.location)));
            self.kept.delete_stream(places.boxed()).try_collect::<Vec<_>>().await
        };
        let removed = removed.now_or_never().ok_or_else(|| unavailable("the removal waits"))?;
        removed.map(drop).map_err(unavailable)
    }
}

fn failed(source: Box<dyn std::error::Error + Send + Sync>) -> Error {
    Error::Generic { store: "SimFiles", source }
}

impl fmt::Display for SimFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimFiles")
    }
}

#[async_trait]
impl ObjectStore for SimFiles {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.check_files()?;
        let State { full, pause, .. } = *self.state.lock();
        if full {
            return Err(failed(std::io::Error::from(std::io::ErrorKind::StorageFull).into()));
        }
        tokio::time::sleep(pause).await;
        self.check()?;
        let lazy = options.extensions.get::<Lazy>().is_some();
        let predecessors = options.extensions.get::<After>().cloned();
        let put = self.kept.put_opts(location, payload, options).await?;
        let mut lost = self.lazy.lock();
        // The name may have belonged to an earlier object.
        match lazy {
            true => lost.insert(location.clone()),
            false => lost.remove(location),
        };
        for path in predecessors.into_iter().flat_map(|After(paths)| paths) {
            lost.remove(&path);
        }
        Ok(put)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.check_files()?;
        self.kept.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.check_files()?;
        self.kept.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        match self.check() {
            Ok(()) => self.kept.delete_stream(locations),
            Err(error) => futures::stream::iter([Err(error)]).boxed(),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.kept.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.kept.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, source: &Path, target: &Path, options: CopyOptions) -> Result<()> {
        self.check()?;
        self.kept.copy_opts(source, target, options).await?;
        self.lazy.lock().insert(target.clone());
        Ok(())
    }
}

fn unavailable(why: impl fmt::Display) -> ServiceError {
    ServiceError::Unavailable(why.to_string())
}

impl Files for SimFiles {
    fn store(&self) -> Arc<dyn ObjectStore> {
        Arc::new(self.clone())
    }

    fn partitions(&self) -> std::result::Result<Found, ServiceError> {
        // A store in memory answers at once.
        let listed = self.kept.list_with_delimiter(None).now_or_never();
        let listed = listed.ok_or_else(|| unavailable("the list waits"))?.map_err(unavailable)?;
        let names = || listed.common_prefixes.iter().filter_map(|prefix| prefix.filename());
        let number = |name: &str| name.parse().ok().map(PartitionId);
        Ok(Found {
            here: names().filter_map(number).collect(),
            dropped: names().filter_map(|name| number(name.strip_suffix(DROPPED)?)).collect(),
        })
    }

    fn begin_removal(&self, partition: PartitionId) -> std::result::Result<(), ServiceError> {
        self.check().map_err(unavailable)?;
        let mark = Path::from(format!("{partition}{DROPPED}/mark"));
        let marked = self.kept.put(&mark, PutPayload::new()).now_or_never();
        let _put = marked.ok_or_else(|| unavailable("the mark waits"))?.map_err(unavailable)?;
        self.remove_below(&Path::from(partition.to_string()))
    }

    fn remove(&self, partition: PartitionId) -> std::result::Result<(), ServiceError> {
        self.check().map_err(unavailable)?;
        self.remove_below(&Path::from(partition.to_string()))?;
        self.remove_below(&Path::from(format!("{partition}{DROPPED}")))
    }

    fn put_aside(&self, partition: PartitionId) -> std::result::Result<String, ServiceError> {
        // Nothing looks at files that were put aside here.
        self.remove(partition)?;
        Ok("nowhere".to_owned())
    }

    fn followed(&self) -> std::result::Result<Option<String>, ServiceError> {
        Ok(self.followed.lock().clone())
    }

    fn keep_followed(&self, text: &str) -> std::result::Result<(), ServiceError> {
        self.check().map_err(unavailable)?;
        *self.followed.lock() = Some(text.to_owned());
        Ok(())
    }

    fn older(&self) -> std::result::Result<Option<String>, ServiceError> {
        Ok(self.older.lock().clone())
    }

    fn keep_older(&self, text: &str) -> std::result::Result<(), ServiceError> {
        self.check().map_err(unavailable)?;
        *self.older.lock() = Some(text.to_owned());
        Ok(())
    }

    fn aside(&self) -> std::result::Result<Option<String>, ServiceError> {
        Ok(self.aside.lock().clone())
    }

    fn keep_aside(&self, text: &str) -> std::result::Result<(), ServiceError> {
        self.check().map_err(unavailable)?;
        *self.aside.lock() = Some(text.to_owned());
        Ok(())
    }
}

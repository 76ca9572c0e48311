//! Object store on the local disk whose objects survive a power cut.
//!
//! `object_store`'s own local store never syncs. [`LocalStore`] reads through it and writes by itself. An object is
//! written beside its place under a temporary name, synced, renamed, and its directory synced: when a put has returned,
//! the whole object is durable; before, none of it exists. Temporary files left by a crash are removed when the store
//! is opened.
//!
//! Every sync waits for the disk, so steps that count only together wait once: objects put with [`Lazy`], and all
//! copies, are durable once a put with an [`After`] that names them has returned. Stores that do not know these
//! extensions make everything durable at once.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    UploadPart,
};
use partita_proto::blocking::at_once;
use tokio::task::spawn_blocking;

/// Name of the store in errors.
const NAME: &str = "LocalStore";

/// Extension of a put: the object exists when the put has returned, but a power cut may remove it, or a part of it,
/// until an [`After`] names it. Multipart uploads ignore it.
#[derive(Clone, Copy, Debug)]
pub struct Lazy;

/// Extension of a put: these objects, which were put with [`Lazy`] or copied, are durable before this one exists.
#[derive(Clone, Debug)]
pub struct After(pub Vec<Path>);

/// An object store in a local directory whose puts are durable when they return.
#[derive(Debug)]
pub struct LocalStore {
    inner: LocalFileSystem,
    root: PathBuf,
    next_temporary: AtomicU64,
}

impl LocalStore {
    /// Opens the store in an existing directory, and removes temporary files left by a crash.
    ///
    /// # Errors
    /// When the directory cannot be read or cleaned.
    pub fn open(directory: &FsPath) -> Result<Self> {
        remove_temporary_files(directory).map_err(|error| failed(directory, error))?;
        let inner = LocalFileSystem::new_with_prefix(directory)?;
        // Canonical like the inner store's root, because paths are compared with it.
        let root = fs::canonicalize(directory).map_err(|error| failed(directory, error))?;
        Ok(Self { inner, root, next_temporary: AtomicU64::new(0) })
    }

    /// The path of an object, and its temporary name until it is complete. The inner store's listing leaves out names
    /// of this form.
    fn places(&self, location: &Path) -> Result<(PathBuf, PathBuf)> {
        let place = self.inner.path_to_filesystem(location)?;
        let number = self.next_temporary.fetch_add(1, Ordering::Relaxed);
        let mut name = place.clone().into_os_string();
        name.push(format!("#{number}"));
        Ok((place, name.into()))
    }

    fn filesystem(&self, paths: &[Path]) -> Result<Vec<PathBuf>> {
        paths.iter().map(|path| self.inner.path_to_filesystem(path)).collect()
    }
}

impl fmt::Display for LocalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME}({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for LocalStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        if matches!(options.mode, PutMode::Update(_)) || !options.attributes.is_empty() {
            return Err(Error::NotImplemented {
                operation: "a conditional put, or one with attributes".to_owned(),
                implementer: NAME.to_owned(),
            });
        }
        let (place, temporary) = self.places(location)?;
        let lazy = options.extensions.get::<Lazy>().is_some();
        let prerequisites = match options.extensions.get::<After>() {
            Some(After(paths)) => self.filesystem(paths)?,
            None => Vec::new(),
        };
        let root = self.root.clone();
        let fresh = matches!(options.mode, PutMode::Create);
        let write = move || {
            let staged = Staged::create(place, temporary)?;
            let mut file = &staged.file;
            payload.iter().try_for_each(|part| file.write_all(part))?;
            Ok::<_, io::Error>(staged)
        };
        if lazy {
            // No wait for the disk.
            at_once(|| write()?.rename(fresh)).map_err(put_failed)?;
        } else {
            blocking(move || {
                let staged = write()?;
                settle(&root, &prerequisites)?;
                staged.finish(fresh)
            })
            .await?;
        }
        Ok(PutResult { e_tag: None, version: None })
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        if !options.attributes.is_empty() {
            return Err(Error::NotImplemented {
                operation: "an upload with attributes".to_owned(),
                implementer: NAME.to_owned(),
            });
        }
        let (place, temporary) = self.places(location)?;
        let staged = blocking(move || Staged::create(place, temporary)).await?;
        Ok(Box::new(LocalUpload { staged: Some(Arc::new(staged)), length: 0 }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    /// Gives the same bytes a second name; bytes never change under a name. The copy is not durable until an [`After`]
    /// names it.
    async fn copy_opts(&self, source: &Path, target: &Path, options: CopyOptions) -> Result<()> {
        let source = self.inner.path_to_filesystem(source)?;
        let (place, temporary) = self.places(target)?;
        blocking(move || {
            fs::create_dir_all(parent(&place)?)?;
            let place_now =
                if matches!(options.mode, CopyMode::Create) { &place } else { &temporary };
            match fs::hard_link(&source, place_now) {
                // Not every file system supports hard links, and their number is limited.
                Err(error) if has_no_links(&error) => copy_bytes(&source, place_now)?,
                result => result?,
            }
            if matches!(options.mode, CopyMode::Create) {
                return Ok(());
            }
            fs::rename(&temporary, &place)?;
            // If both names were links to one file already, the temporary name still exists.
            match fs::remove_file(&temporary) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        })
        .await
    }
}

/// A multipart upload; each part is written to its place as it arrives.
#[derive(Debug)]
struct LocalUpload {
    /// `None` once completed or aborted.
    staged: Option<Arc<Staged>>,
    length: u64,
}

#[async_trait]
impl MultipartUpload for LocalUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let staged = self.staged.clone();
        let mut offset = self.length;
        self.length += data.content_length() as u64;
        Box::pin(async move {
            let staged = staged.ok_or_else(ended)?;
            blocking(move || {
                for part in &data {
                    staged.file.write_all_at(part, offset)?;
                    offset += part.len() as u64;
                }
                Ok(())
            })
            .await
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let staged = self.staged.take().ok_or_else(ended)?;
        blocking(move || staged.finish(false)).await?;
        Ok(PutResult { e_tag: None, version: None })
    }

    async fn abort(&mut self) -> Result<()> {
        // The last owner removes the temporary file.
        self.staged.take().map(drop).ok_or_else(ended)
    }
}

/// A file that is being written under a temporary name, which is removed on drop.
#[derive(Debug)]
struct Staged {
    file: File,
    place: PathBuf,
    temporary: PathBuf,
    /// Parents of the directories that were created for the file.
    parents: Vec<PathBuf>,
}

impl Staged {
    fn create(place: PathBuf, temporary: PathBuf) -> io::Result<Self> {
        let mut parents = Vec::new();
        create_directories(parent(&place)?, &mut parents)?;
        let file = File::create(&temporary)?;
        Ok(Self { file, place, temporary, parents })
    }

    /// Makes the file complete and durable under its own name; with `fresh` only if that name does not exist.
    fn finish(&self, fresh: bool) -> io::Result<()> {
        self.file.sync_all()?;
        self.parents.iter().try_for_each(|directory| sync(directory))?;
        self.rename(fresh)?;
        sync(parent(&self.place)?)
    }

    /// Renames the file to its own name; with `fresh` only if that name does not exist.
    fn rename(&self, fresh: bool) -> io::Result<()> {
        // A rename would replace an existing file; the temporary name is removed with `self`.
        match fresh {
            true => fs::hard_link(&self.temporary, &self.place),
            false => fs::rename(&self.temporary, &self.place),
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.temporary)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(file = %self.temporary.display(), %error, "a temporary file stays until the next start");
        }
    }
}

fn parent(path: &FsPath) -> io::Result<&FsPath> {
    path.parent().ok_or_else(|| io::Error::other(format!("{} has no parent", path.display())))
}

/// Syncs a file, or the names in a directory.
fn sync(place: &FsPath) -> io::Result<()> {
    File::open(place)?.sync_all()
}

/// Syncs files that were written or linked without a sync: their bytes, and every name on the path to them below
/// `root`.
fn settle(root: &FsPath, files: &[PathBuf]) -> io::Result<()> {
    let mut directories = BTreeSet::new();
    for file in files {
        sync(file)?;
        let parents = file.ancestors().skip(1).take_while(|directory| directory.starts_with(root));
        directories.extend(parents);
    }
    directories.into_iter().try_for_each(sync)
}

/// Creates a directory and its parents, and adds to `parents` those in which one was created.
fn create_directories(directory: &FsPath, parents: &mut Vec<PathBuf>) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let holder = parent(directory)?;
    create_directories(holder, parents)?;
    match fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        result => result?,
    }
    parents.push(holder.to_owned());
    Ok(())
}

/// True if the error says that a hard link is not possible.
fn has_no_links(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Unsupported
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::CrossesDevices
            | io::ErrorKind::TooManyLinks
    )
}

/// Copies a file to a new name; the bytes are durable, the name is not.
fn copy_bytes(source: &FsPath, target: &FsPath) -> io::Result<()> {
    let mut copy = File::create_new(target)?;
    io::copy(&mut File::open(source)?, &mut copy)?;
    copy.sync_all()
}

/// True for a temporary name of [`LocalStore::places`].
fn is_temporary(name: &str) -> bool {
    name.rsplit_once('#')
        .is_some_and(|(_, end)| !end.is_empty() && end.bytes().all(|byte| byte.is_ascii_digit()))
}

fn remove_temporary_files(directory: &FsPath) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            remove_temporary_files(&path)?;
        } else if entry.file_name().to_str().is_some_and(is_temporary) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Runs file operations on a blocking thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T> {
    let result = spawn_blocking(work)
        .await
        .map_err(|error| Error::Generic { store: NAME, source: Box::new(error) })?;
    result.map_err(put_failed)
}

fn put_failed(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Error::AlreadyExists { path: String::new(), source: Box::new(error) }
        }
        _ => Error::Generic { store: NAME, source: Box::new(error) },
    }
}

fn failed(path: &FsPath, error: io::Error) -> Error {
    let error = io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    Error::Generic { store: NAME, source: Box::new(error) }
}

fn ended() -> Error {
    Error::Generic { store: NAME, source: "the upload has ended".into() }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;
    use object_store::ObjectStoreExt;

    use super::*;

    async fn names(store: &LocalStore) -> Vec<String> {
        let listed: Vec<_> = store.list(None).try_collect().await.unwrap();
        let mut names: Vec<_> = listed.into_iter().map(|meta| meta.location.to_string()).collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn a_put_is_whole_and_replaces_unless_told_to_create() {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::open(dir.path()).unwrap();
        let place = Path::from("a/b/c");
        store.put(&place, "one".into()).await.unwrap();
        store.put(&place, "two".into()).await.unwrap();
        let create = PutOptions::from(PutMode::Create);
        let refused = store.put_opts(&place, "three".into(), create.clone()).await;
        assert!(matches!(refused, Err(Error::AlreadyExists { .. })));
        store.put_opts(&Path::from("a/d"), "four".into(), create).await.unwrap();
        assert_eq!(store.get(&place).await.unwrap().bytes().await.unwrap(), "two");
        assert_eq!(names(&store).await, ["a/b/c", "a/d"]);
        assert_eq!(fs::read_dir(dir.path().join("a")).unwrap().count(), 2, "no temporary is left");
    }

    #[tokio::test]
    async fn an_upload_appears_when_it_completes_and_never_when_it_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::open(dir.path()).unwrap();
        let mut upload = store.put_multipart(&Path::from("x/whole")).await.unwrap();
        upload.put_part("abc".into()).await.unwrap();
        upload.put_part("def".into()).await.unwrap();
        assert!(names(&store).await.is_empty());
        upload.complete().await.unwrap();
        let mut dropped = store.put_multipart(&Path::from("x/dropped")).await.unwrap();
        dropped.put_part("abc".into()).await.unwrap();
        drop(dropped);
        assert_eq!(names(&store).await, ["x/whole"]);
        assert_eq!(
            store.get(&Path::from("x/whole")).await.unwrap().bytes().await.unwrap(),
            "abcdef"
        );
        assert_eq!(fs::read_dir(dir.path().join("x")).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_copy_is_the_same_bytes_and_outlives_what_it_was_made_from() {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::open(dir.path()).unwrap();
        let (from, to) = (Path::from("a/one"), Path::from("b/c/two"));
        store.put(&from, "one".into()).await.unwrap();
        for _ in 0..2 {
            store.copy(&from, &to).await.unwrap();
        }
        let create = CopyOptions::new().with_mode(CopyMode::Create);
        let refused = store.copy_opts(&from, &to, create).await;
        assert!(matches!(refused, Err(Error::AlreadyExists { .. })), "{refused:?}");
        store.delete(&from).await.unwrap();
        assert_eq!(store.get(&to).await.unwrap().bytes().await.unwrap(), "one");
        assert_eq!(fs::read_dir(dir.path().join("b/c")).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn what_is_put_lazily_is_there_at_once_and_is_made_durable_by_the_put_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::open(dir.path()).unwrap();
        let mut lazily = PutOptions::from(PutMode::Create);
        lazily.extensions.insert(Lazy);
        let (written, copied) = (Path::from("a/files/1"), Path::from("b/files/1"));
        store.put_opts(&written, "one".into(), lazily.clone()).await.unwrap();
        let refused = store.put_opts(&written, "two".into(), lazily).await;
        assert!(matches!(refused, Err(Error::AlreadyExists { .. })));
        store.copy(&written, &copied).await.unwrap();
        let after = |paths: &[&Path]| {
            let mut options = PutOptions::default();
            options.extensions.insert(After(paths.iter().map(|&path| path.clone()).collect()));
            options
        };
        let last = Path::from("b/manifest/0");
        store.put_opts(&last, "both".into(), after(&[&written, &copied])).await.unwrap();
        assert_eq!(names(&store).await, ["a/files/1", "b/files/1", "b/manifest/0"]);
        // What is not there cannot be made durable, and nothing is put that relies on it.
        let missing = Path::from("b/files/2");
        let next = Path::from("b/manifest/1");
        assert!(store.put_opts(&next, "x".into(), after(&[&missing])).await.is_err());
        assert_eq!(names(&store).await.len(), 3);
        assert_eq!(fs::read_dir(dir.path().join("b/manifest")).unwrap().count(), 1);
    }

    #[test]
    fn where_a_file_can_have_one_name_only_its_bytes_are_copied() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("one"), dir.path().join("two"));
        fs::write(&from, "one").unwrap();
        copy_bytes(&from, &to).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"one");
        assert_eq!(copy_bytes(&from, &to).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(has_no_links(&io::Error::from(io::ErrorKind::TooManyLinks)));
        assert!(!has_no_links(&io::Error::from(io::ErrorKind::AlreadyExists)));
    }

    #[tokio::test]
    async fn what_a_crash_left_is_removed_at_open() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("p/files")).unwrap();
        fs::write(dir.path().join("p/files/1.parquet#7"), "half").unwrap();
        fs::write(dir.path().join("p/files/2.parquet"), "whole").unwrap();
        let store = LocalStore::open(dir.path()).unwrap();
        assert_eq!(names(&store).await, ["p/files/2.parquet"]);
        assert!(!dir.path().join("p/files/1.parquet#7").exists());
    }
}

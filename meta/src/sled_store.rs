//! The store on disk: sled, with additions that our use needs.
//!
//! ```text
//!   key:    record key ++ chunk number (u16, big-endian)
//!   value:  chunk 0: length (u32) ++ CRC-32C of key and value (u32) ++ the first 4 KiB;
//!           other chunks: the next 4 KiB
//! ```
//!
//! - Values are cut into chunks. sled moves a tree node of more than 128 KiB to a file of its own that it never
//!   syncs, and a leaf has up to 16 entries: 16 * 4 KiB stays far below.
//! - sled's `flush()` writes but does not sync on Linux, so [`StateStore::sync`] syncs the files
//!   itself, through its own handles.
//! - sled finds torn pages in its own log; the checksum here also covers what it assembles from them.
//! - sled stops working for good when a write fails, so nothing is written while the disk is nearly full.
//! - sled may panic over a damaged file, or report another version; while opening, both count as damage.

use std::fs::File;
use std::io::ErrorKind;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::error::MetaError;
use crate::store::{Applied, Change, StateStore};

/// Format that this version writes.
const FORMAT: u32 = 1;
/// Keys of the store's own records; the catalog's keys begin with other letters.
const FORMAT_KEY: &[u8] = b"F";
const APPLIED_KEY: &[u8] = b"A";
/// See the module's documentation.
const CHUNK_BYTES: usize = 4096;
const HEADER_BYTES: usize = 8;
/// Free space required before a commit: sled writes segments of 512 KiB in the background, and stops working after
/// a failed write.
const ROOM_BYTES: u64 = 16 << 20;
/// The catalog's records are all in memory too; sled needs little.
const CACHE_BYTES: u64 = 32 << 20;

/// A store in a directory.
pub(crate) struct SledStore {
    dir: PathBuf,
    db: sled::Db,
}

impl SledStore {
    /// Opens the store in a directory, or creates it.
    ///
    /// # Errors
    /// [`MetaError::Corrupted`], [`MetaError::Incompatible`] or [`MetaError::Io`].
    pub(crate) fn open(dir: &Path) -> Result<Self, MetaError> {
        make_dir(dir)?;
        let config = sled::Config::new().path(dir).cache_capacity(CACHE_BYTES);
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let db = config.open().map_err(|error| unreadable("opening", dir, error))?;
            let store = Self { dir: dir.to_owned(), db };
            store.check_format()?;
            Ok(store)
        }));
        opened
            .map_err(|_| MetaError::Corrupted(format!("{} cannot be recovered", dir.display())))?
    }

    fn check_format(&self) -> Result<(), MetaError> {
        if self.db.is_empty() {
            let format = FORMAT.to_be_bytes().to_vec();
            return self.commit(&[Change { key: FORMAT_KEY.to_vec(), value: Some(format) }], None);
        }
        let first = [FORMAT_KEY, &[0, 0]].concat();
        let value = self.db.get(first).map_err(|error| unreadable("reading", &self.dir, error))?;
        let reading = value.and_then(|chunk| Reading::begin(FORMAT_KEY, &chunk));
        let (_, format) = self.finish(reading.ok_or_else(|| self.damaged(FORMAT_KEY))?)?;
        if format != FORMAT.to_be_bytes() {
            return Err(MetaError::Incompatible(format!(
                "{} has format {}, this version reads format {FORMAT}",
                self.dir.display(),
                format.escape_ascii()
            )));
        }
        Ok(())
    }

    /// Reads the records whose keys begin with a byte from `first` to `last`, assembled from their chunks and checked.
    fn read(&self, first: u8, last: u8) -> Result<Vec<(Vec<u8>, Vec<u8>)>, MetaError> {
        let end = last.checked_add(1).map_or(Bound::Unbounded, |next| Bound::Excluded([next]));
        let mut records = Vec::new();
        let mut reading: Option<Reading> = None;
        for item in self.db.range::<[u8; 1], _>((Bound::Included([first]), end)) {
            let (chunk_key, chunk) =
                item.map_err(|error| unreadable("reading", &self.dir, error))?;
            let (key, number) = split_key(&chunk_key).ok_or_else(|| self.damaged(&chunk_key))?;
            if number == 0 {
                records.extend(reading.take().map(|record| self.finish(record)).transpose()?);
                reading = Some(Reading::begin(key, &chunk).ok_or_else(|| self.damaged(key))?);
            } else {
                let current = reading.as_mut().ok_or_else(|| self.damaged(key))?;
                if !current.push(key, number, &chunk) {
                    return Err(self.damaged(key));
                }
            }
        }
        records.extend(reading.map(|record| self.finish(record)).transpose()?);
        Ok(records)
    }

    /// As [`SledStore::read`]; a panic of sled counts as damage.
    fn read_caught(&self, first: u8, last: u8) -> Result<Vec<(Vec<u8>, Vec<u8>)>, MetaError> {
        let read = catch_unwind(AssertUnwindSafe(|| self.read(first, last)));
        read.map_err(|_| MetaError::Corrupted(format!("{} cannot be read", self.dir.display())))?
    }

    fn finish(&self, reading: Reading) -> Result<(Vec<u8>, Vec<u8>), MetaError> {
        let whole = reading.value.len() == reading.length;
        if !whole || checksum(&reading.key, &reading.value) != reading.checksum {
            return Err(self.damaged(&reading.key));
        }
        Ok((reading.key, reading.value))
    }

    fn damaged(&self, key: &[u8]) -> MetaError {
        MetaError::Corrupted(format!(
            "record {} in {} is not what was written",
            key.escape_ascii(),
            self.dir.display()
        ))
    }

    fn put(&self, batch: &mut sled::Batch, key: &[u8], value: &[u8]) -> Result<(), MetaError> {
        let chunks = chunk_count(value.len());
        let too_long = || MetaError::Io {
            context: format!("writing record {}", key.escape_ascii()),
            source: std::sync::Arc::new(std::io::Error::other(format!(
                "a value of {} bytes is too long",
                value.len()
            ))),
        };
        let length = u32::try_from(value.len()).map_err(|_| too_long())?;
        let header = [length.to_be_bytes(), checksum(key, value).to_be_bytes()].concat();
        for number in 0..chunks {
            let start = number * CHUNK_BYTES;
            let part = &value[start..value.len().min(start + CHUNK_BYTES)];
            let chunk = if number == 0 { [&header, part].concat() } else { part.to_vec() };
            batch.insert(chunk_key(key, number).ok_or_else(too_long)?, chunk);
        }
        self.remove_chunks(batch, key, chunks)
    }

    /// Removes a record's present chunks from number `start` on.
    fn remove_chunks(
        &self,
        batch: &mut sled::Batch,
        key: &[u8],
        start: usize,
    ) -> Result<(), MetaError> {
        let Some(first) = chunk_key(key, 0) else { return Ok(()) };
        let value = self.db.get(first).map_err(|error| unreadable("reading", &self.dir, error))?;
        let Some(chunk) = value else { return Ok(()) };
        let old = Reading::begin(key, &chunk).ok_or_else(|| self.damaged(key))?;
        for number in start..chunk_count(old.length) {
            batch.remove(chunk_key(key, number).ok_or_else(|| self.damaged(key))?);
        }
        Ok(())
    }
}

impl StateStore for SledStore {
    fn applied(&self) -> Result<Option<Applied>, MetaError> {
        let kind = APPLIED_KEY[0];
        let records = self.read_caught(kind, kind)?;
        let Some((key, value)) = records.into_iter().find(|(key, _)| key == APPLIED_KEY) else {
            return Ok(None);
        };
        let (index, mark) = value.split_first_chunk::<8>().ok_or_else(|| self.damaged(&key))?;
        let mark = Bytes::copy_from_slice(mark);
        Ok(Some(Applied { index: u64::from_be_bytes(*index), mark }))
    }

    fn load_kinds(&self, first: u8, last: u8) -> Result<Vec<(Vec<u8>, Vec<u8>)>, MetaError> {
        let mut records = self.read_caught(first, last)?;
        records.retain(|(key, _)| key != APPLIED_KEY && key != FORMAT_KEY);
        Ok(records)
    }

    fn commit(&self, changes: &[Change], applied: Option<&Applied>) -> Result<(), MetaError> {
        let mut batch = sled::Batch::default();
        for change in changes {
            match &change.value {
                Some(value) => self.put(&mut batch, &change.key, value)?,
                None => self.remove_chunks(&mut batch, &change.key, 0)?,
            }
        }
        if let Some(applied) = applied {
            let value = [applied.index.to_be_bytes().as_slice(), &applied.mark].concat();
            self.put(&mut batch, APPLIED_KEY, &value)?;
        }
        self.db.apply_batch(batch).map_err(|error| failed("writing", &self.dir, error))
    }

    fn sync(&self) -> Result<(), MetaError> {
        self.db.flush().map_err(|error| failed("flushing", &self.dir, error))?;
        sync_tree(&self.dir)
    }

    fn has_room(&self) -> bool {
        // If the file system does not report free space, nothing is refused.
        rustix::fs::statvfs(&self.dir)
            .map_or(true, |disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= ROOM_BYTES)
    }
}

/// Creates a directory that survives a power failure: the new directories' parents are synced.
pub(crate) fn make_dir(dir: &Path) -> Result<(), MetaError> {
    let missing = dir.ancestors().take_while(|path| !path.exists()).count();
    std::fs::create_dir_all(dir)
        .map_err(|error| MetaError::io(format!("making {}", dir.display()), error))?;
    let parents = dir.ancestors().skip(1).take(missing);
    parents.filter(|parent| !parent.as_os_str().is_empty()).try_for_each(sync_one)
}

fn sync_one(path: &Path) -> Result<(), MetaError> {
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|error| MetaError::io(format!("syncing {}", path.display()), error))
}

/// Syncs every file and directory below a directory.
fn sync_tree(dir: &Path) -> Result<(), MetaError> {
    let failed = |error| MetaError::io(format!("reading {}", dir.display()), error);
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        match std::fs::metadata(&path) {
            // sled removes replaced snapshots in the background.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
            Ok(metadata) if metadata.is_dir() => sync_tree(&path)?,
            Ok(_) => match sync_one(&path) {
                Err(MetaError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
                synced => synced?,
            },
        }
    }
    sync_one(dir)
}

/// A record whose chunks are being assembled.
struct Reading {
    key: Vec<u8>,
    length: usize,
    checksum: u32,
    chunks: usize,
    value: Vec<u8>,
}

impl Reading {
    fn begin(key: &[u8], chunk: &[u8]) -> Option<Self> {
        let (header, value) = chunk.split_first_chunk::<HEADER_BYTES>()?;
        let (length, checksum) = header.split_first_chunk::<4>()?;
        Some(Self {
            key: key.to_vec(),
            length: usize::try_from(u32::from_be_bytes(*length)).ok()?,
            checksum: u32::from_be_bytes(checksum.try_into().ok()?),
            chunks: 1,
            value: value.to_vec(),
        })
    }

    /// Adds a chunk; false if it is not the next one.
    fn push(&mut self, key: &[u8], number: usize, chunk: &[u8]) -> bool {
        let fits = self.key == key && self.chunks == number;
        self.chunks += 1;
        self.value.extend_from_slice(chunk);
        fits && self.value.len() <= self.length
    }
}

fn chunk_count(length: usize) -> usize {
    length.div_ceil(CHUNK_BYTES).max(1)
}

fn chunk_key(key: &[u8], number: usize) -> Option<Vec<u8>> {
    let number = u16::try_from(number).ok()?;
    Some([key, &number.to_be_bytes()].concat())
}

fn split_key(chunk_key: &[u8]) -> Option<(&[u8], usize)> {
    let (key, number) = chunk_key.split_last_chunk::<2>()?;
    Some((key, usize::from(u16::from_be_bytes(*number))))
}

fn checksum(key: &[u8], value: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(key), value)
}

/// Kind of a read error: unless the disk itself refused, the bytes are not what was written.
fn unreadable(operation: &str, dir: &Path, error: sled::Error) -> MetaError {
    let refused = |kind| !matches!(kind, ErrorKind::InvalidData | ErrorKind::UnexpectedEof);
    match error {
        sled::Error::Io(source) if refused(source.kind()) => {
            MetaError::io(format!("{operation} {}", dir.display()), source)
        }
        error => MetaError::Corrupted(format!("{operation} {}: {error}", dir.display())),
    }
}

fn failed(operation: &str, dir: &Path, error: sled::Error) -> MetaError {
    let context = format!("{operation} {}", dir.display());
    match error {
        sled::Error::Io(source) => MetaError::io(context, source),
        sled::Error::Corruption { .. } => MetaError::Corrupted(format!("{context}: {error}")),
        sled::Error::Unsupported(_) | sled::Error::ReportableBug(_) => {
            MetaError::io(context, std::io::Error::other(error))
        }
        sled::Error::CollectionNotFound(_) => MetaError::Corrupted(format!("{context}: {error}")),
    }
}

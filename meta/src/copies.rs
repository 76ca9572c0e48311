//! Copies of the catalog beside the store: the two newest, each a file with a checksum.
//!
//! ```text
//!   copies/00000000000000001042.catalog:  "pcat" CRC-32C of the rest u32, version u32, length of the mark u32, mark, records
//! ```
//!
//! After a bad page the store silently goes back to an older state: it takes the page for one that was never
//! written completely. A copy is either complete or not used, and records its position in the log.
//!
//! Invariants:
//! - a copy is written after the store has synced the same state: a store that is older than a copy has lost
//!   something;
//! - a start after a clean stop believes the headers, and checks the contents in the background: roles and tokens are
//!   read from the newest copy then (`identities.rs`);
//! - the log is released up to the older copy at most ([`Copies::oldest`]), so that either copy can replace the
//!   store, whichever of the three is damaged;
//! - a copy that cannot be written changes nothing: the earlier copies stay, and the log behind them.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use partita_raft::Mark;
use tracing::warn;

use crate::error::MetaError;
use crate::sled_store::make_dir;

const MAGIC: [u8; 4] = *b"pcat";
const FORMAT: u32 = 1;
const HEADER_BYTES: usize = 16;
const CHECKSUM_BYTES: usize = 4;
/// Bytes read to find the mark of a copy. The marks of groups of three have less than a hundredth of it.
const MARK_END_MAX: u64 = 64 << 10;
const SUFFIX: &str = "catalog";
/// File name of a copy until it is complete.
const UNFINISHED: &str = "copy.new";
/// Number of copies that are kept.
const KEPT: usize = 2;

/// A copy read from disk.
pub(crate) struct Copy {
    pub(crate) mark: Mark,
    /// The records, in the form that members send each other.
    pub(crate) records: Bytes,
}

/// The copies in a directory.
pub(crate) struct Copies {
    dir: PathBuf,
    /// Positions of the complete copies, newest last.
    kept: Mutex<Vec<Mark>>,
}

impl Copies {
    /// Opens or creates a directory. Returns also the newest complete copy, and a description of each damaged one.
    ///
    /// # Errors
    /// [`MetaError::Io`], and [`MetaError::Incompatible`] for a copy that a later version wrote.
    pub(crate) fn open(dir: &Path) -> Result<(Self, Option<Copy>, Vec<String>), MetaError> {
        make_dir(dir)?;
        let (mut marks, mut newest, mut damaged) = (Vec::new(), None, Vec::new());
        for path in paths(dir)? {
            match read_file(&path) {
                Ok(copy) => {
                    marks.push(copy.mark.clone());
                    newest = Some(copy);
                }
                Err(MetaError::Corrupted(reason)) => {
                    damaged.push(format!("{} {reason}", path.display()));
                }
                Err(error) => return Err(error),
            }
        }
        marks.sort_by_key(Mark::index);
        Ok((Self { dir: dir.to_owned(), kept: Mutex::new(marks) }, newest, damaged))
    }

    /// Opens or creates a directory, without reading more than headers: each copy must be checked by [`Copies::read`]
    /// before it is used. `None` if a header is not that of a copy with the name of its file.
    ///
    /// # Errors
    /// [`MetaError::Io`].
    pub(crate) fn open_unread(dir: &Path) -> Result<Option<Self>, MetaError> {
        make_dir(dir)?;
        let copies = Self { dir: dir.to_owned(), kept: Mutex::default() };
        let mut marks = Vec::new();
        for path in paths(dir)? {
            let mark = read_mark(&path)?.filter(|mark| copies.path(mark.index()) == path);
            let Some(mark) = mark else { return Ok(None) };
            marks.push(mark);
        }
        marks.sort_by_key(Mark::index);
        *copies.kept.lock() = marks;
        Ok(Some(copies))
    }

    /// Indexes of the copies, the newest last.
    pub(crate) fn indexes(&self) -> Vec<u64> {
        self.kept.lock().iter().map(Mark::index).collect()
    }

    /// Reads and checks the copy of a position. A damaged one does not count as a copy any more.
    ///
    /// # Errors
    /// [`MetaError::Corrupted`], [`MetaError::Incompatible`] or [`MetaError::Io`].
    pub(crate) fn read(&self, index: u64) -> Result<Copy, MetaError> {
        let path = self.path(index);
        match read_file(&path) {
            Err(MetaError::Corrupted(reason)) => {
                self.kept.lock().retain(|mark| mark.index() != index);
                Err(MetaError::Corrupted(format!("{} {reason}", path.display())))
            }
            read => read,
        }
    }

    /// Position of the older copy: the log after it is still needed.
    pub(crate) fn oldest(&self) -> Option<Mark> {
        self.kept.lock().first().cloned()
    }

    /// Adds a copy durably, and removes all but the last two. If there already is one of the same position, that
    /// one and the store are enough, and the older one is removed.
    ///
    /// # Errors
    /// [`MetaError::Io`]: the copies are unchanged.
    pub(crate) fn keep(&self, mark: &Mark, records: &[u8]) -> Result<(), MetaError> {
        let mut marks = self.kept.lock();
        let exists = marks.iter().any(|copy| copy.index() == mark.index());
        if !exists {
            self.write(mark, records).map_err(|error| {
                MetaError::io(format!("writing a copy to {}", self.dir.display()), error)
            })?;
            marks.push(mark.clone());
        }
        let keep = if exists { 1 } else { KEPT };
        let surplus = marks.len().saturating_sub(keep);
        marks.drain(..surplus);
        let names: Vec<PathBuf> = marks.iter().map(|copy| self.path(copy.index())).collect();
        drop(marks);
        if let Err(error) = self.remove_others(&names) {
            warn!(dir = %self.dir.display(), %error, "removing an old copy of the catalog failed");
        }
        Ok(())
    }

    fn path(&self, index: u64) -> PathBuf {
        self.dir.join(format!("{index:020}.{SUFFIX}"))
    }

    fn write(&self, mark: &Mark, records: &[u8]) -> std::io::Result<()> {
        let unfinished = self.dir.join(UNFINISHED);
        let mut file = File::create(&unfinished)?;
        file.write_all(&encode(mark, records))?;
        file.sync_all()?;
        std::fs::rename(&unfinished, self.path(mark.index()))?;
        File::open(&self.dir)?.sync_all()
    }

    fn remove_others(&self, names: &[PathBuf]) -> std::io::Result<()> {
        for entry in std::fs::read_dir(&self.dir)? {
            let path = entry?.path();
            let is_copy = path.extension().is_some_and(|extension| extension == SUFFIX);
            if is_copy && !names.contains(&path) {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// Paths of the copies in a directory, in order of their positions.
fn paths(dir: &Path) -> Result<Vec<PathBuf>, MetaError> {
    let failed = |error| MetaError::io(format!("reading {}", dir.display()), error);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == SUFFIX) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn read_file(path: &Path) -> Result<Copy, MetaError> {
    let bytes = std::fs::read(path)
        .map_err(|error| MetaError::io(format!("reading {}", path.display()), error))?;
    decode(bytes.into())
}

/// Position of a copy by its header, without its checksum; `None` if it has no such header.
fn read_mark(path: &Path) -> Result<Option<Mark>, MetaError> {
    let failed = |error| MetaError::io(format!("reading {}", path.display()), error);
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MARK_END_MAX).read_to_end(&mut bytes).map_err(failed)?;
    let mut bytes = Bytes::from(bytes);
    if bytes.len() < HEADER_BYTES || bytes.split_to(MAGIC.len())[..] != MAGIC {
        return Ok(None);
    }
    bytes.advance(CHECKSUM_BYTES);
    Ok(parse(bytes).ok().map(|copy| copy.mark))
}

fn encode(mark: &Mark, records: &[u8]) -> Bytes {
    let mark = mark.to_bytes();
    let mut rest = BytesMut::with_capacity(HEADER_BYTES + mark.len() + records.len());
    rest.put_u32(FORMAT);
    rest.put_u32(u32::try_from(mark.len()).unwrap_or(u32::MAX));
    rest.put_slice(&mark);
    rest.put_slice(records);
    let mut bytes = BytesMut::with_capacity(HEADER_BYTES + rest.len());
    bytes.put_slice(&MAGIC);
    bytes.put_u32(crc32c::crc32c(&rest));
    bytes.put_slice(&rest);
    bytes.freeze()
}

fn decode(mut bytes: Bytes) -> Result<Copy, MetaError> {
    let damaged = |reason: &str| MetaError::Corrupted(reason.to_owned());
    if bytes.len() < HEADER_BYTES {
        return Err(damaged("ends too early"));
    }
    let magic = bytes.split_to(MAGIC.len());
    let checksum = bytes.get_u32();
    if magic[..] != MAGIC || crc32c::crc32c(&bytes) != checksum {
        return Err(damaged("fails its checksum"));
    }
    parse(bytes)
}

/// Parses what the checksum covers: at least the rest of a header.
fn parse(mut bytes: Bytes) -> Result<Copy, MetaError> {
    let format = bytes.get_u32();
    if format != FORMAT {
        return Err(MetaError::Incompatible(format!(
            "a copy of the catalog has format {format}, this version reads format {FORMAT}"
        )));
    }
    let length = bytes.get_u32() as usize;
    if length > bytes.len() {
        return Err(MetaError::Corrupted("ends within its mark".to_owned()));
    }
    let mark = Mark::from_bytes(&bytes.split_to(length))?;
    Ok(Copy { mark, records: bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(hex: &str) -> Vec<u8> {
        let digits: Vec<_> = hex.as_bytes().chunks(2).collect();
        digits
            .iter()
            .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    fn some_mark() -> Mark {
        let mark = "0a0608021003180c12060802100318091a110a030a010312040803101e120408041028";
        Mark::from_bytes(&bytes_of(mark)).unwrap()
    }

    #[test]
    fn a_damaged_copy_is_found_when_it_is_read_and_counts_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let (copies, ..) = Copies::open(dir.path()).unwrap();
        let mark = some_mark();
        copies.keep(&mark, b"records").unwrap();
        let unread = Copies::open_unread(dir.path()).unwrap().unwrap();
        assert_eq!(unread.indexes(), [mark.index()]);
        assert_eq!(&unread.read(mark.index()).unwrap().records[..], b"records");
        // Behind the header: only reading all of it shows the damage.
        let path = copies.path(mark.index());
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let unread = Copies::open_unread(dir.path()).unwrap().unwrap();
        assert!(matches!(unread.read(mark.index()), Err(MetaError::Corrupted(_))));
        assert!(unread.indexes().is_empty() && unread.oldest().is_none());
        // In the header.
        bytes[0] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert!(Copies::open_unread(dir.path()).unwrap().is_none());
        // Under the name of another position.
        bytes[0] ^= 1;
        std::fs::write(dir.path().join("00000000000000000099.catalog"), &bytes).unwrap();
        assert!(Copies::open_unread(dir.path()).unwrap().is_none());
    }

    /// Data directories hold these bytes: they never change.
    #[test]
    fn a_copy_never_changes_its_bytes() {
        let mark = some_mark();
        let golden = "70636174ea0eede600000001000000230a0608021003180c12060802100318091a110a030a010312040803101e1204080410287265636f726473";
        let encoded = encode(&mark, b"records");
        assert_eq!(encoded, bytes_of(golden));
        let copy = decode(encoded).unwrap();
        assert_eq!((copy.mark, &copy.records[..]), (mark, &b"records"[..]));
    }
}

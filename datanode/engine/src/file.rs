//! One immutable, sorted file of a partition: what the manifest knows of it, and when it goes away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use object_store::path::Path;
use parking_lot::Mutex;
use partita_proto::id::ColumnId;
use partita_proto::range::{Bound, KeyRange};
use partita_proto::value::Value;

use crate::error::Result;
use crate::layout::Layout;

/// The number of a file; grows, never used again within its partition.
pub(crate) type FileId = u64;

/// What the manifest knows of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FileMeta {
    pub(crate) id: FileId,
    /// Files of one run were written together and have no key in common. Runs that share a key are
    /// ordered by age: everything in the one with the smaller number is older.
    pub(crate) run: u64,
    pub(crate) bytes: u64,
    pub(crate) rows: u64,
    /// CRC32C of the whole file.
    pub(crate) checksum: u32,
    /// Where the checked blocks end and indexes and footer begin, and the CRC32C of the latter.
    pub(crate) tail: u64,
    pub(crate) tail_checksum: u32,
    /// The key's columns when the file was written; the bounds below are values of these.
    pub(crate) key: Vec<ColumnId>,
    /// First key.
    pub(crate) first: Bound,
    /// Last key.
    pub(crate) last: Bound,
    /// First keys of all row groups but the first one.
    pub(crate) splits: Vec<Bound>,
    /// First and last value of the time index.
    pub(crate) time: Option<(i64, i64)>,
    /// The time window that it lies in, half-open.
    pub(crate) window: Option<(i64, i64)>,
    /// First and last log index.
    pub(crate) seq: (u64, u64),
    /// Rows that delete.
    pub(crate) tombstones: u64,
    /// Whether it has the column of operations.
    pub(crate) has_op: bool,
}

/// Where files that nobody needs any more are put down, to be deleted by the partition's owner.
pub(crate) type Garbage = Arc<Mutex<Vec<Path>>>;

/// A file that somebody may still read.
#[derive(Debug)]
pub(crate) struct FileHandle {
    pub(crate) meta: FileMeta,
    pub(crate) path: Path,
    /// No other handle of the process has it.
    pub(crate) number: u64,
    /// Set when the manifest no longer names it.
    obsolete: AtomicBool,
    garbage: Garbage,
}

impl FileHandle {
    pub(crate) fn new(meta: FileMeta, root: &Path, garbage: &Garbage) -> Self {
        static HANDLES: AtomicU64 = AtomicU64::new(0);
        let path = file_path(root, meta.id);
        let number = HANDLES.fetch_add(1, Ordering::Relaxed);
        Self { meta, path, number, obsolete: AtomicBool::new(false), garbage: Arc::clone(garbage) }
    }

    /// The manifest no longer names it: it goes when the last reader has gone.
    pub(crate) fn retire(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for FileHandle {
    fn drop(&mut self) {
        if *self.obsolete.get_mut() {
            self.garbage.lock().push(self.path.clone());
        }
    }
}

/// Where a partition's files are.
pub(crate) fn files_directory(root: &Path) -> Path {
    root.clone().join("files")
}

pub(crate) fn file_path(root: &Path, id: FileId) -> Path {
    files_directory(root).join(file_name(id))
}

/// What a file is called among those of its replica.
pub(crate) fn file_name(id: FileId) -> String {
    format!("{id:016}.parquet")
}

/// A file under the layout of now: its bounds as encoded keys.
#[derive(Clone, Debug)]
pub(crate) struct FileEntry {
    pub(crate) handle: Arc<FileHandle>,
    pub(crate) first: Bytes,
    pub(crate) last: Bytes,
    /// First keys of all row groups but the first one.
    pub(crate) splits: Arc<[Bytes]>,
}

impl FileEntry {
    pub(crate) fn new(handle: Arc<FileHandle>, layout: &Layout) -> Result<Self> {
        let encode = |bound: &Bound| -> Result<Bytes> {
            let bound = bound_now(layout, &handle.meta.key, bound);
            Ok(layout.codec.encode_bound(&bound)?)
        };
        let (first, last) = (encode(&handle.meta.first)?, encode(&handle.meta.last)?);
        let splits = handle.meta.splits.iter().map(encode).collect::<Result<_>>()?;
        Ok(Self { first, last, splits, handle })
    }

    pub(crate) fn meta(&self) -> &FileMeta {
        &self.handle.meta
    }

    /// First and last key.
    pub(crate) fn span(&self) -> (&[u8], &[u8]) {
        (&self.first, &self.last)
    }

    pub(crate) fn row_groups(&self) -> usize {
        self.splits.len() + 1
    }

    /// Whether a row group may hold a key of some ranges, which are sorted and disjoint.
    pub(crate) fn group_overlaps(&self, group: usize, ranges: &[KeyRange]) -> bool {
        let first = if group == 0 { &self.first } else { &self.splits[group - 1] };
        // Equal keys may go on from one group to the next, so the end is inclusive.
        let last = self.splits.get(group).unwrap_or(&self.last);
        overlaps((first, last), ranges)
    }
}

/// Whether an inclusive span of keys has one in some ranges, which are sorted and disjoint.
pub(crate) fn overlaps((first, last): (&[u8], &[u8]), ranges: &[KeyRange]) -> bool {
    let ends_before = |range: &KeyRange| range.end.as_ref().is_some_and(|end| **end <= *first);
    let next = ranges.partition_point(ends_before);
    ranges.get(next).is_some_and(|range| range.start.as_ref() <= last)
}

/// The parts of some ranges, which are sorted and disjoint, that lie in another.
pub(crate) fn parts_within<'a>(
    ranges: &'a [KeyRange],
    range: &'a KeyRange,
) -> impl Iterator<Item = KeyRange> + use<'a> {
    let ends_before = |other: &KeyRange| other.end.as_ref().is_some_and(|end| *end <= range.start);
    let starts_behind =
        |other: &KeyRange| range.end.as_ref().is_some_and(|end| *end <= other.start);
    let from = ranges.partition_point(ends_before);
    let to = ranges.partition_point(|other| !starts_behind(other));
    let parts = ranges[from..to.max(from)].iter().map(|part| part.intersect(range));
    parts.filter(|part| !part.is_empty())
}

/// A key of an older schema as one of the layout's: a column that was added to the key since is NULL.
fn bound_now(layout: &Layout, key: &[ColumnId], bound: &Bound) -> Bound {
    let value_of = |id: &ColumnId| {
        let position = key.iter().position(|known| known == id);
        position.and_then(|position| bound.key.get(position).cloned()).unwrap_or(Value::Null)
    };
    let values = layout.config.schema.key.iter().map(value_of).collect();
    Bound { placement: bound.placement, key: values }
}

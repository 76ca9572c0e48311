//! One immutable, sorted file of a partition: its metadata in the manifest, and its lifetime. The modules below store
//! files, and read their footers, sketches, measures and checked blocks.

pub(crate) mod blocks;
pub(crate) mod cache;
pub(crate) mod footer;
pub(crate) mod measures;
pub(crate) mod series;
pub(crate) mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use object_store::path::Path;
use parking_lot::Mutex;
use partita_proto::id::ColumnId;
use partita_proto::range::{Bound, KeyRange, TypedRange};
use partita_proto::value::Value;

use crate::error::{EngineError, Result};
use crate::index::Indexed;
use crate::rows::layout::Layout;

/// Id of a file; grows, and is never reused within its partition.
pub(crate) type FileId = u64;

/// Metadata of a file in the manifest.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FileMeta {
    pub(crate) id: FileId,
    /// Number of the run. Files of one run were written together and have no key in common. Runs that share a key are
    /// ordered by age: every row of the run with the smaller number is older.
    pub(crate) run: u64,
    pub(crate) bytes: u64,
    pub(crate) rows: u64,
    /// CRC32C of the whole file.
    pub(crate) checksum: u32,
    /// Offset at which the checked blocks end and indexes and footer begin; `tail_checksum` is the CRC32C of the
    /// latter.
    pub(crate) tail: u64,
    pub(crate) tail_checksum: u32,
    /// The key's columns when the file was written; the bounds below are values of these columns.
    pub(crate) key: Vec<ColumnId>,
    /// First key.
    pub(crate) first: Bound,
    /// Last key.
    pub(crate) last: Bound,
    /// First keys of all row groups except the first.
    pub(crate) splits: Vec<Bound>,
    /// First and last value of the time index.
    pub(crate) time: Option<(i64, i64)>,
    /// Time window that contains all rows, half-open.
    pub(crate) window: Option<(i64, i64)>,
    /// Lowest and highest log index of the rows.
    pub(crate) seq: (u64, u64),
    /// Number of rows that are deletes.
    pub(crate) tombstones: u64,
    /// True if the file has the operation column.
    pub(crate) has_op: bool,
    /// Part of the file that counts, whatever the partition's range; `None`: all of it.
    pub(crate) within: Option<Within>,
    /// Indexes that the file has.
    pub(crate) indexed: Vec<Indexed>,
    /// Bytes of the segments of these indexes.
    pub(crate) index_bytes: u64,
}

impl FileMeta {
    /// True if the file lacks one of these indexes, or has it with other options. Indexes that a file has besides do no
    /// harm.
    pub(crate) fn lacks_index(&self, indexes: &[(String, Indexed)]) -> bool {
        indexes.iter().any(|(_, index)| !self.indexed.contains(index))
    }
}

/// The part of a file that counts: the file came from a partition that owned only that range, or this partition once
/// owned only that.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Within {
    /// The key's columns to which the range's bounds belong.
    pub(crate) key: Vec<ColumnId>,
    pub(crate) range: TypedRange,
}

/// Paths of files without readers, to be deleted by the partition's owner.
pub(crate) type Garbage = Arc<Mutex<Vec<Path>>>;

/// A file that may still be read.
#[derive(Debug)]
pub(crate) struct FileHandle {
    pub(crate) meta: FileMeta,
    pub(crate) path: Path,
    /// Process-wide unique number of the file.
    pub(crate) number: u64,
    /// Description of the damage found when the partition was opened; the file cannot be read then.
    damage: Option<Arc<str>>,
    life: Arc<Life>,
}

/// Lifetime of a file, shared by its handles: the last one to be dropped ends it.
#[derive(Debug)]
struct Life {
    path: Path,
    /// Set when the manifest no longer names the file.
    obsolete: AtomicBool,
    /// Set when the partition is closed: then the caller may delete its files.
    closed: AtomicBool,
    garbage: Garbage,
}

impl FileHandle {
    pub(crate) fn new(meta: FileMeta, root: &Path, garbage: &Garbage) -> Self {
        static HANDLES: AtomicU64 = AtomicU64::new(0);
        let path = file_path(root, meta.id);
        let number = HANDLES.fetch_add(1, Ordering::Relaxed);
        let (obsolete, closed) = (AtomicBool::new(false), AtomicBool::new(false));
        let life = Life { path: path.clone(), obsolete, closed, garbage: Arc::clone(garbage) };
        let life = Arc::new(life);
        Self { meta, path, number, damage: None, life }
    }

    /// A handle of a damaged file; `damage` describes the damage, and names file and partition.
    pub(crate) fn damaged(self, damage: String) -> Self {
        Self { damage: Some(damage.into()), ..self }
    }

    /// Description of the file's damage, if any is known.
    pub(crate) fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Refuses to read a file that is known to be damaged.
    ///
    /// # Errors
    /// [`EngineError::Corrupted`].
    pub(crate) fn check(&self) -> Result<()> {
        match &self.damage {
            None => Ok(()),
            Some(damage) => Err(EngineError::Corrupted(damage.to_string())),
        }
    }

    /// Another handle of the same file, with other metadata.
    pub(crate) fn with_meta(&self, meta: FileMeta) -> Self {
        let (path, life) = (self.path.clone(), Arc::clone(&self.life));
        Self { meta, path, number: self.number, damage: self.damage.clone(), life }
    }

    /// Marks the file as no longer named by the manifest: it is deleted after its last reader.
    pub(crate) fn retire(&self) {
        self.life.obsolete.store(true, Ordering::Release);
    }

    /// Marks the partition as closed: from now on a missing file is no error.
    pub(crate) fn close(&self) {
        self.life.closed.store(true, Ordering::Release);
    }

    /// True if the file may be missing although it is being read, because the partition was closed or the file is
    /// obsolete.
    pub(crate) fn may_be_gone(&self) -> bool {
        self.life.closed.load(Ordering::Acquire) || self.life.obsolete.load(Ordering::Acquire)
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if *self.obsolete.get_mut() {
            self.garbage.lock().push(self.path.clone());
        }
    }
}

/// Directory of a partition's files.
pub(crate) fn files_directory(root: &Path) -> Path {
    root.clone().join("files")
}

pub(crate) fn file_path(root: &Path, id: FileId) -> Path {
    files_directory(root).join(file_name(id))
}

/// Name of a file among the files of its replica.
pub(crate) fn file_name(id: FileId) -> String {
    format!("{id:016}.parquet")
}

/// A file under the current layout, with its bounds as encoded keys.
#[derive(Clone, Debug)]
pub(crate) struct FileEntry {
    pub(crate) handle: Arc<FileHandle>,
    /// Range of the rows that count.
    pub(crate) range: KeyRange,
    /// Bounds of the rows that count: none has a key below `first` or above `last`.
    pub(crate) first: Bytes,
    pub(crate) last: Bytes,
    /// First keys of all row groups except the first.
    pub(crate) splits: Arc<[Bytes]>,
    /// Estimated share of the rows that count: half row groups, of all half row groups.
    share: (u64, u64),
}

impl FileEntry {
    pub(crate) fn new(handle: Arc<FileHandle>, layout: &Layout) -> Result<Self> {
        let encode = |bound: &Bound| -> Result<Bytes> {
            let bound = bound_now(layout, &handle.meta.key, bound);
            Ok(layout.codec.encode_bound(&bound)?)
        };
        let (first, last) = (encode(&handle.meta.first)?, encode(&handle.meta.last)?);
        let splits: Arc<[Bytes]> = handle.meta.splits.iter().map(encode).collect::<Result<_>>()?;
        let range = match &handle.meta.within {
            Some(Within { key, range }) => {
                let range = range.rekeyed(key, &layout.config.schema.key);
                layout.range.intersect(&layout.codec.range(&range)?)
            }
            None => layout.range.clone(),
        };
        let mut entry = Self { handle, range, first, last, splits, share: (1, 1) };
        if !entry.range.contains(&entry.first) || !entry.range.contains(&entry.last) {
            entry.clip();
        }
        Ok(entry)
    }

    /// Restricts the entry to the rows in its range.
    fn clip(&mut self) {
        let range = self.range.clone();
        let halves = |group: usize| {
            let (first, last) = self.group_span(group);
            if range.is_empty() || !overlaps((first, last), std::slice::from_ref(&range)) {
                return 0;
            }
            // The last key may equal the next group's first key, which may lie outside.
            let ends_inside = range.end.as_ref().is_none_or(|end| match self.splits.get(group) {
                Some(next) => next <= end,
                None => last < end.as_ref(),
            });
            if range.contains(first) && ends_inside { 2 } else { 1 }
        };
        let inside = (0..self.row_groups()).map(halves).sum();
        // The file reaches beyond its range, so the share is never all of it.
        self.share = (inside, 2 * self.row_groups() as u64 + 1);
        self.first = self.first.clone().max(range.start);
        if let Some(end) = range.end {
            self.last = self.last.clone().min(end);
        }
    }

    /// The range to which rows must be cut, so that those remain that count and lie in `range`; `None` if that is all
    /// rows.
    pub(crate) fn bounds(&self, range: &KeyRange) -> Option<KeyRange> {
        let inside = range.contains(&self.first) && range.contains(&self.last);
        (self.is_clipped() || !inside).then(|| self.range.intersect(range))
    }

    /// Metadata to be recorded before the partition's range grows: rows that do not count now never will.
    pub(crate) fn kept_within(&self, layout: &Layout) -> Result<FileMeta> {
        let mut meta = self.meta().clone();
        if self.is_clipped() {
            let end = self.range.end.as_ref().map(|end| layout.codec.decode(end)).transpose()?;
            let start = layout.codec.decode(&self.range.start)?;
            let range = TypedRange { start, end: end.unwrap_or_default() };
            meta.within = Some(Within { key: layout.config.schema.key.clone(), range });
        }
        Ok(meta)
    }

    /// True if no row of the file counts.
    pub(crate) fn is_outside(&self) -> bool {
        self.share.0 == 0
    }

    /// True if the file reaches beyond the partition's range: readers leave out the rows outside.
    pub(crate) fn is_clipped(&self) -> bool {
        self.share.0 < self.share.1
    }

    /// Number of rows in the partition's range; estimated if the file reaches beyond it.
    pub(crate) fn rows(&self) -> u64 {
        self.part_of(self.meta().rows)
    }

    /// Bytes of those rows.
    pub(crate) fn bytes(&self) -> u64 {
        self.part_of(self.meta().bytes)
    }

    fn part_of(&self, whole: u64) -> u64 {
        let (inside, total) = (u128::from(self.share.0), u128::from(self.share.1));
        u64::try_from(u128::from(whole) * inside / total).unwrap_or(whole)
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

    /// First and last key of a row group. Equal keys may continue into the next group, so the last key is the first of
    /// the next group.
    pub(crate) fn group_span(&self, group: usize) -> (&[u8], &[u8]) {
        let first = if group == 0 { &self.first } else { &self.splits[group - 1] };
        (first, self.splits.get(group).unwrap_or(&self.last))
    }

    /// True if a row group may hold a key in `ranges`, which are sorted and disjoint.
    pub(crate) fn group_overlaps(&self, group: usize, ranges: &[KeyRange]) -> bool {
        overlaps(self.group_span(group), ranges)
    }
}

/// True if an inclusive span of keys overlaps one of `ranges`, which are sorted and disjoint.
pub(crate) fn overlaps((first, last): (&[u8], &[u8]), ranges: &[KeyRange]) -> bool {
    let ends_before = |range: &KeyRange| range.end.as_ref().is_some_and(|end| **end <= *first);
    let next = ranges.partition_point(ends_before);
    ranges.get(next).is_some_and(|range| range.start.as_ref() <= last)
}

/// The intersections of `ranges`, which are sorted and disjoint, with another range.
pub(crate) fn parts_within<'a>(
    ranges: &'a [KeyRange],
    range: &'a KeyRange,
) -> impl Iterator<Item = KeyRange> + use<'a> {
    let ends_before = |part: &KeyRange| part.end.as_ref().is_some_and(|end| *end <= range.start);
    let starts_after = |part: &KeyRange| range.end.as_ref().is_some_and(|end| *end <= part.start);
    let start = ranges.partition_point(ends_before);
    let end = ranges.partition_point(|part| !starts_after(part));
    let parts = ranges[start..end.max(start)].iter().map(|part| part.intersect(range));
    parts.filter(|part| !part.is_empty())
}

/// A key of an older schema as one of the current layout: a column that was added to the key since is NULL.
fn bound_now(layout: &Layout, key: &[ColumnId], bound: &Bound) -> Bound {
    let value_of = |id: &ColumnId| {
        let position = key.iter().position(|column| column == id);
        position.and_then(|position| bound.key.get(position).cloned()).unwrap_or(Value::Null)
    };
    let values = layout.config.schema.key.iter().map(value_of).collect();
    Bound { placement: bound.placement, key: values }
}

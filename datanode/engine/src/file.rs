//! One immutable, sorted file of a partition: what the manifest knows of it, and when it goes away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use object_store::path::Path;
use parking_lot::Mutex;
use partita_proto::id::ColumnId;
use partita_proto::range::{Bound, KeyRange, TypedRange};
use partita_proto::value::Value;

use crate::error::{EngineError, Result};
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
    /// What of it counts, whatever the partition owns; `None`: all of it.
    pub(crate) within: Option<Within>,
}

/// The part of a file that counts: it came from a partition that owned no more, or the partition owned no more once.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Within {
    /// The key's columns, whose values the range's bounds are.
    pub(crate) key: Vec<ColumnId>,
    pub(crate) range: TypedRange,
}

/// Where files that nobody needs any more are put down, to be deleted by the partition's owner.
pub(crate) type Garbage = Arc<Mutex<Vec<Path>>>;

/// A file that somebody may still read.
#[derive(Debug)]
pub(crate) struct FileHandle {
    pub(crate) meta: FileMeta,
    pub(crate) path: Path,
    /// No other file of the process has it.
    pub(crate) number: u64,
    /// Why it cannot be read, if that was found when the partition was opened.
    damage: Option<Arc<str>>,
    life: Arc<Life>,
}

/// How long a file is kept: as long as one handle of it is.
#[derive(Debug)]
struct Life {
    path: Path,
    /// Set when the manifest no longer names it.
    obsolete: AtomicBool,
    /// Set when the partition is closed: whoever closed it may remove its files.
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

    /// The same, of a file that is not what was written; `damage` says how, and names file and partition.
    pub(crate) fn damaged(self, damage: String) -> Self {
        Self { damage: Some(damage.into()), ..self }
    }

    /// How it is damaged, as far as that is known.
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

    /// Another handle of the same file, of which only a part counts.
    pub(crate) fn with_meta(&self, meta: FileMeta) -> Self {
        let (path, life) = (self.path.clone(), Arc::clone(&self.life));
        Self { meta, path, number: self.number, damage: self.damage.clone(), life }
    }

    /// The manifest no longer names it: it goes when the last reader has gone.
    pub(crate) fn retire(&self) {
        self.life.obsolete.store(true, Ordering::Release);
    }

    /// The partition is closed: it is no wonder from now on if the file is not there.
    pub(crate) fn close(&self) {
        self.life.closed.store(true, Ordering::Release);
    }

    /// Whether it may be gone, although somebody reads it, because the partition was closed.
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
    /// What of it counts.
    pub(crate) range: KeyRange,
    /// No row that counts has a key before this one, or behind the other.
    pub(crate) first: Bytes,
    pub(crate) last: Bytes,
    /// First keys of all row groups but the first one.
    pub(crate) splits: Arc<[Bytes]>,
    /// How much of it counts: so many of so many halves of row groups.
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

    /// Counts what lies in the range, and leaves the rest out.
    fn clip(&mut self) {
        let range = self.range.clone();
        let halves = |group: usize| {
            let (first, last) = self.group_span(group);
            if range.is_empty() || !overlaps((first, last), std::slice::from_ref(&range)) {
                return 0;
            }
            // The last key is the next group's first one: that may lie outside.
            let ends_inside = range.end.as_ref().is_none_or(|end| match self.splits.get(group) {
                Some(next) => next <= end,
                None => last < end.as_ref(),
            });
            if range.contains(first) && ends_inside { 2 } else { 1 }
        };
        let inside = (0..self.row_groups()).map(halves).sum();
        // It reaches beyond, so it is never all of it.
        self.share = (inside, 2 * self.row_groups() as u64 + 1);
        self.first = self.first.clone().max(range.start);
        if let Some(end) = range.end {
            self.last = self.last.clone().min(end);
        }
    }

    /// Where to cut its rows so that those are left that count and lie in a range; `None` if these are all.
    pub(crate) fn bounds(&self, range: &KeyRange) -> Option<KeyRange> {
        let inside = range.contains(&self.first) && range.contains(&self.last);
        (self.is_clipped() || !inside).then(|| self.range.intersect(range))
    }

    /// What the manifest is to know of it before the partition's range grows: what of it counts now is all that ever will.
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

    /// Whether no row of it counts.
    pub(crate) fn is_outside(&self) -> bool {
        self.share.0 == 0
    }

    /// Whether it reaches beyond the partition's range: what lies outside is left out by whoever reads it.
    pub(crate) fn is_clipped(&self) -> bool {
        self.share.0 < self.share.1
    }

    /// The rows that lie in the partition's range, estimated if it reaches beyond.
    pub(crate) fn rows(&self) -> u64 {
        self.part_of(self.meta().rows)
    }

    /// The bytes that those rows take.
    pub(crate) fn bytes(&self) -> u64 {
        self.part_of(self.meta().bytes)
    }

    fn part_of(&self, whole: u64) -> u64 {
        let (inside, all) = (u128::from(self.share.0), u128::from(self.share.1));
        u64::try_from(u128::from(whole) * inside / all).unwrap_or(whole)
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

    /// First and last key of a row group. Equal keys may go on from one group to the next, so that the last is the
    /// first of the next one.
    pub(crate) fn group_span(&self, group: usize) -> (&[u8], &[u8]) {
        let first = if group == 0 { &self.first } else { &self.splits[group - 1] };
        (first, self.splits.get(group).unwrap_or(&self.last))
    }

    /// Whether a row group may hold a key of some ranges, which are sorted and disjoint.
    pub(crate) fn group_overlaps(&self, group: usize, ranges: &[KeyRange]) -> bool {
        overlaps(self.group_span(group), ranges)
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

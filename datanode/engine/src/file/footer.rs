//! Decoded footers of files; and the counters of scans.
//!
//! Every byte passes a checksum before it is decoded: the tail of a file (indexes and footer) as a
//! whole against the manifest, everything before it in blocks against the footer ([`crate::file::blocks`]).

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use object_store::{ObjectStore, ObjectStoreExt};
use parking_lot::Mutex;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use partita_proto::cardinality::SeriesSketch;
use partita_proto::measure::TableMeasures;
use partita_proto::service::{IndexKey, IndexUse, ScanStats};

use crate::error::{EngineError, Result};
use crate::file::cache::Recent;
use crate::file::{FileHandle, FileId, measures, series};
use crate::index::directory::Directory;
use crate::sizes::{
    BLOCK_BYTES, BLOCKS_KEY, FORMER_INDEXES_KEY, INDEXES_KEY, MEASURES_KEY, SERIES_KEY,
};

/// A file's footer and page index.
#[derive(Debug)]
pub(crate) struct Footer {
    pub(crate) metadata: ArrowReaderMetadata,
    /// CRC32C of each block.
    pub(crate) blocks: Vec<u32>,
    /// Places of the indexes' segments; empty if the file has none that this version reads.
    indexes: Directory,
}

impl Footer {
    /// The file's sketch of its series, if it has one.
    pub(crate) fn series(&self) -> Option<SeriesSketch> {
        series::of_text(entry(self.metadata.metadata(), SERIES_KEY)?)
    }

    /// The measures of the file's rows, if it has them.
    pub(crate) fn measures(&self) -> Option<TableMeasures> {
        measures::of_text(entry(self.metadata.metadata(), MEASURES_KEY)?)
    }

    /// The directory of the file's indexes.
    pub(crate) fn indexes(&self) -> &Directory {
        &self.indexes
    }

    /// Approximate bytes in memory.
    fn memory_bytes(&self) -> usize {
        let listed = self.indexes.indexes.iter();
        let segments: usize = listed.map(|listed| size_of_val(listed.segments.as_slice())).sum();
        self.metadata.metadata().memory_size() + size_of_val(self.blocks.as_slice()) + segments
    }
}

/// The text of an entry of a footer.
fn entry<'a>(metadata: &'a ParquetMetaData, key: &str) -> Option<&'a str> {
    let entries = metadata.file_metadata().key_value_metadata()?;
    entries.iter().find(|entry| entry.key == key)?.value.as_deref()
}

/// Cache of recently used footers.
pub(crate) type Footers = Recent<FileId, Arc<Footer>>;

impl Footers {
    /// The footer of a file, read if it is not cached.
    pub(crate) async fn of(
        &self,
        store: &Arc<dyn ObjectStore>,
        file: &FileHandle,
    ) -> Result<Arc<Footer>> {
        file.check()?;
        if let Some(footer) = self.get(file.meta.id) {
            return Ok(footer);
        }
        let footer = Arc::new(read_footer(store, file).await?);
        let bytes = footer.memory_bytes() as u64;
        self.insert(file.meta.id, Arc::clone(&footer), bytes);
        Ok(footer)
    }
}

async fn read_footer(store: &Arc<dyn ObjectStore>, file: &FileHandle) -> Result<Footer> {
    let meta = &file.meta;
    let corrupted =
        |problem: &str| EngineError::Corrupted(format!("file {}: {problem}", file.path));
    let tail = read_tail(store, file).await?;
    let failed = |error| EngineError::reading(&file.path, &error);
    let mut reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
    reader.try_parse_sized(&tail, meta.bytes).map_err(failed)?;
    let metadata = Arc::new(reader.finish().map_err(failed)?);
    let blocks = entry(&metadata, BLOCKS_KEY).and_then(parse_sums);
    let blocks = blocks.ok_or_else(|| corrupted("it has no block checksums"))?;
    if blocks.len() as u64 != meta.tail.div_ceil(BLOCK_BYTES as u64) {
        return Err(corrupted("it has the wrong number of block checksums"));
    }
    // A directory that this version cannot read counts as none: the rows are read without indexes.
    let indexes =
        [INDEXES_KEY, FORMER_INDEXES_KEY].into_iter().find_map(|key| entry(&metadata, key));
    let indexes = indexes.and_then(Directory::of_text).unwrap_or_default();
    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required);
    let metadata = ArrowReaderMetadata::try_new(metadata, options).map_err(failed)?;
    Ok(Footer { metadata, blocks, indexes })
}

/// Reads and checks the tail of a file: everything behind its blocks.
pub(crate) async fn read_tail(store: &Arc<dyn ObjectStore>, file: &FileHandle) -> Result<Bytes> {
    let meta = &file.meta;
    let tail = read(store, file, meta.tail..meta.bytes).await?;
    if crc32c::crc32c(&tail) != meta.tail_checksum {
        let path = &file.path;
        return Err(EngineError::Corrupted(format!("file {path}: the footer fails its checksum")));
    }
    Ok(tail)
}

fn parse_sums(text: &str) -> Option<Vec<u32>> {
    let digits = text.as_bytes().chunks(8);
    digits.map(|digits| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()).collect()
}

/// Reads a range of a file completely.
async fn read(store: &Arc<dyn ObjectStore>, file: &FileHandle, range: Range<u64>) -> Result<Bytes> {
    file.check()?;
    let bytes = store.get_range(&file.path, range.clone()).await;
    let bytes = bytes.map_err(|error| read_error(file, &error))?;
    if bytes.len() as u64 != range.end - range.start {
        return Err(EngineError::Corrupted(format!("file {} is too short", file.path)));
    }
    Ok(bytes)
}

/// Translates a read error: a file that is missing, or shorter than it was, is corrupted data, unless the partition was
/// removed during the read; any other error is one of the store.
pub(crate) fn read_error(file: &FileHandle, error: &object_store::Error) -> EngineError {
    match error {
        object_store::Error::NotFound { .. } if file.may_be_gone() => EngineError::Stopped(
            format!("the replica was removed while file {} was read", file.path),
        ),
        object_store::Error::NotFound { .. } => {
            EngineError::Corrupted(format!("file {} is missing", file.path))
        }
        error => EngineError::store(&file.path, error),
    }
}

/// Reads a whole file and checks it against its checksum.
pub(crate) async fn verify(store: &Arc<dyn ObjectStore>, file: &FileHandle) -> Result<()> {
    const STEP: u64 = 8 * 1024 * 1024;
    let (mut sum, mut offset) = (0, 0);
    while offset < file.meta.bytes {
        let end = file.meta.bytes.min(offset + STEP);
        sum = crc32c::crc32c_append(sum, &read(store, file, offset..end).await?);
        offset = end;
    }
    if sum != file.meta.checksum {
        return Err(EngineError::Corrupted(format!("file {} fails its checksum", file.path)));
    }
    Ok(())
}

/// Counters of a scan: for its caller, and for the partition as a whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) scan: Arc<ScanStats>,
    rows_scanned: Arc<AtomicU64>,
    /// Files that were read; several streams may read parts of the same file.
    files: Arc<Mutex<BTreeSet<FileId>>>,
}

impl Counters {
    /// Counters of a scan, with the partition's total of rows.
    pub(crate) fn new(rows_scanned: &Arc<AtomicU64>) -> Self {
        Self { rows_scanned: Arc::clone(rows_scanned), ..Self::default() }
    }

    pub(crate) fn rows(&self, rows: usize) {
        self.scan.rows_scanned.fetch_add(rows as u64, Ordering::Relaxed);
        self.rows_scanned.fetch_add(rows as u64, Ordering::Relaxed);
    }

    pub(crate) fn file(&self, file: FileId) {
        if self.files.lock().insert(file) {
            self.scan.files_read.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn bytes(&self, bytes: u64) {
        self.scan.bytes_scanned.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts the rows about which an index was asked, and those that it excluded.
    pub(crate) fn index(&self, key: IndexKey, examined: u64, skipped: u64) {
        let mut indexes = self.scan.indexes.lock();
        indexes.entry(key).or_default().add(&IndexUse { examined, skipped });
    }
}

#[cfg(test)]
mod tests {
    use partita_proto::index::IndexKind;

    use super::*;

    #[test]
    fn checksums_are_read_as_written() {
        assert_eq!(parse_sums("0000002affffffff"), Some(vec![42, u32::MAX]));
        assert_eq!(parse_sums(""), Some(vec![]));
        assert_eq!(parse_sums("zz00002a"), None);
    }

    #[test]
    fn uses_of_an_index_add_up() {
        let (counters, key) = (Counters::default(), |kind| ("a_1".to_owned(), kind));
        counters.index(key(IndexKind::Inverted), 10, 7);
        counters.index(key(IndexKind::Inverted), 5, 5);
        counters.index(key(IndexKind::Skipping), 1, 0);
        let indexes = counters.scan.indexes.lock();
        assert_eq!(indexes[&key(IndexKind::Inverted)], IndexUse { examined: 15, skipped: 12 });
        assert_eq!(indexes[&key(IndexKind::Skipping)], IndexUse { examined: 1, skipped: 0 });
    }
}

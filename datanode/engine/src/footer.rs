//! Footers of files, decoded, and the bytes of files, checked.
//!
//! Every byte passes a checksum before it is decoded: the tail of a file (indexes and footer) as a
//! whole against the manifest, everything before it in blocks against the footer.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::{ObjectStore, ObjectStoreExt};
use parking_lot::Mutex;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use partita_proto::service::ScanStats;

use crate::cache::FileCache;
use crate::error::{EngineError, Result};
use crate::file::{FileHandle, FileId};
use crate::sink::BLOCK_BYTES;
use crate::writer::BLOCKS_KEY;

/// A file's footer and page index, and the checksums of its blocks.
#[derive(Debug)]
pub(crate) struct Footer {
    pub(crate) metadata: ArrowReaderMetadata,
    blocks: Vec<u32>,
}

/// The footers that were used last. Bounded.
pub(crate) type Footers = FileCache<Footer>;

impl Footers {
    /// A file's footer, read if it is not at hand.
    pub(crate) async fn of(
        &self,
        store: &Arc<dyn ObjectStore>,
        file: &FileHandle,
    ) -> Result<Arc<Footer>> {
        if let Some(footer) = self.get(file.meta.id) {
            return Ok(footer);
        }
        let footer = Arc::new(read_footer(store, file).await?);
        let bytes = footer.metadata.metadata().memory_size() + footer.blocks.len() * 4;
        self.insert(file.meta.id, Arc::clone(&footer), bytes as u64);
        Ok(footer)
    }
}

async fn read_footer(store: &Arc<dyn ObjectStore>, file: &FileHandle) -> Result<Footer> {
    let meta = &file.meta;
    let corrupted = |what: &str| EngineError::Corrupted(format!("file {}: {what}", file.path));
    let tail = read(store, file, meta.tail..meta.bytes).await?;
    if crc32c::crc32c(&tail) != meta.tail_checksum {
        return Err(corrupted("the footer fails its checksum"));
    }
    let failed = |error| EngineError::reading(&file.path, &error);
    let mut reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
    reader.try_parse_sized(&tail, meta.bytes).map_err(failed)?;
    let metadata = Arc::new(reader.finish().map_err(failed)?);
    let entries = metadata.file_metadata().key_value_metadata();
    let text = entries.and_then(|entries| entries.iter().find(|entry| entry.key == BLOCKS_KEY));
    let text = text.and_then(|entry| entry.value.as_deref());
    let blocks = text.and_then(parse_sums).ok_or_else(|| corrupted("it has no block checksums"))?;
    if blocks.len() as u64 != meta.tail.div_ceil(BLOCK_BYTES as u64) {
        return Err(corrupted("it has the wrong number of block checksums"));
    }
    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required);
    let metadata = ArrowReaderMetadata::try_new(metadata, options).map_err(failed)?;
    Ok(Footer { metadata, blocks })
}

fn parse_sums(text: &str) -> Option<Vec<u32>> {
    let digits = text.as_bytes().chunks(8);
    digits.map(|digits| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()).collect()
}

/// Reads a range of a file, all of it.
async fn read(store: &Arc<dyn ObjectStore>, file: &FileHandle, range: Range<u64>) -> Result<Bytes> {
    let bytes = store.get_range(&file.path, range.clone()).await;
    let bytes = bytes.map_err(|error| read_error(file, &error))?;
    if bytes.len() as u64 != range.end - range.start {
        return Err(EngineError::Corrupted(format!("file {} is too short", file.path)));
    }
    Ok(bytes)
}

/// A file that is gone, or shorter than it was, is corrupted data; anything else is the store's.
fn read_error(file: &FileHandle, error: &object_store::Error) -> EngineError {
    match error {
        object_store::Error::NotFound { .. } => {
            EngineError::Corrupted(format!("file {} is missing", file.path))
        }
        error => EngineError::store(&file.path, error),
    }
}

/// Reads a whole file and compares it with its checksum.
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

/// What a scan counts: for its caller, and for the partition as a whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) scan: Arc<ScanStats>,
    rows_scanned: Arc<AtomicU64>,
    /// Files that were read. Parts of a file may be read by several streams.
    files: Arc<Mutex<BTreeSet<FileId>>>,
}

impl Counters {
    /// Counters of a scan; rows also count to a total.
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
}

/// Gives a Parquet decoder the bytes of a file, each block checked.
pub(crate) struct BlockReader {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) file: Arc<FileHandle>,
    pub(crate) footer: Arc<Footer>,
    pub(crate) counters: Counters,
}

impl BlockReader {
    async fn read_checked(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let wanted: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        self.counters.bytes(wanted);
        let spans = block_spans(ranges, self.file.meta.tail)
            .ok_or_else(|| self.corrupted("its footer points behind its data"))?;
        let read = self.store.get_ranges(&self.file.path, &spans).await;
        let read = read.map_err(|error| read_error(&self.file, &error))?;
        for (span, bytes) in spans.iter().zip(&read) {
            self.check(span, bytes)?;
        }
        let part = |range: &Range<u64>| {
            let span = spans.partition_point(|span| span.end < range.end);
            let offset = range.start.checked_sub(spans.get(span)?.start)?;
            let start = usize::try_from(offset).ok()?;
            let end = start + usize::try_from(range.end - range.start).ok()?;
            (end <= read[span].len()).then(|| read[span].slice(start..end))
        };
        let parts: Option<Vec<Bytes>> = ranges.iter().map(part).collect();
        parts.ok_or_else(|| self.corrupted("a range of it could not be read"))
    }

    fn check(&self, span: &Range<u64>, bytes: &Bytes) -> Result<()> {
        if bytes.len() as u64 != span.end - span.start {
            return Err(self.corrupted("it is too short"));
        }
        let first = usize::try_from(span.start / BLOCK_BYTES as u64).unwrap_or(usize::MAX);
        for (number, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
            let expected = self.footer.blocks.get(first.saturating_add(number));
            if expected != Some(&crc32c::crc32c(block)) {
                let at = span.start + (number * BLOCK_BYTES) as u64;
                return Err(self.corrupted(&format!("the block at byte {at} fails its checksum")));
            }
        }
        Ok(())
    }

    fn corrupted(&self, what: &str) -> EngineError {
        EngineError::Corrupted(format!("file {}: {what}", self.file.path))
    }
}

/// The blocks that some ranges touch, as ascending ranges that do not; `None` when one leaves the
/// part of the file that has blocks.
fn block_spans(ranges: &[Range<u64>], end: u64) -> Option<Vec<Range<u64>>> {
    const BLOCK: u64 = BLOCK_BYTES as u64;
    let mut spans = Vec::with_capacity(ranges.len());
    for range in ranges {
        if range.start > range.end || range.end > end {
            return None;
        }
        let start = range.start / BLOCK * BLOCK;
        spans.push(start..range.end.next_multiple_of(BLOCK).min(end));
    }
    spans.sort_by_key(|span| span.start);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(spans.len());
    for span in spans {
        match joined.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => joined.push(span),
        }
    }
    Some(joined)
}

fn wrapped(error: EngineError) -> ParquetError {
    ParquetError::External(Box::new(error))
}

impl AsyncFileReader for BlockReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        async move {
            let mut bytes = self.read_checked(&[range]).await.map_err(wrapped)?;
            bytes.pop().ok_or_else(|| wrapped(self.corrupted("nothing could be read")))
        }
        .boxed()
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, parquet::errors::Result<Vec<Bytes>>> {
        async move { self.read_checked(&ranges).await.map_err(wrapped) }.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, parquet::errors::Result<Arc<ParquetMetaData>>> {
        let metadata = Arc::clone(self.footer.metadata.metadata());
        async move { Ok(metadata) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = BLOCK_BYTES as u64;

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "one range is what is meant")]
    fn ranges_are_read_by_whole_blocks_each_once() {
        let end = 3 * BLOCK + 10;
        assert_eq!(block_spans(&[5..10], end), Some(vec![0..BLOCK]));
        assert_eq!(block_spans(&[BLOCK..BLOCK + 1, 0..1], end), Some(vec![0..2 * BLOCK]));
        assert_eq!(
            block_spans(&[1..2, 3 * BLOCK + 1..end], end),
            Some(vec![0..BLOCK, 3 * BLOCK..end])
        );
        assert_eq!(block_spans(&[1..end + 1], end), None);
    }

    #[test]
    fn checksums_are_read_as_written() {
        assert_eq!(parse_sums("0000002affffffff"), Some(vec![42, u32::MAX]));
        assert_eq!(parse_sums(""), Some(vec![]));
        assert_eq!(parse_sums("zz00002a"), None);
    }
}

//! Reads files by blocks, checks them, and caches them for later reads.
//!
//! Small reads, such as the few pages of a point query, repeat. Their blocks are kept, already checked, in a cache that
//! all partitions of a node share, so that the next such query neither waits for a blocking thread nor computes
//! checksums. Blocks of large scans are not cached: they would evict the rest.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;

use crate::error::{EngineError, Result};
use crate::file::FileHandle;
use crate::file::cache::Recent;
use crate::file::footer::{Counters, Footer, read_error, read_tail};
use crate::sizes::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Reads of more bytes than this are not cached.
const KEPT_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// Cache of recently read, checked file blocks. Cheap to share between all partitions of a node.
#[derive(Debug)]
pub struct BlockCache(Recent<(u64, u64), Bytes>);

impl BlockCache {
    /// A cache of at most `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self(Recent::new(bytes_max))
    }
}

/// Reads the bytes of a file for a Parquet decoder, and checks each block.
pub(crate) struct BlockReader {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) file: Arc<FileHandle>,
    pub(crate) footer: Arc<Footer>,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) counters: Counters,
}

impl BlockReader {
    /// Reads ranges of the file's blocks, and checks every byte.
    ///
    /// # Errors
    /// [`EngineError::Corrupted`] when a block fails its checksum, or a range leaves the blocks.
    pub(crate) async fn read_checked(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        self.counters.bytes(bytes);
        let spans = block_spans(ranges, self.file.meta.tail)
            .ok_or_else(|| self.corrupted("its footer points beyond its data"))?;
        let (mut pieces, missing) = self.kept(&spans);
        if !missing.is_empty() {
            pieces.extend(self.fetch(missing).await?);
            pieces.sort_by_key(|piece| piece.start);
        }
        let parts: Option<Vec<Bytes>> = ranges.iter().map(|range| cut(&pieces, range)).collect();
        parts.ok_or_else(|| self.corrupted("a range of it could not be read"))
    }

    /// Reads the blocks of some ranges into the cache in one go, unless they are many, for readers that would wait for
    /// one range after the other. Errors are left to these readers, and so is the count of bytes.
    pub(crate) async fn prefetch(&self, ranges: &[Range<u64>]) {
        let Some(spans) = block_spans(ranges, self.file.meta.tail) else { return };
        let bytes: u64 = spans.iter().map(|span| span.end - span.start).sum();
        if bytes > KEPT_BYTES_MAX {
            return;
        }
        let (_, missing) = self.kept(&spans);
        if missing.is_empty() {
            return;
        }
        if let Err(error) = self.fetch(missing).await {
            tracing::debug!(file = %self.file.path, %error, "cannot read blocks ahead");
        }
    }

    /// Cached blocks of the given spans, and the spans that are not cached.
    fn kept(&self, spans: &[Range<u64>]) -> (Vec<Piece>, Vec<Range<u64>>) {
        let (mut pieces, mut missing) = (Vec::new(), Vec::<Range<u64>>::new());
        for span in spans {
            let mut start = span.start;
            while start < span.end {
                let end = span.end.min(start + BLOCK);
                match self.cache.0.get((self.file.number, start / BLOCK)) {
                    Some(bytes) => pieces.push(Piece { start, bytes }),
                    None => match missing.last_mut() {
                        Some(last) if last.end == start => last.end = end,
                        _ => missing.push(start..end),
                    },
                }
                start = end;
            }
        }
        (pieces, missing)
    }

    /// Reads spans of blocks and checks them; caches them if they are few.
    async fn fetch(&self, spans: Vec<Range<u64>>) -> Result<Vec<Piece>> {
        let read = self.store.get_ranges(&self.file.path, &spans).await;
        let read = read.map_err(|error| read_error(&self.file, &error))?;
        let total: u64 = spans.iter().map(|span| span.end - span.start).sum();
        let mut pieces = Vec::with_capacity(spans.len());
        for (span, bytes) in spans.into_iter().zip(read) {
            check(&self.file, &self.footer, &span, &bytes)?;
            if total <= KEPT_BYTES_MAX {
                for (number, block) in (span.start / BLOCK..).zip(bytes.chunks(BLOCK_BYTES)) {
                    // A copy, so that a cached block does not keep its neighbours in memory.
                    let block = Bytes::copy_from_slice(block);
                    let size = block.len() as u64;
                    self.cache.0.insert((self.file.number, number), block, size);
                }
            }
            pieces.push(Piece { start: span.start, bytes });
        }
        Ok(pieces)
    }

    fn corrupted(&self, problem: &str) -> EngineError {
        corrupted(&self.file, problem)
    }
}

fn corrupted(file: &FileHandle, problem: &str) -> EngineError {
    EngineError::Corrupted(format!("file {}: {problem}", file.path))
}

/// Checks the blocks of a span that begins at a block boundary.
fn check(file: &FileHandle, footer: &Footer, span: &Range<u64>, bytes: &Bytes) -> Result<()> {
    if bytes.len() as u64 != span.end - span.start {
        return Err(corrupted(file, "it is too short"));
    }
    let first = usize::try_from(span.start / BLOCK_BYTES as u64).unwrap_or(usize::MAX);
    for (number, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
        let expected = footer.blocks.get(first.saturating_add(number));
        if expected != Some(&crc32c::crc32c(block)) {
            let offset = span.start + (number * BLOCK_BYTES) as u64;
            return Err(corrupted(file, &format!("the block at byte {offset} fails its checksum")));
        }
    }
    Ok(())
}

/// Reads any range of a file, checked, bypassing all caches: for readers of the whole file.
pub(crate) async fn read_through(
    store: &Arc<dyn ObjectStore>,
    file: &FileHandle,
    footer: &Footer,
    range: Range<u64>,
) -> Result<Bytes> {
    let meta = &file.meta;
    if range.start > range.end || range.end > meta.bytes {
        return Err(EngineError::InvalidInput(format!(
            "bytes {} to {} of file {}, which has {}",
            range.start, range.end, file.path, meta.bytes
        )));
    }
    let mut pieces = Vec::with_capacity(2);
    let (start, end) = (range.start / BLOCK * BLOCK, range.end.next_multiple_of(BLOCK));
    if start < meta.tail {
        let span = start..end.min(meta.tail);
        let read = store.get_range(&file.path, span.clone()).await;
        let bytes = read.map_err(|error| read_error(file, &error))?;
        check(file, footer, &span, &bytes)?;
        pieces.push(Piece { start, bytes });
    }
    if range.end > meta.tail {
        pieces.push(Piece { start: meta.tail, bytes: read_tail(store, file).await? });
    }
    cut(&pieces, &range).ok_or_else(|| corrupted(file, "a range of it could not be read"))
}

/// Bytes of a file, and their offset.
struct Piece {
    start: u64,
    bytes: Bytes,
}

/// A range assembled from pieces, which are ascending and do not overlap; copied only if it spans several. `None` when
/// the pieces do not cover it.
fn cut(pieces: &[Piece], range: &Range<u64>) -> Option<Bytes> {
    let end_of = |piece: &Piece| piece.start + piece.bytes.len() as u64;
    let mut position = pieces.partition_point(|piece| end_of(piece) <= range.start);
    let length = usize::try_from(range.end - range.start).ok()?;
    if length == 0 {
        return Some(Bytes::new());
    }
    let first = pieces.get(position)?;
    let offset = usize::try_from(range.start.checked_sub(first.start)?).ok()?;
    if offset + length <= first.bytes.len() {
        return Some(first.bytes.slice(offset..offset + length));
    }
    let mut whole = Vec::with_capacity(length);
    whole.extend_from_slice(&first.bytes[offset..]);
    while whole.len() < length {
        let end = end_of(&pieces[position]);
        position += 1;
        let next = pieces.get(position).filter(|next| next.start == end)?;
        let more = next.bytes.len().min(length - whole.len());
        whole.extend_from_slice(&next.bytes[..more]);
    }
    Some(whole.into())
}

/// The blocks that some ranges touch, as ascending, disjoint spans; `None` when a range leaves the part of the file
/// that has blocks.
fn block_spans(ranges: &[Range<u64>], end: u64) -> Option<Vec<Range<u64>>> {
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
    fn ranges_are_cut_out_of_pieces_and_across_them() {
        let bytes: Vec<u8> = (0..30).collect();
        let piece = |range: Range<u8>| Piece {
            start: u64::from(range.start),
            bytes: Bytes::copy_from_slice(&bytes[usize::from(range.start)..usize::from(range.end)]),
        };
        let pieces = [piece(0..5), piece(5..10), piece(10..12), piece(20..30)];
        for start in 0..12_u64 {
            for end in start..=12 {
                let (from, to) = (usize::try_from(start).unwrap(), usize::try_from(end).unwrap());
                assert_eq!(cut(&pieces, &(start..end)).as_deref(), Some(&bytes[from..to]));
            }
        }
        assert_eq!(cut(&pieces, &(21..30)).as_deref(), Some(&bytes[21..30]));
        assert!(cut(&pieces, &(11..21)).is_none(), "there is a gap");
        assert!(cut(&pieces, &(25..31)).is_none(), "there is no more");
        assert!(cut(&pieces, &(13..14)).is_none());
    }
}

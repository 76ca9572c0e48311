//! Encodes a column chunk that consists of a dictionary and pages of indices, with its page indexes and metadata.
//!
//! The result equals that of the `parquet` crate's own writer for such a chunk: the dictionary first, data pages of
//! version 2, statistics of the chunk and of each page, histograms of levels. Offsets count from the chunk's first
//! byte; the caller that appends it to a row group shifts them.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{
    BoundaryOrder, Compression, Encoding, EncodingMask, LogicalType, PageType, ZstdLevel,
};
use parquet::column::page::{CompressedPage, Page, PageWriteSpec, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::errors::Result;
use parquet::file::metadata::{
    ColumnChunkMetaData, ColumnIndexBuilder, LevelHistogram, OffsetIndexBuilder, PageEncodingStats,
};
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use crate::parquet::bounds::{lower, upper};

/// Compression level of zstd.
const ZSTD_LEVEL: i32 = 1;
/// Minimum bytes of a page to be compressed: a page with a single run has three.
const COMPRESSED_MIN: usize = 64;

/// Compressor for the pages of a file's chunks, one after the other.
pub(crate) enum Codec {
    Lz4,
    Zstd(zstd::bulk::Compressor<'static>),
}

impl Codec {
    pub(crate) fn zstd() -> Result<Self> {
        Ok(Self::Zstd(zstd::bulk::Compressor::new(ZSTD_LEVEL)?))
    }

    /// The compression to be recorded in the footer.
    pub(crate) fn compression(&self) -> Result<Compression> {
        Ok(match self {
            Self::Lz4 => Compression::LZ4_RAW,
            Self::Zstd(_) => Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?),
        })
    }

    fn compress(&mut self, bytes: &[u8]) -> Result<Vec<u8>> {
        match self {
            Self::Lz4 => Ok(lz4_flex::block::compress(bytes)),
            Self::Zstd(compressor) => Ok(compressor.compress(bytes)?),
        }
    }
}

/// A complete page, before encoding.
pub(crate) struct Rows<'a> {
    pub(crate) rows: u32,
    pub(crate) nulls: u32,
    /// Definition levels (which rows are not NULL), encoded; empty in a column without NULLs.
    pub(crate) levels: Vec<u8>,
    /// Dictionary indices of the other rows' values, encoded.
    pub(crate) indices: Vec<u8>,
    /// Smallest and largest value; `None` if all rows are NULL.
    pub(crate) bounds: Option<(&'a [u8], &'a [u8])>,
    /// Bytes of all values.
    pub(crate) bytes: i64,
}

/// Collects the pages of one chunk.
pub(crate) struct ChunkWriter {
    descr: ColumnDescPtr,
    properties: WriterPropertiesPtr,
    pages: Vec<CompressedPage>,
    pages_bytes: usize,
    column_index: ColumnIndexBuilder,
    offset_index: OffsetIndexBuilder,
    rows: u64,
    nulls: u64,
    bytes: i64,
    bounds: Option<(Vec<u8>, Vec<u8>)>,
    /// Bounds of the last page that has any.
    page_bounds: Option<(Vec<u8>, Vec<u8>)>,
    ascending: bool,
    descending: bool,
}

impl ChunkWriter {
    pub(crate) fn new(descr: ColumnDescPtr, properties: WriterPropertiesPtr) -> Self {
        Self {
            column_index: ColumnIndexBuilder::new(descr.physical_type()),
            offset_index: OffsetIndexBuilder::new(),
            descr,
            properties,
            pages: Vec::new(),
            pages_bytes: 0,
            rows: 0,
            nulls: 0,
            bytes: 0,
            bounds: None,
            page_bounds: None,
            ascending: true,
            descending: true,
        }
    }

    /// Bytes of the pages so far.
    pub(crate) fn bytes(&self) -> usize {
        self.pages_bytes
    }

    fn text(&self) -> bool {
        self.descr.logical_type_ref() == Some(&LogicalType::String)
    }

    /// True if the column may have NULLs.
    pub(crate) fn nullable(&self) -> bool {
        self.descr.max_def_level() > 0
    }

    fn levels(&self, nulls: u64, rows: u64) -> Option<LevelHistogram> {
        let counts = [nulls, rows - nulls].map(|count| i64::try_from(count).unwrap_or(i64::MAX));
        self.nullable().then(|| LevelHistogram::from(counts.to_vec()))
    }

    /// Appends a page.
    pub(crate) fn page(&mut self, codec: &mut Codec, page: Rows<'_>) -> Result<()> {
        self.describe(&page);
        let Rows { rows, nulls, levels, indices, .. } = page;
        let plain_bytes = levels.len() + indices.len();
        let def_levels_byte_len = u32::try_from(levels.len())?;
        let compressed = if indices.len() < COMPRESSED_MIN {
            None
        } else {
            Some(codec.compress(&indices)?).filter(|bytes| bytes.len() < indices.len())
        };
        let mut bytes = levels;
        bytes.extend_from_slice(compressed.as_ref().unwrap_or(&indices));
        self.pages_bytes += bytes.len();
        let page = Page::DataPageV2 {
            buf: bytes.into(),
            num_values: rows,
            encoding: Encoding::RLE_DICTIONARY,
            num_nulls: nulls,
            num_rows: rows,
            def_levels_byte_len,
            rep_levels_byte_len: 0,
            is_compressed: compressed.is_some(),
            statistics: None,
        };
        self.pages.push(CompressedPage::new(page, plain_bytes));
        Ok(())
    }

    /// Adds a page to the page indexes and to the chunk's statistics.
    fn describe(&mut self, page: &Rows<'_>) {
        let (text, bytes_max) = (self.text(), self.properties.column_index_truncate_length());
        let nulls = i64::from(page.nulls);
        match page.bounds {
            // A page of NULLs only has no bounds. Otherwise compare its bounds with the last page's, for the order of
            // pages, and extend those of the chunk.
            None => self.column_index.append(true, Vec::new(), Vec::new(), nulls),
            Some((min, max)) => {
                let (shown_min, _) = lower(min, text, bytes_max);
                let (shown_max, _) = upper(max, text, bytes_max);
                self.column_index.append(false, shown_min, shown_max, nulls);
                let (before_min, before_max) =
                    self.page_bounds.get_or_insert_with(|| (min.to_vec(), max.to_vec()));
                self.ascending &= &before_min[..] <= min && &before_max[..] <= max;
                self.descending &= &before_min[..] >= min && &before_max[..] >= max;
                min.clone_into(before_min);
                max.clone_into(before_max);
                let (all_min, all_max) =
                    self.bounds.get_or_insert_with(|| (min.to_vec(), max.to_vec()));
                if min < &all_min[..] {
                    min.clone_into(all_min);
                }
                if max > &all_max[..] {
                    max.clone_into(all_max);
                }
            }
        }
        // Counts and histograms, of the page and of the chunk.
        let levels = self.levels(page.nulls.into(), page.rows.into());
        self.column_index.append_histograms(&None, &levels);
        self.offset_index.append_row_count(page.rows.into());
        self.offset_index.append_unencoded_byte_array_data_bytes(Some(page.bytes));
        self.rows += u64::from(page.rows);
        self.nulls += u64::from(page.nulls);
        self.bytes += page.bytes;
    }

    /// Encodes the chunk. `dictionary` holds `values` values, each preceded by its length.
    pub(crate) fn finish(
        mut self,
        codec: &mut Codec,
        dictionary: &[u8],
        values: usize,
    ) -> Result<(Bytes, ColumnCloseResult)> {
        // The dictionary page comes first, then the data pages, whose offsets go into the offset index.
        let page = Page::DictionaryPage {
            buf: codec.compress(dictionary)?.into(),
            num_values: u32::try_from(values)?,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        };
        let mut output = TrackedWrite::new(Vec::with_capacity(self.pages_bytes + dictionary.len()));
        let mut writer = SerializedPageWriter::new(&mut output);
        let written = writer.write_page(CompressedPage::new(page, dictionary.len()))?;
        let (mut plain_bytes, mut bytes) = (written.uncompressed_size, written.compressed_size);
        let (mut data_offset, mut pages) = (None, 0);
        for page in std::mem::take(&mut self.pages) {
            let PageWriteSpec { offset, compressed_size, uncompressed_size, .. } =
                writer.write_page(page)?;
            let offset = i64::try_from(offset)?;
            let size = i32::try_from(compressed_size)?;
            self.offset_index.append_offset_and_size(offset, size);
            data_offset.get_or_insert(offset);
            plain_bytes += uncompressed_size;
            bytes += compressed_size;
            pages += 1;
        }
        output.flush()?;
        // Metadata as the crate's writer records it; offsets are relative to the chunk.
        let encodings = [Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY];
        let counted = |page_type, encoding, count| PageEncodingStats { page_type, encoding, count };
        let metadata = ColumnChunkMetaData::builder(Arc::clone(&self.descr))
            .set_compression(codec.compression()?)
            .set_encodings_mask(EncodingMask::new_from_encodings(encodings.iter()))
            .set_page_encoding_stats(vec![
                counted(PageType::DICTIONARY_PAGE, Encoding::PLAIN, 1),
                counted(PageType::DATA_PAGE_V2, Encoding::RLE_DICTIONARY, pages),
            ])
            .set_total_compressed_size(i64::try_from(bytes)?)
            .set_total_uncompressed_size(i64::try_from(plain_bytes)?)
            .set_num_values(i64::try_from(self.rows)?)
            .set_data_page_offset(data_offset.unwrap_or_default())
            .set_dictionary_page_offset(Some(0))
            .set_statistics(self.statistics())
            .set_unencoded_byte_array_data_bytes(Some(self.bytes))
            .set_definition_level_histogram(self.levels(self.nulls, self.rows))
            .build()?;
        // The column index says whether the pages are in order of their bounds.
        self.column_index.set_boundary_order(match (self.ascending, self.descending) {
            (true, _) => BoundaryOrder::ASCENDING,
            (false, true) => BoundaryOrder::DESCENDING,
            (false, false) => BoundaryOrder::UNORDERED,
        });
        let close = ColumnCloseResult {
            bytes_written: bytes as u64,
            rows_written: self.rows,
            metadata,
            bloom_filter: None,
            column_index: Some(self.column_index.build()?),
            offset_index: Some(self.offset_index.build()),
        };
        Ok((output.into_inner()?.into(), close))
    }

    fn statistics(&self) -> Statistics {
        let (text, bytes_max) = (self.text(), self.properties.statistics_truncate_length());
        let min = self.bounds.as_ref().map(|(min, _)| lower(min, text, bytes_max));
        let max = self.bounds.as_ref().map(|(_, max)| upper(max, text, bytes_max));
        let exact = |bound: &Option<(Vec<u8>, bool)>| bound.as_ref().is_some_and(|bound| !bound.1);
        let (min_exact, max_exact) = (exact(&min), exact(&max));
        let bound = |bound: Option<(Vec<u8>, bool)>| bound.map(|(bytes, _)| ByteArray::from(bytes));
        let statistics =
            ValueStatistics::new(bound(min), bound(max), None, Some(self.nulls), false)
                .with_min_is_exact(min_exact)
                .with_max_is_exact(max_exact);
        Statistics::ByteArray(statistics)
    }
}

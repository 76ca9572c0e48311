//! Sizes of the parts of a file, and the keys of the footer's own entries: shared by the modules that write,
//! check and read files.

// With the small sizes of unit tests, few rows reach all the limits that these sizes set in production.

/// Rows of the batches that scans yield and that merging works on: large enough to amortise the work per batch, small
/// enough for a batch's columns to stay in the CPU's cache.
pub(crate) const BATCH_ROWS: usize = if cfg!(test) { 5 } else { 8192 };
/// Rows of a row group: the unit of parallel reading, and the amount that a reader buffers at once.
pub(crate) const ROW_GROUP_ROWS: usize = if cfg!(test) { 16 } else { 128 * 1024 };
/// Rows of a page: the smallest unit that a selective scan decodes.
pub(crate) const PAGE_ROWS: usize = if cfg!(test) { 4 } else { 8192 };
/// Rows of a page in files with indexes, which name few rows: for each of them a page is decoded. Half as many rows would
/// halve that, but cost a tenth of a table of texts, whose pages are compressed one by one. The blocks of bloom filters
/// have by default half as many rows, or two and a half times as many.
pub(crate) const INDEXED_PAGE_ROWS: usize = if cfg!(test) { 2 } else { 4096 };

/// Bytes that one checksum covers.
pub(crate) const BLOCK_BYTES: usize = 64 * 1024;
/// Key of the footer's entry with the blocks' checksums, eight hexadecimal digits each.
pub(crate) const BLOCKS_KEY: &str = "partita.blocks";
/// Key of the footer's entry with the sketch of the file's series (`file/series.rs`).
pub(crate) const SERIES_KEY: &str = "partita.series";
/// Key of the footer's entry with the directory of the file's indexes (`index/directory.rs`).
pub(crate) const INDEXES_KEY: &str = "partita.indexes.2";
/// The same key where all segments are in their former form. Builds that know no other form do not see the new key, and
/// read such files without indexes.
pub(crate) const FORMER_INDEXES_KEY: &str = "partita.indexes";
/// Key of the footer's entry with the measures of the file's rows (`file/measures.rs`).
pub(crate) const MEASURES_KEY: &str = "partita.measures";

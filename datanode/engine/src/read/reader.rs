//! Reads rows of one file: skips row groups, pages and rows that cannot be wanted, by key range, statistics and
//! indexes; evaluates predicates before the other columns are decoded.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::datatypes::{DataType, SchemaRef, UInt64Type};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::ObjectStore;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::arrow::arrow_reader::{ArrowPredicate, ArrowPredicateFn, RowFilter, RowSelection};
use parquet::arrow::{ParquetRecordBatchStreamBuilder, ProjectionMask};
use parquet::file::metadata::ParquetMetaData;
use partita_proto::domain::{Domain, Domains};
use partita_proto::key::Keys;
use partita_proto::range::KeyRange;
use partita_proto::value::Value;

use crate::error::{EngineError, Result};
use crate::file::FileEntry;
use crate::file::blocks::{BlockCache, BlockReader};
use crate::file::footer::{Counters, Footer, Footers};
use crate::index::cache::IndexCache;
use crate::read::indexed::{Answers, GROUP_ROWS_MIN, Segments, group_rows, group_starts};
use crate::read::questions::Prepared;
use crate::read::wanted::{BySeries, Wanted};
use crate::rows::layout::{Layout, cast_column};
use crate::sizes::BATCH_ROWS;

/// A selection is sparse if it has less than one of so many rows.
const SPARSE_ROWS: usize = if cfg!(test) { 4 } else { 16 };

/// Access to the files of a partition.
#[derive(Clone)]
pub(crate) struct FileReader {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) footers: Arc<Footers>,
    pub(crate) blocks: Arc<BlockCache>,
    pub(crate) counters: Counters,
    /// Layout that supplies columns which a file does not have.
    pub(crate) layout: Arc<Layout>,
    /// Index of rows by series, for readers of few series.
    pub(crate) series: Option<BySeries>,
    /// Cache of the segments of indexes, for readers that use the files' indexes.
    pub(crate) indexes: Option<Arc<IndexCache>>,
}

/// Rows and columns to be read from a file.
#[derive(Clone)]
pub(crate) struct Read {
    /// Schema of the batches; [`Layout::adapt`] supplies columns that the file does not have.
    pub(crate) schema: SchemaRef,
    /// Domains of the rows to be returned. They exclude row groups and pages, and for the remaining rows they are
    /// evaluated before other columns are decoded.
    pub(crate) domains: Domains,
    /// Key ranges; row groups outside need not be read.
    pub(crate) ranges: Arc<[KeyRange]>,
    /// Row groups to be read.
    pub(crate) groups: Range<usize>,
    /// Tests beside the domains, for indexes; rows that fail them need not be returned.
    pub(crate) probes: Arc<[Arc<Prepared>]>,
    /// Keys to be returned, ascending; `None`: all.
    pub(crate) keys: Option<Arc<Keys>>,
}

/// Batches of a file, in key order.
pub(crate) type BatchStream = BoxStream<'static, Result<RecordBatch>>;

impl FileReader {
    /// Opens a file.
    pub(crate) async fn open(&self, file: &FileEntry, read: Read) -> Result<BatchStream> {
        let selected = match &self.series {
            Some(series) => series.wanted(self, file, &read).await?,
            None => None,
        };
        self.open_with(file, read, selected).await
    }

    /// Opens a file; `selected` restricts it to some rows, if they are known already.
    pub(crate) async fn open_with(
        &self,
        file: &FileEntry,
        mut read: Read,
        selected: Option<Wanted>,
    ) -> Result<BatchStream> {
        // Statistics of the columns with domains exclude row groups.
        let footer = self.footer(file).await?;
        let metadata = footer.metadata.metadata();
        let series_rows = selected.map(|selected| {
            read.domains = selected.domains;
            selected.rows
        });
        let mut columns = Vec::new();
        for (name, domain) in read.domains.iter() {
            columns.push(ColumnStatistics::new(
                &footer,
                &self.layout,
                (name, domain),
                &read.groups,
            )?);
        }
        let in_range = |group: &usize| file.group_overlaps(*group, &read.ranges);
        let may_match = |group: &usize| columns.iter().all(|c| c.groups[*group].may_match);
        let candidates = read.groups.clone();
        let mut groups: Vec<usize> =
            candidates.clone().filter(in_range).filter(may_match).collect();
        let mut rows = series_rows.as_ref().map(|rows| rows_of_groups(metadata, &mut groups, rows));
        // The file's indexes exclude rows of the remaining groups, and groups.
        let Answers { rows: indexed, exact } =
            self.indexed_rows(file, &footer, &read, &groups).await?;
        if let Some(indexed) = indexed {
            let remaining = match &series_rows {
                Some(series_rows) => intersect_ranges(series_rows, &indexed),
                None => indexed,
            };
            rows = Some(rows_of_groups(metadata, &mut groups, &remaining));
            // All these rows are in the domains that were answered exactly. The first tests are those of the domains.
            for (column, exact) in columns.iter_mut().zip(exact) {
                if exact {
                    groups.iter().for_each(|group| column.groups[*group].proven = true);
                }
            }
        }
        let stats = &self.counters.scan;
        let pruned = (candidates.len() - groups.len()) as u64;
        stats.row_groups_pruned.fetch_add(pruned, atomic::Ordering::Relaxed);
        if groups.is_empty() {
            if candidates == (0..file.row_groups()) {
                stats.files_pruned.fetch_add(1, atomic::Ordering::Relaxed);
            }
            return Ok(futures::stream::empty().boxed());
        }
        self.counters.file(file.meta().id);
        // Statistics of pages exclude rows of the remaining groups. Domains that statistics or indexes prove need no
        // filter, so that their columns are not read unless they are returned.
        let filters = filters(&footer, &self.layout, &read, &columns, &groups);
        let pages = select_pages(metadata, &columns, &groups)?;
        let selection = match (rows, pages) {
            (Some(rows), Some(pages)) => Some(rows.intersection(&pages)),
            (rows, pages) => rows.or(pages),
        };
        self.start(file, &footer, read.schema, Rows { groups, selection, filters }).await
    }

    /// Rows of a file that may be wanted, by row group: those of the wanted series, if these are known, else all rows of
    /// groups that statistics do not exclude; and the domains that are still to be applied.
    pub(crate) async fn rows_by_group(
        &self,
        file: &FileEntry,
        read: &Read,
    ) -> Result<(Vec<(usize, Range<usize>)>, Domains)> {
        let selected = match &self.series {
            Some(series) => series.wanted(self, file, read).await?,
            None => None,
        };
        let (selected, domains) = match selected {
            Some(Wanted { rows, domains }) => (Some(rows), domains),
            None => (None, read.domains.clone()),
        };
        let footer = self.footer(file).await?;
        let mut columns = Vec::new();
        for restricted in domains.iter() {
            columns.push(ColumnStatistics::new(&footer, &self.layout, restricted, &read.groups)?);
        }
        let may_match = |group: &usize| {
            file.group_overlaps(*group, &read.ranges)
                && columns.iter().all(|column| column.groups[*group].may_match)
        };
        let groups: Vec<usize> = read.groups.clone().filter(may_match).collect();
        let pruned = (read.groups.len() - groups.len()) as u64;
        self.counters.scan.row_groups_pruned.fetch_add(pruned, atomic::Ordering::Relaxed);
        let starts = group_starts(footer.metadata.metadata());
        let mut rows = Vec::new();
        for group in groups {
            let whole = starts[group]..starts[group + 1];
            match &selected {
                None => rows.push((group, whole)),
                Some(selected) => {
                    let parts = intersect_ranges(selected, std::slice::from_ref(&whole));
                    rows.extend(parts.into_iter().map(|part| (group, part)));
                }
            }
        }
        drop(columns);
        Ok((rows, domains))
    }

    /// Opens a file for some rows, given by ascending row numbers.
    pub(crate) async fn open_rows(
        &self,
        file: &FileEntry,
        schema: SchemaRef,
        rows: &[u32],
    ) -> Result<BatchStream> {
        let footer = self.footer(file).await?;
        let (groups, selection) = select_rows(footer.metadata.metadata(), rows);
        self.counters.file(file.meta().id);
        let rows = Rows { groups, selection: Some(selection), filters: Vec::new() };
        self.start(file, &footer, schema, rows).await
    }

    /// Numbers of the rows of some row groups that may pass all tests, by statistics and indexes; ascending. `None`
    /// when no index tells, or the file has too many rows for numbers of 32 bits. All rows of a small group may pass.
    pub(crate) async fn candidate_rows(
        &self,
        file: &FileEntry,
        ranges: &[KeyRange],
        groups: &Range<usize>,
        tests: &[Arc<Prepared>],
    ) -> Result<Option<Vec<u32>>> {
        let Some(cache) = &self.indexes else { return Ok(None) };
        let footer = self.footer(file).await?;
        let metadata = footer.metadata.metadata();
        let mut columns = Vec::new();
        for restricted in tests.iter().filter_map(|test| test.domain()) {
            columns.push(ColumnStatistics::new(&footer, &self.layout, restricted, groups)?);
        }
        let in_range = |group: &usize| file.group_overlaps(*group, ranges);
        let may_match = |group: &usize| columns.iter().all(|c| c.groups[*group].may_match);
        let groups: Vec<usize> = groups.clone().filter(in_range).filter(may_match).collect();
        let tests: Vec<&Prepared> = tests.iter().map(|test| &**test).collect();
        let blocks = self.block_reader(file, &footer);
        let answers = self.segments(file, &footer, &blocks, cache).answers(&tests, &groups).await?;
        let answers = answers.rows;
        let starts = group_starts(metadata);
        if starts.last().is_none_or(|rows| u32::try_from(*rows).is_err()) {
            return Ok(None);
        }
        let number = |row: usize| u32::try_from(row).unwrap_or(u32::MAX);
        let mut rows: Vec<u32> = Vec::new();
        for (group, answer) in groups.iter().zip(answers) {
            let (start, end) = (starts[*group], starts[*group + 1]);
            match answer {
                Some(answer) => rows.extend(answer.iter().map(|row| number(start) + row)),
                None if end - start < GROUP_ROWS_MIN => rows.extend(number(start)..number(end)),
                None => return Ok(None),
            }
        }
        Ok(Some(rows))
    }

    /// Rows of some row groups that may be wanted, by the file's indexes: row numbers, ascending, disjoint. The tests
    /// are those of the domains, in their order, and then the probes.
    async fn indexed_rows(
        &self,
        file: &FileEntry,
        footer: &Arc<Footer>,
        read: &Read,
        groups: &[usize],
    ) -> Result<Answers<Option<Vec<Range<usize>>>>> {
        let none = Answers { rows: None, exact: Vec::new() };
        let Some(cache) = &self.indexes else { return Ok(none) };
        if footer.indexes().indexes.is_empty() || groups.is_empty() {
            return Ok(none);
        }
        let domains = read.domains.iter();
        let domains: Vec<Prepared> =
            domains.map(|(name, domain)| Prepared::of_domain(name, domain)).collect();
        let tests: Vec<&Prepared> =
            domains.iter().chain(read.probes.iter().map(|probe| &**probe)).collect();
        let blocks = self.block_reader(file, footer);
        self.segments(file, footer, &blocks, cache).rows(&tests, groups).await
    }

    fn segments<'a>(
        &'a self,
        file: &'a FileEntry,
        footer: &'a Arc<Footer>,
        blocks: &'a BlockReader,
        cache: &'a IndexCache,
    ) -> Segments<'a> {
        let (layout, counters) = (&*self.layout, &self.counters);
        Segments { file, footer, blocks, cache, layout, counters }
    }

    /// A reader of a file's bytes: they come through the block cache, which checks them.
    fn block_reader(&self, file: &FileEntry, footer: &Arc<Footer>) -> BlockReader {
        BlockReader {
            store: Arc::clone(&self.store),
            file: Arc::clone(&file.handle),
            footer: Arc::clone(footer),
            cache: Arc::clone(&self.blocks),
            counters: self.counters.clone(),
        }
    }

    /// The footer of a file; checks that it has as many row groups as the manifest says.
    async fn footer(&self, file: &FileEntry) -> Result<Arc<Footer>> {
        let footer = self.footers.of(&self.store, &file.handle).await?;
        let groups = footer.metadata.metadata().num_row_groups();
        if groups != file.row_groups() {
            return Err(EngineError::Corrupted(format!(
                "file {} has {groups} row groups, the manifest says {}",
                file.handle.path,
                file.row_groups()
            )));
        }
        Ok(footer)
    }

    /// Starts to read some rows of a file.
    async fn start(
        &self,
        file: &FileEntry,
        footer: &Arc<Footer>,
        schema: SchemaRef,
        rows: Rows,
    ) -> Result<BatchStream> {
        let path = file.handle.path.clone();
        let reader = self.block_reader(file, footer);
        let mask = projection(footer, schema.fields().iter().map(|field| field.name()));
        let metadata = footer.metadata.metadata();
        let total: usize = rows.groups.iter().map(|group| group_rows(metadata, *group)).sum();
        let selected = rows.selection.as_ref().map_or(total, RowSelection::row_count);
        let is_sparse = selected.saturating_mul(SPARSE_ROWS) < total;
        // The crate reads one row group after the other, and waits for each of them.
        if is_sparse && rows.groups.len() > 1 {
            let ranges = first_ranges(metadata, &rows, &mask);
            reader.prefetch(&ranges).await;
        }
        let builder =
            ParquetRecordBatchStreamBuilder::new_with_metadata(reader, footer.metadata.clone());
        let mut builder =
            builder.with_batch_size(BATCH_ROWS).with_projection(mask).with_row_groups(rows.groups);
        if let Some(selection) = rows.selection {
            // The crate's buffers have as many rows as a batch.
            builder = builder.with_batch_size(selected.clamp(1, BATCH_ROWS));
            // To keep the columns of predicates for the output, the crate decodes all rows of each batch with a selected
            // one.
            if is_sparse {
                builder = builder.with_max_predicate_cache_size(0);
            }
            builder = builder.with_row_selection(selection);
        }
        // Count the rows before any predicate: the first one sees each row that is read once.
        let counts_output = rows.filters.is_empty();
        let mut filters = rows.filters.into_iter();
        if let Some(predicate) = filters.next() {
            let counters = self.counters.clone();
            let counted: Box<dyn ArrowPredicate> = Box::new(Counted { predicate, counters });
            let filters = std::iter::once(counted).chain(filters).collect();
            builder = builder.with_row_filter(RowFilter::new(filters));
        }
        let stream = builder.build().map_err(|error| EngineError::reading(&path, &error))?;
        // Supply the columns that the file does not have.
        let (counters, layout) = (self.counters.clone(), Arc::clone(&self.layout));
        let stream = stream.map_err(move |error| EngineError::reading(&path, &error));
        Ok(stream
            .and_then(move |batch| {
                if counts_output {
                    counters.rows(batch.num_rows());
                }
                futures::future::ready(layout.adapt(&batch, &schema))
            })
            .boxed())
    }
}

/// The rows of a file to be decoded.
struct Rows {
    groups: Vec<usize>,
    /// Selected rows of these groups; `None` for all.
    selection: Option<RowSelection>,
    filters: Vec<Box<dyn ArrowPredicate>>,
}

/// The parts of a file that are decoded first for some rows, whatever predicates say: dictionaries and pages of the first
/// predicate's columns, or without one those of `output`.
fn first_ranges(
    metadata: &ParquetMetaData,
    rows: &Rows,
    output: &ProjectionMask,
) -> Vec<Range<u64>> {
    let (Some(selection), Some(offset_index)) = (&rows.selection, metadata.offset_index()) else {
        return Vec::new();
    };
    let mask = rows.filters.first().map_or(output, |filter| filter.projection());
    let (mut rest, mut ranges) = (selection.clone(), Vec::new());
    for group in &rows.groups {
        let group_selection = rest.split_off(group_rows(metadata, *group));
        if !group_selection.selects_any() {
            continue;
        }
        let columns = metadata.row_group(*group).columns().iter().zip(&offset_index[*group]);
        let columns = columns.enumerate().filter(|(leaf, _)| mask.leaf_included(*leaf));
        for (_, (column, pages)) in columns {
            let pages = pages.page_locations();
            let (start, _) = column.byte_range();
            let first_page = pages.first().map_or(start, |page| page.offset.cast_unsigned());
            if start < first_page {
                ranges.push(start..first_page);
            }
            ranges.extend(group_selection.scan_ranges(pages));
        }
    }
    ranges
}

/// A predicate that counts the rows which it sees.
struct Counted {
    predicate: Box<dyn ArrowPredicate>,
    counters: Counters,
}

impl ArrowPredicate for Counted {
    fn projection(&self) -> &ProjectionMask {
        self.predicate.projection()
    }

    fn evaluate(&mut self, batch: RecordBatch) -> std::result::Result<BooleanArray, ArrowError> {
        self.counters.rows(batch.num_rows());
        self.predicate.evaluate(batch)
    }
}

/// Projection to the columns of these names that the file has.
fn projection<'a>(footer: &Footer, names: impl Iterator<Item = &'a String>) -> ProjectionMask {
    let schema = footer.metadata.schema();
    // Columns are flat: a column's position is that of its leaf.
    let leaves = names.filter_map(|name| schema.index_of(name).ok());
    ProjectionMask::leaves(footer.metadata.parquet_schema(), leaves)
}

/// Predicates on the key, if only some keys are wanted, and on columns, for the domains that the statistics do not
/// prove already.
fn filters(
    footer: &Footer,
    layout: &Arc<Layout>,
    read: &Read,
    columns: &[ColumnStatistics<'_>],
    groups: &[usize],
) -> Vec<Box<dyn ArrowPredicate>> {
    let mut filters: Vec<Box<dyn ArrowPredicate>> = Vec::new();
    filters.extend(read.keys.as_ref().map(|keys| key_filter(footer, layout, keys)));
    for (name, domain) in read.domains.iter() {
        let statistics = columns.iter().find(|column| column.name == name);
        if statistics.is_some_and(|column| groups.iter().all(|group| column.groups[*group].proven))
        {
            continue;
        }
        if footer.metadata.schema().index_of(name).is_err() {
            // One value in every row: nothing to decode. (If it is outside of the domain, no group is left.)
            continue;
        }
        let (domain, field) = (domain.clone(), layout.field(name));
        let mask = projection(footer, std::iter::once(&name.to_owned()));
        filters.push(Box::new(ArrowPredicateFn::new(mask, move |batch: RecordBatch| {
            // The file may be older than the type of its column.
            let values = match &field {
                Some(field) => cast_column(batch.column(0), field)
                    .map_err(|error| ArrowError::ExternalError(Box::new(error)))?,
                None => Arc::clone(batch.column(0)),
            };
            domain.mask(values.as_ref()).map_err(external)
        })));
    }
    filters
}

/// The predicate that a row's key is one of `keys`, which are ascending.
fn key_filter(footer: &Footer, layout: &Arc<Layout>, keys: &Arc<Keys>) -> Box<dyn ArrowPredicate> {
    let names: Vec<String> = layout.key_names().map(str::to_owned).collect();
    let mask = projection(footer, names.iter());
    let (layout, keys) = (Arc::clone(layout), Arc::clone(keys));
    Box::new(ArrowPredicateFn::new(mask, move |batch: RecordBatch| {
        let row_keys = layout.codec.encode_ordered(&batch).map_err(external)?;
        Ok(BooleanArray::from(members(&row_keys, &keys)))
    }))
}

fn external(error: partita_proto::Error) -> ArrowError {
    ArrowError::ExternalError(Box::new(EngineError::from(error)))
}

/// For each of some keys, true if it is one of `keys`; both ascend.
fn members(row_keys: &Keys, keys: &Keys) -> Vec<bool> {
    let mut members = vec![false; row_keys.len()];
    let (mut row, mut position) = (0, 0);
    while row < row_keys.len() && position < keys.len() {
        match row_keys.get(row).cmp(keys.get(position)) {
            Ordering::Less => row = seek(row_keys, row, keys.get(position)),
            Ordering::Greater => position = seek(keys, position, row_keys.get(row)),
            Ordering::Equal => {
                members[row] = true;
                row += 1;
            }
        }
    }
    members
}

/// Position of the first key, from `start` on, that is not below `key`; found by galloping.
fn seek(keys: &Keys, start: usize, key: &[u8]) -> usize {
    let (mut low, mut step) = (start, 1);
    while low + step <= keys.len() && keys.get(low + step - 1) < key {
        low += step;
        step *= 2;
    }
    let mut high = keys.len().min(low + step - 1);
    while low < high {
        let middle = low + (high - low) / 2;
        if keys.get(middle) < key {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Conclusions from the statistics about one column and its domain.
struct ColumnStatistics<'a> {
    name: String,
    domain: &'a Domain,
    /// By row group of the file; of groups that are not read nothing is known.
    groups: Vec<Verdict>,
    /// `None` when the file does not have the column.
    converter: Option<StatisticsConverter<'a>>,
}

#[derive(Clone, Copy)]
struct Verdict {
    /// True if a row may be in the domain.
    may_match: bool,
    /// True if every row is in the domain.
    proven: bool,
}

impl<'a> ColumnStatistics<'a> {
    /// For a column and its domain, in some row groups.
    fn new(
        footer: &'a Footer,
        layout: &Layout,
        (name, domain): (&str, &'a Domain),
        read: &Range<usize>,
    ) -> Result<Self> {
        let metadata = footer.metadata.metadata();
        let failed = |error| EngineError::reading(&name, &error);
        let schema = footer.metadata.schema();
        // A column that the file does not have holds one value in every row: its default, or NULL.
        if schema.index_of(name).is_err() {
            let matches = match layout.missing(name) {
                Some(value) => domain.mask(value.as_ref())?.value(0),
                None => domain.allows_null(),
            };
            let verdict = Verdict { may_match: matches, proven: matches };
            let groups = vec![verdict; metadata.num_row_groups()];
            return Ok(Self { name: name.to_owned(), domain, groups, converter: None });
        }
        let converter =
            StatisticsConverter::try_new(name, schema, footer.metadata.parquet_schema())
                .map_err(failed)?;
        let groups = metadata.row_groups().get(read.clone()).unwrap_or_default();
        let statistics = Statistics {
            min: converter.row_group_mins(groups).map_err(failed)?,
            max: converter.row_group_maxes(groups).map_err(failed)?,
            nulls: converter
                .row_group_null_counts(groups)
                .map(|nulls| Arc::new(nulls) as ArrayRef)
                .map_err(failed)?,
        };
        let unknown = Verdict { may_match: true, proven: false };
        let mut verdicts = vec![unknown; metadata.num_row_groups()];
        for (position, group) in groups.iter().enumerate() {
            let rows = u64::try_from(group.num_rows()).unwrap_or(u64::MAX);
            verdicts[read.start + position] = statistics.judge(domain, position, rows)?;
        }
        let groups = verdicts;
        Ok(Self { name: name.to_owned(), domain, groups, converter: Some(converter) })
    }
}

/// Statistics of row groups or pages.
struct Statistics {
    min: ArrayRef,
    max: ArrayRef,
    /// UInt64; NULL if unknown.
    nulls: ArrayRef,
}

impl Statistics {
    /// Judges one row group or page.
    fn judge(&self, domain: &Domain, position: usize, rows: u64) -> Result<Verdict> {
        let nulls = self.nulls.as_primitive::<UInt64Type>();
        let nulls = nulls.is_valid(position).then(|| nulls.value(position));
        if nulls == Some(rows) {
            let matches = domain.allows_null();
            return Ok(Verdict { may_match: matches, proven: matches });
        }
        let bound = |array: &ArrayRef| -> Result<Option<Value>> {
            let value = Value::from_array(array.as_ref(), position)?;
            Ok((!value.is_null()).then_some(value))
        };
        let (min, max) = (bound(&self.min)?, bound(&self.max)?);
        let may_match = domain.may_contain(min.as_ref(), max.as_ref(), nulls != Some(0));
        let float = matches!(self.min.data_type(), DataType::Float32 | DataType::Float64);
        // Statistics omit NaN, so they prove nothing about floats.
        let proven = !float
            && min.is_some()
            && max.is_some()
            && (nulls == Some(0) || domain.allows_null())
            && !domain.complement_not_null().may_contain(min.as_ref(), max.as_ref(), false);
        Ok(Verdict { may_match, proven })
    }
}

/// The rows of these row groups whose pages may hold wanted rows; `None` for all.
fn select_pages(
    metadata: &ParquetMetaData,
    columns: &[ColumnStatistics<'_>],
    groups: &[usize],
) -> Result<Option<RowSelection>> {
    let (Some(column_index), Some(offset_index)) =
        (metadata.column_index(), metadata.offset_index())
    else {
        return Ok(None);
    };
    let mut selection: Option<RowSelection> = None;
    for column in columns {
        let Some(converter) = &column.converter else { continue };
        // A column that matches in every row of all groups excludes no page.
        if groups.iter().all(|group| column.groups[*group].proven) {
            continue;
        }
        let Some(leaf) = converter.parquet_column_index() else { continue };
        let failed = |error| EngineError::reading(&column.name, &error);
        let statistics = Statistics {
            min: converter.data_page_mins(column_index, offset_index, groups).map_err(failed)?,
            max: converter.data_page_maxes(column_index, offset_index, groups).map_err(failed)?,
            nulls: converter
                .data_page_null_counts(column_index, offset_index, groups)
                .map(|nulls| Arc::new(nulls) as ArrayRef)
                .map_err(failed)?,
        };
        // Translate the pages that may match into ranges of rows, counted over the chosen groups.
        let (mut ranges, mut page, mut group_start, mut total) = (Vec::new(), 0, 0, 0);
        for group in groups {
            let rows = usize::try_from(metadata.row_group(*group).num_rows()).unwrap_or_default();
            let pages = offset_index[*group][leaf].page_locations();
            let starts = pages.iter().map(|page| usize::try_from(page.first_row_index));
            let starts: Vec<usize> = starts.map(|start| start.unwrap_or(rows)).collect();
            for (number, start) in starts.iter().enumerate() {
                let end = starts.get(number + 1).copied().unwrap_or(rows);
                let verdict =
                    statistics.judge(column.domain, page, end.saturating_sub(*start) as u64)?;
                if verdict.may_match {
                    ranges.push(group_start + start..group_start + end);
                }
                page += 1;
            }
            group_start += rows;
            total = group_start;
        }
        // A row must be selected by every column.
        let pages = RowSelection::from_consecutive_ranges(ranges.into_iter(), total);
        selection = Some(match selection {
            Some(selection) => selection.intersection(&pages),
            None => pages,
        });
    }
    Ok(selection)
}

/// Removes from `groups` (ascending) those without any of the given rows (by number, ascending, disjoint), and returns
/// the selection of these rows within the remaining groups.
fn rows_of_groups(
    metadata: &ParquetMetaData,
    groups: &mut Vec<usize>,
    rows: &[Range<usize>],
) -> RowSelection {
    let count =
        |group: usize| usize::try_from(metadata.row_group(group).num_rows()).unwrap_or(usize::MAX);
    let (mut ranges, mut kept_rows) = (Vec::new(), 0);
    let (mut group_seen, mut start) = (0, 0);
    groups.retain(|group| {
        start += (group_seen..*group).map(count).sum::<usize>();
        group_seen = *group;
        let end = start + count(*group);
        let length = ranges.len();
        let first = rows.partition_point(|range| range.end <= start);
        for range in rows[first..].iter().take_while(|range| range.start < end) {
            let (lower, upper) = (range.start.max(start), range.end.min(end));
            ranges.push(kept_rows + lower - start..kept_rows + upper - start);
        }
        let has_rows = ranges.len() > length;
        kept_rows += if has_rows { end - start } else { 0 };
        has_rows
    });
    RowSelection::from_consecutive_ranges(ranges.into_iter(), kept_rows)
}

/// The ranges in which two lists of ranges overlap; all are ascending and disjoint.
fn intersect_ranges(a: &[Range<usize>], b: &[Range<usize>]) -> Vec<Range<usize>> {
    let (mut first, mut second) = (a.iter().peekable(), b.iter().peekable());
    let mut overlaps = Vec::new();
    while let (Some(x), Some(y)) = (first.peek(), second.peek()) {
        let (start, end) = (x.start.max(y.start), x.end.min(y.end));
        let first_ends = x.end <= y.end;
        if start < end {
            overlaps.push(start..end);
        }
        if first_ends {
            first.next();
        } else {
            second.next();
        }
    }
    overlaps
}

/// The row groups that contain the given rows (by number, ascending), and the selection of these rows within those
/// groups.
fn select_rows(metadata: &ParquetMetaData, rows: &[u32]) -> (Vec<usize>, RowSelection) {
    let mut rows = rows.iter().map(|row| *row as usize).peekable();
    let (mut groups, mut ranges) = (Vec::new(), Vec::new());
    // First row of the group in the file, and among the chosen groups.
    let (mut start, mut chosen) = (0, 0);
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let count = usize::try_from(group.num_rows()).unwrap_or_default();
        let length = ranges.len();
        while let Some(row) = rows.next_if(|row| *row < start + count) {
            let position = chosen + row - start;
            ranges.push(position..position + 1);
        }
        if ranges.len() > length {
            groups.push(number);
            chosen += count;
        }
        start += count;
    }
    (groups, RowSelection::from_consecutive_ranges(ranges.into_iter(), chosen))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Ascending, disjoint ranges, which may touch.
    fn ranges() -> impl Strategy<Value = Vec<Range<usize>>> {
        prop::collection::vec((0_usize..5, 1_usize..5), 0..8).prop_map(|parts| {
            let mut end = 0;
            let next = |(gap, length): (usize, usize)| {
                let start = end + gap;
                end = start + length;
                start..end
            };
            parts.into_iter().map(next).collect()
        })
    }

    fn rows_of(ranges: &[Range<usize>]) -> Vec<usize> {
        ranges.iter().cloned().flatten().collect()
    }

    proptest! {
        #[test]
        fn the_intersection_has_the_rows_of_both(a in ranges(), b in ranges()) {
            let found = intersect_ranges(&a, &b);
            let rows = rows_of(&b);
            let expected: Vec<usize> =
                rows_of(&a).into_iter().filter(|row| rows.contains(row)).collect();
            prop_assert_eq!(rows_of(&found), expected);
            prop_assert!(found.iter().all(|range| range.start < range.end));
            prop_assert!(found.windows(2).all(|pair| pair[0].end <= pair[1].start));
            prop_assert_eq!(intersect_ranges(&b, &a), found);
        }

        #[test]
        fn members_are_found_as_by_comparing_each_with_each(
            mut rows in prop::collection::vec(0_u8..40, 0..60),
            mut keys in prop::collection::vec(0_u8..40, 0..30),
        ) {
            rows.sort_unstable();
            keys.sort_unstable();
            keys.dedup();
            let expected: Vec<bool> = rows.iter().map(|row| keys.contains(row)).collect();
            let encoded = |values: &[u8]| Keys::from_encoded(values.iter().map(|value| [*value]));
            prop_assert_eq!(members(&encoded(&rows), &encoded(&keys)), expected);
        }

        #[test]
        fn seeking_finds_the_first_key_that_is_not_below(
            mut values in prop::collection::vec(0_u8..20, 0..60),
            start in any::<prop::sample::Index>(),
            key in 0_u8..22,
        ) {
            values.sort_unstable();
            let start = start.index(values.len() + 1);
            let behind = values[start..].iter().take_while(|value| **value < key).count();
            let keys = Keys::from_encoded(values.iter().map(|value| [*value]));
            prop_assert_eq!(seek(&keys, start, &[key]), start + behind);
        }
    }
}

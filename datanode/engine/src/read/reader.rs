//! Reads rows of one file: skips row groups and pages that cannot hold wanted rows, by key range and statistics;
//! evaluates predicates before the other columns are decoded.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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
use partita_proto::range::KeyRange;
use partita_proto::value::Value;

use crate::error::{EngineError, Result};
use crate::file::FileEntry;
use crate::file::blocks::{BlockCache, BlockReader};
use crate::file::footer::{Counters, Footer, Footers};
use crate::read::wanted::{BySeries, Wanted};
use crate::rows::layout::Layout;
use crate::sizes::BATCH_ROWS;

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
        let rows = selected.map(|selected| {
            read.domains = selected.domains;
            selected.rows
        });
        let mut columns = Vec::new();
        for (name, domain) in read.domains.iter() {
            columns.push(ColumnStatistics::new(&footer, &self.layout, name, domain)?);
        }
        let in_range = |group: &usize| file.group_overlaps(*group, &read.ranges);
        let may_match = |group: &usize| columns.iter().all(|c| c.groups[*group].may_match);
        let candidates = read.groups.clone();
        let mut groups: Vec<usize> =
            candidates.clone().filter(in_range).filter(may_match).collect();
        let rows = rows.map(|rows| rows_of_groups(metadata, &mut groups, &rows));
        let stats = &self.counters.scan;
        let pruned = (candidates.len() - groups.len()) as u64;
        stats.row_groups_pruned.fetch_add(pruned, Ordering::Relaxed);
        if groups.is_empty() {
            if candidates == (0..file.row_groups()) {
                stats.files_pruned.fetch_add(1, Ordering::Relaxed);
            }
            return Ok(futures::stream::empty().boxed());
        }
        self.counters.file(file.meta().id);
        // Statistics of pages exclude rows of the remaining groups; only domains that are not proven need a filter.
        let filters = filters(&footer, &read, &columns, &groups);
        let pages = select_pages(metadata, &columns, &groups)?;
        let selection = match (rows, pages) {
            (Some(rows), Some(pages)) => Some(rows.intersection(&pages)),
            (rows, pages) => rows.or(pages),
        };
        self.start(file, &footer, read.schema, Rows { groups, selection, filters })
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
        self.start(file, &footer, schema, rows)
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
    fn start(
        &self,
        file: &FileEntry,
        footer: &Arc<Footer>,
        schema: SchemaRef,
        rows: Rows,
    ) -> Result<BatchStream> {
        // Bytes come through the block cache, which checks them.
        let path = file.handle.path.clone();
        let reader = BlockReader {
            store: Arc::clone(&self.store),
            file: Arc::clone(&file.handle),
            footer: Arc::clone(footer),
            cache: Arc::clone(&self.blocks),
            counters: self.counters.clone(),
        };
        let builder =
            ParquetRecordBatchStreamBuilder::new_with_metadata(reader, footer.metadata.clone());
        let mask = projection(footer, schema.fields().iter().map(|field| field.name()));
        let mut builder =
            builder.with_batch_size(BATCH_ROWS).with_projection(mask).with_row_groups(rows.groups);
        if let Some(selection) = rows.selection {
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

/// Predicates on columns, for the domains that the statistics do not prove already.
fn filters(
    footer: &Footer,
    read: &Read,
    columns: &[ColumnStatistics<'_>],
    groups: &[usize],
) -> Vec<Box<dyn ArrowPredicate>> {
    let mut filters: Vec<Box<dyn ArrowPredicate>> = Vec::new();
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
        let domain = domain.clone();
        let mask = projection(footer, std::iter::once(&name.to_owned()));
        filters.push(Box::new(ArrowPredicateFn::new(mask, move |batch: RecordBatch| {
            let mask = domain.mask(batch.column(0).as_ref());
            mask.map_err(|error| ArrowError::ExternalError(Box::new(EngineError::from(error))))
        })));
    }
    filters
}

/// Conclusions from the statistics about one column and its domain.
struct ColumnStatistics<'a> {
    name: String,
    domain: &'a Domain,
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
    fn new(footer: &'a Footer, layout: &Layout, name: &str, domain: &'a Domain) -> Result<Self> {
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
        let groups = metadata.row_groups();
        let statistics = Statistics {
            min: converter.row_group_mins(groups).map_err(failed)?,
            max: converter.row_group_maxes(groups).map_err(failed)?,
            nulls: converter
                .row_group_null_counts(groups)
                .map(|nulls| Arc::new(nulls) as ArrayRef)
                .map_err(failed)?,
        };
        let groups = groups.iter().enumerate().map(|(group, metadata)| {
            let rows = u64::try_from(metadata.num_rows()).unwrap_or(u64::MAX);
            statistics.judge(domain, group, rows)
        });
        let groups = groups.collect::<Result<_>>()?;
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

//! Scans: from a request to streams of rows.
//!
//! A scan takes a version, excludes files and runs by key and time, and makes units of the rest
//! ([`crate::read::plan`]): sources that have to be merged are in one unit, every other source is in units of its own.
//! Streams take units from a common queue until it is empty.
//!
//! Domains on key columns are applied to each source, since they keep or drop all versions of a key. Domains on fields
//! are applied only after the merge: before it they would bring back older versions. (A file that is read by itself has
//! no such versions: its reader applies them, and yields no column that only they need.) Both are applied exactly, and
//! so is the table's `ttl`.
//!
//! Indexes on fields restrict a merge by another way: they tell the keys that may have a wanted row, and then all
//! versions of these keys are read ([`crate::read::candidates`]).
//!
//! Of a wide table, cells that are garbage are left out behind all this ([`crate::read::collected`]).
//!
//! A scan for the first rows in order of time reads units by their times, and leaves out what cannot be among these rows
//! ([`crate::read::nearest`]). One for rows in key order has one stream, which reads units one after the other and merges
//! those that overlap ([`crate::read::ordered`]).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::compute::filter_record_batch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use partita_proto::domain::Domains;
use partita_proto::id::Epoch;
use partita_proto::key::{KeyCodec, Keys};
use partita_proto::probe::Probe;
use partita_proto::range::KeyRange;
use partita_proto::service::{FirstByTime, KeyOrder, RowStream, ScanStats};

use crate::error::Result;
use crate::file::footer::Counters;
use crate::file::{FileEntry, parts_within};
use crate::read::candidates::{Found, Located};
use crate::read::collected::{self, Rest};
use crate::read::nearest::Nearest;
use crate::read::plan::{Grain, Unit, plan};
use crate::read::questions::Prepared;
use crate::read::reader::{FileReader, Read};
use crate::read::source::{Piece, some_rows_input, with_keys};
use crate::read::wanted::{BySeries, Wanted};
use crate::read::{candidates, newest, ordered};
use crate::rows::collector::Collector;
use crate::rows::layout::{Layout, OP_COLUMN};
use crate::rows::merge::{Merge, settle};
use crate::state::partition::{Partition, PartitionConfig};
use crate::state::version::Version;

/// A scan for the first rows by time looks at times alone first if it has more columns than this.
const AHEAD_COLUMNS: usize = 2;

/// Request of a scan.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Columns to return, by storage name. A column that the partition does not have is NULL.
    pub columns: SchemaRef,
    /// Domains of the rows to return, by storage name; they may name columns that are not returned.
    pub domains: Domains,
    /// Maximum rows to return.
    pub limit: Option<usize>,
    /// Maximum number of useful streams.
    pub parallelism: usize,
    /// Range of the keys to return; `None` for all.
    pub range: Option<KeyRange>,
    /// If true, of rows in the domains whose keys differ in the time index only, all but the newest may be left out.
    pub newest_only: bool,
    /// Tests that every wanted row passes, beside the domains, for indexes. The caller must apply its predicates to
    /// what is returned: rows that fail a test may be returned, and of such rows older versions of fields may be
    /// missing. Not used for a scan of the newest rows.
    pub probes: Vec<Probe>,
    /// If set, rows that are not among these may be left out. Not used for a scan of the newest rows.
    pub first_by_time: Option<FirstByTime>,
    /// Order in which rows are wanted, in one stream. If [`Scanned::order`] is another one, then because too much would
    /// have to be merged; a limit has left out any rows then. Not used for a scan of the newest rows, or of the first by
    /// time.
    pub order: Option<KeyOrder>,
    /// If true, cells of a wide table that are garbage, and not yet removed from files, are returned too.
    pub uncollected: bool,
}

/// Rows of one version of the partition.
pub struct Scanned {
    /// The streams; every row is in exactly one of them. At least one.
    pub streams: Vec<RowStream>,
    /// Order of each stream; `None`: none.
    pub order: Option<KeyOrder>,
    /// Counters, updated while the streams are read.
    pub stats: Arc<ScanStats>,
    /// Epoch of the version that is read, which identifies its range.
    pub epoch: Epoch,
    /// Index of the last applied entry of the version: the rows include all writes up to it, and no later one.
    pub applied: u64,
}

/// Rows of a partition at one moment, not read yet. Its files stay as long as this value lives.
pub struct ScanSource {
    partition: Arc<Partition>,
    version: Arc<Version>,
}

impl ScanSource {
    /// The partition's configuration at that moment.
    pub fn config(&self) -> Arc<PartitionConfig> {
        Arc::clone(&self.version.layout.config)
    }

    /// Index of the last applied entry.
    pub fn applied(&self) -> u64 {
        self.version.applied.index
    }

    /// As [`Partition::scan`], of the rows of that moment.
    ///
    /// # Errors
    /// As [`Partition::scan`].
    pub fn scan(&self, request: Scan) -> Result<Scanned> {
        self.partition.scan_version(Arc::clone(&self.version), request)
    }
}

impl std::fmt::Debug for ScanSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScanSource").field("applied", &self.applied()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Scanned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scanned")
            .field("streams", &self.streams.len())
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}

impl Partition {
    /// Reads the current rows. All that the scan needs is kept until the streams are dropped; it neither waits for
    /// writers nor delays them.
    ///
    /// # Errors
    /// [`crate::EngineError::InvalidInput`] when a domain does not fit its column. Errors while reading are reported by
    /// the streams.
    pub fn scan(&self, request: Scan) -> Result<Scanned> {
        self.scan_version(self.version(), request)
    }

    /// Keeps the rows of this moment for a scan that begins later. The rows are those of all applied entries, as long as
    /// the owner lets no entry be applied during the call.
    pub fn pinned_scan(self: &Arc<Self>) -> ScanSource {
        ScanSource { partition: Arc::clone(self), version: self.version() }
    }

    fn scan_version(&self, version: Arc<Version>, request: Scan) -> Result<Scanned> {
        let layout = &version.layout;
        let counters = Counters::new(&self.rows_scanned);
        let stats = Arc::clone(&counters.scan);
        let (epoch, applied) = (layout.config.epoch, version.applied.index);
        // Everything that the streams read by is fixed here: the layout, the domains in the types of their columns, and
        // the part of the range that the partition owns.
        let domains = self.domains(layout, &request.domains)?;
        let exact = match &request.range {
            Some(range) => layout.range.intersect(range),
            None => layout.range.clone(),
        };
        let reading = Reading {
            reader: FileReader {
                store: Arc::clone(&self.store),
                footers: Arc::clone(&self.footers),
                blocks: Arc::clone(&self.options.blocks),
                counters,
                layout: Arc::clone(layout),
                series: Some(BySeries {
                    cache: Arc::clone(&self.series),
                    layout: Arc::clone(layout),
                }),
                indexes: Some(Arc::clone(&self.options.indexes)),
            },
            columns: request.columns,
            domains,
            probes: match request.newest_only {
                true => Arc::from([]),
                false => prepared(&request.probes, layout),
            },
            exact,
            first_by_time: request.first_by_time.filter(|_| !request.newest_only),
            order: request.order.filter(|_| !request.newest_only),
            limit: request.limit,
            parallelism: request.parallelism.max(1),
            collector: match request.uncollected {
                true => None,
                false => Collector::new(layout, self.clock.now_ms()),
            },
            version,
        };
        // The newest row of each series may be found without reading the others.
        if request.newest_only
            && let Some(stream) = newest::stream(&reading, &self.series)
        {
            return Ok(Scanned { streams: vec![stream], order: None, stats, epoch, applied });
        }
        let (streams, order) = reading.streams();
        Ok(Scanned { streams, order, stats, epoch, applied })
    }

    /// The key ranges, within the partition's own range, of rows that match the domains, in order.
    ///
    /// # Errors
    /// [`crate::EngineError::InvalidInput`] when a domain does not fit its column.
    pub fn key_ranges(&self, domains: &Domains) -> Result<Vec<KeyRange>> {
        let layout = &self.version().layout;
        let domains = self.domains(layout, domains)?;
        let config = &layout.config;
        let ranges = layout.codec.key_ranges(&config.schema, &config.placement, &domains);
        Ok(parts_within(&ranges, &layout.range).collect())
    }

    /// The partition's key range.
    pub fn range(&self) -> KeyRange {
        self.version().layout.range.clone()
    }

    /// The codec of keys, as of the last applied entry.
    pub fn codec(&self) -> KeyCodec {
        self.version().layout.codec.clone()
    }

    /// The domains in the types of their columns, with the domain that the `ttl` leaves.
    fn domains(&self, layout: &Layout, requested: &Domains) -> Result<Domains> {
        let mut domains = Domains::default();
        for (name, domain) in requested.iter() {
            let column = layout.config.schema.columns.iter().find(|c| c.storage_name == name);
            match column {
                Some(column) => domains.restrict(name, domain.typed(column.column_type)?),
                None => domains.restrict(name, domain.clone()),
            }
        }
        if let Some((name, alive)) = layout.alive(self.clock.now_ms()) {
            domains.restrict(name, alive);
        }
        Ok(domains)
    }
}

/// Parameters of reading one version.
#[derive(Clone)]
pub(crate) struct Reading {
    pub(crate) version: Arc<Version>,
    pub(crate) reader: FileReader,
    pub(crate) columns: SchemaRef,
    /// Domains, in the types of their columns.
    pub(crate) domains: Domains,
    /// Tests beside the domains, for indexes.
    pub(crate) probes: Arc<[Arc<Prepared>]>,
    /// Range of the keys to return.
    pub(crate) exact: KeyRange,
    /// Rows outside of which none need to be returned.
    pub(crate) first_by_time: Option<FirstByTime>,
    /// Order in which rows are wanted.
    pub(crate) order: Option<KeyOrder>,
    pub(crate) limit: Option<usize>,
    /// Maximum number of streams; at least 1.
    pub(crate) parallelism: usize,
    /// Collector of cells that are not returned, for a wide table.
    pub(crate) collector: Option<Collector>,
}

impl Reading {
    /// The streams, and the order of each.
    pub(crate) fn streams(&self) -> (Vec<RowStream>, Option<KeyOrder>) {
        match &self.collector {
            Some(collector) => self.collected(collector),
            None => self.all_streams(),
        }
    }

    /// Streams without garbage. Where rules count the versions of a column, all cells of a column must come in one
    /// stream: then there is one, in key order.
    fn collected(&self, collector: &Collector) -> (Vec<RowStream>, Option<KeyOrder>) {
        let counts = collector.counts_versions();
        let is_early = |name: &str| !counts || collector.is_part(name);
        let remaining_domains = self.domains.only(|name| !is_early(name));
        let columns = self.schema_with(remaining_domains.iter().map(|(name, _)| name), true, false);
        let reading = Self {
            columns,
            domains: self.domains.only(is_early),
            probes: if counts { Arc::from([]) } else { Arc::clone(&self.probes) },
            order: if counts { Some(KeyOrder::ASCENDING) } else { self.order },
            limit: None,
            parallelism: if counts { 1 } else { self.parallelism },
            collector: None,
            ..self.clone()
        };
        let (streams, order) = reading.all_streams();
        if counts && (order != Some(KeyOrder::ASCENDING) || streams.len() != 1) {
            let error =
                partita_proto::Error::Internal("cells of a wide table have no order".to_owned());
            return (vec![futures::stream::iter([Err(error)]).boxed()], None);
        }
        // In another order than the requested one, a limit would leave out any rows.
        let is_ordered = self.order.is_none_or(|requested| order == Some(requested));
        let limit = self.limit.filter(|_| is_ordered).unwrap_or(usize::MAX);
        let remaining = Arc::new(AtomicUsize::new(limit));
        let finished = streams.into_iter().map(|cells| {
            let rest = Rest {
                collector: collector.clone(),
                domains: remaining_domains.clone(),
                layout: Arc::clone(&self.version.layout),
                columns: Arc::clone(&self.columns),
                remaining: Arc::clone(&remaining),
            };
            collected::stream(cells, rest)
        });
        (finished.collect(), order)
    }

    /// Streams that may have garbage.
    fn all_streams(&self) -> (Vec<RowStream>, Option<KeyOrder>) {
        let nearest = Nearest::new(self.first_by_time, &self.version.layout, &self.columns);
        if let Some(order) = self.order.filter(|_| nearest.is_none())
            && let Some(rows) = self.ordered(order)
        {
            return (vec![rows], Some(order));
        }
        // Units of a scan for the first rows by time are small, so that some of them need not be read.
        let is_indexed = nearest.is_none() && !self.tests_by_index().is_empty();
        let grain = Grain { parallelism: self.parallelism, is_indexed };
        let plan = plan(&self.version, &self.domains, &self.exact, grain);
        let stats = &self.reader.counters.scan;
        stats.files_pruned.fetch_add(plan.files_pruned, Ordering::Relaxed);
        let mut units = plan.units;
        if let Some(nearest) = &nearest {
            nearest.sort(&mut units);
        }
        let order = (plan.sorted && nearest.is_none()).then_some(KeyOrder::ASCENDING);
        let count = self.parallelism.min(units.len()).max(1);
        let stages = units.into_iter().map(|unit| vec![unit]).collect();
        let task = self.task(stages, None, nearest, &self.remaining());
        ((0..count).map(|_| stream(&task)).collect(), order)
    }

    /// One stream in an order; `None` if too much would have to be merged.
    fn ordered(&self, order: KeyOrder) -> Option<RowStream> {
        let remaining = self.remaining();
        let (mut streams, mut files_pruned) = (Vec::new(), u64::MAX);
        for exact in ordered::ranges(self, order)? {
            let part = Self { exact, ..self.clone() };
            let grain = Grain { parallelism: ordered::parts(order), is_indexed: false };
            let plan = plan(&part.version, &part.domains, &part.exact, grain);
            let stages = ordered::stages(&plan.units, &part, order)?;
            streams.push(stream(&part.task(stages, Some(order), None, &remaining)));
            files_pruned = files_pruned.min(plan.files_pruned);
        }
        let stats = &self.reader.counters.scan;
        stats.files_pruned.fetch_add(files_pruned, Ordering::Relaxed);
        Some(futures::stream::iter(streams).flatten().boxed())
    }

    /// Number of rows to be returned.
    fn remaining(&self) -> Arc<AtomicUsize> {
        Arc::new(AtomicUsize::new(self.limit.unwrap_or(usize::MAX)))
    }

    /// The state of a scan that reads some stages.
    fn task(
        &self,
        stages: VecDeque<Vec<Unit>>,
        order: Option<KeyOrder>,
        nearest: Option<Nearest>,
        remaining: &Arc<AtomicUsize>,
    ) -> Arc<Task> {
        let layout = Arc::clone(&self.version.layout);
        let on_key = self.probes.iter().filter(|probe| probe.is_on_key(&layout));
        let field_domains = self.domains.only(|name| !layout.is_key(name));
        // A file may still have a column that the table no longer has; its values do not count.
        let files_apply_all = field_domains.iter().all(|(name, _)| layout.field(name).is_some());
        Arc::new(Task {
            key_probes: on_key.map(Arc::clone).collect(),
            tests: self.tests_by_index(),
            key_domains: layout.key_domains(&self.domains),
            field_domains,
            files_apply_all,
            layout,
            queue: Mutex::new(stages),
            left: Arc::clone(remaining),
            order,
            nearest,
            reading: self.clone(),
        })
    }

    /// All tests of the rows, if an index may tell which rows pass one that is not on the key alone; otherwise none.
    fn tests_by_index(&self) -> Vec<Arc<Prepared>> {
        let layout = &self.version.layout;
        // Files may still have a column that the table no longer has; its values do not count.
        let domains = self.domains.iter().filter(|(name, _)| layout.field(name).is_some());
        let domains = domains.map(|(name, domain)| Arc::new(Prepared::of_domain(name, domain)));
        let tests: Vec<_> = domains.chain(self.probes.iter().map(Arc::clone)).collect();
        let is_indexed = |name: &&str| layout.indexes.iter().any(|(column, _)| column == name);
        let is_asked =
            |test: &Arc<Prepared>| !test.is_on_key(layout) && test.columns().iter().any(is_indexed);
        if tests.iter().any(is_asked) { tests } else { Vec::new() }
    }

    /// The columns that a source must supply: those returned, those that domains on fields need, and for a merge the
    /// key's and the operation.
    pub(crate) fn schema(&self, with_key: bool, with_op: bool) -> SchemaRef {
        let layout = &self.version.layout;
        let restricted = self.domains.iter().map(|(name, _)| name);
        self.schema_with(restricted.filter(|name| !layout.is_key(name)), with_key, with_op)
    }

    /// The columns that are returned, others by their names, and for a merge the key's and the operation.
    fn schema_with<'a>(
        &'a self,
        names: impl Iterator<Item = &'a str>,
        with_key: bool,
        with_op: bool,
    ) -> SchemaRef {
        let layout = &self.version.layout;
        let mut fields = self.columns.fields().to_vec();
        for field in &mut fields {
            if let Some(stored) = layout.field(field.name()) {
                *field = stored;
            }
        }
        let key = layout.key_names().filter(|_| with_key);
        let names = key.chain(names);
        for name in names.chain(with_op.then_some(OP_COLUMN)) {
            if fields.iter().all(|field| field.name() != name) {
                // A column that the table does not have is NULL, and domains treat it so.
                fields.extend(layout.field(name));
            }
        }
        Arc::new(Schema::new(fields))
    }
}

/// State shared by the streams of a scan.
pub(crate) struct Task {
    pub(crate) reading: Reading,
    pub(crate) layout: Arc<Layout>,
    key_domains: Domains,
    field_domains: Domains,
    /// True if the reader of a file applies all domains on fields, where no other source has versions of its rows.
    pub(crate) files_apply_all: bool,
    /// Tests beside the domains of the key's columns.
    key_probes: Arc<[Arc<Prepared>]>,
    /// All tests, if indexes may tell which keys pass those on fields; otherwise none.
    tests: Vec<Arc<Prepared>>,
    /// Stages to be read: units, of which several are merged in the order of the scan.
    queue: Mutex<VecDeque<Vec<Unit>>>,
    /// Number of rows still to be returned.
    left: Arc<AtomicUsize>,
    /// Limits in time, for a scan of the first rows by time.
    nearest: Option<Nearest>,
    /// Order of the one stream, if it has one.
    pub(crate) order: Option<KeyOrder>,
}

pub(crate) type Batches = BoxStream<'static, Result<RecordBatch>>;

/// An open stage.
pub(crate) struct Opened {
    pub(crate) batches: Batches,
    /// True if the rows are in the domains on fields.
    pub(crate) in_field_domains: bool,
}

fn stream(task: &Arc<Task>) -> RowStream {
    let worker = Worker { task: Arc::clone(task), opened: None };
    let batches = futures::stream::try_unfold(worker, |mut worker| async move {
        let batch = worker.next().await?;
        Ok::<_, partita_proto::Error>(batch.map(|batch| (batch, worker)))
    });
    Box::pin(batches)
}

/// One stream: reads stage after stage.
struct Worker {
    task: Arc<Task>,
    /// The current stage.
    opened: Option<Opened>,
}

impl Worker {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if self.task.left.load(Ordering::Relaxed) == 0 {
                return Ok(None);
            }
            let Some(opened) = &mut self.opened else {
                let Some(stage) = self.task.next_stage() else { return Ok(None) };
                self.opened = Some(self.task.open_stage(stage).await?);
                continue;
            };
            let Some(batch) = opened.batches.next().await.transpose()? else {
                self.opened = None;
                continue;
            };
            let rows = self.task.finish(&batch, opened.in_field_domains)?;
            if rows.num_rows() > 0 {
                return Ok(Some(rows));
            }
        }
    }
}

impl Task {
    /// The next stage that may have a wanted row.
    fn next_stage(&self) -> Option<Vec<Unit>> {
        let mut queue = self.queue.lock();
        loop {
            let stage = queue.pop_front()?;
            let Some(nearest) = &self.nearest else { return Some(stage) };
            if stage.iter().any(|unit| nearest.may_have(unit.time())) {
                return Some(stage);
            }
        }
    }

    /// Domains, restricted to times of rows that may be wanted.
    fn needed(&self, domains: &Domains) -> Domains {
        match &self.nearest {
            Some(nearest) => nearest.restricted(domains),
            None => domains.clone(),
        }
    }

    /// Reads of a file that has no version of another source's rows, and the range to which its rows must be cut: row
    /// groups and key ranges; with `keyed`, the columns of the key, and those that domains on fields need.
    pub(crate) fn file_read(
        &self,
        file: &FileEntry,
        (groups, ranges): (Range<usize>, Arc<[KeyRange]>),
        keyed: bool,
    ) -> (Read, Option<KeyRange>) {
        let Reading { exact, domains, probes, .. } = &self.reading;
        let (bounds, with_op) = (file.bounds(exact), file.meta().has_op);
        let schema = match self.files_apply_all && !keyed {
            true => self.reading.schema_with(std::iter::empty(), bounds.is_some(), with_op),
            false => self.reading.schema(bounds.is_some() || keyed, with_op),
        };
        // No other source has a version of these rows, so domains on fields may be applied here, and all indexes asked:
        // other columns are decoded only for matching rows.
        let read = Read {
            schema,
            domains: self.needed(domains),
            ranges,
            groups,
            probes: Arc::clone(probes),
            keys: None,
        };
        (read, bounds)
    }

    /// Domains of a read of a file, restricted by a look at its times alone. The first rows of a scan are read before any
    /// time is known that would restrict them: so few of their other columns are decoded.
    async fn domains_ahead(
        &self,
        nearest: &Nearest,
        file: &FileEntry,
        read: &Read,
    ) -> Result<Domains> {
        // All rows that are seen must be returned: none may be a delete, or outside of a domain that is applied later.
        // Indexes would be asked, and counted, twice.
        let is_exact = !file.meta().has_op && self.files_apply_all && self.tests.is_empty();
        let time = self.layout.field(nearest.time_name());
        let (true, Some(time)) = (is_exact && read.schema.fields().len() > AHEAD_COLUMNS, time)
        else {
            return Ok(read.domains.clone());
        };
        if nearest.is_full() {
            return Ok(read.domains.clone());
        }
        let ahead = nearest.anew();
        let times = Read { schema: Arc::new(Schema::new(vec![time])), ..read.clone() };
        let mut batches = self.reading.reader.open(file, times).await?;
        while let Some(batch) = batches.next().await.transpose()? {
            ahead.see(&batch)?;
        }
        Ok(ahead.restricted(&read.domains))
    }

    /// The rows of a unit: merged, without deleted ones, in the domains of the key's columns; with `keyed`, with the
    /// columns of the key.
    pub(crate) async fn open(self: &Arc<Self>, unit: Unit, keyed: bool) -> Result<Opened> {
        if unit.merge {
            return Ok(Opened { batches: self.merge(unit).await?, in_field_domains: false });
        }
        let Unit { mut files, mut runs, ranges, .. } = unit;
        if let Some((file, groups)) = files.pop() {
            let (mut read, bounds) = self.file_read(&file, (groups, ranges), keyed);
            if bounds.is_none()
                && let Some(nearest) = &self.nearest
            {
                read.domains = Box::pin(self.domains_ahead(nearest, &file, &read)).await?;
            }
            let batches = self.reading.reader.open(&file, read).await?;
            let layout = Arc::clone(&self.layout);
            let batches = batches.and_then(move |batch| {
                futures::future::ready(cut(&layout, batch, bounds.as_ref()))
            });
            return Ok(Opened { batches: batches.boxed(), in_field_domains: self.files_apply_all });
        }
        let Some(piece) = runs.pop() else {
            return Ok(Opened {
                batches: futures::stream::empty().boxed(),
                in_field_domains: true,
            });
        };
        let schema = self.reading.schema(keyed, piece.run.has_op());
        let counters = Some(self.reading.reader.counters.clone());
        let filter = self.needed(&self.key_domains);
        let rows = piece.read(Arc::clone(&self.layout), schema, filter, counters);
        let batches = rows.and_then(|sorted| futures::future::ready(settle(sorted.batch))).boxed();
        Ok(Opened { batches, in_field_domains: false })
    }

    /// The merged rows of a unit of several sources.
    async fn merge(&self, unit: Unit) -> Result<Batches> {
        let reader = &self.reading.reader;
        let with_op = unit.files.iter().any(|(file, _)| file.meta().has_op)
            || unit.runs.iter().any(|piece| piece.run.has_op());
        let schema = self.reading.schema(true, with_op);
        let read = Read {
            schema: Arc::clone(&schema),
            domains: self.needed(&self.key_domains),
            ranges: Arc::clone(&unit.ranges),
            groups: 0..0,
            probes: Arc::clone(&self.key_probes),
            keys: None,
        };
        // If indexes tell which keys may have a wanted row, files yield all versions of these keys and no other rows;
        // runs yield them and perhaps others, which fail a test.
        let (mut located, mut run_ranges) = (Vec::new(), Arc::clone(&unit.ranges));
        if let Some(Found { keys, files }) = self.candidates(&unit).await? {
            if keys.is_empty() {
                return Ok(futures::stream::empty().boxed());
            }
            run_ranges = points_within(&keys, &unit.ranges);
            located = files;
        }
        let mut located = located.into_iter();
        let mut inputs = Vec::with_capacity(2 * unit.files.len() + unit.runs.len());
        for (file, groups) in unit.files {
            let bounds = file.bounds(&unit.range);
            let mut read = Read { groups, ..read.clone() };
            let input = |read: Read, wanted: Option<Wanted>| {
                let (reader, layout) = (reader.clone(), Arc::clone(&self.layout));
                some_rows_input(reader, file.clone(), (read, wanted), layout, bounds.clone())
            };
            if let Some(Located { rows, others }) = located.next() {
                if !rows.is_empty() {
                    let domains = read.domains.clone();
                    inputs.push(input(read.clone(), Some(Wanted { rows, domains })));
                }
                if others.is_empty() {
                    continue;
                }
                for (name, domain) in candidates::column_domains(&others, &self.layout)?.iter() {
                    read.domains.restrict(name, domain.clone());
                }
                read.ranges = points_within(&others, &unit.ranges);
                read.keys = Some(Arc::new(others));
            }
            // A file without any of the keys has no version of them.
            if read.groups.clone().any(|group| file.group_overlaps(group, &read.ranges)) {
                inputs.push(input(read, None));
            }
        }
        for piece in unit.runs {
            let piece = Piece { ranges: Arc::clone(&run_ranges), ..piece };
            let (schema, filter) = (Arc::clone(&schema), read.domains.clone());
            let counters = Some(reader.counters.clone());
            inputs.push(piece.input(Arc::clone(&self.layout), schema, filter, counters));
        }
        let merge = Merge::new(&self.layout, schema, inputs, true);
        let batches = futures::stream::try_unfold(merge, |mut merge| async move {
            Ok(merge.next().await?.map(|merged| (merged.batch, merge)))
        });
        Ok(batches.boxed())
    }

    /// Keys of a unit that may have a wanted row; `None` if indexes do not tell, or there are too many.
    async fn candidates(&self, unit: &Unit) -> Result<Option<Found>> {
        if self.tests.is_empty() {
            return Ok(None);
        }
        let (reader, domains) = (&self.reading.reader, &self.key_domains);
        Box::pin(candidates::keys(reader, &self.layout, unit, &self.tests, domains)).await
    }

    /// Rows in the domains on fields, of a batch that has their columns.
    pub(crate) fn in_field_domains(&self, batch: RecordBatch) -> Result<RecordBatch> {
        match self.field_domains.mask(&batch)? {
            Some(mask) if mask.true_count() < mask.len() => Ok(filter_record_batch(&batch, &mask)?),
            _ => Ok(batch),
        }
    }

    /// Applies domains that could not be applied to sources, converts rows to the requested form, and counts them
    /// against the limit.
    fn finish(&self, batch: &RecordBatch, in_field_domains: bool) -> Result<RecordBatch> {
        let mask = match in_field_domains || self.field_domains.is_all() {
            true => None,
            false => self.field_domains.mask(batch)?,
        };
        let mut rows = self.layout.adapt(batch, &self.reading.columns)?;
        if let Some(mask) = mask
            && mask.true_count() < mask.len()
        {
            rows = filter_record_batch(&rows, &mask)?;
        }
        if let Some(nearest) = &self.nearest {
            rows = nearest.reduced(rows)?;
        }
        if self.reading.limit.is_some() {
            let decrement = |remaining: usize| Some(remaining - remaining.min(rows.num_rows()));
            let remaining = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, decrement);
            let remaining = remaining.unwrap_or_else(|remaining| remaining);
            rows = rows.slice(0, rows.num_rows().min(remaining));
        }
        Ok(rows)
    }
}

/// Rows of a file within a range, without deleted ones.
pub(crate) fn cut(
    layout: &Layout,
    batch: RecordBatch,
    bounds: Option<&KeyRange>,
) -> Result<RecordBatch> {
    match bounds {
        Some(bounds) => settle(with_keys(layout, batch, Some(bounds))?.batch),
        None => settle(batch),
    }
}

/// The parts of some ranges, sorted and disjoint, that may hold some ascending keys.
fn points_within(keys: &Keys, ranges: &[KeyRange]) -> Arc<[KeyRange]> {
    let points = candidates::points(keys);
    ranges.iter().flat_map(|range| parts_within(&points, range)).collect()
}

/// Probes, ready for indexes.
fn prepared(probes: &[Probe], layout: &Layout) -> Arc<[Arc<Prepared>]> {
    probes.iter().map(|probe| Arc::new(Prepared::new(probe, layout))).collect()
}

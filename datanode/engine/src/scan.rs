//! Scans: from what is wanted to streams of rows.
//!
//! A scan takes a version, leaves out files and runs by key and time, and makes units of the rest
//! ([`crate::plan`]): what has to be merged is in one unit, everything else is in units of its own.
//! Streams take units from a common queue until it is empty.
//!
//! Domains on key columns are applied to each source, since they keep or drop all versions of a key.
//! Domains on fields are applied behind the merge only: below it they would bring versions back that
//! lost. Both are applied exactly, and so is the table's `ttl`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::compute::filter_record_batch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use partita_proto::domain::Domains;
use partita_proto::range::KeyRange;
use partita_proto::service::{RowStream, ScanStats};

use crate::error::Result;
use crate::footer::Counters;
use crate::layout::{Layout, OP_COLUMN, adapt};
use crate::merge::{Merge, settle};
use crate::partition::Partition;
use crate::plan::{Unit, plan};
use crate::reader::{FileReader, Read};
use crate::source::{file_input, with_keys};

/// What to read.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The columns to return, by storage name. One that the partition does not have is NULL.
    pub columns: SchemaRef,
    /// Rows outside these are not returned. By storage name; they may name other columns than those
    /// returned.
    pub domains: Domains,
    /// At most this many rows are returned.
    pub limit: Option<usize>,
    /// The most streams that are of use.
    pub parallelism: usize,
    /// Rows with other keys are not returned.
    pub range: Option<KeyRange>,
}

/// Rows as of one moment.
pub struct Scanned {
    /// Every row is in exactly one of them. At least one.
    pub streams: Vec<RowStream>,
    /// Whether each stream is in key order.
    pub sorted: bool,
    /// Counts while the streams are read.
    pub stats: Arc<ScanStats>,
}

impl std::fmt::Debug for Scanned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scanned")
            .field("streams", &self.streams.len())
            .field("sorted", &self.sorted)
            .finish_non_exhaustive()
    }
}

impl Partition {
    /// Reads rows as of now. What it needs is kept until the streams are dropped; it neither waits
    /// for writers nor holds them up.
    ///
    /// # Errors
    /// [`crate::EngineError::InvalidInput`] when a domain does not fit its column. What goes wrong
    /// while reading comes through the streams.
    pub fn scan(&self, request: Scan) -> Result<Scanned> {
        let version = self.version();
        let layout = Arc::clone(&version.layout);
        let counters = Counters::new(&self.rows_scanned);
        let stats = Arc::clone(&counters.scan);
        let domains = self.domains(&layout, &request.domains)?;
        let exact = match &request.range {
            Some(range) => layout.range.intersect(range),
            None => layout.range.clone(),
        };
        let plan = plan(&version, &domains, &exact, request.parallelism.max(1));
        stats.files_pruned.fetch_add(plan.files_pruned, Ordering::Relaxed);
        let count = request.parallelism.max(1).min(plan.units.len()).max(1);
        let task = Arc::new(Task {
            reader: FileReader {
                store: Arc::clone(&self.store),
                footers: Arc::clone(&self.footers),
                counters,
            },
            key_domains: layout.key_domains(&domains),
            field_domains: domains.only(|name| !layout.is_key(name)),
            domains,
            columns: request.columns,
            exact,
            layout,
            queue: Mutex::new(plan.units.into()),
            left: AtomicUsize::new(request.limit.unwrap_or(usize::MAX)),
            limited: request.limit.is_some(),
        });
        let streams = (0..count).map(|_| stream(&task)).collect();
        Ok(Scanned { streams, sorted: plan.sorted, stats })
    }

    /// The domains in the types of their columns, and what the `ttl` leaves.
    fn domains(&self, layout: &Layout, wanted: &Domains) -> Result<Domains> {
        let mut domains = Domains::default();
        for (name, domain) in wanted.iter() {
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

/// What the streams of a scan share.
struct Task {
    reader: FileReader,
    layout: Arc<Layout>,
    columns: SchemaRef,
    domains: Domains,
    key_domains: Domains,
    field_domains: Domains,
    /// No key outside is returned.
    exact: KeyRange,
    queue: Mutex<VecDeque<Unit>>,
    /// Rows that are still wanted.
    left: AtomicUsize,
    limited: bool,
}

type Batches = BoxStream<'static, Result<RecordBatch>>;

fn stream(task: &Arc<Task>) -> RowStream {
    let worker = Worker { task: Arc::clone(task), batches: None };
    let batches = futures::stream::try_unfold(worker, |mut worker| async move {
        let batch = worker.next().await?;
        Ok::<_, partita_proto::Error>(batch.map(|batch| (batch, worker)))
    });
    Box::pin(batches)
}

/// One stream: reads unit after unit.
struct Worker {
    task: Arc<Task>,
    /// Of the unit that it is at.
    batches: Option<Batches>,
}

impl Worker {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if self.task.left.load(Ordering::Relaxed) == 0 {
                return Ok(None);
            }
            let Some(batches) = &mut self.batches else {
                let Some(unit) = self.task.queue.lock().pop_front() else { return Ok(None) };
                self.batches = Some(self.task.open(unit).await?);
                continue;
            };
            let Some(batch) = batches.next().await.transpose()? else {
                self.batches = None;
                continue;
            };
            let rows = self.task.finish(&batch)?;
            if rows.num_rows() > 0 {
                return Ok(Some(rows));
            }
        }
    }
}

impl Task {
    /// The rows of a unit: merged, without deleted ones, in the domains of the key's columns.
    async fn open(self: &Arc<Self>, unit: Unit) -> Result<Batches> {
        let Unit { range, mut files, mut runs, ranges, merge } = unit;
        let with_op = files.iter().any(|(file, _)| file.meta().has_op)
            || runs.iter().any(|piece| piece.run.has_op());
        if merge {
            let schema = self.schema(true, with_op);
            let mut inputs = Vec::with_capacity(files.len() + runs.len());
            for (file, groups) in files {
                let bounds = bounds(&range, file.span());
                let read = self.read(&schema, &ranges, groups, &self.key_domains);
                let (reader, layout) = (self.reader.clone(), Arc::clone(&self.layout));
                inputs.push(file_input(reader, file, read, layout, bounds));
            }
            for piece in runs {
                let (schema, filter) = (Arc::clone(&schema), self.key_domains.clone());
                let counters = Some(self.reader.counters.clone());
                inputs.push(piece.input(Arc::clone(&self.layout), schema, filter, counters));
            }
            let merge = Merge::new(&self.layout, schema, inputs, true);
            let batches = futures::stream::try_unfold(merge, |mut merge| async move {
                Ok(merge.next().await?.map(|merged| (merged.batch, merge)))
            });
            return Ok(batches.boxed());
        }
        if let Some((file, groups)) = files.pop() {
            let bounds = bounds(&self.exact, file.span());
            let schema = self.schema(bounds.is_some(), with_op);
            let read = self.read(&schema, &ranges, groups, &self.domains);
            let batches = self.reader.open(&file, read).await?;
            let layout = Arc::clone(&self.layout);
            let batches = batches.and_then(move |batch| {
                let batch = match &bounds {
                    Some(bounds) => with_keys(&layout, batch, Some(bounds)).map(|s| s.batch),
                    None => Ok(batch),
                };
                futures::future::ready(batch.and_then(settle))
            });
            return Ok(batches.boxed());
        }
        let Some(piece) = runs.pop() else { return Ok(futures::stream::empty().boxed()) };
        let schema = self.schema(false, with_op);
        let counters = Some(self.reader.counters.clone());
        let rows = piece.read(Arc::clone(&self.layout), schema, self.key_domains.clone(), counters);
        Ok(rows.and_then(|sorted| futures::future::ready(settle(sorted.batch))).boxed())
    }

    fn read(
        &self,
        schema: &SchemaRef,
        ranges: &Arc<[KeyRange]>,
        groups: std::ops::Range<usize>,
        prune: &Domains,
    ) -> Read {
        Read {
            schema: Arc::clone(schema),
            prune: prune.clone(),
            filter: self.key_domains.clone(),
            ranges: Arc::clone(ranges),
            groups,
        }
    }

    /// The columns that a source has to give: those wanted, those that domains on fields need, and
    /// for a merge the key's and the operation.
    fn schema(&self, with_key: bool, with_op: bool) -> SchemaRef {
        let mut fields = self.columns.fields().to_vec();
        for field in &mut fields {
            if let Some(stored) = self.layout.field(field.name()) {
                *field = stored;
            }
        }
        let key = self.layout.key_names().filter(|_| with_key);
        let needed = key.chain(self.field_domains.iter().map(|(name, _)| name));
        for name in needed.chain(with_op.then_some(OP_COLUMN)) {
            if fields.iter().all(|field| field.name() != name) {
                // A column that the table does not have is NULL, which the domains know.
                fields.extend(self.layout.field(name));
            }
        }
        Arc::new(Schema::new(fields))
    }

    /// Applies what could not be applied to sources, gives rows the form that was asked for, and
    /// counts them against the limit.
    fn finish(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let mask = match self.field_domains.is_all() {
            true => None,
            false => self.field_domains.mask(batch)?,
        };
        let mut rows = adapt(batch, &self.columns)?;
        if let Some(mask) = mask
            && mask.true_count() < mask.len()
        {
            rows = filter_record_batch(&rows, &mask)?;
        }
        if self.limited {
            let wanted = |left: usize| Some(left - left.min(rows.num_rows()));
            let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, wanted);
            let left = left.unwrap_or_else(|left| left);
            rows = rows.slice(0, rows.num_rows().min(left));
        }
        Ok(rows)
    }
}

/// The range to cut a source's rows at, if they do not all lie in it.
fn bounds(range: &KeyRange, (first, last): (&[u8], &[u8])) -> Option<KeyRange> {
    (!range.contains(first) || !range.contains(last)).then(|| range.clone())
}

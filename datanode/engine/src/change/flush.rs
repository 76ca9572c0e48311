//! Flush: writes sealed memtables to files.
//!
//! Their runs are cut by time window and merged window by window. Nothing changes until the manifest has the new files
//! and the new log position, in one edit; a crash before that leaves files that the next start removes, and the rows
//! are still in the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::UInt32Array;
use arrow::compute::take_record_batch;
use futures::StreamExt;
use partita_proto::domain::Domains;

use crate::change::compaction::Flushes;
use crate::change::window;
use crate::error::Result;
use crate::file::FileMeta;
use crate::parquet::row_group::Purpose;
use crate::read::source::Piece;
use crate::rows::layout::Layout;
use crate::rows::memtable::Sealed;
use crate::rows::merge::{Input, Merge, Sorted};
use crate::rows::run::{Run, ticks};
use crate::state::manifest::{Durable, Edit};
use crate::state::partition::Partition;
use crate::state::version::{Flushed, Version};
use crate::write::rewrite::{Output, discard};

/// Bytes of memtables that are encoded on the current thread.
const FEW_BYTES: u64 = 256 * 1024;

/// Sorted rows of one window, oldest source first.
type Windows = BTreeMap<i64, Vec<Part>>;

enum Part {
    /// A run that lies in the window as a whole.
    Run(Arc<Run>),
    /// The rows of a run that lie in the window.
    Rows(Sorted),
}

impl Partition {
    /// Writes all sealed memtables to files; afterwards the durable mark is that of the last one. Returns true if the
    /// mark moved. Readers and writers continue meanwhile.
    ///
    /// # Errors
    /// [`crate::EngineError::DiskFull`]: nothing was changed, try again when there is space. Anything else: stop the
    /// partition.
    pub async fn flush(&self) -> Result<bool> {
        let _one_at_a_time = self.flushing.lock().await;
        self.check_running()?;
        let version = self.version();
        let Some(last) = version.sealed.last() else { return Ok(false) };
        let mut written = Vec::new();
        let width = match self.write_sealed(&version, false, &mut written).await {
            Ok(width) => width,
            Err(error) => {
                discard(&self.store, &self.root, &written).await;
                // If space is short, a merge makes some, so compaction no longer waits for more files.
                *self.flushes.lock() = Flushes::default();
                return Err(error);
            }
        };
        let durable = Durable {
            index: last.position.index,
            mark: last.position.mark.clone(),
            state: last.state.clone(),
        };
        let mut manifest = self.manifest.lock().await;
        if self.version().installs != version.installs {
            // The memtables were dropped with the state that they belonged to.
            drop(manifest);
            discard(&self.store, &self.root, &written).await;
            return Ok(false);
        }
        // Memtables that were truncated meanwhile are written all the same: after a crash the truncation is applied
        // again, and without one it hides the files.
        let forgotten: Vec<_> = self
            .version()
            .doomed
            .iter()
            .filter(|doomed| doomed.truncated <= durable.index)
            .map(|doomed| Arc::clone(&doomed.handle))
            .collect();
        let config = &version.layout.config;
        let edit = Edit {
            added: written.clone(),
            removed: forgotten.iter().map(|handle| handle.meta.id).collect(),
            durable: Some(durable.clone()),
            config: (manifest.recorded().config != *config).then(|| Arc::clone(config)),
            width,
            origin: None,
        };
        self.record(&mut manifest, edit, &written).await?;
        let flushed = Flushed {
            sealed: version.sealed.iter().map(|sealed| sealed.number).collect(),
            files: self.handles(&written),
            durable,
            width,
        };
        self.update(|current| current.flushed(flushed))?;
        self.flushes.lock().note(self.clock.now_ms());
        drop(manifest);
        self.retire(&forgotten);
        drop(forgotten);
        self.collect_garbage().await?;
        Ok(true)
    }

    /// Writes the sealed memtables of a version to files that no manifest names yet; with `lazy` they need not be
    /// durable ([`crate::Lazy`]). Returns the width of time windows, if it is known now.
    pub(crate) async fn write_sealed(
        &self,
        version: &Version,
        lazy: bool,
        written: &mut Vec<FileMeta>,
    ) -> Result<Option<i64>> {
        let width = width(&version.layout, &version.sealed, version.width)?;
        let output = Output { lazy, ..self.output(&version.layout, Purpose::Flush) };
        write_runs(&output, &version.sealed, width, written).await?;
        Ok(width)
    }
}

/// Width of time windows for the rows to be written, if the table has a time index.
fn width(layout: &Layout, sealed: &[Arc<Sealed>], present: Option<i64>) -> Result<Option<i64>> {
    let Some(time) = &layout.time else { return Ok(None) };
    let runs = sealed.iter().flat_map(|sealed| &sealed.memtable.runs);
    let columns = runs.map(|run| ticks(&run.sorted.batch, time)).collect::<Result<Vec<_>>>()?;
    let values = columns.iter().flat_map(|column| column.values().iter().copied());
    let chosen = layout.config.schema.options.time_window;
    Ok(Some(window::choose_width(values, time.unit, present, chosen)))
}

/// Writes memtables, oldest first, to files; all are under the output's layout.
async fn write_runs(
    output: &Output<'_>,
    sealed: &[Arc<Sealed>],
    width: Option<i64>,
    written: &mut Vec<FileMeta>,
) -> Result<()> {
    let runs: Vec<Arc<Run>> =
        sealed.iter().flat_map(|sealed| sealed.memtable.runs.iter().cloned()).collect();
    if runs.is_empty() {
        return Ok(());
    }
    let layout = output.layout;
    let few = sealed.iter().map(|sealed| sealed.memtable.bytes).sum::<u64>() <= FEW_BYTES;
    let run = output.manifest.lock().await.allocate();
    for (start, parts) in cut(layout, runs, width)? {
        let with_op = parts.iter().any(Part::has_op);
        let schema = layout.file_schema(with_op);
        let inputs = parts.into_iter().map(|part| part.input(layout, &schema)).collect();
        // An older version may be in a file, so deletes are kept.
        let merge = Merge::new(layout, Arc::clone(&schema), inputs, false);
        let window = width.map(|width| window::window(start, width));
        if output.lazy && few {
            // A split waits for these files.
            output.write_few(merge, schema, run, window, written).await?;
        } else {
            output.write(merge, schema, run, window, written).await?;
        }
    }
    Ok(())
}

fn cut(layout: &Layout, runs: Vec<Arc<Run>>, width: Option<i64>) -> Result<Windows> {
    let mut windows = Windows::new();
    for run in runs {
        let (Some(time), Some(width), Some((first, last))) = (&layout.time, width, run.time) else {
            windows.entry(i64::MIN).or_default().push(Part::Run(run));
            continue;
        };
        let start = window::start(first, width);
        if start == window::start(last, width) {
            windows.entry(start).or_default().push(Part::Run(run));
            continue;
        }
        let mut rows: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
        for (row, tick) in (0_u32..).zip(ticks(&run.sorted.batch, time)?.values()) {
            rows.entry(window::start(*tick, width)).or_default().push(row);
        }
        for (start, rows) in rows {
            let rows = UInt32Array::from(rows);
            let batch = take_record_batch(&run.sorted.batch, &rows)?;
            let keys = run.sorted.keys.take(&rows)?;
            windows.entry(start).or_default().push(Part::Rows(Sorted { batch, keys }));
        }
    }
    Ok(windows)
}

impl Part {
    fn has_op(&self) -> bool {
        match self {
            Self::Run(run) => run.has_op(),
            Self::Rows(sorted) => crate::rows::run::needs_op(&sorted.batch),
        }
    }

    /// An input of the merge, with the columns of `schema`; rows are adapted to it when the merge reads them.
    fn input(self, layout: &Arc<Layout>, schema: &arrow::datatypes::SchemaRef) -> Input {
        match self {
            Self::Run(run) => Piece::whole(&run).input(
                Arc::clone(layout),
                Arc::clone(schema),
                Domains::default(),
                None,
            ),
            Self::Rows(sorted) => {
                let first_key = sorted.keys.first().map(bytes::Bytes::copy_from_slice);
                let (layout, schema) = (Arc::clone(layout), Arc::clone(schema));
                let adapted = async move {
                    let batch = layout.adapt(&sorted.batch, &schema)?;
                    Ok(Sorted { batch, keys: sorted.keys })
                };
                let batches = futures::stream::once(adapted).boxed();
                Input { first: first_key.unwrap_or_default(), batches }
            }
        }
    }
}

//! Flush: sealed memtables to files.
//!
//! Their runs are cut by time window and merged window by window. Nothing changes until the manifest
//! has the new files and the new place in the log, in one edit; a crash before leaves files that the
//! next start removes, and the rows in the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::UInt32Array;
use arrow::compute::take_record_batch;
use futures::StreamExt;
use partita_proto::domain::Domains;

use crate::error::Result;
use crate::file::FileMeta;
use crate::layout::Layout;
use crate::memtable::Sealed;
use crate::merge::{Input, Merge, Sorted};
use crate::rewrite::Output;
use crate::run::{Run, ticks};
use crate::source::Piece;
use crate::window;

/// Sorted rows of one window, oldest source first.
type Windows = BTreeMap<i64, Vec<Part>>;

enum Part {
    /// A run that lies in the window.
    Run(Arc<Run>),
    /// The rows of a run that do.
    Rows(Sorted),
}

/// The width of windows for what is to be written, if the table has a time index.
pub(crate) fn width(
    layout: &Layout,
    sealed: &[Arc<Sealed>],
    now: Option<i64>,
) -> Result<Option<i64>> {
    let Some(time) = &layout.time else { return Ok(None) };
    let runs = sealed.iter().flat_map(|sealed| &sealed.memtable.runs);
    let columns = runs.map(|run| ticks(&run.sorted.batch, time)).collect::<Result<Vec<_>>>()?;
    let all = columns.iter().flat_map(|column| column.values().iter().copied());
    let chosen = layout.config.schema.options.time_window;
    Ok(Some(window::choose_width(all, time.unit, now, chosen)))
}

/// Writes memtables, oldest first, to files; all are under the output's layout.
pub(crate) async fn write(
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
    let run = output.manifest.lock().await.allocate();
    for (start, parts) in cut(layout, runs, width)? {
        let with_op = parts.iter().any(Part::has_op);
        let schema = layout.file_schema(with_op);
        let inputs = parts.into_iter().map(|part| part.input(layout, &schema)).collect();
        // An older version may be in a file, so deletes are kept.
        let merge = Merge::new(layout, Arc::clone(&schema), inputs, false);
        let window = width.map(|width| window::window(start, width));
        output.write(merge, schema, run, window, written).await?;
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
            Self::Rows(sorted) => crate::run::needs_op(&sorted.batch),
        }
    }

    fn input(self, layout: &Arc<Layout>, schema: &arrow::datatypes::SchemaRef) -> Input {
        match self {
            Self::Run(run) => Piece::whole(&run).input(
                Arc::clone(layout),
                Arc::clone(schema),
                Domains::default(),
                None,
            ),
            Self::Rows(sorted) => {
                let first = sorted.keys.first().map(bytes::Bytes::copy_from_slice);
                let schema = Arc::clone(schema);
                let adapted = async move {
                    let batch = crate::layout::adapt(&sorted.batch, &schema)?;
                    Ok(Sorted { batch, keys: sorted.keys })
                };
                let batches = futures::stream::once(adapted).boxed();
                Input { first: first.unwrap_or_default(), batches }
            }
        }
    }
}

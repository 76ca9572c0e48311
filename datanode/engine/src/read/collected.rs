//! Cells of a wide table without those that are garbage.
//!
//! ```text
//!   stream of cells in key order ── garbage removed ── other domains ── columns, limit ── stream
//! ```
//!
//! A domain on timestamps or values would hide newer versions of a column, by which older ones are garbage. So it is
//! applied here, behind the rules, and not where cells are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use futures::{StreamExt, TryStreamExt};
use partita_proto::domain::Domains;
use partita_proto::service::RowStream;

use crate::error::Result;
use crate::rows::collector::Collector;
use crate::rows::layout::Layout;

/// What becomes of a stream of cells.
pub(crate) struct Rest {
    pub(crate) collector: Collector,
    /// Domains that are applied behind the rules.
    pub(crate) domains: Domains,
    pub(crate) layout: Arc<Layout>,
    /// Columns that are returned.
    pub(crate) columns: SchemaRef,
    /// Number of cells still to be returned, of all streams.
    pub(crate) remaining: Arc<AtomicUsize>,
}

/// The cells of a stream that are no garbage. It must have all columns of the key, and those of the domains.
pub(crate) fn stream(cells: RowStream, rest: Rest) -> RowStream {
    let alive = futures::stream::try_unfold((cells, rest), |(mut cells, mut rest)| async move {
        if rest.remaining.load(Ordering::Relaxed) == 0 {
            return Ok::<_, partita_proto::Error>(None);
        }
        let Some(batch) = cells.next().await.transpose()? else { return Ok(None) };
        let rows = rest.finish(batch)?;
        Ok(Some((rows, (cells, rest))))
    });
    let is_filled = |batch: &RecordBatch| futures::future::ready(batch.num_rows() > 0);
    alive.try_filter(is_filled).boxed()
}

impl Rest {
    fn finish(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let mut rows = self.collector.collect(batch)?;
        if let Some(mask) = self.domains.mask(&rows)?
            && mask.true_count() < mask.len()
        {
            rows = filter_record_batch(&rows, &mask)?;
        }
        let rows = self.layout.adapt(&rows, &self.columns)?;
        let decrement = |remaining: usize| Some(remaining - remaining.min(rows.num_rows()));
        let remaining =
            self.remaining.fetch_update(Ordering::Relaxed, Ordering::Relaxed, decrement);
        let remaining = remaining.unwrap_or_else(|remaining| remaining);
        Ok(rows.slice(0, rows.num_rows().min(remaining)))
    }
}

//! Counts the cost of a scan's rows.
//!
//! Invariant: the rows of a scan are counted once, when its last stream has ended or was dropped.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use arrow::record_batch::RecordBatch;
use futures::Stream;
use partita_proto::error::Error;
use partita_proto::service::{RowStream, ScanStats};
use tokio::time::Instant;

use crate::load::Load;

/// Cost of all streams of one scan.
pub(crate) struct Meter {
    load: Arc<Load>,
    stats: Arc<ScanStats>,
    nanos: AtomicU64,
}

impl Meter {
    pub(crate) fn new(load: Arc<Load>, stats: Arc<ScanStats>) -> Arc<Self> {
        Arc::new(Self { load, stats, nanos: AtomicU64::new(0) })
    }

    /// Wraps a stream so that its work is counted.
    pub(crate) fn watch(self: &Arc<Self>, rows: RowStream) -> RowStream {
        Box::pin(Metered { rows, meter: Arc::clone(self) })
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let rows = self.stats.rows_scanned.load(Ordering::Relaxed);
        let bytes = self.stats.bytes_scanned.load(Ordering::Relaxed);
        self.load.read(rows, bytes, Duration::from_nanos(*self.nanos.get_mut()));
    }
}

struct Metered {
    rows: RowStream,
    meter: Arc<Meter>,
}

impl Stream for Metered {
    type Item = Result<RecordBatch, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let started = Instant::now();
        let polled = self.rows.as_mut().poll_next(context);
        let nanos = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.meter.nanos.fetch_add(nanos, Ordering::Relaxed);
        polled
    }
}

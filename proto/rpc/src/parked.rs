//! Streams of scans that wait to be fetched.
//!
//! A scan's first stream answers the request; the others wait here until they are fetched. They pin files, so they do
//! not wait for long: they are dropped when they are not fetched in time, or when the first one is dropped before its
//! end.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use partita_proto::Error;
use partita_proto::service::{RowStream, ScanStats};

/// Maximum waiting streams. Clients fetch them at once, so this is far more than there are unless clients die.
const STREAMS_MAX: usize = 16 << 10;

/// The waiting streams.
pub(crate) struct Parked {
    table: Mutex<Table>,
    /// Maximum waiting time.
    idle: Duration,
}

#[derive(Default)]
struct Table {
    scans: HashMap<u64, Scan>,
    /// Number of streams in all scans.
    streams: usize,
    /// True while a task expires streams.
    swept: bool,
}

struct Scan {
    /// Streams by number, from 1.
    streams: HashMap<u32, RowStream>,
    stats: Arc<ScanStats>,
    since: Instant,
}

impl Parked {
    pub(crate) fn new(idle: Duration) -> Arc<Self> {
        Arc::new(Self { table: Mutex::default(), idle })
    }

    /// Keeps streams until they are fetched or `Waiting` is dropped. Their numbers begin at 1.
    ///
    /// # Errors
    /// [`Error::Overloaded`] when too many wait.
    pub(crate) fn park(
        self: &Arc<Self>,
        streams: Vec<RowStream>,
        stats: &Arc<ScanStats>,
    ) -> Result<Waiting, Error> {
        let scan = crate::random();
        if streams.is_empty() {
            return Ok(Waiting { parked: Weak::new(), scan });
        }
        let mut table = self.table.lock();
        if table.streams + streams.len() > STREAMS_MAX {
            return Err(Error::Overloaded(format!(
                "{} streams of scans wait to be fetched, the limit is {STREAMS_MAX}",
                table.streams
            )));
        }
        table.streams += streams.len();
        let streams = (1..).zip(streams).collect();
        let start = Instant::now();
        table.scans.insert(scan, Scan { streams, stats: Arc::clone(stats), since: start });
        if !std::mem::replace(&mut table.swept, true) {
            tokio::spawn(sweep(Arc::downgrade(self), self.idle));
        }
        Ok(Waiting { parked: Arc::downgrade(self), scan })
    }

    /// Returns a stream, once.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when it does not wait here, or no longer.
    pub(crate) fn fetch(
        &self,
        scan: u64,
        number: u32,
    ) -> Result<(RowStream, Arc<ScanStats>), Error> {
        let mut table = self.table.lock();
        let entry = table.scans.get_mut(&scan).and_then(|scan| {
            Some((scan.streams.remove(&number)?, Arc::clone(&scan.stats), scan.streams.is_empty()))
        });
        let Some((stream, stats, last)) = entry else {
            return Err(Error::Unavailable(format!("stream {number} of a scan is gone")));
        };
        table.streams -= 1;
        if last {
            table.scans.remove(&scan);
        }
        Ok((stream, stats))
    }

    /// Removes the remaining streams of a scan.
    fn forget(&self, scan: u64) {
        let mut table = self.table.lock();
        let removed = table.scans.remove(&scan);
        table.streams -= removed.as_ref().map_or(0, |scan| scan.streams.len());
        drop(table);
        // Streams are dropped outside of the lock.
        drop(removed);
    }

    /// Removes streams that have waited for too long. Returns true if any are left.
    fn expire(&self) -> bool {
        let mut table = self.table.lock();
        let expired: Vec<Scan> = table
            .scans
            .extract_if(|_, scan| scan.since.elapsed() >= self.idle)
            .map(|(_, scan)| scan)
            .collect();
        table.streams -= expired.iter().map(|scan| scan.streams.len()).sum::<usize>();
        table.swept = !table.scans.is_empty();
        let any_left = table.swept;
        drop(table);
        drop(expired);
        any_left
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.table.lock().streams
    }
}

/// Expires streams while there are any.
async fn sweep(parked: Weak<Parked>, idle: Duration) {
    loop {
        tokio::time::sleep(idle / 4).await;
        let Some(parked) = parked.upgrade() else { return };
        if !parked.expire() {
            return;
        }
    }
}

/// Guard of the scan's first stream: when it is dropped, the other streams are removed.
pub(crate) struct Waiting {
    parked: Weak<Parked>,
    scan: u64,
}

impl Waiting {
    /// The number under which the scan's streams are fetched.
    pub(crate) fn scan(&self) -> u64 {
        self.scan
    }

    /// The first stream has ended; the others may still be fetched.
    pub(crate) fn leave(&mut self) {
        self.parked = Weak::new();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(parked) = self.parked.upgrade() {
            parked.forget(self.scan);
        }
    }
}

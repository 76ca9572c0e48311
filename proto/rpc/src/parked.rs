//! The streams of scans that were not asked for yet.
//!
//! A scan's first stream answers the request; the others wait here until they are fetched. They pin
//! files, so they do not wait for long: they go when nobody asks, or when the first one is dropped
//! before its end.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use partita_proto::Error;
use partita_proto::service::{RowStream, ScanStats};

/// Streams that may wait at a time. Clients ask for them at once, so that this is far more than
/// there are unless clients die.
const STREAMS_MAX: usize = 16 << 10;

/// The streams that wait.
pub(crate) struct Parked {
    table: Mutex<Table>,
    /// How long they wait.
    idle: Duration,
}

#[derive(Default)]
struct Table {
    scans: HashMap<u64, Scan>,
    /// In all scans.
    streams: usize,
    /// Whether a task looks after them.
    swept: bool,
}

struct Scan {
    /// By number, from 1 on.
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
        let since = Instant::now();
        table.scans.insert(scan, Scan { streams, stats: Arc::clone(stats), since });
        if !std::mem::replace(&mut table.swept, true) {
            tokio::spawn(sweep(Arc::downgrade(self), self.idle));
        }
        Ok(Waiting { parked: Arc::downgrade(self), scan })
    }

    /// Gives out a stream, once.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when it is not there (any more).
    pub(crate) fn fetch(
        &self,
        scan: u64,
        number: u32,
    ) -> Result<(RowStream, Arc<ScanStats>), Error> {
        let mut table = self.table.lock();
        let found = table.scans.get_mut(&scan).and_then(|scan| {
            Some((scan.streams.remove(&number)?, Arc::clone(&scan.stats), scan.streams.is_empty()))
        });
        let Some((stream, stats, last)) = found else {
            return Err(Error::Unavailable(format!("stream {number} of a scan is gone")));
        };
        table.streams -= 1;
        if last {
            table.scans.remove(&scan);
        }
        Ok((stream, stats))
    }

    /// Removes what is left of a scan.
    fn forget(&self, scan: u64) {
        let mut table = self.table.lock();
        let gone = table.scans.remove(&scan);
        table.streams -= gone.as_ref().map_or(0, |scan| scan.streams.len());
        drop(table);
        // Streams end outside of the lock.
        drop(gone);
    }

    /// Removes what has waited for too long. Returns whether anything is left to look after.
    fn expire(&self) -> bool {
        let mut table = self.table.lock();
        let gone: Vec<Scan> = table
            .scans
            .extract_if(|_, scan| scan.since.elapsed() >= self.idle)
            .map(|(_, scan)| scan)
            .collect();
        table.streams -= gone.iter().map(|scan| scan.streams.len()).sum::<usize>();
        table.swept = !table.scans.is_empty();
        let left = table.swept;
        drop(table);
        drop(gone);
        left
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.table.lock().streams
    }
}

/// Looks after the streams while there are any.
async fn sweep(parked: Weak<Parked>, idle: Duration) {
    loop {
        tokio::time::sleep(idle / 4).await;
        let Some(parked) = parked.upgrade() else { return };
        if !parked.expire() {
            return;
        }
    }
}

/// Of the one who answers with a scan's first stream: when it is dropped, the others are not waited
/// for any more.
pub(crate) struct Waiting {
    parked: Weak<Parked>,
    scan: u64,
}

impl Waiting {
    /// The number that the scan is fetched by.
    pub(crate) fn scan(&self) -> u64 {
        self.scan
    }

    /// The first stream has come to its end; the others may still be fetched.
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

//! The pace of a fill: paused, bounded, or as fast as it goes.
//!
//! The settings are those of the newest catalog, so that an order reaches a fill that is under way. A request takes as
//! many rows as a busy partition takes in a moment: clients' writes that come behind it wait as long as it does.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use partita_proto::Error;
use partita_proto::catalog::Catalog;
use partita_proto::id::TableId;
use partita_proto::materialized::CopyChange;
use partita_proto::service::Ddl;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use super::Copies;

/// Interval at which the settings are looked at while rows wait.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Rows of the first request of a fill, and of the smallest and largest one.
const FIRST_ROWS: usize = 256;
const ROWS: std::ops::RangeInclusive<usize> = 8..=65_536;
/// Times of a request: one that takes less is followed by a larger one, one that takes more by a smaller one.
const QUICK: Duration = Duration::from_millis(20);
const SLOW: Duration = Duration::from_millis(50);

/// Rows of the request that follows one of `rows` rows that took a time.
fn next_rows(rows: usize, time: Duration) -> usize {
    let next = match time {
        time if time < QUICK => rows * 2,
        time if time > SLOW => rows / 2,
        _ => rows,
    };
    next.clamp(*ROWS.start(), *ROWS.end())
}

/// Rows that one fill has copied, and the last of them; and its signs of life.
#[derive(Debug)]
pub(super) struct Pace {
    rows: AtomicU64,
    /// Number of the last sign of life.
    beats: Mutex<u64>,
    last: Mutex<Turn>,
    /// Maximum rows of the next request.
    request_rows: AtomicUsize,
}

/// Rows that were copied at a time.
#[derive(Clone, Copy, Debug)]
struct Turn {
    start: Instant,
    rows: u64,
}

impl Turn {
    /// The time at which the next rows may be copied, at a number of rows per second; 0: at once.
    fn end(self, rows_per_second: u64) -> Instant {
        match self.rows.saturating_mul(1_000_000).checked_div(rows_per_second) {
            Some(micros) => self.start + Duration::from_micros(micros),
            None => self.start,
        }
    }
}

impl Pace {
    pub(super) fn new() -> Self {
        let last = Turn { start: Instant::now(), rows: 0 };
        Self {
            rows: AtomicU64::new(0),
            beats: Mutex::new(0),
            last: Mutex::new(last),
            request_rows: AtomicUsize::new(FIRST_ROWS),
        }
    }

    /// Maximum rows of the next request.
    pub(super) fn request_rows(&self) -> usize {
        self.request_rows.load(Ordering::Relaxed)
    }

    /// Takes the time of a request of so many rows.
    pub(super) fn took(&self, rows: usize, time: Duration) {
        let rows_max = self.request_rows();
        // The end of a batch says nothing of larger requests.
        if rows == rows_max || time > SLOW {
            self.request_rows.store(next_rows(rows_max, time), Ordering::Relaxed);
        }
    }
}

/// Settings of a re-keying: true if it is paused, and the maximum rows per second; 0: unlimited.
fn settings(catalog: &Catalog, copy: TableId) -> (bool, u64) {
    let table = catalog.table_by_id(copy);
    let rekeying = table.and_then(|table| table.copy.as_ref()?.rekeying);
    rekeying.map_or((false, 0), |rekeying| (rekeying.is_paused, rekeying.rows_per_second))
}

impl Copies {
    /// Gives a sign of life of a fill, with the rows copied so far. False if meta does not take it any more.
    pub(super) async fn tell_progress(
        &self,
        copy: TableId,
        filler: u64,
        pace: &Pace,
    ) -> Result<bool, Error> {
        // One after the other: meta refuses a number that is not larger than the last one.
        let mut beats = pace.beats.lock().await;
        *beats += 1;
        let rows = pace.rows.load(Ordering::Relaxed);
        self.meta.change(Ddl::Copy(CopyChange::Beat { copy, filler, beat: *beats, rows })).await
    }

    /// Waits until a fill may copy rows, one request after another.
    pub(super) async fn take_turn(&self, copy: TableId, pace: &Pace, rows: u64) {
        let mut last = pace.last.lock().await;
        loop {
            let (is_paused, rows_per_second) = settings(&self.view.catalog(), copy);
            let (time, end) = (Instant::now(), last.end(rows_per_second));
            if !is_paused && end <= time {
                break;
            }
            let look = time + LOOK_EVERY;
            sleep_until(if is_paused { look } else { end.min(look) }).await;
        }
        *last = Turn { start: Instant::now(), rows };
        pace.rows.fetch_add(rows, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rows_wait_for_those_before_at_the_bound_of_now() {
        let start = Instant::now();
        let wait = |rows, bound| (Turn { start, rows }.end(bound) - start).as_millis();
        assert_eq!([wait(500, 1_000), wait(500, 2_000), wait(0, 1_000)], [500, 250, 0]);
        assert_eq!(wait(500, 0), 0, "there is no bound");
    }

    #[test]
    fn requests_become_as_large_as_they_are_quick() {
        let pace = Pace::new();
        let take = |rows, millis| {
            pace.took(rows, Duration::from_millis(millis));
            pace.request_rows()
        };
        assert_eq!(take(256, 5), 512);
        assert_eq!(take(100, 5), 512, "a smaller request was quick");
        assert_eq!(take(512, 30), 512);
        assert_eq!(take(100, 900), 256);
        for _ in 0..20 {
            take(pace.request_rows(), 5_000);
        }
        assert_eq!(pace.request_rows(), *ROWS.start());
        for _ in 0..20 {
            take(pace.request_rows(), 1);
        }
        assert_eq!(pace.request_rows(), *ROWS.end());
    }
}

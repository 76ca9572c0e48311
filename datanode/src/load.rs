//! Counts the load of one replica while it leads.
//!
//! ```text
//!   writer ── busy, latency ──┐
//!   machine ── busy, keys ────┼──> Load ──> beat ──> meta
//!   scans ── keys, ranges ────┘
//! ```
//!
//! The *write lane* of a partition is all work that its writes do one after another: encoding proposals, waiting for a
//! free place among those in flight, applying. It is busy while it does any of this, so its busy share says how close
//! the partition is to its maximum rate.
//!
//! Invariants: counters never decrease within a term; all state is bounded; code here waits for nothing but a short
//! lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use partita_load::{Columns, Counters, Sampler};
use partita_proto::beat::{Latency, LoadBeat};
use partita_proto::clock::Clock;
use partita_proto::id::PartitionId;
use partita_proto::key::{KeyCodec, Keys};
use partita_proto::range::KeyRange;

/// Seconds of samples that each beat repeats, so that a lost beat loses none.
const SECONDS_PER_BEAT: u64 = 4;
/// Upper bound of recorded durations; from 1 µs to a minute, to two digits: about 20 KB.
const LATENCY_MAX_US: u64 = 60_000_000;

/// The load of one replica.
pub(crate) struct Load {
    clock: Arc<dyn Clock>,
    /// True if the lane's rate is limited: then the lane's busy time follows from that limit and the rows.
    bounded: bool,
    write_rows: AtomicU64,
    write_bytes: AtomicU64,
    write_batches: AtomicU64,
    read_rows: AtomicU64,
    read_bytes: AtomicU64,
    point_reads: AtomicU64,
    range_reads: AtomicU64,
    scans: AtomicU64,
    busy_ns: AtomicU64,
    scan_ns: AtomicU64,
    rejected: AtomicU64,
    throttled_ns: AtomicU64,
    term: Mutex<Term>,
    write_keys: Mutex<Sampler>,
    read_keys: Mutex<Sampler>,
    highest: Mutex<Option<Bytes>>,
    writes: Mutex<Durations>,
    reads: Mutex<Durations>,
}

/// Values of the counters at the beginning of the term.
#[derive(Default)]
struct Term {
    number: u64,
    since_ms: u64,
    before: Counters,
}

/// Histogram of durations; allocated at the first one.
#[derive(Default)]
struct Durations(Option<Histogram<u64>>);

impl Durations {
    fn add(&mut self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        if self.0.is_none() {
            self.0 = Histogram::new_with_bounds(1, LATENCY_MAX_US, 2).ok();
        }
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(micros.max(1));
        }
    }

    fn take(&mut self) -> Latency {
        let Some(histogram) = &mut self.0 else { return Latency::default() };
        let latency = Latency {
            count: histogram.len(),
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        };
        histogram.reset();
        latency
    }
}

impl Load {
    /// Creates counters at zero. `seed` determines which keys are sampled.
    pub(crate) fn new(clock: Arc<dyn Clock>, codec: &KeyCodec, seed: u64, bounded: bool) -> Self {
        let columns = {
            let codec = codec.clone();
            let columns: Columns = Arc::new(move |key: &[u8]| codec.cell_ends(key));
            columns
        };
        let sampler = |seed| Mutex::new(Sampler::new(seed).with_columns(Arc::clone(&columns)));
        let now_ms = now_ms(&clock);
        // All counters start at zero; keys of reads and writes are sampled with different seeds.
        Self {
            write_rows: AtomicU64::new(0),
            write_bytes: AtomicU64::new(0),
            write_batches: AtomicU64::new(0),
            read_rows: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            point_reads: AtomicU64::new(0),
            range_reads: AtomicU64::new(0),
            scans: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
            scan_ns: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            throttled_ns: AtomicU64::new(0),
            term: Mutex::new(Term { since_ms: now_ms, ..Term::default() }),
            write_keys: sampler(seed),
            read_keys: sampler(seed.wrapping_add(1)),
            highest: Mutex::new(None),
            writes: Mutex::default(),
            reads: Mutex::default(),
            clock,
            bounded,
        }
    }

    /// Counts applied rows by their keys, which are in order of arrival or of key.
    pub(crate) fn wrote(&self, keys: &Keys) {
        let second = now_ms(&self.clock) / 1_000;
        self.write_keys.lock().observe(second, keys.len(), |row| keys.get(row));
        let Some(highest) = keys.iter().max() else { return };
        let mut current = self.highest.lock();
        if current.as_ref().is_none_or(|current| current.as_ref() < highest) {
            *current = Some(Bytes::copy_from_slice(highest));
        }
    }

    /// Records that the partition's range has changed.
    pub(crate) fn resized(&self, range: &KeyRange) {
        let mut current = self.highest.lock();
        current.take_if(|highest| !range.contains(highest));
    }

    /// Counts applied rows and bytes, and the requests that they came with.
    pub(crate) fn applied(&self, rows: u64, bytes: u64, requests: u64) {
        self.write_rows.fetch_add(rows, Ordering::Relaxed);
        self.write_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.write_batches.fetch_add(requests, Ordering::Relaxed);
    }

    /// Adds busy time of the write lane.
    pub(crate) fn busy(&self, time: Duration) {
        add(&self.busy_ns, time);
    }

    /// Adds time that the write lane used the machine; not counted when the lane's rate is limited.
    pub(crate) fn worked(&self, time: Duration) {
        if !self.bounded {
            self.busy(time);
        }
    }

    /// Counts an answered write and its latency.
    pub(crate) fn answered(&self, took: Duration) {
        self.writes.lock().add(took);
    }

    /// Counts an opened scan of `ranges` in a partition that owns the range `whole`.
    pub(crate) fn opened(&self, ranges: &[KeyRange], whole: &KeyRange, took: Duration) {
        self.reads.lock().add(took);
        let second = now_ms(&self.clock) / 1_000;
        let mut sampler = self.read_keys.lock();
        if ranges.iter().any(|range| range == whole) {
            self.scans.fetch_add(1, Ordering::Relaxed);
            sampler.observe_scan(second, &whole.start, whole.end.as_deref().unwrap_or_default());
            return;
        }
        for range in ranges {
            if range.end == KeyCodec::successor(&range.start) {
                self.point_reads.fetch_add(1, Ordering::Relaxed);
                sampler.observe(second, 1, |_| &range.start);
            } else {
                self.range_reads.fetch_add(1, Ordering::Relaxed);
                let end = range.end.as_deref().unwrap_or_default();
                sampler.observe_scan(second, &range.start, end);
            }
        }
    }

    /// Counts rows that a scan returned.
    pub(crate) fn read(&self, rows: u64, bytes: u64, time: Duration) {
        self.read_rows.fetch_add(rows, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
        add(&self.scan_ns, time);
    }

    /// Counts a request refused because a bound was reached.
    pub(crate) fn rejected(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a write delayed because a bound was reached.
    pub(crate) fn held_back(&self, time: Duration) {
        add(&self.throttled_ns, time);
    }

    fn counters(&self) -> Counters {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            write_rows: value(&self.write_rows),
            write_bytes: value(&self.write_bytes),
            write_batches: value(&self.write_batches),
            read_rows: value(&self.read_rows),
            read_bytes: value(&self.read_bytes),
            point_reads: value(&self.point_reads),
            range_reads: value(&self.range_reads),
            scans: value(&self.scans),
            busy_ns: value(&self.busy_ns),
            scan_ns: value(&self.scan_ns),
            rejected: value(&self.rejected),
            throttled_ns: value(&self.throttled_ns),
        }
    }

    /// The heartbeat's content for meta; resets the histograms of durations.
    pub(crate) fn beat(
        &self,
        partition: PartitionId,
        term: u64,
        size_bytes: u64,
        queue_depth: usize,
    ) -> LoadBeat {
        let at_ms = now_ms(&self.clock);
        let counters = self.counters();
        let mut current_term = self.term.lock();
        if current_term.number != term {
            *current_term = Term { number: term, since_ms: at_ms, before: counters };
        }
        let second = at_ms / 1_000;
        LoadBeat {
            partition,
            term,
            since_ms: current_term.since_ms,
            at_ms,
            counters: since(&counters, &current_term.before),
            size_bytes,
            queue_depth: u32::try_from(queue_depth).unwrap_or(u32::MAX),
            writes: self.writes.lock().take(),
            reads: self.reads.lock().take(),
            highest: self.highest.lock().clone(),
            write_keys: self.write_keys.lock().sketch(second, SECONDS_PER_BEAT),
            read_keys: self.read_keys.lock().sketch(second, SECONDS_PER_BEAT),
        }
    }
}

fn add(counter: &AtomicU64, time: Duration) {
    counter.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

fn now_ms(clock: &Arc<dyn Clock>) -> u64 {
    u64::try_from(clock.now_ms()).unwrap_or(0)
}

fn since(total: &Counters, start: &Counters) -> Counters {
    Counters {
        write_rows: total.write_rows - start.write_rows,
        write_bytes: total.write_bytes - start.write_bytes,
        write_batches: total.write_batches - start.write_batches,
        read_rows: total.read_rows - start.read_rows,
        read_bytes: total.read_bytes - start.read_bytes,
        point_reads: total.point_reads - start.point_reads,
        range_reads: total.range_reads - start.range_reads,
        scans: total.scans - start.scans,
        busy_ns: total.busy_ns - start.busy_ns,
        scan_ns: total.scan_ns - start.scan_ns,
        rejected: total.rejected - start.rejected,
        throttled_ns: total.throttled_ns - start.throttled_ns,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicI64;

    use partita_proto::placement::Placement;

    use super::*;

    #[derive(Default)]
    struct Hand(AtomicI64);

    impl Clock for Hand {
        fn now_ms(&self) -> i64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn load() -> (Arc<Hand>, Load) {
        let clock = Arc::new(Hand(AtomicI64::new(10_000)));
        let codec = KeyCodec::new(&crate::tests::schema(false), &Placement::Range).unwrap();
        (Arc::clone(&clock), Load::new(clock, &codec, 7, false))
    }

    #[test]
    fn counters_begin_anew_with_a_term() {
        let (clock, load) = load();
        load.applied(5, 50, 1);
        let first = load.beat(PartitionId(1), 3, 0, 0);
        assert_eq!(
            first.counters,
            Counters::default(),
            "what came before the first term is nobody's"
        );
        load.applied(7, 70, 2);
        load.busy(Duration::from_millis(4));
        clock.0.store(11_000, Ordering::Relaxed);
        let second = load.beat(PartitionId(1), 3, 9, 2);
        assert_eq!((second.since_ms, second.at_ms), (first.since_ms, 11_000));
        assert_eq!((second.counters.write_rows, second.counters.busy_ns), (7, 4_000_000));
        let third = load.beat(PartitionId(1), 4, 9, 2);
        assert_eq!((third.since_ms, third.counters.write_rows), (11_000, 0));
    }

    #[test]
    fn durations_are_those_since_the_beat_before() {
        let (_, load) = load();
        for millis in 1..=100 {
            load.answered(Duration::from_millis(millis));
        }
        let writes = load.beat(PartitionId(1), 1, 0, 0).writes;
        assert_eq!(writes.count, 100);
        assert!((49_000..=51_000).contains(&writes.p50), "{writes:?}");
        assert!((98_000..=101_000).contains(&writes.p99), "{writes:?}");
        assert_eq!(load.beat(PartitionId(1), 1, 0, 0).writes, Latency::default());
    }

    #[test]
    fn samples_of_the_last_seconds_come_with_the_beat() {
        let (clock, load) = load();
        let keys = Keys::from_encoded([[1_u8], [3], [2]]);
        load.wrote(&keys);
        let range = KeyRange { start: Bytes::from_static(&[1]), end: None };
        load.opened(&[range], &KeyRange::all(), Duration::from_micros(5));
        clock.0.store(11_500, Ordering::Relaxed);
        let beat = load.beat(PartitionId(1), 1, 0, 0);
        assert_eq!(beat.highest.as_deref(), Some(&[3_u8][..]));
        let [tick] = &beat.write_keys.ticks[..] else { panic!("{:?}", beat.write_keys) };
        assert_eq!((tick.second, tick.count, tick.samples.len()), (10, 3, 3));
        let [tick] = &beat.read_keys.ticks[..] else { panic!("{:?}", beat.read_keys) };
        assert_eq!(tick.samples[0].end.as_deref(), Some(&[][..]));
        clock.0.store(20_000, Ordering::Relaxed);
        assert!(load.beat(PartitionId(1), 1, 0, 0).write_keys.ticks.is_empty());
    }
}

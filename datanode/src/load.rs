//! Counts the load of one replica while it leads, and its reads also while it does not.
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
//! A partition whose lane or reads are busy, or whose writes are held back, is *engaged*: its samplers keep a minute of
//! keys and count frequent ones.
//!
//! Recent work is known of every replica, so that frontends can choose among those that may answer a read.
//!
//! Invariants: counters never decrease within a term; all state is bounded; code here waits for nothing but a short
//! lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use partita_load::{Columns, Counters, Engagement, Sampler};
use partita_proto::beat::{FollowerReads, Latency, LoadBeat};
use partita_proto::clock::Clock;
use partita_proto::id::PartitionId;
use partita_proto::key::{KeyCodec, Keys};
use partita_proto::range::KeyRange;
use tokio::time::Instant;

/// Seconds of samples that each beat repeats, so that a lost beat loses none.
const SECONDS_PER_BEAT: u64 = 4;
/// Upper bound of recorded durations; from 1 µs to a minute, to two digits: about 20 KB.
const LATENCY_MAX_US: u64 = 60_000_000;
/// Beats in which unchanged reads of a follower are repeated, so that a lost beat loses none.
const UNCHANGED_BEATS: u32 = 3;
/// Minimum time over which recent work is measured.
const RECENT: Duration = Duration::from_millis(250);

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
    pace: Mutex<Pace>,
    following: Mutex<Following>,
    recent: Mutex<Recent>,
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

/// Counters at the previous beat, and if the samplers are engaged since.
#[derive(Default)]
struct Pace {
    at_ms: u64,
    previous: Counters,
    engagement: Engagement,
}

impl Pace {
    /// Hears of the counters at the time of a beat, and returns if the samplers are to be engaged; `None` for a beat at
    /// the time of the previous one.
    fn note(&mut self, at_ms: u64, counters: &Counters) -> Option<bool> {
        let gap_ms = at_ms.saturating_sub(self.at_ms);
        if gap_ms == 0 {
            return None;
        }
        let previous = std::mem::replace(&mut self.previous, *counters);
        self.at_ms = at_ms;
        let busy_ns = counters.busy_ns.saturating_sub(previous.busy_ns);
        let busy_ns = busy_ns.max(counters.scan_ns.saturating_sub(previous.scan_ns));
        let busy_ms = busy_ns as f64 / 1e6;
        let held_back =
            counters.rejected > previous.rejected || counters.throttled_ns > previous.throttled_ns;
        Some(self.engagement.note(busy_ms / gap_ms as f64, held_back))
    }
}

/// Reads since the replica began to follow.
#[derive(Default)]
struct Following {
    since_ms: u64,
    /// Counters at that time.
    before: Counters,
    /// Reads in the last beat, and the number of beats since they were others.
    reported: Counters,
    unchanged: u32,
}

/// Thousandths of a core that a replica's work took lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) write_millicores: u64,
    pub(crate) read_millicores: u64,
}

/// Work between the last two times at which it was measured.
#[derive(Default)]
struct Recent {
    measured: Option<Instant>,
    busy_ns: u64,
    scan_ns: u64,
    work: Work,
}

impl Recent {
    /// Work before `time`, when the lane's and the scans' times since the start were these.
    fn note(&mut self, time: Instant, busy_ns: u64, scan_ns: u64) -> Work {
        let gap = self.measured.map(|measured| time.saturating_duration_since(measured));
        if gap.is_some_and(|gap| gap < RECENT) {
            return self.work;
        }
        if let Some(gap) = gap {
            // Nanoseconds per microsecond are thousandths.
            let gap_us = u64::try_from(gap.as_micros()).unwrap_or(u64::MAX);
            self.work = Work {
                write_millicores: busy_ns.saturating_sub(self.busy_ns) / gap_us,
                read_millicores: scan_ns.saturating_sub(self.scan_ns) / gap_us,
            };
        }
        (self.measured, self.busy_ns, self.scan_ns) = (Some(time), busy_ns, scan_ns);
        self.work
    }
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
            pace: Mutex::new(Pace { at_ms: now_ms, ..Pace::default() }),
            following: Mutex::new(Following { since_ms: now_ms, ..Following::default() }),
            recent: Mutex::default(),
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

    /// Records the lowest and the highest key that the partition is known to hold: no key between them counts as
    /// appended.
    pub(crate) fn edges(&self, low: &[u8], high: &[u8]) {
        for sampler in [&self.write_keys, &self.read_keys] {
            sampler.lock().set_edges(Some(low), Some(high));
        }
    }

    /// Keeps no more than a few seconds of samples, for a replica that does not lead.
    pub(crate) fn release(&self) {
        self.pace.lock().engagement = Engagement::default();
        self.engage(false);
    }

    fn engage(&self, engaged: bool) {
        for sampler in [&self.write_keys, &self.read_keys] {
            let mut sampler = sampler.lock();
            if sampler.is_engaged() != engaged {
                sampler.engage(engaged);
            }
        }
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

    /// Work of the replica in the last moments before `time`.
    pub(crate) fn recent_work(&self, time: Instant) -> Work {
        let (busy_ns, scan_ns) = (&self.busy_ns, &self.scan_ns);
        let (busy_ns, scan_ns) = (busy_ns.load(Ordering::Relaxed), scan_ns.load(Ordering::Relaxed));
        self.recent.lock().note(time, busy_ns, scan_ns)
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

    /// The heartbeat's content for meta; resets the histograms of durations. Engages or releases the samplers by the
    /// load since the previous beat.
    pub(crate) fn beat(
        &self,
        partition: PartitionId,
        term: u64,
        size_bytes: u64,
        queue_depth: usize,
    ) -> LoadBeat {
        let at_ms = now_ms(&self.clock);
        let counters = self.counters();
        if let Some(engaged) = self.pace.lock().note(at_ms, &counters) {
            self.engage(engaged);
        }
        let mut current_term = self.term.lock();
        if current_term.number != term {
            *current_term = Term { number: term, since_ms: at_ms, before: counters };
        }
        *self.following.lock() =
            Following { since_ms: at_ms, before: counters, ..Following::default() };
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

    /// The heartbeat's content for meta while the replica does not lead; `None` if it answered no reads lately.
    pub(crate) fn follower_reads(&self, partition: PartitionId) -> Option<FollowerReads> {
        // In this order: the counters are never below those from before.
        let mut following = self.following.lock();
        let counters = reads_of(&since(&self.counters(), &following.before));
        if counters == following.reported {
            following.unchanged = following.unchanged.saturating_add(1);
        } else {
            (following.reported, following.unchanged) = (counters, 0);
        }
        let is_news = counters != Counters::default() && following.unchanged < UNCHANGED_BEATS;
        is_news.then_some(FollowerReads { partition, since_ms: following.since_ms, counters })
    }
}

/// The counters of reads.
fn reads_of(counters: &Counters) -> Counters {
    Counters {
        read_rows: counters.read_rows,
        read_bytes: counters.read_bytes,
        point_reads: counters.point_reads,
        range_reads: counters.range_reads,
        scans: counters.scans,
        scan_ns: counters.scan_ns,
        ..Counters::default()
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

    /// Writes one key many times in the second `second`, with the lane busy for some milliseconds, and beats.
    fn second(clock: &Hand, load: &Load, second: i64, busy_ms: u64) -> LoadBeat {
        clock.0.store(second * 1_000, Ordering::Relaxed);
        load.wrote(&Keys::from_encoded([[7_u8]; 40]));
        load.busy(Duration::from_millis(busy_ms));
        clock.0.store(second * 1_000 + 900, Ordering::Relaxed);
        load.beat(PartitionId(1), 1, 0, 0)
    }

    #[test]
    fn frequent_keys_come_from_a_busy_leader_until_a_minute_after() {
        let (clock, load) = load();
        let engaged = |load: &Load| load.write_keys.lock().is_engaged();
        for at in 11..=20 {
            assert!(second(&clock, &load, at, 50).write_keys.heavy.is_empty(), "{at}");
        }
        assert!(!engaged(&load), "5 % busy");
        second(&clock, &load, 21, 200);
        assert!(engaged(&load) && load.read_keys.lock().is_engaged());
        let beat = second(&clock, &load, 22, 200);
        let (key, share) = &beat.write_keys.heavy[0];
        assert_eq!(key.as_ref(), [7]);
        assert!(*share > 0.9, "{share}");
        for at in 23..=81 {
            second(&clock, &load, at, 10);
            assert!(engaged(&load), "{at}");
        }
        let beat = second(&clock, &load, 82, 10);
        assert!(!engaged(&load) && beat.write_keys.heavy.is_empty());
        // A delayed write is a sign of overload, however idle the lane is.
        load.held_back(Duration::from_millis(1));
        second(&clock, &load, 83, 0);
        assert!(engaged(&load));
        load.release();
        assert!(!engaged(&load));
    }

    #[test]
    fn what_a_replica_keeps_of_keys_is_bounded() {
        let (clock, load) = load();
        for at in 0..300_u32 {
            clock.0.store(i64::from(at) * 1_000 + 11_000, Ordering::Relaxed);
            let keys: Vec<[u8; 4]> =
                (0..200_u32).map(|row| (at * 1_000 + row).to_be_bytes()).collect();
            load.wrote(&Keys::from_encoded(keys));
            load.busy(Duration::from_millis(500));
            let beat = load.beat(PartitionId(1), 1, 0, 0);
            let seconds = usize::try_from(SECONDS_PER_BEAT).unwrap();
            assert!(beat.write_keys.ticks.len() <= seconds && beat.write_keys.heavy.len() <= 400);
            let kept = load.write_keys.lock().sketch(u64::from(at) + 12, 1_000);
            let keys: usize = kept.ticks.iter().map(|tick| tick.samples.len()).sum();
            assert!(kept.ticks.len() <= 61 && keys <= 61 * 32, "{} {keys}", kept.ticks.len());
        }
    }

    #[test]
    fn reads_of_a_follower_are_told_while_there_are_new_ones() {
        let (clock, load) = load();
        assert_eq!(load.follower_reads(PartitionId(1)), None);
        load.read(5, 50, Duration::from_millis(2));
        load.applied(7, 70, 1);
        let reads = load.follower_reads(PartitionId(1)).unwrap();
        let expected =
            Counters { read_rows: 5, read_bytes: 50, scan_ns: 2_000_000, ..Counters::default() };
        assert_eq!((reads.since_ms, reads.counters), (10_000, expected));
        assert_eq!(
            load.follower_reads(PartitionId(1)),
            Some(reads),
            "repeated, in case it is lost"
        );
        for _ in 0..UNCHANGED_BEATS {
            load.follower_reads(PartitionId(1));
        }
        assert_eq!(load.follower_reads(PartitionId(1)), None);
        // While it leads, all reads are the leader's.
        clock.0.store(12_000, Ordering::Relaxed);
        load.beat(PartitionId(1), 1, 0, 0);
        load.read(3, 30, Duration::ZERO);
        clock.0.store(13_000, Ordering::Relaxed);
        load.beat(PartitionId(1), 1, 0, 0);
        load.read(4, 40, Duration::ZERO);
        let reads = load.follower_reads(PartitionId(1)).unwrap();
        assert_eq!((reads.since_ms, reads.counters.read_rows), (13_000, 4));
    }

    #[test]
    fn recent_work_is_that_of_the_last_moments() {
        let (_, load) = load();
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        assert_eq!(load.recent_work(start), Work::default());
        load.busy(Duration::from_millis(100));
        load.read(1, 1, Duration::from_millis(400));
        assert_eq!(load.recent_work(after(200)), Work::default(), "too soon to tell");
        let work = Work { write_millicores: 100, read_millicores: 400 };
        assert_eq!(load.recent_work(after(1_000)), work);
        assert_eq!(load.recent_work(after(1_100)), work);
        assert_eq!(load.recent_work(after(1_500)), Work::default());
    }

    #[test]
    fn keys_between_known_edges_are_not_appended() {
        let (clock, load) = load();
        load.edges(&[2], &[9]);
        load.wrote(&Keys::from_encoded([[1_u8], [5], [12]]));
        clock.0.store(11_500, Ordering::Relaxed);
        let beat = load.beat(PartitionId(1), 1, 0, 0);
        let flags: Vec<_> = beat.write_keys.ticks[0]
            .samples
            .iter()
            .map(|sample| (sample.below, sample.above))
            .collect();
        assert_eq!(flags, [(true, false), (false, false), (false, true)]);
        assert_eq!(beat.write_keys.edges, Some((Box::from([2_u8]), Box::from([9_u8]))));
        assert!(beat.read_keys.edges.is_some());
    }
}

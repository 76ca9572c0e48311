//! From what a partition's leader has counted to rates: how busy its write lane is now, of late, and at most.
//!
//! A leader counts from the moment its term began and reports the sums, with its own clock. A report therefore
//! contains all reports before it: one that is lost is made up for by the next, one that comes twice or late says
//! nothing new. Another term, or the same one begun anew, counts from zero.
//!
//! ```text
//!   reports:  12 .... 15 .... (lost) .... 31 .. 15 (late: ignored)      term 4 | term 5:  3 .... 9
//!   deltas:       3              16 over two seconds                            |  3 since its beginning
//! ```
//!
//! Busy time is counted at once, when an operation ends or (of a bounded lane) sets out, and may be longer than the time
//! between two reports: a log that takes three seconds to sync makes two idle seconds and one that is busy for three.
//! What a report has too much of is taken for part of the next ones, so that such a lane is as busy as it is.
//!
//! Invariants: no rate is ever negative, and no lane is busier than all of the time; what is kept is of fixed size
//! ([`Window`], under 130 bytes), because there is one for each partition of the cluster; of each counter only the low
//! 32 bits are kept, in units that cannot wrap within [`GAP_MAX_MS`], the longest gap that a rate is computed over.
//! What the old leader counted between its last report and the end of its term is not known to anybody.

use crate::facts::PartitionId;

/// Reports that follow each other faster are put together with the next: a rate over a few milliseconds says nothing,
/// and the maximum is one of *1-second* rates.
const INTERVAL_MIN_MS: u64 = 500;
/// Over a longer gap no rate is computed; the next report starts anew. 30 min of a lane that is always busy are
/// 1.8e9 microseconds, and 2^32 are 4.3e9.
const GAP_MAX_MS: u64 = 30 * 60 * 1_000;
/// What is counted at once is believed to have taken so much longer than the time since the last report, and not more: a
/// disk that stands still once makes fewer hot seconds than a split asks for.
const SURPLUS_MAX_S: f64 = 5.0;
/// The maximum is over the current 50 s and the five times 50 s before: 250 to 300 s.
const MAX_WINDOWS: usize = 6;
const MAX_WINDOW_MS: u64 = 50_000;
/// Maxima are kept in 1/4096, which is finer than any threshold and leaves room up to 15.99.
const MAX_UNIT: f64 = 4096.0;
/// How many of the last seconds are remembered as hot or not.
pub(crate) const HOT_SECONDS: u32 = 10;
/// A second is hot with the write lane at least half busy, or half a core busy with reads (YDB splits at 50 % of a
/// core, CockroachDB at 500 ms/s) ...
pub(crate) const HOT_RHO: f64 = 0.50;
/// ... or when this share of requests was turned away or of time throttled (what overload looks like where the lane
/// itself is not the bottleneck; HBase's idea).
pub(crate) const HOT_PRESSURE: f64 = 0.01;
/// Half-lives of the averages: 10 s to act on, 60 s to balance on, 600 s to show. Each is derived from the longest:
/// 2^(-t/60) = (2^(-t/600))^10.
const LONGEST_HALF_LIFE_S: f64 = 600.0;

/// What a leader has counted since its term began. All sums; they never fall within one term. Some are only passed on
/// to be shown: the kinds of reads, and bytes read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Rows written.
    pub write_rows: u64,
    /// Bytes of them.
    pub write_bytes: u64,
    /// Requests that wrote them.
    pub write_batches: u64,
    /// Rows read.
    pub read_rows: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Reads of one key.
    pub point_reads: u64,
    /// Reads of a range.
    pub range_reads: u64,
    /// Reads of the whole partition.
    pub scans: u64,
    /// Nanoseconds that the serial write lane was busy: proposing and applying.
    pub busy_ns: u64,
    /// Nanoseconds of processor time spent on reads.
    pub scan_ns: u64,
    /// Requests turned away because of load.
    pub rejected: u64,
    /// Nanoseconds that requests were held back because of load.
    pub throttled_ns: u64,
}

/// What a leader reports of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionReport {
    /// Which.
    pub partition: PartitionId,
    /// The leader's term.
    pub term: u64,
    /// When the counters began, milliseconds. A process that restarts within a term begins later.
    pub since_ms: u64,
    /// When they were read, milliseconds: `since_ms` plus time elapsed by a clock that never goes back.
    pub at_ms: u64,
    /// The sums.
    pub counters: Counters,
    /// Bytes of files and memtables.
    pub size_bytes: u64,
    /// Requests that wait.
    pub queue_depth: u32,
}

/// Rates of a partition, as they can be shown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Share of time that the write lane was busy, 0 to 1, with a half-life of 10 s.
    pub rho_10: f64,
    /// The same with a half-life of 60 s.
    pub rho_60: f64,
    /// The same with a half-life of 600 s.
    pub rho_600: f64,
    /// The greatest second of the last 5 minutes: of the lane, or of cores busy with reads, whichever is greater.
    pub rho_max: f64,
    /// Cores busy with reads, with a half-life of 60 s.
    pub reads_60: f64,
    /// Rows written a second, with a half-life of 10 s like all that follow.
    pub write_rows: f64,
    /// Bytes written a second.
    pub write_bytes: f64,
    /// Rows read a second.
    pub read_rows: f64,
    /// Share of requests that were turned away, or of time that requests were held back, whichever is greater.
    pub pressure: f64,
    /// Bytes of the partition.
    pub size_bytes: u64,
    /// Requests that waited when the last report was made; 65,535 for more.
    pub queue_depth: u16,
    /// Second of the last report, since the Unix epoch.
    pub seen_s: u32,
}

/// What one accepted report added.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    /// Seconds of lane and reading time in it: the load to judge splits by.
    pub(crate) work_s: f64,
}

/// The low bits of the counters that rates are made of.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    busy_us: u32,
    scan_us: u32,
    write_rows: u32,
    write_kib: u32,
    batches: u32,
    read_rows: u32,
    rejected: u32,
    throttled_us: u32,
}

/// The low 32 bits.
fn low(value: u64) -> u32 {
    (value & 0xFFFF_FFFF) as u32
}

/// For shares and rates, of which seven digits are plenty.
#[expect(
    clippy::cast_possible_truncation,
    reason = "fewer digits, same range for all that is ever passed"
)]
fn short(value: f64) -> f32 {
    value as f32
}

impl Marks {
    fn of(counters: &Counters) -> Self {
        Self {
            busy_us: low(counters.busy_ns / 1_000),
            scan_us: low(counters.scan_ns / 1_000),
            write_rows: low(counters.write_rows),
            write_kib: low(counters.write_bytes >> 10),
            batches: low(counters.write_batches),
            read_rows: low(counters.read_rows),
            rejected: low(counters.rejected),
            throttled_us: low(counters.throttled_ns / 1_000),
        }
    }
}

/// The rates of one partition. See the head of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    since_ms: u64,
    at_ms: u64,
    term: u32,
    marks: Marks,
    /// Seconds of busy time that did not fit into the time they were reported of.
    surplus_s: f32,
    rho: [f32; 3],
    reads: f32,
    write_rows: f32,
    write_kib: f32,
    read_rows: f32,
    pressure: f32,
    size_kib: u32,
    seen_s: u32,
    max_at: u32,
    max: [u16; MAX_WINDOWS],
    hot: u16,
    queue: u16,
}

impl Window {
    /// Takes a report in. Nothing is returned when it says nothing new: late, twice, or too soon after the last.
    pub(crate) fn accept(&mut self, now_ms: u64, report: &PartitionReport) -> Option<Span> {
        let term = low(report.term);
        let known = (self.term, self.since_ms);
        if (term, report.since_ms) < known {
            return None;
        }
        if (term, report.since_ms) != known {
            (self.term, self.since_ms) = (term, report.since_ms);
            self.at_ms = report.since_ms;
            self.marks = Marks::default();
            self.surplus_s = 0.0;
        }
        let gap_ms = report.at_ms.saturating_sub(self.at_ms);
        if gap_ms < INTERVAL_MIN_MS {
            return None;
        }
        let marks = Marks::of(&report.counters);
        let last = std::mem::replace(&mut self.marks, marks);
        self.at_ms = report.at_ms;
        self.seen_s = seconds(now_ms);
        self.size_kib = u32::try_from(report.size_bytes >> 10).unwrap_or(u32::MAX);
        self.queue = u16::try_from(report.queue_depth).unwrap_or(u16::MAX);
        if gap_ms > GAP_MAX_MS {
            self.surplus_s = 0.0;
            return Some(Span { work_s: 0.0 });
        }
        let gap_s = gap_ms as f64 / 1_000.0;
        let a_second = 1.0 / gap_s;
        let rate = |now: u32, then: u32| f64::from(now.wrapping_sub(then)) * a_second;
        let busy_us = f64::from(marks.busy_us.wrapping_sub(last.busy_us));
        let busy_s = busy_us / 1e6 + f64::from(self.surplus_s);
        let rho = (busy_s * a_second).min(1.0);
        self.surplus_s = short((busy_s - gap_s).clamp(0.0, SURPLUS_MAX_S));
        let reads = rate(marks.scan_us, last.scan_us) / 1e6;
        let rejected = rate(marks.rejected, last.rejected);
        let asked = rejected + rate(marks.batches, last.batches);
        let turned_away = if rejected > 0.0 { rejected / asked } else { 0.0 };
        let held_back = (rate(marks.throttled_us, last.throttled_us) / 1e6).min(1.0);
        let pressure = turned_away.max(held_back);

        let keep_600 = (-gap_s / LONGEST_HALF_LIFE_S).exp2();
        let keep_60 = keep_600.powi(10);
        let keep_10 = keep_60.powi(6);
        let blend =
            |old: f32, new: f64, keep: f64| short(f64::from(old) * keep + new * (1.0 - keep));
        self.rho = [
            blend(self.rho[0], rho, keep_10),
            blend(self.rho[1], rho, keep_60),
            blend(self.rho[2], rho, keep_600),
        ];
        self.reads = blend(self.reads, reads, keep_60);
        self.write_rows = blend(self.write_rows, rate(marks.write_rows, last.write_rows), keep_10);
        self.write_kib = blend(self.write_kib, rate(marks.write_kib, last.write_kib), keep_10);
        self.read_rows = blend(self.read_rows, rate(marks.read_rows, last.read_rows), keep_10);
        self.pressure = blend(self.pressure, pressure, keep_10);

        let busy = rho.max(reads);
        self.raise_max(now_ms, busy);
        self.remember_heat(gap_ms, busy >= HOT_RHO || pressure >= HOT_PRESSURE);
        Some(Span { work_s: (rho + reads) * gap_s })
    }

    fn remember_heat(&mut self, gap_ms: u64, hot: bool) {
        let seconds = u32::try_from((gap_ms + 500) / 1_000).unwrap_or(u32::MAX).max(1);
        // An average over a long gap says little of each second in it: it counts as one.
        let (shift, fill) = if seconds > HOT_SECONDS { (16, 1) } else { (seconds, seconds) };
        let kept = self.hot.checked_shl(shift).unwrap_or(0);
        let new = if hot { (1_u16 << fill) - 1 } else { 0 };
        self.hot = (kept | new) & ((1 << HOT_SECONDS) - 1);
    }

    /// Raises the maximum of the current window.
    pub(crate) fn raise_max(&mut self, now_ms: u64, rho: f64) {
        let period = low(now_ms / MAX_WINDOW_MS);
        let passed = period.saturating_sub(self.max_at).min(6);
        for ago in 0..passed {
            self.max[place(period.wrapping_sub(ago))] = 0;
        }
        self.max_at = self.max_at.max(period);
        let cell = &mut self.max[place(self.max_at)];
        *cell = (*cell).max(in_units(rho));
    }

    /// The greatest second of the last 5 minutes.
    pub(crate) fn rho_max(&self, now_ms: u64) -> f64 {
        let period = low(now_ms / MAX_WINDOW_MS);
        let stale = period.saturating_sub(self.max_at);
        let fresh = 6_u32.saturating_sub(stale);
        let max = (0..fresh).map(|ago| self.max[place(self.max_at.wrapping_sub(ago))]).max();
        f64::from(max.unwrap_or(0)) / MAX_UNIT
    }

    /// How many of the last ten seconds were hot.
    pub(crate) fn hot_seconds(&self) -> u32 {
        self.hot.count_ones()
    }

    pub(crate) fn rho_10(&self) -> f64 {
        f64::from(self.rho[0])
    }

    pub(crate) fn rho_60(&self) -> f64 {
        f64::from(self.rho[1])
    }

    pub(crate) fn reads_60(&self) -> f64 {
        f64::from(self.reads)
    }

    pub(crate) fn pressure(&self) -> f64 {
        f64::from(self.pressure)
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        u64::from(self.size_kib) << 10
    }

    pub(crate) fn seen_s(&self) -> u32 {
        self.seen_s
    }

    pub(crate) fn rates(&self, now_ms: u64) -> Rates {
        Rates {
            rho_10: self.rho_10(),
            rho_60: self.rho_60(),
            rho_600: f64::from(self.rho[2]),
            rho_max: self.rho_max(now_ms),
            reads_60: self.reads_60(),
            write_rows: f64::from(self.write_rows),
            write_bytes: f64::from(self.write_kib) * 1024.0,
            read_rows: f64::from(self.read_rows),
            pressure: self.pressure(),
            size_bytes: self.size_bytes(),
            queue_depth: self.queue,
            seen_s: self.seen_s,
        }
    }

    /// Cuts the rates at a split: the left part keeps this share of the load and of the bytes, and its counters run on;
    /// the right part, returned, begins with the rest, until its own counters speak. Both have the parent's maximum,
    /// so that nobody takes a part for cold before it was seen for five minutes; neither is hot yet.
    pub(crate) fn cut(&mut self, load_share: f64, size_share: f64) -> Self {
        let mut right =
            Self { max: self.max, max_at: self.max_at, seen_s: self.seen_s, ..Self::default() };
        right.scale(self, 1.0 - load_share, 1.0 - size_share);
        let parent = self.clone();
        self.scale(&parent, load_share, size_share);
        self.hot = 0;
        right
    }

    fn scale(&mut self, from: &Self, load_share: f64, size_share: f64) {
        let part = |value: f32| short(f64::from(value) * load_share);
        self.rho = from.rho.map(part);
        self.reads = part(from.reads);
        self.write_rows = part(from.write_rows);
        self.write_kib = part(from.write_kib);
        self.read_rows = part(from.read_rows);
        self.pressure = part(from.pressure);
        let size = f64::from(from.size_kib) * size_share;
        self.size_kib = whole(size);
    }

    /// Takes in a neighbour that was merged into this one. The maximum becomes the sum, so that the merged partition
    /// is not taken for colder than its parts were.
    pub(crate) fn absorb(&mut self, now_ms: u64, other: &Self) {
        let sum = self.rho_max(now_ms) + other.rho_max(now_ms);
        for (mine, theirs) in self.rho.iter_mut().zip(other.rho) {
            *mine += theirs;
        }
        self.reads += other.reads;
        self.write_rows += other.write_rows;
        self.write_kib += other.write_kib;
        self.read_rows += other.read_rows;
        self.pressure = self.pressure.max(other.pressure);
        self.size_kib = self.size_kib.saturating_add(other.size_kib);
        self.raise_max(now_ms, sum);
    }
}

/// Whole seconds; enough until the year 2106.
pub(crate) fn seconds(now_ms: u64) -> u32 {
    u32::try_from(now_ms / 1_000).unwrap_or(u32::MAX)
}

fn place(period: u32) -> usize {
    (period % 6) as usize
}

/// A number of kibibytes, rounded down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the range before"
)]
fn whole(size: f64) -> u32 {
    size.clamp(0.0, f64::from(u32::MAX)) as u32
}

/// A maximum in 1/4096, rounded up so that a threshold that was reached stays reached.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the range before"
)]
fn in_units(rho: f64) -> u16 {
    (rho * MAX_UNIT).ceil().clamp(0.0, f64::from(u16::MAX)) as u16
}

#[cfg(test)]
mod tests;

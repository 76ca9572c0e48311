//! Computes rates from a leader's counters: the present, mean and maximum busy share of its write lane.
//!
//! A leader counts from the beginning of its term and reports the sums, with its own clock. A report therefore contains
//! all reports before it: the next one makes up for a lost one, and a repeated or late one adds nothing. Another term,
//! or the same one after a restart, counts from zero.
//!
//! ```text
//!   reports:  12 .... 15 .... (lost) .... 31 .. 15 (late: ignored)      term 4 | term 5:  3 .... 9
//!   deltas:       3              16 over two seconds                            |  3 since its beginning
//! ```
//!
//! Busy time is counted at once, when an operation ends or (for a bounded lane) begins, and may exceed the time between
//! two reports: a log that takes three seconds to sync makes two idle seconds and one with three seconds of busy time.
//! The excess of a report is carried over to the next ones, so that such a lane counts as busy as it is.
//!
//! Invariants: no rate is ever negative, and no lane is busier than all of the time; the state has a fixed size
//! ([`Window`], under 150 bytes), because there is one for each partition of the cluster; of each counter only the low
//! 32 bits are kept, in units that cannot wrap within [`GAP_MAX_MS`], the longest gap over which a rate is computed.
//! Operations that the old leader counted between its last report and the end of its term are lost.

use crate::facts::PartitionId;

/// Minimum interval of reports; faster ones are combined with the next: a rate over a few milliseconds is meaningless,
/// and the maximum is one of *1-second* rates.
const INTERVAL_MIN_MS: u64 = 500;
/// Maximum gap over which a rate is computed; after a longer one the next report has no rate. 30 min of a lane that is
/// always busy are 1.8e9 microseconds, and 2^32 are 4.3e9.
const GAP_MAX_MS: u64 = 30 * 60 * 1_000;
/// Maximum busy time beyond the time since the last report that is carried over: a disk that stalls once makes fewer
/// hot seconds than a split requires.
const SURPLUS_MAX_S: f64 = 5.0;
/// Number of 50 s intervals of the maximum: the current one and the five before, 250 to 300 s.
const MAX_WINDOWS: usize = 6;
const MAX_WINDOW_MS: u64 = 50_000;
/// Units of maxima, 1/4096: finer than any threshold, with room up to 15.99.
const MAX_UNIT: f64 = 4096.0;
/// Number of last seconds that are remembered as hot or not.
pub(crate) const HOT_SECONDS: u32 = 10;
/// Rho from which a second is hot: with the write lane at least half busy, or half a core busy with reads (YDB splits
/// at 50 % of a core, CockroachDB at 500 ms/s) ...
pub(crate) const HOT_RHO: f64 = 0.50;
/// ... or share of refused requests or of throttled time (the sign of overload where the lane itself is not the
/// bottleneck; HBase's idea).
pub(crate) const HOT_PRESSURE: f64 = 0.01;
/// Rho from which a second is warm: two neighbours of which one had such a second are too busy to be merged.
pub(crate) const WARM_RHO: f64 = 0.20;
/// Half-lives of the averages: 10 s to act on, 60 s to balance on, 600 s to show. Each is derived from the longest:
/// 2^(-t/60) = (2^(-t/600))^10.
const LONGEST_HALF_LIFE_S: f64 = 600.0;

/// Counters of a leader since its term began. All are sums that never decrease within one term. Some are only passed on
/// for display: the kinds of reads, and bytes read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Rows written.
    pub write_rows: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Write requests.
    pub write_batches: u64,
    /// Rows returned by reads.
    pub read_rows: u64,
    /// Bytes returned by reads.
    pub read_bytes: u64,
    /// Reads of one key.
    pub point_reads: u64,
    /// Reads of a range of keys.
    pub range_reads: u64,
    /// Reads of the whole partition.
    pub scans: u64,
    /// Nanoseconds that the serial write lane was busy: proposing and applying.
    pub busy_ns: u64,
    /// Nanoseconds of processor time spent on reads.
    pub scan_ns: u64,
    /// Requests refused because of load.
    pub rejected: u64,
    /// Nanoseconds that requests were delayed because of load.
    pub throttled_ns: u64,
}

/// A leader's report on one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionReport {
    /// Partition id.
    pub partition: PartitionId,
    /// The leader's term.
    pub term: u64,
    /// Beginning of the counters, milliseconds. A process that restarts within a term begins later.
    pub since_ms: u64,
    /// Time of reading the counters, milliseconds: `since_ms` plus time elapsed by a monotonic clock.
    pub at_ms: u64,
    /// Sums since `since_ms`.
    pub counters: Counters,
    /// Bytes of files and memtables.
    pub size_bytes: u64,
    /// Number of waiting requests.
    pub queue_depth: u32,
}

/// Rates of a partition, for display.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Share of time that the write lane was busy, 0 to 1, with a half-life of 10 s.
    pub rho_10: f64,
    /// The same with a half-life of 60 s.
    pub rho_60: f64,
    /// The same with a half-life of 600 s.
    pub rho_600: f64,
    /// Maximum over seconds of the last 5 minutes: of the lane's busy share, or of cores busy with reads, whichever is
    /// greater.
    pub rho_max: f64,
    /// Cores busy with reads, with a half-life of 60 s.
    pub reads_60: f64,
    /// Cores busy with reads, with a half-life of 10 s like all that follow.
    pub reads_10: f64,
    /// Rows written a second.
    pub write_rows: f64,
    /// Write requests a second.
    pub write_batches: f64,
    /// Bytes written a second.
    pub write_bytes: f64,
    /// Rows read a second.
    pub read_rows: f64,
    /// Share of refused requests, or of time that requests were delayed, whichever is greater.
    pub pressure: f64,
    /// Share of write requests that were refused.
    pub turned_away: f64,
    /// Share of time that requests were delayed.
    pub held_back: f64,
    /// Number of hot seconds among the last ten.
    pub hot_seconds: u32,
    /// Size of the partition in bytes.
    pub size_bytes: u64,
    /// Number of requests that waited at the last report; 65,535 for more.
    pub queue_depth: u16,
    /// Second of the last report, since the Unix epoch.
    pub seen_s: u32,
}

/// Contribution of one accepted report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    /// Seconds of lane and reading time in it: the load by which splits are judged.
    pub(crate) work_s: f64,
}

/// Low bits of the counters from which rates are computed.
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

/// Narrows shares and rates, for which seven digits are plenty.
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
    /// Seconds of busy time that exceeded the time of their report.
    surplus_s: f32,
    rho: [f32; 3],
    /// Cores busy with reads, with half-lives of 10 s and 60 s.
    reads: [f32; 2],
    write_rows: f32,
    write_batches: f32,
    write_kib: f32,
    read_rows: f32,
    pressure: f32,
    turned_away: f32,
    held_back: f32,
    size_kib: u32,
    seen_s: u32,
    warm_s: u32,
    max_at: u32,
    max: [u16; MAX_WINDOWS],
    hot: u16,
    queue: u16,
}

impl Window {
    /// Processes a report. `None` when it adds nothing: late, repeated, or too soon after the last.
    pub(crate) fn accept(&mut self, now_ms: u64, report: &PartitionReport) -> Option<Span> {
        // Another term, or another beginning within it, counts from zero; an earlier one is late.
        let term = low(report.term);
        let current = (self.term, self.since_ms);
        if (term, report.since_ms) < current {
            return None;
        }
        if (term, report.since_ms) != current {
            (self.term, self.since_ms) = (term, report.since_ms);
            self.at_ms = report.since_ms;
            self.marks = Marks::default();
            self.surplus_s = 0.0;
        }
        let gap_ms = report.at_ms.saturating_sub(self.at_ms);
        if gap_ms < INTERVAL_MIN_MS {
            return None;
        }
        // Replace the marks; over too long a gap no rate can be computed.
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
        // The busy share, with what earlier reports had in excess.
        let gap_s = gap_ms as f64 / 1_000.0;
        let a_second = 1.0 / gap_s;
        let rate = |newer: u32, older: u32| f64::from(newer.wrapping_sub(older)) * a_second;
        let busy_us = f64::from(marks.busy_us.wrapping_sub(last.busy_us));
        let busy_s = busy_us / 1e6 + f64::from(self.surplus_s);
        let rho = (busy_s * a_second).min(1.0);
        self.surplus_s = short((busy_s - gap_s).clamp(0.0, SURPLUS_MAX_S));
        // Reads, and the pressure of refused or delayed requests.
        let reads = rate(marks.scan_us, last.scan_us) / 1e6;
        let rejected = rate(marks.rejected, last.rejected);
        let batches = rate(marks.batches, last.batches);
        let requests = rejected + batches;
        let turned_away = if rejected > 0.0 { rejected / requests } else { 0.0 };
        let held_back = (rate(marks.throttled_us, last.throttled_us) / 1e6).min(1.0);
        let pressure = turned_away.max(held_back);

        // Blend the new rates into the averages; a longer gap weighs more.
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
        self.reads = [blend(self.reads[0], reads, keep_10), blend(self.reads[1], reads, keep_60)];
        self.write_rows = blend(self.write_rows, rate(marks.write_rows, last.write_rows), keep_10);
        self.write_kib = blend(self.write_kib, rate(marks.write_kib, last.write_kib), keep_10);
        self.read_rows = blend(self.read_rows, rate(marks.read_rows, last.read_rows), keep_10);
        self.write_batches = blend(self.write_batches, batches, keep_10);
        self.pressure = blend(self.pressure, pressure, keep_10);
        self.turned_away = blend(self.turned_away, turned_away, keep_10);
        self.held_back = blend(self.held_back, held_back, keep_10);

        // The maximum and the hot seconds take the busier of lane and reads.
        let busy = rho.max(reads);
        self.raise_max(now_ms, busy);
        if busy >= WARM_RHO {
            self.warm_s = seconds(now_ms);
        }
        self.remember_heat(gap_ms, busy >= HOT_RHO || pressure >= HOT_PRESSURE);
        Some(Span { work_s: (rho + reads) * gap_s })
    }

    fn remember_heat(&mut self, gap_ms: u64, hot: bool) {
        let seconds = u32::try_from((gap_ms + 500) / 1_000).unwrap_or(u32::MAX).max(1);
        // An average over a long gap tells little about each second in it: it counts as one.
        let (shift, fill) = if seconds > HOT_SECONDS { (16, 1) } else { (seconds, seconds) };
        let older = self.hot.checked_shl(shift).unwrap_or(0);
        let new = if hot { (1_u16 << fill) - 1 } else { 0 };
        self.hot = (older | new) & ((1 << HOT_SECONDS) - 1);
    }

    /// Raises the maximum of the current interval.
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

    /// The maximum over seconds of the last 5 minutes.
    pub(crate) fn rho_max(&self, now_ms: u64) -> f64 {
        let period = low(now_ms / MAX_WINDOW_MS);
        let stale = period.saturating_sub(self.max_at);
        let fresh = 6_u32.saturating_sub(stale);
        let max = (0..fresh).map(|ago| self.max[place(self.max_at.wrapping_sub(ago))]).max();
        f64::from(max.unwrap_or(0)) / MAX_UNIT
    }

    /// Number of hot seconds among the last ten.
    pub(crate) fn hot_seconds(&self) -> u32 {
        self.hot.count_ones()
    }

    pub(crate) fn rho_10(&self) -> f64 {
        f64::from(self.rho[0])
    }

    pub(crate) fn rho_60(&self) -> f64 {
        f64::from(self.rho[1])
    }

    pub(crate) fn reads_10(&self) -> f64 {
        f64::from(self.reads[0])
    }

    pub(crate) fn reads_60(&self) -> f64 {
        f64::from(self.reads[1])
    }

    /// The busier of the lane and the reads, with a half-life of 10 s.
    pub(crate) fn busy_10(&self) -> f64 {
        self.rho_10().max(self.reads_10())
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

    /// The last warm second, since the Unix epoch; 0 if there was none.
    pub(crate) fn warm_s(&self) -> u32 {
        self.warm_s
    }

    pub(crate) fn rates(&self, now_ms: u64) -> Rates {
        Rates {
            rho_10: self.rho_10(),
            rho_60: self.rho_60(),
            rho_600: f64::from(self.rho[2]),
            rho_max: self.rho_max(now_ms),
            reads_60: self.reads_60(),
            reads_10: self.reads_10(),
            write_rows: f64::from(self.write_rows),
            write_batches: f64::from(self.write_batches),
            write_bytes: f64::from(self.write_kib) * 1024.0,
            read_rows: f64::from(self.read_rows),
            pressure: self.pressure(),
            turned_away: f64::from(self.turned_away),
            held_back: f64::from(self.held_back),
            hot_seconds: self.hot_seconds(),
            size_bytes: self.size_bytes(),
            queue_depth: self.queue,
            seen_s: self.seen_s,
        }
    }

    /// Divides the rates at a split: the left part keeps this share of the load and of the bytes, and its counters
    /// continue; the right part, returned, begins with the rest, until its own counters arrive. Both have the parent's
    /// maximum, so that no part counts as cold before it was observed for five minutes; neither is hot yet.
    pub(crate) fn cut(&mut self, load_share: f64, size_share: f64) -> Self {
        let mut right = Self {
            max: self.max,
            max_at: self.max_at,
            seen_s: self.seen_s,
            warm_s: self.warm_s,
            ..Self::default()
        };
        right.scale(self, 1.0 - load_share, 1.0 - size_share);
        let parent = self.clone();
        self.scale(&parent, load_share, size_share);
        self.hot = 0;
        right
    }

    fn scale(&mut self, parent: &Self, load_share: f64, size_share: f64) {
        let part = |value: f32| short(f64::from(value) * load_share);
        self.rho = parent.rho.map(part);
        self.reads = parent.reads.map(part);
        self.write_rows = part(parent.write_rows);
        self.write_batches = part(parent.write_batches);
        self.write_kib = part(parent.write_kib);
        self.read_rows = part(parent.read_rows);
        self.pressure = part(parent.pressure);
        self.turned_away = part(parent.turned_away);
        self.held_back = part(parent.held_back);
        let size = f64::from(parent.size_kib) * size_share;
        self.size_kib = whole(size);
    }

    /// Adds a neighbour that was merged into this partition. The maximum becomes the sum, so that the merged partition
    /// does not count as colder than its parts were.
    pub(crate) fn absorb(&mut self, now_ms: u64, neighbour: &Self) {
        let sum = self.rho_max(now_ms) + neighbour.rho_max(now_ms);
        for (mine, theirs) in self.rho.iter_mut().zip(neighbour.rho) {
            *mine += theirs;
        }
        for (mine, theirs) in self.reads.iter_mut().zip(neighbour.reads) {
            *mine += theirs;
        }
        self.write_rows += neighbour.write_rows;
        self.write_batches += neighbour.write_batches;
        self.write_kib += neighbour.write_kib;
        self.read_rows += neighbour.read_rows;
        self.pressure = self.pressure.max(neighbour.pressure);
        self.turned_away = self.turned_away.max(neighbour.turned_away);
        self.held_back = self.held_back.max(neighbour.held_back);
        self.size_kib = self.size_kib.saturating_add(neighbour.size_kib);
        self.warm_s = self.warm_s.max(neighbour.warm_s);
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

/// Kibibytes, rounded down.
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

//! State of partitions and nodes.
//!
//! Invariants: a partition's number is its index in the list, and is never used again; `NONE` stands for a missing
//! voter.

use partita_load::{Counters, PartitionId, PartitionReport};

use crate::number::whole;

/// Stands for no node where a node number is expected.
pub(crate) const NONE: u32 = u32::MAX;
/// Rows per write request.
const ROWS_A_BATCH: f64 = 10.0;

/// A partition with its demand and load.
#[derive(Clone, Debug)]
pub(crate) struct Partition {
    pub(crate) table: u32,
    pub(crate) low: Box<[u8]>,
    pub(crate) high: Option<Box<[u8]>>,
    pub(crate) voters: [u32; 3],
    pub(crate) leader: u32,
    /// Shares of the lane: the demand, and the busy share.
    pub(crate) offered: f64,
    pub(crate) busy: f64,
    /// Rows per second that are served.
    pub(crate) served_rows: f64,
    /// True if patient clients wait for this lane.
    pub(crate) is_waited_for: bool,
    /// Share of these rows that are written.
    pub(crate) written_share: f64,
    pub(crate) lane_rows_per_s: f64,
    sums: Sums,
    pub(crate) bytes: f64,
    pub(crate) row_bytes: f64,
    pub(crate) term: u64,
    pub(crate) begun_ms: u64,
    counted_ms: u64,
    /// Milliseconds of this second in which writes stalled.
    pub(crate) stall_ms: u64,
    pub(crate) cut_by_load_ms: u64,
    pub(crate) gone: bool,
}

/// Counters of its leader in this term.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    busy_s: f64,
    written: f64,
    read: f64,
    rejected: f64,
    /// Seconds for which clients had to wait for the lane.
    throttled_s: f64,
}

impl Partition {
    pub(crate) fn new(
        table: u32,
        low: Box<[u8]>,
        high: Option<Box<[u8]>>,
        voters: [u32; 3],
        now_ms: u64,
    ) -> Self {
        // The first voter leads; nothing was counted yet.
        Self {
            table,
            low,
            high,
            voters,
            leader: voters[0],
            offered: 0.0,
            busy: 0.0,
            served_rows: 0.0,
            is_waited_for: false,
            written_share: 1.0,
            lane_rows_per_s: 1.0,
            sums: Sums::default(),
            bytes: 0.0,
            row_bytes: 0.0,
            term: 1,
            begun_ms: now_ms,
            counted_ms: now_ms,
            stall_ms: 0,
            cut_by_load_ms: 0,
            gone: false,
        }
    }

    pub(crate) fn voters(&self) -> impl Iterator<Item = u32> {
        self.voters.iter().copied().filter(|voter| *voter != NONE)
    }

    /// Counts what was served since the last call.
    pub(crate) fn count(&mut self, now_ms: u64) {
        let seconds = now_ms.saturating_sub(self.counted_ms) as f64 / 1_000.0;
        self.counted_ms = now_ms;
        let written = self.served_rows * self.written_share * seconds;
        self.sums.busy_s += self.busy * seconds;
        self.sums.written += written;
        self.sums.read += self.served_rows * (1.0 - self.written_share) * seconds;
        let offered = self.offered * self.lane_rows_per_s;
        if self.is_waited_for {
            self.sums.throttled_s += seconds;
        } else {
            self.sums.rejected += (offered - self.served_rows).max(0.0) * seconds;
        }
        self.bytes += written * self.row_bytes;
    }

    /// Another node leads, whose counters begin at zero.
    pub(crate) fn lead(&mut self, leader: u32, now_ms: u64) {
        self.count(now_ms);
        (self.leader, self.begun_ms, self.sums) = (leader, now_ms, Sums::default());
        self.term += 1;
    }

    pub(crate) fn begin(&mut self, now_ms: u64) {
        (self.begun_ms, self.counted_ms, self.sums, self.term) =
            (now_ms, now_ms, Sums::default(), 1);
    }

    pub(crate) fn report(&self, id: u32) -> PartitionReport {
        let sums = &self.sums;
        PartitionReport {
            partition: PartitionId(u64::from(id)),
            term: self.term,
            since_ms: self.begun_ms,
            at_ms: self.counted_ms,
            counters: Counters {
                write_rows: whole(sums.written),
                write_bytes: whole(sums.written * self.row_bytes),
                write_batches: whole((sums.written + sums.read) / ROWS_A_BATCH),
                read_rows: whole(sums.read),
                point_reads: whole(sums.read),
                busy_ns: whole(sums.busy_s * 1e9),
                rejected: whole(sums.rejected / ROWS_A_BATCH),
                throttled_ns: whole(sums.throttled_s * 1e9),
                ..Counters::default()
            },
            size_bytes: whole(self.bytes),
            queue_depth: u32::from(self.is_waited_for),
        }
    }
}

/// A node with the load of its partitions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) up: bool,
    /// 1, or less for a slow node.
    pub(crate) speed: f64,
    /// Partitions that it leads: those counted every second, and the others.
    pub(crate) live: Vec<u32>,
    pub(crate) still: Vec<u32>,
    /// Cores used by the latter, as leader and follower.
    pub(crate) still_load: f64,
    /// Cores demanded in total, and the share of them that can be provided.
    pub(crate) load: f64,
    pub(crate) factor: f64,
}

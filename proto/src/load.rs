//! Load as meta reports it: how busy partitions and nodes are, verdicts on hot partitions, and past splits and moves.
//!
//! Invariants: values only, of one moment ([`LoadReport::at`]); times are [`Instant`]s of meta's clock; an unknown
//! value is `None` and never zero; keys are typed ([`Bound`]), so that they are shown as SQL values everywhere.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use partita_load::{Class, Standing};

use crate::history::{Cause, ReshapeOutcome};
use crate::id::{Epoch, NodeId, PartitionId, TableId};
use crate::range::{Bound, TypedRange};

/// A moment: milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// Time from `earlier` to this moment; zero when it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Request of [`crate::service::MetaService::load`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadRequest {
    /// Table to report on; `None`: all tables.
    pub table: Option<TableId>,
    /// Beginning of the history to include; `None`: no history.
    pub history_since: Option<Instant>,
    /// True to include sampled keys.
    pub samples: bool,
}

/// Request of [`crate::service::MetaService::heatmap`]: a table, a metric, and a section of keys and time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeatmapRequest {
    /// Table to show.
    pub table: TableId,
    /// Metric: `write_rows`, `read_rows`, `write_bytes` or `busy`.
    pub metric: String,
    /// Length of the time span, in seconds.
    pub since_s: u64,
    /// End of the time span, seconds since the Unix epoch; `None`: now.
    pub until_s: Option<u64>,
    /// Maximum number of key ranges.
    pub rows: u32,
    /// Maximum number of time columns.
    pub columns: u32,
    /// First encoded key; empty: from the beginning.
    pub from_key: Bytes,
    /// End of the encoded keys, exclusive; `None`: to the end.
    pub to_key: Option<Bytes>,
}

/// Load of all partitions and nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// Time of the report.
    pub at: Instant,
    /// Partitions whose leaders have reported recently.
    pub partitions: Vec<PartitionLoad>,
    /// All nodes.
    pub nodes: Vec<NodeLoad>,
    /// Splits and merges of the last hours, the oldest first.
    pub splits: Vec<SplitEvent>,
    /// Changes of leaders and moves of replicas to balance load, the oldest first.
    pub balances: Vec<BalanceEvent>,
    /// Keys with the greatest shares of load, the greatest first.
    pub hot_keys: Vec<HotKey>,
    /// History of load, if it was requested; by time.
    pub history: Vec<LoadHistory>,
    /// Statements and clients that make partitions and keys hot; by partition, the greatest share first.
    pub hot_causes: Vec<HotCause>,
    /// Tables whose load moves from partition to partition every few seconds.
    pub rotations: Vec<TableRotation>,
    /// Peaks that were expected from the load of earlier days, the oldest first.
    pub forecasts: Vec<ForecastEvent>,
}

/// Load of one partition, as its leader reported it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartitionLoad {
    /// Table id.
    pub table: TableId,
    /// Partition id.
    pub partition: PartitionId,
    /// Range of the partition.
    pub range: TypedRange,
    /// The leader's node.
    pub leader: Option<NodeId>,
    /// Epoch (routing version).
    pub epoch: Epoch,
    /// Age of the partition.
    pub age: Duration,
    /// Busy share of the write lane.
    pub busy: Busy,
    /// Rates over the last 10 s.
    pub rates: Rates,
    /// Number of waiting write requests.
    pub queue: u64,
    /// Bytes of the rows, in files and memory.
    pub size_bytes: u64,
    /// Number of rows, versions included.
    pub rows: u64,
    /// Latency of writes, if it is measured.
    pub write_latency: Option<Latency>,
    /// Share of all rows written to the table, 0 to 1.
    pub share: f64,
    /// The detector's verdict, if it has judged the partition.
    pub verdict: Option<Verdict>,
    /// Sampled keys; only if they were requested.
    pub samples: Vec<KeySample>,
    /// State of the partition's load; [`Standing::Idle`] in a report of an earlier version.
    pub standing: Standing,
    /// Cores busy with reads, over the last 10 s.
    pub reads_busy: f64,
    /// Rows that clients offer to write.
    pub offered: OfferedRows,
    /// Share of all rows read from the table, 0 to 1.
    pub read_share: f64,
    /// Rows per second that one partition of the table can write (0 if unknown), and true if that was measured.
    pub capacity: (f64, bool),
}

impl PartitionLoad {
    /// Busy share of the write lane or cores busy with reads over the last 10 s, whichever is greater.
    #[must_use]
    pub fn busiest(&self) -> f64 {
        self.busy.s10.max(self.reads_busy)
    }

    /// True if the partition is hot: only such partitions are listed and reported as a problem.
    #[must_use]
    pub fn is_hot(&self) -> bool {
        self.standing == Standing::Hot
    }
}

/// Rows that clients offer to write to a partition: those served, refused and waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OfferedRows {
    /// Rows per second.
    pub rows_per_s: f64,
    /// True if clients wait, so that they may offer more.
    pub is_floor: bool,
}

/// Shares of time that a write lane was busy, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Busy {
    /// Over the last 10 s.
    pub s10: f64,
    /// Over the last minute.
    pub s60: f64,
    /// Over the last 10 minutes.
    pub s600: f64,
    /// Maximum over single seconds, of those that are kept.
    pub max: f64,
}

/// Rates per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Rows written.
    pub write_rows: f64,
    /// Bytes written.
    pub write_bytes: f64,
    /// Rows returned by reads.
    pub read_rows: f64,
    /// Reads of single keys.
    pub point_reads: f64,
    /// Reads of ranges.
    pub scans: f64,
    /// Requests refused.
    pub rejected: f64,
}

/// Quantiles of a duration, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// The median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Maximum.
    pub max: u64,
}

/// The detector's verdict on a partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Class of the load; [`Class::Unknown`] while there are too few samples.
    pub class: Class,
    /// Time since when the class has been the same.
    pub since: Instant,
    /// Numbers that support the verdict.
    pub evidence: Evidence,
    /// Split key that would help, and the greater share that it would leave, 0.5 to 1.
    pub cut: Option<(Bound, f64)>,
    /// The hot key, or leading part of one.
    pub hot_key: Option<Bound>,
}

/// The numbers behind a verdict; the crate that judges defines each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Samples in the older half of the window.
    pub samples_old: u32,
    /// Samples in the newer half.
    pub samples_new: u32,
    /// Length of the window.
    pub window: Duration,
    /// The larger share of the best cut of the older half, judged on the newer.
    pub p_out: f64,
    /// Probability that a newer key is greater than an older one.
    pub auc: f64,
    /// Share of operations above all keys before them.
    pub append_high: f64,
    /// Share of operations below all keys before them.
    pub append_low: f64,
    /// Share of the most frequent key.
    pub top_key: f64,
    /// Share of the most frequent value of each leading prefix, shortest first.
    pub top_prefix: Vec<f64>,
    /// Distinct values of each leading prefix, shortest first.
    pub distinct_prefix: Vec<u32>,
    /// Share of scans that contain the best cut.
    pub contained: f64,
    /// The largest change of the share right of some place from the older to the newer half.
    pub shift: f64,
    /// Share of the hot key, or leading part of one.
    pub hot_share: f64,
    /// Share of the newest third above all keys of the oldest third.
    pub lead: f64,
    /// Share of the newer half in one gap between neighbouring keys of the older half.
    pub front: f64,
    /// Seconds until the front reaches the known edge of the keys; `None`: unknown or never.
    pub passes_in_s: Option<f64>,
    /// Mean over seconds of the share of the busiest of 20 equal parts.
    pub concentration: f64,
    /// True if reads were judged, false for writes.
    pub reads: bool,
}

/// A sampled key, and the number of operations that it represents.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeySample {
    /// Time of the sample, to the second.
    pub at: Instant,
    /// Sampled key.
    pub key: Bound,
    /// Number of operations that the sample represents.
    pub weight: f64,
    /// True for a read, false for a write.
    pub read: bool,
}

/// Load of one node, summed over its partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodeLoad {
    /// Node id.
    pub node: NodeId,
    /// Number of partitions that the node leads.
    pub leaders: u64,
    /// Number of replicas on the node.
    pub replicas: u64,
    /// Sum of the busy shares of the write lanes that the node leads.
    pub busy: f64,
    /// Rates of the partitions that the node leads.
    pub rates: Rates,
    /// CPU cores in use, if known.
    pub cpu_cores: Option<f64>,
}

/// Reason of a split or a merge, as it is shown: the cause, `: ` and the evidence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownReason {
    /// Cause; `None` if only a newer version knows it.
    pub cause: Option<Cause>,
    /// Evidence, in words; may be empty. Without a known cause, the whole text.
    pub note: String,
}

impl ShownReason {
    /// The reason that is shown as this text.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let (name, note) = text.split_once(": ").unwrap_or((text, ""));
        match Cause::named(name) {
            Some(cause) => Self { cause: Some(cause), note: note.to_owned() },
            None => Self { cause: None, note: text.to_owned() },
        }
    }
}

impl fmt::Display for ShownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.cause, self.note.as_str()) {
            (Some(cause), "") => write!(f, "{cause}"),
            (Some(cause), note) => write!(f, "{cause}: {note}"),
            (None, note) => f.write_str(note),
        }
    }
}

/// A split or a merge.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SplitEvent {
    /// Time of the decision.
    pub at: Instant,
    /// Table of the partitions.
    pub table: TableId,
    /// The partition that was split, or that remained after a merge.
    pub partition: PartitionId,
    /// The partitions that a split created, or the one that a merge removed.
    pub children: Vec<PartitionId>,
    /// True for a merge.
    pub merge: bool,
    /// Key of the split, or at which two partitions were merged.
    pub key: Option<Bound>,
    /// Reason: by load, by size, by hand.
    pub why: ShownReason,
    /// Predicted share of the larger half, 0.5 to 1.
    pub predicted_share: Option<f64>,
    /// Measured share of the larger half, once it is known.
    pub actual_share: Option<f64>,
    /// True if it turned out not to help.
    pub in_vain: Option<bool>,
    /// Time for which writes were blocked.
    pub stall: Option<Duration>,
    /// Duration from the beginning to the end.
    pub took: Option<Duration>,
    /// Time until another node led the new partition, if one was to.
    pub relief: Option<Duration>,
    /// State or result; `None` if only a newer version knows it.
    pub outcome: Option<ReshapeOutcome>,
}

/// Kind of a [`BalanceEvent`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BalanceKind {
    /// Leadership goes to another replica.
    #[default]
    Transfer,
    /// A replica moves to another node.
    Move,
}

impl BalanceKind {
    /// Name of the kind.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transfer => "transfer",
            Self::Move => "move",
        }
    }
}

/// A change of a leader or of a replica's node to balance load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BalanceEvent {
    /// Time of the decision.
    pub at: Instant,
    /// Partition whose leader or replica moved.
    pub partition: PartitionId,
    /// Kind of the change.
    pub kind: BalanceKind,
    /// Node before the change.
    pub from: NodeId,
    /// Node after the change.
    pub to: NodeId,
    /// Reason of the change.
    pub why: String,
}

/// A key, or leading part of one, with much load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HotKey {
    /// Table of the key.
    pub table: TableId,
    /// Partition that owns the key.
    pub partition: PartitionId,
    /// The key or its leading part.
    pub key: Bound,
    /// Share of the partition's operations, 0 to 1.
    pub share: f64,
    /// Operations per second.
    pub per_second: f64,
    /// True for reads, false for writes.
    pub read: bool,
}

/// A cause of the load of a hot partition, or of one of its keys.
#[derive(Clone, Debug, PartialEq)]
pub struct HotCause {
    /// Table of the partition.
    pub table: TableId,
    /// The hot partition.
    pub partition: PartitionId,
    /// True for reads, false for writes.
    pub read: bool,
    /// The hot key or its leading part; `None`: the whole partition.
    pub key: Option<Bound>,
    /// Statement, user, application and client.
    pub cause: partita_load::Cause,
    /// Share of the sampled rows, 0 to 1.
    pub share: f64,
    /// Number of sampled rows behind the shares.
    pub samples: u64,
}

/// Rotation of a table's load: most of it is on one partition at a time, and on another one every few seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TableRotation {
    /// Table id.
    pub table: TableId,
    /// Mean over seconds of the share of the busiest partition.
    pub concentration: f64,
    /// Effective number of partitions in one second, on average.
    pub n_eff_second: f64,
    /// Effective number of partitions by their mean load.
    pub n_eff_mean: f64,
    /// Number of spells, in each of which one partition is the busiest.
    pub spells: u32,
    /// Mean length of a spell, in seconds.
    pub spell_s: f64,
}

/// Decision about a peak that is expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ForecastAction {
    /// Cuts before the peak.
    #[default]
    Cut,
    /// Nothing, because no boundary is known that divides the load.
    NoPlace,
    /// Nothing, because the table does not split by load.
    Off,
}

impl ForecastAction {
    /// Name, as system tables show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::NoPlace => "no place",
            Self::Off => "off",
        }
    }
}

/// A peak that was expected from the load of earlier days, and what came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForecastEvent {
    /// Time of the forecast.
    pub at: Instant,
    /// Table of the keys.
    pub table: TableId,
    /// Keys of the peak.
    pub range: TypedRange,
    /// Expected begin.
    pub from: Instant,
    /// Expected end.
    pub until: Instant,
    /// Expected load, cores.
    pub expected: f64,
    /// Share of the days that had the peak, newer ones weighing more: 0 to 1.
    pub confidence: f64,
    /// Days behind the forecast.
    pub days: u32,
    /// Decision.
    pub action: ForecastAction,
    /// Cuts that were made before the peak.
    pub cuts: u32,
    /// Greatest load of the keys since the peak was to begin, cores; `None` before.
    pub actual: Option<f64>,
    /// True if the peak came and cuts had been made for it, false if they were made for nothing; `None` before its end,
    /// and without cuts.
    pub useful: Option<bool>,
}

/// Load of one partition over a minute, or over ten.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadHistory {
    /// Beginning of the span.
    pub at: Instant,
    /// Length of the span.
    pub span: Duration,
    /// Table of the partition.
    pub table: TableId,
    /// Partition id.
    pub partition: PartitionId,
    /// The leader's node at the end.
    pub leader: Option<NodeId>,
    /// Mean busy share.
    pub busy: f64,
    /// Busy share in the busiest 10 s.
    pub busy_max: f64,
    /// Mean rates per second.
    pub rates: Rates,
    /// Size at the end, in bytes.
    pub size_bytes: u64,
    /// Class of the verdict at the end, if there was one.
    pub class: Option<Class>,
}

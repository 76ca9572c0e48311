//! What meta tells of load: how busy partitions and nodes are, what is wrong with those that are hot, and what was done
//! about it.
//!
//! Invariants: values only, of one moment ([`LoadReport::at`]); times are [`Instant`]s of meta's clock; what is not known
//! is `None` and never zero; keys are typed ([`Bound`]), so that they read as SQL values everywhere.

use std::time::Duration;

use bytes::Bytes;

use crate::id::{Epoch, NodeId, PartitionId, TableId};
use crate::range::{Bound, TypedRange};

/// A moment: milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// The time from an earlier moment to this one; zero when it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// What is asked of [`crate::service::MetaService::load`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadRequest {
    /// Of one table; `None`: of all.
    pub table: Option<TableId>,
    /// With the history since then; `None`: without.
    pub history_since: Option<Instant>,
    /// With sampled keys.
    pub samples: bool,
}

/// What part of a table's picture of load is asked of [`crate::service::MetaService::heatmap`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeatmapRequest {
    /// The table.
    pub table: TableId,
    /// What is counted, by its name: `write_rows`, `read_rows`, `write_bytes`, `busy`.
    pub metric: String,
    /// How many seconds the picture reaches back from its end.
    pub since_s: u64,
    /// Its end, seconds since the Unix epoch; `None`: now.
    pub until_s: Option<u64>,
    /// At most so many ranges of keys.
    pub rows: u32,
    /// At most so many columns.
    pub columns: u32,
    /// Only encoded keys from this one on; empty: from the first.
    pub from_key: Bytes,
    /// Only encoded keys before this one; `None`: to the last.
    pub to_key: Option<Bytes>,
}

/// How busy everything is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// When this was so.
    pub at: Instant,
    /// Every partition that a leader reported lately.
    pub partitions: Vec<PartitionLoad>,
    /// Every node.
    pub nodes: Vec<NodeLoad>,
    /// Splits and merges of the last hours, the oldest first.
    pub splits: Vec<SplitEvent>,
    /// Changes of leaders and replicas that balance load, the oldest first.
    pub balances: Vec<BalanceEvent>,
    /// The keys that bear the greatest shares, the greatest first.
    pub hot_keys: Vec<HotKey>,
    /// What was, when it was asked for; by time.
    pub history: Vec<LoadHistory>,
}

/// The load of one partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartitionLoad {
    /// Its table.
    pub table: TableId,
    /// The partition.
    pub partition: PartitionId,
    /// What it owns.
    pub range: TypedRange,
    /// The node that leads it.
    pub leader: Option<NodeId>,
    /// Its routing version.
    pub epoch: Epoch,
    /// How long it has been there.
    pub age: Duration,
    /// How busy the lane is that its writes go through.
    pub busy: Busy,
    /// What it does, over the last 10 s.
    pub rates: Rates,
    /// Write requests that wait.
    pub queue: u64,
    /// Bytes of its rows, in files and memory.
    pub size_bytes: u64,
    /// Its rows, versions included.
    pub rows: u64,
    /// How long writes take, where that is measured.
    pub write_latency: Option<Latency>,
    /// Its part of all rows that its table is written, 0 to 1.
    pub share: f64,
    /// What is wrong with it, if it has been judged.
    pub verdict: Option<Verdict>,
    /// Keys that it was asked for; when they were asked for.
    pub samples: Vec<KeySample>,
}

/// Shares of time that a lane was busy, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Busy {
    /// Over the last 10 s.
    pub s10: f64,
    /// Over the last minute.
    pub s60: f64,
    /// Over the last 10 minutes.
    pub s600: f64,
    /// The busiest of the last seconds that are remembered.
    pub max: f64,
}

/// What is done a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Rows written.
    pub write_rows: f64,
    /// Bytes written.
    pub write_bytes: f64,
    /// Rows read.
    pub read_rows: f64,
    /// Reads of single keys.
    pub point_reads: f64,
    /// Reads of ranges.
    pub scans: f64,
    /// Requests turned away.
    pub rejected: f64,
}

/// How long something takes, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// The median.
    pub p50: u64,
    /// 99 of 100 take no longer.
    pub p99: u64,
    /// 999 of 1000 take no longer.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

/// What the detector says of a partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// The class, as it is shown: `MOVING_RIGHT`. `UNKNOWN` while too little was sampled.
    pub class: String,
    /// Since when it has been so.
    pub since: Instant,
    /// Why.
    pub evidence: Evidence,
    /// Where a cut would help, and the greater share that it would leave, 0.5 to 1.
    pub cut: Option<(Bound, f64)>,
    /// The key, or leading part of one, that is hot.
    pub hot_key: Option<Bound>,
}

/// The numbers behind a verdict; what each means is said in the crate that judges.
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
}

/// One key that a partition was asked for, and how many operations it stands for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeySample {
    /// When, to the second.
    pub at: Instant,
    /// The key.
    pub key: Bound,
    /// Operations that it stands for.
    pub weight: f64,
    /// Whether it was read, not written.
    pub read: bool,
}

/// The load of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodeLoad {
    /// The node.
    pub node: NodeId,
    /// Partitions that it leads.
    pub leaders: u64,
    /// Replicas that it holds.
    pub replicas: u64,
    /// The busy shares of the lanes that it leads, together.
    pub busy: f64,
    /// What the partitions that it leads do.
    pub rates: Rates,
    /// Cores in use, if known.
    pub cpu_cores: Option<f64>,
}

/// A split or a merge.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SplitEvent {
    /// When it was decided.
    pub at: Instant,
    /// The table.
    pub table: TableId,
    /// The partition that was split, or that stayed.
    pub partition: PartitionId,
    /// The partitions that came of it, or the one that went.
    pub children: Vec<PartitionId>,
    /// Whether it was a merge.
    pub merge: bool,
    /// Where it was cut, or joined.
    pub key: Option<Bound>,
    /// Why: by load, by size, by hand.
    pub why: String,
    /// The share of the larger half that was expected, 0.5 to 1.
    pub predicted_share: Option<f64>,
    /// The share that it got, once that is known.
    pub actual_share: Option<f64>,
    /// Whether it turned out not to help.
    pub in_vain: Option<bool>,
    /// How long writes waited for it.
    pub stall: Option<Duration>,
    /// How long it took in all.
    pub took: Option<Duration>,
    /// How long it took until another node led the new partition, if one was to.
    pub relief: Option<Duration>,
    /// What became of it.
    pub outcome: String,
}

/// What a [`BalanceEvent`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BalanceKind {
    /// Another replica leads.
    #[default]
    Transfer,
    /// A replica is on another node.
    Move,
}

impl BalanceKind {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transfer => "transfer",
            Self::Move => "move",
        }
    }
}

/// A change of a leader or of a replica's node that balances load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BalanceEvent {
    /// When it was decided.
    pub at: Instant,
    /// The partition.
    pub partition: PartitionId,
    /// Leader or replica.
    pub kind: BalanceKind,
    /// From which node.
    pub from: NodeId,
    /// To which node.
    pub to: NodeId,
    /// Why.
    pub why: String,
}

/// A key, or leading part of one, that bears much.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HotKey {
    /// The table.
    pub table: TableId,
    /// The partition.
    pub partition: PartitionId,
    /// The key.
    pub key: Bound,
    /// Its share of the partition's operations, 0 to 1.
    pub share: f64,
    /// Operations a second.
    pub per_second: f64,
    /// Whether it is read, not written.
    pub read: bool,
}

/// The load of one partition over a minute, or over ten.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadHistory {
    /// When the span began.
    pub at: Instant,
    /// How long it is.
    pub span: Duration,
    /// The table.
    pub table: TableId,
    /// The partition.
    pub partition: PartitionId,
    /// The node that led it at the end.
    pub leader: Option<NodeId>,
    /// How busy it was, on average.
    pub busy: f64,
    /// How busy in the busiest 10 s.
    pub busy_max: f64,
    /// What it did a second, on average.
    pub rates: Rates,
    /// Its size at the end, bytes.
    pub size_bytes: u64,
    /// Its verdict at the end; empty: none.
    pub class: String,
}

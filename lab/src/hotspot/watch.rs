//! Reads the store's statistics on a table once a second, in the form of the virtual cluster's seconds.
//!
//! Invariants: shares are of the leaders' counters, of rows written, and of reads if the run has reads; rows and
//! latencies are the clients' own; cores are measured for each datanode that was started here, and otherwise
//! reported by the nodes; if the store does not answer, a second has the values of the one before.

use std::collections::{BTreeMap, BTreeSet};

use partita_hotspot::metrics::Second;
use partita_load::{Class, Shape, SplitWhy};
use partita_proto::history::{Cause, ReshapeOutcome};
use partita_proto::load::ShownReason;
use serde::{Serialize, Serializer};
use tokio::time::{Duration, Instant};
use tokio_postgres::Client;

use super::ask::former;
use super::drive::Counts;
use crate::door::postgres::rows;
use crate::latency::Latencies;
use crate::meter::Meter;

/// Busy share from which a partition is hot.
const HOT: f64 = 0.5;
/// Maximum age of a verdict; higher ages count as this one.
const VERDICT_AGE_MAX_S: f64 = 86_400.0;
/// Maximum shares that are recorded.
const SHARES_MAX: usize = 16;

fn text(row: &[Option<String>], column: usize) -> &str {
    row.get(column).and_then(Option::as_deref).unwrap_or_default()
}

fn float(row: &[Option<String>], column: usize) -> f64 {
    text(row, column).parse().unwrap_or(0.0)
}

/// Statistics of one partition.
#[derive(Clone, Debug, PartialEq)]
struct Partition {
    leader: u64,
    /// Rows written per second, plus reads if they count.
    rows_per_s: f64,
    busy: f64,
    verdict: Option<Class>,
    /// Full seconds for which the verdict has held.
    verdict_age_s: u64,
}

/// The store's statistics at one time.
#[derive(Clone, Debug, Default)]
struct Stats {
    partitions: Vec<Partition>,
    /// True if a former table exists, with rows of the earlier placement.
    rekeyed: bool,
    nodes: Vec<u64>,
    /// Cores in use, as each node reports.
    cores: Vec<f64>,
    splits_load: u64,
    splits_in_vain: u64,
    splits_size: u64,
    splits_isolate: u64,
    splits_forecast: u64,
    merges: u64,
    transfers: u64,
    moves: u64,
    reshaped: Vec<Reshaped>,
}

/// A split or merge of the table, as the store reports it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Reshaped {
    pub(super) is_merge: bool,
    #[serde(serialize_with = "as_shown")]
    pub(super) why: ShownReason,
    /// Key of the split or merge.
    pub(super) key: String,
    /// Share of the busier side in the minute after a split by load, and whether it is so large that the split was
    /// useless; `None` until then.
    pub(super) actual_share: Option<f64>,
    pub(super) in_vain: Option<bool>,
    /// Time for which writes stalled, and total time from the order.
    pub(super) stall_ms: Option<f64>,
    pub(super) took_ms: Option<f64>,
    /// Time from the order until another node led the new partition.
    pub(super) relief_ms: Option<f64>,
}

/// Serialises a reason as it is shown.
fn as_shown<S: Serializer>(why: &ShownReason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(why)
}

impl Reshaped {
    fn of(row: &[Option<String>]) -> Self {
        let number = |column| text(row, column).parse::<f64>().ok();
        Self {
            is_merge: text(row, 0) == "merge",
            why: ShownReason::parse(text(row, 1)),
            key: text(row, 3).to_owned(),
            actual_share: number(4),
            in_vain: match text(row, 2) {
                "" => None,
                flag => Some(matches!(flag, "t" | "true")),
            },
            stall_ms: number(5),
            took_ms: number(6),
            relief_ms: number(7),
        }
    }

    /// True if it is one of the two splits that isolate a hot key.
    fn is_around_a_key(&self) -> bool {
        SplitWhy::of_note(&self.why.note) == Some(SplitWhy::IsolateKey)
    }

    /// True if it is a split because of load.
    pub(super) fn is_by_load(&self) -> bool {
        !self.is_merge && !self.is_around_a_key() && self.why.cause == Some(Cause::Load)
    }
}

/// What happened when in a run, in seconds since its start.
#[derive(Clone, Debug, Default)]
pub(super) struct First {
    /// First second with a hot partition, and time of the first verdict.
    pub(super) hot_s: Option<u64>,
    pub(super) verdict_s: Option<u64>,
    /// Number of times that each class began to be a verdict of a hot partition.
    pub(super) classes: BTreeMap<Class, u64>,
    /// Number of splits by load after a verdict that the hot place moves: none of them can help.
    pub(super) load_splits_after_moving: u64,
    /// Time of each split by load.
    pub(super) splits_at: Vec<u64>,
    /// Second at which new rows were repartitioned, and the number of partitions.
    pub(super) rekeyed: Option<(u64, u32)>,
}

/// Follows the load, splits and moves of one table.
pub(super) struct Watch {
    client: Client,
    table: String,
    /// True if reads count.
    reads: bool,
    /// Transfers and moves before the run.
    balances_before: (u64, u64),
    meters: Vec<Meter>,
    /// CPU seconds at the last reading, and its time.
    used: (Vec<f64>, Instant),
    stats: Stats,
    /// Classes of the hot partitions in the previous second.
    last_classes: BTreeSet<Class>,
    splits_before: u64,
    stored: u64,
    refused: u64,
    /// End of the previous second.
    last_time: Instant,
    pub(super) all: Latencies,
    pub(super) first: First,
    pub(super) seconds: Vec<Second>,
}

impl Watch {
    /// Splits and merges of the table so far; the previous ones if the store does not answer.
    pub(super) async fn reshaped(&mut self) -> Vec<Reshaped> {
        if let Ok(stats) = self.ask().await {
            self.stats = stats;
        }
        self.stats.reshaped.clone()
    }

    /// Begins to watch a table, and the CPU usage of these processes; `reads`: whether reads count as load.
    ///
    /// # Errors
    /// If the store does not answer.
    pub(super) async fn new(
        client: Client,
        table: &str,
        datanodes: Vec<u32>,
        reads: bool,
    ) -> anyhow::Result<Self> {
        let mut watch = Self {
            client,
            table: table.to_owned(),
            reads,
            balances_before: (0, 0),
            meters: datanodes.into_iter().map(|pid| Meter::new(vec![pid], false)).collect(),
            used: (Vec::new(), Instant::now()),
            stats: Stats::default(),
            last_classes: BTreeSet::new(),
            splits_before: 0,
            stored: 0,
            refused: 0,
            last_time: Instant::now(),
            all: Latencies::default(),
            first: First::default(),
            seconds: Vec::new(),
        };
        let stats = watch.ask().await?;
        watch.balances_before = (stats.transfers, stats.moves);
        watch.cores();
        Ok(watch)
    }

    async fn ask(&self) -> Result<Stats, tokio_postgres::Error> {
        // Rows of the former table show only that the table was repartitioned.
        let table = &self.table;
        let condition = format!("\"table\" IN ('{table}', '{}')", former(table));
        let partitions = format!(
            "SELECT leader, write_rows_per_s, greatest(rho_10s, reads_rho), verdict, point_reads_per_s, scans_per_s, \"table\", \
             date_part('epoch', now()) - date_part('epoch', since) FROM sys.partition_load WHERE {condition}"
        );
        let events = format!(
            "SELECT kind, why, in_vain, key, actual_share, stall_ms, took_ms, relief_ms FROM sys.split_events WHERE {condition} AND outcome = '{}'",
            ReshapeOutcome::Done
        );
        let mut stats = Stats::default();
        for row in rows(&self.client, &partitions).await? {
            if text(&row, 6) != table {
                stats.rekeyed = true;
                continue;
            }
            // A class of a newer version counts as none.
            let class = Class::named(text(&row, 3));
            stats.partitions.push(Partition {
                leader: text(&row, 0).parse().unwrap_or(0),
                rows_per_s: float(&row, 1)
                    + if self.reads { float(&row, 4) + float(&row, 5) } else { 0.0 },
                busy: float(&row, 2),
                verdict: class.filter(|class| *class != Class::Unknown),
                verdict_age_s: Duration::from_secs_f64(
                    float(&row, 7).clamp(0.0, VERDICT_AGE_MAX_S),
                )
                .as_secs(),
            });
        }
        // CPU as nodes report it, then events.
        let nodes = "SELECT node, cpu_cores FROM sys.node_load ORDER BY node";
        for row in rows(&self.client, nodes).await? {
            stats.nodes.push(text(&row, 0).parse().unwrap_or(0));
            stats.cores.extend(text(&row, 1).parse::<f64>().ok());
        }
        for row in rows(&self.client, &events).await? {
            stats.add(Reshaped::of(&row));
        }
        let balances = "SELECT kind, count(*) FROM sys.balance_events GROUP BY kind";
        for row in rows(&self.client, balances).await? {
            let count = text(&row, 1).parse().unwrap_or(0);
            if text(&row, 0) == "transfer" {
                stats.transfers += count;
            } else {
                stats.moves += count;
            }
        }
        Ok(stats)
    }

    /// Cores used by each process since the last call; empty if one of them is gone.
    fn cores(&mut self) -> Vec<f64> {
        let used = self.meters.iter_mut().map(|meter| meter.read().map(|usage| usage.cpu_s));
        let (time, Ok(used)) = (Instant::now(), used.collect::<Result<Vec<f64>, _>>()) else {
            return Vec::new();
        };
        let (previous, previous_time) = std::mem::replace(&mut self.used, (used, time));
        let passed = time.duration_since(previous_time).as_secs_f64().max(0.1);
        self.used
            .0
            .iter()
            .zip(previous)
            .map(|(current, previous)| (current - previous) / passed)
            .collect()
    }

    /// Marks the start of the first second.
    pub(super) fn begin(&mut self) {
        self.last_time = Instant::now();
        self.cores();
    }

    /// Records a second that has passed.
    #[expect(clippy::cast_precision_loss, reason = "rows of a second")]
    pub(super) async fn second(&mut self, second: u64, offered: f64, counts: &Counts) {
        let latencies = counts.latencies();
        self.all.add(&latencies);
        let (stored, refused) = (counts.stored() + counts.answered(), counts.refused());
        // A second may have been longer on a busy machine.
        let (time, previous) = (Instant::now(), self.last_time);
        let passed = time.duration_since(previous).as_secs_f64().max(0.1);
        let served = (stored - self.stored) as f64 / passed;
        let rejected = refused - self.refused;
        (self.stored, self.refused, self.last_time) = (stored, refused, time);
        let cpu = self.cores();
        // Without an answer of the store, its previous statistics are used.
        if let Ok(stats) = self.ask().await {
            self.stats = stats;
        }
        // Nodes on other machines, or of other processes, are measured by their own reports.
        let cpu = if self.meters.is_empty() { self.stats.cores.clone() } else { cpu };
        let line = Second { cpu, ..self.line(second, offered, served, rejected, &latencies) };
        let nodes = Shape::of(line.cpu.iter().copied()).effective;
        let line = Second { n_eff_nodes: nodes, ..line };
        self.note(second);
        self.seconds.push(line);
    }

    fn line(
        &self,
        second: u64,
        offered: f64,
        served: f64,
        rejected: u64,
        latencies: &Latencies,
    ) -> Second {
        let stats = &self.stats;
        let shape = Shape::of(stats.partitions.iter().map(|partition| partition.rows_per_s));
        let mut shares: Vec<f64> =
            stats.partitions.iter().map(|partition| partition.rows_per_s).collect();
        let total: f64 = shares.iter().sum();
        let share = |rows: f64| if total > 0.0 { rows / total } else { 0.0 };
        shares.sort_unstable_by(|a, b| b.total_cmp(a));
        let mut leaders: BTreeMap<u64, f64> = stats.nodes.iter().map(|node| (*node, 0.0)).collect();
        for partition in &stats.partitions {
            *leaders.entry(partition.leader).or_default() += partition.rows_per_s;
        }
        let leader_shape = Shape::of(leaders.values().copied());
        let summary = latencies.summary();
        Second {
            second,
            offered,
            served,
            partitions: stats.partitions.len(),
            shares: shares.iter().take(SHARES_MAX).map(|rows| share(*rows)).collect(),
            max_over_mean: shape.max_over_mean,
            variation: shape.variation,
            gini: shape.gini,
            // Without writes there is no even distribution.
            n_eff: if total > 0.0 { shape.effective } else { 0.0 },
            n_eff_leaders: if total > 0.0 { leader_shape.effective } else { 0.0 },
            leaders: leaders.values().map(|rows| share(*rows)).collect(),
            node_max_over_mean: leader_shape.max_over_mean,
            p50_ms: summary.p50_ms,
            p99_ms: summary.p99_ms,
            p999_ms: summary.p999_ms,
            max_ms: Some(summary.max_ms),
            rejected,
            hot: stats.partitions.iter().filter(|partition| partition.busy >= HOT).count(),
            verdict: stats.hottest(),
            splits_load: stats.splits_load,
            splits_in_vain: stats.splits_in_vain,
            splits_size: stats.splits_size,
            splits_isolate: stats.splits_isolate,
            splits_forecast: stats.splits_forecast,
            merges: stats.merges,
            transfers: stats.transfers.saturating_sub(self.balances_before.0),
            moves: stats.moves.saturating_sub(self.balances_before.1),
            ..Second::default()
        }
    }

    fn note(&mut self, second: u64) {
        let hot: Vec<&Partition> =
            self.stats.partitions.iter().filter(|partition| partition.busy >= HOT).collect();
        if !hot.is_empty() {
            self.first.hot_s.get_or_insert(second);
        }
        let classes: BTreeSet<Class> =
            hot.iter().filter_map(|partition| partition.verdict).collect();
        self.first.verdict_s = self.first.verdict_s.or_else(|| self.stats.verdict_start(second));
        for class in classes.difference(&self.last_classes) {
            *self.first.classes.entry(*class).or_default() += 1;
        }
        self.last_classes = classes;
        if self.stats.rekeyed {
            let partitions = u32::try_from(self.stats.partitions.len()).unwrap_or(u32::MAX);
            self.first.rekeyed.get_or_insert((second, partitions));
        }
        let new_splits = self.stats.splits_load.saturating_sub(self.splits_before);
        self.splits_before = self.stats.splits_load;
        if self.first.classes.keys().any(|class| class.is_moving()) {
            self.first.load_splits_after_moving += new_splits;
        }
        self.first.splits_at.extend((0..new_splits).map(|_| second));
    }
}

impl Stats {
    fn add(&mut self, event: Reshaped) {
        match &event {
            event if event.is_merge => self.merges += 1,
            event if event.is_around_a_key() => self.splits_isolate += 1,
            event if event.is_by_load() => {
                self.splits_load += 1;
                self.splits_in_vain += u64::from(event.in_vain == Some(true));
            }
            event if event.why.cause == Some(Cause::Forecast) => self.splits_forecast += 1,
            _ => self.splits_size += 1,
        }
        self.reshaped.push(event);
    }

    /// Second in which the oldest current verdict on a hot partition began; `None` without one. The store's
    /// time is more exact than that of an observer that polls once a second and may be late on a busy machine.
    fn verdict_start(&self, second: u64) -> Option<u64> {
        let classified = self
            .partitions
            .iter()
            .filter(|partition| partition.verdict.is_some() && partition.busy >= HOT);
        classified.map(|partition| second.saturating_sub(partition.verdict_age_s)).min()
    }

    /// Verdict on the busiest partition that has one.
    fn hottest(&self) -> Option<Class> {
        let classified = self
            .partitions
            .iter()
            .filter(|partition| partition.verdict.is_some() && partition.busy >= HOT);
        classified.max_by(|a, b| a.busy.total_cmp(&b.busy)).and_then(|partition| partition.verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(leader: u64, rows_per_s: f64, busy: f64, verdict: Option<Class>) -> Partition {
        Partition { leader, rows_per_s, busy, verdict, verdict_age_s: 0 }
    }

    #[test]
    fn the_busiest_of_those_that_are_judged_speaks_for_the_table() {
        let stats = Stats {
            partitions: vec![
                partition(1, 9.0, 0.9, None),
                partition(1, 5.0, 0.6, Some(Class::HotKey)),
                partition(2, 7.0, 0.8, Some(Class::MovingRight)),
                partition(2, 1.0, 0.1, Some(Class::Sweep)),
            ],
            ..Stats::default()
        };
        assert_eq!(stats.hottest(), Some(Class::MovingRight));
        assert_eq!(Stats::default().hottest(), None);
    }

    #[test]
    fn a_verdict_is_as_old_as_the_store_says() {
        let with_age =
            |verdict_age_s, partition: Partition| Partition { verdict_age_s, ..partition };
        let stats = |partitions| Stats { partitions, ..Stats::default() };
        let idle = with_age(9, partition(1, 1.0, 0.3, Some(Class::MultiTail)));
        let hot = partition(2, 50.0, 0.9, Some(Class::MovingRight));
        assert_eq!(stats(vec![idle.clone(), with_age(4, hot.clone())]).verdict_start(18), Some(14));
        assert_eq!(stats(vec![with_age(40, hot.clone()), hot]).verdict_start(18), Some(0));
        let silent = partition(2, 50.0, 0.9, None);
        assert_eq!(stats(vec![idle, silent]).verdict_start(18), None, "of what is hot");
    }

    #[test]
    fn events_are_counted_by_why_they_were() {
        let mut stats = Stats::default();
        let isolated = format!("load: {}; HOT_KEY: p_out 0.90", SplitWhy::IsolateKey);
        for (kind, why, in_vain) in [
            ("split", "load: its write lane", "t"),
            ("split", "load", ""),
            ("split", isolated.as_str(), ""),
            ("split", "size", ""),
            ("merge", "idle", ""),
        ] {
            let cells = [kind, why, in_vain, "7", "0.5", "12.5", "", "250"];
            let cells = cells.map(|cell| Some(cell.to_owned()).filter(|cell| !cell.is_empty()));
            stats.add(Reshaped::of(&cells));
        }
        let counts = [
            stats.splits_load,
            stats.splits_in_vain,
            stats.splits_isolate,
            stats.splits_size,
            stats.merges,
        ];
        assert_eq!(counts, [2, 1, 1, 1, 1]);
        let first = &stats.reshaped[0];
        assert_eq!((first.in_vain, first.actual_share), (Some(true), Some(0.5)));
        assert_eq!((first.stall_ms, first.took_ms), (Some(12.5), None));
        assert_eq!(first.relief_ms, Some(250.0));
        assert_eq!(stats.reshaped.iter().filter(|event| event.is_by_load()).count(), 2);
    }
}

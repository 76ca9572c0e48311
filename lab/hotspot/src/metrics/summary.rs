//! Summary of a run.
//!
//! Invariants: a time is the first second from which a condition held for ten seconds; means are over the last
//! fifth of the run, so that they show the result and not the way to it.

use std::collections::BTreeMap;

use partita_load::Class;
use serde::{Serialize, Serializer};

use super::fan_out::FanOut;
use super::second::Second;
use crate::cluster::Cluster;

/// Seconds for which a condition must hold.
const HELD_S: usize = 10;
const SERVED: f64 = 0.95;
const BALANCED: f64 = 1.2;

/// See the head of the file.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Split policy.
    pub policy: &'static str,
    /// Served share of the demand, over the last fifth.
    pub served_share: f64,
    /// Served rows per second, over the last fifth.
    pub served_rows: f64,
    /// Effective number of partitions, over the last fifth.
    pub n_eff: f64,
    /// The same for the nodes that lead the table's partitions.
    pub n_eff_leaders: f64,
    /// Load of the busiest node divided by the mean, over the last fifth.
    pub node_max_over_mean: f64,
    /// Share of the busiest partition, over the last fifth.
    pub max_share: f64,
    /// Shares of the rows by leading node, over the last fifth.
    pub leaders: Vec<f64>,
    /// Cores used by each node, over the last fifth; empty in a virtual cluster.
    pub cpu: Vec<f64>,
    /// Kind of the latencies: `estimated` or `measured`.
    pub latency: &'static str,
    /// The 50 % latency over the last fifth, milliseconds.
    pub p50_ms: f64,
    /// The 99 % latency over the last fifth, milliseconds.
    pub p99_ms: f64,
    /// Number of partitions at the end.
    pub partitions: usize,
    /// Cumulative counts of the run: see [`Second`].
    pub last: Second,
    /// Second at which the first partition was hot.
    pub t_detect_s: Option<u64>,
    /// Second at which the detector first named a class.
    pub t_verdict_s: Option<u64>,
    /// Classes that it named, with their numbers of partitions.
    #[serde(serialize_with = "by_name")]
    pub verdicts: BTreeMap<Class, u64>,
    /// Second from which 95 % of the demand was served.
    pub t95_s: Option<u64>,
    /// Second from which the busiest node had at most 1.2 times the mean load.
    pub t_bal_s: Option<u64>,
    /// Splits by load after the first verdict of moving keys.
    pub load_splits_after_moving: u64,
    /// Second at which new rows were placed into hash buckets, and the number of buckets.
    pub rekeyed: Option<(u64, u32)>,
    /// Partitions touched by queries.
    pub fan_out: Option<FanOut>,
    /// Hash of the event log.
    pub log_hash: String,
}

fn mean(seconds: &[Second], figure: impl Fn(&Second) -> f64) -> f64 {
    let last = &seconds[seconds.len() * 4 / 5..];
    if last.is_empty() { 0.0 } else { last.iter().map(figure).sum::<f64>() / last.len() as f64 }
}

fn first_held(seconds: &[Second], is_so: impl Fn(&Second) -> bool) -> Option<u64> {
    let holds = |window: &&[Second]| window.iter().all(&is_so);
    seconds.windows(HELD_S).find(holds).map(|window| window[0].second)
}

/// Mean of the lists, element by element.
fn means<'a>(lists: impl Iterator<Item = &'a Vec<f64>>) -> Vec<f64> {
    let (mut sums, mut count) = (Vec::new(), 0.0);
    for list in lists.filter(|list| !list.is_empty()) {
        sums.resize(sums.len().max(list.len()), 0.0);
        list.iter().zip(&mut sums).for_each(|(value, sum)| *sum += value);
        count += 1.0;
    }
    sums.into_iter().map(|sum: f64| sum / count).collect()
}

/// Facts about a run that its seconds do not contain.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Split policy.
    pub policy: &'static str,
    /// True if latencies were measured.
    pub measured: bool,
    /// See [`Summary::t_detect_s`].
    pub t_detect_s: Option<u64>,
    /// See [`Summary::t_verdict_s`].
    pub t_verdict_s: Option<u64>,
    /// See [`Summary::verdicts`].
    pub verdicts: BTreeMap<Class, u64>,
    /// See [`Summary::load_splits_after_moving`].
    pub load_splits_after_moving: u64,
    /// See [`Summary::rekeyed`].
    pub rekeyed: Option<(u64, u32)>,
    /// See [`Summary::fan_out`].
    pub fan_out: Option<FanOut>,
    /// See [`Summary::log_hash`].
    pub log_hash: String,
}

/// Serialises classes as their names, in the order of the names.
fn by_name<S: Serializer>(
    verdicts: &BTreeMap<Class, u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let pairs = verdicts.iter().map(|(class, times)| (class.name(), *times));
    pairs.collect::<BTreeMap<_, _>>().serialize(serializer)
}

impl Summary {
    /// Class that characterises the run: the one that caused a repartition, or else the one named for most
    /// partitions. Of equals, names decide.
    #[must_use]
    pub fn verdict(&self) -> Option<Class> {
        let moving = self.verdicts.keys().copied().filter(|class| class.is_moving());
        let moving = moving.min_by_key(|class| class.name());
        let most = self.verdicts.iter().max_by_key(|(class, times)| (**times, class.name()));
        let most = most.map(|(class, _)| *class);
        moving.filter(|_| self.rekeyed.is_some()).or(most)
    }

    /// Summarises a cluster's run.
    #[must_use]
    pub fn of(cluster: &Cluster) -> Self {
        let books = cluster.books();
        let facts = Told {
            policy: cluster.options.policy.name(),
            measured: false,
            t_detect_s: books.detected_s,
            t_verdict_s: books.verdict.as_ref().map(|(second, _)| *second),
            verdicts: books.classes.clone(),
            load_splits_after_moving: books.load_splits_after_moving,
            rekeyed: books.rekeyed,
            fan_out: cluster.fan_out(),
            log_hash: format!("{:016x}", cluster.log_hash()),
        };
        Self { partitions: cluster.partitions(), ..Self::of_seconds(&books.seconds, facts) }
    }

    /// Summarises seconds, from a virtual or a real cluster.
    #[must_use]
    pub fn of_seconds(seconds: &[Second], facts: Told) -> Self {
        // Rates and latencies are means over the last fifth; counts are those of the last second.
        let offered = mean(seconds, |second| second.offered);
        let served_rows = mean(seconds, |second| second.served);
        let late = &seconds[seconds.len() * 4 / 5..];
        let last = seconds.last().cloned().unwrap_or_default();
        Self {
            policy: facts.policy,
            served_share: if offered > 0.0 { served_rows / offered } else { 1.0 },
            served_rows,
            n_eff: mean(seconds, |second| second.n_eff),
            n_eff_leaders: mean(seconds, |second| second.n_eff_leaders),
            node_max_over_mean: mean(seconds, |second| second.node_max_over_mean),
            max_share: mean(seconds, |second| second.shares.first().copied().unwrap_or(0.0)),
            leaders: means(late.iter().map(|second| &second.leaders)),
            cpu: means(late.iter().map(|second| &second.cpu)),
            latency: if facts.measured { "measured" } else { "estimated" },
            p50_ms: mean(seconds, |second| second.p50_ms),
            p99_ms: mean(seconds, |second| second.p99_ms),
            partitions: last.partitions,
            last,
            t_detect_s: facts.t_detect_s,
            t_verdict_s: facts.t_verdict_s,
            verdicts: facts.verdicts,
            t95_s: first_held(seconds, |second| second.served >= SERVED * second.offered),
            t_bal_s: first_held(seconds, |second| second.node_max_over_mean <= BALANCED),
            load_splits_after_moving: facts.load_splits_after_moving,
            rekeyed: facts.rekeyed,
            fan_out: facts.fan_out,
            log_hash: facts.log_hash,
        }
    }
}

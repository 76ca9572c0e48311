//! One second of a run.
//!
//! Invariants: a line of JSON and a line of CSV have the same figures, except for lists, which the CSV omits.
//! Latencies are estimates in a virtual cluster, and measured in a real one.

use partita_load::Class;
use serde::{Serialize, Serializer};

/// One second. Counts are cumulative since the begin of the run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Second {
    /// Seconds since the begin.
    pub second: u64,
    /// Demanded rows per second.
    pub offered: f64,
    /// Served rows per second.
    pub served: f64,
    /// Number of partitions of the table.
    pub partitions: usize,
    /// Shares of the busiest partitions, in descending order, at most sixteen.
    pub shares: Vec<f64>,
    /// Load of the busiest partition, divided by the mean.
    pub max_over_mean: f64,
    /// Standard deviation divided by the mean.
    pub variation: f64,
    /// Gini coefficient of the load: 0 if it is even.
    pub gini: f64,
    /// Effective number of partitions: equally loaded partitions with the same concentration.
    pub n_eff: f64,
    /// The same for the nodes that lead the table's partitions.
    pub n_eff_leaders: f64,
    /// The same for nodes with their total load.
    pub n_eff_nodes: f64,
    /// Share of the table's rows that each node wrote as leader; only if there are few nodes.
    pub leaders: Vec<f64>,
    /// Cores used by each node's process; empty in a virtual cluster.
    pub cpu: Vec<f64>,
    /// Load of the busiest node, divided by the mean.
    pub node_max_over_mean: f64,
    /// Median latency, milliseconds.
    pub p50_ms: f64,
    /// The 99 % latency, milliseconds.
    pub p99_ms: f64,
    /// The 99.9 % latency, milliseconds.
    pub p999_ms: f64,
    /// Maximum latency, milliseconds; `None` in a virtual cluster.
    pub max_ms: Option<f64>,
    /// Number of rejected requests.
    pub rejected: u64,
    /// Number of hot partitions.
    pub hot: usize,
    /// Verdict on the hottest of them.
    #[serde(serialize_with = "by_name")]
    pub verdict: Option<Class>,
    /// Number of splits by load.
    pub splits_load: u64,
    /// Of these, useless ones: over nine tenths of the load in the minute after them fell on one side.
    pub splits_in_vain: u64,
    /// Splits by size, at a growing edge or in the middle.
    pub splits_size: u64,
    /// Splits around a hot key.
    pub splits_isolate: u64,
    /// Splits ahead of a peak that the forecast expected.
    pub splits_forecast: u64,
    /// Number of merges.
    pub merges: u64,
    /// Merges of partitions that were split by load less than an hour before.
    pub flaps: u64,
    /// Transfers of leaders, in the whole cluster.
    pub transfers: u64,
    /// Moves of replicas, in the whole cluster.
    pub moves: u64,
    /// Bytes copied by these moves.
    pub moved_bytes: f64,
    /// Moves of a partition that had moved twice within ten minutes.
    pub thrashed: u64,
}

/// Serialises a class as its name.
fn by_name<S: Serializer>(class: &Option<Class>, serializer: S) -> Result<S::Ok, S::Error> {
    class.map(Class::name).serialize(serializer)
}

/// The seconds as CSV with a header line.
#[must_use]
pub fn csv(seconds: &[Second]) -> String {
    let mut text = String::new();
    for (index, second) in seconds.iter().enumerate() {
        let Ok(serde_json::Value::Object(mut fields)) = serde_json::to_value(second) else {
            continue;
        };
        for list in ["shares", "leaders", "cpu"] {
            fields.remove(list);
        }
        if index == 0 {
            text.push_str(&fields.keys().cloned().collect::<Vec<_>>().join(","));
            text.push('\n');
        }
        let cell = |value: &serde_json::Value| match value {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Null => String::new(),
            value => value.to_string(),
        };
        text.push_str(&fields.values().map(cell).collect::<Vec<_>>().join(","));
        text.push('\n');
    }
    text
}

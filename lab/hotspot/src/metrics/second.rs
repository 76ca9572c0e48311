//! One second of a run.
//!
//! Invariants: a line of JSON and a line of CSV have the same figures, but for lists, which the CSV leaves out.
//! Latencies are estimates in a virtual cluster, and measured in a real one.

use serde::Serialize;

/// See the head of the file. Counts are sums since the begin.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Second {
    /// Seconds since the begin.
    pub second: u64,
    /// Rows a second that were asked for.
    pub offered: f64,
    /// Rows a second that were served.
    pub served: f64,
    /// Partitions of the table.
    pub partitions: usize,
    /// The busiest partitions' shares, largest first, at most sixteen.
    pub shares: Vec<f64>,
    /// The largest partition over the mean.
    pub max_over_mean: f64,
    /// Standard deviation over the mean.
    pub variation: f64,
    /// Gini's coefficient.
    pub gini: f64,
    /// How many equal partitions would concentrate the load as much.
    pub n_eff: f64,
    /// The same of the nodes that lead the table's partitions.
    pub n_eff_leaders: f64,
    /// The same of nodes with all that they bear.
    pub n_eff_nodes: f64,
    /// The share of the table's rows that each node wrote as a leader, while there are few nodes.
    pub leaders: Vec<f64>,
    /// Cores that each node's process used; empty in a virtual cluster.
    pub cpu: Vec<f64>,
    /// The busiest node over the mean.
    pub node_max_over_mean: f64,
    /// The median latency, milliseconds.
    pub p50_ms: f64,
    /// The 99 % latency, milliseconds.
    pub p99_ms: f64,
    /// The 99.9 % latency, milliseconds.
    pub p999_ms: f64,
    /// The longest, milliseconds; a virtual cluster knows of none.
    pub max_ms: Option<f64>,
    /// Requests that were turned away.
    pub rejected: u64,
    /// Partitions that are hot.
    pub hot: usize,
    /// What the detector says of the hottest of them.
    pub verdict: Option<&'static str>,
    /// Splits by load.
    pub splits_load: u64,
    /// Of these, in vain: a minute of load after them fell on one side, for more than nine tenths.
    pub splits_in_vain: u64,
    /// Splits by size, at the growing edge or in the middle.
    pub splits_size: u64,
    /// Splits around a hot key.
    pub splits_isolate: u64,
    /// Merges.
    pub merges: u64,
    /// Merges of what load had cut less than an hour before.
    pub flaps: u64,
    /// Transfers of leaders, in the whole cluster.
    pub transfers: u64,
    /// Moves of replicas, in the whole cluster.
    pub moves: u64,
    /// Bytes that these copied.
    pub moved_bytes: f64,
    /// Moves of a partition that had moved twice within ten minutes.
    pub thrashed: u64,
}

/// The seconds as CSV with a head line.
#[must_use]
pub fn csv(seconds: &[Second]) -> String {
    let mut text = String::new();
    for (at, second) in seconds.iter().enumerate() {
        let Ok(serde_json::Value::Object(mut fields)) = serde_json::to_value(second) else {
            continue;
        };
        for list in ["shares", "leaders", "cpu"] {
            fields.remove(list);
        }
        if at == 0 {
            text.push_str(&fields.keys().cloned().collect::<Vec<_>>().join(","));
            text.push('\n');
        }
        let cell = |value: &serde_json::Value| match value {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Null => String::new(),
            other => other.to_string(),
        };
        text.push_str(&fields.values().map(cell).collect::<Vec<_>>().join(","));
        text.push('\n');
    }
    text
}

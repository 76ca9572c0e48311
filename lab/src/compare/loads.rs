//! Comparison of loads.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Load;
use crate::report::{mib, short};
use crate::statistics::median;

/// Door of the base with which a server is compared if the base lacks the server's door.
const COMMON_DOOR: &str = "line-protocol";

/// Medians of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Medians {
    label: String,
    connections: u32,
    server: String,
    door: String,
    rounds: usize,
    rows_per_s: f64,
    slowest_rows_per_s: f64,
    fastest_rows_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    client_cpu_s: f64,
    metered: bool,
    server_cpu_s_per_mrow: f64,
    server_cpu_settled_s_per_mrow: f64,
    memory_peak_bytes: u64,
    disk_bytes_per_row: f64,
    written_bytes_per_row: f64,
    /// Rows/s of the base divided by these.
    base_rate_ratio: Option<f64>,
    /// Settled CPU seconds per million rows, divided by the base's.
    base_cpu_ratio: Option<f64>,
}

/// Medians of each measurement, with ratios to the base.
pub(super) fn compare(loads: &[Load], base: &str) -> Vec<Medians> {
    let mut rounds: BTreeMap<_, Vec<&Load>> = BTreeMap::new();
    for load in loads {
        let key = (&load.label, load.connections, load.server != base, &load.server, &load.door);
        rounds.entry(key).or_default().push(load);
    }
    let mut measurements: Vec<Medians> = rounds.values().map(|rounds| medians(rounds)).collect();
    let bases: Vec<Medians> =
        measurements.iter().filter(|measurement| measurement.server == base).cloned().collect();
    for measurement in &mut measurements {
        let same = |door: &str| {
            let alike = |b: &&Medians| {
                b.label == measurement.label && b.connections == measurement.connections
            };
            bases.iter().filter(alike).find(|b| b.door == door)
        };
        // The base's other doors are compared with its common one.
        let counterpart = if measurement.server == base { None } else { same(&measurement.door) };
        if let Some(base) = counterpart.or_else(|| same(COMMON_DOOR)) {
            measurement.base_rate_ratio = ratio(base.rows_per_s, measurement.rows_per_s);
            measurement.base_cpu_ratio = ratio(
                measurement.server_cpu_settled_s_per_mrow,
                base.server_cpu_settled_s_per_mrow,
            );
        }
    }
    measurements
}

fn ratio(numerator: f64, denominator: f64) -> Option<f64> {
    (numerator > 0.0 && denominator > 0.0).then(|| numerator / denominator)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "bytes of memory fit 53 bits"
)]
fn medians(rounds: &[&Load]) -> Medians {
    let first = rounds[0];
    let values =
        |value: fn(&Load) -> f64| rounds.iter().map(|load| value(load)).collect::<Vec<_>>();
    let rates = values(|load| load.rows_per_s);
    Medians {
        label: first.label.clone(),
        connections: first.connections,
        server: first.server.clone(),
        door: first.door.clone(),
        rounds: rounds.len(),
        slowest_rows_per_s: rates.iter().copied().fold(f64::INFINITY, f64::min),
        fastest_rows_per_s: rates.iter().copied().fold(0.0, f64::max),
        rows_per_s: median(&rates),
        p50_ms: median(&values(|load| load.latency.p50_ms)),
        p99_ms: median(&values(|load| load.latency.p99_ms)),
        client_cpu_s: median(&values(|load| load.client_cpu_s)),
        metered: first.metered,
        server_cpu_s_per_mrow: median(&values(|load| load.server_cpu_s_per_mrow)),
        server_cpu_settled_s_per_mrow: median(&values(|load| load.server_cpu_settled_s_per_mrow)),
        memory_peak_bytes: median(&values(|load| load.server_usage.memory_peak_bytes as f64))
            as u64,
        disk_bytes_per_row: median(&values(|load| load.disk_bytes_per_row)),
        written_bytes_per_row: median(&values(|load| load.written_bytes_per_row)),
        base_rate_ratio: None,
        base_cpu_ratio: None,
    }
}

/// The comparison as a table.
pub(super) fn lines(measurements: &[Medians], base: &str) -> Vec<Vec<String>> {
    let head = [
        "load",
        "rounds",
        "rows/s",
        "(from",
        "to)",
        "p50 ms",
        "p99 ms",
        "server CPU s/Mrow",
        "settled",
        "peak",
        "disk B/row",
        "written B/row",
        &format!("{base} faster"),
        "less CPU",
    ]
    .map(str::to_owned);
    // Server figures are shown only if the server was metered.
    let times =
        |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |r| format!("{}x", short(r)));
    let line = |measurement: &Medians| {
        let metered = |text: String| if measurement.metered { text } else { "-".to_owned() };
        vec![
            format!(
                "{} {} x{} {}",
                measurement.label, measurement.server, measurement.connections, measurement.door
            ),
            measurement.rounds.to_string(),
            short(measurement.rows_per_s),
            short(measurement.slowest_rows_per_s),
            short(measurement.fastest_rows_per_s),
            short(measurement.p50_ms),
            short(measurement.p99_ms),
            metered(short(measurement.server_cpu_s_per_mrow)),
            metered(short(measurement.server_cpu_settled_s_per_mrow)),
            metered(mib(measurement.memory_peak_bytes)),
            short(measurement.disk_bytes_per_row),
            metered(short(measurement.written_bytes_per_row)),
            times(measurement.base_rate_ratio),
            times(measurement.base_cpu_ratio),
        ]
    };
    std::iter::once(head.to_vec()).chain(measurements.iter().map(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::LoadUsage;
    use super::*;
    use crate::latency::Summary;

    fn load(server: &str, door: &str, rows_per_s: f64, cpu: f64) -> Load {
        Load {
            label: "A".to_owned(),
            server: server.to_owned(),
            door: door.to_owned(),
            connections: 1,
            rows_per_s,
            latency: Summary::default(),
            rejected_batches: 0,
            client_cpu_s: 1.0,
            metered: true,
            server_usage: LoadUsage { memory_peak_bytes: 1 << 20 },
            server_cpu_s_per_mrow: cpu,
            server_cpu_settled_s_per_mrow: cpu,
            disk_bytes_per_row: 4.0,
            written_bytes_per_row: 8.0,
        }
    }

    #[test]
    fn a_peer_is_compared_by_its_own_door_or_the_common_one() {
        let loads = [
            load("partita", "line-protocol", 300.0, 2.0),
            load("influxdb", "line-protocol", 100.0, 10.0),
            load("influxdb", "line-protocol", 50.0, 12.0),
            load("influxdb", "line-protocol", 120.0, 11.0),
            load("postgresql", "copy-text", 200.0, 4.0),
            load("partita", "copy-text", 500.0, 1.0),
            load("clickhouse", "tab-separated", 150.0, 6.0),
        ];
        let ratios: Vec<_> = compare(&loads, "partita")
            .into_iter()
            .map(|measurement| {
                (
                    measurement.server,
                    measurement.door,
                    measurement.rounds,
                    measurement.base_rate_ratio,
                    measurement.base_cpu_ratio,
                )
            })
            .collect();
        let row = |server: &str, door: &str, rounds, rate, cpu| {
            (server.to_owned(), door.to_owned(), rounds, Some(rate), Some(cpu))
        };
        assert_eq!(
            ratios,
            [
                row("partita", "copy-text", 1, 0.6, 0.5),
                row("partita", "line-protocol", 1, 1.0, 1.0),
                row("clickhouse", "tab-separated", 1, 2.0, 3.0),
                row("influxdb", "line-protocol", 3, 3.0, 5.5),
                row("postgresql", "copy-text", 1, 2.5, 4.0),
            ]
        );
    }
}

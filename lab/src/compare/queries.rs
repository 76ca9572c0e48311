//! Comparison of queries, and of their answers.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Asked, AskedQuery};
use crate::latency::Summary;
use crate::query::answer::Digest;
use crate::report::short;
use crate::statistics::median;

/// Medians of a query on a server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Medians {
    label: String,
    connections: u32,
    query: String,
    server: String,
    door: String,
    rounds: usize,
    /// Median of the rounds' medians.
    p50_ms: f64,
    p99_ms: f64,
    answer: Digest,
    failed: u64,
    /// This median divided by the base's.
    base_ratio: Option<f64>,
    /// True if the answers equal the base's.
    same_as_base: Option<bool>,
}

/// Medians of each query on each server, with ratios to the base's.
pub(super) fn compare(runs: &[Asked], base: &str) -> Vec<Medians> {
    // Rounds of one measurement share data set, connections, query, server and door.
    let mut rounds: BTreeMap<_, Vec<&AskedQuery>> = BTreeMap::new();
    for run in runs {
        for (place, query) in run.queries.iter().enumerate() {
            let measurement = (&run.label, run.connections);
            let server = (run.server != base, &run.server, &run.door);
            rounds.entry((measurement, place, &query.name, server)).or_default().push(query);
        }
    }
    let mut measurements = Vec::new();
    for (((label, connections), _, name, (_, server, door)), rounds) in rounds {
        let latencies = |figure: fn(&Summary) -> f64| {
            rounds.iter().map(|query| figure(&query.latency)).collect::<Vec<_>>()
        };
        measurements.push(Medians {
            label: label.clone(),
            connections,
            query: name.clone(),
            server: server.clone(),
            door: door.clone(),
            rounds: rounds.len(),
            p50_ms: median(&latencies(|latency| latency.p50_ms)),
            p99_ms: median(&latencies(|latency| latency.p99_ms)),
            answer: rounds[0].answer,
            failed: rounds.iter().map(|query| query.failed).sum(),
            base_ratio: None,
            same_as_base: None,
        });
    }
    // Ratios and answers are compared with the base's run of the same query.
    let bases: Vec<Medians> =
        measurements.iter().filter(|measurement| measurement.server == base).cloned().collect();
    for measurement in &mut measurements {
        let alike = |b: &&Medians| {
            b.label == measurement.label
                && b.connections == measurement.connections
                && b.query == measurement.query
        };
        if let Some(base) = bases.iter().find(alike) {
            measurement.base_ratio = (base.p50_ms > 0.0).then(|| measurement.p50_ms / base.p50_ms);
            measurement.same_as_base = Some(base.answer.agrees(measurement.answer));
        }
    }
    measurements
}

/// A table for each data set and number of connections: a row per query, a column per server.
pub(super) fn tables(measurements: &[Medians], base: &str) -> Vec<Vec<Vec<String>>> {
    let kinds: BTreeSet<_> = measurements
        .iter()
        .map(|measurement| (&measurement.label, measurement.connections))
        .collect();
    kinds
        .into_iter()
        .map(|(label, connections)| {
            let group: Vec<&Medians> = measurements
                .iter()
                .filter(|measurement| {
                    &measurement.label == label && measurement.connections == connections
                })
                .collect();
            table(&format!("{label} queries x{connections}, median ms"), &group, base)
        })
        .collect()
}

fn table(title: &str, measurements: &[&Medians], base: &str) -> Vec<Vec<String>> {
    // The base's columns come first; queries keep their order.
    let mut columns: Vec<_> =
        measurements.iter().map(|measurement| (&measurement.server, &measurement.door)).collect();
    columns.sort_by_key(|(server, door)| (*server != base, *server, *door));
    columns.dedup();
    let mut queries: Vec<&String> = Vec::new();
    for measurement in measurements {
        if !queries.contains(&&measurement.query) {
            queries.push(&measurement.query);
        }
    }
    let names = columns.iter().map(|(server, door)| format!("{server} {door}"));
    let mut lines = vec![std::iter::once(title.to_owned()).chain(names).collect::<Vec<_>>()];
    for query in queries {
        let cell = |(server, door): &(&String, &String)| {
            let entry = measurements.iter().find(|measurement| {
                &measurement.query == query
                    && &measurement.server == *server
                    && &measurement.door == *door
            });
            let Some(measurement) = entry else { return "-".to_owned() };
            if measurement.failed > 0 {
                return "failed".to_owned();
            }
            let ratio = match measurement.base_ratio {
                Some(ratio) if *server != base => format!(" {}x", short(ratio)),
                _ => String::new(),
            };
            let differs = if measurement.same_as_base == Some(false) { " differs" } else { "" };
            format!("{}{ratio}{differs}", short(measurement.p50_ms))
        };
        lines.push(std::iter::once(query.clone()).chain(columns.iter().map(cell)).collect());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(server: &str, p50_ms: f64, sum: f64) -> Asked {
        Asked {
            label: "A".to_owned(),
            server: server.to_owned(),
            door: "http".to_owned(),
            connections: 1,
            queries: vec![AskedQuery {
                name: "lastpoint".to_owned(),
                latency: Summary { p50_ms, ..Summary::default() },
                answer: Digest { rows: 10, sum },
                failed: 0,
            }],
        }
    }

    #[test]
    fn answers_that_differ_are_told() {
        let runs = [
            asked("influxdb", 30.0, 1_000.000_000_001),
            asked("partita", 9.0, 1_000.0),
            asked("partita", 11.0, 1_000.0),
            asked("clickhouse", 5.0, 1_001.0),
        ];
        let measurements = compare(&runs, "partita");
        let lines = tables(&measurements, "partita").remove(0);
        assert_eq!(lines[0][1..], ["partita http", "clickhouse http", "influxdb http"]);
        assert_eq!(lines[1], ["lastpoint", "10.0", "5.00 0.50x differs", "30.0 3.00x"]);
    }
}

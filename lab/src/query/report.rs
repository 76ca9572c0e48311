//! Report of queries.
//!
//! Each run through the queries has a report and a line of JSON of its own: the server without other load, the
//! server while rows are loaded, plain DataFusion. `partita lab compare` compares them, the last as one more
//! server. In the text they are one table, with additional columns.

use serde::Serialize;

use super::answer::Digest;
use crate::ingest::background::Ingested;
use crate::latency::Summary;
use crate::report::{align, mib, say, say_json, short};

/// Results of a query's runs.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Result {
    pub(super) name: &'static str,
    pub(super) latency: Summary,
    /// Rows and sums of all answers.
    pub(super) answer: Digest,
    pub(super) failed: u64,
    pub(super) messages: Vec<String>,
    pub(super) server_cpu_s: f64,
}

/// Results of one run through the queries.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) what: &'static str,
    pub(super) label: String,
    pub(super) server: &'static str,
    pub(super) door: String,
    pub(super) hosts: u32,
    pub(super) connections: u32,
    pub(super) runs: u64,
    pub(super) rate: Option<f64>,
    pub(super) queries: Vec<Result>,
    pub(super) client_cpu_s: f64,
    pub(super) metered: bool,
    pub(super) server_memory_bytes: u64,
    pub(super) server_memory_peak_bytes: u64,
    /// Rows loaded meanwhile.
    pub(super) ingested: Option<Ingested>,
}

/// All reports.
#[derive(Debug)]
pub(super) struct Reports {
    /// The server without other load.
    pub(super) alone: Report,
    /// Plain DataFusion over the same rows, alternating with the server.
    pub(super) yardstick: Option<Report>,
    /// The server while rows were loaded.
    pub(super) busy: Option<Report>,
}

impl Reports {
    fn all(&self) -> impl Iterator<Item = &Report> {
        std::iter::once(&self.alone).chain(&self.yardstick).chain(&self.busy)
    }

    /// Number of questions without an answer.
    pub(super) fn failed(&self) -> u64 {
        self.all().flat_map(|report| &report.queries).map(|result| result.failed).sum()
    }

    /// Prints the reports.
    ///
    /// # Errors
    /// If they cannot be written.
    pub(super) fn print(&self, json: bool) -> anyhow::Result<()> {
        if json {
            return self.all().try_for_each(say_json);
        }
        say(&align(&self.lines()))?;
        if self.alone.metered {
            let (current, peak) =
                (mib(self.alone.server_memory_bytes), mib(self.alone.server_memory_peak_bytes));
            say(&format!("server memory now {current}, peak {peak}"))?;
        }
        if let Some(ingested) = self.busy.as_ref().and_then(|busy| busy.ingested.as_ref()) {
            say(&ingested.line())?;
        }
        for report in self.all() {
            for result in report.queries.iter().filter(|result| result.failed > 0) {
                say(&format!("{}, {}: {} failed", report.server, result.name, result.failed))?;
                result.messages.iter().try_for_each(|message| say(&format!("  {message}")))?;
            }
        }
        Ok(())
    }

    fn lines(&self) -> Vec<Vec<String>> {
        let mut head =
            vec!["query", "median ms", "p99 ms", "max ms", "rows", "sum", "server CPU s"];
        if self.yardstick.is_some() {
            head.extend(["DataFusion ms", "times it", "answers"]);
        }
        if self.busy.is_some() {
            head.extend(["ingesting: median ms", "p99 ms", "max ms"]);
        }
        let mut lines = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
        for (index, result) in self.alone.queries.iter().enumerate() {
            let metered = self.alone.metered;
            let mut line = vec![
                result.name.to_owned(),
                short(result.latency.p50_ms),
                short(result.latency.p99_ms),
                short(result.latency.max_ms),
                result.answer.rows.to_string(),
                format!("{:.3}", result.answer.sum),
                if metered { short(result.server_cpu_s) } else { "-".to_owned() },
            ];
            // All runs have the same queries in the same order.
            if let Some(reference) =
                self.yardstick.as_ref().and_then(|report| report.queries.get(index))
            {
                line.extend(beside(result, reference));
            }
            if let Some(busy) = self.busy.as_ref().and_then(|report| report.queries.get(index)) {
                let latency = &busy.latency;
                line.extend([latency.p50_ms, latency.p99_ms, latency.max_ms].map(short));
            }
            lines.push(line);
        }
        lines
    }
}

/// A query's yardstick, the ratio of the server's time to it, and whether the answers agree.
fn beside(result: &Result, reference: &Result) -> [String; 3] {
    let (ours, theirs) = (result.latency.p50_ms, reference.latency.p50_ms);
    let times = if theirs > 0.0 { format!("{}x", short(ours / theirs)) } else { "-".to_owned() };
    let same = if result.answer.agrees(reference.answer) { "same" } else { "differ" };
    [short(theirs), times, same.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(server: &'static str, p50_ms: f64, sum: f64) -> Report {
        let latency = Summary { count: 1, p50_ms, p99_ms: 2.0 * p50_ms, ..Summary::default() };
        Report {
            what: "query",
            label: String::new(),
            server,
            door: "postgres".to_owned(),
            hosts: 1,
            connections: 1,
            runs: 1,
            rate: None,
            queries: vec![Result {
                name: "lastpoint",
                latency,
                answer: Digest { rows: 3, sum },
                failed: u64::from(sum < 0.0),
                messages: Vec::new(),
                server_cpu_s: 0.0,
            }],
            client_cpu_s: 0.0,
            metered: false,
            server_memory_bytes: 0,
            server_memory_peak_bytes: 0,
            ingested: None,
        }
    }

    #[test]
    fn what_is_asked_along_stands_behind_the_server() {
        let baseline = report("partita", 6.0, 9.0);
        let reports = Reports { alone: baseline, yardstick: None, busy: None };
        assert_eq!(reports.lines()[1].len(), 7);
        let reports = Reports {
            yardstick: Some(report("datafusion", 4.0, 9.0)),
            busy: Some(report("partita", 12.0, 9.0)),
            ..reports
        };
        let lines = reports.lines();
        assert_eq!(lines[0].len(), lines[1].len());
        assert_eq!(lines[1][7..], ["4.00", "1.50x", "same", "12.0", "24.0", "0"]);
    }

    #[test]
    fn other_answers_and_failures_are_told() {
        let reports = Reports {
            alone: report("partita", 6.0, 9.0),
            yardstick: Some(report("datafusion", 0.0, -1.0)),
            busy: None,
        };
        assert_eq!(reports.lines()[1][7..], ["0", "-", "differ"]);
        assert_eq!(reports.failed(), 1);
    }
}

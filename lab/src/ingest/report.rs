//! Report of a load.

use std::time::Duration;

use serde::Serialize;

use super::{Door, Loaded, Options};
use crate::latency::Summary;
use crate::meter::{Disk, Usage};
use crate::report::{align, mib, say, say_json, short};

/// Resources that a server used for a load, and holds after it.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct ServerUsage {
    /// CPU seconds up to the last acknowledgement.
    pub(super) cpu_s: f64,
    /// CPU seconds up to the end of `--settle`; the same without it.
    pub(super) cpu_settled_s: f64,
    pub(super) memory_bytes: u64,
    pub(super) memory_peak_bytes: u64,
    /// Bytes written to disk, up to the end of `--settle`.
    pub(super) written_bytes: u64,
    pub(super) disk: Disk,
    #[serde(skip)]
    before: Usage,
}

impl ServerUsage {
    pub(super) fn new(first: Usage, last: Usage) -> Self {
        let mut usage = Self { before: first, ..Self::default() };
        usage.settled(last);
        usage.cpu_s = usage.cpu_settled_s;
        usage
    }

    /// Takes over a later measurement.
    pub(super) fn settled(&mut self, usage: Usage) {
        self.cpu_settled_s = usage.cpu_s - self.before.cpu_s;
        self.written_bytes = usage.written_bytes.saturating_sub(self.before.written_bytes);
        self.memory_bytes = usage.memory_bytes;
        self.memory_peak_bytes = usage.memory_peak_bytes;
    }
}

/// Result of a load.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    what: &'static str,
    label: String,
    server: &'static str,
    door: String,
    hosts: u32,
    connections: u32,
    batch_rows: u32,
    /// Requested rows per second, in an open loop.
    rate: Option<f64>,
    rows: u64,
    payload_bytes: u64,
    seconds: f64,
    rows_per_s: f64,
    /// Latency of a batch, from when it was due (open loop) or sent (closed loop) to its acknowledgement.
    latency: Summary,
    retries: u64,
    rejected_batches: u64,
    rejected_rows: u64,
    messages: Vec<String>,
    /// CPU seconds of this process while the clock ran, including encoding.
    client_cpu_s: f64,
    /// Of these, CPU seconds of encoding.
    encoding_cpu_s: f64,
    /// Rows encoded while the clock ran, sent or not.
    encoded_beside_rows: u64,
    /// CPU seconds of encoding before the clock started.
    encoding_before_cpu_s: f64,
    prepared_rows: u64,
    /// Total seconds for which workers waited for the encoder.
    encoder_waited_s: f64,
    /// True if a server process was given; otherwise its CPU, memory and bytes are 0.
    metered: bool,
    server_usage: ServerUsage,
    server_cpu_s_per_mrow: f64,
    server_cpu_settled_s_per_mrow: f64,
    disk_bytes_per_row: f64,
    written_bytes_per_row: f64,
    /// Bytes written to disk, divided by the bytes received.
    write_amplification: f64,
}

impl Report {
    #[expect(clippy::cast_precision_loss, reason = "results, rounded")]
    pub(super) fn of(options: &Options, loaded: &Loaded) -> Self {
        // Figures per row are 0 if nothing was stored.
        let (tally, server) = (&loaded.tally, &loaded.server);
        let per_row = |amount: f64| if tally.rows == 0 { 0.0 } else { amount / tally.rows as f64 };
        let seconds = loaded.elapsed.as_secs_f64();
        let door = clap::ValueEnum::to_possible_value(&options.door);
        Self {
            what: "ingest",
            label: options.label.clone(),
            server: options.target.server.name(),
            door: door.map_or_else(String::new, |value| value.get_name().to_owned()),
            hosts: options.data.hosts,
            connections: options.connections,
            batch_rows: if options.door == Door::Insert { 1 } else { options.batch },
            rate: options.rate,
            rows: tally.rows,
            payload_bytes: tally.bytes,
            seconds,
            rows_per_s: tally.rows as f64 / seconds.max(Duration::from_nanos(1).as_secs_f64()),
            latency: tally.latencies.summary(),
            retries: tally.retries,
            rejected_batches: tally.rejected_batches,
            rejected_rows: tally.rejected_rows,
            messages: tally.messages.clone(),
            client_cpu_s: loaded.client_cpu_s,
            encoding_cpu_s: loaded.beside.cpu_s,
            encoded_beside_rows: loaded.beside.rows,
            encoding_before_cpu_s: loaded.encoded_before_s,
            prepared_rows: loaded.prepared_rows,
            encoder_waited_s: tally.waited.as_secs_f64(),
            metered: !options.metering.server_pid.is_empty(),
            server_cpu_s_per_mrow: per_row(server.cpu_s * 1e6),
            server_cpu_settled_s_per_mrow: per_row(server.cpu_settled_s * 1e6),
            disk_bytes_per_row: per_row(server.disk.bytes as f64),
            written_bytes_per_row: per_row(server.written_bytes as f64),
            write_amplification: if tally.bytes == 0 {
                0.0
            } else {
                server.written_bytes as f64 / tally.bytes as f64
            },
            server_usage: server.clone(),
        }
    }

    /// Prints the result.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn print(&self, json: bool) -> anyhow::Result<()> {
        if json { say_json(self) } else { say(&align(&self.lines())) }
    }

    fn lines(&self) -> Vec<Vec<String>> {
        let mut lines = Vec::new();
        let mut line = |name: &str, value: String| lines.push(vec![name.to_owned(), value]);
        // The load and its latency, then the client, then the server.
        line("server, door", format!("{}, {}", self.server, self.door));
        line("connections, batch", format!("{}, {} rows", self.connections, self.batch_rows));
        if let Some(rate) = self.rate {
            line("requested (open loop)", format!("{} rows/s", short(rate)));
        }
        line("stored", format!("{} rows in {} s", self.rows, short(self.seconds)));
        line("", format!("{} rows/s", short(self.rows_per_s)));
        let latency = &self.latency;
        for (name, value) in [
            ("batch latency p50", latency.p50_ms),
            ("p90", latency.p90_ms),
            ("p99", latency.p99_ms),
            ("p99.9", latency.p999_ms),
            ("max", latency.max_ms),
        ] {
            line(name, format!("{} ms", short(value)));
        }
        line("client CPU", format!("{} s", short(self.client_cpu_s)));
        line("encoded beforehand", format!("{} rows", self.prepared_rows));
        if self.encoding_cpu_s > 0.0 {
            let (cpu, waited) = (short(self.encoding_cpu_s), short(self.encoder_waited_s));
            let rows = self.encoded_beside_rows;
            line("encoded while measuring", format!("{rows} rows, {cpu} s CPU"));
            line("workers waited for it", format!("{waited} s"));
        }
        if self.metered {
            self.server_lines(&mut line);
        }
        if self.server_usage.disk.bytes > 0 {
            let disk = &self.server_usage.disk;
            let total = mib(disk.bytes);
            line("on disk", format!("{total}, {} bytes/row", short(self.disk_bytes_per_row)));
            for (name, bytes) in &disk.entries {
                line(&format!("  {name}"), mib(*bytes));
            }
        }
        if self.retries > 0 {
            line("sent again", self.retries.to_string());
        }
        if self.rejected_batches > 0 {
            line("refused batches", self.rejected_batches.to_string());
            for message in &self.messages {
                line("", message.clone());
            }
        }
        lines
    }

    fn server_lines(&self, line: &mut impl FnMut(&str, String)) {
        let usage = &self.server_usage;
        let per = short(self.server_cpu_s_per_mrow);
        line("server CPU", format!("{} s, {per} s per million rows", short(usage.cpu_s)));
        let per = short(self.server_cpu_settled_s_per_mrow);
        line("server CPU, settled", format!("{} s, {per}", short(usage.cpu_settled_s)));
        line("server memory now, peak", {
            format!("{}, {}", mib(usage.memory_bytes), mib(usage.memory_peak_bytes))
        });
        let per = short(self.written_bytes_per_row);
        let times = short(self.write_amplification);
        line("written", format!("{}, {per} bytes/row", mib(usage.written_bytes)));
        line("written by payload", format!("{times} times"));
    }
}

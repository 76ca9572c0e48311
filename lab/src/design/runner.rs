//! Runs a demonstration: a server for each design, the same records in each, and the same questions in turns.
//!
//! ```text
//!   for each design:  start ─▶ CREATE TABLE ─▶ COPY, flush (part by part) ─▶ merge files ─▶ memory, disk
//!   for each round:   each question under each design, in alternating order ─▶ latency, answer
//!   at the end:       rows, bytes, partitions and indexes of each question, from the servers' query logs
//! ```
//!
//! Invariants: a server holds the tables of one design, so its memory is that design's; designs are asked next to each
//! other in each round, so disturbances of the machine affect all alike; answers that must be equal are compared in
//! the first round, and a difference is an error; time to make records does not count.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use tokio_postgres::Client;

use super::figures::{Asked, Loaded, Measured};
use super::model::{Data, Demonstration, Design, Question};
use crate::door::copy::copy;
use crate::door::postgres::{self, Cells, connection, rows};
use crate::embedded::Embedded;
use crate::meter::Meter;
use crate::report::progress;
use crate::statistics::median;

/// Records of one COPY per table.
const BATCH_RECORDS: u64 = 20_000;
/// Columns of the query log that are read, in order.
const LOGGED: &str = "rows_scanned, bytes_scanned, partitions_touched, partitions_total, files_read, index_rows_skipped, \
                      index_used";

/// Settings of the runs.
#[derive(Clone, Debug)]
pub(super) struct Rounds {
    /// Counted rounds.
    pub(super) runs: u32,
    /// Rounds before them that are not counted.
    pub(super) warmup: u32,
    pub(super) binary: PathBuf,
    /// Folder below which servers keep their data.
    pub(super) folder: PathBuf,
}

/// A server with the tables of one design.
struct Stand {
    design: Design,
    server: Embedded,
    client: Client,
    meter: Meter,
}

impl Stand {
    async fn start(design: Design, label: &str, rounds: &Rounds) -> anyhow::Result<Self> {
        let server = Embedded::standalone(&rounds.binary, &rounds.folder, label).await?;
        let client = postgres::connect(&connection(&server.postgres)?, "public").await?;
        let meter = Meter::new(server.pids(), false);
        let stand = Self { design, server, client, meter };
        for table in &stand.design.tables {
            stand.run(&table.create).await?;
            stand.run(&table.freeze()).await?;
        }
        Ok(stand)
    }

    async fn run(&self, statement: &str) -> anyhow::Result<()> {
        let outcome = self.client.batch_execute(statement).await;
        outcome.map_err(|error| anyhow::anyhow!("{}: {statement}", postgres::failure(&error)))
    }

    async fn ask(&self, query: &str) -> anyhow::Result<Cells> {
        let cells = rows(&self.client, query).await;
        cells.map_err(|error| anyhow::anyhow!("{}: {query}", postgres::failure(&error)))
    }

    /// The only number that a query gives.
    async fn number<T: std::str::FromStr>(&self, query: &str) -> anyhow::Result<T> {
        let cells = self.ask(query).await?;
        let cell = cells.first().and_then(|row| row.first()).and_then(Option::as_deref);
        let number = cell.and_then(|text| text.parse().ok());
        number.with_context(|| format!("no number, but {cell:?}: {query}"))
    }

    /// Runs a maintenance function on all tables.
    async fn maintain(&self, function: &str) -> anyhow::Result<()> {
        for table in &self.design.tables {
            self.run(&format!("ADMIN {function}('{}')", table.name)).await?;
        }
        Ok(())
    }

    /// Writes some records; returns the number of rows, and the time of COPY.
    async fn copy(
        &self,
        demonstration: &Demonstration,
        data: &Data,
        records: std::ops::Range<u64>,
    ) -> anyhow::Result<(u64, Duration)> {
        let (mut row_count, mut copying) = (0, Duration::ZERO);
        let mut start = records.start;
        while start < records.end {
            let end = records.end.min(start + BATCH_RECORDS);
            let mut lines = vec![String::new(); self.design.tables.len()];
            for number in start..end {
                for row in (self.design.rows)((demonstration.record)(data, number)) {
                    row.append(&mut lines[row.table]);
                    row_count += 1;
                }
            }
            let begin = Instant::now();
            for (table, lines) in self.design.tables.iter().zip(lines) {
                if lines.is_empty() {
                    continue;
                }
                let statement =
                    format!("COPY {} ({}) FROM STDIN", table.name, table.columns.join(", "));
                copy(&self.client, &statement, &Bytes::from(lines)).await?;
            }
            copying += begin.elapsed();
            start = end;
        }
        Ok((row_count, copying))
    }

    /// Writes all records, and has them in files.
    async fn load(&mut self, demonstration: &Demonstration, data: &Data) -> anyhow::Result<Loaded> {
        let mut loaded = Loaded { design: self.design.name.clone(), ..Loaded::default() };
        let (mut copying, mut filing) = (Duration::ZERO, Duration::ZERO);
        for part in 0..demonstration.parts {
            let start = data.rows * part / demonstration.parts;
            let end = data.rows * (part + 1) / demonstration.parts;
            let (row_count, took) = self.copy(demonstration, data, start..end).await?;
            loaded.rows += row_count;
            copying += took;
            let begin = Instant::now();
            self.maintain("flush_table").await?;
            filing += begin.elapsed();
        }
        if demonstration.compacts {
            let begin = Instant::now();
            self.maintain("compact_table").await?;
            filing += begin.elapsed();
        }
        (loaded.load_s, loaded.files_s) = (copying.as_secs_f64(), filing.as_secs_f64());
        loaded.memory_bytes = self.meter.read()?.memory_bytes;
        Ok(loaded)
    }

    /// Adds disk space, memory and facts at the end.
    async fn finish(&mut self, loaded: &mut Loaded) -> anyhow::Result<()> {
        let names: Vec<String> =
            self.design.tables.iter().map(|table| format!("'{}'", table.name)).collect();
        for (expression, figure) in [
            ("CAST(sum(bytes) AS BIGINT)", &mut loaded.disk_bytes),
            ("CAST(sum(files) AS BIGINT)", &mut loaded.files),
            ("count(*)", &mut loaded.partitions),
        ] {
            let query = format!(
                "SELECT {expression} FROM sys.partitions WHERE \"table\" IN ({})",
                names.join(", ")
            );
            *figure = self.number(&query).await?;
        }
        let mut facts = BTreeMap::new();
        for fact in &self.design.facts {
            facts.insert(fact.name.to_owned(), self.number::<f64>(&fact.sql).await?);
        }
        loaded.facts = facts;
        loaded.memory_peak_bytes = self.meter.read()?.memory_peak_bytes;
        Ok(())
    }

    /// Adds the figures of the query log.
    async fn logged(&self, reply: &mut Asked) -> anyhow::Result<()> {
        let query = format!(
            "SELECT {LOGGED} FROM sys.query_log WHERE kind = 'SELECT' AND text = '{}' ORDER BY started DESC LIMIT 1",
            reply.sql.replace('\'', "''")
        );
        let cells = self.ask(&query).await?;
        let entry =
            cells.first().with_context(|| format!("not in the query log: {}", reply.sql))?;
        let figures = [
            &mut reply.rows_read,
            &mut reply.bytes_read,
            &mut reply.partitions_touched,
            &mut reply.partitions_total,
            &mut reply.files_read,
            &mut reply.index_rows_skipped,
        ];
        let count = figures.len();
        for (figure, cell) in figures.into_iter().zip(entry) {
            *figure = cell.as_deref().and_then(|cell| cell.parse().ok()).unwrap_or_default();
        }
        reply.index_used = entry.get(count).cloned().flatten();
        Ok(())
    }
}

/// Runs a demonstration.
///
/// # Errors
/// If a server does not start, refuses a statement or ends, or designs answer a question differently.
pub(super) async fn run(
    demonstration: &Demonstration,
    data: &Data,
    rounds: &Rounds,
) -> anyhow::Result<Measured> {
    let mut stands = Vec::new();
    for design in (demonstration.designs)() {
        progress(&format!("{}, {}: starting a server", demonstration.name, design.name));
        let label = format!("{}-{}", demonstration.name, stands.len() + 1);
        stands.push(Stand::start(design, &label, rounds).await?);
    }
    let measured = Box::pin(measure(demonstration, data, rounds, &mut stands)).await;
    // A process that ended explains more than the broken connection.
    for stand in &mut stands {
        stand.server.check()?;
    }
    progress("");
    measured
}

async fn measure(
    demonstration: &Demonstration,
    data: &Data,
    rounds: &Rounds,
    stands: &mut [Stand],
) -> anyhow::Result<Measured> {
    let mut measured = Measured::default();
    for stand in stands.iter_mut() {
        progress(&format!("{}, {}: loading", demonstration.name, stand.design.name));
        measured.loaded.push(stand.load(demonstration, data).await?);
    }
    // Questions by questions, designs within: the order of the report.
    let questions = (demonstration.questions)(data);
    for question in &questions {
        for (stand, ask) in stands.iter().zip(&question.asks) {
            measured.asked.push(Asked {
                question: question.name.clone(),
                design: stand.design.name.clone(),
                sql: ask.sql.clone(),
                ..Asked::default()
            });
        }
    }
    for round in 0..rounds.warmup + rounds.runs {
        progress(&format!("{}: round {}", demonstration.name, round + 1));
        let counts = round >= rounds.warmup;
        for (position, question) in questions.iter().enumerate() {
            let first = position * stands.len();
            let replies = &mut measured.asked[first..first + stands.len()];
            let is_first = round == 0;
            let turned = round.is_multiple_of(2);
            ask_all(question, stands, replies, Pass { is_first, turned, counts }).await?;
        }
    }
    for (index, reply) in measured.asked.iter_mut().enumerate() {
        reply.median_ms = median(&reply.rounds_ms);
        stands[index % stands.len()].logged(reply).await?;
    }
    for (stand, loaded) in stands.iter_mut().zip(&mut measured.loaded) {
        stand.finish(loaded).await?;
    }
    Ok(measured)
}

/// One round of one question.
#[derive(Clone, Copy)]
struct Pass {
    /// True if answers are compared and kept.
    is_first: bool,
    /// True if the designs are asked from the last to the first.
    turned: bool,
    /// True if latencies count.
    counts: bool,
}

async fn ask_all(
    question: &Question,
    stands: &[Stand],
    replies: &mut [Asked],
    pass: Pass,
) -> anyhow::Result<()> {
    let mut answers = vec![Cells::new(); stands.len()];
    for index in 0..stands.len() {
        let position = if pass.turned { stands.len() - 1 - index } else { index };
        let begin = Instant::now();
        let answer = stands[position].ask(&question.asks[position].sql).await?;
        let took = begin.elapsed();
        if pass.counts {
            replies[position].rounds_ms.push(took.as_secs_f64() * 1e3);
        }
        if pass.is_first {
            replies[position].answered(&answer);
            answers[position] = answer;
        }
    }
    if pass.is_first { same(question, stands, answers) } else { Ok(()) }
}

/// Checks that designs give equal answers where they must.
fn same(question: &Question, stands: &[Stand], answers: Vec<Cells>) -> anyhow::Result<()> {
    let names = stands.iter().map(|stand| stand.design.name.as_str());
    let alike = names.zip(answers).zip(&question.asks).filter(|(_, ask)| ask.alike);
    match difference(alike.map(|(answer, _)| answer)) {
        Some(text) => bail!("{}: {text}", question.name),
        None => Ok(()),
    }
}

/// A sentence about the first answer that is not that of the first design; the order of rows does not matter.
fn difference<'a>(answers: impl Iterator<Item = (&'a str, Cells)>) -> Option<String> {
    let mut sorted = answers.map(|(name, mut cells)| {
        cells.sort_unstable();
        (name, cells)
    });
    let (base_name, base) = sorted.next()?;
    let (name, cells) = sorted.find(|(_, cells)| *cells != base)?;
    let row = |cells: &Cells, rest: &Cells| {
        let row = cells.iter().find(|row| !rest.contains(row)).or(cells.first());
        format!("{row:?}")
    };
    Some(format!(
        "{base_name} answers {} rows, such as {}, and {name} {} rows, such as {}",
        base.len(),
        row(&base, &cells),
        cells.len(),
        row(&cells, &base)
    ))
}

/// Folder for the servers' data.
///
/// # Errors
/// If it cannot be created.
pub(super) fn folder(chosen: Option<&Path>) -> anyhow::Result<PathBuf> {
    let folder = chosen.map_or_else(std::env::temp_dir, Path::to_path_buf);
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(rows: &[&[&str]]) -> Cells {
        let cells = |row: &&[&str]| row.iter().map(|cell| Some((*cell).to_owned())).collect();
        rows.iter().map(cells).collect()
    }

    #[test]
    fn the_order_of_rows_is_no_difference() {
        let two_rows = ("two_rows", answer(&[&["a", "1"], &["b", "2"]]));
        let turned = ("two", answer(&[&["b", "2"], &["a", "1"]]));
        assert_eq!(difference([two_rows.clone(), turned].into_iter()), None);
        let changed_rows = ("three", answer(&[&["a", "1"], &["b", "3"]]));
        let text = difference([two_rows, changed_rows].into_iter()).unwrap();
        assert!(
            text.starts_with("two_rows answers 2 rows") && text.contains("Some(\"3\")"),
            "{text}"
        );
        assert_eq!(difference(std::iter::empty()), None);
    }
}

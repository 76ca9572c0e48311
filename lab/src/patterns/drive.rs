//! Writes, reads and minute ticks against a server, measured.
//!
//! ```text
//!   load    minute by minute, all balloons in each: INSERTs of some events, by clients in closed loops
//!   files   flush, compaction: rows, cells, bytes
//!   reads   rounds of all questions, patterns next to each other in alternating order
//!   ticks   all balloons at once, an INSERT for each event: latency counts from the tick
//! ```
//!
//! The share of the hottest partition is that of the rows written between two looks at `sys.partitions`, so a hotspot that
//! moves through the partitions is one, too.
//!
//! Invariants: only acknowledged writes count; a refused INSERT is sent again, which writes the same cells; an answer with
//! another number of rows than expected is an error.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use partita_heatmap::Heatmap;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::balloons::{Data, Event, Pattern, WEEK};
use super::figures::{Asked, Stored, Tick};
use super::questions::Question;
use crate::door::http::{HttpDoor, escape};
use crate::door::postgres::{self, connection, rows};
use crate::embedded::Embedded;
use crate::latency::Latencies;
use crate::report::{progress, warn};

/// Interval between looks at the partitions.
const LOOK: Duration = Duration::from_millis(250);
/// Pause before a refused INSERT is sent again.
const PAUSE: Duration = Duration::from_millis(20);
/// Time between the last preparations and the first tick.
const LEAD: Duration = Duration::from_millis(200);
/// Letters of a statement in an error.
const SHOWN_MAX: usize = 200;

/// Clients and rounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    pub(super) clients: u32,
    /// Events of one INSERT.
    pub(super) batch: u64,
    pub(super) runs: u32,
    pub(super) warmup: u32,
    pub(super) ticks: u32,
    pub(super) tick_interval: Duration,
}

/// The server, started for the run or running already.
pub(super) struct Stand {
    server: Option<Embedded>,
    address: String,
    client: Client,
    /// For heatmaps, if known.
    http: Option<HttpDoor>,
}

/// Rows written to each partition so far.
type Written = BTreeMap<u64, u64>;

impl Stand {
    /// Starts a server of one process below a folder.
    ///
    /// # Errors
    /// If it does not start.
    pub(super) async fn start(binary: &Path, folder: &Path) -> anyhow::Result<Self> {
        progress("starting a server");
        let server = Embedded::standalone(binary, folder, "patterns").await?;
        let address = connection(&server.postgres)?;
        let client = postgres::connect(&address, "public").await?;
        let http = Some(HttpDoor::new(&format!("http://{}", server.http)));
        Ok(Self { server: Some(server), address, client, http })
    }

    /// Connects to a running server.
    ///
    /// # Errors
    /// If it cannot be reached.
    pub(super) async fn connect(address: &str, http: Option<&str>) -> anyhow::Result<Self> {
        let address = connection(address)?;
        let client = postgres::connect(&address, "public").await?;
        let http = http.map(|http| HttpDoor::new(&format!("http://{http}")));
        Ok(Self { server: None, address, client, http })
    }

    /// Checks that the server that was started here still runs.
    ///
    /// # Errors
    /// If it has ended.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        self.server.as_mut().map_or(Ok(()), Embedded::check)
    }

    async fn run(&self, statement: &str) -> anyhow::Result<()> {
        let outcome = self.client.batch_execute(statement).await;
        outcome.map_err(|error| anyhow::anyhow!("{}: {statement}", postgres::failure(&error)))
    }

    /// The numbers of a query's rows.
    async fn numbers(&self, query: &str) -> anyhow::Result<Vec<Vec<u64>>> {
        let cells = rows(&self.client, query).await;
        let cells =
            cells.map_err(|error| anyhow::anyhow!("{}: {query}", postgres::failure(&error)))?;
        let number = |cell: Option<String>| {
            let number = cell.as_deref().and_then(|text| text.parse::<u64>().ok());
            number.with_context(|| format!("no number, but {cell:?}: {query}"))
        };
        let numbers = |row: Vec<Option<String>>| {
            row.into_iter().map(number).collect::<anyhow::Result<Vec<u64>>>()
        };
        cells.into_iter().map(numbers).collect()
    }

    /// The numbers of a query's only row.
    async fn only<const COUNT: usize>(&self, query: &str) -> anyhow::Result<[u64; COUNT]> {
        let numbers = self.numbers(query).await?.into_iter().next().unwrap_or_default();
        let wrong = |_| anyhow::anyhow!("not {COUNT} numbers: {query}");
        <[u64; COUNT]>::try_from(numbers).map_err(wrong)
    }

    async fn written(&self, pattern: Pattern) -> anyhow::Result<Written> {
        let query = format!(
            "SELECT partition, row_writes FROM sys.partitions WHERE \"table\" = '{}'",
            pattern.table()
        );
        let numbers = self.numbers(&query).await?;
        Ok(numbers.iter().filter_map(|row| Some((*row.first()?, *row.get(1)?))).collect())
    }

    /// Drops the table of a pattern; a failure is only a warning.
    pub(super) async fn remove(&self, pattern: Pattern) {
        // A server that was started here is removed as a whole.
        if self.server.is_none()
            && let Err(error) = self.run(&format!("DROP TABLE IF EXISTS {}", pattern.table())).await
        {
            warn(&format!("cannot drop table {}: {error}", pattern.table()));
        }
    }

    /// Creates the table of a pattern and writes all events; returns its figures, and the heatmap of the load.
    ///
    /// # Errors
    /// If the server refuses a statement or is gone.
    pub(super) async fn load(
        &self,
        pattern: Pattern,
        data: &Data,
        effort: &Effort,
    ) -> anyhow::Result<(Stored, Option<Heatmap>)> {
        progress(&format!("{}: writing", pattern.name()));
        let table = pattern.table();
        let create = data.create(pattern);
        self.run(&format!("DROP TABLE IF EXISTS {table}")).await?;
        self.run(&create).await?;
        self.run(&format!(
            "ALTER TABLE {table} SET ('auto_partitioning_by_load' = 'disabled', 'auto_partitioning_by_size' = 'disabled')"
        ))
        .await?;
        let connections = self.connections(effort.clients).await?;
        let mut looks = vec![self.written(pattern).await?];
        let (next, begin) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let mut tasks = JoinSet::new();
        for client in connections {
            tasks.spawn(write(client, pattern, *data, effort.batch, Arc::clone(&next)));
        }
        let mut latency = Latencies::default();
        loop {
            match tokio::time::timeout(LOOK, tasks.join_next()).await {
                Err(_) => looks.push(self.written(pattern).await?),
                Ok(Some(counted)) => latency.add(&counted??),
                Ok(None) => break,
            }
        }
        let load_s = begin.elapsed().as_secs_f64();
        looks.push(self.written(pattern).await?);
        let picture = self.picture(table, begin.elapsed().as_secs() + 5).await;
        let events = data.events();
        let stored = Stored {
            pattern,
            create,
            events,
            cells_written: events * pattern.cells_per_event(),
            load_s,
            latency: latency.summary(),
            hotspot_share: hotspot_share(&looks),
            ..Stored::new(pattern)
        };
        Ok((stored, picture))
    }

    async fn connections(&self, count: u32) -> anyhow::Result<Vec<Client>> {
        let mut connections = Vec::new();
        for _ in 0..count {
            connections.push(postgres::connect(&self.address, "public").await?);
        }
        Ok(connections)
    }

    async fn picture(&self, table: &str, seconds: u64) -> Option<Heatmap> {
        let path = format!(
            "/v1/heatmap.json?table={}&since={seconds}&rows=160&columns=240",
            escape(table)
        );
        let json = self.http.as_ref()?.get(&path).await.ok()?;
        serde_json::from_slice(&json).ok()
    }

    /// Has all rows in merged files, and adds their size.
    ///
    /// # Errors
    /// If the server refuses a statement, or lacks cells that were written.
    pub(super) async fn file(&self, stored: &mut Stored) -> anyhow::Result<()> {
        let (pattern, table) = (stored.pattern, stored.pattern.table());
        progress(&format!("{}: merging files", pattern.name()));
        self.run(&format!("ADMIN flush_table('{table}')")).await?;
        self.run(&format!("ADMIN compact_table('{table}')")).await?;
        let counts = match pattern {
            Pattern::Table => format!("SELECT count(*), 4 * count(*) FROM {table}"),
            _ => format!("SELECT count(DISTINCT row_key), count(*) FROM {table}"),
        };
        [stored.rows, stored.cells] = self.only::<2>(&counts).await?;
        if stored.cells != stored.cells_written {
            bail!(
                "{} has {} cells, not the {} that were written",
                pattern.name(),
                stored.cells,
                stored.cells_written
            );
        }
        let sizes = format!(
            "SELECT CAST(sum(bytes) AS BIGINT), count(*) FROM sys.partitions WHERE \"table\" = '{table}'"
        );
        [stored.bytes, stored.partitions] = self.only::<2>(&sizes).await?;
        Ok(())
    }

    /// Asks all questions under all patterns, round by round.
    ///
    /// # Errors
    /// If a query fails, or its answer has another number of rows than expected.
    pub(super) async fn read(
        &self,
        patterns: &[Pattern],
        data: &Data,
        effort: &Effort,
    ) -> anyhow::Result<Vec<Asked>> {
        let pairs = Question::ALL.into_iter().flat_map(|question| {
            patterns.iter().map(move |pattern| Asked::new(question, *pattern, data))
        });
        let mut replies: Vec<Asked> = pairs.collect();
        for round in 0..effort.warmup + effort.runs {
            progress(&format!("reading: round {}", round + 1));
            // Another balloon each time, so that no answer is in memory because it was asked for before.
            let balloon = round % data.balloons;
            for group in replies.chunks_mut(patterns.len()) {
                if round.is_multiple_of(2) {
                    group.reverse();
                }
                for reply in group.iter_mut() {
                    let took = self.ask(reply, data, balloon).await?;
                    if round >= effort.warmup {
                        reply.record(took);
                    }
                }
                group.sort_by_key(|reply| patterns.iter().position(|name| *name == reply.pattern));
            }
        }
        Ok(replies)
    }

    /// Asks one question; returns the time until the whole answer was here.
    async fn ask(&self, reply: &Asked, data: &Data, balloon: u32) -> anyhow::Result<Duration> {
        let sql = reply.question.sql(reply.pattern, data, balloon);
        let begin = Instant::now();
        let messages = self.client.simple_query(&sql).await;
        let took = begin.elapsed();
        let messages =
            messages.map_err(|error| anyhow::anyhow!("{}: {sql}", postgres::failure(&error)))?;
        let is_row = |message: &&SimpleQueryMessage| matches!(message, SimpleQueryMessage::Row(_));
        let count = messages.iter().filter(is_row).count() as u64;
        let expected = reply.question.expected(reply.pattern, data, balloon);
        if count != expected {
            bail!("the answer has {count} rows, not {expected}: {sql}");
        }
        Ok(took)
    }

    /// Lets all balloons write at once, tick by tick, in the weeks after the load.
    ///
    /// # Errors
    /// If the server refuses a statement or is gone.
    pub(super) async fn tick(
        &self,
        pattern: Pattern,
        data: &Data,
        effort: &Effort,
    ) -> anyhow::Result<Tick> {
        progress(&format!("{}: minute ticks", pattern.name()));
        let clients = effort.clients.min(data.balloons);
        let connections = self.connections(clients).await?;
        let start_look = self.written(pattern).await?;
        let begin = Instant::now() + LEAD;
        let mut tasks = JoinSet::new();
        for (first, client) in (0..clients).zip(connections) {
            let balloons: Vec<u32> = (first..data.balloons).step_by(clients as usize).collect();
            tasks.spawn(tick(client, pattern, *data, balloons, *effort, begin));
        }
        let mut latency = Latencies::default();
        let mut durations = vec![Duration::ZERO; effort.ticks as usize];
        while let Some(counted) = tasks.join_next().await {
            let (latencies, of_client) = counted??;
            latency.add(&latencies);
            durations.iter_mut().zip(of_client).for_each(|(most, took)| *most = took.max(*most));
        }
        let end_look = self.written(pattern).await?;
        let done_ms: Vec<f64> = durations.iter().map(|took| took.as_secs_f64() * 1e3).collect();
        Ok(Tick::new(hotspot_share(&[start_look, end_look]), latency.summary(), &done_ms))
    }
}

/// Work of one client of the load: events by their numbers, until there are none.
async fn write(
    client: Client,
    pattern: Pattern,
    data: Data,
    batch: u64,
    next: Arc<AtomicU64>,
) -> anyhow::Result<Latencies> {
    let (mut latencies, events) = (Latencies::default(), data.events());
    loop {
        let start = next.fetch_add(batch, Ordering::Relaxed);
        if start >= events {
            return Ok(latencies);
        }
        let numbers = start..events.min(start + batch);
        let statement = data.insert(pattern, numbers.map(|number| data.event(number)));
        let begin = Instant::now();
        send(&client, &statement).await?;
        latencies.record(begin.elapsed());
    }
}

/// Work of one client of the ticks; returns the latencies, and for each tick the time until its last event was written.
async fn tick(
    client: Client,
    pattern: Pattern,
    data: Data,
    balloons: Vec<u32>,
    effort: Effort,
    begin: Instant,
) -> anyhow::Result<(Latencies, Vec<Duration>)> {
    let (mut latencies, mut durations) = (Latencies::default(), Vec::new());
    let first_minute = data.minutes.next_multiple_of(WEEK);
    for number in 0..effort.ticks {
        let due = begin + effort.tick_interval * number;
        let minute = first_minute + u64::from(number);
        let statements: Vec<String> = balloons
            .iter()
            .map(|balloon| {
                data.insert(pattern, std::iter::once(Event { balloon: *balloon, minute }))
            })
            .collect();
        tokio::time::sleep_until(due).await;
        for statement in &statements {
            send(&client, statement).await?;
            latencies.record(due.elapsed());
        }
        durations.push(due.elapsed());
    }
    Ok((latencies, durations))
}

/// Sends a statement until it is served.
async fn send(client: &Client, statement: &str) -> anyhow::Result<()> {
    while let Err(error) = client.batch_execute(statement).await {
        let failure = postgres::failure(&error);
        if failure.lost || !failure.retryable {
            let head: String = statement.chars().take(SHOWN_MAX).collect();
            bail!("{failure}: {head}");
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Share of the rows that went to the hottest partition between two looks, on average over all rows; `None` if none were
/// written.
#[expect(clippy::cast_precision_loss, reason = "rows of a run fit 53 bits")]
fn hotspot_share(looks: &[Written]) -> Option<f64> {
    let (mut hottest, mut total) = (0, 0);
    for pair in looks.windows(2) {
        let rows = pair[1].iter().map(|(partition, rows)| {
            rows.saturating_sub(pair[0].get(partition).copied().unwrap_or(0))
        });
        let (most, sum) = rows.fold((0, 0), |(most, sum), rows| (rows.max(most), sum + rows));
        hottest += most;
        total += sum;
    }
    (total > 0).then(|| hottest as f64 / total as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hotspot_that_moves_is_one() {
        let looks: Vec<Written> = [[0, 0], [10, 0], [10, 10]]
            .iter()
            .map(|rows| (1..).zip(rows.iter().copied()).collect())
            .collect();
        assert_eq!(hotspot_share(&looks), Some(1.0));
        // The same rows at once are spread evenly.
        assert_eq!(hotspot_share(&[looks[0].clone(), looks[2].clone()]), Some(0.5));
        assert_eq!(hotspot_share(&looks[..1]), None);
        assert_eq!(hotspot_share(&[looks[2].clone(), looks[2].clone()]), None);
    }
}

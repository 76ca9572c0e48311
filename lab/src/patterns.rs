//! `partita lab patterns`: tries the patterns of Bigtable's document about time series.
//!
//! ```text
//!   balloons: events by seed, and their cells under each pattern       questions: the same events, asked of each pattern
//!     └─▶ drive: load, files, reads in turns, minute ticks ─▶ figures, claims ─▶ written: terminal, JSON, one page
//! ```
//!
//! Claims are those of the document, which describes another store, so one that does not hold is a result and not an error.
//!
//! Invariants: all patterns store the same events on the same server, one after the other; the tables are removed from a
//! server that was not started here, also after an error.

mod balloons;
mod drive;
mod figures;
mod questions;
mod written;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};

use self::balloons::{Data, KeyOrder, Pattern, WEEK};
use self::drive::{Effort, Stand};
use self::figures::Measured;
use self::written::Outcome;
use crate::civil::parse_span;
use crate::report::progress;
use crate::stop::stopped;

/// Seconds of a minute.
const MINUTE_S: u64 = 60;
/// Minutes of the shortest run: an hour is asked for.
const MINUTES_MIN: u64 = 60;

/// Options of `patterns`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Patterns to try, 1 to 5, and an ordinary table; by default all.
    #[arg(long, value_enum, value_delimiter = ',')]
    patterns: Vec<Pattern>,
    /// Number of balloons.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=600))]
    balloons: u32,
    /// Time of the measurements, one a minute: 1h to 7d.
    #[arg(long, default_value = "7d", value_parser = parse_span)]
    span: Duration,
    /// Order of the parts of row keys: the balloon first, or the time.
    #[arg(long, value_enum, default_value_t = KeyOrder::Balloon)]
    key_order: KeyOrder,
    /// Partitions of each table, as far as there are balloons.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    partitions: u32,
    /// Clients that write, each in a closed loop.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    clients: u32,
    /// Events of one INSERT.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    batch: u64,
    /// Rounds in which each question is asked once.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// Rounds before them that are not counted.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=100))]
    warmup: u32,
    /// Ticks at which all balloons write at once.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    ticks: u32,
    /// Interval between ticks, which stands for a minute.
    #[arg(long, default_value = "1s", value_parser = parse_span)]
    tick_interval: Duration,
    /// Seed of the measurements.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// PostgreSQL address of a running server; by default one is started for the run.
    #[arg(long, value_name = "HOST:PORT")]
    connect: Option<String>,
    /// HTTP address of the running server, for heatmaps.
    #[arg(long, value_name = "HOST:PORT", requires = "connect")]
    http: Option<String>,
    /// Folder for report.html and report.json.
    #[arg(long, default_value = "patterns-report")]
    out: PathBuf,
    /// Folder below which the server keeps its data; by default the system's folder for temporary files.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// Binary for the server; by default this one.
    #[arg(long)]
    binary: Option<PathBuf>,
}

impl Options {
    /// The events.
    ///
    /// # Errors
    /// If the time is too short or too long.
    fn data(&self) -> anyhow::Result<Data> {
        let minutes = self.span.as_secs() / MINUTE_S;
        if !(MINUTES_MIN..=WEEK).contains(&minutes) {
            bail!("--span must be from 1h to 7d");
        }
        Ok(Data {
            balloons: self.balloons,
            minutes,
            seed: self.seed,
            key_order: self.key_order,
            partitions: self.partitions,
        })
    }

    fn effort(&self) -> Effort {
        Effort {
            clients: self.clients,
            batch: self.batch,
            runs: self.runs,
            warmup: self.warmup,
            ticks: self.ticks,
            tick_interval: self.tick_interval,
        }
    }

    /// Patterns to try, each once and in order.
    fn selected(&self) -> Vec<Pattern> {
        let is_selected =
            |pattern: &Pattern| self.patterns.is_empty() || self.patterns.contains(pattern);
        Pattern::ALL.into_iter().filter(is_selected).collect()
    }

    async fn stand(&self) -> anyhow::Result<Stand> {
        if let Some(address) = &self.connect {
            return Stand::connect(address, self.http.as_deref()).await;
        }
        let binary = match &self.binary {
            Some(binary) => binary.clone(),
            None => std::env::current_exe().context("cannot find this binary")?,
        };
        let folder = self.data_dir.clone().unwrap_or_else(std::env::temp_dir);
        Box::pin(Stand::start(&binary, &folder)).await
    }
}

/// Tries the patterns, and reports.
///
/// # Errors
/// If the server does not start or refuses a statement, an answer is wrong, or the report cannot be written.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    let data = options.data()?;
    // Checked before the runs: can the report be written?
    std::fs::create_dir_all(&options.out)
        .with_context(|| format!("cannot create {}", options.out.display()))?;
    tokio::select! {
        result = Box::pin(all(options, data)) => result,
        stopped = stopped() => {
            stopped?;
            bail!("stopped before the report; a server that was already running may still have the tables lab_patterns_*");
        }
    }
}

async fn all(options: &Options, data: Data) -> anyhow::Result<()> {
    let (patterns, effort) = (options.selected(), options.effort());
    let mut stand = options.stand().await?;
    let ran = Box::pin(measure(&stand, &patterns, &data, &effort)).await;
    for pattern in &patterns {
        stand.remove(*pattern).await;
    }
    // A process that ended explains more than the broken connection.
    stand.check()?;
    progress("");
    let outcome = ran?;
    drop(stand);
    outcome.write(&options.out)
}

async fn measure(
    stand: &Stand,
    patterns: &[Pattern],
    data: &Data,
    effort: &Effort,
) -> anyhow::Result<Outcome> {
    let (mut measured, mut heatmaps) = (Measured::default(), Vec::new());
    for pattern in patterns {
        let (mut stored, heatmap) = Box::pin(stand.load(*pattern, data, effort)).await?;
        stand.file(&mut stored).await?;
        measured.stored.push(stored);
        heatmaps.extend(heatmap.map(|heatmap| (*pattern, heatmap)));
    }
    measured.asked = Box::pin(stand.read(patterns, data, effort)).await?;
    // The last, because it adds events that no question asks for.
    for stored in measured.stored.iter_mut().filter(|_| effort.ticks > 0) {
        stored.tick = Some(Box::pin(stand.tick(stored.pattern, data, effort)).await?);
    }
    Ok(Outcome { data: *data, effort: *effort, measured, heatmaps })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn a_run_has_all_patterns_of_a_week_unless_told_otherwise() {
        let usual = Line::parse_from(["line"]).options;
        assert_eq!(usual.selected(), Pattern::ALL);
        let data = usual.data().unwrap();
        assert_eq!((data.balloons, data.minutes, data.events()), (100, 10_080, 1_008_000));
        let few = ["line", "--patterns", "table,2,2", "--key-order", "time", "--span", "1h"];
        let few = Line::parse_from(few).options;
        assert_eq!(few.selected(), [Pattern::NewCells, Pattern::Table]);
        assert_eq!(few.data().unwrap().key_order, KeyOrder::Time);
    }

    #[test]
    fn a_time_that_has_no_hour_or_more_than_a_week_is_refused() {
        for span in ["59m", "8d", "30s"] {
            let options = Line::parse_from(["line", "--span", span]).options;
            let error = options.data().unwrap_err().to_string();
            assert_eq!(error, "--span must be from 1h to 7d");
        }
        assert!(Line::try_parse_from(["line", "--balloons", "601"]).is_err());
        assert!(Line::try_parse_from(["line", "--patterns", "6"]).is_err());
    }
}

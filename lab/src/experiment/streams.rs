//! The catalogue of streams on a real cluster: each is a trial that offers two and a half times the rows that one partition
//! takes, and the store may place new rows by hash by itself.
//!
//! A column of a stream is a BIGINT in the order of the stream's keys; its time column is the table's time index.
//!
//! Reads and scans have no rows to write, and streams of one hash bucket would choose what the store chooses: these are left
//! to the virtual cluster.
//!
//! Invariants: operations are drawn in the order of the stream's time, which is that of the clock; a stream that pauses is
//! taken on to its next operation, because clients in closed loops have no pauses.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::bail;
use partita_hotspot::streams::{Kind, Op, Stream, all, prefix_ends};
use tokio::time::Instant;

use super::clients::{Ask, Value, Work};
use super::site::SiteOptions;
use super::told::{ReportOptions, Told};
use super::trial::{LoadOptions, TABLE, Trial, claims, description, measure, table};

const SOURCE: &str = "none; the streams and their classes are those of the virtual scoreboard (`partita lab score`).";
/// Rows offered, as a multiple of what one partition takes.
const OFFERED_TIMES: f64 = 2.5;
/// Maximum rows per second of a partition, where the options do not say it.
const ASSUMED_RATE: f64 = 100.0;
/// Rows that are there before the clients come, where a stream visits existing keys.
const ROWS: u64 = 500;
/// Operations by which a scan is noticed, and the time between them.
const LOOKED_AT: u64 = 200;
const STEP_US: u64 = 10_007;
/// Width of a column that takes a whole BIGINT, bytes.
const WIDE: usize = 8;

/// Options of `streams`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    site: SiteOptions,
    #[command(flatten)]
    report: ReportOptions,
    #[command(flatten)]
    load: LoadOptions,
    /// Only streams whose names contain this word.
    #[arg(long, default_value = "")]
    only: String,
}

/// Runs the streams, prints the results, and checks what the store named.
pub(super) async fn run(options: &Options) -> anyhow::Result<()> {
    options.site.check()?;
    let trials = trials(&options.only, &options.site, &options.load);
    if trials.is_empty() {
        bail!("no stream of rows has a name that contains {}", options.only);
    }
    let outcomes = Box::pin(measure(&options.site, &options.load, trials)).await?;
    let (claims, table) = (claims(&outcomes), table(&outcomes));
    Told::new(
        "streams",
        description(&options.site, &options.load),
        SOURCE,
        &options.site,
        options.site.bound(),
        outcomes,
    )
    .claims(claims)
    .table(table)
    .tell(&options.report)
}

/// The streams of rows whose names contain a word.
pub(crate) fn trials(word: &str, site: &SiteOptions, load: &LoadOptions) -> Vec<Trial> {
    let rows_per_s = site.bound().unwrap_or(ASSUMED_RATE) * OFFERED_TIMES;
    let chosen = |kind: &Kind| kind.name.contains(word) && writes_rows(kind);
    let trial = |kind: Kind| trial(&kind, site.seed, rows_per_s, load.clients);
    all().into_iter().filter(chosen).map(trial).collect()
}

/// True if a stream only writes rows, and leaves their placement to the store.
fn writes_rows(kind: &Kind) -> bool {
    let (mut stream, mut op) = (kind.stream(0), Op::default());
    let mut scans = (0..LOOKED_AT).map(|number| {
        op.end = None;
        stream.draw(number * STEP_US, &mut op) && op.end.is_some()
    });
    !kind.reads && kind.options.placement == 0 && !scans.any(|scans| scans)
}

fn trial(kind: &Kind, seed: u64, rows_per_s: f64, clients: u32) -> Trial {
    let layout = Layout { widths: kind.columns, time: kind.options.time_column };
    let places: Vec<String> = (1..=kind.columns.len()).map(|place| format!("${place}")).collect();
    let source = Source { stream: kind.stream(seed), start: None, latest_us: 0, op: Op::default() };
    let source = Arc::new(Mutex::new(source));
    let insert = Ask {
        text: format!("INSERT INTO {TABLE} VALUES ({}, 'a row')", places.join(", ")),
        draw: Arc::new(move |_| {
            // A client that panicked while it drew has left a usable stream.
            layout.values(source.lock().unwrap_or_else(PoisonError::into_inner).next())
        }),
    };
    let thinks = Duration::from_secs_f64(f64::from(clients) / rows_per_s);
    let (first, last) = kind.first_columns.unwrap_or_default();
    let rows = if kind.first_columns.is_some() { ROWS } else { 0 };
    Trial {
        name: kind.name,
        about: kind.about,
        columns: layout.columns(),
        options: "WITH (append_mode = 'true', hotspot_remedy = 'auto')",
        rows,
        row: Box::new(move |number| layout.row(first + (last - first) / ROWS * number)),
        work: Work { thinks, ..Work::writing(insert) },
        offered_per_s: Some(rows_per_s),
        expected: kind.classes,
    }
}

/// Columns of a table that has the keys of a stream.
#[derive(Clone, Copy)]
struct Layout {
    /// Width of each column in the stream's keys, bytes.
    widths: &'static [usize],
    /// Position of the time column.
    time: Option<usize>,
}

impl Layout {
    /// Columns and key, as CREATE TABLE has them.
    fn columns(self) -> String {
        let names: Vec<String> =
            (0..self.widths.len()).map(|column| format!("c{column}")).collect();
        let mut text = String::new();
        for (column, name) in names.iter().enumerate() {
            let is_time = self.time == Some(column);
            let data_type = if is_time { "TIMESTAMP(6)" } else { "BIGINT" };
            text.push_str(&format!("{name} {data_type} NOT NULL, "));
        }
        text.push_str("v STRING, ");
        if let Some(column) = self.time {
            text.push_str(&format!("TIME INDEX (c{column}), "));
        }
        format!("{text}PRIMARY KEY ({})", names.join(", "))
    }

    /// The existing row whose first column has this value, for VALUES.
    fn row(self, first: u64) -> String {
        let number = |column: usize| {
            let value = if column == 0 { first } else { 0 };
            self.number(column, value).to_string()
        };
        let numbers: Vec<String> = (0..self.widths.len()).map(number).collect();
        format!("({}, 'an existing row')", numbers.join(", "))
    }

    /// The parameters for a key.
    fn values(self, key: &[u8]) -> Vec<Value> {
        let ends = prefix_ends(self.widths, key);
        let begins = std::iter::once(0).chain(ends.iter().copied());
        let value = |(column, (begin, end)): (usize, (usize, &usize))| {
            let bytes = &key[begin..*end];
            let value = bytes.iter().fold(0, |value: u64, byte| (value << 8) | u64::from(*byte));
            let number = self.number(column, value);
            match self.time == Some(column) {
                true => Value::Time(instant(number)),
                false => Value::Int(number),
            }
        };
        begins.zip(&ends).enumerate().map(value).collect()
    }

    /// The number of a column's value. Values of wide columns keep their order when half of the range is taken off; times
    /// stay as they are.
    fn number(self, column: usize, value: u64) -> i64 {
        if self.widths[column] == WIDE && self.time != Some(column) {
            (value ^ (1 << 63)).cast_signed()
        } else {
            value.cast_signed()
        }
    }
}

/// The time of microseconds since 1970, or before.
fn instant(micros: i64) -> SystemTime {
    let distance = Duration::from_micros(micros.unsigned_abs());
    if micros < 0 { SystemTime::UNIX_EPOCH - distance } else { SystemTime::UNIX_EPOCH + distance }
}

/// A stream that follows the clock from its first operation on.
struct Source {
    stream: Stream,
    start: Option<Instant>,
    latest_us: u64,
    op: Op,
}

impl Source {
    /// The key of the next operation.
    fn next(&mut self) -> &[u8] {
        let start = *self.start.get_or_insert_with(Instant::now);
        let elapsed_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.latest_us = self.latest_us.max(elapsed_us);
        while !self.stream.draw(self.latest_us, &mut self.op) {
            self.latest_us += STEP_US;
        }
        &self.op.key
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::random::Random;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn trials_of(word: &str) -> Vec<Trial> {
        let options = Line::parse_from(["line"]).options;
        trials(word, &options.site, &options.load)
    }

    #[test]
    fn most_streams_write_rows_and_each_draws_its_parameters() {
        let trials = trials_of("");
        assert!(trials.len() >= 40, "{}", trials.len());
        assert!(trials.iter().all(|trial| !trial.name.contains("scans")));
        assert!(trials.iter().all(|trial| trial.name != "hot read"));
        for trial in &trials {
            let write = trial.work.write.as_ref().unwrap();
            let drawn = (write.draw)(&mut Random::new(1, 0)).len();
            assert!(write.text.contains(&format!("${drawn}, 'a row'")), "{}", write.text);
            assert_eq!(trial.columns.matches("NOT NULL").count(), drawn, "{}", trial.columns);
        }
    }

    #[test]
    fn a_table_has_the_columns_of_the_stream() {
        let trials = trials_of("month names");
        assert_eq!(
            trials[0].columns,
            "c0 BIGINT NOT NULL, c1 TIMESTAMP(6) NOT NULL, c2 BIGINT NOT NULL, v STRING, \
             TIME INDEX (c1), PRIMARY KEY (c0, c1, c2)"
        );
        assert_eq!(trials[0].offered_per_s, Some(250.0));
        assert_eq!((trials[0].rows, trials[0].work.thinks.as_millis()), (ROWS, 128));
    }

    #[test]
    fn values_keep_the_order_of_keys() {
        let layout = Layout { widths: &[2, 8], time: None };
        let number = |column, value| layout.number(column, value);
        assert_eq!((number(0, 0), number(0, 0xffff)), (0, 65_535));
        assert_eq!((number(1, 0), number(1, u64::MAX)), (i64::MIN, i64::MAX));
        let values = layout.values(&[1, 2, 0x80, 0, 0, 0, 0, 0, 0, 3]);
        assert!(matches!(values[..], [Value::Int(258), Value::Int(3)]), "{values:?}");
        let timed = Layout { time: Some(1), ..layout };
        let values = timed.values(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
        let time = SystemTime::UNIX_EPOCH + Duration::from_micros(7);
        assert!(matches!(values[1], Value::Time(at) if at == time), "{values:?}");
        assert!(instant(-1) < SystemTime::UNIX_EPOCH);
        assert_eq!(layout.row(5), format!("(5, {}, 'an existing row')", i64::MIN));
    }
}

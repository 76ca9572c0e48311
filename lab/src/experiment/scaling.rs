//! More writers on a growing key, and on a hashed one (cockroachdb#38160).
//!
//! Every writer inserts single rows in a closed loop. Under `(ts, userid)` all of them write to the one partition
//! with the newest rows, regardless of the numbers of partitions and writers; under a hash of the same columns they
//! write to all. Partitions have a maximum rate, so that one of them serves the same on any machine, and the
//! difference comes from the key.
//!
//! Invariants: each cell has a table of its own, without other load; nothing is split meanwhile, because a given
//! number of partitions is measured.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::bail;
use serde::Serialize;

use super::clients::{Ask, Clients, Value, Work};
use super::site::{Site, SiteOptions};
use super::told::{Figure, ReportOptions, Table, Told, heads};
use crate::claim::{Claim, grows, list};
use crate::latency::Summary;
use crate::report::{progress, short};

const SOURCE: &str = "github.com/cockroachdb/cockroach/issues/38160: 3 to 9 nodes of CockroachDB 19.1 with 8 cores each, INSERTs of 4096 \
     to 8192 rows with sequential ids: more than 20,000 rows/s with 4 threads, slightly more than 10,000 with more than 10; \
     with random ids no such decrease with more than 20 threads.";
/// Rows per second with 4 threads, and with more than 10.
const PUBLISHED_FEW: f64 = 20_000.0;
const PUBLISHED_MANY: f64 = 10_000.0;

const TABLE: &str = "lab_experiment_scaling";
/// Number of users.
const USERS: u64 = 10_000;
/// Distance between the cuts of a table by time, all in the past.
const CUT_EVERY_US: i64 = 3_600_000_000;
/// Factor by which a measured rate may exceed the limit, because of the ends of spans.
const OVER: f64 = 1.25;
/// Minimum share of their joint limit that the largest number of partitions must serve: the rest is the machine's,
/// and chance.
const REACHED: f64 = 0.6;

/// Options of `scaling`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    site: SiteOptions,
    #[command(flatten)]
    report: ReportOptions,
    /// Numbers of writers.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64")]
    writers: Vec<u32>,
    /// Numbers of partitions of the hashed key; the growing key has the largest of them.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8")]
    partitions: Vec<u32>,
    /// Seconds for each number of writers and partitions, plus a fifth of that to warm up.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
}

/// Placement of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Key {
    Growing,
    Hashed,
}

/// Result for one number of writers and partitions.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Cell {
    key: Key,
    partitions: u32,
    writers: u32,
    rows_per_s: f64,
    failed: u64,
    messages: Vec<String>,
    latency: Summary,
}

/// The CREATE TABLE statement.
fn create(key: Key, partitions: u32, now_us: i64) -> String {
    let placed = match key {
        Key::Hashed => format!("PARTITION BY HASH (ts, userid) PARTITIONS {partitions}"),
        Key::Growing if partitions < 2 => String::new(),
        Key::Growing => {
            let cuts: Vec<String> = (1..partitions)
                .rev()
                .map(|count| format!("({})", now_us - i64::from(count) * CUT_EVERY_US))
                .collect();
            format!("PARTITION BY RANGE (ts) SPLIT AT ({})", cuts.join(", "))
        }
    };
    format!(
        "CREATE TABLE {TABLE} (ts TIMESTAMP(6) NOT NULL, userid BIGINT NOT NULL, event TEXT, TIME INDEX (ts), PRIMARY KEY (ts, userid)) {placed} WITH (AUTO_PARTITIONING_BY_LOAD = DISABLED)"
    )
}

/// Inserts a row with the present time.
fn work() -> Work {
    Work::writing(Ask {
        text: format!("INSERT INTO {TABLE} (ts, userid, event) VALUES ($1, $2, $3)"),
        draw: Arc::new(|random| {
            vec![
                Value::Time(SystemTime::now()),
                Value::Int(random.below(USERS).cast_signed()),
                Value::Text("opened the page of an item and looked at it".to_owned()),
            ]
        }),
    })
}

/// Runs all cells and reports the results.
pub(super) async fn run(options: &Options) -> anyhow::Result<()> {
    options.site.check()?;
    let (writers, partitions) = (sorted(&options.writers), sorted(&options.partitions));
    let (Some(most), false) = (partitions.last().copied(), writers.is_empty()) else {
        bail!("--writers and --partitions need a number above 0 each");
    };
    let mut site = Site::open(&options.site, options.site.bound()).await?;
    let mut cells = Vec::new();
    let hashed = partitions.iter().map(|count| (Key::Hashed, *count));
    for (key, count) in std::iter::once((Key::Growing, most)).chain(hashed) {
        for writer_count in &writers {
            progress(&format!("{key:?} key, {count} partitions, {writer_count} writers"));
            let ran = Box::pin(cell(options, &site, key, count, *writer_count)).await;
            if ran.is_err() {
                site.remove(&[TABLE]).await;
            }
            cells.push(site.checked(ran)?);
        }
    }
    site.remove(&[TABLE]).await;
    drop(site);
    told(options, cells).tell(&options.report)
}

/// The distinct numbers above 0, in ascending order.
pub(super) fn sorted(numbers: &[u32]) -> Vec<u32> {
    let mut sorted: Vec<u32> = numbers.iter().copied().filter(|number| *number > 0).collect();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
}

async fn cell(
    options: &Options,
    site: &Site,
    key: Key,
    partitions: u32,
    writers: u32,
) -> anyhow::Result<Cell> {
    let now_us = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros();
    site.make(TABLE, &create(key, partitions, i64::try_from(now_us)?)).await?;
    let time = Duration::from_secs(options.seconds);
    let span = Clients::measure(&site.servers, writers, &work(), options.site.seed, time).await?;
    Ok(Cell {
        key,
        partitions,
        writers,
        rows_per_s: span.writes_per_s(),
        failed: span.failed,
        messages: span.messages,
        latency: span.writes.summary(),
    })
}

/// Rates of a key for cells that match, in order of the cells.
fn rates(cells: &[Cell], key: Key, matches: impl Fn(&Cell) -> bool) -> Vec<f64> {
    cells
        .iter()
        .filter(|cell| cell.key == key && matches(cell))
        .map(|cell| cell.rows_per_s)
        .collect()
}

fn told(options: &Options, cells: Vec<Cell>) -> Told<Vec<Cell>> {
    let bound = options.site.bound();
    let description = format!(
        "Rows were inserted one by one by closed loops of writers, {} s for each cell; {}.",
        options.seconds,
        match bound {
            Some(bound) => format!("one partition is limited to {bound:.0} rows/s"),
            None => "the limit of one partition is unknown".to_owned(),
        }
    );
    let (figures, claims) = (figures(&cells), claims(&cells, bound));
    let table = matrix(&cells);
    Told::new("scaling", description, SOURCE, &options.site, bound, cells)
        .figures(figures)
        .claims(claims)
        .table(table)
}

/// Rates with about 4 writers and with the most: the issue reports 4 threads, and more than 10.
fn few_and_many(cells: &[Cell], key: Key, partitions: u32) -> Option<(f64, f64)> {
    let matches = |cell: &&Cell| cell.key == key && cell.partitions == partitions;
    let few = cells.iter().filter(matches).min_by_key(|cell| cell.writers.abs_diff(4))?;
    let many = cells.iter().filter(matches).max_by_key(|cell| cell.writers)?;
    (few.rows_per_s > 0.0).then_some((few.rows_per_s, many.rows_per_s))
}

/// Rates of both keys with the most partitions, beside the published ones.
fn figures(cells: &[Cell]) -> Vec<Figure> {
    let partitions = cells.iter().map(|cell| cell.partitions).max().unwrap_or(0);
    let rates = |key| few_and_many(cells, key, partitions);
    let (growing, hashed) = (rates(Key::Growing), rates(Key::Hashed));
    let factor = |(few, many): (f64, f64)| many / few;
    vec![
        Figure::new(
            "growing key, about 4 writers, rows/s",
            growing.map(|(few, _)| few),
            Some(PUBLISHED_FEW),
        ),
        Figure::new(
            "growing key, most writers, rows/s",
            growing.map(|(_, many)| many),
            Some(PUBLISHED_MANY),
        ),
        Figure::new(
            "growing key, most / about 4 writers",
            growing.map(factor),
            Some(PUBLISHED_MANY / PUBLISHED_FEW),
        ),
        Figure::new("hashed key, about 4 writers, rows/s", hashed.map(|(few, _)| few), None),
        Figure::new("hashed key, most writers, rows/s", hashed.map(|(_, many)| many), None),
        Figure::new("hashed key, most / about 4 writers", hashed.map(factor), None),
    ]
}

fn claims(cells: &[Cell], bound: Option<f64>) -> Vec<Claim> {
    let flat =
        "a growing key stays within the limit of one partition, whatever the number of writers";
    let spread = "a hashed key reaches the joint limit of its partitions with more writers";
    let wider = "the rate of the hashed key grows with the number of partitions";
    let Some(bound) = bound else {
        let why = "the limit of one partition is unknown; give --partition-rate with --connect";
        return [flat, spread, wider].map(|claim| Claim::open(claim, why)).into();
    };
    // The growing key has the largest number of partitions.
    let most_writers = cells.iter().map(|cell| cell.writers).max().unwrap_or(0);
    let most = cells.iter().map(|cell| cell.partitions).max().unwrap_or(0);
    let growing = rates(cells, Key::Growing, |_| true);
    let top = growing.iter().copied().fold(0.0, f64::max);
    let hashed = rates(cells, Key::Hashed, |cell| cell.partitions == most);
    let could = f64::from(most) * bound;
    let hashed_last = hashed.last().copied().unwrap_or(0.0);
    let last = growing.last().copied().unwrap_or(0.0);
    // The hashed key must use all its partitions, and grow with them.
    let by_partitions = rates(cells, Key::Hashed, |cell| cell.writers == most_writers);
    let mut claims = vec![
        Claim::judged(
            flat,
            format!("{} rows/s, the bound is {bound:.0}", list(&growing)),
            top > 0.0 && top <= OVER * bound,
        ),
        Claim::judged(
            spread,
            format!("{} rows/s of {could:.0}, the growing key {last:.0}", list(&hashed)),
            hashed_last > 0.0
                && hashed_last >= REACHED * could
                && (most < 2 || hashed_last > OVER * last),
        ),
    ];
    claims.push(if by_partitions.len() > 1 {
        let text = format!("{} rows/s with {most_writers} writers", list(&by_partitions));
        let mut partitions: Vec<u32> = cells.iter().map(|cell| cell.partitions).collect();
        partitions = sorted(&partitions);
        Claim::judged(wider, text, grows(&partitions, &by_partitions))
    } else {
        Claim::open(wider, "only one number of partitions was measured")
    });
    claims
}

fn matrix(cells: &[Cell]) -> Table {
    let mut writers: Vec<u32> = cells.iter().map(|cell| cell.writers).collect();
    writers = sorted(&writers);
    let mut table = heads(&["rows/s (p99 ms) by writers"]);
    table[0].extend(writers.iter().map(u32::to_string));
    let mut designs: Vec<(Key, u32)> = Vec::new();
    for cell in cells {
        if !designs.contains(&(cell.key, cell.partitions)) {
            designs.push((cell.key, cell.partitions));
        }
    }
    for (key, partitions) in designs {
        let name = match key {
            Key::Growing => "(ts, userid)",
            Key::Hashed => "HASH (ts, userid)",
        };
        let mut line = vec![format!("{name}, {partitions} partitions")];
        line.extend(
            cells
                .iter()
                .filter(|cell| (cell.key, cell.partitions) == (key, partitions))
                .map(|cell| format!("{} ({})", short(cell.rows_per_s), short(cell.latency.p99_ms))),
        );
        table.push(line);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Verdict;

    fn cells(growing: [f64; 2], hashed: [[f64; 2]; 2]) -> Vec<Cell> {
        let cell = |key, partitions, writers, rows_per_s| Cell {
            key,
            partitions,
            writers,
            rows_per_s,
            failed: 0,
            messages: Vec::new(),
            latency: Summary::default(),
        };
        let mut cells =
            vec![cell(Key::Growing, 8, 4, growing[0]), cell(Key::Growing, 8, 64, growing[1])];
        for (partitions, rates) in [(4, hashed[0]), (8, hashed[1])] {
            cells.push(cell(Key::Hashed, partitions, 4, rates[0]));
            cells.push(cell(Key::Hashed, partitions, 64, rates[1]));
        }
        cells
    }

    fn verdicts(cells: &[Cell], bound: Option<f64>) -> Vec<Verdict> {
        claims(cells, bound).iter().map(|claim| claim.verdict).collect()
    }

    #[test]
    fn one_partition_that_takes_more_than_it_can_is_noticed_and_so_is_a_hash_that_does_not_grow() {
        use Verdict::{Fails, Holds, Open};
        let as_expected = cells([100.0, 101.0], [[300.0, 395.0], [400.0, 760.0]]);
        assert_eq!(verdicts(&as_expected, Some(100.0)), [Holds, Holds, Holds]);
        let not_flat = cells([100.0, 180.0], [[300.0, 395.0], [400.0, 760.0]]);
        assert_eq!(verdicts(&not_flat, Some(100.0)), [Fails, Holds, Holds]);
        let not_grown = cells([100.0, 100.0], [[300.0, 395.0], [300.0, 400.0]]);
        assert_eq!(verdicts(&not_grown, Some(100.0)), [Holds, Fails, Fails]);
        assert_eq!(verdicts(&as_expected, None), [Open, Open, Open]);
        assert_eq!(verdicts(&[], Some(100.0)), [Fails, Fails, Open]);
    }

    #[test]
    fn figures_are_those_of_four_writers_and_of_the_most() {
        let cells = cells([100.0, 50.0], [[300.0, 395.0], [400.0, 800.0]]);
        let ours: Vec<Option<f64>> = figures(&cells).iter().map(|figure| figure.ours).collect();
        assert_eq!(ours, [100.0, 50.0, 0.5, 400.0, 800.0, 2.0].map(Some));
        assert_eq!(figures(&cells)[2].published, Some(0.5));
        let table = matrix(&cells);
        assert_eq!(table[0][1..], ["4", "64"]);
        assert_eq!(table[1][..2], ["(ts, userid), 8 partitions", "100 (0)"]);
        assert_eq!((table.len(), table[3][2].as_str()), (4, "800 (0)"));
    }

    #[test]
    fn all_new_rows_lie_behind_the_last_cut() {
        let statement = create(Key::Growing, 3, 10_000_000_000);
        assert!(statement.contains("SPLIT AT ((2800000000), (6400000000)) WITH ("), "{statement}");
        assert!(create(Key::Hashed, 4, 0).contains("HASH (ts, userid) PARTITIONS 4 WITH ("));
        assert!(!create(Key::Growing, 1, 0).contains("SPLIT"));
        assert_eq!(sorted(&[4, 1, 0, 4]), [1, 4]);
    }
}

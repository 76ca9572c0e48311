//! Cost of a hash before a sequential key for point reads, and its benefit for writes (CockroachDB's RFC).
//!
//! | table | key | a read of one k touches |
//! |---|---|---|
//! | plain | `(k)`, cut by ranges of k | one partition, whose range contains k |
//! | hashed | `(k)`, `PARTITION BY HASH (k)` | one partition, whose bucket the planner computes |
//! | naive | `(shard, k)`, cut by shard | all partitions, one row in each, because k does not determine a shard |
//!
//! In the RFC the naive table's shard is a computed column, whose value CockroachDB did not derive from a predicate
//! on `k` at that time; its CHECK gave all possible values, and the row was looked up in each. Partita derives
//! generated columns, too; so here the clients compute the shard when they write, and reads name all shards.
//! (Without that, reads would search all rows of all partitions, which would be more than the price of a hash.)
//!
//! ```text
//!   mix:    plain hashed naive | naive hashed plain | plain ...   9 in 10 read; each round has all three beside each other
//!   reads:  plain hashed | hashed plain | plain ...               nothing but reads: what a hash costs them
//!   writes: sequential and hashed, on 1, 2, 4 .. partitions        bounded partitions, in another cluster
//! ```
//!
//! In the mix, reads also wait for the work of writes: writes of a growing key share one log, hashed ones use all.
//! So the cost of a hash for reads is taken from runs with reads only, and the mix is compared with the published
//! figures.
//!
//! Invariants: keys are written in order and none twice; only keys that existed before a span are read; compared
//! figures were measured in the same round, and the order within rounds alternates, so that disturbances of the
//! machine affect all tables alike.

mod shape;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;

use self::shape::{claims, figures, of_table, read_table, written_table};
use super::clients::{Ask, Clients, Span, Value, Work};
use super::scaling::sorted;
use super::site::{Site, SiteOptions};
use super::told::{ReportOptions, Told};
use crate::latency::Summary;
use crate::report::progress;
use crate::statistics::Spread;

const SOURCE: &str = "CockroachDB, docs/RFCS/20191028_easier_hash_sharded_indexes.md: `kv --sequential --concurrency=256 \
     --read-percent=90`; shard AS (k % 10) STORED, not derived from the predicate (ours: naive), and unsharded (ours: plain). Its \
     figures of writes (5 machines of 8 cores and more, at most 10 ms on average) are pictures: linear with nodes where \
     sharded, flat where not.";

/// Nine of ten statements are reads.
const READS: f64 = 0.9;
/// Number of read-only rounds for each round of the mix, each shorter by the same factor: rounds close together in
/// time are disturbed less differently.
const FINER: u32 = 3;

/// Options of `hash-index`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    site: SiteOptions,
    #[command(flatten)]
    report: ReportOptions,
    /// Partitions of each table that is read.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=1_000))]
    partitions: u32,
    /// Clients, each in a closed loop.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    clients: u32,
    /// Rounds, each of which measures all three tables; plus three times as many read-only ones, of a third of the
    /// time.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Seconds for each table in a round, and for each number of partitions; plus a fifth of that to warm up.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// Initial number of rows.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    rows: u64,
    /// Numbers of partitions for the write-only runs.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8")]
    write_partitions: Vec<u32>,
}

/// Key design of a table; see the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Plain,
    Hashed,
    Naive,
}

const KINDS: [Kind; 3] = [Kind::Plain, Kind::Hashed, Kind::Naive];

impl Kind {
    fn table(self) -> &'static str {
        match self {
            Self::Plain => "lab_experiment_plain",
            Self::Hashed => "lab_experiment_hashed",
            Self::Naive => "lab_experiment_naive",
        }
    }

    /// The CREATE TABLE statement, for a table with initial keys from 0 to `rows`.
    fn create(self, partitions: u32, rows: u64) -> String {
        let table = self.table();
        let cuts = |width: u64| -> String {
            let cuts: Vec<String> =
                (1..u64::from(partitions)).map(|number| format!("({})", number * width)).collect();
            if cuts.is_empty() { String::new() } else { format!("SPLIT AT ({})", cuts.join(", ")) }
        };
        let (columns, key, placed) = match self {
            Self::Plain => ("", "k", cuts((rows / u64::from(partitions)).max(1))),
            Self::Hashed => ("", "k", format!("PARTITION BY HASH (k) PARTITIONS {partitions}")),
            Self::Naive => ("shard BIGINT NOT NULL, ", "shard, k", cuts(1)),
        };
        format!(
            "CREATE TABLE {table} ({columns}k BIGINT NOT NULL, v TEXT, PRIMARY KEY ({key})) {placed} WITH (AUTO_PARTITIONING_BY_LOAD = DISABLED)"
        )
    }

    /// Column list of its INSERTs.
    fn columns(self) -> &'static str {
        match self {
            Self::Plain | Self::Hashed => "(k, v)",
            Self::Naive => "(shard, k, v)",
        }
    }

    /// The shard that a client computes, if the table has one.
    fn shard(self, k: i64, partitions: u32) -> Option<i64> {
        (self == Self::Naive).then(|| k % i64::from(partitions))
    }

    /// A read of one key.
    fn read_text(self, partitions: u32, key: &str) -> String {
        let shards: Vec<String> = (0..partitions).map(|shard| shard.to_string()).collect();
        let shard = match self {
            Self::Plain | Self::Hashed => String::new(),
            Self::Naive => format!("shard IN ({}) AND ", shards.join(", ")),
        };
        format!("SELECT v FROM {} WHERE {shard}k = {key}", self.table())
    }
}

fn value(k: i64) -> String {
    format!("the value of key {k}")
}

/// A table of keys 0, 1, 2 ...
struct Sequence {
    kind: Kind,
    partitions: u32,
    /// The next key to write.
    next: Arc<AtomicI64>,
}

impl Sequence {
    /// Creates a table with this number of rows.
    async fn make(site: &Site, kind: Kind, partitions: u32, rows: u64) -> anyhow::Result<Self> {
        site.make(kind.table(), &kind.create(partitions, rows)).await?;
        let target = format!("{} {}", kind.table(), kind.columns());
        site.fill(&target, rows, |number| {
            let k = number.cast_signed();
            let shard =
                kind.shard(k, partitions).map_or_else(String::new, |shard| format!("{shard}, "));
            format!("({shard}{k}, '{}')", value(k))
        })
        .await?;
        Ok(Self { kind, partitions, next: Arc::new(AtomicI64::new(rows.cast_signed())) })
    }

    /// A write of the next key.
    fn write(&self) -> Ask {
        let (kind, partitions) = (self.kind, self.partitions);
        let places = if kind == Kind::Naive { "($1, $2, $3)" } else { "($1, $2)" };
        let next = Arc::clone(&self.next);
        Ask {
            text: format!("INSERT INTO {} {} VALUES {places}", kind.table(), kind.columns()),
            draw: Arc::new(move |_| {
                let k = next.fetch_add(1, Ordering::Relaxed);
                let shard = kind.shard(k, partitions).map(Value::Int);
                shard.into_iter().chain([Value::Int(k), Value::Text(value(k))]).collect()
            }),
        }
    }

    /// A read of a random key below `rows`.
    fn read(&self, rows: u64) -> Ask {
        Ask {
            text: self.kind.read_text(self.partitions, "$1"),
            draw: Arc::new(move |random| vec![Value::Int(random.below(rows).cast_signed())]),
        }
    }
}

/// One table in one round.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Slice {
    round: u32,
    table: Kind,
    reads_per_s: f64,
    writes_per_s: f64,
    failed: u64,
    messages: Vec<String>,
    read: Summary,
    write: Summary,
}

impl Slice {
    fn of(round: u32, table: Kind, span: Span) -> Self {
        Self {
            round,
            table,
            reads_per_s: span.reads_per_s(),
            writes_per_s: span.writes_per_s(),
            failed: span.failed,
            read: span.reads.summary(),
            write: span.writes.summary(),
            messages: span.messages,
        }
    }
}

/// Partitions that point reads of a table touch, according to the store's query log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Asked {
    table: Kind,
    partitions: Option<f64>,
}

/// A write-only run, on this number of partitions.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Written {
    table: Kind,
    partitions: u32,
    rows_per_s: f64,
    failed: u64,
    latency: Summary,
}

/// All measurements.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Runs {
    /// Rounds with reads and writes.
    slices: Vec<Slice>,
    /// Read-only rounds, of the plain and the hashed table.
    alone: Vec<Slice>,
    asked: Vec<Asked>,
    /// Share of reads per second that the hashed table loses against the plain one: without writes, and in the mix.
    loss: Spread,
    loss_in_mix: Spread,
    /// Factor between the reads per second of the plain table and of the naive one.
    price: Spread,
    written: Vec<Written>,
}

/// Runs the experiment and reports the results.
pub(super) async fn run(options: &Options) -> anyhow::Result<()> {
    options.site.check()?;
    let write_partitions = sorted(&options.write_partitions);
    if write_partitions.is_empty() {
        bail!("--write-partitions needs a number above 0");
    }
    let mut runs = Runs::default();
    // Reads are measured without a limit on write lanes; a cluster that was not started here is used as it is.
    let mut site = Site::open(&options.site, None).await?;
    let tables = KINDS.map(Kind::table);
    let ran = Box::pin(reads(options, &site, &mut runs)).await;
    site.remove(&tables).await;
    site.checked(ran)?;
    if options.site.embedded() {
        drop(site);
        site = Site::open(&options.site, options.site.bound()).await?;
    }
    let ran = Box::pin(writes(options, &site, &write_partitions, &mut runs)).await;
    site.remove(&tables).await;
    site.checked(ran)?;
    drop(site);
    told(options, runs).tell(&options.report)
}

/// Measures all three tables, round by round.
async fn reads(options: &Options, site: &Site, runs: &mut Runs) -> anyhow::Result<()> {
    let mut tables = Vec::new();
    for kind in KINDS {
        progress(&format!("filling {}", kind.table()));
        tables.push(Sequence::make(site, kind, options.partitions, options.rows).await?);
    }
    let (seed, time) = (options.site.seed, Duration::from_secs(options.seconds));
    for round in 1..=options.rounds {
        let turned = round.is_multiple_of(2);
        for index in 0..tables.len() {
            let table = &tables[if turned { tables.len() - 1 - index } else { index }];
            progress(&format!("round {round} of {}, {}", options.rounds, table.kind.table()));
            let work = Work {
                read: Some(table.read(options.rows)),
                write: Some(table.write()),
                reads: READS,
                thinks: Duration::ZERO,
            };
            let seed = seed.wrapping_add(u64::from(round));
            let measured = Clients::measure(&site.servers, options.clients, &work, seed, time);
            runs.slices.push(Slice::of(round, table.kind, measured.await?));
        }
    }
    let time = time.div_f64(f64::from(FINER)).max(Duration::from_secs(1));
    for round in 1..=options.rounds * FINER {
        let turned = round.is_multiple_of(2);
        progress(&format!("reads alone, round {round} of {}", options.rounds * FINER));
        // The naive table is left out.
        for index in [usize::from(turned), usize::from(!turned)] {
            let work = Work::reading(tables[index].read(options.rows));
            let seed = seed.wrapping_add(u64::from(round));
            let measured = Clients::measure(&site.servers, options.clients, &work, seed, time);
            runs.alone.push(Slice::of(round, tables[index].kind, measured.await?));
        }
    }
    for kind in KINDS {
        let partitions =
            asked(site, kind, options.partitions).await.context("cannot read the query log")?;
        runs.asked.push(Asked { table: kind, partitions });
    }
    runs.compare();
    Ok(())
}

impl Runs {
    /// Compares figures of the same rounds.
    fn compare(&mut self) {
        let lost = |hashed: f64, plain: f64| 1.0 - hashed / plain;
        let rate = |slices: &[Slice], kind| of_table(slices, kind, |slice| slice.reads_per_s);
        let loss = |slices: &[Slice]| {
            Spread::of_pairs(&rate(slices, Kind::Hashed), &rate(slices, Kind::Plain), lost)
        };
        (self.loss, self.loss_in_mix) = (loss(&self.alone), loss(&self.slices));
        self.price = Spread::of_pairs(
            &rate(&self.slices, Kind::Plain),
            &rate(&self.slices, Kind::Naive),
            |plain, naive| plain / naive,
        );
    }
}

/// Number of partitions that a read of a table touches, according to the query log.
async fn asked(site: &Site, kind: Kind, partitions: u32) -> anyhow::Result<Option<f64>> {
    // A read of its own: the log keeps only the latest statements.
    let text = kind.read_text(partitions, "7");
    site.ask(&text).await?;
    let log = format!(
        "SELECT max(partitions_touched) FROM sys.query_log WHERE kind = 'SELECT' AND text LIKE '{text}%'"
    );
    site.number(&log).await
}

/// Write-only runs with sequential keys, for ranges and for hashes.
async fn writes(
    options: &Options,
    site: &Site,
    partitions: &[u32],
    runs: &mut Runs,
) -> anyhow::Result<()> {
    let time = Duration::from_secs(options.seconds);
    for count in partitions {
        for kind in [Kind::Plain, Kind::Hashed] {
            progress(&format!("writes to {count} partitions of {}", kind.table()));
            site.make(kind.table(), &kind.create(*count, 0)).await?;
            // Above all cuts, at the end of a table that has grown for a while.
            let next = Arc::new(AtomicI64::new(i64::from(*count)));
            let table = Sequence { kind, partitions: *count, next };
            let (work, seed) = (Work::writing(table.write()), options.site.seed);
            let span = Clients::measure(&site.servers, options.clients, &work, seed, time).await?;
            runs.written.push(Written {
                table: kind,
                partitions: *count,
                rows_per_s: span.writes_per_s(),
                failed: span.failed,
                latency: span.writes.summary(),
            });
        }
    }
    Ok(())
}

fn told(options: &Options, runs: Runs) -> Told<Runs> {
    let bound = options.site.bound();
    let description = format!(
        "{} clients in closed loops; 9 of 10 statements read a key, 1 writes the next one; {} initial rows in {} partitions; {} rounds of {} s for each table, reported as medians with confidence intervals. Then reads alone, and writes alone, {} s for each number of partitions{}.",
        options.clients,
        options.rows,
        options.partitions,
        options.rounds,
        options.seconds,
        options.seconds,
        match bound {
            Some(bound) => format!(", each limited to {bound:.0} rows/s"),
            None => String::new(),
        }
    );
    let (figures, claims) = (figures(&runs), claims(&runs, options.partitions, bound));
    let (read, written) = (read_table(&runs), written_table(&runs.written));
    Told::new("hash-index", description, SOURCE, &options.site, bound, runs)
        .figures(figures)
        .claims(claims)
        .table(read)
        .table(written)
}

#[cfg(test)]
mod tests;

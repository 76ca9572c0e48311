//! One partition under more load than it can serve, before and after a split (YDB's walk-through of an overloaded
//! shard).
//!
//! ```text
//!   AUTO_PARTITIONING_BY_LOAD = DISABLED          ENABLED                 split into two
//!   ├── closed loops of clients on one partition ──┼── until it is split ──┼── settle ──┼── the same clients ──┤
//!        before: rate, latencies                        how long it took                      after
//! ```
//!
//! The walk-through uses reads. In Partita, a read is work of the whole machine and not of its partition's lane, so
//! that on a small machine a split does not speed up reads; writes are what a partition serves one after another,
//! and what is limited here. So the experiment uses INSERTs unless `--operation select` is given; then the shape is
//! reported and left open.
//!
//! Corresponding to their 2 ms, two shares are reported: requests under 2 ms, and requests within *our limit*: the
//! latency that before the split held for the same share of our requests as 2 ms did for theirs.
//!
//! Invariants: the load is the same before, during and after the split; conditions before and after are the same,
//! because nothing else in the cluster is changed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use partita_proto::history::ReshapeOutcome;
use serde::Serialize;
use tokio::time::Instant;

use super::clients::{Ask, Clients, Span, Value, Work};
use super::site::{Site, SiteOptions};
use super::told::{Figure, ReportOptions, Told, heads};
use crate::claim::Claim;
use crate::latency::{Latencies, Summary};
use crate::random::Random;
use crate::report::{progress, short};

const SOURCE: &str = "YDB documentation, troubleshooting/examples/schemas/overloaded-shard-1.md @00499a6: 3 machines of 28 cores, `workload \
     kv run select -t 250` on a table of one partition, load split into two. Requests/s by latency, before and after: 0-1 ms \
     2110, 16961; 1-2 ms 5472, 13147; 2-4 ms 16437, 6041; 4-8 ms 9430, 432; 8-16 ms 98.8, 52.4; 16-32 ms -, 0.578. Rates and \
     shares are sums of these; that p99 is halved is its text. (Its 27,000 to 35,000 requests/s are the load that rose \
     before, from 100 to 250 threads.)";
/// Requests per second by latency, before and after: up to 1, 2, 4, 8, 16 and 32 ms.
const PUBLISHED: [[f64; 6]; 2] = [
    [2_110.0, 5_472.0, 16_437.0, 9_430.0, 98.8, 0.0],
    [16_961.0, 13_147.0, 6_041.0, 432.0, 52.4, 0.578],
];
const PUBLISHED_P99_RATIO: f64 = 0.5;
/// The walk-through's limit for a quick request.
const QUICK: Duration = Duration::from_millis(2);

const TABLE: &str = "lab_experiment_overloaded";
/// Exclusive upper bound of the keys.
const KEYS: u64 = 1 << 40;
/// Maximum time to wait for a split; ours takes ten seconds of load, and twenty to determine the key.
const SPLIT_WITHIN: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(200);
/// A rise or fall by less than this factor is noise.
const CLEARLY: f64 = 1.05;
/// Minimum rise of the share within the limit.
const SHARE_RISES: f64 = 0.2;

/// Operation of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Operation {
    /// Write rows with new keys.
    Insert,
    /// Read rows by key, as the walk-through does.
    Select,
}

/// Cause of the split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Cut {
    /// The store, by the load that it measures.
    Load,
    /// This command, in the middle of the keys.
    Hand,
}

/// Options of `overloaded-shard`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    site: SiteOptions,
    #[command(flatten)]
    report: ReportOptions,
    /// Operation of the clients.
    #[arg(long, value_enum, default_value_t = Operation::Insert)]
    operation: Operation,
    /// Cause of the split.
    #[arg(long, value_enum, default_value_t = Cut::Load)]
    split: Cut,
    /// Clients, each in a closed loop.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    clients: u32,
    /// Demand of all clients if answers took no time, as a multiple of one partition's maximum rate; determines the
    /// think time between an answer and the next request.
    #[arg(long, default_value_t = 1.3, value_parser = demand_of)]
    demand: f64,
    /// Seconds measured before, and after.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// Number of partitions to split into, by load; two as in the walk-through.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=1_000))]
    partitions: u32,
    /// Initial number of rows.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    rows: u64,
}

/// Results before, or after, the split.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Phase {
    per_s: f64,
    share_under_2_ms: f64,
    /// Share within our limit.
    share_in_limit: f64,
    failed: u64,
    messages: Vec<String>,
    latency: Summary,
}

/// All measurements.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Runs {
    operation: Operation,
    split: Cut,
    limit_ms: f64,
    /// Seconds from the permission to split until the store showed the split; `None` if it did not split in time.
    split_after_s: Option<f64>,
    partitions: f64,
    /// Reason, in the store's words.
    why: Option<String>,
    before: Phase,
    after: Phase,
}

fn demand_of(text: &str) -> Result<f64, String> {
    let demand = text.parse().ok().filter(|demand| (0.1..=100.0).contains(demand));
    demand.ok_or_else(|| "expected a number from 0.1 to 100".to_owned())
}

/// Think time of a client. Without it, all clients would always wait, for one partition or the other: their p99
/// would be that of all waiting for the same one, and a split would not change it.
fn thinks(options: &Options) -> Duration {
    match options.site.bound().filter(|_| options.operation == Operation::Insert) {
        Some(bound) => {
            Duration::from_secs_f64(f64::from(options.clients) / (options.demand * bound))
        }
        None => Duration::ZERO,
    }
}

/// Published share of requests under 2 ms, and all requests per second.
fn published(phase: usize) -> (f64, f64) {
    let total: f64 = PUBLISHED[phase].iter().sum();
    ((PUBLISHED[phase][0] + PUBLISHED[phase][1]) / total, total)
}

/// Keys of the initial rows.
fn filled(number: u64) -> i64 {
    Random::new(0, number).below(KEYS).cast_signed()
}

fn work(options: &Options) -> Work {
    let rows = options.rows;
    match options.operation {
        Operation::Insert => {
            let ask = Ask {
                text: format!("INSERT INTO {TABLE} (k, v) VALUES ($1, $2)"),
                draw: Arc::new(|random| {
                    vec![
                        Value::Int(random.below(KEYS).cast_signed()),
                        Value::Text("a value of some length".to_owned()),
                    ]
                }),
            };
            Work { thinks: thinks(options), ..Work::writing(ask) }
        }
        Operation::Select => Work::reading(Ask {
            text: format!("SELECT v FROM {TABLE} WHERE k = $1"),
            draw: Arc::new(move |random| vec![Value::Int(filled(random.below(rows)))]),
        }),
    }
}

/// Runs the experiment and reports the results.
pub(super) async fn run(options: &Options) -> anyhow::Result<()> {
    options.site.check()?;
    let bound = match options.operation {
        Operation::Insert => options.site.bound(),
        Operation::Select => None,
    };
    let mut site = Site::open(&options.site, bound).await?;
    let ran = Box::pin(phases(options, &site)).await;
    site.remove(&[TABLE]).await;
    let runs = site.checked(ran)?;
    drop(site);
    told(options, runs).tell(&options.report)
}

async fn phases(options: &Options, site: &Site) -> anyhow::Result<Runs> {
    progress("filling the table");
    let create = format!(
        "CREATE TABLE {TABLE} (k BIGINT NOT NULL, v TEXT, PRIMARY KEY (k)) WITH (AUTO_PARTITIONING_BY_LOAD = DISABLED, AUTO_PARTITIONING_MAX_PARTITIONS_COUNT = {})",
        options.partitions
    );
    site.make(TABLE, &create).await?;
    // A limited partition would be slow to fill, and INSERTs need no existing rows.
    if options.operation == Operation::Select {
        let value = |number| format!("({}, 'a value of some length')", filled(number));
        site.fill(&format!("{TABLE} (k, v)"), options.rows, value).await?;
    }
    let (seed, time) = (options.site.seed, Duration::from_secs(options.seconds));
    let mut clients = Clients::start(&site.servers, options.clients, &work(options), seed).await?;
    progress("measuring one partition");
    tokio::time::sleep(time / 5).await;
    let span_before = clients.during(time).await?;
    progress("waiting for the split");
    let split_after_s = split(options, site, &mut clients).await?;
    tokio::time::sleep(time / 5).await;
    progress("measuring after the split");
    let span_after = clients.during(time).await?;
    clients.finish().await;
    let partitions = site.partitions(TABLE).await?;
    let why = format!(
        "SELECT why FROM sys.split_events WHERE \"table\" = '{TABLE}' AND outcome = '{}' ORDER BY at DESC LIMIT 1",
        ReshapeOutcome::Done
    );
    let why = site.ask(&why).await?.first().and_then(|row| row.first()).cloned().flatten();
    let limit = latencies(options, &span_before).quantile(published(0).0).unwrap_or_default();
    let phase = |span: Span| Phase::of(latencies(options, &span), &span, limit);
    Ok(Runs {
        operation: options.operation,
        split: options.split,
        limit_ms: limit.as_secs_f64() * 1e3,
        split_after_s,
        partitions,
        why,
        before: phase(span_before),
        after: phase(span_after),
    })
}

fn latencies<'a>(options: &Options, span: &'a Span) -> &'a Latencies {
    match options.operation {
        Operation::Insert => &span.writes,
        Operation::Select => &span.reads,
    }
}

impl Phase {
    #[expect(clippy::cast_precision_loss, reason = "requests of a run fit 53 bits")]
    fn of(latencies: &Latencies, span: &Span, limit: Duration) -> Self {
        Self {
            per_s: latencies.count() as f64 / span.seconds.max(1e-3),
            share_under_2_ms: latencies.share_within(QUICK).unwrap_or(0.0),
            share_in_limit: latencies.share_within(limit).unwrap_or(0.0),
            failed: span.failed,
            messages: span.messages.clone(),
            latency: latencies.summary(),
        }
    }
}

/// Starts the split; returns the seconds until it was visible.
async fn split(
    options: &Options,
    site: &Site,
    clients: &mut Clients,
) -> anyhow::Result<Option<f64>> {
    let start = Instant::now();
    match options.split {
        Cut::Load => {
            site.run(&format!("ALTER TABLE {TABLE} SET (AUTO_PARTITIONING_BY_LOAD = ENABLED)"))
                .await?;
        }
        Cut::Hand => {
            site.run(&format!("ALTER TABLE {TABLE} SPLIT AT (({}))", KEYS / 2)).await?;
        }
    }
    let partitions = match options.split {
        Cut::Load => f64::from(options.partitions),
        Cut::Hand => 2.0,
    };
    // Reads are not limited, so they may never overload a partition: then the wait ends without a split.
    while start.elapsed() < SPLIT_WITHIN {
        if site.partitions(TABLE).await? >= partitions {
            return Ok(Some(start.elapsed().as_secs_f64()));
        }
        // A client that cannot continue ends the wait with its error.
        clients.look()?;
        tokio::time::sleep(POLL).await;
    }
    if options.operation == Operation::Insert && site.partitions(TABLE).await? < 2.0 {
        bail!("the partition was not split within {} s", SPLIT_WITHIN.as_secs());
    }
    Ok(None)
}

fn told(options: &Options, runs: Runs) -> Told<Runs> {
    let bound = options.site.bound().filter(|_| options.operation == Operation::Insert);
    // Operation, cause of the split and think time, for the description.
    let operation = match (options.operation, bound) {
        (Operation::Insert, Some(bound)) => format!(
            "INSERTs of one row each instead of reads, because a partition executes writes one after another, here at most {bound:.0} rows/s"
        ),
        (Operation::Insert, None) => {
            "INSERTs of one row each instead of reads, because a partition executes writes one after another, with an unknown limit".to_owned()
        }
        (Operation::Select, _) => {
            "SELECTs of one row by its key, limited only by the machine".to_owned()
        }
    };
    let when = match (runs.split, runs.split_after_s) {
        (Cut::Load, Some(seconds)) => format!(
            "split by load into {:.0} partitions within {seconds:.1} s of the permission ({})",
            runs.partitions,
            runs.why.as_deref().unwrap_or("no reason recorded")
        ),
        (Cut::Hand, _) => "split by hand in the middle of its keys".to_owned(),
        (Cut::Load, None) => format!(
            "permitted to split by load, with {:.0} partitions after {} s",
            runs.partitions,
            SPLIT_WITHIN.as_secs()
        ),
    };
    let thought = match thinks(options) {
        Duration::ZERO => String::new(),
        thinks => format!(
            " with a mean think time of {:.0} ms (a demand of {:.1} times the limit of a partition)",
            thinks.as_secs_f64() * 1e3,
            options.demand
        ),
    };
    let description = format!(
        "{} clients in closed loops{thought} on a table of one partition: {operation}. {} s before, then {when}, and {} s after. Our limit is {:.1} ms: before the split, the share of our requests within it equals the published share within 2 ms.",
        options.clients, options.seconds, options.seconds, runs.limit_ms
    );
    // The results before and after, then figures and claims.
    let mut table =
        heads(&["", "per s", "under 2 ms", "in our limit", "p50 ms", "p99 ms", "failed"]);
    for (name, phase) in [("before", &runs.before), ("after", &runs.after)] {
        table.push(vec![
            name.to_owned(),
            short(phase.per_s),
            format!("{:.1} %", phase.share_under_2_ms * 100.0),
            format!("{:.1} %", phase.share_in_limit * 100.0),
            short(phase.latency.p50_ms),
            short(phase.latency.p99_ms),
            phase.failed.to_string(),
        ]);
    }
    let (figures, claims) = (figures(&runs), claims(&runs));
    let report = Told::new("overloaded-shard", description, SOURCE, &options.site, bound, runs)
        .figures(figures)
        .claims(claims)
        .table(table);
    match options.operation {
        Operation::Insert => report.not_yet(
            "reads have no limit per partition, so writes are measured; --operation select measures reads.",
        ),
        Operation::Select => report.not_yet(
            "reads share the machine with all other work, so a split need not speed them up; the shape is left open.",
        ),
    }
}

fn figures(runs: &Runs) -> Vec<Figure> {
    let (old, new) = (&runs.before, &runs.after);
    let ratio = |value: f64, base: f64| (base > 0.0).then(|| value / base);
    let [(share_before, all_before), (share_after, all_after)] = [published(0), published(1)];
    vec![
        Figure::new("served before, requests/s", Some(old.per_s), Some(all_before)),
        Figure::new("served after, requests/s", Some(new.per_s), Some(all_after)),
        Figure::new(
            "served, after / before",
            ratio(new.per_s, old.per_s),
            ratio(all_after, all_before),
        ),
        Figure::new("share in the limit before", Some(old.share_in_limit), Some(share_before)),
        Figure::new("share in the limit after", Some(new.share_in_limit), Some(share_after)),
        Figure::new("share under 2 ms before", Some(old.share_under_2_ms), Some(share_before)),
        Figure::new("share under 2 ms after", Some(new.share_under_2_ms), Some(share_after)),
        Figure::new(
            "p99, after / before",
            ratio(new.latency.p99_ms, old.latency.p99_ms),
            Some(PUBLISHED_P99_RATIO),
        ),
        Figure::new("seconds until it was split", runs.split_after_s, None),
    ]
}

fn claims(runs: &Runs) -> Vec<Claim> {
    let (old, new) = (&runs.before, &runs.after);
    // Claims about reads stay open, since their rate is not limited.
    let judged = [
        (
            "more is served after the split",
            format!("{:.0} and {:.0} requests/s", old.per_s, new.per_s),
            new.per_s > CLEARLY * old.per_s,
        ),
        (
            "a greater share is within the limit after the split",
            format!(
                "{:.1} % and {:.1} % of requests within {:.1} ms",
                old.share_in_limit * 100.0,
                new.share_in_limit * 100.0,
                runs.limit_ms
            ),
            new.share_in_limit >= old.share_in_limit + SHARE_RISES,
        ),
        (
            "p99 falls with the split",
            format!("{:.1} and {:.1} ms", old.latency.p99_ms, new.latency.p99_ms),
            new.latency.p99_ms * CLEARLY < old.latency.p99_ms,
        ),
    ];
    judged
        .into_iter()
        .map(|(claim, measured, holds)| match runs.operation {
            Operation::Insert => Claim::judged(claim, measured, holds),
            Operation::Select => {
                let outcome = if holds { "holds" } else { "does not hold" };
                Claim::open(claim, &format!("{measured}: {outcome}, but reads have no limit"))
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Verdict;

    fn runs(operation: Operation, figures: (f64, f64, f64)) -> Runs {
        let phase = |(per_s, share_in_limit, p99_ms)| Phase {
            per_s,
            share_under_2_ms: 0.0,
            share_in_limit,
            failed: 0,
            messages: Vec::new(),
            latency: Summary { p99_ms, ..Summary::default() },
        };
        Runs {
            operation,
            split: Cut::Load,
            limit_ms: 150.0,
            split_after_s: Some(3.0),
            partitions: 2.0,
            why: None,
            before: phase((100.0, 0.226, 320.0)),
            after: phase(figures),
        }
    }

    #[test]
    fn the_published_shares_are_those_of_its_table() {
        let [(share_before, all_before), (share_after, all_after)] = [published(0), published(1)];
        assert!((share_before - 0.226).abs() < 0.001 && (share_after - 0.822).abs() < 0.001);
        assert!((all_before - 33_547.8).abs() < 0.1 && (all_after - 36_634.0).abs() < 0.1);
    }

    #[test]
    fn a_split_that_gives_nothing_fails_for_writes_and_is_told_of_reads() {
        use Verdict::{Fails, Holds, Open};
        let verdicts =
            |runs: &Runs| claims(runs).iter().map(|claim| claim.verdict).collect::<Vec<_>>();
        let good = runs(Operation::Insert, (195.0, 0.99, 165.0));
        assert_eq!(verdicts(&good), [Holds, Holds, Holds]);
        let figures = figures(&good);
        assert_eq!((figures[2].ours, figures[8].ours), (Some(1.95), Some(3.0)));
        let vain = runs(Operation::Insert, (101.0, 0.24, 318.0));
        assert_eq!(verdicts(&vain), [Fails, Fails, Fails]);
        assert_eq!(verdicts(&runs(Operation::Select, (101.0, 0.24, 318.0))), [Open, Open, Open]);
    }

    #[test]
    fn rows_that_were_there_before_are_found_again() {
        assert_eq!(filled(7), filled(7));
        assert!((0..100).all(|number| u64::try_from(filled(number)).unwrap() < KEYS));
    }
}

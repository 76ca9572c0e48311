//! A read hotspot at one partition: served by its leader alone, and by all its replicas.
//!
//! ```text
//!   clients in closed loops, ranges of a few keys of one partition
//!   ├── follower_reads = off: the leader ──┼── on: leader and followers ──┤   in turns, for some rounds
//!        reads, CPU of each datanode            reads, CPU of each datanode
//! ```
//!
//! Several datanodes on one small machine share its cores, so their total throughput is the machine's, no matter which
//! of them serve. Throughput is therefore related to CPU: on separate machines the busiest datanode would be saturated
//! first, so throughput is the reads that all datanodes serve per second of its CPU.
//!
//! Invariants: all rounds have the same table, clients and seed; only who is read differs, by a setting of the clients'
//! sessions.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use serde::Serialize;
use tokio::time::Instant;

use super::clients::{Ask, Clients, Value, Work};
use super::site::{Site, SiteOptions};
use super::told::{Figure, ReportOptions, Table, Told, heads};
use crate::claim::{Claim, Unit};
use crate::latency::Summary;
use crate::meter::Meter;
use crate::report::{progress, short};
use crate::statistics::Spread;

const SOURCE: &str =
    "none: the aim of 2.2 times the throughput of the leader alone, with three replicas, is ours.";
const TABLE: &str = "lab_experiment_read_hotspot";
/// Replicas of the partition.
const REPLICAS: f64 = 3.0;
/// Minimum throughput by CPU of three replicas, as a multiple of that of the leader alone.
const AIM: f64 = 2.2;
/// Keys at which reads begin.
const HOT_KEYS: u64 = 1_000;
/// Maximum time until the partition has its replicas.
const PLACED_WITHIN: Duration = Duration::from_secs(60);
/// Minimum time for frontends to follow a change of the load.
const SETTLE_MIN: Duration = Duration::from_secs(4);
const POLL: Duration = Duration::from_millis(200);

/// Options of `read-hotspot`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    site: SiteOptions,
    #[command(flatten)]
    report: ReportOptions,
    /// Clients, each in a closed loop.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..=1_000))]
    clients: u32,
    /// Rounds of both, in turns.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds measured of each.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// Rows of the table.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(2_000..=10_000_000))]
    rows: u64,
    /// Rows that one read adds up.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    rows_per_read: u64,
    /// Share of the statements that update a row, from 0 to 0.9.
    #[arg(long, default_value_t = 0.0, value_parser = share_of)]
    write_share: f64,
}

fn share_of(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=0.9).contains(share));
    share.ok_or_else(|| "expected a number from 0 to 0.9".to_owned())
}

/// Replicas that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Target {
    Leader,
    Replicas,
}

impl Target {
    /// Connection string of sessions that read these replicas.
    fn server(self, server: &str) -> String {
        let switch = if self == Self::Leader { "off" } else { "on" };
        format!("{server} options='-c follower_reads={switch}'")
    }
}

/// Measurements of one round.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Phase {
    target: Target,
    reads_per_s: f64,
    writes_per_s: f64,
    /// Scans that followers answered.
    by_followers: f64,
    /// CPU seconds of each datanode; empty if its processes are not known.
    cpu_s: Vec<f64>,
    /// Reads for each CPU second of the busiest datanode.
    reads_per_cpu_s: Option<f64>,
    failed: u64,
    messages: Vec<String>,
    latency: Summary,
}

fn work(options: &Options) -> Work {
    let (first, length) = (options.rows / 2, options.rows_per_read);
    let hot_keys = HOT_KEYS.min(options.rows / 2 - length.min(options.rows / 2 - 1));
    let read = Ask {
        text: format!("SELECT count(*), sum(v) FROM {TABLE} WHERE k >= $1 AND k < $2"),
        draw: Arc::new(move |random| {
            let start = first + random.below(hot_keys);
            vec![Value::Int(start.cast_signed()), Value::Int((start + length).cast_signed())]
        }),
    };
    let write = Ask {
        text: format!("INSERT INTO {TABLE} (k, v) VALUES ($1, $2)"),
        draw: Arc::new(move |random| {
            let key = first + random.below(hot_keys);
            vec![Value::Int(key.cast_signed()), Value::Int(random.below(1_000).cast_signed())]
        }),
    };
    let write = (options.write_share > 0.0).then_some(write);
    Work { read: Some(read), write, reads: 1.0 - options.write_share, thinks: Duration::ZERO }
}

/// Runs the experiment and reports the results.
pub(super) async fn run(options: &Options) -> anyhow::Result<()> {
    options.site.check()?;
    let mut site = Site::open(&options.site, None).await?;
    let ran = Box::pin(phases(options, &site)).await;
    site.remove(&[TABLE]).await;
    let runs = site.checked(ran)?;
    drop(site);
    told(options, runs).tell(&options.report)
}

async fn phases(options: &Options, site: &Site) -> anyhow::Result<Vec<Phase>> {
    progress("filling the table");
    let create = format!(
        "CREATE TABLE {TABLE} (k BIGINT NOT NULL, v BIGINT, PRIMARY KEY (k)) WITH (AUTO_PARTITIONING_BY_LOAD = DISABLED, 'replication_factor' = '3')"
    );
    site.make(TABLE, &create).await?;
    let row = |number: u64| format!("({number}, {})", number % 1_000);
    site.fill(&format!("{TABLE} (k, v)"), options.rows, row).await?;
    until_placed(site).await?;
    let mut phases = Vec::new();
    for round in 1..=options.rounds {
        for target in [Target::Leader, Target::Replicas] {
            progress(&format!("round {round} of {}: {target:?}", options.rounds));
            phases.push(Box::pin(phase(options, site, target)).await?);
        }
    }
    Ok(phases)
}

/// Waits until the partition has all its replicas.
async fn until_placed(site: &Site) -> anyhow::Result<()> {
    let replicas = format!(
        "SELECT count(*) FROM sys.replicas WHERE \"table\" = '{TABLE}' AND role IN ('leader', 'follower')"
    );
    let deadline = Instant::now() + PLACED_WITHIN;
    loop {
        let count = site.number(&replicas).await?.unwrap_or(0.0);
        if count >= REPLICAS {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!("the partition has {count} replicas, not {REPLICAS}: it takes three datanodes");
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Scans that followers answered since the frontend's start.
async fn by_followers(site: &Site) -> anyhow::Result<f64> {
    let text = "SELECT value FROM sys.counters WHERE name = 'scans_by_followers'";
    Ok(site.number(text).await?.unwrap_or(0.0))
}

/// CPU seconds of each process since its start.
fn cpu_s(meters: &mut [Meter]) -> anyhow::Result<Vec<f64>> {
    meters.iter_mut().map(|meter| Ok(meter.read()?.cpu_s)).collect()
}

#[expect(clippy::cast_precision_loss, reason = "reads of a run fit 53 bits")]
async fn phase(options: &Options, site: &Site, target: Target) -> anyhow::Result<Phase> {
    let servers: Vec<String> = site.servers.iter().map(|server| target.server(server)).collect();
    let datanodes = site.datanodes().into_iter();
    let mut meters: Vec<Meter> = datanodes.map(|pid| Meter::new(vec![pid], false)).collect();
    let seed = options.site.seed;
    let mut clients = Clients::start(&servers, options.clients, &work(options), seed).await?;
    let time = Duration::from_secs(options.seconds);
    tokio::time::sleep((time / 5).max(SETTLE_MIN)).await;
    let followers_before = by_followers(site).await?;
    let cpu_before = cpu_s(&mut meters)?;
    let span = clients.during(time).await?;
    let cpu_after = cpu_s(&mut meters)?;
    let followers_after = by_followers(site).await?;
    clients.finish().await;
    let cpu_s: Vec<f64> =
        cpu_after.iter().zip(&cpu_before).map(|(end, start)| end - start).collect();
    let busiest = cpu_s.iter().copied().fold(0.0, f64::max);
    Ok(Phase {
        target,
        reads_per_s: span.reads_per_s(),
        writes_per_s: span.writes_per_s(),
        by_followers: followers_after - followers_before,
        reads_per_cpu_s: (busiest > 0.0).then(|| span.reads.count() as f64 / busiest),
        cpu_s,
        failed: span.failed,
        latency: span.reads.summary(),
        messages: span.messages,
    })
}

/// Throughput by CPU of each round.
fn throughputs(phases: &[Phase], target: Target) -> Vec<f64> {
    let phases = phases.iter().filter(|phase| phase.target == target);
    phases.filter_map(|phase| phase.reads_per_cpu_s).collect()
}

/// Factors by which three replicas serve more than the leader alone, round by round.
fn factors(phases: &[Phase]) -> Spread {
    let leader = throughputs(phases, Target::Leader);
    let replicas = throughputs(phases, Target::Replicas);
    Spread::of_pairs(&replicas, &leader, |replicas, leader| replicas / leader)
}

fn claims(phases: &[Phase]) -> Vec<Claim> {
    let served = "three replicas serve at least 2.2 times as many reads for each CPU second of the busiest datanode as the leader alone";
    let factors = factors(phases);
    let served = match factors.rounds {
        0 => Claim::open(served, "the CPU of datanodes is known only of a cluster started here"),
        _ => Claim::at_least(served, &factors, AIM, Unit::Times),
    };
    let counts = |target: Target| -> f64 {
        let phases = phases.iter().filter(|phase| phase.target == target);
        phases.map(|phase| phase.by_followers).sum()
    };
    let (refused, allowed) = (counts(Target::Leader), counts(Target::Replicas));
    let measured =
        format!("{refused:.0} scans by followers with follower_reads off, {allowed:.0} with on");
    let holds = refused == 0.0 && allowed > 0.0;
    vec![served, Claim::judged("followers answer if they may", measured, holds)]
}

fn figures(phases: &[Phase]) -> Vec<Figure> {
    let median = |values: &[f64]| (!values.is_empty()).then(|| Spread::of(values).median);
    let factors = factors(phases);
    vec![
        Figure::new(
            "leader alone, reads per CPU second",
            median(&throughputs(phases, Target::Leader)),
            None,
        ),
        Figure::new(
            "three replicas, reads per CPU second",
            median(&throughputs(phases, Target::Replicas)),
            None,
        ),
        Figure::new(
            "three replicas to leader alone",
            (factors.rounds > 0).then_some(factors.median),
            None,
        ),
    ]
}

fn told(options: &Options, phases: Vec<Phase>) -> Told<Vec<Phase>> {
    let description = format!(
        "{} clients in closed loops add up {} rows of {HOT_KEYS} neighbouring keys in one partition of {} rows; {:.0} % of their statements update a row. {} rounds of {} s, in turns with the leader alone (follower_reads = off) and with all three replicas. Throughput is counted by the CPU of the busiest datanode, because all of them share this machine.",
        options.clients,
        options.rows_per_read,
        options.rows,
        options.write_share * 100.0,
        options.rounds,
        options.seconds,
    );
    let mut table: Table = heads(&[
        "read",
        "reads/s",
        "by followers",
        "CPU s of each node",
        "reads/CPU s",
        "p50 ms",
        "p99 ms",
        "failed",
    ]);
    for phase in &phases {
        let cpu: Vec<String> = phase.cpu_s.iter().map(|seconds| format!("{seconds:.1}")).collect();
        table.push(vec![
            format!("{:?}", phase.target).to_lowercase(),
            short(phase.reads_per_s),
            short(phase.by_followers),
            cpu.join(" "),
            phase.reads_per_cpu_s.map_or_else(|| "-".to_owned(), short),
            short(phase.latency.p50_ms),
            short(phase.latency.p99_ms),
            phase.failed.to_string(),
        ]);
    }
    let (figures, claims) = (figures(&phases), claims(&phases));
    Told::new("read-hotspot", description, SOURCE, &options.site, None, phases)
        .figures(figures)
        .claims(claims)
        .table(table)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::claim::Verdict;
    use crate::random::Random;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn phase(target: Target, reads_per_cpu_s: Option<f64>) -> Phase {
        Phase {
            target,
            reads_per_s: 10.0,
            writes_per_s: 0.0,
            by_followers: if target == Target::Leader { 0.0 } else { 7.0 },
            cpu_s: Vec::new(),
            reads_per_cpu_s,
            failed: 0,
            messages: Vec::new(),
            latency: Summary::default(),
        }
    }

    fn verdicts(factor: Option<f64>) -> Vec<Verdict> {
        let rounds = (0..5).flat_map(|_| {
            let leader = factor.map(|_| 100.0);
            [
                phase(Target::Leader, leader),
                phase(Target::Replicas, factor.map(|factor| factor * 100.0)),
            ]
        });
        let phases: Vec<Phase> = rounds.collect();
        claims(&phases).into_iter().map(|claim| claim.verdict).collect()
    }

    #[test]
    fn the_aim_is_judged_by_the_cpu_of_the_busiest_node_if_it_is_known() {
        assert_eq!(verdicts(Some(2.3)), [Verdict::Holds, Verdict::Holds]);
        assert_eq!(verdicts(Some(2.1)), [Verdict::Fails, Verdict::Holds]);
        assert_eq!(verdicts(None), [Verdict::Open, Verdict::Holds]);
        let only_leaders = [phase(Target::Leader, None), phase(Target::Leader, None)];
        assert_eq!(claims(&only_leaders)[1].verdict, Verdict::Fails);
    }

    #[test]
    fn reads_stay_within_the_table_and_sessions_say_who_is_read() {
        let options =
            Line::parse_from(["line", "--rows", "2000", "--rows-per-read", "1000"]).options;
        let read = work(&options).read.unwrap();
        let mut random = Random::new(1, 0);
        for _ in 0..1_000 {
            let values = (read.draw)(&mut random);
            let [Value::Int(start), Value::Int(end)] = values[..] else { panic!("{values:?}") };
            assert!(start >= 1_000 && end <= 2_000, "{start} to {end}");
        }
        assert_eq!(Target::Leader.server("host=a"), "host=a options='-c follower_reads=off'");
        assert!(Line::try_parse_from(["line", "--write-share", "0.95"]).is_err());
    }
}

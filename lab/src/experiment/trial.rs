//! A trial: one workload on a table of its own, for a while. Which class the store names, after how long, what it cuts, and
//! what it serves at last.
//!
//! Invariants: the table has no other load; a trial in which no partition was hot has no verdict, because the machine may
//! have served it.

use std::time::Duration;

use partita_load::Class;
use serde::Serialize;
use tokio::time::Instant;

use super::clients::{Clients, Work};
use super::site::{Site, SiteOptions};
use super::told::{Table, heads};
use crate::claim::Claim;
use crate::report::{progress, short};

/// Name of the table.
pub(super) const TABLE: &str = "lab_experiment_trial";
/// Wait for the load of existing rows to be forgotten; in a short trial no longer than the trial.
const SETTLE: Duration = Duration::from_secs(15);
/// Interval in which the verdict is looked at.
const POLL: Duration = Duration::from_secs(1);
/// Last part of a trial, in which the rate is measured.
const MEASURED_SHARE: f64 = 0.25;
/// Default clients of a trial.
pub(super) const CLIENTS: u32 = 32;
/// Default seconds of a trial.
pub(crate) const SECONDS: u64 = 60;

/// Load of each trial.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LoadOptions {
    /// Clients of each workload, each in a closed loop.
    #[arg(long, default_value_t = CLIENTS, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) clients: u32,
    /// Seconds of each workload.
    #[arg(long, default_value_t = SECONDS, value_parser = clap::value_parser!(u64).range(2..=3_600))]
    pub(super) seconds: u64,
}

impl LoadOptions {
    /// The usual clients, for so many seconds.
    pub(crate) fn of(seconds: u64) -> Self {
        Self { clients: CLIENTS, seconds }
    }
}

/// A workload.
pub(crate) struct Trial {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Columns and key of the table.
    pub(super) columns: String,
    /// Options of the table, behind its columns.
    pub(super) options: &'static str,
    /// Number of rows before the clients come.
    pub(super) rows: u64,
    /// Row with this number.
    pub(super) row: Box<dyn Fn(u64) -> String + Send + Sync>,
    pub(super) work: Work,
    /// Requests per second that the clients would make if answers took no time; `None` without think times.
    pub(super) offered_per_s: Option<f64>,
    /// Right classes, the usual one first; any is right where there are none.
    pub(super) expected: &'static [Class],
}

/// Result of a trial.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    /// First class that was named, and the second in which it was.
    pub(crate) verdict: Option<String>,
    pub(crate) verdict_s: Option<f64>,
    #[serde(skip)]
    pub(crate) expected: &'static [Class],
    /// Cuts by load, and those of them that did not help.
    pub(crate) cuts: f64,
    pub(crate) in_vain: f64,
    pub(crate) partitions: f64,
    /// Requests per second at last, and their share of those that were offered.
    pub(crate) per_s: f64,
    pub(crate) served: Option<f64>,
    pub(crate) failed: u64,
    pub(crate) messages: Vec<String>,
}

impl Outcome {
    /// The class that was named; [`Class::Unknown`] if none was.
    pub(crate) fn class(&self) -> Class {
        self.verdict.as_deref().and_then(Class::named).unwrap_or_default()
    }
}

/// Runs trials one after the other on the cluster of these options.
///
/// # Errors
/// If the cluster cannot be started or reached, or refuses a statement for good.
pub(crate) async fn measure(
    options: &SiteOptions,
    load: &LoadOptions,
    trials: impl IntoIterator<Item = Trial>,
) -> anyhow::Result<Vec<Outcome>> {
    let mut site = Site::open(options, options.bound()).await?;
    let mut outcomes = Vec::new();
    for trial in trials {
        progress(&format!("{}: {}", trial.name, trial.about));
        let outcome = Box::pin(run(&site, &trial, load, options.seed)).await;
        if outcome.is_err() {
            site.remove(&[TABLE]).await;
        }
        outcomes.push(site.checked(outcome)?);
    }
    site.remove(&[TABLE]).await;
    Ok(outcomes)
}

async fn run(site: &Site, trial: &Trial, load: &LoadOptions, seed: u64) -> anyhow::Result<Outcome> {
    let Trial { columns, options, .. } = trial;
    site.make(TABLE, &format!("CREATE TABLE {TABLE} ({columns}) {options}")).await?;
    let time = Duration::from_secs(load.seconds);
    if trial.rows > 0 {
        site.fill(TABLE, trial.rows, &trial.row).await?;
        tokio::time::sleep(SETTLE.min(time)).await;
    }
    let mut clients = Clients::start(&site.servers, load.clients, &trial.work, seed).await?;
    let start = Instant::now();
    let mut verdict = None;
    watch(site, &mut verdict, start, time.mul_f64(1.0 - MEASURED_SHARE)).await?;
    let early = clients.look()?;
    watch(site, &mut verdict, start, time).await?;
    let late = clients.look()?;
    clients.finish().await;
    let count = |condition: &str| {
        format!(
            "SELECT count(*) FROM sys.split_events WHERE \"table\" = '{TABLE}' AND kind = 'split' AND {condition}"
        )
    };
    let cuts = site.number(&count("why LIKE 'load%'")).await?.unwrap_or(0.0);
    let in_vain = site.number(&count("in_vain")).await?.unwrap_or(0.0);
    let per_s = late.reads_per_s() + late.writes_per_s();
    let mut messages = early.messages;
    messages.extend(late.messages);
    messages.sort_unstable();
    messages.dedup();
    Ok(Outcome {
        name: trial.name,
        verdict_s: verdict.as_ref().map(|(_, second)| *second),
        verdict: verdict.map(|(class, _)| class),
        expected: trial.expected,
        cuts,
        in_vain,
        partitions: site.partitions(TABLE).await?,
        per_s,
        served: trial.offered_per_s.map(|offered_per_s| per_s / offered_per_s),
        failed: early.failed + late.failed,
        messages,
    })
}

/// Waits until so much time has passed since the start, and takes the first verdict on the hottest partition.
async fn watch(
    site: &Site,
    verdict: &mut Option<(String, f64)>,
    start: Instant,
    time: Duration,
) -> anyhow::Result<()> {
    let question = format!(
        "SELECT verdict FROM sys.hot_partitions WHERE \"table\" = '{TABLE}' ORDER BY rho_10s DESC LIMIT 1"
    );
    while start.elapsed() < time {
        tokio::time::sleep(POLL.min(time.saturating_sub(start.elapsed()))).await;
        if verdict.is_none() {
            let class = cell(site.ask(&question).await?);
            *verdict = class.map(|class| (class, start.elapsed().as_secs_f64()));
        }
    }
    Ok(())
}

/// The first cell of an answer.
fn cell(cells: Vec<Vec<Option<String>>>) -> Option<String> {
    cells.into_iter().next()?.into_iter().next()?
}

/// How the trials ran, in words.
pub(super) fn description(site: &SiteOptions, load: &LoadOptions) -> String {
    let limit = match site.bound() {
        Some(bound) => format!("one partition is limited to {bound:.0} rows written/s"),
        None => "the limit of one partition is unknown".to_owned(),
    };
    let LoadOptions { clients, seconds } = load;
    format!("Each workload ran for {seconds} s with {clients} clients; {limit}.")
}

/// Claims that each trial's class is right, and that no cut is in vain.
pub(super) fn claims(outcomes: &[Outcome]) -> Vec<Claim> {
    let claim = |outcome: &Outcome| {
        let names: Vec<&str> = outcome.expected.iter().map(|class| class.name()).collect();
        let claim = format!("{} is {}", outcome.name, names.join(" or "));
        match (&outcome.verdict, outcome.verdict_s) {
            (Some(verdict), Some(second)) => Claim::judged(
                &claim,
                format!("{verdict} after {second:.0} s"),
                outcome.expected.contains(&outcome.class()),
            ),
            _ => Claim::open(&claim, "no partition was hot"),
        }
    };
    let of_one_class = outcomes.iter().filter(|outcome| !outcome.expected.is_empty());
    let mut claims: Vec<Claim> = of_one_class.map(claim).collect();
    let (cuts, in_vain) = outcomes
        .iter()
        .fold((0.0, 0.0), |sums, outcome| (sums.0 + outcome.cuts, sums.1 + outcome.in_vain));
    claims.push(Claim::judged(
        "no cut is in vain",
        format!("{in_vain:.0} of {cuts:.0}"),
        in_vain == 0.0,
    ));
    claims
}

/// A line for each trial, behind the heads.
pub(crate) fn table(outcomes: &[Outcome]) -> Table {
    let mut table = heads(&[
        "workload",
        "verdict",
        "after s",
        "cuts",
        "in vain",
        "partitions",
        "requests/s",
        "served",
        "failed",
    ]);
    let dash = || "-".to_owned();
    for outcome in outcomes {
        table.push(vec![
            outcome.name.to_owned(),
            outcome.verdict.clone().unwrap_or_else(dash),
            outcome.verdict_s.map_or_else(dash, |second| format!("{second:.0}")),
            format!("{:.0}", outcome.cuts),
            format!("{:.0}", outcome.in_vain),
            format!("{:.0}", outcome.partitions),
            short(outcome.per_s),
            outcome.served.map_or_else(dash, |share| format!("{share:.2}")),
            outcome.failed.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Verdict;

    fn outcome(verdict: Option<&str>) -> Outcome {
        Outcome {
            name: "crdb-134566",
            verdict: verdict.map(str::to_owned),
            verdict_s: verdict.map(|_| 12.0),
            expected: &[Class::HotKey],
            cuts: 2.0,
            in_vain: 0.0,
            partitions: 3.0,
            per_s: 100.0,
            served: Some(0.4),
            failed: 0,
            messages: Vec::new(),
        }
    }

    #[test]
    fn a_trial_without_a_hot_partition_stays_open() {
        let verdict = |text| claims(&[outcome(text)])[0].verdict;
        assert_eq!(verdict(Some("HOT_KEY")), Verdict::Holds);
        assert_eq!(verdict(Some("SWEEP")), Verdict::Fails);
        assert_eq!(verdict(None), Verdict::Open);
        assert_eq!(outcome(None).class(), Class::Unknown);
        assert_eq!(table(&[outcome(None)])[1][1], "-");
        assert_eq!(table(&[outcome(None)])[1][7], "0.40");
    }

    #[test]
    fn where_any_class_is_right_only_cuts_are_judged() {
        let any = Outcome { expected: &[], in_vain: 1.0, ..outcome(Some("SWEEP")) };
        let claims = claims(&[any]);
        assert_eq!(claims.len(), 1);
        assert_eq!(claims[0].verdict, Verdict::Fails);
        assert_eq!(claims[0].measured, "1 of 2");
    }
}

//! `partita lab hotspot`: runs workloads of the catalogue on a real cluster, and compares key designs on the same
//! rows.
//!
//! ```text
//!   case: a workload (lab/hotspot) under a design
//!     ├─▶ before: its tables, the rows to read, the placement of leaders
//!     ├─▶ offer: operations, drawn by law and seed or recorded ─▶ drive: INSERTs and SELECTs in an open loop ─▶ a cluster
//!     │                                                        watch: the store's statistics each second ◀─┘
//!     │                                                        ask: verdict, advice, heatmap, fan-out of queries
//!     └─▶ twin: the virtual cluster                              ─▶ report: terminal, html, json; guide: Markdown
//! ```
//!
//! Invariants: runs do not overlap, and each has tables of its own; all runs of a workload have the same rows;
//! features that the store lacks are named in the report.

mod ask;
mod before;
mod case;
mod claims;
mod drive;
mod live;
mod offer;
mod options;
mod recorded;
mod twin;
mod watch;
mod written;

use std::ops::ControlFlow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use partita_hotspot::metrics::{FanOut, Second, Summary, Told};
use partita_hotspot::report::{Shown, pictures};
use partita_hotspot::workload::{Design, SqlTable, lacking};
use tokio::time::Instant;
use tokio_postgres::Client;

use crate::door::http::HttpDoor;
use crate::door::postgres::{self, connection, rows};
use crate::embedded::{Embedded, NODES};
use crate::report::say;
use crate::stop::stopped;
use case::{Case, Cases};
use claims::Shows;
use drive::{Counts, Drive, Plan};
use live::Live;
pub(crate) use options::Options;
use watch::{Reshaped, Watch};

/// Time before the first row, in which all writers get ready.
const LEAD: Duration = Duration::from_millis(500);
/// Seconds between heatmaps in the terminal.
const PICTURE_EVERY_S: u64 = 2;
/// Number of rows drawn to choose the entities that are queried.
const ASKED_FOR: usize = 64;

/// The cluster under load.
struct Target {
    /// Connection strings.
    servers: Vec<String>,
    http: HttpDoor,
    embedded: Option<Embedded>,
}

impl Target {
    async fn of(options: &Options, bound: Option<f64>, live: &mut Live) -> anyhow::Result<Self> {
        if options.connect.is_empty() {
            live.say(&format!("starting a cluster of {NODES} datanodes on this machine"));
            let binary = match &options.binary {
                Some(binary) => binary.clone(),
                None => std::env::current_exe().context("cannot find this binary")?,
            };
            let folder = options.data_dir.clone().unwrap_or_else(std::env::temp_dir);
            let embedded = Embedded::start(&binary, &folder, bound).await?;
            let servers = vec![connection(&embedded.postgres)?];
            let http = HttpDoor::new(&format!("http://{}", embedded.http));
            return Ok(Self { servers, http, embedded: Some(embedded) });
        }
        let servers: anyhow::Result<Vec<String>> =
            options.connect.iter().map(|address| connection(address)).collect();
        let http = HttpDoor::new(&format!("http://{}", options.http));
        Ok(Self { servers: servers?, http, embedded: None })
    }

    async fn client(&self) -> anyhow::Result<Client> {
        postgres::connect(&self.servers[0], "public").await
    }

    fn datanodes(&self) -> Vec<u32> {
        self.embedded.as_ref().map(Embedded::datanodes).unwrap_or_default()
    }

    fn check(&mut self) -> anyhow::Result<()> {
        self.embedded.as_mut().map_or(Ok(()), Embedded::check)
    }
}

/// A finished run with its results.
struct Run {
    shown: Shown,
    /// Prefix of its file names.
    slug: String,
    workload: Option<&'static str>,
    design: Option<Design>,
    rate: f64,
    splits_at: Vec<u64>,
    /// Statements that created its tables.
    created: Vec<String>,
    /// Column of the entity that rows belong to.
    entity: Option<String>,
    twin: Option<(Summary, Vec<u64>)>,
    /// Aspects of the workload that the run does not show.
    lacking: Vec<String>,
    /// Claims that it is judged by, if any.
    shows: Option<Shows>,
    /// Splits and merges of its first table.
    reshaped: Vec<Reshaped>,
    /// Result of the recommended statement, if it was tried.
    advice_ran: Option<Result<String, String>>,
}

/// Runs all selected cases, and reports.
///
/// # Errors
/// If the cluster cannot be started or reached, or refuses a table or its rows permanently.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    if options.list {
        return say(&case::list());
    }
    options.check()?;
    let cases = Cases::of(options)?;
    // Checked before runs of several minutes: can the report be written?
    for folder in std::iter::once(&options.out).chain(&options.guide) {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    tokio::select! {
        done = Box::pin(all(options, &cases)) => done,
        stopped = stopped() => {
            stopped?;
            bail!("stopped before the report");
        }
    }
}

async fn all(options: &Options, cases: &Cases) -> anyhow::Result<()> {
    let mut live = Live::new();
    if let (Some(path), Some(case)) = (&options.record, cases.all.first()) {
        let count = recorded::record(path, case)?;
        live.say(&format!("{count} operations are recorded in {}", path.display()));
    }
    let mut target = Target::of(options, cases.bound, &mut live).await?;
    let mut runs = Vec::new();
    for case in &cases.all {
        let ran = Box::pin(one(options, case, &mut target, &mut live)).await;
        // A process that ended explains more than the broken connection.
        target.check()?;
        let mut run = ran.with_context(|| format!("the run of {} failed", case.name))?;
        // The virtual cluster's lanes serve reads too, and it draws its operations itself.
        let comparable = !case.reads() && options.replay.is_none();
        if let Some(bound) = cases.bound.filter(|_| comparable) {
            let (loads, seconds, seed) = (case.loads.clone(), case.seconds, options.seed);
            let computed = move || twin::run(loads, NODES, bound, seconds, seed);
            run.twin = Some(tokio::task::spawn_blocking(computed).await?);
        }
        runs.push(run);
    }
    drop(target);
    written::write(options, cases, &runs)
}

fn now_us() -> anyhow::Result<i64> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros())?)
}

/// Entities that are queried at the end of a run.
fn entities(case: &Case, table: &SqlTable, seed: u64) -> Vec<i64> {
    let (mut entities, offer) = (Vec::with_capacity(ASKED_FOR), case.offer.with_seed(seed ^ 1));
    let drawn = offer.each(u64::MAX, |at_us, _, op| {
        entities.extend(table.row(at_us, op).map(|row| table.entity_of(&row)));
        if entities.len() < ASKED_FOR { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    // A trace was read to its end before the run and is not read again.
    drawn.map(|()| entities).unwrap_or_default()
}

/// Runs one case: prepares its tables, applies the load, and collects the results.
async fn one(
    options: &Options,
    case: &Case,
    target: &mut Target,
    live: &mut Live,
) -> anyhow::Result<Run> {
    // Tables, rows to read, and leaders.
    let client = target.client().await?;
    let (lead_us, connections) = (i64::try_from(LEAD.as_micros())?, options.connections as usize);
    let tables = before::tables(case, now_us()? + lead_us);
    if case.loads.iter().any(|load| !SqlTable::prior(load).is_empty()) {
        live.say(&format!("{}: loading the rows that it reads", case.name));
    }
    let (created, remarks) =
        before::prepare(&client, case, &tables, &target.servers, connections).await?;
    // The load, watched each second.
    let table = case.table(0);
    let (watched, datanodes) = (target.client().await?, target.datanodes());
    let mut watch = Watch::new(watched, &table, datanodes, case.reads()).await?;
    let begin = Instant::now() + LEAD;
    let plan = Plan {
        tables: before::tables(case, now_us()? + lead_us),
        offer: case.offer.clone(),
        batch: options.batch as usize,
        servers: target.servers.clone(),
        connections,
        seconds: case.seconds,
    };
    let drive = Drive::start(plan, begin).await?;
    follow(case, target, live, &drive, &mut watch, begin).await?;
    // While the samples are fresh.
    let explained = ask::explain(&client, &table).await;
    let counts = drive.finish().await;
    // After a repartition there are two heatmaps: of the former table, and of its successor.
    let former = watch.first.rekeyed.map(|_| ask::former(&table));
    let mut drawn = Vec::new();
    for name in former.iter().chain([&table]) {
        let map = ask::picture(&target.http, name, case.seconds + 5).await;
        drawn.extend(map.as_ref().map(pictures));
    }
    // Reads after the load: fan-out of queries, and the number of rows.
    let entity_reads = match tables[0].entity() {
        Some(entity) => {
            let users = entities(case, &tables[0], options.seed);
            ask::fan_out(&client, &table, entity, &users, now_us()?).await
        }
        None => None,
    };
    let count_rows = rows(&client, &format!("SELECT count(*) FROM {table}")).await;
    let row_count = count_rows.ok().and_then(|rows| rows.first()?.first()?.clone());
    // Findings, advice and the section of the report.
    let mut findings = explained.findings;
    findings.extend(findings_of(&watch, &counts));
    if let (Some((_, times)), Some(entity)) = (&entity_reads, tables[0].entity()) {
        let whose = if entity == "userid" { "user" } else { entity };
        findings.push(format!("a {whose}'s rows were read in {:.0} ms (median)", times[0]));
    }
    let reshaped = watch.reshaped().await;
    let advice_ran = match case.shows {
        Some(Shows::OneHotspot) => ask::try_advice(&client, &table, &explained.advice).await,
        _ => None,
    };
    let summary = summary(&watch, entity_reads.map(|(fan_out, _)| fan_out));
    let section = Shown {
        name: case.name.clone(),
        about: case.about.clone(),
        note: note(options, case, &counts, row_count.as_deref(), &watch, &created.join("; ")),
        pictures: drawn,
        findings,
        advice: explained.advice,
        seconds: watch.seconds,
        summary,
    };
    if target.embedded.is_some() {
        // Its partitions must not burden the next run; a failure here does not fail the run.
        for table in &tables {
            client.batch_execute(&format!("DROP TABLE IF EXISTS {}", table.name())).await.ok();
        }
    }
    let lacking = lacking(&case.loads).into_iter().map(str::to_owned).chain(remarks);
    Ok(Run {
        shown: section,
        slug: case.slug('-'),
        workload: case.workload,
        design: case.design,
        rate: case.knobs.rate,
        splits_at: watch.first.splits_at,
        created,
        entity: tables[0].entity().map(str::to_owned),
        twin: None,
        lacking: lacking.collect(),
        shows: case.shows,
        reshaped,
        advice_ran,
    })
}

/// Summary of a run.
fn summary(watch: &Watch, fan_out: Option<FanOut>) -> Summary {
    let observed = Told {
        policy: "partita",
        measured: true,
        t_detect_s: watch.first.hot_s,
        t_verdict_s: watch.first.verdict_s,
        verdicts: watch.first.classes.clone(),
        load_splits_after_moving: watch.first.load_splits_after_moving,
        rekeyed: watch.first.rekeyed,
        fan_out,
        ..Told::default()
    };
    Summary::of_seconds(&watch.seconds, observed)
}

/// Observations during the run.
fn findings_of(watch: &Watch, counts: &Counts) -> Vec<String> {
    let rekeyed = watch.first.rekeyed.map(|(second, partitions)| {
        format!(
            "after {second} s the store placed new rows by hash in {partitions} partitions; existing rows stay in a table whose name ends in $former"
        )
    });
    let mut findings: Vec<String> = rekeyed.into_iter().collect();
    findings.extend(counts.messages().into_iter().map(|text| format!("rejected: {text}")));
    if counts.unsaid() > 0 {
        findings.push(format!(
            "{} operations cannot be expressed in SQL and were left out",
            counts.unsaid()
        ));
    }
    findings
}

/// Watches a run to its end, and shows it.
async fn follow(
    case: &Case,
    target: &mut Target,
    live: &mut Live,
    drive: &Drive,
    watch: &mut Watch,
    begin: Instant,
) -> anyhow::Result<()> {
    tokio::time::sleep_until(begin).await;
    watch.begin();
    let (table, mut map) = (case.table(0), None);
    for second in 1..=case.seconds {
        tokio::time::sleep_until(begin + Duration::from_secs(second)).await;
        watch.second(second, case.offer.offered(second), &drive.counts).await;
        if live.wants_picture() && second.is_multiple_of(PICTURE_EVERY_S) {
            map = ask::picture(&target.http, &table, case.seconds).await.or(map);
        }
        if let Some(line) = watch.seconds.last() {
            live.second(&case.name, case.seconds, line, map.as_ref());
        }
        if let Some(failure) = drive.counts.failure() {
            bail!("{failure}");
        }
        target.check()?;
    }
    Ok(())
}

/// Last line of a run's section: totals of its statements, and the tables' statements.
fn note(
    options: &Options,
    case: &Case,
    counts: &Counts,
    row_count: Option<&str>,
    watch: &Watch,
    created: &str,
) -> String {
    let whole = watch.all.summary();
    let batch = options.batch;
    let (answered, statement) = if case.reads() {
        let answered = format!("{} reads were answered. ", counts.answered());
        (answered, format!("a read, or an INSERT of up to {batch} rows,"))
    } else {
        (String::new(), format!("an INSERT of {batch} rows"))
    };
    format!(
        "{} rows were acknowledged, the table has {}. {answered}Latency of {statement} over the whole run, from its due time: p50 {:.0} ms, p99 {:.0} ms, max {:.0} ms. {created}",
        counts.stored(),
        row_count.unwrap_or("an unknown number"),
        whole.p50_ms,
        whole.p99_ms,
        whole.max_ms
    )
}

/// Last second of a run.
fn last(run: &Run) -> Option<&Second> {
    run.shown.seconds.last()
}

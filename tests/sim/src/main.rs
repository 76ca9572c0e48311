//! Runs a whole cluster in one process from a seed and checks its guarantees.
//!
//! ```text
//!   main ── run ──┬── nodes: metas and datanodes, over simulated disks, files and networks
//!                 ├── client: what the workload says, into the history and the ledger
//!                 ├── reshapes: splits and merges partitions
//!                 ├── nemesis: faults
//!                 └── invariants: conditions that must hold at all times
//!   time, random: replace the system's clock and random numbers
//! ```
//!
//! The production code of meta, datanodes, engine and replication runs unchanged on top of simulated
//! implementations of its traits for the network and disks. One thread runs everything; blocking work runs in
//! place.
//!
//! Invariant: with the same binary, a seed always gives the same history.

mod claims;
mod client;
mod cluster;
mod files;
mod history;
mod invariants;
mod ledger;
mod nemesis;
mod net;
mod nodes;
mod random;
mod remote;
mod reshapes;
mod run;
mod tables;
mod time;
mod wide_rows;
mod workload;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Parser;
use partita_proto::blocking;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use self::workload::Workload;

/// Number of panics in all tasks, which are otherwise not noticed.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Options of a run.
#[derive(Parser)]
struct Options {
    /// Seed; it determines everything in the run.
    #[arg(long)]
    seed: u64,
    /// Simulated seconds with faults.
    #[arg(long, default_value_t = 40)]
    seconds: u64,
    /// What the clients do.
    #[arg(long, value_enum, default_value = "mixed")]
    workload: Workload,
    /// Print every event as it happens.
    #[arg(long)]
    trace: bool,
    /// Continue after a violation, to see its consequences, too.
    #[arg(long)]
    whole: bool,
    /// Bug to plant: skip-sync, forget-vote, early-ack, stranger, trust-rot, keep-failed, trust-old, ack-unopened,
    /// ignore-sync, take-over, any-catalog, trust-numbers, read-unasked, lose-updates, forget-writes or leave-out.
    #[cfg(feature = "planted-bugs")]
    #[arg(long)]
    plant: Option<String>,
}

#[cfg(feature = "planted-bugs")]
fn plant(options: &Options) -> Result<(), String> {
    use partita_raft::planted::{Plant, plant};
    match options.plant.as_deref() {
        None => {}
        Some("skip-sync") => plant(Plant::SkipSync),
        Some("forget-vote") => plant(Plant::ForgetVote),
        Some("early-ack") => plant(Plant::EarlyAck),
        Some("stranger") => plant(Plant::Stranger),
        Some("trust-rot") => plant(Plant::TrustRot),
        Some("keep-failed") => plant(Plant::KeepFailed),
        Some("trust-old") => plant(Plant::TrustOld),
        Some("ack-unopened") => plant(Plant::AckUnopened),
        Some("ignore-sync") => plant(Plant::IgnoreSync),
        Some("take-over") => plant(Plant::TakeOver),
        Some("any-catalog") => plant(Plant::AnyCatalog),
        Some("trust-numbers") => plant(Plant::TrustNumbers),
        Some("read-unasked") => plant(Plant::ReadUnasked),
        Some("lose-updates") => plant(Plant::LoseUpdates),
        Some("forget-writes") => plant(Plant::ForgetWrites),
        Some("leave-out") => partita_engine::planted::leave_out(),
        Some(name) => return Err(format!("there is no bug {name} to plant")),
    }
    Ok(())
}

#[cfg(not(feature = "planted-bugs"))]
#[allow(clippy::unnecessary_wraps, reason = "as with the feature")]
fn plant(_options: &Options) -> Result<(), String> {
    Ok(())
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Err(why) = plant(&options) {
        eprintln!("{why}");
        return ExitCode::from(2);
    }
    tracing_subscriber::fmt()
        .with_env_filter(
            EnvFilter::builder().with_default_directive(LevelFilter::OFF.into()).from_env_lossy(),
        )
        .with_writer(std::io::stderr)
        .init();
    random::seed_system(options.seed);
    blocking::stay_in_place();
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        default(info);
    }));
    // Time advances only when no task can run, so every task must get its turn before that.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .event_interval(u32::MAX)
        .global_queue_interval(31)
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("cannot start the runtime: {error}");
            return ExitCode::from(2);
        }
    };
    let seconds = Duration::from_secs(options.seconds);
    let outcome = runtime.block_on(async {
        tokio::spawn(time::keep());
        Box::pin(run::run(&options, seconds)).await
    });
    let code = report(&options, &outcome);
    runtime.shutdown_background();
    code
}

fn report(options: &Options, outcome: &run::Outcome) -> ExitCode {
    let history = &outcome.cluster.history;
    let panics = PANICS.load(Ordering::SeqCst);
    let violations = history.violations();
    let verdict = if violations.is_empty() && panics == 0 { "ok" } else { "FAILED" };
    let ledger = &outcome.cluster.ledger;
    let work = match options.workload {
        Workload::Mixed => {
            format!("{} rows, {} operations on keys", outcome.acknowledged, outcome.operations)
        }
        Workload::Counters | Workload::Wide => {
            format!("{} counted changes, {} numbers", ledger.counted(), ledger.given())
        }
    };
    println!(
        "seed {} {verdict}: digest {:016x}, {work}, {} splits, {} merges, {} replicas compared, {:.1} s simulated",
        options.seed,
        history.digest(),
        history.splits(),
        history.merges(),
        outcome.compared,
        outcome.simulated.as_secs_f64(),
    );
    // Without a fault there is nothing to explain.
    if verdict == "ok" {
        return ExitCode::SUCCESS;
    }
    if !options.trace {
        for line in history.tail(15) {
            println!("    {line}");
        }
    }
    // The first violations; what follows them is often a consequence.
    for violation in violations.iter().take(20) {
        println!("  {violation}");
    }
    if panics > 0 {
        println!("  {panics} panics");
    }
    ExitCode::FAILURE
}

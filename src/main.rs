//! The one binary of Partita: every role, and the tools that speak to them.

mod address_book;
mod admin;
mod clock;
mod data_dir;
mod datanode;
mod doors;
mod faults;
mod fetch;
mod files_limit;
mod frontend;
mod generation;
mod health;
mod heart;
mod heatmap;
mod hot;
mod load;
mod memory;
mod meta;
mod orphan;
mod peers;
mod rejoin;
mod sql;
mod standalone;
mod storage;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tikv_jemallocator::Jemalloc;
use tracing_subscriber::EnvFilter;

/// Batches of rows come and go in all sizes on all threads: glibc's allocator kept most of their memory
/// for good, and took longer over it.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Address space for the stack of a thread. Statements are planned on threads with more; here their syntax trees are
/// copied and dropped, by recursion.
const STACK_BYTES: usize = 16 << 20;

/// A distributed, partitioned, Raft-replicated SQL table store for time-series and event data.
#[derive(Parser)]
#[command(name = "partita", version, about, max_term_width = 100, args_override_self = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run every role in one process.
    #[command(args_override_self = true)]
    Standalone(standalone::Options),
    /// Run a member of the group that keeps a cluster's catalog.
    #[command(args_override_self = true)]
    Meta(meta::Options),
    /// Run a node that holds a cluster's rows.
    #[command(args_override_self = true)]
    Datanode(datanode::Options),
    /// Run the doors of a cluster: PostgreSQL, HTTP, Flight.
    #[command(args_override_self = true)]
    Frontend(frontend::Options),
    /// Look after a cluster: nodes, replicas, leaders.
    Admin(admin::Options),
    /// Ask whether a process serves.
    Health(health::Options),
    /// Show where in a table's keys its load lies, over time.
    #[command(args_override_self = true)]
    Heatmap(heatmap::Options),
    /// Show the partitions that bear too much, and why.
    #[command(args_override_self = true)]
    Hot(hot::Options),
    /// Say why a table is hot, and what other keys would do for it.
    #[command(args_override_self = true)]
    Advise(hot::AdviseOptions),
    /// Run SQL: one statement, a file, or an interactive session.
    Sql(sql::Options),
    /// Load a file (line protocol, CSV or Parquet).
    Load(load::Options),
    /// Make load and ask questions, here or of other servers, and measure.
    #[command(subcommand)]
    Lab(partita_lab::Command),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(error) = orphan::watch() {
        return failed(&error);
    }
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = match builder.enable_all().thread_stack_size(STACK_BYTES).build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&anyhow::anyhow!("cannot start the runtime: {error}")),
    };
    let result = match cli.command {
        Command::Standalone(options) => {
            log_to_stderr("info");
            files_limit::raise();
            runtime.block_on(Box::pin(standalone::run(options)))
        }
        Command::Meta(options) => {
            log_to_stderr("info");
            files_limit::raise();
            runtime.block_on(Box::pin(meta::run(options)))
        }
        Command::Datanode(options) => {
            log_to_stderr("info");
            files_limit::raise();
            runtime.block_on(Box::pin(datanode::run(options)))
        }
        Command::Frontend(options) => {
            log_to_stderr("info");
            files_limit::raise();
            runtime.block_on(Box::pin(frontend::run(options)))
        }
        Command::Admin(options) => {
            log_to_stderr("warn");
            runtime.block_on(Box::pin(admin::run(options)))
        }
        Command::Health(options) => {
            log_to_stderr("warn");
            runtime.block_on(Box::pin(health::run(options)))
        }
        Command::Heatmap(options) => {
            log_to_stderr("warn");
            runtime.block_on(Box::pin(heatmap::run(options)))
        }
        Command::Hot(options) => {
            log_to_stderr("warn");
            runtime.block_on(Box::pin(hot::run(options)))
        }
        Command::Advise(options) => {
            log_to_stderr("warn");
            runtime.block_on(Box::pin(hot::advise(options)))
        }
        Command::Sql(options) => {
            log_to_stderr("warn");
            runtime.block_on(Box::pin(sql::run(options)))
        }
        Command::Load(options) => {
            log_to_stderr("warn");
            runtime.block_on(Box::pin(load::run(options)))
        }
        Command::Lab(command) => {
            log_to_stderr("warn");
            runtime.block_on(Box::pin(partita_lab::run(command)))
        }
    };
    // Tasks that still wait for a client, or computations that nobody waits for, must not keep the process.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

#[expect(clippy::print_stderr, reason = "the last word of a command goes to its terminal")]
fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("partita: {error:#}");
    ExitCode::FAILURE
}

/// Log lines go to standard error, at the level that `PARTITA_LOG` or `default` names. openraft
/// reports every step of every group; only its errors are wanted unless somebody asks.
fn log_to_stderr(default: &str) {
    let filter = EnvFilter::try_from_env("PARTITA_LOG")
        .unwrap_or_else(|_| EnvFilter::new(format!("{default},openraft=error,sled=warn")));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn no_command_contradicts_itself() {
        Cli::command().debug_assert();
    }
}

//! The one binary of Partita: all roles, and the client tools.

mod address_book;
mod admin;
mod certificates;
mod certs;
mod client;
mod clock;
mod data_dir;
mod datanode;
mod doors;
mod dump;
mod faults;
mod fetch;
mod files_limit;
mod frontend;
mod generation;
mod health;
mod heart;
mod heatmap;
mod hot;
mod influx;
mod lint;
mod load;
mod memory;
mod meta;
mod orphan;
mod outlet;
mod password;
mod peers;
mod rejoin;
mod sql;
mod standalone;
mod storage;
mod switch;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tikv_jemallocator::Jemalloc;
use tracing_subscriber::EnvFilter;

/// Batches of rows of all sizes are allocated and freed on all threads: glibc's allocator never returned most of
/// their memory, and was slower.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Stack size of a thread (address space). Statements are planned on threads with larger stacks; on these, their
/// syntax trees are copied and dropped, by recursion.
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
    /// Run a node that stores a cluster's rows.
    #[command(args_override_self = true)]
    Datanode(datanode::Options),
    /// Run a cluster's frontend: PostgreSQL, HTTP, Flight.
    #[command(args_override_self = true)]
    Frontend(frontend::Options),
    /// Administer a cluster: nodes, replicas, leaders.
    Admin(admin::Options),
    /// Make the certificates of a cluster's processes.
    Certs(certs::Options),
    /// Check whether a process serves.
    Health(health::Options),
    /// Show the load of a table by key and time.
    #[command(args_override_self = true)]
    Heatmap(heatmap::Options),
    /// Show overloaded partitions, and why they are overloaded.
    #[command(args_override_self = true)]
    Hot(hot::Options),
    /// Find mistakes in the schemas of tables, or explain why a table is hot.
    #[command(args_override_self = true)]
    Advise(hot::AdviseOptions),
    /// Find mistakes in a schema without a server.
    Lint(lint::Options),
    /// Run SQL: one statement, a file, or an interactive session.
    Sql(sql::Options),
    /// Load a file (line protocol, CSV, NDJSON or Parquet), or the directory of a dump.
    Load(load::Options),
    /// Dump the definitions and rows of a database into a directory.
    Dump(dump::Options),
    /// Create, list and delete buckets.
    Bucket(influx::bucket::Options),
    /// Add measurements to buckets with an explicit schema.
    BucketSchema(influx::bucket_schema::Options),
    /// Create, list and delete API tokens.
    Auth(influx::auth::Options),
    /// Create and list organisations.
    Org(influx::org::Options),
    /// Generate load and run queries, here or against other servers, and measure.
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
    // The code of a command that succeeds.
    let mut exit_code = ExitCode::SUCCESS;
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
        Command::Certs(options) => {
            log_to_stderr("warn");
            runtime.block_on(Box::pin(certs::run(options)))
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
            let code = runtime.block_on(Box::pin(hot::advise(options)));
            code.map(|code| exit_code = code)
        }
        Command::Lint(options) => {
            log_to_stderr("warn");
            lint::run(&options).map(|code| exit_code = code)
        }
        Command::Sql(options) => {
            log_to_stderr("warn");
            let code = runtime.block_on(Box::pin(sql::run(options)));
            code.map(|code| exit_code = code)
        }
        Command::Load(options) => {
            log_to_stderr("warn");
            runtime.block_on(Box::pin(load::run(options)))
        }
        Command::Dump(options) => {
            log_to_stderr("warn");
            runtime.block_on(Box::pin(dump::run(options)))
        }
        Command::Bucket(options) => {
            log_to_stderr("warn");
            runtime.block_on(Box::pin(influx::bucket::run(options)))
        }
        Command::BucketSchema(options) => {
            log_to_stderr("warn");
            runtime.block_on(Box::pin(influx::bucket_schema::run(options)))
        }
        Command::Auth(options) => {
            log_to_stderr("warn");
            runtime.block_on(Box::pin(influx::auth::run(options)))
        }
        Command::Org(options) => {
            log_to_stderr("warn");
            runtime.block_on(Box::pin(influx::org::run(options)))
        }
        Command::Lab(command) => {
            log_to_stderr("warn");
            runtime.block_on(Box::pin(partita_lab::run(command)))
        }
    };
    // Tasks that wait for a client, and computations without a waiting client, must not keep the process alive.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    match result {
        Ok(()) => exit_code,
        Err(error) => failed(&error),
    }
}

#[expect(clippy::print_stderr, reason = "a command reports its error on its terminal")]
fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("partita: {error:#}");
    ExitCode::FAILURE
}

/// Sends log lines to standard error, at the level in `PARTITA_LOG`, or else `default`. openraft reports every step
/// of every group; by default only its errors are shown.
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

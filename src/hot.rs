//! `partita hot` and `partita advise`: overloaded partitions with the reasons, and remedies. Each is a statement,
//! which --sql shows.

use anyhow::bail;

use crate::client;
use crate::sql;

/// Statement of `partita hot`; without --all, partitions that are not busy are filtered out.
const HOT: &str = "SELECT \"table\", partition, start_key, end_key, leader, round(rho_10s, 2) AS rho, \
                   round(share, 2) AS share, verdict, meaning FROM sys.hot_partitions";
/// Busy share from which a partition counts as hot.
const HOT_ONLY: &str = "rho_10s >= 0.5";

/// Server to ask, and form of the output.
#[derive(clap::Args)]
struct Asking {
    /// PostgreSQL address of a frontend.
    #[arg(long, env = "PARTITA_POSTGRES", default_value = "127.0.0.1:4003")]
    connect: String,
    /// Database to connect to.
    #[arg(short, long, default_value = "public")]
    database: String,
    /// Print values separated by tabs, without a frame.
    #[arg(short, long)]
    plain: bool,
    /// Print the statement instead of running it.
    #[arg(long)]
    sql: bool,
    #[command(flatten)]
    client: client::Options,
}

/// Options of `partita hot`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Show all partitions with a verdict, busy or not.
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    asking: Asking,
}

/// Options of `partita advise`.
#[derive(clap::Args)]
pub(crate) struct AdviseOptions {
    /// Name of the table.
    table: String,
    #[command(flatten)]
    asking: Asking,
}

/// Shows hot partitions, the busiest first.
///
/// # Errors
/// If the frontend cannot be reached, or refuses.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let only = if options.all { String::new() } else { format!(" WHERE {HOT_ONLY}") };
    ask(&options.asking, &format!("{HOT}{only} ORDER BY rho_10s DESC")).await
}

/// Shows why a table is hot, and the expected effect of other keys.
///
/// # Errors
/// If the frontend cannot be reached, or refuses.
pub(crate) async fn advise(options: AdviseOptions) -> anyhow::Result<()> {
    ask(&options.asking, &format!("EXPLAIN HOTSPOT {}", sql::quote(&options.table))).await
}

async fn ask(asking: &Asking, statement: &str) -> anyhow::Result<()> {
    if asking.sql {
        return Ok(sql::say(statement)?);
    }
    let client = sql::connect(&asking.client, &asking.connect, &asking.database).await?;
    match sql::execute(&client, statement, asking.plain).await {
        Ok(()) => Ok(()),
        Err(error) => bail!("{}", sql::describe(&error)),
    }
}

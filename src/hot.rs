//! `partita hot` and `partita advise`: which partitions bear too much and why, and what would help. Each is a statement,
//! which it shows with --sql.

use anyhow::bail;

use crate::sql;

/// What `partita hot` asks; those that are judged without being busy are left out unless everything is wanted.
const HOT: &str = "SELECT \"table\", partition, start_key, end_key, leader, round(rho_10s, 2) AS rho, \
                   round(share, 2) AS share, verdict, meaning FROM sys.hot_partitions";
/// From this busy share on, a partition is hot.
const HOT_ONLY: &str = "rho_10s >= 0.5";

/// Where to ask, and how to show it.
#[derive(clap::Args)]
struct Asking {
    /// A frontend's PostgreSQL address.
    #[arg(long, env = "PARTITA_POSTGRES", default_value = "127.0.0.1:4003")]
    connect: String,
    /// The database.
    #[arg(short, long, default_value = "public")]
    database: String,
    /// Print values separated by tabs, without a frame.
    #[arg(short, long)]
    plain: bool,
    /// Only show the statement.
    #[arg(long)]
    sql: bool,
}

/// Options of `partita hot`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// All that are judged, busy or not.
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    asking: Asking,
}

/// Options of `partita advise`.
#[derive(clap::Args)]
pub(crate) struct AdviseOptions {
    /// The table.
    table: String,
    #[command(flatten)]
    asking: Asking,
}

/// Shows hot partitions, the busiest first.
///
/// # Errors
/// When the frontend cannot be reached, or refuses.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let only = if options.all { String::new() } else { format!(" WHERE {HOT_ONLY}") };
    ask(&options.asking, &format!("{HOT}{only} ORDER BY rho_10s DESC")).await
}

/// Shows why a table is hot, and what other keys would do for it.
///
/// # Errors
/// When the frontend cannot be reached, or refuses.
pub(crate) async fn advise(options: AdviseOptions) -> anyhow::Result<()> {
    ask(&options.asking, &format!("EXPLAIN HOTSPOT {}", quote(&options.table))).await
}

async fn ask(asking: &Asking, statement: &str) -> anyhow::Result<()> {
    if asking.sql {
        return Ok(sql::say(statement)?);
    }
    let client = sql::connect(&asking.connect, &asking.database).await?;
    match sql::execute(&client, statement, asking.plain).await {
        Ok(()) => Ok(()),
        Err(error) => bail!("{}", sql::describe(&error)),
    }
}

/// A name as it is, whatever it contains.
fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

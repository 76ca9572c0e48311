//! `partita hot` and `partita advise`: overloaded partitions with the reasons, mistakes in schemas, and remedies. Each is a
//! statement, which --sql shows.

use std::process::ExitCode;

use anyhow::{Context, bail};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::client;
use crate::sql;

/// Statement of `partita hot`. Writes and reads make a partition busy alike.
const HOT: &str = "SELECT \"table\", partition, start_key, end_key, leader, \
                   round(greatest(rho_10s, reads_rho), 2) AS busy, \
                   round(greatest(share, read_share), 2) AS share, verdict, meaning FROM sys.hot_partitions \
                   ORDER BY greatest(rho_10s, reads_rho) DESC";
/// Statement of `partita hot --all`.
const ALL: &str = "SELECT \"table\", partition, start_key, end_key, leader, \
                   round(greatest(rho_10s, reads_rho), 2) AS busy, \
                   round(greatest(share, read_share), 2) AS share, standing, verdict FROM sys.partition_load \
                   ORDER BY greatest(rho_10s, reads_rho) DESC";

/// Columns of `sys.advice` that are printed as a table, the objects first.
const ADVICE: &str = "SELECT object, rule, severity, advice, ddl FROM sys.advice";
/// The same as JSON: one column with an object in each row.
const ADVICE_FIGURES: &str = "SELECT rule, severity, object, evidence, advice, ddl, predicted_effect, since, source FROM sys.advice";
/// Exit code of a command that has found what it was to fail on.
const FOUND: u8 = 3;

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
    /// Show all partitions, hot or not, with the state of their load.
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    asking: Asking,
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Level {
    /// A chance to improve.
    Info,
    /// A mistake that costs space or time.
    Warning,
    /// A mistake that limits the table.
    Error,
}

impl Level {
    /// The level with a name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        <Self as clap::ValueEnum>::from_str(name, false).ok()
    }

    /// The code with which a command ends that has found these levels.
    pub(crate) fn exit(fail_on: Option<Self>, worst: Option<Self>) -> ExitCode {
        match (fail_on, worst) {
            (Some(least), Some(worst)) if worst >= least => ExitCode::from(FOUND),
            _ => ExitCode::SUCCESS,
        }
    }
}

/// Options of `partita advise`.
#[derive(clap::Args)]
pub(crate) struct AdviseOptions {
    /// Name of the table, with its database and a dot if that is another one; all tables by default.
    table: Option<String>,
    /// Explain why the table is hot, and what other keys would change.
    #[arg(long, requires = "table")]
    hot: bool,
    /// Print the findings as a JSON array.
    #[arg(long, conflicts_with_all = ["hot", "plain"])]
    json: bool,
    /// Exit with code 3 if there is a finding of this severity or a worse one.
    #[arg(long, value_enum, value_name = "SEVERITY", conflicts_with = "hot")]
    fail_on: Option<Level>,
    #[command(flatten)]
    asking: Asking,
}

/// Shows hot partitions, the busiest first.
///
/// # Errors
/// If the frontend cannot be reached, or refuses.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let asking = &options.asking;
    if options.all || asking.sql {
        return ask(asking, if options.all { ALL } else { HOT }).await;
    }
    let client = sql::connect(&asking.client, &asking.connect, &asking.database).await?;
    match sql::execute_if_any(&client, HOT, asking.plain).await {
        Ok(false) if !asking.plain => Ok(sql::say("no partition is hot")?),
        Ok(_) => Ok(()),
        Err(error) => bail!("{}", sql::describe(&error)),
    }
}

/// A table as statements name it. What stands before the first dot is its database.
fn quoted(table: &str) -> String {
    match table.split_once('.') {
        Some((database, name)) => format!("{}.{}", sql::quote(database), sql::quote(name)),
        None => sql::quote(table),
    }
}

/// Statement of the findings about a table, or about all of them. One that asks for a table fails if that does not exist.
fn asked(table: Option<&str>, columns: &str) -> String {
    match table {
        Some(table) => format!("ADVISE TABLE {}", quoted(table)),
        None => columns.to_owned(),
    }
}

/// Shows findings about schemas, or why a table is hot and the expected effect of other keys.
///
/// # Errors
/// If the frontend cannot be reached, or refuses.
pub(crate) async fn advise(options: AdviseOptions) -> anyhow::Result<ExitCode> {
    let asking = &options.asking;
    if let Some(table) = options.table.as_ref().filter(|_| options.hot) {
        ask(asking, &format!("EXPLAIN HOTSPOT {}", quoted(table))).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let table = options.table.as_deref();
    if asking.sql {
        sql::say(&asked(table, if options.json { ADVICE_FIGURES } else { ADVICE }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let client = sql::connect(&asking.client, &asking.connect, &asking.database).await?;
    let failed = |error: tokio_postgres::Error| anyhow::anyhow!("{}", sql::describe(&error));
    // One look for both the output and the exit code.
    let findings = findings(&client, &asked(table, ADVICE_FIGURES)).await.map_err(failed)?;
    let severities = findings.iter().filter_map(|finding| finding.get("severity")?.as_str());
    let worst = severities.filter_map(Level::of).max();
    if options.json {
        sql::say(&serde_json::to_string_pretty(&findings).context("the findings are no JSON")?)?;
    } else {
        for finding in &findings {
            sql::say(&described(finding, asking.plain))?;
        }
        if !asking.plain {
            sql::say(&format!("({} findings)", findings.len()))?;
        }
    }
    Ok(Level::exit(options.fail_on, worst))
}

/// The findings that a statement returns, as JSON objects; evidence and effect are objects in them.
async fn findings(
    client: &Client,
    statement: &str,
) -> Result<Vec<serde_json::Value>, tokio_postgres::Error> {
    let mut findings = Vec::new();
    for message in client.simple_query(statement).await? {
        let SimpleQueryMessage::Row(row) = message else { continue };
        let mut finding = serde_json::Map::new();
        for (position, column) in row.columns().iter().enumerate() {
            let text: Option<&str> = row.get(position);
            let is_object = ["evidence", "predicted_effect"].contains(&column.name());
            let parsed: Option<serde_json::Value> =
                text.filter(|_| is_object).and_then(|text| serde_json::from_str(text).ok());
            finding.insert(column.name().to_owned(), parsed.unwrap_or_else(|| text.into()));
        }
        findings.push(serde_json::Value::Object(finding));
    }
    Ok(findings)
}

/// A finding as text: one line of tabs, or a paragraph with its statements.
pub(crate) fn described(finding: &serde_json::Value, plain: bool) -> String {
    let text =
        |name: &str| finding.get(name).and_then(serde_json::Value::as_str).unwrap_or_default();
    let head = [text("severity"), text("rule"), text("object"), text("advice")];
    if plain {
        return head.join("\t");
    }
    let mut paragraph = format!("{} {} {}: {}", head[0], head[1], head[2], head[3]);
    if let Some(evidence) = finding.get("evidence").filter(|evidence| !evidence.is_null()) {
        paragraph.push_str(&format!("\n  evidence: {evidence}"));
    }
    for line in text("ddl").lines() {
        paragraph.push_str(&format!("\n  {line}"));
    }
    paragraph
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_fails_on_what_is_at_least_as_bad() {
        let code = |fail_on, worst| format!("{:?}", Level::exit(fail_on, worst));
        let (success, failure) =
            (format!("{:?}", ExitCode::SUCCESS), format!("{:?}", ExitCode::from(3)));
        assert_eq!(code(Some(Level::Warning), Some(Level::Error)), failure);
        assert_eq!(code(Some(Level::Warning), Some(Level::Warning)), failure);
        assert_eq!(code(Some(Level::Warning), Some(Level::Info)), success);
        assert_eq!(code(Some(Level::Info), None), success);
        assert_eq!(code(None, Some(Level::Error)), success);
        assert_eq!(Level::of("warning"), Some(Level::Warning));
    }

    #[test]
    fn findings_are_those_of_the_table() {
        assert_eq!(asked(Some("t"), ADVICE), "ADVISE TABLE \"t\"");
        assert_eq!(asked(Some("db.it\"s"), ADVICE), "ADVISE TABLE \"db\".\"it\"\"s\"");
        assert_eq!(asked(Some("a.b.c"), ADVICE), "ADVISE TABLE \"a\".\"b.c\"");
        assert_eq!(asked(None, ADVICE), ADVICE);
    }

    #[test]
    fn a_finding_is_a_paragraph_with_its_statements() {
        let finding = serde_json::json!({
            "severity": "warning", "rule": "A17", "object": "public.t.level", "advice": "use STRING",
            "evidence": { "type": "REAL" }, "ddl": "SELECT 1;\nSELECT 2;",
        });
        assert_eq!(
            described(&finding, false),
            "warning A17 public.t.level: use STRING\n  evidence: {\"type\":\"REAL\"}\n  SELECT 1;\n  SELECT 2;"
        );
        assert_eq!(described(&finding, true), "warning\tA17\tpublic.t.level\tuse STRING");
    }
}

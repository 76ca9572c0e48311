//! What is done before the clock starts: the tables are made, rows that are read later are loaded, leaders are put where
//! the workload has them.
//!
//! Invariant: what could not be done is an error, or said; nothing of it counts as served.

use std::time::Duration;

use partita_hotspot::workload::{Spread, SqlTable};
use tokio::time::Instant;
use tokio_postgres::Client;

use super::case::Case;
use super::drive;
use crate::door::postgres::{self, rows};

/// How long leaders may take to be where they are told to.
const LEADERS_WAIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(200);

/// The tables of a run that begins then.
pub(super) fn tables(case: &Case, begin_us: i64) -> Vec<SqlTable> {
    let of = |(at, load)| SqlTable::of(load, &case.table(at), begin_us);
    case.loads.iter().enumerate().map(of).collect()
}

/// Makes the tables, and loads what is there before the first operation; the statements that made them, and what could not
/// be done.
///
/// # Errors
/// When a table cannot be made or loaded.
pub(super) async fn prepare(
    client: &Client,
    case: &Case,
    tables: &[SqlTable],
    servers: &[String],
    connections: usize,
) -> anyhow::Result<(Vec<String>, Vec<String>)> {
    let (mut made, mut remarks) = (Vec::new(), Vec::new());
    for (table, load) in tables.iter().zip(&case.loads) {
        let created = table.create();
        for text in [format!("DROP TABLE IF EXISTS {}", table.name()), created.clone()] {
            let done = client.batch_execute(&text).await;
            done.map_err(|error| anyhow::anyhow!("{}: {text}", postgres::failure(&error).message))?;
        }
        made.push(created);
        let prior = SqlTable::prior(load);
        if !prior.is_empty() {
            drive::load(table.clone(), prior, servers, connections).await?;
        }
        let partitions = load.cuts.len() + 1;
        let one = load.spread == Spread::OneNode;
        if one && !on_one_node(client, table.name(), partitions).await {
            remarks.push(format!(
                "{} did not begin with all of its leaders on one node.",
                table.name()
            ));
        }
    }
    Ok((made, remarks))
}

/// Has one node lead all partitions of a table, of which there are so many; whether it does.
async fn on_one_node(client: &Client, table: &str, partitions: usize) -> bool {
    let leaders = format!(
        "SELECT partition, node FROM sys.replicas WHERE \"table\" = '{table}' AND role = 'leader' ORDER BY partition"
    );
    let deadline = Instant::now() + LEADERS_WAIT;
    let mut to: Option<String> = None;
    loop {
        let found = rows(client, &leaders).await.unwrap_or_default();
        let cell = |row: &[Option<String>], at: usize| row.get(at).cloned().flatten();
        to = to.or_else(|| cell(found.first()?, 1));
        let away: Vec<String> =
            found.iter().filter(|row| cell(row, 1) != to).filter_map(|row| cell(row, 0)).collect();
        if let Some(to) = &to {
            if away.is_empty() && found.len() >= partitions {
                return true;
            }
            for partition in away {
                // What is refused now may be taken at the next look.
                let order = format!("ADMIN transfer_leader({partition}, {to})");
                client.batch_execute(&order).await.ok();
            }
        }
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(POLL).await;
    }
}

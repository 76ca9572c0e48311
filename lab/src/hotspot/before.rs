//! Preparation of a run: tables are created, rows that will be read are loaded, and leaders are placed as the
//! workload requires.
//!
//! Invariant: a failed preparation is an error or a remark; none of it counts as served.

use std::time::Duration;

use partita_hotspot::workload::{Spread, SqlTable};
use tokio::time::Instant;
use tokio_postgres::Client;

use super::case::Case;
use super::drive;
use crate::door::postgres::{self, rows};

/// Maximum time for leaders to reach their nodes.
const LEADERS_WAIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(200);

/// Tables of a run that begins at this time.
pub(super) fn tables(case: &Case, begin_us: i64) -> Vec<SqlTable> {
    let table_of = |(index, load)| SqlTable::of(load, &case.table(index), begin_us);
    case.loads.iter().enumerate().map(table_of).collect()
}

/// Creates the tables, and loads the rows that exist before the first operation. Returns the CREATE TABLE
/// statements, and remarks on what failed.
///
/// # Errors
/// If a table cannot be created or loaded.
pub(super) async fn prepare(
    client: &Client,
    case: &Case,
    tables: &[SqlTable],
    servers: &[String],
    connections: usize,
) -> anyhow::Result<(Vec<String>, Vec<String>)> {
    let (mut statements, mut remarks) = (Vec::new(), Vec::new());
    for (table, load) in tables.iter().zip(&case.loads) {
        let created = table.create();
        for text in [format!("DROP TABLE IF EXISTS {}", table.name()), created.clone()] {
            let outcome = client.batch_execute(&text).await;
            outcome.map_err(|error| {
                anyhow::anyhow!("{}: {text}", postgres::failure(&error).message)
            })?;
        }
        statements.push(created);
        // Rows that reads will find.
        let prior = SqlTable::prior(load);
        if !prior.is_empty() {
            drive::load(table.clone(), prior, servers, connections).await?;
        }
        // The workload may want all leaders on one node.
        let partitions = load.cuts.len() + 1;
        let one_node = load.spread == Spread::OneNode;
        if one_node && !on_one_node(client, table.name(), partitions).await {
            remarks.push(format!(
                "{} did not begin with all of its leaders on one node.",
                table.name()
            ));
        }
    }
    Ok((statements, remarks))
}

/// Moves all leaders of a table with this number of partitions to one node; true if that succeeded.
async fn on_one_node(client: &Client, table: &str, partitions: usize) -> bool {
    let leaders = format!(
        "SELECT partition, node FROM sys.replicas WHERE \"table\" = '{table}' AND role = 'leader' ORDER BY partition"
    );
    let deadline = Instant::now() + LEADERS_WAIT;
    let mut target: Option<String> = None;
    loop {
        let replicas = rows(client, &leaders).await.unwrap_or_default();
        let cell = |row: &[Option<String>], column: usize| row.get(column).cloned().flatten();
        target = target.or_else(|| cell(replicas.first()?, 1));
        let away: Vec<String> = replicas
            .iter()
            .filter(|row| cell(row, 1) != target)
            .filter_map(|row| cell(row, 0))
            .collect();
        if let Some(target) = &target {
            if away.is_empty() && replicas.len() >= partitions {
                return true;
            }
            for partition in away {
                // A transfer that is refused now may succeed at the next attempt.
                let order = format!("ADMIN transfer_leader({partition}, {target})");
                client.batch_execute(&order).await.ok();
            }
        }
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(POLL).await;
    }
}

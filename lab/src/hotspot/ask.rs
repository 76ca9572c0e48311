//! Queries at the end of a run: why the table is hot and the advice, its heatmap, and the partitions that each kind
//! of query touches.
//!
//! Invariants: missing results are left out, with a message; a query's fan-out is the one in the store's own log.

use std::collections::BTreeMap;

use partita_heatmap::Heatmap;
use partita_hotspot::metrics::{FanOut, QUERIES};
use partita_hotspot::report::Advised;
use tokio_postgres::Client;

use crate::door::http::{HttpDoor, escape};
use crate::door::postgres::{Cells, failure, rows};

/// Number of users that are queried.
const USERS: usize = 12;
/// Maximum designs that are shown.
const ADVICE_MAX: usize = 3;
/// Time range of the queries: the last five minutes.
const RANGE_US: i64 = 300_000_000;

/// Result of EXPLAIN HOTSPOT.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Explained {
    pub(super) findings: Vec<String>,
    pub(super) advice: Vec<Advised>,
}

fn cell(row: &[Option<String>], column: usize) -> &str {
    row.get(column).and_then(Option::as_deref).unwrap_or_default()
}

fn read(cells: &Cells) -> Explained {
    let mut explained = Explained::default();
    for row in cells {
        let (item, value) = (cell(row, 0), cell(row, 1));
        if item.starts_with("option") {
            if explained.advice.len() < ADVICE_MAX {
                let today = if item.contains("as it is") { " (as it is)" } else { "" };
                let number = |column| cell(row, column).parse::<f64>().unwrap_or(0.0);
                let text = format!(
                    "{value}{today}: N_eff {:.1}, busiest {:.0} %, up to {:.0} rows/s; a read touches {}",
                    number(3),
                    number(2) * 100.0,
                    number(5),
                    cell(row, 6)
                );
                let ddl = Some(cell(row, 7)).filter(|ddl| !ddl.is_empty()).map(str::to_owned);
                explained.advice.push(Advised { text, ddl });
            }
        } else if !value.is_empty() {
            explained.findings.push(format!("{item}: {value}"));
        }
    }
    explained
}

/// Runs EXPLAIN HOTSPOT.
pub(super) async fn explain(client: &Client, table: &str) -> Explained {
    match rows(client, &format!("EXPLAIN HOTSPOT {table}")).await {
        Ok(cells) => read(&cells),
        Err(error) => Explained {
            findings: vec![format!("EXPLAIN HOTSPOT failed: {error}")],
            advice: Vec::new(),
        },
    }
}

/// Name of the former table, after a repartition.
pub(super) fn former(table: &str) -> String {
    format!("{table}$former")
}

/// Runs the first recommended statement unchanged; `None` if there is none. Other tables that it creates are
/// dropped again, and a re-keying that it begins is given up.
pub(super) async fn try_advice(
    client: &Client,
    table: &str,
    advice: &[Advised],
) -> Option<Result<String, String>> {
    let ddl = advice.iter().find_map(|advised| advised.ddl.clone())?;
    let ran = client.batch_execute(&ddl).await;
    let ran = ran.map_err(|error| format!("{}: {ddl}", failure(&error).message));
    for name in [format!("{table}_new"), format!("{table}_before"), former(table)] {
        client.batch_execute(&format!("DROP TABLE IF EXISTS \"{name}\"")).await.ok();
    }
    client.batch_execute(&format!("ALTER TABLE \"{table}\" CANCEL REKEYING")).await.ok();
    Some(ran.map(|()| ddl))
}

/// Heatmap of the last seconds.
pub(super) async fn picture(http: &HttpDoor, table: &str, seconds: u64) -> Option<Heatmap> {
    let path =
        format!("/v1/heatmap.json?table={}&since={seconds}&rows=160&columns=240", escape(table));
    let json = http.get(&path).await.ok()?;
    serde_json::from_slice(&json).ok()
}

/// The six queries for a user (or another entity, by the name of the column), in the order of [`QUERIES`]; the last
/// two do not depend on the user.
fn queries(table: &str, entity: &str, user: i64, now_us: i64) -> [String; 6] {
    let start = now_us - RANGE_US;
    let time = |us: i64| format!("to_timestamp_micros({us})");
    let recent = format!("ts >= {} AND ts < {}", time(start), time(now_us));
    [
        format!("SELECT count(event) FROM {table} WHERE {entity} = {user}"),
        format!("SELECT count(event) FROM {table} WHERE {recent}"),
        format!("SELECT count(event) FROM {table} WHERE {entity} = {user} AND {recent}"),
        format!("SELECT ts, event FROM {table} WHERE {entity} = {user} ORDER BY ts DESC LIMIT 1"),
        format!("SELECT {entity}, ts FROM {table} ORDER BY ts DESC LIMIT 10"),
        format!("SELECT count(event) FROM {table}"),
    ]
}

/// Fan-out of the queries, and their median times in milliseconds; `None` if one fails.
pub(super) async fn fan_out(
    client: &Client,
    table: &str,
    entity: &str,
    users: &[i64],
    now_us: i64,
) -> Option<(FanOut, [f64; 6])> {
    // Queries that depend on the user run for each of them, the others once.
    let users: Vec<i64> = users.iter().copied().take(USERS).collect();
    let mut user_queries: Vec<[String; 6]> = Vec::with_capacity(users.len());
    for (number, user) in users.iter().enumerate() {
        let texts = queries(table, entity, *user, now_us);
        for (query, text) in texts.iter().enumerate() {
            if number == 0 || [0, 2, 3].contains(&query) {
                client.simple_query(text).await.map_err(|error| said(query, &error)).ok()?;
            }
        }
        user_queries.push(texts);
    }
    // The store's log has the partitions and the time of each statement.
    let log = format!(
        "SELECT text, partitions_touched, ms FROM sys.query_log WHERE kind = 'SELECT' AND text LIKE '%{table}%'"
    );
    let log: BTreeMap<String, (f64, f64)> = rows(client, &log)
        .await
        .ok()?
        .iter()
        .filter_map(|row| {
            let number = |column| cell(row, column).parse::<f64>().ok();
            Some((cell(row, 0).to_owned(), (number(1)?, number(2)?)))
        })
        .collect();
    // Mean and 99th percentile over the users.
    let (mut fan_out, mut times) = (FanOut::default(), [0.0; 6]);
    for query in 0..QUERIES.len() {
        let of_query = user_queries.iter().filter_map(|texts| log.get(&texts[query]));
        let (mut touched, mut took): (Vec<f64>, Vec<f64>) = of_query.copied().unzip();
        if touched.is_empty() {
            return None;
        }
        touched.sort_unstable_by(f64::total_cmp);
        took.sort_unstable_by(f64::total_cmp);
        #[expect(clippy::cast_precision_loss, reason = "a dozen")]
        let count = touched.len() as f64;
        fan_out.mean[query] = touched.iter().sum::<f64>() / count;
        fan_out.p99[query] = touched[touched.len() * 99 / 100];
        times[query] = took[took.len() / 2];
    }
    Some((fan_out, times))
}

fn said(query: usize, error: &tokio_postgres::Error) {
    crate::report::progress(&format!("{}: {error}", QUERIES[query]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_and_designs_of_an_explanation_are_told_apart() {
        let row = |cells: [&str; 8]| {
            cells.iter().map(|cell| Some((*cell).to_owned()).filter(|c| !c.is_empty())).collect()
        };
        let explained = read(&vec![
            row(["class", "MOVING_RIGHT", "", "", "", "", "", ""]),
            row(["option 1", "by hash", "0.125", "7.9", "3", "8000", "by userid 1.0", "CREATE;"]),
            row(["option 2 (as it is)", "by time", "1", "1", "1", "1000", "by userid 8.0", ""]),
        ]);
        assert_eq!(explained.findings, ["class: MOVING_RIGHT"]);
        assert_eq!(explained.advice[0].ddl.as_deref(), Some("CREATE;"));
        assert!(explained.advice[0].text.contains("N_eff 7.9, busiest 12 %"), "{explained:?}");
        assert!(explained.advice[1].text.contains("(as it is)"));
        assert_eq!(explained.advice[1].ddl, None);
    }
}

//! In the end every counter, every claim of a key and every wide row has exactly what was acknowledged.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::client::Client;
use crate::cluster::Cluster;
use crate::ledger::Account;
use crate::tables::{CLAIMS, COUNTERS, KEYS};

/// Checks the table of counters, when no change is open.
pub(crate) async fn check_counters(cluster: &Cluster, client: &Client, patience: Duration) {
    let history = &cluster.history;
    let pairs = match client.all(COUNTERS, patience).await {
        Ok(pairs) => pairs,
        Err(error) => {
            history.violation(format!("the counters cannot be read at rest: {error}"));
            return;
        }
    };
    let rows: BTreeMap<i64, i64> = pairs.iter().copied().collect();
    if rows.len() < pairs.len() {
        history.violation("a key of the counters has two rows".to_owned());
    }
    for counter in 0..KEYS {
        let account = Account::Counter(counter);
        let acknowledged = cluster.ledger.acknowledged(account);
        let value = rows.get(&(counter * CLAIMS)).copied().unwrap_or(0);
        if let Some(fault) = cluster.ledger.fault(account, acknowledged, value) {
            history.violation(format!("at rest: {fault}"));
        }
    }
    let claimed: BTreeMap<i64, i64> =
        rows.into_iter().filter(|(key, _)| key % CLAIMS != 0).collect();
    let claims = cluster.ledger.claims();
    for (key, number) in &claimed {
        if claims.get(key) != Some(number) {
            let told = claims.get(key);
            history.violation(format!("key {key} has claim {number}, acknowledged was {told:?}"));
        }
    }
    if let Some(key) = claims.keys().find(|key| !claimed.contains_key(key)) {
        history.violation(format!("the acknowledged claim of key {key} is missing"));
    }
}

/// Checks the rows of the wide table, when no change is open.
pub(crate) async fn check_rows(client: &Client, patience: Duration) {
    for row in 0..KEYS {
        // A look checks what it sees.
        client.look(row, patience).await;
    }
}

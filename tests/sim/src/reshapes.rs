//! Splits and merges of partitions, chosen by the seed, while faults happen.
//!
//! Orders go to the leading meta. The wait for each is limited, but meta continues without it, so splits run while
//! other partitions, or the same, are split, moved or merged.

use std::sync::Arc;
use std::time::Duration;

use partita_proto::catalog::Table;
use partita_proto::error::Error;
use partita_proto::range::Bound;
use partita_proto::route::Route;
use partita_proto::service::{AdminOrder, MetaService};
use partita_proto::value::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::random::Random;
use crate::tables::{CLAIMS, COUNTERS, KEYS};
use crate::wide_rows::{self, SUM, WIDE};

/// Time limit for waiting for one split or merge.
const WAIT: Duration = Duration::from_secs(40);
/// Maximum number of orders waited for at the same time.
const AT_ONCE: usize = 3;

/// Orders splits and merges for a while; returns when none is waited for any more.
pub(crate) async fn go(cluster: &Arc<Cluster>, seed: u64, length: Duration) {
    let mut random = Random::new(seed, 9);
    // Some bugs show only while the partitions stay the same.
    if random.once_in(8) {
        return;
    }
    let pause_max = random.pick(&[500, 2000, 6000]).unwrap_or(2000);
    let deadline = Instant::now() + length;
    let mut under_way = JoinSet::new();
    while Instant::now() < deadline {
        tokio::time::sleep(random.millis(50, pause_max)).await;
        while under_way.len() >= AT_ONCE {
            under_way.join_next().await;
        }
        let tables = cluster.tables();
        let names = cluster.workload.tables();
        let tables: Vec<&Arc<Table>> =
            tables.iter().filter(|table| names.contains(&table.name.as_str())).collect();
        let Some(table) = random.pick(&tables) else { continue };
        let routes = table.partitions.routes();
        // The more partitions there are, the likelier is a merge, so that neither all keys end up in one nor each
        // in its own.
        let pieces = u64::try_from(routes.len()).unwrap_or(u64::MAX);
        let order = if random.below(KEYS.unsigned_abs()) >= pieces {
            split(&table.name, routes, &mut random)
        } else {
            merge(routes, &mut random)
        };
        if let Some(order) = order {
            under_way.spawn(carry_out(Arc::clone(cluster), order));
        }
    }
    while under_way.join_next().await.is_some() {}
}

/// A split of a partition, at a random key inside it or in the middle of its rows. Of a wide table sometimes one inside a
/// row, which must be refused.
fn split(table: &str, routes: &[Route], random: &mut Random) -> Option<AdminOrder> {
    let routes: Vec<&Route> = routes.iter().collect();
    let route = random.pick(&routes)?;
    let key = |bound: &Bound, otherwise| match bound.key.first() {
        Some(Value::Int(key)) => *key,
        Some(Value::String(row)) => wide_rows::row_of(row).unwrap_or(otherwise),
        _ => otherwise,
    };
    let keys_end = if table == COUNTERS { KEYS * CLAIMS } else { KEYS };
    let (start, end) = (key(&route.range.start, 0), key(&route.range.end, keys_end));
    let inside: Vec<i64> = (start + 1..end).collect();
    let key = random.pick(&inside)?;
    let key = match table {
        WIDE if random.once_in(4) => {
            vec![Value::String(wide_rows::row_key(key)), Value::String(SUM.to_owned())]
        }
        WIDE => vec![Value::String(wide_rows::row_key(key))],
        _ => vec![Value::Int(key)],
    };
    let bound = Bound { placement: None, key };
    let bound = (!random.once_in(4)).then_some(bound);
    Some(AdminOrder::SplitPartition { partition: route.partition, at: bound })
}

fn merge(routes: &[Route], random: &mut Random) -> Option<AdminOrder> {
    let pairs: Vec<(&Route, &Route)> = routes.iter().zip(routes.iter().skip(1)).collect();
    let (lower, upper) = random.pick(&pairs)?;
    Some(AdminOrder::MergePartitions { left: lower.partition, right: upper.partition })
}

async fn carry_out(cluster: Arc<Cluster>, order: AdminOrder) {
    let Some((_, meta)) = cluster.leading_meta() else { return };
    cluster.history.note(format_args!("ordered: {order:?}"));
    let outcome = tokio::time::timeout(WAIT, meta.administer(order.clone())).await;
    cluster.history.note(format_args!("{order:?}: {outcome:?}"));
    match (outcome, &order) {
        (Ok(Ok(())), AdminOrder::SplitPartition { .. }) => cluster.history.split(),
        (Ok(Ok(())), _) => cluster.history.merged(),
        (Ok(Err(error @ (Error::Corrupted(_) | Error::Internal(_)))), _) => {
            cluster.history.violation(format!("{order:?}: {error}"));
        }
        _ => {}
    }
}

//! Estimated row counts of partitions, by which the optimizer orders joins.
//!
//! A query that finds the counts out of date requests new ones in the background, so that no query waits; the first
//! query after a start is planned without. The counts are estimates and never part of a result.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use partita_proto::id::PartitionId;
use partita_proto::service::DataNodes;
use tokio::runtime::Handle;

use crate::statuses::{leader, statuses};

/// Age from which on counts are requested again.
const AGE_MAX: Duration = Duration::from_secs(5);

/// The last counts, and the time of their arrival.
#[derive(Default)]
pub(crate) struct RowCounts {
    counts: Mutex<(Option<Instant>, Arc<HashMap<PartitionId, u64>>)>,
    asking: AtomicBool,
}

impl RowCounts {
    /// The last counts; requests new ones if they are old, in a task on the home runtime.
    pub(crate) fn get(
        self: &Arc<Self>,
        nodes: &Arc<dyn DataNodes>,
        home: &Handle,
    ) -> Arc<HashMap<PartitionId, u64>> {
        let (updated, counts) = {
            let counts = self.counts.lock();
            (counts.0, Arc::clone(&counts.1))
        };
        let old = updated.is_none_or(|updated| updated.elapsed() > AGE_MAX);
        if old && !self.asking.swap(true, Ordering::AcqRel) {
            let (row_counts, nodes) = (Arc::clone(self), Arc::clone(nodes));
            // The task ends soon: it waits for each node only up to a timeout.
            home.spawn(async move { row_counts.set(ask(nodes.as_ref()).await) });
        }
        counts
    }

    fn set(&self, counts: HashMap<PartitionId, u64>) {
        *self.counts.lock() = (Some(Instant::now()), Arc::new(counts));
        self.asking.store(false, Ordering::Release);
    }
}

async fn ask(nodes: &dyn DataNodes) -> HashMap<PartitionId, u64> {
    let statuses = statuses(nodes).await.into_iter();
    let rows = |replicas: &[_]| leader(replicas).map(|(_, status)| status.rows);
    statuses.filter_map(|(partition, replicas)| Some((partition, rows(&replicas)?))).collect()
}

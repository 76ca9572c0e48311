//! How many rows partitions have, roughly: what the optimizer orders joins by.
//!
//! Asked of the nodes in the background when a query finds the figures old, so that no query waits
//! for them; the first one after a start plans without. They are estimates and only that: no answer
//! is ever taken from them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use partita_proto::id::PartitionId;

use crate::router::Router;
use crate::system::{leader, statuses};

/// How old figures may be before they are asked for again.
const AGE_MAX: Duration = Duration::from_secs(5);

/// The last figures.
#[derive(Default)]
pub(crate) struct RowCounts {
    counts: Mutex<(Option<Instant>, Arc<HashMap<PartitionId, u64>>)>,
    asking: AtomicBool,
}

impl RowCounts {
    /// The last figures; asks for new ones if they are old.
    pub(crate) fn get(&self, router: &Arc<Router>) -> Arc<HashMap<PartitionId, u64>> {
        let (asked, counts) = {
            let counts = self.counts.lock();
            (counts.0, Arc::clone(&counts.1))
        };
        let old = asked.is_none_or(|asked| asked.elapsed() > AGE_MAX);
        if old && !self.asking.swap(true, Ordering::AcqRel) {
            let home = router.home().clone();
            let router = Arc::clone(router);
            // Ends by itself: a node's answer is not waited for long.
            home.spawn(async move {
                let counts = ask(&router).await;
                router.set_row_counts(counts);
            });
        }
        counts
    }

    pub(crate) fn set(&self, counts: HashMap<PartitionId, u64>) {
        *self.counts.lock() = (Some(Instant::now()), Arc::new(counts));
        self.asking.store(false, Ordering::Release);
    }
}

async fn ask(router: &Router) -> HashMap<PartitionId, u64> {
    let statuses = statuses(router).await.into_iter();
    let rows = |replicas: &[_]| leader(replicas).map(|(_, status)| status.rows);
    statuses.filter_map(|(partition, replicas)| Some((partition, rows(&replicas)?))).collect()
}

//! Keeps recorded splits and merges going, the oldest first, a few at a time.
//!
//! Invariants: one task works on a partition's change; changes that only wait for a log do not count against the
//! limit, because the group of that log may have no quorum for long.

use std::collections::BTreeMap;
use std::sync::Arc;

use partita_proto::id::PartitionId;
use tokio::task::{AbortHandle, JoinSet};

use super::state::Reshaping;
use crate::catalog::{PartitionRecord, Phase, Step};
use crate::core::Core;

/// Maximum splits and merges carried out at once, not counting those being given up.
const RUNNING_MAX: usize = 4;

/// The splits and merges under way.
pub(crate) struct Reshaper {
    core: Arc<Core>,
    running: BTreeMap<PartitionId, (Step, AbortHandle)>,
    tasks: JoinSet<()>,
}

impl Reshaper {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, running: BTreeMap::new(), tasks: JoinSet::new() }
    }

    /// Begins recorded splits and merges, oldest first.
    pub(crate) fn keep_up(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        let mut reshapings = self.core.recorded_reshapings();
        self.running.retain(|partition, (step, task)| {
            let current = reshapings
                .iter()
                .any(|reshaping| (reshaping.partition, reshaping.step) == (*partition, *step));
            if !current {
                task.abort();
            }
            current && !task.is_finished()
        });
        let busy = |reshaping: &&Wanted| {
            !reshaping.ending && self.running.contains_key(&reshaping.partition)
        };
        let mut busy = reshapings.iter().filter(busy).count();
        reshapings.sort_by_key(|reshaping| reshaping.step);
        for Wanted { partition, step, ending } in reshapings {
            if self.running.contains_key(&partition) || (!ending && busy >= RUNNING_MAX) {
                continue;
            }
            busy += usize::from(!ending);
            let core = Arc::clone(&self.core);
            let task = self.tasks.spawn(async move { core.reshape(partition, step).await });
            self.running.insert(partition, (step, task));
        }
    }

    /// Aborts all tasks; the next leader of meta's group begins them again.
    pub(crate) async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

/// A recorded split or merge, or the end of one.
struct Wanted {
    partition: PartitionId,
    step: Step,
    /// Only waits for what logs say; not counted against the limit.
    ending: bool,
}

impl Core {
    fn recorded_reshapings(&self) -> Vec<Wanted> {
        let state = self.machine.state();
        let ready = |record: &&Arc<PartitionRecord>| {
            state.table(record.table).is_some_and(|table| table.phase == Phase::Ready)
        };
        let reshapings = state.reshaping().filter(ready).filter_map(|record| {
            let (step, ending) = match record.reshaping.as_ref()? {
                Reshaping::Split(split) => (split.step, split.given_up),
                Reshaping::Merge(merge) => (merge.step, merge.given_up),
                Reshaping::Thawing { step } => (*step, true),
                Reshaping::Joins { .. } | Reshaping::Leaving { .. } => return None,
            };
            Some(Wanted { partition: record.id, step, ending })
        });
        reshapings.collect()
    }
}

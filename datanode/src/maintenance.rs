//! The node's background work: flush, compaction, expiry.
//!
//! What to do next is decided by a pure function of what every replica reports ([`choose`]); this
//! file's worker only carries it out, one thing at a time, so that the work never takes more than
//! one core from requests.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use partita_proto::error::Error;
use partita_proto::id::{GroupId, PartitionId};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::node::Datanode;

/// How often the replicas are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How often expired files are looked for.
const EXPIRE_INTERVAL: Duration = Duration::from_secs(60);
/// How long a piece of work that failed (a full disk, mostly) is not tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// What a decision needs to know of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The partition.
    pub partition: PartitionId,
    /// Bytes in its memtables.
    pub memtable_bytes: u64,
    /// Whether the engine wants its memtables written: they are full, or old.
    pub wants_flush: bool,
    /// Whether the engine wants files merged.
    pub wants_compaction: bool,
    /// Whether the log cannot be reclaimed because of it.
    pub pins_log: bool,
}

/// One piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Write a partition's memtables to files.
    Flush(PartitionId),
    /// Merge some of a partition's files.
    Compact(PartitionId),
}

/// The next piece of work: what the engine asks for, then what the log asks for, then the largest
/// memtable when all together exceed their budget, then compaction.
pub fn choose(views: &[View], memtables_bytes_max: u64) -> Option<Work> {
    let flushable = || views.iter().filter(|view| view.memtable_bytes > 0);
    if let Some(view) = views.iter().find(|view| view.wants_flush) {
        return Some(Work::Flush(view.partition));
    }
    if let Some(view) = views.iter().find(|view| view.pins_log) {
        return Some(Work::Flush(view.partition));
    }
    if flushable().map(|view| view.memtable_bytes).sum::<u64>() > memtables_bytes_max {
        let largest = flushable().max_by_key(|view| view.memtable_bytes)?;
        return Some(Work::Flush(largest.partition));
    }
    views.iter().find(|view| view.wants_compaction).map(|view| Work::Compact(view.partition))
}

/// A replica as if it did not want the work that is left alone. What it wants besides is done: merging files
/// makes the space that a flush lacked.
fn without(mut view: View, left_alone: &[(Work, tokio::time::Instant)]) -> View {
    let alone = |work: Work| left_alone.iter().any(|(other, _)| *other == work);
    if alone(Work::Flush(view.partition)) {
        view = View { memtable_bytes: 0, wants_flush: false, pins_log: false, ..view };
    }
    view.wants_compaction &= !alone(Work::Compact(view.partition));
    view
}

/// Looks, chooses and works until stopped.
pub(crate) async fn run(node: Arc<Datanode>, stop: CancellationToken) {
    let mut look = tokio::time::interval(LOOK_INTERVAL);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut expire = tokio::time::interval(EXPIRE_INTERVAL);
    expire.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let pressure = node.pressure();
    let mut left_alone: Vec<(Work, tokio::time::Instant)> = Vec::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = look.tick() => {}
            _ = expire.tick() => {
                for replica in node.replicas() {
                    if let Err(error) = replica.partition().expire().await {
                        warn!(partition = %replica.id(), %error, "expiry failed");
                    }
                }
            }
        }
        let pinning: BTreeSet<GroupId> = pressure.borrow().iter().copied().collect();
        loop {
            let now = tokio::time::Instant::now();
            left_alone.retain(|(_, until)| *until > now);
            let views = node.views(&pinning).into_iter().map(|view| without(view, &left_alone));
            let views: Vec<View> = views.collect();
            let Some(work) = choose(&views, node.options().memtables_bytes_max) else { break };
            let (partition, result) = carry_out(&node, work).await;
            match result {
                Ok(true) => {}
                Ok(false) => left_alone.push((work, now + RETRY_INTERVAL)),
                Err(error) => {
                    warn!(%partition, ?work, %error, "background work failed; trying again later");
                    left_alone.push((work, now + RETRY_INTERVAL));
                }
            }
            if stop.is_cancelled() {
                return;
            }
        }
    }
}

/// Does one piece of work; whether it changed anything.
async fn carry_out(node: &Datanode, work: Work) -> (PartitionId, Result<bool, Error>) {
    let (Work::Flush(partition) | Work::Compact(partition)) = work;
    let Ok(replica) = node.replica(partition) else { return (partition, Ok(false)) };
    let started = tokio::time::Instant::now();
    let result = match work {
        Work::Flush(_) => {
            let before = replica.partition().durable_mark().map(|(index, _)| index);
            replica
                .flush()
                .await
                .map(|()| replica.partition().durable_mark().map(|(index, _)| index) != before)
                .inspect_err(|error| node.flush_failed(error))
                .inspect(|_| node.flush_succeeded())
        }
        Work::Compact(_) => replica.compact(false).await,
    };
    if matches!(result, Ok(true)) {
        info!(%partition, ?work, took = ?started.elapsed(), "background work done");
    }
    (partition, result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(partition: u64, memtable_bytes: u64) -> View {
        View {
            partition: PartitionId(partition),
            memtable_bytes,
            wants_flush: false,
            wants_compaction: false,
            pins_log: false,
        }
    }

    #[test]
    fn what_failed_is_left_alone_and_what_else_is_wanted_is_done() {
        let now = tokio::time::Instant::now();
        let full = View { wants_flush: true, wants_compaction: true, ..view(1, 10) };
        let flush = [(Work::Flush(PartitionId(1)), now)];
        assert_eq!(choose(&[full], 1), Some(Work::Flush(PartitionId(1))));
        assert_eq!(choose(&[without(full, &flush)], 1), Some(Work::Compact(PartitionId(1))));
        let both = [flush[0], (Work::Compact(PartitionId(1)), now)];
        assert_eq!(choose(&[without(full, &both)], 1), None);
        assert_eq!(without(View { partition: PartitionId(2), ..full }, &both).memtable_bytes, 10);
    }

    #[test]
    fn nothing_is_done_while_nothing_asks_for_it() {
        assert_eq!(choose(&[], 100), None);
        assert_eq!(choose(&[view(1, 60), view(2, 40)], 100), None);
    }

    #[test]
    fn the_largest_memtable_goes_first_when_all_exceed_the_budget() {
        assert_eq!(choose(&[view(1, 50), view(2, 51)], 100), Some(Work::Flush(PartitionId(2))));
    }

    #[test]
    fn a_full_memtable_goes_before_a_pinned_log_and_both_before_compaction() {
        let full = View { wants_flush: true, ..view(1, 1) };
        let pinning = View { pins_log: true, ..view(2, 1) };
        let merging = View { wants_compaction: true, ..view(3, 0) };
        assert_eq!(choose(&[merging, pinning, full], 100), Some(Work::Flush(PartitionId(1))));
        assert_eq!(choose(&[merging, pinning], 100), Some(Work::Flush(PartitionId(2))));
        assert_eq!(choose(&[merging], 100), Some(Work::Compact(PartitionId(3))));
    }
}

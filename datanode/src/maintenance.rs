//! Background work of the node: flush, compaction, expiry, sweeping the trash, and putting reports of copies into logs.
//!
//! Pure functions decide what to do next, from the state that every replica reports ([`choose_flush`],
//! [`choose_merge`]). The worker in this file only carries it out, one flush and one merge at a time: so background
//! work never takes more than two cores from requests, and memtables are flushed while files are merged. (When both ran
//! one after the other, writers were blocked for the length of a merge once memtables and log were full.)

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use partita_proto::error::Error;
use partita_proto::id::{GroupId, PartitionId};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::node::Datanode;
use crate::replica::Replica;

/// Interval at which replicas are examined.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Interval for a replica that is idle and needs nothing: hundreds of them would keep a core busy. Work that becomes
/// due by time alone (an old memtable, files that may be merged now) can wait that long.
const IDLE_LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which expired files are looked for.
const EXPIRE_INTERVAL: Duration = Duration::from_secs(60);
/// Interval at which the trash is swept; short, because on a nearly full disk the trash takes space that is needed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(2);
/// Interval at which reports that copies have changes are put into the logs.
const RECORD_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which leaders look for rows of wide tables that are too large.
const MEASURE_INTERVAL: Duration = Duration::from_secs(5);
/// Time before failed work (mostly on a full disk) is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// State of one replica, as far as decisions depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Partition id.
    pub partition: PartitionId,
    /// Bytes in the partition's memtables.
    pub memtable_bytes: u64,
    /// True if the engine requests a flush: memtables are full, or old.
    pub wants_flush: bool,
    /// True if the engine requests a compaction.
    pub wants_compaction: bool,
    /// True if the log cannot be reclaimed because this partition has not flushed.
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

/// The partition to flush next: first one whose engine requests it, then one that pins the log, then the largest when
/// all memtables together exceed their budget.
pub fn choose_flush(views: &[View], memtables_bytes_max: u64) -> Option<Work> {
    let flushable = || views.iter().filter(|view| view.memtable_bytes > 0);
    let requested = views.iter().find(|view| view.wants_flush);
    if let Some(view) = requested.or_else(|| views.iter().find(|view| view.pins_log)) {
        return Some(Work::Flush(view.partition));
    }
    if flushable().map(|view| view.memtable_bytes).sum::<u64>() > memtables_bytes_max {
        let largest = flushable().max_by_key(|view| view.memtable_bytes)?;
        return Some(Work::Flush(largest.partition));
    }
    None
}

/// The partition to compact next.
pub fn choose_merge(views: &[View]) -> Option<Work> {
    views.iter().find(|view| view.wants_compaction).map(|view| Work::Compact(view.partition))
}

/// The view without work that is deferred after a failure. Other work of the replica is still done: a merge makes the
/// space that a flush lacked.
fn without(mut view: View, deferred: &[(Work, tokio::time::Instant)]) -> View {
    let is_deferred = |work: Work| deferred.iter().any(|(failed, _)| *failed == work);
    if is_deferred(Work::Flush(view.partition)) {
        view = View { memtable_bytes: 0, wants_flush: false, pins_log: false, ..view };
    }
    view.wants_compaction &= !is_deferred(Work::Compact(view.partition));
    view
}

/// View of a replica at some time.
#[derive(Clone, Copy, Debug)]
struct Look {
    view: View,
    /// [`partita_engine::Partition::changes`] at that time.
    changes: u64,
    at: tokio::time::Instant,
}

impl Look {
    fn at(replica: &Replica, changes: u64, time: tokio::time::Instant) -> Self {
        let partition = replica.partition();
        let view = View {
            partition: replica.id(),
            memtable_bytes: partition.memtable_bytes(),
            wants_flush: partition.wants_flush(),
            wants_compaction: partition.wants_compaction(),
            pins_log: false,
        };
        Self { view, changes, at: time }
    }

    /// True if a new look would give the same result, as far as it matters.
    fn holds(&self, changes: u64, time: tokio::time::Instant) -> bool {
        self.changes == changes
            && !self.view.wants_flush
            && !self.view.wants_compaction
            && time - self.at < IDLE_LOOK_INTERVAL
    }
}

/// The last look at each replica.
#[derive(Debug, Default)]
struct Looks(BTreeMap<PartitionId, Look>);

impl Looks {
    /// Current views of the replicas.
    fn views(&mut self, node: &Datanode, pinning: &BTreeSet<GroupId>) -> Vec<View> {
        let time = tokio::time::Instant::now();
        let replicas = node.replicas();
        if self.0.len() > replicas.len() {
            // Some replicas are gone.
            self.0.clear();
        }
        let views = replicas.iter().map(|replica| {
            // Read before the look: a change during the look is seen the next time.
            let changes = replica.partition().changes();
            let look = match self.0.get(&replica.id()) {
                Some(last) if last.holds(changes, time) => *last,
                _ => {
                    let look = Look::at(replica, changes, time);
                    self.0.insert(replica.id(), look);
                    look
                }
            };
            View { pins_log: pinning.contains(&GroupId::from(replica.id())), ..look.view }
        });
        views.collect()
    }
}

/// A piece of work, and its result: true if it changed anything.
type Ended = (Work, Result<bool, Error>);

/// Failed work, with the time until which it is not tried again.
#[derive(Debug, Default)]
struct Deferred(Vec<(Work, tokio::time::Instant)>);

impl Deferred {
    /// The views, without deferred work.
    fn leave(&mut self, views: Vec<View>) -> Vec<View> {
        let time = tokio::time::Instant::now();
        self.0.retain(|(_, expiry)| *expiry > time);
        views.into_iter().map(|view| without(view, &self.0)).collect()
    }

    /// Records the result of a piece of work.
    fn note(&mut self, (work, result): Ended) {
        match result {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => warn!(?work, %error, "background work failed; trying again later"),
        }
        self.0.push((work, tokio::time::Instant::now() + RETRY_INTERVAL));
    }

    /// As [`Deferred::note`], for `merging`, which ran on a task of its own; a panicked merge is deferred too.
    fn note_merged(&mut self, merging: Option<Work>, merged: Result<Option<Ended>, JoinError>) {
        match (merged, merging) {
            (Ok(Some(ended)), _) => self.note(ended),
            (Ok(None), _) => {}
            (Err(error), merging) => {
                error!(?merging, %error, "the merge of files failed");
                if let Some(work) = merging {
                    self.note((work, Ok(false)));
                }
            }
        }
    }
}

/// Examines, chooses and works until stopped; work that has begun is completed.
pub(crate) async fn run(node: Arc<Datanode>, stop: CancellationToken) {
    let mut look = tokio::time::interval(LOOK_INTERVAL);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut expire = tokio::time::interval(EXPIRE_INTERVAL);
    expire.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
    sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut record = tokio::time::interval(RECORD_INTERVAL);
    record.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut measure = tokio::time::interval(MEASURE_INTERVAL);
    measure.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let pressure = node.pressure();
    let mut looks = Looks::default();
    let mut deferred = Deferred::default();
    let mut expiry_due = false;
    // At most one: a merge, or expiry, which would wait for the merge.
    let mut merges: JoinSet<Option<Ended>> = JoinSet::new();
    let mut merging = None;
    // At most one, and ended with this: what it does is done again later.
    let mut records: JoinSet<()> = JoinSet::new();
    let mut measured: JoinSet<()> = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(merged) = merges.join_next() => deferred.note_merged(merging.take(), merged),
            _ = look.tick() => {}
            _ = sweep.tick() => node.sweep_trash().await,
            _ = expire.tick() => expiry_due = true,
            _ = record.tick() => record_reports(&node, &mut records),
            _ = measure.tick() => measure_rows(&node, &mut measured),
        }
        for replica in node.replicas() {
            replica.stop_if_failed().await;
        }
        let pinning: BTreeSet<GroupId> = pressure.borrow().iter().copied().collect();
        while !stop.is_cancelled() {
            if let Some(merged) = merges.try_join_next() {
                deferred.note_merged(merging.take(), merged);
            }
            let views = deferred.leave(looks.views(&node, &pinning));
            if merges.is_empty() {
                let node = Arc::clone(&node);
                if std::mem::take(&mut expiry_due) {
                    merges.spawn(async move { expire_all(&node).await });
                } else if let Some(work) = choose_merge(&views) {
                    merging = Some(work);
                    merges.spawn(async move { Some(carry_out(&node, work).await) });
                }
            }
            let Some(work) = choose_flush(&views, node.options().memtables_bytes_max) else {
                break;
            };
            deferred.note(carry_out(&node, work).await);
        }
    }
    while merges.join_next().await.is_some() {}
}

/// Puts the reports of copies into the logs, in a task of its own, unless one still does.
fn record_reports(node: &Datanode, records: &mut JoinSet<()>) {
    while records.try_join_next().is_some() {}
    let mut replicas = node.replicas();
    replicas.retain(|replica| replica.has_reports());
    if records.is_empty() && !replicas.is_empty() {
        records.spawn(async move {
            for replica in replicas {
                replica.record_reports().await;
            }
        });
    }
}

/// Looks for rows of wide tables that are too large, in a task of its own, unless one still does.
fn measure_rows(node: &Datanode, measured: &mut JoinSet<()>) {
    while measured.try_join_next().is_some() {}
    let mut replicas = node.replicas();
    replicas.retain(|replica| {
        let is_wide = replica.partition().config().schema.options.wide.is_some();
        is_wide && replica.leads()
    });
    if measured.is_empty() && !replicas.is_empty() {
        measured.spawn(async move {
            for replica in replicas {
                if let Err(error) = replica.measure_rows().await {
                    warn!(partition = %replica.id(), %error, "rows could not be measured");
                }
            }
        });
    }
}

/// Drops files all of whose rows have expired, and removes garbage of wide tables now and then.
async fn expire_all(node: &Datanode) -> Option<Ended> {
    for replica in node.replicas() {
        if let Err(error) = replica.partition().expire().await {
            warn!(partition = %replica.id(), %error, "expiry failed");
        }
        if replica.is_collection_due()
            && let Err(error) = replica.compact(true).await
        {
            warn!(partition = %replica.id(), %error, "garbage could not be removed");
        }
    }
    None
}

/// Does one piece of work; the result is true if it changed anything.
async fn carry_out(node: &Datanode, work: Work) -> Ended {
    let (Work::Flush(partition) | Work::Compact(partition)) = work;
    let Ok(replica) = node.replica(partition) else { return (work, Ok(false)) };
    let started = tokio::time::Instant::now();
    let result = match work {
        Work::Flush(_) => {
            let previous_mark = replica.partition().durable_mark().map(|(index, _)| index);
            replica
                .flush()
                .await
                .map(|()| {
                    replica.partition().durable_mark().map(|(index, _)| index) != previous_mark
                })
                .inspect_err(|error| node.flush_failed(error))
                .inspect(|_| node.flush_succeeded())
        }
        Work::Compact(_) => replica.compact(false).await,
    };
    if matches!(result, Ok(true)) {
        info!(%partition, ?work, took = ?started.elapsed(), "background work done");
    }
    (work, result)
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
        assert_eq!(choose_flush(&[full], 1), Some(Work::Flush(PartitionId(1))));
        assert_eq!(choose_flush(&[without(full, &flush)], 1), None);
        assert_eq!(choose_merge(&[without(full, &flush)]), Some(Work::Compact(PartitionId(1))));
        let both = [flush[0], (Work::Compact(PartitionId(1)), now)];
        assert_eq!(choose_merge(&[without(full, &both)]), None);
        assert_eq!(without(View { partition: PartitionId(2), ..full }, &both).memtable_bytes, 10);
    }

    #[test]
    fn a_look_holds_while_nothing_happens_and_nothing_is_wanted_but_not_for_ever() {
        let now = tokio::time::Instant::now();
        let look = Look { view: view(1, 10), changes: 3, at: now };
        assert!(look.holds(3, now));
        assert!(!look.holds(4, now));
        assert!(!look.holds(3, now + IDLE_LOOK_INTERVAL));
        let full = View { wants_flush: true, ..view(1, 10) };
        assert!(!Look { view: full, ..look }.holds(3, now));
        let merging = View { wants_compaction: true, ..view(1, 10) };
        assert!(!Look { view: merging, ..look }.holds(3, now));
    }

    #[test]
    fn nothing_is_done_while_nothing_asks_for_it() {
        let idle = [view(1, 60), view(2, 40)];
        assert_eq!(choose_flush(&[], 100), None);
        assert_eq!(choose_flush(&idle, 100), None);
        assert_eq!(choose_merge(&idle), None);
    }

    #[test]
    fn the_largest_memtable_goes_first_when_all_exceed_the_budget() {
        let full = [view(1, 50), view(2, 51)];
        assert_eq!(choose_flush(&full, 100), Some(Work::Flush(PartitionId(2))));
    }

    #[test]
    fn a_full_memtable_goes_before_a_pinned_log_and_files_are_merged_meanwhile() {
        let full = View { wants_flush: true, ..view(1, 1) };
        let pinning = View { pins_log: true, ..view(2, 1) };
        let merging = View { wants_compaction: true, ..view(3, 0) };
        assert_eq!(choose_flush(&[merging, pinning, full], 100), Some(Work::Flush(PartitionId(1))));
        assert_eq!(choose_flush(&[merging, pinning], 100), Some(Work::Flush(PartitionId(2))));
        assert_eq!(choose_flush(&[merging], 100), None);
        assert_eq!(choose_merge(&[merging, pinning, full]), Some(Work::Compact(PartitionId(3))));
    }
}

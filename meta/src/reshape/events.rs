//! Record of splits and merges: those under way, and the latest that ended. Every member of meta keeps it in
//! memory, from applied entries; the measured effect is known only to the member that led at the time.
//!
//! Invariant: an event that ended does not change any more, except that its measured effect, the time of relief, and
//! longer times without writes, as frontends felt them, may be added.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use partita_proto::history::{PerMille, ReshapeEvent, ReshapeKind, ReshapeOutcome};
use partita_proto::id::PartitionId;
use tokio::time::Instant;

use super::state::Reshaping;
use crate::catalog::{Edit, PartitionRecord, State, Step};

/// Maximum remembered events.
const EVENTS_MAX: usize = 1000;

/// Maximum time from the end of a split or merge to the end of a write that it held up. Longer than routes take to reach
/// every frontend.
const FELT_AFTER: Duration = Duration::from_secs(5);

/// Outcome of a split or merge that was given up, for a member that did not carry it out.
const NO_EFFECT: &str =
    "no effect; the log of the process that led meta at that time has the reason";

/// Splits and merges by their steps.
#[derive(Debug, Default)]
pub(crate) struct Reshapes {
    events: Mutex<BTreeMap<Step, (ReshapeEvent, Instant)>>,
}

impl Reshapes {
    /// Follows changed records. `earlier`: the splits and merges that the records held before; those no longer held
    /// have ended, as done if `succeeded`, otherwise as given up.
    pub(crate) fn follow(&self, state: &State, edits: &[Edit], earlier: &[Step], succeeded: bool) {
        let mut current = BTreeSet::new();
        for edit in edits {
            let Edit::Partition(record) = edit else { continue };
            current.extend(step_of(record));
            // If the record has no time, the process that carries it out begins the event.
            if let Some(event) = event_of(state, record, 0).filter(|event| event.at_ms != 0) {
                self.began(event);
            }
        }
        for step in earlier.iter().filter(|step| !current.contains(step)) {
            self.ended(*step, outcome(succeeded));
        }
    }

    /// Follows a whole state from another member: what it no longer holds has ended, and the partitions tell how.
    pub(crate) fn catch_up(&self, state: &State) {
        let current: BTreeSet<Step> =
            state.reshaping().filter_map(|record| step_of(record)).collect();
        for event in self.all() {
            let step = Step(event.id);
            if event.outcome == ReshapeOutcome::UnderWay && !current.contains(&step) {
                let neighbour =
                    state.partition(event.other).filter(|neighbour| !neighbour.is_leaving());
                self.ended(
                    step,
                    outcome(neighbour.is_some() == (event.kind == ReshapeKind::Split)),
                );
            }
        }
    }

    /// Begins an event, unless it is known already.
    pub(crate) fn began(&self, event: ReshapeEvent) {
        let mut events = self.events.lock();
        events.entry(Step(event.id)).or_insert_with(|| (event, Instant::now()));
        while events.len() > EVENTS_MAX {
            events.pop_first();
        }
    }

    /// Records a time without writes; the longest counts.
    pub(crate) fn stalled(&self, step: Step, stall: Duration) {
        if let Some((event, _)) = self.events.lock().get_mut(&step) {
            event.stall = event.stall.max(stall);
        }
    }

    /// Records that a write to a partition was held up for this time until `end`, with the newest split or merge of the
    /// partition that it can have waited for.
    pub(crate) fn felt(&self, partition: PartitionId, stall: Duration, end: Instant) {
        let mut events = self.events.lock();
        let concerns = |event: &ReshapeEvent, began: Instant| {
            [event.partition, event.other].contains(&partition)
                && event.outcome == ReshapeOutcome::Done
                && (began..=began + event.duration + FELT_AFTER).contains(&end)
        };
        let newest = events.values_mut().rev().find(|(event, began)| concerns(event, *began));
        if let Some((event, _)) = newest {
            event.stall = event.stall.max(stall);
        }
    }

    /// Records the end of an event; a second end is ignored.
    pub(crate) fn ended(&self, step: Step, outcome: ReshapeOutcome) {
        if let Some((event, began)) = self.events.lock().get_mut(&step)
            && event.outcome == ReshapeOutcome::UnderWay
        {
            event.duration = began.elapsed();
            event.outcome = outcome;
        }
    }

    /// Records the time until the new partition is led by the intended node.
    pub(crate) fn relieved(&self, step: Step) {
        if let Some((event, began)) = self.events.lock().get_mut(&step) {
            event.relief = Some(began.elapsed());
        }
    }

    /// Records the measured effect. True if the event is still remembered.
    pub(crate) fn judged(
        &self,
        step: Step,
        actual_larger: Option<PerMille>,
        in_vain: bool,
    ) -> bool {
        match self.events.lock().get_mut(&step) {
            Some((event, _)) => {
                event.actual_larger = actual_larger;
                event.in_vain = Some(in_vain);
                true
            }
            None => false,
        }
    }

    /// Outcome of an event, if this process knows it.
    pub(crate) fn outcome(&self, step: Step) -> Option<ReshapeOutcome> {
        self.events.lock().get(&step).map(|(event, _)| event.outcome.clone())
    }

    /// The event of a step, if it is still remembered.
    pub(crate) fn event(&self, step: Step) -> Option<ReshapeEvent> {
        self.events.lock().get(&step).map(|(event, _)| event.clone())
    }

    /// The step of the newest split that made these two partitions.
    pub(crate) fn of_split(&self, parent: PartitionId, child: PartitionId) -> Option<Step> {
        let events = self.events.lock();
        let is = |event: &ReshapeEvent| {
            event.kind == ReshapeKind::Split && (event.partition, event.other) == (parent, child)
        };
        events.iter().rev().find(|(_, (event, _))| is(event)).map(|(step, _)| *step)
    }

    /// All events, oldest first.
    pub(crate) fn all(&self) -> Vec<ReshapeEvent> {
        let events = self.events.lock();
        let event = |(event, began): &(ReshapeEvent, Instant)| match event.outcome {
            ReshapeOutcome::UnderWay => ReshapeEvent { duration: began.elapsed(), ..event.clone() },
            _ => event.clone(),
        };
        events.values().map(event).collect()
    }
}

/// Outcome for a member that did not carry the change out.
fn outcome(succeeded: bool) -> ReshapeOutcome {
    match succeeded {
        true => ReshapeOutcome::Done,
        false => ReshapeOutcome::GivenUp(NO_EFFECT.to_owned()),
    }
}

/// The splits and merges in the records that edits are about to change.
pub(crate) fn steps_before(state: &State, edits: &[Edit]) -> Vec<Step> {
    let changes = edits.iter().filter_map(|edit| match edit {
        Edit::Partition(record) => state.partition(record.id),
        Edit::PartitionGone(id) => state.partition(*id),
        _ => None,
    });
    changes.filter_map(|record| step_of(record)).collect()
}

/// The split or merge in a record.
fn step_of(record: &PartitionRecord) -> Option<Step> {
    match record.reshaping.as_ref()? {
        Reshaping::Split(split) => Some(split.step),
        Reshaping::Merge(merge) => Some(merge.step),
        Reshaping::Joins { .. } | Reshaping::Thawing { .. } | Reshaping::Leaving { .. } => None,
    }
}

/// The event of the split or merge in a record; `at_ms` is its time if the record has none.
pub(crate) fn event_of(
    state: &State,
    record: &PartitionRecord,
    at_ms: i64,
) -> Option<ReshapeEvent> {
    // Only the record that holds the split or merge makes an event, not the neighbour's.
    let (step, kind, neighbour, key, reason) = match record.reshaping.as_ref()? {
        Reshaping::Split(split) => {
            (split.step, ReshapeKind::Split, split.child, split.at.clone(), &split.reason)
        }
        Reshaping::Merge(merge) => {
            let key = state.partition(merge.right)?.range.start.clone();
            (merge.step, ReshapeKind::Merge, merge.right, key, &merge.reason)
        }
        Reshaping::Joins { .. } | Reshaping::Thawing { .. } | Reshaping::Leaving { .. } => {
            return None;
        }
    };
    Some(ReshapeEvent {
        id: step.0,
        at_ms: reason.at_ms.unwrap_or(at_ms),
        table: record.table,
        kind,
        partition: record.id,
        other: neighbour,
        key,
        reason: reason.clone(),
        outcome: ReshapeOutcome::UnderWay,
        stall: Duration::ZERO,
        duration: Duration::ZERO,
        relief: None,
        actual_larger: None,
        in_vain: None,
    })
}

#[cfg(test)]
mod tests {
    use partita_proto::history::Reason;
    use partita_proto::id::TableId;
    use partita_proto::range::Bound;

    use super::*;

    fn split(id: u64, partition: u64, child: u64) -> ReshapeEvent {
        ReshapeEvent {
            id,
            at_ms: 1,
            table: TableId(1),
            kind: ReshapeKind::Split,
            partition: PartitionId(partition),
            other: PartitionId(child),
            key: Bound::default(),
            reason: Reason::by_hand(),
            outcome: ReshapeOutcome::UnderWay,
            stall: Duration::ZERO,
            duration: Duration::ZERO,
            relief: None,
            actual_larger: None,
            in_vain: None,
        }
    }

    #[test]
    fn a_write_that_was_held_up_counts_for_the_split_that_it_waited_for() {
        let reshapes = Reshapes::default();
        // Partition 1 is split twice.
        let begin = Instant::now();
        let mut times = Vec::new();
        for (id, child) in [(10, 2), (11, 3)] {
            reshapes.began(split(id, 1, child));
            reshapes.stalled(Step(id), Duration::from_millis(1));
            reshapes.ended(Step(id), ReshapeOutcome::Done);
            times.push(Instant::now());
            std::thread::sleep(Duration::from_millis(20));
        }
        let felt = |partition: u64, stall_ms: u64, end: Instant| {
            reshapes.felt(PartitionId(partition), Duration::from_millis(stall_ms), end);
        };
        let stalls = || -> Vec<u128> {
            reshapes.all().iter().map(|event| event.stall.as_millis()).collect()
        };
        felt(1, 12, times[0]);
        felt(2, 9, times[1]);
        felt(3, 14, times[1]);
        assert_eq!(stalls(), [12, 14]);
        // Before the first split, of a partition that has no part in any, and much later.
        felt(1, 70, begin - Duration::from_secs(1));
        felt(7, 70, times[1]);
        felt(1, 70, times[1] + 2 * FELT_AFTER);
        assert_eq!(stalls(), [12, 14]);
    }
}

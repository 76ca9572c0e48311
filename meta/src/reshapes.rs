//! What is remembered of splits and merges: those under way, and the last of those that ended. Kept in the memory of
//! every member of meta, from what is applied; for how long one held up writes, and what it was good for, only the one
//! that led at the time knows.
//!
//! Invariant: an event that ended never changes again, except that somebody says what it was good for, and when its new
//! partition was led from where it is meant to be.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use partita_proto::history::{PerMille, ReshapeEvent, ReshapeKind, ReshapeOutcome};
use partita_proto::id::PartitionId;
use tokio::time::Instant;

use crate::catalog::{Edit, PartitionRecord, State, Step};
use crate::reshaping::Reshaping;

/// Events that are remembered.
const EVENTS_MAX: usize = 1000;

/// Why one was given up, as far as a member knows that did not do it.
const NO_EFFECT: &str = "it took no effect; the log of whoever led meta then says why";

/// Splits and merges, by number.
#[derive(Debug, Default)]
pub(crate) struct Reshapes {
    events: Mutex<BTreeMap<Step, (ReshapeEvent, Instant)>>,
}

impl Reshapes {
    /// Takes note of records that have changed; `borne` are the splits and merges that they bore before, and those that
    /// they bear no more ended: as was wanted, or not.
    pub(crate) fn follow(&self, state: &State, edits: &[Edit], borne: &[Step], done: bool) {
        let mut bear = BTreeSet::new();
        for edit in edits {
            let Edit::Partition(record) = edit else { continue };
            bear.extend(step_of(record));
            // One that does not say when it was wanted is noted by whoever takes it up.
            if let Some(event) = event_of(state, record, 0).filter(|event| event.at_ms != 0) {
                self.began(event);
            }
        }
        for step in borne.iter().filter(|step| !bear.contains(step)) {
            self.ended(*step, outcome(done));
        }
    }

    /// Takes note of a state that came as a whole, from another member: what it does not bear any more ended, and how
    /// shows in the partitions that there are.
    pub(crate) fn catch_up(&self, state: &State) {
        let bears: BTreeSet<Step> =
            state.reshaping().filter_map(|record| step_of(record)).collect();
        for event in self.all() {
            let step = Step(event.id);
            if event.outcome == ReshapeOutcome::UnderWay && !bears.contains(&step) {
                let other = state.partition(event.other).filter(|other| !other.is_leaving());
                self.ended(step, outcome(other.is_some() == (event.kind == ReshapeKind::Split)));
            }
        }
    }

    /// One is taken up, by the process that knows nothing of it yet.
    pub(crate) fn began(&self, event: ReshapeEvent) {
        let mut events = self.events.lock();
        events.entry(Step(event.id)).or_insert_with(|| (event, Instant::now()));
        while events.len() > EVENTS_MAX {
            events.pop_first();
        }
    }

    /// Rows could not be written for so long.
    pub(crate) fn stalled(&self, step: Step, stall: Duration) {
        if let Some((event, _)) = self.events.lock().get_mut(&step) {
            event.stall = event.stall.max(stall);
        }
    }

    /// One ended.
    pub(crate) fn ended(&self, step: Step, outcome: ReshapeOutcome) {
        if let Some((event, began)) = self.events.lock().get_mut(&step)
            && event.outcome == ReshapeOutcome::UnderWay
        {
            event.duration = began.elapsed();
            event.outcome = outcome;
        }
    }

    /// The new partition of one is led from where it is meant to be.
    pub(crate) fn relieved(&self, step: Step) {
        if let Some((event, began)) = self.events.lock().get_mut(&step) {
            event.relief = Some(began.elapsed());
        }
    }

    /// What one was good for.
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

    /// How one ended, if this process knows.
    pub(crate) fn outcome(&self, step: Step) -> Option<ReshapeOutcome> {
        self.events.lock().get(&step).map(|(event, _)| event.outcome.clone())
    }

    /// One of them.
    pub(crate) fn event(&self, step: Step) -> Option<ReshapeEvent> {
        self.events.lock().get(&step).map(|(event, _)| event.clone())
    }

    /// The split that made one partition two.
    pub(crate) fn of_split(&self, left: PartitionId, right: PartitionId) -> Option<Step> {
        let events = self.events.lock();
        let is = |event: &ReshapeEvent| {
            event.kind == ReshapeKind::Split && (event.partition, event.other) == (left, right)
        };
        events.iter().rev().find(|(_, (event, _))| is(event)).map(|(step, _)| *step)
    }

    /// All, the oldest first.
    pub(crate) fn all(&self) -> Vec<ReshapeEvent> {
        let events = self.events.lock();
        let event = |(event, began): &(ReshapeEvent, Instant)| match event.outcome {
            ReshapeOutcome::UnderWay => ReshapeEvent { duration: began.elapsed(), ..event.clone() },
            _ => event.clone(),
        };
        events.values().map(event).collect()
    }
}

/// How one ended, as far as a member knows that did not do it.
fn outcome(done: bool) -> ReshapeOutcome {
    match done {
        true => ReshapeOutcome::Done,
        false => ReshapeOutcome::GivenUp(NO_EFFECT.to_owned()),
    }
}

/// The splits and merges that records bear which are to change.
pub(crate) fn borne_by(state: &State, edits: &[Edit]) -> Vec<Step> {
    let changes = edits.iter().filter_map(|edit| match edit {
        Edit::Partition(record) => state.partition(record.id),
        Edit::PartitionGone(id) => state.partition(*id),
        _ => None,
    });
    changes.filter_map(|record| step_of(record)).collect()
}

/// The split or merge that a record bears.
fn step_of(record: &PartitionRecord) -> Option<Step> {
    match record.reshaping.as_ref()? {
        Reshaping::Split(split) => Some(split.step),
        Reshaping::Merge(merge) => Some(merge.step),
        Reshaping::Joins { .. } | Reshaping::Thawing { .. } | Reshaping::Leaving { .. } => None,
    }
}

/// The event of a split or merge that a record bears; `at_ms`: the time of one that does not say when it was wanted.
pub(crate) fn event_of(
    state: &State,
    record: &PartitionRecord,
    at_ms: i64,
) -> Option<ReshapeEvent> {
    let (step, kind, other, key, reason) = match record.reshaping.as_ref()? {
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
        other,
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

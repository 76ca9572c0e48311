//! What is remembered of splits and merges: those under way, and the last of those that ended. Kept in the memory of
//! the process that leads meta; another that takes over remembers what it does itself.
//!
//! Invariant: an event that ended never changes again, except that somebody says what it was good for, and when its new
//! partition was led from where it is meant to be.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use partita_proto::history::{PerMille, ReshapeEvent, ReshapeKind, ReshapeOutcome};
use partita_proto::id::PartitionId;
use tokio::time::Instant;

use crate::catalog::{PartitionRecord, State, Step};
use crate::reshaping::Reshaping;

/// Events that are remembered.
const EVENTS_MAX: usize = 1000;

/// Splits and merges, by number.
#[derive(Debug, Default)]
pub(crate) struct Reshapes {
    events: Mutex<BTreeMap<Step, (ReshapeEvent, Instant)>>,
}

impl Reshapes {
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

/// The event of a split or merge that a record bears.
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
        at_ms,
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

//! The list of hot partitions, with the detector's verdicts.
//!
//! Invariants: a partition enters at rho 0.25 and leaves below 0.15 for a minute, so that the list, and with it the
//! sampling of keys that its owner engages for its members, does not flicker; a partition's verdict is requested only
//! while there is a decision to make, and at most once in [`ASK_AGAIN_MS`].

use super::places::{HAS_PAST, HOT, LARGE, WATCHED};
use super::{Judge, Scheduler};
use crate::split::{HOT_SECONDS_MIN, NoSplit};
use crate::verdict::{Class, Verdict};

/// Rho from which a partition's keys are sampled: half of the threshold for hot ones.
pub(super) const ENGAGE_RHO: f64 = 0.25;
/// Rho below which sampling ends ...
const RELEASE_RHO: f64 = 0.15;
/// ... after this time.
const RELEASE_AFTER_MS: u64 = 60_000;
/// Interval between requests for a verdict; half of the older half of a window.
const ASK_AGAIN_MS: u64 = 5_000;
/// The same when there was no verdict: relief waits for it.
const ASK_SOON_MS: u64 = 1_000;
/// Time after which a verdict that was not renewed is dropped.
const VERDICT_KEPT_MS: u64 = 60_000;

/// A hot partition.
#[derive(Clone, Debug)]
pub(super) struct Heat {
    pub(super) since_ms: u64,
    cool_since_ms: Option<u64>,
    asked_ms: Option<u64>,
    told_ms: u64,
    pub(super) verdict: Option<Verdict>,
    /// Time since when the verdict has been of this class.
    pub(super) verdict_since_ms: u64,
    /// Reason why it was not split at the last decision.
    pub(super) refused: Option<NoSplit>,
}

impl Heat {
    pub(super) fn new(now_ms: u64) -> Self {
        Self {
            since_ms: now_ms,
            cool_since_ms: None,
            asked_ms: None,
            told_ms: 0,
            verdict: None,
            verdict_since_ms: now_ms,
            refused: None,
        }
    }

    pub(super) fn class(&self) -> Option<Class> {
        self.verdict.as_ref().map(|verdict| verdict.class)
    }

    fn hear(&mut self, now_ms: u64, answer: Option<Verdict>) {
        self.asked_ms = Some(now_ms);
        if let Some(verdict) = answer.filter(|verdict| verdict.class != Class::Unknown) {
            if self.class() != Some(verdict.class) {
                self.verdict_since_ms = now_ms;
            }
            self.told_ms = now_ms;
            self.verdict = Some(verdict);
        } else if now_ms.saturating_sub(self.told_ms) >= VERDICT_KEPT_MS {
            self.verdict = None;
        }
    }

    fn due(&self, now_ms: u64) -> bool {
        let after_ms = if self.verdict.is_some() { ASK_AGAIN_MS } else { ASK_SOON_MS };
        self.asked_ms.is_none_or(|last_ms| now_ms >= last_ms + after_ms)
    }

    /// Drops the verdict.
    pub(super) fn renounce(&mut self, now_ms: u64) {
        (self.verdict, self.asked_ms, self.verdict_since_ms) = (None, None, now_ms);
    }
}

impl Scheduler {
    /// Adds a partition to the list.
    pub(super) fn engage(&mut self, slot: u32, now_ms: u64) {
        self.places.part_mut(slot).flags |= HOT;
        self.heat.entry(slot).or_insert_with(|| Heat::new(now_ms));
    }

    /// Removes partitions that have cooled down from the list, and has the detector judge hot ones.
    pub(super) fn cool_and_judge(&mut self, now_ms: u64, judge: &mut dyn Judge) {
        let mut cooled = Vec::new();
        for (slot, heat) in &mut self.heat {
            let part = self.places.part(*slot);
            let warm = part.window.busy_10() >= RELEASE_RHO || part.window.hot_seconds() > 0;
            if warm {
                heat.cool_since_ms = None;
            } else if now_ms >= *heat.cool_since_ms.get_or_insert(now_ms) + RELEASE_AFTER_MS {
                cooled.push(*slot);
                continue;
            }
            let relevant = part.window.hot_seconds() >= HOT_SECONDS_MIN || part.is(LARGE);
            if relevant && heat.due(now_ms) {
                heat.hear(now_ms, judge.judge(part.id, now_ms));
            }
        }
        for slot in cooled {
            self.heat.remove(&slot);
            self.places.part_mut(slot).flags &= !HOT;
        }
    }

    /// Judges the splits whose minute is over.
    pub(super) fn judge_splits(&mut self, now_ms: u64, judge: &mut dyn Judge) {
        for (id, watch) in self.due_watches(now_ms) {
            let parts: Vec<u32> = self
                .watched
                .iter()
                .filter(|(_, sides)| sides.iter().any(|(watch, _)| *watch == id))
                .map(|(slot, _)| *slot)
                .collect();
            let in_vain = self.settle(now_ms, id, &watch, &parts);
            for slot in parts {
                let sides = self.watched.get_mut(&slot).map(|sides| {
                    sides.retain(|(watch, _)| *watch != id);
                    sides.len()
                });
                if sides == Some(0) {
                    self.watched.remove(&slot);
                    self.places.part_mut(slot).flags &= !WATCHED;
                }
                if in_vain {
                    judge.forget(self.places.part(slot).id);
                    if let Some(heat) = self.heat.get_mut(&slot) {
                        heat.renounce(now_ms);
                    }
                }
            }
        }
    }

    /// Removes history that no longer matters.
    pub(super) fn tidy_past(&mut self, slot: u32, now_ms: u64) {
        if self.past(slot).is_some_and(|past| past.over(now_ms)) {
            self.pasts.remove(&slot);
            self.places.part_mut(slot).flags &= !HAS_PAST;
        }
    }
}

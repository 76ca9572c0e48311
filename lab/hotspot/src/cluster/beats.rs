//! Reports of nodes: every second those partitions whose load changes, every ten seconds all.
//!
//! Invariant: a report has the time at which it was made; a delayed one arrives unchanged.

use super::Cluster;
use super::events::Event;

/// Interval of reports on all partitions of a node.
const FULL_EVERY_S: u64 = 10;

impl Cluster {
    pub(super) fn on_beat(&mut self, node: u32) {
        let now_ms = self.now_ms;
        self.events.add(now_ms + self.pace_ms, Event::Beat { node });
        let state = &self.nodes[node as usize];
        if !state.up {
            return;
        }
        let full = (now_ms / 1_000 + u64::from(node)).is_multiple_of(FULL_EVERY_S);
        let still: &[u32] = if full { &state.still } else { &[] };
        self.reports.clear();
        for id in state.live.iter().chain(still) {
            let part = &mut self.parts[*id as usize];
            part.count(now_ms);
            self.reports.push(part.report(*id));
        }
        let lost = self.options.beats_lost > 0.0 && self.random.chance(self.options.beats_lost);
        if lost || self.reports.is_empty() {
            return;
        }
        // Only a delay longer than the scheduler's own second matters; shorter ones are ignored.
        let delay_ms = self.random.below(self.options.beat_delay_ms + 1);
        if delay_ms >= 100 {
            let beat = self.late.last_key_value().map_or(0, |(last, _)| last + 1);
            self.late.insert(beat, (node, self.reports.clone()));
            self.events.add(now_ms + delay_ms, Event::Late { beat });
        } else {
            self.scheduler.observe_all(now_ms, Self::node_id(node), &self.reports);
        }
    }

    pub(super) fn on_late(&mut self, beat: u64) {
        if let Some((node, reports)) = self.late.remove(&beat) {
            self.scheduler.observe_all(self.now_ms, Self::node_id(node), &reports);
        }
    }
}

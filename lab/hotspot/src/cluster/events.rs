//! The heap of future events.
//!
//! Invariant: events are returned in order of time, and those of one time in order of insertion.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// One second of load is served; load is modelled as rates, without single requests.
    Flow,
    /// A node sends its report to the scheduler.
    Beat { node: u32 },
    /// A delayed report arrives at the scheduler.
    Late { beat: u64 },
    /// The scheduler runs.
    Tick,
    /// An order (split, merge, transfer or move) is complete.
    End { order: u64 },
    /// A fault begins or ends.
    Fault { number: u32 },
    /// Other nodes take over a dead node's leaderships.
    Elect { node: u32 },
}

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Events {
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    count: u64,
}

impl Events {
    pub(crate) fn add(&mut self, at_ms: u64, event: Event) {
        self.count += 1;
        self.heap.push(Reverse((at_ms, self.count, event)));
    }

    /// The next event, if it is due by this time.
    pub(crate) fn pop_until(&mut self, until_ms: u64) -> Option<(u64, Event)> {
        let Reverse((at_ms, ..)) = self.heap.peek()?;
        if *at_ms > until_ms {
            return None;
        }
        self.heap.pop().map(|Reverse((at_ms, _, event))| (at_ms, event))
    }
}

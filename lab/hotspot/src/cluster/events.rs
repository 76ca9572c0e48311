//! The heap of what is to happen.
//!
//! Invariant: events come out by time, and of one time in the order in which they were put in.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// The fluid flows for a second.
    Flow,
    /// A node reports.
    Beat { node: u32 },
    /// A report arrives that was under way for a while.
    Late { beat: u64 },
    /// The scheduler thinks.
    Tick,
    /// An order ends.
    End { order: u64 },
    /// Something goes wrong, or is mended.
    Fault { number: u32 },
    /// What a dead node led is led by others.
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

    /// The next one, if it is not later than this.
    pub(crate) fn pop_until(&mut self, until_ms: u64) -> Option<(u64, Event)> {
        let Reverse((at_ms, ..)) = self.heap.peek()?;
        if *at_ms > until_ms {
            return None;
        }
        self.heap.pop().map(|Reverse((at_ms, _, event))| (at_ms, event))
    }
}

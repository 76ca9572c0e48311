//! A ring of bounded length and size whose items belong to classes: a flood of one class drops that class's items.
//!
//! ```text
//!   class 0  ──────────●──────●────▶     over a limit: the class with the most items (or bytes)
//!   class 1  ●●●●●●●●●●●●●●●●●●●●●●▶     loses its oldest item
//! ```
//!
//! Invariants:
//! - there are never more items or bytes than the limits;
//! - a class with at most its share of both limits (the limit divided by the number of classes) loses nothing.

use std::collections::VecDeque;

/// An item, with its place among all items and its size.
#[derive(Debug)]
struct Numbered<T> {
    number: u64,
    bytes: usize,
    item: T,
}

/// Items of one class, oldest first.
#[derive(Debug)]
struct Lane<T> {
    items: VecDeque<Numbered<T>>,
    bytes: usize,
}

/// The newest items of `CLASSES` classes; see the head of the file.
#[derive(Debug)]
pub(crate) struct Ring<T, const CLASSES: usize> {
    lanes: [Lane<T>; CLASSES],
    entries_max: usize,
    bytes_max: usize,
    pushed: u64,
}

impl<T: Clone, const CLASSES: usize> Ring<T, CLASSES> {
    /// An empty ring.
    pub(crate) fn new(entries_max: usize, bytes_max: usize) -> Self {
        let lanes = std::array::from_fn(|_| Lane { items: VecDeque::new(), bytes: 0 });
        Self { lanes, entries_max, bytes_max, pushed: 0 }
    }

    /// Adds an item of a size to a class; drops the oldest ones of large classes beyond the limits. An item of a class
    /// that does not exist is dropped.
    pub(crate) fn push(&mut self, class: usize, bytes: usize, item: T) {
        let Some(lane) = self.lanes.get_mut(class) else { return };
        lane.items.push_back(Numbered { number: self.pushed, bytes, item });
        lane.bytes += bytes;
        self.pushed += 1;
        while self.len() > self.entries_max {
            drop_oldest(self.lanes.iter_mut().max_by_key(|lane| lane.items.len()));
        }
        while self.bytes() > self.bytes_max {
            drop_oldest(self.lanes.iter_mut().max_by_key(|lane| lane.bytes));
        }
    }

    /// All items, oldest first.
    pub(crate) fn items(&self) -> Vec<T> {
        let mut numbered: Vec<_> = self.lanes.iter().flat_map(|lane| &lane.items).collect();
        numbered.sort_unstable_by_key(|numbered| numbered.number);
        numbered.into_iter().map(|numbered| numbered.item.clone()).collect()
    }

    /// Number of items.
    pub(crate) fn len(&self) -> usize {
        self.lanes.iter().map(|lane| lane.items.len()).sum()
    }

    /// Size of all items together.
    pub(crate) fn bytes(&self) -> usize {
        self.lanes.iter().map(|lane| lane.bytes).sum()
    }
}

fn drop_oldest<T>(lane: Option<&mut Lane<T>>) {
    if let Some(lane) = lane
        && let Some(oldest) = lane.items.pop_front()
    {
        lane.bytes -= oldest.bytes;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ring() -> Ring<u32, 2> {
        Ring::new(4, 100)
    }

    #[test]
    fn items_come_back_in_their_order() {
        let mut ring = ring();
        for (class, item) in [(0, 1), (1, 2), (0, 3)] {
            ring.push(class, 10, item);
        }
        assert_eq!(ring.items(), [1, 2, 3]);
        assert_eq!((ring.len(), ring.bytes()), (3, 30));
        ring.push(2, 10, 4);
        assert_eq!(ring.len(), 3, "no such class");
    }

    #[test]
    fn a_flood_of_one_class_keeps_the_others() {
        let mut ring = ring();
        ring.push(0, 10, 1);
        ring.push(0, 10, 2);
        for item in 100..1_000 {
            ring.push(1, 10, item);
        }
        assert_eq!(ring.items(), [1, 2, 998, 999]);
        // The class that grows beyond its share loses its own.
        ring.push(0, 10, 3);
        ring.push(0, 10, 4);
        assert_eq!(ring.items(), [998, 999, 3, 4]);
    }

    #[test]
    fn large_items_count_by_their_bytes() {
        let mut ring = ring();
        ring.push(0, 40, 1);
        ring.push(1, 50, 2);
        ring.push(1, 50, 3);
        assert_eq!(ring.items(), [1, 3]);
        ring.push(0, 101, 4);
        assert_eq!(ring.items(), [3], "an item larger than the ring");
        assert_eq!(ring.bytes(), 50);
    }

    #[test]
    fn a_ring_without_room_keeps_nothing() {
        let mut ring: Ring<u32, 2> = Ring::new(0, 100);
        ring.push(0, 1, 1);
        assert_eq!((ring.len(), ring.bytes(), ring.items().len()), (0, 0, 0));
    }

    proptest! {
        #[test]
        fn the_limits_hold_and_shares_are_kept(
            steps in prop::collection::vec((0..2_usize, 0..60_usize), 0..200),
        ) {
            let mut ring = ring();
            let mut pushed: Vec<(usize, usize)> = Vec::new();
            for (number, (class, bytes)) in steps.into_iter().enumerate() {
                ring.push(class, bytes, u32::try_from(number).unwrap());
                pushed.push((class, bytes));
                prop_assert!(ring.len() <= 4 && ring.bytes() <= 100);
                let items = ring.items();
                prop_assert!(items.is_sorted());
                let sizes = items.iter().map(|item| pushed[*item as usize].1);
                prop_assert_eq!(sizes.sum::<usize>(), ring.bytes());
                for class in 0..2 {
                    // The newest items of a class that fit into its share.
                    let of_class: Vec<usize> =
                        (0..pushed.len()).filter(|item| pushed[*item].0 == class).collect();
                    let mut sum = 0;
                    for item in of_class.iter().rev().take(2) {
                        sum += pushed[*item].1;
                        if sum > 50 {
                            break;
                        }
                        prop_assert!(items.contains(&u32::try_from(*item).unwrap()));
                    }
                }
            }
        }
    }
}

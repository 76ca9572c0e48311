//! Sketch of the keys requested from one partition: a few samples of each second.
//!
//! Invariants: ticks are ascending by second and bounded in number; a tick has a bounded number of samples, and the
//! number of operations that they represent, so that a busy second weighs more than a quiet one.

/// One sampled operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The encoded key; for a scan, the start of its range.
    pub key: Box<[u8]>,
    /// The end of the range (exclusive) if the operation was a scan of more than one key; empty for "to the end".
    pub end: Option<Box<[u8]>>,
    /// True if the key (for a scan, the end of its range) lay above all sampled keys until the second before the last:
    /// an append. Never true for a scan to the end.
    pub above: bool,
    /// True if the key (for a scan, the start of its range) lay below all of them.
    pub below: bool,
}

/// Operations of one second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// Seconds since the Unix epoch, by the node's clock.
    pub second: u64,
    /// Number of operations (rows, for writes) in this second.
    pub count: u64,
    /// A uniform sample of the operations, in order of arrival.
    pub samples: Vec<Sample>,
}

/// The samples of one kind of operation (writes or reads) on one partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sketch {
    /// Ascending by second; seconds without operations are left out.
    pub ticks: Vec<Tick>,
    /// The most frequent keys, or leading columns of keys, with an estimate of their share of all operations (recent
    /// ones weigh more; half of the weight lies in the last 30 s), 0 to 1; descending.
    pub heavy: Vec<(Box<[u8]>, f64)>,
    /// The lowest and the highest key that the partition is known to hold, if any is known.
    pub edges: Option<(Box<[u8]>, Box<[u8]>)>,
}

impl Sketch {
    /// Adds a newer sketch, and drops ticks that are more than `keep_s` seconds older than the newest. A second that
    /// arrives again replaces the earlier one: a repeated or early report does no harm. Edges and frequent keys that the
    /// newer sketch does not have are kept.
    pub fn absorb(&mut self, newer: Self, keep_s: u64) {
        for tick in newer.ticks {
            match self.ticks.binary_search_by_key(&tick.second, |candidate| candidate.second) {
                Ok(position) if self.ticks[position].count <= tick.count => {
                    self.ticks[position] = tick
                }
                Ok(_) => {}
                Err(position) => self.ticks.insert(position, tick),
            }
        }
        let oldest = self.ticks.last().map_or(0, |last| (last.second + 1).saturating_sub(keep_s));
        self.ticks.retain(|tick| tick.second >= oldest);
        if !newer.heavy.is_empty() {
            self.heavy = newer.heavy;
        }
        self.edges = newer.edges.or_else(|| self.edges.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sketch(ticks: &[(u64, u64)]) -> Sketch {
        let tick = |(second, count): &(u64, u64)| Tick {
            second: *second,
            count: *count,
            samples: Vec::new(),
        };
        Sketch { ticks: ticks.iter().map(tick).collect(), ..Sketch::default() }
    }

    #[test]
    fn reports_add_up_in_whatever_order_and_however_often_they_come() {
        let mut whole = sketch(&[(1, 9), (2, 9), (3, 4)]);
        whole.absorb(sketch(&[(3, 9), (5, 9)]), 4);
        whole.absorb(sketch(&[(4, 9)]), 4);
        whole.absorb(sketch(&[(3, 4), (5, 9)]), 4);
        assert_eq!(whole, sketch(&[(2, 9), (3, 9), (4, 9), (5, 9)]));
    }

    #[test]
    fn edges_and_frequent_keys_stay_until_there_are_newer_ones() {
        let key = |byte: u8| Box::<[u8]>::from([byte]);
        let mut whole = Sketch {
            heavy: vec![(key(7), 0.5)],
            edges: Some((key(1), key(9))),
            ..sketch(&[(1, 9)])
        };
        whole.absorb(sketch(&[(2, 9)]), 60);
        assert_eq!((whole.heavy.len(), &whole.edges), (1, &Some((key(1), key(9)))));
        let newer = Sketch { edges: Some((key(0), key(9))), ..sketch(&[(3, 9)]) };
        whole.absorb(newer, 60);
        assert_eq!(whole.edges, Some((key(0), key(9))));
    }
}

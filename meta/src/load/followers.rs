//! Reads that followers answered, added to the counters of the leader.
//!
//! Invariants: sums only grow within a leader's term, and begin at zero with the next one, as the leader's own do; of a
//! follower that is heard for the first time nothing counts, because this process may be younger than its reads.

use std::collections::BTreeMap;

use partita_load::Counters;
use partita_proto::beat::FollowerReads;
use partita_proto::id::NodeId;

/// Maximum nodes remembered for one partition; more than it has replicas, even while these move.
const NODES_MAX: usize = 16;

/// Reads of one partition at its followers.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    /// Last report of each node.
    reports: BTreeMap<NodeId, FollowerReads>,
    /// The leader's term, and reads since it began.
    term: u64,
    sums: Counters,
}

impl Followers {
    /// Takes the report of a node.
    pub(crate) fn add(&mut self, node: NodeId, reads: &FollowerReads) {
        if self.reports.len() >= NODES_MAX && !self.reports.contains_key(&node) {
            self.reports.clear();
        }
        let Some(previous) = self.reports.insert(node, *reads) else { return };
        // A replica that led in between counts from zero again.
        let is_continued = previous.since_ms == reads.since_ms;
        let previous = if is_continued { previous.counters } else { Counters::default() };
        let more = |select: fn(&Counters) -> u64| {
            select(&reads.counters).saturating_sub(select(&previous))
        };
        let sums = &mut self.sums;
        sums.read_rows += more(|counters| counters.read_rows);
        sums.read_bytes += more(|counters| counters.read_bytes);
        sums.point_reads += more(|counters| counters.point_reads);
        sums.range_reads += more(|counters| counters.range_reads);
        sums.scans += more(|counters| counters.scans);
        sums.scan_ns += more(|counters| counters.scan_ns);
    }

    /// Counters of a leader in this term with the reads of the followers; `None` if there are no such reads.
    pub(crate) fn with(&mut self, term: u64, leader: &Counters) -> Option<Counters> {
        if term != self.term {
            (self.term, self.sums) = (term, Counters::default());
        }
        let sums = &self.sums;
        (*sums != Counters::default()).then(|| Counters {
            read_rows: leader.read_rows + sums.read_rows,
            read_bytes: leader.read_bytes + sums.read_bytes,
            point_reads: leader.point_reads + sums.point_reads,
            range_reads: leader.range_reads + sums.range_reads,
            scans: leader.scans + sums.scans,
            scan_ns: leader.scan_ns + sums.scan_ns,
            ..*leader
        })
    }
}

#[cfg(test)]
mod tests {
    use partita_proto::id::PartitionId;

    use super::*;

    fn reads(since_ms: u64, rows: u64) -> FollowerReads {
        let counters = Counters { read_rows: rows, scan_ns: 10 * rows, ..Counters::default() };
        FollowerReads { partition: PartitionId(1), since_ms, counters }
    }

    #[test]
    fn reads_of_followers_are_added_from_the_second_report_on() {
        let mut followers = Followers::default();
        let leader = Counters { read_rows: 100, write_rows: 7, ..Counters::default() };
        followers.add(NodeId(2), &reads(5, 1_000));
        assert_eq!(followers.with(3, &leader), None);
        followers.add(NodeId(2), &reads(5, 1_040));
        followers.add(NodeId(3), &reads(6, 9));
        followers.add(NodeId(3), &reads(6, 9));
        let counters = followers.with(3, &leader).unwrap();
        assert_eq!((counters.read_rows, counters.write_rows), (140, 7));
        assert_eq!(counters.scan_ns, 400);
        // It led meanwhile, and counts from zero again.
        followers.add(NodeId(2), &reads(8, 5));
        assert_eq!(followers.with(3, &leader).unwrap().read_rows, 145);
        assert_eq!(followers.with(4, &leader), None, "a new term begins at zero");
    }

    #[test]
    fn nodes_are_forgotten_at_a_bound() {
        let mut followers = Followers::default();
        for node in 0..100 {
            followers.add(NodeId(node), &reads(1, 1));
            assert!(followers.reports.len() <= NODES_MAX);
        }
    }
}

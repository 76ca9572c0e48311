//! The choice of the replica that is asked for a scan of a partition.
//!
//! The leader answers with one hop less than a follower, which has to ask it for a read point. So it is asked, unless the
//! reads of the partition keep it busy. Then the better of two replicas that are drawn at random is asked: that comes
//! close to the best of all of them, and does not send all frontends to the same one between two measurements
//! (Mitzenmacher, The Power of Two Choices in Randomized Load Balancing, 2001).
//!
//! Invariants: the choice depends on the arguments only; a replica that is left out is never chosen, and without two
//! others the leader is asked.

use partita_proto::id::NodeId;

/// Mean number of this frontend's scans in flight from which followers are asked too. A client that reads all the time
/// has one.
const IN_FLIGHT_MIN: f64 = 1.5;
/// Cores that the reads of all clients take, on all replicas together, from which followers are asked too: those from
/// which a partition counts as hot.
const CORES_MIN: f64 = 0.5;
/// Cores that are added to those of every replica: differences below this do not matter, and a replica of which nothing
/// is known is tried.
const CORES_BASE: f64 = 0.05;
/// Factor by which the leader counts as busier than it reports: it also answers the questions of the followers, which no
/// report has.
const LEADER_FACTOR: f64 = 1.5;

/// Reads of one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Reads {
    /// Mean number of this frontend's scans in flight over the last moments.
    pub(super) in_flight: f64,
    /// Cores that reads took lately, on all replicas together.
    pub(super) cores: f64,
}

/// A replica of the partition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) node: NodeId,
    /// True if the replica leads, as far as the frontend knows.
    pub(super) leads: bool,
    /// True if the replica failed a moment ago.
    pub(super) is_left_out: bool,
    /// This frontend's scans in flight at the node, of all partitions.
    pub(super) in_flight: u32,
    /// Cores that the replica's reads and writes took lately; 0: not known.
    pub(super) cores: f64,
}

impl Candidate {
    /// Measure of the work that one more scan would wait for. Scans in flight alone would favour the leader, whose
    /// answers come without a question, until it does more work than the others.
    fn cost(&self) -> f64 {
        let factor = if self.leads { LEADER_FACTOR } else { 1.0 };
        (f64::from(self.in_flight) + 1.0) * (CORES_BASE + self.cores) * factor
    }
}

/// True if the reads of a partition are worth a follower's question to the leader.
fn are_many(reads: &Reads) -> bool {
    reads.in_flight >= IN_FLIGHT_MIN || reads.cores >= CORES_MIN
}

/// The node to ask as one of the followers; `None`: the leader is to be asked, whoever it is. `draw` is a random number.
pub(super) fn choose(reads: &Reads, candidates: &[Candidate], draw: u64) -> Option<NodeId> {
    // Without a known leader, the first thing to do is to find it.
    if !are_many(reads) || !candidates.iter().any(|candidate| candidate.leads) {
        return None;
    }
    let usable: Vec<&Candidate> =
        candidates.iter().filter(|candidate| !candidate.is_left_out).collect();
    let count = usable.len() as u64;
    if count < 2 {
        return None;
    }
    // Two different ones, each pair as likely as any other.
    let first = draw % count;
    let second = (first + 1 + (draw / count) % (count - 1)) % count;
    let drawn = |position: u64| usable.get(usize::try_from(position).ok()?).copied();
    let (first, second) = (drawn(first)?, drawn(second)?);
    let better = if second.cost() < first.cost() { second } else { first };
    Some(better.node).filter(|_| !better.leads)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: Reads = Reads { in_flight: 8.0, cores: 0.0 };

    /// Three equal replicas, of which the first leads.
    fn three() -> [Candidate; 3] {
        [1, 2, 3].map(|node| Candidate {
            node: NodeId(node),
            leads: node == 1,
            is_left_out: false,
            in_flight: 4,
            cores: 0.3,
        })
    }

    /// Answers to `draws` draws: how often each of the nodes 1 to 3 is asked.
    fn shares(reads: &Reads, candidates: &[Candidate], draws: u64) -> [u64; 3] {
        let mut shares = [0; 3];
        for draw in 0..draws {
            match choose(reads, candidates, draw) {
                None => shares[0] += 1,
                Some(NodeId(node)) => shares[usize::try_from(node).unwrap() - 1] += 1,
            }
        }
        shares
    }

    #[test]
    fn a_light_load_stays_at_the_leader() {
        for reads in [
            Reads::default(),
            Reads { in_flight: 1.0, cores: 0.4 },
            Reads { in_flight: 1.4, cores: 0.0 },
        ] {
            assert_eq!(shares(&reads, &three(), 600), [600, 0, 0], "{reads:?}");
        }
        for reads in [MANY, Reads { in_flight: 0.2, cores: 0.5 }] {
            assert!(shares(&reads, &three(), 600)[1] > 0, "{reads:?}");
        }
    }

    #[test]
    fn each_pair_is_drawn_as_often_and_the_leader_is_spared() {
        let mut candidates = three();
        assert_eq!(shares(&MANY, &candidates, 600), [0, 300, 300]);
        // The leader is in two of three pairs.
        candidates[0].in_flight = 2;
        assert_eq!(shares(&MANY, &candidates, 600), [400, 100, 100]);
    }

    #[test]
    fn the_replica_with_less_work_is_asked() {
        let mut candidates = three();
        candidates[0].in_flight = 20;
        assert_eq!(shares(&MANY, &candidates, 600), [0, 300, 300]);
        candidates[2].in_flight = 5;
        // The third one loses against the second one, and wins against the leader.
        assert_eq!(shares(&MANY, &candidates, 600), [0, 400, 200]);
    }

    #[test]
    fn a_replica_that_is_busier_gets_less() {
        let mut candidates = three();
        candidates[1].cores = 0.9;
        assert_eq!(shares(&MANY, &candidates, 600), [200, 0, 400]);
        // One that nothing is known of is tried, until it has so many scans in flight that it would be busy too.
        candidates[2].cores = 0.0;
        assert_eq!(shares(&MANY, &candidates, 600), [200, 0, 400]);
        candidates[2].in_flight = 99;
        assert_eq!(shares(&MANY, &candidates, 600), [400, 200, 0]);
    }

    #[test]
    fn a_replica_that_failed_is_left_out_and_the_leader_is_asked_when_no_other_is_left() {
        let mut candidates = three();
        candidates[0].in_flight = 20;
        candidates[1].is_left_out = true;
        assert_eq!(shares(&MANY, &candidates, 600), [0, 0, 600]);
        candidates[2].is_left_out = true;
        assert_eq!(shares(&MANY, &candidates, 600), [600, 0, 0]);
        assert_eq!(choose(&MANY, &[], 7), None);
        let mut leaderless = three();
        leaderless[0].leads = false;
        assert_eq!(shares(&MANY, &leaderless, 600), [600, 0, 0], "the leader is looked for first");
    }

    #[test]
    fn a_closed_loop_of_readers_keeps_three_replicas_about_as_busy() {
        // Readers that each have one scan in flight. A scan takes 4 turns, and at a follower 2 more to ask the leader, whom
        // the question costs a tenth of a scan. Work is reported as the average of the last turns.
        let mut candidates = three();
        for candidate in &mut candidates {
            (candidate.in_flight, candidate.cores) = (0, 0.0);
        }
        let mut running: Vec<(usize, usize)> = Vec::new();
        let mut answered = [0_u64; 3];
        let mut draw = 7_u64;
        for turn in 0..40_000_usize {
            running.retain(|(position, end)| {
                candidates[*position].in_flight -= u32::from(*end == turn);
                *end != turn
            });
            let before = answered;
            while running.len() < 12 {
                draw = draw
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let node = choose(&MANY, &candidates, draw >> 33).unwrap_or(NodeId(1));
                let position = usize::try_from(node.0).unwrap() - 1;
                candidates[position].in_flight += 1;
                answered[position] += 1;
                running.push((position, turn + if position == 0 { 4 } else { 6 }));
            }
            for (position, candidate) in candidates.iter_mut().enumerate() {
                let begun = (answered[position] - before[position]) as f64;
                candidate.cores = candidate.cores * 0.98 + begun * 0.02;
            }
        }
        let total: u64 = answered.iter().sum();
        let [leader, followers @ ..] = answered;
        let leader_work = leader * 10 + followers.iter().sum::<u64>();
        let most = followers.iter().map(|scans| scans * 10).fold(leader_work, u64::max);
        // Throughput is the sum over the work of the busiest one: the leader alone has 1.
        assert!(total * 100 >= most * 24, "{answered:?}");
    }
}

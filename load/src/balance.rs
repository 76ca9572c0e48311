//! Chooses a leader, or a replica, to move off a node with more than its share of load, and the target.
//!
//! Among the candidates it chooses the one closest to *half* of the excess: two medium moves rather than one extreme
//! one, which would overshoot when its load was misjudged. No move puts the source below the mean or the target above
//! its limit, so that no move can be undone by another: the maximum of the two nodes only decreases.
//!
//! Invariants: pure functions; loads are in cores and include the effect of orders in progress; ties go to the first
//! candidate and the first node.

/// A node is too busy above this multiple of the mean ...
pub(crate) const TOO_BUSY: f64 = 1.10;
/// ... for this long.
pub(crate) const TOO_BUSY_FOR_MS: u64 = 30_000;
/// Maximum load of the target after a move, as a multiple of the mean.
pub(crate) const TARGET_MAX: f64 = 1.05;
/// Minimum excess over the mean, in loads over capacity, for a move: in an idle cluster, ten percent of the mean are
/// nothing.
pub(crate) const EXCESS_MIN: f64 = 0.02;
/// Minimum load of a move, in cores ...
pub(crate) const MOVED_MIN: f64 = 0.002;
/// ... and minimum share of the excess, if the move copies bytes.
const MOVED_SHARE_MIN: f64 = 0.005;

/// Load of a node while a round of moves is planned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NodeLoad {
    /// Load in cores, with the effect of orders in progress.
    pub(crate) load: f64,
    /// Capacity in cores.
    pub(crate) capacity: f64,
    /// True if the node is up and not being drained.
    pub(crate) open: bool,
}

impl NodeLoad {
    pub(crate) fn used(&self) -> f64 {
        self.load / self.capacity
    }
}

/// A leader or replica that could move.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Candidate {
    /// Load that moves, in cores.
    pub(crate) moved: f64,
    /// Bytes to be copied; 0 for a leadership.
    pub(crate) bytes: u64,
    /// Possible target nodes.
    pub(crate) targets: Vec<u16>,
}

/// Mean load over capacity of all open nodes.
pub(crate) fn mean(nodes: &[NodeLoad]) -> f64 {
    let (load, capacity) = nodes
        .iter()
        .filter(|node| node.open)
        .fold((0.0, 0.0), |(load, capacity), node| (load + node.load, capacity + node.capacity));
    if capacity > 0.0 { load / capacity } else { 0.0 }
}

/// True if a node has more than its share of load.
pub(crate) fn too_busy(node: &NodeLoad, mean: f64) -> bool {
    let used = node.used();
    node.open && used > mean * TOO_BUSY && used - mean >= EXCESS_MIN
}

/// The candidate to move off `source`, and its target: positions among the candidates and the nodes.
pub(crate) fn pick(
    source: u16,
    mean: f64,
    nodes: &[NodeLoad],
    candidates: &[Candidate],
) -> Option<(usize, u16)> {
    let node = &nodes[usize::from(source)];
    let excess = node.load - mean * node.capacity;
    let mut best: Option<(f64, usize, u16)> = None;
    for (index, candidate) in candidates.iter().enumerate() {
        let moved = candidate.moved;
        let trifling =
            moved < MOVED_MIN || (candidate.bytes > 0 && moved < excess * MOVED_SHARE_MIN);
        if trifling || moved > excess {
            continue;
        }
        let Some(target) = least_used(nodes, &candidate.targets) else { continue };
        let target_node = &nodes[usize::from(target)];
        if target == source || target_node.load + moved > mean * TARGET_MAX * target_node.capacity {
            continue;
        }
        // Closeness to half the excess, 0 to 1; a copy costs in proportion to its bytes per relief.
        let nearness = 1.0 - (moved - excess / 2.0).abs() / excess;
        let gibibytes = candidate.bytes as f64 / f64::from(1 << 30);
        let score = nearness / (1.0 + gibibytes);
        if best.is_none_or(|(best_score, ..)| score > best_score) {
            best = Some((score, index, target));
        }
    }
    best.map(|(_, index, target)| (index, target))
}

/// The open node with the least load; the first among equals.
pub(crate) fn least_used(nodes: &[NodeLoad], among: &[u16]) -> Option<u16> {
    let open = among
        .iter()
        .copied()
        .filter(|index| nodes.get(usize::from(*index)).is_some_and(|node| node.open));
    open.fold(None, |best: Option<u16>, index| match best {
        Some(least) if nodes[usize::from(least)].used() <= nodes[usize::from(index)].used() => best,
        _ => Some(index),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(loads: &[f64]) -> Vec<NodeLoad> {
        loads.iter().map(|load| NodeLoad { load: *load, capacity: 1.0, open: true }).collect()
    }

    fn leader(moved: f64, targets: &[u16]) -> Candidate {
        Candidate { moved, bytes: 0, targets: targets.to_vec() }
    }

    #[test]
    fn two_medium_moves_are_preferred_to_one_extreme() {
        let nodes = nodes(&[0.9, 0.3, 0.3]);
        // Excess 0.4: of 0.01, 0.2 and 0.4 the middle one is taken.
        let candidates = [leader(0.01, &[1]), leader(0.2, &[2]), leader(0.4, &[1])];
        assert_eq!(pick(0, mean(&nodes), &nodes, &candidates), Some((1, 2)));
    }

    #[test]
    fn what_would_only_move_the_maximum_stays() {
        let nodes = nodes(&[0.9, 0.1, 0.1]);
        // All of the load is one partition's: wherever it goes, that node is as busy.
        assert_eq!(pick(0, mean(&nodes), &nodes, &[leader(0.9, &[1, 2])]), None);
        // Its target would be above the mean by more than 5 %.
        assert_eq!(pick(0, mean(&nodes), &nodes, &[leader(0.4, &[1, 2])]), None);
    }

    #[test]
    fn the_least_used_open_voter_is_the_target() {
        let mut nodes = nodes(&[0.9, 0.2, 0.1, 0.15]);
        nodes[2].open = false;
        let candidates = [leader(0.1, &[1, 2, 3])];
        assert_eq!(pick(0, 0.35, &nodes, &candidates), Some((0, 3)));
        assert_eq!(least_used(&nodes, &[2]), None);
    }

    #[test]
    fn capacity_counts() {
        let mut nodes = nodes(&[0.8, 0.8]);
        nodes[1].capacity = 4.0;
        let mean = mean(&nodes);
        assert!((mean - 0.32).abs() < 1e-9);
        assert!(too_busy(&nodes[0], mean));
        assert!(!too_busy(&nodes[1], mean));
        assert_eq!(pick(0, mean, &nodes, &[leader(0.2, &[1])]), Some((0, 1)));
    }

    #[test]
    fn fewer_bytes_are_copied_for_the_same_relief() {
        let nodes = nodes(&[1.0, 0.2, 0.2]);
        let mut candidates = [leader(0.2, &[1]), leader(0.2, &[1])];
        candidates[0].bytes = 4 << 30;
        candidates[1].bytes = 1 << 30;
        assert_eq!(pick(0, mean(&nodes), &nodes, &candidates), Some((1, 1)));
    }

    #[test]
    fn an_idle_cluster_is_left_alone() {
        let nodes = nodes(&[0.02, 0.0, 0.0]);
        assert!(!too_busy(&nodes[0], mean(&nodes)));
    }

    #[test]
    fn a_round_of_moves_never_turns_a_difference_round() {
        // Whatever the loads, after a pick the target is below the source.
        let mut seed = 7_u64;
        let mut random = move || {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            f64::from(u32::try_from(seed >> 33).unwrap()) / f64::from(1_u32 << 31)
        };
        let mut picked = 0;
        for _ in 0..2_000 {
            let nodes: Vec<NodeLoad> = (0..5)
                .map(|_| NodeLoad { load: random(), capacity: 0.5 + random(), open: true })
                .collect();
            let mean = mean(&nodes);
            let candidates: Vec<Candidate> =
                (0..6).map(|_| leader(random() * nodes[0].load, &[1, 2, 3, 4])).collect();
            if !too_busy(&nodes[0], mean) {
                continue;
            }
            if let Some((index, target)) = pick(0, mean, &nodes, &candidates) {
                picked += 1;
                let moved = candidates[index].moved;
                let to = &nodes[usize::from(target)];
                assert!((to.load + moved) / to.capacity < nodes[0].used());
                assert!(nodes[0].load - moved >= mean * nodes[0].capacity - 1e-9);
            }
        }
        assert!(picked > 100, "{picked}");
    }
}

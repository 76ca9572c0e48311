//! Failure zones: nodes whose label [`ZONE`] has the same value may fail together. A node without the label is a
//! zone of its own, so that a cluster whose nodes have no labels, or not all of them yet, is placed as if there
//! were no zones.
//!
//! Rule of all placements: of the nodes that can take a replica, those are preferred with the fewest other replicas
//! of the partition in their zone. It is a preference, never a ban: with too few zones, replicas share one.

use std::collections::BTreeMap;

use partita_proto::id::NodeId;
use partita_proto::label::{Labels, ZONE};

/// The zones of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Zones {
    /// Zone number of each node that has a zone label.
    zones: BTreeMap<NodeId, u32>,
}

impl Zones {
    /// Numbers the zones, given nodes and their zone names.
    pub(crate) fn new<'a>(nodes: impl IntoIterator<Item = (NodeId, Option<&'a str>)>) -> Self {
        let mut numbers: BTreeMap<&str, u32> = BTreeMap::new();
        let mut next = 0;
        let mut zones = BTreeMap::new();
        for (node, zone) in nodes {
            let Some(zone) = zone else { continue };
            let number = *numbers.entry(zone).or_insert_with(|| {
                next += 1;
                next
            });
            zones.insert(node, number);
        }
        Self { zones }
    }

    /// Number of a node's zone; `None`: a zone of its own.
    pub(crate) fn number(&self, node: NodeId) -> Option<u32> {
        self.zones.get(&node).copied()
    }

    /// Number of these other nodes that are in the node's zone.
    pub(crate) fn company(&self, node: NodeId, neighbours: &[NodeId]) -> usize {
        let Some(zone) = self.zones.get(&node) else { return 0 };
        neighbours
            .iter()
            .filter(|neighbour| **neighbour != node && self.zones.get(neighbour) == Some(zone))
            .count()
    }
}

/// The zone that a node's labels name.
pub(crate) fn zone_of(labels: &Labels) -> Option<&str> {
    labels.get(ZONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_one_zone_are_company_and_a_node_without_one_has_none() {
        let named = [(1, Some("a")), (2, Some("b")), (3, Some("a")), (4, None), (5, None)];
        let zones = Zones::new(named.map(|(node, zone)| (NodeId(node), zone)));
        let others = [1, 2, 3, 4].map(NodeId);
        let company = [1, 2, 3, 4, 5, 9].map(|node| zones.company(NodeId(node), &others));
        assert_eq!(company, [1, 0, 1, 0, 0, 0]);
        assert_eq!(zones.number(NodeId(1)), zones.number(NodeId(3)));
        assert_ne!(zones.number(NodeId(1)), zones.number(NodeId(2)));
        assert_eq!(zones.number(NodeId(4)), None);
    }
}

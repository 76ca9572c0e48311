//! Converts the catalog's records into the load scheduler's facts.

use std::collections::BTreeMap;

use partita_load::{
    HashOf, MERGE_AFTER_MS, NodeFacts, NodeId as LoadNode, PartitionFacts, Remedy, TableFacts, Tail,
};
use partita_proto::history::{Cause, ReshapeEvent, ReshapeKind, ReshapeOutcome};
use partita_proto::id::{NodeId, PartitionId, TableId};
use partita_proto::partitioning::HotspotRemedy;
use partita_proto::placement::Placement;
use partita_proto::schema::TableSchema;

use crate::catalog::{NodeRecord, PartitionRecord, TableRecord};

/// Time for which the parts of a split by hand are not merged automatically: as long as after a split by load.
const PINNED_MS: u64 = 60 * 60 * 1_000;

/// Partitioning options and shape of a table. `merges`: false if its partitions must stay apart.
pub(crate) fn table(record: &TableRecord, merges: bool) -> TableFacts {
    let options = &record.schema.options;
    let partitioning = &options.partitioning;
    TableFacts {
        by_load: partitioning.by_load,
        by_size: partitioning.by_size,
        partition_bytes: u64::from(partitioning.partition_size_mb) << 20,
        // However many there are, they are too few for a merge.
        partitions_min: if merges { partitioning.min_partitions as usize } else { usize::MAX },
        partitions_max: match partitioning.max_partitions {
            0 => usize::MAX,
            max => max as usize,
        },
        remedy: match partitioning.hotspot_remedy {
            HotspotRemedy::Off => Remedy::Off,
            HotspotRemedy::Advise => Remedy::Advise,
            HotspotRemedy::Auto => Remedy::Auto,
        },
        // A table that has a former table cannot be repartitioned again.
        append_only: options.append_mode && record.former.is_none(),
        tail: tail(&record.schema, &record.placement),
        buckets: match &record.placement {
            // A table placed by hash has no growing end to be remedied.
            Placement::Hash { .. } => u32::try_from(record.partitions.len()).unwrap_or(u32::MAX),
            Placement::Range | Placement::Rules { .. } => 1,
        },
        hash_of: hash_of(&record.schema, &record.placement),
        keeps_together: partitioning.keep_together > 0,
        merge_after_ms: MERGE_AFTER_MS,
    }
}

/// Columns by whose hash rows are placed.
fn hash_of(schema: &TableSchema, placement: &Placement) -> Option<HashOf> {
    let Placement::Hash { columns } = placement else { return None };
    let is_whole = schema.key.iter().all(|id| columns.contains(id));
    Some(if is_whole { HashOf::Key } else { HashOf::Series })
}

/// The end at which a table grows, as far as its key tells.
fn tail(schema: &TableSchema, placement: &Placement) -> Tail {
    let leads = schema.key.first().and_then(|first| schema.columns.iter().find(|c| c.id == *first));
    let by_time = leads.is_some_and(|column| column.column_type.is_timestamp());
    if by_time && matches!(placement, Placement::Range) { Tail::Right } else { Tail::None }
}

/// Partitions that must not be merged yet because an operator split them, each with the time until which they are
/// pinned. A split under way counts, because its parts appear before its event has ended.
pub(crate) fn pins(events: &[ReshapeEvent], now_ms: u64) -> BTreeMap<PartitionId, u64> {
    let is_pinning = |event: &&ReshapeEvent| {
        event.kind == ReshapeKind::Split
            && event.reason.cause == Cause::ByHand
            && !matches!(event.outcome, ReshapeOutcome::GivenUp(_))
    };
    let mut pins = BTreeMap::new();
    for event in events.iter().filter(is_pinning) {
        let until_ms = u64::try_from(event.at_ms).unwrap_or(0).saturating_add(PINNED_MS);
        if until_ms > now_ms {
            for partition in [event.partition, event.other] {
                let pin: &mut u64 = pins.entry(partition).or_default();
                *pin = until_ms.max(*pin);
            }
        }
    }
    pins
}

/// Facts of a partition that exists since `born_ms`; it is not pinned.
///
/// `full`: cut off from a growing end, so it is not split for its size. `key_epoch`: partitions of different ones
/// are not merged.
pub(crate) fn partition(
    record: &PartitionRecord,
    born_ms: u64,
    full: bool,
    key_epoch: u16,
) -> PartitionFacts {
    PartitionFacts {
        id: partition_id(record.id),
        voters: record.replicas.values().map(|node| node_id(*node)).collect(),
        leader: None,
        born_ms,
        pinned_until_ms: 0,
        key_epoch,
        full,
    }
}

/// Facts of a node: its liveness and its zone.
pub(crate) fn node(record: &NodeRecord, up: bool, zone: Option<u32>) -> NodeFacts {
    NodeFacts { up, draining: record.draining, zone, ..NodeFacts::default() }
}

/// Facts of a removed node.
pub(crate) fn removed_node() -> NodeFacts {
    NodeFacts { up: false, ..NodeFacts::default() }
}

/// Node id for the scheduler.
pub(crate) fn node_id(node: NodeId) -> LoadNode {
    LoadNode(node.0)
}

/// Node id of the catalog.
pub(crate) fn node_of(node: LoadNode) -> NodeId {
    NodeId(node.0)
}

/// Partition id for the scheduler.
pub(crate) fn partition_id(partition: PartitionId) -> partita_load::PartitionId {
    partita_load::PartitionId(partition.0)
}

/// Partition id of the catalog.
pub(crate) fn partition_of(partition: partita_load::PartitionId) -> PartitionId {
    PartitionId(partition.0)
}

/// Table id for the scheduler.
pub(crate) fn table_id(table: TableId) -> partita_load::TableId {
    partita_load::TableId(table.0)
}

/// Table id of the catalog.
pub(crate) fn table_of(table: partita_load::TableId) -> TableId {
    TableId(table.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use partita_proto::history::Reason;
    use partita_proto::range::Bound;

    use super::*;

    fn event(kind: ReshapeKind, cause: Cause, parts: [u64; 2], at_ms: i64) -> ReshapeEvent {
        let [partition, other] = parts.map(PartitionId);
        ReshapeEvent {
            id: 1,
            at_ms,
            table: TableId(1),
            kind,
            partition,
            other,
            key: Bound::default(),
            reason: Reason { cause, ..Reason::by_hand() },
            outcome: ReshapeOutcome::Done,
            stall: Duration::ZERO,
            duration: Duration::ZERO,
            relief: None,
            actual_larger: None,
            in_vain: None,
        }
    }

    #[test]
    fn splits_by_hand_pin_both_parts_for_an_hour() {
        let now_ms = 10 * PINNED_MS;
        let now = i64::try_from(now_ms).unwrap();
        let hour = i64::try_from(PINNED_MS).unwrap();
        let given_up = ReshapeEvent {
            outcome: ReshapeOutcome::GivenUp("no quorum".to_owned()),
            ..event(ReshapeKind::Split, Cause::ByHand, [8, 9], now)
        };
        let events = [
            event(ReshapeKind::Split, Cause::ByHand, [1, 2], now - hour + 7),
            event(ReshapeKind::Split, Cause::ByHand, [1, 3], now),
            event(ReshapeKind::Split, Cause::ByHand, [4, 5], now - hour),
            event(ReshapeKind::Split, Cause::Load, [6, 7], now),
            event(ReshapeKind::Merge, Cause::ByHand, [6, 7], now),
            event(ReshapeKind::Split, Cause::ByHand, [6, 7], -1),
            given_up,
        ];
        let end_ms = now_ms + PINNED_MS;
        let pinned = [(1, end_ms), (2, now_ms + 7), (3, end_ms)];
        let pinned = pinned.map(|(partition, until_ms)| (PartitionId(partition), until_ms));
        assert_eq!(pins(&events, now_ms), BTreeMap::from(pinned));
    }

    #[test]
    fn every_node_has_an_id_of_its_own_in_the_scheduler() {
        for node in [1, u64::from(u32::MAX), u64::from(u32::MAX) + 1, u64::MAX].map(NodeId) {
            assert_eq!(node_of(node_id(node)), node);
        }
    }
}

//! Converts the catalog's records into the load scheduler's facts.

use partita_load::{
    HashOf, NodeFacts, NodeId as LoadNode, PartitionFacts, Remedy, TableFacts, Tail,
};
use partita_proto::id::{NodeId, PartitionId, TableId};
use partita_proto::partitioning::HotspotRemedy;
use partita_proto::placement::Placement;
use partita_proto::schema::TableSchema;

use crate::catalog::{NodeRecord, PartitionRecord, TableRecord};

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
        merge_after_ms: u64::from(partitioning.merge_after_s) * 1_000,
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

/// Time until which a partition stays apart from its left neighbour because an operator chose its first key, milliseconds;
/// 0: it need not.
///
/// `known_since_ms`: the begin where the time of the cut was not recorded. `expiry_s`: seconds; 0: never.
pub(crate) fn pinned_until_ms(
    cut_by_hand_ms: Option<i64>,
    expiry_s: u32,
    known_since_ms: u64,
) -> u64 {
    let Some(cut_ms) = cut_by_hand_ms else { return 0 };
    let since_ms = u64::try_from(cut_ms).ok().filter(|since_ms| *since_ms > 0);
    match expiry_s {
        0 => u64::MAX,
        seconds => since_ms.unwrap_or(known_since_ms).saturating_add(u64::from(seconds) * 1_000),
    }
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
    use super::*;

    #[test]
    fn cuts_by_hand_are_pinned_for_ever_or_for_a_while() {
        assert_eq!(pinned_until_ms(None, 0, 7), 0);
        assert_eq!(pinned_until_ms(None, 60, 7), 0);
        assert_eq!(pinned_until_ms(Some(5_000), 0, 7), u64::MAX);
        assert_eq!(pinned_until_ms(Some(5_000), 60, 7), 65_000);
        // In CREATE TABLE, where the time is not recorded.
        assert_eq!(pinned_until_ms(Some(0), 60, 7_000), 67_000);
    }

    #[test]
    fn every_node_has_an_id_of_its_own_in_the_scheduler() {
        for node in [1, u64::from(u32::MAX), u64::from(u32::MAX) + 1, u64::MAX].map(NodeId) {
            assert_eq!(node_of(node_id(node)), node);
        }
    }
}

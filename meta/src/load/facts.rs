//! Converts the catalog's records into the load scheduler's facts.

use partita_load::{
    HashOf, NodeFacts, NodeId as LoadNode, PartitionFacts, Remedy, TableFacts, Tail,
};
use partita_proto::id::{NodeId, PartitionId, TableId};
use partita_proto::partitioning::HotspotRemedy;
use partita_proto::placement::Placement;
use partita_proto::schema::TableSchema;

use crate::catalog::{NodeRecord, PartitionRecord, TableRecord};

/// Other tables that depend on the partitions of a table.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ties {
    /// True if it has materialized copies, or is being re-keyed, or has been a moment ago.
    pub(crate) is_source: bool,
    /// True in the latter two cases.
    pub(crate) is_rekeyed: bool,
}

/// Partitioning options and shape of a table.
pub(crate) fn table(record: &TableRecord, ties: Ties) -> TableFacts {
    let options = &record.schema.options;
    let partitioning = &options.partitioning;
    let merges = record.copy.is_none() && !ties.is_source;
    let remedies = remedies(record, ties);
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
        append_only: remedies.append_only,
        moves_rows: remedies.moves_rows,
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

/// Ways to place the rows of a table otherwise.
struct Remedies {
    append_only: bool,
    moves_rows: bool,
}

/// As [`spreading`](super::spreading) carries them out.
fn remedies(record: &TableRecord, ties: Ties) -> Remedies {
    let schema = &record.schema;
    // A table that has a former table cannot be placed otherwise again, and a copy has the rows of its source.
    let is_plain = record.former.is_none() && record.copy.is_none() && schema.view.is_none();
    let append_only = is_plain && schema.options.append_mode && !ties.is_source;
    // Line protocol may bring another key column at any time, which a table that is being re-keyed refuses.
    let may_move = !schema.schema_on_write && !schema.is_keyless() && !ties.is_rekeyed;
    let moves_rows = is_plain && !append_only && may_move;
    Remedies { append_only, moves_rows }
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
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use partita_proto::id::{BOOTSTRAP_ROLE, DatabaseId};
    use partita_proto::materialized::CopyOf;

    use super::*;
    use crate::catalog::{Phase, Step};
    use crate::tests::readings;

    fn record(append_mode: bool) -> TableRecord {
        let mut schema = readings();
        schema.options.append_mode = append_mode;
        TableRecord {
            id: TableId(1),
            database: DatabaseId(1),
            name: "t".to_owned(),
            phase: Phase::Ready,
            step: Step(1),
            schema: Arc::new(schema),
            placement: Placement::Range,
            dropped_names: BTreeSet::new(),
            ordered_ttl: None,
            partitions: Vec::new(),
            former: None,
            succeeded_by: None,
            owner: BOOTSTRAP_ROLE,
            copy: None,
        }
    }

    #[test]
    fn rows_are_placed_otherwise_as_a_table_and_its_copies_allow_it() {
        let ways = |record: &TableRecord, ties: Ties| {
            let facts = table(record, ties);
            (facts.append_only, facts.moves_rows)
        };
        let (plain, source) = (Ties::default(), Ties { is_source: true, is_rekeyed: false });
        let rekeyed = Ties { is_rekeyed: true, ..source };
        let (keyed, appended) = (record(false), record(true));
        assert_eq!(ways(&keyed, plain), (false, true));
        assert_eq!(ways(&keyed, source), (false, true));
        assert_eq!(ways(&appended, plain), (true, false));
        assert_eq!(ways(&appended, source), (false, true), "no new rows of a table with copies");
        let repartitioned = TableRecord { former: Some(TableId(2)), ..appended.clone() };
        let copy = Some(Arc::new(CopyOf::new(TableId(2), None)));
        let copies = [keyed.clone(), appended.clone()]
            .map(|record| TableRecord { copy: copy.clone(), ..record });
        for record in [&repartitioned, &copies[0], &copies[1]] {
            assert_eq!(ways(record, plain), (false, false));
        }
        for record in [&keyed, &appended] {
            assert_eq!(ways(record, rekeyed), (false, false), "one at a time");
        }
        let mut schema = readings();
        schema.schema_on_write = true;
        let lines = TableRecord { schema: Arc::new(schema), ..keyed };
        assert_eq!(ways(&lines, plain), (false, false), "its key may grow");
    }

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

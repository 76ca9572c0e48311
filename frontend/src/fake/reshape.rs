//! The fake's splits and merges: they take effect at once, and the catalog shows them at return.

use std::collections::HashMap;
use std::sync::Arc;

use partita_proto::catalog::Table;
use partita_proto::error::Error;
use partita_proto::id::{Epoch, PartitionId};
use partita_proto::key::KeyCodec;
use partita_proto::range::{Bound, TypedRange};
use partita_proto::route::{PartitionMap, Route};
use partita_proto::service::AdminOrder;

use super::{Fake, Partition, none, put_table};

impl Fake {
    /// Carries out splits and merges; other orders are only recorded.
    pub(super) fn reshape(&self, order: &AdminOrder) -> Result<(), Error> {
        match order {
            AdminOrder::SplitPartition { partition, at: bound } => {
                let (table, position) = self.find_partition(*partition)?;
                let bound = match bound {
                    Some(bound) => bound.clone(),
                    None => self.middle(*partition)?,
                };
                self.split(&table.database, &table.name, position, bound)
            }
            AdminOrder::MergePartitions { left: lower, right: upper } => {
                let (table, position) = self.find_partition(*lower)?;
                let next = table.partitions.routes().get(position + 1);
                if next.map(|route| route.partition) != Some(*upper) {
                    return Err(Error::InvalidInput(format!(
                        "partitions {lower} and {upper} are not neighbours"
                    )));
                }
                self.merge(&table, position)
            }
            AdminOrder::Drain { .. }
            | AdminOrder::MoveReplica { .. }
            | AdminOrder::TransferLeader { .. }
            | AdminOrder::RemoveNode { .. } => Ok(()),
        }
    }

    fn find_partition(&self, partition: PartitionId) -> Result<(Arc<Table>, usize), Error> {
        let catalog = Arc::clone(&self.catalog.borrow());
        let mut tables = catalog.tables.values().flat_map(std::collections::BTreeMap::values);
        let located = tables.find_map(|table| {
            let mut routes = table.partitions.routes().iter();
            let position = routes.position(|route| route.partition == partition)?;
            Some((Arc::clone(table), position))
        });
        located.ok_or_else(|| none("partition", &partition.to_string()))
    }

    fn middle(&self, partition: PartitionId) -> Result<Bound, Error> {
        let partitions = self.partitions.lock();
        let owner =
            partitions.get(&partition).ok_or_else(|| none("partition", &partition.to_string()))?;
        match owner.rows.keys().nth(owner.rows.len() / 2) {
            Some(key) if owner.rows.len() > 1 => owner.codec.decode(key),
            _ => Err(Error::InvalidInput(format!("partition {partition} has no middle"))),
        }
    }

    /// Splits a partition of a table, given by its position, at a bound.
    ///
    /// # Errors
    /// Fails if there is no such partition, or the bound is not inside of it.
    pub fn split(
        &self,
        database: &str,
        table: &str,
        position: usize,
        bound: Bound,
    ) -> Result<(), Error> {
        let _one_at_a_time = self.changing.lock();
        let mut catalog = self.catalog.borrow().as_ref().clone();
        let table = Arc::clone(catalog.table(database, table).ok_or_else(|| none("table", table))?);
        let codec = KeyCodec::new(&table.schema, &table.placement)?;
        let mut routes = table.partitions.routes().to_vec();
        // The upper part becomes a new partition; the lower part keeps its id.
        let parent = routes[position].clone();
        let epoch = Epoch(parent.epoch.0 + 1);
        let range = TypedRange { start: bound.clone(), end: parent.range.end.clone() };
        let mut child = Route::new(&codec, PartitionId(self.next_id()), range, epoch)?;
        child.replicas.clone_from(&parent.replicas);
        child.leader = parent.leader;
        let range = TypedRange { start: parent.range.start.clone(), end: bound };
        let mut lower = Route::new(&codec, parent.partition, range, epoch)?;
        lower.replicas.clone_from(&parent.replicas);
        lower.leader = parent.leader;
        // Both parts remember the identities of earlier writes, so that retries have no effect.
        let mut partitions = self.partitions.lock();
        let old = partitions
            .get_mut(&parent.partition)
            .ok_or_else(|| none("partition", &parent.partition.to_string()))?;
        let moved = old.rows.split_off(child.keys.start.as_ref());
        old.epoch = epoch;
        let new = Partition {
            table: Arc::clone(&table),
            codec,
            epoch,
            rows: moved,
            written: HashMap::new(),
            seen: old.seen.clone(),
            writes: 0,
            captures: old.captures.of_child(parent.partition, old.writes),
            scans: 0,
        };
        partitions.insert(child.partition, new);
        drop(partitions);
        routes[position] = lower;
        routes.insert(position + 1, child);
        let mut changed = table.as_ref().clone();
        changed.partitions = Arc::new(PartitionMap::new(routes)?);
        put_table(&mut catalog, changed);
        self.publish(catalog);
        Ok(())
    }

    /// Merges a partition, given by its position, with the next one.
    fn merge(&self, table: &Table, position: usize) -> Result<(), Error> {
        let _one_at_a_time = self.changing.lock();
        let mut catalog = self.catalog.borrow().as_ref().clone();
        let codec = KeyCodec::new(&table.schema, &table.placement)?;
        let mut routes = table.partitions.routes().to_vec();
        let right = routes.remove(position + 1);
        let lower = &routes[position];
        let epoch = Epoch(lower.epoch.0.max(right.epoch.0) + 1);
        let range = TypedRange { start: lower.range.start.clone(), end: right.range.end };
        let mut whole = Route::new(&codec, lower.partition, range, epoch)?;
        whole.replicas.clone_from(&lower.replicas);
        whole.leader = lower.leader;
        let mut partitions = self.partitions.lock();
        let removed = partitions
            .remove(&right.partition)
            .ok_or_else(|| none("partition", &right.partition.to_string()))?;
        if let Some(stays) = partitions.get_mut(&whole.partition) {
            stays.rows.extend(removed.rows);
            stays.seen.extend(removed.seen);
            stays.epoch = epoch;
        }
        drop(partitions);
        routes[position] = whole;
        let mut changed = table.clone();
        changed.partitions = Arc::new(PartitionMap::new(routes)?);
        put_table(&mut catalog, changed);
        self.publish(catalog);
        Ok(())
    }
}

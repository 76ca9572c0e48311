//! Routes: the partitions of a table's key space, their ranges, and the nodes of their replicas.
//!
//! A [`PartitionMap`] holds all routes of a table. Its ranges tile the key space: the first starts at the beginning,
//! each starts at the end of the previous one, the last goes to the end. So every key has exactly one route, whatever
//! the scheme, and routing a row is a search among the starts. A view has no rows, and the map without routes.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::UInt32Array;

use crate::error::Error;
use crate::id::{Epoch, NodeId, PartitionId, ReplicaId};
use crate::key::{KeyCodec, Keys};
use crate::range::{Bound, KeyRange, TypedRange};
use crate::rule::Rule;

/// Location of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Partition id.
    pub partition: PartitionId,
    /// Range of the partition, typed.
    pub range: TypedRange,
    /// Range of the partition, encoded for comparison.
    pub keys: KeyRange,
    /// Epoch (routing version).
    pub epoch: Epoch,
    /// Replicas and their nodes.
    pub replicas: BTreeMap<ReplicaId, NodeId>,
    /// Node that probably leads, which clients ask first.
    pub leader: Option<NodeId>,
}

impl Route {
    /// A route without replicas; encodes the range.
    ///
    /// # Errors
    /// As [`KeyCodec::range`].
    pub fn new(
        codec: &KeyCodec,
        partition: PartitionId,
        range: TypedRange,
        epoch: Epoch,
    ) -> Result<Self, Error> {
        let keys = codec.range(&range)?;
        Ok(Self { partition, range, keys, epoch, replicas: BTreeMap::new(), leader: None })
    }
}

/// Assignment of a batch's rows to routes.
#[derive(Clone, Debug, PartialEq)]
pub enum Cut {
    /// All rows to one route, given by its position.
    One(usize),
    /// Rows to several routes: the position of each route that gets any, ascending, and its rows, ascending. Empty when
    /// there are no rows.
    Many(Vec<(usize, UInt32Array)>),
}

/// All routes of a table, in the order of their ranges.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionMap {
    routes: Vec<Route>,
    /// The start of each route except the first (which starts at the beginning), contiguous in memory for the search.
    starts: Keys,
}

impl PartitionMap {
    /// The map of a view, which has no rows: no row is ever routed by it.
    #[must_use]
    pub fn none() -> Self {
        Self { routes: Vec::new(), starts: Keys::from_encoded(std::iter::empty::<&[u8]>()) }
    }

    /// Checks that the routes tile the key space, in order.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when they do not, or a partition is in two of them.
    pub fn new(routes: Vec<Route>) -> Result<Self, Error> {
        let invalid = |message: String| Err(Error::InvalidInput(message));
        let (Some(first), Some(last)) = (routes.first(), routes.last()) else {
            return invalid("a table needs at least one partition".to_owned());
        };
        // The ends of the key space, then every neighbour's bound.
        if !first.keys.start.is_empty() {
            return invalid(format!(
                "the first partition ({}) does not start at the beginning of the key space",
                first.partition
            ));
        }
        if last.keys.end.is_some() {
            return invalid(format!(
                "the last partition ({}) does not go to the end of the key space",
                last.partition
            ));
        }
        for pair in routes.windows(2) {
            let [lower, upper] = pair else { continue };
            if lower.keys.end.as_ref() != Some(&upper.keys.start) {
                return invalid(format!(
                    "partition {} does not start where partition {} ends",
                    upper.partition, lower.partition
                ));
            }
        }
        // No range is empty, and no partition has two.
        let mut partitions = BTreeSet::new();
        for route in &routes {
            if route.keys.is_empty() {
                return invalid(format!("the range of partition {} is empty", route.partition));
            }
            if !partitions.insert(route.partition) {
                return invalid(format!("partition {} has two ranges", route.partition));
            }
        }
        let starts = Keys::from_encoded(routes.iter().skip(1).map(|route| &route.keys.start));
        Ok(Self { routes, starts })
    }

    /// The map of a new table: the key space cut at these bounds, which ascend. Takes one more id than there are cuts.
    /// The routes have no replicas yet.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when the cuts do not ascend or do not fit the key, or there are too few ids.
    pub fn from_cuts(
        codec: &KeyCodec,
        cuts: &[Bound],
        ids: impl IntoIterator<Item = PartitionId>,
        epoch: Epoch,
    ) -> Result<Self, Error> {
        let routes = ranges_between(codec, cuts)?
            .into_iter()
            .zip(ids)
            .map(|(range, id)| Route::new(codec, id, range, epoch))
            .collect::<Result<Vec<_>, _>>()?;
        Self::new(routes)
    }

    /// The routes, in the order of their ranges; at least one, except of a view.
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// The route of a partition; `None` if it is not one of the table's.
    pub fn route(&self, partition: PartitionId) -> Option<&Route> {
        self.routes.iter().find(|route| route.partition == partition)
    }

    /// The position of the route that owns a key.
    pub fn position(&self, key: &[u8]) -> usize {
        let index = self.starts.lower_bound(key);
        index + usize::from(index < self.starts.len() && self.starts.get(index) == key)
    }

    /// The route that owns a key.
    pub fn find(&self, key: &[u8]) -> &Route {
        &self.routes[self.position(key)]
    }

    /// Assigns the rows of a batch to routes; within a route they stay in order.
    pub fn cut(&self, keys: &Keys) -> Cut {
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else {
            return Cut::Many(Vec::new());
        };
        if self.starts.is_empty() {
            return Cut::One(0);
        }
        let mut position = self.position(first);
        if self.owns(position, last) && keys.is_sorted() {
            return Cut::One(position);
        }
        // Rows come in runs (a device's report, a sorted file), so the route of the previous row is tried before the
        // search.
        let mut counts = vec![0_u32; self.routes.len()];
        let positions: Vec<usize> = keys
            .iter()
            .map(|key| {
                if !self.owns(position, key) {
                    position = self.position(key);
                }
                counts[position] += 1;
                position
            })
            .collect();
        let touched = counts.iter().filter(|count| **count > 0).count();
        if touched == 1 {
            return Cut::One(position);
        }
        let mut rows: Vec<Vec<u32>> =
            counts.iter().map(|count| Vec::with_capacity(*count as usize)).collect();
        for (row, position) in (0_u32..).zip(positions) {
            rows[position].push(row);
        }
        let parts = rows.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty());
        Cut::Many(parts.map(|(position, rows)| (position, UInt32Array::from(rows))).collect())
    }

    fn owns(&self, position: usize, key: &[u8]) -> bool {
        (position == 0 || self.starts.get(position - 1) <= key)
            && (position == self.starts.len() || key < self.starts.get(position))
    }

    /// The positions of the routes that overlap any of the ranges, ascending.
    pub fn prune(&self, ranges: &[KeyRange]) -> Vec<usize> {
        let mut touched = vec![false; self.routes.len()];
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            let first = self.position(&range.start);
            // The end is exclusive: a route that starts there does not overlap.
            let last =
                range.end.as_ref().map_or(self.starts.len(), |end| self.starts.lower_bound(end));
            touched[first..=last].fill(true);
        }
        touched.iter().enumerate().filter_map(|(position, is)| is.then_some(position)).collect()
    }
}

/// The ranges between cuts, from the beginning to the end of the key space, with their values in the
/// key's types.
///
/// # Errors
/// [`Error::InvalidInput`] when a cut does not fit the key, or is not greater than the one before.
pub fn ranges_between(codec: &KeyCodec, cuts: &[Bound]) -> Result<Vec<TypedRange>, Error> {
    let mut ranges = Vec::with_capacity(cuts.len() + 1);
    let mut start = Bound::default();
    let mut start_key = codec.encode_bound(&start)?;
    for cut in cuts {
        let key = codec.encode_bound(cut)?;
        if key <= start_key {
            return Err(Error::InvalidInput(format!(
                "partition bounds must ascend, but {cut} comes after {start}"
            )));
        }
        let cut = codec.coerce_bound(cut)?.into_owned();
        ranges.push(TypedRange { start, end: cut.clone() });
        start = cut;
        start_key = key;
    }
    ranges.push(TypedRange { start, end: Bound::default() });
    Ok(ranges)
}

/// The cuts of a table placed by hash into `partitions` of equal width: partition i owns the buckets from i * 65536 /
/// partitions.
pub fn hash_cuts(partitions: u16) -> Vec<Bound> {
    let buckets = u32::from(u16::MAX) + 1;
    (1..u32::from(partitions))
        .filter_map(|i| u16::try_from(i * buckets / u32::from(partitions)).ok())
        .map(Bound::placed)
        .collect()
}

/// The cuts of a table placed by rules, one partition per rule. Placements have 16 bits: a table has at most 65536
/// rules.
pub fn rule_cuts(rules: &[Rule]) -> Vec<Bound> {
    (1..rules.len()).filter_map(|rule| u16::try_from(rule).ok()).map(Bound::placed).collect()
}

#[cfg(test)]
mod tests;

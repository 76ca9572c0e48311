//! Records of splits and merges in progress.
//!
//! ```text
//!   Split   parent  ──cut──▶ done                                   (the child's record begins)
//!             │ give up: "given up", until its log shows whether it was cut nevertheless
//!
//!   Merge   left    Gathering ─▶ Freezing ─▶ Frozen ──absorbed──▶ done
//!             │ give up: ends at once; from Frozen on "given up", until its log shows the outcome
//!           right   Joins ─────────────────────────────────────▶ Leaving ─▶ gone
//!             │ given up: free again, or Thawing if it may be frozen ──thawed──▶ free again
//! ```
//!
//! Invariants (checked by [`State::check`]):
//! - a partition takes part in one change at a time, and its replicas do not change meanwhile, except that a right
//!   neighbour's are moved to the left one's nodes;
//! - the ids of a child and of its replicas are allocated when the split is recorded, and belong to nothing else;
//! - a change that may have been ordered ends only with the result in the log of its partition: a late order then finds
//!   another epoch;
//! - a table with partitions in a change is ready or being dropped; a leaving partition is in no table's list.

use std::collections::{BTreeMap, BTreeSet};

use partita_proto::error::Error;
use partita_proto::history::Reason;
use partita_proto::id::{Epoch, NodeId, PartitionId, ReplicaId, TableId};
use partita_proto::key::KeyCodec;
use partita_proto::placement::Placement;
use partita_proto::range::{Bound, TypedRange};
use partita_proto::schema::TableSchema;
use partita_proto::value::Value;

use crate::catalog::{PartitionRecord, Phase, State, Step, TableRecord};
use crate::create::check_place;

/// A partition's part in a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reshaping {
    /// The partition is to be cut.
    Split(Splitting),
    /// The partition is to take over its right neighbour.
    Merge(Merging),
    /// The partition is to be taken over by its left neighbour.
    Joins { left: PartitionId, step: Step },
    /// The partition may be frozen and is to be unfrozen, because the merge was given up.
    Thawing { step: Step },
    /// Another partition owns the keys since its epoch `epoch`. The replicas stay until all replicas of the owner
    /// have reached that epoch: one that lags behind still needs the files.
    Leaving { by: PartitionId, epoch: Epoch, step: Step },
}

/// A split in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Splitting {
    pub(crate) step: Step,
    pub(crate) at: Bound,
    /// The new partition, which begins at the cut.
    pub(crate) child: PartitionId,
    /// Replicas of the child: one on each node that has one of the parent.
    pub(crate) replicas: BTreeMap<ReplicaId, NodeId>,
    pub(crate) given_up: bool,
    pub(crate) reason: Reason,
    /// Node that is to lead the child from the beginning.
    pub(crate) leader: Option<NodeId>,
}

/// A merge in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Merging {
    pub(crate) step: Step,
    pub(crate) right: PartitionId,
    pub(crate) stage: Stage,
    pub(crate) given_up: bool,
    pub(crate) reason: Reason,
}

/// Progress of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The right neighbour's replicas are being moved to the left one's nodes; nothing was ordered yet.
    Gathering,
    /// The right neighbour is being ordered to freeze.
    Freezing,
    /// The right neighbour is frozen since this index of its log.
    Frozen(u64),
}

impl Reshaping {
    /// Catalog version that began this part.
    pub(crate) fn step(&self) -> Step {
        match self {
            Self::Split(Splitting { step, .. })
            | Self::Merge(Merging { step, .. })
            | Self::Joins { step, .. }
            | Self::Thawing { step }
            | Self::Leaving { step, .. } => *step,
        }
    }

    /// Description for messages.
    pub(crate) fn describe(&self) -> &'static str {
        match self {
            Self::Split(_) => "being split",
            Self::Merge(_) | Self::Joins { .. } => "being merged with its neighbour",
            Self::Thawing { .. } => "being unfrozen after a merge that was given up",
            Self::Leaving { .. } => "merged into its left neighbour",
        }
    }
}

impl PartitionRecord {
    /// True if another partition already owns the keys.
    pub(crate) fn is_leaving(&self) -> bool {
        matches!(self.reshaping, Some(Reshaping::Leaving { .. }))
    }

    /// The split under way.
    pub(crate) fn splitting(&self) -> Option<&Splitting> {
        match &self.reshaping {
            Some(Reshaping::Split(splitting)) => Some(splitting),
            _ => None,
        }
    }
}

impl State {
    /// Merged partitions of a table whose replicas are still on nodes.
    pub(crate) fn leaving(&self, table: TableId) -> impl Iterator<Item = &PartitionRecord> {
        let leaving = self.reshaping().map(AsRef::as_ref);
        leaving
            .filter(move |record: &&PartitionRecord| record.table == table && record.is_leaving())
    }

    /// A split or merge of the table's partitions, if there is one: other changes of the table wait for it.
    pub(crate) fn reshaping_of(&self, table: TableId) -> Option<Step> {
        let mut changes =
            self.reshaping().filter(|record| record.table == table && !record.is_leaving());
        changes.find_map(|record| Some(record.reshaping.as_ref()?.step()))
    }

    /// True if partitions of the table take part in this change.
    pub(crate) fn is_reshaping(&self, table: TableId, step: Step) -> bool {
        self.reshaping().any(|record| {
            let current = record.reshaping.as_ref().is_some_and(|change| change.step() == step);
            record.table == table && !record.is_leaving() && current
        })
    }

    /// Splits in progress. Nodes may have replicas of their children already.
    pub(crate) fn splits_in_progress(&self) -> impl Iterator<Item = &Splitting> {
        self.reshaping().filter_map(|record| record.splitting())
    }

    /// True if the catalog allows a replica on a node.
    pub(crate) fn is_known(
        &self,
        partition: PartitionId,
        replica: ReplicaId,
        node: NodeId,
    ) -> bool {
        let record = self.partition(partition);
        let is_recorded =
            record.is_some_and(|record| record.all_replicas().get(&replica) == Some(&node));
        let has_replica = |split: &Splitting| {
            split.child == partition && split.replicas.get(&replica) == Some(&node)
        };
        is_recorded || self.splits_in_progress().any(has_replica)
    }

    /// Checks the invariants of this module, except those of one partition's replicas.
    ///
    /// # Errors
    /// Describes the first violation.
    pub(crate) fn check_reshaping(&self) -> Result<(), String> {
        let mut children = BTreeSet::new();
        for partition in self.reshaping() {
            let Some(reshaping) = &partition.reshaping else { continue };
            let violation = |why: &str| {
                Err(format!("partition {} is {}, {why}", partition.id, reshaping.describe()))
            };
            if reshaping.step() > Step(self.version()) {
                return violation("but the step of the change is above the catalog's version");
            }
            // The table's list and phase fit the change.
            let Some(table) = self.table(partition.table) else {
                return violation("but its table does not exist");
            };
            let listed = table.partitions.contains(&partition.id);
            if listed == partition.is_leaving() {
                return violation("but its table's list of partitions says otherwise");
            }
            if listed && !matches!(table.phase, Phase::Ready | Phase::Dropping) {
                return violation("but its table is being changed too");
            }
            if partition.target.is_some() && !matches!(reshaping, Reshaping::Joins { .. }) {
                return violation("but its replicas are being changed too");
            }
            // Both sides of the change agree on it.
            match reshaping {
                Reshaping::Split(split) => {
                    let allocated = split.child < self.counters().partition;
                    if !allocated
                        || self.partition(split.child).is_some()
                        || !children.insert(split.child)
                    {
                        return violation("but the id of its child is not allocated, or is in use");
                    }
                    let nodes: BTreeSet<_> = split.replicas.values().collect();
                    if nodes != partition.replicas.values().collect()
                        || nodes.len() != split.replicas.len()
                    {
                        return violation(
                            "but the replicas of its child are not one on each of its nodes",
                        );
                    }
                    cut_inside(&table.schema, &table.placement, &partition.range, &split.at)
                        .map_err(|error| error.to_string())?;
                }
                Reshaping::Merge(merge) => {
                    let right = self.partition(merge.right);
                    let partner = Reshaping::Joins { left: partition.id, step: merge.step };
                    let joined = right.filter(|right| right.reshaping.as_ref() == Some(&partner));
                    if joined.is_none_or(|right| right.range.start != partition.range.end) {
                        return violation("but its neighbour is not merged with it");
                    }
                }
                Reshaping::Joins { left: owner, .. } => {
                    let change = self.partition(*owner).and_then(|owner| owner.reshaping.as_ref());
                    let absorbs = |change: &Reshaping| matches!(change, Reshaping::Merge(merge) if merge.right == partition.id);
                    if !change.is_some_and(absorbs) {
                        return violation("but its neighbour is not merged with it");
                    }
                }
                Reshaping::Thawing { .. } | Reshaping::Leaving { .. } => {}
            }
        }
        Ok(())
    }
}

/// Checks a cut and returns it in stored form.
///
/// # Errors
/// [`Error::InvalidInput`] if it is not a key of the table, or not inside the range.
pub(crate) fn cut_inside(
    schema: &TableSchema,
    placement: &Placement,
    range: &TypedRange,
    cut: &Bound,
) -> Result<Bound, Error> {
    if cut.is_empty() {
        return Err(Error::InvalidInput("a split point needs at least one value".to_owned()));
    }
    check_place(placement, cut)?;
    schema.options.partitioning.check_cut(cut)?;
    let codec = KeyCodec::new(schema, placement)?;
    let (keys, cut_key) = (codec.range(range)?, codec.encode_bound(cut)?);
    let refuse = |why: String| Err(Error::InvalidInput(why));
    // With NULLs only, in the first placement, the cut is below every key.
    let lowest =
        cut.placement.unwrap_or(0) == 0 && cut.key.iter().all(|value| *value == Value::Null);
    if cut_key == keys.start || lowest {
        return refuse(format!("{cut} is the start of {range}: the left side would be empty"));
    }
    if keys.end.as_ref() == Some(&cut_key) {
        return refuse(format!("{cut} is the end of {range}: the right side would be empty"));
    }
    if !keys.contains(&cut_key) {
        return refuse(format!("{cut} is outside {range}"));
    }
    Ok(codec.coerce_bound(cut)?.into_owned())
}

/// Checks that the second partition begins where the first one ends.
///
/// # Errors
/// [`Error::InvalidInput`] if it does not.
pub(crate) fn check_neighbours(
    table: &TableRecord,
    first: PartitionId,
    second: PartitionId,
) -> Result<(), Error> {
    if table.partitions.windows(2).any(|pair| pair == [first, second]) {
        return Ok(());
    }
    let swapped = table.partitions.windows(2).any(|pair| pair == [second, first]);
    let why = if swapped { "; they are in the other order" } else { "" };
    Err(Error::InvalidInput(format!(
        "partition {second} does not begin where partition {first} ends{why}"
    )))
}

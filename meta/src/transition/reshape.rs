//! Commands on splits and merges, from the request to the end.
//!
//! A request is recorded before any order to a node; answers of the partitions' logs are recorded when they arrive. An
//! answer for another step, or a second one, changes nothing. A table being dropped takes its partitions with it,
//! whatever change they are in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use partita_proto::error::Error;
use partita_proto::history::{Cause, Reason};
use partita_proto::id::{Epoch, NodeId, PartitionId, ReplicaId, TableId};
use partita_proto::partitioning::Partitioning;
use partita_proto::range::{Bound, TypedRange};

use super::copy::check_merge;
use super::draft::{Draft, Outcome, Progress, Reply};
use super::node::{in_use, wanted_replicas};
use super::rekey::check_not_switching;
use super::repartition::being_fenced;
use super::table::in_change;
use crate::catalog::{Edit, PartitionRecord, Phase, State, Step, TableRecord, Target};
use crate::create::PARTITIONS_MAX;
use crate::reshape::{Merging, Reshaping, Splitting, Stage, check_neighbours, cut_inside};

/// Records that a partition is to be split.
pub(super) fn start_split(
    state: &State,
    partition: PartitionId,
    cut: &Bound,
    reason: &Reason,
    leader: Option<NodeId>,
) -> Result<Outcome, Error> {
    let record = in_use(state, partition)?;
    let Some(table) = state.table(record.table) else { return Err(gone(partition)) };
    let cut = cut_inside(&table.schema, &table.placement, &record.range, cut)?;
    if let Some(waits) = waits(state, table, &[record])? {
        return Ok(waits);
    }
    // Splits under way count as partitions.
    let of_table = |candidate: &&Arc<PartitionRecord>| {
        candidate.table == table.id && candidate.splitting().is_some()
    };
    let splits = state.reshaping().filter(of_table).count();
    if table.partitions.len() + splits >= PARTITIONS_MAX {
        return Err(Error::InvalidInput(format!(
            "the table has {} partitions, and {PARTITIONS_MAX} is the limit",
            table.partitions.len()
        )));
    }
    let count = table.partitions.len() + splits + 1;
    check_permitted(table, reason, count)?;
    // The ids of the child and its replicas are allocated here, in the entry.
    let mut draft = Draft::new(state);
    let splitting = Splitting {
        step: draft.step(),
        at: cut,
        child: draft.new_partition(),
        replicas: record.replicas.values().map(|node| (draft.new_replica(), *node)).collect(),
        given_up: false,
        reason: reason.clone(),
        // The replica may have moved since the node was chosen.
        leader: leader.filter(|node| record.replicas.values().any(|holder| holder == node)),
    };
    draft.reshape(record, Some(Reshaping::Split(splitting)));
    draft.steps.push((table.id, draft.step()));
    Ok(draft.done())
}

/// Records that a partition is to take over its right neighbour, whose replicas are to be moved to its own nodes.
pub(super) fn start_merge(
    state: &State,
    owner: PartitionId,
    right: PartitionId,
    reason: &Reason,
) -> Result<Outcome, Error> {
    if owner == right {
        return Err(Error::InvalidInput(format!("partition {owner} cannot be merged with itself")));
    }
    // Two neighbours in one table, neither of them in another change.
    let (stays, goes) = (in_use(state, owner)?, in_use(state, right)?);
    if stays.table != goes.table {
        return Err(Error::InvalidInput(format!(
            "partitions {owner} and {right} belong to two tables"
        )));
    }
    let Some(table) = state.table(stays.table) else { return Err(gone(owner)) };
    check_neighbours(table, owner, right)?;
    check_merge(state, table)?;
    if let Some(waits) = waits(state, table, &[stays, goes])? {
        return Ok(waits);
    }
    // Merges under way count as done.
    let merges = |candidate: &&Arc<PartitionRecord>| {
        candidate.table == table.id && matches!(candidate.reshaping, Some(Reshaping::Merge(_)))
    };
    let under_way = state.reshaping().filter(merges).count();
    check_permitted(table, reason, table.partitions.len().saturating_sub(under_way + 1))?;
    // Both records name the change; the right one gets its new replicas with it.
    let mut draft = Draft::new(state);
    let step = draft.step();
    let stage = Stage::Gathering;
    let merging = Merging { step, right, stage, given_up: false, reason: reason.clone() };
    draft.reshape(stays, Some(Reshaping::Merge(merging)));
    let replicas = beside(&mut draft, stays, goes)?;
    let target = replicas.map(|replicas| Target { replicas, step, created: BTreeSet::new() });
    let reshaping = Some(Reshaping::Joins { left: owner, step });
    let goes = PartitionRecord { target, reshaping, ..PartitionRecord::clone(goes) };
    draft.edits.push(Edit::Partition(Arc::new(goes)));
    draft.steps.push((table.id, step));
    Ok(draft.done())
}

/// Time of a cut by hand, 0 if it is unknown; `None` for other cuts.
fn cut_by_hand(reason: &Reason) -> Option<i64> {
    (reason.cause == Cause::ByHand).then(|| reason.at_ms.unwrap_or(0))
}

/// Checks that the table's options allow this number of partitions for such a reason. The options may change at any
/// moment: a proposal was made with earlier ones.
fn check_permitted(table: &TableRecord, reason: &Reason, partitions: usize) -> Result<(), Error> {
    let Partitioning { by_load, by_size, min_partitions, max_partitions, forecast, .. } =
        table.schema.options.partitioning;
    let few_enough = max_partitions == 0 || partitions <= max_partitions as usize;
    let (allowed, bound) = match reason.cause {
        Cause::ByHand => return Ok(()),
        Cause::Load => (by_load, few_enough),
        Cause::Size => (by_size, few_enough),
        Cause::Forecast => (by_load && forecast, few_enough),
        Cause::Idle => (by_load || by_size, partitions >= min_partitions as usize),
    };
    if !allowed {
        return Err(Error::Unavailable(format!(
            "the options of table \"{}\" do not allow splits and merges by {}",
            table.name, reason.cause
        )));
    }
    if !bound {
        return Err(Error::Unavailable(format!(
            "table \"{}\" would have {partitions} partitions; its options allow from {min_partitions} to {max_partitions} \
             (0: unlimited)",
            table.name
        )));
    }
    Ok(())
}

/// The replicas that move a partition to another one's nodes; `None` if they are already there.
fn beside(
    draft: &mut Draft<'_>,
    stays: &PartitionRecord,
    goes: &PartitionRecord,
) -> Result<Option<BTreeMap<ReplicaId, NodeId>>, Error> {
    let has =
        |record: &PartitionRecord, node| record.replicas.values().any(|holder| *holder == node);
    let missing = stays.replicas.values().copied().filter(|node| !has(goes, *node));
    let add: Vec<NodeId> = missing.collect();
    let extra = goes.replicas.iter().filter(|(_, node)| !has(stays, **node));
    let remove: Vec<ReplicaId> = extra.map(|(replica, _)| *replica).collect();
    if add.is_empty() && remove.is_empty() {
        return Ok(None);
    }
    wanted_replicas(draft, goes, &add, &remove).map(Some)
}

/// Checks that partitions can be split or merged now: an error or a "busy" answer if not.
fn waits(
    state: &State,
    table: &TableRecord,
    partitions: &[&Arc<PartitionRecord>],
) -> Result<Option<Outcome>, Error> {
    for record in partitions {
        if let Some(change) = &record.reshaping {
            let why = format!("partition {} is {} already", record.id, change.describe());
            return Err(Error::Unavailable(why));
        }
        if record.target.is_some() {
            return Err(Error::Unavailable(format!(
                "the replicas of partition {} are being moved; try again afterwards",
                record.id
            )));
        }
    }
    check_not_switching(state, table)?;
    Ok(if table.is_pending() { in_change(state, table) } else { being_fenced(state, table) })
}

/// Records progress of a split or merge.
pub(super) fn advance(
    state: &State,
    partition: PartitionId,
    step: Step,
    progress: Progress,
) -> Outcome {
    let unchanged = Outcome::without_edits(Reply::Unchanged);
    let Some(record) = state.partition(partition) else { return unchanged };
    let change = record.reshaping.as_ref().filter(|change| change.step() == step);
    if let (Some(Reshaping::Leaving { .. }), Progress::Left) = (change, progress) {
        let mut draft = Draft::new(state);
        draft.edits.push(Edit::PartitionGone(record.id));
        return draft.done();
    }
    let table = state.table(record.table).filter(|table| table.phase == Phase::Ready);
    let (Some(table), Some(change)) = (table, change) else { return unchanged };
    match (change, progress) {
        (Reshaping::Split(split), progress) => advance_split(state, table, record, split, progress),
        (Reshaping::Merge(merge), progress) => advance_merge(state, table, record, merge, progress),
        (Reshaping::Thawing { .. }, Progress::Thawed { epoch }) => {
            let mut draft = Draft::new(state);
            draft.at_epoch(record, epoch, None);
            draft.free(table);
            draft.done()
        }
        _ => unchanged,
    }
}

fn advance_split(
    state: &State,
    table: &TableRecord,
    record: &PartitionRecord,
    split: &Splitting,
    progress: Progress,
) -> Outcome {
    let mut draft = Draft::new(state);
    match progress {
        // A split that may have been ordered is only marked: its log decides.
        Progress::GiveUp if !split.given_up => {
            let split = Splitting { given_up: true, ..split.clone() };
            draft.reshape(record, Some(Reshaping::Split(split)));
        }
        Progress::Cut => {
            // Parent and child share the range from now on, both at the next epoch.
            let TypedRange { start, end } = record.range.clone();
            let epoch = record.epoch.next();
            let parent = PartitionRecord {
                range: TypedRange { start, end: split.at.clone() },
                epoch,
                reshaping: None,
                ..record.clone()
            };
            let child = PartitionRecord {
                id: split.child,
                table: record.table,
                range: TypedRange { start: split.at.clone(), end },
                epoch,
                replicas: split.replicas.clone(),
                target: None,
                reshaping: None,
                first_leader: split.leader,
                cut_by_hand_ms: cut_by_hand(&split.reason),
            };
            let mut partitions = table.partitions.clone();
            let position = partitions.iter().position(|id| *id == record.id);
            partitions.insert(position.map_or(partitions.len(), |position| position + 1), child.id);
            draft
                .edits
                .extend([parent, child].map(|partition| Edit::Partition(Arc::new(partition))));
            draft.free(&TableRecord { partitions, ..table.clone() });
        }
        Progress::NotCut { epoch } => {
            draft.at_epoch(record, epoch, None);
            draft.free(table);
        }
        _ => return Outcome::without_edits(Reply::Unchanged),
    }
    draft.done()
}

fn advance_merge(
    state: &State,
    table: &TableRecord,
    record: &PartitionRecord,
    merge: &Merging,
    progress: Progress,
) -> Outcome {
    let unchanged = Outcome::without_edits(Reply::Unchanged);
    let Some(right) = state.partition(merge.right) else { return unchanged };
    let mut draft = Draft::new(state);
    let step = merge.step;
    match (merge.stage, progress) {
        // The freeze may be ordered once the right neighbour's replicas are on the nodes of the left one, and no
        // change of them is in progress.
        (Stage::Gathering, Progress::Freezing) if right.target.is_none() => {
            draft.reshape(record, merge.at(Stage::Freezing));
        }
        (Stage::Freezing, Progress::Frozen { index }) => {
            draft.reshape(record, merge.at(Stage::Frozen(index)));
        }
        // No freeze was ordered, so both partitions may be changed again at once.
        (Stage::Gathering, Progress::GiveUp) => {
            draft.reshape(record, None);
            draft.reshape(right, None);
            draft.free(table);
        }
        // The freeze may have taken effect, so the right neighbour is ordered to thaw.
        (Stage::Freezing, Progress::GiveUp) => {
            draft.reshape(record, None);
            draft.reshape(right, Some(Reshaping::Thawing { step }));
        }
        // The absorption may have taken effect: the log of the left partition decides.
        (Stage::Frozen(_), Progress::GiveUp) if !merge.given_up => {
            let merge = Merging { given_up: true, ..merge.clone() };
            draft.reshape(record, Some(Reshaping::Merge(merge)));
        }
        (Stage::Frozen(_), Progress::NotAbsorbed { epoch }) => {
            draft.at_epoch(record, epoch, None);
            draft.reshape(right, Some(Reshaping::Thawing { step }));
        }
        (Stage::Frozen(_), Progress::Absorbed) => {
            // The left partition owns both ranges. The right one is removed when no replica needs its files.
            let epoch = record.epoch.next();
            let range = TypedRange { end: right.range.end.clone(), ..record.range.clone() };
            let stays = PartitionRecord { range, epoch, reshaping: None, ..record.clone() };
            draft.edits.push(Edit::Partition(Arc::new(stays)));
            draft.reshape(right, Some(Reshaping::Leaving { by: record.id, epoch, step }));
            let mut partitions = table.partitions.clone();
            partitions.retain(|id| *id != right.id);
            draft.free(&TableRecord { partitions, ..table.clone() });
        }
        _ => return unchanged,
    }
    draft.done()
}

impl Merging {
    fn at(&self, stage: Stage) -> Option<Reshaping> {
        Some(Reshaping::Merge(Self { stage, ..self.clone() }))
    }
}

impl Draft<'_> {
    fn reshape(&mut self, record: &PartitionRecord, reshaping: Option<Reshaping>) {
        let record = PartitionRecord { reshaping, ..record.clone() };
        self.edits.push(Edit::Partition(Arc::new(record)));
    }

    /// Records a partition's epoch, which never falls.
    fn at_epoch(&mut self, record: &PartitionRecord, epoch: Epoch, reshaping: Option<Reshaping>) {
        let epoch = epoch.max(record.epoch);
        self.reshape(&PartitionRecord { epoch, ..record.clone() }, reshaping);
    }

    /// Writes a table after a change of its partitions, which the edits already hold. A change of its `ttl` that
    /// waited for this, and that no client repeats, begins now.
    fn free(&mut self, table: &TableRecord) {
        let current = self.state.ttl(table.database, &table.schema) == table.ordered_ttl;
        if current || self.is_in_change(table.id) {
            self.edits.push(Edit::Table(Arc::new(table.clone())));
        } else {
            self.retell(table);
        }
    }

    /// True if partitions of a table take part in a change, after the edits so far.
    fn is_in_change(&self, table: TableId) -> bool {
        let edited: BTreeMap<PartitionId, &PartitionRecord> = self
            .edits
            .iter()
            .filter_map(|edit| match edit {
                Edit::Partition(record) => Some((record.id, record.as_ref())),
                _ => None,
            })
            .collect();
        let unedited = self.state.reshaping().filter(|record| !edited.contains_key(&record.id));
        let mut records = unedited.map(AsRef::as_ref).chain(edited.values().copied());
        records.any(|record: &PartitionRecord| {
            record.table == table && record.reshaping.is_some() && !record.is_leaving()
        })
    }
}

fn gone(partition: PartitionId) -> Error {
    Error::NotFound { kind: "partition", name: partition.to_string() }
}

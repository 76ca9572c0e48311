//! The effect of a command on the catalog: a pure function from state and command to edits. It decides the same on
//! every replica and at every replay, so it uses no clock, no node and no random numbers; results that need those
//! (such as the nodes of a new table) are in the command.
//!
//! Invariants: a refused command changes nothing; a command that changes something raises the version by one; ids
//! are allocated here and nowhere else.

mod access;
mod copy;
mod database;
mod draft;
mod generation;
mod leadership;
mod node;
mod object;
mod rekey;
mod repartition;
mod reshape;
mod sequence;
mod table;
mod task;
mod view;

use std::sync::Arc;

use partita_proto::access::Secrets;
use partita_proto::error::Error;
use partita_proto::generation::Renewal;
use partita_proto::history::Reason;
use partita_proto::id::{Epoch, NodeId, PartitionId, ReplicaId, TableId};
use partita_proto::member::Registration;
use partita_proto::range::Bound;
use partita_proto::service::{Ddl, RequestId};

use self::access::{bootstrap, change_access};
pub(crate) use self::copy::renewed_partitions;
use self::copy::{change_copy, unmade};
use self::database::{
    alter_database, comment_database, create_database, drop_database, make_explicit,
};
use self::draft::Draft;
pub(crate) use self::draft::{Outcome, Progress, Reply};
use self::generation::{renew, renew_meta};
use self::leadership::{know_meta, lead};
pub(crate) use self::node::registered;
use self::node::{drain, end_move, note_created, register, remove, renumber, start_move};
use self::object::check_object;
use self::repartition::{fenced, read_along};
use self::reshape::{advance, start_merge, start_split};
use self::sequence::change_sequence;
pub(crate) use self::table::shown_name;
use self::table::{alter_table, create_table, drop_table, rekeyed_partitions, truncate_table};
use self::task::change_task;
use crate::catalog::{Edit, Phase, REMEMBERED_MAX, Remembered, State, Step, TableRecord, Work};

/// An entry of meta's log.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// A change requested by a client.
    Change {
        /// The requested change.
        ddl: Ddl,
        /// For new partitions: the nodes of each.
        places: Vec<Vec<NodeId>>,
        /// A second command with this id is the same change.
        id: Option<RequestId>,
        /// Maximum tables of the database, including a new one; `None`: an entry of an earlier version without such
        /// a limit.
        tables_max: Option<u32>,
    },
    /// All nodes have carried out the orders of a table's step.
    Finish {
        /// The table whose step is finished.
        table: TableId,
        /// Step that is finished.
        step: Step,
    },
    /// A table could not be created and is to be dropped, or is lost if it is a copy that had rows.
    Abort {
        /// The table to drop.
        table: TableId,
        /// Step that is given up.
        step: Step,
    },
    /// The replicas of a successor are open: from now on both tables are read together.
    ReadAlong {
        /// The successor.
        table: TableId,
        /// Present step of the successor; it stays.
        step: Step,
    },
    /// A partition of the former table is at a new epoch.
    Fenced {
        /// The successor.
        table: TableId,
        /// Present step of the successor.
        step: Step,
        /// The partition of the former table.
        partition: PartitionId,
        /// New epoch of the partition.
        epoch: Epoch,
    },
    /// A node registers, or reports a new address or labels.
    Register(Registration),
    /// Begins or ends the draining of a node.
    Drain {
        /// The node to drain or not.
        node: NodeId,
        /// True to drain.
        on: bool,
    },
    /// Removes a node that holds nothing, for good.
    RemoveNode {
        /// The node to remove.
        node: NodeId,
    },
    /// Begins a leadership of meta's group: its first entry.
    Lead {
        /// Random number for the cluster, not 0, used if there is none yet.
        cluster: u64,
        /// The group's term.
        term: u64,
        /// Nonce of the leadership, not 0.
        nonce: u64,
    },
    /// Makes the bootstrap superuser and the cluster's random keys, if there are none.
    Bootstrap {
        /// Name of the superuser.
        superuser: String,
        /// Random keys, used if there are none yet.
        secrets: Secrets,
    },
    /// Records the data directory of a member of meta's group.
    Meta {
        /// The member.
        node: NodeId,
        /// Random number of the data directory.
        identity: u64,
    },
    /// Records a generation of a node's data directory, unless the directory is an older copy.
    Renew(Renewal),
    /// Records a generation of the data directory of a member of meta's group.
    RenewMeta(Renewal),
    /// Changes a partition's replicas.
    Move {
        /// The partition whose replicas change.
        partition: PartitionId,
        /// Nodes that get a replica.
        add: Vec<NodeId>,
        /// Replicas to remove.
        remove: Vec<ReplicaId>,
        /// The change under way that this one replaces; refused if another one, or none, is under way.
        replaces: Option<Step>,
    },
    /// All new replicas of a partition's target were created.
    Created {
        /// The partition whose replicas change.
        partition: PartitionId,
        /// Step of the target.
        step: Step,
    },
    /// Gives new numbers to new replicas of a partition's target that were created and then lost.
    Renumber {
        /// The partition whose replicas change.
        partition: PartitionId,
        /// Step of the target.
        step: Step,
        /// Replicas that were lost.
        replicas: Vec<ReplicaId>,
    },
    /// A partition's group has reached its target.
    Moved {
        /// The partition whose group has reached it.
        partition: PartitionId,
        /// Step of the target.
        step: Step,
    },
    /// Splits a partition.
    Split {
        /// The partition to split.
        partition: PartitionId,
        /// First key of the right partition.
        at: Bound,
        /// Reason for the split.
        reason: Reason,
        /// Node that leads the right partition from the beginning; `None`: the node that leads the partition.
        leader: Option<NodeId>,
    },
    /// Merges a partition with its right neighbour.
    Merge {
        /// The partition that stays.
        left: PartitionId,
        /// The right neighbour, which goes.
        right: PartitionId,
        /// Reason for the merge.
        reason: Reason,
    },
    /// Records progress of a split or a merge.
    Advance {
        /// The partition that is cut, takes over, thaws, or has left.
        partition: PartitionId,
        /// Step of the change.
        step: Step,
        /// Progress that was made.
        progress: Progress,
    },
}

impl Command {
    /// True if the command ends a split or merge successfully.
    pub(crate) fn ends_as_wanted(&self) -> bool {
        matches!(self, Self::Advance { progress: Progress::Cut | Progress::Absorbed, .. })
    }
}

/// Decides a command.
///
/// # Errors
/// The error for the sender; the state stays unchanged.
pub(crate) fn decide(state: &State, command: &Command) -> Result<Outcome, Error> {
    match command {
        // Changes that clients request.
        Command::Change { ddl, places, id, tables_max } => {
            let wish = Wish { ddl, places, tables_max: *tables_max };
            match id {
                None => change(state, wish),
                Some(id) => once(state, wish, *id),
            }
        }
        // Progress of work on tables.
        Command::Finish { table, step } => Ok(finish(state, *table, *step)),
        Command::Abort { table, step } => Ok(abort(state, *table, *step)),
        Command::ReadAlong { table, step } => Ok(read_along(state, *table, *step)),
        Command::Fenced { table, step, partition, epoch } => {
            Ok(fenced(state, (*table, *step), *partition, *epoch))
        }
        // Nodes, and meta's own members.
        Command::Register(registration) => register(state, registration),
        Command::Drain { node, on: draining } => drain(state, *node, *draining),
        Command::RemoveNode { node } => remove(state, *node),
        Command::Lead { cluster, term, nonce } => Ok(lead(state, *cluster, *term, *nonce)),
        Command::Bootstrap { superuser, secrets } => Ok(bootstrap(state, superuser, *secrets)),
        Command::Meta { node, identity } => Ok(know_meta(state, *node, *identity)),
        Command::Renew(renewal) => renew(state, renewal),
        Command::RenewMeta(renewal) => renew_meta(state, renewal),
        // Replicas, splits and merges.
        Command::Move { partition, add, remove, replaces } => {
            start_move(state, *partition, add, remove, *replaces)
        }
        Command::Created { partition, step } => Ok(note_created(state, *partition, *step)),
        Command::Renumber { partition, step, replicas } => {
            Ok(renumber(state, *partition, *step, replicas))
        }
        Command::Moved { partition, step } => Ok(end_move(state, *partition, *step)),
        Command::Split { partition, at: cut, reason, leader } => {
            start_split(state, *partition, cut, reason, *leader)
        }
        Command::Merge { left: owner, right, reason } => start_merge(state, *owner, *right, reason),
        Command::Advance { partition, step, progress } => {
            Ok(advance(state, *partition, *step, *progress))
        }
    }
}

/// A requested change, and what was settled before the decision.
#[derive(Clone, Copy)]
struct Wish<'a> {
    ddl: &'a Ddl,
    places: &'a [Vec<NodeId>],
    tables_max: Option<u32>,
}

/// Decides a change with a request id, and remembers it if it changes anything: the same request gets the same
/// answer.
fn once(state: &State, wish: Wish<'_>, id: RequestId) -> Result<Outcome, Error> {
    if let Some(earlier) = state.remembered(id) {
        return Ok(Outcome::without_edits(Reply::Changed { steps: earlier.steps.clone() }));
    }
    let mut outcome = change(state, wish)?;
    let Reply::Changed { steps } = &outcome.reply else { return Ok(outcome) };
    let remembered = Arc::new(Remembered { id, steps: steps.clone() });
    for edit in &mut outcome.edits {
        if let Edit::Counters(counters) = edit {
            let place = counters.remembered % REMEMBERED_MAX;
            counters.remembered += 1;
            outcome.edits.push(Edit::Remember(place, remembered));
            break;
        }
    }
    Ok(outcome)
}

fn change(state: &State, wish: Wish<'_>) -> Result<Outcome, Error> {
    let Wish { ddl, places, tables_max } = wish;
    match ddl {
        Ddl::CreateDatabase { name, if_not_exists, ttl, owner } => {
            create_database(state, name, *if_not_exists, *ttl, *owner)
        }
        Ddl::AlterDatabase { name, ttl } => alter_database(state, name, *ttl),
        Ddl::MakeExplicit { name } => make_explicit(state, name),
        Ddl::CommentDatabase { name, comment } => comment_database(state, name, comment.as_deref()),
        Ddl::DropDatabase { name, if_exists } => drop_database(state, name, *if_exists),
        Ddl::CreateTable { table, if_not_exists } => {
            create_table(state, table, *if_not_exists, places, tables_max)
        }
        Ddl::DropTable { database, name, if_exists, cascade } => {
            drop_table(state, database, name, *if_exists, *cascade)
        }
        Ddl::TruncateTable { database, name } => truncate_table(state, database, name, places),
        Ddl::AlterTable { database, name, change } => {
            alter_table(state, database, name, change, places)
        }
        Ddl::Access(change) => change_access(state, change),
        Ddl::Task(change) => change_task(state, change),
        Ddl::Sequence(change) => change_sequence(state, change),
        Ddl::Copy(change) => change_copy(state, change, places),
        Ddl::Checked(checked) => match check_object(state, checked) {
            Ok(()) => change(state, Wish { ddl: checked.ddl.body(), ..wish }),
            Err(Error::NotFound { .. }) if ddl.allows_missing() => {
                Ok(Outcome::without_edits(Reply::Unchanged))
            }
            Err(error) => Err(error),
        },
    }
}

fn finish(state: &State, table: TableId, step: Step) -> Outcome {
    let Some(record) = state.table(table).filter(|record| record.step == step) else {
        return Outcome::without_edits(Reply::Unchanged);
    };
    let mut draft = Draft::new(state);
    match &record.phase {
        Phase::Ready => return Outcome::without_edits(Reply::Unchanged),
        // A successor is read together with the former table first; entries of earlier versions skip that.
        Phase::Creating | Phase::Altering(Work::Succeed) => match record.former {
            Some(former) => draft.succeed(record, former),
            None => draft.settle(TableRecord::clone(record)),
        },
        Phase::Altering(Work::Truncate) => draft.settle(TableRecord::clone(record)),
        Phase::Altering(Work::Schema(schema)) => {
            if schema.key != record.schema.key {
                let partitions = rekeyed_partitions(state, record, schema).map(Arc::new);
                draft.edits.extend(partitions.map(Edit::Partition));
            }
            let schema = Arc::clone(schema);
            draft.settle(TableRecord { schema, ..TableRecord::clone(record) });
        }
        Phase::Dropping => {
            let leaving = state.leaving(table).map(|partition| partition.id);
            let partitions = record.partitions.iter().copied().chain(leaving);
            draft.edits.extend(partitions.map(Edit::PartitionGone));
            draft.edits.push(Edit::TableGone(table));
        }
    }
    draft.done()
}

fn abort(state: &State, table: TableId, step: Step) -> Outcome {
    match state.table(table) {
        Some(record) if record.step == step && record.phase == Phase::Creating => {
            let mut draft = Draft::new(state);
            let dropped = || TableRecord { former: None, ..TableRecord::clone(record) };
            match unmade(record) {
                Some(lost) => draft.enter(lost, Phase::Ready),
                None => draft.enter(dropped(), Phase::Dropping),
            }
            draft.done()
        }
        Some(_) | None => Outcome::without_edits(Reply::Unchanged),
    }
}

//! What a command does to the catalog: a pure function from state and command to edits. It decides
//! the same on every replica and at every replay, so it sees no clock, no node and no chance; what
//! needs those (which nodes get a new table) is in the command.
//!
//! Invariants: a refused command changes nothing; a command that changes something raises the
//! version by one; ids are taken from the counters here and nowhere else.

mod database;
mod generation;
mod leadership;
mod node;
mod repartition;
mod reshape;
mod table;

use std::sync::Arc;

use partita_proto::error::Error;
use partita_proto::generation::Renewal;
use partita_proto::history::Reason;
use partita_proto::id::{DatabaseId, Epoch, NodeId, PartitionId, ReplicaId, TableId};
use partita_proto::member::Registration;
use partita_proto::range::Bound;
use partita_proto::schema::TableSchema;
use partita_proto::service::{Ddl, RequestId};

use self::database::{alter_database, create_database, drop_database};
use self::generation::{renew, renew_meta};
use self::leadership::{know_meta, lead};
pub(crate) use self::node::registered;
use self::node::{drain, end_move, register, remove, start_move};
use self::repartition::{fenced, read_along};
use self::reshape::{advance, start_merge, start_split};
pub(crate) use self::table::shown_name;
use self::table::{alter_table, create_table, drop_table, rekeyed_partitions, truncate_table};
use crate::catalog::{
    Counters, Edit, Phase, REMEMBERED_MAX, Remembered, State, Step, TableRecord, Work,
};

/// An entry of meta's log.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// Somebody's wish.
    Change {
        /// What is to change.
        ddl: Ddl,
        /// For a new table: the nodes of each partition.
        places: Vec<Vec<NodeId>>,
        /// The same one again is the same change.
        id: Option<RequestId>,
        /// Tables that a database may have for this change to add one; `None`: an entry of an earlier version, which
        /// knew no such bound.
        tables_max: Option<u32>,
    },
    /// All nodes have carried out what a table's step asked of them.
    Finish {
        /// The table.
        table: TableId,
        /// Its step.
        step: Step,
    },
    /// A table could not be made and is to go again.
    Abort {
        /// The table.
        table: TableId,
        /// Its step.
        step: Step,
    },
    /// The replicas of a table that is to succeed another one are open: from now on both are read together.
    ReadAlong {
        /// The table that is to succeed.
        table: TableId,
        /// Its step, which stays.
        step: Step,
    },
    /// A partition of the table that is to be succeeded is at a new epoch.
    Fenced {
        /// The table that is to succeed.
        table: TableId,
        /// Its step.
        step: Step,
        /// The partition, of the other one.
        partition: PartitionId,
        /// Its epoch.
        epoch: Epoch,
    },
    /// A node makes itself known, or says where it is now.
    Register(Registration),
    /// Everything is to leave a node, or no more.
    Drain {
        /// The node.
        node: NodeId,
        /// To leave.
        on: bool,
    },
    /// A node that holds nothing goes for good.
    RemoveNode {
        /// The node.
        node: NodeId,
    },
    /// A process leads meta's group: the first entry of its leadership.
    Lead {
        /// The cluster's random number, not 0, if there is none yet.
        cluster: u64,
        /// The group's term.
        term: u64,
        /// A random number, not 0.
        nonce: u64,
    },
    /// The data directory of a member of meta's group.
    Meta {
        /// The member.
        node: NodeId,
        /// Its data directory's random number.
        identity: u64,
    },
    /// A generation of a node's data directory is to be recorded, unless that is an older copy.
    Renew(Renewal),
    /// A generation of the data directory of a member of meta's group.
    RenewMeta(Renewal),
    /// A partition's replicas are to change.
    Move {
        /// The partition.
        partition: PartitionId,
        /// Nodes that get one.
        add: Vec<NodeId>,
        /// Replicas that go.
        remove: Vec<ReplicaId>,
        /// The change under way that this one takes the place of; refused when that is not the one there is.
        replaces: Option<Step>,
    },
    /// A partition's group has the replicas that it was to have.
    Moved {
        /// The partition.
        partition: PartitionId,
        /// Since when it was to have them.
        step: Step,
    },
    /// A partition is to be cut in two.
    Split {
        /// The partition.
        partition: PartitionId,
        /// The first key of the right half.
        at: Bound,
        /// Why.
        reason: Reason,
    },
    /// A partition is to take over its right neighbour.
    Merge {
        /// The one that stays.
        left: PartitionId,
        /// The one that goes.
        right: PartitionId,
        /// Why.
        reason: Reason,
    },
    /// A split or a merge is that far.
    Advance {
        /// The partition that is cut, takes over, is to be free again, or has left.
        partition: PartitionId,
        /// Since when it is in it.
        step: Step,
        /// How far.
        progress: Progress,
    },
}

impl Command {
    /// Whether it says of a split or a merge that it happened.
    pub(crate) fn ends_as_wanted(&self) -> bool {
        matches!(self, Self::Advance { progress: Progress::Cut | Progress::Absorbed, .. })
    }
}

/// How far a split or a merge is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It is not to be tried any longer.
    GiveUp,
    /// The partition was cut.
    Cut,
    /// It was not, and will not be: it is at this epoch.
    NotCut { epoch: Epoch },
    /// The right neighbour is beside the left one and is being told to freeze.
    Freezing,
    /// It is frozen since this index of its log.
    Frozen { index: u64 },
    /// It was taken over.
    Absorbed,
    /// It was not, and will not be: the left one is at this epoch.
    NotAbsorbed { epoch: Epoch },
    /// It is not frozen any more, and at this epoch.
    Thawed { epoch: Epoch },
    /// Nobody needs its replicas any more.
    Left,
}

/// What became of a command that was not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// There was nothing to do.
    Unchanged,
    /// It is recorded.
    Changed {
        /// The work that follows from it.
        steps: Vec<(TableId, Step)>,
    },
    /// The table is in the middle of another change; try again after that.
    Busy {
        /// The table.
        table: TableId,
        /// The step to wait for.
        step: Step,
    },
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) edits: Vec<Edit>,
    pub(crate) reply: Reply,
}

impl Outcome {
    fn without_edits(reply: Reply) -> Self {
        Self { edits: Vec::new(), reply }
    }
}

/// Decides a command.
///
/// # Errors
/// What the one who sent it is told; the state stays as it is.
pub(crate) fn decide(state: &State, command: &Command) -> Result<Outcome, Error> {
    match command {
        Command::Change { ddl, places, id, tables_max } => {
            let wish = Wish { ddl, places, tables_max: *tables_max };
            match id {
                None => change(state, wish),
                Some(id) => once(state, wish, *id),
            }
        }
        Command::Finish { table, step } => Ok(finish(state, *table, *step)),
        Command::Abort { table, step } => Ok(abort(state, *table, *step)),
        Command::ReadAlong { table, step } => Ok(read_along(state, *table, *step)),
        Command::Fenced { table, step, partition, epoch } => {
            Ok(fenced(state, (*table, *step), *partition, *epoch))
        }
        Command::Register(registration) => register(state, registration),
        Command::Drain { node, on } => drain(state, *node, *on),
        Command::RemoveNode { node } => remove(state, *node),
        Command::Lead { cluster, term, nonce } => Ok(lead(state, *cluster, *term, *nonce)),
        Command::Meta { node, identity } => Ok(know_meta(state, *node, *identity)),
        Command::Renew(renewal) => renew(state, renewal),
        Command::RenewMeta(renewal) => renew_meta(state, renewal),
        Command::Move { partition, add, remove, replaces } => {
            start_move(state, *partition, add, remove, *replaces)
        }
        Command::Moved { partition, step } => Ok(end_move(state, *partition, *step)),
        Command::Split { partition, at, reason } => start_split(state, *partition, at, reason),
        Command::Merge { left, right, reason } => start_merge(state, *left, *right, reason),
        Command::Advance { partition, step, progress } => {
            Ok(advance(state, *partition, *step, *progress))
        }
    }
}

/// What somebody wants changed, and what was settled about it before it was decided.
#[derive(Clone, Copy)]
struct Wish<'a> {
    ddl: &'a Ddl,
    places: &'a [Vec<NodeId>],
    tables_max: Option<u32>,
}

/// A change that is remembered, if it changes anything: whoever asks again gets the same answer.
fn once(state: &State, wish: Wish<'_>, id: RequestId) -> Result<Outcome, Error> {
    if let Some(before) = state.remembered(id) {
        return Ok(Outcome::without_edits(Reply::Changed { steps: before.steps.clone() }));
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
        Ddl::CreateDatabase { name, if_not_exists, ttl } => {
            create_database(state, name, *if_not_exists, *ttl)
        }
        Ddl::AlterDatabase { name, ttl } => alter_database(state, name, *ttl),
        Ddl::DropDatabase { name, if_exists } => drop_database(state, name, *if_exists),
        Ddl::CreateTable { table, if_not_exists } => {
            create_table(state, table, *if_not_exists, places, tables_max)
        }
        Ddl::DropTable { database, name, if_exists } => {
            drop_table(state, database, name, *if_exists)
        }
        Ddl::TruncateTable { database, name } => truncate_table(state, database, name),
        Ddl::AlterTable { database, name, change } => {
            alter_table(state, database, name, change, places)
        }
    }
}

/// Edits in the making.
struct Draft<'a> {
    state: &'a State,
    counters: Counters,
    edits: Vec<Edit>,
    steps: Vec<(TableId, Step)>,
}

impl<'a> Draft<'a> {
    fn new(state: &'a State) -> Self {
        let mut counters = state.counters();
        counters.version += 1;
        Self { state, counters, edits: Vec::new(), steps: Vec::new() }
    }

    fn step(&self) -> Step {
        Step(self.counters.version)
    }

    fn new_database(&mut self) -> DatabaseId {
        let id = self.counters.database;
        self.counters.database = DatabaseId(id.0 + 1);
        id
    }

    fn new_table(&mut self) -> TableId {
        let id = self.counters.table;
        self.counters.table = TableId(id.0 + 1);
        id
    }

    fn new_partition(&mut self) -> PartitionId {
        let id = self.counters.partition;
        self.counters.partition = PartitionId(id.0 + 1);
        id
    }

    fn new_replica(&mut self) -> ReplicaId {
        let id = self.counters.replica;
        self.counters.replica = ReplicaId(id.0 + 1);
        id
    }

    /// Brings a table into a phase.
    fn enter(&mut self, mut table: TableRecord, phase: Phase) {
        table.phase = phase;
        table.step = self.step();
        if table.is_pending() {
            self.steps.push((table.id, table.step));
        }
        self.edits.push(Edit::Table(Arc::new(table)));
    }

    /// Starts to tell a table's partitions of a schema.
    fn tell(&mut self, mut table: TableRecord, schema: TableSchema) {
        table.told_ttl = self.state.ttl(table.database, &schema);
        self.enter(table, Phase::Altering(Work::Schema(Arc::new(schema))));
    }

    /// Ends a table's work; unless its database's `ttl` has changed meanwhile, it is ready then.
    fn settle(&mut self, table: TableRecord) {
        if self.state.ttl(table.database, &table.schema) == table.told_ttl {
            self.enter(table, Phase::Ready);
        } else {
            let schema = next_version(&table.schema);
            self.tell(table, schema);
        }
    }

    /// Tells a table's partitions of its `ttl`, if that is no longer what they were told.
    fn retell(&mut self, table: &TableRecord) {
        if self.state.ttl(table.database, &table.schema) != table.told_ttl {
            self.settle(table.clone());
        }
    }

    fn done(mut self) -> Outcome {
        self.edits.push(Edit::Counters(self.counters));
        Outcome { edits: self.edits, reply: Reply::Changed { steps: self.steps } }
    }
}

fn next_version(schema: &TableSchema) -> TableSchema {
    TableSchema { version: schema.version.next(), ..schema.clone() }
}

fn finish(state: &State, table: TableId, step: Step) -> Outcome {
    let Some(record) = state.table(table).filter(|record| record.step == step) else {
        return Outcome::without_edits(Reply::Unchanged);
    };
    let mut draft = Draft::new(state);
    match &record.phase {
        Phase::Ready => return Outcome::without_edits(Reply::Unchanged),
        // One that succeeds another is read along first; entries of earlier versions know nothing of that.
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
            draft
                .enter(TableRecord { former: None, ..TableRecord::clone(record) }, Phase::Dropping);
            draft.done()
        }
        Some(_) | None => Outcome::without_edits(Reply::Unchanged),
    }
}

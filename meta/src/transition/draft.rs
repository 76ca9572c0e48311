//! Drafts of changes of the catalog: edits, counters and steps that a command makes, and its outcome.
//!
//! Invariant: a draft raises the catalog's version by one, and only what [`Draft::done`] returns is applied.

use std::sync::Arc;

use partita_proto::access::Target;
use partita_proto::error::Error;
use partita_proto::id::{
    DatabaseId, Epoch, PartitionId, ReplicaId, RoleId, SequenceId, TableId, TaskId,
};
use partita_proto::schema::TableSchema;

use crate::catalog::{Counters, Edit, Phase, State, Step, TableRecord, Work};

/// Progress of a split or a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The change is to be given up.
    GiveUp,
    /// The partition was cut.
    Cut,
    /// The partition was not cut and will not be: it is at this epoch.
    NotCut { epoch: Epoch },
    /// The right neighbour's replicas are on the left one's nodes, and it is being ordered to freeze.
    Freezing,
    /// The right neighbour is frozen since this index of its log.
    Frozen { index: u64 },
    /// The right neighbour was taken over.
    Absorbed,
    /// The right neighbour was not taken over and will not be: the left one is at this epoch.
    NotAbsorbed { epoch: Epoch },
    /// The partition is not frozen any more, and at this epoch.
    Thawed { epoch: Epoch },
    /// The partition's replicas are not needed any more.
    Left,
}

/// Answer to a command that was not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// There was nothing to do.
    Unchanged,
    /// The change is recorded.
    Changed {
        /// Work that follows from it.
        steps: Vec<(TableId, Step)>,
    },
    /// Another change of the table is under way; try again after it.
    Busy {
        /// The table that is busy.
        table: TableId,
        /// Step to wait for.
        step: Step,
    },
}

/// Result of a command: the edits of records and the reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) edits: Vec<Edit>,
    pub(crate) reply: Reply,
}

impl Outcome {
    pub(super) fn without_edits(reply: Reply) -> Self {
        Self { edits: Vec::new(), reply }
    }
}

/// Edits of the catalog while a command is applied.
pub(super) struct Draft<'a> {
    pub(super) state: &'a State,
    pub(super) counters: Counters,
    pub(super) edits: Vec<Edit>,
    pub(super) steps: Vec<(TableId, Step)>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(state: &'a State) -> Self {
        let mut counters = state.counters();
        counters.version += 1;
        Self { state, counters, edits: Vec::new(), steps: Vec::new() }
    }

    pub(super) fn step(&self) -> Step {
        Step(self.counters.version)
    }

    pub(super) fn new_database(&mut self) -> DatabaseId {
        let id = self.counters.database;
        self.counters.database = DatabaseId(id.0 + 1);
        id
    }

    pub(super) fn new_table(&mut self) -> TableId {
        let id = self.counters.table;
        self.counters.table = TableId(id.0 + 1);
        id
    }

    pub(super) fn new_role(&mut self) -> RoleId {
        let id = self.counters.role;
        self.counters.role = RoleId(id.0 + 1);
        id
    }

    pub(super) fn new_task(&mut self) -> TaskId {
        let id = self.counters.task;
        self.counters.task = TaskId(id.0 + 1);
        id
    }

    pub(super) fn new_sequence(&mut self) -> SequenceId {
        let id = self.counters.sequence;
        self.counters.sequence = SequenceId(id.0 + 1);
        id
    }

    pub(super) fn new_partition(&mut self) -> PartitionId {
        let id = self.counters.partition;
        self.counters.partition = PartitionId(id.0 + 1);
        id
    }

    pub(super) fn new_replica(&mut self) -> ReplicaId {
        let id = self.counters.replica;
        self.counters.replica = ReplicaId(id.0 + 1);
        id
    }

    /// Moves a table into a phase.
    pub(super) fn enter(&mut self, mut table: TableRecord, phase: Phase) {
        if phase == Phase::Dropping {
            self.drop_grants(Target::Table(table.id));
            self.drop_sequences_of(table.id, None);
        }
        table.phase = phase;
        table.step = self.step();
        if table.is_pending() {
            self.steps.push((table.id, table.step));
        }
        self.edits.push(Edit::Table(Arc::new(table)));
    }

    /// Removes the grants on an object that goes.
    pub(super) fn drop_grants(&mut self, target: Target) {
        if self.state.access().grant(target).is_some() {
            self.edits.push(Edit::GrantGone(target));
        }
    }

    /// Begins to send a schema to a table's partitions.
    pub(super) fn tell(&mut self, mut table: TableRecord, schema: TableSchema) {
        table.ordered_ttl = self.state.ttl(table.database, &schema);
        self.enter(table, Phase::Altering(Work::Schema(Arc::new(schema))));
    }

    /// Ends a table's work; it is ready then, unless its database's `ttl` has changed meanwhile.
    pub(super) fn settle(&mut self, table: TableRecord) {
        if self.state.ttl(table.database, &table.schema) == table.ordered_ttl {
            self.enter(table, Phase::Ready);
        } else {
            let schema = next_version(&table.schema);
            self.tell(table, schema);
        }
    }

    /// Sends a table's `ttl` to its partitions if it differs from the one ordered last.
    pub(super) fn retell(&mut self, table: &TableRecord) {
        if self.state.ttl(table.database, &table.schema) != table.ordered_ttl {
            self.settle(table.clone());
        }
    }

    pub(super) fn done(mut self) -> Outcome {
        if self.edits.iter().any(Edit::is_access) {
            self.counters.access = self.counters.version;
        }
        self.edits.push(Edit::Counters(self.counters));
        Outcome { edits: self.edits, reply: Reply::Changed { steps: self.steps } }
    }
}

pub(super) fn next_version(schema: &TableSchema) -> TableSchema {
    TableSchema { version: schema.version.next(), ..schema.clone() }
}

/// Checks the owner of a new object.
pub(super) fn check_owner(state: &State, owner: RoleId) -> Result<(), Error> {
    if state.may_own(owner) { Ok(()) } else { Err(absent_role(owner)) }
}

/// A refusal with an SQLSTATE of its own.
pub(super) fn refusal(sqlstate: &str, message: String) -> Error {
    Error::Query { sqlstate: sqlstate.to_owned(), message, hint: None }
}

pub(super) fn absent_role(id: RoleId) -> Error {
    Error::NotFound { kind: "role", name: id.to_string() }
}

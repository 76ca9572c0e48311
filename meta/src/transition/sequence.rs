//! Changes of sequences, and the blocks of numbers that frontends take; `partita_proto::sequence` computes both.

use std::sync::Arc;

use partita_proto::access::Target;
use partita_proto::error::Error;
use partita_proto::id::{ColumnId, DatabaseId, RoleId, SequenceId, TableId};
use partita_proto::sequence::{
    NewSequence, Sequence, SequenceChange, SequenceColumn, TableSequence,
};

use super::draft::{Draft, Outcome, Reply, check_owner, refusal};
use super::table::shown_name;
use crate::catalog::{Edit, State, TableRecord};

/// Maximum sequences: every frontend keeps them in memory.
const SEQUENCES_MAX: usize = 10_000;
/// SQLSTATE of an object that is not in the state that the change needs.
const NOT_IN_PREREQUISITE_STATE: &str = "55000";

pub(super) fn change_sequence(state: &State, change: &SequenceChange) -> Result<Outcome, Error> {
    let changed = match change {
        SequenceChange::Create { sequence, if_not_exists } => {
            return create(state, sequence, *if_not_exists);
        }
        SequenceChange::Drop { sequence } => {
            existing(state, *sequence)?;
            let mut draft = Draft::new(state);
            draft.drop_sequence(*sequence);
            return Ok(draft.done());
        }
        SequenceChange::Alter { sequence, options, restart, column } => {
            let altered = existing(state, *sequence)?.altered(*options, *restart)?;
            let column = match column {
                Some(column) => {
                    check_column(state, (altered.database, altered.owner), column.as_ref())?;
                    *column
                }
                None => altered.column,
            };
            Some(Sequence { column, ..altered })
        }
        SequenceChange::Allot { sequence, counter, count } => {
            existing(state, *sequence)?.allotted(counter, *count)?
        }
        SequenceChange::Set { sequence, value, is_called } => {
            Some(existing(state, *sequence)?.set(*value, *is_called)?)
        }
    };
    Ok(match changed {
        Some(sequence) => {
            let mut draft = Draft::new(state);
            draft.edits.push(Edit::Sequence(Arc::new(sequence)));
            draft.done()
        }
        None => Outcome::without_edits(Reply::Unchanged),
    })
}

fn create(state: &State, new: &NewSequence, if_not_exists: bool) -> Result<Outcome, Error> {
    new.validate()?;
    let database = state.database(new.database).ok_or_else(|| {
        let name = new.database.to_string();
        Error::NotFound { kind: "database", name }
    })?;
    let is_sequence = state.is_sequence(new.database, &new.name);
    if is_sequence || state.table_named(new.database, &new.name).is_some() {
        if if_not_exists {
            return Ok(Outcome::without_edits(Reply::Unchanged));
        }
        let name = shown_name(&database.name, &new.name);
        return Err(Error::AlreadyExists { kind: "table", name });
    }
    check_owner(state, new.owner)?;
    check_column(state, (new.database, new.owner), new.column.as_ref())?;
    check_room(state, 1)?;
    let mut draft = Draft::new(state);
    let sequence = new.with_id(draft.new_sequence());
    draft.edits.push(Edit::Sequence(Arc::new(sequence)));
    Ok(draft.done())
}

fn check_room(state: &State, added: usize) -> Result<(), Error> {
    if state.sequences().count() + added <= SEQUENCES_MAX {
        return Ok(());
    }
    Err(Error::LimitReached {
        message: format!("there are {SEQUENCES_MAX} sequences, which is the limit"),
        hint: "Drop sequences that are not needed.".to_owned(),
    })
}

/// Checks the column that is to own a sequence of a database and an owner.
fn check_column(
    state: &State,
    (database, owner): (DatabaseId, RoleId),
    column: Option<&SequenceColumn>,
) -> Result<(), Error> {
    let Some(SequenceColumn { table, column, .. }) = column else { return Ok(()) };
    let record = state.table(*table).filter(|record| record.is_visible());
    let record =
        record.ok_or_else(|| Error::NotFound { kind: "table", name: table.to_string() })?;
    if record.database != database {
        let message = "sequence must be in same schema as table it is linked to";
        return Err(refusal(NOT_IN_PREREQUISITE_STATE, message.to_owned()));
    }
    if record.owner != owner {
        let message = "sequence must have same owner as table it is linked to";
        return Err(refusal(NOT_IN_PREREQUISITE_STATE, message.to_owned()));
    }
    match record.schema.column_by_id(*column) {
        Some(_) => Ok(()),
        None => Err(Error::NotFound { kind: "column", name: column.to_string() }),
    }
}

fn existing(state: &State, id: SequenceId) -> Result<&Sequence, Error> {
    let sequence: Option<&Sequence> = state.sequence(id).map(Arc::as_ref);
    sequence.ok_or_else(|| Error::NotFound { kind: "table", name: id.to_string() })
}

impl Draft<'_> {
    /// Creates the sequences of a new table's columns.
    pub(super) fn create_sequences(
        &mut self,
        table: &TableRecord,
        sequences: &[TableSequence],
    ) -> Result<(), Error> {
        check_room(self.state, sequences.len())?;
        for (position, new) in sequences.iter().enumerate() {
            let TableSequence { name, column, identity, options } = new.clone();
            let has_column = table.schema.column_by_id(column).is_some();
            let is_own = name == table.name
                || sequences[..position].iter().any(|earlier| earlier.name == name);
            let is_taken = self.state.is_sequence(table.database, &name)
                || self.state.table_named(table.database, &name).is_some();
            if is_own || is_taken {
                return Err(Error::AlreadyExists { kind: "table", name });
            }
            if !has_column {
                return Err(Error::NotFound { kind: "column", name: column.to_string() });
            }
            let column = Some(SequenceColumn { table: table.id, column, identity });
            let new =
                NewSequence { database: table.database, name, owner: table.owner, options, column };
            new.validate()?;
            let sequence = new.with_id(self.new_sequence());
            self.edits.push(Edit::Sequence(Arc::new(sequence)));
        }
        Ok(())
    }

    /// Removes the sequences of a table's columns, or of one of them.
    pub(super) fn drop_sequences_of(&mut self, table: TableId, column: Option<ColumnId>) {
        let goes = |owned: SequenceColumn| {
            owned.table == table && column.is_none_or(|column| owned.column == column)
        };
        let owned = self.state.sequences().filter(|sequence| sequence.column.is_some_and(goes));
        let ids: Vec<SequenceId> = owned.map(|sequence| sequence.id).collect();
        ids.into_iter().for_each(|id| self.drop_sequence(id));
    }

    /// Removes a sequence and the grants on it.
    fn drop_sequence(&mut self, id: SequenceId) {
        self.drop_grants(Target::Sequence(id));
        self.edits.push(Edit::SequenceGone(id));
    }

    /// Removes the sequences of a database.
    pub(super) fn drop_sequences(&mut self, database: DatabaseId) {
        let of_database = |sequence: &&Arc<Sequence>| {
            sequence.database == database
                && sequence.column.is_none_or(|column| self.state.table(column.table).is_none())
        };
        // Those of columns go with their tables.
        let sequences = self.state.sequences().filter(of_database);
        let ids: Vec<SequenceId> = sequences.map(|sequence| sequence.id).collect();
        ids.into_iter().for_each(|id| self.drop_sequence(id));
    }

    /// Gives the sequences of a table's columns the owner of the table. Returns them as they were.
    pub(super) fn own_sequences_of(&mut self, table: TableId, owner: RoleId) -> Vec<Arc<Sequence>> {
        let of_table = |column: SequenceColumn| column.table == table;
        let owned = self.state.sequences();
        let owned = owned.filter(|sequence| sequence.column.is_some_and(of_table));
        let former: Vec<Arc<Sequence>> = owned.map(Arc::clone).collect();
        let altered = former.iter().map(|sequence| {
            Edit::Sequence(Arc::new(Sequence { owner, ..Sequence::clone(sequence) }))
        });
        self.edits.extend(altered);
        former
    }

    /// Gives the sequences of a table that is dropped to the columns of the same names of another one, with their grants.
    pub(super) fn keep_sequences(&mut self, former: &TableRecord, successor: &TableRecord) {
        self.edits.retain(|edit| {
            !matches!(edit, Edit::SequenceGone(_) | Edit::GrantGone(Target::Sequence(_)))
        });
        let owned = self.state.sequences().filter_map(|sequence| {
            let owned = sequence.column.filter(|column| column.table == former.id)?;
            let mut columns = former.schema.columns.iter();
            let replaced = columns.find(|column| column.id == owned.column)?;
            let column = successor.schema.column(&replaced.name).map(|column| SequenceColumn {
                table: successor.id,
                column: column.id,
                ..owned
            });
            Some(Edit::Sequence(Arc::new(Sequence { column, ..Sequence::clone(sequence) })))
        });
        let kept: Vec<Edit> = owned.collect();
        self.edits.extend(kept);
    }

    /// Gives the sequences of a table's columns to the table that succeeds it.
    pub(super) fn pass_sequences(&mut self, former: TableId, successor: TableId) {
        let owned = self.state.sequences().filter_map(|sequence| {
            let column = sequence.column.filter(|column| column.table == former)?;
            let column = Some(SequenceColumn { table: successor, ..column });
            Some(Edit::Sequence(Arc::new(Sequence { column, ..Sequence::clone(sequence) })))
        });
        let passed: Vec<Edit> = owned.collect();
        self.edits.extend(passed);
    }
}

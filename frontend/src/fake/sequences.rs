//! The fake's sequences, without meta's bounds.

use std::sync::Arc;

use partita_proto::Error;
use partita_proto::access::Target;
use partita_proto::catalog::{Catalog, Table};
use partita_proto::id::SequenceId;
use partita_proto::sequence::{
    NewSequence, Sequence, SequenceChange, SequenceColumn, TableSequence,
};

use super::{Fake, none};

impl Fake {
    pub(super) fn change_sequences(
        &self,
        catalog: &mut Catalog,
        change: SequenceChange,
    ) -> Result<bool, Error> {
        match change {
            SequenceChange::Create { sequence, if_not_exists } => {
                let mut databases = catalog.databases.values();
                let home = databases.find(|database| database.id == sequence.database);
                let is_table =
                    home.is_some_and(|home| catalog.table(&home.name, &sequence.name).is_some());
                if is_table || catalog.sequence(sequence.database, &sequence.name).is_some() {
                    return match if_not_exists {
                        true => Ok(false),
                        false => Err(Error::AlreadyExists { kind: "table", name: sequence.name }),
                    };
                }
                sequence.validate()?;
                put(catalog, sequence.with_id(self.sequence_id()));
            }
            SequenceChange::Alter { sequence, options, restart, column } => {
                let altered = existing(catalog, sequence)?.altered(options, restart)?;
                let column = column.unwrap_or(altered.column);
                put(catalog, Sequence { column, ..altered });
            }
            SequenceChange::Drop { sequence } => {
                existing(catalog, sequence)?;
                Arc::make_mut(&mut catalog.sequences).remove(&sequence);
                Arc::make_mut(&mut catalog.access).drop_grant(Target::Sequence(sequence));
            }
            SequenceChange::Allot { sequence, counter, count } => {
                let allotted = existing(catalog, sequence)?.allotted(&counter, count)?;
                let Some(allotted) = allotted else { return Ok(false) };
                put(catalog, allotted);
            }
            SequenceChange::Set { sequence, value, is_called } => {
                let set = existing(catalog, sequence)?.set(value, is_called)?;
                put(catalog, set);
            }
        }
        Ok(true)
    }

    /// Creates the sequences of a new table's columns.
    pub(super) fn create_sequences(
        &self,
        catalog: &mut Catalog,
        table: &Table,
        sequences: Vec<TableSequence>,
    ) -> Result<(), Error> {
        let database = catalog.databases.get(&table.database).map(|database| database.id);
        let database = database.ok_or_else(|| none("database", &table.database))?;
        for TableSequence { name, column, identity, options } in sequences {
            let column = Some(SequenceColumn { table: table.id, column, identity });
            let new = NewSequence { database, name, owner: table.owner, options, column };
            put(catalog, new.with_id(self.sequence_id()));
        }
        Ok(())
    }

    fn sequence_id(&self) -> SequenceId {
        SequenceId(u32::try_from(self.next_id()).unwrap_or(u32::MAX))
    }
}

fn existing(catalog: &Catalog, id: SequenceId) -> Result<Arc<Sequence>, Error> {
    catalog.sequences.get(&id).map(Arc::clone).ok_or_else(|| none("table", &id.to_string()))
}

fn put(catalog: &mut Catalog, sequence: Sequence) {
    Arc::make_mut(&mut catalog.sequences).insert(sequence.id, Arc::new(sequence));
}

//! Sequences and changes of them.

use super::{Wire, missing, pb, required};
use crate::error::Error;
use crate::id::{ColumnId, DatabaseId, RoleId, SequenceId, TableId};
use crate::sequence::{
    Counter, Identity, NewSequence, Sequence, SequenceChange, SequenceColumn, SequenceOptions,
    SequenceType, TableSequence,
};

fn identity_to_wire(identity: Option<Identity>) -> u32 {
    match identity {
        None => 0,
        Some(Identity::Always) => 1,
        Some(Identity::ByDefault) => 2,
    }
}

fn identity_from_wire(identity: u32) -> Result<Option<Identity>, Error> {
    Ok(match identity {
        0 => None,
        1 => Some(Identity::Always),
        2 => Some(Identity::ByDefault),
        _ => return Err(missing("kind of an identity column")),
    })
}

impl Wire for SequenceOptions {
    type Message = pb::SequenceOptions;

    fn to_wire(&self) -> pb::SequenceOptions {
        pb::SequenceOptions {
            data_type: match self.data_type {
                SequenceType::Small => 1,
                SequenceType::Integer => 2,
                SequenceType::Big => 3,
            },
            start: self.start,
            increment: self.increment,
            min_value: self.min_value,
            max_value: self.max_value,
            cache: self.cache,
            cycle: self.cycle,
        }
    }

    fn from_wire(message: pb::SequenceOptions) -> Result<Self, Error> {
        let options = Self {
            data_type: match message.data_type {
                1 => SequenceType::Small,
                2 => SequenceType::Integer,
                3 => SequenceType::Big,
                _ => return Err(missing("type of a sequence")),
            },
            start: message.start,
            increment: message.increment,
            min_value: message.min_value,
            max_value: message.max_value,
            cache: message.cache,
            cycle: message.cycle,
        };
        // Blocks are computed by division.
        if options.increment == 0 {
            return Err(missing("increment of a sequence"));
        }
        Ok(options)
    }
}

impl Wire for SequenceColumn {
    type Message = pb::SequenceColumn;

    fn to_wire(&self) -> pb::SequenceColumn {
        pb::SequenceColumn {
            table: self.table.0,
            column: self.column.0,
            identity: identity_to_wire(self.identity),
        }
    }

    fn from_wire(message: pb::SequenceColumn) -> Result<Self, Error> {
        Ok(Self {
            table: TableId(message.table),
            column: ColumnId(message.column),
            identity: identity_from_wire(message.identity)?,
        })
    }
}

impl Wire for Sequence {
    type Message = pb::Sequence;

    fn to_wire(&self) -> pb::Sequence {
        pb::Sequence {
            id: self.id.0,
            database: self.database.0,
            name: self.name.clone(),
            owner: self.owner.0,
            options: Some(self.options.to_wire()),
            column: self.column.as_ref().map(Wire::to_wire),
            last_value: self.counter.last_value,
            is_called: self.counter.is_called,
            generation: self.counter.generation,
        }
    }

    fn from_wire(message: pb::Sequence) -> Result<Self, Error> {
        Ok(Self {
            id: SequenceId(message.id),
            database: DatabaseId(message.database),
            name: message.name,
            owner: RoleId(message.owner),
            options: required(message.options, "options of a sequence")?,
            column: message.column.map(Wire::from_wire).transpose()?,
            counter: Counter {
                last_value: message.last_value,
                is_called: message.is_called,
                generation: message.generation,
            },
        })
    }
}

impl Wire for TableSequence {
    type Message = pb::TableSequence;

    fn to_wire(&self) -> pb::TableSequence {
        pb::TableSequence {
            name: self.name.clone(),
            column: self.column.0,
            identity: identity_to_wire(self.identity),
            options: Some(self.options.to_wire()),
        }
    }

    fn from_wire(message: pb::TableSequence) -> Result<Self, Error> {
        Ok(Self {
            name: message.name,
            column: ColumnId(message.column),
            identity: identity_from_wire(message.identity)?,
            options: required(message.options, "options of a sequence")?,
        })
    }
}

impl Wire for NewSequence {
    type Message = pb::NewSequence;

    fn to_wire(&self) -> pb::NewSequence {
        pb::NewSequence {
            database: self.database.0,
            name: self.name.clone(),
            owner: self.owner.0,
            options: Some(self.options.to_wire()),
            column: self.column.as_ref().map(Wire::to_wire),
        }
    }

    fn from_wire(message: pb::NewSequence) -> Result<Self, Error> {
        Ok(Self {
            database: DatabaseId(message.database),
            name: message.name,
            owner: RoleId(message.owner),
            options: required(message.options, "options of a sequence")?,
            column: message.column.map(Wire::from_wire).transpose()?,
        })
    }
}

impl Wire for SequenceChange {
    type Message = pb::SequenceChange;

    fn to_wire(&self) -> pb::SequenceChange {
        use pb::sequence_change::Kind;
        let kind = match self {
            Self::Create { sequence, if_not_exists } => Kind::Create(pb::CreateSequence {
                sequence: Some(sequence.to_wire()),
                if_not_exists: *if_not_exists,
            }),
            Self::Alter { sequence, options, restart, column } => Kind::Alter(pb::AlterSequence {
                sequence: sequence.0,
                options: Some(options.to_wire()),
                restart: *restart,
                sets_column: column.is_some(),
                column: column.as_ref().and_then(|column| column.as_ref().map(Wire::to_wire)),
            }),
            Self::Drop { sequence } => Kind::Drop(pb::DropSequence { sequence: sequence.0 }),
            Self::Allot { sequence, counter, count } => Kind::Allot(pb::AllotSequence {
                sequence: sequence.0,
                generation: counter.generation,
                last_value: counter.last_value,
                is_called: counter.is_called,
                count: *count,
            }),
            Self::Set { sequence, value, is_called } => Kind::Set(pb::SetSequence {
                sequence: sequence.0,
                value: *value,
                is_called: *is_called,
            }),
        };
        pb::SequenceChange { kind: Some(kind) }
    }

    fn from_wire(message: pb::SequenceChange) -> Result<Self, Error> {
        use pb::sequence_change::Kind;
        Ok(match message.kind.ok_or_else(|| missing("change of a sequence"))? {
            Kind::Create(create) => Self::Create {
                sequence: required(create.sequence, "sequence")?,
                if_not_exists: create.if_not_exists,
            },
            Kind::Alter(alter) => {
                let column = alter.column.map(SequenceColumn::from_wire).transpose()?;
                Self::Alter {
                    sequence: SequenceId(alter.sequence),
                    options: required(alter.options, "options of a sequence")?,
                    restart: alter.restart,
                    column: alter.sets_column.then_some(column),
                }
            }
            Kind::Drop(drop) => Self::Drop { sequence: SequenceId(drop.sequence) },
            Kind::Allot(allot) => Self::Allot {
                sequence: SequenceId(allot.sequence),
                counter: Counter {
                    last_value: allot.last_value,
                    is_called: allot.is_called,
                    generation: allot.generation,
                },
                count: allot.count,
            },
            Kind::Set(set) => Self::Set {
                sequence: SequenceId(set.sequence),
                value: set.value,
                is_called: set.is_called,
            },
        })
    }
}

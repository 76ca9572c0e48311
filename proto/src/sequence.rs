//! Sequences: counters whose numbers frontends take in blocks.
//!
//! ```text
//!   recorded by meta    last_value ──Allot──▶ last number of the block        generation stays
//!   at one frontend        block: 1 2 3 .. 32 ──▶ nextval, defaults
//!   Set, Alter, Restart    another counter, generation + 1: older blocks are dropped as soon as they are seen to be old
//! ```
//!
//! A frontend names the counter from which it wants the next block; meta records the block if the counter is still that
//! one, and nothing otherwise. Both compute the block by [`Sequence::block`]. So no answer has to hold numbers, and a
//! block whose answer is lost is a gap. Behind a block that ends a cycle a frontend may go on with whole cycles
//! ([`Sequence::supply`]).
//!
//! Invariants:
//! - within one generation no number is in two blocks, unless the sequence cycles;
//! - every number of a block is within the limits of the sequence;
//! - the counter is recorded before a number of the block is used.

#[cfg(test)]
mod tests;

use crate::error::Error;
use crate::id::{ColumnId, DatabaseId, RoleId, SequenceId, TableId};
use crate::schema::validate_name;

/// Numbers of a block, unless the sequence says otherwise.
pub const CACHE_DEFAULT: u64 = 32;
/// Maximum numbers of a block: a frontend that ends loses the rest of one.
pub const BLOCK_MAX: u64 = 1 << 20;

/// SQLSTATE of a parameter that is not valid.
const INVALID_PARAMETER: &str = "22023";
/// SQLSTATE of a number outside the limits.
const OUT_OF_RANGE: &str = "22003";
/// SQLSTATE of a sequence that has no further number.
const LIMIT_EXCEEDED: &str = "2200H";

/// Type of a sequence's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SequenceType {
    /// SMALLINT.
    Small,
    /// 4 bytes, INTEGER in SQL.
    Integer,
    /// BIGINT.
    Big,
}

impl SequenceType {
    /// Name in PostgreSQL's catalogs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Small => "smallint",
            Self::Integer => "integer",
            Self::Big => "bigint",
        }
    }

    /// Smallest and largest number.
    #[must_use]
    pub const fn bounds(self) -> (i64, i64) {
        match self {
            Self::Small => (i16::MIN as i64, i16::MAX as i64),
            Self::Integer => (i32::MIN as i64, i32::MAX as i64),
            Self::Big => (i64::MIN, i64::MAX),
        }
    }
}

/// What CREATE SEQUENCE and ALTER SEQUENCE set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceOptions {
    /// Type of the numbers.
    pub data_type: SequenceType,
    /// First number, also after RESTART.
    pub start: i64,
    /// Distance of two numbers; not 0.
    pub increment: i64,
    /// Smallest number.
    pub min_value: i64,
    /// Largest number.
    pub max_value: i64,
    /// Numbers that a frontend takes at a time at least.
    pub cache: u64,
    /// True to begin anew after the limit.
    pub cycle: bool,
}

impl SequenceOptions {
    /// The options of an ascending sequence from 1.
    #[must_use]
    pub const fn new(data_type: SequenceType) -> Self {
        Self {
            data_type,
            start: 1,
            increment: 1,
            min_value: 1,
            max_value: data_type.bounds().1,
            cache: CACHE_DEFAULT,
            cycle: false,
        }
    }

    /// Checks that the options fit each other, in the words of PostgreSQL.
    ///
    /// # Errors
    /// [`Error::Query`] with SQLSTATE 22023.
    pub fn validate(&self) -> Result<(), Error> {
        let Self { data_type, increment, min_value, max_value, cache, .. } = *self;
        let invalid = |message: String| Err(query(INVALID_PARAMETER, message));
        if increment == 0 {
            return invalid("INCREMENT must not be zero".to_owned());
        }
        let (lowest, highest) = data_type.bounds();
        for (name, value) in [("MAXVALUE", max_value), ("MINVALUE", min_value)] {
            if value < lowest || value > highest {
                let data_type = data_type.name();
                return invalid(format!(
                    "{name} ({value}) is out of range for sequence data type {data_type}"
                ));
            }
        }
        if min_value >= max_value {
            return invalid(format!(
                "MINVALUE ({min_value}) must be less than MAXVALUE ({max_value})"
            ));
        }
        if cache == 0 || cache > BLOCK_MAX {
            return invalid(format!("CACHE ({cache}) must be between 1 and {BLOCK_MAX}"));
        }
        self.check_value("START", self.start)
    }

    /// Checks that a number of a clause is within the limits.
    fn check_value(&self, clause: &str, value: i64) -> Result<(), Error> {
        let Self { min_value, max_value, .. } = *self;
        let fault = if value < min_value {
            format!("less than MINVALUE ({min_value})")
        } else if value > max_value {
            format!("greater than MAXVALUE ({max_value})")
        } else {
            return Ok(());
        };
        Err(query(INVALID_PARAMETER, format!("{clause} value ({value}) cannot be {fault}")))
    }
}

/// Kind of an identity column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// GENERATED ALWAYS: an INSERT gives a value only with OVERRIDING SYSTEM VALUE.
    Always,
    /// GENERATED BY DEFAULT: an INSERT may give a value.
    ByDefault,
}

/// The column with which a sequence goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SequenceColumn {
    /// Table of the column, in the sequence's database.
    pub table: TableId,
    /// Column of the table.
    pub column: ColumnId,
    /// Kind of an identity column; `None`: the column only has the sequence as its default, or owns it.
    pub identity: Option<Identity>,
}

/// State of a sequence's counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Counter {
    /// Last number of the newest block; the number that comes next while `is_called` is false.
    pub last_value: i64,
    /// True if the last value was given out.
    pub is_called: bool,
    /// Grows when older blocks are no longer valid.
    pub generation: u64,
}

/// A sequence, with its counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Sequence id.
    pub id: SequenceId,
    /// Database of the sequence.
    pub database: DatabaseId,
    /// Name; no table of the database has it too.
    pub name: String,
    /// Owning role. A sequence of a column belongs to the owner of its table.
    pub owner: RoleId,
    /// Limits, distance and block size.
    pub options: SequenceOptions,
    /// The column with which it is dropped.
    pub column: Option<SequenceColumn>,
    /// State of the counter.
    pub counter: Counter,
}

/// Numbers that one frontend gives out: `first`, `first + increment`, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The first number.
    pub first: i64,
    /// Distance of two numbers.
    pub increment: i64,
    /// Number of numbers; not 0.
    pub count: u64,
}

impl Block {
    /// The number at a position, which is below the count.
    #[must_use]
    pub fn at(&self, position: u64) -> i64 {
        // Every number of a block is an i64, so that what wraps on the way comes back.
        self.first.wrapping_add(self.increment.wrapping_mul(position as i64))
    }

    /// The last number.
    #[must_use]
    pub fn last(&self) -> i64 {
        self.at(self.count - 1)
    }
}

/// Numbers that a frontend has by one block: those of the block, and of whole cycles behind it.
///
/// The counter is the same before and after a whole cycle, so that meta would record nothing new for one. A frontend adds
/// them itself: otherwise it would ask for each few numbers of a short cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supply {
    block: Block,
    cycle: Block,
    count: u64,
}

impl Supply {
    /// Number of numbers; not 0.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The number at a position, which is below the count.
    #[must_use]
    pub fn at(&self, position: u64) -> i64 {
        match position.checked_sub(self.block.count) {
            None => self.block.at(position),
            Some(further) => self.cycle.at(further % self.cycle.count),
        }
    }
}

/// A sequence of a column of a new table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSequence {
    /// Name of the sequence, in the table's database.
    pub name: String,
    /// Column of the table.
    pub column: ColumnId,
    /// Kind of an identity column.
    pub identity: Option<Identity>,
    /// Limits, distance and block size.
    pub options: SequenceOptions,
}

/// A sequence to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSequence {
    /// Database of the sequence.
    pub database: DatabaseId,
    /// Name of the sequence.
    pub name: String,
    /// Owning role.
    pub owner: RoleId,
    /// Limits, distance and block size.
    pub options: SequenceOptions,
    /// The column with which it is dropped.
    pub column: Option<SequenceColumn>,
}

impl NewSequence {
    /// Checks name and options.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for the name, otherwise as [`SequenceOptions::validate`].
    pub fn validate(&self) -> Result<(), Error> {
        validate_name("sequence", &self.name)?;
        self.options.validate()
    }

    /// The sequence with an id.
    #[must_use]
    pub fn with_id(&self, id: SequenceId) -> Sequence {
        let Self { database, name, owner, options, column } = self.clone();
        let counter = Counter { last_value: options.start, is_called: false, generation: 1 };
        Sequence { id, database, name, owner, options, column, counter }
    }
}

/// What a statement makes of sequences in the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SequenceChange {
    /// CREATE SEQUENCE.
    Create {
        /// The sequence to create.
        sequence: NewSequence,
        /// True to succeed when it exists.
        if_not_exists: bool,
    },
    /// ALTER SEQUENCE.
    Alter {
        /// Sequence to change.
        sequence: SequenceId,
        /// Its options from now on.
        options: SequenceOptions,
        /// Number that comes next; `None`: the counter stays.
        restart: Option<i64>,
        /// OWNED BY; `None`: unchanged.
        column: Option<Option<SequenceColumn>>,
    },
    /// DROP SEQUENCE.
    Drop {
        /// Sequence to drop.
        sequence: SequenceId,
    },
    /// Takes the next block; false if the counter is another one by now.
    Allot {
        /// Sequence of the block.
        sequence: SequenceId,
        /// Counter that the sender knows.
        counter: Counter,
        /// Numbers of the block; fewer when the limit is near.
        count: u64,
    },
    /// `setval`.
    Set {
        /// Sequence to set.
        sequence: SequenceId,
        /// New value of the counter.
        value: i64,
        /// False if the value itself comes next.
        is_called: bool,
    },
}

impl Sequence {
    /// The block of at most `count` numbers after a counter.
    ///
    /// # Errors
    /// [`Error::Query`] with SQLSTATE 2200H at the end of a sequence that does not cycle.
    pub fn block(&self, counter: &Counter, count: u64) -> Result<Block, Error> {
        let SequenceOptions { increment, min_value, max_value, cycle, .. } = self.options;
        let ascends = increment > 0;
        let (begin, end) = if ascends { (min_value, max_value) } else { (max_value, min_value) };
        let is_within = |value: &i64| (min_value..=max_value).contains(value);
        let first = match counter.is_called {
            false => Some(counter.last_value),
            true => counter.last_value.checked_add(increment).filter(is_within),
        };
        let first = match first {
            Some(first) => first,
            None if cycle => begin,
            None => {
                let limit = if ascends { "maximum" } else { "minimum" };
                let name = &self.name;
                return Err(query(
                    LIMIT_EXCEEDED,
                    format!("nextval: reached {limit} value of sequence \"{name}\" ({end})"),
                ));
            }
        };
        let further = end.abs_diff(first) / increment.unsigned_abs();
        Ok(Block {
            first,
            increment,
            count: count.clamp(1, BLOCK_MAX).min(further.saturating_add(1)),
        })
    }

    /// The numbers of the block of at most `count` numbers after a counter, and as many whole cycles behind it as `count`
    /// has room for. Their last number is that of the block, so that the counter after both is the same.
    ///
    /// # Errors
    /// As [`Sequence::block`].
    pub fn supply(&self, counter: &Counter, count: u64) -> Result<Supply, Error> {
        let SequenceOptions { increment, min_value, max_value, cycle: cycles, .. } = self.options;
        let block = self.block(counter, count)?;
        let first = if increment > 0 { min_value } else { max_value };
        let further = max_value.abs_diff(min_value) / increment.unsigned_abs();
        let cycle = Block { first, increment, count: further.saturating_add(1) };
        let room = count.min(BLOCK_MAX).saturating_sub(block.count);
        let is_followed = cycles && block.last() == cycle.last();
        let added = if is_followed { room - room % cycle.count } else { 0 };
        Ok(Supply { block, cycle, count: block.count + added })
    }

    /// The sequence after a block of it was taken; `None` if the counter is another one than the taker knows.
    ///
    /// # Errors
    /// As [`Sequence::block`].
    pub fn allotted(&self, base: &Counter, count: u64) -> Result<Option<Self>, Error> {
        if *base != self.counter {
            return Ok(None);
        }
        let block = self.block(base, count)?;
        let counter = Counter { last_value: block.last(), is_called: true, ..self.counter };
        Ok(Some(Self { counter, ..self.clone() }))
    }

    /// The sequence after `setval`.
    ///
    /// # Errors
    /// [`Error::Query`] with SQLSTATE 22003 for a value outside the limits.
    pub fn set(&self, value: i64, is_called: bool) -> Result<Self, Error> {
        let SequenceOptions { min_value, max_value, .. } = self.options;
        if !(min_value..=max_value).contains(&value) {
            let name = &self.name;
            let message = format!(
                "setval: value {value} is out of bounds for sequence \"{name}\" ({min_value}..{max_value})"
            );
            return Err(query(OUT_OF_RANGE, message));
        }
        let generation = self.counter.generation + 1;
        let counter = Counter { last_value: value, is_called, generation };
        Ok(Self { counter, ..self.clone() })
    }

    /// The sequence with other options and, if it restarts, another counter.
    ///
    /// # Errors
    /// As [`SequenceOptions::validate`], also for a counter outside the new limits.
    pub fn altered(&self, options: SequenceOptions, restart: Option<i64>) -> Result<Self, Error> {
        options.validate()?;
        let generation = self.counter.generation + 1;
        let counter = match restart {
            Some(value) => Counter { last_value: value, is_called: false, generation },
            None => Counter { generation, ..self.counter },
        };
        options.check_value("RESTART", counter.last_value)?;
        Ok(Self { options, counter, ..self.clone() })
    }
}

fn query(sqlstate: &str, message: String) -> Error {
    Error::Query { sqlstate: sqlstate.to_owned(), message, hint: None }
}

//! Sequences at a frontend: the blocks of numbers that it has taken and gives out.
//!
//! ```text
//!   INSERT, COPY, lines, Flight ── defaults ──┐
//!   nextval() ────────────────────────────────┴─▶ block of this process ──▶ numbers
//!                                                   │ used up, or of an older generation
//!                                                   └─▶ meta: Allot by the counter of the newest catalog
//! ```
//!
//! All sessions of a process share the block of a sequence. A block that lasts for less than a second is followed by one
//! of twice its size, so meta hears of a sequence about once a second however many rows come. A block of a sequence that
//! cycles ends with the cycle, but whole cycles go with it: meta hears no more often of a short one. The rest of a block is lost
//! when the process ends, or when the sequence is set, altered or restarted.
//!
//! Invariants:
//! - a number is given out once, after meta has recorded the block that it is in;
//! - no number of a generation is given out once this process has seen a newer one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use partita_proto::Error;
use partita_proto::access::{Action, Need};
use partita_proto::catalog::{Catalog, Table};
use partita_proto::id::{ColumnId, DatabaseId, SequenceId};
use partita_proto::schema::Column;
use partita_proto::sequence::{Identity, Sequence, SequenceChange, Supply};
use partita_proto::service::{Ddl, MetaService};
use partita_sql::sequence_statement::is_counter;
use partita_sql::statement::TableName;
use tokio::time::Instant;

use crate::access::viewer::Viewer;
use crate::error::SqlError;
use crate::privileges::{VISIBLE_BY, sequence_object};
use crate::view::ClusterView;

/// A block that lasts for less is followed by a larger one.
const BLOCK_TIME: Duration = Duration::from_secs(1);
/// Maximum numbers of a block, unless one statement or the sequence asks for more.
const GROWN_MAX: u64 = 1 << 16;

/// SQLSTATE of an object of another kind than the statement is for.
const WRONG_OBJECT_TYPE: &str = "42809";
/// Actions of which `nextval` needs one; CONNECT is USAGE.
pub(crate) const NEXT: [Action; 2] = [Action::Connect, Action::Update];
/// Actions of which `currval` needs one.
pub(crate) const CURRENT: [Action; 2] = [Action::Connect, Action::Select];

/// True if a sequence gives the values that a column's rows leave out.
pub(crate) fn has_counter(column: &Column) -> bool {
    column.default.as_deref().is_some_and(is_counter)
}

/// The sequence of a name. One that the identity may do nothing with does not exist for it.
pub(crate) fn sequence_named(
    viewer: &Viewer,
    database: &str,
    name: &TableName,
) -> Result<Arc<Sequence>, SqlError> {
    let catalog = viewer.catalog();
    let database = name.database_or(database);
    let undefined = || SqlError::undefined_table(&name.name);
    let home = catalog.databases.get(database).ok_or_else(undefined)?;
    let Some(sequence) = catalog.sequence(home.id, &name.name) else {
        if catalog.table(database, &name.name).is_some() {
            let message = format!("\"{}\" is not a sequence", name.name);
            return Err(SqlError::new(WRONG_OBJECT_TYPE, message));
        }
        return Err(undefined());
    };
    let object = sequence_object(&catalog, sequence)?;
    let is_allowed = |action: Action| viewer.check(&[Need::new(action, object.clone())]).is_ok();
    match VISIBLE_BY.into_iter().any(is_allowed) {
        true => Ok(Arc::clone(sequence)),
        false => Err(undefined()),
    }
}

/// The sequence of a table's column, if the column owns one.
pub fn sequence_of_column(
    catalog: &Catalog,
    table: &Table,
    column: ColumnId,
) -> Option<Arc<Sequence>> {
    let is_owned =
        |sequence: &&Arc<Sequence>| sequence.column.is_some_and(|owned| owned.column == column);
    catalog.sequences_of(table.id).find(is_owned).map(Arc::clone)
}

/// The kind of a table's column, if it is an identity column.
pub fn identity_of(catalog: &Catalog, table: &Table, column: ColumnId) -> Option<Identity> {
    sequence_of_column(catalog, table, column)?.column?.identity
}

/// The blocks of one process.
pub(crate) struct Sequences {
    view: Arc<ClusterView>,
    meta: Arc<dyn MetaService>,
    pools: Mutex<HashMap<SequenceId, Arc<tokio::sync::Mutex<Pool>>>>,
    /// Sequences by name, as they were found last.
    names: Mutex<HashMap<DatabaseId, HashMap<String, SequenceId>>>,
}

/// The block of one sequence.
#[derive(Default)]
struct Pool {
    generation: u64,
    block: Option<Supply>,
    /// Numbers of the block that were given out.
    used: u64,
    /// Numbers of the last block that was taken, and when.
    taken: Option<(u64, Instant)>,
}

impl Pool {
    /// Adds up to `count` numbers of the block, if it is of this generation.
    fn give(&mut self, generation: u64, count: u64, numbers: &mut Vec<i64>) {
        if self.generation != generation {
            self.block = None;
        }
        let Some(block) = self.block else { return };
        let end = self.used.saturating_add(count).min(block.count());
        numbers.extend((self.used..end).map(|position| block.at(position)));
        self.used = end;
    }

    /// Numbers to ask for when `missing` ones are wanted now.
    fn wanted(&self, missing: u64, cache: u64, time: Instant) -> u64 {
        let grown = match self.taken {
            Some((size, taken_at)) if time.duration_since(taken_at) < BLOCK_TIME => {
                size.saturating_mul(2).min(GROWN_MAX)
            }
            Some((size, _)) => size.min(GROWN_MAX) / 2,
            None => 0,
        };
        missing.max(cache).max(grown)
    }

    fn fill(&mut self, generation: u64, block: Supply, time: Instant) {
        self.taken = Some((block.count(), time));
        (self.generation, self.block, self.used) = (generation, Some(block), 0);
    }
}

impl Sequences {
    pub(crate) fn new(view: Arc<ClusterView>, meta: Arc<dyn MetaService>) -> Self {
        Self { view, meta, pools: Mutex::default(), names: Mutex::default() }
    }

    /// The sequence with a name.
    ///
    /// # Errors
    /// 42P01 when there is none.
    pub(crate) fn named(
        &self,
        catalog: &Catalog,
        database: &str,
        name: &str,
    ) -> Result<Arc<Sequence>, SqlError> {
        let home = catalog.databases.get(database).map(|database| database.id);
        let home = home.ok_or_else(|| SqlError::undefined_table(name))?;
        let cached_id = self.names.lock().get(&home).and_then(|names| names.get(name)).copied();
        let candidate = cached_id.and_then(|id| catalog.sequences.get(&id));
        let candidate =
            candidate.filter(|sequence| sequence.database == home && sequence.name == name);
        let sequence = candidate.or_else(|| catalog.sequence(home, name));
        let sequence = sequence.ok_or_else(|| SqlError::undefined_table(name))?;
        if cached_id != Some(sequence.id) {
            let mut names = self.names.lock();
            let of_database = names.entry(home).or_default();
            // Names that are gone by now.
            if of_database.len() > 2 * catalog.sequences.len() + 64 {
                of_database.clear();
            }
            of_database.insert(name.to_owned(), sequence.id);
        }
        Ok(Arc::clone(sequence))
    }

    fn pool(&self, id: SequenceId) -> Arc<tokio::sync::Mutex<Pool>> {
        Arc::clone(self.pools.lock().entry(id).or_default())
    }

    /// The next `count` numbers of a sequence if the present block has them.
    pub(crate) fn draw_now(&self, id: SequenceId, count: u64) -> Option<Vec<i64>> {
        let pool = self.pool(id);
        let mut pool = pool.try_lock().ok()?;
        let generation = self.view.catalog().sequences.get(&id)?.counter.generation;
        let remaining = pool.block.map_or(0, |block| block.count() - pool.used);
        if pool.generation != generation || remaining < count {
            return None;
        }
        let mut numbers = Vec::new();
        pool.give(generation, count, &mut numbers);
        Some(numbers)
    }

    /// The next `count` numbers of a sequence, in its order, perhaps with gaps.
    ///
    /// # Errors
    /// 42P01 when the sequence is gone, 2200H when it has no further number, and errors of the catalog service.
    pub(crate) async fn draw(&self, id: SequenceId, count: u64) -> Result<Vec<i64>, SqlError> {
        let pool = self.pool(id);
        let mut pool = pool.lock().await;
        let deadline = Instant::now() + self.view.timeout();
        let mut numbers = Vec::new();
        loop {
            let catalog = self.view.catalog();
            let Some(sequence) = catalog.sequences.get(&id) else {
                self.pools.lock().remove(&id);
                return Err(SqlError::undefined_table(id.to_string()));
            };
            let counter = sequence.counter;
            let missing = count - numbers.len() as u64;
            pool.give(counter.generation, missing, &mut numbers);
            let missing = count - numbers.len() as u64;
            if missing == 0 {
                return Ok(numbers);
            }
            // Both sides compute the block from the counter.
            let size = pool.wanted(missing, sequence.options.cache, Instant::now());
            let block = sequence.supply(&counter, size)?;
            let change = SequenceChange::Allot { sequence: id, counter, count: size };
            if self.meta.change(Ddl::Sequence(Box::new(change))).await? {
                pool.fill(counter.generation, block, Instant::now());
                continue;
            }
            // Another frontend was faster. The answer came after the catalog that it depends on.
            if Instant::now() >= deadline {
                let message = format!("no block of sequence \"{}\" in time", sequence.name);
                return Err(Error::Timeout(message).into());
            }
            self.view.newer_catalog(catalog.version, deadline).await;
        }
    }
}

/// The last numbers of sequences that a session has got.
#[derive(Default)]
pub(crate) struct LastNumbers {
    values: HashMap<SequenceId, i64>,
    last: Option<SequenceId>,
}

impl LastNumbers {
    /// Remembers a number.
    pub(crate) fn put(&mut self, id: SequenceId, number: i64) {
        self.values.insert(id, number);
        self.last = Some(id);
    }

    /// Replaces a number, as `setval` does, which is not the last one of the session.
    pub(crate) fn set(&mut self, id: SequenceId, number: i64) {
        self.values.insert(id, number);
    }

    /// The last number of a sequence.
    pub(crate) fn of(&self, id: SequenceId) -> Option<i64> {
        self.values.get(&id).copied()
    }

    /// The sequence of the last number, and the number.
    pub(crate) fn last(&self) -> Option<(SequenceId, i64)> {
        let id = self.last?;
        Some((id, self.of(id)?))
    }
}

#[cfg(test)]
mod tests {
    use partita_proto::id::RoleId;
    use partita_proto::sequence::{NewSequence, SequenceOptions, SequenceType};

    use super::*;

    /// The next `count` numbers of 10, 15, 20 and so on.
    fn block(count: u64) -> Supply {
        let options =
            SequenceOptions { start: 10, increment: 5, ..SequenceOptions::new(SequenceType::Big) };
        let sequence = sequence(options);
        sequence.supply(&sequence.counter, count).unwrap()
    }

    fn sequence(options: SequenceOptions) -> Sequence {
        let (database, name, owner) = (DatabaseId(1), "s".to_owned(), RoleId(0));
        NewSequence { database, name, owner, options, column: None }.with_id(SequenceId(1))
    }

    #[test]
    fn a_block_gives_each_number_once_and_nothing_of_another_generation() {
        let mut pool = Pool::default();
        let mut numbers = Vec::new();
        pool.give(1, 2, &mut numbers);
        assert!(numbers.is_empty());
        pool.fill(1, block(3), Instant::now());
        pool.give(1, 2, &mut numbers);
        pool.give(1, 2, &mut numbers);
        assert_eq!(numbers, [10, 15, 20]);
        pool.fill(1, block(3), Instant::now());
        pool.give(2, 1, &mut numbers);
        pool.give(1, 1, &mut numbers);
        assert_eq!(numbers.len(), 3);
    }

    #[test]
    fn blocks_grow_while_they_last_for_less_than_a_second() {
        let mut pool = Pool::default();
        let begin = Instant::now();
        assert_eq!(pool.wanted(1, 32, begin), 32);
        assert_eq!(pool.wanted(100, 32, begin), 100);
        pool.fill(1, block(32), begin);
        assert_eq!(pool.wanted(1, 32, begin + BLOCK_TIME / 2), 64);
        assert_eq!(pool.wanted(1, 32, begin + BLOCK_TIME), 32);
        pool.fill(1, block(GROWN_MAX), begin);
        assert_eq!(pool.wanted(1, 32, begin), GROWN_MAX);
        assert_eq!(pool.wanted(1, 32, begin + BLOCK_TIME), GROWN_MAX / 2);
    }

    #[test]
    fn a_short_cycle_needs_no_command_for_each_of_its_rounds() {
        let options = SequenceOptions {
            max_value: 3,
            cycle: true,
            ..SequenceOptions::new(SequenceType::Integer)
        };
        let mut sequence = sequence(options);
        let mut pool = Pool::default();
        let time = Instant::now();
        let (mut numbers, mut commands) = (Vec::new(), 0);
        while numbers.len() < 100_000 {
            pool.give(1, 1, &mut numbers);
            if pool.block.is_none_or(|block| block.count() == pool.used) {
                let size = pool.wanted(1, sequence.options.cache, time);
                pool.fill(1, sequence.supply(&sequence.counter, size).unwrap(), time);
                sequence = sequence.allotted(&sequence.counter, size).unwrap().unwrap();
                commands += 1;
            }
        }
        assert!(commands < 20, "{commands} commands");
        assert!(numbers.iter().zip([1, 2, 3].iter().cycle()).all(|(number, next)| number == next));
    }
}

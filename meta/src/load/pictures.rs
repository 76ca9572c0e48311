//! Load histories of tables: the load of each busy table, by key and time, over two weeks.
//!
//! ```text
//!   rates, samples of keys ──▶ ┌──────────┐
//!   splits, merges, moves  ──▶ │ Pictures │ ── of ──▶ the history of one table, to be looked at without the keeper
//!   verdicts on hot ones   ──▶ └──────────┘
//! ```
//!
//! Invariants: at most [`TABLES_MAX`] tables are kept, about 7 MB each when their histories are full; a busier
//! table replaces the least busy one; there is no clock, the caller passes the time, and each second is counted
//! once.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use partita_heatmap::{Event, Finding, History, Key, METRICS, PartitionLoad, Report};
use partita_load::Class;
use partita_proto::id::TableId;

use super::files::KeptPicture;

/// Maximum tables that are kept.
const TABLES_MAX: usize = 32;
/// Factor by which a table's load must exceed that of the least busy one to replace it; otherwise tables of equal
/// load would displace each other.
const LOUDER: f64 = 2.0;
/// Weight of one second in a table's recent load: half of it is from the last six minutes.
const HEAT_WEIGHT: f64 = 0.002;
/// Weight of one second in the measured capacity of a partition.
const CAPACITY_WEIGHT: f32 = 0.05;
/// Maximum gap, in seconds, that the next report fills; a longer one stays a gap.
const SPAN_MAX_S: u64 = 5;

/// One table's load in one second.
#[derive(Clone, Debug, Default)]
pub(super) struct TableNow {
    /// All partitions of the table, in ascending order of range.
    pub(super) partitions: Vec<PartitionLoad>,
    /// Operations per second over all partitions.
    pub(super) operations: f64,
    /// Measured capacity of one partition, by metric.
    pub(super) capacity: [Option<f32>; METRICS],
    /// The detector's findings on hot partitions, with their classes.
    pub(super) findings: Vec<(Class, Finding)>,
}

/// The pictures of all tables that bear load.
#[derive(Debug, Default)]
pub(crate) struct Pictures {
    tables: BTreeMap<TableId, Picture>,
    /// The last second that was counted.
    second: u64,
}

/// Load history of one table, with its state.
#[derive(Debug)]
struct Picture {
    history: Arc<Mutex<History>>,
    heat: f64,
    capacity: [Option<f32>; METRICS],
    /// Number of the newest split or merge that is marked.
    marked: u64,
    /// Classes of the present findings, by the partition's first key.
    found: BTreeMap<Key, Class>,
}

impl Picture {
    fn new(operations: f64) -> Self {
        Self {
            history: Arc::new(Mutex::new(History::default())),
            heat: operations,
            capacity: [None; METRICS],
            marked: 0,
            found: BTreeMap::new(),
        }
    }

    fn note(&mut self, begin: u64, second: u64, load: TableNow) {
        self.heat += HEAT_WEIGHT * (load.operations - self.heat);
        for (capacity, measured) in self.capacity.iter_mut().zip(load.capacity) {
            let Some(measured) = measured else { continue };
            let previous = capacity.unwrap_or(measured);
            *capacity = Some(previous + CAPACITY_WEIGHT * (measured - previous));
        }
        let seconds = u32::try_from(second - begin).unwrap_or(1);
        let mut history = self.history.lock();
        history.push(&Report { from: begin, seconds, partitions: load.partitions });
        let mut previous = std::mem::take(&mut self.found);
        for (class, finding) in load.findings {
            let earlier = previous.remove(&finding.start);
            if earlier.is_some_and(|earlier| earlier != class) {
                history.clear(&finding.start, second);
            }
            self.found.insert(Key::clone(&finding.start), class);
            history.find(finding);
        }
        for start in previous.keys() {
            history.clear(start, second);
        }
    }
}

impl Pictures {
    /// True if a second has begun since the last one that was counted.
    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        now_ms / 1_000 > self.second
    }

    /// True if the table is kept.
    pub(super) fn has(&self, table: TableId) -> bool {
        self.tables.contains_key(&table)
    }

    /// Counts the tables' load since the last call.
    pub(super) fn note(&mut self, now_ms: u64, tables: BTreeMap<TableId, TableNow>) {
        let second = now_ms / 1_000;
        let begin = match second.saturating_sub(self.second) {
            0 => return,
            1..=SPAN_MAX_S => self.second,
            _ => second - 1,
        };
        self.second = second;
        for (table, load) in tables {
            if !self.has(table) && !self.make_room(load.operations) {
                continue;
            }
            let picture = self.tables.entry(table).or_insert_with(|| Picture::new(load.operations));
            picture.note(begin, second, load);
        }
    }

    /// Makes room for a table with this load if there is none, by removing the least busy one if that is much less
    /// busy. True if there is room.
    fn make_room(&mut self, operations: f64) -> bool {
        if self.tables.len() < TABLES_MAX {
            return true;
        }
        let quietest = self.tables.iter().min_by(|(_, a), (_, b)| a.heat.total_cmp(&b.heat));
        let Some((table, heat)) = quietest.map(|(table, picture)| (*table, picture.heat)) else {
            return true;
        };
        let louder = operations > heat * LOUDER;
        if louder {
            self.tables.remove(&table);
        }
        louder
    }

    /// Drops the histories of tables that are gone.
    pub(super) fn retain(&mut self, is_there: impl Fn(TableId) -> bool) {
        self.tables.retain(|table, _| is_there(*table));
    }

    /// True if a finding on the partition that begins at a key is shown.
    pub(super) fn finds(&self, table: TableId, start: &[u8]) -> bool {
        self.tables.get(&table).is_some_and(|picture| picture.found.contains_key(start))
    }

    /// Number of the newest split or merge marked for a table; `None` if the table is not kept.
    pub(super) fn marked(&self, table: TableId) -> Option<u64> {
        self.tables.get(&table).map(|picture| picture.marked)
    }

    /// Marks an event of a table; `number` is that of the split or merge, if it is one.
    pub(super) fn mark(&mut self, table: TableId, number: Option<u64>, event: Option<Event>) {
        let Some(picture) = self.tables.get_mut(&table) else { return };
        picture.marked = picture.marked.max(number.unwrap_or(0));
        if let Some(event) = event {
            picture.history.lock().mark(event);
        }
    }

    /// The pictures, to be kept.
    pub(super) fn content(&self) -> Vec<KeptPicture> {
        let picture = |(table, picture): (&TableId, &Picture)| KeptPicture {
            table: *table,
            heat: picture.heat,
            capacity: picture.capacity,
            marked: picture.marked,
            history: Arc::clone(&picture.history),
        };
        self.tables.iter().map(picture).collect()
    }

    /// Begins with the pictures of an earlier process. Verdicts that held then are found again, or do not hold any more.
    pub(super) fn restore(&mut self, pictures: Vec<KeptPicture>) {
        for KeptPicture { table, heat, capacity, marked, history } in pictures {
            if self.tables.len() < TABLES_MAX {
                let picture = Picture { history, heat, capacity, marked, found: BTreeMap::new() };
                self.tables.insert(table, picture);
            }
        }
    }

    /// A table's history, and the measured capacity of one of its partitions; `None` if the table is not kept.
    pub(crate) fn of(
        &self,
        table: TableId,
    ) -> Option<(Arc<Mutex<History>>, [Option<f32>; METRICS])> {
        let picture = self.tables.get(&table)?;
        Some((Arc::clone(&picture.history), picture.capacity))
    }
}

#[cfg(test)]
mod tests {
    use partita_heatmap::{Metric, Shares, View};

    use super::*;

    const START: u64 = 1_000_000;

    fn now(rows: f32, class: Option<Class>) -> TableNow {
        let start = Key::from([]);
        let finding = |class: Class| {
            let finding = Finding {
                partition: Some(1),
                since: START,
                until: None,
                start: Key::clone(&start),
                end: None,
                class: class.to_string(),
                evidence: String::new(),
                advice: String::new(),
            };
            (class, finding)
        };
        let partition = PartitionLoad {
            id: 1,
            leader: None,
            start: Key::clone(&start),
            end: None,
            rates: [rows, 0.0, 0.0, 0.0],
            writes: Shares::default(),
            reads: Shares::default(),
        };
        TableNow {
            partitions: vec![partition],
            operations: f64::from(rows),
            capacity: [Some(rows * 2.0), None, None, None],
            findings: class.map(finding).into_iter().collect(),
        }
    }

    fn note(pictures: &mut Pictures, second: u64, table: u32, now: TableNow) {
        pictures.note((START + second) * 1_000, BTreeMap::from([(TableId(table), now)]));
    }

    fn view(pictures: &Pictures, table: u32, from: u64, to: u64) -> partita_heatmap::Heatmap {
        let (history, _) = pictures.of(TableId(table)).unwrap();
        let view = View {
            table: "t".to_owned(),
            metric: Metric::WriteRows,
            from: START + from,
            to: START + to,
            columns_max: 100,
            rows_max: 10,
            keys: None,
            capacity: None,
        };
        let history = history.lock();
        history.view(&view, |_| String::new())
    }

    #[test]
    fn a_second_counts_once_and_a_short_silence_is_made_up_for() {
        let mut pictures = Pictures::default();
        assert!(pictures.is_due(START * 1_000));
        for second in [1, 2, 2, 3, 6] {
            note(&mut pictures, second, 1, now(10.0, None));
        }
        assert!(!pictures.is_due((START + 6) * 1_000 + 999));
        let seen = view(&pictures, 1, 0, 6);
        assert_eq!(seen.cells, [[10.0; 6]]);
        note(&mut pictures, 20, 1, now(10.0, None));
        assert_eq!(view(&pictures, 1, 0, 20).gaps, (6..19).collect::<Vec<_>>());
    }

    #[test]
    fn what_was_found_ends_when_it_does_not_hold_or_becomes_something_else() {
        let mut pictures = Pictures::default();
        for (second, class) in [(1, Class::Sweep), (2, Class::Sweep), (3, Class::HotKey)] {
            note(&mut pictures, second, 1, now(10.0, Some(class)));
        }
        note(&mut pictures, 5, 1, now(10.0, None));
        let notes = view(&pictures, 1, 0, 5).verdicts;
        let shown: Vec<_> = notes.iter().map(|note| (note.class.as_str(), note.until)).collect();
        assert_eq!(shown, [("SWEEP", Some(START + 3)), ("HOT_KEY", Some(START + 5))]);
    }

    #[test]
    fn the_quietest_table_goes_for_one_that_bears_much_more() {
        let mut pictures = Pictures::default();
        for table in 0..32 {
            note(&mut pictures, 1 + u64::from(table), table, now(100.0 + table as f32, None));
        }
        note(&mut pictures, 40, 99, now(150.0, None));
        assert!(!pictures.has(TableId(99)) && pictures.has(TableId(0)));
        note(&mut pictures, 41, 99, now(250.0, None));
        assert!(pictures.has(TableId(99)) && !pictures.has(TableId(0)));
        assert_eq!(pictures.tables.len(), TABLES_MAX);
    }

    #[test]
    fn what_a_partition_bears_is_remembered_when_it_is_not_measured_any_more() {
        let mut pictures = Pictures::default();
        note(&mut pictures, 1, 1, now(10.0, None));
        note(&mut pictures, 2, 1, TableNow { capacity: [None; METRICS], ..now(1.0, None) });
        let (_, capacity) = pictures.of(TableId(1)).unwrap();
        assert_eq!(capacity, [Some(20.0), None, None, None]);
    }
}

//! Statements by their shape, and what they cost: `sys.statements`.
//!
//! Statements that differ in literals only have one shape ([`fingerprint`]). Figures are kept for each shape, database
//! and identity: without MONITOR an identity sees those of its own statements only, as in `sys.query_log`. With it,
//! figures of all identities are added up.
//!
//! At most [`SHAPES_MAX`] records; the one that was used least recently goes first.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use arrow::record_batch::RecordBatch;
use parking_lot::Mutex;
use partita_advice::{Filter, FilterClass, Join, StatementShape};
use partita_load::{ReadShape, ShapeBound};
use partita_proto::access::Identity;
use partita_proto::catalog::Table;
use partita_proto::id::{ColumnId, RoleId, TableId, TokenId};
use partita_sql::fingerprint::fingerprint;
use serde_json::json;

use crate::access::viewer::Viewer;
use crate::error::SqlError;
use crate::plan_scans::ScanNote;
use crate::query_log::{QueryLogEntry, TEXT_BYTES_MAX, kind_bit, kinds};
use crate::virtual_table::{Cell, Kind, batch, schema};

/// Maximum number of records.
const SHAPES_MAX: usize = 1_000;
/// Maximum columns of a shape, so that a wide table does not fill the memory.
const COLUMNS_MAX: usize = 256;
/// Maximum shapes that designs of a table are compared by: those with the most rows read.
const READ_SHAPES_MAX: usize = 20;
/// Time over which calls are averaged at least: one statement is no rate.
const RATE_MS_MIN: f64 = 60_000.0;
/// Number of values that a list such as `IN (..)` is taken to have.
const LISTED_VALUES: f64 = 4.0;
/// Share of a column's span that a range is taken to have if nothing is known of it.
const RANGE_SHARE: f64 = 0.1;

/// Columns of `sys.statements`.
pub(crate) const STATEMENTS: &[(&str, Kind)] = &[
    ("fingerprint", Kind::Text),
    ("kind", Kind::Text),
    ("text", Kind::Text),
    ("tables", Kind::Text),
    ("calls", Kind::Count),
    ("errors", Kind::Count),
    ("ms_total", Kind::Float),
    ("ms_max", Kind::Float),
    ("rows_examined", Kind::Count),
    ("rows_returned", Kind::Count),
    ("partitions_touched", Kind::Count),
    ("partitions_total", Kind::Count),
    ("index_used", Kind::Text),
    ("filters", Kind::Text),
    ("columns", Kind::Text),
    ("first_seen", Kind::Time),
    ("last_seen", Kind::Time),
];

/// Role and token of the statements; `None`: of no client.
type Owner = Option<(RoleId, Option<TokenId>)>;

/// Fingerprint, database and owner of statements.
type Key = (u64, String, Owner);

/// A column of a table.
type Place = (TableId, ColumnId);

/// Statements of one shape.
#[derive(Clone, Debug, Default)]
struct Shape {
    text: String,
    kind: &'static str,
    calls: u64,
    errors: u64,
    ms_total: f64,
    ms_max: f64,
    rows_examined: u64,
    rows_returned: u64,
    partitions_touched: u64,
    partitions_total: u64,
    /// Kinds of indexes, as bits.
    index_kinds: u8,
    /// Names of tables, with their databases.
    tables: BTreeMap<TableId, String>,
    /// Names of the columns below.
    names: BTreeMap<Place, String>,
    columns: BTreeSet<Place>,
    sorts: BTreeSet<Place>,
    filters: Vec<(Place, FilterClass)>,
    /// Tables that are joined, and the columns of one name that are equal in both.
    joins: BTreeSet<(TableId, TableId, Vec<String>)>,
    age: Age,
    first_seen_ms: i64,
    last_seen_ms: i64,
    /// Number of the last use.
    used: u64,
}

/// Age of the oldest rows that statements ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Age {
    /// No statement has asked for rows.
    #[default]
    Unknown,
    /// At most so many milliseconds.
    Within(u64),
    Unbounded,
}

impl Age {
    fn max(self, age: Self) -> Self {
        match (self, age) {
            (Self::Unknown, age) | (age, Self::Unknown) => age,
            (Self::Unbounded, _) | (_, Self::Unbounded) => Self::Unbounded,
            (Self::Within(first), Self::Within(second)) => Self::Within(first.max(second)),
        }
    }

    fn of(scan: &ScanNote, now_ms: i64) -> Self {
        scan.oldest_ms.map_or(Self::Unbounded, |oldest| {
            Self::Within(u64::try_from(now_ms.saturating_sub(oldest)).unwrap_or(0))
        })
    }
}

impl Shape {
    /// Adds a statement that has ended.
    fn note(&mut self, entry: &QueryLogEntry, scans: &[ScanNote]) {
        self.calls += 1;
        self.errors += u64::from(entry.error.is_some());
        self.ms_total += entry.milliseconds;
        self.ms_max = self.ms_max.max(entry.milliseconds);
        self.rows_examined += entry.rows_scanned;
        // The filters of a query tell how many of the rows were needed, its result does not: it may be one count.
        self.rows_returned += if scans.iter().any(|scan| scan.is_measured) {
            scans.iter().map(|scan| scan.rows_returned).sum::<u64>()
        } else {
            entry.rows
        };
        self.partitions_touched += entry.partitions_touched;
        self.partitions_total += entry.partitions_total;
        // Statements come in the order of their ends.
        if self.calls == 1 || entry.started_ms < self.first_seen_ms {
            self.first_seen_ms = entry.started_ms;
        }
        self.last_seen_ms = self.last_seen_ms.max(entry.started_ms);
        for scan in scans {
            self.note_scan(scan, entry.started_ms);
        }
    }

    fn note_scan(&mut self, scan: &ScanNote, now_ms: i64) {
        let table = scan.table.id;
        // A name is the newest one.
        self.tables.insert(table, format!("{}.{}", scan.table.database, scan.table.name));
        for (_, kind) in scan.indexes.keys() {
            self.index_kinds |= kind_bit(*kind);
        }
        for column in &scan.columns {
            self.add_column((table, *column), scan);
        }
        for column in &scan.sorts {
            if self.name(&(table, *column), scan) {
                self.sorts.insert((table, *column));
            }
        }
        for (column, class) in &scan.filters {
            let filter = ((table, *column), *class);
            if self.name(&filter.0, scan) && !self.filters.contains(&filter) {
                self.filters.push(filter);
            }
        }
        for (joined, names) in &scan.joins {
            self.tables.insert(joined.id, format!("{}.{}", joined.database, joined.name));
            self.joins.insert((table, joined.id, names.clone()));
        }
        if scan.is_measured {
            self.age = self.age.max(Age::of(scan, now_ms));
        }
    }

    fn add_column(&mut self, place: Place, scan: &ScanNote) {
        if (self.columns.len() < COLUMNS_MAX || self.columns.contains(&place))
            && self.name(&place, scan)
        {
            self.columns.insert(place);
        }
    }

    /// Notes the name of a column; false if the table does not have it.
    fn name(&mut self, place: &Place, scan: &ScanNote) -> bool {
        let columns = &scan.table.schema.columns;
        let Some(column) = columns.iter().find(|column| column.id == place.1) else { return false };
        self.names.insert(*place, column.name.clone());
        true
    }

    /// Adds the statements of another record of the same shape.
    fn merge(&mut self, record: &Self) {
        if self.calls == 0 || record.first_seen_ms < self.first_seen_ms {
            self.first_seen_ms = record.first_seen_ms;
        }
        if self.text.is_empty() {
            self.text.clone_from(&record.text);
            self.kind = record.kind;
        }
        self.calls += record.calls;
        self.errors += record.errors;
        self.ms_total += record.ms_total;
        self.ms_max = self.ms_max.max(record.ms_max);
        self.rows_examined += record.rows_examined;
        self.rows_returned += record.rows_returned;
        self.partitions_touched += record.partitions_touched;
        self.partitions_total += record.partitions_total;
        self.index_kinds |= record.index_kinds;
        let pair = |(key, name): (&TableId, &String)| (*key, name.clone());
        self.tables.extend(record.tables.iter().map(pair));
        self.names.extend(record.names.iter().map(|(place, name)| (*place, name.clone())));
        self.columns.extend(&record.columns);
        self.sorts.extend(&record.sorts);
        for filter in &record.filters {
            if !self.filters.contains(filter) {
                self.filters.push(*filter);
            }
        }
        self.joins.extend(record.joins.iter().cloned());
        self.age = self.age.max(record.age);
        self.last_seen_ms = self.last_seen_ms.max(record.last_seen_ms);
        self.used = self.used.max(record.used);
    }

    /// Names of the table, with its database, and of a column.
    fn names_of(&self, (table, column): &Place) -> Option<(String, String)> {
        Some((self.tables.get(table)?.clone(), self.names.get(&(*table, *column))?.clone()))
    }

    fn named<'a>(&self, places: impl IntoIterator<Item = &'a Place>) -> Vec<(String, String)> {
        places.into_iter().filter_map(|place| self.names_of(place)).collect()
    }

    /// Filters in the order of their columns.
    fn filters(&self) -> Vec<Filter> {
        let mut filters = self.filters.clone();
        filters.sort_by_key(|(place, class)| (*place, class_name(*class)));
        let filter = |(place, class): &(Place, FilterClass)| {
            let (table, column) = self.names_of(place)?;
            Some(Filter { table, column, class: *class })
        };
        filters.iter().filter_map(filter).collect()
    }

    /// The shape as a read of a table; `None` if it does not read it.
    #[expect(clippy::cast_precision_loss, reason = "counts of statements and rows")]
    fn read_shape(&self, table: &Table) -> Option<ReadShape> {
        if !["SELECT", "UPDATE", "DELETE"].contains(&self.kind)
            || !self.tables.contains_key(&table.id)
        {
            return None;
        }
        let mut bounds: BTreeMap<usize, ShapeBound> = BTreeMap::new();
        for ((of_table, column), class) in &self.filters {
            let position = table.schema.key.iter().position(|key| key == column);
            let Some(position) = position.filter(|_| *of_table == table.id) else { continue };
            let Some(bound) = self.bound(table, *column, *class) else { continue };
            // Of several filters of a column, the one that leaves fewest values counts.
            if bounds.get(&position).is_none_or(|best| rank(&bound) < rank(best)) {
                bounds.insert(position, bound);
            }
        }
        let span_ms = self.last_seen_ms.saturating_sub(self.first_seen_ms) as f64;
        Some(ReadShape {
            bounds: bounds.into_iter().collect(),
            per_s: self.calls as f64 / (span_ms.max(RATE_MS_MIN) / 1e3),
            rows: self.rows_examined as f64 / self.calls.max(1) as f64,
        })
    }

    /// The part of a key column's values that a filter leaves.
    fn bound(&self, table: &Table, column: ColumnId, class: FilterClass) -> Option<ShapeBound> {
        Some(match class {
            FilterClass::Point | FilterClass::Null => ShapeBound::Value,
            FilterClass::Points => ShapeBound::Values(LISTED_VALUES),
            FilterClass::Range => {
                let is_time = table.schema.time_index().is_some_and(|time| time.id == column);
                let age = match self.age {
                    Age::Within(age_ms) if is_time => Some(Duration::from_millis(age_ms)),
                    Age::Within(_) | Age::Unknown | Age::Unbounded => None,
                };
                let share = age.zip(table.schema.options.ttl.filter(|ttl| !ttl.is_zero()));
                let share = share.map(|(age, ttl)| age.as_secs_f64() / ttl.as_secs_f64());
                ShapeBound::Range(share.map_or(RANGE_SHARE, |share| share.min(1.0)))
            }
            FilterClass::Pattern | FilterClass::Terms => return None,
        })
    }

    fn row(&self, fingerprint: u64) -> Vec<Cell> {
        let tables: Vec<&String> = self.tables.values().collect();
        let filters: Vec<_> = self
            .filters()
            .into_iter()
            .map(|filter| {
                let class = class_name(filter.class);
                json!({ "table": filter.table, "column": filter.column, "class": class })
            })
            .collect();
        let columns = self.named(&self.columns).into_iter();
        let columns: Vec<String> =
            columns.map(|(table, column)| format!("{table}.{column}")).collect();
        vec![
            format!("{fingerprint:016x}").into(),
            self.kind.into(),
            self.text.as_str().into(),
            json!(tables).to_string().into(),
            self.calls.into(),
            self.errors.into(),
            self.ms_total.into(),
            self.ms_max.into(),
            self.rows_examined.into(),
            self.rows_returned.into(),
            self.partitions_touched.into(),
            self.partitions_total.into(),
            kinds(self.index_kinds).map(str::to_owned).into(),
            json!(filters).to_string().into(),
            json!(columns).to_string().into(),
            Cell::Time(Some(self.first_seen_ms)),
            Cell::Time(Some(self.last_seen_ms)),
        ]
    }

    fn facts(&self, fingerprint: u64) -> StatementShape {
        let table_name = |table: &TableId| self.tables.get(table).cloned();
        let joins = self.joins.iter().filter_map(|(first, second, on)| {
            Some(Join { left: table_name(first)?, right: table_name(second)?, on: on.clone() })
        });
        StatementShape {
            fingerprint,
            text: self.text.clone(),
            kind: self.kind.to_owned(),
            tables: self.tables.values().cloned().collect(),
            calls: self.calls,
            rows_examined: self.rows_examined,
            rows_returned: self.rows_returned,
            partitions_touched: self.partitions_touched,
            partitions_total: self.partitions_total,
            milliseconds: self.ms_total,
            filters: self.filters(),
            columns: self.named(&self.columns),
            sorts: self.named(&self.sorts),
            joins: joins.collect(),
            index_used: kinds(self.index_kinds).map(str::to_owned),
            newest_ms: match self.age {
                Age::Within(age) => Some(age),
                Age::Unknown | Age::Unbounded => None,
            },
        }
    }
}

/// Order of bounds, the narrowest first.
const fn rank(bound: &ShapeBound) -> u8 {
    match bound {
        ShapeBound::Value => 0,
        ShapeBound::Values(_) => 1,
        ShapeBound::Range(_) => 2,
    }
}

/// A class of filters in `sys.statements`.
const fn class_name(class: FilterClass) -> &'static str {
    match class {
        FilterClass::Point => "point",
        FilterClass::Points => "points",
        FilterClass::Range => "range",
        FilterClass::Null => "null",
        FilterClass::Pattern => "pattern",
        FilterClass::Terms => "terms",
    }
}

fn owner(identity: Identity) -> (RoleId, Option<TokenId>) {
    (identity.login, identity.token)
}

#[derive(Debug, Default)]
struct Records {
    shapes: HashMap<Key, Shape>,
    uses: u64,
}

/// Statements by their shape; see the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Statements {
    records: Mutex<Records>,
}

impl Statements {
    /// Adds a statement that has ended.
    pub(crate) fn note(&self, entry: &QueryLogEntry, scans: &[ScanNote]) {
        let end = entry.text.floor_char_boundary(TEXT_BYTES_MAX);
        let (hash, text) = fingerprint(&entry.text[..end]);
        let key = (hash, entry.database.clone(), entry.identity.map(owner));
        let mut records = self.records.lock();
        records.uses += 1;
        let number = records.uses;
        let shapes = &mut records.shapes;
        if shapes.len() >= SHAPES_MAX && !shapes.contains_key(&key) {
            let oldest = shapes.iter().min_by_key(|(_, shape)| shape.used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                shapes.remove(&oldest);
            }
        }
        let new = || Shape { text, kind: entry.kind, ..Shape::default() };
        let shape = shapes.entry(key).or_insert_with(new);
        shape.used = number;
        shape.note(entry, scans);
    }

    /// Something of each shape, in the order of fingerprint and database, of all identities or of one.
    fn map<T>(&self, reader: Option<Identity>, read: impl Fn(u64, &Shape) -> T) -> Vec<T> {
        let records = self.records.lock();
        let mut shapes = BTreeMap::<(u64, &str), Vec<&Shape>>::new();
        for ((hash, database, author), shape) in &records.shapes {
            if reader.is_none_or(|reader| *author == Some(owner(reader))) {
                shapes.entry((*hash, database.as_str())).or_default().push(shape);
            }
        }
        let of_all = |((hash, _), shapes): ((u64, &str), Vec<&Shape>)| match shapes.as_slice() {
            [only] => read(hash, only),
            several => {
                let mut merged = Shape::default();
                several.iter().for_each(|shape| merged.merge(shape));
                read(hash, &merged)
            }
        };
        shapes.into_iter().map(of_all).collect()
    }

    /// Rows of `sys.statements` for a viewer.
    pub(crate) fn batch(&self, viewer: &Viewer) -> Result<RecordBatch, SqlError> {
        let reader = if viewer.monitors() { None } else { Some(viewer.identity()) };
        batch(&schema(STATEMENTS), self.map(reader, |hash, shape| shape.row(hash)))
    }

    /// Reads of a table by the statements of all identities, those with the most rows first: designs of the table are
    /// compared by them. Texts are left out, because the viewer of a design may not know them.
    pub(crate) fn read_shapes(&self, table: &Table) -> Vec<ReadShape> {
        let reads = self.map(None, |_, shape| shape.read_shape(table));
        let mut reads: Vec<ReadShape> = reads.into_iter().flatten().collect();
        let weight = |read: &ReadShape| read.per_s * read.rows;
        reads.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
        reads.truncate(READ_SHAPES_MAX);
        reads
    }

    /// All shapes, for the advisor.
    pub(crate) fn shapes(&self) -> Vec<StatementShape> {
        self.map(None, |hash, shape| shape.facts(hash))
    }
}

#[cfg(test)]
mod tests {
    use partita_proto::access::Door;

    use super::*;

    fn identity(role: u32, token: Option<u64>) -> Identity {
        Identity {
            login: RoleId(role),
            acting: None,
            token: token.and_then(TokenId::new),
            secret_version: 0,
            org: None,
            door: Door::Postgres,
        }
    }

    fn entry(text: &str, started_ms: i64, reader: Option<Identity>) -> QueryLogEntry {
        QueryLogEntry {
            started_ms,
            database: "public".to_owned(),
            identity: reader,
            kind: "SELECT",
            text: text.to_owned(),
            milliseconds: 2.5,
            rows: 3,
            rows_scanned: 10,
            ..QueryLogEntry::default()
        }
    }

    #[test]
    fn statements_that_differ_in_literals_are_one_row() {
        let statements = Statements::default();
        let reader = Some(identity(1, None));
        for (number, time) in [(1, 20), (2, 10), (3, 30)] {
            let text = format!("SELECT a FROM t WHERE a = {number}");
            statements.note(&entry(&text, time, reader), &[]);
        }
        let failed = QueryLogEntry {
            error: Some("42703: no column".to_owned()),
            milliseconds: 7.0,
            ..entry("SELECT b FROM t", 40, reader)
        };
        statements.note(&failed, &[]);
        let mut shapes = statements.shapes();
        shapes.sort_by_key(|shape| shape.calls);
        let [failed, read] = shapes.as_slice() else { panic!("{shapes:?}") };
        assert_eq!((read.calls, read.rows_examined, read.rows_returned), (3, 30, 9));
        assert_eq!(read.text, "SELECT a FROM t WHERE a = ?");
        assert_eq!((failed.calls, failed.milliseconds), (1, 7.0));
        let times = statements
            .map(None, |_, shape| (shape.first_seen_ms, shape.last_seen_ms, shape.errors));
        assert_eq!(BTreeSet::from_iter(times), BTreeSet::from([(10, 30, 0), (40, 40, 1)]));
    }

    #[test]
    fn an_identity_sees_its_own_statements_and_a_monitor_sees_their_sum() {
        let statements = Statements::default();
        for reader in [Some(identity(1, None)), Some(identity(1, Some(7))), None] {
            statements.note(&entry("SELECT 1", 1, reader), &[]);
        }
        let calls = |reader| statements.map(reader, |_, shape| shape.calls).iter().sum::<u64>();
        assert_eq!((calls(None), statements.shapes().len()), (3, 1));
        assert_eq!(calls(Some(identity(1, None))), 1);
        assert_eq!(calls(Some(identity(1, Some(7)))), 1);
        assert_eq!(calls(Some(identity(1, Some(8)))), 0);
        assert_eq!(calls(Some(identity(2, None))), 0);
    }

    #[test]
    fn the_shape_that_was_used_least_recently_goes_first() {
        let statements = Statements::default();
        let note = |number: usize| {
            statements.note(&entry(&format!("SELECT c{number}"), 1, None), &[]);
        };
        (0..SHAPES_MAX).for_each(note);
        note(0);
        note(SHAPES_MAX);
        let shapes = statements.shapes();
        let has = |number: usize| {
            let text = format!("SELECT c{number}");
            shapes.iter().any(|shape| shape.text == text)
        };
        assert_eq!(shapes.len(), SHAPES_MAX);
        assert!(has(0) && !has(1) && has(2) && has(SHAPES_MAX));
    }

    #[test]
    fn the_age_of_rows_is_the_greatest_that_is_asked_for() {
        let (hour, day) = (Age::Within(3_600_000), Age::Within(86_400_000));
        assert_eq!(Age::Unknown.max(hour), hour);
        assert_eq!(day.max(hour), day);
        assert_eq!(hour.max(Age::Unbounded), Age::Unbounded);
        assert_eq!(Age::Unbounded.max(Age::Unknown), Age::Unbounded);
    }
}

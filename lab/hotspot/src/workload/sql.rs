//! SQL of a catalogue table, for a real cluster: its CREATE TABLE, INSERTs of its rows, and its SELECTs.
//!
//! ```text
//!   shape, law, cuts   ──▶ CREATE TABLE: columns, PRIMARY KEY, PARTITION BY
//!   an operation's key ──▶ Row (whose, when) ──▶ VALUES (ts, slot, entity, text)
//!                      └─▶ SELECT .. WHERE ..
//! ```
//!
//! | in a key | in the table |
//! |---|---|
//! | hash bucket | no column: PARTITION BY HASH |
//! | entity, record | BIGINT |
//! | time | `ts TIMESTAMP(6)`, the time index |
//! | coarse time | `slot TIMESTAMP(6)`, when it begins; `ts` is when the row arrives |
//! | time, newest first | `back BIGINT`, which counts down; `ts` beside it |
//!
//! Invariants: nothing depends on the name of a workload; a statement follows from the table, the operation and the
//! begin of the run; columns are in the order of the key, and values compare like the key's bytes, so that the
//! table is split at the same keys as the virtual one. If a column has numbers that exceed BIGINT, all of its
//! numbers are halved, which keeps their order.

use std::fmt::Write as _;

use super::design::Design;
use super::law::columns_of;
use super::part::Part;
use super::stamp::{BEGIN_US, Stamp};
use super::table::TableLoad;
use crate::number::{index, whole};
use crate::streams::Op;

/// Text of a row, repeated as needed for its size.
const TEXT: &str = "opened the page of an item, looked at it, and went on to ";
/// Seconds for which a counter's largest value is computed: longer than any run.
const COUNTED_S: f64 = 1e6;
/// Number of places over which consecutive loaded rows are distributed, so that all partitions take part.
const PLACES: usize = 64;

/// A row to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Time of arrival, microseconds since the begin.
    pub at_us: u64,
    /// Entity or record, as in the key.
    id: u64,
    /// Time, as in the key; 0 if the key has none.
    time: u64,
}

/// Form of a key's time in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lead {
    Time,
    Slot(u64),
    Back,
}

impl Lead {
    fn of(stamp: &Stamp) -> Self {
        match (stamp.descending, stamp.grain_us) {
            (true, _) => Self::Back,
            (false, 1) => Self::Time,
            (false, grain_us) => Self::Slot(grain_us),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Time => "ts",
            Self::Slot(_) => "slot",
            Self::Back => "back",
        }
    }
}

/// A table of the catalogue in SQL.
#[derive(Clone, Debug)]
pub struct SqlTable {
    name: String,
    /// Width of each key column, in bytes.
    widths: Vec<usize>,
    /// Quoted column name of the entity or record, and its position in the key.
    id: String,
    id_at: usize,
    halved: bool,
    /// Form of the time, and its position in the key; `None` for records.
    time: Option<(Lead, usize)>,
    /// Column of the text, and its repetitions.
    text: &'static str,
    repeats: usize,
    /// Clauses of CREATE TABLE after the columns: placement and options.
    placed: String,
    /// Begin of the run, in microseconds since the Unix epoch.
    begin_us: i64,
}

/// A column name, quoted if it is a keyword.
fn quoted(name: &str) -> String {
    if name == "key" { format!("\"{name}\"") } else { name.to_owned() }
}

/// Largest value of a part of a key.
fn top(part: &Part) -> u64 {
    match part {
        Part::Even(_, end) => end.saturating_sub(1),
        Part::Listed(listed) => listed.values().max().unwrap_or(0),
        Part::Stamp(_) => 0,
        Part::Sweep { items, .. } => *items,
        Part::Counter { first, per_s } | Part::Latest { first, per_s, .. } => {
            first.saturating_add(whole(per_s * COUNTED_S))
        }
    }
}

/// Largest number in the column of the entity or record.
fn largest(load: &TableLoad) -> u64 {
    if let Some(events) = &load.events {
        return events.entities.values().max().unwrap_or(0);
    }
    let parts = load.sources.iter().flat_map(|source| &source.law.parts).chain(&load.prior);
    let cuts = load.cuts.iter().filter_map(|cut| columns_of(cut, &load.shape.widths).pop());
    parts.map(top).chain(cuts).max().unwrap_or(0)
}

impl SqlTable {
    /// A table with this name, for a run that begins at this time.
    #[must_use]
    pub fn of(load: &TableLoad, name: &str, begin_us: i64) -> Self {
        let position = |name: &str| load.shape.names.iter().position(|column| column == name);
        let lead = load.events.as_ref().map(|events| Lead::of(&events.time));
        let id = load.events.as_ref().map_or(load.shape.names[0].as_str(), |events| events.entity);
        let key_bytes: usize = load.shape.widths.iter().sum();
        let room = load.row_bytes - key_bytes as f64;
        let mut table = Self {
            name: name.to_owned(),
            widths: load.shape.widths.clone(),
            id: quoted(id),
            id_at: position(id).unwrap_or(0),
            halved: largest(load) > i64::MAX.unsigned_abs(),
            time: lead.zip(position("ts")),
            text: if lead.is_some() { "event" } else { "field" },
            repeats: index(room / TEXT.len() as f64).max(1),
            placed: String::new(),
            begin_us,
        };
        let options = load.events.as_ref().map_or("", |events| events.design.options());
        table.placed = table.placed_by(load) + options;
        table
    }

    /// The placement clause.
    fn placed_by(&self, load: &TableLoad) -> String {
        let by_hash = |columns: String| {
            format!(" PARTITION BY HASH ({columns}) PARTITIONS {}", load.cuts.len() + 1)
        };
        match load.events.as_ref().map(|events| events.design) {
            Some(Design::HashAll) => return by_hash(format!("ts, {}", self.id)),
            Some(Design::HashUid) => return by_hash(self.id.clone()),
            _ => {}
        }
        let firsts =
            load.cuts.iter().filter_map(|cut| columns_of(cut, &self.widths).first().copied());
        let mut cuts: Vec<i64> = firsts.map(|first| self.first(first)).collect();
        // Halved numbers, or times with a coarse grain, may coincide.
        cuts.dedup();
        if cuts.is_empty() {
            return String::new();
        }
        let cuts: Vec<String> = cuts.into_iter().map(|cut| format!("({cut})")).collect();
        format!(" PARTITION BY RANGE ({}) SPLIT AT ({})", self.key()[0], cuts.join(", "))
    }

    /// Table name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Column of the entity that rows belong to; `None` for records.
    #[must_use]
    pub fn entity(&self) -> Option<&str> {
        self.time.map(|_| self.id.as_str())
    }

    /// Entity of a row, as stored in the table.
    #[must_use]
    pub fn entity_of(&self, row: &Row) -> i64 {
        self.number(row.id)
    }

    /// Columns of PRIMARY KEY.
    fn key(&self) -> Vec<&str> {
        match self.time {
            None => vec![&self.id],
            Some((lead, time_at)) if time_at < self.id_at => vec![lead.name(), &self.id],
            Some((lead, _)) => vec![&self.id, lead.name()],
        }
    }

    /// The CREATE TABLE statement.
    #[must_use]
    pub fn create(&self) -> String {
        let mut columns = Vec::new();
        if let Some((lead, _)) = self.time {
            columns.push("ts TIMESTAMP(6) NOT NULL".to_owned());
            match lead {
                Lead::Time => {}
                Lead::Slot(_) => columns.push("slot TIMESTAMP(6) NOT NULL".to_owned()),
                Lead::Back => columns.push("back BIGINT NOT NULL".to_owned()),
            }
        }
        columns.push(format!("{} BIGINT NOT NULL", self.id));
        columns.push(format!("{} STRING", self.text));
        if self.time.is_some() {
            columns.push("TIME INDEX (ts)".to_owned());
        }
        let (columns, key) = (columns.join(", "), self.key().join(", "));
        format!("CREATE TABLE {} ({columns}, PRIMARY KEY ({key})){}", self.name, self.placed)
    }

    /// The row that an operation writes; `None` if its key is not one of this table.
    #[must_use]
    pub fn row(&self, at_us: u64, op: &Op) -> Option<Row> {
        let columns = columns_of(&op.key, &self.widths);
        let id = *columns.get(self.id_at)?;
        let time = self.time.map_or(Some(0), |(_, position)| columns.get(position).copied())?;
        Some(Row { at_us, id, time })
    }

    /// Rows that exist before the first operation; consecutive ones are far apart in the key space.
    #[must_use]
    pub fn prior(load: &TableLoad) -> Vec<Row> {
        let ids: Vec<u64> = match &load.prior {
            Some(Part::Even(start, end)) => (*start..*end).collect(),
            Some(Part::Listed(listed)) => listed.values().collect(),
            _ => Vec::new(),
        };
        let stride = ids.len().div_ceil(PLACES);
        let order =
            (0..stride).flat_map(|offset| (0..PLACES).map(move |place| place * stride + offset));
        order.filter_map(|index| Some(Row { at_us: 0, id: *ids.get(index)?, time: 0 })).collect()
    }

    /// The INSERT statement for rows.
    #[must_use]
    pub fn insert(&self, rows: &[Row]) -> String {
        let columns = match self.time {
            None => self.id.clone(),
            Some((Lead::Time, _)) => format!("ts, {}", self.id),
            Some((lead, _)) => format!("ts, {}, {}", lead.name(), self.id),
        };
        let text = TEXT.repeat(self.repeats);
        let mut sql = format!("INSERT INTO {} ({columns}, {}) VALUES ", self.name, self.text);
        for (index, row) in rows.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let (id, number) = (self.number(row.id), row.at_us % 10_000);
            // Writing to a string cannot fail.
            let _ok = match self.time {
                None => write!(sql, "{comma}({id}, '{text}{number}')"),
                Some((lead, _)) => {
                    let (ts, first) = (self.time_of(lead, row), self.lead(lead, row.time));
                    match lead {
                        Lead::Time => write!(sql, "{comma}({ts}, {id}, '{text}{number}')"),
                        _ => write!(sql, "{comma}({ts}, {first}, {id}, '{text}{number}')"),
                    }
                }
            };
        }
        sql
    }

    /// The SELECT of an operation; `None` if its key is not one of this table, or if the table's columns cannot
    /// express it.
    ///
    /// For an entity and a time, it reads the entity's rows from that time on: a single microsecond has no row.
    /// Ranges are counted, so that the partitions' work is measured and not the client's.
    #[must_use]
    pub fn read(&self, op: &Op) -> Option<String> {
        let (name, text, id) = (&self.name, self.text, &self.id);
        if let Some(end) = &op.end {
            let (start, end) = (self.bound(&op.key)?, self.bound(end)?);
            let first = self.key()[0];
            return Some(format!(
                "SELECT count({text}) FROM {name} WHERE {first} >= {start} AND {first} < {end}"
            ));
        }
        let row = self.row(0, op)?;
        let number = self.number(row.id);
        let Some((lead, _)) = self.time else {
            return Some(format!("SELECT {text} FROM {name} WHERE {id} = {number}"));
        };
        let first = literal(lead, self.lead(lead, row.time));
        let compared = match lead {
            Lead::Time => "ts >=",
            Lead::Slot(_) => "slot =",
            Lead::Back => "back <=",
        };
        Some(format!(
            "SELECT count({text}) FROM {name} WHERE {id} = {number} AND {compared} {first}"
        ))
    }

    /// A bound on the key's first column, as an SQL literal; `None` for a bound on more columns.
    fn bound(&self, key: &[u8]) -> Option<String> {
        let whole = self.widths.first() == Some(&key.len());
        let placed_by_hash = self.id_at.min(self.time.map_or(0, |(_, position)| position)) > 0;
        if !whole || placed_by_hash {
            return None;
        }
        let first = self.first(*columns_of(key, &self.widths).first()?);
        Some(match self.time {
            Some((lead, 0)) => literal(lead, first),
            _ => first.to_string(),
        })
    }

    /// Value of a key's first column in the table.
    fn first(&self, value: u64) -> i64 {
        match self.time {
            Some((lead, 0)) => self.lead(lead, value),
            _ => self.number(value),
        }
    }

    fn number(&self, value: u64) -> i64 {
        if self.halved {
            (value >> 1).cast_signed()
        } else {
            value.min(i64::MAX.unsigned_abs()).cast_signed()
        }
    }

    /// A time of the catalogue, in microseconds since the Unix epoch, moved to this run.
    fn real(&self, us: u64) -> i64 {
        us.cast_signed().saturating_sub(BEGIN_US.cast_signed()).saturating_add(self.begin_us)
    }

    /// Value that represents the time in the key.
    fn lead(&self, lead: Lead, time: u64) -> i64 {
        match lead {
            Lead::Time => self.real(time),
            Lead::Slot(grain_us) => self.real(time.saturating_mul(grain_us)),
            Lead::Back => i64::MAX - self.real(u64::MAX - time).max(0),
        }
    }

    /// Time index of a row.
    fn time_of(&self, lead: Lead, row: &Row) -> i64 {
        match lead {
            Lead::Time => self.real(row.time),
            Lead::Slot(_) => self.begin_us.saturating_add_unsigned(row.at_us),
            Lead::Back => self.real(u64::MAX - row.time),
        }
    }
}

/// SQL literal of a value in the column that represents the time.
fn literal(lead: Lead, value: i64) -> String {
    match lead {
        Lead::Back => value.to_string(),
        Lead::Time | Lead::Slot(_) => format!("to_timestamp_micros({value})"),
    }
}

#[cfg(test)]
mod tests;

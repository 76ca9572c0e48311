//! A demonstration as data: records, designs that store them, questions, and a judge of the figures.
//!
//! ```text
//!   seed, number ── record ──▶ cells ── rows of a design ──▶ lines of COPY for each of its tables
//! ```
//!
//! Invariants: a record follows from the seed and its number alone, so every design stores the same records, however
//! many there are; a question has one statement for each design, in the same order.

use std::fmt::Write as _;

use super::figures::Measured;
use crate::civil::{SECOND_NS, spaced};
use crate::claim::Claim;
use crate::random::Random;

/// Time of the first record: 2025-01-01 00:00:00 UTC, in nanoseconds since 1970.
pub(super) const START_NS: i64 = 1_735_689_600 * SECOND_NS;
pub(super) const MILLI_NS: i64 = 1_000_000;

/// Records of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    /// Number of records.
    pub(super) rows: u64,
    pub(super) seed: u64,
}

impl Data {
    /// Random numbers of a record, independent of those of others.
    pub(super) fn random(&self, number: u64) -> Random {
        Random::new(self.seed, number)
    }
}

/// A value of a record or of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Null,
    Text(String),
    Int(i64),
    Float(f64),
    /// Nanoseconds since 1970.
    Time(i64),
}

impl Cell {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(super) fn count(number: u64) -> Self {
        Self::Int(number.cast_signed())
    }

    /// A number with one decimal.
    pub(super) fn tenths(number: u64) -> Self {
        Self::Float(float(number) / 10.0)
    }

    /// A number with two decimals.
    pub(super) fn hundredths(number: u64) -> Self {
        Self::Float(float(number) / 100.0)
    }

    /// Appends the value in COPY's text format.
    fn append(&self, line: &mut String) {
        // Writing to a string cannot fail.
        let _ok = match self {
            Self::Null => line.write_str("\\N"),
            Self::Text(text) => {
                escape(text, line);
                Ok(())
            }
            Self::Int(number) => write!(line, "{number}"),
            Self::Float(number) => write!(line, "{number}"),
            Self::Time(nanos) => line.write_str(&moment(*nanos)),
        };
    }
}

/// Appends a text with COPY's escapes.
fn escape(text: &str, line: &mut String) {
    for letter in text.chars() {
        match letter {
            '\\' => line.push_str("\\\\"),
            '\t' => line.push_str("\\t"),
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            letter => line.push(letter),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of a run fit 53 bits")]
pub(super) fn float(number: u64) -> f64 {
    number as f64
}

/// A time as in SQL, with milliseconds if that is exact.
pub(super) fn moment(nanos: i64) -> String {
    let (seconds, rest) = (nanos.div_euclid(SECOND_NS), nanos.rem_euclid(SECOND_NS));
    if rest % MILLI_NS == 0 {
        format!("{}.{:03}", spaced(seconds), rest / MILLI_NS)
    } else {
        format!("{}.{rest:09}", spaced(seconds))
    }
}

/// A number below `bound`, small ones more often than large ones: its own bound is chosen at random first.
pub(super) fn skewed(random: &mut Random, bound: u64) -> u64 {
    let inner_bound = random.below(bound) + 1;
    random.below(inner_bound)
}

/// A random id of 128 bits, as a UUID of version 4 is written.
pub(super) fn uuid(random: &mut Random) -> String {
    let mut part = |bits: u32| random.below(1 << bits);
    let (low, middle, high) = (part(32), part(16), part(12));
    let (variant, node) = (0x8000 | part(14), part(48));
    format!("{low:08x}-{middle:04x}-4{high:03x}-{variant:04x}-{node:012x}")
}

/// A row of a design.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// Position of its table in the design.
    pub(super) table: usize,
    pub(super) cells: Vec<Cell>,
}

impl Row {
    /// Row of the first table.
    pub(super) fn only(cells: Vec<Cell>) -> Vec<Self> {
        vec![Self { table: 0, cells }]
    }

    /// Appends the row as a line of COPY's text format.
    pub(super) fn append(&self, lines: &mut String) {
        for (position, cell) in self.cells.iter().enumerate() {
            if position > 0 {
                lines.push('\t');
            }
            cell.append(lines);
        }
        lines.push('\n');
    }
}

/// A table of a design.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) name: String,
    /// The CREATE TABLE statement.
    pub(super) create: String,
    /// Columns of its rows, in order.
    pub(super) columns: &'static [&'static str],
}

impl Table {
    /// A table whose CREATE TABLE statement has `{}` in place of the name.
    pub(super) fn new(name: &str, create: &str, columns: &'static [&'static str]) -> Self {
        Self { name: name.to_owned(), create: create.replacen("{}", name, 1), columns }
    }

    /// Statement that keeps splits and merges from changing the figures.
    pub(super) fn freeze(&self) -> String {
        format!(
            "ALTER TABLE {} SET ('auto_partitioning_by_load' = 'disabled', 'auto_partitioning_by_size' = 'disabled')",
            self.name
        )
    }
}

/// Advice of the document about a design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// The document advises against it.
    Against,
    /// Neither, or a baseline.
    Neutral,
    /// The document recommends it.
    For,
}

/// A figure that a query gives after the load.
#[derive(Clone, Debug)]
pub(super) struct Fact {
    pub(super) name: &'static str,
    /// A query with one number.
    pub(super) sql: String,
}

/// A way to store the records.
#[derive(Clone, Debug)]
pub(super) struct Design {
    pub(super) name: String,
    /// Description in a few words.
    pub(super) description: &'static str,
    pub(super) advice: Advice,
    pub(super) tables: Vec<Table>,
    /// Rows that a record becomes.
    pub(super) rows: fn(Vec<Cell>) -> Vec<Row>,
    pub(super) facts: Vec<Fact>,
}

/// Statement of a question for one design.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) sql: String,
    /// True if the answer must be that of the other such designs.
    pub(super) alike: bool,
}

/// A question to all designs.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) name: String,
    pub(super) asks: Vec<Ask>,
}

impl Question {
    /// A question with the same answer under all designs.
    pub(super) fn alike(name: &str, sql: impl IntoIterator<Item = String>) -> Self {
        let asks = sql.into_iter().map(|sql| Ask { sql, alike: true });
        Self { name: name.to_owned(), asks: asks.collect() }
    }

    /// A question whose answer depends on the design.
    pub(super) fn unlike(name: &str, sql: impl IntoIterator<Item = String>) -> Self {
        let mut question = Self::alike(name, sql);
        question.asks.iter_mut().for_each(|ask| ask.alike = false);
        question
    }

    /// A statement in which `{}` stands for the table, for each of these tables.
    pub(super) fn of_tables(name: &str, tables: &[&str], sql: &str) -> Self {
        Self::alike(name, tables.iter().map(|table| sql.replace("{}", table)))
    }

    /// Lets the answer of the design at this position differ.
    pub(super) fn except(mut self, position: usize) -> Self {
        if let Some(ask) = self.asks.get_mut(position) {
            ask.alike = false;
        }
        self
    }
}

/// A demonstration of the effect of a design.
pub(super) struct Demonstration {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// The document whose advice is tried.
    pub(super) document: &'static str,
    /// Claims of the document, in our words.
    pub(super) says: &'static [&'static str],
    /// Default number of records.
    pub(super) rows: u64,
    /// Parts that the records are loaded in; each ends with a flush.
    pub(super) parts: u64,
    /// True if files are merged before questions are asked.
    pub(super) compacts: bool,
    /// The record of a number.
    pub(super) record: fn(&Data, u64) -> Vec<Cell>,
    pub(super) designs: fn() -> Vec<Design>,
    pub(super) questions: fn(&Data) -> Vec<Question>,
    pub(super) judge: fn(&Data, &Measured) -> Vec<Claim>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_lines_of_copy() {
        let cells = vec![
            Cell::text("a\tb\\c"),
            Cell::Null,
            Cell::Int(-3),
            Cell::tenths(721),
            Cell::Time(START_NS + 5 * MILLI_NS),
            Cell::Time(START_NS + 7),
        ];
        let mut lines = String::new();
        Row { table: 0, cells }.append(&mut lines);
        assert_eq!(
            lines,
            "a\\tb\\\\c\t\\N\t-3\t72.1\t2025-01-01 00:00:00.005\t2025-01-01 00:00:00.000000007\n"
        );
    }

    #[test]
    fn ids_look_like_uuids_and_are_not_repeated() {
        let data = Data { rows: 0, seed: 7 };
        let ids: Vec<String> = (0..1_000).map(|number| uuid(&mut data.random(number))).collect();
        let distinct: std::collections::BTreeSet<&String> = ids.iter().collect();
        assert_eq!(distinct.len(), 1_000);
        for id in &ids {
            let lengths: Vec<usize> = id.split('-').map(str::len).collect();
            assert_eq!(lengths, [8, 4, 4, 4, 12], "{id}");
            assert_eq!(id.as_bytes()[14], b'4', "{id}");
        }
    }

    #[test]
    fn small_numbers_are_more_frequent() {
        let mut random = Random::new(1, 1);
        let numbers: Vec<u64> = (0..10_000).map(|_| skewed(&mut random, 100)).collect();
        let below_ten = numbers.iter().filter(|number| **number < 10).count();
        assert!(numbers.iter().all(|number| *number < 100));
        assert!((2_500..4_200).contains(&below_ten), "{below_ten}");
    }

    #[test]
    fn a_design_may_be_excepted() {
        let question =
            Question::of_tables("rows", &["a", "b"], "SELECT count(*) FROM {}").except(1);
        let asks: Vec<(&str, bool)> =
            question.asks.iter().map(|ask| (ask.sql.as_str(), ask.alike)).collect();
        assert_eq!(asks, [("SELECT count(*) FROM a", true), ("SELECT count(*) FROM b", false)]);
    }
}

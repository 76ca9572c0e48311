//! Reads a request's lines into one batch per measurement, in one pass over its bytes.
//!
//! The fast path allocates nothing for a row: a series (measurement and tags) that was seen before is
//! found by its bytes, and a line's fields are expected to be those of the line before in the same
//! order. Lines for which the open reading fails are read again with their end known; only what fails
//! then is rejected.
//!
//! Differences from the published parser, all towards what InfluxDB's servers do:
//! - lines may end in `\r\n`, and in spaces without a timestamp;
//! - a comment ends with its line, whatever quotes and backslashes it has;
//! - a comma behind the last field is rejected, also if there is only one field;
//! - floats that overflow are rejected rather than stored as infinite;
//! - what [`super::check`] lists is rejected.

use std::borrow::Cow;
use std::hash::BuildHasher;

use arrow::error::ArrowError;
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use memchr::{memchr, memchr_iter};
use partita_proto::catalog::Catalog;
use partita_proto::schema::COLUMNS_MAX;

use super::check::{self, Limits};
use super::line::{FieldScan, SeriesAt, check_line, store_fields, store_series};
use super::precision::Precision;
use super::reject::{Kind, Rejection, original};
use super::scan::{self, Malformed, Reading};
use super::table::{Rows, TableRows};

/// Rejected lines that are reported one by one; the others are counted.
pub const REJECTIONS_MAX: usize = 100;
/// The longest series. Keys may have 64 KiB; encoding adds a 32nd and a few bytes for each tag.
pub const SERIES_BYTES_MAX: usize = 48 * 1024;

/// How a request's lines are to be read.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions<'a> {
    /// What tables there are.
    pub catalog: &'a Catalog,
    /// The database that the lines are for.
    pub database: &'a str,
    /// The unit of the timestamps.
    pub precision: Precision,
    /// The server's time, for lines without one, in nanoseconds.
    pub now: i64,
    /// What new tables call their time index.
    pub time_column: &'a str,
    /// Columns that a table may have, the time included.
    pub columns_max: usize,
    /// Bytes that a string value may have.
    pub string_bytes_max: usize,
}

/// What was read.
#[derive(Clone, Debug)]
pub struct Lines {
    /// The rows, by measurement, in the order of their first lines.
    pub tables: Vec<TableRows>,
    /// How many lines were taken.
    pub accepted: usize,
    /// How many were not.
    pub rejected: usize,
    /// The first [`REJECTIONS_MAX`] of those.
    pub rejections: Vec<Rejection>,
}

/// Reads lines.
///
/// # Errors
/// Only when Arrow refuses the columns, a string column of more than 2 GiB say.
pub fn read(text: &str, options: &ReadOptions<'_>) -> Result<Lines, ArrowError> {
    let mut reader = Reader::new(text, options);
    let mut at = 0;
    while at < text.len() {
        at = match reader.line(at, Reading::Open, text) {
            Ok(next) => next,
            Err(_) => reader.closed_line(at),
        };
    }
    reader.finish()
}

enum Refused {
    Malformed(Malformed),
    Schema(Kind, String),
}

impl From<Malformed> for Refused {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl From<check::Refusal> for Refused {
    fn from((kind, message): check::Refusal) -> Self {
        Self::Schema(kind, message)
    }
}

/// Where a rejected line is, and why.
struct Rejected {
    from: usize,
    to: usize,
    kind: Kind,
    message: String,
}

/// A series that was seen. Its hash is kept: when many are new, hashing them twice shows.
struct Series<'a> {
    hash: u64,
    raw: &'a str,
    at: SeriesAt,
}

struct Reader<'a> {
    text: &'a str,
    options: &'a ReadOptions<'a>,
    limits: Limits<'a>,
    now: i64,
    tables: Vec<Rows<'a>>,
    table_by_name: HashMap<Cow<'a, str>, usize>,
    series: HashTable<Series<'a>>,
    hasher: DefaultHashBuilder,
    last: Option<(&'a str, SeriesAt)>,
    /// Tags of the line's series, if that is new.
    tags: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Whether these were seen to have the names of the last new series' tags, in its order.
    tags_expected: bool,
    fields: Vec<FieldScan<'a>>,
    scratch: String,
    /// Counts readings of lines, so that columns can tell by which one they were named last.
    reading: u64,
    accepted: usize,
    rejected: usize,
    rejections: Vec<Rejected>,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str, options: &'a ReadOptions<'a>) -> Self {
        Self {
            text,
            options,
            limits: Limits {
                time_column: options.time_column,
                columns_max: options.columns_max.min(COLUMNS_MAX),
                string_bytes_max: options.string_bytes_max,
            },
            now: options.precision.truncate(options.now),
            tables: Vec::new(),
            table_by_name: HashMap::new(),
            series: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            last: None,
            tags: Vec::new(),
            tags_expected: false,
            fields: Vec::new(),
            scratch: String::new(),
            reading: 0,
            accepted: 0,
            rejected: 0,
            rejections: Vec::new(),
        }
    }

    /// Reads the line, comment or blank lines at `at` with their end known. Returns where the next
    /// line begins.
    fn closed_line(&mut self, at: usize) -> usize {
        let bytes = self.text.as_bytes();
        let start = scan::skip_blank(bytes, at, bytes.len());
        if start == bytes.len() {
            return start;
        }
        if bytes[start] == b'#' {
            return memchr(b'\n', &bytes[start..]).map_or(bytes.len(), |end| start + end + 1);
        }
        // Blank lines may have been skipped; leading spaces of this one count when its end is sought.
        let line = bytes[at..start].iter().rposition(|byte| *byte == b'\n');
        let newline = scan::line_end(bytes, line.map_or(at, |line| at + line + 1));
        let end = if bytes[start..newline].ends_with(b"\r") { newline - 1 } else { newline };
        if end > start {
            let text = &self.text[..end];
            if let Err(refused) = self.line(start, Reading::Closed, text) {
                self.reject(start, end, refused);
            }
        }
        (newline + 1).min(bytes.len())
    }

    fn reject(&mut self, from: usize, to: usize, refused: Refused) {
        self.rejected += 1;
        if self.rejections.len() >= REJECTIONS_MAX {
            return;
        }
        let (kind, message) = match refused {
            Refused::Malformed(malformed) => (Kind::Syntax, malformed.message(&self.text[..to])),
            Refused::Schema(kind, message) => (kind, message),
        };
        self.rejections.push(Rejected { from, to, kind, message });
    }

    /// Reads the line at `at` of `text` and stores it if nothing is wrong with it. Returns where the
    /// next line begins.
    fn line(&mut self, at: usize, reading: Reading, text: &'a str) -> Result<usize, Refused> {
        self.reading += 1;
        let bytes = text.as_bytes();
        if matches!(bytes[at], b' ' | b'\t' | b'\n' | b'\r' | b'#') {
            return Err(Malformed::Odd.into());
        }
        let known = match self.last {
            // A series never ends in a backslash, so a space behind its bytes ends it.
            Some((raw, at_series))
                if bytes[at..].starts_with(raw.as_bytes())
                    && bytes.get(at + raw.len()) == Some(&b' ') =>
            {
                Some((raw, at_series))
            }
            _ => None,
        };
        let (raw, hash, known) = match known {
            Some((raw, at_series)) => (raw, 0, Some(at_series)),
            None => {
                let end = scan::series_end(bytes, at, reading)?;
                let raw = &text[at..end];
                let hash = self.hasher.hash_one(raw);
                let known = self.series.find(hash, |series| series.raw == raw);
                (raw, hash, known.map(|series| series.at))
            }
        };
        self.tags.clear();
        self.tags_expected = false;
        let mut new_name = None;
        let table = match known {
            Some(known) => Some(known.table),
            None => {
                let name = self.read_series(raw)?;
                let table = self.table_by_name.get(&name).copied();
                new_name = Some(name);
                table
            }
        };
        let mut fields_at = at + raw.len();
        while bytes.get(fields_at) == Some(&b' ') {
            fields_at += 1;
        }
        let (fields_end, expected) = self.read_fields(text, fields_at, reading, table)?;
        let (timestamp, next) = scan::tail(text, fields_end, reading)?;
        let time = match timestamp {
            None => self.now,
            Some(ticks) => self.options.precision.scale(ticks).ok_or_else(|| {
                Refused::Schema(
                    Kind::Syntax,
                    format!("timestamp {ticks} is out of range at this precision"),
                )
            })?,
        };
        let series = self.store(table, known, new_name, (raw, hash), expected, time, at)?;
        self.last = Some((raw, series));
        self.accepted += 1;
        Ok(next)
    }

    /// Reads measurement and tags; leaves the tags in `self.tags`.
    fn read_series(&mut self, raw: &'a str) -> Result<Cow<'a, str>, Refused> {
        if raw.len() > SERIES_BYTES_MAX {
            return Err(Refused::Schema(
                Kind::Schema,
                format!(
                    "measurement and tags of {} bytes exceed the limit of {SERIES_BYTES_MAX}",
                    raw.len()
                ),
            ));
        }
        let (name, mut next) = scan::measurement(raw)?;
        // The names of a series are expected to be those of the new one before it.
        let rows = self.last.and_then(|(_, last)| self.tables.get(last.table));
        let mut all = rows.is_some_and(|rows| rows.name == name);
        let plain = next.is_some() && scan::is_plain(raw);
        while let Some(at) = next {
            let expected = rows.and_then(|rows| rows.expected_tag(self.tags.len()));
            let predicted = expected.filter(|name| {
                raw.as_bytes()[at..].starts_with(name.as_bytes())
                    && raw.as_bytes().get(at + name.len()) == Some(&b'=')
            });
            let (tag, behind) = match predicted {
                Some(name) => {
                    let name_end = at + name.len();
                    let (value, behind) = match plain {
                        true => scan::plain_tag_value(raw, name_end + 1)?,
                        false => scan::tag_value(raw, name_end + 1)?,
                    };
                    ((Cow::Borrowed(&raw[at..name_end]), value), behind)
                }
                None => {
                    all = false;
                    scan::tag(raw, at)?
                }
            };
            self.tags.push(tag);
            next = behind;
        }
        self.tags_expected = all
            && rows.is_some_and(|rows| {
                !self.tags.is_empty() && self.tags.len() == rows.tag_layout.len()
            });
        Ok(name)
    }

    /// Reads the fields at `at` into `self.fields`. Returns where they end, and whether they are
    /// those of the measurement's line before.
    fn read_fields(
        &mut self,
        text: &'a str,
        at: usize,
        reading: Reading,
        table: Option<usize>,
    ) -> Result<(usize, bool), Refused> {
        let bytes = text.as_bytes();
        let rows = table.map(|table| &self.tables[table]);
        self.fields.clear();
        let (mut at, mut expected) = (at, rows.is_some());
        loop {
            let position = self.fields.len();
            let predicted = rows.and_then(|rows| {
                let index = *rows.layout.get(position)?;
                let column = &rows.fields[index];
                let behind = at + column.raw.len();
                (column.predictable
                    && bytes[at..].starts_with(column.raw.as_bytes())
                    && bytes.get(behind) == Some(&b'='))
                .then_some((index, behind))
            });
            let (column, name, key_end) = match predicted {
                Some((index, key_end)) => (Some(index), Cow::Borrowed(""), key_end),
                None => {
                    expected = false;
                    let (key_end, escaped) = scan::field_key(text, at, reading, position == 0)?;
                    let name = scan::field_name(&text[at..key_end], escaped)?;
                    let column = rows.and_then(|rows| rows.field_by_name.get(&name).copied());
                    (column, name, key_end)
                }
            };
            // More fields than a table can have columns: no need to read on.
            if position >= COLUMNS_MAX {
                check::check_column_count(
                    &Rows::new(Cow::Borrowed(""), None),
                    &self.limits,
                    position,
                )?;
            }
            let (value, value_end) = scan::value(text, key_end + 1)?;
            let raw = &text[at..key_end];
            self.fields.push(FieldScan { column, name, raw, value, table_type: None });
            at = value_end;
            if bytes.get(at) != Some(&b',') {
                return Ok((at, expected));
            }
            at += 1;
        }
    }

    /// Checks the line that was read, and stores it.
    #[expect(clippy::too_many_arguments, reason = "the parts of one line")]
    fn store(
        &mut self,
        table: Option<usize>,
        known: Option<SeriesAt>,
        new_name: Option<Cow<'a, str>>,
        (raw, hash): (&'a str, u64),
        expected: bool,
        time: i64,
        start: usize,
    ) -> Result<SeriesAt, Refused> {
        let mut candidate = None;
        let rows = match (table, &new_name) {
            (Some(table), _) => &mut self.tables[table],
            (None, name) => {
                let name = name.clone().unwrap_or_default();
                let existing = self.options.catalog.table(self.options.database, &name).cloned();
                let rows = Rows::new(name, existing);
                check::check_table(&rows)?;
                candidate.insert(rows)
            }
        };
        check_line(
            rows,
            &self.limits,
            &mut self.fields,
            (&self.tags, self.tags_expected),
            known,
            expected,
            self.reading,
        )?;

        // Nothing can fail from here on.
        let table = match (table, candidate) {
            (Some(table), _) => table,
            (None, rows) => {
                self.tables.extend(rows);
                let table = self.tables.len() - 1;
                self.table_by_name.insert(self.tables[table].name.clone(), table);
                table
            }
        };
        let rows = &mut self.tables[table];
        let series = match known {
            Some(known) => known,
            None => {
                let series = store_series(rows, &mut self.tags, self.tags_expected);
                let at = SeriesAt { table, series };
                self.series.insert_unique(hash, Series { hash, raw, at }, |series| series.hash);
                at
            }
        };
        store_fields(rows, &mut self.fields, expected, &mut self.scratch);
        if rows.times.is_empty() {
            rows.first_start = start;
        }
        rows.series.push(series.series);
        rows.times.push(time);
        Ok(series)
    }

    fn finish(self) -> Result<Lines, ArrowError> {
        let bytes = self.text.as_bytes();
        let mut lines = LineCount { bytes, at: 0, line: 1 };
        let rejections = self.rejections.into_iter().map(|rejected| Rejection {
            line: lines.number(rejected.from),
            kind: rejected.kind,
            message: rejected.message,
            original: original(&self.text[rejected.from..rejected.to]),
        });
        let rejections = rejections.collect();
        let mut lines = LineCount { bytes, at: 0, line: 1 };
        let mut tables = Vec::with_capacity(self.tables.len());
        // Tables are in the order of their first lines, so that counting goes forward.
        for rows in self.tables {
            let start = rows.first_start;
            let end = memchr(b'\n', &bytes[start..]).map_or(bytes.len(), |end| start + end);
            let mut rows = rows.finish(self.options.time_column)?;
            rows.first_line = lines.number(start);
            rows.first_original = original(&self.text[start..end]);
            tables.push(rows);
        }
        Ok(Lines { tables, accepted: self.accepted, rejected: self.rejected, rejections })
    }
}

/// Turns positions into line numbers; positions must ascend.
struct LineCount<'a> {
    bytes: &'a [u8],
    at: usize,
    line: usize,
}

impl LineCount<'_> {
    fn number(&mut self, position: usize) -> usize {
        self.line += memchr_iter(b'\n', &self.bytes[self.at..position]).count();
        self.at = position;
        self.line
    }
}

//! Parses a request's lines into one batch per measurement, in one pass over its bytes.
//!
//! The fast path allocates nothing for a row: a known series (measurement and tags) is found by its bytes, and the
//! fields of a line are predicted to be those of the previous line in the same order. Lines that fail the open reading
//! are read again with their end known; only those that fail then are rejected.
//!
//! Differences from the published parser, all in favour of the behaviour of InfluxDB's servers:
//! - lines may end in `\r\n`, and in spaces without a timestamp;
//! - a comment ends with its line, whatever quotes and backslashes it has;
//! - a comma after the last field is rejected, also if there is only one field;
//! - floats that overflow are rejected rather than stored as infinite;
//! - the checks of [`super::check`] apply.

use std::borrow::Cow;
use std::hash::BuildHasher;

use arrow::error::ArrowError;
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use memchr::{memchr, memchr_iter};
use partita_proto::catalog::{Catalog, Table};
use partita_proto::retention::{oldest_ns, table_ttl};
use partita_proto::schema::COLUMNS_MAX;

use super::check::{self, Limits};
use super::line::{FieldScan, SeriesAt, check_line, store_fields, store_series};
use super::precision::Precision;
use super::reject::{Kind, Rejection, original};
use super::scan::{self, Malformed, Reading};
use super::table::{Rows, TableRows};

/// Maximum number of rejected lines that are reported one by one; further ones are only counted.
pub const REJECTIONS_MAX: usize = 100;
/// Maximum bytes of a series. Keys may have 64 KiB; encoding adds a 32nd, and a few bytes for each tag.
pub const SERIES_BYTES_MAX: usize = 48 * 1024;

/// Options for parsing a request's lines.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions<'a> {
    /// The existing tables.
    pub catalog: &'a Catalog,
    /// The database of the lines.
    pub database: &'a str,
    /// The unit of the timestamps.
    pub precision: Precision,
    /// The server's time in nanoseconds, for lines without a timestamp.
    pub now: i64,
    /// Name of the time index in new tables.
    pub time_column: &'a str,
    /// Maximum columns of a table, the time included.
    pub columns_max: usize,
    /// Maximum bytes of a string value.
    pub string_bytes_max: usize,
}

/// The result of parsing a request.
#[derive(Clone, Debug)]
pub struct Lines {
    /// The rows by measurement, in the order of their first lines.
    pub tables: Vec<TableRows>,
    /// Number of accepted lines.
    pub accepted: usize,
    /// Number of rejected lines.
    pub rejected: usize,
    /// The first [`REJECTIONS_MAX`] rejections.
    pub rejections: Vec<Rejection>,
}

/// Parses lines.
///
/// # Errors
/// Only when Arrow refuses the columns, such as a string column of more than 2 GiB.
pub fn read(text: &str, options: &ReadOptions<'_>) -> Result<Lines, ArrowError> {
    let mut reader = Reader::new(text, options);
    let mut position = 0;
    while position < text.len() {
        position = match reader.line(position, Reading::Open, text) {
            Ok(next) => next,
            Err(_) => reader.closed_line(position),
        };
    }
    reader.finish()
}

/// The oldest time that lines of a table may have, in nanoseconds; `None`: a table that does not exist yet.
fn oldest(options: &ReadOptions<'_>, table: Option<&Table>) -> i64 {
    let database = options.catalog.databases.get(options.database);
    let schema = table.map(|table| table.schema.as_ref());
    oldest_ns(options.now, table_ttl(database.and_then(|database| database.ttl), schema))
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

/// Position of a rejected line, and the reason.
struct Rejected {
    from: usize,
    to: usize,
    kind: Kind,
    message: String,
}

/// A known series. Its hash is stored, because with many new series it is noticeable to hash them twice.
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
    /// True if these are known to have the names of the last new series' tags, in its order.
    tags_expected: bool,
    fields: Vec<FieldScan<'a>>,
    scratch: String,
    /// Counts readings of lines, so that columns can tell which one named them last.
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
                explicit: options
                    .catalog
                    .databases
                    .get(options.database)
                    .is_some_and(|database| database.explicit),
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

    /// Reads the line, comment or blank lines at `begin`, with the end known. Returns the start of the next line.
    fn closed_line(&mut self, begin: usize) -> usize {
        let bytes = self.text.as_bytes();
        let start = scan::skip_blank(bytes, begin, bytes.len());
        if start == bytes.len() {
            return start;
        }
        if bytes[start] == b'#' {
            return memchr(b'\n', &bytes[start..]).map_or(bytes.len(), |end| start + end + 1);
        }
        // Blank lines may have been skipped; leading spaces of this line count in the search for its end.
        let line = bytes[begin..start].iter().rposition(|byte| *byte == b'\n');
        let newline = scan::line_end(bytes, line.map_or(begin, |line| begin + line + 1));
        let end = if bytes[start..newline].ends_with(b"\r") { newline - 1 } else { newline };
        if end > start {
            let text = &self.text[..end];
            if let Err(refused) = self.line(start, Reading::Closed, text) {
                self.reject(start, end, refused);
            }
        }
        (newline + 1).min(bytes.len())
    }

    fn reject(&mut self, start: usize, end: usize, refused: Refused) {
        self.rejected += 1;
        if self.rejections.len() >= REJECTIONS_MAX {
            return;
        }
        let (kind, message) = match refused {
            Refused::Malformed(malformed) => (Kind::Syntax, malformed.message(&self.text[..end])),
            Refused::Schema(kind, message) => (kind, message),
        };
        self.rejections.push(Rejected { from: start, to: end, kind, message });
    }

    /// Reads the line of `text` at `start`, and stores it unless it has an error. Returns the start of the next line.
    fn line(&mut self, start: usize, reading: Reading, text: &'a str) -> Result<usize, Refused> {
        self.reading += 1;
        let bytes = text.as_bytes();
        if matches!(bytes[start], b' ' | b'\t' | b'\n' | b'\r' | b'#') {
            return Err(Malformed::Odd.into());
        }
        let last = match self.last {
            // A series never ends in a backslash, so a space after its bytes ends it.
            Some((raw, at_series))
                if bytes[start..].starts_with(raw.as_bytes())
                    && bytes.get(start + raw.len()) == Some(&b' ') =>
            {
                Some((raw, at_series))
            }
            _ => None,
        };
        let (raw, hash, known_series) = match last {
            Some((raw, at_series)) => (raw, 0, Some(at_series)),
            None => {
                let end = scan::series_end(bytes, start, reading)?;
                let raw = &text[start..end];
                let hash = self.hasher.hash_one(raw);
                let entry = self.series.find(hash, |series| series.raw == raw);
                (raw, hash, entry.map(|series| series.at))
            }
        };
        self.tags.clear();
        self.tags_expected = false;
        let mut new_name = None;
        let table = match known_series {
            Some(series) => Some(series.table),
            None => {
                let name = self.read_series(raw)?;
                let table = self.table_by_name.get(&name).copied();
                new_name = Some(name);
                table
            }
        };
        let mut fields_at = start + raw.len();
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
        let series =
            self.store(table, known_series, new_name, (raw, hash), expected, time, start)?;
        self.last = Some((raw, series));
        self.accepted += 1;
        Ok(next)
    }

    /// Reads measurement and tags; stores the tags in `self.tags`.
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
        // The names of the tags are predicted to be those of the previous new series.
        let rows = self.last.and_then(|(_, last)| self.tables.get(last.table));
        let mut all_predicted = rows.is_some_and(|rows| rows.name == name);
        let plain = next.is_some() && scan::is_plain(raw);
        while let Some(start) = next {
            let expected = rows.and_then(|rows| rows.expected_tag(self.tags.len()));
            let predicted = expected.filter(|name| {
                raw.as_bytes()[start..].starts_with(name.as_bytes())
                    && raw.as_bytes().get(start + name.len()) == Some(&b'=')
            });
            let (tag, following) = match predicted {
                Some(name) => {
                    let name_end = start + name.len();
                    let (value, following) = match plain {
                        true => scan::plain_tag_value(raw, name_end + 1)?,
                        false => scan::tag_value(raw, name_end + 1)?,
                    };
                    ((Cow::Borrowed(&raw[start..name_end]), value), following)
                }
                None => {
                    all_predicted = false;
                    scan::tag(raw, start)?
                }
            };
            self.tags.push(tag);
            next = following;
        }
        self.tags_expected = all_predicted
            && rows.is_some_and(|rows| {
                !self.tags.is_empty() && self.tags.len() == rows.tag_layout.len()
            });
        Ok(name)
    }

    /// Reads the fields at `start` into `self.fields`. Returns their end, and whether they are those of the
    /// measurement's previous line.
    fn read_fields(
        &mut self,
        text: &'a str,
        start: usize,
        reading: Reading,
        table: Option<usize>,
    ) -> Result<(usize, bool), Refused> {
        let bytes = text.as_bytes();
        let rows = table.map(|table| &self.tables[table]);
        self.fields.clear();
        let (mut key_start, mut expected) = (start, rows.is_some());
        loop {
            let position = self.fields.len();
            let predicted = rows.and_then(|rows| {
                let index = *rows.layout.get(position)?;
                let column = &rows.fields[index];
                let key_end = key_start + column.raw.len();
                (column.predictable
                    && bytes[key_start..].starts_with(column.raw.as_bytes())
                    && bytes.get(key_end) == Some(&b'='))
                .then_some((index, key_end))
            });
            let (column, name, key_end) = match predicted {
                Some((index, key_end)) => (Some(index), Cow::Borrowed(""), key_end),
                None => {
                    expected = false;
                    let (key_end, escaped) =
                        scan::field_key(text, key_start, reading, position == 0)?;
                    let name = scan::field_name(&text[key_start..key_end], escaped)?;
                    let column = rows.and_then(|rows| rows.field_by_name.get(&name).copied());
                    (column, name, key_end)
                }
            };
            // More fields than a table can have columns: reading on is pointless.
            if position >= COLUMNS_MAX {
                check::check_column_count(
                    &Rows::new(Cow::Borrowed(""), None),
                    &self.limits,
                    position,
                )?;
            }
            let (value, value_end) = scan::value(text, key_end + 1)?;
            let raw = &text[key_start..key_end];
            self.fields.push(FieldScan { column, name, raw, value, table_type: None });
            if bytes.get(value_end) != Some(&b',') {
                return Ok((value_end, expected));
            }
            key_start = value_end + 1;
        }
    }

    /// Checks the current line, and stores it.
    #[expect(clippy::too_many_arguments, reason = "the parts of one line")]
    fn store(
        &mut self,
        table: Option<usize>,
        known_series: Option<SeriesAt>,
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
                let mut rows = Rows::new(name, existing);
                rows.oldest = oldest(self.options, rows.table.as_deref());
                check::check_table(&rows, &self.limits)?;
                candidate.insert(rows)
            }
        };
        check::check_time(rows, time)?;
        check_line(
            rows,
            &self.limits,
            &mut self.fields,
            (&self.tags, self.tags_expected),
            known_series,
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
        let series = match known_series {
            Some(series) => series,
            None => {
                let series = store_series(rows, &mut self.tags, self.tags_expected);
                let new_series = SeriesAt { table, series };
                self.series.insert_unique(hash, Series { hash, raw, at: new_series }, |series| {
                    series.hash
                });
                new_series
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

//! Encoded rows in the formats of servers.
//!
//! | format | a row |
//! |---|---|
//! | line protocol | `cpu,hostname=host_0,... usage_user=58i,... 1451606400000000000` |
//! | COPY text | tags, time, fields between tabs; ClickHouse reads it as TabSeparated |
//! | CSV | the same between commas |
//! | COPY binary | PostgreSQL's binary format, times in microseconds since 2000 |
//! | Arrow | a record batch: [`arrow`] |
//!
//! Columns are in the order of [`columns`]. The common beginning of a host's rows is encoded once.

pub mod arrow;

use crate::civil::{SECOND_NS, spaced};
use crate::cpu::{FIELDS, Host, Rows, TABLE, TAGS, TIME};

/// Header of COPY's binary format: signature, flags, no extension.
pub const BINARY_HEAD: [u8; 19] = *b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// Trailer of COPY's binary format: a row of -1 columns.
pub const BINARY_END: [u8; 2] = [0xff, 0xff];
/// Microseconds from 1970 to PostgreSQL's epoch, 2000.
pub const EPOCH_2000_US: i64 = 946_684_800_000_000;
/// Number of columns in a row of COPY's binary format.
const BINARY_COLUMNS: i16 = 21;

/// Format of encoded rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// InfluxDB's line protocol, times in nanoseconds.
    LineProtocol,
    /// PostgreSQL's COPY, text; ClickHouse's TabSeparated too.
    CopyText,
    /// PostgreSQL's binary COPY, without header and trailer.
    CopyBinary,
    /// Comma-separated values.
    Csv,
}

/// Names of all columns, in the order of formats without names.
pub fn columns() -> impl Iterator<Item = &'static str> {
    TAGS.into_iter().chain([TIME]).chain(FIELDS)
}

/// Encodes rows of given hosts.
pub struct Encoder {
    format: Format,
    /// Encoded beginning of each host's rows.
    heads: Vec<Box<[u8]>>,
    /// Text before each field's value, in formats with names.
    labels: [String; 10],
    /// 0..=100 as decimal digits: all possible values.
    digits: Vec<String>,
    /// The last encoded time: consecutive rows have the same time.
    time: (i64, Vec<u8>),
}

impl Encoder {
    /// An encoder for rows of these hosts.
    pub fn new(format: Format, hosts: &[Host]) -> Self {
        let label = |name: &str| match format {
            Format::LineProtocol => format!("{name}="),
            Format::CopyText | Format::CopyBinary | Format::Csv => String::new(),
        };
        Self {
            format,
            heads: hosts.iter().map(|host| head(format, host)).collect(),
            labels: FIELDS.map(label),
            digits: (0..=100).map(|value: u8| value.to_string()).collect(),
            time: (i64::MIN, Vec::new()),
        }
    }

    /// Appends rows. For COPY's binary format, neither header nor trailer is added here: rows of several calls make
    /// one file.
    pub fn append(&mut self, rows: &Rows, buffer: &mut Vec<u8>) {
        for row in 0..rows.len() {
            buffer.extend_from_slice(&self.heads[rows.hosts[row] as usize]);
            if self.time.0 != rows.times[row] {
                self.set_time(rows.times[row]);
            }
            match self.format {
                Format::LineProtocol => self.line(rows, row, buffer),
                Format::CopyText => self.separated(rows, row, b'\t', buffer),
                Format::Csv => self.separated(rows, row, b',', buffer),
                Format::CopyBinary => self.binary(rows, row, buffer),
            }
        }
    }

    fn set_time(&mut self, time_ns: i64) {
        self.time.0 = time_ns;
        self.time.1 = match self.format {
            Format::LineProtocol => time_ns.to_string().into_bytes(),
            Format::CopyText | Format::Csv => spaced(time_ns.div_euclid(SECOND_NS)).into_bytes(),
            Format::CopyBinary => {
                let micros = time_ns.div_euclid(1_000) - EPOCH_2000_US;
                let mut value = 8_i32.to_be_bytes().to_vec();
                value.extend_from_slice(&micros.to_be_bytes());
                value
            }
        };
    }

    fn line(&self, rows: &Rows, row: usize, buffer: &mut Vec<u8>) {
        for (field, (label, column)) in self.labels.iter().zip(&rows.fields).enumerate() {
            if field > 0 {
                buffer.push(b',');
            }
            buffer.extend_from_slice(label.as_bytes());
            buffer.extend_from_slice(self.digits_of(column[row]).as_bytes());
            buffer.push(b'i');
        }
        buffer.push(b' ');
        buffer.extend_from_slice(&self.time.1);
        buffer.push(b'\n');
    }

    fn separated(&self, rows: &Rows, row: usize, separator: u8, buffer: &mut Vec<u8>) {
        buffer.extend_from_slice(&self.time.1);
        for column in &rows.fields {
            buffer.push(separator);
            buffer.extend_from_slice(self.digits_of(column[row]).as_bytes());
        }
        buffer.push(b'\n');
    }

    fn binary(&self, rows: &Rows, row: usize, buffer: &mut Vec<u8>) {
        buffer.extend_from_slice(&self.time.1);
        for column in &rows.fields {
            buffer.extend_from_slice(&8_i32.to_be_bytes());
            buffer.extend_from_slice(&column[row].to_be_bytes());
        }
    }

    fn digits_of(&self, value: i64) -> &str {
        let index = usize::try_from(value).unwrap_or(usize::MAX);
        self.digits.get(index).expect("a field is in 0..=100")
    }
}

/// Beginning of a host's rows: its tags, up to the time or the fields.
fn head(format: Format, host: &Host) -> Box<[u8]> {
    let tags = host.tags();
    let head = match format {
        Format::LineProtocol => {
            let mut line = TABLE.to_owned();
            for (name, value) in TAGS.iter().zip(&tags) {
                line.push_str(&format!(",{name}={value}"));
            }
            line.push(' ');
            line.into_bytes()
        }
        Format::CopyText => (tags.join("\t") + "\t").into_bytes(),
        Format::Csv => (tags.join(",") + ",").into_bytes(),
        Format::CopyBinary => {
            let mut row = BINARY_COLUMNS.to_be_bytes().to_vec();
            for value in &tags {
                let length = i32::try_from(value.len()).expect("a tag is short");
                row.extend_from_slice(&length.to_be_bytes());
                row.extend_from_slice(value.as_bytes());
            }
            row
        }
    };
    head.into_boxed_slice()
}

#[cfg(test)]
mod tests;

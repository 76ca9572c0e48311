//! The reasons for rejected lines, in messages for their writers.

use super::scan::Malformed;

/// Maximum bytes of a rejected line in a report.
const ORIGINAL_BYTES_MAX: usize = 20;
/// Maximum bytes of unexpected text in a message.
const SHOWN_BYTES_MAX: usize = 40;

/// The kind of error in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is not line protocol.
    Syntax,
    /// It does not fit the table.
    Schema,
    /// The table would exceed its limit of columns.
    ColumnLimit,
    /// The writer may not write to the table.
    Denied,
    /// Its time is outside the retention of its table.
    Retention,
    /// It would create more series than its organisation may have.
    SeriesLimit,
}

impl Kind {
    /// Word for the kind in `sys.rejected_points`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::Schema => "schema",
            Self::ColumnLimit => "columns",
            Self::Denied => "denied",
            Self::Retention => "retention",
            Self::SeriesLimit => "series",
        }
    }
}

/// A rejected line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Line number from 1, in the text as sent.
    pub line: usize,
    /// The class of the error.
    pub kind: Kind,
    /// Description of the error for the client.
    pub message: String,
    /// The beginning of the line.
    pub original: String,
}

/// The beginning of `text`, at most `bytes` bytes, cut between characters.
pub(super) fn beginning(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes {
        return text;
    }
    let end = (0..=bytes).rev().find(|&index| text.is_char_boundary(index)).unwrap_or(0);
    &text[..end]
}

/// A line's beginning, as reports have it.
pub(super) fn original(line: &str) -> String {
    beginning(line, ORIGINAL_BYTES_MAX).to_owned()
}

impl Malformed {
    /// The message for the client; positions refer to `line`.
    pub(super) fn message(self, line: &str) -> String {
        let part = |start: usize, end: usize| line.get(start..end).unwrap_or_default();
        // The grammar.
        match self {
            Self::Odd | Self::NoFields => "no fields were provided".to_owned(),
            Self::Measurement => "the measurement is missing or invalid".to_owned(),
            Self::Tags => {
                "the tag set is malformed: a comma after the measurement must be followed by \
                 tag=value pairs without spaces"
                    .to_owned()
            }
            Self::EndsInBackslash => {
                "a measurement, tag key, tag value or field key must not end in a backslash"
                    .to_owned()
            }
            // Numbers that are well formed.
            Self::Integer { from: start, to: end } => {
                format!("integer {} is out of range", part(start, end))
            }
            Self::Unsigned { from: start, to: end } => {
                format!("unsigned integer {} is out of range", part(start, end))
            }
            Self::Float { from: start, to: end } => {
                format!("float {} is out of range", part(start, end))
            }
            Self::Timestamp { from: start, to: end } => {
                format!("timestamp {} is out of range", part(start, end))
            }
            Self::UnclosedString => "a string value has no closing quote".to_owned(),
            Self::Trailing { at: start } => {
                let rest = line.get(start..).unwrap_or_default();
                format!("could not parse '{}'", beginning(rest, SHOWN_BYTES_MAX))
            }
        }
    }
}

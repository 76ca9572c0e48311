//! Why a line was not taken, in words for whoever wrote it.

use super::scan::Malformed;

/// Of a line that was not taken, how much a report shows.
const ORIGINAL_BYTES_MAX: usize = 20;
/// Of what does not belong, how much a message shows.
const SHOWN_BYTES_MAX: usize = 40;

/// What kind of wrong it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is not line protocol.
    Syntax,
    /// It does not fit the table.
    Schema,
    /// The table would have more columns than it may.
    ColumnLimit,
}

/// A line that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Counted from 1, in the text as it was sent.
    pub line: usize,
    /// What kind of wrong it is.
    pub kind: Kind,
    /// What is wrong.
    pub message: String,
    /// How the line begins.
    pub original: String,
}

/// The beginning of `text`, at most `bytes` bytes, cut between characters.
pub(super) fn beginning(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes {
        return text;
    }
    let end = (0..=bytes).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    &text[..end]
}

/// A line's beginning as reports show it.
pub(super) fn original(line: &str) -> String {
    beginning(line, ORIGINAL_BYTES_MAX).to_owned()
}

impl Malformed {
    /// What to tell of it; positions are in `line`.
    pub(super) fn message(self, line: &str) -> String {
        let part = |from: usize, to: usize| line.get(from..to).unwrap_or_default();
        match self {
            Self::Odd | Self::NoFields => "no fields were provided".to_owned(),
            Self::Measurement => "the measurement is missing or invalid".to_owned(),
            Self::Tags => {
                "the tag set is malformed: a comma behind the measurement must be followed by \
                 tag=value pairs without spaces"
                    .to_owned()
            }
            Self::EndsInBackslash => {
                "a measurement, tag key, tag value or field key may not end in a backslash"
                    .to_owned()
            }
            Self::Integer { from, to } => {
                format!("integer {} is out of range", part(from, to))
            }
            Self::Unsigned { from, to } => {
                format!("unsigned integer {} is out of range", part(from, to))
            }
            Self::Float { from, to } => format!("float {} is out of range", part(from, to)),
            Self::Timestamp { from, to } => {
                format!("timestamp {} is out of range", part(from, to))
            }
            Self::UnclosedString => "a string value has no closing quote".to_owned(),
            Self::Trailing { at } => {
                let rest = line.get(at..).unwrap_or_default();
                format!("could not parse '{}'", beginning(rest, SHOWN_BYTES_MAX))
            }
        }
    }
}

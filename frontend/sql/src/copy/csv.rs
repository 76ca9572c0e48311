//! COPY's CSV format, input, as PostgreSQL reads it: quotes may begin anywhere in a field, an unquoted field equal to
//! the NULL string is NULL, and a quoted value may contain anything, newlines included.

use super::Decoded;
use super::rows::Rows;
use super::text::{newlines, unexpected_end};
use crate::error::SqlError;
use crate::statement::{CopyHeader, CopyOptions};

pub(super) struct CsvDecoder {
    delimiter: u8,
    quote: u8,
    escape: u8,
    null: String,
    header: CopyHeader,
    /// For each column: whether a quoted NULL string is NULL.
    force_null: Vec<bool>,
    /// For each column: whether an unquoted NULL string is a text.
    force_not_null: Vec<bool>,
    search: Search,
    /// The current value; its allocation is reused.
    value: String,
}

/// State of the search for the row's end.
#[derive(Default)]
struct Search {
    at: usize,
    quoted: bool,
}

impl CsvDecoder {
    pub(super) fn new(options: &CopyOptions, columns: &[String]) -> Self {
        let flags = |option: &crate::statement::CopyColumns| {
            columns.iter().map(|column| option.contains(column)).collect()
        };
        Self {
            delimiter: options.delimiter,
            quote: options.quote,
            escape: options.escape,
            null: options.null.clone(),
            header: options.header,
            force_null: flags(&options.force_null),
            force_not_null: flags(&options.force_not_null),
            search: Search::default(),
            value: String::new(),
        }
    }

    /// Decodes the row at the start of the bytes, which are not empty.
    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        last: bool,
        rows: &mut Rows,
    ) -> Result<Decoded, SqlError> {
        // The bytes of the row, which may end with the data.
        let (end, used) = match self.row_end(bytes, last) {
            Some(end) => (end, end + 1),
            None if !last => return Ok(Decoded::Partial),
            None if self.search.quoted => {
                return Err(unexpected_end(rows, "unterminated CSV quoted field"));
            }
            None => (bytes.len(), bytes.len()),
        };
        self.search = Search::default();
        let row = &bytes[..end];
        // A carriage return belongs to the newline, and `\.` ends the data.
        let row = row.strip_suffix(b"\r").unwrap_or(row);
        if row == b"\\." {
            return Ok(Decoded::End(used));
        }
        let newlines = 1 + newlines(row);
        let text = rows.utf8(row)?;
        // The header is no row.
        if self.header != CopyHeader::None {
            if self.header == CopyHeader::Match {
                let mut names = Vec::new();
                let mut rest = Some(text);
                while let Some(text) = rest {
                    rest = self.field(text).0;
                    names.push(self.value.clone());
                }
                rows.check_header(&names)?;
            }
            self.header = CopyHeader::None;
            rows.skip_lines(newlines);
            return Ok(Decoded::Used(used));
        }
        self.row(text, rows)?;
        rows.end_row(used, newlines)?;
        Ok(Decoded::Used(used))
    }

    fn row(&mut self, text: &str, rows: &mut Rows) -> Result<(), SqlError> {
        let width = rows.width();
        let mut column = 0;
        let mut rest = Some(text);
        if width == 0 && text.is_empty() {
            return Ok(());
        }
        while let Some(text) = rest {
            if column == width {
                return Err(rows.extra());
            }
            // Most values are unquoted and need no copy.
            let plain = text
                .as_bytes()
                .iter()
                .position(|byte| *byte == self.delimiter || *byte == self.quote);
            let (value, quoted) = match plain {
                None => {
                    rest = None;
                    (text, false)
                }
                Some(end) if text.as_bytes()[end] == self.delimiter => {
                    rest = Some(&text[end + 1..]);
                    (&text[..end], false)
                }
                Some(_) => {
                    let (remaining, quoted) = self.field(text);
                    rest = remaining;
                    (self.value.as_str(), quoted)
                }
            };
            let null = value == self.null
                && if quoted { self.force_null[column] } else { !self.force_not_null[column] };
            if null {
                rows.append_null(column);
            } else {
                rows.append_text(column, value)?;
            }
            column += 1;
        }
        if column < width { Err(rows.missing(column)) } else { Ok(()) }
    }

    /// Reads a field into `value`; returns the text after its delimiter, and whether it had quotes.
    fn field<'t>(&mut self, text: &'t str) -> (Option<&'t str>, bool) {
        self.value.clear();
        let bytes = text.as_bytes();
        let mut had_quotes = false;
        let mut quoted = false;
        let mut copied = 0;
        let mut position = 0;
        while let Some(byte) = bytes.get(position) {
            if quoted {
                let next = bytes.get(position + 1);
                let escapes = *byte == self.escape
                    && next.is_some_and(|next| *next == self.quote || *next == self.escape);
                if escapes {
                    self.value.push_str(&text[copied..position]);
                    // The escaped character itself is copied later; the quote and the escape are ASCII.
                    copied = position + 1;
                    position += 2;
                    continue;
                }
                if *byte == self.quote {
                    self.value.push_str(&text[copied..position]);
                    quoted = false;
                    copied = position + 1;
                }
            } else if *byte == self.delimiter {
                self.value.push_str(&text[copied..position]);
                return (Some(&text[position + 1..]), had_quotes);
            } else if *byte == self.quote {
                self.value.push_str(&text[copied..position]);
                quoted = true;
                had_quotes = true;
                copied = position + 1;
            }
            position += 1;
        }
        self.value.push_str(&text[copied..]);
        (None, had_quotes)
    }

    /// The offset of the newline that ends the row, which is outside of quotes.
    fn row_end(&mut self, bytes: &[u8], last: bool) -> Option<usize> {
        let Search { at: position, quoted } = &mut self.search;
        while let Some(byte) = bytes.get(*position) {
            if *quoted {
                if *byte == self.escape {
                    match bytes.get(*position + 1) {
                        // It escapes or not depending on the next byte, which is not here yet.
                        None if !last => return None,
                        Some(next) if *next == self.quote || *next == self.escape => {
                            *position += 2;
                            continue;
                        }
                        _ => {}
                    }
                }
                if *byte == self.quote {
                    *quoted = false;
                }
            } else if *byte == self.quote {
                *quoted = true;
            } else if *byte == b'\n' {
                return Some(*position);
            }
            *position += 1;
        }
        None
    }
}

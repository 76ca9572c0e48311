//! COPY's text format, input: a line for each row, fields separated by delimiters, special characters escaped by
//! backslashes. A line `\.` ends the data.

use super::rows::Rows;
use super::{BAD_COPY_FORMAT, Decoded};
use crate::error::SqlError;
use crate::statement::{CopyHeader, CopyOptions};

pub(super) struct TextDecoder {
    delimiter: u8,
    null: String,
    header: CopyHeader,
    /// Bytes at the start of the buffer without the end of a line.
    searched: usize,
}

impl TextDecoder {
    pub(super) fn new(options: &CopyOptions) -> Self {
        Self {
            delimiter: options.delimiter,
            null: options.null.clone(),
            header: options.header,
            searched: 0,
        }
    }

    /// Decodes the line at the start of the bytes, which are not empty.
    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        last: bool,
        rows: &mut Rows,
    ) -> Result<Decoded, SqlError> {
        let (end, used) = match self.line_end(bytes) {
            Some(end) => (end, end + 1),
            None if last => (bytes.len(), bytes.len()),
            None => {
                self.searched = bytes.len();
                return Ok(Decoded::Partial);
            }
        };
        self.searched = 0;
        let line = &bytes[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line == b"\\." {
            return Ok(Decoded::End(used));
        }
        let newlines = 1 + newlines(line);
        let text = rows.utf8(line)?;
        if self.header != CopyHeader::None {
            if self.header == CopyHeader::Match {
                let names =
                    self.fields(text)
                        .map(|field| unescape(field, rows))
                        .collect::<Result<Vec<_>, _>>()?;
                rows.check_header(&names)?;
            }
            self.header = CopyHeader::None;
            rows.skip_lines(newlines);
            return Ok(Decoded::Used(used));
        }
        let width = rows.width();
        let mut column = 0;
        for field in self.fields(text) {
            // The line of a table without columns is empty, which counts as one empty field.
            if column == width {
                if width == 0 && text.is_empty() {
                    break;
                }
                return Err(rows.extra());
            }
            if field == self.null {
                rows.append_null(column);
            } else if field.contains('\\') {
                let field = unescape(field, rows)?;
                rows.append_text(column, &field)?;
            } else {
                rows.append_text(column, field)?;
            }
            column += 1;
        }
        if column < width {
            return Err(rows.missing(column));
        }
        rows.end_row(used, newlines)?;
        Ok(Decoded::Used(used))
    }

    /// The offset of the newline that ends the line, which is not escaped.
    fn line_end(&self, bytes: &[u8]) -> Option<usize> {
        let mut start = self.searched;
        loop {
            let end = start + bytes[start..].iter().position(|byte| *byte == b'\n')?;
            if !is_hidden(bytes, end) {
                return Some(end);
            }
            start = end + 1;
        }
    }

    /// The fields of a line, still escaped.
    fn fields<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let delimiter = self.delimiter;
        let mut rest = Some(text);
        std::iter::from_fn(move || {
            let text = rest?;
            let bytes = text.as_bytes();
            let mut start = 0;
            loop {
                let Some(length) = bytes[start..].iter().position(|byte| *byte == delimiter) else {
                    rest = None;
                    return Some(text);
                };
                let end = start + length;
                if !is_hidden(bytes, end) {
                    rest = Some(&text[end + 1..]);
                    return Some(&text[..end]);
                }
                start = end + 1;
            }
        })
    }
}

/// Returns true if an odd number of backslashes precedes a byte.
fn is_hidden(bytes: &[u8], position: usize) -> bool {
    bytes[..position].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

pub(super) fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte == b'\n')).sum()
}

/// Removes the escapes of a field.
fn unescape(field: &str, rows: &Rows) -> Result<String, SqlError> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte != b'\\' {
            bytes.push(*byte);
            continue;
        }
        let Some((escaped, tail)) = rest.split_first() else {
            // A backslash at the very end is itself.
            bytes.push(b'\\');
            break;
        };
        rest = tail;
        // Letters, octal and hexadecimal codes; any other character is itself.
        match escaped {
            b'b' => bytes.push(8),
            b'f' => bytes.push(12),
            b'n' => bytes.push(b'\n'),
            b'r' => bytes.push(b'\r'),
            b't' => bytes.push(b'\t'),
            b'v' => bytes.push(11),
            b'0'..=b'7' => {
                let mut code = u32::from(escaped - b'0');
                let more = rest.iter().take(2).take_while(|b| matches!(b, b'0'..=b'7')).count();
                for digit in &rest[..more] {
                    code = code * 8 + u32::from(digit - b'0');
                }
                rest = &rest[more..];
                // Three octal digits exceed a byte; PostgreSQL drops the ninth bit too.
                bytes.push(code.to_le_bytes()[0]);
            }
            b'x' if rest.first().is_some_and(u8::is_ascii_hexdigit) => {
                let length = rest.iter().take(2).take_while(|b| b.is_ascii_hexdigit()).count();
                let code = rest[..length]
                    .iter()
                    .filter_map(|digit| char::from(*digit).to_digit(16))
                    .fold(0_u32, |code, digit| code * 16 + digit);
                rest = &rest[length..];
                bytes.push(code.to_le_bytes()[0]);
            }
            character => bytes.push(*character),
        }
    }
    // An escape may stand for any byte.
    rows.utf8(&bytes).map(str::to_owned)
}

/// The error of data that ends inside of a value.
pub(super) fn unexpected_end(rows: &Rows, message: &str) -> SqlError {
    rows.located(SqlError::new(BAD_COPY_FORMAT, message.to_owned()))
}

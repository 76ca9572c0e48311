//! A position in SQL text, for parsers that cannot afford to tokenize.
//!
//! Invariant: the position is always between characters: it only moves over ASCII bytes one by one, or to the byte
//! after a quote.

use std::borrow::Cow;

use super::split::{is_name_byte, skip_comment, skip_line};

/// A text and a byte offset in it.
#[derive(Clone)]
pub(super) struct Cursor<'t> {
    text: &'t str,
    position: usize,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, position: 0 }
    }

    /// The current byte offset.
    pub(super) fn offset(&self) -> usize {
        self.position
    }

    pub(super) fn at_end(&self) -> bool {
        self.position >= self.text.len()
    }

    /// The next byte.
    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    /// Moves past the next byte, which must be ASCII.
    pub(super) fn advance(&mut self) {
        self.position += 1;
    }

    /// Moves past a byte if it comes next.
    pub(super) fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.position += usize::from(is_next);
        is_next
    }

    /// The text from a byte offset to the current position.
    pub(super) fn since(&self, begin: usize) -> &'t str {
        &self.text[begin..self.position]
    }

    /// The rest of the text.
    pub(super) fn rest(&self) -> &'t str {
        &self.text[self.position..]
    }

    /// Returns true if a byte of a name comes next.
    pub(super) fn at_name_byte(&self) -> bool {
        self.peek().is_some_and(is_name_byte)
    }

    /// Moves past blanks and comments.
    pub(super) fn skip_blank(&mut self) {
        let bytes = self.text.as_bytes();
        loop {
            match bytes.get(self.position) {
                Some(b' ' | b'\t' | b'\n' | b'\r' | 0x0c) => self.position += 1,
                Some(b'-') if bytes.get(self.position + 1) == Some(&b'-') => {
                    self.position = skip_line(bytes, self.position);
                }
                Some(b'/') if bytes.get(self.position + 1) == Some(&b'*') => {
                    self.position = skip_comment(bytes, self.position);
                }
                _ => return,
            }
        }
    }

    /// Takes an unquoted word of letters, digits and underscores; none when something else comes next, or the name
    /// continues with other letters.
    pub(super) fn word(&mut self) -> Option<&'t str> {
        let bytes = &self.text.as_bytes()[self.position..];
        if !bytes.first()?.is_ascii_alphabetic() && bytes[0] != b'_' {
            return None;
        }
        let length = bytes.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
        if bytes.get(length).is_some_and(|b| is_name_byte(*b)) {
            return None;
        }
        let begin = self.position;
        self.position += length;
        Some(self.since(begin))
    }

    /// Takes a name: a word of any letters, folded, or any text in double quotes or backticks.
    pub(super) fn name(&mut self) -> Option<String> {
        let quote = match self.peek()? {
            quote @ (b'"' | b'`') => quote,
            byte if byte.is_ascii_alphabetic() || byte == b'_' || !byte.is_ascii() => {
                let length = self.text.as_bytes()[self.position..]
                    .iter()
                    .take_while(|byte| is_name_byte(**byte))
                    .count();
                let begin = self.position;
                self.position += length;
                return Some(super::identifier::fold(self.since(begin)));
            }
            _ => return None,
        };
        let quoted = self.quoted(quote)?;
        Some(quoted.into_owned())
    }

    /// Takes digits, possibly none.
    pub(super) fn digits(&mut self) -> &'t str {
        let begin = self.position;
        let bytes = self.text.as_bytes();
        while bytes.get(self.position).is_some_and(u8::is_ascii_digit) {
            self.position += 1;
        }
        self.since(begin)
    }

    /// Takes `'..'`, with `''` for a quote; none when it is not closed.
    pub(super) fn string(&mut self) -> Option<Cow<'t, str>> {
        self.quoted(b'\'')
    }

    fn quoted(&mut self, quote: u8) -> Option<Cow<'t, str>> {
        let bytes = self.text.as_bytes();
        let begin = self.position + 1;
        let mut end = begin;
        let mut doubled = false;
        loop {
            end += bytes.get(end..)?.iter().position(|byte| *byte == quote)?;
            if bytes.get(end + 1) != Some(&quote) {
                break;
            }
            doubled = true;
            end += 2;
        }
        self.position = end + 1;
        let inner = &self.text[begin..end];
        if !doubled {
            return Some(Cow::Borrowed(inner));
        }
        let (single, two) = match quote {
            b'"' => ("\"", "\"\""),
            b'`' => ("`", "``"),
            _ => ("'", "''"),
        };
        Some(Cow::Owned(inner.replace(two, single)))
    }

    /// Takes `'..'` in which a backslash escapes the next character; returns the inside as written.
    pub(super) fn escaped(&mut self) -> Option<&'t str> {
        let bytes = self.text.as_bytes();
        let begin = self.position + 1;
        let mut end = begin;
        loop {
            match bytes.get(end)? {
                b'\\' => end += 2,
                b'\'' if bytes.get(end + 1) == Some(&b'\'') => end += 2,
                b'\'' => break,
                _ => end += 1,
            }
        }
        self.position = end + 1;
        Some(&self.text[begin..end])
    }

    /// Takes the possible name of a type: words, blanks and one list of numbers.
    pub(super) fn type_text(&mut self) -> &'t str {
        let begin = self.position;
        let bytes = self.text.as_bytes();
        let mut open = false;
        while let Some(byte) = bytes.get(self.position) {
            match byte {
                b'(' if !open => open = true,
                b')' if open => open = false,
                b',' if open => {}
                b' ' | b'_' => {}
                byte if byte.is_ascii_alphanumeric() => {}
                _ => break,
            }
            self.position += 1;
        }
        self.since(begin).trim_ascii()
    }
}

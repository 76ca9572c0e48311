//! A place in SQL text, for readers that cannot afford tokens.
//!
//! Invariant: the place is always between characters: it only ever moves over ASCII bytes one by one,
//! or to the byte after a quote.

use std::borrow::Cow;

use super::split::{is_name_byte, skip_comment, skip_line};

/// The text and the place in it.
#[derive(Clone)]
pub(super) struct Cursor<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    /// The byte it is at.
    pub(super) fn offset(&self) -> usize {
        self.at
    }

    pub(super) fn at_end(&self) -> bool {
        self.at >= self.text.len()
    }

    /// The next byte.
    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Goes over the next byte, which is ASCII.
    pub(super) fn advance(&mut self) {
        self.at += 1;
    }

    /// Goes over a byte if it comes next.
    pub(super) fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// The text since a place.
    pub(super) fn since(&self, begin: usize) -> &'t str {
        &self.text[begin..self.at]
    }

    /// The rest of the text.
    pub(super) fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// Whether a byte of a name comes next.
    pub(super) fn at_name_byte(&self) -> bool {
        self.peek().is_some_and(is_name_byte)
    }

    /// Goes over blanks and comments.
    pub(super) fn skip_blank(&mut self) {
        let bytes = self.text.as_bytes();
        loop {
            match bytes.get(self.at) {
                Some(b' ' | b'\t' | b'\n' | b'\r' | 0x0c) => self.at += 1,
                Some(b'-') if bytes.get(self.at + 1) == Some(&b'-') => {
                    self.at = skip_line(bytes, self.at);
                }
                Some(b'/') if bytes.get(self.at + 1) == Some(&b'*') => {
                    self.at = skip_comment(bytes, self.at);
                }
                _ => return,
            }
        }
    }

    /// Takes an unquoted word of letters, digits and underscores; none when something else comes
    /// next or a name goes on in other letters.
    pub(super) fn word(&mut self) -> Option<&'t str> {
        let bytes = &self.text.as_bytes()[self.at..];
        if !bytes.first()?.is_ascii_alphabetic() && bytes[0] != b'_' {
            return None;
        }
        let length = bytes.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
        if bytes.get(length).is_some_and(|b| is_name_byte(*b)) {
            return None;
        }
        let begin = self.at;
        self.at += length;
        Some(self.since(begin))
    }

    /// Takes a name: a word of any letters, folded, or anything in double quotes or backticks.
    pub(super) fn name(&mut self) -> Option<String> {
        let quote = match self.peek()? {
            quote @ (b'"' | b'`') => quote,
            byte if byte.is_ascii_alphabetic() || byte == b'_' || !byte.is_ascii() => {
                let length = self.text.as_bytes()[self.at..]
                    .iter()
                    .take_while(|byte| is_name_byte(**byte))
                    .count();
                let begin = self.at;
                self.at += length;
                return Some(super::identifier::fold(self.since(begin)));
            }
            _ => return None,
        };
        let quoted = self.quoted(quote)?;
        Some(quoted.into_owned())
    }

    /// Takes digits, perhaps none.
    pub(super) fn digits(&mut self) -> &'t str {
        let begin = self.at;
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        self.since(begin)
    }

    /// Takes `'..'`, with `''` for a quote; none when it does not end.
    pub(super) fn string(&mut self) -> Option<Cow<'t, str>> {
        self.quoted(b'\'')
    }

    fn quoted(&mut self, quote: u8) -> Option<Cow<'t, str>> {
        let bytes = self.text.as_bytes();
        let begin = self.at + 1;
        let mut at = begin;
        let mut doubled = false;
        loop {
            at += bytes.get(at..)?.iter().position(|byte| *byte == quote)?;
            if bytes.get(at + 1) != Some(&quote) {
                break;
            }
            doubled = true;
            at += 2;
        }
        self.at = at + 1;
        let inner = &self.text[begin..at];
        if !doubled {
            return Some(Cow::Borrowed(inner));
        }
        let (one, two) = match quote {
            b'"' => ("\"", "\"\""),
            b'`' => ("`", "``"),
            _ => ("'", "''"),
        };
        Some(Cow::Owned(inner.replace(two, one)))
    }

    /// Takes `'..'` in which a backslash hides the next character; what is inside, as it is.
    pub(super) fn escaped(&mut self) -> Option<&'t str> {
        let bytes = self.text.as_bytes();
        let begin = self.at + 1;
        let mut at = begin;
        loop {
            match bytes.get(at)? {
                b'\\' => at += 2,
                b'\'' if bytes.get(at + 1) == Some(&b'\'') => at += 2,
                b'\'' => break,
                _ => at += 1,
            }
        }
        self.at = at + 1;
        Some(&self.text[begin..at])
    }

    /// Takes what may be the name of a type: words, blanks and one list of numbers.
    pub(super) fn type_text(&mut self) -> &'t str {
        let begin = self.at;
        let bytes = self.text.as_bytes();
        let mut open = false;
        while let Some(byte) = bytes.get(self.at) {
            match byte {
                b'(' if !open => open = true,
                b')' if open => open = false,
                b',' if open => {}
                b' ' | b'_' => {}
                byte if byte.is_ascii_alphanumeric() => {}
                _ => break,
            }
            self.at += 1;
        }
        self.since(begin).trim_ascii()
    }
}

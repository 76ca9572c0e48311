//! Texts of JSON: tokens, the grammar, and the parts of a value as slices of its text.
//!
//! ```text
//!   {"a": [1, "x"]}     tokens: { "a" : [ 1 , "x" ] }
//!   members             "a" -> [1, "x"]
//!   elements            1, "x"
//! ```
//!
//! Invariants: a text is bounded in bytes and in depth; no part is copied but a string with escapes; errors are those of
//! PostgreSQL.

use std::borrow::Cow;

use crate::error::{INVALID_TEXT, PROGRAM_LIMIT_EXCEEDED, STATEMENT_TOO_COMPLEX, SqlError};

/// Maximum bytes of a text.
pub(super) const BYTES_MAX: usize = 16 << 20;
/// Maximum depth of nested arrays and objects; each level takes some stack.
pub(super) const DEPTH_MAX: usize = 256;

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// One of `{}[],:`.
    Mark(u8),
    String,
    Number,
    True,
    False,
    Null,
    End,
}

/// Kind of a value, as `json_typeof` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Object,
    Array,
    String,
    Number,
    Boolean,
    Null,
}

impl Kind {
    /// The kind of a valid text.
    pub(super) fn of(text: &str) -> Self {
        match text.trim_start().as_bytes().first() {
            Some(b'{') => Self::Object,
            Some(b'[') => Self::Array,
            Some(b'"') => Self::String,
            Some(b't' | b'f') => Self::Boolean,
            Some(b'n') => Self::Null,
            _ => Self::Number,
        }
    }

    /// Name in SQL.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Null => "null",
        }
    }
}

/// Reads the tokens of a text.
pub(super) struct Lexer<'a> {
    text: &'a str,
    /// Kind of the current token.
    pub(super) token: Token,
    /// The current token is `start..end`.
    start: usize,
    end: usize,
    /// End of the token before.
    former_end: usize,
    depth: usize,
    /// Bytes of the numbers that were written out without their exponents.
    written_out: usize,
}

impl<'a> Lexer<'a> {
    /// Starts at the first token.
    ///
    /// # Errors
    /// 54000 for a text that is too long, and errors of the first token.
    pub(super) fn new(text: &'a str) -> Result<Self, SqlError> {
        check_length(text)?;
        let mut lexer = Self {
            text,
            token: Token::End,
            start: 0,
            end: 0,
            former_end: 0,
            depth: 0,
            written_out: 0,
        };
        lexer.advance()?;
        Ok(lexer)
    }

    /// The current token as it is written.
    pub(super) fn slice(&self) -> &'a str {
        &self.text[self.start..self.end]
    }

    /// Goes to the next token.
    pub(super) fn advance(&mut self) -> Result<(), SqlError> {
        let bytes = self.text.as_bytes();
        self.former_end = self.end;
        self.start = self.end;
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = bytes.get(self.start) {
            self.start += 1;
        }
        self.end = self.start;
        let Some(first) = bytes.get(self.start) else {
            self.token = Token::End;
            return Ok(());
        };
        self.token = match first {
            b'{' | b'}' | b'[' | b']' | b',' | b':' => {
                self.end += 1;
                Token::Mark(*first)
            }
            b'"' => self.string()?,
            b'-' | b'0'..=b'9' => self.number()?,
            _ => {
                self.word_end();
                match self.slice() {
                    "true" => Token::True,
                    "false" => Token::False,
                    "null" => Token::Null,
                    _ => return Err(self.invalid_token()),
                }
            }
        };
        Ok(())
    }

    /// Puts the end behind letters and digits, or behind one character of another kind.
    fn word_end(&mut self) {
        let rest = &self.text[self.end..];
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii();
        let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let first = rest.chars().next().map_or(0, char::len_utf8);
        self.end += if self.end == self.start { length.max(first) } else { length };
    }

    fn string(&mut self) -> Result<Token, SqlError> {
        let bytes = self.text.as_bytes();
        self.end += 1;
        loop {
            match bytes.get(self.end) {
                Some(b'"') => {
                    self.end += 1;
                    return Ok(Token::String);
                }
                Some(b'\\') => self.escape()?,
                Some(byte) if *byte < 0x20 => {
                    let detail = format!("Character with value 0x{byte:02x} must be escaped.");
                    return Err(invalid(detail));
                }
                Some(_) => self.end += 1,
                None => return Err(self.invalid_token()),
            }
        }
    }

    /// Takes an escape sequence.
    fn escape(&mut self) -> Result<(), SqlError> {
        let rest = &self.text[self.end + 1..];
        match rest.chars().next() {
            Some('u') => {
                let digits = rest.as_bytes().get(1..5);
                if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
                    let detail = "\"\\u\" must be followed by four hexadecimal digits.";
                    return Err(invalid(detail.to_owned()));
                }
                self.end += 6;
            }
            Some('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => self.end += 2,
            Some(other) => {
                return Err(invalid(format!("Escape sequence \"\\{other}\" is invalid.")));
            }
            None => {
                self.end = self.text.len();
                return Err(self.invalid_token());
            }
        }
        Ok(())
    }

    fn number(&mut self) -> Result<Token, SqlError> {
        let bytes = self.text.as_bytes();
        let digits = |mut end: usize| {
            while bytes.get(end).is_some_and(u8::is_ascii_digit) {
                end += 1;
            }
            end
        };
        let mut end = self.end + usize::from(bytes.get(self.end) == Some(&b'-'));
        let mut is_number = bytes.get(end).is_some_and(u8::is_ascii_digit);
        // A leading zero stands alone.
        end = if bytes.get(end) == Some(&b'0') { end + 1 } else { digits(end) };
        if bytes.get(end) == Some(&b'.') {
            let fraction = digits(end + 1);
            is_number &= fraction > end + 1;
            end = fraction;
        }
        if let Some(b'e' | b'E') = bytes.get(end) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let exponent = digits(end + 1 + sign);
            is_number &= exponent > end + 1 + sign;
            end = exponent;
        }
        // A word that goes on behind the number is part of a wrong token.
        self.end = end;
        self.word_end();
        if self.end > end || !is_number {
            return Err(self.invalid_token());
        }
        Ok(Token::Number)
    }

    fn invalid_token(&self) -> SqlError {
        invalid(format!("Token \"{}\" is invalid.", self.slice()))
    }

    /// The error of a token that cannot stand here.
    pub(super) fn expected(&self, what: &str) -> SqlError {
        match self.token {
            Token::End => invalid("The input string ended unexpectedly.".to_owned()),
            _ => invalid(format!("Expected {what}, but found \"{}\".", self.slice())),
        }
    }

    /// Enters an array or object.
    pub(super) fn deeper(&mut self) -> Result<(), SqlError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let message = format!("JSON is nested more than {DEPTH_MAX} levels deep");
            return Err(SqlError::new(STATEMENT_TOO_COMPLEX, message));
        }
        self.advance()
    }

    /// Counts the bytes of a number that was written out: a few bytes with an exponent stand for many digits.
    pub(super) fn write_out(&mut self, bytes: usize) -> Result<(), SqlError> {
        self.written_out += bytes;
        if self.written_out > BYTES_MAX {
            let message = format!("numbers of JSON exceed the limit of {BYTES_MAX} bytes");
            return Err(SqlError::new(PROGRAM_LIMIT_EXCEEDED, message));
        }
        Ok(())
    }

    /// Leaves an array or object at its last token.
    pub(super) fn leave(&mut self) -> Result<(), SqlError> {
        self.depth -= 1;
        self.advance()
    }

    /// Takes a comma and returns true, or the mark that ends the array or object and returns false.
    pub(super) fn goes_on(&mut self, close: u8) -> Result<bool, SqlError> {
        match self.token {
            Token::Mark(b',') => {
                self.advance()?;
                Ok(true)
            }
            Token::Mark(mark) if mark == close => {
                self.leave()?;
                Ok(false)
            }
            _ if close == b']' => Err(self.expected("\",\" or \"]\"")),
            _ => Err(self.expected("\",\" or \"}\"")),
        }
    }

    /// Takes the key of a member and the colon behind it; `first`: the object may end here instead.
    pub(super) fn key(&mut self, first: bool) -> Result<&'a str, SqlError> {
        if self.token != Token::String {
            return Err(self.expected(if first { "string or \"}\"" } else { "string" }));
        }
        let key = self.slice();
        self.advance()?;
        if self.token != Token::Mark(b':') {
            return Err(self.expected("\":\""));
        }
        self.advance()?;
        Ok(key)
    }

    /// Takes a value, and returns its text.
    pub(super) fn value(&mut self) -> Result<&'a str, SqlError> {
        let start = self.start;
        match self.token {
            Token::Mark(b'[') => self.elements(&mut |_| {})?,
            Token::Mark(b'{') => self.members(&mut |_, _| {})?,
            Token::String | Token::Number | Token::True | Token::False | Token::Null => {
                self.advance()?;
            }
            Token::Mark(_) | Token::End => return Err(self.expected("JSON value")),
        }
        Ok(&self.text[start..self.former_end])
    }

    /// Takes an array, whose elements are visited.
    fn elements(&mut self, visit: &mut dyn FnMut(&'a str)) -> Result<(), SqlError> {
        self.deeper()?;
        if self.token == Token::Mark(b']') {
            return self.leave();
        }
        loop {
            let element = self.value()?;
            visit(element);
            if !self.goes_on(b']')? {
                return Ok(());
            }
        }
    }

    /// Takes an object, whose members are visited: keys as they are written, with quotes.
    fn members(&mut self, visit: &mut dyn FnMut(&'a str, &'a str)) -> Result<(), SqlError> {
        self.deeper()?;
        if self.token == Token::Mark(b'}') {
            return self.leave();
        }
        let mut first = true;
        loop {
            let key = self.key(first)?;
            first = false;
            let value = self.value()?;
            visit(key, value);
            if !self.goes_on(b'}')? {
                return Ok(());
            }
        }
    }

    /// Checks that no token is left.
    pub(super) fn end(&self) -> Result<(), SqlError> {
        match self.token {
            Token::End => Ok(()),
            _ => Err(self.expected("end of input")),
        }
    }
}

/// Checks the length of a text.
///
/// # Errors
/// 54000 for one that is too long.
pub(super) fn check_length(text: &str) -> Result<(), SqlError> {
    if text.len() <= BYTES_MAX {
        return Ok(());
    }
    let message = format!("JSON of {} bytes exceeds the limit of {BYTES_MAX}", text.len());
    Err(SqlError::new(PROGRAM_LIMIT_EXCEEDED, message))
}

/// The error of a text that is no JSON.
pub(super) fn invalid(detail: String) -> SqlError {
    SqlError::new(INVALID_TEXT, "invalid input syntax for type json").with_detail(detail)
}

/// Checks that a text is JSON, and returns it without the blanks around it.
///
/// # Errors
/// 22P02 unless it is.
pub(super) fn checked(text: &str) -> Result<&str, SqlError> {
    let mut lexer = Lexer::new(text)?;
    let value = lexer.value()?;
    lexer.end()?;
    Ok(value)
}

/// Visits the elements of an array; false if the text is another value.
pub(super) fn elements<'a>(
    text: &'a str,
    mut visit: impl FnMut(&'a str),
) -> Result<bool, SqlError> {
    let mut lexer = Lexer::new(text)?;
    if lexer.token != Token::Mark(b'[') {
        return Ok(false);
    }
    lexer.elements(&mut visit)?;
    Ok(true)
}

/// Visits the members of an object; false if the text is another value. Keys are written as strings, with quotes.
pub(super) fn members<'a>(
    text: &'a str,
    mut visit: impl FnMut(&'a str, &'a str),
) -> Result<bool, SqlError> {
    let mut lexer = Lexer::new(text)?;
    if lexer.token != Token::Mark(b'{') {
        return Ok(false);
    }
    lexer.members(&mut visit)?;
    Ok(true)
}

/// The text that a string stands for.
///
/// # Errors
/// 22P05 for `\u0000`, and 22P02 for half of a surrogate pair.
pub(super) fn unquoted(string: &str) -> Result<Cow<'_, str>, SqlError> {
    let inner = string.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(string);
    if !inner.contains('\\') {
        return Ok(Cow::Borrowed(inner));
    }
    let mut text = String::with_capacity(inner.len());
    let mut high = None;
    let mut rest = inner;
    while let Some(position) = rest.find('\\') {
        let (plain, escape) = rest.split_at(position);
        if high.is_some() && !plain.is_empty() {
            return Err(no_low_surrogate());
        }
        text.push_str(plain);
        let (character, length) = escaped(escape, &mut high)?;
        text.extend(character);
        rest = &escape[length..];
    }
    if high.is_some() {
        return Err(no_low_surrogate());
    }
    text.push_str(rest);
    Ok(Cow::Owned(text))
}

/// The character of the escape sequence at the start, and the sequence's length; `high` keeps the first half of a pair.
fn escaped(escape: &str, high: &mut Option<u32>) -> Result<(Option<char>, usize), SqlError> {
    let plain = match escape.as_bytes().get(1) {
        Some(b'u') => None,
        Some(b'b') => Some('\u{8}'),
        Some(b'f') => Some('\u{c}'),
        Some(b'n') => Some('\n'),
        Some(b'r') => Some('\r'),
        Some(b't') => Some('\t'),
        Some(byte) => Some(char::from(*byte)),
        None => return Err(invalid("The input string ended unexpectedly.".to_owned())),
    };
    if let Some(plain) = plain {
        return if high.is_some() { Err(no_low_surrogate()) } else { Ok((Some(plain), 2)) };
    }
    let code = escape.get(2..6).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let code = code.ok_or_else(|| {
        invalid("\"\\u\" must be followed by four hexadecimal digits.".to_owned())
    })?;
    // A character beyond 16 bits takes two sequences.
    let character = match (code, high.take()) {
        (0, _) => {
            return Err(SqlError::new("22P05", "unsupported Unicode escape sequence")
                .with_detail("\\u0000 cannot be converted to text."));
        }
        (0xD800..=0xDBFF, None) => {
            *high = Some(code);
            return Ok((None, 6));
        }
        (0xD800..=0xDBFF, Some(_)) => {
            let detail = "Unicode high surrogate must not follow a high surrogate.";
            return Err(invalid(detail.to_owned()));
        }
        (0xDC00..=0xDFFF, Some(high)) => {
            char::from_u32(0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00))
        }
        (_, Some(_)) | (0xDC00..=0xDFFF, None) => return Err(no_low_surrogate()),
        (code, None) => char::from_u32(code),
    };
    Ok((character, 6))
}

fn no_low_surrogate() -> SqlError {
    invalid("Unicode low surrogate must follow a high surrogate.".to_owned())
}

/// Appends a text as a string of JSON.
pub(super) fn quote(text: &str, output: &mut String) {
    output.push('"');
    for character in text.chars() {
        match character {
            '"' => output.push_str("\\\""),
            '\\' => output.push_str("\\\\"),
            '\u{8}' => output.push_str("\\b"),
            '\u{c}' => output.push_str("\\f"),
            '\n' => output.push_str("\\n"),
            '\r' => output.push_str("\\r"),
            '\t' => output.push_str("\\t"),
            control if u32::from(control) < 0x20 => {
                output.push_str(&format!("\\u{:04x}", u32::from(control)));
            }
            other => output.push(other),
        }
    }
    output.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_json_are_accepted() {
        for text in [
            "null",
            " true ",
            "-0",
            "12.50e+3",
            "\"a\\u00e9\\n\\/\"",
            "[]",
            "[1, \"x\", null, {}]",
            "{\"a\": {\"b\": [false]}, \"a\": 1}",
            "\"\\ud800\"",
        ] {
            assert_eq!(checked(text).unwrap(), text.trim(), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_as_postgresql_does() {
        for (text, detail) in [
            ("", "The input string ended unexpectedly."),
            ("{\"a\":", "The input string ended unexpectedly."),
            ("[1", "The input string ended unexpectedly."),
            ("nope", "Token \"nope\" is invalid."),
            ("\"abc", "Token \"\"abc\" is invalid."),
            ("01", "Token \"01\" is invalid."),
            ("1a", "Token \"1a\" is invalid."),
            ("-", "Token \"-\" is invalid."),
            ("1.", "Token \"1.\" is invalid."),
            ("'x'", "Token \"'\" is invalid."),
            ("1 2", "Expected end of input, but found \"2\"."),
            ("[1 2]", "Expected \",\" or \"]\", but found \"2\"."),
            ("{\"a\" 1}", "Expected \":\", but found \"1\"."),
            ("{\"a\": 1 \"b\"}", "Expected \",\" or \"}\", but found \"\"b\"\"."),
            ("{1: 2}", "Expected string or \"}\", but found \"1\"."),
            ("{\"a\": 1,}", "Expected string, but found \"}\"."),
            ("]", "Expected JSON value, but found \"]\"."),
            ("[1,]", "Expected JSON value, but found \"]\"."),
            ("[,1]", "Expected JSON value, but found \",\"."),
            ("\"\\x\"", "Escape sequence \"\\x\" is invalid."),
            ("\"\\u12g4\"", "\"\\u\" must be followed by four hexadecimal digits."),
            ("\"a\nb\"", "Character with value 0x0a must be escaped."),
        ] {
            let error = checked(text).unwrap_err();
            assert_eq!(error.sqlstate, "22P02", "{text}");
            assert_eq!(error.message, "invalid input syntax for type json", "{text}");
            assert_eq!(error.detail.as_deref(), Some(detail), "{text}");
        }
    }

    #[test]
    fn depth_and_size_are_bounded() {
        let nested = |depth: usize| ["[".repeat(depth), "]".repeat(depth)].concat();
        assert!(checked(&nested(DEPTH_MAX)).is_ok());
        assert_eq!(checked(&nested(DEPTH_MAX + 1)).unwrap_err().sqlstate, "54001");
        assert_eq!(checked(&" ".repeat(BYTES_MAX + 1)).unwrap_err().sqlstate, "54000");
    }

    #[test]
    fn strings_are_unquoted_and_quoted() {
        for (string, text) in [
            ("\"\"", ""),
            ("\"a\\\"b\\\\c\\/\"", "a\"b\\c/"),
            ("\"\\u00e9\\t\"", "é\t"),
            ("\"\\ud83d\\ude00!\"", "😀!"),
        ] {
            assert_eq!(unquoted(string).unwrap(), text, "{string}");
        }
        for (string, sqlstate) in [
            ("\"\\u0000\"", "22P05"),
            ("\"\\ud83d\"", "22P02"),
            ("\"\\ud83dx\\ude00\"", "22P02"),
            ("\"\\ude00\"", "22P02"),
        ] {
            assert_eq!(unquoted(string).unwrap_err().sqlstate, sqlstate, "{string}");
        }
        let mut quoted = String::new();
        quote("a\"\\/\n\u{1}é", &mut quoted);
        assert_eq!(quoted, "\"a\\\"\\\\/\\n\\u0001é\"");
    }

    #[test]
    fn parts_are_slices_of_the_text() {
        let mut parts = Vec::new();
        assert!(elements(" [1, {\"a\" : 2 } ,\"x\"] ", |part| parts.push(part)).unwrap());
        assert_eq!(parts, ["1", "{\"a\" : 2 }", "\"x\""]);
        let mut pairs = Vec::new();
        assert!(members("{\"a\":1, \"b\" : [ ]}", |key, value| pairs.push((key, value))).unwrap());
        assert_eq!(pairs, [("\"a\"", "1"), ("\"b\"", "[ ]")]);
        assert!(!members("[]", |_, _| {}).unwrap() && !elements("1", |_| {}).unwrap());
    }
}

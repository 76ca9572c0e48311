//! RE2's syntax over bytes, by the regex crate.
//!
//! Bigtable evaluates patterns by RE2 in its Latin-1 mode, over whole keys, names and values: a byte is a letter. The
//! regex crate has another dialect, so patterns are translated: every literal becomes `\xNN`, and what only one of the
//! two knows is written out (`\C`, `\Q..\E`, octal numbers, `\s` without the vertical tab) or literal, as it is in RE2
//! (a brace that begins no repetition, and `[`, `&&`, `--` in a class). A pattern is a syntax error where RE2 says so;
//! classes of Unicode (`\p`) are not supported.
//!
//! Source: RE2's page of its syntax, and the comments of google/bigtable/v2/data.proto.

use std::fmt::Write as _;

use regex::bytes::{Regex, RegexBuilder};

/// Maximum bytes of a compiled pattern, as in RE2.
pub(super) const COMPILED_BYTES_MAX: usize = 8 << 20;
/// Maximum bytes of the states of a pattern that are kept while it is matched.
const STATES_BYTES_MAX: usize = 2 << 20;
/// Maximum number of a repetition, as in RE2.
const REPETITIONS_MAX: u32 = 1000;

/// A pattern that matches whole texts.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    matcher: Matcher,
    /// Bytes that every match begins with.
    prefix: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Matcher {
    /// The prefix is the only match.
    Literal,
    Regex(Regex),
}

impl Pattern {
    /// Compiles a pattern of RE2 to at most `bytes_max` bytes.
    ///
    /// # Errors
    /// A text that says why the pattern is not valid.
    pub(super) fn new(pattern: &[u8], bytes_max: usize) -> Result<Self, String> {
        let translated = Translator::new(pattern).translate()?;
        if translated.is_literal {
            return Ok(Self { matcher: Matcher::Literal, prefix: translated.prefix });
        }
        let regex = RegexBuilder::new(&format!("\\A(?:{})\\z", translated.text))
            .unicode(false)
            .size_limit(bytes_max)
            .dfa_size_limit(bytes_max.min(STATES_BYTES_MAX))
            .build()
            .map_err(|error| match error {
                regex::Error::CompiledTooBig(_) => "the pattern is too large".to_owned(),
                error => error.to_string(),
            })?;
        Ok(Self { matcher: Matcher::Regex(regex), prefix: translated.prefix })
    }

    /// Returns true if the pattern matches all of a text.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        match &self.matcher {
            Matcher::Literal => text == self.prefix,
            Matcher::Regex(regex) => text.starts_with(&self.prefix) && regex.is_match(text),
        }
    }

    /// Bytes that every match begins with.
    pub(super) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The only text that matches, if the pattern is one.
    pub(super) fn literal(&self) -> Option<&[u8]> {
        matches!(self.matcher, Matcher::Literal).then_some(&self.prefix[..])
    }
}

/// A pattern in the dialect of the regex crate.
struct Translated {
    text: String,
    prefix: Vec<u8>,
    is_literal: bool,
}

/// The construct before a place, to which a repetition would apply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Previous {
    Nothing,
    Literal,
    Repetition,
    Construct,
}

/// Reads a pattern once, from its first byte to its last one.
struct Translator<'a> {
    pattern: &'a [u8],
    position: usize,
    text: String,
    /// Number of open groups.
    depth: usize,
    previous: Previous,
    prefix: Vec<u8>,
    /// True while only literals were read.
    in_prefix: bool,
}

impl<'a> Translator<'a> {
    fn new(pattern: &'a [u8]) -> Self {
        Self {
            pattern,
            position: 0,
            text: String::new(),
            depth: 0,
            previous: Previous::Nothing,
            prefix: Vec::new(),
            in_prefix: true,
        }
    }

    fn translate(mut self) -> Result<Translated, String> {
        while let Some(byte) = self.take() {
            match byte {
                b'\\' => self.escape()?,
                b'[' => self.class()?,
                b'(' => self.open()?,
                b')' => self.close()?,
                b'|' => self.alternative(),
                b'*' | b'+' | b'?' => self.repeat(&char::from(byte).to_string())?,
                b'{' => match self.braces()? {
                    Some(braces) => self.repeat(&braces)?,
                    None => self.literal(byte),
                },
                b'.' | b'$' => self.construct(&char::from(byte).to_string()),
                // Patterns match whole texts, so an anchor at the beginning is redundant.
                b'^' if self.text.is_empty() && self.depth == 0 => {}
                b'^' => self.construct("^"),
                byte => self.literal(byte),
            }
        }
        if self.depth > 0 {
            return Err("missing closing )".to_owned());
        }
        Ok(Translated { text: self.text, prefix: self.prefix, is_literal: self.in_prefix })
    }

    fn peek(&self) -> Option<u8> {
        self.pattern.get(self.position).copied()
    }

    fn take(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.position += 1;
        Some(byte)
    }

    /// Reads a byte if it is the one that is expected.
    fn take_if(&mut self, expected: u8) -> bool {
        let is_next = self.peek() == Some(expected);
        self.position += usize::from(is_next);
        is_next
    }

    fn rest(&self) -> &'a [u8] {
        &self.pattern[self.position..]
    }

    fn literal(&mut self, byte: u8) {
        push_byte(&mut self.text, byte);
        if self.in_prefix {
            self.prefix.push(byte);
        }
        self.previous = Previous::Literal;
    }

    /// Appends a construct that is not a literal, in the syntax of the regex crate.
    fn construct(&mut self, text: &str) {
        self.text.push_str(text);
        self.in_prefix = false;
        self.previous = Previous::Construct;
    }

    fn alternative(&mut self) {
        self.text.push('|');
        self.in_prefix = false;
        self.previous = Previous::Nothing;
        if self.depth == 0 {
            self.prefix.clear();
        }
    }

    fn repeat(&mut self, operator: &str) -> Result<(), String> {
        match self.previous {
            Previous::Nothing => {
                return Err(format!("missing argument to repetition operator: {operator}"));
            }
            Previous::Repetition => return Err(format!("bad repetition operator: {operator}")),
            Previous::Literal if self.in_prefix => {
                self.prefix.pop();
            }
            Previous::Literal | Previous::Construct => {}
        }
        self.text.push_str(operator);
        if self.take_if(b'?') {
            self.text.push('?');
        }
        self.in_prefix = false;
        self.previous = Previous::Repetition;
        Ok(())
    }

    /// Reads the numbers of a repetition after its brace; `None`, and nothing is read, if the brace is a literal.
    fn braces(&mut self) -> Result<Option<String>, String> {
        let rest = self.rest();
        let Some(end) = rest.iter().position(|byte| *byte == b'}') else { return Ok(None) };
        let Ok(numbers) = std::str::from_utf8(&rest[..end]) else { return Ok(None) };
        let (least, most) = match numbers.split_once(',') {
            Some((least, most)) => (least, Some(most)),
            None => (numbers, None),
        };
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(least) || most.is_some_and(|most| !most.is_empty() && !is_number(most)) {
            return Ok(None);
        }
        let most = most.filter(|most| !most.is_empty());
        let bound = |text: &str| text.parse::<u32>().ok().filter(|count| *count <= REPETITIONS_MAX);
        let is_valid = match (bound(least), most.map(bound)) {
            (Some(least), Some(Some(most))) => least <= most,
            (Some(_), None) => true,
            _ => false,
        };
        if !is_valid {
            return Err(format!("invalid repetition size: {{{numbers}}}"));
        }
        self.position += end + 1;
        Ok(Some(format!("{{{numbers}}}")))
    }

    fn open(&mut self) -> Result<(), String> {
        if !self.take_if(b'?') {
            self.begin_group("(?:");
            return Ok(());
        }
        let rest = self.rest();
        let name = rest.strip_prefix(b"P<").or_else(|| rest.strip_prefix(b"<"));
        if let Some(name) = name
            && let Some(end) = name.iter().position(|byte| *byte == b'>')
        {
            let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
            if end == 0 || !name[..end].iter().all(is_word) {
                return Err("invalid named capture group".to_owned());
            }
            self.position += rest.len() - name.len() + end + 1;
            // No match asks for groups.
            self.begin_group("(?:");
            return Ok(());
        }
        self.flags()
    }

    fn begin_group(&mut self, text: &str) {
        self.text.push_str(text);
        self.depth += 1;
        self.in_prefix = false;
        self.previous = Previous::Nothing;
    }

    /// Reads flags after `(?`. They apply to a group of their own, or to the rest of the enclosing group.
    fn flags(&mut self) -> Result<(), String> {
        let invalid = || Err("invalid or unsupported Perl syntax".to_owned());
        let mut text = "(?".to_owned();
        let (mut is_negated, mut is_flagged) = (false, true);
        while let Some(byte) = self.take() {
            match byte {
                b'i' | b'm' | b's' | b'U' => is_flagged = true,
                b'-' if !is_negated => (is_negated, is_flagged) = (true, false),
                b':' if is_flagged => {
                    text.push(':');
                    self.begin_group(&text);
                    return Ok(());
                }
                b')' if is_flagged && text.len() > 2 => {
                    text.push(')');
                    self.construct(&text);
                    self.previous = Previous::Nothing;
                    return Ok(());
                }
                _ => return invalid(),
            }
            text.push(char::from(byte));
        }
        invalid()
    }

    fn close(&mut self) -> Result<(), String> {
        if self.depth == 0 {
            return Err("unexpected )".to_owned());
        }
        self.depth -= 1;
        self.construct(")");
        Ok(())
    }

    fn escape(&mut self) -> Result<(), String> {
        match self.peek() {
            Some(b'C') => self.construct("(?s:.)"),
            Some(byte @ (b'A' | b'z' | b'b' | b'B')) => {
                self.construct(&format!("\\{}", char::from(byte)));
            }
            Some(byte) if class_of(byte).is_some() => {
                self.construct(&format!("[{}]", class_of(byte).unwrap_or_default()));
            }
            Some(b'Q') => {
                self.position += 1;
                self.quoted();
                return Ok(());
            }
            _ => {
                let byte = self.escaped_byte()?;
                self.literal(byte);
                return Ok(());
            }
        }
        self.position += 1;
        Ok(())
    }

    /// Reads literals up to `\E` or the end.
    fn quoted(&mut self) {
        while let Some(byte) = self.take() {
            if byte == b'\\' && self.take_if(b'E') {
                return;
            }
            self.literal(byte);
        }
    }

    /// Reads a byte after its backslash.
    fn escaped_byte(&mut self) -> Result<u8, String> {
        let Some(byte) = self.take() else {
            return Err("trailing \\ at end of pattern".to_owned());
        };
        Ok(match byte {
            b'a' => 0x07,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0b,
            b'x' => self.hexadecimal()?,
            // One digit would be a reference to a group.
            b'0' => self.octal(0)?,
            b'1'..=b'7' if self.peek().is_some_and(is_octal) => self.octal(byte - b'0')?,
            b'p' | b'P' => return Err("classes of Unicode are not supported: \\p".to_owned()),
            byte if byte.is_ascii() && !byte.is_ascii_alphanumeric() => byte,
            byte => return Err(format!("invalid escape sequence: \\{}", byte.escape_ascii())),
        })
    }

    /// Reads up to two octal digits after the first one.
    fn octal(&mut self, first: u8) -> Result<u8, String> {
        let mut number = u16::from(first);
        for _ in 0..2 {
            let Some(digit) = self.peek().filter(|byte| is_octal(*byte)) else { break };
            number = number * 8 + u16::from(digit - b'0');
            self.position += 1;
        }
        u8::try_from(number).map_err(|_| format!("invalid escape sequence: \\{number:o}"))
    }

    fn hexadecimal(&mut self) -> Result<u8, String> {
        let invalid = || "invalid escape sequence: \\x".to_owned();
        let rest = self.rest();
        let (digits, length) = match rest.strip_prefix(b"{") {
            Some(braced) => {
                let end = braced.iter().position(|byte| *byte == b'}').ok_or_else(invalid)?;
                (&braced[..end], end + 2)
            }
            None => (rest.get(..2).ok_or_else(invalid)?, 2),
        };
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(invalid());
        }
        let digits = std::str::from_utf8(digits).map_err(|_| invalid())?;
        let byte = u8::from_str_radix(digits, 16).map_err(|_| invalid())?;
        self.position += length;
        Ok(byte)
    }

    /// Reads a class after its bracket.
    fn class(&mut self) -> Result<(), String> {
        let missing = || "missing closing ]".to_owned();
        let mut text = "[".to_owned();
        if self.take_if(b'^') {
            text.push('^');
        }
        let mut is_first = true;
        loop {
            let byte = self.peek().ok_or_else(missing)?;
            if byte == b']' && !is_first {
                self.position += 1;
                break;
            }
            is_first = false;
            if let Some(name) = self.posix_class()? {
                text.push_str(&name);
                continue;
            }
            if byte == b'\\'
                && let Some(members) = self.rest().get(1).and_then(|byte| class_of(*byte))
            {
                self.position += 2;
                let _ = write!(text, "[{members}]");
                continue;
            }
            let first = self.class_byte()?;
            push_byte(&mut text, first);
            // A hyphen before the closing bracket is a literal.
            if self.peek() == Some(b'-') && self.rest().get(1).is_some_and(|byte| *byte != b']') {
                self.position += 1;
                let last = self.class_byte()?;
                if last < first {
                    return Err("invalid character class range".to_owned());
                }
                text.push('-');
                push_byte(&mut text, last);
            }
        }
        text.push(']');
        self.construct(&text);
        Ok(())
    }

    fn class_byte(&mut self) -> Result<u8, String> {
        match self.take() {
            Some(b'\\') => self.escaped_byte(),
            Some(byte) => Ok(byte),
            None => Err("missing closing ]".to_owned()),
        }
    }

    /// Reads a class such as `[:alpha:]` in a class; `None`, and nothing is read, if there is none.
    fn posix_class(&mut self) -> Result<Option<String>, String> {
        const NAMES: [&str; 14] = [
            "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print",
            "punct", "space", "upper", "word", "xdigit",
        ];
        let Some(rest) = self.rest().strip_prefix(b"[:") else { return Ok(None) };
        let Some(end) = rest.windows(2).position(|pair| pair == b":]") else { return Ok(None) };
        let name = String::from_utf8_lossy(&rest[..end]);
        let bare = name.strip_prefix('^').unwrap_or(&name);
        if !NAMES.contains(&bare) {
            return Err(format!("invalid character class range: [:{name}:]"));
        }
        self.position += end + 4;
        Ok(Some(format!("[:{name}:]")))
    }
}

/// The members of a class that one letter names. RE2's spaces are without the vertical tab.
fn class_of(letter: u8) -> Option<&'static str> {
    Some(match letter {
        b'd' => "0-9",
        b'D' => "^0-9",
        b's' => r"\t\n\x0c\r\x20",
        b'S' => r"^\t\n\x0c\r\x20",
        b'w' => "0-9A-Za-z_",
        b'W' => "^0-9A-Za-z_",
        _ => return None,
    })
}

fn is_octal(byte: u8) -> bool {
    (b'0'..=b'7').contains(&byte)
}

fn push_byte(text: &mut String, byte: u8) {
    if byte.is_ascii_alphanumeric() {
        text.push(char::from(byte));
    } else {
        // Writing to a string cannot fail.
        let _ = write!(text, "\\x{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn compiled(pattern: &[u8]) -> Result<Pattern, String> {
        Pattern::new(pattern, COMPILED_BYTES_MAX)
    }

    fn matches(pattern: &[u8], text: &[u8]) -> bool {
        compiled(pattern).unwrap().matches(text)
    }

    #[test]
    fn patterns_match_whole_texts_byte_by_byte() {
        let cases: [(&[u8], &[u8], bool); 34] = [
            (b"abc", b"abc", true),
            (b"abc", b"abcd", false),
            (b"ab|c", b"c", true),
            (b"ab|c", b"abc", false),
            (b".*#20190501$", b"phone#4c410523#20190501", true),
            (b".*", b"a\nb", false),
            (b"\\C*", b"a\nb\xff\x00", true),
            (b"(?s).*", b"a\nb", true),
            (b".", b"\xff", true),
            // A byte is a letter, also that of a longer one.
            (b"caf..", "café".as_bytes(), true),
            ("é".as_bytes(), "é".as_bytes(), true),
            (b"\\xc3\\xa9", "é".as_bytes(), true),
            (b"\\x{ff}", b"\xff", true),
            (b"[\x80-\xff]+", "é".as_bytes(), true),
            (b"[^a]", b"\n", true),
            (b"\\Qa.b*\\E+", b"a.b**", true),
            (b"\\Qa.b", b"axb", false),
            (b"\\101\\60", b"A0", true),
            (b"\\0", b"\x00", true),
            (b"a{2}", b"aa", true),
            (b"a{,2}", b"a{,2}", true),
            (b"{", b"{", true),
            (b"x{a}", b"x{a}", true),
            (b"[[a]", b"[", true),
            (b"[a&&b]", b"&", true),
            (b"[]a]", b"]", true),
            (b"[a-]", b"-", true),
            (b"[[:^digit:]\\d]", b"5", true),
            (b"\\s", b"\x0b", false),
            (b"\\<", b"<", true),
            (b"(?P<name>a)(?<other>b)", b"ab", true),
            (b"(?i)STATS_.*", b"stats_summary", true),
            (b"a(?i)b", b"aB", true),
            (b"a\\b-\\bb", b"a-b", true),
        ];
        for (pattern, text, expected) in cases {
            let shown = pattern.escape_ascii();
            assert_eq!(matches(pattern, text), expected, "{shown} {}", text.escape_ascii());
        }
    }

    #[test]
    fn patterns_that_re2_refuses_are_refused() {
        let patterns: [&[u8]; 27] = [
            b"\\400",
            b"(",
            b")",
            b"a)(?:b",
            b"(a",
            b"*",
            b"+a",
            b"a**",
            b"a|*",
            b"(?=a)",
            b"(?!a)",
            b"(?<=a)",
            b"(?u:a)",
            b"(?x)a",
            b"(?)",
            b"(?i-)",
            b"\\",
            b"\\1",
            b"\\8",
            b"\\pL",
            b"\\x{100}",
            b"\\xg0",
            b"[a",
            b"[b-a]",
            b"[[:nothing:]]",
            b"a{2,1}",
            b"a{1001}",
        ];
        for pattern in patterns {
            assert!(compiled(pattern).is_err(), "{}", pattern.escape_ascii());
        }
        let large = compiled(b"((a{1000}){1000}){1000}").unwrap_err();
        assert_eq!(large, "the pattern is too large");
    }

    #[test]
    fn a_prefix_is_what_every_match_begins_with() {
        let cases: [(&[u8], &[u8], bool); 10] = [
            (b"phone#", b"phone#", true),
            (b"^phone#.*", b"phone#", false),
            (b"ab*", b"a", false),
            (b"ab?c", b"a", false),
            (b"ab+", b"a", false),
            (b"ab|ac", b"", false),
            (b"a(b|c)", b"a", false),
            (b"(?i)ab", b"", false),
            (b"", b"", true),
            (b"\\Qa.b\\E", b"a.b", true),
        ];
        for (text, prefix, is_literal) in cases {
            let pattern = compiled(text).unwrap();
            let shown = text.escape_ascii();
            assert_eq!(pattern.prefix(), prefix, "{shown}");
            assert_eq!(pattern.literal().is_some(), is_literal, "{shown}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_pattern_or_an_error(pattern in proptest::collection::vec(any::<u8>(), 0..24)) {
            if let Ok(pattern) = compiled(&pattern) {
                pattern.matches(b"abc");
            }
        }

        #[test]
        fn quoted_bytes_match_themselves_only(
            bytes in proptest::collection::vec(any::<u8>(), 0..12),
            text in proptest::collection::vec(any::<u8>(), 0..12),
        ) {
            let mut pattern = Vec::new();
            for byte in &bytes {
                pattern.extend(format!("\\x{byte:02x}").into_bytes());
            }
            pattern.extend_from_slice(b"(?:)");
            let pattern = compiled(&pattern).unwrap();
            prop_assert!(pattern.matches(&bytes));
            prop_assert_eq!(pattern.matches(&text), text == bytes);
        }
    }
}

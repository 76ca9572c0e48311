//! The grammar: where the parts of a line begin and end, and what its values are.
//!
//! ```text
//!   measurement[,tag=value]* SPACE+ field=value[,field=value]* [SPACE+ timestamp]
//! ```
//!
//! Everything here works on positions in the text and allocates nothing. Positions only ever stop next
//! to an ASCII byte, so slices between them are valid UTF-8.
//!
//! Two readings of one line exist. The *open* one does not know where the line ends and stops at the
//! first newline where one may be; it reads nearly all lines. The *closed* one is told the end by
//! [`line_end`], which decides as InfluxDB does whether a newline is inside a quoted string. The open
//! one gives up ([`Malformed::Odd`]) on whatever could make the two differ: a comma in a field key.

use std::borrow::Cow;

use memchr::{memchr, memchr2, memchr3};

/// Which of the two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// The text goes on behind the line.
    Open,
    /// The text ends with the line.
    Closed,
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// Only the closed reading can tell.
    Odd,
    /// The measurement is empty or holds a character it may not.
    Measurement,
    /// A comma follows the measurement, but `tag=value` pairs do not.
    Tags,
    /// No `field=value` follows the series.
    NoFields,
    /// A name or a tag value ends in a backslash.
    EndsInBackslash,
    /// An integer is out of range.
    Integer { from: usize, to: usize },
    /// An unsigned integer is out of range.
    Unsigned { from: usize, to: usize },
    /// A float is out of range.
    Float { from: usize, to: usize },
    /// A timestamp is out of range.
    Timestamp { from: usize, to: usize },
    /// A string has no end.
    UnclosedString,
    /// Something that does not belong there.
    Trailing { at: usize },
}

/// A field's value, not yet stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Float(f64),
    Integer(i64),
    Unsigned(u64),
    Boolean(bool),
    /// The text between the quotes, and whether it has escapes.
    String(&'a str, bool),
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n')
}

/// The end of the series (measurement and tags) that starts at `at`: its first unescaped space.
pub(super) fn series_end(bytes: &[u8], at: usize, reading: Reading) -> Result<usize, Malformed> {
    let mut at = at;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let found = match reading {
            Reading::Open => memchr3(b' ', b'\\', b'\n', rest),
            Reading::Closed => memchr2(b' ', b'\\', rest),
        };
        let Some(offset) = found else { return Err(Malformed::NoFields) };
        match rest[offset] {
            b' ' => return Ok(at + offset),
            // A backslash takes the next character with it, whatever that is.
            b'\\' => at += offset + 2,
            _ => return Err(Malformed::NoFields),
        }
    }
}

/// The measurement of a series, and where its tags begin (behind the comma), if it has any.
pub(super) fn measurement(series: &str) -> SeriesPart<'_, Cow<'_, str>> {
    let bytes = series.as_bytes();
    let mut at = 0;
    let mut escaped = false;
    while at < bytes.len() {
        match bytes[at] {
            b',' => break,
            b'\\' => {
                escaped = true;
                at = after_escape(series, at);
            }
            b'\0' | b'\t' | b'\n' => return Err(Malformed::Measurement),
            _ => at += 1,
        }
    }
    if at == 0 {
        return Err(Malformed::Measurement);
    }
    let name = name(&series[..at], escaped, b", \\")?;
    Ok((name, (at < bytes.len()).then_some(at + 1)))
}

/// A part of a series, and where the next tag begins, if there is one.
pub(super) type SeriesPart<'a, T> = Result<(T, Option<usize>), Malformed>;

/// The tag at `at` of a series, and where the next one begins.
pub(super) fn tag(series: &str, at: usize) -> SeriesPart<'_, (Cow<'_, str>, Cow<'_, str>)> {
    let (key_end, escaped) = name_end(series, at, b'=');
    if key_end == at || series.as_bytes().get(key_end) != Some(&b'=') {
        return Err(Malformed::Tags);
    }
    let (value, next) = tag_value(series, key_end + 1)?;
    let key = name(&series[at..key_end], escaped, b",= \\")?;
    Ok(((key, value), next))
}

/// The value at `at` of a series' tag, and where the next tag begins.
pub(super) fn tag_value(series: &str, at: usize) -> SeriesPart<'_, Cow<'_, str>> {
    let (end, escaped) = name_end(series, at, b',');
    if end == at {
        return Err(Malformed::Tags);
    }
    let next = match series.as_bytes().get(end) {
        None => None,
        Some(b',') => Some(end + 1),
        Some(_) => return Err(Malformed::Tags),
    };
    Ok((name(&series[at..end], escaped, b",= \\")?, next))
}

/// Whether a series has neither escapes nor characters that may not be there: then commas part its tags, and nothing
/// else does.
pub(super) fn is_plain(series: &str) -> bool {
    memchr3(b'\\', b'\t', b'\n', series.as_bytes()).is_none()
}

/// As [`tag_value`], of a series that is plain.
pub(super) fn plain_tag_value(series: &str, at: usize) -> SeriesPart<'_, Cow<'_, str>> {
    let comma = memchr(b',', &series.as_bytes()[at..]).map(|length| at + length);
    let value = &series[at..comma.unwrap_or(series.len())];
    if value.is_empty() {
        return Err(Malformed::Tags);
    }
    Ok((Cow::Borrowed(value), comma.map(|comma| comma + 1)))
}

/// The end of the field key at `at`, which is its unescaped `=`, and whether it has escapes.
pub(super) fn field_key(
    text: &str,
    at: usize,
    reading: Reading,
    first: bool,
) -> Result<(usize, bool), Malformed> {
    let bytes = text.as_bytes();
    let (key_end, escaped) = name_end(text, at, b'=');
    if key_end == at || bytes.get(key_end) != Some(&b'=') {
        return Err(if first {
            Malformed::NoFields
        } else {
            // What does not parse is the comma and all behind it.
            Malformed::Trailing { at: at - 1 }
        });
    }
    if reading == Reading::Open && bytes[at..key_end].contains(&b',') {
        return Err(Malformed::Odd);
    }
    Ok((key_end, escaped))
}

/// A field key without its escapes.
pub(super) fn field_name(raw: &str, escaped: bool) -> Result<Cow<'_, str>, Malformed> {
    name(raw, escaped, b",= \\")
}

/// Where a key or tag value stops: at `stop`, at a blank or with the text; and whether it has escapes.
fn name_end(text: &str, at: usize, stop: u8) -> (usize, bool) {
    let bytes = text.as_bytes();
    let mut at = at;
    let mut escaped = false;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => {
                escaped = true;
                at = after_escape(text, at);
            }
            byte if byte == stop || is_blank(byte) => break,
            _ => at += 1,
        }
    }
    (at, escaped)
}

/// Behind the backslash at `at` and the character that it takes with it.
fn after_escape(text: &str, at: usize) -> usize {
    let next = text[at + 1..].chars().next().map_or(0, char::len_utf8);
    at + 1 + next
}

/// A name without its escapes; a backslash before any other character stays.
fn name<'a>(raw: &'a str, escaped: bool, escapable: &[u8]) -> Result<Cow<'a, str>, Malformed> {
    if !escaped {
        return Ok(Cow::Borrowed(raw));
    }
    let mut plain = String::with_capacity(raw.len());
    let mut characters = raw.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            plain.push(character);
            continue;
        }
        let next = characters.next();
        if !next.is_some_and(|next| next.is_ascii() && escapable.contains(&(next as u8))) {
            plain.push('\\');
        }
        plain.extend(next);
    }
    if plain.ends_with('\\') { Err(Malformed::EndsInBackslash) } else { Ok(Cow::Owned(plain)) }
}

/// The value at `at`, and where it ends.
pub(super) fn value(text: &str, at: usize) -> Result<(Value<'_>, usize), Malformed> {
    let bytes = text.as_bytes();
    match bytes.get(at) {
        Some(b'-' | b'0'..=b'9') => super::number::number(text, at),
        Some(b'"') => string(text, at),
        Some(b't' | b'T' | b'f' | b'F') => boolean(bytes, at),
        _ => Err(Malformed::Trailing { at }),
    }
}

fn boolean(bytes: &[u8], at: usize) -> Result<(Value<'static>, usize), Malformed> {
    let rest = &bytes[at..];
    let long = [
        (&b"true"[..], true),
        (b"True", true),
        (b"TRUE", true),
        (b"false", false),
        (b"False", false),
        (b"FALSE", false),
    ];
    for (word, value) in long {
        if rest.starts_with(word) {
            return Ok((Value::Boolean(value), at + word.len()));
        }
    }
    // One letter; what follows it is for the caller to judge.
    Ok((Value::Boolean(matches!(rest[0], b't' | b'T')), at + 1))
}

fn string(text: &str, at: usize) -> Result<(Value<'_>, usize), Malformed> {
    let bytes = text.as_bytes();
    let from = at + 1;
    let mut at = from;
    let mut escaped = false;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(offset) = memchr2(b'"', b'\\', rest) else {
            return Err(Malformed::UnclosedString);
        };
        if rest[offset] == b'"' {
            let to = at + offset;
            return Ok((Value::String(&text[from..to], escaped), to + 1));
        }
        // Only a quote and a backslash can be escaped; before anything else it stands for itself.
        escaped = true;
        let takes_next = matches!(rest.get(offset + 1), Some(b'"' | b'\\'));
        at += offset + if takes_next { 2 } else { 1 };
    }
}

/// A string value without its escapes.
pub(super) fn unescape_string<'s>(raw: &str, scratch: &'s mut String) -> &'s str {
    scratch.clear();
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        scratch.push_str(&rest[..at]);
        let next = rest.as_bytes().get(at + 1);
        match next {
            Some(b'"') => scratch.push('"'),
            Some(b'\\') => scratch.push('\\'),
            _ => scratch.push('\\'),
        }
        rest = &rest[at + if matches!(next, Some(b'"' | b'\\')) { 2 } else { 1 }..];
    }
    scratch.push_str(rest);
    scratch
}

/// What follows the fields: an optional timestamp, spaces, and the end of the line. Returns the
/// timestamp and where the next line begins.
pub(super) fn tail(
    text: &str,
    at: usize,
    reading: Reading,
) -> Result<(Option<i64>, usize), Malformed> {
    let bytes = text.as_bytes();
    let spaces = |mut at: usize| {
        while at < bytes.len() && bytes[at] == b' ' {
            at += 1;
        }
        at
    };
    let from = spaces(at);
    if let Some(next) = line_over(bytes, from, reading) {
        return Ok((None, next));
    }
    if from == at {
        return Err(Malformed::Trailing { at });
    }
    let digits = from + usize::from(bytes[from] == b'-');
    let mut to = digits;
    while to < bytes.len() && bytes[to].is_ascii_digit() {
        to += 1;
    }
    if to == digits {
        return Err(Malformed::Trailing { at });
    }
    let Some(timestamp) = super::number::integer(&bytes[digits..to], digits > from) else {
        return Err(Malformed::Timestamp { from, to });
    };
    let behind = spaces(to);
    match line_over(bytes, behind, reading) {
        Some(next) => Ok((Some(timestamp), next)),
        None => Err(Malformed::Trailing { at: behind }),
    }
}

/// Where the next line begins if this one is over at `at`.
fn line_over(bytes: &[u8], at: usize, reading: Reading) -> Option<usize> {
    match reading {
        Reading::Closed => (at >= bytes.len()).then_some(at),
        Reading::Open => match (bytes.get(at), bytes.get(at + 1)) {
            (None, _) => Some(at),
            (Some(b'\n'), _) => Some(at + 1),
            (Some(b'\r'), None) => Some(at + 1),
            (Some(b'\r'), Some(b'\n')) => Some(at + 2),
            _ => None,
        },
    }
}

/// Where the line that starts at `at` ends (at its newline or with the text), as InfluxDB sees it: a
/// newline behind a backslash or in a quoted field value does not end a line, and a quote opens a
/// value only behind a field's `=`.
pub(super) fn line_end(bytes: &[u8], at: usize) -> usize {
    let mut at = at;
    let (mut in_fields, mut quoted) = (false, false);
    let (mut equals, mut commas) = (0_usize, 0_usize);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            b' ' => in_fields = true,
            b'=' if in_fields && !quoted => equals += 1,
            b',' if in_fields && !quoted => commas += 1,
            b'"' if in_fields && equals > commas => quoted = !quoted,
            b'\n' if !quoted => return at,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// The first byte of `from..to` that is not blank.
pub(super) fn skip_blank(bytes: &[u8], from: usize, to: usize) -> usize {
    (from..to).find(|&at| !is_blank(bytes[at])).unwrap_or(to)
}

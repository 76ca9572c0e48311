//! The grammar: the extent of a line's parts, and its values.
//!
//! ```text
//!   measurement[,tag=value]* SPACE+ field=value[,field=value]* [SPACE+ timestamp]
//! ```
//!
//! Everything here works on positions in the text and allocates nothing. Positions only stop next to an ASCII byte, so
//! slices between them are valid UTF-8.
//!
//! There are two readings of a line. The *open* reading does not know where the line ends, and stops at the first
//! newline that may end it; it reads nearly all lines. The *closed* reading gets the end from [`line_end`], which
//! decides as InfluxDB does whether a newline is inside a quoted string. The open reading gives up ([`Malformed::Odd`])
//! on anything that could make the two differ: a comma in a field key.

use std::borrow::Cow;

use memchr::{memchr, memchr2, memchr3};

/// The way to read a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// The text continues after the line.
    Open,
    /// The text ends with the line.
    Closed,
}

/// The error of a malformed line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// Only the closed reading can decide.
    Odd,
    /// The measurement is empty, or has an invalid character.
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
    /// A string has no closing quote.
    UnclosedString,
    /// Unexpected text.
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

/// The end of the series (measurement and tags) that begins at `start`: its first unescaped space.
pub(super) fn series_end(bytes: &[u8], start: usize, reading: Reading) -> Result<usize, Malformed> {
    let mut position = start;
    loop {
        let rest = bytes.get(position..).unwrap_or_default();
        let separator = match reading {
            Reading::Open => memchr3(b' ', b'\\', b'\n', rest),
            Reading::Closed => memchr2(b' ', b'\\', rest),
        };
        let Some(offset) = separator else { return Err(Malformed::NoFields) };
        match rest[offset] {
            b' ' => return Ok(position + offset),
            // A backslash escapes the next character, whatever it is.
            b'\\' => position += offset + 2,
            _ => return Err(Malformed::NoFields),
        }
    }
}

/// The measurement of a series, and the start of its tags (after the comma), if it has any.
pub(super) fn measurement(series: &str) -> SeriesPart<'_, Cow<'_, str>> {
    let bytes = series.as_bytes();
    let mut end = 0;
    let mut escaped = false;
    while end < bytes.len() {
        match bytes[end] {
            b',' => break,
            b'\\' => {
                escaped = true;
                end = after_escape(series, end);
            }
            b'\0' | b'\t' | b'\n' => return Err(Malformed::Measurement),
            _ => end += 1,
        }
    }
    if end == 0 {
        return Err(Malformed::Measurement);
    }
    let name = name(&series[..end], escaped, b", \\")?;
    Ok((name, (end < bytes.len()).then_some(end + 1)))
}

/// A part of a series, and the start of the next tag, if there is one.
pub(super) type SeriesPart<'a, T> = Result<(T, Option<usize>), Malformed>;

/// The tag at `start` of a series, and the start of the next one.
pub(super) fn tag(series: &str, start: usize) -> SeriesPart<'_, (Cow<'_, str>, Cow<'_, str>)> {
    let (key_end, escaped) = name_end(series, start, b'=');
    if key_end == start || series.as_bytes().get(key_end) != Some(&b'=') {
        return Err(Malformed::Tags);
    }
    let (value, next) = tag_value(series, key_end + 1)?;
    let key = name(&series[start..key_end], escaped, b",= \\")?;
    Ok(((key, value), next))
}

/// The value at `start` of a series' tag, and the start of the next tag.
pub(super) fn tag_value(series: &str, start: usize) -> SeriesPart<'_, Cow<'_, str>> {
    let (end, escaped) = name_end(series, start, b',');
    if end == start {
        return Err(Malformed::Tags);
    }
    let next = match series.as_bytes().get(end) {
        None => None,
        Some(b',') => Some(end + 1),
        Some(_) => return Err(Malformed::Tags),
    };
    Ok((name(&series[start..end], escaped, b",= \\")?, next))
}

/// Returns true if a series has neither escapes nor invalid characters: then its tags are separated exactly at its
/// commas.
pub(super) fn is_plain(series: &str) -> bool {
    memchr3(b'\\', b'\t', b'\n', series.as_bytes()).is_none()
}

/// Like [`tag_value`], for a plain series.
pub(super) fn plain_tag_value(series: &str, start: usize) -> SeriesPart<'_, Cow<'_, str>> {
    let comma = memchr(b',', &series.as_bytes()[start..]).map(|length| start + length);
    let value = &series[start..comma.unwrap_or(series.len())];
    if value.is_empty() {
        return Err(Malformed::Tags);
    }
    Ok((Cow::Borrowed(value), comma.map(|comma| comma + 1)))
}

/// The end of the field key at `start`, which is its unescaped `=`, and whether it has escapes.
pub(super) fn field_key(
    text: &str,
    start: usize,
    reading: Reading,
    first: bool,
) -> Result<(usize, bool), Malformed> {
    let bytes = text.as_bytes();
    let (key_end, escaped) = name_end(text, start, b'=');
    if key_end == start || bytes.get(key_end) != Some(&b'=') {
        return Err(if first {
            Malformed::NoFields
        } else {
            // The comma and everything after it is unexpected.
            Malformed::Trailing { at: start - 1 }
        });
    }
    if reading == Reading::Open && bytes[start..key_end].contains(&b',') {
        return Err(Malformed::Odd);
    }
    Ok((key_end, escaped))
}

/// A field key without its escapes.
pub(super) fn field_name(raw: &str, escaped: bool) -> Result<Cow<'_, str>, Malformed> {
    name(raw, escaped, b",= \\")
}

/// The end of a key or tag value: at `stop`, at a blank or with the text; and whether it has escapes.
fn name_end(text: &str, start: usize, stop: u8) -> (usize, bool) {
    let bytes = text.as_bytes();
    let mut position = start;
    let mut escaped = false;
    while position < bytes.len() {
        match bytes[position] {
            b'\\' => {
                escaped = true;
                position = after_escape(text, position);
            }
            byte if byte == stop || is_blank(byte) => break,
            _ => position += 1,
        }
    }
    (position, escaped)
}

/// The position after the backslash at `backslash` and the character that it escapes.
fn after_escape(text: &str, backslash: usize) -> usize {
    let next = text[backslash + 1..].chars().next().map_or(0, char::len_utf8);
    backslash + 1 + next
}

/// A name without its escapes; a backslash before any other character is kept.
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

/// The value at `start`, and its end.
pub(super) fn value(text: &str, start: usize) -> Result<(Value<'_>, usize), Malformed> {
    let bytes = text.as_bytes();
    match bytes.get(start) {
        Some(b'-' | b'0'..=b'9') => super::number::number(text, start),
        Some(b'"') => string(text, start),
        Some(b't' | b'T' | b'f' | b'F') => boolean(bytes, start),
        _ => Err(Malformed::Trailing { at: start }),
    }
}

fn boolean(bytes: &[u8], start: usize) -> Result<(Value<'static>, usize), Malformed> {
    let rest = &bytes[start..];
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
            return Ok((Value::Boolean(value), start + word.len()));
        }
    }
    // A single letter; the caller checks what follows.
    Ok((Value::Boolean(matches!(rest[0], b't' | b'T')), start + 1))
}

fn string(text: &str, start: usize) -> Result<(Value<'_>, usize), Malformed> {
    let bytes = text.as_bytes();
    let text_start = start + 1;
    let mut position = text_start;
    let mut escaped = false;
    loop {
        let rest = bytes.get(position..).unwrap_or_default();
        let Some(offset) = memchr2(b'"', b'\\', rest) else {
            return Err(Malformed::UnclosedString);
        };
        if rest[offset] == b'"' {
            let end = position + offset;
            return Ok((Value::String(&text[text_start..end], escaped), end + 1));
        }
        // Only a quote and a backslash can be escaped; before other characters a backslash is itself.
        escaped = true;
        let takes_next = matches!(rest.get(offset + 1), Some(b'"' | b'\\'));
        position += offset + if takes_next { 2 } else { 1 };
    }
}

/// A string value without its escapes.
pub(super) fn unescape_string<'s>(raw: &str, scratch: &'s mut String) -> &'s str {
    scratch.clear();
    let mut rest = raw;
    while let Some(backslash) = rest.find('\\') {
        scratch.push_str(&rest[..backslash]);
        let next = rest.as_bytes().get(backslash + 1);
        match next {
            Some(b'"') => scratch.push('"'),
            Some(b'\\') => scratch.push('\\'),
            _ => scratch.push('\\'),
        }
        rest = &rest[backslash + if matches!(next, Some(b'"' | b'\\')) { 2 } else { 1 }..];
    }
    scratch.push_str(rest);
    scratch
}

/// Reads the rest of a line after the fields: an optional timestamp, spaces, and the end of the line. Returns the
/// timestamp and the start of the next line.
pub(super) fn tail(
    text: &str,
    start: usize,
    reading: Reading,
) -> Result<(Option<i64>, usize), Malformed> {
    // The line may end without a timestamp.
    let bytes = text.as_bytes();
    let spaces = |mut position: usize| {
        while position < bytes.len() && bytes[position] == b' ' {
            position += 1;
        }
        position
    };
    let timestamp_start = spaces(start);
    if let Some(next) = line_over(bytes, timestamp_start, reading) {
        return Ok((None, next));
    }
    // A timestamp is separated by spaces, and consists of digits with an optional minus sign.
    if timestamp_start == start {
        return Err(Malformed::Trailing { at: start });
    }
    let digits = timestamp_start + usize::from(bytes[timestamp_start] == b'-');
    let mut end = digits;
    while end < bytes.len() && bytes[end].is_ascii_digit() {
        end += 1;
    }
    if end == digits {
        return Err(Malformed::Trailing { at: start });
    }
    let Some(timestamp) = super::number::integer(&bytes[digits..end], digits > timestamp_start)
    else {
        return Err(Malformed::Timestamp { from: timestamp_start, to: end });
    };
    // Only spaces may follow it.
    let rest = spaces(end);
    match line_over(bytes, rest, reading) {
        Some(next) => Ok((Some(timestamp), next)),
        None => Err(Malformed::Trailing { at: rest }),
    }
}

/// The start of the next line, if this one ends at `end`.
fn line_over(bytes: &[u8], end: usize, reading: Reading) -> Option<usize> {
    match reading {
        Reading::Closed => (end >= bytes.len()).then_some(end),
        Reading::Open => match (bytes.get(end), bytes.get(end + 1)) {
            (None, _) => Some(end),
            (Some(b'\n'), _) => Some(end + 1),
            (Some(b'\r'), None) => Some(end + 1),
            (Some(b'\r'), Some(b'\n')) => Some(end + 2),
            _ => None,
        },
    }
}

/// The end of the line that starts at `start` (its newline, or the end of the text), as in InfluxDB: a newline after a
/// backslash or in a quoted field value does not end a line, and a quote opens a value only after a field's `=`.
pub(super) fn line_end(bytes: &[u8], start: usize) -> usize {
    let mut position = start;
    let (mut in_fields, mut quoted) = (false, false);
    let (mut equals, mut commas) = (0_usize, 0_usize);
    while let Some(&byte) = bytes.get(position) {
        match byte {
            b'\\' => position += 1,
            b' ' => in_fields = true,
            b'=' if in_fields && !quoted => equals += 1,
            b',' if in_fields && !quoted => commas += 1,
            b'"' if in_fields && equals > commas => quoted = !quoted,
            b'\n' if !quoted => return position,
            _ => {}
        }
        position += 1;
    }
    bytes.len()
}

/// The first byte of `start..end` that is not blank.
pub(super) fn skip_blank(bytes: &[u8], start: usize, end: usize) -> usize {
    (start..end).find(|&position| !is_blank(bytes[position])).unwrap_or(end)
}

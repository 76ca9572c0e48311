//! Regular expression functions that DataFusion lacks, as in PostgreSQL.
//!
//! ```text
//!   regexp_substr(text, pattern [, start [, n [, flags [, group]]]])    the nth match, or a group of it
//!   regexp_split_to_array(text, pattern [, flags])                      the parts between matches
//!   regexp_all_matches(text, pattern, flags)                            an array of the rows of `regexp_matches`
//!   regexp_replace_nth(text, pattern, to, start [, n [, flags]])        `regexp_replace` with these arguments
//! ```
//!
//! Patterns have the syntax of the regex crate, as in DataFusion's functions, except where PostgreSQL's differs
//! ([`pattern`]). Their size is bounded as in DataFusion's wrapped functions, and a pattern is compiled once for
//! adjacent rows that share it.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, ArrayBuilder, ArrayRef, ListBuilder, StringArray, StringBuilder};
use arrow::datatypes::{DataType, Field};
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;
use regex::{Regex, RegexBuilder};

use crate::bounded::{check_size, check_total};
use crate::error::{INVALID_PARAMETER_VALUE, INVALID_REGULAR_EXPRESSION, SqlError};
use crate::plain::{Plain, Texts, is_text, is_whole, texts, wholes};

/// Maximum bytes of a pattern; compiled, it takes a thousand times as much.
const PATTERN_BYTES_MAX: usize = 16 << 10;
/// Approximate bytes of an element of an array.
const ELEMENT_BYTES: u64 = 16;

/// The functions to register.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [&SUBSTR, &SPLIT, &ALL_MATCHES, &REPLACE_NTH].into_iter().map(Plain::function)
}

/// Cache of one compiled pattern with its flags.
#[derive(Default)]
pub(crate) struct Compiled {
    cached: Option<(String, String, Regex)>,
}

impl Compiled {
    pub(crate) fn of(&mut self, pattern: &str, flags: &str) -> Result<&Regex, SqlError> {
        let is_cached = self.cached.as_ref().is_some_and(|(p, f, _)| p == pattern && f == flags);
        if !is_cached {
            self.cached = Some((pattern.to_owned(), flags.to_owned(), compiled(pattern, flags)?));
        }
        match &self.cached {
            Some((_, _, regex)) => Ok(regex),
            None => Err(SqlError::internal("pattern cache is empty")),
        }
    }
}

fn compiled(pattern: &str, flags: &str) -> Result<Regex, SqlError> {
    let invalid = |message: String| SqlError::new(INVALID_REGULAR_EXPRESSION, message);
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(invalid(format!("regular expression exceeds {PATTERN_BYTES_MAX} bytes")));
    }
    // The flag `q` makes the pattern a literal string.
    let escaped;
    let mut builder = if flags.contains('q') {
        escaped = regex::escape(pattern);
        RegexBuilder::new(&escaped)
    } else {
        RegexBuilder::new(&self::pattern(pattern, "n"))
    };
    // In PostgreSQL, unless a flag changes it, `.` matches newlines, and `^` and `$` match only at the ends of the
    // text.
    builder.dot_matches_new_line(true);
    for flag in flags.chars() {
        match flag {
            'i' => builder.case_insensitive(true),
            'c' => builder.case_insensitive(false),
            'n' | 'm' => builder.dot_matches_new_line(false).multi_line(true),
            'p' => builder.dot_matches_new_line(false),
            'w' => builder.multi_line(true),
            's' => builder.dot_matches_new_line(true).multi_line(false),
            'x' => builder.ignore_whitespace(true),
            'g' | 'e' | 'q' | 't' => &mut builder,
            _ => {
                let message = format!("invalid regular expression option: \"{flag}\"");
                return Err(SqlError::new(INVALID_PARAMETER_VALUE, message));
            }
        };
    }
    builder.build().map_err(|error| invalid(format!("invalid regular expression: {error}")))
}

/// Characters of words: letters and digits, without combining marks.
const WORD: &str = r"\p{Alphabetic}\p{Nd}_";
const NO_WORD: &str = r"[^\p{Alphabetic}\p{Nd}_]";

/// Translates a pattern of PostgreSQL to the syntax of the regex crate:
///
/// ```text
///   .          matches newlines, unless a flag (`n`, `p`, `m`) excludes them
///   \w \W \d   combining marks are not part of a word, digits are 0 to 9
///   \y \Y      \b and \B: at a word boundary, or not at one
///   \m \M \Z   the start and the end of a word, and the end of the text
///   [[&]       an opening bracket and set operators are literal in brackets
/// ```
///
/// The translation of a translated pattern is the pattern itself.
pub fn pattern<'a>(pattern: &'a str, flags: &str) -> Cow<'a, str> {
    let mut written = String::with_capacity(pattern.len() + 8);
    let mut letters = pattern.char_indices().peekable();
    let (mut has_point, mut in_brackets) = (false, false);
    while let Some((index, letter)) = letters.next() {
        match letter {
            // Escapes that mean something else, or nothing, in the regex crate.
            '\\' => {
                let Some((_, escaped)) = letters.next() else {
                    written.push('\\');
                    break;
                };
                written.push_str(match (escaped, in_brackets) {
                    ('w', true) => WORD,
                    ('w', false) => r"[\p{Alphabetic}\p{Nd}_]",
                    ('W', _) => NO_WORD,
                    ('d', true) => "0-9",
                    ('d', false) => "[0-9]",
                    ('D', _) => "[^0-9]",
                    ('y', false) => r"\b",
                    ('Y', false) => r"\B",
                    ('m', false) => r"\b{start}",
                    ('M', false) => r"\b{end}",
                    ('Z', false) => r"\z",
                    _ => {
                        written.push('\\');
                        written.push(escaped);
                        continue;
                    }
                });
            }
            // Named classes, and classes that a translation wrote, stay; other brackets are escaped.
            '[' if in_brackets => {
                let rest = &pattern[index..];
                let class = rest.starts_with("[:").then(|| rest.find(":]")).flatten();
                if let Some(end) = class {
                    written.push_str(&rest[..end + 2]);
                    while letters.next_if(|(place, _)| *place < index + end + 2).is_some() {}
                } else if let Some(length) = [NO_WORD, "[^0-9]"]
                    .iter()
                    .find(|ours| rest.starts_with(**ours))
                    .map(|s| s.len())
                {
                    written.push_str(&rest[..length]);
                    while letters.next_if(|(place, _)| *place < index + length).is_some() {}
                } else {
                    written.push_str(r"\[");
                }
            }
            '&' | '~' if in_brackets => {
                written.push('\\');
                written.push(letter);
            }
            '[' => {
                in_brackets = true;
                written.push('[');
                if letters.next_if(|(_, next)| *next == '^').is_some() {
                    written.push('^');
                }
                // A bracket in the first position is literal.
                if letters.next_if(|(_, next)| *next == ']').is_some() {
                    written.push_str(r"\]");
                }
            }
            ']' => {
                in_brackets = false;
                written.push(']');
            }
            _ => {
                has_point |= letter == '.' && !in_brackets;
                written.push(letter);
            }
        }
    }
    // A flag in the pattern, because DataFusion's functions compile it without this setting.
    let of_lines = flags.contains(['n', 'p', 'm']);
    if has_point && !of_lines && !written.starts_with("(?s)") {
        written.insert_str(0, "(?s)");
    }
    if written == pattern { Cow::Borrowed(pattern) } else { Cow::Owned(written) }
}

fn list_of_texts(_: &[DataType]) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)))
}

/// Flags of a row. They are an optional argument, and rows with a NULL argument are skipped before.
fn flags_of(flags: Option<&StringArray>, row: usize) -> &str {
    flags.map_or("", |flags| flags.value(row))
}

static SUBSTR: Plain = Plain {
    name: "regexp_substr",
    takes: |types| match types {
        [text, pattern, rest @ ..] if is_text(text) && is_text(pattern) && rest.len() <= 4 => {
            let mut coerced = vec![DataType::Utf8; 2];
            for (position, data_type) in rest.iter().enumerate() {
                let is_flags = position == 2;
                if is_flags && !is_text(data_type) || !is_flags && !is_whole(data_type) {
                    return None;
                }
                coerced.push(if is_flags { DataType::Utf8 } else { DataType::Int64 });
            }
            Some(coerced)
        }
        _ => None,
    },
    gives: |_| DataType::Utf8,
    run: |arguments| {
        let (values, patterns) = (texts(&arguments[0])?, texts(&arguments[1])?);
        let number = |position: usize| arguments.get(position).map(wholes).transpose();
        let (starts, counts, groups) = (number(2)?, number(3)?, number(5)?);
        let flags = arguments.get(4).map(texts).transpose()?;
        let mut compiled = Compiled::default();
        let mut results = Texts::new("regexp_substr", values.len());
        for row in 0..values.len() {
            if arguments.iter().any(|argument| argument.is_null(row)) {
                results.push(None::<&str>)?;
                continue;
            }
            let parameter = |numbers: &Option<arrow::array::Int64Array>, name: &str, least: i64| {
                let number = numbers.as_ref().map_or(least, |numbers| numbers.value(row));
                usize::try_from(number).ok().filter(|_| number >= least).ok_or_else(|| {
                    let message = format!("invalid value for parameter \"{name}\": {number}");
                    SqlError::new(INVALID_PARAMETER_VALUE, message)
                })
            };
            let (start, count) = (parameter(&starts, "start", 1)?, parameter(&counts, "n", 1)?);
            let group = parameter(&groups, "subexpr", 0)?;
            let regex = compiled.of(patterns.value(row), flags_of(flags.as_ref(), row))?;
            let value = values.value(row);
            let offset = value.char_indices().nth(start - 1).map(|(offset, _)| offset);
            let matched = offset.and_then(|offset| {
                regex.captures_iter(&value[offset..]).nth(count - 1)?.get(group).map(|m| m.as_str())
            });
            results.push(matched)?;
        }
        Ok(results.finish())
    },
};

fn text_pattern_flags(types: &[DataType]) -> Option<Vec<DataType>> {
    let counts = types.len() == 2 || types.len() == 3;
    (counts && types.iter().all(is_text)).then(|| vec![DataType::Utf8; types.len()])
}

/// Builder of arrays of texts that bounds their size.
struct Lists {
    name: &'static str,
    builder: ListBuilder<StringBuilder>,
    rows: usize,
    total: u64,
}

impl Lists {
    fn new(name: &'static str, rows: usize) -> Self {
        Self { name, builder: ListBuilder::new(StringBuilder::new()), rows, total: 0 }
    }

    fn add(&mut self, text: Option<&str>) -> Result<()> {
        let size = u64::try_from(text.map_or(0, str::len)).unwrap_or(u64::MAX);
        check_size(self.name, size)?;
        self.total = self.total.saturating_add(size + ELEMENT_BYTES);
        check_total(self.name, self.rows, self.total)?;
        self.builder.values().append_option(text);
        Ok(())
    }
}

static SPLIT: Plain = Plain {
    name: "regexp_split_to_array",
    takes: text_pattern_flags,
    gives: list_of_texts,
    run: |arguments| {
        let (values, patterns) = (texts(&arguments[0])?, texts(&arguments[1])?);
        let flags = arguments.get(2).map(texts).transpose()?;
        let mut compiled = Compiled::default();
        let mut lists = Lists::new("regexp_split_to_array", values.len());
        for row in 0..values.len() {
            let is_null = arguments.iter().any(|argument| argument.is_null(row));
            if !is_null {
                let flags = flags_of(flags.as_ref(), row);
                if flags.contains('g') {
                    let message = "regexp_split_to_array() does not support the \"global\" option";
                    return Err(SqlError::new(INVALID_PARAMETER_VALUE, message).into());
                }
                let regex = compiled.of(patterns.value(row), flags)?;
                let value = values.value(row);
                let mut start = 0;
                for matched in regex.find_iter(value) {
                    // An empty match at an end of the text, or right after another match, separates nothing.
                    if matched.is_empty()
                        && (matched.start() == start || matched.end() == value.len())
                    {
                        continue;
                    }
                    lists.add(Some(&value[start..matched.start()]))?;
                    start = matched.end();
                }
                lists.add(Some(&value[start..]))?;
            }
            lists.builder.append(!is_null);
        }
        Ok(Arc::new(lists.builder.finish()))
    },
};

fn list_of_lists(types: &[DataType]) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(list_of_texts(types), true)))
}

static ALL_MATCHES: Plain = Plain {
    name: "regexp_all_matches",
    takes: text_pattern_flags,
    gives: list_of_lists,
    run: |arguments| {
        let (values, patterns) = (texts(&arguments[0])?, texts(&arguments[1])?);
        let flags = arguments.get(2).map(texts).transpose()?;
        let mut compiled = Compiled::default();
        let mut lists = Lists::new("regexp_matches", values.len());
        // Offsets of the matches of each row.
        let mut ends = vec![0_i32];
        for row in 0..values.len() {
            if !arguments.iter().any(|argument| argument.is_null(row)) {
                let flags = flags_of(flags.as_ref(), row);
                let regex = compiled.of(patterns.value(row), flags)?;
                let most = if flags.contains('g') { usize::MAX } else { 1 };
                for captures in regex.captures_iter(values.value(row)).take(most) {
                    let groups = if captures.len() == 1 { 0..1 } else { 1..captures.len() };
                    for group in groups {
                        lists.add(captures.get(group).map(|group| group.as_str()))?;
                    }
                    lists.builder.append(true);
                }
            }
            ends.push(i32::try_from(lists.builder.len()).unwrap_or(i32::MAX));
        }
        let inner: ArrayRef = Arc::new(lists.builder.finish());
        let field = Arc::new(Field::new_list_field(inner.data_type().clone(), true));
        let offsets = arrow::buffer::OffsetBuffer::new(ends.into());
        Ok(Arc::new(arrow::array::ListArray::try_new(field, offsets, inner, None)?))
    },
};

static REPLACE_NTH: Plain = Plain {
    name: "regexp_replace_nth",
    takes: |types| match types {
        [value, pattern, replacement, start, rest @ ..]
            if [value, pattern, replacement].iter().all(|data_type| is_text(data_type))
                && is_whole(start) =>
        {
            let mut coerced = vec![DataType::Utf8, DataType::Utf8, DataType::Utf8, DataType::Int64];
            match rest {
                [] => {}
                [count] if is_whole(count) => coerced.push(DataType::Int64),
                [count, flags] if is_whole(count) && is_text(flags) => {
                    coerced.extend([DataType::Int64, DataType::Utf8]);
                }
                _ => return None,
            }
            Some(coerced)
        }
        _ => None,
    },
    gives: |_| DataType::Utf8,
    run: |arguments| {
        let (values, patterns, replacements) =
            (texts(&arguments[0])?, texts(&arguments[1])?, texts(&arguments[2])?);
        let (starts, counts) = (wholes(&arguments[3])?, arguments.get(4).map(wholes).transpose()?);
        let flags = arguments.get(5).map(texts).transpose()?;
        let mut compiled = Compiled::default();
        let mut results = Texts::new("regexp_replace", values.len());
        for row in 0..values.len() {
            if arguments.iter().any(|argument| argument.is_null(row)) {
                results.push(None::<&str>)?;
                continue;
            }
            let number = |name: &str, number: i64, least: i64| {
                usize::try_from(number).ok().filter(|_| number >= least).ok_or_else(|| {
                    let message = format!("invalid value for parameter \"{name}\": {number}");
                    SqlError::new(INVALID_PARAMETER_VALUE, message)
                })
            };
            let start = number("start", starts.value(row), 1)?;
            let nth = counts.as_ref().map_or(1, |counts| counts.value(row));
            let nth = number("n", nth, 0)?;
            let regex = compiled.of(patterns.value(row), flags_of(flags.as_ref(), row))?;
            let template = replacement(replacements.value(row));
            results.push(Some(replaced(regex, values.value(row), &template, start, nth)?))?;
        }
        Ok(results.finish())
    },
};

/// A text with its nth match replaced, or all matches for 0. Matches are counted from the character `start`.
fn replaced(regex: &Regex, text: &str, template: &str, start: usize, nth: usize) -> Result<String> {
    let Some((mut offset, _)) = text.char_indices().chain([(text.len(), ' ')]).nth(start - 1)
    else {
        return Ok(text.to_owned());
    };
    let (mut output, mut copied_end, mut count) = (String::new(), 0, 0);
    while offset <= text.len()
        && let Some(captures) = regex.captures_at(text, offset)
        && let Some(whole) = captures.get(0)
    {
        count += 1;
        if nth == 0 || count == nth {
            output.push_str(&text[copied_end..whole.start()]);
            captures.expand(template, &mut output);
            copied_end = whole.end();
            check_size("regexp_replace", output.len() as u64)?;
            if nth != 0 {
                break;
            }
        }
        offset = whole.end();
        if whole.is_empty() {
            // After an empty match the search continues one character later.
            offset += text[offset..].chars().next().map_or(1, char::len_utf8);
        }
    }
    output.push_str(&text[copied_end..]);
    Ok(output)
}

/// Translates a replacement of PostgreSQL to the regex crate's: `\1` is a group, `\&` the match, `\\` a backslash, and
/// `$` a literal dollar.
pub(crate) fn replacement(text: &str) -> String {
    let mut template = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '$' => template.push_str("$$"),
            '\\' => match letters.next() {
                Some(digit @ '0'..='9') => template.push_str(&format!("${{{digit}}}")),
                Some('&') => template.push_str("${0}"),
                Some('\\') | None => template.push('\\'),
                Some(escaped) => template.extend(['\\', escaped]),
            },
            _ => template.push(letter),
        }
    }
    template
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(text: &str) -> ArrayRef {
        Arc::new(StringArray::from(vec![text]))
    }

    fn shown(of: &ArrayRef) -> String {
        arrow::util::display::array_value_to_string(of, 0).unwrap()
    }

    #[test]
    fn patterns_mean_what_they_mean_in_postgresql() {
        for (of, value, found) in [
            ("a.c", "a\nc", "a\nc"),
            ("[.]", "a.", "."),
            (r"\w+", "e\u{301}f", "e"),
            (r"[\w]+", "e\u{301}f", "e"),
            (r"\W", "e\u{301}", "\u{301}"),
            (r"[\W]", "e\u{301}", "\u{301}"),
            (r"[^\W]+", "aé_1", "aé_1"),
            (r"\d+", "١1", "1"),
            (r"[\D]", "1a", "a"),
            (r"\yb\w*\y", "ab bc", "bc"),
            (r"\mb", "ab b", "b"),
            (r"b\M", "bc b", "b"),
            (r"b\Z", "bb", "b"),
            ("[[&~]+", "a&[~", "&[~"),
            ("[]a]+", "b]a", "]a"),
            ("[^]a]+", "]ab", "b"),
            ("[[:alpha:][:digit:]]+", "-a1", "a1"),
            (r"\.", "a.", "."),
        ] {
            let written = pattern(of, "");
            let regex = Regex::new(&written).unwrap();
            assert_eq!(regex.find(value).map(|found| found.as_str()), Some(found), "{of}");
            assert_eq!(pattern(&written, ""), written, "{of}");
        }
        for (of, flags) in [("a.c", "n"), ("^a|b$", ""), (r"\s\.", ""), ("(?i)a", ""), ("\\", "")] {
            assert!(matches!(pattern(of, flags), Cow::Borrowed(_)), "{of}");
        }
    }

    #[test]
    fn texts_are_split_and_matched_as_in_postgresql() {
        for (text, pattern, expected) in [
            ("hello world", "\\s+", "[hello, world]"),
            ("abc", "", "[a, b, c]"),
            ("a,b,", ",", "[a, b, ]"),
            ("", ",", "[]"),
        ] {
            let made = (SPLIT.run)(&[column(text), column(pattern)]).unwrap();
            assert_eq!(shown(&made), expected, "{text}");
        }
        let all = |flags: &str| {
            let of = [column("foobarbequebaz"), column("ba."), column(flags)];
            shown(&(ALL_MATCHES.run)(&of).unwrap())
        };
        assert_eq!(all("g"), "[[bar], [baz]]");
        assert_eq!(all(""), "[[bar]]");
        let error = (SPLIT.run)(&[column("a"), column(&"x".repeat(20_000))]).unwrap_err();
        assert_eq!(SqlError::from(error).sqlstate, "2201B");
    }

    #[test]
    fn the_nth_match_is_replaced() {
        for (text, pattern, to, (start, nth), expected) in [
            ("A PostgreSQL function", "a|e|i|o|u", "X", (1, 3), "A PostgreSQL fXnction"),
            ("A PostgreSQL function", "a|e|i|o|u", "X", (1, 0), "A PXstgrXSQL fXnctXXn"),
            ("abcabc", "b", "[\\&]", (3, 1), "abca[b]c"),
            ("äbäb", "b", "x", (3, 0), "äbäx"),
            ("abc", "x*", "-", (1, 0), "-a-b-c-"),
            ("abc", "b", "x", (9, 0), "abc"),
            ("abc", "$", "x", (4, 1), "abcx"),
        ] {
            let regex = compiled(pattern, "").unwrap();
            let made = replaced(&regex, text, &replacement(to), start, nth).unwrap();
            assert_eq!(made, expected, "{text} {pattern} {start} {nth}");
        }
    }

    #[test]
    fn replacements_mean_what_they_mean_in_postgresql() {
        for (text, expected) in
            [("<\\&>", "<${0}>"), ("\\2\\1", "${2}${1}"), ("\\\\", "\\"), ("$1", "$$1"), ("x", "x")]
        {
            assert_eq!(replacement(text), expected);
        }
    }
}

//! Functions of regular expressions that DataFusion does not have, as PostgreSQL has them.
//!
//! ```text
//!   regexp_substr(text, pattern [, start [, n [, flags [, group]]]])    the nth match, or a group of it
//!   regexp_split_to_array(text, pattern [, flags])                      what lies between matches
//!   regexp_all_matches(text, pattern, flags)                            what `regexp_matches` spreads over rows
//! ```
//!
//! Patterns are those of the regex crate, in which DataFusion's functions take them. They are bounded as theirs are, and
//! compiled once for rows that have one.

use std::sync::Arc;

use arrow::array::{Array, ArrayBuilder, ArrayRef, ListBuilder, StringArray, StringBuilder};
use arrow::datatypes::{DataType, Field};
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;
use regex::{Regex, RegexBuilder};

use crate::bounded::{check_size, check_total};
use crate::error::{INVALID_PARAMETER_VALUE, INVALID_REGULAR_EXPRESSION, SqlError};
use crate::plain::{Plain, Texts, is_text, is_whole, texts, wholes};

/// Bytes of a pattern; compiled, it takes a thousand times as much.
const PATTERN_BYTES_MAX: usize = 16 << 10;
/// Bytes of an element of an array, roughly.
const ELEMENT_BYTES: u64 = 16;

/// The functions.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [&SUBSTR, &SPLIT, &ALL_MATCHES].into_iter().map(Plain::function)
}

/// A pattern with its flags, compiled when it is another than before.
#[derive(Default)]
struct Compiled {
    known: Option<(String, String, Regex)>,
}

impl Compiled {
    fn of(&mut self, pattern: &str, flags: &str) -> Result<&Regex, SqlError> {
        let is_known = self.known.as_ref().is_some_and(|(p, f, _)| p == pattern && f == flags);
        if !is_known {
            self.known = Some((pattern.to_owned(), flags.to_owned(), compiled(pattern, flags)?));
        }
        match &self.known {
            Some((_, _, regex)) => Ok(regex),
            None => Err(SqlError::internal("a pattern was not kept")),
        }
    }
}

fn compiled(pattern: &str, flags: &str) -> Result<Regex, SqlError> {
    let invalid = |message: String| SqlError::new(INVALID_REGULAR_EXPRESSION, message);
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(invalid(format!(
            "a regular expression is longer than {PATTERN_BYTES_MAX} bytes"
        )));
    }
    let escaped;
    let mut builder = if flags.contains('q') {
        escaped = regex::escape(pattern);
        RegexBuilder::new(&escaped)
    } else {
        RegexBuilder::new(pattern)
    };
    // In PostgreSQL a point is any letter, and the end of a line is no end, unless a flag says so.
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
            other => {
                let message = format!("invalid regular expression option: \"{other}\"");
                return Err(SqlError::new(INVALID_PARAMETER_VALUE, message));
            }
        };
    }
    builder.build().map_err(|error| invalid(format!("invalid regular expression: {error}")))
}

fn list_of_texts(_: &[DataType]) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)))
}

/// Of an optional argument, the value of a row; an error of NULL is NULL for all.
fn flags_of(flags: Option<&StringArray>, row: usize) -> &str {
    flags.map_or("", |flags| flags.value(row))
}

static SUBSTR: Plain = Plain {
    name: "regexp_substr",
    takes: |of| match of {
        [text, pattern, rest @ ..] if is_text(text) && is_text(pattern) && rest.len() <= 4 => {
            let mut types = vec![DataType::Utf8; 2];
            for (position, of) in rest.iter().enumerate() {
                let is_flags = position == 2;
                if is_flags && !is_text(of) || !is_flags && !is_whole(of) {
                    return None;
                }
                types.push(if is_flags { DataType::Utf8 } else { DataType::Int64 });
            }
            Some(types)
        }
        _ => None,
    },
    gives: |_| DataType::Utf8,
    run: |of| {
        let (values, patterns) = (texts(&of[0])?, texts(&of[1])?);
        let number = |at: usize| of.get(at).map(wholes).transpose();
        let (starts, counts, groups) = (number(2)?, number(3)?, number(5)?);
        let flags = of.get(4).map(texts).transpose()?;
        let mut compiled = Compiled::default();
        let mut made = Texts::new("regexp_substr", values.len());
        for row in 0..values.len() {
            if of.iter().any(|of| of.is_null(row)) {
                made.push(None::<&str>)?;
                continue;
            }
            let at = |numbers: &Option<arrow::array::Int64Array>, name: &str, least: i64| {
                let number = numbers.as_ref().map_or(least, |numbers| numbers.value(row));
                usize::try_from(number).ok().filter(|_| number >= least).ok_or_else(|| {
                    let message = format!("invalid value for parameter \"{name}\": {number}");
                    SqlError::new(INVALID_PARAMETER_VALUE, message)
                })
            };
            let (start, count) = (at(&starts, "start", 1)?, at(&counts, "n", 1)?);
            let group = at(&groups, "subexpr", 0)?;
            let regex = compiled.of(patterns.value(row), flags_of(flags.as_ref(), row))?;
            let value = values.value(row);
            let from = value.char_indices().nth(start - 1).map(|(at, _)| at);
            let found = from.and_then(|from| {
                regex.captures_iter(&value[from..]).nth(count - 1)?.get(group).map(|m| m.as_str())
            });
            made.push(found)?;
        }
        Ok(made.finish())
    },
};

fn text_pattern_flags(of: &[DataType]) -> Option<Vec<DataType>> {
    let counts = of.len() == 2 || of.len() == 3;
    (counts && of.iter().all(is_text)).then(|| vec![DataType::Utf8; of.len()])
}

/// Arrays of texts within bounds.
struct Lists {
    name: &'static str,
    made: ListBuilder<StringBuilder>,
    rows: usize,
    total: u64,
}

impl Lists {
    fn new(name: &'static str, rows: usize) -> Self {
        Self { name, made: ListBuilder::new(StringBuilder::new()), rows, total: 0 }
    }

    fn add(&mut self, text: Option<&str>) -> Result<()> {
        let size = u64::try_from(text.map_or(0, str::len)).unwrap_or(u64::MAX);
        check_size(self.name, size)?;
        self.total = self.total.saturating_add(size + ELEMENT_BYTES);
        check_total(self.name, self.rows, self.total)?;
        self.made.values().append_option(text);
        Ok(())
    }
}

static SPLIT: Plain = Plain {
    name: "regexp_split_to_array",
    takes: text_pattern_flags,
    gives: list_of_texts,
    run: |of| {
        let (values, patterns) = (texts(&of[0])?, texts(&of[1])?);
        let flags = of.get(2).map(texts).transpose()?;
        let mut compiled = Compiled::default();
        let mut lists = Lists::new("regexp_split_to_array", values.len());
        for row in 0..values.len() {
            let is_null = of.iter().any(|of| of.is_null(row));
            if !is_null {
                let flags = flags_of(flags.as_ref(), row);
                if flags.contains('g') {
                    let message = "regexp_split_to_array() does not support the \"global\" option";
                    return Err(SqlError::new(INVALID_PARAMETER_VALUE, message).into());
                }
                let regex = compiled.of(patterns.value(row), flags)?;
                let value = values.value(row);
                let mut start = 0;
                for found in regex.find_iter(value) {
                    // An empty match at an end, or right behind another, divides nothing.
                    if found.is_empty() && (found.start() == start || found.end() == value.len()) {
                        continue;
                    }
                    lists.add(Some(&value[start..found.start()]))?;
                    start = found.end();
                }
                lists.add(Some(&value[start..]))?;
            }
            lists.made.append(!is_null);
        }
        Ok(Arc::new(lists.made.finish()))
    },
};

fn list_of_lists(of: &[DataType]) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(list_of_texts(of), true)))
}

static ALL_MATCHES: Plain = Plain {
    name: "regexp_all_matches",
    takes: text_pattern_flags,
    gives: list_of_lists,
    run: |of| {
        let (values, patterns) = (texts(&of[0])?, texts(&of[1])?);
        let flags = of.get(2).map(texts).transpose()?;
        let mut compiled = Compiled::default();
        let mut lists = Lists::new("regexp_matches", values.len());
        // The offsets of the matches of each row.
        let mut ends = vec![0_i32];
        for row in 0..values.len() {
            if !of.iter().any(|of| of.is_null(row)) {
                let flags = flags_of(flags.as_ref(), row);
                let regex = compiled.of(patterns.value(row), flags)?;
                let most = if flags.contains('g') { usize::MAX } else { 1 };
                for found in regex.captures_iter(values.value(row)).take(most) {
                    let groups = if found.len() == 1 { 0..1 } else { 1..found.len() };
                    for group in groups {
                        lists.add(found.get(group).map(|group| group.as_str()))?;
                    }
                    lists.made.append(true);
                }
            }
            ends.push(i32::try_from(lists.made.len()).unwrap_or(i32::MAX));
        }
        let inner: ArrayRef = Arc::new(lists.made.finish());
        let field = Arc::new(Field::new_list_field(inner.data_type().clone(), true));
        let offsets = arrow::buffer::OffsetBuffer::new(ends.into());
        Ok(Arc::new(arrow::array::ListArray::try_new(field, offsets, inner, None)?))
    },
};

/// What `regexp_replace` puts in, as the regex crate reads it: `\1` is a group, `\&` the match, `\\` a backslash, and a
/// dollar is a dollar.
pub(crate) fn replacement(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '$' => made.push_str("$$"),
            '\\' => match letters.next() {
                Some(digit @ '0'..='9') => made.push_str(&format!("${{{digit}}}")),
                Some('&') => made.push_str("${0}"),
                Some('\\') | None => made.push('\\'),
                Some(other) => made.extend(['\\', other]),
            },
            other => made.push(other),
        }
    }
    made
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
    fn replacements_mean_what_they_mean_in_postgresql() {
        for (text, expected) in
            [("<\\&>", "<${0}>"), ("\\2\\1", "${2}${1}"), ("\\\\", "\\"), ("$1", "$$1"), ("x", "x")]
        {
            assert_eq!(replacement(text), expected);
        }
    }
}

//! SQL's own regular expressions: SIMILAR TO, and `substring` by a pattern.
//!
//! ```text
//!   x SIMILAR TO p [ESCAPE e]           similar_to(x, p [, e])       the pattern is of the whole text
//!   substring(x SIMILAR p ESCAPE e)     similar_part(x, p, e)        what lies between two `e"` of the pattern
//!   substring(x FROM p)                 regexp_part(x, p)            p is POSIX's: the first group, or the match
//! ```
//!
//! A pattern is written as one of the regex crate, as PostgreSQL writes it as one of POSIX: `%` is `.*`, `_` is `.`, groups
//! are not captured, and what SQL knows no meaning of is a letter.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;

use crate::error::SqlError;
use crate::plain::{Plain, Texts, all, is_text, texts};
use crate::regular::{self, Compiled, TRANSLATED};

/// The escape character where none is said.
const ESCAPE: char = '\\';
/// Parts of a pattern: what comes before, what is taken, what comes after.
const PARTS_MAX: usize = 3;

/// The functions.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [&SIMILAR_TO, &SIMILAR_PART, &REGEXP_PART].into_iter().map(Plain::function)
}

/// The parts of texts by patterns: with escape characters SQL's, else POSIX's.
pub(crate) fn part(of: &[ArrayRef]) -> Result<ArrayRef> {
    match of {
        [_, _] => (REGEXP_PART.run)(of),
        _ => (SIMILAR_PART.run)(of),
    }
}

fn two_or_three_texts(of: &[DataType]) -> Option<Vec<DataType>> {
    all(of, 2, is_text, &DataType::Utf8).or_else(|| all(of, 3, is_text, &DataType::Utf8))
}

static SIMILAR_TO: Plain = Plain {
    name: "similar_to",
    takes: two_or_three_texts,
    gives: |_| DataType::Boolean,
    run: |of| {
        let mut pattern = Pattern::default();
        let values = texts(&of[0])?;
        let made = (0..values.len()).map(|row| match pattern.of_row(of, row)? {
            Some(regex) => Ok(Some(regex.is_match(values.value(row)))),
            None => Ok(None),
        });
        Ok(Arc::new(made.collect::<Result<BooleanArray, SqlError>>()?))
    },
};

static SIMILAR_PART: Plain = Plain {
    name: "similar_part",
    takes: two_or_three_texts,
    gives: |_| DataType::Utf8,
    run: |of| {
        let mut pattern = Pattern::default();
        let values = texts(&of[0])?;
        let mut made = Texts::new("substring", values.len());
        for row in 0..values.len() {
            let found =
                pattern.of_row(of, row)?.and_then(|regex| regex.captures(values.value(row)));
            let part = found.and_then(|found| found.get(1).or_else(|| found.get(0)));
            made.push(part.map(|part| part.as_str()))?;
        }
        Ok(made.finish())
    },
};

static REGEXP_PART: Plain = Plain {
    name: "regexp_part",
    takes: |of| all(of, 2, is_text, &DataType::Utf8),
    gives: |_| DataType::Utf8,
    run: |of| {
        let (values, patterns) = (texts(&of[0])?, texts(&of[1])?);
        let mut compiled = Compiled::default();
        let mut made = Texts::new("substring", values.len());
        for row in 0..values.len() {
            if values.is_null(row) || patterns.is_null(row) {
                made.push(None::<&str>)?;
                continue;
            }
            let regex = compiled.of(patterns.value(row), "")?;
            let group = usize::from(regex.captures_len() > 1);
            let found = regex.captures(values.value(row));
            let part = found.and_then(|found| found.get(group));
            made.push(part.map(|part| part.as_str()))?;
        }
        Ok(made.finish())
    },
};

/// The pattern of a row, compiled when it is another than before.
#[derive(Default)]
struct Pattern {
    compiled: Compiled,
}

impl Pattern {
    /// `None` when an argument of the row is NULL.
    fn of_row(&mut self, of: &[ArrayRef], row: usize) -> Result<Option<&regex::Regex>, SqlError> {
        if of.iter().any(|of| of.is_null(row)) {
            return Ok(None);
        }
        let text = |of: &ArrayRef| texts(of).map(|texts| texts.value(row).to_owned());
        let escape = match of.get(2) {
            Some(escape) => escape_of(&text(escape)?)?,
            None => Some(ESCAPE),
        };
        self.compiled.of(&translated(&text(&of[1])?, escape)?, "").map(Some)
    }
}

fn escape_of(text: &str) -> Result<Option<char>, SqlError> {
    let mut letters = text.chars();
    let escape = letters.next();
    if letters.next().is_some() {
        return Err(SqlError::new("22025", "invalid escape string")
            .with_hint("Escape string must be empty or one character."));
    }
    Ok(escape)
}

/// A pattern as one of the regex crate, of the whole text; the middle one of its parts is a group.
fn translated(pattern: &str, escape: Option<char>) -> Result<String, SqlError> {
    let mut parts = vec![String::new()];
    let mut letters = pattern.chars().peekable();
    let mut in_class = false;
    while let Some(letter) = letters.next() {
        if Some(letter) == escape {
            match letters.next() {
                Some('"') if !in_class => {
                    if parts.len() == PARTS_MAX {
                        let message = "SQL regular expression may not contain more than two escape-double-quote separators";
                        return Err(SqlError::new("2200C", message));
                    }
                    parts.push(String::new());
                }
                Some(escaped) => push_escaped(&mut parts, escaped),
                None => {}
            }
            continue;
        }
        let Some(part) = parts.last_mut() else { continue };
        if in_class {
            match letter {
                ']' => {
                    in_class = false;
                    part.push(letter);
                }
                // A named class, `[:alpha:]`.
                '[' if letters.peek() == Some(&':') => {
                    part.push(letter);
                    for named in letters.by_ref() {
                        part.push(named);
                        if named == ']' {
                            break;
                        }
                    }
                }
                // These have a meaning inside of classes in the regex crate only.
                '[' | '&' | '~' | '\\' => {
                    part.push('\\');
                    part.push(letter);
                }
                other => part.push(other),
            }
            continue;
        }
        match letter {
            '%' => part.push_str(".*"),
            '_' => part.push('.'),
            '(' => part.push_str("(?:"),
            '\\' | '.' | '^' | '$' => {
                part.push('\\');
                part.push(letter);
            }
            '[' => {
                in_class = true;
                part.push(letter);
                if letters.next_if_eq(&'^').is_some() {
                    part.push('^');
                }
                // At the beginning it is a letter.
                if letters.next_if_eq(&']').is_some() {
                    part.push(']');
                }
            }
            other => part.push(other),
        }
    }
    let parts = parts.iter().map(|part| regular::part(part)).collect::<Result<Vec<_>, _>>()?;
    let written = match parts.as_slice() {
        [before, taken, after @ ..] => {
            // What comes before and after is as short as can be.
            let after = after.first().map_or("", String::as_str);
            format!(r"\A(?U:{before})({taken})(?U:{after})\z")
        }
        _ => format!(r"\A(?:{})\z", parts.concat()),
    };
    Ok(format!("{TRANSLATED}{written}"))
}

/// A letter behind the escape character: itself, or one of POSIX's classes, `\d`.
fn push_escaped(parts: &mut [String], escaped: char) {
    let Some(part) = parts.last_mut() else { return };
    if escaped.is_ascii_alphanumeric() {
        part.push('\\');
        part.push(escaped);
    } else {
        part.push_str(&regex::escape(escaped.encode_utf8(&mut [0; 4])));
    }
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    fn matches(text: &str, pattern: &str) -> bool {
        let pattern = translated(pattern, Some(ESCAPE)).unwrap();
        Compiled::default().of(&pattern, "").unwrap().is_match(text)
    }

    #[test]
    fn a_pattern_is_of_the_whole_text() {
        for (text, pattern, expected) in [
            ("abc", "abc", true),
            ("abc", "a", false),
            ("abc", "%(b|d)%", true),
            ("abc", "(b|c)%", false),
            ("a.c", "a.c", true),
            ("abc", "a.c", false),
            ("a_c", "a\\_c", true),
            ("abc", "a\\_c", false),
            ("a^$", "a^$", true),
            ("aaa", "a{2,3}", true),
            ("b7", "[a-c][[:digit:]]", true),
            ("]", "[]]", true),
            ("a&", "a[&&b]", true),
            ("d", "[^a-c]", true),
            ("a\nb", "a%b", true),
            ("", "%", true),
        ] {
            assert_eq!(matches(text, pattern), expected, "{text:?} {pattern:?}");
        }
    }

    #[test]
    fn the_part_between_separators_is_taken() {
        for (text, pattern, expected) in [
            ("foobar", "%#\"o_b#\"%", Some("oob")),
            ("foobar", "#\"o_b#\"%", None),
            ("abcdefg", "a#\"%#\"g", Some("bcdef")),
            ("abcabc", "%#\"b%#\"", Some("bcabc")),
            ("1.2.3", "%.#\"%#\".%", Some("2")),
        ] {
            let pattern = translated(pattern, Some('#')).unwrap();
            let regex = Regex::new(&format!("(?s){pattern}")).unwrap();
            let found = regex.captures(text).and_then(|found| found.get(1));
            assert_eq!(found.map(|part| part.as_str()), expected, "{text} {pattern}");
        }
        assert_eq!(translated("#\"a#\"b#\"", Some('#')).unwrap_err().sqlstate, "2200C");
        assert_eq!(escape_of("ab").unwrap_err().sqlstate, "22025");
        assert_eq!(escape_of("").unwrap(), None);
    }
}

//! SQL's own regular expressions: SIMILAR TO, and `substring` by a pattern.
//!
//! ```text
//!   x SIMILAR TO p [ESCAPE e]           similar_to(x, p [, e])       the pattern must match the whole text
//!   substring(x SIMILAR p ESCAPE e)     similar_part(x, p, e)        the part between two `e"` of the pattern
//!   substring(x FROM p)                 regexp_part(x, p)            POSIX pattern: the first group, or the match
//! ```
//!
//! A pattern is translated to the regex crate's syntax, as PostgreSQL translates it to POSIX: `%` becomes `.*`, `_`
//! becomes `.`, groups do not capture, and characters without a meaning in SQL are literal.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;

use crate::error::SqlError;
use crate::plain::{Plain, Texts, all, is_text, texts};
use crate::regular::{self, Compiled, TRANSLATED};

/// The default escape character.
const ESCAPE: char = '\\';
/// Parts of a pattern: the prefix, the part to return, the suffix.
const PARTS_MAX: usize = 3;

/// The functions to register.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [&SIMILAR_TO, &SIMILAR_PART, &REGEXP_PART].into_iter().map(Plain::function)
}

/// Parts of texts by patterns: SQL's with an escape character, else POSIX's.
pub(crate) fn part(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    match arguments {
        [_, _] => (REGEXP_PART.run)(arguments),
        _ => (SIMILAR_PART.run)(arguments),
    }
}

fn two_or_three_texts(types: &[DataType]) -> Option<Vec<DataType>> {
    all(types, 2, is_text, &DataType::Utf8).or_else(|| all(types, 3, is_text, &DataType::Utf8))
}

static SIMILAR_TO: Plain = Plain {
    name: "similar_to",
    takes: two_or_three_texts,
    gives: |_| DataType::Boolean,
    run: |arguments| {
        let mut pattern = Pattern::default();
        let values = texts(&arguments[0])?;
        let results = (0..values.len()).map(|row| match pattern.of_row(arguments, row)? {
            Some(regex) => Ok(Some(regex.is_match(values.value(row)))),
            None => Ok(None),
        });
        Ok(Arc::new(results.collect::<Result<BooleanArray, SqlError>>()?))
    },
};

static SIMILAR_PART: Plain = Plain {
    name: "similar_part",
    takes: two_or_three_texts,
    gives: |_| DataType::Utf8,
    run: |arguments| {
        let mut pattern = Pattern::default();
        let values = texts(&arguments[0])?;
        let mut results = Texts::new("substring", values.len());
        for row in 0..values.len() {
            let captures =
                pattern.of_row(arguments, row)?.and_then(|regex| regex.captures(values.value(row)));
            let part = captures.and_then(|captures| captures.get(1).or_else(|| captures.get(0)));
            results.push(part.map(|part| part.as_str()))?;
        }
        Ok(results.finish())
    },
};

static REGEXP_PART: Plain = Plain {
    name: "regexp_part",
    takes: |types| all(types, 2, is_text, &DataType::Utf8),
    gives: |_| DataType::Utf8,
    run: |arguments| {
        let (values, patterns) = (texts(&arguments[0])?, texts(&arguments[1])?);
        let mut compiled = Compiled::default();
        let mut results = Texts::new("substring", values.len());
        for row in 0..values.len() {
            if values.is_null(row) || patterns.is_null(row) {
                results.push(None::<&str>)?;
                continue;
            }
            let regex = compiled.of(patterns.value(row), "")?;
            let group = usize::from(regex.captures_len() > 1);
            let captures = regex.captures(values.value(row));
            let part = captures.and_then(|captures| captures.get(group));
            results.push(part.map(|part| part.as_str()))?;
        }
        Ok(results.finish())
    },
};

/// Cache of the compiled pattern of the last row.
#[derive(Default)]
struct Pattern {
    compiled: Compiled,
}

impl Pattern {
    /// Returns the pattern of a row; `None` when an argument of the row is NULL.
    fn of_row(
        &mut self,
        arguments: &[ArrayRef],
        row: usize,
    ) -> Result<Option<&regex::Regex>, SqlError> {
        if arguments.iter().any(|argument| argument.is_null(row)) {
            return Ok(None);
        }
        let text = |argument: &ArrayRef| texts(argument).map(|texts| texts.value(row).to_owned());
        let escape = match arguments.get(2) {
            Some(escape) => escape_of(&text(escape)?)?,
            None => Some(ESCAPE),
        };
        self.compiled.of(&translated(&text(&arguments[1])?, escape)?, "").map(Some)
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

/// Translates a pattern to one of the regex crate for the whole text; the middle one of its parts becomes a group.
fn translated(pattern: &str, escape: Option<char>) -> Result<String, SqlError> {
    let mut parts = vec![String::new()];
    let mut letters = pattern.chars().peekable();
    let mut in_class = false;
    while let Some(letter) = letters.next() {
        // An escaped quotation mark separates the parts; other escaped characters are literal or classes.
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
                    for class_letter in letters.by_ref() {
                        part.push(class_letter);
                        if class_letter == ']' {
                            break;
                        }
                    }
                }
                // Special inside of classes in the regex crate only.
                '[' | '&' | '~' | '\\' => {
                    part.push('\\');
                    part.push(letter);
                }
                _ => part.push(letter),
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
                // A bracket in the first position is literal.
                if letters.next_if_eq(&']').is_some() {
                    part.push(']');
                }
            }
            _ => part.push(letter),
        }
    }
    let parts = parts.iter().map(|part| regular::part(part)).collect::<Result<Vec<_>, _>>()?;
    let written = match parts.as_slice() {
        [prefix, middle, suffix @ ..] => {
            // The prefix and the suffix match as little as possible.
            let suffix = suffix.first().map_or("", String::as_str);
            format!(r"\A(?U:{prefix})({middle})(?U:{suffix})\z")
        }
        _ => format!(r"\A(?:{})\z", parts.concat()),
    };
    Ok(format!("{TRANSLATED}{written}"))
}

/// Writes a character after the escape character: one of POSIX's classes such as `\d`, or a literal.
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

//! Regular expression functions that DataFusion lacks, as in PostgreSQL.
//!
//! ```text
//!   regexp_substr(text, pattern [, start [, n [, flags [, group]]]])    the nth match, or a group of it
//!   regexp_split_to_array(text, pattern [, flags])                      the parts between matches
//!   regexp_all_matches(text, pattern, flags)                            an array of the rows of `regexp_matches`
//!   regexp_replace_nth(text, pattern, to, start [, n [, flags]])        `regexp_replace` with these arguments
//!   regexp_matched(text, pattern, flags)                                `~` with a pattern that is not constant
//! ```
//!
//! Patterns have the syntax of the regex crate, as in DataFusion's functions, except where PostgreSQL's differs
//! ([`pattern`]). Their size is bounded as in DataFusion's wrapped functions, and a pattern is compiled once for
//! adjacent rows that share it.

use std::borrow::Cow;
use std::iter::Peekable;
use std::str::CharIndices;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayBuilder, ArrayRef, BooleanArray, ListBuilder, StringArray, StringBuilder,
};
use arrow::datatypes::{DataType, Field};
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;
use regex::{Regex, RegexBuilder};

use crate::bounded::{check_size, check_total};
use crate::error::{
    FEATURE_NOT_SUPPORTED, INVALID_PARAMETER_VALUE, INVALID_REGULAR_EXPRESSION, SqlError,
};
use crate::plain::{Plain, Texts, all, is_text, is_whole, texts, wholes};

/// Maximum bytes of a pattern; compiled, it takes a thousand times as much.
const PATTERN_BYTES_MAX: usize = 16 << 10;
/// Approximate bytes of an element of an array.
const ELEMENT_BYTES: u64 = 16;

/// The functions to register.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [&SUBSTR, &SPLIT, &ALL_MATCHES, &REPLACE_NTH, &MATCHED].into_iter().map(Plain::function)
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
    if pattern.len() > PATTERN_BYTES_MAX {
        let message = format!("regular expression exceeds {PATTERN_BYTES_MAX} bytes");
        return Err(SqlError::new(INVALID_REGULAR_EXPRESSION, message));
    }
    // The flag `q` makes the pattern a literal string.
    let escaped;
    let mut builder = if flags.contains('q') {
        escaped = regex::escape(pattern);
        RegexBuilder::new(&escaped)
    } else {
        RegexBuilder::new(&self::pattern(pattern, "n")?)
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
    builder.build().map_err(invalid)
}

/// Characters of words: letters and digits, without combining marks.
const WORD: &str = r"\p{Alphabetic}\p{Nd}_";
const NO_WORD: &str = r"[^\p{Alphabetic}\p{Nd}_]";
/// Start of a translated pattern that must not be translated again: two empty groups.
pub(crate) const TRANSLATED: &str = "(?:(?:))";

/// Translates a pattern of PostgreSQL to the syntax of the regex crate:
///
/// ```text
///   .               matches newlines, unless a flag (`n`, `p`, `m`) excludes them
///   \w \W \d        combining marks are not part of a word, digits are 0 to 9
///   \y \Y           \b and \B: at a word boundary, or not at one
///   \m \M \Z        the start and the end of a word, and the end of the text; `[[:<:]]` and `[[:>:]]` are \m and \M
///   \a \b \B \e     bell, backspace, backslash, escape
///   \cX \0 \017     control characters, and characters by their octal
///   \x1F \u00E9     or hexadecimal numbers
///   [[&] [a--]      an opening bracket and set operators are literal in brackets
///   {               literal, unless a digit follows
///   (?n) ***=       options at the start
/// ```
///
/// The translation of a translated pattern is the pattern itself.
///
/// # Errors
/// When the regex crate does not support the pattern (back references, lookahead), or the pattern is malformed in
/// PostgreSQL, even if the crate accepts it.
pub fn pattern<'a>(pattern: &'a str, flags: &str) -> Result<Cow<'a, str>, SqlError> {
    if pattern.starts_with(TRANSLATED) {
        return Ok(Cow::Borrowed(pattern));
    }
    let written = translated(pattern, flags)?;
    if written == pattern {
        return Ok(Cow::Borrowed(pattern));
    }
    // A translation that would be translated to another one is marked.
    let is_kept = translated(&written, flags).is_ok_and(|again| again == written);
    Ok(Cow::Owned(if is_kept { written } else { format!("{TRANSLATED}{written}") }))
}

/// Translates a part of a pattern to the syntax of the regex crate, with `.` to match newlines.
pub(crate) fn part(pattern: &str) -> Result<String, SqlError> {
    translated(pattern, "n")
}

fn invalid(message: impl std::fmt::Display) -> SqlError {
    SqlError::new(INVALID_REGULAR_EXPRESSION, format!("invalid regular expression: {message}"))
}

fn not_supported(what: &str) -> SqlError {
    SqlError::new(FEATURE_NOT_SUPPORTED, format!("{what} in regular expressions are not supported"))
}

/// The rest of a pattern that is being translated.
type Letters<'a> = Peekable<CharIndices<'a>>;

fn translated(pattern: &str, flags: &str) -> Result<String, SqlError> {
    if let Some(literal) = pattern.strip_prefix("***=") {
        return Ok(regex::escape(literal));
    }
    let pattern = pattern.strip_prefix("***:").unwrap_or(pattern);
    let mut written = String::with_capacity(pattern.len() + 8);
    let (options, pattern) = with_options(pattern, &mut written)?;
    let mut letters = pattern.char_indices().peekable();
    let mut has_point = false;
    while let Some((index, letter)) = letters.next() {
        match letter {
            '\\' => escaped(&mut letters, false, &mut written)?,
            '[' => {
                let rest = &pattern[index..];
                let edges = [("[[:<:]]", r"\b{start}"), ("[[:>:]]", r"\b{end}")];
                if let Some((edge, ours)) = edges.iter().find(|(edge, _)| rest.starts_with(edge)) {
                    written.push_str(ours);
                    skip_to(&mut letters, index + edge.len());
                } else {
                    bracket(pattern, &mut letters, &mut written)?;
                }
            }
            '{' if !letters.peek().is_some_and(|(_, next)| next.is_ascii_digit()) => {
                written.push_str(r"\{");
            }
            '(' => {
                written.push('(');
                group(&pattern[index + 1..])?;
            }
            _ => {
                has_point |= letter == '.';
                written.push(letter);
            }
        }
    }
    // A flag in the pattern, because DataFusion's functions compile it without this setting.
    let of_lines = flags.contains(['n', 'p', 'm']) || options.contains(['n', 'p', 'm', 's']);
    if has_point && !of_lines {
        written.insert_str(0, "(?s)");
    }
    Ok(written)
}

/// Refuses groups that the regex crate or PostgreSQL does not support.
fn group(inside: &str) -> Result<(), SqlError> {
    let Some(kind) = inside.strip_prefix('?') else { return Ok(()) };
    match kind.chars().next() {
        Some(':') => Ok(()),
        Some('=' | '!') => Err(not_supported("lookahead constraints")),
        Some('<') => Err(not_supported("lookbehind constraints")),
        _ => Err(invalid("quantifier operand invalid")),
    }
}

/// Writes the options at the start of a pattern; returns them and the rest of the pattern.
fn with_options<'a>(
    pattern: &'a str,
    written: &mut String,
) -> Result<(&'a str, &'a str), SqlError> {
    let Some(options) = pattern.strip_prefix("(?") else { return Ok(("", pattern)) };
    let Some((options, rest)) = options.split_once(')') else { return Ok(("", pattern)) };
    if options.is_empty() || !options.chars().all(|option| option.is_ascii_alphabetic()) {
        return Ok(("", pattern));
    }
    for option in options.chars() {
        written.push_str(match option {
            'i' => "(?i)",
            'c' => "(?-i)",
            'n' | 'm' => "(?m-s)",
            'p' => "(?-s)",
            'w' => "(?m)",
            's' => "(?s-m)",
            'x' => "(?x)",
            'e' | 't' => "",
            'b' | 'q' => return Err(not_supported("the options b and q")),
            _ => return Err(invalid("invalid embedded option")),
        });
    }
    Ok((options, rest))
}

fn skip_to(letters: &mut Letters<'_>, end: usize) {
    while letters.next_if(|(index, _)| *index < end).is_some() {}
}

/// Translates a bracket expression after its opening bracket.
fn bracket(pattern: &str, letters: &mut Letters<'_>, written: &mut String) -> Result<(), SqlError> {
    written.push('[');
    if letters.next_if(|(_, next)| *next == '^').is_some() {
        written.push('^');
    }
    // A bracket or a minus in the first position is literal.
    let (mut is_first, mut ends_range) = (true, false);
    while let Some((index, letter)) = letters.next() {
        let begins = std::mem::take(&mut is_first);
        let ended = std::mem::take(&mut ends_range);
        match letter {
            ']' if begins => written.push_str(r"\]"),
            ']' => {
                written.push(']');
                return Ok(());
            }
            '\\' => escaped(letters, true, written)?,
            '-' => {
                let is_last = letters.peek().is_some_and(|(_, next)| *next == ']');
                if begins || ended || is_last {
                    written.push_str(r"\-");
                } else {
                    written.push('-');
                    ends_range = true;
                }
            }
            '[' => {
                let rest = &pattern[index..];
                let named = |open: &str, close: &str| {
                    let name = rest.strip_prefix(open)?;
                    name.find(close).map(|end| &name[..end])
                };
                if let Some(class) = named("[:", ":]") {
                    let end = index + class.len() + 4;
                    written.push_str(&pattern[index..end]);
                    skip_to(letters, end);
                } else if let Some(name) = named("[.", ".]").or_else(|| named("[=", "=]")) {
                    let mut name_letters = name.chars();
                    let (Some(letter), None) = (name_letters.next(), name_letters.next()) else {
                        return Err(not_supported("names of characters"));
                    };
                    push_literal(letter, written);
                    skip_to(letters, index + name.len() + 4);
                } else {
                    written.push_str(r"\[");
                }
            }
            '&' | '~' => {
                written.push('\\');
                written.push(letter);
            }
            _ => written.push(letter),
        }
    }
    Ok(())
}

/// Writes a literal character.
fn push_literal(letter: char, written: &mut String) {
    if letter.is_ascii_alphanumeric() || !letter.is_ascii() {
        written.push(letter);
    } else {
        written.push_str(&format!(r"\x{{{:X}}}", u32::from(letter)));
    }
}

/// Reads the digits of a base that come next, at most `most`.
fn digits(letters: &mut Letters<'_>, base: u32, most: usize) -> String {
    let mut digits = String::new();
    while digits.len() < most
        && let Some((_, digit)) = letters.next_if(|(_, next)| next.is_digit(base))
    {
        digits.push(digit);
    }
    digits
}

/// Translates an escape after its backslash.
fn escaped(
    letters: &mut Letters<'_>,
    in_brackets: bool,
    written: &mut String,
) -> Result<(), SqlError> {
    let no_escape = || invalid("invalid escape \\ sequence");
    let Some((_, escaped)) = letters.next() else { return Err(no_escape()) };
    let number = |digits: &str, base: u32| {
        let number = u32::from_str_radix(digits, base).ok();
        number.and_then(char::from_u32).ok_or_else(no_escape)
    };
    let ours = match (escaped, in_brackets) {
        ('w', true) => WORD,
        ('w', false) => r"[\p{Alphabetic}\p{Nd}_]",
        ('W', _) => NO_WORD,
        ('d', true) => "0-9",
        ('d', false) => "[0-9]",
        ('D', _) => "[^0-9]",
        ('s', _) => r"\s",
        ('S', _) => r"\S",
        ('f', _) => r"\f",
        ('n', _) => r"\n",
        ('r', _) => r"\r",
        ('t', _) => r"\t",
        ('v', _) => r"\v",
        ('A', false) => r"\A",
        ('Z', false) => r"\z",
        ('y', false) => r"\b",
        ('Y', false) => r"\B",
        ('m', false) => r"\b{start}",
        ('M', false) => r"\b{end}",
        _ => "",
    };
    if !ours.is_empty() {
        written.push_str(ours);
        return Ok(());
    }
    let letter = match (escaped, in_brackets) {
        ('a', _) => '\u{7}',
        ('b', _) => '\u{8}',
        ('e', _) => '\u{1b}',
        ('B', _) => '\\',
        ('c', _) => {
            let (_, letter) = letters.next().ok_or_else(no_escape)?;
            char::from_u32(u32::from(letter) & 0x1f).ok_or_else(no_escape)?
        }
        ('u' | 'U', _) => {
            let count = if escaped == 'u' { 4 } else { 8 };
            let digits = digits(letters, 16, count);
            if digits.len() < count {
                return Err(no_escape());
            }
            number(&digits, 16)?
        }
        ('x', _) => {
            let digits = digits(letters, 16, usize::MAX);
            number(&digits, 16)?
        }
        ('0', _) => number(&format!("0{}", digits(letters, 8, 2)), 8)?,
        ('1'..='9', false) => return Err(not_supported("back references")),
        _ if escaped.is_ascii_alphanumeric() => return Err(no_escape()),
        // `\<` and `\>` are word boundaries in the regex crate.
        _ if escaped.is_ascii_punctuation() && !matches!(escaped, '<' | '>') => {
            written.push('\\');
            written.push(escaped);
            return Ok(());
        }
        _ => escaped,
    };
    push_literal(letter, written);
    Ok(())
}

/// Matches texts with the patterns of their rows: `~` and similar operators with patterns that are not constant.
static MATCHED: Plain = Plain {
    name: "regexp_matched",
    takes: |types| all(types, 3, is_text, &DataType::Utf8),
    gives: |_| DataType::Boolean,
    run: |arguments| {
        let (values, patterns, flags) =
            (texts(&arguments[0])?, texts(&arguments[1])?, texts(&arguments[2])?);
        let mut compiled = Compiled::default();
        let results = (0..values.len()).map(|row| {
            if arguments.iter().any(|argument| argument.is_null(row)) {
                return Ok(None);
            }
            let regex = compiled.of(patterns.value(row), flags.value(row))?;
            Ok(Some(regex.is_match(values.value(row))))
        });
        Ok(Arc::new(results.collect::<Result<BooleanArray, SqlError>>()?))
    },
};

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
            (r"a\bc", "abc a\u{8}c", "a\u{8}c"),
            (r"a\Bc", r"ac a\c", r"a\c"),
            (r"\x41\u00e9\U000000e9", "A\u{e9}\u{e9}", "A\u{e9}\u{e9}"),
            (r"\0\017\cA\e\a", "\0\u{f}\u{1}\u{1b}\u{7}", "\0\u{f}\u{1}\u{1b}\u{7}"),
            (r"[\b]", "b\u{8}", "\u{8}"),
            (r"\<a\>", "a <a>", "<a>"),
            ("[[:<:]]a[[:>:]]", "ab a", "a"),
            ("a{b", "a{b", "a{b"),
            ("a{2}", "aa", "aa"),
            ("[+--]+", "a+,-.", "+,-"),
            ("[a-]+", "b-a", "-a"),
            ("[[.-.]a]+", "b-a", "-a"),
            ("***=a.b", "aab a.b", "a.b"),
            ("***:a.b", "acb", "acb"),
            ("(?n)a.", "a\nab", "ab"),
            ("(?i)A", "a", "a"),
        ] {
            let written = pattern(of, "").unwrap();
            let regex = Regex::new(&written).unwrap();
            assert_eq!(regex.find(value).map(|found| found.as_str()), Some(found), "{of}");
            assert_eq!(pattern(&written, "").unwrap(), written, "{of}");
        }
        for (of, flags) in [("a.c", "n"), ("^a|b$", ""), (r"\s\.", ""), ("(?i)a", "")] {
            assert!(matches!(pattern(of, flags), Ok(Cow::Borrowed(_))), "{of}");
        }
    }

    #[test]
    fn what_is_no_pattern_or_cannot_be_found_is_refused_by_name() {
        for (of, sqlstate) in [
            (r"(a)\1", "0A000"),
            ("a(?=b)", "0A000"),
            ("a(?!b)", "0A000"),
            ("(?<=a)b", "0A000"),
            ("(?<!a)b", "0A000"),
            ("[[.hyphen.]]", "0A000"),
            ("(?q)a.", "0A000"),
            ("a(?i)b", "2201B"),
            ("(?j)a", "2201B"),
            (r"\p{L}", "2201B"),
            (r"\z", "2201B"),
            (r"[\A]", "2201B"),
            ("\\", "2201B"),
        ] {
            let refused = pattern(of, "").unwrap_err();
            assert_eq!(refused.sqlstate, sqlstate, "{of}: {}", refused.message);
        }
    }

    #[test]
    fn patterns_of_rows_are_matched_as_those_that_are_written_down() {
        let patterns = StringArray::from(vec![Some(r"\ya"), Some("A.b"), None, Some("b$")]);
        let values = StringArray::from(vec!["a b", "xA\nb", "a", "ab\n"]);
        let flags = StringArray::from(vec![""; 4]);
        let of: [ArrayRef; 3] = [Arc::new(values), Arc::new(patterns), Arc::new(flags)];
        let made = (MATCHED.run)(&of).unwrap();
        let made: Vec<Option<bool>> = arrow::array::AsArray::as_boolean(&made).iter().collect();
        assert_eq!(made, [Some(true), Some(true), None, Some(false)]);
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

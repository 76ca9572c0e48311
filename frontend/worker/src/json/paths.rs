//! Paths into a value: arrays of texts as PostgreSQL has them, and GreptimeDB's texts.
//!
//! ```text
//!   '{a,0,b}', ARRAY['a','0','b']     a, 0, b
//!   'a[0].b', '$.a[0]["b"]'           likewise
//! ```
//!
//! A step is a key in an object and an index in an array, which counts from the end when it is negative.

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::error::Result;

use super::define::Call;
use super::text::{Kind, elements, members, unquoted};
use crate::blanks::is_blank;
use crate::error::{INVALID_TEXT, SqlError};

/// Steps of a path; `None` for NULL, which leads nowhere.
pub(super) type Path = Vec<Option<String>>;

/// An argument of paths.
pub(super) enum Paths {
    Lists(ListArray),
    Texts(StringViewArray),
}

impl Paths {
    /// The argument at a position.
    pub(super) fn of(call: &Call<'_>, position: usize) -> Result<Self> {
        if call.arguments[position].data_type().is_list() {
            let lists = cast(&call.arguments[position], &list_type())?;
            return Ok(Self::Lists(lists.as_list::<i32>().clone()));
        }
        Ok(Self::Texts(call.texts(position)?))
    }

    /// The path of a row; `None` for NULL.
    pub(super) fn at(&self, row: usize) -> Result<Option<Path>, SqlError> {
        match self {
            Self::Lists(lists) if lists.is_null(row) => Ok(None),
            Self::Lists(lists) => Ok(Some(steps(&lists.value(row)))),
            Self::Texts(texts) if texts.is_null(row) => Ok(None),
            Self::Texts(texts) => literal(texts.value(row)).map(Some),
        }
    }
}

/// Type to which lists of steps are coerced.
pub(super) fn list_type() -> DataType {
    DataType::new_list(DataType::Utf8, true)
}

/// Coerces a path: an array of texts, or its literal.
pub(super) fn coerced(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)
            if item.data_type().is_string() || item.data_type().is_null() =>
        {
            Some(list_type())
        }
        _ if data_type.is_string() || data_type.is_null() => Some(DataType::Utf8View),
        _ => None,
    }
}

fn steps(list: &ArrayRef) -> Path {
    list.as_string::<i32>().iter().map(|step| step.map(str::to_owned)).collect()
}

/// Reads the literal of an array of texts.
fn literal(text: &str) -> Result<Path, SqlError> {
    let malformed = || SqlError::new(INVALID_TEXT, format!("malformed array literal: \"{text}\""));
    let inner =
        text.trim_matches(is_blank).strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let inner = inner.ok_or_else(malformed)?;
    let mut path = Vec::new();
    if inner.trim_matches(is_blank).is_empty() {
        return Ok(path);
    }
    let (mut step, mut in_quotes, mut has_quotes) = (String::new(), false, false);
    let mut characters = inner.chars();
    // The comma at the end closes the last step.
    let mut end = Some(',');
    while let Some(character) = characters.next().or_else(|| end.take()) {
        match character {
            '\\' => step.push(characters.next().ok_or_else(malformed)?),
            '"' => {
                in_quotes = !in_quotes;
                has_quotes = true;
            }
            ',' if !in_quotes => {
                path.push(closed(&step, has_quotes).ok_or_else(malformed)?);
                step.clear();
                has_quotes = false;
            }
            '{' | '}' if !in_quotes => return Err(malformed()),
            // Blanks around a step are not part of it.
            blank if is_blank(blank) && !in_quotes && (step.is_empty() || has_quotes) => {}
            other => step.push(other),
        }
    }
    if in_quotes { Err(malformed()) } else { Ok(path) }
}

/// A step of a literal; an empty one without quotes is an error.
fn closed(step: &str, has_quotes: bool) -> Option<Option<String>> {
    if has_quotes {
        return Some(Some(step.to_owned()));
    }
    match step.trim_matches(is_blank) {
        "" => None,
        null if null.eq_ignore_ascii_case("null") => Some(None),
        step => Some(Some(step.to_owned())),
    }
}

/// Reads one of GreptimeDB's paths: names and indexes only.
pub(super) fn dotted(text: &str) -> Result<Path, SqlError> {
    let unsupported = || SqlError::unsupported(format!("the path \"{text}\" of JSON"));
    let mut rest = text.trim();
    rest = rest.strip_prefix('$').unwrap_or(rest);
    let mut path = Vec::new();
    while !rest.is_empty() {
        let (step, remaining) = if let Some(bracket) = rest.strip_prefix('[') {
            let (step, remaining) = bracket.split_once(']').ok_or_else(unsupported)?;
            let step = step.trim();
            let name = step.strip_prefix('"').and_then(|step| step.strip_suffix('"'));
            if name.is_none() && step.parse::<i64>().is_err() {
                return Err(unsupported());
            }
            (name.unwrap_or(step), remaining)
        } else {
            let name = rest.strip_prefix('.').unwrap_or(rest);
            let end = name.find(['.', '[']).unwrap_or(name.len());
            let (step, remaining) = name.split_at(end);
            if step.is_empty() || step.contains(['*', '?', '(', '@', '$']) {
                return Err(unsupported());
            }
            (step, remaining)
        };
        path.push(Some(step.to_owned()));
        rest = remaining;
    }
    Ok(path)
}

/// The text of the part that a path leads to.
pub(super) fn descend<'a>(
    text: &'a str,
    path: &[Option<String>],
) -> Result<Option<&'a str>, SqlError> {
    let mut part = text.trim();
    for step in path {
        let Some(step) = step else { return Ok(None) };
        let next = match Kind::of(part) {
            Kind::Object => member(part, step)?,
            Kind::Array => match step.trim().parse() {
                Ok(index) => element(part, index)?,
                Err(_) => None,
            },
            _ => None,
        };
        let Some(next) = next else { return Ok(None) };
        part = next;
    }
    Ok(Some(part))
}

/// The text of an object's member; the last one with the key.
pub(super) fn member<'a>(text: &'a str, key: &str) -> Result<Option<&'a str>, SqlError> {
    let mut part = None;
    members(text, |name, value| {
        if unquoted(name).is_ok_and(|name| name == key) {
            part = Some(value);
        }
    })?;
    Ok(part)
}

/// The text of an array's element.
pub(super) fn element(text: &str, index: i64) -> Result<Option<&str>, SqlError> {
    let mut parts = Vec::new();
    elements(text, |part| parts.push(part))?;
    let position = place(index, parts.len());
    Ok(position.and_then(|position| parts.get(position).copied()))
}

/// The position that an index means among `count` elements; `None` before the first one.
pub(super) fn place(index: i64, count: usize) -> Option<usize> {
    match usize::try_from(index) {
        Ok(position) => Some(position),
        Err(_) => count.checked_sub(usize::try_from(index.unsigned_abs()).ok()?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(steps: &[&str]) -> Path {
        steps.iter().map(|step| Some((*step).to_owned())).collect()
    }

    #[test]
    fn literals_and_dotted_texts_are_paths() {
        assert_eq!(literal("{a, 0,\"b c\",\"x\\\"y\"}").unwrap(), path(&["a", "0", "b c", "x\"y"]));
        assert_eq!(literal("{}").unwrap(), path(&[]));
        assert_eq!(literal("{NULL,\"NULL\"}").unwrap(), [None, Some("NULL".to_owned())]);
        for wrong in ["a", "{a", "{a,}", "{{a}}", "{\"a}"] {
            assert_eq!(literal(wrong).unwrap_err().sqlstate, "22P02", "{wrong}");
        }
        for text in ["$.a[0].b", "a[0].b", "a[0][\"b\"]"] {
            assert_eq!(dotted(text).unwrap(), path(&["a", "0", "b"]), "{text}");
        }
        assert_eq!(dotted("$").unwrap(), path(&[]));
        for wrong in ["$.*", "a[*]", "a..b", "$[?(@.a)]"] {
            assert_eq!(dotted(wrong).unwrap_err().sqlstate, "0A000", "{wrong}");
        }
    }

    #[test]
    fn a_path_leads_through_objects_and_arrays() {
        let text = "{\"a\": [1, {\"b\": \"x\"}], \"n\": null, \"a b\": 2}";
        for (steps, part) in [
            (&["a", "1", "b"][..], Some("\"x\"")),
            (&["a", "-2"][..], Some("1")),
            (&["a", "-3"][..], None),
            (&["a", "x"][..], None),
            (&["n", "x"][..], None),
            (&["a b"][..], Some("2")),
            (&[][..], Some(text)),
        ] {
            assert_eq!(descend(text, &path(steps)).unwrap(), part, "{steps:?}");
        }
    }
}

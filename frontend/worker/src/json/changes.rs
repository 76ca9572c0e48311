//! Functions of JSONB that compare values or make other values of them.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result;
use datafusion::logical_expr::Volatility;
use partita_proto::json::JsonType;

use super::containment::contains;
use super::define::{Call, Definition, Gives, refused};
use super::normal::{Value, index};
use super::paths::{Paths, coerced, place};
use crate::bounded::check_size;
use crate::error::{NULL_NOT_ALLOWED, SqlError};
use crate::plain::{Texts, all, is_text, is_whole};

/// Name of the function that is `@>`.
pub(super) const CONTAINS: &str = "jsonb_contains";
/// Name of the function that is `?`.
pub(super) const EXISTS: &str = "jsonb_exists";
/// Name of the function that is `?|`.
pub(super) const EXISTS_ANY: &str = "jsonb_exists_any";
/// Name of the function that is `?&`.
pub(super) const EXISTS_ALL: &str = "jsonb_exists_all";
/// Name of the function that is `||`.
pub(super) const CONCAT: &str = "jsonb_concat";
/// Name of the function that is `-`.
pub(super) const DELETE: &str = "jsonb_delete";
/// Name of the function that is `#-`.
pub(super) const DELETE_PATH: &str = "jsonb_delete_path";
/// Name of the function that writes a line for each part.
const PRETTY: &str = "jsonb_pretty";
/// Blanks of one level of `jsonb_pretty`.
const INDENT: &str = "    ";
/// Keys up to which each is compared with each element of an array; more are looked up.
const COMPARED_MAX: usize = 16;

const JSONB: Gives = Gives::Json(JsonType::Jsonb);

const fn define(
    name: &'static str,
    takes: fn(&[DataType]) -> Option<Vec<DataType>>,
    gives: Gives,
    run: fn(&Call<'_>) -> Result<ArrayRef>,
) -> Definition {
    Definition { name, takes, gives, volatility: Volatility::Immutable, run }
}

/// The functions to register.
pub(super) static FUNCTIONS: &[Definition] = &[
    define(CONTAINS, two, Gives::Boolean, |call| {
        test(call, |left, right| contains(left, &Value::read(right)?))
    }),
    define("jsonb_contained", two, Gives::Boolean, |call| {
        test(call, |left, right| contains(&Value::read(right)?, left))
    }),
    define(EXISTS, two, Gives::Boolean, |call| test(call, |value, key| Ok(exists(value, key)))),
    define(EXISTS_ANY, with_path, Gives::Boolean, |call| exist(call, false)),
    define(EXISTS_ALL, with_path, Gives::Boolean, |call| exist(call, true)),
    define(CONCAT, two, JSONB, concatenated),
    define(DELETE, with_step, JSONB, deleted),
    define(DELETE_PATH, with_path, JSONB, deleted_path),
    define("jsonb_set", with_value, JSONB, set),
    define("jsonb_insert", with_value, JSONB, inserted),
    define("jsonb_strip_nulls", one, JSONB, |call| {
        each(call, |mut value| {
            strip(&mut value);
            Ok(value.text()?)
        })
    }),
    define(PRETTY, one, Gives::Text, |call| {
        each(call, |value| {
            let mut text = String::new();
            pretty(&value, 0, &mut text)?;
            Ok(text)
        })
    }),
];

fn one(types: &[DataType]) -> Option<Vec<DataType>> {
    all(types, 1, is_text, &DataType::Utf8View)
}

fn two(types: &[DataType]) -> Option<Vec<DataType>> {
    all(types, 2, is_text, &DataType::Utf8View)
}

fn with_path(types: &[DataType]) -> Option<Vec<DataType>> {
    match types {
        [value, path] if is_text(value) => Some(vec![DataType::Utf8View, coerced(path)?]),
        _ => None,
    }
}

/// A value, and a key, an index or an array of keys.
fn with_step(types: &[DataType]) -> Option<Vec<DataType>> {
    match types {
        [value, step] if is_text(value) && is_text(step) => two(types),
        [value, step] if is_text(value) && is_whole(step) => {
            Some(vec![DataType::Utf8View, DataType::Int64])
        }
        _ => with_path(types),
    }
}

/// A value, a path, another value, and whether to create what is missing.
fn with_value(types: &[DataType]) -> Option<Vec<DataType>> {
    let (parts, creates) = match types {
        [value, path, new] => ([value, path, new], None),
        [value, path, new, creates] => ([value, path, new], Some(creates)),
        _ => return None,
    };
    let [value, path, new] = parts;
    if !is_text(value) || !is_text(new) {
        return None;
    }
    let mut taken = vec![DataType::Utf8View, coerced(path)?, DataType::Utf8View];
    match creates {
        None => {}
        Some(DataType::Boolean | DataType::Null) => taken.push(DataType::Boolean),
        Some(_) => return None,
    }
    Some(taken)
}

fn each(call: &Call<'_>, make: fn(Value<'_>) -> Result<String>) -> Result<ArrayRef> {
    let texts = call.texts(0)?;
    let mut results = Texts::new(call.name, call.rows);
    for text in &texts {
        let value = text.map(Value::read).transpose()?;
        results.push(value.map(make).transpose()?)?;
    }
    Ok(results.finish())
}

/// A property of a value and a text.
fn test(
    call: &Call<'_>,
    property: fn(&Value<'_>, &str) -> Result<bool, SqlError>,
) -> Result<ArrayRef> {
    let (left, right) = (call.texts(0)?, call.texts(1)?);
    let mut results = Vec::with_capacity(call.rows);
    for pair in left.iter().zip(&right) {
        results.push(match pair {
            (Some(left), Some(right)) => Some(property(&Value::read(left)?, right)?),
            _ => None,
        });
    }
    Ok(Arc::new(BooleanArray::from(results)))
}

/// True if a text is a key of an object, an element of an array, or the value itself.
fn exists(value: &Value<'_>, key: &str) -> bool {
    let is_key = |value: &Value<'_>| matches!(value, Value::String(text) if text == key);
    match value {
        Value::Object(_) => value.member(key).is_some(),
        Value::Array(elements) => elements.iter().any(is_key),
        value => is_key(value),
    }
}

fn exist(call: &Call<'_>, all: bool) -> Result<ArrayRef> {
    let (texts, keys) = (call.texts(0)?, Paths::of(call, 1)?);
    let mut results = Vec::with_capacity(call.rows);
    for (row, text) in texts.iter().enumerate() {
        results.push(match (text, keys.at(row)?) {
            (Some(text), Some(keys)) => Some(keys_exist(&Value::read(text)?, &keys, all)),
            _ => None,
        });
    }
    Ok(Arc::new(BooleanArray::from(results)))
}

/// True if all keys of a list exist in a value, or else any of them.
fn keys_exist(value: &Value<'_>, keys: &[Option<String>], all: bool) -> bool {
    let texts: Option<HashSet<&str>> = match value {
        Value::Array(elements) if keys.len() > COMPARED_MAX => {
            let texts = elements.iter().filter_map(|element| match element {
                Value::String(text) => Some(&**text),
                _ => None,
            });
            Some(texts.collect())
        }
        _ => None,
    };
    let is_there = |key: &String| match &texts {
        Some(texts) => texts.contains(key.as_str()),
        None => exists(value, key),
    };
    let mut keys = keys.iter().flatten();
    if all { keys.all(is_there) } else { keys.any(is_there) }
}

fn concatenated(call: &Call<'_>) -> Result<ArrayRef> {
    let (left, right) = (call.texts(0)?, call.texts(1)?);
    let mut results = Texts::new(call.name, call.rows);
    for pair in left.iter().zip(&right) {
        results.push(match pair {
            (Some(left), Some(right)) => {
                Some(joined(Value::read(left)?, Value::read(right)?).text()?)
            }
            _ => None,
        })?;
    }
    Ok(results.finish())
}

/// Two objects as one, of which the second wins; other values as an array of both, or of their elements.
fn joined<'a>(left: Value<'a>, right: Value<'a>) -> Value<'a> {
    match (left, right) {
        (Value::Object(mut members), Value::Object(others)) => {
            members.extend(others);
            Value::object_of(members)
        }
        (left, right) => {
            let elements = |value| match value {
                Value::Array(elements) => elements,
                value => vec![value],
            };
            let mut all = elements(left);
            all.extend(elements(right));
            Value::Array(all)
        }
    }
}

fn deleted(call: &Call<'_>) -> Result<ArrayRef> {
    let texts = call.texts(0)?;
    let indexes = call.arguments[1].as_primitive_opt::<Int64Type>();
    let is_list = call.arguments[1].data_type().is_list();
    let keys = if is_list { Some(Paths::of(call, 1)?) } else { None };
    let names = if is_list || indexes.is_some() { None } else { Some(call.texts(1)?) };
    let mut results = Texts::new(call.name, call.rows);
    for (row, text) in texts.iter().enumerate() {
        let Some(text) = text.filter(|_| call.arguments[1].is_valid(row)) else {
            results.push(None::<String>)?;
            continue;
        };
        let mut value = Value::read(text)?;
        if !value.is_container() {
            return Err(refused("cannot delete from scalar").into());
        }
        // The type of the argument decides what is deleted.
        if let Some(indexes) = indexes {
            let Value::Array(elements) = &mut value else {
                return Err(refused("cannot delete from object using integer index").into());
            };
            remove(elements, indexes.value(row));
        }
        if let Some(names) = &names {
            without(&mut value, |key| key == names.value(row));
        }
        if let Some(keys) = &keys {
            let keys = keys.at(row)?.unwrap_or_default();
            let keys: HashSet<&str> = keys.iter().flatten().map(String::as_str).collect();
            without(&mut value, |key| keys.contains(key));
        }
        results.push(Some(value.text()?))?;
    }
    Ok(results.finish())
}

/// Removes the members of some keys, or the elements that are texts like them.
fn without(value: &mut Value<'_>, is_removed: impl Fn(&str) -> bool) {
    match value {
        Value::Object(members) => members.retain(|(key, _)| !is_removed(key)),
        Value::Array(elements) => {
            elements.retain(|element| !matches!(element, Value::String(text) if is_removed(text)));
        }
        _ => {}
    }
}

fn remove(elements: &mut Vec<Value<'_>>, index: i64) {
    if let Some(position) = place(index, elements.len())
        && position < elements.len()
    {
        elements.remove(position);
    }
}

fn deleted_path(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, paths) = (call.texts(0)?, Paths::of(call, 1)?);
    let mut results = Texts::new(call.name, call.rows);
    for (row, text) in texts.iter().enumerate() {
        let (Some(text), Some(path)) = (text, paths.at(row)?) else {
            results.push(None::<String>)?;
            continue;
        };
        let mut value = Value::read(text)?;
        if !value.is_container() {
            return Err(refused("cannot delete path in scalar").into());
        }
        delete(&mut value, &path, 1)?;
        results.push(Some(value.text()?))?;
    }
    Ok(results.finish())
}

/// Removes the part that a path leads to; `position` is that of its first step, for errors.
fn delete(value: &mut Value<'_>, path: &[Option<String>], position: usize) -> Result<(), SqlError> {
    let Some((Some(step), rest)) = path.split_first() else { return Ok(()) };
    match value {
        Value::Object(members) if rest.is_empty() => members.retain(|(key, _)| key != step),
        Value::Object(members) => {
            if let Some((_, next)) = members.iter_mut().find(|(key, _)| key == step) {
                delete(next, rest, position + 1)?;
            }
        }
        Value::Array(elements) => {
            let index = index(step, position)?;
            if rest.is_empty() {
                remove(elements, index);
            } else if let Some(place) = place(index, elements.len())
                && let Some(next) = elements.get_mut(place)
            {
                delete(next, rest, position + 1)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn set(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, paths, news) = (call.texts(0)?, Paths::of(call, 1)?, call.texts(2)?);
    let creates = call.arguments.get(3).and_then(|creates| creates.as_boolean_opt());
    let mut results = Texts::new(call.name, call.rows);
    for (row, (text, new)) in texts.iter().zip(&news).enumerate() {
        let is_known = creates.is_none_or(|creates| creates.is_valid(row));
        let (Some(text), Some(path), Some(new), true) = (text, paths.at(row)?, new, is_known)
        else {
            results.push(None::<String>)?;
            continue;
        };
        let mut value = Value::read(text)?;
        if !value.is_container() {
            return Err(refused("cannot set path in scalar").into());
        }
        if path.iter().any(Option::is_none) {
            return Err(refused("path element is null").into());
        }
        // The change has the same form at each level of the path.
        let change = Change {
            new: Value::read(new)?,
            creates: creates.is_none_or(|creates| creates.value(row)),
        };
        change.apply(&mut value, &path, 1)?;
        results.push(Some(value.text()?))?;
    }
    Ok(results.finish())
}

/// A part that is set.
struct Change<'a> {
    new: Value<'a>,
    creates: bool,
}

impl<'a> Change<'a> {
    fn apply(
        &self,
        value: &mut Value<'a>,
        path: &[Option<String>],
        position: usize,
    ) -> Result<(), SqlError> {
        let Some((Some(step), rest)) = path.split_first() else { return Ok(()) };
        match value {
            Value::Object(members) => match members.iter_mut().find(|(key, _)| key == step) {
                Some((_, part)) if rest.is_empty() => *part = self.new.clone(),
                Some((_, part)) => self.apply(part, rest, position + 1)?,
                None if rest.is_empty() && self.creates => {
                    let mut members = std::mem::take(members);
                    members.push((Cow::Owned(step.clone()), self.new.clone()));
                    *value = Value::object_of(members);
                }
                None => {}
            },
            Value::Array(elements) => {
                let index = index(step, position)?;
                let place = place(index, elements.len());
                match place.and_then(|place| elements.get_mut(place)) {
                    Some(part) if rest.is_empty() => *part = self.new.clone(),
                    Some(part) => self.apply(part, rest, position + 1)?,
                    // Beyond an end the element goes to this end.
                    None if rest.is_empty() && self.creates => {
                        let end = if index < 0 { 0 } else { elements.len() };
                        elements.insert(end, self.new.clone());
                    }
                    None => {}
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn inserted(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, paths, news) = (call.texts(0)?, Paths::of(call, 1)?, call.texts(2)?);
    let after = call.arguments.get(3).and_then(|after| after.as_boolean_opt());
    let mut results = Texts::new(call.name, call.rows);
    for (row, (text, new)) in texts.iter().zip(&news).enumerate() {
        let is_known = after.is_none_or(|after| after.is_valid(row));
        let (Some(text), Some(path), Some(new), true) = (text, paths.at(row)?, new, is_known)
        else {
            results.push(None::<String>)?;
            continue;
        };
        let mut value = Value::read(text)?;
        if !value.is_container() {
            return Err(refused("cannot set path in scalar").into());
        }
        let insertion = Insertion {
            new: Value::read(new)?,
            is_after: after.is_some_and(|after| after.value(row)),
        };
        insertion.apply(&mut value, &path, 1)?;
        results.push(Some(value.text()?))?;
    }
    Ok(results.finish())
}

/// A part that is added.
struct Insertion<'a> {
    new: Value<'a>,
    /// True if it goes behind the element that the path leads to.
    is_after: bool,
}

impl<'a> Insertion<'a> {
    fn apply(
        &self,
        value: &mut Value<'a>,
        path: &[Option<String>],
        position: usize,
    ) -> Result<(), SqlError> {
        let Some((step, rest)) = path.split_first() else { return Ok(()) };
        let Some(step) = step else {
            let message = format!("path element at position {position} is null");
            return Err(SqlError::new(NULL_NOT_ALLOWED, message));
        };
        match value {
            Value::Object(members) => match members.iter_mut().find(|(key, _)| key == step) {
                Some(_) if rest.is_empty() => {
                    return Err(refused("cannot replace existing key")
                        .with_hint("Try using the function jsonb_set to replace key value."));
                }
                Some((_, part)) => self.apply(part, rest, position + 1)?,
                None if rest.is_empty() => {
                    let mut members = std::mem::take(members);
                    members.push((Cow::Owned(step.clone()), self.new.clone()));
                    *value = Value::object_of(members);
                }
                None => {}
            },
            Value::Array(elements) => {
                let index = index(step, position)?;
                let found = place(index, elements.len()).filter(|place| *place < elements.len());
                match found {
                    Some(place) if rest.is_empty() => {
                        elements.insert(place + usize::from(self.is_after), self.new.clone());
                    }
                    Some(place) => self.apply(&mut elements[place], rest, position + 1)?,
                    // Beyond an end the element goes to this end.
                    None if rest.is_empty() => {
                        let end = if index < 0 { 0 } else { elements.len() };
                        elements.insert(end, self.new.clone());
                    }
                    None => {}
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Removes the members of all objects that are null.
fn strip(value: &mut Value<'_>) {
    match value {
        Value::Object(members) => {
            members.retain(|(_, part)| *part != Value::Null);
            members.iter_mut().for_each(|(_, part)| strip(part));
        }
        Value::Array(elements) => elements.iter_mut().for_each(strip),
        _ => {}
    }
}

/// Appends a value with a line for each part.
///
/// # Errors
/// When the text is too large: each part deep inside is preceded by many blanks.
fn pretty(value: &Value<'_>, level: usize, output: &mut String) -> Result<()> {
    check_size(PRETTY, output.len() as u64)?;
    let line = |output: &mut String, level: usize| {
        output.push('\n');
        output.extend(std::iter::repeat_n(INDENT, level));
    };
    // Each part has a line, and the end has one of its own.
    match value {
        Value::Array(elements) => {
            output.push('[');
            for (position, element) in elements.iter().enumerate() {
                if position > 0 {
                    output.push(',');
                }
                line(output, level + 1);
                pretty(element, level + 1, output)?;
            }
            line(output, level);
            output.push(']');
        }
        Value::Object(members) => {
            output.push('{');
            for (position, (key, part)) in members.iter().enumerate() {
                if position > 0 {
                    output.push(',');
                }
                line(output, level + 1);
                super::text::quote(key, output);
                output.push_str(": ");
                pretty(part, level + 1, output)?;
            }
            line(output, level);
            output.push('}');
        }
        value => value.write(output),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(steps: &[&str]) -> Vec<Option<String>> {
        steps.iter().map(|step| Some((*step).to_owned())).collect()
    }

    #[test]
    fn parts_are_set_as_in_postgresql() {
        for (text, steps, creates, expected) in [
            ("{\"a\": 1}", &["a"][..], false, "{\"a\": 9}"),
            ("{\"a\": 1}", &["b"][..], true, "{\"a\": 1, \"b\": 9}"),
            ("{\"a\": 1}", &["b"][..], false, "{\"a\": 1}"),
            ("[1, 2]", &["-1"][..], true, "[1, 9]"),
            ("[1, 2]", &["5"][..], true, "[1, 2, 9]"),
            ("[1, 2]", &["-5"][..], true, "[9, 1, 2]"),
            ("{\"a\": [{\"b\": 1}]}", &["a", "0", "b"][..], true, "{\"a\": [{\"b\": 9}]}"),
            ("{\"a\": 1}", &["a", "b"][..], true, "{\"a\": 1}"),
        ] {
            let mut value = Value::read(text).unwrap();
            let change = Change { new: Value::read("9").unwrap(), creates };
            change.apply(&mut value, &path(steps), 1).unwrap();
            assert_eq!(value.text().unwrap(), expected, "{text} {steps:?}");
        }
        let mut value = Value::read("[1]").unwrap();
        let change = Change { new: Value::Null, creates: true };
        assert_eq!(change.apply(&mut value, &path(&["x"]), 1).unwrap_err().sqlstate, "22P02");
    }

    #[test]
    fn parts_are_inserted_as_in_postgresql() {
        let insert = |text: &'static str, steps: &[&str], is_after| {
            let mut value = Value::read(text).unwrap();
            let insertion = Insertion { new: Value::read("9").unwrap(), is_after };
            insertion.apply(&mut value, &path(steps), 1).and_then(|()| value.text())
        };
        for (text, steps, is_after, expected) in [
            ("{\"a\": [0, 1]}", &["a", "1"][..], false, "{\"a\": [0, 9, 1]}"),
            ("{\"a\": [0, 1]}", &["a", "1"][..], true, "{\"a\": [0, 1, 9]}"),
            ("[1, 2]", &["-1"][..], false, "[1, 9, 2]"),
            ("[1, 2]", &["7"][..], false, "[1, 2, 9]"),
            ("[1, 2]", &["-7"][..], true, "[9, 1, 2]"),
            ("[]", &["0"][..], true, "[9]"),
            ("{\"a\": 1}", &["b"][..], false, "{\"a\": 1, \"b\": 9}"),
            ("{\"a\": 1}", &["x", "y"][..], false, "{\"a\": 1}"),
            ("[1]", &[][..], false, "[1]"),
        ] {
            assert_eq!(insert(text, steps, is_after).unwrap(), expected, "{text} {steps:?}");
        }
        assert_eq!(insert("{\"a\": 1}", &["a"], false).unwrap_err().sqlstate, "22023");
    }

    #[test]
    fn values_are_joined_and_printed_as_in_postgresql() {
        for (left, right, expected) in [
            ("{\"a\": 1, \"b\": 2}", "{\"a\": 3}", "{\"a\": 3, \"b\": 2}"),
            ("[1]", "[2]", "[1, 2]"),
            ("[1]", "{\"a\": 1}", "[1, {\"a\": 1}]"),
            ("1", "2", "[1, 2]"),
        ] {
            let value = joined(Value::read(left).unwrap(), Value::read(right).unwrap());
            assert_eq!(value.text().unwrap(), expected);
        }
        let mut text = String::new();
        pretty(&Value::read("{\"a\": [1, {}], \"b\": null}").unwrap(), 0, &mut text).unwrap();
        let lines = [
            "{",
            "    \"a\": [",
            "        1,",
            "        {",
            "        }",
            "    ],",
            "    \"b\": null",
            "}",
        ];
        assert_eq!(text, lines.join("\n"));
    }

    #[test]
    fn blanks_before_deep_parts_are_bounded() {
        let (open, close, ones) = ("[".repeat(200), "]".repeat(200), vec!["1"; 100_000].join(","));
        let deep = format!("{open}{ones}{close}");
        let mut text = String::new();
        let error = pretty(&Value::read(&deep).unwrap(), 0, &mut text).unwrap_err();
        assert_eq!(SqlError::from(error).sqlstate, "54000");
        assert!(text.len() < 64 << 20);
    }

    #[test]
    fn many_keys_are_found_and_removed_as_few_are() {
        let keys = |numbers: std::ops::Range<usize>| -> Vec<Option<String>> {
            numbers.map(|number| Some(format!("k{number}"))).chain([None]).collect()
        };
        let names: Vec<String> = (0..40).map(|number| format!("\"k{number}\"")).collect();
        let array = format!("[{}, 1]", names.join(", "));
        let object = format!("{{{}}}", names.join(": 1, ") + ": 1");
        for text in [&array, &object] {
            let value = Value::read(text).unwrap();
            for count in [3, 40] {
                assert!(keys_exist(&value, &keys(0..count), true), "{text} {count}");
                assert!(!keys_exist(&value, &keys(1..count + 40), true), "{text} {count}");
                assert!(keys_exist(&value, &keys(39..count + 40), false), "{text} {count}");
                assert!(!keys_exist(&value, &keys(40..count + 40), false), "{text} {count}");
            }
        }
        let removed = |text: &str| {
            let mut value = Value::read(text).unwrap();
            without(&mut value, |key| key != "k7");
            value.text().unwrap()
        };
        assert_eq!(removed(&array), "[\"k7\", 1]");
        assert_eq!(removed(&object), "{\"k7\": 1}");
    }
}

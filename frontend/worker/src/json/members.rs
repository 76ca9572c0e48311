//! Functions that read a value: its parts, its kind, its length.
//!
//! They work on the text, without a tree: what they return of JSON is a slice of it, as in PostgreSQL.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int32Array, Int64Array, ListBuilder,
    StringBuilder, StringViewArray,
};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result;
use datafusion::logical_expr::Volatility;
use partita_proto::json::JsonType;

use super::define::{Call, Definition, Gives, refused};
use super::paths::{Path, Paths, coerced, descend, dotted, element, member};
use super::text::{Kind, elements, members, unquoted};
use crate::bounded::{check_size, check_total};
use crate::error::SqlError;
use crate::plain::{Texts, all, is_text, is_whole};

/// Name of the function that is `->`.
pub(super) const MEMBER: &str = "json_member";
/// Name of the function that is `->>`.
pub(super) const MEMBER_TEXT: &str = "json_member_text";
/// Name of the function that is `#>`.
pub(super) const PATH: &str = "json_part";
/// Name of the function that is `#>>`.
pub(super) const PATH_TEXT: &str = "json_part_text";

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
    define(MEMBER, with_key, Gives::LikeFirst, |call| parts(call, keyed)),
    define(MEMBER_TEXT, with_key, Gives::Text, |call| part_texts(call, keyed)),
    define(PATH, with_path, Gives::LikeFirst, |call| parts(call, at_path)),
    define(PATH_TEXT, with_path, Gives::Text, |call| part_texts(call, at_path)),
    define("json_extract_path", with_steps, JSON, |call| parts(call, at_steps)),
    define("jsonb_extract_path", with_steps, JSONB, |call| parts(call, at_steps)),
    define("json_extract_path_text", with_steps, Gives::Text, |call| part_texts(call, at_steps)),
    define("jsonb_extract_path_text", with_steps, Gives::Text, |call| part_texts(call, at_steps)),
    define("json_typeof", alone, Gives::Text, kinds),
    define("jsonb_typeof", alone, Gives::Text, kinds),
    define("json_array_length", alone, Gives::Int32, lengths),
    define("jsonb_array_length", alone, Gives::Int32, lengths),
    // Functions of sets return arrays, which the planner spreads over rows.
    define("json_object_keys_list", alone, Gives::TextList, |call| lists(call, keys)),
    define("jsonb_object_keys_list", alone, Gives::TextList, |call| lists(call, keys)),
    define("json_array_elements_list", alone, Gives::ListLikeFirst, |call| {
        lists(call, raw_elements)
    }),
    define("jsonb_array_elements_list", alone, Gives::ListLikeFirst, |call| {
        lists(call, raw_elements)
    }),
    define("json_array_elements_text_list", alone, Gives::TextList, |call| {
        lists(call, element_texts)
    }),
    define("jsonb_array_elements_text_list", alone, Gives::TextList, |call| {
        lists(call, element_texts)
    }),
    // GreptimeDB's.
    define("json_get_string", with_text, Gives::Text, |call| part_texts(call, at_dotted)),
    define("json_get_int", with_text, Gives::Int64, |call| {
        let value = |text: &str| text.parse::<i64>().ok();
        Ok(Arc::new(scalars(call, value)?.into_iter().collect::<Int64Array>()))
    }),
    define("json_get_float", with_text, Gives::Float64, |call| {
        let value = |text: &str| text.parse::<f64>().ok();
        Ok(Arc::new(scalars(call, value)?.into_iter().collect::<Float64Array>()))
    }),
    define("json_get_bool", with_text, Gives::Boolean, |call| {
        let value = |text: &str| text.parse::<bool>().ok();
        Ok(Arc::new(scalars(call, value)?.into_iter().collect::<BooleanArray>()))
    }),
    define("json_path_exists", with_text, Gives::Boolean, |call| {
        each(call, at_dotted, |part| Ok(part.is_some()))
    }),
    define("json_is_null", alone, Gives::Boolean, |call| is(call, |text| text == "null")),
    define("json_is_bool", alone, Gives::Boolean, |call| {
        is(call, |text| Kind::of(text) == Kind::Boolean)
    }),
    define("json_is_int", alone, Gives::Boolean, |call| is(call, |t| t.parse::<i64>().is_ok())),
    define("json_is_float", alone, Gives::Boolean, |call| {
        is(call, |text| Kind::of(text) == Kind::Number && text.parse::<i64>().is_err())
    }),
    define("json_is_string", alone, Gives::Boolean, |call| {
        is(call, |text| Kind::of(text) == Kind::String)
    }),
    define("json_is_array", alone, Gives::Boolean, |call| {
        is(call, |text| Kind::of(text) == Kind::Array)
    }),
    define("json_is_object", alone, Gives::Boolean, |call| {
        is(call, |text| Kind::of(text) == Kind::Object)
    }),
];

const JSON: Gives = Gives::Json(JsonType::Json);
const JSONB: Gives = Gives::Json(JsonType::Jsonb);

fn alone(types: &[DataType]) -> Option<Vec<DataType>> {
    all(types, 1, is_text, &DataType::Utf8View)
}

fn with_text(types: &[DataType]) -> Option<Vec<DataType>> {
    all(types, 2, is_text, &DataType::Utf8View)
}

fn with_key(types: &[DataType]) -> Option<Vec<DataType>> {
    match types {
        [value, key] if is_text(value) && is_text(key) => with_text(types),
        [value, index] if is_text(value) && is_whole(index) => {
            Some(vec![DataType::Utf8View, DataType::Int64])
        }
        _ => None,
    }
}

fn with_path(types: &[DataType]) -> Option<Vec<DataType>> {
    match types {
        [value, path] if is_text(value) => Some(vec![DataType::Utf8View, coerced(path)?]),
        _ => None,
    }
}

fn with_steps(types: &[DataType]) -> Option<Vec<DataType>> {
    all(types, types.len().max(1), is_text, &DataType::Utf8View)
}

/// Finds the part of a row's value, given the call and the row.
type Find = for<'a> fn(&Steps, &'a str, usize) -> Result<Option<&'a str>, SqlError>;

/// The arguments that lead to a part.
enum Steps {
    Keys(StringViewArray),
    Indexes(Int64Array),
    Paths(Paths),
    Each(Vec<StringViewArray>),
    None,
}

impl Steps {
    fn of(call: &Call<'_>) -> Result<Self> {
        if call.arguments.len() < 2 {
            return Ok(Self::None);
        }
        Ok(match call.arguments[1].data_type() {
            DataType::Int64 => Self::Indexes(call.arguments[1].as_primitive::<Int64Type>().clone()),
            data_type if data_type.is_list() || call.name.starts_with(PATH) => {
                Self::Paths(Paths::of(call, 1)?)
            }
            _ if call.name.contains("extract_path") => {
                let steps = (1..call.arguments.len()).map(|position| call.texts(position));
                Self::Each(steps.collect::<Result<_>>()?)
            }
            _ => Self::Keys(call.texts(1)?),
        })
    }
}

fn keyed<'a>(steps: &Steps, text: &'a str, row: usize) -> Result<Option<&'a str>, SqlError> {
    match steps {
        Steps::Keys(keys) if keys.is_valid(row) => member(text, keys.value(row)),
        Steps::Indexes(indexes) if indexes.is_valid(row) => element(text, indexes.value(row)),
        _ => Ok(None),
    }
}

fn at_path<'a>(steps: &Steps, text: &'a str, row: usize) -> Result<Option<&'a str>, SqlError> {
    let Steps::Paths(paths) = steps else { return Ok(None) };
    match paths.at(row)? {
        Some(path) => descend(text, &path),
        None => Ok(None),
    }
}

fn at_steps<'a>(steps: &Steps, text: &'a str, row: usize) -> Result<Option<&'a str>, SqlError> {
    let columns = match steps {
        Steps::Each(columns) => columns.as_slice(),
        _ => &[],
    };
    let step =
        |column: &StringViewArray| column.is_valid(row).then(|| column.value(row).to_owned());
    let path: Path = columns.iter().map(step).collect();
    descend(text, &path)
}

fn at_dotted<'a>(steps: &Steps, text: &'a str, row: usize) -> Result<Option<&'a str>, SqlError> {
    match steps {
        Steps::Keys(paths) if paths.is_valid(row) => descend(text, &dotted(paths.value(row))?),
        _ => Ok(None),
    }
}

/// The parts as JSON.
fn parts(call: &Call<'_>, find: Find) -> Result<ArrayRef> {
    let (texts, steps) = (call.values()?, Steps::of(call)?);
    let mut results = Texts::new(call.name, call.rows);
    for (row, text) in texts.iter().enumerate() {
        let part = text.map(|text| find(&steps, text, row)).transpose()?;
        results.push(part.flatten())?;
    }
    Ok(results.finish())
}

/// The parts as texts: strings without quotes, NULL for null.
fn part_texts(call: &Call<'_>, find: Find) -> Result<ArrayRef> {
    let (texts, steps) = (call.values()?, Steps::of(call)?);
    let mut results = Texts::new(call.name, call.rows);
    for (row, text) in texts.iter().enumerate() {
        let part = text.map(|text| find(&steps, text, row)).transpose()?.flatten();
        results.push(part.map(plain).transpose()?.flatten())?;
    }
    Ok(results.finish())
}

/// A value as a text; `None` for null.
pub(super) fn plain(part: &str) -> Result<Option<Cow<'_, str>>, SqlError> {
    let part = part.trim();
    Ok(match Kind::of(part) {
        Kind::Null => None,
        Kind::String => Some(unquoted(part)?),
        _ => Some(Cow::Borrowed(part)),
    })
}

/// The parts at GreptimeDB's paths as values, NULL where they are of another kind.
fn scalars<T>(call: &Call<'_>, read: fn(&str) -> Option<T>) -> Result<Vec<Option<T>>> {
    let (texts, steps) = (call.values()?, Steps::of(call)?);
    let mut values = Vec::with_capacity(call.rows);
    for (row, text) in texts.iter().enumerate() {
        let part = text.map(|text| at_dotted(&steps, text, row)).transpose()?.flatten();
        let part = part.map(plain).transpose()?.flatten();
        values.push(part.and_then(|part| read(&part)));
    }
    Ok(values)
}

/// A property of the parts.
fn each(
    call: &Call<'_>,
    find: Find,
    property: fn(Option<&str>) -> Result<bool, SqlError>,
) -> Result<ArrayRef> {
    let (texts, steps) = (call.values()?, Steps::of(call)?);
    let mut values = Vec::with_capacity(call.rows);
    for (row, text) in texts.iter().enumerate() {
        let value = text.map(|text| property(find(&steps, text, row)?)).transpose()?;
        values.push(value);
    }
    Ok(Arc::new(BooleanArray::from(values)))
}

/// A property of the whole values.
fn is(call: &Call<'_>, property: fn(&str) -> bool) -> Result<ArrayRef> {
    let texts = call.values()?;
    let values = texts.iter().map(|text| text.map(|text| property(text.trim())));
    Ok(Arc::new(values.collect::<BooleanArray>()))
}

fn kinds(call: &Call<'_>) -> Result<ArrayRef> {
    let texts = call.values()?;
    let mut results = Texts::new(call.name, call.rows);
    for text in &texts {
        results.push(text.map(|text| Kind::of(text).name()))?;
    }
    Ok(results.finish())
}

fn lengths(call: &Call<'_>) -> Result<ArrayRef> {
    let texts = call.values()?;
    let mut lengths = Vec::with_capacity(call.rows);
    for text in &texts {
        let Some(text) = text else {
            lengths.push(None);
            continue;
        };
        let mut count = 0_i32;
        if !elements(text, |_| count = count.saturating_add(1))? {
            let kind = if Kind::of(text) == Kind::Object { "non-array" } else { "scalar" };
            return Err(refused(format!("cannot get array length of a {kind}")).into());
        }
        lengths.push(Some(count));
    }
    Ok(Arc::new(Int32Array::from(lengths)))
}

/// Appends the parts of a value to an array.
type Spread = fn(&str, &str, &mut Vec<Option<String>>) -> Result<(), SqlError>;

fn lists(call: &Call<'_>, spread: Spread) -> Result<ArrayRef> {
    let (texts, name) = (call.values()?, call.name.trim_end_matches("_list"));
    let mut builder = ListBuilder::new(StringBuilder::new());
    let (mut parts, mut total) = (Vec::new(), 0_u64);
    for text in &texts {
        if let Some(text) = text {
            parts.clear();
            spread(name, text, &mut parts)?;
            for part in &parts {
                let size = part.as_ref().map_or(0, String::len) as u64;
                check_size(call.name, size)?;
                total = total.saturating_add(size);
                builder.values().append_option(part.as_deref());
            }
            check_total(call.name, call.rows, total)?;
        }
        builder.append(text.is_some());
    }
    Ok(Arc::new(builder.finish()))
}

fn keys(name: &str, text: &str, parts: &mut Vec<Option<String>>) -> Result<(), SqlError> {
    let mut failure = Ok(());
    let is_object = members(text, |key, _| match unquoted(key) {
        Ok(key) => parts.push(Some(key.into_owned())),
        Err(error) => failure = Err(error),
    })?;
    failure?;
    if !is_object {
        let kind = if Kind::of(text) == Kind::Array { "an array" } else { "a scalar" };
        return Err(refused(format!("cannot call {name} on {kind}")));
    }
    Ok(())
}

fn raw_elements(name: &str, text: &str, parts: &mut Vec<Option<String>>) -> Result<(), SqlError> {
    if !elements(text, |part| parts.push(Some(part.to_owned())))? {
        return Err(no_elements(name, text));
    }
    Ok(())
}

fn element_texts(name: &str, text: &str, parts: &mut Vec<Option<String>>) -> Result<(), SqlError> {
    let mut failure = Ok(());
    let is_array = elements(text, |part| match plain(part) {
        Ok(part) => parts.push(part.map(Cow::into_owned)),
        Err(error) => failure = Err(error),
    })?;
    failure?;
    if is_array { Ok(()) } else { Err(no_elements(name, text)) }
}

fn no_elements(name: &str, text: &str) -> SqlError {
    match Kind::of(text) {
        Kind::Object if name.starts_with("jsonb") => {
            refused("cannot extract elements from an object")
        }
        Kind::Object => refused(format!("cannot call {name} on a non-array")),
        _ if name.starts_with("jsonb") => refused("cannot extract elements from a scalar"),
        _ => refused(format!("cannot call {name} on a scalar")),
    }
}

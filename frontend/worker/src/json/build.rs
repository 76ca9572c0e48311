//! Functions that make JSON of other values: `json_build_object`, `json_build_array`, `to_json`, and what `json_agg` and
//! `json_object_agg` make of the arrays of their values.
//!
//! Values without a type of their own in JSON (times, intervals, numbers that are not finite) are written as their SQL
//! text. JSON is written as it is, not quoted as a text: the mark of a field tells.
//!
//! Invariants: the result is valid JSON; keys of JSON stay in the order of the arguments, those of JSONB have the normal
//! form.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field};
use bytes::BytesMut;
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::Volatility;
use partita_proto::json::JsonType;

use super::define::{Call, Definition, Gives, refused};
use super::normal::normalised;
use super::paths::{Path, Paths, coerced};
use super::text::quote;
use crate::bounded::check_size;
use crate::error::{NULL_NOT_ALLOWED, SqlError};
use crate::plain::Texts;
use crate::value_text;
use crate::zone::Zone;

/// Name of the function that makes JSON of an array of values; with `b` behind `json`, JSONB.
pub const GATHERED: &str = "json_gathered";
/// Name of the function that makes an object of an array of keys and one of values.
pub const GATHERED_OBJECT: &str = "json_gathered_object";

/// SQLSTATE of arrays of the wrong size.
const ARRAY_SUBSCRIPT: &str = "2202E";

const JSON: Gives = Gives::Json(JsonType::Json);
const JSONB: Gives = Gives::Json(JsonType::Jsonb);

/// Appends the JSON of a row to a text; false for NULL.
type Write = fn(&Call<'_>, usize, &mut String) -> Result<bool>;

const fn define(
    name: &'static str,
    takes: fn(&[DataType]) -> Option<Vec<DataType>>,
    gives: Gives,
    run: fn(&Call<'_>) -> Result<ArrayRef>,
) -> Definition {
    // Not immutable: the functions see the marks of their arguments.
    Definition { name, takes, gives, volatility: Volatility::Stable, run }
}

/// The functions to register.
pub(super) static FUNCTIONS: &[Definition] = &[
    define("json_build_object", any, JSON, |call| each(call, false, object)),
    define("jsonb_build_object", any, JSONB, |call| each(call, true, object)),
    define("json_build_array", any, JSON, |call| each(call, false, array)),
    define("jsonb_build_array", any, JSONB, |call| each(call, true, array)),
    define("array_to_json", list, JSON, |call| each(call, false, value)),
    define("json_object", texts, JSON, |call| of_texts(call, false)),
    define("jsonb_object", texts, JSONB, |call| of_texts(call, true)),
    define("to_json", one, JSON, |call| each(call, false, value)),
    define("to_jsonb", one, JSONB, |call| each(call, true, value)),
    define(GATHERED, one, JSON, |call| each(call, false, gathered)),
    define("jsonb_gathered", one, JSONB, |call| each(call, true, gathered)),
    define(GATHERED_OBJECT, two, JSON, |call| each(call, false, gathered_object)),
    define("jsonb_gathered_object", two, JSONB, |call| each(call, true, gathered_object)),
];

fn any(types: &[DataType]) -> Option<Vec<DataType>> {
    Some(types.to_vec())
}

fn one(types: &[DataType]) -> Option<Vec<DataType>> {
    (types.len() == 1).then(|| types.to_vec())
}

fn list(types: &[DataType]) -> Option<Vec<DataType>> {
    one(types).filter(|types| types[0].is_list() || types[0].is_null())
}

/// One array of keys and values in turns, or one of keys and one of values.
fn texts(types: &[DataType]) -> Option<Vec<DataType>> {
    if !matches!(types.len(), 1 | 2) {
        return None;
    }
    types.iter().map(coerced).collect()
}

fn two(types: &[DataType]) -> Option<Vec<DataType>> {
    (types.len() == 2).then(|| types.to_vec())
}

fn each(call: &Call<'_>, is_binary: bool, write: Write) -> Result<ArrayRef> {
    let mut results = Texts::new(call.name, call.rows);
    for row in 0..call.rows {
        let mut text = String::new();
        if !write(call, row, &mut text)? {
            results.push(None::<String>)?;
            continue;
        }
        check_size(call.name, text.len() as u64)?;
        results.push(Some(if is_binary { normalised(&text)? } else { text }))?;
    }
    Ok(results.finish())
}

/// Objects whose values are texts, of arrays of texts.
fn of_texts(call: &Call<'_>, is_binary: bool) -> Result<ArrayRef> {
    let arrays = (0..call.arguments.len()).map(|position| Paths::of(call, position));
    let arrays = arrays.collect::<Result<Vec<_>>>()?;
    let mut results = Texts::new(call.name, call.rows);
    for row in 0..call.rows {
        let parts = arrays.iter().map(|array| array.at(row)).collect::<Result<Vec<_>, _>>()?;
        let text = match parts.into_iter().collect::<Option<Vec<Path>>>() {
            Some(parts) => Some(text_object(&parts)?),
            None => None,
        };
        results.push(match text {
            Some(text) if is_binary => Some(normalised(&text)?),
            text => text,
        })?;
    }
    Ok(results.finish())
}

/// An object of the elements of one array in turns, or of two arrays.
fn text_object(arrays: &[Path]) -> Result<String, SqlError> {
    let wrong = |message| SqlError::new(ARRAY_SUBSCRIPT, message);
    let pairs: Vec<_> = match arrays {
        [keys, values] if keys.len() == values.len() => keys.iter().zip(values).collect(),
        [_, _] => return Err(wrong("mismatched array dimensions")),
        _ => {
            let turns = arrays.first().map(Vec::as_slice).unwrap_or_default();
            let (pairs, rest) = turns.as_chunks::<2>();
            if !rest.is_empty() {
                return Err(wrong("array must have even number of elements"));
            }
            pairs.iter().map(|[key, value]| (key, value)).collect()
        }
    };
    let mut output = String::from("{");
    for (index, (key, value)) in pairs.into_iter().enumerate() {
        let Some(key) = key else {
            let message = "null value not allowed for object key";
            return Err(SqlError::new(NULL_NOT_ALLOWED, message));
        };
        if index > 0 {
            output.push_str(", ");
        }
        quote(key, &mut output);
        output.push_str(" : ");
        match value {
            Some(value) => quote(value, &mut output),
            None => output.push_str("null"),
        }
    }
    output.push('}');
    Ok(output)
}

/// An object of keys and values in turns.
fn object(call: &Call<'_>, row: usize, output: &mut String) -> Result<bool> {
    if !call.arguments.len().is_multiple_of(2) {
        let error = refused("argument list must have even number of elements");
        let name = call.name;
        let hint =
            format!("The arguments of {name}() must consist of alternating keys and values.");
        return Err(error.with_hint(hint).into());
    }
    output.push('{');
    for (index, pair) in call.arguments.chunks_exact(2).enumerate() {
        // The scalar is tested, not the array: an array of type Null has no null bitmap.
        let key = ScalarValue::try_from_array(&pair[0], row)?;
        if key.is_null() {
            return Err(refused("null value not allowed for object key").into());
        }
        if index > 0 {
            output.push_str(", ");
        }
        quote(&text(&key)?, output);
        output.push_str(" : ");
        let value = ScalarValue::try_from_array(&pair[1], row)?;
        write_value(output, &value, &call.fields[2 * index + 1])?;
        check_size(call.name, output.len() as u64)?;
    }
    output.push('}');
    Ok(true)
}

fn array(call: &Call<'_>, row: usize, output: &mut String) -> Result<bool> {
    output.push('[');
    for (index, (argument, field)) in call.arguments.iter().zip(call.fields).enumerate() {
        if index > 0 {
            output.push_str(", ");
        }
        write_value(output, &ScalarValue::try_from_array(argument, row)?, field)?;
        check_size(call.name, output.len() as u64)?;
    }
    output.push(']');
    Ok(true)
}

fn value(call: &Call<'_>, row: usize, output: &mut String) -> Result<bool> {
    let value = ScalarValue::try_from_array(&call.arguments[0], row)?;
    if value.is_null() {
        return Ok(false);
    }
    write_value(output, &value, &call.fields[0])?;
    Ok(true)
}

/// An array of the values that an aggregate has collected.
fn gathered(call: &Call<'_>, row: usize, output: &mut String) -> Result<bool> {
    let Some(values) = items(call, 0, row)? else { return Ok(false) };
    let field = item_field(&call.fields[0], values.data_type());
    let between = if values.data_type().is_nested() { ", \n " } else { ", " };
    output.push('[');
    for index in 0..values.len() {
        if index > 0 {
            output.push_str(between);
        }
        write_value(output, &ScalarValue::try_from_array(&values, index)?, &field)?;
        check_size(call.name, output.len() as u64)?;
    }
    output.push(']');
    Ok(true)
}

/// An object of the keys and the values that two aggregates have collected in the same order.
fn gathered_object(call: &Call<'_>, row: usize, output: &mut String) -> Result<bool> {
    let (Some(keys), Some(values)) = (items(call, 0, row)?, items(call, 1, row)?) else {
        return Ok(false);
    };
    let field = item_field(&call.fields[1], values.data_type());
    output.push_str("{ ");
    for index in 0..keys.len().min(values.len()) {
        let key = ScalarValue::try_from_array(&keys, index)?;
        if key.is_null() {
            return Err(refused("field name must not be null").into());
        }
        if index > 0 {
            output.push_str(", ");
        }
        quote(&text(&key)?, output);
        output.push_str(" : ");
        write_value(output, &ScalarValue::try_from_array(&values, index)?, &field)?;
        check_size(call.name, output.len() as u64)?;
    }
    output.push_str(" }");
    Ok(true)
}

/// The elements of an array; `None` for NULL.
fn items(call: &Call<'_>, position: usize, row: usize) -> Result<Option<ArrayRef>> {
    let Some(lists) = call.arguments[position].as_list_opt::<i32>() else {
        return Err(SqlError::internal("values of an aggregate are not an array").into());
    };
    Ok((!lists.is_null(row)).then(|| lists.value(row)))
}

/// A field like those of an array's elements: aggregates keep the mark of an element on the field of the array.
fn item_field(list: &Field, data_type: &DataType) -> Field {
    let field = match list.data_type() {
        DataType::List(item) => item.as_ref().clone(),
        _ => Field::new_list_field(data_type.clone(), true),
    };
    match JsonType::of_elements(list) {
        Some(json) => json.marked(field),
        None => field,
    }
}

/// Formats the value as SQL text, a timestamp in the form of ISO 8601; empty for NULL.
fn text(value: &ScalarValue) -> Result<String> {
    if value.is_null() {
        return Ok(String::new());
    }
    let data_type = value.data_type();
    if matches!(data_type, DataType::Timestamp(..)) {
        // Only instants have an offset, that of UTC.
        return Ok(written(value)?.replacen(' ', "T", 1).replacen("+00", "+00:00", 1));
    }
    // Arrow has other texts of these, or none.
    if data_type.is_temporal() || matches!(data_type, DataType::FixedSizeBinary(_)) {
        return written(value);
    }
    match value.cast_to(&DataType::Utf8)? {
        ScalarValue::Utf8(text) => Ok(text.unwrap_or_default()),
        _ => Ok(value.to_string()),
    }
}

/// Formats a value that is not NULL as PostgreSQL does.
fn written(value: &ScalarValue) -> Result<String> {
    let write = value_text::writer(&value.to_array()?, Zone::UTC)?;
    let mut buffer = BytesMut::new();
    write(0, &mut buffer)?;
    String::from_utf8(buffer.to_vec()).map_err(|error| DataFusionError::External(Box::new(error)))
}

/// Appends the JSON of a value, whose field may be marked.
fn write_value(output: &mut String, value: &ScalarValue, field: &Field) -> Result<()> {
    if value.is_null() {
        output.push_str("null");
        return Ok(());
    }
    match value {
        ScalarValue::List(list) => return write_all(output, &list.value(0), field),
        ScalarValue::LargeList(list) => return write_all(output, &list.value(0), field),
        ScalarValue::FixedSizeList(list) => return write_all(output, &list.value(0), field),
        _ => {}
    }
    // Numbers, booleans and JSON are written as they are.
    let is_float = matches!(value, ScalarValue::Float32(_) | ScalarValue::Float64(_));
    let text = if is_float { written(value)? } else { text(value)? };
    let is_plain = match value {
        ScalarValue::Boolean(_) => true,
        ScalarValue::Float16(number) => number.is_some_and(|number| number.is_finite()),
        ScalarValue::Float32(number) => number.is_some_and(f32::is_finite),
        ScalarValue::Float64(number) => number.is_some_and(f64::is_finite),
        _ => value.data_type().is_numeric() || JsonType::of_field(field).is_some(),
    };
    if is_plain {
        output.push_str(&text);
    } else {
        quote(&text, output);
    }
    Ok(())
}

fn write_all(output: &mut String, values: &ArrayRef, list: &Field) -> Result<()> {
    let field = item_field(list, values.data_type());
    output.push('[');
    for index in 0..values.len() {
        if index > 0 {
            output.push(',');
        }
        write_value(output, &ScalarValue::try_from_array(values, index)?, &field)?;
    }
    output.push(']');
    Ok(())
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    async fn answers(expressions: &str) -> std::result::Result<Vec<String>, (String, String)> {
        let context = SessionContext::new();
        for function in crate::json::functions() {
            context.register_udf(function);
        }
        let told = |error: DataFusionError| {
            let error = SqlError::from(error);
            (error.sqlstate, error.message)
        };
        let sql = format!("SELECT {expressions} AS o");
        let frame = context.sql(&sql).await.map_err(told)?;
        let batches = frame.collect().await.map_err(told)?;
        let texts = |batch: &arrow::array::RecordBatch| {
            let column = arrow::compute::cast(batch.column(0), &DataType::Utf8).unwrap();
            let texts: Vec<String> =
                column.as_string::<i32>().iter().map(|text| text.unwrap().to_owned()).collect();
            texts
        };
        Ok(batches.iter().flat_map(texts).collect())
    }

    #[tokio::test]
    async fn an_object_has_the_values_by_their_types() {
        for (expression, object) in [
            ("json_build_object()", "{}"),
            (
                "json_build_object('n', 1, 'x', 1.5, 'b', true, 'none', NULL)",
                r#"{"n" : 1, "x" : 1.5, "b" : true, "none" : null}"#,
            ),
            (r#"json_build_object('a"b', 'say "hi"' || chr(10))"#, r#"{"a\"b" : "say \"hi\"\n"}"#),
            ("json_build_object(1, CAST('NaN' AS DOUBLE))", r#"{"1" : "NaN"}"#),
            (
                "json_build_object('t', arrow_cast('01:02:03.5', 'Time64(Microsecond)'))",
                r#"{"t" : "01:02:03.5"}"#,
            ),
            (
                "json_build_object('t', TIMESTAMP '2024-01-02 03:04:05', 'l', [1, NULL, 3])",
                r#"{"t" : "2024-01-02T03:04:05", "l" : [1,null,3]}"#,
            ),
            (
                "json_build_object('i', INTERVAL '1 month 1 day', 'z', \
                 arrow_cast('2024-01-02T03:04:05.250Z', 'Timestamp(Microsecond, Some(\"UTC\"))'))",
                r#"{"i" : "1 mon 1 day", "z" : "2024-01-02T03:04:05.25+00:00"}"#,
            ),
            (
                "json_build_object('o', json_build_object('k', 'v'), 's', '{}')",
                r#"{"o" : {"k" : "v"}, "s" : "{}"}"#,
            ),
        ] {
            let told = answers(expression).await.unwrap();
            assert_eq!(told, [object], "{expression}");
            serde_json::from_str::<serde_json::Value>(&told[0]).unwrap();
        }
    }

    #[test]
    fn objects_of_texts_are_those_of_postgresql() {
        let path = |items: &[Option<&str>]| -> Path {
            items.iter().map(|item| item.map(str::to_owned)).collect()
        };
        let turns = path(&[Some("a"), Some("1"), Some("b\""), None]);
        assert_eq!(text_object(&[turns]).unwrap(), r#"{"a" : "1", "b\"" : null}"#);
        let (keys, values) = (path(&[Some("a")]), path(&[Some("x")]));
        assert_eq!(text_object(&[keys.clone(), values]).unwrap(), r#"{"a" : "x"}"#);
        assert_eq!(text_object(&[Path::new()]).unwrap(), "{}");
        for (arrays, sqlstate) in [
            (vec![keys.clone()], "2202E"),
            (vec![keys, Path::new()], "2202E"),
            (vec![path(&[None, Some("1")])], "22004"),
        ] {
            assert_eq!(text_object(&arrays).unwrap_err().sqlstate, sqlstate);
        }
    }

    #[tokio::test]
    async fn rows_have_objects_of_their_own() {
        let of = "json_build_object('n', n, 'o', json_build_object('m', m)) AS o \
                  FROM (VALUES (1, 'a'), (2, NULL)) AS t(n, m) ORDER BY n --";
        let rows = [r#"{"n" : 1, "o" : {"m" : "a"}}"#, r#"{"n" : 2, "o" : {"m" : null}}"#];
        assert_eq!(answers(of).await.unwrap(), rows);
    }

    #[tokio::test]
    async fn what_is_no_object_is_an_error() {
        for (expression, says) in [
            ("json_build_object('a')", "even number"),
            ("json_build_object(NULL, 1)", "null value"),
        ] {
            let (state, message) = answers(expression).await.unwrap_err();
            assert_eq!(state, "22023", "{message}");
            assert!(message.contains(says), "{message}");
        }
    }

    #[tokio::test]
    async fn an_object_too_large_is_refused() {
        let object = "json_build_object('a', repeat('x', 33554430))";
        let (state, message) = answers(object).await.unwrap_err();
        assert_eq!(state, "54000", "{message}");
    }
}

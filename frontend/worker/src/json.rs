//! `json_build_object(key, value, ..)`, as PostgreSQL writes the object down.
//!
//! What has no type of its own in JSON (times, intervals, numbers that are not finite) is its SQL text. An object within
//! an object is told from a text that looks like one by a mark on the field, which every result of the function has.
//!
//! Invariants: what is answered is valid JSON; keys stay in the order in which they were given.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, StringArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility,
};

use crate::bounded::{check_size, check_total};
use crate::error::{INVALID_PARAMETER_VALUE, SqlError};

/// In a field's metadata: the text is JSON.
const IS_JSON: &str = "partita.json";

/// The function.
pub(crate) fn function() -> ScalarUDF {
    let takes = vec![TypeSignature::Nullary, TypeSignature::VariadicAny];
    ScalarUDF::from(BuildObject { signature: Signature::one_of(takes, Volatility::Stable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct BuildObject {
    signature: Signature,
}

impl ScalarUDFImpl for BuildObject {
    fn name(&self) -> &'static str {
        "json_build_object"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        if !args.arg_fields.len().is_multiple_of(2) {
            return Err(invalid("argument list must have even number of elements"));
        }
        let mark = [(IS_JSON.to_owned(), "object".to_owned())];
        let field = Field::new(self.name(), DataType::Utf8, false);
        Ok(Arc::new(field.with_metadata(mark.into_iter().collect())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let columns: Vec<ArrayRef> =
            args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<_>>()?;
        let is_json = |at: usize| {
            args.arg_fields.get(at).is_some_and(|field| field.metadata().contains_key(IS_JSON))
        };
        let mut objects = Vec::with_capacity(rows);
        let mut total = 0;
        for row in 0..rows {
            let mut object = String::from("{");
            for (at, pair) in columns.chunks_exact(2).enumerate() {
                // Of the value, not of the array: one of nothing but NULL has no bitmap that says so.
                let key = ScalarValue::try_from_array(&pair[0], row)?;
                if key.is_null() {
                    return Err(invalid("null value not allowed for object key"));
                }
                if at > 0 {
                    object.push_str(", ");
                }
                object.push_str(&quoted(&text(&key)?));
                object.push_str(" : ");
                let value = ScalarValue::try_from_array(&pair[1], row)?;
                write(&mut object, &value, is_json(2 * at + 1))?;
            }
            object.push('}');
            total += object.len() as u64;
            check_size(self.name(), object.len() as u64)?;
            check_total("json_build_object()", row + 1, total)?;
            objects.push(object);
        }
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::Utf8(objects.pop())));
        }
        Ok(ColumnarValue::Array(Arc::new(StringArray::from(objects))))
    }
}

fn invalid(message: &str) -> DataFusionError {
    DataFusionError::External(Box::new(SqlError::new(INVALID_PARAMETER_VALUE, message)))
}

/// The value's SQL text; empty for NULL.
fn text(value: &ScalarValue) -> Result<String> {
    match value.cast_to(&DataType::Utf8)? {
        ScalarValue::Utf8(text) => Ok(text.unwrap_or_default()),
        other => Ok(other.to_string()),
    }
}

/// Text between quotation marks.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn write(into: &mut String, value: &ScalarValue, is_json: bool) -> Result<()> {
    if value.is_null() {
        into.push_str("null");
        return Ok(());
    }
    match value {
        ScalarValue::List(list) => return write_all(into, &list.value(0)),
        ScalarValue::LargeList(list) => return write_all(into, &list.value(0)),
        ScalarValue::FixedSizeList(list) => return write_all(into, &list.value(0)),
        _ => {}
    }
    let text = text(value)?;
    let plain = match value {
        ScalarValue::Boolean(_) => true,
        ScalarValue::Float16(of) => of.is_some_and(|of| of.is_finite()),
        ScalarValue::Float32(of) => of.is_some_and(f32::is_finite),
        ScalarValue::Float64(of) => of.is_some_and(f64::is_finite),
        other => other.data_type().is_numeric() || is_json,
    };
    if plain {
        into.push_str(&text);
    } else {
        into.push_str(&quoted(&text));
    }
    Ok(())
}

fn write_all(into: &mut String, values: &ArrayRef) -> Result<()> {
    into.push('[');
    for at in 0..values.len() {
        if at > 0 {
            into.push_str(", ");
        }
        write(into, &ScalarValue::try_from_array(values, at)?, false)?;
    }
    into.push(']');
    Ok(())
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use datafusion::prelude::SessionContext;

    use super::*;

    async fn answers(expressions: &str) -> std::result::Result<Vec<String>, (String, String)> {
        let context = SessionContext::new();
        context.register_udf(function());
        let told = |error: DataFusionError| {
            let error = SqlError::from(error);
            (error.sqlstate, error.message)
        };
        let sql = format!("SELECT {expressions} AS o");
        let frame = context.sql(&sql).await.map_err(told)?;
        let batches = frame.collect().await.map_err(told)?;
        let texts = |batch: &arrow::array::RecordBatch| {
            let texts: Vec<String> = batch
                .column(0)
                .as_string::<i32>()
                .iter()
                .map(|text| text.unwrap().to_owned())
                .collect();
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
                "json_build_object('t', TIMESTAMP '2024-01-02 03:04:05', 'l', [1, NULL, 3])",
                r#"{"t" : "2024-01-02T03:04:05", "l" : [1, null, 3]}"#,
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

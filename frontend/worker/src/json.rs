//! `json_build_object(key, value, ..)`, formatted as in PostgreSQL.
//!
//! Values without a type of their own in JSON (times, intervals, numbers that are not finite) are written as their SQL
//! text. A result of the function is marked in the metadata of its field, so that an object nested in another is not
//! quoted as a text.
//!
//! Invariants: the result is valid JSON; keys stay in the order of the arguments.

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

/// Key in a field's metadata: the text is JSON.
const IS_JSON: &str = "partita.json";

/// The function to register.
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
        let is_json = |position: usize| {
            args.arg_fields
                .get(position)
                .is_some_and(|field| field.metadata().contains_key(IS_JSON))
        };
        let mut objects = Vec::with_capacity(rows);
        let mut total = 0;
        // One object for each row.
        for row in 0..rows {
            let mut object = String::from("{");
            for (index, pair) in columns.chunks_exact(2).enumerate() {
                // The scalar is tested, not the array: an array of type Null has no null bitmap.
                let key = ScalarValue::try_from_array(&pair[0], row)?;
                if key.is_null() {
                    return Err(invalid("null value not allowed for object key"));
                }
                if index > 0 {
                    object.push_str(", ");
                }
                object.push_str(&quoted(&text(&key)?));
                object.push_str(" : ");
                let value = ScalarValue::try_from_array(&pair[1], row)?;
                write(&mut object, &value, is_json(2 * index + 1))?;
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

/// Formats the value as SQL text; empty for NULL.
fn text(value: &ScalarValue) -> Result<String> {
    match value.cast_to(&DataType::Utf8)? {
        ScalarValue::Utf8(text) => Ok(text.unwrap_or_default()),
        _ => Ok(value.to_string()),
    }
}

/// Quotes and escapes a text.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn write(output: &mut String, value: &ScalarValue, is_json: bool) -> Result<()> {
    if value.is_null() {
        output.push_str("null");
        return Ok(());
    }
    match value {
        ScalarValue::List(list) => return write_all(output, &list.value(0)),
        ScalarValue::LargeList(list) => return write_all(output, &list.value(0)),
        ScalarValue::FixedSizeList(list) => return write_all(output, &list.value(0)),
        _ => {}
    }
    let text = text(value)?;
    let plain = match value {
        ScalarValue::Boolean(_) => true,
        ScalarValue::Float16(number) => number.is_some_and(|number| number.is_finite()),
        ScalarValue::Float32(number) => number.is_some_and(f32::is_finite),
        ScalarValue::Float64(number) => number.is_some_and(f64::is_finite),
        _ => value.data_type().is_numeric() || is_json,
    };
    if plain {
        output.push_str(&text);
    } else {
        output.push_str(&quoted(&text));
    }
    Ok(())
}

fn write_all(output: &mut String, values: &ArrayRef) -> Result<()> {
    output.push('[');
    for index in 0..values.len() {
        if index > 0 {
            output.push_str(", ");
        }
        write(output, &ScalarValue::try_from_array(values, index)?, false)?;
    }
    output.push(']');
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

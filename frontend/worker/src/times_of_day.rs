//! Texts that stand for times of day, as in PostgreSQL: `TIME '04:05 PM'`, `t > '04:05'`.
//!
//! Arrow reads fewer forms, and cuts digits that PostgreSQL rounds. [`ReadTimes`] replaces its casts of texts; literals
//! are read while a statement is planned. Times have microseconds, as columns of TIME have.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Time64MicrosecondArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use partita_proto::time_of_day::{TimeError, parse};

use crate::error::SqlError;
use crate::functions::REGISTRY;

const TIME: DataType = DataType::Time64(TimeUnit::Microsecond);
/// Name of the function; nodes know it too.
const NAME: &str = "time_in";
/// Maximum characters of a text in an error.
const EXCERPT: usize = 100;

/// The function to register.
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(Read { signature: Signature::any(1, Volatility::Immutable) })
}

/// The error of a text with a part out of its range.
#[must_use]
pub fn time_out_of_range(text: &str) -> SqlError {
    SqlError::new("22008", format!("date/time field value out of range: \"{}\"", excerpt(text)))
}

fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT).collect()
}

fn micros_of(text: &str) -> Result<i64, SqlError> {
    parse(text).map_err(|error| match error {
        TimeError::OutOfRange => time_out_of_range(text),
        TimeError::Syntax => {
            let message = format!("invalid input syntax for type time: \"{}\"", excerpt(text));
            SqlError::new("22007", message)
        }
    })
}

/// The time of a text.
///
/// # Errors
/// SQLSTATE 22007 when the text is not one of a time, 22008 when a part is out of its range.
pub fn time_of(text: &str) -> Result<ScalarValue, SqlError> {
    Ok(ScalarValue::Time64Microsecond(Some(micros_of(text)?)))
}

/// The times of texts.
///
/// # Errors
/// As [`time_of`].
pub fn times_of(texts: &ArrayRef) -> Result<ArrayRef> {
    let texts = cast(texts, &DataType::Utf8View)?;
    let times = texts.as_string_view().iter().map(|text| text.map(micros_of).transpose());
    Ok(Arc::new(times.collect::<Result<Time64MicrosecondArray, SqlError>>()?))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Read {
    signature: Signature,
}

impl ScalarUDFImpl for Read {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [data_type] if data_type.is_string() => Ok(TIME),
            _ => exec_err!("{NAME} does not take {types:?}"),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [argument] = args.args.as_slice() else {
            return exec_err!("{NAME} takes one argument");
        };
        let constant = matches!(argument, ColumnarValue::Scalar(_));
        let times = times_of(&argument.to_array(if constant { 1 } else { args.number_rows })?)?;
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&times, 0)?));
        }
        Ok(ColumnarValue::Array(times))
    }
}

/// Replaces casts of texts to times by the function; to be applied once types are coerced.
#[derive(Debug)]
pub struct ReadTimes;

impl FunctionRewrite for ReadTimes {
    fn name(&self) -> &'static str {
        "read_times"
    }

    fn rewrite(
        &self,
        expression: Expr,
        schema: &DFSchema,
        _: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        let Expr::Cast(Cast { expr, field }) = expression else {
            return Ok(Transformed::no(expression));
        };
        if *field.data_type() != TIME
            || !expr.get_type(schema).is_ok_and(|data_type| data_type.is_string())
        {
            return Ok(Transformed::no(Expr::Cast(Cast { expr, field })));
        }
        if let Expr::Literal(value, _) = expr.as_ref()
            && let Some(Some(text)) = value.try_as_str()
        {
            return Ok(Transformed::yes(Expr::Literal(time_of(text)?, None)));
        }
        let Some(function) = REGISTRY.scalar.get(NAME) else {
            return exec_err!("{NAME} is not registered");
        };
        let call = ScalarFunction::new_udf(Arc::clone(function), vec![*expr]);
        Ok(Transformed::yes(Expr::ScalarFunction(call)))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::StringViewArray;
    use arrow::datatypes::Time64MicrosecondType;

    use super::*;

    #[test]
    fn texts_are_read_and_others_are_refused() {
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec![Some("04:05 PM"), None]));
        let expected = Time64MicrosecondArray::from(vec![Some(57_900_000_000), None]);
        let times = times_of(&texts).unwrap();
        assert_eq!(times.as_primitive::<Time64MicrosecondType>(), &expected);
        for (text, sqlstate) in [("abc", "22007"), ("25:00", "22008")] {
            let texts: ArrayRef = Arc::new(StringViewArray::from(vec![text]));
            let error = SqlError::from(times_of(&texts).unwrap_err());
            assert_eq!(error.sqlstate, sqlstate, "{text}");
        }
    }
}

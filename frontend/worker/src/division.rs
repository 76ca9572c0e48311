//! `mod(a, b)` and `div(a, b)`.
//!
//! Invariants, as in PostgreSQL: `mod` is what `%` is; `div` is the quotient without its fraction; a division by zero is
//! an error with SQLSTATE 22012.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Datum};
use arrow::compute::kernels::numeric;
use arrow::compute::{cast, unary};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use arrow::error::ArrowError;
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{
    ColumnarValue, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr_common::datum::apply;

use crate::float_division::remainder;

/// Type of quotients of decimals.
const WHOLE: DataType = DataType::Decimal128(38, 0);

/// The functions to register.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [Part::Quotient, Part::Remainder].into_iter().map(|part| {
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::from(Division { part, signature })
    })
}

/// The part of a division's result that a function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    Quotient,
    Remainder,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Division {
    part: Part,
    signature: Signature,
}

impl ScalarUDFImpl for Division {
    fn name(&self) -> &str {
        match self.part {
            Part::Quotient => "div",
            Part::Remainder => "mod",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [dividend, divisor]
                if [dividend, divisor]
                    .iter()
                    .all(|data_type| data_type.is_numeric() || data_type.is_null()) =>
            {
                // Beside a double a decimal becomes a double.
                if [dividend, divisor].iter().any(|data_type| data_type.is_floating())
                    && [dividend, divisor].iter().any(|data_type| data_type.is_decimal())
                {
                    return Ok(vec![DataType::Float64; 2]);
                }
                let coercer = BinaryTypeCoercer::new(dividend, &Operator::Modulo, divisor);
                let (dividend, divisor) = coercer.get_input_types()?;
                Ok(vec![dividend, divisor])
            }
            _ => plan_err!("{}() takes two numbers", self.name()),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match (self.part, types) {
            (Part::Quotient, [data_type, _]) if data_type.is_decimal() => Ok(WHOLE),
            (Part::Quotient, [data_type, _]) => Ok(data_type.clone()),
            (Part::Remainder, [dividend, divisor]) => {
                BinaryTypeCoercer::new(dividend, &Operator::Modulo, divisor).get_result_type()
            }
            _ => exec_err!("{}() takes two numbers", self.name()),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match (self.part, args.args.as_slice()) {
            (Part::Remainder, [dividend, divisor]) => apply(dividend, divisor, remainder),
            (Part::Quotient, [dividend, divisor]) => apply(dividend, divisor, quotient),
            _ => exec_err!("{}() takes two numbers", self.name()),
        }
    }
}

/// The quotient of integers; otherwise `(a - a % b) / b`, which is exact.
fn quotient(dividend: &dyn Datum, divisor: &dyn Datum) -> Result<ArrayRef, ArrowError> {
    if dividend.get().0.data_type().is_integer() {
        return numeric::div(dividend, divisor);
    }
    let rest = remainder(dividend, divisor)?;
    let whole = numeric::neg(&numeric::sub(&rest, dividend)?)?;
    let quotient = numeric::div(&whole, divisor)?;
    Ok(match quotient.data_type() {
        data_type if data_type.is_decimal() => cast(&quotient, &WHOLE)?,
        DataType::Float64 => {
            Arc::new(unary::<Float64Type, _, Float64Type>(quotient.as_primitive(), f64::round))
        }
        DataType::Float32 => {
            Arc::new(unary::<Float32Type, _, Float32Type>(quotient.as_primitive(), f32::round))
        }
        _ => quotient,
    })
}

#[cfg(test)]
mod tests {
    use datafusion::execution::{FunctionRegistry, SessionStateBuilder};
    use datafusion::prelude::SessionContext;

    use super::*;

    async fn answer(sql: &str) -> std::result::Result<String, String> {
        let mut state = SessionStateBuilder::new().with_default_features().build();
        for function in functions() {
            let _replaced = state.register_udf(Arc::new(function)).unwrap();
        }
        let context = SessionContext::new_with_state(state);
        let told = |error| crate::SqlError::from(error).sqlstate;
        let batches = context.sql(sql).await.map_err(told)?.collect().await.map_err(told)?;
        let shown = arrow::util::display::array_value_to_string(batches[0].column(0), 0);
        Ok(shown.unwrap())
    }

    #[tokio::test]
    async fn quotients_and_remainders_are_those_of_postgresql() {
        for (sql, expected) in [
            ("mod(7, 3)", "1"),
            ("mod(-7, 3)", "-1"),
            ("mod(CAST(7.5 AS DECIMAL(4, 2)), 2)", "1.50"),
            ("div(7, 2)", "3"),
            ("div(-7, 2)", "-3"),
            ("div(CAST(-7.5 AS DECIMAL(4, 2)), CAST(2 AS DECIMAL(4, 2)))", "-3"),
            ("div(7.5, 2)", "3.0"),
            ("div(value, 2) FROM (VALUES (5)) AS t(value)", "2"),
            ("div(5, value) FROM (VALUES (2)) AS t(value)", "2"),
            ("mod(NULL, 2)", ""),
        ] {
            assert_eq!(answer(&format!("SELECT {sql}")).await, Ok(expected.to_owned()), "{sql}");
        }
        let floats = ["mod(1.5, 0)", "div(CAST(1 AS DOUBLE), 0)", "mod(CAST(1 AS REAL), -0.0)"];
        for sql in ["mod(1, 0)", "div(1, 0)"].into_iter().chain(floats) {
            let answer = answer(&format!("SELECT {sql}")).await;
            assert_eq!(answer, Err("22012".to_owned()), "{sql}");
        }
        assert_eq!(answer("SELECT mod('a', true)").await, Err("42883".to_owned()));
    }
}

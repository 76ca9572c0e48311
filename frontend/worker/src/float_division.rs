//! Division of floats by zero.
//!
//! PostgreSQL refuses it with SQLSTATE 22012, as it does for other numbers; arrow's quotient is infinite, and its
//! remainder NaN. NaN divided by zero is NaN in PostgreSQL too. Once types are known, [`CheckedDivision`] replaces `%`
//! of floats by a function, and `/` too unless the divisor is a literal other than zero. NaN in a result has no sign
//! (`float_arithmetic.rs`).
//!
//! Invariant: column names and results of other divisors stay the same.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, Datum};
use arrow::compute::kernels::numeric;
use arrow::datatypes::{ArrowNativeTypeOp, DataType, Float32Type, Float64Type};
use arrow::error::ArrowError;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr_common::datum::apply;

use crate::float_arithmetic::with_one_nan;
use crate::functions::REGISTRY;

/// Functions that replace operators.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [Part::Quotient, Part::Remainder].into_iter().map(|part| {
        let signature = Signature::any(2, Volatility::Immutable);
        ScalarUDF::from(Division { part, signature })
    })
}

/// The part of a division's result that a function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    Quotient,
    Remainder,
}

impl Part {
    fn of(operator: Operator) -> Option<Self> {
        match operator {
            Operator::Divide => Some(Self::Quotient),
            Operator::Modulo => Some(Self::Remainder),
            _ => None,
        }
    }

    /// Name of the function; nodes know it too.
    fn name(self) -> &'static str {
        match self {
            Self::Quotient => "float_quotient",
            Self::Remainder => "float_remainder",
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Division {
    part: Part,
    signature: Signature,
}

impl ScalarUDFImpl for Division {
    fn name(&self) -> &str {
        self.part.name()
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        let sign = match self.part {
            Part::Quotient => '/',
            Part::Remainder => '%',
        };
        match arguments {
            [left, right] => Ok(format!("{} {sign} {}", left.schema_name(), right.schema_name())),
            _ => exec_err!("{} takes two arguments", self.name()),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [left, right] if left == right && is_float(left) => Ok(left.clone()),
            _ => exec_err!("{} takes two floats of one type, not {types:?}", self.name()),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match (self.part, args.args.as_slice()) {
            (Part::Quotient, [dividend, divisor]) => apply(dividend, divisor, quotient),
            (Part::Remainder, [dividend, divisor]) => apply(dividend, divisor, remainder),
            _ => exec_err!("{} takes two arguments", self.name()),
        }
    }
}

fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float32 | DataType::Float64)
}

/// `/` of numbers of one type; an error if any of them is divided by zero.
pub(crate) fn quotient(dividend: &dyn Datum, divisor: &dyn Datum) -> Result<ArrayRef, ArrowError> {
    check(dividend, divisor)?;
    numeric::div(dividend, divisor).map(with_one_nan)
}

/// `%` of numbers of one type; an error if any of them is divided by zero.
pub(crate) fn remainder(dividend: &dyn Datum, divisor: &dyn Datum) -> Result<ArrayRef, ArrowError> {
    check(dividend, divisor)?;
    numeric::rem(dividend, divisor).map(with_one_nan)
}

/// Refuses zero as the divisor of a float; arrow refuses it for other types.
fn check(dividend: &dyn Datum, divisor: &dyn Datum) -> Result<(), ArrowError> {
    let by_zero = match divisor.get().0.data_type() {
        DataType::Float64 => divides_by_zero::<Float64Type>(dividend, divisor),
        DataType::Float32 => divides_by_zero::<Float32Type>(dividend, divisor),
        _ => false,
    };
    if by_zero { Err(ArrowError::DivideByZero) } else { Ok(()) }
}

/// Returns true if any number, infinite or finite but not NaN, is divided by zero.
fn divides_by_zero<T: ArrowPrimitiveType>(dividend: &dyn Datum, divisor: &dyn Datum) -> bool {
    let ((dividends, one_dividend), (divisors, one_divisor)) = (dividend.get(), divisor.get());
    let (Some(dividends), Some(divisors)) =
        (dividends.as_primitive_opt::<T>(), divisors.as_primitive_opt::<T>())
    else {
        return false;
    };
    // True for both signs: unlike in the total order, they are equal.
    let is_zero = |value: T::Native| value == T::Native::ZERO;
    // A NULL may have any value in the buffer, so this test alone does not prove a division by zero.
    if !divisors.values().iter().any(|divisor| is_zero(*divisor)) {
        return false;
    }
    let divides = |dividend: usize, divisor: usize| {
        let value = dividends.value(dividend);
        // NaN is not comparable.
        let is_number = value.partial_cmp(&value).is_some();
        dividends.is_valid(dividend)
            && divisors.is_valid(divisor)
            && is_zero(divisors.value(divisor))
            && is_number
    };
    let rows = match (one_dividend, one_divisor) {
        (false, _) => dividends.len(),
        (true, false) => divisors.len(),
        (true, true) => 1,
    };
    (0..rows)
        .any(|row| divides(if one_dividend { 0 } else { row }, if one_divisor { 0 } else { row }))
}

/// Returns true if a divisor is a literal other than zero.
fn divides(divisor: &Expr) -> bool {
    match divisor {
        Expr::Literal(ScalarValue::Float64(Some(value)), _) => *value != 0.0,
        Expr::Literal(ScalarValue::Float32(Some(value)), _) => *value != 0.0,
        _ => false,
    }
}

/// Replaces the operators by the functions; to be applied once types are coerced.
#[derive(Debug)]
pub struct CheckedDivision;

impl FunctionRewrite for CheckedDivision {
    fn name(&self) -> &'static str {
        "checked_division"
    }

    fn rewrite(
        &self,
        expression: Expr,
        schema: &DFSchema,
        _: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = &expression else {
            return Ok(Transformed::no(expression));
        };
        // The remainder of an infinity is NaN for any divisor.
        let is_needed = |part: &Part| *part == Part::Remainder || !divides(right);
        let Some(part) = Part::of(*op).filter(is_needed) else {
            return Ok(Transformed::no(expression));
        };
        // A chain of operators nests on the left: the right operand is cheap to examine.
        let floats = match right.get_type(schema) {
            Ok(divisor_type) if is_float(&divisor_type) => {
                left.get_type(schema).is_ok_and(|dividend_type| dividend_type == divisor_type)
            }
            _ => false,
        };
        if !floats {
            return Ok(Transformed::no(expression));
        }
        let Some(function) = REGISTRY.scalar.get(part.name()) else {
            return exec_err!("{} is not registered", part.name());
        };
        let arguments = vec![left.as_ref().clone(), right.as_ref().clone()];
        let call = ScalarFunction::new_udf(Arc::clone(function), arguments);
        Ok(Transformed::yes(Expr::ScalarFunction(call)))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Scalar};

    use super::*;

    fn array(values: &[Option<f64>]) -> Float64Array {
        values.iter().copied().collect()
    }

    #[test]
    fn a_number_is_not_divided_by_zero() {
        for divided in [Some(1.0), Some(0.0), Some(f64::INFINITY), Some(-2.0)] {
            for zero in [0.0, -0.0] {
                let (left, right) = (array(&[None, divided]), array(&[Some(1.0), Some(zero)]));
                for part in [quotient, remainder] {
                    let error = part(&left, &right).unwrap_err();
                    assert!(matches!(error, ArrowError::DivideByZero), "{divided:?}: {error}");
                    part(&left, &Scalar::new(array(&[Some(zero)]))).unwrap_err();
                    part(&Scalar::new(array(&[divided])), &right).unwrap_err();
                }
            }
        }
    }

    #[test]
    fn null_and_nan_are_divided_by_zero() {
        let left = array(&[None, Some(f64::NAN), Some(1.0), Some(1.0)]);
        let right = array(&[Some(0.0), Some(0.0), None, Some(4.0)]);
        let made = quotient(&left, &right).unwrap();
        let made = made.as_primitive::<Float64Type>();
        assert!(made.is_null(0) && made.value(1).is_nan() && made.is_null(2));
        assert_eq!(made.value(3).to_bits(), 0.25_f64.to_bits());
        // The value in the buffer of a NULL does not divide.
        let hidden = Float64Array::new(vec![0.0].into(), Some(vec![false].into()));
        assert!(quotient(&array(&[Some(1.0)]), &hidden).unwrap().is_null(0));
    }
}

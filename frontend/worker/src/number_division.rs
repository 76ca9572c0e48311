//! `/` of exact numbers with PostgreSQL's digits.
//!
//! DataFusion's quotient of decimals has four digits more than its dividend, truncated, and the quotient of literals is
//! a double. PostgreSQL's has at least 16 significant digits:
//!
//! ```text
//!   1 / 3.0            0.33333333333333333333: the quotient of literals has exactly PostgreSQL's digits
//!   decimal / 3        as many digits after the point as fit, at most 20, rounded half away from zero
//! ```
//!
//! A column has one scale for all of its rows, where PostgreSQL's follows each value; so a quotient has at least the
//! digits that PostgreSQL shows, followed by zeros or further correct digits.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use arrow::compute::cast;
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, i256};
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, lit,
};
use datafusion::physical_expr_common::datum::apply;

use crate::error::{DIVISION_BY_ZERO, NUMERIC_OUT_OF_RANGE, SqlError};
use crate::float_division;
use crate::functions::REGISTRY;

/// Name of the function; nodes know it too.
pub(crate) const NAME: &str = "numeric_quotient";
/// Maximum digits after the point of a quotient of columns.
const SCALE: u8 = 20;
/// Minimum significant digits of a quotient.
const SIGNIFICANT_DIGITS: i32 = 16;
// PostgreSQL stores numbers in base 10000.
const DIGITS_PER_WORD: i32 = 4;

/// Function that replaces the operator.
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(Quotient { signature: Signature::any(2, Volatility::Immutable) })
}

/// Precision and scale of an exact number's type.
fn digits(data_type: &DataType) -> Option<(u8, u8)> {
    Some(match data_type {
        DataType::Int8 | DataType::UInt8 => (3, 0),
        DataType::Int16 | DataType::UInt16 => (5, 0),
        DataType::Int32 | DataType::UInt32 => (10, 0),
        DataType::Int64 => (19, 0),
        DataType::UInt64 => (20, 0),
        DataType::Decimal128(precision, scale) => (*precision, u8::try_from(*scale).ok()?),
        _ => return None,
    })
}

/// Type of a quotient; `None` unless both operands are exact numbers.
fn quotient_type(dividend: &DataType, divisor: &DataType) -> Option<DataType> {
    let ((precision, dividend_scale), (_, divisor_scale)) = (digits(dividend)?, digits(divisor)?);
    let whole = precision.saturating_sub(dividend_scale).saturating_add(divisor_scale);
    let room = DECIMAL128_MAX_PRECISION.saturating_sub(whole).min(SCALE);
    let scale = room.max(dividend_scale).max(divisor_scale).clamp(6, DECIMAL128_MAX_PRECISION);
    Some(DataType::Decimal128(DECIMAL128_MAX_PRECISION, i8::try_from(scale).ok()?))
}

/// Exact value and scale of a literal.
fn constant(expr: &Expr) -> Option<(i128, u8)> {
    let Expr::Literal(value, _) = expr else { return None };
    match value {
        ScalarValue::Decimal128(Some(value), _, scale) => {
            Some((*value, u8::try_from(*scale).ok()?))
        }
        ScalarValue::Int64(Some(value)) => Some((i128::from(*value), 0)),
        ScalarValue::Int32(Some(value)) => Some((i128::from(*value), 0)),
        _ => None,
    }
}

/// The quotient of two exact numbers, at least one of them a decimal; `None` for other types.
pub(crate) fn quotient(dividend: &Expr, divisor: &Expr, schema: &DFSchema) -> Result<Option<Expr>> {
    let types = (dividend.get_type(schema), divisor.get_type(schema));
    let (Ok(dividend_type), Ok(divisor_type)) = types else { return Ok(None) };
    let is_decimal = |data_type: &DataType| matches!(data_type, DataType::Decimal128(..));
    if !is_decimal(&dividend_type) && !is_decimal(&divisor_type) {
        return Ok(None);
    }
    if let (Some(dividend), Some(divisor)) = (constant(dividend), constant(divisor))
        && let Some(exact) = of_constants(dividend, divisor)
    {
        return Ok(Some(lit(exact)));
    }
    if quotient_type(&dividend_type, &divisor_type).is_none() {
        return Ok(None);
    }
    let Some(function) = REGISTRY.scalar.get(NAME) else {
        return exec_err!("{NAME} is not registered");
    };
    let call =
        ScalarFunction::new_udf(Arc::clone(function), vec![dividend.clone(), divisor.clone()]);
    Ok(Some(Expr::ScalarFunction(call)))
}

/// Position of a number's first digit in base 10000, counted from the point, and that digit.
fn first_word(value: i128, scale: u8) -> (i32, u128) {
    let size = value.unsigned_abs();
    if size == 0 {
        return (0, 0);
    }
    let digits = i32::try_from(size.ilog10()).unwrap_or(0) + 1;
    // Digits before the point; negative where zeros follow it.
    let whole = digits - i32::from(scale);
    let weight = (whole - 1).div_euclid(DIGITS_PER_WORD);
    let exponent = (weight * DIGITS_PER_WORD) + i32::from(scale);
    let word = match u32::try_from(exponent) {
        Ok(exponent) => 10_u128.checked_pow(exponent).map_or(0, |unit| size / unit),
        Err(_) => size.saturating_mul(10_u128.pow(exponent.unsigned_abs())),
    };
    (weight, word)
}

/// A quotient with PostgreSQL's digits; `None` when it does not fit, or the divisor is zero.
fn of_constants(dividend: (i128, u8), divisor: (i128, u8)) -> Option<ScalarValue> {
    if divisor.0 == 0 {
        return None;
    }
    let (dividend_word, divisor_word) =
        (first_word(dividend.0, dividend.1), first_word(divisor.0, divisor.1));
    let mut weight = dividend_word.0 - divisor_word.0;
    if dividend_word.1 <= divisor_word.1 {
        weight -= 1;
    }
    let scale = (SIGNIFICANT_DIGITS - weight * DIGITS_PER_WORD).max(0);
    let scale = scale.max(i32::from(dividend.1)).max(i32::from(divisor.1));
    let scale = u8::try_from(scale).ok().filter(|scale| *scale <= DECIMAL128_MAX_PRECISION)?;
    let value = divided(dividend, divisor, scale)?;
    let scale = i8::try_from(scale).ok()?;
    Some(ScalarValue::Decimal128(Some(value), DECIMAL128_MAX_PRECISION, scale))
}

/// A quotient with `scale` digits after the point, rounded half away from zero; `None` when it has too many before it.
fn divided(dividend: (i128, u8), divisor: (i128, u8), scale: u8) -> Option<i128> {
    let ten = i256::from_i128(10);
    let shift = i32::from(scale) + i32::from(divisor.1) - i32::from(dividend.1);
    let power = ten.checked_pow(shift.unsigned_abs())?;
    let (mut numerator, mut denominator) =
        (i256::from_i128(dividend.0), i256::from_i128(divisor.0));
    if shift >= 0 {
        numerator = numerator.checked_mul(power)?;
    } else {
        denominator = denominator.checked_mul(power)?;
    }
    let whole = numerator.checked_div(denominator)?;
    let rest = numerator.checked_rem(denominator)?.wrapping_abs();
    let is_half = rest >= denominator.wrapping_abs().wrapping_sub(rest);
    let up = if (dividend.0 < 0) == (divisor.0 < 0) { i256::ONE } else { i256::MINUS_ONE };
    let value = if is_half { whole.wrapping_add(up) } else { whole };
    value.to_i128().filter(|value| value.unsigned_abs() < 10_u128.pow(38))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Quotient {
    signature: Signature,
}

impl ScalarUDFImpl for Quotient {
    fn name(&self) -> &'static str {
        NAME
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        match arguments {
            [dividend, divisor] => {
                Ok(format!("{} / {}", dividend.schema_name(), divisor.schema_name()))
            }
            _ => exec_err!("{NAME} takes two arguments"),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let data_type = match types {
            // An operand that was exact when the statement was planned may be a double now.
            [dividend, divisor] if dividend.is_floating() || divisor.is_floating() => {
                Some(DataType::Float64)
            }
            [dividend, divisor] => quotient_type(dividend, divisor),
            _ => None,
        };
        match data_type {
            Some(data_type) => Ok(data_type),
            None => exec_err!("{NAME} takes two exact numbers, not {types:?}"),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let (DataType::Float64, [dividend, divisor]) = (args.return_type(), args.args.as_slice())
        {
            let double = |operand: &ColumnarValue| operand.cast_to(&DataType::Float64, None);
            return apply(&double(dividend)?, &double(divisor)?, float_division::quotient);
        }
        let DataType::Decimal128(precision, scale) = *args.return_type() else {
            return exec_err!("{NAME} returns a decimal");
        };
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let [dividends, divisors] = args.args.as_slice() else {
            return exec_err!("{NAME} takes two arguments");
        };
        let (dividends, dividend_scale) = decimals(&dividends.to_array(rows)?)?;
        let (divisors, divisor_scale) = decimals(&divisors.to_array(rows)?)?;
        let places = u8::try_from(scale).unwrap_or(0);
        let of_row = |(dividend, divisor): (Option<i128>, Option<i128>)| {
            let Some((dividend, divisor)) = dividend.zip(divisor) else { return Ok(None) };
            if divisor == 0 {
                return Err(SqlError::new(DIVISION_BY_ZERO, "division by zero"));
            }
            let value = divided((dividend, dividend_scale), (divisor, divisor_scale), places);
            let overflow = || SqlError::new(NUMERIC_OUT_OF_RANGE, "quotient is out of range");
            value.map(Some).ok_or_else(overflow)
        };
        let quotients = dividends.iter().zip(&divisors).map(of_row);
        let quotients: Decimal128Array = quotients.collect::<Result<_, SqlError>>()?;
        let quotients: ArrayRef = Arc::new(quotients.with_precision_and_scale(precision, scale)?);
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&quotients, 0)?));
        }
        Ok(ColumnarValue::Array(quotients))
    }
}

/// Converts exact numbers to decimals; also returns their digits after the point.
fn decimals(numbers: &ArrayRef) -> Result<(Decimal128Array, u8)> {
    if let DataType::Decimal128(_, scale) = numbers.data_type() {
        let scale = u8::try_from(*scale).unwrap_or(0);
        return Ok((numbers.as_primitive::<Decimal128Type>().clone(), scale));
    }
    let whole = cast(numbers, &DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0))?;
    Ok((whole.as_primitive::<Decimal128Type>().clone(), 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_of_constants_have_the_digits_of_postgresql() {
        for (left, right, expected) in [
            ((1, 0), (30, 1), "0.33333333333333333333"),
            ((2, 0), (30, 1), "0.66666666666666666667"),
            ((10, 0), (30, 1), "3.3333333333333333"),
            ((1000, 0), (30, 1), "333.3333333333333333"),
            ((220, 1), (70, 1), "3.1428571428571429"),
            ((15, 1), (5, 1), "3.0000000000000000"),
            ((100, 1), (4, 0), "2.5000000000000000"),
            ((1, 4), (3, 0), "0.000033333333333333333333"),
            ((123_456_789, 0), (1, 3), "123456789000.00000000"),
            ((-1, 0), (30, 1), "-0.33333333333333333333"),
        ] {
            let Some(ScalarValue::Decimal128(Some(value), precision, scale)) =
                of_constants(left, right)
            else {
                panic!("{left:?} {right:?}");
            };
            let array = Decimal128Array::from(vec![value]);
            let array = array.with_precision_and_scale(precision, scale).unwrap();
            assert_eq!(array.value_as_string(0), expected, "{left:?} / {right:?}");
        }
        assert_eq!(of_constants((1, 0), (0, 0)), None);
    }

    #[test]
    fn quotients_are_rounded_half_away_from_zero() {
        assert_eq!(divided((15, 0), (2, 0), 0), Some(8));
        assert_eq!(divided((-15, 0), (2, 0), 0), Some(-8));
        assert_eq!(divided((14, 0), (-4, 0), 0), Some(-4));
        assert_eq!(divided((i128::MAX, 0), (1, 0), 10), None);
    }
}

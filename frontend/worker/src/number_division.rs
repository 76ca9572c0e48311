//! `/` of exact numbers with PostgreSQL's digits.
//!
//! DataFusion's quotient of decimals has four digits more than its dividend, the rest cut off, and of numbers that are
//! written down it is a double. PostgreSQL's has 16 significant digits at least:
//!
//! ```text
//!   1 / 3.0            0.33333333333333333333: of numbers that are written down, PostgreSQL's very digits
//!   decimal / 3        as many digits behind the point as there is room for, 20 at most, rounded half away from zero
//! ```
//!
//! A column has one number of digits for all of its rows, where PostgreSQL's follows each value; so there are at least
//! those that PostgreSQL shows, and zeros or further right digits behind them.

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

/// The name under which the function is found, at a node too.
pub(crate) const NAME: &str = "numeric_quotient";
/// Digits behind the point of a quotient of columns.
const SCALE: u8 = 20;
/// Significant digits that a quotient has at least, and decimal digits of one digit of PostgreSQL's.
const SIGNIFICANT_DIGITS: i32 = 16;
const DIGITS_PER_WORD: i32 = 4;

/// The function that stands for the operator.
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(Quotient { signature: Signature::any(2, Volatility::Immutable) })
}

/// The digits of an exact number's type, and those of them behind the point.
fn digits(of: &DataType) -> Option<(u8, u8)> {
    Some(match of {
        DataType::Int8 | DataType::UInt8 => (3, 0),
        DataType::Int16 | DataType::UInt16 => (5, 0),
        DataType::Int32 | DataType::UInt32 => (10, 0),
        DataType::Int64 => (19, 0),
        DataType::UInt64 => (20, 0),
        DataType::Decimal128(precision, scale) => (*precision, u8::try_from(*scale).ok()?),
        _ => return None,
    })
}

/// The type of a quotient.
fn quotient_type(left: &DataType, right: &DataType) -> Option<DataType> {
    let ((left, left_scale), (right, right_scale)) = (digits(left)?, digits(right)?);
    let _ = right;
    let whole = left.saturating_sub(left_scale).saturating_add(right_scale);
    let room = DECIMAL128_MAX_PRECISION.saturating_sub(whole).min(SCALE);
    let scale = room.max(left_scale).max(right_scale).clamp(6, DECIMAL128_MAX_PRECISION);
    Some(DataType::Decimal128(DECIMAL128_MAX_PRECISION, i8::try_from(scale).ok()?))
}

/// A literal's exact value and its scale.
fn constant(of: &Expr) -> Option<(i128, u8)> {
    let Expr::Literal(value, _) = of else { return None };
    match value {
        ScalarValue::Decimal128(Some(value), _, scale) => {
            Some((*value, u8::try_from(*scale).ok()?))
        }
        ScalarValue::Int64(Some(value)) => Some((i128::from(*value), 0)),
        ScalarValue::Int32(Some(value)) => Some((i128::from(*value), 0)),
        _ => None,
    }
}

/// The quotient of two exact numbers, where one of them is a decimal; `None` for other types.
pub(crate) fn quotient(left: &Expr, right: &Expr, schema: &DFSchema) -> Result<Option<Expr>> {
    let types = (left.get_type(schema), right.get_type(schema));
    let (Ok(left_type), Ok(right_type)) = types else { return Ok(None) };
    let is_decimal = |of: &DataType| matches!(of, DataType::Decimal128(..));
    if !is_decimal(&left_type) && !is_decimal(&right_type) {
        return Ok(None);
    }
    if let (Some(left), Some(right)) = (constant(left), constant(right))
        && let Some(exact) = of_constants(left, right)
    {
        return Ok(Some(lit(exact)));
    }
    if quotient_type(&left_type, &right_type).is_none() {
        return Ok(None);
    }
    let Some(function) = REGISTRY.scalar.get(NAME) else {
        return exec_err!("{NAME} is not registered");
    };
    let call = ScalarFunction::new_udf(Arc::clone(function), vec![left.clone(), right.clone()]);
    Ok(Some(Expr::ScalarFunction(call)))
}

/// The place of a number's first digit of four, counted from the point, and that digit.
fn first_word(value: i128, scale: u8) -> (i32, u128) {
    let size = value.unsigned_abs();
    if size == 0 {
        return (0, 0);
    }
    let digits = i32::try_from(size.ilog10()).unwrap_or(0) + 1;
    // Digits before the point; negative where zeros follow it.
    let whole = digits - i32::from(scale);
    let weight = (whole - 1).div_euclid(DIGITS_PER_WORD);
    let below = (weight * DIGITS_PER_WORD) + i32::from(scale);
    let word = match u32::try_from(below) {
        Ok(below) => 10_u128.checked_pow(below).map_or(0, |unit| size / unit),
        Err(_) => size.saturating_mul(10_u128.pow(below.unsigned_abs())),
    };
    (weight, word)
}

/// A quotient with the digits that PostgreSQL gives it; `None` when it does not fit, or there is none.
fn of_constants(left: (i128, u8), right: (i128, u8)) -> Option<ScalarValue> {
    if right.0 == 0 {
        return None;
    }
    let (left_first, right_first) = (first_word(left.0, left.1), first_word(right.0, right.1));
    let mut weight = left_first.0 - right_first.0;
    if left_first.1 <= right_first.1 {
        weight -= 1;
    }
    let scale = (SIGNIFICANT_DIGITS - weight * DIGITS_PER_WORD).max(0);
    let scale = scale.max(i32::from(left.1)).max(i32::from(right.1));
    let scale = u8::try_from(scale).ok().filter(|scale| *scale <= DECIMAL128_MAX_PRECISION)?;
    let value = divided(left, right, scale)?;
    let scale = i8::try_from(scale).ok()?;
    Some(ScalarValue::Decimal128(Some(value), DECIMAL128_MAX_PRECISION, scale))
}

/// A quotient of so many digits behind the point, rounded half away from zero; `None` when it has too many before it.
fn divided(left: (i128, u8), right: (i128, u8), scale: u8) -> Option<i128> {
    let ten = i256::from_i128(10);
    let shift = i32::from(scale) + i32::from(right.1) - i32::from(left.1);
    let power = ten.checked_pow(shift.unsigned_abs())?;
    let (mut over, mut under) = (i256::from_i128(left.0), i256::from_i128(right.0));
    if shift >= 0 {
        over = over.checked_mul(power)?;
    } else {
        under = under.checked_mul(power)?;
    }
    let whole = over.checked_div(under)?;
    let rest = over.checked_rem(under)?.wrapping_abs();
    let is_half = rest >= under.wrapping_abs().wrapping_sub(rest);
    let up = if (left.0 < 0) == (right.0 < 0) { i256::ONE } else { i256::MINUS_ONE };
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
            [left, right] => Ok(format!("{} / {}", left.schema_name(), right.schema_name())),
            _ => exec_err!("{NAME} takes two arguments"),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let made = match types {
            // What was exact while the statement was read may be a double now.
            [left, right] if left.is_floating() || right.is_floating() => Some(DataType::Float64),
            [left, right] => quotient_type(left, right),
            _ => None,
        };
        match made {
            Some(made) => Ok(made),
            None => exec_err!("{NAME} takes two exact numbers, not {types:?}"),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let (DataType::Float64, [left, right]) = (args.return_type(), args.args.as_slice()) {
            let double = |of: &ColumnarValue| of.cast_to(&DataType::Float64, None);
            return apply(&double(left)?, &double(right)?, float_division::quotient);
        }
        let DataType::Decimal128(precision, scale) = *args.return_type() else {
            return exec_err!("{NAME} makes decimals");
        };
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let [left, right] = args.args.as_slice() else {
            return exec_err!("{NAME} takes two arguments");
        };
        let (left, left_scale) = decimals(&left.to_array(rows)?)?;
        let (right, right_scale) = decimals(&right.to_array(rows)?)?;
        let places = u8::try_from(scale).unwrap_or(0);
        let of_row = |(left, right): (Option<i128>, Option<i128>)| {
            let Some((left, right)) = left.zip(right) else { return Ok(None) };
            if right == 0 {
                return Err(SqlError::new(DIVISION_BY_ZERO, "division by zero"));
            }
            let value = divided((left, left_scale), (right, right_scale), places);
            let overflow = || SqlError::new(NUMERIC_OUT_OF_RANGE, "a quotient is out of range");
            value.map(Some).ok_or_else(overflow)
        };
        let made = left.iter().zip(&right).map(of_row);
        let made: Decimal128Array = made.collect::<Result<_, SqlError>>()?;
        let made: ArrayRef = Arc::new(made.with_precision_and_scale(precision, scale)?);
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?));
        }
        Ok(ColumnarValue::Array(made))
    }
}

/// Exact numbers as decimals, and how many digits are behind the point.
fn decimals(of: &ArrayRef) -> Result<(Decimal128Array, u8)> {
    if let DataType::Decimal128(_, scale) = of.data_type() {
        let scale = u8::try_from(*scale).unwrap_or(0);
        return Ok((of.as_primitive::<Decimal128Type>().clone(), scale));
    }
    let whole = cast(of, &DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0))?;
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

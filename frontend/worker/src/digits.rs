//! Decimals rounded to fewer digits after the point: `ceil`, `floor` and `trunc`, as in PostgreSQL.
//!
//! DataFusion's functions return the type of their argument, in which the `ceil` of 99.99, 100, is one digit too long,
//! and whose digits after the point are shown as zeros.
//!
//! Invariant: the result type has as many digits after the point as the value keeps if their number is a constant,
//! otherwise as many as the argument.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Int64Type};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;

/// Rounding of a decimal that lies between two that have the digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Digits {
    /// The greater one.
    Up,
    /// The smaller one.
    Down,
    /// The one nearer to zero.
    Off,
}

/// Type of a decimal rounded to `count` digits after the point: 0 digits without the argument, the decimal's own type
/// if the count is not a constant.
pub(crate) fn type_of(types: &[DataType], count: Option<&ScalarValue>) -> DataType {
    let [DataType::Decimal128(precision, scale), rest @ ..] = types else { return DataType::Null };
    let whole = precision.saturating_sub(scale.unsigned_abs());
    let count = match (rest, count.and_then(whole_number)) {
        ([], _) => 0,
        (_, Some(count)) => {
            let room = DECIMAL128_MAX_PRECISION.saturating_sub(whole);
            u8::try_from(count.max(0)).unwrap_or(u8::MAX).min(room)
        }
        (_, None) => return types[0].clone(),
    };
    // Rounding up may add a digit.
    let more = u8::from(count < scale.unsigned_abs());
    let precision = (whole + count + more).clamp(1, DECIMAL128_MAX_PRECISION);
    DataType::Decimal128(precision, i8::try_from(count).unwrap_or(*scale))
}

fn whole_number(value: &ScalarValue) -> Option<i64> {
    match value.cast_to(&DataType::Int64) {
        Ok(ScalarValue::Int64(number)) => number,
        _ => None,
    }
}

impl Digits {
    /// Rounds decimals to `counts` digits after the point, or to none.
    pub(crate) fn decimals(
        self,
        array: &ArrayRef,
        counts: Option<&ArrayRef>,
        data_type: &DataType,
    ) -> Result<ArrayRef> {
        let (DataType::Decimal128(_, scale), DataType::Decimal128(precision, digits)) =
            (array.data_type(), data_type)
        else {
            return exec_err!("only decimals can be rounded to digits");
        };
        let values = array.as_primitive::<Decimal128Type>();
        let counts = counts.map(|counts| cast(counts, &DataType::Int64)).transpose()?;
        let counts: Option<&Int64Array> =
            counts.as_ref().map(|counts| counts.as_primitive::<Int64Type>());
        let cut = |row: usize| {
            if values.is_null(row) || counts.is_some_and(|counts| counts.is_null(row)) {
                return None;
            }
            let count = counts.map_or(0, |counts| counts.value(row));
            Some(self.of(values.value(row), i64::from(*scale), count, i64::from(*digits)))
        };
        let rounded: Decimal128Array = (0..values.len()).map(cut).collect();
        Ok(Arc::new(rounded.with_precision_and_scale(*precision, *digits)?))
    }

    /// Rounds a value with `scale` digits after the point to `count` of them, and returns it with `digits` of them.
    fn of(self, value: i128, scale: i64, count: i64, digits: i64) -> i128 {
        let power = |exponent: i64| {
            u32::try_from(exponent).ok().and_then(|exponent| 10_i128.checked_pow(exponent))
        };
        let count = count.min(scale);
        // The power overflows only if the count drops more digits than a decimal has.
        let Some(unit) = power(scale.saturating_sub(count)) else { return 0 };
        let units = match self {
            Self::Up => -(-value).div_euclid(unit),
            Self::Down => value.div_euclid(unit),
            Self::Off => value / unit,
        };
        power(digits - count).map_or(0, |unit| units.saturating_mul(unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_cut_off_at_the_place_that_is_told() {
        for (digits, value, count, expected) in [
            (Digits::Up, 9_999, 0, 100),
            (Digits::Up, -9_999, 0, -99),
            (Digits::Down, -9_999, 0, -100),
            (Digits::Down, 9_999, 0, 99),
            (Digits::Off, -9_999, 0, -99),
            (Digits::Off, 9_999, -1, 90),
            (Digits::Off, 9_999, -9, 0),
            (Digits::Off, 9_999, i64::MIN, 0),
        ] {
            assert_eq!(digits.of(value, 2, count, 0), expected, "{digits:?} {value} {count}");
        }
        assert_eq!(Digits::Off.of(9_999, 2, 1, 2), 9_990);
        assert_eq!(Digits::Off.of(9_999, 2, 5, 5), 9_999_000);
    }

    #[test]
    fn a_type_has_the_digits_that_are_left() {
        let of = |precision, scale| DataType::Decimal128(precision, scale);
        let count = ScalarValue::from(3_i64);
        for (from, count, expected) in [
            (vec![of(4, 2)], None, of(3, 0)),
            (vec![of(38, 38)], None, of(1, 0)),
            (vec![of(38, 0)], None, of(38, 0)),
            (vec![of(4, 2), DataType::Int64], Some(&count), of(5, 3)),
            (vec![of(38, 2), DataType::Int64], Some(&count), of(38, 2)),
            (vec![of(9, 6), DataType::Int64], Some(&count), of(7, 3)),
            (vec![of(9, 6), DataType::Int64], None, of(9, 6)),
        ] {
            assert_eq!(type_of(&from, count), expected, "{from:?} {count:?}");
        }
    }
}

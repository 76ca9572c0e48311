//! Casts that round.
//!
//! Arrow's casts cut off what the target cannot hold: `CAST(2.5 AS INT)` is 2 there, and in PostgreSQL 3. After types are
//! known, [`RoundedCasts`] puts a function around what is cast, which gives it the value that is nearest, in its own
//! type; the cast is exact then.
//!
//! Invariants, as in PostgreSQL:
//! - doubles that lie between two whole numbers become the even one, decimals the one that is farther from zero;
//! - a timestamp between two ticks becomes the one that is farther from 2000-01-01;
//! - NaN, infinities and what is out of range are left for the cast to refuse.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Decimal256Type, Float32Type, Float64Type,
    Int64Type, TimeUnit, i256,
};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{ScalarFunction, TryCast};
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};

use crate::functions::REGISTRY;

/// From 1970-01-01 to 2000-01-01, from where PostgreSQL counts.
const EPOCH_SECONDS: i64 = 946_684_800;

/// The functions that stand around what is cast.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    Nearest::ALL.into_iter().map(|nearest| {
        let signature = Signature::any(1, Volatility::Immutable);
        ScalarUDF::from(Rounded { nearest, signature })
    })
}

/// A value as a value of a type with fewer digits, where that is a number or a time; any other as it is.
pub fn rounded(values: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    match Nearest::between(values.data_type(), to) {
        Some(nearest) => nearest.of(values),
        None => Ok(Arc::clone(values)),
    }
}

/// What a value is rounded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Nearest {
    Whole,
    Second,
    Millisecond,
    Microsecond,
}

impl Nearest {
    const ALL: [Self; 4] = [Self::Whole, Self::Second, Self::Millisecond, Self::Microsecond];

    /// What a cast needs first; `None` where it cuts nothing off.
    fn between(from: &DataType, to: &DataType) -> Option<Self> {
        use DataType::{Decimal128, Decimal256, Float32, Float64, Timestamp};
        match (from, to) {
            (Float32 | Float64, to) if to.is_integer() => Some(Self::Whole),
            (Decimal128(_, 1..) | Decimal256(_, 1..), to) if to.is_integer() => Some(Self::Whole),
            (Timestamp(from, _), Timestamp(to, _)) if per_second(*from) > per_second(*to) => {
                Some(match to {
                    TimeUnit::Second => Self::Second,
                    TimeUnit::Millisecond => Self::Millisecond,
                    TimeUnit::Microsecond | TimeUnit::Nanosecond => Self::Microsecond,
                })
            }
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Whole => "nearest_whole",
            Self::Second => "nearest_second",
            Self::Millisecond => "nearest_millisecond",
            Self::Microsecond => "nearest_microsecond",
        }
    }

    /// In a second.
    fn ticks(self) -> i64 {
        match self {
            Self::Whole | Self::Second => 1,
            Self::Millisecond => 1_000,
            Self::Microsecond => 1_000_000,
        }
    }

    fn of(self, values: &ArrayRef) -> Result<ArrayRef> {
        Ok(match (self, values.data_type()) {
            (Self::Whole, DataType::Float64) => {
                unary::<Float64Type>(values, |value| value.round_ties_even())
            }
            (Self::Whole, DataType::Float32) => {
                unary::<Float32Type>(values, |value| value.round_ties_even())
            }
            (Self::Whole, DataType::Decimal128(_, scale)) => {
                let Some(one) = power_of_ten(*scale).and_then(|one| one.to_i128()) else {
                    return Ok(Arc::clone(values));
                };
                unary::<Decimal128Type>(values, |value| {
                    let rest = value % one;
                    // Beyond the type's digits the cast finds that no integer fits.
                    let away = if rest.abs() >= one - rest.abs() { one * rest.signum() } else { 0 };
                    (value - rest).saturating_add(away)
                })
            }
            (Self::Whole, DataType::Decimal256(_, scale)) => {
                let Some(one) = power_of_ten(*scale) else { return Ok(Arc::clone(values)) };
                unary::<Decimal256Type>(values, |value| {
                    let rest = value % one;
                    let size = rest.wrapping_abs();
                    let whole = value.wrapping_sub(rest);
                    if size < one.wrapping_sub(size) {
                        return whole;
                    }
                    if rest.is_negative() {
                        whole.wrapping_sub(one)
                    } else {
                        whole.wrapping_add(one)
                    }
                })
            }
            (_, DataType::Timestamp(unit, _)) if per_second(*unit) > self.ticks() => {
                let one = i128::from(per_second(*unit) / self.ticks());
                let epoch = i128::from(EPOCH_SECONDS) * i128::from(per_second(*unit));
                let ticks = cast(values, &DataType::Int64)?;
                let ticks = unary::<Int64Type>(&ticks, |tick| {
                    let since = i128::from(tick) - epoch;
                    let rest = since % one;
                    let away = if rest.abs() * 2 >= one { one * rest.signum() } else { 0 };
                    // At the end of the type there is nothing farther away.
                    i64::try_from(epoch + since - rest + away).unwrap_or(tick)
                });
                cast(&ticks, values.data_type())?
            }
            (_, other) => return exec_err!("{} does not take {other}", self.name()),
        })
    }
}

fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

fn power_of_ten(exponent: i8) -> Option<i256> {
    i256::from_i128(10).checked_pow(u32::try_from(exponent).ok()?)
}

/// Row by row, in the same type.
fn unary<T: ArrowPrimitiveType>(
    values: &ArrayRef,
    of: impl Fn(T::Native) -> T::Native,
) -> ArrayRef {
    let rounded: PrimitiveArray<T> = values.as_primitive::<T>().unary(of);
    Arc::new(rounded.with_data_type(values.data_type().clone()))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Rounded {
    nearest: Nearest,
    signature: Signature,
}

impl ScalarUDFImpl for Rounded {
    fn name(&self) -> &str {
        self.nearest.name()
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        match arguments {
            // As a cast is called.
            [of] => Ok(of.schema_name().to_string()),
            _ => exec_err!("{} takes one argument", self.name()),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [of] => Ok(of.clone()),
            _ => exec_err!("{} takes one argument", self.name()),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Array(values)] => Ok(ColumnarValue::Array(self.nearest.of(values)?)),
            [ColumnarValue::Scalar(value)] => {
                let rounded = self.nearest.of(&value.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&rounded, 0)?))
            }
            _ => exec_err!("{} takes one argument", self.name()),
        }
    }
}

/// Puts the functions around what is cast; to be applied once types are coerced.
#[derive(Debug)]
pub struct RoundedCasts;

impl FunctionRewrite for RoundedCasts {
    fn name(&self) -> &'static str {
        "rounded_casts"
    }

    fn rewrite(
        &self,
        expression: Expr,
        schema: &DFSchema,
        _: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        let (of, to) = match &expression {
            Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
                (expr, field.data_type())
            }
            _ => return Ok(Transformed::no(expression)),
        };
        let nearest = of.get_type(schema).ok().and_then(|from| Nearest::between(&from, to));
        let Some(nearest) = nearest.filter(|nearest| !is_call(of, nearest.name())) else {
            return Ok(Transformed::no(expression));
        };
        let Some(function) = REGISTRY.scalar.get(nearest.name()) else {
            return exec_err!("{} is not registered", nearest.name());
        };
        let round = |of: Box<Expr>| {
            Box::new(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), vec![*of])))
        };
        Ok(Transformed::yes(match expression {
            Expr::Cast(Cast { expr, field }) => Expr::Cast(Cast { expr: round(expr), field }),
            Expr::TryCast(TryCast { expr, field }) => {
                Expr::TryCast(TryCast { expr: round(expr), field })
            }
            other => other,
        }))
    }
}

fn is_call(expression: &Expr, name: &str) -> bool {
    matches!(expression, Expr::ScalarFunction(call) if call.func.name() == name)
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Decimal128Array, Decimal256Array, Float32Array, Float64Array, TimestampMillisecondArray,
    };

    use super::*;

    fn whole(values: impl Array + 'static) -> Vec<Option<i64>> {
        let values: ArrayRef = Arc::new(values);
        let rounded = rounded(&values, &DataType::Int64).unwrap();
        assert_eq!(rounded.data_type(), values.data_type());
        let whole = cast(&rounded, &DataType::Int64).unwrap();
        whole.as_primitive::<Int64Type>().iter().collect()
    }

    #[test]
    fn doubles_become_the_nearest_whole_number_and_the_even_one_of_two() {
        let values = vec![Some(0.5), Some(1.5), Some(2.5), Some(-0.5), Some(-1.5), Some(2.4), None];
        let expected = [Some(0), Some(2), Some(2), Some(0), Some(-2), Some(2), None];
        assert_eq!(whole(Float64Array::from(values)), expected);
        assert_eq!(whole(Float32Array::from(vec![3.5])), [Some(4)]);
    }

    #[test]
    fn decimals_become_the_whole_number_that_is_farther_from_zero() {
        let decimals = |values: Vec<i128>| {
            Decimal128Array::from(values).with_precision_and_scale(10, 2).unwrap()
        };
        let values = decimals(vec![50, 49, -50, -49, 250, -150, 0, 100]);
        assert_eq!(whole(values), [1, 0, -1, 0, 3, -2, 0, 1].map(Some));
        let wide = Decimal256Array::from(vec![i256::from_i128(25), i256::from_i128(-25)]);
        let wide = wide.with_precision_and_scale(76, 1).unwrap();
        assert_eq!(whole(wide), [Some(3), Some(-3)]);
    }

    #[test]
    fn timestamps_become_the_nearest_tick() {
        // 1970-01-01 00:00:00.5 lies before 2000: what is farther away from there is earlier.
        let values: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![
            Some(946_684_800_500),
            Some(946_684_800_499),
            Some(500),
            Some(501),
            Some(-1),
            None,
        ]));
        let rounded = rounded(&values, &DataType::Timestamp(TimeUnit::Second, None)).unwrap();
        let rounded: Vec<_> =
            cast(&rounded, &DataType::Int64).unwrap().as_primitive::<Int64Type>().iter().collect();
        let expected =
            [Some(946_684_801_000), Some(946_684_800_000), Some(0), Some(1_000), Some(0), None];
        assert_eq!(rounded, expected);
    }

    #[test]
    fn other_casts_need_no_rounding() {
        for (from, to) in [
            (DataType::Int64, DataType::Int32),
            (DataType::Decimal128(10, 0), DataType::Int32),
            (DataType::Float64, DataType::Float32),
            (DataType::Float64, DataType::Decimal128(10, 2)),
            (
                DataType::Timestamp(TimeUnit::Second, None),
                DataType::Timestamp(TimeUnit::Nanosecond, None),
            ),
        ] {
            assert_eq!(Nearest::between(&from, &to), None, "{from} to {to}");
        }
    }
}

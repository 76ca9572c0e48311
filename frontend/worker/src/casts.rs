//! Casts that round.
//!
//! Arrow's casts truncate: `CAST(2.5 AS INT)` is 2 there, and 3 in PostgreSQL. Once types are known, [`RoundedCasts`]
//! wraps the operand of such a cast in a function that rounds it to the nearest value that the target holds, in the
//! operand's own type; the cast is then exact.
//!
//! Invariants, as in PostgreSQL:
//! - a double halfway between two integers becomes the even one, a decimal the one that is farther from zero;
//! - a timestamp halfway between two ticks becomes the one that is farther from 2000-01-01;
//! - NaN, infinities and values out of range are left for the cast to refuse;
//! - elements of arrays are rounded as other values.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, PrimitiveArray};
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

/// Seconds from 1970-01-01 to 2000-01-01, PostgreSQL's epoch.
const EPOCH_SECONDS: i64 = 946_684_800;

/// Functions that round the operands of casts.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    Nearest::ALL.into_iter().map(|nearest| {
        let signature = Signature::any(1, Volatility::Immutable);
        ScalarUDF::from(Rounded { nearest, signature })
    })
}

/// Rounds values to the digits of the target type, without changing their own type.
pub fn rounded(values: &ArrayRef, target: &DataType) -> Result<ArrayRef> {
    match Nearest::between(values.data_type(), target) {
        Some(nearest) => nearest.of(values),
        None => Ok(Arc::clone(values)),
    }
}

/// Unit to which a value is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Nearest {
    Whole,
    Second,
    Millisecond,
    Microsecond,
}

impl Nearest {
    const ALL: [Self; 4] = [Self::Whole, Self::Second, Self::Millisecond, Self::Microsecond];

    /// Rounding that a cast needs before it; `None` where the cast loses no digits.
    fn between(source: &DataType, target: &DataType) -> Option<Self> {
        use DataType::{Decimal128, Decimal256, Float32, Float64, List, Timestamp};
        match (source, target) {
            (List(source), List(target)) => Self::between(source.data_type(), target.data_type()),
            (Float32 | Float64, target) if target.is_integer() => Some(Self::Whole),
            (Decimal128(_, 1..) | Decimal256(_, 1..), target) if target.is_integer() => {
                Some(Self::Whole)
            }
            (Timestamp(source, _), Timestamp(target, _))
                if per_second(*source) > per_second(*target) =>
            {
                Some(match target {
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

    /// Ticks in a second.
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
                let Some(unit) = power_of_ten(*scale).and_then(|unit| unit.to_i128()) else {
                    return Ok(Arc::clone(values));
                };
                unary::<Decimal128Type>(values, |value| {
                    let rest = value % unit;
                    // A value that needs more digits than its type has fits no integer; the cast refuses it.
                    let away =
                        if rest.abs() >= unit - rest.abs() { unit * rest.signum() } else { 0 };
                    (value - rest).saturating_add(away)
                })
            }
            (Self::Whole, DataType::Decimal256(_, scale)) => {
                let Some(unit) = power_of_ten(*scale) else { return Ok(Arc::clone(values)) };
                unary::<Decimal256Type>(values, |value| {
                    let rest = value % unit;
                    let size = rest.wrapping_abs();
                    let whole = value.wrapping_sub(rest);
                    if size < unit.wrapping_sub(size) {
                        return whole;
                    }
                    if rest.is_negative() {
                        whole.wrapping_sub(unit)
                    } else {
                        whole.wrapping_add(unit)
                    }
                })
            }
            (_, DataType::Timestamp(unit, _)) if per_second(*unit) > self.ticks() => {
                let step = i128::from(per_second(*unit) / self.ticks());
                let epoch = i128::from(EPOCH_SECONDS) * i128::from(per_second(*unit));
                let ticks = cast(values, &DataType::Int64)?;
                let ticks = unary::<Int64Type>(&ticks, |tick| {
                    let elapsed = i128::from(tick) - epoch;
                    let rest = elapsed % step;
                    let away = if rest.abs() * 2 >= step { step * rest.signum() } else { 0 };
                    // At the end of the type there is no value farther away.
                    i64::try_from(epoch + elapsed - rest + away).unwrap_or(tick)
                });
                cast(&ticks, values.data_type())?
            }
            (_, DataType::List(item)) => {
                let lists = values.as_list::<i32>();
                let (offsets, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
                let elements = self.of(lists.values())?;
                Arc::new(ListArray::try_new(Arc::clone(item), offsets, elements, nulls)?)
            }
            (_, data_type) => return exec_err!("{} does not take {data_type}", self.name()),
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

/// Applies a function to each row, in the same type.
fn unary<T: ArrowPrimitiveType>(
    values: &ArrayRef,
    round: impl Fn(T::Native) -> T::Native,
) -> ArrayRef {
    let rounded: PrimitiveArray<T> = values.as_primitive::<T>().unary(round);
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
            // Named as the cast would be named.
            [argument] => Ok(argument.schema_name().to_string()),
            _ => exec_err!("{} takes one argument", self.name()),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [data_type] => Ok(data_type.clone()),
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

/// Wraps the operands of casts that would truncate; to be applied once types are coerced.
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
        let (operand, target) = match &expression {
            Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
                (expr, field.data_type())
            }
            _ => return Ok(Transformed::no(expression)),
        };
        let nearest =
            operand.get_type(schema).ok().and_then(|source| Nearest::between(&source, target));
        // The rewrite may run again over its own result.
        let Some(nearest) = nearest.filter(|nearest| !is_call(operand, nearest.name())) else {
            return Ok(Transformed::no(expression));
        };
        let Some(function) = REGISTRY.scalar.get(nearest.name()) else {
            return exec_err!("{} is not registered", nearest.name());
        };
        let round = |operand: Box<Expr>| {
            Box::new(Expr::ScalarFunction(ScalarFunction::new_udf(
                Arc::clone(function),
                vec![*operand],
            )))
        };
        Ok(Transformed::yes(match expression {
            Expr::Cast(Cast { expr, field }) => Expr::Cast(Cast { expr: round(expr), field }),
            Expr::TryCast(TryCast { expr, field }) => {
                Expr::TryCast(TryCast { expr: round(expr), field })
            }
            expression => expression,
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
        // 1970-01-01 00:00:00.5 is before 2000, so the farther tick is the earlier one.
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
    fn elements_of_arrays_are_rounded() {
        let item = |data_type| DataType::new_list(data_type, true);
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>([
            Some(vec![Some(1.7), None, Some(2.5)]),
            None,
        ]));
        let rounded = rounded(&lists, &item(DataType::Int32)).unwrap();
        let elements = rounded.as_list::<i32>().value(0);
        let elements: Vec<_> = elements.as_primitive::<Float64Type>().iter().collect();
        assert_eq!(elements, [Some(2.0), None, Some(2.0)]);
        assert!(rounded.is_null(1));
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

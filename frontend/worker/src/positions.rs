//! Positions within arrays, bounded before DataFusion's functions count with them.
//!
//! ```text
//!   array_slice(array, from, to [, stride])    adds the stride to a position: past the greatest number it panics
//!   array_element(array, n), array[n]          n is an integer in PostgreSQL; a larger one is out of range
//!   array_position(array, element, start)      subtracts 1 from the start; one before the array begins with it
//! ```
//!
//! A position beyond the end of every array selects what the nearest position beyond the end selects, so that a bound
//! changes no result.

use std::sync::Arc;

use arrow::array::{Array, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use crate::bounded::{Numbers, any_number, with_numbers};
use crate::error::{NULL_NOT_ALLOWED, NUMERIC_OUT_OF_RANGE, SqlError};
use crate::functions::builtin;
use crate::inner::like_inner;

/// Greatest position, forward and backward: an array has at most as many elements.
const PLACE_MAX: i64 = 0x7fff_ffff;
/// Greatest stride, forward and backward. No array of values within the bounds of `bounded.rs` is as long, and a
/// position within an array plus the stride fits in 32 bits.
const STRIDE_MAX: i64 = 1 << 30;

/// Functions that take positions, and the rule for these.
const POSITIONED: &[(&str, Rule)] = &[
    ("array_slice", Rule::Slice),
    ("array_element", Rule::Element),
    ("array_position", Rule::Start),
];

/// Arguments of a function that are positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Rule {
    /// First and last position, and a stride.
    Slice,
    /// One position.
    Element,
    /// Position where a search starts.
    Start,
}

/// The wrapped functions, under DataFusion's names.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    POSITIONED.iter().filter_map(|(name, rule)| {
        let inner = Arc::clone(builtin(name)?);
        Some(ScalarUDF::from(Positioned { inner, rule: *rule }))
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Positioned {
    inner: Arc<ScalarUDF>,
    rule: Rule,
}

impl Positioned {
    fn inner(&self) -> &dyn ScalarUDFImpl {
        self.inner.inner().as_ref()
    }
}

impl ScalarUDFImpl for Positioned {
    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match (self.rule, args.args.as_mut_slice()) {
            (Rule::Slice, [_, positions @ ..]) => {
                for (position, max) in positions.iter_mut().zip([PLACE_MAX, PLACE_MAX, STRIDE_MAX])
                {
                    *position = with_numbers(position, |number| number.clamp(-max, max))?;
                }
            }
            (Rule::Element, [_, position])
                if any_number(position, |number| i32::try_from(number).is_err())? =>
            {
                return Err(SqlError::new(NUMERIC_OUT_OF_RANGE, "integer out of range").into());
            }
            (Rule::Start, [array, _, start]) => *start = starts(array, start, args.number_rows)?,
            // DataFusion refuses any other number of arguments.
            _ => {}
        }
        self.inner().invoke_with_args(args)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner().simplify(args, info)
    }

    like_inner!();
}

/// Positions from which each array is searched, between its first element and its end.
fn starts(array: &ColumnarValue, start: &ColumnarValue, rows: usize) -> Result<ColumnarValue> {
    let constant = matches!((array, start), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
    let rows = if constant { 1 } else { rows };
    let is_null = |row: usize| match array {
        ColumnarValue::Scalar(value) => value.is_null(),
        ColumnarValue::Array(arrays) => arrays.is_null(row),
    };
    let lengths = Numbers::lengths(array)?;
    let numbers = cast(&start.to_array(rows)?, &DataType::Int64)?;
    let numbers = numbers.as_primitive::<Int64Type>();
    let bounded = (0..rows).map(|row| {
        if is_null(row) {
            return Ok(1);
        }
        if numbers.is_null(row) {
            return Err(SqlError::new(NULL_NOT_ALLOWED, "initial position must not be null"));
        }
        let end = i64::try_from(lengths.at(row)).unwrap_or(PLACE_MAX).min(PLACE_MAX) + 1;
        Ok(numbers.value(row).clamp(1, end))
    });
    let bounded = bounded.collect::<Result<Vec<i64>, SqlError>>()?;
    if constant {
        return Ok(ColumnarValue::Scalar(ScalarValue::Int64(bounded.first().copied())));
    }
    Ok(ColumnarValue::Array(Arc::new(Int64Array::from(bounded))))
}

#[cfg(test)]
mod tests {
    use datafusion::execution::SessionStateBuilder;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::AdjustedCalls;

    /// The values of the only column, joined by "|", or the SQLSTATE of the error.
    async fn answer(sql: &str) -> std::result::Result<String, String> {
        let state = SessionStateBuilder::new()
            .with_expr_planners(vec![Arc::new(AdjustedCalls)])
            .with_default_features()
            .build();
        let context = SessionContext::new_with_state(state);
        for function in functions() {
            context.register_udf(function);
        }
        let run = async {
            let mut values = Vec::new();
            for batch in context.sql(sql).await?.collect().await? {
                for row in 0..batch.num_rows() {
                    let column = batch.column(0);
                    values.push(arrow::util::display::array_value_to_string(column, row)?);
                }
            }
            Ok::<_, datafusion::error::DataFusionError>(values.join("|"))
        };
        run.await.map_err(|error| SqlError::from(error).sqlstate)
    }

    const EXTREMES: &str = "(-9223372036854775808), (-9223372036854775807), (-2147483648), (-1), (1), \
        (2147483647), (9223372036854775806), (9223372036854775807), (NULL)";

    #[tokio::test]
    async fn extreme_positions_select_what_lies_beyond_the_ends() {
        for (sql, expected) in [
            ("array_slice([1, 2, 3], 2, 3, 2147483647)", "[2]"),
            ("array_slice([1, 2, 3], 2, 3, 9223372036854775807)", "[2]"),
            ("array_slice([1, 2, 3], 3, 1, -2147483648)", "[3]"),
            ("array_slice([1, 2, 3], 3, 1, -9223372036854775808)", "[3]"),
            ("array_slice([1, 2, 3], -9223372036854775808, 9223372036854775807)", "[1, 2, 3]"),
            ("array_slice([1, 2, 3], 9223372036854775807, 9223372036854775807)", "[]"),
            ("array_slice([1, 2, 3], 1, 3, 2)", "[1, 3]"),
            ("array_slice([1, 2, 3], 3, 1, -2)", "[3, 1]"),
            ("array_position([1, 2, 1], 1, 2)", "3"),
            ("array_position([1, 2, 1], 1, -9223372036854775808)", "1"),
            ("array_position([1, 2, 1], 1, 9223372036854775807)", ""),
            ("array_element([1, 2], 2147483647)", ""),
        ] {
            assert_eq!(answer(&format!("SELECT {sql}")).await, Ok(expected.to_owned()), "{sql}");
        }
    }

    #[tokio::test]
    async fn positions_that_postgresql_refuses_are_refused() {
        for (sql, sqlstate) in [
            ("array_element([1, 2], 2147483648)", "22003"),
            ("make_array(1, 2)[-9223372036854775808]", "22003"),
            ("array_position([1, 2], 1, CAST(NULL AS BIGINT))", "22004"),
            ("array_slice([1, 2], 1, 2, 0)", "22023"),
        ] {
            assert_eq!(answer(&format!("SELECT {sql}")).await, Err(sqlstate.to_owned()), "{sql}");
        }
    }

    #[tokio::test]
    async fn no_position_of_rows_panics() {
        for call in [
            "array_slice([1, 2, 3], n, 3)",
            "array_slice([1, 2, 3], 1, n)",
            "array_slice([1, 2, 3], 1, 3, n)",
            "array_slice([1, 2, 3], 3, 1, n)",
            "array_slice([n, n], n, n, n)",
            "make_array(1, 2, 3)[1:n]",
            "array_position([1, n], 1, coalesce(n, 1))",
        ] {
            let sql = format!("SELECT {call} FROM (VALUES {EXTREMES}) AS t (n)");
            let values = answer(&sql).await.map(|values| values.split('|').count());
            assert_eq!(values, Ok(9), "{call}");
        }
    }
}

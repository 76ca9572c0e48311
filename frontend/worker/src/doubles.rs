//! Decimals and doubles where they meet.
//!
//! A number with a point is an exact one in PostgreSQL, and a double in DataFusion. Beside a decimal or an integer it is
//! taken for the decimal that it was written as; beside a double a decimal becomes one, as PostgreSQL has it, where
//! DataFusion would make decimals of 15 places of doubles:
//!
//! ```text
//!   decimal = 0.3, decimal * 1.1, bigint = 1e18     of decimals
//!   double < 0.1234567890123456789                  of doubles, the second the nearest to the number
//!   real + integer                                  of doubles
//!   CASE WHEN .. THEN decimal ELSE double END       of doubles
//! ```
//!
//! [`ExactNumbers`] says so before types are coerced, and [`NearestDoubles`] afterwards puts `decimal_to_double(..)` in the
//! place of casts: arrow's divides by a power of ten that a double may not hold.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float32Array, Float64Array};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Float32Type, Float64Type,
};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{BinaryExpr, Case, InList, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    Between, Cast, ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, lit,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::functions::REGISTRY;
use crate::number_division;

/// Functions whose arguments become one type.
const MIXING: [&str; 5] = ["coalesce", "greatest", "least", "nullif", "nvl"];
/// Powers of ten that doubles hold exactly.
const EXACT_POWER_MAX: i8 = 22;
/// Whole numbers that doubles hold exactly end here.
const EXACT_WHOLE_END: i128 = 1 << 53;

/// The greatest number up to which a REAL holds all whole numbers exactly.
const EXACT_REAL_WHOLE_MAX: u64 = 1 << 24;

/// The functions that stand for casts of decimals.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [true, false].into_iter().map(|double| {
        let signature = Signature::any(1, Volatility::Immutable);
        ScalarUDF::from(Nearest { double, signature })
    })
}

/// A decimal as the nearest float.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Nearest {
    /// Of 64 bits, not of 32.
    double: bool,
    signature: Signature,
}

impl Nearest {
    fn name(double: bool) -> &'static str {
        if double { "decimal_to_double" } else { "decimal_to_real" }
    }
}

impl ScalarUDFImpl for Nearest {
    fn name(&self) -> &str {
        Self::name(self.double)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [DataType::Decimal128(..)] if self.double => Ok(DataType::Float64),
            [DataType::Decimal128(..)] => Ok(DataType::Float32),
            _ => exec_err!("{} does not take {types:?}", Self::name(self.double)),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [of] = args.args.as_slice() else {
            return exec_err!("{} takes one argument", Self::name(self.double));
        };
        let constant = matches!(of, ColumnarValue::Scalar(_));
        let of = of.to_array(if constant { 1 } else { args.number_rows })?;
        let made = nearest_floats(&of, self.double)?;
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?));
        }
        Ok(ColumnarValue::Array(made))
    }
}

/// The doubles, or else the reals, that are nearest to decimals.
///
/// # Errors
/// When the values are no decimals.
pub fn nearest_floats(of: &ArrayRef, double: bool) -> Result<ArrayRef> {
    let DataType::Decimal128(_, scale) = *of.data_type() else {
        return exec_err!("{} takes a decimal", Nearest::name(double));
    };
    let of = of.as_primitive::<Decimal128Type>();
    if double {
        let made: Float64Array = of.unary::<_, Float64Type>(|value| nearest(value, scale));
        return Ok(Arc::new(made));
    }
    // Any text of this form is a number.
    let text = |value| format!("{value}e{}", -i32::from(scale));
    let made: Float32Array =
        of.unary::<_, Float32Type>(|value| text(value).parse().unwrap_or(f32::NAN));
    Ok(Arc::new(made))
}

/// The double that is nearest to a decimal.
pub(crate) fn nearest(value: i128, scale: i8) -> f64 {
    if value.abs() < EXACT_WHOLE_END && (0..=EXACT_POWER_MAX).contains(&scale) {
        #[expect(clippy::cast_precision_loss, reason = "it is small enough to be exact")]
        return value as f64 / 10_f64.powi(i32::from(scale));
    }
    // Any text of this form is a number.
    format!("{value}e{}", -i32::from(scale)).parse().unwrap_or(f64::NAN)
}

/// Puts the functions in the place of casts of decimals; to be applied once types are coerced.
#[derive(Debug)]
pub struct NearestDoubles;

impl FunctionRewrite for NearestDoubles {
    fn name(&self) -> &'static str {
        "nearest_doubles"
    }

    fn rewrite(
        &self,
        expression: Expr,
        schema: &DFSchema,
        _: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        match expression {
            Expr::Cast(Cast { expr, field })
                if matches!(field.data_type(), DataType::Float64 | DataType::Float32)
                    && is_decimal(&expr, schema) =>
            {
                let name = Nearest::name(*field.data_type() == DataType::Float64);
                let Some(function) = REGISTRY.scalar.get(name) else {
                    return exec_err!("{name} is not registered");
                };
                let call = ScalarFunction::new_udf(Arc::clone(function), vec![*expr]);
                Ok(Transformed::yes(Expr::ScalarFunction(call)))
            }
            other => Ok(Transformed::no(other)),
        }
    }
}

/// Takes numbers with a point for what they were written as; to be applied before types are coerced.
#[derive(Debug)]
pub struct ExactNumbers;

/// The type of an expression; of a CASE the one that its branches will have: DataFusion says that of the first, until
/// they are coerced.
fn type_of(of: &Expr, schema: &DFSchema) -> Option<DataType> {
    let Expr::Case(case) = of else { return of.get_type(schema).ok() };
    let branches = case.when_then_expr.iter().map(|(_, then)| then).chain(&case.else_expr);
    let types: Vec<DataType> = branches.filter_map(|branch| type_of(branch, schema)).collect();
    let find = |is: fn(&DataType) -> bool| types.iter().find(|of| is(of)).cloned();
    find(DataType::is_floating)
        .or_else(|| find(DataType::is_decimal))
        .or_else(|| of.get_type(schema).ok())
}

fn is_decimal(of: &Expr, schema: &DFSchema) -> bool {
    type_of(of, schema).is_some_and(|of| matches!(of, DataType::Decimal128(..)))
}

fn is_float(of: &Expr, schema: &DFSchema) -> bool {
    type_of(of, schema).is_some_and(|of| of.is_floating())
}

/// Whether it is of type REAL. The left operand of a chain is looked at only where the right one is: a long chain of other
/// numbers costs nothing.
fn is_real(mut of: &Expr, schema: &DFSchema) -> bool {
    let is_leaf_real =
        |of: &Expr| of.get_type(schema).is_ok_and(|of| matches!(of, DataType::Float32));
    while let Expr::BinaryExpr(binary) = of {
        if !binary.op.is_numerical_operators() || !is_leaf_real(&binary.right) {
            return false;
        }
        of = &binary.left;
    }
    is_leaf_real(of)
}

/// Whether it is a whole number that makes a double of a REAL beside it, as PostgreSQL has it; `compared` with one, a
/// literal that a REAL holds exactly is the same, and lets files be left out by their least and greatest values.
fn is_whole(of: &Expr, compared: bool, schema: &DFSchema) -> bool {
    if let Expr::Literal(ScalarValue::Int64(Some(number)), _) = of
        && compared
        && number.unsigned_abs() <= EXACT_REAL_WHOLE_MAX
    {
        return false;
    }
    of.get_type(schema).is_ok_and(|of| of.is_integer())
}

/// The decimal that a literal was written as; `None` if it is no double, or has too many digits.
fn decimal(of: &Expr) -> Option<Expr> {
    let number = match of {
        Expr::Literal(ScalarValue::Float64(Some(number)), _) => *number,
        Expr::Negative(of) => match of.as_ref() {
            Expr::Literal(ScalarValue::Float64(Some(number)), _) => -number,
            _ => return None,
        },
        _ => return None,
    };
    // The shortest text that is this double: what was written, if it had no more than 15 digits.
    let text = number.to_string();
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let digits = whole.trim_start_matches('-').trim_start_matches('0').len() + part.len();
    if !number.is_finite() || digits > usize::from(DECIMAL128_MAX_PRECISION) {
        return None;
    }
    let precision = u8::try_from(digits.max(1)).ok()?;
    let scale = i8::try_from(part.len()).ok()?;
    let value = format!("{whole}{part}").parse().ok()?;
    Some(lit(ScalarValue::Decimal128(Some(value), precision, scale)))
}

/// Whether an expression is a whole number that is written down.
fn is_whole_literal(of: &Expr) -> bool {
    matches!(of, Expr::Literal(value, _) if value.data_type().is_integer())
}

/// Whether an expression is a double that is not written down.
fn is_computed(of: &Expr, schema: &DFSchema) -> bool {
    is_float(of, schema) && decimal(of).is_none()
}

fn as_double(of: Expr) -> Expr {
    Expr::Cast(Cast::new(Box::new(of), DataType::Float64))
}

impl ExprPlanner for ExactNumbers {
    fn plan_binary_op(
        &self,
        mut raw: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        use BinaryOperator::{
            Divide, Eq, Gt, GtEq, Lt, LtEq, Minus, Modulo, Multiply, NotEq, Plus,
        };
        let compares = matches!(raw.op, Eq | NotEq | Lt | LtEq | Gt | GtEq);
        let computes = matches!(raw.op, Plus | Minus | Multiply | Modulo);
        if !compares && !computes && raw.op != Divide {
            return Ok(PlannerResult::Original(raw));
        }
        let exact = |of: &Expr| {
            is_decimal(of, schema)
                || compares && of.get_type(schema).is_ok_and(|of| of.is_integer())
        };
        // Of two numbers that are written down, one with a point, the result is exact.
        let written = |of: &Expr| decimal(of).is_some() || is_whole_literal(of);
        if (computes || raw.op == Divide)
            && written(&raw.left)
            && written(&raw.right)
            && (decimal(&raw.left).is_some() || decimal(&raw.right).is_some())
        {
            raw.left = decimal(&raw.left).unwrap_or(raw.left);
            raw.right = decimal(&raw.right).unwrap_or(raw.right);
        }
        if raw.op == Divide {
            let divides = |of: &Expr| is_decimal(of, schema);
            let exact = |of: &Expr| {
                is_decimal(of, schema) || of.get_type(schema).is_ok_and(|of| of.is_integer())
            };
            if divides(&raw.left)
                && !exact(&raw.right)
                && let Some(right) = decimal(&raw.right)
            {
                raw.right = right;
            } else if divides(&raw.right)
                && !exact(&raw.left)
                && let Some(left) = decimal(&raw.left)
            {
                raw.left = left;
            }
            if !is_float(&raw.left, schema)
                && !is_float(&raw.right, schema)
                && let Some(quotient) = number_division::quotient(&raw.left, &raw.right, schema)?
            {
                return Ok(PlannerResult::Planned(quotient));
            }
        } else {
            if let Some(right) = decimal(&raw.right)
                && exact(&raw.left)
            {
                raw.right = right;
                return Ok(PlannerResult::Original(raw));
            }
            if let Some(left) = decimal(&raw.left)
                && exact(&raw.right)
            {
                raw.left = left;
                return Ok(PlannerResult::Original(raw));
            }
        }
        // The right operand of a chain is short: the type of the left one is asked for only where it matters.
        let (left, right) = (&raw.left, &raw.right);
        if is_float(right, schema) && is_decimal(left, schema)
            || is_real(right, schema) && is_whole(left, compares, schema)
        {
            raw.left = as_double(raw.left);
        } else if is_decimal(right, schema) && is_float(left, schema)
            || is_whole(right, compares, schema) && is_real(left, schema)
        {
            raw.right = as_double(raw.right);
        }
        Ok(PlannerResult::Original(raw))
    }
}

impl FunctionRewrite for ExactNumbers {
    fn name(&self) -> &'static str {
        "exact_numbers"
    }

    fn rewrite(
        &self,
        expression: Expr,
        schema: &DFSchema,
        _: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        let exact = |of: &Expr| {
            of.get_type(schema)
                .is_ok_and(|of| of.is_integer() || matches!(of, DataType::Decimal128(..)))
        };
        Ok(match expression {
            Expr::Between(Between { expr, negated, low, high })
                if exact(&expr) || is_computed(&expr, schema) =>
            {
                let of_double = is_computed(&expr, schema);
                let (low, changed_low) = bound(*low, of_double, schema);
                let (high, changed_high) = bound(*high, of_double, schema);
                let between = Between::new(expr, negated, Box::new(low), Box::new(high));
                Transformed::new_transformed(Expr::Between(between), changed_low || changed_high)
            }
            Expr::InList(InList { expr, list, negated })
                if exact(&expr) || is_computed(&expr, schema) =>
            {
                let of_double = is_computed(&expr, schema);
                let mut changed = false;
                let members = list.into_iter().map(|member| {
                    let (member, member_changed) = bound(member, of_double, schema);
                    changed |= member_changed;
                    member
                });
                let list = InList::new(expr, members.collect(), negated);
                Transformed::new_transformed(Expr::InList(list), changed)
            }
            // What was a decimal while a CASE or a function around it was read may be a double now.
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if (op.is_numerical_operators() || op.supports_propagation())
                    && (is_float(&right, schema) && is_decimal(&left, schema)
                        || is_decimal(&right, schema) && is_float(&left, schema)) =>
            {
                let double = |of: Expr| if is_decimal(&of, schema) { as_double(of) } else { of };
                let (left, right) = (Box::new(double(*left)), Box::new(double(*right)));
                Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right }))
            }
            Expr::Case(Case { expr, when_then_expr, else_expr }) => {
                let mut branches: Vec<&Expr> =
                    when_then_expr.iter().map(|(_, then)| then.as_ref()).collect();
                branches.extend(else_expr.as_deref());
                let has_decimal = branches.iter().any(|branch| is_decimal(branch, schema));
                let has_float = branches.iter().any(|branch| is_float(branch, schema));
                if !has_decimal || !has_float {
                    let same = Case::new(expr, when_then_expr, else_expr);
                    return Ok(Transformed::no(Expr::Case(same)));
                }
                let of_double = branches.iter().any(|branch| is_computed(branch, schema));
                let alike = |branch: Box<Expr>| Box::new(bound(*branch, of_double, schema).0);
                let cases = when_then_expr.into_iter().map(|(when, then)| (when, alike(then)));
                let case = Case::new(expr, cases.collect(), else_expr.map(alike));
                Transformed::yes(Expr::Case(case))
            }
            // Beside a double a decimal is one too: DataFusion would make decimals of both, of 15 places.
            Expr::ScalarFunction(call)
                if MIXING.contains(&call.func.name())
                    && call.args.iter().any(|arg| is_float(arg, schema))
                    && call.args.iter().any(|arg| is_decimal(arg, schema)) =>
            {
                let ScalarFunction { func, args } = call;
                let args = args
                    .into_iter()
                    .map(|arg| if is_decimal(&arg, schema) { as_double(arg) } else { arg });
                let call = ScalarFunction::new_udf(func, args.collect());
                Transformed::yes(Expr::ScalarFunction(call))
            }
            // A literal that types are coerced of is none any more, and the digits of the result would be others.
            Expr::ScalarFunction(mut call) if call.func.name() == "round" => {
                let mut changed = false;
                if let [of, Expr::Literal(ScalarValue::Int64(Some(places)), _)] =
                    call.args.as_slice()
                    && is_decimal(of, schema)
                    && let Ok(places) = i32::try_from(*places)
                {
                    call.args[1] = lit(places);
                    changed = true;
                }
                Transformed::new_transformed(Expr::ScalarFunction(call), changed)
            }
            other => Transformed::no(other),
        })
    }
}

/// What a double or an exact number is compared with, and whether it has changed.
fn bound(of: Expr, of_double: bool, schema: &DFSchema) -> (Expr, bool) {
    if of_double {
        return if is_decimal(&of, schema) { (as_double(of), true) } else { (of, false) };
    }
    match decimal(&of) {
        Some(exact) => (exact, true),
        None => (of, false),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_decimal_is_the_nearest_double(value in any::<i64>(), scale in 0_i8..=30) {
            let text = format!("{value}e-{scale}");
            prop_assert_eq!(nearest(value.into(), scale), text.parse::<f64>().unwrap());
        }

        #[test]
        fn what_was_written_is_found_again(digits in 0_i64..1_000_000_000_000_000, scale in 0_usize..15) {
            let written = format!("{}.{:0scale$}", digits / 1000, digits % 1000);
            let number: f64 = written.parse().unwrap();
            let Some(Expr::Literal(ScalarValue::Decimal128(Some(value), _, scale), _)) = decimal(&lit(number)) else {
                panic!("{written}");
            };
            prop_assert_eq!(nearest(value, scale), number);
        }
    }

    #[test]
    fn literals_are_the_decimals_that_they_were_written_as() {
        for (number, value, precision, scale) in
            [(0.3, 3, 1, 1), (-12.50, -125, 3, 1), (1e18, 10_i128.pow(18), 19, 0), (0.0, 0, 1, 0)]
        {
            let made = ScalarValue::Decimal128(Some(value), precision, scale);
            assert_eq!(decimal(&lit(number)), Some(lit(made)), "{number}");
        }
        for number in [1e300, f64::NAN, f64::INFINITY, 1e-39] {
            assert_eq!(decimal(&lit(number)), None, "{number}");
        }
        assert_eq!(decimal(&lit(1_i64)), None);
    }
}

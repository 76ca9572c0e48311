//! Expressions that mix decimals and doubles.
//!
//! A number with a point is exact in PostgreSQL, and a double in DataFusion. Beside a decimal or an integer, a literal
//! becomes the decimal that it was written as; beside a double, a decimal becomes a double, as in PostgreSQL, where
//! DataFusion would cast doubles to decimals of 15 places:
//!
//! ```text
//!   decimal = 0.3, decimal * 1.1, bigint = 1e18     computed in decimals
//!   double < 0.1234567890123456789                  computed in doubles; the literal is the nearest double
//!   real + integer                                  computed in doubles
//!   CASE WHEN .. THEN decimal ELSE double END       computed in doubles
//! ```
//!
//! [`ExactNumbers`] decides this before types are coerced. Afterwards [`NearestDoubles`] replaces casts by
//! `decimal_to_double(..)`: arrow's cast divides by a power of ten that a double may not hold exactly.

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

/// Functions whose arguments are coerced to one type.
const MIXING: [&str; 5] = ["coalesce", "greatest", "least", "nullif", "nvl"];
/// Greatest exponent of a power of ten that a double holds exactly.
const EXACT_POWER_MAX: i8 = 22;
/// Doubles hold all whole numbers below this one exactly.
const EXACT_WHOLE_END: i128 = 1 << 53;

/// REAL holds all whole numbers up to this one exactly.
const EXACT_REAL_WHOLE_MAX: u64 = 1 << 24;

/// Functions that replace casts of decimals.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [true, false].into_iter().map(|double| {
        let signature = Signature::any(1, Volatility::Immutable);
        ScalarUDF::from(Nearest { double, signature })
    })
}

/// Converts a decimal to the nearest float.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Nearest {
    /// Float64 if true, else Float32.
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
        let [argument] = args.args.as_slice() else {
            return exec_err!("{} takes one argument", Self::name(self.double));
        };
        let constant = matches!(argument, ColumnarValue::Scalar(_));
        let argument = argument.to_array(if constant { 1 } else { args.number_rows })?;
        let floats = nearest_floats(&argument, self.double)?;
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&floats, 0)?));
        }
        Ok(ColumnarValue::Array(floats))
    }
}

/// Returns the doubles, or else the reals, that are nearest to decimals.
///
/// # Errors
/// When the values are not decimals.
pub fn nearest_floats(decimals: &ArrayRef, double: bool) -> Result<ArrayRef> {
    let DataType::Decimal128(_, scale) = *decimals.data_type() else {
        return exec_err!("{} takes a decimal", Nearest::name(double));
    };
    let decimals = decimals.as_primitive::<Decimal128Type>();
    if double {
        let floats: Float64Array = decimals.unary::<_, Float64Type>(|value| nearest(value, scale));
        return Ok(Arc::new(floats));
    }
    // A text of this form always parses as a number.
    let text = |value| format!("{value}e{}", -i32::from(scale));
    let floats: Float32Array =
        decimals.unary::<_, Float32Type>(|value| text(value).parse().unwrap_or(f32::NAN));
    Ok(Arc::new(floats))
}

/// Returns the double nearest to a decimal.
pub(crate) fn nearest(value: i128, scale: i8) -> f64 {
    if value.abs() < EXACT_WHOLE_END && (0..=EXACT_POWER_MAX).contains(&scale) {
        #[expect(clippy::cast_precision_loss, reason = "the value is small enough to be exact")]
        return value as f64 / 10_f64.powi(i32::from(scale));
    }
    // A text of this form always parses as a number.
    format!("{value}e{}", -i32::from(scale)).parse().unwrap_or(f64::NAN)
}

/// Replaces casts of decimals by the functions; to be applied once types are coerced.
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
            expression => Ok(Transformed::no(expression)),
        }
    }
}

/// Reads literals with a point as the decimals that they were written as; to be applied before types are coerced.
#[derive(Debug)]
pub struct ExactNumbers;

/// Type of an expression, and for a CASE the type that its branches will have: before they are coerced, DataFusion
/// returns the type of the first one.
fn type_of(expr: &Expr, schema: &DFSchema) -> Option<DataType> {
    let Expr::Case(case) = expr else { return expr.get_type(schema).ok() };
    let branches = case.when_then_expr.iter().map(|(_, then)| then).chain(&case.else_expr);
    let types: Vec<DataType> = branches.filter_map(|branch| type_of(branch, schema)).collect();
    let find = |is: fn(&DataType) -> bool| types.iter().find(|data_type| is(data_type)).cloned();
    find(DataType::is_floating)
        .or_else(|| find(DataType::is_decimal))
        .or_else(|| expr.get_type(schema).ok())
}

fn is_decimal(expr: &Expr, schema: &DFSchema) -> bool {
    type_of(expr, schema).is_some_and(|data_type| matches!(data_type, DataType::Decimal128(..)))
}

fn is_float(expr: &Expr, schema: &DFSchema) -> bool {
    type_of(expr, schema).is_some_and(|data_type| data_type.is_floating())
}

/// Returns true if an expression is of type REAL. The left operand of a chain is examined only where the right one is
/// REAL, so that a long chain of other numbers costs nothing.
fn is_real(mut expr: &Expr, schema: &DFSchema) -> bool {
    let is_leaf_real = |expr: &Expr| {
        expr.get_type(schema).is_ok_and(|data_type| matches!(data_type, DataType::Float32))
    };
    while let Expr::BinaryExpr(binary) = expr {
        if !binary.op.is_numerical_operators() || !is_leaf_real(&binary.right) {
            return false;
        }
        expr = &binary.left;
    }
    is_leaf_real(expr)
}

/// Returns true for a whole number that makes a REAL beside it a double, as in PostgreSQL. A literal that is `compared`
/// with a REAL, and that a REAL holds exactly, stays as it is: the result is the same, and files can be pruned by their
/// statistics.
fn is_whole(expr: &Expr, compared: bool, schema: &DFSchema) -> bool {
    if let Expr::Literal(ScalarValue::Int64(Some(number)), _) = expr
        && compared
        && number.unsigned_abs() <= EXACT_REAL_WHOLE_MAX
    {
        return false;
    }
    expr.get_type(schema).is_ok_and(|data_type| data_type.is_integer())
}

/// The decimal that a literal was written as; `None` if it is not a double, or has too many digits.
fn decimal(expr: &Expr) -> Option<Expr> {
    let number = match expr {
        Expr::Literal(ScalarValue::Float64(Some(number)), _) => *number,
        Expr::Negative(operand) => match operand.as_ref() {
            Expr::Literal(ScalarValue::Float64(Some(number)), _) => -number,
            _ => return None,
        },
        _ => return None,
    };
    // The shortest text of the double, which equals what was written if that had at most 15 digits.
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

/// Returns true if an expression is a literal whole number.
fn is_whole_literal(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(value, _) if value.data_type().is_integer())
}

/// Returns true if an expression is a double but not a literal.
fn is_computed(expr: &Expr, schema: &DFSchema) -> bool {
    is_float(expr, schema) && decimal(expr).is_none()
}

fn as_double(expr: Expr) -> Expr {
    Expr::Cast(Cast::new(Box::new(expr), DataType::Float64))
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
        // Only comparisons and arithmetic mix number types.
        let compares = matches!(raw.op, Eq | NotEq | Lt | LtEq | Gt | GtEq);
        let computes = matches!(raw.op, Plus | Minus | Multiply | Modulo);
        if !compares && !computes && raw.op != Divide {
            return Ok(PlannerResult::Original(raw));
        }
        let exact = |expr: &Expr| {
            is_decimal(expr, schema)
                || compares && expr.get_type(schema).is_ok_and(|data_type| data_type.is_integer())
        };
        // The result of two literals, at least one of them with a point, is exact.
        let written = |expr: &Expr| decimal(expr).is_some() || is_whole_literal(expr);
        if (computes || raw.op == Divide)
            && written(&raw.left)
            && written(&raw.right)
            && (decimal(&raw.left).is_some() || decimal(&raw.right).is_some())
        {
            raw.left = decimal(&raw.left).unwrap_or(raw.left);
            raw.right = decimal(&raw.right).unwrap_or(raw.right);
        }
        // A literal becomes exact beside an exact operand; a quotient has a function of its own.
        if raw.op == Divide {
            let divides = |expr: &Expr| is_decimal(expr, schema);
            let exact = |expr: &Expr| {
                is_decimal(expr, schema)
                    || expr.get_type(schema).is_ok_and(|data_type| data_type.is_integer())
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
        // A chain of operators nests on the left, so the type of the left operand is computed only where it matters.
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
        let exact = |expr: &Expr| {
            expr.get_type(schema).is_ok_and(|data_type| {
                data_type.is_integer() || matches!(data_type, DataType::Decimal128(..))
            })
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
            // An operand that was a decimal when a CASE or a function was planned may be a double now.
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if (op.is_numerical_operators() || op.supports_propagation())
                    && (is_float(&right, schema) && is_decimal(&left, schema)
                        || is_decimal(&right, schema) && is_float(&left, schema)) =>
            {
                let double = |operand: Expr| {
                    if is_decimal(&operand, schema) { as_double(operand) } else { operand }
                };
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
            // Beside a double a decimal becomes a double: DataFusion would cast both to decimals of 15 places.
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
            // The count of digits must still be a literal once types are coerced, because the result's digits depend on
            // it.
            Expr::ScalarFunction(mut call) if call.func.name() == "round" => {
                let mut changed = false;
                if let [number, Expr::Literal(ScalarValue::Int64(Some(places)), _)] =
                    call.args.as_slice()
                    && is_decimal(number, schema)
                    && let Ok(places) = i32::try_from(*places)
                {
                    call.args[1] = lit(places);
                    changed = true;
                }
                Transformed::new_transformed(Expr::ScalarFunction(call), changed)
            }
            expression => Transformed::no(expression),
        })
    }
}

/// Converts a value that a double or an exact number is compared with; the flag is true if it changed.
fn bound(expr: Expr, of_double: bool, schema: &DFSchema) -> (Expr, bool) {
    if of_double {
        return if is_decimal(&expr, schema) { (as_double(expr), true) } else { (expr, false) };
    }
    match decimal(&expr) {
        Some(exact) => (exact, true),
        None => (expr, false),
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

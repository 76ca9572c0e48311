//! Keeps an expression from being evaluated for rows that a condition excludes.
//!
//! `y <> 0 AND x / y = 1` divides only where y is not 0, and so does `CASE WHEN y = 0 THEN false ELSE x / y = 1 END`.
//! DataFusion evaluates both sides of AND and OR for all rows of a batch, and simplifies such a CASE to an AND.
//! FILTER of an aggregate has the same problem: its argument and its sort keys are evaluated for all rows. [`guarded`] runs
//! after the optimizer and wraps expressions that may fail in a CASE, which evaluates a branch for its own rows only:
//!
//! ```text
//!   a filter     A AND f                  A AND CASE WHEN A THEN f ELSE false END
//!   elsewhere    A AND f                  CASE WHEN A IS NOT FALSE THEN A AND f ELSE false END
//!   elsewhere    A OR f                   CASE WHEN A IS NOT TRUE THEN A OR f ELSE true END
//!   aggregate    sum(f) FILTER (WHERE A)  sum(CASE WHEN A THEN f END) FILTER (WHERE A)
//! ```
//!
//! Invariants:
//! - operands that cannot fail come first, whatever order the optimizer chose; those that can fail keep their order;
//! - a plan in which AND, OR and FILTER have no operand that can fail stays as it is.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{AggregateFunction, Case, Cast, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, disjunction, merge_schema};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Like, LogicalPlan, Operator, lit};
use datafusion::optimizer::AnalyzerRule;

/// Functions that return a value for every argument of their types.
const SAFE: &[&str] = &[
    "btrim",
    "bytea_out",
    "ceil",
    "character_length",
    "coalesce",
    "contains",
    "date_bin",
    "date_part",
    "date_trunc",
    "decimal_to_double",
    "decimal_to_real",
    "ends_with",
    "extract",
    "float_add",
    "float_multiply",
    "float_negate",
    "float_subtract",
    "floor",
    "get_field",
    "greatest",
    "hash64",
    "interval_total",
    "isnan",
    "iszero",
    "least",
    "lower",
    "ltrim",
    "matches_term",
    "md5",
    "now",
    "nullif",
    "nvl",
    "octet_length",
    "rtrim",
    "starts_with",
    "strpos",
    "text_of",
    "text_out",
    "texts_of",
    "texts_out",
    "upper",
    "xxh3",
];

/// Guards expressions that may fail; see the head of the file. Apply it to an optimized plan.
///
/// # Errors
/// Fails if an expression has no type, which does not happen in a valid plan.
pub(crate) fn guarded(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        if matches!(node, LogicalPlan::TableScan(_)) || !is_guarding(&node)? {
            return Ok(Transformed::no(node));
        }
        let schema = merge_schema(&node.inputs());
        let filters = matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Join(_));
        let names = NamePreserver::new(&node);
        node.map_expressions(|expression| {
            let name = names.save(&expression);
            let (expression, changed) = guard(expression, &schema, filters)?;
            let expression = if changed { name.restore(expression) } else { expression };
            Ok(Transformed::new_transformed(expression, changed))
        })
    })
    .data()
}

/// Guards arguments of aggregates by their FILTER as soon as types are known: later, the optimizer may evaluate an
/// argument that two aggregates share before either of them.
#[derive(Debug)]
pub(crate) struct GuardedFilters;

impl AnalyzerRule for GuardedFilters {
    fn name(&self) -> &'static str {
        "guarded_filters"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let guarded = plan.transform_up_with_subqueries(|node| {
            if !matches!(node, LogicalPlan::Aggregate(_) | LogicalPlan::Window(_)) {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            let names = NamePreserver::new(&node);
            node.map_expressions(|expression| {
                let name = names.save(&expression);
                let mut changed = false;
                let expression = expression.transform_up(|part| {
                    let (part, part_changed) = filtered_call(part, &schema)?;
                    changed |= part_changed;
                    Ok(Transformed::new_transformed(part, part_changed))
                })?;
                let expression = expression.data;
                let expression = if changed { name.restore(expression) } else { expression };
                Ok(Transformed::new_transformed(expression, changed))
            })
        })?;
        Ok(guarded.data)
    }
}

/// A call with its arguments and sort keys guarded by its FILTER; the sort keys of a window are those of all rows.
fn filtered_call(call: Expr, schema: &DFSchema) -> Result<(Expr, bool)> {
    let mut changed = false;
    Ok(match call {
        Expr::AggregateFunction(AggregateFunction { func, mut params }) => {
            if let Some(filter) = &params.filter {
                // A sort key beside DISTINCT stays the same as its argument.
                let keys = params.order_by.iter_mut().map(|key| &mut key.expr);
                for operand in params.args.iter_mut().chain(keys) {
                    changed |= filtered(operand, filter, schema)?;
                }
            }
            (Expr::AggregateFunction(AggregateFunction { func, params }), changed)
        }
        Expr::WindowFunction(call) => {
            let WindowFunction { fun, mut params } = *call;
            if let Some(filter) = &params.filter {
                for argument in &mut params.args {
                    changed |= filtered(argument, filter, schema)?;
                }
            }
            (Expr::WindowFunction(Box::new(WindowFunction { fun, params })), changed)
        }
        expression => (expression, false),
    })
}

/// Returns true if a node has an expression in which one part may guard another.
fn is_guarding(node: &LogicalPlan) -> Result<bool> {
    let mut guards = false;
    node.apply_expressions(|expression| {
        guards |= expression.exists(|part| {
            Ok(match part {
                Expr::BinaryExpr(BinaryExpr { op, .. }) => is_logical(*op),
                Expr::AggregateFunction(call) => call.params.filter.is_some(),
                Expr::WindowFunction(call) => call.params.filter.is_some(),
                _ => false,
            })
        })?;
        Ok(if guards { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(guards)
}

fn is_logical(op: Operator) -> bool {
    matches!(op, Operator::And | Operator::Or)
}

/// An expression with its parts guarded, and whether it has changed. Filters treat NULL like false.
fn guard(expression: Expr, schema: &DFSchema, filters: bool) -> Result<(Expr, bool)> {
    match expression {
        Expr::BinaryExpr(BinaryExpr { op, .. }) if is_logical(op) => {
            let mut changed = false;
            let mut parts = Vec::new();
            for part in operands(expression, op) {
                let (part, part_changed) = guard(part, schema, filters)?;
                changed |= part_changed;
                parts.push(part);
            }
            // Operands that cannot fail come first.
            let mut risky = Vec::new();
            let mut safe = Vec::new();
            for part in parts {
                if may_fail(&part, schema)? { risky.push(part) } else { safe.push(part) }
            }
            let joined = |parts: Vec<Expr>| match op {
                Operator::And => conjunction(parts),
                _ => disjunction(parts),
            };
            if risky.is_empty() {
                return Ok((joined(safe).unwrap_or_else(|| lit(op == Operator::And)), changed));
            }
            // Each operand that may fail is guarded by those before it, so the chain is built from its end.
            let Some(mut last) = risky.pop() else { return Ok((lit(true), changed)) };
            while let Some(guard_expr) = risky.pop() {
                last = either(guard_expr, op, last, schema, filters)?;
            }
            let Some(safe) = joined(safe) else { return Ok((last, true)) };
            // The safe part stays a conjunct, so that the optimizer can still use it.
            if filters && op == Operator::And {
                let rest = when(safe.clone(), last, Some(lit(false)));
                return Ok((safe.and(rest), true));
            }
            Ok((either(safe, op, last, schema, filters)?, true))
        }
        Expr::AggregateFunction(AggregateFunction { func, mut params }) => {
            let mut changed = false;
            if let Some(filter) = params.filter.take() {
                let (filter, filter_changed) = guard(*filter, schema, true)?;
                changed |= filter_changed;
                let keys = params.order_by.iter_mut().map(|key| &mut key.expr);
                for operand in params.args.iter_mut().chain(keys) {
                    changed |= filtered(operand, &filter, schema)?;
                }
                params.filter = Some(Box::new(filter));
            }
            let call = Expr::AggregateFunction(AggregateFunction { func, params });
            let (call, inner_changed) = within(call, schema)?;
            Ok((call, changed || inner_changed))
        }
        Expr::WindowFunction(call) => {
            let WindowFunction { fun, mut params } = *call;
            let mut changed = false;
            if let Some(filter) = params.filter.take() {
                let (filter, filter_changed) = guard(*filter, schema, true)?;
                changed |= filter_changed;
                for argument in &mut params.args {
                    changed |= filtered(argument, &filter, schema)?;
                }
                params.filter = Some(Box::new(filter));
            }
            let call = Expr::WindowFunction(Box::new(WindowFunction { fun, params }));
            let (call, inner_changed) = within(call, schema)?;
            Ok((call, changed || inner_changed))
        }
        expression => within(expression, schema),
    }
}

/// Operands of a chain of ANDs, or of ORs, in order.
fn operands(chain: Expr, chain_op: Operator) -> Vec<Expr> {
    let mut operands = Vec::new();
    let mut waiting = vec![chain];
    while let Some(next) = waiting.pop() {
        match next {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if op == chain_op => {
                waiting.push(*right);
                waiting.push(*left);
            }
            operand => operands.push(operand),
        }
    }
    operands
}

/// Guards the parts of an expression whose own operator guards nothing.
fn within(expression: Expr, schema: &DFSchema) -> Result<(Expr, bool)> {
    let mut changed = false;
    let expression = expression.map_children(|part| {
        let (part, part_changed) = guard(part, schema, false)?;
        changed |= part_changed;
        Ok(Transformed::new_transformed(part, part_changed))
    })?;
    Ok((expression.data, changed))
}

/// `first op second`; `second` is evaluated only where `first` does not decide the result.
fn either(
    first: Expr,
    op: Operator,
    second: Expr,
    schema: &DFSchema,
    filters: bool,
) -> Result<Expr> {
    let decided = lit(op != Operator::And);
    let plain = filters || !first.nullable(schema)?;
    Ok(match (op, plain) {
        (Operator::And, true) => when(first, second, Some(decided)),
        (_, true) => when(first, decided, Some(second)),
        (Operator::And, false) => {
            when(first.clone().is_not_false(), first.and(second), Some(decided))
        }
        (_, false) => when(first.clone().is_not_true(), first.or(second), Some(decided)),
    })
}

fn when(condition: Expr, result: Expr, otherwise: Option<Expr>) -> Expr {
    let cases = vec![(Box::new(condition), Box::new(result))];
    Expr::Case(Case::new(None, cases, otherwise.map(Box::new)))
}

/// Evaluates an argument or a sort key only where a filter holds. Returns true if it may fail elsewhere.
fn filtered(argument: &mut Expr, filter: &Expr, schema: &DFSchema) -> Result<bool> {
    // The argument may be guarded already.
    let is_guarded = matches!(&*argument, Expr::Case(Case { expr: None, when_then_expr, .. })
        if when_then_expr.first().is_some_and(|(when, _)| when.as_ref() == filter));
    let fails = !is_guarded && may_fail(argument, schema)?;
    if fails {
        let null = ScalarValue::try_from(argument.get_type(schema)?)?;
        *argument = when(filter.clone(), argument.clone(), Some(lit(null)));
    }
    Ok(fails)
}

/// Returns true if an expression may fail for some rows.
fn may_fail(expression: &Expr, schema: &DFSchema) -> Result<bool> {
    expression.exists(|part| {
        Ok(match part {
            Expr::Cast(Cast { expr, field }) => {
                !matches!(expr.as_ref(), Expr::Literal(..))
                    && !always_fits(&expr.get_type(schema)?, field.data_type())
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
                Operator::Plus | Operator::Minus | Operator::Multiply => {
                    !left.get_type(schema)?.is_floating()
                }
                Operator::Divide | Operator::Modulo => !divides(right),
                Operator::RegexMatch
                | Operator::RegexIMatch
                | Operator::RegexNotMatch
                | Operator::RegexNotIMatch => !matches!(right.as_ref(), Expr::Literal(..)),
                _ => false,
            },
            Expr::Like(Like { pattern, .. }) | Expr::SimilarTo(Like { pattern, .. }) => {
                !matches!(pattern.as_ref(), Expr::Literal(..))
            }
            Expr::ScalarFunction(call) => SAFE.binary_search(&call.func.name()).is_err(),
            Expr::Negative(operand) => !operand.get_type(schema)?.is_floating(),
            _ => false,
        })
    })
}

/// Returns true if every number can be divided by a literal: it is neither 0, nor -1, which overflows for the least
/// integer. Floats can be divided by -1.
fn divides(divisor: &Expr) -> bool {
    let Expr::Literal(value, _) = divisor else { return false };
    match value {
        ScalarValue::Int8(Some(value)) => !matches!(value, 0 | -1),
        ScalarValue::Int16(Some(value)) => !matches!(value, 0 | -1),
        ScalarValue::Int32(Some(value)) => !matches!(value, 0 | -1),
        ScalarValue::Int64(Some(value)) => !matches!(value, 0 | -1),
        ScalarValue::UInt8(Some(value)) => *value != 0,
        ScalarValue::UInt16(Some(value)) => *value != 0,
        ScalarValue::UInt32(Some(value)) => *value != 0,
        ScalarValue::UInt64(Some(value)) => *value != 0,
        ScalarValue::Float32(Some(value)) => *value != 0.0,
        ScalarValue::Float64(Some(value)) => *value != 0.0,
        _ => false,
    }
}

/// Returns true if a cast has a result for every value of a type.
fn always_fits(source: &DataType, target: &DataType) -> bool {
    use DataType::{Boolean, Date32, Decimal128, Null, Timestamp};
    let rank = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    };
    let digits = |data_type: &DataType| {
        let bytes = data_type.primitive_width()?;
        // A byte has less than 2.5 digits.
        u8::try_from(bytes * 5 / 2 + 1).ok()
    };
    match (source, target) {
        (source, target) if source == target => true,
        (Null, _) => true,
        (source, target) if target.is_string() => !source.is_nested(),
        (source, target) if target.is_floating() => source.is_numeric() || *source == Boolean,
        (Boolean, target) if target.is_integer() => true,
        (source, target) if source.is_integer() && target.is_integer() => {
            let widths = source.primitive_width().zip(target.primitive_width());
            let wider =
                widths.is_some_and(|(source_width, target_width)| source_width < target_width);
            wider && (target.is_signed_integer() || source.is_unsigned_integer())
        }
        (source, Decimal128(precision, scale)) if source.is_integer() => digits(source)
            .is_some_and(|digits| i16::from(*precision) - i16::from(*scale) >= i16::from(digits)),
        (Decimal128(source, source_scale), Decimal128(target, target_scale)) => {
            target_scale >= source_scale
                && i16::from(*target) - i16::from(*target_scale)
                    >= i16::from(*source) - i16::from(*source_scale)
        }
        (Timestamp(source, _), Timestamp(target, _)) => rank(target) <= rank(source),
        (Timestamp(..), Date32) => true,
        (DataType::Dictionary(_, values), target) => always_fits(values, target),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_never_fail_are_found() {
        assert!(SAFE.is_sorted());
        assert!(SAFE.binary_search(&"date_trunc").is_ok());
        assert!(SAFE.binary_search(&"checked_add").is_err());
    }

    #[test]
    fn casts_that_fit_are_told_from_others() {
        use DataType::{Decimal128, Float64, Int32, Int64, Timestamp, UInt32, Utf8, Utf8View};
        for (from, to, fits) in [
            (Int32, Int64, true),
            (UInt32, Int64, true),
            (UInt32, Int32, false),
            (Int64, Int32, false),
            (Int64, Float64, true),
            (Float64, Int64, false),
            (Int64, Utf8View, true),
            (Utf8, Int64, false),
            (Int64, Decimal128(21, 0), true),
            (Int64, Decimal128(20, 2), false),
            (Decimal128(10, 2), Decimal128(12, 4), true),
            (Decimal128(10, 2), Decimal128(11, 4), false),
            (Timestamp(TimeUnit::Nanosecond, None), Timestamp(TimeUnit::Second, None), true),
            (Timestamp(TimeUnit::Second, None), Timestamp(TimeUnit::Nanosecond, None), false),
        ] {
            assert_eq!(always_fits(&from, &to), fits, "{from} as {to}");
        }
    }

    #[test]
    fn chains_are_taken_apart_in_order() {
        let named = |name: &str| Expr::Column(datafusion::common::Column::new_unqualified(name));
        let chain = named("a").and(named("b").or(named("c"))).and(named("d").and(named("e")));
        let parts = operands(chain, Operator::And);
        assert_eq!(parts[0], named("a"));
        assert_eq!(parts[1], named("b").or(named("c")));
        assert_eq!(parts[2..], [named("d"), named("e")]);
    }
}

//! Zeros of either sign, and bytes, where DataFusion does not compare them by an operator.
//!
//! `=` and GROUP BY treat -0 as 0, as PostgreSQL does. ORDER BY, windows, `CASE x WHEN` and `nullif` compare the bits
//! of floats, and windows cannot be ordered by bytes:
//!
//! ```text
//!   ORDER BY f                          ORDER BY f + 0, and so within aggregates
//!   SELECT DISTINCT ON (f) ..           SELECT DISTINCT ON (f + 0) ..
//!   OVER (PARTITION BY f ORDER BY f)    OVER (PARTITION BY f + 0 ORDER BY f + 0)
//!   CASE f WHEN g THEN ..               CASE f + 0 WHEN g + 0 THEN ..
//!   nullif(f, g)                        CASE WHEN f = g THEN NULL ELSE f END
//!   OVER (ORDER BY bytes)               OVER (ORDER BY their hexadecimal text), which has the same order; UUIDs too
//! ```
//!
//! To be applied before types are coerced, because coercion refuses frames over bytes.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{
    AggregateFunction, ScalarFunction, WindowFunction, WindowFunctionParams,
};
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Case, Cast, Distinct, DistinctOn, Expr, ExprSchemable, LogicalPlan, Operator, Sort,
    SortExpr, WindowFrameBound, WindowFrameUnits, lit,
};
use datafusion::optimizer::AnalyzerRule;

use crate::bytea::text_of_bytes;
use crate::checked::sql_name;
use crate::error::{FEATURE_NOT_SUPPORTED, SqlError};

/// Compares zeros and bytes as PostgreSQL does; see the head of the file.
#[derive(Debug)]
pub struct EqualZeros;

fn type_of(expr: &Expr, schema: &DFSchema) -> Option<DataType> {
    expr.get_type(schema).ok()
}

/// Adds zero to a float, which turns -0 into 0 and changes nothing else.
fn unsigned_zero(expr: Expr, schema: &DFSchema) -> Expr {
    let zero = match type_of(&expr, schema) {
        Some(DataType::Float64) => ScalarValue::Float64(Some(0.0)),
        Some(DataType::Float32) => ScalarValue::Float32(Some(0.0)),
        _ => return expr,
    };
    if let Expr::Literal(ScalarValue::Float64(Some(value)), _) = expr {
        return lit(value + 0.0);
    }
    Expr::BinaryExpr(BinaryExpr::new(Box::new(expr), Operator::Plus, Box::new(lit(zero))))
}

fn is_float(expr: &Expr, schema: &DFSchema) -> bool {
    type_of(expr, schema).is_some_and(|data_type| data_type.is_floating())
}

/// Rewrites an expression that orders or partitions a window; returns true if it changed.
fn key(expr: &mut Expr, schema: &DFSchema) -> Result<bool> {
    let Some(data_type) = type_of(expr, schema) else { return Ok(false) };
    if data_type.is_floating() {
        *expr = unsigned_zero(expr.clone(), schema);
        return Ok(true);
    }
    if data_type.is_binary() {
        let bytes = match data_type {
            // UUIDs.
            DataType::FixedSizeBinary(_) => {
                Expr::Cast(Cast::new(Box::new(expr.clone()), DataType::BinaryView))
            }
            _ => expr.clone(),
        };
        *expr = text_of_bytes(bytes)?;
        return Ok(true);
    }
    Ok(false)
}

/// Refuses an offset of RANGE that cannot be added to the key. The planner has it as text until types are coerced, and
/// would read the number 5 as five seconds.
fn check_range(params: &WindowFunctionParams, schema: &DFSchema) -> Result<()> {
    let frame = &params.window_frame;
    let [sort] = params.order_by.as_slice() else { return Ok(()) };
    let Some(of_key) = type_of(&sort.expr, schema) else { return Ok(()) };
    if frame.units != WindowFrameUnits::Range {
        return Ok(());
    }
    for bound in [&frame.start_bound, &frame.end_bound] {
        let (WindowFrameBound::Preceding(ScalarValue::Utf8(Some(offset)))
        | WindowFrameBound::Following(ScalarValue::Utf8(Some(offset)))) = bound
        else {
            continue;
        };
        let is_number = offset.trim().parse::<f64>().is_ok();
        let fits = match &of_key {
            key if key.is_integer() => offset.trim().parse::<i64>().is_ok(),
            key if key.is_numeric() => is_number,
            key if key.is_temporal() => !is_number,
            DataType::Null => true,
            _ => false,
        };
        if !fits {
            let kind = if is_number { "a number" } else { "an interval" };
            let message = format!(
                "RANGE with offset PRECEDING/FOLLOWING is not supported for column type {} and an \
                 offset that is {kind}",
                sql_name(&of_key),
            );
            return Err(SqlError::new(FEATURE_NOT_SUPPORTED, message).into());
        }
    }
    Ok(())
}

impl FunctionRewrite for EqualZeros {
    fn name(&self) -> &'static str {
        "equal_zeros"
    }

    fn rewrite(
        &self,
        expression: Expr,
        schema: &DFSchema,
        _: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        Ok(match expression {
            // CASE with an operand compares it with each WHEN.
            Expr::Case(Case { expr: Some(operand), when_then_expr, else_expr })
                if is_float(&operand, schema)
                    || when_then_expr.iter().any(|(when, _)| is_float(when, schema)) =>
            {
                let cases = when_then_expr
                    .into_iter()
                    .map(|(when, result)| (Box::new(unsigned_zero(*when, schema)), result))
                    .collect();
                let operand = Box::new(unsigned_zero(*operand, schema));
                Transformed::yes(Expr::Case(Case::new(Some(operand), cases, else_expr)))
            }
            // `nullif` becomes a comparison by `=`.
            Expr::ScalarFunction(ScalarFunction { func, args })
                if func.name() == "nullif"
                    && args.len() == 2
                    && args.iter().any(|arg| is_float(arg, schema)) =>
            {
                let (value, null_value) = (args[0].clone(), args[1].clone());
                let null = match type_of(&value, schema) {
                    Some(data_type) => lit(ScalarValue::try_from(data_type)?),
                    None => lit(ScalarValue::Null),
                };
                let cases = vec![(Box::new(value.clone().eq(null_value)), Box::new(null))];
                Transformed::yes(Expr::Case(Case::new(None, cases, Some(Box::new(value)))))
            }
            // The keys of aggregates. With DISTINCT they have to be the argument itself.
            Expr::AggregateFunction(AggregateFunction { func, mut params })
                if !params.distinct && !func.supports_within_group_clause() =>
            {
                let changed = order_zeros(&mut params.order_by, schema);
                let call = Expr::AggregateFunction(AggregateFunction { func, params });
                Transformed::new_transformed(call, changed)
            }
            // The keys of windows.
            Expr::WindowFunction(call) => {
                let WindowFunction { fun, mut params } = *call;
                check_range(&params, schema)?;
                let mut changed = false;
                for expr in &mut params.partition_by {
                    changed |= key(expr, schema)?;
                }
                for sort in &mut params.order_by {
                    changed |= key(&mut sort.expr, schema)?;
                }
                let call = Expr::WindowFunction(Box::new(WindowFunction { fun, params }));
                Transformed::new_transformed(call, changed)
            }
            expression => Transformed::no(expression),
        })
    }
}

/// Turns -0 into 0 in the keys of an order that are floats; returns true if there are any.
fn order_zeros(keys: &mut [SortExpr], schema: &DFSchema) -> bool {
    let mut changed = false;
    for key in keys {
        if is_float(&key.expr, schema) {
            key.expr = unsigned_zero(key.expr.clone(), schema);
            changed = true;
        }
    }
    changed
}

/// Orders queries by zeros of either sign as PostgreSQL does; see the head of the file.
#[derive(Debug)]
pub struct OrderedZeros;

impl AnalyzerRule for OrderedZeros {
    fn name(&self) -> &'static str {
        "ordered_zeros"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let ordered = plan.transform_up_with_subqueries(|node| {
            let schema = merge_schema(&node.inputs());
            Ok(match node {
                LogicalPlan::Sort(Sort { mut expr, input, fetch }) => {
                    let changed = order_zeros(&mut expr, &schema);
                    let sort = LogicalPlan::Sort(Sort { expr, input, fetch });
                    Transformed::new_transformed(sort, changed)
                }
                LogicalPlan::Distinct(Distinct::On(DistinctOn {
                    mut on_expr,
                    select_expr,
                    mut sort_expr,
                    input,
                    schema: own_schema,
                })) => {
                    let mut changed = false;
                    for key in &mut on_expr {
                        if is_float(key, &schema) {
                            *key = unsigned_zero(key.clone(), &schema);
                            changed = true;
                        }
                    }
                    if let Some(keys) = &mut sort_expr {
                        changed |= order_zeros(keys, &schema);
                    }
                    let distinct = if changed {
                        DistinctOn::try_new(on_expr, select_expr, sort_expr, input)?
                    } else {
                        DistinctOn { on_expr, select_expr, sort_expr, input, schema: own_schema }
                    };
                    let distinct = LogicalPlan::Distinct(Distinct::On(distinct));
                    Transformed::new_transformed(distinct, changed)
                }
                node => Transformed::no(node),
            })
        })?;
        Ok(ordered.data)
    }
}

//! Zeros of either sign, and bytes, where they are compared otherwise than by an operator.
//!
//! `=` and GROUP BY take -0 for 0, as PostgreSQL does. ORDER BY, windows, `CASE x WHEN` and `nullif` look at the bits of
//! floats, and windows cannot be ordered by bytes:
//!
//! ```text
//!   ORDER BY f                          ORDER BY f + 0, and so within aggregates
//!   SELECT DISTINCT ON (f) ..           SELECT DISTINCT ON (f + 0) ..
//!   OVER (PARTITION BY f ORDER BY f)    OVER (PARTITION BY f + 0 ORDER BY f + 0)
//!   CASE f WHEN g THEN ..               CASE f + 0 WHEN g + 0 THEN ..
//!   nullif(f, g)                        CASE WHEN f = g THEN NULL ELSE f END
//!   OVER (ORDER BY bytes)               OVER (ORDER BY their hexadecimal text), which has the same order
//! ```
//!
//! To be applied before types are coerced: frames over bytes are refused then.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction, WindowFunction};
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Case, Distinct, DistinctOn, Expr, ExprSchemable, LogicalPlan, Operator, Sort,
    SortExpr, lit,
};
use datafusion::optimizer::AnalyzerRule;

use crate::bytea::text_of_bytes;

/// Compares zeros and bytes as PostgreSQL does; see the head of the file.
#[derive(Debug)]
pub struct EqualZeros;

fn type_of(of: &Expr, schema: &DFSchema) -> Option<DataType> {
    of.get_type(schema).ok()
}

/// A float to which zero is added, which makes 0 of -0 and changes nothing else.
fn unsigned_zero(of: Expr, schema: &DFSchema) -> Expr {
    let zero = match type_of(&of, schema) {
        Some(DataType::Float64) => ScalarValue::Float64(Some(0.0)),
        Some(DataType::Float32) => ScalarValue::Float32(Some(0.0)),
        _ => return of,
    };
    if let Expr::Literal(ScalarValue::Float64(Some(value)), _) = of {
        return lit(value + 0.0);
    }
    Expr::BinaryExpr(BinaryExpr::new(Box::new(of), Operator::Plus, Box::new(lit(zero))))
}

fn is_float(of: &Expr, schema: &DFSchema) -> bool {
    type_of(of, schema).is_some_and(|of| of.is_floating())
}

/// What a window is ordered or divided by, and whether it has changed.
fn key(of: &mut Expr, schema: &DFSchema) -> Result<bool> {
    let Some(data_type) = type_of(of, schema) else { return Ok(false) };
    if data_type.is_floating() {
        *of = unsigned_zero(of.clone(), schema);
        return Ok(true);
    }
    if data_type.is_binary() {
        *of = text_of_bytes(of.clone())?;
        return Ok(true);
    }
    Ok(false)
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
            Expr::Case(Case { expr: Some(of), when_then_expr, else_expr })
                if is_float(&of, schema)
                    || when_then_expr.iter().any(|(when, _)| is_float(when, schema)) =>
            {
                let cases = when_then_expr
                    .into_iter()
                    .map(|(when, then)| (Box::new(unsigned_zero(*when, schema)), then))
                    .collect();
                let of = Box::new(unsigned_zero(*of, schema));
                Transformed::yes(Expr::Case(Case::new(Some(of), cases, else_expr)))
            }
            Expr::ScalarFunction(ScalarFunction { func, args })
                if func.name() == "nullif"
                    && args.len() == 2
                    && args.iter().any(|arg| is_float(arg, schema)) =>
            {
                let (of, other) = (args[0].clone(), args[1].clone());
                let null = match type_of(&of, schema) {
                    Some(data_type) => lit(ScalarValue::try_from(data_type)?),
                    None => lit(ScalarValue::Null),
                };
                let cases = vec![(Box::new(of.clone().eq(other)), Box::new(null))];
                Transformed::yes(Expr::Case(Case::new(None, cases, Some(Box::new(of)))))
            }
            // With DISTINCT the order has to be that of the argument itself.
            Expr::AggregateFunction(AggregateFunction { func, mut params })
                if !params.distinct && !func.supports_within_group_clause() =>
            {
                let changed = order_zeros(&mut params.order_by, schema);
                let call = Expr::AggregateFunction(AggregateFunction { func, params });
                Transformed::new_transformed(call, changed)
            }
            Expr::WindowFunction(call) => {
                let WindowFunction { fun, mut params } = *call;
                let mut changed = false;
                for of in &mut params.partition_by {
                    changed |= key(of, schema)?;
                }
                for of in &mut params.order_by {
                    changed |= key(&mut of.expr, schema)?;
                }
                let call = Expr::WindowFunction(Box::new(WindowFunction { fun, params }));
                Transformed::new_transformed(call, changed)
            }
            other => Transformed::no(other),
        })
    }
}

/// Whether keys of an order are floats, of which zero is made 0.
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
                    schema: of,
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
                    let first = if changed {
                        DistinctOn::try_new(on_expr, select_expr, sort_expr, input)?
                    } else {
                        DistinctOn { on_expr, select_expr, sort_expr, input, schema: of }
                    };
                    let first = LogicalPlan::Distinct(Distinct::On(first));
                    Transformed::new_transformed(first, changed)
                }
                other => Transformed::no(other),
            })
        })?;
        Ok(ordered.data)
    }
}

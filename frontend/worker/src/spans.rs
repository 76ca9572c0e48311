//! Texts that are compared with spans of time.
//!
//! `now() - ts < '1 day'` compares a difference of times with a literal that has no type yet. PostgreSQL reads it as an
//! interval; DataFusion knows no type that holds both. [`IntervalTexts`] says what the literal is.

use arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Between, Cast, Expr, ExprSchemable};
use datafusion::sql::sqlparser::ast::BinaryOperator;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// Reads texts beside spans of time as intervals; to be applied before types are coerced.
#[derive(Debug)]
pub struct IntervalTexts;

fn is_span(of: &Expr, schema: &DFSchema) -> bool {
    of.get_type(schema).is_ok_and(|of| matches!(of, DataType::Duration(_) | DataType::Interval(_)))
}

fn is_text(of: &Expr) -> bool {
    matches!(of, Expr::Literal(value, _) if value.data_type().is_string())
}

/// A text as an interval, and whether it was one.
fn read(of: Expr) -> (Expr, bool) {
    if !is_text(&of) {
        return (of, false);
    }
    (Expr::Cast(Cast::new(Box::new(of), INTERVAL)), true)
}

impl ExprPlanner for IntervalTexts {
    fn plan_binary_op(
        &self,
        mut raw: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
        if matches!(raw.op, Eq | NotEq | Lt | LtEq | Gt | GtEq) {
            if is_text(&raw.right) && is_span(&raw.left, schema) {
                raw.right = read(raw.right).0;
            } else if is_text(&raw.left) && is_span(&raw.right, schema) {
                raw.left = read(raw.left).0;
            }
        }
        Ok(PlannerResult::Original(raw))
    }
}

impl FunctionRewrite for IntervalTexts {
    fn name(&self) -> &'static str {
        "interval_texts"
    }

    fn rewrite(
        &self,
        expression: Expr,
        schema: &DFSchema,
        _: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        Ok(match expression {
            Expr::Between(Between { expr, negated, low, high }) if is_span(&expr, schema) => {
                let ((low, low_read), (high, high_read)) = (read(*low), read(*high));
                let between = Between::new(expr, negated, Box::new(low), Box::new(high));
                Transformed::new_transformed(Expr::Between(between), low_read || high_read)
            }
            Expr::InList(InList { expr, list, negated }) if is_span(&expr, schema) => {
                let members = list.into_iter().map(|member| read(member).0).collect();
                Transformed::yes(Expr::InList(InList::new(expr, members, negated)))
            }
            other => Transformed::no(other),
        })
    }
}

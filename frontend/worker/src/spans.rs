//! Texts that are compared with intervals and differences of times.
//!
//! `now() - ts < '1 day'` compares a difference of times with a literal without a type. PostgreSQL reads the literal as
//! an interval; DataFusion finds no common type. [`IntervalTexts`] casts the literal.

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

/// Casts texts beside intervals and differences of times to intervals; to be applied before types are coerced.
#[derive(Debug)]
pub struct IntervalTexts;

fn is_span(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema)
        .is_ok_and(|data_type| matches!(data_type, DataType::Duration(_) | DataType::Interval(_)))
}

fn is_text(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(value, _) if value.data_type().is_string())
}

/// Casts a literal text to an interval; the flag is true if it was one.
fn read(expr: Expr) -> (Expr, bool) {
    if !is_text(&expr) {
        return (expr, false);
    }
    (Expr::Cast(Cast::new(Box::new(expr), INTERVAL)), true)
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
            expression => Transformed::no(expression),
        })
    }
}

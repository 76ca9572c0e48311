//! `now()` where a time with a zone is wanted.
//!
//! `now()` is a TIMESTAMP, in UTC, as the times of events are: `ts > now() - INTERVAL '1 hour'` means the same in every
//! session. Made a TIMESTAMPTZ (by a cast, or beside a column of that type), a TIMESTAMP is read in the session's time
//! zone, which `now()` is not in: it would be another instant by the zone's offset. Here what is made of `now()` alone is
//! told to be in UTC before it is cast.
//!
//! Invariant: without a cast to TIMESTAMPTZ, and where a column or another function takes part, nothing is changed.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable};

/// See the head of the file; to be applied once types are coerced.
#[derive(Debug)]
pub(crate) struct NowInUtc;

fn is_now(expression: &Expr) -> bool {
    matches!(expression, Expr::ScalarFunction(call) if call.func.name() == "now")
}

/// Whether it is `now()`, maybe with an interval more or less.
fn is_of_now(expression: &Expr) -> bool {
    let mut found = false;
    let walked = expression.apply(|part| {
        found |= is_now(part);
        // Other functions take part as they were planned, for a time without a zone.
        let is_given = is_now(part)
            || matches!(
                part,
                Expr::BinaryExpr(_) | Expr::Literal(..) | Expr::Cast(_) | Expr::Negative(_)
            );
        Ok(if is_given { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    found && matches!(walked, Ok(TreeNodeRecursion::Continue))
}

impl FunctionRewrite for NowInUtc {
    fn name(&self) -> &'static str {
        "now_in_utc"
    }

    fn rewrite(
        &self,
        expression: Expr,
        schema: &DFSchema,
        _: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        let Expr::Cast(Cast { expr, field }) = expression else {
            return Ok(Transformed::no(expression));
        };
        let zoned = matches!(field.data_type(), DataType::Timestamp(_, Some(_)));
        let plain = || matches!(expr.get_type(schema), Ok(DataType::Timestamp(_, None)));
        if !zoned || !is_of_now(&expr) || !plain() {
            return Ok(Transformed::no(Expr::Cast(Cast { expr, field })));
        }
        let utc = DataType::Timestamp(TimeUnit::Nanosecond, Some("+00:00".into()));
        let in_utc = expr.transform_up(|part| {
            if !is_now(&part) {
                return Ok(Transformed::no(part));
            }
            Ok(Transformed::yes(Expr::Cast(Cast::new(Box::new(part), utc.clone()))))
        })?;
        Ok(Transformed::yes(Expr::Cast(Cast { expr: Box::new(in_utc.data), field })))
    }
}

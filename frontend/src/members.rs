//! `x = ANY (array)` with a constant array.
//!
//! The planner searches the array for each row, with a function that does not support every type and that scans
//! cannot use for pruning. With a parameter or a literal it becomes `x IN (..)`, which is pruned by.
//!
//! Invariant: NULL means the same as in IN and in PostgreSQL: an array with NULLs has an unknown member.

use arrow::array::{Array, ArrayRef};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, lit};

/// Maximum members of an array that becomes a list; longer ones are searched for each row.
const MEMBERS_MAX: usize = 10_000;

/// Rewrites constant arrays to lists; see the head of the file. Apply it once types are coerced.
#[derive(Debug)]
pub(crate) struct KnownMembers;

/// Value of a literal, possibly below a cast.
fn known(expr: &Expr) -> Result<Option<ScalarValue>> {
    Ok(match expr {
        Expr::Literal(value, _) => Some(value.clone()),
        Expr::Cast(Cast { expr: operand, field }) => {
            known(operand)?.map(|value| value.cast_to(field.data_type())).transpose()?
        }
        _ => None,
    })
}

/// Members of a list value.
fn members(list: &ScalarValue) -> Option<ArrayRef> {
    Some(match list {
        ScalarValue::List(list) if list.as_ref().is_valid(0) => list.value(0),
        ScalarValue::LargeList(list) if list.as_ref().is_valid(0) => list.value(0),
        ScalarValue::FixedSizeList(list) if list.as_ref().is_valid(0) => list.value(0),
        _ => return None,
    })
}

impl FunctionRewrite for KnownMembers {
    fn name(&self) -> &'static str {
        "known_members"
    }

    fn rewrite(
        &self,
        expression: Expr,
        schema: &DFSchema,
        _: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        let Expr::ScalarFunction(call) = &expression else {
            return Ok(Transformed::no(expression));
        };
        let ("array_has", [array, member]) = (call.func.name(), call.args.as_slice()) else {
            return Ok(Transformed::no(expression));
        };
        // Only constant arrays of moderate size become lists.
        let Some(list) = known(array)? else { return Ok(Transformed::no(expression)) };
        if list.is_null() {
            return Ok(Transformed::yes(lit(ScalarValue::Boolean(None))));
        }
        let Some(members) = members(&list).filter(|members| members.len() <= MEMBERS_MAX) else {
            return Ok(Transformed::no(expression));
        };
        if members.is_empty() {
            return Ok(Transformed::yes(lit(false)));
        }
        // The members are compared in the type of the operand.
        let data_type = member.get_type(schema)?;
        let literals = (0..members.len()).map(|position| {
            let value = ScalarValue::try_from_array(&members, position)?;
            Ok(lit(if value.data_type() == data_type {
                value
            } else {
                value.cast_to(&data_type)?
            }))
        });
        let literals = literals.collect::<Result<Vec<_>>>()?;
        let list = InList::new(Box::new(member.clone()), literals, false);
        Ok(Transformed::yes(Expr::InList(list)))
    }
}

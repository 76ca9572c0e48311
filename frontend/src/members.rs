//! `x = ANY (array)` where the array is known.
//!
//! The planner looks through the array in each row, by a function that knows not every type, and no scan knows what it
//! means. Of a parameter or a literal it is `x IN (..)`, which is pruned by.
//!
//! Invariant: NULL is what it is in IN, as in PostgreSQL: an array with NULLs has an unknown member.

use arrow::array::{Array, ArrayRef};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, lit};

/// Members of an array that become a list; a longer one is looked through.
const MEMBERS_MAX: usize = 10_000;

/// See the head of the file; to be applied once types are coerced.
#[derive(Debug)]
pub(crate) struct KnownMembers;

/// The value of a literal, maybe cast.
fn known(of: &Expr) -> Result<Option<ScalarValue>> {
    Ok(match of {
        Expr::Literal(value, _) => Some(value.clone()),
        Expr::Cast(Cast { expr, field }) => {
            known(expr)?.map(|value| value.cast_to(field.data_type())).transpose()?
        }
        _ => None,
    })
}

/// The members of a list.
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
        let of = member.get_type(schema)?;
        let literals = (0..members.len()).map(|at| {
            let value = ScalarValue::try_from_array(&members, at)?;
            Ok(lit(if value.data_type() == of { value } else { value.cast_to(&of)? }))
        });
        let literals = literals.collect::<Result<Vec<_>>>()?;
        let list = InList::new(Box::new(member.clone()), literals, false);
        Ok(Transformed::yes(Expr::InList(list)))
    }
}

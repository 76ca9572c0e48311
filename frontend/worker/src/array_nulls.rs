//! NULL elements of arrays, as in PostgreSQL.
//!
//! ```text
//!   a @> b, array_has_all(a, b)   false if b has a NULL element, which equals nothing
//!   a && b, array_has_any(a, b)   NULL elements of b are in no array
//!   array_remove(a, NULL)         removes NULL elements
//!   a < b, a >= b                 a NULL element is greater than every other one, as in ORDER BY
//! ```
//!
//! DataFusion's functions take NULL for a value that equals itself, and its comparisons for the smallest one. `=` and
//! `<>` are as in PostgreSQL.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, make_comparator};
use arrow::buffer::NullBuffer;
use arrow::compute::SortOptions;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::{BinaryExpr, Case, Expr, ExprSchemable, Operator, ScalarUDF, lit};

use crate::functions::REGISTRY;
use crate::plain::Plain;

/// Name of the function that compares arrays.
const ORDER: &str = "array_order";

/// The function to register, `array_order`.
pub(crate) fn function() -> ScalarUDF {
    COMPARED.function()
}

/// `array_order(a, b)`: -1, 0 or 1, as the first array is less than, equal to or greater than the second one.
static COMPARED: Plain = Plain {
    name: ORDER,
    takes: |types| match types {
        [left @ DataType::List(_), right @ DataType::List(_)] => {
            let common = comparison_coercion(left, right)?;
            Some(vec![common.clone(), common])
        }
        _ => None,
    },
    gives: |_| DataType::Int64,
    run: |arguments| Ok(Arc::new(orders(&arguments[0], &arguments[1])?)),
};

fn orders(left: &ArrayRef, right: &ArrayRef) -> Result<Int64Array> {
    let options = SortOptions { descending: false, nulls_first: false };
    let compare = make_comparator(left.as_ref(), right.as_ref(), options)?;
    let nulls = NullBuffer::union(left.nulls(), right.nulls());
    let order = |row: usize| {
        let is_known = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        is_known.then(|| match compare(row, row) {
            Ordering::Less => -1_i64,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        })
    };
    Ok((0..left.len()).map(order).collect())
}

/// Gives NULL elements PostgreSQL's meaning; to be applied before types are coerced, after texts of arrays are read.
#[derive(Debug)]
pub struct ArrayNulls;

impl FunctionRewrite for ArrayNulls {
    fn name(&self) -> &'static str {
        "array_nulls"
    }

    fn rewrite(
        &self,
        expression: Expr,
        schema: &DFSchema,
        _: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        use Operator::{Gt, GtEq, Lt, LtEq};
        match expression {
            Expr::BinaryExpr(BinaryExpr { left, op: op @ (Lt | LtEq | Gt | GtEq), right })
                if is_array(&left, schema) && is_array(&right, schema) =>
            {
                let order = call(ORDER, vec![*left, *right])?;
                let compared = BinaryExpr::new(Box::new(order), op, Box::new(lit(0_i64)));
                Ok(Transformed::yes(Expr::BinaryExpr(compared)))
            }
            Expr::ScalarFunction(function) => by_elements(function, schema),
            expression => Ok(Transformed::no(expression)),
        }
    }
}

/// A call of a function that looks for elements, with NULL elements left out.
fn by_elements(function: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let (name, arguments) = (function.func.name(), function.args.as_slice());
    let changed = match (name, arguments) {
        ("array_has_all", [array, part]) if may_have_nulls(part) && is_array(array, schema) => {
            let position = call("array_position", vec![part.clone(), lit(ScalarValue::Null)])?;
            let contains = Expr::ScalarFunction(function.clone());
            // Of an array that is NULL nothing is known, whatever the part has.
            let is_unknown = array.clone().is_null().and(lit(ScalarValue::Boolean(None)));
            Some(contains.and(position.is_null().or(is_unknown)))
        }
        ("array_has_any", [array, other])
            if may_have_nulls(array) && may_have_nulls(other) && is_array(other, schema) =>
        {
            let elements = call("array_compact", vec![other.clone()])?;
            Some(call(name, vec![array.clone(), elements])?)
        }
        ("array_remove" | "array_remove_all", [array, Expr::Literal(element, _)])
            if element.is_null() =>
        {
            Some(call("array_compact", vec![array.clone()])?)
        }
        ("array_remove" | "array_remove_all", [array, element])
            if !matches!(element, Expr::Literal(..)) && element.nullable(schema)? =>
        {
            let elements = call("array_compact", vec![array.clone()])?;
            let is_null = Box::new(element.clone().is_null());
            let removed = Box::new(Expr::ScalarFunction(function.clone()));
            Some(Expr::Case(Case::new(None, vec![(is_null, Box::new(elements))], Some(removed))))
        }
        _ => None,
    };
    Ok(match changed {
        Some(expression) => Transformed::yes(expression),
        None => Transformed::no(Expr::ScalarFunction(function)),
    })
}

fn is_array(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::List(_)))
}

/// Returns false for arrays of literals without NULL, and for the results of the rewrite.
fn may_have_nulls(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(ScalarValue::List(list), _) => list.values().null_count() > 0,
        Expr::ScalarFunction(made) if made.func.name() == "make_array" => {
            let is_value =
                |item: &Expr| matches!(item, Expr::Literal(value, _) if !value.is_null());
            !made.args.iter().all(is_value)
        }
        Expr::ScalarFunction(made) => made.func.name() != "array_compact",
        _ => true,
    }
}

fn call(name: &str, arguments: Vec<Expr>) -> Result<Expr> {
    let Some(function) = REGISTRY.scalar.get(name) else {
        return exec_err!("{name} is not registered");
    };
    Ok(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), arguments)))
}

#[cfg(test)]
mod tests {
    use arrow::array::ListArray;
    use arrow::datatypes::Int32Type;

    use super::*;

    #[test]
    fn a_null_element_is_greater_than_every_other_one() {
        let lists = |values: Vec<Option<Vec<Option<i32>>>>| -> ArrayRef {
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(values))
        };
        let (one, null) = (Some(vec![Some(1)]), Some(vec![None]));
        let longer = Some(vec![Some(1), None]);
        let left = lists(vec![one.clone(), null.clone(), null.clone(), longer, None]);
        let right = lists(vec![null.clone(), one.clone(), null, one.clone(), one]);
        let orders: Vec<_> = orders(&left, &right).unwrap().iter().collect();
        assert_eq!(orders, [Some(-1), Some(1), Some(0), Some(1), None]);
    }
}

//! `only_row(rows, value)`: the value of a subquery that has at most one row.
//!
//! A subquery that is an expression must return at most one row for each row of its outer query. Where it became a
//! join, its rows are counted beside their value, and a second row is an error with SQLSTATE 21000, as in PostgreSQL.

use std::sync::Arc;

use arrow::array::AsArray;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::error::SqlError;
use crate::functions::REGISTRY;

const NAME: &str = "only_row";
/// A subquery returned more than one row.
const CARDINALITY_VIOLATION: &str = "21000";

/// The function to register.
pub(crate) fn function() -> ScalarUDF {
    // Stable, so that a call on constants does not fail during planning.
    ScalarUDF::from(OnlyRow { signature: Signature::any(2, Volatility::Stable) })
}

/// Returns a call of the function.
///
/// # Errors
/// If the function is not registered.
pub fn only_row(rows: Expr, value: Expr) -> Result<Expr> {
    let Some(function) = REGISTRY.scalar.get(NAME) else {
        return plan_err!("{NAME} is not registered");
    };
    let call = ScalarFunction::new_udf(Arc::clone(function), vec![rows, value]);
    Ok(Expr::ScalarFunction(call))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OnlyRow {
    signature: Signature,
}

impl ScalarUDFImpl for OnlyRow {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [rows, value] if rows.is_integer() => Ok(value.clone()),
            _ => exec_err!("{NAME} takes a number of rows and a value, not {types:?}"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [rows, value] = args.args.as_slice() else {
            return exec_err!("{NAME} takes two arguments");
        };
        let rows = cast(&rows.to_array(args.number_rows)?, &DataType::Int64)?;
        if rows.as_primitive::<Int64Type>().iter().flatten().any(|rows| rows > 1) {
            let message = "more than one row returned by a subquery used as an expression";
            return Err(SqlError::new(CARDINALITY_VIOLATION, message).into());
        }
        Ok(value.clone())
    }
}

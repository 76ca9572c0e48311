//! `kept_apart(value, text)`: returns its first argument under a unique name.
//!
//! DataFusion names a cast after the expression that is cast, and refuses to group by both. A call of this function has
//! a name of its own, which its constant second argument makes unique; simplification of the plan removes the call.

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

/// The name of the function.
pub const NAME: &str = "kept_apart";

/// The function to register.
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(Apart { signature: Signature::any(2, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Apart {
    signature: Signature,
}

impl ScalarUDFImpl for Apart {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [value, _] => Ok(value.clone()),
            _ => exec_err!("{NAME} takes two arguments"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match args.arg_fields {
            [field, _] => Ok(field.as_ref().clone().with_name(NAME).into()),
            _ => exec_err!("{NAME} takes two arguments"),
        }
    }

    fn simplify(&self, args: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        match <[Expr; 2]>::try_from(args) {
            Ok([value, _]) => Ok(ExprSimplifyResult::Simplified(value)),
            Err(args) => Ok(ExprSimplifyResult::Original(args)),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(value) => Ok(value),
            None => exec_err!("{NAME} takes two arguments"),
        }
    }
}

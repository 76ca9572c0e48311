//! A function that gives back what it is given, under a name that tells it from others.
//!
//! DataFusion calls a cast by the name of what is cast, and refuses to group by both. Behind this function, whose second
//! argument is any constant text, each has a name; it is gone when a plan has been simplified.

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

/// The function.
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
            [of, _] => Ok(of.clone()),
            _ => exec_err!("{NAME} takes two arguments"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match args.arg_fields {
            [of, _] => Ok(of.as_ref().clone().with_name(NAME).into()),
            _ => exec_err!("{NAME} takes two arguments"),
        }
    }

    fn simplify(&self, args: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        match <[Expr; 2]>::try_from(args) {
            Ok([of, _]) => Ok(ExprSimplifyResult::Simplified(of)),
            Err(args) => Ok(ExprSimplifyResult::Original(args)),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(of) => Ok(of),
            None => exec_err!("{NAME} takes two arguments"),
        }
    }
}

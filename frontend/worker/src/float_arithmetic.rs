//! Arithmetic of floats with one NaN.
//!
//! PostgreSQL's NaN equals itself and is greater than any number. DataFusion compares floats in the total order, in
//! which a NaN with a sign is another value, and the least one. A minus before NaN sets its sign, and so do processors
//! for undefined results such as `Infinity - Infinity`. Once types are known, [`OneNan`] replaces `+`, `-` and `*` of
//! floats and their unary minus by functions that clear the sign of each NaN; the functions for `/` and `%` do so too
//! (`float_division.rs`).
//!
//! Invariant: column names and results other than NaN stay the same.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::kernels::numeric;
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use arrow::error::ArrowError;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, lit,
};
use datafusion::physical_expr_common::datum::apply;

use crate::functions::REGISTRY;

const OPERATIONS: [Operation; 4] =
    [Operation::Add, Operation::Subtract, Operation::Multiply, Operation::Negate];

/// Functions that replace operators.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    OPERATIONS.into_iter().map(|operation| {
        let signature = Signature::any(operation.arguments(), Volatility::Immutable);
        ScalarUDF::from(Arithmetic { operation, signature })
    })
}

/// Clears the sign of each NaN; values of other types stay as they are.
pub(crate) fn with_one_nan(floats: ArrayRef) -> ArrayRef {
    match floats.data_type() {
        DataType::Float64 => {
            let values = floats.as_primitive::<Float64Type>();
            if !values.values().iter().fold(false, |has_nan, value| has_nan | value.is_nan()) {
                return floats;
            }
            let unsigned = |value: f64| if value.is_nan() { f64::NAN } else { value };
            Arc::new(values.unary::<_, Float64Type>(unsigned))
        }
        DataType::Float32 => {
            let values = floats.as_primitive::<Float32Type>();
            if !values.values().iter().fold(false, |has_nan, value| has_nan | value.is_nan()) {
                return floats;
            }
            let unsigned = |value: f32| if value.is_nan() { f32::NAN } else { value };
            Arc::new(values.unary::<_, Float32Type>(unsigned))
        }
        _ => floats,
    }
}

/// The operator that a function replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Negate,
}

impl Operation {
    fn of(operator: Operator) -> Option<Self> {
        match operator {
            Operator::Plus => Some(Self::Add),
            Operator::Minus => Some(Self::Subtract),
            Operator::Multiply => Some(Self::Multiply),
            _ => None,
        }
    }

    /// Name of the function; nodes know it too.
    fn name(self) -> &'static str {
        match self {
            Self::Add => "float_add",
            Self::Subtract => "float_subtract",
            Self::Multiply => "float_multiply",
            Self::Negate => "float_negate",
        }
    }

    /// Number of arguments.
    fn arguments(self) -> usize {
        if self == Self::Negate { 1 } else { 2 }
    }
}

/// A function that replaces an operator.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Arithmetic {
    operation: Operation,
    signature: Signature,
}

impl ScalarUDFImpl for Arithmetic {
    fn name(&self) -> &str {
        self.operation.name()
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        let sign = match (self.operation, arguments) {
            (Operation::Negate, [operand]) => {
                return Ok(format!("(- {})", operand.schema_name()));
            }
            (Operation::Add, [_, _]) => '+',
            (Operation::Subtract, [_, _]) => '-',
            (Operation::Multiply, [_, _]) => '*',
            (operation, _) => {
                return exec_err!("{} takes {} arguments", operation.name(), operation.arguments());
            }
        };
        Ok(format!("{} {sign} {}", arguments[0].schema_name(), arguments[1].schema_name()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [first, rest @ ..] if is_float(first) && rest.iter().all(|other| other == first) => {
                Ok(first.clone())
            }
            _ => exec_err!("{} takes floats of one type, not {types:?}", self.name()),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let one_nan = |results: Result<ArrayRef, ArrowError>| results.map(with_one_nan);
        match (self.operation, args.args.as_slice()) {
            (Operation::Add, [a, b]) => apply(a, b, |a, b| one_nan(numeric::add(a, b))),
            (Operation::Subtract, [a, b]) => apply(a, b, |a, b| one_nan(numeric::sub(a, b))),
            (Operation::Multiply, [a, b]) => apply(a, b, |a, b| one_nan(numeric::mul(a, b))),
            (Operation::Negate, [ColumnarValue::Array(operand)]) => {
                Ok(ColumnarValue::Array(with_one_nan(numeric::neg(operand)?)))
            }
            (Operation::Negate, [ColumnarValue::Scalar(operand)]) => {
                let negated = with_one_nan(numeric::neg(&operand.to_array()?)?);
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&negated, 0)?))
            }
            (operation, _) => {
                exec_err!("{} takes {} arguments", operation.name(), operation.arguments())
            }
        }
    }
}

fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float32 | DataType::Float64)
}

/// Replaces operators by the functions; to be applied once types are coerced.
#[derive(Debug)]
pub struct OneNan;

impl FunctionRewrite for OneNan {
    fn name(&self) -> &'static str {
        "one_nan"
    }

    fn rewrite(
        &self,
        expression: Expr,
        schema: &DFSchema,
        _: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        // An expression without a type of its own (a lambda's variable) stays as it is.
        let float = |expr: &Expr| expr.get_type(schema).is_ok_and(|data_type| is_float(&data_type));
        let (operation, arguments) = match expression {
            // A chain of operators nests on the left: the right operand is cheap to examine.
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match Operation::of(op) {
                Some(operation) if float(&right) && float(&left) => {
                    (operation, vec![*left, *right])
                }
                _ => {
                    let same = BinaryExpr { left, op, right };
                    return Ok(Transformed::no(Expr::BinaryExpr(same)));
                }
            },
            Expr::Negative(operand) => match *operand {
                Expr::Literal(ScalarValue::Float64(Some(value)), _) if !value.is_nan() => {
                    return Ok(Transformed::yes(lit(-value)));
                }
                operand if float(&operand) => (Operation::Negate, vec![operand]),
                operand => return Ok(Transformed::no(Expr::Negative(Box::new(operand)))),
            },
            expression => return Ok(Transformed::no(expression)),
        };
        let Some(function) = REGISTRY.scalar.get(operation.name()) else {
            return exec_err!("{} is not registered", operation.name());
        };
        let call = ScalarFunction::new_udf(Arc::clone(function), arguments);
        Ok(Transformed::yes(Expr::ScalarFunction(call)))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float32Array, Float64Array};

    use super::*;

    #[test]
    fn no_nan_has_a_sign() {
        let one = |value: f64| {
            let made = with_one_nan(Arc::new(Float64Array::from(vec![Some(value), None])));
            assert!(made.is_null(1));
            made.as_primitive::<Float64Type>().value(0).to_bits()
        };
        for value in [0.0, -0.0, 1.5, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(one(value), value.to_bits(), "{value}");
        }
        let infinite = std::hint::black_box(f64::INFINITY);
        for nan in [f64::NAN, -f64::NAN, infinite - infinite, infinite * 0.0] {
            assert_eq!(one(nan), f64::NAN.to_bits());
        }
        let made = with_one_nan(Arc::new(Float32Array::from(vec![-f32::NAN, -1.0])));
        let made = made.as_primitive::<Float32Type>();
        assert_eq!(made.value(0).to_bits(), f32::NAN.to_bits());
        assert_eq!(made.value(1).to_bits(), (-1_f32).to_bits());
    }
}

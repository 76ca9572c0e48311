//! Casts between bytes and text, as in PostgreSQL.
//!
//! DataFusion casts a text to its UTF-8 bytes, and back. In PostgreSQL the text of a `bytea` has one of two forms
//! (`bytes.rs`), in casts and wherever a literal stands for bytes:
//!
//! ```text
//!   '\x00ff'::bytea                          bytea_in('\x00ff')
//!   b = '\x00ff', b IN ('..'), b UNION '..'  likewise, where coercion casts text to bytes
//!   b::text                                  bytea_out(b)
//!   b || '\x00ff'                            bytes; the literal is read likewise
//! ```
//!
//! Invariant: the only casts between texts and bytes that remain in a plan are those that functions of texts need.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryViewArray, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::bounded::check_sizes;
use crate::bytes::{parse_bytea, write_bytea};
use crate::error::{INVALID_PARAMETER_VALUE, INVALID_TEXT, SqlError};
use crate::functions::REGISTRY;

/// Functions that replace casts.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [Direction::In, Direction::Out].into_iter().map(|direction| {
        let signature = Signature::any(1, Volatility::Immutable);
        ScalarUDF::from(Bytea { direction, signature })
    })
}

/// Direction of a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Direction {
    In,
    Out,
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Self::In => "bytea_in",
            Self::Out => "bytea_out",
        }
    }

    /// Returns a call of the function, cast to `data_type`.
    fn call(self, expr: Expr, data_type: &DataType) -> Result<Expr> {
        let Some(function) = REGISTRY.scalar.get(self.name()) else {
            return exec_err!("{} is not registered", self.name());
        };
        let call = Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), vec![expr]));
        if *data_type == self.made() {
            return Ok(call);
        }
        Ok(Expr::Cast(Cast::new(Box::new(call), data_type.clone())))
    }

    fn made(self) -> DataType {
        match self {
            Self::In => DataType::BinaryView,
            Self::Out => DataType::Utf8View,
        }
    }
}

/// A cast as a function.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Bytea {
    direction: Direction,
    signature: Signature,
}

impl ScalarUDFImpl for Bytea {
    fn name(&self) -> &str {
        self.direction.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match (self.direction, types) {
            (Direction::In, [data_type]) if data_type.is_string() => Ok(self.direction.made()),
            (Direction::Out, [data_type]) if is_bytes(data_type) => Ok(self.direction.made()),
            _ => exec_err!("{} does not take {types:?}", self.name()),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [argument] = args.args.as_slice() else {
            return exec_err!("{} takes one argument", self.name());
        };
        let constant = matches!(argument, ColumnarValue::Scalar(_));
        let argument = argument.to_array(if constant { 1 } else { args.number_rows })?;
        let values = match self.direction {
            Direction::In => bytes_of(&argument)?,
            Direction::Out => texts_of(&argument)?,
        };
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?));
        }
        Ok(ColumnarValue::Array(values))
    }
}

/// Returns an expression for the hexadecimal form of bytes.
pub(crate) fn text_of_bytes(expr: Expr) -> Result<Expr> {
    Direction::Out.call(expr, &Direction::Out.made())
}

fn is_bytes(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

/// Returns the bytes that texts stand for.
///
/// # Errors
/// SQLSTATE 22P02 for a text in neither form, or 22023 for wrong digits.
pub fn bytes_of(texts: &ArrayRef) -> Result<ArrayRef> {
    let texts = cast(texts, &DataType::Utf8View)?;
    let bytes = texts.as_string_view().iter().map(|text| {
        let Some(text) = text else { return Ok(None) };
        let invalid = || {
            if text.starts_with("\\x") {
                SqlError::new(INVALID_PARAMETER_VALUE, "invalid hexadecimal data")
            } else {
                SqlError::new(INVALID_TEXT, "invalid input syntax for type bytea")
            }
        };
        Ok(Some(parse_bytea(text).ok_or_else(invalid)?))
    });
    let bytes: Vec<Option<Vec<u8>>> = bytes.collect::<Result<_>>()?;
    Ok(Arc::new(bytes.into_iter().collect::<BinaryViewArray>()))
}

/// Returns the hexadecimal forms of bytes.
fn texts_of(bytes: &ArrayRef) -> Result<ArrayRef> {
    let bytes = cast(bytes, &DataType::BinaryView)?;
    let bytes = bytes.as_binary_view();
    check_sizes(Direction::Out.name(), bytes.len(), |row| {
        if bytes.is_null(row) { 0 } else { bytes.value(row).len().saturating_mul(2) as u64 }
    })?;
    let texts = bytes.iter().map(|bytes| {
        let mut text = String::new();
        write_bytea(bytes?, &mut text);
        Some(text)
    });
    Ok(Arc::new(texts.collect::<StringViewArray>()))
}

/// Replaces casts of bytes to texts by the function; to be applied before types are coerced, because functions of texts
/// are then given such casts too.
#[derive(Debug)]
pub struct ByteaTexts;

impl FunctionRewrite for ByteaTexts {
    fn name(&self) -> &'static str {
        "bytea_texts"
    }

    fn rewrite(
        &self,
        expression: Expr,
        schema: &DFSchema,
        _: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        match expression {
            Expr::Cast(Cast { expr, field })
                if field.data_type().is_string()
                    && expr.get_type(schema).is_ok_and(|data_type| is_bytes(&data_type)) =>
            {
                Ok(Transformed::yes(Direction::Out.call(*expr, field.data_type())?))
            }
            expression => Ok(Transformed::no(expression)),
        }
    }
}

/// Replaces casts of texts to bytes by the function; to be applied once types are coerced.
#[derive(Debug)]
pub struct ByteaLiterals;

impl FunctionRewrite for ByteaLiterals {
    fn name(&self) -> &'static str {
        "bytea_literals"
    }

    fn rewrite(
        &self,
        expression: Expr,
        schema: &DFSchema,
        _: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        match expression {
            Expr::Cast(Cast { expr, field })
                if is_bytes(field.data_type())
                    && expr.get_type(schema).is_ok_and(|data_type| data_type.is_string()) =>
            {
                Ok(Transformed::yes(Direction::In.call(*expr, field.data_type())?))
            }
            expression => Ok(Transformed::no(expression)),
        }
    }
}

impl ExprPlanner for ByteaLiterals {
    fn plan_binary_op(
        &self,
        mut raw: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        if raw.op == BinaryOperator::StringConcat {
            let bytes =
                |expr: &Expr| expr.get_type(schema).is_ok_and(|data_type| is_bytes(&data_type));
            let is_text = |expr: &Expr| matches!(expr, Expr::Literal(value, _) if value.data_type().is_string());
            let read = |expr| Direction::In.call(expr, &DataType::BinaryView);
            if is_text(&raw.right) && bytes(&raw.left) {
                raw.right = read(raw.right)?;
            } else if is_text(&raw.left) && bytes(&raw.right) {
                raw.left = read(raw.left)?;
            }
        }
        Ok(PlannerResult::Original(raw))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_bytes_are_written() {
        let texts: ArrayRef =
            Arc::new(StringViewArray::from(vec![Some("\\x00ff"), None, Some("a\\\\\\001")]));
        let bytes = bytes_of(&texts).unwrap();
        let expected: BinaryViewArray =
            [Some(&[0_u8, 0xff][..]), None, Some(b"a\\\x01")].into_iter().collect();
        assert_eq!(bytes.as_binary_view(), &expected);
        let written = texts_of(&bytes).unwrap();
        let expected = StringViewArray::from(vec![Some("\\x00ff"), None, Some("\\x615c01")]);
        assert_eq!(written.as_string_view(), &expected);
    }

    #[test]
    fn a_text_of_neither_form_is_refused() {
        for (text, sqlstate) in [("\\xabc", "22023"), ("\\xzz", "22023"), ("\\4", "22P02")] {
            let texts: ArrayRef = Arc::new(StringViewArray::from(vec![text]));
            let error = SqlError::from(bytes_of(&texts).unwrap_err());
            assert_eq!(error.sqlstate, sqlstate, "{text}");
        }
    }
}

//! Literals in syntax trees: bounds of ranges, constants of partition expressions, parameters of EXECUTE. Rows of
//! INSERT are parsed elsewhere.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{self, Expr, UnaryOperator};
use partita_proto::schema::ColumnType;
use partita_proto::value::Value;

use crate::error::{DATATYPE_MISMATCH, FEATURE_NOT_SUPPORTED, INVALID_TEXT, SqlError};
use partita_worker::bytes::{parse_bytea, parse_hex};

/// A literal whose type is not known yet.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Literal {
    /// The NULL literal.
    Null,
    /// TRUE or FALSE.
    Bool(bool),
    /// A number as written, with its sign.
    Number(String),
    /// A string.
    Text(String),
    /// X'..'.
    Bytes(Vec<u8>),
}

/// The literal that an expression is; `None` when it is something else. Casts and types in front of strings (`DATE
/// '2024-01-01'`) are ignored: the column determines the type.
///
/// # Errors
/// When `X'..'` holds anything but pairs of hexadecimal digits.
pub(super) fn literal(expression: &Expr) -> Result<Option<Literal>, SqlError> {
    Ok(Some(match expression {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => return literal(inner),
        Expr::TypedString(typed) => return plain(&typed.value.value),
        Expr::Value(value) => return plain(&value.value),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match literal(expr)? {
            Some(Literal::Number(number)) => Literal::Number(match number.strip_prefix('-') {
                Some(positive) => positive.to_owned(),
                None => format!("-{number}"),
            }),
            _ => return Ok(None),
        },
        Expr::UnaryOp { op: UnaryOperator::Plus, expr } => match literal(expr)? {
            Some(Literal::Number(number)) => Literal::Number(number),
            _ => return Ok(None),
        },
        _ => return Ok(None),
    }))
}

fn plain(value: &ast::Value) -> Result<Option<Literal>, SqlError> {
    Ok(Some(match value {
        ast::Value::Null => Literal::Null,
        ast::Value::Boolean(value) => Literal::Bool(*value),
        ast::Value::Number(number, _) => Literal::Number(number.replace('_', "")),
        ast::Value::SingleQuotedString(text)
        | ast::Value::EscapedStringLiteral(text)
        | ast::Value::UnicodeStringLiteral(text)
        | ast::Value::NationalStringLiteral(text) => Literal::Text(text.clone()),
        ast::Value::DollarQuotedString(quoted) => Literal::Text(quoted.value.clone()),
        ast::Value::HexStringLiteral(digits) => match parse_hex(digits) {
            Some(bytes) => Literal::Bytes(bytes),
            None => {
                return Err(SqlError::new(
                    INVALID_TEXT,
                    format!("X'{digits}' is not made of pairs of hexadecimal digits"),
                ));
            }
        },
        _ => return Ok(None),
    }))
}

/// The value of a column for a literal.
///
/// # Errors
/// When the expression is no literal, or the column's type has no such value.
pub(super) fn typed(
    expression: &Expr,
    column: &str,
    column_type: ColumnType,
) -> Result<Value, SqlError> {
    let Some(literal) = literal(expression)? else {
        return Err(SqlError::new(
            FEATURE_NOT_SUPPORTED,
            format!("expected a literal, not `{expression}`"),
        ));
    };
    let mismatch = || {
        SqlError::new(
            DATATYPE_MISMATCH,
            format!(
                "`{expression}` does not fit column \"{column}\" of type {}",
                column_type.sql()
            ),
        )
    };
    let value = match (literal, column_type) {
        (Literal::Null, _) => return Ok(Value::Null),
        (Literal::Bool(value), ColumnType::Bool) => Value::Bool(value),
        (
            Literal::Number(_),
            ColumnType::Bool
            | ColumnType::String
            | ColumnType::Binary
            | ColumnType::Uuid
            | ColumnType::Time,
        ) => return Err(mismatch()),
        (Literal::Number(number), ColumnType::Timestamp(..)) => {
            Value::Int(number.parse().map_err(|_| mismatch())?)
        }
        // Text is converted to the column's type in one step, without a detour over binary floats.
        (Literal::Number(number), _) => Value::String(number),
        (Literal::Text(text), ColumnType::Binary) => {
            Value::Binary(parse_bytea(&text).ok_or_else(mismatch)?)
        }
        (Literal::Text(text), _) => Value::String(text),
        (Literal::Bytes(bytes), ColumnType::Binary) => Value::Binary(bytes),
        _ => return Err(mismatch()),
    };
    value.coerce(column_type).map_err(|error| mismatch().with_detail(error.to_string()))
}

/// The value of a literal by itself, as a parameter of EXECUTE. The caller casts it to the parameter's type.
///
/// # Errors
/// When the expression is no literal.
pub fn scalar(expression: &Expr) -> Result<ScalarValue, SqlError> {
    let Some(literal) = literal(expression)? else {
        return Err(SqlError::new(
            FEATURE_NOT_SUPPORTED,
            format!("a parameter must be a literal, not `{expression}`"),
        ));
    };
    let value = match literal {
        Literal::Null => ScalarValue::Null,
        Literal::Bool(value) => ScalarValue::Boolean(Some(value)),
        Literal::Text(text) => ScalarValue::Utf8View(Some(text)),
        Literal::Bytes(bytes) => ScalarValue::BinaryView(Some(bytes)),
        Literal::Number(number) => {
            if let Ok(number) = number.parse::<i64>() {
                ScalarValue::Int64(Some(number))
            } else if let Ok(number) = number.parse::<u64>() {
                ScalarValue::UInt64(Some(number))
            } else {
                ScalarValue::Float64(number.parse::<f64>().ok())
            }
        }
    };
    match cast_type(expression) {
        Some(target) => Ok(value.cast_to(&target)?),
        None => Ok(value),
    }
}

/// The type of the outermost cast of a literal, for types that a parameter may be cast to.
fn cast_type(expression: &Expr) -> Option<DataType> {
    let data_type = match expression {
        Expr::Nested(inner) => return cast_type(inner),
        Expr::Cast { data_type, .. } => data_type,
        Expr::TypedString(typed) => &typed.data_type,
        _ => return None,
    };
    Some(match data_type {
        ast::DataType::Date => DataType::Date32,
        ast::DataType::Timestamp(..) | ast::DataType::Datetime(_) => {
            DataType::Timestamp(TimeUnit::Nanosecond, None)
        }
        ast::DataType::SmallInt(_) | ast::DataType::Int2(_) => DataType::Int16,
        ast::DataType::Int(_) | ast::DataType::Integer(_) | ast::DataType::Int4(_) => {
            DataType::Int32
        }
        ast::DataType::BigInt(_) | ast::DataType::Int8(_) => DataType::Int64,
        ast::DataType::Real | ast::DataType::Float4 => DataType::Float32,
        ast::DataType::Double(_)
        | ast::DataType::DoublePrecision
        | ast::DataType::Float8
        | ast::DataType::Float(_) => DataType::Float64,
        ast::DataType::Boolean | ast::DataType::Bool => DataType::Boolean,
        ast::DataType::Text | ast::DataType::Varchar(_) => DataType::Utf8View,
        _ => return None,
    })
}

//! Boundaries of partitions in words that parse back.
//!
//! ```text
//!   (3, 'a')            the key itself, as every boundary of CREATE TABLE and SPLIT AT
//!   AFTER (3, 'new')    the key directly above it: the first one that does not begin with these values
//!   BEFORE (3, 'new')   the key itself, for symmetry
//! ```
//!
//! A split around one hot key leaves a boundary that is directly above a text. That boundary is the text with a zero
//! byte at its end, which clients take for the end of the whole answer, so it is never printed as it is.

use datafusion::sql::sqlparser::ast::Expr;
use partita_proto::literal::printable;
use partita_proto::range::Bound;
use partita_proto::schema::{Column, ColumnType};
use partita_proto::uuid::UUID_BYTES;
use partita_proto::value::Value;

use crate::error::{NUMERIC_OUT_OF_RANGE, SqlError};

/// SQL text of a boundary: a tuple of literals, with the placement first, or `AFTER` and such a tuple. It parses to a
/// [`CutTuple`] of the same boundary. `types` are the types of the key columns.
pub fn bound_sql(bound: &Bound, types: &[ColumnType]) -> String {
    let values: Vec<(&Value, ColumnType)> = bound.key.iter().zip(types.iter().copied()).collect();
    printable(&values, bound.placement)
}

/// A boundary as written.
#[derive(Clone, Debug)]
pub struct CutTuple {
    /// Values of the first key columns, after the placement of tables that have one.
    pub values: Vec<Expr>,
    /// True for AFTER: the boundary is directly above the last value.
    pub is_after: bool,
}

/// The least value of a column that is greater than `value`.
///
/// # Errors
/// 22003 when the column's type has no greater value, 0A000 when its values are neither texts, bytes nor integers.
pub(super) fn directly_above(value: Value, column: &Column) -> Result<Value, SqlError> {
    let column_type = column.column_type;
    let next = match value {
        Value::String(mut text) => {
            text.push('\0');
            return Ok(Value::String(text));
        }
        Value::Binary(bytes) if column_type == ColumnType::Uuid => {
            let number = <[u8; UUID_BYTES]>::try_from(bytes).map(u128::from_be_bytes).ok();
            let next = number.and_then(|number| number.checked_add(1));
            next.map(|next| Value::Binary(next.to_be_bytes().to_vec()))
        }
        Value::Binary(mut bytes) => {
            bytes.push(0);
            return Ok(Value::Binary(bytes));
        }
        Value::Int(number) => number.checked_add(1).map(Value::Int),
        Value::UInt(number) => number.checked_add(1).map(Value::UInt),
        _ => {
            let feature = format!("AFTER a value of column \"{}\"", column.name);
            let detail =
                format!("it takes texts, bytes and integers, not NULL or {}", column_type.sql());
            return Err(SqlError::unsupported(feature).with_detail(detail));
        }
    };
    next.and_then(|next| next.coerce(column_type).ok()).ok_or_else(|| {
        let message = format!(
            "column \"{}\" of type {} has no value after its greatest one",
            column.name,
            column_type.sql()
        );
        SqlError::new(NUMERIC_OUT_OF_RANGE, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::made;

    fn column(column_type: &str) -> Column {
        let table = made(&format!("CREATE TABLE t (k {column_type} PRIMARY KEY)"));
        table.schema.key_columns().next().unwrap().clone()
    }

    #[test]
    fn the_value_directly_above_has_none_between() {
        let above = |value, column_type| directly_above(value, &column(column_type));
        let text = |text: &str| Value::String(text.to_owned());
        assert_eq!(above(text("new"), "STRING").unwrap(), text("new\0"));
        assert_eq!(above(Value::Binary(vec![7]), "BYTEA").unwrap(), Value::Binary(vec![7, 0]));
        let uuid = |number: u128| Value::Binary(number.to_be_bytes().to_vec());
        assert_eq!(above(uuid(0xFF), "UUID").unwrap(), uuid(0x100));
        assert_eq!(above(uuid(u128::MAX), "UUID").unwrap_err().sqlstate, "22003");
        assert_eq!(above(Value::Int(-1), "BIGINT").unwrap(), Value::Int(0));
        assert_eq!(above(Value::UInt(7), "BIGINT UNSIGNED").unwrap(), Value::UInt(8));
        for (value, column_type) in [
            (Value::Int(127), "TINYINT"),
            (Value::Int(i64::MAX), "BIGINT"),
            (Value::UInt(u64::MAX), "BIGINT UNSIGNED"),
        ] {
            assert_eq!(above(value, column_type).unwrap_err().sqlstate, "22003", "{column_type}");
        }
        assert_eq!(above(Value::Float(1.0), "DOUBLE").unwrap_err().sqlstate, "0A000");
        assert_eq!(above(Value::Null, "BIGINT").unwrap_err().sqlstate, "0A000");
    }
}

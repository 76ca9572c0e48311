//! Finds predicates that their domains express in full, so that rows are not checked a second time.
//!
//! Invariant: a row is in the domains of an exact predicate if and only if the predicate is true for it. Scans apply
//! domains exactly, so a filter above would keep all rows, and copy them. The list is deliberately short: comparisons
//! of a bare column with literals, of types whose equality and order are the same in SQL and in domains. (Floats are
//! excluded because of NaN and the two zeros.)

use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator};
use partita_proto::schema::{Column, ColumnType, TableSchema};

use super::{POINTS_MAX, literal, operand, value};

/// Returns true if the rows in a filter's domains are exactly those that satisfy it.
pub(crate) fn is_exact(filter: &Expr, schema: &TableSchema) -> bool {
    only_column(filter, schema).is_some()
}

/// The only column of an exact predicate.
fn only_column<'a>(filter: &'a Expr, schema: &'a TableSchema) -> Option<&'a Column> {
    match filter {
        Expr::Alias(alias) => only_column(&alias.expr, schema),
        // With two columns, the union of their domains says less than the predicate.
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And | Operator::Or, right }) => {
            let (left, right) = (only_column(left, schema)?, only_column(right, schema)?);
            (left.id == right.id).then_some(left)
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if orders(*op) => {
            let (column, literal) = match (bare(left, schema), literal(right)) {
                (Some(column), Some(literal)) => (column, literal),
                _ => (bare(right, schema)?, literal(left)?),
            };
            is_value(literal, column).then_some(column)
        }
        Expr::Between(Between { expr, negated: false, low, high }) => {
            let column = bare(expr, schema)?;
            let exact = is_value(literal(low)?, column) && is_value(literal(high)?, column);
            exact.then_some(column)
        }
        Expr::InList(InList { expr, list, negated: false }) if list.len() <= POINTS_MAX => {
            let column = bare(expr, schema)?;
            let is_member_value =
                |member: &Expr| literal(member).is_some_and(|value| is_value(value, column));
            list.iter().all(is_member_value).then_some(column)
        }
        _ => None,
    }
}

fn orders(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, Lt, LtEq};
    matches!(op, Eq | Lt | LtEq | Gt | GtEq)
}

/// A column without casts, of a type whose values compare the same everywhere.
fn bare<'a>(expr: &'a Expr, schema: &'a TableSchema) -> Option<&'a Column> {
    let operand = operand(expr, schema).filter(|operand| operand.casts.is_empty())?;
    let alike = match operand.column.column_type {
        ColumnType::Int8
        | ColumnType::Int16
        | ColumnType::Int32
        | ColumnType::Int64
        | ColumnType::UInt8
        | ColumnType::UInt16
        | ColumnType::UInt32
        | ColumnType::UInt64
        | ColumnType::String
        | ColumnType::Date
        | ColumnType::Uuid
        | ColumnType::Time
        | ColumnType::Timestamp(..) => true,
        ColumnType::Bool
        | ColumnType::Float32
        | ColumnType::Float64
        | ColumnType::Binary
        | ColumnType::Array(_)
        | ColumnType::Interval
        | ColumnType::Decimal(..) => false,
    };
    alike.then_some(operand.column)
}

/// Returns true if a literal is a value of a column.
fn is_value(literal: &ScalarValue, column: &Column) -> bool {
    !literal.is_null() && value(literal, column.column_type).is_some()
}

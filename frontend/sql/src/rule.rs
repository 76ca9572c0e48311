//! Partition expressions: from syntax trees to [`Rule`]s.
//!
//! An expression compares columns with literals by `= <> != < <= > >=`, BETWEEN and IN, and joins comparisons by AND,
//! OR and parentheses. Anything else is an error that quotes it: a misread rule would send rows to the wrong partition
//! forever.

use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Expr};
use partita_proto::rule::{Comparison, Rule};
use partita_proto::schema::{Column, TableSchema};
use partita_proto::value::Value;

use super::identifier::fold;
use super::literal::{literal, typed};
use crate::error::{FEATURE_NOT_SUPPORTED, SqlError, UNDEFINED_COLUMN};

/// The rule that an expression defines.
///
/// # Errors
/// When the expression holds anything but comparisons of columns with literals, or names a column
/// that the table does not have or that is not among `columns`.
pub(super) fn rule(
    expression: &Expr,
    schema: &TableSchema,
    columns: &[String],
) -> Result<Rule, SqlError> {
    let reader = Reader { schema, columns };
    reader.rule(expression)
}

struct Reader<'a> {
    schema: &'a TableSchema,
    columns: &'a [String],
}

impl Reader<'_> {
    fn rule(&self, expression: &Expr) -> Result<Rule, SqlError> {
        // AND and OR flatten rules of their own kind.
        match expression {
            Expr::Nested(inner) => self.rule(inner),
            Expr::BinaryOp { op: BinaryOperator::And, .. } => {
                let mut rules = Vec::new();
                for member in members(expression, &BinaryOperator::And) {
                    match self.rule(member)? {
                        Rule::And(inner) if !inner.is_empty() => rules.extend(inner),
                        rule => rules.push(rule),
                    }
                }
                Ok(Rule::And(rules))
            }
            Expr::BinaryOp { op: BinaryOperator::Or, .. } => {
                let mut rules = Vec::new();
                for member in members(expression, &BinaryOperator::Or) {
                    match self.rule(member)? {
                        Rule::Or(inner) if !inner.is_empty() => rules.extend(inner),
                        rule => rules.push(rule),
                    }
                }
                Ok(Rule::Or(rules))
            }
            // BETWEEN and IN are comparisons joined by AND and OR.
            Expr::BinaryOp { left, op, right } => {
                let Some(comparison) = comparison(op) else { return Err(refuse(expression)) };
                self.compare(left, comparison, right, expression)
            }
            Expr::Between { expr, negated: false, low, high } => Ok(Rule::And(vec![
                self.compare(expr, Comparison::GreaterOrEqual, low, expression)?,
                self.compare(expr, Comparison::LessOrEqual, high, expression)?,
            ])),
            Expr::InList { expr, list, negated: false } => {
                let mut rules = list
                    .iter()
                    .map(|item| self.compare(expr, Comparison::Equal, item, expression))
                    .collect::<Result<Vec<_>, _>>()?;
                Ok(match rules.pop() {
                    Some(only) if rules.is_empty() => only,
                    Some(last) => {
                        rules.push(last);
                        Rule::Or(rules)
                    }
                    None => Rule::Or(rules),
                })
            }
            // TRUE and FALSE are empty conjunctions and disjunctions.
            Expr::Value(value) => match value.value {
                ast::Value::Boolean(true) => Ok(Rule::And(Vec::new())),
                ast::Value::Boolean(false) => Ok(Rule::Or(Vec::new())),
                _ => Err(refuse(expression)),
            },
            _ => Err(refuse(expression)),
        }
    }

    /// `column op literal`, in either order.
    fn compare(
        &self,
        left: &Expr,
        comparison: Comparison,
        right: &Expr,
        whole: &Expr,
    ) -> Result<Rule, SqlError> {
        if let Some(column) = self.column(left)? {
            return compared(column, comparison, right, whole);
        }
        match self.column(right)? {
            Some(column) => compared(column, mirrored(comparison), left, whole),
            None => Err(refuse(whole)),
        }
    }

    /// The column that an expression names; `None` when it is something else.
    fn column(&self, expression: &Expr) -> Result<Option<&Column>, SqlError> {
        let name = match expression {
            Expr::Nested(inner) => return self.column(inner),
            Expr::Identifier(name) if name.quote_style.is_some() => name.value.clone(),
            Expr::Identifier(name) => fold(&name.value),
            _ => return Ok(None),
        };
        let Some(column) = self.schema.column(&name) else {
            return Err(SqlError::new(
                UNDEFINED_COLUMN,
                format!("column \"{name}\" named in a partition expression does not exist"),
            ));
        };
        if !self.columns.contains(&name) {
            return Err(SqlError::new(
                "42P17",
                format!(
                    "column \"{name}\" is used in a partition expression but not listed in \
                     PARTITION ON COLUMNS"
                ),
            ));
        }
        Ok(Some(column))
    }
}

/// The operands of an operator, in order. `a OR b OR c` is a left-leaning tree, as deep as it is long, so it is walked
/// without recursion.
fn members<'e>(expression: &'e Expr, operator: &BinaryOperator) -> Vec<&'e Expr> {
    let mut members = Vec::new();
    let mut rest = expression;
    while let Expr::BinaryOp { left, op, right } = rest
        && op == operator
    {
        members.push(right.as_ref());
        rest = left;
    }
    members.push(rest);
    members.reverse();
    members
}

fn compared(
    column: &Column,
    comparison: Comparison,
    operand: &Expr,
    whole: &Expr,
) -> Result<Rule, SqlError> {
    if literal(operand)?.is_none() {
        return Err(refuse(whole));
    }
    match typed(operand, &column.name, column.column_type)? {
        Value::Null => Err(SqlError::new(
            FEATURE_NOT_SUPPORTED,
            format!("`{whole}` compares with NULL, which a partition expression cannot do"),
        )
        .with_hint(format!(
            "NULL sorts first: rows without \"{}\" go where `<` and `<>` are true",
            column.name
        ))),
        value => Ok(Rule::Compare { column: column.id, comparison, value }),
    }
}

fn comparison(operator: &BinaryOperator) -> Option<Comparison> {
    Some(match operator {
        BinaryOperator::Eq => Comparison::Equal,
        BinaryOperator::NotEq => Comparison::NotEqual,
        BinaryOperator::Lt => Comparison::Less,
        BinaryOperator::LtEq => Comparison::LessOrEqual,
        BinaryOperator::Gt => Comparison::Greater,
        BinaryOperator::GtEq => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

/// `1 < a` is `a > 1`.
fn mirrored(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Less => Comparison::Greater,
        Comparison::LessOrEqual => Comparison::GreaterOrEqual,
        Comparison::Greater => Comparison::Less,
        Comparison::GreaterOrEqual => Comparison::LessOrEqual,
        same => same,
    }
}

fn refuse(expression: &Expr) -> SqlError {
    SqlError::new(
        FEATURE_NOT_SUPPORTED,
        format!("`{expression}` is not supported in a partition expression"),
    )
    .with_hint(
        "compare columns with literals by =, <>, <, <=, >, >=, BETWEEN or IN, joined by AND and OR",
    )
}

//! Plans the operators of JSON as calls of functions.
//!
//! An operator is one of JSON when an operand is marked; the other operand may be a literal or a parameter of an unknown
//! type. `||`, `-` and comparisons have meanings of their own for other types, which are left to the other planners.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Placeholder, ScalarFunction};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use partita_proto::json::JsonType;

use super::casts::{IN_JSONB, KEY};
use super::{changes, members};
use crate::error::{SqlError, UNDEFINED_FUNCTION};
use crate::functions::REGISTRY;

/// Plans operators one of whose operands is JSON.
#[derive(Debug)]
pub struct JsonOperators;

impl ExprPlanner for JsonOperators {
    fn plan_binary_op(
        &self,
        raw: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        // Conditions and sums may be long chains, whose types are not computed at each link.
        if matches!(raw.op, BinaryOperator::And | BinaryOperator::Or | BinaryOperator::Plus) {
            return Ok(PlannerResult::Original(raw));
        }
        let (left, right) = (json_of(&raw.left, schema), json_of(&raw.right, schema));
        if left.is_none() && right.is_none() {
            return Ok(PlannerResult::Original(raw));
        }
        let planned = match (&raw.op, left, right) {
            // Parts of both types.
            (BinaryOperator::Arrow, Some(_), _) => access(members::MEMBER, raw)?,
            (BinaryOperator::LongArrow, Some(_), _) => access(members::MEMBER_TEXT, raw)?,
            (BinaryOperator::HashArrow, Some(_), _) => access(members::PATH, raw)?,
            (BinaryOperator::HashLongArrow, Some(_), _) => access(members::PATH_TEXT, raw)?,
            // Operators of JSONB with a text or an array of texts.
            (BinaryOperator::Question, Some(JsonType::Jsonb), _) => access(changes::EXISTS, raw)?,
            (BinaryOperator::QuestionPipe, Some(JsonType::Jsonb), _) => {
                access(changes::EXISTS_ANY, raw)?
            }
            (BinaryOperator::QuestionAnd, Some(JsonType::Jsonb), _) => {
                access(changes::EXISTS_ALL, raw)?
            }
            (BinaryOperator::Minus, Some(JsonType::Jsonb), None) => access(changes::DELETE, raw)?,
            (BinaryOperator::HashMinus, Some(JsonType::Jsonb), _) => {
                access(changes::DELETE_PATH, raw)?
            }
            (BinaryOperator::AtQuestion | BinaryOperator::AtAt, ..) => {
                return Err(SqlError::unsupported("SQL/JSON path").into());
            }
            // Operators of two values.
            (BinaryOperator::AtArrow, ..) => {
                let (left, right) = both(raw, schema)?;
                call(changes::CONTAINS, vec![left, right])?
            }
            (BinaryOperator::ArrowAt, ..) => {
                let (left, right) = both(raw, schema)?;
                call(changes::CONTAINS, vec![right, left])?
            }
            // With a text, `||` joins texts.
            (BinaryOperator::StringConcat, Some(JsonType::Jsonb), Some(JsonType::Jsonb)) => {
                call(changes::CONCAT, vec![raw.left, raw.right])?
            }
            (BinaryOperator::StringConcat, Some(JsonType::Jsonb), None)
                if is_unknown(&raw.right) =>
            {
                let (left, right) = both(raw, schema)?;
                call(changes::CONCAT, vec![left, right])?
            }
            (BinaryOperator::StringConcat, None, Some(JsonType::Jsonb))
                if is_unknown(&raw.left) =>
            {
                let (left, right) = both(raw, schema)?;
                call(changes::CONCAT, vec![left, right])?
            }
            (op, ..) => match comparison(op) {
                Some(operator) => {
                    let (left, right) = both(raw, schema)?;
                    let (left, right) = (call(KEY, vec![left])?, call(KEY, vec![right])?);
                    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right)))
                }
                None => return Ok(PlannerResult::Original(raw)),
            },
        };
        Ok(PlannerResult::Planned(planned))
    }
}

/// The type of an expression, if it is JSON.
fn json_of(expr: &Expr, schema: &DFSchema) -> Option<JsonType> {
    match expr {
        // What operators compute is marked only where they were planned as calls.
        Expr::BinaryExpr(_) | Expr::Not(_) | Expr::Negative(_) => None,
        // The planner loses the marks of the values among which these choose.
        Expr::ScalarFunction(call) if ["coalesce", "nullif"].contains(&call.func.name()) => {
            call.args.iter().find_map(|value| json_of(value, schema))
        }
        Expr::Case(case) => {
            let results = case.when_then_expr.iter().map(|(_, result)| result);
            results.chain(&case.else_expr).find_map(|value| json_of(value, schema))
        }
        expr => {
            let (_, field) = expr.to_field(schema).ok()?;
            JsonType::of_field(&field)
        }
    }
}

/// Returns true for literals and parameters, which have the type that the other operand needs.
fn is_unknown(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => value.data_type().is_string() || value.is_null(),
        Expr::Placeholder(_) => true,
        _ => false,
    }
}

/// A call with the operands; a parameter is a text.
fn access(name: &str, raw: RawBinaryExpr) -> Result<Expr> {
    call(name, vec![raw.left, as_text(raw.right)])
}

/// The operands as JSONB.
///
/// # Errors
/// 42883 when one of them is JSON, or of another type.
fn both(raw: RawBinaryExpr, schema: &DFSchema) -> Result<(Expr, Expr)> {
    let (left, right) = (type_name(&raw.left, schema), type_name(&raw.right, schema));
    let undefined = || {
        let message = format!("operator does not exist: {left} {} {right}", raw.op);
        SqlError::new(UNDEFINED_FUNCTION, message).with_hint(
            "No operator matches the given name and argument types. You might need to add explicit type casts.",
        )
    };
    let is_known = |name: &str| name == "jsonb" || name == "unknown";
    if !is_known(&left) || !is_known(&right) {
        return Err(undefined().into());
    }
    let read = |expr: Expr, name: &str| match name {
        "jsonb" => Ok(expr),
        _ => call(IN_JSONB, vec![as_text(expr)]),
    };
    Ok((read(raw.left, &left)?, read(raw.right, &right)?))
}

/// PostgreSQL's name of an operand's type.
fn type_name(expr: &Expr, schema: &DFSchema) -> String {
    if let Some(json) = json_of(expr, schema) {
        return json.postgres().to_owned();
    }
    if is_unknown(expr) {
        return "unknown".to_owned();
    }
    expr.get_type(schema).map_or_else(
        |_| "unknown type".to_owned(),
        |data_type| crate::checked::sql_name(&data_type),
    )
}

/// A parameter without a type as a text.
fn as_text(expr: Expr) -> Expr {
    match expr {
        Expr::Placeholder(Placeholder { id, field: None }) => {
            let field = Arc::new(Field::new("", DataType::Utf8View, true));
            Expr::Placeholder(Placeholder::new_with_field(id, Some(field)))
        }
        expr => expr,
    }
}

fn call(name: &str, arguments: Vec<Expr>) -> Result<Expr> {
    let Some(function) = REGISTRY.scalar.get(name) else {
        return exec_err!("{name} is not registered");
    };
    Ok(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), arguments)))
}

fn comparison(op: &BinaryOperator) -> Option<Operator> {
    Some(match op {
        BinaryOperator::Eq => Operator::Eq,
        BinaryOperator::NotEq => Operator::NotEq,
        BinaryOperator::Lt => Operator::Lt,
        BinaryOperator::LtEq => Operator::LtEq,
        BinaryOperator::Gt => Operator::Gt,
        BinaryOperator::GtEq => Operator::GtEq,
        _ => return None,
    })
}

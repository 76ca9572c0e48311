//! Functions and names of types that PostgreSQL does not have, and users of GreptimeDB and MySQL know.
//!
//! - `isnull(x)` is `x IS NULL`, and `if(c, a, b)` is `CASE WHEN c THEN a ELSE b END`;
//! - `lcase`, `ucase`, `mid`, `space`, `locate`, `strcmp` and `field` are written with `lower`, `upper`, `substr`, `repeat`,
//!   `strpos` and CASE;
//! - `date_add(t, i)` and `date_sub(t, i)` are `t + i` and `t - i`; the interval may be a text;
//! - casts know the types by their width in bits (`Int64`, `UInt8`, `Float32`) and by their unit (`TIMESTAMP_MS`).
//!
//! Invariant: a quoted name is the user's own, and stays.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, CastKind, DataType, ExactNumberInfo, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArguments, ObjectName, ObjectNamePart, TimezoneInfo, UnaryOperator,
    Value, helpers::attached_token::AttachedToken,
};

use super::rewritten::call;

/// The call of one of these functions in PostgreSQL's words; `None` for other calls.
pub(super) fn spelled_out(function: &Function) -> Option<Expr> {
    let name = unquoted(&function.name)?;
    let args = plain_arguments(function)?;
    let spelled = match (name.as_str(), args.as_slice()) {
        ("isnull", [value]) => Expr::IsNull(nested(value)),
        ("if", [condition, result, otherwise]) => {
            let branch = (Expr::clone(condition), Expr::clone(result));
            case(None, vec![branch], Some(Expr::clone(otherwise)))
        }
        ("lcase", [text]) => called("lower", &[text]),
        ("ucase", [text]) => called("upper", &[text]),
        ("mid", [text, start, count]) => called("substr", &[text, start, count]),
        ("space", [count]) => called("repeat", &[&text_literal(" "), count]),
        ("locate", [part, text]) => called("strpos", &[text, part]),
        ("strcmp", [left, right]) => compared(left, right),
        ("field", [value, first, rest @ ..]) => {
            let candidates = std::iter::once(first).chain(rest).enumerate();
            let branch = |(position, candidate): (usize, &&Expr)| {
                (Expr::clone(candidate), integer(position + 1))
            };
            case(Some(*value), candidates.map(branch).collect(), Some(integer(0)))
        }
        ("date_add", [time, interval]) => moved(time, BinaryOperator::Plus, interval),
        ("date_sub", [time, interval]) => moved(time, BinaryOperator::Minus, interval),
        _ => return None,
    };
    Some(Expr::Nested(Box::new(spelled)))
}

/// The order of two texts: -1, 0, 1 or NULL.
fn compared(left: &Expr, right: &Expr) -> Expr {
    let branch = |op: BinaryOperator, result: Expr| {
        (Expr::BinaryOp { left: nested(left), op, right: nested(right) }, result)
    };
    let minus_one = Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(integer(1)) };
    let branches = vec![
        branch(BinaryOperator::Lt, minus_one),
        branch(BinaryOperator::Eq, integer(0)),
        branch(BinaryOperator::Gt, integer(1)),
    ];
    case(None, branches, None)
}

fn case(operand: Option<&Expr>, branches: Vec<(Expr, Expr)>, otherwise: Option<Expr>) -> Expr {
    let when = |(condition, result)| CaseWhen { condition, result };
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: operand.map(|operand| Box::new(operand.clone())),
        conditions: branches.into_iter().map(when).collect(),
        else_result: otherwise.map(Box::new),
    }
}

fn called(name: &str, args: &[&Expr]) -> Expr {
    call(name, args.iter().copied().cloned().collect())
}

fn integer(number: usize) -> Expr {
    Expr::Value(Value::Number(number.to_string(), false).into())
}

fn text_literal(text: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(text.to_owned()).into())
}

/// The type that one of these names means, as the planner knows it; `None` for other types.
pub(super) fn known_type(data_type: &DataType) -> Option<DataType> {
    let timestamp = |digits| Some(DataType::Timestamp(Some(digits), TimezoneInfo::None));
    match data_type {
        DataType::Int16 => Some(DataType::SmallInt(None)),
        DataType::Int32 => Some(DataType::Int(None)),
        DataType::Int64 => Some(DataType::BigInt(None)),
        DataType::UInt8 => Some(DataType::TinyIntUnsigned(None)),
        DataType::UInt16 => Some(DataType::SmallIntUnsigned(None)),
        DataType::UInt32 => Some(DataType::IntUnsigned(None)),
        DataType::UInt64 => Some(DataType::BigIntUnsigned(None)),
        DataType::Float32 => Some(DataType::Real),
        DataType::Float64 => Some(DataType::Double(ExactNumberInfo::None)),
        DataType::Custom(name, modifiers) if modifiers.is_empty() => {
            match unquoted(name)?.as_str() {
                "timestamp_s" | "timestamp_sec" => timestamp(0),
                "timestamp_ms" => timestamp(3),
                "timestamp_us" => timestamp(6),
                "timestamp_ns" => timestamp(9),
                "utinyint" => Some(DataType::TinyIntUnsigned(None)),
                "usmallint" => Some(DataType::SmallIntUnsigned(None)),
                "uint" => Some(DataType::IntUnsigned(None)),
                "ubigint" => Some(DataType::BigIntUnsigned(None)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The arguments of a call of the named function, which has nothing else; `None` for other expressions.
pub(super) fn arguments_of<'a>(expr: &'a Expr, name: &str) -> Option<Vec<&'a Expr>> {
    let Expr::Function(function) = expr else { return None };
    if unquoted(&function.name)? != name {
        return None;
    }
    plain_arguments(function)
}

/// A name of one part without quotes, in lower case.
fn unquoted(name: &ObjectName) -> Option<String> {
    let [part] = name.0.as_slice() else { return None };
    let name = ObjectNamePart::as_ident(part).filter(|name| name.quote_style.is_none())?;
    Some(name.value.to_ascii_lowercase())
}

/// The arguments of a call that has nothing else.
fn plain_arguments(function: &Function) -> Option<Vec<&Expr>> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let has_more = function.over.is_some()
        || function.filter.is_some()
        || list.duplicate_treatment.is_some()
        || !list.clauses.is_empty()
        || !function.within_group.is_empty();
    if has_more {
        return None;
    }
    list.args.iter().map(unnamed).collect()
}

fn unnamed(argument: &FunctionArg) -> Option<&Expr> {
    match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value),
        _ => None,
    }
}

/// A time moved by an interval.
fn moved(time: &Expr, op: BinaryOperator, interval: &Expr) -> Expr {
    let is_text = matches!(interval, Expr::Value(value)
        if matches!(value.value, Value::SingleQuotedString(_)));
    let interval = match is_text {
        true => Box::new(Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(interval.clone()),
            data_type: DataType::Interval { fields: None, precision: None },
            array: false,
            format: None,
        }),
        false => nested(interval),
    };
    Expr::BinaryOp { left: nested(time), op, right: interval }
}

fn nested(inner: &Expr) -> Box<Expr> {
    Box::new(Expr::Nested(Box::new(inner.clone())))
}

#[cfg(test)]
mod tests {
    use crate::parser::parse;
    use crate::statement::Statement;

    fn rewritten(expression: &str) -> String {
        let parsed = parse(&format!("SELECT {expression}")).unwrap().pop();
        let Some(Statement::Query(query)) = parsed else { panic!("{expression}") };
        query.statement.to_string().replacen("SELECT ", "", 1)
    }

    #[test]
    fn functions_are_spelled_out() {
        assert_eq!(rewritten("isnull(a + 1)"), "((a + 1) IS NULL)");
        assert_eq!(rewritten("IF(a > 1, 'x', b)"), "(CASE WHEN a > 1 THEN 'x' ELSE b END)");
        let interval = rewritten("date_add(t, INTERVAL '1 day')");
        assert!(interval.starts_with("((t) + (INTERVAL '"), "{interval}");
        let text = rewritten("date_sub(t, '2 hours')");
        assert!(text.starts_with("((t) - CAST(") && text.ends_with(" AS INTERVAL))"), "{text}");
        assert_eq!(rewritten("LCASE(a)"), "(lower(a))");
        assert_eq!(rewritten("mid(a, 2, 3)"), "(substr(a, 2, 3))");
        assert_eq!(rewritten("space(3)"), "(repeat(' ', 3))");
        assert_eq!(rewritten("locate('b', a)"), "(strpos(a, 'b'))");
        assert_eq!(
            rewritten("field(a, 'x', b)"),
            "(CASE a WHEN 'x' THEN 1 WHEN b THEN 2 ELSE 0 END)"
        );
        let order = rewritten("strcmp(a, b)");
        assert_eq!(
            order,
            "(CASE WHEN (a) < (b) THEN -1 WHEN (a) = (b) THEN 0 WHEN (a) > (b) THEN 1 END)"
        );
        // Names and calls of others stay.
        assert_eq!(rewritten("\"isnull\"(a)"), "\"isnull\"(a)");
        assert_eq!(rewritten("isnull(a, b)"), "isnull(a, b)");
    }

    #[test]
    fn types_are_those_of_casts() {
        for (cast, known) in [
            ("a::Int64", "a::BIGINT"),
            ("CAST(a AS UInt8)", "CAST(a AS TINYINT UNSIGNED)"),
            ("a::Float32", "a::REAL"),
            ("a::timestamp_ms", "a::TIMESTAMP(3)"),
            ("a::\"timestamp_ms\"", "a::\"timestamp_ms\""),
        ] {
            assert_eq!(rewritten(cast), known, "{cast}");
        }
    }
}

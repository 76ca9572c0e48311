//! Rewrites expressions that the planner would misinterpret.
//!
//! - Comparisons of rows become comparisons of their columns: the planner compares structs, in which NULL is an
//!   ordinary value.
//! - Numbers with a point that are cast to a decimal or an integer, rounded, or compared with other numbers are exact,
//!   and so are numbers of more than 15 digits: the planner turns them into doubles first, which have no more digits
//!   than these.
//! - AT TIME ZONE becomes a call of `timezone`, as in PostgreSQL: the planner turns it into a cast, which takes a local
//!   time for an instant.
//! - A cast of a literal to a TIMESTAMP without precision gets the precision of the literal.
//! - A minus before an interval applies to all its units: the planner puts it before the text, where it applies to the
//!   first.
//! - A number in the ORDER BY of an aggregate or a window is a constant: the planner takes it for a position.
//! - `date_bin` gets an interval as first argument, and its origin in nanoseconds.
//! - `LIKE .. ESCAPE`, `SIMILAR TO`, `OVERLAPS`, `|/`, `~`, `^@`, `@@` and `&&`, `age` of one time and `make_interval`
//!   with named arguments become plain function calls.
//! - Functions and types of other databases get their names of PostgreSQL (`other_dialects.rs`).
//! - The text of an interval may have any of the forms that PostgreSQL accepts: the planner knows numbers with units.
//!
//! Invariant: a rewritten expression has the type it had, and is NULL where it is NULL in PostgreSQL.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArgumentClause, FunctionArgumentList, FunctionArguments, Ident,
    Interval, ObjectName, ObjectNamePart, OrderByExpr, SelectItem, SetExpr, Statement, TableFactor,
    TimezoneInfo, TypedString, UnaryOperator, Value, ValueWithSpan, VisitMut, VisitorMut,
    WindowType, visit_expressions_mut,
};
use partita_worker::interval_text;

use super::array_subqueries::collected;
use super::other_dialects::{known_type, spelled_out};
use crate::error::{STATEMENT_TOO_COMPLEX, SqlError};

/// Maximum number of columns of rows that are compared; each adds a level to the expression.
const ROW_COLUMNS_MAX: usize = 64;

/// Rewrites the expressions of a query, or one expression.
pub(super) fn rewrite(tree: &mut impl VisitMut) -> Result<(), SqlError> {
    let visited = visit_expressions_mut(tree, |expression| match rewritten(expression) {
        Ok(None) => ControlFlow::Continue(()),
        Ok(Some(replacement)) => {
            *expression = replacement;
            ControlFlow::Continue(())
        }
        Err(error) => ControlFlow::Break(Box::new(error)),
    });
    match visited {
        ControlFlow::Continue(()) => {
            let _: ControlFlow<()> = tree.visit(&mut SeriesOfTimes);
            Ok(())
        }
        ControlFlow::Break(error) => Err(*error),
    }
}

/// Gives the times of a series in FROM nanoseconds, which is what the planner expects.
struct SeriesOfTimes;

impl VisitorMut for SeriesOfTimes {
    type Break = ();

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let (name, args) = match factor {
            TableFactor::Table { name, args: Some(args), .. } => (name, &mut args.args),
            TableFactor::Function { name, args, .. } => (name, args),
            _ => return ControlFlow::Continue(()),
        };
        let is_series = name.0.last().and_then(ObjectNamePart::as_ident).is_some_and(|name| {
            ["generate_series", "range"]
                .iter()
                .any(|function| name.value.eq_ignore_ascii_case(function))
        });
        if is_series {
            for argument in args {
                if let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = argument {
                    in_nanoseconds(expr);
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Gives a constant timestamp nine digits.
fn in_nanoseconds(expr: &mut Expr) {
    match expr {
        Expr::Cast { data_type: DataType::Timestamp(digits, _), .. } => *digits = Some(9),
        Expr::TypedString(typed) => {
            if let DataType::Timestamp(digits, _) = &mut typed.data_type {
                *digits = Some(9);
            }
        }
        _ => {}
    }
}

/// The function that an operator calls.
fn function_of(op: &BinaryOperator) -> Option<&'static str> {
    match op {
        BinaryOperator::PGStartsWith => Some("starts_with"),
        BinaryOperator::PGOverlap => Some("array_has_any"),
        BinaryOperator::AtAt => Some("matches_term"),
        _ => None,
    }
}

fn rewritten(expression: &Expr) -> Result<Option<Expr>, SqlError> {
    if let Expr::BinaryOp { left, op, right } = expression
        && let Some(function) = function_of(op)
    {
        return Ok(Some(call(function, vec![*left.clone(), *right.clone()])));
    }
    // Types by the names of other databases.
    if let Expr::Cast { data_type, .. } = expression
        && let Some(target) = known_type(data_type)
    {
        let mut cast = expression.clone();
        if let Expr::Cast { data_type, .. } = &mut cast {
            *data_type = target;
        }
        return Ok(Some(rewritten(&cast)?.unwrap_or(cast)));
    }
    // Times and intervals.
    match expression {
        Expr::AtTimeZone { timestamp, time_zone } => {
            Ok(Some(call("timezone", vec![*time_zone.clone(), *timestamp.clone()])))
        }
        Expr::Cast { expr, data_type: DataType::Timestamp(None, _), .. } => {
            Ok(of_no_precision(expression, expr))
        }
        Expr::TypedString(typed) if matches!(typed.data_type, DataType::Timestamp(..)) => {
            let (DataType::Timestamp(None, zone), Value::SingleQuotedString(text)) =
                (&typed.data_type, &typed.value.value)
            else {
                return Ok(None);
            };
            let mut exact = typed.clone();
            exact.data_type = DataType::Timestamp(Some(if is_fine(text) { 9 } else { 6 }), *zone);
            Ok(Some(Expr::TypedString(exact)))
        }
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } if matches!(**expr, Expr::Interval(_)) => {
            let expr = Box::new(Expr::Nested(expr.clone()));
            Ok(Some(Expr::UnaryOp { op: UnaryOperator::Minus, expr }))
        }
        Expr::Interval(interval) => Ok(read_interval(&interval.value)
            .map(|value| Expr::Interval(Interval { value: Box::new(value), ..interval.clone() }))),
        Expr::Cast { expr, data_type: DataType::Interval { .. }, .. } => {
            Ok(read_interval(expr).map(|text| with_cast_of(expression, text)))
        }
        // More specific patterns precede the comparison of rows.
        Expr::BinaryOp { left, op, right } if is_match(op) => matched(left, op, right),
        Expr::BinaryOp { left, op: BinaryOperator::Overlaps, right } => overlaps(left, right),
        Expr::SimilarTo { negated, expr, pattern, escape_char } => {
            Ok(Some(similar(expr, pattern, escape_char.as_ref(), *negated)))
        }
        Expr::BinaryOp { left, op, right } => match (row(left), row(right)) {
            (Some(left), Some(right)) => compare(left, op, right),
            _ => Ok(exactly_compared(left, op, right)),
        },
        // LIKE with an escape character.
        Expr::Like { pattern, escape_char: Some(escape), .. }
        | Expr::ILike { pattern, escape_char: Some(escape), .. } => {
            escaped_by(expression, pattern, escape)
        }
        // Numbers and function calls.
        Expr::Value(_) => Ok(long_number(expression)),
        Expr::Function(function) => Ok(collected(function)?
            .or_else(|| rounded(function))
            .or_else(|| binned(function))
            .or_else(|| ordered_by_constant(function))
            .or_else(|| aged(function))
            .or_else(|| made_interval(function))
            .or_else(|| read_by_pattern(function))
            .or_else(|| spelled_out(function))),
        // Prefix operators that are functions here.
        Expr::UnaryOp { op: UnaryOperator::PGSquareRoot, expr } => {
            Ok(Some(call("sqrt", vec![*expr.clone()])))
        }
        Expr::UnaryOp { op: UnaryOperator::PGCubeRoot, expr } => {
            Ok(Some(call("cbrt", vec![*expr.clone()])))
        }
        Expr::UnaryOp { op: UnaryOperator::PGAbs, expr } => {
            Ok(Some(call("abs", vec![*expr.clone()])))
        }
        Expr::UnaryOp { op: UnaryOperator::BitwiseNot, expr } => {
            let ones = Expr::UnaryOp {
                op: UnaryOperator::Minus,
                expr: Box::new(Expr::Value(Value::Number("1".to_owned(), false).into())),
            };
            Ok(Some(nested(binary(nested(*expr.clone()), BinaryOperator::PGBitwiseXor, ones))))
        }
        // Casts of exact numbers.
        Expr::Cast { expr, data_type, .. } if is_decimal(data_type) => {
            Ok(decimal_cast(expression, expr, data_type))
        }
        Expr::TypedString(typed) if is_decimal(&typed.data_type) => Ok(typed_decimal(typed)),
        Expr::Cast { expr, data_type, .. } if is_integer(data_type) => {
            let exact = as_decimals(expr).filter(|(_, has_point)| *has_point);
            Ok(exact.map(|(exact, _)| with_cast_of(expression, exact)))
        }
        // Other comparisons of rows.
        Expr::IsDistinctFrom(left, right) => distinct(left, right),
        Expr::IsNotDistinctFrom(left, right) => {
            Ok(distinct(left, right)?.map(|distinct| not(nested(distinct))))
        }
        Expr::InList { expr, list, negated } => in_list(expr, list, *negated),
        Expr::Between { expr, negated, low, high } => between(expr, low, high, *negated),
        _ => Ok(None),
    }
}

/// BETWEEN of rows as two comparisons; none for single values.
fn between(
    expression: &Expr,
    low: &Expr,
    high: &Expr,
    is_negated: bool,
) -> Result<Option<Expr>, SqlError> {
    let (Some(value), Some(low), Some(high)) = (row(expression), row(low), row(high)) else {
        return Ok(None);
    };
    let least = compare(value.clone(), &BinaryOperator::GtEq, low)?;
    let most = compare(value, &BinaryOperator::LtEq, high)?;
    let in_bounds = least.zip(most).map(|(least, most)| binary(least, AND, most));
    Ok(in_bounds.map(|in_bounds| if is_negated { not(nested(in_bounds)) } else { in_bounds }))
}

/// `text [NOT] SIMILAR TO pattern [ESCAPE escape]`.
fn similar(text: &Expr, pattern: &Expr, escape: Option<&ValueWithSpan>, negated: bool) -> Expr {
    let mut args = vec![text.clone(), pattern.clone()];
    args.extend(escape.map(|escape| Expr::Value(escape.clone())));
    let similar = call("similar_to", args);
    if negated { not(similar) } else { similar }
}

/// `(start, end) OVERLAPS (start, end)`; instead of an end there may be an interval, which is added to the start.
fn overlaps(first: &Expr, second: &Expr) -> Result<Option<Expr>, SqlError> {
    let mut ends = Vec::with_capacity(4);
    for period in [first, second] {
        let Some([start, end]) = row(period).and_then(|ends| <[Expr; 2]>::try_from(ends).ok())
        else {
            let message = "OVERLAPS takes two periods of a start and an end";
            return Err(SqlError::new(crate::error::SYNTAX_ERROR, message));
        };
        let end = if is_interval(&end) {
            nested(binary(nested(start.clone()), BinaryOperator::Plus, nested(end)))
        } else {
            end
        };
        ends.extend([start, end]);
    }
    Ok(Some(call("overlaps", ends)))
}

/// Returns true if an expression is an interval by its syntax.
fn is_interval(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_interval(inner),
        Expr::Interval(_) | Expr::Cast { data_type: DataType::Interval { .. }, .. } => true,
        Expr::TypedString(typed) => matches!(typed.data_type, DataType::Interval { .. }),
        Expr::UnaryOp { expr, .. } => is_interval(expr),
        Expr::BinaryOp { left, right, .. } => is_interval(left) && is_interval(right),
        Expr::Function(function) => is_named(function, "make_interval"),
        _ => false,
    }
}

fn is_integer(data_type: &DataType) -> bool {
    use DataType::{BigInt, Int, Int2, Int4, Int8, Integer, SmallInt};
    matches!(data_type, SmallInt(_) | Int2(_) | Int(_) | Integer(_) | Int4(_) | BigInt(_) | Int8(_))
}

/// The same cast of another expression.
fn with_cast_of(cast: &Expr, operand: Expr) -> Expr {
    let mut cast = cast.clone();
    if let Expr::Cast { expr, .. } = &mut cast {
        **expr = operand;
    }
    cast
}

fn quoted(text: String) -> Expr {
    Expr::Value(Value::SingleQuotedString(text).into())
}

/// A text in PostgreSQL's interval syntax, in the planner's. A number without a unit is left alone: the unit may follow
/// the text.
fn read_interval(expression: &Expr) -> Option<Expr> {
    let Expr::Value(value) = expression else { return None };
    let Value::SingleQuotedString(text) = &value.value else { return None };
    if !text.contains(|letter: char| letter == ':' || letter.is_alphabetic())
        && !text.trim_start_matches('-').contains('-')
    {
        return None;
    }
    interval_text::parse(text).map(|interval| quoted(interval_text::written(interval)))
}

/// A cast of a number, or of the text of one, to a decimal. Exponents are expanded, and a cast without a precision gets
/// that of the number.
fn decimal_cast(cast: &Expr, operand: &Expr, target: &DataType) -> Option<Expr> {
    let text = match operand {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => plain_digits(text.trim())?,
            _ => number(operand).or_else(|| number_with_exponent(operand))?,
        },
        _ => number(operand).or_else(|| number_with_exponent(operand))?,
    };
    let mut written = with_cast_of(cast, quoted(text.clone()));
    let says_none = matches!(
        target,
        DataType::Decimal(ExactNumberInfo::None)
            | DataType::Numeric(ExactNumberInfo::None)
            | DataType::Dec(ExactNumberInfo::None)
    );
    if says_none && let Expr::Cast { data_type, .. } = &mut written {
        *data_type = DataType::Decimal(decimal_type(&text)?);
    }
    Some(written)
}

/// `DECIMAL '1.50'`, treated as a cast.
fn typed_decimal(typed: &TypedString) -> Option<Expr> {
    let operand = Expr::Value(typed.value.clone());
    let cast = Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(operand.clone()),
        data_type: typed.data_type.clone(),
        array: false,
        format: None,
    };
    decimal_cast(&cast, &operand, &typed.data_type)
}

/// The digits of a number that is written with an exponent.
fn number_with_exponent(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Nested(inner) => number_with_exponent(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            number_with_exponent(expr).map(|text| match text.strip_prefix('-') {
                Some(digits) => digits.to_owned(),
                None => format!("-{text}"),
            })
        }
        Expr::Value(value) => match &value.value {
            Value::Number(text, _) if text.contains(['e', 'E']) => plain_digits(text),
            _ => None,
        },
        _ => None,
    }
}

/// A number with its exponent expanded; `None` when it is no number, or has more digits than a decimal.
fn plain_digits(text: &str) -> Option<String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (digits, 0),
    };
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{part}");
    if digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_digit()) || exponent.abs() > 100 {
        return None;
    }
    let point = i64::try_from(whole.len()).ok()? + exponent;
    let padded = usize::try_from(-point).unwrap_or(0);
    let digits = format!("{}{digits}", "0".repeat(padded));
    let point = usize::try_from(point).unwrap_or(0);
    let missing = point.saturating_sub(digits.len());
    let digits = format!("{digits}{}", "0".repeat(missing));
    let (whole, part) = digits.split_at(point);
    let whole = if whole.is_empty() { "0" } else { whole };
    let text =
        if part.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{part}") };
    decimal_type(&text).map(|_| text)
}

/// Turns numbers with a point in the rows of an INSERT into decimals: PostgreSQL rounds decimals where they are
/// inserted into integers.
pub fn exact_rows(statement: &mut Statement) {
    let Statement::Query(query) = statement else { return };
    match query.body.as_mut() {
        SetExpr::Values(values) => {
            // A column of mixed types would be a column of doubles, or have too many digits.
            let alike = |column: usize| {
                let values = values.rows.iter().map(|row| row.content.get(column));
                values.flatten().all(|value| {
                    number(value).is_some()
                        || number_with_exponent(value).is_some()
                        || matches!(value, Expr::Value(value) if value.value == Value::Null)
                })
            };
            let width = values.rows.first().map_or(0, |row| row.content.len());
            let exact_columns: Vec<bool> = (0..width).map(alike).collect();
            for row in &mut values.rows {
                for (value, is_exact) in row.content.iter_mut().zip(&exact_columns) {
                    if *is_exact {
                        make_exact(value);
                    }
                }
            }
        }
        SetExpr::Select(select) => {
            for item in &mut select.projection {
                if let SelectItem::UnnamedExpr(value)
                | SelectItem::ExprWithAlias { expr: value, .. } = item
                {
                    make_exact(value);
                }
            }
        }
        _ => {}
    }
}

/// Turns a number with a point or an exponent into a decimal with the same digits.
pub(super) fn make_exact(value: &mut Expr) {
    let text = number(value).filter(|text| text.contains('.'));
    let Some(text) = text.or_else(|| number_with_exponent(value)) else { return };
    if let Some(data_type) = decimal_type(&text) {
        *value = Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(quoted(text)),
            data_type: DataType::Decimal(data_type),
            array: false,
            format: None,
        };
    }
}

/// LIKE with an escape character other than the backslash, or with none.
fn escaped_by(
    like: &Expr,
    pattern: &Expr,
    escape: &ValueWithSpan,
) -> Result<Option<Expr>, SqlError> {
    // The escape is one character or none.
    let Value::SingleQuotedString(escape) = &escape.value else { return Ok(None) };
    let invalid = || {
        SqlError::new("22025", "invalid escape string")
            .with_hint("Escape string must be empty or one character.")
    };
    let mut letters = escape.chars();
    let escape = letters.next();
    if letters.next().is_some() {
        return Err(invalid());
    }
    // A constant pattern is translated now, any other when the query runs.
    let written = match pattern {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => quoted(partita_worker::like_pattern(text, escape)?),
            _ => return Ok(None),
        },
        pattern => {
            let escape = quoted(escape.map(String::from).unwrap_or_default());
            call("like_pattern", vec![pattern.clone(), escape])
        }
    };
    // Both are written with backslashes, the planner's default.
    let mut like = like.clone();
    if let Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } =
        &mut like
    {
        **pattern = written;
        *escape_char = None;
    }
    Ok(Some(like))
}

/// Returns true if the text of a time has a precision finer than microseconds.
fn is_fine(text: &str) -> bool {
    let Some((_, fraction)) = text.split_once('.') else { return false };
    fraction.bytes().take_while(u8::is_ascii_digit).count() > 6
}

/// A cast to TIMESTAMP without a precision has microseconds, nanoseconds if the text has more digits. A number counts
/// milliseconds, as it does where it is inserted into such a column.
fn of_no_precision(cast: &Expr, operand: &Expr) -> Option<Expr> {
    let text = match operand {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        _ => None,
    };
    let is_number = number(operand).is_some_and(|text| !text.contains('.'));
    let mut exact = cast.clone();
    let Expr::Cast { data_type: DataType::Timestamp(digits, zone), .. } = &mut exact else {
        return None;
    };
    *digits = match text {
        Some(text) if is_fine(text) => Some(9),
        // Columns with a time zone have microseconds, and so has the cast.
        None if is_number && matches!(zone, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            Some(3)
        }
        _ => Some(6),
    };
    Some(exact)
}

/// A call of a function.
pub(super) fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args.into_iter().map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args.collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// Maximum digits of a decimal.
const DIGITS_MAX: u64 = 38;

fn is_decimal(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Decimal(_) | DataType::Numeric(_) | DataType::Dec(_))
}

/// Decimal digits that a double can represent exactly.
const DOUBLE_DIGITS: usize = 15;

/// A number that a double cannot represent, as a decimal.
fn long_number(expression: &Expr) -> Option<Expr> {
    let text = number(expression)?;
    let digits = text.trim_start_matches(['0', '.']).bytes().filter(u8::is_ascii_digit).count();
    // Integers have types of their own.
    let is_long = digits > DOUBLE_DIGITS && (text.contains('.') || text.parse::<u64>().is_err());
    if !is_long { None } else { as_decimals(expression).map(|(decimal, _)| decimal) }
}

/// `round(number, ..)` of an exact number.
fn rounded(function: &Function) -> Option<Expr> {
    let [name] = function.name.0.as_slice() else { return None };
    let FunctionArguments::List(list) = &function.args else { return None };
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(number_expr))) = list.args.first() else {
        return None;
    };
    if !name.as_ident()?.value.eq_ignore_ascii_case("round") || !number(number_expr)?.contains('.')
    {
        return None;
    }
    let (exact, _) = as_decimals(number_expr)?;
    let mut function = function.clone();
    if let FunctionArguments::List(list) = &mut function.args {
        list.args[0] = FunctionArg::Unnamed(FunctionArgExpr::Expr(exact));
    }
    Some(Expr::Function(function))
}

/// A call of `date_bin` with an interval instead of a text, and with an origin in nanoseconds, as the planner expects:
/// with any other origin it takes all times for nanoseconds, which end in 2262. Bins may begin between the ticks of a
/// column; so times are in microseconds where the step or the origin has a fraction.
fn binned(function: &Function) -> Option<Expr> {
    let [name] = function.name.0.as_slice() else { return None };
    if !name.as_ident()?.value.eq_ignore_ascii_case("date_bin") {
        return None;
    }
    // A fraction of a second in step or origin calls for microseconds.
    let mut function = function.clone();
    let FunctionArguments::List(list) = &mut function.args else { return None };
    let is_fine = [0, 2].into_iter().filter_map(|place| argument_of(list, place)).any(has_fraction);
    let mut expressions = list.args.iter_mut().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    });
    // The step.
    if let Some(step) = expressions.next().flatten()
        && is_text(step)
    {
        *step = Expr::Interval(Interval {
            value: Box::new(step.clone()),
            leading_field: None,
            leading_precision: None,
            last_field: None,
            fractional_seconds_precision: None,
        });
    }
    // The time.
    if let Some(time) = expressions.next().flatten()
        && is_fine
    {
        *time = call(partita_worker::IN_MICROSECONDS, vec![time.clone()]);
    }
    // The origin.
    match expressions.next().flatten() {
        Some(origin) if is_text(origin) => {
            *origin = Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(origin.clone()),
                data_type: DataType::Timestamp(Some(9), TimezoneInfo::None),
                array: false,
                format: None,
            };
        }
        Some(origin) => in_nanoseconds(origin),
        None => {}
    }
    Some(Expr::Function(function))
}

/// A call with rows ordered by a number, which is put in parentheses so that the planner takes it for a constant, not a
/// position.
fn ordered_by_constant(function: &Function) -> Option<Expr> {
    let mut function = function.clone();
    let mut has_constants = false;
    let mut keep = |keys: &mut Vec<OrderByExpr>| {
        for key in keys {
            if matches!(&key.expr, Expr::Value(value) if matches!(value.value, Value::Number(..))) {
                key.expr = Expr::Nested(Box::new(key.expr.clone()));
                has_constants = true;
            }
        }
    };
    if let FunctionArguments::List(list) = &mut function.args {
        for clause in &mut list.clauses {
            if let FunctionArgumentClause::OrderBy(keys) = clause {
                keep(keys);
            }
        }
    }
    keep(&mut function.within_group);
    if let Some(WindowType::WindowSpec(window)) = &mut function.over {
        keep(&mut window.order_by);
    }
    has_constants.then_some(Expr::Function(function))
}

/// Turns negated differences into differences with swapped operands; returns false when there are none. The planner
/// cannot negate a difference of times.
pub fn turn_differences(statement: &mut PlannerStatement) -> bool {
    let PlannerStatement::Statement(tree) = statement else { return false };
    let mut has_differences = false;
    let _: ControlFlow<()> = visit_expressions_mut(tree, |expression| {
        if let Expr::UnaryOp { op: UnaryOperator::Minus, expr } = expression
            && let Expr::Nested(inner) = expr.as_ref()
            && let Expr::BinaryOp { left, op: BinaryOperator::Minus, right } = inner.as_ref()
        {
            let turned =
                binary(nested(*right.clone()), BinaryOperator::Minus, nested(*left.clone()));
            *expression = Expr::Nested(Box::new(turned));
            has_differences = true;
        }
        ControlFlow::Continue(())
    });
    has_differences
}

/// The argument of a function at a position.
fn argument_of(list: &FunctionArgumentList, position: usize) -> Option<&Expr> {
    match list.args.get(position)? {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    }
}

/// Returns true if the text of a time or an interval has a fraction of a second.
fn has_fraction(expr: &Expr) -> bool {
    let value = match expr {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => return has_fraction(inner),
        Expr::Interval(interval) => return has_fraction(&interval.value),
        Expr::TypedString(typed) => &typed.value,
        Expr::Value(value) => value,
        _ => return false,
    };
    let Value::SingleQuotedString(text) = &value.value else { return false };
    text.contains('.') || text.contains("milli") || text.contains("micro") || text.contains("ms")
}

fn is_match(op: &BinaryOperator) -> bool {
    matches!(
        op,
        BinaryOperator::PGRegexMatch
            | BinaryOperator::PGRegexIMatch
            | BinaryOperator::PGRegexNotMatch
            | BinaryOperator::PGRegexNotIMatch
    )
}

/// A match with a regular expression: a constant pattern is translated to the syntax of the regex crate, any other one
/// by a function when it runs.
fn matched(left: &Expr, op: &BinaryOperator, right: &Expr) -> Result<Option<Expr>, SqlError> {
    if let Expr::Value(value) = right
        && let Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) = &value.value
    {
        let pattern = partita_worker::regular_pattern(text, "")?;
        let translated = || binary(left.clone(), op.clone(), quoted(pattern.to_string()));
        return Ok((pattern != *text).then(translated));
    }
    let ignores_case =
        matches!(op, BinaryOperator::PGRegexIMatch | BinaryOperator::PGRegexNotIMatch);
    let is_negated =
        matches!(op, BinaryOperator::PGRegexNotMatch | BinaryOperator::PGRegexNotIMatch);
    let flags = if ignores_case { "i" } else { "" };
    let call = call("regexp_matched", vec![left.clone(), right.clone(), quoted(flags.to_owned())]);
    Ok(Some(match is_negated {
        true => nested(Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(call) }),
        false => call,
    }))
}

/// Returns true if a function is called by this name, without a schema.
fn is_named(function: &Function, name: &str) -> bool {
    let [part] = function.name.0.as_slice() else { return false };
    part.as_ident().is_some_and(|ident| {
        if ident.quote_style.is_some() {
            ident.value == name
        } else {
            ident.value.eq_ignore_ascii_case(name)
        }
    })
}

/// `age(t)`, which counts from midnight of the current day.
fn aged(function: &Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(time))] if is_named(function, "age") => {
            Some(call("age", vec![call("current_date", Vec::new()), time.clone()]))
        }
        _ => None,
    }
}

/// `to_date(text, format)` and `to_timestamp(text, format)`; formats of the chrono crate, which have a `%`, are left to
/// the planner.
fn read_by_pattern(function: &Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let name = if is_named(function, "to_date") {
        "date_of_text"
    } else if is_named(function, "to_timestamp") {
        "instant_of_pattern"
    } else {
        return None;
    };
    match list.args.as_slice() {
        [
            FunctionArg::Unnamed(FunctionArgExpr::Expr(text)),
            FunctionArg::Unnamed(FunctionArgExpr::Expr(format)),
        ] => {
            let of_chrono = matches!(format, Expr::Value(value) if matches!(
                &value.value, Value::SingleQuotedString(format) if format.contains('%')));
            (!of_chrono).then(|| call(name, vec![text.clone(), format.clone()]))
        }
        _ => None,
    }
}

/// A call of `make_interval` with all its arguments by position.
fn made_interval(function: &Function) -> Option<Expr> {
    const NAMES: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];
    let FunctionArguments::List(list) = &function.args else { return None };
    if !is_named(function, "make_interval") || list.args.len() == NAMES.len() {
        return None;
    }
    let mut parts: [Option<Expr>; 7] = Default::default();
    for (position, argument) in list.args.iter().enumerate() {
        let (position, value) = match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => (position, value),
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => {
                let named_position =
                    NAMES.iter().position(|candidate| name.value.eq_ignore_ascii_case(candidate));
                (named_position?, value)
            }
            _ => return None,
        };
        *parts.get_mut(position)? = Some(value.clone());
    }
    let zero = || Expr::Value(Value::Number("0".to_owned(), false).into());
    let parts = parts.into_iter().map(|part| part.unwrap_or_else(zero));
    Some(call("make_interval", parts.collect()))
}

fn is_text(expression: &Expr) -> bool {
    matches!(expression, Expr::Value(value) if matches!(value.value, Value::SingleQuotedString(_)))
}

/// A number as written, without an exponent, with its sign; a long number has been rewritten as a cast before.
fn number(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Value(value) => match &value.value {
            Value::Number(text, _) if text.bytes().all(|c| c.is_ascii_digit() || c == b'.') => {
                Some(text.clone())
            }
            _ => None,
        },
        Expr::Nested(inner) => number(inner),
        // The rewritten form of a long number.
        Expr::Cast { kind: CastKind::Cast, expr, data_type: DataType::Decimal(info), .. } => {
            let Expr::Value(value) = expr.as_ref() else { return None };
            let Value::SingleQuotedString(text) = &value.value else { return None };
            decimal_type(text).is_some_and(|written| written == *info).then(|| text.clone())
        }
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            number(expr).filter(|text| !text.starts_with('-')).map(|text| format!("-{text}"))
        }
        _ => None,
    }
}

/// A comparison of constants with a point, or of sums and products of them, as a comparison of decimals.
fn exactly_compared(left: &Expr, op: &BinaryOperator, right: &Expr) -> Option<Expr> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    if !matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq) {
        return None;
    }
    let (left, left_has_point) = as_decimals(left)?;
    let (right, right_has_point) = as_decimals(right)?;
    (left_has_point || right_has_point).then(|| binary(left, op.clone(), right))
}

/// A constant with decimals in place of numbers, and whether one of them has a point.
fn as_decimals(expression: &Expr) -> Option<(Expr, bool)> {
    if let Some(text) = number(expression) {
        let scale_of = decimal_type(&text)?;
        let cast = Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(Expr::Value(Value::SingleQuotedString(text.clone()).into())),
            data_type: DataType::Decimal(scale_of),
            array: false,
            format: None,
        };
        return Some((cast, text.contains('.')));
    }
    match expression {
        Expr::Nested(inner) => {
            as_decimals(inner).map(|(inner, has_point)| (nested(inner), has_point))
        }
        Expr::BinaryOp { left, op, right }
            if matches!(
                op,
                BinaryOperator::Plus | BinaryOperator::Minus | BinaryOperator::Multiply
            ) =>
        {
            let (left, left_has_point) = as_decimals(left)?;
            let (right, right_has_point) = as_decimals(right)?;
            Some((binary(left, op.clone(), right), left_has_point || right_has_point))
        }
        _ => None,
    }
}

/// The precision and scale of a number as written; `None` if it is no number, or has too many digits.
fn decimal_type(text: &str) -> Option<ExactNumberInfo> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    if !whole.bytes().chain(part.bytes()).all(|c| c.is_ascii_digit()) {
        return None;
    }
    let scale = u64::try_from(part.len()).ok()?;
    let whole = u64::try_from(whole.trim_start_matches('0').len()).ok()?;
    let precision = (whole + scale).max(1);
    (precision <= DIGITS_MAX).then_some(())?;
    Some(ExactNumberInfo::PrecisionAndScale(precision, i64::try_from(scale).ok()?))
}

const AND: BinaryOperator = BinaryOperator::And;
const OR: BinaryOperator = BinaryOperator::Or;

/// The columns of a row: `(a, b)` or `ROW(a, b)`.
pub(super) fn row(expression: &Expr) -> Option<Vec<Expr>> {
    match expression {
        Expr::Tuple(columns) => Some(columns.clone()),
        Expr::Nested(inner) => row(inner),
        Expr::Function(function) => {
            let path = function.name.0.as_slice();
            let [name] = path else { return None };
            let name = name.as_ident().filter(|name| name.quote_style.is_none())?;
            let FunctionArguments::List(list) = &function.args else { return None };
            if !name.value.eq_ignore_ascii_case("row") {
                return None;
            }
            let columns = list.args.iter().map(|argument| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(column)) => Some(column.clone()),
                _ => None,
            });
            columns.collect()
        }
        _ => None,
    }
}

fn check(left: &[Expr], right: &[Expr]) -> Result<(), SqlError> {
    if left.len() != right.len() {
        return Err(SqlError::syntax("unequal number of entries in row expressions"));
    }
    if left.is_empty() {
        return Err(SqlError::syntax("cannot compare rows of zero length"));
    }
    if left.len() > ROW_COLUMNS_MAX {
        let message = format!("rows of more than {ROW_COLUMNS_MAX} columns cannot be compared");
        return Err(SqlError::new(STATEMENT_TOO_COMPLEX, message));
    }
    Ok(())
}

/// Rows are equal if all their columns are equal; a NULL makes the result NULL. Rows are ordered by the first columns
/// that differ.
fn compare(
    left: Vec<Expr>,
    op: &BinaryOperator,
    right: Vec<Expr>,
) -> Result<Option<Expr>, SqlError> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    if !matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq) {
        return Ok(None);
    }
    check(&left, &right)?;
    let pairs = left.into_iter().zip(right);
    let conditions = match op {
        Eq => joined(pairs.map(|(a, b)| binary(a, Eq, b)).collect(), &AND),
        NotEq => joined(pairs.map(|(a, b)| binary(a, NotEq, b)).collect(), &OR),
        ordered => {
            let strict = if matches!(ordered, Lt | LtEq) { Lt } else { Gt };
            pairs.rev().fold(None, |rest, (a, b)| {
                Some(match rest {
                    None => binary(a, ordered.clone(), b),
                    Some(rest) => {
                        let tie = binary(binary(a.clone(), Eq, b.clone()), AND, rest);
                        nested(binary(binary(a, strict.clone(), b), OR, tie))
                    }
                })
            })
        }
    };
    Ok(conditions.map(nested))
}

fn distinct(left: &Expr, right: &Expr) -> Result<Option<Expr>, SqlError> {
    let (Some(left), Some(right)) = (row(left), row(right)) else { return Ok(None) };
    check(&left, &right)?;
    let pairs = left.into_iter().zip(right);
    let differs =
        pairs.map(|(a, b)| Expr::IsDistinctFrom(Box::new(nested(a)), Box::new(nested(b))));
    Ok(joined(differs.collect(), &OR).map(nested))
}

fn in_list(expr: &Expr, list: &[Expr], negated: bool) -> Result<Option<Expr>, SqlError> {
    let Some(value) = row(expr) else { return Ok(None) };
    let mut equal = Vec::with_capacity(list.len());
    for member in list {
        let Some(member) = row(member) else { return Ok(None) };
        equal.extend(compare(value.clone(), &BinaryOperator::Eq, member)?);
    }
    Ok(joined(equal, &OR)
        .map(|condition| if negated { not(nested(condition)) } else { nested(condition) }))
}

/// Joins conditions into a tree of the least depth.
fn joined(mut parts: Vec<Expr>, op: &BinaryOperator) -> Option<Expr> {
    while parts.len() > 1 {
        let mut pairs = Vec::with_capacity(parts.len().div_ceil(2));
        let mut rest = parts.into_iter();
        while let Some(first) = rest.next() {
            pairs.push(match rest.next() {
                Some(right) => binary(first, op.clone(), right),
                None => first,
            });
        }
        parts = pairs;
    }
    parts.pop()
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

fn nested(inner: Expr) -> Expr {
    match inner {
        plain @ (Expr::Nested(_) | Expr::Identifier(_) | Expr::CompoundIdentifier(_)) => plain,
        Expr::Value(value) if !matches!(value.value, Value::Placeholder(_)) => Expr::Value(value),
        operand => Expr::Nested(Box::new(operand)),
    }
}

fn not(expr: Expr) -> Expr {
    Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(expr) }
}

#[cfg(test)]
mod tests {
    use super::super::statement::Statement;
    use crate::parser::parse;

    /// A query with its parts written as they mean, or the error's SQLSTATE.
    fn read(sql: &str) -> Result<String, String> {
        let mut statements = parse(sql).map_err(|error| error.sqlstate)?;
        match statements.pop() {
            Some(Statement::Query(query)) => Ok(query.statement.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rows_are_compared_column_by_column() {
        for (written, meant) in [
            ("(a, b) = (1, 2)", "(a = 1 AND b = 2)"),
            ("(a, b) <> (1, 2)", "(a <> 1 OR b <> 2)"),
            ("ROW(a, b) = row(1, 2)", "(a = 1 AND b = 2)"),
            ("(a, b) < (1, 2)", "(a < 1 OR a = 1 AND b < 2)"),
            ("(a, b, c) >= (1, 2, 3)", "(a > 1 OR a = 1 AND (b > 2 OR b = 2 AND c >= 3))"),
            ("(a, b) IN ((1, 2), (3, NULL))", "((a = 1 AND b = 2) OR (a = 3 AND b = NULL))"),
            ("(a, b) NOT IN ((1, 2))", "NOT (a = 1 AND b = 2)"),
            ("(a, b) IS DISTINCT FROM (1, 2)", "(a IS DISTINCT FROM 1 OR b IS DISTINCT FROM 2)"),
            (
                "(a, b) BETWEEN (1, 2) AND (3, 4)",
                "(a > 1 OR a = 1 AND b >= 2) AND (a < 3 OR a = 3 AND b <= 4)",
            ),
        ] {
            let read = read(&format!("SELECT {written}")).unwrap();
            assert_eq!(read, format!("SELECT {meant}"), "{written}");
        }
        assert_eq!(read("SELECT (1, 2) = (1, 2, 3)").unwrap_err(), "42601");
        let many = vec!["1"; 65].join(", ");
        assert_eq!(read(&format!("SELECT ({many}) = ({many})")).unwrap_err(), "54001");
    }

    #[test]
    fn operators_without_a_plan_of_their_own_are_functions() {
        for (written, meant) in [
            ("message @@ 'error'", "matches_term(message, 'error')"),
            ("lower(message) @@'error' AND a", "matches_term(lower(message), 'error') AND a"),
            ("a ^@ 'b'", "starts_with(a, 'b')"),
            ("a && b", "array_has_any(a, b)"),
        ] {
            assert_eq!(read(&format!("SELECT {written}")).unwrap(), format!("SELECT {meant}"));
        }
    }

    #[test]
    fn a_minus_is_of_the_whole_interval() {
        let read = read("SELECT -INTERVAL '1 day 2 hours'").unwrap();
        assert_eq!(read, "SELECT -(INTERVAL '1 days 7200000000000 nanoseconds')");
    }

    #[test]
    fn intervals_are_written_as_the_planner_reads_them() {
        for (written, meant) in [
            ("INTERVAL '3 days 04:05:06'", "INTERVAL '3 days 14706000000000 nanoseconds'"),
            ("INTERVAL '1-2'", "INTERVAL '14 months'"),
            ("'P1D'::INTERVAL", "'1 days'::INTERVAL"),
            ("INTERVAL '1' DAY", "INTERVAL '1' DAY"),
            ("INTERVAL '1 x'", "INTERVAL '1 x'"),
            ("a::INTERVAL", "a::INTERVAL"),
            (
                "date_bin('1 hour', ts, '2024-01-01')",
                "date_bin(INTERVAL '1 hour', ts, CAST('2024-01-01' AS TIMESTAMP(9)))",
            ),
            (
                "date_bin(a, ts, TIMESTAMP '2024-01-01')",
                "date_bin(a, ts, TIMESTAMP(9) '2024-01-01')",
            ),
        ] {
            assert_eq!(read(&format!("SELECT {written}")).unwrap(), format!("SELECT {meant}"));
        }
    }

    #[test]
    fn numbers_are_exact_where_they_are_cast_or_compared() {
        for (written, meant) in [
            ("12345678901234567890.12::DECIMAL(38, 2)", "'12345678901234567890.12'::DECIMAL(38,2)"),
            ("CAST(-1.005 AS NUMERIC(10, 2))", "CAST('-1.005' AS NUMERIC(10,2))"),
            ("1.5::DOUBLE", "1.5::DOUBLE"),
            ("1e3::DECIMAL(10, 2)", "'1000'::DECIMAL(10,2)"),
            ("a = 0.3", "a = 0.3"),
            ("a = 0.1234567890123456", "a = CAST('0.1234567890123456' AS DECIMAL(16,16))"),
            ("-99999999999999999999", "-CAST('99999999999999999999' AS DECIMAL(20,0))"),
            ("18446744073709551615", "18446744073709551615"),
            ("round(-1.005, 2)", "round(CAST('-1.005' AS DECIMAL(4,3)), 2)"),
            ("round(a, 2)", "round(a, 2)"),
            (
                "9007199254740993.0 = 1",
                "CAST('9007199254740993.0' AS DECIMAL(17,1)) = CAST('1' AS DECIMAL(1,0))",
            ),
            ("1 = 2", "1 = 2"),
            (
                "0.1 + 0.2 = 0.3",
                "CAST('0.1' AS DECIMAL(1,1)) + CAST('0.2' AS DECIMAL(1,1)) = CAST('0.3' AS DECIMAL(1,1))",
            ),
        ] {
            assert_eq!(read(&format!("SELECT {written}")).unwrap(), format!("SELECT {meant}"));
        }
    }

    #[test]
    fn is_distinct_from_takes_no_more_than_an_operand() {
        for (written, meant) in [
            ("a IS DISTINCT FROM b AND c", "(a IS DISTINCT FROM b) AND c"),
            ("a IS NOT DISTINCT FROM b OR c", "(a IS NOT DISTINCT FROM b) OR c"),
            ("a IS DISTINCT FROM b + 1 AND c", "(a IS DISTINCT FROM (b + 1)) AND c"),
            ("NOT a IS DISTINCT FROM b", "NOT (a IS DISTINCT FROM b)"),
        ] {
            let tree = |text: &str| {
                let mut statements = parse(&format!("SELECT {text}")).unwrap();
                let Some(Statement::Query(query)) = statements.pop() else { panic!("{text}") };
                // Parentheses are nodes of their own, so compare without them.
                let text = format!("{:?}", query.statement);
                text.split(|c: char| !c.is_alphanumeric())
                    .filter(|word| word.chars().all(|c| c.is_ascii_alphabetic()))
                    .filter(|word| !word.is_empty() && *word != "Nested")
                    .collect::<Vec<_>>()
                    .join(" ")
            };
            assert_eq!(tree(written), tree(meant), "{written}");
        }
    }
}

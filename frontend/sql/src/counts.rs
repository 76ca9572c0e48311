//! Counts of rows that a query gives as constants: offsets of window frames, LIMIT, OFFSET and FETCH.
//!
//! The planner takes such a number as written. One beyond 64 bits wraps around, a negative one is a syntax error, and a
//! frame that ends before it begins makes DataFusion read rows that do not exist. As in PostgreSQL
//!
//! ```text
//!   ROWS | GROUPS n PRECEDING         n is a bigint: beyond it 22003; negative 22013; NULL 22004; 1.5 is 2, 1 + 1 is 2
//!   RANGE n PRECEDING                 negative 22013; NULL 22004
//!   BETWEEN CURRENT ROW AND 1 PRECEDING    42P20
//!   BETWEEN 1 PRECEDING AND 2 PRECEDING    no rows
//!   ntile(n), nth_value(v, n)         n is positive: else 22014 and 22016
//!   LIMIT n, FETCH FIRST n            beyond a bigint 22003; negative 2201W; NULL is no limit
//!   OFFSET n                          beyond a bigint 22003; negative 2201X
//! ```
//!
//! Invariant: what is not a constant stays as it is.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    LimitClause, NamedWindowDefinition, NamedWindowExpr, ObjectNamePart, Query, Select,
    UnaryOperator, Value, VisitMut, VisitorMut, WindowFrame, WindowFrameBound, WindowFrameUnits,
    WindowSpec, WindowType,
};
use partita_worker::{interval_nanoseconds, interval_text};

use crate::error::{
    DATATYPE_MISMATCH, INVALID_TEXT, NULL_NOT_ALLOWED, NUMERIC_OUT_OF_RANGE, SqlError,
};

/// A negative offset of a frame.
const INVALID_FRAME_SIZE: &str = "22013";
/// A frame that cannot exist.
const WINDOWING_ERROR: &str = "42P20";
/// A negative LIMIT.
const INVALID_LIMIT: &str = "2201W";
/// A negative OFFSET.
const INVALID_OFFSET: &str = "2201X";
/// An argument of `ntile` that is not positive.
const INVALID_NTILE: &str = "22014";
/// An argument of `nth_value` that is not positive.
const INVALID_NTH_VALUE: &str = "22016";
/// A name where only constants are allowed.
const INVALID_COLUMN_REFERENCE: &str = "42P10";

/// Maximum digits of a number that is read exactly.
const DIGITS_MAX: usize = 37;

/// Checks the counts in a query or an expression, and writes them as plain numbers.
///
/// # Errors
/// A count that PostgreSQL refuses.
pub(super) fn check(tree: &mut impl VisitMut) -> Result<(), SqlError> {
    match tree.visit(&mut Counts) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Counts;

type Flow = ControlFlow<Box<SqlError>>;

fn flow(checked: Result<(), SqlError>) -> Flow {
    match checked {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(Box::new(error)),
    }
}

impl VisitorMut for Counts {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        flow(check_limits(query))
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        let windows = select.named_window.iter_mut();
        let checked = windows.map(|NamedWindowDefinition(_, window)| match window {
            NamedWindowExpr::WindowSpec(window) => check_window(window),
            NamedWindowExpr::NamedWindow(_) => Ok(()),
        });
        flow(checked.collect())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        flow(check_argument(function).and_then(|()| match &mut function.over {
            Some(WindowType::WindowSpec(window)) => check_window(window),
            _ => Ok(()),
        }))
    }
}

fn check_limits(query: &mut Query) -> Result<(), SqlError> {
    let no_limit = (INVALID_LIMIT, "LIMIT must not be negative");
    let no_offset = (INVALID_OFFSET, "OFFSET must not be negative");
    match &mut query.limit_clause {
        Some(LimitClause::LimitOffset { limit, offset, .. }) => {
            if let Some(limit) = limit {
                check_limit(limit, no_limit)?;
            }
            if let Some(offset) = offset {
                check_limit(&mut offset.value, no_offset)?;
            }
        }
        Some(LimitClause::OffsetCommaLimit { offset, limit }) => {
            check_limit(limit, no_limit)?;
            check_limit(offset, no_offset)?;
        }
        None => {}
    }
    match query.fetch.as_mut().and_then(|fetch| fetch.quantity.as_mut()) {
        Some(quantity) => check_limit(quantity, no_limit),
        None => Ok(()),
    }
}

/// Checks a number of rows, with the SQLSTATE and the message for a negative one.
fn check_limit(expr: &mut Expr, (sqlstate, message): (&str, &str)) -> Result<(), SqlError> {
    let count = match constant(expr) {
        Constant::Number(number) => bigint(number.rounded())?,
        Constant::Text(text) => bigint_of_text(&text)?,
        Constant::Null | Constant::Other => return Ok(()),
    };
    if count < 0 {
        return Err(SqlError::new(sqlstate, message));
    }
    *expr = number(count);
    Ok(())
}

/// Checks the argument of a window function that is a count.
fn check_argument(function: &Function) -> Result<(), SqlError> {
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return Ok(()) };
    let name = name.value.to_ascii_lowercase();
    let (position, sqlstate) = match name.as_str() {
        "ntile" => (0, INVALID_NTILE),
        "nth_value" => (1, INVALID_NTH_VALUE),
        _ => return Ok(()),
    };
    let FunctionArguments::List(list) = &function.args else { return Ok(()) };
    match list.args.get(position) {
        Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)))
            if function.over.is_some()
                && matches!(constant(argument), Constant::Number(number) if number.rounded() <= 0) =>
        {
            let message = format!("argument of {name} must be greater than zero");
            Err(SqlError::new(sqlstate, message))
        }
        _ => Ok(()),
    }
}

fn check_window(window: &mut WindowSpec) -> Result<(), SqlError> {
    let Some(frame) = &mut window.window_frame else { return Ok(()) };
    let start = check_bound(&mut frame.start_bound, frame.units, "starting")?;
    let end = match &mut frame.end_bound {
        Some(end) => check_bound(end, frame.units, "ending")?,
        None => Offset::None,
    };
    check_extent(frame)?;
    // Without an order the planner refuses a frame of another unit than rows.
    let has_order = frame.units == WindowFrameUnits::Rows
        || !window.order_by.is_empty()
        || window.window_name.is_some();
    if has_order && is_empty(frame, &start, &end) {
        *frame = empty_frame();
    }
    Ok(())
}

/// Refuses a frame whose bounds are of kinds that cannot follow each other.
fn check_extent(frame: &WindowFrame) -> Result<(), SqlError> {
    use WindowFrameBound::{CurrentRow, Following, Preceding};
    let refused = match (&frame.start_bound, &frame.end_bound) {
        (Following(None), _) => "frame start cannot be UNBOUNDED FOLLOWING",
        (_, Some(Preceding(None))) => "frame end cannot be UNBOUNDED PRECEDING",
        (CurrentRow, Some(Preceding(Some(_)))) => {
            "frame starting from current row cannot have preceding rows"
        }
        (Following(Some(_)), Some(Preceding(_) | CurrentRow)) => {
            "frame starting from following row cannot have preceding rows"
        }
        (Following(Some(_)), None) => {
            "frame starting from following row cannot end with current row"
        }
        _ => return Ok(()),
    };
    Err(SqlError::new(WINDOWING_ERROR, refused))
}

/// Returns true if the frame ends before it begins, for each row.
fn is_empty(frame: &WindowFrame, start: &Offset, end: &Offset) -> bool {
    use WindowFrameBound::{Following, Preceding};
    let order = start.compared_to(end);
    match (&frame.start_bound, &frame.end_bound) {
        (Preceding(_), Some(Preceding(_))) => order == Some(Ordering::Less),
        (Following(_), Some(Following(_))) => order == Some(Ordering::Greater),
        _ => false,
    }
}

/// A frame without any rows: it begins and ends so far before each row that no row is there.
fn empty_frame() -> WindowFrame {
    let distant = || WindowFrameBound::Preceding(Some(Box::new(number(i64::MAX))));
    WindowFrame {
        units: WindowFrameUnits::Rows,
        start_bound: distant(),
        end_bound: Some(distant()),
    }
}

/// The offset of a bound.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Offset {
    /// UNBOUNDED, CURRENT ROW, or not a constant.
    None,
    Number(Number),
    /// Nanoseconds of an interval.
    Span(i128),
}

impl Offset {
    fn compared_to(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Number(first), Self::Number(second)) => Some(first.compared_to(*second)),
            (Self::Span(first), Self::Span(second)) => Some(first.cmp(second)),
            _ => None,
        }
    }
}

fn check_bound(
    bound: &mut WindowFrameBound,
    units: WindowFrameUnits,
    side: &str,
) -> Result<Offset, SqlError> {
    let offset = match bound {
        WindowFrameBound::Preceding(Some(offset)) | WindowFrameBound::Following(Some(offset)) => {
            offset.as_mut()
        }
        _ => return Ok(Offset::None),
    };
    let value = constant(offset);
    if value == Constant::Null {
        let message = format!("frame {side} offset must not be null");
        return Err(SqlError::new(NULL_NOT_ALLOWED, message));
    }
    if units == WindowFrameUnits::Range {
        return check_distance(offset, value);
    }
    let count = match value {
        Constant::Number(number) => bigint(number.rounded())?,
        Constant::Text(text) => bigint_of_text(&text)?,
        Constant::Null | Constant::Other => return Err(not_a_count(offset, units)),
    };
    if count < 0 {
        let message = format!("frame {side} offset must not be negative");
        return Err(SqlError::new(INVALID_FRAME_SIZE, message));
    }
    *offset = number(count);
    Ok(Offset::Number(Number::whole(i128::from(count))))
}

/// Checks the offset of a RANGE: a number or an interval, depending on the type that it is added to.
fn check_distance(offset: &mut Expr, value: Constant) -> Result<Offset, SqlError> {
    let (distance, is_negative) = match value {
        Constant::Number(number) => (Offset::Number(number), number.units < 0),
        Constant::Text(text) => match interval_text::parse(&text) {
            Some(interval) => {
                let span = interval_nanoseconds(interval);
                (Offset::Span(span), span < 0)
            }
            None => return Ok(Offset::None),
        },
        Constant::Null | Constant::Other => return Ok(Offset::None),
    };
    if is_negative {
        let message = "invalid preceding or following size in window function";
        return Err(SqlError::new(INVALID_FRAME_SIZE, message));
    }
    if let Offset::Number(distance) = distance
        && !matches!(offset, Expr::Value(_))
        && distance.scale == 0
        && let Ok(count) = i64::try_from(distance.units)
    {
        *offset = number(count);
    }
    Ok(distance)
}

fn not_a_count(offset: &Expr, units: WindowFrameUnits) -> SqlError {
    match offset {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => SqlError::new(
            INVALID_COLUMN_REFERENCE,
            format!("argument of {units} must not contain variables"),
        ),
        Expr::Value(value) if !matches!(value.value, Value::Placeholder(_)) => {
            SqlError::new(DATATYPE_MISMATCH, format!("argument of {units} must be type bigint"))
        }
        _ => SqlError::unsupported(format!("an offset of {units} that is not a constant number")),
    }
}

/// A plain number.
fn number(count: i64) -> Expr {
    Expr::Value(Value::Number(count.to_string(), false).into())
}

fn bigint(number: i128) -> Result<i64, SqlError> {
    i64::try_from(number).map_err(|_| SqlError::new(NUMERIC_OUT_OF_RANGE, "bigint out of range"))
}

fn bigint_of_text(text: &str) -> Result<i64, SqlError> {
    let digits = text.trim();
    if let Ok(number) = digits.parse() {
        return Ok(number);
    }
    let unsigned = digits.strip_prefix(['-', '+']).unwrap_or(digits);
    if !unsigned.is_empty() && unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        let message = format!("value \"{digits}\" is out of range for type bigint");
        return Err(SqlError::new(NUMERIC_OUT_OF_RANGE, message));
    }
    let message = format!("invalid input syntax for type bigint: \"{text}\"");
    Err(SqlError::new(INVALID_TEXT, message))
}

/// A decimal number: units of 10^-scale.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Number {
    units: i128,
    /// At most [`DIGITS_MAX`].
    scale: u32,
}

impl Number {
    fn whole(units: i128) -> Self {
        Self { units, scale: 0 }
    }

    /// A number as written; `None` if it is not one. One with too many digits is only about as large.
    fn parse(text: &str) -> Option<Self> {
        let text = text.replace('_', "");
        let (whole, fraction) = text.split_once('.').unwrap_or((text.as_str(), ""));
        let fraction = fraction.trim_end_matches('0');
        let digits = format!("{whole}{fraction}");
        let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        if is_plain && (1..=DIGITS_MAX).contains(&digits.len()) {
            let scale = u32::try_from(fraction.len()).ok()?;
            return Some(Self { units: digits.parse().ok()?, scale });
        }
        let number: f64 = text.parse().ok()?;
        let units = format!("{number:.0}").parse().unwrap_or(i128::MAX);
        Some(Self::whole(units))
    }

    fn negated(self) -> Self {
        Self { units: self.units.saturating_neg(), ..self }
    }

    /// The nearest whole number; a half is rounded away from zero.
    fn rounded(self) -> i128 {
        let unit = 10_i128.pow(self.scale);
        let (whole, rest) = (self.units / unit, self.units % unit);
        if rest.abs() * 2 >= unit { whole.saturating_add(rest.signum()) } else { whole }
    }

    fn compared_to(self, other: Self) -> Ordering {
        let scale = self.scale.max(other.scale);
        let units = |number: Self| {
            number.units.saturating_mul(10_i128.saturating_pow(scale - number.scale))
        };
        units(self).cmp(&units(other))
    }
}

/// A constant in place of a count.
#[derive(Clone, Debug, PartialEq)]
enum Constant {
    Null,
    Number(Number),
    /// A text, or the text of an interval.
    Text(String),
    /// Not a constant, or one of another type.
    Other,
}

fn constant(expr: &Expr) -> Constant {
    match expr {
        Expr::Nested(inner) => constant(inner),
        Expr::Value(value) => match &value.value {
            Value::Null => Constant::Null,
            Value::Number(digits, _) => {
                Number::parse(digits).map_or(Constant::Other, Constant::Number)
            }
            Value::SingleQuotedString(text) => Constant::Text(text.clone()),
            _ => Constant::Other,
        },
        Expr::Interval(interval) => match constant(&interval.value) {
            Constant::Text(text) => Constant::Text(match &interval.leading_field {
                Some(field) => format!("{text} {field}"),
                None => text,
            }),
            _ => Constant::Other,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match constant(expr) {
            Constant::Number(number) => Constant::Number(number.negated()),
            Constant::Null => Constant::Null,
            _ => Constant::Other,
        },
        Expr::UnaryOp { op: UnaryOperator::Plus, expr } => match constant(expr) {
            Constant::Text(_) => Constant::Other,
            operand => operand,
        },
        Expr::BinaryOp { left, op, right } => computed(&constant(left), op, &constant(right)),
        Expr::Cast { expr, data_type, .. } => cast(constant(expr), data_type),
        _ => Constant::Other,
    }
}

/// The result of an operation on whole numbers.
fn computed(left: &Constant, op: &BinaryOperator, right: &Constant) -> Constant {
    let (Constant::Number(left), Constant::Number(right)) = (left, right) else {
        return Constant::Other;
    };
    if (left.scale, right.scale) != (0, 0) {
        return Constant::Other;
    }
    let units = match op {
        BinaryOperator::Plus => left.units.checked_add(right.units),
        BinaryOperator::Minus => left.units.checked_sub(right.units),
        BinaryOperator::Multiply => left.units.checked_mul(right.units),
        _ => None,
    };
    units.map_or(Constant::Other, |units| Constant::Number(Number::whole(units)))
}

fn cast(value: Constant, to: &DataType) -> Constant {
    let is_whole = matches!(
        to,
        DataType::SmallInt(_)
            | DataType::Int2(_)
            | DataType::Int(_)
            | DataType::Integer(_)
            | DataType::Int4(_)
            | DataType::BigInt(_)
            | DataType::Int8(_)
    );
    match value {
        Constant::Null => Constant::Null,
        Constant::Number(number) if is_whole => Constant::Number(Number::whole(number.rounded())),
        Constant::Text(text) if is_whole => {
            let whole = text.trim().parse().ok();
            whole.map_or(Constant::Other, |units| Constant::Number(Number::whole(units)))
        }
        _ => Constant::Other,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::Statement as PlannerStatement;

    use super::*;
    use crate::{Statement, parse};

    /// The text of a query after the check, or its SQLSTATE.
    fn checked(sql: &str) -> Result<String, String> {
        let parsed = parse(sql).map_err(|error| error.sqlstate)?.pop();
        let Some(Statement::Query(query)) = parsed else { panic!("{sql}") };
        let PlannerStatement::Statement(tree) = query.statement else { panic!("{sql}") };
        Ok(tree.to_string())
    }

    fn framed(frame: &str) -> Result<String, String> {
        let text = checked(&format!("SELECT sum(v) OVER (ORDER BY k {frame}) FROM t"))?;
        let frame = text.strip_prefix("SELECT sum(v) OVER (ORDER BY k ").expect("the same query");
        Ok(frame.strip_suffix(") FROM t").expect("the same query").to_owned())
    }

    #[test]
    fn offsets_of_frames_are_checked_as_in_postgresql() {
        for (frame, sqlstate) in [
            ("ROWS 9223372036854775808 PRECEDING", "22003"),
            ("ROWS 18446744073709551615 PRECEDING", "22003"),
            ("ROWS 1e30 PRECEDING", "22003"),
            ("GROUPS BETWEEN CURRENT ROW AND 99999999999999999999 FOLLOWING", "22003"),
            ("ROWS '9223372036854775808' PRECEDING", "22003"),
            ("ROWS -1 PRECEDING", "22013"),
            ("ROWS BETWEEN CURRENT ROW AND -9223372036854775808 FOLLOWING", "22013"),
            ("GROUPS '-1' PRECEDING", "22013"),
            ("RANGE -1 PRECEDING", "22013"),
            ("RANGE '-1 day' PRECEDING", "22013"),
            ("RANGE BETWEEN INTERVAL '1 day -25 hours' PRECEDING AND CURRENT ROW", "22013"),
            ("ROWS NULL PRECEDING", "22004"),
            ("GROUPS BETWEEN CURRENT ROW AND CAST(NULL AS BIGINT) FOLLOWING", "22004"),
            ("RANGE NULL PRECEDING", "22004"),
            ("ROWS 'x' PRECEDING", "22P02"),
            ("ROWS k PRECEDING", "42P10"),
            ("ROWS TRUE PRECEDING", "42804"),
            ("ROWS $1 PRECEDING", "0A000"),
            ("ROWS abs(1) PRECEDING", "0A000"),
            ("ROWS UNBOUNDED FOLLOWING", "42P20"),
            ("ROWS 1 FOLLOWING", "42P20"),
            ("ROWS BETWEEN 1 PRECEDING AND UNBOUNDED PRECEDING", "42P20"),
            ("ROWS BETWEEN CURRENT ROW AND 1 PRECEDING", "42P20"),
            ("GROUPS BETWEEN 1 FOLLOWING AND CURRENT ROW", "42P20"),
            ("RANGE BETWEEN 1 FOLLOWING AND 1 PRECEDING", "42P20"),
        ] {
            assert_eq!(framed(frame), Err(sqlstate.to_owned()), "{frame}");
        }
        let window = "SELECT sum(v) OVER w FROM t WINDOW w AS (ORDER BY k ROWS -1 PRECEDING)";
        assert_eq!(checked(window), Err("22013".to_owned()));
        for (call, sqlstate) in [("ntile(0)", "22014"), ("nth_value(v, -1)", "22016")] {
            let answer = checked(&format!("SELECT {call} OVER (ORDER BY k) FROM t"));
            assert_eq!(answer, Err(sqlstate.to_owned()), "{call}");
        }
        let nested = "SELECT * FROM t WHERE k IN (SELECT sum(v) OVER (ROWS NULL PRECEDING) FROM t)";
        assert_eq!(checked(nested), Err("22004".to_owned()));
    }

    #[test]
    fn constants_become_plain_numbers() {
        for (frame, expected) in [
            ("ROWS 9223372036854775807 PRECEDING", "ROWS 9223372036854775807 PRECEDING"),
            ("ROWS 1.5 PRECEDING", "ROWS 2 PRECEDING"),
            ("ROWS 1 + 2 * 3 PRECEDING", "ROWS 7 PRECEDING"),
            ("GROUPS CAST('2' AS BIGINT) PRECEDING", "GROUPS 2 PRECEDING"),
            ("ROWS '3' PRECEDING", "ROWS 3 PRECEDING"),
            ("RANGE (1 + 1) PRECEDING", "RANGE 2 PRECEDING"),
            ("RANGE 1.5 PRECEDING", "RANGE 1.5 PRECEDING"),
        ] {
            assert_eq!(framed(frame), Ok(expected.to_owned()), "{frame}");
        }
    }

    #[test]
    fn a_frame_that_ends_before_it_begins_has_no_rows() {
        let empty = "ROWS BETWEEN 9223372036854775807 PRECEDING AND 9223372036854775807 PRECEDING";
        for frame in [
            "ROWS BETWEEN 1 PRECEDING AND 2 PRECEDING",
            "ROWS BETWEEN 5 FOLLOWING AND 2 FOLLOWING",
            "GROUPS BETWEEN 5 FOLLOWING AND 2 FOLLOWING",
            "RANGE BETWEEN 1.25 PRECEDING AND 1.5 PRECEDING",
            "RANGE BETWEEN '2 days' FOLLOWING AND '47 hours' FOLLOWING",
            "RANGE BETWEEN INTERVAL '1 month' FOLLOWING AND INTERVAL '29' DAY FOLLOWING",
        ] {
            assert_eq!(framed(frame), Ok(empty.to_owned()), "{frame}");
        }
        let filled = "ROWS BETWEEN 2 PRECEDING AND 2 PRECEDING";
        assert_eq!(framed(filled), Ok(filled.to_owned()));
    }

    #[test]
    fn limits_are_checked_as_in_postgresql() {
        for (clause, sqlstate) in [
            ("LIMIT 9223372036854775808", "22003"),
            ("OFFSET 1e100", "22003"),
            ("FETCH FIRST 9223372036854775808 ROWS ONLY", "22003"),
            ("LIMIT -1", "2201W"),
            ("LIMIT 1 - 2", "2201W"),
            ("OFFSET -1", "2201X"),
            ("LIMIT 1 OFFSET '-1'", "2201X"),
            ("LIMIT 'x'", "22P02"),
        ] {
            assert_eq!(checked(&format!("SELECT k FROM t {clause}")), Err(sqlstate.to_owned()));
        }
        for (clause, expected) in [
            ("LIMIT 9223372036854775807", "LIMIT 9223372036854775807"),
            ("LIMIT '5' OFFSET 2.5", "LIMIT 5 OFFSET 3"),
            ("LIMIT NULL", "LIMIT NULL"),
            ("LIMIT $1", "LIMIT $1"),
        ] {
            let expected = format!("SELECT k FROM t {expected}");
            assert_eq!(checked(&format!("SELECT k FROM t {clause}")), Ok(expected));
        }
        let nested = "SELECT * FROM (SELECT k FROM t LIMIT -1) AS s";
        assert_eq!(checked(nested), Err("2201W".to_owned()));
    }

    #[test]
    fn numbers_are_rounded_and_compared_exactly() {
        let number = |text: &str| Number::parse(text).unwrap();
        for (text, rounded) in [("0.5", 1), ("0.49", 0), (".5", 1), ("2.", 2), ("1e2", 100)] {
            assert_eq!(number(text).rounded(), rounded, "{text}");
        }
        assert_eq!(number("2.5").negated().rounded(), -3);
        assert_eq!(number("1.25").compared_to(number("1.5")), Ordering::Less);
        assert_eq!(number("1.50").compared_to(number("1.5")), Ordering::Equal);
        assert_eq!(Number::parse("x"), None);
    }
}

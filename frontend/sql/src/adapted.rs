//! Rewrites PostgreSQL syntax that the planner reads differently, or not at all, into the planner's syntax.
//!
//! ```text
//!   0.1::FLOAT                    0.1::DOUBLE PRECISION
//!   s::VARCHAR(3)                 left(s::VARCHAR, 3)
//!   s::CHAR(3)                    blank_padded(s::VARCHAR, 3)
//!   a::INT[3]                     a::INT[], because the length of an array type means nothing
//!   date(ts)                      ts::DATE
//!   '{a,b}'::TEXT[]               ARRAY['a', 'b']::TEXT[]
//!   x = ANY ('{1,2}')             x = '1' OR x = '2', and so with other comparisons, ALL, and ARRAY[..]
//!   SELECT generate_series(1, 3)  SELECT unnest(generate_series(1, 3))
//!   SELECT regexp_matches(..)     SELECT unnest(regexp_all_matches(..)), and so with other functions of sets
//!   HAVING true                   HAVING (true) AND count(*) >= 0
//!   SELECT 1.50                   SELECT CAST('1.50' AS DECIMAL(3, 2)), and so in derived tables
//!   pg_typeof(1.50)               pg_typeof(CAST('1.50' AS DECIMAL(3, 2)))
//!   mod(a, 1.50)                  mod(a, CAST('1.50' AS DECIMAL(3, 2))), and so in NULLIF, CASE and others
//!   VALUES (a + b)                VALUES (listed_value(a + b)) (`partita_worker::ListedValues`)
//!   FETCH FIRST 3 ROWS ONLY       LIMIT 3
//!   LOCALTIMESTAMP                CAST(now() AS TIMESTAMP(6)), and LOCALTIME and CURRENT_TIME its time of day
//!   a[2:]                         a[2:2147483647]
//!   '{}'::JSON                    json_in('{}'), and so with JSONB (`json.rs`)
//!   regexp_replace(a, b, c, 1, 2) regexp_replace_nth(a, b, c, 1, 2)
//! ```
//!
//! Other numbers are made exact once the types beside them are known (`partita_worker::ExactNumbers`).
//!
//! This happens when a statement is planned: clients are shown the statement as they wrote it.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, Array, ArrayElemTypeDef, BinaryOperator, CastKind, CharacterLength, DataType,
    ExactNumberInfo, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, Interval, LimitClause, ObjectName, ObjectNamePart, Query, Select,
    SelectItem, SetExpr, Statement, Subscript, TableFactor, TimezoneInfo, UnaryOperator, Value,
    Visit, VisitMut, Visitor, VisitorMut, visit_expressions,
};

use partita_worker::functions::is_aggregate;
use partita_worker::{LISTED_VALUE, ROUNDED_INTERVAL, ROUNDED_TIME, elements_of, padded};

use super::from_functions;
use super::json;
use super::ordered_sets;
use super::rewritten::make_exact;
use super::shown_names::folded;
use super::wide_functions;
use crate::error::{STATEMENT_TOO_COMPLEX, SqlError};

/// Binary digits of the significand from which a FLOAT is a double.
const DOUBLE_DIGITS: u64 = 25;
/// Functions whose results are as exact as their arguments.
const EXACT: [&str; 7] = ["abs", "coalesce", "div", "greatest", "least", "mod", "nullif"];
/// Functions among them that return one of their arguments.
const CHOOSING: [&str; 4] = ["coalesce", "greatest", "least", "nullif"];
/// Most elements that a value is compared with; each becomes an expression of its own.
const ELEMENTS_MAX: usize = 10_000;

/// Rewrites a statement for the planner.
///
/// # Errors
/// When the text of an array is malformed, or has too many elements.
pub fn adapt(statement: &mut PlannerStatement) -> Result<(), SqlError> {
    let PlannerStatement::Statement(tree) = statement else { return Ok(()) };
    match tree.visit(&mut Adapted::default()) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

#[derive(Default)]
struct Adapted {
    /// Addresses of choices between numbers that are only shown: they keep their places while the tree is visited.
    shown_choices: Vec<*const Expr>,
}

impl VisitorMut for Adapted {
    type Break = Box<SqlError>;

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<Self::Break> {
        if let Statement::Query(query) = statement {
            exact_numbers(query);
            self.shown_choices = shown_choices(query);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        if let Err(error) = fetched(query) {
            return ControlFlow::Break(Box::new(error));
        }
        for table in query.with.iter_mut().flat_map(|clause| &mut clause.cte_tables) {
            exact_numbers(&mut table.query);
        }
        listed_values(&mut query.body);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<Self::Break> {
        if let TableFactor::Derived { subquery, .. } = table {
            exact_numbers(subquery);
        }
        let replaced = match wide_functions::adapted(table) {
            Ok(None) => from_functions::adapted(table),
            replaced => replaced,
        };
        match replaced {
            Ok(None) => {}
            Ok(Some(replacement)) => *table = replacement,
            Err(error) => return ControlFlow::Break(Box::new(error)),
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        if let Some(condition) = &mut select.having
            && is_constant(condition)
        {
            one_group(condition);
        }
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
                let _nothing_breaks = expr.visit(&mut Series { depth: 0 });
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if !self.shown_choices.contains(&std::ptr::from_ref(expr)) {
            make_results_exact(expr);
        }
        if let Expr::Cast { data_type, .. } = expr {
            without_lengths(data_type);
        }
        if let Expr::CompoundFieldAccess { access_chain, .. } = expr {
            access_chain.iter_mut().for_each(with_bounds);
        }
        match adapted(expr) {
            Ok(None) => {}
            Ok(Some(replacement)) => *expr = replacement,
            Err(error) => return ControlFlow::Break(Box::new(error)),
        }
        ControlFlow::Continue(())
    }
}

/// Gives a slice of an array the bounds that it leaves out.
fn with_bounds(access: &mut AccessExpr) {
    let AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, stride: None }) = access
    else {
        return;
    };
    let number = |position: i32| Expr::Value(Value::Number(position.to_string(), false).into());
    lower_bound.get_or_insert_with(|| number(1));
    // No array is longer.
    upper_bound.get_or_insert_with(|| number(i32::MAX));
}

/// Writes FETCH as LIMIT.
fn fetched(query: &mut Query) -> Result<(), SqlError> {
    let Some(fetch) = query.fetch.take() else { return Ok(()) };
    let one_row = || Expr::Value(Value::Number("1".to_owned(), false).into());
    let count = fetch.quantity.unwrap_or_else(one_row);
    let no_limit = LimitClause::LimitOffset { limit: None, offset: None, limit_by: Vec::new() };
    match query.limit_clause.get_or_insert(no_limit) {
        LimitClause::LimitOffset { limit, .. } if limit.is_none() => {
            *limit = Some(count);
            Ok(())
        }
        _ => Err(SqlError::syntax("multiple LIMIT clauses not allowed")),
    }
}

/// A call of a clock function, in the time zone of the session; the time of day only if `of_day`.
fn local_time(function: &Function, of_day: bool) -> Option<Expr> {
    let digits = match &function.args {
        FunctionArguments::None => 6,
        FunctionArguments::List(list) => match list.args.as_slice() {
            [] => 6,
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value)))] => {
                match &value.value {
                    Value::Number(digits, _) => digits.parse().ok()?,
                    _ => return None,
                }
            }
            _ => return None,
        },
        FunctionArguments::Subquery(_) => return None,
    };
    let instant = call("now", Vec::new());
    let local = as_type(instant, DataType::Timestamp(Some(digits), TimezoneInfo::None));
    Some(if of_day { as_type(local, DataType::Time(None, TimezoneInfo::None)) } else { local })
}

/// A call of `regexp_replace` that gives a start position, as a call of `regexp_replace_nth`.
fn replaced_nth(function: &Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let is_number = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::UnaryOp { expr, .. })) => {
            matches!(expr.as_ref(), Expr::Value(value) if matches!(value.value, Value::Number(..)))
        }
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value))) => {
            matches!(value.value, Value::Number(..))
        }
        _ => false,
    };
    // The fourth of four may be flags.
    match list.args.as_slice() {
        [_, _, _, start] if is_number(start) => {}
        [_, _, _, _, _] | [_, _, _, _, _, _] => {}
        _ => return None,
    }
    let mut function = function.clone();
    function.name = ObjectName::from(vec![Ident::new("regexp_replace_nth")]);
    Some(Expr::Function(function))
}

/// Makes numbers exact that are columns of a query by themselves. Operands of set operations and subqueries that are
/// compared with something are left out: there the numbers meet other types.
fn exact_numbers(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            make_exact(expr);
        }
    }
}

/// Choices between numbers with a point and other values that are columns of the result by themselves. A decimal has
/// the same number of digits in all rows, so that a whole number would be shown as 2.0 beside 1.5; as doubles both are
/// shown as in PostgreSQL. Keys of groups and of the order that are such a choice are among them.
fn shown_choices(query: &Query) -> Vec<*const Expr> {
    let SetExpr::Select(select) = query.body.as_ref() else { return Vec::new() };
    let items = select.projection.iter().filter_map(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    });
    let is_mixed = |expr: &&Expr| choices(expr).iter().any(|value| !is_exact(value));
    let mut finder =
        Shown { choices: items.filter(is_mixed).collect(), places: Vec::new(), aggregates: 0 };
    if finder.choices.is_empty() {
        return Vec::new();
    }
    // The planner finds an item among the keys of groups and of the order only if both are the same.
    let _: ControlFlow<()> = Visit::visit(&select.projection, &mut finder);
    let _: ControlFlow<()> = Visit::visit(&select.group_by, &mut finder);
    let _: ControlFlow<()> = Visit::visit(&select.having, &mut finder);
    let _: ControlFlow<()> = Visit::visit(&select.distinct, &mut finder);
    let _: ControlFlow<()> = Visit::visit(&query.order_by, &mut finder);
    finder.places
}

/// Finds choices that are shown wherever a query has them, but in aggregates, which compute with them.
struct Shown<'a> {
    choices: Vec<&'a Expr>,
    places: Vec<*const Expr>,
    /// Number of aggregates around the expression.
    aggregates: usize,
}

impl Visitor for Shown<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if is_aggregate_call(expr) {
            self.aggregates += 1;
        }
        if self.aggregates == 0 && self.choices.contains(&expr) {
            self.places.push(std::ptr::from_ref(expr));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if is_aggregate_call(expr) {
            self.aggregates -= 1;
        }
        ControlFlow::Continue(())
    }
}

/// Returns true for a call of an aggregate that is not a window.
fn is_aggregate_call(expr: &Expr) -> bool {
    let Expr::Function(Function { name, over: None, .. }) = expr else { return false };
    let name = name.0.last().and_then(ObjectNamePart::as_ident);
    name.is_some_and(|name| is_aggregate(&folded(name)))
}

/// The values among which an expression chooses; none if it computes another one.
fn choices(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::Case { conditions, else_result, .. } => {
            conditions.iter().map(|branch| &branch.result).chain(else_result.as_deref()).collect()
        }
        Expr::Function(Function {
            name, args: FunctionArguments::List(list), over: None, ..
        }) => match name.0.as_slice() {
            [ObjectNamePart::Identifier(name)] if CHOOSING.contains(&folded(name).as_str()) => {
                let values = list.args.iter().filter_map(|argument| match argument {
                    FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value),
                    _ => None,
                });
                values.collect()
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Returns true for NULL, a number with a point, and a value whose type is written.
fn is_exact(value: &Expr) -> bool {
    match value {
        Expr::Nested(operand) | Expr::UnaryOp { expr: operand, .. } => is_exact(operand),
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => digits.contains('.'),
            Value::Null => true,
            _ => false,
        },
        Expr::Cast { .. } => true,
        _ => false,
    }
}

/// Makes numbers exact that a function or a CASE may return, or compute with.
fn make_results_exact(expr: &mut Expr) {
    match expr {
        Expr::Case { conditions, else_result, .. } => {
            for branch in conditions {
                make_signed_exact(&mut branch.result);
            }
            if let Some(result) = else_result {
                make_signed_exact(result);
            }
        }
        Expr::Function(Function {
            name, args: FunctionArguments::List(list), over: None, ..
        }) => {
            let [ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return };
            if EXACT.contains(&folded(name).as_str()) {
                for argument in &mut list.args {
                    if let FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) = argument {
                        make_signed_exact(value);
                    }
                }
            }
        }
        _ => {}
    }
}

/// Makes a number exact that may have signs and parentheses.
fn make_signed_exact(value: &mut Expr) {
    match value {
        Expr::Nested(operand)
        | Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr: operand } => {
            make_signed_exact(operand);
        }
        _ => make_exact(value),
    }
}

/// Marks computed values of VALUES: their types are not known yet.
fn listed_values(body: &mut SetExpr) {
    match body {
        SetExpr::Values(values) => {
            for value in values.rows.iter_mut().flat_map(|row| &mut row.content) {
                if !is_plain(value) {
                    *value = call(LISTED_VALUE, vec![value.clone()]);
                }
            }
        }
        SetExpr::SetOperation { left, right, .. } => {
            listed_values(left);
            listed_values(right);
        }
        _ => {}
    }
}

/// Returns true if the type of a value is known without computing it.
fn is_plain(value: &Expr) -> bool {
    match value {
        Expr::Value(_) | Expr::Identifier(_) => true,
        Expr::UnaryOp { expr, .. } => matches!(expr.as_ref(), Expr::Value(_)),
        _ => false,
    }
}

/// Returns true if an expression names no column and calls no function.
fn is_constant(expr: &Expr) -> bool {
    let walk = visit_expressions(expr, |part| match part {
        Expr::Value(_) | Expr::Nested(_) | Expr::BinaryOp { .. } | Expr::UnaryOp { .. } => {
            ControlFlow::Continue(())
        }
        _ => ControlFlow::Break(()),
    });
    walk.is_continue()
}

/// Adds an aggregate to a condition over one group of all rows: only an aggregate tells the planner that there is a
/// group.
fn one_group(condition: &mut Expr) {
    let wildcard = FunctionArg::Unnamed(FunctionArgExpr::Wildcard);
    let mut count = call("count", Vec::new());
    if let Expr::Function(Function { args: FunctionArguments::List(list), .. }) = &mut count {
        list.args.push(wildcard);
    }
    let zero = Expr::Value(Value::Number("0".to_owned(), false).into());
    let counted =
        Expr::BinaryOp { left: Box::new(count), op: BinaryOperator::GtEq, right: Box::new(zero) };
    *condition = Expr::BinaryOp {
        left: Box::new(Expr::Nested(Box::new(condition.clone()))),
        op: BinaryOperator::And,
        right: Box::new(counted),
    };
}

/// Spreads the series of a select list over rows. Subqueries are left out: they have select lists of their own.
struct Series {
    depth: usize,
}

impl VisitorMut for Series {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        // A series that an inner visit has spread already is not spread twice.
        if let Some(spread) = spread_twice(expr) {
            *expr = spread;
        }
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        // Functions of sets become `unnest` of the array that holds their rows.
        if let Some(set) = set_of(expr) {
            *expr = call("unnest", vec![set]);
            return ControlFlow::Continue(());
        }
        if let Some(rows) = json::rows(expr) {
            *expr = rows;
            return ControlFlow::Continue(());
        }
        // In DataFusion `generate_series` returns a list, which `unnest` spreads over rows. Its third argument, the
        // step, must be an interval, so a step that is written as text becomes one.
        if named(expr) != Some("generate_series") {
            return ControlFlow::Continue(());
        }
        if let Expr::Function(Function { args: FunctionArguments::List(list), .. }) = expr
            && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(step))) = list.args.get_mut(2)
            && is_text(step).is_some()
        {
            let value = Box::new(step.clone());
            *step = Expr::Interval(Interval {
                value,
                leading_field: None,
                leading_precision: None,
                last_field: None,
                fractional_seconds_precision: None,
            });
        }
        *expr = call("unnest", vec![expr.clone()]);
        ControlFlow::Continue(())
    }
}

/// The call that returns the rows of a function of sets as one array.
fn set_of(expr: &Expr) -> Option<Expr> {
    let arrays = match named(expr)? {
        "regexp_matches" => "regexp_all_matches",
        "regexp_split_to_table" => "regexp_split_to_array",
        "string_to_table" => "string_to_array",
        _ => return None,
    };
    let Expr::Function(function) = expr else { return None };
    let mut function = function.clone();
    function.name = ObjectName::from(vec![Ident::new(arrays)]);
    Some(Expr::Function(function))
}

/// The argument of an `unnest` whose argument is an `unnest` itself: a series that was spread already.
fn spread_twice(expr: &Expr) -> Option<Expr> {
    let (outer, inner) = (unnested(expr)?, unnested(unnested(expr)?)?);
    (named(inner) == Some("generate_series")).then(|| outer.clone())
}

/// The argument of a call of `unnest`.
fn unnested(expr: &Expr) -> Option<&Expr> {
    let Expr::Function(function) = expr else { return None };
    let ([name], FunctionArguments::List(list)) = (function.name.0.as_slice(), &function.args)
    else {
        return None;
    };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))]
            if name.as_ident().is_some_and(|name| folded(name) == "unnest") =>
        {
            Some(argument)
        }
        _ => None,
    }
}

/// The name of a function that is called without a schema; only those that matter here.
fn named(expr: &Expr) -> Option<&'static str> {
    let Expr::Function(function) = expr else { return None };
    let [name] = function.name.0.as_slice() else { return None };
    let name = folded(name.as_ident()?);
    const KNOWN: [&str; 10] = [
        "generate_series",
        "current_time",
        "date",
        "localtime",
        "localtimestamp",
        "pg_typeof",
        "regexp_matches",
        "regexp_replace",
        "regexp_split_to_table",
        "string_to_table",
    ];
    KNOWN.into_iter().find(|candidate| *candidate == name)
}

fn adapted(expr: &Expr) -> Result<Option<Expr>, SqlError> {
    // Casts and functions that PostgreSQL calls otherwise.
    Ok(match expr {
        Expr::Cast {
            kind: CastKind::Cast | CastKind::DoubleColon,
            expr: operand,
            data_type,
            ..
        } => {
            return cast(expr, operand, data_type);
        }
        Expr::Function(Function { args: FunctionArguments::List(list), over: None, .. })
            if named(expr) == Some("date") =>
        {
            match list.args.as_slice() {
                [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] => {
                    Some(as_type(argument.clone(), DataType::Date))
                }
                _ => None,
            }
        }
        Expr::Function(function) if named(expr) == Some("localtimestamp") => {
            local_time(function, false)
        }
        Expr::Function(function) if matches!(named(expr), Some("localtime" | "current_time")) => {
            local_time(function, true)
        }
        Expr::Function(function) if named(expr) == Some("regexp_replace") => replaced_nth(function),
        Expr::Function(function) if named(expr) == Some("pg_typeof") => {
            let mut exact = function.clone();
            if let FunctionArguments::List(list) = &mut exact.args
                && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] =
                    list.args.as_mut_slice()
            {
                make_exact(argument);
            }
            Some(Expr::Function(exact))
        }
        Expr::Function(function) => {
            json::gathered(function).or_else(|| ordered_sets::over_array(function))
        }
        Expr::TypedString(typed) => json::typed(typed),
        // Comparisons with blank-padded texts and with the elements of arrays.
        Expr::BinaryOp { left, op, right } => without_blanks(left, op, right),
        Expr::AnyOp { left, compare_op, right, .. } => {
            each(left, compare_op, right, &BinaryOperator::Or)?
        }
        Expr::AllOp { left, compare_op, right } => {
            each(left, compare_op, right, &BinaryOperator::And)?
        }
        _ => None,
    })
}

/// Removes the lengths of array types, which PostgreSQL ignores. The planner would make arrays of this length, also for
/// NULL, and allocate memory for all their elements.
fn without_lengths(data_type: &mut DataType) {
    match data_type {
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, length)) => {
            *length = None;
            without_lengths(element);
        }
        DataType::Array(ArrayElemTypeDef::AngleBracket(element)) => without_lengths(element),
        DataType::Struct(fields, _) => {
            for field in fields {
                without_lengths(&mut field.field_type);
            }
        }
        _ => {}
    }
}

fn cast(whole: &Expr, operand: &Expr, data_type: &DataType) -> Result<Option<Expr>, SqlError> {
    // The same cast to another type.
    let retyped = |data_type: DataType| {
        let mut cast = whole.clone();
        if let Expr::Cast { data_type: target, .. } = &mut cast {
            *target = data_type;
        }
        cast
    };
    // FLOAT(n) has two widths, and the text of an array is read here.
    Ok(match data_type {
        DataType::Float(ExactNumberInfo::Precision(digits)) if *digits < DOUBLE_DIGITS => {
            Some(retyped(DataType::Real))
        }
        DataType::Float(_) => Some(retyped(DataType::DoublePrecision)),
        DataType::Array(ArrayElemTypeDef::SquareBracket(..)) => match is_text(operand) {
            Some(text) => Some(Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(array(elements_of(text)?)),
                data_type: data_type.clone(),
                array: false,
                format: None,
            }),
            None => None,
        },
        DataType::JSON | DataType::JSONB => json::cast(operand, data_type),
        // Times have microseconds; fewer digits are rounded.
        DataType::Time(
            Some(digits),
            zone @ (TimezoneInfo::None | TimezoneInfo::WithoutTimeZone),
        ) => {
            let time = retyped(DataType::Time(None, *zone));
            let count = Expr::Value(Value::Number(digits.to_string(), false).into());
            Some(if *digits < 6 { call(ROUNDED_TIME, vec![time, count]) } else { time })
        }
        DataType::Interval { fields: None, precision: Some(digits) } => {
            let interval = retyped(DataType::Interval { fields: None, precision: None });
            let count = Expr::Value(Value::Number((*digits).min(6).to_string(), false).into());
            Some(call(ROUNDED_INTERVAL, vec![interval, count]))
        }
        data_type => match length(data_type) {
            // VARCHAR(n) cuts and CHAR(n) pads its text.
            Some(length) => {
                let text = as_type(operand.clone(), DataType::Varchar(None));
                let length = Expr::Value(Value::Number(length.to_string(), false).into());
                let is_padded = matches!(data_type, DataType::Char(_) | DataType::Character(_));
                let name = if is_padded { padded::NAME } else { "left" };
                Some(call(name, vec![text, length]))
            }
            None => None,
        },
    })
}

/// A comparison of a CHAR(n) with a text literal: blanks at the end of either are ignored.
fn without_blanks(left: &Expr, op: &BinaryOperator, right: &Expr) -> Option<Expr> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    if !matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq) {
        return None;
    }
    let trimmed = |literal: &Expr, operand: &Expr| {
        let text = is_text(literal).filter(|text| text.ends_with(' '))?;
        let Expr::Function(Function { name, .. }) = operand else { return None };
        let name = name.0.last()?.as_ident()?;
        let text = text.trim_end_matches(' ').to_owned();
        (name.value == padded::NAME).then(|| Expr::Value(Value::SingleQuotedString(text).into()))
    };
    let (left, right) = match (trimmed(left, right), trimmed(right, left)) {
        (Some(trimmed), _) => (Box::new(trimmed), Box::new(right.clone())),
        (None, Some(trimmed)) => (Box::new(left.clone()), Box::new(trimmed)),
        (None, None) => return None,
    };
    Some(Expr::BinaryOp { left, op: op.clone(), right })
}

/// The maximum number of characters of a type, if it has one.
fn length(data_type: &DataType) -> Option<u64> {
    let (length, fixed) = match data_type {
        DataType::Varchar(length)
        | DataType::CharVarying(length)
        | DataType::CharacterVarying(length) => (length, false),
        DataType::Char(length) | DataType::Character(length) => (length, true),
        _ => return None,
    };
    match length {
        Some(CharacterLength::IntegerLength { length, .. }) => Some(*length),
        None if fixed => Some(1),
        _ => None,
    }
}

/// A comparison with the elements of an array that is written out, element by element.
fn each(
    left: &Expr,
    op: &BinaryOperator,
    right: &Expr,
    joint: &BinaryOperator,
) -> Result<Option<Expr>, SqlError> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    if !matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq) {
        return Ok(None);
    }
    let Some(members) = members(right)? else { return Ok(None) };
    if members.len() > ELEMENTS_MAX {
        let message = format!("a value cannot be compared with more than {ELEMENTS_MAX} elements");
        return Err(SqlError::new(STATEMENT_TOO_COMPLEX, message));
    }
    let is_any = *joint == BinaryOperator::Or;
    // As a list, which grows no deeper.
    let listed = match op {
        Eq => is_any,
        NotEq => !is_any,
        _ => false,
    };
    if listed && !members.is_empty() {
        let in_list =
            Expr::InList { expr: Box::new(left.clone()), list: members, negated: !is_any };
        return Ok(Some(Expr::Nested(Box::new(in_list))));
    }
    let mut parts: Vec<Expr> = members
        .into_iter()
        .map(|member| Expr::BinaryOp {
            left: Box::new(left.clone()),
            op: op.clone(),
            right: Box::new(member),
        })
        .collect();
    while parts.len() > 1 {
        let mut pairs = Vec::with_capacity(parts.len().div_ceil(2));
        let mut rest = parts.into_iter();
        while let Some(first) = rest.next() {
            pairs.push(match rest.next() {
                Some(second) => Expr::BinaryOp {
                    left: Box::new(first),
                    op: joint.clone(),
                    right: Box::new(second),
                },
                None => first,
            });
        }
        parts = pairs;
    }
    let whole = parts.pop().unwrap_or_else(|| Expr::Value(Value::Boolean(!is_any).into()));
    Ok(Some(Expr::Nested(Box::new(whole))))
}

/// The elements of an array that is written out: as a text, as ARRAY[..], or cast from one of these.
fn members(array: &Expr) -> Result<Option<Vec<Expr>>, SqlError> {
    Ok(match array {
        Expr::Nested(inner) => return members(inner),
        Expr::Array(Array { elem, .. }) if !elem.iter().any(|e| matches!(e, Expr::Array(_))) => {
            Some(elem.clone())
        }
        Expr::Cast {
            expr,
            data_type: DataType::Array(ArrayElemTypeDef::SquareBracket(element_type, _)),
            ..
        } if !matches!(**element_type, DataType::Array(_)) => {
            let members = members(expr)?;
            members.map(|members| {
                members
                    .into_iter()
                    .map(|member| as_type(member, element_type.as_ref().clone()))
                    .collect()
            })
        }
        expr => match is_text(expr) {
            Some(text) => {
                let texts = elements_of(text)?;
                Some(texts.into_iter().map(literal).collect())
            }
            None => None,
        },
    })
}

fn array(elements: Vec<Option<String>>) -> Expr {
    Expr::Array(Array { elem: elements.into_iter().map(literal).collect(), named: true })
}

fn literal(text: Option<String>) -> Expr {
    let value = text.map_or(Value::Null, Value::SingleQuotedString);
    Expr::Value(value.into())
}

fn is_text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Nested(inner) => is_text(inner),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

fn as_type(expr: Expr, data_type: DataType) -> Expr {
    let expr = Box::new(expr);
    Expr::Cast { kind: CastKind::Cast, expr, data_type, array: false, format: None }
}

fn call(name: &str, args: Vec<Expr>) -> Expr {
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

#[cfg(test)]
mod tests {
    use super::super::statement::Statement;
    use super::*;
    use crate::parser::parse;

    /// A query in the planner's words, or the error's SQLSTATE.
    fn adapted(sql: &str) -> Result<String, String> {
        let Some(Statement::Query(query)) = parse(sql).unwrap().pop() else { panic!("{sql}") };
        let mut statement = query.statement;
        adapt(&mut statement).map_err(|error| error.sqlstate)?;
        Ok(statement.to_string())
    }

    #[test]
    fn numbers_of_a_choice_are_exact_unless_it_is_only_shown() {
        for shown in [
            "SELECT coalesce(i, 0.5) FROM t",
            "SELECT CASE WHEN b THEN 1.5 ELSE 2 END AS x, greatest(i, 1.5) FROM t",
        ] {
            assert_eq!(adapted(shown).unwrap(), shown);
        }
        for exact in [
            "SELECT coalesce(i, 0.5) + i FROM t",
            "SELECT CASE WHEN b THEN 1.50 ELSE NULL END FROM t",
            "SELECT i FROM t WHERE CASE WHEN b THEN 0.1 ELSE i END > 0",
            "SELECT x FROM (SELECT greatest(i, 1.5) AS x FROM t) AS u",
            "SELECT mod(i, 1.5) FROM t",
        ] {
            let adapted = adapted(exact).unwrap();
            assert!(adapted.contains("AS DECIMAL("), "{adapted}");
        }
    }

    #[test]
    fn words_are_the_planners() {
        for (written, meant) in [
            ("0.1::FLOAT", "0.1::DOUBLE PRECISION"),
            ("CAST(a AS FLOAT(24))", "CAST(a AS REAL)"),
            ("CAST(a AS FLOAT(25))", "CAST(a AS DOUBLE PRECISION)"),
            ("a::VARCHAR(3)", "left(CAST(a AS VARCHAR), 3)"),
            ("a::CHAR", "blank_padded(CAST(a AS VARCHAR), 1)"),
            ("CAST(a AS CHARACTER(3))", "blank_padded(CAST(a AS VARCHAR), 3)"),
            ("a::CHAR(3) = 'b  '", "blank_padded(CAST(a AS VARCHAR), 3) = 'b'"),
            ("' b ' <> a::CHAR", "' b' <> blank_padded(CAST(a AS VARCHAR), 1)"),
            ("a = 'b '", "a = 'b '"),
            ("a::VARCHAR", "a::VARCHAR"),
            ("date(a)", "CAST(a AS DATE)"),
            ("'{a,\"b c\",NULL}'::TEXT[]", "CAST(ARRAY['a', 'b c', NULL] AS TEXT[])"),
            ("'{}'::INT[]", "CAST(ARRAY[] AS INT[])"),
            ("'{1}'::INT[2000000000]", "CAST(ARRAY['1'] AS INT[])"),
            ("CAST(NULL AS INT[2000000000][3])", "CAST(NULL AS INT[][])"),
            ("TRY_CAST(NULL AS INT[2000000000])", "TRY_CAST(NULL AS INT[])"),
            ("a = ANY ('{1,2}')", "(a IN ('1', '2'))"),
            ("a <> ALL (ARRAY[1, 2])", "(a NOT IN (1, 2))"),
            ("a > ALL ('{1,2}'::INT[])", "(a > CAST('1' AS INT) AND a > CAST('2' AS INT))"),
            ("a < ANY ('{}')", "(false)"),
            ("a = ALL ('{}')", "(true)"),
            ("a = ANY (b)", "a = ANY(b)"),
            ("a FROM t FETCH FIRST 3 ROWS ONLY", "a FROM t LIMIT 3"),
            ("a FROM t OFFSET 2 ROWS FETCH NEXT ROW ONLY", "a FROM t LIMIT 1 OFFSET 2 ROWS"),
            ("LOCALTIMESTAMP", "CAST(now() AS TIMESTAMP(6))"),
            ("LOCALTIMESTAMP(3)", "CAST(now() AS TIMESTAMP(3))"),
            ("CURRENT_TIME", "CAST(CAST(now() AS TIMESTAMP(6)) AS TIME)"),
            ("regexp_replace(a, 'b', 'c', 1)", "regexp_replace_nth(a, 'b', 'c', 1)"),
            ("regexp_replace(a, 'b', 'c', 'g')", "regexp_replace(a, 'b', 'c', 'g')"),
            (
                "* FROM unnest(ARRAY[1]) WITH ORDINALITY AS t (x, n)",
                "* FROM (SELECT c0, row_number() OVER () AS n FROM UNNEST(ARRAY[1]) AS u (c0)) AS t (x, n)",
            ),
            (
                "* FROM t, unnest(t.a, b) WITH ORDINALITY AS U (x, y, n)",
                "* FROM t, LATERAL (SELECT unnest(t.a) AS c0, unnest(b) AS c1, unnest(generate_series(1, \
                 greatest(CAST(cardinality(t.a) AS BIGINT), CAST(cardinality(b) AS BIGINT)))) AS n) AS u (x, y, n)",
            ),
            (
                "* FROM t CROSS JOIN LATERAL unnest(t.a) AS x",
                "* FROM t CROSS JOIN LATERAL (SELECT unnest(t.a) AS c0) AS x (x)",
            ),
            (
                "* FROM generate_series(1, $1) AS g",
                "* FROM (SELECT unnest(generate_series(1, CAST($1 AS BIGINT))) AS value) AS g",
            ),
            ("1.50", "CAST('1.50' AS DECIMAL(3,2))"),
            ("-1.50, 1e3, 1", "CAST('-1.50' AS DECIMAL(3,2)), CAST('1000' AS DECIMAL(4,0)), 1"),
            ("a FROM (SELECT 1.5 AS a)", "a FROM (SELECT CAST('1.5' AS DECIMAL(2,1)) AS a)"),
            ("1.5 UNION SELECT a", "1.5 UNION SELECT a"),
            ("a IN (SELECT 1.5), (SELECT 1.5)", "a IN (SELECT 1.5), (SELECT 1.5)"),
            ("pg_typeof(1.50)", "pg_typeof(CAST('1.50' AS DECIMAL(3,2)))"),
            ("generate_series(1, 3) + 1", "unnest(generate_series(1, 3)) + 1"),
            ("regexp_matches(a, b)", "unnest(regexp_all_matches(a, b))"),
            ("unnest(generate_series(1, 3))", "unnest(generate_series(1, 3))"),
            ("generate_series(a, b, '1 day')", "unnest(generate_series(a, b, INTERVAL '1 day'))"),
            (
                "(SELECT count(*) FROM generate_series(1, 3))",
                "(SELECT count(*) FROM generate_series(1, 3))",
            ),
        ] {
            let adapted = adapted(&format!("SELECT {written}")).unwrap();
            assert_eq!(adapted, format!("SELECT {meant}"), "{written}");
        }
    }
}

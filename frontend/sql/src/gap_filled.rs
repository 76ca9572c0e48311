//! `time_bucket_gapfill`, `locf` and `interpolate`, as in TimescaleDB: rows of aggregates, and rows for the buckets of time
//! without any.
//!
//! ```text
//!   SELECT time_bucket_gapfill('1 h', ts) AS t, host, avg(v), locf(max(v)) FROM .. GROUP BY t, host
//!
//!   gap_data    the aggregates by bucket and key                                       gap_bucket, gap_key1, gap_value1, ..
//!   gap_rows    each with the bucket and the values of the next row of its key         gap_next, gap_ahead1, ..
//!   gap_filled  each once for its own bucket (step 0) and for each one before the next gap_step
//!   the items   over these rows
//! ```
//!
//! The first row of a key also stands for the buckets from the start on (negative steps), the last one for those up to the
//! end. Start and end are arguments, or bounds of the time in WHERE; without them only gaps between rows are filled. An
//! aggregate is NULL in a filled row, `locf` repeats the one of the row before, and `interpolate` lies on the line to the
//! one of the next row.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, GroupByExpr, Ident, Query, Select, SelectItem, SetExpr, Value, VisitMut,
    VisitorMut, visit_expressions, visit_expressions_mut,
};
use datafusion::sql::sqlparser::parser::Parser;
use partita_worker::functions::is_aggregate;
use partita_worker::interval_text;

use super::identifier::quote;
use super::other_dialects::arguments_of;
use super::shown_names::{folded, given_name};
use super::tokens::Tokens;
use crate::error::{INVALID_PARAMETER_VALUE, SqlError};

/// Name of the function that makes the buckets.
const GAPFILL: &str = "time_bucket_gapfill";
/// Nanoseconds of a day.
const DAY_NS: i64 = 86_400_000_000_000;
/// Nanoseconds of a microsecond, the finest width of a bucket.
const MICROSECOND_NS: i64 = 1_000;
/// SQLSTATE of a column that is not grouped by.
pub(super) const GROUPING_ERROR: &str = "42803";

/// Fills the gaps of a query, and of those within it. `text` is the text of the query.
pub(super) fn rewrite(text: &str, query: &mut Query) -> Result<(), SqlError> {
    let mut windows = text.as_bytes().windows(GAPFILL.len());
    if !windows.any(|window| window.eq_ignore_ascii_case(GAPFILL.as_bytes())) {
        return Ok(());
    }
    match query.visit(&mut Queries) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Queries;

impl VisitorMut for Queries {
    type Break = Box<SqlError>;

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        match filled(query) {
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some(replacement)) => {
                *query = replacement;
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

/// The query without gaps; `None` if it has no buckets to fill.
fn filled(query: &mut Query) -> Result<Option<Query>, SqlError> {
    let SetExpr::Select(select) = query.body.as_ref() else { return Ok(None) };
    let buckets = |item: &SelectItem| expression_of(item).is_some_and(|(expr, _)| is_bucket(expr));
    let Some(bucket) = select.projection.iter().position(buckets) else { return Ok(None) };
    let text = Gaps::of(select, bucket)?.query(select);
    let mut replacement = parsed_query(&text)?;
    replacement.with = query.with.take();
    replacement.order_by = query.order_by.take();
    replacement.limit_clause = query.limit_clause.take();
    replacement.fetch = query.fetch.take();
    Ok(Some(replacement))
}

/// The parts of a query from which one without gaps is made, as SQL texts.
struct Gaps {
    /// Width of a bucket in microseconds.
    width: i64,
    time: String,
    start: Option<String>,
    /// End of the time, and whether it belongs to it.
    end: Option<(String, bool)>,
    keys: Vec<String>,
    /// Aggregates.
    values: Vec<String>,
    /// Select list over the filled rows.
    items: Vec<String>,
}

impl Gaps {
    fn of(select: &Select, bucket: usize) -> Result<Self, SqlError> {
        let is_plain = select.distinct.is_none()
            && select.top.is_none()
            && select.into.is_none()
            && select.qualify.is_none()
            && select.named_window.is_empty();
        if !is_plain {
            return Err(unsupported("DISTINCT, INTO and named windows"));
        }
        let arguments = select.projection.get(bucket).and_then(expression_of);
        let arguments = arguments.and_then(|(expr, _)| arguments_of(expr, GAPFILL));
        let arguments = arguments.unwrap_or_default();
        let (width, time, bounds) = match arguments.as_slice() {
            [width, time] => (width, time, None),
            [width, time, start, end] => (width, time, Some((start, end))),
            _ => {
                let message =
                    format!("{GAPFILL} takes a width and a time, or also a start and an end");
                return Err(SqlError::new(INVALID_PARAMETER_VALUE, message));
            }
        };
        let time = time.to_string();
        let (start, end) = match bounds {
            Some((start, end)) => (Some(start.to_string()), Some((end.to_string(), false))),
            None => bounds_of(select.selection.as_ref(), &time),
        };
        let mut gaps = Self {
            width: width_of(width)?,
            time,
            start,
            end,
            keys: Vec::new(),
            values: Vec::new(),
            items: Vec::new(),
        };
        let grouped = gaps.group(select)?;
        if !grouped.contains(&bucket) {
            let message = format!("GROUP BY must have {GAPFILL}");
            return Err(SqlError::new(GROUPING_ERROR, message));
        }
        for (position, item) in select.projection.iter().enumerate() {
            let Some((expr, alias)) = expression_of(item) else {
                return Err(unsupported("a wildcard"));
            };
            gaps.add_item(expr, alias, position == bucket, grouped.contains(&position))?;
        }
        Ok(gaps)
    }

    /// Positions of the select items that are grouped by. Other groups become keys.
    fn group(&mut self, select: &Select) -> Result<BTreeSet<usize>, SqlError> {
        let groups = match &select.group_by {
            GroupByExpr::Expressions(groups, modifiers) if modifiers.is_empty() => groups,
            _ => return Err(unsupported("GROUP BY ALL")),
        };
        let mut grouped = BTreeSet::new();
        for group in groups {
            if matches!(group, Expr::Rollup(_) | Expr::Cube(_) | Expr::GroupingSets(_)) {
                return Err(unsupported("grouping sets"));
            }
            let text = group.to_string();
            let is_meant = |(expr, alias): (&Expr, Option<&Ident>)| {
                let is_alias = match (group, alias) {
                    (Expr::Identifier(name), Some(alias)) => folded(name) == folded(alias),
                    _ => false,
                };
                is_alias || expr.to_string() == text
            };
            let matching = select
                .projection
                .iter()
                .map(expression_of)
                .position(|item| item.is_some_and(is_meant));
            match number_of(group).or(matching) {
                Some(position) => {
                    grouped.insert(position);
                }
                None => {
                    let _hidden = numbered(&mut self.keys, text);
                }
            }
        }
        Ok(grouped)
    }

    fn add_item(
        &mut self,
        expr: &Expr,
        alias: Option<&Ident>,
        is_bucket: bool,
        is_grouped: bool,
    ) -> Result<(), SqlError> {
        let text = if is_bucket {
            format!("gap_bucket + gap_step * INTERVAL '{} microseconds'", self.width)
        } else if has_aggregate(expr) {
            let mut value = expr.clone();
            match value.visit(&mut Outer { values: &mut self.values }) {
                ControlFlow::Continue(()) => value.to_string(),
                ControlFlow::Break(error) => return Err(*error),
            }
        } else if is_grouped || matches!(expr, Expr::Value(_)) {
            format!("gap_key{}", numbered(&mut self.keys, expr.to_string()))
        } else {
            let message = format!(
                "{expr} must appear in the GROUP BY clause or be used in an aggregate function"
            );
            return Err(SqlError::new(GROUPING_ERROR, message));
        };
        let name = match alias {
            Some(alias) => folded(alias),
            None => given_name(expr).unwrap_or_else(|| "?column?".to_owned()),
        };
        self.items.push(format!("{text} AS {}", quote(&name)));
        Ok(())
    }

    /// The whole query, without what follows its last clause of grouping.
    fn query(&self, select: &Select) -> String {
        let (keys, values) = (columns("gap_key", &self.keys), columns("gap_value", &self.values));
        let mut carried = vec!["gap_bucket".to_owned()];
        carried.extend(keys.iter().chain(&values).cloned());
        let mut rows = carried.clone();
        let partition = match keys.is_empty() {
            true => String::new(),
            false => format!("PARTITION BY {} ", keys.join(", ")),
        };
        let window = format!("OVER ({partition}ORDER BY gap_bucket)");
        rows.push(format!("row_number() {window} AS gap_number"));
        rows.push(format!("lead(gap_bucket) {window} AS gap_next"));
        let aheads = columns("gap_ahead", &self.values);
        for (value, ahead) in values.iter().zip(&aheads) {
            rows.push(format!("lead({value}) {window} AS {ahead}"));
        }
        carried.extend(aheads);
        let (low, high) = self.steps();
        carried.push(format!("{} AS gap_steps", self.steps_to("gap_next")));
        carried.push(format!("generate_series({low}, {high}) AS gap_step"));
        format!(
            "SELECT {} FROM (SELECT {} FROM (SELECT {} FROM ({}) AS gap_data) AS gap_rows) AS gap_filled",
            self.items.join(", "),
            carried.join(", "),
            rows.join(", "),
            self.data(select)
        )
    }

    /// The query of the aggregates, by bucket and key.
    fn data(&self, select: &Select) -> String {
        let mut items = vec![format!("{} AS gap_bucket", self.binned(&self.time))];
        let aliased = |prefix: &'static str| {
            move |(number, text): (usize, &String)| format!("{text} AS {prefix}{}", number + 1)
        };
        items.extend(self.keys.iter().enumerate().map(aliased("gap_key")));
        items.extend(self.values.iter().enumerate().map(aliased("gap_value")));
        let tables: Vec<String> = select.from.iter().map(ToString::to_string).collect();
        let groups: Vec<String> = (1..=self.keys.len() + 1).map(|n| n.to_string()).collect();
        let mut text = format!("SELECT {}", items.join(", "));
        if !tables.is_empty() {
            text.push_str(&format!(" FROM {}", tables.join(", ")));
        }
        if let Some(condition) = &select.selection {
            text.push_str(&format!(" WHERE {condition}"));
        }
        text.push_str(&format!(" GROUP BY {}", groups.join(", ")));
        if let Some(condition) = &select.having {
            text.push_str(&format!(" HAVING {condition}"));
        }
        text
    }

    fn binned(&self, time: &str) -> String {
        format!("date_bin(INTERVAL '{} microseconds', {time})", self.width)
    }

    /// Steps from the bucket of a row to another one.
    fn steps_to(&self, bucket: &str) -> String {
        let ticks = |time: &str| {
            format!("arrow_cast(arrow_cast({time}, 'Timestamp(Nanosecond, None)'), 'Int64')")
        };
        let width = self.width.saturating_mul(MICROSECOND_NS);
        format!("(({} - {}) / {width})", ticks(bucket), ticks("gap_bucket"))
    }

    /// The first and the last step of a row.
    fn steps(&self) -> (String, String) {
        let bound = |text: &str| format!("CAST(({text}) AS TIMESTAMP(9))");
        let low = match &self.start {
            Some(start) => {
                let steps = self.steps_to(&self.binned(&bound(start)));
                format!("CASE WHEN gap_number = 1 THEN least(0, {steps}) ELSE 0 END")
            }
            None => "0".to_owned(),
        };
        let last = match &self.end {
            Some((end, true)) => self.steps_to(&self.binned(&bound(end))),
            Some((end, false)) => {
                let last_moment = format!("{} - INTERVAL '1 microsecond'", bound(end));
                self.steps_to(&self.binned(&last_moment))
            }
            None => "0".to_owned(),
        };
        let next = self.steps_to("gap_next");
        let high =
            format!("CASE WHEN gap_next IS NULL THEN greatest(0, {last}) ELSE {next} - 1 END");
        (low, high)
    }
}

/// Replaces aggregates, and what carries them over gaps, by the columns of filled rows.
struct Outer<'a> {
    values: &'a mut Vec<String>,
}

impl VisitorMut for Outer<'_> {
    type Break = Box<SqlError>;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        let text = if let Some(arguments) = arguments_of(expr, "locf") {
            let [value] = arguments.as_slice() else {
                return ControlFlow::Break(Box::new(unsupported("locf with other arguments")));
            };
            let value = over_rows(value, "gap_value", self.values);
            format!("CASE WHEN gap_step >= 0 THEN {value} END")
        } else if let Some(arguments) = arguments_of(expr, "interpolate") {
            let [value] = arguments.as_slice() else {
                return ControlFlow::Break(Box::new(unsupported(
                    "interpolate with other arguments",
                )));
            };
            let ahead = over_rows(value, "gap_ahead", self.values);
            let value = over_rows(value, "gap_value", self.values);
            format!(
                "CASE WHEN gap_step = 0 THEN {value} WHEN gap_step > 0 \
                 THEN ({value}) + (({ahead}) - ({value})) * gap_step / gap_steps END"
            )
        } else if is_aggregate_call(expr) {
            let number = numbered(self.values, expr.to_string());
            format!("CASE WHEN gap_step = 0 THEN gap_value{number} END")
        } else {
            return ControlFlow::Continue(());
        };
        match parsed_expression(&text) {
            Ok(parsed) => *expr = Expr::Nested(Box::new(parsed)),
            Err(error) => return ControlFlow::Break(Box::new(error)),
        }
        ControlFlow::Continue(())
    }
}

/// An expression with columns in place of its aggregates.
fn over_rows(expr: &Expr, prefix: &str, values: &mut Vec<String>) -> String {
    let mut replaced = expr.clone();
    let _: ControlFlow<()> = visit_expressions_mut(&mut replaced, |part| {
        if is_aggregate_call(part) {
            let number = numbered(values, part.to_string());
            *part = Expr::Identifier(Ident::new(format!("{prefix}{number}")));
        }
        ControlFlow::Continue(())
    });
    replaced.to_string()
}

/// Number of a text in a list, from 1; a new one is added.
fn numbered(list: &mut Vec<String>, text: String) -> usize {
    match list.iter().position(|present| *present == text) {
        Some(position) => position + 1,
        None => {
            list.push(text);
            list.len()
        }
    }
}

fn columns(prefix: &str, texts: &[String]) -> Vec<String> {
    (1..=texts.len()).map(|number| format!("{prefix}{number}")).collect()
}

fn expression_of(item: &SelectItem) -> Option<(&Expr, Option<&Ident>)> {
    match item {
        SelectItem::UnnamedExpr(expr) => Some((expr, None)),
        SelectItem::ExprWithAlias { expr, alias } => Some((expr, Some(alias))),
        _ => None,
    }
}

fn is_bucket(expr: &Expr) -> bool {
    arguments_of(expr, GAPFILL).is_some()
}

/// The select item that a number in GROUP BY means.
fn number_of(group: &Expr) -> Option<usize> {
    let Expr::Value(value) = group else { return None };
    let Value::Number(text, _) = &value.value else { return None };
    text.parse::<usize>().ok()?.checked_sub(1)
}

pub(super) fn is_aggregate_call(expr: &Expr) -> bool {
    let Expr::Function(function) = expr else { return false };
    let [name] = function.name.0.as_slice() else { return false };
    let name = name.as_ident().map(folded);
    function.over.is_none() && name.is_some_and(|name| is_aggregate(&name))
}

pub(super) fn has_aggregate(expr: &Expr) -> bool {
    let visited = visit_expressions(expr, |part| match is_aggregate_call(part) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    });
    visited.is_break()
}

/// Width of a bucket in microseconds.
fn width_of(width: &Expr) -> Result<i64, SqlError> {
    let value = match width {
        Expr::Interval(interval) if interval.leading_field.is_none() => interval.value.as_ref(),
        width => width,
    };
    let text = match value {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        _ => None,
    };
    let interval = text.and_then(|text| interval_text::parse(text));
    let nanoseconds = interval.filter(|interval| interval.months == 0).and_then(|interval| {
        i64::from(interval.days).checked_mul(DAY_NS)?.checked_add(interval.nanoseconds)
    });
    match nanoseconds {
        Some(width) if width >= MICROSECOND_NS && width % MICROSECOND_NS == 0 => {
            Ok(width / MICROSECOND_NS)
        }
        _ => {
            let message =
                format!("the width of {GAPFILL} must be a constant interval without months");
            Err(SqlError::new(INVALID_PARAMETER_VALUE, message))
        }
    }
}

/// Start and end of a time by a condition; the end with true if it belongs to the time.
fn bounds_of(condition: Option<&Expr>, time: &str) -> (Option<String>, Option<(String, bool)>) {
    let (mut start, mut end) = (None, None);
    let mut pending: Vec<&Expr> = condition.into_iter().collect();
    while let Some(part) = pending.pop() {
        match part {
            Expr::Nested(inner) => pending.push(inner.as_ref()),
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                pending.extend([left.as_ref(), right.as_ref()]);
            }
            Expr::Between { expr, negated: false, low, high } if expr.to_string() == time => {
                start = Some(low.to_string());
                end = Some((high.to_string(), true));
            }
            Expr::BinaryOp { left, op, right } => {
                let (op, bound) = if left.to_string() == time {
                    (op.clone(), right)
                } else if right.to_string() == time {
                    (turned(op), left)
                } else {
                    continue;
                };
                match op {
                    BinaryOperator::Gt | BinaryOperator::GtEq => start = Some(bound.to_string()),
                    BinaryOperator::Lt => end = Some((bound.to_string(), false)),
                    BinaryOperator::LtEq => end = Some((bound.to_string(), true)),
                    _ => {}
                }
            }
            _ => {}
        }
    }
    (start, end)
}

/// The comparison with its sides exchanged.
fn turned(op: &BinaryOperator) -> BinaryOperator {
    match op {
        BinaryOperator::Gt => BinaryOperator::Lt,
        BinaryOperator::GtEq => BinaryOperator::LtEq,
        BinaryOperator::Lt => BinaryOperator::Gt,
        BinaryOperator::LtEq => BinaryOperator::GtEq,
        op => op.clone(),
    }
}

fn unsupported(feature: &str) -> SqlError {
    SqlError::unsupported(format!("{feature} beside {GAPFILL}"))
}

pub(super) fn parsed_query(text: &str) -> Result<Query, SqlError> {
    let mut tokens = Tokens::new(text, 0)?;
    let query = tokens.bounded(Parser::parse_query)?;
    tokens.expect_end()?;
    Ok(*query)
}

pub(super) fn parsed_expression(text: &str) -> Result<Expr, SqlError> {
    let mut tokens = Tokens::new(text, 0)?;
    let expression = tokens.expression()?;
    tokens.expect_end()?;
    Ok(expression)
}

#[cfg(test)]
mod tests {
    use crate::parse;

    fn written(sql: &str) -> String {
        let Some(crate::Statement::Query(query)) = parse(sql).unwrap().pop() else {
            panic!("{sql}")
        };
        query.statement.to_string()
    }

    #[test]
    fn gaps_are_filled_between_the_bounds_of_the_time() {
        let sql = written(
            "SELECT TIME_BUCKET_GAPFILL('1 minute', ts) AS t, host, avg(v), locf(max(v)) FROM cpu \
             WHERE ts >= '2026-01-01' AND ts < '2026-01-02' GROUP BY t, host ORDER BY t LIMIT 5",
        );
        for part in [
            "date_bin(INTERVAL '",
            "host AS gap_key1",
            "avg(v) AS gap_value1",
            "max(v) AS gap_value2",
            "PARTITION BY gap_key1 ORDER BY gap_bucket",
            "gap_number = 1",
            "ORDER BY t",
        ] {
            assert!(sql.contains(part), "{part}: {sql}");
        }
    }

    #[test]
    fn what_cannot_be_filled_is_refused() {
        for (sql, sqlstate) in [
            ("SELECT time_bucket_gapfill('1 month', ts) AS t, max(v) FROM cpu GROUP BY t", "22023"),
            ("SELECT time_bucket_gapfill('1 h', ts) AS t, max(v) FROM cpu GROUP BY host", "42803"),
            ("SELECT time_bucket_gapfill('1 h', ts) AS t, host FROM cpu GROUP BY t", "42803"),
            ("SELECT time_bucket_gapfill('1 h', ts) AS t, * FROM cpu GROUP BY t", "0A000"),
        ] {
            assert_eq!(parse(sql).unwrap_err().sqlstate, sqlstate, "{sql}");
        }
    }
}

//! Times in the session's time zone.
//!
//! ```text
//!   SET TIME ZONE ── Session (a Zone) ─┬─ doors: the zone of TIMESTAMPTZ in output and of parameters
//!                                      ├─ INSERT, COPY: texts and local times for TIMESTAMPTZ columns
//! └─ execution.time_zone ── ZonedTimes ── functions with the zone as an argument
//!                                                                              (nodes run them like any others)
//! ```
//!
//! A TIMESTAMPTZ is an instant: its type is in UTC in every session, by [`TimeTypes`]. Operations that PostgreSQL
//! performs in the session's zone are written into the plan by [`ZonedTimes`], once types are known:
//!
//! | planned | becomes, in a session with a zone other than UTC |
//! |---|---|
//! | a text, a TIMESTAMP or a DATE cast to TIMESTAMPTZ | the instant of that local time |
//! | a TIMESTAMPTZ cast to TIMESTAMP, DATE or TIME | the local time of that instant |
//! | `extract`, `to_char` | the same of the local time |
//! | `date_trunc(step, t)` | `date_trunc(step, t, zone)` |
//! | `make_timestamptz(year, ..)` | the same with the zone |
//! | `t + interval`, with months or days | `instant_plus(t, interval, zone)` |
//!
//! In every session, texts are parsed to the unit that holds them (`TIMESTAMP '2300-01-01'` does not fit
//! nanoseconds), and values are cast to text in PostgreSQL's format (`text_of`).
//!
//! Invariants:
//! - an expression keeps its type;
//! - a TIMESTAMP compared with `now()` is in UTC, in every session (`partita_worker::NOW_ZONE`).

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, TimeUnit};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::logical_expr::{
    BinaryExpr, Cast, Expr, ExprSchemable, Operator, ScalarUDF, TryCast, lit,
};
use datafusion::sql::sqlparser::ast::{DataType as SqlType, TimezoneInfo};
use partita_proto::schema::UUID;
use partita_worker::moments::{Moment, parse_date, ticks};
use partita_worker::{NOW_ZONE, Zone, call_with_zone, text_of, zoned};

/// Types of times, independent of the session: TIMESTAMPTZ is in UTC. Without a precision they have microseconds, as
/// in PostgreSQL. Also UUID, which the planner does not know.
#[derive(Debug)]
pub(crate) struct TimeTypes;

impl TypePlanner for TimeTypes {
    fn plan_type_field(&self, sql_type: &SqlType) -> Result<Option<FieldRef>> {
        if matches!(sql_type, SqlType::Uuid) {
            return Ok(Some(Arc::new(Field::new("", UUID, true))));
        }
        if let SqlType::Time(None | Some(6), TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) =
            sql_type
        {
            let time = DataType::Time64(TimeUnit::Microsecond);
            return Ok(Some(Arc::new(Field::new("", time, true))));
        }
        let SqlType::Timestamp(precision, zone) = sql_type else { return Ok(None) };
        let unit = match precision {
            None | Some(6) => TimeUnit::Microsecond,
            Some(0) => TimeUnit::Second,
            Some(3) => TimeUnit::Millisecond,
            Some(9) => TimeUnit::Nanosecond,
            Some(_) => return Ok(None),
        };
        let zoned = matches!(zone, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone);
        let data_type = DataType::Timestamp(unit, zoned.then(|| "UTC".into()));
        Ok(Some(Arc::new(Field::new("", data_type, true))))
    }
}

/// Applies the session's time zone; see the head of the file. Apply it once types are coerced.
#[derive(Debug)]
pub(crate) struct ZonedTimes;

impl FunctionRewrite for ZonedTimes {
    fn name(&self) -> &'static str {
        "zoned_times"
    }

    fn rewrite(
        &self,
        expression: Expr,
        schema: &DFSchema,
        options: &ConfigOptions,
    ) -> Result<Transformed> {
        let zone_name = options.execution.time_zone.as_deref();
        let zone = zone_name.and_then(Zone::of_arrow).unwrap_or(Zone::UTC);
        let rewriting = Rewriting { schema, zone };
        let rewritten = match &expression {
            Expr::Cast(Cast { expr, field }) => {
                rewriting.text_literal(expr, field.data_type()).map_or_else(
                    || rewriting.cast(expr, field.data_type()),
                    |literal| Ok(Some(literal)),
                )?
            }
            Expr::TryCast(TryCast { expr, field }) if !is_text(expr, schema) => {
                rewriting.cast(expr, field.data_type())?
            }
            Expr::ScalarFunction(call) if !zone.is_utc() => rewriting.call(call)?,
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if !zone.is_utc() => {
                rewriting.arithmetic(left, *op, right)?
            }
            _ => None,
        };
        Ok(match rewritten {
            Some(rewritten) => Transformed::yes(rewritten),
            None => Transformed::no(expression),
        })
    }
}

type Transformed = datafusion::common::tree_node::Transformed<Expr>;

fn is_text(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|data_type| data_type.is_string())
}

fn call(function: ScalarUDF, args: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), args))
}

fn cast(expr: Expr, data_type: &DataType) -> Expr {
    Expr::Cast(Cast::new(Box::new(expr), data_type.clone()))
}

struct Rewriting<'a> {
    schema: &'a DFSchema,
    zone: Zone,
}

impl Rewriting<'_> {
    fn type_of(&self, expr: &Expr) -> Option<DataType> {
        expr.get_type(self.schema).ok()
    }

    /// Returns true if an expression is an instant.
    fn is_instant(&self, expr: &Expr) -> bool {
        matches!(self.type_of(expr), Some(DataType::Timestamp(_, Some(_))))
    }

    fn zone(&self) -> Expr {
        lit(self.zone.to_string())
    }

    /// `timezone(zone, time)`.
    fn moved(&self, time: Expr) -> Expr {
        call(zoned::timezone(), vec![self.zone(), time])
    }

    /// A text as a literal of a time type, or of the next coarser unit that holds it with a cast to the type.
    fn text_literal(&self, expr: &Expr, target: &DataType) -> Option<Expr> {
        let Expr::Literal(text, _) = expr else { return None };
        if *target == DataType::Date32 {
            return Some(lit(ScalarValue::Date32(Some(parse_date(text.try_as_str()??)?))));
        }
        let DataType::Timestamp(unit, zoned) = target else { return None };
        let moment = Moment::parse(text.try_as_str()??)?;
        let nanos =
            if zoned.is_some() { moment.instant(self.zone) } else { moment.local(self.zone) };
        let literal = |unit: TimeUnit| {
            let ticks = Some(ticks(nanos, unit)?);
            let zoned = zoned.clone();
            Some(lit(match unit {
                TimeUnit::Second => ScalarValue::TimestampSecond(ticks, zoned),
                TimeUnit::Millisecond => ScalarValue::TimestampMillisecond(ticks, zoned),
                TimeUnit::Microsecond => ScalarValue::TimestampMicrosecond(ticks, zoned),
                TimeUnit::Nanosecond => ScalarValue::TimestampNanosecond(ticks, zoned),
            }))
        };
        literal(*unit).or_else(|| Some(cast(literal(TimeUnit::Microsecond)?, target)))
    }

    fn cast(&self, expr: &Expr, target: &DataType) -> Result<Option<Expr>> {
        let Some(source) = self.type_of(expr) else { return Ok(None) };
        let operand = || expr.clone();
        Ok(match (&source, target) {
            _ if let Some(text) = text_of(&operand(), &source, target, self.zone) => Some(text),
            _ if self.zone.is_utc() => None,
            (DataType::Timestamp(_, None), DataType::Timestamp(_, Some(zone))) => {
                (zone.as_ref() != NOW_ZONE).then(|| cast(self.moved(operand()), target))
            }
            (DataType::Date32, DataType::Timestamp(_, Some(_))) => {
                let midnight = cast(operand(), &DataType::Timestamp(TimeUnit::Second, None));
                Some(cast(self.moved(midnight), target))
            }
            (source, DataType::Timestamp(_, Some(_))) if source.is_string() => {
                Some(cast(call(zoned::instant_of_text(), vec![operand(), self.zone()]), target))
            }
            (
                DataType::Timestamp(_, Some(_)),
                DataType::Timestamp(_, None)
                | DataType::Date32
                | DataType::Date64
                | DataType::Time32(_)
                | DataType::Time64(_),
            ) => Some(cast(self.moved(operand()), target)),
            _ => None,
        })
    }

    fn call(&self, function: &ScalarFunction) -> Result<Option<Expr>> {
        let with_args = |args: Vec<Expr>| {
            Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&function.func), args))
        };
        if let Some(zoned) = call_with_zone(function, self.zone) {
            return Ok(Some(zoned));
        }
        Ok(match (function.func.name(), function.args.as_slice()) {
            ("date_part" | "extract", [part, time]) if self.is_instant(time) => {
                // The seconds since 1970 are the same in every zone.
                let is_epoch = matches!(part, Expr::Literal(part, _)
                    if part.try_as_str().flatten().is_some_and(|part| part.eq_ignore_ascii_case("epoch")));
                (!is_epoch).then(|| with_args(vec![part.clone(), self.moved(time.clone())]))
            }
            ("date_trunc", [step, time]) if self.is_instant(time) => {
                Some(with_args(vec![step.clone(), time.clone(), self.zone()]))
            }
            ("instant_of_pattern", [text, format]) => {
                Some(with_args(vec![text.clone(), format.clone(), self.zone()]))
            }
            // Local time in the session's zone.
            ("make_timestamptz", parts @ [_, _, _, _, _, _]) => {
                let mut args = parts.to_vec();
                args.push(self.zone());
                Some(with_args(args))
            }
            ("to_char", [time, format]) => match self.type_of(time) {
                Some(DataType::Timestamp(unit, Some(_))) => {
                    let local_type = DataType::Timestamp(unit, Some(self.zone.arrow().into()));
                    Some(with_args(vec![cast(time.clone(), &local_type), format.clone()]))
                }
                _ => None,
            },
            _ => None,
        })
    }

    /// Adds or subtracts an interval with days or months in the session's zone.
    fn arithmetic(&self, lhs: &Expr, op: Operator, rhs: &Expr) -> Result<Option<Expr>> {
        let is_interval = |expr: &Expr| {
            let counts_days = !matches!(expr, Expr::Literal(
            ScalarValue::IntervalMonthDayNano(Some(interval)), _) if interval.months == 0 && interval.days == 0);
            let data_type = self.type_of(expr);
            counts_days && data_type == Some(DataType::Interval(IntervalUnit::MonthDayNano))
        };
        let (function, time, interval) = match op {
            Operator::Plus if self.is_instant(lhs) && is_interval(rhs) => {
                (zoned::instant_plus(), lhs, rhs)
            }
            Operator::Plus if self.is_instant(rhs) && is_interval(lhs) => {
                (zoned::instant_plus(), rhs, lhs)
            }
            Operator::Minus if self.is_instant(lhs) && is_interval(rhs) => {
                (zoned::instant_minus(), lhs, rhs)
            }
            _ => return Ok(None),
        };
        Ok(Some(call(function, vec![time.clone(), interval.clone(), self.zone()])))
    }
}

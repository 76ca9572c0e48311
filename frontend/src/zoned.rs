//! Times in a session's zone.
//!
//! ```text
//!   SET TIME ZONE ── Session (a Zone) ─┬─ doors: what a TIMESTAMPTZ is shown in, and parameters are read in
//!                                      ├─ INSERT, COPY: texts and local times for TIMESTAMPTZ columns
//!                                      └─ execution.time_zone ── ZonedTimes ── functions with the zone as an argument
//!                                                                              (nodes run them as any others)
//! ```
//!
//! A TIMESTAMPTZ is an instant: its type says UTC in every session, here by [`TimeTypes`]. What PostgreSQL does in the
//! session's zone with it is written by [`ZonedTimes`] into the plan, once types are known:
//!
//! | planned | becomes, in a session of another zone than UTC |
//! |---|---|
//! | a text, a TIMESTAMP or a DATE cast to TIMESTAMPTZ | the instant of that local time |
//! | a TIMESTAMPTZ cast to TIMESTAMP, DATE or TIME | the local time of that instant |
//! | `extract`, `to_char` | the same of the local time |
//! | `date_trunc(step, t)` | `date_trunc(step, t, zone)` |
//! | `make_timestamptz(year, ..)` | the same with the zone |
//! | `t + interval`, with months or days | `instant_plus(t, interval, zone)` |
//!
//! In every session, texts are read to the unit that holds them (`TIMESTAMP '2300-01-01'` has no nanoseconds), and
//! values are cast to text as PostgreSQL writes them (`text_of`).
//!
//! Invariants:
//! - an expression keeps its type;
//! - a TIMESTAMP beside `now()` is one in UTC, in every session (`partita_worker::NOW_ZONE`).

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
use partita_worker::moments::{Moment, parse_date, ticks};
use partita_worker::{NOW_ZONE, Zone, call_with_zone, text_of, zoned};

/// The types of times, which do not depend on the session: TIMESTAMPTZ says UTC. Without a precision they have
/// microseconds, as in PostgreSQL.
#[derive(Debug)]
pub(crate) struct TimeTypes;

impl TypePlanner for TimeTypes {
    fn plan_type_field(&self, of: &SqlType) -> Result<Option<FieldRef>> {
        let SqlType::Timestamp(precision, zone) = of else { return Ok(None) };
        let unit = match precision {
            None | Some(6) => TimeUnit::Microsecond,
            Some(0) => TimeUnit::Second,
            Some(3) => TimeUnit::Millisecond,
            Some(9) => TimeUnit::Nanosecond,
            Some(_) => return Ok(None),
        };
        let zoned = matches!(zone, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone);
        let of = DataType::Timestamp(unit, zoned.then(|| "UTC".into()));
        Ok(Some(Arc::new(Field::new("", of, true))))
    }
}

/// See the head of the file; to be applied once types are coerced.
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
        let named = options.execution.time_zone.as_deref();
        let zone = named.and_then(Zone::of_arrow).unwrap_or(Zone::UTC);
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

fn is_text(of: &Expr, schema: &DFSchema) -> bool {
    of.get_type(schema).is_ok_and(|of| of.is_string())
}

fn call(function: ScalarUDF, args: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), args))
}

fn cast(of: Expr, to: &DataType) -> Expr {
    Expr::Cast(Cast::new(Box::new(of), to.clone()))
}

struct Rewriting<'a> {
    schema: &'a DFSchema,
    zone: Zone,
}

impl Rewriting<'_> {
    fn type_of(&self, of: &Expr) -> Option<DataType> {
        of.get_type(self.schema).ok()
    }

    /// Whether it is an instant.
    fn is_instant(&self, of: &Expr) -> bool {
        matches!(self.type_of(of), Some(DataType::Timestamp(_, Some(_))))
    }

    fn zone(&self) -> Expr {
        lit(self.zone.to_string())
    }

    /// `timezone(zone, of)`.
    fn moved(&self, of: Expr) -> Expr {
        call(zoned::timezone(), vec![self.zone(), of])
    }

    /// A text as a literal of a time's type, or of the next coarser unit that holds it, cast to that type.
    fn text_literal(&self, of: &Expr, to: &DataType) -> Option<Expr> {
        let Expr::Literal(text, _) = of else { return None };
        if *to == DataType::Date32 {
            return Some(lit(ScalarValue::Date32(Some(parse_date(text.try_as_str()??)?))));
        }
        let DataType::Timestamp(unit, zoned) = to else { return None };
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
        literal(*unit).or_else(|| Some(cast(literal(TimeUnit::Microsecond)?, to)))
    }

    fn cast(&self, of: &Expr, to: &DataType) -> Result<Option<Expr>> {
        let Some(from) = self.type_of(of) else { return Ok(None) };
        let of = || of.clone();
        Ok(match (&from, to) {
            _ if let Some(text) = text_of(&of(), &from, to, self.zone) => Some(text),
            _ if self.zone.is_utc() => None,
            (DataType::Timestamp(_, None), DataType::Timestamp(_, Some(zone))) => {
                (zone.as_ref() != NOW_ZONE).then(|| cast(self.moved(of()), to))
            }
            (DataType::Date32, DataType::Timestamp(_, Some(_))) => {
                let midnight = cast(of(), &DataType::Timestamp(TimeUnit::Second, None));
                Some(cast(self.moved(midnight), to))
            }
            (from, DataType::Timestamp(_, Some(_))) if from.is_string() => {
                Some(cast(call(zoned::instant_of_text(), vec![of(), self.zone()]), to))
            }
            (
                DataType::Timestamp(_, Some(_)),
                DataType::Timestamp(_, None)
                | DataType::Date32
                | DataType::Date64
                | DataType::Time32(_)
                | DataType::Time64(_),
            ) => Some(cast(self.moved(of()), to)),
            _ => None,
        })
    }

    fn call(&self, of: &ScalarFunction) -> Result<Option<Expr>> {
        let with = |args: Vec<Expr>| {
            Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&of.func), args))
        };
        if let Some(zoned) = call_with_zone(of, self.zone) {
            return Ok(Some(zoned));
        }
        Ok(match (of.func.name(), of.args.as_slice()) {
            ("date_part" | "extract", [part, time]) if self.is_instant(time) => {
                // The seconds since 1970 are the same everywhere.
                let is_epoch = matches!(part, Expr::Literal(part, _)
                    if part.try_as_str().flatten().is_some_and(|part| part.eq_ignore_ascii_case("epoch")));
                (!is_epoch).then(|| with(vec![part.clone(), self.moved(time.clone())]))
            }
            ("date_trunc", [step, time]) if self.is_instant(time) => {
                Some(with(vec![step.clone(), time.clone(), self.zone()]))
            }
            ("instant_of_pattern", [text, format]) => {
                Some(with(vec![text.clone(), format.clone(), self.zone()]))
            }
            // What the session's clocks show.
            ("make_timestamptz", parts @ [_, _, _, _, _, _]) => {
                let mut args = parts.to_vec();
                args.push(self.zone());
                Some(with(args))
            }
            ("to_char", [time, format]) => match self.type_of(time) {
                Some(DataType::Timestamp(unit, Some(_))) => {
                    let shown = DataType::Timestamp(unit, Some(self.zone.arrow().into()));
                    Some(with(vec![cast(time.clone(), &shown), format.clone()]))
                }
                _ => None,
            },
            _ => None,
        })
    }

    /// An instant and an interval that counts days.
    fn arithmetic(&self, left: &Expr, op: Operator, right: &Expr) -> Result<Option<Expr>> {
        let is_interval = |of: &Expr| {
            let counts_days = !matches!(of, Expr::Literal(
                ScalarValue::IntervalMonthDayNano(Some(of)), _) if of.months == 0 && of.days == 0);
            let of = self.type_of(of);
            counts_days && of == Some(DataType::Interval(IntervalUnit::MonthDayNano))
        };
        let (function, time, interval) = match op {
            Operator::Plus if self.is_instant(left) && is_interval(right) => {
                (zoned::instant_plus(), left, right)
            }
            Operator::Plus if self.is_instant(right) && is_interval(left) => {
                (zoned::instant_plus(), right, left)
            }
            Operator::Minus if self.is_instant(left) && is_interval(right) => {
                (zoned::instant_minus(), left, right)
            }
            _ => return Ok(None),
        };
        Ok(Some(call(function, vec![time.clone(), interval.clone(), self.zone()])))
    }
}

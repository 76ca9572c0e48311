//! Intervals compare by their length: a month is 30 days and a day 24 hours, as in PostgreSQL.
//!
//! An interval has months, days and nanoseconds, and DataFusion compares them in this order: 25 hours are then less than
//! a day, and so is the difference of two times years apart, which has no days. [`IntervalOrder`] puts
//! `interval_total(..)`, the length in nanoseconds, in the place of each interval that is compared, once types are
//! known; it is a number, which all operators compare rightly.
//!
//! ```text
//!   a < b, BETWEEN, IN, CASE a WHEN b, ORDER BY, PARTITION BY, JOIN    of their lengths
//!   GROUP BY a, DISTINCT a       of its length, and the first a of each group is shown
//!   max(a), min(a)               the last or first a in the order of its length (`extremes.rs`)
//!   greatest(a, b), least(a, b)  likewise
//! ```
//!
//! Invariants:
//! - columns keep their names and types;
//! - what cannot be written so is refused by name.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use arrow::compute::cast;
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, DurationMicrosecondType, DurationMillisecondType,
    DurationNanosecondType, DurationSecondType, IntervalMonthDayNano, IntervalMonthDayNanoType,
    IntervalUnit, TimeUnit,
};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ScalarValue, exec_err, not_impl_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::{
    AggregateFunction, AggregateFunctionParams, InList, InSubquery, ScalarFunction, SetComparison,
    WindowFunction,
};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Aggregate, Between, BinaryExpr, Case, Cast, ColumnarValue, Distinct, Expr, ExprSchemable,
    LogicalPlan, LogicalPlanBuilder, Operator, Projection, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, SortExpr, Subquery, Volatility, lit,
};
use datafusion::optimizer::AnalyzerRule;

use crate::extremes;
use crate::functions::REGISTRY;

const TOTAL: &str = "interval_total";
const NANOS_OF_DAY: i128 = 86_400_000_000_000;
const DAYS_OF_MONTH: i128 = 30;
/// Nanoseconds; the longest interval has 25 digits of them.
const NANOS: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);

/// The length of an interval as a function.
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(Total { signature: Signature::any(1, Volatility::Immutable) })
}

/// `interval_total(interval or difference of times)`: nanoseconds.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Total {
    signature: Signature,
}

impl ScalarUDFImpl for Total {
    fn name(&self) -> &'static str {
        TOTAL
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [DataType::Interval(_) | DataType::Duration(_)] => Ok(NANOS),
            _ => exec_err!("{TOTAL} takes an interval, not {types:?}"),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Array(of)] => Ok(ColumnarValue::Array(totals(of)?)),
            [ColumnarValue::Scalar(of)] => {
                let total = totals(&of.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&total, 0)?))
            }
            _ => exec_err!("{TOTAL} takes one argument"),
        }
    }
}

/// The length of an interval in nanoseconds.
pub(crate) fn total(of: IntervalMonthDayNano) -> i128 {
    let days = i128::from(of.months) * DAYS_OF_MONTH + i128::from(of.days);
    days * NANOS_OF_DAY + i128::from(of.nanoseconds)
}

fn totals(of: &ArrayRef) -> Result<ArrayRef> {
    let times = |factor: i128| move |count: i64| i128::from(count) * factor;
    let nanos: Decimal128Array = match of.data_type() {
        DataType::Duration(TimeUnit::Second) => {
            of.as_primitive::<DurationSecondType>().unary(times(1_000_000_000))
        }
        DataType::Duration(TimeUnit::Millisecond) => {
            of.as_primitive::<DurationMillisecondType>().unary(times(1_000_000))
        }
        DataType::Duration(TimeUnit::Microsecond) => {
            of.as_primitive::<DurationMicrosecondType>().unary(times(1_000))
        }
        DataType::Duration(TimeUnit::Nanosecond) => {
            of.as_primitive::<DurationNanosecondType>().unary(times(1))
        }
        _ => {
            let of = cast(of, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            of.as_primitive::<IntervalMonthDayNanoType>().unary(total)
        }
    };
    Ok(Arc::new(nanos.with_data_type(NANOS)))
}

/// Compares intervals by their length; to be applied once types are coerced.
#[derive(Debug)]
pub struct IntervalOrder;

impl AnalyzerRule for IntervalOrder {
    fn name(&self) -> &'static str {
        "interval_order"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(ordered)?.data)
    }
}

/// The same for the keys of windows, before types are coerced: DataFusion has no frame over intervals, and says so then.
#[derive(Debug)]
pub struct IntervalWindows;

impl AnalyzerRule for IntervalWindows {
    fn name(&self) -> &'static str {
        "interval_windows"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|plan| {
            if !matches!(plan, LogicalPlan::Window(_)) {
                return Ok(Transformed::no(plan));
            }
            let schema = merge_schema(&plan.inputs());
            rewrite_expressions(plan, &schema, |part| match part {
                Expr::WindowFunction(call) => windowed(call, &schema),
                other => Ok(Transformed::no(other)),
            })
        })?;
        Ok(rewritten.data)
    }
}

fn rewrite_expressions(
    plan: LogicalPlan,
    schema: &DFSchema,
    rewrite: impl Fn(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&plan);
    let node = plan
        .map_expressions(|expression| {
            let name = names.save(&expression);
            let rewritten = expression.transform_up(&rewrite)?;
            Ok(rewritten.update_data(|expression| name.restore(expression)))
        })?
        .transform_data(|plan| in_node(plan, schema))?;
    if node.transformed { node.map_data(LogicalPlan::recompute_schema) } else { Ok(node) }
}

fn is_interval(of: &DataType) -> bool {
    matches!(of, DataType::Interval(_))
}

/// One node, whose inputs are rewritten.
fn ordered(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    rewrite_expressions(plan, &schema, |part| compared(part, &schema))
}

/// What a node compares by itself.
fn in_node(plan: LogicalPlan, schema: &DFSchema) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Sort(mut sort) => {
            let changed = order(&mut sort.expr, schema)?;
            Ok(Transformed::new_transformed(LogicalPlan::Sort(sort), changed))
        }
        LogicalPlan::Join(mut join) => {
            let mut changed = false;
            for (left, right) in &mut join.on {
                if is_interval(&left.get_type(join.left.schema())?) {
                    *left = length(left.clone(), join.left.schema())?;
                    *right = length(right.clone(), join.right.schema())?;
                    changed = true;
                }
            }
            Ok(Transformed::new_transformed(LogicalPlan::Join(join), changed))
        }
        LogicalPlan::Aggregate(aggregate) => grouped(aggregate),
        LogicalPlan::Distinct(Distinct::All(input))
            if input.schema().fields().iter().any(|field| is_interval(field.data_type())) =>
        {
            let columns = input.schema().columns().into_iter().map(Expr::Column).collect();
            grouped(Aggregate::try_new(input, columns, Vec::new())?)
        }
        LogicalPlan::Distinct(Distinct::On(mut distinct)) => {
            let mut changed = false;
            for of in &mut distinct.on_expr {
                changed |= lengthen(of, schema)?;
            }
            if let Some(sort) = &mut distinct.sort_expr {
                changed |= order(sort, schema)?;
            }
            let distinct = LogicalPlan::Distinct(Distinct::On(distinct));
            Ok(Transformed::new_transformed(distinct, changed))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Groups by lengths; the first interval of a group stands for it.
fn grouped(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let schema = Arc::clone(aggregate.input.schema());
    let mut keys = aggregate.group_expr.clone();
    let mut firsts = Vec::new();
    for (position, key) in keys.iter_mut().enumerate() {
        if let Expr::GroupingSet(set) = key {
            for part in set.distinct_expr() {
                if is_interval(&part.get_type(schema.as_ref())?) {
                    return not_impl_err!("GROUPING SETS, CUBE and ROLLUP over intervals");
                }
            }
        } else if is_interval(&key.get_type(schema.as_ref())?) {
            let of = vec![key.clone()];
            let first =
                AggregateFunction::new_udf(first_value_udaf(), of, false, None, Vec::new(), None);
            let first = Expr::AggregateFunction(first);
            let (length_name, first_name) =
                (format!("__length_{position}"), format!("__first_{position}"));
            *key = length(key.clone(), &schema)?.alias(length_name);
            firsts.push((position, first.alias(first_name)));
        }
    }
    if firsts.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let mut values = aggregate.aggr_expr.clone();
    values.extend(firsts.iter().map(|(_, first)| first.clone()));
    let by_length = Aggregate::try_new(Arc::clone(&aggregate.input), keys, values)?;
    let fields = aggregate.schema.iter().enumerate();
    let columns = fields.map(|(position, (qualifier, field))| {
        let named = firsts.iter().find(|(key, _)| *key == position);
        if named.is_some() {
            let first = Column::new_unqualified(format!("__first_{position}"));
            return Expr::Column(first).alias_qualified(qualifier.cloned(), field.name());
        }
        Expr::Column(Column::from((qualifier, field)))
    });
    let columns = columns.collect();
    let plan = Projection::try_new(columns, Arc::new(LogicalPlan::Aggregate(by_length)))?;
    Ok(Transformed::yes(LogicalPlan::Projection(plan)))
}

/// What an expression compares.
fn compared(expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let interval = |of: &Expr| of.get_type(schema).is_ok_and(|of| is_interval(&of));
    let length = |of: Box<Expr>| length(*of, schema).map(Box::new);
    Ok(Transformed::yes(match expression {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if is_comparison(op) && (interval(&left) || interval(&right)) =>
        {
            Expr::BinaryExpr(BinaryExpr::new(length(left)?, op, length(right)?))
        }
        Expr::Between(Between { expr, negated, low, high }) if interval(&expr) => {
            Expr::Between(Between::new(length(expr)?, negated, length(low)?, length(high)?))
        }
        Expr::InList(InList { expr, list, negated }) if interval(&expr) => {
            let list = list.into_iter().map(|member| self::length(member, schema));
            Expr::InList(InList::new(length(expr)?, list.collect::<Result<_>>()?, negated))
        }
        Expr::InSubquery(InSubquery { expr, subquery, negated }) if interval(&expr) => {
            Expr::InSubquery(InSubquery::new(length(expr)?, of_lengths(&subquery)?, negated))
        }
        Expr::SetComparison(SetComparison { expr, subquery, op, quantifier })
            if interval(&expr) =>
        {
            let lengths = of_lengths(&subquery)?;
            Expr::SetComparison(SetComparison::new(length(expr)?, lengths, op, quantifier))
        }
        Expr::Case(Case { expr: Some(of), when_then_expr, else_expr }) if interval(&of) => {
            let cases = when_then_expr.into_iter().map(|(when, then)| Ok((length(when)?, then)));
            let cases = cases.collect::<Result<_>>()?;
            Expr::Case(Case::new(Some(length(of)?), cases, else_expr))
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) if args.iter().any(interval) => {
            match (func.name(), args.as_slice()) {
                ("nullif", [of, other]) => {
                    let equal =
                        self::length(of.clone(), schema)?.eq(self::length(other.clone(), schema)?);
                    let null = lit(ScalarValue::try_from(of.get_type(schema)?)?);
                    let cases = vec![(Box::new(equal), Box::new(null))];
                    Expr::Case(Case::new(None, cases, Some(Box::new(of.clone()))))
                }
                (name @ ("greatest" | "least"), _) => {
                    let name = extremes::of_intervals(name);
                    let Some(function) = REGISTRY.scalar.get(name) else {
                        return exec_err!("{name} is not registered");
                    };
                    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), args))
                }
                _ => {
                    return Ok(Transformed::no(Expr::ScalarFunction(ScalarFunction {
                        func,
                        args,
                    })));
                }
            }
        }
        Expr::AggregateFunction(call) => return aggregated(call, schema),
        Expr::WindowFunction(call) => return windowed(call, schema),
        other => return Ok(Transformed::no(other)),
    }))
}

fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// A subquery of intervals as one of their lengths.
fn of_lengths(subquery: &Subquery) -> Result<Subquery> {
    let plan = subquery.subquery.as_ref().clone();
    let column = Expr::Column(Column::from(plan.schema().qualified_field(0)));
    let lengths = length(column, plan.schema())?;
    let plan = LogicalPlanBuilder::from(plan).project([lengths])?.build()?;
    Ok(subquery.with_plan(Arc::new(plan)))
}

/// Orders by lengths; whether there was an interval.
fn order(keys: &mut [SortExpr], schema: &DFSchema) -> Result<bool> {
    let mut changed = false;
    for key in keys {
        changed |= lengthen(&mut key.expr, schema)?;
    }
    Ok(changed)
}

/// Puts the length in the place of an interval; whether it is one.
fn lengthen(of: &mut Expr, schema: &DFSchema) -> Result<bool> {
    let is_interval = of.get_type(schema).is_ok_and(|of| is_interval(&of));
    if is_interval {
        *of = length(of.clone(), schema)?;
    }
    Ok(is_interval)
}

fn aggregated(call: AggregateFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let AggregateFunction { func, params } = call;
    let AggregateFunctionParams { mut args, distinct, filter, mut order_by, null_treatment } =
        params;
    let mut changed = order(&mut order_by, schema)?;
    let of = args.first().filter(|of| of.get_type(schema).is_ok_and(|of| is_interval(&of)));
    let of = of.cloned();
    match (func.name(), of) {
        ("max" | "min", _) => {}
        ("count", Some(of)) if distinct => {
            args = vec![length(of, schema)?];
            changed = true;
        }
        (name, Some(_)) if distinct => return not_impl_err!("{name}(DISTINCT ..) of intervals"),
        _ => {}
    }
    let call = AggregateFunction::new_udf(func, args, distinct, filter, order_by, null_treatment);
    Ok(Transformed::new_transformed(Expr::AggregateFunction(call), changed))
}

fn windowed(mut call: Box<WindowFunction>, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut changed = false;
    for key in &mut call.params.order_by {
        // There is no frame over differences of times either.
        let of = key.expr.get_type(schema);
        if of.is_ok_and(|of| is_interval(&of) || matches!(of, DataType::Duration(_))) {
            key.expr = length(key.expr.clone(), schema)?;
            changed = true;
        }
    }
    for key in &mut call.params.partition_by {
        changed |= lengthen(key, schema)?;
    }
    Ok(Transformed::new_transformed(Expr::WindowFunction(call), changed))
}

/// The length of an interval; of a difference of times that was made one, its own.
fn length(of: Expr, schema: &DFSchema) -> Result<Expr> {
    let of = match of {
        Expr::Cast(Cast { expr, field }) if is_interval(field.data_type()) => {
            match expr.get_type(schema)? {
                DataType::Duration(_) => *expr,
                _ => Expr::Cast(Cast { expr, field }),
            }
        }
        other => other,
    };
    let of = match of.get_type(schema)? {
        DataType::Interval(_) | DataType::Duration(_) => of,
        _ => Expr::Cast(Cast::new(Box::new(of), DataType::Interval(IntervalUnit::MonthDayNano))),
    };
    let Some(function) = REGISTRY.scalar.get(TOTAL) else {
        return exec_err!("{TOTAL} is not registered");
    };
    Ok(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), vec![of])))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::*;

    #[test]
    fn a_month_is_thirty_days_and_a_day_is_24_hours() {
        let of = |months, days, hours: i64| {
            total(IntervalMonthDayNano { months, days, nanoseconds: hours * 3_600_000_000_000 })
        };
        assert_eq!(of(1, 0, 0), of(0, 30, 0));
        assert_eq!(of(0, 1, 0), of(0, 0, 24));
        assert!(of(0, 0, 25) > of(0, 1, 0));
        assert!(of(2, 0, 0) < of(0, 70, 0));
    }

    proptest! {
        #[test]
        fn every_interval_has_a_length_that_fits(
            months in any::<i32>(), days in any::<i32>(), nanoseconds in any::<i64>(),
        ) {
            let total = total(IntervalMonthDayNano { months, days, nanoseconds });
            assert!(total.unsigned_abs() < 10_u128.pow(25));
        }
    }
}

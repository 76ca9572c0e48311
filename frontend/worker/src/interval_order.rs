//! Comparison of intervals by length, as in PostgreSQL (a month is 30 days and a day 24 hours), and of JSONB by its key.
//!
//! An interval has months, days and nanoseconds, and DataFusion compares them in this order: 25 hours are less than a
//! day, and so is the difference of two times years apart, which has no days. Once types are known, [`IntervalOrder`]
//! replaces each interval that is compared by `interval_total(..)`, its length in nanoseconds, a number that all
//! operators compare correctly. JSONB, whose texts differ where numbers are equal, is replaced by `jsonb_key(..)`
//! likewise; JSON has no order, and is refused.
//! ```text
//!   a < b, BETWEEN, IN, CASE a WHEN b, ORDER BY, PARTITION BY, JOIN    compare lengths
//!   GROUP BY a, DISTINCT a       by length; the first a of each group is shown
//!   max(a), min(a)               by length (`extremes.rs`)
//!   greatest(a, b), least(a, b)  likewise
//! ```
//!
//! Invariants:
//! - columns keep their names and types;
//! - what cannot be rewritten is refused by name.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use arrow::compute::cast;
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, DurationMicrosecondType, DurationMillisecondType,
    DurationNanosecondType, DurationSecondType, Field, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::metadata::FieldMetadata;
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

use crate::error::{SqlError, UNDEFINED_FUNCTION};
use crate::extremes;
use crate::functions::REGISTRY;
use crate::json::{JsonType, KEY};

const TOTAL: &str = "interval_total";
const NANOS_OF_DAY: i128 = 86_400_000_000_000;
const DAYS_OF_MONTH: i128 = 30;
/// Type of a length in nanoseconds; the longest interval has 25 digits.
const NANOS: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);

/// The function to register, `interval_total`.
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(Total { signature: Signature::any(1, Volatility::Immutable) })
}

/// `interval_total(interval or difference of times)`: the length in nanoseconds.
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
            [ColumnarValue::Array(intervals)] => Ok(ColumnarValue::Array(totals(intervals)?)),
            [ColumnarValue::Scalar(interval)] => {
                let total = totals(&interval.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&total, 0)?))
            }
            _ => exec_err!("{TOTAL} takes one argument"),
        }
    }
}

/// The length of an interval in nanoseconds.
pub fn total(interval: IntervalMonthDayNano) -> i128 {
    let days = i128::from(interval.months) * DAYS_OF_MONTH + i128::from(interval.days);
    days * NANOS_OF_DAY + i128::from(interval.nanoseconds)
}

/// The lengths of intervals or differences of times in nanoseconds.
pub(crate) fn totals(spans: &ArrayRef) -> Result<ArrayRef> {
    // Differences of times have a unit of their own.
    let times = |factor: i128| move |count: i64| i128::from(count) * factor;
    let nanos: Decimal128Array = match spans.data_type() {
        DataType::Duration(TimeUnit::Second) => {
            spans.as_primitive::<DurationSecondType>().unary(times(1_000_000_000))
        }
        DataType::Duration(TimeUnit::Millisecond) => {
            spans.as_primitive::<DurationMillisecondType>().unary(times(1_000_000))
        }
        DataType::Duration(TimeUnit::Microsecond) => {
            spans.as_primitive::<DurationMicrosecondType>().unary(times(1_000))
        }
        DataType::Duration(TimeUnit::Nanosecond) => {
            spans.as_primitive::<DurationNanosecondType>().unary(times(1))
        }
        _ => {
            let spans = cast(spans, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            spans.as_primitive::<IntervalMonthDayNanoType>().unary(total)
        }
    };
    Ok(Arc::new(nanos.with_data_type(NANOS)))
}

/// Rule that compares intervals by length; to be applied once types are coerced.
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

/// Rule that replaces the keys of windows before types are coerced, because DataFusion's coercion refuses frames over
/// intervals.
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
            rewrite_expressions(plan, &schema, |expression| match expression {
                Expr::WindowFunction(call) => windowed(call, &schema),
                expression => Ok(Transformed::no(expression)),
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

fn is_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_))
}

/// The values that are compared instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    /// Lengths of intervals.
    Length,
    /// Keys of JSONB.
    Key,
}

impl Measure {
    /// The measure of a field's values; `None` for those that are compared themselves.
    fn of_field(field: &Field) -> Option<Self> {
        if is_interval(field.data_type()) {
            return Some(Self::Length);
        }
        JsonType::of_field(field).map(|_| Self::Key)
    }

    fn of(expr: &Expr, schema: &DFSchema) -> Option<Self> {
        let (_, field) = expr.to_field(schema).ok()?;
        Self::of_field(&field)
    }

    /// An expression for the measure of a value.
    fn apply(self, expr: Expr, schema: &DFSchema) -> Result<Expr> {
        match self {
            Self::Length => length(expr, schema),
            Self::Key => key(expr, schema),
        }
    }
}

/// Rewrites one node, whose inputs have been rewritten.
fn ordered(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    rewrite_expressions(plan, &schema, |part| compared(part, &schema))
}

/// Rewrites the comparisons that a node makes itself, apart from its expressions.
fn in_node(plan: LogicalPlan, schema: &DFSchema) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Sort(mut sort) => {
            let changed = order(&mut sort.expr, schema)?;
            Ok(Transformed::new_transformed(LogicalPlan::Sort(sort), changed))
        }
        // Only the keys of a join are rewritten here: its filter is an expression.
        LogicalPlan::Join(mut join) => {
            let mut changed = false;
            for (left, right) in &mut join.on {
                if let Some(measure) = Measure::of(left, join.left.schema()) {
                    *left = measure.apply(left.clone(), join.left.schema())?;
                    *right = measure.apply(right.clone(), join.right.schema())?;
                    changed = true;
                }
            }
            Ok(Transformed::new_transformed(LogicalPlan::Join(join), changed))
        }
        LogicalPlan::Aggregate(aggregate) => grouped(aggregate),
        LogicalPlan::Distinct(Distinct::All(input))
            if input.schema().fields().iter().any(|field| Measure::of_field(field).is_some()) =>
        {
            let columns = input.schema().columns().into_iter().map(Expr::Column).collect();
            grouped(Aggregate::try_new(input, columns, Vec::new())?)
        }
        LogicalPlan::Distinct(Distinct::On(mut distinct)) => {
            let mut changed = false;
            for key in &mut distinct.on_expr {
                changed |= lengthen(key, schema)?;
            }
            if let Some(sort) = &mut distinct.sort_expr {
                changed |= order(sort, schema)?;
            }
            let distinct = LogicalPlan::Distinct(Distinct::On(distinct));
            Ok(Transformed::new_transformed(distinct, changed))
        }
        plan => Ok(Transformed::no(plan)),
    }
}

/// Groups by lengths, with the first interval of each group as its value.
fn grouped(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let schema = Arc::clone(aggregate.input.schema());
    // Group by the length of each interval, and keep the first interval as an aggregate.
    let mut keys = aggregate.group_expr.clone();
    let mut firsts = Vec::new();
    for (position, key) in keys.iter_mut().enumerate() {
        if let Expr::GroupingSet(set) = key {
            for part in set.distinct_expr() {
                if Measure::of(part, &schema).is_some() {
                    return not_impl_err!("GROUPING SETS, CUBE and ROLLUP over intervals and JSON");
                }
            }
        } else if let Some(measure) = Measure::of(key, &schema) {
            let arguments = vec![key.clone()];
            let first = AggregateFunction::new_udf(
                first_value_udaf(),
                arguments,
                false,
                None,
                Vec::new(),
                None,
            );
            let first = Expr::AggregateFunction(first);
            let (length_name, first_name) =
                (format!("__length_{position}"), format!("__first_{position}"));
            *key = measure.apply(key.clone(), &schema)?.alias(length_name);
            firsts.push((position, first.alias(first_name)));
        }
    }
    if firsts.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let mut values = aggregate.aggr_expr.clone();
    values.extend(firsts.iter().map(|(_, first)| first.clone()));
    let by_length = Aggregate::try_new(Arc::clone(&aggregate.input), keys, values)?;
    // Restore the original columns, with the first interval in place of each length.
    let fields = aggregate.schema.iter().enumerate();
    let columns = fields.map(|(position, (qualifier, field))| {
        let is_interval_key = firsts.iter().any(|(key, _)| *key == position);
        if is_interval_key {
            let first = Column::new_unqualified(format!("__first_{position}"));
            // The aggregate does not keep the mark of JSON.
            return Expr::Column(first).alias_qualified_with_metadata(
                qualifier.cloned(),
                field.name(),
                (!field.metadata().is_empty()).then(|| FieldMetadata::new_from_field(field)),
            );
        }
        Expr::Column(Column::from((qualifier, field)))
    });
    let columns = columns.collect();
    let plan = Projection::try_new(columns, Arc::new(LogicalPlan::Aggregate(by_length)))?;
    Ok(Transformed::yes(LogicalPlan::Projection(plan)))
}

/// Replaces the intervals that an expression compares by their lengths.
fn compared(expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let is_measured = |expr: &Expr| Measure::of(expr, schema).is_some();
    // All operands of a comparison have the measure of one of them.
    let measure = match &expression {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
            Measure::of(left, schema).or_else(|| Measure::of(right, schema))
        }
        Expr::Between(Between { expr, .. })
        | Expr::InList(InList { expr, .. })
        | Expr::InSubquery(InSubquery { expr, .. })
        | Expr::SetComparison(SetComparison { expr, .. })
        | Expr::Case(Case { expr: Some(expr), .. }) => Measure::of(expr, schema),
        Expr::ScalarFunction(ScalarFunction { func, args })
            if ["nullif", "greatest", "least"].contains(&func.name()) =>
        {
            args.iter().find_map(|argument| Measure::of(argument, schema))
        }
        _ => None,
    };
    let measure = measure.unwrap_or(Measure::Length);
    let length = |expr: Box<Expr>| measure.apply(*expr, schema).map(Box::new);
    Ok(Transformed::yes(match expression {
        // Comparisons.
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if is_comparison(op) && (is_measured(&left) || is_measured(&right)) =>
        {
            Expr::BinaryExpr(BinaryExpr::new(length(left)?, op, length(right)?))
        }
        Expr::Between(Between { expr, negated, low, high }) if is_measured(&expr) => {
            Expr::Between(Between::new(length(expr)?, negated, length(low)?, length(high)?))
        }
        Expr::InList(InList { expr, list, negated }) if is_measured(&expr) => {
            let list = list.into_iter().map(|member| measure.apply(member, schema));
            Expr::InList(InList::new(length(expr)?, list.collect::<Result<_>>()?, negated))
        }
        // Subqueries return lengths too.
        Expr::InSubquery(InSubquery { expr, subquery, negated }) if is_measured(&expr) => {
            Expr::InSubquery(InSubquery::new(
                length(expr)?,
                measured_rows(&subquery, measure)?,
                negated,
            ))
        }
        Expr::SetComparison(SetComparison { expr, subquery, op, quantifier })
            if is_measured(&expr) =>
        {
            let lengths = measured_rows(&subquery, measure)?;
            Expr::SetComparison(SetComparison::new(length(expr)?, lengths, op, quantifier))
        }
        // CASE and functions that compare their arguments.
        Expr::Case(Case { expr: Some(operand), when_then_expr, else_expr })
            if is_measured(&operand) =>
        {
            let cases =
                when_then_expr.into_iter().map(|(when, result)| Ok((length(when)?, result)));
            let cases = cases.collect::<Result<_>>()?;
            Expr::Case(Case::new(Some(length(operand)?), cases, else_expr))
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) if args.iter().any(is_measured) => {
            match (func.name(), args.as_slice()) {
                ("nullif", [value, null_value]) => {
                    let equal = measure
                        .apply(value.clone(), schema)?
                        .eq(measure.apply(null_value.clone(), schema)?);
                    let null = lit(ScalarValue::try_from(value.get_type(schema)?)?);
                    let cases = vec![(Box::new(equal), Box::new(null))];
                    Expr::Case(Case::new(None, cases, Some(Box::new(value.clone()))))
                }
                (name @ ("greatest" | "least"), _) if measure == Measure::Key => {
                    return not_impl_err!("{name} of jsonb");
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
        expression => return Ok(Transformed::no(expression)),
    }))
}

fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// Makes a subquery return the measures of its values.
fn measured_rows(subquery: &Subquery, measure: Measure) -> Result<Subquery> {
    let plan = subquery.subquery.as_ref().clone();
    let column = Expr::Column(Column::from(plan.schema().qualified_field(0)));
    let lengths = measure.apply(column, plan.schema())?;
    let plan = LogicalPlanBuilder::from(plan).project([lengths])?.build()?;
    Ok(subquery.with_plan(Arc::new(plan)))
}

/// Orders by lengths; returns true if there was an interval.
fn order(keys: &mut [SortExpr], schema: &DFSchema) -> Result<bool> {
    let mut changed = false;
    for key in keys {
        changed |= lengthen(&mut key.expr, schema)?;
    }
    Ok(changed)
}

/// Replaces a value by its measure; returns true if it has one.
fn lengthen(expr: &mut Expr, schema: &DFSchema) -> Result<bool> {
    let measure = Measure::of(expr, schema);
    if let Some(measure) = measure {
        *expr = measure.apply(expr.clone(), schema)?;
    }
    Ok(measure.is_some())
}

fn aggregated(call: AggregateFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let AggregateFunction { func, params } = call;
    let AggregateFunctionParams { mut args, distinct, filter, mut order_by, null_treatment } =
        params;
    let mut changed = order(&mut order_by, schema)?;
    let argument =
        args.first().and_then(|argument| Some((argument.clone(), Measure::of(argument, schema)?)));
    match (func.name(), argument) {
        (name @ ("max" | "min"), Some((_, Measure::Key))) => {
            let message = format!("function {name}(jsonb) does not exist");
            return Err(SqlError::new(UNDEFINED_FUNCTION, message).into());
        }
        ("max" | "min", _) => {}
        ("count", Some((argument, measure))) if distinct => {
            args = vec![measure.apply(argument, schema)?];
            changed = true;
        }
        (name, Some(_)) if distinct => {
            return not_impl_err!("{name}(DISTINCT ..) of intervals and JSON");
        }
        _ => {}
    }
    let call = AggregateFunction::new_udf(func, args, distinct, filter, order_by, null_treatment);
    Ok(Transformed::new_transformed(Expr::AggregateFunction(call), changed))
}

fn windowed(mut call: Box<WindowFunction>, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut changed = false;
    for key in &mut call.params.order_by {
        // DataFusion has no frames over differences of times either.
        let data_type = key.expr.get_type(schema);
        if data_type.is_ok_and(|data_type| {
            is_interval(&data_type) || matches!(data_type, DataType::Duration(_))
        }) {
            key.expr = length(key.expr.clone(), schema)?;
            changed = true;
        } else {
            changed |= lengthen(&mut key.expr, schema)?;
        }
    }
    for key in &mut call.params.partition_by {
        changed |= lengthen(key, schema)?;
    }
    Ok(Transformed::new_transformed(Expr::WindowFunction(call), changed))
}

/// Returns an expression for the key of a value of JSONB, or of a text that stands for one.
fn key(value: Expr, schema: &DFSchema) -> Result<Expr> {
    let (_, field) = value.to_field(schema)?;
    if JsonType::of_field(&field) == Some(JsonType::Json) {
        let message = "could not identify an equality operator for type json";
        return Err(SqlError::new(UNDEFINED_FUNCTION, message).into());
    }
    let Some(function) = REGISTRY.scalar.get(KEY) else {
        return exec_err!("{KEY} is not registered");
    };
    Ok(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), vec![value])))
}

/// Returns an expression for the length of an interval, and for that of a difference of times below a cast to an
/// interval.
fn length(interval: Expr, schema: &DFSchema) -> Result<Expr> {
    let interval = match interval {
        Expr::Cast(Cast { expr, field }) if is_interval(field.data_type()) => {
            match expr.get_type(schema)? {
                DataType::Duration(_) => *expr,
                _ => Expr::Cast(Cast { expr, field }),
            }
        }
        interval => interval,
    };
    let interval = match interval.get_type(schema)? {
        DataType::Interval(_) | DataType::Duration(_) => interval,
        _ => Expr::Cast(Cast::new(
            Box::new(interval),
            DataType::Interval(IntervalUnit::MonthDayNano),
        )),
    };
    let Some(function) = REGISTRY.scalar.get(TOTAL) else {
        return exec_err!("{TOTAL} is not registered");
    };
    Ok(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), vec![interval])))
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

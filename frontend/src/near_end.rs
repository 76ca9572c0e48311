//! Optimizer rule for queries of the first rows in an order of time: they read the time near that end first, and the
//! rest only if that did not give enough rows.
//!
//! ```text
//!   SortExec(TopK): fetch=5, bucket DESC        NearEndExec: fetch=5, spans=[12:54.., 07:19.., all]
//!     AggregateExec: by bucket            ->      SortExec(TopK) <- AggregateExec <- scan of 12:54..
//!       PartitionScanExec                         SortExec(TopK) <- AggregateExec <- scan of 07:19..
//!                                                 SortExec(TopK) <- AggregateExec <- scan of all
//! ```
//!
//! The result is correct because the order is by the time index itself, or by the time index **rounded down** to a
//! step: a span that begins at a step has all rows of the buckets from there on, and every other bucket comes later
//! in the order. So a span that gives enough rows gives the right ones, whatever is filtered, grouped or computed in
//! between. Each span is a separate query: it reads one version of each partition, and its rows are discarded if they
//! are not enough.
//!
//! The first span has as many steps as rows are requested, and the second is 64 times as long: a discarded read is
//! cheap compared with the next one, unless the last span covers nearly all rows.

mod exec;
mod step;

use std::ops::Bound;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{replace_children_if_necessary, reset_plan_states};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use partita_proto::domain::Domain;
use partita_proto::rule::Comparison;
use partita_proto::schema::ColumnType;
use partita_proto::value::Value;

pub(crate) use self::exec::NearEndExec;
use self::step::Step;
use crate::ingest::expression::now_ns;
use crate::scan::PartitionScanExec;

/// Maximum fetch for which this rule applies.
const ROWS_MAX: usize = 10_000;
/// Minimum estimated rows of a scan; fewer are read as fast in one go. (Unit tests have few rows.)
const WORTH_ROWS: usize = if cfg!(test) { 1 } else { 50_000 };
/// Length of the first span if rows are ordered by the time itself, where the rate of rows is unknown.
const GUESS_NS: i128 = 60_000_000_000;
/// Ratio of the lengths of the second and the first span.
const LONGER: i128 = 64;
/// A span is read only if it is at most `1 / PART` of the requested time.
const PART: i128 = 4;
/// Within these moments rounding down is not NULL; it is where nanoseconds overflow.
const ROUNDED_NS: std::ops::Range<i128> = -6_000_000_000_000_000_000..6_000_000_000_000_000_000;

/// Reads near the end of time that a query orders by; see the head of the file.
#[derive(Debug)]
pub(crate) struct NearEnd;

impl PhysicalOptimizerRule for NearEnd {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_down(|plan| {
            let near = plan.downcast_ref::<SortExec>().and_then(|sort| near_end(&plan, sort));
            Ok(match near {
                Some(near) => {
                    Transformed::new(near? as Arc<dyn ExecutionPlan>, true, TreeNodeRecursion::Jump)
                }
                None => Transformed::no(plan),
            })
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "NearEnd"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A sort with a fetch as a query by spans of time; `None` if the rule does not apply.
fn near_end(plan: &Arc<dyn ExecutionPlan>, sort: &SortExec) -> Option<Result<Arc<NearEndExec>>> {
    let fetch = sort.fetch().filter(|rows| (1..=ROWS_MAX).contains(rows))?;
    if sort.preserve_partitioning() {
        return None;
    }
    let first = sort.expr().first();
    let (scan, expr) = origin(sort.input(), Arc::clone(&first.expr))?;
    let is_ordered = scan.spec().order.is_some();
    if is_ordered || scan.spec().rows.is_some_and(|rows| rows < WORTH_ROWS) {
        return None;
    }
    let time = scan.spec().table.schema.time_index()?;
    let ColumnType::Timestamp(unit, _) = time.column_type else { return None };
    let step = Step::of(expr, &scan.spec().schema, &time.name, unit)?;
    let spans = spans(&step, scan, fetch, first.options.descending, first.options.nulls_first)?;
    let build = || -> Result<Arc<NearEndExec>> {
        let mut plans = Vec::with_capacity(spans.len() + 1);
        let mut texts = Vec::with_capacity(spans.len() + 1);
        for span in &spans {
            let Some(part) = over(plan, scan, span)? else { continue };
            plans.push(reset_plan_states(part)?);
            texts.push(format!("{} in {span}", time.name));
        }
        plans.push(Arc::clone(plan));
        texts.push("all".to_owned());
        Ok(Arc::new(NearEndExec::new(plans, texts, sort.expr().clone(), fetch)))
    };
    Some(build())
}

/// The scan below operators that keep whole buckets together, and an expression over a plan's columns rewritten to
/// the scan's columns.
fn origin(
    plan: &Arc<dyn ExecutionPlan>,
    expr: Arc<dyn PhysicalExpr>,
) -> Option<(&PartitionScanExec, Arc<dyn PhysicalExpr>)> {
    // Follow the expression down to the scan through operators that keep or drop whole buckets.
    if let Some(scan) = plan.downcast_ref::<PartitionScanExec>() {
        return Some((scan, expr));
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let parts = projection.expr();
        let expr = replaced(expr, |index| parts.get(index).map(|part| Arc::clone(&part.expr)))?;
        return origin(projection.input(), expr);
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        if filter.fetch().is_some() {
            return None;
        }
        let expr = match filter.projection() {
            Some(columns) => {
                let schema = filter.input().schema();
                let column = |output: usize| {
                    let index = *columns.get(output)?;
                    Some(Arc::new(Column::new(schema.field(index).name(), index)) as _)
                };
                replaced(expr, column)?
            }
            None => expr,
        };
        return origin(filter.input(), expr);
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        let group = aggregate.group_expr();
        if group.has_grouping_set() || aggregate.limit_options().is_some() {
            return None;
        }
        // Columns after the groups are aggregates of many rows.
        let expr =
            replaced(expr, |index| group.expr().get(index).map(|(expr, _)| Arc::clone(expr)))?;
        return origin(aggregate.input(), expr);
    }
    if let Some(merged) = plan.downcast_ref::<CoalescePartitionsExec>() {
        return merged.fetch().is_none().then(|| origin(merged.input(), expr))?;
    }
    origin(plan.downcast_ref::<RepartitionExec>()?.input(), expr)
}

/// An expression with each column replaced; `None` if a column cannot be.
fn replaced(
    expr: Arc<dyn PhysicalExpr>,
    replacement: impl Fn(usize) -> Option<Arc<dyn PhysicalExpr>>,
) -> Option<Arc<dyn PhysicalExpr>> {
    let mut complete = true;
    let replaced = expr.transform_down(|part| {
        let Some(column) = part.downcast_ref::<Column>() else { return Ok(Transformed::no(part)) };
        Ok(match replacement(column.index()) {
            // Columns of the replacement belong to another schema and stay.
            Some(part) => Transformed::new(part, true, TreeNodeRecursion::Jump),
            None => {
                complete = false;
                Transformed::no(part)
            }
        })
    });
    replaced.ok().filter(|_| complete).map(|replaced| replaced.data)
}

/// A plan whose one scan reads only a span of time; `None` if the plan has several inputs.
fn over(
    plan: &Arc<dyn ExecutionPlan>,
    scan: &PartitionScanExec,
    span: &Domain,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let [input] = plan.children()[..] else {
        let restricted = scan.within_time(span)?;
        return Ok(restricted.map(|scan| Arc::new(scan) as _));
    };
    let Some(input) = over(input, scan, span)? else { return Ok(None) };
    Ok(Some(replace_children_if_necessary(Arc::clone(plan), vec![input])?))
}

/// Spans of time to read before all rows, each within the next.
fn spans(
    step: &Step,
    scan: &PartitionScanExec,
    fetch: usize,
    newest: bool,
    nulls_first: bool,
) -> Option<Vec<Domain>> {
    // The requested time ends at a bound of the predicate, or now.
    let domain = scan.time_domain();
    let (first, last) = match &domain {
        Some(domain) => {
            (domain.intervals().first()?.low.clone(), domain.intervals().last()?.high.clone())
        }
        None => (Bound::Unbounded, Bound::Unbounded),
    };
    let (first, last) = (moment(&first)?, moment(&last)?);
    let per_second = i128::from(step.unit().per_second());
    let ticks = |ns: i128| ns * per_second / 1_000_000_000;
    let end = match (newest, first, last) {
        (true, _, Some(last)) => last,
        // Rows in the future are in the span too.
        (true, _, None) => i64::try_from(ticks(i128::from(now_ns().ok()?))).ok()?,
        (false, Some(first), _) => first,
        (false, None, _) => return None,
    };
    // With NULLs first, every span needs the times that a step rounds to NULL.
    let null_times = (nulls_first && step.may_be_null()).then(|| {
        let moment = |ns: i128| i64::try_from(ticks(ns)).map_or(Bound::Unbounded, Bound::Included);
        outside(&moment(ROUNDED_NS.start), &moment(ROUNDED_NS.end))
    });
    // A span has as many steps as rows are requested.
    let length = match step.length(end)? {
        Some(step) => step.checked_mul(i128::try_from(fetch).ok()?)?,
        None => ticks(GUESS_NS).max(1),
    };
    let total = match (first, last) {
        (Some(first), Some(last)) => Some(i128::from(last) - i128::from(first)),
        _ => None,
    };
    let mut spans = Vec::new();
    for length in [length, length.checked_mul(LONGER)?] {
        if total.is_some_and(|total| length > total / PART) {
            break;
        }
        let towards = if newest { -length } else { length };
        let Ok(far) = i64::try_from(i128::from(end) + towards) else { break };
        let edge = Value::Timestamp(step.down(far)?);
        let span = if newest {
            Domain::compare(Comparison::GreaterOrEqual, edge)
        } else {
            Domain::compare(Comparison::Less, edge)
        };
        spans.push(match &null_times {
            Some(null_times) => span.union(null_times),
            None => span,
        });
    }
    (!spans.is_empty()).then_some(spans)
}

/// All moments outside of two bounds.
fn outside(low: &Bound<i64>, high: &Bound<i64>) -> Domain {
    let mut domain = Domain::none();
    if let Bound::Included(low) = low {
        domain = domain.union(&Domain::compare(Comparison::Less, Value::Timestamp(*low)));
    }
    if let Bound::Included(high) = high {
        domain = domain.union(&Domain::compare(Comparison::Greater, Value::Timestamp(*high)));
    }
    domain
}

/// The moment of a bound: `Some(None)` if unbounded, `None` if the bound is not a timestamp.
#[expect(clippy::option_option, reason = "no bound, or one that is not a moment")]
fn moment(bound: &Bound<Value>) -> Option<Option<i64>> {
    match bound {
        Bound::Unbounded => Some(None),
        Bound::Included(Value::Timestamp(ticks)) | Bound::Excluded(Value::Timestamp(ticks)) => {
            Some(Some(*ticks))
        }
        Bound::Included(_) | Bound::Excluded(_) => None,
    }
}

//! The rule that finds queries for the first rows in an order of time, so that they read the time near that
//! end first, and all of it only when that did not give enough.
//!
//! ```text
//!   SortExec(TopK): fetch=5, bucket DESC        NearEndExec: fetch=5, spans=[12:54.., 07:19.., all]
//!     AggregateExec: by bucket            ->      SortExec(TopK) <- AggregateExec <- scan of 12:54..
//!       PartitionScanExec                         SortExec(TopK) <- AggregateExec <- scan of 07:19..
//!                                                 SortExec(TopK) <- AggregateExec <- scan of all
//! ```
//!
//! It is right because what is ordered by is the time index itself, or the time index **rounded down** to a step:
//! where a span begins at a step, its rows are all rows of the buckets from there on, and every other bucket comes
//! later in the order. So a span that gives as many rows as are wanted gave the right ones, whatever is filtered,
//! grouped or computed in between. Each span is a query of its own: its rows are of one version of each partition, and
//! none of them is kept when it did not give enough.
//!
//! A span is as many steps as rows are wanted, the next one 64 times that: what was read in vain is little beside what
//! is read then, unless the last span before all is nearly all there is.

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

/// More rows than these are not looked for near an end.
const ROWS_MAX: usize = 10_000;
/// Fewer rows than these are read as fast in one go. (The unit tests' few rows meet both.)
const WORTH_ROWS: usize = if cfg!(test) { 1 } else { 50_000 };
/// Where rows are ordered by the time itself, nobody knows how many come in which time; it begins with this.
const GUESS_NS: i128 = 60_000_000_000;
/// How much longer the second span is.
const LONGER: i128 = 64;
/// A span is worth a try if it is at most this part of all that is asked for.
const PART: i128 = 4;
/// Rounding down to a step gives NULL where nanoseconds do not reach; well within these moments it does not.
const ROUNDED_NS: std::ops::Range<i128> = -6_000_000_000_000_000_000..6_000_000_000_000_000_000;

/// Reads near the end of time that a query wants the first rows of.
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

/// A sort of which the first rows are wanted, by spans of time; `None` if that is not what it is.
fn near_end(plan: &Arc<dyn ExecutionPlan>, sort: &SortExec) -> Option<Result<Arc<NearEndExec>>> {
    let wanted = sort.fetch().filter(|rows| (1..=ROWS_MAX).contains(rows))?;
    if sort.preserve_partitioning() {
        return None;
    }
    let first = sort.expr().first();
    let (scan, expr) = origin(sort.input(), Arc::clone(&first.expr))?;
    if scan.spec().rows.is_some_and(|rows| rows < WORTH_ROWS) {
        return None;
    }
    let time = scan.spec().table.schema.time_index()?;
    let ColumnType::Timestamp(unit, _) = time.column_type else { return None };
    let step = Step::of(expr, &scan.spec().schema, &time.name, unit)?;
    let spans = spans(&step, scan, wanted, first.options.descending, first.options.nulls_first)?;
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
        Ok(Arc::new(NearEndExec::new(plans, texts, sort.expr().clone(), wanted)))
    };
    Some(build())
}

/// The scan below operators that keep whole buckets together, and an expression over a plan's columns as
/// one over the scan's.
fn origin(
    plan: &Arc<dyn ExecutionPlan>,
    expr: Arc<dyn PhysicalExpr>,
) -> Option<(&PartitionScanExec, Arc<dyn PhysicalExpr>)> {
    if let Some(scan) = plan.downcast_ref::<PartitionScanExec>() {
        return Some((scan, expr));
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let parts = projection.expr();
        let expr = replaced(expr, |at| parts.get(at).map(|part| Arc::clone(&part.expr)))?;
        return origin(projection.input(), expr);
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        if filter.fetch().is_some() {
            return None;
        }
        let expr = match filter.projection() {
            Some(kept) => {
                let schema = filter.input().schema();
                let column = |at: usize| {
                    let at = *kept.get(at)?;
                    Some(Arc::new(Column::new(schema.field(at).name(), at)) as _)
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
        // What comes after the groups is computed from many rows.
        let expr = replaced(expr, |at| group.expr().get(at).map(|(expr, _)| Arc::clone(expr)))?;
        return origin(aggregate.input(), expr);
    }
    if let Some(merged) = plan.downcast_ref::<CoalescePartitionsExec>() {
        return merged.fetch().is_none().then(|| origin(merged.input(), expr))?;
    }
    origin(plan.downcast_ref::<RepartitionExec>()?.input(), expr)
}

/// An expression with each column replaced; `None` if one of them cannot be.
fn replaced(
    expr: Arc<dyn PhysicalExpr>,
    by: impl Fn(usize) -> Option<Arc<dyn PhysicalExpr>>,
) -> Option<Arc<dyn PhysicalExpr>> {
    let mut all = true;
    let replaced = expr.transform_down(|part| {
        let Some(column) = part.downcast_ref::<Column>() else { return Ok(Transformed::no(part)) };
        Ok(match by(column.index()) {
            // What it stands for is not to be replaced again.
            Some(other) => Transformed::new(other, true, TreeNodeRecursion::Jump),
            None => {
                all = false;
                Transformed::no(part)
            }
        })
    });
    replaced.ok().filter(|_| all).map(|replaced| replaced.data)
}

/// A plan with its one scan reading a span of time only; `None` if it has more than that.
fn over(
    plan: &Arc<dyn ExecutionPlan>,
    scan: &PartitionScanExec,
    span: &Domain,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let [below] = plan.children()[..] else {
        let of = scan.within_time(span)?;
        return Ok(of.map(|scan| Arc::new(scan) as _));
    };
    let Some(below) = over(below, scan, span)? else { return Ok(None) };
    Ok(Some(replace_children_if_necessary(Arc::clone(plan), vec![below])?))
}

/// The spans of time that are read before all is, each within the next.
fn spans(
    step: &Step,
    scan: &PartitionScanExec,
    wanted: usize,
    newest: bool,
    nulls_first: bool,
) -> Option<Vec<Domain>> {
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
        // Rows may lie in the future; then they are read too.
        (true, _, None) => i64::try_from(ticks(i128::from(now_ns().ok()?))).ok()?,
        (false, Some(first), _) => first,
        (false, None, _) => return None,
    };
    // Where the order begins with NULLs, the times of which a step makes one are in every span.
    let apart = (nulls_first && step.may_be_null()).then(|| {
        let moment = |ns: i128| i64::try_from(ticks(ns)).map_or(Bound::Unbounded, Bound::Included);
        outside(&moment(ROUNDED_NS.start), &moment(ROUNDED_NS.end))
    });
    let length = match step.length(end)? {
        Some(step) => step.checked_mul(i128::try_from(wanted).ok()?)?,
        None => ticks(GUESS_NS).max(1),
    };
    let all = match (first, last) {
        (Some(first), Some(last)) => Some(i128::from(last) - i128::from(first)),
        _ => None,
    };
    let mut spans = Vec::new();
    for length in [length, length.checked_mul(LONGER)?] {
        if all.is_some_and(|all| length > all / PART) {
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
        spans.push(match &apart {
            Some(apart) => span.union(apart),
            None => span,
        });
    }
    (!spans.is_empty()).then_some(spans)
}

/// Everything but what lies between two moments.
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

/// The moment of a bound: `Some(None)` where there is none, `None` where it is none that we know.
#[expect(clippy::option_option, reason = "no bound, or one that is not a moment")]
fn moment(bound: &Bound<Value>) -> Option<Option<i64>> {
    match bound {
        Bound::Unbounded => Some(None),
        Bound::Included(Value::Timestamp(at)) | Bound::Excluded(Value::Timestamp(at)) => {
            Some(Some(*at))
        }
        Bound::Included(_) | Bound::Excluded(_) => None,
    }
}

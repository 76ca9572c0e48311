//! What a query orders by, as the time index rounded down to a step.
//!
//! Invariant: what is taken for a step never gives a later moment than it was given, nor an earlier one for a later
//! one. So the rows from the beginning of a step on are those of the steps from there on.

use std::sync::Arc;

use arrow::array::RecordBatchOptions;
use arrow::datatypes::{DataType, Schema, TimeUnit};
use arrow::record_batch::RecordBatch;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::expressions::{CastExpr, Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use partita_proto::schema::Unit;

/// The time index, or what it is rounded down to.
#[derive(Debug)]
pub(super) struct Step {
    expr: Arc<dyn PhysicalExpr>,
    time: DataType,
    unit: Unit,
}

impl Step {
    /// An expression over a scan's columns; `None` if it is not the time index, rounded down or as it is.
    pub(super) fn of(
        expr: Arc<dyn PhysicalExpr>,
        schema: &Schema,
        time: &str,
        unit: Unit,
    ) -> Option<Self> {
        let of = schema.field_with_name(time).ok()?.data_type().clone();
        (rounds_down(&expr, schema, time)).then_some(Self { expr, time: of, unit })
    }

    /// The unit of the moments below.
    pub(super) fn unit(&self) -> Unit {
        self.unit
    }

    /// Whether a moment that nanoseconds since 1970 do not reach may be rounded to NULL.
    pub(super) fn may_be_null(&self) -> bool {
        self.expr.downcast_ref::<Column>().is_none()
    }

    /// How long the last step before a moment is; `Some(None)` where each moment is its own.
    #[expect(clippy::option_option, reason = "no length, or none that is known")]
    pub(super) fn length(&self, end: i64) -> Option<Option<i128>> {
        if self.expr.downcast_ref::<Column>().is_some() {
            return Some(None);
        }
        let begin = self.down(end)?;
        let before = self.down(begin.checked_sub(1)?)?;
        let length = i128::from(begin) - i128::from(before);
        (length > 0).then_some(Some(length))
    }

    /// The beginning of the step that a moment lies in.
    pub(super) fn down(&self, at: i64) -> Option<i64> {
        let rounded = self.rounded(at)?;
        let begin = ticks(&rounded.cast_to(&self.time).ok()?)?;
        // What two functions make of a moment need not be a beginning.
        (begin <= at && self.rounded(begin)? == rounded).then_some(begin)
    }

    fn rounded(&self, at: i64) -> Option<ScalarValue> {
        let literal: Arc<dyn PhysicalExpr> =
            Arc::new(Literal::new(ScalarValue::Int64(Some(at)).cast_to(&self.time).ok()?));
        let expr = Arc::clone(&self.expr).transform_down(|part| {
            Ok(match part.downcast_ref::<Column>() {
                Some(_) => Transformed::yes(Arc::clone(&literal)),
                None => Transformed::no(part),
            })
        });
        let one = RecordBatchOptions::new().with_row_count(Some(1));
        let row =
            RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &one).ok()?;
        let value = expr.ok()?.data.evaluate(&row).ok()?;
        let value = ScalarValue::try_from_array(&value.into_array(1).ok()?, 0).ok()?;
        (!value.is_null()).then_some(value)
    }
}

fn ticks(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::TimestampSecond(at, _)
        | ScalarValue::TimestampMillisecond(at, _)
        | ScalarValue::TimestampMicrosecond(at, _)
        | ScalarValue::TimestampNanosecond(at, _) => *at,
        _ => None,
    }
}

fn rounds_down(expr: &Arc<dyn PhysicalExpr>, schema: &Schema, time: &str) -> bool {
    let is_moment =
        |expr: &Arc<dyn PhysicalExpr>| expr.data_type(schema).is_ok_and(|of| in_utc(&of));
    let literal = |expr: &Arc<dyn PhysicalExpr>| expr.downcast_ref::<Literal>().is_some();
    if let Some(column) = expr.downcast_ref::<Column>() {
        let named = schema.fields().get(column.index()).is_some_and(|field| field.name() == time);
        return named && is_moment(expr);
    }
    if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        let from = cast.expr().data_type(schema);
        return from.is_ok_and(|from| keeps_order(&from, cast.cast_type()))
            && rounds_down(cast.expr(), schema, time);
    }
    let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() else { return false };
    is_moment(expr)
        && match (call.fun().name(), call.args()) {
            ("date_trunc", [step, of]) => literal(step) && rounds_down(of, schema, time),
            ("date_bin", [step, of, origin @ ..]) => {
                literal(step) && origin.iter().all(literal) && rounds_down(of, schema, time)
            }
            _ => false,
        }
}

/// Whether a type's values are moments or days whose steps begin at the same time everywhere.
fn in_utc(of: &DataType) -> bool {
    match of {
        DataType::Timestamp(_, zone) => partita_worker::in_utc(zone.as_deref()),
        DataType::Date32 => true,
        _ => false,
    }
}

/// Whether a cast rounds down. One to a coarser unit rounds towards 1970.
fn keeps_order(from: &DataType, to: &DataType) -> bool {
    let digits = |unit: &TimeUnit| Unit::from(*unit).digits();
    in_utc(from)
        && in_utc(to)
        && match (from, to) {
            (DataType::Timestamp(from, _), DataType::Timestamp(to, _)) => {
                digits(from) <= digits(to)
            }
            _ => true,
        }
}

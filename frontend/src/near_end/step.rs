//! Recognizes an ORDER BY expression as the time index rounded down to a step.
//!
//! Invariant: a step never rounds to a later moment, and keeps the order of moments. So the rows from the beginning
//! of a step on are exactly the rows of the steps from there on.

use std::sync::Arc;

use arrow::array::RecordBatchOptions;
use arrow::datatypes::{DataType, Schema, TimeUnit};
use arrow::record_batch::RecordBatch;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::expressions::{CastExpr, Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use partita_proto::schema::Unit;

/// The time index, possibly rounded down.
#[derive(Debug)]
pub(super) struct Step {
    expr: Arc<dyn PhysicalExpr>,
    time: DataType,
    unit: Unit,
}

impl Step {
    /// An expression over a scan's columns as a step; `None` if it is not the time index, rounded down or bare.
    pub(super) fn of(
        expr: Arc<dyn PhysicalExpr>,
        schema: &Schema,
        time: &str,
        unit: Unit,
    ) -> Option<Self> {
        let time_type = schema.field_with_name(time).ok()?.data_type().clone();
        (rounds_down(&expr, schema, time)).then_some(Self { expr, time: time_type, unit })
    }

    /// Unit of the moments below.
    pub(super) fn unit(&self) -> Unit {
        self.unit
    }

    /// Returns true if a moment outside of the range of nanoseconds may be rounded to NULL.
    pub(super) fn may_be_null(&self) -> bool {
        self.expr.downcast_ref::<Column>().is_none()
    }

    /// Length of the step before the one of `end`; `Some(None)` if moments are not rounded.
    #[expect(clippy::option_option, reason = "no length, or none that is known")]
    pub(super) fn length(&self, end: i64) -> Option<Option<i128>> {
        if self.expr.downcast_ref::<Column>().is_some() {
            return Some(None);
        }
        let begin = self.down(end)?;
        let previous = self.down(begin.checked_sub(1)?)?;
        let length = i128::from(begin) - i128::from(previous);
        (length > 0).then_some(Some(length))
    }

    /// Beginning of a moment's step.
    pub(super) fn down(&self, moment: i64) -> Option<i64> {
        let rounded = self.rounded(moment)?;
        let begin = ticks(&rounded.cast_to(&self.time).ok()?)?;
        // Nested functions may round to a moment that is not a beginning itself.
        (begin <= moment && self.rounded(begin)? == rounded).then_some(begin)
    }

    /// Value of the expression for one moment; `None` if it is NULL or cannot be computed.
    fn rounded(&self, moment: i64) -> Option<ScalarValue> {
        let literal: Arc<dyn PhysicalExpr> =
            Arc::new(Literal::new(ScalarValue::Int64(Some(moment)).cast_to(&self.time).ok()?));
        let expr = Arc::clone(&self.expr).transform_down(|part| {
            Ok(match part.downcast_ref::<Column>() {
                Some(_) => Transformed::yes(Arc::clone(&literal)),
                None => Transformed::no(part),
            })
        });
        // With the literal in place of the column the expression reads no column: a row without columns will do.
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let row =
            RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).ok()?;
        let result = expr.ok()?.data.evaluate(&row).ok()?;
        let value = ScalarValue::try_from_array(&result.into_array(1).ok()?, 0).ok()?;
        (!value.is_null()).then_some(value)
    }
}

/// Ticks of a timestamp in its own unit; `None` for NULL and for values of other types.
fn ticks(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::TimestampSecond(ticks, _)
        | ScalarValue::TimestampMillisecond(ticks, _)
        | ScalarValue::TimestampMicrosecond(ticks, _)
        | ScalarValue::TimestampNanosecond(ticks, _) => *ticks,
        _ => None,
    }
}

/// True if the expression is the time index, perhaps rounded down by casts and functions that keep the order.
fn rounds_down(expr: &Arc<dyn PhysicalExpr>, schema: &Schema, time: &str) -> bool {
    let is_moment = |expr: &Arc<dyn PhysicalExpr>| {
        expr.data_type(schema).is_ok_and(|data_type| in_utc(&data_type))
    };
    let literal = |expr: &Arc<dyn PhysicalExpr>| expr.downcast_ref::<Literal>().is_some();
    if let Some(column) = expr.downcast_ref::<Column>() {
        let is_time = schema.fields().get(column.index()).is_some_and(|field| field.name() == time);
        return is_time && is_moment(expr);
    }
    if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        let source = cast.expr().data_type(schema);
        return source.is_ok_and(|source| keeps_order(&source, cast.cast_type()))
            && rounds_down(cast.expr(), schema, time);
    }
    let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() else { return false };
    is_moment(expr)
        && match (call.fun().name(), call.args()) {
            ("date_trunc", [step, operand]) => literal(step) && rounds_down(operand, schema, time),
            ("date_bin", [step, operand, origin @ ..]) => {
                literal(step) && origin.iter().all(literal) && rounds_down(operand, schema, time)
            }
            _ => false,
        }
}

/// Returns true if a type holds moments or days whose steps begin at the same time in every zone.
fn in_utc(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(_, zone) => partita_worker::in_utc(zone.as_deref()),
        DataType::Date32 => true,
        _ => false,
    }
}

/// Returns true if a cast keeps or refines the unit; one to a coarser unit rounds towards 1970.
fn keeps_order(source: &DataType, target: &DataType) -> bool {
    let digits = |unit: &TimeUnit| Unit::from(*unit).digits();
    in_utc(source)
        && in_utc(target)
        && match (source, target) {
            (DataType::Timestamp(source, _), DataType::Timestamp(target, _)) => {
                digits(source) <= digits(target)
            }
            _ => true,
        }
}

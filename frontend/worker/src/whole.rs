//! Sums of integers that do not wrap.
//!
//! DataFusion adds up in the type of the result, and wraps where that is too small. Here it adds up in 128 bits, which
//! no number of rows overflows, and a sum that does not fit its type is an error, as in PostgreSQL. Only the final sum
//! has to fit: intermediate sums, in any order and partition, may be larger.
//!
//! Invariants: a partial state is a decimal of 38 digits, so that partial sums that do not fit by themselves can be
//! added too; only the last step converts it to an integer.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, PrimitiveArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, FieldRef, Int64Type,
    UInt64Type,
};
use arrow::error::ArrowError;
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use crate::checked::sql_name;

/// Type in which sums are computed.
const WIDE: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);

/// Returns true if sums of this type are computed here.
pub(crate) fn is_whole(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Int64 | DataType::UInt64)
}

/// The field of a sum while it is computed.
pub(crate) fn wide(field: &FieldRef) -> FieldRef {
    Arc::new(field.as_ref().clone().with_data_type(WIDE))
}

/// Converts the numbers to add to the wide type.
fn widened(values: &[ArrayRef]) -> Result<[ArrayRef; 1]> {
    fn of<T: ArrowPrimitiveType<Native: Into<i128>>>(values: &dyn Array) -> ArrayRef {
        let wide: PrimitiveArray<Decimal128Type> = values.as_primitive::<T>().unary(Into::into);
        Arc::new(wide.with_data_type(WIDE))
    }
    match values {
        [values] => match values.data_type() {
            DataType::Int64 => Ok([of::<Int64Type>(values)]),
            DataType::UInt64 => Ok([of::<UInt64Type>(values)]),
            data_type => exec_err!("unexpected type {data_type} in a sum of integers"),
        },
        _ => exec_err!("a sum takes one column"),
    }
}

fn fits<T: TryFrom<i128>>(sum: i128, sum_type: &DataType) -> Result<T, ArrowError> {
    T::try_from(sum).map_err(|_| {
        ArrowError::ArithmeticOverflow(format!(
            "{} out of range: the sum is {sum}",
            sql_name(sum_type)
        ))
    })
}

/// Converts sums to their own type.
fn narrowed(sums: &dyn Array, sum_type: &DataType) -> Result<ArrayRef> {
    fn of<T: ArrowPrimitiveType<Native: TryFrom<i128>>>(
        sums: &dyn Array,
        sum_type: &DataType,
    ) -> Result<ArrayRef> {
        let sums = sums.as_primitive::<Decimal128Type>();
        Ok(Arc::new(sums.try_unary::<_, T, ArrowError>(|sum| fits(sum, sum_type))?))
    }
    match sum_type {
        DataType::Int64 => of::<Int64Type>(sums, sum_type),
        DataType::UInt64 => of::<UInt64Type>(sums, sum_type),
        _ => exec_err!("unexpected type {sum_type} of a sum of integers"),
    }
}

/// DataFusion's sum of decimals, fed with integers; `sum_type` is the type of the result.
pub(crate) struct WholeGroups {
    pub(crate) inner: Box<dyn GroupsAccumulator>,
    pub(crate) sum_type: DataType,
}

impl GroupsAccumulator for WholeGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        groups_total: usize,
    ) -> Result<()> {
        self.inner.update_batch(&widened(values)?, groups, filter, groups_total)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        narrowed(&self.inner.evaluate(emit_to)?, &self.sum_type)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emit_to)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        groups_total: usize,
    ) -> Result<()> {
        self.inner.merge_batch(values, groups, groups_total)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(&widened(values)?, filter)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}

/// The same without groups, over a sliding window, or of distinct values.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) inner: Box<dyn Accumulator>,
    pub(crate) sum_type: DataType,
}

impl Accumulator for Whole {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(&widened(values)?)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = match self.inner.evaluate()? {
            ScalarValue::Decimal128(sum, ..) => sum,
            value => {
                return exec_err!("unexpected type {} of a sum of integers", value.data_type());
            }
        };
        let narrow = |sum: i128| match self.sum_type {
            DataType::UInt64 => fits(sum, &self.sum_type).map(|sum| ScalarValue::UInt64(Some(sum))),
            _ => fits(sum, &self.sum_type).map(|sum| ScalarValue::Int64(Some(sum))),
        };
        match sum {
            Some(sum) => narrow(sum).map_err(DataFusionError::from),
            None => ScalarValue::try_from(&self.sum_type),
        }
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(&widened(values)?)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

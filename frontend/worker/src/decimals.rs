//! Sums of decimals of 38 digits that do not wrap.
//!
//! DataFusion adds them up in 128 bits, where the sum of two can already wrap. Here the upper and the lower 64 bits of
//! each number are added up separately, each in 128 bits, which no number of rows overflows. The two sums are combined
//! at the end, and a result of more than 38 digits is an error, as in PostgreSQL. Sums of shorter decimals have ten
//! spare digits in their type.
//!
//! Invariant: a partial state is two decimals of 38 digits, so that partial sums that do not fit by themselves can be
//! sent and added. Distinct values are not split into partial sums and are added up in 256 bits.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, PrimitiveArray};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Decimal128Type, Decimal256Type,
    DecimalType, FieldRef, i256,
};
use arrow::error::ArrowError;
use datafusion::common::{ScalarValue, exec_datafusion_err, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

/// Type in which each half is added up.
const HALF: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);
/// Bits of the lower half, and their mask.
const LOWER_BITS: u32 = 64;
const LOWER: i128 = u64::MAX as i128;

/// Returns true if sums of this type are computed here.
pub(crate) fn is_long(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Decimal128(DECIMAL128_MAX_PRECISION, _))
}

/// The field of half a sum.
pub(crate) fn half(field: &FieldRef) -> FieldRef {
    Arc::new(field.as_ref().clone().with_data_type(HALF))
}

/// The field of a sum in 256 bits.
pub(crate) fn wide(field: &FieldRef) -> FieldRef {
    Arc::new(field.as_ref().clone().with_data_type(wide_type(field.data_type())))
}

fn wide_type(data_type: &DataType) -> DataType {
    DataType::Decimal256(DECIMAL256_MAX_PRECISION, scale(data_type))
}

fn scale(data_type: &DataType) -> i8 {
    match data_type {
        DataType::Decimal128(_, scale) => *scale,
        _ => 0,
    }
}

fn decimals(values: &[ArrayRef]) -> Result<&PrimitiveArray<Decimal128Type>> {
    let decimals = match values {
        [values] => values.as_primitive_opt::<Decimal128Type>(),
        _ => None,
    };
    decimals.ok_or_else(|| exec_datafusion_err!("a sum of decimals takes one column of decimals"))
}

/// Splits numbers into upper and lower halves; the upper ones are signed.
fn halves(values: &[ArrayRef]) -> Result<[[ArrayRef; 1]; 2]> {
    let decimals = decimals(values)?;
    let half = |part: fn(i128) -> i128| -> [ArrayRef; 1] {
        let half: PrimitiveArray<Decimal128Type> = decimals.unary(part);
        [Arc::new(half.with_data_type(HALF))]
    };
    Ok([half(|value| value >> LOWER_BITS), half(|value| value & LOWER)])
}

/// Combines the sums of the halves into a sum of type `sum_type`.
fn whole(upper: i128, lower: i128, sum_type: &DataType) -> Result<i128, ArrowError> {
    let unit = i256::from_i128(LOWER + 1);
    let sum = i256::from_i128(upper).wrapping_mul(unit).wrapping_add(i256::from_i128(lower));
    narrow(sum, sum_type)
}

fn narrow(sum: i256, sum_type: &DataType) -> Result<i128, ArrowError> {
    let fits = |sum: &i128| {
        Decimal128Type::validate_decimal_precision(*sum, DECIMAL128_MAX_PRECISION, scale(sum_type))
            .is_ok()
    };
    sum.to_i128().filter(fits).ok_or_else(|| {
        let scale = scale(sum_type);
        let text = Decimal256Type::format_decimal(sum, DECIMAL256_MAX_PRECISION, scale);
        let precision = DECIMAL128_MAX_PRECISION;
        let message = format!("numeric({precision}, {scale}) out of range: the sum is {text}");
        ArrowError::ArithmeticOverflow(message)
    })
}

/// DataFusion's sums of the halves, by group; `sum_type` is the type of the result.
pub(crate) struct LongGroups {
    pub(crate) upper: Box<dyn GroupsAccumulator>,
    pub(crate) lower: Box<dyn GroupsAccumulator>,
    pub(crate) sum_type: DataType,
}

impl GroupsAccumulator for LongGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        groups_total: usize,
    ) -> Result<()> {
        let [upper, lower] = halves(values)?;
        self.upper.update_batch(&upper, groups, filter, groups_total)?;
        self.lower.update_batch(&lower, groups, filter, groups_total)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (upper, lower) = (self.upper.evaluate(emit_to)?, self.lower.evaluate(emit_to)?);
        let (upper, lower) =
            (upper.as_primitive::<Decimal128Type>(), lower.as_primitive::<Decimal128Type>());
        let sum = |group: usize| {
            let is_valid = upper.is_valid(group) && lower.is_valid(group);
            is_valid
                .then(|| whole(upper.value(group), lower.value(group), &self.sum_type))
                .transpose()
        };
        let sums =
            (0..upper.len()).map(sum).collect::<Result<PrimitiveArray<Decimal128Type>, _>>()?;
        Ok(Arc::new(sums.with_data_type(self.sum_type.clone())))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let mut state = self.upper.state(emit_to)?;
        state.extend(self.lower.state(emit_to)?);
        Ok(state)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        groups_total: usize,
    ) -> Result<()> {
        let [upper, lower] = values else {
            return exec_err!("a partial sum of decimals has two columns, not {}", values.len());
        };
        self.upper.merge_batch(std::slice::from_ref(upper), groups, groups_total)?;
        self.lower.merge_batch(std::slice::from_ref(lower), groups, groups_total)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let [upper, lower] = halves(values)?;
        let mut state = self.upper.convert_to_state(&upper, filter)?;
        state.extend(self.lower.convert_to_state(&lower, filter)?);
        Ok(state)
    }

    fn size(&self) -> usize {
        self.upper.size() + self.lower.size()
    }
}

/// Sums of the halves without groups, or over a sliding window.
#[derive(Debug)]
pub(crate) struct Long {
    pub(crate) upper: Box<dyn Accumulator>,
    pub(crate) lower: Box<dyn Accumulator>,
    pub(crate) sum_type: DataType,
}

impl Accumulator for Long {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [upper, lower] = halves(values)?;
        self.upper.update_batch(&upper)?;
        self.lower.update_batch(&lower)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        match (self.upper.evaluate()?, self.lower.evaluate()?) {
            (
                ScalarValue::Decimal128(Some(upper), ..),
                ScalarValue::Decimal128(Some(lower), ..),
            ) => {
                let sum = whole(upper, lower, &self.sum_type)?;
                Ok(ScalarValue::Decimal128(
                    Some(sum),
                    DECIMAL128_MAX_PRECISION,
                    scale(&self.sum_type),
                ))
            }
            _ => ScalarValue::try_from(&self.sum_type),
        }
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.upper.size() + self.lower.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let mut state = self.upper.state()?;
        state.extend(self.lower.state()?);
        Ok(state)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [upper, lower] = states else {
            return exec_err!("a partial sum of decimals has two columns, not {}", states.len());
        };
        self.upper.merge_batch(std::slice::from_ref(upper))?;
        self.lower.merge_batch(std::slice::from_ref(lower))
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [upper, lower] = halves(values)?;
        self.upper.retract_batch(&upper)?;
        self.lower.retract_batch(&lower)
    }

    fn supports_retract_batch(&self) -> bool {
        self.upper.supports_retract_batch() && self.lower.supports_retract_batch()
    }
}

/// Sum of distinct values in 256 bits.
#[derive(Debug)]
pub(crate) struct LongDistinct {
    pub(crate) inner: Box<dyn Accumulator>,
    pub(crate) sum_type: DataType,
}

impl Accumulator for LongDistinct {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let wide: PrimitiveArray<Decimal256Type> = decimals(values)?.unary(i256::from_i128);
        self.inner.update_batch(&[Arc::new(wide.with_data_type(wide_type(&self.sum_type)))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        match self.inner.evaluate()? {
            ScalarValue::Decimal256(Some(sum), ..) => {
                let sum = narrow(sum, &self.sum_type)?;
                Ok(ScalarValue::Decimal128(
                    Some(sum),
                    DECIMAL128_MAX_PRECISION,
                    scale(&self.sum_type),
                ))
            }
            ScalarValue::Decimal256(None, ..) => ScalarValue::try_from(&self.sum_type),
            value => exec_err!("unexpected type {} of a sum of decimals", value.data_type()),
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
}

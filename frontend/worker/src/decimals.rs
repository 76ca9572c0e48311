//! Sums of decimals of 38 digits that do not wrap.
//!
//! DataFusion adds them up in 128 bits, which two of them can fill, and the sum begins again at the other end. Here the
//! upper and the lower 64 bits of each number are added up apart, each in 128 bits, which no number of rows fills; the
//! two sums are put together at the end, and what has more than 38 digits is an error, as in PostgreSQL. Shorter decimals
//! have ten digits of room in the type of their sum.
//!
//! Invariant: a partial state is two decimals of 38 digits, so that parts of a sum that do not fit by themselves can be
//! added too, and can be sent. Only distinct values, which stay together, are added up in 256 bits.

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

/// What each half is added up in.
const HALF: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);
/// Bits of the lower half, and what they are of a number.
const LOWER_BITS: u32 = 64;
const LOWER: i128 = u64::MAX as i128;

/// Whether sums of this type are added up here.
pub(crate) fn is_long(of: &DataType) -> bool {
    matches!(of, DataType::Decimal128(DECIMAL128_MAX_PRECISION, _))
}

/// The field of half a sum.
pub(crate) fn half(field: &FieldRef) -> FieldRef {
    Arc::new(field.as_ref().clone().with_data_type(HALF))
}

/// The field of a sum that is added up in 256 bits.
pub(crate) fn wide(field: &FieldRef) -> FieldRef {
    Arc::new(field.as_ref().clone().with_data_type(wide_type(field.data_type())))
}

fn wide_type(of: &DataType) -> DataType {
    DataType::Decimal256(DECIMAL256_MAX_PRECISION, scale(of))
}

fn scale(of: &DataType) -> i8 {
    match of {
        DataType::Decimal128(_, scale) => *scale,
        _ => 0,
    }
}

fn decimals(values: &[ArrayRef]) -> Result<&PrimitiveArray<Decimal128Type>> {
    let decimals = match values {
        [values] => values.as_primitive_opt::<Decimal128Type>(),
        _ => None,
    };
    decimals.ok_or_else(|| exec_datafusion_err!("a sum of decimals is one of one column of them"))
}

/// The upper and the lower halves of numbers. The upper ones have the sign.
fn halves(values: &[ArrayRef]) -> Result<[[ArrayRef; 1]; 2]> {
    let decimals = decimals(values)?;
    let half = |of: fn(i128) -> i128| -> [ArrayRef; 1] {
        let half: PrimitiveArray<Decimal128Type> = decimals.unary(of);
        [Arc::new(half.with_data_type(HALF))]
    };
    Ok([half(|value| value >> LOWER_BITS), half(|value| value & LOWER)])
}

/// The sum of two halves, in its type.
fn whole(upper: i128, lower: i128, to: &DataType) -> Result<i128, ArrowError> {
    let unit = i256::from_i128(LOWER + 1);
    let sum = i256::from_i128(upper).wrapping_mul(unit).wrapping_add(i256::from_i128(lower));
    narrow(sum, to)
}

fn narrow(sum: i256, to: &DataType) -> Result<i128, ArrowError> {
    let fits = |sum: &i128| {
        Decimal128Type::validate_decimal_precision(*sum, DECIMAL128_MAX_PRECISION, scale(to))
            .is_ok()
    };
    sum.to_i128().filter(fits).ok_or_else(|| {
        let scale = scale(to);
        let text = Decimal256Type::format_decimal(sum, DECIMAL256_MAX_PRECISION, scale);
        let precision = DECIMAL128_MAX_PRECISION;
        ArrowError::ArithmeticOverflow(format!("numeric({precision}, {scale}) (a sum is {text})"))
    })
}

/// DataFusion's sums of the halves, by group.
pub(crate) struct LongGroups {
    pub(crate) upper: Box<dyn GroupsAccumulator>,
    pub(crate) lower: Box<dyn GroupsAccumulator>,
    pub(crate) to: DataType,
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
            let there = upper.is_valid(group) && lower.is_valid(group);
            there.then(|| whole(upper.value(group), lower.value(group), &self.to)).transpose()
        };
        let sums =
            (0..upper.len()).map(sum).collect::<Result<PrimitiveArray<Decimal128Type>, _>>()?;
        Ok(Arc::new(sums.with_data_type(self.to.clone())))
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
            return exec_err!("a sum of decimals comes in {} parts", values.len());
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

/// The same without groups, or over a window that slides.
#[derive(Debug)]
pub(crate) struct Long {
    pub(crate) upper: Box<dyn Accumulator>,
    pub(crate) lower: Box<dyn Accumulator>,
    pub(crate) to: DataType,
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
                let sum = whole(upper, lower, &self.to)?;
                Ok(ScalarValue::Decimal128(Some(sum), DECIMAL128_MAX_PRECISION, scale(&self.to)))
            }
            _ => ScalarValue::try_from(&self.to),
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
            return exec_err!("a sum of decimals comes in {} parts", states.len());
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

/// Distinct values, added up in 256 bits.
#[derive(Debug)]
pub(crate) struct LongDistinct {
    pub(crate) inner: Box<dyn Accumulator>,
    pub(crate) to: DataType,
}

impl Accumulator for LongDistinct {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let wide: PrimitiveArray<Decimal256Type> = decimals(values)?.unary(i256::from_i128);
        self.inner.update_batch(&[Arc::new(wide.with_data_type(wide_type(&self.to)))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        match self.inner.evaluate()? {
            ScalarValue::Decimal256(Some(sum), ..) => {
                let sum = narrow(sum, &self.to)?;
                Ok(ScalarValue::Decimal128(Some(sum), DECIMAL128_MAX_PRECISION, scale(&self.to)))
            }
            ScalarValue::Decimal256(None, ..) => ScalarValue::try_from(&self.to),
            other => exec_err!("a sum of decimals is no {}", other.data_type()),
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

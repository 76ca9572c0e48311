//! Aggregates that gather their values, within bounds.
//!
//! In a window whose frame grows from row to row, `string_agg` gives out all that it has gathered once for each row: the
//! square of the rows. The bytes given out by one accumulator are counted, and beyond a bound it refuses with SQLSTATE
//! 54000. A gathering of a group gives out once. Each giving out also checks that the statement may go on.
//!
//! `string_agg` of bytes is one of their hexadecimal digits, which have the same order: DataFusion's joins texts only.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{ScalarValue, exec_err, not_impl_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::physical_expr::expressions::Literal;
use partita_lanes::interrupt;

use crate::bytes::{parse_hex, write_bytea};
use crate::error::{PROGRAM_LIMIT_EXCEEDED, SqlError};

/// Bytes that an accumulator gives out.
const GIVEN_BYTES_MAX: usize = 256 << 20;

/// An accumulator that gives out so much and no more.
#[derive(Debug)]
pub(crate) struct Gathered {
    inner: Box<dyn Accumulator>,
    name: String,
    given: usize,
}

impl Gathered {
    /// A bounded accumulator of the function `name`.
    pub(crate) fn new(inner: Box<dyn Accumulator>, name: &str) -> Self {
        Self { inner, name: name.to_owned(), given: 0 }
    }
}

impl Accumulator for Gathered {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        interrupt::check().map_err(|reason| DataFusionError::External(Box::new(reason)))?;
        let value = self.inner.evaluate()?;
        self.given = self.given.saturating_add(value.size());
        if self.given > GIVEN_BYTES_MAX {
            let message = format!(
                "the values of {}() take more than {GIVEN_BYTES_MAX} bytes together",
                self.name
            );
            return Err(SqlError::new(PROGRAM_LIMIT_EXCEEDED, message).into());
        }
        Ok(value)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.name.capacity() + self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

/// The field of digits in the place of bytes.
pub(crate) fn as_text(field: &FieldRef) -> FieldRef {
    if !field.data_type().is_binary() {
        return Arc::clone(field);
    }
    Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8))
}

/// The fields of digits in the place of bytes.
pub(crate) fn as_texts(fields: &[FieldRef]) -> Vec<FieldRef> {
    fields.iter().map(as_text).collect()
}

/// An accumulator of bytes, over one of texts that is made for the digits of the same arguments.
pub(crate) fn of_bytes(
    args: AccumulatorArgs<'_>,
    make: impl Fn(AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>>,
) -> Result<Box<dyn Accumulator>> {
    let [of, delimiter] = args.exprs else {
        return exec_err!("{} takes two arguments", args.name);
    };
    let Some(literal) = delimiter.downcast_ref::<Literal>() else {
        return not_impl_err!("a delimiter of string_agg that is not a constant");
    };
    let digits = digits_of(&literal.value().to_array()?)?;
    let delimiter = ScalarValue::Utf8(digits.iter().next().flatten().map(str::to_owned));
    let inner = make(AccumulatorArgs {
        return_field: Arc::new(
            args.return_field.as_ref().clone().with_data_type(DataType::LargeUtf8),
        ),
        exprs: &[Arc::clone(of), Arc::new(Literal::new(delimiter))],
        expr_fields: &as_texts(args.expr_fields),
        ..args
    })?;
    Ok(Box::new(OfBytes { inner }))
}

fn digits_of(bytes: &ArrayRef) -> Result<StringArray> {
    let bytes = cast(bytes, &DataType::BinaryView)?;
    let digits = bytes.as_binary_view().iter().map(|bytes| {
        let mut text = String::new();
        write_bytea(bytes?, &mut text);
        Some(text.split_off("\\x".len()))
    });
    Ok(digits.collect())
}

/// Bytes as their digits.
#[derive(Debug)]
struct OfBytes {
    inner: Box<dyn Accumulator>,
}

impl OfBytes {
    /// The arguments with digits in the place of what is joined; keys of an order that follow stay.
    fn digits(values: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        let mut values = values.to_vec();
        for joined in values.iter_mut().take(2) {
            *joined = Arc::new(digits_of(joined)?);
        }
        Ok(values)
    }
}

impl Accumulator for OfBytes {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(&Self::digits(values)?)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let joined = self.inner.evaluate()?;
        let digits = joined.try_as_str().flatten();
        let Some(bytes) = digits.map(parse_hex) else {
            return Ok(ScalarValue::BinaryView(None));
        };
        match bytes {
            None => exec_err!("what was joined are no digits of bytes"),
            bytes => Ok(ScalarValue::BinaryView(bytes)),
        }
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(&Self::digits(values)?)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

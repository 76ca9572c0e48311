//! Bounds on aggregates that collect their values.
//!
//! In a window whose frame grows from row to row, `string_agg` returns everything collected so far for each row: the
//! square of the number of rows. The bytes returned by one accumulator are counted, and beyond a limit it fails with
//! SQLSTATE 54000. Without a window, each group is returned once. Each result also checks that the statement has not
//! been interrupted.
//!
//! `string_agg` of bytes joins their hexadecimal digits, which have the same order, because DataFusion's takes only
//! texts.

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

/// Maximum bytes that an accumulator returns in all its results.
const RETURNED_BYTES_MAX: usize = 256 << 20;

/// An accumulator with a limit on the bytes that it returns.
#[derive(Debug)]
pub(crate) struct Gathered {
    inner: Box<dyn Accumulator>,
    name: String,
    returned: usize,
}

impl Gathered {
    /// Wraps an accumulator of the function `name`.
    pub(crate) fn new(inner: Box<dyn Accumulator>, name: &str) -> Self {
        Self { inner, name: name.to_owned(), returned: 0 }
    }
}

impl Accumulator for Gathered {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        interrupt::check().map_err(|reason| DataFusionError::External(Box::new(reason)))?;
        let value = self.inner.evaluate()?;
        self.returned = self.returned.saturating_add(value.size());
        if self.returned > RETURNED_BYTES_MAX {
            let message =
                format!("values of {}() exceed {RETURNED_BYTES_MAX} bytes in total", self.name);
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

/// The field with texts in place of bytes.
pub(crate) fn as_text(field: &FieldRef) -> FieldRef {
    if !field.data_type().is_binary() {
        return Arc::clone(field);
    }
    Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8))
}

/// The fields with texts in place of bytes.
pub(crate) fn as_texts(fields: &[FieldRef]) -> Vec<FieldRef> {
    fields.iter().map(as_text).collect()
}

/// An accumulator of bytes. `make` makes the accumulator of texts inside, for the digits of the same arguments.
pub(crate) fn of_bytes(
    args: AccumulatorArgs<'_>,
    make: impl Fn(AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>>,
) -> Result<Box<dyn Accumulator>> {
    let [joined, delimiter] = args.exprs else {
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
        exprs: &[Arc::clone(joined), Arc::new(Literal::new(delimiter))],
        expr_fields: &as_texts(args.expr_fields),
        ..args
    })?;
    Ok(Box::new(OfBytes { inner }))
}

/// The hexadecimal digits of bytes.
fn digits_of(bytes: &ArrayRef) -> Result<StringArray> {
    let bytes = cast(bytes, &DataType::BinaryView)?;
    let digits = bytes.as_binary_view().iter().map(|bytes| {
        let mut text = String::new();
        write_bytea(bytes?, &mut text);
        Some(text.split_off("\\x".len()))
    });
    Ok(digits.collect())
}

/// An accumulator of bytes over one of their digits.
#[derive(Debug)]
struct OfBytes {
    inner: Box<dyn Accumulator>,
}

impl OfBytes {
    /// The arguments with digits in place of bytes; the keys of ORDER BY after them stay as they are.
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
            None => exec_err!("joined texts are not hexadecimal digits"),
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

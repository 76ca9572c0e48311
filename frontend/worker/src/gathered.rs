//! Bounds on aggregates that collect their values.
//!
//! In a window whose frame grows from row to row, `string_agg` returns everything collected so far for each row: the
//! square of the number of rows. The bytes returned by one accumulator are counted, and beyond a limit it fails with
//! SQLSTATE 54000. Without a window, each group is returned once. Each result also checks that the statement has not
//! been interrupted.

use arrow::array::ArrayRef;
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::Accumulator;
use partita_lanes::interrupt;

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

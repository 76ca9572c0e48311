//! Aggregates that gather their values, within bounds.
//!
//! In a window whose frame grows from row to row, `string_agg` gives out all that it has gathered once for each row: the
//! square of the rows. The bytes given out by one accumulator are counted, and beyond a bound it refuses with SQLSTATE
//! 54000. A gathering of a group gives out once. Each giving out also checks that the statement may go on.

use arrow::array::ArrayRef;
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::Accumulator;
use partita_lanes::interrupt;

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

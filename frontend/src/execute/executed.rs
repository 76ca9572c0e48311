//! A started statement.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;

use crate::output::Output;
use crate::scan::Usage;

/// A started statement: its output, and the sources of its cost.
pub(crate) struct Executed {
    pub(crate) output: Output,
    pub(crate) plan: Option<Arc<dyn ExecutionPlan>>,
    /// Cost of a write.
    pub(crate) usage: Usage,
}

impl From<Output> for Executed {
    fn from(output: Output) -> Self {
        Self { output, plan: None, usage: Usage::default() }
    }
}

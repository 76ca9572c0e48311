//! Operator that runs one query over growing spans of time until one gives enough rows.
//!
//! Invariant: all rows of the result come from the same span.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{
    Distribution, LexOrdering, OrderingRequirements, Partitioning, PhysicalExpr,
};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{StreamExt, TryStreamExt};

/// A query over growing spans of time.
#[derive(Debug)]
pub(crate) struct NearEndExec {
    /// The query over each span; the last one covers all time.
    spans: Vec<Arc<dyn ExecutionPlan>>,
    /// Description of each span for EXPLAIN.
    texts: Vec<String>,
    ordering: LexOrdering,
    fetch: usize,
    /// Number of spans that were started.
    started: Arc<AtomicUsize>,
    properties: Arc<PlanProperties>,
}

impl NearEndExec {
    /// A query for its first `fetch` rows in an order, over spans of which the last covers all time.
    pub(super) fn new(
        spans: Vec<Arc<dyn ExecutionPlan>>,
        texts: Vec<String>,
        ordering: LexOrdering,
        fetch: usize,
    ) -> Self {
        let whole = &spans[spans.len() - 1];
        let properties = PlanProperties::new(
            whole.properties().equivalence_properties().clone(),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        let started = Arc::new(AtomicUsize::new(0));
        Self { spans, texts, ordering, fetch, started, properties: Arc::new(properties) }
    }

    /// The query over each span.
    pub(crate) fn spans(&self) -> &[Arc<dyn ExecutionPlan>] {
        &self.spans
    }

    /// The queries that were started.
    pub(crate) fn read(&self) -> &[Arc<dyn ExecutionPlan>] {
        &self.spans[..self.started.load(Ordering::Relaxed)]
    }
}

impl DisplayAs for NearEndExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NearEndExec: fetch={}, spans=[{}]", self.fetch, self.texts.join(", "))
    }
}

impl ExecutionPlan for NearEndExec {
    fn name(&self) -> &'static str {
        "NearEndExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.spans.iter().collect()
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition; self.spans.len()]
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![Some(OrderingRequirements::from(self.ordering.clone())); self.spans.len()]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true; self.spans.len()]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.spans.len()]
    }

    fn with_new_children(
        self: Arc<Self>,
        spans: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(spans, self.texts.clone(), self.ordering.clone(), self.fetch)))
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn fetch(&self) -> Option<usize> {
        Some(self.fetch)
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (spans, started) = (self.spans.clone(), Arc::clone(&self.started));
        let fetch = self.fetch;
        let rows = async move {
            let (whole, near) =
                spans.split_last().map_or((None, &[][..]), |(whole, near)| (Some(whole), near));
            for (index, span) in near.iter().enumerate() {
                started.store(index + 1, Ordering::Relaxed);
                let batches: Vec<RecordBatch> =
                    span.execute(0, Arc::clone(&context))?.try_collect().await?;
                if batches.iter().map(RecordBatch::num_rows).sum::<usize>() >= fetch {
                    return Ok::<_, DataFusionError>(
                        futures::stream::iter(batches.into_iter().map(Ok)).boxed(),
                    );
                }
            }
            started.store(spans.len(), Ordering::Relaxed);
            match whole {
                Some(whole) => Ok(whole.execute(0, context)?.boxed()),
                None => Ok(futures::stream::empty().boxed()),
            }
        };
        let rows = futures::stream::once(rows).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

//! Execution of a fragment over the streams of a scan.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use futures::StreamExt;
use partita_proto::Error;
use partita_proto::service::{RowStream, ScanReply};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::error::SqlError;
use crate::fragment::Fragment;
use crate::group_runs::by_runs;

/// Batches that are computed before they are requested.
const BATCHES_AHEAD: usize = 2;

impl Fragment {
    /// Runs the fragment over each stream of a scan with these columns. It computes in tasks of its own, with the
    /// memory of `runtime`; dropping the returned streams aborts the tasks.
    ///
    /// # Errors
    /// When the fragment cannot start; later errors are in the streams.
    pub fn run(
        self,
        reply: ScanReply,
        columns: &SchemaRef,
        runtime: Arc<RuntimeEnv>,
    ) -> Result<ScanReply, Error> {
        self.check(columns)?;
        let Self { plan, leaf, config } = self;
        let plan = by_runs(plan).map_err(service_error)?;
        let count = plan.properties().output_partitioning().partition_count();
        let streams = dealt(reply.streams, count);
        let used = streams.len();
        leaf.give(streams, columns);
        let context = Arc::new(TaskContext::new(
            None,
            String::new(),
            config,
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            runtime,
        ));
        let streams = (0..used)
            .map(|stream| {
                let rows = plan.execute(stream, Arc::clone(&context)).map_err(service_error)?;
                Ok(driven(rows))
            })
            .collect::<Result<_, Error>>()?;
        Ok(ScanReply { streams, order: None, stats: reply.stats, index: reply.index })
    }
}

/// Merges streams to at most `count`, by chaining further ones to the first ones.
fn dealt(streams: Vec<RowStream>, count: usize) -> Vec<RowStream> {
    let count = count.max(1);
    let mut dealt: Vec<Vec<RowStream>> = Vec::new();
    for (number, stream) in streams.into_iter().enumerate() {
        match dealt.get_mut(number % count) {
            Some(chain) => chain.push(stream),
            None => dealt.push(vec![stream]),
        }
    }
    let joined = |streams| -> RowStream { Box::pin(futures::stream::iter(streams).flatten()) };
    dealt.into_iter().map(joined).collect()
}

/// Reads a stream in a task of its own, a few batches ahead. The returned stream keeps the fragment's lane alive;
/// dropping it aborts the task. While the channel is full, the fragment pauses its place among the computing
/// statements.
fn driven(mut rows: SendableRecordBatchStream) -> RowStream {
    let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
    let lane = partita_lanes::current();
    let mut task = JoinSet::new();
    task.spawn(async move {
        while let Some(batch) = rows.next().await {
            let failed = batch.is_err();
            let permit = match sender.try_reserve() {
                Ok(permit) => permit,
                Err(_) => {
                    let pause = partita_lanes::pause();
                    // The receiver was dropped.
                    let Ok(permit) = sender.reserve().await else { break };
                    pause.end().await;
                    permit
                }
            };
            permit.send(batch.map_err(service_error));
            if failed {
                break;
            }
        }
        // The scan's statistics are final before the receiver sees the end.
        drop(rows);
        drop(sender);
    });
    let state = (receiver, task, lane);
    let rows = futures::stream::unfold(state, |(mut receiver, mut task, lane)| async move {
        if let Some(batch) = receiver.recv().await {
            return Some((batch, (receiver, task, lane)));
        }
        match task.join_next().await {
            Some(Err(error)) if error.is_panic() => {
                let error = Error::Internal("the task of a query fragment panicked".to_owned());
                Some((Err(error), (receiver, task, lane)))
            }
            _ => None,
        }
    });
    Box::pin(rows.fuse())
}

/// Converts an error for the frontend: errors of the scan stay as they are, others become what clients see.
pub(crate) fn service_error(error: DataFusionError) -> Error {
    let root = error.find_root();
    if let DataFusionError::External(inner) = root
        && let Some(scan_error) = inner.downcast_ref::<Error>()
    {
        return scan_error.clone();
    }
    let exhausted = matches!(root, DataFusionError::ResourcesExhausted(_));
    let error = SqlError::from(error);
    let hint = if exhausted {
        let hint = "select fewer rows or columns, or SET run_at_data = off to use the frontend's \
                    memory instead of the node's";
        Some(hint.to_owned())
    } else {
        error.hint
    };
    Error::Query { sqlstate: error.sqlstate, message: error.message, hint }
}

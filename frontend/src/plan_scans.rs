//! The scans of a plan: their cost, the number of partitions that they read, and a common moment of opening.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use partita_proto::catalog::Table;
use partita_proto::id::TableId;

use crate::error::SqlError;
use crate::near_end::NearEndExec;
use crate::scan::{PartitionScanExec, Usage};

/// Cost of all scans of a plan so far.
pub(crate) fn usage(plan: &Arc<dyn ExecutionPlan>) -> Usage {
    let mut usage = Usage::default();
    for scan in scans(plan, NearEndExec::read) {
        usage.add(&as_scan(&scan).map(PartitionScanExec::usage).unwrap_or_default());
    }
    usage
}

/// Table of each scan of a plan, and the number of partitions that it reads.
pub(crate) fn fan_out(plan: &Arc<dyn ExecutionPlan>) -> Vec<(TableId, u64)> {
    let scans = scans(plan, NearEndExec::read);
    let table_and_parts = |scan: &PartitionScanExec| {
        let spec = scan.spec();
        (spec.table.id, spec.touched.len() as u64)
    };
    scans.iter().filter_map(|scan| as_scan(scan).map(table_and_parts)).collect()
}

/// Opens all scans of a table in a plan, so that they do not see later writes.
pub(crate) async fn pin_scans(
    plan: &Arc<dyn ExecutionPlan>,
    table: &Table,
) -> Result<(), SqlError> {
    for scan in scans(plan, NearEndExec::spans) {
        let Some(scan) = as_scan(&scan) else { continue };
        if scan.spec().table.id == table.id {
            scan.pin().await?;
        }
    }
    Ok(())
}

fn as_scan(plan: &Arc<dyn ExecutionPlan>) -> Option<&PartitionScanExec> {
    plan.downcast_ref()
}

/// Scans of a plan; `spans` chooses those below an operator that reads by spans of time.
fn scans(
    plan: &Arc<dyn ExecutionPlan>,
    spans: impl Fn(&NearEndExec) -> &[Arc<dyn ExecutionPlan>],
) -> Vec<Arc<dyn ExecutionPlan>> {
    let mut leaves = Vec::new();
    let mut stack = vec![Arc::clone(plan)];
    while let Some(plan) = stack.pop() {
        match plan.downcast_ref::<NearEndExec>() {
            Some(near) => stack.extend(spans(near).iter().map(Arc::clone)),
            None => stack.extend(plan.children().into_iter().map(Arc::clone)),
        }
        if as_scan(&plan).is_some() {
            leaves.push(plan);
        }
    }
    leaves
}

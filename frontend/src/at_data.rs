//! Optimizer rule that pushes operators down to the partitions' leaders, so that fewer rows are sent.
//!
//! ```text
//!   AggregateExec: mode=Final            AggregateExec: mode=Final
//!     AggregateExec: mode=Partial   ->     AtDataExec: AggregateExec: mode=Partial <- FilterExec ..
//!       FilterExec
//!         PartitionScanExec
//! ```
//!
//! The rule looks for chains of operators directly above a scan that work on one stream at a time: filters,
//! projections, partial aggregates, local limits. A sort with a fetch stays, and each stream is sorted at the nodes
//! as well; the same holds for a global limit. Operators that cannot be sent stay (see `partita_worker`): functions
//! that are volatile or unknown at the nodes, subqueries, results of types that tables do not have. The operators
//! below them can still be pushed down.
//!
//! The rule runs before the rules that order and distribute rows. These see a leaf with unordered outputs, as the
//! scan was, and add the operators that its rows need. An aggregate that requires sorted input is left to them.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::{ConfigExtension, ConfigOptions};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{exec_err, extensions_options};
use datafusion::error::Result;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use partita_proto::schema::ColumnType;

use crate::scan::{AtData, PartitionScanExec};

/// Session setting that chooses the mode, one of [`MODES`].
pub(crate) const SETTING: &str = "run_at_data";
/// The same setting as a planner option.
pub(crate) const OPTION: &str = "partita.run_at_data";
/// Pushes down if the rows come from other processes and the operators reduce them.
pub(crate) const ON: &str = "on";
/// Allowed values of the setting. `always` pushes down whatever can be pushed down, however little it saves.
pub(crate) const MODES: &[&str] = &[ON, "off", "always"];
/// Scans with an estimate of at most this many rows are not pushed down.
const ROWS_FEW: usize = 1_000;
/// Each stream keeps the first rows of a sort in memory; sorts with a larger fetch run here.
const ROWS_FIRST_MAX: usize = 100_000;

extensions_options! {
    /// Planner options beyond DataFusion's.
    pub(crate) struct AtDataOptions {
        /// One of the modes.
        pub(crate) run_at_data: String, default = ON.to_owned()
    }
}

impl ConfigExtension for AtDataOptions {
    const PREFIX: &'static str = "partita";
}

/// Replaces chains of operators over scans.
#[derive(Debug)]
pub(crate) struct RunAtData {
    runtime: Arc<RuntimeEnv>,
}

impl RunAtData {
    pub(crate) fn new(runtime: Arc<RuntimeEnv>) -> Self {
        Self { runtime }
    }
}

impl PhysicalOptimizerRule for RunAtData {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mode =
            config.extensions.get::<AtDataOptions>().map_or(ON, |options| &options.run_at_data);
        if mode == "off" {
            return Ok(plan);
        }
        let always = mode == "always";
        plan.transform_down(|plan| {
            Ok(match self.moved(&plan, always, config)? {
                Some(moved) => Transformed::new(moved, true, TreeNodeRecursion::Jump),
                None => Transformed::no(plan),
            })
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "RunAtData"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl RunAtData {
    /// Pushes down an operator with everything below it; `None` if it has to stay here.
    fn moved(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        always: bool,
        config: &ConfigOptions,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let partial = match per_stream(plan)? {
            Some(partial) => partial,
            None if moves(plan.as_ref()) => return Ok(self.leaf(plan, always, config)),
            None => return Ok(None),
        };
        let leaf = self.leaf(&partial, always, config);
        leaf.map(|leaf| replace_children_if_necessary(Arc::clone(plan), vec![leaf])).transpose()
    }

    /// The leaf that does what a chain of operators does.
    fn leaf(
        &self,
        chain: &Arc<dyn ExecutionPlan>,
        always: bool,
        config: &ConfigOptions,
    ) -> Option<Arc<dyn ExecutionPlan>> {
        let scan = scan_below(chain)?;
        // No node would run the operators, but a partial aggregate without GROUP BY has one group even without rows.
        if scan.is_empty() {
            return None;
        }
        let saves = always || (scan.is_remote() && saves(chain, scan));
        if !saves {
            return None;
        }
        // The result travels like rows of a table, so it needs columns of types that tables have.
        let schema = chain.schema();
        if schema.fields().is_empty() || !schema.fields().iter().all(|f| travels(f.data_type())) {
            return None;
        }
        // Functions unknown at the nodes keep the operators here.
        let template = over_leaf(chain).ok()?;
        match partita_worker::encode(&template, config) {
            Ok(bytes) => {
                let chain = Arc::clone(chain);
                let at_data = AtData { bytes, chain, runtime: Arc::clone(&self.runtime) };
                Some(Arc::new(scan.with_at_data(at_data)))
            }
            Err(reason) => {
                tracing::debug!(%reason, "running a query fragment at the frontend");
                None
            }
        }
    }
}

/// For an operator that has to see all streams, the operator that reduces each stream before it.
fn per_stream(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(sort) = plan.downcast_ref::<SortExec>() {
        let sorted = |fetch| {
            let sort = SortExec::new(sort.expr().clone(), Arc::clone(sort.input()))
                .with_preserve_partitioning(true)
                .with_fetch(Some(fetch));
            Arc::new(sort) as Arc<dyn ExecutionPlan>
        };
        let few = |fetch: &usize| *fetch <= ROWS_FIRST_MAX && !sort.preserve_partitioning();
        return Ok(sort.fetch().filter(few).map(sorted));
    }
    if let Some(limit) = plan.downcast_ref::<GlobalLimitExec>() {
        let rows = limit.fetch().and_then(|fetch| fetch.checked_add(limit.skip()));
        let limited = limit.input().downcast_ref::<LocalLimitExec>().is_some();
        let limit_each = |rows| {
            Arc::new(LocalLimitExec::new(Arc::clone(limit.input()), rows)) as Arc<dyn ExecutionPlan>
        };
        return Ok(rows.filter(|rows| !limited && is_sent(*rows)).map(limit_each));
    }
    Ok(None)
}

/// Returns true if an operator handles each stream separately.
fn moves(plan: &dyn ExecutionPlan) -> bool {
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        return filter.fetch().is_none_or(is_sent);
    }
    if let Some(limit) = plan.downcast_ref::<LocalLimitExec>() {
        return is_sent(limit.fetch()) && limit.required_ordering().is_none();
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return *aggregate.mode() == AggregateMode::Partial
            && aggregate.required_input_ordering().iter().all(Option::is_none);
    }
    if let Some(sort) = plan.downcast_ref::<SortExec>() {
        let few = sort.fetch().is_some_and(|fetch| fetch <= ROWS_FIRST_MAX);
        return few && sort.preserve_partitioning();
    }
    plan.downcast_ref::<ProjectionExec>().is_some()
}

/// Returns true if a row count survives DataFusion's encoding, which has 32 bits for it.
fn is_sent(rows: usize) -> bool {
    u32::try_from(rows).is_ok()
}

/// The scan below a chain of operators that can all be pushed down.
fn scan_below(chain: &Arc<dyn ExecutionPlan>) -> Option<&PartitionScanExec> {
    if let Some(scan) = chain.downcast_ref::<PartitionScanExec>() {
        return scan.accepts_operators().then_some(scan);
    }
    match chain.children()[..] {
        [input] if moves(chain.as_ref()) => scan_below(input),
        _ => None,
    }
}

/// The same operators above a placeholder for the scan.
fn over_leaf(chain: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(scan) = chain.downcast_ref::<PartitionScanExec>() {
        return scan.placeholder();
    }
    match chain.children()[..] {
        [input] => replace_children_if_necessary(Arc::clone(chain), vec![over_leaf(input)?]),
        _ => exec_err!("a chain of operators does not end at a scan"),
    }
}

/// Returns true if a chain is estimated to reduce its rows, and they are enough to be worth it.
fn saves(chain: &Arc<dyn ExecutionPlan>, scan: &PartitionScanExec) -> bool {
    let spec = scan.spec();
    let mut fewer = false;
    let mut plan = chain;
    while let [input] = plan.children()[..] {
        // The scan itself stops at its limit.
        let limits = plan.downcast_ref::<LocalLimitExec>().is_some() && spec.limit.is_some();
        fewer |= !limits && plan.downcast_ref::<ProjectionExec>().is_none();
        plan = input;
    }
    fewer && spec.rows.is_none_or(|rows| rows > ROWS_FEW) && !scan.is_lookup()
}

/// Returns true if values of a type are unchanged after they were sent as a column of a table.
fn travels(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => true,
        data_type => {
            ColumnType::from_arrow(data_type).is_some_and(|column| column.arrow() == *data_type)
        }
    }
}

//! The rule that finds what can be done to rows where they are, so that fewer of them travel.
//!
//! ```text
//!   AggregateExec: mode=Final            AggregateExec: mode=Final
//!     AggregateExec: mode=Partial   ->     AtDataExec: AggregateExec: mode=Partial <- FilterExec ..
//!       FilterExec
//!         PartitionScanExec
//! ```
//!
//! It looks for chains of operators right above a scan, of which each works on one stream at a time:
//! filters, projections, partial aggregates, local limits. A sort of which the first rows are wanted
//! stays, and is done to each stream before as well; so is a global limit. Whatever cannot be sent
//! (`partita_worker`: functions that change from call to call or are not known at the nodes, subqueries,
//! results of types that tables do not have) stays where it is, and what is below it may go.
//!
//! The rule comes before those that order and distribute rows: they see a leaf with unordered outputs,
//! as the scan was, and put around it what its rows need. So an aggregate that wants its input in an
//! order is left to them.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::DataType;
use bytes::Bytes;
use datafusion::common::config::{ConfigExtension, ConfigOptions};
use datafusion::common::extensions_options;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use partita_proto::schema::ColumnType;
use partita_worker::LeafExec;

use crate::scan::PartitionScanExec;

/// The setting that says when.
pub(crate) const SETTING: &str = "run_at_data";
/// The same for the planner.
pub(crate) const OPTION: &str = "partita.run_at_data";
/// When rows come from other processes and fewer come then.
pub(crate) const ON: &str = "on";
/// What the setting may be. `always` is whenever it can be done, however little it saves.
pub(crate) const MODES: &[&str] = &[ON, "off", "always"];
/// Of so few rows it does not matter where things are done to them.
const ROWS_FEW: usize = 1_000;
/// The first rows in an order are kept in memory, for each stream; more than this are sorted here.
const ROWS_FIRST_MAX: usize = 100_000;

extensions_options! {
    /// The planner's settings that are not DataFusion's.
    pub(crate) struct AtDataOptions {
        /// One of the modes.
        pub(crate) run_at_data: String, default = ON.to_owned()
    }
}

impl ConfigExtension for AtDataOptions {
    const PREFIX: &'static str = "partita";
}

/// What is done to the rows of a scan where they are.
#[derive(Clone, Debug)]
pub(crate) struct AtData {
    /// For the nodes.
    pub(crate) bytes: Bytes,
    /// The operators over the scan, as if they ran here.
    pub(crate) chain: Arc<dyn ExecutionPlan>,
    /// What it runs with where a node cannot.
    pub(crate) runtime: Arc<RuntimeEnv>,
}

impl fmt::Display for AtData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut plan = &self.chain;
        while plan.downcast_ref::<PartitionScanExec>().is_none() {
            write!(
                f,
                "{separator}{}",
                displayable(plan.as_ref()).one_line().to_string().trim_end()
            )?;
            separator = " <- ";
            let [below] = plan.children()[..] else { break };
            plan = below;
        }
        Ok(())
    }
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
        let mode = config.extensions.get::<AtDataOptions>().map_or(ON, |own| &own.run_at_data);
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
    /// An operator with what is below it, done where the rows are; `None` when it has to stay.
    fn moved(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        always: bool,
        config: &ConfigOptions,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let before = match before(plan)? {
            Some(before) => before,
            None if moves(plan.as_ref()) => return Ok(self.leaf(plan, always, config)),
            None => return Ok(None),
        };
        let leaf = self.leaf(&before, always, config);
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
        // No node would run it, though a partial aggregate has a group without any rows: that of all.
        if scan.is_empty() {
            return None;
        }
        let saves = always || (scan.is_remote() && saves(chain, scan));
        if !saves {
            return None;
        }
        let schema = chain.schema();
        if schema.fields().is_empty() || !schema.fields().iter().all(|f| travels(f.data_type())) {
            return None;
        }
        let template = over_leaf(chain).ok()?;
        match partita_worker::encode(&template, config) {
            Ok(bytes) => {
                let chain = Arc::clone(chain);
                let at_data = AtData { bytes, chain, runtime: Arc::clone(&self.runtime) };
                Some(Arc::new(scan.with_at_data(at_data)))
            }
            Err(reason) => {
                tracing::debug!(%reason, "a part of a query stays at the frontend");
                None
            }
        }
    }
}

/// What can be done to each stream before an operator that has to see all of them.
fn before(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(sort) = plan.downcast_ref::<SortExec>() {
        let each = |fetch| {
            let each = SortExec::new(sort.expr().clone(), Arc::clone(sort.input()))
                .with_preserve_partitioning(true)
                .with_fetch(Some(fetch));
            Arc::new(each) as Arc<dyn ExecutionPlan>
        };
        let few = |fetch: &usize| *fetch <= ROWS_FIRST_MAX && !sort.preserve_partitioning();
        return Ok(sort.fetch().filter(few).map(each));
    }
    if let Some(limit) = plan.downcast_ref::<GlobalLimitExec>() {
        let rows = limit.fetch().and_then(|fetch| fetch.checked_add(limit.skip()));
        let limited = limit.input().downcast_ref::<LocalLimitExec>().is_some();
        let each = |rows| {
            Arc::new(LocalLimitExec::new(Arc::clone(limit.input()), rows)) as Arc<dyn ExecutionPlan>
        };
        return Ok(rows.filter(|rows| !limited && is_sent(*rows)).map(each));
    }
    Ok(None)
}

/// Whether an operator does to each stream what it does to all.
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

/// DataFusion's encoding cuts numbers of rows to 32 bits.
fn is_sent(rows: usize) -> bool {
    u32::try_from(rows).is_ok()
}

/// The scan below operators that all may go where it is.
fn scan_below(chain: &Arc<dyn ExecutionPlan>) -> Option<&PartitionScanExec> {
    if let Some(scan) = chain.downcast_ref::<PartitionScanExec>() {
        return scan.spec().at_data.is_none().then_some(scan);
    }
    match chain.children()[..] {
        [below] if moves(chain.as_ref()) => scan_below(below),
        _ => None,
    }
}

/// The same operators over what stands for the scan.
fn over_leaf(chain: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    match chain.children()[..] {
        [below] => replace_children_if_necessary(Arc::clone(chain), vec![over_leaf(below)?]),
        _ => Ok(Arc::new(LeafExec::new(chain.schema(), 1))),
    }
}

/// Whether fewer rows come out of a chain than go in, and it is worth the while.
fn saves(chain: &Arc<dyn ExecutionPlan>, scan: &PartitionScanExec) -> bool {
    let spec = scan.spec();
    let mut fewer = false;
    let mut plan = chain;
    while let [below] = plan.children()[..] {
        // Of as many rows as are wanted the scan gives no more by itself.
        let limits = plan.downcast_ref::<LocalLimitExec>().is_some() && spec.limit.is_some();
        fewer |= !limits && plan.downcast_ref::<ProjectionExec>().is_none();
        plan = below;
    }
    fewer && spec.rows.is_none_or(|rows| rows > ROWS_FEW) && !scan.is_lookup()
}

/// Whether values of a type are the same after they travelled as a column of a table.
fn travels(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => true,
        other => ColumnType::from_arrow(other).is_some_and(|column| column.arrow() == *other),
    }
}

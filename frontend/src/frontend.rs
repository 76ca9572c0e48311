//! The frontend of one process: what all its sessions share.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use datafusion::common::ScalarValue;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::TrackConsumersPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::optimizer::analyzer::function_rewrite::ApplyFunctionRewrites;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::optimizer::{Analyzer, Optimizer, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::{SessionConfig, SessionContext};
use partita_lanes::{LaneOptions, Lanes};
use partita_proto::catalog::{Catalog, DEFAULT_DATABASE, Table};
use partita_proto::id::{NodeId, TableId};
use partita_proto::service::{AdminOrder, DataNodes, Ddl, MetaService};
use partita_worker::{
    AdjustedCalls, BoundedConcatenation, ByteaLiterals, ByteaTexts, Checked, CheckedDivision,
    DateArithmetic, EqualZeros, ExactNumbers, ExactParts, GroupRuns, IntervalOrder, IntervalTexts,
    IntervalWindows, ListedValues, NearestDoubles, OneNan, OrderedZeros, OutputTexts,
    ReadIntervals, RoundedCasts, ScaledIntervals,
};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::at_data::{AtDataOptions, RunAtData};
use crate::catalog::{CATALOG, Databases, Sources, check_database_name};
use crate::comparisons::ExactComparisons;
use crate::conditional::GuardedFilters;
use crate::error::SqlError;
use crate::filters::KeptFilters;
use crate::guard::CheckedRule;
use crate::home::HomeNodes;
use crate::limits::{KeptLimits, LostLimits};
use crate::load::Loads;
use crate::members::KnownMembers;
use crate::memory::ReservingPool;
use crate::metrics::FrontendMetrics;
use crate::near_end::NearEnd;
use crate::newest::NewestRows;
use crate::projections::KeptProjections;
use crate::query_log::QueryLog;
use crate::router::Router;
use crate::session::{Session, SessionOptions};
use crate::set_operations::CountedSetOperations;
use crate::subqueries::ExactSubqueries;
use crate::system::table_bytes;
use crate::unnested::UnnestedSubqueries;
use crate::zoned::{TimeTypes, ZonedTimes};

/// Memory that queries may use together before they spill or fail.
const QUERY_MEMORY_BYTES: usize = 1 << 30;
/// Bytes that queries may spill to disk together.
const SPILL_BYTES_MAX: u64 = 16 << 30;
/// How long a request to a node is tried before it fails.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of rows on their way to the nodes; more wait.
const IN_FLIGHT_BYTES_MAX: usize = 256 << 20;
/// Statements that the query log remembers.
const QUERY_LOG_LEN: usize = 1_000;
/// Queries that an error about memory names.
const CONSUMERS_NAMED: usize = 3;

/// How a frontend runs.
#[derive(Clone, Debug)]
pub struct FrontendOptions {
    /// Its number.
    pub node: NodeId,
    /// Memory that queries may use together before they spill or fail.
    pub query_memory_bytes: usize,
    /// How long a statement may run unless its session says otherwise; `None`: for ever.
    pub statement_timeout: Option<Duration>,
    /// How long a request to a node is tried before it fails.
    pub write_timeout: Duration,
    /// Where queries spill; `None`: they fail instead.
    pub spill_dir: Option<PathBuf>,
    /// Bytes that queries may spill to disk together.
    pub spill_bytes_max: u64,
    /// Bytes of rows on their way to the nodes; more wait.
    pub in_flight_bytes_max: usize,
    /// Threads that one query may keep busy.
    pub query_parallelism: usize,
    /// Statements that the query log remembers.
    pub query_log_len: usize,
    /// Threads of statements, and how many statements run at a time.
    pub lanes: LaneOptions,
}

impl Default for FrontendOptions {
    fn default() -> Self {
        Self {
            node: NodeId(1),
            query_memory_bytes: QUERY_MEMORY_BYTES,
            statement_timeout: None,
            write_timeout: WRITE_TIMEOUT,
            spill_dir: None,
            spill_bytes_max: SPILL_BYTES_MAX,
            in_flight_bytes_max: IN_FLIGHT_BYTES_MAX,
            query_parallelism: std::thread::available_parallelism().map_or(1, usize::from),
            query_log_len: QUERY_LOG_LEN,
            lanes: LaneOptions::default(),
        }
    }
}

/// The frontend of one process.
pub struct Frontend {
    options: FrontendOptions,
    meta: Arc<dyn MetaService>,
    router: Arc<Router>,
    /// Functions and no catalog: what the expressions of tables are made with.
    state: Arc<SessionState>,
    /// What sessions begin with.
    context: SessionContext,
    query_log: Arc<QueryLog>,
    metrics: Arc<FrontendMetrics>,
    loads: Arc<Loads>,
    lanes: Arc<Lanes>,
}

impl Frontend {
    /// A frontend over a catalog's keeper and the nodes that hold the rows. The runtime that it is made in is its home:
    /// requests to other services are sent from there, statements run in lanes of their own.
    ///
    /// # Errors
    /// When the spill directory cannot be used, or there is no runtime.
    pub fn new(
        options: FrontendOptions,
        meta: Arc<dyn MetaService>,
        nodes: Arc<dyn DataNodes>,
    ) -> Result<Arc<Self>, SqlError> {
        let home = Handle::try_current()
            .map_err(|error| SqlError::internal(format!("a frontend needs a runtime: {error}")))?;
        let lanes = Lanes::new(options.lanes.clone(), &home);
        let nodes: Arc<dyn DataNodes> = Arc::new(HomeNodes::new(nodes, home.clone()));
        let metrics = Arc::new(FrontendMetrics::default());
        let query_log = Arc::new(QueryLog::new(options.query_log_len));
        let loads = Loads::new(Arc::clone(&meta));
        let router = Arc::new(Router::new(
            nodes,
            (meta.catalog(), meta.members()),
            Arc::clone(&loads),
            options.in_flight_bytes_max,
            options.write_timeout,
            Arc::clone(&metrics),
            home,
        ));
        let runtime = runtime(&options)?;
        let state = Arc::new(state(&options, Arc::clone(&runtime)));
        let context = SessionContext::new_with_state(self::state(&options, runtime));
        let sources = Sources {
            router: Arc::clone(&router),
            query_log: Arc::clone(&query_log),
            loads: Arc::clone(&loads),
            members: meta.members(),
            meta: Arc::clone(&meta),
        };
        let databases = Databases::new(sources, Arc::clone(&state));
        context.register_catalog(CATALOG, Arc::new(databases));
        let shared =
            Self { options, meta, router, state, context, query_log, metrics, loads, lanes };
        Ok(Arc::new(shared))
    }

    /// A session of a client.
    pub fn session(self: &Arc<Self>, options: SessionOptions) -> Arc<Session> {
        Session::new(Arc::clone(self), options)
    }

    /// The newest catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.router.catalog()
    }

    /// How many bytes tables store, each row once however many replicas it has: in files, and in memory on the way there;
    /// not what logs hold, nor what is still under a former placement. A table of which no node speaks is not there.
    /// Every node is asked, and waited for some seconds at most.
    pub async fn table_bytes(&self) -> HashMap<TableId, u64> {
        table_bytes(&self.router).await
    }

    /// About how many rows a table has, without those under a former placement, as nodes said some seconds ago; `None`
    /// if nobody said yet. Waits for nobody.
    pub fn about_rows(&self, table: &Table) -> Option<u64> {
        let counts = self.router.row_counts();
        let routes = table.partitions.routes().iter();
        let said = routes.filter_map(|route| counts.get(&route.partition).copied());
        said.reduce(u64::saturating_add)
    }

    /// The catalog as it changes.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<Catalog>> {
        self.meta.catalog()
    }

    /// How it runs.
    pub fn options(&self) -> &FrontendOptions {
        &self.options
    }

    /// DataFusion's context that every session begins with: what a door adds to it before the first
    /// session (functions, a schema such as `pg_catalog`), all sessions have.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// The last statements.
    pub fn query_log(&self) -> &QueryLog {
        &self.query_log
    }

    /// The threads that statements run on.
    pub fn lanes(&self) -> &Arc<Lanes> {
        &self.lanes
    }

    /// What it counts.
    pub fn metrics(&self) -> Arc<FrontendMetrics> {
        Arc::clone(&self.metrics)
    }

    /// The catalog's keeper.
    pub(crate) fn meta(&self) -> &dyn MetaService {
        self.meta.as_ref()
    }

    /// What meta says of load.
    pub(crate) fn loads(&self) -> &Loads {
        &self.loads
    }

    pub(crate) fn router(&self) -> &Arc<Router> {
        &self.router
    }

    pub(crate) fn state(&self) -> &Arc<SessionState> {
        &self.state
    }

    /// Changes the catalog; when it answers, [`Frontend::catalog`] shows the change. Returns whether
    /// anything changed.
    ///
    /// # Errors
    /// What the catalog's keeper says.
    pub async fn change(&self, ddl: Ddl) -> Result<bool, SqlError> {
        if let Ddl::CreateDatabase { name, .. } = &ddl {
            check_database_name(name)?;
        }
        Ok(self.meta.change(ddl).await?)
    }

    /// Has meta carry out an operator's order.
    pub(crate) async fn administer(&self, order: AdminOrder) -> Result<(), SqlError> {
        Ok(self.meta.administer(order).await?)
    }
}

fn runtime(options: &FrontendOptions) -> Result<Arc<RuntimeEnv>, SqlError> {
    let consumers = std::num::NonZeroUsize::new(CONSUMERS_NAMED)
        .ok_or_else(|| SqlError::internal("no consumer is named"))?;
    let pool = TrackConsumersPool::new(ReservingPool::new(options.query_memory_bytes), consumers);
    let mode = match &options.spill_dir {
        Some(directory) => {
            std::fs::create_dir_all(directory).map_err(|error| {
                SqlError::new(
                    "58030",
                    format!("the spill directory {} cannot be made: {error}", directory.display()),
                )
            })?;
            DiskManagerMode::Directories(vec![directory.clone()])
        }
        None => DiskManagerMode::Disabled,
    };
    let disk = DiskManagerBuilder::default()
        .with_mode(mode)
        .with_max_temp_directory_size(options.spill_bytes_max);
    Ok(RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(pool))
        .with_disk_manager_builder(disk)
        .build_arc()?)
}

/// The rules, with [`ExactComparisons`] before each that casts literals, and after all of them: a predicate may meet its
/// literal only while the last one moves it. [`KeptProjections`] stands before the rule that it is about, [`KeptFilters`]
/// in the place of one.
fn with_own_rules(
    rules: Vec<Arc<dyn OptimizerRule + Send + Sync>>,
) -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let mut all: Vec<Arc<dyn OptimizerRule + Send + Sync>> = Vec::with_capacity(rules.len() + 3);
    for rule in rules {
        if rule.name() == SimplifyExpressions::new().name() {
            all.push(Arc::new(ExactComparisons));
        } else if rule.name() == OptimizeProjections::new().name() {
            all.push(Arc::new(KeptProjections));
        } else if rule.name() == KeptFilters::default().name() {
            all.push(Arc::new(KeptFilters::default()));
            continue;
        }
        all.push(rule);
    }
    all.push(Arc::new(ExactComparisons));
    all
}

fn state(options: &FrontendOptions, runtime: Arc<RuntimeEnv>) -> SessionState {
    let config = SessionConfig::new()
        .with_default_catalog_and_schema(CATALOG, DEFAULT_DATABASE)
        .with_create_default_catalog_and_schema(false)
        // Ours has more columns and tables.
        .with_information_schema(false)
        .with_target_partitions(options.query_parallelism.max(1))
        // A scan has as many outputs as are worth having.
        .with_round_robin_repartition(false)
        .with_option_extension(AtDataOptions::default())
        .set("datafusion.execution.time_zone", &ScalarValue::from("UTC"))
        // A physical IS TRUE says that it may be NULL, the logical one does not: no answer depends on that.
        .set("datafusion.execution.skip_physical_aggregate_schema_check", &ScalarValue::from(true))
        .set("datafusion.sql_parser.dialect", &ScalarValue::from("postgresql"))
        .set("datafusion.sql_parser.default_null_ordering", &ScalarValue::from("nulls_max"));
    // First, while scans stand right below what needs their rows.
    let mut rules = PhysicalOptimizer::new().rules;
    rules.insert(0, Arc::new(NewestRows));
    rules.insert(1, Arc::new(NearEnd));
    rules.insert(2, Arc::new(RunAtData::new(Arc::clone(&runtime))));
    // Before orders are enforced.
    let orders = rules.iter().position(|rule| rule.name() == EnsureRequirements::new().name());
    rules.insert(orders.unwrap_or(rules.len()), Arc::new(KeptLimits));
    rules.push(Arc::new(LostLimits));
    // Last: no other rule knows the operator that it makes.
    rules.push(Arc::new(GroupRuns));
    // Last, when types are known.
    let mut analysis = Analyzer::new().rules;
    let before_types: Vec<Arc<dyn FunctionRewrite + Send + Sync>> = vec![
        Arc::new(ByteaTexts),
        Arc::new(EqualZeros),
        Arc::new(OutputTexts),
        Arc::new(ExactNumbers),
        Arc::new(IntervalTexts),
    ];
    analysis.insert(0, Arc::new(UnnestedSubqueries::default()));
    analysis.insert(1, Arc::new(IntervalWindows));
    analysis.insert(2, Arc::new(OrderedZeros));
    analysis.insert(3, Arc::new(ApplyFunctionRewrites::new(before_types)));
    analysis.insert(4, Arc::new(ListedValues));
    analysis.push(Arc::new(CountedSetOperations));
    analysis.push(Arc::new(IntervalOrder));
    analysis.push(Arc::new(ExactSubqueries));
    analysis.push(Arc::new(ApplyFunctionRewrites::new(vec![
        Arc::new(ByteaLiterals),
        Arc::new(ZonedTimes),
        Arc::new(KnownMembers),
        Arc::new(NearestDoubles),
        Arc::new(Checked),
        Arc::new(OneNan),
        Arc::new(CheckedDivision),
        Arc::new(ReadIntervals),
        Arc::new(RoundedCasts),
        Arc::new(BoundedConcatenation),
    ])));
    analysis.push(Arc::new(GuardedFilters));
    // Every rule checks for an interruption first.
    let analysis = analysis.into_iter().map(|rule| Arc::new(CheckedRule(rule)) as _).collect();
    let optimization = with_own_rules(Optimizer::new().rules);
    let optimization = optimization.into_iter().map(|rule| Arc::new(CheckedRule(rule)) as _);
    let rules = rules.into_iter().map(|rule| Arc::new(CheckedRule(rule)) as _).collect();
    let mut state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_expr_planners(vec![
            Arc::new(ScaledIntervals),
            Arc::new(DateArithmetic),
            Arc::new(ExactParts),
            Arc::new(ByteaLiterals),
            Arc::new(ExactNumbers),
            Arc::new(IntervalTexts),
            Arc::new(AdjustedCalls),
        ])
        .with_type_planner(Arc::new(TimeTypes))
        .with_default_features()
        .with_analyzer_rules(analysis)
        .with_optimizer_rules(optimization.collect())
        .with_physical_optimizer_rules(rules)
        .build();
    for function in partita_worker::functions::shared() {
        // Registering over a function of DataFusion's (`version`) replaces it.
        let _replaced =
            datafusion::execution::FunctionRegistry::register_udf(&mut state, Arc::new(function));
    }
    for function in partita_worker::functions::shared_aggregates() {
        let _replaced =
            datafusion::execution::FunctionRegistry::register_udaf(&mut state, function);
    }
    state
}

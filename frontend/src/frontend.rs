//! The frontend of one process: the state that all its sessions share.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use datafusion::common::ScalarValue;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation, TrackConsumersPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::optimizer::analyzer::function_rewrite::ApplyFunctionRewrites;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::optimizer::{Analyzer, Optimizer, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::{SessionConfig, SessionContext};
use partita_lanes::{LaneOptions, Lanes};
use partita_load::Class;
use partita_proto::access::{Access, Identity, Need, Permit};
use partita_proto::catalog::{Catalog, DEFAULT_DATABASE, Table};
use partita_proto::id::{NodeId, TableId, TaskId};
use partita_proto::load::{HeatmapRequest, LoadReport, PartitionLoad};
use partita_proto::sequence::SequenceChange;
use partita_proto::service::{AdminOrder, DataNodes, Ddl, MetaService};
use partita_proto::task::{TaskChange, TaskStep};
use partita_worker::{
    AdjustedCalls, ArrayNulls, ArrayTexts, BoundedConcatenation, ByteaLiterals, ByteaTexts,
    Checked, CheckedDivision, DateArithmetic, EqualZeros, ExactNumbers, ExactParts, FilledTexts,
    GroupRuns, IntervalOrder, IntervalTexts, IntervalWindows, JsonOperators, ListedValues,
    NearestDoubles, OneNan, OrderedZeros, OutputTexts, ReadIntervals, ReadTimes, RoundedCasts,
    ScaledIntervals, SummedDifferences, UuidTexts,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::access::authenticator::Authenticator;
use crate::access::life::Lives;
use crate::access::named::with_object;
use crate::access::viewer::{Viewer, VisibleCatalogs, check_all_rows};
use crate::activity::SessionActivity;
use crate::at_data::{AtDataOptions, RunAtData};
use crate::audit::{Audit, AuditOptions, Description, Origin};
use crate::blame::Blame;
use crate::bound_text::bound_text;
use crate::catalog::{CATALOG, Databases, check_database_name};
use crate::comparisons::ExactComparisons;
use crate::conditional::GuardedFilters;
use crate::copies::Copies;
use crate::copies::refused::check_target;
use crate::error::SqlError;
use crate::filters::KeptFilters;
use crate::first_by_time::FirstRows;
use crate::guard::CheckedRule;
use crate::home::HomeNodes;
use crate::index_usage::IndexUsage;
use crate::ingest::series::SeriesLimits;
use crate::key_order::KeyOrders;
use crate::limits::{KeptLimits, LostLimits};
use crate::load::Loads;
use crate::load::advice::advice;
use crate::members::KnownMembers;
use crate::memory::ReservingPool;
use crate::metrics::FrontendMetrics;
use crate::named_unions::NamedUnions;
use crate::near_end::NearEnd;
use crate::nested_bounds::NestedBounds;
use crate::newest::NewestRows;
use crate::projections::KeptProjections;
use crate::query_log::QueryLog;
use crate::reads::Turns;
use crate::rejected_points::RejectedPoints;
use crate::repeated_keys::{READERS, RepeatedKeys};
use crate::router::Router;
use crate::sequences::Sequences;
use crate::set_operations::CountedSetOperations;
use crate::sources::Sources;
use crate::spill::SpillDirectory;
use crate::stalls::Stalls;
use crate::statements::Statements;
use crate::statuses::{statuses, table_bytes};
use crate::subqueries::ExactSubqueries;
use crate::temporary::Registry;
use crate::unnested::UnnestedSubqueries;
use crate::view::ClusterView;
use crate::zoned::{TimeTypes, ZonedTimes};

/// Default memory of all queries together before they spill or fail.
const QUERY_MEMORY_BYTES: usize = 1 << 30;
/// Default limit of bytes that queries spill to disk together.
const SPILL_BYTES_MAX: u64 = 16 << 30;
/// Default time for which a request to a node is retried.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Default limit of bytes in flight to the nodes; further writes wait.
const IN_FLIGHT_BYTES_MAX: usize = 256 << 20;
/// Default number of statements in the query log.
const QUERY_LOG_LEN: usize = 1_000;
/// Number of queries that an out-of-memory error names.
const CONSUMERS_NAMED: usize = 3;

/// Configuration of a frontend.
#[derive(Clone, Debug)]
pub struct FrontendOptions {
    /// Id of the frontend.
    pub node: NodeId,
    /// Memory of all queries together, in bytes, before they spill or fail.
    pub query_memory_bytes: usize,
    /// Maximum run time of a statement unless its session sets another; `None`: no limit.
    pub statement_timeout: Option<Duration>,
    /// Time for which a request to a node is retried before it fails.
    pub write_timeout: Duration,
    /// Directory for spill files; `None`: queries fail instead of spilling.
    pub spill_dir: Option<PathBuf>,
    /// Maximum bytes that queries spill to disk together.
    pub spill_bytes_max: u64,
    /// Maximum bytes of rows in flight to the nodes; further writes wait.
    pub in_flight_bytes_max: usize,
    /// Maximum threads of one query.
    pub query_parallelism: usize,
    /// Statements that the query log keeps.
    pub query_log_len: usize,
    /// Directory below which COPY may use files; `None`: it may use none.
    pub copy_directory: Option<PathBuf>,
    /// Records of who did what.
    pub audit: AuditOptions,
    /// Threads of statements, and the number of statements that run at a time.
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
            copy_directory: None,
            audit: AuditOptions::default(),
            lanes: LaneOptions::default(),
        }
    }
}

/// The frontend of one process.
pub struct Frontend {
    options: FrontendOptions,
    meta: Arc<dyn MetaService>,
    view: Arc<ClusterView>,
    router: Arc<Router>,
    copies: Arc<Copies>,
    /// State for the expressions of tables: functions, but no catalog.
    state: Arc<SessionState>,
    /// Context that sessions start from.
    context: SessionContext,
    query_log: Arc<QueryLog>,
    audit: Arc<Audit>,
    rejected_points: Arc<RejectedPoints>,
    metrics: Arc<FrontendMetrics>,
    loads: Arc<Loads>,
    blame: Blame,
    /// Sources of the system tables.
    sources: Sources,
    lanes: Arc<Lanes>,
    databases: Arc<Databases>,
    visible: Arc<VisibleCatalogs>,
    lives: Arc<Lives>,
    authenticator: Authenticator,
    series_limits: SeriesLimits,
    spill: Option<SpillDirectory>,
    turns: Turns,
    sequences: Arc<Sequences>,
    temporary: Registry,
}

impl Frontend {
    /// A frontend over the catalog service and the nodes that hold the rows. The current runtime becomes its home
    /// runtime: requests to other services are sent from there, and statements run in lanes of their own.
    ///
    /// # Errors
    /// Fails if the spill directory cannot be created or locked, or there is no runtime.
    pub fn new(
        options: FrontendOptions,
        meta: Arc<dyn MetaService>,
        nodes: Arc<dyn DataNodes>,
    ) -> Result<Arc<Self>, SqlError> {
        let home = Handle::try_current()
            .map_err(|error| SqlError::internal(format!("a frontend needs a runtime: {error}")))?;
        // Requests go through the home runtime, whichever lane a statement runs in.
        let lanes = Lanes::new(options.lanes.clone(), &home);
        let nodes: Arc<dyn DataNodes> = Arc::new(HomeNodes::new(nodes, home.clone()));
        let metrics = Arc::new(FrontendMetrics::default());
        let query_log = Arc::new(QueryLog::new(options.query_log_len));
        let rejected_points = Arc::<RejectedPoints>::default();
        let loads = Loads::new(Arc::clone(&meta));
        let audit = Arc::new(Audit::new(options.audit));
        let authenticator = Authenticator::new(meta.catalog(), Arc::clone(&audit))?;
        let view = Arc::new(ClusterView::new(
            nodes,
            (meta.catalog(), meta.members()),
            options.write_timeout,
            Arc::clone(&metrics),
            home.clone(),
        ));
        let stalls = Arc::<Stalls>::default();
        let router = Router::new(
            Arc::clone(&view),
            Arc::clone(&loads),
            Arc::clone(&stalls),
            options.in_flight_bytes_max,
        );
        // Two states share one runtime: expressions of tables get no catalog, sessions do.
        let spill = spill_directory(&options)?;
        let runtime = runtime(&options)?;
        let state = Arc::new(state(&options, Arc::clone(&runtime)));
        let context = SessionContext::new_with_state(self::state(&options, runtime));
        let router = Arc::new(router);
        let copies = Copies::new(
            Arc::clone(&view),
            Arc::clone(&router),
            Arc::clone(&meta),
            Arc::clone(&state),
        );
        let sources = Sources {
            statements: Arc::default(),
            index_usage: Arc::default(),
            advisor: Arc::default(),
            view: Arc::clone(&view),
            query_log: Arc::clone(&query_log),
            audit: Arc::clone(&audit),
            rejected_points: Arc::clone(&rejected_points),
            loads: Arc::clone(&loads),
            meta: Arc::clone(&meta),
            copies: Arc::clone(&copies),
        };
        let databases = Arc::new(Databases::new(sources.clone(), Arc::clone(&state)));
        context.register_catalog(CATALOG, Arc::clone(&databases) as _);
        let lives = Arc::<Lives>::default();
        lives.follow(meta.catalog(), &home);
        let blame = Blame::new(Arc::clone(&meta), stalls);
        let sequences = Arc::new(Sequences::new(Arc::clone(&view), Arc::clone(&meta)));
        Ok(Arc::new(Self {
            options,
            meta,
            view,
            router,
            copies,
            state,
            context,
            query_log,
            audit,
            rejected_points,
            metrics,
            loads,
            blame,
            sources,
            lanes,
            databases,
            visible: Arc::default(),
            lives,
            authenticator,
            series_limits: SeriesLimits::default(),
            spill,
            turns: Turns::default(),
            sequences,
            temporary: Registry::default(),
        }))
    }

    /// Removes the directory to which queries spilled, at the end of the process. Queries that still spill then fail.
    pub fn remove_spilled(&self) {
        if let Some(spill) = &self.spill {
            spill.close(&self.state.runtime_env().disk_manager.temp_dir_paths());
        }
    }

    /// Turns of statements that change the same rows.
    pub(crate) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// Blocks of sequences.
    pub(crate) fn sequences(&self) -> &Arc<Sequences> {
        &self.sequences
    }

    /// Temporary tables of all sessions, by their numbers.
    pub(crate) fn temporary(&self) -> &Registry {
        &self.temporary
    }

    /// Limits of series of organisations.
    pub(crate) fn series_limits(&self) -> &SeriesLimits {
        &self.series_limits
    }

    /// Authenticates the clients of all doors.
    pub fn authenticator(&self) -> &Authenticator {
        &self.authenticator
    }

    /// The newest catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.view.catalog()
    }

    /// Roles, grants and tokens of the newest catalog.
    pub fn access(&self) -> Arc<Access> {
        Arc::clone(&self.catalog().access)
    }

    /// The cluster as an identity sees it.
    pub fn viewer(&self, identity: Identity) -> Arc<Viewer> {
        Viewer::new(Arc::clone(&self.view), Arc::clone(&self.visible), identity)
    }

    /// Checks that an identity may do all of these things now, and records a refusal. An attempt whose refusal means
    /// nothing is one of [`Viewer::check`].
    ///
    /// # Errors
    /// As [`Viewer::check`].
    pub fn authorize(&self, identity: &Identity, needs: &[Need]) -> Result<Permit, SqlError> {
        let viewer = self.viewer(*identity);
        let permit = viewer.check(needs);
        if let Err(error) = &permit {
            self.audit.refused(&viewer.access(), viewer.origin(), ("REQUEST", None), error);
        }
        permit
    }

    /// Records of who did what.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Bytes that each table stores, in files and memtables, each row once however many replicas it has; without logs
    /// and former placements. A table that no node reports is missing. Asks every node, and waits a few seconds at
    /// most.
    pub async fn table_bytes(&self) -> HashMap<TableId, u64> {
        let statuses = statuses(self.view.nodes().as_ref()).await;
        table_bytes(&self.catalog(), &statuses)
    }

    /// Estimated number of rows of a table, without former placements, from figures that are a few seconds old;
    /// `None` without any figures. Does not wait.
    pub fn about_rows(&self, table: &Table) -> Option<u64> {
        let counts = self.view.row_counts();
        let routes = table.partitions.routes().iter();
        let partition_rows = routes.filter_map(|route| counts.get(&route.partition).copied());
        partition_rows.reduce(u64::saturating_add)
    }

    /// A load report of the last seconds; `None` if meta does not answer soon. Meta gets one request in some seconds,
    /// however often this is called.
    pub async fn load(&self) -> Option<Arc<LoadReport>> {
        self.loads.recent().await
    }

    /// Heatmap of a table's load over keys and time, as JSON. `permit` is the proof that the client may read the table.
    ///
    /// # Errors
    /// Fails if the table or metric does not exist, no meta answers, or the permit restricts the rows: the heatmap shows
    /// keys of all of them.
    pub async fn heatmap(
        &self,
        permit: &Permit,
        request: HeatmapRequest,
    ) -> Result<Bytes, SqlError> {
        if let Some(table) = self.catalog().table_by_id(request.table) {
            check_all_rows(permit, table)?;
        }
        Ok(self.meta.heatmap(request).await?)
    }

    /// The remedy for a finding about a partition of a table, for any time: statements as in `sys.hot_partitions` if
    /// the finding still holds or the statements concern the whole table, otherwise words. `None` if no remedy is
    /// known or the table's options exclude it.
    pub fn advice(
        &self,
        table: &Table,
        report: &LoadReport,
        partition: Option<u64>,
        class: Class,
    ) -> Option<String> {
        let shapes = self.statements().read_shapes(table);
        advice(&self.catalog(), table, report, &shapes, (partition, class))
    }

    /// The hot key of a partition of a table, or the leading part of one, as SQL values; `None` if it has none. Only for
    /// those who may read all rows of the table.
    pub fn hot_key_text(&self, table: &Table, load: &PartitionLoad) -> Option<String> {
        bound_text(table, load.verdict.as_ref()?.hot_key.as_ref()?)
    }

    /// Receiver of catalog changes.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<Catalog>> {
        self.meta.catalog()
    }

    /// Configuration of the frontend.
    pub fn options(&self) -> &FrontendOptions {
        &self.options
    }

    /// DataFusion's context that every session starts from. What a door adds to it before the first session
    /// (functions, a schema such as `pg_catalog`) is available in all sessions.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// Log of the last statements.
    pub fn query_log(&self) -> &QueryLog {
        &self.query_log
    }

    /// Statements by their shape.
    pub(crate) fn statements(&self) -> &Statements {
        &self.sources.statements
    }

    /// Use of indexes by the statements of this frontend.
    pub(crate) fn index_usage(&self) -> &IndexUsage {
        &self.sources.index_usage
    }

    /// Sources of the system tables.
    pub(crate) fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The last lines of line protocol that were not stored.
    pub fn rejected_points(&self) -> &RejectedPoints {
        &self.rejected_points
    }

    /// A claim on the memory of queries, of nothing yet, for a consumer that errors name.
    pub fn claim_memory(&self, consumer: &str) -> MemoryReservation {
        MemoryConsumer::new(consumer).register(&self.state.runtime_env().memory_pool)
    }

    /// Threads that statements run on.
    pub fn lanes(&self) -> &Arc<Lanes> {
        &self.lanes
    }

    /// Counters of the frontend.
    pub fn metrics(&self) -> Arc<FrontendMetrics> {
        Arc::clone(&self.metrics)
    }

    /// Schemas that all sessions share, and the way to those of one.
    pub(crate) fn databases(&self) -> &Arc<Databases> {
        &self.databases
    }

    /// Sessions of this frontend that a viewer sees: those of its role and token, or all with the right MONITOR.
    pub fn activities(&self, viewer: &Viewer) -> Vec<SessionActivity> {
        self.lives.activities(viewer)
    }

    /// Lives of all sessions.
    pub(crate) fn lives(&self) -> &Arc<Lives> {
        &self.lives
    }

    /// Samples of who writes and reads.
    pub(crate) fn blame(&self) -> &Blame {
        &self.blame
    }

    /// Sends samples of who writes and reads to meta, every few seconds, until it is stopped: meta names by them the
    /// causes of hot partitions.
    pub async fn tell_causes(self: Arc<Self>, stop: CancellationToken) {
        self.blame.tell(&stop).await;
    }

    /// Contacts each node once when it becomes known, until it is stopped: the first write to a partition that was split
    /// off to a node would otherwise wait for a connection.
    pub async fn meet_nodes(self: Arc<Self>, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.view.meet_nodes() => {}
        }
    }

    /// Load reports of meta.
    pub(crate) fn loads(&self) -> &Loads {
        &self.loads
    }

    /// The cluster as this frontend sees it.
    pub(crate) fn view(&self) -> &Arc<ClusterView> {
        &self.view
    }

    /// Sends rows to the leaders of their partitions.
    pub(crate) fn router(&self) -> &Arc<Router> {
        &self.router
    }

    /// Work for materialized copies.
    pub(crate) fn copies(&self) -> &Arc<Copies> {
        &self.copies
    }

    pub(crate) fn state(&self) -> &Arc<SessionState> {
        &self.state
    }

    /// Changes the catalog; [`Frontend::catalog`] shows the change on return. Returns whether anything changed. `permit` is
    /// the proof that the client may make the change; its role owns what is created.
    ///
    /// # Errors
    /// Errors of the catalog service; that of an object that does not exist if the permit is for another object than the
    /// one that has the name.
    pub async fn change(&self, permit: &Permit, mut ddl: Ddl) -> Result<bool, SqlError> {
        match &mut ddl {
            Ddl::CreateDatabase { name, owner, .. } => {
                check_database_name(name)?;
                *owner = permit.role();
            }
            Ddl::CreateTable { table, .. } => {
                let catalog = self.catalog();
                // A copy belongs to the owner of its source, not to the role that creates it.
                let source = table.copy_of.and_then(|source| catalog.table_by_id(source));
                table.owner = source.map_or(permit.role(), |source| source.owner);
            }
            Ddl::AlterDatabase { .. }
            | Ddl::MakeExplicit { .. }
            | Ddl::CommentDatabase { .. }
            | Ddl::DropDatabase { .. }
            | Ddl::DropTable { .. }
            | Ddl::TruncateTable { .. }
            | Ddl::AlterTable { .. }
            | Ddl::Access(_)
            | Ddl::Copy(_)
            | Ddl::Checked(_) => {}
            Ddl::Task(change) => {
                if let TaskChange::Create { task, .. } = change.as_mut() {
                    task.owner = permit.role();
                }
            }
            Ddl::Sequence(change) => {
                if let SequenceChange::Create { sequence, .. } = change.as_mut() {
                    sequence.owner = permit.role();
                }
            }
        }
        let catalog = self.catalog();
        check_target(&catalog, &ddl)?;
        let description = Description::of_change(&catalog, &ddl);
        let pending = self.audit.begin(&catalog.access, Origin::from(permit), description);
        let changed = match with_object(&catalog, permit, ddl) {
            Ok(Some(ddl)) => self.meta.change(ddl).await.map_err(SqlError::from),
            Ok(None) => Ok(false),
            Err(error) => Err(error),
        };
        match &changed {
            Ok(true) => pending.end(None),
            Ok(false) => pending.forget(),
            Err(error) => pending.end(Some(error)),
        }
        changed
    }

    /// Records a step of a task's run, which needs no right but the lease. False if the step does not fit what is recorded.
    ///
    /// # Errors
    /// Errors of the catalog service.
    pub(crate) async fn record_step(&self, task: TaskId, step: TaskStep) -> Result<bool, SqlError> {
        let change = TaskChange::Step { task, step };
        Ok(self.meta.change(Ddl::Task(Box::new(change))).await?)
    }

    /// Sends an operator's order to meta. `permit` is the proof that the client may give it.
    pub(crate) async fn administer(
        &self,
        permit: &Permit,
        order: AdminOrder,
    ) -> Result<(), SqlError> {
        let description = Description::of_order(&order);
        let ordered = async { self.meta.administer(order).await.map_err(SqlError::from) };
        self.audited(permit, description, ordered).await
    }

    /// Does work that is recorded with its outcome. `permit` is the proof that the client may have it done.
    pub(crate) async fn audited<T>(
        &self,
        permit: &Permit,
        description: Description,
        work: impl Future<Output = Result<T, SqlError>>,
    ) -> Result<T, SqlError> {
        let pending = self.audit.begin(&self.access(), Origin::from(permit), description);
        let result = work.await;
        pending.end(result.as_ref().err());
        result
    }
}

fn spill_directory(options: &FrontendOptions) -> Result<Option<SpillDirectory>, SqlError> {
    let Some(directory) = &options.spill_dir else { return Ok(None) };
    SpillDirectory::open(directory).map(Some).map_err(|error| {
        let message = format!("could not open spill directory {}: {error}", directory.display());
        SqlError::new("58030", message)
    })
}

fn runtime(options: &FrontendOptions) -> Result<Arc<RuntimeEnv>, SqlError> {
    let consumers = std::num::NonZeroUsize::new(CONSUMERS_NAMED)
        .ok_or_else(|| SqlError::internal("no memory consumer is named"))?;
    let pool = TrackConsumersPool::new(ReservingPool::new(options.query_memory_bytes), consumers);
    let mode = match &options.spill_dir {
        Some(directory) => DiskManagerMode::Directories(vec![directory.clone()]),
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

/// DataFusion's rules with [`ExactComparisons`] before each that casts literals and after all of them, since the last
/// one may still bring a predicate and its literal together. [`KeptProjections`] and [`RepeatedKeys`] run before the rules
/// that they correct, and [`KeptFilters`] replaces a rule.
fn with_own_rules(
    rules: Vec<Arc<dyn OptimizerRule + Send + Sync>>,
) -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let mut extended: Vec<Arc<dyn OptimizerRule + Send + Sync>> =
        Vec::with_capacity(rules.len() + 3 + READERS.len());
    for rule in rules {
        if READERS.contains(&rule.name()) {
            extended.push(Arc::new(RepeatedKeys));
        }
        if rule.name() == SimplifyExpressions::new().name() {
            extended.push(Arc::new(ExactComparisons));
        } else if rule.name() == OptimizeProjections::new().name() {
            extended.push(Arc::new(KeptProjections));
        } else if rule.name() == KeptFilters::default().name() {
            extended.push(Arc::new(KeptFilters::default()));
            continue;
        }
        extended.push(rule);
    }
    extended.push(Arc::new(ExactComparisons));
    extended
}

/// DataFusion's rules, of which those that push filters down leave arrays out.
fn with_nested_bounds(
    rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>,
) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let (first_pass, last_pass) = (FilterPushdown::new(), FilterPushdown::new_post_optimization());
    let rules = rules.into_iter().map(|rule| -> Arc<dyn PhysicalOptimizerRule + Send + Sync> {
        if [first_pass.name(), last_pass.name()].contains(&rule.name()) {
            Arc::new(NestedBounds(rule))
        } else {
            rule
        }
    });
    rules.collect()
}

fn state(options: &FrontendOptions, runtime: Arc<RuntimeEnv>) -> SessionState {
    let config = SessionConfig::new()
        .with_default_catalog_and_schema(CATALOG, DEFAULT_DATABASE)
        .with_create_default_catalog_and_schema(false)
        // Partita has its own, with more columns and tables.
        .with_information_schema(false)
        .with_target_partitions(options.query_parallelism.max(1))
        // A scan already has as many outputs as are useful.
        .with_round_robin_repartition(false)
        .with_option_extension(AtDataOptions::default())
        .set("datafusion.execution.time_zone", &ScalarValue::from("UTC"))
        // The physical IS TRUE is nullable, the logical one is not; no result depends on the difference.
        .set("datafusion.execution.skip_physical_aggregate_schema_check", &ScalarValue::from(true))
        .set("datafusion.sql_parser.dialect", &ScalarValue::from("postgresql"))
        .set("datafusion.sql_parser.default_null_ordering", &ScalarValue::from("nulls_max"));
    // These rules run first, while a scan is directly below the operators that need its rows.
    let mut rules = with_nested_bounds(PhysicalOptimizer::new().rules);
    rules.insert(0, Arc::new(NewestRows));
    // A scan in the order of keys needs no other restriction.
    rules.insert(1, Arc::new(KeyOrders));
    // Each span that is near an end has the restriction of the whole.
    rules.insert(2, Arc::new(FirstRows));
    rules.insert(3, Arc::new(NearEnd));
    rules.insert(4, Arc::new(RunAtData::new(Arc::clone(&runtime))));
    // Limits are kept before orders are enforced.
    let orders = rules.iter().position(|rule| rule.name() == EnsureRequirements::new().name());
    rules.insert(orders.unwrap_or(rules.len()), Arc::new(KeptLimits));
    rules.push(Arc::new(LostLimits));
    // This rule runs last: no other rule knows the operator that it adds.
    rules.push(Arc::new(GroupRuns));
    // Rules before types are known come first, the others last.
    let mut analysis = Analyzer::new().rules;
    let before_types: Vec<Arc<dyn FunctionRewrite + Send + Sync>> = vec![
        Arc::new(ByteaTexts),
        Arc::new(EqualZeros),
        Arc::new(OutputTexts),
        Arc::new(ExactNumbers),
        Arc::new(IntervalTexts),
        Arc::new(SummedDifferences),
        Arc::new(UuidTexts),
        Arc::new(ArrayTexts),
        Arc::new(ArrayNulls),
    ];
    analysis.insert(0, Arc::new(UnnestedSubqueries::default()));
    analysis.insert(1, Arc::new(IntervalWindows));
    analysis.insert(2, Arc::new(OrderedZeros));
    // Other rewrites hide which texts are padded.
    analysis.insert(3, Arc::new(FilledTexts));
    analysis.insert(4, Arc::new(ApplyFunctionRewrites::new(before_types)));
    analysis.insert(5, Arc::new(ListedValues));
    analysis.push(Arc::new(NamedUnions));
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
        Arc::new(ReadTimes),
        Arc::new(RoundedCasts),
        Arc::new(BoundedConcatenation),
    ])));
    analysis.push(Arc::new(GuardedFilters));
    // Every rule checks for an interruption before it runs.
    let analysis = analysis.into_iter().map(|rule| Arc::new(CheckedRule(rule)) as _).collect();
    let optimization = with_own_rules(Optimizer::new().rules);
    let optimization = optimization.into_iter().map(|rule| Arc::new(CheckedRule(rule)) as _);
    let rules = rules.into_iter().map(|rule| Arc::new(CheckedRule(rule)) as _).collect();
    let mut state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_expr_planners(vec![
            Arc::new(JsonOperators),
            Arc::new(ScaledIntervals),
            Arc::new(DateArithmetic),
            Arc::new(ExactParts),
            Arc::new(ByteaLiterals),
            Arc::new(ExactNumbers),
            Arc::new(IntervalTexts),
            Arc::new(UuidTexts),
            Arc::new(ArrayTexts),
            Arc::new(AdjustedCalls),
        ])
        .with_type_planner(Arc::new(TimeTypes))
        .with_default_features()
        .with_analyzer_rules(analysis)
        .with_optimizer_rules(optimization.collect())
        .with_physical_optimizer_rules(rules)
        .build();
    for function in partita_worker::functions::shared() {
        // Registering a function replaces DataFusion's function of the same name (`version`).
        let _replaced =
            datafusion::execution::FunctionRegistry::register_udf(&mut state, Arc::new(function));
    }
    for function in partita_worker::functions::shared_aggregates() {
        let _replaced =
            datafusion::execution::FunctionRegistry::register_udaf(&mut state, function);
    }
    state
}

//! Queries: DataFusion plans them and they run over the partitions; a query is planned again if its partitions
//! changed before its first row.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{
    Column, DataFusionError, ExprSchema, ParamValues, ScalarValue, SchemaError,
};
use datafusion::datasource::source_as_provider;
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::expr_rewriter::unnormalize_cols;
use datafusion::logical_expr::{DdlStatement, Expr, LogicalPlan};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::planner::object_name_to_table_reference;
use datafusion::sql::sqlparser::ast::ObjectName;
use futures::StreamExt;
use futures::future::BoxFuture;
use partita_proto::access::{Action, Need, RowPredicate};
use partita_proto::catalog::Table;
use partita_proto::id::{RoleId, TableId};
use partita_sql::adapted::adapt;
use partita_sql::aligned::{self, TimeAndKeys};
use partita_sql::merged::{self, Tables};
use partita_sql::parser;
use partita_sql::qualifiers;
use partita_sql::rewritten::turn_differences;
use partita_sql::statement::{Explain, InsertSource, Query, Statement};
use partita_sql::{
    check_sort_keys, drop_collations, give_names, name_by_text, name_function_columns,
    name_numbered, number_alike, number_hiding, order_aggregates, rename_tables, tell_sort_columns,
    with_shown_names,
};
use partita_worker::{with_bounded_constants, with_bounded_folding};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::aligned::{of_named, of_rows};
use super::executed::Executed;
use super::plan_lines;
use crate::access::life::Life;
use crate::access::viewer::readable_as;
use crate::conditional::guarded as guarded_conditions;
use crate::copies::choose::{Readable, fits};
use crate::error::{FEATURE_NOT_SUPPORTED, STATEMENT_TOO_COMPLEX, SqlError};
use crate::guard::guarded;
use crate::output::{Output, RowStream};
use crate::plan_scans::pin_scans;
use crate::privileges::sees_all;
use crate::reads::Reads;
use crate::scan::{Reading, Usage};
use crate::session::{PlanContext, Planned, Prepared, Session};
use crate::supplied::SuppliedRows;
use crate::table::{PartitionedTable, Through};

/// Maximum levels of types within each other. Arrow's readers refuse messages with 64 nested tables, of which each level
/// takes one and the message itself some.
const TYPE_LEVELS_MAX: usize = 32;
/// Maximum plans of a statement whose partitions keep changing; then it fails.
const PLANS_MAX: u32 = 3;
/// Maximum columns of tables whose names items beside a wildcard have, in one statement.
const HIDINGS_MAX: u32 = 64;
/// Maximum wait for a newer catalog between two plans.
const NEWS: Duration = Duration::from_millis(500);
/// SQLSTATE of changed routes: another plan may succeed.
const STALE: &str = "40001";
/// Maximum batches read ahead of the client.
const BATCHES_AHEAD: usize = 2;

/// Source of a plan; a query that is planned again uses it again.
pub(super) enum Source<'a> {
    /// A syntax tree.
    Statement(&'a PlannerStatement),
    /// A syntax tree and values for its parameters.
    WithParameters(&'a PlannerStatement, &'a [ScalarValue]),
    /// A prepared query and values for its parameters.
    Prepared(&'a Prepared, &'a [ScalarValue]),
    /// A plan of a syntax tree and values for its parameters.
    Planned(&'a LogicalPlan, &'a PlannerStatement, &'a [ScalarValue]),
}

impl Source<'_> {
    /// The columns with the names that clients see.
    fn shown(&self, schema: SchemaRef) -> SchemaRef {
        match self {
            Self::Statement(statement)
            | Self::WithParameters(statement, _)
            | Self::Planned(_, statement, _) => with_shown_names(statement, schema),
            Self::Prepared(prepared, _) => match &prepared.statement {
                Statement::Query(query) => with_shown_names(&query.statement, schema),
                _ => schema,
            },
        }
    }
}

/// The table that a statement writes to, and reads beside its query.
#[derive(Clone, Copy, Default)]
pub(super) struct Target<'a> {
    /// Table that the statement writes to: all scans of it are opened before the first row is read.
    pub(super) pinned: Option<&'a Table>,
    /// Notes what was read of it, if its rows are written under conditions.
    pub(super) reads: Option<&'a Reads>,
    /// Table for which SELECT is not needed.
    pub(super) unread: Option<TableId>,
    /// True if the rows are written to a table that the query does not read.
    pub(super) writes: bool,
    /// True if the rows are deleted: garbage of a wide table is deleted with them, so that it does not come to light.
    pub(super) deletes: bool,
    /// Rows that the statement supplies itself.
    pub(super) supplied: Option<&'a SuppliedRows>,
}

/// A running query.
pub(super) struct Running {
    pub(super) plan: Arc<dyn ExecutionPlan>,
    pub(super) schema: SchemaRef,
    pub(super) stream: RowStream,
    /// Stored tables and views that it names.
    pub(super) tables: Vec<TableId>,
}

/// A stored table that a plan reads.
struct Scanned {
    table: Arc<Table>,
    /// Rows that its scan is restricted to.
    rows: Option<RowPredicate>,
    /// View through which it is read.
    through: Option<Through>,
}

impl Scanned {
    /// Role by whose rights it is read; `None`: the identity of the session.
    fn owner(&self) -> Option<RoleId> {
        self.through.map(|through| through.owner)
    }
}

impl Session {
    pub(super) async fn query(&self, query: &Query) -> Result<Executed, SqlError> {
        let source = Source::Statement(&query.statement);
        let running = self.start(&source, Target::default()).await?;
        Ok(running.into())
    }

    /// Plans and starts a query. Waits for its first batch, so that most errors are returned here.
    pub(super) async fn start(
        &self,
        source: &Source<'_>,
        target: Target<'_>,
    ) -> Result<Running, SqlError> {
        let view = self.frontend().view();
        let mut plans = 1;
        loop {
            let version = view.catalog().version;
            // A copy may be replaced at any time; its source has the same rows.
            let with_copies = plans == 1;
            match self.start_once(source, target, with_copies).await {
                Err(error) if error.sqlstate == STALE && plans < PLANS_MAX => {
                    plans += 1;
                    view.newer_catalog(version, Instant::now() + NEWS).await;
                }
                result => return result,
            }
        }
    }

    async fn start_once(
        &self,
        source: &Source<'_>,
        Target { pinned, reads, unread, writes, deletes, supplied }: Target<'_>,
        with_copies: bool,
    ) -> Result<Running, SqlError> {
        let mut state = self.statement_state();
        let logical = self.logical(&state, source).await?;
        // Checked before the optimizer, which may evaluate parts of the plan or remove them.
        let scans = scans_of(&logical)?;
        let tables = self.check_tables(&scans, unread)?;
        // Guard conditions after the optimizer, which would undo it.
        let optimized = with_bounded_folding(|| state.optimize(&logical))?;
        let optimized = with_bounded_constants(guarded_conditions(optimized)?)?;
        let nearer = match with_copies {
            true => nearer_copies(&optimized, &self.frontend().copies().in_step(), pinned)?,
            false => Vec::new(),
        };
        let readable = self.confirmed(&scans, nearer).await?;
        state.config_mut().set_extension(Arc::new(readable));
        // What a statement writes must not depend on rows that are no longer current.
        let reading = match writes || pinned.is_some() {
            true => self.reading().linearizable(),
            false => self.reading(),
        };
        let reading = Reading { uncollected: reading.uncollected || deletes, ..reading };
        state.config_mut().set_extension(Arc::new(reading));
        if let Some(supplied) = supplied {
            state.config_mut().set_extension(Arc::new(supplied.clone()));
        }
        let physical = state.query_planner().create_physical_plan(&optimized, &state).await?;
        // The statement writes to this table, and must not read its own rows.
        if let Some(table) = pinned {
            pin_scans(&physical, table, reads).await?;
        }
        let physical = guarded(physical)?;
        let rows = execute_stream(Arc::clone(&physical), state.task_ctx())?;
        let explains = plan_lines::explains(&logical);
        let schema = if explains { plan_lines::schema() } else { source.shown(rows.schema()) };
        let mut rows = driven(rows, Arc::clone(self.life()));
        if explains {
            rows = plan_lines::of_rows(rows, plan_lines::is_document(&logical));
        }
        // Most errors come with the first batch, and can still be repaired by another plan.
        let first = rows.next().await.transpose()?;
        let stream = futures::stream::iter(first.map(Ok)).chain(rows);
        Ok(Running { plan: physical, schema, stream: Box::pin(stream), tables })
    }

    /// The plan of a source, with the values of its parameters.
    async fn logical(
        &self,
        state: &SessionState,
        source: &Source<'_>,
    ) -> Result<LogicalPlan, SqlError> {
        Ok(match source {
            Source::Statement(statement) => plan(state, (*statement).clone()).await?,
            Source::WithParameters(statement, parameters) => {
                let logical = plan(state, (*statement).clone()).await?;
                with_parameters(logical, parameters)?
            }
            Source::Prepared(prepared, parameters) => {
                let logical = self.cached_plan(state, prepared).await?;
                with_parameters(logical.as_ref().clone(), parameters)?
            }
            Source::Planned(logical, _, parameters) => {
                with_parameters((*logical).clone(), parameters)?
            }
        })
    }

    /// Columns of a query that is not run. What it reads is checked as if it were.
    pub(super) async fn columns_of_query(
        &self,
        source: &Source<'_>,
    ) -> Result<SchemaRef, SqlError> {
        let state = self.statement_state();
        let logical = self.logical(&state, source).await?;
        self.check_tables(&scans_of(&logical)?, None)?;
        // Types are known when the plan is analyzed.
        let optimized = with_bounded_folding(|| state.optimize(&logical))?;
        Ok(source.shown(Arc::clone(optimized.schema().inner())))
    }

    /// Replicas that the session's queries may read.
    fn reading(&self) -> Reading {
        let settings = self.settings.lock();
        Reading {
            staleness_max: settings.staleness_max(),
            at_followers: settings.reads_at_followers(),
            uncollected: settings.reads_uncollected(),
        }
    }

    /// Checks that the identity may read every stored table of a plan, and that the plan reads no other rows of them,
    /// and returns the tables and views that the statement names. What a view reads is checked for its owner.
    fn check_tables(
        &self,
        scans: &[Scanned],
        unread: Option<TableId>,
    ) -> Result<Vec<TableId>, SqlError> {
        let is_read = |scan: &&Scanned| scan.through.is_some() || Some(scan.table.id) != unread;
        let read: Vec<&Scanned> = scans.iter().filter(is_read).collect();
        let owners: BTreeSet<Option<RoleId>> = read.iter().map(|scan| scan.owner()).collect();
        for owner in owners {
            let of_owner = || read.iter().filter(move |scan| scan.owner() == owner);
            let needs = self.needs_of(of_owner().map(|scan| &scan.table))?;
            let rows = match owner {
                Some(owner) => self.viewer().check_through(owner, &needs)?,
                None => {
                    let permit = self.viewer().check(&needs)?;
                    let tables = of_owner().map(|scan| readable_as(&scan.table));
                    tables.filter_map(|id| Some((id, permit.rows(id)?.clone()))).collect()
                }
            };
            for Scanned { table, rows: planned, .. } in of_owner() {
                // The rights have changed since the plan was made: another plan has the rows of now.
                if rows.get(&readable_as(table)) != planned.as_ref() {
                    let message = format!("the rights on table {} have changed", table.name);
                    return Err(SqlError::new(STALE, message));
                }
            }
        }
        let relation = |scan: &Scanned| scan.through.map_or(scan.table.id, |through| through.view);
        let relations: BTreeSet<TableId> = scans.iter().map(relation).collect();
        Ok(relations.into_iter().collect())
    }

    /// The needs to read these tables, each once.
    fn needs_of<'a>(
        &self,
        tables: impl Iterator<Item = &'a Arc<Table>>,
    ) -> Result<Vec<Need>, SqlError> {
        let tables: BTreeMap<TableId, &Arc<Table>> =
            tables.map(|table| (table.id, table)).collect();
        let mut needs = Vec::with_capacity(tables.len());
        for table in tables.values() {
            // The owner may be another one since the plan was made.
            let newest = self.frontend().view().newest(table);
            let newest = newest.ok_or_else(|| match table.copy {
                // Another table has taken the place of the copy.
                Some(_) => SqlError::new(STALE, format!("\"{}\" was replaced", table.name)),
                None => SqlError::undefined_table(&table.name),
            })?;
            needs.push(Need::new(Action::Select, self.viewer().object(&newest)?));
        }
        Ok(needs)
    }

    /// The copies, of those that the statement would read in place of their sources, that are in step by meta's word. Asks
    /// meta once, and only if the statement would read a copy.
    ///
    /// # Errors
    /// 55000 if the statement names a copy that is not in step.
    async fn confirmed(
        &self,
        scans: &[Scanned],
        nearer: Vec<Arc<Table>>,
    ) -> Result<Readable, SqlError> {
        let sources = || scans.iter().map(|scan| &scan.table).filter(|table| table.copy.is_some());
        let copies: Vec<TableId> = nearer.iter().chain(sources()).map(|copy| copy.id).collect();
        if copies.is_empty() {
            return Ok(Readable::default());
        }
        let in_step = self.frontend().copies().confirmations().in_step(&copies).await;
        if let Some(copy) = sources().find(|copy| !in_step.contains(&copy.id)) {
            let message = format!("materialized copy \"{}\" is not known to be in step", copy.name);
            return Err(SqlError::new("55000", message).with_hint(
                "its table always has all rows; sys.copies shows the state of the copy",
            ));
        }
        let is_in_step = |copy: &Arc<Table>| in_step.contains(&copy.id);
        Ok(Readable::new(nearer.into_iter().filter(is_in_step).collect()))
    }

    /// The logical plan of a prepared query. The cached one is valid while the catalog and the session's database, time
    /// zone and identity are unchanged.
    async fn cached_plan(
        &self,
        state: &SessionState,
        prepared: &Prepared,
    ) -> Result<Arc<LogicalPlan>, SqlError> {
        let catalog = self.frontend().catalog();
        let context = self.planned_within(state);
        if let Some(cached) = prepared.plan.lock().as_ref()
            && Weak::as_ptr(&cached.catalog) == Arc::as_ptr(&catalog)
            && cached.context == context
        {
            return Ok(Arc::clone(&cached.plan));
        }
        let statement = match &prepared.statement {
            Statement::Query(query) => query.statement.clone(),
            Statement::Explain(explain) => self.explained(explain)?.ok_or_else(|| {
                SqlError::unsupported("a parameter in EXPLAIN of INSERT ... VALUES")
            })?,
            statement => {
                return Err(SqlError::internal(format!("{} has no plan", statement.tag())));
            }
        };
        let logical = Arc::new(plan(state, statement).await?);
        let (catalog, plan) = (Arc::downgrade(&catalog), Arc::clone(&logical));
        *prepared.plan.lock() = Some(Planned { catalog, context, plan });
        Ok(logical)
    }

    /// The parts of a session that a plan depends on.
    pub(super) fn planned_within(&self, state: &SessionState) -> PlanContext {
        PlanContext {
            database: self.database(),
            zone: state.config_options().execution.time_zone.clone(),
            identity: self.identity(),
            temporary: self.viewer().temporary().changes(),
        }
    }

    pub(super) async fn explain(&self, explain: &Explain) -> Result<Executed, SqlError> {
        match self.explained(explain)? {
            Some(statement) => {
                let target = match explain.statement.as_ref() {
                    Statement::Insert(insert) => Some(self.table(&insert.table)?),
                    Statement::Delete(delete) => Some(self.table(&delete.table)?),
                    Statement::Update(update) => Some(self.table(&update.table)?),
                    _ => None,
                };
                // The plan of a DELETE has figures of the rows, and needs SELECT like any other.
                let source = Source::Statement(&statement);
                let target = Target { pinned: target.as_deref(), ..Target::default() };
                Ok(self.start(&source, target).await?.into())
            }
            None => self.explain_values(explain),
        }
    }

    /// EXPLAIN of the query of a statement; `None` if the statement has no query.
    pub(super) fn explained(
        &self,
        explain: &Explain,
    ) -> Result<Option<PlannerStatement>, SqlError> {
        let writes = match explain.statement.as_ref() {
            Statement::Query(query) => return Ok(Some(explain.planned(query))),
            Statement::Insert(insert) => match &insert.source {
                InsertSource::Query(query) => Some((explain.planned(query), "INSERT")),
                InsertSource::Values(_) | InsertSource::Default => None,
            },
            Statement::Delete(delete) => {
                let query = self.delete_query(delete)?;
                Some((explain.planned(&query), "DELETE"))
            }
            Statement::Update(update) => {
                let query = self.update_query(update)?;
                Some((explain.planned(&query), "UPDATE"))
            }
            Statement::CreateTableAs(create) => {
                Some((explain.planned(&create.query), "CREATE TABLE AS"))
            }
            statement => {
                return Err(SqlError::unsupported(format!("EXPLAIN of {}", statement.tag())));
            }
        };
        match writes {
            Some((_, verb)) if explain.options.analyze => Err(SqlError::unsupported(format!(
                "EXPLAIN ANALYZE of {verb}"
            ))
            .with_hint("EXPLAIN ANALYZE would write rows; EXPLAIN without ANALYZE shows the plan")),
            Some((statement, _)) => Ok(Some(statement)),
            None => Ok(None),
        }
    }

    fn explain_values(&self, explain: &Explain) -> Result<Executed, SqlError> {
        let Statement::Insert(insert) = explain.statement.as_ref() else {
            return Err(SqlError::internal("a statement without a plan"));
        };
        let table = self.table(&insert.table)?;
        let mut text = format!("Ingest: table={}.{}", table.database, table.name);
        // The values of a placement are keys of rows.
        if sees_all(self.viewer(), table.id) {
            let partitions = table.partitions.routes().len();
            let placement = table
                .placement
                .to_sql(&table.schema, partitions)
                .unwrap_or_else(|| "by key range".to_owned());
            text.push_str(&format!(", partitions={partitions}, placement={placement}"));
        }
        text.push_str("\n  Values: scanned into columns, not planned");
        Ok(Output::batch(plan_lines::of_text(&text)?).into())
    }
}

/// Reads a stream in a separate task, a few batches ahead. The returned stream keeps the statement's lane; dropping
/// it aborts the task, and so does the end of the session, which is the last error then. While the client does not read,
/// the statement gives up its admission.
fn driven(mut rows: SendableRecordBatchStream, life: Arc<Life>) -> RowStream {
    let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
    let lane = partita_lanes::current();
    let mut task = JoinSet::new();
    let ended = life.token().clone();
    let work = async move {
        while let Some(batch) = rows.next().await {
            let permit = match sender.try_reserve() {
                Ok(permit) => permit,
                Err(_) => {
                    let pause = partita_lanes::pause();
                    // The receiver is gone, and so is the need for more rows.
                    let Ok(permit) = sender.reserve().await else { break };
                    pause.end().await;
                    permit
                }
            };
            permit.send(batch.map_err(SqlError::from));
        }
    };
    task.spawn(async move {
        tokio::select! {
            () = work => {}
            () = ended.cancelled() => {}
        }
    });
    let state = (receiver, task, life, lane);
    let rows = futures::stream::unfold(state, |(mut receiver, mut task, life, lane)| async move {
        if let Some(batch) = receiver.recv().await {
            return Some((batch, (receiver, task, life, lane)));
        }
        match task.join_next().await {
            Some(Err(error)) if error.is_panic() => {
                let error = SqlError::internal("the query's task panicked");
                Some((Err(error), (receiver, task, life, lane)))
            }
            // The rows may not be complete.
            Some(_) => life.end_error().map(|error| (Err(error), (receiver, task, life, lane))),
            None => None,
        }
    });
    // Cursors, and the chain after the first batch, may poll it again after its end.
    Box::pin(rows.fuse())
}

impl From<Running> for Executed {
    fn from(running: Running) -> Self {
        Self {
            output: Output::Rows { schema: running.schema, stream: running.stream },
            plan: Some(running.plan),
            usage: Usage::default(),
        }
    }
}

/// Columns of a plan's rows, given the types of its parameters.
pub(super) fn result_schema(
    logical: &LogicalPlan,
    types: &[DataType],
) -> Result<SchemaRef, SqlError> {
    let nulls = types.iter().map(ScalarValue::try_from).collect::<Result<Vec<_>, _>>()?;
    let typed = with_parameters(logical.clone(), &nulls)?;
    let schema: &Schema = typed.schema().as_arrow();
    Ok(Arc::new(schema.clone()))
}

/// Plans a query; refuses every other statement.
pub(super) async fn plan(
    state: &SessionState,
    mut statement: PlannerStatement,
) -> Result<LogicalPlan, SqlError> {
    // What is explained is planned as by itself.
    if let PlannerStatement::Explain(explain) = statement {
        let logical = boxed_plan(state, *explain.statement).await?;
        return plan_lines::explained(state, explain.options, logical).await;
    }
    let sources = aligned::sources(&statement);
    if !sources.is_empty() {
        let columns = Box::pin(times_and_keys(state, sources)).await?;
        aligned::resolve(&mut statement, &columns);
    }
    qualifiers::check(&statement, &state.config_options().catalog.default_schema)?;
    check_sort_keys(&statement)?;
    adapt(&mut statement)?;
    let names = merged::tables(&statement);
    if !names.is_empty() {
        let tables = columns_of(state, names).await?;
        merged::rewrite(&mut statement, &tables)?;
    }
    // Without the order the result is still one that SQL allows.
    let ordered = match order_aggregates(&statement) {
        Some(ordered) => Box::pin(told(state, ordered)).await.ok(),
        None => None,
    };
    let logical = match ordered {
        Some(logical) => logical,
        None => Box::pin(told(state, statement)).await?,
    };
    check(&logical)?;
    Ok(logical)
}

/// [`plan`], for its own use.
fn boxed_plan(
    state: &SessionState,
    statement: PlannerStatement,
) -> BoxFuture<'_, Result<LogicalPlan, SqlError>> {
    Box::pin(plan(state, statement))
}

/// The columns of tables whose rows a statement aligns, by the numbers of their queries.
async fn times_and_keys(
    state: &SessionState,
    sources: Vec<aligned::Source>,
) -> Result<HashMap<String, TimeAndKeys>, SqlError> {
    let mut columns = HashMap::with_capacity(sources.len());
    for source in sources {
        let time_and_keys = match of_named(state, &source).await? {
            Some(time_and_keys) => time_and_keys,
            None => of_rows(&rows_schema(state, &source).await?, &source)?,
        };
        columns.insert(source.number, time_and_keys);
    }
    Ok(columns)
}

/// The columns of an item of FROM, which may have aligned rows itself.
fn rows_schema<'a>(
    state: &'a SessionState,
    source: &'a aligned::Source,
) -> BoxFuture<'a, Result<SchemaRef, SqlError>> {
    Box::pin(async move {
        let text = format!("SELECT * FROM {}", source.relation);
        let Some(Statement::Query(query)) = parser::parse(&text)?.pop() else {
            return Err(SqlError::internal("an aligned item of FROM is no query"));
        };
        let logical = plan(state, query.statement).await?;
        Ok(SchemaRef::clone(logical.schema().inner()))
    })
}

/// The plan of a statement, some of whose sort keys the planner may take for something else.
async fn told(state: &SessionState, statement: PlannerStatement) -> Result<LogicalPlan, SqlError> {
    // Names that are of no table may be of an item after all, which SQL does not say, but users write.
    let plan = match tell_sort_columns(&statement) {
        Some(rewrite) => Box::pin(planned(state, rewrite)).await.ok(),
        None => None,
    };
    match plan {
        Some(logical) => Ok(logical),
        None => Box::pin(planned(state, statement)).await,
    }
}

/// The plan of a statement, some of whose names may have to be rewritten for the planner.
async fn planned(
    state: &SessionState,
    mut statement: PlannerStatement,
) -> Result<LogicalPlan, SqlError> {
    // A sort key with a collation is no name by itself, so keys are told apart with their collations.
    drop_collations(&mut statement)?;
    let mut planned = Box::pin(state.statement_to_plan(statement.clone())).await;
    if planned.as_ref().is_ok_and(reads_a_field_of_a_value) && rename_tables(&mut statement) {
        planned = Box::pin(state.statement_to_plan(statement.clone())).await;
    }
    match planned {
        Err(error) => planned_with_names(state, statement, error).await,
        Ok(planned) => Ok(planned),
    }
}

/// Columns of the named tables that exist.
async fn columns_of(state: &SessionState, names: Vec<ObjectName>) -> Result<Tables, SqlError> {
    let mut tables = Tables::new();
    for name in names {
        let reference = object_name_to_table_reference(name.clone(), true)?;
        // Names of a WITH clause are not tables, and the planner reports tables that do not exist.
        let Ok(schema) = state.schema_for_ref(reference.clone()) else { continue };
        let Some(table) = schema.table(reference.table()).await? else { continue };
        let columns = table.schema().fields().iter().map(|field| field.name().clone()).collect();
        tables.insert(name.to_string(), columns);
    }
    Ok(tables)
}

/// Plans a query again whose column names the planner refused, with rewritten names. Returns the first error if no
/// rewrite applies or helps.
async fn planned_with_names(
    state: &SessionState,
    mut statement: PlannerStatement,
    first: DataFusionError,
) -> Result<LogicalPlan, SqlError> {
    // Each rewrite is tried at most once, for the error that it repairs.
    let mut ways: Vec<Way> = vec![
        (names_are_alike, number_alike),
        (names_are_alike, name_by_text),
        (a_column_is_missing, give_names),
        (a_column_is_missing, name_function_columns),
        (a_sort_key_is_missing, name_numbered),
        (a_difference_is_negated, turn_differences),
        (a_column_has_no_fields, rename_tables),
    ];
    let mut error = None;
    let mut hidings = 0;
    loop {
        let error_now = error.as_ref().unwrap_or(&first);
        // The planner reports one hidden column at a time.
        if hidings < HIDINGS_MAX
            && let Some(name) = hidden_column(error_now)
            && number_hiding(&mut statement, name)
        {
            hidings += 1;
            match Box::pin(state.statement_to_plan(statement.clone())).await {
                Ok(planned) => return Ok(planned),
                Err(next_error) => error = Some(next_error),
            }
            continue;
        }
        let next = ways.iter().position(|(is_for, _)| is_for(error_now));
        let is_new = match next.map(|next| ways.remove(next)) {
            // The statement has nothing for this rewrite; another one may apply.
            Some((_, rewrite)) if !rewrite(&mut statement) => continue,
            Some(_) => true,
            None => false,
        };
        if !is_new {
            return Err(first.into());
        }
        match Box::pin(state.statement_to_plan(statement.clone())).await {
            Ok(planned) => return Ok(planned),
            Err(next_error) => error = Some(next_error),
        }
    }
}

/// An error that a rewrite may repair, and the rewrite, which returns false if it changed nothing.
type Way = (fn(&DataFusionError) -> bool, fn(&mut PlannerStatement) -> bool);

/// Returns true if ORDER BY names a select item by number that is not among the groups' columns.
fn a_sort_key_is_missing(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::Diagnostic(_, error) => a_sort_key_is_missing(error),
        DataFusionError::Plan(message) => {
            message.contains("Column in ORDER BY must be in GROUP BY")
        }
        _ => false,
    }
}

/// Returns true if a plan takes a field of a column that is no structure: a table may be meant. The planner does not
/// look at the type of the column in each case.
fn reads_a_field_of_a_value(plan: &LogicalPlan) -> bool {
    let mut found = false;
    let is_value = |data_type: &DataType| {
        !matches!(data_type, DataType::Struct(_) | DataType::Map(..) | DataType::Null)
    };
    let visited = plan.apply_with_subqueries(|node| {
        let inputs = node.inputs();
        let type_of = |column: &Column| {
            let mut schemas = inputs.iter().map(|input| input.schema());
            schemas
                .find_map(|schema| Some(schema.field_from_column(column).ok()?.data_type().clone()))
        };
        let mut takes_field = |expr: &Expr| {
            if let Expr::ScalarFunction(call) = expr
                && call.func.name() == "get_field"
                && let Some(Expr::Column(column)) = call.args.first()
            {
                found |= type_of(column).is_some_and(|data_type| is_value(&data_type));
            }
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        };
        node.apply_expressions(|expr| expr.apply(&mut takes_field))
    });
    visited.is_ok() && found
}

/// Returns true if a column was read as a structure: a table may be meant.
fn a_column_has_no_fields(error: &DataFusionError) -> bool {
    let message = error.find_root().to_string();
    message.contains("Cannot access field at argument")
        || message.contains("Nested identifiers are not yet supported")
}

/// Returns true if a minus precedes what may be a difference of times.
fn a_difference_is_negated(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::Diagnostic(_, error) => a_difference_is_negated(error),
        DataFusionError::Plan(message) => message.contains("Unary operator '-' only supports"),
        _ => false,
    }
}

/// Returns true if a named column does not exist.
fn a_column_is_missing(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::SchemaError(error, _) => {
            matches!(error.as_ref(), SchemaError::FieldNotFound { .. })
        }
        DataFusionError::Diagnostic(_, error) => a_column_is_missing(error),
        DataFusionError::Plan(message) => {
            message.contains("column '") && message.contains("' not found")
        }
        _ => false,
    }
}

/// The name of a table's column that an item of the same SELECT has, too.
fn hidden_column(error: &DataFusionError) -> Option<&str> {
    match error.find_root() {
        // A reference that is ambiguous itself has no qualifier.
        DataFusionError::SchemaError(error, _) => match error.as_ref() {
            SchemaError::AmbiguousReference { field } if field.relation.is_some() => {
                Some(field.name.as_str())
            }
            _ => None,
        },
        _ => None,
    }
}

/// Returns true if two columns of a SELECT have the same name.
fn names_are_alike(error: &DataFusionError) -> bool {
    if hidden_column(error).is_some() {
        return true;
    }
    match error.find_root() {
        DataFusionError::Plan(message) => message.contains("unique expression names"),
        DataFusionError::SchemaError(error, _) => matches!(
            error.as_ref(),
            SchemaError::DuplicateQualifiedField { .. }
                | SchemaError::DuplicateUnqualifiedField { .. }
        ),
        _ => false,
    }
}

pub(super) fn with_parameters(
    logical: LogicalPlan,
    parameters: &[ScalarValue],
) -> Result<LogicalPlan, SqlError> {
    if parameters.is_empty() {
        return Ok(logical);
    }
    let bound = logical.replace_params_with_values(&ParamValues::from(parameters.to_vec()))?;
    check_limits(&bound)?;
    Ok(bound)
}

/// Refuses a LIMIT or an OFFSET that a parameter makes negative. The parser refuses negative constants.
fn check_limits(logical: &LogicalPlan) -> Result<(), SqlError> {
    let mut refused = None;
    logical.apply_with_subqueries(|node| {
        if let LogicalPlan::Limit(limit) = node {
            if limit.fetch.as_deref().is_some_and(is_negative) {
                refused = Some(("2201W", "LIMIT must not be negative"));
            } else if limit.skip.as_deref().is_some_and(is_negative) {
                refused = Some(("2201X", "OFFSET must not be negative"));
            }
        }
        Ok(if refused.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    match refused {
        Some((sqlstate, message)) => Err(SqlError::new(sqlstate, message)),
        None => Ok(()),
    }
}

fn is_negative(count: &Expr) -> bool {
    match count {
        Expr::Cast(cast) => is_negative(&cast.expr),
        Expr::Literal(value, _) => {
            let count = value.cast_to(&DataType::Int64);
            matches!(count, Ok(ScalarValue::Int64(Some(count))) if count < 0)
        }
        _ => false,
    }
}

/// Returns true if more than `levels` types are nested within each other.
fn is_nested_beyond(data_type: &DataType, levels: usize) -> bool {
    let is_deep = |field: &FieldRef| {
        levels == 0 || is_nested_beyond(field.data_type(), levels.saturating_sub(1))
    };
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _)
        | DataType::RunEndEncoded(_, item) => is_deep(item),
        DataType::Dictionary(_, values) => is_nested_beyond(values, levels),
        DataType::Struct(fields) => fields.iter().any(is_deep),
        DataType::Union(fields, _) => fields.iter().any(|(_, field)| is_deep(field)),
        _ => false,
    }
}

/// Refuses types that clients and nodes could not read, and statements that DataFusion's planner supports beyond SQL
/// queries: they read and write files of the server, change DataFusion's settings, or define objects in its own catalog.
fn check(logical: &LogicalPlan) -> Result<(), SqlError> {
    let mut refused = None;
    let mut is_too_deep = false;
    logical.apply_with_subqueries(|node| {
        let mut fields = node.schema().fields().iter();
        is_too_deep = fields.any(|field| is_nested_beyond(field.data_type(), TYPE_LEVELS_MAX));
        if is_too_deep {
            return Ok(TreeNodeRecursion::Stop);
        }
        refused = match node {
            LogicalPlan::Ddl(ddl) => Some(match ddl {
                DdlStatement::CreateExternalTable(_) => "CREATE EXTERNAL TABLE".to_owned(),
                DdlStatement::CreateFunction(_) => "CREATE FUNCTION".to_owned(),
                DdlStatement::CreateView(_) => "CREATE VIEW".to_owned(),
                DdlStatement::CreateMemoryTable(_) => "CREATE TABLE AS".to_owned(),
                DdlStatement::CreateIndex(_) => "CREATE INDEX".to_owned(),
                ddl => ddl.name().to_owned(),
            }),
            LogicalPlan::Copy(_) => Some("COPY to a file on the server".to_owned()),
            LogicalPlan::Dml(dml) => Some(format!("{} here", dml.op.name())),
            LogicalPlan::Statement(statement) => Some(statement.name().to_owned()),
            _ => None,
        };
        Ok(if refused.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if is_too_deep {
        let detail = format!("At most {TYPE_LEVELS_MAX} types are nested within each other.");
        let error = SqlError::new(STATEMENT_TOO_COMPLEX, "type is nested too deeply");
        return Err(error.with_detail(detail));
    }
    match refused {
        Some(feature) => {
            Err(SqlError::new(FEATURE_NOT_SUPPORTED, format!("{feature} is not supported")))
        }
        None => Ok(()),
    }
}

/// The copies that scans of a plan would read in place of their sources, by their filters. `copies` are those that the
/// catalog shows in step, by source. A statement that writes to a table reads this table itself.
fn nearer_copies(
    optimized: &LogicalPlan,
    copies: &HashMap<TableId, Vec<Arc<Table>>>,
    written: Option<&Table>,
) -> Result<Vec<Arc<Table>>, SqlError> {
    let mut nearer: BTreeMap<TableId, Arc<Table>> = BTreeMap::new();
    if copies.is_empty() {
        return Ok(Vec::new());
    }
    optimized.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let provider = source_as_provider(&scan.source)?;
            let stored = provider.downcast_ref::<PartitionedTable>();
            if let Some(stored) = stored
                && written.is_none_or(|written| written.id != stored.table().id)
                && let Some(copies) = copies.get(&stored.table().id)
            {
                let copies = copies.iter().filter(|copy| fits(copy, stored.table()));
                let filters = unnormalize_cols(scan.filters.iter().cloned());
                let copy = stored.nearer_copy(copies, &filters)?;
                nearer.extend(copy.map(|copy| (copy.table().id, Arc::clone(copy.table()))));
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(nearer.into_values().collect())
}

/// Stored tables that a plan reads, subqueries and views included.
fn scans_of(logical: &LogicalPlan) -> Result<Vec<Scanned>, SqlError> {
    let mut scans = Vec::new();
    logical.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let provider = source_as_provider(&scan.source)?;
            if let Some(stored) = provider.downcast_ref::<PartitionedTable>() {
                scans.push(Scanned {
                    table: Arc::clone(stored.table()),
                    rows: stored.rows().cloned(),
                    through: stored.through(),
                });
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(scans)
}

//! Queries: planned by DataFusion, run over the partitions, planned again when the partitions moved
//! under the plan before its first row.

use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, ParamValues, ScalarValue, SchemaError};
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::planner::object_name_to_table_reference;
use datafusion::sql::sqlparser::ast::ObjectName;
use futures::StreamExt;
use partita_proto::catalog::Table;
use partita_worker::with_bounded_constants;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Executed, plan_lines};
use crate::conditional::guarded as guarded_conditions;
use crate::error::{FEATURE_NOT_SUPPORTED, SqlError};
use crate::guard::guarded;
use crate::output::{Output, RowStream};
use crate::scan::{Usage, pin_scans};
use crate::session::{Planned, Prepared, Session};
use crate::sql::adapted::adapt;
use crate::sql::merged::{self, Tables};
use crate::sql::rewritten::turn_differences;
use crate::sql::statement::{Explain, InsertSource, Query, Statement};
use crate::sql::{give_names, name_numbered, number_alike, rename_tables, with_shown_names};

/// How often a statement is planned before partitions that keep moving fail it.
const PLANS_MAX: u32 = 3;
/// How long to wait for news of where they went.
const NEWS: Duration = Duration::from_millis(500);
/// "The routes changed": another plan may succeed.
const STALE: &str = "40001";
/// Batches that are ready before the client asks for them.
const BATCHES_AHEAD: usize = 2;

/// What a plan is made from, each time anew.
pub(super) enum Source<'a> {
    /// A syntax tree.
    Statement(&'a PlannerStatement),
    /// A syntax tree and values for its parameters.
    WithParameters(&'a PlannerStatement, &'a [ScalarValue]),
    /// A prepared query and values for its parameters.
    Prepared(&'a Prepared, &'a [ScalarValue]),
}

impl Source<'_> {
    /// The columns, with the names that clients are shown.
    fn shown(&self, schema: SchemaRef) -> SchemaRef {
        match self {
            Self::Statement(statement) | Self::WithParameters(statement, _) => {
                with_shown_names(statement, schema)
            }
            Self::Prepared(prepared, _) => match &prepared.statement {
                Statement::Query(query) => with_shown_names(&query.statement, schema),
                _ => schema,
            },
        }
    }
}

/// A query that runs.
pub(super) struct Running {
    pub(super) plan: Arc<dyn ExecutionPlan>,
    pub(super) schema: SchemaRef,
    pub(super) stream: RowStream,
}

impl Session {
    pub(super) async fn query(&self, query: &Query) -> Result<Executed, SqlError> {
        let running = self.start(&Source::Statement(&query.statement), None).await?;
        Ok(running.into())
    }

    /// Plans and starts a query; waits for its first rows, so that most errors are here. Scans of
    /// `pinned` are all opened before.
    pub(super) async fn start(
        &self,
        source: &Source<'_>,
        pinned: Option<&Table>,
    ) -> Result<Running, SqlError> {
        let router = self.frontend().router();
        let mut plans = 1;
        loop {
            let version = router.catalog().version;
            match self.start_once(source, pinned).await {
                Err(error) if error.sqlstate == STALE && plans < PLANS_MAX => {
                    plans += 1;
                    router.newer_catalog(version, Instant::now() + NEWS).await;
                }
                result => return result,
            }
        }
    }

    async fn start_once(
        &self,
        source: &Source<'_>,
        pinned: Option<&Table>,
    ) -> Result<Running, SqlError> {
        let state = self.statement_state();
        let logical = match source {
            Source::Statement(statement) => plan(&state, (*statement).clone()).await?,
            Source::WithParameters(statement, parameters) => {
                let logical = plan(&state, (*statement).clone()).await?;
                with_parameters(logical, parameters)?
            }
            Source::Prepared(prepared, parameters) => {
                let logical = self.cached_plan(&state, prepared).await?;
                with_parameters(logical.as_ref().clone(), parameters)?
            }
        };
        let optimized = with_bounded_constants(guarded_conditions(state.optimize(&logical)?)?)?;
        let physical = state.query_planner().create_physical_plan(&optimized, &state).await?;
        if let Some(table) = pinned {
            pin_scans(&physical, table).await?;
        }
        let physical = guarded(physical)?;
        let rows = execute_stream(Arc::clone(&physical), state.task_ctx())?;
        let explains = plan_lines::explains(&logical);
        let schema = if explains { plan_lines::schema() } else { source.shown(rows.schema()) };
        let mut rows = driven(rows);
        if explains {
            rows = plan_lines::of_rows(rows, plan_lines::is_document(&logical));
        }
        let first = rows.next().await.transpose()?;
        let stream = futures::stream::iter(first.map(Ok)).chain(rows);
        Ok(Running { plan: physical, schema, stream: Box::pin(stream) })
    }

    /// The logical plan of a prepared query: the one it has, as long as the catalog and the session's
    /// database and time zone are those it was made with.
    async fn cached_plan(
        &self,
        state: &SessionState,
        prepared: &Prepared,
    ) -> Result<Arc<LogicalPlan>, SqlError> {
        let version = self.frontend().catalog().version;
        let within = self.planned_within(state);
        if let Some(known) = prepared.plan.lock().as_ref()
            && known.version == version
            && known.within == within
        {
            return Ok(Arc::clone(&known.plan));
        }
        let statement = match &prepared.statement {
            Statement::Query(query) => query.statement.clone(),
            Statement::Explain(explain) => self.explained(explain)?.ok_or_else(|| {
                SqlError::unsupported("a parameter in EXPLAIN of INSERT ... VALUES")
            })?,
            other => return Err(SqlError::internal(format!("{} has no plan", other.tag()))),
        };
        let logical = Arc::new(plan(state, statement).await?);
        *prepared.plan.lock() = Some(Planned { version, within, plan: Arc::clone(&logical) });
        Ok(logical)
    }

    /// What of a session a plan depends on.
    pub(super) fn planned_within(&self, state: &SessionState) -> (String, Option<String>) {
        (self.database(), state.config_options().execution.time_zone.clone())
    }

    pub(super) async fn explain(&self, explain: &Explain) -> Result<Executed, SqlError> {
        match self.explained(explain)? {
            Some(statement) => Ok(self.start(&Source::Statement(&statement), None).await?.into()),
            None => self.explain_values(explain),
        }
    }

    /// EXPLAIN around the query of a statement; `None` when it has none.
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
            other => return Err(SqlError::unsupported(format!("EXPLAIN of {}", other.tag()))),
        };
        match writes {
            Some((_, verb)) if explain.options.analyze => Err(SqlError::unsupported(format!(
                "EXPLAIN ANALYZE of {verb}"
            ))
            .with_hint("it would write; EXPLAIN without ANALYZE shows how its rows are found")),
            Some((statement, _)) => Ok(Some(statement)),
            None => Ok(None),
        }
    }

    fn explain_values(&self, explain: &Explain) -> Result<Executed, SqlError> {
        let Statement::Insert(insert) = explain.statement.as_ref() else {
            return Err(SqlError::internal("a statement without a plan"));
        };
        let table = self.table(&insert.table)?;
        let partitions = table.partitions.routes().len();
        let placement = table
            .placement
            .to_sql(&table.schema, partitions)
            .unwrap_or_else(|| "by key range".to_owned());
        let text = format!(
            "Ingest: table={}.{}, partitions={partitions}, placement={placement}\n  Values: scanned \
             into columns, not planned",
            table.database, table.name
        );
        Ok(Output::batch(plan_lines::of_text(&text)?).into())
    }
}

/// Reads a stream in a task of its own, a few batches ahead. What is returned keeps the statement's lane; dropping it
/// aborts the task. While the client reads nothing, the statement gives up its place among those that compute.
fn driven(mut rows: SendableRecordBatchStream) -> RowStream {
    let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
    let lane = partita_lanes::current();
    let mut task = JoinSet::new();
    task.spawn(async move {
        while let Some(batch) = rows.next().await {
            let permit = match sender.try_reserve() {
                Ok(permit) => permit,
                Err(_) => {
                    let pause = partita_lanes::pause();
                    // Nobody waits for the rest.
                    let Ok(permit) = sender.reserve().await else { break };
                    pause.end().await;
                    permit
                }
            };
            permit.send(batch.map_err(SqlError::from));
        }
    });
    let state = (receiver, task, lane);
    let rows = futures::stream::unfold(state, |(mut receiver, mut task, lane)| async move {
        if let Some(batch) = receiver.recv().await {
            return Some((batch, (receiver, task, lane)));
        }
        match task.join_next().await {
            Some(Err(error)) if error.is_panic() => {
                let error = SqlError::internal("the query's task panicked");
                Some((Err(error), (receiver, task, lane)))
            }
            _ => None,
        }
    });
    // It may be asked again after its end: by a cursor, or behind the first batch.
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

/// Plans a query, and nothing but a query.
pub(super) async fn plan(
    state: &SessionState,
    mut statement: PlannerStatement,
) -> Result<LogicalPlan, SqlError> {
    adapt(&mut statement)?;
    let named = merged::tables(&statement);
    if !named.is_empty() {
        let tables = columns_of(state, named).await?;
        merged::rewrite(&mut statement, &tables)?;
    }
    let logical = match Box::pin(state.statement_to_plan(statement.clone())).await {
        Err(error) => planned_with_names(state, statement, error).await?,
        Ok(planned) => planned,
    };
    check(&logical)?;
    Ok(logical)
}

/// The columns of tables, as far as there are any.
async fn columns_of(state: &SessionState, named: Vec<ObjectName>) -> Result<Tables, SqlError> {
    let mut tables = Tables::new();
    for name in named {
        let reference = object_name_to_table_reference(name.clone(), true)?;
        // What WITH names is no table, and a table that is not there is the planner's to refuse.
        let Ok(schema) = state.schema_for_ref(reference.clone()) else { continue };
        let Some(table) = schema.table(reference.table()).await? else { continue };
        let columns = table.schema().fields().iter().map(|field| field.name().clone()).collect();
        tables.insert(name.to_string(), columns);
    }
    Ok(tables)
}

/// Plans a query again that failed for the names of its columns, with others that may be meant. If that is not what it
/// fails for, or fails as well, the first error is the user's.
async fn planned_with_names(
    state: &SessionState,
    mut statement: PlannerStatement,
    first: DataFusionError,
) -> Result<LogicalPlan, SqlError> {
    let mut ways: Vec<Way> = vec![
        (names_are_alike, number_alike),
        (a_column_is_missing, give_names),
        (a_sort_key_is_missing, name_numbered),
        (a_difference_is_negated, turn_differences),
        (a_column_has_no_fields, rename_tables),
    ];
    let mut error = None;
    loop {
        let error_now = error.as_ref().unwrap_or(&first);
        let next = ways.iter().position(|(is_for, _)| is_for(error_now));
        let is_new = match next.map(|next| ways.remove(next)) {
            // Without what it looks for, another may serve.
            Some((_, rewrite)) if !rewrite(&mut statement) => continue,
            Some(_) => true,
            None => false,
        };
        if !is_new {
            return Err(first.into());
        }
        match Box::pin(state.statement_to_plan(statement.clone())).await {
            Ok(planned) => return Ok(planned),
            Err(other) => error = Some(other),
        }
    }
}

/// Whether a plan that failed so may be planned otherwise, and how; false when there is nothing to change.
type Way = (fn(&DataFusionError) -> bool, fn(&mut PlannerStatement) -> bool);

/// Whether a plan failed because a select item that ORDER BY names by its number is no column of the groups.
fn a_sort_key_is_missing(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::Diagnostic(_, error) => a_sort_key_is_missing(error),
        DataFusionError::Plan(message) => {
            message.contains("Column in ORDER BY must be in GROUP BY")
        }
        _ => false,
    }
}

/// Whether a plan failed because a column was taken for a structure: a table may be meant.
fn a_column_has_no_fields(error: &DataFusionError) -> bool {
    let message = error.find_root().to_string();
    message.contains("Cannot access field at argument")
        || message.contains("Nested identifiers are not yet supported")
}

/// Whether a plan failed because of a minus before what may be a difference of times.
fn a_difference_is_negated(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::Diagnostic(_, error) => a_difference_is_negated(error),
        DataFusionError::Plan(message) => message.contains("Unary operator '-' only supports"),
        _ => false,
    }
}

/// Whether a plan failed because a column that it names is not there.
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

/// Whether a plan failed because two of a SELECT's columns have one name.
fn names_are_alike(error: &DataFusionError) -> bool {
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
    Ok(logical.replace_params_with_values(&ParamValues::from(parameters.to_vec()))?)
}

/// DataFusion's planner knows statements that read and write files of the server, change its
/// settings or define things in its own catalog. None of them is ours.
fn check(logical: &LogicalPlan) -> Result<(), SqlError> {
    let mut refused = None;
    logical.apply_with_subqueries(|node| {
        refused = match node {
            LogicalPlan::Ddl(ddl) => Some(match ddl {
                DdlStatement::CreateExternalTable(_) => "CREATE EXTERNAL TABLE".to_owned(),
                DdlStatement::CreateFunction(_) => "CREATE FUNCTION".to_owned(),
                DdlStatement::CreateView(_) => "CREATE VIEW".to_owned(),
                DdlStatement::CreateMemoryTable(_) => "CREATE TABLE AS".to_owned(),
                DdlStatement::CreateIndex(_) => "CREATE INDEX".to_owned(),
                other => other.name().to_owned(),
            }),
            LogicalPlan::Copy(_) => Some("COPY to a file of the server".to_owned()),
            LogicalPlan::Dml(dml) => Some(format!("{} here", dml.op.name())),
            LogicalPlan::Statement(statement) => Some(statement.name().to_owned()),
            _ => None,
        };
        Ok(if refused.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    match refused {
        Some(what) => Err(SqlError::new(FEATURE_NOT_SUPPORTED, format!("{what} is not supported"))),
        None => Ok(()),
    }
}

//! Prepared statements: a query is planned once, INSERT ... VALUES never; both run with parameters.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, LogicalPlan, TryCast, TypeSignature};
use datafusion::sql::parser::Statement as PlannerStatement;
use parking_lot::Mutex;
use partita_proto::access::Permit;
use partita_proto::schema::UUID;
use partita_sql::literal;
use partita_sql::statement::{
    Execute, Explain, Insert, InsertSource, PrepareStatement, Show, Statement,
};
use partita_sql::task_statement::TaskStatement;
use partita_sql::with_shown_names;
use partita_worker::interval_text::intervals_of;
use partita_worker::{lists_of, time_of, uuid_of};

use super::executed::Executed;
use super::query::{Source, Target, plan, result_schema};
use super::returning::returning_of;
use super::roles::schema_of;
use super::round::stored;
use crate::error::{FEATURE_NOT_SUPPORTED, SqlError};
use crate::hotspot::shown::EXPLAIN_HOTSPOT;
use crate::output::Output;
use crate::session::{Planned, Prepared, Session};
use crate::virtual_table::schema;

const TIME: DataType = DataType::Time64(TimeUnit::Microsecond);

impl Session {
    pub(crate) async fn prepare_statement(
        &self,
        statement: Statement,
        declared: &[Option<DataType>],
    ) -> Result<Prepared, SqlError> {
        let catalog = Arc::downgrade(&self.frontend().catalog());
        let mut cached = None;
        // A query keeps its plan; for the others only the types of parameters and columns are known now.
        let (types, schema) = match &statement {
            Statement::Query(query) => {
                let state = self.statement_state();
                let context = self.planned_within(&state);
                let logical = plan(&state, query.statement.clone()).await?;
                let types = types_of(&logical, declared)?;
                let schema = result_schema(&logical, &types)?;
                let schema = with_shown_names(&query.statement, schema);
                cached = Some(Planned { catalog, context, plan: Arc::new(logical) });
                (types, Some(schema))
            }
            Statement::Insert(insert) => {
                let (inferred, declared) = self.insert_types(insert, declared).await?;
                self.with_returned(&statement, inferred, &declared).await?
            }
            Statement::Delete(delete) => {
                let query = self.delete_query(delete)?;
                let inferred = self.inferred_in(query.statement).await?;
                self.with_returned(&statement, inferred, declared).await?
            }
            Statement::Update(update) => {
                let query = self.update_query(update)?;
                let inferred = self.inferred_in(query.statement).await?;
                self.with_returned(&statement, inferred, declared).await?
            }
            Statement::CreateTableAs(create) => {
                (self.types_in(create.query.statement.clone(), declared).await?, None)
            }
            Statement::Explain(explain) => self.explain_types(explain, declared).await?,
            Statement::ExplainHotspot(_) => (Vec::new(), Some(schema(EXPLAIN_HOTSPOT))),
            Statement::Declare(declare) => {
                (self.types_in(declare.query.statement.clone(), declared).await?, None)
            }
            Statement::Show(show) => {
                (Vec::new(), Some(self.show_schema(show, &self.permit(&statement)?)?))
            }
            Statement::SeriesCardinality(series) => {
                let query = self.series_query(series)?;
                let logical = plan(&self.statement_state(), query.statement).await?;
                (Vec::new(), Some(result_schema(&logical, &[])?))
            }
            // The columns depend on the question, so it is answered.
            Statement::Advise(advise) => {
                let _permit = self.permit(&statement)?;
                let advised = Box::pin(self.advise(advise)).await?;
                (Vec::new(), rows_of(&advised.output))
            }
            Statement::Task(TaskStatement::Show) => (Vec::new(), rows_of(&self.show_tasks()?)),
            Statement::Access(access) => (Vec::new(), schema_of(access)),
            Statement::Describe(table) => (Vec::new(), rows_of(&self.describe(table)?)),
            Statement::Fetch(fetch) if !fetch.only_move => (
                Vec::new(),
                self.cursors.lock().get(&fetch.name).map(super::cursor::Cursor::schema),
            ),
            Statement::Execute(execute) => {
                (Vec::new(), self.prepared(&execute.name)?.schema.as_ref().map(Arc::clone))
            }
            _ => (Vec::new(), None),
        };
        Ok(Prepared { statement, parameter_types: types, schema, plan: Mutex::new(cached) })
    }

    /// The types of a statement's parameters, with those that RETURNING has, and the columns of RETURNING.
    async fn with_returned(
        &self,
        statement: &Statement,
        mut inferred: Inferred,
        declared: &[Option<DataType>],
    ) -> Result<(Vec<DataType>, Option<SchemaRef>), SqlError> {
        let Some(clause) = returning_of(statement) else {
            return Ok((joined(inferred, declared)?, None));
        };
        let query = self.returning_query(clause)?;
        let logical = Box::pin(plan(&self.statement_state(), query.statement.clone())).await?;
        fill(&mut inferred, inferred_of(&logical)?);
        let types = joined(inferred, declared)?;
        let schema = with_shown_names(&query.statement, result_schema(&logical, &types)?);
        Ok((types, Some(schema)))
    }

    async fn types_in(
        &self,
        statement: PlannerStatement,
        declared: &[Option<DataType>],
    ) -> Result<Vec<DataType>, SqlError> {
        joined(self.inferred_in(statement).await?, declared)
    }

    async fn inferred_in(&self, statement: PlannerStatement) -> Result<Inferred, SqlError> {
        inferred_of(&plan(&self.statement_state(), statement).await?)
    }

    /// Types of an INSERT's parameters, and the declared ones that count.
    async fn insert_types(
        &self,
        insert: &Insert,
        declared: &[Option<DataType>],
    ) -> Result<(Inferred, Vec<Option<DataType>>), SqlError> {
        let mut inferred = self.row_types(insert).await?;
        // The digits of a decimal are those of its column, not the declared ones.
        let counts = |index: usize, data_type: &DataType| {
            !(data_type.is_decimal() && inferred.contains_key(&index))
        };
        let declared = declared.iter().enumerate();
        let declared = declared
            .map(|(index, declared)| declared.clone().filter(|data_type| counts(index, data_type)))
            .collect();
        if let Some(update) = insert.conflict.as_ref().and_then(|clause| clause.update.as_ref()) {
            let table = self.table(&insert.table)?;
            let update = update.beside_excluded(&table)?;
            let query = update.rows_query(&table, &stored(&table), None)?;
            fill(&mut inferred, Box::pin(self.inferred_in(query.statement)).await?);
        }
        Ok((inferred, declared))
    }

    /// Types of the parameters in the rows of an INSERT.
    async fn row_types(&self, insert: &Insert) -> Result<Inferred, SqlError> {
        let table = self.table(&insert.table)?;
        let target = insert.target(&table.schema)?;
        if let Some(types) = insert.parameter_types(&target)? {
            return Ok(types.into_iter().enumerate().collect());
        }
        let query = match insert.values_query(&target)? {
            Some(query) => query,
            None => match &insert.source {
                InsertSource::Query(query) => query.as_ref().clone(),
                _ => return Ok(Inferred::new()),
            },
        };
        self.inferred_in(query.statement).await
    }

    async fn explain_types(
        &self,
        explain: &Explain,
        declared: &[Option<DataType>],
    ) -> Result<(Vec<DataType>, Option<SchemaRef>), SqlError> {
        let Some(statement) = self.explained(explain)? else {
            let executed = self.explain(explain).await?;
            return Ok((Vec::new(), rows_of(&executed.output)));
        };
        let logical = plan(&self.statement_state(), statement).await?;
        Ok((types_of(&logical, declared)?, Some(super::plan_lines::schema())))
    }

    fn show_schema(&self, show: &Show, permit: &Permit) -> Result<SchemaRef, SqlError> {
        rows_of(&self.show(show, permit)?).ok_or_else(|| SqlError::internal("SHOW without rows"))
    }

    /// Runs a prepared statement. `permit` is that of the statement that was prepared.
    pub(crate) async fn dispatch_prepared(
        &self,
        prepared: &Prepared,
        parameters: Vec<ScalarValue>,
        permit: &Permit,
    ) -> Result<Executed, SqlError> {
        check_count(prepared, &parameters)?;
        let some_parameters = || (!parameters.is_empty()).then_some(parameters.as_slice());
        match &prepared.statement {
            Statement::Query(_) => {
                let source = Source::Prepared(prepared, &parameters);
                Ok(self.start(&source, Target::default()).await?.into())
            }
            Statement::Explain(_) if !parameters.is_empty() => {
                let source = Source::Prepared(prepared, &parameters);
                Ok(self.start(&source, Target::default()).await?.into())
            }
            Statement::Insert(insert) => self.insert(insert, some_parameters(), permit).await,
            Statement::Delete(delete) if delete.finds_rows() => {
                Box::pin(self.delete_found(delete, some_parameters(), permit)).await
            }
            Statement::Delete(delete) => self.delete(delete, some_parameters(), permit).await,
            Statement::Update(update) => {
                Box::pin(self.update(update, some_parameters(), permit)).await
            }
            Statement::CreateTableAs(create) => {
                Box::pin(self.create_table_as(create, some_parameters(), permit)).await
            }
            Statement::Declare(declare) => {
                Ok(self.declare(declare, some_parameters()).await?.into())
            }
            statement => self.dispatch(statement, permit).await,
        }
    }

    pub(super) async fn prepare_by_name(
        &self,
        prepare: &PrepareStatement,
    ) -> Result<Output, SqlError> {
        let declared: Vec<_> = prepare.types.iter().cloned().map(Some).collect();
        let statement = prepare.statement.as_ref().clone();
        let prepared = Box::pin(self.prepare_statement(statement, &declared)).await?;
        self.keep_prepared(&prepare.name, &prepare.text, Arc::new(prepared))?;
        Ok(Output::done("PREPARE"))
    }

    pub(super) async fn execute_by_name(&self, execute: &Execute) -> Result<Executed, SqlError> {
        let prepared = self.prepared(&execute.name)?;
        let parameters = execute
            .parameters
            .iter()
            .enumerate()
            .map(|(position, expression)| {
                let value = literal::scalar(expression)?;
                match prepared.parameter_types.get(position) {
                    Some(data_type) => match value.try_as_str() {
                        Some(Some(text)) if *data_type == UUID => uuid_of(text),
                        Some(Some(text)) if *data_type == TIME => time_of(text),
                        Some(Some(_)) if let DataType::List(item) = data_type => {
                            let lists = lists_of(&value.to_array()?, item)?;
                            Ok(ScalarValue::try_from_array(&lists, 0)?)
                        }
                        Some(Some(_)) if matches!(data_type, DataType::Interval(_)) => {
                            let intervals = intervals_of(&value.to_array()?)?;
                            Ok(ScalarValue::try_from_array(&intervals, 0)?)
                        }
                        _ => Ok(value.cast_to(data_type)?),
                    },
                    None => Ok(value),
                }
            })
            .collect::<Result<Vec<_>, SqlError>>()?;
        let permit = self.permit(&prepared.statement)?;
        Box::pin(self.dispatch_prepared(&prepared, parameters, &permit)).await
    }
}

pub(super) fn check_count(prepared: &Prepared, parameters: &[ScalarValue]) -> Result<(), SqlError> {
    let expected = prepared.parameter_types.len();
    if parameters.len() == expected {
        return Ok(());
    }
    Err(SqlError::new(
        "08P01",
        format!(
            "{} parameters were supplied, but the statement requires {expected}",
            parameters.len()
        ),
    ))
}

fn rows_of(output: &Output) -> Option<SchemaRef> {
    match output {
        Output::Rows { schema, .. } => Some(Arc::clone(schema)),
        _ => None,
    }
}

/// Types of parameters, by their indexes, as far as they are known.
type Inferred = HashMap<usize, Option<DataType>>;

/// Adds types of parameters, of those that are not known yet.
fn fill(inferred: &mut Inferred, more: Inferred) {
    for (index, data_type) in more {
        let known_type = inferred.entry(index).or_default();
        if known_type.is_none() {
            *known_type = data_type;
        }
    }
}

/// Types of a plan's parameters: as the client declared them, otherwise as the plan needs them.
fn types_of(
    logical: &LogicalPlan,
    declared: &[Option<DataType>],
) -> Result<Vec<DataType>, SqlError> {
    joined(inferred_of(logical)?, declared)
}

/// Types of a plan's parameters as the plan needs them.
fn inferred_of(logical: &LogicalPlan) -> Result<Inferred, SqlError> {
    let mut inferred = Inferred::new();
    for (name, data_type) in logical.get_parameter_types()? {
        inferred.insert(position(&name)?, data_type);
    }
    // The plan has no types for parameters of LIMIT and OFFSET.
    logical.apply_with_subqueries(|node| {
        if let LogicalPlan::Limit(limit) = node {
            for expression in [&limit.fetch, &limit.skip].into_iter().flatten() {
                expression.apply(|expr| {
                    if let Expr::Placeholder(placeholder) = expr
                        && let Ok(index) = position(&placeholder.id)
                    {
                        inferred.entry(index).or_insert(None).get_or_insert(DataType::Int64);
                    }
                    Ok(TreeNodeRecursion::Continue)
                })?;
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    logical.apply_with_subqueries(|node| {
        let schema = merge_schema(&node.inputs());
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                for (id, data_type) in by_use(part, &schema).into_iter().chain(by_signature(part)) {
                    if let Ok(index) = position(id) {
                        inferred.entry(index).or_insert(None).get_or_insert(data_type);
                    }
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(inferred)
}

/// A parameter whose type is open.
fn untyped(operand: &Expr) -> Option<&str> {
    match operand {
        Expr::Placeholder(Placeholder { id, field: None }) => Some(id.as_str()),
        _ => None,
    }
}

/// Parameters that are arguments of a function which takes these types only.
fn by_signature(expression: &Expr) -> Vec<(&str, DataType)> {
    let Expr::ScalarFunction(call) = expression else { return Vec::new() };
    let TypeSignature::Exact(types) = &call.func.signature().type_signature else {
        return Vec::new();
    };
    let arguments = call.args.iter().zip(types);
    let open = arguments.filter_map(|(arg, data_type)| Some((untyped(arg)?, data_type.clone())));
    open.collect()
}

/// A parameter whose type follows from its use, where the planner leaves it open: a cast parameter has the target
/// type, the array of `array_has` has elements of the other argument's type, and the number of a session is an integer.
fn by_use<'a>(expression: &'a Expr, schema: &DFSchema) -> Option<(&'a str, DataType)> {
    match expression {
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
            Some((untyped(expr)?, field.data_type().clone()))
        }
        Expr::ScalarFunction(call) => match (call.func.name(), call.args.as_slice()) {
            ("array_has", [array, member]) => {
                let item_type = member.get_type(schema).ok()?;
                let item = Arc::new(Field::new_list_field(item_type, true));
                Some((untyped(array)?, DataType::List(item)))
            }
            ("pg_cancel_backend" | "pg_terminate_backend", [pid]) => {
                Some((untyped(pid)?, DataType::Int32))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Zero-based index of a parameter: `$3` is 2.
fn position(name: &str) -> Result<usize, SqlError> {
    let number: Option<usize> = name.strip_prefix('$').and_then(|number| number.parse().ok());
    match number {
        Some(number) if (1..=usize::from(u16::MAX)).contains(&number) => Ok(number - 1),
        _ => Err(SqlError::new(
            FEATURE_NOT_SUPPORTED,
            format!("parameter {name} is not supported; parameters are $1, $2 and so on"),
        )),
    }
}

fn joined(
    mut inferred: Inferred,
    declared: &[Option<DataType>],
) -> Result<Vec<DataType>, SqlError> {
    let count = inferred.keys().map(|index| index + 1).max().unwrap_or(0).max(declared.len());
    (0..count)
        .map(|index| {
            let declared = declared.get(index).cloned().flatten();
            let inferred = inferred.remove(&index).flatten();
            match declared.or(inferred) {
                Some(DataType::Null) | None => Ok(DataType::Utf8View),
                Some(data_type) => Ok(data_type),
            }
        })
        .collect()
}

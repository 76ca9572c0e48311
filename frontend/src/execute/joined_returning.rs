//! RETURNING of an UPDATE that reads other tables by FROM: its expressions may name their columns, too.
//!
//! ```text
//!   UPDATE t SET .. FROM o WHERE t.k = o.k RETURNING t.v, o.n
//!   plan of RETURNING:    Projection(t.v, o.n) ── Join(t, o)
//!   query of the rows:    SELECT t.k, .., o.n AS "joined 0" FROM t, o WHERE t.k = o.k
//!   after the writes:     Projection(t.v, o.n) ── rows of t as written, beside the columns that were joined to them
//! ```
//!
//! Names and types are those of a query over all the tables. The join itself is not run again: other statements may have
//! changed its tables since the rows were found.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::{cast, take};
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ScalarValue, TableReference};
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::parser::Statement as PlannerStatement;
use partita_proto::key::Keys;
use partita_sql::statement::Query;
use partita_sql::update_rows::find_joined;

use super::query::{Source, Target, plan};
use super::returning::{Returned, ReturningOf};
use crate::error::SqlError;
use crate::output::Output;
use crate::session::Session;

/// A planned RETURNING over the joined tables.
pub(super) struct JoinedReturning {
    statement: PlannerStatement,
    plan: LogicalPlan,
    /// Columns of the rows: those of the table, then those of other tables that RETURNING names.
    columns: Vec<Column>,
    /// The same columns under their positions as names.
    schema: SchemaRef,
    /// Number of columns of the table.
    own_columns: usize,
}

impl JoinedReturning {
    /// Has the query of the rows find the columns of other tables, too.
    pub(super) fn extend(&self, query: &mut Query) -> Result<(), SqlError> {
        let path = |column: &Column| {
            let mut path = column.relation.as_ref().map(TableReference::to_vec).unwrap_or_default();
            path.push(column.name.clone());
            path
        };
        let paths: Vec<Vec<String>> = self.columns[self.own_columns..].iter().map(path).collect();
        find_joined(query, &paths)
    }

    /// Columns of other tables in a batch of the query, where they are the last ones.
    fn values(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, SqlError> {
        let fields = &self.schema.fields()[self.own_columns..];
        let first = batch.num_columns().checked_sub(fields.len());
        let first = first.ok_or_else(|| SqlError::internal("a batch lacks joined columns"))?;
        let typed = |(array, field): (&ArrayRef, &FieldRef)| {
            Ok(match array.data_type() == field.data_type() {
                true => Arc::clone(array),
                false => cast(array, field.data_type())?,
            })
        };
        batch.columns()[first..].iter().zip(fields).map(typed).collect()
    }

    /// The plan over these rows in place of the join.
    fn over(&self, rows: Vec<RecordBatch>) -> Result<LogicalPlan, SqlError> {
        let table = MemTable::try_new(Arc::clone(&self.schema), vec![rows])?;
        let scan = LogicalPlanBuilder::scan("rows", provider_as_source(Arc::new(table)), None)?;
        let known = self.columns.iter().enumerate().map(|(position, column)| {
            let stored = Expr::Column(Column::new_unqualified(position.to_string()));
            stored.alias_qualified(column.relation.clone(), &column.name)
        });
        let joined = scan.project(known)?.build()?;
        let replaced = self.plan.clone().transform_down(|node| {
            Ok(match node {
                LogicalPlan::Join(_) => {
                    Transformed::new(joined.clone(), true, TreeNodeRecursion::Stop)
                }
                node => Transformed::no(node),
            })
        })?;
        Ok(replaced.data)
    }
}

/// Columns of other tables beside the rows of a batch, by the keys of these rows.
pub(super) struct JoinedRows {
    columns: Vec<ArrayRef>,
    positions: HashMap<Box<[u8]>, u32>,
}

impl JoinedRows {
    /// The columns beside the rows with `keys` that a batch of the query became.
    pub(super) fn new(
        joined: &JoinedReturning,
        batch: &RecordBatch,
        keys: &Keys,
    ) -> Result<Self, SqlError> {
        let positions = keys.iter().map(Box::<[u8]>::from).zip(0..).collect();
        Ok(Self { columns: joined.values(batch)?, positions })
    }

    /// The columns beside some of the rows.
    pub(super) fn beside(&self, keys: &Keys) -> Result<Vec<ArrayRef>, SqlError> {
        let position = |key: &[u8]| {
            let position = self.positions.get(key).copied();
            position.ok_or_else(|| SqlError::internal("a returned row was not joined"))
        };
        let positions = keys.iter().map(position).collect::<Result<Vec<u32>, SqlError>>()?;
        let positions = UInt32Array::from(positions);
        self.columns.iter().map(|column| Ok(take(column.as_ref(), &positions, None)?)).collect()
    }
}

impl Session {
    /// Plans RETURNING over the tables of an UPDATE with FROM, or of a DELETE with USING.
    pub(super) async fn joined_returning(
        &self,
        clause: ReturningOf<'_>,
    ) -> Result<JoinedReturning, SqlError> {
        let own_columns = self.table(clause.table)?.schema.shown_arrow().fields().len();
        let statement = self.returning_query(clause)?.statement;
        let plan = Box::pin(plan(&self.statement_state(), statement.clone())).await?;
        let named = named_columns(&plan)?;
        let mut columns = Vec::new();
        let mut fields = Vec::new();
        for (position, (relation, field)) in joined_tables(&plan)?.schema().iter().enumerate() {
            let column = Column::new(relation.cloned(), field.name());
            if position < own_columns || named.contains(&column) {
                fields.push(field.as_ref().clone().with_name(columns.len().to_string()));
                columns.push(column);
            }
        }
        let schema = Arc::new(Schema::new(fields));
        Ok(JoinedReturning { statement, plan, columns, schema, own_columns })
    }

    /// The output of an UPDATE with FROM and RETURNING that has written rows.
    pub(super) async fn joined_output(
        &self,
        joined: &JoinedReturning,
        rows: Returned,
        parameters: Option<&[ScalarValue]>,
    ) -> Result<Output, SqlError> {
        let whole = |(rows, others): (RecordBatch, Vec<ArrayRef>)| {
            let columns = rows.columns().iter().cloned().chain(others).collect();
            Ok(RecordBatch::try_new(Arc::clone(&joined.schema), columns)?)
        };
        let rows = rows.into_joined_rows().map(whole).collect::<Result<Vec<_>, SqlError>>()?;
        let plan = joined.over(rows)?;
        let source = Source::Planned(&plan, &joined.statement, parameters.unwrap_or_default());
        let running = self.start(&source, Target::default()).await?;
        Ok(Output::Rows { schema: running.schema, stream: running.stream })
    }
}

/// The join of the tables that a plan of RETURNING is made over.
fn joined_tables(plan: &LogicalPlan) -> Result<&LogicalPlan, SqlError> {
    let mut node = plan;
    loop {
        match (node, node.inputs().as_slice()) {
            (LogicalPlan::Join(_), _) => return Ok(node),
            (_, [input]) => node = *input,
            _ => return Err(SqlError::internal("RETURNING has no join")),
        }
    }
}

/// Columns that a plan names, also in subqueries.
fn named_columns(plan: &LogicalPlan) -> Result<HashSet<Column>, SqlError> {
    let mut columns = HashSet::new();
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                if let Expr::Column(column) | Expr::OuterReferenceColumn(_, column) = part {
                    columns.insert(column.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(columns)
}

//! DELETE: finds the keys of the rows with a query, and deletes them as they stream in.
//!
//! All scans of the table are opened before the first key is deleted: a subquery of the predicate
//! sees the table as it was when the statement began.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{SetExpr, Statement as Ast};
use futures::StreamExt;
use partita_proto::catalog::Table;

use super::Executed;
use super::query::Source;
use crate::error::SqlError;
use crate::ingest::check_delete;
use crate::output::Output;
use crate::scan::Usage;
use crate::session::Session;
use crate::sql::identifier::quote;
use crate::sql::parser;
use crate::sql::statement::{Delete, Query, Statement};

impl Session {
    pub(super) async fn delete(
        &self,
        delete: &Delete,
        parameters: Option<&[ScalarValue]>,
    ) -> Result<Executed, SqlError> {
        let table = self.table(&delete.table)?;
        let query = self.delete_query(delete)?;
        let source = match parameters {
            Some(parameters) => Source::WithParameters(&query.statement, parameters),
            None => Source::Statement(&query.statement),
        };
        let mut running = self.start(&source, Some(&table)).await?;
        let mut deleted = 0;
        while let Some(keys) = running.stream.next().await {
            let done = self.frontend().ingest_delete(&table, keys?).await;
            deleted += done.map_err(|error| after(error, deleted, "deleted"))?;
        }
        Ok(Executed {
            output: Output::affected("DELETE", deleted),
            plan: Some(running.plan),
            usage: Usage::default(),
        })
    }

    /// The query that finds the keys of the rows to delete.
    pub(super) fn delete_query(&self, delete: &Delete) -> Result<Query, SqlError> {
        let table = self.table(&delete.table)?;
        check_delete(&table)?;
        let columns = self.key_columns(&table)?;
        let columns: Vec<_> = columns.iter().map(|name| quote(name)).collect();
        let mut text = format!(
            "SELECT {} FROM {}.{}",
            columns.join(", "),
            quote(&table.database),
            quote(&table.name)
        );
        if let Some(alias) = &delete.alias {
            text.push_str(" AS ");
            text.push_str(&quote(alias));
        }
        let statement = parser::parse(&text)?.pop();
        let Some(Statement::Query(mut query)) = statement else {
            return Err(SqlError::internal("the query of a DELETE is no query"));
        };
        if let PlannerStatement::Statement(ast) = &mut query.statement
            && let Ast::Query(ast) = ast.as_mut()
            && let SetExpr::Select(select) = ast.body.as_mut()
        {
            select.selection.clone_from(&delete.predicate);
        } else {
            return Err(SqlError::internal("the query of a DELETE is no SELECT"));
        }
        Ok(Query { text: Arc::clone(&delete.text), ..query })
    }

    /// The columns by which rows of a table are deleted.
    fn key_columns(&self, table: &Table) -> Result<Vec<String>, SqlError> {
        let plan = self.frontend().router().plan(self.frontend().state(), table)?;
        Ok(plan.delete_columns())
    }
}

/// Says what a statement had done before it failed.
pub(super) fn after(error: SqlError, rows: u64, verb: &str) -> SqlError {
    if rows == 0 {
        return error;
    }
    let done = format!("{rows} rows had been {verb} before");
    let detail = match &error.detail {
        Some(detail) => format!("{detail}; {done}"),
        None => done,
    };
    error.with_detail(detail)
}

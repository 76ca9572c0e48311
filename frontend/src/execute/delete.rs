//! DELETE: a query finds the keys of the rows, which are deleted as they stream in.
//!
//! All scans of the table are opened before the first key is deleted: a subquery of the predicate reads the table as
//! it was when the statement began.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, SetExpr, Statement as Ast, UnaryOperator,
};
use futures::StreamExt;
use partita_proto::access::Permit;
use partita_proto::catalog::Table;
use partita_proto::id::TableId;
use partita_sql::hidden::{check_unnamed, show_hidden};
use partita_sql::identifier::quote;
use partita_sql::parser;
use partita_sql::statement::{Delete, Query, Statement};

use super::executed::Executed;
use super::query::{Source, Target};
use super::round::stored;
use crate::copies::refused::check_no_copy;
use crate::error::SqlError;
use crate::ingest::check_delete;
use crate::output::Output;
use crate::scan::Usage;
use crate::session::Session;

impl Session {
    pub(super) async fn delete(
        &self,
        delete: &Delete,
        parameters: Option<&[ScalarValue]>,
        permit: &Permit,
    ) -> Result<Executed, SqlError> {
        let table = self.table(&delete.table)?;
        let query = self.delete_query(delete)?;
        let source = match parameters {
            Some(parameters) => Source::WithParameters(&query.statement, parameters),
            None => Source::Statement(&query.statement),
        };
        let unread = self.unread_by(delete, &table);
        let target = Target { pinned: Some(&table), unread, deletes: true, ..Target::default() };
        let mut running = self.start(&source, target).await?;
        let mut deleted = 0;
        while let Some(keys) = running.stream.next().await {
            let cause = || self.cause("DELETE", &delete.text);
            let result = self.frontend().ingest_delete(permit, &table, keys?, cause).await;
            deleted += result.map_err(|error| after(error, deleted, "deleted"))?;
        }
        Ok(Executed {
            output: Output::affected("DELETE", deleted),
            plan: Some(running.plan),
            usage: Usage::default(),
        })
    }

    /// The table, if the DELETE tells nothing about its rows: finding their keys is no read then.
    ///
    /// A predicate tells by the number of deleted rows, and needs SELECT, as in PostgreSQL. To InfluxDB's clients a
    /// delete is a write, and their tokens need no more for one that names keys, as those clients do.
    fn unread_by(&self, delete: &Delete, table: &Table) -> Option<TableId> {
        let tells_nothing = match delete.predicate() {
            None => true,
            Some(predicate) => {
                self.identity().token.is_some() && names_keys_only(predicate, delete, table)
            }
        };
        tells_nothing.then_some(table.id)
    }

    /// The query that finds the keys of the rows to delete.
    pub(super) fn delete_query(&self, delete: &Delete) -> Result<Query, SqlError> {
        let table = self.table(&delete.table)?;
        check_no_copy(&self.catalog(), &table)?;
        check_delete(&table)?;
        if !delete.using_tables().is_empty() {
            return delete.as_update().rows_query(&table, &stored(&table), None);
        }
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
            select.selection = delete.predicate().cloned();
            ast.with.clone_from(&delete.source.with);
            if table.schema.is_keyless() {
                check_unnamed(delete.source.as_ref(), &table.name)?;
                select.from.iter_mut().for_each(show_hidden);
            }
        } else {
            return Err(SqlError::internal("the query of a DELETE is no SELECT"));
        }
        Ok(Query { text: Arc::clone(&delete.text), ..query })
    }

    /// Columns that identify the rows to delete.
    fn key_columns(&self, table: &Table) -> Result<Vec<String>, SqlError> {
        let plan = self.frontend().view().plan(self.frontend().state(), table)?;
        Ok(plan.delete_columns())
    }
}

/// True if a predicate is made of AND and comparisons of key columns with literals.
fn names_keys_only(predicate: &Expr, delete: &Delete, table: &Table) -> bool {
    let is_key = |expr: &Expr| is_key_column(expr, delete, table);
    let mut pending = vec![predicate];
    while let Some(part) = pending.pop() {
        let fits = match part {
            Expr::Nested(inner) => {
                pending.push(inner.as_ref());
                true
            }
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                pending.push(left.as_ref());
                pending.push(right.as_ref());
                true
            }
            Expr::BinaryOp {
                left,
                op:
                    BinaryOperator::Eq
                    | BinaryOperator::Lt
                    | BinaryOperator::LtEq
                    | BinaryOperator::Gt
                    | BinaryOperator::GtEq,
                right,
            } => {
                is_key(left.as_ref()) && is_literal(right.as_ref())
                    || is_literal(left.as_ref()) && is_key(right.as_ref())
            }
            Expr::InList { expr, list, negated: false } => {
                is_key(expr.as_ref()) && list.iter().all(is_literal)
            }
            Expr::Between { expr, negated: false, low, high } => {
                is_key(expr.as_ref()) && is_literal(low.as_ref()) && is_literal(high.as_ref())
            }
            _ => false,
        };
        if !fits {
            return false;
        }
    }
    true
}

/// True for the name of a key column, with the table or its alias before it or not.
fn is_key_column(expr: &Expr, delete: &Delete, table: &Table) -> bool {
    let name_of = |ident: &Ident| match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    };
    let column = match expr {
        Expr::Identifier(column) => column,
        Expr::CompoundIdentifier(parts) => {
            let [qualifier, column] = parts.as_slice() else { return false };
            if name_of(qualifier) != *delete.alias.as_ref().unwrap_or(&table.name) {
                return false;
            }
            column
        }
        _ => return false,
    };
    let name = name_of(column);
    table.schema.key_columns().any(|key| key.name == name)
}

/// True for a constant as it is written, with a sign or a type before it or not, and for a parameter.
fn is_literal(expr: &Expr) -> bool {
    match expr {
        Expr::Value(_) | Expr::TypedString(_) => true,
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => {
            matches!(expr.as_ref(), Expr::Value(_))
        }
        _ => false,
    }
}

/// Adds the rows that a statement wrote before it failed to the error's detail.
pub(super) fn after(error: SqlError, rows: u64, verb: &str) -> SqlError {
    if rows == 0 {
        return error;
    }
    let progress = format!("{rows} rows had already been {verb}");
    let detail = match &error.detail {
        Some(detail) => format!("{detail}; {progress}"),
        None => progress,
    };
    error.with_detail(detail)
}

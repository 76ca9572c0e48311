//! RETURNING: the rows that a statement wrote or removed, and the query over them.

use std::sync::Arc;

use arrow::array::{ArrayRef, new_null_array};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast;
use partita_proto::catalog::Table;
use partita_proto::size::{array_bytes, batch_bytes};
use partita_sql::statement::{Query, Returning, Statement, TableName};

use super::query::{Source, Target, plan};
use crate::error::{PROGRAM_LIMIT_EXCEEDED, SqlError};
use crate::output::Output;
use crate::session::Session;
use crate::supplied::SuppliedRows;

/// Maximum bytes of the rows that a statement returns after it has written them.
const RETURNED_BYTES_MAX: usize = 64 << 20;

/// Rows to return, in the columns that clients see.
#[derive(Default)]
pub(super) struct Returned {
    rows: Vec<RecordBatch>,
    /// For each batch of an UPDATE with FROM the columns of other tables.
    joined: Vec<Vec<ArrayRef>>,
    bytes: usize,
}

impl Returned {
    /// Keeps rows with columns by storage name; a column that they lack is NULL.
    ///
    /// # Errors
    /// 54000 if the statement returns too many rows.
    pub(super) fn keep(&mut self, table: &Table, rows: &RecordBatch) -> Result<(), SqlError> {
        let columns = table.schema.shown().map(|column| {
            let stored = rows.column_by_name(&column.storage_name);
            let null = || new_null_array(&column.column_type.arrow(), rows.num_rows());
            stored.map_or_else(null, Arc::clone)
        });
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let shown_rows = RecordBatch::try_new_with_options(
            table.schema.shown_arrow(),
            columns.collect(),
            &options,
        )?;
        self.bytes += batch_bytes(&shown_rows);
        self.rows.push(shown_rows);
        self.check_size()
    }

    /// As [`Returned::keep`], with columns of other tables beside the rows.
    ///
    /// # Errors
    /// 54000 if the statement returns too many rows.
    pub(super) fn keep_joined(
        &mut self,
        table: &Table,
        rows: &RecordBatch,
        others: Vec<ArrayRef>,
    ) -> Result<(), SqlError> {
        self.bytes += others.iter().map(array_bytes).sum::<usize>();
        self.joined.push(others);
        self.keep(table, rows)
    }

    fn check_size(&self) -> Result<(), SqlError> {
        if self.bytes > RETURNED_BYTES_MAX {
            let message = format!("RETURNING exceeds the limit of {RETURNED_BYTES_MAX} bytes");
            return Err(SqlError::new(PROGRAM_LIMIT_EXCEEDED, message));
        }
        Ok(())
    }
}

impl Returned {
    /// The rows, in the columns that clients see.
    pub(super) fn into_rows(self) -> Vec<RecordBatch> {
        self.rows
    }

    /// The rows, each batch with the columns of other tables.
    pub(super) fn into_joined_rows(self) -> impl Iterator<Item = (RecordBatch, Vec<ArrayRef>)> {
        self.rows.into_iter().zip(self.joined)
    }
}

/// RETURNING of a statement, with what its query needs.
#[derive(Clone, Copy)]
pub(super) struct ReturningOf<'a> {
    pub(super) returning: &'a Returning,
    pub(super) table: &'a TableName,
    pub(super) alias: Option<&'a str>,
    /// The query that finds the rows, whose other tables it may name.
    pub(super) found: Option<&'a ast::Query>,
    pub(super) text: &'a Arc<str>,
}

/// RETURNING of a statement, if it has one.
pub(super) fn returning_of(statement: &Statement) -> Option<ReturningOf<'_>> {
    let returning = statement.returning()?;
    Some(match statement {
        Statement::Insert(insert) => ReturningOf {
            returning,
            table: &insert.table,
            alias: insert.alias.as_deref(),
            found: None,
            text: &insert.text,
        },
        Statement::Update(update) => ReturningOf {
            returning,
            table: &update.table,
            alias: update.alias.as_deref(),
            found: Some(&update.source),
            text: &update.text,
        },
        Statement::Delete(delete) => ReturningOf {
            returning,
            table: &delete.table,
            alias: delete.alias.as_deref(),
            found: Some(&delete.source),
            text: &delete.text,
        },
        _ => return None,
    })
}

impl Session {
    /// The query over the rows that a statement has written or removed.
    pub(super) fn returning_query(&self, clause: ReturningOf<'_>) -> Result<Query, SqlError> {
        let table = self.table(clause.table)?;
        clause.returning.query(&table, clause.alias, clause.found, clause.text)
    }

    /// Plans RETURNING before a statement writes anything: one that cannot be planned must not leave rows behind.
    pub(super) async fn check_returning(&self, statement: &Statement) -> Result<(), SqlError> {
        if let Some(clause) = returning_of(statement) {
            let query = self.returning_query(clause)?;
            Box::pin(plan(&self.statement_state(), query.statement)).await?;
        }
        Ok(())
    }

    /// The output of a statement with RETURNING that has written or removed rows.
    pub(super) async fn returned(
        &self,
        clause: ReturningOf<'_>,
        rows: Returned,
        parameters: Option<&[ScalarValue]>,
    ) -> Result<Output, SqlError> {
        let query = self.returning_query(clause)?;
        let supplied = SuppliedRows(rows.rows);
        let target = Target { supplied: Some(&supplied), ..Target::default() };
        let source = match parameters {
            Some(parameters) => Source::WithParameters(&query.statement, parameters),
            None => Source::Statement(&query.statement),
        };
        let running = self.start(&source, target).await?;
        Ok(Output::Rows { schema: running.schema, stream: running.stream })
    }
}

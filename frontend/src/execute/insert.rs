//! INSERT: literals are parsed straight into columns; every other source is a query whose rows stream into the table.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatchOptions, new_empty_array};
use arrow::compute::concat_batches;
use arrow::datatypes::{Field, Schema};
use arrow::record_batch::RecordBatch;
use datafusion::common::ScalarValue;
use futures::StreamExt;
use partita_proto::access::Permit;
use partita_proto::catalog::Table;
use partita_proto::schema::Column;
use partita_proto::size::batch_bytes;
use partita_sql::StatementTime;
use partita_sql::rewritten::exact_rows;
use partita_sql::statement::{Insert, InsertSource, OnConflict, Query, Statement};

use super::assigned::assignable;
use super::conflict::Conflicts;
use super::delete::after;
use super::executed::Executed;
use super::query::{Running, Source, Target};
use super::returning::{Returned, ReturningOf};
use crate::copies::refused::check_no_copy;
use crate::error::{DUPLICATE_COLUMN, GENERATED_ALWAYS, SYNTAX_ERROR, SqlError};
use crate::ingest::expression::now_ns;
use crate::output::Output;
use crate::scan::Usage;
use crate::session::{Prepared, Session};

/// Kind of the statement in causes of load.
const INSERT: &str = "INSERT";
/// Rows of a query that make one write: enough to be worth a round trip.
const ROWS_JOINED: usize = 64 << 10;
/// Bytes of a query's rows that make one write.
const BYTES_JOINED: usize = 4 << 20;

/// Target columns of an INSERT or COPY: the listed ones, or without a list all but the generated ones, in the table's
/// order.
pub(super) fn target_columns<'a>(
    table: &'a Table,
    names: Option<&[String]>,
) -> Result<Vec<&'a Column>, SqlError> {
    let Some(names) = names else {
        return Ok(table.schema.shown().filter(|c| c.generated.is_none()).collect());
    };
    let mut columns: Vec<&Column> = Vec::with_capacity(names.len());
    for name in names {
        let column = table
            .schema
            .column(name)
            .ok_or_else(|| SqlError::undefined_column(name, &table.name))?;
        if columns.iter().any(|listed| listed.id == column.id) {
            let message = format!("column \"{name}\" specified more than once");
            return Err(SqlError::new(DUPLICATE_COLUMN, message));
        }
        if column.generated.is_some() {
            return Err(SqlError::new(
                GENERATED_ALWAYS,
                format!("cannot insert a value into column \"{name}\""),
            )
            .with_detail(format!("column \"{name}\" is a generated column")));
        }
        columns.push(column);
    }
    Ok(columns)
}

impl Session {
    pub(super) async fn insert(
        &self,
        insert: &Insert,
        parameters: Option<&[ScalarValue]>,
        permit: &Permit,
    ) -> Result<Executed, SqlError> {
        let table = self.table(&insert.table)?;
        check_no_copy(&self.catalog(), &table)?;
        let target = insert.target(&table.schema)?;
        if let Some(rows) = insert.scan(&target, self.statement_time()?, parameters)? {
            return self.insert_rows(insert, &table, rows, (permit, parameters)).await;
        }
        if let Some(query) = insert.values_query(&target)? {
            let target_columns = (target.columns.as_slice(), false);
            let query = (&query, parameters);
            return self.insert_query(insert, &table, target_columns, query, permit).await;
        }
        let InsertSource::Query(query) = &insert.source else {
            return Err(SqlError::internal("an INSERT without rows"));
        };
        let columns = target_columns(&table, insert.columns.as_deref())?;
        let target_columns = (columns.as_slice(), target.listed);
        self.insert_query(insert, &table, target_columns, (query, parameters), permit).await
    }

    fn statement_time(&self) -> Result<StatementTime, SqlError> {
        Ok(StatementTime { now: now_ns()?, zone: self.zone() })
    }

    async fn insert_rows(
        &self,
        insert: &Insert,
        table: &Arc<Table>,
        rows: RecordBatch,
        (permit, parameters): (&Permit, Option<&[ScalarValue]>),
    ) -> Result<Executed, SqlError> {
        let rows = self.overridden(insert, table, rows)?;
        let schema = rows.schema();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let on_conflict = conflict_of(insert, table, &names)?;
        let rows = self.numbered(permit, table, rows).await?;
        if let Some(on_conflict) = on_conflict {
            let mut conflicts = Conflicts::new(insert, on_conflict, parameters, permit);
            Box::pin(self.insert_or(&mut conflicts, table, &rows)).await?;
            let Conflicts { written, returned, .. } = conflicts;
            return Ok(self.inserted(insert, written, returned, parameters).await?.into());
        }
        let cause = || self.cause(INSERT, &insert.text);
        let frontend = self.frontend();
        let Some(clause) = returning(insert) else {
            let (count, usage) = frontend.ingest_counted(permit, table, rows, cause).await?;
            return Ok(Executed { output: Output::affected("INSERT 0", count), plan: None, usage });
        };
        let (table, rows, usage) = frontend.ingest_kept(permit, table, rows, cause).await?;
        let mut returned = Returned::default();
        returned.keep(&table, &rows)?;
        let output = Box::pin(self.returned(clause, returned, parameters)).await?;
        Ok(Executed { output, plan: None, usage })
    }

    /// An INSERT of nothing but literals and parameters; `None` if its values need a plan, or rows that exist matter.
    pub(crate) async fn insert_literals(
        &self,
        insert: &Insert,
        parameters: Option<&[ScalarValue]>,
        permit: &Permit,
    ) -> Result<Option<Executed>, SqlError> {
        let table = self.table(&insert.table)?;
        check_no_copy(&self.catalog(), &table)?;
        let target = insert.target(&table.schema)?;
        if !insert.only_stores() || is_change(insert, &table) {
            return Ok(None);
        }
        match insert.scan(&target, self.statement_time()?, parameters)? {
            Some(rows) => {
                let context = (permit, parameters);
                Ok(Some(self.insert_rows(insert, &table, rows, context).await?))
            }
            None => Ok(None),
        }
    }

    /// True for an UPSERT that keeps columns of existing rows, which have to be read.
    pub(crate) fn is_change(&self, insert: &Insert) -> bool {
        insert.keeps && self.table(&insert.table).is_ok_and(|table| is_change(insert, &table))
    }

    /// [`Session::insert_literals`] of a prepared INSERT.
    pub(crate) async fn insert_prepared(
        &self,
        insert: &Insert,
        prepared: &Prepared,
        parameters: &[ScalarValue],
        permit: &Permit,
    ) -> Result<Option<Executed>, SqlError> {
        super::prepare::check_count(prepared, parameters)?;
        let parameters = (!parameters.is_empty()).then_some(parameters);
        self.insert_literals(insert, parameters, permit).await
    }

    /// [`Session::insert_literals`] with many rows of parameters, joined into one write.
    pub(crate) async fn insert_literals_many(
        &self,
        insert: &Insert,
        prepared: &Prepared,
        rows: &[Vec<ScalarValue>],
        permit: &Permit,
    ) -> Result<Option<Executed>, SqlError> {
        for parameters in rows {
            super::prepare::check_count(prepared, parameters)?;
        }
        let table = self.table(&insert.table)?;
        check_no_copy(&self.catalog(), &table)?;
        let target = insert.target(&table.schema)?;
        let sets = rows.iter().map(Vec::as_slice);
        match insert.scan_many(&target, self.statement_time()?, sets)? {
            Some(joined) => {
                Ok(Some(self.insert_rows(insert, &table, joined, (permit, None)).await?))
            }
            None => Ok(None),
        }
    }

    /// One INSERT with many rows of parameters, joined into one write.
    pub(crate) async fn insert_many(
        &self,
        prepared: &Prepared,
        rows: Vec<Vec<ScalarValue>>,
        permit: &Permit,
    ) -> Result<Executed, SqlError> {
        let Statement::Insert(insert) = &prepared.statement else {
            return Err(SqlError::internal("a statement that inserts no rows"));
        };
        if let Some(executed) = self.insert_literals_many(insert, prepared, &rows, permit).await? {
            return Ok(executed);
        }
        // Values that are not literals: run the statement once per row of parameters.
        let mut count = 0;
        for parameters in &rows {
            let executed = self.insert(insert, Some(parameters), permit).await;
            let executed = executed.map_err(|error| after(error, count, "inserted"))?;
            if let Output::Done { rows: Some(rows), .. } = executed.output {
                count += rows;
            }
        }
        Ok(Output::affected("INSERT 0", count).into())
    }

    /// Streams the rows of a query into a table. A query that reads the same table sees it as it was before the first
    /// row was inserted. If the statement has no column list (`listed` is false), the query may return values for the
    /// first columns only.
    async fn insert_query(
        &self,
        insert: &Insert,
        table: &Arc<Table>,
        (columns, listed): (&[&Column], bool),
        (query, parameters): (&Query, Option<&[ScalarValue]>),
        permit: &Permit,
    ) -> Result<Executed, SqlError> {
        let mut statement = query.statement.clone();
        if let datafusion::sql::parser::Statement::Statement(rows) = &mut statement {
            exact_rows(rows);
        }
        // Pinned scans of the target are opened before the first write.
        let source = match parameters {
            Some(parameters) => Source::WithParameters(&statement, parameters),
            None => Source::Statement(&statement),
        };
        let target = Target { pinned: Some(table), ..Target::default() };
        let running = self.start(&source, target).await?;
        let (target, running) = ((columns, listed), (running, parameters));
        Box::pin(self.insert_running(insert, table, target, running, permit)).await
    }

    /// Writes the rows of a running query to a table, a part of them at a time.
    pub(super) async fn insert_running(
        &self,
        insert: &Insert,
        table: &Arc<Table>,
        (columns, listed): (&[&Column], bool),
        (mut running, parameters): (Running, Option<&[ScalarValue]>),
        permit: &Permit,
    ) -> Result<Executed, SqlError> {
        let count = running.schema.fields().len();
        check_width(count, columns, listed)?;
        let names: Vec<&str> =
            columns.iter().take(count).map(|column| column.name.as_str()).collect();
        let mut conflicts = conflict_of(insert, table, &names)?
            .map(|on_conflict| Conflicts::new(insert, on_conflict, parameters, permit));
        // The schema of writes follows from an empty batch.
        let empty: Vec<ArrayRef> = running
            .schema
            .fields()
            .iter()
            .map(|field| new_empty_array(field.data_type()))
            .collect();
        let fields: Vec<_> = assignable(&empty, columns, self.zone())?
            .iter()
            .zip(columns)
            .map(|(values, column)| Field::new(&column.name, values.data_type().clone(), true))
            .collect();
        let schema = Arc::new(Schema::new(fields));
        let mut count = 0;
        let mut returned = insert.returning.as_ref().map(|_| Returned::default());
        // The usage reported is that of the write with the most partitions.
        let mut usage = Usage::default();
        let mut waiting: Vec<RecordBatch> = Vec::new();
        let (mut rows, mut bytes) = (0, 0);
        // Collect batches until a write is worth a round trip.
        loop {
            let next = running.stream.next().await.transpose();
            let next = next.map_err(|error| after(error, count, "inserted"))?;
            let ended = next.is_none();
            if let Some(batch) = next {
                let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                rows += batch.num_rows();
                bytes += batch_bytes(&batch);
                let columns = assignable(batch.columns(), columns, self.zone())
                    .map_err(|error| after(error, count, "inserted"))?;
                waiting.push(RecordBatch::try_new_with_options(
                    Arc::clone(&schema),
                    columns,
                    &options,
                )?);
            }
            if rows > 0 && (ended || rows >= ROWS_JOINED || bytes >= BYTES_JOINED) {
                let joined = self.overridden(insert, table, concat_batches(&schema, &waiting)?)?;
                let joined = Box::pin(self.numbered(permit, table, joined)).await;
                let joined = joined.map_err(|error| after(error, count, "inserted"))?;
                waiting.clear();
                (rows, bytes) = (0, 0);
                self.check_fence().map_err(|error| after(error, count, "inserted"))?;
                if let Some(conflicts) = &mut conflicts {
                    let written = Box::pin(self.insert_or(conflicts, table, &joined)).await;
                    count = conflicts.written;
                    written.map_err(|error| after(error, count, "inserted"))?;
                    if ended {
                        break;
                    }
                    continue;
                }
                let cause = || self.cause(INSERT, &insert.text);
                let written = self.frontend().ingest_kept(permit, table, joined, cause).await;
                let (table, written, touched) =
                    written.map_err(|error| after(error, count, "inserted"))?;
                count += written.num_rows() as u64;
                if let Some(returned) = &mut returned {
                    returned
                        .keep(&table, &written)
                        .map_err(|error| after(error, count, "inserted"))?;
                }
                usage.partitions_total = touched.partitions_total;
                usage.partitions_touched = usage.partitions_touched.max(touched.partitions_touched);
            }
            if ended {
                break;
            }
        }
        let returned = match conflicts {
            Some(conflicts) => conflicts.returned,
            None => returned,
        };
        let output = self.inserted(insert, count, returned, parameters).await?;
        Ok(Executed { output, plan: Some(running.plan), usage })
    }

    /// The output of an INSERT that has written rows.
    async fn inserted(
        &self,
        insert: &Insert,
        count: u64,
        returned: Option<Returned>,
        parameters: Option<&[ScalarValue]>,
    ) -> Result<Output, SqlError> {
        match returning(insert).zip(returned) {
            Some((clause, returned)) => Box::pin(self.returned(clause, returned, parameters)).await,
            None => Ok(Output::affected("INSERT 0", count)),
        }
    }
}

/// Checks that a query has as many columns as the statement names; without a list it may have fewer.
fn check_width(count: usize, columns: &[&Column], listed: bool) -> Result<(), SqlError> {
    if count > columns.len() {
        let message = "INSERT has more expressions than target columns";
        return Err(SqlError::new(SYNTAX_ERROR, message));
    }
    if listed && count < columns.len() {
        let message = "INSERT has more target columns than expressions";
        return Err(SqlError::new(SYNTAX_ERROR, message));
    }
    Ok(())
}

/// The change of rows whose key exists; `None`: the new ones replace them. `names` are the columns of the rows.
fn conflict_of(
    insert: &Insert,
    table: &Table,
    names: &[&str],
) -> Result<Option<OnConflict>, SqlError> {
    if insert.conflict.is_some() {
        return Ok(insert.conflict.clone());
    }
    if insert.keeps && table.schema.options.append_mode {
        return Err(SqlError::unsupported("UPSERT into an append-mode table"));
    }
    if !insert.loses(&table.schema, names) {
        return Ok(None);
    }
    let listed = insert.columns.as_ref();
    let listed = listed.map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
    insert.upsert(table, listed.as_deref().unwrap_or(names)).map(Some)
}

/// True for an UPSERT that keeps columns of existing rows.
fn is_change(insert: &Insert, table: &Table) -> bool {
    let loses = || {
        let target = insert.target(&table.schema).ok()?;
        let names: Vec<&str> = target.columns.iter().map(|column| column.name.as_str()).collect();
        Some(insert.loses(&table.schema, &names))
    };
    insert.keeps && loses().unwrap_or_default()
}

/// RETURNING of an INSERT, if it has one.
fn returning(insert: &Insert) -> Option<ReturningOf<'_>> {
    let returning = insert.returning.as_ref()?;
    let (table, alias, text) = (&insert.table, insert.alias.as_deref(), &insert.text);
    Some(ReturningOf { returning, table, alias, found: None, text })
}

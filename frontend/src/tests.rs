//! Tests of the frontend with services in memory.

mod access;
mod access_matrix;
mod access_tables;
mod access_world;
mod advice;
mod advised;
mod at_data;
mod audit;
mod blame;
mod comparisons;
mod conditional;
mod conflicts;
mod copies;
mod copy_files;
mod created;
mod defining;
mod first_by_time;
mod followers;
mod indexes;
mod intervals;
mod key_order;
mod keyless;
mod listing;
mod load;
mod named;
mod near_end;
mod newest;
mod predicates;
mod reading;
mod rekey;
mod reshaping;
mod returning;
mod role_settings;
mod routing;
mod rows;
mod sequences;
mod series;
mod sessions;
mod set_operations;
mod subqueries;
mod tasks;
mod temporary;
mod together;
mod unnested;
mod updating;
mod views;
mod wide;
mod writing;

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use futures::StreamExt;
use partita_proto::access::Permit;

use crate::fake::Fake;
use crate::{Frontend, FrontendOptions, Output, Session, SessionOptions, SqlError};

/// A frontend over three nodes, and a session.
struct Db {
    fake: Arc<Fake>,
    frontend: Arc<Frontend>,
    session: Arc<Session>,
}

impl Db {
    fn new() -> Self {
        Self::with(FrontendOptions {
            query_parallelism: 2,
            write_timeout: std::time::Duration::from_secs(30),
            ..FrontendOptions::default()
        })
    }

    fn with(options: FrontendOptions) -> Self {
        let fake = Fake::new(3);
        let frontend = fake.frontend(options).unwrap();
        let session = frontend.session(SessionOptions::default());
        Self { fake, frontend, session }
    }

    /// A permit of the superuser, for calls beside the session.
    fn permit(&self) -> Permit {
        self.session.viewer().check(&[]).unwrap()
    }

    /// Runs statements; returns the output of the last one.
    async fn try_run(&self, sql: &str) -> Result<Output, SqlError> {
        let mut outputs = self.session.execute(sql).await?;
        Ok(outputs.pop().unwrap_or_else(|| Output::done("")))
    }

    async fn batches(&self, sql: &str) -> Vec<RecordBatch> {
        match self.try_run(sql).await {
            Ok(output) => collect(output).await.unwrap_or_else(|error| panic!("{sql}: {error:?}")),
            Err(error) => panic!("{sql}: {error:?}"),
        }
    }

    /// Rows of the last statement, as text.
    async fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        cells(&self.batches(sql).await)
    }

    /// Rows of the last statement, as lines.
    async fn lines(&self, sql: &str) -> Vec<String> {
        self.rows(sql).await.into_iter().map(|row| row.join("|")).collect()
    }

    /// The only cell of the last statement.
    async fn one(&self, sql: &str) -> String {
        let rows = self.rows(sql).await;
        assert_eq!(rows.iter().map(Vec::len).sum::<usize>(), 1, "{sql}: {rows:?}");
        rows[0][0].clone()
    }

    /// Command tag of the last statement.
    async fn tag(&self, sql: &str) -> String {
        match self.try_run(sql).await {
            Ok(Output::Done { tag, .. }) => tag,
            Ok(_) => panic!("{sql}: rows"),
            Err(error) => panic!("{sql}: {error:?}"),
        }
    }

    /// Error of the last statement, at its start or among its rows.
    async fn error(&self, sql: &str) -> SqlError {
        match self.try_run(sql).await {
            Err(error) => error,
            Ok(output) => match collect(output).await {
                Err(error) => error,
                Ok(rows) => panic!("{sql}: no error, {:?}", cells(&rows)),
            },
        }
    }

    /// EXPLAIN of a query, as text.
    async fn explain(&self, sql: &str) -> String {
        let rows = self.rows(&format!("EXPLAIN {sql}")).await;
        rows.into_iter().map(|row| row.join("\n")).collect::<Vec<_>>().join("\n")
    }

    /// Query log entry of the last statement of a kind.
    fn logged(&self, kind: &str) -> Arc<crate::QueryLogEntry> {
        let entries = self.frontend.query_log().entries();
        entries.into_iter().rev().find(|entry| entry.kind == kind).unwrap()
    }
}

async fn collect(output: Output) -> Result<Vec<RecordBatch>, SqlError> {
    match output {
        Output::Rows { mut stream, .. } => {
            let mut batches = Vec::new();
            while let Some(batch) = stream.next().await {
                batches.push(batch?);
            }
            Ok(batches)
        }
        _ => Ok(Vec::new()),
    }
}

fn cells(batches: &[RecordBatch]) -> Vec<Vec<String>> {
    let options = FormatOptions::new().with_null("NULL");
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<_> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap())
            .collect();
        rows.extend((0..batch.num_rows()).map(|row| {
            columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>()
        }));
    }
    rows
}

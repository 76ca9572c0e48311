//! Observes a running statement: ends it when it is cancelled or times out, and records its cost when its last row is
//! read or its stream is dropped.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arrow::record_batch::RecordBatch;
use datafusion::physical_plan::ExecutionPlan;
use futures::{Stream, StreamExt};
use partita_lanes::{Lane, Reason};
use partita_load::Cause;
use partita_sql::Statement;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::executed::Executed;
use crate::access::life::{Life, Running};
use crate::audit::{EndedStatement, Origin};
use crate::blame::cause_of;
use crate::error::{INTERNAL_ERROR, QUERY_CANCELED, SqlError};
use crate::frontend::Frontend;
use crate::output::{CopyIn, CopyOut, Output, RowStream};
use crate::plan_scans;
use crate::query_log::{QueryLogEntry, kinds};
use crate::scan::Usage;

const CONNECTION_FAILURE: &str = "08006";

/// Conditions that end a statement early.
#[derive(Clone)]
pub(crate) struct Limits {
    pub(crate) token: CancellationToken,
    /// Life of the session, whose end cancels the token too.
    pub(crate) life: Arc<Life>,
    /// Shows the statement as running.
    pub(crate) running: Arc<Running>,
    pub(crate) started: Instant,
    pub(crate) deadline: Option<Instant>,
}

impl Limits {
    /// Waits for a limit and returns its error; never returns without limits.
    async fn hit(&self) -> SqlError {
        let late = async {
            match self.deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.token.cancelled() => self.life.cancellation(),
            () = late => SqlError::statement_timeout(),
        }
    }

    /// The limit behind an error, if any.
    pub(crate) fn reason(&self, error: &SqlError) -> Option<Reason> {
        let late = || self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        match error.sqlstate.as_str() {
            QUERY_CANCELED if self.token.is_cancelled() => Some(Reason::Canceled),
            QUERY_CANCELED if late() => Some(Reason::TimedOut),
            _ if self.life.end_error().as_ref() == Some(error) => Some(Reason::Canceled),
            _ => None,
        }
    }

    /// Replaces an internal error by the reason for which the lane was interrupted, if it was.
    pub(crate) fn explain(&self, lane: &Lane, error: SqlError) -> SqlError {
        match lane.interrupted() {
            Some(reason) if error.sqlstate == INTERNAL_ERROR => reason.into(),
            _ => error,
        }
    }

    /// Runs work until it is done or a limit is hit. Requests in flight may take effect after that.
    pub(crate) async fn apply<T>(
        &self,
        work: impl Future<Output = Result<T, SqlError>>,
    ) -> Result<T, SqlError> {
        tokio::select! {
            biased;
            error = self.hit() => Err(error),
            result = work => result,
        }
    }
}

/// The client of a statement, and its current database.
pub(crate) struct Client {
    pub(crate) database: String,
    pub(crate) user: String,
    /// Name that the application gives itself; may be empty.
    pub(crate) application: String,
    pub(crate) origin: Origin,
}

/// Records the cost of a statement.
pub(crate) struct Observer {
    frontend: Arc<Frontend>,
    kind: &'static str,
    /// `None` for statements that the query log leaves out.
    text: Option<String>,
    client: Client,
    started: Instant,
    plan: Option<Arc<dyn ExecutionPlan>>,
    usage: Usage,
    rows: u64,
    written: bool,
    /// Shows the statement as running until it is recorded.
    running: Option<Arc<Running>>,
}

impl Observer {
    /// Observer of a statement that a client runs.
    pub(crate) fn new(
        frontend: Arc<Frontend>,
        client: Client,
        statement: &Statement,
        started: Instant,
    ) -> Self {
        Self {
            frontend,
            kind: statement.tag(),
            text: statement.text().map(|text| partita_sql::redacted(&short(text)).into_owned()),
            client,
            started,
            plan: None,
            usage: Usage::default(),
            rows: 0,
            written: false,
            running: None,
        }
    }

    /// Records a statement that has ended, and watches the stream of one that has not.
    pub(crate) fn observe(
        mut self,
        result: Result<Executed, SqlError>,
        limits: Limits,
    ) -> Result<Output, SqlError> {
        let executed = match result {
            Ok(executed) => executed,
            Err(error) => {
                self.write(Some(&error));
                return Err(error);
            }
        };
        self.running = Some(Arc::clone(&limits.running));
        self.plan = executed.plan;
        self.usage = executed.usage;
        Ok(match executed.output {
            Output::Rows { schema, stream } => {
                Output::Rows { schema, stream: self.watch(stream, limits) }
            }
            Output::CopyOut(copy) => {
                let stream = self.watch(copy.stream, limits);
                Output::CopyOut(CopyOut { stream, ..copy })
            }
            Output::Done { tag, rows, notices } => {
                self.rows = rows.unwrap_or(0);
                self.write(None);
                Output::Done { tag, rows, notices }
            }
            // The rows are yet to come, through ingest.
            Output::CopyIn(copy) => {
                Output::CopyIn(CopyIn { log: CopyLog(Some(Box::new(self))), ..copy })
            }
        })
    }

    /// The cause of the rows that the statement reads or writes.
    fn cause(&self) -> Cause {
        let Client { user, application, origin, .. } = &self.client;
        let text = self.text.as_deref().unwrap_or_default();
        cause_of((self.kind, text), user, application, origin.peer)
    }

    fn watch(self, stream: RowStream, limits: Limits) -> RowStream {
        let cancelled = Box::pin(limits.token.clone().cancelled_owned());
        let late =
            limits.deadline.map(|deadline| Box::pin(tokio::time::sleep_until(deadline.into())));
        let life = limits.life;
        Box::pin(Watched { stream: Some(stream), cancelled, life, late, observer: self })
    }

    fn write(&mut self, error: Option<&SqlError>) {
        if std::mem::replace(&mut self.written, true) {
            return;
        }
        drop(self.running.take());
        // Metrics count every statement.
        let took = self.started.elapsed();
        let metrics = self.frontend.metrics();
        metrics.took(self.kind, took);
        if let Some(error) = error {
            metrics.failed(&error.sqlstate);
        }
        let scanned = self.plan.as_ref().map(plan_scans::usage).unwrap_or_default();
        metrics.rows_scanned.add(scanned.rows_scanned);
        metrics.bytes_scanned.add(scanned.bytes_scanned);
        if scanned.scans > 0 {
            metrics.rows_returned.add(self.rows);
            if scanned.fast_path() {
                metrics.single_partition_queries.add(1);
            } else {
                metrics.multi_partition_queries.add(1);
            }
        }
        let audit = self.frontend.audit();
        if audit.includes(error) {
            let (database, text) = (self.client.database.as_str(), self.text.as_deref());
            let statement = EndedStatement { database, tag: self.kind, text, error };
            audit.statement(&self.frontend.access(), self.client.origin, statement);
        }
        if let Some(plan) = &self.plan {
            self.frontend.blame().read(|| plan_scans::touched(plan), || self.cause());
        }
        // The query log leaves out statements without a text.
        let Some(text) = self.text.take() else { return };
        let mut usage = self.usage;
        usage.add(&scanned);
        let fan_out = self.plan.as_ref().map(plan_scans::fan_out).unwrap_or_default();
        let notes = self.plan.as_ref().map(plan_scans::notes).unwrap_or_default();
        let entry = QueryLogEntry {
            started_ms: started_ms(took),
            database: std::mem::take(&mut self.client.database),
            user: std::mem::take(&mut self.client.user),
            identity: Some(self.client.origin.identity),
            kind: self.kind,
            text,
            partitions_total: usage.partitions_total,
            partitions_touched: usage.partitions_touched,
            fan_out,
            rows_scanned: usage.rows_scanned,
            bytes_scanned: usage.bytes_scanned,
            files_read: usage.files_read,
            files_pruned: usage.files_pruned,
            fast_path: usage.fast_path(),
            index_used: kinds(usage.index_kinds),
            index_rows_examined: usage.index_rows_examined,
            index_rows_skipped: usage.index_rows_skipped,
            partitions_by_followers: usage.by_followers,
            milliseconds: took.as_secs_f64() * 1e3,
            rows: self.rows,
            error: error.map(|error| format!("{}: {}", error.sqlstate, error.message)),
        };
        self.frontend.statements().note(&entry, &notes);
        self.frontend.index_usage().note(&notes, entry.started_ms);
        self.frontend.query_log().add(entry);
    }
}

/// Copies only what the log keeps, not all of a bulk INSERT.
fn short(text: &str) -> String {
    text[..text.floor_char_boundary(crate::query_log::TEXT_BYTES_MAX)].to_owned()
}

/// Start time of a statement that took `took`, in milliseconds since 1970.
fn started_ms(took: Duration) -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.saturating_sub(took).as_millis()).unwrap_or(i64::MAX)
}

impl Drop for Observer {
    /// Records a stream that is dropped before its end with the counts so far.
    fn drop(&mut self) {
        if self.plan.is_some() {
            self.write(None);
        }
    }
}

/// Records the cost of a COPY FROM when it ends; its rows come through [`Frontend::ingest`]. A log dropped before
/// that is recorded as a lost connection.
#[derive(Default)]
pub struct CopyLog(Option<Box<Observer>>);

impl CopyLog {
    /// The cause of the rows of the COPY, for [`Frontend::ingest_for`].
    pub fn cause(&self) -> Option<Cause> {
        self.0.as_ref().map(|observer| observer.cause())
    }

    /// Adds rows that were stored.
    pub fn stored(&mut self, rows: u64) {
        if let Some(observer) = &mut self.0 {
            observer.rows += rows;
        }
    }

    /// Ends the record, with the error of a COPY that failed.
    pub fn end(mut self, error: Option<&SqlError>) {
        if let Some(mut observer) = self.0.take() {
            observer.write(error);
        }
    }
}

impl Drop for CopyLog {
    fn drop(&mut self) {
        if let Some(mut observer) = self.0.take() {
            let error =
                SqlError::new(CONNECTION_FAILURE, "COPY ended before all rows were received");
            observer.write(Some(&error));
        }
    }
}

/// Rows of a statement under its limits.
struct Watched {
    /// `None` after the end.
    stream: Option<RowStream>,
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
    life: Arc<Life>,
    late: Option<Pin<Box<tokio::time::Sleep>>>,
    observer: Observer,
}

impl Watched {
    fn end(&mut self, error: Option<SqlError>) -> Poll<Option<Result<RecordBatch, SqlError>>> {
        // Work for the statement ends now, not when the client drops the stream.
        self.stream = None;
        self.observer.write(error.as_ref());
        Poll::Ready(error.map(Err))
    }
}

impl Stream for Watched {
    type Item = Result<RecordBatch, SqlError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.stream.is_none() {
            return Poll::Ready(None);
        }
        if self.cancelled.as_mut().poll(context).is_ready() {
            let error = self.life.cancellation();
            return self.end(Some(error));
        }
        if self.late.as_mut().is_some_and(|late| late.as_mut().poll(context).is_ready()) {
            return self.end(Some(SqlError::statement_timeout()));
        }
        let Some(stream) = &mut self.stream else { return Poll::Ready(None) };
        match stream.poll_next_unpin(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => self.end(None),
            Poll::Ready(Some(Err(error))) => self.end(Some(error)),
            Poll::Ready(Some(Ok(batch))) => {
                self.observer.rows += batch.num_rows() as u64;
                Poll::Ready(Some(Ok(batch)))
            }
        }
    }
}

//! Writes the INSERTs of one pipeline together.
//!
//! A client that sends many Bind and Execute messages before it waits for a response (executemany, a JDBC batch) would
//! pay for one durable write per row. So an execution of `INSERT ... VALUES` is deferred, together with its responses,
//! while executions of the same statement follow; any other message runs them all as one write, and sends the responses
//! in order.
//!
//! A client cannot tell the difference: PostgreSQL too responds at a Sync or a Flush, and undoes everything before an
//! error in the same pipeline.

use std::fmt::Debug;
use std::sync::Arc;

use datafusion::scalar::ScalarValue;
use futures::{Sink, SinkExt};
use partita_frontend::sql::statement::{InsertSource, Statement};
use partita_frontend::{Output, Prepared};
use pgwire::api::results::Tag;
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;

use crate::connection::Connection;
use crate::error::{notice, to_wire};

/// Maximum number of deferred executions.
const EXECUTIONS_MAX: usize = 10_000;
/// Maximum bytes of their parameters.
const BYTES_MAX: usize = 8 << 20;

/// Deferred executions, all of the same statement.
pub(crate) struct Joined {
    prepared: Arc<Prepared>,
    rows: Vec<Vec<ScalarValue>>,
    bytes: usize,
    answers: Vec<Answer>,
}

/// A deferred response.
enum Answer {
    /// A message that does not depend on the write.
    Message(PgWireBackendMessage),
    /// The CommandComplete of an execution.
    Complete,
}

/// Returns true if executions of a statement are deferred.
pub(crate) fn joins(prepared: &Prepared) -> bool {
    matches!(
        &prepared.statement,
        Statement::Insert(insert)
            if matches!(insert.source, InsertSource::Values(_)) && insert.only_stores()
    )
}

impl Connection {
    /// Returns true if executions of this statement are deferred at the moment. Parameters are cast to the columns'
    /// types in each row, so the types that a client declares for them do not matter.
    pub(crate) fn is_joined(&self, prepared: &Prepared) -> bool {
        match (self.joined.lock().as_ref(), prepared.statement.text()) {
            (Some(joined), Some(text)) => joined.prepared.statement.text() == Some(text),
            _ => false,
        }
    }

    /// Sends a response, after the deferred ones if there are any.
    pub(crate) async fn answer<C>(
        &self,
        client: &mut C,
        message: PgWireBackendMessage,
    ) -> PgWireResult<()>
    where
        C: Sink<PgWireBackendMessage> + Unpin + Send,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        if let Some(joined) = self.joined.lock().as_mut() {
            joined.answers.push(Answer::Message(message));
            return Ok(());
        }
        client.feed(message).await?;
        Ok(())
    }

    /// Defers an execution.
    pub(crate) async fn join<C>(
        &self,
        client: &mut C,
        prepared: &Arc<Prepared>,
        row: Vec<ScalarValue>,
    ) -> PgWireResult<()>
    where
        C: Sink<PgWireBackendMessage> + Unpin + Send,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        if !self.is_joined(prepared) {
            self.run_joined(client).await?;
        }
        let full = {
            let mut slot = self.joined.lock();
            let joined = slot.get_or_insert_with(|| Joined {
                prepared: Arc::clone(prepared),
                rows: Vec::new(),
                bytes: 0,
                answers: Vec::new(),
            });
            joined.bytes += row.iter().map(ScalarValue::size).sum::<usize>();
            joined.rows.push(row);
            joined.answers.push(Answer::Complete);
            joined.rows.len() >= EXECUTIONS_MAX || joined.bytes >= BYTES_MAX
        };
        if full { self.run_joined(client).await } else { Ok(()) }
    }

    /// Writes the deferred rows and sends the responses.
    pub(crate) async fn run_joined<C>(&self, client: &mut C) -> PgWireResult<()>
    where
        C: Sink<PgWireBackendMessage> + Unpin + Send,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let Some(joined) = self.joined.lock().take() else { return Ok(()) };
        let Joined { prepared, mut rows, answers, .. } = joined;
        let executions = rows.len() as u64;
        let session = self.session()?;
        let written = match rows.pop() {
            Some(only) if rows.is_empty() => {
                session.run_prepared(&prepared, only).await.map(|o| vec![o])
            }
            Some(last) => {
                rows.push(last);
                session.run_prepared_many(&prepared, rows).await
            }
            None => return Ok(()),
        };
        let outputs = match written {
            Ok(outputs) => outputs,
            Err(error) => {
                // Responses before the first execution are still sent.
                for answer in answers {
                    let Answer::Message(message) = answer else { break };
                    client.feed(message).await?;
                }
                return Err(to_wire(error));
            }
        };
        let mut total = 0;
        for output in outputs {
            if let Output::Done { rows, notices, .. } = output {
                total += rows.unwrap_or_default();
                for item in notices {
                    client.feed(notice(item)).await?;
                }
            }
        }
        // Each execution has the same VALUES, so each has written the same number of rows.
        let tag = format!("INSERT 0 {}", total / executions);
        for answer in answers {
            let message = match answer {
                Answer::Message(message) => message,
                Answer::Complete => PgWireBackendMessage::CommandComplete(Tag::new(&tag).into()),
            };
            client.feed(message).await?;
        }
        Ok(())
    }

    /// Sends the responses before the first execution and drops the rows: an error follows, which undoes them.
    pub(crate) async fn forget_joined<C>(&self, client: &mut C) -> Result<(), C::Error>
    where
        C: Sink<PgWireBackendMessage> + Unpin + Send,
    {
        let Some(joined) = self.joined.lock().take() else { return Ok(()) };
        for answer in joined.answers {
            let Answer::Message(message) = answer else { break };
            client.feed(message).await?;
        }
        Ok(())
    }
}

//! Statements of the simple protocol, and responses that both protocols share.
//!
//! The statements of one simple query run one after the other, each with its response, so that each sees the effects of
//! the earlier ones. BEGIN and COMMIT are tracked as far as clients can observe (the status in ReadyForQuery, 25P02
//! after an error in a block), but a block is no transaction: every statement takes effect by itself.

use std::fmt::Debug;

use async_trait::async_trait;
use futures::{Sink, SinkExt};
use partita_frontend::Output;
use partita_frontend::sql::statement::{Statement, Transaction};
use pgwire::api::copy::send_copy_in_response;
use pgwire::api::portal::Format;
use pgwire::api::query::{
    SimpleQueryHandler, send_execution_response, send_query_response, send_ready_for_query,
};
use pgwire::api::results::{Response, Tag};
use pgwire::api::store::PortalStore;
use pgwire::api::{ClientInfo, ClientPortalStore, PgWireConnectionState};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::response::{EmptyQueryResponse, TransactionStatus};
use pgwire::messages::simplequery::Query;

use crate::connection::Connection;
use crate::copy::{self, CopyInProgress};
use crate::encode;
use crate::error::{notice, protocol, to_wire};
use crate::located::{located, text_of};
use crate::pg_catalog;
use crate::settings;

/// After an error in a block, only statements that end it are accepted.
pub(crate) fn check_block(statement: &Statement, status: TransactionStatus) -> PgWireResult<()> {
    let ends_block = matches!(
        statement,
        Statement::Transaction(
            Transaction::Commit | Transaction::Rollback | Transaction::RollbackTo(_)
        )
    );
    if status == TransactionStatus::Error && !ends_block {
        return Err(protocol(
            "25P02",
            "current transaction is aborted, commands ignored until end of transaction block",
        ));
    }
    Ok(())
}

impl Connection {
    /// Turns the output of a statement into a response; notices are sent at once.
    pub(crate) async fn respond<C>(
        &self,
        client: &mut C,
        statement: &Statement,
        output: Output,
        format: &Format,
    ) -> PgWireResult<Response>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        match output {
            // Rows are encoded as they are fetched.
            Output::Rows { schema, stream } => {
                let mut response = encode::response(&schema, stream, format, self.zone()?)?;
                match statement {
                    Statement::Query(_) | Statement::Execute(_) => {}
                    // The number of rows follows; the first one is that of an object id.
                    Statement::Insert(_) => response.set_command_tag("INSERT 0"),
                    statement => response.set_command_tag(statement.tag()),
                }
                Ok(Response::Query(response))
            }
            // Notices and changed settings precede the tag, which may end a block.
            Output::Done { tag, notices, .. } => {
                for item in notices {
                    client.feed(notice(item)).await?;
                }
                if settings::may_change(statement) {
                    self.report(client).await?;
                }
                let failed = client.transaction_status() == TransactionStatus::Error;
                Ok(match statement {
                    Statement::Empty => Response::EmptyQuery,
                    Statement::Transaction(Transaction::Begin(_)) => {
                        Response::TransactionStart(Tag::new(&tag))
                    }
                    Statement::Transaction(Transaction::Commit) if failed => {
                        Response::TransactionEnd(Tag::new("ROLLBACK"))
                    }
                    Statement::Transaction(Transaction::Commit | Transaction::Rollback) => {
                        Response::TransactionEnd(Tag::new(&tag))
                    }
                    _ => Response::Execution(Tag::new(&tag)),
                })
            }
            // Rows arrive with the next messages.
            Output::CopyIn(copy_in) => {
                let (copy, response) = CopyInProgress::start(copy_in)?;
                *self.copy.lock().await = Some(copy);
                Ok(Response::CopyIn(response))
            }
            // All rows are sent here, before the tag.
            Output::CopyOut(copy_out) => {
                let rows = copy::send_out(client, copy_out).await?;
                Ok(Response::Execution(Tag::new(&format!("COPY {rows}"))))
            }
        }
    }

    async fn run_simple<C>(&self, client: &mut C, text: &str) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let session = self.session()?;
        let statements = pg_catalog::parse(session, text).await.map_err(to_wire)?;
        if statements.is_empty() {
            client
                .feed(PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new()))
                .await?;
        }
        for statement in &statements {
            check_block(statement, client.transaction_status())?;
            let output = session.run(statement).await;
            let output =
                output.map_err(|error| to_wire(located(error, text, text_of(statement))))?;
            let response = self.respond(client, statement, output, &Format::UnifiedText).await?;
            send(client, response, false).await?;
            if matches!(client.state(), PgWireConnectionState::CopyInProgress(_)) {
                // Rows follow; the statements after COPY in the text are not run.
                break;
            }
        }
        Ok(())
    }
}

/// Sends a response; rows are described first, unless the extended protocol has described them before.
pub(crate) async fn send<C>(client: &mut C, response: Response, extended: bool) -> PgWireResult<()>
where
    C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
    C::Error: Debug,
    PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
{
    match response {
        Response::EmptyQuery => {
            client
                .feed(PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new()))
                .await?;
        }
        Response::Query(rows) => send_query_response(client, rows, !extended).await?,
        Response::Execution(tag) => send_execution_response(client, tag).await?,
        Response::TransactionStart(tag) => {
            send_execution_response(client, tag).await?;
            client.set_transaction_status(client.transaction_status().to_in_transaction_state());
        }
        Response::TransactionEnd(tag) => {
            send_execution_response(client, tag).await?;
            client.set_transaction_status(client.transaction_status().to_idle_state());
        }
        Response::CopyIn(copy) => {
            send_copy_in_response(client, copy).await?;
            client.set_state(PgWireConnectionState::CopyInProgress(extended));
        }
        // The rows of COPY TO STDOUT have been sent before the tag.
        Response::CopyOut(_) | Response::CopyBoth(_) => {
            return Err(protocol("XX000", "unexpected COPY response"));
        }
        Response::Error(error) => return Err(PgWireError::UserError(error)),
    }
    Ok(())
}

#[async_trait]
impl SimpleQueryHandler for Connection {
    async fn on_query<C>(&self, client: &mut C, query: Query) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        if !matches!(client.state(), PgWireConnectionState::ReadyForQuery) {
            return Err(PgWireError::NotReadyForQuery);
        }
        client.set_state(PgWireConnectionState::QueryInProgress);
        self.run_simple(client, &query.query).await?;
        if !matches!(client.state(), PgWireConnectionState::CopyInProgress(_)) {
            client.set_state(PgWireConnectionState::ReadyForQuery);
            send_ready_for_query(client, client.transaction_status()).await?;
        }
        Ok(())
    }

    async fn do_query<C>(&self, _client: &mut C, _query: &str) -> PgWireResult<Vec<Response>>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        // Unused: `on_query` above runs statement by statement.
        Err(protocol("XX000", "unexpected simple query"))
    }
}

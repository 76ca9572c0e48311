//! Statements of the simple protocol, and what both protocols do with what a statement gives back.
//!
//! The statements of one simple query run and answer one after the other, so that each sees what the
//! ones before it did. BEGIN and COMMIT are followed as far as clients can see (ReadyForQuery's
//! status, 25P02 after an error in a block), but a block is no transaction: every statement takes
//! effect by itself.

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
use crate::pg_catalog;
use crate::settings;

/// After an error in a block only its end is listened to.
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
    /// Turns what a statement gives back into a response; notices go out at once.
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
            Output::Rows { schema, stream } => {
                let mut response = encode::response(&schema, stream, format, self.zone()?)?;
                if !matches!(statement, Statement::Query(_) | Statement::Execute(_)) {
                    response.set_command_tag(statement.tag());
                }
                Ok(Response::Query(response))
            }
            Output::Done { tag, notices, .. } => {
                for one in notices {
                    client.feed(notice(one)).await?;
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
            Output::CopyIn(copy_in) => {
                let (copy, response) = CopyInProgress::start(copy_in)?;
                *self.copy.lock().await = Some(copy);
                Ok(Response::CopyIn(response))
            }
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
            let output = session.run(statement).await.map_err(to_wire)?;
            let response = self.respond(client, statement, output, &Format::UnifiedText).await?;
            send(client, response, false).await?;
            if matches!(client.state(), PgWireConnectionState::CopyInProgress(_)) {
                // The rows come next; whatever the text had after COPY is not run.
                break;
            }
        }
        Ok(())
    }
}

/// Sends a response; one with rows is described first, which the extended protocol has done before.
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
        // Rows of COPY TO STDOUT have been sent before their tag.
        Response::CopyOut(_) | Response::CopyBoth(_) => {
            return Err(protocol("XX000", "a COPY took a way that does not exist"));
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
        // `on_query` above answers statement by statement and never comes here.
        Err(protocol("XX000", "a query took a way that does not exist"))
    }
}

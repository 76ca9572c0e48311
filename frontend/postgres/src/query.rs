//! Statements of the simple and the extended protocol.
//!
//! The statements of one simple query run and answer one after the other, so that each sees what the
//! ones before it did. BEGIN and COMMIT are followed as far as clients can see (ReadyForQuery's
//! status, 25P02 after an error in a block), but a block is no transaction: every statement takes
//! effect by itself.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use futures::{Sink, SinkExt};
use partita_frontend::sql::statement::{Statement, Transaction};
use partita_frontend::{Output, Prepared};
use pgwire::api::copy::{send_copy_in_response, send_copy_out_response};
use pgwire::api::portal::{Format, Portal};
use pgwire::api::query::{
    ExtendedQueryHandler, SimpleQueryHandler, send_execution_response, send_query_response,
    send_ready_for_query,
};
use pgwire::api::results::{FieldInfo, Response, Tag};
use pgwire::api::stmt::QueryParser;
use pgwire::api::store::PortalStore;
use pgwire::api::{ClientInfo, ClientPortalStore, PgWireConnectionState, Type};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::response::{EmptyQueryResponse, TransactionStatus};
use pgwire::messages::simplequery::Query;
use pgwire::types::format::FormatOptions;

use crate::connection::Connection;
use crate::copy::{self, CopyInProgress};
use crate::encode;
use crate::error::{notice, protocol, to_wire};
use crate::parameters;
use crate::pg_catalog;

/// After an error in a block only its end is listened to.
fn check_block(statement: &Statement, status: TransactionStatus) -> PgWireResult<()> {
    let ends_block = matches!(
        statement,
        Statement::Transaction(Transaction::Commit | Transaction::Rollback)
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
    /// Runs a statement and turns what it gives back into a response; notices go out at once.
    async fn respond<C>(
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
                let options = Arc::new(FormatOptions::from_client_metadata(client.metadata()));
                let mut response = encode::response(&schema, stream, format, options)?;
                if !matches!(statement, Statement::Query(_)) {
                    response.set_command_tag(statement.tag());
                }
                Ok(Response::Query(response))
            }
            Output::Done { tag, notices, .. } => {
                for one in notices {
                    client.feed(notice(one)).await?;
                }
                let failed = client.transaction_status() == TransactionStatus::Error;
                Ok(match statement {
                    Statement::Empty => Response::EmptyQuery,
                    Statement::Transaction(Transaction::Begin) => {
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
            Output::CopyOut(copy_out) => copy::out(copy_out).map(Response::CopyOut),
        }
    }

    async fn run_simple<C>(&self, client: &mut C, text: &str) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let session = Arc::clone(self.session()?);
        let statements = pg_catalog::parse(&session, text).map_err(to_wire)?;
        if statements.is_empty() {
            client.feed(PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse)).await?;
        }
        for statement in &statements {
            check_block(statement, client.transaction_status())?;
            let output = session.run(statement).await.map_err(to_wire)?;
            let response =
                self.respond(client, statement, output, &Format::UnifiedText).await?;
            send(client, response).await?;
            if matches!(client.state(), PgWireConnectionState::CopyInProgress(_)) {
                // The rows come next; whatever the text had after COPY is not run.
                break;
            }
        }
        Ok(())
    }
}

/// Sends one response of a simple query.
async fn send<C>(client: &mut C, response: Response) -> PgWireResult<()>
where
    C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
    C::Error: Debug,
    PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
{
    match response {
        Response::EmptyQuery => {
            client.feed(PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse)).await?;
        }
        Response::Query(rows) => send_query_response(client, rows, true).await?,
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
            client.set_state(PgWireConnectionState::CopyInProgress(false));
        }
        Response::CopyOut(copy) => send_copy_out_response(client, copy).await?,
        Response::CopyBoth(_) => return Err(protocol("0A000", "COPY BOTH is not supported")),
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
        let _running = self.running();
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

/// Parses and plans the statements of one connection.
pub(crate) struct Planner(Arc<Connection>);

#[async_trait]
impl QueryParser for Planner {
    type Statement = Arc<Prepared>;

    async fn parse_sql<C>(
        &self,
        client: &C,
        sql: &str,
        types: &[Option<Type>],
    ) -> PgWireResult<Option<Arc<Prepared>>>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        let _running = self.0.running();
        let session = self.0.session()?;
        let mut statements = pg_catalog::parse(session, sql).map_err(to_wire)?;
        if statements.len() > 1 {
            return Err(protocol(
                "42601",
                "cannot insert multiple commands into a prepared statement",
            ));
        }
        let Some(statement) = statements.pop() else { return Ok(None) };
        if matches!(statement, Statement::Empty) {
            return Ok(None);
        }
        check_block(&statement, client.transaction_status())?;
        let prepared = session
            .prepare(statement, &parameters::declared(types))
            .await
            .map_err(to_wire)?;
        Ok(Some(prepared))
    }

    fn get_parameter_types(&self, prepared: &Arc<Prepared>) -> PgWireResult<Vec<Type>> {
        parameters::types(prepared)
    }

    fn get_result_schema(
        &self,
        prepared: &Arc<Prepared>,
        format: Option<&Format>,
    ) -> PgWireResult<Vec<FieldInfo>> {
        match &prepared.schema {
            Some(schema) => encode::fields(schema, format.unwrap_or(&Format::UnifiedText), None),
            None => Ok(Vec::new()),
        }
    }
}

#[async_trait]
impl ExtendedQueryHandler for Connection {
    type Statement = Arc<Prepared>;
    type QueryParser = Planner;

    fn query_parser(&self) -> Arc<Planner> {
        Arc::new(Planner(self.handle()))
    }

    async fn do_query<C>(
        &self,
        client: &mut C,
        portal: &Portal<Arc<Prepared>>,
        _max_rows: usize,
    ) -> PgWireResult<Response>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Arc<Prepared>>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let _running = self.running();
        let prepared = &portal.statement.statement;
        check_block(&prepared.statement, client.transaction_status())?;
        let values = parameters::values(portal)?;
        let output = self.session()?.run_prepared(prepared, values).await.map_err(to_wire)?;
        self.respond(client, &prepared.statement, output, &portal.result_column_format).await
    }
}

//! Statements of the extended protocol: Parse, Bind, Describe, Execute.
//!
//! Responses are buffered, and sent with a Sync or a Flush. The number of statements and portals and the memory they
//! occupy are bounded ([`crate::names`]).

use std::fmt::Debug;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{Sink, SinkExt, StreamExt};
use partita_frontend::held::ParameterTypes;
use partita_frontend::sql::statement::{Direction, Fetch, Statement};
use partita_frontend::{Output, Prepared, Session};
use pgwire::api::portal::{Format, Portal, PortalExecutionState};
use pgwire::api::query::{ExtendedQueryHandler, send_describe_response, send_ready_for_query};
use pgwire::api::results::{DescribePortalResponse, FieldInfo, Response, Tag};
use pgwire::api::stmt::{QueryParser, StoredStatement};
use pgwire::api::store::{Entry, PortalStore};
use pgwire::api::{ClientInfo, ClientPortalStore, DEFAULT_NAME, PgWireConnectionState, Type};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::data::{NoData, ParameterDescription};
use pgwire::messages::extendedquery::{
    Bind, BindComplete, Close, CloseComplete, Describe, Execute, Parse, ParseComplete,
    PortalSuspended, Sync as SyncMessage, TARGET_TYPE_BYTE_PORTAL, TARGET_TYPE_BYTE_STATEMENT,
};

use pgwire::messages::response::{EmptyQueryResponse, TransactionStatus};

use crate::connection::Connection;
use crate::encode;
use crate::error::{protocol, to_wire};
use crate::joined;
use crate::located::{located, text_of};
use crate::object_types;
use crate::parameters;
use crate::pg_catalog;
use crate::query::{check_block, send};

/// Approximate bytes of a plan for each byte of the statement's text.
const PLAN_RATIO: usize = 32;
/// Minimum bytes of a statement or a portal.
const ENTRY_BYTES: usize = 1 << 10;

/// The name as clients know it: the unnamed one has an internal name.
pub(crate) fn shown_name(name: &str) -> &str {
    if name == DEFAULT_NAME { "" } else { name }
}

fn name_of(name: Option<&String>) -> &str {
    name.map_or(DEFAULT_NAME, String::as_str)
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
        let session = self.0.session()?;
        let mut statements = pg_catalog::parse(session, sql).await.map_err(to_wire)?;
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
        // The text has no other statement.
        let text = text_of(&statement).map(|_| sql);
        let prepared = session.prepare(statement, &parameters::declared(types)).await;
        prepared.map(Some).map_err(|error| to_wire(located(error, sql, text)))
    }

    fn get_parameter_types(&self, prepared: &Arc<Prepared>) -> PgWireResult<Vec<Type>> {
        Ok(parameters::types(prepared))
    }

    fn get_result_schema(
        &self,
        prepared: &Arc<Prepared>,
        format: Option<&Format>,
    ) -> PgWireResult<Vec<FieldInfo>> {
        match &prepared.schema {
            Some(schema) => encode::fields(schema, format.unwrap_or(&Format::UnifiedText)),
            None => Ok(Vec::new()),
        }
    }
}

/// Refuses rows of other types than those that were described to the client: the table has changed since.
fn check_same(described: &Schema, current: &Schema) -> PgWireResult<()> {
    let types = |schema: &Schema| -> Vec<Type> {
        schema.fields().iter().map(|field| crate::types::of_field(field)).collect()
    };
    if types(described) == types(current) {
        return Ok(());
    }
    Err(protocol("0A000", "cached plan must not change result type"))
}

/// Checks that a portal has a format for each column.
fn check_result_formats(portal: &Portal<Arc<Prepared>>) -> PgWireResult<()> {
    let columns =
        portal.statement.statement.schema.as_ref().map_or(0, |schema| schema.fields().len());
    match &portal.result_column_format {
        Format::Individual(formats) if formats.len() != columns => Err(protocol(
            "08P01",
            format!(
                "bind message has {} result formats but query has {columns} columns",
                formats.len()
            ),
        )),
        _ => Ok(()),
    }
}

impl Connection {
    /// True for the unnamed statement, and for a name that DEALLOCATE has not taken away.
    fn is_held(&self, name: &str) -> bool {
        let is_listed = |session: &Arc<Session>| session.viewer().held().has_statement(name);
        name == DEFAULT_NAME || self.session().is_ok_and(is_listed)
    }

    /// The columns of a cursor that was declared in SQL, which in PostgreSQL is a portal too.
    async fn cursor<C>(&self, client: &C, name: &str) -> PgWireResult<Option<SchemaRef>>
    where
        C: ClientPortalStore + Send + Sync,
        C::PortalStore: PortalStore<Statement = Arc<Prepared>>,
    {
        if name == DEFAULT_NAME || client.portal_store().get_portal(name).is_some() {
            return Ok(None);
        }
        let direction = Direction::Forward(Some(0));
        let fetch = Fetch { name: name.to_owned(), direction, only_move: false };
        let prepared = self.session()?.prepare(Statement::Fetch(fetch), &[]).await;
        Ok(prepared.map_err(to_wire)?.schema.clone())
    }

    /// Runs a portal that has not run yet, and sends its next rows: all, or `most`.
    async fn execute<C>(
        &self,
        client: &mut C,
        portal: &Portal<Arc<Prepared>>,
        most: usize,
    ) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Arc<Prepared>>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let state = portal.state();
        let mut state = state.lock().await;
        if matches!(*state, PortalExecutionState::Initial) {
            let response = ExtendedQueryHandler::do_query(self, client, portal, most).await?;
            let rows = match response {
                Response::Query(rows) => rows,
                response => {
                    *state = PortalExecutionState::Finished;
                    return send(client, response, true).await;
                }
            };
            *state = PortalExecutionState::Suspended(rows);
        }
        // Taken out, so that nothing is left to be fetched after an error.
        let current = std::mem::replace(&mut *state, PortalExecutionState::Finished);
        let PortalExecutionState::Suspended(mut rows) = current else {
            if portal.statement.statement.schema.is_some() {
                let tag = Tag::new("SELECT").with_rows(0);
                client.feed(PgWireBackendMessage::CommandComplete(tag.into())).await?;
                return Ok(());
            }
            let name = shown_name(&portal.name);
            return Err(protocol("55000", format!("portal \"{name}\" cannot be run again")));
        };
        let mut rows_sent = 0;
        while most == 0 || rows_sent < most {
            let Some(row) = rows.data_rows().next().await.transpose()? else {
                let tag = Tag::new(rows.command_tag()).with_rows(rows_sent);
                client.feed(PgWireBackendMessage::CommandComplete(tag.into())).await?;
                return Ok(());
            };
            client.feed(PgWireBackendMessage::DataRow(row)).await?;
            rows_sent += 1;
        }
        *state = PortalExecutionState::Suspended(rows);
        client.feed(PgWireBackendMessage::PortalSuspended(PortalSuspended::new())).await?;
        Ok(())
    }
}

#[async_trait]
impl ExtendedQueryHandler for Connection {
    type Statement = Arc<Prepared>;
    type QueryParser = Planner;

    fn query_parser(&self) -> Arc<Planner> {
        Arc::new(Planner(self.handle()))
    }

    async fn on_parse<C>(&self, client: &mut C, mut message: Parse) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Arc<Prepared>>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        object_types::declare(&mut message);
        let name = name_of(message.name.as_ref());
        let held = Arc::clone(self.session()?.viewer().held());
        if held.take_reduced() {
            for name in
                self.statements.take_all(|name| name != DEFAULT_NAME && !held.has_statement(name))
            {
                client.portal_store().rm_statement(&name);
            }
        }
        if name != DEFAULT_NAME && held.has_statement(name) {
            return Err(protocol("42P05", format!("prepared statement \"{name}\" already exists")));
        }
        let parsed = StoredStatement::parse(client, &message, self.query_parser()).await?;
        // Some clients parse the same INSERT again for every row.
        if !parsed.as_ref().is_some_and(|parsed| self.is_joined(&parsed.statement)) {
            self.run_joined(client).await?;
        }
        self.statements.add(
            name,
            ENTRY_BYTES.saturating_add(message.query.len().saturating_mul(PLAN_RATIO)),
        )?;
        if name != DEFAULT_NAME {
            let described = parsed.as_ref().map(parameters::described).unwrap_or_default();
            let types = pg_catalog::type_names(&described);
            held.add_statement(name, &message.query, ParameterTypes::Named(types), false);
        }
        match parsed {
            Some(statement) => client.portal_store().put_statement(Arc::new(statement)),
            None => client.portal_store().put_empty_statement(name),
        }
        self.answer(client, PgWireBackendMessage::ParseComplete(ParseComplete::new())).await
    }

    async fn on_bind<C>(&self, client: &mut C, message: Bind) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Arc<Prepared>>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let statement_name = name_of(message.statement_name.as_ref());
        let portal_name = name_of(message.portal_name.as_ref());
        // A portal counts the bytes of its parameters.
        let is_held = self.is_held(statement_name);
        match client.portal_store().get_statement(statement_name).filter(|_| is_held) {
            Some(Entry::Value(statement)) => {
                let portal = Portal::try_new(&message, statement)?;
                check_result_formats(&portal)?;
                let values = message.parameters.iter().flatten().map(Bytes::len);
                let values = values.fold(0, usize::saturating_add);
                self.portals.add(portal_name, ENTRY_BYTES.saturating_add(values))?;
                client.portal_store().put_portal(Arc::new(portal));
            }
            // An empty statement has a portal too, without parameters.
            Some(Entry::Empty) => {
                if !message.parameters.is_empty() {
                    return Err(protocol(
                        "08P01",
                        format!(
                            "bind message supplies {} parameters, but prepared statement \"{}\" \
                             requires 0",
                            message.parameters.len(),
                            shown_name(statement_name)
                        ),
                    ));
                }
                self.portals.add(portal_name, ENTRY_BYTES)?;
                client.portal_store().put_empty_portal(portal_name);
            }
            None => return Err(PgWireError::StatementNotFound(statement_name.to_owned())),
        }
        self.answer(client, PgWireBackendMessage::BindComplete(BindComplete::new())).await
    }

    async fn on_describe<C>(&self, client: &mut C, message: Describe) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Arc<Prepared>>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        if message.target_type == TARGET_TYPE_BYTE_PORTAL {
            let name = name_of(message.name.as_ref());
            if let Some(Entry::Value(portal)) = client.portal_store().get_portal(name)
                && portal.statement.statement.schema.is_none()
            {
                return self.answer(client, PgWireBackendMessage::NoData(NoData::new())).await;
            }
            if let Some(schema) = self.cursor(client, name).await? {
                self.run_joined(client).await?;
                let fields = encode::fields(&schema, &Format::UnifiedText)?;
                return send_describe_response(client, &DescribePortalResponse::new(fields)).await;
            }
        }
        self.run_joined(client).await?;
        if message.target_type == TARGET_TYPE_BYTE_STATEMENT
            && let Some(Entry::Value(statement)) =
                client.portal_store().get_statement(name_of(message.name.as_ref()))
            && statement.statement.schema.is_none()
        {
            // A description without columns would be that of a query.
            let types = parameters::described(&statement).iter().map(Type::oid).collect();
            let parameters = ParameterDescription::new(types);
            client.feed(PgWireBackendMessage::ParameterDescription(parameters)).await?;
            client.feed(PgWireBackendMessage::NoData(NoData::new())).await?;
            return Ok(());
        }
        self._on_describe(client, message).await
    }

    async fn on_execute<C>(&self, client: &mut C, message: Execute) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Arc<Prepared>>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let name = name_of(message.name.as_ref());
        if let Some(Entry::Value(portal)) = client.portal_store().get_portal(name)
            && joined::joins(&portal.statement.statement)
            && matches!(client.state(), PgWireConnectionState::ReadyForQuery)
        {
            let prepared = &portal.statement.statement;
            check_block(&prepared.statement, client.transaction_status())?;
            let row = parameters::values(&portal, self.zone()?)?;
            return self.join(client, prepared, row).await;
        }
        self.run_joined(client).await?;
        if !matches!(client.state(), PgWireConnectionState::ReadyForQuery) {
            return Err(PgWireError::NotReadyForQuery);
        }
        client.set_state(PgWireConnectionState::QueryInProgress);
        match client.portal_store().get_portal(name) {
            Some(Entry::Value(portal)) => {
                // A negative number means all, as 0 does.
                let most = usize::try_from(message.max_rows).unwrap_or(0);
                self.execute(client, &portal, most).await?;
            }
            Some(Entry::Empty) => {
                client
                    .feed(PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new()))
                    .await?;
            }
            None => return Err(PgWireError::PortalNotFound(name.to_owned())),
        }
        if !matches!(client.state(), PgWireConnectionState::CopyInProgress(_)) {
            client.set_state(PgWireConnectionState::ReadyForQuery);
        }
        Ok(())
    }

    async fn on_sync<C>(&self, client: &mut C, _message: SyncMessage) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Arc<Prepared>>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        // Portals live as long as their transaction; without a block it ends here.
        if client.transaction_status() == TransactionStatus::Idle {
            client.portal_store().clear_portals();
            self.portals.clear();
        }
        send_ready_for_query(client, client.transaction_status()).await
    }

    async fn on_close<C>(&self, client: &mut C, message: Close) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Arc<Prepared>>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let name = name_of(message.name.as_ref());
        match message.target_type {
            TARGET_TYPE_BYTE_STATEMENT => {
                if self.statements.contains(name) {
                    self.session()?.viewer().held().remove_statement(name);
                }
                self.statements.remove(name);
                client.portal_store().rm_statement(name);
            }
            TARGET_TYPE_BYTE_PORTAL => {
                self.portals.remove(name);
                client.portal_store().rm_portal(name);
            }
            target => return Err(PgWireError::InvalidTargetType(target)),
        }
        self.answer(client, PgWireBackendMessage::CloseComplete(CloseComplete::new())).await
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
        let prepared = &portal.statement.statement;
        check_block(&prepared.statement, client.transaction_status())?;
        let values = parameters::values(portal, self.zone()?)?;
        let output = self.session()?.run_prepared(prepared, values).await.map_err(to_wire)?;
        if let (Some(described), Output::Rows { schema, .. }) = (&prepared.schema, &output) {
            check_same(described, schema)?;
        }
        self.respond(client, &prepared.statement, output, &portal.result_column_format).await
    }
}

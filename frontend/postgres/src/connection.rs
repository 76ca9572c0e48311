//! One connection: its session, and the table by which a cancel request finds it.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures::{Sink, SinkExt};
use parking_lot::Mutex;
use partita_frontend::access::authenticator::Login;
use partita_frontend::{Frontend, Session, SessionOptions, SqlError, Zone};
use partita_proto::access::{Action, Identity, Need, Object, Permit};
use partita_proto::catalog::{DEFAULT_DATABASE, Table};
use pgwire::api::auth::{StartupHandler, finish_authentication};
use pgwire::api::cancel::CancelHandler;
use pgwire::api::{
    ClientInfo, METADATA_DATABASE, PgWireConnectionState, PidSecretKeyGenerator,
    RandomPidSecretKeyGenerator,
};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::cancel::CancelRequest;
use pgwire::messages::response::TransactionStatus;
use pgwire::messages::startup::{ParameterStatus, SecretKey};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};

use crate::copy::CopyInProgress;
use crate::error::{fatal, fatal_of, to_wire};
use crate::frames::Socket;
use crate::joined::Joined;
use crate::names::Names;
use crate::settings::{self, AtStart, Reported};

/// The version of PostgreSQL whose protocol and catalog this door implements.
pub(crate) const POSTGRES_VERSION: &str = "15.18";

/// Limits for the prepared statements of one connection: their number, and the bytes they occupy.
const STATEMENTS_MAX: usize = 10_000;
const STATEMENTS_BYTES_MAX: usize = 64 << 20;
/// Limits for the portals of one connection: their number, and the bytes they occupy.
const PORTALS_MAX: usize = 1_000;
const PORTALS_BYTES_MAX: usize = 64 << 20;

/// Sessions by process number, for cancel requests.
#[derive(Default)]
pub(crate) struct Cancellations {
    sessions: Mutex<HashMap<i32, (SecretKey, Arc<Session>)>>,
    keys: RandomPidSecretKeyGenerator,
}

/// The state in which a client sends nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    Session,
    InTransaction,
    /// A COPY FROM STDIN waits for rows: the timeout counts from the last of them, so that a COPY may last as long as
    /// rows arrive.
    Copy,
}

impl Idle {
    fn setting(self) -> &'static str {
        match self {
            Self::Session => "idle_session_timeout",
            Self::InTransaction => "idle_in_transaction_session_timeout",
            Self::Copy => "statement_timeout",
        }
    }

    /// The SQLSTATE and the message with which the connection ends; `None` if only the COPY ends.
    pub(crate) fn termination(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Session => Some(("57P05", "terminating connection due to idle-session timeout")),
            Self::InTransaction => {
                Some(("25P03", "terminating connection due to idle-in-transaction timeout"))
            }
            Self::Copy => None,
        }
    }
}

/// A client's session, and the state of the protocol beside it.
pub(crate) struct Connection {
    /// A reference to itself, for the parts that pgwire owns.
    me: std::sync::Weak<Connection>,
    frontend: Arc<Frontend>,
    cancellations: Arc<Cancellations>,
    has_place: bool,
    session: OnceLock<Arc<Session>>,
    pid: OnceLock<i32>,
    reported: Mutex<Reported>,
    /// The COPY FROM STDIN that is running.
    pub(crate) copy: tokio::sync::Mutex<Option<CopyInProgress>>,
    /// The INSERTs of a pipeline that wait to be written together.
    pub(crate) joined: Mutex<Option<Joined>>,
    /// The names of prepared statements and of portals.
    pub(crate) statements: Names,
    pub(crate) portals: Names,
}

impl Connection {
    /// A connection that has a place among the allowed ones, or is to be refused.
    pub(crate) fn new(
        frontend: Arc<Frontend>,
        cancellations: Arc<Cancellations>,
        has_place: bool,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: std::sync::Weak::clone(me),
            frontend,
            cancellations,
            has_place,
            session: OnceLock::new(),
            pid: OnceLock::new(),
            reported: Mutex::default(),
            copy: tokio::sync::Mutex::new(None),
            joined: Mutex::new(None),
            statements: Names::new("prepared statements", STATEMENTS_MAX, STATEMENTS_BYTES_MAX),
            portals: Names::new("portals", PORTALS_MAX, PORTALS_BYTES_MAX),
        })
    }

    /// The session, which exists once the startup is over.
    pub(crate) fn session(&self) -> PgWireResult<&Arc<Session>> {
        self.session.get().ok_or_else(|| fatal("08P01", "unexpected message before the startup"))
    }

    /// The frontend behind all sessions.
    pub(crate) fn frontend(&self) -> &Arc<Frontend> {
        &self.frontend
    }

    /// A reference-counted handle to the connection itself.
    pub(crate) fn handle(&self) -> Arc<Self> {
        self.me.upgrade().expect("the connection is alive while its methods run")
    }

    /// The time zone of the session.
    pub(crate) fn zone(&self) -> PgWireResult<Zone> {
        Ok(self.session()?.zone())
    }

    /// The maximum time without a message in a state, and the kind of idleness; `None` means no limit.
    pub(crate) fn idle_timeout(
        &self,
        state: PgWireConnectionState,
        transaction: TransactionStatus,
    ) -> Option<(Duration, Idle)> {
        let session = self.session.get()?;
        let idle = match (state, transaction) {
            (PgWireConnectionState::CopyInProgress(_), _) => Idle::Copy,
            (_, TransactionStatus::Idle) => Idle::Session,
            _ => Idle::InTransaction,
        };
        if idle == Idle::Copy {
            return session.statement_timeout().map(|timeout| (timeout, idle));
        }
        session.timeout_setting(idle.setting()).map(|timeout| (timeout, idle))
    }

    /// Starts the timeout of a statement with the first of its messages: those of the extended protocol, up to its
    /// Execute.
    pub(crate) fn count_time(&self, message: &PgWireFrontendMessage) {
        let Some(session) = self.session.get() else { return };
        match message {
            PgWireFrontendMessage::Parse(_)
            | PgWireFrontendMessage::Bind(_)
            | PgWireFrontendMessage::Describe(_)
            | PgWireFrontendMessage::Execute(_) => session.begin_in_parts(),
            PgWireFrontendMessage::Flush(_) => {}
            _ => session.end_in_parts(),
        }
    }

    /// Ends the time of a statement; the next one has its own.
    pub(crate) fn end_time(&self) {
        if let Some(session) = self.session.get() {
            session.end_in_parts();
        }
    }

    /// Cancels the running statement.
    pub(crate) fn cancel(&self) {
        if let Some(session) = self.session.get() {
            session.cancel();
        }
    }

    /// Cancels the running statement of the connection that a cancel request names.
    pub(crate) fn cancel_other(&self, request: &CancelRequest) {
        let sessions = self.cancellations.sessions.lock();
        if let Some((secret, session)) = sessions.get(&request.pid)
            && secret.eq_value(&request.secret_key)
        {
            session.cancel();
        }
    }

    /// Removes the connection from the table, and cancels its running statement.
    pub(crate) fn close(&self) {
        if let Some(pid) = self.pid.get() {
            self.cancellations.sessions.lock().remove(pid);
        }
        self.cancel();
    }

    /// Reports the settings that have changed.
    pub(crate) async fn report<C>(&self, client: &mut C) -> PgWireResult<()>
    where
        C: Sink<PgWireBackendMessage> + Unpin + Send,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let current = Reported::of(self.session()?).map_err(to_wire)?;
        let previous = std::mem::replace(&mut *self.reported.lock(), current.clone());
        for (name, value) in current.changes(&previous) {
            let status = ParameterStatus::new(name.to_owned(), value.to_owned());
            client.feed(PgWireBackendMessage::ParameterStatus(status)).await?;
        }
        Ok(())
    }

    /// Refuses a connection that has no place among the allowed ones.
    pub(crate) fn check_place(&self) -> PgWireResult<()> {
        if self.has_place {
            return Ok(());
        }
        Err(fatal("53300", "sorry, too many clients already"))
    }

    /// Starts the session of an authenticated client; `user` is the name that it gave. Sends all up to the first
    /// ReadyForQuery.
    pub(crate) async fn begin(
        &self,
        client: &mut Socket,
        user: &str,
        login: Login,
    ) -> PgWireResult<()> {
        let parameters = client.metadata().clone();
        let Login { identity, user: role } = login;
        let database = self.database(parameters.get(METADATA_DATABASE), user, identity)?;
        let application = parameters.get("application_name").cloned().unwrap_or_default();
        let options = SessionOptions { database, user: role, application, identity };
        let session = self.frontend.session(options);
        settings::apply(&session, &parameters)?;

        // A client finds itself in pg_stat_activity by the number that cancel requests name.
        let ((_, secret), pid) = (self.cancellations.keys.generate(client), session.pid());
        client.set_pid_and_secret_key(pid, secret.clone());
        self.cancellations.sessions.lock().insert(pid, (secret, Arc::clone(&session)));
        let reported = Reported::of(&session).map_err(fatal_of)?;
        *self.reported.lock() = reported.clone();
        if self.pid.set(pid).is_err() || self.session.set(session).is_err() {
            return Err(fatal("08P01", "the session has already started"));
        }
        let server_version = format!("{POSTGRES_VERSION} (Partita {})", env!("CARGO_PKG_VERSION"));
        finish_authentication(client, &AtStart { reported, server_version }).await
    }

    /// Checks that the session may insert rows into a table now.
    pub(crate) fn check_insert(&self, table: &Table) -> Result<Permit, SqlError> {
        let session =
            self.session.get().ok_or_else(|| SqlError::internal("COPY without a session"))?;
        // The owner may have changed since the COPY began.
        let catalog = self.frontend.catalog();
        let table =
            catalog.table_by_id(table.id).ok_or_else(|| SqlError::undefined_table(&table.name))?;
        let database = catalog
            .databases
            .get(&table.database)
            .ok_or_else(|| SqlError::undefined_database(&table.database))?;
        let object = Object::Table { database: Arc::clone(database), table: Arc::clone(table) };
        session.viewer().check(&[Need::new(Action::Insert, object)])
    }

    /// The database of a startup message. Without one, PostgreSQL's tools send the user's name or "postgres". The
    /// default database is open to everybody; one that the identity may not see does not exist.
    fn database(
        &self,
        requested: Option<&String>,
        user: &str,
        identity: Identity,
    ) -> PgWireResult<String> {
        let name = requested.map_or(DEFAULT_DATABASE, String::as_str);
        let visible = self.frontend.viewer(identity).catalog();
        if visible.databases.contains_key(name) {
            return Ok(name.to_owned());
        }
        if [DEFAULT_DATABASE, "postgres", "partita", user].contains(&name) {
            return Ok(DEFAULT_DATABASE.to_owned());
        }
        Err(fatal("3D000", &format!("database \"{name}\" does not exist")))
    }
}

#[async_trait]
impl StartupHandler for Connection {
    /// A connection starts before the message loop, in `startup.rs`.
    async fn on_startup<C>(
        &self,
        _client: &mut C,
        _message: PgWireFrontendMessage,
    ) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        Err(fatal("08P01", "unexpected startup message: the session has already started"))
    }
}

#[async_trait]
impl CancelHandler for Connection {
    async fn on_cancel_request(&self, request: CancelRequest) {
        self.cancel_other(&request);
    }
}

//! One connection: its session, and how a cancel request finds it.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures::{Sink, SinkExt};
use parking_lot::Mutex;
use partita_frontend::{Frontend, Session, SessionOptions, Zone};
use partita_proto::catalog::DEFAULT_DATABASE;
use pgwire::api::auth::{
    StartupHandler, finish_authentication, protocol_negotiation,
    save_startup_parameters_to_metadata,
};
use pgwire::api::cancel::CancelHandler;
use pgwire::api::{
    ClientInfo, METADATA_DATABASE, METADATA_USER, PgWireConnectionState, PidSecretKeyGenerator,
    RandomPidSecretKeyGenerator,
};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::cancel::CancelRequest;
use pgwire::messages::response::TransactionStatus;
use pgwire::messages::startup::{ParameterStatus, SecretKey};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};

use crate::copy::CopyInProgress;
use crate::error::{fatal, fatal_of, to_wire};
use crate::joined::Joined;
use crate::names::Names;
use crate::settings::{self, AtStart, Reported};

/// The version of PostgreSQL whose protocol and catalog this door follows.
pub(crate) const POSTGRES_VERSION: &str = "16.6";

/// Prepared statements of one connection, and the bytes that they keep.
const STATEMENTS_MAX: usize = 10_000;
const STATEMENTS_BYTES_MAX: usize = 64 << 20;
/// Portals of one connection, and the bytes that they keep.
const PORTALS_MAX: usize = 1_000;
const PORTALS_BYTES_MAX: usize = 64 << 20;

/// Sessions that a cancel request may name, by process number.
#[derive(Default)]
pub(crate) struct Cancellations {
    sessions: Mutex<HashMap<i32, (SecretKey, Arc<Session>)>>,
    keys: RandomPidSecretKeyGenerator,
}

/// What a client that says nothing keeps open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    Session,
    InTransaction,
    /// The rows of a COPY FROM STDIN are awaited: its time-out counts from the last of them, so that a long COPY may go
    /// on for as long as it does go on.
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

    /// The SQLSTATE and the message with which the connection ends; `None`: only what it waits for ends.
    pub(crate) fn said(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Session => Some(("57P05", "terminating connection due to idle-session timeout")),
            Self::InTransaction => {
                Some(("25P03", "terminating connection due to idle-in-transaction timeout"))
            }
            Self::Copy => None,
        }
    }
}

/// One connection.
pub(crate) struct Connection {
    /// Itself, for the parts that pgwire wants to own.
    me: std::sync::Weak<Connection>,
    frontend: Arc<Frontend>,
    cancellations: Arc<Cancellations>,
    has_place: bool,
    session: OnceLock<Arc<Session>>,
    pid: OnceLock<i32>,
    reported: Mutex<Reported>,
    /// The COPY FROM STDIN whose rows are coming.
    pub(crate) copy: tokio::sync::Mutex<Option<CopyInProgress>>,
    /// The INSERTs of a pipeline that wait for more of them.
    pub(crate) joined: Mutex<Option<Joined>>,
    /// The names of prepared statements and of portals.
    pub(crate) statements: Names,
    pub(crate) portals: Names,
}

impl Connection {
    /// A connection that may start, or is one too many.
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

    /// The session; there is one from the end of the startup on.
    pub(crate) fn session(&self) -> PgWireResult<&Arc<Session>> {
        self.session.get().ok_or_else(|| fatal("08P01", "a statement came before the startup"))
    }

    /// The frontend.
    pub(crate) fn frontend(&self) -> &Arc<Frontend> {
        &self.frontend
    }

    /// A handle of the connection itself.
    pub(crate) fn handle(&self) -> Arc<Self> {
        self.me.upgrade().expect("a connection that is asked something is alive")
    }

    /// The time zone that the client sees times in.
    pub(crate) fn zone(&self) -> PgWireResult<Zone> {
        Ok(self.session()?.zone())
    }

    /// How long the client may say nothing, and what it is then, by what the connection waits for; `None`: for ever.
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

    /// Lets the time-out of a statement count from the first of the messages that bring it: those of the extended
    /// protocol up to its Execute.
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

    /// The statement is done: the next one has its own time.
    pub(crate) fn end_time(&self) {
        if let Some(session) = self.session.get() {
            session.end_in_parts();
        }
    }

    /// Stops what runs.
    pub(crate) fn cancel(&self) {
        if let Some(session) = self.session.get() {
            session.cancel();
        }
    }

    /// Stops what runs on the connection that a cancel request names.
    pub(crate) fn cancel_other(&self, request: &CancelRequest) {
        let sessions = self.cancellations.sessions.lock();
        if let Some((secret, session)) = sessions.get(&request.pid)
            && secret.eq_value(&request.secret_key)
        {
            session.cancel();
        }
    }

    /// Forgets the connection and stops what it runs.
    pub(crate) fn close(&self) {
        if let Some(pid) = self.pid.get() {
            self.cancellations.sessions.lock().remove(pid);
        }
        self.cancel();
    }

    /// Tells the settings that have changed.
    pub(crate) async fn report<C>(&self, client: &mut C) -> PgWireResult<()>
    where
        C: Sink<PgWireBackendMessage> + Unpin + Send,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let now = Reported::of(self.session()?).map_err(to_wire)?;
        let before = std::mem::replace(&mut *self.reported.lock(), now.clone());
        for (name, value) in now.changes(&before) {
            let status = ParameterStatus::new(name.to_owned(), value.to_owned());
            client.feed(PgWireBackendMessage::ParameterStatus(status)).await?;
        }
        Ok(())
    }

    /// The database that a startup message means: PostgreSQL's tools ask for one named like the user
    /// or "postgres" when nobody says anything.
    fn database(&self, asked: Option<&String>, user: &str) -> PgWireResult<String> {
        let catalog = self.frontend.catalog();
        let name = asked.map_or(DEFAULT_DATABASE, String::as_str);
        if catalog.databases.contains_key(name) {
            return Ok(name.to_owned());
        }
        if ["postgres", "partita", user].contains(&name) {
            return Ok(DEFAULT_DATABASE.to_owned());
        }
        Err(fatal("3D000", &format!("database \"{name}\" does not exist")))
    }
}

#[async_trait]
impl StartupHandler for Connection {
    async fn on_startup<C>(
        &self,
        client: &mut C,
        message: PgWireFrontendMessage,
    ) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let PgWireFrontendMessage::Startup(startup) = &message else {
            return Err(fatal("08P01", "expected a startup message"));
        };
        protocol_negotiation(client, startup).await?;
        save_startup_parameters_to_metadata(client, startup);
        if !self.has_place {
            return Err(fatal("53300", "sorry, too many clients already"));
        }
        let user = client.metadata().get(METADATA_USER).cloned().unwrap_or_default();
        if user.is_empty() {
            return Err(fatal("28000", "no PostgreSQL user name specified in startup packet"));
        }
        let database = self.database(client.metadata().get(METADATA_DATABASE), &user)?;
        let application = client.metadata().get("application_name").cloned().unwrap_or_default();
        let session = self.frontend.session(SessionOptions { database, user, application });
        settings::apply(&session, client.metadata()).await?;

        let (pid, secret) = self.cancellations.keys.generate(client);
        client.set_pid_and_secret_key(pid, secret.clone());
        self.cancellations.sessions.lock().insert(pid, (secret, Arc::clone(&session)));
        let reported = Reported::of(&session).map_err(fatal_of)?;
        *self.reported.lock() = reported.clone();
        // A connection starts once; a second startup message finds both set and changes nothing.
        if self.pid.set(pid).is_err() || self.session.set(session).is_err() {
            return Err(fatal("08P01", "a second startup message"));
        }
        let server_version = format!("{POSTGRES_VERSION} (Partita {})", env!("CARGO_PKG_VERSION"));
        finish_authentication(client, &AtStart { reported, server_version }).await
    }
}

#[async_trait]
impl CancelHandler for Connection {
    async fn on_cancel_request(&self, request: CancelRequest) {
        self.cancel_other(&request);
    }
}

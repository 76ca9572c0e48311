//! One connection: its session, whether it is busy, and how a cancel request finds it.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use futures::Sink;
use parking_lot::Mutex;
use partita_frontend::{Frontend, Session, SessionOptions, SqlError};
use partita_proto::catalog::DEFAULT_DATABASE;
use pgwire::api::auth::{
    DefaultServerParameterProvider, StartupHandler, finish_authentication, protocol_negotiation,
    save_startup_parameters_to_metadata,
};
use pgwire::api::cancel::CancelHandler;
use pgwire::api::copy::CopyHandler;
use pgwire::api::query::{ExtendedQueryHandler, SimpleQueryHandler};
use pgwire::api::{
    ClientInfo, ErrorHandler, METADATA_DATABASE, METADATA_USER, NoopHandler, PgWireServerHandlers,
    PidSecretKeyGenerator, RandomPidSecretKeyGenerator,
};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::cancel::CancelRequest;
use pgwire::messages::startup::SecretKey;
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use tokio::sync::Notify;

use crate::copy::CopyInProgress;
use crate::error::{fatal, to_wire};
use crate::pg_catalog;

/// The version of PostgreSQL whose protocol and catalog this door follows.
pub(crate) const POSTGRES_VERSION: &str = "16.6";

/// Sessions that a cancel request may name, by process number.
#[derive(Default)]
pub(crate) struct Cancellations {
    sessions: Mutex<HashMap<i32, (SecretKey, Arc<Session>)>>,
    keys: RandomPidSecretKeyGenerator,
}

impl Cancellations {
    fn cancel(&self, request: &CancelRequest) {
        let sessions = self.sessions.lock();
        if let Some((secret, session)) = sessions.get(&request.pid)
            && secret.eq_value(&request.secret_key)
        {
            session.cancel();
        }
    }
}

/// What pgwire calls for one connection.
pub(crate) struct Handlers {
    connection: Arc<Connection>,
}

impl Handlers {
    /// The handlers of a connection that may start, or is one too many.
    pub(crate) fn new(
        frontend: Arc<Frontend>,
        cancellations: Arc<Cancellations>,
        has_place: bool,
    ) -> Self {
        Self {
            connection: Arc::new_cyclic(|me| Connection {
                me: std::sync::Weak::clone(me),
                frontend,
                cancellations,
                has_place,
                session: OnceLock::new(),
                pid: OnceLock::new(),
                copy: tokio::sync::Mutex::new(None),
                running: AtomicUsize::new(0),
                finished: Notify::new(),
            }),
        }
    }

    /// The connection.
    pub(crate) fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection)
    }
}

impl PgWireServerHandlers for Handlers {
    fn simple_query_handler(&self) -> Arc<impl SimpleQueryHandler> {
        self.connection()
    }

    fn extended_query_handler(&self) -> Arc<impl ExtendedQueryHandler> {
        self.connection()
    }

    fn startup_handler(&self) -> Arc<impl StartupHandler> {
        self.connection()
    }

    fn copy_handler(&self) -> Arc<impl CopyHandler> {
        self.connection()
    }

    fn error_handler(&self) -> Arc<impl ErrorHandler> {
        Arc::new(NoopHandler)
    }

    fn cancel_handler(&self) -> Arc<impl CancelHandler> {
        self.connection()
    }
}

/// One connection.
pub(crate) struct Connection {
    /// Itself, for the parts that pgwire wants to own.
    me: std::sync::Weak<Connection>,
    pub(crate) frontend: Arc<Frontend>,
    cancellations: Arc<Cancellations>,
    has_place: bool,
    session: OnceLock<Arc<Session>>,
    pid: OnceLock<i32>,
    pub(crate) copy: tokio::sync::Mutex<Option<CopyInProgress>>,
    running: AtomicUsize,
    finished: Notify,
}

/// Marks a connection as busy while it lives.
pub(crate) struct Running<'a>(&'a Connection);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        self.0.finished.notify_waiters();
    }
}

impl Connection {
    /// The session; there is one from the end of the startup on.
    pub(crate) fn session(&self) -> PgWireResult<&Arc<Session>> {
        self.session.get().ok_or_else(|| fatal("08P01", "a statement came before the startup"))
    }

    /// A handle of the connection itself.
    pub(crate) fn handle(&self) -> Arc<Self> {
        self.me.upgrade().expect("a connection that is asked something is alive")
    }

    /// Marks the connection as busy.
    pub(crate) fn running(&self) -> Running<'_> {
        self.running.fetch_add(1, Ordering::SeqCst);
        Running(self)
    }

    /// Waits until no statement runs.
    pub(crate) async fn idle(&self) {
        loop {
            let finished = self.finished.notified();
            if self.running.load(Ordering::SeqCst) == 0 {
                return;
            }
            finished.await;
        }
    }

    /// Forgets the connection and stops what it runs.
    pub(crate) fn close(&self) {
        if let Some(pid) = self.pid.get() {
            self.cancellations.sessions.lock().remove(pid);
        }
        if let Some(session) = self.session.get() {
            session.cancel();
        }
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
        let database = self.database(client.metadata().get(METADATA_DATABASE), &user)?;
        let application = client.metadata().get("application_name").cloned().unwrap_or_default();
        let session = self.frontend.session(SessionOptions { database, user, application });
        pg_catalog::install(&session).map_err(|error| to_wire(SqlError::from(error)))?;

        let (pid, secret) = self.cancellations.keys.generate(client);
        client.set_pid_and_secret_key(pid, secret.clone());
        self.cancellations.sessions.lock().insert(pid, (secret, Arc::clone(&session)));
        // A connection starts once; a second startup message finds both set and changes nothing.
        if self.pid.set(pid).is_err() || self.session.set(session).is_err() {
            return Err(fatal("08P01", "a second startup message"));
        }

        let mut parameters = DefaultServerParameterProvider::default();
        parameters.server_version =
            format!("{POSTGRES_VERSION} (Partita {})", env!("CARGO_PKG_VERSION"));
        parameters.time_zone = "UTC".to_owned();
        parameters.date_style = "ISO, MDY".to_owned();
        finish_authentication(client, &parameters).await
    }
}

#[async_trait]
impl CancelHandler for Connection {
    async fn on_cancel_request(&self, request: CancelRequest) {
        self.cancellations.cancel(&request);
    }
}

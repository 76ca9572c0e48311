//! Sessions: the settings, prepared statements, cursors and running statement of one client.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{LogicalPlan, ScalarUDF};
use datafusion::prelude::SessionContext;
use futures::StreamExt;
use parking_lot::Mutex;
use partita_lanes::{Lane, Reason};
use partita_load::Cause;
use partita_proto::access::{Door, Identity, Permit};
use partita_proto::catalog::{Catalog, DEFAULT_DATABASE, Table};
use partita_proto::id::{BOOTSTRAP_ROLE, RoleId};
use partita_sql::parser;
use partita_sql::statement::{Statement, TableName};
use partita_worker::Zone;

use crate::access::life::Life;
use crate::access::needs::table_of;
use crate::access::viewer::Viewer;
use crate::activity::{SharedState, beginning, text_of};
use crate::blame::cause_of;
use crate::catalog::{INFORMATION, SYSTEM};
use crate::error::{ADMIN_SHUTDOWN, SqlError};
use crate::execute::cursor::Cursor;
use crate::execute::executed::Executed;
use crate::execute::observe;
use crate::frontend::Frontend;
use crate::functions;
use crate::held::ParameterTypes;
use crate::output::Output;
use crate::sequences::LastNumbers;
use crate::settings::{Settings, in_unit};
use crate::signals;
use crate::tasks::fence::Fence;

/// Maximum rows of a prepared INSERT that runs without a lane, on the thread that received it.
const LIGHT_ROWS_MAX: usize = 1_000;
/// Setting with the name that a client gives itself.
const APPLICATION_NAME: &str = "application_name";
/// Maximum statements that one session may prepare by SQL.
const PREPARED_MAX: usize = 1_000;

/// Identity of a session's client, and its database.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Database of unqualified table names.
    pub database: String,
    /// User name given by the client. It is shown only while the bootstrap superuser has no password, and everybody is
    /// that superuser; later the role's name is.
    pub user: String,
    /// Application name given by the client.
    pub application: String,
    /// Identity of the client, after authentication.
    pub identity: Identity,
}

impl Default for SessionOptions {
    /// The bootstrap superuser without a password, for tests.
    fn default() -> Self {
        Self {
            database: DEFAULT_DATABASE.to_owned(),
            user: "partita".to_owned(),
            application: String::new(),
            identity: Identity {
                login: BOOTSTRAP_ROLE,
                acting: None,
                token: None,
                secret_version: 0,
                org: None,
                door: Door::Internal,
            },
        }
    }
}

/// State that a plan depends on, beside the catalog.
#[derive(PartialEq)]
pub(crate) struct PlanContext {
    pub(crate) database: String,
    pub(crate) zone: Option<String>,
    /// Names and row predicates are those of the identity.
    pub(crate) identity: Identity,
    /// Number of changes of the temporary tables.
    pub(crate) temporary: u64,
}

/// A cached plan, with the state that it depends on.
pub(crate) struct Planned {
    /// Catalog that it was made for.
    pub(crate) catalog: Weak<Catalog>,
    pub(crate) context: PlanContext,
    pub(crate) plan: Arc<LogicalPlan>,
}

/// A prepared statement.
pub struct Prepared {
    /// The parsed statement, run again for each set of values.
    pub statement: Statement,
    /// Types of `$1`, `$2` and so on.
    pub parameter_types: Vec<DataType>,
    /// Columns of the result; `None` if it has no rows.
    pub schema: Option<SchemaRef>,
    /// Cached plan of a query.
    pub(crate) plan: Mutex<Option<Planned>>,
}

/// One client's session. It runs one statement at a time; [`Session::cancel`] may be called at any time.
pub struct Session {
    frontend: Arc<Frontend>,
    context: SessionContext,
    viewer: Arc<Viewer>,
    life: Arc<Life>,
    /// Name of the role that the session began as.
    user: String,
    /// Current role whose name the functions return.
    named_role: Mutex<Option<RoleId>>,
    database: Arc<Mutex<String>>,
    pub(crate) settings: Arc<Mutex<Settings>>,
    zone: Mutex<Zone>,
    /// Start of the first call of a statement that is run in several calls.
    parts_began: Mutex<Option<Instant>>,
    in_transaction: Arc<AtomicBool>,
    written_in_transaction: AtomicU32,
    prepared: Mutex<HashMap<String, Arc<Prepared>>>,
    /// End of the writes of a task's run.
    fence: OnceLock<Arc<Fence>>,
    pub(crate) cursors: Mutex<BTreeMap<String, Cursor>>,
    /// Numbers that `currval` and `lastval` return.
    pub(crate) last_numbers: Mutex<LastNumbers>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.frontend.metrics().sessions_closed.add(1);
    }
}

impl Frontend {
    /// A session of a client.
    pub fn session(self: &Arc<Self>, options: SessionOptions) -> Arc<Session> {
        Session::new(Arc::clone(self), options)
    }
}

impl Session {
    fn new(frontend: Arc<Frontend>, options: SessionOptions) -> Arc<Self> {
        let SessionOptions { database, user, application, identity } = options;
        let viewer = frontend.viewer(identity);
        let access = viewer.access();
        let role = access.role(identity.login);
        let is_open = identity.login == BOOTSTRAP_ROLE
            && identity.token.is_none()
            && role.is_some_and(|role| role.verifier.is_none());
        let user = role.filter(|_| !is_open).map_or(user, |role| role.name.clone());
        // Names resolve in what the identity sees, and system tables find it in the configuration.
        let state = frontend.context().state();
        let config = state.config().clone().with_extension(Arc::clone(&viewer));
        let planner = Self::view_planner();
        let names = frontend.databases().of_viewer(&viewer, Arc::clone(&planner) as _);
        let state = SessionStateBuilder::new_from_existing(state)
            .with_config(config)
            .with_catalog_list(names)
            .build();
        let context = SessionContext::new_with_state(state);
        planner.begin(context.state_weak_ref());
        let timeout = frontend.options().statement_timeout;
        frontend.metrics().sessions_opened.add(1);
        // Others see what the session does.
        let settings = Settings::new(timeout, &user, &application, &database);
        let state = SharedState {
            user: user.clone(),
            database: Arc::default(),
            settings: Arc::new(Mutex::new(settings)),
            in_transaction: Arc::default(),
        };
        let session = Arc::new(Self {
            context,
            settings: Arc::clone(&state.settings),
            zone: Mutex::new(Zone::UTC),
            user,
            named_role: Mutex::new(identity.acting),
            database: Arc::clone(&state.database),
            parts_began: Mutex::new(None),
            in_transaction: Arc::clone(&state.in_transaction),
            life: frontend.lives().begin(Arc::clone(&viewer), state),
            viewer,
            written_in_transaction: AtomicU32::new(0),
            prepared: Mutex::new(HashMap::new()),
            fence: OnceLock::new(),
            cursors: Mutex::new(BTreeMap::new()),
            last_numbers: Mutex::default(),
            frontend,
        });
        session.enter(&database);
        let of_session = functions::of_settings(&session).into_iter();
        let of_session = of_session.chain(functions::of_sequences(&session));
        for function in of_session.chain(signals::functions(&session.life)) {
            session.register(function);
        }
        // The client's own name of the application precedes that of its role.
        let is_named = !application.is_empty();
        let of_role = role.into_iter().flat_map(|role| &role.settings);
        for (name, value) in of_role.filter(|(name, _)| !is_named || *name != "application_name") {
            // A default that this version does not know must not keep the role from logging in.
            if let Err(error) = session.set_default(name, value) {
                tracing::warn!(user = %session.user, %name, %error, "ignored a setting of the role");
            }
        }
        session
    }

    /// The frontend that the session belongs to.
    pub fn frontend(&self) -> &Arc<Frontend> {
        &self.frontend
    }

    /// Name of the role that the session began as.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Name of the current role: that of SET ROLE, or else the role that the session began as.
    pub fn current_user(&self) -> String {
        let acting = self.identity().acting;
        let access = self.viewer.access();
        let role = acting.and_then(|role| access.role(role));
        role.map_or_else(|| self.user.clone(), |role| role.name.clone())
    }

    /// The cluster as the session sees it.
    pub fn viewer(&self) -> &Arc<Viewer> {
        &self.viewer
    }

    /// Identity of the client, with the current role.
    pub fn identity(&self) -> Identity {
        self.viewer.identity()
    }

    /// The newest catalog without what the identity may not see.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.viewer.catalog()
    }

    /// Error of every statement after the identity has ended; `None` before.
    pub fn ended(&self) -> Option<SqlError> {
        self.life.end_error()
    }

    /// Number of the session on this frontend.
    pub fn pid(&self) -> i32 {
        self.life.pid()
    }

    /// Error of a session that another one has terminated; `None` for others.
    pub fn terminated(&self) -> Option<SqlError> {
        self.life.end_error().filter(|error| error.sqlstate == ADMIN_SHUTDOWN)
    }

    /// Waits until another session has terminated this one, and returns the error for the client.
    pub async fn until_terminated(&self) -> SqlError {
        self.life.token().cancelled().await;
        match self.terminated() {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }

    /// Waits until the identity has ended, and returns the error for the client.
    pub async fn until_ended(&self) -> SqlError {
        self.life.token().cancelled().await;
        self.life.cancellation()
    }

    pub(crate) fn life(&self) -> &Arc<Life> {
        &self.life
    }

    /// Checks that the identity may run a statement now, and that the transaction is not READ ONLY if it writes.
    fn permitted(&self, statement: &Statement) -> Result<Permit, SqlError> {
        let permit = self.permit(statement)?;
        self.check_writable(statement)?;
        Ok(permit)
    }

    /// Parses text into statements. Long or complex text is parsed in a lane, within the session's limits.
    ///
    /// # Errors
    /// Fails if the text is not SQL of this dialect.
    pub async fn parse(self: &Arc<Self>, sql: &str) -> Result<Vec<Statement>, SqlError> {
        if let Some(parsed) = parser::parse_quickly(sql) {
            return parsed;
        }
        let text = sql.to_owned();
        self.within_limits(sql, async move { parser::parse(&text) }).await
    }

    /// Runs one statement.
    ///
    /// # Errors
    /// Errors of the statement; the detail of a failed write says which rows took effect.
    pub async fn run(self: &Arc<Self>, statement: &Statement) -> Result<Output, SqlError> {
        let limits = self.begin(text_of(statement));
        let permit = match self.permitted(statement) {
            Ok(permit) => permit,
            Err(error) => return self.observed(statement, Err(error), limits),
        };
        // Short statements run on the caller's thread.
        if let Statement::Insert(insert) = statement
            && insert.is_light()
            && let Some(result) =
                limits.apply(self.insert_literals(insert, None, &permit)).await.transpose()
        {
            return self.observed(statement, result, limits);
        }
        if !statement.needs_lane() {
            let result = limits.apply(Box::pin(self.dispatch(statement, &permit))).await;
            return self.observed(statement, result, limits);
        }
        let (session, of_lane) = (Arc::clone(self), statement.clone());
        let work = async move { Box::pin(session.dispatch(&of_lane, &permit)).await };
        let result = self.in_lane(&limits, work).await;
        self.observed(statement, result, limits)
    }

    /// Makes the following calls (parse, prepare, run) parts of one statement, whose timeout counts from the first of
    /// them; ends with [`Self::end_in_parts`].
    pub fn begin_in_parts(&self) {
        self.parts_began.lock().get_or_insert_with(Instant::now);
    }

    /// Makes each call a statement of its own again.
    pub fn end_in_parts(&self) {
        *self.parts_began.lock() = None;
    }

    /// Value of a duration setting; `None` if it does not exist or is 0.
    pub fn timeout_setting(&self, name: &str) -> Option<Duration> {
        self.settings.lock().timeout(name)
    }

    /// Maximum run time of a statement; `None`: no limit.
    pub fn statement_timeout(&self) -> Option<Duration> {
        self.settings.lock().statement_timeout()
    }

    /// Starts a statement: its limits count from now, or from the first of its parts.
    fn begin(&self, text: &str) -> observe::Limits {
        let started = Instant::now();
        let (token, running) = self.life.start(text);
        let counted = self.parts_began.lock().unwrap_or(started);
        let deadline = self.settings.lock().statement_timeout().map(|timeout| counted + timeout);
        let (life, running) = (Arc::clone(&self.life), Arc::new(running));
        observe::Limits { token, life, running, started, deadline }
    }

    /// Runs work of a statement in a lane until it is done or a limit is hit. A limit interrupts the lane and returns
    /// at once.
    async fn in_lane<T: Send + 'static>(
        &self,
        limits: &observe::Limits,
        work: impl Future<Output = Result<T, SqlError>> + Send + 'static,
    ) -> Result<T, SqlError> {
        let lane = limits.apply(async { Ok(self.frontend.lanes().enter().await?) }).await?;
        let unfinished = Unfinished(Some(lane.clone()));
        let result = limits.apply(async { lane.run(work).await? }).await;
        if let Err(error) = &result
            && let Some(reason) = limits.reason(error)
        {
            lane.interrupt(reason);
        }
        unfinished.finish();
        // The limit is the cause, whatever error the interrupted computation returned.
        result.map_err(|error| limits.explain(&lane, error))
    }

    /// Runs work that is not a statement itself under the limits of one.
    async fn within_limits<T: Send + 'static>(
        &self,
        text: &str,
        work: impl Future<Output = Result<T, SqlError>> + Send + 'static,
    ) -> Result<T, SqlError> {
        let limits = self.begin(text);
        self.in_lane(&limits, work).await
    }

    /// Observes a started statement and its rows to their end.
    fn observed(
        &self,
        statement: &Statement,
        result: Result<Executed, SqlError>,
        limits: observe::Limits,
    ) -> Result<Output, SqlError> {
        if result.is_ok() && self.in_transaction() && self.writes(statement) {
            self.written_in_transaction.fetch_add(1, Ordering::Relaxed);
        }
        let frontend = Arc::clone(&self.frontend);
        let application = self.settings.lock().get(APPLICATION_NAME).unwrap_or_default();
        let client = observe::Client {
            database: self.database(),
            user: self.user.clone(),
            application,
            origin: self.viewer.origin(),
        };
        let observer = observe::Observer::new(frontend, client, statement, limits.started);
        observer.observe(result, limits)
    }

    /// The cause of the rows that a statement of the session writes.
    pub(crate) fn cause(&self, kind: &str, text: &str) -> Cause {
        let application = self.settings.lock().get(APPLICATION_NAME).unwrap_or_default();
        cause_of((kind, text), &self.user, &application, self.viewer.origin().peer)
    }

    /// Refuses a write in a READ ONLY transaction.
    fn check_writable(&self, statement: &Statement) -> Result<(), SqlError> {
        if !self.settings.lock().is_read_only() || !self.writes(statement) {
            return Ok(());
        }
        let message = format!("cannot execute {} in a read-only transaction", statement.tag());
        Err(SqlError::new("25006", message))
    }

    /// Returns true if a statement writes; for EXECUTE, if the prepared statement does.
    fn writes(&self, statement: &Statement) -> bool {
        match statement {
            Statement::Execute(execute) => {
                self.prepared(&execute.name).is_ok_and(|prepared| prepared.statement.writes())
            }
            statement => statement.writes(),
        }
    }

    /// Parses text and runs its statements one after another, up to the first failure. Rows of all statements but the
    /// last are collected, so that each has ended before the next starts.
    ///
    /// # Errors
    /// Error of the parser or of the first failing statement.
    pub async fn execute(self: &Arc<Self>, sql: &str) -> Result<Vec<Output>, SqlError> {
        let statements = self.parse(sql).await?;
        let mut outputs = Vec::with_capacity(statements.len());
        for (number, statement) in statements.iter().enumerate() {
            let output = self.run(statement).await?;
            let last = number + 1 == statements.len();
            outputs.push(if last { output } else { collected(output).await? });
        }
        Ok(outputs)
    }

    /// Prepares a statement. `parameter_types` are the types declared by the client; the others are inferred.
    ///
    /// # Errors
    /// Fails if the statement cannot be planned, or a parameter's type cannot be inferred.
    pub async fn prepare(
        self: &Arc<Self>,
        statement: Statement,
        parameter_types: &[Option<DataType>],
    ) -> Result<Arc<Prepared>, SqlError> {
        // An identity that has ended learns nothing about columns and types.
        if let Some(error) = self.ended().or_else(|| self.viewer.check(&[]).err()) {
            self.frontend.metrics().failed(&error.sqlstate);
            return Err(error);
        }
        let prepared = if statement.needs_lane() {
            let (session, types) = (Arc::clone(self), parameter_types.to_vec());
            let text = beginning(text_of(&statement)).to_owned();
            let work = async move { Box::pin(session.prepare_statement(statement, &types)).await };
            self.within_limits(&text, work).await
        } else {
            Box::pin(self.prepare_statement(statement, parameter_types)).await
        };
        if let Err(error) = &prepared {
            self.frontend.metrics().failed(&error.sqlstate);
        }
        prepared.map(Arc::new)
    }

    /// Runs a prepared statement with values for its parameters.
    ///
    /// # Errors
    /// As [`Session::run`]; fails if the number of values is not the number of parameters.
    pub async fn run_prepared(
        self: &Arc<Self>,
        prepared: &Arc<Prepared>,
        parameters: Vec<ScalarValue>,
    ) -> Result<Output, SqlError> {
        let statement = &prepared.statement;
        let limits = self.begin(text_of(statement));
        let permit = match self.permitted(statement) {
            Ok(permit) => permit,
            Err(error) => return self.observed(statement, Err(error), limits),
        };
        if let Statement::Insert(insert) = statement
            && insert.is_light()
        {
            let work = self.insert_prepared(insert, prepared, &parameters, &permit);
            if let Some(result) = limits.apply(work).await.transpose() {
                return self.observed(statement, result, limits);
            }
        }
        if !statement.needs_lane() {
            let work = Box::pin(self.dispatch_prepared(prepared, parameters, &permit));
            let result = limits.apply(work).await;
            return self.observed(statement, result, limits);
        }
        let (session, of_lane) = (Arc::clone(self), Arc::clone(prepared));
        let work =
            async move { Box::pin(session.dispatch_prepared(&of_lane, parameters, &permit)).await };
        let result = self.in_lane(&limits, work).await;
        self.observed(statement, result, limits)
    }

    /// Runs a prepared statement once for each row of values. Rows of an INSERT are joined into one write, which has
    /// one output.
    ///
    /// # Errors
    /// As [`Session::run_prepared`]; executions before the failing row have taken effect, but an INSERT has not
    /// unless the error says so.
    pub async fn run_prepared_many(
        self: &Arc<Self>,
        prepared: &Arc<Prepared>,
        rows: Vec<Vec<ScalarValue>>,
    ) -> Result<Vec<Output>, SqlError> {
        if let Statement::Insert(insert) = &prepared.statement
            && insert.only_stores()
        {
            let limits = self.begin(text_of(&prepared.statement));
            let permit = match self.permitted(&prepared.statement) {
                Ok(permit) => permit,
                Err(error) => {
                    return Ok(vec![self.observed(&prepared.statement, Err(error), limits)?]);
                }
            };
            if insert.is_light() && rows.len() <= LIGHT_ROWS_MAX && !self.is_change(insert) {
                let work = self.insert_literals_many(insert, prepared, &rows, &permit);
                if let Some(result) = limits.apply(work).await.transpose() {
                    return Ok(vec![self.observed(&prepared.statement, result, limits)?]);
                }
            }
            let (session, of_lane) = (Arc::clone(self), Arc::clone(prepared));
            let work = async move { Box::pin(session.insert_many(&of_lane, rows, &permit)).await };
            let result = self.in_lane(&limits, work).await;
            return Ok(vec![self.observed(&prepared.statement, result, limits)?]);
        }
        let mut outputs = Vec::with_capacity(rows.len());
        for parameters in rows {
            let output = self.run_prepared(prepared, parameters).await?;
            outputs.push(collected(output).await?);
        }
        Ok(outputs)
    }

    /// Binds the session's writes to the lease of a task's run; once.
    pub(crate) fn bind(&self, fence: Arc<Fence>) {
        // A session runs one window only, so it is never bound to another lease.
        drop(self.fence.set(fence));
    }

    /// Refuses a write of a task whose lease may be lost.
    ///
    /// # Errors
    /// As [`Fence::check`].
    pub(crate) fn check_fence(&self) -> Result<(), SqlError> {
        self.fence.get().map_or(Ok(()), |fence| fence.check())
    }

    /// Ends the running statement and the stream of its rows with SQLSTATE 57014.
    pub fn cancel(&self) {
        self.life.cancel();
    }

    /// DataFusion's context of the session: names resolve in what the identity sees, but nothing is checked.
    pub fn context(&self) -> SessionContext {
        self.context.clone()
    }

    /// State for planning one statement.
    pub(crate) fn statement_state(&self) -> SessionState {
        self.follow_role();
        let mut state = self.context.state();
        state.mark_start_execution();
        state
    }

    /// Database of unqualified table names.
    pub fn database(&self) -> String {
        self.database.lock().clone()
    }

    /// Changes the database of unqualified table names.
    ///
    /// # Errors
    /// Fails if the database does not exist.
    pub fn set_database(&self, name: &str) -> Result<(), SqlError> {
        let exists =
            self.catalog().databases.contains_key(name) || [SYSTEM, INFORMATION].contains(&name);
        if !exists {
            return Err(SqlError::undefined_database(name));
        }
        self.enter(name);
        Ok(())
    }

    /// Changes the database, also for plans and functions; it may not exist, or be hidden.
    pub(crate) fn enter(&self, name: &str) {
        name.clone_into(&mut self.database.lock());
        let state = self.context.state_ref();
        name.clone_into(&mut state.write().config_mut().options_mut().catalog.default_schema);
        self.register_names(name);
    }

    /// Registers the functions that return the names of the database and the roles.
    fn register_names(&self, database: &str) {
        for function in functions::of_session(database, &self.user, &self.current_user()) {
            self.register(function);
        }
    }

    /// Registers the functions again if the current role is another one.
    fn follow_role(&self) {
        let acting = self.identity().acting;
        if std::mem::replace(&mut *self.named_role.lock(), acting) != acting {
            self.register_names(&self.database());
        }
    }

    /// Registers a function for the session; it replaces a function of the same name.
    fn register(&self, function: ScalarUDF) {
        let state = self.context.state_ref();
        let _replaced = datafusion::execution::FunctionRegistry::register_udf(
            &mut *state.write(),
            Arc::new(function),
        );
    }

    /// Time zone of the session.
    pub fn zone(&self) -> Zone {
        *self.zone.lock()
    }

    pub(crate) fn set_zone(&self, zone: Zone) {
        *self.zone.lock() = zone;
    }

    /// Value of a setting as SHOW returns it.
    ///
    /// # Errors
    /// Fails if the setting does not exist.
    pub fn setting(&self, name: &str) -> Result<String, SqlError> {
        self.show_setting(name)
    }

    /// A part of a setting's row of `pg_settings`: `setting` and `reset_val`, in the setting's unit, or `source`.
    pub(crate) fn setting_part(&self, name: &str, part: &str) -> Result<String, SqlError> {
        // Some values are of the session itself.
        let value = self.show_setting(name)?;
        let settings = self.settings.lock();
        Ok(match part {
            "reset_val" => in_unit(name, settings.reset_value(name).unwrap_or(value)),
            "source" => settings.source(name).to_owned(),
            _ => in_unit(name, value),
        })
    }

    /// Returns true between BEGIN and COMMIT or ROLLBACK.
    pub fn in_transaction(&self) -> bool {
        self.in_transaction.load(Ordering::Relaxed)
    }

    pub(crate) fn set_in_transaction(&self, is: bool) {
        if is && !self.in_transaction() {
            self.life.activity().begin_transaction();
        }
        self.in_transaction.store(is, Ordering::Relaxed);
        self.written_in_transaction.store(0, Ordering::Relaxed);
    }

    /// Number of statements that wrote since BEGIN.
    pub(crate) fn written_in_transaction(&self) -> u32 {
        self.written_in_transaction.load(Ordering::Relaxed)
    }

    /// Looks up a table by the name in a statement.
    pub(crate) fn table(&self, name: &TableName) -> Result<Arc<Table>, SqlError> {
        table_of(&self.viewer, &self.database(), name)
    }

    pub(crate) fn keep_prepared(
        &self,
        name: &str,
        text: &str,
        prepared: Arc<Prepared>,
    ) -> Result<(), SqlError> {
        let held = self.viewer.held();
        let mut statements = self.prepared.lock();
        if held.has_statement(name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(SqlError::new("42P05", message));
        }
        if statements.len() >= PREPARED_MAX {
            return Err(SqlError::new(
                "54000",
                format!("a session can have at most {PREPARED_MAX} prepared statements"),
            )
            .with_hint("DEALLOCATE statements that are no longer needed"));
        }
        let types = ParameterTypes::Arrow(prepared.parameter_types.clone());
        held.add_statement(name, text, types, true);
        statements.insert(name.to_owned(), prepared);
        Ok(())
    }

    pub(crate) fn prepared(&self, name: &str) -> Result<Arc<Prepared>, SqlError> {
        self.prepared.lock().get(name).map(Arc::clone).ok_or_else(|| {
            SqlError::new("26000", format!("prepared statement \"{name}\" does not exist"))
        })
    }

    pub(crate) fn forget_prepared(&self, name: Option<&str>) -> Result<(), SqlError> {
        let held = self.viewer.held();
        let Some(name) = name else {
            self.prepared.lock().clear();
            held.deallocate_all();
            return Ok(());
        };
        if held.deallocate(name) {
            return Ok(());
        }
        self.prepared(name)?;
        self.prepared.lock().remove(name);
        held.remove_statement(name);
        Ok(())
    }
}

/// Interrupts a statement's lane when its caller stops waiting.
struct Unfinished(Option<Lane>);

impl Unfinished {
    /// The statement has ended, or continues as a stream.
    fn finish(mut self) {
        self.0 = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(lane) = self.0.take() {
            lane.interrupt(Reason::Canceled);
        }
    }
}

/// Reads an output's rows into memory.
async fn collected(output: Output) -> Result<Output, SqlError> {
    match output {
        Output::Rows { schema, mut stream } => {
            let mut batches = Vec::new();
            while let Some(batch) = stream.next().await {
                batches.push(batch?);
            }
            let stream = Box::pin(futures::stream::iter(batches.into_iter().map(Ok)));
            Ok(Output::Rows { schema, stream })
        }
        output => Ok(output),
    }
}

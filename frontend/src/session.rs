//! A session: one client's settings, prepared statements and running statement.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::prelude::SessionContext;
use partita_proto::catalog::DEFAULT_DATABASE;

use crate::error::SqlError;
use crate::frontend::Frontend;
use crate::output::Output;
use crate::sql::Statement;

/// Who opens a session, and where.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The database that bare table names are in.
    pub database: String,
    /// The user's name, for `current_user`.
    pub user: String,
    /// What the client calls itself.
    pub application: String,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            database: DEFAULT_DATABASE.to_owned(),
            user: "partita".to_owned(),
            application: String::new(),
        }
    }
}

/// A statement that is ready to run with parameters.
pub struct Prepared {
    /// The statement.
    pub statement: Statement,
    /// The types of `$1`, `$2` and so on.
    pub parameter_types: Vec<DataType>,
    /// The columns of its rows; `None` when it gives none.
    pub schema: Option<SchemaRef>,
}

/// One client's session. Statements of one session run one after another; [`Session::cancel`] may be
/// called at any time.
pub struct Session {
    frontend: Arc<Frontend>,
    context: SessionContext,
    database: parking_lot::Mutex<String>,
}

impl Session {
    pub(crate) fn new(frontend: Arc<Frontend>, options: SessionOptions) -> Arc<Self> {
        Arc::new(Self {
            frontend,
            context: SessionContext::new(),
            database: parking_lot::Mutex::new(options.database),
        })
    }

    /// The frontend.
    pub fn frontend(&self) -> &Arc<Frontend> {
        &self.frontend
    }

    /// Splits text into statements.
    ///
    /// # Errors
    /// When the text is not SQL of this dialect; nothing of it was run.
    pub fn parse(&self, sql: &str) -> Result<Vec<Statement>, SqlError> {
        let _unused = sql;
        Err(SqlError::unsupported("parsing"))
    }

    /// Runs one statement.
    ///
    /// # Errors
    /// When it fails; what a failed write did is in the error.
    pub async fn run(&self, statement: &Statement) -> Result<Output, SqlError> {
        Err(SqlError::unsupported(statement.tag()))
    }

    /// Parses text and runs its statements one after another; the first that fails ends it. Only the
    /// last statement's rows may be left to stream; those of earlier ones are collected.
    ///
    /// # Errors
    /// The parser's or the first failing statement's.
    pub async fn execute(&self, sql: &str) -> Result<Vec<Output>, SqlError> {
        let mut outputs = Vec::new();
        for statement in self.parse(sql)? {
            outputs.push(self.run(&statement).await?);
        }
        Ok(outputs)
    }

    /// Prepares a statement. `parameter_types` are those the client knows; the others are inferred.
    ///
    /// # Errors
    /// When it does not plan, or a parameter's type cannot be told.
    pub async fn prepare(
        &self,
        statement: Statement,
        parameter_types: &[Option<DataType>],
    ) -> Result<Arc<Prepared>, SqlError> {
        let _unused = parameter_types;
        Err(SqlError::unsupported(statement.tag()))
    }

    /// Runs a prepared statement with values for its parameters.
    ///
    /// # Errors
    /// As [`Session::run`]; and when there are more or fewer values than parameters.
    pub async fn run_prepared(
        &self,
        prepared: &Prepared,
        parameters: Vec<ScalarValue>,
    ) -> Result<Output, SqlError> {
        let _unused = parameters;
        Err(SqlError::unsupported(prepared.statement.tag()))
    }

    /// Runs a prepared statement once for each row of values; rows of an INSERT are joined into one
    /// write.
    ///
    /// # Errors
    /// As [`Session::run_prepared`]; what ran before the failing row has taken effect.
    pub async fn run_prepared_many(
        &self,
        prepared: &Prepared,
        rows: Vec<Vec<ScalarValue>>,
    ) -> Result<Vec<Output>, SqlError> {
        let mut outputs = Vec::with_capacity(rows.len());
        for parameters in rows {
            outputs.push(self.run_prepared(prepared, parameters).await?);
        }
        Ok(outputs)
    }

    /// Ends the running statement with SQLSTATE 57014.
    pub fn cancel(&self) {}

    /// DataFusion's context of the session, for what a door adds to it (`pg_catalog`).
    pub fn context(&self) -> SessionContext {
        self.context.clone()
    }

    /// The database that bare table names are in.
    pub fn database(&self) -> String {
        self.database.lock().clone()
    }

    /// Changes it.
    ///
    /// # Errors
    /// When there is no such database.
    pub fn set_database(&self, name: &str) -> Result<(), SqlError> {
        if !self.frontend.catalog().databases.contains_key(name) {
            return Err(SqlError::undefined_database(name));
        }
        name.clone_into(&mut self.database.lock());
        Ok(())
    }

    /// The value of a setting, as SHOW says it.
    ///
    /// # Errors
    /// When there is no such setting.
    pub fn setting(&self, name: &str) -> Result<String, SqlError> {
        Err(SqlError::new("42704", format!("unrecognized configuration parameter \"{name}\"")))
    }
}

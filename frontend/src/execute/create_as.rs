//! CREATE TABLE ... AS and SELECT ... INTO.
//!
//! ```text
//!   query ─▶ plan, first batch ─▶ columns ─▶ table in the catalog ─▶ its rows, as those of INSERT ... SELECT
//!                 │                                                       │ fails, or is cancelled
//!                 └─ fails: there is no table                             └─▶ the table is dropped again
//! ```
//!
//! The query is planned before the table exists, so it never reads it. Other sessions see the table while it is filled. If
//! the process ends then, the table stays, with a part of the rows.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::ScalarValue;
use partita_proto::Error;
use partita_proto::access::{Action, Need, Permit};
use partita_proto::catalog::Table;
use partita_proto::schema::JsonType;
use partita_proto::service::Ddl;
use partita_sql::Notice;
use partita_sql::shown_names::shown_name;
use partita_sql::statement::{ColumnDefinition, CreateTable, CreateTableAs, Insert, InsertSource};

use super::define::exists_already;
use super::executed::Executed;
use super::query::{Running, Source, Target};
use super::views::column_type;
use crate::error::{SYNTAX_ERROR, SqlError};
use crate::frontend::Frontend;
use crate::output::Output;
use crate::session::Session;

/// Tag of a statement that made no rows.
const TAG: &str = "CREATE TABLE AS";

impl Session {
    /// Creates a table with the rows of a query. `permit` is that to create it.
    pub(super) async fn create_table_as(
        &self,
        create: &CreateTableAs,
        parameters: Option<&[ScalarValue]>,
        permit: &Permit,
    ) -> Result<Executed, SqlError> {
        let name = &create.table.table;
        // As in PostgreSQL, no query is run for a table that exists.
        if self.is_present(&create.table) {
            let (kind, name) = ("table", name.name.clone());
            return match create.table.if_not_exists {
                true => Ok(exists(create).into()),
                false => Err(Error::AlreadyExists { kind, name }.into()),
            };
        }
        let statement = &create.query.statement;
        let source = match parameters {
            Some(parameters) => Source::WithParameters(statement, parameters),
            None => Source::Statement(statement),
        };
        if !create.with_data {
            let schema = Box::pin(self.columns_of_query(&source)).await?;
            let table = with_columns(create, &schema)?;
            let created = match table.is_temporary {
                true => self.create_temporary(&table, permit)?,
                false => Box::pin(self.make_table(&table, permit)).await?,
            };
            let output = created.map(|notices| Output::done_with(TAG, notices));
            return Ok(output.unwrap_or_else(|| exists(create)).into());
        }
        let target = Target { writes: true, ..Target::default() };
        let running = Box::pin(self.start(&source, target)).await?;
        let table = with_columns(create, &running.schema)?;
        if table.is_temporary {
            // It gets its name with its rows: without all of them there is no table.
            let (temporary, notices) = self.new_temporary(&table, permit)?;
            let rows = (running, parameters);
            let executed = Box::pin(self.fill(create, temporary.table(), rows, permit)).await?;
            self.viewer().temporary().add(temporary)?;
            return filled_with(executed, notices);
        }
        let Some(notices) = Box::pin(self.make_table(&table, permit)).await? else {
            return Ok(exists(create).into());
        };
        // The permit was for the database; from here on it is for the new table.
        let (database, catalog) = (self.database(), self.catalog());
        let table = catalog.table(name.database_or(&database), &name.name);
        let table = table.ok_or_else(|| SqlError::undefined_table(&name.name))?;
        let needs = [Need::new(Action::Insert, self.viewer().object(table)?)];
        let permit = self.viewer().check(&needs)?;
        let mut unfilled = Unfilled::new(self.frontend(), table, permit.clone(), "the table");
        let filled = Box::pin(self.fill(create, table, (running, parameters), &permit)).await;
        let executed = match filled {
            Ok(executed) => executed,
            Err(error) => return Err(unfilled.drop_table(error).await),
        };
        unfilled.keep();
        filled_with(executed, notices)
    }

    /// True if the table that a statement creates exists, as far as the session knows.
    fn is_present(&self, create: &CreateTable) -> bool {
        if create.is_temporary {
            return self.has_temporary(create);
        }
        let database = self.database();
        let database = create.table.database_or(&database);
        self.catalog().table(database, &create.table.name).is_some()
    }

    /// Writes the rows of a running query to a new table.
    async fn fill(
        &self,
        create: &CreateTableAs,
        table: &Arc<Table>,
        (running, parameters): (Running, Option<&[ScalarValue]>),
        permit: &Permit,
    ) -> Result<Executed, SqlError> {
        let insert = Insert {
            text: Arc::clone(&create.text),
            position: 0,
            table: create.table.table.clone(),
            columns: None,
            alias: None,
            keeps: false,
            overriding: None,
            source: InsertSource::Query(Box::new(create.query.clone())),
            conflict: None,
            returning: None,
        };
        let columns: Vec<_> = table.schema.shown().collect();
        let columns = (columns.as_slice(), false);
        self.insert_running(&insert, table, columns, (running, parameters), permit).await
    }
}

/// The output of a statement that has filled its table.
fn filled_with(executed: Executed, notices: Vec<Notice>) -> Result<Executed, SqlError> {
    let Executed { output: Output::Done { rows: Some(rows), .. }, plan, usage } = executed else {
        return Err(SqlError::internal("a table was filled without a count"));
    };
    let tag = format!("SELECT {rows}");
    Ok(Executed { output: Output::Done { tag, rows: Some(rows), notices }, plan, usage })
}

/// The output for a table that exists, with IF NOT EXISTS.
fn exists(create: &CreateTableAs) -> Output {
    exists_already(false, TAG, &format!("relation \"{}\"", create.table.table.name))
}

/// The definition of the table, with the columns of the query.
fn with_columns(create: &CreateTableAs, schema: &Schema) -> Result<CreateTable, SqlError> {
    if create.columns.len() > schema.fields().len() {
        return Err(SqlError::new(SYNTAX_ERROR, "too many column names were specified"));
    }
    let mut table = create.table.clone();
    for (position, field) in schema.fields().iter().enumerate() {
        let new_name = create.columns.get(position).map(String::as_str);
        let name = new_name.unwrap_or_else(|| shown_name(field));
        table.columns.push(ColumnDefinition {
            name: name.to_owned(),
            column_type: column_type("table", field, name)?,
            length: None,
            json: JsonType::of_field(field),
            nullable: None,
            default: None,
            generated: None,
            counter: None,
            indexes: Vec::new(),
            comment: None,
        });
    }
    Ok(table)
}

/// A new table that is dropped again unless it gets all of its rows.
pub(super) struct Unfilled {
    frontend: Arc<Frontend>,
    permit: Permit,
    /// What the detail of an error calls it.
    noun: &'static str,
    /// The change that drops it; `None` when it is to stay.
    removal: Option<Ddl>,
}

impl Unfilled {
    /// `permit` is one for the table: another table of its name is not dropped.
    pub(super) fn new(
        frontend: &Arc<Frontend>,
        table: &Table,
        permit: Permit,
        noun: &'static str,
    ) -> Self {
        let (database, name) = (table.database.clone(), table.name.clone());
        let removal = Ddl::DropTable { database, name, if_exists: true, cascade: false };
        Self { frontend: Arc::clone(frontend), permit, noun, removal: Some(removal) }
    }

    pub(super) fn keep(&mut self) {
        self.removal = None;
    }

    /// Drops the table, and returns the error for which it is dropped, with that in its detail.
    pub(super) async fn drop_table(mut self, error: SqlError) -> SqlError {
        let Some(removal) = self.removal.clone() else { return error };
        // If this wait is cancelled, the drop is ordered again.
        let outcome = match self.frontend.change(&self.permit, removal).await {
            Ok(_) => format!("{} was dropped again", self.noun),
            Err(failure) => format!("{} could not be dropped: {}", self.noun, failure.message),
        };
        self.keep();
        let detail = match &error.detail {
            Some(detail) => format!("{detail}; {outcome}"),
            None => outcome,
        };
        error.with_detail(detail)
    }
}

impl Drop for Unfilled {
    /// Drops the table of a statement that was cancelled, whose lane has ended.
    fn drop(&mut self) {
        let Some(removal) = self.removal.take() else { return };
        let (frontend, permit) = (Arc::clone(&self.frontend), self.permit.clone());
        let home = self.frontend.view().home().clone();
        home.spawn(async move {
            if let Err(error) = frontend.change(&permit, removal).await {
                tracing::warn!(%error, "the table of a cancelled statement could not be dropped");
            }
        });
    }
}

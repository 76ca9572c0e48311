//! CREATE, ALTER and DROP SEQUENCE; identity columns in INSERT and UPDATE; and the numbers that a session gets.
//!
//! Rights: CREATE on the database creates a sequence, its owner alters and drops it. As in PostgreSQL, `nextval` needs
//! USAGE or UPDATE, `currval` USAGE or SELECT, and `setval` UPDATE. Rights on the table of its column, or on the database
//! of any other sequence, count as rights on it, INSERT as USAGE.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use partita_proto::access::{Action, Need, Object, Permit};
use partita_proto::catalog::{Catalog, Database, Table};
use partita_proto::id::{ColumnId, TableId};
use partita_proto::schema::TableSchema;
use partita_proto::sequence::{
    Identity, NewSequence, Sequence, SequenceChange, SequenceColumn, SequenceType,
};
use partita_proto::service::{Ddl, NewTable};
use partita_sql::sequence_statement::{
    SequenceClauses, SequenceStatement, sequence_name, sequence_of,
};
use partita_sql::statement::{Insert, Overriding, TableName, Truncate, Update};
use partita_sql::{Notice, rename_sequence};

use crate::access::needs::table_of;
use crate::access::viewer::Viewer;
use crate::error::{FEATURE_NOT_SUPPORTED, GENERATED_ALWAYS, SqlError, UNDEFINED_TABLE};
use crate::output::Output;
use crate::privileges::sequence_object;
use crate::sequences::{has_counter, sequence_named};
use crate::session::Session;

/// SQLSTATE of an object that another one needs.
const DEPENDENT_OBJECTS: &str = "2BP01";
/// SQLSTATE of a statement that writes in a READ ONLY transaction.
const READ_ONLY: &str = "25006";

/// Needs of a statement by a client whose unqualified names are in `database`.
///
/// # Errors
/// When a database, a table or a sequence is unknown, or hidden.
pub(crate) fn needs(
    viewer: &Viewer,
    database: &str,
    statement: &SequenceStatement,
) -> Result<Vec<Need>, SqlError> {
    let existing = |names: &[&TableName], if_exists: bool| {
        let mut list = Vec::with_capacity(names.len());
        for name in names {
            match sequence_named(viewer, database, name) {
                Ok(sequence) => {
                    let object = sequence_object(&viewer.catalog(), &sequence)?;
                    list.push(Need::new(Action::Own, object));
                }
                Err(error) if if_exists && error.sqlstate == UNDEFINED_TABLE => {}
                Err(error) => return Err(error),
            }
        }
        Ok::<_, SqlError>(list)
    };
    let (mut list, clauses) = match statement {
        SequenceStatement::Create { name, clauses, .. } => {
            let home = database_of(viewer, name.database_or(database))?;
            (vec![Need::new(Action::Create, Object::Database(home))], Some(clauses))
        }
        SequenceStatement::Alter { name, if_exists, clauses } => {
            (existing(&[name], *if_exists)?, Some(clauses))
        }
        SequenceStatement::Drop { names, if_exists } => {
            (existing(&names.iter().collect::<Vec<_>>(), *if_exists)?, None)
        }
    };
    let owner = clauses.and_then(|clauses| clauses.owned_by.as_ref()?.as_ref());
    if let Some((table, _)) = owner {
        let table = table_of(viewer, database, table)?;
        list.push(Need::new(Action::Own, viewer.object(&table)?));
    }
    Ok(list)
}

/// Needs of TRUNCATE ... RESTART IDENTITY beside those on the tables: as in PostgreSQL, owners restart sequences.
///
/// # Errors
/// As [`needs`].
pub(super) fn restart_needs(
    viewer: &Viewer,
    database: &str,
    truncate: &Truncate,
) -> Result<Vec<Need>, SqlError> {
    let catalog = viewer.catalog();
    let mut list = Vec::new();
    for name in &truncate.tables {
        let table = table_of(viewer, database, name)?;
        for sequence in catalog.sequences_of(table.id) {
            list.push(Need::new(Action::Own, sequence_object(&catalog, sequence)?));
        }
    }
    Ok(list)
}

fn database_of(viewer: &Viewer, name: &str) -> Result<Arc<Database>, SqlError> {
    let catalog = viewer.catalog();
    let database = catalog.databases.get(name).map(Arc::clone);
    database.ok_or_else(|| SqlError::undefined_database(name))
}

/// Gives the sequences of a new table names that are free, with numbers at their ends as PostgreSQL does.
pub(super) fn free_names(catalog: &Catalog, table: &mut NewTable) {
    let home = catalog.databases.get(&table.database).map(|database| database.id);
    for position in 0..table.sequences.len() {
        let first = table.sequences[position].name.clone();
        let is_taken = |name: &String| {
            let is_sequence = home.is_some_and(|home| catalog.sequence(home, name).is_some());
            let earlier = &table.sequences[..position];
            is_sequence
                || *name == table.name
                || catalog.table(&table.database, name).is_some()
                || earlier.iter().any(|sequence| sequence.name == *name)
        };
        let numbered = (1..).map(|number| format!("{first}{number}"));
        let name = std::iter::once(first.clone()).chain(numbered).find(|name| !is_taken(name));
        if let Some(name) = name.filter(|name| *name != first) {
            rename_sequence(table, position, &name);
        }
    }
}

/// Checks that the sequences of defaults exist, but for those that come with the table.
pub(super) fn check_defaults(
    session: &Session,
    schema: &TableSchema,
    database: &str,
    column_ids: &[ColumnId],
) -> Result<(), SqlError> {
    let columns = schema.columns.iter().filter(|column| !column_ids.contains(&column.id));
    for name in columns.filter_map(|column| sequence_of(column.default.as_deref()?)) {
        sequence_named(session.viewer(), database, &name)?;
    }
    Ok(())
}

impl Session {
    /// Runs a statement about sequences. `permit` is that of the statement.
    pub(super) async fn change_sequences(
        &self,
        statement: &SequenceStatement,
        permit: &Permit,
    ) -> Result<Output, SqlError> {
        let tag = statement.tag();
        let mut notices = Vec::new();
        match statement {
            SequenceStatement::Create { name, if_not_exists, clauses } => {
                let home = database_of(self.viewer(), name.database_or(&self.database()))?;
                let sequence = NewSequence {
                    database: home.id,
                    name: name.name.clone(),
                    owner: permit.role(),
                    options: clauses.options(SequenceType::Big)?,
                    column: self.owned_by(clauses)?.flatten(),
                };
                let if_not_exists = *if_not_exists;
                let change = SequenceChange::Create { sequence, if_not_exists };
                if !self.change_sequence(permit, change).await? {
                    let message = format!("relation \"{}\" already exists, skipping", name.name);
                    notices.push(Notice::notice(message));
                }
            }
            SequenceStatement::Alter { name, if_exists, clauses } => {
                match sequence_named(self.viewer(), &self.database(), name) {
                    Ok(sequence) => {
                        let (options, restart) = clauses.altered(&sequence);
                        let column = self.owned_by(clauses)?;
                        if column.is_some() && is_identity(&sequence) {
                            let message = "cannot change ownership of identity sequence";
                            return Err(SqlError::new(FEATURE_NOT_SUPPORTED, message));
                        }
                        let sequence = sequence.id;
                        let change = SequenceChange::Alter { sequence, options, restart, column };
                        self.change_sequence(permit, change).await?;
                    }
                    Err(error) if *if_exists && error.sqlstate == UNDEFINED_TABLE => {
                        let message =
                            format!("relation \"{}\" does not exist, skipping", name.name);
                        notices.push(Notice::notice(message));
                    }
                    Err(error) => return Err(error),
                }
            }
            SequenceStatement::Drop { names, if_exists } => {
                for name in names {
                    match sequence_named(self.viewer(), &self.database(), name) {
                        Ok(sequence) => {
                            self.check_unused_sequence(&sequence)?;
                            let sequence = sequence.id;
                            let change = SequenceChange::Drop { sequence };
                            self.change_sequence(permit, change).await?;
                        }
                        Err(error) if *if_exists && error.sqlstate == UNDEFINED_TABLE => {
                            let message =
                                format!("sequence \"{}\" does not exist, skipping", name.name);
                            notices.push(Notice::notice(message));
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(Output::done_with(tag, notices))
    }

    async fn change_sequence(
        &self,
        permit: &Permit,
        change: SequenceChange,
    ) -> Result<bool, SqlError> {
        self.frontend().change(permit, Ddl::Sequence(Box::new(change))).await
    }

    /// Restarts the sequences of a table's columns, each with its first number.
    pub(super) async fn restart_sequences(
        &self,
        table: TableId,
        permit: &Permit,
    ) -> Result<(), SqlError> {
        let catalog = self.frontend().catalog();
        for sequence in catalog.sequences_of(table) {
            let (sequence, value) = (sequence.id, sequence.options.start);
            let change = SequenceChange::Set { sequence, value, is_called: false };
            self.change_sequence(permit, change).await?;
        }
        Ok(())
    }

    /// The column of OWNED BY; `Some(None)` for NONE, `None` without the clause.
    fn owned_by(
        &self,
        clauses: &SequenceClauses,
    ) -> Result<Option<Option<SequenceColumn>>, SqlError> {
        let Some(owned_by) = &clauses.owned_by else { return Ok(None) };
        let Some((table, column)) = owned_by else { return Ok(Some(None)) };
        let table = self.table(table)?;
        let owner = table.schema.column(column);
        let owner = owner.ok_or_else(|| SqlError::undefined_column(column, &table.name))?;
        Ok(Some(Some(SequenceColumn { table: table.id, column: owner.id, identity: None })))
    }

    /// Refuses to drop a sequence that a default takes its values from.
    fn check_unused_sequence(&self, sequence: &Sequence) -> Result<(), SqlError> {
        let catalog = self.frontend().catalog();
        let mut databases = catalog.databases.values();
        let home = databases.find(|database| database.id == sequence.database);
        let Some(home) = home.map(|home| home.name.as_str()) else { return Ok(()) };
        let name = &sequence.name;
        for table in catalog.tables.values().flat_map(|tables| tables.values()) {
            for column in table.schema.columns.iter().filter(|column| has_counter(column)) {
                let used = column.default.as_deref().and_then(sequence_of);
                let is_used = used.is_some_and(|used| {
                    used.name == *name && used.database_or(&table.database) == home
                });
                if is_used {
                    let message =
                        format!("cannot drop sequence {name} because other objects depend on it");
                    let detail = format!(
                        "default value for column {} of table {} depends on sequence {name}",
                        column.name, table.name
                    );
                    return Err(SqlError::new(DEPENDENT_OBJECTS, message)
                        .with_detail(detail)
                        .with_hint("drop the default or the table first"));
                }
            }
        }
        Ok(())
    }

    /// Checks the values that an INSERT gives to identity columns, and leaves out those that OVERRIDING ignores.
    pub(super) fn overridden(
        &self,
        insert: &Insert,
        table: &Table,
        rows: RecordBatch,
    ) -> Result<RecordBatch, SqlError> {
        if insert.overriding == Some(Overriding::System)
            || !table.schema.columns.iter().any(has_counter)
        {
            return Ok(rows);
        }
        let ignores = insert.overriding == Some(Overriding::User);
        let mut ignored = Vec::new();
        for (name, identity) in identities(&self.frontend().catalog(), table) {
            let Some((position, _)) = rows.schema_ref().column_with_name(name) else { continue };
            if ignores {
                ignored.push(position);
            } else if identity == Identity::Always {
                let message = format!("cannot insert a non-DEFAULT value into column \"{name}\"");
                let detail =
                    format!("Column \"{name}\" is an identity column defined as GENERATED ALWAYS.");
                return Err(SqlError::new(GENERATED_ALWAYS, message)
                    .with_detail(detail)
                    .with_hint("Use OVERRIDING SYSTEM VALUE to override."));
            }
        }
        if ignored.is_empty() {
            return Ok(rows);
        }
        let positions: Vec<usize> =
            (0..rows.num_columns()).filter(|position| !ignored.contains(position)).collect();
        Ok(rows.project(&positions)?)
    }

    /// Refuses values for columns that are GENERATED ALWAYS AS IDENTITY.
    pub(super) fn check_identities(&self, update: &Update, table: &Table) -> Result<(), SqlError> {
        if !table.schema.columns.iter().any(has_counter) {
            return Ok(());
        }
        for (column, value) in update.columns.iter().zip(&update.values) {
            let is_counter = table.schema.column(column).is_some_and(has_counter);
            if is_counter && value.is_none() {
                let feature = format!("UPDATE of column \"{column}\" to its DEFAULT, a sequence,");
                return Err(SqlError::unsupported(feature));
            }
            let catalog = self.frontend().catalog();
            let mut identities = identities(&catalog, table);
            if identities.any(|(name, kind)| name == column && kind == Identity::Always) {
                let message = format!("column \"{column}\" can only be updated to DEFAULT");
                let detail = format!(
                    "Column \"{column}\" is an identity column defined as GENERATED ALWAYS."
                );
                return Err(SqlError::new(GENERATED_ALWAYS, message).with_detail(detail));
            }
        }
        Ok(())
    }

    /// As `Frontend::numbered`, and remembers the numbers for `currval` and `lastval`.
    pub(super) async fn numbered(
        &self,
        permit: &Permit,
        table: &Table,
        rows: RecordBatch,
    ) -> Result<RecordBatch, SqlError> {
        let (rows, last_numbers) = self.frontend().numbered(permit, table, rows).await?;
        if !last_numbers.is_empty() {
            let mut remembered = self.last_numbers.lock();
            last_numbers.into_iter().for_each(|(id, number)| remembered.put(id, number));
        }
        Ok(rows)
    }

    /// The sequence of a text in a call of a function, with the right to one of the actions.
    pub(crate) fn sequence_for(
        &self,
        text: &str,
        actions: &[Action],
    ) -> Result<(Arc<Sequence>, Permit), SqlError> {
        let name = sequence_name(text)?;
        let sequence = sequence_named(self.viewer(), &self.database(), &name)?;
        let object = sequence_object(&self.frontend().catalog(), &sequence)?;
        let mut refusal = None;
        for action in actions {
            match self.viewer().check(&[Need::new(*action, object.clone())]) {
                Ok(permit) => return Ok((sequence, permit)),
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
        Err(refusal.unwrap_or_else(|| SqlError::undefined_table(text)))
    }

    /// Refuses a function that changes a sequence in a READ ONLY transaction.
    pub(crate) fn check_changes_sequences(&self, function: &str) -> Result<(), SqlError> {
        if !self.settings.lock().is_read_only() {
            return Ok(());
        }
        let message = format!("cannot execute {function}() in a read-only transaction");
        Err(SqlError::new(READ_ONLY, message))
    }
}

/// True if the sequence belongs to an identity column.
fn is_identity(sequence: &Sequence) -> bool {
    sequence.column.is_some_and(|column| column.identity.is_some())
}

/// The identity columns of a table, by name.
fn identities<'a>(
    catalog: &'a Catalog,
    table: &'a Table,
) -> impl Iterator<Item = (&'a str, Identity)> {
    catalog.sequences_of(table.id).filter_map(move |sequence| {
        let owned = sequence.column?;
        let column = table.schema.column_by_id(owned.column)?;
        Some((column.name.as_str(), owned.identity?))
    })
}

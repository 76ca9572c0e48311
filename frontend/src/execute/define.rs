//! DDL: turns statements about databases and tables into changes for meta.

use std::sync::Arc;

use partita_proto::access::{Action, Permit};
use partita_proto::catalog::{Catalog, Table};
use partita_proto::schema::{Column, Semantic};
use partita_proto::service::{Ddl, TableChange};
use partita_proto::value::Value;
use partita_sql::index_statement::FoundIndex;
use partita_sql::sequence_statement::sequence_of;
use partita_sql::statement::{
    AlterChange, AlterDatabase, AlterTable, CreateCopy, CreateDatabase, CreateIndex, CreateTable,
    DropCopy, DropDatabase, DropIndex, DropTable, LikeTable, TableName, Truncate,
};
use partita_sql::{LikeSource, Notice};
use partita_worker::UuidFunction;

use super::sequences::{check_defaults, free_names};
use crate::advisor::thresholds;
use crate::copies::refused::check_no_copy;
use crate::error::{SqlError, UNDEFINED_TABLE};
use crate::information::{has_key, key_name};
use crate::ingest::expression::{Condition, DefaultValue, Generated};
use crate::output::Output;
use crate::privileges::sees_all;
use crate::sequences::{has_counter, sequence_named};
use crate::session::Session;

/// SQLSTATE of an object of another kind than the statement is for.
pub(super) const WRONG_OBJECT_TYPE: &str = "42809";
/// SQLSTATE of an object that another one needs.
const DEPENDENT_OBJECTS: &str = "2BP01";

impl Session {
    pub(super) async fn create_database(
        &self,
        create: &CreateDatabase,
        permit: &Permit,
    ) -> Result<Output, SqlError> {
        let CreateDatabase { name, if_not_exists, ttl } = create.clone();
        let ddl =
            Ddl::CreateDatabase { name: name.clone(), if_not_exists, ttl, owner: permit.role() };
        let changed = self.frontend().change(permit, ddl).await?;
        Ok(exists_already(changed, "CREATE DATABASE", &format!("database \"{name}\"")))
    }

    pub(super) async fn alter_database(
        &self,
        alter: &AlterDatabase,
        permit: &Permit,
    ) -> Result<Output, SqlError> {
        let AlterDatabase { name, ttl } = alter.clone();
        self.frontend().change(permit, Ddl::AlterDatabase { name, ttl }).await?;
        Ok(Output::done("ALTER DATABASE"))
    }

    pub(super) async fn drop_database(
        &self,
        drop: &DropDatabase,
        permit: &Permit,
    ) -> Result<Output, SqlError> {
        let DropDatabase { name, if_exists } = drop.clone();
        // A database that was not checked does not exist: the identity did not see it then, or it is another one now.
        let id_of_name = self.catalog().databases.get(&name).map(|database| database.id);
        if !id_of_name.is_some_and(|id| permit.covers_database(id, Action::Own)) {
            return match if_exists {
                true => Ok(not_there(false, "DROP DATABASE", &format!("database \"{name}\""))),
                false => Err(SqlError::undefined_database(&name)),
            };
        }
        let ddl = Ddl::DropDatabase { name: name.clone(), if_exists };
        let changed = self.frontend().change(permit, ddl).await?;
        Ok(not_there(changed, "DROP DATABASE", &format!("database \"{name}\"")))
    }

    pub(super) async fn create_table(
        &self,
        create: &CreateTable,
        permit: &Permit,
    ) -> Result<Output, SqlError> {
        const TAG: &str = "CREATE TABLE";
        let expanded;
        let create = match create.likes.is_empty() {
            true => create,
            false => {
                expanded = create.with_likes(|like| self.like_source(like))?;
                &expanded
            }
        };
        let name = &create.table.name;
        let created = match create.is_temporary {
            true => self.create_temporary(create, permit)?,
            false => Box::pin(self.make_table(create, permit)).await?,
        };
        Ok(match created {
            Some(notices) => Output::done_with(TAG, notices),
            None => exists_already(false, TAG, &format!("relation \"{name}\"")),
        })
    }

    /// A table that a new one is to be like.
    fn like_source(&self, like: &LikeTable) -> Result<LikeSource, SqlError> {
        let table = self.table(&like.table)?;
        let catalog = self.frontend().catalog();
        let identities = catalog.sequences_of(table.id).filter_map(|sequence| {
            let owned = sequence.column?;
            let position = table.schema.shown().position(|column| column.id == owned.column)?;
            Some((position, owned.identity?, sequence.options))
        });
        let identities = identities.collect();
        let is_placed = sees_all(self.viewer(), table.id);
        Ok(LikeSource { table, is_placed, identities })
    }

    /// Creates a table. Returns notices for the client; `None` if a table of the name exists, and may.
    pub(super) async fn make_table(
        &self,
        create: &CreateTable,
        permit: &Permit,
    ) -> Result<Option<Vec<Notice>>, SqlError> {
        let (mut table, mut notices) = create.to_new_table(&self.database())?;
        free_names(&self.frontend().catalog(), &mut table);
        let column_ids: Vec<_> = table.sequences.iter().map(|sequence| sequence.column).collect();
        check_defaults(self, &table.schema, &table.database, &column_ids)?;
        let state = self.frontend().state();
        for (position, column) in table.schema.columns.iter().enumerate() {
            DefaultValue::new(state, column)?;
            Generated::new(state, &table.schema, position)?;
        }
        for check in &table.schema.checks {
            Condition::new(state, &table.schema, check)?;
        }
        thresholds::check(&table.schema.options)?;
        thresholds::check_rules(&table.schema.options)?;
        let advice = match table.schema.is_keyless() {
            // Rules about the key mean one that somebody has chosen.
            true => Vec::new(),
            false => crate::advisor::notices::of_new_table(&table),
        };
        let ddl = Ddl::CreateTable { table: Box::new(table), if_not_exists: create.if_not_exists };
        if !self.frontend().change(permit, ddl).await? {
            return Ok(None);
        }
        notices.extend(advice);
        Ok(Some(notices))
    }

    pub(super) async fn alter_table(
        &self,
        alter: &AlterTable,
        permit: &Permit,
    ) -> Result<Output, SqlError> {
        let table = match self.table(&alter.table) {
            Err(error) if alter.if_exists && error.sqlstate == UNDEFINED_TABLE => {
                return Ok(not_there(
                    false,
                    alter.tag(),
                    &format!("relation \"{}\"", alter.table.name),
                ));
            }
            result => result?,
        };
        check_kind(alter, &table)?;
        let is_rename = |change: &AlterChange| matches!(change, AlterChange::Rename(_));
        if !alter.changes.iter().all(is_rename) {
            check_no_copy(&self.catalog(), &table)?;
        }
        if let Some(key) = alter.added_key() {
            self.check_covered(&alter.table, Action::Own, permit)?;
            return Box::pin(self.add_key(&table, key, permit)).await;
        }
        let is_copied = self.catalog().copies_of(table.id).next().is_some();
        if let Some(placement) = alter.moving_placement(&table, is_copied)? {
            let new = placement.to_rekeyed(&table, &self.rekeyed_name(&table))?;
            return self.begin_rekeying(&table, new, permit).await;
        }
        let (mut changes, notices) = alter.to_changes(&table)?;
        self.prepare_changes(&table, &mut changes)?;
        let sets_families = changes.iter().any(changes_families);
        if sets_families {
            // The names of families are not free before their cells are removed, which may have been interrupted.
            Box::pin(self.frontend().clear_dropped(permit, &table)).await?;
        }
        let database = table.database.clone();
        let mut name = table.name.clone();
        let mut unchecked = alter.changes.iter().filter_map(|change| match change {
            AlterChange::AddCheck(check) => Some(check.not_valid),
            _ => None,
        });
        for change in changes {
            if let TableChange::AddCheck(check) = change {
                let is_valid = unchecked.next() != Some(true);
                self.add_check((&database, &name), check, is_valid, permit).await?;
                continue;
            }
            let renamed = match &change {
                TableChange::Rename(new_name) => Some(new_name.clone()),
                _ => None,
            };
            let ddl = Ddl::AlterTable { database: database.clone(), name: name.clone(), change };
            self.frontend().change(permit, ddl).await?;
            if let Some(new_name) = renamed {
                name = new_name;
            }
        }
        if sets_families {
            Box::pin(self.frontend().clear_dropped(permit, &table)).await?;
        }
        Ok(Output::done_with(alter.tag(), notices))
    }

    /// Checks changes of a table before the first is made, and completes those that add columns.
    fn prepare_changes(&self, table: &Table, changes: &mut [TableChange]) -> Result<(), SqlError> {
        let state = self.frontend().state();
        for change in changes {
            match change {
                TableChange::AddColumns { columns, .. } => {
                    let mut schema = table.schema.as_ref().clone();
                    let first = schema.columns.len();
                    schema.columns.extend(columns.iter().cloned());
                    for (position, column) in (first..).zip(columns) {
                        if has_counter(column) {
                            let name = &column.name;
                            let feature = format!("adding a column with a counter (\"{name}\")");
                            return Err(SqlError::unsupported(feature)
                                .with_detail("rows that exist would have no value in it"));
                        }
                        let default = DefaultValue::new(state, column)?;
                        Generated::new(state, &schema, position)?;
                        if column.semantic == Semantic::Field && !default.is_null() {
                            check_equal_default(column)?;
                            // Existing rows keep the default of now, whatever it is later.
                            let value = default.array(state, column, 1)?;
                            column.missing = Some(Value::from_array(&value, 0)?);
                        }
                    }
                }
                TableChange::AddCheck(check) => drop(Condition::new(state, &table.schema, check)?),
                TableChange::SetDefault { column, default: Some(default) } => {
                    if let Some(name) = sequence_of(default) {
                        sequence_named(self.viewer(), &table.database, &name)?;
                    }
                    if let Some(column) = table.schema.column(column) {
                        let mut column = column.clone();
                        column.default = Some(default.clone());
                        DefaultValue::new(state, &column)?;
                    }
                }
                // Those of another version may stay.
                TableChange::ChangeOptions { next: options, .. } => {
                    let present = &table.schema.options;
                    if options.advice_thresholds != present.advice_thresholds {
                        thresholds::check(options)?;
                    }
                    if options.advice_off != present.advice_off {
                        thresholds::check_rules(options)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) async fn drop_table(
        &self,
        drop: &DropTable,
        permit: &Permit,
    ) -> Result<Output, SqlError> {
        let mut notices = Vec::new();
        if !drop.if_exists {
            // All tables are looked up before the first is dropped.
            for table in &drop.tables {
                self.check_covered(table, Action::Own, permit)?;
            }
        }
        for table in &drop.tables {
            let (database, name) = self.named(table);
            if let Some(temporary) = self.viewer().temporary().get(&database, &name) {
                self.viewer().temporary().remove(temporary.table().id);
                continue;
            }
            let named = self.catalog().table(&database, &name).map(|table| table.id);
            let is_covered = named.is_some_and(|id| permit.covers(id, Action::Own));
            if named.is_some() && !is_covered && !drop.if_exists {
                return Err(SqlError::undefined_table(&name));
            }
            if is_covered && let Some(table) = self.catalog().table(&database, &name) {
                self.check_droppable(table, drop.cascade)?;
                notices.extend(self.dependent_views(table, "table", drop.cascade)?);
            }
            let DropTable { if_exists, cascade, .. } = *drop;
            let ddl = Ddl::DropTable { database, name: name.clone(), if_exists, cascade };
            if !is_covered || !self.frontend().change(permit, ddl).await? {
                notices.push(skipping(&format!("table \"{name}\""), "does not exist"));
            }
        }
        Ok(Output::done_with("DROP TABLE", notices))
    }

    /// Refuses to drop a copy as a table, and a table that has copies without CASCADE.
    fn check_droppable(&self, table: &Table, cascade: bool) -> Result<(), SqlError> {
        let name = &table.name;
        if table.copy.is_some() {
            let error = SqlError::new(WRONG_OBJECT_TYPE, format!("\"{name}\" is not a table"));
            return Err(
                error.with_hint("Use DROP MATERIALIZED COPY to remove a materialized copy.")
            );
        }
        if table.schema.view.is_some() {
            let error = SqlError::new(WRONG_OBJECT_TYPE, format!("\"{name}\" is not a table"));
            return Err(error.with_hint("Use DROP VIEW to remove a view."));
        }
        // A copy that the client does not see is named too: it keeps the table.
        let catalog = self.frontend().catalog();
        let dependents: Vec<_> = catalog
            .copies_of(table.id)
            // A re-keying is a part of the table.
            .filter(|copy| !copy.copy.as_ref().is_some_and(|copy| copy.is_rekeying()))
            .map(|copy| format!("materialized copy \"{}\" depends on table \"{name}\"", copy.name))
            .collect();
        if dependents.is_empty() || cascade {
            return Ok(());
        }
        Err(has_dependents("table", name, &dependents))
    }

    /// Refuses to drop a table or a view that views read without CASCADE; with it, returns notices that name the views. A
    /// view that the client does not see is named too: it keeps what it reads.
    pub(super) fn dependent_views(
        &self,
        table: &Table,
        kind: &str,
        cascade: bool,
    ) -> Result<Vec<Notice>, SqlError> {
        let catalog = self.frontend().catalog();
        let views = catalog.views_of(&table.database, &table.name);
        let names: Vec<&str> = views.map(|view| view.name.as_str()).collect();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        if !cascade {
            let depends =
                |view: &&str| format!("view \"{view}\" depends on {kind} \"{}\"", table.name);
            let dependents: Vec<_> = names.iter().map(depends).collect();
            return Err(has_dependents(kind, &table.name, &dependents));
        }
        let cascades = |view: &str| Notice::notice(format!("drop cascades to view {view}"));
        Ok(names.into_iter().map(cascades).collect())
    }

    pub(super) async fn create_copy(
        &self,
        create: &CreateCopy,
        permit: &Permit,
    ) -> Result<Output, SqlError> {
        const TAG: &str = "CREATE MATERIALIZED COPY";
        self.check_covered(&create.source, Action::Own, permit)?;
        let source = self.table(&create.source)?;
        let table = create.to_new_table(&source)?;
        let name = table.name.clone();
        let if_not_exists = create.if_not_exists;
        let ddl = Ddl::CreateTable { table: Box::new(table), if_not_exists };
        if !self.frontend().change(permit, ddl).await? {
            return Ok(exists_already(false, TAG, &format!("relation \"{name}\"")));
        }
        let message =
            format!("materialized copy \"{name}\" is being filled; sys.copies shows its state");
        Ok(Output::done_with(TAG, vec![Notice::notice(message)]))
    }

    pub(super) async fn drop_copy(
        &self,
        drop: &DropCopy,
        permit: &Permit,
    ) -> Result<Output, SqlError> {
        let mut notices = Vec::new();
        // All copies are looked up before the first is dropped.
        for name in &drop.names {
            match self.table(name) {
                Err(error) if drop.if_exists && error.sqlstate == UNDEFINED_TABLE => {}
                Err(error) => return Err(error),
                Ok(table) if table.copy.is_none() => {
                    let message = format!("\"{}\" is not a materialized copy", table.name);
                    let error = SqlError::new(WRONG_OBJECT_TYPE, message);
                    return Err(error.with_hint("Use DROP TABLE to remove a table."));
                }
                Ok(_) if !drop.if_exists => self.check_covered(name, Action::Own, permit)?,
                Ok(_) => {}
            }
        }
        for copy in &drop.names {
            let (database, name) = self.named(copy);
            let id_of_name = self.catalog().table(&database, &name).map(|table| table.id);
            let is_covered = id_of_name.is_some_and(|id| permit.covers(id, Action::Own));
            if id_of_name.is_some() && !is_covered && !drop.if_exists {
                return Err(SqlError::undefined_table(&name));
            }
            let if_exists = drop.if_exists;
            let ddl = Ddl::DropTable { database, name: name.clone(), if_exists, cascade: false };
            if !is_covered || !self.frontend().change(permit, ddl).await? {
                let object = format!("materialized copy \"{name}\"");
                notices.push(skipping(&object, "does not exist"));
            }
        }
        Ok(Output::done_with("DROP MATERIALIZED COPY", notices))
    }

    pub(super) async fn create_index(
        &self,
        create: &CreateIndex,
        permit: &Permit,
    ) -> Result<Output, SqlError> {
        self.check_covered(&create.table, Action::Own, permit)?;
        let table = self.table(&create.table)?;
        check_no_copy(&self.catalog(), &table)?;
        let (change, notices) = create.to_change(&table)?;
        if let Some(change) = change {
            let (database, name) = (table.database.clone(), table.name.clone());
            let ddl = Ddl::AlterTable { database, name, change };
            self.frontend().change(permit, ddl).await?;
        }
        Ok(Output::done_with("CREATE INDEX", notices))
    }

    pub(super) async fn drop_index(
        &self,
        drop: &DropIndex,
        permit: &Permit,
    ) -> Result<Output, SqlError> {
        let catalog = self.catalog();
        let session_database = self.database();
        // An index that was not checked does not exist, as in `check_covered`.
        let index = drop.find(&catalog, &session_database)?;
        let index = index.filter(|index| permit.covers(index.table.id, Action::Own));
        let Some(FoundIndex { table, column, kind }) = index else {
            if let Some(table) = table_with_key(&catalog, drop, &session_database) {
                return Err(of_key(&drop.name, table));
            }
            return match drop.if_exists {
                true => Ok(not_there(false, "DROP INDEX", &format!("index \"{}\"", drop.name))),
                false => Err(drop.undefined()),
            };
        };
        check_no_copy(&catalog, &table)?;
        let change = TableChange::DropIndex { column, kind };
        let (database, name) = (table.database.clone(), table.name.clone());
        self.frontend().change(permit, Ddl::AlterTable { database, name, change }).await?;
        Ok(Output::done("DROP INDEX"))
    }

    pub(super) async fn truncate(
        &self,
        truncate: &Truncate,
        permit: &Permit,
    ) -> Result<Output, SqlError> {
        for table in &truncate.tables {
            self.check_covered(table, Action::Truncate, permit)?;
            let target = self.table(table)?;
            check_no_copy(&self.catalog(), &target)?;
        }
        for table in &truncate.tables {
            self.check_covered(table, Action::Truncate, permit)?;
            let id = self.table(table)?.id;
            let (database, name) = self.named(table);
            if let Some(temporary) = self.viewer().temporary().get(&database, &name) {
                temporary.truncate();
                continue;
            }
            self.frontend().change(permit, Ddl::TruncateTable { database, name }).await?;
            // Rows that are still there must not meet their numbers again, so this is second.
            if truncate.restart_identity {
                self.restart_sequences(id, permit).await?;
            }
        }
        Ok(Output::done("TRUNCATE TABLE"))
    }

    /// Checks that a name means a table that the permit is for. Another one does not exist: the identity did not see it
    /// when it was checked, or the name was another table's.
    pub(super) fn check_covered(
        &self,
        name: &TableName,
        action: Action,
        permit: &Permit,
    ) -> Result<(), SqlError> {
        let table = self.table(name)?;
        match permit.covers(table.id, action) {
            true => Ok(()),
            false => Err(SqlError::undefined_table(&table.name)),
        }
    }

    pub(super) fn named(&self, table: &TableName) -> (String, String) {
        (table.database_or(&self.database()).to_owned(), table.name.clone())
    }
}

/// The table whose key has the name that a DROP INDEX gives.
fn table_with_key<'a>(
    catalog: &'a Catalog,
    drop: &DropIndex,
    session_database: &str,
) -> Option<&'a Arc<Table>> {
    let database = drop.database.as_deref().unwrap_or(session_database);
    let database = drop.table.as_ref().map_or(database, |name| name.database_or(database));
    let mut tables = catalog.tables.get(database)?.values();
    tables.find(|table| {
        let is_meant = drop.table.as_ref().is_none_or(|name| name.name == table.name);
        is_meant && has_key(table) && key_name(table) == drop.name
    })
}

/// Error for an object that is to be dropped without those that depend on it.
fn has_dependents(kind: &str, name: &str, dependents: &[String]) -> SqlError {
    let message = format!("cannot drop {kind} \"{name}\" because other objects depend on it");
    SqlError::new(DEPENDENT_OBJECTS, message)
        .with_detail(dependents.join("\n"))
        .with_hint("Use DROP ... CASCADE to drop the dependent objects too.")
}

/// Checks that all existing rows may have the same value in a column that is added.
fn check_equal_default(column: &Column) -> Result<(), SqlError> {
    check_single_default(column)?;
    if column.default.as_deref().and_then(UuidFunction::of_default).is_none() {
        return Ok(());
    }
    let feature = format!("adding a column with a DEFAULT of new UUIDs (\"{}\")", column.name);
    Err(SqlError::unsupported(feature).with_detail("rows that exist would all have the same one"))
}

/// Checks that the catalog can hold the value of existing rows in a column that is added.
fn check_single_default(column: &Column) -> Result<(), SqlError> {
    if !column.column_type.is_of_fields_only() {
        return Ok(());
    }
    let data_type = column.column_type.sql();
    let feature =
        format!("adding a column of type {data_type} with a DEFAULT (\"{}\")", column.name);
    Err(SqlError::unsupported(feature).with_hint(
        "add the column without DEFAULT, then give it one by ALTER COLUMN ... SET DEFAULT",
    ))
}

fn of_key(name: &str, table: &Table) -> SqlError {
    let message = format!(
        "cannot drop index {name} because constraint {name} on table {} requires it",
        table.name
    );
    SqlError::new(DEPENDENT_OBJECTS, message)
}

pub(super) fn skipping(object: &str, state: &str) -> Notice {
    Notice::notice(format!("{object} {state}, skipping"))
}

pub(super) fn exists_already(changed: bool, tag: &str, object: &str) -> Output {
    let notices = if changed { Vec::new() } else { vec![skipping(object, "already exists")] };
    Output::done_with(tag, notices)
}

/// Refuses ALTER VIEW of a table.
fn check_kind(alter: &AlterTable, table: &Table) -> Result<(), SqlError> {
    if alter.is_view && table.schema.view.is_none() {
        return Err(SqlError::new(WRONG_OBJECT_TYPE, format!("\"{}\" is not a view", table.name)));
    }
    Ok(())
}

/// True for a change of the column families of a wide table.
fn changes_families(change: &TableChange) -> bool {
    matches!(change, TableChange::ChangeOptions { base, next } if base.wide != next.wide)
}

fn not_there(changed: bool, tag: &str, object: &str) -> Output {
    let notices = if changed { Vec::new() } else { vec![skipping(object, "does not exist")] };
    Output::done_with(tag, notices)
}

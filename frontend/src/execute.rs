//! Runs statements: dispatches each kind to its module.

mod add_key;
mod advise;
mod aligned;
mod assigned;
mod comment;
mod conflict;
mod constraints;
mod copy;
mod create_as;
pub(crate) mod cursor;
mod define;
mod delete;
pub(crate) mod executed;
mod insert;
mod joined_returning;
mod maintain;
mod moves;
pub(crate) mod observe;
mod permit;
mod plan_lines;
mod prepare;
mod query;
mod rekey;
mod repartition;
mod returning;
pub(crate) mod roles;
mod round;
mod scrolled;
pub(crate) mod sequences;
mod series;
mod set;
mod show;
pub(crate) mod tasks;
mod temporary;
mod temporary_rows;
mod update;
mod view_plans;
mod views;

use partita_proto::access::Permit;
use partita_sql::Notice;
use partita_sql::statement::{
    Admin, Discard, Statement, TableName, Transaction, TransactionModes, Vacuum,
};

use self::executed::Executed;
use self::maintain::Maintenance;
pub use self::observe::CopyLog;
use crate::audit::Description;
use crate::error::SqlError;
use crate::output::Output;
use crate::sequences::LastNumbers;
use crate::session::Session;

/// Warning for a transaction that requests a stricter isolation level than it gets.
fn of_isolation(modes: TransactionModes) -> Option<Notice> {
    modes.isolated.then(|| {
        let message =
            "the isolation level is READ COMMITTED: each statement sees all rows written before it";
        Notice::warning(message)
    })
}

impl Session {
    /// Runs one statement without parameters. `permit` is that of the statement.
    pub(crate) async fn dispatch(
        &self,
        statement: &Statement,
        permit: &Permit,
    ) -> Result<Executed, SqlError> {
        let tag = statement.tag();
        self.check_returning(statement).await?;
        let output = match statement {
            Statement::Query(query) => return self.query(query).await,
            Statement::Explain(explain) => return self.explain(explain).await,
            Statement::ExplainHotspot(table) => self.explain_hotspot(table, permit).await?,
            Statement::Insert(insert) => return self.insert(insert, None, permit).await,
            Statement::Delete(delete) if delete.finds_rows() => {
                return Box::pin(self.delete_found(delete, None, permit)).await;
            }
            Statement::Delete(delete) => return self.delete(delete, None, permit).await,
            Statement::Update(update) => {
                return Box::pin(self.update(update, None, permit)).await;
            }
            Statement::CopyFrom(copy) => Box::pin(self.copy_from(copy)).await?,
            Statement::CopyTo(copy) => return Box::pin(self.copy_to(copy)).await,
            Statement::CreateDatabase(create) => self.create_database(create, permit).await?,
            Statement::AlterDatabase(alter) => self.alter_database(alter, permit).await?,
            Statement::DropDatabase(drop) => self.drop_database(drop, permit).await?,
            Statement::CreateTable(create) => self.create_table(create, permit).await?,
            Statement::CreateTableAs(create) => {
                return Box::pin(self.create_table_as(create, None, permit)).await;
            }
            Statement::AlterTable(alter) => self.alter_table(alter, permit).await?,
            Statement::Repartition(repartition) => self.repartition(repartition, permit).await?,
            Statement::Rekey(rekey) => self.rekey(rekey, permit).await?,
            Statement::DropTable(drop) => self.drop_table(drop, permit).await?,
            Statement::CreateCopy(create) => self.create_copy(create, permit).await?,
            Statement::DropCopy(drop) => self.drop_copy(drop, permit).await?,
            Statement::CreateView(create) => Box::pin(self.create_view(create, permit)).await?,
            Statement::DropView(drop) => self.drop_view(drop, permit).await?,
            Statement::Comment(comment) => self.comment(comment, permit).await?,
            Statement::CreateIndex(create) => self.create_index(create, permit).await?,
            Statement::DropIndex(drop) => self.drop_index(drop, permit).await?,
            Statement::Truncate(truncate) => self.truncate(truncate, permit).await?,
            Statement::Use(name) => {
                self.set_database(name)?;
                Output::done(tag)
            }
            Statement::Show(show) => self.show(show, permit)?,
            Statement::SeriesCardinality(series) => {
                return self.series_cardinality(series).await;
            }
            Statement::Describe(table) => self.describe(table)?,
            Statement::Set(set) => self.set(set)?,
            Statement::ResetAll => self.reset_all()?,
            Statement::Transaction(transaction) => self.transaction(transaction, tag)?,
            Statement::Prepare(prepare) => self.prepare_by_name(prepare).await?,
            Statement::Execute(execute) => return Box::pin(self.execute_by_name(execute)).await,
            Statement::Deallocate(name) => {
                self.forget_prepared(name.as_deref())?;
                Output::done(tag)
            }
            Statement::Declare(declare) => self.declare(declare, None).await?,
            Statement::Fetch(fetch) => self.fetch(fetch).await?,
            Statement::Close(name) => self.close(name.as_deref(), tag)?,
            Statement::Discard(scope) => self.discard(*scope, tag)?,
            Statement::Admin(admin) => self.admin(admin, permit).await?,
            Statement::Advise(advise) => return Box::pin(self.advise(advise)).await,
            Statement::Access(statement) => self.change_access(statement).await?,
            Statement::SetRole(role) => self.set_role(role)?,
            Statement::Task(statement) => self.change_tasks(statement, permit).await?,
            Statement::Sequence(statement) => self.change_sequences(statement, permit).await?,
            Statement::Listen | Statement::Notify => {
                let message = format!("{tag} is accepted, but no notification is delivered");
                Output::done_with(tag, vec![Notice::notice(message)])
            }
            // Nothing listens, so there is nothing to remove.
            Statement::Unlisten => Output::done(tag),
            Statement::Vacuum(vacuum) => self.vacuum(vacuum, tag)?,
            Statement::Lock(_) => self.lock(tag)?,
            Statement::Empty => Output::done(tag),
        };
        Ok(output.into())
    }

    /// Statements are atomic per partition with and without transactions; the transaction statements exist for
    /// clients that send them. A ROLLBACK after writes warns that they stay.
    fn transaction(
        &self,
        transaction: &Transaction,
        tag: &'static str,
    ) -> Result<Output, SqlError> {
        let mut notices = Vec::new();
        match transaction {
            // Only READ ONLY has an effect; stricter isolation is refused with a warning.
            Transaction::Begin(modes) => {
                self.set_in_transaction(true);
                self.set_modes(*modes, "transaction", true)?;
                notices.extend(of_isolation(*modes));
            }
            Transaction::Characteristics(modes) => {
                if self.in_transaction() {
                    self.set_modes(*modes, "transaction", true)?;
                    notices.extend(of_isolation(*modes));
                } else {
                    let message = "SET TRANSACTION can only be used in transaction blocks";
                    notices.push(Notice::warning(message));
                }
            }
            Transaction::SessionCharacteristics(modes) => {
                self.set_modes(*modes, "default_transaction", false)?;
                notices.extend(of_isolation(*modes));
            }
            Transaction::Commit | Transaction::Rollback => {
                // Each write took effect when its statement ended.
                let written = self.written_in_transaction();
                if written > 0 && *transaction == Transaction::Rollback {
                    let statements = if written == 1 { "statement" } else { "statements" };
                    notices.push(Notice::warning(format!(
                        "ROLLBACK does not undo writes: {written} {statements} of this transaction took effect at once"
                    )));
                }
                self.set_in_transaction(false);
                self.end_local_settings()?;
                self.close_transient_cursors();
            }
            Transaction::Savepoint(_) | Transaction::Release(_) => {}
            Transaction::RollbackTo(_) => {
                return Err(SqlError::unsupported("ROLLBACK TO SAVEPOINT"));
            }
        }
        Ok(Output::done_with(tag, notices))
    }

    /// Applies the modes of a statement to the settings whose names begin with a prefix.
    fn set_modes(
        &self,
        modes: TransactionModes,
        prefix: &str,
        local: bool,
    ) -> Result<(), SqlError> {
        const SWITCH: [&str; 2] = ["off", "on"];
        let mut settings = self.settings.lock();
        for (name, mode, values) in [
            ("read_only", modes.read_only, SWITCH),
            ("deferrable", modes.deferrable, SWITCH),
            ("isolation", modes.uncommitted, ["read committed", "read uncommitted"]),
        ] {
            if let Some(mode) = mode {
                let value = values[usize::from(mode)];
                settings.set(&format!("{prefix}_{name}"), Some(value), local)?;
            }
        }
        Ok(())
    }

    fn discard(&self, scope: Discard, tag: &'static str) -> Result<Output, SqlError> {
        match scope {
            Discard::All => {
                if self.in_transaction() {
                    return Err(SqlError::new(
                        "25001",
                        "DISCARD ALL cannot run inside a transaction block",
                    ));
                }
                self.forget_prepared(None)?;
                self.close(None, tag)?;
                self.reset_all()?;
                // The next client of a connection pool must not get the role of the former one.
                self.viewer().act_as(None);
                *self.last_numbers.lock() = LastNumbers::default();
                self.viewer().temporary().clear();
            }
            Discard::Sequences => *self.last_numbers.lock() = LastNumbers::default(),
            Discard::Temporary => self.viewer().temporary().clear(),
            Discard::Plans => {}
        }
        Ok(Output::done(tag))
    }

    /// VACUUM and ANALYZE have nothing to do. VACUUM is refused where PostgreSQL refuses it.
    fn vacuum(&self, vacuum: &Vacuum, tag: &'static str) -> Result<Output, SqlError> {
        if !vacuum.only_analyzes && self.in_transaction() {
            let message = "VACUUM cannot run inside a transaction block";
            return Err(SqlError::new("25001", message));
        }
        let message =
            format!("{tag} does nothing: files are merged and measured in the background");
        let notice = Notice::notice(message).with_hint("ADMIN compact_table('t') merges files now");
        Ok(Output::done_with(tag, vec![notice]))
    }

    /// LOCK TABLE in the mode ACCESS SHARE has nothing to do, once its tables were found and may be read.
    fn lock(&self, tag: &'static str) -> Result<Output, SqlError> {
        if self.in_transaction() {
            return Ok(Output::done(tag));
        }
        Err(SqlError::new("25P01", "LOCK TABLE can only be used in transaction blocks"))
    }

    async fn admin(&self, admin: &Admin, permit: &Permit) -> Result<Output, SqlError> {
        match admin {
            Admin::FlushTable(name) => {
                self.order_maintenance(name, Maintenance::Flush, permit).await?
            }
            Admin::CompactTable(name) => {
                self.order_maintenance(name, Maintenance::Compact, permit).await?
            }
            Admin::Order(order) => self.frontend().administer(permit, order.clone()).await?,
        }
        Ok(Output::done("ADMIN"))
    }

    /// Has every replica of a table do some maintenance, which is recorded.
    async fn order_maintenance(
        &self,
        table: &TableName,
        maintenance: Maintenance,
        permit: &Permit,
    ) -> Result<(), SqlError> {
        let action = match maintenance {
            Maintenance::Flush => "FLUSH TABLE",
            Maintenance::Compact => "COMPACT TABLE",
        };
        let session_database = self.database();
        let database = table.database_or(&session_database);
        let description = Description::of_maintenance(action, database, &table.name);
        self.frontend().audited(permit, description, self.maintain(table, maintenance)).await
    }
}

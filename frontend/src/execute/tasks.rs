//! CREATE, ALTER and DROP TASK, and SHOW TASKS.
//!
//! Rights: TASK on the cluster or the database and INSERT on the table create a task, TASK on the cluster one that writes
//! to another server. A task belongs to the current role and runs with its rights. Who has the rights of that role alters
//! or drops it. What the statement reads is checked at each run, as in any session.

use std::sync::Arc;

use partita_proto::access::{Action, Need, Object, Permit};
use partita_proto::catalog::Database;
use partita_proto::service::Ddl;
use partita_proto::task::{NewTask, TaskChange, TaskEdit, TaskEntry, Window};
use partita_sql::parser;
use partita_sql::statement::TableName;
use partita_sql::task_grammar::text_of;
use partita_sql::task_statement::{CreateTask, TaskStatement};
use partita_sql::{Notice, Statement};

use crate::access::needs::table_of;
use crate::access::viewer::{Viewer, now_ms};
use crate::copies::refused::check_no_copy;
use crate::error::{SqlError, UNDEFINED_OBJECT};
use crate::output::Output;
use crate::session::{Session, SessionOptions};
use crate::tasks::tables::{shown_tasks, task_object};

/// SQLSTATE of an action that is not permitted.
const INSUFFICIENT_PRIVILEGE: &str = "42501";

/// Needs of a statement by a client whose unqualified names are in `database`.
///
/// # Errors
/// When a database, a table or a task is unknown, or hidden.
pub(crate) fn needs(
    viewer: &Viewer,
    database: &str,
    statement: &TaskStatement,
) -> Result<Vec<Need>, SqlError> {
    match statement {
        TaskStatement::Create(create) => {
            let home = database_of(viewer, create.name.database_or(database))?;
            let on_cluster = Need::new(Action::Task, Object::Cluster);
            // A remote server may be one that only the cluster's machines reach.
            let Some(table) = &create.table else { return Ok(vec![on_cluster]) };
            let creates = match viewer.check(std::slice::from_ref(&on_cluster)) {
                Ok(_) => on_cluster,
                Err(_) => Need::new(Action::Task, Object::Database(Arc::clone(&home))),
            };
            let table = table_of(viewer, &home.name, table)?;
            let mut list = vec![creates, Need::new(Action::Insert, viewer.object(&table)?)];
            if create.keeps {
                list.push(Need::new(Action::Update, viewer.object(&table)?));
            }
            Ok(list)
        }
        TaskStatement::Alter { name, .. } => {
            let entry = task_of(viewer, database, name)?;
            Ok(vec![Need::new(Action::Task, task_object(&entry.task))])
        }
        TaskStatement::Drop { names, if_exists } => {
            let mut list = Vec::with_capacity(names.len());
            for name in names {
                match task_of(viewer, database, name) {
                    Ok(entry) => list.push(Need::new(Action::Task, task_object(&entry.task))),
                    Err(_) if *if_exists => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(list)
        }
        // Those that the identity may alter.
        TaskStatement::Show => Ok(Vec::new()),
    }
}

fn database_of(viewer: &Viewer, name: &str) -> Result<Arc<Database>, SqlError> {
    let catalog = viewer.catalog();
    let database = catalog.databases.get(name).map(Arc::clone);
    database.ok_or_else(|| SqlError::undefined_database(name))
}

/// The task of a name in a statement. One that the identity may not touch does not exist for it.
fn task_of(viewer: &Viewer, database: &str, name: &TableName) -> Result<Arc<TaskEntry>, SqlError> {
    let catalog = viewer.catalog();
    let home = catalog.databases.get(name.database_or(database));
    let entry = home.and_then(|home| catalog.task(home.id, &name.name)).map(Arc::clone);
    let is_visible = |entry: &Arc<TaskEntry>| {
        viewer.check(&[Need::new(Action::Task, task_object(&entry.task))]).is_ok()
    };
    entry.filter(is_visible).ok_or_else(|| {
        SqlError::new(UNDEFINED_OBJECT, format!("task \"{}\" does not exist", name.name))
    })
}

impl Session {
    /// Runs a statement about tasks. `permit` is that of the statement.
    pub(super) async fn change_tasks(
        &self,
        statement: &TaskStatement,
        permit: &Permit,
    ) -> Result<Output, SqlError> {
        let tag = statement.tag();
        match statement {
            TaskStatement::Create(create) => {
                let notices = self.create_task(create, permit).await?;
                Ok(Output::done_with(tag, notices))
            }
            TaskStatement::Alter { name, edit } => {
                let task = task_of(self.viewer(), &self.database(), name)?.task.id;
                let edit = TaskEdit { now_ms: now_ms(), ..edit.clone() };
                self.change_task(permit, TaskChange::Alter { task, edit }).await?;
                Ok(Output::done(tag))
            }
            TaskStatement::Drop { names, if_exists } => {
                let mut notices = Vec::new();
                for name in names {
                    match task_of(self.viewer(), &self.database(), name) {
                        Ok(entry) => {
                            let task = entry.task.id;
                            self.change_task(permit, TaskChange::Drop { task }).await?;
                        }
                        Err(_) if *if_exists => {
                            let message =
                                format!("task \"{}\" does not exist, skipping", name.name);
                            notices.push(Notice::notice(message));
                        }
                        Err(error) => return Err(error),
                    }
                }
                Ok(Output::done_with(tag, notices))
            }
            TaskStatement::Show => self.show_tasks(),
        }
    }

    async fn change_task(&self, permit: &Permit, change: TaskChange) -> Result<bool, SqlError> {
        self.frontend().change(permit, Ddl::Task(Box::new(change))).await
    }

    async fn create_task(
        &self,
        create: &CreateTask,
        permit: &Permit,
    ) -> Result<Vec<Notice>, SqlError> {
        self.check_rights_of_owner(permit)?;
        let home = database_of(self.viewer(), create.name.database_or(&self.database()))?;
        let now_ms = now_ms();
        self.check_statement(create, &home.name, now_ms).await?;
        let task = NewTask {
            database: home.id,
            name: create.name.name.clone(),
            owner: permit.role(),
            schedule: create.schedule.clone(),
            statement: create.statement.to_string(),
            remote: create.remote.clone(),
            enabled: create.enabled,
            catch_up: create.catch_up,
            now_ms,
        };
        let if_not_exists = create.if_not_exists;
        let change = TaskChange::Create { task: Box::new(task), if_not_exists };
        if self.change_task(permit, change).await? {
            return Ok(Vec::new());
        }
        let message = format!("task \"{}\" already exists, skipping", create.name.name);
        Ok(vec![Notice::notice(message)])
    }

    /// Refuses a task that would have more rights than its creator, or none at all.
    fn check_rights_of_owner(&self, permit: &Permit) -> Result<(), SqlError> {
        let (access, identity) = (self.viewer().access(), self.identity());
        let Some(owner) = access.role(permit.role()) else { return Ok(()) };
        if !owner.login {
            let message = format!("role \"{}\" is not permitted to log in", owner.name);
            return Err(SqlError::new(INSUFFICIENT_PRIVILEGE, message)
                .with_detail("A task runs as the role that created it."));
        }
        if identity.token.is_some() && identity.org != owner.org {
            let message = "permission denied to create task";
            return Err(SqlError::new(INSUFFICIENT_PRIVILEGE, message)
                .with_detail("The token belongs to another organisation than its owner."));
        }
        Ok(())
    }

    /// Plans the statement of a new task for the window of the present, to find errors in it.
    async fn check_statement(
        &self,
        create: &CreateTask,
        database: &str,
        now_ms: i64,
    ) -> Result<(), SqlError> {
        let start_ms = create.schedule.at_or_before(now_ms).unwrap_or(now_ms);
        let stop_ms = create.schedule.after(now_ms).unwrap_or(now_ms);
        let text = text_of(&create.statement, Window { start_ms, stop_ms })?;
        let statement = parser::parse(&text)?.pop().unwrap_or(Statement::Empty);
        let session = self.frontend().session(SessionOptions {
            database: database.to_owned(),
            user: self.user().to_owned(),
            application: String::new(),
            identity: self.identity(),
        });
        let planned = Box::pin(session.prepare_statement(statement, &[])).await;
        // Positions would be those in the statement with times in place of its parameters.
        planned.map_err(|error| SqlError { position: None, ..error })?;
        // The plan of an INSERT is that of its query, so each run would find this out anew.
        match &create.table {
            Some(target) => {
                let table = session.table(target)?;
                check_no_copy(&session.catalog(), &table)
            }
            None => Ok(()),
        }
    }

    pub(super) fn show_tasks(&self) -> Result<Output, SqlError> {
        let (catalog, access) = (self.catalog(), self.viewer().access());
        let row = |entry: &Arc<TaskEntry>| {
            let task = &entry.task;
            let mut databases = catalog.databases.values();
            let database = databases.find(|database| database.id == task.database);
            vec![
                database.map(|database| database.name.clone()),
                Some(task.name.clone()),
                access.role(task.owner).map(|owner| owner.name.clone()),
                Some(task.schedule.to_string()),
                Some((if task.enabled { "enabled" } else { "disabled" }).to_owned()),
                Some(task.statement.clone()),
            ]
        };
        let rows: Vec<_> = shown_tasks(self.viewer()).iter().map(row).collect();
        Output::text(&["database", "task", "owner", "schedule", "state", "statement"], &rows)
    }
}

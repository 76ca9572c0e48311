//! Statements about tasks. Their grammar is in `task_grammar.rs`.

use std::sync::Arc;

use partita_proto::task::{Remote, Schedule, TaskEdit};

use super::table_name::TableName;

/// A statement about tasks.
#[derive(Clone, Debug)]
pub enum TaskStatement {
    /// CREATE TASK.
    Create(Box<CreateTask>),
    /// ALTER TASK.
    Alter {
        /// Task to change.
        name: TableName,
        /// Properties that change; without a time.
        edit: TaskEdit,
    },
    /// DROP TASK of one or more tasks.
    Drop {
        /// Tasks to drop.
        names: Vec<TableName>,
        /// True to skip tasks that do not exist.
        if_exists: bool,
    },
    /// SHOW TASKS.
    Show,
}

/// Content of a CREATE TASK.
#[derive(Clone, Debug)]
pub struct CreateTask {
    /// Task name, perhaps with a database.
    pub name: TableName,
    /// True to succeed when the task exists.
    pub if_not_exists: bool,
    /// Moments at which windows end.
    pub schedule: Schedule,
    /// Maximum windows that are run after a pause.
    pub catch_up: u32,
    /// False to begin no run.
    pub enabled: bool,
    /// Text of the INSERT, or of the query for a remote server, with placeholders.
    pub statement: Arc<str>,
    /// Server that gets the rows.
    pub remote: Option<Remote>,
    /// Table that the INSERT writes to; `None` with a remote server.
    pub table: Option<TableName>,
    /// True for UPSERT, which keeps columns of the rows that it replaces.
    pub keeps: bool,
}

impl TaskStatement {
    /// Returns true if it only reads.
    pub fn reads(&self) -> bool {
        matches!(self, Self::Show)
    }

    /// Command tag.
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Create(_) => "CREATE TASK",
            Self::Alter { .. } => "ALTER TASK",
            Self::Drop { .. } => "DROP TASK",
            Self::Show => "SHOW",
        }
    }
}

//! Grammar of statements about tasks, and the statement of a task with the bounds of a window.
//!
//! ```text
//! CREATE TASK [IF NOT EXISTS] [database.]name SCHEDULE 'schedule' [CATCH UP windows] [ENABLED | DISABLED]
//!     {AS INSERT INTO table [(column, ..)] SELECT .. | INTO URL 'address' [TOKEN 'token'] MEASUREMENT name [TAGS (column, ..)] AS SELECT ..}
//! ALTER TASK [database.]name {ENABLE | DISABLE | SCHEDULE 'schedule'}
//! DROP TASK [IF EXISTS] [database.]name, ..
//! SHOW TASKS
//! ```
//!
//! In the statement of a task `$start` and `$stop` are the bounds of the window, as timestamps in UTC. They are replaced as
//! tokens, so that nothing inside a string or a comment is.
//!
//! Invariant: no error contains what follows TOKEN.

use std::sync::Arc;

use datafusion::sql::sqlparser::tokenizer::Token;
use partita_proto::task::{CATCH_UP_DEFAULT, Remote, Schedule, TaskEdit, Window};

use super::parser::parse_one;
use super::statement::{Insert, InsertSource, Statement};
use super::task_statement::{CreateTask, TaskStatement};
use super::tokens::Tokens;
use crate::error::{INVALID_PARAMETER_VALUE, SqlError};

impl Tokens<'_> {
    /// Takes what follows CREATE TASK.
    pub(super) fn create_task(&mut self) -> Result<Statement, SqlError> {
        let if_not_exists = self.if_not_exists();
        let name = self.table_name()?;
        self.expect("schedule")?;
        let schedule = self.schedule()?;
        let mut catch_up = CATCH_UP_DEFAULT;
        if self.take(&["catch", "up"]) {
            let expected = self.unexpected("a number of windows");
            catch_up =
                u32::try_from(self.unsigned("a number of windows")?).map_err(|_| expected)?;
        }
        let enabled = !self.take(&["disabled"]);
        if enabled {
            self.take(&["enabled"]);
        }
        let remote = if self.take(&["into", "url"]) { Some(self.remote()?) } else { None };
        self.expect("as")?;
        let (position, offset) = (self.position(), self.offset());
        let statement = self.text[offset..].trim_end();
        // The first window is as good as any other to find errors. Positions count from the whole text.
        let window = Window { start_ms: 0, stop_ms: 1_000 };
        let (table, keeps) =
            match window_statement(statement, position - 1, window)? {
                Statement::Insert(Insert {
                    table, keeps, source: InsertSource::Query(_), ..
                }) if remote.is_none() => (Some(table), keeps),
                Statement::Query(_) if remote.is_some() => (None, false),
                _ => {
                    let kind = if remote.is_some() { "SELECT" } else { "INSERT INTO ... SELECT" };
                    let error = SqlError::unsupported(format!("a task other than {kind}"));
                    return Err(error.with_position(position));
                }
            };
        let create = CreateTask {
            name,
            if_not_exists,
            schedule,
            catch_up,
            enabled,
            statement: Arc::from(statement),
            remote,
            table,
            keeps,
        };
        self.skip_all();
        Ok(Statement::Task(TaskStatement::Create(Box::new(create))))
    }

    /// Takes what follows INTO URL, without AS.
    fn remote(&mut self) -> Result<Remote, SqlError> {
        let position = self.position();
        let url = self.string()?;
        let token = if self.take(&["token"]) {
            let error = self.located(SqlError::syntax("expected a string after TOKEN"));
            Some(self.string().map_err(|_| error)?)
        } else {
            None
        };
        if !self.take(&["measurement"]) {
            return Err(self.located(SqlError::syntax("expected MEASUREMENT and a name")));
        }
        let measurement = match self.string() {
            Ok(measurement) => measurement,
            Err(_) => self.name("a measurement")?,
        };
        let tags = if self.take(&["tags"]) { self.columns()? } else { Vec::new() };
        let remote = Remote { url, token, measurement, tags };
        remote.validate().map_err(|error| SqlError::from(error).with_position(position))?;
        Ok(remote)
    }

    fn schedule(&mut self) -> Result<Schedule, SqlError> {
        let position = self.position();
        let text = self.string()?;
        Schedule::parse(&text).map_err(|error| SqlError::from(error).with_position(position))
    }

    /// Takes what follows ALTER TASK.
    pub(super) fn alter_task(&mut self) -> Result<Statement, SqlError> {
        let name = self.table_name()?;
        let mut edit = TaskEdit::default();
        if self.take(&["enable"]) {
            edit.enabled = Some(true);
        } else if self.take(&["disable"]) {
            edit.enabled = Some(false);
        } else {
            self.take(&["set"]);
            if !self.take(&["schedule"]) {
                return Err(self.unexpected("ENABLE, DISABLE or SCHEDULE"));
            }
            edit.schedule = Some(self.schedule()?);
        }
        Ok(Statement::Task(TaskStatement::Alter { name, edit }))
    }

    /// Takes what follows DROP TASK.
    pub(super) fn drop_task(&mut self) -> Result<Statement, SqlError> {
        let if_exists = self.if_exists();
        let mut names = vec![self.table_name()?];
        while self.take_mark(&Token::Comma) {
            names.push(self.table_name()?);
        }
        Ok(Statement::Task(TaskStatement::Drop { names, if_exists }))
    }

    /// Takes SHOW TASKS.
    pub(super) fn show_tasks(&mut self) -> Result<Statement, SqlError> {
        self.expect("show")?;
        self.expect("tasks")?;
        Ok(Statement::Task(TaskStatement::Show))
    }
}

/// The text of a task's statement with the bounds of a window in place of the placeholders.
///
/// # Errors
/// When the text has no tokens of SQL, or has other placeholders than `$start` and `$stop`.
pub fn text_of(text: &str, window: Window) -> Result<String, SqlError> {
    filled(text, 0, window)
}

/// Parses the statement of a task that begins `start` characters into the client's text.
fn window_statement(text: &str, start: usize, window: Window) -> Result<Statement, SqlError> {
    let filled = filled(text, start, window)?;
    // Positions in a text with longer literals would mislead.
    parse_one(&filled, start).map_err(|error| match filled == text {
        true => error,
        false => SqlError { position: None, ..error },
    })
}

/// As [`text_of`], for a text that begins `start` characters into the client's text.
fn filled(text: &str, start: usize, window: Window) -> Result<String, SqlError> {
    let mut tokens = Tokens::new(text, start)?;
    let mut filled = String::with_capacity(text.len());
    let mut copied = 0;
    while !tokens.at_end() {
        if let Token::Placeholder(name) = &tokens.peek().token {
            let moment = match name.to_ascii_lowercase().as_str() {
                "$start" => window.start_ms,
                "$stop" => window.stop_ms,
                _ => {
                    let message = format!("a task has no parameter {name}");
                    let error = SqlError::new(INVALID_PARAMETER_VALUE, message);
                    let error = error.with_hint("the bounds of its window are $start and $stop");
                    return Err(tokens.located(error));
                }
            };
            let (offset, end) = (tokens.offset(), tokens.offset() + name.len());
            filled.push_str(&text[copied..offset]);
            filled.push_str(&format!("TIMESTAMP '{}'", shown_moment(moment)));
            copied = end;
        }
        tokens.next();
    }
    filled.push_str(&text[copied..]);
    Ok(filled)
}

/// A time as `YYYY-MM-DD HH:MM:SS.mmm`, in UTC.
fn shown_moment(moment_ms: i64) -> String {
    let (seconds, millis) = (moment_ms.div_euclid(1_000), moment_ms.rem_euclid(1_000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = partita_worker::civil::date_of(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{millis:03}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::parse;
    use crate::table_name::TableName;

    const WINDOW: Window = Window { start_ms: 1_772_323_200_000, stop_ms: 1_772_323_500_000 };

    fn create(sql: &str) -> Result<CreateTask, SqlError> {
        match parse(sql)?.remove(0) {
            Statement::Task(TaskStatement::Create(create)) => Ok(*create),
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn bounds_replace_placeholders_and_nothing_else() {
        let text =
            "INSERT INTO a SELECT '$start', k /* $stop */ FROM b WHERE t >= $START AND t < $stop";
        let expected = "INSERT INTO a SELECT '$start', k /* $stop */ FROM b WHERE \
                        t >= TIMESTAMP '2026-03-01 00:00:00.000' AND \
                        t < TIMESTAMP '2026-03-01 00:05:00.000'";
        assert_eq!(filled(text, 0, WINDOW).unwrap(), expected);
        assert!(matches!(window_statement(text, 0, WINDOW).unwrap(), Statement::Insert(_)));
        let error = filled("INSERT INTO a SELECT $1", 0, WINDOW).unwrap_err();
        assert_eq!(error.message, "a task has no parameter $1");
    }

    #[test]
    fn a_task_has_a_name_a_schedule_and_an_insert() {
        let task = create(
            "CREATE TASK IF NOT EXISTS d.\"Down\" SCHEDULE 'every 5m offset 10s' CATCH UP 3 DISABLED AS \
             INSERT INTO a SELECT * FROM b WHERE t >= $start; SELECT 1",
        )
        .unwrap();
        assert_eq!((task.name.database.as_deref(), task.name.name.as_str()), (Some("d"), "Down"));
        assert_eq!((task.catch_up, task.enabled, task.if_not_exists), (3, false, true));
        assert_eq!(task.schedule.to_string(), "every 5m offset 10s");
        assert_eq!(&*task.statement, "INSERT INTO a SELECT * FROM b WHERE t >= $start");
        assert_eq!((task.table, task.keeps), (Some(TableName::bare("a")), false));
    }

    #[test]
    fn a_task_may_write_to_another_server() {
        let sql = "CREATE TASK x SCHEDULE 'every 10s' INTO URL 'https://a:1/w' TOKEN 'secret' \
                   MEASUREMENT hot TAGS (host, area) AS SELECT * FROM t WHERE ts >= $start AND v > 80";
        let task = create(sql).unwrap();
        assert!(!format!("{task:?}").contains("secret"));
        let remote = task.remote.unwrap();
        assert_eq!(
            (remote.url.as_str(), remote.token.as_deref()),
            ("https://a:1/w", Some("secret"))
        );
        assert_eq!((remote.measurement.as_str(), remote.tags.len()), ("hot", 2));
        assert_eq!((task.table, &task.statement[..13]), (None, "SELECT * FROM"));
        for (from, to) in [
            ("'https", "'ftp"),
            ("SELECT", "INSERT INTO a SELECT"),
            ("TOKEN 'secret'", "TOKEN secret"),
            ("'secret'", "'secret' 'secret'"),
            ("MEASUREMENT hot", ""),
            ("(host, area)", "()"),
        ] {
            let error = create(&sql.replace(from, to)).unwrap_err();
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
    }

    #[test]
    fn what_is_no_task_is_refused() {
        for (sql, sqlstate) in [
            ("CREATE TASK x AS INSERT INTO a SELECT 1", "42601"),
            ("CREATE TASK x SCHEDULE 'sometimes' AS INSERT INTO a SELECT 1", "22023"),
            ("CREATE TASK x SCHEDULE '@daily' AS SELECT 1", "0A000"),
            ("CREATE TASK x SCHEDULE '@daily' AS DELETE FROM a", "0A000"),
            ("CREATE TASK x SCHEDULE '@daily' AS INSERT INTO a VALUES (1)", "0A000"),
            ("CREATE TASK x SCHEDULE '@daily' AS INSERT INTO a SELECT $now", "22023"),
            ("CREATE TASK x SCHEDULE '@daily' AS INSERT INTO a SELEC 1", "42601"),
            ("CREATE TASK x SCHEDULE '@daily' CATCH UP many AS INSERT INTO a SELECT 1", "42601"),
            ("ALTER TASK x RENAME TO y", "42601"),
            ("ALTER TASK x SCHEDULE '0 0 30 2 *'", "22023"),
            ("DROP TASK", "42601"),
        ] {
            let error = parse(sql).unwrap_err();
            assert_eq!(error.sqlstate, sqlstate, "{sql}: {}", error.message);
        }
    }

    #[test]
    fn tasks_are_altered_dropped_and_shown() {
        let edit = |sql: &str| match parse(sql).unwrap().remove(0) {
            Statement::Task(TaskStatement::Alter { edit, .. }) => edit,
            other => panic!("{sql}: {other:?}"),
        };
        assert_eq!(edit("ALTER TASK x ENABLE").enabled, Some(true));
        assert_eq!(edit("ALTER TASK d.x DISABLE").enabled, Some(false));
        let schedule = edit("ALTER TASK x SET SCHEDULE '@daily'").schedule.unwrap();
        assert_eq!(schedule.to_string(), "@daily");
        for (sql, tag, reads) in
            [("DROP TASK IF EXISTS x, d.y", "DROP TASK", false), ("SHOW TASKS", "SHOW", true)]
        {
            let statement = parse(sql).unwrap().remove(0);
            assert_eq!((statement.tag(), statement.reads()), (tag, reads));
        }
    }
}

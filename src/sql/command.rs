//! The shell's own commands: the usual ones of psql.

/// A command to the shell rather than the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// End the session.
    Quit,
    /// List the commands.
    Help,
    /// List the SQL statements and their documentation.
    SqlHelp,
    /// Discard the statement being typed.
    Reset,
    /// Run this statement, which answers the command.
    Run(String),
    /// Unknown command, with the message to print.
    Unknown(String),
}

/// The list of commands, one per line.
pub(super) const HELP: &str = "\
\\d         tables of this database         \\d NAME    columns of a table
\\dt        the same as \\d                  \\l         databases
\\c NAME    use another database            \\r         discard the statement being typed
\\?  help   this list                       \\h         SQL statements and their documentation
\\q  quit  exit  Ctrl-D   end               Ctrl-C     cancel the running statement, or discard the input
Statements end with ; and may take several lines.";

/// Overview of the statements, and where they are described.
pub(super) const SQL_HELP: &str = "\
SHOW DATABASES, TABLES, PARTITIONS FROM t, NODES; DESCRIBE t; SHOW CREATE TABLE t
CREATE TABLE, ALTER TABLE, DROP TABLE, TRUNCATE; INSERT, DELETE, COPY, SELECT; EXPLAIN, EXPLAIN HOTSPOT t; ADMIN
Tables of the schema sys show the state of the cluster: SELECT * FROM sys.partitions
docs/sql.md describes the statements, types and functions, docs/system-tables.md the tables of sys.";

/// Hint for a user who types `quit`, `exit` or `help` within a statement.
pub(super) const WITHIN: &str =
    "a statement is being typed: ; ends it, \\r or Ctrl-C discards it, \\q ends the shell";

/// Parses a line as a command: a line that begins with a backslash, or one of the words `quit`, `exit` and `help`.
/// Within a statement, these words belong to the statement.
pub(super) fn parse(line: &str, within_statement: bool) -> Option<Command> {
    let line = line.trim();
    let bare = line.trim_end_matches(';').trim_end();
    // Words are commands only between statements.
    let Some(text) = bare.strip_prefix('\\') else {
        if within_statement {
            return None;
        }
        return match bare {
            "quit" | "exit" => Some(Command::Quit),
            "help" => Some(Command::Help),
            _ => None,
        };
    };
    // A backslash command, with everything after it as its argument.
    let (name, argument) = match text.split_once(char::is_whitespace) {
        Some((name, argument)) => (name, argument.trim()),
        None => (text, ""),
    };
    Some(match (name, argument) {
        ("q", _) => Command::Quit,
        ("?", _) => Command::Help,
        ("h", _) => Command::SqlHelp,
        ("r", _) => Command::Reset,
        ("d" | "dt" | "d+" | "dt+", "") => Command::Run("SHOW TABLES".to_owned()),
        ("d" | "d+", table) => Command::Run(format!("DESCRIBE {table}")),
        ("l" | "l+", _) => Command::Run("SHOW DATABASES".to_owned()),
        ("c" | "connect", database) if !database.is_empty() => {
            Command::Run(format!("USE {database}"))
        }
        _ => Command::Unknown(format!("unknown command \\{name}; \\? lists the commands")),
    })
}

/// True if a line within a statement is a word with which users try to leave.
pub(super) fn tries_to_leave(line: &str) -> bool {
    matches!(line.trim().trim_end_matches(';'), "quit" | "exit" | "help")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_type_in_psql_is_understood() {
        let run = |sql: &str| Some(Command::Run(sql.to_owned()));
        for (line, command) in [
            ("\\q", Some(Command::Quit)),
            (" quit ", Some(Command::Quit)),
            ("exit;", Some(Command::Quit)),
            ("help", Some(Command::Help)),
            ("\\?", Some(Command::Help)),
            ("\\h SELECT", Some(Command::SqlHelp)),
            ("\\d", run("SHOW TABLES")),
            ("\\dt", run("SHOW TABLES")),
            ("\\d events;", run("DESCRIBE events")),
            ("\\d \"Odd name\"", run("DESCRIBE \"Odd name\"")),
            ("\\l", run("SHOW DATABASES")),
            ("\\c other", run("USE other")),
            ("SELECT 1;", None),
            ("helpful", None),
            ("", None),
        ] {
            assert_eq!(parse(line, false), command, "{line}");
        }
        assert!(matches!(parse("\\timing", false), Some(Command::Unknown(_))));
        assert!(matches!(parse("\\c", false), Some(Command::Unknown(_))));
    }

    #[test]
    fn words_within_a_statement_are_part_of_it_and_backslashes_are_not() {
        assert_eq!(parse("quit", true), None);
        assert!(tries_to_leave("quit"));
        assert_eq!(parse("\\q", true), Some(Command::Quit));
        assert_eq!(parse("\\r", true), Some(Command::Reset));
    }
}

//! Errors of statements as text: the line in which the server found the error, with a caret below it.

use tokio_postgres::error::ErrorPosition;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::format::printable;

/// Maximum columns of a line that is shown; longer lines are cut around the position.
const LINE_COLUMNS: usize = 60;

/// A statement that failed, or a connection that is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Failure {
    /// Severity, message and SQLSTATE.
    pub(super) text: String,
    /// Letter of the statement at which the error is, the first one being 1.
    pub(super) position: Option<usize>,
    /// Lines of detail and hint.
    pub(super) more: String,
    /// True if the connection is gone.
    pub(super) is_lost: bool,
}

impl Failure {
    /// Failure of the shell itself.
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Text for the reader. With a position, the line of the statement is shown.
    pub(super) fn describe(&self, statement: &str) -> String {
        let mut text = printable(&self.text);
        if let Some(lines) = self.position.and_then(|position| pointed(statement, position)) {
            text.push('\n');
            text.push_str(&lines);
        }
        text.push_str(&printable(&self.more));
        text
    }
}

impl From<&tokio_postgres::Error> for Failure {
    fn from(error: &tokio_postgres::Error) -> Self {
        let Some(server_error) = error.as_db_error() else {
            return Self { text: error.to_string(), ..Self::default() };
        };
        let position = match server_error.position() {
            Some(ErrorPosition::Original(position)) => usize::try_from(*position).ok(),
            Some(ErrorPosition::Internal { .. }) | None => None,
        };
        let code = server_error.code().code();
        Self {
            text: format!(
                "{}: {} (SQLSTATE {code})",
                server_error.severity(),
                server_error.message()
            ),
            position,
            more: details(server_error.detail(), server_error.hint()),
            is_lost: false,
        }
    }
}

/// Lines of detail and hint, each after a line feed.
pub(super) fn details(detail: Option<&str>, hint: Option<&str>) -> String {
    let mut text = String::new();
    for (label, more) in [("DETAIL", detail), ("HINT", hint)] {
        if let Some(more) = more {
            text.push_str(&format!("\n{label}: {more}"));
        }
    }
    text
}

/// The line of a position, which is counted from 1, and a caret below it.
fn pointed(statement: &str, position: usize) -> Option<String> {
    let mut remaining = position.checked_sub(1)?;
    let mut lines = statement.split('\n').enumerate();
    let (number, line) = lines.find(|(_, line)| {
        let length = line.chars().count();
        let is_here = remaining <= length;
        if !is_here {
            remaining -= length + 1;
        }
        is_here
    })?;
    let before: String = line.chars().take(remaining).collect();
    let after: String = line.chars().skip(remaining).collect();
    // Half of the columns before the position, and what remains of them after it.
    let before = printable(before.trim_end_matches('\r'));
    let after = printable(after.trim_end_matches('\r'));
    let is_cut = before.width() + after.width() > LINE_COLUMNS;
    let room = if is_cut { LINE_COLUMNS / 2 } else { before.width() };
    let head = end_of(&before, room);
    let head_dots = if head.width() < before.width() { "..." } else { "" };
    let room = if is_cut { LINE_COLUMNS - head.width() } else { after.width() };
    let tail = start_of(&after, room);
    let tail_dots = if tail.width() < after.width() { "..." } else { "" };
    let label = format!("LINE {}: ", number + 1);
    let space = " ".repeat(label.width() + head_dots.width() + head.width());
    Some(format!("{label}{head_dots}{head}{tail}{tail_dots}\n{space}^"))
}

/// Start of a text that fits into some columns.
fn start_of(text: &str, columns: usize) -> String {
    let mut width = 0;
    let fits = |letter: &char| {
        width += letter.width().unwrap_or(0);
        width <= columns
    };
    text.chars().take_while(fits).collect()
}

/// End of a text that fits into some columns.
fn end_of(text: &str, columns: usize) -> String {
    let backwards: String = text.chars().rev().collect();
    start_of(&backwards, columns).chars().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(statement: &str, position: usize) -> String {
        let failure = Failure {
            text: "ERROR: wrong".to_owned(),
            position: Some(position),
            more: details(None, Some("try again")),
            is_lost: false,
        };
        failure.describe(statement)
    }

    #[test]
    fn a_caret_stands_below_the_position() {
        assert_eq!(
            described("SELECT 1,\n  nothing\nFROM t", 13),
            "ERROR: wrong\nLINE 2:   nothing\n          ^\nHINT: try again"
        );
        assert_eq!(
            described("SELECT 'größe' x y", 18),
            "ERROR: wrong\nLINE 1: SELECT 'größe' x y\n                         ^\nHINT: try again"
        );
        assert_eq!(
            described("東京 x", 4),
            "ERROR: wrong\nLINE 1: 東京 x\n             ^\nHINT: try again"
        );
    }

    #[test]
    fn the_end_of_the_statement_is_a_position_and_nothing_beyond_it_is() {
        assert_eq!(
            described("SELECT", 7),
            "ERROR: wrong\nLINE 1: SELECT\n              ^\nHINT: try again"
        );
        assert_eq!(described("SELECT", 8), "ERROR: wrong\nHINT: try again");
        assert_eq!(described("SELECT", 0), "ERROR: wrong\nHINT: try again");
    }

    #[test]
    fn a_long_line_is_cut_around_the_position() {
        let statement = format!("SELECT {}, x, {}", "a".repeat(100), "b".repeat(100));
        let text = described(&statement, 110);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("LINE 1: ...aaa"), "{text}");
        assert!(lines[1].ends_with("bbb..."), "{text}");
        let caret = lines[2].find('^').unwrap();
        assert_eq!(&lines[1][caret..=caret], "x");
    }

    #[test]
    fn no_message_steers_the_terminal() {
        let failure = Failure::new("ERROR: \u{1b}[2J");
        assert_eq!(failure.describe(""), "ERROR: \\x1B[2J");
    }
}

//! Completion of keywords, tables, columns and commands.
//!
//! Candidates are the words that begin with what stands before the cursor. After words that a table follows there are only
//! tables, and after a table and a dot only the columns of that table.

use std::collections::{BTreeMap, BTreeSet};

use super::help;

/// Maximum candidates.
const CANDIDATES_MAX: usize = 500;

/// Words of SQL that are completed beside the first words of statements.
const KEYWORDS: [&str; 64] = [
    "ADD",
    "ALL",
    "AND",
    "AS",
    "ASC",
    "BETWEEN",
    "BIGINT",
    "BOOLEAN",
    "BY",
    "CASCADE",
    "CASE",
    "COLUMN",
    "CONFLICT",
    "COUNT",
    "CROSS",
    "DATABASES",
    "DEFAULT",
    "DESC",
    "DISTINCT",
    "DO",
    "DOUBLE",
    "ELSE",
    "END",
    "EXCEPT",
    "EXISTS",
    "FALSE",
    "FROM",
    "FULL",
    "GROUP",
    "HASH",
    "HAVING",
    "IF",
    "IN",
    "INNER",
    "INTERSECT",
    "INTO",
    "IS",
    "JOIN",
    "KEY",
    "LEFT",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "PARTITION",
    "PARTITIONS",
    "PRIMARY",
    "RETURNING",
    "RIGHT",
    "TABLES",
    "THEN",
    "TIMESTAMP",
    "TRUE",
    "UNION",
    "USING",
    "VALUES",
    "WHEN",
    "WHERE",
    "WITH",
];
/// Words that the name of a table follows.
const BEFORE_TABLES: [&str; 9] =
    ["FROM", "JOIN", "INTO", "TABLE", "UPDATE", "DESCRIBE", "TRUNCATE", "VIEW", "HOTSPOT"];
/// Commands of the shell.
const COMMANDS: [&str; 31] = [
    "\\?",
    "\\a",
    "\\c",
    "\\conninfo",
    "\\d",
    "\\df",
    "\\di",
    "\\dm",
    "\\dn",
    "\\ds",
    "\\dt",
    "\\du",
    "\\dv",
    "\\echo",
    "\\g",
    "\\gx",
    "\\h",
    "\\i",
    "\\l",
    "\\o",
    "\\p",
    "\\pset",
    "\\q",
    "\\qecho",
    "\\r",
    "\\set",
    "\\t",
    "\\timing",
    "\\unset",
    "\\watch",
    "\\x",
];

/// Names of the database that can be completed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    /// Columns by table.
    tables: BTreeMap<String, BTreeSet<String>>,
}

impl Names {
    /// Query of the names: table and column, at most so many that a database of any size is no burden. Names of other
    /// schemas are `schema.table`.
    pub(super) const QUERY: &'static str = "\
        SELECT CASE WHEN table_schema = current_schema() THEN table_name \
        ELSE concat(table_schema, '.', table_name) END, column_name \
        FROM information_schema.columns \
        WHERE table_schema NOT IN ('information_schema', 'pg_catalog') LIMIT 20000";

    /// Adds a row of the query.
    pub(super) fn add(&mut self, row: &[Option<String>]) {
        let [Some(table), Some(column)] = row else { return };
        self.tables.entry(table.clone()).or_default().insert(column.clone());
    }

    /// Candidates for the word that ends at a byte of the line, and the byte at which it begins.
    pub(super) fn complete(&self, line: &str, position: usize) -> (usize, Vec<String>) {
        let prefix = line.get(..position).unwrap_or(line);
        let is_end = |letter: char| letter.is_whitespace() || "(),;=<>+*/'\"".contains(letter);
        let start = prefix.rfind(is_end).map_or(0, |index| {
            index
                + prefix.get(index..).and_then(|text| text.chars().next()).map_or(1, char::len_utf8)
        });
        let word = prefix.get(start..).unwrap_or_default();
        let head = prefix.get(..start).unwrap_or_default();
        let mut candidates: BTreeSet<String> = BTreeSet::new();
        if word.starts_with('\\') {
            let commands = COMMANDS.iter().filter(|command| command.starts_with(word));
            candidates.extend(commands.map(|command| (*command).to_owned()));
        } else if follows_command(head) || table_follows(head) {
            candidates.extend(self.tables_with(word));
        } else if !word.is_empty() {
            candidates.extend(self.columns_with(word));
            candidates.extend(self.tables_with(word));
            candidates.extend(keywords_with(word));
        }
        (start, candidates.into_iter().take(CANDIDATES_MAX).collect())
    }

    fn tables_with(&self, word: &str) -> impl Iterator<Item = String> {
        let tables = self.tables.keys().filter(move |name| begins(name, word));
        tables.map(|name| name.split('.').map(quoted_name).collect::<Vec<_>>().join("."))
    }

    fn columns_with(&self, word: &str) -> BTreeSet<String> {
        let Some((table, word)) = word.rsplit_once('.') else {
            let columns = self.tables.values().flatten().filter(|name| begins(name, word));
            return columns.map(|name| quoted_name(name)).collect();
        };
        let columns = self.tables.get(table).into_iter().flatten();
        let columns = columns.filter(|name| begins(name, word));
        columns.map(|name| format!("{table}.{}", quoted_name(name))).collect()
    }
}

/// True if the words before the cursor are a command of the shell that names relations.
fn follows_command(head: &str) -> bool {
    let mut words = head.split_whitespace();
    words.next().is_some_and(|word| word.starts_with("\\d")) && words.next().is_none()
}

/// True if the last word before the cursor is followed by a table.
fn table_follows(head: &str) -> bool {
    let last = head.split_whitespace().next_back();
    last.is_some_and(|last| BEFORE_TABLES.iter().any(|word| word.eq_ignore_ascii_case(last)))
}

fn begins(name: &str, word: &str) -> bool {
    name.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
}

/// Keywords in the case in which the word was begun.
fn keywords_with(word: &str) -> BTreeSet<String> {
    let is_lower = word.starts_with(char::is_lowercase);
    let firsts = help::names().flat_map(str::split_whitespace);
    let keywords = KEYWORDS.into_iter().chain(firsts).filter(|keyword| begins(keyword, word));
    keywords
        .map(|keyword| if is_lower { keyword.to_lowercase() } else { keyword.to_owned() })
        .collect()
}

/// Name as it stands in a statement: with quotes if it needs them.
fn quoted_name(name: &str) -> String {
    let is_plain = name.starts_with(|letter: char| letter.is_ascii_lowercase() || letter == '_')
        && name
            .chars()
            .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_');
    if is_plain { name.to_owned() } else { super::quote(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let mut names = Names::default();
        for (table, column) in
            [("events", "host"), ("events", "Height"), ("entries", "id"), ("sys.nodes", "node")]
        {
            names.add(&[Some(table.to_owned()), Some(column.to_owned())]);
        }
        names.add(&[Some("partial".to_owned())]);
        names
    }

    /// Candidates at the end of a line.
    fn completed(line: &str) -> Vec<String> {
        let (start, candidates) = names().complete(line, line.len());
        assert!(line.is_char_boundary(start));
        candidates
    }

    #[test]
    fn tables_follow_words_that_expect_them() {
        assert_eq!(completed("SELECT * FROM e"), ["entries", "events"]);
        assert_eq!(completed("select * from ev"), ["events"]);
        assert_eq!(completed("INSERT INTO "), ["entries", "events", "sys.nodes"]);
        assert_eq!(completed("SELECT 1 FROM sys.n"), ["sys.nodes"]);
        assert_eq!(completed("\\d ent"), ["entries"]);
        assert_eq!(completed("\\d+ ent"), ["entries"]);
    }

    #[test]
    fn columns_are_quoted_where_they_need_it() {
        assert_eq!(completed("SELECT hos"), ["host"]);
        assert_eq!(completed("SELECT events.h"), ["events.\"Height\"", "events.host"]);
        assert_eq!(completed("SELECT (Heig"), ["\"Height\""]);
    }

    #[test]
    fn keywords_keep_the_case_that_was_begun() {
        assert_eq!(completed("sel"), ["select"]);
        assert_eq!(completed("SEL"), ["SELECT"]);
        assert_eq!(completed("größe SEL"), ["SELECT"]);
        assert_eq!(completed("\\ti"), ["\\timing"]);
        assert!(completed("").is_empty());
    }

    #[test]
    fn a_cursor_within_a_letter_is_no_reason_to_fail() {
        let (start, _) = names().complete("ü", 1);
        assert!(start <= 2);
    }
}

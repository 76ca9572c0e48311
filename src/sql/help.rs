//! What `\?` and `\h` print.

/// The list of commands, one per line.
pub(super) const HELP: &str = "\
General
  \\q  quit  exit  Ctrl-D       end                      \\?  help            this list
  \\h [STATEMENT]               syntax of statements     \\c [DATABASE]       connect, or show the connection
  Ctrl-C                       cancel the running statement, or discard the input
Statements end with ; and may take several lines
  \\g [FILE | |COMMAND]         run the statement, or the last one, with its results to a file or a command
  \\gx                          the same, expanded       \\watch [SECONDS]    run it again and again
  \\p                           print the statement      \\r                  discard it
  \\i FILE                      run a file               \\o [FILE | |COMMAND] results go there from now on
What the database has; + adds columns, and a name may have * and ?
  \\d[+] [NAME]                 relations, or columns of some
  \\dt \\dv \\dm \\di \\ds[+] [NAME]  tables, views, materialized copies, indexes, sequences
  \\dn[+] \\df \\du \\l[+] [NAME]   schemas, functions, roles, databases
Output
  \\x [on|off]                  one line per value       \\a                  aligned or unaligned
  \\t [on|off]                  rows only                \\timing [on|off]    duration of statements
  \\pset [OPTION [VALUE]]       format (aligned, csv, json, unaligned), expanded, tuples_only, null, fieldsep, pager
  \\echo [-n] TEXT              print a text             \\qecho [-n] TEXT    print it where results go
Variables
  \\set [NAME [VALUE]]          set one, or show all     \\unset NAME         remove one
  :NAME  :'NAME'  :\"NAME\"       value in a statement: as it is, as a string, as a name
  ON_ERROR_STOP                files end at an error; HISTFILE, set by --set, names the file of the history";

/// Page with the statements in full.
const PAGE: &str = "docs/sql.md";

/// Statements, their syntax, and their part of the page.
const STATEMENTS: &[(&str, &str, &str)] = &[
    ("ADMIN", "ADMIN function(argument, ...)", "admin"),
    (
        "ADVISE",
        "ADVISE TABLE t\nADVISE PARTITIONS FOR t RATE rows_per_second\nADVISE PARTITION BY (column) FOR t",
        "statements",
    ),
    ("ALTER DATABASE", "ALTER DATABASE name {SET 'ttl' = '...' | UNSET 'ttl'}", "statements"),
    ("ALTER ROLE", "ALTER ROLE name [WITH] option ...", "roles"),
    ("ALTER SEQUENCE", "ALTER SEQUENCE name option ...", "sequences"),
    ("ALTER TABLE", "ALTER TABLE name action", "alter-table"),
    ("BEGIN", "BEGIN (accepted; it groups nothing)", "differences-from-postgresql"),
    (
        "COMMENT",
        "COMMENT ON {TABLE | VIEW | DATABASE} name IS {'text' | NULL}\nCOMMENT ON COLUMN table.column IS {'text' | NULL}",
        "statements",
    ),
    (
        "COPY",
        "COPY table [(column, ...)] FROM STDIN [WITH (option, ...)]\n\
         COPY {table [(column, ...)] | (query)} TO STDOUT [WITH (option, ...)]",
        "copy",
    ),
    (
        "CREATE DATABASE",
        "CREATE DATABASE [IF NOT EXISTS] name [WITH ('ttl' = '...')]",
        "statements",
    ),
    ("CREATE INDEX", "CREATE INDEX [name] ON table (column)", "indexes"),
    (
        "CREATE MATERIALIZED COPY",
        "CREATE MATERIALIZED COPY name ON table ...",
        "materialized-copies",
    ),
    ("CREATE ROLE", "CREATE ROLE name [WITH] option ...", "roles"),
    ("CREATE SEQUENCE", "CREATE SEQUENCE [IF NOT EXISTS] name [option ...]", "sequences"),
    (
        "CREATE TABLE",
        "CREATE TABLE [IF NOT EXISTS] name (\n  column type [DEFAULT value] [NOT NULL] [TIME INDEX], ...,\n  \
         [PRIMARY KEY (column, ...)]\n) [PARTITION BY HASH (column, ...) PARTITIONS n] [WITH ('option' = 'value', ...)]",
        "create-table",
    ),
    ("CREATE TASK", "CREATE TASK name ...", "tasks"),
    ("CREATE TOKEN", "CREATE TOKEN name ...", "tokens"),
    ("CREATE VIEW", "CREATE [OR REPLACE] VIEW name [(column, ...)] AS query", "views"),
    ("DELETE", "DELETE FROM table [AS alias] [WHERE condition] [RETURNING ...]", "statements"),
    ("DESCRIBE", "DESCRIBE [TABLE] table", "statements"),
    ("DROP DATABASE", "DROP DATABASE [IF EXISTS] name [CASCADE]", "statements"),
    ("DROP INDEX", "DROP INDEX name", "indexes"),
    ("DROP SEQUENCE", "DROP SEQUENCE [IF EXISTS] name", "sequences"),
    ("DROP TABLE", "DROP TABLE [IF EXISTS] table, ... [CASCADE | RESTRICT]", "statements"),
    ("DROP VIEW", "DROP VIEW [IF EXISTS] name", "views"),
    ("EXPLAIN", "EXPLAIN [ANALYZE] [VERBOSE] statement\nEXPLAIN HOTSPOT table", "statements"),
    ("GRANT", "GRANT right, ... ON object TO role, ...", "rights"),
    (
        "INSERT",
        "INSERT INTO table [(column, ...)] {VALUES (value, ...), ... | query | DEFAULT VALUES}\n  \
         [ON CONFLICT ...] [RETURNING ...]",
        "statements",
    ),
    ("PREPARE", "PREPARE name [(type, ...)] AS statement", "statements"),
    ("REVOKE", "REVOKE right, ... ON object FROM role, ...", "rights"),
    (
        "SELECT",
        "[WITH [RECURSIVE] name AS (query), ...]\nSELECT [DISTINCT] expression, ... [FROM table, ...] [WHERE condition]\n  \
         [GROUP BY expression, ...] [HAVING condition] [ORDER BY expression, ...] [LIMIT n] [OFFSET n]",
        "statements",
    ),
    ("SET", "SET [LOCAL | SESSION] setting {= | TO} value", "statements"),
    (
        "SHOW",
        "SHOW {DATABASES | TABLES | PARTITIONS FROM t | COLUMNS FROM t | INDEX FROM t | CREATE TABLE t | setting | ALL}",
        "statements",
    ),
    ("TRUNCATE", "TRUNCATE [TABLE] table, ...", "statements"),
    (
        "UPDATE",
        "UPDATE table SET column = value, ... [FROM table, ...] [WHERE condition] [RETURNING ...]",
        "update",
    ),
    (
        "UPSERT",
        "UPSERT INTO table [(column, ...)] {VALUES (value, ...), ... | query}",
        "statements",
    ),
    ("USE", "USE [DATABASE] name", "statements"),
];

/// Syntax of the statements that begin with some words, or without words the names of all.
pub(super) fn statements(topic: &str) -> String {
    let words: Vec<String> = topic.split_whitespace().map(str::to_uppercase).collect();
    let topic = words.join(" ");
    if topic.is_empty() || topic == "*" {
        let names: Vec<&str> = STATEMENTS.iter().map(|(name, _, _)| *name).collect();
        let lines = names.chunks(4).map(|names| {
            let padded: Vec<String> = names.iter().map(|name| format!("{name:<26}")).collect();
            padded.concat().trim_end().to_owned()
        });
        return format!(
            "{}\n\\h STATEMENT prints its syntax; {PAGE} describes statements, types and functions,\n\
             docs/system-tables.md the tables of sys.",
            lines.collect::<Vec<_>>().join("\n")
        );
    }
    // Words beyond those of a name, such as a table's, are no reason to find nothing.
    let matching = |topic: &str| {
        let begins = |name: &str| {
            name == topic || name.strip_prefix(topic).is_some_and(|more| more.starts_with(' '))
        };
        let matches = STATEMENTS.iter().filter(|(name, _, _)| begins(name));
        matches
            .map(|(name, syntax, part)| {
                let indented = syntax.replace('\n', "\n  ");
                format!("{name}\n  {indented}\n  See {PAGE}#{part}")
            })
            .collect::<Vec<_>>()
    };
    for length in (1..=words.len()).rev() {
        let texts = words.get(..length).map(|words| matching(&words.join(" ")));
        if let Some(texts) = texts.filter(|texts| !texts.is_empty()) {
            return texts.join("\n\n");
        }
    }
    format!("no help for \"{topic}\"; \\h lists the statements")
}

/// First words of statements, for completion.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    STATEMENTS.iter().map(|(name, _, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_found_by_the_words_that_a_statement_begins_with() {
        assert!(statements("").contains("CREATE TABLE"));
        assert!(statements("create table events").starts_with("CREATE TABLE\n"));
        let creates = statements("CREATE");
        assert!(creates.contains("CREATE INDEX") && creates.contains("CREATE VIEW"), "{creates}");
        assert!(!creates.contains("DROP"), "{creates}");
        assert!(statements("dance").starts_with("no help for \"DANCE\""));
    }

    #[test]
    fn each_statement_names_a_heading_of_the_page() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
        let page = std::fs::read_to_string(path).unwrap();
        let headings: Vec<String> = page
            .lines()
            .filter(|line| line.starts_with('#'))
            .map(|line| {
                let text = line.trim_start_matches('#').trim().to_lowercase();
                text.replace(' ', "-").replace(',', "")
            })
            .collect();
        for (name, _, part) in STATEMENTS {
            assert!(headings.iter().any(|heading| heading == part), "{name}: {part}");
        }
    }

    #[test]
    fn lines_fit_into_a_terminal() {
        for line in HELP.lines().chain(statements("").lines()) {
            assert!(line.chars().count() <= 120, "{line}");
        }
    }
}

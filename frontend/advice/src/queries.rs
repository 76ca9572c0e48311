//! Tables and statements of files, for `partita lint`: no server, no figures.
//!
//! Statements are scanned word by word, without a planner: a column is one that a named table declares, and its filter is
//! what the next word says. What is not understood is left out, so that no finding rests on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use partita_proto::catalog::{DEFAULT_DATABASE, Table};
use partita_proto::index::default_name;
use partita_sql::Statement;
use partita_sql::fingerprint::fingerprint;

use crate::ddl::table_of;
use crate::declared::facts_of_table;
use crate::measurements::{Filter, FilterClass, IndexFacts, Join, StatementShape, TableFacts};
use crate::table::qualified;

/// A table that a file declares.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Facts of the definition.
    pub facts: TableFacts,
    /// The table as meta would create it.
    pub table: Arc<Table>,
}

/// SQLSTATE of a text that is no statement.
const SYNTAX_ERROR: &str = "42601";
/// Words with which statements begin that say nothing of the columns of a table, or nothing that is looked at.
const OTHER_COMMANDS: [&str; 41] = [
    "abort",
    "admin",
    "advise",
    "alter",
    "analyze",
    "begin",
    "call",
    "checkpoint",
    "close",
    "cluster",
    "comment",
    "commit",
    "copy",
    "create",
    "deallocate",
    "declare",
    "desc",
    "describe",
    "discard",
    "do",
    "drop",
    "end",
    "execute",
    "fetch",
    "grant",
    "lock",
    "merge",
    "prepare",
    "reassign",
    "refresh",
    "reindex",
    "reset",
    "revoke",
    "rollback",
    "savepoint",
    "set",
    "show",
    "start",
    "truncate",
    "update",
    "vacuum",
];
/// Words with which statements begin that read or write rows, and that must parse.
const ROW_COMMANDS: [&str; 7] =
    ["select", "with", "values", "table", "insert", "delete", "explain"];

/// True if a statement begins with one of some words.
fn begins_with(tokens: &[Token<'_>], words: &[&str]) -> bool {
    tokens.first().is_some_and(|token| words.iter().any(|word| token.is(word)))
}

/// The texts of the statements of a text, with the first tokens of each.
fn begun(sql: &str) -> impl Iterator<Item = (&str, Vec<Token<'_>>)> {
    partita_sql::texts(sql).into_iter().filter_map(|text| {
        let (_, tokens) = statements(text).into_iter().next()?;
        Some((text, tokens))
    })
}

/// Checks that a text consists of statements. Queries may have question marks as parameters; what is valid in PostgreSQL and
/// not supported here is left out.
///
/// # Errors
/// A message with the number of the first statement that does not parse.
pub fn check_statements(sql: &str) -> Result<(), String> {
    for (number, (text, tokens)) in (1..).zip(begun(sql)) {
        if begins_with(&tokens, &OTHER_COMMANDS) {
            continue;
        }
        let is_known = begins_with(&tokens, &ROW_COMMANDS) || tokens[0].is_mark("(");
        if let Err(error) = partita_sql::parse(&text.replace('?', "$1"))
            && (!is_known || error.sqlstate == SYNTAX_ERROR)
        {
            return Err(format!("statement {number}: {error}"));
        }
    }
    Ok(())
}

/// The tables that the CREATE TABLE statements of a text make, with the indexes of its CREATE INDEX statements. Other
/// statements are left out.
///
/// # Errors
/// The message of the first of them that does not parse, that contradicts itself, or that makes a table anew; and of a
/// text that is no statement.
pub fn declared_tables(sql: &str) -> Result<Vec<Declared>, String> {
    let mut tables: Vec<Declared> = Vec::new();
    for (text, tokens) in begun(sql) {
        let is_declaration = begins_with(&tokens, &["create"])
            && tokens.get(1).is_some_and(|token| token.is("table") || token.is("index"));
        let is_other = [&OTHER_COMMANDS[..], &ROW_COMMANDS[..]]
            .iter()
            .any(|commands| begins_with(&tokens, commands));
        if is_other && !is_declaration {
            continue;
        }
        for statement in partita_sql::parse(text).map_err(|error| error.to_string())? {
            declare(statement, &mut tables)?;
        }
    }
    Ok(tables)
}

/// Adds the table or the index of a statement.
fn declare(statement: Statement, tables: &mut Vec<Declared>) -> Result<(), String> {
    match statement {
        Statement::CreateTable(create) => {
            let name = create.table.name.clone();
            let created = create.to_new_table(DEFAULT_DATABASE);
            let (new_table, _) = created.map_err(|error| format!("table \"{name}\": {error}"))?;
            let table = table_of(&new_table);
            let table = table.ok_or_else(|| format!("table \"{name}\" contradicts itself"))?;
            let is_same = |other: &Declared| {
                (&other.table.database, &other.table.name) == (&table.database, &table.name)
            };
            match (tables.iter().any(is_same), create.if_not_exists) {
                (false, _) => {
                    tables.push(Declared { facts: facts_of_table(&table), table: Arc::new(table) });
                    Ok(())
                }
                (true, true) => Ok(()),
                (true, false) => Err(format!("relation \"{name}\" already exists")),
            }
        }
        Statement::CreateIndex(create) => {
            let is_meant = |table: &&mut Declared| table.facts.name == create.table.name;
            let column = tables.iter_mut().find(is_meant).and_then(|table| {
                table.facts.columns.iter_mut().find(|column| column.name == create.column)
            });
            let Some(column) = column else {
                return Err(format!(
                    "column \"{}\" of table \"{}\" does not exist",
                    create.column, create.table.name
                ));
            };
            let kind = create.options.kind();
            let made_name = || default_name(&create.table.name, &column.name, kind);
            let name = create.name.unwrap_or_else(made_name);
            let kind = kind.method().to_owned();
            column.indexes.push(IndexFacts { name, kind, ..IndexFacts::default() });
            Ok(())
        }
        _ => Ok(()),
    }
}

/// A word, a literal or a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token<'t> {
    /// A name or keyword; names without quotes are folded.
    Word(String),
    /// A literal or a parameter.
    Literal,
    /// An operator or a punctuation mark.
    Mark(&'t str),
}

impl Token<'_> {
    fn is(&self, word: &str) -> bool {
        matches!(self, Self::Word(text) if text == word)
    }

    fn is_mark(&self, mark: &str) -> bool {
        matches!(self, Self::Mark(text) if *text == mark)
    }
}

/// Length of what begins a text up to a closing quote, both included; a doubled quote is part of it.
fn quoted(text: &str, quote: char) -> usize {
    let mut rest = text.char_indices().skip(1).peekable();
    while let Some((position, c)) = rest.next() {
        if c == quote && rest.next_if(|(_, next)| *next == quote).is_none() {
            return position + quote.len_utf8();
        }
    }
    text.len()
}

fn run(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|c: char| !belongs(c)).unwrap_or(text.len())
}

/// The statements of a text: each with its tokens.
fn statements(text: &str) -> Vec<(&str, Vec<Token<'_>>)> {
    let mut statements = Vec::new();
    let mut tokens = Vec::new();
    let (mut begin, mut position) = (0, 0);
    while position < text.len() {
        let rest = &text[position..];
        let Some(first) = rest.chars().next() else { break };
        let length = match first {
            _ if first.is_whitespace() => first.len_utf8(),
            '-' if rest.starts_with("--") => run(rest, |c| c != '\n'),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            ';' => {
                statements.push((text[begin..position].trim(), std::mem::take(&mut tokens)));
                begin = position + 1;
                1
            }
            '\'' => {
                tokens.push(Token::Literal);
                quoted(rest, '\'')
            }
            '"' | '`' => {
                let length = quoted(rest, first);
                let inner = rest.get(1..length.saturating_sub(1)).unwrap_or_default();
                let doubled = format!("{first}{first}");
                tokens.push(Token::Word(inner.replace(&doubled, &first.to_string())));
                length
            }
            '$' | '?' => {
                tokens.push(Token::Literal);
                1 + run(&rest[1..], |c| c.is_ascii_digit())
            }
            _ if first.is_ascii_digit() => {
                tokens.push(Token::Literal);
                run(rest, |c| c.is_ascii_alphanumeric() || c == '.' || c == '_')
            }
            _ if first.is_alphabetic() || first == '_' => {
                let length = run(rest, |c| c.is_alphanumeric() || c == '_');
                tokens.push(Token::Word(rest[..length].to_lowercase()));
                length
            }
            _ => {
                let is_operator = |c: char| "=<>!~@".contains(c);
                let length =
                    if is_operator(first) { run(rest, is_operator) } else { first.len_utf8() };
                tokens.push(Token::Mark(&rest[..length]));
                length
            }
        };
        position += length;
    }
    statements.push((text[begin..].trim(), tokens));
    statements.retain(|(_, tokens)| !tokens.is_empty());
    statements
}

/// Words that end a list of tables or a condition.
const CLAUSES: [&str; 17] = [
    "where", "group", "order", "limit", "having", "union", "on", "join", "inner", "left", "right",
    "full", "cross", "set", "values", "select", "using",
];

/// Part of a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clause {
    Output,
    Tables,
    Condition,
    Sort,
}

/// A table of a statement, with the name that columns are qualified by.
struct Named<'d> {
    facts: &'d TableFacts,
    alias: String,
}

struct Scan<'t, 'd> {
    tokens: &'t [Token<'t>],
    tables: Vec<Named<'d>>,
}

impl<'d> Scan<'_, 'd> {
    fn token(&self, position: usize) -> Option<&Token<'_>> {
        self.tokens.get(position)
    }

    fn word(&self, position: usize) -> Option<&str> {
        match self.token(position)? {
            Token::Word(word) => Some(word),
            Token::Literal | Token::Mark(_) => None,
        }
    }

    fn is_mark(&self, position: usize, mark: &str) -> bool {
        self.token(position).is_some_and(|token| token.is_mark(mark))
    }

    /// Finds the tables: names behind FROM, JOIN, INTO and commas between these.
    fn find_tables(&mut self, declared: &'d [Declared]) {
        let mut is_listing = false;
        for position in 0..self.tokens.len() {
            let begins = ["from", "join", "into", "update"]
                .iter()
                .any(|word| self.tokens[position].is(word));
            is_listing =
                begins || is_listing && !CLAUSES.iter().any(|word| self.tokens[position].is(word));
            let is_next = begins || self.is_mark(position, ",");
            if !is_listing || !is_next {
                continue;
            }
            let is_qualified = self.is_mark(position + 2, ".");
            let last = position + if is_qualified { 3 } else { 1 };
            let Some(name) = self.word(last) else { continue };
            let Some(table) = declared.iter().find(|table| table.facts.name == name) else {
                continue;
            };
            let alias_position = last + 1 + usize::from(self.word(last + 1) == Some("as"));
            let alias = self.word(alias_position).filter(|word| !CLAUSES.contains(word));
            let alias = alias.unwrap_or(name).to_owned();
            self.tables.push(Named { facts: &table.facts, alias });
        }
    }

    /// The column that is named at a position, with its table, and the position behind it.
    fn column(&self, position: usize) -> Option<(&'d TableFacts, String, usize)> {
        let first = self.word(position)?;
        let has =
            |facts: &TableFacts, name: &str| facts.columns.iter().any(|column| column.name == name);
        if self.is_mark(position + 1, ".") {
            let name = self.word(position + 2)?;
            let table = self
                .tables
                .iter()
                .find(|table| table.alias == first || table.facts.name == first)?;
            return has(table.facts, name).then(|| (table.facts, name.to_owned(), position + 3));
        }
        // The second half of a qualified name was looked at with the first.
        if position > 0 && self.is_mark(position - 1, ".") {
            return None;
        }
        let table = self.tables.iter().find(|table| has(table.facts, first))?;
        Some((table.facts, first.to_owned(), position + 1))
    }

    /// The class of the test behind a column.
    fn class(&self, position: usize) -> Option<FilterClass> {
        // NOT LIKE and the like find no rows by an index.
        Some(match self.token(position)? {
            Token::Mark("=") => FilterClass::Point,
            Token::Mark("<" | ">" | "<=" | ">=") => FilterClass::Range,
            Token::Mark("~" | "~*" | "=~") => FilterClass::Pattern,
            Token::Mark("@@") => FilterClass::Terms,
            Token::Word(word) => match word.as_str() {
                "in" => FilterClass::Points,
                "between" => FilterClass::Range,
                "like" | "ilike" | "similar" => FilterClass::Pattern,
                "is" => FilterClass::Null,
                _ => return None,
            },
            Token::Literal | Token::Mark(_) => return None,
        })
    }

    /// True if a column at a position is the text that a full-text function searches.
    fn is_searched(&self, position: usize) -> bool {
        let is_call = |back: usize, names: &[&str]| {
            position >= back
                && self.is_mark(position + 1 - back, "(")
                && self.word(position - back).is_some_and(|word| names.contains(&word))
        };
        let functions = ["matches", "matches_term"];
        is_call(2, &functions)
            || is_call(2, &["lower"])
                && position >= 4
                && self.is_mark(position - 3, "(")
                && self.word(position - 4).is_some_and(|word| functions.contains(&word))
    }

    fn shape(&self, text: &str) -> StatementShape {
        let (hash, shape_text) = fingerprint(text);
        let mut shape = StatementShape {
            fingerprint: hash,
            text: shape_text,
            kind: self.word(0).unwrap_or_default().to_uppercase(),
            tables: self.tables.iter().map(|table| qualified(table.facts)).collect(),
            calls: 1,
            ..StatementShape::default()
        };
        shape.tables.sort_unstable();
        shape.tables.dedup();
        let mut clause = Clause::Output;
        for position in 0..self.tokens.len() {
            clause = match self.word(position) {
                Some("from" | "join" | "into") => Clause::Tables,
                Some("where" | "on" | "having") => Clause::Condition,
                Some("order") => Clause::Sort,
                Some("group" | "limit" | "select" | "union") => Clause::Output,
                _ => clause,
            };
            if clause == Clause::Output && self.is_mark(position, "*") {
                for table in &self.tables {
                    let columns = table.facts.columns.iter();
                    shape.columns.extend(
                        columns.map(|column| (qualified(table.facts), column.name.clone())),
                    );
                }
            }
            if clause == Clause::Tables {
                continue;
            }
            let Some((table, column, end)) = self.column(position) else { continue };
            self.add_column(&mut shape, clause, (table, column), position..end);
        }
        shape.columns.sort_unstable();
        shape.columns.dedup();
        shape
    }

    fn add_column(
        &self,
        shape: &mut StatementShape,
        clause: Clause,
        (table, column): (&'d TableFacts, String),
        place: std::ops::Range<usize>,
    ) {
        let name = qualified(table);
        shape.columns.push((name.clone(), column.clone()));
        if clause == Clause::Sort {
            shape.sorts.push((name.clone(), column.clone()));
        }
        // A comparison with a column of another table joins the two.
        if self.is_mark(place.end, "=")
            && let Some((joined, joined_column, _)) = self.column(place.end + 1)
        {
            if qualified(joined) != name && joined_column == column {
                let right = qualified(joined);
                match shape.joins.iter_mut().find(|join| join.left == name && join.right == right) {
                    Some(join) => join.on.push(column),
                    None => shape.joins.push(Join { left: name, right, on: vec![column] }),
                }
            }
            return;
        }
        if clause != Clause::Condition {
            return;
        }
        let class = if self.is_searched(place.start) {
            Some(FilterClass::Terms)
        } else {
            self.class(place.end)
        };
        if let Some(class) = class {
            let filter = Filter { table: name, column, class };
            if !shape.filters.contains(&filter) {
                shape.filters.push(filter);
            }
        }
    }
}

/// The shapes of the statements of a text that read declared tables.
pub fn statement_shapes(sql: &str, declared: &[Declared]) -> Vec<StatementShape> {
    let mut shapes: BTreeMap<u64, StatementShape> = BTreeMap::new();
    for (text, tokens) in statements(sql) {
        let mut scan = Scan { tokens: &tokens, tables: Vec::new() };
        scan.find_tables(declared);
        if scan.tables.is_empty() {
            continue;
        }
        let shape = scan.shape(text);
        let calls = shapes.get(&shape.fingerprint).map_or(0, |shape| shape.calls);
        shapes.insert(shape.fingerprint, StatementShape { calls: calls + 1, ..shape });
    }
    shapes.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = "CREATE TABLE http_logs (access_time TIMESTAMP TIME INDEX, application STRING, \
         http_method STRING, request STRING, PRIMARY KEY (application)) WITH ('append_mode' = 'true'); \
         CREATE TABLE \"Hosts\" (application STRING, access_time TIMESTAMP TIME INDEX, owner STRING, \
         PRIMARY KEY (application)); \
         CREATE INDEX methods ON http_logs USING inverted (http_method); SELECT 1";

    fn only(sql: &str) -> StatementShape {
        let tables = declared_tables(SCHEMA).unwrap();
        let shapes = statement_shapes(sql, &tables);
        let [shape] = shapes.as_slice() else { panic!("{shapes:?}") };
        shape.clone()
    }

    fn filters(sql: &str) -> Vec<(String, FilterClass)> {
        only(sql).filters.into_iter().map(|filter| (filter.column, filter.class)).collect()
    }

    #[test]
    fn tables_and_their_indexes_are_declared() {
        let tables = declared_tables(SCHEMA).unwrap();
        assert_eq!(tables.len(), 2);
        assert_eq!(tables[0].facts.columns[2].indexes[0].name, "methods");
        assert!(declared_tables("CREATE TABLE t (a STRING, PRIMARY KEY (b))").is_err());
        assert!(declared_tables("CREATE TABLE t (").is_err());
        assert!(declared_tables("CREATE INDEX ON t USING inverted (c)").is_err());
    }

    #[test]
    fn other_statements_are_left_out_and_other_texts_are_not() {
        let others = "-- A view.\nCREATE VIEW v AS SELECT 1; CREATE FUNCTION f() RETURNS int AS $$ BEGIN; x; END $$; \
                      UPDATE t SET a = 1; COMMENT ON TABLE t IS 'a;b'; CREATE UNIQUE INDEX i ON t (a);;";
        let tables = declared_tables(&format!("{others}{SCHEMA}")).unwrap();
        assert_eq!(tables.len(), 2);
        assert!(declared_tables("CREAT TABLE t (ts TIMESTAMP TIME INDEX)").is_err());
        assert!(declared_tables("garbage").is_err());
        let twice = |clause: &str| {
            let table = "(ts TIMESTAMP TIME INDEX)";
            declared_tables(&format!("CREATE TABLE t {table}; CREATE TABLE {clause} t {table}"))
        };
        assert_eq!(twice("").unwrap_err(), "relation \"t\" already exists");
        assert_eq!(twice("IF NOT EXISTS").unwrap().len(), 1);
        let two = "CREATE TABLE a.t (ts TIMESTAMP TIME INDEX); CREATE TABLE b.t (ts TIMESTAMP TIME INDEX)";
        assert_eq!(declared_tables(two).unwrap().len(), 2);
    }

    #[test]
    fn queries_must_parse() {
        for text in [
            "",
            "-- nothing",
            "SELECT 1 FROM t WHERE a = ? AND b = '?'; (SELECT 1); VALUES (1);",
            "INSERT INTO t VALUES (?, $2); UPDATE t SET a = 1; SET a = 1",
        ] {
            assert_eq!(check_statements(text), Ok(()), "{text}");
        }
        for (text, number) in
            [("SELECT * FROM t WHERE;", 1), ("SELECT 1; garbage", 2), ("SELECT 1;; 'a'", 2)]
        {
            let message = check_statements(text).unwrap_err();
            assert!(message.starts_with(&format!("statement {number}: ")), "{text}: {message}");
        }
    }

    #[test]
    fn filters_are_found_with_their_classes() {
        use FilterClass as F;
        let sql = "SELECT request FROM http_logs WHERE application = 'a' AND http_method IN ('GET') \
                   AND access_time > now() - '5 minute'::INTERVAL AND request LIKE '%x%'";
        assert_eq!(
            filters(sql),
            [
                ("application".to_owned(), F::Point),
                ("http_method".to_owned(), F::Points),
                ("access_time".to_owned(), F::Range),
                ("request".to_owned(), F::Pattern),
            ]
        );
        let sql = "SELECT 1 FROM http_logs WHERE matches_term(lower(request), 'error')";
        assert_eq!(filters(sql), [("request".to_owned(), F::Terms)]);
        let sql = "SELECT 1 FROM http_logs WHERE request @@ 'error' OR request IS NULL";
        assert_eq!(
            filters(sql),
            [("request".to_owned(), F::Terms), ("request".to_owned(), F::Null)]
        );
        assert!(filters("SELECT http_method FROM http_logs ORDER BY http_method").is_empty());
    }

    #[test]
    fn joins_sorts_and_columns_are_found() {
        let shape = only(
            "SELECT l.request, h.owner FROM http_logs AS l JOIN \"Hosts\" h ON l.application = h.application \
             AND l.access_time = h.access_time ORDER BY request",
        );
        assert_eq!(shape.tables, ["public.Hosts", "public.http_logs"]);
        assert_eq!(shape.joins.len(), 1);
        assert_eq!(shape.joins[0].on, ["application", "access_time"]);
        assert_eq!(shape.sorts, [("public.http_logs".to_owned(), "request".to_owned())]);
        assert!(shape.columns.contains(&("public.Hosts".to_owned(), "owner".to_owned())));
        assert_eq!(only("SELECT * FROM http_logs").columns.len(), 4);
    }

    #[test]
    fn statements_that_differ_in_literals_are_one_shape() {
        let shape = only(
            "SELECT 1 FROM http_logs WHERE application = 'a;b'; -- a comment; with a mark\n\
             SELECT 1 FROM http_logs WHERE application = 'it''s'; /* ; */ SELECT 2 FROM elsewhere",
        );
        assert_eq!((shape.calls, shape.kind.as_str()), (2, "SELECT"));
    }

    #[test]
    fn texts_without_end_do_not_panic() {
        for text in
            ["'", "\"", "`", "/*", "--", "$", "SELECT 1 FROM http_logs WHERE request = 'é", "ü;é"]
        {
            statement_shapes(text, &declared_tables(SCHEMA).unwrap());
        }
    }
}

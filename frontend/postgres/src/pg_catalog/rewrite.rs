//! Queries over `pg_catalog` as DataFusion can run them.
//!
//! Clients ask in PostgreSQL's dialect. The library's parser translates most of it (operators with a
//! schema, `::regclass`, `= ANY (..)`); what it does not, is translated here first.

use std::sync::{Arc, LazyLock};

use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::Statement as Tree;
use datafusion_pg_catalog::sql::PostgresCompatibilityParser;
use partita_frontend::sql::statement::{Query, Statement};
use partita_frontend::{Session, SqlError};

static PARSER: LazyLock<PostgresCompatibilityParser> =
    LazyLock::new(PostgresCompatibilityParser::new);

/// What makes a text worth a second look.
const MENTIONS: &[&str] = &[
    "pg_",
    "::reg",
    "as reg",
    "current_schemas",
    "current_setting",
    "to_reg",
    "format_type",
    "_description(",
    "version()",
];

fn mentions(text: &str) -> bool {
    // Rows are no names: an INSERT, which may be long, is not looked through.
    let start = text.trim_start();
    let first = start.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    if !["select", "with"].iter().any(|word| first.eq_ignore_ascii_case(word)) {
        return false;
    }
    let lower = text.to_ascii_lowercase();
    MENTIONS.iter().any(|mention| lower.contains(mention))
}

/// Parses what a client sent.
pub(crate) fn parse(session: &Session, text: &str) -> Result<Vec<Statement>, SqlError> {
    if !mentions(text) {
        return session.parse(text);
    }
    // What the translation cannot read is read as it is, for the better error.
    match PARSER.parse(text) {
        Ok(trees) if trees.iter().all(|tree| matches!(tree, Tree::Query(_))) => {
            Ok(trees.into_iter().map(|tree| translated(text, tree)).collect())
        }
        _ => session.parse(text),
    }
}

fn translated(text: &str, tree: Tree) -> Statement {
    let statement = PlannerStatement::Statement(Box::new(tree));
    Statement::Query(Query { text: Arc::from(text), statement })
}

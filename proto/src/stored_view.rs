//! Views: tables without rows of their own.
//!
//! A view is a table of the catalog whose schema has a [`ViewDefinition`]. It has no key and no partition; a query that
//! names it reads the result of its query. The columns of the schema are those of the view; the storage name of each
//! is the name of the column of the query that it shows.
//!
//! What a view reads is recorded by name, as in its query: a table keeps its name when its rows are placed otherwise,
//! and gets another id.

use serde::{Deserialize, Serialize};

/// A table or view, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RelationName {
    /// Database name.
    pub database: String,
    /// Name in the database.
    pub name: String,
}

/// A stored query, with what SHOW CREATE and dependencies need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewDefinition {
    /// SQL text of the query.
    pub query: String,
    /// Database in which unqualified names of the query are looked up.
    pub database: String,
    /// Tables and views that the query names, sorted.
    pub reads: Vec<RelationName>,
}

impl ViewDefinition {
    /// True if the query names the table or view.
    #[must_use]
    pub fn reads(&self, database: &str, name: &str) -> bool {
        self.reads.iter().any(|read| read.database == database && read.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_reads_what_its_query_names() {
        let read = RelationName { database: "public".to_owned(), name: "t".to_owned() };
        let view = ViewDefinition {
            query: "SELECT a FROM t".to_owned(),
            database: "public".to_owned(),
            reads: vec![read],
        };
        assert!(view.reads("public", "t"));
        assert!(!view.reads("other", "t") && !view.reads("public", "a"));
    }
}

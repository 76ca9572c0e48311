//! Names of tables.

use std::fmt;

use crate::identifier::quote;

/// The name of a table; without a database, the session's applies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    /// The database, if the text names one.
    pub database: Option<String>,
    /// The table's name, folded.
    pub name: String,
}

impl TableName {
    /// A table of the session's database.
    pub fn bare(name: impl Into<String>) -> Self {
        Self { database: None, name: name.into() }
    }

    /// The named database, or else the session's.
    pub fn database_or<'a>(&'a self, session: &'a str) -> &'a str {
        self.database.as_deref().unwrap_or(session)
    }
}

impl fmt::Display for TableName {
    /// Formats the name so that the parser reads it back: quoted where folding or the grammar would change it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(database) = &self.database {
            write!(f, "{}.", quote(database))?;
        }
        f.write_str(&quote(&self.name))
    }
}

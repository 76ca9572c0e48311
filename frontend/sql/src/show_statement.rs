//! SHOW and DESCRIBE.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::statement::{SeriesCardinality, Show, Statement, TableName};
use super::tokens::Tokens;
use crate::error::SqlError;

/// Objects of other databases that may follow SHOW.
const UNSUPPORTED: &[&str] = &[
    "charset",
    "collation",
    "engines",
    "events",
    "flows",
    "functions",
    "plugins",
    "procedure",
    "processlist",
    "series",
    "status",
    "triggers",
    "views",
    "warnings",
];

impl Tokens<'_> {
    /// Takes DESCRIBE [TABLE] table.
    pub(super) fn describe(&mut self) -> Result<Statement, SqlError> {
        self.next();
        if matches!(self.peek_nth(1).token, Token::Word(_)) {
            self.take(&["table"]);
        }
        if ["select", "with", "values"].iter().any(|word| self.at(word)) {
            return Err(self.unsupported("DESCRIBE of a query").with_hint("use EXPLAIN"));
        }
        Ok(Statement::Describe(self.table_name()?))
    }

    /// Takes a SHOW statement.
    pub(super) fn show(&mut self) -> Result<Show, SqlError> {
        self.expect("show")?;
        // Objects of the catalog.
        let full = matches!(self.peek_nth(1).token, Token::Word(_)) && self.take(&["full"]);
        if self.take(&["databases"]) || self.take(&["schemas"]) {
            return Ok(Show::Databases { like: self.like()? });
        }
        if self.take(&["tables"]) {
            let database = self.database()?;
            return Ok(Show::Tables { database, like: self.like()?, full });
        }
        if self.take(&["create", "table"]) {
            return Ok(Show::CreateTable(self.table_name()?));
        }
        if self.take(&["create", "view"]) {
            return Ok(Show::CreateView(self.table_name()?));
        }
        if self.at("create") {
            return Err(self.unsupported("SHOW CREATE of anything but a table or a view"));
        }
        if self.take(&["columns"]) || self.take(&["fields"]) {
            return Ok(Show::Columns(self.described_table("SHOW COLUMNS")?));
        }
        if self.take(&["index"]) || self.take(&["indexes"]) || self.take(&["keys"]) {
            return Ok(Show::Indexes(self.described_table("SHOW INDEX")?));
        }
        if self.take(&["partitions"]) {
            let _ = self.take(&["from"]) || self.take(&["in"]);
            return Ok(Show::Partitions(self.table_name()?));
        }
        // InfluxQL's forms.
        if self.take(&["tag", "keys"]) {
            return Ok(Show::TagKeys(self.optional_table()?));
        }
        if self.take(&["field", "keys"]) {
            return Ok(Show::FieldKeys(self.optional_table()?));
        }
        if self.take(&["measurements"]) {
            let database = if self.take(&["on"]) {
                Some(self.name("a database's name")?)
            } else {
                self.database()?
            };
            return Ok(Show::Measurements { database });
        }
        // Settings with a name of several words.
        if self.take(&["time", "zone"]) {
            return Ok(Show::Variable("timezone".to_owned()));
        }
        if self.take(&["transaction", "isolation", "level"]) {
            return Ok(Show::Variable("transaction_isolation".to_owned()));
        }
        if self.take(&["session", "authorization"]) {
            return Ok(Show::Variable("session_authorization".to_owned()));
        }
        if self.take(&["all"]) {
            return Ok(Show::All);
        }
        // Objects of other databases are refused by name; every other word is a setting.
        if let Some(word) = UNSUPPORTED.iter().find(|word| self.at(word)) {
            return Err(self.unsupported(format!("SHOW {}", word.to_ascii_uppercase())));
        }
        let name = self.setting()?;
        // MySQL's name.
        Ok(Show::Variable(if name == "time_zone" { "timezone".to_owned() } else { name }))
    }

    /// Takes FROM and a table, and perhaps FROM and its database.
    fn described_table(&mut self, statement: &str) -> Result<TableName, SqlError> {
        if !self.take(&["from"]) {
            self.expect("in")?;
        }
        let mut table = self.table_name()?;
        if let Some(database) = self.database()? {
            table.database = Some(database);
        }
        if self.at("like") || self.at("where") {
            return Err(self.unsupported(format!("a filter of {statement}")));
        }
        Ok(table)
    }

    /// True if SHOW SERIES [EXACT] CARDINALITY comes next.
    pub(super) fn shows_series_cardinality(&self) -> bool {
        let is_cardinality = self.at_nth(2, "cardinality")
            || (self.at_nth(2, "exact") && self.at_nth(3, "cardinality"));
        self.at_nth(1, "series") && is_cardinality
    }

    /// Takes SHOW SERIES [EXACT] CARDINALITY [EXACT] [ON database] [FROM table].
    pub(super) fn series_cardinality(&mut self) -> Result<SeriesCardinality, SqlError> {
        self.expect("show")?;
        self.expect("series")?;
        let leading = self.take(&["exact"]);
        self.expect("cardinality")?;
        let exact = leading || self.take(&["exact"]);
        let database =
            if self.take(&["on"]) { Some(self.name("a database's name")?) } else { None };
        if !self.take(&["from"]) {
            return Ok(SeriesCardinality { exact, database, table: None });
        }
        let mut table = self.table_name()?;
        table.database = table.database.or_else(|| database.clone());
        Ok(SeriesCardinality { exact, database, table: Some(table) })
    }

    /// Takes [FROM | IN database].
    fn database(&mut self) -> Result<Option<String>, SqlError> {
        if self.take(&["from"]) || self.take(&["in"]) {
            return Ok(Some(self.name("a database's name")?));
        }
        Ok(None)
    }

    /// Takes [LIKE 'pattern'].
    fn like(&mut self) -> Result<Option<String>, SqlError> {
        if self.take(&["like"]) {
            return Ok(Some(self.string()?));
        }
        if self.at("where") {
            return Err(self.unsupported("SHOW ... WHERE").with_hint("query information_schema"));
        }
        Ok(None)
    }

    /// Takes [ON database] [FROM table].
    fn optional_table(&mut self) -> Result<Option<TableName>, SqlError> {
        let database =
            if self.take(&["on"]) { Some(self.name("a database's name")?) } else { None };
        if !self.take(&["from"]) && !self.take(&["in"]) {
            return match database {
                None => Ok(None),
                Some(_) => Err(self.unexpected("FROM and a table")),
            };
        }
        let mut table = self.table_name()?;
        table.database = table.database.or(database);
        Ok(Some(table))
    }
}

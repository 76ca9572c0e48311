//! Databases and tables as a whole: CREATE, ALTER and DROP DATABASE, DROP TABLE, TRUNCATE, USE.

use std::time::Duration;

use datafusion::sql::sqlparser::tokenizer::Token;

use super::options::{OptionPair, OptionValue};
use super::statement::{
    AlterDatabase, CreateDatabase, DropDatabase, DropTable, Statement, Truncate,
};
use super::tokens::Tokens;
use crate::error::{INVALID_PARAMETER_VALUE, SqlError};
use crate::notice::Notice;

/// Objects of other databases that may follow CREATE, ALTER or DROP.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("aggregate", "AGGREGATE"),
    ("cast", "CAST"),
    ("collation", "COLLATION"),
    ("connector", "CONNECTOR"),
    ("default", "DEFAULT PRIVILEGES"),
    ("domain", "DOMAIN"),
    ("event", "EVENT"),
    ("extension", "EXTENSION"),
    ("external", "EXTERNAL TABLE"),
    ("flow", "FLOW"),
    ("foreign", "FOREIGN TABLE"),
    ("function", "FUNCTION"),
    ("global", "GLOBAL TEMPORARY of anything but a table"),
    ("index", "INDEX"),
    ("language", "LANGUAGE"),
    ("local", "LOCAL TEMPORARY of anything but a table"),
    ("macro", "MACRO"),
    ("materialized", "MATERIALIZED VIEW"),
    ("operator", "OPERATOR"),
    ("pipeline", "PIPELINE"),
    ("policy", "POLICY"),
    ("procedure", "PROCEDURE"),
    ("publication", "PUBLICATION"),
    ("rule", "RULE"),
    ("secret", "SECRET"),
    ("server", "SERVER"),
    ("stream", "STREAM"),
    ("subscription", "SUBSCRIPTION"),
    ("system", "SYSTEM"),
    ("tablespace", "TABLESPACE"),
    ("temp", "TEMPORARY of anything but a table"),
    ("temporary", "TEMPORARY of anything but a table"),
    ("trigger", "TRIGGER"),
    ("type", "TYPE"),
    ("unbounded", "UNBOUNDED TABLE"),
    ("unique", "UNIQUE INDEX"),
    ("unlogged", "UNLOGGED TABLE"),
    ("user", "USER MAPPING"),
    ("view", "VIEW"),
    ("virtual", "VIRTUAL TABLE"),
];

impl Tokens<'_> {
    /// Takes a CREATE statement.
    pub(super) fn create(&mut self) -> Result<Statement, SqlError> {
        self.expect("create")?;
        if self.take(&["table"]) {
            return self.create_table(false, Vec::new());
        }
        if self.take(&["unlogged", "table"]) {
            return self.create_table(false, vec![unlogged()]);
        }
        if self.take_temporary_table() {
            return self.create_table(true, Vec::new());
        }
        if self.take(&["index"]) {
            return self.create_index();
        }
        if self.take(&["database"]) || self.take(&["schema"]) {
            let if_not_exists = self.if_not_exists();
            let name = self.name("a database's name")?;
            if self.at("authorization") {
                return Err(self.unsupported("CREATE SCHEMA ... AUTHORIZATION"));
            }
            let ttl = if self.take(&["with"]) {
                let pairs = self.options()?;
                ttl_of(&pairs)?.unwrap_or_default()
            } else {
                None
            };
            return Ok(Statement::CreateDatabase(CreateDatabase { name, if_not_exists, ttl }));
        }
        if let Some(is_user) = self.role_word() {
            return self.create_role(is_user);
        }
        if self.take(&["token"]) {
            return self.create_token();
        }
        if self.take_org_word() {
            return self.create_org();
        }
        if self.take(&["task"]) {
            return self.create_task();
        }
        if self.take(&["sequence"]) {
            return self.create_sequence();
        }
        if self.take(&["materialized", "copy"]) {
            return self.create_copy();
        }
        if self.take(&["view"]) {
            return self.create_view(false);
        }
        if self.take(&["or", "replace"]) {
            if self.take(&["view"]) {
                return self.create_view(true);
            }
            return Err(self.unsupported("CREATE OR REPLACE of anything but a view"));
        }
        if self.at("recursive") {
            return Err(self.unsupported("CREATE RECURSIVE VIEW"));
        }
        Err(self.foreign_object("CREATE", "TABLE, VIEW, INDEX, DATABASE, ROLE, TOKEN or TASK"))
    }

    /// Takes an ALTER statement.
    pub(super) fn alter(&mut self) -> Result<Statement, SqlError> {
        self.expect("alter")?;
        if self.take(&["table"]) {
            if let Some(statement) = self.table_owner()? {
                return Ok(statement);
            }
            return match self.repartition()? {
                Some(repartition) => Ok(Statement::Repartition(repartition)),
                None => match self.rekey()? {
                    Some(rekey) => Ok(Statement::Rekey(rekey)),
                    None => self.alter_table().map(Statement::AlterTable),
                },
            };
        }
        if self.take(&["view"]) {
            return self.alter_view();
        }
        if self.role_word().is_some() {
            return self.alter_role();
        }
        if self.take(&["token"]) {
            return self.alter_token();
        }
        if self.take_org_word() {
            return self.alter_org();
        }
        if self.take(&["task"]) {
            return self.alter_task();
        }
        if self.take(&["sequence"]) {
            return self.alter_sequence();
        }
        if !self.take(&["database"]) && !self.take(&["schema"]) {
            return Err(self.foreign_object("ALTER", "TABLE, DATABASE, ROLE, TOKEN or TASK"));
        }
        // ALTER DATABASE changes the owner or options.
        let name = self.name("a database's name")?;
        if self.at("owner") {
            return self.database_owner(name);
        }
        if self.at("rename") {
            return Err(self.unsupported("ALTER DATABASE ... RENAME"));
        }
        // SET and UNSET take one option, or several in parentheses; UNSET sets NULL.
        let position = self.position();
        let unset = self.take(&["unset"]) || self.take(&["reset"]);
        if !unset {
            self.expect("set")?;
        }
        let listed = matches!(self.peek().token, Token::LParen);
        let pairs = match (unset, listed) {
            (false, true) => self.options()?,
            (false, false) => {
                let key = self.option_key()?;
                self.expect_mark(&Token::Eq)?;
                vec![OptionPair { key, value: self.option_value()?, position }]
            }
            (true, true) => self.list(|tokens| {
                let position = tokens.position();
                Ok(OptionPair { key: tokens.option_key()?, value: OptionValue::Null, position })
            })?,
            (true, false) => {
                vec![OptionPair { key: self.option_key()?, value: OptionValue::Null, position }]
            }
        };
        match ttl_of(&pairs)? {
            Some(ttl) => Ok(Statement::AlterDatabase(AlterDatabase { name, ttl })),
            None => Err(SqlError::syntax("expected an option to set").with_position(position)),
        }
    }

    /// Takes a DROP statement.
    pub(super) fn drop(&mut self) -> Result<Statement, SqlError> {
        self.expect("drop")?;
        if self.take(&["table"]) {
            let if_exists = self.if_exists();
            let mut tables = vec![self.table_name()?];
            while self.take_mark(&Token::Comma) {
                tables.push(self.table_name()?);
            }
            let cascade = self.take(&["cascade"]);
            if !cascade {
                self.take(&["restrict"]);
            }
            return Ok(Statement::DropTable(DropTable { tables, if_exists, cascade }));
        }
        if self.take(&["view"]) {
            return self.drop_view();
        }
        if self.take(&["index"]) {
            return self.drop_index();
        }
        if self.take(&["database"]) || self.take(&["schema"]) {
            let if_exists = self.if_exists();
            let name = self.name("a database's name")?;
            if self.at("restrict") {
                return Err(self
                    .unsupported("DROP ... RESTRICT")
                    .with_hint("a database is always dropped with all its tables"));
            }
            self.take(&["cascade"]);
            return Ok(Statement::DropDatabase(DropDatabase { name, if_exists }));
        }
        if self.role_word().is_some() {
            return self.drop_role();
        }
        if self.take(&["owned"]) {
            return self.drop_owned();
        }
        if self.take(&["token"]) {
            return self.drop_token();
        }
        if self.take_org_word() {
            return self.drop_org();
        }
        if self.take(&["task"]) {
            return self.drop_task();
        }
        if self.take(&["sequence"]) {
            return self.drop_sequence();
        }
        if self.take(&["materialized", "copy"]) {
            return self.drop_copy();
        }
        Err(self.foreign_object("DROP", "TABLE, VIEW, INDEX, DATABASE, ROLE, OWNED, TOKEN or TASK"))
    }

    /// Takes TRUNCATE [TABLE] table, .. [{RESTART | CONTINUE} IDENTITY] [CASCADE | RESTRICT].
    pub(super) fn truncate(&mut self) -> Result<Statement, SqlError> {
        self.expect("truncate")?;
        self.take(&["table"]);
        self.take(&["only"]);
        let mut tables = vec![self.table_name()?];
        while self.take_mark(&Token::Comma) {
            tables.push(self.table_name()?);
        }
        if self.at("file") {
            return Err(self.unsupported("TRUNCATE ... FILE RANGE"));
        }
        let restart_identity = self.take(&["restart", "identity"]);
        if !restart_identity {
            self.take(&["continue", "identity"]);
        }
        // No table refers to another.
        let _ = self.take(&["cascade"]) || self.take(&["restrict"]);
        Ok(Statement::Truncate(Truncate { tables, restart_identity }))
    }

    /// Takes USE [DATABASE] name.
    pub(super) fn use_database(&mut self) -> Result<Statement, SqlError> {
        self.expect("use")?;
        if matches!(self.peek_nth(1).token, Token::Word(_)) {
            let _ = self.take(&["database"]) || self.take(&["schema"]);
        }
        let name = match self.string() {
            Ok(name) => name,
            Err(_) => self.name("a database's name")?,
        };
        Ok(Statement::Use(name))
    }

    /// Takes `[GLOBAL | LOCAL] {TEMPORARY | TEMP} TABLE`.
    fn take_temporary_table(&mut self) -> bool {
        let forms: [&[&str]; 3] = [&[], &["global"], &["local"]];
        let mut words = forms.iter().flat_map(|first| {
            ["temporary", "temp"].map(|word| [*first, &[word, "table"]].concat())
        });
        words.any(|words| self.take(&words))
    }

    fn foreign_object(&self, verb: &str, expected: &str) -> SqlError {
        match UNSUPPORTED.iter().find(|(word, _)| self.at(word)) {
            Some((_, object)) => self.unsupported(format!("{verb} {object}")),
            None => self.unexpected(expected),
        }
    }
}

/// Notice of an UNLOGGED table: it keeps more than the client asked for.
pub(super) fn unlogged() -> Notice {
    Notice::notice("UNLOGGED is ignored: the rows of all tables are logged and replicated")
}

/// The value of option `ttl`; `None` when it is not among the options.
fn ttl_of(pairs: &[OptionPair]) -> Result<Option<Option<Duration>>, SqlError> {
    let mut ttl = None;
    for pair in pairs {
        if pair.key != "ttl" {
            return Err(SqlError::new(
                INVALID_PARAMETER_VALUE,
                format!("unrecognized database option key: '{}'", pair.key),
            )
            .with_position(pair.position)
            .with_hint("the only option of a database is ttl"));
        }
        ttl = Some(pair.ttl()?);
    }
    Ok(ttl)
}

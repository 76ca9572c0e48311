//! Statements about API tokens, and SHOW GRANTS and SHOW TOKENS.
//!
//! ```text
//! CREATE TOKEN ['description'] WITH (item, ..)
//! ALTER TOKEN 'id' [WITH] (option, ..)
//! DROP TOKEN [IF EXISTS] 'id', ..
//!
//! item       = permission | OWNER role | {ORGANISATION | ORG} name | option
//! permission = ALL
//!            | {READ | WRITE | READ WRITE} ON ALL DATABASES
//!            | {READ | WRITE | READ WRITE} ON {DATABASE | SCHEMA | BUCKET} database [WHERE condition [AND ..]]
//! condition  = column = literal | column IN (literal, ..)
//! option     = DESCRIPTION 'text' | EXPIRES {'time' | IN 'duration' | NEVER} | ENABLED | DISABLED
//! ```
//!
//! A statement never contains the text of a token: CREATE TOKEN returns it.

use datafusion::sql::sqlparser::tokenizer::Token;
use partita_proto::access::{Mode, RowPredicate, Term};
use partita_proto::id::TokenId;
use partita_proto::value::Value;

use super::access_statement::{
    AccessStatement, CreateToken, TokenExpiry, TokenOptions, TokenPermission, TokenScope,
};
use super::identifier::fold;
use super::quantity::parse_duration;
use super::roles::{access, put};
use super::statement::Statement;
use super::tokens::Tokens;
use crate::error::{INVALID_PARAMETER_VALUE, SqlError};

impl Tokens<'_> {
    /// Takes what follows CREATE TOKEN.
    pub(super) fn create_token(&mut self) -> Result<Statement, SqlError> {
        let mut create = CreateToken {
            permissions: Vec::new(),
            options: TokenOptions { description: self.string().ok(), ..TokenOptions::default() },
            owner: None,
            org: None,
        };
        self.expect("with")?;
        let position = self.position();
        self.list(|tokens| tokens.token_item(&mut create))?;
        if create.permissions.is_empty() {
            let error = SqlError::syntax("a token needs a permission").with_position(position);
            return Err(error.with_hint("for example WITH (READ ON DATABASE public)"));
        }
        Ok(access(AccessStatement::CreateToken(Box::new(create))))
    }

    fn token_item(&mut self, create: &mut CreateToken) -> Result<(), SqlError> {
        let position = self.position();
        let located = |error: SqlError| error.with_position(position);
        if self.take(&["owner"]) {
            let owner = self.role_name()?;
            return put(&mut create.owner, owner).map_err(located);
        }
        if self.take_org_word() {
            let org = self.name("an organisation's name")?;
            return put(&mut create.org, org).map_err(located);
        }
        match self.token_permission()? {
            Some(permission) => create.permissions.push(permission),
            None => self.token_option(&mut create.options)?,
        }
        Ok(())
    }

    /// Takes a permission if one comes next, and nothing otherwise.
    fn token_permission(&mut self) -> Result<Option<TokenPermission>, SqlError> {
        if self.take(&["all"]) {
            self.take(&["privileges"]);
            let (mode, scope) = (Mode::Both, TokenScope::Everything);
            return Ok(Some(TokenPermission { mode, scope }));
        }
        let reads = self.take(&["read"]);
        let writes = self.take(&["write"]);
        let mode = match (reads, writes) {
            (true, true) => Mode::Both,
            (true, false) => Mode::Read,
            (false, true) => Mode::Write,
            (false, false) => return Ok(None),
        };
        self.expect("on")?;
        if self.take(&["all"]) {
            let _ = self.take(&["databases"]) || self.take(&["schemas"]) || self.take(&["buckets"]);
            return Ok(Some(TokenPermission { mode, scope: TokenScope::AllDatabases }));
        }
        if !self.take(&["database"]) && !self.take(&["schema"]) && !self.take(&["bucket"]) {
            return Err(self.unexpected("DATABASE or ALL DATABASES"));
        }
        let name = self.name("a database's name")?;
        let position = self.position();
        let rows = if self.take(&["where"]) { Some(self.row_predicate()?) } else { None };
        if rows.is_some() && mode != Mode::Read {
            let message = "a row predicate is for reads only";
            return Err(SqlError::new(INVALID_PARAMETER_VALUE, message).with_position(position));
        }
        Ok(Some(TokenPermission { mode, scope: TokenScope::Database { name, rows } }))
    }

    /// Takes conditions on columns between AND.
    fn row_predicate(&mut self) -> Result<RowPredicate, SqlError> {
        let position = self.position();
        let mut terms = Vec::new();
        loop {
            let column = self.name("a column name")?;
            let values = if self.take(&["in"]) {
                self.list(Self::row_value)?
            } else if self.take_mark(&Token::Eq) {
                vec![self.row_value()?]
            } else {
                return Err(self.unsupported("a row predicate other than = and IN"));
            };
            terms.push(Term { column, values });
            if self.take(&["and"]) {
                continue;
            }
            if self.at("or") {
                return Err(self.unsupported("OR in a row predicate").with_hint("use IN"));
            }
            return RowPredicate::new(terms)
                .map_err(|error| SqlError::from(error).with_position(position));
        }
    }

    /// Takes a literal of a row predicate.
    fn row_value(&mut self) -> Result<Value, SqlError> {
        if let Ok(text) = self.string() {
            return Ok(Value::String(text));
        }
        for (word, value) in [("true", true), ("false", false)] {
            if self.take(&[word]) {
                return Ok(Value::Bool(value));
            }
        }
        let expected = self.unexpected("a literal");
        let sign = if self.take_mark(&Token::Minus) { "-" } else { "" };
        let Token::Number(digits, _) = &self.peek().token else { return Err(expected) };
        let text = format!("{sign}{}", digits.replace('_', ""));
        let value = if let Ok(number) = text.parse() {
            Value::Int(number)
        } else if let Ok(number) = text.parse() {
            Value::UInt(number)
        } else {
            Value::Float(text.parse().map_err(|_| expected)?)
        };
        self.next();
        Ok(value)
    }

    fn token_option(&mut self, options: &mut TokenOptions) -> Result<(), SqlError> {
        let position = self.position();
        let located = |error: SqlError| error.with_position(position);
        if self.take(&["description"]) {
            let text = self.string()?;
            return put(&mut options.description, text).map_err(located);
        }
        if self.take(&["enabled"]) {
            return put(&mut options.enabled, true).map_err(located);
        }
        if self.take(&["disabled"]) {
            return put(&mut options.enabled, false).map_err(located);
        }
        if self.take(&["expires"]) {
            let expires = if self.take(&["never"]) {
                TokenExpiry::Never
            } else if self.take(&["in"]) {
                let wrong = self.located(SqlError::new(
                    INVALID_PARAMETER_VALUE,
                    "EXPIRES IN takes a duration such as '30 days'",
                ));
                let duration = parse_duration(&fold(&self.string()?));
                let millis = duration.and_then(|duration| i64::try_from(duration.as_millis()).ok());
                TokenExpiry::After(millis.ok_or(wrong)?)
            } else {
                self.end_of_validity()?.map_or(TokenExpiry::Never, TokenExpiry::At)
            };
            return put(&mut options.expires, expires).map_err(located);
        }
        Err(self.unexpected(
            "READ, WRITE, ALL, OWNER, ORGANISATION, DESCRIPTION, EXPIRES, ENABLED or DISABLED",
        ))
    }

    /// Takes what follows ALTER TOKEN.
    pub(super) fn alter_token(&mut self) -> Result<Statement, SqlError> {
        let id = self.token_id()?;
        self.take(&["with"]);
        let mut options = TokenOptions::default();
        let position = self.position();
        self.list(|tokens| tokens.token_option(&mut options))?;
        if options == TokenOptions::default() {
            return Err(SqlError::syntax("expected an option to set").with_position(position));
        }
        Ok(access(AccessStatement::AlterToken { id, options }))
    }

    /// Takes what follows DROP TOKEN.
    pub(super) fn drop_token(&mut self) -> Result<Statement, SqlError> {
        let if_exists = self.if_exists();
        let mut ids = vec![self.token_id()?];
        while self.take_mark(&Token::Comma) {
            ids.push(self.token_id()?);
        }
        Ok(access(AccessStatement::DropToken { ids, if_exists }))
    }

    /// Takes the id of a token, in quotes.
    fn token_id(&mut self) -> Result<TokenId, SqlError> {
        let position = self.position();
        // The text of a token may have been given in place of the id: it is not repeated.
        let message = "a token's id must have 16 hexadecimal digits";
        let wrong = SqlError::new(INVALID_PARAMETER_VALUE, message)
            .with_position(position)
            .with_hint("SHOW TOKENS lists the ids");
        let text = self.string().map_err(|_| SqlError::syntax(message).with_position(position))?;
        text.parse().map_err(|_| wrong)
    }

    /// Takes SHOW TOKENS or SHOW GRANTS [FOR role].
    pub(super) fn show_access(&mut self) -> Result<Statement, SqlError> {
        self.expect("show")?;
        if self.take(&["tokens"]) {
            return Ok(access(AccessStatement::ShowTokens));
        }
        self.expect("grants")?;
        let role = if self.take(&["for"]) { Some(self.role_name()?) } else { None };
        Ok(access(AccessStatement::ShowGrants { role }))
    }
}

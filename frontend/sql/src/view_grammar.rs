//! Grammar of statements about views, and of COMMENT.
//!
//! ```text
//! CREATE [OR REPLACE] VIEW [IF NOT EXISTS] [database.]name [(column, ..)] AS query
//! ALTER VIEW [IF EXISTS] [database.]name RENAME TO name
//! DROP VIEW [IF EXISTS] [database.]name, .. [CASCADE | RESTRICT]
//! COMMENT ON {TABLE | VIEW} [database.]name IS {'text' | NULL}
//! COMMENT ON COLUMN [database.]table.column IS {'text' | NULL}
//! COMMENT ON {DATABASE | SCHEMA} name IS {'text' | NULL}
//! ```

use datafusion::sql::sqlparser::tokenizer::Token;

use super::statement::{
    AlterChange, AlterTable, Comment, CommentObject, CreateView, DropView, Statement, TableName,
};
use super::tokens::Tokens;
use crate::error::{CATALOG, SqlError};

impl Tokens<'_> {
    /// Takes what follows CREATE [OR REPLACE] VIEW.
    pub(super) fn create_view(&mut self, or_replace: bool) -> Result<Statement, SqlError> {
        let position = self.position();
        let if_not_exists = self.if_not_exists();
        if if_not_exists && or_replace {
            let error = SqlError::syntax("OR REPLACE and IF NOT EXISTS exclude each other");
            return Err(error.with_position(position));
        }
        let name = self.table_name()?;
        let columns = match self.peek().token {
            Token::LParen => self.columns()?,
            _ => Vec::new(),
        };
        if self.at("with") {
            return Err(self.unsupported("CREATE VIEW ... WITH"));
        }
        self.expect("as")?;
        let query = self.query()?;
        if self.at("with") {
            return Err(self.unsupported("WITH CHECK OPTION"));
        }
        let create = CreateView { name, columns, or_replace, if_not_exists, query };
        Ok(Statement::CreateView(Box::new(create)))
    }

    /// Takes what follows ALTER VIEW.
    pub(super) fn alter_view(&mut self) -> Result<Statement, SqlError> {
        let if_exists = self.if_exists();
        let table = self.table_name()?;
        if !self.take(&["rename", "to"]) {
            let action = self.peek().token.to_string().to_ascii_uppercase();
            let error = self.unsupported(format!("ALTER VIEW ... {action}"));
            let is_owner = self.at("owner");
            return Err(if is_owner { error.with_hint("use ALTER TABLE") } else { error });
        }
        let changes = vec![AlterChange::Rename(self.name("a view's name")?)];
        let notices = Vec::new();
        let alter = AlterTable { table, is_view: true, if_exists, changes, notices };
        Ok(Statement::AlterTable(alter))
    }

    /// Takes what follows DROP VIEW.
    pub(super) fn drop_view(&mut self) -> Result<Statement, SqlError> {
        let if_exists = self.if_exists();
        let mut names = vec![self.table_name()?];
        while self.take_mark(&Token::Comma) {
            names.push(self.table_name()?);
        }
        let cascade = self.take(&["cascade"]);
        if !cascade {
            self.take(&["restrict"]);
        }
        Ok(Statement::DropView(DropView { names, if_exists, cascade }))
    }

    /// Takes a COMMENT statement.
    pub(super) fn comment(&mut self) -> Result<Statement, SqlError> {
        self.expect("comment")?;
        self.expect("on")?;
        let object = if self.take(&["table"]) {
            CommentObject::Table(self.table_name()?)
        } else if self.take(&["view"]) {
            CommentObject::View(self.table_name()?)
        } else if self.take(&["column"]) {
            self.commented_column()?
        } else if self.take(&["database"]) || self.take(&["schema"]) {
            CommentObject::Database(self.name("a database's name")?)
        } else if matches!(self.peek().token, Token::Word(_)) {
            let kind = self.peek().token.to_string().to_ascii_uppercase();
            return Err(self.unsupported(format!("COMMENT ON {kind}")));
        } else {
            return Err(self.unexpected("TABLE, VIEW, COLUMN or DATABASE"));
        };
        self.expect("is")?;
        // As in PostgreSQL, an empty text is none.
        let text = match self.take(&["null"]) {
            true => None,
            false => Some(self.string()?).filter(|text| !text.is_empty()),
        };
        Ok(Statement::Comment(Comment { object, text }))
    }

    /// Takes `[[catalog.]database.]table.column`.
    fn commented_column(&mut self) -> Result<CommentObject, SqlError> {
        let position = self.position();
        let mut parts = vec![self.name("a table name")?];
        while self.take_mark(&Token::Period) {
            parts.push(self.name("a name")?);
        }
        let column = parts.pop().unwrap_or_default();
        let Some(name) = parts.pop() else {
            let error = SqlError::syntax("column name must be qualified");
            return Err(error.with_position(position));
        };
        let database = parts.pop();
        if !parts.is_empty() && parts != [CATALOG] {
            let feature = format!("a table of another catalog (\"{}\")", parts.join("."));
            return Err(self.unsupported(feature));
        }
        let table = TableName { database, name };
        Ok(CommentObject::Column { table, column })
    }
}

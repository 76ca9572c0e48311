//! COMMENT ON databases, tables, views and columns.

use partita_proto::access::{Action, Permit};
use partita_proto::schema::TableOptions;
use partita_proto::service::{Ddl, TableChange};
use partita_sql::statement::{Comment, CommentObject};

use super::define::WRONG_OBJECT_TYPE;
use crate::error::SqlError;
use crate::output::Output;
use crate::session::Session;

impl Session {
    pub(super) async fn comment(
        &self,
        comment: &Comment,
        permit: &Permit,
    ) -> Result<Output, SqlError> {
        let relation = match &comment.object {
            CommentObject::Table(name)
            | CommentObject::View(name)
            | CommentObject::Column { table: name, .. } => name,
            CommentObject::Database(name) => {
                let (name, comment) = (name.clone(), comment.text.clone());
                self.frontend().change(permit, Ddl::CommentDatabase { name, comment }).await?;
                return Ok(Output::done("COMMENT"));
            }
        };
        self.check_covered(relation, Action::Own, permit)?;
        let table = self.table(relation)?;
        let (database, name) = (table.database.clone(), table.name.clone());
        let is_view = table.schema.view.is_some();
        let other_kind = match &comment.object {
            CommentObject::Table(_) => is_view.then_some("a table"),
            CommentObject::View(_) => (!is_view).then_some("a view"),
            CommentObject::Column { .. } | CommentObject::Database(_) => None,
        };
        if let Some(kind) = other_kind {
            return Err(SqlError::new(WRONG_OBJECT_TYPE, format!("\"{name}\" is not {kind}")));
        }
        let text = comment.text.clone();
        let change = match &comment.object {
            CommentObject::Table(_) | CommentObject::View(_) | CommentObject::Database(_) => {
                // The comment is set even if the catalog shows that it is there: the catalog may be old.
                let comment = if text.is_some() { None } else { Some(String::new()) };
                let present = &table.schema.options;
                let base = Box::new(TableOptions { comment, ..present.clone() });
                let next = Box::new(TableOptions { comment: text, ..present.clone() });
                TableChange::ChangeOptions { base, next }
            }
            CommentObject::Column { column, .. } => {
                if table.schema.column(column).is_none() {
                    return Err(SqlError::undefined_column(column, &name));
                }
                TableChange::SetComment { column: column.clone(), comment: text }
            }
        };
        self.frontend().change(permit, Ddl::AlterTable { database, name, change }).await?;
        Ok(Output::done("COMMENT"))
    }
}

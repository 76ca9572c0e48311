//! CHECK constraints of tables that exist: the rows that are there are looked at.
//!
//! A constraint holds for new rows as soon as frontends know it, so it is recorded first. A frontend that learns of it some
//! milliseconds later may still write a row in between.

use futures::StreamExt;
use partita_proto::access::Permit;
use partita_proto::schema::Check;
use partita_proto::service::{Ddl, TableChange};
use partita_sql::identifier::quote;
use partita_sql::parser;
use partita_sql::statement::Statement;

use super::query::{Source, Target};
use crate::error::SqlError;
use crate::ingest::plan::CHECK_VIOLATION;
use crate::session::Session;

impl Session {
    /// Adds a constraint. Rows that exist are looked at when it holds for new ones; it goes again if one fails it.
    pub(super) async fn add_check(
        &self,
        (database, name): (&str, &str),
        check: Check,
        is_valid: bool,
        permit: &Permit,
    ) -> Result<(), SqlError> {
        let alter = |change| {
            let (database, name) = (database.to_owned(), name.to_owned());
            Ddl::AlterTable { database, name, change }
        };
        self.frontend().change(permit, alter(TableChange::AddCheck(check.clone()))).await?;
        if !is_valid {
            return Ok(());
        }
        let result = match Box::pin(self.has_row((database, name), &check)).await {
            Ok(false) => return Ok(()),
            Ok(true) => Err(SqlError::new(
                CHECK_VIOLATION,
                format!(
                    "check constraint \"{}\" of relation \"{name}\" is violated by some row",
                    check.name
                ),
            )),
            Err(error) => Err(error),
        };
        self.frontend().change(permit, alter(TableChange::DropCheck(check.name))).await?;
        result
    }

    /// True if a row of a table fails a constraint.
    async fn has_row(
        &self,
        (database, name): (&str, &str),
        check: &Check,
    ) -> Result<bool, SqlError> {
        let text = format!(
            "SELECT 1 FROM {}.{} WHERE NOT ({}) LIMIT 1",
            quote(database),
            quote(name),
            check.expression
        );
        let Some(Statement::Query(query)) = parser::parse(&text)?.pop() else {
            return Err(SqlError::internal("the query of a constraint is no query"));
        };
        let source = Source::Statement(&query.statement);
        let catalog = self.frontend().catalog();
        let table = catalog.table(database, name).ok_or_else(|| SqlError::undefined_table(name))?;
        // As for a statement that writes: of rows that were acknowledged before none may be missed, whatever the session
        // accepts.
        let target = Target { pinned: Some(table), ..Target::default() };
        let mut running = self.start(&source, target).await?;
        while let Some(batch) = running.stream.next().await {
            if batch?.num_rows() > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

//! The check of each statement before it runs.

use partita_proto::access::Permit;
use partita_sql::statement::Statement;

use super::temporary::check_temporary;
use super::{roles, sequences, tasks};
use crate::access::needs::needs;
use crate::error::SqlError;
use crate::session::Session;

impl Session {
    /// Checks that the identity may run a statement now.
    ///
    /// # Errors
    /// Errors of [`needs`] and of the check; the end of the identity precedes them.
    pub(crate) fn permit(&self, statement: &Statement) -> Result<Permit, SqlError> {
        if let Some(error) = self.ended() {
            return Err(error);
        }
        let (viewer, database) = (self.viewer(), self.database());
        let needs = match statement {
            Statement::Access(statement) => roles::needs(viewer, &database, statement),
            Statement::Task(statement) => tasks::needs(viewer, &database, statement),
            Statement::Sequence(statement) => sequences::needs(viewer, &database, statement),
            Statement::Truncate(truncate) if truncate.restart_identity => {
                needs(viewer, &database, statement).and_then(|mut list| {
                    list.extend(sequences::restart_needs(viewer, &database, truncate)?);
                    Ok(list)
                })
            }
            statement => needs(viewer, &database, statement),
        };
        match needs {
            Ok(needs) => {
                check_temporary(statement, &needs)?;
                viewer.check(&needs)
            }
            // An identity that has ended sees no objects.
            Err(error) => Err(viewer.check(&[]).err().unwrap_or(error)),
        }
    }
}

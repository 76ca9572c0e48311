//! Errors in PostgreSQL's form.

use partita_frontend::{Notice, SqlError};
use pgwire::api::{ClientInfo, DEFAULT_NAME, ErrorHandler};
use pgwire::error::{ErrorInfo, PgWireError};
use pgwire::messages::PgWireBackendMessage;

/// An error of a statement.
pub(crate) fn to_wire(error: SqlError) -> PgWireError {
    PgWireError::UserError(Box::new(info(error, "ERROR")))
}

/// An error after which the connection ends.
pub(crate) fn fatal(sqlstate: &str, message: &str) -> PgWireError {
    fatal_of(SqlError::new(sqlstate, message))
}

/// An error of a session that cannot start.
pub(crate) fn fatal_of(error: SqlError) -> PgWireError {
    PgWireError::UserError(Box::new(info(error, "FATAL")))
}

/// An error with a SQLSTATE that the door chooses.
pub(crate) fn protocol(sqlstate: &str, message: impl Into<String>) -> PgWireError {
    to_wire(SqlError::new(sqlstate, message))
}

fn info(error: SqlError, severity: &str) -> ErrorInfo {
    let mut info = ErrorInfo::new(severity.to_owned(), error.sqlstate, error.message);
    info.severity_nonlocalized = Some(severity.to_owned());
    info.detail = error.detail;
    info.hint = error.hint;
    info.position = error.position.map(|position| position.to_string());
    info
}

/// A notice as a message.
pub(crate) fn notice(notice: Notice) -> PgWireBackendMessage {
    let severity = notice.severity.as_str().to_owned();
    let mut info = ErrorInfo::new(severity.clone(), notice.code, notice.message);
    info.severity_nonlocalized = Some(severity);
    info.hint = notice.hint;
    PgWireBackendMessage::NoticeResponse(info.into())
}

/// Gives the protocol library's own errors PostgreSQL's texts and SQLSTATEs.
pub(crate) struct Errors;

impl ErrorHandler for Errors {
    fn on_error<C>(&self, _: &C, error: &mut PgWireError)
    where
        C: ClientInfo,
    {
        let name = |name: &str| if name == DEFAULT_NAME { String::new() } else { name.to_owned() };
        let replacement = match &*error {
            PgWireError::UserError(_) => return,
            PgWireError::StatementNotFound(statement) => protocol(
                "26000",
                format!("prepared statement \"{}\" does not exist", name(statement)),
            ),
            PgWireError::PortalNotFound(portal) => {
                protocol("34000", format!("portal \"{}\" does not exist", name(portal)))
            }
            PgWireError::UnsupportedProtocolVersion(major, minor) => fatal(
                "08P01",
                &format!(
                    "unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.2"
                ),
            ),
            PgWireError::NotReadyForQuery => {
                protocol("08P01", "another command is already in progress")
            }
            error => protocol("08P01", error.to_string()),
        };
        *error = replacement;
    }
}

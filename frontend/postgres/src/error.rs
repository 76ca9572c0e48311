//! Errors as PostgreSQL's clients know them.

use partita_frontend::{Notice, SqlError};
use pgwire::error::{ErrorInfo, PgWireError};
use pgwire::messages::PgWireBackendMessage;

/// An error of a statement.
pub(crate) fn to_wire(error: SqlError) -> PgWireError {
    PgWireError::UserError(Box::new(info(error, "ERROR")))
}

/// An error after which the connection ends.
pub(crate) fn fatal(sqlstate: &str, message: &str) -> PgWireError {
    PgWireError::UserError(Box::new(ErrorInfo::new(
        "FATAL".to_owned(),
        sqlstate.to_owned(),
        message.to_owned(),
    )))
}

/// An error with a SQLSTATE of the door's own.
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

/// A notice on its way to the client.
pub(crate) fn notice(notice: Notice) -> PgWireBackendMessage {
    let severity = notice.severity.as_str().to_owned();
    let mut info = ErrorInfo::new(severity.clone(), notice.code, notice.message);
    info.severity_nonlocalized = Some(severity);
    PgWireBackendMessage::NoticeResponse(info.into())
}

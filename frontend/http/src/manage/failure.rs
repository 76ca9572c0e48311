//! Errors of the API, in the words and statuses of InfluxDB 2 and 3.
//!
//! | reason | InfluxDB 2 | InfluxDB 3 |
//! |---|---|---|
//! | an object is missing, or invisible | 404 `not found` | 404 |
//! | a name is taken, or others depend on the object | 422 `conflict` | 409 |
//! | everything else | as in [`crate::error`] | as in [`crate::error`] |

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use partita_frontend::SqlError;
use serde_json::json;

use crate::error::{ApiError, Dialect, v2_code};

/// Result of a handler of InfluxDB 2's API.
pub(crate) type Answer = Result<Response, Failure>;
/// Result of a handler of InfluxDB 3's API.
pub(crate) type AnswerV3 = Result<Response, FailureV3>;

/// SQLSTATEs of objects that do not exist.
const MISSING: [&str; 2] = ["42704", "42P01"];
/// SQLSTATEs of names that are taken, and of objects that others depend on.
const CONFLICTS: [&str; 5] = ["42710", "42P06", "42P07", "42701", "2BP01"];

/// Failed request of InfluxDB 2's API.
#[derive(Debug)]
pub(crate) struct Failure {
    error: ApiError,
    code: &'static str,
}

impl Failure {
    /// A missing object.
    pub(super) fn missing(message: impl Into<String>) -> Self {
        ApiError::new(StatusCode::NOT_FOUND, message).into()
    }

    /// A request that is well-formed, but cannot be carried out.
    pub(super) fn unprocessable(message: impl Into<String>) -> Self {
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, message).into()
    }

    /// A name that is taken.
    pub(super) fn conflict(message: impl Into<String>) -> Self {
        let error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, message);
        Self { error, code: "conflict" }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        let code = v2_code(error.status);
        Self { error, code }
    }
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        let state = error.sqlstate.clone();
        let error = with_status(error, StatusCode::UNPROCESSABLE_ENTITY);
        match CONFLICTS.contains(&state.as_str()) {
            true => Self { error, code: "conflict" },
            false => error.into(),
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        self.error.respond_with(&json!({ "code": self.code, "message": self.error.message }))
    }
}

/// Failed request of InfluxDB 3's API.
#[derive(Debug)]
pub(crate) struct FailureV3(ApiError);

impl From<ApiError> for FailureV3 {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}

impl From<Failure> for FailureV3 {
    fn from(failure: Failure) -> Self {
        let Failure { mut error, code } = failure;
        if code == "conflict" {
            error.status = StatusCode::CONFLICT;
        }
        Self(error)
    }
}

impl From<SqlError> for FailureV3 {
    fn from(error: SqlError) -> Self {
        Self(with_status(error, StatusCode::CONFLICT))
    }
}

impl IntoResponse for FailureV3 {
    fn into_response(self) -> Response {
        self.0.respond(Dialect::InfluxV3)
    }
}

fn with_status(error: SqlError, conflict: StatusCode) -> ApiError {
    let state = error.sqlstate.clone();
    let mut error = ApiError::from(error);
    if MISSING.contains(&state.as_str()) {
        error.status = StatusCode::NOT_FOUND;
    } else if CONFLICTS.contains(&state.as_str()) {
        error.status = conflict;
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_api_has_its_status_of_a_conflict() {
        let taken = || SqlError::new("42P06", "database \"b\" already exists");
        let failure = Failure::from(taken());
        assert_eq!((failure.error.status.as_u16(), failure.code), (422, "conflict"));
        assert_eq!(FailureV3::from(failure).0.status, StatusCode::CONFLICT);
        assert_eq!(FailureV3::from(taken()).0.status, StatusCode::CONFLICT);
        let missing = Failure::from(SqlError::new("42704", "organisation \"x\" does not exist"));
        assert_eq!((missing.error.status.as_u16(), missing.code), (404, "not found"));
        let denied = Failure::from(SqlError::new("42501", "permission denied"));
        assert_eq!((denied.error.status.as_u16(), denied.code), (403, "forbidden"));
    }
}

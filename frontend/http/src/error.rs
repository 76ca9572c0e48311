//! Errors in the form that each family of clients expects.
//!
//! | dialect | body |
//! |---|---|
//! | InfluxDB 1 | `{"error":"..."}` |
//! | InfluxDB 2 | `{"code":"invalid","message":"...","line":N}` |
//! | InfluxDB 3 | `{"error":"...","data":...}` |
//! | GreptimeDB | `{"code":1004,"error":"...","execution_time_ms":0}` |
//!
//! An [`ApiError`] has an HTTP status and a message; a dialect formats its body.

use axum::Json;
use axum::http::header::{ALLOW, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use partita_frontend::SqlError;
use serde_json::{Value, json};

/// The family of clients that gets the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    InfluxV1,
    InfluxV2,
    InfluxV3,
}

/// A failed request.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// Seconds after which a retry makes sense.
    pub(crate) retry_after: Option<u32>,
    /// The method that is allowed for the same request.
    pub(crate) allow: Option<&'static str>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), retry_after: None, allow: None }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// An error of a limit that was reached; the same request may succeed later.
    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self { retry_after: Some(1), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message) }
    }

    /// The response in a dialect.
    pub(crate) fn respond(&self, dialect: Dialect) -> Response {
        let body = match dialect {
            Dialect::InfluxV1 | Dialect::InfluxV3 => json!({ "error": self.message }),
            Dialect::InfluxV2 => json!({ "code": v2_code(self.status), "message": self.message }),
        };
        self.respond_with(&body)
    }

    /// The response with a given body.
    pub(crate) fn respond_with(&self, body: &Value) -> Response {
        let mut response = (self.status, Json(body)).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(methods) = self.allow {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
        }
        response
    }
}

/// InfluxDB 2's word for a status.
pub(crate) fn v2_code(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST | StatusCode::UNSUPPORTED_MEDIA_TYPE => "invalid",
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::FORBIDDEN => "forbidden",
        StatusCode::NOT_FOUND => "not found",
        StatusCode::METHOD_NOT_ALLOWED => "method not allowed",
        StatusCode::REQUEST_TIMEOUT => "request timeout",
        StatusCode::PAYLOAD_TOO_LARGE => "request too large",
        StatusCode::UNPROCESSABLE_ENTITY => "unprocessable entity",
        StatusCode::TOO_MANY_REQUESTS => "too many requests",
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::INSUFFICIENT_STORAGE => "unavailable",
        _ => "internal error",
    }
}

impl From<SqlError> for ApiError {
    fn from(error: SqlError) -> Self {
        let status = status_of(&error);
        let retry_after = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(1);
        Self { status, message: text_of(&error), retry_after, allow: None }
    }
}

/// An error's message with its detail and hint, for clients that show one text.
pub(crate) fn text_of(error: &SqlError) -> String {
    let mut text = error.message.clone();
    if let Some(detail) = &error.detail {
        text.push_str("; ");
        text.push_str(detail);
    }
    if let Some(hint) = &error.hint {
        text.push_str(" (hint: ");
        text.push_str(hint);
        text.push(')');
    }
    text
}

/// The HTTP status of an SQL error. The first two characters of a SQLSTATE are its class.
pub(crate) fn status_of(error: &SqlError) -> StatusCode {
    let state = error.sqlstate.as_str();
    match state {
        // invalid schema name: a database that does not exist
        "3F000" | "3D000" => StatusCode::NOT_FOUND,
        // disk full
        "53100" => StatusCode::INSUFFICIENT_STORAGE,
        // canceled: by a timeout, because requests cannot be canceled otherwise
        "57014" => StatusCode::GATEWAY_TIMEOUT,
        "28000" | "28P01" => StatusCode::UNAUTHORIZED,
        "42501" => StatusCode::FORBIDDEN,
        _ if error.retryable => StatusCode::SERVICE_UNAVAILABLE,
        _ => match state.get(..2).unwrap_or_default() {
            "53" | "57" => StatusCode::SERVICE_UNAVAILABLE,
            "XX" | "58" => StatusCode::INTERNAL_SERVER_ERROR,
            // Syntax, names, data, limits, features: the client's fault.
            _ => StatusCode::BAD_REQUEST,
        },
    }
}

/// GreptimeDB's error code for an SQL error.
pub(crate) fn greptime_code(error: &SqlError) -> u32 {
    match error.sqlstate.as_str() {
        "0A000" => 1001,
        "42601" => 2000,
        "42P07" => 4000,
        "42P01" => 4001,
        "42703" => 4002,
        "42701" => 4003,
        "3F000" | "3D000" => 4004,
        "57014" => 1005,
        "28000" | "28P01" => 7002,
        "42501" => 7006,
        "42883" | "42804" | "42803" | "42702" => 3000,
        "53200" => 6000,
        state if state.starts_with("XX") => 1003,
        _ if error.retryable => 5000,
        _ => 1004,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlstates_become_statuses_by_class() {
        let status = |state: &str| status_of(&SqlError::new(state, "x"));
        assert_eq!(status("42601"), StatusCode::BAD_REQUEST);
        assert_eq!(status("42P01"), StatusCode::BAD_REQUEST);
        assert_eq!(status("3F000"), StatusCode::NOT_FOUND);
        assert_eq!(status("53100"), StatusCode::INSUFFICIENT_STORAGE);
        assert_eq!(status("53400"), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(status("57P03"), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(status("57014"), StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(status("XX000"), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(status("54000"), StatusCode::BAD_REQUEST);
        let mut retryable = SqlError::new("40001", "x");
        retryable.retryable = true;
        let error = ApiError::from(retryable);
        assert_eq!((error.status, error.retry_after), (StatusCode::SERVICE_UNAVAILABLE, Some(1)));
    }
}

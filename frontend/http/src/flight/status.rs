//! Errors as gRPC statuses. The SQLSTATE is in the `sqlstate` trailer.

use arrow::error::ArrowError;
use arrow_flight::error::FlightError;
use partita_frontend::SqlError;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use crate::error::text_of;

/// An SQL error as a status.
pub(crate) fn status_of(error: &SqlError) -> Status {
    let state = error.sqlstate.as_str();
    let code = match state {
        "42P01" | "42703" | "42704" | "3F000" | "3D000" | "26000" => Code::NotFound,
        "42P07" | "42701" | "42710" | "42P06" => Code::AlreadyExists,
        "0A000" => Code::Unimplemented,
        "57014" if error.message.contains("timeout") => Code::DeadlineExceeded,
        "57014" => Code::Cancelled,
        "28000" | "28P01" => Code::Unauthenticated,
        "42501" => Code::PermissionDenied,
        "53100" | "53200" | "54000" => Code::ResourceExhausted,
        "XX001" => Code::DataLoss,
        _ if error.retryable => Code::Unavailable,
        _ if state.starts_with("XX") || state.starts_with("58") => Code::Internal,
        _ if state.starts_with("53") || state.starts_with("57") => Code::Unavailable,
        _ => Code::InvalidArgument,
    };
    let mut status = Status::new(code, text_of(error));
    if let Ok(value) = MetadataValue::try_from(state) {
        status.metadata_mut().insert("sqlstate", value);
    }
    status
}

/// An error of Arrow as a status.
pub(crate) fn arrow_status(error: ArrowError) -> Status {
    status_of(&SqlError::from(error))
}

/// An error in a client's stream as a status.
pub(crate) fn stream_status(error: FlightError) -> Status {
    match error {
        FlightError::Tonic(status) => *status,
        FlightError::Arrow(error) => arrow_status(error),
        error => Status::invalid_argument(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_say_what_the_caller_can_do() {
        let code = |state: &str| status_of(&SqlError::new(state, "x")).code();
        assert_eq!(code("42P01"), Code::NotFound);
        assert_eq!(code("42601"), Code::InvalidArgument);
        assert_eq!(code("0A000"), Code::Unimplemented);
        assert_eq!(code("53100"), Code::ResourceExhausted);
        assert_eq!(code("57P03"), Code::Unavailable);
        assert_eq!(code("XX000"), Code::Internal);
        let status = status_of(&SqlError::new("22P02", "x"));
        assert_eq!(status.metadata().get("sqlstate").unwrap(), "22P02");
    }
}

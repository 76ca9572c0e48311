//! Errors of checks as gRPC statuses.

use partita_proto::Error;
use tonic::Status;

/// The status of a request that a check of wide tables refused.
pub(crate) fn refused(error: &Error) -> Status {
    match error {
        Error::NotFound { .. } => Status::not_found(error.to_string()),
        Error::LimitReached { message, hint } => {
            Status::invalid_argument(format!("{message} (hint: {hint})"))
        }
        error => Status::invalid_argument(error.to_string()),
    }
}

/// The status of a request for a feature that there is not.
pub(crate) fn unsupported(feature: &str) -> Status {
    Status::unimplemented(format!("{feature} are not supported"))
}

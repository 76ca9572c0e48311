//! Client side of the doors: one connection each, one request at a time.

pub(crate) mod copy;
pub(crate) mod flight;
pub(crate) mod http;
pub(crate) mod insert;
pub(crate) mod postgres;

use std::fmt;

/// A failed request.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The server's message, or the connection error.
    pub(crate) message: String,
    /// True if the server reports that a retry may succeed.
    pub(crate) retryable: bool,
    /// True if the connection cannot be used any more.
    pub(crate) lost: bool,
}

impl Failure {
    /// A request that the server refused.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self { message: message.into(), retryable: false, lost: false }
    }

    /// A request with unknown outcome.
    pub(crate) fn lost(message: impl Into<String>) -> Self {
        Self { message: message.into(), retryable: false, lost: true }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

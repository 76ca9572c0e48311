//! The doors of servers, from outside: one connection each, one request at a time.

pub(crate) mod copy;
pub(crate) mod flight;
pub(crate) mod http;
pub(crate) mod insert;
pub(crate) mod postgres;

use std::fmt;

/// A request that did not succeed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// What the server said, or why it could not be heard.
    pub(crate) message: String,
    /// The server says that the same request may succeed later.
    pub(crate) retryable: bool,
    /// The connection is of no use any more.
    pub(crate) lost: bool,
}

impl Failure {
    /// The server refused.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self { message: message.into(), retryable: false, lost: false }
    }

    /// Nobody knows what became of the request.
    pub(crate) fn lost(message: impl Into<String>) -> Self {
        Self { message: message.into(), retryable: false, lost: true }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

//! Converts the error to gRPC's status, and back.
//!
//! The error itself is encoded in the status's details; code and message are for people and for other clients. A status
//! without details comes from the transport.

use std::error::Error as _;
use std::fmt;

use bytes::Bytes;
use partita_proto::Error;
use partita_proto::id::NodeId;
use partita_proto::wire::{Wire, pb};
use tonic::{Code, Status};

/// Maximum bytes of an error's text. Statuses are sent in HTTP/2 headers, which are refused from 16 KiB on, in base64
/// (4/3 of it).
const TEXT_BYTES_MAX: usize = 4 << 10;
/// Maximum bytes of the message for people.
const MESSAGE_BYTES_MAX: usize = 256;

/// The remote side of a request.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Node id; `None` for meta.
    pub(crate) node: Option<NodeId>,
    pub(crate) address: String,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            Some(node) => write!(f, "node {node} at {}", self.address),
            None => write!(f, "meta at {}", self.address),
        }
    }
}

/// The status of an error.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn to_status(error: Error) -> Status {
    let code = match &error {
        Error::InvalidInput(_) | Error::Query { .. } => Code::InvalidArgument,
        Error::NotFound { .. } => Code::NotFound,
        Error::AlreadyExists { .. } => Code::AlreadyExists,
        Error::NotAllowed(_) => Code::PermissionDenied,
        Error::Unauthenticated(_) => Code::Unauthenticated,
        Error::Unsupported(_) => Code::Unimplemented,
        Error::StaleRoute { .. }
        | Error::StaleSchema { .. }
        | Error::NeverTaken { .. }
        | Error::NotLeader { .. }
        | Error::Dependents { .. }
        | Error::ShipAhead { .. }
        | Error::Changed { .. } => Code::FailedPrecondition,
        Error::Overloaded(_) | Error::DiskFull(_) | Error::LimitReached { .. } => {
            Code::ResourceExhausted
        }
        Error::Unavailable(_) => Code::Unavailable,
        Error::Timeout(_) => Code::DeadlineExceeded,
        Error::Cancelled => Code::Cancelled,
        Error::Corrupted(_) => Code::DataLoss,
        _ => Code::Internal,
    };
    let mut text = error.to_string();
    shorten(&mut text, MESSAGE_BYTES_MAX);
    let mut message = error.to_wire();
    shorten_texts(&mut message);
    let details = match Error::from_wire(message) {
        Ok(error) => error.encode_wire(),
        Err(_) => Bytes::new(),
    };
    Status::with_details(code, text, details)
}

/// The error of a status from a peer or the transport.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn from_status(peer: &Peer, status: Status) -> Error {
    if !status.details().is_empty() {
        let details = Bytes::copy_from_slice(status.details());
        return Error::decode_wire(details).unwrap_or_else(|error| {
            Error::Internal(format!("{peer} sent an error that cannot be decoded: {error}"))
        });
    }
    let text = reason(&status);
    match status.code() {
        Code::DeadlineExceeded => Error::Timeout(format!("{peer}: {text}")),
        Code::OutOfRange => Error::InvalidInput(format!("a message to or from {peer}: {text}")),
        Code::Unimplemented => Error::Unsupported(format!("a request to {peer} ({text})")),
        _ => Error::Unavailable(format!("{peer} is not reachable: {text}")),
    }
}

/// The text of a status, with its sources: tonic's own text is often only "transport error".
fn reason(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut source = status.source();
    while let Some(error) = source {
        let inner = error.to_string();
        if !text.contains(&inner) {
            text = if text.is_empty() { inner } else { format!("{text}: {inner}") };
        }
        source = error.source();
    }
    if text.is_empty() { status.code().description().to_owned() } else { text }
}

fn shorten_texts(message: &mut pb::Error) {
    use pb::error::Kind;
    let text = match &mut message.kind {
        Some(
            Kind::InvalidInput(text)
            | Kind::NotAllowed(text)
            | Kind::Unauthenticated(text)
            | Kind::Unsupported(text)
            | Kind::Overloaded(text)
            | Kind::DiskFull(text)
            | Kind::Unavailable(text)
            | Kind::Timeout(text)
            | Kind::Storage(text)
            | Kind::Corrupted(text)
            | Kind::Internal(text),
        ) => text,
        Some(Kind::NotFound(object) | Kind::AlreadyExists(object)) => &mut object.name,
        Some(Kind::Query(query)) => &mut query.message,
        Some(Kind::LimitReached(limit)) => &mut limit.message,
        Some(Kind::Dependents(dependents)) => &mut dependents.message,
        Some(
            Kind::StaleRoute(_)
            | Kind::StaleSchema(_)
            | Kind::NeverTaken(_)
            | Kind::NotLeader(_)
            | Kind::Cancelled(_)
            | Kind::Gap(_)
            | Kind::ShipAhead(_)
            | Kind::Changed(_),
        )
        | None => return,
    };
    shorten(text, TEXT_BYTES_MAX);
}

/// Cuts a text to about this many bytes.
fn shorten(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.push('…');
    }
}

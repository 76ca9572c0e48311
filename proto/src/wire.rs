//! The forms in which things go to disk and over the network: protobuf, defined in `partita/*.proto`.
//!
//! Rules, because what is written today is read by every later version:
//! - a field's number and meaning never change; new fields are optional and have a meaning when they
//!   are absent;
//! - every type has its own conversion here ([`Wire`]); what is missing or unknown is
//!   [`Error::Corrupted`], never a default that somebody did not choose;
//! - no bytes, however they came to be, make decoding panic.
//!
//! [`Command`] is what a partition's Raft log holds; [`ipc`] is the form of its rows.

mod beat;
mod catalog;
mod catalog_history;
mod command;
mod domain;
mod error;
mod generation;
mod history;
pub mod ipc;
mod load;
mod member;
mod place;
mod reshape;
mod schema;
mod service;
mod watch;

use std::time::Duration;

use bytes::Bytes;
use prost::Message;

pub use self::catalog::decode_route;
pub use self::command::{Command, WriteCommand, WritePart};
pub use self::watch::{Follower, parts_between};
use crate::error::Error;

/// The generated messages; to be embedded in other messages. Everything else uses [`Wire`].
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::too_many_lines,
    clippy::allow_attributes_without_reason,
    clippy::clone_on_ref_ptr,
    reason = "generated"
)]
pub mod pb {
    include!(concat!(env!("OUT_DIR"), "/partita.v1.rs"));
}

/// A type with a form on disk and wire.
pub trait Wire: Sized {
    /// The message.
    type Message: Message + Default;

    /// The message of a value.
    fn to_wire(&self) -> Self::Message;

    /// The value of a message.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when a field is missing or has a value that this version does not know.
    fn from_wire(message: Self::Message) -> Result<Self, Error>;

    /// The bytes of a value.
    fn encode_wire(&self) -> Bytes {
        self.to_wire().encode_to_vec().into()
    }

    /// The value of bytes.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when they are not its message, or as [`Wire::from_wire`].
    fn decode_wire(bytes: Bytes) -> Result<Self, Error> {
        Self::from_wire(parse(bytes)?)
    }
}

/// Parses a message.
fn parse<M: Message + Default>(bytes: Bytes) -> Result<M, Error> {
    M::decode(bytes).map_err(|error| Error::Corrupted(format!("a message is malformed: {error}")))
}

/// The value of a message field that has to be there.
fn required<T: Wire>(field: Option<T::Message>, name: &str) -> Result<T, Error> {
    T::from_wire(field.ok_or_else(|| missing(name))?)
}

/// The values of a repeated message field.
fn all<T: Wire>(fields: Vec<T::Message>) -> Result<Vec<T>, Error> {
    fields.into_iter().map(T::from_wire).collect()
}

fn missing(name: &str) -> Error {
    Error::Corrupted(format!("a message has no {name} that this version knows"))
}

/// A number that has to fit a narrower type.
fn narrow<T: TryFrom<i64>>(value: impl Into<i64>, name: &str) -> Result<T, Error> {
    let value = value.into();
    T::try_from(value).map_err(|_| {
        Error::Corrupted(format!("a message has {name} {value}, which is out of range"))
    })
}

impl Wire for Duration {
    type Message = pb::Duration;

    fn to_wire(&self) -> pb::Duration {
        pb::Duration { seconds: self.as_secs(), nanoseconds: self.subsec_nanos() }
    }

    fn from_wire(message: pb::Duration) -> Result<Self, Error> {
        if message.nanoseconds >= 1_000_000_000 {
            return Err(Error::Corrupted(format!(
                "a duration has {} nanoseconds below the second",
                message.nanoseconds
            )));
        }
        Ok(Self::new(message.seconds, message.nanoseconds))
    }
}

#[cfg(test)]
mod tests;

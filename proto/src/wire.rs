//! The forms on disk and over the network: protobuf, defined in `partita/*.proto`.
//!
//! Rules, because every later version reads what is written today:
//! - a field's number and meaning never change; new fields are optional and have a meaning when they are absent;
//! - every type has its own conversion here ([`Wire`]); a missing or unknown value is [`Error::Corrupted`], never
//!   replaced by a default;
//! - decoding never panics, whatever the bytes.
//!
//! [`Command`] is what a partition's Raft log holds; [`ipc`] is the form of its rows.

mod access;
mod access_change;
mod beat;
mod blame;
mod cardinality;
mod catalog;
mod catalog_history;
mod command;
mod domain;
mod error;
mod generation;
mod history;
mod index;
pub mod ipc;
mod load;
mod materialized;
mod measure;
mod member;
mod place;
mod probe;
mod reshape;
mod schema;
mod sequence;
mod service;
mod task;
mod watch;
mod wide;

use std::time::Duration;

use bytes::Bytes;
use prost::Message;

pub use self::catalog::decode_route;
pub use self::command::{Command, WriteCommand, WritePart};
pub use self::watch::{Follower, parts_between, public_parts_between};
use crate::error::Error;

/// The generated messages, for use as parts of other messages. All other code uses [`Wire`].
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
    /// Protobuf message of the type.
    type Message: Message + Default;

    /// Converts the value to its message.
    fn to_wire(&self) -> Self::Message;

    /// Converts a message to the value.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when a field is missing or has a value that this version does not know.
    fn from_wire(message: Self::Message) -> Result<Self, Error>;

    /// Encodes the value.
    fn encode_wire(&self) -> Bytes {
        self.to_wire().encode_to_vec().into()
    }

    /// Decodes a value.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when the bytes are not its message, or as [`Wire::from_wire`].
    fn decode_wire(bytes: Bytes) -> Result<Self, Error> {
        Self::from_wire(parse(bytes)?)
    }
}

/// Parses a message.
fn parse<M: Message + Default>(bytes: Bytes) -> Result<M, Error> {
    M::decode(bytes).map_err(|error| Error::Corrupted(format!("a message is malformed: {error}")))
}

/// The value of a mandatory message field.
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

/// Converts a number to a narrower type.
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

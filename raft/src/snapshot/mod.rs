//! Snapshots: a machine's files on their way to a replica that the log alone cannot bring up to date.
//!
//! ```text
//!   leader                                   follower
//!   offer: mark, state, names and sizes -->  what is at hand?
//!          <-- so much of each file ---------
//!   chunk, checksum, chunk, ...         -->  checked, kept
//!   end                                 -->  installed, all or nothing
//! ```
//!
//! Invariants:
//! - every chunk bears a checksum, and is taken only where the file so far ends;
//! - a transfer that broke goes on from what arrived, as long as the receiver's process lives;
//! - all transfers of a node together keep to its budget of bytes per second, and few run at a time.

mod receive;
mod send;

pub(crate) use self::receive::Receiving;
pub(crate) use self::send::{INSTALL_WAIT, Outgoing, send};

//! Snapshots: the transfer of a machine's files to a replica that the log alone cannot bring up to date.
//!
//! ```text
//!   leader                                   follower
//!   offer: mark, state, names and sizes -->  keeps files of an earlier, broken transfer
//!          <-- bytes received of each file --
//!   chunk, checksum, chunk, ...         -->  checked, kept
//!   end                                 -->  installed, all or nothing
//! ```
//!
//! Invariants:
//! - every chunk carries a checksum, and is accepted only at the current end of its file;
//! - a broken transfer continues from the bytes received, as long as the receiver's process lives;
//! - all transfers of a node together stay within its budget of bytes per second, and only a few run at a time.

mod receive;
mod send;

pub(crate) use self::receive::Receiving;
pub(crate) use self::send::{INSTALL_WAIT, Outgoing, send};

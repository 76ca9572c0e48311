//! The services between processes: the traits of `partita_proto::service` over gRPC.
//!
//! ```text
//!   frontend, meta ── Directory ── DataClient ══ gRPC ══ DataServer ── dyn DataService   (a node)
//!   frontend, node ── MetaClient ═══════════════ gRPC ══ MetaServer ── dyn ClusterService (meta)
//! ```
//!
//! Callers of a trait cannot tell whether the service is in their own process. So:
//! - an [`Error`](partita_proto::Error) arrives as the variant that was sent;
//! - failures of the network become [`Unavailable`](partita_proto::Error::Unavailable) with the name of the peer; a
//!   peer that hangs becomes that within about three seconds;
//! - dropping a future or a stream stops the work on the other side;
//! - a request never reaches a node that it is not for: it carries the node's number.
//!
//! All services of a process share one port: [`serve`] takes any set of tonic services. With certificates of the cluster
//! ([`Links`](partita_tls::Links)) both ends of a connection prove their roles, and `rights.rs` says who may call what.

mod channel;
mod data_client;
mod data_server;
mod directory;
mod frames;
mod meta_client;
mod meta_server;
mod parked;
mod rights;
mod serve;
mod status;
mod watcher;

pub use self::data_client::DataClient;
pub use self::data_server::DataServer;
pub use self::directory::Directory;
pub use self::meta_client::MetaClient;
pub use self::meta_server::MetaServer;
pub use self::rights::calls;
pub use self::serve::serve;

/// Maximum bytes of a message in either direction. Frontends cut writes at 8 MiB; one row may be larger.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Window of a connection, maximum unread bytes of all its requests together. Each request has a window of its own; an
/// unread one must not stop the others, so this one is never reached: 1 GiB.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 30;
/// Maximum bytes of an HTTP/2 frame in either direction. Requests take turns after each, so that a small one waits for
/// 64 KiB of a large one: half a millisecond at 1 Gbit/s.
const PIECE_BYTES: u32 = 64 << 10;
/// Metadata key of the node for which a request is meant.
const NODE_KEY: &str = "partita-node";
/// Metadata key of the catalog history that an order carries.
const CATALOG_KEY: &str = "partita-catalog-bin";

/// A random number, from the random keys of the standard library's hashers.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests;

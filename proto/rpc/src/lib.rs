//! The services between processes: the traits of `partita_proto::service` over gRPC.
//!
//! ```text
//!   frontend, meta ── Directory ── DataClient ══ gRPC ══ DataServer ── dyn DataService   (a node)
//!   frontend, node ── MetaClient ═══════════════ gRPC ══ MetaServer ── dyn ClusterService (meta)
//! ```
//!
//! Whoever calls a trait cannot tell whether the service is in its own process. So:
//! - an [`Error`](partita_proto::Error) arrives as the variant that it was sent as;
//! - what the network does is [`Unavailable`](partita_proto::Error::Unavailable) and names the peer;
//!   a peer that hangs becomes that within about three seconds;
//! - dropping a future or a stream stops the work on the other side;
//! - a request never reaches a node that it is not for: it bears the node's number.
//!
//! What a process serves, it serves on one port: [`serve`] takes any set of tonic services.

mod channel;
mod data_client;
mod data_server;
mod directory;
mod frames;
mod meta_client;
mod meta_server;
mod parked;
mod serve;
mod status;
mod watcher;

pub use self::data_client::DataClient;
pub use self::data_server::DataServer;
pub use self::directory::Directory;
pub use self::meta_client::MetaClient;
pub use self::meta_server::MetaServer;
pub use self::serve::serve;

/// The largest message, either way. Frontends cut writes at 8 MiB; one row may be larger.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// What all requests on a connection may have under way together. Each has a bound of its own; one
/// that nobody reads must not stop the others, so this one is never reached: 1 GiB.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 30;
/// The largest piece in which a message is sent, either way. Requests take turns after each, so that
/// a small one waits for 64 KiB of a large one: half a millisecond at 1 Gbit/s.
const PIECE_BYTES: u32 = 64 << 10;
/// The metadata by which a request says which node it is for.
const NODE_KEY: &str = "partita-node";
/// The metadata by which an order says which catalog it follows from.
const CATALOG_KEY: &str = "partita-catalog-bin";

/// A random number. The standard library's hashers are made with random keys.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests;

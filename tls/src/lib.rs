//! TLS between the processes of a cluster and at its doors.
//!
//! ```text
//! issue.rs      the certificate authority: init, issue, rotate   (run by an operator, not by a server)
//!      | ca.pem, cert.pem, key.pem
//! identity.rs   a process of the cluster: mutual TLS by role      door.rs   a port for clients
//!      \____________________ reload.rs: a new configuration when files change _______/
//! links.rs      links between processes, with an identity or without      trust.rs   a tool that calls a door
//! gate.rs       handshakes in progress at a port for the cluster: handshakes.rs decides, refusals.rs bounds the log
//! ```
//!
//! Invariants:
//! - A peer of the cluster has a certificate of an authority in `ca.pem`, and exactly one [`Role`]. The client checks
//!   the role of the server by name, the server checks the client's role in the handshake.
//! - ring is the only provider of cryptography, and every configuration names it: no process default is read or set.
//! - X.509 is parsed by rustls-webpki (what decides) and x509-certificate (what is shown, and names of clients).

mod certificate;
mod door;
mod end_point;
mod error;
mod files;
mod gate;
mod handshakes;
mod identity;
pub mod issue;
mod links;
mod options;
mod refusals;
mod reload;
mod role;
mod trust;
mod verifier;

#[cfg(test)]
mod tests;

pub use door::{Door, DoorFiles, common_name};
pub use end_point::end_point_hash;
pub use error::TlsError;
pub use gate::{Gate, Place};
pub use identity::{ClientTls, Identity, IdentityFiles};
pub use links::{HANDSHAKE_WAIT, LinkIo, LinkStream, Links};
pub use options::TlsOptions;
pub use reload::{Certified, RELOAD_INTERVAL, Reloading};
pub use role::{Role, UnknownRole};
/// The rustls that the configurations are for.
pub use rustls;
/// The tokio-rustls that goes with it.
pub use tokio_rustls;
pub use trust::door_client;

//! The HTTP and Arrow Flight doors of the frontend, on one port.
//!
//! ```text
//!   server ── routes ── sign_in ─┬─ write ─── write_lines ── line_protocol ── schema_on_write ── ingest
//!                                ├─ query, sql_api ── sql_parameters ── format
//!                                ├─ manage: organisations, buckets, tokens, schemas
//!                                ├─ status, metrics ── load_metrics
//!                                ├─ heatmap ── tables_json: the picture of load
//!                                ├─ pages ── signed_login: signing in and out
//!                                ├─ flight (gRPC): queries, Flight SQL, bulk rows
//!                                └─ bigtable (gRPC): wide tables
//! ```
//!
//! A door translates; storage and queries belong to the frontend. Invariants:
//! - a successful response means that rows are durable;
//! - bodies, messages, connections and the memory they occupy are bounded by [`HttpOptions`];
//! - pages of other origins have no access ([`Guard`]);
//! - a handler runs for an authenticated identity, unless the table of routes says that everybody may have its response;
//! - catalogs that handlers read are those of a viewer, without what the identity may not see;
//! - values that clients send never become part of SQL text.

mod activity;
mod bigtable;
mod body;
mod call_memory;
mod caller;
mod door;
mod error;
mod flight;
mod format;
mod grpc_message;
mod guard;
mod heatmap;
mod hints;
pub mod line_protocol;
mod load_metrics;
mod manage;
mod metrics;
mod options;
mod pages;
mod parameters;
mod query;
mod routes;
mod schema_on_write;
mod server;
mod sign_in;
mod signed_login;
mod sql_api;
mod sql_parameters;
mod status;
mod tables_json;
mod unread;
mod write;
mod write_lines;
mod write_rights;

#[cfg(test)]
mod tests;

pub use guard::Guard;
pub use options::HttpOptions;
pub use server::{alpn, serve};

//! The HTTP and Arrow Flight doors of the frontend, on one port.
//!
//! ```text
//!   server ── routes ─┬─ write ─── write_lines ── line_protocol ── schema_on_write ── ingest
//!                     ├─ query, sql_api ── sql_parameters ── format
//!                     ├─ status, metrics ── load_metrics
//!                     ├─ heatmap ── tables_json: the picture of load
//!                     └─ flight (gRPC): queries, Flight SQL, bulk rows
//! ```
//!
//! A door translates; storage and queries belong to the frontend. Invariants:
//! - a successful response means that rows are durable;
//! - bodies, messages, connections and the memory they occupy are bounded by [`HttpOptions`];
//! - pages of other origins have no access ([`Guard`]);
//! - values that clients send never become part of SQL text.

mod body;
mod door;
mod error;
mod flight;
mod format;
mod guard;
mod heatmap;
mod hints;
pub mod line_protocol;
mod load_metrics;
mod metrics;
mod options;
mod parameters;
mod query;
mod routes;
mod schema_on_write;
mod server;
mod sql_api;
mod sql_parameters;
mod status;
mod tables_json;
mod write;
mod write_lines;

#[cfg(test)]
mod tests;

pub use guard::Guard;
pub use options::HttpOptions;
pub use server::serve;

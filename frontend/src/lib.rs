//! The frontend: SQL, sessions, ingest and routing. The doors (PostgreSQL, HTTP, Flight) are crates
//! of their own and use only what is public here.
//!
//! ```text
//!   door ── Session::run ──┬─ SELECT ─── DataFusion plan ── table.rs ── scan.rs ──┐
//!                          ├─ INSERT ─── sql/insert.rs ──┐                        ├── leaders
//!   door ── Frontend::ingest (columns) ──────────────────┴─ ingest.rs ── router.rs ┘
//!                          └─ DDL ────── meta
//! ```
//!
//! Nothing here survives the process: the catalog is meta's, rows are the nodes', and what a
//! frontend keeps (plans, routes, the query log) it can lose.

#![recursion_limit = "256"]

pub mod error;
pub mod output;
pub mod sql;

mod frontend;
mod session;

pub use error::SqlError;
pub use frontend::{Frontend, FrontendOptions};
pub use output::{CopyIn, CopyOut, Notice, Output, RowStream, Severity};
pub use session::{Prepared, Session, SessionOptions};
pub use sql::Statement;

mod catalog {
    pub(crate) const CATALOG: &str = "partita";
}

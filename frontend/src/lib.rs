//! The frontend: SQL, sessions, ingest and routing. The doors (PostgreSQL, HTTP, Flight) are separate crates that use
//! only its public items.
//!
//! ```text
//!   door ── Session::run ──┬─ SELECT ─── DataFusion plan ── table.rs ── scan.rs ──┐
//!                          ├─ INSERT ─── partita-sql ────┐                        ├── leaders
//!   door ── Frontend::ingest (columns) ──────────────────┴─ ingest.rs ── router.rs ┘
//!                          └─ DDL ────── meta
//! ```
//!
//! Scans and the router share `view.rs`: the catalog, the nodes, the leaders and the row counts as this frontend knows
//! them. The SQL dialect is a crate of its own, [`sql`].
//!
//! Nothing here outlives the process: meta keeps the catalog, the nodes keep the rows, and the frontend can lose its
//! own state (plans, routes, the query log).

#![recursion_limit = "256"]

pub mod access;
mod activity;
mod advisor;
mod at_data;
pub mod audit;
mod blame;
mod bound_text;
pub mod catalog;
pub mod functions;
pub mod metrics;
mod named_unions;
mod near_end;
mod nested_bounds;
mod newest;
pub mod output;
pub mod privileges;
pub mod query_log;
mod quorum;
mod reads;
pub mod rejected_points;

#[cfg(any(test, feature = "fake"))]
pub mod fake;

mod cluster;
mod columns;
mod comparisons;
mod conditional;
mod copies;
mod execute;
mod files;
mod filters;
mod first_by_time;
mod frontend;
mod guard;
pub mod held;
mod home;
mod hotspot;
mod index_usage;
mod information;
mod ingest;
mod key_order;
mod large_rows;
mod leaders;
mod limits;
mod load;
mod members;
mod memory;
mod plan_scans;
mod predicate;
mod projections;
mod repeated_keys;
mod repeated_values;
mod replicas;
mod router;
mod row_counts;
mod scan;
pub mod sequences;
mod series;
mod session;
mod set_operations;
mod settings;
mod signals;
mod sources;
mod spill;
mod stalls;
mod statements;
mod statuses;
mod subqueries;
mod supplied;
mod system;
mod table;
mod tasks;
mod temporary;
mod unnested;
mod view;
mod virtual_table;
pub mod wide;
mod zoned;

pub use activity::SessionActivity;
pub use execute::CopyLog;
pub use frontend::{Frontend, FrontendOptions};
pub use ingest::series::OverLimit;
pub use metrics::FrontendMetrics;
pub use output::{CopyIn, CopyOut, Output, RowStream, with_stored_rows};
pub use partita_lanes as lanes;
pub use partita_sql as sql;
pub use partita_sql::{Notice, Severity, Statement};
pub use partita_worker::Zone;
pub use partita_worker::civil;
pub use partita_worker::error;
pub use partita_worker::error::SqlError;
pub use partita_worker::functions::shared as shared_functions;
pub use partita_worker::interval_text;
pub use partita_worker::moments;
pub use partita_worker::padded;
pub use partita_worker::value_text;
pub use partita_worker::zoned::as_instants;
pub use partita_worker::{elements_of, time_of, uuid_of, uuid_texts};
pub use query_log::{QueryLog, QueryLogEntry};
pub use session::{Prepared, Session, SessionOptions};
pub use settings::{DescribedSetting, described_settings};
pub use tasks::outlet::Outlet;

#[cfg(test)]
mod tests;

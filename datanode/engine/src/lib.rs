//! Storage of one partition: a log-structured store of Arrow batches and Parquet files. It does not depend on network
//! or Raft; the replicated log that its owner applies serves as its write-ahead log.
//!
//! ```text
//!   apply ── run ── memtable ── (sealed) ── flush ─┐
//!                      │                           ├─ rewrite ── writer ── sink ── store
//!   files ─────────────┼────────── compaction ─────┘                 └─ manifest (what counts)
//!                      │
//!   scan ── plan ── source ── merge ── fold ──> rows
//!             └─ reader ── footer (every byte checked)
//!
//!   writer ── row_group ── texts (columns of texts, by runs) ── hybrid, bounds, chunk
//!      └─ index (segments between the row groups) ── asked by reader
//!
//!   split ── (a partition's files become those of two, by reference) ── manifest
//!   absorb ── (a neighbour's files become a partition's own, by reference) ── manifest
//!   pinned ── (files and state travel to another replica) ── arrival ── manifest
//! ```
//!
//! | folder | content |
//! |---|---|
//! | `rows/` | rows in memory: layout, runs, memtable, merge and fold |
//! | `file/` | files in the object store: metadata, footers, checked and cached blocks |
//! | `parquet/` | encoding of row groups |
//! | `index/` | indexes of columns: built with the files, asked for the rows that may pass a test |
//! | `write/` | writing of files |
//! | `read/` | scans, and the reader of files below them |
//! | `state/` | the partition, its versions and its manifest; transfer to other replicas |
//! | `change/` | flush, compaction, split and absorption |
//!
//! Terms: a *run* is a sorted batch in memory, or a set of files that were written together and share no key. A
//! *version* of the partition is an immutable list of memtables and files; versions of a row are rows with one key,
//! which the *fold* turns into one.

mod change;
mod error;
mod file;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod index;
mod options;
mod parquet;
pub mod planted;
mod read;
mod rows;
mod sizes;
mod state;
#[cfg(test)]
mod tests;
mod write;

pub use change::settled::{Settled, Unrecorded};
pub use change::split::{Offspring, Place};
pub use error::EngineError;
pub use file::blocks::BlockCache;
pub use file::store::{After, Lazy, LocalStore};
pub use index::cache::IndexCache;
pub use options::EngineOptions;
pub use read::scan::{Scan, ScanSource, Scanned};
pub use state::arrival::{Arrival, Switch};
pub use state::edit::Origin;
pub use state::partition::{Partition, PartitionConfig, PartitionStats};
pub use state::pinned::Pinned;

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
//!   writer ── group ── texts (columns of texts, by runs) ── hybrid, bounds, chunk
//!
//!   split ── (a partition's files become those of two, by reference) ── manifest
//!   absorb ── (a neighbour's files become a partition's own, by reference) ── manifest
//!   pinned ── (files and state travel to another replica) ── arrival ── manifest
//! ```
//!
//! Terms: a *run* is a sorted batch in memory, or a set of files that were written together and share no key. A
//! *version* of the partition is an immutable list of memtables and files; versions of a row are rows with one key,
//! which the *fold* turns into one.

mod absorb;
mod arrival;
mod blocks;
mod bounds;
mod cache;
mod chunk;
mod compaction;
mod edit;
mod error;
mod file;
mod flush;
mod fold;
mod footer;
mod group;
mod hybrid;
mod layout;
mod manifest;
mod memtable;
mod merge;
mod middle;
mod newest;
mod options;
mod partition;
mod pinned;
mod plan;
mod reader;
mod rewrite;
mod run;
mod scan;
mod series;
mod settled;
mod sink;
mod sizes;
mod source;
mod split;
mod store;
#[cfg(test)]
mod tests;
mod texts;
mod version;
mod wanted;
mod window;
mod writer;

pub use arrival::Arrival;
pub use blocks::BlockCache;
pub use edit::Origin;
pub use error::EngineError;
pub use options::EngineOptions;
pub use partition::{Partition, PartitionConfig, PartitionStats};
pub use pinned::Pinned;
pub use scan::{Scan, Scanned};
pub use settled::{Settled, Unrecorded};
pub use split::{Offspring, Place};
pub use store::{After, Lazy, LocalStore};

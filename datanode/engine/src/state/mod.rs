//! The state of a partition: its manifest on disk, its current version in memory, and its transfer between replicas.
//!
//! ```text
//!   partition ── version (in memory) ── reported (about a version)
//!       └── manifest ── edit (on disk)
//!   pinned ── another replica ── arrival
//! ```

pub(crate) mod arrival;
pub(crate) mod edit;
pub(crate) mod manifest;
pub(crate) mod partition;
pub(crate) mod pinned;
pub(crate) mod reported;
pub(crate) mod version;

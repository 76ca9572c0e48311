//! The invariants of a run, one per file.

pub(crate) mod counted;
pub(crate) mod leaders;
pub(crate) mod linearizable;
pub(crate) mod ranges;
pub(crate) mod replicas;
pub(crate) mod rows;

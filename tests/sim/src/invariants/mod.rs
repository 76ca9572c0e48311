//! What must hold, one file each.

pub(crate) mod leaders;
pub(crate) mod linearizable;
pub(crate) mod ranges;
pub(crate) mod replicas;
pub(crate) mod rows;

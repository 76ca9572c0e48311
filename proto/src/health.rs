//! Health: the parts of a process that do not serve, for health checks.

use std::fmt;

/// A part of a process that does not serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ailment {
    /// Name of the part: `log`, `meta`, `partition 7`.
    pub part: String,
    /// Reason why it does not serve.
    pub reason: String,
}

impl Ailment {
    /// A part and the reason.
    pub fn new(part: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { part: part.into(), reason: reason.into() }
    }
}

impl fmt::Display for Ailment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.part, self.reason)
    }
}

/// Reports the health of a process's parts.
pub trait Health: fmt::Debug + Send + Sync {
    /// The parts that do not serve now. Does not block.
    fn ailments(&self) -> Vec<Ailment>;
}

/// A process without parts of its own that could fail.
#[derive(Clone, Copy, Debug, Default)]
pub struct Well;

impl Health for Well {
    fn ailments(&self) -> Vec<Ailment> {
        Vec::new()
    }
}

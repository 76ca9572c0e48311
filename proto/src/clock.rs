//! The time of day as a parameter: production passes the system's clock, tests their own.

/// A source of the current time.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970-01-01T00:00:00Z.
    fn now_ms(&self) -> i64;
}

//! The time of day, as something that is handed in: production passes the system's, tests their own.

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970-01-01T00:00:00Z.
    fn now_ms(&self) -> i64;
}

//! The end of the time for which a run of a task may write.

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::{QUERY_CANCELED, SqlError};

/// Time up to which the lease of a run is safe.
#[derive(Debug)]
pub(crate) struct Fence(Mutex<Instant>);

impl Fence {
    pub(crate) fn new(end: Instant) -> Self {
        Self(Mutex::new(end))
    }

    /// Time at which writes end unless the lease is renewed.
    pub(crate) fn end(&self) -> Instant {
        *self.0.lock()
    }

    /// Moves the end after a renewal.
    pub(crate) fn extend(&self, end: Instant) {
        let mut present = self.0.lock();
        *present = end.max(*present);
    }

    /// Refuses a write after the end.
    ///
    /// # Errors
    /// 57014 after the end.
    pub(crate) fn check(&self) -> Result<(), SqlError> {
        if Instant::now() < self.end() {
            return Ok(());
        }
        Err(SqlError::new(
            QUERY_CANCELED,
            "canceling task because its lease was not renewed in time",
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn writes_end_with_the_lease() {
        let fence = Fence::new(Instant::now() + Duration::from_secs(20));
        assert!(fence.check().is_ok());
        tokio::time::advance(Duration::from_secs(19)).await;
        fence.extend(Instant::now() + Duration::from_secs(20));
        // An older renewal takes nothing away.
        fence.extend(Instant::now());
        tokio::time::advance(Duration::from_secs(19)).await;
        assert!(fence.check().is_ok());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(fence.check().unwrap_err().sqlstate, QUERY_CANCELED);
    }
}

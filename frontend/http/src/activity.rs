//! Activity of a connection on which several requests may be in flight: HTTP/2 has no limit of its own for clients that
//! only hold a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// What has happened on one connection. Requests have it as an extension.
#[derive(Debug)]
pub(crate) struct Activity {
    /// True since a request had an identity.
    authenticated: AtomicBool,
    in_flight: AtomicUsize,
    /// End of the last request, or the beginning of the connection.
    last: Mutex<Instant>,
}

impl Activity {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            authenticated: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            last: Mutex::new(Instant::now()),
        })
    }

    /// Notes that a request had an identity.
    pub(crate) fn authenticated(&self) {
        self.authenticated.store(true, Ordering::Relaxed);
    }

    /// Notes a request, which is in flight until the result is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    /// Waits until no request has been in flight for `limit`; for ever once a request had an identity.
    pub(crate) async fn idle(&self, limit: Duration) {
        loop {
            if self.authenticated.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            let is_busy = self.in_flight.load(Ordering::Relaxed) > 0;
            let idle = if is_busy { Duration::ZERO } else { self.last.lock().elapsed() };
            if idle >= limit {
                return;
            }
            tokio::time::sleep(limit.saturating_sub(idle)).await;
        }
    }
}

/// A request in flight.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Activity>);

impl Drop for InFlight {
    fn drop(&mut self) {
        *self.0.last.lock() = Instant::now();
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(20);
    const LONGER: Duration = Duration::from_millis(200);

    #[tokio::test]
    async fn a_connection_is_idle_without_requests_or_an_identity() {
        let activity = Activity::new();
        activity.idle(LIMIT).await;
        let request = activity.begin();
        assert!(timeout(LONGER, activity.idle(LIMIT)).await.is_err());
        drop(request);
        activity.idle(LIMIT).await;
        activity.authenticated();
        assert!(timeout(LONGER, activity.idle(LIMIT)).await.is_err());
    }
}

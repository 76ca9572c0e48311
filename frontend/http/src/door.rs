//! What all requests share.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use partita_frontend::{Frontend, Session, SessionOptions, SqlError};
use tokio::sync::Semaphore;

use crate::metrics::DoorMetrics;
use crate::options::HttpOptions;

/// The unit in which bytes of bodies are counted: a semaphore counts to 2^32 only.
const BODY_UNIT: usize = 1 << 10;

/// What all requests share.
pub(crate) struct Door {
    pub(crate) frontend: Arc<Frontend>,
    pub(crate) options: HttpOptions,
    pub(crate) metrics: DoorMetrics,
    pub(crate) started: Instant,
    pub(crate) started_ns: i64,
    /// Units of bodies that may still be taken in.
    bodies: Arc<Semaphore>,
}

/// The share of a request in the bytes of all bodies; given back when it is dropped.
pub(crate) type BodyShare = tokio::sync::OwnedSemaphorePermit;

impl Door {
    pub(crate) fn new(frontend: Arc<Frontend>, options: HttpOptions) -> Arc<Self> {
        let units = (options.in_flight_bytes_max / BODY_UNIT).clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(Self {
            metrics: DoorMetrics::new(Arc::clone(&frontend)),
            frontend,
            options,
            started: Instant::now(),
            started_ns: now_ns(),
            bodies: Arc::new(Semaphore::new(units)),
        })
    }

    /// A session for one request.
    ///
    /// # Errors
    /// When there is no such database.
    pub(crate) fn session(
        &self,
        database: &str,
        application: &str,
    ) -> Result<Arc<Session>, SqlError> {
        let session = self.frontend.session(SessionOptions {
            application: application.to_owned(),
            ..SessionOptions::default()
        });
        session.set_database(database)?;
        Ok(session)
    }

    /// Waits until so many bytes of bodies may be taken in. `None` when that took too long.
    pub(crate) async fn body_share(&self, bytes: usize) -> Option<BodyShare> {
        let all = self.options.in_flight_bytes_max / BODY_UNIT;
        let units = bytes.div_ceil(BODY_UNIT).clamp(1, all.max(1));
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let share = Arc::clone(&self.bodies).acquire_many_owned(units);
        tokio::time::timeout(self.options.body_timeout, share).await.ok()?.ok()
    }
}

/// The time of day in nanoseconds since 1970.
pub(crate) fn now_ns() -> i64 {
    // Before 1970 or after 2262 the clock is wrong in any case.
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_nanos()).ok())
        .unwrap_or(0)
}

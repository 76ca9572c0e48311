//! The state that all requests share.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use partita_frontend::{Frontend, Session, SessionOptions, SqlError};
use partita_proto::access::Identity;
use partita_proto::catalog::DEFAULT_DATABASE;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ApiError;
use crate::metrics::DoorMetrics;
use crate::options::HttpOptions;

/// The unit in which bytes of bodies are counted: a semaphore only counts to 2^32.
const BODY_UNIT: usize = 1 << 10;

/// Frontend, options, metrics and the memory for bodies.
pub(crate) struct Door {
    pub(crate) frontend: Arc<Frontend>,
    pub(crate) options: HttpOptions,
    pub(crate) metrics: DoorMetrics,
    pub(crate) started: Instant,
    pub(crate) started_ns: i64,
    /// Free units of memory for bodies.
    bodies: Arc<Semaphore>,
}

/// A request's share of the memory for bodies, released when it is dropped.
#[derive(Debug)]
pub(crate) struct BodyShare {
    permit: OwnedSemaphorePermit,
    bytes: usize,
}

impl BodyShare {
    /// The size of the share in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Releases what is more than `bytes`.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let units = bytes.div_ceil(BODY_UNIT).max(1);
        let surplus = self.permit.num_permits().saturating_sub(units);
        drop(self.permit.split(surplus));
        self.bytes = self.bytes.min(bytes);
    }
}

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

    /// A session of an identity, for one request.
    ///
    /// # Errors
    /// When the database does not exist for the identity.
    pub(crate) fn session(
        &self,
        identity: Identity,
        database: &str,
        application: &str,
    ) -> Result<Arc<Session>, SqlError> {
        let access = self.frontend.access();
        let user = access.role(identity.login).map(|role| role.name.clone());
        let session = self.frontend.session(SessionOptions {
            user: user.unwrap_or_default(),
            application: application.to_owned(),
            identity,
            ..SessionOptions::default()
        });
        // Clients that name no database are in the default one, and may name tables of others if they do not see it.
        if database != DEFAULT_DATABASE {
            session.set_database(database)?;
        }
        Ok(session)
    }

    /// Claims memory for a body before its first byte.
    ///
    /// # Errors
    /// Those of [`Self::grow`].
    pub(crate) async fn body_share(&self) -> Result<BodyShare, ApiError> {
        let permit = self.claim(1).await?;
        Ok(BodyShare { permit, bytes: BODY_UNIT })
    }

    /// Claims more memory for a body, `bytes` in total; waits while other bodies occupy it.
    ///
    /// # Errors
    /// 503 when that takes too long: the bytes received so far are dropped, so that bodies cannot wait for each other
    /// forever.
    pub(crate) async fn grow(&self, share: &mut BodyShare, bytes: usize) -> Result<(), ApiError> {
        let total = self.options.in_flight_bytes_max / BODY_UNIT;
        let units = bytes.div_ceil(BODY_UNIT).clamp(1, total.max(1));
        let missing = units.saturating_sub(share.permit.num_permits());
        if missing > 0 {
            share.permit.merge(self.claim(missing).await?);
        }
        share.bytes = share.bytes.max(bytes);
        Ok(())
    }

    /// Free memory for bodies.
    #[cfg(test)]
    pub(crate) fn free_bytes(&self) -> usize {
        self.bodies.available_permits() * BODY_UNIT
    }

    async fn claim(&self, units: usize) -> Result<OwnedSemaphorePermit, ApiError> {
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.bodies).acquire_many_owned(units);
        let permit = tokio::time::timeout(self.options.body_wait, permit).await;
        permit
            .ok()
            .and_then(Result::ok)
            .ok_or_else(|| ApiError::busy("too many large requests in flight; try again"))
    }
}

/// The current time in nanoseconds since 1970.
pub(crate) fn now_ns() -> i64 {
    // A clock before 1970 or after 2262 is wrong in any case.
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|elapsed| i64::try_from(elapsed.as_nanos()).ok())
        .unwrap_or(0)
}

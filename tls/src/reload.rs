//! Configurations that follow their files.
//!
//! Invariant: files that cannot be used leave the configuration as it is. Connections keep the configuration with
//! which they were opened.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use tokio::sync::watch;
use tokio::time::{Instant, Interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::certificate;
use crate::error::TlsError;

/// Interval at which servers look at their files.
pub const RELOAD_INTERVAL: Duration = Duration::from_secs(5);

/// Time before the end of a certificate from which on servers warn of it.
const WARNING_S: i64 = 30 * 86_400;
/// Interval of these warnings.
const WARNING_INTERVAL: Duration = Duration::from_secs(86_400);

/// Files with a certificate, of which servers warn before it expires.
pub trait Certified {
    /// Certificate of the server.
    fn certificate(&self) -> Option<&CertificateDer<'static>>;
}

fn end_of(files: &impl Certified) -> Option<DateTime<Utc>> {
    Some(certificate::fields(files.certificate()?)?.expires)
}

/// True if a certificate with this end should be replaced soon.
fn expires_soon(end: DateTime<Utc>, now: SystemTime) -> bool {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    end.timestamp().saturating_sub(now) < WARNING_S
}

/// Reads the files; returns a new value if they have changed.
type Reader<T> = Box<dyn FnMut() -> Result<Option<T>, TlsError> + Send>;

/// A value that is built from files, and built anew when they change: an `Arc` of a configuration, or several.
pub struct Reloading<T> {
    reader: Mutex<Reader<T>>,
    current: watch::Sender<T>,
    /// End of the certificate in use.
    end: Arc<Mutex<Option<DateTime<Utc>>>>,
}

impl<T: Clone + Send + Sync + 'static> Reloading<T> {
    /// Reads the files and builds the first value.
    ///
    /// ```no_run
    /// # use partita_tls::{Identity, Reloading, Role, TlsOptions};
    /// let server = Reloading::new(
    ///     || Identity::load("certs/meta1".as_ref()),
    ///     |identity: &Identity| identity.server_config(&[Role::Datanode], &TlsOptions::default()),
    /// )?;
    /// # Ok::<(), partita_tls::TlsError>(())
    /// ```
    ///
    /// # Errors
    /// If the files cannot be read, or the value cannot be built.
    pub fn new<F: Certified + PartialEq + Send + 'static>(
        read: impl Fn() -> Result<F, TlsError> + Send + 'static,
        build: impl Fn(&F) -> Result<T, TlsError> + Send + 'static,
    ) -> Result<Self, TlsError> {
        let mut loaded = read()?;
        let first = build(&loaded)?;
        let end = Arc::new(Mutex::new(end_of(&loaded)));
        let newest_end = Arc::clone(&end);
        let reader = move || -> Result<Option<T>, TlsError> {
            let files = read()?;
            if files == loaded {
                return Ok(None);
            }
            let value = build(&files)?;
            *newest_end.lock() = end_of(&files);
            loaded = files;
            Ok(Some(value))
        };
        Ok(Self { reader: Mutex::new(Box::new(reader)), current: watch::Sender::new(first), end })
    }

    /// Value for a new connection.
    #[must_use]
    pub fn current(&self) -> T {
        self.current.borrow().clone()
    }

    /// Follows the value, for those who replace connections when it changes.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<T> {
        self.current.subscribe()
    }

    /// Looks at the files now, and returns whether the value has changed. Blocks while it reads.
    ///
    /// # Errors
    /// If the files cannot be used; the value stays.
    pub fn reload(&self) -> Result<bool, TlsError> {
        // The lock is held until the value is published: the newest files win.
        let mut reader = self.reader.lock();
        let Some(value) = (*reader)()? else { return Ok(false) };
        self.current.send_replace(value);
        Ok(true)
    }

    /// Looks at the files at each tick until `stop`. A failure is logged once, until another one or a success; a
    /// certificate that expires soon, once a day.
    pub async fn follow(self: Arc<Self>, mut ticks: Interval, stop: CancellationToken) {
        let mut reported = None;
        let mut warned: Option<(DateTime<Utc>, Instant)> = None;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = stop.cancelled() => return,
            }
            let reloading = Arc::clone(&self);
            let failure = match tokio::task::spawn_blocking(move || reloading.reload()).await {
                Ok(Ok(changed)) => {
                    if changed {
                        info!("loaded changed certificates");
                    }
                    None
                }
                Ok(Err(error)) => Some(error.to_string()),
                Err(error) => Some(error.to_string()),
            };
            if failure != reported {
                if let Some(error) = &failure {
                    warn!(%error, "cannot load changed certificates; the previous ones stay in use");
                }
                reported = failure;
            }
            let end = *self.end.lock();
            let is_warned =
                warned.is_some_and(|(of, at)| Some(of) == end && at.elapsed() < WARNING_INTERVAL);
            if let Some(end) = end
                && !is_warned
                && expires_soon(end, SystemTime::now())
            {
                warn!(expires = %end, "a certificate in use expires soon, and peers then refuse it: issue it anew");
                warned = Some((end, Instant::now()));
            }
        }
    }
}

impl<T> std::fmt::Debug for Reloading<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reloading")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_expires_soon_in_its_last_thirty_days() {
        let end = DateTime::<Utc>::from_timestamp(100 * 86_400, 0).unwrap();
        let after = |days: u64| UNIX_EPOCH + Duration::from_secs(days * 86_400);
        assert!(!expires_soon(end, after(70)));
        assert!(expires_soon(end, after(71)));
        assert!(expires_soon(end, after(101)));
    }
}

//! Configurations that follow their files.
//!
//! Invariant: files that cannot be used leave the configuration as it is. Connections keep the configuration with
//! which they were opened.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Interval;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::error::TlsError;

/// Interval at which servers look at their files.
pub const RELOAD_INTERVAL: Duration = Duration::from_secs(5);

/// Reads the files; returns a new value if they have changed.
type Reader<T> = Box<dyn FnMut() -> Result<Option<T>, TlsError> + Send>;

/// A value that is built from files, and built anew when they change: an `Arc` of a configuration, or several.
pub struct Reloading<T> {
    reader: Mutex<Reader<T>>,
    current: watch::Sender<T>,
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
    pub fn new<F: PartialEq + Send + 'static>(
        read: impl Fn() -> Result<F, TlsError> + Send + 'static,
        build: impl Fn(&F) -> Result<T, TlsError> + Send + 'static,
    ) -> Result<Self, TlsError> {
        let mut loaded = read()?;
        let first = build(&loaded)?;
        let reader = move || -> Result<Option<T>, TlsError> {
            let files = read()?;
            if files == loaded {
                return Ok(None);
            }
            let value = build(&files)?;
            loaded = files;
            Ok(Some(value))
        };
        Ok(Self { reader: Mutex::new(Box::new(reader)), current: watch::Sender::new(first) })
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

    /// Looks at the files at each tick until `stop`. A failure is logged once, until another one or a success.
    pub async fn follow(self: Arc<Self>, mut ticks: Interval, stop: CancellationToken) {
        let mut reported = None;
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
        }
    }
}

impl<T> std::fmt::Debug for Reloading<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reloading")
    }
}

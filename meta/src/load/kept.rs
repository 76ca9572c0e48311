//! Keeps what a member has heard of load over restarts: reads it at the start, and writes it every few minutes and at a
//! clean stop.
//!
//! Invariant: what is written is collected under the keeper's lock, and encoded without it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use partita_proto::blocking;
use tracing::warn;

use super::files::{Kept, LoadFiles};
use super::keeper::Keeper;
use crate::core::Core;

/// Interval of writing: so much is lost when a process is killed.
const KEEP_INTERVAL: Duration = Duration::from_secs(300);

/// Gives a keeper what its directory has kept.
pub(crate) async fn restore(keeper: &mut Keeper, dir: &Path) {
    let files = LoadFiles::new(dir.to_owned());
    match blocking::spawn(move || files.read()).await {
        Ok(content) => keeper.restore(content),
        Err(error) => warn!(%error, "reading the files of load was interrupted"),
    }
}

impl Keeper {
    /// All that is to be kept.
    pub(crate) fn content(&self) -> Kept {
        let (minutes, tens) = self.history.rows();
        Kept {
            pictures: self.pictures.content(),
            minutes,
            tens,
            profiles: self.forecaster.saved().collect(),
            forecasts: self.forecaster.forecasts().cloned().collect(),
            version: self.known_version(),
        }
    }

    /// Takes what was kept. To be called before anything is noted.
    fn restore(&mut self, content: Kept) {
        self.pictures.restore(content.pictures);
        self.history.restore(content.minutes, content.tens);
        self.forecaster.restore(content.profiles, content.forecasts);
        self.restored_version = content.version;
    }
}

impl Core {
    /// Writes what is known of load every few minutes. Does not return.
    pub(crate) async fn keep_load(&self) {
        loop {
            tokio::time::sleep(KEEP_INTERVAL).await;
            self.save_load().await;
        }
    }

    /// Writes what is known of load, if it is to be kept.
    pub(crate) async fn save_load(&self) {
        let Some(files) = &self.load_files else { return };
        let (files, content) = (Arc::clone(files), self.load.lock().content());
        if let Err(error) = blocking::spawn(move || files.write(&content)).await {
            warn!(%error, "writing the files of load was interrupted");
        }
    }
}

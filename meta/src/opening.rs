//! Opens the catalog from store, copies and log.
//!
//! ```text
//!   state/    sled: all that was applied        copies/   the two newest checkpoints of it (`copies.rs`)
//!      └───────────────┬───────────────────────────┘
//!              the newest complete one ──▶ then the log, which must begin no later than its end
//! ```
//!
//! After a clean stop, store and newest copy are at the same entry: then the start takes roles and tokens from the copy, in
//! the background (`identities.rs`), and everything else from the store.
//!
//! The store opens while the log does ([`StoreOpening`]): neither needs the other, and a large store takes as long.
//!
//! A store that is damaged, or has gone back to before a copy, is renamed to `state.damaged-<n>` and recreated from
//! the newest copy, or from the log if that still begins at the beginning.
//!
//! Invariant: after a crash at any moment, the next start comes to the same result: a store that was set aside is
//! missing, and a missing store is older than any copy.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use tokio::task::JoinHandle;
use tracing::warn;

use crate::copies::{Copies, Copy};
use crate::error::MetaError;
use crate::identities::load_beside;
use crate::machine::CatalogMachine;
use crate::sled_store::SledStore;
use crate::store::StateStore;
use crate::transfer::decode_records;

/// Directory of the applied catalog, below meta's directory.
const STATE: &str = "state";
/// Directory of the copies.
const COPIES: &str = "copies";
/// Maximum time for a closed store to end its background work.
const CLOSE_WAIT: Duration = Duration::from_secs(5);
const CLOSE_POLL: Duration = Duration::from_millis(5);

/// An opened catalog.
pub(crate) struct Opened {
    pub(crate) machine: Arc<CatalogMachine>,
    /// Description of the damaged store that was set aside.
    pub(crate) set_aside: Option<String>,
}

/// The catalog's store while it opens in the background. Dropped, the store is closed as soon as it is open.
#[must_use]
pub struct StoreOpening {
    /// Meta's directory.
    dir: PathBuf,
    store: JoinHandle<Result<Arc<dyn StateStore>, MetaError>>,
}

impl fmt::Debug for StoreOpening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOpening").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl StoreOpening {
    /// Begins to open the store in meta's directory, or to create it. Must be called in a runtime.
    pub fn begin(dir: &Path) -> Self {
        let state = dir.join(STATE);
        Self {
            dir: dir.to_owned(),
            store: partita_proto::blocking::spawn(move || open_store(&state)),
        }
    }

    /// Closes the store, so that its directory can be moved.
    pub async fn abandon(self) {
        let Self { dir, store } = self;
        drop(store.await);
        until_closed(&dir.join(STATE));
    }

    /// Opens the catalog over the store, as [`open_catalog`] does.
    pub(crate) async fn open_catalog(self, log: Option<Option<u64>>) -> Result<Opened, MetaError> {
        let interrupted =
            |error| MetaError::Corrupted(format!("reading it was interrupted: {error}"));
        let Self { dir, store } = self;
        let store = store.await.map_err(interrupted)?;
        let opened = partita_proto::blocking::spawn(move || open_catalog(&dir, store, log));
        opened.await.map_err(interrupted)?
    }
}

/// Source of a catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// The store, unchanged.
    Store,
    /// The newest copy.
    Copy,
    /// An empty catalog and the whole log.
    Log,
    /// None: no complete source reaches the log.
    Nothing,
}

/// Chooses the source. `store`: last entry in the store (`None`: no entry; an error: damaged); `copy`: last entry
/// in the newest complete copy; `log`: index up to which the log was released, if there is a log.
fn choose(store: Result<Option<u64>, ()>, copy: Option<u64>, log: Option<Option<u64>>) -> Choice {
    let meets = |index: Option<u64>| index >= log.flatten();
    match (store, copy) {
        // A copy is made only of what the store has synced: a store that is older has lost it.
        (Ok(index), copy) if index >= copy => match meets(index) {
            true => Choice::Store,
            false => Choice::Nothing,
        },
        (_, Some(copy)) if meets(Some(copy)) => Choice::Copy,
        (Err(()), None) if log == Some(None) => Choice::Log,
        _ => Choice::Nothing,
    }
}

/// Opens the catalog below a directory over its store, or creates one; `log`: index up to which meta's log was released, if this
/// node has the log.
///
/// # Errors
/// [`MetaError::Corrupted`] if no complete source reaches the log; [`MetaError::Incompatible`], [`MetaError::Io`].
fn open_catalog(
    dir: &Path,
    store: Result<Arc<dyn StateStore>, MetaError>,
    log: Option<Option<u64>>,
) -> Result<Opened, MetaError> {
    let state = dir.join(STATE);
    let opened = store.and_then(|store| Ok((open_beside(&store, &dir.join(COPIES), log)?, store)));
    let store = match opened {
        Ok((Some(machine), _)) => return Ok(Opened { machine, set_aside: None }),
        Ok((None, store)) => Ok(store),
        Err(error) => Err(error),
    };
    let (copies, newest, bad_copies) = Copies::open(&dir.join(COPIES))?;
    for damage in &bad_copies {
        warn!(damage, "a copy of the catalog is damaged");
    }
    let store = match store.and_then(|store| CatalogMachine::open_copied(store, Some(copies))) {
        Ok(machine) => Ok(machine),
        Err(MetaError::Corrupted(damage)) => Err(damage),
        Err(error) => return Err(error),
    };
    let index = store.as_ref().map(|machine| machine.applied_index()).map_err(|_| ());
    let choice = choose(index, newest.as_ref().map(|copy| copy.mark.index()), log);
    let damage = match store {
        Ok(machine) if choice == Choice::Store => return Ok(Opened { machine, set_aside: None }),
        Ok(machine) => {
            drop(machine);
            format!("{} has reverted to entry {}", state.display(), number(index.ok().flatten()))
        }
        Err(damage) => damage,
    };
    match choice {
        Choice::Nothing => Err(MetaError::Corrupted(hopeless(&damage, &bad_copies, dir, log))),
        Choice::Store | Choice::Copy | Choice::Log => {
            let aside = set_aside(&state)?;
            let damage = format!("{damage}; it is now in {}", aside.display());
            let source = if choice == Choice::Copy { "a copy" } else { "the log" };
            warn!(%damage, source, "recreating the catalog");
            // The first `Copies` were moved into the store that is closed now.
            let (copies, ..) = Copies::open(&dir.join(COPIES))?;
            let machine = CatalogMachine::open_copied(open_store(&state)?, Some(copies))?;
            if let (Choice::Copy, Some(Copy { mark, records })) = (choice, newest) {
                machine.replace(decode_records(records)?, mark)?;
            }
            Ok(Opened { machine, set_aside: Some(damage) })
        }
    }
}

fn number(index: Option<u64>) -> String {
    index.map_or_else(|| "none".to_owned(), |index| index.to_string())
}

/// Error text if no source is usable.
fn hopeless(damage: &str, bad_copies: &[String], dir: &Path, log: Option<Option<u64>>) -> String {
    let copies = match bad_copies {
        [] => format!("no copy in {} is newer", dir.join(COPIES).display()),
        bad => bad.join(", "),
    };
    let log = match log.flatten() {
        Some(index) => format!("the log begins after entry {index}"),
        None => "there is no log to recreate it from".to_owned(),
    };
    format!(
        "{damage}, {copies}, and {log}; restore {} from a backup that was made together with the log, or, if other \
         members of meta's group have the catalog, start this one with an empty data directory and --rejoin",
        dir.display()
    )
}

fn open_store(dir: &Path) -> Result<Arc<dyn StateStore>, MetaError> {
    Ok(Arc::new(SledStore::open(dir)?))
}

/// Opens a catalog whose roles and tokens are loaded in the background. `None` unless store, newest copy and log are as
/// a clean stop leaves them.
///
/// # Errors
/// Those of store and copies.
fn open_beside(
    store: &Arc<dyn StateStore>,
    copies: &Path,
    log: Option<Option<u64>>,
) -> Result<Option<Arc<CatalogMachine>>, MetaError> {
    if partita_proto::blocking::is_in_place() {
        return Ok(None);
    }
    let Some(copies) = Copies::open_unread(copies)? else { return Ok(None) };
    let index = store.applied()?.map(|applied| applied.index);
    let is_copied = index.is_some() && index == copies.indexes().last().copied();
    if !is_copied || index < log.flatten() {
        return Ok(None);
    }
    let (machine, unloaded) = CatalogMachine::open_unloaded(Arc::clone(store), Some(copies))?;
    load_beside(Arc::clone(&machine), unloaded)?;
    Ok(Some(machine))
}

/// Renames a damaged store's directory, so that it can be examined.
fn set_aside(dir: &Path) -> Result<PathBuf, MetaError> {
    until_closed(dir);
    let free = (1..).map(|number| dir.with_extension(format!("damaged-{number}")));
    let Some(aside) = free.take(1000).find(|path| !path.exists()) else {
        return Err(MetaError::Corrupted(format!("{} is damaged, again", dir.display())));
    };
    std::fs::rename(dir, &aside)
        .map_err(|error| MetaError::io(format!("renaming {}", dir.display()), error))?;
    Ok(aside)
}

/// Waits until a store is closed: that happens in the background, which writes by path.
pub(crate) fn until_closed(dir: &Path) {
    let Ok(file) = std::fs::File::open(dir.join("db")) else { return };
    let deadline = Instant::now() + CLOSE_WAIT;
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() >= deadline {
            warn!(dir = %dir.display(), "the damaged store is still open");
            return;
        }
        std::thread::sleep(CLOSE_POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_that_is_whole_is_taken_if_the_log_goes_on_from_there() {
        let gone = |upto| Some(Some(upto));
        let cases = [
            // A new directory, and a log that has not been given up.
            (Ok(None), None, None, Choice::Store),
            (Ok(None), None, Some(None), Choice::Store),
            (Ok(Some(9)), None, Some(None), Choice::Store),
            // From before there were copies.
            (Ok(Some(9)), None, gone(8), Choice::Store),
            (Ok(Some(7)), None, gone(8), Choice::Nothing),
            (Err(()), None, Some(None), Choice::Log),
            (Err(()), None, gone(8), Choice::Nothing),
            (Err(()), None, None, Choice::Nothing),
            // The store is ahead of its copies, or as far as they are.
            (Ok(Some(12)), Some(9), gone(4), Choice::Store),
            (Ok(Some(9)), Some(9), gone(4), Choice::Store),
            // It has gone back, or is missing, or is damaged.
            (Ok(Some(5)), Some(9), gone(4), Choice::Copy),
            (Ok(Some(5)), Some(9), gone(8), Choice::Copy),
            (Ok(None), Some(9), gone(8), Choice::Copy),
            (Err(()), Some(9), gone(8), Choice::Copy),
            (Err(()), Some(9), Some(None), Choice::Copy),
            // Another member's state was installed, and there is no copy of it.
            (Err(()), Some(9), gone(30), Choice::Nothing),
            (Ok(Some(31)), Some(9), gone(30), Choice::Store),
        ];
        for (store, copy, log, expected) in cases {
            assert_eq!(choose(store, copy, log), expected, "{store:?} {copy:?} {log:?}");
        }
    }

    #[tokio::test]
    async fn a_store_that_is_abandoned_while_it_opens_can_be_moved() {
        let dir = tempfile::tempdir().unwrap();
        for round in 0..5 {
            StoreOpening::begin(dir.path()).abandon().await;
            let (state, moved) =
                (dir.path().join(STATE), dir.path().join(format!("moved-{round}")));
            std::fs::rename(&state, &moved).unwrap();
            // Nothing of the abandoned store comes back under its old name.
            let opened = StoreOpening::begin(dir.path()).open_catalog(None).await.unwrap();
            assert!(!opened.machine.has_applied() && opened.set_aside.is_none());
        }
    }
}

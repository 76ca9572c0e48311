//! Loads roles and tokens beside the rest of a start: there may be a hundred thousand, and nothing else needs them.
//!
//! ```text
//!   store: objects ──▶ state, published ──▶ group, partitions, doors ... ──▶ a sign-in waits ──┐
//!     └─▶ thread: newest copy (or the store) ─▶ roles, checked ─▶ tokens, checked ─▶ delivered ─┘
//! ```
//!
//! A copy is one file with one checksum, and is read in a fraction of the time that the store takes for its records.
//! It has the records of the store because it is of the same position; at another position, such as after a crash, the
//! start reads all of the store at once (`opening.rs`).
//!
//! Invariants:
//! - the machine decides no entry that concerns roles or tokens before these are loaded: readers wait for them;
//! - if they cannot be loaded, the machine fails before it releases the readers: nothing that was decided without them
//!   is recorded.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use partita_proto::access::Arrival;
use tracing::{error, warn};

use crate::catalog::State;
use crate::copies::Copies;
use crate::error::MetaError;
use crate::machine::{CatalogMachine, Unloaded};
use crate::record::{self, ROLE, TOKEN};
use crate::transfer::slice_records;

/// Records by key.
type Records = Vec<(Bytes, Bytes)>;

/// Loads roles and tokens of a machine on a thread of its own.
///
/// # Errors
/// [`MetaError::Io`] if there can be no other thread; the machine must not be used then.
pub(crate) fn load_beside(
    machine: Arc<CatalogMachine>,
    unloaded: Unloaded,
) -> Result<(), MetaError> {
    let thread = std::thread::Builder::new().name("identities".to_owned());
    let spawned = thread.spawn(move || load_or_fail(&machine, unloaded));
    spawned.map(drop).map_err(|error| MetaError::io("starting a thread", error))
}

/// Loads roles and tokens, or fails the machine.
pub(crate) fn load_or_fail(machine: &CatalogMachine, unloaded: Unloaded) {
    let Unloaded { index, state, arrival } = unloaded;
    let work = || load(machine, index, state, &arrival);
    let loaded = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(MetaError::Corrupted("its roles and tokens cannot be read".to_owned()))
    });
    if let Err(error) = loaded {
        error!(%error, "loading roles and tokens failed");
        machine.fail(error);
    }
    // Only now: what was not delivered counts as absent.
    drop(arrival);
    if let Some(copies) = machine.copies() {
        check_older(copies, index);
    }
}

fn load(
    machine: &CatalogMachine,
    index: u64,
    mut state: State,
    arrival: &Arrival,
) -> Result<(), MetaError> {
    let (roles, tokens) = match machine.copies().map(|copies| from_copy(copies, index)) {
        Some(Ok(records)) => records,
        damaged => {
            if let Some(Err(error)) = damaged {
                warn!(%error, "a copy of the catalog cannot be read; roles and tokens are read from the store");
            }
            (from_store(machine, ROLE)?, from_store(machine, TOKEN)?)
        }
    };
    // Roles come first: a start waits for the superuser.
    state.apply(&record::edits(roles)?);
    state.check_roles().map_err(MetaError::Corrupted)?;
    arrival.deliver_roles(state.access());
    state.apply(&record::edits(tokens)?);
    state.check_tokens().map_err(MetaError::Corrupted)?;
    arrival.deliver_tokens(state.access());
    Ok(())
}

/// Roles and tokens in the copy of a position.
fn from_copy(copies: &Copies, index: u64) -> Result<(Records, Records), MetaError> {
    let (mut roles, mut tokens) = (Records::new(), Records::new());
    for (key, value) in slice_records(copies.read(index)?.records)? {
        match key.first() {
            Some(&ROLE) => roles.push((key, value)),
            Some(&TOKEN) => tokens.push((key, value)),
            _ => {}
        }
    }
    Ok((roles, tokens))
}

/// The records of a kind in the store. No entry has changed them since the start: it would have waited for them.
fn from_store(machine: &CatalogMachine, kind: u8) -> Result<Records, MetaError> {
    let records = machine.store().load_kinds(kind, kind)?.into_iter();
    Ok(records.map(|(key, value)| (Bytes::from(key), Bytes::from(value))).collect())
}

/// Reports copies that are damaged, apart from the one that was read. They do not count as copies any more.
fn check_older(copies: &Copies, index: u64) {
    for older in copies.indexes().into_iter().filter(|older| *older < index) {
        // A copy may be removed meanwhile, because there is a newer one.
        if let Err(error @ MetaError::Corrupted(_)) = copies.read(older) {
            warn!(%error, "a copy of the catalog is damaged");
        }
    }
}

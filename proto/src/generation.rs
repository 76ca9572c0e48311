//! Generations of a data directory, by which an older copy of it is detected.
//!
//! ```text
//!   directory:  acknowledged 4 ── pending 5 on disk ── ask ─▶ meta: 4 recorded ─▶ records 5
//!               acknowledged 5 on disk ◀───────────────────── 5 recorded
//!               serves from here on
//! ```
//!
//! A process makes a new generation of its data directory at each start, before it serves, and again while it runs. A
//! generation is a number and a random nonce, written first to the directory and then recorded in meta's catalog. A
//! directory whose generation is not the recorded one was restored from a copy, or another process has started over a
//! copy of it.
//!
//! Invariants:
//! - a pending generation is not replaced before it is known whether it was recorded: after a crash at any moment, the
//!   recorded generation is among those in the directory;
//! - a process serves only after a generation that it has made itself was recorded: everything that it acknowledges is
//!   later than every copy with an earlier generation;
//! - recorded numbers only increase, so a late request records nothing.
//!
//! A copy made since the last recorded generation has that generation and cannot be told from the directory.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::Error;
use crate::id::{NodeId, PartitionId};

/// Age at which a running process makes the next generation. A copy is detected if a generation was recorded after it
/// was made, so this bounds the age of undetected copies.
pub const RENEW_INTERVAL: Duration = Duration::from_secs(60);

/// One generation of a data directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generation {
    /// Number of the generation, from 1; later generations have higher numbers.
    pub number: u64,
    /// Random number: two copies of a directory that continue separately differ in it.
    pub nonce: u64,
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number)
    }
}

/// The generations in a data directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The last generation known to be recorded; `None`: none yet, as in directories of earlier versions.
    pub acknowledged: Option<Generation>,
    /// A generation that is to be recorded, or was recorded without this directory knowing.
    pub pending: Option<Generation>,
}

impl Claim {
    fn has(&self, generation: Generation) -> bool {
        [self.acknowledged, self.pending].contains(&Some(generation))
    }

    /// True if the directory is older than the one whose generation is recorded, or another copy of it.
    ///
    /// A recorded number below the acknowledged one means that the recorder lags behind, or was itself restored from a
    /// copy: it says nothing about the directory.
    #[must_use]
    pub fn is_older(&self, recorded: Option<Generation>) -> bool {
        let acknowledged_number = self.acknowledged.map_or(0, |acknowledged| acknowledged.number);
        recorded
            .is_some_and(|recorded| !self.has(recorded) && recorded.number >= acknowledged_number)
    }

    /// The number of the next generation.
    fn next_number(&self) -> u64 {
        let generations = self.acknowledged.iter().chain(&self.pending);
        generations.map(|generation| generation.number).max().unwrap_or(0).saturating_add(1)
    }

    /// The text for the file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let line = |name: &str, generation: Option<Generation>| {
            let line = |Generation { number, nonce }| format!("{name} {number} {nonce:016x}\n");
            generation.map(line).unwrap_or_default()
        };
        let text = line("acknowledged", self.acknowledged) + &line("pending", self.pending);
        let checksum = xxh3_64(text.as_bytes());
        format!("{text}checksum {checksum:016x}\n")
    }

    /// Parses a file's text; `None` when it is damaged.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let generation = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
            let (number, nonce) = line.split_once(' ')?;
            let (number, nonce) = (number.parse().ok()?, u64::from_str_radix(nonce, 16).ok()?);
            Some(Generation { number, nonce })
        };
        let claim =
            Self { acknowledged: generation("acknowledged"), pending: generation("pending") };
        (claim.to_text() == text).then_some(claim)
    }
}

/// Decision on a request to record a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Record the directory's pending generation.
    Record(Generation),
    /// Record nothing: it is recorded already.
    Recorded,
    /// Record nothing: the directory is an older copy, or the request is late.
    Older,
}

/// Decides on a directory's request to record its pending generation. `set_aside`: no replica of the directory that may
/// be stale is served any more.
///
/// # Errors
/// [`Error::InvalidInput`] when no generation is pending.
pub fn decide(
    recorded: Option<Generation>,
    claim: &Claim,
    set_aside: bool,
) -> Result<Decision, Error> {
    let pending = claim.pending.filter(|pending| pending.number > 0);
    let pending = pending.ok_or_else(|| {
        Error::InvalidInput("the data directory has no pending generation".to_owned())
    })?;
    let rises = recorded.is_none_or(|recorded| recorded.number < pending.number);
    Ok(if recorded == Some(pending) {
        Decision::Recorded
    } else if rises && (set_aside || !claim.is_older(recorded)) {
        Decision::Record(pending)
    } else {
        Decision::Older
    })
}

/// A node's request to record a generation of its data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renewal {
    /// Node that sends the request.
    pub node: NodeId,
    /// Random number of the node's data directory.
    pub identity: u64,
    /// Generations of the directory.
    pub claim: Claim,
    /// True if the directory was found to be an older copy, and none of its replicas is served any more.
    pub set_aside: bool,
    /// Partitions whose older replicas the operator accepts.
    pub accepted: Vec<PartitionId>,
}

/// Answer to a [`Renewal`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renewed {
    /// The recorded generation; if it is not the pending one, the directory is an older copy.
    pub recorded: Generation,
    /// Accepted partitions of which the node has the only replica.
    pub alone: Vec<PartitionId>,
}

/// Storage for the generations of one data directory.
pub trait ClaimFile: Send + Sync {
    /// Reads the generations; none when there is no file, or when it is damaged: the directory then counts as an older
    /// copy.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the file cannot be read.
    fn read(&self) -> Result<Claim, Error>;

    /// Replaces the generations, atomically and durably.
    ///
    /// # Errors
    /// [`Error::DiskFull`] or [`Error::Unavailable`] on failure.
    fn write(&self, claim: &Claim) -> Result<(), Error>;
}

/// The generations of a process's data directory. Changes block on the disk.
pub struct Generations {
    file: Arc<dyn ClaimFile>,
    state: Mutex<State>,
}

struct State {
    claim: Claim,
    /// True if this process has made the pending generation, false if it found it.
    own_pending: bool,
    /// True once a generation made by this process was recorded.
    settled: bool,
}

impl fmt::Debug for Generations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generations").field("claim", &self.claim()).finish_non_exhaustive()
    }
}

impl Generations {
    /// Reads a directory's generations.
    ///
    /// # Errors
    /// Those of the file.
    pub fn open(file: Arc<dyn ClaimFile>) -> Result<Self, Error> {
        let claim = file.read()?;
        let state = State { claim, own_pending: false, settled: false };
        Ok(Self { file, state: Mutex::new(state) })
    }

    /// Current generations of the directory.
    #[must_use]
    pub fn claim(&self) -> Claim {
        self.state.lock().claim
    }

    /// True if a generation made by this process is recorded.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.state.lock().settled
    }

    /// Makes the next generation with a random nonce, unless one is pending; returns the generations to be sent to
    /// meta.
    ///
    /// # Errors
    /// Those of the file; nothing has changed then.
    pub fn begin(&self, nonce: u64) -> Result<Claim, Error> {
        let mut state = self.state.lock();
        if state.claim.pending.is_none() {
            let number = state.claim.next_number();
            self.make(&mut state, Generation { number, nonce })?;
        }
        Ok(state.claim)
    }

    /// Makes a generation that follows the recorded one, for a directory that is an older copy.
    ///
    /// # Errors
    /// Those of the file; nothing has changed then.
    pub fn begin_after(&self, recorded: Generation, nonce: u64) -> Result<Claim, Error> {
        let mut state = self.state.lock();
        let number = state.claim.next_number().max(recorded.number.saturating_add(1));
        self.make(&mut state, Generation { number, nonce })?;
        Ok(state.claim)
    }

    fn make(&self, state: &mut State, generation: Generation) -> Result<(), Error> {
        let claim = Claim { pending: Some(generation), ..state.claim };
        self.file.write(&claim)?;
        (state.claim, state.own_pending) = (claim, true);
        Ok(())
    }

    /// Notes the recorded generation; true when it is the pending one, which is acknowledged from now on.
    ///
    /// # Errors
    /// Those of the file; nothing has changed then.
    pub fn note_recorded(&self, recorded: Generation) -> Result<bool, Error> {
        let mut state = self.state.lock();
        if state.claim.pending != Some(recorded) {
            return Ok(false);
        }
        let claim = Claim { acknowledged: Some(recorded), pending: None };
        self.file.write(&claim)?;
        state.claim = claim;
        state.settled |= std::mem::take(&mut state.own_pending);
        Ok(true)
    }
}

#[cfg(test)]
mod tests;

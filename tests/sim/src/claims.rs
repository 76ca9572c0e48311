//! The generations in a node's data directory, in memory.
//!
//! Invariant: an acknowledged write survives a crash; after the power is off nothing changes.

use std::sync::Arc;

use parking_lot::Mutex;
use partita_proto::error::Error;
use partita_proto::generation::{Claim, ClaimFile};

#[derive(Default)]
struct State {
    claim: Claim,
    off: bool,
}

/// The generation file of one life of a node.
#[derive(Clone, Default)]
pub(crate) struct SimClaims(Arc<Mutex<State>>);

impl SimClaims {
    /// Turns the power off: all further writes fail.
    pub(crate) fn cut(&self) {
        self.0.lock().off = true;
    }

    /// The file that the node's next life opens.
    pub(crate) fn survivor(&self) -> Self {
        Self(Arc::new(Mutex::new(State { claim: self.claim(), off: false })))
    }

    /// The generations in the file.
    pub(crate) fn claim(&self) -> Claim {
        self.0.lock().claim
    }
}

impl ClaimFile for SimClaims {
    fn read(&self) -> Result<Claim, Error> {
        Ok(self.claim())
    }

    fn write(&self, claim: &Claim) -> Result<(), Error> {
        let mut state = self.0.lock();
        if state.off {
            return Err(Error::Unavailable("the power is off".to_owned()));
        }
        state.claim = *claim;
        Ok(())
    }
}

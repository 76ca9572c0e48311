//! Greetings that nodes exchange when a link between them is opened, and the check of the other node's identity.
//!
//! A node's number is configured by people, and its log may be lost while the number stays. A replica without its log
//! has forgotten its votes and the entries it acknowledged, so it must not take part under the old number. Each data
//! directory therefore has a random identity. A node that records the others' identities refuses a known number with
//! another identity, in both directions: no vote, append or reply of such a node counts. The same holds for a node with
//! an older copy of its directory ([`partita_proto::generation`]).

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use partita_proto::generation::{Claim, Generation};
use partita_proto::id::NodeId;
use partita_proto::wire::Wire;
use partita_proto::wire::pb::RaftHello;

use crate::planted::{self, Plant};
use crate::transport::VERSION;

/// Maximum bytes of the reason in a refusal.
const REASON_BYTES_MAX: usize = 1024;

/// Identity that a node presents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Node id.
    pub node: NodeId,
    /// Random number of the node's data directory; 0: it has none.
    pub identity: u64,
    /// True if the operator has declared the node's data lost: it joins again as a new member.
    pub rejoins: bool,
    /// Generations of the node's data directory.
    pub claim: Claim,
}

/// Reason for refusing a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Text for the operator of the refused node.
    pub why: String,
    /// The recorded generation, when the node's data directory is an older copy.
    pub recorded: Option<Generation>,
}

/// Record of the identities of other nodes.
pub trait Acquaintances: Send + Sync + 'static {
    /// Decides whether links to and from a node may be used. Called whenever a link is opened.
    ///
    /// # Errors
    /// The reason for refusing the node.
    fn meet(&self, peer: &Greeting) -> Result<(), Refusal>;

    /// Called when `node` has refused this one.
    fn refused(&self, node: NodeId, refusal: &Refusal);
}

/// This node's greeting, and its record of other nodes.
#[derive(Clone)]
pub(crate) struct Manners {
    pub(crate) node: NodeId,
    identity: u64,
    rejoins: Arc<AtomicBool>,
    claim: Arc<Mutex<Claim>>,
    /// Unset at first: until it is set, no node is refused.
    pub(crate) acquaintances: Arc<OnceLock<Arc<dyn Acquaintances>>>,
}

impl fmt::Debug for Manners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manners").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Manners {
    pub(crate) fn new(node: NodeId, identity: u64) -> Self {
        Self {
            node,
            identity,
            rejoins: Arc::default(),
            claim: Arc::default(),
            acquaintances: Arc::default(),
        }
    }

    /// Sets the generations of the data directory, which later greetings carry.
    pub(crate) fn set_claim(&self, claim: Claim) {
        *self.claim.lock() = claim;
    }

    /// Sets whether later greetings announce that this node joins again as a new member.
    pub(crate) fn set_rejoins(&self, rejoins: bool) {
        self.rejoins.store(rejoins, Ordering::Relaxed);
    }

    /// The greeting for node `peer`; with a refusal, if `peer` is refused.
    pub(crate) fn hello(&self, peer: u64, refusal: Option<&Refusal>) -> RaftHello {
        let refused = refusal.map(|refusal| {
            let end = refusal.why.floor_char_boundary(REASON_BYTES_MAX);
            refusal.why[..end].to_owned()
        });
        RaftHello {
            version: VERSION,
            node: self.node.0,
            peer,
            identity: self.identity,
            rejoins: self.rejoins.load(Ordering::Relaxed),
            refused,
            claim: self.claim.lock().to_field(),
            recorded: refusal.and_then(|refusal| Some(refusal.recorded?.to_wire())),
        }
    }

    /// Reason to refuse the node that greets; `None` if it is accepted.
    pub(crate) fn refusal(&self, hello: &RaftHello) -> Option<Refusal> {
        if planted::is(Plant::Stranger) {
            return None;
        }
        let claim = match Claim::from_field(hello.claim) {
            Ok(claim) => claim,
            Err(error) => return Some(Refusal { why: error.to_string(), recorded: None }),
        };
        let (node, identity, rejoins) = (NodeId(hello.node), hello.identity, hello.rejoins);
        let peer = Greeting { node, identity, rejoins, claim };
        let refusal = self.acquaintances.get()?.meet(&peer).err()?;
        (refusal.recorded.is_none() || !planted::is(Plant::TrustOld)).then_some(refusal)
    }

    /// Records a refusal of this node, if the answer of `node` carries one; returns the reason.
    pub(crate) fn refused(&self, node: NodeId, answer: &RaftHello) -> Option<String> {
        let why = answer.refused.clone()?;
        let recorded = answer.recorded.and_then(|recorded| Generation::from_wire(recorded).ok());
        if let Some(acquaintances) = self.acquaintances.get() {
            acquaintances.refused(node, &Refusal { why: why.clone(), recorded });
        }
        Some(why)
    }
}

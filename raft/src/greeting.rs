//! What nodes say of themselves when a link between them is opened, and whether they are taken for who they say they are.
//!
//! A node's number is configured by people, and its log may be lost while the number stays. A replica without its log has
//! forgotten its votes and what it acknowledged, so it must not take part under the old number. Each data directory has a
//! random identity; whoever keeps the others' identities refuses a number that comes with another one, in both directions:
//! no vote, no append and no answer of such a node counts. The same holds for one that comes with an older copy of its
//! directory ([`partita_proto::generation`]).

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

/// The longest reason that a refusal bears, in bytes.
const REASON_BYTES_MAX: usize = 1024;

/// What a node says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The number.
    pub node: NodeId,
    /// The random number of its data directory; 0: none is kept.
    pub identity: u64,
    /// Whether its operator has said that it lost its data and is to join again as a new member.
    pub rejoins: bool,
    /// The generations of its data directory.
    pub claim: Claim,
}

/// Why a node is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// For the operator of that node to read.
    pub why: String,
    /// The recorded generation, when the node's data directory is an older copy.
    pub recorded: Option<Generation>,
}

/// Keeps the identities of other nodes.
pub trait Acquaintances: Send + Sync + 'static {
    /// Decides whether links to and from a node are used. Asked whenever one is opened.
    ///
    /// # Errors
    /// Why not.
    fn meet(&self, peer: &Greeting) -> Result<(), Refusal>;

    /// Takes note that another node has refused this one, and why.
    fn refused(&self, by: NodeId, refusal: &Refusal);
}

/// This node's greeting, and whom it knows.
#[derive(Clone)]
pub(crate) struct Manners {
    pub(crate) node: NodeId,
    identity: u64,
    rejoins: Arc<AtomicBool>,
    claim: Arc<Mutex<Claim>>,
    /// Nobody is refused before there is one.
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

    /// From now on, the generations of the data directory that this node greets with.
    pub(crate) fn set_claim(&self, claim: Claim) {
        *self.claim.lock() = claim;
    }

    /// From now on, whether this node greets as one that is to join again.
    pub(crate) fn set_rejoins(&self, rejoins: bool) {
        self.rejoins.store(rejoins, Ordering::Relaxed);
    }

    /// The message that greets a node.
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

    /// Why a node that greets is refused, if it is.
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

    /// Takes note that a node has refused this one, if its answer says so; the reason.
    pub(crate) fn refused(&self, by: NodeId, answer: &RaftHello) -> Option<String> {
        let why = answer.refused.clone()?;
        let recorded = answer.recorded.and_then(|recorded| Generation::from_wire(recorded).ok());
        if let Some(acquaintances) = self.acquaintances.get() {
            acquaintances.refused(by, &Refusal { why: why.clone(), recorded });
        }
        Some(why)
    }
}

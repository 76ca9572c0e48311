//! What nodes say of themselves when a link between them is opened, and whether they are taken for who they say they are.
//!
//! A node's number is configured by people, and its log may be lost while the number stays. A replica without its log has
//! forgotten its votes and what it acknowledged, so it must not take part under the old number. Each data directory has a
//! random identity; whoever keeps the others' identities refuses a number that comes with another one, in both directions:
//! no vote, no append and no answer of such a node counts.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use partita_proto::id::NodeId;
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
}

/// Keeps the identities of other nodes.
pub trait Acquaintances: Send + Sync + 'static {
    /// Decides whether links to and from a node are used. Asked whenever one is opened.
    ///
    /// # Errors
    /// Why not, for the operator of that node to read.
    fn meet(&self, peer: &Greeting) -> Result<(), String>;

    /// Takes note that another node has refused this one, and why.
    fn refused(&self, by: NodeId, why: &str);
}

/// This node's greeting, and whom it knows.
#[derive(Clone)]
pub(crate) struct Manners {
    pub(crate) node: NodeId,
    identity: u64,
    rejoins: Arc<AtomicBool>,
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
        Self { node, identity, rejoins: Arc::default(), acquaintances: Arc::default() }
    }

    /// From now on, whether this node greets as one that is to join again.
    pub(crate) fn set_rejoins(&self, rejoins: bool) {
        self.rejoins.store(rejoins, Ordering::Relaxed);
    }

    /// The message that greets a node.
    pub(crate) fn hello(&self, peer: u64, refusal: Option<String>) -> RaftHello {
        let refused = refusal.map(|mut why| {
            let end = why.floor_char_boundary(REASON_BYTES_MAX);
            why.truncate(end);
            why
        });
        RaftHello {
            version: VERSION,
            node: self.node.0,
            peer,
            identity: self.identity,
            rejoins: self.rejoins.load(Ordering::Relaxed),
            refused,
        }
    }

    /// Why a node that greets is refused, if it is.
    pub(crate) fn refusal(&self, hello: &RaftHello) -> Option<String> {
        if planted::is(Plant::Stranger) {
            return None;
        }
        let peer =
            Greeting { node: NodeId(hello.node), identity: hello.identity, rejoins: hello.rejoins };
        self.acquaintances.get()?.meet(&peer).err()
    }

    /// Takes note that a node has refused this one.
    pub(crate) fn refused(&self, by: NodeId, why: &str) {
        if let Some(acquaintances) = self.acquaintances.get() {
            acquaintances.refused(by, why);
        }
    }
}

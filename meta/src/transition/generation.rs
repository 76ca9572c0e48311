//! Commands on generations of data directories. The decisions are in [`partita_proto::generation`].
//!
//! A command from an older copy changes nothing but is not refused: its sender reads the recorded generation
//! afterwards.
//!
//! Invariant: a node whose data directory begins anew creates no replica under a number that it may have had before.
//! A replica that is still to become a member may be one in the group already, and then its group counts on its votes
//! and its entries, which are lost.

use std::sync::Arc;

use partita_proto::error::Error;
use partita_proto::generation::{Decision, Renewal, decide};
use partita_proto::id::NodeId;

use super::draft::{Draft, Outcome, Reply};
use super::node::registered;
use crate::catalog::{Edit, MetaRecord, NodeRecord, State};

/// Records a generation of a node's data directory.
pub(super) fn renew(state: &State, renewal: &Renewal) -> Result<Outcome, Error> {
    let record = registered(state, renewal.node, renewal.identity)?;
    let decision = decide(record.generation, &renewal.claim, renewal.set_aside)?;
    let Decision::Record(generation) = decision else {
        return Ok(Outcome::without_edits(Reply::Unchanged));
    };
    let mut draft = Draft::new(state);
    let record = NodeRecord { generation: Some(generation), ..NodeRecord::clone(record) };
    draft.edits.push(Edit::Node(Arc::new(record)));
    if renewal.set_aside {
        renumber(&mut draft, renewal.node);
    }
    Ok(draft.done())
}

/// Gives new numbers to the replicas that are being moved to a node. Its other replicas are reported as failed or
/// missing, and are replaced for that reason.
fn renumber(draft: &mut Draft<'_>, node: NodeId) {
    let state = draft.state;
    for record in state.moving() {
        draft.renumber(record, |_, holder| holder == node);
    }
}

/// Records a generation of the data directory of a member of meta's group.
pub(super) fn renew_meta(state: &State, renewal: &Renewal) -> Result<Outcome, Error> {
    let record = state.meta(renewal.node).filter(|record| record.identity == renewal.identity);
    let record = record.ok_or_else(|| Error::NotFound {
        kind: "member of meta's group",
        name: renewal.node.to_string(),
    })?;
    let decision = decide(record.generation, &renewal.claim, renewal.set_aside)?;
    let Decision::Record(generation) = decision else {
        return Ok(Outcome::without_edits(Reply::Unchanged));
    };
    let mut draft = Draft::new(state);
    let record = MetaRecord { generation: Some(generation), ..*record };
    draft.edits.push(Edit::Meta(renewal.node, record));
    Ok(draft.done())
}

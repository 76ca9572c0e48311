//! Commands on meta's own group: who leads it, and whose data directories its members have.

use partita_proto::catalog_history::{LEADERSHIPS_MAX, Leadership};
use partita_proto::id::NodeId;

use super::{Draft, Outcome, Reply};
use crate::catalog::{Edit, MetaRecord, State};

/// Records a leadership, and the cluster's number with the first one. Terms never go down in the record: a process
/// that lost and won an election in between names the older one.
pub(super) fn lead(state: &State, cluster: u64, term: u64, nonce: u64) -> Outcome {
    let mut draft = Draft::new(state);
    if state.cluster() == 0 {
        draft.edits.push(Edit::Cluster(cluster));
    }
    let last = state.leaderships().next_back().map_or(0, |last| last.term);
    let first = draft.counters.version;
    draft.edits.push(Edit::Leadership(Leadership { first, term: term.max(last), nonce }));
    let surplus = (state.leaderships().count() + 1).saturating_sub(LEADERSHIPS_MAX);
    let oldest = state.leaderships().take(surplus);
    draft.edits.extend(oldest.map(|oldest| Edit::LeadershipGone(oldest.first)));
    draft.done()
}

/// Records the data directory of a member of meta's group, in place of another one that it may have had.
pub(super) fn know_meta(state: &State, node: NodeId, identity: u64) -> Outcome {
    if state.meta_identity(node) == Some(identity) {
        return Outcome::without_edits(Reply::Unchanged);
    }
    let mut draft = Draft::new(state);
    draft.edits.push(Edit::Meta(node, MetaRecord { identity, generation: None }));
    draft.done()
}
